// Complex numbers as CUDA's libraries take them: two floats or doubles.
#pragma once
#include "cuda_on_cpu/vector_types.h"

typedef float2 cuFloatComplex, cuComplex;
typedef double2 cuDoubleComplex;

inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuComplex make_cuFloatComplex(float x, float y) { return {x, y}; }
inline float cuCrealf(cuComplex z) { return z.x; }
inline float cuCimagf(cuComplex z) { return z.y; }
inline cuComplex cuConjf(cuComplex z) { return {z.x, -z.y}; }
inline cuComplex cuCaddf(cuComplex a, cuComplex b) { return {a.x + b.x, a.y + b.y}; }
inline cuComplex cuCsubf(cuComplex a, cuComplex b) { return {a.x - b.x, a.y - b.y}; }
inline cuComplex cuCmulf(cuComplex a, cuComplex b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
inline float cuCabsf(cuComplex z) { return __builtin_hypotf(z.x, z.y); }

inline cuDoubleComplex make_cuDoubleComplex(double x, double y) { return {x, y}; }
inline double cuCreal(cuDoubleComplex z) { return z.x; }
inline double cuCimag(cuDoubleComplex z) { return z.y; }
inline cuDoubleComplex cuConj(cuDoubleComplex z) { return {z.x, -z.y}; }
inline cuDoubleComplex cuCadd(cuDoubleComplex a, cuDoubleComplex b) {
    return {a.x + b.x, a.y + b.y};
}
inline cuDoubleComplex cuCsub(cuDoubleComplex a, cuDoubleComplex b) {
    return {a.x - b.x, a.y - b.y};
}
inline cuDoubleComplex cuCmul(cuDoubleComplex a, cuDoubleComplex b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
inline double cuCabs(cuDoubleComplex z) { return __builtin_hypot(z.x, z.y); }
