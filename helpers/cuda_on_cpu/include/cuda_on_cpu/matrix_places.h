// Which elements of a matrix each lane of a warp holds for the tensor cores (PTX ISA, "Matrix
// Fragments"): of 8 rows each lane / 4 has one, and the four lanes of a row share its columns.
#pragma once

namespace cuda_on_cpu {

struct Place {
    int row, col;
};

// PACKED: elements in a register. i: the element's number in its lane.
template <int M, int K, int PACKED>
constexpr Place place_in_A(int lane, int i) {
    constexpr int HALVES = M >= 16 ? 2 : 1, IN_BLOCK = HALVES * K / 4;
    int block = i / IN_BLOCK, within = i % IN_BLOCK / PACKED;
    return {block * 16 + lane / 4 + within % HALVES * 8,
            lane % 4 * PACKED + i % PACKED + within / HALVES * 4 * PACKED};
}
template <int K, int PACKED>
constexpr Place place_in_B(int lane, int i) {
    constexpr int IN_BLOCK = K / 4;
    int block = i / IN_BLOCK, within = i % IN_BLOCK / PACKED;
    return {lane % 4 * PACKED + i % PACKED + within * 4 * PACKED, block * 8 + lane / 4};
}
template <int M, int N>
constexpr Place place_in_C(int lane, int i) {
    constexpr int IN_BLOCK = M >= 16 ? 4 : 2;
    int block = i / IN_BLOCK, within = i % IN_BLOCK;
    return {block / (N / 8) * 16 + lane / 4 + within / 2 * 8,
            block % (N / 8) * 8 + lane % 4 * 2 + within % 2};
}

}  // namespace cuda_on_cpu
