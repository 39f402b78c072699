// PyTorch's streams. Work is done when it is issued, so all streams are alike.
#pragma once
#include "CUDAException.h"

namespace c10 {
namespace cuda {
class CUDAStream {
public:
    operator cudaStream_t() const { return nullptr; }
    cudaStream_t stream() const { return nullptr; }
    int device_index() const { return 0; }
    bool query() const { return true; }
    void synchronize() const {}
    bool operator==(const CUDAStream&) const { return true; }
    bool operator!=(const CUDAStream&) const { return false; }
};
inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, int = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}
}  // namespace cuda
}  // namespace c10
namespace at {
namespace cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
}  // namespace cuda
}  // namespace at
