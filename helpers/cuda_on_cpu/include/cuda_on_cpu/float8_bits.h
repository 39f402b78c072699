// How 8-bit floating-point numbers are stored. E4M3: 4 exponent bits, 3 mantissa bits, up to 448, no
// infinity. E5M2: 5 and 2, up to 57344: the upper half of a half.
#pragma once
#include "small_floats.h"

namespace cuda_on_cpu {

enum class Float8 { e4m3, e5m2 };

// To nearest, ties to even. What is too large becomes the largest number (`saturates`), or else a
// NaN (E4M3) or infinity (E5M2).
inline unsigned char float8_bits(double x, Float8 kind, bool saturates) {
    const int mantissa = kind == Float8::e4m3 ? 3 : 2, least = kind == Float8::e4m3 ? -6 : -14;
    const unsigned largest = kind == Float8::e4m3 ? 0x7e : 0x7b;
    const double most = kind == Float8::e4m3 ? 448 : 57344;
    unsigned sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) return 0x7f;
    x = fabs(x);
    int exponent = x == 0 ? least : ilogb(x) < least || isinf(x) ? least : ilogb(x);
    double unit = ldexp(1.0, exponent - mantissa);  // of the last bit
    double rounded = isinf(x) ? x : nearbyint(x / unit) * unit;
    if (rounded > most) {
        if (saturates) return (unsigned char)(sign | largest);
        return (unsigned char)(sign | (kind == Float8::e4m3 ? 0x7f : 0x7c));
    }
    if (rounded < ldexp(1.0, least))  // subnormal: a number of units
        return (unsigned char)(sign | unsigned(rounded / unit));
    exponent = ilogb(rounded);
    unsigned fraction = unsigned(ldexp(rounded, mantissa - exponent)) - (1u << mantissa);
    return (unsigned char)(sign | unsigned(exponent - least + 1) << mantissa | fraction);
}

inline float float8_to_float(unsigned char bits, Float8 kind) {
    if (kind == Float8::e5m2) return half_to_float((unsigned short)(bits << 8));
    if ((bits & 0x7f) == 0x7f) return NAN;
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    float value = exponent ? ldexpf(float(8 + fraction), exponent - 10) : ldexpf(float(fraction), -9);
    return bits & 0x80 ? -value : value;
}

}  // namespace cuda_on_cpu
