// kernels/attention.cu
// SPDX-License-Identifier: MIT
// Attention, forward: out = softmax(q k^T / sqrt(D)) v for each batch entry and head.
// causal: query i sees keys 0 to i, as in PyTorch. q, out: (B, H, S_q, D), k and v:
// (B, H, S_kv, D), contiguous, S up to 2^30, D from 1 to 128; float32, float16 or
// bfloat16, sums in float32. 4 B H S_q S_kv D FLOPs (half if causal), reads and writes
// each tensor once, keys and values once per block of queries; no scratch memory. Half
// types with D 64 or 128 on sm_80 and later use tensor cores, all else does not. Keys
// come tile by tile, in pieces (chunks of 16 bytes) at swizzled places; the softmax is
// online, and scores never leave registers.
// NaN and infinity of q and k as in PyTorch; those of v may show where they are masked.
// Notebook: 08b_flash_attention. Own code; algorithm: Dao, FlashAttention-2 (2023),
// BSD 3-Clause.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// attention = load_inline("attention", cuda_sources=Path("attention.cu").read_text(),
//     cpp_sources="torch::Tensor attention_forward(torch::Tensor q, torch::Tensor k, "
//         "torch::Tensor v, bool causal);", functions=["attention_forward"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;
constexpr unsigned ALL_LANES = 0xffffffff;

constexpr int PLAIN_ROWS = 32;  // queries per block, four lanes each
constexpr int PLAIN_KEYS = 16;  // keys per tile

// column number c of a lane: four neighbours of each sixteen
__device__ int column(int part, int c) { return c / 4 * 16 + part * 4 + c % 4; }

// rows of D numbers as float; zeros from row `left` and from column D on
template <int D_MAX, typename T>
__device__ void load_tile(float (&tile)[PLAIN_KEYS][D_MAX], const T* from, int64_t left,
                          int D) {
    for (int i = threadIdx.x; i < PLAIN_KEYS * D_MAX; i += 4 * PLAIN_ROWS) {
        int j = i / D_MAX, d = i % D_MAX;
        tile[j][d] = j < left && d < D ? float(from[j * D + d]) : 0.0f;
    }
}

// out, q: (heads, S_q, D), k, v: (heads, S_kv, D); D at most D_MAX
template <int D_MAX, typename T>
__global__ void attention_plain_kernel(T* out, const T* q, const T* k, const T* v,
                                       int S_q, int S_kv, int D, bool causal) {
    __shared__ float k_tile[PLAIN_KEYS][D_MAX], v_tile[PLAIN_KEYS][D_MAX];
    int blocks = (S_q - 1) / PLAIN_ROWS + 1, part = threadIdx.x % 4;
    int first_row = blockIdx.x % blocks * PLAIN_ROWS, row = first_row + threadIdx.x / 4;
    int64_t head = blockIdx.x / blocks, q_at = (head * S_q + row) * D;
    float q_own[D_MAX / 4], acc[D_MAX / 4] = {}, row_max = -INFINITY, row_sum = 0.0f;
    for (int c = 0; c < D_MAX / 4; c++) {
        bool inside = row < S_q && column(part, c) < D;
        q_own[c] = inside ? float(q[q_at + column(part, c)]) * rsqrtf(D) : 0.0f;
    }
    int end = causal ? min(S_kv - 1, first_row + PLAIN_ROWS - 1) + 1 : S_kv;
    for (int64_t first = 0; first < end; first += PLAIN_KEYS) {
        load_tile(k_tile, k + (head * S_kv + first) * D, S_kv - first, D);
        load_tile(v_tile, v + (head * S_kv + first) * D, S_kv - first, D);
        __syncthreads();  // the tile is complete before it is read
        float s[PLAIN_KEYS], tile_max = row_max;
#pragma unroll
        for (int j = 0; j < PLAIN_KEYS; j++) {
            float dot = 0.0f;
            for (int c = 0; c < D_MAX / 4; c++)
                dot += q_own[c] * k_tile[j][column(part, c)];
            dot += __shfl_xor_sync(ALL_LANES, dot, 1);
            dot += __shfl_xor_sync(ALL_LANES, dot, 2);
            bool seen = first + j < S_kv && (!causal || first + j <= row);
            s[j] = seen ? dot : -INFINITY;
            tile_max = fmaxf(tile_max, s[j]);
        }
        float shift = tile_max == -INFINITY ? 0.0f : tile_max;  // not inf - inf
        float shrink = expf(row_max - shift);
        row_max = tile_max;
        row_sum *= shrink;
        for (int c = 0; c < D_MAX / 4; c++) acc[c] *= shrink;
#pragma unroll
        for (int j = 0; j < PLAIN_KEYS; j++) {
            float p = expf(s[j] - shift);
            row_sum += p;
            for (int c = 0; c < D_MAX / 4; c++)
                acc[c] += p * v_tile[j][column(part, c)];
        }
        __syncthreads();  // all have read the tile before it is overwritten
    }
    float inverse = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;  // 0: saw nothing
    for (int c = 0; c < D_MAX / 4; c++)
        if (row < S_q && column(part, c) < D)
            out[q_at + column(part, c)] = T(acc[c] * inverse);
}

// sums: 16 × 8 += a: 16 × 16 times b: 16 × 8, as fragments, all three spread over the
// lanes of a warp. With g = lane / 4 and t = lane % 4 * 2 a lane has
//   c[0], c[1]: row g, columns t and t + 1    c[2], c[3]: the same of row g + 8
//   a[0]: row g, k = t and t + 1    a[1]: row g + 8    a[2], a[3]: those at k + 8
//   b0: column g, k = t and t + 1   b1: those at k + 8
template <typename T>
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
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
}

// four 8 × 8 matrices from shared memory; each lane brings the address of a row
__device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

__device__ void ldmatrix_transposed(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

template <typename T> __device__ unsigned pack(float low, float high) {
    unsigned both;
    if constexpr (std::is_same_v<T, at::Half>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

constexpr int THREADS = 128, ROWS = 128;  // per block; 32 queries per warp
template <int D> constexpr int KEYS = 8192 / D;  // per tile, which is 16 KB then

// The swizzled offset of a piece, a chunk of 16 bytes (8 numbers), in a tile of rows of
// D: in row r piece p stands where p ^ r % 8 would. Eight pieces of a row, which a copy
// writes, or of a column, which ldmatrix reads, then lie in all 32 banks, once each.
// Pieces 2 k and 2 k + 1 are where 0 and 1 are but for the bits of 2 k: at ^ k * 32
// goes 16 numbers on from wherever a lane began.
template <int D> __device__ unsigned place(int row, int piece) {
    return row * D * 2 + (piece ^ row % 8) * 16;
}

// rows of D numbers to shared memory, asynchronously; zeros from row `left` on
template <int COUNT, int D, typename T>
__device__ void copy_rows(unsigned to, const T* from, int left) {
    constexpr int PIECES = D / 8;  // of 16 bytes, in a row
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    to += place<D>(row, piece);
    from += row * D + piece * 8;
    constexpr int STEP = THREADS / PIECES;  // a multiple of 8: one swizzle for all
#pragma unroll
    for (int r = 0; r < COUNT; r += STEP)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to + r * D * 2), "l"(from + r * D),
                        "r"(row + r < left ? 16 : 0));
}

__device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// s: 32 × KEYS = 32 rows of Q times KEYS rows of K; addresses of the lane's first piece
template <typename T, int D>
__device__ void multiply_qk(float (&s)[2][KEYS<D> / 8][4], unsigned q_at,
                            unsigned k_at) {
#pragma unroll
    for (int n = 0; n < KEYS<D> / 8; n++)
        for (int e = 0; e < 4; e++) s[0][n][e] = s[1][n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned a[2][4], b[4];
        ldmatrix(a[0], q_at ^ k * 32);
        ldmatrix(a[1], (q_at ^ k * 32) + 16 * D * 2);
#pragma unroll
        for (int n = 0; n < KEYS<D> / 16; n++) {
            ldmatrix(b, (k_at ^ k * 32) + n * 16 * D * 2);
            for (int m = 0; m < 2; m++) {
                mma<T>(s[m][2 * n], a[m], b[0], b[1]);
                mma<T>(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// o: 32 × (D + 8) += p: 32 × KEYS times V: KEYS × D, with columns of ones behind it:
// what they add up is the sum of the row's p, as rounded as those that V is multiplied
// by, and shrunk together with o
template <typename T, int D>
__device__ void multiply_pv(float (&o)[2][D / 8 + 1][4],
                            const unsigned (&p)[2][KEYS<D> / 16][4], unsigned v_at) {
    constexpr unsigned ONES = std::is_same_v<T, at::Half> ? 0x3c003c00 : 0x3f803f80;
#pragma unroll
    for (int k = 0; k < KEYS<D> / 16; k++) {
        mma<T>(o[0][D / 8], p[0][k], ONES, ONES);
        mma<T>(o[1][D / 8], p[1][k], ONES, ONES);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            unsigned b[4];
            ldmatrix_transposed(b, (v_at ^ n * 32) + k * 16 * D * 2);
            for (int m = 0; m < 2; m++) {
                mma<T>(o[m][2 * n], p[m][k], b[0], b[1]);
                mma<T>(o[m][2 * n + 1], p[m][k], b[2], b[3]);
            }
        }
    }
}

// takes out what a row must not see: keys from S_kv on, and if causal, behind the query
template <int D>
__device__ void mask(float (&s)[2][KEYS<D> / 8][4], int row, int key, int S_kv,
                     bool causal) {
#pragma unroll
    for (int i = 0; i < KEYS<D>; i++) {
        int m = i / 4 / (KEYS<D> / 8), n = i / 4 % (KEYS<D> / 8), e = i % 4;
        int r = row + threadIdx.x % 32 / 4 + m * 16 + e / 2 * 8;
        int col = key + threadIdx.x % 4 * 2 + n * 8 + e % 2;
        if (col >= S_kv || (causal && col > r)) s[m][n][e] = -INFINITY;
    }
}

// Online softmax, of one tile of keys. What holds before and after: with m the largest
// score of a row so far, o is the sum of 2^(scale (s - m)) V over the keys so far, and
// its last columns that of 2^(scale (s - m)). A larger m multiplies both by 2^(scale
// (old m - new m)), which is shrink; nothing else of the keys before is needed.
// A row's scores lie in four lanes, so that two shuffles find their maximum. All is in
// registers: a score's place in the sums of QK, row g and columns t, t + 1 of fragment
// n, is its place in the left factor of PV, row g and k = t, t + 1, fragments n and n +
// 1 being k and k + 8 of one: packing two scores is all that it takes.
// p = 2^(scale s - scale max), packed as a left factor
template <typename T, int D>
__device__ void softmax(unsigned (&p)[2][KEYS<D> / 16][4],
                        float (&o)[2][D / 8 + 1][4], float (&row_max)[4],
                        float (&s)[2][KEYS<D> / 8][4], float scale) {
#pragma unroll
    for (int r = 0; r < 4; r++) {  // the lane's rows: lane / 4 + 8 r
        int m = r / 2, e = r % 2 * 2;
        float high = row_max[r];
#pragma unroll
        for (int n = 0; n < KEYS<D> / 8; n++)
            high = fmaxf(high, fmaxf(s[m][n][e], s[m][n][e + 1]));
        high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, 1));
        high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, 2));
        float shift = high == -INFINITY ? 0.0f : high * scale;  // not inf - inf
        float shrink = power_of_2(fmaf(row_max[r], scale, -shift));
        row_max[r] = high;
#pragma unroll
        for (int n = 0; n <= D / 8; n++)
            for (int i = 0; i < 2; i++) o[m][n][e + i] *= shrink;
#pragma unroll
        for (int n = 0; n < KEYS<D> / 8; n++) {
            s[m][n][e] = power_of_2(fmaf(s[m][n][e], scale, -shift));
            s[m][n][e + 1] = power_of_2(fmaf(s[m][n][e + 1], scale, -shift));
            p[m][n / 2][n % 2 * 2 + r % 2] = pack<T>(s[m][n][e], s[m][n][e + 1]);
        }
    }
}

// out: the warp's 32 rows of o over their sums
template <typename T, int D>
__device__ void store_rows(T* out, const float (&o)[2][D / 8 + 1][4], int rows) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int row = lane / 4 + r * 8, m = r / 2, e = r % 2 * 2;
        float sum = o[m][D / 8][e];  // what the ones added up
        float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // 0: saw nothing
        unsigned* to = reinterpret_cast<unsigned*>(out + row * D) + lane % 4;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (row < rows)
                to[n * 4] = pack<T>(o[m][n][e] * inverse, o[m][n][e + 1] * inverse);
    }
}

// out, q: (heads, S_q, D), k, v: (heads, S_kv, D); 32 queries per warp. There is room
// for one tile of K and one of V: while the scores are multiplied V's is on its way,
// and during softmax and PV the next one of K. At each of the two barriers the tile
// that is needed has come, and the one that is about to be overwritten has been read by
// all warps.
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2)
attention_mma_kernel(T* out, const T* q, const T* k, const T* v, int S_q, int S_kv,
                     bool causal) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) unsigned char tiles[];
    int blocks = (S_q - 1) / ROWS + 1, lane = threadIdx.x % 32;
    int block = causal ? blocks - 1 - blockIdx.x % blocks : blockIdx.x % blocks;
    int64_t head = blockIdx.x / blocks, first = int64_t(block) * ROWS;
    int warp_row = threadIdx.x / 32 * 32, row = first + warp_row;
    q += (head * S_q + first) * D;
    k += head * S_kv * D;
    v += head * S_kv * D;
    unsigned q_tile = __cvta_generic_to_shared(tiles), k_tile = q_tile + ROWS * D * 2;
    unsigned v_tile = k_tile + KEYS<D> * D * 2;
    unsigned q_at = q_tile + place<D>(warp_row + lane % 16, lane / 16);
    unsigned k_at = k_tile + place<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    unsigned v_at = v_tile + place<D>(lane % 16, lane / 16);
    copy_rows<ROWS, D>(q_tile, q, S_q - first);
    copy_rows<KEYS<D>, D>(k_tile, k, S_kv);
    int end = causal ? min(S_kv, int(first) + ROWS) : S_kv;  // what some row sees
    int seen = causal ? min(S_kv, row + 1) : S_kv;           // what all of the warp see
    float o[2][D / 8 + 1][4] = {};
    float row_max[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (int key = 0; key < end; key += KEYS<D>) {
        wait_for_copies();
        __syncthreads();  // the tile of K has come; all are done with the last of V
        copy_rows<KEYS<D>, D>(v_tile, v, S_kv - key);
        float s[2][KEYS<D> / 8][4];
        multiply_qk<T, D>(s, q_at, k_at);
        wait_for_copies();
        __syncthreads();  // the tile of V has come; all are done with this one of K
        k += KEYS<D> * D;
        v += KEYS<D> * D;
        if (end - key > KEYS<D>)
            copy_rows<KEYS<D>, D>(k_tile, k, S_kv - key - KEYS<D>);
        if (seen - key < KEYS<D>) mask<D>(s, row, key, S_kv, causal);
        unsigned p[2][KEYS<D> / 16][4];
        softmax<T, D>(p, o, row_max, s, 1.44269504f * rsqrtf(D));
        multiply_pv<T, D>(o, p, v_at);
    }
    store_rows<T, D>(out + (head * S_q + row) * D, o, S_q - row);
#else
    __trap();  // built without mma: launch() takes the other kernel
#endif
}

static void check_input(const char* name, Tensor x, Tensor q, bool is_key) {
    auto type = q.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    bool fits = x.dim() == 4 && q.dim() == 4 && x.size(2) <= 1 << 30 &&
                x.size(3) >= 1 && x.size(3) <= 128;
    for (int i = 0; fits && i < 4; i++)
        fits = x.size(i) == q.size(i) || (is_key && i == 2);
    TORCH_CHECK(known && fits && x.scalar_type() == type && x.is_contiguous() &&
                x.is_cuda() && x.device() == q.device(), name, ": expected contiguous "
                "float32, float16 or bfloat16 on a CUDA device, shape (B, H, S, D), D "
                "from 1 to 128, k and v alike, all else as q, which has ", type, " on ",
                q.device(), ", shape ", q.sizes(), ", got ", x.scalar_type(), " on ",
                x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
}

template <typename T, int D>
static void launch_mma(Tensor out, Tensor q, Tensor k, Tensor v, bool causal) {
    int bytes = (ROWS + 2 * KEYS<D>) * D * 2, S_q = q.size(2);
    int64_t grid = q.size(0) * q.size(1) * ((S_q - 1) / ROWS + 1);
    TORCH_CHECK(grid <= INT_MAX, "attention_forward: expected up to 2^31 blocks of ",
                ROWS, " queries, got ", grid);
    auto kernel = attention_mma_kernel<T, D>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<grid, THREADS, bytes, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), q.data_ptr<T>(), k.data_ptr<T>(), v.data_ptr<T>(), S_q,
        k.size(2), causal);
}

template <int D_MAX, typename T>
static void launch_plain(Tensor out, Tensor q, Tensor k, Tensor v, bool causal) {
    int S_q = q.size(2);
    int64_t grid = q.size(0) * q.size(1) * ((S_q - 1) / PLAIN_ROWS + 1);
    TORCH_CHECK(grid <= INT_MAX, "attention_forward: expected up to 2^31 blocks of ",
                PLAIN_ROWS, " queries, got ", grid);
    attention_plain_kernel<D_MAX>
        <<<grid, 4 * PLAIN_ROWS, 0, getCurrentCUDAStream()>>>(
            out.data_ptr<T>(), q.data_ptr<T>(), k.data_ptr<T>(), v.data_ptr<T>(), S_q,
            k.size(2), q.size(3), causal);
}

template <typename T>
static void launch(Tensor out, Tensor q, Tensor k, Tensor v, bool causal) {
    int64_t D = q.size(3);
    if constexpr (sizeof(T) == 2) {
        cudaFuncAttributes built;  // what for, which may be less than what the GPU can
        C10_CUDA_CHECK(cudaFuncGetAttributes(&built, attention_mma_kernel<T, 64>));
        bool aligned = true;  // to 16 bytes, as the copies want it
        for (const Tensor& x : {q, k, v})
            aligned = aligned && reinterpret_cast<uintptr_t>(x.data_ptr<T>()) % 16 == 0;
        if (built.ptxVersion >= 80 && aligned && D == 64)
            return launch_mma<T, 64>(out, q, k, v, causal);
        if (built.ptxVersion >= 80 && aligned && D == 128)
            return launch_mma<T, 128>(out, q, k, v, causal);
    }
    if (D <= 64) launch_plain<64, T>(out, q, k, v, causal);
    else launch_plain<128, T>(out, q, k, v, causal);
}

Tensor attention_forward(Tensor q, Tensor k, Tensor v, bool causal) {
    auto type = q.scalar_type();
    TORCH_CHECK(k.scalar_type() == type && v.scalar_type() == type,
                "attention_forward: expected q, k and v of one type, got ", type, ", ",
                k.scalar_type(), ", ", v.scalar_type());
    check_input("q", q, q, false);
    check_input("k", k, q, true);
    check_input("v", v, q, true);
    TORCH_CHECK(k.size(2) == v.size(2), "attention_forward: expected k and v of one "
                "length, got ", k.size(2), " and ", v.size(2));
    c10::cuda::CUDAGuard guard(q.device());
    Tensor out = torch::empty_like(q);
    if (q.numel() == 0) return out;
    if (k.numel() == 0) return out.zero_();
    if (type == torch::kFloat32) launch<float>(out, q, k, v, causal);
    else if (type == torch::kFloat16) launch<at::Half>(out, q, k, v, causal);
    else launch<at::BFloat16>(out, q, k, v, causal);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
