// kernels/matmul_fp8.cu
// SPDX-License-Identifier: MIT
// Matrix product of floats of 8 bits: out = scale_a * scale_b * A @ B^T. A: (M, K) and
// B: (N, K), float8_e4m3fn or float8_e5m2, each its own; scale_a, scale_b: a float32
// each, on the GPU; out: (M, N), bfloat16, rounded once. All contiguous, M, N and K up
// to 2^30. Tensor cores keep some 14 bits of sums of such products: each 128 of k are
// added up there, these sums in float32; with fast_accum, on sm_90, all of k there. 2 M
// N K FLOPs, reads A and B once per 128 to 256 columns or rows of out; scratch memory
// for a copy of an operand whose rows are not multiples of 16 bytes. sm_90 (N a
// multiple of 8, tiles to fill the GPU): wgmma and TMA, which come in a build for
// sm_90a only: by the flag below, or "9.0a" in TORCH_CUDA_ARCH_LIST. sm_89: mma of 8
// bits. Older ones: float16, in which 8-bit floats are exact, as products in float32.
// NaN and infinity as in a product of float32. On sm_90 blocks are persistent and warps
// specialised: one produces (TMA, mbarriers), two warpgroups consume. Notebook:
// 15b_quantization. Own code; after NVIDIA, PTX ISA, "wgmma", and CUTLASS (BSD
// 3-Clause).
//
// from pathlib import Path
// import torch
// from torch.utils.cpp_extension import load_inline
// major, minor = torch.cuda.get_device_capability()
// arch = f"{major}{minor}" + "a" * (major >= 9)
// matmul_fp8 = load_inline("matmul_fp8",
//     cuda_sources=Path("matmul_fp8.cu").read_text(),
//     cpp_sources="torch::Tensor matmul_fp8(torch::Tensor A, torch::Tensor B, "
//         "torch::Tensor scale_a, torch::Tensor scale_b, bool fast_accum);",
//     functions=["matmul_fp8"],
//     extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;

enum Type { E4M3, E5M2 };  // of an operand

constexpr int LINE = 128;  // bytes, and numbers, along k of a tile: of a row of A or B
constexpr int TILE = 128;  // rows and columns of out, per block
constexpr int WARP_M = 64, WARP_N = 32;  // per warp
constexpr int WARPS_N = TILE / WARP_N, THREADS = TILE / WARP_M * WARPS_N * 32;
constexpr int STAGE = 2 * TILE * LINE;  // bytes: a tile of A and one of B
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int STAGES = 2;  // tiles in shared memory: all that sm_75 has room for
#else
constexpr int STAGES = 3;
#endif
constexpr int GROUP = 8;  // rows of tiles whose blocks run at about the same time

static __host__ __device__ int cdiv(int64_t a, int64_t b) {
    return int((a + b - 1) / b);
}

// which tile is number i: GROUP rows of tiles at a time, column by column
static __device__ void find_tile(int i, int rows, int cols, int& row, int& col) {
    int group = i / (GROUP * cols) * GROUP, height = min(GROUP, rows - group);
    i %= GROUP * cols;
    row = group + i % height, col = i / height;
}

// the swizzled offset of a piece, a chunk of 16 bytes, in a tile: eight that are
// written or read at once lie in different banks
static __device__ int place(int row, int piece) {
    return row * LINE + (piece ^ row % 8) * 16;
}

// 16 bytes from global to shared memory, asynchronously; zeros if they are not inside
static __device__ void copy_piece(char* to, const uint8_t* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(from), "r"(inside ? 16 : 0));
#else
    uint4 zeros = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(to) =
        inside ? *reinterpret_cast<const uint4*>(from) : zeros;
#endif
}

// a tile to shared memory, of which `rows` rows of `left` bytes are inside
static __device__ void copy_tile(char* to, const uint8_t* from, int64_t pitch, int rows,
                                 int left) {
    int piece = threadIdx.x % 8;
#pragma unroll
    for (int row = threadIdx.x / 8; row < TILE; row += THREADS / 8)
        copy_piece(to + place(row, piece), from + row * pitch + piece * 16,
                   row < rows && piece * 16 < left);
}

static __device__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

static __device__ void wait_for_oldest_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
#endif
}

// four 8 × 8 matrices of 16 bits, or 8 × 16 of 8; each lane brings a row's address
static __device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// four numbers to two pairs of float16: 0 and 2, 1 and 3. An e5m2 is the upper half of
// a float16. The bits of an e4m3, moved there, mean 2^-8 of it, subnormals too; but
// 1111.111 is NaN: adding 1 carries into the sign's place, and fills the exponent
template <Type T> __device__ void to_halves(unsigned (&pairs)[2], unsigned four) {
    if (T == E5M2) {
        pairs[0] = four << 8 & 0xff00ff00, pairs[1] = four & 0xff00ff00;
        return;
    }
    unsigned nan = (four & 0x7f7f7f7f) + 0x01010101;
    pairs[0] = (four << 8 & 0x80008000) | (four << 7 & 0x3f803f80) |
               (nan << 7 & 0x40004000);
    pairs[1] = (four & 0x80008000) | (four >> 1 & 0x3f803f80) |
               (nan >> 1 & 0x40004000);
}

// c: 16 × 8 += a: 16 rows times b: 8 columns, 16 of k
static __device__ void mma_halves(float (&c)[4], const unsigned (&a)[4],
                                  const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int i = 0; i < 2; i++)  // sm_75: half a step each
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[i * 2]), "r"(a[i * 2 + 1]), "r"(b[i]));
#endif
}

// c: 16 × 8 += a: 16 rows times b: 8 columns, 32 of k, for sm_89 and later
template <Type A, Type B>
__device__ void mma_bytes(float (&c)[4], const unsigned (&a)[4],
                          const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 890
    if constexpr (A == E4M3 && B == E4M3)
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else if constexpr (A == E4M3)
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else if constexpr (B == E4M3)
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// what the sums of mma have to be multiplied by
template <Type A, Type B> __device__ float unit() {
#if __CUDA_ARCH__ >= 890
    return 1.0f;
#else
    return (A == E4M3 ? 256.0f : 1.0f) * (B == E4M3 ? 256.0f : 1.0f);
#endif
}

// sums, a warp's part of out += its rows times its columns, 32 numbers along k
template <Type A, Type B>
__device__ void multiply(float (&sums)[WARP_M / 16][WARP_N / 8][4],
                         const unsigned (&rows)[WARP_M / 16][4],
                         const unsigned (&cols)[WARP_N / 8][2]) {
#if __CUDA_ARCH__ >= 890
#pragma unroll
    for (int n = 0; n < WARP_N / 8; n++)
        for (int m = 0; m < WARP_M / 16; m++)
            mma_bytes<A, B>(sums[m][n], rows[m], cols[n]);
#else
#pragma unroll
    for (int i = 0; i < 2; i++) {  // which k stands where is the same for A and B
        unsigned a[WARP_M / 16][4], b[WARP_N / 8][2], low[2], high[2];
        for (int m = 0; m < WARP_M / 16; m++) {
            to_halves<A>(low, rows[m][2 * i]), to_halves<A>(high, rows[m][2 * i + 1]);
            a[m][0] = low[0], a[m][1] = high[0], a[m][2] = low[1], a[m][3] = high[1];
        }
        for (int n = 0; n < WARP_N / 8; n++) to_halves<B>(b[n], cols[n][i]);
        for (int n = 0; n < WARP_N / 8; n++)
            for (int m = 0; m < WARP_M / 16; m++) mma_halves(sums[m][n], a[m], b[n]);
    }
#endif
}

// the warp's part of out, which begins at (row, col); element e of a sum's four is in
// row lane / 4 + e / 2 * 8 and column lane % 4 * 2 + e % 2
static __device__ void store_sums(at::BFloat16* out,
                                  const float (&acc)[WARP_M / 16][WARP_N / 8][4],
                                  int row, int col, int M, int N, float scale) {
    row += threadIdx.x % 32 / 4, col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < WARP_M / 16; m++)
        for (int n = 0; n < WARP_N / 8; n++)
            for (int e = 0; e < 4; e++) {
                int r = row + m * 16 + e / 2 * 8, c = col + n * 8 + e % 2;
                if (r < M && c < N)
                    out[int64_t(r) * N + c] = at::BFloat16(acc[m][n][e] * scale);
            }
}

// out: (M, N), A: (M, K), B: (N, K), rows of both pitch bytes apart, multiples of 16
template <Type A_TYPE, Type B_TYPE>
__global__ void __launch_bounds__(THREADS)
matmul_fp8_mma_kernel(at::BFloat16* out, const uint8_t* A, const uint8_t* B,
                      const float* scale_a, const float* scale_b, int M, int N, int K,
                      int64_t pitch) {
    extern __shared__ __align__(1024) char tiles[];
    int row, col, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    find_tile(blockIdx.x, cdiv(M, TILE), cdiv(N, TILE), row, col);
    row *= TILE, col *= TILE;
    auto copy = [&](int slice) {  // to the stage that was multiplied longest ago
        char* to = tiles + slice % STAGES * STAGE;
        int64_t k = int64_t(slice) * LINE;
        int left = K > k ? K - k : 0;
        copy_tile(to, A + row * pitch + k, pitch, M - row, left);
        copy_tile(to + TILE * LINE, B + col * pitch + k, pitch, N - col, left);
        end_group();
    };
    for (int slice = 0; slice < STAGES - 1; slice++) copy(slice);
    int warp_row = warp / WARPS_N * WARP_M, warp_col = warp % WARPS_N * WARP_N;
    unsigned start = __cvta_generic_to_shared(tiles);
    unsigned A_at = start + place(warp_row + lane % 16, lane / 16);
    unsigned B_at = start + TILE * LINE +
                    place(warp_col + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    float acc[WARP_M / 16][WARP_N / 8][4] = {};
    for (int slice = 0; slice < cdiv(K, LINE); slice++) {
        wait_for_oldest_group();
        __syncthreads();  // a slice has come, and all have read the one before it
        copy(slice + STAGES - 1);
        int stage = slice % STAGES * STAGE;
        float part[WARP_M / 16][WARP_N / 8][4] = {};  // of this slice
#pragma unroll
        for (int step = 0; step < LINE / 32; step++) {
            unsigned a[WARP_M / 16][4], b[WARP_N / 8][2], two[4];
            for (int m = 0; m < WARP_M / 16; m++)
                ldmatrix(a[m], ((A_at + stage) ^ step * 32) + m * 16 * LINE);
            for (int n = 0; n < WARP_N / 8; n += 2) {
                ldmatrix(two, ((B_at + stage) ^ step * 32) + n * 8 * LINE);
                for (int i = 0; i < 4; i++) b[n + i / 2][i % 2] = two[i];
            }
            multiply<A_TYPE, B_TYPE>(part, a, b);
        }
        for (int m = 0; m < WARP_M / 16; m++)
            for (int n = 0; n < WARP_N / 8; n++)
                for (int e = 0; e < 4; e++) acc[m][n][e] += part[m][n][e];
    }
    store_sums(out, acc, row + warp_row, col + warp_col, M, N,
               unit<A_TYPE, B_TYPE>() * *scale_a * *scale_b);
}

// out: (rows, width), inp: (rows, cols), bytes; zeros behind each row
static __global__ void fp8_pad_kernel(uint8_t* out, const uint8_t* inp, int64_t rows,
                                      int width, int cols) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, col = i % width;
    if (i < rows * width) out[i] = col < cols ? inp[i / width * cols + col] : 0;
}

// x, or a copy whose rows begin at multiples of 16 bytes
static Tensor aligned(Tensor x) {
    bool fits = reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
    if (fits && x.size(1) % 16 == 0) return x;
    int64_t rows = x.size(0), width = int64_t(cdiv(x.size(1), 16)) * 16;
    Tensor out = torch::empty({rows, width}, x.options());
    if (out.numel() == 0) return out;
    fp8_pad_kernel<<<cdiv(rows * width, 256), 256, 0, getCurrentCUDAStream()>>>(
        static_cast<uint8_t*>(out.data_ptr()), static_cast<uint8_t*>(x.data_ptr()),
        rows, width, x.size(1));
    return out;
}

// ---- sm_90: wgmma and TMA, as in matmul_tensor_core.cu
#ifdef __CUDACC_VER_MAJOR__  // nvcc; other compilers do not know them
#include <cuda.h>

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int BOX = 64 * LINE;  // what TMA brings at once: 64 rows
constexpr int CLUSTER = 2;      // blocks that share the tiles of B
constexpr int CONSUMERS = 2;    // warpgroups that multiply; one more copies

// How out is cut. A consumer multiplies 64 rows by PART columns at a time.
template <bool FAST> struct Cut {
    static constexpr int ROWS = 64 * CONSUMERS, COLS = FAST ? 256 : 192;
    static constexpr int PART = FAST ? 256 : 96, BOXES = FAST ? 1 : 3;  // to write out
    static constexpr int A_BYTES = ROWS * LINE, STAGE = A_BYTES + COLS * LINE;
    static constexpr int OUT = CONSUMERS * BOXES * BOX;
    static constexpr int STAGES = (225 * 1024 - OUT) / STAGE;
    static constexpr int SHARED = 1024 + STAGES * STAGE + OUT;
};

static __device__ unsigned shared_at(const void* p) {
    return __cvta_generic_to_shared(p);
}

// An mbarrier: a phase ends when all that were told of have arrived, threads and bytes.
struct Fp8Barrier {
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

// the box at (k, row) of a matrix to shared memory, swizzled; to all of the cluster
template <bool TO_ALL>
__device__ void load_box(char* to, const CUtensorMap& map, Fp8Barrier& full, int k,
                         int row) {
    if (TO_ALL)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
                     "::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], "
                     "[%2], %5;" :: "r"(shared_at(to)), "l"(&map),
                     "r"(shared_at(&full)), "r"(k), "r"(row),
                     "h"(uint16_t((1 << CLUSTER) - 1)) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
                     "::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                     :: "r"(shared_at(to)), "l"(&map), "r"(shared_at(&full)), "r"(k),
                     "r"(row) : "memory");
}

static __device__ void store_box(const CUtensorMap& map, const char* from, int col,
                                 int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3}], [%1];"
                 :: "l"(&map), "r"(shared_at(from)), "r"(col), "r"(row) : "memory");
}

static __device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

static __device__ void warpgroup_sync() {  // barrier 0 is __syncthreads()
    asm volatile("bar.sync %0, 128;" :: "r"(1 + threadIdx.x / WARPGROUP) : "memory");
}

// What wgmma is told of an operand: where it begins, and that 8 rows are 1,024 bytes
static __device__ uint64_t describe(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 |
           uint64_t(1) << 62;
}

#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, " \
    "%" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define REGISTERS_48 "{" TEN() TEN(1) TEN(2) TEN(3) \
    "%40, %41, %42, %43, %44, %45, %46, %47}, "
#define REGISTERS_128 "{" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) \
    TEN(8) TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, "
#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_64(i) SUMS_16(i), SUMS_16(i + 16), SUMS_16(i + 32), SUMS_16(i + 48)
#define WGMMA_96(TYPES) \
    asm volatile("{ .reg .pred p;\n setp.ne.b32 p, %50, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n96k32.f32." TYPES " " REGISTERS_48 \
                 "%48, %49, p, 1, 1; }" : SUMS_16(0), SUMS_16(16), SUMS_16(32) \
                 : "l"(a), "l"(b), "r"(int(add)))
#define WGMMA_256(TYPES) \
    asm volatile("{ .reg .pred p;\n setp.ne.b32 p, %130, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n256k32.f32." TYPES " " \
                 REGISTERS_128 "%128, %129, p, 1, 1; }" : SUMS_64(0), SUMS_64(64) \
                 : "l"(a), "l"(b), "r"(int(add)))

// d, a warpgroup's 64 rows and 96 or 256 columns = add ? d + a b : a b; 32 of k
template <Type A, Type B>
__device__ void wgmma(float (&d)[48], uint64_t a, uint64_t b, bool add) {
    if constexpr (A == E4M3 && B == E4M3) WGMMA_96("e4m3.e4m3");
    else if constexpr (A == E4M3) WGMMA_96("e4m3.e5m2");
    else if constexpr (B == E4M3) WGMMA_96("e5m2.e4m3");
    else WGMMA_96("e5m2.e5m2");
}

template <Type A, Type B>
__device__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, bool add) {
    if constexpr (A == E4M3 && B == E4M3) WGMMA_256("e4m3.e4m3");
    else if constexpr (A == E4M3) WGMMA_256("e4m3.e5m2");
    else if constexpr (B == E4M3) WGMMA_256("e5m2.e4m3");
    else WGMMA_256("e5m2.e5m2");
}

// Where the next stage is; phase: of its barriers.
struct Fp8Turn {
    int stage = 0, phase = 0;
    __device__ void next(int stages) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

// One thread of the block: brings tile by tile, as soon as a stage is empty.
template <bool FAST>
__device__ void produce(char* stages, Fp8Barrier* full, Fp8Barrier* empty,
                        const CUtensorMap& A_map, const CUtensorMap& B_map, int K,
                        int rows, int cols, int rank) {
    using C = Cut<FAST>;
    Fp8Turn turn;
    for (int i = blockIdx.x / CLUSTER; i < rows * cols; i += gridDim.x / CLUSTER) {
        int row, col;
        find_tile(i, rows, cols, row, col);
        row = (row * CLUSTER + rank) * C::ROWS, col *= C::COLS;
#pragma unroll 1  // it has 24 registers
        for (int k = 0; k < K; k += LINE, turn.next(C::STAGES)) {
            Fp8Barrier& ready = full[turn.stage];
            empty[turn.stage].wait(turn.phase ^ 1);
            ready.arrive_and_expect(C::STAGE);
            char* to = stages + turn.stage * C::STAGE;
            for (int r = 0; r < C::ROWS; r += 64, to += BOX)
                load_box<false>(to, A_map, ready, k, row + r);
            for (int c = 0; c < C::COLS; c += 64, to += BOX)
                if (c / 64 % CLUSTER == rank)  // each block its share
                    load_box<true>(to, B_map, ready, k, col + c);
        }
    }
}

// A warpgroup's registers: element 4 j + 2 h + e is row lane / 4 + 8 h of the warp's
// 16, column 8 j + lane % 4 * 2 + e. They go out through shared memory: `boxes`.
template <int BOXES, int COUNT>
__device__ void write_sums(const CUtensorMap& map, char* boxes,
                           const float (&sums)[COUNT], float scale, int row, int col) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    bool first = threadIdx.x % WARPGROUP == 0;
    int r = 16 * warp + lane % 16;
#pragma unroll
    for (int c = 0; c < COUNT / 32; c++) {  // 64 columns are a box
        char* box = boxes + c % BOXES * BOX;
        if (c % BOXES == 0) {
            if (first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            warpgroup_sync();  // the boxes have gone
        }
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            unsigned packed[4];
            for (int i = 0; i < 4; i++) {
                const float* two = sums + 32 * c + 4 * j + 2 * i;
                at::BFloat16 low(two[0] * scale), high(two[1] * scale);
                packed[i] = low.x | unsigned(high.x) << 16;
            }
            char* to = box + r * LINE + ((j + lane / 16) ^ r % 8) * 16;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], "
                         "{%1, %2, %3, %4};" :: "r"(shared_at(to)), "r"(packed[0]),
                         "r"(packed[1]), "r"(packed[2]), "r"(packed[3]) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        warpgroup_sync();  // the box is complete
        if (!first) continue;
        store_box(map, box, col + c * 64, row);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

// The stages as a consumer sees them: it takes the next one as soon as it is full, and
// gives it back, a thread telling each block of the cluster.
template <bool FAST> struct Fp8Ring {
    using C = Cut<FAST>;
    unsigned stages;
    Fp8Barrier *full, *empty;
    Fp8Turn turn;
    __device__ int take() {
        int stage = turn.stage;
        full[stage].wait(turn.phase);
        turn.next(C::STAGES);
        return stage;
    }
    __device__ void give(int stage) {
        int block = threadIdx.x % WARPGROUP;
        if (block < CLUSTER) empty[stage].arrive_in(block);
    }
    // a stage's products are started, of PART columns from col: four steps of k
    template <Type A, Type B>
    __device__ void start(float (&d)[C::PART / 2], int stage, int col, bool add) {
        unsigned at = stages + stage * C::STAGE, B_at = at + C::A_BYTES + col * LINE;
        unsigned A_at = at + threadIdx.x / WARPGROUP * BOX;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < LINE; k += 32)
            wgmma<A, B>(d, describe(A_at + k), describe(B_at + k), add || k > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
};

template <int COUNT> __device__ void wait_for_all_but() {  // COUNT groups of products
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(COUNT) : "memory");
}

static __device__ void add_to(float* sums, const float (&part)[48]) {
#pragma unroll
    for (int e = 0; e < 48; e++) sums[e] += part[e];
}

// sums of a tile: all of k, added up by tensor cores
template <Type A, Type B>
__device__ void multiply_fast(float (&sums)[128], Fp8Ring<true>& ring, int steps) {
    int last = -1, stage = -1;
    for (int i = 0; i < steps; i++) {
        last = stage, stage = ring.take();
        ring.start<A, B>(sums, stage, 0, i > 0);
        wait_for_all_but<1>();
        if (last >= 0) ring.give(last);  // its products are complete
    }
    wait_for_all_but<0>();
    ring.give(stage);
}

// sums of a tile: tensor cores add up 128 of k, and float32 these sums
template <Type A, Type B>
__device__ void multiply_exactly(float (&sums)[96], Fp8Ring<false>& ring, int steps) {
    float left[48], right[48];  // of 128 of k: two halves of the columns
    int stage = ring.take();
    ring.start<A, B>(left, stage, 0, false);
    auto step = [&] {  // whether there is another one
        ring.start<A, B>(right, stage, 96, false);
        wait_for_all_but<1>();
        add_to(sums, left);
        if (--steps == 0) {
            wait_for_all_but<0>();
            ring.give(stage);
            add_to(sums + 48, right);
            return false;
        }
        int last = stage;
        stage = ring.take();
        ring.start<A, B>(left, stage, 0, false);
        wait_for_all_but<1>();
        ring.give(last);
        add_to(sums + 48, right);
        return true;
    };
    while (step() && step()) {}  // in turns of one, ptxas lets all products wait: C7514
}

// A warpgroup: multiplies 64 rows of each tile.
template <Type A, Type B, bool FAST>
__device__ void consume(char* stages, Fp8Barrier* full, Fp8Barrier* empty,
                        const CUtensorMap& out_map, float scale, int K, int rows,
                        int cols, int rank) {
    using C = Cut<FAST>;
    int group = threadIdx.x / WARPGROUP;
    char* boxes = stages + C::STAGES * C::STAGE + group * C::BOXES * BOX;
    Fp8Ring<FAST> ring = {shared_at(stages), full, empty};
    for (int i = blockIdx.x / CLUSTER; i < rows * cols; i += gridDim.x / CLUSTER) {
        float sums[C::COLS / 2] = {};
        if constexpr (FAST) multiply_fast<A, B>(sums, ring, cdiv(K, LINE));
        else multiply_exactly<A, B>(sums, ring, cdiv(K, LINE));
        int row, col;
        find_tile(i, rows, cols, row, col);
        row = (row * CLUSTER + rank) * C::ROWS + group * 64;
        write_sums<C::BOXES>(out_map, boxes, sums, scale, row, col * C::COLS);
    }
    if (threadIdx.x % WARPGROUP == 0)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// out: (M, N), A: (M, K), B: (N, K), K > 0; rows, cols: of tiles, a cluster's as one
template <Type A, Type B, bool FAST>
__global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)
matmul_fp8_wgmma_kernel(const __grid_constant__ CUtensorMap out_map,
                        const __grid_constant__ CUtensorMap A_map,
                        const __grid_constant__ CUtensorMap B_map, const float* scale_a,
                        const float* scale_b, int K, int rows, int cols) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using C = Cut<FAST>;
    __shared__ Fp8Barrier full[C::STAGES], empty[C::STAGES];
    extern __shared__ char memory[];
    char* stages = memory + (1024 - shared_at(memory) % 1024) % 1024;
    int rank = blockIdx.x % CLUSTER;
    if (threadIdx.x == 0) {
        for (int s = 0; s < C::STAGES; s++) {
            full[s].init(1);
            empty[s].init(CONSUMERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();  // all barriers are there before one is used
    if (threadIdx.x / WARPGROUP == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x % WARPGROUP == 0)
            produce<FAST>(stages, full, empty, A_map, B_map, K, rows, cols, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume<A, B, FAST>(stages, full, empty, out_map, *scale_a * *scale_b, K, rows,
                            cols, rank);
    }
    cluster_sync();  // the other block may still arrive at barriers of this one
#else
    __trap();  // launch_wgmma sees that it was not built
#endif
}

// TMA's view of a matrix with contiguous rows, in boxes of 64 rows of 128 bytes
static CUtensorMap map_of(const Tensor& x) {
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
        TORCH_CHECK(found && state == cudaDriverEntryPointSuccess, "matmul_fp8: "
                    "expected NVIDIA's driver for CUDA 12 or later, got one without "
                    "cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    unsigned size = x.element_size();
    CUtensorMap map;
    cuuint64_t sizes[] = {cuuint64_t(x.size(1)), cuuint64_t(x.size(0))};
    cuuint64_t strides[] = {cuuint64_t(x.size(1)) * size};
    cuuint32_t box[] = {LINE / size, 64}, steps[] = {1, 1};
    auto result = encode(&map, size == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                         : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                         2, x.data_ptr(), sizes, strides, box, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

// once, in whatever types
static void warn_of_build(const Tensor& x) {
    if (attribute(cudaDevAttrComputeCapabilityMajor, x) == 9)
        TORCH_WARN_ONCE("matmul_fp8: built without sm_90a, so without wgmma; pass "
                        "nvcc -gencode=arch=compute_90a,code=sm_90a");
}

// Whether it did: in a build with wgmma, for rows of out that suit TMA, and many tiles.
// A and B: of rows that are multiples of 16 bytes
template <Type A_TYPE, Type B_TYPE, bool FAST>
static bool launch_wgmma(Tensor out, Tensor A, Tensor B, const float* scale_a,
                         const float* scale_b) {
    using C = Cut<FAST>;
    auto kernel = matmul_fp8_wgmma_kernel<A_TYPE, B_TYPE, FAST>;
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, kernel));
    int rows = cdiv(A.size(0), C::ROWS * CLUSTER), cols = cdiv(B.size(0), C::COLS);
    if (int64_t(rows) * cols > INT_MAX) return false;
    int clusters = attribute(cudaDevAttrMultiProcessorCount, A) / CLUSTER;
    clusters = std::min(clusters, rows * cols);
    if (out.size(1) % 8 != 0 || A.size(1) == 0 || clusters < 32) return false;
    if (built.sharedSizeBytes == 0) return warn_of_build(A), false;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SHARED));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {CLUSTER, 1, 1};
    cudaLaunchConfig_t config = {unsigned(clusters * CLUSTER),
                                 (CONSUMERS + 1) * WARPGROUP, C::SHARED,
                                 getCurrentCUDAStream(), &cluster, 1};
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, map_of(out), map_of(A),
                                      map_of(B), scale_a, scale_b, int(A.size(1)), rows,
                                      cols));
    return true;
}
#endif

template <Type A_TYPE, Type B_TYPE>
static void launch(Tensor out, Tensor A, Tensor B, Tensor scale_a, Tensor scale_b,
                   bool fast) {
    A = aligned(A), B = aligned(B);
    const float *a = scale_a.data_ptr<float>(), *b = scale_b.data_ptr<float>();
#ifdef __CUDACC_VER_MAJOR__
    if (fast ? launch_wgmma<A_TYPE, B_TYPE, true>(out, A, B, a, b)
             : launch_wgmma<A_TYPE, B_TYPE, false>(out, A, B, a, b))
        return;
#endif
    int64_t grid = int64_t(cdiv(out.size(0), TILE)) * cdiv(out.size(1), TILE);
    TORCH_CHECK(grid <= INT_MAX, "matmul_fp8: expected an out of up to 2^31 tiles of "
                "128 x 128, got ", out.sizes());
    auto kernel = matmul_fp8_mma_kernel<A_TYPE, B_TYPE>;
    cudaFuncAttributes built;  // for sm_75, say, also where a later GPU runs it
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, kernel));
    int bytes = STAGE * (built.ptxVersion < 80 ? 2 : 3);  // as STAGES is there
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<grid, THREADS, bytes, getCurrentCUDAStream()>>>(
        out.data_ptr<at::BFloat16>(), static_cast<uint8_t*>(A.data_ptr()),
        static_cast<uint8_t*>(B.data_ptr()), a, b, out.size(0), out.size(1), A.size(1),
        A.size(1));
}

static void check_matrix(const char* name, Tensor x, Tensor A) {
    auto type = x.scalar_type();
    bool fits = x.dim() == 2 && x.size(0) <= 1 << 30 && x.size(1) <= 1 << 30;
    bool known = type == torch::kFloat8_e4m3fn || type == torch::kFloat8_e5m2;
    TORCH_CHECK(known && fits && x.is_contiguous() && x.is_cuda() &&
                x.device() == A.device(), name, ": expected contiguous float8_e4m3fn "
                "or float8_e5m2 on one CUDA device, a matrix, got ", type, " on ",
                x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
}

static void check_scale(const char* name, Tensor x, Tensor A) {
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.numel() == 1 &&
                x.device() == A.device(), name, ": expected float32 on A's CUDA "
                "device, one number, got ", x.scalar_type(), " on ", x.device(),
                ", shape ", x.sizes());
}

Tensor matmul_fp8(Tensor A, Tensor B, Tensor scale_a, Tensor scale_b, bool fast_accum) {
    check_matrix("A", A, A);
    check_matrix("B", B, A);
    check_scale("scale_a", scale_a, A);
    check_scale("scale_b", scale_b, A);
    TORCH_CHECK(A.size(1) == B.size(1), "matmul_fp8: expected A: (M, K) and B: (N, K), "
                "got ", A.sizes(), " and ", B.sizes());
    c10::cuda::CUDAGuard guard(A.device());
    Tensor out = torch::empty({A.size(0), B.size(0)},
                              A.options().dtype(torch::kBFloat16));
    if (out.numel() == 0) return out;
    bool a5 = A.scalar_type() == torch::kFloat8_e5m2;
    bool b5 = B.scalar_type() == torch::kFloat8_e5m2;
    auto run = a5 ? (b5 ? launch<E5M2, E5M2> : launch<E5M2, E4M3>)
                  : (b5 ? launch<E4M3, E5M2> : launch<E4M3, E4M3>);
    run(out, A, B, scale_a, scale_b, fast_accum);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
