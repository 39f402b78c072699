// kernels/square.cu
// SPDX-License-Identifier: MIT
// Squares every element: out = inp * inp.
// inp, out: any shape, float32, contiguous. Moves 8 bytes an element, for 1 FLOP; no
// scratch memory.
// Notebook: 01_profiling_pytorch. The task is from lecture 1 of GPU MODE; own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// square = load_inline("square", functions=["square"],
//                      cpp_sources="torch::Tensor square(torch::Tensor inp);",
//                      cuda_sources=Path("square.cu").read_text())
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

constexpr int BLOCK_SIZE = 256;  // threads per block
constexpr int WIDTH = 4;         // elements per thread, one float4

// out, inp: (n), WIDTH neighbours per thread; out starts at a multiple of 16 bytes
__global__ void square_forward_kernel(float* out, const float* inp, int64_t n) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t i = thread * WIDTH;
    const bool aligned = reinterpret_cast<uintptr_t>(inp) % sizeof(float4) == 0;
    if (aligned && i + WIDTH <= n) {
        const float4 v = *reinterpret_cast<const float4*>(inp + i);
        *reinterpret_cast<float4*>(out + i) =
            make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
    } else {  // the end, or a slice between two multiples of 16 bytes
        for (int64_t j = i; j < i + WIDTH && j < n; ++j) {
            out[j] = inp[j] * inp[j];
        }
    }
}

torch::Tensor square(torch::Tensor inp) {
    TORCH_CHECK(inp.is_cuda(), "inp: expected a CUDA tensor, got ", inp.device());
    TORCH_CHECK(inp.scalar_type() == torch::kFloat32 && inp.is_contiguous(),
                "inp: expected contiguous float32, got ", inp.scalar_type(),
                ", strides ", inp.strides());
    const c10::cuda::CUDAGuard guard(inp.device());  // launch on the tensor's own GPU
    auto out = torch::empty_like(inp);
    const int64_t n = inp.numel(), per_block = BLOCK_SIZE * WIDTH;
    if (n == 0) return out;  // a grid of 0 blocks would be an error
    const dim3 grid((n + per_block - 1) / per_block);
    square_forward_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
