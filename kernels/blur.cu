// kernels/blur.cu
// SPDX-License-Identifier: MIT
// Box blur: each pixel becomes the mean of the pixels at most `radius` rows and columns
// away, as far as they lie inside the image; halves round up.
// inp, out: (H, W) uint8, contiguous, at most 2^30 pixels; 0 <= radius <= 1000.
// Each pixel reads up to (2 * radius + 1)^2 bytes, mostly from cache, and writes 1; no
// scratch memory.
// Notebook: 02b_images_and_memory. Algorithm: the blur of PMPP, chapter 3; own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// blur = load_inline("blur",
//     cpp_sources="torch::Tensor blur(torch::Tensor inp, int64_t radius);",
//     cuda_sources=Path("blur.cu").read_text(), functions=["blur"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

static int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

constexpr int TILE = 16;  // threads per block side

// out, inp: (H, W), one thread per pixel
__global__ void blur_kernel(unsigned char* out, const unsigned char* inp,
                            int H, int W, int radius) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < H && col < W) {
        // the window: rows [top, bottom) and columns [left, right)
        int top = max(row - radius, 0), bottom = min(row + radius + 1, H);
        int left = max(col - radius, 0), right = min(col + radius + 1, W);
        int total = 0;
        for (int r = top; r < bottom; r++)
            for (int c = left; c < right; c++)
                total += inp[r * W + c];
        int count = (bottom - top) * (right - left);
        out[row * W + col] = (total + count / 2) / count;
    }
}

torch::Tensor blur(torch::Tensor inp, int64_t radius) {
    TORCH_CHECK(inp.is_cuda(), "inp: expected a CUDA tensor, got ", inp.device());
    TORCH_CHECK(inp.scalar_type() == torch::kUInt8 && inp.is_contiguous() &&
                inp.dim() == 2 && inp.numel() <= 1 << 30, "inp: expected contiguous "
                "uint8, shape (H, W), at most 2^30 pixels, got ", inp.scalar_type(),
                ", shape ", inp.sizes(), ", strides ", inp.strides());
    TORCH_CHECK(0 <= radius && radius <= 1000, "radius: expected 0 to 1000, got ",
                radius);
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty_like(inp);
    int H = inp.size(0), W = inp.size(1);
    if (inp.numel() == 0) return out;
    dim3 block(TILE, TILE), grid(cdiv(W, TILE), cdiv(H, TILE));
    TORCH_CHECK(grid.y <= 65535, "inp: expected at most 65535 * 16 rows, got ", H);
    blur_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<uint8_t>(), inp.data_ptr<uint8_t>(), H, W, radius);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
