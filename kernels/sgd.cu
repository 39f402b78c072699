// kernels/sgd.cu
// A step of stochastic gradient descent, in place: param -= lr * grad.
// param, grad: the same shape, any; float32, contiguous. Moves 12 bytes an element.
// Notebook: 17_mnist_cnn.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// sgd = load_inline("sgd", cuda_sources=Path("sgd.cu").read_text(), cpp_sources=
//     "void sgd_step(torch::Tensor param, torch::Tensor grad, double lr);",
//     functions=["sgd_step"])
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x)                                                               \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous(), #x          \
                ": expected contiguous float32, got ", x.scalar_type(), ", shape ",  \
                x.sizes(), ", strides ", x.strides())

constexpr int BLOCK_SIZE = 256;  // threads of a block, one element each

__global__ void sgd_kernel(float* param, const float* grad, int64_t n, float lr) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) param[i] -= lr * grad[i];
}

void sgd_step(torch::Tensor param, torch::Tensor grad, double lr) {
    CHECK_INPUT(param);
    CHECK_INPUT(grad);
    TORCH_CHECK(param.sizes() == grad.sizes() && param.device() == grad.device(),
                "grad: expected shape ", param.sizes(), " on ", param.device(),
                ", got ", grad.sizes(), " on ", grad.device());
    c10::cuda::CUDAGuard guard(param.device());
    int64_t n = param.numel(), grid = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (n == 0) return;
    sgd_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        param.mutable_data_ptr<float>(), grad.const_data_ptr<float>(), n, lr);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
