// A multiprocessor runs one block at a time: it starts the block's threads, stops the ones that
// have to wait, and goes on with the ones that need not. Each operating-system thread that takes
// part in a launch is one multiprocessor.
#pragma once
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../include/cuda_on_cpu/block_barrier.h"
#include "../include/cuda_on_cpu/runtime.h"
#include "../include/cuda_on_cpu/together.h"
#include "async_copies.h"
#include "fiber.h"

namespace cuda_on_cpu {

constexpr unsigned MAX_WARPS = MAX_THREADS / WARP_SIZE;
constexpr unsigned NOBODY = ~0u;

constexpr std::uint32_t lanes_below(unsigned lane) { return lane > 31 ? ~0u : (1u << lane) - 1; }

uint3 thread_index(const Launch& launch, unsigned thread);

using Calls = std::vector<void*>;  // addresses in machine code

struct Fault {
    std::string where;     // kernel, block, thread
    int line;              // of the CUDA string; 0 if only the machine code's address is known
    Calls code;            // that address and those of its calls, innermost first; may be empty
    std::string sentence;
    uint3 block{};         // blockIdx and threadIdx, where `of_thread`
    uint3 thread{};
    bool of_thread = false;
};

class Checker;
class Checks;
class Multiprocessor;

// What a kernel launched or copied, to be done when its grid has ended: block by block, and what is
// for the tail at last.
struct Later {
    bool is_tail;
    std::uint64_t block;
    std::function<cudaError_t()> work;
};

// One launch while it runs, shared by the multiprocessors that work on it.
struct Grid {
    const Launch& launch;
    std::uint64_t blocks;
    std::atomic<std::uint64_t> next_block{0};
    std::atomic<bool> stopped{false};  // by an error
    Checks* checks = nullptr;          // null unless the launch is checked
    std::mutex mutex;                  // guards what follows
    Fault fault{};                     // the first one
    std::vector<Multiprocessor*> working;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> given_back;  // blocks: first, behind last
    std::uint64_t helpers = 0;  // of the launching thread, that have begun or shall
    std::uint64_t blocks_at_barrier = 0, barriers_passed = 0, blocks_returned = 0;
    std::condition_variable grid_barrier_opens;
    std::vector<Later> later;  // what its kernel launched

    Grid(const Launch& launch, std::uint64_t blocks) : launch(launch), blocks(blocks) {}
    uint3 block_index(std::uint64_t block) const;
    void stop(const Fault& fault);
    // Takes `chunk` blocks, or those that somebody gave back: first, and the one behind the last.
    std::pair<std::uint64_t, std::uint64_t> take(std::uint64_t chunk);
    std::vector<Multiprocessor*> multiprocessors();
};

// The blocks that run may wait for others: those begin as well, up to as many as a GPU would run.
void begin_more_blocks(Grid&);
std::uint64_t blocks_at_once(const Launch&);  // on the GPU

struct WarpRequest {
    WarpOperation operation;
    std::uint32_t mask;     // the lanes that take part
    int source;             // shuffles: the lane to read
    std::uint64_t value, result;
};

// What the lanes of a group have laid down: which of them not 0, and all put together.
struct Brought {
    std::uint32_t ballot;
    std::uint64_t combined;
};

struct alignas(64) Thread {  // a cache line
    uint3 index;   // its threadIdx
    int line;      // where it waits
    WarpRequest request;
};

// Bit i of each mask is lane i. A thread is in one state only: not started, running, ready,
// waiting, parked, returned, or none of these: it is at the block's barrier.
struct Warp {
    std::uint32_t lanes = 0;     // that exist: the last warp of a block may be short
    std::uint32_t ready = 0;     // has stopped and may go on
    std::uint32_t waiting = 0;   // for the other lanes of a warp operation
    std::uint32_t parked = 0;    // until another thread wakes it
    std::uint32_t returned = 0;  // has left the kernel
    bool converging = false;     // some lanes wait for whoever comes (__activemask)
    std::uint32_t undefined = 0;  // of a checked launch: their sum is, see follow_undefined()
    int undefined_delta = 0;
};

class Multiprocessor {
public:
    ~Multiprocessor();
    static Multiprocessor& mine();     // of this operating-system thread
    static Multiprocessor* running();  // likewise; null outside a kernel

    // Takes blocks of the grid, `chunk` at a time, until none is left or `chunks` are done.
    void run_blocks(Grid& grid, std::uint64_t chunk, std::uint64_t chunks);

    void next_thread();
    void yield();
    int wait_at_barrier(Barrier kind, int predicate, int line);
    std::uint64_t warp_operation(WarpOperation operation, std::uint32_t mask, std::uint64_t value,
                                 int source, int line);
    // The running thread waits until another thread of its block wakes who is parked `at` the same.
    // name: for an error, when nobody does.
    void park(const void* at, const char* name, int line);
    void wake(const void* at);
    BlockBarrier& named_barrier(unsigned id) { return named_barrier_[id]; }
    BlockBarrier& tile_barrier(unsigned first) { return tile_barrier_[first]; }
    unsigned threads() const { return threads_; }         // of a block
    AsyncCopies& copies() { return copies_; }
    [[noreturn]] void fail(const std::string& sentence);  // stops the grid with an error
    // Likewise, naming the running thread and the line.
    [[noreturn]] void fail_at(int line, const Calls& code, const std::string& sentence);
    void stop(unsigned thread, int line, const std::string& sentence);  // likewise; goes on
    void note_exception();                                // that leaves the kernel
    [[noreturn]] void fail_by_exception();
    [[noreturn]] void abandon();                          // leaves the block as it is
    void do_after_grid(std::function<cudaError_t()> work, bool is_tail);
    const Launch& launch() const { return grid_->launch; }
    const Grid& grid() const { return *grid_; }
    Checker* checker() const { return checker_.get(); }   // null before the first checked launch
    std::string place() const;                            // kernel and block, for messages
    std::string place(unsigned thread, int line) const;   // "..., thread (3,0,0), line 7: "
    std::string index_text(unsigned thread) const;  // "(3,0,0)"
    bool is_through(unsigned warp) const;                 // up to the next barrier of the block
    bool in_stacks(const void* address) const { return stacks_.contains(address); }
    const Stacks& stacks() const { return stacks_; }

    // For the watchdog, which runs on another operating-system thread.
    // Of processor time since a thread came to its end; a passed barrier makes it a quarter of that.
    double seconds_without_progress();
    // Makes it leave the block, wherever it is; `why` is the error then.
    void expel(const char* why = nullptr);
    bool is_expelled() const { return expelled_; }
    const char* why_expelled() const { return why_expelled_; }

private:
    Multiprocessor();
    void run_block(std::uint64_t block);
    void run_checked_block(std::uint64_t block);
    void let_others_take_its_blocks();
    unsigned others_that_can_run() const;
    void leave_order();
    void prepare(unsigned thread);
    void start_next_thread();
    void start_on_own_stack(Fiber& from);
    // Inlined into what waits, for a thread that waits keeps a stack frame for every call on its
    // way here, and the frames of a thousand threads compete for the cache.
    [[gnu::always_inline]] inline void switch_away(Fiber& from);
    [[gnu::always_inline]] inline void resume(unsigned thread, Fiber& from);
    [[gnu::always_inline]] inline void go_to(unsigned thread, Fiber& from);
    unsigned ready_in_warp(unsigned thread) const;
    unsigned ready_elsewhere(unsigned thread) const;

    bool is_barrier_complete() const { return arrived_ && arrived_ + returned_ == threads_; }
    void wait_in_order();
    [[gnu::noinline]] void open_barrier();
    [[gnu::cold, gnu::noinline]] void remark_left_threads() const;
    void wait_for_the_grid();
    std::string barrier_name() const;
    int barrier_line() const { return barrier_line_ % BARRIER_IN_LINE; }

    void complete_warp_groups(unsigned warp);
    void complete_group(unsigned warp, std::uint32_t group);
    bool lanes_agree(unsigned warp, std::uint32_t group, Brought* brought);
    [[gnu::noinline]] void work_together(unsigned warp, std::uint32_t group);
    std::uint32_t give_results(unsigned warp, std::uint32_t group, const Brought& brought);
    std::uint32_t give_shuffled(unsigned warp, std::uint32_t group, unsigned lane);
    std::uint32_t lanes_with_equal(unsigned warp, std::uint32_t group, std::uint64_t value) const;
    [[gnu::noinline]] bool complete_convergence(unsigned warp);
    [[gnu::noinline]] void follow_undefined(unsigned warp, std::uint32_t group,
                                            std::uint32_t undefined);
    std::string operation_name(unsigned thread) const;

    // Out of line, so that their strings do not swell the stack frames of the waiting threads.
    [[noreturn, gnu::cold, gnu::noinline]] void report_stuck();
    [[noreturn, gnu::cold, gnu::noinline]] void report_other_barrier(int line);
    [[noreturn, gnu::cold, gnu::noinline]] void report_mask(unsigned thread);
    [[noreturn, gnu::cold, gnu::noinline]] void report_disagreement(unsigned one, unsigned other);
    [[noreturn, gnu::cold, gnu::noinline]] void report_left_lane(unsigned thread);
    [[noreturn, gnu::cold, gnu::noinline]] void report_undefined(unsigned thread,
                                                                 std::uint32_t group);
    [[noreturn, gnu::cold, gnu::noinline]] void report_short_warp(unsigned thread, unsigned lanes);
    std::string threads_text(unsigned count, unsigned first) const;

    Grid* grid_ = nullptr;
    std::unique_ptr<Checker> checker_;
    unsigned threads_ = 0, warps_ = 0;      // of a block of this grid
    void* shared_ = nullptr;                // extern __shared__ memory, kept between launches
    std::size_t shared_bytes_ = 0;

    // Threads come in order as long as those before the running one have all returned, or all wait
    // at the block's barrier, and those after it have all not begun, or all go on from a barrier.
    // Then this is all that is known; states are kept from the first thread on that stops otherwise.
    bool in_order_ = true;
    bool at_barrier_ = false;               // those before the running one; or they have returned
    bool all_began_ = false;

    unsigned started_ = 0, returned_ = 0;   // threads of the running block
    uint3 last_started_{};
    // A thread begins on a stack of its own; this one began, or was called, on the first one.
    unsigned first_thread_ = 0, first_stack_ = 0;
    std::uint64_t next_ = 0, end_ = 0;      // of its chunk: the blocks that it has not begun
    unsigned turns_ = 0;                    // of waiting threads since one came to its end
    uint3 shape_{};                         // of the block that thread_[i].index is for
    std::string thrown_;
    Thread thread_[MAX_THREADS];
    Warp warp_[MAX_WARPS];

    BlockBarrier named_barrier_[NAMED_BARRIERS], tile_barrier_[MAX_THREADS / 64];
    AsyncCopies copies_;
    unsigned arrived_ = 0;                  // threads that wait at the barrier
    Barrier barrier_kind_{};
    int barrier_line_ = 0, votes_ = 0, barrier_result_ = 0;

    Stacks stacks_{MAX_THREADS};
    Fiber scheduler_, fiber_[MAX_THREADS];  // the latter by thread

    const pthread_t os_thread_;
    const volatile Position* const position_;  // of that thread
    std::atomic<bool> in_block_{false}, expelled_{false};
    std::atomic<std::uint64_t> blocks_begun_{0};
    std::atomic<const char*> why_expelled_{nullptr};
    std::uint64_t barriers_opened_ = 0;     // by all blocks
    double processor_seconds() const;       // of the operating-system thread
    struct Seen {                           // by the watchdog, and when that was new
        std::uint64_t what = 0;
        double since = 0;
        double age(std::uint64_t now_there, double now) {
            if (now_there != what) *this = {now_there, now};
            return now - since;
        }
    } ends_seen_, barriers_seen_;
};

std::string text(uint3 index);               // "(x,y,z)"
std::string text(const Launch& launch);      // "kernel (launched at line 12)"
std::string hexadecimal(std::uint32_t mask);  // "0x0000ffff"
std::uint64_t combine(WarpOperation operation, std::uint64_t a, std::uint64_t b);  // reductions

}  // namespace cuda_on_cpu
