// kernels/cross_entropy.cu
// SPDX-License-Identifier: MIT
// Mean cross-entropy of a batch: loss = mean of -log softmax(logits[n])[labels[n]].
// float32, labels int64, contiguous, N and C below 2^31. As in PyTorch, a row whose
// label is -100 (ignore_index) does not count: the mean is over the others, its
// gradient is 0. Another label outside 0 ... C - 1 gives NaN, so does a batch without a
// row that counts. Forward reads 4 N C + 16 N bytes and takes 4 N bytes of scratch
// memory. Backward reads the logits twice, the second time from cache where they stay
// there; logits that do not start at a multiple of 16 bytes are copied first.
// Notebook: 07b_softmax. Own code; the maximum and the sum in one pass (online
// softmax): Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
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
#include <cfloat>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int WARP_SIZE = 32;
constexpr unsigned ALL_LANES = 0xffffffff;
constexpr int64_t IGNORED = -100;  // the label of a row that does not count

// exp to 1e-7 times 1 + |x|
static __device__ float exp_of(float x) { return exp2f(x * 1.44269504f); }

struct MaxSum { float largest, sum; };  // of some logits: the sum of exp(x - largest)

static __device__ MaxSum merge(MaxSum a, MaxSum b) {
    float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * exp_of(a.largest - largest) +
                     b.sum * exp_of(b.largest - largest)};
}

static __device__ MaxSum over_warp(MaxSum m) {
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        m = merge(m, {__shfl_xor_sync(ALL_LANES, m.largest, offset),
                      __shfl_xor_sync(ALL_LANES, m.sum, offset)});
    return m;
}

// What all threads of a row have seen, merged; every thread gets it.
static __device__ MaxSum over_row(MaxSum m, MaxSum* warp_values) {
    m = over_warp(m);
    if (blockDim.x == WARP_SIZE) return m;
    int lane_id = threadIdx.x % WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    if (lane_id == 0) warp_values[threadIdx.x / WARP_SIZE] = m;
    __syncthreads();  // every warp's value is written before one is read
    return over_warp(lane_id < warps ? warp_values[lane_id] : MaxSum{-FLT_MAX, 0.0f});
}

// A row, shared out among the blockDim.x threads that work on it: fours, from the first
// multiple of 16 bytes on; of the up to 6 logits before and behind them, one a thread.
struct Parts {
    int first, fours, extra;  // where fours begin, how many; the thread's logit, or -1
    __device__ Parts(const float* row, int C) {
        first = min(C, int((16 - uintptr_t(row) % 16) % 16 / 4));
        fours = (C - first) / 4;
        int t = threadIdx.x, after = (C - first) % 4;
        extra = t < first ? t : t < first + after ? t + 4 * fours : -1;
    }
};

// The largest of a row of C logits and its sum, in one pass.
static __device__ MaxSum max_and_sum(const float* row, int C, MaxSum* warp_values) {
    constexpr int FLIGHT = 4;  // loads on their way at a time
    Parts parts(row, C);
    auto* fours = reinterpret_cast<const float4*>(row + parts.first);
    // not -infinity, which is no number to subtract from itself
    MaxSum m = {-FLT_MAX, 0.0f};
    if (parts.extra >= 0) m = merge(m, {row[parts.extra], 1.0f});
    for (int i = threadIdx.x; i < parts.fours; i += FLIGHT * blockDim.x) {
        float4 x[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            int j = i + f * blockDim.x;
            x[f] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
            if (j < parts.fours) x[f] = fours[j];
        }
        float largest = m.largest;
        for (float4 y : x)
            largest = fmaxf(largest, fmaxf(fmaxf(y.x, y.y), fmaxf(y.z, y.w)));
        m = {largest, m.sum * exp_of(m.largest - largest)};
        for (float4 y : x)
            m.sum += exp_of(y.x - largest) + exp_of(y.y - largest) +
                     exp_of(y.z - largest) + exp_of(y.w - largest);
    }
    return over_row(m, warp_values);
}

// threadIdx.x: the threads of a row, threadIdx.y: rows of a block
__global__ void __launch_bounds__(512)
cross_entropy_forward_kernel(float* losses,          // (N)
                             const float* logits,    // (N, C)
                             const int64_t* labels,  // (N)
                             int N, int C) {
    __shared__ MaxSum warp_values[WARP_SIZE];
    int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const float* row = logits + n * C;
    MaxSum m = max_and_sum(row, n < N ? C : 0, warp_values);  // a row too many is empty
    if (n < N && threadIdx.x == 0) {
        int64_t label = labels[n];
        bool valid = label >= 0 && label < C;
        losses[n] = valid ? logf(m.sum) - (row[label] - m.largest)
                          : label == IGNORED ? 0.0f : NAN;
    }
}

// The sum over a block, for its thread 0
static __device__ float block_sum(float sum, float* warp_sums) {
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, offset);
    if (threadIdx.x % WARP_SIZE == 0) warp_sums[threadIdx.x / WARP_SIZE] = sum;
    __syncthreads();  // every warp's sum is written before one is read
    for (int w = 1; threadIdx.x == 0 && w < blockDim.x / WARP_SIZE; w++)
        sum += warp_sums[w];
    return sum;
}

// One block. The order of the sum depends on N alone: twice the same is the same.
__global__ void __launch_bounds__(1024)
cross_entropy_mean_kernel(float* loss, const float* losses, const int64_t* labels,
                          int N) {
    __shared__ float warp_sums[2][WARP_SIZE];
    float sum = 0.0f;
    int count = 0;
#pragma unroll 8
    for (int64_t n = threadIdx.x; n < N; n += blockDim.x)
        sum += losses[n], count += labels[n] != IGNORED;
    sum = block_sum(sum, warp_sums[0]);
    float rows = block_sum(count, warp_sums[1]);
    if (threadIdx.x == 0) *loss = sum / rows;
}

// One block: dloss / the number of rows that count
__global__ void __launch_bounds__(1024)
cross_entropy_scale_kernel(float* scale, const float* dloss, const int64_t* labels,
                           int N) {
    __shared__ float warp_sums[WARP_SIZE];
    int count = 0;
    for (int64_t n = threadIdx.x; n < N; n += blockDim.x)
        count += labels[n] != IGNORED;
    float rows = block_sum(count, warp_sums);
    if (threadIdx.x == 0) *scale = *dloss / rows;
}

// dlogits = (softmax - one-hot label) * scale; threads as in forward
__global__ void __launch_bounds__(1024)
cross_entropy_backward_kernel(float* dlogits,         // (N, C)
                              const float* scale_at,  // ()
                              const float* logits,    // (N, C)
                              const int64_t* labels,  // (N)
                              int N, int C) {
    __shared__ MaxSum warp_values[WARP_SIZE];
    int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y, label = -1;
    const float* row = logits + n * C;
    float* drow = dlogits + n * C;
    if (n < N) label = labels[n];
    else C = 0;
    Parts parts(row, C);
    MaxSum m = max_and_sum(row, C, warp_values);
    float scale = label >= 0 && label < C ? *scale_at : NAN, per_sum = 1.0f / m.sum;
    auto gradient = [&](int c, float x) {
        float own = exp_of(x - m.largest) * per_sum - (c == label ? 1.0f : 0.0f);
        return label == IGNORED ? 0.0f : own * scale;  // 0 whatever its logits are
    };
    auto* fours = reinterpret_cast<const float4*>(row + parts.first);
    auto* dfours = reinterpret_cast<float4*>(drow + parts.first);
    for (int i = threadIdx.x; i < parts.fours; i += blockDim.x) {
        int c = parts.first + 4 * i;
        float4 x = fours[i];
        dfours[i] = make_float4(gradient(c, x.x), gradient(c + 1, x.y),
                                gradient(c + 2, x.z), gradient(c + 3, x.w));
    }
    if (parts.extra >= 0) drow[parts.extra] = gradient(parts.extra, row[parts.extra]);
}

// x has to be contiguous, of this type and shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, Tensor x, torch::ScalarType type,
                        torch::IntArrayRef shape, Tensor like) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == like.device(), name, ": expected contiguous ",
                type == torch::kFloat32 ? "float32" : "int64",
                " on one CUDA device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

static void check_inputs(Tensor logits, Tensor labels) {
    check_input("logits", logits, torch::kFloat32, {-1, -1}, logits);
    check_input("labels", labels, torch::kInt64, {logits.size(0)}, logits);
    int64_t N = logits.size(0), C = logits.size(1);
    TORCH_CHECK(N <= INT_MAX && C <= INT_MAX && C > 0, "logits: expected 1 to 2^31 - 1 "
                "classes, less than 2^31 rows, got shape ", logits.sizes());
}

// The threads of a row, about `each` of its logits for each; the rows of a block.
static dim3 block_for(int64_t C, int each, int most) {
    int64_t threads = (C + each * WARP_SIZE - 1) / (each * WARP_SIZE) * WARP_SIZE;
    if (threads == WARP_SIZE) return dim3(WARP_SIZE, 8);
    return dim3(std::min(threads, int64_t(most)));
}

Tensor cross_entropy_forward(Tensor logits, Tensor labels) {
    check_inputs(logits, labels);
    CUDAGuard guard(logits.device());
    int64_t N = logits.size(0), C = logits.size(1);
    Tensor losses = torch::empty({N}, logits.options());
    Tensor loss = torch::empty({}, logits.options());
    auto stream = getCurrentCUDAStream();
    dim3 block = block_for(C, 32, 512), grid((N + block.y - 1) / block.y);
    if (N > 0)
        cross_entropy_forward_kernel<<<grid, block, 0, stream>>>(
            losses.data_ptr<float>(), logits.data_ptr<float>(),
            labels.data_ptr<int64_t>(), N, C);
    cross_entropy_mean_kernel<<<1, 1024, 0, stream>>>(
        loss.data_ptr<float>(), losses.data_ptr<float>(), labels.data_ptr<int64_t>(),
        N);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}

Tensor cross_entropy_backward(Tensor dloss, Tensor logits, Tensor labels) {
    check_inputs(logits, labels);
    check_input("dloss", dloss, torch::kFloat32, {}, logits);
    CUDAGuard guard(logits.device());
    Tensor dlogits = torch::empty_like(logits);
    int64_t N = logits.size(0), C = logits.size(1);
    if (N == 0) return dlogits;
    // so that 16 bytes of the logits belong to 16 bytes of the gradient
    if (reinterpret_cast<uintptr_t>(logits.data_ptr()) % 16) logits = logits.clone();
    Tensor scale = torch::empty({}, logits.options());
    auto stream = getCurrentCUDAStream();
    cross_entropy_scale_kernel<<<1, 1024, 0, stream>>>(
        scale.data_ptr<float>(), dloss.data_ptr<float>(), labels.data_ptr<int64_t>(),
        N);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    dim3 block = block_for(C, 16, 1024), grid((N + block.y - 1) / block.y);
    cross_entropy_backward_kernel<<<grid, block, 0, stream>>>(
        dlogits.data_ptr<float>(), scale.data_ptr<float>(), logits.data_ptr<float>(),
        labels.data_ptr<int64_t>(), N, C);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dlogits;
}
