// What the stand-ins share: the caller's memory as tensors, and work in a stream. LIBRARY is what
// errors call the one that includes this.
//
// PyTorch's operators are called as methods, or as ops::NAME::call of <ATen/ops/NAME_ops.h>, which
// knows no defaults: <ATen/ops/NAME.h> and <ATen/TensorOperators.h> take the compiler 4 s more.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_ops.h>

#include <functional>
#include <initializer_list>

#include "../include/cuda_on_cpu/streams.h"

namespace cuda_on_cpu::libraries {

namespace ops = at::_ops;

inline at::Tensor operator+(const at::Tensor& a, const at::Tensor& b) { return a.add(b); }
inline at::Tensor operator-(const at::Tensor& a, const at::Tensor& b) { return a.sub(b); }
inline at::Tensor operator*(const at::Tensor& a, const at::Tensor& b) { return a.mul(b); }
inline at::Tensor operator+(const at::Tensor& a, double b) { return a.add(b); }
inline at::Tensor operator*(const at::Tensor& a, double b) { return a.mul(b); }
inline at::Tensor operator+(double a, const at::Tensor& b) { return b.add(a); }
inline at::Tensor operator-(double a, const at::Tensor& b) { return b.neg().add(a); }

// Throws std::runtime_error where an element lies outside the array that the data is part of.
inline at::Tensor tensor(const void* data, at::IntArrayRef sizes, at::IntArrayRef strides,
                         at::ScalarType type) {
    std::int64_t last = 0;  // element, counted from the first
    bool has_any = true;
    for (std::size_t d = 0; d < sizes.size(); d++) {
        last += (sizes[d] - 1) * strides[d];
        has_any &= sizes[d] > 0;
    }
    if (has_any) check_library_access(LIBRARY, data, (last + 1) * c10::elementSize(type));
    return at::from_blob(const_cast<void*>(data), sizes, strides, at::TensorOptions(type));
}

// As the operators want sizes that `torch.compile` may not know yet.
inline at::SymIntArrayRef symbolic(at::IntArrayRef sizes) { return c10::fromIntArrayRefSlow(sizes); }

inline at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType type) {
    return ops::zeros::call(symbolic(sizes), type, {}, {}, {});
}

// old = alpha * result + beta * old. Where beta is 0, old is not read: it may hold anything.
inline void blend(at::Tensor old, const at::Tensor& result, double alpha, double beta) {
    at::Tensor sum = alpha == 1 ? result : result * alpha;
    old.copy_(beta == 0 ? sum : sum + old.to(sum.scalar_type()) * beta);
}

// Does the work now; in a captured stream, at every launch of its graph, and keeps it until the
// process ends. What PyTorch refuses is thrown. False: the capture failed.
inline bool do_in_stream(cudaStream_t stream, std::function<void()> work) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &capture);
    if (capture == cudaStreamCaptureStatusNone) return work(), true;
    auto call = [](void* kept) { (*static_cast<std::function<void()>*>(kept))(); };
    return cudaLaunchHostFunc(stream, call, new std::function<void()>(std::move(work))) == cudaSuccess;
}

}  // namespace cuda_on_cpu::libraries
