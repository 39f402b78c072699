// __syncthreads and its relatives, and the barrier of a whole grid.
#include "checker.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

int Multiprocessor::wait_at_barrier(Barrier kind, int predicate, int line) {
    if (kind == Barrier::grid && !grid_->launch.cooperative)
        fail_at(line, {}, "grid.sync() needs a launch by cudaLaunchCooperativeKernel.");
    unsigned thread = position.thread;
    if (thread && !at_barrier_) leave_order();  // the threads before it have returned
    if (in_order_) arrived_ = thread;
    if (arrived_ == 0) {
        barrier_kind_ = kind;
        barrier_line_ = line;
        votes_ = 0;
    } else if (kind != barrier_kind_ || line != barrier_line_) {
        report_other_barrier(line);
    }
    votes_ += predicate != 0;
    thread_[thread].line = line % BARRIER_IN_LINE;
    arrived_++;
    unsigned next = thread + 1;
    if (in_order_ && thread == 0) wait_in_order();
    if (is_barrier_complete()) {
        open_barrier();
        next = 0;
    }
    in_order_ ? go_to(next, fiber_[thread]) : switch_away(fiber_[thread]);
    return barrier_result_;  // it stays until the whole block has arrived once more
}

// The first thread of a block stops at a barrier: those after it may come there in order.
void Multiprocessor::wait_in_order() {
    at_barrier_ = true;
    position.plain_end = 0;
    position.where = barrier_kind_ == Barrier::block ? barrier_line_ : 0;
    for (unsigned thread = 1; thread < threads_ && !all_began_; thread++) prepare(thread);
}

void Multiprocessor::report_other_barrier(int line) {
    Quiet quiet;
    fail("two different barriers: thread " + index_text(position.thread) + " is at the one in line " +
         std::to_string(line % BARRIER_IN_LINE) + " while " + std::to_string(arrived_) +
         " others wait at " + (line % BARRIER_IN_LINE == barrier_line() ? "another" : "the one") +
         " in line " + std::to_string(barrier_line()) +
         ". Every thread of the block has to reach the same barrier.");
}

// Threads that have left the kernel count as arrived, as on GPUs since compute capability 7.0.
void Multiprocessor::open_barrier() {
    turns_ = 0;
    if (grid_->checks && returned_) remark_left_threads();
    if (barrier_kind_ == Barrier::grid) wait_for_the_grid();
    switch (barrier_kind_) {
        case Barrier::all: barrier_result_ = votes_ == int(arrived_); break;
        case Barrier::any: barrier_result_ = votes_ > 0; break;
        default: barrier_result_ = votes_;
    }
    for (unsigned w = 0; w < warps_; w++) warp_[w].ready = warp_[w].lanes & ~warp_[w].returned;
    if (!returned_) in_order_ = all_began_ = true;
    at_barrier_ = false;
    position.where = 0;
    arrived_ = 0;
    barriers_opened_++;
    if (grid_->checks) checker_->barrier();
}

void Multiprocessor::remark_left_threads() const {
    if (!grid_->checks->remark_once(0, unsigned(barrier_line_))) return;
    Quiet quiet;
    unsigned waits = NOBODY, left = NOBODY;  // the first of each
    for (unsigned t = threads_; t--;)
        (warp_[t / WARP_SIZE].returned >> t % WARP_SIZE & 1 ? left : waits) = t;
    remark(place() + ", line " + std::to_string(barrier_line()) + ": " +
           threads_text(arrived_, waits) + (arrived_ > 1 ? " wait" : " waits") + " at " +
           barrier_name() + ", " + threads_text(returned_, left) +
           (returned_ > 1 ? " have" : " has") +
           " left the kernel. Every thread of the block has to reach the same barrier; GPUs since "
           "compute capability 7.0 let it pass, older ones wait for ever.");
}

// The blocks of a cooperative launch have an operating-system thread each, so one may stop here.
void Multiprocessor::wait_for_the_grid() {
    in_block_ = false;  // the watchdog need not mind how long this takes
    std::unique_lock<std::mutex> lock(grid_->mutex);
    std::uint64_t passed = grid_->barriers_passed;
    if (++grid_->blocks_at_barrier == grid_->blocks) {
        grid_->blocks_at_barrier = 0;
        grid_->barriers_passed++;
        if (grid_->checks) grid_->checks->forget_accesses();  // all other blocks wait here
        grid_->grid_barrier_opens.notify_all();
    }
    for (;;) {
        if (grid_->barriers_passed != passed) {
            in_block_ = true;
            return;
        }
        if (grid_->stopped) break;
        if (grid_->blocks_returned) {
            std::uint64_t returned = grid_->blocks_returned;
            lock.unlock();
            fail("the block waits at grid.sync() in line " + std::to_string(barrier_line()) + ", " +
                 std::to_string(returned) + " of " + std::to_string(grid_->blocks) +
                 " blocks have left the kernel. Every block has to reach grid.sync().");
        }
        grid_->grid_barrier_opens.wait(lock);
    }
    lock.unlock();
    abandon();
}

std::string Multiprocessor::barrier_name() const {
    switch (barrier_kind_) {
        case Barrier::count: return "__syncthreads_count";
        case Barrier::all: return "__syncthreads_and";
        case Barrier::any: return "__syncthreads_or";
        case Barrier::grid: return "grid.sync()";
        default: return "__syncthreads";
    }
}

}  // namespace cuda_on_cpu
