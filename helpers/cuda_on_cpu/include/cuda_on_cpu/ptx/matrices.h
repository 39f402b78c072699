// ldmatrix, stmatrix and mma.sync.
#pragma once
#include "../tensor_core.h"
#include "memory.h"

namespace cuda_on_cpu::ptx {

// Lane i gives the address of row i % 8 of matrix i / 8: eight elements of 16 bits. Each lane then
// holds two neighbours of row lane / 4, or of that column with .trans.
struct MatrixRows : Together {
    uint4 row;        // what lies at the lane's address, or shall
    B32 registers[4];
};
template <bool TRANSPOSED>
constexpr Place place_in_matrix(int lane, int half) {
    Place place{lane / 4, lane % 4 * 2 + half};
    return TRANSPOSED ? Place{place.col, place.row} : place;
}
template <int COUNT, bool TRANSPOSED, bool LOADS>
CUDA_ON_CPU_UNCHECKED void exchange_matrices(Together* const* lanes) {
    for (int matrix = 0; matrix < COUNT; matrix++)
        for (int lane = 0; lane < 32; lane++)
            for (int half = 0; half < 2; half++) {
                Place at = place_in_matrix<TRANSPOSED>(lane, half);
                auto* row = static_cast<MatrixRows*>(lanes[matrix * 8 + at.row]);
                auto* element = reinterpret_cast<char*>(&row->row) + at.col * 2;
                auto* held = static_cast<MatrixRows*>(lanes[lane]);
                auto* part = reinterpret_cast<char*>(&held->registers[matrix]) + half * 2;
                LOADS ? std::memcpy(part, element, 2) : std::memcpy(element, part, 2);
            }
}
template <bool TRANSPOSED, class... Registers>
CUDA_ON_CPU_INLINE void ldmatrix(int line, const char* from, Registers&... to) {
    constexpr int COUNT = sizeof...(to);
    MatrixRows mine{{exchange_matrices<COUNT, TRANSPOSED, true>, "ldmatrix"}, {}, {}};
    if (lane() < COUNT * 8) mine.row = *reinterpret_cast<const uint4*>(from);
    do_together(mine, line);
    const B32* next = mine.registers;
    ((to = *next++), ...);
}
template <bool TRANSPOSED, class... Registers>
CUDA_ON_CPU_INLINE void stmatrix(int line, char* to, Registers... from) {
    constexpr int COUNT = sizeof...(from);
    MatrixRows mine{{exchange_matrices<COUNT, TRANSPOSED, false>, "stmatrix"}, {}, {from...}};
    do_together(mine, line);
    if (lane() < COUNT * 8) *reinterpret_cast<uint4*>(to) = mine.row;
}

// The registers of one operand.
template <class... Bits>
struct Registers {
    std::common_type_t<Bits...> all[sizeof...(Bits)];
    Registers(Bits... bits) : all{bits...} {}
};
template <int M, int N, int K, class A, class B, class C, class D, class RA, class RB, class RC,
          class... Results>
inline void mma_sync(int line, const RA& a, const RB& b, const RC& c, Results&... results) {
    Registers<Results...> d(results...);
    static_assert(sizeof a.all * 8 == M * K / 32 * A::BITS, "mma.sync: registers of A");
    static_assert(sizeof b.all * 8 == K * N / 32 * B::BITS, "mma.sync: registers of B");
    static_assert(sizeof c.all * 8 == M * N / 32 * C::BITS, "mma.sync: registers of C");
    static_assert(sizeof d.all * 8 == M * N / 32 * D::BITS, "mma.sync: registers of D");
    mma<M, N, K, A, B, C, D>("mma.sync", a.all, b.all, c.all, d.all, line);
    auto* next = d.all;
    ((results = *next++), ...);
}

}  // namespace cuda_on_cpu::ptx
