// D = A * B + C by a whole warp. Products are exact and sums of floating-point numbers are in
// float, in the order of k, with one rounding for each product that is added. (Tensor cores add
// several products at a time and cut off what is too small, so the last bits differ.)
#pragma once
#include <cstring>

#include "float8_bits.h"
#include "matrix_places.h"
#include "small_floats.h"
#include "together.h"

namespace cuda_on_cpu {

// Elements of matrices: in how many bits a lane holds one, as what it is computed with, and how
// element i of a lane is read. Integers wrap around in unsigned.
template <int Bits, class Number>
struct Element {
    using Computed = Number;
    static constexpr int BITS = Bits, PACKED = Bits < 32 ? 32 / Bits : 1;
    template <class Stored>
    static Stored stored(const void* held, int i) {
        Stored value;
        std::memcpy(&value, static_cast<const char*>(held) + i * sizeof(Stored), sizeof(Stored));
        return value;
    }
};
struct F16 : Element<16, float> {
    static float load(const void* held, int i) { return half_to_float(stored<unsigned short>(held, i)); }
    static void store(void* held, int i, float x) {
        unsigned short bits = half_bits(x);
        std::memcpy(static_cast<char*>(held) + i * 2, &bits, 2);
    }
};
struct BF16 : Element<16, float> {
    static float load(const void* held, int i) { return bfloat16_to_float(stored<unsigned short>(held, i)); }
};
struct TF32 : Element<32, float> {  // the last 13 bits of a float are not looked at
    static float load(const void* held, int i) {
        return reinterpret_bits<float>(stored<unsigned>(held, i) & 0xffffe000u);
    }
};
template <Float8 Kind>
struct F8 : Element<8, float> {
    static float load(const void* held, int i) { return float8_to_float(stored<unsigned char>(held, i), Kind); }
};
using E4M3 = F8<Float8::e4m3>;
using E5M2 = F8<Float8::e5m2>;
struct S8 : Element<8, unsigned> {
    static unsigned load(const void* held, int i) { return unsigned(int(stored<signed char>(held, i))); }
};
struct U8 : Element<8, unsigned> {
    static unsigned load(const void* held, int i) { return stored<unsigned char>(held, i); }
};
struct U4 : Element<4, unsigned> {
    static unsigned load(const void* held, int i) {
        return stored<unsigned char>(held, i / 2) >> i % 2 * 4 & 15u;
    }
};
struct S4 : Element<4, unsigned> {
    static unsigned load(const void* held, int i) { return (U4::load(held, i) ^ 8u) - 8u; }
};
template <class T>
struct Plain : Element<sizeof(T) * 8, T> {
    static T load(const void* held, int i) { return Plain::template stored<T>(held, i); }
    static void store(void* held, int i, T x) {
        std::memcpy(static_cast<char*>(held) + i * sizeof(T), &x, sizeof(T));
    }
};
using F32 = Plain<float>;
using F64 = Plain<double>;
using S32 = Plain<unsigned>;

// Unrolled, half of what place_in_...() computes is constant: more than twice as fast. A checked
// build would take longer than that saves.
#if defined(CUDA_ON_CPU_CHECK)
#define CUDA_ON_CPU_UNROLLED
#else
#define CUDA_ON_CPU_UNROLLED _Pragma("GCC unroll 32")
#endif

struct Mma : Together {
    const void *a, *b, *c;  // the lane's elements, as they lie in its registers
    void* d;
};

template <int M, int N, int K, class A, class B, class C, class D>
CUDA_ON_CPU_UNCHECKED void multiply_matrices(Together* const* lanes) {
    using Number = typename A::Computed;
    typedef Number Row __attribute__((vector_size(8 * sizeof(Number))));
    constexpr int BLOCKS = N / 8;
    Number a[M][K];
    Row b[K][BLOCKS], sum[M][BLOCKS];
    for (int lane = 0; lane < 32; lane++) {
        auto& mine = *static_cast<const Mma*>(lanes[lane]);
        CUDA_ON_CPU_UNROLLED
        for (int i = 0; i < M * K / 32; i++) {
            Place at = place_in_A<M, K, A::PACKED>(lane, i);
            a[at.row][at.col] = A::load(mine.a, i);
        }
        CUDA_ON_CPU_UNROLLED
        for (int i = 0; i < K * N / 32; i++) {
            Place at = place_in_B<K, B::PACKED>(lane, i);
            b[at.row][at.col / 8][at.col % 8] = B::load(mine.b, i);
        }
        CUDA_ON_CPU_UNROLLED
        for (int i = 0; i < M * N / 32; i++) {
            Place at = place_in_C<M, N>(lane, i);
            sum[at.row][at.col / 8][at.col % 8] = C::load(mine.c, i);
        }
    }
    for (int row = 0; row < M; row++)
        for (int k = 0; k < K; k++)
            for (int block = 0; block < BLOCKS; block++) sum[row][block] += a[row][k] * b[k][block];
    for (int lane = 0; lane < 32; lane++) {
        auto& mine = *static_cast<const Mma*>(lanes[lane]);
        CUDA_ON_CPU_UNROLLED
        for (int i = 0; i < M * N / 32; i++) {
            Place at = place_in_C<M, N>(lane, i);
            D::store(mine.d, i, sum[at.row][at.col / 8][at.col % 8]);
        }
    }
}

template <int M, int N, int K, class A, class B, class C, class D>
CUDA_ON_CPU_UNCHECKED inline void mma(const char* name, const void* a, const void* b, const void* c,
                                      void* d, int line) {
    Mma mine{{multiply_matrices<M, N, K, A, B, C, D>, name}, a, b, c, d};
    do_together(mine, line);
}

}  // namespace cuda_on_cpu
