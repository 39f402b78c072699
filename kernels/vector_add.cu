// kernels/vector_add.cu
// Adds two tensors element by element: out[i] = a[i] + b[i].
// a, b, out: the same shape, float32, contiguous, at most 2^31 - 1 elements.
// Each element moves 12 bytes and costs 1 FLOP.
// Notebook: 02_grids_blocks_threads. The first kernel of any CUDA book; own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// vector_add = load_inline("vector_add",
//     cpp_sources="torch::Tensor vector_add(torch::Tensor a, torch::Tensor b);",
//     cuda_sources=Path("vector_add.cu").read_text(), functions=["vector_add"])
#include <climits>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x, type)                                                         \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == type,                                             \
                #x ": expected ", type, ", got ", x.scalar_type());                  \
    TORCH_CHECK(x.is_contiguous(),                                                   \
                #x ": expected a contiguous tensor, got strides ", x.strides())

static int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

constexpr int BLOCK_SIZE = 256;  // threads per block

__global__ void vector_add_kernel(float* out, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = a[i] + b[i];
    }
}

torch::Tensor vector_add(torch::Tensor a, torch::Tensor b) {
    CHECK_INPUT(a, torch::kFloat32);
    CHECK_INPUT(b, torch::kFloat32);
    TORCH_CHECK(a.sizes() == b.sizes() && a.device() == b.device(),
                "b: expected ", a.sizes(), " on ", a.device(),
                ", got ", b.sizes(), " on ", b.device());
    TORCH_CHECK(a.numel() <= INT_MAX, "expected at most 2^31 - 1 elements, got ",
                a.numel());
    c10::cuda::CUDAGuard guard(a.device());
    torch::Tensor out = torch::empty_like(a);
    int n = a.numel();
    if (n == 0) return out;
    int grid = cdiv(n, BLOCK_SIZE);
    vector_add_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.mutable_data_ptr<float>(), a.const_data_ptr<float>(),
        b.const_data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
