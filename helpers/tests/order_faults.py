"""CUDA kernels with one fault each in the order of their accesses, and how it is mended.

The text behind `fix:` is what its line should be, as in proof/broken_kernel.py. An error may name
the lines marked `fault`, of a race both of its sides. Every kernel takes x and y, 4,096 floats each
(x counts up, y is 0), and n, 256 integers that are 0.
"""

HEADER = """
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_fp16.h>
#include <new>
namespace cg = cooperative_groups;
struct Sum {
    float value;
    __device__ Sum() : value(0) {}
    __device__ void add(float more) { value += more; }
};
"""

# name: (grid, block, body)
FAULTS = {
    # --- shared memory and barriers
    "reverse": (
        1,
        64,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // fault
    // fix: __syncthreads();
    y[t] = s[63 - t];  // fault
""",
    ),
    "sum_without_barrier": (
        2,
        128,
        """
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];  // fault
        // fix: __syncthreads();
    }
    if (t == 0) atomicAdd(y, s[0]);
""",
    ),
    "sum_stops_barriers_early": (
        1,
        128,
        """
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];  // fault
        if (d > 32) __syncthreads();  // fix: __syncthreads();
    }
    y[t] = t ? 0 : s[0];
""",
    ),
    "warp_sum_in_shared": (
        1,
        32,
        """
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    for (int d = 16; d > 0; d /= 2) {
        float other = t < d ? s[t + d] : 0;  // fault
        // fix: __syncwarp();
        s[t] += other;  // fault
        __syncwarp();
    }
    y[t] = s[0];
""",
    ),
    "scan_in_place": (
        1,
        64,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        float before = t >= d ? s[t - d] : 0;  // fault
        // fix: __syncthreads();
        s[t] += before;  // fault
        __syncthreads();
    }
    y[t] = s[t];
""",
    ),
    "scan_with_two_buffers": (
        1,
        64,
        """
    __shared__ float s[2][64];
    int t = threadIdx.x, from = 0;
    s[0][t] = x[t];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);  // fault
        from = 1 - from;
        // fix: __syncthreads();
    }
    __syncthreads();
    y[t] = s[from][t];
""",
    ),
    "transpose_tile": (
        4,
        256,
        """
    __shared__ float tile[16][17];
    int c = threadIdx.x % 16, r = threadIdx.x / 16;
    tile[r][c] = x[blockIdx.x * 256 + threadIdx.x];  // fault
    if (c == 99)  // fix: {}
        __syncthreads();
    y[blockIdx.x * 256 + threadIdx.x] = tile[c][r];  // fault
""",
    ),
    "matmul_second_barrier": (
        1,
        64,
        """
    __shared__ float a[8][8], b[8][8];
    int c = threadIdx.x % 8, r = threadIdx.x / 8;
    float acc = 0;
    for (int k = 0; k < 4; k++) {
        a[r][c] = x[(r * 4 + k) * 8 + c];  // fault
        b[r][c] = x[(k * 8 + r) * 8 + c];
        __syncthreads();
        for (int j = 0; j < 8; j++) acc += a[r][j] * b[j][c];  // fault
        // fix: __syncthreads();
    }
    y[threadIdx.x] = acc;
""",
    ),
    "matmul_first_barrier": (
        1,
        64,
        """
    __shared__ float a[8][8], b[8][8];
    int c = threadIdx.x % 8, r = threadIdx.x / 8;
    a[r][c] = b[r][c] = 0;
    __syncthreads();
    float acc = 0;
    for (int k = 0; k < 4; k++) {
        a[r][c] = x[(r * 4 + k) * 8 + c];  // fault
        b[r][c] = x[(k * 8 + r) * 8 + c];
        // fix: __syncthreads();
        for (int j = 0; j < 8; j++) acc += a[r][j] * b[j][c];  // fault
        __syncthreads();
    }
    y[threadIdx.x] = acc;
""",
    ),
    "stencil_halo": (
        4,
        64,
        """
    __shared__ float s[66];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t + 1] = x[i];  // fault
    if (t == 0) s[0] = i ? x[i - 1] : 0;
    __syncwarp();  // fix: __syncthreads();
    if (t == 63) s[65] = x[i + 1];
    y[i] = s[t] + s[t + 1] + (t < 63 ? s[t + 2] : 0);  // fault
""",
    ),
    "stencil_in_place": (
        4,
        64,
        """
    int i = blockIdx.x * 64 + threadIdx.x;
    float sum = i ? x[i - 1] + x[i] : x[i];  // fault
    x[i] = sum;  // fault; fix: y[i] = sum;
""",
    ),
    "double_buffer": (
        1,
        64,
        """
    __shared__ float tile[2][64];
    int t = threadIdx.x;
    float acc = 0;
    tile[0][t] = x[t];
    __syncthreads();
    for (int k = 0; k < 4; k++) {
        tile[(k + 1) % 2][t] = x[(k + 1) * 64 + t];  // fault
        acc += tile[k % 2][63 - t];  // fault
        if (k != 1)  // fix: {}
        __syncthreads();
    }
    y[t] = acc;
""",
    ),
    "broadcast_from_thread_0": (
        1,
        64,
        """
    __shared__ float mean;
    if (threadIdx.x == 0) mean = x[3];  // fault
    // fix: __syncthreads();
    y[threadIdx.x] = x[threadIdx.x] - mean;  // fault
""",
    ),
    "reused_scratch": (
        1,
        64,
        """
    __shared__ float part[2];
    for (int k = 0; k < 2; k++) {
        float v = x[k * 64 + threadIdx.x];
        for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;  // fault
        __syncthreads();
        if (threadIdx.x == 0) y[k] = part[0] + part[1];  // fault
        // fix: __syncthreads();
    }
""",
    ),
    "zeroed_bins": (
        1,
        64,
        """
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;  // fault
    // fix: __syncthreads();
    atomicAdd(&bins[(threadIdx.x * 7 + 3) % 16], 1);  // fault
    __syncthreads();
    if (threadIdx.x < 16) n[threadIdx.x] = bins[threadIdx.x];
""",
    ),
    "bins_read_too_early": (
        1,
        64,
        """
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[threadIdx.x % 16], 1);  // fault
    // fix: __syncthreads();
    if (threadIdx.x < 16) n[threadIdx.x] = bins[15 - threadIdx.x];  // fault
""",
    ),
    "plain_count": (
        1,
        64,
        """
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    count += 1;  // fault; fix: atomicAdd(&count, 1);
    __syncthreads();
    n[threadIdx.x] = count;
""",
    ),
    "odd_even_sort": (
        1,
        32,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = -x[t];
    s[t + 32] = -x[t + 32];
    __syncthreads();
    for (int k = 0; k < 64; k++) {
        int i = 2 * t + k % 2;
        if (i < 63 && s[i] > s[i + 1]) {  // fault
            float swap = s[i];
            s[i] = s[i + 1];  // fault
            s[i + 1] = swap;  // fault
        }
        // fix: __syncthreads();
    }
    __syncthreads();
    y[t] = s[t];
""",
    ),
    "dynamic_shared": (
        1,
        64,
        """
    extern __shared__ float cache[];
    float* sums = cache + 64;
    cache[threadIdx.x] = x[threadIdx.x];  // fault
    // fix: __syncthreads();
    sums[threadIdx.x] = cache[threadIdx.x ^ 1] + cache[threadIdx.x];  // fault
    y[threadIdx.x] = sums[threadIdx.x];
""",
    ),
    "vectors_and_floats": (
        1,
        64,
        """
    __shared__ float s[256];
    int t = threadIdx.x;
    reinterpret_cast<float4*>(s)[t] = reinterpret_cast<const float4*>(x)[t];  // fault
    // fix: __syncthreads();
    y[t] = s[t] + s[255 - t];  // fault
""",
    ),
    # --- global memory
    "same_element": (
        2,
        64,
        """
    int i = threadIdx.x;  // fix: int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = blockIdx.x + 1;  // fault
""",
    ),
    "missing_guard": (
        1,
        64,
        """
    int i = min(int(threadIdx.x), 49);
    // fix: if (threadIdx.x < 50)
    y[i] = threadIdx.x;  // fault
""",
    ),
    "global_sum": (
        4,
        64,
        """
    y[0] += x[threadIdx.x];  // fault; fix: atomicAdd(y, x[threadIdx.x]);
""",
    ),
    "atomic_and_plain": (
        2,
        32,
        """
    atomicAdd(n, 1);  // fault
    if (threadIdx.x == 5) n[0] = 7;  // fault; fix: if (threadIdx.x == 5) atomicAdd(n, 7);
""",
    ),
    "read_after_atomics": (
        1,
        64,
        """
    atomicAdd(n, 1);  // fault
    // fix: __syncthreads();
    y[threadIdx.x] = n[0];  // fault
""",
    ),
    "global_reuse_in_block": (
        1,
        64,
        """
    x[threadIdx.x] *= 2;  // fault
    // fix: __syncthreads();
    y[threadIdx.x] = x[threadIdx.x ^ 33];  // fault
""",
    ),
    "other_block": (
        2,
        32,
        """
    int i = blockIdx.x * 32 + threadIdx.x;
    x[i] = 2 * i;  // fault
    y[i] = x[63 - i];  // fault; fix: y[i] = x[i];
""",
    ),
    "bytes_of_a_word": (
        1,
        64,
        """
    auto* bytes = reinterpret_cast<unsigned char*>(n);
    if (threadIdx.x < 32) bytes[threadIdx.x] = threadIdx.x;  // fault
    // fix: __syncthreads();
    if (threadIdx.x >= 32 && threadIdx.x < 40) y[threadIdx.x] = n[threadIdx.x - 32];  // fault
""",
    ),
    # --- fences, flags, locks
    "last_block_without_fence": (
        4,
        32,
        """
    __shared__ bool last;
    if (threadIdx.x == 0) {
        y[blockIdx.x] = x[blockIdx.x];  // fault
        // fix: __threadfence();
        last = atomicAdd(n, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 4) y[8 + threadIdx.x] = y[threadIdx.x];  // fault
""",
    ),
    "fence_of_the_wrong_thread": (
        4,
        32,
        """
    __shared__ bool last;
    if (threadIdx.x == 0) y[blockIdx.x] = x[blockIdx.x];  // fault
    if (threadIdx.x == 1) __threadfence();  // fix: if (threadIdx.x == 0) __threadfence();
    if (threadIdx.x == 0) last = atomicAdd(n, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x < 4) y[8 + threadIdx.x] = y[threadIdx.x];  // fault
""",
    ),
    "fence_before_the_write": (
        4,
        32,
        """
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        y[blockIdx.x] = x[blockIdx.x];  // fault
        // fix: __threadfence();
        last = atomicAdd(n, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 4) y[8 + threadIdx.x] = y[threadIdx.x];  // fault
""",
    ),
    "fence_of_a_block": (
        4,
        32,
        """
    __shared__ bool last;
    if (threadIdx.x == 0) {
        y[blockIdx.x] = x[blockIdx.x];  // fault
        __threadfence_block();  // fix: __threadfence();
        last = atomicAdd(n, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 4) y[8 + threadIdx.x] = y[threadIdx.x];  // fault
""",
    ),
    "all_write_one_fences": (
        4,
        64,
        """
    __shared__ bool last;
    y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];  // fault
    // fix: __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(n, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) x[threadIdx.x + 512] = y[threadIdx.x] + y[threadIdx.x + 192];  // fault
""",
    ),
    "all_fence_no_barrier": (
        4,
        64,
        """
    __shared__ bool last;
    y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];  // fault
    __threadfence();
    // fix: __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(n, 1) == gridDim.x - 1;
    __syncthreads();
    if (last) x[threadIdx.x + 512] = y[threadIdx.x] + y[threadIdx.x + 192];  // fault
""",
    ),
    "counts_set_to_zero": (
        1,
        64,
        """
    __shared__ int counts[64];
    counts[threadIdx.x] = 0;  // fault
    // fix: __syncthreads();
    atomicAdd(&counts[threadIdx.x / 2], 1);  // fault
    __syncthreads();
    n[threadIdx.x] = counts[threadIdx.x];
""",
    ),
    "counts_read_too_early": (
        1,
        64,
        """
    __shared__ int counts[64];
    counts[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&counts[threadIdx.x / 2], 1);  // fault
    atomicAdd(&n[255], 1);
    // fix: __syncthreads();
    n[threadIdx.x] = counts[threadIdx.x];  // fault
""",
    ),
    "lost_update": (
        3,
        32,
        """
    __shared__ int counts[32];
    counts[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&counts[threadIdx.x / 4], 1);
    __syncthreads();
    if (threadIdx.x < 8)
        n[threadIdx.x] += counts[threadIdx.x];  // fault; fix: atomicAdd(&n[threadIdx.x], 4);
""",
    ),
    "shift_across_blocks": (
        2,
        32,
        """
    int i = blockIdx.x * 32 + threadIdx.x;
    float right = i < 63 ? x[i + 1] : 0;  // fault
    __syncthreads();
    x[i] = right;  // fault; fix: y[i] = right;
""",
    ),
    "waits_for_an_old_value": (
        1,
        64,
        """
    volatile int* flag = n;
    if (threadIdx.x == 0) {
        x[0] = 4;
        __threadfence();
        flag[0] = 1;
        while (flag[1] == 0) {}
        y[0] = 5;  // fault
        __threadfence();
        flag[0] = 2;
        while (flag[1] != 2) {}
    } else if (threadIdx.x == 32) {
        while (flag[0] == 0) {}
        flag[1] = 1;
        for (int i = 0; i < 100; i++) __nanosleep(1);  // fix: while (flag[0] != 2) {}
        __threadfence();
        y[1] = y[0];  // fault
        __threadfence();
        flag[1] = 2;
    }
""",
    ),
    "one_waits_all_read": (
        2,
        64,
        """
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            y[0] = 5;  // fault
            __threadfence();
            atomicExch(n, 1);
        }
    } else {
        if (threadIdx.x == 0) {
            while (atomicAdd(n, 0) == 0) {}
            __threadfence();
        }
        // fix: __syncthreads();
        y[64 + threadIdx.x] = y[0];  // fault
    }
""",
    ),
    "other_flag": (
        2,
        1,
        """
    if (blockIdx.x == 0) {
        y[0] = 5;  // fault
        __threadfence();
        atomicExch(&n[0], 1);
        y[1] = 6;  // fault
        // fix: __threadfence();
        atomicExch(&n[1], 1);
    } else {
        while (atomicAdd(&n[1], 0) == 0) {}
        __threadfence();
        y[2] = y[1] + y[0];  // fault
    }
""",
    ),
    "consumer_without_fence": (
        2,
        1,
        """
    volatile int* flag = n;
    if (blockIdx.x == 0) {
        y[0] = 5;  // fault
        __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {}
        // fix: __threadfence();
        y[1] = y[0];  // fault
    }
""",
    ),
    "consumer_by_atomics": (
        2,
        1,
        """
    if (blockIdx.x == 0) {
        y[0] = 5;  // fault
        __threadfence();
        atomicExch(n, 1);
    } else {
        while (atomicCAS(n, 1, 2) != 1) {}
        // fix: __threadfence();
        y[1] = y[0];  // fault
    }
""",
    ),
    "producer_without_fence": (
        2,
        1,
        """
    volatile int* flag = n;
    if (blockIdx.x == 0) {
        y[0] = 5;  // fault
        // fix: __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {}
        __threadfence();
        y[1] = y[0];  // fault
    }
""",
    ),
    "chain_of_blocks": (
        8,
        1,
        """
    int b = blockIdx.x;
    if (b) {
        while (atomicAdd(&n[b - 1], 0) == 0) {}
        __threadfence();
        y[b] = y[b - 1] + 1;  // fault
    } else y[0] = 1;  // fault
    if (b != 0)  // fix: if (true)
        __threadfence();
    atomicExch(&n[b], 1);
""",
    ),
    "lock_without_release_fence": (
        4,
        1,
        """
    while (atomicCAS(n, 0, 1) != 0) {}
    __threadfence();
    y[0] += 1;  // fault
    // fix: __threadfence();
    atomicExch(n, 0);
""",
    ),
    "lock_without_acquire_fence": (
        4,
        1,
        """
    while (atomicCAS(n, 0, 1) != 0) {}
    // fix: __threadfence();
    y[0] += 1;  // fault
    __threadfence();
    atomicExch(n, 0);
""",
    ),
    "lock_of_exchange": (
        4,
        1,
        """
    while (atomicExch(n, 1) != 0) {}
    __threadfence();
    y[0] += 1;  // fault
    __threadfence_block();  // fix: __threadfence();
    atomicExch(n, 0);
""",
    ),
    "two_locks": (
        4,
        1,
        """
    int mine = blockIdx.x % 2;  // fix: int mine = 0;
    while (atomicCAS(&n[mine], 0, 1) != 0) {}
    __threadfence();
    y[0] += 1;  // fault
    __threadfence();
    atomicExch(&n[mine], 0);
""",
    ),
    "plain_unlock": (
        4,
        1,
        """
    while (atomicCAS(n, 0, 1) != 0) {}  // fault
    __threadfence();
    y[0] += 1;
    __threadfence();
    *n = 0;  // fault; fix: atomicExch(n, 0);
""",
    ),
    "maximum_read_back": (
        2,
        64,
        """
    auto* bits = reinterpret_cast<unsigned*>(y);
    unsigned old = *bits, seen;
    do {
        seen = old;
        if (__uint_as_float(seen) >= x[threadIdx.x] + 1) break;
        old = atomicCAS(bits, seen, __float_as_uint(x[threadIdx.x] + 1));  // fault
    } while (old != seen);
    x[1024 + blockIdx.x * 64 + threadIdx.x] = y[0];  // fault; fix: atomicAdd(n, 1);
""",
    ),
    "producer_in_block": (
        1,
        64,
        """
    __shared__ float s;
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 32) {
        s = 5;  // fault
        // fix: __threadfence_block();
        atomicExch(&flag, 1);
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(&flag, 0) == 0) {}
        __threadfence_block();
        y[0] = s;  // fault
    }
""",
    ),
    # --- volatile
    "volatile_reverse": (
        1,
        64,
        """
    __shared__ volatile float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // fault
    // fix: __syncthreads();
    y[t] = s[63 - t];  // fault
""",
    ),
    "volatile_sum_of_a_warp": (
        1,
        32,
        """
    __shared__ float sums[48];
    volatile float* s = sums;
    int t = threadIdx.x;
    s[t] = x[t];  // fault
    if (t < 16) s[32 + t] = 0;  // fault
    // fix: __syncwarp();
    float a = s[t + 16];  // fault
    y[t] = a;
""",
    ),
    "volatile_steps_of_a_warp": (
        1,
        32,
        """
    __shared__ volatile float s[48];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 16) s[32 + t] = 0;
    __syncwarp();
    for (int d = 16; d; d /= 2) {
        float more = s[t + d];  // fault
        // fix: __syncwarp();
        s[t] += more;  // fault
        __syncwarp();
    }
    y[t] = s[0];
""",
    ),
    "volatile_neighbour_in_another_block": (
        2,
        32,
        """
    volatile float* v = x;
    int i = blockIdx.x * 32 + threadIdx.x;
    v[i] = 2 * i;  // fault
    y[i] = v[(i + 32) % 64];  // fault; fix: y[i] = v[i];
""",
    ),
    "volatile_count": (
        1,
        64,
        """
    volatile unsigned* count = reinterpret_cast<unsigned*>(n);
    *count += 1;  // fault; fix: atomicAdd(n, 1);
""",
    ),
    "volatile_count_of_blocks": (
        4,
        1,
        """
    volatile unsigned* count = reinterpret_cast<unsigned*>(n);
    *count = *count + 1;  // fault; fix: atomicAdd(n, 1);
""",
    ),
    "volatile_broadcast": (
        1,
        64,
        """
    __shared__ volatile float mean;
    int t = threadIdx.x;
    if (t == 0) mean = x[3];  // fault
    // fix: __syncthreads();
    y[t] = x[t] - mean;  // fault
""",
    ),
    "volatile_shift_in_place": (
        1,
        64,
        """
    __shared__ volatile float s[65];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t == 0) s[64] = 0;
    __syncthreads();
    float next = s[t + 1];  // fault
    // fix: __syncthreads();
    s[t] = next;  // fault
""",
    ),
    # --- atomics of a block
    "count_of_a_block_for_all": (
        4,
        32,
        """
    atomicAdd_block(n, 1);  // fault; fix: atomicAdd(n, 1);
""",
    ),
    "maximum_of_a_block_for_all": (
        4,
        32,
        """
    if (threadIdx.x == 3)
        atomicMax_block(&n[5], int(blockIdx.x));  // fault; fix: atomicMax(&n[5], int(blockIdx.x));
""",
    ),
    "one_of_them_of_a_block": (
        2,
        32,
        """
    if (blockIdx.x == 0) atomicAdd(&n[threadIdx.x], 1);  // fault
    else atomicAdd_block(&n[threadIdx.x], 1);  // fault; fix: else atomicAdd(&n[threadIdx.x], 1);
""",
    ),
    "lock_of_a_block_for_all": (
        4,
        1,
        """
    while (atomicCAS_block(n, 0, 1) != 0) {}  // fault; fix: while (atomicCAS(n, 0, 1) != 0) {}
    __threadfence();
    y[0] += 1;
    __threadfence();
    atomicExch(n, 0);  // fault
""",
    ),
    "bins_of_a_block_for_all": (
        4,
        64,
        """
    int bin = int(x[blockIdx.x * 64 + threadIdx.x]) % 16;
    atomicAdd_block(&n[bin], 1);  // fault; fix: atomicAdd(&n[bin], 1);
""",
    ),
    "reference_of_block_scope": (
        2,
        32,
        """
    using Block = cuda::atomic_ref<int, cuda::thread_scope_block>;
    using Device = cuda::atomic_ref<int, cuda::thread_scope_device>;
    Block count(n[7]);  // fix: Device count(n[7]);
    count.fetch_add(1);  // fault
""",
    ),
    # --- a counter tells what is published
    "counts_up_to_a_limit_without_fence": (
        4,
        1,
        """
    y[blockIdx.x] = x[blockIdx.x];  // fault
    // fix: __threadfence();
    bool last = atomicInc(reinterpret_cast<unsigned*>(n), 3) == 3;
    __threadfence();
    if (last) y[8] = y[0] + y[1] + y[2] + y[3];  // fault
""",
    ),
    "waits_for_a_count_without_fence": (
        3,
        1,
        """
    if (blockIdx.x < 2) {
        y[blockIdx.x] = 5;  // fault
        // fix: __threadfence();
        atomicAdd(n, 1);
    } else {
        while (atomicAdd(n, 0) < 2) {}
        __threadfence();
        y[2] = y[0] + y[1];  // fault
    }
""",
    ),
    "relaxed_count": (
        4,
        1,
        """
    cuda::atomic_ref<int, cuda::thread_scope_device> count(n[0]);
    y[blockIdx.x] = x[blockIdx.x];  // fault
    constexpr auto order = cuda::memory_order_relaxed;
    // fix: __threadfence();
    bool last = count.fetch_add(1, order) == 3;
    __threadfence();
    if (last) y[8] = y[0] + y[1] + y[2] + y[3];  // fault
""",
    ),
    "volatile_results_without_fence": (
        4,
        1,
        """
    volatile float* result = y;
    result[blockIdx.x] = x[blockIdx.x];  // fault
    // fix: __threadfence();
    bool last = atomicAdd(n, 1) == 3;
    __threadfence();
    if (last) x[8] = result[0] + result[1] + result[2] + result[3];  // fault
""",
    ),
    "flag_of_each_block_without_fence": (
        2,
        1,
        """
    y[blockIdx.x] = 3;  // fault
    // fix: __threadfence();
    atomicExch(&n[blockIdx.x], 1);
    if (blockIdx.x == 0) return;
    while (atomicAdd(&n[0], 0) == 0) {}
    __threadfence();
    y[9] = y[0];  // fault
""",
    ),
    "relaxed_store_in_ptx": (
        2,
        1,
        """
    int seen = 0;
    if (blockIdx.x == 0) {
        y[0] = 5;  // fault
        // fix: __threadfence();
        asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" :: "l"(n) : "memory");
    } else {
        while (!seen)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(n) : "memory");
        y[1] = y[0];  // fault
    }
""",
    ),
    "fence_of_a_block_in_ptx": (
        4,
        1,
        """
    y[blockIdx.x] = x[blockIdx.x];  // fault
    asm volatile("membar.cta;" ::: "memory");  // fix: asm volatile("membar.gl;" ::: "memory");
    bool last = atomicAdd(n, 1) == 3;
    __threadfence();
    if (last) y[8] = y[0] + y[1] + y[2] + y[3];  // fault
""",
    ),
    # --- warps
    "mask_of_16": (
        1,
        32,
        """
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v = __shfl_sync(0xffff, v, 20);  // fault; fix: v = 0;
    y[threadIdx.x] = v;
""",
    ),
    "sum_of_20_lanes": (
        1,
        32,
        """
    int v = threadIdx.x, from = 16;  // fix: int v = threadIdx.x, from = 8;
    if (threadIdx.x < 16) {
        for (int d = from; d; d /= 2) v += __shfl_down_sync(0xffff, v, d);  // fault
        if (threadIdx.x == 0) n[0] = v;
    }
""",
    ),
    "sum_of_short_block": (
        1,
        16,
        """
    int v = threadIdx.x, from = 16;  // fix: int v = threadIdx.x, from = 8;
    for (int d = from; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);  // fault
    if (threadIdx.x == 0) n[0] = v;
""",
    ),
    "butterfly_of_short_block": (
        1,
        48,
        """
    int v = threadIdx.x;
    for (int d = 16; d; d /= 2) {
        if (threadIdx.x >= 32 && d == 16) {}  // fix: if (threadIdx.x >= 32 && d == 16) continue;
        v += __shfl_xor_sync(threadIdx.x < 32 ? 0xffffffff : 0xffff, v, d);  // fault
    }
    n[threadIdx.x] = v;
""",
    ),
    "returned_lane": (
        1,
        32,
        """
    if (threadIdx.x >= 24) return;  // fix: {}
    n[threadIdx.x] = __shfl_xor_sync(0xffffffff, n[threadIdx.x], 16);  // fault
""",
    ),
    "skipped_syncwarp": (
        1,
        32,
        """
    __shared__ int s[32];
    s[threadIdx.x] = threadIdx.x;  // fault
    if (threadIdx.x == 40)  // fix: {}
        __syncwarp();
    n[threadIdx.x] = s[31 - threadIdx.x];  // fault
""",
    ),
    # --- cooperative groups
    "tile_sync_for_a_block": (
        1,
        64,
        """
    __shared__ float s[64];
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];  // fault
    tile.sync();  // fix: cg::this_thread_block().sync();
    y[threadIdx.x] = s[63 - threadIdx.x];  // fault
""",
    ),
    "tile_of_16": (
        1,
        32,
        """
    __shared__ float s[32];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];  // fault
    tile.sync();  // fix: __syncwarp();
    y[threadIdx.x] = s[threadIdx.x ^ 16];  // fault
""",
    ),
}

# Right, though they look odd: name: (grid, block, body)
RIGHT = {
    "same_value_by_a_warp": (
        1,
        32,
        """
    __shared__ int found;
    found = 0;
    __syncwarp();
    if (x[threadIdx.x] > 5) found = 1;
    __syncwarp();
    n[threadIdx.x] = found;
""",
    ),
    "syncwarp_in_both_branches": (
        1,
        32,
        """
    __shared__ int s[32];
    if (threadIdx.x % 2) {
        s[threadIdx.x] = 1;
        __syncwarp();
    } else {
        s[threadIdx.x] = 2;
        __syncwarp();
    }
    n[threadIdx.x] = s[threadIdx.x ^ 1];
""",
    ),
    "fence_by_another_after_a_barrier": (
        4,
        64,
        """
    __shared__ bool last;
    y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 40) __threadfence();
    __syncthreads();
    if (threadIdx.x == 3) last = atomicAdd(n, 1) == gridDim.x - 1;
    __syncthreads();
    if (last) x[threadIdx.x + 512] = y[threadIdx.x] + y[threadIdx.x + 192];
""",
    ),
    "lane_fences_for_its_warp": (
        4,
        32,
        """
    bool last = false;
    y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(n, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncwarp();
    last = __shfl_sync(0xffffffff, last, 0);
    if (last) x[threadIdx.x + 512] = y[threadIdx.x] + y[threadIdx.x + 96];
""",
    ),
    "volatile_results": (
        4,
        32,
        """
    __shared__ bool last;
    volatile float* result = y;
    if (threadIdx.x == 0) {
        result[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(reinterpret_cast<unsigned*>(n), gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 4) y[8 + threadIdx.x] = result[threadIdx.x];
""",
    ),
    "compare_and_swap_reads_again": (
        2,
        64,
        """
    unsigned* bits = reinterpret_cast<unsigned*>(y);
    unsigned seen;
    do {
        seen = *bits;
    } while (atomicCAS(bits, seen, __float_as_uint(__uint_as_float(seen) + 1)) != seen);
""",
    ),
    "volatile_sum_by_syncwarp": (
        1,
        32,
        """
    __shared__ int first[5];
    __shared__ volatile float s[48];
    int t = threadIdx.x;
    if (t < 5) first[t] = 3;
    s[t] = x[t];
    if (t < 16) s[32 + t] = 0;
    __syncwarp();
    for (int d = 16; d; d /= 2) {
        float more = s[t + d];
        __syncwarp();
        s[t] += more;
        __syncwarp();
    }
    y[t] = s[0] + first[t % 5];
""",
    ),
    "block_atomics_within_blocks": (
        4,
        64,
        """
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd_block(&count, 1);
    atomicAdd_block(&n[blockIdx.x], 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&n[9], count);
""",
    ),
    "part_of_a_warp_shuffles": (
        1,
        48,
        """
    int i = threadIdx.x;
    unsigned mask = __ballot_sync(i < 32 ? 0xffffffff : 0xffff, i < 40);
    if (i < 40) {
        float v = x[i];
        for (int d = 4; d; d /= 2) v += __shfl_down_sync(mask, v, d, 8);
        if (i % 8 == 0) y[i] = v;
    }
""",
    ),
    "ticket_for_work": (
        4,
        32,
        """
    __shared__ int next;
    for (;;) {
        if (threadIdx.x == 0) next = atomicAdd(n, 1);
        __syncthreads();
        int mine = next;
        __syncthreads();
        if (mine >= 64) break;
        y[mine * 32 + threadIdx.x] = mine;
    }
""",
    ),
    "sum_of_a_short_block": (
        1,
        24,
        """
    float v = x[threadIdx.x];
    for (int d = 1; d < 24; d *= 2) {
        float other = __shfl_down_sync(0xffffff, v, d);
        if (threadIdx.x + d < 24) v += other;
    }
    if (threadIdx.x == 0) y[0] = v;
""",
    ),
    "early_exit_of_a_warp": (
        1,
        64,
        """
    __shared__ float s[32];
    if (threadIdx.x >= 32) return;
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[threadIdx.x] = s[31 - threadIdx.x];
""",
    ),
    "two_arrays_of_a_class": (
        1,
        64,
        """
    __shared__ half a[64];
    __shared__ half b[64];
    a[threadIdx.x] = __float2half(x[threadIdx.x]);
    b[threadIdx.x] = __float2half(1);
    __syncthreads();
    y[threadIdx.x] = __half2float(__hadd(a[63 - threadIdx.x], b[63 - threadIdx.x]));
""",
    ),
    "placement_new": (
        1,
        64,
        """
    __shared__ __align__(16) char raw[64 * sizeof(Sum)];
    auto* sums = reinterpret_cast<Sum*>(raw);
    auto* mine = new (&sums[threadIdx.x]) Sum();
    mine->add(x[threadIdx.x]);
    __syncthreads();
    y[threadIdx.x] = sums[63 - threadIdx.x].value;
""",
    ),
    "vectors_in_shared_floats": (
        1,
        64,
        """
    __shared__ char odd[3];
    __shared__ float s[256];
    if (threadIdx.x < 3) odd[threadIdx.x] = 1;
    reinterpret_cast<float4*>(s)[threadIdx.x] = make_float4(1, 2, 3, 4);
    __syncthreads();
    y[threadIdx.x] = s[255 - threadIdx.x] + odd[threadIdx.x % 3];
""",
    ),
    "grid_stride_with_atomics": (
        4,
        64,
        """
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    float v = 0;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < 4096; i += gridDim.x * 64) v += x[i];
    atomicAdd(&total, v);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(y, total);
""",
    ),
}
