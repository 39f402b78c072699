// PyTorch's guards, which make a tensor's device or a stream the current one. There is one device.
#pragma once
#include "CUDAFunctions.h"
#include "CUDAStream.h"

namespace c10 {
namespace cuda {
struct CUDAGuard {
    template <class Device>
    explicit CUDAGuard(const Device&) {}
    ~CUDAGuard() {}  // not trivial, or every guard would be an unused variable
    CUDAGuard(const CUDAGuard&) = delete;
    template <class Device>
    void set_device(const Device&) {}
    template <class Index>
    void set_index(Index) {}
};
struct OptionalCUDAGuard {
    OptionalCUDAGuard() {}
    template <class Device>
    explicit OptionalCUDAGuard(const Device&) {}
    ~OptionalCUDAGuard() {}
    OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
    template <class Device>
    void set_device(const Device&) {}
    template <class Index>
    void set_index(Index) {}
};
struct CUDAStreamGuard {
    explicit CUDAStreamGuard(CUDAStream stream) : before_(getCurrentCUDAStream()) {
        setCurrentCUDAStream(stream);
    }
    ~CUDAStreamGuard() { setCurrentCUDAStream(before_); }
    CUDAStreamGuard(const CUDAStreamGuard&) = delete;
    void reset_stream(CUDAStream stream) { setCurrentCUDAStream(stream); }
    CUDAStream original_stream() const { return before_; }
    CUDAStream current_stream() const { return getCurrentCUDAStream(); }

private:
    CUDAStream before_;
};
}  // namespace cuda
}  // namespace c10
namespace at {
namespace cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace cuda
}  // namespace at
