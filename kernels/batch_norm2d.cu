// kernels/batch_norm2d.cu
// SPDX-License-Identifier: MIT
// Batch normalisation of images: out = (inp - mean) / sqrt(var + eps) * weight + bias,
// mean and variance of each channel over the batch (training) or any others given.
// float32, contiguous, at most 65535 * 256 pixels a plane. Bytes an element: statistics
// 4, out 8; both at once, train, 8 where two channels fit into the SMs' shared memory
// and planes are whole float4 (a cooperative grid, whose blocks signal and wait through
// memory), else 12; gradients 20. Scratch memory: 8 N C bytes for statistics and
// gradients, 8 C bytes an SM for train.
// Notebook: 07c_normalization. Algorithm: Ioffe and Szegedy 2015; own code.
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
//         std::tuple<Tensor, Tensor, Tensor> batch_norm2d_train(Tensor inp,
//             Tensor running_mean, Tensor running_var, Tensor weight, Tensor bias,
//             double momentum, double eps);
//         std::tuple<Tensor, Tensor, Tensor> batch_norm2d_backward(Tensor dout,
//             Tensor inp, Tensor mean, Tensor var, Tensor weight, double eps);""",
//     functions=["batch_norm2d_stats", "batch_norm2d_forward",
//                "batch_norm2d_train", "batch_norm2d_backward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda/atomic>
#include <cuda_pipeline.h>
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

struct Moments { float count, mean, squares; };  // squares: of distances from the mean

// Sums of distances from one number near all means may simply be added up.
static __device__ float3 sums_about(float near, Moments a) {
    float distance = a.mean - near;
    return {a.count, a.count * distance, a.squares + a.count * distance * distance};
}

static __device__ Moments moments_of(float near, float3 sums) {
    float shift = sums.y / sums.x, squares = sums.z - sums.y * shift;
    return {sums.x, near + shift, squares < 0.0f ? 0.0f : squares};  // NaN stays NaN
}

// Those of a warp's lanes together, for all of them; lane 0 has numbers.
static __device__ Moments warp_merge(Moments a) {
    float near = __shfl_sync(0xffffffff, a.mean, 0);
    float3 sums = sums_about(near, a);
    return moments_of(near, {warp_sum(sums.x), warp_sum(sums.y), warp_sum(sums.z)});
}

// Those of `n` parts together, by one thread
static __device__ Moments merge_all(const Moments* parts, int n) {
    float near = parts[0].mean;
    float3 sums = {0.0f, 0.0f, 0.0f};
    for (int p = 0; p < n; p++) {
        float3 more = sums_about(near, parts[p]);
        sums = {sums.x + more.x, sums.y + more.y, sums.z + more.z};
    }
    return moments_of(near, sums);
}

// Blocks of a cooperative grid signal and wait through words of memory: a message is
// mean and squares in one word of 8 bytes, which is written and read at once; the sign
// of squares, which are never negative, says that it is there. So relaxed order is
// enough: nothing else has to be visible with it. Each word is written once: no turns,
// no clearing.
typedef unsigned long long Word;
constexpr Word HERE = 0x80000000;
using Message = cuda::atomic_ref<Word, cuda::thread_scope_device>;

static __device__ void tell(Word* word, Moments a) {
    Word mean = __float_as_uint(a.mean), squares = __float_as_uint(a.squares);
    Message(*word).store(mean << 32 | squares | HERE, cuda::memory_order_relaxed);
}

static __device__ Moments hear(Word* word, float count) {
    Word heard = 0;
    while (!(heard & HERE)) heard = Message(*word).load(cuda::memory_order_relaxed);
    return {count, __uint_as_float(heard >> 32), __uint_as_float(heard & ~HERE)};
}

constexpr int SHARE_THREADS = 448;  // of a block that holds a share of a channel
constexpr int SETS = 2;   // of blocks, one on even channels, one on odd ones
constexpr int PARTS = 4;  // of a share, which arrive one after the other

struct Share {  // of a channel of (images, C, plane4) float4
    float4* held;  // (…, SHARE_THREADS), shared memory; `part` rows of it are a part
    int images, C, plane4, blocks, me, part;

    __device__ int first(int c, int block) const {  // the longest shares go around
        return (block + c / SETS * 37) % blocks * SHARE_THREADS;
    }
    __device__ float count(int c, int block) const {  // of the numbers in it
        int total = images * plane4, step = blocks * SHARE_THREADS;
        int rest = min(max(total % step - first(c, block), 0), SHARE_THREADS);
        return 4.0f * (total / step * SHARE_THREADS + rest);
    }
    // f(place in shared memory, place in the tensor) for this thread's float4 of part p
    template <typename F> __device__ void each(int c, int p, F f) const {
        int step = blocks * SHARE_THREADS, at = p * part * SHARE_THREADS + threadIdx.x;
        int i = first(c, me) + threadIdx.x + p * part * step;
        for (int k = 0; k < part && i < images * plane4; k++, i += step)
            f(at + k * SHARE_THREADS, i + (i / plane4 * int64_t(C - 1) + c) * plane4);
    }

    __device__ void ask(const float4* inp, int c, int p) const {
        if (c < C)
            each(c, p, [&](int at, int64_t from) {
                __pipeline_memcpy_async(held + at, inp + from, 16);
            });
        __pipeline_commit();
    }
    __device__ Moments moments(int c) const {  // of this thread's numbers, by its first
        float near = 0.0f;
        float3 sums = {0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            __pipeline_wait_prior(PARTS - 1 - p);
            __syncwarp();  // no load moves to before that
            if (p == 0) near = held[threadIdx.x].x;
            each(c, p, [&](int at, int64_t) {
                float4 x = held[at];
                x = {x.x - near, x.y - near, x.z - near, x.w - near};
                sums = {sums.x + 4.0f, sums.y + x.x + x.y + x.z + x.w,
                        sums.z + x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w};
            });
        }
        return moments_of(near, sums);
    }
    __device__ void write(float4* out, int c, int p, float mean, float scale,
                          float bias) const {
        each(c, p, [&](int at, int64_t to) {
            float4 x = held[at];
            out[to] = {(x.x - mean) * scale + bias, (x.y - mean) * scale + bias,
                       (x.z - mean) * scale + bias, (x.w - mean) * scale + bias};
        });
    }
};

// All blocks run at once: a cooperative launch, for they wait for each other. A block
// holds its share of a channel in shared memory, tells the others its moments, hears
// theirs (all add them up alike), and writes its share of out; meanwhile the SM's other
// block works on another channel. words: (C, blocks), 0 before; others: (C)
__global__ void __launch_bounds__(SHARE_THREADS, SETS) batch_norm2d_train_kernel(
    float4* out, float* mean, float* var, float* running_mean, float* running_var,
    Word* words, const float4* inp, const float* weight, const float* bias, int images,
    int C, int plane4, int part, float momentum, float eps) {
    extern __shared__ float4 held[];
    __shared__ Moments of_warps[2][WARP_SIZE], of_blocks[2][WARP_SIZE];
    int blocks = gridDim.x / SETS, set = blockIdx.x / blocks, me = blockIdx.x % blocks;
    int lane_id = threadIdx.x % WARP_SIZE, warp_id = threadIdx.x / WARP_SIZE, turn = 0;
    Share share = {held, images, C, plane4, blocks, me, part};
    for (int p = 0; p < PARTS; p++) share.ask(inp, set, p);
    for (int c = set; c < C; c += SETS, turn ^= 1) {
        float w = weight[c], b = bias[c];
        Word* channel = words + int64_t(c) * blocks;
        Moments mine = warp_merge(share.moments(c));
        if (lane_id == 0) of_warps[turn][warp_id] = mine;
        __syncthreads();  // the warps' moments are there
        if (threadIdx.x == SHARE_THREADS - 1)
            tell(channel + me, merge_all(of_warps[turn], SHARE_THREADS / WARP_SIZE));
        if (warp_id * WARP_SIZE < blocks) {
            Moments theirs = {0.0f, 0.0f, 0.0f};
            if (threadIdx.x < blocks)
                theirs = hear(channel + threadIdx.x, share.count(c, threadIdx.x));
            theirs = warp_merge(theirs);
            if (lane_id == 0) of_blocks[turn][warp_id] = theirs;
        }
        __syncthreads();  // the blocks' moments are there
        Moments all = merge_all(of_blocks[turn], (blocks + WARP_SIZE - 1) / WARP_SIZE);
        float v = all.squares / all.count, scale = rsqrtf(v + eps) * w;
        for (int p = 0; p < PARTS; p++) {
            share.write(out, c, p, all.mean, scale, b);
            share.ask(inp, c + SETS, p);
        }
        if (me == 0 && threadIdx.x == 0) {
            mean[c] = all.mean;
            var[c] = v;
            running_mean[c] += momentum * (all.mean - running_mean[c]);
            running_var[c] +=
                momentum * (all.squares / (all.count - 1.0f) - running_var[c]);
        }
    }
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

static int attribute(cudaDeviceAttr which) {  // of the current device
    int value = 0, device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

// How many float4 of a channel a thread holds; 0: the chip has no room for two channels
static int64_t float4_to_hold(Tensor inp, int64_t sms) {
    int64_t pixels = inp.size(2) * inp.size(3), float4s = inp.size(0) * pixels / 4;
    int64_t held = (float4s + sms * SHARE_THREADS - 1) / (sms * SHARE_THREADS);
    int64_t shared = held * SHARE_THREADS * sizeof(float4);
    if (pixels % 4 != 0 || uintptr_t(inp.data_ptr()) % 16 != 0 || sms > SHARE_THREADS ||
        float4s < sms * SHARE_THREADS || !attribute(cudaDevAttrCooperativeLaunch) ||
        shared + 4096 > attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return 0;
    int blocks = 0;
    C10_CUDA_CHECK(cudaFuncSetAttribute(batch_norm2d_train_kernel,
        cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, batch_norm2d_train_kernel, SHARE_THREADS, shared));
    return blocks < SETS ? 0 : held;
}

// What batch_norm2d_stats and batch_norm2d_forward return: out, mean, var.
std::tuple<Tensor, Tensor, Tensor> batch_norm2d_train(
    Tensor inp, Tensor running_mean, Tensor running_var, Tensor weight, Tensor bias,
    double momentum, double eps) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    int64_t images = inp.size(0), C = inp.size(1), pixels = inp.size(2) * inp.size(3);
    check_input("weight", weight, {C}, inp);
    check_input("bias", bias, {C}, inp);
    check_input("running_mean", running_mean, {C}, inp);
    check_input("running_var", running_var, {C}, inp);
    CUDAGuard guard(inp.device());
    int64_t sms = attribute(cudaDevAttrMultiProcessorCount);
    int64_t held = float4_to_hold(inp, sms);
    if (held == 0) {
        auto [mean, var] = batch_norm2d_stats(inp, running_mean, running_var, momentum);
        return {batch_norm2d_forward(inp, mean, var, weight, bias, eps), mean, var};
    }
    Tensor out = torch::empty_like(inp), mean = torch::empty_like(weight);
    Tensor var = torch::empty_like(weight);
    Tensor words = torch::zeros({C, sms}, inp.options().dtype(torch::kInt64));
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(SETS * sms);
    config.blockDim = dim3(SHARE_THREADS);
    config.dynamicSmemBytes = held * SHARE_THREADS * sizeof(float4);
    config.stream = getCurrentCUDAStream();
    config.attrs = &together;
    config.numAttrs = 1;
    C10_CUDA_CHECK(cudaLaunchKernelEx(
        &config, batch_norm2d_train_kernel, reinterpret_cast<float4*>(data(out)),
        data(mean), data(var), data(running_mean), data(running_var),
        reinterpret_cast<Word*>(words.data_ptr<int64_t>()),
        reinterpret_cast<const float4*>(data(inp)), data(weight), data(bias),
        int(images), int(C), int(pixels / 4), int((held + PARTS - 1) / PARTS),
        float(momentum), float(eps)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, mean, var};
}
