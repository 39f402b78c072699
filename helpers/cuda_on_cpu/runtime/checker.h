// Checks the accesses of the block that runs on one multiprocessor, and passes them on to its
// counter. The hooks call it for every access of a kernel, so what it does often is inline.
#pragma once
#include <cstring>

#include "../include/cuda_on_cpu/check.h"
#include "checks.h"
#include "counter.h"
#include "locals.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

// How an instruction accesses memory, as its hook knows it.
struct How {
    AccessKind kind;
    unsigned char alignment = 1;  // of the addresses, in bytes
    bool orders = false;  // an atomic or volatile: they do not race, and may order other accesses
    AtomicKind atomic = AtomicKind::update;
    Scope scope = Scope::device;  // of an atomic
};

class Checker {
public:
    explicit Checker(Multiprocessor& multiprocessor)
        : multiprocessor_(multiprocessor), locals_(multiprocessor.stacks()) {}

    void begin_launch(Checks& checks, const Launch& launch);
    void begin_block(std::uint64_t block, uint3 index);
    void end_block();
    void end_launch();

    // What orders accesses.
    void barrier();
    // Any warp operation; only __syncwarp orders memory.
    void lanes_meet(unsigned warp, std::uint32_t lanes, bool is_sync) {
        order_.share(warp, lanes, is_sync);
        if (is_sync) clocks_.sync_lanes(warp, lanes);
    }
    void fence(Scope scope) { order_.fence(position.thread, scope, clocks_); }
    // At a barrier of some threads: what is done before is done for whoever passes it.
    void arrive(const void* at) { order_.arrive(position.thread, std::uintptr_t(at), clocks_); }
    void open(const void* at) { order_.open(std::uintptr_t(at)); }
    void pass(const void* at) { order_.pass(position.thread, std::uintptr_t(at)); }
    // After an atomic or a volatile read.
    void acquire() { order_.acquire(position.thread); }
    void acquired() { order_.acquired(position.thread); }

    // bytes: always the same at one place in the code.
    [[gnu::always_inline]] void access(std::uintptr_t address, unsigned bytes, How how,
                                       const void* code);
    // Likewise, for any number of bytes; slower.
    [[gnu::noinline]] void look_at(std::uintptr_t address, unsigned bytes, How how,
                                   const void* code);
    // Of memory that the kernel has no pointer to. by: "a texture".
    void access_texture(const KernelArray& memory, std::uintptr_t address, unsigned bytes,
                        AccessKind kind, const void* code, const char* by);
    bool counts() const { return counting_; }
    // What the running thread has read of it, or written, by one instruction. object: its handle.
    void count_texture(const KernelArray& memory, const std::uintptr_t* texels, unsigned count,
                       unsigned bytes, AccessKind kind, const void* code, MemorySpace space,
                       unsigned long long object);
    [[noreturn, gnu::cold]] void index_out_of_bounds(int line, std::intptr_t index,
                                                     const std::string& type);
    [[noreturn, gnu::cold]] void misaligned(std::uintptr_t address, unsigned bytes,
                                            AccessKind kind, const void* code);
    [[noreturn, gnu::cold]] void report_unset(std::uintptr_t address, unsigned bytes,
                                              const void* code);
    void name_array(DeclaredArray array);
    Locals& locals() { return locals_; }
    void forget(std::uintptr_t begin);  // an array that the kernel frees
    // An asynchronous copy to shared memory, for which the running thread has just stored all ones.
    // Until it ends nobody may use that memory.
    void begin_copy(std::uintptr_t to, unsigned bytes);
    // A copy of `thread` reads its source from its begin until it ends: by then the memory has to
    // hold the value that it had.
    void end_read(unsigned thread, const void* from, const unsigned char* value, unsigned bytes,
                  const void* code, bool at_barrier);
    // From now on it is a write of the thread that waited for it, or, bound to a barrier, the write
    // that it was when it began.
    void end_copy(std::uintptr_t to, unsigned bytes, bool at_barrier);

    // Where the running thread stands: its calls and the iterations of its loops, as a hash. The
    // counter wants to know it.
    std::uint64_t& place() { return path_[position.thread].place; }
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
        std::size_t bytes, last;   // it may access the array up to this offset
        KnownArray* array;
        Cells cells;               // the array's
        std::uint32_t mark;        // of the site, and of all bytes of a cell
        unsigned char cell_bytes;  // that a cell stands for; 0: no array
        bool shared, constant, free_to_read;  // constant, or only read by this kernel
    };
    static constexpr unsigned RECENT = 1024, DEPTH = 32;
    struct Path {
        std::uint64_t place;
        unsigned depth;  // of calls; of more than DEPTH the innermost are not told apart
    };

    static unsigned slot(const void* code) {
        constexpr unsigned BETWEEN = 4;  // bytes at least, from one call to the next
        return std::uintptr_t(code) / BETWEEN % RECENT;
    }
    [[gnu::noinline]] void find(Recent& recent, std::uintptr_t address, unsigned bytes,
                                AccessKind kind, const void* code);
    Recent& find_texture(const KernelArray& memory, std::uintptr_t address, unsigned bytes,
                         AccessKind kind, const void* code);
    const KnownArray* array_left_at(const Recent& recent, std::uintptr_t address, unsigned bytes,
                                    const void* code) const;
    const KnownArray* nearest_static_shared(std::uintptr_t address) const;
    bool is_astray(std::uintptr_t address, bool was_in_array) const;
    bool is_guard(std::uintptr_t address, unsigned bytes) const;
    [[gnu::noinline]] void order(std::uintptr_t address, How how);
    static bool in_own_stack(std::uintptr_t address) {  // the next one is farther away
        return address - (std::uintptr_t(__builtin_frame_address(0)) - STACK_BYTES) <
               2 * STACK_BYTES;
    }
    [[gnu::always_inline]] static bool seems_filled(std::uintptr_t address, unsigned bytes,
                                                    unsigned alignment);
    [[gnu::noinline]] void check_filled(const Recent& recent, std::uintptr_t address,
                                        unsigned bytes);
    [[gnu::noinline]] void check_cells(const Recent& recent, std::uintptr_t address, unsigned bytes,
                                       How how);
    [[gnu::noinline]] void count(const Recent& recent, std::uintptr_t address, unsigned bytes,
                                 AccessKind kind) {
        counter_.access({recent.code, place(), address, bytes, kind, recent.array, position.thread,
                         recent.shared ? MemorySpace::shared : MemorySpace::global,
                         recent.array->name});
    }
    void check_cell(Cell cell, Mark mine, const KnownArray& array, std::uintptr_t address,
                    AccessKind kind, bool may_be_equal);
    void settle(bool in_kernel);
    void forget_unsettled() { unsettled_.bytes = 0, looks_closely_ = counting_; }
    void check_rereads(bool in_kernel);
    // Of a plain access of whole cells.
    Mark mark(const Recent& recent) { return {clocks_.now(position.thread) | recent.mark}; }
    // It does what access() leaves over, and look_at() what that does: as the last step of each, so
    // that it need not save registers.
    [[gnu::noinline]] void access_other(std::uintptr_t address, unsigned bytes, How how,
                                        const void* code);
    bool passes(const Recent& recent, std::uintptr_t address, unsigned bytes, AccessKind kind);
    [[gnu::always_inline]] bool passes(Cell cell, Mark mine, AccessKind kind, bool shared);
    bool ordered(Mark earlier, Mark mine, bool shared) const;
    bool races(Mark earlier, Mark mine, bool shared) const;

    // The errors. They name the running thread.
    [[noreturn, gnu::cold, gnu::noinline]] void fail(const std::string& sentence, const void* code);
    [[noreturn, gnu::cold, gnu::noinline]] void report_range(const KernelArray& array,
                                                             std::uintptr_t address, unsigned bytes,
                                                             AccessKind kind, const void* code);
    // in_kernel: a thread of the block runs, which ends here. Else only the launch is stopped.
    [[gnu::cold, gnu::noinline]] void report_race(const KnownArray& array, std::uintptr_t address,
                                                  AccessKind kind, Mark mine, Mark earlier,
                                                  bool wrote, bool in_kernel = true);
    [[gnu::cold, gnu::noinline]] void report_under_copy(const KnownArray& array,
                                                        std::uintptr_t address, AccessKind kind,
                                                        Mark mine, Mark copy);
    [[gnu::cold, gnu::noinline]] void report_changed_source(const Recent& recent, unsigned thread,
                                                            std::uintptr_t address);
    template <class Change>
    void change_cells(std::uintptr_t begin, unsigned bytes, Change change);
    // What may be missing; empty if nothing can be said.
    std::string remedy(const KnownArray& array, std::uintptr_t address, Mark mine, Mark earlier,
                       bool wrote) const;
    bool is_update(const KnownArray& array, std::uintptr_t address, Mark mine, Mark earlier,
                   bool wrote) const;
    [[noreturn, gnu::cold, gnu::noinline]] void report_stale(const Recent& recent,
                                                             std::uintptr_t address, Mark write,
                                                             const char* by);
    [[noreturn, gnu::cold, gnu::noinline]] void report_nowhere(std::uintptr_t address,
                                                               AccessKind kind, const void* code);
    [[noreturn, gnu::cold, gnu::noinline]] void report_local_of_another(AccessKind kind,
                                                                        const void* code);
    [[noreturn, gnu::cold, gnu::noinline]] void report_unwritten(const Recent& recent,
                                                                 std::uintptr_t address, Mark mine);

    Multiprocessor& multiprocessor_;
    Checks* checks_ = nullptr;
    std::uint64_t launch_number_ = 0, block_ = 0;
    const void* code_ = nullptr;             // of the access that is checked
    Counter counter_;
    bool counting_ = false, looks_closely_ = false;  // at every access

    std::deque<KnownArray> shared_;          // that the block has
    Region static_shared_;                   // where those lie that are not dynamic
    bool may_have_guards_ = false;           // beside those
    Recent recent_[RECENT];

    Clocks clocks_;
    Order order_;
    Locals locals_;

    // A write to what another thread has written: no race if the value is the same, which shows
    // as soon as it is done.
    struct Unsettled {
        const KnownArray* array;
        std::uintptr_t address, element;  // of the access; where it meets the other write
        unsigned bytes;                   // 0: there is none
        Mark mine, earlier;
        unsigned char before[16];
    } unsettled_{};
    // A plain read of what the thread has changed by a compare-and-swap. It is right if another
    // compare-and-swap follows, which fails if the value has changed.
    struct Reread {
        const KnownArray* array;
        std::uintptr_t address;
        Mark mine;
    };
    std::vector<Reread> rereads_;
    std::uintptr_t swapped_[MAX_THREADS] = {};  // the address of the latest compare-and-swap
    bool any_swapped_ = false;

    Path path_[MAX_THREADS];
    std::uint64_t place_outside_[DEPTH][MAX_THREADS];  // of each call
};

// Of the block that runs on this operating-system thread, if its launch is checked.
extern CUDA_ON_CPU_THREAD_LOCAL Checker* checker_here;

// While the runtime puts sentences together: its functions of std::string may be those of a checked
// library, which tell of their accesses.
class Quiet {
public:
    Quiet() : checker_(checker_here) { checker_here = nullptr; }
    ~Quiet() { checker_here = checker_; }
    Quiet(const Quiet&) = delete;

private:
    Checker* const checker_;
};

inline void Checker::enter_function(const void* call) {
    unsigned thread = position.thread;
    Path& path = path_[thread];
    if (path.depth < DEPTH) place_outside_[path.depth][thread] = path.place;
    path.depth++;
    path.place = mix(path.place, std::uint64_t(call));
}

inline void Checker::leave_function() {
    unsigned thread = position.thread;
    Path& path = path_[thread];
    if (path.depth && --path.depth < DEPTH) path.place = place_outside_[path.depth][thread];
}

// Most accesses are found right here: of one whole cell of the array that the instruction accessed
// last. `bytes` and `how` are known where this is inlined.
inline void Checker::access(std::uintptr_t address, unsigned bytes, How how, const void* code) {
    const Recent& recent = recent_[slot(code)];
    std::size_t offset = address - recent.begin;
    if (how.orders || looks_closely_ || recent.code != code || address % how.alignment ||
        offset > recent.last)
        return look_at(address, bytes, how, code);
    if (recent.cell_bytes != bytes || (how.alignment != bytes && offset % bytes))
        return access_other(address, bytes, how, code);
    if (how.kind == AccessKind::load) {
        if (!recent.shared && seems_filled(address, bytes, how.alignment))
            return look_at(address, bytes, how, code);
        if (recent.free_to_read) return;
    }
    if (!passes(recent.cells[offset / bytes], mark(recent), how.kind, recent.shared))
        look_at(address, bytes, how, code);
}

inline bool Checker::seems_filled(std::uintptr_t address, unsigned bytes, unsigned alignment) {
    std::uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const void*>(address), bytes < 8 ? bytes : 8);
    std::uint64_t digits = bytes < 8 ? (std::uint64_t{1} << 8 * bytes) - 1 : ~std::uint64_t{0};
    if (alignment % 2 == 0) {  // faster: look for what all pairs of its bytes have
        constexpr std::uint64_t ALL = 0x7fc0'7fc0'7fc0'7fc0;
        static_assert((UNWRITTEN & ALL) == ALL);
        return (word & ALL & digits) == (ALL & digits);
    }
    return word == (filled_from(address, UNWRITTEN) & digits);
}

// Whether an access is right, as it is seen from times alone; if so, it is marked. What does not
// pass is looked at again, in all detail.
inline bool Checker::passes(Cell cell, Mark mine, AccessKind kind, bool shared) {
    if (kind == AccessKind::atomic) return false;
    auto is_over = [this, mine](Mark mark) __attribute__((always_inline)) {
        return clocks_.is_over(mark) || mark.same_time_and_thread(mine);
    };
    auto is_gone = [=](Mark mark) __attribute__((always_inline)) {  // over, or of a block that is
        return !mark.bits || is_over(mark) || (shared && !mark.same_block(mine));
    };
    // If the latest mark is just this one, who came since then has been found to race. (Not at a
    // compare-and-swap, which may follow a read.)
    Mark write = load(cell.write());
    if (kind == AccessKind::store && write.bits == mine.bits) return true;
    Mark read = load(cell.read());
    if (kind == AccessKind::load) {
        if (read.bits == mine.bits && !write.is_special()) return true;
        if (write.bits ? !is_over(write) || write.is_special() : shared) return false;
        if (is_gone(read)) {
            store(cell.read(), mine);
            return true;
        }
        // Two readers of different warps are enough: whoever writes now races with one of them.
        Mark other = load(cell.other_read());
        bool enough = read.when() == mine.when() && other.when() == mine.when() &&
                      (read.thread() ^ other.thread()) >= WARP_SIZE;
        if (!enough) store(cell.other_read(), mine);
        return true;
    }
    Mark other = load(cell.other_read());
    if (!is_gone(write) || !is_gone(read) || !is_gone(other) || write.is_special()) return false;
    store(cell.write(), mine);
    return true;
}

}  // namespace cuda_on_cpu
