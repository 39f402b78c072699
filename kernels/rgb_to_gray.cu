// kernels/rgb_to_gray.cu
// SPDX-License-Identifier: MIT
// Gray of a color image: out = (299 r + 587 g + 114 b) / 1000, rounded to the nearest.
// inp: (3, H, W) uint8, out: (H, W) uint8; contiguous, at most 2^31 - 1 values.
// Each pixel moves 4 bytes (3 in, 1 out) for 7 operations; no scratch memory.
// Notebook: 03_python_to_cuda. Weights: ITU-R BT.601, in thousandths, so that the
// result is exact and the same on every machine. Own code, after lecture 3 of GPU MODE.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// rgb_to_gray = load_inline("rgb_to_gray",
//     cpp_sources="torch::Tensor rgb_to_gray(torch::Tensor inp);",
//     cuda_sources=Path("rgb_to_gray.cu").read_text(), functions=["rgb_to_gray"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

static int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

constexpr int BLOCK_SIZE = 256;  // threads per block

// out: (n), inp: (3, n), first all reds, then greens, then blues; one thread per pixel
__global__ void rgb_to_gray_kernel(unsigned char* out, const unsigned char* inp,
                                   int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int r = inp[i], g = inp[i + n], b = inp[i + 2 * n];
        out[i] = (299 * r + 587 * g + 114 * b + 500) / 1000;
    }
}

torch::Tensor rgb_to_gray(torch::Tensor inp) {
    TORCH_CHECK(inp.is_cuda(), "inp: expected a CUDA tensor, got ", inp.device());
    TORCH_CHECK(inp.scalar_type() == torch::kUInt8 && inp.is_contiguous() &&
                inp.dim() == 3 && inp.size(0) == 3 && inp.numel() <= INT_MAX,
                "inp: expected contiguous uint8, shape (3, H, W), at most 2^31 - 1 "
                "values, got ", inp.scalar_type(), ", shape ", inp.sizes(),
                ", strides ", inp.strides());
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty({inp.size(1), inp.size(2)}, inp.options());
    int n = out.numel();
    if (n == 0) return out;
    int grid = cdiv(n, BLOCK_SIZE);
    rgb_to_gray_kernel<<<grid, BLOCK_SIZE, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<uint8_t>(), inp.data_ptr<uint8_t>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
