// kernels/rms_norm.cu
// SPDX-License-Identifier: MIT
// RMS norm over the last dimension: out = inp * rstd * weight, rstd = 1 / sqrt(mean of
// inp^2 + eps), and its gradients. inp, out: (..., cols), fewer than 2^31 rows; weight:
// (cols); rstd: (...), float32. Contiguous; float32, float16 or bfloat16, all sums in
// float32. float32 moves 8 bytes an element, backward 12, if all is aligned to 16
// bytes and a row fits into registers (16,384 elements; backward 8,192, and 4 rows into
// shared memory); other rows are read again, mostly from cache. Scratch memory:
// backward 4 bytes a column and block, at most 128 MB or a row. NaN and infinity as in
// PyTorch.
// Notebook: 07c_normalization.
// Algorithm: Zhang and Sennrich 2019; own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// rms_norm = load_inline("rms_norm", cuda_sources=Path("rms_norm.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         std::tuple<Tensor, Tensor> rms_norm_forward(Tensor inp, Tensor weight,
//                                                     double eps);
//         std::tuple<Tensor, Tensor> rms_norm_backward(Tensor dout, Tensor inp,
//                                                      Tensor weight, Tensor rstd);""",
//     functions=["rms_norm_forward", "rms_norm_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda/annotated_ptr>
#include <cuda_pipeline.h>
#include <torch/types.h>
#include <algorithm>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int WARP_SIZE = 32;
constexpr int ELEMENTS = 16;  // of a row, in the registers of a thread

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

template <typename T> __device__ Pack<T> pack_at(const T* from) {
    return *reinterpret_cast<const Pack<T>*>(from);
}

template <typename T> __device__ void load(float* x, const T* from) {
    Pack<T> pack = pack_at(from);
#pragma unroll
    for (int k = 0; k < Pack<T>::WIDTH; k++) x[k] = float(pack.at[k]);
}

template <typename T> __device__ void store(T* to, const float* x) {
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < Pack<T>::WIDTH; k++) pack.at[k] = T(x[k]);
    *reinterpret_cast<Pack<T>*>(to) = pack;
}

// In two chains of additions, of which the last links are joined
template <typename T> __device__ float sum_of_squares(const Pack<T>& x) {
    float sums[2] = {};
#pragma unroll
    for (int k = 0; k < Pack<T>::WIDTH; k++)
        sums[k % 2] += float(x.at[k]) * float(x.at[k]);
    return sums[0] + sums[1];
}

static __device__ float warp_sum(float value) {
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

// The sum over the block, for every thread. The next call takes other `sums`.
static __device__ float block_sum(float value, float* sums) {
    int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_sum(value);
    if (lane_id == 0) sums[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();  // all warps' sums are there
    return warp_sum(lane_id < blockDim.x / WARP_SIZE ? sums[lane_id] : 0.0f);
}

// The first of a thread's columns: a warp has 512 neighbours, a lane of them every 32nd
// pack, so that its other packs are 32 WIDTH columns apart.
template <typename T> __device__ int first_column() {
    int warp_id = threadIdx.x / WARP_SIZE, lane_id = threadIdx.x % WARP_SIZE;
    return warp_id * WARP_SIZE * ELEMENTS + lane_id * Pack<T>::WIDTH;
}

// A block per row, whose packs stay in registers. WHOLE: each thread has all of its
// packs, and a block at most 512 threads. out, inp: (rows, cols); rstd: (rows); weight:
// (cols)
template <typename T, bool WHOLE>
__global__ void
__launch_bounds__(WHOLE ? 512 : 1024, !WHOLE ? 1 : sizeof(T) == 4 ? 2 : 4)
rms_norm_forward_kernel(T* out, float* rstd, const T* inp, const T* weight,
                        int64_t cols, float eps) {
    constexpr int PACKS = ELEMENTS / Pack<T>::WIDTH, STEP = WARP_SIZE * Pack<T>::WIDTH;
    __shared__ float sums[WARP_SIZE];
    int first = first_column<T>(), left = WHOLE ? INT_MAX : cols - first;
    float share = 1.0f / cols;  // here, where nothing waits for it
    // kept in L2 longer than what is written, which leaves for memory the sooner
    const T* row = cuda::associate_access_property(
        inp + blockIdx.x * cols + first, cuda::access_property::persisting());
    Pack<T> x[PACKS], w[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * STEP < left) x[p] = pack_at(row + p * STEP);
#pragma unroll
    for (int p = 0; p < PACKS; p++)  // while x is on its way
        if (p * STEP < left) w[p] = pack_at(weight + first + p * STEP);
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * STEP < left) squares += sum_of_squares(x[p]);
    float r = rsqrtf(block_sum(squares, sums) * share + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = r;
    out += blockIdx.x * cols + first;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * STEP < left) {
            for (int k = 0; k < Pack<T>::WIDTH; k++)
                x[p].at[k] = T(float(x[p].at[k]) * r * float(w[p].at[k]));
            *reinterpret_cast<Pack<T>*>(out + p * STEP) = x[p];
        }
}

constexpr int STAGES = 2;  // rows of inp and dout on their way to a block

// Asks for this thread's packs of a row of inp and dout, to (2, cols) in shared memory.
template <typename T>
__device__ void ask_for_row(T* stage, const T* inp, const T* dout, int64_t row,
                            int64_t rows, int64_t cols) {
    int first = first_column<T>(), left = row < rows ? cols - first : 0;
    inp += row * cols + first;
    dout += row * cols + first;
#pragma unroll
    for (int at = 0; at < WARP_SIZE * ELEMENTS; at += WARP_SIZE * Pack<T>::WIDTH)
        if (at < left) {
            __pipeline_memcpy_async(stage + first + at, inp + at, 16);
            __pipeline_memcpy_async(stage + cols + first + at, dout + at, 16);
        }
    __pipeline_commit();
}

// Any row: it is read twice, and the shares in `parts`, 0 before, are in memory.
template <typename T>
__global__ void __launch_bounds__(512) rms_norm_backward_long_kernel(
    T* dinp, float* parts, const T* dout, const T* inp, const T* weight,
    const float* rstd, int64_t rows, int64_t cols) {
    __shared__ float sums[2][WARP_SIZE];
    float* dweight = parts + blockIdx.x * cols;
    for (int64_t row = blockIdx.x, turn = 0; row < rows; row += gridDim.x, turn++) {
        float r = rstd[row], sum = 0.0f;
        for (int64_t i = threadIdx.x; i < cols; i += blockDim.x)
            sum += float(dout[row * cols + i]) * float(weight[i]) *
                   float(inp[row * cols + i]) * r;
        float across = block_sum(sum, sums[turn % 2]) / cols;
        for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) {
            float normed = float(inp[row * cols + i]) * r;
            float grad = float(dout[row * cols + i]), d = grad * float(weight[i]);
            dinp[row * cols + i] = T(r * (d - normed * across));
            dweight[i] += grad * normed;  // this thread's alone
        }
    }
}

constexpr int GROUPS = 8;  // of threads that share a column of parts

// Adds up the blocks' shares, in a fixed order.
template <typename T>
__global__ void rms_norm_grads_kernel(T* dweight, const float* parts, int blocks,
                                      int64_t cols) {
    __shared__ float sums[GROUPS][WARP_SIZE];
    int64_t col = int64_t(blockIdx.x) * WARP_SIZE + threadIdx.x;
    float sum = 0.0f;
    for (int64_t b = threadIdx.y; b < blocks && col < cols; b += GROUPS)
        sum += parts[b * cols + col];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();  // the groups' sums are there
    if (threadIdx.y > 0 || col >= cols) return;
    for (int g = 1; g < GROUPS; g++) sum += sums[g][threadIdx.x];
    dweight[col] = T(sum);
}

// A block walks over every gridDim.x-th row and keeps its share of dweight, parts:
// (gridDim.x, cols); dinp, dout, inp: (rows, cols)
template <typename T>
__global__ void __launch_bounds__(512) rms_norm_backward_kernel(
    T* dinp, float* parts, const T* dout, const T* inp, const T* weight,
    const float* rstd, int64_t rows, int64_t cols) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float sums[2][WARP_SIZE];
    T* stages = reinterpret_cast<T*>(shared);  // (STAGES, 2, cols)
    int first = first_column<T>(), left = cols - first, turn = 0;
    float w[ELEMENTS] = {}, dw[ELEMENTS] = {};
#pragma unroll
    for (int p = 0; p < ELEMENTS; p += WIDTH)
        if (WARP_SIZE * p < left) load(w + p, weight + first + WARP_SIZE * p);
    for (int s = 0; s < STAGES; s++)
        ask_for_row(stages + s * 2 * cols, inp, dout,
                    blockIdx.x + int64_t(s) * gridDim.x, rows, cols);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn++) {
        float normed[ELEMENTS] = {}, d[ELEMENTS] = {}, r = rstd[row], sum = 0.0f;
        T* stage = stages + turn % STAGES * 2 * cols;
        __pipeline_wait_prior(STAGES - 1);  // what this thread asked for is there,
        __syncwarp();                       // and no load moves to before that
#pragma unroll
        for (int p = 0; p < ELEMENTS; p += WIDTH)
            if (WARP_SIZE * p < left) {
                load(normed + p, stage + first + WARP_SIZE * p);
                load(d + p, stage + cols + first + WARP_SIZE * p);
            }
        ask_for_row(stage, inp, dout, row + int64_t(STAGES) * gridDim.x, rows, cols);
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++) {  // beyond the row d is 0
            normed[e] *= r;
            dw[e] += d[e] * normed[e];
            d[e] *= w[e];
            sum += d[e] * normed[e];
        }
        float across = block_sum(sum, sums[turn % 2]) / cols;
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++)
            d[e] = r * (d[e] - normed[e] * across);
#pragma unroll
        for (int p = 0; p < ELEMENTS; p += WIDTH)
            if (WARP_SIZE * p < left)
                store(dinp + row * cols + first + WARP_SIZE * p, d + p);
    }
    for (int e = 0; e < ELEMENTS; e++) {
        int at = WARP_SIZE * (e / WIDTH * WIDTH) + e % WIDTH;
        if (at < left) parts[blockIdx.x * cols + first + at] = dw[e];
    }
}

// x has to be contiguous, of this type and shape, on the GPU of `like`
static void check_input(const char* name, Tensor x, torch::ScalarType type,
                        torch::IntArrayRef shape, Tensor like) {
    TORCH_CHECK((type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16) && x.scalar_type() == type &&
                x.is_contiguous() && x.is_cuda() && x.device() == like.device() &&
                x.sizes() == shape, name, ": expected contiguous float32, float16 or "
                "bfloat16, as inp (rstd: float32), on one CUDA device, shape ",
                shape, ", got ", x.scalar_type(), " on ", x.device(), ", shape ",
                x.sizes(), ", strides ", x.strides());
}

static torch::IntArrayRef check_rows(Tensor inp) {  // returns all sizes but the last
    TORCH_CHECK(inp.dim() > 0, "inp: expected (..., cols), got shape ", inp.sizes());
    check_input("inp", inp, inp.scalar_type(), inp.sizes(), inp);
    TORCH_CHECK(inp.numel() <= INT_MAX * inp.size(-1), "inp: expected fewer than 2^31 "
                "rows, got shape ", inp.sizes());
    return torch::IntArrayRef(inp.sizes().data(), inp.dim() - 1);
}

template <typename F> static void with_type(Tensor x, F f) {  // f(an element's zero)
    if (x.scalar_type() == torch::kFloat32) f(float());
    else if (x.scalar_type() == torch::kFloat16) f(at::Half());
    else f(at::BFloat16());
}

// whether all rows of all tensors of (..., cols) consist of whole packs
static bool in_packs(std::initializer_list<Tensor> tensors) {
    bool whole = true;
    for (const Tensor& x : tensors)
        whole &= uintptr_t(x.data_ptr()) % 16 == 0 &&
                 x.size(-1) * x.element_size() % 16 == 0;
    return whole;
}

static int threads_for(int64_t cols, int64_t most) {
    int64_t warps = (cols + WARP_SIZE * ELEMENTS - 1) / (WARP_SIZE * ELEMENTS);
    return std::min(most, warps * WARP_SIZE);
}

// Any row: it is read twice, most often the second time from cache. Arguments as above.
template <typename T>
__global__ void __launch_bounds__(1024) rms_norm_forward_long_kernel(
    T* out, float* rstd, const T* inp, const T* weight, int64_t cols, float eps) {
    __shared__ float sums[WARP_SIZE];
    inp += blockIdx.x * cols;
    out += blockIdx.x * cols;
    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += blockDim.x)
        squares += float(inp[col]) * float(inp[col]);
    float r = rsqrtf(block_sum(squares, sums) / cols + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = r;
    for (int64_t col = threadIdx.x; col < cols; col += blockDim.x)
        out[col] = T(float(inp[col]) * r * float(weight[col]));
}

std::tuple<Tensor, Tensor> rms_norm_forward(Tensor inp, Tensor weight, double eps) {
    auto lead = check_rows(inp);
    int64_t cols = inp.size(-1);
    check_input("weight", weight, inp.scalar_type(), {cols}, inp);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    Tensor rstd = torch::empty(lead, inp.options().dtype(torch::kFloat32));
    if (inp.numel() == 0) return {out, rstd.fill_(NAN)};
    with_type(inp, [&](auto zero) { using T = decltype(zero);
        int threads = threads_for(cols, 1024);
        bool whole = cols == threads * ELEMENTS && threads <= 512;
        auto kernel = whole ? rms_norm_forward_kernel<T, true>
                            : rms_norm_forward_kernel<T, false>;
        if (cols > threads * ELEMENTS || !in_packs({out, inp, weight}))
            kernel = rms_norm_forward_long_kernel<T>;
        kernel<<<rstd.numel(), threads, 0, getCurrentCUDAStream()>>>(
            out.data_ptr<T>(), rstd.data_ptr<float>(), inp.data_ptr<T>(),
            weight.data_ptr<T>(), cols, eps);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, rstd};
}

static int attribute(cudaDeviceAttr which) {  // of the current device
    int value = 0, device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

// Returns dinp, dweight.
std::tuple<Tensor, Tensor> rms_norm_backward(Tensor dout, Tensor inp, Tensor weight,
                                             Tensor rstd) {
    auto type = inp.scalar_type();
    auto lead = check_rows(inp);
    int64_t cols = inp.size(-1), rows = rstd.numel();
    check_input("dout", dout, type, inp.sizes(), inp);
    check_input("weight", weight, type, {cols}, inp);
    check_input("rstd", rstd, torch::kFloat32, lead, inp);
    CUDAGuard guard(inp.device());
    Tensor dinp = torch::empty_like(inp), dweight = torch::empty_like(weight);
    if (inp.numel() == 0) return {dinp, dweight.zero_()};
    with_type(inp, [&](auto zero) { using T = decltype(zero);
        int threads = threads_for(cols, 512), blocks = 1;
        int64_t shared = STAGES * 2 * cols * sizeof(T);
        bool fits = cols <= threads * ELEMENTS && in_packs({dinp, dout, inp, weight}) &&
                    shared + 1024 <= attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
        auto kernel = fits ? rms_norm_backward_kernel<T>
                           : rms_norm_backward_long_kernel<T>;
        if (!fits) shared = 0;
        C10_CUDA_CHECK(cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
        C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel,
                                                                     threads, shared));
        int64_t places = blocks * attribute(cudaDevAttrMultiProcessorCount);
        blocks = std::min({rows, places, (1 << 25) / cols + 1});  // parts: 128 MB
        Tensor parts = torch::zeros({blocks, cols}, rstd.options());
        kernel<<<blocks, threads, shared, getCurrentCUDAStream()>>>(
            dinp.data_ptr<T>(), parts.data_ptr<float>(), dout.data_ptr<T>(),
            inp.data_ptr<T>(), weight.data_ptr<T>(), rstd.data_ptr<float>(), rows,
            cols);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        dim3 block(WARP_SIZE, GROUPS);
        rms_norm_grads_kernel<<<(cols + WARP_SIZE - 1) / WARP_SIZE, block, 0,
                                getCurrentCUDAStream()>>>(
            dweight.data_ptr<T>(), parts.data_ptr<float>(), blocks, cols);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {dinp, dweight};
}
