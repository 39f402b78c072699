// kernels/square.cu
// Squares every element: out = inp * inp.
//
// Shapes: inp any, contiguous, float32; out the same. Bytes: 8 an element; FLOPs: 1.
// Notebook: 01_profiling_pytorch. The kernel follows lecture 1 of GPU MODE; own code.
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

// out, inp: (n), one thread per element
__global__ void square_forward_kernel(float* out, const float* inp, int64_t n) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = inp[i] * inp[i];
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
    const dim3 grid((n + BLOCK_SIZE - 1) / BLOCK_SIZE);
    square_forward_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
