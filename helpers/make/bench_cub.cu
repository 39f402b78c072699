// CUB's sum, scan and histogram, for `make bench` to compare with.
#include <c10/cuda/CUDAStream.h>
#include <cub/cub.cuh>
#include <torch/types.h>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;

// Calls f(scratch memory, its size) twice, as CUB wants it: to ask for the size, and to work.
template <class F> static void with_scratch(Tensor like, F f) {
    size_t bytes = 0;
    f(nullptr, bytes);
    Tensor scratch = torch::empty({int64_t(bytes)}, like.options().dtype(torch::kUInt8));
    f(scratch.data_ptr<uint8_t>(), bytes);
}

Tensor cub_sum(Tensor inp) {
    Tensor out = torch::empty({}, inp.options());
    with_scratch(inp, [&](void* scratch, size_t& bytes) {
        cub::DeviceReduce::Sum(scratch, bytes, inp.data_ptr<float>(), out.data_ptr<float>(),
                               inp.numel(), getCurrentCUDAStream());
    });
    return out;
}

Tensor cub_scan(Tensor inp) {
    Tensor out = torch::empty_like(inp);
    with_scratch(inp, [&](void* scratch, size_t& bytes) {
        cub::DeviceScan::InclusiveSum(scratch, bytes, inp.data_ptr<float>(),
                                      out.data_ptr<float>(), inp.numel(), getCurrentCUDAStream());
    });
    return out;
}

Tensor cub_histogram(Tensor inp) {  // of bytes
    Tensor out = torch::empty({256}, inp.options().dtype(torch::kInt32));
    with_scratch(inp, [&](void* scratch, size_t& bytes) {
        cub::DeviceHistogram::HistogramEven(scratch, bytes, inp.data_ptr<uint8_t>(),
                                            out.data_ptr<int>(), 257, 0, 256, int(inp.numel()),
                                            getCurrentCUDAStream());
    });
    return out;
}
