"""CUDA kernels with one fault each in their asynchronous copies, and how it is mended.

As in order_faults.py, but for what the error has to say: of which element, and of which threads.
"""

HEADER = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
using BlockBarrier = cuda::barrier<cuda::thread_scope_block>;
__device__ unsigned shared_address(const void* at) { return __cvta_generic_to_shared(at); }
#define copy4(to, from) \\
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(shared_address(to)), "l"(from))
"""

# name: (grid, block, what is said, body)
FAULTS = {
    # --- nobody has waited
    "own_element_not_waited_for": (
        1,
        64,
        r"thread \(0,0,0\), line {1}: reads s\[0\], to which .* thread \(0,0,0\) .* line {0}:",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], x + t, 4);  // fault
    __pipeline_commit();
    // fix: __pipeline_wait_prior(0);
    y[t] = s[t];  // fault
""",
    ),
    "wait_before_the_copy": (
        1,
        64,
        r"thread \(0,0,0\), line {1}: reads s\[63\], to which .* thread \(63,0,0\) ",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_wait_prior(0);
    __pipeline_memcpy_async(&s[t], x + t, 4);  // fault
    __pipeline_commit();
    // fix: __pipeline_wait_prior(0);
    __syncthreads();
    y[t] = s[63 - t];  // fault
""",
    ),
    "copies_not_committed": (
        1,
        64,
        r"reads s\[0\], to which .* copy of thread \(0,0,0\) is still under way",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], x + t, 4);  // fault
    // fix: __pipeline_commit();
    __pipeline_wait_prior(0);
    y[t] = s[t];  // fault
""",
    ),
    "waits_for_one_too_few": (
        1,
        32,
        r"reads s\[1\]\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[2][32];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[0][t], x + t, 4);
    __pipeline_commit();
    __pipeline_memcpy_async(&s[1][t], x + 32 + t, 4);  // fault
    __pipeline_commit();
    __pipeline_wait_prior(1);  // fix: __pipeline_wait_prior(0);
    y[t] = s[0][t] + s[1][t];  // fault
""",
    ),
    "last_turn_of_a_ring": (
        1,
        64,
        r"reads s\[1\]\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0;
    copy4(&s[0][t], x + t);
    asm volatile("cp.async.commit_group;");
    for (int k = 0; k < 4; k++) {
        if (k < 3) {
            copy4(&s[(k + 1) % 2][t], x + (k + 1) * 64 + t);  // fault
            asm volatile("cp.async.commit_group;");
        }
        if (k == 3) {}  // fix: if (k == 3) asm volatile("cp.async.wait_all;"); else
        asm volatile("cp.async.wait_group 1;");
        sum += s[k % 2][t];  // fault
    }
    y[t] = sum;
""",
    ),
    "added_to_under_a_copy": (
        1,
        64,
        r"thread \(0,0,0\), line {1}: writes s\[0\], to which .* thread \(0,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    copy4(&s[t], x + t);  // fault
    // fix: asm volatile("cp.async.wait_all;");
    s[t] = t;  // fault
    asm volatile("cp.async.wait_all;");
    y[t] = s[t];
""",
    ),
    "atomic_under_a_copy": (
        1,
        32,
        r"atomically changes s\[0\], to which .* thread \(0,0,0\)",
        """
    __shared__ int s[32];
    int t = threadIdx.x;
    copy4(&s[t], n + t);  // fault
    asm volatile("cp.async.commit_group;");
    // fix: asm volatile("cp.async.wait_group 0;");
    atomicAdd(&s[t], 1);  // fault
    n[t] = s[t];
""",
    ),
    "vector_of_four": (
        1,
        32,
        r"reads s\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float4 s[32];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], reinterpret_cast<const float4*>(x) + t, 16);  // fault
    __pipeline_commit();
    // fix: __pipeline_wait_prior(0);
    y[t] = s[t].w;  // fault
""",
    ),
    "two_copies_to_one_place": (
        1,
        32,
        r"writes s\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[32];
    int t = threadIdx.x;
    copy4(&s[t], x + t);  // fault
    // fix: asm volatile("cp.async.wait_all;");
    copy4(&s[t], x + 32 + t);  // fault
    asm volatile("cp.async.wait_all;");
    y[t] = s[t];
""",
    ),
    "group_does_not_wait": (
        1,
        64,
        r"reads s\[[0-9]+\], to which .* copy of thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, x, sizeof s);  // fault
    block.sync();  // fix: cg::wait(block);
    y[threadIdx.x] = s[63 - threadIdx.x];  // fault
""",
    ),
    "group_waits_for_the_first": (
        1,
        32,
        r"reads s\[32\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, x, 128);
    cg::memcpy_async(block, s + 32, x + 32, 128);  // fault
    cg::wait_prior<1>(block);  // fix: cg::wait(block);
    y[threadIdx.x] = s[threadIdx.x] + s[32 + threadIdx.x];  // fault
""",
    ),
    "pipeline_without_consumer_wait": (
        1,
        64,
        r"thread \(0,0,0\), line {1}: reads s\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&s[t], x + t, sizeof(float), pipe);  // fault
    pipe.producer_commit();
    // fix: pipe.consumer_wait();
    y[t] = s[t];  // fault
    pipe.consumer_release();
""",
    ),
    "pipeline_waits_for_the_stage_before": (
        1,
        64,
        r"reads s\[1\]\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[2][64];
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    for (int k = 0; k < 2; k++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[k][t], x + 64 * k + t, sizeof(float), pipe);  // fault
        pipe.producer_commit();
    }
    constexpr int LATER = 1;  // fix: constexpr int LATER = 0;
    cuda::pipeline_consumer_wait_prior<LATER>(pipe);
    y[t] = s[1][t];  // fault
""",
    ),
    "shared_pipeline_without_wait": (
        1,
        64,
        r"reads s\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state);
    pipe.producer_acquire();
    cuda::memcpy_async(&s[t], x + t, sizeof(float), pipe);  // fault
    pipe.producer_commit();
    // fix: pipe.consumer_wait();
    y[t] = s[t];  // fault
    pipe.consumer_release();
""",
    ),
    "arrives_and_does_not_wait": (
        1,
        64,
        r"thread \(0,0,0\), line {1}: reads s\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[64];
    __shared__ BlockBarrier filled;
    int t = threadIdx.x;
    if (t == 0) init(&filled, 64);
    __syncthreads();
    cuda::memcpy_async(&s[t], x + t, sizeof(float), filled);  // fault
    auto token = filled.arrive();
    // fix: filled.wait(std::move(token)), token = filled.arrive();
    y[t] = s[t];  // fault
    filled.wait(std::move(token));
""",
    ),
    "bound_to_a_barrier_in_ptx": (
        1,
        64,
        r"thread \(0,0,0\), line {1}: reads s\[0\], to which .* copy of thread \(0,0,0\)",
        """
    __shared__ float s[64];
    __shared__ unsigned long long filled;
    int t = threadIdx.x, done = 0;
    unsigned at = shared_address(&filled);
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(at));
    __syncthreads();
    copy4(&s[t], x + t);  // fault
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at));
    while (!done) {
        done = 1;
        if (false)  // fix: {}
        asm volatile("{.reg .pred p;\\n mbarrier.test_wait.parity.shared.b64 p, [%1], 0;\\n"
                     " selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(at));
    }
    y[t] = s[t];  // fault
""",
    ),
    # --- what is copied is overwritten under the copy
    "copied_source_changed": (
        1,
        64,
        r"thread \(0,0,0\), line {0}: copies x\[0\] .*, but thread \(0,0,0\) has .* line {1} ",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    copy4(&s[t], x + t);  // fault
    asm volatile("cp.async.commit_group;");
    // fix: asm volatile("cp.async.wait_group 0;");
    x[t] = -1;  // fault
    asm volatile("cp.async.wait_group 0;");
    y[t] = s[t];
""",
    ),
    "source_changed_by_another_thread": (
        1,
        64,
        r"thread \(32,0,0\), line {0}: copies x\[0\] .*, but thread \(0,0,0\) has .* line {1} ",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= 32) __pipeline_memcpy_async(&s[t], x + t - 32, 4);  // fault
    __pipeline_commit();
    // fix: __pipeline_wait_prior(0);
    __syncthreads();
    if (t < 32) x[t] = -1;  // fault
    __pipeline_wait_prior(0);
    if (t >= 32) y[t] = s[t];
""",
    ),
    "source_changed_after_a_wait_of_others": (
        1,
        64,
        r"thread \(32,0,0\), line {1}: writes x\[0\], read by thread \(0,0,0\) in line {0}, "
        r"with no barrier between. It is an asynchronous copy, ",
        """
    __shared__ float s[32];
    int t = threadIdx.x;
    if (t < 32) copy4(&s[t], x + t);  // fault
    // fix: asm volatile("cp.async.wait_all;");
    __syncthreads();
    if (t >= 32) x[t - 32] = -1;  // fault
    asm volatile("cp.async.wait_all;");
    if (t < 32) y[t] = s[t];
""",
    ),
    "source_changed_in_a_ring": (
        1,
        32,
        r"copies x\[64\] .*, but thread \(0,0,0\) has changed it in line {1} ",
        """
    __shared__ float s[2][32];
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    for (int k = 0; k < 4; k++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[k % 2][t], x + 32 * k + t, sizeof(float), pipe);  // fault
        pipe.producer_commit();
        if (k == 0) continue;
        cuda::pipeline_consumer_wait_prior<1>(pipe);
        int done = k;  // fix: int done = k - 1;
        if (k > 1) x[32 * done + t] = 0;  // fault
        y[t] += s[(k + 1) % 2][t];
        pipe.consumer_release();
    }
    pipe.consumer_wait();
""",
    ),
    "source_changed_before_the_barrier_opens": (
        1,
        64,
        r"thread \(0,0,0\), line {0}: copies x\[0\] .*, but thread \(0,0,0\) has .* line {1} ",
        """
    __shared__ float s[64];
    __shared__ BlockBarrier filled;
    int t = threadIdx.x;
    if (t == 0) init(&filled, 64);
    __syncthreads();
    cuda::memcpy_async(&s[t], x + t, sizeof(float), filled);  // fault
    auto token = filled.arrive();
    // fix: filled.wait(std::move(token)), token = filled.arrive();
    x[t] = -1;  // fault
    filled.wait(std::move(token));
    y[t] = s[t];
""",
    ),
    # --- who waited has not told the others
    "waited_without_a_barrier": (
        1,
        64,
        r"(reads|writes) s\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    copy4(&s[t], x + t);  // fault
    asm volatile("cp.async.wait_all;");
    // fix: __syncthreads();
    y[t] = s[63 - t];  // fault
""",
    ),
    "barrier_before_the_wait": (
        1,
        64,
        r"(reads|writes) s\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    copy4(&s[t], x + t);  // fault
    __syncthreads();
    asm volatile("cp.async.wait_all;");
    // fix: __syncthreads();
    y[t] = s[63 - t];  // fault
""",
    ),
    "barrier_before_the_consumer_wait": (
        1,
        64,
        r"(reads|writes) s\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&s[t], x + t, sizeof(float), pipe);  // fault
    pipe.producer_commit();
    __syncthreads();
    pipe.consumer_wait();
    // fix: __syncthreads();
    y[t] = s[t ^ 33];  // fault
""",
    ),
    "syncwarp_after_the_wait": (
        1,
        64,
        r"(reads|writes) s\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    copy4(&s[t], x + t);  // fault
    asm volatile("cp.async.wait_all;");
    __syncwarp();  // fix: __syncthreads();
    y[t] = s[t ^ 32];  // fault
""",
    ),
    # --- filled again while it is read
    "ring_refilled_while_read": (
        1,
        64,
        r"(reads|writes) s\[\d\]\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0;
    copy4(&s[0][t], x + t);
    asm volatile("cp.async.commit_group;");
    for (int k = 0; k < 4; k++) {
        copy4(&s[(k + 1) % 2][t], x + (k + 1) * 64 + t);  // fault
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        sum += s[k % 2][63 - t];  // fault
        // fix: __syncthreads();
    }
    asm volatile("cp.async.wait_all;");
    y[t] = sum;
""",
    ),
    "one_tile_refilled_while_read": (
        1,
        64,
        r"(reads|writes) s\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    auto block = cg::this_thread_block();
    for (int k = 0; k < 3; k++) {
        cg::memcpy_async(block, s, x + 64 * k, sizeof s);  // fault
        cg::wait(block);
        sum += s[63 - t];  // fault
        // fix: block.sync();
    }
    y[t] = sum;
""",
    ),
    "released_before_it_is_read": (
        1,
        64,
        r"(reads|writes) s\[\d+\], (to which .* of|written by|read by) thread \(\d+,0,0\)",
        """
    __shared__ float s[64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state);
    for (int k = 0; k < 3; k++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[t], x + 64 * k + t, sizeof(float), pipe);  // fault
        pipe.producer_commit();
        pipe.consumer_wait();
        if (k % 2 < 2) pipe.consumer_release();  // fix: float mine = s[63 - t];
        float mine = s[63 - t];  // fault; fix: pipe.consumer_release();
        y[t] += mine;
    }
""",
    ),
}

# Right, though they look odd: name: (grid, block, body)
RIGHT = {
    "copies_never_used": (
        2,
        64,
        """
    __shared__ float s[64];
    copy4(&s[threadIdx.x], x + threadIdx.x);
""",
    ),
    "source_given_the_value_it_has": (
        1,
        64,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    copy4(&s[t], x + t);
    x[t] = t;
    asm volatile("cp.async.wait_all;");
    y[t] = s[t];
""",
    ),
    "changed_in_place_beside_copies": (
        4,
        32,
        """
    __shared__ float s[2][32];
    int t = threadIdx.x;
    x += 128 * blockIdx.x;
    copy4(&s[0][t], x + t);
    asm volatile("cp.async.commit_group;");
    for (int k = 0; k < 4; k++) {
        if (k < 3) copy4(&s[(k + 1) % 2][t], x + 32 * (k + 1) + t);
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;");
        x[32 * k + t] = 2 * s[k % 2][t] + 1;
    }
""",
    ),
    "bytes_copied_one_by_one": (
        1,
        32,
        """
    __shared__ float s[33];
    auto block = cg::this_thread_block();
    auto* from = reinterpret_cast<const char*>(x) + 1;
    cg::memcpy_async(block, reinterpret_cast<char*>(s), from, 125);
    cg::wait(block);
    y[threadIdx.x] = reinterpret_cast<char*>(s)[124 - threadIdx.x];
""",
    ),
    "wait_then_read_own_then_barrier": (
        1,
        64,
        """
    __shared__ float s[64];
    int t = threadIdx.x;
    copy4(&s[t], x + t);
    asm volatile("cp.async.wait_all;");
    float own = s[t];
    __syncthreads();
    y[t] = own + s[63 - t];
""",
    ),
    "producers_and_consumers": (
        1,
        64,
        """
    __shared__ float s[2][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    int t = threadIdx.x;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state, 32);
    for (int k = 0; k < 6; k++) {
        if (t < 32) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[k % 2][t], x + 32 * k + t, sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            y[t] += s[k % 2][63 - t];
            pipe.consumer_release();
        }
    }
""",
    ),
}
