// kernels/depthwise_conv2d.cu
// SPDX-License-Identifier: MIT
// Depthwise 2-D convolution as in networks (cross-correlation): channel c of out is
// channel c of inp under filter c, plus bias[c]. And its gradients; that of bias is the
// sum of dout over images and pixels.
// inp (N, C, H, W), weight (C, kH, kW), bias (C), or (0) for none; float32, contiguous,
// planes of less than 2^31 pixels; one stride, one padding with zeros, one dilation:
// H_out = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1, W_out likewise.
// Moves 4 bytes for each element of inp and out, for 2 N C H_out W_out kH kW FLOPs, as
// does each gradient: at 7 x 7 an H200 needs as long for the one as for the other.
// Fast for filters of 3 x 3, 5 x 5 and 7 x 7, undilated, of stride 1 or 2 (the gradient
// of inp: of stride 1); the rest is computed by the definition.
// Scratch memory: for the gradient of weight 4 kH kW bytes for each block that the GPU
// holds, or for each channel, if there are more of those; else none.
// Notebook: 11b_fast_convolution. Own code.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// depthwise_conv2d = load_inline("depthwise_conv2d",
//     cuda_sources=Path("depthwise_conv2d.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor depthwise_conv2d_forward(Tensor inp, Tensor weight, Tensor bias,
//             int64_t stride, int64_t padding, int64_t dilation);
//         Tensor depthwise_conv2d_backward_input(Tensor dout, Tensor weight, int64_t H,
//             int64_t W, int64_t stride, int64_t padding, int64_t dilation);
//         Tensor depthwise_conv2d_backward_weight(Tensor dout, Tensor inp, int64_t kH,
//             int64_t kW, int64_t stride, int64_t padding, int64_t dilation);""",
//     functions=["depthwise_conv2d_forward", "depthwise_conv2d_backward_input",
//                "depthwise_conv2d_backward_weight"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
#include <algorithm>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int WARP_SIZE = 32;
constexpr int BLOCK_SIZE = 128, BLOCKS = 3;  // threads; blocks of an SM: 168 registers
constexpr int COLS = 8;                      // of out for a thread
constexpr int ROWS = 96;                     // of out for a thread, about; less where
constexpr int MIN_THREADS = 1 << 16;         // that is too few threads for a large GPU

struct Sizes {
    int N, C, H, W, H_out, W_out, kH, kW, stride, padding, dilation;
    // for a plane `groups` threads side by side, `segments` of them above one another,
    // each for so many rows
    int groups, segments, rows;
};

// *to = four neighbours from `from` on, or zeros
static __device__ void load_pack(float* to, const float* from, bool has) {
    float4 pack = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (has) pack = *reinterpret_cast<const float4*>(from);
    to[0] = pack.x, to[1] = pack.y, to[2] = pack.z, to[3] = pack.w;
}

// The window of inp that a thread walks down, row by row. It begins SHIFT columns
// before the first that the filter meets: with a padding of (K - 1) / 2 that is a
// multiple of 4. PACKED: four numbers at a time can be loaded from there.
template <int K, int STRIDE, bool PACKED> struct Window {
    static constexpr int LIVE = (K + STRIDE - 1) / STRIDE;  // rows of out for one of it
    static constexpr int SHIFT = (4 - K / 2 % 4) % 4;
    static constexpr int END = SHIFT + (COLS - 1) * STRIDE + K;
    static constexpr int SIZE = (END + 3) / 4 * 4;
    const float* from;  // inp at (y, x), which may lie outside
    int y, x;

    __device__ Window(const float* plane, int row, int col, Sizes s) {  // of out
        y = row * STRIDE - s.padding, x = col * STRIDE - s.padding - SHIFT;
        from = plane + int64_t(y) * s.W + x;
    }
    __device__ void load_row(float (&v)[SIZE], Sizes s) {  // and go on to the next
        bool inside = unsigned(y) < unsigned(s.H);
#pragma unroll
        for (int k = PACKED ? 0 : SHIFT; k < END; k += PACKED ? 4 : 1) {
            bool has = inside && unsigned(x + k) < unsigned(s.W);
            if constexpr (PACKED) load_pack(v + k, from + k, has);
            else v[k] = has ? from[k] : 0.0f;
        }
        y++, from += s.W;
    }
};

// Neighbours in a row of dout or out, of which `cols` are inside
template <bool PACKED>
static __device__ void load_cols(float (&v)[COLS], const float* from, int cols) {
#pragma unroll
    for (int c = 0; c < COLS; c += PACKED ? 4 : 1) {
        if constexpr (PACKED) load_pack(v + c, from + c, c < cols);
        else v[c] = c < cols ? from[c] : 0.0f;
    }
}

template <bool PACKED>
static __device__ void store_cols(float* to, const float (&v)[COLS], int cols) {
#pragma unroll
    for (int c = 0; c < COLS; c += PACKED ? 4 : 1) {
        if (c >= cols) continue;
        if constexpr (PACKED)
            *reinterpret_cast<float4*>(to + c) =
                make_float4(v[c], v[c + 1], v[c + 2], v[c + 3]);
        else to[c] = v[c];
    }
}

// A thread walks down inp. A turn is a row of out, STRIDE rows of inp; each goes into
// the sums of LIVE rows of out. These move on by one with every turn: acc[r] has seen r
// turns before this one, and acc[LIVE - 1] is complete after it.
// out (N, C, H_out, W_out), inp (N, C, H, W), weight (C, K, K), bias (C) or nullptr;
// flip: the filter turned by half a turn
template <int K, int STRIDE, bool PACKED>
__global__ void __launch_bounds__(BLOCK_SIZE, BLOCKS)
depthwise_conv2d_forward_kernel(float* __restrict__ out, const float* __restrict__ inp,
                                const float* __restrict__ weight,
                                const float* __restrict__ bias, bool flip, Sizes s) {
    using Win = Window<K, STRIDE, PACKED>;
    constexpr int LIVE = Win::LIVE;
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int col = i % s.groups * COLS, row = i / s.groups % s.segments * s.rows;
    int64_t plane = i / s.groups / s.segments;
    int c_in = plane % s.C, count = min(s.rows, s.H_out - row);
    if (plane >= int64_t(s.N) * s.C) return;

    float w[K * K], acc[LIVE][COLS], x[Win::SIZE], next[Win::SIZE];
    const float* tap = weight + int64_t(c_in) * K * K + (flip ? K * K - 1 : 0);
#pragma unroll
    for (int k = 0; k < K * K; k++, tap += flip ? -1 : 1) w[k] = *tap;
    float first = bias ? bias[c_in] : 0.0f;
    for (int k = 0; k < LIVE * COLS; k++) acc[k / COLS][k % COLS] = first;

    Win window(inp + plane * s.H * s.W, row, col, s);
    out += (plane * s.H_out + row - (LIVE - 1)) * s.W_out + col;
    window.load_row(x, s);
    constexpr int TURNS = 2 / STRIDE;
#pragma unroll TURNS
    for (int done = 1 - LIVE; done < count; done++, out += s.W_out) {
#pragma unroll
        for (int j = 0; j < STRIDE; j++) {
            window.load_row(next, s);  // on its way while this one is multiplied
#pragma unroll
            for (int r = LIVE - 1; r >= 0; r--)
                for (int c = 0; c < COLS; c++) {
                    float sum = j > 0 ? acc[r][c] : r > 0 ? acc[r - 1][c] : first;
                    int kh = r * STRIDE + j;
                    for (int kw = 0; kw < K && kh < K; kw++)
                        sum += w[kh * K + kw] * x[Win::SHIFT + c * STRIDE + kw];
                    acc[r][c] = sum;
                }
            for (int k = 0; k < Win::SIZE; k++) x[k] = next[k];
        }
        if (done >= 0) store_cols<PACKED>(out, acc[LIVE - 1], s.W_out - col);
    }
}

// The block's sum of every acc[k], to sums[k]. memory: SIZE floats for every warp.
template <int SIZE>
static __device__ void over_block(float* sums, float (&acc)[SIZE], float* memory) {
    int warp_id = threadIdx.x / WARP_SIZE, lane_id = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
            acc[k] += __shfl_xor_sync(0xffffffff, acc[k], offset);
        if (lane_id == 0) memory[warp_id * SIZE + k] = acc[k];
    }
    __syncthreads();  // every warp's sums are written before one is read
    for (int k = threadIdx.x; k < SIZE; k += blockDim.x) {
        float sum = 0.0f;
        for (int w = 0; w < blockDim.x / WARP_SIZE; w++) sum += memory[w * SIZE + k];
        sums[k] = sum;
    }
}

// Threads walk down inp and dout. A turn is a row of dout, which comes, and STRIDE rows
// of inp; d[r] is the row of dout that came r turns ago.
// partial (parts, C, K, K): block i adds up, for channel i % C, every parts-th share of
// BLOCK_SIZE walks. dout (N, C, H_out, W_out), inp (N, C, H, W)
template <int K, int STRIDE, bool PACKED>
__global__ void __launch_bounds__(BLOCK_SIZE, BLOCKS)
depthwise_conv2d_backward_weight_kernel(float* __restrict__ partial,
                                        const float* __restrict__ dout,
                                        const float* __restrict__ inp, Sizes s) {
    using Win = Window<K, STRIDE, PACKED>;
    constexpr int LIVE = Win::LIVE;
    __shared__ float memory[BLOCK_SIZE / WARP_SIZE * K * K];
    int channel = blockIdx.x % s.C, parts = gridDim.x / s.C;
    int64_t walks = int64_t(s.N) * s.segments * s.groups;
    float acc[K * K] = {}, x[Win::SIZE], next[Win::SIZE];
    float d[LIVE][COLS], d_next[COLS];
    for (int64_t i = int64_t(blockIdx.x / s.C) * BLOCK_SIZE + threadIdx.x; i < walks;
         i += int64_t(parts) * BLOCK_SIZE) {
        int col = i % s.groups * COLS, row = i / s.groups % s.segments * s.rows;
        int64_t plane = i / s.groups / s.segments * s.C + channel;
        int left = min(s.rows, s.H_out - row);  // rows of dout
        Win window(inp + plane * s.H * s.W, row, col, s);
        const float* from = dout + (plane * s.H_out + row) * s.W_out + col;
        for (int k = 0; k < LIVE * COLS; k++) d[k / COLS][k % COLS] = 0.0f;
        load_cols<PACKED>(d_next, from, s.W_out - col);
        window.load_row(x, s);
#pragma unroll 1
        for (; left > 1 - LIVE; left--) {
#pragma unroll
            for (int r = LIVE - 1; r >= 0; r--)
                for (int c = 0; c < COLS; c++)
                    d[r][c] = r > 0 ? d[r - 1][c] : d_next[c];
            from += s.W_out;
            load_cols<PACKED>(d_next, from, left > 1 ? s.W_out - col : 0);
#pragma unroll
            for (int j = 0; j < STRIDE; j++) {
                window.load_row(next, s);  // on its way while this one is multiplied
#pragma unroll
                for (int kh = j; kh < K; kh += STRIDE)
                    for (int c = 0; c < COLS; c++)
                        for (int kw = 0; kw < K; kw++)
                            acc[kh * K + kw] += d[kh / STRIDE][c] *
                                                x[Win::SHIFT + c * STRIDE + kw];
                for (int k = 0; k < Win::SIZE; k++) x[k] = next[k];
            }
        }
    }
    over_block(partial + int64_t(blockIdx.x) * K * K, acc, memory);
}

// dweight (size) = partial (parts, size).sum(0)
__global__ void depthwise_conv2d_sum_kernel(float* dweight, const float* partial,
                                            int parts, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float acc = 0.0f;
    for (int part = 0; part < parts; part++) acc += partial[int64_t(part) * size + i];
    dweight[i] = acc;
}

// By the definition, for every filter, stride and dilation: a thread per output.
__global__ void depthwise_conv2d_forward_any_kernel(float* out, const float* inp,
                                                    const float* weight,
                                                    const float* bias, Sizes s) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t plane = i / (s.H_out * s.W_out);
    int pixel = i % (s.H_out * s.W_out), row = pixel / s.W_out, col = pixel % s.W_out;
    int c = plane % s.C;
    if (plane >= int64_t(s.N) * s.C) return;
    inp += plane * s.H * s.W, weight += int64_t(c) * s.kH * s.kW;
    float acc = bias ? bias[c] : 0.0f;
    for (int kh = 0; kh < s.kH; kh++) {
        int y = row * s.stride - s.padding + kh * s.dilation;
        if (y < 0 || y >= s.H) continue;
        for (int kw = 0; kw < s.kW; kw++) {
            int x = col * s.stride - s.padding + kw * s.dilation;
            if (x >= 0 && x < s.W) acc += inp[y * s.W + x] * weight[kh * s.kW + kw];
        }
    }
    out[i] = acc;
}

// A thread per element of dinp, which gathers from the outputs that inp went into.
__global__ void depthwise_conv2d_backward_input_any_kernel(float* dinp,
                                                           const float* dout,
                                                           const float* weight,
                                                           Sizes s) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t plane = i / (s.H * s.W);
    int pixel = i % (s.H * s.W), row = pixel / s.W, col = pixel % s.W;
    if (plane >= int64_t(s.N) * s.C) return;
    dout += plane * s.H_out * s.W_out, weight += plane % s.C * s.kH * s.kW;
    float acc = 0.0f;
    for (int kh = 0; kh < s.kH; kh++) {
        int y = row + s.padding - kh * s.dilation, from = y / s.stride;
        if (y < 0 || from * s.stride != y || from >= s.H_out) continue;
        for (int kw = 0; kw < s.kW; kw++) {
            int x = col + s.padding - kw * s.dilation, at = x / s.stride;
            if (x >= 0 && at * s.stride == x && at < s.W_out)
                acc += dout[from * s.W_out + at] * weight[kh * s.kW + kw];
        }
    }
    dinp[i] = acc;
}

// A block per element of dweight, its threads along the rows and columns of dout.
__global__ void depthwise_conv2d_backward_weight_any_kernel(float* dweight,
                                                            const float* dout,
                                                            const float* inp, Sizes s) {
    __shared__ float memory[BLOCK_SIZE / WARP_SIZE];
    int i = blockIdx.x, c = i / s.kW / s.kH, pixels = s.H_out * s.W_out;
    int down = i / s.kW % s.kH * s.dilation - s.padding;
    int right = i % s.kW * s.dilation - s.padding;
    float acc[1] = {};
    for (int64_t plane = c; plane < int64_t(s.N) * s.C; plane += s.C)
        for (int64_t j = threadIdx.x; j < pixels; j += blockDim.x) {
            int y = int(j) / s.W_out * s.stride + down;
            int x = int(j) % s.W_out * s.stride + right;
            if (y >= 0 && y < s.H && x >= 0 && x < s.W)
                acc[0] += dout[plane * pixels + j] * inp[(plane * s.H + y) * s.W + x];
        }
    over_block(dweight + i, acc, memory);
}

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

// name: of the argument that the numbers do not fit
static Sizes sizes_of(const char* name, int64_t N, int64_t C, int64_t H, int64_t W,
                      int64_t kH, int64_t kW, int64_t stride, int64_t padding,
                      int64_t dilation) {
    TORCH_CHECK(stride > 0 && padding >= 0 && dilation > 0 && kH > 0 && kW > 0 &&
                std::max({stride, padding, dilation, kH, kW}) < 1 << 20, name,
                ": expected a filter, stride and dilation from 1, a padding from 0, "
                "all below 2^20, got ", kH, " x ", kW, ", ", stride, ", ", dilation,
                ", ", padding);
    int64_t H_room = H + 2 * padding - dilation * (kH - 1) - 1;
    int64_t W_room = W + 2 * padding - dilation * (kW - 1) - 1;
    TORCH_CHECK(H >= 0 && W >= 0 && H_room >= 0 && W_room >= 0, name, ": expected at "
                "least ", dilation * (kH - 1) + 1, " x ", dilation * (kW - 1) + 1,
                " pixels with the padding, got ", H, " x ", W, ", padding ", padding);
    int64_t H_out = H_room / stride + 1, W_out = W_room / stride + 1;
    int64_t padded = std::max(H, W) + 2 * padding;
    TORCH_CHECK(std::max({N * C, H * W, H_out * W_out, padded}) <= INT_MAX, name,
                ": expected less than 2^31 planes of less than 2^31 pixels, got ",
                N * C, " of ", H, " x ", W, " to ", H_out, " x ", W_out);
    return Sizes{int(N), int(C), int(H), int(W), int(H_out), int(W_out), int(kH),
                 int(kW), int(stride), int(padding), int(dilation), 0, 0, 0};
}

static int blocks_for(int64_t items, int64_t in_block) {
    int64_t blocks = (items + in_block - 1) / in_block;
    TORCH_CHECK(blocks <= INT_MAX, "depthwise_conv2d: expected less than 2^31 blocks, "
                "got ", blocks);
    return blocks;
}

// Long walks read few rows twice, short ones are many threads. Returns a plane's.
static int64_t share_out(Sizes& s) {
    s.groups = (s.W_out + COLS - 1) / COLS;
    int64_t wanted = MIN_THREADS / (int64_t(s.N) * s.C * s.groups) + 1;
    s.segments = std::max(std::min(int(wanted), s.H_out / 8 + 1), s.H_out / ROWS);
    s.rows = (s.H_out + s.segments - 1) / s.segments;
    s.segments = (s.H_out + s.rows - 1) / s.rows;
    return int64_t(s.groups) * s.segments;
}

static bool in_packs(const float* data, int64_t W) {  // whether all rows begin in them
    return W % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

static bool is_fast(Sizes s) {  // whether there is a Window for it
    bool is_known = s.kH == s.kW && (s.kH == 3 || s.kH == 5 || s.kH == 7);
    return is_known && s.stride <= 2 && s.dilation == 1;
}

template <int VALUE> using Constant = std::integral_constant<int, VALUE>;

// f(K, STRIDE, PACKED), which are constants
template <typename F> static void with_window(Sizes s, bool packed, F f) {
    auto with_packed = [&](auto K, auto STRIDE) {
        if (packed) f(K, STRIDE, Constant<true>());
        else f(K, STRIDE, Constant<false>());
    };
    auto with_stride = [&](auto K) {
        if (s.stride == 1) with_packed(K, Constant<1>());
        else with_packed(K, Constant<2>());
    };
    packed = packed && (s.padding - s.kH / 2) % 4 == 0;  // else SHIFT is another
    if (s.kH == 3) with_stride(Constant<3>());
    else if (s.kH == 5) with_stride(Constant<5>());
    else with_stride(Constant<7>());
}

static void launch_forward(float* out, const float* inp, const float* weight,
                           const float* bias, bool flip, Sizes s) {
    int blocks = blocks_for(share_out(s) * s.N * s.C, BLOCK_SIZE);
    bool packed = in_packs(inp, s.W) && in_packs(out, s.W_out);
    with_window(s, packed, [&](auto K, auto STRIDE, auto PACKED) {
        depthwise_conv2d_forward_kernel<K, STRIDE, PACKED>
            <<<blocks, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(out, inp, weight, bias,
                                                                flip, s);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor depthwise_conv2d_forward(Tensor inp, Tensor weight, Tensor bias, int64_t stride,
                                int64_t padding, int64_t dilation) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    int64_t N = inp.size(0), C = inp.size(1);
    check_input("weight", weight, {C, -1, -1}, inp);
    check_input("bias", bias, {bias.numel() ? C : 0}, inp);
    Sizes s = sizes_of("inp", N, C, inp.size(2), inp.size(3), weight.size(1),
                       weight.size(2), stride, padding, dilation);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({N, C, s.H_out, s.W_out}, inp.options());
    if (out.numel() == 0) return out;
    float *to = out.data_ptr<float>(), *from = inp.data_ptr<float>();
    float* filter = weight.data_ptr<float>();
    float* bias_at = bias.numel() ? bias.data_ptr<float>() : nullptr;
    if (is_fast(s)) {
        launch_forward(to, from, filter, bias_at, false, s);
        return out;
    }
    int blocks = blocks_for(out.numel(), BLOCK_SIZE);
    auto stream = getCurrentCUDAStream();
    depthwise_conv2d_forward_any_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(
        to, from, filter, bias_at, s);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// H, W: of the input, which several sizes share if the stride is not 1
Tensor depthwise_conv2d_backward_input(Tensor dout, Tensor weight, int64_t H, int64_t W,
                                       int64_t stride, int64_t padding,
                                       int64_t dilation) {
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    int64_t N = dout.size(0), C = dout.size(1);
    check_input("weight", weight, {C, -1, -1}, dout);
    Sizes s = sizes_of("dout", N, C, H, W, weight.size(1), weight.size(2), stride,
                       padding, dilation);
    check_input("dout", dout, {N, C, s.H_out, s.W_out}, dout);
    CUDAGuard guard(dout.device());
    Tensor dinp = torch::empty({N, C, H, W}, dout.options());
    if (dinp.numel() == 0) return dinp;
    float *to = dinp.data_ptr<float>(), *from = dout.data_ptr<float>();
    float* filter = weight.data_ptr<float>();
    if (stride == 1 && is_fast(s)) {
        // Row y of inp went through row kh of the filter into row y + padding - kh of
        // out: a convolution of dout, with the filter turned by half a turn.
        launch_forward(to, from, filter, nullptr, true,
                       Sizes{s.N, s.C, s.H_out, s.W_out, s.H, s.W, s.kH, s.kW, 1,
                             s.kH - 1 - s.padding, 1, 0, 0, 0});
        return dinp;
    }
    int blocks = blocks_for(dinp.numel(), BLOCK_SIZE);
    auto stream = getCurrentCUDAStream();
    depthwise_conv2d_backward_input_any_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(
        to, from, filter, s);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}

Tensor depthwise_conv2d_backward_weight(Tensor dout, Tensor inp, int64_t kH, int64_t kW,
                                        int64_t stride, int64_t padding,
                                        int64_t dilation) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    int64_t N = inp.size(0), C = inp.size(1);
    Sizes s = sizes_of("inp", N, C, inp.size(2), inp.size(3), kH, kW, stride, padding,
                       dilation);
    check_input("dout", dout, {N, C, s.H_out, s.W_out}, inp);
    CUDAGuard guard(inp.device());
    Tensor dweight = torch::empty({C, kH, kW}, inp.options());
    if (N == 0 || C == 0) return dweight.zero_();
    float *from = inp.data_ptr<float>(), *dout_at = dout.data_ptr<float>();
    auto stream = getCurrentCUDAStream();
    int size = blocks_for(dweight.numel(), 1);
    if (!is_fast(s)) {
        depthwise_conv2d_backward_weight_any_kernel<<<size, BLOCK_SIZE, 0, stream>>>(
            dweight.data_ptr<float>(), dout_at, from, s);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return dweight;
    }
    int most = blocks_for(share_out(s) * N, BLOCK_SIZE);  // for a channel
    Tensor partial;
    bool packed = in_packs(from, s.W) && in_packs(dout_at, s.W_out);
    with_window(s, packed, [&](auto K, auto STRIDE, auto PACKED) {
        auto kernel = depthwise_conv2d_backward_weight_kernel<K, STRIDE, PACKED>;
        int device, processors, resident;  // blocks that an SM holds
        C10_CUDA_CHECK(cudaGetDevice(&device));
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors,
                                              cudaDevAttrMultiProcessorCount, device));
        C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                                     BLOCK_SIZE, 0));
        int parts = std::min(most, std::max(processors * resident / s.C, 1));
        partial = torch::empty({parts, size}, inp.options());
        kernel<<<blocks_for(parts * C, 1), BLOCK_SIZE, 0, stream>>>(
            partial.data_ptr<float>(), dout_at, from, s);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int blocks = blocks_for(size, BLOCK_SIZE);
    depthwise_conv2d_sum_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(
        dweight.data_ptr<float>(), partial.data_ptr<float>(), partial.size(0), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dweight;
}
