// kernels/sgd.cu
// SPDX-License-Identifier: MIT
// A step of stochastic gradient descent, in place: param -= lr * grad. Any shape,
// float32, contiguous. Moves 12 bytes an element; no scratch memory.
// Notebook: 17_mnist_cnn. Own code.
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

constexpr int BLOCK_SIZE = 256;  // threads per block
constexpr int WIDTH = 4;         // elements per thread, one float4

// param, grad: (n), WIDTH neighbours per thread
__global__ void sgd_kernel(float* param, const float* grad, int64_t n, float lr) {
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * WIDTH;
    uintptr_t places =
        reinterpret_cast<uintptr_t>(param) | reinterpret_cast<uintptr_t>(grad);
    if (places % sizeof(float4) == 0 && i + WIDTH <= n) {
        float4 p = *reinterpret_cast<float4*>(param + i);
        float4 g = *reinterpret_cast<const float4*>(grad + i);
        *reinterpret_cast<float4*>(param + i) = make_float4(
            p.x - lr * g.x, p.y - lr * g.y, p.z - lr * g.z, p.w - lr * g.w);
    } else {  // the end, or a view that starts between two multiples of 16 bytes
        for (int64_t j = i; j < i + WIDTH && j < n; j++) param[j] -= lr * grad[j];
    }
}

void sgd_step(Tensor param, Tensor grad, double lr) {
    check_input("param", param, param);
    check_input("grad", grad, param);
    CUDAGuard guard(param.device());
    int64_t n = param.numel(), per_block = BLOCK_SIZE * WIDTH;
    if (n == 0) return;
    dim3 grid((n + per_block - 1) / per_block);
    sgd_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        param.data_ptr<float>(), grad.data_ptr<float>(), n, lr);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
