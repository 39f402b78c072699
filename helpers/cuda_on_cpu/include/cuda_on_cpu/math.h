// CUDA's device functions: the ones that <math.h> does not have.
#pragma once
#include <math.h>
#include <stdint.h>

#include <type_traits>

#include "atomics.h"  // reinterpret_bits
#include "integers.h"
#include "rounding.h"
#include "words.h"

// ---------------------------------------------------------------- min, max

// There is an overload for exactly the pairs of types that CUDA has one for: max(n, 0.f) with an int
// n is ambiguous to nvcc, and here.
#define CUDA_ON_CPU_MIN_MAX(A, B, T)                                            \
    constexpr T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; }             \
    constexpr T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
#define CUDA_ON_CPU_MIN_MAX_INTEGERS(T)              \
    CUDA_ON_CPU_MIN_MAX(T, T, T)                     \
    CUDA_ON_CPU_MIN_MAX(T, unsigned T, unsigned T)   \
    CUDA_ON_CPU_MIN_MAX(unsigned T, T, unsigned T)   \
    CUDA_ON_CPU_MIN_MAX(unsigned T, unsigned T, unsigned T)
CUDA_ON_CPU_MIN_MAX_INTEGERS(int)
CUDA_ON_CPU_MIN_MAX_INTEGERS(long)
CUDA_ON_CPU_MIN_MAX_INTEGERS(long long)
#undef CUDA_ON_CPU_MIN_MAX_INTEGERS
#undef CUDA_ON_CPU_MIN_MAX
// A number beats a NaN.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
#define CUDA_ON_CPU_MIN_MAX(A, B)                       \
    inline double min(A a, B b) { return fmin(a, b); }  \
    inline double max(A a, B b) { return fmax(a, b); }
CUDA_ON_CPU_MIN_MAX(double, double)
CUDA_ON_CPU_MIN_MAX(float, double)
CUDA_ON_CPU_MIN_MAX(double, float)
#undef CUDA_ON_CPU_MIN_MAX
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// ---------------------------------------------------------------- functions of one real number

// Newer C libraries have some of these. A template gives way to them where they exist.
#define CUDA_ON_CPU_REAL(NAME, EXPRESSION)                                         \
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>     \
    inline auto NAME(T given) {                                                    \
        std::conditional_t<std::is_integral<T>::value, double, T> x = given;       \
        return static_cast<decltype(x)>(EXPRESSION);                               \
    }
#define CUDA_ON_CPU_FLOAT(NAME, EXPRESSION)                                        \
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>     \
    inline float NAME(T given) {                                                   \
        float x = float(given);                                                    \
        return EXPRESSION;                                                         \
    }
namespace cuda_on_cpu {
constexpr double PI = 3.14159265358979323846;
// The angle is reduced before pi comes in, so that sin(pi * n) is 0 for every integer n.
inline double sine_of_pi(double x) {
    double r = fmod(x, 2.0);
    if (fabs(r) > 1) r -= r > 0 ? 2 : -2;
    if (fabs(r) == 1) return 0;
    return fabs(r) <= 0.25   ? sin(PI * r)
           : fabs(r) >= 0.75 ? sin(PI * (r > 0 ? 1 - r : -1 - r))
                             : (r > 0 ? cos(PI * (0.5 - r)) : -cos(PI * (0.5 + r)));
}
inline double cosine_of_pi(double x) {
    double r = fmod(fabs(x), 2.0);
    if (r > 1) r = 2 - r;
    return r == 0.5 ? 0 : r <= 0.25 ? cos(PI * r) : r >= 0.75 ? -cos(PI * (1 - r)) : sin(PI * (0.5 - r));
}
// Newton's method on erf, from a first guess by Winitzki (2008).
inline double inverse_erf(double y) {
    if (fabs(y) >= 1) return fabs(y) == 1 ? copysign(HUGE_VAL, y) : NAN;
    double w = log((1 - y) * (1 + y)), a = 2 / (PI * 0.147) + w / 2;
    double x = copysign(sqrt(sqrt(a * a - w / 0.147) - a), y);
    for (int i = 0; i < 3; i++) x -= (erf(x) - y) / (2 / sqrt(PI) * exp(-x * x));
    return x;
}
inline double inverse_erfc(double y) {  // 1 - y is 1 where y is small
    if (!(y > 0 && y < 0.1)) return y == 0 ? HUGE_VAL : inverse_erf(1 - y);
    double x = sqrt(-log(y));
    for (int i = 0; i < 8; i++)  // Newton's method, for the logarithm
        x += log(erfc(x) / y) * erfc(x) * (sqrt(PI) / 2) * exp(x * x);
    return x;
}
inline double bessel_i(int order, double x) {  // the series: all its terms have the same sign
    double term = order ? x / 2 : 1, sum = term;
    for (int k = 1; k < 1000 && term != 0 && fabs(term) > 1e-17 * fabs(sum); k++)
        sum += term *= x * x / 4 / k / (k + order);
    return sum;
}
}  // namespace cuda_on_cpu
CUDA_ON_CPU_REAL(rsqrt, 1 / sqrt(x))
CUDA_ON_CPU_FLOAT(rsqrtf, 1 / sqrtf(x))
CUDA_ON_CPU_REAL(rcbrt, 1 / cbrt(x))
CUDA_ON_CPU_FLOAT(rcbrtf, 1 / cbrtf(x))
CUDA_ON_CPU_REAL(exp10, pow(10.0, x))
CUDA_ON_CPU_FLOAT(exp10f, float(pow(10.0, x)))
CUDA_ON_CPU_REAL(sinpi, cuda_on_cpu::sine_of_pi(x))
CUDA_ON_CPU_FLOAT(sinpif, float(cuda_on_cpu::sine_of_pi(x)))
CUDA_ON_CPU_REAL(cospi, cuda_on_cpu::cosine_of_pi(x))
CUDA_ON_CPU_FLOAT(cospif, float(cuda_on_cpu::cosine_of_pi(x)))
CUDA_ON_CPU_REAL(normcdf, 0.5 * erfc(-x * sqrt(0.5)))
CUDA_ON_CPU_FLOAT(normcdff, float(0.5 * erfc(-x * sqrt(0.5))))
CUDA_ON_CPU_REAL(erfinv, cuda_on_cpu::inverse_erf(x))
CUDA_ON_CPU_FLOAT(erfinvf, float(cuda_on_cpu::inverse_erf(x)))
CUDA_ON_CPU_REAL(erfcinv, cuda_on_cpu::inverse_erfc(x))
CUDA_ON_CPU_FLOAT(erfcinvf, float(cuda_on_cpu::inverse_erfc(x)))
CUDA_ON_CPU_REAL(normcdfinv, -sqrt(2.0) * cuda_on_cpu::inverse_erfc(2 * x))
CUDA_ON_CPU_FLOAT(normcdfinvf, float(-sqrt(2.0) * cuda_on_cpu::inverse_erfc(2.0 * x)))
CUDA_ON_CPU_REAL(cyl_bessel_i0, cuda_on_cpu::bessel_i(0, x))
CUDA_ON_CPU_FLOAT(cyl_bessel_i0f, float(cuda_on_cpu::bessel_i(0, x)))
CUDA_ON_CPU_REAL(cyl_bessel_i1, cuda_on_cpu::bessel_i(1, x))
CUDA_ON_CPU_FLOAT(cyl_bessel_i1f, float(cuda_on_cpu::bessel_i(1, x)))
CUDA_ON_CPU_REAL(erfcx, exp(double(x) * x) * erfc(x))
CUDA_ON_CPU_FLOAT(erfcxf, float(exp(double(x) * x) * erfc(x)))
CUDA_ON_CPU_FLOAT(__saturatef, x > 0 ? (x < 1 ? x : 1) : 0)  // a NaN becomes 0
#undef CUDA_ON_CPU_REAL
#undef CUDA_ON_CPU_FLOAT

template <class T>
inline void sincospi(T x, double* sine, double* cosine) { *sine = sinpi(x), *cosine = cospi(x); }
template <class T>
inline void sincospif(T x, float* sine, float* cosine) { *sine = sinpif(x), *cosine = cospif(x); }
#if defined(__APPLE__)
inline void sincosf(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline void sincos(double x, double* sine, double* cosine) { *sine = sin(x), *cosine = cos(x); }
#endif
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float norm4df(float a, float b, float c, float d) {
    return sqrtf(a * a + b * b + c * c + d * d);
}
inline float rnorm3df(float a, float b, float c) { return 1 / norm3df(a, b, c); }
inline float rnorm4df(float a, float b, float c, float d) { return 1 / norm4df(a, b, c, d); }
inline float rhypotf(float a, float b) { return 1 / hypotf(a, b); }
inline double rhypot(double a, double b) { return 1 / hypot(a, b); }
inline double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
inline double norm4d(double a, double b, double c, double d) {
    return sqrt(a * a + b * b + c * c + d * d);
}
inline double norm(int count, const double* x) {
    double squares = 0;
    for (int i = 0; i < count; i++) squares += x[i] * x[i];
    return sqrt(squares);
}
inline float normf(int count, const float* x) {
    double squares = 0;
    for (int i = 0; i < count; i++) squares += double(x[i]) * x[i];
    return float(sqrt(squares));
}
inline double rnorm(int count, const double* x) { return 1 / norm(count, x); }
inline float rnormf(int count, const float* x) { return 1 / normf(count, x); }

// The fast, less exact versions are exact here. Macros, because the C library has functions of
// its own by these names.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, sine, cosine) sincosf(x, sine, cosine)
#define __tanhf(x) tanhf(x)
// ... but where a division's own result is lost: it goes by the divisor's reciprocal.
inline float __fdividef(float a, float b) {
    return fabsf(b) > 0x1p126f && fabsf(b) < HUGE_VALF ? a * 0.0f : a / b;
}
inline float fdividef(float a, float b) { return a / b; }

// ---------------------------------------------------------------- conversions

// To an integer: what does not fit is as integers.h says.
#define CUDA_ON_CPU_TO_INTEGER(FROM, F, TO, T)                                                   \
    inline T __##FROM##2##TO##_rn(F x) { return cuda_on_cpu::to_integer<T>(F(nearbyint(x))); }        \
    inline T __##FROM##2##TO##_rz(F x) { return cuda_on_cpu::to_integer<T>(F(trunc(x))); }            \
    inline T __##FROM##2##TO##_ru(F x) { return cuda_on_cpu::to_integer<T>(F(ceil(x))); }             \
    inline T __##FROM##2##TO##_rd(F x) { return cuda_on_cpu::to_integer<T>(F(floor(x))); }
CUDA_ON_CPU_TO_INTEGER(float, float, int, int)
CUDA_ON_CPU_TO_INTEGER(float, float, uint, unsigned)
CUDA_ON_CPU_TO_INTEGER(float, float, ll, long long)
CUDA_ON_CPU_TO_INTEGER(float, float, ull, unsigned long long)
CUDA_ON_CPU_TO_INTEGER(double, double, int, int)
CUDA_ON_CPU_TO_INTEGER(double, double, uint, unsigned)
CUDA_ON_CPU_TO_INTEGER(double, double, ll, long long)
CUDA_ON_CPU_TO_INTEGER(double, double, ull, unsigned long long)
#undef CUDA_ON_CPU_TO_INTEGER

// The same bits under another type.
inline int __float_as_int(float x) { return cuda_on_cpu::reinterpret_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_on_cpu::reinterpret_bits<unsigned>(x); }
inline float __int_as_float(int x) { return cuda_on_cpu::reinterpret_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu::reinterpret_bits<float>(x); }
inline long long __double_as_longlong(double x) {
    return cuda_on_cpu::reinterpret_bits<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return cuda_on_cpu::reinterpret_bits<double>(x);
}
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

// ---------------------------------------------------------------- integers and their bits

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
    x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
    x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
    return __builtin_bswap64(x);
}
inline unsigned __brev(unsigned x) { return unsigned(__brevll(x) >> 32); }
inline unsigned short __nv_bswap16(unsigned short x) { return __builtin_bswap16(x); }
inline unsigned __nv_bswap32(unsigned x) { return __builtin_bswap32(x); }
inline unsigned long long __nv_bswap64(unsigned long long x) { return __builtin_bswap64(x); }
// Byte i of the result is the byte of y:x that bits 4i to 4i+2 of the selector name; bit 4i+3
// asks for that byte's sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++, selector >>= 4) {
        unsigned byte = bytes >> (selector & 7) * 8 & 0xff;
        if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}
// high:low shifted by 0 to 31 (_lc, _rc: up to 32); the upper or the lower half of the result.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned((unsigned long long)a * b >> 32);
}
__extension__ typedef __int128 cuda_on_cpu_int128;
__extension__ typedef unsigned __int128 cuda_on_cpu_uint128;
inline long long __mul64hi(long long a, long long b) {
    return (long long)((cuda_on_cpu_int128)a * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((cuda_on_cpu_uint128)a * b >> 64);
}
inline int __mul24(int a, int b) {
    return int(unsigned(int(unsigned(a) << 8) >> 8) * unsigned(int(unsigned(b) << 8) >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline unsigned __sad(int a, int b, unsigned c) {
    return c + (a > b ? unsigned(a) - unsigned(b) : unsigned(b) - unsigned(a));
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
inline int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
inline int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) {
    return unsigned(((unsigned long long)a + b + 1) >> 1);
}
// c plus the products of the four bytes of a and b.
inline int __dp4a(int a, int b, int c) {
    unsigned sum = unsigned(c);
    for (int i = 0; i < 32; i += 8) sum += unsigned((signed char)(a >> i) * (signed char)(b >> i));
    return int(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}

// c plus two products of 16 bits of a with a byte of b, of its lower or its upper two.
inline int __dp2a_lo(int a, int b, int c) {
    return int(unsigned(c) + unsigned(short(a) * (signed char)b) +
               unsigned((a >> 16) * (signed char)(b >> 8)));
}
inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
    return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }

// ---------------------------------------------------------------- loads and stores, hints

// Which cache to use is a hint that a CPU has no use for.
#define CUDA_ON_CPU_LOAD(NAME) \
    template <class T>         \
    inline T NAME(const T* p) { return *p; }
CUDA_ON_CPU_LOAD(__ldg)
CUDA_ON_CPU_LOAD(__ldca)
CUDA_ON_CPU_LOAD(__ldcg)
CUDA_ON_CPU_LOAD(__ldcs)
CUDA_ON_CPU_LOAD(__ldlu)
CUDA_ON_CPU_LOAD(__ldcv)
#undef CUDA_ON_CPU_LOAD
#define CUDA_ON_CPU_STORE(NAME) \
    template <class T>          \
    inline void NAME(T* p, T value) { *p = value; }
CUDA_ON_CPU_STORE(__stwb)
CUDA_ON_CPU_STORE(__stcg)
CUDA_ON_CPU_STORE(__stcs)
CUDA_ON_CPU_STORE(__stwt)
#undef CUDA_ON_CPU_STORE
#if !defined(__clang__)
#define __builtin_assume(condition) ((void)0)
#endif
