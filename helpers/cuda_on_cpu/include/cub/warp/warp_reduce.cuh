// cub::WarpReduce: the first lane of each warp, or part of it, gets the combination of all.
#pragma once
#include "../../cuda_runtime.h"
#include "../detail.cuh"

namespace cub {

namespace detail {
// Lanes that exist in the running warp.
inline unsigned existing_lanes() {
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned left = threads - cuda_on_cpu::position.thread / 32 * 32;
    return left >= 32 ? 32 : left;
}
inline unsigned lanes_mask(unsigned first, unsigned count) {
    return (count >= 32 ? 0xffffffffu : (1u << count) - 1) << first;
}
}  // namespace detail

template <class T, int Lanes = 32>
class WarpReduce {
public:
    struct TempStorage {};
    explicit WarpReduce(TempStorage&) {}

    // Of the first `valid` lanes.
    template <class Combine>
    T Reduce(T value, Combine combine, int valid = Lanes, Line line = Line(__builtin_LINE())) {
        unsigned lane = cuda_on_cpu::lane(), first = lane / Lanes * Lanes;
        unsigned exist = detail::existing_lanes() - first;
        unsigned count = exist < unsigned(Lanes) ? exist : unsigned(Lanes);
        unsigned end = first + (unsigned(valid) < count ? unsigned(valid) : count);
        unsigned mask = detail::lanes_mask(first, count);
        for (unsigned step = 1; step < unsigned(Lanes); step *= 2) {
            unsigned source = lane + step < first + count ? lane + step : lane;
            T other = cuda_on_cpu::shuffle_any(mask, value, int(source), line.number);
            if ((lane - first) % (2 * step) == 0 && lane + step < end) value = combine(value, other);
        }
        return value;
    }
    T Sum(T value, int valid = Lanes, Line line = Line(__builtin_LINE())) {
        return Reduce(value, detail::Plus(), valid, line);
    }
    T Max(T value, Line line = Line(__builtin_LINE())) { return Reduce(value, detail::Larger(), Lanes, line); }
    T Min(T value, Line line = Line(__builtin_LINE())) { return Reduce(value, detail::Smaller(), Lanes, line); }
};

}  // namespace cub
