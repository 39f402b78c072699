// kernels/relu.cu
// ReLU: out = max(inp, 0), element by element; NaN stays NaN.
// inp, out: any shape, float32, contiguous. Moves 8 bytes an element, backward 12.
// Notebook: 17_mnist_cnn.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// relu = load_inline("relu", cuda_sources=Path("relu.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor relu_forward(Tensor inp);
//         Tensor relu_backward(Tensor dout, Tensor out);""",
//     functions=["relu_forward", "relu_backward"])
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x)                                                               \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous(), #x          \
                ": expected contiguous float32, got ", x.scalar_type(), ", shape ",  \
                x.sizes(), ", strides ", x.strides())

constexpr int BLOCK_SIZE = 256;  // threads of a block, one element each

__global__ void relu_forward_kernel(float* out, const float* inp, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = inp[i] < 0.0f ? 0.0f : inp[i];
}

// The slope is 1 where out is positive, else 0: out alone tells, inp need not be kept.
__global__ void relu_backward_kernel(float* dinp, const float* dout, const float* out,
                                     int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dinp[i] = out[i] <= 0.0f ? 0.0f : dout[i];
}

static int64_t grid_for(int64_t n) { return (n + BLOCK_SIZE - 1) / BLOCK_SIZE; }

torch::Tensor relu_forward(torch::Tensor inp) {
    CHECK_INPUT(inp);
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty_like(inp);
    int64_t n = inp.numel();
    if (n == 0) return out;
    auto stream = c10::cuda::getCurrentCUDAStream();
    relu_forward_kernel<<<grid_for(n), BLOCK_SIZE, 0, stream>>>(
        out.mutable_data_ptr<float>(), inp.const_data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

torch::Tensor relu_backward(torch::Tensor dout, torch::Tensor out) {
    CHECK_INPUT(dout);
    CHECK_INPUT(out);
    TORCH_CHECK(dout.sizes() == out.sizes() && dout.device() == out.device(),
                "dout: expected shape ", out.sizes(), " on ", out.device(), ", got ",
                dout.sizes(), " on ", dout.device());
    c10::cuda::CUDAGuard guard(out.device());
    torch::Tensor dinp = torch::empty_like(out);
    int64_t n = out.numel();
    if (n == 0) return dinp;
    auto stream = c10::cuda::getCurrentCUDAStream();
    relu_backward_kernel<<<grid_for(n), BLOCK_SIZE, 0, stream>>>(
        dinp.mutable_data_ptr<float>(), dout.const_data_ptr<float>(),
        out.const_data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
