// XORWOW's step is linear over bits: so many steps at once are a power of its matrix.
#include "../include/cuda_on_cpu/xorwow.h"

#include <array>
#include <vector>

namespace cuda_on_cpu {

using Words = std::array<std::uint32_t, 5>;
using Matrix = std::array<Words, 160>;  // what becomes of each single bit

static Words step_xorwow(Words v) {
    std::uint32_t t = v[0] ^ v[0] >> 2;
    return {v[1], v[2], v[3], v[4], (v[4] ^ v[4] << 4) ^ (t ^ t << 1)};
}

static Words multiply(const Matrix& matrix, const Words& v) {
    Words result{};
    for (unsigned bit = 0; bit < 160; bit++)
        if (v[bit / 32] >> bit % 32 & 1)
            for (unsigned i = 0; i < 5; i++) result[i] ^= matrix[bit][i];
    return result;
}

// Entry i is the matrix of 2^i steps.
static const std::vector<Matrix>& powers_of_xorwow() {
    static const std::vector<Matrix> powers = [] {
        std::vector<Matrix> made(67 + 64);
        for (unsigned bit = 0; bit < 160; bit++) {
            Words single{};
            single[bit / 32] = 1u << bit % 32;
            made[0][bit] = step_xorwow(single);
        }
        for (std::size_t i = 1; i < made.size(); i++)
            for (unsigned bit = 0; bit < 160; bit++) made[i][bit] = multiply(made[i - 1], made[i - 1][bit]);
        return made;
    }();
    return powers;
}

void skip_xorwow(std::uint32_t* words, std::uint64_t steps, bool times_2_67) {
    if (!steps) return;
    const std::vector<Matrix>& powers = powers_of_xorwow();
    Words v{words[0], words[1], words[2], words[3], words[4]};
    for (unsigned i = 0; i < 64; i++)
        if (steps >> i & 1) v = multiply(powers[(times_2_67 ? 67 : 0) + i], v);
    for (unsigned i = 0; i < 5; i++) words[i] = v[i];
}

}  // namespace cuda_on_cpu
