// kernels/matmul.cu
// Matrix product out = A @ B, one thread per element of out.
// A: (M, K), B: (K, N), out: (M, N); float32, contiguous, below 2^31 elements each.
// 2 M N K FLOPs; at least 4 (M K + K N + M N) bytes.
// Notebook: 03_python_to_cuda. The textbook's three loops; the grid is the outer two.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// matmul = load_inline("matmul",
//     cpp_sources="torch::Tensor matmul(torch::Tensor A, torch::Tensor B);",
//     cuda_sources=Path("matmul.cu").read_text(), functions=["matmul"])
#include <climits>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x, type)                                                         \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == type,                                             \
                #x ": expected ", type, ", got ", x.scalar_type());                  \
    TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && x.numel() <= INT_MAX,           \
                #x ": expected a contiguous matrix of at most 2^31 - 1 elements, got " \
                "shape ", x.sizes(), ", strides ", x.strides())

static int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

constexpr int TILE = 16;  // threads per block side

__global__ void matmul_kernel(float* out, const float* A, const float* B,
                              int M, int N, int K) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k = 0; k < K; k++)
            acc += A[row * K + k] * B[k * N + col];
        out[row * N + col] = acc;
    }
}

torch::Tensor matmul(torch::Tensor A, torch::Tensor B) {
    CHECK_INPUT(A, torch::kFloat32);
    CHECK_INPUT(B, torch::kFloat32);
    TORCH_CHECK(A.size(1) == B.size(0) && A.device() == B.device(),
                "B: expected ", A.size(1), " rows on ", A.device(),
                ", got ", B.size(0), " on ", B.device());
    c10::cuda::CUDAGuard guard(A.device());
    torch::Tensor out = torch::empty({A.size(0), B.size(1)}, A.options());
    TORCH_CHECK(out.numel() <= INT_MAX, "out: expected at most 2^31 - 1 elements, got ",
                out.numel());
    if (out.numel() == 0) return out;
    int M = A.size(0), K = A.size(1), N = B.size(1);
    dim3 block(TILE, TILE), grid(cdiv(N, TILE), cdiv(M, TILE));
    TORCH_CHECK(grid.y <= 65535, "A: expected at most 65535 * 16 rows, got ", M);
    matmul_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.mutable_data_ptr<float>(), A.const_data_ptr<float>(),
        B.const_data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
