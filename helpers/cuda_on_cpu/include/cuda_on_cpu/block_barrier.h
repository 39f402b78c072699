// A barrier that any number of a block's threads meet at, in the eight bytes that PTX's mbarrier
// has. cuda::barrier, bar.sync with a number and large tiles of cooperative groups are made of it.
#pragma once
#include "runtime.h"

namespace cuda_on_cpu {

struct BlockBarrier {
    std::uint32_t phase = 0;     // how often it has opened
    std::uint16_t expected = 0;  // threads, for the next phase; 0: nobody has initialised it
    std::uint16_t pending = 0;   // that have to come in this one
};
constexpr unsigned NAMED_BARRIERS = 16;

CUDA_ON_CPU_API void init(BlockBarrier&, unsigned expected);
// Returns the phase that the thread has arrived in.
CUDA_ON_CPU_API std::uint32_t arrive(BlockBarrier&, unsigned count, int line);
CUDA_ON_CPU_API void arrive_and_drop(BlockBarrier&, int line);
// Until that phase is over. name: what the program calls the barrier, for errors.
CUDA_ON_CPU_API void wait(BlockBarrier&, std::uint32_t phase, const char* name, int line);
CUDA_ON_CPU_API bool is_over(BlockBarrier&, std::uint32_t phase);  // and lets others run if not
// The latest phase of this parity, odd or even.
CUDA_ON_CPU_API std::uint32_t phase_of(const BlockBarrier&, bool odd);

// bar.sync id, count and bar.arrive id, count.
CUDA_ON_CPU_API void meet_at_named_barrier(unsigned id, unsigned count, bool waits, int line);
// Tiles of cooperative groups with more threads than a warp; first: the tile's first thread / 64.
CUDA_ON_CPU_API void meet_with_tile(unsigned first, unsigned threads, int line);

}  // namespace cuda_on_cpu
