// cvt: from one type to another, with a rounding.
#pragma once
#include "arithmetic.h"

namespace cuda_on_cpu::ptx {

template <class T>
constexpr bool is_floating = !std::is_integral_v<T>;

// What a floating-point number is rounded to before it becomes an integer.
inline double rni(double x) { return nearbyint(x); }
inline double rzi(double x) { return trunc(x); }
inline double rmi(double x) { return floor(x); }
inline double rpi(double x) { return ceil(x); }

template <class To, class From>
inline To clamp_to(From x) {
    if constexpr (sizeof(To) >= 4) {
        return to_integer<To>(x);
    } else {
        constexpr auto LOW = std::numeric_limits<To>::min(), HIGH = std::numeric_limits<To>::max();
        if (x != x) return sizeof(From) == 8 ? To(1 << (sizeof(To) * 8 - 1)) : To(0);
        return x < LOW ? LOW : x > HIGH ? HIGH : To(x);
    }
}

template <class To, class From>
inline To convert(From x) {
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) return clamp_to<To>(x);
    else if constexpr (is_floating<From> && std::is_integral_v<To>) return clamp_to<To>(float(x));
    else if constexpr (sizeof(To) == 2 && is_floating<To> && sizeof(From) >= 4)
        return To(round_to_odd(double(x)));
    else return To(x);
}
template <class To, class From>
inline To convert_saturated(From x) {  // .sat: integers clamp to the type, others to 0 to 1
    if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
        using Limits = std::numeric_limits<To>;
        constexpr auto LOW = (cuda_on_cpu_int128)Limits::min();
        constexpr auto HIGH = (cuda_on_cpu_int128)Limits::max();
        auto wide = (cuda_on_cpu_int128)x;
        return To(wide < LOW ? LOW : wide > HIGH ? HIGH : wide);
    } else if constexpr (std::is_integral_v<To>) {
        return convert<To>(x);
    } else {
        return To(x > 0 ? (x < 1 ? float(x) : 1.0f) : 0.0f);
    }
}
template <class To, class From>
inline To convert_rounded(int mode, From x) {
    return rounded(mode, [](From x) { return To(x); }, x);
}
template <class To>
inline To towards_zero(double x) {  // .rz to a 16-bit number
    To nearest{float(round_to_odd(x))};
    if (fabs(double(float(nearest))) > fabs(x)) nearest.bits--;
    return nearest;
}
inline B32 tf32(float x) {  // rna: to nearest, ties away from zero
    B32 bits = as<B32>(x);
    return (bits & 0x7fffffff) > 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000u;
}
// The first operand goes into the upper half.
template <class T>
inline Pair<T> pair(float high, float low) { return {T(low), T(high)}; }
template <Float8 Kind>
inline B16 float8_pair(float high, float low) {
    return B16(float8_bits(high, Kind, true) << 8 | float8_bits(low, Kind, true));
}
template <Float8 Kind>
inline Pair<Half> from_float8_pair(B16 bits) {
    return {float8_to_float(B8(bits), Kind), float8_to_float(B8(bits >> 8), Kind)};
}

}  // namespace cuda_on_cpu::ptx
