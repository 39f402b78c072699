// What the lanes of a warp and the threads of a block do together.
#pragma once
#include "../async_copy.h"
#include "../block_barrier.h"
#include "../sync.h"
#include "registers.h"

namespace cuda_on_cpu::ptx {

// shfl.sync. limits: bits 0 to 4 say how far a lane may look, bits 8 to 12 which lanes are a part.
// `inside` is false where a lane keeps its own value because the source is no lane of its part.
enum class Shuffle { up, down, bfly, idx };
inline B32 shfl(Shuffle mode, B32 value, B32 b, B32 limits, B32 mask, bool& inside, int line) {
    int lane = int(cuda_on_cpu::lane()), part = int(limits >> 8 & 31), clamp = int(limits & 31);
    int last = (lane & part) | (clamp & ~part & 31), first = lane & part, by = int(b & 31);
    int source = lane;
    switch (mode) {
        case Shuffle::up: source = lane - by; inside = source >= last; break;
        case Shuffle::down: source = lane + by; inside = source <= last; break;
        case Shuffle::bfly: source = lane ^ by; inside = source <= last; break;
        case Shuffle::idx: source = first | (by & ~part & 31); inside = source <= last; break;
    }
    return shuffle(mask, value, inside ? source : lane, line);
}

inline void bar_sync(B32 id, B32 count, int line) {
    if (id == 0 && count == blockDim.x * blockDim.y * blockDim.z)
        __syncthreads(line);
    else
        meet_at_named_barrier(id, count, true, line);
}
inline void bar_sync(B32 id, int line) {
    bar_sync(id, blockDim.x * blockDim.y * blockDim.z, line);
}
inline void bar_arrive(B32 id, B32 count, int line) {
    meet_at_named_barrier(id, count, false, line);
}

// mbarrier: a barrier object in shared memory. The state is the phase that a thread arrived in.
inline BlockBarrier& mbarrier(char* at) { return *reinterpret_cast<BlockBarrier*>(at); }
inline void mbarrier_init(char* at, B32 count) { init(mbarrier(at), count); }
inline B64 mbarrier_arrive(char* at, B32 count, int line) { return arrive(mbarrier(at), count, line); }
// The thread's copies until now are there when the phase ends: as one arrival more than the barrier
// expects, or as one of these.
inline void mbarrier_bind_copies(char* at) { bind_copies(&mbarrier(at)); }
inline void mbarrier_arrive_with_copies(char* at, int line) {
    mbarrier_bind_copies(at);
    arrive(mbarrier(at), 1, line);
}
inline bool mbarrier_test_wait(char* at, B64 state) { return is_over(mbarrier(at), B32(state)); }
inline bool mbarrier_test_wait_parity(char* at, B32 parity) {
    return is_over(mbarrier(at), phase_of(mbarrier(at), parity & 1));
}

}  // namespace cuda_on_cpu::ptx
