// kernels/scan.cu
// SPDX-License-Identifier: MIT
// Inclusive scan: out[i] = inp[0] + ... + inp[i], over the flattened tensor. float32,
// contiguous, any shape and number of elements. The order of the additions depends on
// the number of elements and the GPU alone, so that results repeat to the bit. Reads
// and writes each element once; scratch memory: 8 bytes for 4,096 to 16,384 elements,
// which are set to 0 before. A cooperative launch, one block an SM with 48 to 192 KB of
// shared memory; up to 4,096 elements an ordinary one, of one block. Gradient: the scan
// of dout from its end.
// Notebook: 07_reductions. Own code; single-pass, after D. Merrill and M. Garland,
// "Single-pass Parallel Prefix Scan with Decoupled Look-back". There a block looks back
// over as many tiles' sums and prefixes as it takes, so that the order of the additions
// depends on timing; here blocks go in waves, and each adds up the same sums.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// scan = load_inline("scan", cuda_sources=Path("scan.cu").read_text(),
//     cpp_sources="torch::Tensor scan(torch::Tensor inp);", functions=["scan"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda/atomic>
#include <cuda_pipeline_primitives.h>
#include <torch/types.h>

constexpr unsigned ALL = 0xffffffff;  // lanes

static __device__ float warp_sum(float v) {  // for all lanes
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(ALL, v, offset);
    return v;
}

static __device__ float warp_scan(float v) {  // lane k: the sum of the lanes 0 to k
    for (int offset = 1; offset < 32; offset *= 2) {
        float below = __shfl_up_sync(ALL, v, offset);
        if (threadIdx.x % 32 >= offset) v += below;
    }
    return v;
}

// v: a lane's UNROLL packs, 32 packs apart. Scans all 128 * UNROLL elements of the warp
// in place, and returns their sum.
template <int UNROLL> __device__ float scan_packs(float4 (&v)[UNROLL]) {
    float sum = 0.0f;  // of the packs before
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        v[u].y += v[u].x, v[u].z += v[u].y, v[u].w += v[u].z;
        float scanned = warp_scan(v[u].w), before = __shfl_up_sync(ALL, scanned, 1);
        before = threadIdx.x % 32 > 0 ? sum + before : sum;
        v[u].x += before, v[u].y += before, v[u].z += before, v[u].w += before;
        sum += __shfl_sync(ALL, scanned, 31);
    }
    return sum;
}

// out[i] … = v + before: the packs begin at element i, and 128 further each
template <int UNROLL> __device__ void store_packs(
        float* out, const float4 (&v)[UNROLL], float before, int64_t i, int64_t n) {
    if (i + 128 * (UNROLL - 1) + 4 <= n) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            *reinterpret_cast<float4*>(out + i + 128 * u) = make_float4(
                v[u].x + before, v[u].y + before, v[u].z + before, v[u].w + before);
    } else {
#pragma unroll
        for (int u = 0; u < UNROLL; u++, i += 128) {
            if (i < n) out[i] = v[u].x + before;
            if (i + 1 < n) out[i + 1] = v[u].y + before;
            if (i + 2 < n) out[i + 2] = v[u].z + before;
            if (i + 3 < n) out[i + 3] = v[u].w + before;
        }
    }
}

constexpr int BLOCK_SIZE = 1024, WARPS = BLOCK_SIZE / 32;  // per block
constexpr int STAGES = 3;  // tiles of a block in shared memory

// *to … = inp[i] …: UNROLL packs, 32 packs apart; from n on 0. Asynchronous.
template <int UNROLL> __device__ void copy_packs(float4* to, const float* inp,
                                                 int64_t i, int64_t n) {
    bool aligned = reinterpret_cast<uintptr_t>(inp) % 16 == 0;
    if (aligned && i + 128 * (UNROLL - 1) + 4 <= n) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            __pipeline_memcpy_async(to + 32 * u, inp + i + 128 * u, 16);
        return;
    }
    float* each = reinterpret_cast<float*>(to);
#pragma unroll 1
    for (int k = 0; k < 128 * UNROLL; k += k % 4 == 3 ? 125 : 1) {
        if (i + k < n) __pipeline_memcpy_async(each + k, inp + i + k, 4);
        else each[k] = 0.0f;
    }
}

// A sum, and that it is there: one word of 8 bytes, written and read at once. Nothing
// else has to be visible with it, so relaxed order is enough, without a fence.
using Word = cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>;

static __device__ void post(unsigned long long* word, float sum) {
    Word(*word).store(1ull << 32 | __float_as_uint(sum), cuda::memory_order_relaxed);
}

static __device__ float wait_for(unsigned long long* word) {
    unsigned long long seen;
    do seen = Word(*word).load(cuda::memory_order_relaxed); while (seen >> 32 == 0);
    return __uint_as_float(unsigned(seen));
}

// The sum of a thread's packs in a tile, which lie 32 packs apart
template <int UNROLL> __device__ float sum_packs(const float4* packs) {
    float sum = 0.0f;
    for (int u = 0; u < UNROLL; u++) {
        float4 x = packs[u * 32];
        sum += (x.x + x.y) + (x.z + x.w);
    }
    return sum;
}

// A thread's share of the sums of `count` tiles before tile `end`; waits until they are
// posted
static __device__ float sum_tiles(unsigned long long* words, int end, int count) {
    float sum = 0.0f;
    for (int k = threadIdx.x; k < count && k < end; k += BLOCK_SIZE)
        sum += wait_for(words + end - 1 - k);
    return sum;
}

// out, inp: (n); words: (tiles), 0 at first. Waits for other blocks: all must be alive.
// In wave w block b has two tiles: it adds up tile w gridDim.x + b and posts the sum,
// and it scans its tile of wave w - 1. All that stands before that one is `before` and
// the sums of the gridDim.x tiles just before it, all of which are posted in waves
// before w: waiting goes back in waves, never in a circle, and as a rule nobody waits.
// A tile stays in shared memory from its sum to its scan, so that memory is read once:
// of STAGES = 3 tiles one is added up, one scanned, one on its way. Each thread copies
// and reads its own packs only, which takes no barrier.
template <int UNROLL> __global__ void __launch_bounds__(BLOCK_SIZE) scan_kernel(
        float* out, unsigned long long* words, const float* inp, int64_t n, int tiles) {
    extern __shared__ float4 stages[];  // (STAGES, WARPS, UNROLL, 32)
    __shared__ float tile_sums[2][WARPS], wave_sums[2][WARPS], warp_sums[2][WARPS];
    int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32, blocks = gridDim.x;
    int mine = warp_id * UNROLL * 32 + lane_id;  // the thread's first pack in a tile
    auto stage = [&](int slot) { return stages + slot * BLOCK_SIZE * UNROLL + mine; };
    auto element = [&](int64_t tile) {  // the first of that pack
        return 4 * (tile * BLOCK_SIZE * UNROLL + mine);
    };
    auto load = [&](int wave, int slot) {
        int tile = wave * blocks + blockIdx.x;
        if (tile < tiles) copy_packs<UNROLL>(stage(slot), inp, element(tile), n);
        __pipeline_commit();
    };
    for (int wave = 0; wave < STAGES - 1; wave++) load(wave, wave);
    float before = 0.0f;  // the sum of all tiles before the one that is scanned
    int slot = 0, last_slot = STAGES - 1;  // where this wave's tile is, and the last's
    for (int wave = 0; (wave - 1) * blocks + int(blockIdx.x) < tiles; wave++) {
        int tile = wave * blocks + blockIdx.x, last = tile - blocks, now = wave % 2;
        bool adds = tile < tiles, scans = last >= 0;
        float4 v[UNROLL];
        if (adds) {  // 1. the warps add up their parts of this wave's tile
            __pipeline_wait_prior(STAGES - 2);
            float sum = warp_sum(sum_packs<UNROLL>(stage(slot)));
            if (lane_id == 0) tile_sums[now][warp_id] = sum;
        }
        if (scans) {  // 2. and scan those of the last wave's, whose place is then free
            float others = warp_sum(sum_tiles(words, last, blocks));
            for (int u = 0; u < UNROLL; u++) v[u] = stage(last_slot)[u * 32];
            load(wave + STAGES - 1, last_slot);
            float own = scan_packs(v);
            if (lane_id == 0) wave_sums[now][warp_id] = others;
            if (lane_id == 0) warp_sums[now][warp_id] = own;
        } else load(wave + STAGES - 1, last_slot);
        __syncthreads();  // before the warps' sums are read, all must be written
        if (adds && warp_id == 0) {  // 3. the other blocks get this tile's sum
            float sum = warp_sum(tile_sums[now][lane_id]);
            if (lane_id == 0) post(words + tile, sum);
        }
        if (scans) {  // 4. out: what stands before the tile, before the warp, in it
            before += warp_sum(wave_sums[now][lane_id]);
            float sum = warp_sum(lane_id < warp_id ? warp_sums[now][lane_id] : 0.0f);
            store_packs(out, v, before + sum, element(last), n);
        }
        last_slot = slot, slot = (slot + 1) % STAGES;
    }
}

torch::Tensor scan(torch::Tensor inp) {
    TORCH_CHECK(inp.scalar_type() == torch::kFloat32 && inp.is_contiguous() &&
                inp.is_cuda(), "inp: expected contiguous float32 on a CUDA device, "
                "got ", inp.scalar_type(), " on ", inp.device(), ", shape ",
                inp.sizes(), ", strides ", inp.strides());
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty_like(inp);
    int64_t n = inp.numel();
    if (n == 0) return out;
    int sms = 0, shared = 0, device = inp.get_device();
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                          device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(
        &shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    constexpr int PACKS = STAGES * BLOCK_SIZE * sizeof(float4);  // bytes for UNROLL = 1
    int unroll = std::min(4, (shared - 1024) / PACKS);  // 1024: the warps' sums
    // of few elements small tiles, so that all SMs have one
    unroll = std::min<int64_t>(unroll, (n - 1) / (4 * BLOCK_SIZE * sms) + 1);
    auto kernel = unroll == 4 ? scan_kernel<4> : unroll == 3 ? scan_kernel<3>
                : unroll == 2 ? scan_kernel<2> : scan_kernel<1>;
    int64_t per_tile = int64_t(BLOCK_SIZE) * unroll * 4;
    TORCH_CHECK(n / per_tile < INT_MAX / 2, "inp: expected fewer than 2^42 elements, "
                "got ", n);
    int tiles = (n + per_tile - 1) / per_tile;
    auto words = torch::empty({tiles}, inp.options().dtype(torch::kInt64));
    auto* words_at = reinterpret_cast<unsigned long long*>(words.data_ptr<int64_t>());
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    float *out_at = out.data_ptr<float>(), *inp_at = inp.data_ptr<float>();
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, unroll * PACKS));
    if (tiles == 1) {  // waits for nobody, and needs no word that is 0
        kernel<<<1, BLOCK_SIZE, unroll * PACKS, stream>>>(out_at, words_at, inp_at,
                                                          n, 1);
    } else {
        void* arguments[] = {&out_at, &words_at, &inp_at, &n, &tiles};
        C10_CUDA_CHECK(cudaMemsetAsync(words_at, 0, tiles * sizeof(*words_at), stream));
        C10_CUDA_CHECK(cudaLaunchCooperativeKernel(
            (void*)kernel, std::min(tiles, sms), BLOCK_SIZE, arguments, unroll * PACKS,
            stream));
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
