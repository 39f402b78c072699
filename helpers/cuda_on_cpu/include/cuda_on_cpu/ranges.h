// What CUB's and Thrust's algorithms for the whole device share. They are the host's loops here.
#pragma once
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

#include "graphs.h"

namespace cuda_on_cpu {

// Does the work now; in a captured stream at every launch of its graph, and keeps it for that.
inline cudaError_t in_stream(cudaStream_t stream, std::function<void()> work) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &capture);
    if (capture == cudaStreamCaptureStatusNone) return work(), cudaSuccess;
    auto call = [](void* kept) { (*static_cast<std::function<void()>*>(kept))(); };
    return cudaLaunchHostFunc(stream, call, new std::function<void()>(std::move(work)));
}

// Combines n > 0 elements as a tree, which keeps sums of floats exact to the last digits.
template <class T, class Iterator, class Combine>
T combine(Iterator from, std::size_t n, Combine op) {
    if (n > 32) {
        T left = combine<T>(from, n / 2, op), right = combine<T>(from + n / 2, n - n / 2, op);
        return op(left, right);
    }
    T all = *from;
    while (--n) all = op(all, T(*++from));
    return all;
}

template <class T, class Iterator, class Combine>
T combine(Iterator from, std::size_t n, T first, Combine op) {
    return n ? op(first, combine<T>(from, n, op)) : first;
}

// The result may take its input's place.
template <class T, class From, class To, class Combine>
To inclusive_scan(From from, std::size_t n, To to, Combine op) {
    if (!n) return to;
    T sum = *from;
    *to = sum;
    for (std::size_t i = 1; i < n; i++) *++to = sum = op(sum, T(*++from));
    return ++to;
}

template <class T, class From, class To, class Combine>
To exclusive_scan(From from, std::size_t n, To to, T first, Combine op) {
    for (std::size_t i = 0; i < n; i++, ++from, ++to) {
        T value = *from;
        *to = first;
        first = op(first, value);
    }
    return to;
}

template <class Iterator>
using Value = typename std::iterator_traits<Iterator>::value_type;

}  // namespace cuda_on_cpu
