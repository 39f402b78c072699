// kernels/gelu.cu
// SPDX-License-Identifier: MIT
// GELU, exact: out = x / 2 (1 + erf(x / sqrt 2)), and its gradient, element by element.
// Any shape and number of elements, contiguous; float32, float16 or bfloat16, computed
// in float32, to 1e-6: 1 + erf cancels where x is very negative. float32 moves 8 bytes
// an element, backward 12, half types half of it; no scratch memory. NaN and infinity
// as PyTorch on a GPU.
// Notebook: 04b_fusion_and_roofline. Own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// gelu = load_inline("gelu", cuda_sources=Path("gelu.cu").read_text(),
//     cpp_sources="torch::Tensor gelu_forward(torch::Tensor inp);"
//         "torch::Tensor gelu_backward(torch::Tensor dout, torch::Tensor inp);",
//     functions=["gelu_forward", "gelu_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int BLOCK_SIZE = 128;  // threads per block

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

__device__ float normal_cdf(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }
__device__ float gelu(float x) { return x * normal_cdf(x); }

// out, inp: (n), 16 bytes per thread; out starts at a multiple of 16 bytes
template <typename T>
__global__ void gelu_forward_kernel(T* out, const T* inp, int64_t n) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * WIDTH;
    if (reinterpret_cast<uintptr_t>(inp) % 16 == 0 && i + WIDTH <= n) {
        Pack<T> x = *reinterpret_cast<const Pack<T>*>(inp + i), y;
#pragma unroll
        for (int k = 0; k < WIDTH; k++) y.at[k] = T(gelu(float(x.at[k])));
        *reinterpret_cast<Pack<T>*>(out + i) = y;
    } else {  // the end, or a view that starts between two multiples of 16 bytes
        for (int64_t j = i; j < i + WIDTH && j < n; j++)
            out[j] = T(gelu(float(inp[j])));
    }
}

// dout times the slope of gelu at x
__device__ float gelu_gradient(float dout, float x) {
    float density = 0.39894228f * expf(-0.5f * x * x);  // 1 / sqrt(2 pi)
    return dout * normal_cdf(x) + dout * (x * density);
}

// dinp, dout, inp: (n), as above
template <typename T>
__global__ void gelu_backward_kernel(T* dinp, const T* dout, const T* inp, int64_t n) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * WIDTH;
    uintptr_t places = reinterpret_cast<uintptr_t>(dout) |
                       reinterpret_cast<uintptr_t>(inp);
    if (places % 16 == 0 && i + WIDTH <= n) {
        Pack<T> g = *reinterpret_cast<const Pack<T>*>(dout + i);
        Pack<T> x = *reinterpret_cast<const Pack<T>*>(inp + i), y;
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y.at[k] = T(gelu_gradient(float(g.at[k]), float(x.at[k])));
        *reinterpret_cast<Pack<T>*>(dinp + i) = y;
    } else {
        for (int64_t j = i; j < i + WIDTH && j < n; j++)
            dinp[j] = T(gelu_gradient(float(dout[j]), float(inp[j])));
    }
}

// x has to be contiguous, of the type and shape and on the GPU of `like`
static void check_input(const char* name, Tensor x, Tensor like) {
    auto type = like.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == like.device() && x.sizes() == like.sizes(), name,
                ": expected contiguous float32, float16 or bfloat16 on a CUDA device, "
                "the same for all, shape ", like.sizes(), ", got ", x.scalar_type(),
                " on ", x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
}

template <typename T> static dim3 grid_for(int64_t n) {
    constexpr int64_t PER_BLOCK = BLOCK_SIZE * Pack<T>::WIDTH;
    return dim3((n + PER_BLOCK - 1) / PER_BLOCK);
}

template <typename T> static void launch_forward(Tensor out, Tensor inp) {
    int64_t n = inp.numel();
    gelu_forward_kernel<T><<<grid_for<T>(n), BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), inp.data_ptr<T>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor gelu_forward(Tensor inp) {
    check_input("inp", inp, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    if (inp.numel() == 0) return out;
    if (inp.scalar_type() == torch::kFloat32) launch_forward<float>(out, inp);
    else if (inp.scalar_type() == torch::kFloat16) launch_forward<at::Half>(out, inp);
    else launch_forward<at::BFloat16>(out, inp);
    return out;
}

template <typename T>
static void launch_backward(Tensor dinp, Tensor dout, Tensor inp) {
    int64_t n = inp.numel();
    gelu_backward_kernel<T><<<grid_for<T>(n), BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dinp.data_ptr<T>(), dout.data_ptr<T>(), inp.data_ptr<T>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor gelu_backward(Tensor dout, Tensor inp) {
    TORCH_CHECK(dout.scalar_type() == inp.scalar_type(), "gelu_backward: expected dout "
        "and inp of one type, got ", dout.scalar_type(), " and ", inp.scalar_type());
    check_input("inp", inp, inp);
    check_input("dout", dout, inp);
    CUDAGuard guard(inp.device());
    Tensor dinp = torch::empty_like(inp);
    if (inp.numel() == 0) return dinp;
    if (inp.scalar_type() == torch::kFloat32) launch_backward<float>(dinp, dout, inp);
    else if (inp.scalar_type() == torch::kFloat16)
        launch_backward<at::Half>(dinp, dout, inp);
    else launch_backward<at::BFloat16>(dinp, dout, inp);
    return dinp;
}
