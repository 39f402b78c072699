// kernels/matmul_tensor_core.cu
// SPDX-License-Identifier: MIT
// Matrix product on tensor cores: out = A @ B. A: (M, K), B: (K, N), out: (M, N),
// M, N and K up to 2^30; rows or columns of A and B contiguous, with any stride between
// them (views, transposed ones too). float16 and bfloat16, added up in float32 and
// rounded once; int8 to int32, which wraps around; float32 as TF32 if allow_tf32, else
// as three products of TF32, about as exact as float32. sm_75: float16 and int8 only.
// 2 M N K FLOPs, reads A and B once per 128 columns or rows of out; scratch memory for
// a copy of an operand whose rows (or columns) are not multiples of 16 bytes. Infinity
// and NaN as in PyTorch. On sm_90 the kernel is persistent and its warps specialised: a
// block goes from tile to tile, one producer brings slices by TMA, two consumer
// warpgroups multiply them by wgmma, and mbarriers are between them; of 16 bits tiles
// have 64 to 256 columns, as a model of the time chooses. These come in a build for
// sm_90a only: by the flag below, or "9.0a" in TORCH_CUDA_ARCH_LIST.
// Notebook: 10b_wgmma_and_tma. Own code; after NVIDIA, PTX ISA, "mma", and CUTLASS (BSD
// 3-Clause); three products: Ootomo and Yokota (2022).
//
// from pathlib import Path
// import torch
// from torch.utils.cpp_extension import load_inline
// major, minor = torch.cuda.get_device_capability()
// arch = f"{major}{minor}" + "a" * (major >= 9)
// matmul_tensor_core = load_inline("matmul_tensor_core",
//     cuda_sources=Path("matmul_tensor_core.cu").read_text(),
//     cpp_sources="torch::Tensor matmul_tensor_core(torch::Tensor A, torch::Tensor B, "
//         "bool allow_tf32);", functions=["matmul_tensor_core"],
//     extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int TILE_M = 128, TILE_N = 128;  // of out, per block
constexpr int WARP_M = 64, WARP_N = 64;    // of out, per warp
constexpr int WARPS_N = TILE_N / WARP_N, WARPS = TILE_M / WARP_M * WARPS_N;
constexpr int THREADS = WARPS * 32;
constexpr int SLICE = 128, STEPS = SLICE / 32;  // bytes along k of a tile, instructions
constexpr int STAGE_BYTES = (TILE_M + TILE_N) * SLICE;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int STAGES = 2;  // tiles in shared memory: all that sm_75 has room for
#else
constexpr int STAGES = 3;
#endif
constexpr int GROUP = 8;  // rows of tiles whose blocks run at about the same time

__host__ __device__ int cdiv(int64_t a, int64_t b) { return int((a + b - 1) / b); }

template <typename T>  // what sums are in, and out
using Sum = std::conditional_t<sizeof(T) == 1, int, float>;
template <typename T> using Result = std::conditional_t<sizeof(T) == 1, int, T>;

template <typename T, int COUNT>
struct alignas(COUNT * sizeof(T)) Pack {  // neighbours, moved by one instruction
    T at[COUNT];
};

// A tile of an operand in shared memory holds SIZE rows of A or columns of B, of each a
// SLICE of k. ALONG: its rows run along k, else across, as they do in global memory.
template <typename T, bool ALONG, int SIZE>
constexpr int ROW = ALONG ? SLICE : SIZE * int(sizeof(T));  // bytes

// the swizzled offset of a piece, a chunk of 16 bytes of a row: eight pieces that are
// written or read at once lie in different banks
template <typename T, bool ALONG, int SIZE>
__device__ unsigned place(int row, int piece) {
    int swizzle = ALONG ? (sizeof(T) == 1 ? row / 2 : row) % 8
                : sizeof(T) == 4 ? row % 4 * 2
                : sizeof(T) == 2 ? row % 8 : row / 4 % 4 * 2 + row % 2;
    return row * ROW<T, ALONG, SIZE> + (piece ^ swizzle) * 16;
}

// 16 bytes from global to shared memory, asynchronously; zeros if they are not inside
__device__ void copy_piece(unsigned char* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(from), "r"(inside ? 16 : 0));
#else
    uint4 zeros = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : zeros;
#endif
}

// a tile to shared memory, of which `rows` rows of `cols` elements are inside
template <typename T, bool ALONG, int SIZE>
__device__ void copy_tile(unsigned char* to, const T* from, int64_t stride, int rows,
                          int cols) {
    constexpr int BYTES = ROW<T, ALONG, SIZE>, PIECES = BYTES / 16;
    constexpr int STEP = THREADS / PIECES;  // rows at once: one swizzle for all
    int row = threadIdx.x / PIECES, col = threadIdx.x % PIECES * (16 / sizeof(T));
    to += place<T, ALONG, SIZE>(row, threadIdx.x % PIECES);
    from += row * stride + col;
    int left = col < cols ? rows - row : 0;
#pragma unroll
    for (int r = 0; r < SIZE * SLICE / BYTES; r += STEP)
        copy_piece(to + r * BYTES, from + r * stride, r < left);
}

__device__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

__device__ void wait_for_oldest_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
#endif
}

// four 8 × 8 matrices of 16 bits; each lane brings the address of a row
static __device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

static __device__ void ldmatrix_transposed(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// A fragment: 32 bytes along k of 16 rows of A (or columns of B). Lane l has 4 bytes of
// each half of two rows, from byte l % 4 * 4 on: of rows l / 4 and l / 4 + 8, but of
// 8-bit types of l / 4 * 2 and the next. r: of A both low halves, then both high ones,
// of B both halves of one row, then of the other, as mma wants them.

// where the lane begins to read a tile, for fragments from row `first` on
template <typename T, bool ALONG, int SIZE, bool OF_A>
__device__ unsigned fragment_place(int first) {
    int lane = threadIdx.x % 32, i = lane % 8;
    int second = lane / (OF_A ? 8 : 16) % 2, high = lane / (OF_A ? 16 : 8) % 2;
    int row = first + (sizeof(T) == 1 ? i * 2 + second : second * 8 + i);
    if (ALONG) return place<T, ALONG, SIZE>(row, high);
    if (sizeof(T) == 2) return place<T, ALONG, SIZE>(high * 8 + i, first / 8 + second);
    if (sizeof(T) == 4)
        return lane / 4 % 4 * 4 +
               place<T, ALONG, SIZE>(lane % 4, first / 4 + lane / 16);
    int k = lane / 16 * 16 + i / 2 * 4 + lane / 8 % 2 * 2 + i % 2;  // see load_fragment
    return place<T, ALONG, SIZE>(k, first / 16);
}

// fragment number `block`, number `step` along k
template <typename T, bool ALONG, int SIZE, bool OF_A>
__device__ void load_fragment(unsigned (&r)[4], unsigned at, int block, int step) {
    constexpr int BYTES = ROW<T, ALONG, SIZE>;
    if (ALONG) return ldmatrix(r, (at ^ step * 32) + block * 16 * BYTES);
    at = (at ^ block * 16 * int(sizeof(T))) + step * 32 / int(sizeof(T)) * BYTES;
    if (sizeof(T) == 2) return ldmatrix_transposed(r, at);
    unsigned pairs[4];  // of bytes of two rows, for two k; r: for four k of one row
    if (sizeof(T) == 1) ldmatrix_transposed(pairs, at);
    for (int i = 0; i < 4; i++) {
        int second = OF_A ? i % 2 : i / 2, high = OF_A ? i / 2 : i % 2;
        if (sizeof(T) == 1)
            r[i] = __byte_perm(pairs[high * 2], pairs[high * 2 + 1],
                               second ? 0x7531 : 0x6420);
        else
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(r[i]) : "r"((at ^ second * 32) + high * 4 * BYTES));
    }
}

// sums: 16 × 8 += a: 16 rows times b: 8 columns, 32 bytes along k
template <typename T>
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, at::Half>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else if constexpr (std::is_same_v<T, at::BFloat16>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    for (int i = 0; i < 2; i++)  // sm_75: half a step each
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[i * 2]), "r"(a[i * 2 + 1]), "r"(i ? b1 : b0));
#endif
}

template <typename T>
__device__ void mma(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    for (int i = 0; i < 4; i++)  // sm_75: a quarter each
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, "
            "{%0, %1};" : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])
            : "r"(a[i]), "r"(i / 2 ? b1 : b0));
#endif
}

// to the nearest number of TF32: tensor cores cut off the last 13 bits
__device__ void round_to_tf32(unsigned& bits) {
    if (fabsf(__uint_as_float(bits)) < INFINITY) bits += 0x1000;
}

// bits = high + low, the nearest number of TF32 (11 bits) and the rest, 12 bits, the
// last of which mma cuts off; of what rounds to infinity 1 to 2 and the rest, lest
// infinity meets a low part that is 0
__device__ void split(unsigned& bits, unsigned& low) {
    float x = __uint_as_float(bits);
    bool usual = fabsf(x) < 3.4019e38f;
    bits = usual ? (bits + 0x1000) & 0xffffe000 : bits & 0xbfffe000;
    low = __float_as_uint(x - __uint_as_float(bits));
}

// the warp's part of out, and what of A and B it takes at a step of 32 bytes along k
template <typename T> using Sums = Sum<T>[WARP_M / 16][WARP_N / 8][4];
struct Step { unsigned a[WARP_M / 16][4], b[WARP_N / 16][4]; };

template <typename T, bool A_ALONG, bool B_ALONG>
__device__ Step load_step(unsigned A_at, unsigned B_at, int step) {
    Step to;
    for (int m = 0; m < WARP_M / 16; m++)
        load_fragment<T, A_ALONG, TILE_M, true>(to.a[m], A_at, m, step);
    for (int n = 0; n < WARP_N / 16; n++)
        load_fragment<T, B_ALONG, TILE_N, false>(to.b[n], B_at, n, step);
    return to;
}

template <typename T> __device__ void multiply(Sums<T>& acc, Step& step) {
    auto &[a, b] = step;
    if constexpr (sizeof(T) == 4) {
        for (int i = 0; i < WARP_M / 4; i++) round_to_tf32(a[i / 4][i % 4]);
        for (int i = 0; i < WARP_N / 4; i++) round_to_tf32(b[i / 4][i % 4]);
    }
#pragma unroll
    for (int n = 0; n < WARP_N / 8; n++)
        for (int m = 0; m < WARP_M / 16; m++)
            mma<T>(acc[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
}

// as three products: high times high, and each high times low (low times low is at most
// 2^-22 of it). Tensor cores cut sums off instead of rounding, which adds up over a
// long sum: so `part` begins at 0 each time, and acc is added to as always
__device__ void multiply_exactly(Sums<float>& acc, Step& step) {
    auto &[a, b] = step;
    unsigned a_low[WARP_M / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_M / 4; i++) split(a[i / 4][i % 4], a_low[i / 4][i % 4]);
#pragma unroll
    for (int n = 0; n < WARP_N / 8; n++) {
        unsigned *high = b[n / 2] + n % 2 * 2, low[2];
        for (int i = 0; i < 2; i++) split(high[i], low[i]);
        for (int m = 0; m < WARP_M / 16; m++) {
            float part[4] = {};
            mma<float>(part, a_low[m], high[0], high[1]);
            mma<float>(part, a[m], low[0], low[1]);
            mma<float>(part, a[m], high[0], high[1]);
            for (int e = 0; e < 4; e++) acc[m][n][e] += part[e];
        }
    }
}

// COUNT neighbours of a row of out, of which `left` are inside
template <typename T, int COUNT>
__device__ void store(T* to, const Pack<T, COUNT>& values, int left, bool aligned) {
    if (aligned && left >= COUNT) *reinterpret_cast<Pack<T, COUNT>*>(to) = values;
    else
        for (int i = 0; i < COUNT; i++)
            if (i < left) to[i] = values.at[i];
}

// out: the warp's part, of which `rows` and `cols` are inside; see "A fragment"
template <typename T>
__device__ void store_sums(Result<T>* out, const Sums<T>& acc, int rows, int cols,
                           int N) {
    using To = Result<T>;
    constexpr bool BYTES = sizeof(T) == 1;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < WARP_M / 16; m++)
        for (int e = 0; e < 4; e += 2) {
            int row = m * 16 + (BYTES ? lane / 4 * 2 + e / 2 : lane / 4 + e * 4);
            if (row >= rows) continue;
            To* to = out + int64_t(row) * N;
#pragma unroll
            for (int n = 0; n < WARP_N / 8; n += 2) {
                auto &c = acc[m][n], &d = acc[m][n + 1];
                int col = n * 8 + lane % 4 * (BYTES ? 4 : 2), left = cols - col;
                if (BYTES) {
                    Pack<To, 4> four = {To(c[e]), To(d[e]), To(c[e + 1]), To(d[e + 1])};
                    store(to + col, four, left, N % 4 == 0);
                } else {
                    Pack<To, 2> two = {To(c[e]), To(c[e + 1])};
                    store(to + col, two, left, N % 2 == 0);
                    two = {To(d[e]), To(d[e + 1])};
                    store(to + col + 8, two, left - 8, N % 2 == 0);
                }
            }
        }
}

// where tile number i begins: GROUP rows of tiles at a time, column by column (a
// threadblock swizzle: blocks at work share rows of A and columns of B in L2)
__device__ void find_tile(int i, int M, int N, int& row, int& col) {
    int group_size = GROUP * cdiv(N, TILE_N), group = i / group_size * GROUP;
    int height = min(GROUP, cdiv(M, TILE_M) - group);
    i %= group_size;
    row = (group + i % height) * TILE_M, col = i / height * TILE_N;
}

// out: (M, N), A: (M, K), B: (K, N); rows, ALONG k or across, begin and end in pieces
template <typename T, bool EXACT, bool A_ALONG, bool B_ALONG>
__global__ void __launch_bounds__(THREADS)
matmul_mma_kernel(Result<T>* out, const T* A, const T* B, int M, int N, int K,
                  int64_t A_stride, int64_t B_stride) {
#if __CUDA_ARCH__ < 800
    if (sizeof(T) == 4 || std::is_same_v<T, at::BFloat16>) return __trap();  // refused
#endif
    extern __shared__ __align__(1024) unsigned char tiles[];
    constexpr int DEPTH = SLICE / sizeof(T);
    int row, col;
    find_tile(blockIdx.x, M, N, row, col);
    A += A_ALONG ? row * A_stride : row;
    B += B_ALONG ? col * B_stride : col;
    auto copy = [&](int slice) {  // to the stage that was multiplied longest ago
        unsigned char* to = tiles + slice % STAGES * STAGE_BYTES;
        int left = K - slice * DEPTH;
        copy_tile<T, A_ALONG, TILE_M>(to, A, A_stride, A_ALONG ? M - row : left,
                                      A_ALONG ? left : M - row);
        copy_tile<T, B_ALONG, TILE_N>(to + TILE_M * SLICE, B, B_stride,
                                      B_ALONG ? N - col : left,
                                      B_ALONG ? left : N - col);
        A += A_ALONG ? DEPTH : DEPTH * A_stride;
        B += B_ALONG ? DEPTH : DEPTH * B_stride;
        end_group();
    };
    for (int slice = 0; slice < STAGES - 1; slice++) copy(slice);
    int warp_row = threadIdx.x / 32 / WARPS_N * WARP_M;
    int warp_col = threadIdx.x / 32 % WARPS_N * WARP_N;
    unsigned A_at = __cvta_generic_to_shared(tiles), B_at = A_at + TILE_M * SLICE;
    A_at += fragment_place<T, A_ALONG, TILE_M, true>(warp_row);
    B_at += fragment_place<T, B_ALONG, TILE_N, false>(warp_col);
    auto load = [&](int slice, int step) {
        int stage = slice % STAGES * STAGE_BYTES;
        return load_step<T, A_ALONG, B_ALONG>(A_at + stage, B_at + stage, step);
    };
    auto wait = [&] {
        wait_for_oldest_group();
        __syncthreads();  // a slice has come, and all have read the one before it
    };
    Sums<T> acc = {};
    Step next;  // EXACT lacks the registers to load ahead, and to unroll
    if (!EXACT) wait(), next = load(0, 0);
    for (int slice = 0; slice < cdiv(K, DEPTH); slice++) {
#pragma unroll(EXACT ? 1 : STEPS)
        for (int step = 0; step < STEPS; step++) {
            bool last = step == STEPS - 1;
            if (EXACT ? step == 0 : last) wait();
            if (step == 0) copy(slice + STAGES - 1);
            Step now = EXACT ? load(slice, step) : next;
            if (!EXACT) next = load(slice + last, (step + 1) % STEPS);
            if constexpr (EXACT) multiply_exactly(acc, now);
            else multiply<T>(acc, now);
        }
    }
    row += warp_row, col += warp_col;
    store_sums<T>(out + int64_t(row) * N + col, acc, M - row, N - col, N);
}

// out: (rows, width), inp: (rows, cols); zeros behind each row
template <typename T>
__global__ void pad_kernel(T* out, const T* inp, int64_t rows, int width, int cols,
                           int64_t stride) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, col = i % width;
    if (i < rows * width) out[i] = col < cols ? inp[i / width * stride + col] : T(0);
}

// a matrix with contiguous rows, or a copy of it, as matmul_mma_kernel wants it
template <typename T> static Tensor aligned(Tensor x) {
    constexpr int COUNT = 16 / sizeof(T);
    bool fits = reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
    if (fits && x.stride(0) % COUNT == 0 && x.size(1) % COUNT == 0) return x;
    int64_t rows = x.size(0), width = int64_t(cdiv(x.size(1), COUNT)) * COUNT;
    Tensor out = torch::empty({rows, width}, x.options());
    if (out.numel() == 0) return out;
    pad_kernel<<<cdiv(rows * width, 256), 256, 0, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), x.data_ptr<T>(), rows, width, x.size(1), x.stride(0));
    return out;
}

// ---- sm_90: wgmma and TMA
#ifdef __CUDACC_VER_MAJOR__  // nvcc; other compilers do not know them
#include <cuda.h>

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int LINE = 128;       // bytes of a row of a box
constexpr int BOX = 64 * LINE;  // what TMA brings at once: 64 rows
constexpr int CLUSTER = 2;      // blocks that share tiles of A or B
constexpr int CONSUMERS = 2;    // warpgroups that multiply; one more copies

// How products of T are cut: COLS columns of out per block. EXACT: A and B are sums of
// two matrices, the second below the first. The blocks of a cluster share the larger
// tile: side by side that of A, else that of B.
template <typename Type, bool IN_PARTS, int WIDTH> struct Cut {
    using T = Type;
    static constexpr bool EXACT = IN_PARTS, BESIDE = WIDTH < 128;
    static constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
    static constexpr int ROWS = 64 * CONSUMERS, COLS = WIDTH;
    static constexpr int DEPTH = LINE / sizeof(T), PARTS = EXACT ? 2 : 1;
    static constexpr int A_BYTES = ROWS * LINE, B_BYTES = COLS * LINE;
    static constexpr int STAGE = PARTS * (A_BYTES + B_BYTES);
    static constexpr int OUT = sizeof(T) == 2 ? 2 * BOX : 0;  // two, per consumer
    static constexpr int STAGES = (225 * 1024 - CONSUMERS * OUT) / STAGE;
    static constexpr int SHARED = 1024 + STAGES * STAGE + CONSUMERS * OUT;
};

__device__ unsigned shared_at(const void* p) { return __cvta_generic_to_shared(p); }

// An mbarrier: a phase ends when all that were told of have arrived, threads and bytes.
// A stage has two. full: one arrival, the producer's, and the bytes that it expects.
// empty: one of each consumer of the cluster, since a tile goes to all of its blocks.
// Who waits for phase ^ 1 at first passes: an empty stage has been given back, so to
// speak.
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

// the box at (x, y) of a matrix to shared memory, swizzled; to all of the cluster
template <bool TO_ALL>
__device__ void load_box(char* to, const CUtensorMap& map, Barrier& full, int x,
                         int y) {
    if (TO_ALL)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
                     "::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], "
                     "[%2], %5;" :: "r"(shared_at(to)), "l"(&map),
                     "r"(shared_at(&full)), "r"(x), "r"(y),
                     "h"(uint16_t((1 << CLUSTER) - 1)) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
                     "::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                     :: "r"(shared_at(to)), "l"(&map), "r"(shared_at(&full)), "r"(x),
                     "r"(y) : "memory");
}

__device__ void store_box(const CUtensorMap& map, const char* from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3}], [%1];"
                 :: "l"(&map), "r"(shared_at(from)), "r"(x), "r"(y) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ void prefetch(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

// until TMA has read all but the last LEFT of the thread's groups of boxes
template <int LEFT> __device__ void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(LEFT) : "memory");
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ void warpgroup_sync() {  // barrier 0 is __syncthreads()
    asm volatile("bar.sync %0, 128;" :: "r"(1 + threadIdx.x / WARPGROUP) : "memory");
}

// What wgmma is told of an operand: where it begins, and that 8 rows of a box are 1,024
// bytes. Rows that run across k are 64 rows of A or columns of B, the next a box away.
template <bool ALONG> __device__ uint64_t describe(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(ALONG ? 1 : BOX >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ void begin_wgmma() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ void end_wgmma() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> __device__ void wait_for_wgmma() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

template <bool MORE> __device__ void move_registers() {
    if (MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

#define LIST_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LIST_64 LIST_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63"
#define LIST_96 LIST_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
    "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
    "%94, %95"
#define LIST_128 LIST_96 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
    "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, " \
    "%121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(r, i) r(d[i]), r(d[i + 1]), r(d[i + 2]), r(d[i + 3]), r(d[i + 4]), \
    r(d[i + 5]), r(d[i + 6]), r(d[i + 7])
#define SUMS_32(r, i) SUMS_8(r, i), SUMS_8(r, i + 8), SUMS_8(r, i + 16), \
    SUMS_8(r, i + 24)
#define SUMS_64(r) SUMS_32(r, 0), SUMS_32(r, 32)
#define SUMS_96(r) SUMS_64(r), SUMS_32(r, 64)
#define SUMS_128(r) SUMS_96(r), SUMS_32(r, 96)
#define WGMMA(SHAPE, LIST, A, B, ADD, MORE, ...) \
    asm volatile("{ .reg .pred p;\n setp.ne.b32 p, " ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" SHAPE " {" LIST "}, " A ", " B \
                 ", p" MORE "; }" : __VA_ARGS__ \
                 : "l"(a), "l"(b), "r"(int(add)), "n"(!A_ALONG), "n"(!B_ALONG))
#define WGMMA_16_BITS(COLS, LIST, A, B, ADD, MORE, ...) \
    if constexpr (SIZE == COLS / 2 && std::is_same_v<T, at::Half>) \
        WGMMA(#COLS "k16.f32.f16.f16", LIST, A, B, ADD, MORE, __VA_ARGS__); \
    else if constexpr (SIZE == COLS / 2 && std::is_same_v<T, at::BFloat16>) \
        WGMMA(#COLS "k16.f32.bf16.bf16", LIST, A, B, ADD, MORE, __VA_ARGS__)

// d, a warpgroup's 64 rows and 2 SIZE columns = add ? d + a b : a b; 32 bytes along k
template <typename T, bool A_ALONG, bool B_ALONG, int SIZE>
__device__ void wgmma(Sum<T> (&d)[SIZE], uint64_t a, uint64_t b, bool add) {
    WGMMA_16_BITS(64, LIST_32, "%32", "%33", "%34", ", 1, 1, %35, %36",
                  SUMS_32("+f", 0));
    WGMMA_16_BITS(128, LIST_64, "%64", "%65", "%66", ", 1, 1, %67, %68", SUMS_64("+f"));
    WGMMA_16_BITS(192, LIST_96, "%96", "%97", "%98", ", 1, 1, %99, %100",
                  SUMS_96("+f"));
    WGMMA_16_BITS(256, LIST_128, "%128", "%129", "%130", ", 1, 1, %131, %132",
                  SUMS_128("+f"));
    if constexpr (sizeof(T) == 1)
        WGMMA("256k32.s32.s8.s8", LIST_128, "%128", "%129", "%130", "", SUMS_128("+r"));
    else if constexpr (sizeof(T) == 4 && SIZE == 128)
        WGMMA("256k8.f32.tf32.tf32", LIST_128, "%128", "%129", "%130", ", 1, 1",
              SUMS_128("+f"));
    else if constexpr (sizeof(T) == 4)
        WGMMA("128k8.f32.tf32.tf32", LIST_64, "%64", "%65", "%66", ", 1, 1",
              SUMS_64("+f"));
}

// The tiles of clusters, one after the other: GROUP rows of tiles at about a time.
template <class C> struct Tiles {
    int rows, cols;
    __host__ __device__ Tiles(int64_t M, int64_t N)
        : rows(cdiv(M, C::BESIDE ? C::ROWS : CLUSTER * C::ROWS)),
          cols(cdiv(N, C::BESIDE ? CLUSTER * C::COLS : C::COLS)) {}
    __host__ __device__ int count() const { return rows * cols; }
    // where that of the cluster's block `rank` begins
    __device__ void find(int tile, int rank, int& row, int& col) const {
        int group = tile / (GROUP * cols), i = tile % (GROUP * cols);
        int height = min(GROUP, rows - group * GROUP);
        row = group * GROUP + i % height, col = i / height;
        (C::BESIDE ? col : row) = (C::BESIDE ? col : row) * CLUSTER + rank;
        row *= C::ROWS, col *= C::COLS;
    }
};

// Where the next stage is; phase: of its barriers.
struct Turn {
    int stage = 0, phase = 0;
    __device__ void next(int stages) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

// One thread of the block: brings tile by tile, as soon as a stage is empty.
template <class C, bool A_ALONG, bool B_ALONG>
__device__ void produce(char* stages, Barrier* full, Barrier* empty,
                        const CUtensorMap& A_map, const CUtensorMap& B_map, int M,
                        int N, int K, int rank) {
    Tiles<C> tiles(M, N);
    Turn turn;
    for (int i = blockIdx.x / CLUSTER; i < tiles.count(); i += gridDim.x / CLUSTER) {
        int row, col;
        tiles.find(i, rank, row, col);
        for (int k = 0; k < K; k += C::DEPTH, turn.next(C::STAGES)) {
            Barrier& ready = full[turn.stage];
            empty[turn.stage].wait(turn.phase ^ 1);
            ready.arrive_and_expect(C::STAGE);
            char* to = stages + turn.stage * C::STAGE;
            for (int r = 0; r < C::PARTS * C::ROWS; r += 64, to += BOX) {
                int at = row + r % C::ROWS + r / C::ROWS * M;
                if (C::BESIDE && r / 64 % CLUSTER != rank) continue;  // each its share
                load_box<C::BESIDE>(to, A_map, ready, A_ALONG ? k : at,
                                    A_ALONG ? at : k);
            }
            for (int c = 0; c < C::PARTS * C::COLS; c += 64, to += BOX) {
                int at = col + c % C::COLS + c / C::COLS * N;
                if (!C::BESIDE && c / 64 % CLUSTER != rank) continue;
                load_box<!C::BESIDE>(to, B_map, ready, B_ALONG ? k : at,
                                     B_ALONG ? at : k);
            }
        }
    }
}

// A warpgroup's registers: element 4 j + 2 h + e is row lane / 4 + 8 h of the warp's
// 16, column 8 j + lane % 4 * 2 + e. Sums of 16 bits go through two boxes in turn.
template <typename T, int COUNT>
__device__ void write_sums(const CUtensorMap& map, Result<T>* out, char* boxes,
                           const Sum<T> (&sums)[COUNT], int row, int col, int M,
                           int N) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    if constexpr (sizeof(T) == 2) {
        bool first = threadIdx.x % WARPGROUP == 0;
        int r = 16 * warp + lane % 16;
#pragma unroll
        for (int c = 0; c < COUNT / 32; c++) {  // 64 columns are a box
            char* box = boxes + c % 2 * BOX;
            if (first && c == 0) wait_for_stores<0>();
            else if (first) wait_for_stores<1>();
            warpgroup_sync();  // the box has gone
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                unsigned packed[4];
                for (int i = 0; i < 4; i++) {
                    const Sum<T>* two = sums + 32 * c + 4 * j + 2 * i;
                    Pack<T, 2> pair = {T(two[0]), T(two[1])};
                    packed[i] = *reinterpret_cast<unsigned*>(&pair);
                }
                char* to = box + r * LINE + ((j + lane / 16) ^ r % 8) * 16;
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], "
                             "{%1, %2, %3, %4};" :: "r"(shared_at(to)), "r"(packed[0]),
                             "r"(packed[1]), "r"(packed[2]), "r"(packed[3]) : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            warpgroup_sync();  // the box is complete
            if (first) store_box(map, box, col + c * 64, row);
        }
    } else {
        using To = Result<T>;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = row + 16 * warp + lane / 4 + 8 * h;
            if (r >= M) continue;
#pragma unroll
            for (int j = 0; j < COUNT / 4; j++) {
                int c = col + 8 * j + lane % 4 * 2;
                store<To, 2>(out + int64_t(r) * N + c,
                             {sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]}, N - c,
                             N % 2 == 0);
            }
        }
    }
}

// A warpgroup: multiplies 64 rows of each tile.
template <class C, bool A_ALONG, bool B_ALONG>
__device__ void consume(char* stages, Barrier* full, Barrier* empty,
                        const CUtensorMap& out_map, Result<typename C::T>* out, int M,
                        int N, int K, int rank) {
    using T = typename C::T;
    constexpr bool EXACT = C::EXACT;
    constexpr int COUNT = C::COLS / 2, STEPS = LINE / 32;
    int group = threadIdx.x / WARPGROUP;
    char* boxes = stages + C::STAGES * C::STAGE + group * C::OUT;
    Tiles<C> tiles(M, N);
    auto release = [&](int stage) {  // a thread tells each block of the cluster
        int block = threadIdx.x % WARPGROUP;
        if (block < CLUSTER) empty[stage].arrive_in(block);
    };
    Turn turn;
    for (int i = blockIdx.x / CLUSTER; i < tiles.count(); i += gridDim.x / CLUSTER) {
        Sum<T> d[COUNT], sums[COUNT] = {};
        int last = -1;  // stage whose products may still be under way
        for (int k = 0; k < K; k += C::DEPTH, turn.next(C::STAGES)) {
            full[turn.stage].wait(turn.phase);
            unsigned A_at = shared_at(stages + turn.stage * C::STAGE) + group * BOX;
            unsigned B_at = shared_at(stages + turn.stage * C::STAGE) +
                            C::PARTS * C::A_BYTES;
            begin_wgmma();
#pragma unroll
            for (int step = 0; step < (EXACT ? 3 : 1) * STEPS; step++) {
                unsigned a = A_at + (EXACT && step / STEPS == 0 ? C::A_BYTES : 0);
                unsigned b = B_at + (EXACT && step / STEPS == 1 ? C::B_BYTES : 0);
                int s = step % STEPS;
                wgmma<T, A_ALONG, B_ALONG>(
                    d, describe<A_ALONG>(a + s * (A_ALONG ? 32 : 16 * LINE)),
                    describe<B_ALONG>(b + s * (B_ALONG ? 32 : 16 * LINE)),
                    EXACT ? step > 0 : k + step > 0);
            }
            end_wgmma();
            if constexpr (EXACT) {  // tensor cores round down: they add few at a time
                wait_for_wgmma<0>();
                release(turn.stage);
#pragma unroll
                for (int e = 0; e < COUNT; e++) sums[e] += d[e];
            } else {
                wait_for_wgmma<1>();
                if (last >= 0) release(last);
                last = turn.stage;
            }
        }
        wait_for_wgmma<0>();
        if (!EXACT) release(last);
        int row, col;
        tiles.find(i, rank, row, col);
        row += group * 64;
        write_sums<T>(out_map, out, boxes, EXACT ? sums : d, row, col, M, N);
    }
    if (threadIdx.x % WARPGROUP == 0) wait_for_stores<0>();
}

// out: (M, N), A: (M, K), B: (K, N), all with K > 0; see Cut
template <class C, bool A_ALONG, bool B_ALONG>
__global__ void __launch_bounds__(C::THREADS, 1)
matmul_wgmma_kernel(const __grid_constant__ CUtensorMap out_map,
                    const __grid_constant__ CUtensorMap A_map,
                    const __grid_constant__ CUtensorMap B_map,
                    Result<typename C::T>* out, int M, int N, int K) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ Barrier full[C::STAGES], empty[C::STAGES];
    extern __shared__ char memory[];
    char* stages = memory + (1024 - shared_at(memory) % 1024) % 1024;
    int rank = blockIdx.x % CLUSTER;
    if (threadIdx.x == 0) {
        for (int s = 0; s < C::STAGES; s++) {
            full[s].init(1);
            empty[s].init(CONSUMERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    } else if (threadIdx.x == CONSUMERS * WARPGROUP)
        prefetch(A_map), prefetch(B_map);
    cluster_sync();  // all barriers are there before one is used
    if (threadIdx.x / WARPGROUP == CONSUMERS) {
        move_registers<false>();
        if (threadIdx.x % WARPGROUP == 0)
            produce<C, A_ALONG, B_ALONG>(stages, full, empty, A_map, B_map, M, N, K,
                                         rank);
    } else {
        move_registers<true>();
        consume<C, A_ALONG, B_ALONG>(stages, full, empty, out_map, out, M, N, K, rank);
    }
    cluster_sync();  // the other block may still arrive at barriers of this one
#else
    __trap();  // launch_wgmma sees that it was not built
#endif
}

// out, (PARTS * rows, pitch), below each other: x in rows that run along k, floats as
// the nearest number of TF32 and, of two PARTS, what is left
// x[r, k] is at r * stride + k if ALONG, else at k * stride + r
template <typename T, int PARTS, bool ALONG>
__global__ void rows_kernel(T* out, const T* x, int rows, int K, int64_t stride,
                            int pitch) {
    __shared__ T tile[32][32 + 4 / sizeof(T)];
    int across = cdiv(K, 32), lane = threadIdx.x;
    int row0 = blockIdx.x / across * 32, k0 = blockIdx.x % across * 32;
    for (int i = threadIdx.y; i < 32; i += blockDim.y) {
        int row = row0 + (ALONG ? i : lane), k = k0 + (ALONG ? lane : i);
        if (row < rows && k < K)
            (ALONG ? tile[i][lane] : tile[lane][i]) =
                x[ALONG ? row * stride + k : k * stride + row];
    }
    __syncthreads();  // the tile is complete
    for (int i = threadIdx.y; i < 32; i += blockDim.y) {
        int64_t row = row0 + i, k = k0 + lane;
        if (row >= rows || k >= K) continue;
        T* to = out + row * pitch + k;
        *to = tile[i][lane];
        if constexpr (sizeof(T) == 4) {
            unsigned bits = __float_as_uint(*to), low = 0;
            if (PARTS > 1) split(bits, low);
            else round_to_tf32(bits);
            *to = __uint_as_float(bits);
            if (PARTS > 1) to[int64_t(rows) * pitch] = __uint_as_float(low);
        }
    }
}

// TMA's view of the first `cols` columns of a matrix with contiguous rows, in boxes of
// 64 rows
template <typename T> static CUtensorMap map_of(const Tensor& x, int64_t cols) {
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
                    "matmul_tensor_core: expected NVIDIA's driver for CUDA 12 or "
                    "later, got one without cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    constexpr auto TYPE = sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                        : sizeof(T) == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                         : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    CUtensorMap map;
    cuuint64_t sizes[] = {cuuint64_t(cols), cuuint64_t(x.size(0))};
    cuuint64_t strides[] = {cuuint64_t(x.stride(0) * sizeof(T))};
    cuuint32_t box[] = {LINE / sizeof(T), 64}, steps[] = {1, 1};
    auto result = encode(&map, TYPE, 2, x.data_ptr(), sizes, strides, box, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

// for rows that begin at multiples of 16 bytes
static bool suits_tma(const Tensor& x) {
    auto address = reinterpret_cast<uintptr_t>(x.data_ptr());
    return x.stride(0) >= x.size(1) &&
           (address | x.stride(0) * x.element_size()) % 16 == 0;
}

// x: (rows, K) in rows that suit TMA; floats as sums of PARTS numbers of TF32, each
// part below the one before
template <typename T, int PARTS>
static Tensor to_rows(const Tensor& x, bool along) {
    int64_t rows = x.size(0), K = x.size(1), width = 16 / sizeof(T);
    Tensor out = torch::empty({PARTS * rows, cdiv(K, width) * width}, x.options());
    int64_t grid = int64_t(cdiv(rows, 32)) * cdiv(K, 32);
    auto kernel = along ? rows_kernel<T, PARTS, true> : rows_kernel<T, PARTS, false>;
    kernel<<<grid, dim3(32, 8), 0, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), x.data_ptr<T>(), rows, K, x.stride(along ? 0 : 1),
        out.size(1));
    return out;
}

static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

// once, in whatever types
static void warn_of_build(const Tensor& x) {
    if (attribute(cudaDevAttrComputeCapabilityMajor, x) == 9)
        TORCH_WARN_ONCE("matmul_tensor_core: built without sm_90a, so without wgmma; "
                        "pass nvcc -gencode=arch=compute_90a,code=sm_90a");
}

// out from A and B in rows that suit TMA; see Cut
template <class C, bool A_ALONG, bool B_ALONG>
static void launch_wgmma(Tensor out, Tensor A, Tensor B, int K, int sms) {
    using T = typename C::T;
    int64_t M = out.size(0), N = out.size(1);
    auto kernel = matmul_wgmma_kernel<C, A_ALONG, B_ALONG>;
    unsigned clusters = std::min(sms / CLUSTER, Tiles<C>(M, N).count());
    CUtensorMap out_map = {};
    if (sizeof(T) == 2) out_map = map_of<T>(out, N);
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SHARED));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {CLUSTER, 1, 1};
    cudaLaunchConfig_t config = {clusters * CLUSTER, C::THREADS, C::SHARED,
                                 getCurrentCUDAStream(), &cluster, 1};
    C10_CUDA_CHECK(cudaLaunchKernelEx(
        &config, kernel, out_map, map_of<T>(A, A_ALONG ? K : M),
        map_of<T>(B, B_ALONG ? K : N), out.data_ptr<Result<T>>(), int(M), int(N), K));
}

// The clocks that products of 16 bits take, cut by C. Clusters take turns. A tile costs
// TILE clocks, and 24 per column, beside its slices of k, each the longer of
//   4 COLS: 2,048 multiply-adds a clock (wgmma),
//   its bytes of A and B, from L2, at 36 a clock: what two blocks share comes once.
// Meanwhile all comes from memory or goes there, 11 bytes a clock and SM, and a tenth
// of the shorter time does not overlap. The numbers are those of kernels/linear.cu.
template <class C>
static double clocks_of(int64_t M, int64_t N, int64_t K, int sms) {
    constexpr double TILE = 4000;
    constexpr int OWN = C::BESIDE ? C::B_BYTES : C::A_BYTES;
    double slice = std::max(4.0 * C::COLS, (C::STAGE + OWN) / 2 / 36.0);
    double turns = cdiv(Tiles<C>(M, N).count(), sms / CLUSTER);
    double work = turns * (cdiv(K, C::DEPTH) * slice + TILE + 24 * C::COLS);
    double memory = 2.0 * (double(M) * K + double(K) * N + double(M) * N) / (11 * sms);
    return std::max(work, memory) + 0.1 * std::min(work, memory);
}

// products of 16 bits by the cut that should be fastest
template <typename T, bool A_ALONG, bool B_ALONG>
static void launch_fastest(Tensor out, Tensor A, Tensor B, int K, int sms) {
    double least = INFINITY;
    void (*fastest)(Tensor, Tensor, Tensor, int, int) = nullptr;
    auto weigh = [&](auto cut) {
        using C = decltype(cut);
        double clocks = clocks_of<C>(out.size(0), out.size(1), K, sms);
        if (clocks < least) least = clocks, fastest = launch_wgmma<C, A_ALONG, B_ALONG>;
    };
    weigh(Cut<T, false, 256>());
    weigh(Cut<T, false, 192>());
    weigh(Cut<T, false, 128>());
    weigh(Cut<T, false, 64>());
    fastest(out, A, B, K, sms);
}

// Whether it did: in a build with wgmma, for operands that suit TMA and fill the GPU,
// or of 16 bits take 256 x 256 x 256 products (on an H100 8.2 us, 10.2 by mma.sync)
template <typename T, bool EXACT, bool A_ALONG, bool B_ALONG>
static bool launch_wgmma(Tensor out, Tensor A, Tensor B) {
    using C = Cut<T, EXACT, EXACT ? 128 : 256>;
    // wgmma has operands of 16 bits either way round, others in rows that run along k
    constexpr bool COPY_A = sizeof(T) == 4 || (sizeof(T) == 1 && !A_ALONG);
    constexpr bool COPY_B = sizeof(T) == 4 || (sizeof(T) == 1 && !B_ALONG);
    constexpr bool A_WAY = A_ALONG || COPY_A, B_WAY = B_ALONG || COPY_B;
    int64_t M = A.size(0), K = A.size(1), N = B.size(1);
    Tensor A_rows = A_ALONG ? A : A.t(), B_rows = B_ALONG ? B.t() : B;
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, matmul_wgmma_kernel<C, A_WAY, B_WAY>));
    int sms = attribute(cudaDevAttrMultiProcessorCount, A);
    bool fills = sizeof(T) == 2 ? double(M) * N * K >= 1 << 24
                                : std::min(sms / CLUSTER, Tiles<C>(M, N).count()) >= 32;
    bool suits = (COPY_A || suits_tma(A_rows)) && (COPY_B || suits_tma(B_rows)) &&
                 (sizeof(T) != 2 || suits_tma(out));
    if (!suits || K == 0 || !fills) return false;
    if (built.sharedSizeBytes == 0) return warn_of_build(A), false;
    if (COPY_A) A_rows = to_rows<T, C::PARTS>(A, A_ALONG);
    if (COPY_B) B_rows = to_rows<T, C::PARTS>(B.t(), B_ALONG);
    if constexpr (sizeof(T) == 2)
        launch_fastest<T, A_WAY, B_WAY>(out, A_rows, B_rows, K, sms);
    else launch_wgmma<C, A_WAY, B_WAY>(out, A_rows, B_rows, K, sms);
    return true;
}
#endif

// 75 if the kernels are built for sm_75, also where a later GPU runs them
static int built_for() {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(
        &built, matmul_mma_kernel<at::Half, false, true, false>));
    return built.ptxVersion;
}

template <typename T, bool EXACT, bool A_ALONG, bool B_ALONG>
static void launch(Tensor out, Tensor A, Tensor B) {
#ifdef __CUDACC_VER_MAJOR__
    if (launch_wgmma<T, EXACT, A_ALONG, B_ALONG>(out, A, B)) return;
#endif
    int M = A.size(0), N = B.size(1), K = A.size(1);
    int64_t grid = int64_t(cdiv(M, TILE_M)) * cdiv(N, TILE_N);
    TORCH_CHECK(grid <= INT_MAX, "matmul_tensor_core: expected an out of up to 2^31 "
                "tiles of 128 x 128, got ", out.sizes());
    A = aligned<T>(A_ALONG ? A : A.t());
    B = aligned<T>(B_ALONG ? B.t() : B);
    auto kernel = matmul_mma_kernel<T, EXACT, A_ALONG, B_ALONG>;
    int bytes = STAGE_BYTES * (built_for() < 80 ? 2 : 3);  // as STAGES is there
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<grid, THREADS, bytes, getCurrentCUDAStream()>>>(
        out.data_ptr<Result<T>>(), A.data_ptr<T>(), B.data_ptr<T>(), M, N, K,
        A.stride(0), B.stride(0));
}

static bool has_rows(const Tensor& x) { return x.stride(1) == 1 || x.size(1) == 1; }

template <typename T, bool EXACT = false>
static void launch(Tensor out, Tensor A, Tensor B) {
    if (has_rows(A) && has_rows(B)) launch<T, EXACT, true, false>(out, A, B);
    else if (has_rows(A)) launch<T, EXACT, true, true>(out, A, B);
    else if (has_rows(B)) launch<T, EXACT, false, false>(out, A, B);
    else  // with EXACT, the kernel for columns times columns lacks registers
        launch<T, EXACT, EXACT, true>(out, EXACT ? A.contiguous() : A, B);
}

static void check_input(const char* name, Tensor x, Tensor A) {
    auto type = x.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16 || type == torch::kInt8;
    bool fits = x.dim() == 2 && x.size(0) <= 1 << 30 && x.size(1) <= 1 << 30;
    TORCH_CHECK(known && fits && (has_rows(x) || has_rows(x.t())) && x.is_cuda() &&
                x.device() == A.device(), name, ": expected float32, float16, bfloat16 "
                "or int8 on one CUDA device, a matrix, rows or columns contiguous, "
                "got ", type, " on ", x.device(), ", shape ", x.sizes(), ", strides ",
                x.strides());
}

Tensor matmul_tensor_core(Tensor A, Tensor B, bool allow_tf32) {
    auto type = A.scalar_type();
    TORCH_CHECK(B.scalar_type() == type, "matmul_tensor_core: expected A and B of one "
                "type, got ", type, " and ", B.scalar_type());
    check_input("A", A, A);
    check_input("B", B, A);
    TORCH_CHECK(A.size(1) == B.size(0), "matmul_tensor_core: expected A: (M, K) and B: "
                "(K, N), got ", A.sizes(), " and ", B.sizes());
    c10::cuda::CUDAGuard guard(A.device());
    TORCH_CHECK(type == torch::kFloat16 || type == torch::kInt8 || built_for() >= 80,
                "A: expected float16 or int8 in a build for GPUs before sm_80, got ",
                type);
    Tensor out = torch::empty({A.size(0), B.size(1)}, A.options().dtype(
        type == torch::kInt8 ? torch::kInt32 : type));
    if (out.numel() == 0) return out;
    if (type == torch::kFloat16) launch<at::Half>(out, A, B);
    else if (type == torch::kBFloat16) launch<at::BFloat16>(out, A, B);
    else if (type == torch::kInt8) launch<int8_t>(out, A, B);
    else if (allow_tf32) launch<float>(out, A, B);
    else launch<float, true>(out, A, B);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
