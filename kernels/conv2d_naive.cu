// kernels/conv2d_naive.cu
// SPDX-License-Identifier: MIT
// 2-D convolution as in networks (cross-correlation), stride 1, zero padding, no bias.
// float32, contiguous, at most 65535 * 256 pixels a plane; H_out = H + 2 padding - kH +
// 1, W_out likewise. 2 N C_out H_out W_out C kH kW FLOPs forward and for each gradient.
// Scratch memory: 4 N C_out C kH kW bytes for the gradient of weight, else none.
// Notebook: 17_mnist_cnn. Algorithm: the definition, one thread per output element.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// conv2d_naive = load_inline("conv2d_naive",
//     cuda_sources=Path("conv2d_naive.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor conv2d_forward(Tensor inp, Tensor weight, int64_t padding);
//         Tensor conv2d_backward_input(Tensor dout, Tensor weight, int64_t padding);
//         Tensor conv2d_backward_weight(Tensor dout, Tensor inp, int64_t padding);""",
//     functions=["conv2d_forward", "conv2d_backward_input", "conv2d_backward_weight"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

// x has to be contiguous float32 of this shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, Tensor x, torch::IntArrayRef shape,
                        Tensor like) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == torch::kFloat32 && x.is_contiguous() &&
                x.is_cuda() && x.device() == like.device(), name, ": expected "
                "contiguous float32 on one CUDA device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

constexpr int BLOCK_SIZE = 256;  // threads of a block, each on one pixel of a plane

// One thread per element of out. A plane is one channel of one image: plane blockIdx.x,
// its pixels along blockIdx.y.
__global__ void conv2d_forward_kernel(
    float* out,           // (N, C_out, H_out, W_out)
    const float* inp,     // (N, C, H, W)
    const float* weight,  // (C_out, C, kH, kW)
    int C, int H, int W, int C_out, int H_out, int W_out, int kH, int kW,
    int padding) {
    int64_t n = blockIdx.x / C_out, c_out = blockIdx.x % C_out;
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    int row = i / W_out, col = i % W_out;
    if (row >= H_out) return;

    // Only the part of the filter that lies inside the image: the rest meets zeros.
    int kh_begin = max(0, padding - row), kh_end = min(kH, H + padding - row);
    int kw_begin = max(0, padding - col), kw_end = min(kW, W + padding - col);
    float acc = 0.0f;
    for (int c = 0; c < C; c++) {
        const float* plane = inp + (n * C + c) * H * W;
        const float* filter = weight + (c_out * C + c) * kH * kW;
        for (int kh = kh_begin; kh < kh_end; kh++)
            for (int kw = kw_begin; kw < kw_end; kw++)
                acc += plane[(row + kh - padding) * W + col + kw - padding] *
                       filter[kh * kW + kw];
    }
    out[(n * C_out + c_out) * H_out * W_out + i] = acc;
}

static dim3 plane_grid(int64_t planes, int64_t H, int64_t W) {
    TORCH_CHECK(planes <= INT_MAX && H * W <= 65535 * BLOCK_SIZE, "conv2d: expected at "
                "most 65535 * 256 pixels a plane, got ", H, " x ", W);
    return dim3(planes, (H * W + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

Tensor conv2d_forward(Tensor inp, Tensor weight, int64_t padding) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    check_input("weight", weight, {-1, inp.size(1), -1, -1}, inp);
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    int64_t C_out = weight.size(0), kH = weight.size(2), kW = weight.size(3);
    int64_t H_out = H + 2 * padding - kH + 1, W_out = W + 2 * padding - kW + 1;
    TORCH_CHECK(padding >= 0 && H_out > 0 && W_out > 0, "inp: expected at least ", kH,
                " x ", kW, " pixels with the padding, got ", H, " x ", W, ", padding ",
                padding);
    plane_grid(N, H, W);  // refuses what is too large
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({N, C_out, H_out, W_out}, inp.options());
    if (out.numel() == 0) return out;
    dim3 grid = plane_grid(N * C_out, H_out, W_out);
    conv2d_forward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), weight.data_ptr<float>(), C, H, W,
        C_out, H_out, W_out, kH, kW, padding);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// One thread per element of dinp, which gathers from every pixel of dout that inp[n, c]
// went into.
__global__ void conv2d_backward_input_kernel(
    float* dinp,          // (N, C, H, W)
    const float* dout,    // (N, C_out, H_out, W_out)
    const float* weight,  // (C_out, C, kH, kW)
    int C, int H, int W, int C_out, int H_out, int W_out, int kH, int kW,
    int padding) {
    int64_t n = blockIdx.x / C, c = blockIdx.x % C;
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    int row = i / W, col = i % W;
    if (row >= H) return;

    // inp[row] went through tap kh into out[row + padding - kh], where that row exists.
    int y = row + padding, kh_begin = max(0, y - H_out + 1), kh_end = min(kH, y + 1);
    int x = col + padding, kw_begin = max(0, x - W_out + 1), kw_end = min(kW, x + 1);
    float acc = 0.0f;
    for (int c_out = 0; c_out < C_out; c_out++) {
        const float* plane = dout + (n * C_out + c_out) * H_out * W_out;
        const float* filter = weight + (c_out * (int64_t)C + c) * kH * kW;
        for (int kh = kh_begin; kh < kh_end; kh++)
            for (int kw = kw_begin; kw < kw_end; kw++)
                acc += plane[(y - kh) * W_out + x - kw] * filter[kh * kW + kw];
    }
    dinp[(n * C + c) * H * W + i] = acc;
}

Tensor conv2d_backward_input(Tensor dout, Tensor weight, int64_t padding) {
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    check_input("weight", weight, {dout.size(1), -1, -1, -1}, dout);
    int64_t N = dout.size(0), H_out = dout.size(2), W_out = dout.size(3);
    int64_t C_out = weight.size(0), C = weight.size(1);
    int64_t kH = weight.size(2), kW = weight.size(3);
    int64_t H = H_out - 2 * padding + kH - 1, W = W_out - 2 * padding + kW - 1;
    TORCH_CHECK(padding >= 0 && H >= 0 && W >= 0, "dout: expected at least ",
                2 * padding - kH + 1, " x ", 2 * padding - kW + 1, " pixels, got ",
                H_out, " x ", W_out);
    plane_grid(N, H_out, W_out);  // refuses what is too large
    CUDAGuard guard(dout.device());
    Tensor dinp = torch::empty({N, C, H, W}, dout.options());
    if (dinp.numel() == 0) return dinp;
    dim3 grid = plane_grid(N * C, H, W);
    conv2d_backward_input_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dinp.data_ptr<float>(), dout.data_ptr<float>(), weight.data_ptr<float>(), C, H,
        W, C_out, H_out, W_out, kH, kW, padding);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}

// One thread per element of partial: what image n adds to the gradient of one weight.
__global__ void conv2d_backward_weight_kernel(
    float* partial,     // (N, C_out, C, kH, kW)
    const float* dout,  // (N, C_out, H_out, W_out)
    const float* inp,   // (N, C, H, W)
    int C, int H, int W, int C_out, int H_out, int W_out, int kH, int kW,
    int padding) {
    int64_t plane = blockIdx.x, n = plane / C_out;
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= C * kH * kW) return;
    int c = i / (kH * kW), down = i / kW % kH - padding, right = i % kW - padding;
    dout += plane * H_out * W_out;
    inp += (n * C + c) * H * W;

    // The pixels of out that this weight joined to inp, not to the zeros around it.
    int row_begin = max(0, -down), row_end = min(H_out, H - down);
    int col_begin = max(0, -right), col_end = min(W_out, W - right);
    float acc = 0.0f;
    for (int row = row_begin; row < row_end; row++)
        for (int col = col_begin; col < col_end; col++)
            acc += dout[row * W_out + col] * inp[(row + down) * W + col + right];
    partial[plane * C * kH * kW + i] = acc;
}

// dweight = partial.sum(0): one thread per element of dweight.
__global__ void conv2d_sum_images_kernel(float* dweight,        // (size)
                                         const float* partial,  // (N, size)
                                         int N, int64_t size) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float acc = 0.0f;
    for (int n = 0; n < N; n++) acc += partial[n * size + i];
    dweight[i] = acc;
}

Tensor conv2d_backward_weight(Tensor dout, Tensor inp, int64_t padding) {
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    check_input("inp", inp, {dout.size(0), -1, -1, -1}, dout);
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    int64_t C_out = dout.size(1), H_out = dout.size(2), W_out = dout.size(3);
    int64_t kH = H + 2 * padding - H_out + 1, kW = W + 2 * padding - W_out + 1;
    TORCH_CHECK(padding >= 0 && kH > 0 && kW > 0, "dout: expected at most ",
                H + 2 * padding, " x ", W + 2 * padding, " pixels, got ", H_out, " x ",
                W_out);
    plane_grid(N, H, W), plane_grid(N, H_out, W_out);  // refuse what is too large
    CUDAGuard guard(inp.device());
    Tensor dweight = torch::empty({C_out, C, kH, kW}, inp.options());
    if (N == 0 || dweight.numel() == 0) return dweight.zero_();
    Tensor partial = torch::empty({N, C_out, C, kH, kW}, inp.options());
    dim3 grid = plane_grid(N * C_out, C * kH, kW);
    conv2d_backward_weight_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        partial.data_ptr<float>(), dout.data_ptr<float>(), inp.data_ptr<float>(), C, H,
        W, C_out, H_out, W_out, kH, kW, padding);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t size = dweight.numel(), blocks = (size + BLOCK_SIZE - 1) / BLOCK_SIZE;
    conv2d_sum_images_kernel<<<blocks, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        dweight.data_ptr<float>(), partial.data_ptr<float>(), N, size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dweight;
}
