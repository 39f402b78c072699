// Loads, stores, atomics, copies and fences.
#pragma once
#include "../async_copy.h"
#include "../atomics.h"
#include "../shared_address.h"
#include "../volatile.h"
#include "arithmetic.h"
#include "registers.h"

namespace cuda_on_cpu::ptx {

// A register with an address: of all memory in 64 bits, of shared memory in 32.
inline char* generic(B64 address) { return reinterpret_cast<char*>(address); }
inline char* shared(B64 address) { return static_cast<char*>(from_shared(B32(address))); }

template <std::size_t Bytes>
using Chunk = std::conditional_t<
    Bytes == 16, uint4,
    std::conditional_t<Bytes == 8, unsigned long long,
                       std::conditional_t<Bytes == 4, unsigned,
                                          std::conditional_t<Bytes == 2, unsigned short, unsigned char>>>>;

// One access for all elements of a vector.
template <class T, class... Registers>
CUDA_ON_CPU_INLINE void load(const char* from, Registers&... to) {
    constexpr std::size_t COUNT = sizeof...(to);
    Chunk<sizeof(T) * COUNT> chunk = *reinterpret_cast<const Chunk<sizeof(T) * COUNT>*>(from);
    T values[COUNT];
    std::memcpy(values, &chunk, sizeof values);
    const T* next = values;
    (set(to, *next++), ...);
}
template <class T, class... Registers>
CUDA_ON_CPU_INLINE void store(char* to, Registers... from) {
    constexpr std::size_t COUNT = sizeof...(from);
    const T values[COUNT] = {as<T>(from)...};
    Chunk<sizeof(T) * COUNT> chunk;
    std::memcpy(&chunk, values, sizeof chunk);
    *reinterpret_cast<Chunk<sizeof(T) * COUNT>*>(to) = chunk;
}
// .volatile, .relaxed, .acquire and .release: other threads may look at the same memory meanwhile.
// A vector is one access, as on a GPU; that its elements come together is promised nowhere.
typedef unsigned long long TwoWords __attribute__((vector_size(16)));
template <std::size_t Bytes>
using VolatileChunk = Volatile<std::conditional_t<Bytes == 16, TwoWords, Chunk<Bytes>>>;
template <class T, class... Registers>
CUDA_ON_CPU_INLINE void load_volatile(const char* from, Registers&... to) {
    constexpr std::size_t COUNT = sizeof...(to);
    using Seen = VolatileChunk<sizeof(T) * COUNT>;
    typename Seen::Value chunk = *reinterpret_cast<const Seen*>(from);
    T values[COUNT];
    std::memcpy(values, &chunk, sizeof values);
    const T* next = values;
    (set(to, *next++), ...);
}
template <class T, class... Registers>
CUDA_ON_CPU_INLINE void store_volatile(char* to, Registers... from) {
    constexpr std::size_t COUNT = sizeof...(from);
    using Seen = VolatileChunk<sizeof(T) * COUNT>;
    const T values[COUNT] = {as<T>(from)...};
    typename Seen::Value chunk;
    std::memcpy(&chunk, values, sizeof chunk);
    *reinterpret_cast<Seen*>(to) = chunk;
}

#define CUDA_ON_CPU_PTX_ATOMIC(NAME, EXPRESSION)                                              \
    template <class T>                                                                        \
    CUDA_ON_CPU_INLINE T atom_##NAME(char* at, T value) {                                     \
        return atomic_change(reinterpret_cast<T*>(at),                                        \
                             [value](T old) CUDA_ON_CPU_UNCHECKED { return T(EXPRESSION); }); \
    }
CUDA_ON_CPU_PTX_ATOMIC(add, old + value)
CUDA_ON_CPU_PTX_ATOMIC(min, value < old ? value : old)
CUDA_ON_CPU_PTX_ATOMIC(max, old < value ? value : old)
CUDA_ON_CPU_PTX_ATOMIC(and, old & value)
CUDA_ON_CPU_PTX_ATOMIC(or, old | value)
CUDA_ON_CPU_PTX_ATOMIC(xor, old ^ value)
CUDA_ON_CPU_PTX_ATOMIC(inc, old >= value ? T(0) : T(old + 1))
CUDA_ON_CPU_PTX_ATOMIC(dec, old == 0 || old > value ? value : T(old - 1))
#undef CUDA_ON_CPU_PTX_ATOMIC
template <class T>
CUDA_ON_CPU_INLINE T atom_exch(char* at, T value) {
    return atomic_exchange(reinterpret_cast<T*>(at), value);
}
template <class T>
CUDA_ON_CPU_INLINE T atom_cas(char* at, T expected, T desired) {
    return atomic_compare_and_swap(reinterpret_cast<T*>(at), expected, desired);
}
// The parts of a pair are added one by one.
template <class T>
CUDA_ON_CPU_INLINE Pair<T> atom_add(char* at, Pair<T> value) {
    return {atom_add(at, value.low), atom_add(at + sizeof(T), value.high)};
}

CUDA_ON_CPU_INLINE void cp_async(char* to, const char* from, B64 bytes, B64 given) {
    copy_async(to, from, unsigned(bytes), unsigned(given));
}

}  // namespace cuda_on_cpu::ptx
