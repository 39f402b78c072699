// Checks the accesses of the block that runs on one multiprocessor, and passes them on to its
// counter. The hooks call it for every access of a kernel, so what it does often is inline.
#pragma once
#include <cstring>

#include "../include/cuda_on_cpu/check.h"
#include "checks.h"
#include "counter.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

class Checker {
public:
    explicit Checker(Multiprocessor& multiprocessor) : multiprocessor_(multiprocessor) {}

    void begin_launch(Checks& checks, const Launch& launch);
    void begin_block(std::uint64_t block, uint3 index);
    void end_block();
    void end_launch();

    // What orders accesses.
    void barrier();
    void sync_lanes(unsigned warp, std::uint32_t lanes) { clocks_.sync_lanes(warp, lanes); }
    void share_acquired(unsigned warp, std::uint32_t lanes);  // any warp operation
    void fence();
    void acquire();  // after an atomic or a volatile read, or a barrier of some threads
    void arrive();   // at such a barrier: what the thread wrote is there for who waits at it

    // orders: it is an atomic or volatile, which do not race with each other and may order others.
    [[gnu::always_inline]] void access(std::uintptr_t address, unsigned bytes, AccessKind kind,
                                       const void* code, bool orders = false,
                                       AtomicKind atomic = AtomicKind::update);
    [[noreturn, gnu::cold]] void index_out_of_bounds(int line, std::intptr_t index,
                                                     const std::string& type);
    void name_array(DeclaredArray array);

    // Where the running thread stands: its calls and the iterations of its loops, as a hash.
    std::uint64_t& place() { return path_[position.thread].place; }
    void begin_thread() { path_[position.thread] = {1, 0}; }
    void enter_function(const void* call);
    void leave_function();
    void executed(const void* code) {
        if (counting_) counter_.executed(code, place(), position.thread);
    }

    Counter& counter() { return counter_; }

private:
    // What an instruction accessed last: most often the same array again. No array: memory that
    // is not of interest, such as the thread's own stack.
    struct alignas(64) Recent {
        const void* code;
        std::uintptr_t begin;
        std::size_t bytes;
        KnownArray* array;
        Cell* cells;     // the array's
        unsigned char shift;  // a cell stands for 1 << shift bytes
        bool shared, only_read;
        unsigned site;
    };
    static constexpr unsigned RECENT = 512, DEPTH = 32;
    struct Path {
        std::uint64_t place;
        unsigned depth;  // of calls; of more than DEPTH the innermost are not told apart
    };
    struct Call {
        std::uint64_t place;  // outside it
        const void* code;
    };

    static unsigned slot(const void* code) {
        auto bits = std::uintptr_t(code);
        return unsigned(bits ^ bits >> 10) % RECENT;
    }
    [[gnu::noinline]] void find(Recent& recent, std::uintptr_t address, unsigned bytes,
                                AccessKind kind, const void* code);
    const KnownArray* array_left_at(const Recent& recent, std::uintptr_t address, unsigned bytes,
                                    const void* code) const;
    const KnownArray* nearest_static_shared(std::uintptr_t address) const;
    bool is_astray(std::uintptr_t address) const;
    [[gnu::noinline]] void order(bool stores);
    void note_released(Releases::Number number);
    [[gnu::noinline]] void check_cells(const Recent& recent, std::uintptr_t address, unsigned bytes,
                                       AccessKind kind, bool orders, AtomicKind atomic);
    [[gnu::noinline]] void count(const Recent& recent, std::uintptr_t address, unsigned bytes,
                                 AccessKind kind) {
        counter_.access(
            {recent.code, place(), address, bytes, kind, recent.array, position.thread});
    }
    void check_cell(Cell& cell, Mark mine, const KnownArray& array, std::uintptr_t address,
                    AccessKind kind);
    Mark mark(const Recent& recent, bool orders, AtomicKind atomic) const {
        unsigned thread = position.thread;
        return Mark::of(block_, clocks_.time(thread), thread, recent.site, orders,
                        atomic == AtomicKind::compare_and_swap);
    }
    [[gnu::always_inline]] bool passes(Cell& cell, Mark mine, AccessKind kind, bool shared);
    bool ordered(Mark earlier, Mark mine, bool shared) const;
    bool races(Mark earlier, Mark mine, bool shared) const;

    // The errors. They name the running thread.
    [[noreturn, gnu::cold, gnu::noinline]] void fail(const std::string& sentence, const void* code);
    [[noreturn, gnu::cold, gnu::noinline]] void report_range(const KernelArray& array,
                                                             std::uintptr_t address, unsigned bytes,
                                                             AccessKind kind, const void* code);
    [[noreturn, gnu::cold, gnu::noinline]] void report_race(const KernelArray& array,
                                                            std::uintptr_t address, AccessKind kind,
                                                            Mark mine, Mark earlier, bool wrote);
    [[noreturn, gnu::cold, gnu::noinline]] void report_unwritten(const Recent& recent,
                                                                 std::uintptr_t address, Mark mine);
    unsigned known_depth() const;
    const void* const* callers();

    Multiprocessor& multiprocessor_;
    Checks* checks_ = nullptr;
    std::uint64_t launch_number_ = 0, block_ = 0;
    const void* code_ = nullptr;             // of the access that is checked
    Counter counter_;
    bool counting_ = false;

    std::deque<KnownArray> shared_;          // that the block has
    Region static_shared_;                   // where those lie that are not dynamic
    Recent recent_[RECENT];

    Clocks clocks_;
    bool fenced_ = false;                    // some thread of the block, in this block
    bool used_orders_ = false;
    Releases::Number acquired_by_all_ = 0, acquired_by_any_ = 0;
    Releases::Number acquired_[MAX_THREADS] = {}, released_[MAX_THREADS] = {};
    bool thread_fenced_[MAX_THREADS] = {};

    Path path_[MAX_THREADS];
    Call calls_[MAX_THREADS][DEPTH];
    const void* callers_[DEPTH];
};

// Of the block that runs on this operating-system thread, if its launch is checked.
extern CUDA_ON_CPU_THREAD_LOCAL Checker* checker_here;

inline void Checker::enter_function(const void* call) {
    unsigned thread = position.thread;
    Path& path = path_[thread];
    if (path.depth < DEPTH) calls_[thread][path.depth] = {path.place, call};
    path.depth++;
    path.place = mix(path.place, std::uint64_t(call));
}

inline void Checker::leave_function() {
    unsigned thread = position.thread;
    Path& path = path_[thread];
    if (path.depth && --path.depth < DEPTH) path.place = calls_[thread][path.depth].place;
}

inline void Checker::access(std::uintptr_t address, unsigned bytes, AccessKind kind,
                            const void* code, bool orders, AtomicKind atomic) {
    if (orders) order(kind != AccessKind::load);
    Recent& recent = recent_[slot(code)];
    if (recent.code != code || address - recent.begin >= recent.bytes)
        find(recent, address, bytes, kind, code);
    if (!recent.array) return;
    std::size_t offset = address - recent.begin;
    if (offset + bytes > recent.bytes) report_range(*recent.array, address, bytes, kind, code);

    if (!recent.only_read || kind != AccessKind::load) {
        Mark mine = mark(recent, orders, atomic);
        Cell& cell = recent.cells[offset >> recent.shift];
        bool whole_cell = bytes == 1u << recent.shift && !(offset & (bytes - 1));
        if (!whole_cell || !passes(cell, mine.with_bytes((1u << bytes) - 1), kind, recent.shared))
            check_cells(recent, address, bytes, kind, orders, atomic);
    }
    if (counting_) count(recent, address, bytes, kind);
}

// Whether an access is right, as it is seen from times alone; if so, it is marked. What does not
// pass is looked at again, in all detail.
inline bool Checker::passes(Cell& cell, Mark mine, AccessKind kind, bool shared) {
    if (kind == AccessKind::atomic) return false;
    std::uint64_t begin = mine.when() - mine.time();
    unsigned last_barrier = clocks_.last_barrier();
    auto is_over = [=](Mark mark) __attribute__((always_inline)) {
        return mark.when() - begin < last_barrier || (mark.bits ^ mine.bits) >> 20 == 0;
    };
    Mark write = load(cell.write), read = load(cell.read);
    if (kind == AccessKind::load) {
        if (!is_over(write) && (write.bits || shared)) return false;
        if (shared && !write.bits) return false;
        store(is_over(read) || !read.bits ? cell.read : cell.other_read, mine);
        return true;
    }
    Mark other = load(cell.other_read);
    if (!((is_over(write) || !write.bits) && (is_over(read) || !read.bits) &&
          (is_over(other) || !other.bits)))
        return false;
    store(cell.write, mine);
    return true;
}

}  // namespace cuda_on_cpu
