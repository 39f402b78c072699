// CUDA's small vectors (float4, uchar3, ...), their alignment, make_float4(...) and friends, dim3.
#pragma once

// Two- and four-element vectors are aligned to their size (16 bytes at most): one load moves them.
#define CUDA_ON_CPU_VECTORS(T, NAME)                                                       \
    struct NAME##1 { T x; };                                                               \
    struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };                                     \
    struct NAME##3 { T x, y, z; };                                                         \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) NAME##4 { T x, y, z, w; };     \
    constexpr NAME##1 make_##NAME##1(T x) { return {x}; }                                  \
    constexpr NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                          \
    constexpr NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                  \
    constexpr NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

CUDA_ON_CPU_VECTORS(signed char, char)
CUDA_ON_CPU_VECTORS(unsigned char, uchar)
CUDA_ON_CPU_VECTORS(short, short)
CUDA_ON_CPU_VECTORS(unsigned short, ushort)
CUDA_ON_CPU_VECTORS(int, int)
CUDA_ON_CPU_VECTORS(unsigned, uint)
CUDA_ON_CPU_VECTORS(long, long)
CUDA_ON_CPU_VECTORS(unsigned long, ulong)
CUDA_ON_CPU_VECTORS(long long, longlong)
CUDA_ON_CPU_VECTORS(unsigned long long, ulonglong)
CUDA_ON_CPU_VECTORS(float, float)
CUDA_ON_CPU_VECTORS(double, double)
#undef CUDA_ON_CPU_VECTORS

// The extent of a grid or a block. Every component that is left out is 1.
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
