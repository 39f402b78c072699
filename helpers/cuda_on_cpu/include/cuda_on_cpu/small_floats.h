// How 16-bit floating-point numbers are stored, and the arithmetic that __half and __nv_bfloat16
// share. Sums and products are computed in float and rounded once more; for + - * / and sqrt that
// gives what a single rounding would, because a float has more than twice as many digits.
#pragma once
#include <math.h>

#include "atomics.h"
#include "vector_types.h"

namespace cuda_on_cpu {

// To nearest, ties to even. The last bit of an odd mantissa is kept, which is what makes a second
// rounding safe after a fused multiply-add.
inline float round_to_odd(double x) {
    float rounded = float(x);
    if (double(rounded) == x || isnan(x) || isinf(rounded)) return rounded;
    unsigned bits = reinterpret_bits<unsigned>(rounded);
    if (fabs(double(rounded)) > fabs(x)) bits--;
    return reinterpret_bits<float>(bits | 1);
}

// Where the compiler knows 16-bit floating point, a conversion is one instruction.
#if defined(__aarch64__)
#define CUDA_ON_CPU_NATIVE_HALF 1
typedef __fp16 NativeHalf;
#elif defined(__FLT16_MANT_DIG__)
#define CUDA_ON_CPU_NATIVE_HALF 1
typedef _Float16 NativeHalf;
#endif

// 1 sign bit, 5 exponent bits, 10 mantissa bits.
inline unsigned short half_bits(float x) {
#if defined(CUDA_ON_CPU_NATIVE_HALF)
    return reinterpret_bits<unsigned short>(static_cast<NativeHalf>(x));
#else
    unsigned bits = reinterpret_bits<unsigned>(x), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (unsigned short)(sign | 0x7e00 | (bits >> 13 & 0x3ff));  // NaN
    if (bits >= 0x477ff000) return (unsigned short)(sign | 0x7c00);       // rounds to infinity
    if (bits < 0x38800000) {  // subnormal: a multiple of 2^-24, which is the last bit of 0.5f
        float scaled = reinterpret_bits<float>(bits) + 0.5f;
        return (unsigned short)(sign | (reinterpret_bits<unsigned>(scaled) - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);  // to nearest, ties to even
    return (unsigned short)(sign | (bits - 0x38000000) >> 13);
#endif
}

inline float half_to_float(unsigned short half) {
#if defined(CUDA_ON_CPU_NATIVE_HALF)
    return static_cast<float>(reinterpret_bits<NativeHalf>(half));
#else
    unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00) return reinterpret_bits<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return reinterpret_bits<float>(sign | ((rest << 13) + 0x38000000));
    return reinterpret_bits<float>(sign | reinterpret_bits<unsigned>(float(rest) * 0x1p-24f));
#endif
}

// The upper half of a float.
inline unsigned short bfloat16_bits(float x) {
    unsigned bits = reinterpret_bits<unsigned>(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float bfloat16_to_float(unsigned short bfloat16) {
    return reinterpret_bits<float>((unsigned)bfloat16 << 16);
}

}  // namespace cuda_on_cpu

// What stands before what an -D of PyTorch's takes away: see COMMON_NVCC_FLAGS in its
// cpp_extension.py.
#define CUDA_ON_CPU_NO_OPERATOR(TYPE, INSTEAD, WORD)                                              \
    CUDA_ON_CPU_NOT_FOR_DEVICE("PyTorch tells nvcc to do without the operators of " TYPE          \
                               ": write " INSTEAD ", or compile_cuda(src, flags=['-U" WORD "'])")
#define CUDA_ON_CPU_NO_CONVERSION(TYPE, INSTEAD, WORD)                                            \
    CUDA_ON_CPU_NOT_FOR_DEVICE("PyTorch tells nvcc to convert " TYPE " only by name: write "      \
                               INSTEAD ", or compile_cuda(src, flags=['-U" WORD "'])")

// Defines the type T (stored in 16 bits), T##2 (a pair), and their operators. CONVERSION, OPERATOR
// and PAIR_OPERATOR stand before what PyTorch's flags for nvcc take away.
#define CUDA_ON_CPU_SMALL_FLOAT(T, T_RAW, PAIR, PAIR_RAW, TO_BITS, TO_FLOAT, CONVERSION, OPERATOR, \
                                PAIR_OPERATOR)                                                  \
    struct T_RAW { unsigned short x; };                                                         \
    struct alignas(4) PAIR_RAW { unsigned short x, y; };                                        \
    struct T {                                                                                  \
        unsigned short __x;                                                                     \
        T() = default;                                                                          \
        T(const T_RAW& raw) : __x(raw.x) {}                                                     \
        CONVERSION T(float x) : __x(TO_BITS(x)) {}                                              \
        CONVERSION T(double x) : __x(TO_BITS(cuda_on_cpu::round_to_odd(x))) {}                  \
        CONVERSION T(int x) : T(double(x)) {}                                                   \
        CONVERSION T(unsigned x) : T(double(x)) {}                                              \
        CONVERSION T(long x) : T(double(x)) {}                                                  \
        CONVERSION T(unsigned long x) : T(double(x)) {}                                         \
        CONVERSION T(long long x) : T(double(x)) {}                                             \
        CONVERSION T(unsigned long long x) : T(double(x)) {}                                    \
        CONVERSION T(short x) : T(float(x)) {}                                                  \
        CONVERSION T(unsigned short x) : T(float(x)) {}                                         \
        operator T_RAW() const { return {__x}; }                                                \
        CONVERSION operator float() const { return TO_FLOAT(__x); }                             \
        CONVERSION explicit operator bool() const { return (__x & 0x7fff) != 0; }               \
        CONVERSION T& operator=(float value) { return *this = T(value); }                       \
        CONVERSION T& operator=(double value) { return *this = T(value); }                      \
        CONVERSION T& operator=(int value) { return *this = T(value); }                         \
        CONVERSION T& operator=(unsigned value) { return *this = T(value); }                    \
    };                                                                                          \
    struct alignas(4) PAIR {                                                                    \
        T x, y;                                                                                 \
        PAIR() = default;                                                                       \
        PAIR(T x, T y) : x(x), y(y) {}                                                          \
        PAIR(const PAIR_RAW& raw) : x(T_RAW{raw.x}), y(T_RAW{raw.y}) {}                         \
        operator PAIR_RAW() const { return {x.__x, y.__x}; }                                    \
    };                                                                                          \
    OPERATOR inline T operator+(T a, T b) { return T(float(a) + float(b)); }                    \
    OPERATOR inline T operator-(T a, T b) { return T(float(a) - float(b)); }                    \
    OPERATOR inline T operator*(T a, T b) { return T(float(a) * float(b)); }                    \
    OPERATOR inline T operator/(T a, T b) { return T(float(a) / float(b)); }                    \
    OPERATOR inline T operator+(T a) { return a; }                                              \
    OPERATOR inline T operator-(T a) { return T_RAW{(unsigned short)(a.__x ^ 0x8000)}; }        \
    OPERATOR inline T& operator+=(T& a, T b) { return a = a + b; }                              \
    OPERATOR inline T& operator-=(T& a, T b) { return a = a - b; }                              \
    OPERATOR inline T& operator*=(T& a, T b) { return a = a * b; }                              \
    OPERATOR inline T& operator/=(T& a, T b) { return a = a / b; }                              \
    OPERATOR inline T& operator++(T& a) { return a = a + T(1.0f); }                             \
    OPERATOR inline T& operator--(T& a) { return a = a - T(1.0f); }                             \
    OPERATOR inline T operator++(T& a, int) { T old = a; ++a; return old; }                     \
    OPERATOR inline T operator--(T& a, int) { T old = a; --a; return old; }                     \
    OPERATOR inline bool operator==(T a, T b) { return float(a) == float(b); }                  \
    OPERATOR inline bool operator!=(T a, T b) { return float(a) != float(b); }                  \
    OPERATOR inline bool operator<(T a, T b) { return float(a) < float(b); }                    \
    OPERATOR inline bool operator>(T a, T b) { return float(a) > float(b); }                    \
    OPERATOR inline bool operator<=(T a, T b) { return float(a) <= float(b); }                  \
    OPERATOR inline bool operator>=(T a, T b) { return float(a) >= float(b); }                  \
    PAIR_OPERATOR inline PAIR operator+(PAIR a, PAIR b) { return {a.x + b.x, a.y + b.y}; }      \
    PAIR_OPERATOR inline PAIR operator-(PAIR a, PAIR b) { return {a.x - b.x, a.y - b.y}; }      \
    PAIR_OPERATOR inline PAIR operator*(PAIR a, PAIR b) { return {a.x * b.x, a.y * b.y}; }      \
    PAIR_OPERATOR inline PAIR operator/(PAIR a, PAIR b) { return {a.x / b.x, a.y / b.y}; }      \
    PAIR_OPERATOR inline PAIR operator-(PAIR a) { return {-a.x, -a.y}; }                        \
    PAIR_OPERATOR inline PAIR& operator+=(PAIR& a, PAIR b) { return a = a + b; }                \
    PAIR_OPERATOR inline PAIR& operator-=(PAIR& a, PAIR b) { return a = a - b; }                \
    PAIR_OPERATOR inline PAIR& operator*=(PAIR& a, PAIR b) { return a = a * b; }                \
    PAIR_OPERATOR inline PAIR& operator/=(PAIR& a, PAIR b) { return a = a / b; }                \
    PAIR_OPERATOR inline bool operator==(PAIR a, PAIR b) { return a.x == b.x && a.y == b.y; }   \
    PAIR_OPERATOR inline bool operator!=(PAIR a, PAIR b) { return !(a == b); }                  \
                                                                                                \
    /* _rn: never made into a fused multiply-add, which rounding in between rules out anyway */ \
    inline T __hadd(T a, T b) { return a + b; }                                                 \
    inline T __hsub(T a, T b) { return a - b; }                                                 \
    inline T __hmul(T a, T b) { return a * b; }                                                 \
    inline T __hdiv(T a, T b) { return a / b; }                                                 \
    inline T __hadd_rn(T a, T b) { return a + b; }                                              \
    inline T __hsub_rn(T a, T b) { return a - b; }                                              \
    inline T __hmul_rn(T a, T b) { return a * b; }                                              \
    inline T __hneg(T a) { return -a; }                                                         \
    inline T __habs(T a) { return T_RAW{(unsigned short)(a.__x & 0x7fff)}; }                    \
    inline T __hfma(T a, T b, T c) { return T(double(float(a)) * float(b) + float(c)); }        \
    inline T __hfma_relu(T a, T b, T c) { T r = __hfma(a, b, c); return r > T(0.0f) ? r : T(0.0f); } \
    inline T __hadd_sat(T a, T b) { return T(__saturatef(float(a) + float(b))); }               \
    inline T __hsub_sat(T a, T b) { return T(__saturatef(float(a) - float(b))); }               \
    inline T __hmul_sat(T a, T b) { return T(__saturatef(float(a) * float(b))); }               \
    inline T __hfma_sat(T a, T b, T c) { return T(__saturatef(float(__hfma(a, b, c)))); }       \
    inline T __hmin(T a, T b) { return T(fminf(a, b)); }                                        \
    inline T __hmax(T a, T b) { return T(fmaxf(a, b)); }                                        \
    inline bool __heq(T a, T b) { return a == b; }                                              \
    inline bool __hne(T a, T b) { return a != b; }                                              \
    inline bool __hlt(T a, T b) { return a < b; }                                               \
    inline bool __hgt(T a, T b) { return a > b; }                                               \
    inline bool __hle(T a, T b) { return a <= b; }                                              \
    inline bool __hge(T a, T b) { return a >= b; }                                              \
    inline bool __hisnan(T a) { return isnan(float(a)); }                                       \
    inline int __hisinf(T a) { return isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0; }          \
                                                                                                \
    inline T hsqrt(T a) { return T(sqrtf(a)); }                                                 \
    inline T hrsqrt(T a) { return T(1 / sqrt(double(float(a)))); }                              \
    inline T hrcp(T a) { return T(1 / float(a)); }                                              \
    inline T hexp(T a) { return T(exp(double(float(a)))); }                                     \
    inline T hexp2(T a) { return T(exp2(double(float(a)))); }                                   \
    inline T hexp10(T a) { return T(pow(10.0, double(float(a)))); }                             \
    inline T hlog(T a) { return T(log(double(float(a)))); }                                     \
    inline T hlog2(T a) { return T(log2(double(float(a)))); }                                   \
    inline T hlog10(T a) { return T(log10(double(float(a)))); }                                 \
    inline T hsin(T a) { return T(sin(double(float(a)))); }                                     \
    inline T hcos(T a) { return T(cos(double(float(a)))); }                                     \
    inline T htanh(T a) { return T(tanh(double(float(a)))); }                                   \
    inline T hceil(T a) { return T(ceilf(a)); }                                                 \
    inline T hfloor(T a) { return T(floorf(a)); }                                               \
    inline T hrint(T a) { return T(nearbyintf(a)); }                                            \
    inline T htrunc(T a) { return T(truncf(a)); }                                               \
                                                                                                \
    inline PAIR __hadd2(PAIR a, PAIR b) { return a + b; }                                       \
    inline PAIR __hsub2(PAIR a, PAIR b) { return a - b; }                                       \
    inline PAIR __hmul2(PAIR a, PAIR b) { return a * b; }                                       \
    inline PAIR __h2div(PAIR a, PAIR b) { return a / b; }                                       \
    inline PAIR __hadd2_rn(PAIR a, PAIR b) { return a + b; }                                    \
    inline PAIR __hsub2_rn(PAIR a, PAIR b) { return a - b; }                                    \
    inline PAIR __hmul2_rn(PAIR a, PAIR b) { return a * b; }                                    \
    inline PAIR __hneg2(PAIR a) { return -a; }                                                  \
    inline PAIR __habs2(PAIR a) { return {__habs(a.x), __habs(a.y)}; }                          \
    inline PAIR __hfma2(PAIR a, PAIR b, PAIR c) {                                               \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                  \
    }                                                                                           \
    inline PAIR __hfma2_relu(PAIR a, PAIR b, PAIR c) {                                          \
        return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};                        \
    }                                                                                           \
    inline PAIR __hmin2(PAIR a, PAIR b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }        \
    inline PAIR __hmax2(PAIR a, PAIR b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }        \
    inline bool __hbeq2(PAIR a, PAIR b) { return a == b; }                                      \
    inline bool __hblt2(PAIR a, PAIR b) { return a.x < b.x && a.y < b.y; }                      \
    inline bool __hbgt2(PAIR a, PAIR b) { return a.x > b.x && a.y > b.y; }                      \
    inline bool __hble2(PAIR a, PAIR b) { return a.x <= b.x && a.y <= b.y; }                    \
    inline bool __hbge2(PAIR a, PAIR b) { return a.x >= b.x && a.y >= b.y; }                    \
    inline PAIR h2sqrt(PAIR a) { return {hsqrt(a.x), hsqrt(a.y)}; }                             \
    inline PAIR h2rsqrt(PAIR a) { return {hrsqrt(a.x), hrsqrt(a.y)}; }                          \
    inline PAIR h2rcp(PAIR a) { return {hrcp(a.x), hrcp(a.y)}; }                                \
    inline PAIR h2exp(PAIR a) { return {hexp(a.x), hexp(a.y)}; }                                \
    inline PAIR h2exp2(PAIR a) { return {hexp2(a.x), hexp2(a.y)}; }                             \
    inline PAIR h2log(PAIR a) { return {hlog(a.x), hlog(a.y)}; }                                \
    inline PAIR h2sin(PAIR a) { return {hsin(a.x), hsin(a.y)}; }                                \
    inline PAIR h2cos(PAIR a) { return {hcos(a.x), hcos(a.y)}; }                                \
    inline PAIR h2tanh(PAIR a) { return {htanh(a.x), htanh(a.y)}; }                             \
                                                                                                \
    CUDA_ON_CPU_ATOMIC(atomicAdd, T, old + value)                                               \
    CUDA_ON_CPU_ATOMIC_VECTOR(PAIR, atomicAdd(&address->x, value.x),                            \
                              atomicAdd(&address->y, value.y))
