// Arithmetic and logic on one lane's registers.
#pragma once
#include <climits>
#include <cmath>
#include <limits>

#include "../float8_bits.h"
#include "../math.h"
#include "registers.h"

namespace cuda_on_cpu::ptx {

// 16-bit floating-point numbers, computed in float and rounded.
struct Half {
    B16 bits;
    Half() = default;
    Half(float x) : bits(half_bits(x)) {}
    operator float() const { return half_to_float(bits); }
};
struct Bfloat {
    B16 bits;
    Bfloat() = default;
    Bfloat(float x) : bits(bfloat16_bits(x)) {}
    operator float() const { return bfloat16_to_float(bits); }
};
template <class T>
struct Pair {  // f16x2, bf16x2
    T low, high;
};

// Integers wrap around.
template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::common_type<T>>;
#define CUDA_ON_CPU_PTX_OPERATOR(NAME, OPERATION)                                          \
    template <class T>                                                                     \
    inline T NAME(T a, T b) {                                                              \
        using Unsigned = typename Wrapping<T>::type;                                       \
        return T(Unsigned(a) OPERATION Unsigned(b));                                       \
    }                                                                                      \
    template <class T>                                                                     \
    inline Pair<T> NAME(Pair<T> a, Pair<T> b) {                                            \
        return {NAME(a.low, b.low), NAME(a.high, b.high)};                                 \
    }
CUDA_ON_CPU_PTX_OPERATOR(add, +)
CUDA_ON_CPU_PTX_OPERATOR(sub, -)
CUDA_ON_CPU_PTX_OPERATOR(mul_lo, *)
#undef CUDA_ON_CPU_PTX_OPERATOR
// The carry, or the borrow, that the running thread's last instruction with .cc has left.
CUDA_ON_CPU_API bool carry();
CUDA_ON_CPU_API void set_carry(bool);
template <class T, bool TAKES, bool LEAVES>
inline T add_carried(T a, T b) {
    using Unsigned = std::make_unsigned_t<T>;
    Unsigned sum;
    bool over = __builtin_add_overflow(Unsigned(a), Unsigned(b), &sum);
    over |= __builtin_add_overflow(sum, Unsigned(TAKES && carry()), &sum);
    if (LEAVES) set_carry(over);
    return T(sum);
}
template <class T, bool TAKES, bool LEAVES>
inline T sub_carried(T a, T b) {
    using Unsigned = std::make_unsigned_t<T>;
    Unsigned difference;
    bool under = __builtin_sub_overflow(Unsigned(a), Unsigned(b), &difference);
    under |= __builtin_sub_overflow(difference, Unsigned(TAKES && carry()), &difference);
    if (LEAVES) set_carry(under);
    return T(difference);
}
inline int add_saturated(int a, int b) {
    int sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT_MIN : INT_MAX) : sum;
}
inline int sub_saturated(int a, int b) {
    int difference;
    return __builtin_sub_overflow(a, b, &difference) ? (a < 0 ? INT_MIN : INT_MAX) : difference;
}
template <class T>
inline T div(T a, T b) { return T(a / b); }
template <class T>
inline T rem(T a, T b) { return T(a % b); }
template <class T>
inline T neg(T a) { return std::is_integral_v<T> ? sub(T(0), a) : T(-a); }
template <class T>
inline T abs(T a) {
    if constexpr (std::is_integral_v<T>) return a < 0 ? neg(a) : a;
    else return T(fabs(a));
}
// Of a number and a NaN the number; -0 is below 0.
template <class T>
inline bool is_below(T a, T b) {
    if constexpr (std::is_integral_v<T>) return a < b;
    else return a < b || (a == b && std::signbit(double(a)) && !std::signbit(double(b)));
}
template <class T>
inline T min(T a, T b) { return is_below(b, a) || a != a ? b : a; }
template <class T>
inline T max(T a, T b) { return is_below(a, b) || a != a ? b : a; }
template <class T>
inline T min_or_nan(T a, T b) { return b != b ? b : a != a ? a : min(a, b); }
template <class T>
inline T max_or_nan(T a, T b) { return b != b ? b : a != a ? a : max(a, b); }
#define CUDA_ON_CPU_PTX_OF_PAIRS(NAME)                        \
    template <class T>                                        \
    inline Pair<T> NAME(Pair<T> a, Pair<T> b) {               \
        return {NAME(a.low, b.low), NAME(a.high, b.high)};    \
    }
CUDA_ON_CPU_PTX_OF_PAIRS(min)
CUDA_ON_CPU_PTX_OF_PAIRS(max)
CUDA_ON_CPU_PTX_OF_PAIRS(min_or_nan)
CUDA_ON_CPU_PTX_OF_PAIRS(max_or_nan)
#undef CUDA_ON_CPU_PTX_OF_PAIRS

template <class T> struct Wider;
template <> struct Wider<std::int16_t> { using Type = std::int32_t; };
template <> struct Wider<std::uint16_t> { using Type = std::uint32_t; };
template <> struct Wider<std::int32_t> { using Type = std::int64_t; };
template <> struct Wider<std::uint32_t> { using Type = std::uint64_t; };
template <> struct Wider<std::int64_t> { using Type = cuda_on_cpu_int128; };
template <> struct Wider<std::uint64_t> { using Type = cuda_on_cpu_uint128; };
template <class T>
inline auto mul_wide(T a, T b) {
    using Wide = typename Wider<T>::Type;
    return Wide(Wide(a) * Wide(b));
}
template <class T>
inline T mul_hi(T a, T b) { return T(mul_wide(a, b) >> sizeof(T) * 8); }
template <class T>
inline auto mad_wide(T a, T b, typename Wider<T>::Type c) { return add(mul_wide(a, b), c); }

inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return ::fma(a, b, c); }
template <class T>
inline T fma_small(T a, T b, T c) {
    return T(round_to_odd(double(float(a)) * float(b) + float(c)));
}
inline Half fma(Half a, Half b, Half c) { return fma_small(a, b, c); }
inline Bfloat fma(Bfloat a, Bfloat b, Bfloat c) { return fma_small(a, b, c); }
template <class T>
inline Pair<T> fma(Pair<T> a, Pair<T> b, Pair<T> c) {
    return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}

// Rounded to zero, to minus infinity, to plus infinity.
constexpr int rz = FE_TOWARDZERO, rm = FE_DOWNWARD, rp = FE_UPWARD;
#define CUDA_ON_CPU_PTX_ROUNDED(NAME, OPERATION)                                 \
    template <class T, class... S>                                               \
    inline T NAME##_rounded(int mode, T a, S... b) {                             \
        return rounded(mode, [](T a, S... b) -> T { return OPERATION; }, a, b...); \
    }
CUDA_ON_CPU_PTX_ROUNDED(add, (a + ... + b))
CUDA_ON_CPU_PTX_ROUNDED(sub, (a - ... - b))
CUDA_ON_CPU_PTX_ROUNDED(mul, (a * ... * b))
CUDA_ON_CPU_PTX_ROUNDED(div, (a / ... / b))
CUDA_ON_CPU_PTX_ROUNDED(fma, ::fma(a, b...))
CUDA_ON_CPU_PTX_ROUNDED(rcp, 1 / a)
CUDA_ON_CPU_PTX_ROUNDED(sqrt, ::sqrt(a))
#undef CUDA_ON_CPU_PTX_ROUNDED

// .ftz: a subnormal float is 0, with its sign.
inline float flushed(float x) { return ::fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
template <class T>
inline T flushed(T x) { return x; }

// What float arithmetic hands back: flushed, from 0 to 1 with .sat, and the one NaN that there is.
template <bool FTZ, bool SAT, class T>
inline T result(T x) {
    if constexpr (std::is_same_v<T, float>) {
        if (SAT) return __saturatef(x);
        return x == x ? (FTZ ? flushed(x) : x) : as<float>(B32(0x7fffffff));
    } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>) {
        if (SAT) return T(__saturatef(float(x)));
        if (float(x) != float(x)) x.bits = 0x7fff;
    } else if constexpr (std::is_same_v<T, double>) {
        if (SAT) return x > 0 ? (x < 1 ? x : 1) : 0;
    }
    return x;
}
template <bool FTZ, bool SAT, class T>
inline Pair<T> result(Pair<T> x) {
    return {result<FTZ, SAT>(x.low), result<FTZ, SAT>(x.high)};
}

template <class T>
inline T ex2(T x) { return T(exp2f(x)); }
template <class T>
inline Pair<T> ex2(Pair<T> x) { return {ex2(x.low), ex2(x.high)}; }
template <class T>
inline T tanh(T x) { return T(tanhf(x)); }
template <class T>
inline Pair<T> tanh(Pair<T> x) { return {tanh(x.low), tanh(x.high)}; }
inline float lg2(float x) { return log2f(x); }
inline float sin(float x) { return sinf(x); }
inline float cos(float x) { return cosf(x); }
template <class T>
inline T rcp(T x) { return 1 / x; }
template <class T>
inline T rsqrt(T x) { return T(1 / ::sqrt(double(x))); }
template <class T>
inline T sqrt(T x) { return T(::sqrt(x)); }

template <class T>
inline T shl(T a, B32 by) { return by < sizeof(T) * 8 ? T(a << by) : T(0); }
template <class T>
inline T shr(T a, B32 by) {  // fills with the sign
    constexpr B32 LAST = sizeof(T) * 8 - 1;
    return by <= LAST ? T(a >> by) : std::is_signed_v<T> ? T(a >> LAST) : T(0);
}
inline B32 shf_l(B32 a, B32 b, B32 by, bool clamp) {
    return clamp ? __funnelshift_lc(a, b, by) : __funnelshift_l(a, b, by);
}
inline B32 shf_r(B32 a, B32 b, B32 by, bool clamp) {
    return clamp ? __funnelshift_rc(a, b, by) : __funnelshift_r(a, b, by);
}
// Bit a * 4 + b * 2 + c of the table is the result for the bits a, b, c.
inline B32 lop3(B32 a, B32 b, B32 c, B32 table) {
    B32 result = 0;
    for (B32 i = 0; i < 8; i++)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
template <class T>
inline B32 bfind(T a) {  // the position of the highest bit that differs from the sign
    if (std::is_signed_v<T> && a < 0) a = T(~a);
    return a ? 63 - B32(__builtin_clzll(B64(a))) : ~B32{0};
}
template <class T>
inline T bfe(T a, B32 position, B32 length) {
    position &= 255, length &= 255;
    constexpr B32 BITS = sizeof(T) * 8;
    if (!length) return 0;
    B32 sign_at = position + length - 1 < BITS ? position + length - 1 : BITS - 1;
    B64 fill = std::is_signed_v<T> && (B64(a) >> sign_at & 1) ? ~B64{0} : 0;
    B64 taken = position < BITS ? B64(std::make_unsigned_t<T>(a)) >> position : 0;
    B32 there = position < BITS ? (length < BITS - position ? length : BITS - position) : 0;
    B64 mask = there >= 64 ? ~B64{0} : (B64{1} << there) - 1;
    return T((taken & mask) | (fill & ~mask));
}
template <class T>
inline T bfi(T a, T into, B32 position, B32 length) {
    position &= 255, length &= 255;
    constexpr B32 BITS = sizeof(T) * 8;
    if (!length || position >= BITS) return into;
    B64 mask = (length >= 64 ? ~B64{0} : (B64{1} << length) - 1) << position;
    return T((B64(into) & ~mask) | (B64(a) << position & mask));
}
template <class T>
inline B32 clz(T a) { return sizeof(T) == 8 ? B32(__clzll((long long)a)) : B32(__clz(int(a))); }
template <class T>
inline T brev(T a) { return sizeof(T) == 8 ? T(__brevll(a)) : T(__brev(B32(a))); }
template <class T>
inline T sad(T a, T b, T c) { return add(c, a > b ? sub(a, b) : sub(b, a)); }

// Comparisons. The ones whose names end in u hold for NaNs too.
#define CUDA_ON_CPU_PTX_COMPARE(NAME, OPERATION)                       \
    template <class T>                                                 \
    inline bool compare_##NAME(T a, T b) { return a OPERATION b; }     \
    template <class T>                                                 \
    inline bool compare_##NAME##u(T a, T b) { return a OPERATION b || a != a || b != b; }
CUDA_ON_CPU_PTX_COMPARE(eq, ==)
CUDA_ON_CPU_PTX_COMPARE(lt, <)
CUDA_ON_CPU_PTX_COMPARE(le, <=)
CUDA_ON_CPU_PTX_COMPARE(gt, >)
CUDA_ON_CPU_PTX_COMPARE(ge, >=)
#undef CUDA_ON_CPU_PTX_COMPARE
template <class T>
inline bool compare_ne(T a, T b) { return a < b || a > b; }
template <class T>
inline bool compare_neu(T a, T b) { return a != b; }
// Of unsigned integers: lower, lower or same, higher, higher or same.
template <class T>
inline bool compare_lo(T a, T b) { return a < b; }
template <class T>
inline bool compare_ls(T a, T b) { return a <= b; }
template <class T>
inline bool compare_hi(T a, T b) { return a > b; }
template <class T>
inline bool compare_hs(T a, T b) { return a >= b; }
template <class T>
inline bool compare_num(T a, T b) { return a == a && b == b; }
template <class T>
inline bool compare_nan(T a, T b) { return a != a || b != b; }

}  // namespace cuda_on_cpu::ptx
