// kernels/linear.cu
// SPDX-License-Identifier: MIT
// Linear layers of networks, with what follows them: out = epilogue(inp @ weight^T +
// bias). inp: (M, K), weight: (N, K), out: (M, N), bias: (N), or (0) for none; float16
// or bfloat16, contiguous, added up in float32, rounded once, at the end. Any M, N and
// K up to 2^30. Epilogues: none; GELU, exact or by tanh; residual (M, N), added;
// SiLU(gate) * up of a weight (2 N, K), the rows of gate first, those of up below them,
// with bias (2 N) or (0). NaN and infinity as in PyTorch.
// Floors: the weights are 2 N K bytes, read once for up to 16 rows: 4096 x 4096 are
// 33.6 MB, 10.0 us at 3.35 TB/s, 4096 x 11008 are 90.2 MB, 26.9 us. 2 M N K FLOPs take
// as long from M = FLOP/s / (bytes/s) on: 300 rows at an H100's peak, 120 at the 400
// TFLOP/s that mma.sync gives there. Scratch memory: float32 sums of parts where K is
// split by mma.sync's kernels; a copy of inp or weight where K is no multiple of 8, or
// where one does not begin at a multiple of 16 bytes. bfloat16 before sm_80: by a plain
// loop in float32. Two calls give the same bits: no sum depends on which block is
// first. Three kernels: for up to 16 rows, for more by mma.sync, and on sm_90, where N
// is a multiple of 8, by TMA and wgmma, with K in parts among the blocks of a cluster.
// The last comes in a build for sm_90a only: by the flag below, or "9.0a" in
// TORCH_CUDA_ARCH_LIST.
// Notebook: 15_fusion. Own code; after NVIDIA, PTX ISA, "mma", and CUTLASS (BSD
// 3-Clause) for epilogues as functors and parts of K.
//
// from pathlib import Path
// import torch
// from torch.utils.cpp_extension import load_inline
// major, minor = torch.cuda.get_device_capability()
// arch = f"{major}{minor}" + "a" * (major >= 9)
// linear = load_inline("linear", cuda_sources=Path("linear.cu").read_text(),
//     cpp_sources="torch::Tensor linear(torch::Tensor inp, torch::Tensor weight, "
//         "torch::Tensor bias); torch::Tensor linear_gelu(torch::Tensor inp, "
//         "torch::Tensor weight, torch::Tensor bias, bool by_tanh); "
//         "torch::Tensor linear_residual(torch::Tensor inp, torch::Tensor weight, "
//         "torch::Tensor bias, torch::Tensor residual); "
//         "torch::Tensor linear_silu_gate(torch::Tensor inp, torch::Tensor weight, "
//         "torch::Tensor bias);",
//     functions=["linear", "linear_gelu", "linear_residual", "linear_silu_gate"],
//     extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}"])
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

// the same of what is read once: in L2 it goes first, and drives nothing else out
static __device__ void copy_piece_once(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, "
                 "%2, %3;" :: "r"(at), "l"(from), "r"(inside ? 16 : 0), "l"(policy));
#else
    copy_piece(to, from, inside);
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
            for (int i = 0; i < PIECES; i++) {
                uint4* to = &stages[turn % STAGES][i][threadIdx.x];
                if (i < 4) copy_piece_once(to, rows[i] + at, k + at < K);
                else copy_piece(to, rows[i] + at, k + at < K);
            }
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

// ---- sm_90: tiles by TMA and wgmma. Weights are wgmma's rows, 64 each, and rows of
// inp its columns, any multiple of 8: so few rows of inp waste nothing.
#ifdef __CUDACC_VER_MAJOR__  // nvcc; other compilers do not know them
#include <cuda.h>

constexpr int WARPGROUP = 128;          // threads: four warps
constexpr int CONSUMERS = 2;            // warpgroups that multiply; a warp copies
constexpr int TILE_W = 64 * CONSUMERS;  // rows of the weights, per block
constexpr int BOX_ROWS = 16;            // of out, in a box of shared memory

// How out is cut: COLS rows of inp are the columns of a block's tile.
template <class E, int COLS> struct Cut {
    static constexpr int BLOCKS = COLS > 32 ? 1 : 2;  // per SM
    // setmaxnreg hands registers over: then the producer is a warpgroup, too
    static constexpr bool MOVES_REGISTERS = COLS > 192;
    static constexpr int THREADS =
        CONSUMERS * WARPGROUP + (MOVES_REGISTERS ? WARPGROUP : 32);
    static constexpr int STAGE = (TILE_W + COLS) * SLICE;  // bytes: weights, then inp
    static constexpr int WIDTH = E::GATED ? 32 : 64;       // columns of a box of out
    static constexpr int BOX = BOX_ROWS * WIDTH * 2, BOXES = COLS / BOX_ROWS;
    // boxes that a warpgroup writes at once, to one of two places
    static constexpr int BATCH = COLS > 192 ? 4 : COLS > 32 ? 2 : 1;
    static constexpr int OUT = CONSUMERS * 2 * BATCH * BOX;
    // an SM has 228 KB, each block takes 1 KB more, and up to 2 KB to be aligned
    static constexpr int ROOM = 228 * 1024 / BLOCKS - 3 * 1024 - OUT;
    static constexpr int STAGES = ROOM / STAGE < 12 ? ROOM / STAGE : 12;
    static constexpr int SHARED = 1024 + STAGES * STAGE + OUT;
    static_assert(CONSUMERS * 64 * COLS * 4 <= STAGES * STAGE, "no room for sums");
};

// How work is dealt out, to clusters of splits x pair blocks: a pair shares a tile of
// inp, each block with weights of its own; each pair has a part of k.
struct Deal {
    int splits, pair;
    int rows, cols;  // tiles: of the weights of a pair, and of inp
    bool once;       // no two clusters read the same weights: they need not stay in L2
    __host__ __device__ int size() const { return splits * pair; }
    __device__ int count() const { return rows * cols; }
    // GROUP rows of tiles at a time, whose clusters share both operands in L2
    __device__ void find(int tile, int& row, int& col) const {
        int group = tile / (GROUP * cols), i = tile % (GROUP * cols);
        int height = min(GROUP, rows - group * GROUP);
        row = group * GROUP + i % height, col = i / height;
    }
};

// A block's place in its cluster, and its share of the slices of k.
struct Place {
    int half, split, first, count;
    __device__ Place(Deal deal, int K) {
        int rank = blockIdx.x % deal.size();
        int64_t slices = cdiv(K, DEPTH);
        half = rank % deal.pair, split = rank / deal.pair;
        first = slices * split / deal.splits;
        count = slices * (split + 1) / deal.splits - first;
    }
};

static __device__ unsigned shared_at(const void* p) {
    return __cvta_generic_to_shared(p);
}

// An mbarrier: a phase ends when all that were told of have arrived, threads and bytes.
// A stage has two. full: one arrival, the producer's, and the bytes that it expects.
// empty: one of each consumer of a pair, since inp goes to both blocks. Who waits for
// phase ^ 1 at first passes: an empty stage has been given back, so to speak.
struct Barrier {
    uint64_t state;
    __device__ void init(int threads) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     :: "r"(shared_at(this)), "r"(threads));
    }
    __device__ void arrive_and_expect(int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(shared_at(this)), "r"(bytes) : "memory");
    }
    __device__ void arrive_in(int block) {  // of the cluster
        asm volatile("{ .reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                     :: "r"(shared_at(this)), "r"(block) : "memory");
    }
    __device__ void wait(int phase) {  // until it has ended
        asm volatile("{ .reg .pred done;\nAGAIN:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra AGAIN; }"
                     :: "r"(shared_at(this)), "r"(phase) : "memory");
    }
};

// Where the next stage is; phase: of its barriers.
struct Turn {
    int stage = 0, phase = 0;
    __device__ void next(int stages) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

// a box of inp, SLICE bytes of k from row `row` on, to the blocks of the mask
static __device__ void load_inp(char* to, const CUtensorMap& map, Barrier& full, int k,
                                int row, int mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
                 "::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], "
                 "%5;" :: "r"(shared_at(to)), "l"(&map), "r"(shared_at(&full)), "r"(k),
                 "r"(row), "h"(uint16_t(mask)) : "memory");
}

// TILE_W rows of the weights, in eights; with SiLU's gate one of gate and one of up in
// turn; from the eight of columns of out on
static __device__ void load_weight(char* to, const CUtensorMap& map, Barrier& full,
                                   int k, int eight, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier"
                 "::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %4, %5}], "
                 "[%2], %6;" :: "r"(shared_at(to)), "l"(&map), "r"(shared_at(&full)),
                 "r"(k), "r"(0), "r"(eight), "l"(policy) : "memory");
}

// what L2 does with weights: those that one block alone reads may go at once
static __device__ uint64_t policy_of(bool once) {
    uint64_t policy;
    if (once) asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    else asm("createpolicy.fractional.L2::evict_normal.b64 %0;" : "=l"(policy));
    return policy;
}

static __device__ void prefetch(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

static __device__ void prefetch(const void* line) {  // to L2
    asm volatile("prefetch.global.L2 [%0];" :: "l"(line) : "memory");
}

static __device__ void fence_for_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// barrier 0 is __syncthreads()
static __device__ void warpgroup_sync() {
    asm volatile("bar.sync %0, 128;" :: "r"(1 + threadIdx.x / WARPGROUP) : "memory");
}

static __device__ void consumers_sync() {
    asm volatile("bar.sync 3, %0;" :: "n"(CONSUMERS * WARPGROUP) : "memory");
}

static __device__ float4 load_of_block(const float4* from, int block) {
    float4 x;
    asm volatile("{ .reg .b32 there;\n mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(shared_at(from)), "r"(block) : "memory");
    return x;
}

// What wgmma is told of an operand: where it begins, rows of 128 bytes, swizzled; 8 of
// them are 1,024 bytes.
static __device__ uint64_t describe(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 |
           uint64_t(1) << 62;
}

#define LIST_16 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LIST_32 LIST_16 \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
    "%29, %30, %31"
#define LIST_64 LIST_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
    "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63"
#define LIST_88 LIST_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, " \
    "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87"
#define LIST_96 LIST_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LIST_128 LIST_96 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, " \
    "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
    "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#define D_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D_16 D_8(0), D_8(8)
#define D_32 D_16, D_8(16), D_8(24)
#define D_64 D_32, D_8(32), D_8(40), D_8(48), D_8(56)
#define D_88 D_64, D_8(64), D_8(72), D_8(80)
#define D_96 D_88, D_8(88)
#define D_128 D_96, D_8(96), D_8(104), D_8(112), D_8(120)
#define WGMMA(COLS, TYPE, LIST, A, B, ADD, ...) \
    asm volatile("{ .reg .pred p;\n setp.ne.b32 p, " ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #COLS "k16.f32." TYPE " {" LIST \
                 "}, " A ", " B ", p, 1, 1, 0, 0; }" : __VA_ARGS__ \
                 : "l"(a), "l"(b), "r"(int(add)))
#define WGMMA_OF(COLS, LIST, A, B, ADD, ...) \
    if constexpr (SIZE == COLS / 2 && std::is_same_v<T, at::Half>) \
        WGMMA(COLS, "f16.f16", LIST, A, B, ADD, __VA_ARGS__); \
    else if constexpr (SIZE == COLS / 2) \
        WGMMA(COLS, "bf16.bf16", LIST, A, B, ADD, __VA_ARGS__)

static __device__ void begin_wgmma() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ void end_wgmma() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> __device__ void wait_for_wgmma() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

template <bool MORE> __device__ void move_registers() {
    if (MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

// d, a warpgroup's 64 rows of the weights and 2 SIZE rows of inp = add ? d + a b : a b;
// 16 along k
template <typename T, int SIZE>
__device__ void wgmma(float (&d)[SIZE], uint64_t a, uint64_t b, bool add) {
    WGMMA_OF(32, LIST_16, "%16", "%17", "%18", D_16);
    WGMMA_OF(64, LIST_32, "%32", "%33", "%34", D_32);
    WGMMA_OF(128, LIST_64, "%64", "%65", "%66", D_64);
    WGMMA_OF(176, LIST_88, "%88", "%89", "%90", D_88);
    WGMMA_OF(192, LIST_96, "%96", "%97", "%98", D_96);
    WGMMA_OF(256, LIST_128, "%128", "%129", "%130", D_128);
}

// One thread of the block: brings tile by tile, as soon as a stage is empty.
template <class E, int COLS>
__device__ void produce(char* stages, Barrier* full, Barrier* empty,
                        const CUtensorMap& inp_map, const CUtensorMap& weight_map,
                        Deal deal, Place place) {
    using C = Cut<E, COLS>;
    int size = deal.size(), part = COLS / deal.pair;  // rows of inp that it brings
    int mask = ((1 << deal.pair) - 1) << place.split * deal.pair;
    uint64_t policy = policy_of(deal.once);
    Turn turn;
    for (int i = blockIdx.x / size; i < deal.count(); i += gridDim.x / size) {
        int row, col;
        deal.find(i, row, col);
        int eight = (row * deal.pair + place.half) * (CONSUMERS * C::WIDTH / 8);
        for (int k = 0; k < place.count; k++, turn.next(C::STAGES)) {
            Barrier& ready = full[turn.stage];
            empty[turn.stage].wait(turn.phase ^ 1);
            ready.arrive_and_expect(C::STAGE);
            char* to = stages + turn.stage * C::STAGE;
            int at = (place.first + k) * DEPTH;
            load_weight(to, weight_map, ready, at, eight, policy);
            load_inp(to + (TILE_W + place.half * part) * SLICE, inp_map, ready, at,
                     col * COLS + place.half * part, mask);
        }
    }
}

// A warpgroup's registers: element 4 j + 2 h + e is row lane / 4 + 8 h of the warp's 16
// of the weights and row 8 j + lane % 4 * 2 + e of inp. GATED: h 0 is gate, 1 is up.
// What a thread has of a box: pairs of neighbouring rows of out, of two or four 8 x 8
// matrices.
template <class E> struct Part { unsigned pairs[E::GATED ? 2 : 4]; };

template <typename T, class E>
__device__ Part<E> finish_part(const float (&sums)[8], E epilogue,
                               const float (&added)[2], int m, int c, int M, int N) {
    Part<E> part;
    auto set = [&](int i, float x, float y) {
        Pair<T> pair = {T(x), T(y)};
        part.pairs[i] = *reinterpret_cast<unsigned*>(&pair);
    };
    m += threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float* s = sums + 4 * j;
        if constexpr (E::GATED)
            set(j, epilogue(s[0] + added[0], s[2] + added[1]),
                epilogue(s[1] + added[0], s[3] + added[1]));
        else
            for (int h = 0; h < 2; h++) {
                int row = m + 8 * j, col = c + 8 * h;
                int64_t i = int64_t(row) * N + col;
                float x = s[2 * h] + added[h], y = s[2 * h + 1] + added[h];
                // what is outside is not written; a residual is not read there either
                constexpr bool READS = std::is_same_v<E, Residual<T>>;
                if (!READS || (col < N && row < M)) x = epilogue(x, i);
                if (!READS || (col < N && row + 1 < M)) y = epilogue(y, i + N);
                set(2 * j + h, x, y);
            }
    }
    return part;
}

// where 16 bytes of a box are, swizzled
template <class E> __device__ int in_box(int row, int piece) {
    return E::GATED ? row * 64 + (piece ^ row / 2 % 4) * 16
                    : row * 128 + (piece ^ row % 8) * 16;
}

// the thread's part to a box
template <class E> __device__ void write_part(char* box, const Part<E>& part) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    auto &p = part.pairs;
    if constexpr (E::GATED)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                     :: "r"(shared_at(box + in_box<E>(lane % 16, warp))), "r"(p[0]),
                     "r"(p[1]) : "memory");
    else {
        int row = lane / 16 * 8 + lane % 8, piece = 2 * warp + lane / 8 % 2;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], "
                     "{%1, %2, %3, %4};" :: "r"(shared_at(box + in_box<E>(row, piece))),
                     "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]) : "memory");
    }
}

// A warpgroup: multiplies 64 rows of the weights of each tile.
template <typename T, class E, int COLS>
__device__ void consume(char* stages, Barrier* full, Barrier* empty,
                        T* out, const T* bias, E epilogue, int M, int N, Deal deal,
                        Place place) {
    using C = Cut<E, COLS>;
    int group = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP;
    int size = deal.size(), batch = 0;
    char* boxes = stages + C::STAGES * C::STAGE + group * (C::OUT / CONSUMERS);
    auto release = [&](int stage) {  // a thread tells each block of the pair
        if (thread < deal.pair)
            empty[stage].arrive_in(place.split * deal.pair + thread);
    };
    Turn turn;
    for (int i = blockIdx.x / size; i < deal.count(); i += gridDim.x / size) {
        int row, col;
        deal.find(i, row, col);
        int m0 = col * COLS;
        int c0 = ((row * deal.pair + place.half) * CONSUMERS + group) * C::WIDTH;
        // the thread's rows of the weights are columns c and c + 8, or gate and up of c
        int c = c0 + thread / 32 * (C::WIDTH / 4) + thread % 32 / 4;
        T of_bias[2] = {T(0), T(0)};  // stays as it was loaded until it is needed
        for (int h = 0; h < 2; h++)
            if (bias && c + (E::GATED ? 0 : 8 * h) < N)
                of_bias[h] = bias[c + h * (E::GATED ? N : 8)];
        if constexpr (std::is_same_v<E, Residual<T>>)
            for (int m = m0 + thread; m < min(M, m0 + COLS) && c0 < N; m += WARPGROUP)
                prefetch(epilogue.residual + int64_t(m) * N + c0);
        float d[COLS / 2];
        int last = -1;  // stage whose products may still be under way
        for (int k = 0; k < place.count; k++, turn.next(C::STAGES)) {
            full[turn.stage].wait(turn.phase);
            unsigned at = shared_at(stages + turn.stage * C::STAGE);
            unsigned A_at = at + group * 64 * SLICE, B_at = at + TILE_W * SLICE;
            begin_wgmma();
#pragma unroll
            for (int step = 0; step < STEPS; step++)
                wgmma<T>(d, describe(A_at + step * 32), describe(B_at + step * 32),
                         k + step > 0);
            end_wgmma();
            wait_for_wgmma<1>();
            if (last >= 0) release(last);
            last = turn.stage;
        }
        wait_for_wgmma<0>();
        release(last);
        float added[2] = {float(of_bias[0]), float(of_bias[1])};
        // boxes b and on to out: there a thread writes 16 bytes of a row
        auto store = [&](const Part<E> (&parts)[C::BATCH], int b, int count) {
            char* box = boxes + batch++ % 2 * C::BATCH * C::BOX;
#pragma unroll
            for (int i = 0; i < C::BATCH; i++)
                if (i < count) write_part(box + i * C::BOX, parts[i]);
            warpgroup_sync();  // the boxes are complete, those before have been read
            constexpr int PIECES = C::WIDTH / 8;
            int r = thread / PIECES, piece = thread % PIECES;
#pragma unroll
            for (int i = 0; i < C::BATCH; i++) {
                int m = m0 + (b + i) * BOX_ROWS + r, col = c0 + piece * 8;
                const char* from = box + i * C::BOX + in_box<E>(r, piece);
                if (i < count && r < BOX_ROWS && m < M && col < N)
                    *reinterpret_cast<uint4*>(out + int64_t(m) * N + col) =
                        *reinterpret_cast<const uint4*>(from);
            }
        };
        auto finish_box = [&](const float (&sums)[8], int b) {
            return finish_part<T>(sums, epilogue, added, m0 + b * BOX_ROWS, c, M, N);
        };
        if (deal.splits == 1) {
#pragma unroll
            for (int b = 0; b < C::BOXES; b += C::BATCH) {
                Part<E> parts[C::BATCH];
#pragma unroll
                for (int i = 0; i < C::BATCH && b + i < C::BOXES; i++) {
                    float sums[8];
                    for (int e = 0; e < 8; e++) sums[e] = d[8 * (b + i) + e];
                    parts[i] = finish_box(sums, b + i);
                }
                store(parts, b, min(C::BATCH, C::BOXES - b));
            }
            continue;
        }
        // Each block adds up its boxes of all parts of k, always in the same order.
        constexpr int PITCH = CONSUMERS * WARPGROUP;
        float4* sums = reinterpret_cast<float4*>(stages) + threadIdx.x;
        consumers_sync();  // both have read all stages: room for sums
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
            sums[j * PITCH] = make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2],
                                          d[4 * j + 3]);
        cluster_sync();  // the sums of all parts of k are there
        int end = C::BOXES * (place.split + 1) / deal.splits;
        for (int b = C::BOXES * place.split / deal.splits; b < end; b += C::BATCH) {
            float4 added_up[C::BATCH][2] = {};
            for (int s = 0; s < deal.splits; s++)
#pragma unroll
                for (int i = 0; i < 2 * C::BATCH; i++)
                    if (b + i / 2 < end) {
                        float4& sum = added_up[i / 2][i % 2];
                        float4 part = load_of_block(sums + (2 * b + i) * PITCH,
                                                    s * deal.pair + place.half);
                        sum.x += part.x, sum.y += part.y;
                        sum.z += part.z, sum.w += part.w;
                    }
            Part<E> parts[C::BATCH];
#pragma unroll
            for (int i = 0; i < C::BATCH; i++) {
                auto [x, y] = added_up[i];
                parts[i] = finish_box({x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w}, b + i);
            }
            store(parts, b, min(C::BATCH, end - b));
        }
    }
}

// out: (M, N), inp: (M, K), weight: (columns, K), K > 0; see Deal. With K in parts a
// cluster makes one tile, else one after the other.
template <typename T, class E, int COLS>
__global__ void __launch_bounds__(Cut<E, COLS>::THREADS, Cut<E, COLS>::BLOCKS)
linear_wgmma_kernel(const __grid_constant__ CUtensorMap inp_map,
                    const __grid_constant__ CUtensorMap weight_map, T* out,
                    const T* bias, E epilogue, int M, int N, int K, Deal deal) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using C = Cut<E, COLS>;
    __shared__ Barrier full[C::STAGES], empty[C::STAGES];
    extern __shared__ __align__(128) unsigned char memory[];
    char* stages = reinterpret_cast<char*>(memory);
    stages += (1024 - shared_at(stages) % 1024) % 1024;
    Place place(deal, K);
    if (threadIdx.x == 0) {
        for (int s = 0; s < C::STAGES; s++) {
            full[s].init(1);
            empty[s].init(CONSUMERS * deal.pair);
        }
        fence_for_barriers();
    } else if (threadIdx.x == CONSUMERS * WARPGROUP)
        prefetch(weight_map), prefetch(inp_map);
    cluster_sync();  // all barriers are there before one is used
    if (threadIdx.x >= CONSUMERS * WARPGROUP) {
        if (C::MOVES_REGISTERS) move_registers<false>();
        if (threadIdx.x == CONSUMERS * WARPGROUP)
            produce<E, COLS>(stages, full, empty, inp_map, weight_map, deal, place);
        __syncwarp();
        if (deal.splits > 1) cluster_sync();  // with the consumers' own
    } else {
        if (C::MOVES_REGISTERS) move_registers<true>();
        consume<T, E, COLS>(stages, full, empty, out, bias, epilogue, M, N, deal,
                            place);
    }
    // others may still arrive at barriers, and read sums, of this block
    if (deal.size() > 1) cluster_sync();
#else
    __trap();  // launch_wgmma sees that it was not built
#endif
}

// TMA's view of a matrix: sizes and box, fastest first; strides of all but the first,
// in elements
static CUtensorMap map_of(const Tensor& x, std::vector<cuuint64_t> sizes,
                          std::vector<cuuint64_t> strides,
                          std::vector<cuuint32_t> box) {
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
        TORCH_CHECK(found && state == cudaDriverEntryPointSuccess,
                    "linear: expected NVIDIA's driver for CUDA 12 or later, got one "
                    "without cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    CUtensorMap map;
    for (auto& stride : strides) stride *= 2;
    std::vector<cuuint32_t> steps(box.size(), 1);
    auto result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, box.size(), x.data_ptr(),
                         sizes.data(), strides.data(), box.data(), steps.data(),
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

template <typename T, class E, int COLS>
static void launch_wgmma(Tensor out, Tensor inp, Tensor weight, Tensor bias, E epilogue,
                         int splits, int pair, int sms) {
    using C = Cut<E, COLS>;
    uint64_t M = inp.size(0), K = inp.size(1), N = out.size(1);
    constexpr unsigned PER = E::GATED ? 2 : 1;  // rows of the weights, of a column
    auto inp_map = map_of(inp, {K, M}, {K}, {DEPTH, unsigned(COLS / pair)});
    // fastest first: along k, rows of an eight, gate and up, eights
    auto weight_map = map_of(weight, {K, 8, PER, N / 8}, {K, N * K, 8 * K},
                             {DEPTH, 8, PER, TILE_W / 8 / PER});
    Deal deal = {splits, pair, cdiv(weight.size(0), TILE_W * pair), cdiv(M, COLS),
                 M <= COLS};
    int clusters = deal.rows * deal.cols;
    if (splits == 1) clusters = std::min(clusters, sms * C::BLOCKS / pair);
    auto kernel = linear_wgmma_kernel<T, E, COLS>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SHARED));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(deal.size()), 1, 1};
    unsigned grid = clusters * deal.size();
    cudaLaunchConfig_t config = {grid, C::THREADS, C::SHARED, getCurrentCUDAStream(),
                                 &cluster, 1};
    C10_CUDA_CHECK(cudaLaunchKernelEx(
        &config, kernel, inp_map, weight_map, out.data_ptr<T>(), data<T>(bias),
        epilogue, int(M), int(N), int(K), deal));
}

// Tiles of `cols` rows of inp, for clusters of splits x pair blocks; see Deal.
struct Clusters { int cols, splits, pair; };

// As plan_tiles. Clusters take turns; one of up to two blocks finds room on any SM, of
// larger ones some SMs are left over, a sixteenth. A tile costs TILE clocks, and 24 per
// row of inp, beside its slices, each the longest of
//   4 cols: 2,048 multiply-adds a clock (wgmma),
//   SLICE bytes of TILE_W rows of the weights and cols / pair of inp, from L2, at 36 a
//   clock: what two blocks share comes once.
// Meanwhile all weights come from memory, 11 bytes a clock and SM, and a tenth of the
// shorter time does not overlap. Parts of k cost SPLIT clocks each. Tiles of 32 rows
// are for weights that no other tile reads. These six numbers are fitted, by a search
// on a grid, to times on an H100 of these kernels as they were when out left by TMA (M
// 17 to 512 of layers 4096 -> 4096, 4096 -> 11008 and 11008 -> 4096, squares 512 to
// 4096; bfloat16, L2 full of what was written before): the tiles that they choose took
// 0.7 % longer in the mean than the fastest.
static Clusters plan_wgmma(int64_t M, int64_t columns, int64_t K, int sms) {
    constexpr double TILE = 4000, SPLIT = 2500;
    double memory = 2.0 * columns * K / (11.0 * sms), least = INFINITY;
    Clusters best = {};
    for (int cols : {32, 64, 128, 176, 192, 256})
        for (int splits = 1; splits <= 3 && splits <= cdiv(K, DEPTH); splits++)
            for (int pair : {1, 2}) {
                int size = splits * pair, room = sms * (cols > 32 ? 1 : 2) / size;
                if (size > 2) room = room * 15 / 16;
                if (room == 0 || (cols == 32 && M > cols)) continue;
                double tiles = double(cdiv(columns, TILE_W * pair)) * cdiv(M, cols);
                double turns = std::ceil(tiles / room);
                if (cols <= 32)  // two blocks of an SM take twice as long
                    turns = tiles * size > sms ? 2 * turns : 1;
                double slice = std::max(
                    4.0 * cols, (TILE_W + double(cols) / pair) * SLICE / 36);
                double work = turns * (cdiv(cdiv(K, DEPTH), splits) * slice + TILE +
                                       24 * cols);
                if (splits > 1) work += 4 * cols;
                double time = std::max(work, memory) + 0.1 * std::min(work, memory);
                if (splits > 1) time += SPLIT * splits;
                if (time < least) least = time, best = {cols, splits, pair};
            }
    return best;
}

// once, in whatever types
static void warn_of_build(const Tensor& x) {
    int major = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                          x.get_device()));
    if (major == 9)
        TORCH_WARN_ONCE("linear: built without sm_90a, so without wgmma; pass nvcc "
                        "-gencode=arch=compute_90a,code=sm_90a");
}

// Whether it did: in a build with wgmma, where rows of out begin at multiples of 16
// bytes, for more than 640 x 640 x 640 products; mma.sync's kernels begin sooner
template <typename T, class E>
static bool launch_wgmma(Tensor out, Tensor inp, Tensor weight, Tensor bias, E epilogue,
                         int sms) {
    int64_t M = inp.size(0), K = inp.size(1), columns = weight.size(0);
    if (M <= 16 || out.size(1) % 8 != 0 || double(M) * columns * K < 1 << 28)
        return false;
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, linear_wgmma_kernel<T, E, 64>));
    if (built.sharedSizeBytes == 0) return warn_of_build(out), false;
    auto [cols, splits, pair] = plan_wgmma(M, columns, K, sms);
    auto way = cols == 32 ? launch_wgmma<T, E, 32>
             : cols == 64 ? launch_wgmma<T, E, 64>
             : cols == 128 ? launch_wgmma<T, E, 128>
             : cols == 176 ? launch_wgmma<T, E, 176>
             : cols == 192 ? launch_wgmma<T, E, 192> : launch_wgmma<T, E, 256>;
    way(out, inp, weight, bias, epilogue, splits, pair, sms);
    return true;
}
#endif

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
#ifdef __CUDACC_VER_MAJOR__
    if (launch_wgmma<T>(out, inp, weight, bias, epilogue, sms)) return;
#endif
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
