// kernels/matmul_naive.cu
// SPDX-License-Identifier: MIT
// Matrix product out = A @ B, one thread per element of out.
// A: (M, K), B: (K, N), out: (M, N); float32, contiguous, below 2^31 elements each.
// 2 M N K FLOPs; at least 4 (M K + K N + M N) bytes; no scratch memory.
// Notebook: 03_python_to_cuda. The textbook's three loops; the grid is the outer two.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// matmul_naive = load_inline("matmul_naive",
//     cpp_sources="torch::Tensor matmul_naive(torch::Tensor A, torch::Tensor B);",
//     cuda_sources=Path("matmul_naive.cu").read_text(), functions=["matmul_naive"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

static int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

// x has to be contiguous float32 of this shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, torch::Tensor x, torch::IntArrayRef shape,
                        torch::Tensor like) {
    TORCH_CHECK(x.is_cuda() && x.device() == like.device(), name,
                ": expected a CUDA tensor, all on one device, got ", x.device());
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), name,
                ": expected contiguous float32, shape ", shape, " (-1: any), got ",
                x.scalar_type(), ", shape ", x.sizes(), ", strides ", x.strides());
}

constexpr int TILE = 16;  // threads per block side

// out: (M, N), A: (M, K), B: (K, N), each row after row; one thread per element of out
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

torch::Tensor matmul_naive(torch::Tensor A, torch::Tensor B) {
    check_input("A", A, {-1, -1}, A);
    int64_t M = A.size(0), K = A.size(1);
    check_input("B", B, {K, -1}, A);
    int64_t N = B.size(1);
    TORCH_CHECK(M * K <= INT_MAX && K * N <= INT_MAX && M * N <= INT_MAX,
                "matmul_naive: expected at most 2^31 - 1 elements each, got A ",
                A.sizes(), " and B ", B.sizes());
    c10::cuda::CUDAGuard guard(A.device());
    torch::Tensor out = torch::empty({M, N}, A.options());
    if (out.numel() == 0) return out;
    dim3 block(TILE, TILE), grid(cdiv(N, TILE), cdiv(M, TILE));
    TORCH_CHECK(grid.y <= 65535, "A: expected at most 65535 * 16 rows, got ", M);
    matmul_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), A.data_ptr<float>(), B.data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
