// kernels/linear_naive.cu
// SPDX-License-Identifier: MIT
// A linear layer: out = inp @ weight.T + bias. float32, contiguous; inp has below 2^31
// rows and at most 65535 * 128 columns, so has out. 2 N M K FLOPs forward, as many for
// dinp and for dweight; no scratch memory.
// Notebook: 17_mnist_cnn. Algorithm: the definition, one thread per output element.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// linear_naive = load_inline("linear_naive",
//     cuda_sources=Path("linear_naive.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor linear_forward(Tensor inp, Tensor weight, Tensor bias);
//         Tensor linear_backward_input(Tensor dout, Tensor weight);
//         std::tuple<Tensor, Tensor> linear_backward_weight(Tensor dout, Tensor inp);
//         """, functions=["linear_forward", "linear_backward_input",
//                         "linear_backward_weight"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

// x has to be contiguous float32 of this shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, Tensor x, torch::IntArrayRef shape,
                        Tensor like) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == torch::kFloat32 && x.is_contiguous() &&
                x.is_cuda() && x.device() == like.device(), name, ": expected "
                "contiguous float32 on one CUDA device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 128;  // threads of a block, each on one element of a row

// One thread per element of out: row blockIdx.x, its columns along blockIdx.y.
__global__ void linear_forward_kernel(float* out,           // (N, M)
                                      const float* inp,     // (N, K)
                                      const float* weight,  // (M, K)
                                      const float* bias,    // (M)
                                      int K, int M) {
    int64_t n = blockIdx.x, m = blockIdx.y * blockDim.x + threadIdx.x;
    if (m >= M) return;
    float acc = 0.0f;
    for (int k = 0; k < K; k++)
        acc += inp[n * K + k] * weight[m * K + k];
    out[n * M + m] = acc + bias[m];
}

// Row x of a matrix, its columns along y.
static dim3 row_grid(int64_t rows, int64_t cols) {
    TORCH_CHECK(rows <= INT_MAX && cols <= 65535 * BLOCK_SIZE, "linear: expected below "
                "2^31 rows, at most 65535 * 128 columns, got ", rows, " x ", cols);
    return dim3(rows, (cols + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

Tensor linear_forward(Tensor inp, Tensor weight, Tensor bias) {
    check_input("inp", inp, {-1, -1}, inp);
    check_input("weight", weight, {-1, inp.size(1)}, inp);
    int64_t N = inp.size(0), K = inp.size(1), M = weight.size(0);
    check_input("bias", bias, {M}, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({N, M}, inp.options());
    if (out.numel() == 0) return out;
    row_grid(M, K);  // refuses what is too large
    linear_forward_kernel<<<row_grid(N, M), BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), weight.data_ptr<float>(),
        bias.data_ptr<float>(), K, M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// dinp = dout @ weight: one thread per element of dinp.
__global__ void linear_backward_input_kernel(float* dinp,          // (N, K)
                                             const float* dout,    // (N, M)
                                             const float* weight,  // (M, K)
                                             int K, int M) {
    int64_t n = blockIdx.x, k = blockIdx.y * blockDim.x + threadIdx.x;
    if (k >= K) return;
    float acc = 0.0f;
    for (int64_t m = 0; m < M; m++)
        acc += dout[n * M + m] * weight[m * K + k];
    dinp[n * K + k] = acc;
}

Tensor linear_backward_input(Tensor dout, Tensor weight) {
    check_input("dout", dout, {-1, -1}, dout);
    check_input("weight", weight, {dout.size(1), -1}, dout);
    int64_t N = dout.size(0), M = dout.size(1), K = weight.size(1);
    CUDAGuard guard(dout.device());
    Tensor dinp = torch::empty({N, K}, dout.options());
    if (dinp.numel() == 0) return dinp;
    row_grid(N, M);  // refuses what is too large
    dim3 grid = row_grid(N, K);
    linear_backward_input_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dinp.data_ptr<float>(), dout.data_ptr<float>(), weight.data_ptr<float>(), K, M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}

// dweight = dout.T @ inp: one thread per element of dweight.
__global__ void linear_backward_weight_kernel(float* dweight,     // (M, K)
                                              const float* dout,  // (N, M)
                                              const float* inp,   // (N, K)
                                              int N, int K, int M) {
    int64_t m = blockIdx.x, k = blockIdx.y * blockDim.x + threadIdx.x;
    if (k >= K) return;
    float acc = 0.0f;
    for (int64_t n = 0; n < N; n++)
        acc += dout[n * M + m] * inp[n * K + k];
    dweight[m * K + k] = acc;
}

// dbias = dout.sum(0): one thread per element of dbias.
__global__ void linear_backward_bias_kernel(float* dbias,       // (M)
                                            const float* dout,  // (N, M)
                                            int N, int M) {
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= M) return;
    float acc = 0.0f;
    for (int64_t n = 0; n < N; n++)
        acc += dout[n * M + m];
    dbias[m] = acc;
}

// Returns dweight and dbias.
std::tuple<Tensor, Tensor> linear_backward_weight(Tensor dout, Tensor inp) {
    check_input("dout", dout, {-1, -1}, dout);
    check_input("inp", inp, {dout.size(0), -1}, dout);
    int64_t N = dout.size(0), M = dout.size(1), K = inp.size(1);
    CUDAGuard guard(dout.device());
    Tensor dweight = torch::empty({M, K}, dout.options());
    Tensor dbias = torch::empty({M}, dout.options());
    if (M == 0) return {dweight, dbias};
    row_grid(N, M);  // refuses what is too large
    int blocks = row_grid(1, M).y;
    linear_backward_bias_kernel<<<blocks, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dbias.data_ptr<float>(), dout.data_ptr<float>(), N, M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (K == 0) return {dweight, dbias};
    dim3 grid = row_grid(M, K);
    linear_backward_weight_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dweight.data_ptr<float>(), dout.data_ptr<float>(), inp.data_ptr<float>(), N, K,
        M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dweight, dbias};
}
