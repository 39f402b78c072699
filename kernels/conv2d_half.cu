// kernels/conv2d_half.cu
// SPDX-License-Identifier: MIT
// 2-D convolution as in networks (cross-correlation) in half types, and its gradients;
// that of bias is the sum of dout over images and pixels. inp (N, C, H, W), weight
// (C_out, C / groups, kH, kW), dout; bias (C_out), or (0) for none; float16 or
// bfloat16, in channels_last (contiguous as (N, H, W, C)), as are out, dinp and
// dweight. Sums are float32, a result is rounded once. stride, padding, dilation: two
// numbers each, for rows and columns; H_out = (H + 2 padding - dilation (kH - 1) - 1) /
// stride + 1, W_out likewise. Less than 2^31 pixels in all images of inp or of out, and
// numbers in weight. An infinity becomes NaN where it meets a zero of the padding.
// 2 N C_out H_out W_out C kH kW / groups FLOPs, and as many for each gradient: no zero
// is multiplied that a stride leaves between pixels. With 64 channels to 64 and 3 x 3
// taps 288 for each byte of inp and out, about what an H100 can do in a byte's time.
// Scratch memory: float32 sums where blocks share in a result, as those of dweight; a
// copy of a tensor whose groups have no multiple of 8 channels, or which begins at no
// multiple of 16 bytes: inp, where C is none, needs it with groups or dilation only.
// Groups are multiplied one by one, each filled up to 8 channels, in tiles of 64 at
// least: many small ones are slow. sm_75 multiplies bfloat16 without tensor cores.
// sm_90, one group with channels in multiples of 8, small strides and tiles to fill the
// GPU: wgmma, and TMA in its im2col mode, which brings the pixels of all taps at once;
// so the gradient of an inp of up to 8 channels, too. These come in a build for sm_90a
// only: by the flag below, or "9.0a" in TORCH_CUDA_ARCH_LIST. There an infinity of inp
// makes NaN of all taps of its channel in the gradient of weight, even of those that no
// pixel of it meets.
// Notebook: 11d_general_convolution. Own code; an implicit GEMM, after cuDNN (Chetlur
// et al., 2014); mma, ldmatrix, wgmma and im2col after NVIDIA, PTX ISA.
//
// from pathlib import Path
// import torch
// from torch.utils.cpp_extension import load_inline
// major, minor = torch.cuda.get_device_capability()
// arch = f"{major}{minor}" + "a" * (major >= 9)
// PAIRS = """std::vector<int64_t> stride, std::vector<int64_t> padding,
//     std::vector<int64_t> dilation, int64_t groups"""
// conv2d_half = load_inline("conv2d_half",
//     cuda_sources=Path("conv2d_half.cu").read_text(),
//     cpp_sources=f"""using torch::Tensor;
//         Tensor conv2d_half_forward(Tensor inp, Tensor weight, Tensor bias, {PAIRS});
//         Tensor conv2d_half_backward_input(Tensor dout, Tensor weight, int64_t H,
//             int64_t W, {PAIRS});
//         Tensor conv2d_half_backward_weight(Tensor dout, Tensor inp, int64_t kH,
//             int64_t kW, {PAIRS});""",
//     functions=["conv2d_half_forward", "conv2d_half_backward_input",
//         "conv2d_half_backward_weight"],
//     extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>

#include <algorithm>
#include <vector>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int DEPTH = 32;  // numbers along a sum that a step multiplies
constexpr int PIECE = 8;   // numbers in 16 bytes, what one copy brings
constexpr int SHARED = 48 * 1024;  // bytes: every GPU gives a block so many, unasked
constexpr int SUM_SIZE = 256;      // threads that add up parts of sums

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool HAS_COPIES = false;  // that are asynchronous
#else
constexpr bool HAS_COPIES = true;
#endif

// A block makes a tile of M rows and N columns of a product, each of its warps 32
// columns of 64 or 32 rows. A stage holds a step's part of both factors.
template <int M_, int N_> struct Tile {
    static constexpr int M = M_, N = N_, WARP_M = M / 2, WARP_N = 32;
    static constexpr int WARPS_N = N / WARP_N, THREADS = 2 * WARPS_N * 32;
    static constexpr int A_BYTES = M * DEPTH * 2, STAGE = A_BYTES + N * DEPTH * 2;
    static constexpr int STAGES = std::min(SHARED / STAGE, 4), AHEAD = STAGES - 1;
    using Sums = float[WARP_M / 16][WARP_N / 8][4];  // a warp's
    // that a multiprocessor has registers for; sm_75 has shared memory for one
    static constexpr int BLOCKS = !HAS_COPIES ? 1 : N == 128 ? 2 : M == 128 ? 3 : 4;
};

template <typename T, int COUNT>
struct alignas(COUNT * sizeof(T)) Pack {  // neighbours, moved by one instruction
    T at[COUNT];
};

struct Shape {
    int N, C, H, W;           // inp; C: of one group
    int C_out, H_out, W_out;  // out; C_out: of one group
    int kH, kW, groups;
    int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
};

// Rows (or columns) of pixels that meet the same taps. Number i of `count` is row first
// + i step of the result; tap j of `taps`, first_tap + j tap_step of the filter, meets
// it at row i stride + j dilation + offset of the source, which has `size` of them.
struct Axis {
    int size, count, first, step, taps, first_tap, tap_step, stride, dilation, offset;
};

// A place in three nested loops, the innermost over `low`
struct Walk {
    int low, mid, high;
    __device__ Walk(int i, int lows, int mids)
        : low(i % lows), mid(i / lows % mids), high(i / lows / mids) {}
    __device__ void advance(int by, int lows, int mids) {
        for (low += by; low >= lows; low -= lows)
            if (++mid == mids) mid = 0, high++;
    }
};

__host__ __device__ static int cdiv(int64_t a, int64_t b) {
    return int((a + b - 1) / b);
}

__host__ __device__ static int round_up(int64_t n) { return cdiv(n, PIECE) * PIECE; }

static __host__ __device__ Axis forward_axis(int size, int out_size, int taps,
                                             int stride, int padding, int dilation) {
    return {size, out_size, 0, 1, taps, 0, 1, stride, dilation, -padding};
}

// The gradient of inp, by stride classes: row h of inp meets tap r at the row (h +
// padding - r dilation) / stride of dout, if that is whole. So those r count for which
// r dilation leaves the same rest as h + padding: every period-th, and the same ones
// for all h that are a multiple of stride apart. A class is named by its first row.
static __host__ __device__ Axis backward_axis(int size, int dout_size, int taps,
                                              int stride, int padding, int dilation,
                                              int first) {
    int divisor = stride, rest = dilation % stride;  // Euclid
    while (rest) {
        int next = divisor % rest;
        divisor = rest, rest = next;
    }
    int period = stride / divisor, tap = 0;
    while (tap < taps && tap < period && (first + padding - tap * dilation) % stride)
        tap++;
    bool meets = tap < taps && tap < period;
    return {dout_size, cdiv(size - first, stride), first, stride,
            meets ? cdiv(taps - tap, period) : 0, tap, period, 1, -dilation / divisor,
            meets ? (first + padding - tap * dilation) / stride : 0};
}

// 16 bytes from global to shared memory, asynchronously; zeros if they are not inside
static __device__ void copy_piece(unsigned char* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(from), "r"(inside ? 16 : 0));
#else
    uint4 zeros = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : zeros;
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

// The swizzled offset of a piece of a row of COLS numbers in shared memory: eight
// pieces that are written or read at once, of one row or of eight, lie in all banks.
template <int COLS> __device__ unsigned place(int row, int piece) {
    int swizzle = COLS == 32 ? row / 2 % 4 : row % 8;
    return (row * (COLS / PIECE) + (piece ^ swizzle)) * 16;
}

// four 8 × 8 matrices of 16 bits; each lane brings the address of a row
template <bool TRANSPOSED>
__device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// A factor's tile in shared memory: SIZE rows of a step's DEPTH numbers along the sum,
// or, ACROSS, DEPTH rows of SIZE. Where a lane begins to read fragments from row
// `first` on: of the left factor rows 0 to 7 and 8 to 15, then further along the sum;
// of the right one further along the sum first, then columns 8 to 15.
template <bool ACROSS, int SIZE, bool LEFT>
__device__ unsigned fragment_place(int first) {
    int lane = threadIdx.x % 32, i = lane % 8;
    int second = lane / (LEFT ? 8 : 16) % 2, further = lane / (LEFT ? 16 : 8) % 2;
    if (ACROSS) return place<SIZE>(further * 8 + i, first / PIECE + second);
    return place<DEPTH>(first + second * 8 + i, further);
}

// fragment number `block`, number `step` along the sum
template <bool ACROSS, int SIZE>
__device__ void load_fragment(unsigned (&r)[4], unsigned at, int block, int step) {
    if (ACROSS) ldmatrix<true>(r, (at ^ block * 32) + step * 16 * SIZE * 2);
    else ldmatrix<false>(r, (at ^ step * 32) + block * 16 * DEPTH * 2);
}

// c: 16 × 8 += a: 16 × 16 times b: 16 × 8. With g = lane / 4 and t = lane % 4 * 2 a
// lane has c[0], c[1]: row g, columns t, t + 1, and c[2], c[3] of row g + 8; a[0],
// a[1]: rows g and g + 8, k = t, t + 1, and a[2], a[3] at k + 8; b0, b1: column g, the
// same k.
template <typename T>
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, at::Half>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    if constexpr (std::is_same_v<T, at::Half>) {
        for (int i = 0; i < 2; i++)  // sm_75: half a step each
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[i * 2]), "r"(a[i * 2 + 1]), "r"(i ? b1 : b0));
        return;
    }
    int lane = threadIdx.x % 32;  // bfloat16 is not for its tensor cores
#pragma unroll 1
    for (int k = 0; k < 8; k++) {  // pairs; a bfloat16 is the high half of a float
        unsigned pair[2];
        for (int e = 0; e < 2; e++)
            pair[e] = __shfl_sync(0xffffffff, k < 4 ? b0 : b1,
                                  (lane % 4 * 2 + e) * 4 + k % 4);
        for (int h = 0; h < 2; h++) {
            unsigned x = __shfl_sync(0xffffffff, k < 4 ? a[h] : a[2 + h],
                                     lane / 4 * 4 + k % 4);
            for (int e = 0; e < 2; e++)
                c[h * 2 + e] += __uint_as_float(x << 16) *
                                    __uint_as_float(pair[e] << 16) +
                                __uint_as_float(x & 0xffff0000) *
                                    __uint_as_float(pair[e] & 0xffff0000);
        }
    }
#endif
}

// acc += a step of both factors; addresses: of the lane's first fragments
template <typename T, typename Of, bool A_ACROSS, bool B_ACROSS>
__device__ void multiply(typename Of::Sums& acc, unsigned A_at, unsigned B_at) {
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        unsigned a[Of::WARP_M / 16][4], b[Of::WARP_N / 16][4];
#pragma unroll
        for (int m = 0; m < Of::WARP_M / 16; m++)
            load_fragment<A_ACROSS, Of::M>(a[m], A_at, m, k);
#pragma unroll
        for (int n = 0; n < Of::WARP_N / 16; n++)
            load_fragment<B_ACROSS, Of::N>(b[n], B_at, n, k);
#pragma unroll
        for (int n = 0; n < Of::WARP_N / 8; n++)
#pragma unroll
            for (int m = 0; m < Of::WARP_M / 16; m++)
                mma<T>(acc[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
}

// partial: (rows, pitch); a warp's sums, of which `rows` and `cols` are inside; number:
// of a row in partial. even: two columns are together inside, at 8 aligned bytes
template <typename Of, typename Number>
__device__ void store_sums(float* partial, const typename Of::Sums& acc, int rows,
                           int cols, int64_t pitch, bool even, Number number) {
    int lane = threadIdx.x % 32, col = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < Of::WARP_M / 8; i++) {
        int row = i * 8 + lane / 4, e = i % 2 * 2;
        if (row >= rows) continue;
        float* to = partial + number(row) * pitch + col;
#pragma unroll
        for (int n = 0; n < Of::WARP_N / 8; n++) {
            float2 two = make_float2(acc[i / 2][n][e], acc[i / 2][n][e + 1]);
            int left = cols - col - n * 8;
            if (even && left > 0) *reinterpret_cast<float2*>(to + n * 8) = two;
            if (!even && left > 0) to[n * 8] = two.x;
            if (!even && left > 1) to[n * 8 + 1] = two.y;
        }
    }
}

// out: (rows, pitch); a tile's sums and bias, rounded, of which `rows` and `cols` are
// inside. By way of shared memory, so that a row leaves by 16 bytes, where wide
template <typename T, typename Of, typename Number>
__device__ void store_tile(T* out, unsigned char* shared, const typename Of::Sums& acc,
                           const T* bias, int rows, int cols, int64_t pitch, bool wide,
                           Number number) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int first = warp / Of::WARPS_N * Of::WARP_M + lane / 4;
    __syncthreads();  // the last stage has been read: results take its place
#pragma unroll
    for (int n = 0; n < Of::WARP_N / 8; n++) {
        int col = warp % Of::WARPS_N * Of::WARP_N + n * 8 + lane % 4 * 2;
        float low = bias && col < cols ? float(bias[col]) : 0.0f;
        float high = bias && col + 1 < cols ? float(bias[col + 1]) : 0.0f;
#pragma unroll
        for (int i = 0; i < Of::WARP_M / 8; i++) {
            const float* sums = acc[i / 2][n] + i % 2 * 2;
            unsigned at = place<Of::N>(first + i * 8, col / PIECE) + col % PIECE * 2;
            Pack<T, 2> two = {T(sums[0] + low), T(sums[1] + high)};
            *reinterpret_cast<Pack<T, 2>*>(shared + at) = two;
        }
    }
    __syncthreads();  // all results are there
    constexpr int PIECES = Of::N / PIECE, AT_ONCE = Of::THREADS / PIECES;
    int piece = threadIdx.x % PIECES, count = min(cols - piece * PIECE, PIECE);
#pragma unroll 2
    for (int r = threadIdx.x / PIECES; r < min(Of::M, rows); r += AT_ONCE) {
        auto from = reinterpret_cast<const T*>(shared + place<Of::N>(r, piece));
        T* to = out + number(r) * pitch + piece * PIECE;
        if (wide && count > 0)
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        else
            for (int i = 0; i < count; i++) to[i] = from[i];
    }
}

// What a block copies of the images that filters move over. A row is a pixel of the
// result, a column a number of the filter: tap by tap, in each all channels of a group.
// RUNS: all channels of all taps of a filter's row, which lie together in memory,
// filled up to a multiple of 8.
struct Pixel {
    int at, y, x;  // where tap (0, 0) meets the source; at: counted through all images
};

// i: column, row and image of the result
static __device__ Pixel find_pixel(const Walk& i, const Axis& rows, const Axis& cols,
                                   int N) {
    int y = i.mid * rows.stride + rows.offset, x = i.low * cols.stride + cols.offset;
    if (i.high >= N) return {0, INT_MIN, 0};  // outside, whatever the tap
    return {(i.high * rows.size + y) * cols.size + x, y, x};
}

// eight numbers of a run of `width` from number j on, in a row of H × W pixels of C
template <typename T>
__device__ uint4 load_run(const T* inp, const Pixel& p, int down, int H, int W, int C,
                          int j, int width) {
    int e = p.x * C + j;  // in the row
    bool inside = unsigned(p.y + down) < unsigned(H);
    int begin = max(0, -e), end = inside ? min(PIECE, min(W * C - e, width - j)) : 0;
    auto from = reinterpret_cast<const unsigned short*>(inp) +
                int64_t(p.at + down * W) * C + j;
    unsigned two[4];
    bool whole = begin == 0 && end == PIECE;
    if (whole && reinterpret_cast<uintptr_t>(from) % 4 == 0) {
        for (int i = 0; i < 4; i++) two[i] = reinterpret_cast<const unsigned*>(from)[i];
    } else if (whole) {  // one, three times two, one
        unsigned low = from[0];
        for (int i = 0; i < 4; i++) {
            unsigned next = i < 3 ? reinterpret_cast<const unsigned*>(from + 1)[i]
                                  : from[7];
            two[i] = low | next << 16, low = next >> 16;
        }
    } else {
        for (int i = 0; i < 4; i++) {
            unsigned low = i * 2 >= begin && i * 2 < end ? from[i * 2] : 0;
            unsigned high = i * 2 + 1 >= begin && i * 2 + 1 < end ? from[i * 2 + 1] : 0;
            two[i] = low | high << 16;
        }
    }
    return make_uint4(two[0], two[1], two[2], two[3]);
}

// eight channels, w.low on, of the tap (w.high, w.mid) of a pixel, to shared memory
template <typename T>
__device__ void copy_tap(unsigned char* to, const T* inp, const Pixel& p, const Walk& w,
                         const Axis& rows, const Axis& cols, int pitch) {
    int down = w.high * rows.dilation, right = w.mid * cols.dilation;
    bool inside = w.high < rows.taps && unsigned(p.y + down) < unsigned(rows.size) &&
                  unsigned(p.x + right) < unsigned(cols.size);
    int64_t at = int64_t(p.at + down * cols.size + right) * pitch + w.low;
    copy_piece(to, inp + (inside ? at : 0), inside);
}

enum How { FORWARD, RUNS, BACKWARD };

// out: the convolution of inp, or BACKWARD, of its gradient dout, the gradient of inp.
// A product of pixels of out times its channels. weight: (C_out, kH, kW, C), RUNS:
// (C_out, kH, run), BACKWARD: with C filled up. depth: a group's channels of inp that a
// sum goes over, filled up, RUNS: a run. Of several splits each adds up a part of each
// sum, to partial: (splits, pixels of out, its channels).
//
// A step's copies are one group of cp.async, a pipeline of STAGES stages:
//   1. wait until all groups but the AHEAD - 1 newest have come: step i is there, for
//      the thread's own copies; the barrier makes it so for all threads' copies.
//   2. All have passed that barrier, so nobody reads step i - 1 any more: step i +
//      AHEAD goes to its stage. RUNS go through registers, loaded here, stored after 3.
//   3. Multiply step i, while the copies go on.
template <typename T, How HOW, typename Of>
__global__ void __launch_bounds__(Of::THREADS, Of::BLOCKS)
conv2d_half_kernel(T* out, float* partial, const T* inp, const T* weight, const T* bias,
                   Shape s, int depth, int splits) {
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr bool BACK = HOW == BACKWARD;
    int width = BACK ? s.C : s.C_out, rest = blockIdx.x;  // width: a group's of out
    auto next = [&](int count) {
        int at = rest % count;
        rest /= count;
        return at;
    };
    int col = next(cdiv(width, Of::N)) * Of::N, group = next(s.groups);
    int part = next(splits);
    int y0 = BACK ? next(min(s.stride_h, s.H)) : 0;
    int x0 = BACK ? next(min(s.stride_w, s.W)) : 0;
    Axis rows = BACK ? backward_axis(s.H, s.H_out, s.kH, s.stride_h, s.padding_h,
                                     s.dilation_h, y0)
                     : forward_axis(s.H, s.H_out, s.kH, s.stride_h, s.padding_h,
                                    s.dilation_h);
    Axis cols = BACK ? backward_axis(s.W, s.W_out, s.kW, s.stride_w, s.padding_w,
                                     s.dilation_w, x0)
                     : forward_axis(s.W, s.W_out, s.kW, s.stride_w, s.padding_w,
                                    s.dilation_w);
    int pixels = s.N * rows.count * cols.count, first = rest * Of::M;
    if (first >= pixels) return;  // all of the block: a class with fewer tiles

    int taps_w = HOW == RUNS ? 1 : cols.taps;  // that a sum goes through one by one
    int pitch = s.groups * depth;  // numbers of a pixel, but of RUNS
    int sum = rows.taps * taps_w * depth, steps = cdiv(sum, DEPTH);
    int begin = int64_t(steps) * part / splits;
    steps = int64_t(steps) * (part + 1) / splits - begin;  // the split's own

    constexpr int PIECES = DEPTH / PIECE, AT_ONCE = Of::THREADS / PIECES;
    constexpr int A_ROWS = Of::M / AT_ONCE, B_ROWS = Of::N / AT_ONCE;
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    Pixel pixel[A_ROWS];
#pragma unroll
    for (int r = 0; r < A_ROWS; r++)
        pixel[r] = find_pixel(Walk(first + row + r * AT_ONCE, cols.count, rows.count),
                              rows, cols, s.N);
    inp += HOW == RUNS ? 0 : group * depth;
    Walk at(begin * DEPTH + piece * PIECE, depth, max(1, taps_w));

    // BACKWARD: weight lies across, each row of a step's tile is of a filter and a tap
    constexpr int W_PIECES = Of::N / PIECE, W_AT_ONCE = Of::THREADS / W_PIECES;
    int w_row = threadIdx.x / W_PIECES, w_piece = threadIdx.x % W_PIECES;
    Walk w_at(begin * DEPTH + w_row, depth, max(1, taps_w));
    int w_left = width - col - (BACK ? w_piece * PIECE : row);
    int w_begin = group * s.C_out + (BACK ? 0 : col + row);
    if (BACK)
        w_begin = (w_begin * s.kH * s.kW + rows.first_tap * s.kW + cols.first_tap) *
                      round_up(s.C) + col + w_piece * PIECE;
    else
        w_begin = w_begin * sum + begin * DEPTH + piece * PIECE;

    uint4 run[A_ROWS];
    auto copy = [&](int step) {
        unsigned char* to = shared + step % Of::STAGES * Of::STAGE;
#pragma unroll
        for (int r = 0; r < A_ROWS; r++) {
            if (HOW == RUNS)
                run[r] = load_run(inp, pixel[r], at.high * s.dilation_h, s.H, s.W, s.C,
                                  at.low, at.high < s.kH ? s.kW * s.C : 0);
            else
                copy_tap(to + place<DEPTH>(row + r * AT_ONCE, piece), inp, pixel[r], at,
                         rows, cols, pitch);
        }
        to += Of::A_BYTES;
        if (BACK) {
#pragma unroll
            for (int r = 0; r < DEPTH; r += W_AT_ONCE) {
                int tap = w_at.low * s.kH + w_at.high * rows.tap_step;
                tap = tap * s.kW + w_at.mid * cols.tap_step;
                bool inside = w_left > 0 && w_at.high < rows.taps && w_at.low < s.C_out;
                int from = inside ? w_begin + tap * round_up(s.C) : 0;
                copy_piece(to + place<Of::N>(w_row + r, w_piece), weight + from,
                           inside);
                w_at.advance(W_AT_ONCE, depth, taps_w);
            }
        } else {
#pragma unroll
            for (int r = 0; r < B_ROWS * AT_ONCE; r += AT_ONCE) {
                bool inside = at.high < rows.taps && r < w_left;
                copy_piece(to + place<DEPTH>(row + r, piece),
                           weight + (inside ? w_begin + r * sum : 0), inside);
            }
            w_begin += DEPTH;
        }
        at.advance(DEPTH, depth, taps_w);
    };
    auto store_run = [&](int step) {
        unsigned char* to = shared + step % Of::STAGES * Of::STAGE;
#pragma unroll
        for (int r = 0; r < A_ROWS; r++)
            *reinterpret_cast<uint4*>(to + place<DEPTH>(row + r * AT_ONCE, piece)) =
                run[r];
    };
    int warp = threadIdx.x / 32, warp_row = warp / Of::WARPS_N * Of::WARP_M;
    int warp_col = warp % Of::WARPS_N * Of::WARP_N;
    unsigned A_at = __cvta_generic_to_shared(shared), B_at = A_at + Of::A_BYTES;
    A_at += fragment_place<false, Of::M, true>(warp_row);
    B_at += fragment_place<BACK, Of::N, false>(warp_col);
    typename Of::Sums acc = {};
    for (int i = -Of::AHEAD; i < steps; i++) {
        if (i >= 0) {
            wait_for_groups<Of::AHEAD - 1>();
            __syncthreads();  // a step has come, all have read the one before
        }
        bool copies = i + Of::AHEAD < steps;
        if (copies) copy(i + Of::AHEAD);
        end_group();
        if (i >= 0) {
            int stage = i % Of::STAGES * Of::STAGE;
            multiply<T, Of, false, BACK>(acc, A_at + stage, B_at + stage);
        }
        if (HOW == RUNS && copies) store_run(i + Of::AHEAD);
    }

    // the result's rows: pixels, those of a class apart from each other
    bool apart = BACK && (rows.step > 1 || cols.step > 1);
    int out_H = BACK ? s.H : s.H_out, out_W = BACK ? s.W : s.W_out;
    auto find_result = [&](int r) {
        if (!apart) return int64_t(first + r);
        Walk i(first + r, cols.count, rows.count);
        int64_t line = int64_t(i.high) * out_H + rows.first + i.mid * rows.step;
        return line * out_W + cols.first + i.low * cols.step;
    };
    int64_t channels = int64_t(s.groups) * width, offset = group * width + col;
    int left = pixels - first, cols_left = width - col;
    if (splits > 1) {
        partial += part * (int64_t(s.N) * out_H * out_W * channels) + offset + warp_col;
        auto of_warp = [&](int r) { return find_result(warp_row + r); };
        store_sums<Of>(partial, acc, left - warp_row, cols_left - warp_col, channels,
                       width % 2 == 0, of_warp);
    } else {
        store_tile<T, Of>(out + offset, shared, acc, bias ? bias + offset : nullptr,
                          left, cols_left, channels, width % PIECE == 0, find_result);
    }
}

// partial: (splits, groups, C_out, columns) = dout: (pixels, groups * C_out filled up)
// transposed, times what filters see of inp: (pixels, columns), see Pixel. A sum over
// all pixels of out, of which each split has a part.
template <typename T, How HOW, typename Of>
__global__ void __launch_bounds__(Of::THREADS, Of::BLOCKS)
conv2d_half_backward_weight_kernel(float* partial, const T* dout, const T* inp, Shape s,
                                   int depth, int splits) {
    extern __shared__ __align__(128) unsigned char shared[];
    Axis rows = forward_axis(s.H, s.H_out, s.kH, s.stride_h, s.padding_h, s.dilation_h);
    Axis cols = forward_axis(s.W, s.W_out, s.kW, s.stride_w, s.padding_w, s.dilation_w);
    int taps_w = HOW == RUNS ? 1 : s.kW, columns = s.kH * taps_w * depth;
    int rest = blockIdx.x;
    auto next = [&](int count) {
        int at = rest % count;
        rest /= count;
        return at;
    };
    int col = next(cdiv(columns, Of::N)) * Of::N;
    int filter = next(cdiv(s.C_out, Of::M)) * Of::M, group = next(s.groups);
    int pixels = s.N * s.H_out * s.W_out, steps = cdiv(pixels, DEPTH);
    int begin = int64_t(steps) * rest / splits;
    steps = int64_t(steps) * (rest + 1) / splits - begin;  // the split's own

    constexpr int A_PIECES = Of::M / PIECE, A_AT_ONCE = Of::THREADS / A_PIECES;
    constexpr int B_PIECES = Of::N / PIECE, B_AT_ONCE = Of::THREADS / B_PIECES;
    constexpr int B_ROWS = DEPTH / B_AT_ONCE;
    int filled = round_up(s.C_out);
    int pitch = s.groups * depth;  // numbers of a pixel, but of RUNS
    int64_t dout_pitch = int64_t(s.groups) * filled;
    int a_row = threadIdx.x / A_PIECES, a_piece = threadIdx.x % A_PIECES;
    int b_row = threadIdx.x / B_PIECES, b_piece = threadIdx.x % B_PIECES;
    bool has_filter = filter + a_piece * PIECE < filled;
    int64_t a_begin = int64_t(begin * DEPTH + a_row) * dout_pitch + group * filled +
                      filter + a_piece * PIECE;  // of the next step to copy
    int left = pixels - begin * DEPTH - a_row;
    inp += HOW == RUNS ? 0 : group * depth;
    Walk tap(col + b_piece * PIECE, depth, taps_w);  // the thread's own, all the time
    Walk at(begin * DEPTH + b_row, s.W_out, s.H_out);  // the next pixel to copy

    uint4 run[B_ROWS];
    auto copy = [&](int step) {
        unsigned char* to = shared + step % Of::STAGES * Of::STAGE;
#pragma unroll
        for (int r = 0; r < DEPTH; r += A_AT_ONCE) {
            bool inside = has_filter && r < left;
            copy_piece(to + place<Of::M>(a_row + r, a_piece),
                       dout + (inside ? a_begin + r * dout_pitch : 0), inside);
        }
        a_begin += DEPTH * dout_pitch, left -= DEPTH;
        to += Of::A_BYTES;
#pragma unroll
        for (int r = 0; r < B_ROWS; r++) {
            Pixel pixel = find_pixel(at, rows, cols, s.N);
            if (HOW == RUNS)
                run[r] = load_run(inp, pixel, tap.high * s.dilation_h, s.H, s.W, s.C,
                                  tap.low, tap.high < s.kH ? s.kW * s.C : 0);
            else
                copy_tap(to + place<Of::N>(b_row + r * B_AT_ONCE, b_piece), inp, pixel,
                         tap, rows, cols, pitch);
            at.advance(B_AT_ONCE, s.W_out, s.H_out);
        }
    };
    auto store_run = [&](int step) {
        unsigned char* to = shared + step % Of::STAGES * Of::STAGE;
#pragma unroll
        for (int r = 0; r < B_ROWS; r++) {
            unsigned offset = place<Of::N>(b_row + r * B_AT_ONCE, b_piece);
            *reinterpret_cast<uint4*>(to + Of::A_BYTES + offset) = run[r];
        }
    };
    int warp = threadIdx.x / 32, warp_row = warp / Of::WARPS_N * Of::WARP_M;
    int warp_col = warp % Of::WARPS_N * Of::WARP_N;
    unsigned A_at = __cvta_generic_to_shared(shared), B_at = A_at + Of::A_BYTES;
    A_at += fragment_place<true, Of::M, true>(warp_row);
    B_at += fragment_place<true, Of::N, false>(warp_col);
    typename Of::Sums acc = {};
    for (int i = -Of::AHEAD; i < steps; i++) {
        if (i >= 0) {
            wait_for_groups<Of::AHEAD - 1>();
            __syncthreads();  // a step has come, all have read the one before
        }
        bool copies = i + Of::AHEAD < steps;
        if (copies) copy(i + Of::AHEAD);
        end_group();
        if (i >= 0) {
            int stage = i % Of::STAGES * Of::STAGE;
            multiply<T, Of, true, true>(acc, A_at + stage, B_at + stage);
        }
        if (HOW == RUNS && copies) store_run(i + Of::AHEAD);
    }
    filter += warp_row, col += warp_col;
    int64_t line = (int64_t(rest) * s.groups + group) * s.C_out + filter;
    store_sums<Of>(partial + line * columns + col, acc, s.C_out - filter, columns - col,
                   columns, true, [](int r) { return int64_t(r); });
}

// out: (rows, cols) = the sum of partial: (splits, rows, pitch), and bias (cols). A
// thread adds up COUNT neighbours, of every blockDim.y-th split
template <typename T, int COUNT>
__global__ void conv2d_half_sum_kernel(T* out, const float* partial, const T* bias,
                                       int splits, int64_t rows, int cols, int pitch) {
    using Sums = Pack<float, COUNT>;
    __shared__ Sums shared[SUM_SIZE];
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i * COUNT / cols;
    int col = i * COUNT % cols;
    Sums sums = {};
    auto add = [&](const Sums& more) {
        for (int e = 0; e < COUNT; e++) sums.at[e] += more.at[e];
    };
    partial += row * pitch + col;
#pragma unroll 4
    for (int part = threadIdx.y; row < rows && part < splits; part += blockDim.y)
        add(*reinterpret_cast<const Sums*>(partial + part * rows * pitch));
    shared[threadIdx.y * blockDim.x + threadIdx.x] = sums;
    __syncthreads();  // all parts of the sums are there
    if (threadIdx.y > 0 || row >= rows) return;
    for (int y = 1; y < blockDim.y; y++) add(shared[y * blockDim.x + threadIdx.x]);
    Pack<T, COUNT> result;
    for (int e = 0; e < COUNT; e++)
        result.at[e] = T(sums.at[e] + (bias ? float(bias[col + e]) : 0.0f));
    *reinterpret_cast<Pack<T, COUNT>*>(out + i * COUNT) = result;
}

// out: (rows, width), inp: (rows, cols); zeros behind each row
template <typename T>
__global__ void conv2d_half_fill_kernel(T* out, const T* inp, int64_t rows, int cols,
                                        int width) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int col = i % width;
    if (i < rows * width) out[i] = col < cols ? inp[i / width * cols + col] : T(0);
}

// ---- sm_90: wgmma and TMA
#ifdef __CUDACC_VER_MAJOR__  // nvcc; other compilers do not know them
#include <cuda.h>

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int CONSUMERS = 2;    // warpgroups that multiply; two more warps copy
constexpr int BLOCK_SIZE = CONSUMERS * WARPGROUP + 64;
constexpr int SLAB = 64;        // channels of a window: 128 bytes
constexpr int LINE = SLAB * 2, BOX = 64 * LINE;
constexpr int MOST_STAGES = 8, MOST_TAPS = 128, MOST_CLASSES = 16, MOST_IMAGES = 4;

// A block makes a tile of ROWS places of a line times COLS channels of the result, each
// of its consumers UNITS times 64 places.
template <int COLS_, int UNITS_> struct Way {
    static constexpr int COLS = COLS_, UNITS = UNITS_, ROWS = CONSUMERS * UNITS * 64;
    static constexpr int WEIGHT = COLS * LINE;  // bytes of a tap's filters
    static constexpr int BLOCKS = COLS * UNITS > 128 ? 1 : 2;  // of a multiprocessor
};

// The pixels of the result as places on a line: row after row, image after image, at a
// pitch that leaves room for zeros. With W_out = 3, H_out = 2, taps 3 x 3 and a padding
// of 1 (o: a pixel, -: none)
//   out   o o o -  o o o -  - - - -  o o o -  o o o -  - - - -
//   inp   . . . .  . i i i  . i i i  . . . .  . i i i  . i i i  . . . .
// The zeros (.) on the right of a row of inp are those on the left of the next, an
// image's below those above the next. So a tap of place p meets place p + its shift of
// inp, for all places: the taps of a tile are one window in shared memory, read from
// other rows on. TMA fills windows in its im2col mode, which goes along such a line.
// What comes out at a - is not stored. A stride takes inp apart into as many images, of
// every stride-th pixel, each with a window and some of the taps. The gradient of inp
// has classes of pixels instead, each with some of the taps.
struct Tap { int shift, weight; };  // places; kh * kW + kw

struct Class {
    int windows, first_tap[MOST_IMAGES + 1];  // of each window, then the end
    int image[MOST_IMAGES];                   // of each window
    int rows, cols, first_row, first_col;     // of the result
};

struct Line {
    int N, H, W, step_h, step_w;  // of the result, steps in a class
    int pitch, height;            // places of a row, rows of an image
    int above, left;              // zeros before the first row and column
    int apart_h, apart_w;         // images that inp is taken apart into
    int places;                   // of a window
    int windows, weights;         // stages in shared memory
    int slabs, channels;          // of a sum, of the result
    int tiles, classes;
    Class at[MOST_CLASSES];
    Tap taps[MOST_TAPS];
};

struct Images { CUtensorMap at[MOST_IMAGES]; };

// A place of a line: column, row and image
struct Spot { int x, y, n; };

static __device__ Spot find_spot(const Line& l, int place) {
    int row = place / l.pitch, n = row / l.height;
    return {place - row * l.pitch, row - n * l.height, n};
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

// A window: places from pixel (x, y) of image n on, a slab of channels from c on
static __device__ void load_window(unsigned to, const CUtensorMap& map, Barrier& full,
                                   int c, int x, int y, int n) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier"
                 "::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %7};"
                 :: "r"(to), "l"(&map), "r"(shared_at(&full)), "r"(c), "r"(x), "r"(y),
                 "r"(n), "h"(uint16_t(0)) : "memory");
}

// A box of a tap of weight: channels from c on, filters from `filter` on
static __device__ void load_weight(unsigned to, const CUtensorMap& map, Barrier& full,
                                   int c, int tap, int filter) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier"
                 "::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 :: "r"(to), "l"(&map), "r"(shared_at(&full)), "r"(c), "r"(tap),
                 "r"(filter) : "memory");
}

// What wgmma is told of an operand: where it begins, and that 8 rows are 1,024 bytes.
// Its 16 bytes are swizzled by bits of their address, so that it may begin at any row.
// Rows that run across k are 64 columns, the next 64 are `apart` bytes away.
static __device__ uint64_t describe(unsigned at, int apart = 16) {
    return (at & 0x3ffff) >> 4 | uint64_t(apart >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

#define REGISTERS_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, " \
    "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
    "%29, %30, %31"
#define REGISTERS_64 REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
    "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_96 REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, " \
    "%73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS_128 REGISTERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
    "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define SUMS_64 SUMS_32(0), SUMS_32(32)
#define SUMS_96 SUMS_64, SUMS_32(64)
#define SUMS_128 SUMS_96, SUMS_32(96)
#define WGMMA(COLS, TYPE, REGISTERS, A, B, ACROSS_A, ACROSS_B, ...) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" COLS "k16.f32." TYPE " " \
                 REGISTERS "}, " A ", " B ", 1, 1, 1, " ACROSS_A ", " ACROSS_B ";" \
                 : __VA_ARGS__ : "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS))
#define WGMMA_OF(TYPE) \
    if constexpr (COLS == 8) \
        WGMMA("8", TYPE, "{%0, %1, %2, %3", "%4", "%5", "%6", "%7", "+f"(d[0]), \
              "+f"(d[1]), "+f"(d[2]), "+f"(d[3])); \
    else if constexpr (COLS == 64) \
        WGMMA("64", TYPE, REGISTERS_32, "%32", "%33", "%34", "%35", SUMS_32(0)); \
    else if constexpr (COLS == 128) \
        WGMMA("128", TYPE, REGISTERS_64, "%64", "%65", "%66", "%67", SUMS_64); \
    else if constexpr (COLS == 192) \
        WGMMA("192", TYPE, REGISTERS_96, "%96", "%97", "%98", "%99", SUMS_96); \
    else \
        WGMMA("256", TYPE, REGISTERS_128, "%128", "%129", "%130", "%131", SUMS_128)

// d: 64 rows, COLS columns += a b, 16 numbers along k; ACROSS: rows run across k
template <typename T, int COLS, bool A_ACROSS, bool B_ACROSS>
__device__ void wgmma(float (&d)[COLS / 2], uint64_t a, uint64_t b) {
    if constexpr (std::is_same_v<T, at::Half>) WGMMA_OF("f16.f16");
    else WGMMA_OF("bf16.bf16");
}

// the stages of both rings: bytes, and who says that they are full or empty
struct Stages {
    unsigned windows, weights;
    Barrier *window_full, *window_empty, *weight_full, *weight_empty;
};

// the windows of a tile, as soon as a stage is empty: one thread
static __device__ void bring_windows(const Stages& to, const Images& images,
                                     const Line& l, const Class& c, int first) {
    Spot spot = find_spot(l, first);
    Turn turn;
    for (int w = 0; w < c.windows; w++)
        for (int slab = 0; slab < l.slabs; slab++, turn.next(l.windows)) {
            to.window_empty[turn.stage].wait(turn.phase ^ 1);
            to.window_full[turn.stage].arrive_and_expect(l.places * LINE);
            load_window(to.windows + turn.stage * l.places * LINE,
                        images.at[c.image[w]], to.window_full[turn.stage], slab * SLAB,
                        spot.x - l.left, spot.y - l.above, spot.n);
        }
}

// the filters of each of their taps: another thread. BACK: weight lies across
template <int COLS, bool BACK>
__device__ void bring_weights(const Stages& to, const CUtensorMap& weight,
                              const Line& l, const Class& c, int col) {
    Turn turn;
    for (int w = 0; w < c.windows; w++)
        for (int slab = 0; slab < l.slabs; slab++)
            for (int i = c.first_tap[w]; i < c.first_tap[w + 1];
                 i++, turn.next(l.weights)) {
                Barrier& full = to.weight_full[turn.stage];
                unsigned at = to.weights + turn.stage * COLS * LINE;
                to.weight_empty[turn.stage].wait(turn.phase ^ 1);
                full.arrive_and_expect(COLS * LINE);
                int tap = l.taps[i].weight;
                if (!BACK) load_weight(at, weight, full, slab * SLAB, tap, col);
                for (int b = 0; BACK && b < COLS; b += 64)
                    load_weight(at + b * LINE, weight, full, col + b, tap, slab * SLAB);
            }
}

// d = a consumer's places, from `place` in its windows on, times COLS channels.
// wgmma goes on while the thread does: a stage may be given back only when the products
// that read it have ended, which is a tap late.
template <typename T, typename Of, bool BACK>
__device__ void multiply_tile(float (&d)[Of::UNITS][Of::COLS / 2], const Stages& from,
                              const Line& l, const Class& c, int place) {
    bool tells = threadIdx.x % WARPGROUP == 0;
    int read_window = -1, read_weight = -1;
    auto release = [&] {
        if (tells && read_weight >= 0) from.weight_empty[read_weight].arrive();
        if (tells && read_window >= 0) from.window_empty[read_window].arrive();
        read_window = -1;
    };
    Turn turn, weight;
    for (int w = 0; w < c.windows; w++)
        for (int slab = 0; slab < l.slabs; slab++, turn.next(l.windows)) {
            from.window_full[turn.stage].wait(turn.phase);
            unsigned window = from.windows + (turn.stage * l.places + place) * LINE;
            int end = c.first_tap[w + 1];
            for (int i = c.first_tap[w]; i < end; i++, weight.next(l.weights)) {
                unsigned A_at = window + l.taps[i].shift * LINE;
                unsigned B_at = from.weights + weight.stage * Of::WEIGHT;
                from.weight_full[weight.stage].wait(weight.phase);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < SLAB / 16; k++)
#pragma unroll
                    for (int u = 0; u < Of::UNITS; u++)
                        wgmma<T, Of::COLS, false, BACK>(
                            d[u], describe(A_at + u * BOX + k * 32),
                            BACK ? describe(B_at + k * 16 * LINE, BOX)
                                 : describe(B_at + k * 32));
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                release();
                read_weight = weight.stage;
            }
            read_window = turn.stage;
        }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// A consumer's sums, rounded. Element 4 j + 2 h + e of a lane is row lane / 4 + 8 h of
// its warp's 16, column 8 j + lane % 4 * 2 + e. pixels: of each row in out; -1: none

// of few channels, of no whole piece
template <typename T, typename Of>
__device__ void store_few(T* out, const int* pixels, float (&d)[Of::UNITS][4],
                          int channels) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
    for (int i = 0; i < Of::UNITS * 4; i++) {
        int col = lane % 4 * 2 + i % 2, row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
        int pixel = pixels[i / 4 * 64 + row];
        if (pixel >= 0 && col < channels)
            out[int64_t(pixel) * channels + col] = T(d[i / 4][i % 4]);
    }
}

// and bias, if there is one. By way of shared memory, so that a row leaves by 16 bytes
template <typename T, typename Of>
__device__ void store_units(T* out, unsigned char* shared, const int* pixels,
                            float (&d)[Of::UNITS][Of::COLS / 2], const T* bias, int col,
                            int channels) {
    int thread = threadIdx.x % WARPGROUP, lane = thread % 32, warp = thread / 32;
    int cols = channels - col;
#pragma unroll
    for (int j = 0; j < Of::COLS / 8; j += 2) {
        float more[4] = {};
        for (int i = 0; bias && i < 4; i++) {
            int at = (j + i / 2) * 8 + lane % 4 * 2 + i % 2;
            if (at < cols) more[i] = float(bias[col + at]);
        }
#pragma unroll
        for (int u = 0; u < Of::UNITS; u++) {
            int row = u * 64 + warp * 16 + lane % 16;
            unsigned packed[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* sums = d[u] + 4 * j + 2 * i;
                Pack<T, 2> two = {T(sums[0] + more[i / 2 * 2]),
                                  T(sums[1] + more[i / 2 * 2 + 1])};
                packed[i] = *reinterpret_cast<unsigned*>(&two);
            }
            unsigned at = shared_at(shared + place<Of::COLS>(row, j + lane / 16));
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], "
                         "{%1, %2, %3, %4};" :: "r"(at), "r"(packed[0]),
                         "r"(packed[1]), "r"(packed[2]), "r"(packed[3]) : "memory");
        }
    }
    asm volatile("bar.sync %0, 128;" :: "r"(2 + threadIdx.x / WARPGROUP) : "memory");
    constexpr int PIECES = Of::COLS / PIECE, AT_ONCE = WARPGROUP / PIECES;
    int piece = thread % PIECES;
    if (piece * PIECE >= cols) return;
    out += col + piece * PIECE;
#pragma unroll 4
    for (int r = thread / PIECES; r < Of::UNITS * 64; r += AT_ONCE) {
        int pixel = pixels[r];
        if (pixel >= 0)
            *reinterpret_cast<uint4*>(out + int64_t(pixel) * channels) =
                *reinterpret_cast<const uint4*>(shared + place<Of::COLS>(r, piece));
    }
}

// out: the convolution of images, or BACK, of its gradient dout, the gradient of inp. A
// block's last two warps copy, the others multiply; mbarriers are between them.
template <typename T, typename Of, bool BACK>
__global__ void __launch_bounds__(BLOCK_SIZE, Of::BLOCKS)
conv2d_half_wgmma_kernel(T* out, const T* bias, const __grid_constant__ Images images,
                         const __grid_constant__ CUtensorMap weight,
                         const __grid_constant__ Line l) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ Barrier barriers[4][MOST_STAGES];
    __shared__ int pixels[Of::ROWS];
    extern __shared__ unsigned char memory[];
    unsigned char* shared = memory + (1024 - shared_at(memory) % 1024) % 1024;
    unsigned windows = shared_at(shared);
    Stages stages = {windows, windows + l.windows * l.places * LINE, barriers[0],
                     barriers[1], barriers[2], barriers[3]};
    int across = cdiv(l.channels, Of::COLS), rest = blockIdx.x / across;
    int col = blockIdx.x % across * Of::COLS, first = rest % l.tiles * Of::ROWS;
    const Class& c = l.at[rest / l.tiles];
    if (threadIdx.x == 0) {
        for (int i = 0; i < MOST_STAGES; i++)
            for (int b = 0; b < 4; b++) barriers[b][i].init(b % 2 ? CONSUMERS : 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // all barriers are there before one is used
    int group = threadIdx.x / WARPGROUP;
    if (group == CONSUMERS) {
        if (threadIdx.x % WARPGROUP == 0) bring_windows(stages, images, l, c, first);
        if (threadIdx.x % WARPGROUP == 32)
            bring_weights<Of::COLS, BACK>(stages, weight, l, c, col);
    } else {
        for (int i = threadIdx.x; i < Of::ROWS; i += CONSUMERS * WARPGROUP) {
            auto [x, y, n] = find_spot(l, first + i);
            int at = (n * l.H + c.first_row + y * l.step_h) * l.W + c.first_col +
                     x * l.step_w;
            pixels[i] = n < l.N && y < c.rows && x < c.cols ? at : -1;
        }
        float d[Of::UNITS][Of::COLS / 2] = {};
        constexpr int PLACES = Of::UNITS * 64;
        multiply_tile<T, Of, BACK>(d, stages, l, c, group * PLACES);
        // all stages have been read: results take their place; all pixels are there
        asm volatile("bar.sync 1, %0;" :: "n"(CONSUMERS * WARPGROUP) : "memory");
        if constexpr (Of::COLS == PIECE)
            store_few<T, Of>(out, pixels + group * PLACES, d, l.channels);
        else
            store_units<T, Of>(out, shared + group * PLACES * Of::COLS * 2,
                               pixels + group * PLACES, d, bias, col, l.channels);
    }
#else
    __trap();  // convolve_wgmma sees that it was not built
#endif
}

// A block's part of the gradient of weight: a consumer adds up 64 filters times GROUPS
// times 64 columns, which are channels of a tap each (three consumers have nine taps),
// or, of one tap, 64 channels each (and two consumers have 64 filters each). TOGETHER:
// the same number of rows is between the columns' places, so that they are one operand.
template <int GROUPS_, bool TOGETHER_> struct Pile {
    static constexpr int GROUPS = GROUPS_;
    static constexpr bool TOGETHER = TOGETHER_, POINT = GROUPS == 4;
    static constexpr int CONSUMERS = POINT ? 2 : 3, FILTERS = POINT ? 2 : 1;
    static constexpr int SLABS = POINT ? 4 : 1, TAPS = POINT ? 1 : 9;
    static constexpr int BLOCK_SIZE = CONSUMERS * WARPGROUP + 32;
};

// What is brought at a step: boxes of 64 filters of dout, at `chunk` places; windows
struct Steps {
    int chunk, count, splits;      // places of a step; steps of all splits
    int images, stages, bytes;     // windows of a slab; bytes of a stage
    int channels, filters, taps;
    int apart;                     // bytes between columns that are TOGETHER
    int at[MOST_TAPS + 9];         // bytes, where a tap begins in the windows
    int tap_of[MOST_TAPS];         // kh * kW + kw
};

// d += what a consumer adds up of `count` steps; own: its first tap
template <typename T, typename Of>
__device__ void add_steps(float (&d)[Of::GROUPS * 32], Barrier* full, Barrier* empty,
                          unsigned first, const Steps& s, int own, int count) {
    int box = Of::POINT ? threadIdx.x / WARPGROUP * s.chunk * LINE : 0, read = -1;
    bool tells = threadIdx.x % WARPGROUP == 0;
    Turn turn;
    for (int i = 0; i < count; i++, turn.next(s.stages)) {
        unsigned A_at = first + turn.stage * s.bytes + box;
        unsigned B_at = first + turn.stage * s.bytes + Of::FILTERS * s.chunk * LINE;
        full[turn.stage].wait(turn.phase);
        for (int k = 0; k < s.chunk; k += 64) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int j = 0; j < 64; j += 16) {
                uint64_t a = describe(A_at + (k + j) * LINE);
                unsigned from = B_at + (k + j) * LINE;
                if constexpr (Of::TOGETHER) {
                    wgmma<T, Of::GROUPS * 64, true, true>(
                        d, a, describe(from + s.at[own], s.apart));
                } else {
#pragma unroll
                    for (int g = 0; g < Of::GROUPS; g++)
                        wgmma<T, 64, true, true>(
                            reinterpret_cast<float(&)[32]>(d[g * 32]), a,
                            describe(from + s.at[own + g]));
                }
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (tells && k == 0 && read >= 0) empty[read].arrive();
        }
        read = turn.stage;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// partial: (filters, taps, channels), of which a consumer has some, see add_steps
template <typename Of>
__device__ void store_part(float* partial, const float (&d)[Of::GROUPS * 32],
                           const Steps& s, int filter, int own, int channel) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    filter += warp * 16 + lane / 4, channel += lane % 4 * 2;
#pragma unroll
    for (int g = 0; g < Of::GROUPS; g++) {
        int tap = own + (Of::POINT ? 0 : g), c = channel + (Of::POINT ? g * SLAB : 0);
#pragma unroll
        for (int e = 0; e < 16; e++) {  // of 8 columns, a row and the one 8 further
            int f = filter + e % 2 * 8, col = c + e / 2 * 8;
            if (f >= s.filters || tap >= s.taps || col >= s.channels) continue;
            float2 two = {d[g * 32 + e * 2], d[g * 32 + e * 2 + 1]};
            int64_t row = int64_t(f) * s.taps + s.tap_of[tap];
            *reinterpret_cast<float2*>(partial + row * s.channels + col) = two;
        }
    }
}

// partial: (splits, C_out, taps, C), sums over a part of all places of dout times inp
template <typename T, typename Of>
__global__ void __launch_bounds__(Of::BLOCK_SIZE, 1)
conv2d_half_weight_wgmma_kernel(float* partial, const __grid_constant__ Images images,
                                const __grid_constant__ CUtensorMap dout,
                                const __grid_constant__ Line l,
                                const __grid_constant__ Steps s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ Barrier full[MOST_STAGES], empty[MOST_STAGES];
    extern __shared__ unsigned char memory[];
    unsigned first = shared_at(memory) + (1024 - shared_at(memory) % 1024) % 1024;
    int rest = blockIdx.x;
    auto next = [&](int count) {
        int at = rest % count;
        rest /= count;
        return at;
    };
    int channel = next(cdiv(s.channels, Of::SLABS * SLAB)) * Of::SLABS * SLAB;
    int filter = next(cdiv(s.filters, Of::FILTERS * 64)) * Of::FILTERS * 64;
    int tap = next(cdiv(s.taps, Of::TAPS)) * Of::TAPS;
    int begin = int64_t(s.count) * rest / s.splits;
    int end = int64_t(s.count) * (rest + 1) / s.splits;
    if (threadIdx.x == 0) {
        for (int i = 0; i < MOST_STAGES; i++)
            full[i].init(1), empty[i].init(Of::CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // all barriers are there before one is used
    int group = threadIdx.x / WARPGROUP;
    if (group < Of::CONSUMERS) {
        float d[Of::GROUPS * 32] = {};
        int own = tap + (Of::POINT ? 0 : group * Of::GROUPS);
        add_steps<T, Of>(d, full, empty, first, s, own, end - begin);
        filter += Of::POINT ? group * 64 : 0;
        partial += int64_t(rest) * s.filters * s.taps * s.channels;
        store_part<Of>(partial, d, s, filter, own, channel);
    } else if (threadIdx.x % 32 == 0) {
        Turn turn;
        for (int i = begin; i < end; i++, turn.next(s.stages)) {
            Spot spot = find_spot(l, i * s.chunk);
            unsigned to = first + turn.stage * s.bytes;
            empty[turn.stage].wait(turn.phase ^ 1);
            full[turn.stage].arrive_and_expect(s.bytes);
            for (int f = 0; f < Of::FILTERS; f++, to += s.chunk * LINE)
                load_window(to, dout, full[turn.stage], filter + f * 64, spot.x, spot.y,
                            spot.n);
            for (int w = 0; w < Of::SLABS * s.images; w++, to += l.places * LINE)
                load_window(to, images.at[Of::POINT ? 0 : w], full[turn.stage],
                            channel + (Of::POINT ? w * SLAB : 0), spot.x - l.left,
                            spot.y - l.above, spot.n);
        }
    }
#else
    __trap();  // sum_pixels_wgmma sees that it was not built
#endif
}

// out: (width, taps, C_out) = weight: (C_out, taps, C), of which C are not zeros
template <typename T>
__global__ void conv2d_half_turn_kernel(T* out, const T* weight, int C_out, int taps,
                                        int C, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = i / C_out / taps;
    if (c < width)
        out[i] = c < C ? weight[(i % C_out * taps + i / C_out % taps) * C + c] : T(0);
}

#endif


// ---- how a product is cut

// `times` products of rows times columns, their sums in steps of DEPTH
struct Product {
    int64_t rows, cols, times, steps;
    std::vector<int> tiles;  // of TILES, for which there are kernels
    bool in_parts;           // results are added up from parts, be it of one split
};

struct Cut {
    int tile, splits;
};

constexpr int TILES[3][2] = {{128, 128}, {128, 64}, {64, 64}};

static int64_t tiles_of(const Product& of, int M, int N) {
    return (of.rows + M - 1) / M * cdiv(of.cols, N) * of.times;
}

// The tile and the splits of least cost, in cycles of a multiprocessor. A model, its
// numbers are estimates: tensor cores take M N / 32 for a step, copies of its M + N
// rows hide but for half a cycle each; a step lasts 300 at least, until the next one's
// copies have come; a tile's first copies and its results are 4 steps more. Parts of
// sums are written and read, 16 bytes in a cycle, by one more launch, of 3,000.
static Cut find_cut(const Product& of, const Tensor& x) {
    int processors = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(
        &processors, cudaDevAttrMultiProcessorCount, x.get_device()));
    Cut best = {of.tiles[0], 1};
    int64_t least = INT64_MAX;
    for (int tile : of.tiles) {
        int64_t M = TILES[tile][0], N = TILES[tile][1];
        int64_t tiles = tiles_of(of, M, N);
        TORCH_CHECK(tiles <= INT_MAX, "conv2d_half: expected up to 2^31 blocks, got ",
                    tiles, " tiles of ", M, " x ", N);
        int64_t most = std::clamp<int64_t>(of.steps, 1, 512);
        most = std::min(most, INT_MAX / tiles);
        for (int splits = 1; splits <= most; splits += std::max(1, splits / 4)) {
            int64_t each = (tiles * splits + processors - 1) / processors;
            int64_t step = std::max<int64_t>(each * (M * N / 32 + (M + N) / 2), 300);
            int64_t cost = step * ((of.steps + splits - 1) / splits + 4);
            if (splits > 1 || of.in_parts)
                cost += splits * of.rows * of.cols * of.times / 2 / processors + 3000;
            if (cost < least) least = cost, best = {tile, splits};
        }
    }
    return best;
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

// x has to be of this shape (-1: any size), in channels_last unless one-dimensional, of
// the type and on the GPU of `like`
static void check_input(const char* name, const Tensor& x, torch::IntArrayRef shape,
                        const Tensor& like) {
    auto type = x.scalar_type();
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t d = 0; fits && d < x.dim(); d++)
        fits = shape[d] == -1 || shape[d] == x.size(d);
    bool dense = x.dim() == 1 ? x.is_contiguous() : is_channels_last(x);
    bool half = type == torch::kFloat16 || type == torch::kBFloat16;
    TORCH_CHECK(fits && dense && half && x.is_cuda() && x.device() == like.device(),
                name, ": expected float16 or bfloat16 in channels_last on one CUDA "
                "device, shape ", shape, ", got ", type, " on ", x.device(), ", shape ",
                x.sizes(), ", strides ", x.strides());
}

static void check_types(const char* function, const Tensor& x, const Tensor& y) {
    TORCH_CHECK(x.scalar_type() == y.scalar_type(), function, ": expected tensors of "
                "one type, got ", x.scalar_type(), " and ", y.scalar_type());
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
    int64_t most = (C_out + groups * PIECE) * kH * kW * (C / groups + PIECE);
    TORCH_CHECK(std::max(most, wide * C) <= INT_MAX - 256, "weight: expected less than "
                "2^31 numbers, 8 more channels and filters a group counted, and in a "
                "row of an image, got ", C, " to ", C_out, " channels, ", kH, " x ", kW,
                " taps, rows of ", W, " pixels");
    return {int(N), int(C / groups), int(H), int(W), int(C_out / groups), int(H_out),
            int(W_out), int(kH), int(kW), int(groups), int(stride[0]), int(stride[1]),
            int(padding[0]), int(padding[1]), int(dilation[0]), int(dilation[1])};
}

static Tensor empty_images(int64_t N, int64_t C, int64_t H, int64_t W,
                           const Tensor& like) {
    return torch::empty({N, H, W, C}, like.options()).transpose(1, 3).transpose(2, 3);
}

static Tensor empty_parts(int64_t size, const Tensor& like) {
    return torch::empty({size}, like.options().dtype(torch::kFloat32));
}

// a group's channels in memory, where they are filled up
static int filled(int64_t n) { return round_up(std::max<int64_t>(n, 1)); }

// x, as rows of cols numbers, or where these are not pieces of 16 bytes, a copy of it
template <typename T>
static Tensor fill_up(const Tensor& x, int64_t rows, int64_t cols) {
    int width = filled(cols);
    if (width == cols && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0) return x;
    Tensor out = torch::empty({rows, width}, x.options());
    int64_t blocks = (out.numel() + 255) / 256;
    TORCH_CHECK(blocks <= INT_MAX, "conv2d_half: expected less than 2^39 numbers to "
                "copy, got ", out.numel());
    conv2d_half_fill_kernel<<<blocks, 256, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), x.data_ptr<T>(), rows, int(cols), width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// of few channels: see Pixel
static bool has_runs(const Shape& s) {
    return s.C % PIECE && s.groups == 1 && s.dilation_w == 1;
}

// out = the sum of partial: (splits, rows, pitch)
template <typename T, int COUNT>
static void add_up(const Tensor& out, const Tensor& partial, const T* bias, int splits,
                   int64_t rows, int cols, int pitch) {
    int deep = 1;  // threads for a sum
    while (deep < 16 && deep * 2 <= splits) deep *= 2;
    int64_t blocks = (rows * cols / COUNT * deep + SUM_SIZE - 1) / SUM_SIZE;
    TORCH_CHECK(blocks <= INT_MAX, "conv2d_half: expected less than 2^35 numbers, got ",
                out.sizes());
    conv2d_half_sum_kernel<T, COUNT>
        <<<blocks, dim3(SUM_SIZE / deep, deep), 0, getCurrentCUDAStream()>>>(
            out.data_ptr<T>(), partial.data_ptr<float>(), bias, splits, rows, cols,
            pitch);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
static void add_up(const Tensor& out, const Tensor& partial, const T* bias, int splits,
                   int64_t rows, int cols, int pitch) {
    auto add = cols % 4 || pitch % 4 ? add_up<T, 1> : add_up<T, 4>;
    add(out, partial, bias, splits, rows, cols, pitch);
}

#ifdef __CUDACC_VER_MAJOR__
static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

// NVIDIA's driver's function of this name
static void* driver_function(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult state;
#if CUDART_VERSION >= 12050
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000,
                                                    cudaEnableDefault, &state));
#else
    C10_CUDA_CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &state));
#endif
    TORCH_CHECK(found && state == cudaDriverEntryPointSuccess, "conv2d_half: expected "
                "NVIDIA's driver for CUDA 12 or later, got one without ", name);
    return found;
}

// TMA's view of images (N, H, W, C), of every stride-th pixel from (y, x) on, as a line
static CUtensorMap map_images(const Tensor& images, int stride_h, int stride_w, int y,
                              int x, const Line& l, int places) {
    int C = images.size(1), H = images.size(2), W = images.size(3);
    static auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(
        driver_function("cuTensorMapEncodeIm2col"));
    auto first = static_cast<char*>(images.data_ptr()) + (int64_t(y) * W + x) * C * 2;
    int cols = cdiv(W - x, stride_w), rows = cdiv(H - y, stride_h);
    cuuint64_t pixel = C * 2, row = pixel * W;
    cuuint64_t sizes[] = {cuuint64_t(C), cuuint64_t(cols), cuuint64_t(rows),
                          cuuint64_t(l.N)};
    cuuint64_t strides[] = {pixel * stride_w, row * stride_h, row * H};
    int before[] = {-l.left, -l.above};
    int behind[] = {l.pitch - l.left - cols, l.height - l.above - rows};
    cuuint32_t steps[] = {1, 1, 1, 1};
    CUtensorMap map;
    auto result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4,
                         first, sizes, strides, before, behind, SLAB, places, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE,
                         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeIm2col: error ", int(result));
    return map;
}

// TMA's view of weight (C_out, taps, C), in boxes of a slab of channels
static CUtensorMap map_weight(const Tensor& weight, int C, int taps, int C_out,
                              int filters) {
    static auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        driver_function("cuTensorMapEncodeTiled"));
    cuuint64_t sizes[] = {cuuint64_t(C), cuuint64_t(taps), cuuint64_t(C_out)};
    cuuint64_t strides[] = {sizes[0] * 2, sizes[0] * sizes[1] * 2};
    cuuint32_t box[] = {SLAB, 1, cuuint32_t(filters)}, steps[] = {1, 1, 1};
    CUtensorMap map;
    auto result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3,
                         weight.data_ptr(), sizes, strides, box, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

static bool suits_tma(const Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
}

// Where the taps of an axis meet its source: tap j at pixel i + shift of image `image`
// of `stride` that the source is taken apart into
struct Meeting { int image, shift; };

static Meeting meeting(const Axis& axis, int j) {
    int at = j * axis.dilation + axis.offset;
    int image = (at % axis.stride + axis.stride) % axis.stride;
    return {image, (at - image) / axis.stride};
}

// The line of a convolution (or BACK, of the gradient of inp), but for what depends on
// tiles; false where there is none: too many taps or images, too much padding for TMA
static bool lay_out(Line& l, const Shape& s, bool back) {
    int down = back ? std::min(s.stride_h, s.H) : 1;  // classes
    int across = back ? std::min(s.stride_w, s.W) : 1;
    bool strided = s.stride_h > 1 || s.stride_w > 1;
    if (s.stride_h * s.stride_w > (back ? MOST_CLASSES : MOST_IMAGES) ||
        s.kH * s.kW > MOST_TAPS ||
        (strided && !back && (s.H < s.stride_h || s.W < s.stride_w)))
        return false;
    auto axes = [&](int c) {
        int y = c / across, x = c % across;
        return back ? std::pair(backward_axis(s.H, s.H_out, s.kH, s.stride_h,
                                              s.padding_h, s.dilation_h, y),
                                backward_axis(s.W, s.W_out, s.kW, s.stride_w,
                                              s.padding_w, s.dilation_w, x))
                    : std::pair(forward_axis(s.H, s.H_out, s.kH, s.stride_h,
                                             s.padding_h, s.dilation_h),
                                forward_axis(s.W, s.W_out, s.kW, s.stride_w,
                                             s.padding_w, s.dilation_w));
    };
    l = {};
    l.N = s.N, l.H = back ? s.H : s.H_out, l.W = back ? s.W : s.W_out;
    l.step_h = back ? s.stride_h : 1, l.step_w = back ? s.stride_w : 1;
    l.apart_h = back ? 1 : s.stride_h, l.apart_w = back ? 1 : s.stride_w;
    l.slabs = cdiv(back ? s.C_out : s.C, SLAB), l.channels = back ? s.C : s.C_out;
    l.classes = down * across;
    for (int c = 0; c < l.classes; c++) {  // zeros before
        auto [rows, cols] = axes(c);
        for (int j = 0; j < rows.taps; j++)
            l.above = std::max(l.above, -meeting(rows, j).shift);
        for (int j = 0; j < cols.taps; j++)
            l.left = std::max(l.left, -meeting(cols, j).shift);
    }
    for (int c = 0; c < l.classes; c++) {  // and behind: pixels of no class read there
        auto [rows, cols] = axes(c);
        l.height = std::max(l.height, cdiv(rows.size, rows.stride) + l.above);
        l.pitch = std::max(l.pitch, cdiv(cols.size, cols.stride) + l.left);
        for (int j = 0; j < std::max(rows.taps, 1); j++)
            l.height = std::max(l.height,
                                rows.count + std::max(0, meeting(rows, j).shift));
        for (int j = 0; j < std::max(cols.taps, 1); j++)
            l.pitch = std::max(l.pitch,
                               cols.count + std::max(0, meeting(cols, j).shift));
    }
    int taps = 0;
    for (int c = 0; c < l.classes; c++) {
        auto [rows, cols] = axes(c);
        Class& to = l.at[c];
        to.rows = rows.count, to.cols = cols.count;
        to.first_row = rows.first, to.first_col = cols.first;
        for (int image = 0; image < rows.stride * cols.stride; image++) {
            to.first_tap[to.windows] = taps;
            for (int i = 0; i < rows.taps; i++)
                for (int j = 0; j < cols.taps; j++) {
                    Meeting y = meeting(rows, i), x = meeting(cols, j);
                    if (y.image * cols.stride + x.image != image) continue;
                    int shift = (y.shift + l.above) * l.pitch + x.shift + l.left;
                    int kh = rows.first_tap + i * rows.tap_step;
                    int kw = cols.first_tap + j * cols.tap_step;
                    l.taps[taps++] = {shift, kh * s.kW + kw};
                    l.places = std::max(l.places, shift);
                }
            if (taps > to.first_tap[to.windows]) to.image[to.windows++] = image;
            to.first_tap[to.windows] = taps;
        }
    }
    auto count = [](const Class& c) { return c.first_tap[c.windows] - c.first_tap[0]; };
    std::sort(l.at, l.at + l.classes,  // long ones first
              [&](const Class& a, const Class& b) { return count(a) > count(b); });
    int H = back ? s.H_out : s.H, W = back ? s.W_out : s.W;  // of the source
    int behind = std::max(l.height - l.above - H / l.apart_h,
                          l.pitch - l.left - W / l.apart_w);
    int64_t image = int64_t(l.height) * l.pitch;  // of which less than half is zeros
    return std::max({l.above, l.left, behind}) < 128 &&
           image * l.classes <= 2 * int64_t(l.H) * l.W &&
           l.N * image < INT_MAX - 4096;
}

// The line's tiles, and what fits into shared memory; false where nothing does
template <typename Of> static bool fit(Line& l, const Tensor& x, int64_t& bytes) {
    int span = l.places;
    l.places = cdiv(Of::ROWS + span, 8) * 8;
    l.tiles = cdiv(int64_t(l.N) * l.height * l.pitch, Of::ROWS);
    int64_t all = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, x);
    int64_t window = int64_t(l.places) * LINE;
    int windows = 1, taps = 1;  // of a tile at most
    for (const Class& c : l.at) {
        windows = std::max(windows, c.windows * l.slabs);
        taps = std::max(taps, (c.first_tap[c.windows] - c.first_tap[0]) * l.slabs);
    }
    int each = cdiv(taps, windows);  // taps of a window
    for (int blocks = Of::BLOCKS; blocks > 0; blocks--) {
        // less the system's, what comes before the stages, barriers, pixels
        int64_t most = all / blocks - 1024 - 1024 - 256 - 4 * Of::ROWS;
        l.windows = std::min(windows, 2), l.weights = std::min(taps, 3);
        auto size = [&] { return l.windows * window + l.weights * Of::WEIGHT; };
        if (size() > most) continue;
        int most_windows = std::min(windows, MOST_STAGES);
        int most_weights = std::min(taps, MOST_STAGES);
        while (true) {  // a window more for so many taps more
            bool for_weight = l.weights < std::min(most_weights, 2 + l.windows * each);
            int& more = for_weight || l.windows == most_windows ? l.weights : l.windows;
            if (more == (&more == &l.weights ? most_weights : most_windows)) break;
            more++;
            if (size() > most) { more--; break; }
        }
        bytes = 1024 + std::max<int64_t>(size(), Of::ROWS * Of::COLS * 2);
        return l.places <= 1024;
    }
    return false;
}

// Whether the build has wgmma; where a GPU has it, too, it is said once that not
template <typename T> static bool is_built(const Tensor& x) {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(
        &built, conv2d_half_wgmma_kernel<T, Way<128, 1>, false>));
    if (built.sharedSizeBytes == 0) {
        if (attribute(cudaDevAttrComputeCapabilityMajor, x) == 9)
            TORCH_WARN_ONCE("conv2d_half: built without sm_90a, so without wgmma; pass "
                            "nvcc -gencode=arch=compute_90a,code=sm_90a");
        return false;
    }
    return true;
}

// out: see lay_out for l; weight: as the kernel wants it
template <typename T, typename Of, bool ACROSS>
static bool launch_wgmma(const Tensor& out, const Tensor& inp, const T* bias,
                         const CUtensorMap& weight, Line l) {
    int64_t bytes;
    if (!fit<Of>(l, out, bytes)) return false;
    int64_t grid = int64_t(l.tiles) * l.classes * cdiv(l.channels, Of::COLS);
    if (grid * 2 < attribute(cudaDevAttrMultiProcessorCount, out)) return false;
    auto kernel = conv2d_half_wgmma_kernel<T, Of, ACROSS>;
    Images images;
    for (int i = 0; i < l.apart_h * l.apart_w; i++)
        images.at[i] = map_images(inp, l.apart_h, l.apart_w, i / l.apart_w,
                                  i % l.apart_w, l, l.places);
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<grid, BLOCK_SIZE, bytes, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), bias, images, weight, l);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return true;
}

// Whether it did: in a build with wgmma, for one group and channels in 16 bytes; the
// gradient of inp also for few channels
template <typename T, bool BACK>
static bool convolve_wgmma(const Tensor& out, const Tensor& inp, const Tensor& weight,
                           const T* bias, const Shape& s) {
    Line l;
    // slabs that are filled up with more zeros than channels are slow
    int depth = BACK ? s.C_out : s.C;
    bool few = BACK && s.C <= PIECE;
    bool suits = s.groups == 1 && (few || s.C % PIECE == 0) && s.C_out % PIECE == 0 &&
                 depth * 2 >= SLAB && suits_tma(out) && suits_tma(inp) &&
                 (few || suits_tma(weight)) && inp.numel() > 0;
    if (!suits || !lay_out(l, s, BACK) || !is_built<T>(out)) return false;
    int taps = s.kH * s.kW;
    if (few) {
        Tensor turned = torch::empty({PIECE, taps, s.C_out}, out.options());
        conv2d_half_turn_kernel<<<cdiv(turned.numel(), 256), 256, 0,
                                  getCurrentCUDAStream()>>>(
            turned.data_ptr<T>(), weight.data_ptr<T>(), s.C_out, taps, s.C, PIECE);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return launch_wgmma<T, Way<8, 4>, false>(
            out, inp, bias, map_weight(turned, s.C_out, taps, PIECE, PIECE), l);
    }
    auto boxes = [&](int filters) {
        return map_weight(weight, s.C, taps, s.C_out, BACK ? 64 : filters);
    };
    if (l.channels <= 64)
        return launch_wgmma<T, Way<64, 2>, BACK>(out, inp, bias, boxes(64), l);
    // of one tap: tiles twice as high, which read filters half as often, if these keep
    // multiprocessors as busy
    int64_t places = int64_t(l.N) * l.height * l.pitch;
    int64_t tiles = cdiv(places, 128) * int64_t(cdiv(l.channels, 128)) * l.classes;
    int processors = attribute(cudaDevAttrMultiProcessorCount, out);
    if (taps == 1 && tiles > processors && tiles <= 2 * processors)
        return launch_wgmma<T, Way<128, 2>, BACK>(out, inp, bias, boxes(128), l);
    return launch_wgmma<T, Way<128, 1>, BACK>(out, inp, bias, boxes(128), l);
}

template <typename T, typename Of>
static bool launch_weight_wgmma(const Tensor& dweight, const Tensor& dout,
                                const Tensor& inp, const Shape& s, Line l, Steps of) {
    auto kernel = conv2d_half_weight_wgmma_kernel<T, Of>;
    int64_t all = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, dweight) - 2048;
    int processors = attribute(cudaDevAttrMultiProcessorCount, dweight);
    of.images = Of::POINT ? 1 : l.apart_h * l.apart_w;
    int span = l.places, windows = Of::SLABS * of.images;
    for (of.chunk = Of::POINT ? 64 : 128; of.chunk >= 64; of.chunk -= 64) {
        l.places = cdiv(of.chunk + span, 8) * 8;
        of.bytes = (Of::FILTERS * of.chunk + windows * l.places) * LINE;
        of.stages = std::min<int64_t>(all / of.bytes, MOST_STAGES);
        if (of.stages >= 2) break;
    }
    if (of.stages < 2 || l.places > 1024) return false;
    const Class& c = l.at[0];
    for (int w = 0; w < c.windows; w++)
        for (int i = c.first_tap[w]; i < c.first_tap[w + 1]; i++) {
            of.at[i] = (c.image[w] * l.places + l.taps[i].shift) * LINE;
            of.tap_of[i] = l.taps[i].weight;
        }
    of.apart = Of::POINT ? l.places * LINE : of.taps > 1 ? of.at[1] - of.at[0] : 0;
    of.count = cdiv(int64_t(l.N) * l.height * l.pitch, of.chunk);
    int64_t tiles = int64_t(cdiv(s.C, Of::SLABS * SLAB)) *
                    cdiv(s.C_out, Of::FILTERS * 64) * cdiv(of.taps, Of::TAPS);
    double least = 0;  // clocks: a step's products, a block's beginning and end
    for (int splits = 1; splits <= std::min(of.count, 2 * processors); splits++) {
        double clocks = cdiv(tiles * splits, processors) *
                        (cdiv(of.count, splits) * of.chunk * 24.0 + 6000) +
                        dweight.numel() * 8.0 * splits / processors / 14;
        if (splits == 1 || clocks < least) least = clocks, of.splits = splits;
    }
    Images images;
    for (int i = 0; i < of.images; i++)
        images.at[i] = map_images(inp, l.apart_h, l.apart_w, i / l.apart_w,
                                  i % l.apart_w, l, l.places);
    Line plain = l;  // of dout: pixels begin where the line does
    plain.left = plain.above = 0;
    CUtensorMap dout_map = map_images(dout, 1, 1, 0, 0, plain, of.chunk);
    Tensor partial = empty_parts(of.splits * dweight.numel(), dweight);
    int64_t bytes = 1024 + int64_t(of.stages) * of.bytes;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<tiles * of.splits, Of::BLOCK_SIZE, bytes, getCurrentCUDAStream()>>>(
        partial.data_ptr<float>(), images, dout_map, l, of);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    add_up<T>(dweight, partial, nullptr, of.splits, dweight.numel() / s.C, s.C, s.C);
    return true;
}

template <typename T>
static bool sum_pixels_wgmma(const Tensor& dweight, const Tensor& dout,
                             const Tensor& inp, const Shape& s) {
    Line l;
    bool suits = s.groups == 1 && s.C % PIECE == 0 && s.C_out % PIECE == 0;
    if (!suits || !suits_tma(dout) || !suits_tma(inp) || !lay_out(l, s, false) ||
        std::max(l.pitch - s.W_out, l.height - s.H_out) > 127 || !is_built<T>(dout))
        return false;
    Steps of = {};
    of.channels = s.C, of.filters = s.C_out, of.taps = s.kH * s.kW;
    int64_t slab = of.taps == 1 ? 4 * SLAB : SLAB, taps = of.taps == 1 ? 1 : 9;
    int64_t columns = cdiv(s.C, slab) * slab * cdiv(of.taps, taps) * taps;
    if (columns > 3 * int64_t(s.C) * of.taps) return false;  // mostly zeros: slow
    if (of.taps == 1)
        return launch_weight_wgmma<T, Pile<4, true>>(dweight, dout, inp, s, l, of);
    bool together = of.taps % 3 == 0 && s.stride_h * s.stride_w == 1;
    int step = l.taps[1].shift - l.taps[0].shift;
    for (int i = 0; together && i < of.taps; i++)
        if (i % 3) together = l.taps[i].shift - l.taps[i - 1].shift == step;
    if (together)
        return launch_weight_wgmma<T, Pile<3, true>>(dweight, dout, inp, s, l, of);
    return launch_weight_wgmma<T, Pile<3, false>>(dweight, dout, inp, s, l, of);
}
#endif

template <typename T, How HOW, typename Of>
static void launch(const Tensor& out, const Tensor& inp, const Tensor& weight,
                   const T* bias, const Shape& s, int depth, const Product& product,
                   int splits) {
    int64_t tiles = tiles_of(product, Of::M, Of::N);
    int64_t rows = out.numel() / out.size(1);
    Tensor partial = empty_parts(splits > 1 ? splits * out.numel() : 0, out);
    constexpr int BYTES = Of::STAGES * Of::STAGE;
    conv2d_half_kernel<T, HOW, Of>
        <<<tiles * splits, Of::THREADS, BYTES, getCurrentCUDAStream()>>>(
            out.data_ptr<T>(), partial.data_ptr<float>(), inp.data_ptr<T>(),
            weight.data_ptr<T>(), bias, s, depth, splits);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (splits > 1)
        add_up<T>(out, partial, bias, splits, rows, out.size(1), out.size(1));
}

template <typename T, How HOW>
static void convolve(const Tensor& out, const Tensor& inp, const Tensor& weight,
                     const T* bias, const Shape& s, int depth) {
    bool back = HOW == BACKWARD;
    int64_t down = back ? std::min(s.stride_h, s.H) : 1;  // classes
    int64_t across = back ? std::min(s.stride_w, s.W) : 1;
    int64_t high = back ? cdiv(s.H, down) : s.H_out;  // of the largest class
    int64_t wide = back ? cdiv(s.W, across) : s.W_out;
    int64_t sum = int64_t(s.kH) * (HOW == RUNS ? 1 : s.kW) * depth;
    Product product = {s.N * high * wide, back ? s.C : s.C_out,
                       down * across * s.groups,
                       cdiv(cdiv(sum, down * across), DEPTH), {0, 1, 2}, false};
    if (HOW == RUNS) product.tiles = {1};
    auto [tile, splits] = find_cut(product, inp);
    if constexpr (HOW != RUNS) {
        if (tile == 0)
            return launch<T, HOW, Tile<128, 128>>(out, inp, weight, bias, s, depth,
                                                  product, splits);
        if (tile == 2)
            return launch<T, HOW, Tile<64, 64>>(out, inp, weight, bias, s, depth,
                                                product, splits);
    }
    launch<T, HOW, Tile<128, 64>>(out, inp, weight, bias, s, depth, product, splits);
}

template <typename T>
static void forward(const Tensor& out, const Tensor& inp, const Tensor& weight,
                    const Tensor& bias, const Shape& s) {
    const T* add = bias.numel() ? bias.data_ptr<T>() : nullptr;
    int64_t filters = int64_t(s.groups) * s.C_out;
    if (has_runs(s)) {
        int run = s.kW * s.C;
        Tensor runs = fill_up<T>(weight, filters * s.kH, run);
        return convolve<T, RUNS>(out, inp, runs, add, s, filled(run));
    }
#ifdef __CUDACC_VER_MAJOR__
    if (convolve_wgmma<T, false>(out, inp, weight, add, s)) return;
#endif
    int64_t pixels = int64_t(s.N) * s.H * s.W;
    convolve<T, FORWARD>(out, fill_up<T>(inp, pixels * s.groups, s.C),
                         fill_up<T>(weight, filters * s.kH * s.kW, s.C), add, s,
                         filled(s.C));
}

template <typename T>
static void backward_input(const Tensor& dinp, const Tensor& dout, const Tensor& weight,
                           const Shape& s) {
#ifdef __CUDACC_VER_MAJOR__
    if (convolve_wgmma<T, true>(dinp, dout, weight, nullptr, s)) return;
#endif
    int64_t pixels = int64_t(s.N) * s.H_out * s.W_out;
    int64_t taps = int64_t(s.groups) * s.C_out * s.kH * s.kW;
    convolve<T, BACKWARD>(dinp, fill_up<T>(dout, pixels * s.groups, s.C_out),
                          fill_up<T>(weight, taps, s.C), nullptr, s, filled(s.C_out));
}

template <typename T, How HOW, typename Of>
static void launch_weight(const Tensor& partial, const Tensor& dout, const Tensor& inp,
                          const Shape& s, int depth, const Product& product,
                          int splits) {
    int64_t tiles = tiles_of(product, Of::M, Of::N);
    constexpr int BYTES = Of::STAGES * Of::STAGE;
    conv2d_half_backward_weight_kernel<T, HOW, Of>
        <<<tiles * splits, Of::THREADS, BYTES, getCurrentCUDAStream()>>>(
            partial.data_ptr<float>(), dout.data_ptr<T>(), inp.data_ptr<T>(), s, depth,
            splits);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T, How HOW>
static void sum_pixels(const Tensor& dweight, const Tensor& dout, const Tensor& inp,
                       const Shape& s) {
    int cols = HOW == RUNS ? s.kW * s.C : s.C, depth = filled(cols);
    int64_t rows = dweight.numel() / cols, filters = int64_t(s.groups) * s.C_out;
    int64_t pixels = int64_t(s.N) * s.H_out * s.W_out;
    Product product = {s.C_out, rows / filters * depth, s.groups, cdiv(pixels, DEPTH),
                       {0, 2}, true};
    auto [tile, splits] = find_cut(product, inp);
    Tensor partial = empty_parts(splits * rows * depth, dweight);
    Tensor whole = fill_up<T>(dout, pixels * s.groups, s.C_out);
    auto launch = launch_weight<T, HOW, Tile<64, 64>>;
    if (tile == 0) launch = launch_weight<T, HOW, Tile<128, 128>>;
    launch(partial, whole, inp, s, depth, product, splits);
    add_up<T>(dweight, partial, nullptr, splits, rows, cols, depth);
}

template <typename T>
static void backward_weight(const Tensor& dweight, const Tensor& dout,
                            const Tensor& inp, const Shape& s) {
    if (has_runs(s)) return sum_pixels<T, RUNS>(dweight, dout, inp, s);
#ifdef __CUDACC_VER_MAJOR__
    if (sum_pixels_wgmma<T>(dweight, dout, inp, s)) return;
#endif
    int64_t pixels = int64_t(s.N) * s.H * s.W;
    sum_pixels<T, FORWARD>(dweight, dout, fill_up<T>(inp, pixels * s.groups, s.C), s);
}

Tensor conv2d_half_forward(Tensor inp, Tensor weight, Tensor bias,
                           std::vector<int64_t> stride, std::vector<int64_t> padding,
                           std::vector<int64_t> dilation, int64_t groups) {
    check_types("conv2d_half_forward", inp, weight);
    check_types("conv2d_half_forward", inp, bias);
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
    if (inp.scalar_type() == torch::kFloat16)
        forward<at::Half>(out, inp, weight, bias, s);
    else
        forward<at::BFloat16>(out, inp, weight, bias, s);
    return out;
}

// H, W: of inp
Tensor conv2d_half_backward_input(Tensor dout, Tensor weight, int64_t H, int64_t W,
                                  std::vector<int64_t> stride,
                                  std::vector<int64_t> padding,
                                  std::vector<int64_t> dilation, int64_t groups) {
    check_types("conv2d_half_backward_input", dout, weight);
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    int64_t C_out = dout.size(1);
    check_input("weight", weight, {C_out, -1, -1, -1}, dout);
    check_groups(groups, C_out, C_out);
    int64_t C = weight.size(1) * groups;
    Shape s = shape_of(dout.size(0), C, H, W, C_out, weight.size(2), weight.size(3),
                       stride, padding, dilation, groups);
    check_input("dout", dout, {s.N, C_out, s.H_out, s.W_out}, dout);
    CUDAGuard guard(dout.device());
    Tensor dinp = empty_images(s.N, C, H, W, dout);
    if (dinp.numel() == 0) return dinp;
    if (dout.numel() == 0) return dinp.zero_();
    if (dout.scalar_type() == torch::kFloat16)
        backward_input<at::Half>(dinp, dout, weight, s);
    else
        backward_input<at::BFloat16>(dinp, dout, weight, s);
    return dinp;
}

Tensor conv2d_half_backward_weight(Tensor dout, Tensor inp, int64_t kH, int64_t kW,
                                   std::vector<int64_t> stride,
                                   std::vector<int64_t> padding,
                                   std::vector<int64_t> dilation, int64_t groups) {
    check_types("conv2d_half_backward_weight", dout, inp);
    check_input("dout", dout, {-1, -1, -1, -1}, dout);
    check_input("inp", inp, {dout.size(0), -1, -1, -1}, dout);
    int64_t C_out = dout.size(1);
    check_groups(groups, inp.size(1), C_out);
    Shape s = shape_of(inp.size(0), inp.size(1), inp.size(2), inp.size(3), C_out, kH,
                       kW, stride, padding, dilation, groups);
    check_input("dout", dout, {s.N, C_out, s.H_out, s.W_out}, dout);
    CUDAGuard guard(inp.device());
    Tensor dweight = empty_images(C_out, s.C, kH, kW, inp);
    if (dweight.numel() == 0) return dweight;
    if (dout.numel() == 0) return dweight.zero_();
    if (dout.scalar_type() == torch::kFloat16)
        backward_weight<at::Half>(dweight, dout, inp, s);
    else
        backward_weight<at::BFloat16>(dweight, dout, inp, s);
    return dweight;
}
