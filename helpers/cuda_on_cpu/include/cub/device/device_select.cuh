// cub::DeviceSelect: the chosen elements in their order, and how many they are.
#pragma once
#include "call.h"

namespace cub {

struct DeviceSelect {
    template <class From, class To, class Count, class Choose>
    static cudaError_t If(void* temporary, std::size_t& bytes, From in, To out, Count count,
                          std::size_t n, Choose choose, cudaStream_t stream = 0) {
        return select(temporary, bytes, in, out, count, n, stream,
                      [=](std::size_t i) { return choose(in[i]); });
    }
    template <class From, class Flags, class To, class Count>
    static cudaError_t Flagged(void* temporary, std::size_t& bytes, From in, Flags flags, To out,
                               Count count, std::size_t n, cudaStream_t stream = 0) {
        return select(temporary, bytes, in, out, count, n, stream,
                      [=](std::size_t i) { return bool(flags[i]); });
    }
    // The first of each run of equal elements.
    template <class From, class To, class Count>
    static cudaError_t Unique(void* temporary, std::size_t& bytes, From in, To out, Count count,
                              std::size_t n, cudaStream_t stream = 0) {
        return select(temporary, bytes, in, out, count, n, stream,
                      [=](std::size_t i) { return !i || !(in[i] == in[i - 1]); });
    }

private:
    template <class From, class To, class Count, class Choose>
    static cudaError_t select(void* temporary, std::size_t& bytes, From in, To out, Count count,
                              std::size_t n, cudaStream_t stream, Choose choose) {
        return detail::call(temporary, bytes, stream, [=] {
            std::size_t chosen = 0;
            for (std::size_t i = 0; i < n; i++)
                if (choose(i)) out[chosen++] = in[i];
            *count = chosen;
        });
    }
};

}  // namespace cub
