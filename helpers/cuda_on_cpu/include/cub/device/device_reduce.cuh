// cub::DeviceReduce: one number, or place and number, made of n.
#pragma once
#include "../detail.cuh"
#include "call.h"

namespace cub {

template <class Key, class Value>
struct KeyValuePair {
    Key key;
    Value value;
};

struct DeviceReduce {
    template <class From, class To, class Combine, class T>
    static cudaError_t Reduce(void* temporary, std::size_t& bytes, From in, To out, std::size_t n,
                              Combine combine, T initial, cudaStream_t stream = 0) {
        return detail::call(temporary, bytes, stream,
                            [=] { *out = cuda_on_cpu::combine<T>(in, n, initial, combine); });
    }
    template <class From, class To>
    static cudaError_t Sum(void* temporary, std::size_t& bytes, From in, To out, std::size_t n,
                           cudaStream_t stream = 0) {
        using T = cuda_on_cpu::Value<From>;
        return Reduce(temporary, bytes, in, out, n, detail::Plus(), T{}, stream);
    }
    template <class From, class To>
    static cudaError_t Max(void* temporary, std::size_t& bytes, From in, To out, std::size_t n,
                           cudaStream_t stream = 0) {
        return best(temporary, bytes, in, out, n, detail::Larger(), stream);
    }
    template <class From, class To>
    static cudaError_t Min(void* temporary, std::size_t& bytes, From in, To out, std::size_t n,
                           cudaStream_t stream = 0) {
        return best(temporary, bytes, in, out, n, detail::Smaller(), stream);
    }
    // Of equal ones the first.
    template <class From, class T>
    static cudaError_t ArgMax(void* temporary, std::size_t& bytes, From in,
                              KeyValuePair<int, T>* out, int n, cudaStream_t stream = 0) {
        return place(temporary, bytes, in, out, n, [](T a, T b) { return b < a; }, stream);
    }
    template <class From, class T>
    static cudaError_t ArgMin(void* temporary, std::size_t& bytes, From in,
                              KeyValuePair<int, T>* out, int n, cudaStream_t stream = 0) {
        return place(temporary, bytes, in, out, n, [](T a, T b) { return a < b; }, stream);
    }

private:
    template <class From, class To, class Combine>
    static cudaError_t best(void* temporary, std::size_t& bytes, From in, To out, std::size_t n,
                            Combine combine, cudaStream_t stream) {
        using T = cuda_on_cpu::Value<From>;
        return detail::call(temporary, bytes, stream, [=] {
            if (n) *out = cuda_on_cpu::combine<T>(in, n, combine);
        });
    }
    template <class From, class T, class Better>
    static cudaError_t place(void* temporary, std::size_t& bytes, From in,
                             KeyValuePair<int, T>* out, int n, Better better,
                             cudaStream_t stream) {
        return detail::call(temporary, bytes, stream, [=] {
            for (int i = 0; i < n; i++)
                if (!i || better(in[i], out->value)) *out = {i, in[i]};
        });
    }
};

}  // namespace cub
