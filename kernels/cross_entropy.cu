// kernels/cross_entropy.cu
// SPDX-License-Identifier: MIT
// Mean cross-entropy of a batch: loss = mean of -log softmax(logits[n])[labels[n]].
// logits float32, float16 or bfloat16, labels int64, contiguous, N and C below 2^31;
// computed in float32, which the loss is of, the gradient of the logits' type. As in
// PyTorch, a row whose label is -100 (ignore_index) does not count: the mean is over
// the others, its gradient is 0. Another label outside 0 ... C - 1 gives NaN, so does a
// batch without a row that counts. Forward reads each logit once, and takes 4 N bytes
// of scratch memory. Backward reads the logits twice, the second time from cache where
// they stay there; logits that do not start at a multiple of 16 bytes are copied first.
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

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

// A row, shared out among the blockDim.x threads that work on it: packs, from the first
// multiple of 16 bytes on; of the few logits before and behind them, one a thread.
template <typename T> struct Parts {
    int first, packs, extra;  // where packs begin; their number; its logit, or -1
    __device__ Parts(const T* row, int C) {
        constexpr int WIDTH = Pack<T>::WIDTH;
        first = min(C, int((16 - uintptr_t(row) % 16) % 16 / sizeof(T)));
        packs = (C - first) / WIDTH;
        int t = threadIdx.x, after = (C - first) % WIDTH;
        extra = t < first ? t : t < first + after ? t + packs * WIDTH : -1;
    }
};

// The largest of a row of C logits and its sum, in one pass.
template <typename T>
static __device__ MaxSum max_and_sum(const T* row, int C, MaxSum* warp_values) {
    constexpr int FLIGHT = 4;  // loads on their way at a time
    Parts<T> parts(row, C);
    auto* packs = reinterpret_cast<const Pack<T>*>(row + parts.first);
    // not -infinity, which is no number to subtract from itself
    MaxSum m = {-FLT_MAX, 0.0f};
    if (parts.extra >= 0) m = merge(m, {float(row[parts.extra]), 1.0f});
    for (int i = threadIdx.x; i < parts.packs; i += FLIGHT * blockDim.x) {
        Pack<T> x[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            int j = i + f * blockDim.x;
            for (T& y : x[f].at) y = T(-INFINITY);
            if (j < parts.packs) x[f] = packs[j];
        }
        float largest = m.largest;
        for (auto& pack : x)
            for (T y : pack.at) largest = fmaxf(largest, float(y));
        m = {largest, m.sum * exp_of(m.largest - largest)};
        for (auto& pack : x) {
            float sum = 0.0f;
            for (T y : pack.at) sum += exp_of(float(y) - largest);
            m.sum += sum;
        }
    }
    return over_row(m, warp_values);
}

// threadIdx.x: the threads of a row, threadIdx.y: rows of a block
template <typename T> __global__ void __launch_bounds__(512)
cross_entropy_forward_kernel(float* losses,          // (N)
                             const T* logits,        // (N, C)
                             const int64_t* labels,  // (N)
                             int N, int C) {
    __shared__ MaxSum warp_values[WARP_SIZE];
    int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const T* row = logits + n * C;
    MaxSum m = max_and_sum(row, n < N ? C : 0, warp_values);  // a row too many is empty
    if (n < N && threadIdx.x == 0) {
        int64_t label = labels[n];
        bool valid = label >= 0 && label < C;
        losses[n] = valid ? logf(m.sum) - (float(row[label]) - m.largest)
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
template <typename T> __global__ void __launch_bounds__(1024)
cross_entropy_backward_kernel(T* dlogits,             // (N, C)
                              const float* scale_at,  // ()
                              const T* logits,        // (N, C)
                              const int64_t* labels,  // (N)
                              int N, int C) {
    __shared__ MaxSum warp_values[WARP_SIZE];
    int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y, label = -1;
    constexpr int WIDTH = Pack<T>::WIDTH;
    const T* row = logits + n * C;
    T* drow = dlogits + n * C;
    if (n < N) label = labels[n];
    else C = 0;
    Parts<T> parts(row, C);
    MaxSum m = max_and_sum(row, C, warp_values);
    float scale = label >= 0 && label < C ? *scale_at : NAN, per_sum = 1.0f / m.sum;
    auto gradient = [&](int c, T x) {
        float own = exp_of(float(x) - m.largest) * per_sum - (c == label ? 1.0f : 0.0f);
        return T(label == IGNORED ? 0.0f : own * scale);  // 0 whatever its logits are
    };
    auto* packs = reinterpret_cast<const Pack<T>*>(row + parts.first);
    auto* dpacks = reinterpret_cast<Pack<T>*>(drow + parts.first);
    for (int i = threadIdx.x; i < parts.packs; i += blockDim.x) {
        int c = parts.first + WIDTH * i;
        Pack<T> x = packs[i];
        for (int k = 0; k < WIDTH; k++) x.at[k] = gradient(c + k, x.at[k]);
        dpacks[i] = x;
    }
    if (parts.extra >= 0) drow[parts.extra] = gradient(parts.extra, row[parts.extra]);
}

// x has to be contiguous, of these types, this shape (-1: any size), on like's GPU
static void check_input(const char* name, Tensor x, const char* types, bool fits,
                        torch::IntArrayRef shape, Tensor like) {
    fits = fits && x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.is_contiguous() && x.is_cuda() &&
                x.device() == like.device(), name, ": expected contiguous ", types,
                " on one CUDA device, shape ", shape, ", got ", x.scalar_type(), " on ",
                x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
}

static void check_inputs(Tensor logits, Tensor labels) {
    auto type = logits.scalar_type();
    bool is_float = type == torch::kFloat32 || type == torch::kFloat16 ||
                    type == torch::kBFloat16;
    check_input("logits", logits, "float32, float16 or bfloat16", is_float, {-1, -1},
                logits);
    check_input("labels", labels, "int64", labels.scalar_type() == torch::kInt64,
                {logits.size(0)}, logits);
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

template <typename F> static void with_type(Tensor x, F f) {  // f(an element's zero)
    if (x.scalar_type() == torch::kFloat32) f(float());
    else if (x.scalar_type() == torch::kFloat16) f(at::Half());
    else f(at::BFloat16());
}

Tensor cross_entropy_forward(Tensor logits, Tensor labels) {
    check_inputs(logits, labels);
    CUDAGuard guard(logits.device());
    int64_t N = logits.size(0), C = logits.size(1);
    auto float32 = logits.options().dtype(torch::kFloat32);
    Tensor losses = torch::empty({N}, float32), loss = torch::empty({}, float32);
    auto stream = getCurrentCUDAStream();
    dim3 block = block_for(C, 32, 512), grid((N + block.y - 1) / block.y);
    if (N > 0)
        with_type(logits, [&](auto zero) { using T = decltype(zero);
            cross_entropy_forward_kernel<T><<<grid, block, 0, stream>>>(
                losses.data_ptr<float>(), logits.data_ptr<T>(),
                labels.data_ptr<int64_t>(), N, C);
        });
    cross_entropy_mean_kernel<<<1, 1024, 0, stream>>>(
        loss.data_ptr<float>(), losses.data_ptr<float>(), labels.data_ptr<int64_t>(),
        N);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}

Tensor cross_entropy_backward(Tensor dloss, Tensor logits, Tensor labels) {
    check_inputs(logits, labels);
    check_input("dloss", dloss, "float32", dloss.scalar_type() == torch::kFloat32, {},
                logits);
    CUDAGuard guard(logits.device());
    Tensor dlogits = torch::empty_like(logits);
    int64_t N = logits.size(0), C = logits.size(1);
    if (N == 0) return dlogits;
    // so that 16 bytes of the logits belong to 16 bytes of the gradient
    if (reinterpret_cast<uintptr_t>(logits.data_ptr()) % 16) logits = logits.clone();
    Tensor scale = torch::empty({}, dloss.options());
    auto stream = getCurrentCUDAStream();
    cross_entropy_scale_kernel<<<1, 1024, 0, stream>>>(
        scale.data_ptr<float>(), dloss.data_ptr<float>(), labels.data_ptr<int64_t>(),
        N);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    dim3 block = block_for(C, 16, 1024), grid((N + block.y - 1) / block.y);
    with_type(logits, [&](auto zero) { using T = decltype(zero);
        cross_entropy_backward_kernel<T><<<grid, block, 0, stream>>>(
            dlogits.data_ptr<T>(), scale.data_ptr<float>(), logits.data_ptr<T>(),
            labels.data_ptr<int64_t>(), N, C);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dlogits;
}
