// kernels/matmul.cu
// SPDX-License-Identifier: MIT
// Matrix product: out = A @ B, or in place out = alpha A @ B + beta out, without tensor
// cores. A: (M, K), B: (K, N), out: (M, N), sides up to 2^30, strided: rows or columns
// are contiguous, so transposed views and parts of a matrix need no copy. float32,
// float16 or bfloat16, sums in float32, rounded once; beta = 0 does not read out.
// Results repeat to the bit. 2 M N K FLOPs, at least M K + K N + M N elements to move;
// scratch memory: where K is long for few tiles, a float32 out for each share of K
// (split-K). Blocks go over out in bands of 8 rows of tiles (threadblock swizzle).
// Notebook: 09b_matmul_any_shape. Own code, after S. Boehm, "How to Optimize a CUDA
// Matmul Kernel" (2022), and NVIDIA, "CUTLASS: Fast Linear Algebra in CUDA C++" (2017).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// matmul = load_inline("matmul", cuda_sources=Path("matmul.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor matmul(Tensor A, Tensor B);
//         void matmul_into(Tensor out, Tensor A, Tensor B, double alpha, double beta);
//         """, functions=["matmul", "matmul_into"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda_pipeline.h>
#include <torch/types.h>
#include <algorithm>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

static int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T, int WIDTH = 4> struct alignas(WIDTH * sizeof(T)) Pack {
    T at[WIDTH];  // neighbours
};

// A matrix: element (row, col) is data[row * row_stride + col * col_stride]
template <typename T> struct View {
    T* data;
    int64_t row_stride, col_stride;  // one of them is 1
    bool in_packs;                   // along that one there are whole packs everywhere
};

// A block's tile of BM × BN elements of out: WARPS_M × WARPS_N warps of 8 × 4 lanes,
// each lane with TM × TN elements. It goes along K in slices of BK. BLOCKS: for an SM
template <int WARPS_M, int WARPS, int M_, int N_, int K_, int BLOCKS_> struct Tile {
    static constexpr int TM = M_, TN = N_, BK = K_, BLOCKS = BLOCKS_, WARPS_N = WARPS;
    static constexpr int THREADS = WARPS_M * WARPS_N * 32;
    static constexpr int BM = WARPS_M * 8 * TM, BN = WARPS_N * 4 * TN;
};

// In kernels for sm_90 and later: the next one may begin beside this one, and
__device__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}
// wait until all of this one is written
__device__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool HAS_ASYNC = false;  // copies to shared memory past the registers
#else
constexpr bool HAS_ASYNC = true;
#endif

// *to = *from if `inside`, else 0; it is there after __pipeline_wait_prior
__device__ void copy_async(float* to, const float* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(unsigned(__cvta_generic_to_shared(to))), "l"(from),
                    "r"(inside ? 4 : 0) : "memory");
#endif
}

// A loader (a tile iterator) brings slices of a matrix to shared memory, one after
// another: ROWS × BK elements, column after column, (BK, ROWS + 4). Each comes by
// itself, so that for any strides, address and edge the instructions are the same, and
// without a branch. Element c of a thread is in its row c % DOWN, STEP apart, and its
// column c / DOWN, 8 apart: a pointer for each of the rows, and `moved`, the way along
// k, for all
template <typename T, int ROWS, int BK, int THREADS> struct Loader {
    static constexpr bool ASYNC = HAS_ASYNC && std::is_same_v<T, float>;
    static constexpr int STEP = THREADS / 8, DOWN = ROWS / STEP, WARPS = THREADS / 32;
    static constexpr int COPIES = DOWN * BK / 8, STRIDE = ROWS + 4;
    static_assert(ROWS % STEP == 0 && STEP <= 32);
    const T* from[DOWN];            // the thread's first elements, STEP rows apart
    int64_t moved = 0, col_stride;  // moved: from there to the next slice
    T values[ASYNC ? 1 : COPIES];   // on their way through registers
    int k, to;                      // the thread's first place in a slice

    // Threads lie on STEP rows × 8 columns at a time, neighbours where the matrix has
    // them; the columns of a warp are so far apart that no two threads share a bank
    __device__ Loader(View<const T> x, int first_row, int rows, int first_k)
        : col_stride(x.col_stride) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        bool along_k = x.col_stride == 1;
        int row = along_k ? threadIdx.x / 8 : lane % STEP;
        k = along_k ? threadIdx.x % 8 : lane / STEP * WARPS + warp;
        to = k * STRIDE + row;
        for (int d = 0; d < DOWN; d++) {  // rows beyond the last: the last once more
            int64_t r = min(first_row + row + d * STEP, rows - 1);
            from[d] = x.data + r * x.row_stride + (int64_t(first_k) + k) * col_stride;
        }
    }
    // where the thread's element c is in a slice, from its first: columns, and places
    static __device__ int more_k(int c) { return c / DOWN * 8; }
    static __device__ int more(int c) { return more_k(c) * STRIDE + c % DOWN * STEP; }

    // Asks for part number `part` of a slice; from column k_left on there are zeros
    __device__ void load(float* tile, int k_left, int part, int parts) {
#pragma unroll
        for (int c = part * COPIES / parts; c < (part + 1) * COPIES / parts; c++) {
            const T* p = from[c % DOWN] + moved;
            bool inside = k + more_k(c) < k_left;
            if constexpr (ASYNC) copy_async(tile + to + more(c), p, inside);
            else values[c] = inside ? *p : T(0.0f);
            if (c % DOWN == DOWN - 1) moved += 8 * col_stride;
        }
    }
    __device__ void store(float* tile) {  // what came through registers
        if constexpr (!ASYNC)
#pragma unroll
            for (int c = 0; c < COPIES; c++) tile[to + more(c)] = float(values[c]);
    }
};

constexpr int STAGES = 3;  // slices in shared memory: one in use, the others to come

// The slices of A and B that a block needs, in turn, in a ring of STAGES; `now` and
// `free` are offsets: of the slice that is multiplied, and of the one that was
// multiplied before it, whose place the next copies take.
template <typename S, typename T> struct Slices {
    static constexpr int A_STRIDE = S::BM + 4, A_SIZE = S::BK * A_STRIDE;
    static constexpr int B_STRIDE = S::BN + 4, SIZE = A_SIZE + S::BK * B_STRIDE;
    Loader<T, S::BM, S::BK, S::THREADS> A;
    Loader<T, S::BN, S::BK, S::THREADS> B;
    float* tiles;  // STAGES * SIZE
    // for an SM; fewer where elements on their way take registers
    static constexpr int BLOCKS = decltype(A)::ASYNC ? S::BLOCKS : S::BLOCKS * 3 / 4;
    int now = 0, free = 0;

    static __device__ int after(int place) {
        return place == (STAGES - 1) * SIZE ? 0 : place + SIZE;
    }
    __device__ void load(int k_left, int part, int parts) {
        A.load(tiles + free, k_left, part, parts);
        B.load(tiles + free + A_SIZE, k_left, part, parts);
        if (part == parts - 1) __pipeline_commit();
    }
    __device__ void store() {
        A.store(tiles + free);
        B.store(tiles + free + A_SIZE);
        free = after(free);
    }
    __device__ void wait() {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();  // the next slice is complete, and the one before read by all
    }
};

// COUNT numbers for the outer product: fours, STEP apart
template <int STEP, int COUNT>
__device__ void load_fragment(float (&fragment)[COUNT], const float* from) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
        *reinterpret_cast<float4*>(fragment + i) =
            *reinterpret_cast<const float4*>(from + i / 4 * STEP);
}

// acc += a b^T, columns first ... end - 1
template <int TM, int TN>
__device__ void add_outer(float (&acc)[TM][TN], const float (&a)[TM],
                          const float (&b)[TN], int first, int end) {
#pragma unroll
    for (int j = first; j < end; j++)
#pragma unroll
        for (int down = 0; down < TM; down++) {
            int i = j % 2 ? TM - 1 - down : down;  // to and fro: reuses one
            acc[i][j] += a[i] * b[j];
        }
}

// acc += A @ B^T over k_left columns, the lane's elements from (row, col) of the tile.
// Two pipelines, one in the other:
//   1. memory to shared memory, AHEAD = STAGES - 1 slices ahead: part by part in the
//      first BK / 2 columns of a slice, so that these instructions lie among
//      multiplications. They go where the slice before was; at its last column was the
//      barrier behind which nobody reads it. At the last column the next slice has to
//      have come.
//   2. shared memory to registers, a column ahead: while column k is multiplied, the
//      fragments of k + 1 are on their way, at the last k column 0 of the next slice.
// A loop waits for all loads before it turns: so it turns in the middle of column 0,
// where there are none; the first half of the first column 0 stands before it.
template <typename S, typename T>
__device__ void multiply(float (&acc)[S::TM][S::TN], Slices<S, T>& slices, int row,
                         int col, int k_left) {
    constexpr int BK = S::BK, HALF = S::TN / 2, AHEAD = STAGES - 1;
    float a[2][S::TM], b[2][S::TN];
    const float* a_from = slices.tiles + row;
    const float* b_from = slices.tiles + slices.A_SIZE + col;
    auto load_fragments = [&](int k) {
        load_fragment<32>(a[k % 2], a_from + k * slices.A_STRIDE);
        load_fragment<16>(b[k % 2], b_from + k * slices.B_STRIDE);
    };
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
        slices.load(k_left - s * BK, 0, 1);
        slices.store();
    }
    slices.wait();
    load_fragments(0);
    add_outer(acc, a[0], b[0], 0, HALF);
    for (; k_left > 0; k_left -= BK) {
#pragma unroll
        for (int k = 0; k < BK; k++) {
            if (k == BK - 1) {
                slices.store();
                slices.wait();
                slices.now = slices.after(slices.now);
                a_from = slices.tiles + slices.now + row;
                b_from = slices.tiles + slices.now + slices.A_SIZE + col;
            }
            load_fragments((k + 1) % BK);
            if (k < BK / 2) slices.load(k_left - AHEAD * BK, k, BK / 2);
            add_outer(acc, a[k % 2], b[k % 2], k == 0 ? HALF : 0, S::TN);
        }
        add_outer(acc, a[0], b[0], 0, HALF);
    }
    __pipeline_wait_prior(0);  // what was asked for beyond the last slice
}

template <typename T> __device__ T blend(float sum, T old, float alpha, float beta) {
    return T(beta == 0.0f ? alpha * sum : alpha * sum + beta * float(old));
}

// to = alpha sums + beta to, the pack if it is `whole`, else its `inside` elements
template <typename T>
__device__ void store_pack(T* to, bool whole, int inside, Pack<float> sums, float alpha,
                           float beta) {
    Pack<T> pack = {};
    if (whole && beta != 0.0f) pack = *reinterpret_cast<Pack<T>*>(to);
    for (int i = 0; i < 4; i++) {
        if (!whole && beta != 0.0f && i < inside) pack.at[i] = to[i];
        pack.at[i] = blend(sums.at[i], pack.at[i], alpha, beta);
        if (!whole && i < inside) to[i] = pack.at[i];
    }
    if (whole) *reinterpret_cast<Pack<T>*>(to) = pack;
}

// out = alpha acc + beta out, the lane's elements from (row, col) on; by packs of ROWS,
// else of columns. WHOLE: all packs of the block's tile are inside
template <typename S, bool ROWS, bool WHOLE, typename T>
__device__ void store_acc(View<T> out, const float (&acc)[S::TM][S::TN], int row,
                          int col, int M, int N, float alpha, float beta) {
#pragma unroll
    for (int i = 0; i < S::TM; i += ROWS ? 1 : 4)
#pragma unroll
        for (int j = 0; j < S::TN; j += ROWS ? 4 : 1) {
            int m = row + i / 4 * 32 + i % 4, n = col + j / 4 * 16 + j % 4;
            int inside = m < M && n < N ? (ROWS ? N - n : M - m) : 0;
            bool whole = WHOLE || (out.in_packs && inside >= 4);
            T* to = out.data + m * out.row_stride + n * out.col_stride;
            Pack<float> sums;
            for (int q = 0; q < 4; q++)
                sums.at[q] = ROWS ? acc[i][j + q] : acc[i + q][j];
            store_pack(to, whole, inside, sums, alpha, beta);
        }
}

// out: (M, N) = alpha A @ B^T + beta out, A: (M, K), B: (N, K). blockIdx.y: the share
// of K (a slice of split-K); where there are several, their sums go to parts.
// blockIdx.x: the tile, in the order of bands (a threadblock swizzle): down 8 tiles,
// then a column further. About as many blocks are at work as an SM holds, times SMs; in
// this order they share few rows of A and columns of B, which then come from L2:
//   row by row   0 1 2 3 4 5 6 7   8 blocks need 1 row of tiles of A and 8 columns of B
//   bands of 2   0 2 4 6
//                1 3 5 7           8 blocks need 2 rows and 4 columns
template <typename S, typename T>
__global__ void __launch_bounds__(S::THREADS, Slices<S, T>::BLOCKS)
matmul_kernel(View<T> out, View<float> parts, View<const T> A, View<const T> B, int M,
              int N, int K, int share, int64_t part_size, float alpha, float beta) {
    __shared__ __align__(16) float tiles[STAGES * Slices<S, T>::SIZE];
    let_next_begin();
    int down = (M - 1) / S::BM + 1, across = (N - 1) / S::BN + 1;
    int band = blockIdx.x / (8 * across), in_band = blockIdx.x % (8 * across);
    int height = min(8, down - band * 8);  // in tiles: blocks at work share rows in L2
    int first_row = (band * 8 + in_band % height) * S::BM;
    int first_col = in_band / height * S::BN;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // bits 1, 3, 4 of the lane count down, 0 and 2 across: neighbours load the same
    int row = warp / S::WARPS_N * 8 * S::TM + (lane / 2 % 2 + lane / 8 * 2) * 4;
    int col = warp % S::WARPS_N * 4 * S::TN + (lane % 2 + lane / 4 % 2 * 2) * 4;
    int first_k = blockIdx.y * share, k_left = min(K - first_k, share);
    Slices<S, T> slices = {
        {A, first_row, M, first_k}, {B, first_col, N, first_k}, tiles};
    float acc[S::TM][S::TN] = {};
    multiply(acc, slices, row, col, k_left);
    row += first_row;
    col += first_col;
    parts.data += blockIdx.y * part_size;
    auto store = [&](auto to) {
        bool whole = first_row + S::BM <= M && first_col + S::BN <= N && to.in_packs;
        if (to.col_stride != 1)
            store_acc<S, false, false>(to, acc, row, col, M, N, alpha, beta);
        else if (whole) store_acc<S, true, true>(to, acc, row, col, M, N, alpha, beta);
        else store_acc<S, true, false>(to, acc, row, col, M, N, alpha, beta);
    };
    if constexpr (std::is_same_v<T, float>) store(gridDim.y == 1 ? out : parts);
    else if (gridDim.y == 1) store(out);
    else store(parts);
}

constexpr unsigned ALL_LANES = 0xffffffff;
constexpr int WARP_SIZE = 32, WARPS = 16, DEPTH = 8;  // DEPTH: loads that a lane awaits

// out: (M, 1) = alpha A @ x^T + beta out, A: (M, K), x: (1, K), by packs of WIDTH that
// lie ALONG_K or down. A warp is on one row or, down, on 32; lanes beside each other
// share k, and so do `warps` warps of the block. blockIdx.y: the share of K, as above
template <typename T, int WIDTH, bool ALONG_K>
__global__ void __launch_bounds__(WARPS * WARP_SIZE)
matmul_vector_kernel(View<T> out, View<float> parts, View<const T> A, View<const T> x,
                     int M, int K, int share, int64_t part_size, int warps, float alpha,
                     float beta) {
    constexpr int ROWS = ALONG_K ? 1 : WIDTH, COLS = ALONG_K ? WIDTH : 1;  // of a pack
    constexpr int DOWN = ALONG_K ? 1 : WARP_SIZE / WIDTH, ALONG = WARP_SIZE / DOWN;
    __shared__ float sums[WARPS][DOWN * ROWS];
    let_next_begin();
    int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    int64_t group = int64_t(blockIdx.x) * (WARPS / warps) + warp / warps;  // of rows
    int64_t row = group * DOWN * ROWS + lane % DOWN * ROWS;
    int first_k = blockIdx.y * share, end = first_k + min(K - first_k, share);
    int k = first_k + (warp % warps * ALONG + lane / DOWN) * COLS;
    int step = warps * ALONG * COLS;
    // rows and columns beyond the last: the last once more, and not used
    const T* from = A.data + min(row, int64_t(M) - ROWS) * A.row_stride;
    float sum[ROWS] = {};
    for (; k < end; k += DEPTH * step) {
        Pack<T, WIDTH> a[DEPTH];
        Pack<T, COLS> b[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            int64_t at = min(k + d * step, end - COLS);
            a[d] = *reinterpret_cast<const Pack<T, WIDTH>*>(from + at * A.col_stride);
            b[d] = *reinterpret_cast<const Pack<T, COLS>*>(x.data + at * x.col_stride);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < WIDTH && k + d * step < end; i++)
                sum[i % ROWS] += float(a[d].at[i]) * float(b[d].at[i % COLS]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        for (int half = WARP_SIZE / 2; half >= DOWN; half /= 2)
            sum[i] += __shfl_xor_sync(ALL_LANES, sum[i], half);
        if (lane < DOWN) sums[warp][lane * ROWS + i] = sum[i];
    }
    __syncthreads();  // the sums of all warps are there
    row = group * DOWN * ROWS + lane;
    if (warp % warps > 0 || lane >= DOWN * ROWS || row >= M) return;
    float total = 0.0f;
    for (int w = 0; w < warps; w++) total += sums[warp + w][lane];
    T* to = out.data + row * out.row_stride;
    parts.data += blockIdx.y * part_size;
    if (gridDim.y > 1) parts.data[row * parts.row_stride] = total;
    else *to = blend(total, beta == 0.0f ? T(0.0f) : *to, alpha, beta);
}

// out = alpha sum + beta out, the sum that of `count` parts, in a fixed order. Lines of
// out have `length` elements, a part's `pitch`, whole packs; blockDim.y threads are on
// a pack, each on every blockDim.y-th part
template <typename T>
__global__ void __launch_bounds__(256)
matmul_sum_kernel(T* out, int64_t line_stride, bool in_packs, const float* parts,
                  int count, int part_size, int pitch, int length, float alpha,
                  float beta) {
    __shared__ Pack<float> sums[256];
    wait_for_last();
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    parts += min(i, part_size - 4);
    Pack<float> sum = {};
    for (int p = threadIdx.y; p < count; p += DEPTH * blockDim.y) {
        Pack<float> v[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {  // beyond the last part: it once more
            int64_t at = min(p + d * int(blockDim.y), count - 1);
            v[d] = *reinterpret_cast<const Pack<float>*>(parts + at * part_size);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            for (int q = 0; q < 4 && p + d * blockDim.y < count; q++)
                sum.at[q] += v[d].at[q];
    }
    Pack<float>* column = sums + threadIdx.x;
    column[threadIdx.y * blockDim.x] = sum;
    __syncthreads();  // all sums are there
    if (threadIdx.y > 0 || i >= part_size) return;
    for (int y = 1; y < blockDim.y; y++)
        for (int q = 0; q < 4; q++) sum.at[q] += column[y * blockDim.x].at[q];
    int inside = length - i % pitch;
    out += i / pitch * line_stride + i % pitch;
    store_pack(out, in_packs && inside >= 4, inside, sum, alpha, beta);
}

using Square = Tile<2, 2, 8, 16, 8, 2>;  // 128 × 128
using Tall = Tile<2, 2, 8, 8, 8, 3>;     // 128 × 64
using Small = Tile<2, 2, 4, 8, 16, 4>;   // 64 × 64
using Tiny = Tile<2, 1, 4, 8, 16, 8>;    // 64 × 32
using Thin = Tile<4, 1, 4, 4, 16, 4>;    // 128 × 16

// One product out = A @ B^T, and how it is cut
template <typename T> struct Product {
    View<T> out;
    View<const T> A, B;
    int64_t M, N, K;
    float alpha, beta;
    int64_t share = 1, parts = 1;  // of K; how many there are
    void (*launch)(const Product&, View<float> parts, int64_t part_size) = nullptr;
    double cycles = INFINITY;  // that it will take, about

    void cut(int64_t wanted, int64_t unit) {  // into shares of whole units
        share = std::max<int64_t>(1, cdiv(K, wanted * unit)) * unit;
        parts = std::max<int64_t>(1, cdiv(K, share));
    }
};

template <typename T> static Product<T> transposed(Product<T> p) {  // out^T = B @ A^T
    std::swap(p.M, p.N);
    std::swap(p.A, p.B);
    std::swap(p.out.row_stride, p.out.col_stride);
    return p;
}

static int processors() {  // of the current device
    int count = 0, device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    auto which = cudaDevAttrMultiProcessorCount;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, which, device));
    return count;
}

template <typename S, typename T>
static void launch_tiles(const Product<T>& p, View<float> parts, int64_t part_size) {
    dim3 grid(cdiv(p.M, S::BM) * cdiv(p.N, S::BN), p.parts);
    matmul_kernel<S, T><<<grid, S::THREADS, 0, getCurrentCUDAStream()>>>(
        p.out, parts, p.A, p.B, p.M, p.N, p.K, p.share, part_size, p.alpha, p.beta);
}

template <int WIDTH, bool ALONG_K, typename T>
static void launch_vector(const Product<T>& p, View<float> parts, int64_t part_size) {
    int warps = ALONG_K && p.M >= 4 * processors() ? 1 : WARPS;  // enough rows for all
    dim3 grid(cdiv(p.M, ALONG_K ? WARPS / warps : WARP_SIZE), p.parts);
    matmul_vector_kernel<T, WIDTH, ALONG_K>
        <<<grid, WARPS * WARP_SIZE, 0, getCurrentCUDAStream()>>>(
            p.out, parts, p.A, p.B, p.M, p.K, p.share, part_size, warps, p.alpha,
            p.beta);
}

// Makes p go by the vector kernel
template <typename T> static void choose_vector(Product<T>& p) {
    bool along_k = p.A.col_stride == 1, packs = p.A.in_packs;
    if (along_k) packs &= p.B.in_packs && p.B.col_stride == 1 && p.K % 4 == 0;
    auto by_one = along_k ? launch_vector<1, true, T> : launch_vector<1, false, T>;
    auto by_packs = along_k ? launch_vector<4, true, T> : launch_vector<4, false, T>;
    p.launch = packs ? by_packs : by_one;
    int64_t blocks = along_k ? p.M : cdiv(p.M, WARP_SIZE);
    int64_t wanted = std::min(p.K / 1024, processors() / blocks);
    p.cut(std::max<int64_t>(1, wanted), 4);
}

// Makes `best` go by tiles S if that is faster, by a model of cycles fitted to an H200.
// Large tiles read less and keep an SM busier, small ones leave fewer SMs without work;
// shares of K make more blocks of few tiles. For 1 to S::BLOCKS blocks an SM:
//   1. K is cut into shares so that about so many blocks come to an SM; turns is how
//      many really do, waves how many after each other, as an SM holds S::BLOCKS.
//   2. A slice of K takes an SM its products, 128 a cycle, of which tiles S reach the
//      part `busy`; each wave waits 270 cycles for it, and takes 2,700 to begin and
//      end.
//   3. Memory may take longer, 0.0021 cycles for each element of A, B and out.
//   4. Parts cost 0.0025 for each of their elements, to be written, and read for the
//      sum.
template <typename S, typename T>
static void consider(Product<T>& best, Product<T> p, double busy) {
    int64_t tiles = cdiv(p.M, S::BM) * cdiv(p.N, S::BN), sms = processors();
    p.launch = launch_tiles<S, T>;
    for (int blocks = 1; blocks <= S::BLOCKS; blocks++) {  // for an SM, if K allows it
        p.cut(std::max<int64_t>(1, blocks * sms / tiles), S::BK);
        double turns = cdiv(tiles * p.parts, sms), waves = cdiv(turns, S::BLOCKS);
        double slice = turns * S::BM * S::BN * S::BK / (128 * busy) + waves * 270;
        p.cycles = std::max(p.share / S::BK * slice + waves * 2700,
                            0.0021 * (p.M * p.K + p.N * p.K + p.M * p.N));
        if (p.parts > 1) p.cycles += 0.0025 * p.parts * p.M * p.N;
        if (p.cycles < best.cycles) best = p;
    }
}

// Adds up what p has put into parts; begins early, and waits, where it knows how to
template <typename T>
static void launch_sum(const Product<T>& p, View<float> parts, int64_t part_size) {
    bool rows = p.out.col_stride == 1;
    int y = std::min<int64_t>(32, cdiv(p.parts, DEPTH));  // threads on a pack
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaFuncAttributes kernel;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&kernel, matmul_sum_kernel<T>));
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(256 / y, y);
    config.gridDim = cdiv(part_size / 4, config.blockDim.x);
    config.stream = getCurrentCUDAStream();
    config.attrs = &early;
    config.numAttrs = kernel.ptxVersion >= 90;  // compiled for sm_90 or later
    C10_CUDA_CHECK(cudaLaunchKernelEx(
        &config, matmul_sum_kernel<T>, p.out.data,
        rows ? p.out.row_stride : p.out.col_stride, p.out.in_packs,
        static_cast<const float*>(parts.data), int(p.parts), int(part_size),
        int(rows ? parts.row_stride : parts.col_stride), int(rows ? p.N : p.M), p.alpha,
        p.beta));
}

template <typename T> static void run(Product<T> p) {
    if (p.M == 1) p = transposed(p);  // a vector is B
    if (p.N == 1 && (p.K >= 256 || p.A.col_stride != 1)) {
        choose_vector(p);
    } else {
        // of equals the first: by packs of rows, or, where there are none, by columns
        if ((p.out.col_stride == 1) != p.out.in_packs) p = transposed(p);
        for (auto way : {p, transposed(p)}) {
            consider<Tall>(p, way, 0.79);
            if constexpr (std::is_same_v<T, float>)  // others lack the registers
                consider<Square>(p, way, 0.82);
            consider<Small>(p, way, 0.7);
            consider<Tiny>(p, way, 0.575);
            consider<Thin>(p, way, 0.445);
        }
    }
    if (p.parts == 1) return p.launch(p, {}, 0);
    bool rows = p.out.col_stride == 1;
    int64_t pitch = cdiv(rows ? p.N : p.M, 4) * 4;  // whole packs
    int64_t part_size = pitch * (rows ? p.M : p.N);
    Tensor sums = torch::empty({p.parts * part_size}, torch::device(torch::kCUDA));
    float* data = sums.data_ptr<float>();
    View<float> parts = {data, rows ? pitch : 1, rows ? 1 : pitch, true};
    Product<T> cut = p;
    cut.alpha = 1.0f, cut.beta = 0.0f;  // for the parts; the sum takes care of them
    p.launch(cut, parts, part_size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    launch_sum(p, parts, part_size);
}

template <typename T> static View<T> view(const Tensor& x) {
    int64_t row_stride = x.stride(0), col_stride = x.stride(1);
    if (x.size(0) <= 1) row_stride = col_stride == 1 ? 0 : 1;  // of no importance
    else if (x.size(1) <= 1) col_stride = row_stride == 1 ? 0 : 1;
    bool in_packs = col_stride == 1 ? row_stride % 4 == 0
                                    : col_stride % 4 == 0 && x.size(0) % 4 == 0;
    in_packs &= uintptr_t(x.data_ptr()) % sizeof(Pack<T>) == 0;
    return {static_cast<T*>(x.data_ptr()), row_stride, col_stride, in_packs};
}

static void check_input(const char* name, Tensor x, Tensor A, int64_t rows,
                        int64_t cols) {
    auto type = A.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    bool fits = x.dim() == 2 && (rows == -1 || x.size(0) == rows) &&
                (cols == -1 || x.size(1) == cols);
    bool lines = false;  // one after another, without gaps in them
    for (int64_t d = 0; fits && d < 2; d++) {
        lines |= (x.stride(d) == 1 || x.size(d) <= 1) &&
                 (x.stride(1 - d) >= x.size(d) || x.size(1 - d) <= 1);
        fits = x.size(d) <= 1 << 30;
    }
    TORCH_CHECK(known && fits && lines && x.scalar_type() == type && x.is_cuda() &&
                x.device() == A.device(), name, ": expected float32, float16 or "
                "bfloat16, as A, which has ", type, " on ", A.device(), ", shape (",
                rows, ", ", cols, ") (-1: any up to 2^30), rows or columns contiguous, "
                "got ", x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

void matmul_into(Tensor out, Tensor A, Tensor B, double alpha, double beta) {
    check_input("A", A, A, -1, -1);
    check_input("B", B, A, A.size(1), -1);
    check_input("out", out, A, A.size(0), B.size(1));
    CUDAGuard guard(A.device());
    if (out.numel() == 0) return;
    auto with = [&](auto zero) {
        using T = decltype(zero);
        run<T>({view<T>(out), view<const T>(A), view<const T>(B.t()), A.size(0),
                B.size(1), A.size(1), float(alpha), float(beta)});
    };
    if (A.scalar_type() == torch::kFloat32) with(float());
    else if (A.scalar_type() == torch::kFloat16) with(at::Half());
    else with(at::BFloat16());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor matmul(Tensor A, Tensor B) {
    check_input("A", A, A, -1, -1);
    check_input("B", B, A, A.size(1), -1);
    CUDAGuard guard(A.device());
    Tensor out = torch::empty({A.size(0), B.size(1)}, A.options());
    matmul_into(out, A, B, 1.0, 0.0);
    return out;
}
