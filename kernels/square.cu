// kernels/square.cu
// Squares every element: out = inp * inp.
//
// Shapes: inp any, contiguous, float32; out the same. Bytes: 8 an element; FLOPs: 1.
// Notebook: 01_profiling_pytorch. The task is from lecture 1 of GPU MODE; own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// square = load_inline("square", functions=["square"],
//                      cpp_sources="torch::Tensor square(torch::Tensor inp);",
//                      cuda_sources=Path("square.cu").read_text())

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

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
    TORCH_CHECK(inp.is_cuda(),
                "square: expected a CUDA tensor, got one on ", inp.device());
    TORCH_CHECK(inp.scalar_type() == torch::kFloat32,
                "square: expected float32, got ", inp.scalar_type());
    TORCH_CHECK(inp.is_contiguous(),
                "square: expected a contiguous tensor, got strides ", inp.strides());
    const c10::cuda::CUDAGuard guard(inp.device());  // launch on the tensor's own GPU
    auto out = torch::empty_like(inp);
    const int64_t n = inp.numel();
    if (n == 0) {
        return out;  // a grid of 0 blocks would be an error
    }
    const int64_t per_block = BLOCK_SIZE * WIDTH;
    const dim3 grid((n + per_block - 1) / per_block);
    square_forward_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
