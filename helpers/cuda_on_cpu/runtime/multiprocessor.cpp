#include "multiprocessor.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <tuple>

#include "checker.h"
#include "faults.h"
#include "memory.h"

// The built-in variables of the CUDA string that runs on this operating-system thread.
CUDA_ON_CPU_BUILT_IN uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

CUDA_ON_CPU_BUILT_IN Position position;

// After so many atomics without a barrier, a thread may well be spinning until another one, that
// has not run yet, sets a flag.
constexpr unsigned PATIENCE = 1 << 16;
// After so many turns of its threads, and one for each, a block may well be waiting for another.
constexpr unsigned TURNS = 8;

static CUDA_ON_CPU_THREAD_LOCAL Multiprocessor* running_here = nullptr;

Multiprocessor& Multiprocessor::mine() {
    static CUDA_ON_CPU_THREAD_LOCAL Multiprocessor* of_this_thread = nullptr;
    if (!of_this_thread) {
        static thread_local std::unique_ptr<Multiprocessor> owner;  // kept for the next launch
        owner.reset(new Multiprocessor);
        of_this_thread = owner.get();
    }
    return *of_this_thread;
}

Multiprocessor* Multiprocessor::running() { return running_here; }

std::string text(uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

std::string text(const Launch& launch) {
    return std::string(launch.kernel) + " (launched at line " + std::to_string(launch.line) + ")";
}

uint3 Grid::block_index(std::uint64_t block) const {
    std::uint64_t rows = block / launch.grid.x;
    return {unsigned(block % launch.grid.x), unsigned(rows % launch.grid.y),
            unsigned(rows / launch.grid.y)};
}

std::pair<std::uint64_t, std::uint64_t> Grid::take(std::uint64_t chunk) {
    std::uint64_t first = std::min(blocks, next_block.fetch_add(chunk));
    if (first < blocks) return {first, std::min(first + chunk, blocks)};
    std::lock_guard<std::mutex> lock(mutex);
    if (given_back.empty()) return {};
    auto& [next, end] = given_back.back();
    first = next++;
    if (next == end) given_back.pop_back();
    return {first, first + 1};
}

void Grid::stop(const Fault& new_fault) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!stopped) fault = new_fault;
    stopped = true;
    grid_barrier_opens.notify_all();
}

std::vector<Multiprocessor*> Grid::multiprocessors() {
    std::lock_guard<std::mutex> lock(mutex);
    return working;
}

// ---------------------------------------------------------------- a block, from start to end

Multiprocessor::Multiprocessor() : os_thread_(pthread_self()), position_(&position) {
    prepare_fault_stack();
}

Multiprocessor::~Multiprocessor() { release(shared_); }

// The caller may have left the upper halves of the vector registers in use, as PyTorch does. Each
// step from the kernel's AVX to this library's SSE and back then takes tens of nanoseconds.
static void leave_avx() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroupper");
#endif
}

void Multiprocessor::run_blocks(Grid& grid, std::uint64_t chunk, std::uint64_t chunks) {
    grid_ = &grid;
    {
        std::lock_guard<std::mutex> lock(grid.mutex);
        if (std::find(grid.working.begin(), grid.working.end(), this) == grid.working.end())
            grid.working.push_back(this);
    }
    const Launch& launch = grid.launch;
    gridDim = launch.grid;
    blockDim = launch.block;
    threads_ = launch.block.x * launch.block.y * launch.block.z;
    warps_ = (threads_ + WARP_SIZE - 1) / WARP_SIZE;
    if (shared_bytes_ != launch.shared_bytes) {
        release(shared_);
        shared_bytes_ = launch.shared_bytes;
        shared_ = allocate(shared_bytes_, "dynamic shared memory");
    }
    fill_unwritten(shared_, shared_bytes_);
    position.dynamic_shared = shared_;
    position.arguments = launch.arguments;
#if defined(CUDA_ON_CPU_STOPS_IN_KERNEL)
    position.stopped = fiber_[0].stopped();
    position.order_end = threads_;
#endif
    if (shape_.x != blockDim.x || shape_.y != blockDim.y || shape_.z != blockDim.z) {
        shape_ = launch.block;
        uint3 index{};
        for (unsigned thread = 0; thread < threads_; thread++, step(index))
            thread_[thread].index = index;
    }
    leave_avx();
    if (grid.checks) {
        if (!checker_) checker_.reset(new Checker(*this));
        checker_->begin_launch(*grid.checks, launch);
    }

    while (chunks-- && !grid.stopped) {
        std::tie(next_, end_) = grid.take(chunk);
        if (next_ == end_) break;
        while (next_ < end_ && !grid.stopped) {
            std::uint64_t block = next_++;
            grid.checks ? run_checked_block(block) : run_block(block);
        }
        if (launch.cooperative) {
            std::lock_guard<std::mutex> lock(grid.mutex);
            grid.blocks_returned++;
            grid.grid_barrier_opens.notify_all();
        }
    }
    std::string written = describe_written_padding(shared_, launch);
    if (!written.empty()) grid.stop({text(launch), 0, {}, written});
    grid_ = nullptr;
    blockDim = {};
}

void Multiprocessor::run_block(std::uint64_t block) {
    blockIdx = grid_->block_index(block);
    threadIdx = {0, 0, 0};
    position.thread = 0;
    position.plain_end = threads_;
    position.where = 0;
    in_order_ = true;
    at_barrier_ = all_began_ = false;
    first_thread_ = first_stack_ = 0;
    turns_ = 0;
    position.patience = PATIENCE;  // anew in each block, or its order would depend on the others
    arrived_ = returned_ = 0;
    std::fill_n(warp_, warps_, Warp{});
    copies_.begin_block();
    for (BlockBarrier& barrier : named_barrier_) barrier = {};
    for (BlockBarrier& barrier : tile_barrier_) barrier = {};

    prepare(0);
    expelled_.store(false, std::memory_order_relaxed);
    blocks_begun_.store(blocks_begun_.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
    in_block_.store(true, std::memory_order_relaxed);
    running_here = this;
    scheduler_.switch_to(fiber_[0]);
    running_here = nullptr;
    position.where = 0;  // for the host, which has no barriers
    in_block_.store(false, std::memory_order_relaxed);
}

void Multiprocessor::run_checked_block(std::uint64_t block) {
    checker_->begin_block(block, grid_->block_index(block));
    checker_here = checker_.get();
    run_block(block);
    checker_here = nullptr;
    checker_->end_block();
}

// No two threads that have not ended are on one stack: these numbers differ from thread to thread,
// and one that begins where another one has returned leaves its own stack unused.
void Multiprocessor::prepare(unsigned thread) {
    std::size_t bytes;
    char* stack = stacks_.usable((thread - first_thread_) ^ first_stack_, &bytes);
    fiber_[thread].prepare(stack, bytes, grid_->launch.run_threads);
}

// From here on states are kept, until the whole block has met at a barrier.
void Multiprocessor::leave_order() {
    if (!in_order_) return;
    in_order_ = false;
    position.plain_end = 0;
    position.where = 0;
    unsigned thread = position.thread;
    started_ = all_began_ ? threads_ : thread + 1;
    if (!all_began_) {
        last_started_ = threadIdx;
        if (!at_barrier_) first_thread_ = thread;
    }
    (at_barrier_ ? arrived_ : returned_) = thread;
    for (unsigned w = 0; w < warps_; w++) {
        unsigned first = w * WARP_SIZE;
        auto lanes_before = [&](unsigned end) {
            return end > first ? lanes_below(std::min(WARP_SIZE, end - first)) : 0;
        };
        Warp& warp = warp_[w];
        warp.lanes = lanes_before(threads_);
        warp.returned = at_barrier_ ? 0 : lanes_before(thread);
        warp.ready = all_began_ ? warp.lanes & ~lanes_before(thread + 1) : 0;
    }
    for (unsigned t = 0; t < arrived_; t++) thread_[t].line = barrier_line();
}

void Multiprocessor::next_thread() {
    unsigned thread = position.thread;
    Fiber& ended = fiber_[thread];
    if (in_order_ && (thread == 0 || !at_barrier_)) {
        at_barrier_ = false;
        position.where = RETURNED;
        if (thread + 1 < threads_) return go_to(thread + 1, ended);
        returned_ = started_ = threads_;
        return ended.switch_to(scheduler_);
    }
    leave_order();
    Warp& warp = warp_[thread / WARP_SIZE];
    warp.returned |= 1u << thread % WARP_SIZE;
    returned_++;
    turns_ = 0;
    if (warp.waiting) complete_warp_groups(thread / WARP_SIZE);
    if (is_barrier_complete()) open_barrier();  // the others wait there
    // A warp that has begun goes on first: fewer threads are then stopped half-way at a time.
    if (warp.ready || warp.converging || started_ == threads_) return switch_away(ended);
    if (returned_ == started_) {  // nobody has stopped, so the stacks are free again
        first_thread_ = started_;
        first_stack_ = unsigned(stacks_.index(__builtin_frame_address(0)));
    }
    start_next_thread();
}

void Multiprocessor::start_next_thread() {
    step(last_started_);
    threadIdx = last_started_;
    position.thread = started_++;
}

// ---------------------------------------------------------------- which thread goes on

void Multiprocessor::go_to(unsigned thread, Fiber& from) {
    position.thread = thread;
    threadIdx = thread_[thread].index;
    if (&fiber_[thread] != &from) from.switch_to(fiber_[thread]);
}

// Hands over from a fibre whose thread has to wait, or has returned.
void Multiprocessor::switch_away(Fiber& from) {
    unsigned thread = ready_in_warp(position.thread);
    if (thread == NOBODY && complete_convergence(position.thread / WARP_SIZE))
        thread = ready_in_warp(position.thread);
    if (thread == NOBODY && started_ < threads_) return start_on_own_stack(from);
    if (thread == NOBODY) thread = ready_elsewhere(position.thread);
    if (thread != NOBODY) return resume(thread, from);
    if (returned_ == threads_) return from.switch_to(scheduler_);
    report_stuck();
}

void Multiprocessor::start_on_own_stack(Fiber& from) {
    start_next_thread();
    prepare(position.thread);
    from.switch_to(fiber_[position.thread]);
}

void Multiprocessor::resume(unsigned thread, Fiber& from) {
    warp_[thread / WARP_SIZE].ready &= ~(1u << thread % WARP_SIZE);
    go_to(thread, from);
}

// The next lane of the same warp, in cyclic order.
unsigned Multiprocessor::ready_in_warp(unsigned thread) const {
    unsigned lane = thread % WARP_SIZE, ready = warp_[thread / WARP_SIZE].ready;
    if (!ready) return NOBODY;
    unsigned later = ready & ~lanes_below(lane + 1);
    return thread - lane + __builtin_ctz(later ? later : ready);
}

// The first lane of the next warp that has one, in cyclic order.
unsigned Multiprocessor::ready_elsewhere(unsigned thread) const {
    unsigned mine = thread / WARP_SIZE;
    for (unsigned w = mine + 1; w < warps_; w++)
        if (warp_[w].ready) return w * WARP_SIZE + __builtin_ctz(warp_[w].ready);
    for (unsigned w = 0; w < mine; w++)
        if (warp_[w].ready) return w * WARP_SIZE + __builtin_ctz(warp_[w].ready);
    return NOBODY;
}

// Of a warp that has run, and is not the one that runs.
bool Multiprocessor::is_through(unsigned warp) const {
    const Warp& its = warp_[warp];
    if (in_order_) return !all_began_ || warp < position.thread / WARP_SIZE;
    return !(its.ready | its.waiting | its.parked);
}

unsigned Multiprocessor::others_that_can_run() const {
    unsigned count = threads_ - started_;
    for (unsigned w = 0; w < warps_; w++) count += unsigned(__builtin_popcount(warp_[w].ready));
    return count;
}

// Threads that spin for so long may wait for a block that has not begun.
void Multiprocessor::let_others_take_its_blocks() {
    turns_ = 0;
    if (next_ < end_) {
        std::lock_guard<std::mutex> lock(grid_->mutex);
        grid_->given_back.emplace_back(next_, end_);
        end_ = next_;
    }
    begin_more_blocks(*grid_);
}

void Multiprocessor::yield() {
    position.patience = PATIENCE;
    if (grid_->stopped) abandon();
    leave_order();
    if (++turns_ > TURNS + others_that_can_run() && !grid_->launch.cooperative)
        let_others_take_its_blocks();
    unsigned thread = position.thread, next = NOBODY;
    if (started_ == threads_) {
        next = ready_in_warp(thread);
        // Only a later lane: two lanes that spin must not keep the other warps from running.
        if (next == NOBODY || next < thread) {
            unsigned elsewhere = ready_elsewhere(thread);
            if (elsewhere != NOBODY) next = elsewhere;
        }
        if (next == NOBODY) {  // the others wait for this thread, or it for another block
            sched_yield();
            return;
        }
    }
    warp_[thread / WARP_SIZE].ready |= 1u << thread % WARP_SIZE;
    next == NOBODY ? start_on_own_stack(fiber_[thread]) : resume(next, fiber_[thread]);
}

void Multiprocessor::do_after_grid(std::function<cudaError_t()> work, bool is_tail) {
    std::uint64_t block = (std::uint64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    std::lock_guard<std::mutex> lock(grid_->mutex);
    grid_->later.push_back({is_tail, block, std::move(work)});
}

// ---------------------------------------------------------------- the end of a faulty kernel

std::string Multiprocessor::place() const {
    return text(grid_->launch) + ", block " + text(blockIdx);
}

std::string Multiprocessor::place(unsigned thread, int line) const {
    return place() + ", thread " + index_text(thread) +
           (line ? ", line " + std::to_string(line) : "") + ": ";
}

void Multiprocessor::fail(const std::string& sentence) {
    grid_->stop({place(), 0, {}, sentence});
    abandon();
}

void Multiprocessor::fail_at(int line, const Calls& code, const std::string& sentence) {
    grid_->stop({place() + ", thread " + text(threadIdx), line, code, sentence, blockIdx, threadIdx, true});
    abandon();
}

void Multiprocessor::stop(unsigned thread, int line, const std::string& sentence) {
    grid_->stop({place() + ", thread " + index_text(thread), line, {}, sentence, blockIdx,
                 thread_index(grid_->launch, thread), true});
}

void Multiprocessor::note_exception() {
    try {
        throw;
    } catch (const std::exception& error) {
        thrown_ = error.what();
    } catch (...) {
        thrown_ = "of an unknown type";
    }
}

// Not in the exception's handler, to whose end nobody returns from here.
void Multiprocessor::fail_by_exception() {
    fail_at(0, {}, "an exception left the kernel: " + thrown_);
}

void Multiprocessor::abandon() {
    Fiber nobody_returns_here;
    nobody_returns_here.switch_to(scheduler_);
    __builtin_unreachable();
}

double Multiprocessor::processor_seconds() const {
#if defined(__linux__)
    clockid_t clock;
    timespec used;
    if (pthread_getcpuclockid(os_thread_, &clock) == 0 && clock_gettime(clock, &used) == 0)
        return double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
#endif
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

double Multiprocessor::seconds_without_progress() {
    double now = processor_seconds();
    unsigned returned = in_order_ && !at_barrier_ ? position_->thread : returned_;
    std::uint64_t ends = blocks_begun_ * (MAX_THREADS + 1) + returned;
    if (!in_block_) ends_seen_.since = barriers_seen_.since = now;
    double since_end = ends_seen_.age(ends, now), since_barrier = barriers_seen_.age(barriers_opened_, now);
    return std::min(since_end, std::max(since_end / 4, since_barrier));
}

void Multiprocessor::expel(const char* why) {
    why_expelled_ = why;
    expelled_ = true;
    pthread_kill(os_thread_, STOP_SIGNAL);
}

// No thread of the block can go on: says who waits where.
void Multiprocessor::report_stuck() {
    Quiet quiet;
    struct Group {
        bool barrier, parked;
        int line;
        unsigned count, first;
    };
    std::vector<Group> groups;
    unsigned first_returned = NOBODY;
    for (unsigned t = 0; t < threads_; t++) {
        const Warp& warp = warp_[t / WARP_SIZE];
        unsigned lane = 1u << t % WARP_SIZE;
        if (warp.returned & lane) {
            if (first_returned == NOBODY) first_returned = t;
            continue;
        }
        bool parked = warp.parked & lane, barrier = !parked && !(warp.waiting & lane);
        auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
            return g.barrier == barrier && g.parked == parked && g.line == thread_[t].line;
        });
        if (same != groups.end())
            same->count++;
        else
            groups.push_back({barrier, parked, thread_[t].line, 1, t});
    }
    std::string sentence = "the block is stuck: ";
    bool barrier = false, parked = false;
    for (const Group& g : groups) {
        barrier |= g.barrier;
        parked |= g.parked;
        sentence += threads_text(g.count, g.first) + (g.count > 1 ? " wait at " : " waits at ") +
                    (g.barrier ? barrier_name() : operation_name(g.first)) + " in line " +
                    std::to_string(g.line) + ", ";
    }
    if (returned_)
        sentence += threads_text(returned_, first_returned) +
                    (returned_ > 1 ? " have" : " has") + " left the kernel, ";
    sentence.replace(sentence.size() - 2, 2, ". ");
    fail(sentence + (parked    ? "As many threads have to arrive at a barrier as it expects."
                     : barrier ? "Every thread of the block has to reach the same barrier."
                             : "Every lane that the mask names has to reach the same operation."));
}

// "50 threads (the first: (0,0,0))"
std::string Multiprocessor::threads_text(unsigned count, unsigned first) const {
    return std::to_string(count) + (count > 1 ? " threads (the first: " : " thread (") +
           index_text(first) + ")";
}

uint3 thread_index(const Launch& launch, unsigned thread) {
    uint3 block = launch.block;
    return {thread % block.x, thread / block.x % block.y, thread / block.x / block.y};
}

std::string Multiprocessor::index_text(unsigned thread) const {
    return text(thread_index(grid_->launch, thread));
}

// ---------------------------------------------------------------- entry points

void next_thread_slow() { running_here->next_thread(); }

void next_checked_thread() {
    if (position.thread + 1 >= position.plain_end) return next_thread_slow();
    position.thread++;
    step(threadIdx);
}

void note_exception() { running_here->note_exception(); }
void fail_by_exception() { running_here->fail_by_exception(); }

[[noreturn, gnu::cold, gnu::noinline]] static void not_in_kernel(const char* what) {
    throw std::logic_error(std::string(what) + " works in a kernel only");
}

static inline Multiprocessor& in_kernel(const char* what) {
    if (!running_here) not_in_kernel(what);
    return *running_here;
}

int wait_at_barrier(Barrier kind, int predicate, int line) {
    return in_kernel("a barrier").wait_at_barrier(kind, predicate, line);
}

std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value,
                             int source, int line) {
    return in_kernel("a warp operation").warp_operation(operation, mask, value, source, line);
}

bool is_cooperative() { return in_kernel("a grid group").launch().cooperative; }

void yield() {
    position.patience = PATIENCE;
    if (running_here) running_here->yield();
}

void fail(const char* sentence, int line) {
    if (!running_here) throw std::logic_error(std::string(sentence) + ", line " + std::to_string(line));
    running_here->fail_at(line, {}, sentence);
}

}  // namespace cuda_on_cpu
