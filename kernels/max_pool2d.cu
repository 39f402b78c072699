// kernels/max_pool2d.cu
// Max pooling over windows of size x size pixels that do not overlap; rows and columns
// that fill no window are left out. inp: (N, C, H, W); out, index: (N, C, H / size,
// W / size). index (int32) is the place row * W + col of the maximum in its plane, the
// first of several; NaN counts as the largest. float32, contiguous, below 2^24 pixels a
// plane. Moves 4 (inp + 2 out) bytes forward, as many backward.
// Notebook: 17_mnist_cnn. Algorithm: one thread per window, backward one per pixel.
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
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_INPUT(x, type)                                                         \
    TORCH_CHECK(x.is_cuda(), #x ": expected a CUDA tensor, got ", x.device());       \
    TORCH_CHECK(x.scalar_type() == type, #x ": expected ", type, ", got ",           \
                x.scalar_type());                                                    \
    TORCH_CHECK(x.dim() == 4 && x.is_contiguous(), #x ": expected 4 dimensions, "    \
                "contiguous, got shape ", x.sizes(), ", strides ", x.strides())

constexpr int BLOCK_SIZE = 256;  // threads of a block

// A plane is one channel of one image: plane blockIdx.x, its pixels along blockIdx.y.
static dim3 plane_grid(int64_t planes, int64_t H, int64_t W) {
    TORCH_CHECK(planes <= INT_MAX && H * W < (1 << 24), "expected less than 2^31 "
                "planes of less than 2^24 pixels, got ", planes, " of ", H, " x ", W);
    return dim3(planes, (H * W + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

__global__ void max_pool2d_forward_kernel(float* out, int* index, const float* inp,
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

std::tuple<torch::Tensor, torch::Tensor> max_pool2d_forward(torch::Tensor inp,
                                                            int64_t size) {
    CHECK_INPUT(inp, torch::kFloat32);
    int64_t N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    TORCH_CHECK(size >= 1 && size <= H && size <= W, "size: expected 1 to ",
                std::min(H, W), ", got ", size);
    c10::cuda::CUDAGuard guard(inp.device());
    torch::Tensor out = torch::empty({N, C, H / size, W / size}, inp.options());
    torch::Tensor index = torch::empty(out.sizes(), inp.options().dtype(torch::kInt32));
    if (out.numel() == 0) return {out, index};
    plane_grid(N * C, H, W);  // refuses what is too large
    dim3 grid = plane_grid(N * C, H / size, W / size);
    auto stream = c10::cuda::getCurrentCUDAStream();
    max_pool2d_forward_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
        out.mutable_data_ptr<float>(), index.mutable_data_ptr<int>(),
        inp.const_data_ptr<float>(), H, W, H / size, W / size, size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, index};
}

// Each pixel of dinp asks its window: am I your maximum? No two write to one place.
__global__ void max_pool2d_backward_kernel(float* dinp, const float* dout,
                                           const int* index, int H, int W, int H_out,
                                           int W_out, int size) {
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

torch::Tensor max_pool2d_backward(torch::Tensor dout, torch::Tensor index, int64_t size,
                                  int64_t H, int64_t W) {
    CHECK_INPUT(dout, torch::kFloat32);
    CHECK_INPUT(index, torch::kInt32);
    TORCH_CHECK(index.sizes() == dout.sizes() && index.device() == dout.device(),
                "index: expected shape ", dout.sizes(), " on ", dout.device(), ", got ",
                index.sizes(), " on ", index.device());
    int64_t N = dout.size(0), C = dout.size(1);
    int64_t H_out = dout.size(2), W_out = dout.size(3);
    TORCH_CHECK(size >= 1 && H / size == H_out && W / size == W_out, "dout: expected ",
                H, " / size x ", W, " / size pixels, got ", H_out, " x ", W_out,
                ", size ", size);
    c10::cuda::CUDAGuard guard(dout.device());
    torch::Tensor dinp = torch::empty({N, C, H, W}, dout.options());
    if (dinp.numel() == 0) return dinp;
    dim3 grid = plane_grid(N * C, H, W);
    auto stream = c10::cuda::getCurrentCUDAStream();
    max_pool2d_backward_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
        dinp.mutable_data_ptr<float>(), dout.const_data_ptr<float>(),
        index.const_data_ptr<int>(), H, W, H_out, W_out, size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}
