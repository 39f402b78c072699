// Arithmetic and conversions with a rounding: _rn is what a CPU does, for _rz, _ru and _rd it is told.
#pragma once
#include <fenv.h>
#include <math.h>

namespace cuda_on_cpu {

// operation(a...) with another rounding: nothing of it may be computed before it or after.
template <class Operation, class... T>
inline auto rounded(int mode, Operation operation, T... a) {
    const int before = fegetround();
    fesetround(mode);
    (..., [](T& x) { __asm__ volatile("" : "+m"(x)); }(a));
    auto result = operation(a...);
    __asm__ volatile("" : "+m"(result));
    fesetround(before);
    return result;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ROUNDED(NAME, RESULT, MODE, EXPRESSION, PARAMETERS, ...)       \
    inline RESULT NAME PARAMETERS {                                                \
        auto operation = [] PARAMETERS { return RESULT(EXPRESSION); };             \
        return cuda_on_cpu::rounded(MODE, operation, __VA_ARGS__);                 \
    }
#define CUDA_ON_CPU_ARITHMETIC(PREFIX, T, FMA, SUFFIX, MODE)                       \
    CUDA_ON_CPU_ROUNDED(PREFIX##add_##SUFFIX, T, MODE, a + b, (T a, T b), a, b)    \
    CUDA_ON_CPU_ROUNDED(PREFIX##sub_##SUFFIX, T, MODE, a - b, (T a, T b), a, b)    \
    CUDA_ON_CPU_ROUNDED(PREFIX##mul_##SUFFIX, T, MODE, a * b, (T a, T b), a, b)    \
    CUDA_ON_CPU_ROUNDED(PREFIX##div_##SUFFIX, T, MODE, a / b, (T a, T b), a, b)    \
    CUDA_ON_CPU_ROUNDED(PREFIX##rcp_##SUFFIX, T, MODE, 1 / a, (T a), a)            \
    CUDA_ON_CPU_ROUNDED(PREFIX##sqrt_##SUFFIX, T, MODE, sqrt(a), (T a), a)         \
    CUDA_ON_CPU_ROUNDED(FMA##_##SUFFIX, T, MODE, fma(a, b, c), (T a, T b, T c), a, b, c)
#define CUDA_ON_CPU_TO_FLOATS(SUFFIX, MODE)                                        \
    CUDA_ON_CPU_ROUNDED(__double2float_##SUFFIX, float, MODE, a, (double a), a)    \
    CUDA_ON_CPU_ROUNDED(__int2float_##SUFFIX, float, MODE, a, (int a), a)          \
    CUDA_ON_CPU_ROUNDED(__uint2float_##SUFFIX, float, MODE, a, (unsigned a), a)    \
    CUDA_ON_CPU_ROUNDED(__ll2float_##SUFFIX, float, MODE, a, (long long a), a)     \
    CUDA_ON_CPU_ROUNDED(__ull2float_##SUFFIX, float, MODE, a, (unsigned long long a), a)    \
    CUDA_ON_CPU_ROUNDED(__ll2double_##SUFFIX, double, MODE, a, (long long a), a)   \
    CUDA_ON_CPU_ROUNDED(__ull2double_##SUFFIX, double, MODE, a, (unsigned long long a), a)
#define CUDA_ON_CPU_ALL_ROUNDED(SUFFIX, MODE)                                      \
    CUDA_ON_CPU_ARITHMETIC(__f, float, __fmaf, SUFFIX, MODE)                       \
    CUDA_ON_CPU_ARITHMETIC(__d, double, __fma, SUFFIX, MODE)                       \
    CUDA_ON_CPU_TO_FLOATS(SUFFIX, MODE)
CUDA_ON_CPU_ALL_ROUNDED(rz, FE_TOWARDZERO)
CUDA_ON_CPU_ALL_ROUNDED(ru, FE_UPWARD)
CUDA_ON_CPU_ALL_ROUNDED(rd, FE_DOWNWARD)
#undef CUDA_ON_CPU_ROUNDED
#undef CUDA_ON_CPU_ARITHMETIC
#undef CUDA_ON_CPU_TO_FLOATS
#undef CUDA_ON_CPU_ALL_ROUNDED

// Written so that the compiler cannot make a multiply and an add into one instruction.
inline float __fmul_rn(float a, float b) {
    float product = a * b;
    __asm__("" : "+m"(product));
    return product;
}
inline double __dmul_rn(double a, double b) {
    double product = a * b;
    __asm__("" : "+m"(product));
    return product;
}
inline float __fadd_rn(float a, float b) {
    __asm__("" : "+m"(a), "+m"(b));
    return a + b;
}
inline double __dadd_rn(double a, double b) {
    __asm__("" : "+m"(a), "+m"(b));
    return a + b;
}
inline float __fsub_rn(float a, float b) { return __fadd_rn(a, -b); }
inline double __dsub_rn(double a, double b) { return __dadd_rn(a, -b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline double __drcp_rn(double a) { return 1 / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline float __frsqrt_rn(float a) { return float(1 / sqrt(double(a))); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fmaf_ieee_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return double(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }
