// kernels/softmax.cu
// SPDX-License-Identifier: MIT
// Softmax over the last dimension, out = exp(inp - max) / sum of exp(inp - max), and
// its gradient. (..., C), contiguous, rows and C below 2^31; float32, float16 or
// bfloat16, computed in float32. Moves 8 bytes an element of float32, backward 12, half
// types half of it; above C = 32768, backward 16384, and half of that for half types,
// the front of a row is read twice.
// A view that does not start at a multiple of 16 bytes is copied first; no other
// scratch memory. NaN and infinity as PyTorch: a row with NaN, with +infinity or with
// nothing but -infinity becomes NaN.
// Notebook: 07b_softmax. Own code; long rows by online softmax: Milakov and Gimelshein,
// "Online normalizer calculation for softmax" (2018).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// softmax = load_inline("softmax", cuda_sources=Path("softmax.cu").read_text(),
//     cpp_sources="torch::Tensor softmax_forward(torch::Tensor inp);"
//         "torch::Tensor softmax_backward(torch::Tensor dout, torch::Tensor out);",
//     functions=["softmax_forward", "softmax_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
#include <cfloat>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int WARP_SIZE = 32;
constexpr unsigned ALL_LANES = 0xffffffff;

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
    __device__ void fill(float value) {
        for (int k = 0; k < WIDTH; k++) at[k] = T(value);
    }
};

// A row, shared out among the blockDim.x threads that work on it: packs, from the first
// multiple of 16 bytes on; of the few elements before and behind them, one a thread.
template <typename T> struct Parts {
    int first, packs, extra;  // where packs begin; their number; its element, or -1
    __device__ Parts(const T* row, int C) {
        constexpr int WIDTH = Pack<T>::WIDTH;
        first = min(C, int((16 - uintptr_t(row) % 16) % 16 / sizeof(T)));
        packs = (C - first) / WIDTH;
        int t = threadIdx.x, after = (C - first) % WIDTH;
        extra = t < first ? t : t < first + after ? t + packs * WIDTH : -1;
    }
};

// exp to 1e-7 times 1 + |x|
static __device__ float exp_of(float x) { return exp2f(x * 1.44269504f); }

struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

// The values of all threads of a row, combined; every thread gets the result. They are
// 8, 16 or 32 lanes of a warp, or whole warps.
template <typename Op> static __device__ float over_row(float value, float neutral,
                                                        float* warp_values, Op op) {
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        if (offset < blockDim.x)
            value = op(value, __shfl_xor_sync(ALL_LANES, value, offset));
    if (blockDim.x <= WARP_SIZE) return value;
    int lane_id = threadIdx.x % WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    if (lane_id == 0) warp_values[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();  // every warp's value is written before one is read
    value = lane_id < warps ? warp_values[lane_id] : neutral;
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = op(value, __shfl_xor_sync(ALL_LANES, value, offset));
    return value;
}

// out, inp: (N, C); threadIdx.x: the threads of a row, threadIdx.y: rows of a block.
// A thread takes HELD elements a turn, and keeps those of the last one in registers.
// Online softmax: a larger element multiplies the sum so far by exp(before - mine).
// Turns are then gone through backwards: the last one's exponentials are held.
template <typename T, int HELD>
__global__ void __launch_bounds__(1024)  // so that registers suffice for 1,024 threads
softmax_forward_kernel(T* out, const T* inp, int64_t N, int C) {
    constexpr int WIDTH = Pack<T>::WIDTH, PACKS = HELD / WIDTH;
    __shared__ float maxima[WARP_SIZE], sums[WARP_SIZE];
    int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (n >= N) C = 0;  // a row too many has no elements
    Parts<T> parts(inp + n * C, C);
    auto* packs = reinterpret_cast<const Pack<T>*>(inp + n * C + parts.first);
    auto* out_packs = reinterpret_cast<Pack<T>*>(out + n * C + parts.first);

    float extra = parts.extra < 0 ? -INFINITY : float(inp[n * C + parts.extra]);
    float mine = fmaxf(extra, -FLT_MAX), sum = exp_of(extra - mine), held[HELD];
    int start = 0, step = PACKS * blockDim.x;  // the first pack of a turn
    auto load = [&] {
        Pack<T> x[PACKS];
        int i = start + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PACKS; p++, i += blockDim.x) {
            x[p].fill(-INFINITY);  // changes neither the largest nor the sum
            if (i < parts.packs) x[p] = packs[i];
        }
        for (int h = 0; h < HELD; h++) held[h] = float(x[h / WIDTH].at[h % WIDTH]);
    };
    while (true) {
        load();
        float before = mine;
        for (int h = 0; h < HELD; h++) mine = fmaxf(mine, held[h]);
        sum *= exp_of(before - mine);
        for (int h = 0; h < HELD; h++) sum += held[h] = exp_of(held[h] - mine);
        if (start + step >= parts.packs) break;
        start += step;
    }
    float largest = over_row(mine, -FLT_MAX, maxima, Larger());
    float factor = exp_of(mine - largest);
    float scale = 1.0f / over_row(sum * factor, 0.0f, sums, Sum());

    factor *= scale;  // of the exponentials held
    while (true) {
        int i = start + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PACKS; p++, i += blockDim.x) {
            Pack<T> x;
            for (int k = 0; k < WIDTH; k++) x.at[k] = T(held[p * WIDTH + k] * factor);
            if (i < parts.packs) out_packs[i] = x;
        }
        if (start == 0) break;
        start -= step;
        load();
        for (int h = 0; h < HELD; h++) held[h] = exp_of(held[h] - largest);
        factor = scale;
    }
    if (parts.extra >= 0) out[n * C + parts.extra] = T(exp_of(extra - largest) * scale);
}

// What L2 drops when it needs room: reads say so by a policy. As usual, what was read
// for the last time `first`, what will be read again `last`.
struct Policies {
    uint64_t usual = 0, first = 0, last = 0;
    __device__ Policies() {
#if __CUDA_ARCH__ >= 800
        asm("createpolicy.fractional.L2::evict_normal.b64 %0;" : "=l"(usual));
        asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(first));
        asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(last));
#endif
    }
};

template <typename T>
__device__ Pack<T> load_pack(const Pack<T>* from, uint64_t policy) {
#if __CUDA_ARCH__ >= 800
    Pack<T> x;
    auto& words = reinterpret_cast<uint4&>(x);
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from), "l"(policy));
    return x;
#else
    return *from;
#endif
}

// dinp = out * (dout - sum of dout * out); all (N, C); threads and turns as in forward
template <typename T, int HELD>
__global__ void __launch_bounds__(1024)
softmax_backward_kernel(T* dinp, const T* dout, const T* out, int64_t N, int C) {
    constexpr int WIDTH = Pack<T>::WIDTH, PACKS = HELD / WIDTH;
    __shared__ float sums[WARP_SIZE];
    int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (n >= N) C = 0;
    Parts<T> parts(out + n * C, C);
    int64_t begin = n * C + parts.first, extra = n * C + parts.extra;
    auto* y_packs = reinterpret_cast<const Pack<T>*>(out + begin);
    auto* dy_packs = reinterpret_cast<const Pack<T>*>(dout + begin);
    auto* dinp_packs = reinterpret_cast<Pack<T>*>(dinp + begin);

    float y_extra = parts.extra < 0 ? 0.0f : float(out[extra]);
    float dy_extra = parts.extra < 0 ? 0.0f : float(dout[extra]);
    float sum = y_extra * dy_extra;
    Pack<T> y[PACKS], dy[PACKS];
    int start = 0, step = PACKS * blockDim.x;
    Policies evict;
    auto load = [&](uint64_t policy) {
        int i = start + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PACKS; p++, i += blockDim.x) {
            y[p].fill(0.0f), dy[p].fill(0.0f);
            if (i >= parts.packs) continue;
            y[p] = load_pack(y_packs + i, policy),
            dy[p] = load_pack(dy_packs + i, policy);
        }
    };
    while (true) {
        bool again = start + step < parts.packs;
        load(again ? evict.last : start > 0 ? evict.first : evict.usual);
        for (int p = 0; p < PACKS; p++)
            for (int k = 0; k < WIDTH; k++)
                sum += float(y[p].at[k]) * float(dy[p].at[k]);
        if (!again) break;
        start += step;
    }
    sum = over_row(sum, 0.0f, sums, Sum());

    while (true) {
        int i = start + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PACKS; p++, i += blockDim.x) {
            for (int k = 0; k < WIDTH; k++)
                y[p].at[k] = T(float(y[p].at[k]) * (float(dy[p].at[k]) - sum));
            if (i < parts.packs)
                __stcs(reinterpret_cast<uint4*>(dinp_packs + i),
                       reinterpret_cast<uint4&>(y[p]));
        }
        if (start == 0) break;
        start -= step;
        load(evict.first);
    }
    if (parts.extra >= 0) dinp[extra] = T(y_extra * (dy_extra - sum));
}

// x has to be contiguous, of the type and shape and on the GPU of `like`
static void check_input(const char* name, Tensor x, Tensor like) {
    auto type = like.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == like.device() && x.sizes() == like.sizes(), name,
                ": expected contiguous float32, float16 or bfloat16 on a CUDA device, "
                "the same for all, shape ", like.sizes(), ", got ", x.scalar_type(),
                " on ", x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
    int64_t C = x.dim() ? x.size(-1) : 1;
    TORCH_CHECK(C <= INT_MAX && x.numel() / std::max(C, int64_t(1)) <= INT_MAX, name,
                ": expected less than 2^31 rows and columns, got shape ", x.sizes());
}

template <typename F> static void with_type(Tensor x, F f) {  // f(an element's zero)
    if (x.scalar_type() == torch::kFloat32) f(float());
    else if (x.scalar_type() == torch::kFloat16) f(at::Half());
    else f(at::BFloat16());
}

static Tensor aligned(Tensor x) {  // all rows then start as the rows of a new tensor do
    return reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 ? x.clone() : x;
}

// The threads of a row of C elements, up to `held` each a turn, at most `most` warps;
// the rows of a block. A row's first and last few, fewer than two packs, take a thread
// each.
template <typename T> static dim3 block_for(int64_t C, int held, int64_t most) {
    int lanes = 2 * Pack<T>::WIDTH;
    while (lanes < WARP_SIZE && lanes * held < C) lanes *= 2;
    if (lanes * held >= C) return dim3(lanes, 128 / lanes);
    return dim3(WARP_SIZE * std::min((C - 1) / (held * WARP_SIZE) + 1, most));
}

Tensor softmax_forward(Tensor inp) {
    check_input("inp", inp, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    if (inp.numel() == 0) return out;
    inp = aligned(inp);
    int64_t C = inp.dim() ? inp.size(-1) : 1, N = inp.numel() / C;
    with_type(inp, [&](auto zero) { using T = decltype(zero);
        bool is_short = C <= 8 * WARP_SIZE;
        auto kernel = is_short ? softmax_forward_kernel<T, 8>
                               : softmax_forward_kernel<T, 32>;
        // of half types an SM has two blocks: one loads while the other computes
        dim3 block = block_for<T>(C, is_short ? 8 : 32, sizeof(T) < 4 ? 16 : 32);
        kernel<<<(N + block.y - 1) / block.y, block, 0, getCurrentCUDAStream()>>>(
            out.data_ptr<T>(), inp.data_ptr<T>(), N, C);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor softmax_backward(Tensor dout, Tensor out) {
    TORCH_CHECK(dout.scalar_type() == out.scalar_type(), "softmax_backward: expected "
        "dout and out of one type, got ", dout.scalar_type(), ", ", out.scalar_type());
    check_input("out", out, out);
    check_input("dout", dout, out);
    CUDAGuard guard(out.device());
    Tensor dinp = torch::empty_like(out);
    if (out.numel() == 0) return dinp;
    dout = aligned(dout), out = aligned(out);
    int64_t C = out.dim() ? out.size(-1) : 1, N = out.numel() / C;
    with_type(out, [&](auto zero) { using T = decltype(zero);
        bool is_short = C <= 8 * WARP_SIZE;
        auto kernel = is_short ? softmax_backward_kernel<T, 8>
                               : softmax_backward_kernel<T, 16>;
        dim3 block = block_for<T>(C, is_short ? 8 : 16, 32);
        kernel<<<(N + block.y - 1) / block.y, block, 0, getCurrentCUDAStream()>>>(
            dinp.data_ptr<T>(), dout.data_ptr<T>(), out.data_ptr<T>(), N, C);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
