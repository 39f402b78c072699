// __nv_fp8_e4m3 and __nv_fp8_e5m2: 8-bit floating point to store numbers in, alone, in twos and in
// fours. Arithmetic is done after a conversion.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_on_cpu/float8_bits.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace cuda_on_cpu {
inline Float8 kind(__nv_fp8_interpretation_t which) {
    return which == __NV_E4M3 ? Float8::e4m3 : Float8::e5m2;
}
}  // namespace cuda_on_cpu

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                 __nv_fp8_interpretation_t which) {
    return cuda_on_cpu::float8_bits(x, cuda_on_cpu::kind(which), saturate == __NV_SATFINITE);
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                __nv_fp8_interpretation_t which) {
    return __nv_cvt_double_to_fp8(x, saturate, which);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate,
                                                  __nv_fp8_interpretation_t which) {
    return __nv_cvt_double_to_fp8(cuda_on_cpu::half_to_float(x.x), saturate, which);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate,
                                                      __nv_fp8_interpretation_t which) {
    return __nv_cvt_double_to_fp8(cuda_on_cpu::bfloat16_to_float(x.x), saturate, which);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t which) {
    return __half_raw{
        cuda_on_cpu::half_bits(cuda_on_cpu::float8_to_float(x, cuda_on_cpu::kind(which)))};
}

// Of two numbers, the first is in the lower byte.
#define CUDA_ON_CPU_FP8_PAIR(FROM, TYPE, ONE)                                                      \
    inline __nv_fp8x2_storage_t __nv_cvt_##FROM##_to_fp8x2(TYPE v, __nv_saturation_t saturate,     \
                                                           __nv_fp8_interpretation_t which) {      \
        return __nv_fp8x2_storage_t(__nv_cvt_##ONE##_to_fp8(v.x, saturate, which) |                \
                                    __nv_cvt_##ONE##_to_fp8(v.y, saturate, which) << 8);           \
    }
CUDA_ON_CPU_FP8_PAIR(float2, float2, float)
CUDA_ON_CPU_FP8_PAIR(double2, double2, double)
#undef CUDA_ON_CPU_FP8_PAIR
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t which) {
    __half2 pair(v);
    return __nv_cvt_float2_to_fp8x2(__half22float2(pair), saturate, which);
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw v,
                                                           __nv_saturation_t saturate,
                                                           __nv_fp8_interpretation_t which) {
    __nv_bfloat162 pair(v);
    return __nv_cvt_float2_to_fp8x2(__bfloat1622float2(pair), saturate, which);
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t which) {
    return __half2_raw{__nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(x), which).x,
                       __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(x >> 8), which).x};
}

// What is too large becomes the largest number, as far as it is finite.
#define CUDA_ON_CPU_FP8(NAME, WHICH)                                                               \
    struct NAME {                                                                                  \
        __nv_fp8_storage_t __x;                                                                    \
        NAME() = default;                                                                          \
        explicit NAME(double x) : __x(__nv_cvt_double_to_fp8(x, __NV_SATFINITE, WHICH)) {}         \
        explicit NAME(float x) : NAME(double(x)) {}                                                \
        explicit NAME(__half x) : NAME(double(float(x))) {}                                        \
        explicit NAME(__nv_bfloat16 x) : NAME(double(float(x))) {}                                 \
        explicit NAME(short x) : NAME(double(x)) {}                                                \
        explicit NAME(unsigned short x) : NAME(double(x)) {}                                       \
        explicit NAME(int x) : NAME(double(x)) {}                                                  \
        explicit NAME(unsigned x) : NAME(double(x)) {}                                             \
        explicit NAME(long x) : NAME(double(x)) {}                                                 \
        explicit NAME(unsigned long x) : NAME(double(x)) {}                                        \
        explicit NAME(long long x) : NAME(double(x)) {}                                            \
        explicit NAME(unsigned long long x) : NAME(double(x)) {}                                   \
        float value() const { return cuda_on_cpu::float8_to_float(__x, cuda_on_cpu::kind(WHICH)); } \
        explicit operator float() const { return value(); }                                        \
        explicit operator double() const { return value(); }                                       \
        explicit operator __half() const { return __half(value()); }                               \
        explicit operator __nv_bfloat16() const { return __nv_bfloat16(value()); }                 \
        explicit operator bool() const { return (__x & 0x7f) != 0; }                               \
        explicit operator char() const { return char(clamped(-128, 127)); }                        \
        explicit operator signed char() const { return (signed char)clamped(-128, 127); }          \
        explicit operator unsigned char() const { return (unsigned char)clamped(0, 255); }         \
        explicit operator short() const { return short(clamped(-32768, 32767)); }                  \
        explicit operator unsigned short() const { return (unsigned short)clamped(0, 65535); }     \
        explicit operator int() const { return __float2int_rz(value()); }                          \
        explicit operator unsigned() const { return __float2uint_rz(value()); }                    \
        explicit operator long() const { return __float2ll_rz(value()); }                          \
        explicit operator unsigned long() const { return __float2ull_rz(value()); }                \
        explicit operator long long() const { return __float2ll_rz(value()); }                     \
        explicit operator unsigned long long() const { return __float2ull_rz(value()); }           \
                                                                                                   \
    private:                                                                                       \
        float clamped(float low, float high) const {                                               \
            return isnan(value()) ? 0 : fminf(fmaxf(truncf(value()), low), high);                  \
        }                                                                                          \
    };
#define CUDA_ON_CPU_FP8_VECTORS(PREFIX, SUFFIX, WHICH)                                             \
    struct alignas(2) PREFIX##x2_##SUFFIX {                                                        \
        __nv_fp8x2_storage_t __x;                                                                  \
        PREFIX##x2_##SUFFIX() = default;                                                           \
        explicit PREFIX##x2_##SUFFIX(float2 v)                                                     \
            : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, WHICH)) {}                           \
        explicit PREFIX##x2_##SUFFIX(double2 v)                                                    \
            : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, WHICH)) {}                          \
        explicit PREFIX##x2_##SUFFIX(__half2 v) : PREFIX##x2_##SUFFIX(__half22float2(v)) {}        \
        explicit PREFIX##x2_##SUFFIX(__nv_bfloat162 v)                                             \
            : PREFIX##x2_##SUFFIX(__bfloat1622float2(v)) {}                                        \
        explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, WHICH); }       \
        explicit operator float2() const { return __half22float2(__half2(*this)); }                \
    };                                                                                             \
    struct alignas(4) PREFIX##x4_##SUFFIX {                                                        \
        __nv_fp8x4_storage_t __x;                                                                  \
        PREFIX##x4_##SUFFIX() = default;                                                           \
        PREFIX##x4_##SUFFIX(PREFIX##x2_##SUFFIX low, PREFIX##x2_##SUFFIX high)                     \
            : __x(low.__x | unsigned(high.__x) << 16) {}                                           \
        explicit PREFIX##x4_##SUFFIX(float4 v)                                                     \
            : PREFIX##x4_##SUFFIX(PREFIX##x2_##SUFFIX(float2{v.x, v.y}),                           \
                                  PREFIX##x2_##SUFFIX(float2{v.z, v.w})) {}                        \
        explicit PREFIX##x4_##SUFFIX(double4 v)                                                    \
            : PREFIX##x4_##SUFFIX(PREFIX##x2_##SUFFIX(double2{v.x, v.y}),                          \
                                  PREFIX##x2_##SUFFIX(double2{v.z, v.w})) {}                       \
        PREFIX##x4_##SUFFIX(__half2 low, __half2 high)                                             \
            : PREFIX##x4_##SUFFIX(PREFIX##x2_##SUFFIX(low), PREFIX##x2_##SUFFIX(high)) {}          \
        PREFIX##x4_##SUFFIX(__nv_bfloat162 low, __nv_bfloat162 high)                               \
            : PREFIX##x4_##SUFFIX(PREFIX##x2_##SUFFIX(low), PREFIX##x2_##SUFFIX(high)) {}          \
        explicit operator float4() const {                                                         \
            float2 low = __half22float2(__nv_cvt_fp8x2_to_halfraw2((unsigned short)__x, WHICH));   \
            float2 high =                                                                          \
                __half22float2(__nv_cvt_fp8x2_to_halfraw2((unsigned short)(__x >> 16), WHICH));    \
            return {low.x, low.y, high.x, high.y};                                                 \
        }                                                                                          \
    };
CUDA_ON_CPU_FP8(__nv_fp8_e4m3, __NV_E4M3)
CUDA_ON_CPU_FP8(__nv_fp8_e5m2, __NV_E5M2)
CUDA_ON_CPU_FP8_VECTORS(__nv_fp8, e4m3, __NV_E4M3)
CUDA_ON_CPU_FP8_VECTORS(__nv_fp8, e5m2, __NV_E5M2)
#undef CUDA_ON_CPU_FP8
#undef CUDA_ON_CPU_FP8_VECTORS
