// Atomics: read, change and write back as one step that no other thread can come between.
//
// There is an overload for exactly the types that CUDA has one for, so that a string which
// compiles here compiles under nvcc: int64_t, say, is `long` and has to be cast.
#pragma once
#include <cstring>
#include <type_traits>

#include "check.h"
#include "runtime.h"

namespace cuda_on_cpu {

template <class T>
using Word = std::conditional_t<
    sizeof(T) == 8, unsigned long long,
    std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;

template <class To, class From>
CUDA_ON_CPU_UNCHECKED inline To reinterpret_bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "a reinterpreted value keeps its size");
    To to;
    std::memcpy(static_cast<void*>(&to), &from, sizeof(To));
    return to;
}

// *address = change(*address); returns the old value. Tries again if another thread was faster.
template <class T, class Change>
CUDA_ON_CPU_UNCHECKED inline T change_in_one_step(T* address, Change change) {
    if (--position.patience == 0) yield();
    auto* word = reinterpret_cast<Word<T>*>(address);
    Word<T> old = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        T value = reinterpret_bits<T>(old);
        if (__atomic_compare_exchange_n(word, &old, reinterpret_bits<Word<T>>(T(change(value))),
                                        true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return value;
    }
}

template <class T>
CUDA_ON_CPU_UNCHECKED inline T compare_and_swap_in_one_step(T* address, T expected, T desired) {
    if (--position.patience == 0) yield();
    auto* word = reinterpret_cast<Word<T>*>(address);
    auto old = reinterpret_bits<Word<T>>(expected);
    __atomic_compare_exchange_n(word, &old, reinterpret_bits<Word<T>>(desired), false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return reinterpret_bits<T>(old);
}

// To the checks an atomic is one access, of the line that calls it.
template <class T, class Change>
CUDA_ON_CPU_INLINE T atomic_change(T* address, Change change, Scope scope = Scope::device) {
    note_atomic(address, sizeof(T), AtomicKind::update, scope);
    T old = change_in_one_step(address, change);
    note_acquire();
    return old;
}
template <class T>
CUDA_ON_CPU_INLINE T atomic_exchange(T* address, T value, Scope scope = Scope::device) {
    note_atomic(address, sizeof(T), AtomicKind::exchange, scope);
    T old = change_in_one_step(address, [value](T) CUDA_ON_CPU_UNCHECKED { return value; });
    note_acquire();
    return old;
}
template <class T>
CUDA_ON_CPU_INLINE T atomic_compare_and_swap(T* address, T expected, T desired,
                                             Scope scope = Scope::device) {
    note_atomic(address, sizeof(T), AtomicKind::compare_and_swap, scope);
    T old = compare_and_swap_in_one_step(address, expected, desired);
    note_acquire();
    return old;
}

}  // namespace cuda_on_cpu

// _block and _system say how many threads have to see the step as one. Here all always do, so a
// checked build tells of an atomic of a block that another block meets.
#define CUDA_ON_CPU_ATOMIC_OF(SCOPE, NAME, T, EXPRESSION)                                   \
    CUDA_ON_CPU_INLINE T NAME(T* address, T value) {                                        \
        return cuda_on_cpu::atomic_change(                                                  \
            address, [value](T old) CUDA_ON_CPU_UNCHECKED { return EXPRESSION; },           \
            cuda_on_cpu::Scope::SCOPE);                                                     \
    }
#define CUDA_ON_CPU_ATOMIC(NAME, T, EXPRESSION)                                             \
    CUDA_ON_CPU_ATOMIC_OF(device, NAME, T, EXPRESSION)                                      \
    CUDA_ON_CPU_ATOMIC_OF(block, NAME##_block, T, EXPRESSION)                               \
    CUDA_ON_CPU_ATOMIC_OF(device, NAME##_system, T, EXPRESSION)

#define CUDA_ON_CPU_ATOMIC_INTEGERS(NAME, EXPRESSION)           \
    CUDA_ON_CPU_ATOMIC(NAME, int, EXPRESSION)                   \
    CUDA_ON_CPU_ATOMIC(NAME, unsigned, EXPRESSION)              \
    CUDA_ON_CPU_ATOMIC(NAME, unsigned long long, EXPRESSION)

CUDA_ON_CPU_ATOMIC_INTEGERS(atomicAdd, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, float, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, double, old + value)
CUDA_ON_CPU_ATOMIC(atomicSub, int, old - value)
CUDA_ON_CPU_ATOMIC(atomicSub, unsigned, old - value)
CUDA_ON_CPU_ATOMIC_INTEGERS(atomicMin, value < old ? value : old)
CUDA_ON_CPU_ATOMIC(atomicMin, long long, value < old ? value : old)
CUDA_ON_CPU_ATOMIC_INTEGERS(atomicMax, old < value ? value : old)
CUDA_ON_CPU_ATOMIC(atomicMax, long long, old < value ? value : old)
CUDA_ON_CPU_ATOMIC_INTEGERS(atomicAnd, old & value)
CUDA_ON_CPU_ATOMIC_INTEGERS(atomicOr, old | value)
CUDA_ON_CPU_ATOMIC_INTEGERS(atomicXor, old ^ value)
CUDA_ON_CPU_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1)
CUDA_ON_CPU_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#undef CUDA_ON_CPU_ATOMIC_INTEGERS

#define CUDA_ON_CPU_EXCHANGE(T)                                                                  \
    CUDA_ON_CPU_INLINE T atomicExch(T* address, T value) {                                       \
        return cuda_on_cpu::atomic_exchange(address, value);                                     \
    }                                                                                            \
    CUDA_ON_CPU_INLINE T atomicExch_block(T* address, T value) {                                 \
        return cuda_on_cpu::atomic_exchange(address, value, cuda_on_cpu::Scope::block);          \
    }                                                                                            \
    CUDA_ON_CPU_INLINE T atomicExch_system(T* address, T value) {                                \
        return atomicExch(address, value);                                                       \
    }
CUDA_ON_CPU_EXCHANGE(int)
CUDA_ON_CPU_EXCHANGE(unsigned)
CUDA_ON_CPU_EXCHANGE(unsigned long long)
CUDA_ON_CPU_EXCHANGE(float)
#undef CUDA_ON_CPU_EXCHANGE

#define CUDA_ON_CPU_CAS(T)                                                                         \
    CUDA_ON_CPU_INLINE T atomicCAS(T* address, T expected, T desired) {                                        \
        return cuda_on_cpu::atomic_compare_and_swap(address, expected, desired);                   \
    }                                                                                              \
    CUDA_ON_CPU_INLINE T atomicCAS_block(T* address, T expected, T desired) {                                  \
        return cuda_on_cpu::atomic_compare_and_swap(address, expected, desired,                    \
                                                    cuda_on_cpu::Scope::block);                    \
    }                                                                                              \
    CUDA_ON_CPU_INLINE T atomicCAS_system(T* address, T expected, T desired) {                                 \
        return atomicCAS(address, expected, desired);                                              \
    }
CUDA_ON_CPU_CAS(int)
CUDA_ON_CPU_CAS(unsigned)
CUDA_ON_CPU_CAS(unsigned long long)
CUDA_ON_CPU_CAS(unsigned short)
#undef CUDA_ON_CPU_CAS

// A vector is added component by component; only each component is one step, as on the GPU.
#define CUDA_ON_CPU_ATOMIC_VECTOR(T, ...)                                                   \
    CUDA_ON_CPU_INLINE T atomicAdd(T* address, T value) { return T{__VA_ARGS__}; }                      \
    CUDA_ON_CPU_INLINE T atomicAdd_block(T* address, T value) { return atomicAdd(address, value); }     \
    CUDA_ON_CPU_INLINE T atomicAdd_system(T* address, T value) { return atomicAdd(address, value); }
CUDA_ON_CPU_ATOMIC_VECTOR(float2, atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y))
CUDA_ON_CPU_ATOMIC_VECTOR(float3, atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y),
                          atomicAdd(&address->z, value.z))
CUDA_ON_CPU_ATOMIC_VECTOR(float4, atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y),
                          atomicAdd(&address->z, value.z), atomicAdd(&address->w, value.w))

// What one thread writes before a fence, another that sees a later write of it sees as well.
namespace cuda_on_cpu {
inline void acquired() {  // behind a load that acquires
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    note_acquired();
}
inline void fence(Scope scope) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    note_fence(scope);
    if (--position.patience == 0) yield();
}
}  // namespace cuda_on_cpu
inline void __threadfence() { cuda_on_cpu::fence(cuda_on_cpu::Scope::device); }
inline void __threadfence_block() { cuda_on_cpu::fence(cuda_on_cpu::Scope::block); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { cuda_on_cpu::yield(); }
