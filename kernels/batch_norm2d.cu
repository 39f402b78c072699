// kernels/batch_norm2d.cu
// Batch normalisation of images: out = (inp - mean) / sqrt(var + eps) * weight + bias,
// mean and variance of each channel over the batch (training) or any others given.
// inp, out: (N, C, H, W); mean, var, weight, bias: (C); float32, contiguous, below 2^24
// pixels a plane. Bytes an element: statistics 4, out 8, gradients 20.
// Notebook: 17_mnist_cnn. Algorithm: Ioffe and Szegedy 2015; the variance of a channel
// from those of its planes and of their means.
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
//         std::tuple<Tensor, Tensor, Tensor> batch_norm2d_backward(
//             Tensor dout, Tensor inp, Tensor mean, Tensor var, Tensor weight,
//             double eps);""",
//     functions=["batch_norm2d_stats", "batch_norm2d_forward",
//                "batch_norm2d_backward"])
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x, inp, ...)                                                     \
    TORCH_CHECK(x.is_cuda() && x.device() == inp.device(), #x ": expected a CUDA "   \
                "tensor, all on one device, got ", x.device());                      \
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous(), #x          \
                ": expected contiguous float32, got ", x.scalar_type(),              \
                ", strides ", x.strides());                                          \
    TORCH_CHECK(x.sizes() == torch::IntArrayRef({__VA_ARGS__}), #x ": expected "     \
                "shape ", torch::IntArrayRef({__VA_ARGS__}), ", got ", x.sizes())

constexpr int BLOCK_SIZE = 256;  // threads of a block, each on one pixel of a plane
constexpr int WARP_SIZE = 32;

// A plane is one channel of one image: plane blockIdx.x, its pixels along blockIdx.y.
static dim3 plane_grid(const torch::Tensor& inp) {
    int64_t planes = inp.size(0) * inp.size(1), pixels = inp.size(2) * inp.size(3);
    TORCH_CHECK(planes <= INT_MAX && pixels < (1 << 24), "inp: expected less than 2^31 "
                "planes of less than 2^24 pixels, got ", inp.sizes());
    return dim3(planes, (pixels + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

// The sum of `value` over the 32 lanes of a warp, for every one of them.
__device__ float warp_sum(float value) {
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

// A warp per plane: its mean, and the sum of the squared distances from that mean.
__global__ void batch_norm2d_plane_stats_kernel(float* plane_mean, float* plane_squares,
                                                const float* inp, int pixels) {
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

// A warp per channel puts the planes of the N images together.
__global__ void batch_norm2d_stats_kernel(
    float* mean, float* var, float* running_mean, float* running_var,
    const float* plane_mean, const float* plane_squares, int N, int C, int pixels,
    float momentum) {
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

// Returns mean and var (of the batch, divided by its count) and moves the running ones
// towards them, in place, by `momentum`; the running variance is divided by count - 1.
std::tuple<torch::Tensor, torch::Tensor> batch_norm2d_stats(
    torch::Tensor inp, torch::Tensor running_mean, torch::Tensor running_var,
    double momentum) {
    TORCH_CHECK(inp.dim() == 4, "inp: expected 4 dimensions, got shape ", inp.sizes());
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    CHECK_INPUT(inp, inp, N, C, H, W);
    CHECK_INPUT(running_mean, inp, C);
    CHECK_INPUT(running_var, inp, C);
    TORCH_CHECK(N * H * W > 1, "inp: expected at least 2 values a channel, got shape ",
                inp.sizes());
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor mean = torch::empty_like(running_mean), var = torch::empty_like(mean);
    if (C == 0) return {mean, var};
    torch::Tensor plane_mean = torch::empty({N, C}, inp.options());
    torch::Tensor plane_squares = torch::empty({N, C}, inp.options());
    unsigned planes = plane_grid(inp).x;
    auto stream = c10::cuda::getCurrentCUDAStream();
    batch_norm2d_plane_stats_kernel<<<planes, WARP_SIZE, 0, stream>>>(
        plane_mean.mutable_data_ptr<float>(), plane_squares.mutable_data_ptr<float>(),
        inp.const_data_ptr<float>(), H * W);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    batch_norm2d_stats_kernel<<<C, WARP_SIZE, 0, stream>>>(
        mean.mutable_data_ptr<float>(), var.mutable_data_ptr<float>(),
        running_mean.mutable_data_ptr<float>(), running_var.mutable_data_ptr<float>(),
        plane_mean.const_data_ptr<float>(), plane_squares.const_data_ptr<float>(), N, C,
        H * W, momentum);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {mean, var};
}

__global__ void batch_norm2d_forward_kernel(
    float* out, const float* inp, const float* mean, const float* var,
    const float* weight, const float* bias, int C, int pixels, float eps) {
    int c = blockIdx.x % C, i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= pixels) return;
    int64_t at = (int64_t)blockIdx.x * pixels + i;
    out[at] = (inp[at] - mean[c]) * rsqrtf(var[c] + eps) * weight[c] + bias[c];
}

torch::Tensor batch_norm2d_forward(torch::Tensor inp, torch::Tensor mean,
                                   torch::Tensor var, torch::Tensor weight,
                                   torch::Tensor bias, double eps) {
    TORCH_CHECK(inp.dim() == 4, "inp: expected 4 dimensions, got shape ", inp.sizes());
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    CHECK_INPUT(inp, inp, N, C, H, W);
    CHECK_INPUT(mean, inp, C);
    CHECK_INPUT(var, inp, C);
    CHECK_INPUT(weight, inp, C);
    CHECK_INPUT(bias, inp, C);
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty_like(inp);
    if (out.numel() == 0) return out;
    dim3 grid = plane_grid(inp);
    auto stream = c10::cuda::getCurrentCUDAStream();
    batch_norm2d_forward_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
        out.mutable_data_ptr<float>(), inp.const_data_ptr<float>(),
        mean.const_data_ptr<float>(), var.const_data_ptr<float>(),
        weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), C, H * W, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// A warp per plane: the sums of dout and of dout * normalised inp.
__global__ void batch_norm2d_plane_grads_kernel(
    float* plane_dweight, float* plane_dbias, const float* dout, const float* inp,
    const float* mean, const float* var, int C, int pixels, float eps) {
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
__global__ void batch_norm2d_grads_kernel(float* dweight, float* dbias,
                                          const float* plane_dweight,
                                          const float* plane_dbias, int N, int C) {
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

// inp moves out directly, and through the mean and the variance of its channel.
__global__ void batch_norm2d_backward_input_kernel(
    float* dinp, const float* dout, const float* inp, const float* mean,
    const float* var, const float* weight, const float* dweight, const float* dbias,
    int C, int pixels, float count, float eps) {
    int c = blockIdx.x % C, i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= pixels) return;
    int64_t at = (int64_t)blockIdx.x * pixels + i;
    float inv_std = rsqrtf(var[c] + eps), normed = (inp[at] - mean[c]) * inv_std;
    dinp[at] = weight[c] * inv_std *
               (dout[at] - dbias[c] / count - normed * dweight[c] / count);
}

// For the statistics of the batch itself. Returns dinp, dweight, dbias.
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> batch_norm2d_backward(
    torch::Tensor dout, torch::Tensor inp, torch::Tensor mean, torch::Tensor var,
    torch::Tensor weight, double eps) {
    TORCH_CHECK(inp.dim() == 4, "inp: expected 4 dimensions, got shape ", inp.sizes());
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    CHECK_INPUT(inp, inp, N, C, H, W);
    CHECK_INPUT(dout, inp, N, C, H, W);
    CHECK_INPUT(mean, inp, C);
    CHECK_INPUT(var, inp, C);
    CHECK_INPUT(weight, inp, C);
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor dinp = torch::empty_like(inp);
    torch::Tensor dweight = torch::empty_like(weight);
    torch::Tensor dbias = torch::empty_like(weight);
    if (inp.numel() == 0) return {dinp, dweight.zero_(), dbias.zero_()};
    torch::Tensor plane_dweight = torch::empty({N, C}, inp.options());
    torch::Tensor plane_dbias = torch::empty({N, C}, inp.options());
    dim3 grid = plane_grid(inp);
    auto stream = c10::cuda::getCurrentCUDAStream();
    batch_norm2d_plane_grads_kernel<<<grid.x, WARP_SIZE, 0, stream>>>(
        plane_dweight.mutable_data_ptr<float>(), plane_dbias.mutable_data_ptr<float>(),
        dout.const_data_ptr<float>(), inp.const_data_ptr<float>(),
        mean.const_data_ptr<float>(), var.const_data_ptr<float>(), C, H * W, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    batch_norm2d_grads_kernel<<<C, WARP_SIZE, 0, stream>>>(
        dweight.mutable_data_ptr<float>(), dbias.mutable_data_ptr<float>(),
        plane_dweight.const_data_ptr<float>(), plane_dbias.const_data_ptr<float>(), N,
        C);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    batch_norm2d_backward_input_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
        dinp.mutable_data_ptr<float>(), dout.const_data_ptr<float>(),
        inp.const_data_ptr<float>(), mean.const_data_ptr<float>(),
        var.const_data_ptr<float>(), weight.const_data_ptr<float>(),
        dweight.const_data_ptr<float>(), dbias.const_data_ptr<float>(), C, H * W,
        (float)(N * H * W), eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dinp, dweight, dbias};
}
