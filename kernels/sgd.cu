// kernels/sgd.cu
// SPDX-License-Identifier: MIT
// A step of stochastic gradient descent, in place: param -= lr * grad. Any shape,
// float32, contiguous. Moves 12 bytes an element; no scratch memory.
// Notebook: 17_mnist_cnn.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// sgd = load_inline("sgd", cuda_sources=Path("sgd.cu").read_text(), cpp_sources=
//     "void sgd_step(torch::Tensor param, torch::Tensor grad, double lr);",
//     functions=["sgd_step"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

// x has to be contiguous float32, of the shape and on the GPU of `like`
static void check_input(const char* name, Tensor x, Tensor like) {
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous() &&
                x.is_cuda() && x.device() == like.device() && x.sizes() == like.sizes(),
                name, ": expected contiguous float32 on one CUDA device, shape ",
                like.sizes(), ", got ", x.scalar_type(), " on ", x.device(),
                ", shape ", x.sizes(), ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 256;  // threads of a block, one element each

// One thread per element.
__global__ void sgd_kernel(float* param,       // (n)
                           const float* grad,  // (n)
                           int64_t n, float lr) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) param[i] -= lr * grad[i];
}

void sgd_step(Tensor param, Tensor grad, double lr) {
    check_input("param", param, param);
    check_input("grad", grad, param);
    CUDAGuard guard(param.device());
    int64_t n = param.numel(), grid = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (n == 0) return;
    sgd_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        param.data_ptr<float>(), grad.data_ptr<float>(), n, lr);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
