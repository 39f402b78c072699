// Barriers for some threads of a block: a thread that has to wait is parked until the last one
// that the barrier expects has arrived.
#include "checker.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

void Multiprocessor::park(const void* at, const char* name, int line) {
    leave_order();
    unsigned thread = position.thread;
    Thread& self = thread_[thread];
    self.line = line;
    self.request.value = std::uint64_t(at);
    self.request.result = std::uint64_t(name);
    warp_[thread / WARP_SIZE].parked |= 1u << thread % WARP_SIZE;
    switch_away(fiber_[thread]);
}

void Multiprocessor::wake(const void* at) {
    if (in_order_) return;  // nobody is parked
    for (unsigned w = 0; w < warps_; w++) {
        for (std::uint32_t rest = warp_[w].parked; rest; rest &= rest - 1) {
            unsigned lane = __builtin_ctz(rest);
            if (thread_[w * WARP_SIZE + lane].request.value != std::uint64_t(at)) continue;
            warp_[w].parked &= ~(1u << lane);
            warp_[w].ready |= 1u << lane;
        }
    }
}

static void open(BlockBarrier& barrier) {
    barrier.phase++;
    barrier.pending = barrier.expected;
    Multiprocessor& here = in_kernel("a barrier");
    if (here.grid().checks) here.checker()->open(&barrier);
    here.copies().deliver_bound(&barrier);
    here.wake(&barrier);
}

void init(BlockBarrier& barrier, unsigned expected) {
    barrier.expected = barrier.pending = std::uint16_t(expected);
    barrier.phase = 0;
}

std::uint32_t arrive(BlockBarrier& barrier, unsigned count, int line) {
    Multiprocessor& here = in_kernel("a barrier");
    if (!barrier.expected)
        here.fail_at(line, {}, "a barrier is used that no thread has initialised (or not yet: "
                     "__syncthreads() is needed after init).");
    if (count > barrier.pending)
        here.fail_at(line, {}, "more threads arrive at a barrier than the " +
                     std::to_string(barrier.expected) + " that it expects.");
    if (here.grid().checks) here.checker()->arrive(&barrier);
    std::uint32_t phase = barrier.phase;
    barrier.pending = std::uint16_t(barrier.pending - count);
    if (!barrier.pending) open(barrier);
    return phase;
}

void arrive_and_drop(BlockBarrier& barrier, int line) {
    barrier.expected--;
    arrive(barrier, 1, line);
}

std::uint32_t phase_of(const BlockBarrier& barrier, bool odd) {
    return (barrier.phase & 1) == odd ? barrier.phase : barrier.phase - 1;
}

bool is_over(BlockBarrier& barrier, std::uint32_t phase) {
    Multiprocessor& here = in_kernel("a barrier");
    if (barrier.phase == phase) here.yield();
    if (barrier.phase == phase) return false;
    if (here.grid().checks) here.checker()->pass(&barrier);
    return true;
}

void wait(BlockBarrier& barrier, std::uint32_t phase, const char* name, int line) {
    Multiprocessor& here = in_kernel("a barrier");
    while (barrier.phase == phase) here.park(&barrier, name, line);
    if (here.grid().checks) here.checker()->pass(&barrier);
}

// A barrier that the threads which come make.
static void meet(BlockBarrier& barrier, unsigned count, bool waits, const char* name, int line) {
    if (barrier.pending == barrier.expected)
        barrier.expected = barrier.pending = std::uint16_t(count);
    std::uint32_t phase = arrive(barrier, 1, line);
    if (waits) wait(barrier, phase, name, line);
}

void meet_at_named_barrier(unsigned id, unsigned count, bool waits, int line) {
    Multiprocessor& here = in_kernel("a barrier");
    if (id >= NAMED_BARRIERS || !count || count % WARP_SIZE)
        here.fail_at(line, {}, "bar.sync " + std::to_string(id) + ", " + std::to_string(count) +
                     ": there are barriers 0 to 15, and whole warps of threads meet at them.");
    meet(here.named_barrier(id), count, waits, "bar.sync", line);
}

void meet_with_tile(unsigned first, unsigned threads, int line) {
    BlockBarrier& barrier = in_kernel("a tile").tile_barrier(first);
    meet(barrier, threads, true, "a tile's sync()", line);
}

}  // namespace cuda_on_cpu
