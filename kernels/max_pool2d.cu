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
                x.device() == like.device(), name, ": expected contiguous ", type,
                " on one ", torch::kCUDA, " device, shape ", shape, ", got ",
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

// Plane x (one channel of one image), its pixels along y.
static dim3 plane_grid(int64_t planes, int64_t H, int64_t W) {
    TORCH_CHECK(planes <= INT_MAX && H * W <= 65535 * BLOCK_SIZE, "max_pool2d: expected"
                " at most 65535 * 256 pixels a plane, got ", H, " x ", W);
    return dim3(planes, (H * W + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

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
    dim3 grid = plane_grid(N * C, H / size, W / size);
    max_pool2d_forward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), index.data_ptr<int>(), inp.data_ptr<float>(), H, W,
        H / size, W / size, size);
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
    max_pool2d_backward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dinp.data_ptr<float>(), dout.data_ptr<float>(), index.data_ptr<int>(), H, W,
        H_out, W_out, size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
