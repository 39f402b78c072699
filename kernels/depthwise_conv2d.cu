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
// of inp at stride 2: with a padding of half the filter); the rest is computed by the
// definition. A direct convolution by sliding windows: threads walk down the image,
// with their sums in registers; rows come through shared memory, from sm_80 on by
// asynchronous copies (cp.async, a multistage pipeline a warp).
// Scratch memory: for the gradient of weight 4 kH kW bytes for each of some thousand
// blocks, or for each channel, if there are more of those; else none.
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
constexpr int BLOCK_SIZE = 128, BLOCKS = 4;  // threads; blocks of an SM: 128 registers
constexpr int COLS = 4;               // of out for a thread
constexpr int WIDE = 8;               // of inp for a thread, for two of the gradients
// of dout for a thread: more would be too many copies of single numbers
template <int STRIDE, bool PACKED>
constexpr int DOUT_COLS = PACKED ? WIDE / STRIDE : COLS;
constexpr int ROWS = 112;             // of results for a thread, about; less where
constexpr int MIN_THREADS = 1 << 16;  // that is too few threads for a large GPU
constexpr int PARTS = 1 << 13;        // blocks for the gradient of weight, at most,
                                      // but one for each channel
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int WIDE_BLOCKS = 2;  // of an SM: copies pass through registers
#else
constexpr int WIDE_BLOCKS = 3;  // 168 registers
#endif

// Pairs of rows in shared memory, one that is read and those on their way: what 48 KB
// hold for a block, of a row `packs` of four numbers for a thread.
static constexpr __host__ __device__ int stages(int packs) {
    return packs == 1 ? 4 : 3;
}

struct Sizes {
    int N, C, H, W, H_out, W_out, kH, kW, stride, padding, dilation;
    // for a plane `groups` threads side by side, `segments` of them above one another,
    // each for so many rows
    int groups, segments, rows;
    int packs, bytes;  // of shared memory: packs of four for a warp's row; for a block
};

// What the i-th of all threads makes: of results of H rows, in so many planes, `width`
// columns, `count` rows from (row, col) on; none behind the last plane.
struct Walk {
    int64_t plane;
    int row, col, count;
    int starts;        // threads of its warp, up to it, that begin a row of results
    bool first, last;  // of its warp in that row

    __device__ Walk(int64_t i, int64_t planes, int width, int H, Sizes s) {
        int lane_id = threadIdx.x % WARP_SIZE, group = i % s.groups;
        col = group * width, row = i / s.groups % s.segments * s.rows;
        plane = i / s.groups / s.segments;
        count = plane < planes ? min(s.rows, H - row) : 0;
        plane = min(plane, planes - 1);
        starts = i / s.groups - (i - lane_id) / s.groups;
        first = lane_id == 0 || group == 0;
        last = lane_id == WARP_SIZE - 1 || group == s.groups - 1;
    }
};

// *to = *from where `has`, else 0; it is there after wait_for_copies
template <typename T>
static __device__ void copy_async(T* to, const float* from, bool has) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    if constexpr (sizeof(T) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(at), "l"(from), "r"(has ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(at), "l"(from), "r"(has ? 4 : 0) : "memory");
#else
    *to = has ? *reinterpret_cast<const T*>(from) : T{};
#endif
}

static __device__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LEFT> static __device__ void wait_for_copies() {  // but for LEFT groups
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
#endif
}

// Rows of an image, on their way to a warp through shared memory, two at a time. Of a
// row a thread copies PACKS packs of four numbers. It reads these, the pack on their
// left, and with RIGHT that on their right; they are copies of its neighbours, but for
// the first and the last thread. PACKED: the image's packs are where the threads' are.
template <int PACKS, bool RIGHT, bool PACKED> struct Window {
    static constexpr int SIZE = 4 * (1 + PACKS + RIGHT), STAGES = stages(PACKS);
    const float* from;   // the next row to copy, from the pack on the left: (y, x)
    int y, x, y_end, W;  // no row is needed from y_end on
    bool first, last;
    int packs;  // of a row in shared memory
    float4 *begin, *now, *end;  // the thread's packs: of the first pair, of that read

    __device__ Window(float4* memory, const float* plane, int y, int x, int rows, int H,
                      int W, Walk walk, int packs)
        : from(plane + int64_t(y) * W + x), y(y), x(x), W(W), first(walk.first),
          last(walk.last), packs(packs) {
        int warp_id = threadIdx.x / WARP_SIZE, lane_id = threadIdx.x % WARP_SIZE;
        y_end = max(0, min(H, y + rows));
        now = begin = memory + warp_id * STAGES * 2 * packs + 1 + lane_id * PACKS +
                      2 * walk.starts;  // two packs between the ends of rows
        end = begin + STAGES * 2 * packs;
        for (int i = 0; i < STAGES - 1; i++) copy(begin + i * 2 * packs);
    }
    __device__ void copy_pack(float4* to, int pack, bool inside) {
        auto has = [&](int col) { return inside && unsigned(x + col) < unsigned(W); };
        int col = 4 * pack;
        if constexpr (PACKED) copy_async(to, from + col, has(col));
        else
            for (int k = 0; k < 4; k++)
                copy_async(&to->x + k, from + col + k, has(col + k));
    }
    __device__ void copy(float4* to) {  // the next two rows
#pragma unroll
        for (int j = 0; j < 2; j++, y++, to += packs, from += W) {
            bool inside = unsigned(y) < unsigned(y_end);
#pragma unroll
            for (int p = 0; p < PACKS; p++) copy_pack(to + p, 1 + p, inside);
            if (first) copy_pack(to - 1, 0, inside);
            if (RIGHT && last) copy_pack(to + PACKS, 1 + PACKS, inside);
        }
        end_group();
    }
    __device__ void next(float (&v)[SIZE], int j) {  // v = the next row, j-th of a pair
        if (j == 0) {
            wait_for_copies<STAGES - 2>();
            __syncwarp();  // the pair is there; that before it was read by all
        }
#pragma unroll
        for (int p = 0; p < SIZE / 4; p++) {
            float4 pack = now[j * packs + p - 1];
            float* to = v + 4 * p;
            to[0] = pack.x, to[1] = pack.y, to[2] = pack.z, to[3] = pack.w;
        }
        if (j == 0) return copy((now == begin ? end : now) - 2 * packs);
        now += 2 * packs;
        if (now == end) now = begin;
    }
};

// The window on inp of COLS neighbours in out, for a filter K wide. It begins SHIFT
// columns before the first that the filter meets: with a padding of K / 2 that is a
// multiple of 4.
template <int K, int STRIDE, int COLS, bool PACKED> struct Fit {
    static constexpr int SHIFT = (4 - K / 2 % 4) % 4, PACKS = COLS / 4 * STRIDE;
    static constexpr bool RIGHT = SHIFT + (COLS - 1) * STRIDE + K > 4 + 4 * PACKS;
    static constexpr int LIVE = (K + STRIDE - 1) / STRIDE;  // rows of out for a row
    using Rows = Window<PACKS, RIGHT, PACKED>;
    static __device__ Rows rows(float4* memory, const float* plane, Walk walk,
                                Sizes s) {
        return Rows(memory, plane, walk.row * STRIDE - s.padding,
                    walk.col * STRIDE - s.padding - SHIFT,
                    (walk.count - 1) * STRIDE + K, s.H, s.W, walk, s.packs);
    }
};

// Neighbours in a row of dout or out, of which `cols` are inside
template <bool PACKED, int COLS>
static __device__ void load_cols(float (&v)[COLS], const float* from, int cols) {
#pragma unroll
    for (int c = 0; c < COLS; c += PACKED ? 4 : 1) {
        if constexpr (PACKED) {
            float4 pack = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (c < cols) pack = *reinterpret_cast<const float4*>(from + c);
            v[c] = pack.x, v[c + 1] = pack.y, v[c + 2] = pack.z, v[c + 3] = pack.w;
        } else v[c] = c < cols ? from[c] : 0.0f;
    }
}

template <bool PACKED, int COLS>
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
    using F = Fit<K, STRIDE, COLS, PACKED>;
    constexpr int LIVE = F::LIVE;
    extern __shared__ float4 memory[];
    int64_t i = int64_t(blockIdx.x) * BLOCK_SIZE + threadIdx.x;
    Walk walk(i, int64_t(s.N) * s.C, COLS, s.H_out, s);
    auto rows = F::rows(memory, inp + walk.plane * s.H * s.W, walk, s);

    int c_in = walk.plane % s.C, turns = min(s.rows, s.H_out);  // as many for all
    float w[K * K], acc[LIVE][COLS], x[F::Rows::SIZE];
    const float* tap = weight + int64_t(c_in) * K * K + (flip ? K * K - 1 : 0);
#pragma unroll
    for (int k = 0; k < K * K; k++, tap += flip ? -1 : 1) w[k] = *tap;
    float first = bias ? bias[c_in] : 0.0f;
    for (int k = 0; k < LIVE * COLS; k++) acc[k / COLS][k % COLS] = first;
    out += (walk.plane * s.H_out + walk.row) * s.W_out + walk.col;
#pragma unroll 1
    for (int done = 1 - LIVE; done < turns; done += 2 / STRIDE) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            rows.next(x, j);
            int part = j % STRIDE, turn = done + j / STRIDE;
#pragma unroll
            for (int r = LIVE - 1; r >= 0; r--)
                for (int c = 0; c < COLS; c++) {
                    float sum = part > 0 ? acc[r][c] : r > 0 ? acc[r - 1][c] : first;
                    int kh = r * STRIDE + part;
                    for (int kw = 0; kw < K && kh < K; kw++)
                        sum += w[kh * K + kw] * x[F::SHIFT + c * STRIDE + kw];
                    acc[r][c] = sum;
                }
            if (part < STRIDE - 1 || turn < 0) continue;
            if (turn < walk.count)
                store_cols<PACKED>(out, acc[LIVE - 1], s.W_out - walk.col);
            out += s.W_out;
        }
    }
}

// The gradient of inp at stride 2, with a padding of P. A turn is a row of dout: into K
// rows of dinp it goes, by every second tap into every second number. acc[k] is of row
// 2 y - P + k: the two uppermost are complete, and the others move up by two.
// dinp (N, C, H, W), dout (N, C, H_out, W_out), weight (C, K, K)
template <int K, bool PACKED>
__global__ void __launch_bounds__(BLOCK_SIZE, WIDE_BLOCKS)
depthwise_conv2d_backward_input_kernel(float* __restrict__ dinp,
                                       const float* __restrict__ dout,
                                       const float* __restrict__ weight, Sizes s) {
    constexpr int P = K / 2, BEFORE = P / 2;  // rows of dout before walk.row / 2
    extern __shared__ float4 memory[];
    int64_t i = int64_t(blockIdx.x) * BLOCK_SIZE + threadIdx.x;
    Walk walk(i, int64_t(s.N) * s.C, WIDE, s.H, s);
    Window<WIDE / 8, true, PACKED> rows(
        memory, dout + walk.plane * s.H_out * s.W_out, walk.row / 2 - BEFORE,
        walk.col / 2 - 4, BEFORE + (walk.count + P + 1) / 2, s.H_out, s.W_out, walk,
        s.packs);

    int c_in = walk.plane % s.C, turns = min(s.rows, s.H), done = -2 * BEFORE - P;
    float w[K * K], acc[K][WIDE], d[rows.SIZE];
#pragma unroll
    for (int k = 0; k < K * K; k++) w[k] = weight[int64_t(c_in) * K * K + k];
    for (int k = 0; k < K * WIDE; k++) acc[k / WIDE][k % WIDE] = 0.0f;
    dinp += (walk.plane * s.H + walk.row + done) * s.W + walk.col;
#pragma unroll 1
    while (done < turns) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            rows.next(d, j);
#pragma unroll
            for (int k = 0; k < K; k++)
                for (int c = 0; c < WIDE; c++) {
                    float sum = k + 2 < K ? acc[k + 2][c] : 0.0f;
                    for (int kw = (c + P) % 2; kw < K; kw += 2)
                        sum += w[k * K + kw] * d[4 + (c + P - kw) / 2];
                    acc[k][c] = sum;
                }
#pragma unroll
            for (int k = 0; k < 2; k++, done++, dinp += s.W)
                if (done >= 0 && done < walk.count)
                    store_cols<PACKED>(dinp, acc[k], s.W - walk.col);
        }
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
__global__ void __launch_bounds__(BLOCK_SIZE, WIDE_BLOCKS)
depthwise_conv2d_backward_weight_kernel(float* __restrict__ partial,
                                        const float* __restrict__ dout,
                                        const float* __restrict__ inp, Sizes s) {
    constexpr int COLS = DOUT_COLS<STRIDE, PACKED>;
    using F = Fit<K, STRIDE, COLS, PACKED>;
    constexpr int LIVE = F::LIVE;
    extern __shared__ float4 memory[];
    int channel = blockIdx.x % s.C, parts = gridDim.x / s.C;
    int64_t walks = int64_t(s.N) * s.segments * s.groups, begin = blockIdx.x / s.C;
    float acc[K * K] = {}, x[2][F::Rows::SIZE], d[LIVE][COLS], d_next[COLS];
    for (begin *= BLOCK_SIZE; begin < walks; begin += int64_t(parts) * BLOCK_SIZE) {
        Walk walk(begin + threadIdx.x, s.N, COLS, s.H_out, s);
        int64_t plane = walk.plane * s.C + channel;
        auto rows = F::rows(memory, inp + plane * s.H * s.W, walk, s);
        const float* from = dout + (plane * s.H_out + walk.row) * s.W_out + walk.col;
        int left = walk.count, cols = s.W_out - walk.col;  // rows and columns of dout
        for (int k = 0; k < LIVE * COLS; k++) d[k / COLS][k % COLS] = 0.0f;
        load_cols<PACKED>(d_next, from, left > 0 ? cols : 0);
        rows.next(x[0], 0);
        int turns = min(s.rows, s.H_out) + LIVE - 1;  // as many for all
#pragma unroll 1
        for (; turns > 0; turns -= 2 / STRIDE) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (j % STRIDE == 0) {
                    for (int k = LIVE * COLS - 1; k >= 0; k--)
                        d[k / COLS][k % COLS] =
                            k < COLS ? d_next[k] : d[k / COLS - 1][k % COLS];
                    left--, from += s.W_out;
                    load_cols<PACKED>(d_next, from, left > 0 ? cols : 0);
                }
                rows.next(x[1 - j], 1 - j);  // while the last one is multiplied
#pragma unroll
                for (int kh = j % STRIDE; kh < K; kh += STRIDE)
                    for (int c = 0; c < COLS; c++)
                        for (int kw = 0; kw < K; kw++)
                            acc[kh * K + kw] += d[kh / STRIDE][c] *
                                                x[j][F::SHIFT + c * STRIDE + kw];
            }
        }
        wait_for_copies<0>();
        __syncwarp();  // all was read by all, and no more is on its way
    }
    __syncthreads();  // by all warps: room for sums
    over_block(partial + int64_t(blockIdx.x) * K * K, acc,
               reinterpret_cast<float*>(memory));
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
                "contiguous float32 on one CUDA device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
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
                 int(kW), int(stride), int(padding), int(dilation), 0, 0, 0, 0, 0};
}

static int blocks_for(int64_t items, int64_t in_block) {
    int64_t blocks = (items + in_block - 1) / in_block;
    TORCH_CHECK(blocks <= INT_MAX, "depthwise_conv2d: expected less than 2^31 blocks, "
                "got ", blocks);
    return blocks;
}

// Shares planes of H x W results out among threads: `width` columns each, of whose rows
// they copy so many packs. Long walks read few rows twice, short ones are many threads.
// Returns the blocks.
static int share_out(Sizes& s, int64_t planes, int H, int W, int width, int packs) {
    s.groups = (W + width - 1) / width;
    int64_t wanted = MIN_THREADS / (int64_t(s.N) * s.C * s.groups) + 1;
    s.segments = std::max(std::min(int(wanted), H / 8 + 1), H / ROWS);
    s.rows = (H + s.segments - 1) / s.segments;
    s.rows += s.rows % 2;
    s.segments = (H + s.rows - 1) / s.rows;
    // two more where a row of results begins, and at both ends
    s.packs = WARP_SIZE * packs + 2 + (WARP_SIZE + s.groups - 2) / s.groups * 2;
    s.bytes = BLOCK_SIZE / WARP_SIZE * stages(packs) * 2 * s.packs * sizeof(float4);
    return blocks_for(planes * s.groups * s.segments, BLOCK_SIZE);
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
    bool packed = in_packs(inp, s.W) && in_packs(out, s.W_out);
    int blocks = share_out(s, int64_t(s.N) * s.C, s.H_out, s.W_out, COLS,
                           COLS / 4 * s.stride);
    with_window(s, packed, [&](auto K, auto STRIDE, auto PACKED) {
        depthwise_conv2d_forward_kernel<K, STRIDE, PACKED>
            <<<blocks, BLOCK_SIZE, s.bytes, getCurrentCUDAStream()>>>(
                out, inp, weight, bias, flip, s);
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

static void launch_backward_input(float* dinp, const float* dout, const float* weight,
                                  Sizes s) {  // at stride 2
    bool packed = in_packs(dinp, s.W) && in_packs(dout, s.W_out);
    int blocks = share_out(s, int64_t(s.N) * s.C, s.H, s.W, WIDE, WIDE / 8);
    with_window(s, packed, [&](auto K, auto, auto PACKED) {
        depthwise_conv2d_backward_input_kernel<K, PACKED>
            <<<blocks, BLOCK_SIZE, s.bytes, getCurrentCUDAStream()>>>(
                dinp, dout, weight, s);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
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
                             s.kH - 1 - s.padding, 1, 0, 0, 0, 0, 0});
        return dinp;
    }
    if (is_fast(s) && padding == s.kH / 2) {
        launch_backward_input(to, from, filter, s);
        return dinp;
    }
    int blocks = blocks_for(dinp.numel(), BLOCK_SIZE);
    auto stream = getCurrentCUDAStream();
    depthwise_conv2d_backward_input_any_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(
        to, from, filter, s);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dinp;
}

// Blocks that a channel's work, for `most` of them, is shared out among: as many as the
// GPU holds at once, if each then has as much to do and few are missing, else plenty.
template <typename Kernel> static int parts_for(int most, Sizes s, Kernel kernel) {
    int device = 0, processors = 0, resident = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
                                          device));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                                 BLOCK_SIZE, s.bytes));
    int at_once = processors * resident, parts = std::max(at_once / s.C, 1);
    int turns = (most + parts - 1) / parts;
    if (parts * s.C > 0.9 * at_once && turns * parts < 1.1 * most) return parts;
    return std::min(most, std::max(PARTS / s.C, 1));
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
    bool packed = in_packs(from, s.W) && in_packs(dout_at, s.W_out);
    Tensor partial;
    with_window(s, packed, [&](auto K, auto STRIDE, auto PACKED) {
        constexpr int WIDTH = DOUT_COLS<STRIDE, PACKED>;
        auto kernel = depthwise_conv2d_backward_weight_kernel<K, STRIDE, PACKED>;
        int most = share_out(s, N, s.H_out, s.W_out, WIDTH, WIDTH / 4 * STRIDE);
        int parts = parts_for(most, s, kernel);
        partial = torch::empty({parts, size}, inp.options());
        kernel<<<blocks_for(parts * C, 1), BLOCK_SIZE, s.bytes, stream>>>(
            partial.data_ptr<float>(), dout_at, from, s);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int blocks = blocks_for(size, BLOCK_SIZE);
    depthwise_conv2d_sum_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(
        dweight.data_ptr<float>(), partial.data_ptr<float>(), partial.size(0), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dweight;
}
