// What the 32 threads of a warp do together: shuffles, votes, matches, reductions.
//
// Every lane that the mask names has to come; each then gets its own result (runtime/warp.cpp).
#pragma once
#include <cstring>
#include <type_traits>

#include "runtime.h"

static constexpr int warpSize = cuda_on_cpu::WARP_SIZE;

namespace cuda_on_cpu {

inline unsigned lane() { return position.thread % warpSize; }

template <class T>
inline std::uint64_t to_bits(const T& value) {
    static_assert(sizeof(T) <= 8, "a warp exchanges values of at most 8 bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
inline T from_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
inline T shuffle(unsigned mask, const T& value, int source, int line) {
    return from_bits<T>(
        warp_operation(WarpOperation::shuffle, mask, to_bits(value), source, line));
}

// Values of any size, eight bytes at a time.
template <class T>
inline T shuffle_any(unsigned mask, const T& value, int source, int line) {
    static_assert(std::is_trivially_copyable<T>::value, "a shuffle copies bytes");
    T result;
    for (std::size_t at = 0; at < sizeof(T); at += 8) {
        std::size_t bytes = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
        std::uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char*>(&value) + at, bytes);
        word = shuffle(mask, word, source, line);
        std::memcpy(reinterpret_cast<char*>(&result) + at, &word, bytes);
    }
    return result;
}

// The first lane of the part of the warp, `width` lanes wide, that the running lane belongs to.
inline int part_begin(int width) { return int(lane()) & ~(width - 1); }

}  // namespace cuda_on_cpu

inline void __syncwarp(unsigned mask = 0xffffffff, int line = __builtin_LINE()) {
    cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::sync, mask, 0, 0, line);
}

// A source outside the lane's own part of the warp means the lane itself.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
                     int line = __builtin_LINE()) {
    int begin = cuda_on_cpu::part_begin(width);
    return cuda_on_cpu::shuffle(mask, value, begin + (source & (width - 1)), line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                        int line = __builtin_LINE()) {
    int lane = cuda_on_cpu::lane(), source = lane - int(delta);
    if (source < cuda_on_cpu::part_begin(width)) source = lane;
    return cuda_on_cpu::shuffle(mask, value, source, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                          int line = __builtin_LINE()) {
    int lane = cuda_on_cpu::lane(), source = lane + int(delta);
    if (source >= cuda_on_cpu::part_begin(width) + width) source = lane;
    return cuda_on_cpu::shuffle(mask, value, source, line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                         int line = __builtin_LINE()) {
    int lane = cuda_on_cpu::lane(), source = lane ^ lane_mask;
    if (source >= cuda_on_cpu::part_begin(width) + width) source = lane;
    return cuda_on_cpu::shuffle(mask, value, source, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return unsigned(cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::ballot, mask,
                                                predicate != 0, 0, line));
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return int(cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::all, mask, predicate != 0, 0,
                                           line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return int(cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::any, mask, predicate != 0, 0,
                                           line));
}
inline unsigned __activemask(int line = __builtin_LINE()) {
    return unsigned(
        cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::converge, 0, 0, 0, line));
}

// The lanes that hold the same value as this one.
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    return unsigned(cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::match_any, mask,
                                                cuda_on_cpu::to_bits(value), 0, line));
}
// All lanes, if they all hold the same value, and 0 otherwise.
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate,
                                 int line = __builtin_LINE()) {
    unsigned same = unsigned(cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::match_all, mask,
                                                         cuda_on_cpu::to_bits(value), 0, line));
    *predicate = same != 0;
    return same;
}

#define CUDA_ON_CPU_REDUCE(NAME, T, OPERATION)                                           \
    inline T NAME(unsigned mask, T value, int line = __builtin_LINE()) {                 \
        return T(cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::OPERATION, mask, \
                                             unsigned(value), 0, line));                 \
    }
CUDA_ON_CPU_REDUCE(__reduce_add_sync, unsigned, add)
CUDA_ON_CPU_REDUCE(__reduce_add_sync, int, add)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, int, min_signed)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, int, max_signed)
CUDA_ON_CPU_REDUCE(__reduce_and_sync, unsigned, bit_and)
CUDA_ON_CPU_REDUCE(__reduce_or_sync, unsigned, bit_or)
CUDA_ON_CPU_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef CUDA_ON_CPU_REDUCE
