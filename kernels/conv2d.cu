// kernels/conv2d.cu
// SPDX-License-Identifier: MIT
// 2-D convolution as in networks (cross-correlation) and its gradients; that of bias is
// the sum of dout over images and pixels. inp (N, C, H, W), weight (C_out, C / groups,
// kH, kW), bias (C_out), or (0) for none; float32, contiguous or channels last: out has
// inp's layout, dinp dout's, and dweight is contiguous. stride, padding, dilation: two
// numbers each, for rows and columns; H_out = (H + 2 padding - dilation (kH - 1) - 1) /
// stride + 1, W_out likewise. Less than 2^31 pixels in all images of inp or of out.
// tf32: one product of TF32 numbers, which have 11 bits (more of inp is, on sm_90, cut
// off); else three, about as exact as float32. GPUs before sm_80 have no TF32 and
// multiply float32. An infinity in inp may become NaN in dweight.
// 2 N C_out H_out W_out C kH kW / groups FLOPs, and as many for each gradient: with 64
// channels to 64 and 3 x 3 taps 144 for each byte of inp and out, so that tensor cores
// set the pace, not memory. At a stride above 1 the gradient of inp multiplies zeros,
// too, between the pixels of dout: stride_h stride_w times as many FLOPs.
// Scratch memory: weight, filled up to 32 channels and 64 filters, twice if not tf32;
// on sm_90 inp (for its gradient dout), filled up to 4 channels a group, where channels
// do not lie together; for the gradient of weight as much as weight for each block that
// shares in a sum.
// Notebook: 11d_general_convolution. Own code; an implicit GEMM, after cuDNN (Chetlur
// et al., 2014): its pixel dimension is a Line, a tile shape a Way; split-K, for the
// gradient of weight, a Cut. Three products after Ootomo and Yokota (2022); wgmma
// (producer and consumer warps) after NVIDIA, PTX ISA. It comes in a build for sm_90a
// only: by the flag below, or "9.0a" in TORCH_CUDA_ARCH_LIST.
//
// from pathlib import Path
// import torch
// from torch.utils.cpp_extension import load_inline
// major, minor = torch.cuda.get_device_capability()
// arch = f"{major}{minor}" + "a" * (major >= 9)
// PAIRS = """std::vector<int64_t> stride, std::vector<int64_t> padding,
//     std::vector<int64_t> dilation, int64_t groups, bool tf32"""
// conv2d = load_inline("conv2d", cuda_sources=Path("conv2d.cu").read_text(),
//     cpp_sources=f"""using torch::Tensor;
//         Tensor conv2d_forward(Tensor inp, Tensor weight, Tensor bias, {PAIRS});
//         Tensor conv2d_backward_input(Tensor dout, Tensor weight, int64_t H,
//             int64_t W, {PAIRS});
//         Tensor conv2d_backward_weight(Tensor dout, Tensor inp, int64_t kH,
//             int64_t kW, {PAIRS});""",
//     functions=["conv2d_forward", "conv2d_backward_input", "conv2d_backward_weight"],
//     extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

#include <algorithm>
#include <vector>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int WARPS = 4, THREADS = WARPS * 32;
constexpr int SLAB = 16;   // channels of inp that a step multiplies, for one tap
constexpr int STAGES = 4;  // steps of weight in shared memory
constexpr int AHEAD = STAGES - 1;  // steps from a copy to its use

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool HAS_TF32 = false;
#else
constexpr bool HAS_TF32 = true;
#endif

// A convolution as the kernels see it. The gradient of inp (a transposed convolution)
// is one, too: of dout, with weight turned around.
struct Shape {
    int N, C, H, W;           // inp; C: of one group
    int C_out, H_out, W_out;  // out; C_out: of one group
    int kH, kW, groups;
    int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    __host__ __device__ int window_h() const { return (kH - 1) * dilation_h + 1; }
    __host__ __device__ int window_w() const { return (kW - 1) * dilation_w + 1; }
    // rows of inp and padding that all rows of out need
    __host__ __device__ int height() const {
        return (H_out - 1) * stride_h + window_h();
    }
};

// Division of numbers from 0 to 2^31 - 1, by a product: a tenth of what `/` costs.
struct Divisor {
    unsigned factor = 0;
    int shift = 31;
    __device__ int divide(int n) const { return int(uint64_t(n) * factor >> shift); }
};

// How the pixels of out are cut: into strips of `width` columns, all images below each
// other, and each strip into `tiles` tiles of consecutive pixels. A tile needs a window
// of inp: the whole rows of inp, `cols` pixels of each, that its pixels' taps meet.
// In a window tap (kh, kw) of a pixel lies kh dilation_h cols + kw dilation_w places
// behind its first tap, whichever pixel it is. So a window is copied once for all taps
// of a slab of channels, and a tap is an offset that all lanes add. Windows take turns
// in a ring: while one is read, those that are needed up to AHEAD steps later are on
// their way.
struct Tiling {
    int width, strips, tiles;
    int cols;   // of a window; 0: windows without a border, a new one for each tap
    int pitch;  // pixels of a window
    int ring;   // windows in shared memory
    Divisor by_width, by_cols, by_H_out, by_height;  // height: Shape's
};

// A tensor of images, in one of the two layouts.
struct View {
    const float* data;
    int C, H, W;
    int spread_h, spread_w;  // its pixels are so far apart, with zeros between
    bool channels_last;
    bool quads;  // four channels are 16 aligned bytes
};

__host__ __device__ static int cdiv(int64_t a, int64_t b) {
    return int((a + b - 1) / b);
}

// COUNT floats from global to shared memory, asynchronously; zeros if not inside
template <int COUNT>
__device__ void copy_async(float* to, const float* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    if constexpr (COUNT == 4)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                     :: "r"(at), "l"(from), "r"(inside ? 16 : 0));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(at), "l"(from), "r"(inside ? 4 : 0));
#else
    for (int i = 0; i < COUNT; i++) to[i] = inside ? from[i] : 0.0f;
#endif
}

static __device__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// until at most so many of the last groups are under way
template <int LEFT>
__device__ void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
#endif
}

// Of `count` pixels, 4 * quads channels from c on to shared memory; `left` of them are
// there, the others are zeros. pixels: where they begin; -1: a pixel of zeros. LANES:
// threads on a pixel
template <int LANES>
__device__ void copy_pixels(float* to, int pixel_pitch, int quad_pitch,
                            const int64_t* pixels, int count, const View& v, int c,
                            int quads, int left) {
    if (v.quads) {
        int first = threadIdx.x % LANES;
        const float* from = v.data + c + first * 4;
        to += first * quad_pitch;
#pragma unroll 2
        for (int p = threadIdx.x / LANES; p < count; p += THREADS / LANES) {
            int64_t pixel = pixels[p];
            for (int q = 0; q < quads - first; q += LANES) {
                bool inside = pixel >= 0 && (first + q) * 4 < left;
                copy_async<4>(to + p * pixel_pitch + q * quad_pitch,
                              inside ? from + pixel + q * 4 : v.data, inside);
            }
        }
        return;
    }
    int64_t step = v.channels_last ? 1 : int64_t(v.H) * v.W;
    int first = threadIdx.x / 8;
    const float* from = v.data + (c + first) * step;
    to += first / 4 * quad_pitch + first % 4;
#pragma unroll 2
    for (int p = threadIdx.x % 8; p < count; p += 8) {  // 8 neighbours are 32 bytes
        int64_t pixel = pixels[p];
        for (int i = 0; i < quads * 4 - first; i += THREADS / 8) {
            bool inside = pixel >= 0 && first + i < left;
            copy_async<1>(to + p * pixel_pitch + i / 4 * quad_pitch,
                          inside ? from + pixel + i * step : v.data, inside);
        }
    }
}

// where the channels of the pixel at (y, x) of image n begin; -1 if there is no such
static __device__ int64_t locate(const View& v, int N, int n, int y, int x) {
    bool inside = n < N;
    if (v.spread_h > 1) inside &= y % v.spread_h == 0, y /= v.spread_h;
    if (v.spread_w > 1) inside &= x % v.spread_w == 0, x /= v.spread_w;
    inside &= unsigned(y) < unsigned(v.H) && unsigned(x) < unsigned(v.W);
    if (!inside) return -1;
    int64_t image = int64_t(n) * v.C * v.H * v.W;
    return image + (y * v.W + x) * int64_t(v.channels_last ? v.C : 1);
}

// The row of the windows of all images, below each other, where row R of out begins
static __device__ int window_row(const Shape& s, const Tiling& t, int R) {
    int n = t.by_H_out.divide(R);
    return n * s.height() + (R - n * s.H_out) * s.stride_h;
}

// Pixel p of the window for the tile that begins at pixel `first` of the strip at x0;
// of a window without a border: for this tap
static __device__ int64_t find_pixel(const View& inp, const Shape& s, const Tiling& t,
                                     int first, int x0, int p, int kh, int kw) {
    int n, y, x;
    if (t.cols) {
        int down = t.by_cols.divide(p);
        int row = window_row(s, t, t.by_width.divide(first)) + down;
        n = t.by_height.divide(row), y = row - n * s.height();
        x = x0 * s.stride_w + p - down * t.cols;
    } else {
        int R = t.by_width.divide(first + p);
        n = t.by_H_out.divide(R);
        y = (R - n * s.H_out) * s.stride_h + kh * s.dilation_h;
        x = (x0 + first + p - R * t.width) * s.stride_w + kw * s.dilation_w;
    }
    return locate(inp, s.N, n, y - s.padding_h, x - s.padding_w);
}

// where pixel p of the tile has its first tap in the window
static __device__ int find_place(const Shape& s, const Tiling& t, int first, int p) {
    int R = t.by_width.divide(first + p);
    if (!t.cols) return p;
    if (R >= s.N * s.H_out) return 0;
    int down = window_row(s, t, R) - window_row(s, t, t.by_width.divide(first));
    return down * t.cols + (first + p - R * t.width) * s.stride_w;
}

// Tensor cores cut off the last 13 bits. This adds 3 / 8 to 3 / 4 of the last one that
// stays, about as good as rounding, in one instruction.
static __device__ float round_to_tf32(float x) { return x * (1 + 1.5f / (1 << 12)); }

// x = high + low, the nearest number of TF32 (11 bits) and the rest, exactly: at most
// 2^-11 of x, 12 bits, the last of which mma cuts off. Of what would round to infinity,
// high is 1 to 2, lest infinity meets a low part that is 0
static __device__ void split(float x, float& high, float& low) {
    unsigned bits = __float_as_uint(x);
    bits = fabsf(x) < 3.4019e38f ? (bits + 0x1000) & 0xffffe000 : bits & 0xbfffe000;
    high = __uint_as_float(bits);
    low = x - high;
}

// c: 16 × 8 += a: 16 × 8 times b: 8 × 8. Lane l has of a the rows l / 4 and l / 4 + 8
// in columns l % 4, then in l % 4 + 4, of b these rows of column l / 4, of c these rows
// of a in columns l % 4 * 2 and the next.
static __device__ void mma(float (&c)[4], const float (&a)[4], float b0, float b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
          "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
#else
    int lane = threadIdx.x % 32;
    for (int k = 0; k < 8; k++) {
        float b[2];
        for (int e = 0; e < 2; e++)
            b[e] = __shfl_sync(0xffffffff, k < 4 ? b0 : b1,
                               (lane % 4 * 2 + e) * 4 + k % 4);
        for (int h = 0; h < 2; h++) {
            float x = __shfl_sync(0xffffffff, a[k / 4 * 2 + h], lane / 4 * 4 + k % 4);
            for (int e = 0; e < 2; e++) c[h * 2 + e] += x * b[e];
        }
    }
#endif
}

// (a + a_low) (b + b_low) as three products; the fourth, of two low parts, is at most
// 2^-22 of it. Small ones first. Tensor cores cut sums off instead of rounding, which
// adds up over a long sum: so `part` begins at 0 each time, and acc is added to as
// always
static __device__ void mma_exactly(float (&c)[4], const float (&a)[4],
                                   const float (&a_low)[4], const float (&b)[2],
                                   const float (&b_low)[2]) {
    float part[4] = {};
    mma(part, a_low, b[0], b[1]);
    mma(part, a, b_low[0], b_low[1]);
    mma(part, a, b[0], b[1]);
    for (int e = 0; e < 4; e++) c[e] += part[e];
}

// A warp's part of a tile of out: PIXELS, COLS channels.
template <int PIXELS, int COLS> using Sums = float[COLS / 16][PIXELS / 8][4];

// acc += COLS filters, of each 16 channels, times these of PIXELS, by two mma of 8.
// Which channel is which k is free, if a and b agree: k and k + 4 of mma number i are
// channels 4 k + 2 i and the next, so that lane l needs channels l % 4 * 4 to + 3,
// which lie together: one load. weight has the lanes' fragments in this order, see
// conv2d_reorder_kernel. place: of the lane's pixels
template <int PIXELS, int COLS>
__device__ void multiply(Sums<PIXELS, COLS>& acc, const float4* weight,
                         const float4* window, const int (&place)[PIXELS / 8]) {
    float b[PIXELS / 8][4];
#pragma unroll
    for (int n = 0; n < PIXELS / 8; n++) {
        float4 four = window[place[n]];
        float values[4] = {four.x, four.y, four.z, four.w};
        for (int i = 0; i < 4; i++)
            b[n][i] = HAS_TF32 ? round_to_tf32(values[i]) : values[i];
    }
#pragma unroll
    for (int i = 0; i < COLS / 8; i++) {
        float4 four = weight[i * 32];
        float a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int n = 0; n < PIXELS / 8; n++)
            mma(acc[i / 2][n], a, b[n][i % 2 * 2], b[n][i % 2 * 2 + 1]);
    }
}

// the same about as exactly as in float32; the low parts of weight are behind the high
template <int PIXELS, int COLS>
__device__ void multiply_exactly(Sums<PIXELS, COLS>& acc, const float4* weight,
                                 const float4* window, const int (&place)[PIXELS / 8]) {
#pragma unroll 1  // both at once would need too many registers
    for (int k = 0; k < 2; k++) {
        float b[PIXELS / 8][2], b_low[PIXELS / 8][2];
#pragma unroll
        for (int n = 0; n < PIXELS / 8; n++) {
            float2 two = reinterpret_cast<const float2*>(window + place[n])[k];
            split(two.x, b[n][0], b_low[n][0]), split(two.y, b[n][1], b_low[n][1]);
        }
#pragma unroll
        for (int m = 0; m < COLS / 16; m++) {
            float4 four = weight[(m * 2 + k) * 32];
            float4 rest = weight[(m * 2 + k) * 32 + COLS * SLAB / 4];
            float a[4] = {four.x, four.y, four.z, four.w};
            float a_low[4] = {rest.x, rest.y, rest.z, rest.w};
#pragma unroll
            for (int n = 0; n < PIXELS / 8; n++)
                mma_exactly(acc[m][n], a, a_low, b[n], b_low[n]);
        }
    }
}

// Where a block is in its sum: slab by slab, in each tap by tap.
struct Step {
    int c, kh, kw, window;
    __device__ bool opens_window(const Tiling& t) const {
        return !t.cols || kh + kw == 0;
    }
    __device__ void next(const Shape& s, const Tiling& t) {
        if (++kw == s.kW) kw = 0, kh++;
        if (kh == s.kH) kh = 0, c += SLAB;
        if (opens_window(t)) window = window + 1 < t.ring ? window + 1 : 0;
    }
};

// The order of pixels and of filters is free: it is chosen so that a lane holds four
// neighbours of out, pixels and channels. Pixel of column `col` of fragment n
static __device__ int pixel_of(int n, int col) {
    return n / 2 * 16 + col / 2 * 4 + n % 2 * 2 + col % 2;
}

// channel of row `row` of fragment m
__host__ __device__ static int filter_of(int m, int row) {
    return m / 2 * 32 + row % 8 * 4 + m % 2 * 2 + row / 8;
}

// four floats, `step` apart, of which `count` are inside
static __device__ void store_four(float* to, int64_t step, float4 four, int count) {
    if (step == 1 && count >= 4 && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
        *reinterpret_cast<float4*>(to) = four;
        return;
    }
    float values[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; i++)
        if (i < count) to[i * step] = values[i];
}

// out, and bias if there is one: a warp's pixels, from pixel f of the strip at x0 on,
// and channels from c on; see mma
template <int PIXELS, int COLS>
__device__ void store(float* out, const Sums<PIXELS, COLS>& acc, const float* bias,
                      const Shape& s, const Tiling& t, bool channels_last, int f,
                      int x0, int group, int c) {
    int64_t plane = int64_t(s.H_out) * s.W_out, channels = int64_t(s.groups) * s.C_out;
    int64_t across = channels_last ? 1 : plane, along = channels_last ? channels : 1;
    int row = threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    out += group * s.C_out * across;
#pragma unroll
    for (int i = 0; i < PIXELS * COLS / 512; i++) {  // 4 pixels of 4 channels
        int n = i % (PIXELS / 16) * 2, m = i / (PIXELS / 16) * 2;
        int c_out = c + filter_of(m, row), left = s.C_out - c_out;
        float four[4][4];  // channels, pixels
        for (int e = 0; e < 16; e++) {
            bool inside = bias && e / 4 < left;
            four[e / 4][e % 4] = acc[m + e / 8][n + e % 4 / 2][e / 4 % 2 * 2 + e % 2] +
                                 (inside ? bias[group * s.C_out + c_out + e / 4] : 0);
        }
        float* to[4];  // of pixels, nullptr: outside
        for (int e = 0; e < 4; e++) {
            int p = f + pixel_of(n, col) + e, R = t.by_width.divide(p);
            int image = t.by_H_out.divide(R), x = x0 + p - R * t.width;
            int64_t pixel = (R - image * s.H_out) * int64_t(s.W_out) + x;
            bool inside = image < s.N && x < s.W_out;
            to[e] = inside ? out + image * channels * plane + pixel * along +
                             c_out * across : nullptr;
        }
        bool together = to[0] && to[3] == to[0] + 3 && !channels_last;
        for (int e = 0; e < 4; e++) {
            if (together && e < left)
                store_four(to[0] + e * across, 1,
                           {four[e][0], four[e][1], four[e][2], four[e][3]}, 4);
            else if (!together && to[e])
                store_four(to[e], across,
                           {four[0][e], four[1][e], four[2][e], four[3][e]}, left);
        }
    }
}

// blocks that a multiprocessor has registers for
template <int PIXELS, int COLS, int PARTS>
constexpr int BLOCKS = PIXELS * COLS <= 1024 ? 4 : PIXELS * COLS <= 2048 ? 3 : 2;

// A block: a tile of WARPS * PIXELS pixels of out and COLS channels of one group.
// weight: as conv2d_reorder_kernel wrote it, in PARTS. A step is one tap of a slab of
// channels; each step's copies are one group of cp.async, a pipeline of STAGES stages:
//   1. wait until all groups but the AHEAD - 1 newest have come: step i is there, for
//      the thread's own copies; the barrier makes it so for all threads' copies.
//   2. All have passed that barrier, so nobody reads step i - 1 any more: copy step i +
//      AHEAD to its stage (STAGES = AHEAD + 1), and to the window's place in the ring
//      that was read until step i - 1 at the latest (the ring has cdiv(AHEAD, taps) +
//      1).
//   3. Multiply step i, while the copies go on.
// Steps behind the last make empty groups, so that the count in 1 stays right.
template <int PIXELS, int COLS, int PARTS>
__global__ void __launch_bounds__(THREADS, HAS_TF32 ? BLOCKS<PIXELS, COLS, PARTS> : 2)
conv2d_kernel(float* out, View inp, const float* weight, const float* bias, Shape s,
              Tiling t) {
    if (PARTS == 2 && !HAS_TF32) return __trap();  // not called there
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr int STEP = PARTS * COLS * SLAB;  // floats of weight
    float* weights = reinterpret_cast<float*>(shared);       // (STAGES, STEP)
    float* windows = weights + STAGES * STEP;                // (ring, 4, pitch, 4)
    int window_size = t.pitch * SLAB;
    auto pixels = reinterpret_cast<int64_t*>(windows + t.ring * window_size);

    int col_tiles = cdiv(s.C_out, COLS), col = blockIdx.x % col_tiles * COLS;
    int group = blockIdx.x / col_tiles % s.groups;
    int tile = blockIdx.x / (s.groups * col_tiles);
    int first = tile % t.tiles * WARPS * PIXELS, x0 = tile / t.tiles * t.width;
    int steps = cdiv(s.C, SLAB) * s.kH * s.kW;
    weight += int64_t(group * col_tiles + col / COLS) * steps * STEP;
    Step next = {};
    auto find = [&] {
#pragma unroll 1
        for (int p = threadIdx.x; p < t.pitch; p += THREADS)
            pixels[p] = find_pixel(inp, s, t, first, x0, p, next.kh, next.kw);
        __syncthreads();  // all pixels of the window are known
    };
    if (t.cols || s.kH * s.kW == 1) find();
    auto copy = [&](int step) {
        if (step < steps) {
            float* to = weights + step % STAGES * STEP;
            const float* from = weight + int64_t(step) * STEP;
            for (int i = threadIdx.x * 4; i < STEP; i += THREADS * 4)
                copy_async<4>(to + i, from + i, true);
            if (!t.cols && s.kH * s.kW > 1) {
                __syncthreads();  // the pixels of the last window have been read
                find();
            }
            if (next.opens_window(t))
                copy_pixels<4>(windows + next.window * window_size, 4, t.pitch * 4,
                               pixels, t.pitch, inp, group * s.C + next.c, 4,
                               s.C - next.c);
        }
        next.next(s, t);
        end_group();
    };
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * PIXELS, place[PIXELS / 8];
#pragma unroll
    for (int n = 0; n < PIXELS / 8; n++)
        place[n] = lane % 4 * t.pitch +
                   find_place(s, t, first, row + pixel_of(n, lane / 4));
    Sums<PIXELS, COLS> acc = {};
    Step now = {};
    for (int i = -AHEAD; i < steps; i++) {
        if (i >= 0) {
            wait_for_groups<AHEAD - 1>();
            __syncthreads();  // a step's copies have come, all have read the one before
        }
        copy(i + AHEAD);
        if (i < 0) continue;
        int tap = now.kh * s.dilation_h * t.cols + (t.cols ? now.kw * s.dilation_w : 0);
        auto a = reinterpret_cast<const float4*>(weights + i % STAGES * STEP);
        auto b = reinterpret_cast<const float4*>(windows + now.window * window_size);
        if constexpr (PARTS == 1) multiply<PIXELS, COLS>(acc, a + lane, b + tap, place);
        else multiply_exactly<PIXELS, COLS>(acc, a + lane, b + tap, place);
        now.next(s, t);
    }
    store<PIXELS, COLS>(out, acc, bias, s, t, inp.channels_last, first + row, x0, group,
                      col);
}

// Where weight has what: its strides (layout), in floats. flipped: taps in reverse
struct Order {
    int64_t group, c_out, c, kh, kw;
    bool flipped;
};

// out, as the kernels read weight: (groups, tiles of COLS filters, slabs of DEPTH
// channels, taps, PARTS, COLS * DEPTH), in the order of fragments (see mma) or, LINES,
// of quads of channels; size: of a part, which has zeros where nothing is
template <int COLS, int PARTS, int DEPTH, bool LINES>
__global__ void conv2d_reorder_kernel(float* out, const float* weight, Order order,
                                      Shape s, bool rounded, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rest = i;
    if (i >= size) return;
    auto next = [&](int count) {
        int at = rest % count;
        rest /= count;
        return at;
    };
    int e = next(4), c, c_out;
    if (LINES) {  // channels 2 i and 2 i + 1 are rows i and i + 8 of a warp's 16
        int row = next(COLS);
        c = next(DEPTH / 4) * 4 + e, c_out = row / 16 * 16 + row % 8 * 2 + row / 8 % 2;
    } else {
        int lane = next(32), k = next(2), m = next(COLS / 16);
        c = lane % 4 * 4 + k * 2 + e / 2, c_out = filter_of(m, e % 2 * 8 + lane / 4);
    }
    int tap = next(s.kH * s.kW);
    c += next(cdiv(s.C, DEPTH)) * DEPTH, c_out += next(cdiv(s.C_out, COLS)) * COLS;
    if (order.flipped) tap = s.kH * s.kW - 1 - tap;
    float x = 0.0f;
    if (c < s.C && c_out < s.C_out)
        x = weight[rest * order.group + c_out * order.c_out + c * order.c +
                   tap / s.kW * order.kh + tap % s.kW * order.kw];
    constexpr int STEP = COLS * DEPTH;
    out += int64_t(i / STEP) * STEP * PARTS + i % STEP;
    if (PARTS == 1) *out = rounded ? round_to_tf32(x) : x;
    else split(x, out[0], out[STEP]);
}

template <int COLS, int PARTS, int DEPTH, bool LINES>
static Tensor put_in_order(const Tensor& weight, Order order, Shape s, bool rounded) {
    int64_t size = int64_t(s.groups) * cdiv(s.C_out, COLS) * COLS * cdiv(s.C, DEPTH) *
                   DEPTH * s.kH * s.kW;
    TORCH_CHECK(size <= INT_MAX - 256, "weight: expected less than 2^31 numbers with ",
                COLS, " filters and ", DEPTH, " channels filled up, got ",
                weight.sizes());
    Tensor out = torch::empty({PARTS * size}, weight.options());
    if (size == 0) return out;
    conv2d_reorder_kernel<COLS, PARTS, DEPTH, LINES>
        <<<cdiv(size, 256), 256, 0, getCurrentCUDAStream()>>>(
            out.data_ptr<float>(), weight.data_ptr<float>(), order, s, rounded, size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

// 75 if the kernels are built for sm_75, also where a later GPU runs them
static int built_for() {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, conv2d_kernel<32, 64, 1>));
    return built.ptxVersion;
}

// bytes of shared memory for each block, if so many are to be on a multiprocessor
static int64_t shared_for(int blocks, const Tensor& x) {
    int64_t all = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, x);
    int64_t most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, x);
    return std::min(most, std::max<int64_t>(all / blocks - 2048, 48 * 1024));
}

static Divisor divisor_by(int by) {
    Divisor d;
    while (1ll << (d.shift - 31) < by) d.shift++;
    d.factor = unsigned(((1ull << d.shift) + by - 1) / by);
    return d;
}

// The cheapest tiling whose ring of windows takes at most so many floats. For each
// width of strips it counts what a tile needs, in pixels: multiplying costs one for
// each pixel and tap, copying two for each pixel of the window. Narrow strips have
// tiles of many rows and windows that are nearly square, with little border; but strips
// that do not divide W_out, and tiles that do not divide the rest, compute pixels that
// are none. Without a border each tap copies a tile of its own: taps * 3 for each
// pixel.
// high: rows of out that a tile has at most. They need height rows of inp: stride_h
// more for each, and window_h - stride_h where the next image begins (seams). `ahead`:
// steps from a copy to its use
static Tiling find_tiling(const Shape& s, int tile, int64_t floats, int ahead) {
    // of 8 neighbours, the four channels of a lane lie in different banks
    auto pitched = [](int64_t pixels) { return pixels + (10 - pixels % 8) % 8; };
    int64_t rows = int64_t(s.N) * s.H_out, taps = s.kH * s.kW;
    Tiling best = {s.W_out, 1, cdiv(rows * s.W_out, tile), 0, int(pitched(tile)),
                   ahead + 1};
    double best_cost = double(best.tiles) * taps * 3 * tile;
    for (int width = 1; taps > 1 && width <= std::min(tile, s.W_out); width++) {
        int64_t strips = cdiv(s.W_out, width), tiles = cdiv(rows * width, tile);
        bool even = tile % width == 0;  // a tile begins with a row
        int64_t high = std::min<int64_t>(even ? tile / width : (tile - 2) / width + 2,
                                         rows);
        bool whole = even && s.H_out % high == 0;  // never across two images
        int64_t seams = whole || high == 1
            ? 0 : std::min<int64_t>(high - 1, (high - 2) / s.H_out + 1);
        int64_t height = (high - 1) * s.stride_h + s.window_h() +
                         seams * std::max(0, s.window_h() - s.stride_h);
        int64_t cols = (width - 1) * s.stride_w + s.window_w();
        cols += (cols - width) % 2 != 0;  // neighbours stay odd and even across rows
        int64_t pitch = pitched(height * cols), ring = cdiv(ahead, taps) + 1;
        double cost = double(strips) * tiles * (taps * tile + 2 * pitch);
        if (cost >= best_cost || ring * pitch * SLAB > floats) continue;
        best = {width, int(strips), int(tiles), int(cols), int(pitch), int(ring)};
        best_cost = cost;
    }
    best.by_width = divisor_by(best.width), best.by_H_out = divisor_by(s.H_out);
    best.by_cols = divisor_by(std::max(best.cols, 1));
    best.by_height = divisor_by(s.height());
    return best;
}

template <int PIXELS, int COLS, int PARTS>
static void launch(Tensor out, View inp, Tensor weight, Order order, const float* bias,
                   Shape s) {
    bool rounded = built_for() >= 80;
    Tensor ordered = put_in_order<COLS, PARTS, SLAB, false>(weight, order, s, rounded);
    int64_t floats = STAGES * PARTS * COLS * SLAB;  // of weight
    int64_t most = shared_for(BLOCKS<PIXELS, COLS, PARTS>, out) / 4 - floats;
    // the rest: pixels
    Tiling t = find_tiling(s, WARPS * PIXELS, most * 15 / 16, AHEAD);
    floats += int64_t(t.ring) * t.pitch * SLAB;
    int64_t bytes = floats * 4 + t.pitch * 8;
    int64_t grid = int64_t(t.strips) * t.tiles * s.groups * cdiv(s.C_out, COLS);
    TORCH_CHECK(grid <= INT_MAX, "conv2d: expected an out of up to 2^31 tiles, got ",
                out.sizes());
    auto kernel = conv2d_kernel<PIXELS, COLS, PARTS>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<grid, THREADS, bytes, getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp, ordered.data_ptr<float>(), bias, s, t);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// ---- sm_90: wgmma and TMA
#ifdef __CUDACC_VER_MAJOR__  // nvcc; other compilers do not know them
#include <cuda.h>

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int CONSUMERS = 2;    // warpgroups that multiply; one more brings, and splits
constexpr int ROWS = 64;        // filters of a tile: rows of wgmma
constexpr int SPLITTERS = 96;   // threads that split windows; a last warp brings weight
constexpr int MOST_WINDOWS = 4, WEIGHT_STAGES = 8;
constexpr int TAPS = 3;  // of three products that tensor cores add up

// A way (tile shape) of multiplying: ROWS filters times COLS places for each warpgroup
template <int COLS, int PARTS> struct Way {
    static constexpr int TILE = CONSUMERS * COLS;
    static constexpr int DEPTH = 32 / PARTS;  // channels of a window
    static constexpr int STEP = PARTS * ROWS * DEPTH;  // floats of weight, for a tap
    static constexpr int BYTES = 1024 + 4 * WEIGHT_STAGES * STEP + 8 * TILE;
};

// The pixels of out as places on a line: row after row, image after image, `pitch`
// places a row and `height` rows an image, of which some are no pixel of out. With
// W_out = 3, H_out = 2, taps 3 × 3 and a padding of 1 (o: a pixel, -: none)
//   out   o o o -  o o o -  - - - -  o o o -  o o o -  - - - -
//   inp   . . . .  . i i i  . i i i  . . . .  . i i i  . i i i  . . . .
// and inp, its padding (.) included, lies in windows at the same pitch: a row's zeros
// on the right are those on the left of the next one, an image's below those above the
// next. So tap (kh, kw) of place p is place p + kh pitch + kw of inp, for all places;
// operands of wgmma, which are rows evenly apart, are any TILE places in a row, and for
// each tap the same window from another row on. What comes out at a - is not stored. A
// tile has TILE places from anywhere on, and needs the whole rows of inp that its taps
// reach.
struct Line {
    int width, strips;  // columns of out; each strip has a line of its own
    int pitch, height;
    bool border;  // a window has all rows that taps reach; else each tap has its own
    int rows;     // of a window
    int ring;     // windows in shared memory
    int tiles;    // of a strip
    int count;    // tiles, of all strips, groups and filters
    Divisor by_pitch, by_height;
    // floats of a window: the swizzle's pattern is 1,024 bytes or half of that
    __host__ __device__ int size(int depth) const {
        return cdiv(rows * pitch * depth, 256) * 256;
    }
};

struct Tile { int first, x0, group, filter; };  // first: place; filter: of the group

static __device__ Tile find_tile(const Shape& s, const Line& l, int i, int places) {
    int across = cdiv(s.C_out, ROWS), filter = i % across * ROWS;
    int group = i / across % s.groups;
    i /= across * s.groups;
    return {i % l.tiles * places, i / l.tiles * l.width, group, filter};
}

static __device__ unsigned shared_at(const void* p) {
    return __cvta_generic_to_shared(p);
}

// An mbarrier: a phase ends when all that were told of have arrived, threads and bytes.
// wait(phase ^ 1) on one that is new passes: the phase before the first has ended.
struct Barrier {
    uint64_t state;
    __device__ void init(int threads) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     :: "r"(shared_at(this)), "r"(threads));
    }
    __device__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                     :: "r"(shared_at(this)) : "memory");
    }
    __device__ void arrive_and_expect(int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(shared_at(this)), "r"(bytes) : "memory");
    }
    __device__ void wait(int phase) {  // until it has ended
        asm volatile("{ .reg .pred done;\nAGAIN:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra AGAIN; }"
                     :: "r"(shared_at(this)), "r"(phase) : "memory");
    }
};

// Where one is in a ring of stages; phase: of their barriers.
struct Turn {
    int stage = 0, phase = 0;
    __device__ void next(int stages) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

static __device__ void warpgroup_sync() {  // barrier 0 is __syncthreads()
    asm volatile("bar.sync %0, 128;" :: "r"(1 + threadIdx.x / WARPGROUP) : "memory");
}

// What a block has in shared memory, and the barriers of both rings. A window is
// brought, and in three products split, before it is full.
struct Stages {
    float *windows, *weights;
    Barrier *brought, *full, *empty, *weight_full, *weight_empty;
};

// What wgmma is told of its operands. Weight: rows of 16 bytes, 8 of which are 128
// bytes; a row's next 16 bytes are ROWS rows on. A window: rows, its pixels, of 64 or
// 128 bytes. Its 16 bytes are swizzled by bits of their address (not of their row in
// the operand), so that the operand may begin at any pixel: a tap is another address.
static __device__ uint64_t describe_weight(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(ROWS * 16 >> 4) << 16 |
           uint64_t(128 >> 4) << 32;
}

template <int DEPTH> __device__ uint64_t describe_window(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(DEPTH * 32 >> 4) << 32 |
           uint64_t(DEPTH == 32 ? 1 : 2) << 62;
}

#define REGISTERS_64 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
    "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, " \
    "%58, %59, %60, %61, %62, %63"
#define REGISTERS_80 REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79"
#define REGISTERS_112 REGISTERS_80 ", %80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
    "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define REGISTERS_128 REGISTERS_112 ", %112, %113, %114, %115, %116, %117, %118, " \
    "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_64 SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48)
#define SUMS_112 SUMS_64, SUMS_16(64), SUMS_16(80), SUMS_16(96)
#define WGMMA(COLS, REGISTERS, A, B, ADD, ...) \
    asm volatile("{ .reg .pred add;\n setp.ne.b32 add, " ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" COLS "k8.f32.tf32.tf32 " \
                 REGISTERS "}, " A ", " B ", add, 1, 1; }" \
                 : __VA_ARGS__ : "l"(a), "l"(b), "r"(int(add)))

// d, a warpgroup's 64 rows and COLS columns = add ? d + a b : a b; 8 channels
template <int COLS>
__device__ void wgmma(float (&d)[COLS / 2], uint64_t a, uint64_t b, bool add) {
    if constexpr (COLS == 256)
        WGMMA("256", REGISTERS_128, "%128", "%129", "%130", SUMS_112, SUMS_16(112));
    else if constexpr (COLS == 224)
        WGMMA("224", REGISTERS_112, "%112", "%113", "%114", SUMS_112);
    else if constexpr (COLS == 160)
        WGMMA("160", REGISTERS_80, "%80", "%81", "%82", SUMS_64, SUMS_16(64));
    else
        WGMMA("128", REGISTERS_64, "%64", "%65", "%66", SUMS_64);
}

// the high parts in the place of a window, the low ones behind it
static __device__ void split_window(float* window, int size) {
#pragma unroll 2
    for (int i = threadIdx.x % WARPGROUP * 4; i < size; i += SPLITTERS * 4) {
        float4* at = reinterpret_cast<float4*>(window + i);
        float4 four = *at;
        float x[4] = {four.x, four.y, four.z, four.w}, low[4];
        for (int e = 0; e < 4; e++) split(x[e], x[e], low[e]);
        *at = {x[0], x[1], x[2], x[3]};
        at[size / 4] = {low[0], low[1], low[2], low[3]};
    }
}

// A row of a window: `pitch` pixels, DEPTH channels from c on; zeros outside of inp
static __device__ void copy_row(float* to, const CUtensorMap& map, Barrier& brought,
                                int c, int group, int x, int y, int n) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier"
                 "::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 :: "r"(shared_at(to)), "l"(&map), "r"(shared_at(&brought)), "r"(c),
                 "r"(group), "r"(x), "r"(y), "r"(n) : "memory");
}

// The filters of each tile, tap by tap, as soon as a stage is empty: one thread
template <int COLS, int PARTS>
__device__ void bring_weight(const Stages& at, const float* weight, const Shape& s,
                             const Line& l) {
    using W = Way<COLS, PARTS>;
    int taps = s.kH * s.kW, slabs = cdiv(s.C, W::DEPTH), across = cdiv(s.C_out, ROWS);
    Turn turn;
    for (int i = blockIdx.x; i < l.count; i += gridDim.x) {
        Tile tile = find_tile(s, l, i, W::TILE);
        int64_t first = (tile.group * across + tile.filter / ROWS) * slabs * taps;
        for (int k = 0; k < slabs * taps; k++, turn.next(WEIGHT_STAGES)) {
            int step = l.border ? k : k % slabs * taps + k / slabs;
            at.weight_empty[turn.stage].wait(turn.phase ^ 1);
            at.weight_full[turn.stage].arrive_and_expect(W::STEP * 4);
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier"
                         "::complete_tx::bytes [%0], [%1], %2, [%3];"
                         :: "r"(shared_at(at.weights + turn.stage * W::STEP)),
                         "l"(weight + (first + step) * W::STEP), "n"(W::STEP * 4),
                         "r"(shared_at(at.weight_full + turn.stage)) : "memory");
        }
    }
}

// Windows, as soon as one is empty: a warp copies their rows, each lane some. In three
// products it and two more warps split what was brought.
template <int COLS, int PARTS>
__device__ void bring_windows(const Stages& at, const CUtensorMap& map, const Shape& s,
                              const Line& l) {
    using W = Way<COLS, PARTS>;
    int slabs = cdiv(s.C, W::DEPTH), size = l.size(W::DEPTH), behind = 0;
    int count = l.border ? slabs : slabs * s.kH * s.kW;
    int lane = threadIdx.x % 32;
    bool copies = threadIdx.x % WARPGROUP < 32;
    Turn turn, done;
    auto finish = [&] {
        at.brought[done.stage].wait(done.phase);
        split_window(at.windows + done.stage * PARTS * size, size);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        at.full[done.stage].arrive();
        done.next(l.ring), behind--;
    };
    for (int i = blockIdx.x; i < l.count; i += gridDim.x) {
        Tile tile = find_tile(s, l, i, W::TILE);
        int first = l.by_pitch.divide(tile.first);
        for (int e = 0; e < count; e++, turn.next(l.ring)) {
            int slab = l.border ? e : e % slabs, tap = l.border ? 0 : e / slabs;
            int kh = tap / s.kW * s.dilation_h, kw = tap % s.kW * s.dilation_w;
            int x = tile.x0 * s.stride_w + kw - s.padding_w;
            if (copies) {
                at.empty[turn.stage].wait(turn.phase ^ 1);
                if (lane == 0)
                    at.brought[turn.stage].arrive_and_expect(l.rows * l.pitch *
                                                          W::DEPTH * 4);
                __syncwarp();  // all bytes are expected before one comes
            }
            float* to = at.windows + turn.stage * PARTS * size;
            for (int r = lane; copies && r < l.rows; r += 32) {
                int n = l.by_height.divide(first + r), y = first + r - n * l.height;
                copy_row(to + r * l.pitch * W::DEPTH, map, at.brought[turn.stage],
                         slab * W::DEPTH, tile.group, x,
                         y * s.stride_h + kh - s.padding_h, n);
            }
            // a window is split when the next ones are on their way
            if (PARTS == 2 && ++behind > l.ring - 2) finish();
        }
    }
    while (PARTS == 2 && behind > 0) finish();
}

// where the pixels of a warpgroup's places are in out; -1: not in out
template <int COLS>
__device__ void find_spots(int64_t* spots, const Shape& s, const Line& l,
                           const Tile& tile, int first, bool channels_last) {
    int64_t channels = int64_t(s.groups) * s.C_out, plane = int64_t(s.H_out) * s.W_out;
    for (int p = threadIdx.x % WARPGROUP; p < COLS; p += WARPGROUP) {
        int row = l.by_pitch.divide(first + p), n = l.by_height.divide(row);
        int y = row - n * l.height, right = first + p - row * l.pitch;
        int x = tile.x0 + right;
        int64_t pixel = int64_t(y) * s.W_out + x;
        bool inside = n < s.N && y < s.H_out && right < l.width && x < s.W_out;
        spots[p] = inside ? n * plane * channels +
                            pixel * (channels_last ? channels : 1) : -1;
    }
}

// Out, and bias if there is one. A lane's element 4 j + 2 h + e is place 8 j +
// lane % 4 * 2 + e of channel lane / 4 * 2 + h of its warp's 16: see line_row_of
template <int COLS>
__device__ void write_sums(float* out, const float (&sums)[COLS / 2],
                           const int64_t* spots, const float* bias, const Shape& s,
                           const Tile& tile, bool channels_last) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    int c = tile.filter + warp * 16 + lane / 4 * 2, left = s.C_out - c;
    int64_t plane = int64_t(s.H_out) * s.W_out, across = channels_last ? 1 : plane;
    c += tile.group * s.C_out;
    float first = bias && left > 0 ? bias[c] : 0, next = bias && left > 1 ? bias[c + 1]
                                                                          : 0;
    bool even = channels_last ? s.C_out % 2 == 0 : plane % 2 == 0;
    out += c * across;
    auto store = [&](int64_t at, float x, float y) {  // two neighbours
        *reinterpret_cast<float2*>(out + at) = {x, y};
    };
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        auto two = *reinterpret_cast<const longlong2*>(spots + 8 * j + lane % 4 * 2);
        int64_t at[2] = {two.x, two.y};
        float a[2] = {sums[4 * j] + first, sums[4 * j + 1] + first};
        float b[2] = {sums[4 * j + 2] + next, sums[4 * j + 3] + next};
        if (!channels_last && even && at[0] >= 0 && at[0] % 2 == 0 &&
            at[1] == at[0] + 1) {
            if (left > 0) store(at[0], a[0], a[1]);
            if (left > 1) store(at[0] + plane, b[0], b[1]);
            continue;
        }
        for (int e = 0; e < 2; e++) {
            if (at[e] < 0 || left <= 0) continue;
            if (channels_last && even) store(at[e], a[e], b[e]);
            else {
                out[at[e]] = a[e];
                if (left > 1) out[at[e] + across] = b[e];
            }
        }
    }
}

// d (+)= filters of one tap times COLS places of a window, in PARTS. Product 0 has the
// window's low parts, 1 weight's, 2 neither; with one part there is 2 only
template <int COLS, int PARTS>
__device__ void multiply_tap(float (&d)[COLS / 2], unsigned weight, unsigned window,
                             int size, bool add) {
    using W = Way<COLS, PARTS>;
#pragma unroll
    for (int product = PARTS == 2 ? 0 : 2; product < 3; product++)  // low ones first
#pragma unroll
        for (int k = 0; k < W::DEPTH / 8; k++) {
            unsigned a = weight + (product == 1 ? ROWS * W::DEPTH * 4 : 0) +
                         k * ROWS * 32;
            unsigned b = window + (product == 0 ? size * 4 : 0) + k * 32;
            bool first = product + k == (PARTS == 2 ? 0 : 2);
            wgmma<COLS>(d, describe_weight(a), describe_window<W::DEPTH>(b),
                        add || !first);
        }
}

// sums = the filters times a warpgroup's places of a tile, from `place` in its windows
// on. Tensor cores cut sums off: in three products, they add up TAPS taps at most, and
// these sums are added in float32.
// wgmma goes on while the thread does: a stage may be given back only when the products
// that read it have ended. held: taps whose weight has not been given back; read: the
// window before, if it has not. With one product a group may be under way, so that
// release comes a tap late, with three all end first.
template <int COLS, int PARTS>
__device__ void multiply_tile(float (&d)[COLS / 2],
                              float (&sums)[PARTS == 2 ? COLS / 2 : 1],
                              const Stages& at, Turn& turn, Turn& weight, int place,
                              const Shape& s, const Line& l) {
    using W = Way<COLS, PARTS>;
    int slabs = cdiv(s.C, W::DEPTH), size = l.size(W::DEPTH), read = -1, held = 0;
    int taps = l.border ? s.kH * s.kW : 1, count = slabs * s.kH * s.kW / taps;
    bool tells = threadIdx.x % WARPGROUP == 0;
    Turn oldest = weight;  // stage that is held
    auto release = [&](int left) {
        for (; held > left; held--, oldest.next(WEIGHT_STAGES))
            if (tells) at.weight_empty[oldest.stage].arrive();
        if (tells && read >= 0) at.empty[read].arrive();
        read = -1;
    };
    for (int e = 0; e < count; e++, turn.next(l.ring)) {
        at.full[turn.stage].wait(turn.phase);
        unsigned window = shared_at(at.windows + turn.stage * PARTS * size);
        for (int tap = 0; tap < taps; tap++, weight.next(WEIGHT_STAGES)) {
            int down = tap / s.kW * s.dilation_h, right = tap % s.kW * s.dilation_w;
            at.weight_full[weight.stage].wait(weight.phase);
            unsigned a = shared_at(at.weights + weight.stage * W::STEP);
            unsigned b = window + (place + down * l.pitch + right) * W::DEPTH * 4;
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            bool add = PARTS == 1 ? e + tap > 0 : tap % TAPS > 0;
            multiply_tap<COLS, PARTS>(d, a, b, size, add);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            held++;
            if constexpr (PARTS == 1) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                release(1);  // what has been multiplied
            } else {
                if ((tap + 1) % TAPS > 0 && tap + 1 < taps) continue;
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                release(0);
#pragma unroll
                for (int i = 0; i < COLS / 2; i++) sums[i] += d[i];
            }
        }
        read = turn.stage;
        if (PARTS == 2) release(0);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    release(0);
}

// A warpgroup: multiplies and stores its places of each tile.
template <int COLS, int PARTS>
__device__ void consume(float* out, const Stages& at, int64_t* spots, const float* bias,
                        bool channels_last, const Shape& s, const Line& l) {
    int group = threadIdx.x / WARPGROUP;
    Turn turn, weight;
    for (int i = blockIdx.x; i < l.count; i += gridDim.x) {
        Tile tile = find_tile(s, l, i, CONSUMERS * COLS);
        int place = tile.first + group * COLS;
        warpgroup_sync();  // the spots of the tile before have been read
        find_spots<COLS>(spots, s, l, tile, place, channels_last);
        place -= l.by_pitch.divide(tile.first) * l.pitch;
        float d[COLS / 2], sums[PARTS == 2 ? COLS / 2 : 1] = {};
        multiply_tile<COLS, PARTS>(d, sums, at, turn, weight, place, s, l);
        warpgroup_sync();  // the spots are known
        if constexpr (PARTS == 1)
            write_sums<COLS>(out, d, spots, bias, s, tile, channels_last);
        else write_sums<COLS>(out, sums, spots, bias, s, tile, channels_last);
    }
}

template <int COLS, int PARTS>
__global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)
conv2d_wgmma_kernel(float* out, const __grid_constant__ CUtensorMap map,
                    const float* weight, const float* bias, bool channels_last,
                    const __grid_constant__ Shape s, const __grid_constant__ Line l) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using W = Way<COLS, PARTS>;
    __shared__ Barrier brought[MOST_WINDOWS], ready[MOST_WINDOWS], empty[MOST_WINDOWS];
    __shared__ Barrier weight_full[WEIGHT_STAGES], weight_empty[WEIGHT_STAGES];
    extern __shared__ unsigned char memory[];
    auto begin = memory + (1024 - shared_at(memory) % 1024) % 1024;
    float* windows = reinterpret_cast<float*>(begin);
    float* weights = windows + l.ring * PARTS * l.size(W::DEPTH);
    auto spots = reinterpret_cast<int64_t*>(weights + WEIGHT_STAGES * W::STEP);
    Stages at = {windows, weights, brought, PARTS == 2 ? ready : brought, empty,
                 weight_full, weight_empty};
    if (threadIdx.x == 0) {
        for (int i = 0; i < MOST_WINDOWS; i++)
            brought[i].init(1), ready[i].init(SPLITTERS), empty[i].init(CONSUMERS);
        for (int i = 0; i < WEIGHT_STAGES; i++)
            weight_full[i].init(1), weight_empty[i].init(CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // all barriers are there before one is used
    int group = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP;
    if (group < CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        consume<COLS, PARTS>(out, at, spots + group * COLS, bias, channels_last, s, l);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        if (thread < (PARTS == 2 ? SPLITTERS : 32))
            bring_windows<COLS, PARTS>(at, map, s, l);
        else if (thread == SPLITTERS) bring_weight<COLS, PARTS>(at, weight, s, l);
    }
#else
    __trap();  // convolve_wgmma sees that it was not built
#endif
}

// out (N, pixels, groups, C padded to width) = inp, of which pixels and channels are so
// far apart. A block: 32 x 8 threads for 32 pixels and channels
static __global__ void conv2d_copy_kernel(float* out, const float* inp, int C,
                                          int width, int groups, int pixels,
                                          int64_t pixel_step, int64_t c_step) {
    __shared__ float tile[32][33];
    int across = cdiv(pixels, 32), down = cdiv(width, 32), rest = blockIdx.x;
    int p0 = rest % across * 32, c0 = rest / across % down * 32;
    int64_t image = rest / across / down;  // and group
    inp += image / groups * groups * C * pixels + image % groups * C * c_step;
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
        int c = c0 + threadIdx.y + i, p = p0 + threadIdx.x;
        float& to = tile[threadIdx.y + i][threadIdx.x];
        to = c < C && p < pixels ? inp[c * c_step + p * pixel_step] : 0.0f;
    }
    __syncthreads();  // the tile is complete
    out += (image / groups * pixels * groups + image % groups) * width;
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
        int c = c0 + threadIdx.x, p = p0 + threadIdx.y + i;
        float from = tile[threadIdx.x][threadIdx.y + i];
        if (c < width && p < pixels) out[int64_t(p) * groups * width + c] = from;
    }
}

// TMA's view of images (N, H, W, groups, C padded to width), in boxes of a window's row
static CUtensorMap map_of(const float* images, int width, const Shape& s, const Line& l,
                          int depth) {
    static auto encode = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult state;
#if CUDART_VERSION >= 12050
        C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &state));
#else
        C10_CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found,
                                               cudaEnableDefault, &state));
#endif
        TORCH_CHECK(found && state == cudaDriverEntryPointSuccess, "conv2d: expected "
                    "NVIDIA's driver for CUDA 12 or later, got one without "
                    "cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    using Size = cuuint64_t;
    CUtensorMap map;
    Size sizes[] = {Size(width), Size(s.groups), Size(s.W), Size(s.H), Size(s.N)};
    Size strides[] = {4 * sizes[0], 0, 0, 0};  // bytes; a pixel, a row, an image
    for (int i = 1; i < 4; i++) strides[i] = strides[i - 1] * sizes[i];
    auto step = cuuint32_t(s.stride_w), box_width = cuuint32_t(l.pitch) * step;
    cuuint32_t box[] = {cuuint32_t(depth), 1, box_width, 1, 1};
    cuuint32_t steps[] = {1, 1, step, 1, 1};
    auto swizzle = depth == 32 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    auto result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 5,
                         const_cast<float*>(images), sizes, strides, box, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

// A line of strips so wide, its rows pitch places and its images height rows apart, and
// how many windows fit into shared memory; false where none of this can be
template <int COLS, int PARTS>
static bool lay_out(Line& l, const Shape& s, int64_t width, int64_t pitch,
                    int64_t height, bool border, int64_t blocks, int64_t bytes) {
    using W = Way<COLS, PARTS>;
    if (W::DEPTH == 16) pitch += pitch % 2;  // rows begin at multiples of 128 bytes
    // A tile begins at a multiple of TILE, a row at one of pitch: up to pitch - common
    // places lie between them, and a window must hold the rows that they reach into.
    int64_t common = W::TILE, rest = pitch;  // Euclid's greatest common divisor
    while (rest > 0) std::swap(common %= rest, rest);
    int64_t span = border ? (s.window_h() - 1) * pitch + s.window_w() - 1 : 0;
    int64_t rows = cdiv(W::TILE + span + pitch - common, pitch);
    int64_t places = s.N * height * pitch, tiles = cdiv(places, W::TILE);
    int64_t strips = cdiv(s.W_out, width);
    int64_t count = tiles * strips * s.groups * cdiv(s.C_out, ROWS);
    if (pitch * s.stride_w > 256 || rows * pitch > 2048) return false;  // TMA's boxes
    if (std::max(places + 4096, count + blocks * 2) > INT_MAX) return false;
    l = {int(width), int(strips), int(pitch), int(height), border, int(rows), 0,
         int(tiles), int(count)};
    int64_t window_bytes = l.size(W::DEPTH) * 4 * PARTS;
    l.ring = std::min<int64_t>((bytes - W::BYTES) / window_bytes, MOST_WINDOWS);
    return l.ring >= 2;
}

// About how many clocks a multiprocessor needs for its tiles. Multiplying and copying
// go on side by side, the slower one counts; a copy takes a clock for 14 bytes and 24
// for a row.
template <int COLS, int PARTS>
static double clocks(const Shape& s, const Line& l, int64_t blocks) {
    using W = Way<COLS, PARTS>;
    int64_t taps = s.kH * s.kW, windows = l.border ? 1 : taps;
    double multiplies = W::TILE * taps * W::DEPTH / 16 * (PARTS == 2 ? 3.5 : 1.1);
    double window = l.size(W::DEPTH) * 4 / 14.0 + l.rows * 24;
    double copies = W::STEP * 4 * taps / 14.0 + windows * window;
    double tile = cdiv(s.C, W::DEPTH) * std::max(multiplies, copies) + 4000;
    return cdiv(l.count, blocks) * tile;
}

// The line that takes the fewest clocks for tiles of a way; < 0: none fits
template <int COLS, int PARTS>
static double find_line(const Shape& s, const Tensor& x, Line& best) {
    int64_t blocks = attribute(cudaDevAttrMultiProcessorCount, x);
    int64_t bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, x) - 1024;
    double fewest = -1;
    auto consider = [&](int64_t width, int64_t pitch, int64_t height, bool border) {
        Line l;
        if (!lay_out<COLS, PARTS>(l, s, width, pitch, height, border, blocks, bytes))
            return;
        double needed = clocks<COLS, PARTS>(s, l, blocks);
        if (fewest < 0 || needed < fewest) fewest = needed, best = l;
    };
    if (s.stride_h == 1 && s.stride_w == 1) {
        // zeros behind a row or an image are those before the next one, too
        int above = std::max(s.padding_h, 0), left = std::max(s.padding_w, 0);
        int height = std::max({s.H_out, s.H + above,
                               s.H_out + s.window_h() - 1 - above});
        consider(s.W_out, std::max({s.W_out, s.W + left,
                                    s.W_out + s.window_w() - 1 - left}), height, true);
        for (int strips = 2; strips <= std::min(s.W_out, 64); strips++) {
            int width = cdiv(s.W_out, strips);
            consider(width, width + s.window_w() - 1, height, true);
        }
    }
    for (int strips = 1; strips <= std::min(s.W_out, 64); strips++) {
        int width = cdiv(s.W_out, strips);
        consider(width, width, s.H_out, false);
    }
    best.by_pitch = divisor_by(best.pitch), best.by_height = divisor_by(best.height);
    return fewest;
}

template <int COLS, int PARTS>
static void launch_wgmma(Tensor out, View inp, Tensor weight, Order order,
                         const float* bias, Shape s, Line l) {
    using W = Way<COLS, PARTS>;
    auto stream = getCurrentCUDAStream();
    Tensor ordered =
        put_in_order<ROWS, PARTS, W::DEPTH, true>(weight, order, s, true);
    Tensor copy;
    int width = cdiv(s.C, 4) * 4, pixels = s.H * s.W;
    if (!inp.quads) {
        copy = torch::empty({int64_t(s.N) * pixels * s.groups * width}, out.options());
        int64_t grid = int64_t(s.N) * s.groups * cdiv(width, 32) * cdiv(pixels, 32);
        int64_t pixel_step = inp.channels_last ? inp.C : 1;
        conv2d_copy_kernel<<<grid, dim3(32, 8), 0, stream>>>(
            copy.data_ptr<float>(), inp.data, s.C, width, s.groups, pixels, pixel_step,
            inp.channels_last ? 1 : pixels);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        inp.data = copy.data_ptr<float>();
    }
    int64_t bytes = W::BYTES + 4 * PARTS * l.ring * l.size(W::DEPTH);
    auto kernel = conv2d_wgmma_kernel<COLS, PARTS>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int grid = std::min(l.count, attribute(cudaDevAttrMultiProcessorCount, out));
    kernel<<<grid, (CONSUMERS + 1) * WARPGROUP, bytes, stream>>>(
        out.data_ptr<float>(), map_of(inp.data, width, s, l, W::DEPTH),
        ordered.data_ptr<float>(), bias, inp.channels_last, s, l);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// once, in whatever types
static void warn_of_build(const Tensor& x) {
    if (attribute(cudaDevAttrComputeCapabilityMajor, x) == 9)
        TORCH_WARN_ONCE("conv2d: built without sm_90a, so without wgmma; pass "
                        "nvcc -gencode=arch=compute_90a,code=sm_90a");
}

// Whether it did, in the fastest of ways with so many COLS: in a build with wgmma, with
// enough tiles, without zeros between the pixels of inp, and without a copy of inp for
// one tap
template <int PARTS, int... COLS>
static bool convolve_wgmma(Tensor out, View inp, Tensor weight, Order order,
                           const float* bias, Shape s) {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, conv2d_wgmma_kernel<160, PARTS>));
    bool spread = inp.spread_h > 1 || inp.spread_w > 1;
    bool pays = inp.quads || s.kH * s.kW > 1;
    if (spread || s.stride_w > 8 || s.C == 0 || !pays) return false;
    if (built.sharedSizeBytes == 0) return warn_of_build(out), false;
    double best_cost = -1;
    decltype(&launch_wgmma<160, PARTS>) best = nullptr;
    Line line;
    auto consider = [&](double cost, const Line& l, decltype(best) way) {
        if (cost >= 0 && (!best || cost < best_cost))
            best_cost = cost, best = way, line = l;
    };
    Line l;
    (consider(find_line<COLS, PARTS>(s, out, l), l, launch_wgmma<COLS, PARTS>), ...);
    if (!best || line.count * 2 < attribute(cudaDevAttrMultiProcessorCount, out))
        return false;
    best(out, inp, weight, order, bias, s, line);
    return true;
}
#endif

// out: the convolution of inp with weight, of which order says where it has what. once:
// one product of TF32 numbers instead of three (before sm_80 one of float32)
static void convolve(Tensor out, View inp, Tensor weight, Order order,
                     const float* bias, Shape s, bool tf32) {
    bool wide = s.C_out > 32;
    bool once = tf32 || built_for() < 80;
#ifdef __CUDACC_VER_MAJOR__
    if (once ? convolve_wgmma<1, 160, 224, 256>(out, inp, weight, order, bias, s)
             : convolve_wgmma<2, 128, 160>(out, inp, weight, order, bias, s)) return;
#endif
    auto kernel = once ? wide ? launch<32, 64, 1> : launch<32, 32, 1>
                       : wide ? launch<32, 64, 2> : launch<32, 32, 2>;
    kernel(out, inp, weight, order, bias, s);
}

// ---- the gradient of weight

constexpr int FILTERS = 64;  // channels of out that a block has
constexpr int DOUT_PITCH = FILTERS + 8;  // lanes of a warp read different banks

// How the sums are cut: a block has FILTERS channels of out, `channels` of inp and
// `taps`, and of all pixels one of `splits` parts (split-K: pixels are what is summed
// over), which it takes `pixels` by `pixels`; conv2d_sum_kernel adds up the parts.
struct Cut {
    int pixels, channels, slabs, taps, tap_groups, splits;
    int64_t bytes;  // of shared memory
    __host__ __device__ int pitch() const { return channels | 8; }  // as DOUT_PITCH
};

// acc += dout: FILTERS channels of `pixels`, times window: COUNT times 8 channels, for
// a tap each. places: of pixels in the window; place: of channels and taps there
template <int COUNT, int PARTS>
__device__ void multiply_pixels(float (&acc)[4][COUNT][4], const float* dout,
                                const float* window, const int* places, int pitch,
                                const int (&place)[COUNT], int pixels) {
    int lane = threadIdx.x % 32;
    for (int p = lane % 4; p < pixels; p += 8) {
        float a[4][4], a_low[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            auto four = *reinterpret_cast<const float4*>(
                dout + (p + i / 2 * 4) * DOUT_PITCH + filter_of(i % 2 * 2, lane / 4));
            float (&up)[4] = a[i % 2 * 2], (&down)[4] = a[i % 2 * 2 + 1];
            up[i / 2 * 2] = four.x, up[i / 2 * 2 + 1] = four.y;
            down[i / 2 * 2] = four.z, down[i / 2 * 2 + 1] = four.w;
        }
        if (PARTS == 2) __syncwarp();  // a fence: registers lack for loading far ahead
        for (int i = 0; i < 16; i++) {
            float& x = a[i / 4][i % 4];
            if (PARTS == 2) split(x, x, a_low[i / 4][i % 4]);
            else if (HAS_TF32) x = round_to_tf32(x);
        }
        const float* first = window + places[p] * pitch + lane / 4;
        const float* second = window + places[p + 4] * pitch + lane / 4;
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            if (PARTS == 2) __syncwarp();  // another
            float b[2] = {first[place[n]], second[place[n]]}, b_low[2];
            for (int i = 0; i < 2; i++) {
                if (PARTS == 2) split(b[i], b[i], b_low[i]);
                else if (HAS_TF32) b[i] = round_to_tf32(b[i]);
            }
#pragma unroll
            for (int m = 0; m < 4; m++)
                if constexpr (PARTS == 1) mma(acc[m][n], a[m], b[0], b[1]);
                else mma_exactly(acc[m][n], a[m], a_low[m], b, b_low);
        }
    }
}

// What a block adds up: channels from c_out and c on, `taps` taps from `tap` on, over a
// part of the pixels, tiles begin to end - 1.
struct Share {
    int c_out, c, tap, taps, group, part, begin, end;
};

static __device__ Share find_share(const Shape& s, const Tiling& t, const Cut& cut) {
    int rest = blockIdx.x;
    auto next = [&](int count) {
        int at = rest % count;
        rest /= count;
        return at;
    };
    int c_out = next(cdiv(s.C_out, FILTERS)) * FILTERS;
    int c = next(cut.slabs) * cut.channels, tap = next(cut.tap_groups) * cut.taps;
    int group = next(s.groups), taps = min(cut.taps, s.kH * s.kW - tap);
    int64_t tiles = int64_t(t.strips) * t.tiles;
    int begin = tiles * rest / cut.splits, end = tiles * (rest + 1) / cut.splits;
    return {c_out, c, tap, taps, group, rest, begin, end};
}

// Where a tile's pixels are in dout and in inp, and of these in the window.
static __device__ void find_tile(int64_t* dout_pixels, int64_t* pixels, int* places,
                                 const View& dout, const View& inp, const Shape& s,
                                 const Tiling& t, int count, int tile, int tap) {
    int first = tile % t.tiles * count, x0 = tile / t.tiles * t.width;
#pragma unroll 1
    for (int p = threadIdx.x; p < t.pitch; p += THREADS)
        pixels[p] = find_pixel(inp, s, t, first, x0, p, tap / s.kW, tap % s.kW);
#pragma unroll 1
    for (int p = threadIdx.x; p < count; p += THREADS) {
        int R = t.by_width.divide(first + p), n = t.by_H_out.divide(R);
        int x = x0 + first + p - R * t.width;
        dout_pixels[p] = locate(dout, s.N, n, R - n * s.H_out, x);
        places[p] = x < s.W_out ? find_place(s, t, first, p) : 0;
    }
}

// A block's sums are for `blocks` times 8 channels and each tap. The number of the n-th
// that a warp has; -1: it has less
static __device__ int find_block(const Share& share, int blocks, int n) {
    int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // of all lanes
    int each = cdiv(share.taps * blocks, WARPS), i = warp * each + n;
    return n < each && i < share.taps * blocks ? i : -1;
}

// partial: (splits, groups, C_out, taps, C)
template <int COUNT>
__device__ void store_sums(float* partial, const float (&acc)[4][COUNT][4],
                           const Shape& s, const Cut& cut, const Share& share) {
    int taps = s.kH * s.kW, blocks = cut.channels / 8;
    partial += (int64_t(share.part) * s.groups + share.group) * s.C_out * taps * s.C;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        int i = find_block(share, blocks, n);
        if (i < 0) break;
        int c = share.c + i % blocks * 8 + threadIdx.x % 4 * 2;
        for (int e = 0; e < 16; e++) {
            int row = threadIdx.x % 32 / 4 + e % 4 / 2 * 8;
            int64_t c_out = share.c_out + filter_of(e / 4, row);
            if (c_out < s.C_out && c + e % 2 < s.C)
                partial[(c_out * taps + share.tap + i / blocks) * s.C + c + e % 2] =
                    acc[e / 4][n][e % 4];
        }
    }
}

template <int COUNT, int PARTS>
__global__ void __launch_bounds__(THREADS, HAS_TF32 ? 2 : 1)
conv2d_backward_weight_kernel(float* partial, View dout, View inp, Shape s, Tiling t,
                              Cut cut) {
    if (PARTS == 2 && !HAS_TF32) return __trap();  // not called there
    extern __shared__ __align__(128) unsigned char shared[];
    int pitch = cut.pitch(), dout_size = cut.pixels * DOUT_PITCH;
    int stage_size = dout_size + t.pitch * pitch;
    float* stages = reinterpret_cast<float*>(shared);  // two: dout's pixels, a window
    auto pixels = reinterpret_cast<int64_t*>(stages + 2 * stage_size);  // of a window
    int64_t* dout_pixels = pixels + t.pitch;
    int* places = reinterpret_cast<int*>(dout_pixels + cut.pixels);  // (2, cut.pixels)

    __shared__ Share share;  // there it takes no registers
    if (threadIdx.x == 0) share = find_share(s, t, cut);
    __syncthreads();  // the share is known
    auto copy = [&](int tile) {
        __syncthreads();  // the pixels of the tile before have been read
        if (tile < share.end)
            find_tile(dout_pixels, pixels, places + tile % 2 * cut.pixels, dout, inp, s,
                      t, cut.pixels, tile, share.tap);
        __syncthreads();  // all pixels of the tile are known
        if (tile >= share.end) return;
        float* to = stages + tile % 2 * stage_size;
        copy_pixels<16>(to, DOUT_PITCH, 4, dout_pixels, cut.pixels, dout,
                        share.group * s.C_out + share.c_out, FILTERS / 4,
                        s.C_out - share.c_out);
        copy_pixels<8>(to + dout_size, pitch, 4, pixels, t.pitch, inp,
                       share.group * s.C + share.c, cut.channels / 4, s.C - share.c);
        end_group();
    };
    int blocks = cut.channels / 8, place[COUNT];
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        int i = max(find_block(share, blocks, n), 0), tap = share.tap + i / blocks;
        int down = tap / s.kW * s.dilation_h, right = tap % s.kW * s.dilation_w;
        place[n] = i % blocks * 8 + (t.cols ? down * t.cols + right : 0) * pitch;
    }
    float acc[4][COUNT][4] = {};
    copy(share.begin);
    for (int tile = share.begin; tile < share.end; tile++) {
        wait_for_groups<0>();
        copy(tile + 1);  // whose barriers show everyone this tile, too
        const float* from = stages + tile % 2 * stage_size;
        multiply_pixels<COUNT, PARTS>(acc, from, from + dout_size,
                                      places + tile % 2 * cut.pixels, pitch, place,
                                      cut.pixels);
    }
    store_sums<COUNT>(partial, acc, s, cut, share);
}

// dweight: (C_out, C, taps) = the sum of partial: (splits, C_out, taps, C)
__global__ void conv2d_sum_kernel(float* dweight, const float* partial, int splits,
                                  int taps, int C, int64_t size) {
    __shared__ float sums[8][32];
    int64_t i = int64_t(blockIdx.x) * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int part = threadIdx.y; i < size && part < splits; part += 8)
        sum += partial[part * size + i];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();  // all eight parts of the sums are there
    if (threadIdx.y > 0 || i >= size) return;
    for (int k = 1; k < 8; k++) sum += sums[k][threadIdx.x];
    dweight[(i / C / taps * C + i % C) * taps + i / C % taps] = sum;
}

// The tiling and the cut of a gradient; as many pixels at a time as fit.
static Tiling cut_sums(const Shape& s, Cut& cut, const Tensor& x) {
    int taps = s.kH * s.kW, channels = cdiv(s.C, 8) * 8;
    int64_t bytes = shared_for(2, x);
    Tiling t;
    for (cut.pixels = 64;; cut.pixels /= 2) {
        cut.channels = std::min(channels, 32);
        cut.taps = std::min(taps, WARPS * 9 / (cut.channels / 8));
        int64_t rest = bytes - cut.pixels * (8 * DOUT_PITCH + 8 + 8);
        int64_t pixels = rest / (8 * cut.pitch() + 8);
        t = find_tiling(s, cut.pixels, 2 * pixels * SLAB, 1);  // a ring of two
        if (!t.cols) cut.taps = 1, cut.channels = std::min(channels, 128);
        cut.bytes = int64_t(cut.pixels + t.pitch) * 8 + 8 * cut.pixels +
                    8 * (cut.pixels * DOUT_PITCH + t.pitch * cut.pitch());
        if (cut.bytes <= bytes || cut.pixels == 8) break;
    }
    cut.slabs = cdiv(s.C, cut.channels), cut.tap_groups = cdiv(taps, cut.taps);
    int64_t blocks = int64_t(cdiv(s.C_out, FILTERS)) * cut.slabs * cut.tap_groups;
    int64_t at_once = 2 * attribute(cudaDevAttrMultiProcessorCount, x);
    int64_t tiles = int64_t(t.strips) * t.tiles;
    cut.splits = std::clamp<int64_t>(at_once / (blocks * s.groups), 1, tiles);
    return t;
}

// ---- from Python

static bool is_channels_last(const Tensor& x) {
    int64_t stride = 1;
    bool is = x.dim() == 4;
    for (int d : {1, 3, 2, 0}) {
        if (!is) return false;
        is = x.size(d) == 1 || x.stride(d) == stride;
        stride *= x.size(d);
    }
    return is;
}

// x has to be dense float32 of this shape (-1: any size), on the GPU of `like`
static void check_input(const char* name, const Tensor& x, torch::IntArrayRef shape,
                        const Tensor& like) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    TORCH_CHECK(fits && x.scalar_type() == torch::kFloat32 && x.is_cuda() &&
                (x.is_contiguous() || is_channels_last(x)) &&
                x.device() == like.device(), name, ": expected contiguous or channels "
                "last float32 on one CUDA device, shape ", shape, ", got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

static void check_groups(int64_t groups, int64_t C, int64_t C_out) {
    TORCH_CHECK(groups > 0 && C % groups == 0 && C_out % groups == 0, "groups: "
                "expected a divisor of ", C, " and ", C_out, " channels, got ", groups);
}

using Pair = std::vector<int64_t>;  // of numbers for rows and for columns

// the convolution of images of (C, H, W) with C_out filters of (C / groups, kH, kW)
static Shape shape_of(int64_t N, int64_t C, int64_t H, int64_t W, int64_t C_out,
                      int64_t kH, int64_t kW, const Pair& stride, const Pair& padding,
                      const Pair& dilation, int64_t groups) {
    auto check = [](const char* name, const Pair& pair, int64_t least) {
        TORCH_CHECK(pair.size() == 2 && std::min(pair[0], pair[1]) >= least &&
                    std::max(pair[0], pair[1]) < 1 << 15, name, ": expected two "
                    "numbers of at least ", least, " and less than 32768, got ",
                    torch::IntArrayRef(pair));
    };
    check("stride", stride, 1), check("padding", padding, 0);
    check("dilation", dilation, 1);
    int64_t window_h = dilation[0] * (kH - 1) + 1;
    int64_t window_w = dilation[1] * (kW - 1) + 1;
    int64_t high = H + 2 * padding[0], wide = W + 2 * padding[1];
    TORCH_CHECK(std::min(kH, kW) > 0 && high >= window_h && wide >= window_w,
                "inp: expected at least ", window_h, " x ", window_w, " pixels, with "
                "padding, got ", H, " x ", W, ", padding ",
                torch::IntArrayRef(padding));
    int64_t H_out = (high - window_h) / stride[0] + 1;
    int64_t W_out = (wide - window_w) / stride[1] + 1;
    TORCH_CHECK(std::max(N * high * wide, N * H_out * W_out) <= INT_MAX - 256,
                "inp: expected less than 2^31 pixels in all images, got ", N, " of ", H,
                " x ", W, ", padding ", torch::IntArrayRef(padding));
    return {int(N), int(C / groups), int(H), int(W), int(C_out / groups), int(H_out),
            int(W_out), int(kH), int(kW), int(groups), int(stride[0]), int(stride[1]),
            int(padding[0]), int(padding[1]), int(dilation[0]), int(dilation[1])};
}

static View view_of(const Tensor& x, int groups) {
    bool last = !x.is_contiguous();
    auto address = reinterpret_cast<uintptr_t>(x.data_ptr());
    return {x.data_ptr<float>(), int(x.size(1)), int(x.size(2)), int(x.size(3)), 1, 1,
            last, last && x.size(1) / groups % 4 == 0 && address % 16 == 0};
}

static Tensor empty_images(int64_t N, int64_t C, int64_t H, int64_t W,
                           const Tensor& like) {
    if (like.is_contiguous()) return torch::empty({N, C, H, W}, like.options());
    return torch::empty({N, H, W, C}, like.options()).transpose(1, 3).transpose(2, 3);
}

Tensor conv2d_forward(Tensor inp, Tensor weight, Tensor bias,
                      std::vector<int64_t> stride, std::vector<int64_t> padding,
                      std::vector<int64_t> dilation, int64_t groups, bool tf32) {
    check_input("inp", inp, {-1, -1, -1, -1}, inp);
    check_input("weight", weight, {-1, -1, -1, -1}, inp);
    int64_t C = inp.size(1), C_out = weight.size(0);
    check_groups(groups, C, C_out);
    check_input("weight", weight, {C_out, C / groups, -1, -1}, inp);
    check_input("bias", bias, {bias.numel() ? C_out : 0}, inp);
    Shape s = shape_of(inp.size(0), C, inp.size(2), inp.size(3), C_out, weight.size(2),
                       weight.size(3), stride, padding, dilation, groups);
    CUDAGuard guard(inp.device());
    Tensor out = empty_images(s.N, C_out, s.H_out, s.W_out, inp);
    if (out.numel() == 0) return out;
    Order order = {weight.stride(0) * s.C_out, weight.stride(0), weight.stride(1),
                   weight.stride(2), weight.stride(3), false};
    convolve(out, view_of(inp, groups), weight, order,
             bias.numel() ? bias.data_ptr<float>() : nullptr, s, tf32);
    return out;
}

// H, W: of inp
Tensor conv2d_backward_input(Tensor dout, Tensor weight, int64_t H, int64_t W,
                             std::vector<int64_t> stride, std::vector<int64_t> padding,
                             std::vector<int64_t> dilation, int64_t groups, bool tf32) {
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    int64_t C_out = dout.size(1);
    check_input("weight", weight, {C_out, -1, -1, -1}, dout);
    check_groups(groups, C_out, C_out);
    int64_t C = weight.size(1) * groups, kH = weight.size(2), kW = weight.size(3);
    Shape s = shape_of(dout.size(0), C, H, W, C_out, kH, kW, stride, padding, dilation,
                       groups);
    check_input("dout", dout, {s.N, C_out, s.H_out, s.W_out}, dout);
    CUDAGuard guard(dout.device());
    Tensor dinp = empty_images(s.N, C, H, W, dout);
    if (dinp.numel() == 0) return dinp;
    View view = view_of(dout, groups);
    view.spread_h = s.stride_h, view.spread_w = s.stride_w;
    Order order = {weight.stride(0) * s.C_out, weight.stride(1), weight.stride(0),
                   weight.stride(2), weight.stride(3), true};
    std::swap(s.C, s.C_out), std::swap(s.H, s.H_out), std::swap(s.W, s.W_out);
    s.stride_h = s.stride_w = 1;
    s.padding_h = s.window_h() - 1 - s.padding_h;
    s.padding_w = s.window_w() - 1 - s.padding_w;
    convolve(dinp, view, weight, order, nullptr, s, tf32);
    return dinp;
}

Tensor conv2d_backward_weight(Tensor dout, Tensor inp, int64_t kH, int64_t kW,
                              std::vector<int64_t> stride,
                              std::vector<int64_t> padding,
                              std::vector<int64_t> dilation, int64_t groups,
                              bool tf32) {
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    check_input("inp", inp, {dout.size(0), -1, -1, -1}, dout);
    int64_t C_out = dout.size(1);
    check_groups(groups, inp.size(1), C_out);
    Shape s = shape_of(inp.size(0), inp.size(1), inp.size(2), inp.size(3), C_out, kH,
                       kW, stride, padding, dilation, groups);
    check_input("dout", dout, {s.N, C_out, s.H_out, s.W_out}, dout);
    CUDAGuard guard(inp.device());
    Tensor dweight = torch::empty({C_out, s.C, kH, kW}, inp.options());
    int64_t size = dweight.numel();
    if (size == 0 || dout.numel() == 0) return dweight.zero_();
    Cut cut;
    Tiling t = cut_sums(s, cut, inp);
    int64_t grid = int64_t(cdiv(s.C_out, FILTERS)) * cut.slabs * cut.tap_groups *
                   groups * cut.splits;
    TORCH_CHECK(grid <= INT_MAX, "conv2d: expected a weight of up to 2^31 blocks, got ",
                dweight.sizes());
    Tensor partial = torch::empty({cut.splits, size}, inp.options());
    bool once = tf32 || built_for() < 80;
    bool few = cut.taps * cut.channels / 8 <= WARPS * 4;
    auto kernel = once ? few ? conv2d_backward_weight_kernel<4, 1>
                             : conv2d_backward_weight_kernel<9, 1>
                       : few ? conv2d_backward_weight_kernel<4, 2>
                             : conv2d_backward_weight_kernel<9, 2>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, cut.bytes));
    auto stream = getCurrentCUDAStream();
    kernel<<<grid, THREADS, cut.bytes, stream>>>(
        partial.data_ptr<float>(), view_of(dout, groups), view_of(inp, groups), s, t,
        cut);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    conv2d_sum_kernel<<<cdiv(size, 32), dim3(32, 8), 0, stream>>>(
        dweight.data_ptr<float>(), partial.data_ptr<float>(), cut.splits, kH * kW, s.C,
        size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return dweight;
}
