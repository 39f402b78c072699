// kernels/batch_norm2d.cu
// SPDX-License-Identifier: MIT
// Batch normalisation of images: out = (inp - mean) / sqrt(var + eps) * weight + bias,
// mean and variance of each channel over the batch (training) or any others given.
// float32, contiguous, at most 65535 * 256 pixels a plane. Bytes an element: statistics
// 4, out 8, gradients 20. Scratch memory: 8 N C bytes for statistics and gradients.
// Notebook: 17_mnist_cnn. Algorithm: Ioffe and Szegedy 2015.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// batch_norm2d = load_inline(
//     "batch_norm2d", cuda_sources=Path("batch_norm2d.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         std::tuple<Tensor, Tensor> batch_norm2d_stats(
//             Tensor inp, Tensor running_mean, Tensor running_var, double momentum);
//         Tensor batch_norm2d_forward(Tensor inp, Tensor mean, Tensor var,
//                                     Tensor weight, Tensor bias, double eps);
//         std::tuple<Tensor, Tensor, Tensor> batch_norm2d_backward(Tensor dout,
//             Tensor inp, Tensor mean, Tensor var, Tensor weight, double eps);""",
//     functions=["batch_norm2d_stats", "batch_norm2d_forward",
//                "batch_norm2d_backward"])
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
                "contiguous Float on one ", torch::kCUDA, " device, shape ", shape,
                ", got ", x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

static float* data(Tensor x) { return x.data_ptr<float>(); }

constexpr int BLOCK_SIZE = 256;  // threads of a block, each on one pixel of a plane
constexpr int WARP_SIZE = 32;

// The sum of `value` over the 32 lanes of a warp, for every one of them.
static __device__ float warp_sum(float value) {
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

// A plane is one channel of one image. A warp per plane: its mean, and the sum of the
// squared distances from that mean.
__global__ void batch_norm2d_plane_stats_kernel(float* plane_mean,     // (N, C)
                                                float* plane_squares,  // (N, C)
                                                const float* inp,  // (N, C, pixels)
                                                int pixels) {
    int64_t plane = blockIdx.x;
    inp += plane * pixels;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < pixels; i += WARP_SIZE) sum += inp[i];
    float mean = warp_sum(sum) / pixels;
    for (int i = threadIdx.x; i < pixels; i += WARP_SIZE)
        squares += (inp[i] - mean) * (inp[i] - mean);
    squares = warp_sum(squares);
    if (threadIdx.x == 0) {
        plane_mean[plane] = mean;
        plane_squares[plane] = squares;
    }
}

// A warp per channel puts the planes of the N images together. var is divided by the
// number of values, what running_var moves towards by one less.
__global__ void batch_norm2d_stats_kernel(
    float* mean,                 // (C)
    float* var,                  // (C)
    float* running_mean,         // (C), moved in place
    float* running_var,          // (C), moved in place
    const float* plane_mean,     // (N, C)
    const float* plane_squares,  // (N, C)
    int N, int C, int pixels, float momentum) {
    int c = blockIdx.x;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t n = threadIdx.x; n < N; n += WARP_SIZE) sum += plane_mean[n * C + c];
    float m = warp_sum(sum) / N;
    for (int64_t n = threadIdx.x; n < N; n += WARP_SIZE) {
        float distance = plane_mean[n * C + c] - m;
        squares += plane_squares[n * C + c] + pixels * distance * distance;
    }
    squares = warp_sum(squares);
    if (threadIdx.x == 0) {
        float count = (float)N * pixels;
        mean[c] = m;
        var[c] = squares / count;
        running_mean[c] += momentum * (m - running_mean[c]);
        running_var[c] += momentum * (squares / (count - 1.0f) - running_var[c]);
    }
}

static dim3 plane_grid(const Tensor& inp) {
    int64_t planes = inp.size(0) * inp.size(1), pixels = inp.size(2) * inp.size(3);
    TORCH_CHECK(planes <= INT_MAX && pixels <= 65535 * BLOCK_SIZE, "inp: expected at "
                "most 65535 * 256 pixels a plane, got shape ", inp.sizes());
    return dim3(planes, (pixels + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

// Returns mean and var, and moves the running ones towards them, in place.
std::tuple<Tensor, Tensor> batch_norm2d_stats(Tensor inp, Tensor running_mean,
                                              Tensor running_var, double momentum) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    int64_t N = inp.size(0), C = inp.size(1), pixels = inp.size(2) * inp.size(3);
    check_input("running_mean", running_mean, {C}, inp);
    check_input("running_var", running_var, {C}, inp);
    TORCH_CHECK(N * pixels > 1, "inp: expected at least 2 values a channel, got shape ",
                inp.sizes());
    CUDAGuard guard(inp.device());
    Tensor mean = torch::empty_like(running_mean), var = torch::empty_like(mean);
    if (C == 0) return {mean, var};
    Tensor plane_mean = torch::empty({N, C}, inp.options());
    Tensor plane_squares = torch::empty({N, C}, inp.options());
    int planes = plane_grid(inp).x;
    batch_norm2d_plane_stats_kernel<<<planes, WARP_SIZE, 0, getCurrentCUDAStream()>>>(
        data(plane_mean), data(plane_squares), data(inp), pixels);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    batch_norm2d_stats_kernel<<<C, WARP_SIZE, 0, getCurrentCUDAStream()>>>(
        data(mean), data(var), data(running_mean), data(running_var), data(plane_mean),
        data(plane_squares), N, C, pixels, momentum);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {mean, var};
}

// One thread per element of out: plane blockIdx.x, its pixels along blockIdx.y.
__global__ void batch_norm2d_forward_kernel(
    float* out,           // (N, C, pixels)
    const float* inp,     // (N, C, pixels)
    const float* mean,    // (C)
    const float* var,     // (C)
    const float* weight,  // (C)
    const float* bias,    // (C)
    int C, int pixels, float eps) {
    int c = blockIdx.x % C, i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= pixels) return;
    int64_t at = (int64_t)blockIdx.x * pixels + i;
    out[at] = (inp[at] - mean[c]) * rsqrtf(var[c] + eps) * weight[c] + bias[c];
}

Tensor batch_norm2d_forward(Tensor inp, Tensor mean, Tensor var, Tensor weight,
                            Tensor bias, double eps) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    int64_t C = inp.size(1), pixels = inp.size(2) * inp.size(3);
    check_input("mean", mean, {C}, inp);
    check_input("var", var, {C}, inp);
    check_input("weight", weight, {C}, inp);
    check_input("bias", bias, {C}, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    if (out.numel() == 0) return out;
    dim3 grid = plane_grid(inp);
    batch_norm2d_forward_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        data(out), data(inp), data(mean), data(var), data(weight), data(bias), C,
        pixels, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// A warp per plane: the sums of dout * normalised inp and of dout.
__global__ void batch_norm2d_plane_grads_kernel(
    float* plane_dweight,  // (N, C)
    float* plane_dbias,    // (N, C)
    const float* dout,     // (N, C, pixels)
    const float* inp,      // (N, C, pixels)
    const float* mean,     // (C)
    const float* var,      // (C)
    int C, int pixels, float eps) {
    int64_t plane = blockIdx.x;
    int c = plane % C;
    float inv_std = rsqrtf(var[c] + eps), sum = 0.0f, sum_normed = 0.0f;
    for (int i = threadIdx.x; i < pixels; i += WARP_SIZE) {
        float grad = dout[plane * pixels + i];
        sum += grad;
        sum_normed += grad * (inp[plane * pixels + i] - mean[c]) * inv_std;
    }
    sum = warp_sum(sum);
    sum_normed = warp_sum(sum_normed);
    if (threadIdx.x == 0) {
        plane_dbias[plane] = sum;
        plane_dweight[plane] = sum_normed;
    }
}

// A warp per channel adds up the planes of the N images.
__global__ void batch_norm2d_grads_kernel(float* dweight,              // (C)
                                          float* dbias,                // (C)
                                          const float* plane_dweight,  // (N, C)
                                          const float* plane_dbias,    // (N, C)
                                          int N, int C) {
    int c = blockIdx.x;
    float sum_weight = 0.0f, sum_bias = 0.0f;
    for (int64_t n = threadIdx.x; n < N; n += WARP_SIZE) {
        sum_weight += plane_dweight[n * C + c];
        sum_bias += plane_dbias[n * C + c];
    }
    sum_weight = warp_sum(sum_weight);
    sum_bias = warp_sum(sum_bias);
    if (threadIdx.x == 0) {
        dweight[c] = sum_weight;
        dbias[c] = sum_bias;
    }
}

// One thread per element of dinp: inp moves out directly, and through the mean and the
// variance of its channel, which has `count` values.
__global__ void batch_norm2d_backward_input_kernel(
    float* dinp,           // (N, C, pixels)
    const float* dout,     // (N, C, pixels)
    const float* inp,      // (N, C, pixels)
    const float* mean,     // (C)
    const float* var,      // (C)
    const float* weight,   // (C)
    const float* dweight,  // (C)
    const float* dbias,    // (C)
    int C, int pixels, float count, float eps) {
    int c = blockIdx.x % C, i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= pixels) return;
    int64_t at = (int64_t)blockIdx.x * pixels + i;
    float inv_std = rsqrtf(var[c] + eps), normed = (inp[at] - mean[c]) * inv_std;
    dinp[at] = weight[c] * inv_std *
               (dout[at] - dbias[c] / count - normed * dweight[c] / count);
}

// For the statistics of the batch itself. Returns dinp, dweight, dbias.
std::tuple<Tensor, Tensor, Tensor> batch_norm2d_backward(
    Tensor dout, Tensor inp, Tensor mean, Tensor var, Tensor weight, double eps) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    check_input("dout", dout, inp.sizes(), inp);
    int64_t N = inp.size(0), C = inp.size(1), pixels = inp.size(2) * inp.size(3);
    check_input("mean", mean, {C}, inp);
    check_input("var", var, {C}, inp);
    check_input("weight", weight, {C}, inp);
    CUDAGuard guard(inp.device());
    Tensor dinp = torch::empty_like(inp), dweight = torch::empty_like(weight);
    Tensor dbias = torch::empty_like(weight);
    if (inp.numel() == 0) return {dinp, dweight.zero_(), dbias.zero_()};
    Tensor plane_dweight = torch::empty({N, C}, inp.options());
    Tensor plane_dbias = torch::empty({N, C}, inp.options());
    dim3 grid = plane_grid(inp);
    batch_norm2d_plane_grads_kernel<<<grid.x, WARP_SIZE, 0, getCurrentCUDAStream()>>>(
        data(plane_dweight), data(plane_dbias), data(dout), data(inp), data(mean),
        data(var), C, pixels, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    batch_norm2d_grads_kernel<<<C, WARP_SIZE, 0, getCurrentCUDAStream()>>>(
        data(dweight), data(dbias), data(plane_dweight), data(plane_dbias), N, C);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    batch_norm2d_backward_input_kernel<<<grid, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(
        data(dinp), data(dout), data(inp), data(mean), data(var), data(weight),
        data(dweight), data(dbias), C, pixels, (float)(N * pixels), eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dinp, dweight, dbias};
}
