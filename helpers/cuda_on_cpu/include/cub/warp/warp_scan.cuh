// cub::WarpScan: lane i gets the combination of the lanes before it, or up to it.
#pragma once
#include "warp_reduce.cuh"

namespace cub {

template <class T, int Lanes = 32>
class WarpScan {
public:
    struct TempStorage {};
    explicit WarpScan(TempStorage&) {}

    // total: of all lanes.
    template <class Combine>
    void InclusiveScan(T value, T& result, Combine combine, T& total, Line line = Line(__builtin_LINE())) {
        unsigned lane = cuda_on_cpu::lane(), first = lane / Lanes * Lanes, mask = mask_of(first);
        for (unsigned step = 1; step < unsigned(Lanes); step *= 2) {
            unsigned source = lane >= first + step ? lane - step : lane;
            T before = cuda_on_cpu::shuffle_any(mask, value, int(source), line.number);
            if (lane >= first + step) value = combine(before, value);
        }
        total = cuda_on_cpu::shuffle_any(mask, value, 31 - __clz(int(mask)), line.number);
        result = value;
    }
    template <class Combine>
    void InclusiveScan(T value, T& result, Combine combine, Line line = Line(__builtin_LINE())) {
        T total;
        InclusiveScan(value, result, combine, total, line);
    }
    template <class Combine>
    void ExclusiveScan(T value, T& result, T initial, Combine combine, T& total,
                       Line line = Line(__builtin_LINE())) {
        unsigned lane = cuda_on_cpu::lane(), first = lane / Lanes * Lanes;
        T inclusive;
        InclusiveScan(value, inclusive, combine, total, line);
        int source = int(lane == first ? lane : lane - 1);
        T before = cuda_on_cpu::shuffle_any(mask_of(first), inclusive, source, line.number);
        result = lane == first ? initial : combine(initial, before);
    }
    template <class Combine>
    void ExclusiveScan(T value, T& result, T initial, Combine combine, Line line = Line(__builtin_LINE())) {
        T total;
        ExclusiveScan(value, result, initial, combine, total, line);
    }
    void InclusiveSum(T value, T& result, Line line = Line(__builtin_LINE())) {
        InclusiveScan(value, result, detail::Plus(), line);
    }
    void InclusiveSum(T value, T& result, T& total, Line line = Line(__builtin_LINE())) {
        InclusiveScan(value, result, detail::Plus(), total, line);
    }
    void ExclusiveSum(T value, T& result, Line line = Line(__builtin_LINE())) {
        ExclusiveScan(value, result, T{}, detail::Plus(), line);
    }
    void ExclusiveSum(T value, T& result, T& total, Line line = Line(__builtin_LINE())) {
        ExclusiveScan(value, result, T{}, detail::Plus(), total, line);
    }
    T Broadcast(T value, unsigned lane, Line line = Line(__builtin_LINE())) {
        unsigned first = cuda_on_cpu::lane() / Lanes * Lanes;
        return cuda_on_cpu::shuffle_any(mask_of(first), value, int(first + lane), line.number);
    }

private:
    static unsigned mask_of(unsigned first) {
        unsigned exist = detail::existing_lanes() - first;
        return detail::lanes_mask(first, exist < unsigned(Lanes) ? exist : unsigned(Lanes));
    }
};

}  // namespace cub
