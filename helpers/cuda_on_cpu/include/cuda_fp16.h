// __half: 16-bit floating point with 5 exponent bits and 10 mantissa bits.
#pragma once
#define __CUDA_FP16_H__  // others' headers ask for it
#include "cuda_runtime.h"
#include "cuda_on_cpu/small_floats.h"

#if defined(__CUDA_NO_HALF_CONVERSIONS__)
#define CUDA_ON_CPU_HALF_CONVERSION CUDA_ON_CPU_NO_CONVERSION("__half", "__float2half(x) or __half2float(x)", "__CUDA_NO_HALF_CONVERSIONS__")
#else
#define CUDA_ON_CPU_HALF_CONVERSION
#endif
#if defined(__CUDA_NO_HALF_OPERATORS__)
#define CUDA_ON_CPU_HALF_OPERATOR CUDA_ON_CPU_NO_OPERATOR("__half", "__hadd(a, b), __hmul(a, b), __hlt(a, b) ...", "__CUDA_NO_HALF_OPERATORS__")
#else
#define CUDA_ON_CPU_HALF_OPERATOR
#endif
#if defined(__CUDA_NO_HALF2_OPERATORS__)
#define CUDA_ON_CPU_HALF2_OPERATOR CUDA_ON_CPU_NO_OPERATOR("__half2", "__hadd2(a, b), __hmul2(a, b) ...", "__CUDA_NO_HALF2_OPERATORS__")
#else
#define CUDA_ON_CPU_HALF2_OPERATOR
#endif

CUDA_ON_CPU_SMALL_FLOAT(__half, __half_raw, __half2, __half2_raw, cuda_on_cpu::half_bits,
                        cuda_on_cpu::half_to_float,
                        CUDA_ON_CPU_HALF_CONVERSION, CUDA_ON_CPU_HALF_OPERATOR,
                        CUDA_ON_CPU_HALF2_OPERATOR)
typedef __half half;
typedef __half2 half2;

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline float __half2float(__half x) { return float(x); }
// Towards zero: the nearest half, or the one before it where that lies further out.
inline __half __float2half_rz(float x) {
    __half nearest(x);
    if (fabsf(float(nearest)) > fabsf(x)) nearest.__x--;
    return nearest;
}
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
inline float __low2float(__half2 v) { return float(v.x); }
inline float __high2float(__half2 v) { return float(v.y); }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }

inline int __half2int_rn(__half x) { return __float2int_rn(float(x)); }
inline int __half2int_rz(__half x) { return __float2int_rz(float(x)); }
inline unsigned __half2uint_rn(__half x) { return __float2uint_rn(float(x)); }
inline __half __int2half_rn(int x) { return __half(x); }
inline __half __uint2half_rn(unsigned x) { return __half(x); }
inline unsigned short __half_as_ushort(__half x) { return x.__x; }
inline short __half_as_short(__half x) { return short(x.__x); }
inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
inline __half __short_as_half(short x) { return __half_raw{(unsigned short)x}; }

#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00)
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fff)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bff)
