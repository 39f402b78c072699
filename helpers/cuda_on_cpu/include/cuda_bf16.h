// __nv_bfloat16: the upper half of a float, 8 exponent bits and 7 mantissa bits.
#pragma once
#define __CUDA_BF16_H__  // others' headers ask for it
#include "cuda_runtime.h"
#include "cuda_on_cpu/small_floats.h"

#if defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
#define CUDA_ON_CPU_BFLOAT16_CONVERSION CUDA_ON_CPU_NO_CONVERSION("__nv_bfloat16", "__float2bfloat16(x) or __bfloat162float(x)", "__CUDA_NO_BFLOAT16_CONVERSIONS__")
#else
#define CUDA_ON_CPU_BFLOAT16_CONVERSION
#endif
#if defined(__CUDA_NO_BFLOAT16_OPERATORS__)
#define CUDA_ON_CPU_BFLOAT16_OPERATOR CUDA_ON_CPU_NO_OPERATOR("__nv_bfloat16", "__hadd(a, b), __hmul(a, b), __hlt(a, b) ...", "__CUDA_NO_BFLOAT16_OPERATORS__")
#else
#define CUDA_ON_CPU_BFLOAT16_OPERATOR
#endif
#if defined(__CUDA_NO_BFLOAT162_OPERATORS__)
#define CUDA_ON_CPU_BFLOAT162_OPERATOR CUDA_ON_CPU_NO_OPERATOR("__nv_bfloat162", "__hadd2(a, b), __hmul2(a, b) ...", "__CUDA_NO_BFLOAT162_OPERATORS__")
#else
#define CUDA_ON_CPU_BFLOAT162_OPERATOR
#endif

CUDA_ON_CPU_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat16_raw, __nv_bfloat162, __nv_bfloat162_raw,
                        cuda_on_cpu::bfloat16_bits, cuda_on_cpu::bfloat16_to_float,
                        CUDA_ON_CPU_BFLOAT16_CONVERSION, CUDA_ON_CPU_BFLOAT16_OPERATOR,
                        CUDA_ON_CPU_BFLOAT162_OPERATOR)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline __nv_bfloat16 __float2bfloat16_rz(float x) {
    return __nv_bfloat16_raw{(unsigned short)(__float_as_uint(x) >> 16)};
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return __bfloat162bfloat162(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
inline float __low2float(__nv_bfloat162 v) { return float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return float(v.y); }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }

inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(float(x)); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(float(x)); }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __nv_bfloat16(x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.__x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
inline __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16_raw{(unsigned short)x}; }

#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80)
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fff)
