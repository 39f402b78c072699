// kernels/vector_add.cu
// SPDX-License-Identifier: MIT
// Adds two tensors element by element: out[i] = a[i] + b[i].
// a, b, out: the same shape, float32, contiguous, at most 2^31 - 1 elements.
// Each element moves 12 bytes and costs 1 FLOP; no scratch memory.
// Notebook: 02_grids_blocks_threads. The first kernel of any CUDA book; own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// vector_add = load_inline("vector_add",
//     cpp_sources="torch::Tensor vector_add(torch::Tensor a, torch::Tensor b);",
//     cuda_sources=Path("vector_add.cu").read_text(), functions=["vector_add"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

static int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

// x has to be contiguous float32, of the same shape and on the same GPU as `like`
static void check_input(const char* name, torch::Tensor x, torch::Tensor like) {
    TORCH_CHECK(x.is_cuda() && x.device() == like.device(), name,
                ": expected a CUDA tensor, all on one device, got ", x.device());
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous() &&
                x.sizes() == like.sizes(), name, ": expected contiguous float32, "
                "shape ", like.sizes(), ", got ", x.scalar_type(), ", shape ",
                x.sizes(), ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 256;  // threads per block

// out, a, b: (n), one thread per element
__global__ void vector_add_kernel(float* out, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = a[i] + b[i];
    }
}

torch::Tensor vector_add(torch::Tensor a, torch::Tensor b) {
    check_input("a", a, a);
    check_input("b", b, a);
    TORCH_CHECK(a.numel() <= INT_MAX, "a: expected at most 2^31 - 1 elements, got ",
                a.numel());
    c10::cuda::CUDAGuard guard(a.device());
    torch::Tensor out = torch::empty_like(a);
    int n = a.numel();
    if (n == 0) return out;
    int grid = cdiv(n, BLOCK_SIZE);
    vector_add_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
