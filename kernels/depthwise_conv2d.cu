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
// Notebook: 11b_fast_convolution. Own code; register tiles as in matrix products.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// depthwise = load_inline("depthwise",
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
#include <cuda_pipeline.h>
#include <torch/types.h>
#include <algorithm>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int WARP_SIZE = 32;
constexpr int BLOCK_SIZE = 128;          // threads of a block, at most
constexpr int BLOCKS = 4;                // of a multiprocessor: 128 registers a thread
constexpr int COLS = 4;                  // of a thread: one store of 16 bytes
constexpr int MOST_COLS = 256;           // of a tile, at stride 1
constexpr int STAGES = 2;                // of a tile: one arrives, the other is used
constexpr int SHARED_BYTES = 48 * 1024;  // of a block: what every GPU gives unasked

struct Sizes {
    int N, C, H, W, H_out, W_out, kH, kW, stride, padding, dilation;
};

struct Tiling {  // how a block's threads share a tile of out
    int groups;  // threads side by side, each on COLS columns
    int strips;  // of those rows of threads, each thread on Window::ROWS rows
    int planes;  // of those, each on one plane: a channel of an image
    int across, down, count;  // tiles side by side, above one another, in all planes
    int height, packs;        // of inp they need: rows a plane, packs of 4 floats a row
    bool packed;              // whether inp's packs lie at multiples of 16 bytes
    int threads, bytes;       // of a block: threads, and shared memory
};

// What a thread needs of inp. Its row of packs begins SHIFT columns before the first
// that the filter meets: with a padding of (K - 1) / 2 packs begin where inp's do.
template <int K, int STRIDE> struct Window {
    static constexpr int ROWS = 8 / STRIDE, HEIGHT = (ROWS - 1) * STRIDE + K;
    static constexpr int SHIFT = (4 - K / 2 % 4) % 4;
    static constexpr int PACKS = (SHIFT + (COLS - 1) * STRIDE + K + 3) / 4;
    static constexpr int WEIGHTS = (K * K + 3) / 4 * 4;  // whole packs of them
};

static __device__ void load_pack(float* to, const float* from) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

struct Place {
    int x, y, first;  // the tile's column and row among the tiles, its first plane
    __device__ Place(int tile, Tiling t) {
        x = tile % t.across, y = tile / t.across % t.down;
        first = tile / (t.across * t.down) * t.planes;
    }
};

// Ask for the part of inp that a tile needs, zeros outside the image: `left` planes
// from inp on, `plane_size` floats apart. It is there after __pipeline_wait_prior.
template <int K, int STRIDE>
static __device__ void ask_for(float* tile, const float* inp, int left,
                               int64_t plane_size, Place place, Sizes s, Tiling t) {
    using Win = Window<K, STRIDE>;
    int y0 = place.y * t.strips * Win::ROWS * STRIDE - s.padding;
    int x0 = place.x * t.groups * COLS * STRIDE - s.padding - Win::SHIFT;
    int row = threadIdx.x / t.packs, col = threadIdx.x % t.packs, plane = 0;
    int row_step = blockDim.x / t.packs, col_step = blockDim.x % t.packs;
    while (row < t.height * t.planes) {
        while (row - plane * t.height >= t.height) plane++;
        float* to = tile + (row * t.packs + col) * 4;
        int y = y0 + row - plane * t.height, x = x0 + col * 4;
        bool inside = plane < left && unsigned(y) < unsigned(s.H);
        const float* from = inp + plane * plane_size + int64_t(y) * s.W + x;
        if (t.packed) {
            inside = inside && unsigned(x) < unsigned(s.W);
            __pipeline_memcpy_async(to, inside ? from : inp, 16, inside ? 0 : 16);
        } else {
            for (int k = 0; k < 4; k++) {
                bool has = inside && unsigned(x + k) < unsigned(s.W);
                __pipeline_memcpy_async(to + k, has ? from + k : inp, 4, has ? 0 : 4);
            }
        }
        row += row_step, col += col_step;
        if (col >= t.packs) col -= t.packs, row++;
    }
}

// Every row of a thread's window comes from shared memory once. multiply(r, kh, x)
// joins it, through row kh of the filter, to row r of the thread's outputs.
template <int K, int STRIDE, typename F>
static __device__ void over_window(const float* window, int pitch, F multiply) {
    using Win = Window<K, STRIDE>;
#pragma unroll
    for (int y = 0; y < Win::HEIGHT; y++) {
        float x[Win::PACKS * 4];
#pragma unroll
        for (int k = 0; k < Win::PACKS; k++)
            load_pack(x + 4 * k, window + y * pitch + 4 * k);
#pragma unroll
        for (int r = 0; r < Win::ROWS; r++) {
            int kh = y - r * STRIDE;
            if (kh >= 0 && kh < K) multiply(r, kh, x + Win::SHIFT);
        }
    }
}

// Outputs from (row, col) on of one plane, a thread's ROWS x COLS. window: the thread's
// first pack of inp, weight: the filter of the plane; both in shared memory.
template <int K, int STRIDE>
static __device__ void forward_strip(float* out, int row, int col, const float* window,
                                     int pitch, const float* weight, float bias,
                                     Sizes s) {
    using Win = Window<K, STRIDE>;
    if (row >= s.H_out || col >= s.W_out) return;
    float w[Win::WEIGHTS], acc[Win::ROWS][COLS];
    for (int k = 0; k < Win::WEIGHTS; k += 4) load_pack(w + k, weight + k);
    for (int r = 0; r < Win::ROWS; r++)
        for (int c = 0; c < COLS; c++) acc[r][c] = bias;
    over_window<K, STRIDE>(window, pitch, [&](int r, int kh, const float* x) {
#pragma unroll
        for (int kw = 0; kw < K; kw++)
            for (int c = 0; c < COLS; c++)
                acc[r][c] += w[kh * K + kw] * x[c * STRIDE + kw];
    });
    out += int64_t(row) * s.W_out + col;
#pragma unroll
    for (int r = 0; r < Win::ROWS; r++, out += s.W_out) {
        if (row + r >= s.H_out) break;
        if (s.W_out % COLS == 0) {
            *reinterpret_cast<float4*>(out) =
                make_float4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
        } else {
            for (int c = 0; c < COLS; c++)
                if (col + c < s.W_out) out[c] = acc[r][c];
        }
    }
}

// out (N, C, H_out, W_out), inp (N, C, H, W), weight (C, K, K), bias (C) or nullptr;
// flip: the filter turned by half a turn
template <int K, int STRIDE>
__global__ void __launch_bounds__(BLOCK_SIZE, BLOCKS)
depthwise_conv2d_forward_kernel(float* out, const float* inp, const float* weight,
                                const float* bias, bool flip, Sizes s, Tiling t) {
    using Win = Window<K, STRIDE>;
    extern __shared__ float4 shared[];  // for each stage: weights, then the tile
    int all_weights = t.planes * Win::WEIGHTS, pitch = t.packs * 4;
    int stage_size = all_weights + t.planes * t.height * pitch;
    float* stages = reinterpret_cast<float*>(shared);
    int group = threadIdx.x % t.groups, strip = threadIdx.x / t.groups % t.strips;
    int p = threadIdx.x / (t.groups * t.strips);  // == t.planes in threads too many
    int64_t plane_size = int64_t(s.H) * s.W;

    auto ask = [&](int tile, float* stage) {
        if (tile < t.count) {
            Place at(tile, t);
            for (int i = threadIdx.x; i < t.planes * K * K; i += blockDim.x) {
                int plane = i / (K * K), k = i % (K * K), c = (at.first + plane) % s.C;
                __pipeline_memcpy_async(stage + plane * Win::WEIGHTS + k, weight +
                    int64_t(c) * K * K + (flip ? K * K - 1 - k : k), 4);
            }
            ask_for<K, STRIDE>(stage + all_weights, inp + at.first * plane_size,
                               s.N * s.C - at.first, plane_size, at, s, t);
        }
        __pipeline_commit();  // an empty group behind the last tile: they are counted
    };
    ask(blockIdx.x, stages);
    for (int tile = blockIdx.x, i = 0; tile < t.count; tile += gridDim.x, i ^= 1) {
        ask(tile + gridDim.x, stages + (i ^ 1) * stage_size);
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();  // what the other threads asked for is there, too
        Place at(tile, t);
        int plane = at.first + p, row = (at.y * t.strips + strip) * Win::ROWS;
        int col = (at.x * t.groups + group) * COLS;
        if (p < t.planes && plane < s.N * s.C) {
            const float* stage = stages + i * stage_size;
            const float* window = stage + all_weights + group * STRIDE * 4 +
                                  (p * t.height + strip * Win::ROWS * STRIDE) * pitch;
            forward_strip<K, STRIDE>(out + int64_t(plane) * s.H_out * s.W_out, row, col,
                                     window, pitch, stage + p * Win::WEIGHTS,
                                     bias ? bias[plane % s.C] : 0.0f, s);
        }
        __syncthreads();  // everybody has read this stage before it is filled again
    }
}

// d: a thread's ROWS x COLS of dout, a plane's, from (row, col) on; 0 outside
template <int ROWS>
static __device__ void load_strip(float (&d)[ROWS][COLS], const float* dout, bool works,
                                  bool packed, int row, int col, Sizes s) {
    dout += int64_t(row) * s.W_out + col;
#pragma unroll
    for (int r = 0; r < ROWS; r++, dout += s.W_out) {
        bool inside = works && row + r < s.H_out;
        for (int c = 0; c < COLS; c++) d[r][c] = 0.0f;
        if (packed) {
            if (inside && col < s.W_out) load_pack(d[r], dout);
        } else {
            for (int c = 0; c < COLS; c++)
                if (inside && col + c < s.W_out) d[r][c] = dout[c];
        }
    }
}

// The block's sum of every acc[k], to sums[k]. memory: K * K floats for every warp.
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

// partial (parts, C, K, K): block x adds up, for channel x % C, every parts-th tile.
// dout (N, C, H_out, W_out), inp (N, C, H, W)
template <int K, int STRIDE>
__global__ void __launch_bounds__(BLOCK_SIZE, BLOCKS)
depthwise_conv2d_backward_weight_kernel(float* partial, const float* dout,
                                        const float* inp, bool dout_packed, Sizes s,
                                        Tiling t) {
    using Win = Window<K, STRIDE>;
    extern __shared__ float4 shared[];  // a tile for each stage
    float* stages = reinterpret_cast<float*>(shared);
    int pitch = t.packs * 4, stage_size = t.planes * t.height * pitch;
    int group = threadIdx.x % t.groups, strip = threadIdx.x / t.groups % t.strips;
    int p = threadIdx.x / (t.groups * t.strips);  // == t.planes in threads too many
    int channel = blockIdx.x % s.C, parts = gridDim.x / s.C;
    int64_t plane_size = int64_t(s.H) * s.W, out_size = int64_t(s.H_out) * s.W_out;

    auto ask = [&](int tile, float* stage) {
        if (tile < t.count) {
            Place at(tile, t);  // `first` counts images here, which are C planes apart
            ask_for<K, STRIDE>(stage, inp + (int64_t(at.first) * s.C + channel) *
                               plane_size, s.N - at.first, plane_size * s.C, at, s, t);
        }
        __pipeline_commit();
    };
    float acc[K * K] = {}, d[Win::ROWS][COLS];
    ask(blockIdx.x / s.C, stages);
    for (int tile = blockIdx.x / s.C, i = 0; tile < t.count; tile += parts, i ^= 1) {
        ask(tile + parts, stages + (i ^ 1) * stage_size);
        Place at(tile, t);
        int n = at.first + p, row = (at.y * t.strips + strip) * Win::ROWS;
        bool works = p < t.planes && n < s.N;
        load_strip(d, dout + (int64_t(n) * s.C + channel) * out_size, works,
                   dout_packed, row, (at.x * t.groups + group) * COLS, s);
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();  // what the other threads asked for is there, too
        const float* window = stages + i * stage_size + group * STRIDE * 4 +
                              (p * t.height + strip * Win::ROWS * STRIDE) * pitch;
        auto multiply = [&](int r, int kh, const float* x) {
#pragma unroll
            for (int c = 0; c < COLS; c++)
                for (int kw = 0; kw < K; kw++)
                    acc[kh * K + kw] += d[r][c] * x[c * STRIDE + kw];
        };
        if (works) over_window<K, STRIDE>(window, pitch, multiply);
        __syncthreads();  // everybody has read this stage before it is filled again
    }
    over_block(partial + int64_t(blockIdx.x) * K * K, acc, stages);
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
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, plane = i / s.W_out;
    int col = i % s.W_out, row = plane % s.H_out, c = plane / s.H_out % s.C;
    plane /= s.H_out;
    if (plane >= int64_t(s.N) * s.C) return;
    float acc = bias ? bias[c] : 0.0f;
    for (int kh = 0; kh < s.kH; kh++)
        for (int kw = 0; kw < s.kW; kw++) {
            int64_t y = int64_t(row) * s.stride - s.padding + int64_t(kh) * s.dilation;
            int64_t x = int64_t(col) * s.stride - s.padding + int64_t(kw) * s.dilation;
            if (y >= 0 && y < s.H && x >= 0 && x < s.W)
                acc += inp[(plane * s.H + y) * s.W + x] *
                       weight[(int64_t(c) * s.kH + kh) * s.kW + kw];
        }
    out[i] = acc;
}

// A thread per element of dinp, which gathers from the outputs that inp went into.
__global__ void depthwise_conv2d_backward_input_any_kernel(float* dinp,
                                                           const float* dout,
                                                           const float* weight,
                                                           Sizes s) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, plane = i / s.W;
    int col = i % s.W, row = plane % s.H, c = plane / s.H % s.C;
    plane /= s.H;
    if (plane >= int64_t(s.N) * s.C) return;
    float acc = 0.0f;
    for (int kh = 0; kh < s.kH; kh++)
        for (int kw = 0; kw < s.kW; kw++) {
            int64_t y = int64_t(row) + s.padding - int64_t(kh) * s.dilation;
            int64_t x = int64_t(col) + s.padding - int64_t(kw) * s.dilation;
            if (y < 0 || x < 0 || y % s.stride || x % s.stride) continue;
            y /= s.stride, x /= s.stride;
            if (y < s.H_out && x < s.W_out)
                acc += dout[(plane * s.H_out + y) * s.W_out + x] *
                       weight[(int64_t(c) * s.kH + kh) * s.kW + kw];
        }
    dinp[i] = acc;
}

// A block per element of dweight, its threads along the rows and columns of dout.
__global__ void depthwise_conv2d_backward_weight_any_kernel(float* dweight,
                                                            const float* dout,
                                                            const float* inp, Sizes s) {
    __shared__ float memory[BLOCK_SIZE / WARP_SIZE];
    int64_t i = blockIdx.x, c = i / (s.kH * s.kW), pixels = int64_t(s.H_out) * s.W_out;
    int64_t down = i / s.kW % s.kH * s.dilation - s.padding;
    int64_t right = i % s.kW * s.dilation - s.padding;
    float acc[1] = {};
    for (int n = 0; n < s.N; n++) {
        int64_t plane = int64_t(n) * s.C + c;
        for (int64_t j = threadIdx.x; j < pixels; j += blockDim.x) {
            int64_t y = j / s.W_out * s.stride + down;
            int64_t x = j % s.W_out * s.stride + right;
            if (y >= 0 && y < s.H && x >= 0 && x < s.W)
                acc[0] += dout[plane * pixels + j] * inp[(plane * s.H + y) * s.W + x];
        }
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
    TORCH_CHECK(N * C <= INT_MAX && H * W <= INT_MAX && H_out * W_out <= INT_MAX, name,
                ": expected less than 2^31 planes of less than 2^31 pixels, got ",
                N * C, " of ", H, " x ", W, " to ", H_out, " x ", W_out);
    return Sizes{int(N), int(C), int(H), int(W), int(H_out), int(W_out), int(kH),
                 int(kW), int(stride), int(padding), int(dilation)};
}

static int blocks_for(int64_t items, int64_t in_block) {
    int64_t blocks = (items + in_block - 1) / in_block;
    TORCH_CHECK(blocks <= INT_MAX, "depthwise_conv2d: expected less than 2^31 blocks, "
                "got ", blocks);
    return blocks;
}

// planes: all of out, or for the gradient of weight those of one channel
template <int K, int STRIDE>
static Tiling tiling_of(Sizes s, int planes, int weights, const float* inp) {
    using Win = Window<K, STRIDE>;
    Tiling t;
    t.across = (s.W_out + MOST_COLS / STRIDE - 1) / (MOST_COLS / STRIDE);
    t.groups = (s.W_out + t.across * COLS - 1) / (t.across * COLS);
    t.packs = (t.groups - 1) * STRIDE + Win::PACKS;
    t.strips = std::min(BLOCK_SIZE / t.groups, (s.H_out + Win::ROWS - 1) / Win::ROWS);
    auto plane_bytes = [&] {
        t.height = (t.strips * Win::ROWS - 1) * STRIDE + K;
        return STAGES * (t.height * t.packs * 4 + weights) * int(sizeof(float));
    };
    while (t.strips > 1 && plane_bytes() > SHARED_BYTES) t.strips--;
    t.planes = std::min(BLOCK_SIZE / (t.groups * t.strips),
                        SHARED_BYTES / plane_bytes());
    t.planes = std::min(t.planes, planes);
    t.bytes = t.planes * plane_bytes();
    t.threads = t.planes * t.strips * t.groups;
    t.threads = (t.threads + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE;
    int rows = t.strips * Win::ROWS;
    t.down = (s.H_out + rows - 1) / rows;
    int64_t stacks = (planes + t.planes - 1) / t.planes;
    t.count = blocks_for(stacks * t.down * t.across, 1);
    t.packed = s.W % 4 == 0 && (s.padding + Win::SHIFT) % 4 == 0 &&
               reinterpret_cast<uintptr_t>(inp) % 16 == 0;
    return t;
}

// Blocks of this kernel that the GPU holds at a time.
template <typename Kernel> static int resident_blocks(Kernel kernel, Tiling t) {
    int device, processors, blocks;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
                                          device));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel,
                                                                 t.threads, t.bytes));
    return processors * blocks;
}

static bool is_fast(Sizes s) {  // whether there is a kernel with a Window for it
    bool is_known = s.kH == s.kW && (s.kH == 3 || s.kH == 5 || s.kH == 7);
    return is_known && s.stride <= 2 && s.dilation == 1;
}

// f(K, STRIDE), which are constants
template <typename F> static void with_window(Sizes s, F f) {
    auto with_stride = [&](auto K) {
        if (s.stride == 1) f(K, std::integral_constant<int, 1>());
        else f(K, std::integral_constant<int, 2>());
    };
    if (s.kH == 3) with_stride(std::integral_constant<int, 3>());
    else if (s.kH == 5) with_stride(std::integral_constant<int, 5>());
    else with_stride(std::integral_constant<int, 7>());
}

static void launch_forward(float* out, const float* inp, const float* weight,
                           const float* bias, bool flip, Sizes s) {
    with_window(s, [&](auto K, auto STRIDE) {
        using Win = Window<K, STRIDE>;
        Tiling t = tiling_of<K, STRIDE>(s, s.N * s.C, Win::WEIGHTS, inp);
        auto kernel = depthwise_conv2d_forward_kernel<K, STRIDE>;
        int grid = std::min(t.count, resident_blocks(kernel, t));
        kernel<<<grid, t.threads, t.bytes, getCurrentCUDAStream()>>>(
            out, inp, weight, bias, flip, s, t);
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
                             s.kH - 1 - s.padding, 1});
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
    Tensor partial;
    with_window(s, [&](auto K, auto STRIDE) {
        Tiling t = tiling_of<K, STRIDE>(s, s.N, 0, from);
        bool packed = s.W_out % COLS == 0 &&
                      reinterpret_cast<uintptr_t>(dout_at) % 16 == 0;
        auto kernel = depthwise_conv2d_backward_weight_kernel<K, STRIDE>;
        int parts = std::min(t.count, std::max(resident_blocks(kernel, t) / s.C, 1));
        partial = torch::empty({parts, size}, inp.options());
        kernel<<<blocks_for(parts * C, 1), t.threads, t.bytes, stream>>>(
            partial.data_ptr<float>(), dout_at, from, packed, s, t);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int blocks = blocks_for(size, BLOCK_SIZE);
    depthwise_conv2d_sum_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(
        dweight.data_ptr<float>(), partial.data_ptr<float>(), partial.size(0), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dweight;
}
