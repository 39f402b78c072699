// kernels/linear.cu
// SPDX-License-Identifier: MIT
// Linear layers of networks, with what follows them: out = epilogue(inp @ weight^T +
// bias). inp: (M, K), weight: (N, K), out: (M, N), bias: (N), or (0) for none; float16
// or bfloat16, contiguous, added up in float32, rounded once, at the end. Any M, N and
// K up to 2^30; made for M up to 512. Epilogues: none; GELU, exact or by tanh; residual
// (M, N), added; SiLU(gate) * up of a weight (2 N, K), the rows of gate first, those of
// up below them, with bias (2 N) or (0). NaN and infinity as in PyTorch.
// Floors: the weights are 2 N K bytes, read once for up to 16 rows: 4096 x 4096 are
// 33.6 MB, 10.0 us at 3.35 TB/s, 4096 x 11008 are 90.2 MB, 26.9 us. 2 M N K FLOPs take
// as long from M = FLOP/s / (bytes/s) on: 300 rows at an H100's peak, 120 at the 400
// TFLOP/s that mma.sync gives there. Scratch memory: float32 sums of parts where K is
// split; a copy of inp or weight where K is no multiple of 8, or where one does not
// begin at a multiple of 16 bytes. bfloat16 before sm_80: by a plain loop in float32.
// Two calls give the same bits: no sum depends on which block is first. No wgmma: large
// products are matmul_tensor_core's.
// Notebook: 15_fusion. Own code; after NVIDIA, PTX ISA, "mma", and CUTLASS (BSD
// 3-Clause) for epilogues as functors and parts of K.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// linear = load_inline("linear", cuda_sources=Path("linear.cu").read_text(),
//     cpp_sources="torch::Tensor linear(torch::Tensor inp, torch::Tensor weight, "
//         "torch::Tensor bias); torch::Tensor linear_gelu(torch::Tensor inp, "
//         "torch::Tensor weight, torch::Tensor bias, bool by_tanh); "
//         "torch::Tensor linear_residual(torch::Tensor inp, torch::Tensor weight, "
//         "torch::Tensor bias, torch::Tensor residual); "
//         "torch::Tensor linear_silu_gate(torch::Tensor inp, torch::Tensor weight, "
//         "torch::Tensor bias);",
//     functions=["linear", "linear_gelu", "linear_residual", "linear_silu_gate"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;

static __host__ __device__ int cdiv(int64_t a, int64_t b) {
    return int((a + b - 1) / b);
}

// ---- epilogues: what becomes of a finished sum, before it is rounded. i: its place in
// out. GATED: out is made of two sums, which one thread holds.

struct Plain {
    static constexpr bool GATED = false;
    __device__ float operator()(float x, int64_t i) const { return x; }
};

struct Gelu {
    static constexpr bool GATED = false;
    bool by_tanh;
    __device__ float operator()(float x, int64_t i) const {
        float inner = 0.79788456f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
        return 0.5f * x * (1.0f + (by_tanh ? tanhf(inner) : erff(x * 0.70710678f)));
    }
};

template <typename T> struct Residual {
    static constexpr bool GATED = false;
    const T* residual;  // (M, N)
    __device__ float operator()(float x, int64_t i) const {
        return x + float(residual[i]);
    }
};

struct SiluGate {
    static constexpr bool GATED = true;
    __device__ float operator()(float gate, float up) const {
        return gate / (1.0f + expf(-gate)) * up;
    }
};

// Columns of the product: those of out or, GATED, twice as many, gate and up in turn:
// the two of a number of out are neighbours. Each is a row of the weights:
template <class E> __device__ int64_t weight_row(int column, int N) {
    return E::GATED ? column / 2 + int64_t(column % 2) * N : column;
}

template <typename T> struct alignas(4) Pair { T first, second; };

// what is added to the columns c and c + 1; c even, and a column
template <typename T, class E>
__device__ float2 bias_of(const T* bias, int c, int N) {
    if (!bias) return make_float2(0.0f, 0.0f);
    if (E::GATED) return make_float2(float(bias[c / 2]), float(bias[N + c / 2]));
    return make_float2(float(bias[c]), c + 1 < N ? float(bias[c + 1]) : 0.0f);
}

// the sums of row m, columns c and c + 1, with bias: to out
template <typename T, class E>
__device__ void finish(T* out, E epilogue, float2 bias, float2 sum, int m, int c,
                       int N) {
    float x = sum.x + bias.x, y = sum.y + bias.y;
    int64_t i = int64_t(m) * N + (E::GATED ? c / 2 : c);
    if constexpr (E::GATED) out[i] = T(epilogue(x, y));
    else if (N % 2 == 0)
        *reinterpret_cast<Pair<T>*>(out + i) = {T(epilogue(x, i)),
                                                T(epilogue(y, i + 1))};
    else {
        out[i] = T(epilogue(x, i));
        if (c + 1 < N) out[i + 1] = T(epilogue(y, i + 1));
    }
}

// the same, or if K is split to parts: (splits, M, columns, rounded up to a pair)
template <typename T, class E>
__device__ void store_pair(T* out, float* parts, E epilogue, float2 bias, float2 sum,
                           int m, int c, int M, int N) {
    if (m >= M) return;
    if (!parts) return finish(out, epilogue, bias, sum, m, c, N);
    int64_t row = int64_t(blockIdx.y) * M + m, pairs = E::GATED ? N : cdiv(N, 2);
    reinterpret_cast<float2*>(parts)[row * pairs + c / 2] = sum;
}

// out: (M, N), from the parts: each sum in the order of the splits
template <typename T, class E>
__global__ void linear_finish_kernel(T* out, const float2* parts, const T* bias,
                                     E epilogue, int M, int N, int pairs, int splits) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t count = int64_t(M) * pairs;
    if (i >= count) return;
    float2 sum = parts[i];
    for (int s = 1; s < splits; s++) {
        float2 part = parts[s * count + i];
        sum.x += part.x, sum.y += part.y;
    }
    int c = i % pairs * 2;
    finish(out, epilogue, bias_of<T, E>(bias, c, N), sum, i / pairs, c, N);
}

// sums: 16 x 8 += a: 16 rows times b: 8 columns, 16 along k
template <typename T>
__device__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                    unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, at::Half>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    for (int i = 0; i < 2; i++)  // sm_75: half of k each, float16 only
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(i ? a2 : a0), "r"(i ? a3 : a1), "r"(i ? b1 : b0));
#endif
}

// 16 bytes from global to shared memory, asynchronously; zeros if they are not inside
static __device__ void copy_piece(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(from), "r"(inside ? 16 : 0));
#else
    uint4 zeros = make_uint4(0, 0, 0, 0);
    *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : zeros;
#endif
}

static __device__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// until no more than these, the newest ones, are under way
template <int PENDING> __device__ void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}

// ---- up to 16 rows of inp: what counts is that the weights keep coming

constexpr int WARPS = 8;         // per block, each a part of k
constexpr int ROWS = 32;         // rows of the weights per block: two mma's
constexpr int WARP_K = 32;       // of k, per warp and turn
constexpr int PITCH = ROWS + 4;  // of sums: lanes that store are in other banks

// pieces of 16 bytes that a lane takes in a turn: of four rows of the weights, and inp
static constexpr int pieces(int cols) { return 4 + cols / 8; }

// out: (M, N), M up to COLS, inp: (M, K), weight: (columns, K), K a multiple of 8; a
// block makes ROWS columns, from every gridDim.y-th share of k. The weights are the
// first operand of mma, inp with COLS rows the second: tensor cores have time for the
// rows that are not there, which repeat the last one and so need no test. Which k of an
// mma a number is is free, if both operands agree: so lane l takes 16 bytes at once, of
// row l / 4 of each eight rows. They wait in shared memory, where they do not cost
// registers, and only for the lane that asked for them: there is no barrier.
template <typename T, class E, int COLS>
__global__ void __launch_bounds__(WARPS * 32)
linear_stream_kernel(T* out, float* parts, const T* inp, const T* weight,
                     const T* bias, E epilogue, int M, int N, int K) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    constexpr int STAGES = 2;
    if (std::is_same_v<T, at::BFloat16>) return __trap();  // see linear_plain_kernel
#else
    constexpr int STAGES = 4;
#endif
    constexpr int PIECES = pieces(COLS);
    extern __shared__ __align__(128) unsigned char memory[];
    uint4 (*stages)[PIECES][WARPS * 32] =
        reinterpret_cast<uint4 (*)[PIECES][WARPS * 32]>(memory);
    int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
    int first = blockIdx.x * ROWS, last = (E::GATED ? 2 * N : N) - 1;
    const T* rows[PIECES];  // of the weights, then of inp, from the lane's k on
    int k = (blockIdx.y * WARPS + warp_id) * WARP_K + lane_id % 4 * 8;
    for (int i = 0; i < 4; i++)
        rows[i] = weight + k + K * weight_row<E>(
            min(first + i * 8 + lane_id / 4, last), N);
    for (int i = 4; i < PIECES; i++)
        rows[i] = inp + k + int64_t(K) * min((i - 4) * 8 + lane_id / 4, M - 1);
    int step = gridDim.y * WARPS * WARP_K, count = cdiv(K - k + lane_id % 4 * 8, step);
    auto copy = [&](int turn) {  // to the stage that was multiplied longest ago
        int at = turn * step;
        if (turn < count)
            for (int i = 0; i < PIECES; i++)
                copy_piece(&stages[turn % STAGES][i][threadIdx.x], rows[i] + at,
                           k + at < K);
        end_group();
    };
    for (int turn = 0; turn < STAGES - 1; turn++) copy(turn);
    float acc[2][COLS / 8][4] = {};
    for (int turn = 0; turn < count; turn++) {
        wait_for_groups<STAGES - 2>();
        copy(turn + STAGES - 1);
        uint4 piece[PIECES];
        for (int i = 0; i < PIECES; i++)
            piece[i] = stages[turn % STAGES][i][threadIdx.x];
#pragma unroll
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < COLS / 8; i++) {
                uint4 upper = piece[2 * m], lower = piece[2 * m + 1], x = piece[4 + i];
                mma<T>(acc[m][i], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
                mma<T>(acc[m][i], upper.z, lower.z, upper.w, lower.w, x.z, x.w);
            }
    }
    __syncthreads();  // all stages were read: room for the sums of each warp
    float (*sums)[COLS][PITCH] = reinterpret_cast<float (*)[COLS][PITCH]>(memory);
#pragma unroll
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < COLS / 8; i++)
            for (int e = 0; e < 4; e++)
                sums[warp_id][i * 8 + lane_id % 4 * 2 + e % 2]
                    [m * 16 + e / 2 * 8 + lane_id / 4] = acc[m][i][e];
    __syncthreads();  // the sums of all warps are there
    for (int i = threadIdx.x; i < COLS * ROWS / 2; i += WARPS * 32) {
        int m = i / (ROWS / 2), row = i % (ROWS / 2) * 2;
        float2 sum = make_float2(0.0f, 0.0f);
        for (int warp = 0; warp < WARPS; warp++) {
            float2 part = *reinterpret_cast<float2*>(&sums[warp][m][row]);
            sum.x += part.x, sum.y += part.y;
        }
        int c = first + row;
        if (c <= last)
            store_pair(out, parts, epilogue, bias_of<T, E>(bias, c, N), sum, m, c, M,
                       N);
    }
}

// ---- more rows: tiles of out, slices of K by asynchronous copies

constexpr int THREADS = 128;  // four warps, two by two quarters of a tile
constexpr int DEPTH = 64, SLICE = 128;  // of k, per slice; bytes of a row of it
constexpr int STEPS = 4;                // along k, in a slice: 16 each, as mma takes
constexpr int GROUP = 8;  // rows of tiles whose blocks run at about the same time

// slices in shared memory, 96 KB at most; on sm_75 two, 64 KB at most
static constexpr int stages(int tile_m, int tile_n) {
    return tile_m + tile_n > 192 ? 3 : 4;
}

// the swizzled offset of a piece, a chunk of 16 bytes of a row: eight pieces that are
// written or read at once lie in different banks
static __device__ unsigned place(int row, int piece) {
    return row * SLICE + (piece ^ row % 8) * 16;
}

// SIZE rows of a slice to shared memory, of which `left` are there; from: the thread's
// piece of the first row that it copies; stride: from one row it copies to the next
template <typename T, int SIZE>
__device__ void copy_rows(unsigned char* to, const T* from, int64_t stride, int left) {
    constexpr int PIECES = SLICE / 16, STEP = THREADS / PIECES;
    int row = threadIdx.x / PIECES;
    to += place(row, threadIdx.x % PIECES);
#pragma unroll
    for (int i = 0; i < SIZE / STEP; i++)
        copy_piece(to + i * STEP * SLICE, from + i * stride, row + i * STEP < left);
}

// four 8 x 8 matrices of 16 bits; each lane brings the address of a row
static __device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// out: (M, N), inp: (M, K), weight: (columns, K), K a multiple of 8; a block makes a
// tile, from share blockIdx.y of the slices of k. In turn i a block
//   1. begins to copy slice i + STAGES - 1 to the stage of slice i - 1;
//   2. multiplies slice i, while fragments of its next step, 16 along k, are loaded;
//   3. before the last step waits for slice i + 1, behind a barrier: then all threads'
//      copies of it have come, and all have read slice i.
template <typename T, class E, int TILE_M, int TILE_N>
__global__ void __launch_bounds__(THREADS)
linear_tile_kernel(T* out, float* parts, const T* inp, const T* weight, const T* bias,
                   E epilogue, int M, int N, int K) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    constexpr int STAGES = 2;
    if (std::is_same_v<T, at::BFloat16>) return __trap();  // see linear_plain_kernel
#else
    constexpr int STAGES = stages(TILE_M, TILE_N);
#endif
    constexpr int STAGE = (TILE_M + TILE_N) * SLICE;
    constexpr int WARP_M = TILE_M / 2, WARP_N = TILE_N / 2;
    extern __shared__ __align__(128) unsigned char tiles[];
    // a threadblock swizzle: blocks at work share rows of both operands in L2
    int columns = E::GATED ? 2 * N : N, group_size = GROUP * cdiv(columns, TILE_N);
    int group = blockIdx.x / group_size * GROUP, i = blockIdx.x % group_size;
    int height = min(GROUP, cdiv(M, TILE_M) - group);
    int row0 = (group + i % height) * TILE_M, col0 = i / height * TILE_N;
    // this block's slices
    int share = cdiv(cdiv(K, DEPTH), gridDim.y), first = blockIdx.y * share;
    int end = min(int64_t(K), (int64_t(first) + share) * DEPTH);
    // what this thread copies: a piece of every 16th row
    int thread_row = threadIdx.x / 8, k = first * DEPTH + threadIdx.x % 8 * 8;
    constexpr int STEP = THREADS / 8, WEIGHT_STEP = E::GATED ? STEP / 2 : STEP;
    const T* A = inp + int64_t(row0 + thread_row) * K;
    const T* B = weight + weight_row<E>(col0 + thread_row, N) * K;
    auto copy = [&](int slice) {  // of the share
        unsigned char* to = tiles + slice % STAGES * STAGE;
        int at = k + slice * DEPTH;
        bool inside = at < end;
        copy_rows<T, TILE_M>(to, A + at, int64_t(STEP) * K, inside ? M - row0 : 0);
        copy_rows<T, TILE_N>(to + TILE_M * SLICE, B + at, int64_t(WEIGHT_STEP) * K,
                             inside ? columns - col0 : 0);
        end_group();
    };
    int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
    int warp_row = warp_id / 2 * WARP_M, warp_col = warp_id % 2 * WARP_N;
    // Fragments, 16 rows and 16 along k: lane l has a pair of each half of k, of rows
    // l / 4 and l / 4 + 8. Of inp both low halves come first, as mma wants them, of the
    // weights both halves of a row.
    unsigned A_at = __cvta_generic_to_shared(tiles), B_at = A_at + TILE_M * SLICE;
    A_at += place(warp_row + lane_id % 16, lane_id / 16);
    B_at += place(warp_col + lane_id / 16 * 8 + lane_id % 8, lane_id / 8 % 2);
    struct Step { unsigned a[WARP_M / 16][4], b[WARP_N / 16][4]; };
    auto load_step = [&](int slice, int step) {
        unsigned stage = slice % STAGES * STAGE;
        Step to;
        for (int m = 0; m < WARP_M / 16; m++)
            ldmatrix(to.a[m], ((A_at + stage) ^ step * 32) + m * 16 * SLICE);
        for (int n = 0; n < WARP_N / 16; n++)
            ldmatrix(to.b[n], ((B_at + stage) ^ step * 32) + n * 16 * SLICE);
        return to;
    };
    auto wait = [&] {
        wait_for_groups<STAGES - 2>();
        __syncthreads();  // a slice has come, and all have read the one before it
    };
    for (int slice = 0; slice < STAGES - 1; slice++) copy(slice);
    float acc[WARP_M / 16][WARP_N / 8][4] = {};
    wait();
    Step next = load_step(0, 0);
    for (int slice = 0; slice < cdiv(end - first * DEPTH, DEPTH); slice++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            bool last = step == STEPS - 1;
            if (last) wait();
            if (step == 0) copy(slice + STAGES - 1);
            Step now = next;
            next = load_step(slice + last, (step + 1) % STEPS);
            auto &[a, b] = now;
#pragma unroll
            for (int n = 0; n < WARP_N / 8; n++)
                for (int m = 0; m < WARP_M / 16; m++)
                    mma<T>(acc[m][n], a[m][0], a[m][1], a[m][2], a[m][3],
                           b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
    int row = row0 + warp_row + lane_id / 4, col = col0 + warp_col + lane_id % 4 * 2;
#pragma unroll
    for (int n = 0; n < WARP_N / 8; n++) {
        int c = col + n * 8;
        if (c >= columns) break;
        float2 added = bias_of<T, E>(bias, c, N);
#pragma unroll
        for (int m = 0; m < WARP_M / 16; m++)
            for (int e = 0; e < 4; e += 2)
                store_pair(out, parts, epilogue, added,
                           make_float2(acc[m][n][e], acc[m][n][e + 1]),
                           row + m * 16 + e * 4, c, M, N);
    }
}

// bfloat16 before sm_80, whose tensor cores do not know it: a thread makes a pair
template <typename T, class E>
__global__ void linear_plain_kernel(T* out, const T* inp, const T* weight,
                                    const T* bias, E epilogue, int M, int N, int K) {
    int pairs = E::GATED ? N : cdiv(N, 2);
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int m = i / pairs, c = i % pairs * 2;
    if (m >= M) return;
    inp += int64_t(m) * K;
    const T* first = weight + weight_row<E>(c, N) * K;
    const T* second = E::GATED || c + 1 < N ? weight + weight_row<E>(c + 1, N) * K
                                            : first;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int k = 0; k < K; k++) {
        sum.x += float(inp[k]) * float(first[k]);
        sum.y += float(inp[k]) * float(second[k]);
    }
    finish(out, epilogue, bias_of<T, E>(bias, c, N), sum, m, c, N);
}

// out: (rows, width), inp: (rows, cols); zeros behind each row
static __global__ void linear_pad_kernel(uint16_t* out, const uint16_t* inp,
                                         int64_t rows, int width, int cols) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, col = i % width;
    if (i < rows * width) out[i] = col < cols ? inp[i / width * cols + col] : 0;
}

// ---- which kernel, and how

// How work is dealt out: tile_m x tile_n of the product per block, K in `splits` parts;
// tile_m 0: ROWS columns per block.
struct Plan { int tile_m, tile_n, splits; };

// Up to 16 rows. Memory brings 3.35 TB/s to 132 multiprocessors (SMs) of an H100, some
// 0.7 us after it is asked: 3.35e12 * 0.7e-6 / 132, 18 KB an SM, have to be under way,
// and twice that, since no load comes evenly. A block has 3 stages of 16 KB of weights
// under way: one an SM is enough, two fit. Where half of the SMs or more have none, K
// is split, as long as each part fills the stages once: that halves the time, for a
// second pass, a launch of some microseconds.
static Plan plan_stream(int64_t columns, int64_t K, int sms) {
    int blocks = cdiv(columns, ROWS), splits = 1;
    while (blocks * splits * 2 <= sms && K >= splits * 2 * 4 * WARPS * WARP_K)
        splits *= 2;
    return {0, 0, splits};
}

// More rows. An SM takes turns with the blocks it has: their number, rounded up, times
// the slices of a block, times what a slice takes, in clocks, the longest of
//   tile_m tile_n DEPTH multiply-adds, 1,024 a clock (mma.sync, sm_80 and sm_90),
//   SLICE bytes of the rows that are there, from L2, 32 a clock,
//   LATENCY, over the slices that are under way;
// and LATENCY again until the first slice has come. Meanwhile all weights come from
// memory, 14 bytes a clock and SM; a tenth of the shorter time does not overlap. A
// second pass is a launch, FINISH clocks; each part is written and read. The constants
// stand for an H100 at 1.75 GHz: 3.35 TB/s, and 7 TB/s from L2, which others report;
// none was fitted to times of these kernels. An A100's differ by less than a third, and
// only ratios count.
static Plan plan_tiles(int64_t M, int64_t columns, int64_t K, int sms) {
    constexpr double LATENCY = 1000, FINISH = 5000;
    constexpr int TILES[][2] = {{32, 64}, {64, 64}, {64, 128}, {128, 128}};
    double memory = 2.0 * columns * K / (14.0 * sms), least = INFINITY;
    Plan best = {};
    for (auto [tile_m, tile_n] : TILES)
        for (int splits = 1; splits <= 32; splits *= 2) {
            int slices = cdiv(cdiv(K, DEPTH), splits);
            if (splits > 1 && slices < 4) break;
            double tiles = double(cdiv(M, tile_m)) * cdiv(columns, tile_n);
            double rows = std::min<int64_t>(M, tile_m) +
                          std::min<int64_t>(columns, tile_n);
            double slice = std::max(tile_m * tile_n * DEPTH / 1024.0,
                                    rows * SLICE / 32.0);
            slice = std::max(slice, LATENCY / (stages(tile_m, tile_n) - 1));
            double work = std::ceil(tiles * splits / sms) * (slices * slice + LATENCY);
            double time = std::max(work, memory) + 0.1 * std::min(work, memory);
            if (splits > 1) time += FINISH + 8.0 * splits * M * columns / (32.0 * sms);
            if (time < least) least = time, best = {tile_m, tile_n, splits};
        }
    return best;
}

static Plan plan(int64_t M, int64_t columns, int64_t K, int sms) {
    return M <= 16 ? plan_stream(columns, K, sms) : plan_tiles(M, columns, K, sms);
}

// 75 if the kernels are built for sm_75, also where a later GPU runs them
static int built_for() {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(
        &built, linear_stream_kernel<at::Half, Plain, 8>));
    return built.ptxVersion;
}

// a matrix, or a copy of it, whose rows begin and end at multiples of 16 bytes
static Tensor in_pieces(Tensor x) {
    int64_t rows = x.size(0), cols = x.size(1), width = int64_t(cdiv(cols, 8)) * 8;
    if (reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0 && width == cols) return x;
    Tensor out = torch::empty({rows, width}, x.options());
    if (out.numel() == 0) return out;
    linear_pad_kernel<<<cdiv(rows * width, 256), 256, 0, getCurrentCUDAStream()>>>(
        static_cast<uint16_t*>(out.data_ptr()),
        static_cast<const uint16_t*>(x.data_ptr()), rows, width, cols);
    return out;
}

template <typename T> static const T* data(const Tensor& x) {  // of nothing: null
    return x.numel() ? x.data_ptr<T>() : nullptr;
}

template <typename T, class E, int COLS>
static void launch_stream(Tensor out, float* parts, Tensor inp, Tensor weight,
                          Tensor bias, E epilogue, int splits) {
    int M = inp.size(0), K = inp.size(1), N = out.size(1);
    int bytes = (built_for() < 80 ? 2 : 4) * pieces(COLS) * WARPS * 32 * 16;
    auto kernel = linear_stream_kernel<T, E, COLS>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<dim3(cdiv(weight.size(0), ROWS), splits), WARPS * 32, bytes,
             getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), parts, data<T>(inp), data<T>(weight), data<T>(bias),
        epilogue, M, N, K);
}

template <typename T, class E, int TILE_M, int TILE_N>
static void launch_tiles(Tensor out, float* parts, Tensor inp, Tensor weight,
                         Tensor bias, E epilogue, int splits) {
    int M = inp.size(0), K = inp.size(1), N = out.size(1);
    int bytes = (TILE_M + TILE_N) * SLICE *
                (built_for() < 80 ? 2 : stages(TILE_M, TILE_N));  // as in the kernel
    int64_t grid = int64_t(cdiv(M, TILE_M)) * cdiv(weight.size(0), TILE_N);
    TORCH_CHECK(grid <= INT_MAX, "linear: expected an out of up to 2^31 tiles of ",
                TILE_M, " x ", TILE_N, ", got ", out.sizes());
    auto kernel = linear_tile_kernel<T, E, TILE_M, TILE_N>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<dim3(grid, splits), THREADS, bytes, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), parts, data<T>(inp), data<T>(weight), data<T>(bias),
        epilogue, M, N, K);
}

template <typename T, class E>
static void launch(Tensor out, Tensor inp, Tensor weight, Tensor bias, E epilogue) {
    int M = inp.size(0), N = out.size(1), pairs = E::GATED ? N : cdiv(N, 2);
    int64_t grid = (int64_t(M) * pairs + 255) / 256;
    TORCH_CHECK(grid <= INT_MAX, "linear: expected an out of fewer than 2^40 numbers, "
                "got ", out.sizes());
    auto stream = getCurrentCUDAStream();
    if constexpr (std::is_same_v<T, at::BFloat16>)
        if (built_for() < 80) {
            linear_plain_kernel<T><<<grid, 256, 0, stream>>>(
                out.data_ptr<T>(), data<T>(inp), data<T>(weight), data<T>(bias),
                epilogue, M, N, inp.size(1));
            return;
        }
    inp = in_pieces(inp), weight = in_pieces(weight);
    int K = inp.size(1), sms = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                          inp.get_device()));
    auto [tile_m, tile_n, splits] = plan(M, weight.size(0), K, sms);
    Tensor scratch;
    float* parts = nullptr;
    if (splits > 1) {
        scratch = torch::empty({splits, M, pairs, 2},
                               inp.options().dtype(torch::kFloat32));
        parts = scratch.data_ptr<float>();
    }
    auto way = tile_m == 128 ? launch_tiles<T, E, 128, 128>
             : tile_n == 128 ? launch_tiles<T, E, 64, 128>
             : tile_m == 64 ? launch_tiles<T, E, 64, 64>
             : tile_m == 32 ? launch_tiles<T, E, 32, 64>
             : M > 8 ? launch_stream<T, E, 16> : launch_stream<T, E, 8>;
    way(out, parts, inp, weight, bias, epilogue, splits);
    if (splits > 1)
        linear_finish_kernel<T><<<grid, 256, 0, stream>>>(
            out.data_ptr<T>(), reinterpret_cast<const float2*>(parts), data<T>(bias),
            epilogue, M, N, pairs, splits);
}

// x has to be contiguous, of this shape, and of the type and on the GPU of inp
static void check_input(const char* name, Tensor x, torch::IntArrayRef shape,
                        Tensor inp) {
    auto type = inp.scalar_type();
    TORCH_CHECK((type == torch::kFloat16 || type == torch::kBFloat16) &&
                x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == inp.device() && x.sizes() == shape, name,
                ": expected contiguous float16 or bfloat16, the same for all, on one "
                "CUDA device, shape ", shape, ", got ", x.scalar_type(), " on ",
                x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
}

// per: rows of the weights for a column of out
static void check(const char* function, Tensor inp, Tensor weight, Tensor bias,
                  int per) {
    TORCH_CHECK(inp.dim() == 2 && inp.size(0) <= 1 << 30 && inp.size(1) <= 1 << 30,
                "inp: expected a matrix of up to 2^30 rows and columns, got shape ",
                inp.sizes());
    TORCH_CHECK(weight.dim() == 2 && weight.size(0) <= 1 << 30 &&
                weight.size(0) % per == 0, "weight: expected a matrix of up to 2^30 "
                "rows, a multiple of ", per, ", got shape ", weight.sizes());
    TORCH_CHECK(inp.scalar_type() == weight.scalar_type(), function, ": expected inp "
                "and weight of one type, got ", inp.scalar_type(), " and ",
                weight.scalar_type());
    check_input("inp", inp, inp.sizes(), inp);
    check_input("weight", weight, {weight.size(0), inp.size(1)}, inp);
    bool none = bias.dim() == 1 && bias.size(0) == 0;
    check_input("bias", bias, {none ? 0 : weight.size(0)}, inp);
}

// out: (M, weight's rows / per), made by f(out, T's zero)
template <typename F> static Tensor run(Tensor inp, Tensor weight, int per, F f) {
    c10::cuda::CUDAGuard guard(inp.device());
    Tensor out = torch::empty({inp.size(0), weight.size(0) / per}, inp.options());
    if (out.numel() == 0) return out;
    if (inp.scalar_type() == torch::kFloat16) f(out, at::Half());
    else f(out, at::BFloat16());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor linear(Tensor inp, Tensor weight, Tensor bias) {
    check("linear", inp, weight, bias, 1);
    return run(inp, weight, 1, [&](Tensor out, auto zero) {
        launch<decltype(zero)>(out, inp, weight, bias, Plain{});
    });
}

Tensor linear_gelu(Tensor inp, Tensor weight, Tensor bias, bool by_tanh) {
    check("linear_gelu", inp, weight, bias, 1);
    return run(inp, weight, 1, [&](Tensor out, auto zero) {
        launch<decltype(zero)>(out, inp, weight, bias, Gelu{by_tanh});
    });
}

Tensor linear_residual(Tensor inp, Tensor weight, Tensor bias, Tensor residual) {
    check("linear_residual", inp, weight, bias, 1);
    check_input("residual", residual, {inp.size(0), weight.size(0)}, inp);
    return run(inp, weight, 1, [&](Tensor out, auto zero) {
        Residual<decltype(zero)> epilogue{residual.data_ptr<decltype(zero)>()};
        launch<decltype(zero)>(out, inp, weight, bias, epilogue);
    });
}

Tensor linear_silu_gate(Tensor inp, Tensor weight, Tensor bias) {
    check("linear_silu_gate", inp, weight, bias, 2);
    return run(inp, weight, 2, [&](Tensor out, auto zero) {
        launch<decltype(zero)>(out, inp, weight, bias, SiluGate{});
    });
}
