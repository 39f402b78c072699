"""CUDA kernels whose accesses a chain of barriers, flags and fences orders; a link is missing.

As in order_faults.py: the text behind `fix:` is what its line should be, and an error may name the
lines marked `fault`. Warp 0 mostly writes, the last one reads, those between hand the news on.
"""

HEADER = """
#include <cuda/barrier>
__device__ void bar_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
__device__ void bar_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
using Mbarrier = unsigned long long;
__device__ void init(Mbarrier& barrier, int arrivals) {
    unsigned at = __cvta_generic_to_shared(&barrier);
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(arrivals) : "memory");
}
__device__ void arrive(Mbarrier& barrier) {
    unsigned at = __cvta_generic_to_shared(&barrier);
    unsigned long long state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
}
__device__ void wait(Mbarrier& barrier, int parity) {
    unsigned at = __cvta_generic_to_shared(&barrier), done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
                     " selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at), "r"(parity) : "memory");
}
"""

# name: (grid, block, body)
FAULTS = {
    "named_barrier_then_mbarrier": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ Mbarrier full;
    int t = threadIdx.x;
    if (t == 0) init(full, 32);
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        bar_arrive(1, 64);
    } else if (t < 64) {
        // fix: bar_sync(1, 64);
        arrive(full);
    } else {
        wait(full, 0);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "mbarrier_then_named_barrier": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ Mbarrier full;
    int t = threadIdx.x;
    if (t == 0) init(full, 32);
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        arrive(full);
    } else if (t < 64) {
        // fix: wait(full, 0);
        bar_arrive(1, 64);
    } else {
        bar_sync(1, 64);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "three_named_barriers": (
        1,
        128,
        """
    __shared__ float s[32];
    int t = threadIdx.x, warp = t / 32;
    if (warp == 0) s[t] = x[t];  // fault
    if (warp != 1)  // fix: if (warp > 0)
        if (warp) bar_sync(warp, 64);
    if (warp < 3) bar_arrive(warp + 1, 64);
    if (warp == 3) y[t] = s[127 - t];  // fault
""",
    ),
    "arrives_before_it_writes": (
        1,
        96,
        """
    __shared__ float s[32];
    int t = threadIdx.x;
    if (t < 32) {
        // fix: s[t] = x[t];
        bar_arrive(1, 64);
        s[t] = x[t];  // fault; fix: {}
    } else if (t < 64) {
        bar_sync(1, 64);
        bar_arrive(2, 64);
    } else {
        bar_sync(2, 64);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "two_mbarriers": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ Mbarrier first, second;
    int t = threadIdx.x;
    if (t == 0) init(first, 32), init(second, 32);
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        arrive(first);
    } else if (t < 64) {
        wait(first, 0);
        arrive(second);
    } else {
        if (t < 64)  // fix: {}
        wait(second, 0);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "overwritten_before_it_is_read": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ Mbarrier empty;
    int t = threadIdx.x;
    if (t == 64) init(empty, 32);
    if (t >= 64) s[t - 64] = x[t];
    __syncthreads();
    if (t < 32) {
        y[t] = s[31 - t];  // fault
        arrive(empty);
    } else if (t < 64) {
        // fix: wait(empty, 0);
        bar_arrive(1, 64);
    } else {
        bar_sync(1, 64);
        s[t - 64] = 0;  // fault
    }
""",
    ),
    "flag_in_a_block_then_mbarrier": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ int flag;
    __shared__ Mbarrier full;
    int t = threadIdx.x;
    if (t == 0) init(full, 1), flag = 0;
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        __syncwarp();
        // fix: __threadfence_block();
        if (t == 0) atomicExch_block(&flag, 1);
    } else if (t == 32) {
        while (atomicAdd_block(&flag, 0) == 0) {}
        __threadfence_block();
        arrive(full);
    } else if (t >= 64) {
        wait(full, 0);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "lane_arrives_for_its_warp": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ Mbarrier full;
    int t = threadIdx.x;
    if (t == 0) init(full, 1);
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        bar_arrive(1, 64);
    } else if (t < 64) {
        bar_sync(1, 64);
        if (t == 32) arrive(full);
    } else {
        if (t == 64) wait(full, 0);
        // fix: __syncwarp();
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "lanes_write_and_one_arrives": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ Mbarrier full;
    int t = threadIdx.x;
    if (t == 0) init(full, 1);
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        // fix: __syncwarp();
        if (t == 0) arrive(full);
    } else if (t < 64) {
        wait(full, 0);
        bar_arrive(1, 64);
    } else {
        bar_sync(1, 64);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "class_barrier_then_named": (
        1,
        96,
        """
    __shared__ float s[32];
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    int t = threadIdx.x;
    if (t == 0) init(&full, 64);
    __syncthreads();
    if (t < 32) {
        s[t] = x[t];  // fault
        (void)full.arrive();
    } else if (t < 64) {
        (void)full.arrive();  // fix: full.arrive_and_wait();
        bar_arrive(1, 64);
    } else {
        bar_sync(1, 64);
        y[t] = s[95 - t];  // fault
    }
""",
    ),
    "tile_then_mbarrier": (
        1,
        128,
        """
    __shared__ float s[32];
    __shared__ Mbarrier full;
    auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    int t = threadIdx.x;
    if (t == 0) init(full, 32);
    __syncthreads();
    if (t < 64) {
        if (t < 32) s[t] = x[t];  // fault
        // fix: tile.sync();
        if (t >= 32) arrive(full);
    } else {
        wait(full, 0);
        if (t < 96) y[t] = s[95 - t];  // fault
    }
""",
    ),
    "ring_of_two_slots": (
        1,
        96,
        """
    __shared__ float s[2][32];
    __shared__ Mbarrier full[2], empty[2];
    int t = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; i++) init(full[i], 32), init(empty[i], 32);
    __syncthreads();
    for (int i = 0; i < 6; i++) {
        int slot = i % 2, lap = i / 2;
        if (warp == 0) {  // writes
            if (lap) wait(empty[slot], (lap - 1) % 2);
            s[slot][t] = x[i * 32 + t];  // fault
            bar_arrive(1 + slot, 64);
        } else if (warp == 1) {  // hands on
            bar_sync(1 + slot, 64);
            arrive(full[slot]);
            // fix: bar_sync(3 + slot, 64);
            arrive(empty[slot]);
        } else {  // reads
            wait(full[slot], lap % 2);
            y[i * 32 + t] = s[slot][31 - t];  // fault
            bar_arrive(3 + slot, 64);
        }
    }
""",
    ),
    "named_barrier_then_flag_of_a_block": (
        2,
        64,
        """
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t < 32) {
            y[t] = x[t];  // fault
            bar_arrive(1, 64);
        } else {
            // fix: bar_sync(1, 64);
            if (t == 32) {
                __threadfence();
                atomicExch(n, 1);
            }
        }
    } else if (t == 0) {
        while (atomicAdd(n, 0) == 0) {}
        __threadfence();
        y[99] = y[5];  // fault
    }
""",
    ),
    "old_fence_behind_a_named_barrier": (
        2,
        64,
        """
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t < 32) {
            y[t] = x[t];  // fault
            bar_arrive(1, 64);
        } else {
            y[t] = x[t];
            __threadfence();
            bar_sync(1, 64);
            // fix: __threadfence();
            if (t == 32) atomicExch(n, 1);
        }
    } else if (t == 0) {
        while (atomicAdd(n, 0) == 0) {}
        __threadfence();
        y[99] = y[5];  // fault
    }
""",
    ),
    "fence_of_a_block_behind_a_named_barrier": (
        2,
        64,
        """
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t < 32) {
            y[t] = x[t];  // fault
            bar_arrive(1, 64);
        } else {
            bar_sync(1, 64);
            __threadfence_block();  // fix: __threadfence();
            if (t == 32) atomicExch(n, 1);
        }
    } else if (t == 0) {
        while (atomicAdd(n, 0) == 0) {}
        __threadfence();
        y[99] = y[5];  // fault
    }
""",
    ),
    "named_barriers_in_both_blocks": (
        2,
        64,
        """
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t >= 32) {
            y[t] = x[t];  // fault
            bar_arrive(1, 64);
        } else {
            bar_sync(1, 64);
            if (t == 0) {
                __threadfence();
                atomicExch(n, 1);
            }
        }
    } else if (t < 32) {
        if (t == 0) {
            while (atomicAdd(n, 0) == 0) {}
            __threadfence();
        }
        __syncwarp();
        bar_arrive(1, 64);
    } else {
        // fix: bar_sync(1, 64);
        while (atomicAdd(n, 0) == 0) {}
        y[t + 64] = y[t];  // fault
    }
""",
    ),
    "three_blocks_and_an_mbarrier": (
        3,
        64,
        """
    __shared__ Mbarrier seen;
    int t = threadIdx.x;
    if (t == 0) init(seen, 32);
    __syncthreads();
    if (blockIdx.x == 0) {
        y[t] = x[t];  // fault
        __syncthreads();
        if (t == 0) {
            __threadfence();
            atomicExch(n, 1);
        }
    } else if (blockIdx.x == 1) {
        if (t < 32) {
            while (atomicAdd(n, 0) == 0) {}
            __threadfence();
            arrive(seen);
        } else {
            // fix: wait(seen, 0);
            __threadfence();
            if (t == 32) atomicExch(n + 1, 1);
        }
    } else if (t == 0) {
        while (atomicAdd(n + 1, 0) == 0) {}
        __threadfence();
        y[99] = y[5];  // fault
    }
""",
    ),
    "syncthreads_between_blocks": (
        2,
        96,
        """
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t < 32) y[t] = x[t];  // fault
        if (t < 64) bar_sync(1, 64);
        if (t == 40) {
            // fix: __threadfence();
            atomicExch(n, 1);
        }
    } else {
        if (t == 0) while (atomicAdd(n, 0) == 0) {}
        __syncthreads();
        if (t < 64) bar_arrive(1, 96);
        else {
            bar_sync(1, 96);
            y[t] = y[95 - t];  // fault
        }
    }
""",
    ),
}
