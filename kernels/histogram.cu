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
constexpr int LOADS = 4;          // of 16 bytes, on their way at once

// mine: (BINS, LANES), from a lane's column on
__device__ void count_bytes(unsigned* mine, unsigned word) {
#pragma unroll
    for (int shift = 0; shift < 32; shift += 8)
        atomicAdd(mine + (word >> shift & 255) * LANES, 1);
}

// out: (BINS), zeros; inp: (n); TABLES * BINS * LANES counters of dynamic shared memory
template <int TABLES>
__global__ void __launch_bounds__(BLOCK_SIZE)
histogram_kernel(unsigned long long* out, const uint8_t* inp, int64_t n) {
    extern __shared__ unsigned counters[];  // (TABLES, BINS, LANES)
    for (int c = threadIdx.x; c < TABLES * BINS * LANES; c += BLOCK_SIZE)
        counters[c] = 0;
    __syncthreads();  // all are 0 before one is raised
    int lane = threadIdx.x % LANES, table = threadIdx.x / LANES % TABLES;
    unsigned* mine = counters + table * BINS * LANES + lane;
    int64_t head = -reinterpret_cast<intptr_t>(inp) & 15;  // bytes to a multiple of 16
    if (head > n) head = n;
    int64_t packs = (n - head) / 16, tail = head + 16 * packs;
    if (blockIdx.x == 0) {
        if (threadIdx.x < head) atomicAdd(mine + inp[threadIdx.x] * LANES, 1);
        int64_t last = tail + threadIdx.x;
        if (last < n) atomicAdd(mine + inp[last] * LANES, 1);
    }
    const uint4* wide = reinterpret_cast<const uint4*>(inp + head);
    int64_t step = int64_t(gridDim.x) * BLOCK_SIZE * LOADS;
    int64_t first = int64_t(blockIdx.x) * BLOCK_SIZE * LOADS + threadIdx.x;
    for (int64_t i = first; i < packs; i += step) {
        uint4 v[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (i + k * BLOCK_SIZE < packs) v[k] = wide[i + k * BLOCK_SIZE];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (i + k * BLOCK_SIZE < packs)
                for (unsigned word : {v[k].x, v[k].y, v[k].z, v[k].w})
                    count_bytes(mine, word);
    }
    __syncthreads();  // all have counted
    if (threadIdx.x >= BINS) return;
    unsigned total = 0;
    for (int c = 0; c < TABLES * LANES; c++) {  // from a bank of the lane's own on
        int row = c / LANES * BINS + threadIdx.x;
        total += counters[row * LANES + (lane + c) % LANES];
    }
    if (total > 0) atomicAdd(out + threadIdx.x, total);
}

torch::Tensor histogram(torch::Tensor inp) {
    bool bytes = inp.is_cuda() && inp.scalar_type() == torch::kUInt8;
    TORCH_CHECK(bytes && inp.is_contiguous(), "inp: expected contiguous uint8 on a "
                "CUDA device, got ", inp.scalar_type(), " on ", inp.device(),
                ", shape ", inp.sizes(), ", strides ", inp.strides());
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::zeros({BINS}, inp.options().dtype(torch::kInt64));
    int64_t n = inp.numel(), per_block = BLOCK_SIZE * LOADS * 16;
    if (n == 0) return out;
    int sms = 0, most = 0, device = inp.get_device();
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    constexpr int TABLE_BYTES = BINS * LANES * sizeof(unsigned);
    bool two = most >= 2 * TABLE_BYTES;
    auto kernel = two ? histogram_kernel<2> : histogram_kernel<1>;
    int shared_bytes = two ? 2 * TABLE_BYTES : TABLE_BYTES;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    int grid = std::min<int64_t>(sms, (n + per_block - 1) / per_block);
    kernel<<<grid, BLOCK_SIZE, shared_bytes, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<unsigned long long*>(out.data_ptr<int64_t>()),
        inp.data_ptr<uint8_t>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
