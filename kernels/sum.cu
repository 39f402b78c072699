// kernels/sum.cu
// SPDX-License-Identifier: MIT
// The sum of all elements. Any shape and number of elements, contiguous; float32,
// float16 or bfloat16, added up in float32, rounded once. out: (), 0 if inp is empty.
// The order of the additions depends on the number of elements, where they start within
// 16 bytes, and the GPU alone, so that results repeat to the bit. Reads each element
// once; scratch memory: 4 bytes a block and 4 more. Gradient: dout, expanded.
// One launch: the block that ends last adds up the blocks' sums (last-block pattern);
// before it 4 bytes are set to 0, unless one block is enough.
// Notebook: 07_reductions. Own code, after M. Harris, "Optimizing Parallel Reduction in
// CUDA", and the threadFenceReduction sample of the CUDA samples (BSD-3-Clause).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// sum = load_inline("sum", cuda_sources=Path("sum.cu").read_text(),
//     cpp_sources="torch::Tensor sum(torch::Tensor inp);", functions=["sum"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int BLOCK_SIZE = 512;  // threads per block
constexpr int UNROLL = 4;        // loads of 16 bytes that a thread has on their way

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

static __device__ float warp_sum(float v) {  // for all lanes
    for (int offset = 16; offset > 0; offset /= 2)
        v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

static __device__ float block_sum(float v) {  // for all threads
    __shared__ float warp_sums[BLOCK_SIZE / 32];
    int lane_id = threadIdx.x % 32;
    v = warp_sum(v);
    if (lane_id == 0) warp_sums[threadIdx.x / 32] = v;
    __syncthreads();  // before the sums are read, all must be written
    v = lane_id < BLOCK_SIZE / 32 ? warp_sums[lane_id] : 0.0f;
    __syncthreads();  // before a next call writes there, all must have read
    return warp_sum(v);
}

// Of inp, (n): the sum of what falls to this thread.
template <typename T> __device__ float thread_sum(const T* inp, int64_t n) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    int64_t head = -reinterpret_cast<uintptr_t>(inp) % 16 / sizeof(T);
    if (head > n) head = n;  // elements before the first multiple of 16 bytes
    int64_t packs = (n - head) / WIDTH, tail = head + packs * WIDTH;
    auto inp_packs = reinterpret_cast<const Pack<T>*>(inp + head);
    float acc[WIDTH] = {0.0f};
    int64_t p = int64_t(blockIdx.x) * BLOCK_SIZE * UNROLL + threadIdx.x;
    for (; p < packs; p += int64_t(gridDim.x) * BLOCK_SIZE * UNROLL) {
        Pack<T> x[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (p + u * BLOCK_SIZE < packs) x[u] = inp_packs[p + u * BLOCK_SIZE];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            for (int k = 0; k < WIDTH; k++) acc[k] += float(x[u].at[k]);
    }
    if (blockIdx.x == 0) {  // both ends, fewer than WIDTH elements each
        if (threadIdx.x < head) acc[0] += float(inp[threadIdx.x]);
        if (tail + threadIdx.x < n) acc[0] += float(inp[tail + threadIdx.x]);
    }
    for (int k = 1; k < WIDTH; k++) acc[0] += acc[k];
    return acc[0];
}

// The last-block pattern: each block leaves its sum in memory and then counts itself;
// the one that finds all others counted is the last, and adds up what they left, always
// in the same order. It needs two fences: the sum is written before the count, and the
// count is read before the others' sums. Without the first one the last block could see
// a count whose sum is still on its way.
// out: (); partial: (gridDim.x); done: (), 0 at first; inp: (n)
template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE) sum_kernel(
        T* out, float* partial, int* done, const T* inp, int64_t n) {
    float sum = block_sum(thread_sum(inp, n));
    if (gridDim.x == 1) {  // there are no others, so nothing is counted
        if (threadIdx.x == 0) *out = T(sum);
        return;
    }
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();  // the sum, before the count says that it is there
        is_last = atomicAdd(done, 1) == gridDim.x - 1;
        __threadfence();  // the count, before the others' sums are read
    }
    __syncthreads();  // before is_last is read, it must be written
    if (is_last) {
        sum = 0.0f;
        for (int b = threadIdx.x; b < gridDim.x; b += BLOCK_SIZE) sum += partial[b];
        sum = block_sum(sum);
        if (threadIdx.x == 0) *out = T(sum);
    }
}

template <typename T> static void launch(Tensor out, Tensor inp) {
    int64_t n = inp.numel(), per_block = BLOCK_SIZE * UNROLL * Pack<T>::WIDTH;
    int sms = 0, alive = 0;  // blocks of an SM
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                          inp.get_device()));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &alive, sum_kernel<T>, BLOCK_SIZE, 0));
    int blocks = std::min<int64_t>((n + per_block - 1) / per_block, alive * sms);
    blocks = std::max(blocks, 1);  // for no elements too: somebody has to write 0
    Tensor scratch = torch::empty({blocks + 1}, inp.options().dtype(torch::kFloat32));
    float* partial = scratch.data_ptr<float>();
    int* done = reinterpret_cast<int*>(partial + blocks);
    cudaStream_t stream = getCurrentCUDAStream();
    if (blocks > 1) C10_CUDA_CHECK(cudaMemsetAsync(done, 0, sizeof(int), stream));
    sum_kernel<T><<<blocks, BLOCK_SIZE, 0, stream>>>(out.data_ptr<T>(), partial, done,
                                                     inp.data_ptr<T>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor sum(Tensor inp) {
    auto type = inp.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && inp.is_contiguous() && inp.is_cuda(), "inp: expected "
                "contiguous float32, float16 or bfloat16 on a CUDA device, got ", type,
                " on ", inp.device(), ", shape ", inp.sizes(), ", strides ",
                inp.strides());
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({}, inp.options());
    if (type == torch::kFloat32) launch<float>(out, inp);
    else if (type == torch::kFloat16) launch<at::Half>(out, inp);
    else launch<at::BFloat16>(out, inp);
    return out;
}
