// Several numbers in one 32-bit word: CUDA's SIMD intrinsics (__vadd4 ...) and the ones that dynamic
// programming asks for (__viaddmax_s32 ...).
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

namespace cuda_on_cpu {

// f of each T in the words, as a word.
template <class T, class F, class... Words>
inline unsigned by_lane(F f, Words... words) {
    unsigned result = 0;
    for (unsigned at = 0; at < 32; at += sizeof(T) * 8)
        result |= unsigned(std::make_unsigned_t<T>(f(T(words >> at)...))) << at;
    return result;
}
template <class T>
inline int clamped(int x) {
    constexpr int LOW = std::numeric_limits<T>::min(), HIGH = std::numeric_limits<T>::max();
    return x < LOW ? LOW : x > HIGH ? HIGH : x;
}
template <class T, class F>
inline unsigned sum_of_lanes(F f, unsigned a, unsigned b) {
    unsigned sum = 0;
    for (unsigned at = 0; at < 32; at += sizeof(T) * 8) sum += unsigned(f(T(a >> at), T(b >> at)));
    return sum;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_OF_ONE(NAME, T, EXPRESSION)                                            \
    inline unsigned NAME(unsigned a) {                                                     \
        using Lane = T;                                                                    \
        return cuda_on_cpu::by_lane<Lane>([](int x) { return EXPRESSION; }, a);            \
    }
#define CUDA_ON_CPU_OF_TWO(NAME, T, EXPRESSION)                                            \
    inline unsigned NAME(unsigned a, unsigned b) {                                         \
        using Lane = T;                                                                    \
        return cuda_on_cpu::by_lane<Lane>([](int x, int y) { return EXPRESSION; }, a, b);  \
    }
// ss, us: what does not fit becomes the nearest that does.
#define CUDA_ON_CPU_LANES(N, SIGNED, UNSIGNED)                                             \
    CUDA_ON_CPU_OF_ONE(__vabs##N, SIGNED, x < 0 ? -x : x)                                  \
    CUDA_ON_CPU_OF_ONE(__vabsss##N, SIGNED, cuda_on_cpu::clamped<Lane>(x < 0 ? -x : x))    \
    CUDA_ON_CPU_OF_ONE(__vneg##N, SIGNED, -x)                                              \
    CUDA_ON_CPU_OF_ONE(__vnegss##N, SIGNED, cuda_on_cpu::clamped<Lane>(-x))                \
    CUDA_ON_CPU_OF_TWO(__vadd##N, UNSIGNED, x + y)                                         \
    CUDA_ON_CPU_OF_TWO(__vaddss##N, SIGNED, cuda_on_cpu::clamped<Lane>(x + y))             \
    CUDA_ON_CPU_OF_TWO(__vaddus##N, UNSIGNED, cuda_on_cpu::clamped<Lane>(x + y))           \
    CUDA_ON_CPU_OF_TWO(__vsub##N, UNSIGNED, x - y)                                         \
    CUDA_ON_CPU_OF_TWO(__vsubss##N, SIGNED, cuda_on_cpu::clamped<Lane>(x - y))             \
    CUDA_ON_CPU_OF_TWO(__vsubus##N, UNSIGNED, cuda_on_cpu::clamped<Lane>(x - y))           \
    CUDA_ON_CPU_OF_TWO(__vavgs##N, SIGNED, (x + y + (x + y >= 0)) >> 1)                    \
    CUDA_ON_CPU_OF_TWO(__vavgu##N, UNSIGNED, (x + y + 1) >> 1)                             \
    CUDA_ON_CPU_OF_TWO(__vhaddu##N, UNSIGNED, (x + y) >> 1)                                \
    CUDA_ON_CPU_OF_TWO(__vabsdiffs##N, SIGNED, x < y ? y - x : x - y)                      \
    CUDA_ON_CPU_OF_TWO(__vabsdiffu##N, UNSIGNED, x < y ? y - x : x - y)                    \
    CUDA_ON_CPU_OF_TWO(__vmaxs##N, SIGNED, x < y ? y : x)                                  \
    CUDA_ON_CPU_OF_TWO(__vmaxu##N, UNSIGNED, x < y ? y : x)                                \
    CUDA_ON_CPU_OF_TWO(__vmins##N, SIGNED, y < x ? y : x)                                  \
    CUDA_ON_CPU_OF_TWO(__vminu##N, UNSIGNED, y < x ? y : x)                                \
    CUDA_ON_CPU_COMPARED(eq##N, UNSIGNED, ==)                                              \
    CUDA_ON_CPU_COMPARED(ne##N, UNSIGNED, !=)                                              \
    CUDA_ON_CPU_COMPARED(ges##N, SIGNED, >=)                                               \
    CUDA_ON_CPU_COMPARED(geu##N, UNSIGNED, >=)                                             \
    CUDA_ON_CPU_COMPARED(gts##N, SIGNED, >)                                                \
    CUDA_ON_CPU_COMPARED(gtu##N, UNSIGNED, >)                                              \
    CUDA_ON_CPU_COMPARED(les##N, SIGNED, <=)                                               \
    CUDA_ON_CPU_COMPARED(leu##N, UNSIGNED, <=)                                             \
    CUDA_ON_CPU_COMPARED(lts##N, SIGNED, <)                                                \
    CUDA_ON_CPU_COMPARED(ltu##N, UNSIGNED, <)                                              \
    CUDA_ON_CPU_SUM(__vsads##N, SIGNED)                                                    \
    CUDA_ON_CPU_SUM(__vsadu##N, UNSIGNED)
#define CUDA_ON_CPU_COMPARED(NAME, T, OPERATION)                                           \
    CUDA_ON_CPU_OF_TWO(__vcmp##NAME, T, x OPERATION y ? ~0 : 0)                            \
    CUDA_ON_CPU_OF_TWO(__vset##NAME, T, x OPERATION y)
#define CUDA_ON_CPU_SUM(NAME, T)                                                           \
    inline unsigned NAME(unsigned a, unsigned b) {                                         \
        return cuda_on_cpu::sum_of_lanes<T>([](int x, int y) { return x < y ? y - x : x - y; }, a, b); \
    }
CUDA_ON_CPU_LANES(2, std::int16_t, std::uint16_t)
CUDA_ON_CPU_LANES(4, std::int8_t, std::uint8_t)
#undef CUDA_ON_CPU_OF_ONE
#undef CUDA_ON_CPU_OF_TWO
#undef CUDA_ON_CPU_LANES
#undef CUDA_ON_CPU_COMPARED
#undef CUDA_ON_CPU_SUM

// ---------------------------------------------------------------- dynamic programming

namespace cuda_on_cpu {
template <class T>
inline T sum(T a, T b) { return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b)); }
template <class T>
inline T lesser(T a, T b) { return b < a ? b : a; }
template <class T>
inline T greater(T a, T b) { return a < b ? b : a; }
}  // namespace cuda_on_cpu
// Words are one 32-bit number, or two of 16 bits; _relu: at least 0.
#define CUDA_ON_CPU_DPX(NAME, T, LANE, RELU)                                               \
    inline T __viaddmax_##NAME(T a, T b, T c) {                                            \
        return T(cuda_on_cpu::by_lane<LANE>([](LANE x, LANE y, LANE z) {                   \
            return RELU(cuda_on_cpu::greater(cuda_on_cpu::sum(x, y), z)); },               \
            unsigned(a), unsigned(b), unsigned(c)));                                       \
    }                                                                                      \
    inline T __viaddmin_##NAME(T a, T b, T c) {                                            \
        return T(cuda_on_cpu::by_lane<LANE>([](LANE x, LANE y, LANE z) {                   \
            return RELU(cuda_on_cpu::lesser(cuda_on_cpu::sum(x, y), z)); },                \
            unsigned(a), unsigned(b), unsigned(c)));                                       \
    }                                                                                      \
    inline T __vimax3_##NAME(T a, T b, T c) {                                              \
        return T(cuda_on_cpu::by_lane<LANE>([](LANE x, LANE y, LANE z) {                   \
            return RELU(cuda_on_cpu::greater(cuda_on_cpu::greater(x, y), z)); },           \
            unsigned(a), unsigned(b), unsigned(c)));                                       \
    }                                                                                      \
    inline T __vimin3_##NAME(T a, T b, T c) {                                              \
        return T(cuda_on_cpu::by_lane<LANE>([](LANE x, LANE y, LANE z) {                   \
            return RELU(cuda_on_cpu::lesser(cuda_on_cpu::lesser(x, y), z)); },             \
            unsigned(a), unsigned(b), unsigned(c)));                                       \
    }
#define CUDA_ON_CPU_RELU(x) cuda_on_cpu::greater(x, decltype(x)(0))
#define CUDA_ON_CPU_SAME(x) x
CUDA_ON_CPU_DPX(s32, int, std::int32_t, CUDA_ON_CPU_SAME)
CUDA_ON_CPU_DPX(s32_relu, int, std::int32_t, CUDA_ON_CPU_RELU)
CUDA_ON_CPU_DPX(u32, unsigned, std::uint32_t, CUDA_ON_CPU_SAME)
CUDA_ON_CPU_DPX(s16x2, unsigned, std::int16_t, CUDA_ON_CPU_SAME)
CUDA_ON_CPU_DPX(s16x2_relu, unsigned, std::int16_t, CUDA_ON_CPU_RELU)
CUDA_ON_CPU_DPX(u16x2, unsigned, std::uint16_t, CUDA_ON_CPU_SAME)
#undef CUDA_ON_CPU_DPX
#undef CUDA_ON_CPU_RELU
#undef CUDA_ON_CPU_SAME
inline int __vimax_s32_relu(int a, int b) { return __vimax3_s32(a, b, 0); }
inline int __vimin_s32_relu(int a, int b) { return a < 0 || b < 0 ? 0 : a < b ? a : b; }
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) { return __vimax3_s16x2(a, b, 0); }
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) {
    return __vmaxs2(__vmins2(a, b), 0);
}
// Whether the first one is what comes out; of halves, of the upper one and of the lower.
inline int __vibmax_s32(int a, int b, bool* first) { return (*first = a >= b) ? a : b; }
inline int __vibmin_s32(int a, int b, bool* first) { return (*first = a <= b) ? a : b; }
inline unsigned __vibmax_u32(unsigned a, unsigned b, bool* first) {
    return (*first = a >= b) ? a : b;
}
inline unsigned __vibmin_u32(unsigned a, unsigned b, bool* first) {
    return (*first = a <= b) ? a : b;
}
#define CUDA_ON_CPU_WITH_CHOICES(NAME, LANE, OPERATION)                                    \
    inline unsigned NAME(unsigned a, unsigned b, bool* high, bool* low) {                  \
        *high = LANE(a >> 16) OPERATION LANE(b >> 16), *low = LANE(a) OPERATION LANE(b);   \
        return ((*high ? a : b) & 0xffff0000u) | ((*low ? a : b) & 0xffffu);               \
    }
CUDA_ON_CPU_WITH_CHOICES(__vibmax_s16x2, std::int16_t, >=)
CUDA_ON_CPU_WITH_CHOICES(__vibmin_s16x2, std::int16_t, <=)
CUDA_ON_CPU_WITH_CHOICES(__vibmax_u16x2, std::uint16_t, >=)
CUDA_ON_CPU_WITH_CHOICES(__vibmin_u16x2, std::uint16_t, <=)
#undef CUDA_ON_CPU_WITH_CHOICES
