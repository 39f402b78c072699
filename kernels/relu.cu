// kernels/relu.cu
// SPDX-License-Identifier: MIT
// ReLU: out = max(inp, 0), element by element; NaN stays NaN. Any shape, float32,
// contiguous. Moves 8 bytes an element, backward 12; no scratch memory.
// Notebook: 17_mnist_cnn.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// relu = load_inline("relu", cuda_sources=Path("relu.cu").read_text(),
//     cpp_sources="""torch::Tensor relu_forward(torch::Tensor inp);
//         torch::Tensor relu_backward(torch::Tensor dout, torch::Tensor out);""",
//     functions=["relu_forward", "relu_backward"])
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
__global__ void relu_forward_kernel(float* out,        // (n)
                                    const float* inp,  // (n)
                                    int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = inp[i] < 0.0f ? 0.0f : inp[i];
}

// The slope is 1 where out is positive, else 0: out alone tells, inp need not be kept.
__global__ void relu_backward_kernel(float* dinp,        // (n)
                                     const float* dout,  // (n)
                                     const float* out,   // (n)
                                     int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dinp[i] = out[i] <= 0.0f ? 0.0f : dout[i];
}

Tensor relu_forward(Tensor inp) {
    check_input("inp", inp, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    int64_t n = inp.numel(), grid = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (n == 0) return out;
    relu_forward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor relu_backward(Tensor dout, Tensor out) {
    check_input("out", out, out);
    check_input("dout", dout, out);
    CUDAGuard guard(out.device());
    Tensor dinp = torch::empty_like(out);
    int64_t n = out.numel(), grid = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (n == 0) return dinp;
    relu_backward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dinp.data_ptr<float>(), dout.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
