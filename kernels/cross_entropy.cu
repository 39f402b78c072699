// kernels/cross_entropy.cu
// Mean cross-entropy of a batch: loss = mean of -log softmax(logits[n])[labels[n]].
// logits: (N, C) float32, labels: (N) int64, loss: () float32; contiguous. A label
// outside 0 ... C - 1 gives NaN, so does an empty batch. Reads 4 N C + 8 N bytes.
// One block: meant for some ten classes and some thousand rows.
// Notebook: 17_mnist_cnn. Algorithm: log-sum-exp with the maximum taken out.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// cross_entropy = load_inline(
//     "cross_entropy", cuda_sources=Path("cross_entropy.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor cross_entropy_forward(Tensor logits, Tensor labels);
//         Tensor cross_entropy_backward(Tensor dloss, Tensor logits,
//                                       Tensor labels);""",
//     functions=["cross_entropy_forward", "cross_entropy_backward"])
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x, dims, type)                                                   \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == type, #x ": expected ", type, ", got ",           \
                x.scalar_type());                                                    \
    TORCH_CHECK(x.dim() == dims && x.is_contiguous(), #x ": expected a contiguous "  \
                "tensor, dim " #dims ", got shape ", x.sizes(), ", strides ",        \
                x.strides())

constexpr int BLOCK_SIZE = 256;  // threads of a block, each on whole rows
constexpr int WARP_SIZE = 32;

static void check_sizes(const torch::Tensor& logits, const torch::Tensor& labels) {
    int64_t N = logits.size(0), C = logits.size(1);
    TORCH_CHECK(N <= INT_MAX && C <= INT_MAX && C > 0, "logits: expected 1 to 2^31 - 1 "
                "classes, less than 2^31 rows, got shape ", logits.sizes());
    TORCH_CHECK(labels.size(0) == N && labels.device() == logits.device(),
                "labels: expected ", N, " on ", logits.device(), ", got ",
                labels.size(0), " on ", labels.device());
}

__device__ float row_max(const float* row, int C) {
    float largest = row[0];
    for (int c = 1; c < C; c++) largest = fmaxf(largest, row[c]);
    return largest;
}

// The denominator of softmax; exp of a difference to the maximum cannot overflow.
__device__ float exp_sum(const float* row, int C, float largest) {
    float sum = 0.0f;
    for (int c = 0; c < C; c++) sum += expf(row[c] - largest);
    return sum;
}

__global__ void cross_entropy_forward_kernel(float* loss, const float* logits,
                                             const int64_t* labels, int N, int C) {
    float sum = 0.0f;
    for (int64_t n = threadIdx.x; n < N; n += BLOCK_SIZE) {
        const float* row = logits + n * C;
        int64_t label = labels[n];
        float largest = row_max(row, C);
        bool valid = label >= 0 && label < C;
        sum += valid ? logf(exp_sum(row, C, largest)) - (row[label] - largest) : NAN;
    }
    // Each warp adds up its lanes, then the first warp's first lane adds up the warps.
    __shared__ float warp_sums[BLOCK_SIZE / WARP_SIZE];
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % WARP_SIZE == 0) warp_sums[threadIdx.x / WARP_SIZE] = sum;
    __syncthreads();  // before the sums are read, all must be written
    if (threadIdx.x == 0) {
        for (int warp_id = 1; warp_id < BLOCK_SIZE / WARP_SIZE; warp_id++)
            sum += warp_sums[warp_id];
        *loss = sum / N;
    }
}

torch::Tensor cross_entropy_forward(torch::Tensor logits, torch::Tensor labels) {
    CHECK_INPUT(logits, 2, torch::kFloat32);
    CHECK_INPUT(labels, 1, torch::kInt64);
    check_sizes(logits, labels);
    c10::cuda::CUDAGuard guard(logits.device());
    torch::Tensor loss = torch::empty({}, logits.options());
    auto stream = c10::cuda::getCurrentCUDAStream();
    cross_entropy_forward_kernel<<<1, BLOCK_SIZE, 0, stream>>>(
        loss.mutable_data_ptr<float>(), logits.const_data_ptr<float>(),
        labels.const_data_ptr<int64_t>(), logits.size(0), logits.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}

// dlogits = (softmax - one-hot label) * dloss / N: one thread per row.
__global__ void cross_entropy_backward_kernel(
    float* dlogits, const float* dloss, const float* logits, const int64_t* labels,
    int N, int C) {
    int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    const float* row = logits + n * C;
    int64_t label = labels[n];
    float scale = label >= 0 && label < C ? *dloss / N : NAN;
    float largest = row_max(row, C), sum = exp_sum(row, C, largest);
    for (int c = 0; c < C; c++) {
        float softmax = expf(row[c] - largest) / sum;
        dlogits[n * C + c] = (softmax - (c == label ? 1.0f : 0.0f)) * scale;
    }
}

torch::Tensor cross_entropy_backward(torch::Tensor dloss, torch::Tensor logits,
                                     torch::Tensor labels) {
    CHECK_INPUT(dloss, 0, torch::kFloat32);
    CHECK_INPUT(logits, 2, torch::kFloat32);
    CHECK_INPUT(labels, 1, torch::kInt64);
    check_sizes(logits, labels);
    TORCH_CHECK(dloss.device() == logits.device(), "dloss: expected it on ",
                logits.device(), ", got ", dloss.device());
    c10::cuda::CUDAGuard guard(logits.device());
    torch::Tensor dlogits = torch::empty_like(logits);
    int64_t N = logits.size(0), grid = (N + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (N == 0) return dlogits;
    auto stream = c10::cuda::getCurrentCUDAStream();
    cross_entropy_backward_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
        dlogits.mutable_data_ptr<float>(), dloss.const_data_ptr<float>(),
        logits.const_data_ptr<float>(), labels.const_data_ptr<int64_t>(), N,
        logits.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dlogits;
}
