"""CUDA kernels with one fault each: copies, volatile, atomics of a block, counters, halves, loops.

As in order_faults.py: the text behind `fix:` is what its line should be, and an error may name the
lines marked `fault`.
"""

HEADER = """
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
struct Cell { volatile int full; float value; };
"""

# name: (grid, block, body)
FAULTS = {
    # --- asynchronous copies
    "copied_for_another_warp": (
        1,
        64,
        """
    __shared__ float s[64];
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int t = threadIdx.x, first = t / 32 * 32;
    cg::memcpy_async(warp, s + first, x + first, 32 * sizeof(float));  // fault
    cg::wait(warp);
    // fix: __syncthreads();
    y[t] = s[63 - t];  // fault
""",
    ),
    "three_stages_refilled_too_early": (
        1,
        64,
        """
    __shared__ float s[3][64];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 2; k++) {
        __pipeline_memcpy_async(&s[k][t], x + k * 64 + t, 4);
        __pipeline_commit();
    }
    for (int k = 0; k < 8; k++) {
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += s[k % 3][63 - t];  // fault
        // fix: __syncthreads();
        int next = k + 3;  // fix: int next = k + 2;
        __pipeline_memcpy_async(&s[next % 3][t], x + next * 64 + t, 4);  // fault
        __pipeline_commit();
    }
    y[t] = sum;
""",
    ),
    "zeros_not_waited_for": (
        1,
        32,
        """
    __shared__ float4 s[32];
    int t = threadIdx.x;
    unsigned to = __cvta_generic_to_shared(&s[t]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"  // fault
                 :: "r"(to), "l"(x + 4 * t), "r"(t < 20 ? 16 : 0) : "memory");
    asm volatile("cp.async.commit_group;");
    // fix: asm volatile("cp.async.wait_group 0;");
    y[t] = s[t].x;  // fault
""",
    ),
    "source_of_a_copy_without_barrier": (
        1,
        64,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    y[t] = 2 * x[t];  // fault
    // fix: __syncthreads();
    __pipeline_memcpy_async(&s[t], y + 63 - t, 4);  // fault
    __pipeline_commit();
    __pipeline_wait_prior(0);
    x[t] = s[t];
""",
    ),
    # --- volatile
    "volatile_flag_in_shared": (
        1,
        64,
        """
    __shared__ float s[32];
    __shared__ volatile int flag;
    int t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        // fix: __threadfence_block();
        __syncwarp();
        if (t == 0) flag = 1;
    } else {
        while (flag == 0) {}
        __threadfence_block();
        y[t] = s[63 - t];  // fault
    }
""",
    ),
    "volatile_member_of_a_cell": (
        2,
        1,
        """
    auto* cell = reinterpret_cast<Cell*>(n);
    if (blockIdx.x == 0) {
        cell->value = x[7];  // fault
        // fix: __threadfence();
        cell->full = 1;
    } else {
        while (!cell->full) {}
        __threadfence();
        y[0] = cell->value;  // fault
    }
""",
    ),
    "unrolled_end_of_a_sum": (
        1,
        128,
        """
    __shared__ float sums[128];
    int t = threadIdx.x;
    sums[t] = x[t];
    __syncthreads();
    if (t < 64) sums[t] += sums[t + 64];
    __syncthreads();
    if (t < 32) {
        volatile float* s = sums;
        float v = s[t];
        for (int d = 32; d; d /= 2) {
            v += s[t + d];  // fault
            // fix: __syncwarp();
            s[t] = v;  // fault
            __syncwarp();
        }
        if (t == 0) y[0] = s[0];
    }
""",
    ),
    # --- atomics of a block
    "flag_of_a_block_for_all": (
        2,
        1,
        """
    if (blockIdx.x == 0) {
        y[0] = 5;  // fault
        __threadfence();
        atomicExch_block(n, 1);  // fault; fix: atomicExch(n, 1);
    } else {
        while (atomicAdd(n, 0) == 0) {}  // fault
        __threadfence();
        y[1] = y[0];  // fault
    }
""",
    ),
    "bits_of_a_block_for_all": (
        4,
        64,
        """
    int i = blockIdx.x * 64 + threadIdx.x;
    if (x[i] > 9)
        atomicOr_block(&n[i % 64 / 32], 1 << i % 32);  // fault; fix: atomicOr(&n[i % 64 / 32], 1);
""",
    ),
    "tickets_of_a_block_for_all": (
        4,
        32,
        """
    __shared__ int ticket;
    auto* next = reinterpret_cast<unsigned*>(n);
    if (threadIdx.x == 0)
        ticket = atomicInc_block(next, 99);  // fault; fix: ticket = atomicInc(next, 99);
    __syncthreads();
    y[ticket * 32 + threadIdx.x] = 1;  // fault
""",
    ),
    # --- a counter tells what is published
    "partials_of_warps_without_fence": (
        3,
        64,
        """
    __shared__ bool last;
    float v = x[threadIdx.x];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) y[blockIdx.x * 2 + threadIdx.x / 32] = v;  // fault
    __syncthreads();
    // fix: if (threadIdx.x == 0) __threadfence();
    if (threadIdx.x == 0) last = atomicAdd(n, 1) == 2;
    __syncthreads();
    __threadfence();
    if (last && threadIdx.x == 0) {
        auto* all = reinterpret_cast<float2*>(y);
        y[9] = all[0].x + all[1].y + all[2].x;  // fault
    }
""",
    ),
    "counts_down_without_fence": (
        4,
        1,
        """
    y[blockIdx.x] = x[blockIdx.x];  // fault
    if (blockIdx.x > 9)  // fix: {}
        __threadfence();
    if (atomicSub(n, 1) == -3) {
        __threadfence();
        y[8] = y[0] + y[1] + y[2] + y[3];  // fault
    }
""",
    ),
    "counted_before_it_is_written": (
        4,
        32,
        """
    __shared__ int before;
    __threadfence();
    // fix: y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
    // fix: __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) before = atomicAdd(n, 1);
    y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];  // fault; fix: {}
    __syncthreads();
    __threadfence();
    if (before == 3) x[512 + threadIdx.x] = y[threadIdx.x] + y[threadIdx.x + 64];  // fault
""",
    ),
    # --- halves at an odd end
    "half2_in_rows_of_33": (
        1,
        32,
        """
    auto* rows = reinterpret_cast<half*>(y);
    int pitch = 33;  // fix: int pitch = 34;
    auto* row = reinterpret_cast<half2*>(rows + threadIdx.x * pitch);
    row[3] = __float2half2_rn(1);  // fault
""",
    ),
    "half2_behind_an_odd_end": (
        1,
        17,
        """
    __shared__ __align__(4) half s[33];
    auto* pairs = reinterpret_cast<half2*>(s);
    int t = threadIdx.x;
    if (t < 11) s[3 * t] = s[3 * t + 1] = s[3 * t + 2] = __float2half(1);
    __syncthreads();
    half2 two = __float2half2_rn(0);
    if (t < 17)  // fix: if (t < 16)
        two = pairs[t];  // fault
    y[t] = __low2float(two);
""",
    ),
    # --- loops
    "counts_down_below_zero": (
        1,
        1,
        """
    for (int i = 9; i >= -1; i--)  // fix: for (int i = 9; i >= 0; i--)
        y[i] = x[i];  // fault
""",
    ),
    "barrier_in_a_loop_of_some": (
        1,
        64,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = t; i < 96; i += 64) {  // fix: for (int i = t; i < 128; i += 64) {
        s[t] = x[i];
        __syncthreads();  // fault
        sum += s[63 - t];
        __syncthreads();
    }
    s[t] = sum;
    __syncthreads();  // fault
    y[t] = s[63 - t];
""",
    ),
    "stride_of_one_block": (
        2,
        64,
        """
    int first = blockIdx.x * 64 + threadIdx.x;
    for (int i = first; i < 1000; i += 64)  // fix: for (int i = first; i < 1000; i += 128)
        y[i] += x[i];  // fault
""",
    ),
    "neighbour_of_the_step_before": (
        1,
        64,
        """
    int t = threadIdx.x;
    for (int k = 1; k < 4; k++) {
        y[k * 64 + t] = y[k * 64 - 64 + (t + 1) % 64] + x[t];  // fault
        // fix: __syncthreads();
    }
""",
    ),
}
