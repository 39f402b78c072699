// PyTorch's streams. Work is done when it is issued, so one stream is like another, but a graph can
// be captured from each but the default one.
#pragma once
#include "CUDAException.h"

namespace c10 {
namespace cuda {
class CUDAStream {
public:
    CUDAStream(cudaStream_t stream = nullptr) : stream_(stream) {}
    operator cudaStream_t() const { return stream_; }
    cudaStream_t stream() const { return stream_; }
    int device_index() const { return 0; }
    bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
    void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
    bool operator==(const CUDAStream& other) const { return stream_ == other.stream_; }
    bool operator!=(const CUDAStream& other) const { return stream_ != other.stream_; }

private:
    cudaStream_t stream_;
};
inline CUDAStream& current_stream() {
    static thread_local CUDAStream stream;
    return stream;
}
inline CUDAStream getCurrentCUDAStream(int = -1) { return current_stream(); }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, int = -1) {
    cudaStream_t stream;
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, int = -1) { return stream; }
inline void setCurrentCUDAStream(CUDAStream stream) { current_stream() = stream; }
}  // namespace cuda
}  // namespace c10
namespace at {
namespace cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromExternal;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
}  // namespace cuda
}  // namespace at
namespace torch {
namespace cuda {
using namespace at::cuda;
}  // namespace cuda
}  // namespace torch
