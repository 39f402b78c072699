// cub::DeviceScan: for each element the combination of those before it, or up to it.
#pragma once
#include "../detail.cuh"
#include "call.h"

namespace cub {

struct DeviceScan {
    template <class From, class To, class Combine>
    static cudaError_t InclusiveScan(void* temporary, std::size_t& bytes, From in, To out,
                                     Combine combine, std::size_t n, cudaStream_t stream = 0) {
        using T = cuda_on_cpu::Value<From>;
        return detail::call(temporary, bytes, stream,
                            [=] { cuda_on_cpu::inclusive_scan<T>(in, n, out, combine); });
    }
    template <class From, class To, class Combine, class T>
    static cudaError_t ExclusiveScan(void* temporary, std::size_t& bytes, From in, To out,
                                     Combine combine, T initial, std::size_t n,
                                     cudaStream_t stream = 0) {
        return detail::call(temporary, bytes, stream,
                            [=] { cuda_on_cpu::exclusive_scan<T>(in, n, out, initial, combine); });
    }
    template <class From, class To>
    static cudaError_t InclusiveSum(void* temporary, std::size_t& bytes, From in, To out,
                                    std::size_t n, cudaStream_t stream = 0) {
        return InclusiveScan(temporary, bytes, in, out, detail::Plus(), n, stream);
    }
    template <class From, class To>
    static cudaError_t ExclusiveSum(void* temporary, std::size_t& bytes, From in, To out,
                                    std::size_t n, cudaStream_t stream = 0) {
        cuda_on_cpu::Value<From> zero{};
        return ExclusiveScan(temporary, bytes, in, out, detail::Plus(), zero, n, stream);
    }
};

}  // namespace cub
