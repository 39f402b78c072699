// cub::DeviceHistogram: how many samples lie in each of levels - 1 bins of equal width.
#pragma once
#include <algorithm>

#include "call.h"

namespace cub {

struct DeviceHistogram {
    template <class From, class Counter, class Level>
    static cudaError_t HistogramEven(void* temporary, std::size_t& bytes, From samples,
                                     Counter* histogram, int levels, Level lower, Level upper,
                                     std::size_t n, cudaStream_t stream = 0) {
        return detail::call(temporary, bytes, stream, [=] {
            std::fill(histogram, histogram + levels - 1, Counter{});
            for (std::size_t i = 0; i < n; i++) {
                Level sample = Level(samples[i]);
                if (sample < lower || !(sample < upper)) continue;
                double bin = (double(sample) - double(lower)) * (levels - 1) / (double(upper) - double(lower));
                histogram[std::min(int(bin), levels - 2)]++;
            }
        });
    }
};

}  // namespace cub
