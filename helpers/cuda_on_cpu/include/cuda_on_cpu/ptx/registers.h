// Between the operands of an asm statement and registers; and the special registers.
#pragma once
#include <cstring>
#include <type_traits>

#include "../device.h"
#include "../runtime.h"
#include "../warp.h"

namespace cuda_on_cpu::ptx {

using namespace cuda_on_cpu;  // so that a name of that namespace can be told as one of this

using B8 = std::uint8_t;
using B16 = std::uint16_t;
using B32 = std::uint32_t;
using B64 = std::uint64_t;

// The operand's bits, in a register of the size that its constraint ("r", "l", "f" ...) names.
template <class Bits, class T>
inline Bits get(T operand) {
    if constexpr (std::is_pointer_v<T>) {
        return Bits(reinterpret_cast<std::uintptr_t>(operand));
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        return Bits(operand);
    } else {
        static_assert(sizeof(T) == sizeof(Bits), "an operand of asm has the size of its constraint");
        Bits bits;
        std::memcpy(&bits, &operand, sizeof bits);
        return bits;
    }
}
template <class T, class Bits>
inline void put(T& operand, Bits bits) {
    if constexpr (std::is_pointer_v<T>) {
        operand = reinterpret_cast<T>(std::uintptr_t(bits));
    } else if constexpr (std::is_integral_v<T>) {
        operand = T(bits);
    } else {
        static_assert(sizeof(T) == sizeof(Bits), "an operand of asm has the size of its constraint");
        std::memcpy(static_cast<void*>(&operand), &bits, sizeof bits);
    }
}

// A register's bits as an instruction's type. A larger register gives its lower bits.
template <class T, class Bits>
inline T as(Bits bits) {
    static_assert(sizeof(T) <= sizeof(Bits), "this register is too small for the instruction");
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return value;
}
// An instruction's result into a register, which may be larger.
template <class Bits, class T>
inline void set(Bits& to, T value) {
    static_assert(sizeof(T) <= sizeof(Bits), "this register is too small for the result");
    if constexpr (std::is_integral_v<T>) {
        to = Bits(value);
    } else {
        to = 0;
        std::memcpy(&to, &value, sizeof value);
    }
}

// Several registers as one, the first in the lowest bits; and back.
template <std::size_t Bytes>
using Bits = std::conditional_t<Bytes == 8, B64, std::conditional_t<Bytes == 4, B32, B16>>;
template <class First, class... Others>
inline auto pack(First first, Others... others) {
    using All = Bits<sizeof(First) * (1 + sizeof...(others))>;
    const First parts[] = {first, First(others)...};
    All all = 0;
    std::memcpy(&all, parts, sizeof all);
    return all;
}
template <class All, class... Parts>
inline void unpack(All all, Parts&... parts) {
    ((parts = Parts(all), all = All(B64(all) >> sizeof(Parts) * 8 % 64)), ...);
}

inline unsigned lanes_below() { return (1u << lane()) - 1; }
inline unsigned block_number() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
inline unsigned multiprocessor() { return block_number() % MULTIPROCESSORS; }
inline B64 clock() { return B64(clock64()); }  // nanoseconds
inline unsigned warps() { return (blockDim.x * blockDim.y * blockDim.z + 31) / 32; }

}  // namespace cuda_on_cpu::ptx
