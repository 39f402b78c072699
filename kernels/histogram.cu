// kernels/histogram.cu
// SPDX-License-Identifier: MIT
// How often each byte occurs: out[b] = number of elements of inp that equal b.
// inp: uint8, any shape and number of elements, contiguous, aligned or not; out: (256)
// int64, as torch.bincount(inp.view(-1), minlength=256). Reads each byte once; the same
// in every run; no scratch memory. A block counts up to 2^32 - 1 bytes of a kind.
// Notebook: 06_synchronization. Own code; that a lane's counters lie in its own
// bank is an idea of NVIDIA's sample histogram64 (V. Podlozhnyuk, Histogram calculation
// in CUDA, 2007).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// histogram = load_inline("histogram", cuda_sources=Path("histogram.cu").read_text(),
//     cpp_sources="torch::Tensor histogram(torch::Tensor inp);",
//     functions=["histogram"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

constexpr int BINS = 256, LANES = 32;
constexpr int BLOCK_SIZE = 1024;  // threads per block
constexpr int LOADS = 3;          // of 16 bytes for a thread, LANES apart

// left: how many packs of 16 bytes there are from a thread's first one on
__device__ void load_packs(uint4* packs, const uint4* from, int64_t left) {
#pragma unroll
    for (int k = 0; k < LOADS; k++)
        if (k * LANES < left) packs[k] = __ldcs(from + k * LANES);  // read once
}

// mine: (BINS, LANES), from a lane's column on
__device__ void count_packs(unsigned* mine, const uint4* packs, int64_t left) {
#pragma unroll
    for (int k = 0; k < LOADS; k++)
        if (k * LANES < left)
            for (unsigned word : {packs[k].x, packs[k].y, packs[k].z, packs[k].w})
#pragma unroll
                for (int shift = 0; shift < 32; shift += 8)
                    atomicAdd(mine + (word >> shift & 255) * LANES, 1);
}

// out: (BINS), zeros; inp: (n)
__global__ void __launch_bounds__(BLOCK_SIZE)
histogram_kernel(unsigned long long* out, const uint8_t* inp, int64_t n) {
    __shared__ unsigned counters[BINS * LANES];
    for (int c = threadIdx.x; c < BINS * LANES; c += BLOCK_SIZE) counters[c] = 0;
    int64_t head = -reinterpret_cast<intptr_t>(inp) & 15;  // bytes to a multiple of 16
    if (head > n) head = n;
    const uint4* wide = reinterpret_cast<const uint4*>(inp + head);
    int64_t step = int64_t(gridDim.x) * BLOCK_SIZE * LOADS;
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int64_t first = (int64_t(warp) * gridDim.x + blockIdx.x) * LANES * LOADS + lane;
    uint4 packs[LOADS], next[LOADS];
    load_packs(packs, wide + first, (n - head) / 16 - first);
    unsigned* mine = counters + lane;
    __syncthreads();  // all are 0 before one is raised
    for (int64_t left = (n - head) / 16 - first; left > 0; left -= step) {
        wide += step;
        load_packs(next, wide + first, left - step);  // on their way meanwhile
        count_packs(mine, packs, left);
#pragma unroll
        for (int k = 0; k < LOADS; k++) packs[k] = next[k];
    }

    if (blockIdx.x == 0) {  // the bytes outside of packs, at most 15 at each end
        if (threadIdx.x < head) atomicAdd(mine + inp[threadIdx.x] * LANES, 1);
        int64_t last = n - (n - head) % 16 + threadIdx.x;
        if (last < n) atomicAdd(mine + inp[last] * LANES, 1);
    }
    __syncthreads();  // all have counted
    if (threadIdx.x >= BINS) return;
    unsigned total = 0;
    for (int k = 0; k < LANES; k++)  // from the lane's own bank on
        total += counters[threadIdx.x * LANES + (lane + k) % LANES];
    if (total > 0) atomicAdd(out + threadIdx.x, total);
}

torch::Tensor histogram(torch::Tensor inp) {
    bool bytes = inp.is_cuda() && inp.scalar_type() == torch::kUInt8;
    TORCH_CHECK(bytes && inp.is_contiguous(), "inp: expected contiguous uint8 on a "
                "CUDA device, got ", inp.scalar_type(), " on ", inp.device(),
                ", shape ", inp.sizes(), ", strides ", inp.strides());
    c10::cuda::CUDAGuard guard(inp.device());
    auto stream = c10::cuda::getCurrentCUDAStream();
    torch::Tensor out = torch::empty({BINS}, inp.options().dtype(torch::kInt64));
    C10_CUDA_CHECK(cudaMemsetAsync(out.data_ptr(), 0, out.nbytes(), stream));
    int64_t n = inp.numel(), per_block = BLOCK_SIZE * LOADS * 16;
    if (n == 0) return out;
    int sms = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                          inp.get_device()));
    int grid = std::min<int64_t>(sms, (n + per_block - 1) / per_block);
    histogram_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
        reinterpret_cast<unsigned long long*>(out.data_ptr<int64_t>()),
        inp.data_ptr<uint8_t>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
