// kernels/max_pool2d.cu
// SPDX-License-Identifier: MIT
// Max pooling over windows of size x size pixels that do not overlap; rows and columns
// that fill no window are left out. float32, index int32, contiguous, at most 65535 *
// 256 pixels a plane. Moves 4 (inp + 2 out) bytes, backward too; no scratch memory.
// Notebook: 17_mnist_cnn.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// max_pool2d = load_inline(
//     "max_pool2d", cuda_sources=Path("max_pool2d.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         std::tuple<Tensor, Tensor> max_pool2d_forward(Tensor inp, int64_t size);
//         Tensor max_pool2d_backward(Tensor dout, Tensor index, int64_t size,
//                                    int64_t H, int64_t W);""",
//     functions=["max_pool2d_forward", "max_pool2d_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

// x has to be contiguous, of this type and shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, Tensor x, torch::ScalarType type,
                        torch::IntArrayRef shape, Tensor like) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == like.device(), name, ": expected contiguous ",
                type == torch::kFloat32 ? "float32" : "int32",
                " on one CUDA device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 256;  // threads of a block

// One thread per window. A plane is one channel of one image: plane blockIdx.x, its
// windows along blockIdx.y. index is the place row * W + col of the maximum in its
// plane, the first of several; NaN counts as the largest.
__global__ void max_pool2d_forward_kernel(float* out,        // (N, C, H_out, W_out)
                                          int* index,        // (N, C, H_out, W_out)
                                          const float* inp,  // (N, C, H, W)
                                          int H, int W, int H_out, int W_out,
                                          int size) {
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    int row = i / W_out, col = i % W_out;
    if (row >= H_out) return;
    const float* plane = inp + (int64_t)blockIdx.x * H * W;
    int best_at = row * size * W + col * size;
    float best = plane[best_at];
    for (int y = row * size; y < (row + 1) * size; y++)
        for (int x = col * size; x < (col + 1) * size; x++) {
            float value = plane[y * W + x];
            if (value > best || value != value) {  // only NaN differs from itself
                best = value;
                best_at = y * W + x;
            }
        }
    int64_t at = (int64_t)blockIdx.x * H_out * W_out + i;
    out[at] = best;
    index[at] = best_at;
}

// Windows of 2 x 2, W a multiple of 8: one thread for four side by side, n in all.
__global__ void max_pool2d_forward_2x2_kernel(
    float4* out,        // (N, C, H_out, W / 8)
    int4* index,        // (N, C, H_out, W / 8)
    const float4* inp,  // (N, C, H, W / 4)
    int H, int W, int H_out, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t row = i / (W / 8), plane = row / H_out;
    int first = 2 * int(row % H_out) * W + 8 * int(i % (W / 8));  // place in its plane
    const float4* upper = inp + (plane * H * W + first) / 4;
    const float4* lower = upper + W / 4;
    float4 a = upper[0], b = upper[1], c = lower[0], d = lower[1];
    float pixels[2][8] = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w},
                          {c.x, c.y, c.z, c.w, d.x, d.y, d.z, d.w}};
    float best[4];
    int best_at[4];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        best[w] = pixels[0][2 * w];
        best_at[w] = first + 2 * w;
#pragma unroll
        for (int k = 1; k < 4; k++) {
            float value = pixels[k / 2][2 * w + k % 2];
            if (value > best[w] || value != value) {
                best[w] = value;
                best_at[w] = first + k / 2 * W + 2 * w + k % 2;
            }
        }
    }
    out[i] = make_float4(best[0], best[1], best[2], best[3]);
    index[i] = make_int4(best_at[0], best_at[1], best_at[2], best_at[3]);
}

// Plane x (one channel of one image), its pixels along y.
static dim3 plane_grid(int64_t planes, int64_t H, int64_t W) {
    TORCH_CHECK(planes <= INT_MAX && H * W <= 65535 * BLOCK_SIZE, "max_pool2d: expected"
                " at most 65535 * 256 pixels a plane, got ", H, " x ", W);
    return dim3(planes, (H * W + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

static bool is_aligned(Tensor x) { return uintptr_t(x.data_ptr()) % 16 == 0; }

std::tuple<Tensor, Tensor> max_pool2d_forward(Tensor inp, int64_t size) {
    check_input("inp", inp, torch::kFloat32, {-1, -1, -1, -1}, inp);
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    TORCH_CHECK(size >= 1 && size <= H && size <= W, "size: expected 1 to ",
                std::min(H, W), ", got ", size);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({N, C, H / size, W / size}, inp.options());
    Tensor index = torch::empty(out.sizes(), inp.options().dtype(torch::kInt32));
    if (out.numel() == 0) return {out, index};
    plane_grid(N * C, H, W);  // refuses what is too large
    float *out_ptr = out.data_ptr<float>(), *inp_ptr = inp.data_ptr<float>();
    int* index_ptr = index.data_ptr<int>();
    auto stream = getCurrentCUDAStream();
    if (size == 2 && W % 8 == 0 && is_aligned(inp)) {
        int64_t n = out.numel() / 4;
        max_pool2d_forward_2x2_kernel<<<dim3((n + 127) / 128), 128, 0, stream>>>(
            reinterpret_cast<float4*>(out_ptr), reinterpret_cast<int4*>(index_ptr),
            reinterpret_cast<const float4*>(inp_ptr), H, W, H / 2, n);
    } else {
        dim3 grid = plane_grid(N * C, H / size, W / size);
        max_pool2d_forward_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
            out_ptr, index_ptr, inp_ptr, H, W, H / size, W / size, size);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, index};
}

// One thread per pixel of dinp, which asks its window: am I your maximum? No two
// threads write to one place.
__global__ void max_pool2d_backward_kernel(float* dinp,        // (N, C, H, W)
                                           const float* dout,  // (N, C, H_out, W_out)
                                           const int* index,   // (N, C, H_out, W_out)
                                           int H, int W, int H_out, int W_out,
                                           int size) {
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= H * W) return;
    int row = i / W / size, col = i % W / size;  // its window
    float grad = 0.0f;
    if (row < H_out && col < W_out) {
        int64_t at = ((int64_t)blockIdx.x * H_out + row) * W_out + col;
        if (index[at] == i) grad = dout[at];
    }
    dinp[(int64_t)blockIdx.x * H * W + i] = grad;
}

// As forward: one thread for four windows side by side, n in all.
__global__ void max_pool2d_backward_2x2_kernel(
    float4* dinp,        // (N, C, H, W / 4)
    const float4* dout,  // (N, C, H_out, W / 8)
    const int4* index,   // (N, C, H_out, W / 8)
    int H, int W, int H_out, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t row = i / (W / 8), plane = row / H_out;
    int first = 2 * int(row % H_out) * W + 8 * int(i % (W / 8));  // place in its plane
    float4 grads = dout[i];
    int4 places = index[i];
    float grad[4] = {grads.x, grads.y, grads.z, grads.w};
    int best_at[4] = {places.x, places.y, places.z, places.w};
    float pixels[2][8];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        int at = first + k / 8 * W + k % 8, w = k % 8 / 2;  // its window
        pixels[k / 8][k % 8] = best_at[w] == at ? grad[w] : 0.0f;
    }
    float4* upper = dinp + (plane * H * W + first) / 4;
#pragma unroll
    for (int k = 0; k < 4; k++)
        upper[k / 2 * (W / 4) + k % 2] = make_float4(
            pixels[k / 2][k % 2 * 4], pixels[k / 2][k % 2 * 4 + 1],
            pixels[k / 2][k % 2 * 4 + 2], pixels[k / 2][k % 2 * 4 + 3]);
}

Tensor max_pool2d_backward(Tensor dout, Tensor index, int64_t size, int64_t H,
                           int64_t W) {
    check_input("dout", dout, torch::kFloat32, {-1, -1, -1, -1}, dout);
    check_input("index", index, torch::kInt32, dout.sizes(), dout);
    int64_t H_out = dout.size(2), W_out = dout.size(3);
    TORCH_CHECK(size >= 1 && H / size == H_out && W / size == W_out, "dout: expected ",
                H, " / size x ", W, " / size pixels, got ", H_out, " x ", W_out,
                ", size ", size);
    CUDAGuard guard(dout.device());
    Tensor dinp = torch::empty({dout.size(0), dout.size(1), H, W}, dout.options());
    if (dinp.numel() == 0) return dinp;
    dim3 grid = plane_grid(dout.size(0) * dout.size(1), H, W);
    float *dinp_ptr = dinp.data_ptr<float>(), *dout_ptr = dout.data_ptr<float>();
    int* index_ptr = index.data_ptr<int>();
    auto stream = getCurrentCUDAStream();
    bool is_even = size == 2 && H % 2 == 0 && W % 8 == 0;  // no pixel without a window
    if (is_even && is_aligned(dout) && is_aligned(index)) {
        int64_t n = dout.numel() / 4;
        max_pool2d_backward_2x2_kernel<<<dim3((n + 127) / 128), 128, 0, stream>>>(
            reinterpret_cast<float4*>(dinp_ptr),
            reinterpret_cast<const float4*>(dout_ptr),
            reinterpret_cast<const int4*>(index_ptr), H, W, H_out, n);
    } else {
        max_pool2d_backward_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
            dinp_ptr, dout_ptr, index_ptr, H, W, H_out, W_out, size);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
