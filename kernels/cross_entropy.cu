// kernels/cross_entropy.cu
// SPDX-License-Identifier: MIT
// Mean cross-entropy of a batch: loss = mean of -log softmax(logits[n])[labels[n]].
// float32, labels int64, contiguous. A label outside 0 ... C - 1 gives NaN, so does an
// empty batch. Reads 4 N C + 8 N bytes; no scratch memory.
// Notebook: 17_mnist_cnn. Algorithm: log-sum-exp with the maximum taken out.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// cross_entropy = load_inline(
//     "cross_entropy", cuda_sources=Path("cross_entropy.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor cross_entropy_forward(Tensor logits, Tensor labels);
//         Tensor cross_entropy_backward(Tensor dloss, Tensor logits, Tensor labels);
//         """, functions=["cross_entropy_forward", "cross_entropy_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

// x has to be contiguous, of this type and shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, Tensor x, torch::ScalarType type,
                        torch::IntArrayRef shape, Tensor like) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == like.device(), name, ": expected contiguous ", type,
                " on one ", torch::kCUDA, " device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 256;  // threads of a block, each on whole rows
constexpr int WARP_SIZE = 32;

// The largest of a row, NaN left out.
static __device__ float row_max(const float* row,  // (C)
                                int C) {
    float largest = row[0];
    for (int c = 1; c < C; c++) largest = fmaxf(largest, row[c]);
    return largest;
}

// The denominator of softmax; exp of a difference to the maximum cannot overflow.
static __device__ float exp_sum(const float* row,  // (C)
                                int C, float largest) {
    float sum = 0.0f;
    for (int c = 0; c < C; c++) sum += expf(row[c] - largest);
    return sum;
}

// One block, meant for some ten classes and some thousand rows: thread t does the rows
// t, t + 256, ...
__global__ void cross_entropy_forward_kernel(float* loss,            // ()
                                             const float* logits,    // (N, C)
                                             const int64_t* labels,  // (N)
                                             int N, int C) {
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

static void check_inputs(Tensor logits, Tensor labels) {
    check_input("logits", logits, torch::kFloat32, {-1, -1}, logits);
    check_input("labels", labels, torch::kInt64, {logits.size(0)}, logits);
    int64_t N = logits.size(0), C = logits.size(1);
    TORCH_CHECK(N <= INT_MAX && C <= INT_MAX && C > 0, "logits: expected 1 to 2^31 - 1 "
                "classes, less than 2^31 rows, got shape ", logits.sizes());
}

Tensor cross_entropy_forward(Tensor logits, Tensor labels) {
    check_inputs(logits, labels);
    CUDAGuard guard(logits.device());
    Tensor loss = torch::empty({}, logits.options());
    cross_entropy_forward_kernel<<<1, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        loss.data_ptr<float>(), logits.data_ptr<float>(), labels.data_ptr<int64_t>(),
        logits.size(0), logits.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}

// dlogits = (softmax - one-hot label) * dloss / N: one thread per row.
__global__ void cross_entropy_backward_kernel(float* dlogits,         // (N, C)
                                              const float* dloss,     // ()
                                              const float* logits,    // (N, C)
                                              const int64_t* labels,  // (N)
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

Tensor cross_entropy_backward(Tensor dloss, Tensor logits, Tensor labels) {
    check_inputs(logits, labels);
    check_input("dloss", dloss, torch::kFloat32, {}, logits);
    CUDAGuard guard(logits.device());
    Tensor dlogits = torch::empty_like(logits);
    int64_t N = logits.size(0), grid = (N + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (N == 0) return dlogits;
    cross_entropy_backward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dlogits.data_ptr<float>(), dloss.data_ptr<float>(), logits.data_ptr<float>(),
        labels.data_ptr<int64_t>(), N, logits.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dlogits;
}
