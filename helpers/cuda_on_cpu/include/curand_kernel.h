// cuRAND's generators for kernels: XORWOW (curandState) and Philox-4x32-10, to the bit. Uniform
// numbers are in (0, 1]; normal ones, by Box and Muller, may differ from a GPU's in the last bits.
#pragma once
#define CURAND_KERNEL_H_  // others' headers ask for it
#include "cuda_on_cpu/xorwow.h"
#include "cuda_runtime.h"

namespace cuda_on_cpu {
// The second number of a pair that Box and Muller's method made, kept for the next call.
struct SpareNormals {
    bool has_float, has_double;
    float spare_float;
    double spare_double;
    void clear() {
        has_float = has_double = false;
        spare_float = 0;
        spare_double = 0;
    }
};
}  // namespace cuda_on_cpu

struct curandStateXORWOW {
    unsigned d, v[5];
    cuda_on_cpu::SpareNormals spare;
};
struct curandStatePhilox4_32_10 {
    uint4 ctr, output;
    uint2 key;
    unsigned STATE;  // which word of the output comes next
    cuda_on_cpu::SpareNormals spare;
};
typedef curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

// ---------------------------------------------------------------- XORWOW (Marsaglia, 2003)

inline unsigned curand(curandStateXORWOW* state) {
    unsigned* v = state->v;
    unsigned t = v[0] ^ v[0] >> 2;
    for (int i = 0; i < 4; i++) v[i] = v[i + 1];
    v[4] = (v[4] ^ v[4] << 4) ^ (t ^ t << 1);
    state->d += 362437;
    return v[4] + state->d;
}
inline void skipahead(unsigned long long steps, curandStateXORWOW* state) {
    cuda_on_cpu::skip_xorwow(state->v, steps, false);
    state->d += 362437 * unsigned(steps);
}
inline void skipahead_sequence(unsigned long long sequences, curandStateXORWOW* state) {
    cuda_on_cpu::skip_xorwow(state->v, sequences, true);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStateXORWOW* state) {
    unsigned low = 1099087573u * (unsigned(seed) ^ 0xaad26b49u);
    unsigned high = 2591861531u * (unsigned(seed >> 32) ^ 0xf7dcefddu);
    const unsigned words[] = {123456789 + low, 362436069 ^ low, 521288629 + high, 88675123 ^ high,
                              5783321 + low};
    state->d = 6615241 + high + low;
    for (int i = 0; i < 5; i++) state->v[i] = words[i];
    state->spare.clear();
    skipahead_sequence(sequence, state);
    skipahead(offset, state);
}

// ---------------------------------------------------------------- Philox (Salmon et al., 2011)

namespace cuda_on_cpu {
inline uint4 philox_4x32_10(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; round++) {
        unsigned long long a = 0xD2511F53ull * counter.x, b = 0xCD9E8D57ull * counter.z;
        counter = {unsigned(b >> 32) ^ counter.y ^ key.x, unsigned(b),
                   unsigned(a >> 32) ^ counter.w ^ key.y, unsigned(a)};
        key = {key.x + 0x9E3779B9u, key.y + 0xBB67AE85u};
    }
    return counter;
}
// Adds to a counter of 128 bits, or to its upper half.
inline uint4 add_to_counter(uint4 counter, unsigned long long n, bool upper) {
    unsigned long long low = (unsigned long long)counter.y << 32 | counter.x;
    unsigned long long high = (unsigned long long)counter.w << 32 | counter.z;
    if (upper) {
        high += n;
    } else {
        low += n;
        high += low < n;
    }
    return {unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32)};
}
inline void advance(curandStatePhilox4_32_10* state, unsigned long long n, bool upper = false) {
    state->ctr = add_to_counter(state->ctr, n, upper);
    state->output = philox_4x32_10(state->ctr, state->key);
}
}  // namespace cuda_on_cpu

inline unsigned curand(curandStatePhilox4_32_10* state) {
    const unsigned words[] = {state->output.x, state->output.y, state->output.z, state->output.w};
    unsigned word = words[state->STATE++];
    if (state->STATE == 4) {
        cuda_on_cpu::advance(state, 1);
        state->STATE = 0;
    }
    return word;
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
    unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
    return {x, y, z, w};
}
inline void skipahead(unsigned long long steps, curandStatePhilox4_32_10* state) {
    unsigned long long words = state->STATE + (steps & 3);
    state->STATE = unsigned(words & 3);
    cuda_on_cpu::advance(state, steps / 4 + words / 4);
}
inline void skipahead_sequence(unsigned long long sequences, curandStatePhilox4_32_10* state) {
    cuda_on_cpu::advance(state, sequences, true);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStatePhilox4_32_10* state) {
    state->ctr = {};
    state->STATE = 0;
    state->spare.clear();
    state->key = {unsigned(seed), unsigned(seed >> 32)};
    skipahead_sequence(sequence, state);
    skipahead(offset, state);
}

// ---------------------------------------------------------------- distributions

namespace cuda_on_cpu {
constexpr float UNIT = 2.3283064e-10f;  // 2^-32
constexpr double SMALL_UNIT = 1.1102230246251565e-16;  // 2^-53

inline float uniform(unsigned x) { return x * UNIT + UNIT / 2; }
inline double uniform(unsigned low, unsigned high) {
    unsigned long long bits = low ^ (unsigned long long)high << 21;
    return bits * SMALL_UNIT + SMALL_UNIT / 2;
}
inline float2 normal_pair(unsigned x, unsigned y) {
    constexpr float TURN = UNIT * 6.2831855f;
    float radius = sqrtf(-2 * logf(uniform(x))), angle = y * TURN + TURN / 2;
    return {sinf(angle) * radius, cosf(angle) * radius};
}
inline double2 normal_pair(uint4 x) {
    unsigned long long bits = x.z ^ (unsigned long long)x.w << 21;
    double radius = sqrt(-2 * log(uniform(x.x, x.y))), angle = bits * (SMALL_UNIT * 2) + SMALL_UNIT;
    return {sinpi(angle) * radius, cospi(angle) * radius};
}
template <class State>
inline uint4 four_words(State* state) {
    unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
    return {x, y, z, w};
}
}  // namespace cuda_on_cpu

template <class State>
inline float curand_uniform(State* state) {
    return cuda_on_cpu::uniform(curand(state));
}
inline double curand_uniform_double(curandStateXORWOW* state) {
    unsigned low = curand(state), high = curand(state);
    return cuda_on_cpu::uniform(low, high);
}
inline double curand_uniform_double(curandStatePhilox4_32_10* state) {
    return curand(state) * 0x1p-32 + 0x1p-32;
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
    uint4 x = curand4(state);
    using cuda_on_cpu::uniform;
    return {uniform(x.x), uniform(x.y), uniform(x.z), uniform(x.w)};
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
    uint4 x = curand4(state);
    return {cuda_on_cpu::uniform(x.x, x.y), cuda_on_cpu::uniform(x.z, x.w)};
}

template <class State>
inline float2 curand_normal2(State* state) {
    unsigned x = curand(state), y = curand(state);
    return cuda_on_cpu::normal_pair(x, y);
}
template <class State>
inline float curand_normal(State* state) {
    auto& spare = state->spare;
    if ((spare.has_float = !spare.has_float)) {
        float2 pair = curand_normal2(state);
        spare.spare_float = pair.y;
        return pair.x;
    }
    return spare.spare_float;
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
    uint4 x = curand4(state);
    float2 low = cuda_on_cpu::normal_pair(x.x, x.y), high = cuda_on_cpu::normal_pair(x.z, x.w);
    return {low.x, low.y, high.x, high.y};
}
template <class State>
inline double2 curand_normal2_double(State* state) {
    return cuda_on_cpu::normal_pair(cuda_on_cpu::four_words(state));
}
template <class State>
inline double curand_normal_double(State* state) {
    auto& spare = state->spare;
    if ((spare.has_double = !spare.has_double)) {
        double2 pair = curand_normal2_double(state);
        spare.spare_double = pair.y;
        return pair.x;
    }
    return spare.spare_double;
}

template <class State>
inline float curand_log_normal(State* state, float mean, float deviation) {
    return expf(mean + deviation * curand_normal(state));
}
template <class State>
inline float2 curand_log_normal2(State* state, float mean, float deviation) {
    float2 v = curand_normal2(state);
    return {expf(mean + deviation * v.x), expf(mean + deviation * v.y)};
}
template <class State>
inline double curand_log_normal_double(State* state, double mean, double deviation) {
    return exp(mean + deviation * curand_normal_double(state));
}
