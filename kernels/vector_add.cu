// kernels/vector_add.cu
// SPDX-License-Identifier: MIT
// Adds two tensors element by element: out[i] = a[i] + b[i].
// a, b, out: the same shape, any number of elements, contiguous; float32, float16 or
// bfloat16. float32 moves 12 bytes an element for 1 FLOP, half types half of it; no
// scratch memory.
// Notebook: 04b_fusion_and_roofline. Own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// vector_add = load_inline("vector_add",
//     cpp_sources="torch::Tensor vector_add(torch::Tensor a, torch::Tensor b);",
//     cuda_sources=Path("vector_add.cu").read_text(), functions=["vector_add"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int BLOCK_SIZE = 128;  // threads per block

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

// out, a, b: (n), 16 bytes per thread; out starts at a multiple of 16 bytes
template <typename T>
__global__ void vector_add_kernel(T* out, const T* a, const T* b, int64_t n) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * WIDTH;
    uintptr_t places = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
    if (places % 16 == 0 && i + WIDTH <= n) {
        Pack<T> x = *reinterpret_cast<const Pack<T>*>(a + i), sum;
        Pack<T> y = *reinterpret_cast<const Pack<T>*>(b + i);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) sum.at[k] = T(float(x.at[k]) + float(y.at[k]));
        *reinterpret_cast<Pack<T>*>(out + i) = sum;
    } else {  // the end, or a view that starts between two multiples of 16 bytes
        for (int64_t j = i; j < i + WIDTH && j < n; j++)
            out[j] = T(float(a[j]) + float(b[j]));
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

template <typename T> static void launch(Tensor out, Tensor a, Tensor b) {
    constexpr int64_t PER_BLOCK = BLOCK_SIZE * Pack<T>::WIDTH;
    int64_t n = a.numel();
    vector_add_kernel<T><<<dim3((n + PER_BLOCK - 1) / PER_BLOCK), BLOCK_SIZE, 0,
                           getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), a.data_ptr<T>(), b.data_ptr<T>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor vector_add(Tensor a, Tensor b) {
    check_input("a", a, a);
    check_input("b", b, a);
    CUDAGuard guard(a.device());
    Tensor out = torch::empty_like(a);
    if (a.numel() == 0) return out;
    if (a.scalar_type() == torch::kFloat32) launch<float>(out, a, b);
    else if (a.scalar_type() == torch::kFloat16) launch<at::Half>(out, a, b);
    else launch<at::BFloat16>(out, a, b);
    return out;
}
