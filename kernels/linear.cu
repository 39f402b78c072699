// kernels/linear.cu
// A linear layer: out = inp @ weight.T + bias.
// inp: (N, K), weight: (M, K), bias: (M), out: (N, M); float32, contiguous; N below
// 2^31, M and K below 2^23. 2 N M K FLOPs forward, as many for dinp and for dweight.
// Notebook: 17_mnist_cnn. Algorithm: the definition, one thread per output element.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// linear = load_inline("linear", cuda_sources=Path("linear.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor linear_forward(Tensor inp, Tensor weight, Tensor bias);
//         Tensor linear_backward_input(Tensor dout, Tensor weight);
//         std::tuple<Tensor, Tensor> linear_backward_weight(Tensor dout,
//                                                           Tensor inp);""",
//     functions=["linear_forward", "linear_backward_input", "linear_backward_weight"])
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x, dims)                                                         \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == torch::kFloat32,                                  \
                #x ": expected float32, got ", x.scalar_type());                     \
    TORCH_CHECK(x.dim() == dims && x.is_contiguous(), #x ": expected a contiguous "  \
                "tensor, dim " #dims ", got shape ", x.sizes(), ", strides ",        \
                x.strides())

constexpr int BLOCK_SIZE = 128;  // threads of a block, each on one element of a row

// Row blockIdx.x of a matrix, its columns along blockIdx.y.
static dim3 row_grid(int64_t rows, int64_t cols) {
    TORCH_CHECK(rows <= INT_MAX && cols < (1 << 23), "expected less than 2^31 rows of "
                "less than 2^23 columns, got ", rows, " of ", cols);
    return dim3(rows, (cols + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

__global__ void linear_forward_kernel(float* out, const float* inp, const float* weight,
                                      const float* bias, int K, int M) {
    int64_t n = blockIdx.x, m = blockIdx.y * blockDim.x + threadIdx.x;
    if (m >= M) return;
    float acc = 0.0f;
    for (int k = 0; k < K; k++)
        acc += inp[n * K + k] * weight[m * K + k];
    out[n * M + m] = acc + bias[m];
}

torch::Tensor linear_forward(torch::Tensor inp, torch::Tensor weight,
                             torch::Tensor bias) {
    CHECK_INPUT(inp, 2);
    CHECK_INPUT(weight, 2);
    CHECK_INPUT(bias, 1);
    int64_t N = inp.size(0), K = inp.size(1), M = weight.size(0);
    TORCH_CHECK(weight.size(1) == K && weight.device() == inp.device(),
                "weight: expected ", K, " columns on ", inp.device(), ", got ",
                weight.size(1), " on ", weight.device());
    TORCH_CHECK(bias.size(0) == M && bias.device() == inp.device(), "bias: expected ",
                M, " elements on ", inp.device(), ", got ", bias.size(0), " on ",
                bias.device());
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty({N, M}, inp.options());
    if (out.numel() == 0) return out;
    row_grid(M, K);  // refuses what is too large
    auto stream = c10::cuda::getCurrentCUDAStream();
    linear_forward_kernel<<<row_grid(N, M), BLOCK_SIZE, 0, stream>>>(
        out.mutable_data_ptr<float>(), inp.const_data_ptr<float>(),
        weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), K, M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// dinp = dout @ weight
__global__ void linear_backward_input_kernel(float* dinp, const float* dout,
                                             const float* weight, int K, int M) {
    int64_t n = blockIdx.x, k = blockIdx.y * blockDim.x + threadIdx.x;
    if (k >= K) return;
    float acc = 0.0f;
    for (int64_t m = 0; m < M; m++)
        acc += dout[n * M + m] * weight[m * K + k];
    dinp[n * K + k] = acc;
}

torch::Tensor linear_backward_input(torch::Tensor dout, torch::Tensor weight) {
    CHECK_INPUT(dout, 2);
    CHECK_INPUT(weight, 2);
    int64_t N = dout.size(0), M = dout.size(1), K = weight.size(1);
    TORCH_CHECK(weight.size(0) == M && weight.device() == dout.device(),
                "weight: expected ", M, " rows on ", dout.device(), ", got ",
                weight.size(0), " on ", weight.device());
    c10::cuda::CUDAGuard guard(dout.device());
    torch::Tensor dinp = torch::empty({N, K}, dout.options());
    if (dinp.numel() == 0) return dinp;
    row_grid(N, M);  // refuses what is too large
    auto stream = c10::cuda::getCurrentCUDAStream();
    linear_backward_input_kernel<<<row_grid(N, K), BLOCK_SIZE, 0, stream>>>(
        dinp.mutable_data_ptr<float>(), dout.const_data_ptr<float>(),
        weight.const_data_ptr<float>(), K, M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}

// dweight = dout.T @ inp
__global__ void linear_backward_weight_kernel(float* dweight, const float* dout,
                                              const float* inp, int N, int K, int M) {
    int64_t m = blockIdx.x, k = blockIdx.y * blockDim.x + threadIdx.x;
    if (k >= K) return;
    float acc = 0.0f;
    for (int64_t n = 0; n < N; n++)
        acc += dout[n * M + m] * inp[n * K + k];
    dweight[m * K + k] = acc;
}

__global__ void linear_backward_bias_kernel(float* dbias, const float* dout, int N,
                                            int M) {
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= M) return;
    float acc = 0.0f;
    for (int64_t n = 0; n < N; n++)
        acc += dout[n * M + m];
    dbias[m] = acc;
}

// Returns dweight and dbias.
std::tuple<torch::Tensor, torch::Tensor> linear_backward_weight(torch::Tensor dout,
                                                                torch::Tensor inp) {
    CHECK_INPUT(dout, 2);
    CHECK_INPUT(inp, 2);
    int64_t N = dout.size(0), M = dout.size(1), K = inp.size(1);
    TORCH_CHECK(inp.size(0) == N && inp.device() == dout.device(), "inp: expected ", N,
                " rows on ", dout.device(), ", got ", inp.size(0), " on ",
                inp.device());
    c10::cuda::CUDAGuard guard(dout.device());
    torch::Tensor dweight = torch::empty({M, K}, dout.options());
    torch::Tensor dbias = torch::empty({M}, dout.options());
    if (M == 0) return {dweight, dbias};
    row_grid(N, M);  // refuses what is too large
    const float* dout_data = dout.const_data_ptr<float>();
    auto stream = c10::cuda::getCurrentCUDAStream();
    linear_backward_bias_kernel<<<row_grid(1, M).y, BLOCK_SIZE, 0, stream>>>(
        dbias.mutable_data_ptr<float>(), dout_data, N, M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (K == 0) return {dweight, dbias};
    linear_backward_weight_kernel<<<row_grid(M, K), BLOCK_SIZE, 0, stream>>>(
        dweight.mutable_data_ptr<float>(), dout_data, inp.const_data_ptr<float>(), N, K,
        M);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dweight, dbias};
}
