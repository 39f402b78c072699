// What g++ and clang call in a checked build (-fsanitize=thread, -fsanitize=alignment,
// -fsanitize=bounds, -fsanitize-coverage=trace-pc): before every access, at every function's begin
// and end, in every basic block. Outside a checked kernel (the same file has host code) nothing is
// done.
//
// The names are the sanitizers' own. Their runtimes are not linked: these functions stand for them.
#include <algorithm>
#include <utility>

#include "../include/cuda_on_cpu/check.h"
#include "checker.h"
#include "stream_order.h"

using namespace cuda_on_cpu;

#define HOOK extern "C" CUDA_ON_CPU_API
#define CALLER __builtin_return_address(0)

// ---------------------------------------------------------------- accesses

[[gnu::always_inline]] static inline void tell(const void* address, std::size_t bytes, How how,
                                               const void* code) {
    if (Checker* checker = checker_here)
        checker->access(std::uintptr_t(address), unsigned(bytes), how, code);
    else if (host_must_wait)
        note_host_access(address, bytes, how.kind == AccessKind::store, code);
}

static constexpr AccessKind LOAD = AccessKind::load, STORE = AccessKind::store;

// An access of a type that is aligned to its size, or to eight bytes: a float4 or two doubles.
static constexpr How aligned(unsigned bytes, AccessKind kind, bool orders = false) {
    return {kind, (unsigned char)(bytes < 8 ? bytes : 8), orders};
}
static constexpr How unaligned(AccessKind kind, bool orders = false) { return {kind, 1, orders}; }

#define ACCESS(NAME, N, HOW) HOOK void __tsan_##NAME##N(void* p) { tell(p, N, HOW, CALLER); }
#define LOAD_AND_STORE(NAME, N, LOADS, STORES)                                                     \
    HOOK void __tsan_##NAME##N(void* p) {                                                          \
        tell(p, N, LOADS, CALLER);                                                                 \
        tell(p, N, STORES, CALLER);                                                                \
    }
#define ACCESSES(N)                                                                                \
    ACCESS(read, N, aligned(N, LOAD))                                                              \
    ACCESS(write, N, aligned(N, STORE))                                                            \
    ACCESS(volatile_read, N, aligned(N, LOAD, true))                                               \
    ACCESS(volatile_write, N, aligned(N, STORE, true))                                             \
    ACCESS(unaligned_read, N, unaligned(LOAD))                                                     \
    ACCESS(unaligned_write, N, unaligned(STORE))                                                   \
    ACCESS(unaligned_volatile_read, N, unaligned(LOAD, true))                                      \
    ACCESS(unaligned_volatile_write, N, unaligned(STORE, true))                                    \
    LOAD_AND_STORE(read_write, N, aligned(N, LOAD), aligned(N, STORE))                             \
    LOAD_AND_STORE(unaligned_read_write, N, unaligned(LOAD), unaligned(STORE))
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

// Of any number of bytes.
static void tell_of_any(const void* address, std::size_t bytes, AccessKind kind, const void* code) {
    Checker* checker = checker_here;
    if (checker && bytes) checker->look_at(std::uintptr_t(address), unsigned(bytes), {kind}, code);
    if (!checker && host_must_wait) note_host_access(address, bytes, kind == AccessKind::store, code);
}
HOOK void __tsan_read_range(void* p, std::size_t n) { tell_of_any(p, n, LOAD, CALLER); }
HOOK void __tsan_write_range(void* p, std::size_t n) { tell_of_any(p, n, STORE, CALLER); }

HOOK void* __tsan_memcpy(void* to, const void* from, std::size_t n) {
    tell_of_any(from, n, LOAD, CALLER);
    tell_of_any(to, n, STORE, CALLER);
    return std::memcpy(to, from, n);
}
HOOK void* __tsan_memmove(void* to, const void* from, std::size_t n) {
    tell_of_any(from, n, LOAD, CALLER);
    tell_of_any(to, n, STORE, CALLER);
    return std::memmove(to, from, n);
}
HOOK void* __tsan_memset(void* to, int value, std::size_t n) {
    tell_of_any(to, n, STORE, CALLER);
    return std::memset(to, value, n);
}

HOOK void __tsan_init() {}
HOOK void __tsan_vptr_read(void**) {}
HOOK void __tsan_vptr_update(void**, void*) {}

// The same accesses once more, so that clang takes none for the function's own: see build.py.
#define COVERED(N)                                                                                 \
    HOOK void __sanitizer_cov_load##N(void*) {}                                                    \
    HOOK void __sanitizer_cov_store##N(void*) {}
COVERED(1)
COVERED(2)
COVERED(4)
COVERED(8)
COVERED(16)

// The atomics of CUDA tell of themselves (check.h). The compiler's are only carried out.
#define ATOMICS(BITS)                                                                              \
    using Word##BITS = std::uint##BITS##_t;                                                        \
    HOOK Word##BITS __tsan_atomic##BITS##_load(const Word##BITS* p, int) {                         \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    HOOK void __tsan_atomic##BITS##_store(Word##BITS* p, Word##BITS v, int) {                      \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    ATOMIC_CHANGE(BITS, exchange, __atomic_exchange_n)                                             \
    ATOMIC_CHANGE(BITS, fetch_add, __atomic_fetch_add)                                             \
    ATOMIC_CHANGE(BITS, fetch_sub, __atomic_fetch_sub)                                             \
    ATOMIC_CHANGE(BITS, fetch_and, __atomic_fetch_and)                                             \
    ATOMIC_CHANGE(BITS, fetch_or, __atomic_fetch_or)                                               \
    ATOMIC_CHANGE(BITS, fetch_xor, __atomic_fetch_xor)                                             \
    ATOMIC_CHANGE(BITS, fetch_nand, __atomic_fetch_nand)                                           \
    HOOK int __tsan_atomic##BITS##_compare_exchange_strong(Word##BITS* p, Word##BITS* expected,    \
                                                           Word##BITS v, int, int) {               \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                      \
    }                                                                                              \
    HOOK int __tsan_atomic##BITS##_compare_exchange_weak(Word##BITS* p, Word##BITS* expected,      \
                                                         Word##BITS v, int, int) {                 \
        return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST,                 \
                                           __ATOMIC_SEQ_CST);                                      \
    }                                                                                              \
    HOOK Word##BITS __tsan_atomic##BITS##_compare_exchange_val(Word##BITS* p, Word##BITS expected, \
                                                               Word##BITS v, int, int) {           \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
        return expected;                                                                           \
    }
#define ATOMIC_CHANGE(BITS, NAME, BUILTIN)                                                         \
    HOOK Word##BITS __tsan_atomic##BITS##_##NAME(Word##BITS* p, Word##BITS v, int) {               \
        return BUILTIN(p, v, __ATOMIC_SEQ_CST);                                                    \
    }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
HOOK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HOOK void __tsan_atomic_signal_fence(int) {}

// ---------------------------------------------------------------- places

HOOK void __tsan_func_entry(void* call) {
    if (Checker* checker = checker_here) checker->enter_function(call);
}
HOOK void __tsan_func_exit() {
    if (Checker* checker = checker_here) checker->leave_function();
}
HOOK void __sanitizer_cov_trace_pc() {
    if (Checker* checker = checker_here) checker->executed(CALLER);
}

// ---------------------------------------------------------------- types

struct Type {
    std::uint16_t kind, info;
    char name[1];  // 'float [16]'
};

// What the compiler tells of a pointer to a type that it is not aligned for.
struct Pointer {
    const char* file;
    std::uint32_t line, column;
    const Type* type;
    unsigned char log_alignment, use;
};
HOOK void __ubsan_handle_type_mismatch_v1(void* data, void* address) {
    Checker* checker = checker_here;
    if (!checker) return;
    // A GPU moves no more at once, and an array need not begin at multiples of more here.
    constexpr unsigned char LARGEST_VECTOR = 4;
    // A reference is bound mostly to copy from it. Other uses, a member say, tell of themselves.
    enum Use : unsigned char { LOADS, STORES, BINDS };
    auto* pointer = static_cast<const Pointer*>(data);
    unsigned bytes = 1u << std::min(pointer->log_alignment, LARGEST_VECTOR);
    if (pointer->use > BINDS || std::uintptr_t(address) % bytes == 0) return;
    AccessKind kind = pointer->use == STORES ? STORE : LOAD;
    checker->misaligned(std::uintptr_t(address), bytes, kind, CALLER);
}

// What the compiler tells about `a[i]`.
struct IndexedArray {
    const char* file;
    std::uint32_t line, column;
    const Type *array, *index;
};
// Such an index is given as its value, as the array is never larger than a 64-bit number tells.
HOOK void __ubsan_handle_out_of_bounds(void* data, void* index) {
    if (Checker* checker = checker_here) {
        auto* indexed = static_cast<const IndexedArray*>(data);
        checker->index_out_of_bounds(int(indexed->line), std::intptr_t(index), indexed->array->name);
    }
}
HOOK void __ubsan_handle_out_of_bounds_abort(void* data, void* index) {
    __ubsan_handle_out_of_bounds(data, index);
}

// Where the processor does not trap, the compiler asks.
HOOK void __ubsan_handle_divrem_overflow(void* data, void*, void*) {
    if (!checker_here) return;
    Quiet quiet;
    int line = int(static_cast<IndexedArray*>(data)->line);
    Multiprocessor::running()->fail_at(line, {}, "integer division by zero.");
}
HOOK void __ubsan_handle_divrem_overflow_abort(void* data, void* a, void* b) {
    __ubsan_handle_divrem_overflow(data, a, b);
}

// ---------------------------------------------------------------- check.h's

namespace cuda_on_cpu {

Loop::Loop() {
    Checker* checker = checker_here;
    outside_ = checker ? checker->place() : 0;
    inside_ = mix(outside_, std::uint64_t(CALLER));
}

Loop::~Loop() {
    if (Checker* checker = checker_here) checker->place() = outside_;
}

bool Loop::once() {
    if (!std::exchange(begun_, true)) return true;
    if (Checker* checker = checker_here) checker->place() = outside_;  // lanes come together
    return false;
}

void Loop::iterate() {
    if (Checker* checker = checker_here) checker->place() = mix(inside_, ++iterations_);
}

void name_array(const DeclaredArray& array) {
    if (Checker* checker = checker_here) checker->name_array(array);
}

void declare_local(const DeclaredArray& variable, std::size_t number_bytes) {
    if (Checker* checker = checker_here)
        checker->locals().declare(variable, number_bytes, position.thread);
}

bool is_unset(const volatile void* variable, std::size_t bytes) {
    Checker* checker = checker_here;
    return checker && checker->locals().is_unset(std::uintptr_t(variable), bytes);
}

void set_local(const volatile void* variable, std::size_t bytes) {
    if (Checker* checker = checker_here) checker->locals().set(std::uintptr_t(variable), bytes);
}

void report_received() {
    if (Checker* checker = checker_here) checker->report_unset(0, 0, CALLER);
}

void record_atomic(const void* address, std::size_t bytes, AtomicKind atomic, Scope scope) {
    if (Checker* checker = checker_here)
        checker->access(std::uintptr_t(address), unsigned(bytes),
                        {AccessKind::atomic, 1, true, atomic, scope}, CALLER);
}

void record_acquire() {
    if (Checker* checker = checker_here) checker->acquire();
}

void record_acquired() {
    if (Checker* checker = checker_here) checker->acquired();
}

void record_fence(Scope scope) {
    if (Checker* checker = checker_here) checker->fence(scope);
}

}  // namespace cuda_on_cpu
