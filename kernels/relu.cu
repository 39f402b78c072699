// kernels/relu.cu
// SPDX-License-Identifier: MIT
// ReLU: out = max(inp, 0), element by element; NaN stays NaN. Any shape, float32,
// contiguous. Moves 8 bytes an element, backward 12; no scratch memory.
// Notebook: 17_mnist_cnn. Own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// relu = load_inline("relu", cuda_sources=Path("relu.cu").read_text(),
//     cpp_sources="""torch::Tensor relu_forward(torch::Tensor inp);
//         torch::Tensor relu_backward(torch::Tensor dout, torch::Tensor out);""",
//     functions=["relu_forward", "relu_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

// x has to be contiguous float32, of the shape and on the GPU of `like`
static void check_input(const char* name, Tensor x, Tensor like) {
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous() &&
                x.is_cuda() && x.device() == like.device() && x.sizes() == like.sizes(),
                name, ": expected contiguous float32 on one CUDA device, shape ",
                like.sizes(), ", got ", x.scalar_type(), " on ", x.device(),
                ", shape ", x.sizes(), ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 256;  // threads per block
constexpr int WIDTH = 4;         // elements per thread, one float4

__device__ float relu(float x) { return x < 0.0f ? 0.0f : x; }

// The slope is 1 where out is positive, else 0: out alone tells, inp need not be kept.
__device__ float slope(float dout, float out) { return out <= 0.0f ? 0.0f : dout; }

// out, inp: (n), WIDTH neighbours per thread; out starts at a multiple of 16 bytes
__global__ void relu_forward_kernel(float* out, const float* inp, int64_t n) {
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * WIDTH;
    if (reinterpret_cast<uintptr_t>(inp) % sizeof(float4) == 0 && i + WIDTH <= n) {
        float4 x = *reinterpret_cast<const float4*>(inp + i);
        *reinterpret_cast<float4*>(out + i) =
            make_float4(relu(x.x), relu(x.y), relu(x.z), relu(x.w));
    } else {  // the end, or a view that starts between two multiples of 16 bytes
        for (int64_t j = i; j < i + WIDTH && j < n; j++) out[j] = relu(inp[j]);
    }
}

// dinp, dout, out: (n), as above; dinp starts at a multiple of 16 bytes
__global__ void relu_backward_kernel(float* dinp, const float* dout, const float* out,
                                     int64_t n) {
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * WIDTH;
    uintptr_t places =
        reinterpret_cast<uintptr_t>(dout) | reinterpret_cast<uintptr_t>(out);
    if (places % sizeof(float4) == 0 && i + WIDTH <= n) {
        float4 grad = *reinterpret_cast<const float4*>(dout + i);
        float4 y = *reinterpret_cast<const float4*>(out + i);
        *reinterpret_cast<float4*>(dinp + i) =
            make_float4(slope(grad.x, y.x), slope(grad.y, y.y), slope(grad.z, y.z),
                        slope(grad.w, y.w));
    } else {
        for (int64_t j = i; j < i + WIDTH && j < n; j++)
            dinp[j] = slope(dout[j], out[j]);
    }
}

// Blocks for n elements, WIDTH to a thread
static dim3 grid_for(int64_t n) {
    int64_t per_block = BLOCK_SIZE * WIDTH;
    return dim3((n + per_block - 1) / per_block);
}

Tensor relu_forward(Tensor inp) {
    check_input("inp", inp, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    int64_t n = inp.numel();
    if (n == 0) return out;
    relu_forward_kernel<<<grid_for(n), BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor relu_backward(Tensor dout, Tensor out) {
    check_input("out", out, out);
    check_input("dout", dout, out);
    CUDAGuard guard(out.device());
    Tensor dinp = torch::empty_like(out);
    int64_t n = out.numel();
    if (n == 0) return dinp;
    relu_backward_kernel<<<grid_for(n), BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dinp.data_ptr<float>(), dout.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
