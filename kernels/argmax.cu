// kernels/argmax.cu
// SPDX-License-Identifier: MIT
// Index of the largest element, counted over the flattened tensor. As torch.argmax: of
// equal ones the first, NaN above all. Any shape, at least one element, contiguous;
// float32, float16 or bfloat16. out: (), int64. Reads each element once; scratch
// memory: 12 bytes a block and 4 more. No gradient. One launch: the block that ends
// last compares the blocks' pairs (last-block pattern).
// Notebook: 07_reductions. Own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// argmax = load_inline("argmax", cuda_sources=Path("argmax.cu").read_text(),
//     cpp_sources="torch::Tensor argmax(torch::Tensor inp);",
//     functions=["argmax"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int BLOCK_SIZE = 512;  // threads per block
constexpr int UNROLL = 4;        // loads of 16 bytes that a thread has on their way

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

struct Best {
    float value = -INFINITY;
    int64_t index = 0;

    __device__ void take_later(float x, int64_t i) {  // i is larger than index
        if (value == value && !(x <= value)) value = x, index = i;
    }
    __device__ void take(float x, int64_t i) {
        bool is_nan = x != x, was_nan = value != value;
        bool same = x == value || (is_nan && was_nan);
        if (same ? i < index : !was_nan && (is_nan || x > value)) value = x, index = i;
    }
};

static __device__ Best warp_best(Best best) {  // for all lanes
    for (int offset = 16; offset > 0; offset /= 2) {
        float value = __shfl_xor_sync(0xffffffff, best.value, offset);
        best.take(value, __shfl_xor_sync(0xffffffff, best.index, offset));
    }
    return best;
}

static __device__ Best block_best(Best best) {  // for all threads
    __shared__ float values[BLOCK_SIZE / 32];
    __shared__ int64_t indices[BLOCK_SIZE / 32];
    int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
    best = warp_best(best);
    if (lane_id == 0) values[warp_id] = best.value, indices[warp_id] = best.index;
    __syncthreads();  // before the pairs are read, all must be written
    if (lane_id < BLOCK_SIZE / 32) best = {values[lane_id], indices[lane_id]};
    __syncthreads();  // before a next call writes there, all must have read
    return warp_best(best);
}

// Of inp, (n): the best of what falls to this thread.
template <typename T> __device__ Best thread_best(const T* inp, int64_t n) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    int64_t head = -reinterpret_cast<uintptr_t>(inp) % 16 / sizeof(T);
    if (head > n) head = n;  // elements before the first multiple of 16 bytes
    int64_t packs = (n - head) / WIDTH, tail = head + packs * WIDTH;
    auto inp_packs = reinterpret_cast<const Pack<T>*>(inp + head);
    bool at_ends = blockIdx.x == 0;  // fewer than WIDTH elements each
    Best best;
    if (at_ends && threadIdx.x < head) best.take_later(inp[threadIdx.x], threadIdx.x);
    int64_t p = int64_t(blockIdx.x) * BLOCK_SIZE * UNROLL + threadIdx.x;
    int64_t step = int64_t(gridDim.x) * BLOCK_SIZE * UNROLL;
    for (; p < packs && best.value == best.value; p += step) {  // until the first NaN
        Pack<T> x[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (p + u * BLOCK_SIZE < packs) x[u] = inp_packs[p + u * BLOCK_SIZE];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            bool better = false;
            for (int k = 0; k < WIDTH; k++)
                better |= !(float(x[u].at[k]) <= best.value);
            if (better && p + u * BLOCK_SIZE < packs)
                for (int k = 0; k < WIDTH; k++)
                    best.take_later(x[u].at[k],
                                    head + (p + u * BLOCK_SIZE) * WIDTH + k);
        }
    }
    if (at_ends && tail + threadIdx.x < n)
        best.take_later(inp[tail + threadIdx.x], tail + threadIdx.x);
    return best;
}

// out: (); values, indices: (gridDim.x); done: (), 0 at first; inp: (n)
template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE) argmax_kernel(
        int64_t* out, float* values, int64_t* indices, int* done, const T* inp,
        int64_t n) {
    Best best = block_best(thread_best(inp, n));
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        values[blockIdx.x] = best.value, indices[blockIdx.x] = best.index;
        __threadfence();  // the pair, before the count says that it is there
        is_last = atomicAdd(done, 1) == gridDim.x - 1;
        __threadfence();  // the count, before the others' pairs are read
    }
    __syncthreads();  // before is_last is read, it must be written
    if (is_last) {
        for (int b = threadIdx.x; b < gridDim.x; b += BLOCK_SIZE)
            best.take(values[b], indices[b]);
        best = block_best(best);
        if (threadIdx.x == 0) *out = best.index;
    }
}

template <typename T> static void launch(Tensor out, Tensor inp) {
    int64_t n = inp.numel(), per_block = BLOCK_SIZE * UNROLL * Pack<T>::WIDTH;
    int sms = 0, alive = 0;  // blocks of an SM
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                          inp.get_device()));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &alive, argmax_kernel<T>, BLOCK_SIZE, 0));
    int blocks = std::min<int64_t>((n + per_block - 1) / per_block, alive * sms);
    Tensor indices = torch::empty({blocks}, out.options());
    Tensor scratch = torch::empty({blocks + 1}, inp.options().dtype(torch::kFloat32));
    float* values = scratch.data_ptr<float>();
    int* done = reinterpret_cast<int*>(values + blocks);
    cudaStream_t stream = getCurrentCUDAStream();
    C10_CUDA_CHECK(cudaMemsetAsync(done, 0, sizeof(int), stream));
    argmax_kernel<T><<<blocks, BLOCK_SIZE, 0, stream>>>(
        out.data_ptr<int64_t>(), values, indices.data_ptr<int64_t>(), done,
        inp.data_ptr<T>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor argmax(Tensor inp) {
    auto type = inp.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && inp.is_contiguous() && inp.is_cuda() && inp.numel() > 0,
                "inp: expected contiguous float32, float16 or bfloat16 on a CUDA "
                "device, at least one element, got ", type, " on ", inp.device(),
                ", shape ", inp.sizes(), ", strides ", inp.strides());
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({}, inp.options().dtype(torch::kInt64));
    if (type == torch::kFloat32) launch<float>(out, inp);
    else if (type == torch::kFloat16) launch<at::Half>(out, inp);
    else launch<at::BFloat16>(out, inp);
    return out;
}
