// kernels/flash_attention.cu
// SPDX-License-Identifier: MIT
// Attention with its gradients, and for caches: out = softmax(q k^T / sqrt(D)) v for
// each batch entry and head, and lse, the logarithm of each softmax's sum, from which
// backward computes all weights again. q, out: (B, H, S_q, D), k and v: (B, H_kv, S_kv,
// D), H a multiple of H_kv (H / H_kv heads of q in a row share one of k and v), lse:
// (B, H, S_q) float32, lengths: (B) int32 or none; contiguous, S up to 2^29, D from 1
// to 256; float32, float16 or bfloat16, sums in float32.
// Query i stands at key i (upper left, PyTorch's rule), with lower_right at key i +
// length - S_q: the queries are then the last of the keys, as with a cache. causal: it
// sees no key behind its place. window w (0: none): it sees the w keys that end at its
// place. lengths: a batch entry's keys from there on are not seen, whatever they hold.
// Who sees no key gets 0, lse -inf, and gradients 0.
// FLOPs: forward 4 B H S_q S_kv D, backward 14 (half if causal): dk and dv come from
// one kernel, dq from another, and both multiply q k^T and dout v^T; the same bits each
// time. On sm_90 half types up to D 128 have one kernel for all three, with 10, by
// wgmma and TMA: it adds dq up by float32 atomics, in an order that is never the same,
// so the last bits of dq may differ each time (not those of dk and dv).
// Bytes: each tensor once, keys and values once per block of queries (and the reverse).
// Scratch memory: backward 8 bytes a query, with atomics also 4 D (D as padded); split
// keys 4 (D + 1) a query and part.
// Half types with D a multiple of 8 use tensor cores: on sm_80 and later those up to D
// 128 by mma.sync (D padded to 64 or 128), all else does not. On sm_90 forward of more
// than 16 queries a head does by wgmma, up to D 256 (padded to 64, 128 or 256): its
// kernel is persistent and its warps specialised, a producer brings tiles by TMA, and
// two or three consumer warpgroups take turns at the tensor cores. All of wgmma comes
// in a build for sm_90a only: by the flag below, or "9.0a" in TORCH_CUDA_ARCH_LIST.
// Weights are rounded to the type before they are multiplied, and by mma.sync so is
// what lse adds up there. With up to 16 queries a head the keys are split among blocks
// where those would leave multiprocessors idle.
// NaN and infinity of q and k as in PyTorch; those of v may show where they are masked.
// Notebook: 08b_flash_attention. Own code; algorithm: Dao, FlashAttention-2 (2023),
// BSD 3-Clause; on sm_90: Shah et al., FlashAttention-3 (2024), BSD 3-Clause; split
// keys: Dao et al., Flash-Decoding (2023).
//
// from pathlib import Path
// import torch
// from torch.utils.cpp_extension import load_inline
// major, minor = torch.cuda.get_device_capability()
// arch = f"{major}{minor}" + "a" * (major >= 9)
// flash_attention = load_inline(
//     "flash_attention", cuda_sources=Path("flash_attention.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         std::tuple<Tensor, Tensor> flash_attention_forward(Tensor q, Tensor k,
//             Tensor v, std::optional<Tensor> lengths, bool causal, bool lower_right,
//             int64_t window);
//         std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(Tensor dout,
//             Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,
//             std::optional<Tensor> lengths, bool causal, bool lower_right,
//             int64_t window);""",
//     functions=["flash_attention_forward", "flash_attention_backward"],
//     extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
#include <optional>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;
constexpr unsigned ALL_LANES = 0xffffffff;
constexpr float LOG2_E = 1.44269504f;

// What is computed. To a head of k and v the `group` heads of q that it serves, which
// lie one behind the other, are one matrix of group * S_q rows: row r is query r % S_q.
struct Call {
    const int* lengths;  // keys of each batch entry; null: S_kv
    int H_kv, group, S_q, S_kv, D, window;  // window 0: none
    bool causal, lower_right;
};

// What the queries of a batch entry see: query i the keys first(i) to end(i) - 1. Both
// grow with i, so that the first and the last of some queries say what all of them see.
struct Sight {
    int S_q, length, shift, window;
    bool causal;

    __device__ Sight(const Call& call, int64_t head)
        : S_q(call.S_q), window(call.window), causal(call.causal) {
        length = call.S_kv;
        if (call.lengths)
            length = max(0, min(length, call.lengths[head / call.H_kv]));
        shift = call.lower_right ? length - S_q : 0;
    }
    __device__ int first(int i) const {
        return window ? max(0, i + shift - window + 1) : 0;
    }
    __device__ int end(int i) const {
        return causal ? max(0, min(length, i + shift + 1)) : length;
    }
    __device__ bool sees(int i, int key) const {
        return key >= first(i) && key < end(i) && i < S_q;
    }
    // the queries that see a key: first_query(key) to end_query(key) - 1
    __device__ int first_query(int key) const {
        return causal ? max(0, key - shift) : 0;
    }
    __device__ int end_query(int key) const {
        return window ? min(S_q, key - shift + window) : S_q;
    }
    // the keys that some of the rows first_row to last_row see: x to y - 1
    __device__ int2 keys_of(int first_row, int last_row) const {
        bool one_head = first_row / S_q == last_row / S_q;
        return make_int2(first(one_head ? first_row % S_q : 0),
                         end(one_head ? last_row % S_q : S_q - 1));
    }
    // the keys that all of these rows see
    __device__ int2 keys_of_all(int first_row, int last_row) const {
        bool one_head = first_row / S_q == last_row / S_q;
        return make_int2(first(one_head ? last_row % S_q : S_q - 1),
                         end(one_head ? first_row % S_q : 0));
    }
};

static __device__ int tiles_of(int count, int size) {
    return max(0, count + size - 1) / size;
}

// On sm_90 and later: the kernel that combines parts may begin beside this one, and
static __device__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}
// wait until all of this one is written
static __device__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// ------------------------------------------------------ without tensor cores

constexpr int PLAIN_THREADS = 128, PLAIN_TILE = 16, COLUMNS = 16;  // a lane's columns
template <int D_MAX> constexpr int LANES = D_MAX / COLUMNS;  // of a row
template <int D_MAX> constexpr int PLAIN_ROWS = PLAIN_THREADS / LANES<D_MAX>;

// column number c of a lane: four neighbours of each 4 LANES
template <int D_MAX> __device__ int column(int c) {
    return c / 4 * 4 * LANES<D_MAX> + threadIdx.x % LANES<D_MAX> * 4 + c % 4;
}

// rows of D numbers as float; zeros from row `left` and from column D on
template <int D_MAX, typename T>
__device__ void load_tile(float (&tile)[PLAIN_TILE][D_MAX], const T* from, int left,
                          int D) {
    for (int i = threadIdx.x; i < PLAIN_TILE * D_MAX; i += PLAIN_THREADS) {
        int j = i / D_MAX, d = i % D_MAX;
        tile[j][d] = j < left && d < D ? float(from[int64_t(j) * D + d]) : 0.0f;
    }
}

// a lane's columns of a row
template <int D_MAX, typename T>
__device__ void load_row(float (&own)[COLUMNS], const T* row, bool inside, int D) {
    for (int c = 0; c < COLUMNS; c++) {
        int d = column<D_MAX>(c);
        own[c] = inside && d < D ? float(row[d]) : 0.0f;
    }
}

template <int D_MAX, typename T>
__device__ void store_row(T* row, const float (&own)[COLUMNS], int D, float scale) {
    for (int c = 0; c < COLUMNS; c++) {
        int d = column<D_MAX>(c);
        if (d < D) row[d] = T(own[c] * scale);
    }
}

// number c / 4 of a lane's fours of columns in a row of a tile: 16 bytes at once, with
// which the lanes of a row read neighbouring banks
template <int D_MAX>
__device__ float4 four(const float (&row)[D_MAX], int c) {
    return reinterpret_cast<const float4*>(row)[column<D_MAX>(c) / 4];
}

// the product of the row that some lanes share with a row of a tile, for each of them
template <int D_MAX>
__device__ float dot(const float (&own)[COLUMNS], const float (&other)[D_MAX]) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 4) {
        float4 x = four(other, c);
        sum += own[c] * x.x + own[c + 1] * x.y + own[c + 2] * x.z + own[c + 3] * x.w;
    }
    for (int step = LANES<D_MAX> / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, step);
    return sum;
}

template <int D_MAX>
__device__ void add(float (&acc)[COLUMNS], float factor, const float (&row)[D_MAX]) {
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 4) {
        float4 x = four(row, c);
        acc[c] += factor * x.x, acc[c + 1] += factor * x.y;
        acc[c + 2] += factor * x.z, acc[c + 3] += factor * x.w;
    }
}

// out, q: (heads of k, rows, D), k, v: (heads, S_kv, D), lse: (heads, rows). A block
// takes some rows and the keys of one of `splits` parts; with more than one, parts:
// (splits, heads, rows, D) and lse: (splits, heads, rows) are what combine reads.
template <int D_MAX, typename T>
__global__ void flash_forward_plain_kernel(T* out, float* lse, float* parts, const T* q,
                                           const T* k, const T* v, Call call,
                                           int splits) {
    __shared__ __align__(16) float k_tile[PLAIN_TILE][D_MAX];
    __shared__ __align__(16) float v_tile[PLAIN_TILE][D_MAX];
    let_next_begin();
    int rows = call.group * call.S_q, blocks = (rows - 1) / PLAIN_ROWS<D_MAX> + 1;
    int split = blockIdx.x % splits, block = blockIdx.x / splits % blocks;
    int heads = gridDim.x / splits / blocks, D = call.D;
    int64_t head = blockIdx.x / splits / blocks;
    int first_row = block * PLAIN_ROWS<D_MAX>;
    int row = first_row + threadIdx.x / LANES<D_MAX>;
    Sight sight(call, head);
    int query = row % call.S_q, first = sight.first(query), end = sight.end(query);
    int2 keys = sight.keys_of(first_row, min(first_row + PLAIN_ROWS<D_MAX>, rows) - 1);
    int each = tiles_of(tiles_of(keys.y - keys.x, PLAIN_TILE), splits) * PLAIN_TILE;
    keys.x += split * each;
    keys.y = min(keys.y, keys.x + each);
    float q_own[COLUMNS], acc[COLUMNS] = {}, row_max = -INFINITY, row_sum = 0.0f;
    load_row<D_MAX>(q_own, q + (head * rows + row) * D, row < rows, D);
    for (int key = keys.x; key < keys.y; key += PLAIN_TILE) {
        load_tile(k_tile, k + (head * call.S_kv + key) * D, sight.length - key, D);
        load_tile(v_tile, v + (head * call.S_kv + key) * D, sight.length - key, D);
        __syncthreads();  // the tile is complete before it is read
        float s[PLAIN_TILE], tile_max = row_max;
#pragma unroll
        for (int j = 0; j < PLAIN_TILE; j++) {
            float score = dot(q_own, k_tile[j]) * rsqrtf(D);
            bool seen = key + j >= first && key + j < end;
            s[j] = seen ? score : -INFINITY;
            tile_max = fmaxf(tile_max, s[j]);
        }
        float shift = tile_max == -INFINITY ? 0.0f : tile_max;  // not inf - inf
        float shrink = expf(row_max - shift);
        row_max = tile_max;
        row_sum *= shrink;
        for (int c = 0; c < COLUMNS; c++) acc[c] *= shrink;
#pragma unroll
        for (int j = 0; j < PLAIN_TILE; j++) {
            float p = expf(s[j] - shift);
            row_sum += p;
            add(acc, p, v_tile[j]);
        }
        __syncthreads();  // all have read the tile before it is overwritten
    }
    if (row >= rows) return;
    float inverse = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;  // 0: saw nothing
    int64_t at = head * rows + row, part = int64_t(split) * heads * rows + at;
    if (threadIdx.x % LANES<D_MAX> == 0) lse[part] = row_max + logf(row_sum);
    if (splits > 1) store_row<D_MAX>(parts + part * D, acc, D, inverse);
    else store_row<D_MAX>(out + at * D, acc, D, inverse);
}

// out: (rows, D), lse: (rows) from those of splits that saw some of the keys each,
// parts: (splits, rows, D), part_lse: (splits, rows). A block per row: its warps take
// turns at the parts, and each asks for AT_ONCE before it waits for one.
constexpr int COMBINE_WARPS = 8;
template <typename T>
__global__ void flash_combine_kernel(T* out, float* lse, const float* parts,
                                     const float* part_lse, int64_t rows, int D,
                                     int splits) {
    constexpr int AT_ONCE = 8, PER_LANE = 8;  // columns, 32 apart
    __shared__ float sums[COMBINE_WARPS][32 * PER_LANE];
    int64_t row = blockIdx.x;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float high = -INFINITY, sum = 0.0f, acc[PER_LANE] = {};
    wait_for_last();
    for (int s = lane; s < splits; s += 32)
        high = fmaxf(high, part_lse[s * rows + row]);
    for (int step = 16; step > 0; step /= 2)
        high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, step));
    float shift = high == -INFINITY ? 0.0f : high;  // not inf - inf
    for (int s = lane; s < splits; s += 32)
        sum += expf(part_lse[s * rows + row] - shift);
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, step);
    for (int s = warp; s < splits; s += COMBINE_WARPS * AT_ONCE) {
        float weights[AT_ONCE] = {}, x[AT_ONCE][PER_LANE] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int64_t part = (s + i * COMBINE_WARPS) * rows + row;
            if (s + i * COMBINE_WARPS >= splits) continue;
            weights[i] = expf(part_lse[part] - shift);
            for (int c = 0; c < PER_LANE; c++)
                if (lane + c * 32 < D) x[i][c] = parts[part * D + lane + c * 32];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            for (int c = 0; c < PER_LANE; c++) acc[c] += weights[i] * x[i][c];
    }
    for (int c = 0; c < PER_LANE; c++) sums[warp][lane + c * 32] = acc[c];
    __syncthreads();  // the sums of all warps are there
    float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // 0: no part saw anything
    for (int d = threadIdx.x; d < D; d += 32 * COMBINE_WARPS) {
        float x = 0.0f;
        for (int w = 0; w < COMBINE_WARPS; w++) x += sums[w][d];
        out[row * D + d] = T(x * inverse);
    }
    if (threadIdx.x == 0) lse[row] = high + logf(sum);
}

// What backward needs of each query: lse for powers of 2, and delta, the sum of dout *
// out, which is that of p * dp over the keys. A query that saw nothing gets lse inf:
// its weights are then 2^-inf, as are those of the rows behind a head's last in stats.
// stats: (heads, pitch), dout, out: (heads, S_q, D), read by WIDTH numbers. A row of
// stats has 32 lanes, or 16 with WIDTH 8.
template <typename T, int WIDTH>
__global__ void flash_stats_kernel(float2* stats, const T* dout, const T* out,
                                   const float* lse, int64_t rows, int S_q, int pitch,
                                   int D) {
    constexpr int PER_ROW = WIDTH == 1 ? 32 : 16;
    struct alignas(WIDTH * sizeof(T)) Some { T at[WIDTH]; };
    int64_t to = blockIdx.x * int64_t(PLAIN_THREADS / PER_ROW) + threadIdx.x / PER_ROW;
    int64_t row = to / pitch * S_q + to % pitch;
    bool inside = to < rows && to % pitch < S_q;
    int lane = threadIdx.x % PER_ROW;
    float delta = 0.0f, sum = inside ? lse[row] : -INFINITY;
    for (int d = lane * WIDTH; inside && d < D; d += PER_ROW * WIDTH) {
        Some x = *reinterpret_cast<const Some*>(dout + row * D + d);
        Some y = *reinterpret_cast<const Some*>(out + row * D + d);
        for (int i = 0; i < WIDTH; i++) delta += float(x.at[i]) * float(y.at[i]);
    }
    for (int step = PER_ROW / 2; step > 0; step /= 2)
        delta += __shfl_xor_sync(ALL_LANES, delta, step);
    if (to < rows && lane == 0)
        stats[to] = make_float2(sum == -INFINITY ? INFINITY : sum * LOG2_E, delta);
}

// Gradients, of keys or of queries. With p = exp(q k - lse) and dp = dout v, which are
// numbers for a query and a key: dv = sum of p dout, ds = p (dp - delta), dk = sum of
// ds q over the queries, dq = sum of ds k over the keys (scaled as the scores are). A
// block keeps rows of its own, x and y, and goes through the others, tile by tile:
//   OF_KEYS: own rows k and v, others q and dout of all heads that share them: dk, dv
//   else:    own rows q and dout, others k and v: dq
template <bool OF_KEYS, int D_MAX, typename T>
__global__ void flash_backward_plain_kernel(T* dx, T* dy, const T* x, const T* y,
                                            const T* other_x, const T* other_y,
                                            const float2* stats, Call call) {
    __shared__ __align__(16) float x_tile[PLAIN_TILE][D_MAX];
    __shared__ __align__(16) float y_tile[PLAIN_TILE][D_MAX];
    __shared__ float2 stats_tile[PLAIN_TILE];
    int rows = OF_KEYS ? call.S_kv : call.group * call.S_q, D = call.D;
    int blocks = (rows - 1) / PLAIN_ROWS<D_MAX> + 1;
    int first_row = blockIdx.x % blocks * PLAIN_ROWS<D_MAX>;
    int row = first_row + threadIdx.x / LANES<D_MAX>;
    int last_row = min(first_row + PLAIN_ROWS<D_MAX>, rows) - 1;
    int64_t head = blockIdx.x / blocks, at = (head * rows + row) * D;
    Sight sight(call, head);
    int2 range = sight.keys_of(first_row, last_row);  // of the others
    if (OF_KEYS) {
        range.x = sight.first_query(first_row);
        range.y = first_row < sight.length ? sight.end_query(last_row) : 0;
    }
    float x_own[COLUMNS], y_own[COLUMNS], x_acc[COLUMNS] = {}, y_acc[COLUMNS] = {};
    bool inside = row < (OF_KEYS ? sight.length : rows);
    load_row<D_MAX>(x_own, x + at, inside, D);
    load_row<D_MAX>(y_own, y + at, inside, D);
    float2 stat = make_float2(0.0f, 0.0f);
    if (!OF_KEYS && inside) stat = stats[head * rows + row];
    for (int g = 0; g < (OF_KEYS ? call.group : 1); g++) {
        int64_t begin = head * call.S_kv;  // of the others
        if (OF_KEYS) begin = (head * call.group + g) * call.S_q;
        for (int i = range.x; i < range.y; i += PLAIN_TILE) {
            int left = (OF_KEYS ? call.S_q : sight.length) - i;
            load_tile(x_tile, other_x + (begin + i) * D, left, D);
            load_tile(y_tile, other_y + (begin + i) * D, left, D);
            if (OF_KEYS && threadIdx.x < PLAIN_TILE && int(threadIdx.x) < left)
                stats_tile[threadIdx.x] = stats[begin + i + threadIdx.x];
            __syncthreads();  // the tile is complete before it is read
            for (int j = 0; j < min(PLAIN_TILE, left); j++) {
                float s = dot(x_own, x_tile[j]), dp = dot(y_own, y_tile[j]);
                if (OF_KEYS) stat = stats_tile[j];
                bool seen = OF_KEYS ? sight.sees(i + j, row)
                                    : sight.sees(row % call.S_q, i + j);
                float p = exp2f(s * (rsqrtf(D) * LOG2_E) - stat.x);
                float ds = p * (dp - stat.y);
                add(x_acc, seen ? ds : 0.0f, x_tile[j]);
                if (OF_KEYS) add(y_acc, seen ? p : 0.0f, y_tile[j]);
            }
            __syncthreads();  // all have read the tile before it is overwritten
        }
    }
    if (row >= rows) return;
    store_row<D_MAX>(dx + at, x_acc, D, rsqrtf(D));
    if (OF_KEYS) store_row<D_MAX>(dy + at, y_acc, D, 1.0f);
}

// --------------------------------------------------------- with tensor cores

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
static __device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

static __device__ void ldmatrix_transposed(unsigned (&r)[4], unsigned at) {
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

static __device__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The swizzled offset of a piece, a chunk of 16 bytes (8 numbers), in a tile of rows of
// D: in row r piece p stands where p ^ r % 8 would. Eight pieces of a row, which a copy
// writes, or of a column, which ldmatrix reads, then lie in all 32 banks, once each.
// Pieces 2 k and 2 k + 1 are where 0 and 1 are but for the bits of 2 k: at ^ k * 32
// goes 16 numbers on from wherever a lane began.
template <int D> __device__ unsigned place(int row, int piece) {
    return row * D * 2 + (piece ^ row % 8) * 16;
}

// where a lane begins: rows of a left factor, or of a right one that is transposed
template <int D> __device__ unsigned rows_at(unsigned tile, int row) {
    int lane = threadIdx.x % 32;
    return tile + place<D>(row + lane % 16, lane / 16);
}

// rows that are the columns of a right factor
template <int D> __device__ unsigned columns_at(unsigned tile) {
    int lane = threadIdx.x % 32;
    return tile + place<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

// COUNT rows of `columns` numbers to shared memory, asynchronously, by all threads;
// zeros from row `left` on and behind the columns
template <int COUNT, int D, int THREADS, typename T>
__device__ void copy_rows(unsigned to, const T* from, int left, int columns) {
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES;
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    bool inside = piece * 8 < columns;
    from += row * columns + piece * 8;
#pragma unroll
    for (int r = 0; r < COUNT; r += STEP)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to + place<D>(row + r, piece)), "l"(from + r * columns),
                        "r"(inside && row + r < left ? 16 : 0));
}

static __device__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// c: 16 MT × 8 NT = rows of one tile times rows of another, over D columns
template <typename T, int D, int MT, int NT>
__device__ void multiply(float (&c)[MT][NT][4], unsigned a_at, unsigned b_at) {
#pragma unroll
    for (int n = 0; n < NT; n++)
        for (int m = 0; m < MT; m++)
            for (int e = 0; e < 4; e++) c[m][n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; m++) ldmatrix(a[m], (a_at ^ k * 32) + m * 16 * D * 2);
#pragma unroll
        for (int n = 0; n < NT / 2; n++) {
            ldmatrix(b, (b_at ^ k * 32) + n * 16 * D * 2);
            for (int m = 0; m < MT; m++) {
                mma<T>(c[m][2 * n], a[m], b[0], b[1]);
                mma<T>(c[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// c: 16 MT × D += a: 16 MT × 16 KT times KT * 16 rows of a tile
template <typename T, int D, int MT, int KT>
__device__ void accumulate(float (&c)[MT][D / 8][4], const unsigned (&a)[MT][KT][4],
                           unsigned b_at) {
#pragma unroll
    for (int k = 0; k < KT; k++)
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            unsigned b[4];
            ldmatrix_transposed(b, (b_at ^ n * 32) + k * 16 * D * 2);
            for (int m = 0; m < MT; m++) {
                mma<T>(c[m][2 * n], a[m][k], b[0], b[1]);
                mma<T>(c[m][2 * n + 1], a[m][k], b[2], b[3]);
            }
        }
}

// sums as a left factor: a place in sums, row g and columns t, t + 1 of fragment n, is
// one in a left factor, row g and k = t, t + 1, n and n + 1 being k and k + 8 of one
template <typename T, int MT, int NT>
__device__ void pack_all(unsigned (&a)[MT][NT / 2][4], const float (&c)[MT][NT][4]) {
#pragma unroll
    for (int i = 0; i < MT * NT * 2; i++) {
        int m = i / (NT * 2), n = i / 2 % NT, half = i % 2;
        a[m][n / 2][n % 2 * 2 + half] =
            pack<T>(c[m][n][half * 2], c[m][n][half * 2 + 1]);
    }
}

// 16 MT rows of D sums, to rows of `columns` numbers of which `rows` are left
template <int D, int MT, typename T>
__device__ void store_sums(T* out, const float (&c)[MT][D / 8][4],
                           const float (&factor)[2 * MT], int rows, int columns) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int row = lane / 4 + r * 8, m = r / 2, e = r % 2 * 2;
        T* to = out + int64_t(row) * columns + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (row < rows && n * 8 < columns) {
                float x = c[m][n][e] * factor[r], y = c[m][n][e + 1] * factor[r];
                if constexpr (sizeof(T) == 2)
                    *reinterpret_cast<unsigned*>(to + n * 8) = pack<T>(x, y);
                else
                    *reinterpret_cast<float2*>(to + n * 8) = make_float2(x, y);
            }
    }
}

template <int D> constexpr int KEYS = 8192 / D;  // of a tile of forward: 16 KB

// takes out what rows must not see
template <int D, int MT>
__device__ void mask(float (&s)[MT][KEYS<D> / 8][4], const Call& call, int64_t head,
                     int row, int key) {
    Sight sight(call, head);  // again: registers are short, tiles like this few
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int query = (row + lane / 4 + r * 8) % sight.S_q;
        int first = sight.first(query) - key - lane % 4 * 2;
        int end = sight.end(query) - key - lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < KEYS<D> / 4; i++) {
            int n = i / 2, e = i % 2, col = n * 8 + e;
            if (col < first || col >= end) s[r / 2][n][r % 2 * 2 + e] = -INFINITY;
        }
    }
}

// Online softmax, of one tile of keys. What holds before and after: with m the largest
// score of a row so far, o is the sum of 2^(scale (s - m)) V over the keys so far, and
// sums that of 2^(scale (s - m)). A larger m multiplies both by 2^(scale (old m - new
// m)). s becomes p = 2^(scale (s - m)).
template <int D, int MT>
__device__ void softmax(float (&s)[MT][KEYS<D> / 8][4], float (&o)[MT][D / 8][4],
                        float (&sums)[MT][4], float (&row_max)[2 * MT],
                        float scale) {
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {  // the lane's rows: lane / 4 + 8 r
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
        for (int n = 0; n < D / 8; n++)
            for (int i = 0; i < 2; i++) o[m][n][e + i] *= shrink;
        for (int i = 0; i < 2; i++) sums[m][e + i] *= shrink;
#pragma unroll
        for (int n = 0; n < KEYS<D> / 8; n++)
            for (int i = 0; i < 2; i++)
                s[m][n][e + i] = power_of_2(fmaf(s[m][n][e + i], scale, -shift));
    }
}

// sums += p times a matrix of ones: each column is the sum of the row's p, as rounded
// as those that V is multiplied by, and no lane has to add up what it has
template <typename T, int MT, int KT>
__device__ void add_up(float (&sums)[MT][4], const unsigned (&p)[MT][KT][4]) {
    constexpr unsigned ONES = std::is_same_v<T, at::Half> ? 0x3c003c00 : 0x3f803f80;
#pragma unroll
    for (int k = 0; k < KT; k++)
        for (int m = 0; m < MT; m++) mma<T>(sums[m], p[m][k], ONES, ONES);
}

// As the plain one; 16 MT rows per warp. Four warps of 32 rows, or with few rows one of
// 16: then many small blocks ask for keys at the same time. There is room for one tile
// of K and one of V: while the scores are multiplied V's is on its way, and during
// softmax and PV the next one of K. At each of the two barriers the tile that is needed
// has come, and the one that is about to be overwritten has been read by all warps.
template <typename T, int D, int MT, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, WARPS == 1 ? 6 : 2)
flash_forward_mma_kernel(T* out, float* lse, float* parts, const T* q, const T* k,
                         const T* v, Call call, int splits) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) unsigned char tiles[];
    constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS;
    let_next_begin();
    int rows = call.group * call.S_q, blocks = (rows - 1) / ROWS + 1;
    int split = blockIdx.x % splits, block = blockIdx.x / splits % blocks;
    if (call.causal) block = blocks - 1 - block;  // those with most keys first
    int64_t head = blockIdx.x / splits / blocks;
    int first_row = block * ROWS, row = first_row + threadIdx.x / 32 * 16 * MT;
    Sight sight(call, head);
    int2 keys = sight.keys_of(first_row, min(first_row + ROWS, rows) - 1);
    int2 of_all = sight.keys_of_all(row, row + 16 * MT - 1);
    int each = tiles_of(tiles_of(keys.y - keys.x, KEYS<D>), splits) * KEYS<D>;
    keys.x += split * each;
    keys.y = min(keys.y, keys.x + each);
    q += (head * rows + first_row) * call.D;
    int64_t at = (head * call.S_kv + keys.x) * call.D;  // the tile in k and v
    unsigned q_tile = __cvta_generic_to_shared(tiles), k_tile = q_tile + ROWS * D * 2;
    unsigned v_tile = k_tile + KEYS<D> * D * 2;
    unsigned q_at = rows_at<D>(q_tile, row - first_row), k_at = columns_at<D>(k_tile);
    unsigned v_at = rows_at<D>(v_tile, 0);
    copy_rows<ROWS, D, THREADS>(q_tile, q, rows - first_row, call.D);
    if (keys.x < keys.y)
        copy_rows<KEYS<D>, D, THREADS>(k_tile, k + at, keys.y - keys.x, call.D);
    float o[MT][D / 8][4] = {}, sums[MT][4] = {}, row_max[2 * MT];
    for (int r = 0; r < 2 * MT; r++) row_max[r] = -INFINITY;
    for (int key = keys.x; key < keys.y; key += KEYS<D>) {
        wait_for_copies();
        __syncthreads();  // the tile of K has come; all are done with the last of V
        copy_rows<KEYS<D>, D, THREADS>(v_tile, v + at, keys.y - key, call.D);
        float s[MT][KEYS<D> / 8][4];
        multiply<T, D>(s, q_at, k_at);
        wait_for_copies();
        __syncthreads();  // the tile of V has come; all are done with this one of K
        at += KEYS<D> * call.D;
        int left = keys.y - key - KEYS<D>;
        if (left > 0) copy_rows<KEYS<D>, D, THREADS>(k_tile, k + at, left, call.D);
        bool all_seen = key >= of_all.x && key + KEYS<D> <= of_all.y;
        if (!all_seen) mask<D>(s, call, head, row, key);
        softmax<D>(s, o, sums, row_max, LOG2_E * rsqrtf(call.D));
        unsigned p[MT][KEYS<D> / 16][4];
        pack_all<T>(p, s);
        add_up<T>(sums, p);
        accumulate<T, D>(o, p, v_at);
    }
    wait_for_copies();
    at = head * rows + row;
    int64_t part = at + int64_t(split) * (gridDim.x / splits / blocks) * rows;
    float inverse[2 * MT];
    for (int r = 0; r < 2 * MT; r++) {
        float sum = sums[r / 2][r % 2 * 2];
        inverse[r] = sum == 0.0f ? 0.0f : 1.0f / sum;  // 0: saw nothing
        int i = threadIdx.x % 32 / 4 + r * 8;
        if (threadIdx.x % 4 == 0 && row + i < rows)
            lse[part + i] = row_max[r] * rsqrtf(call.D) + logf(sum);
    }
    if (splits > 1)
        store_sums<D, MT>(parts + part * call.D, o, inverse, rows - row, call.D);
    else
        store_sums<D, MT>(out + at * call.D, o, inverse, rows - row, call.D);
#else
    __trap();  // built without mma: the launcher takes the other kernel
#endif
}

constexpr int BACKWARD_TILE = 32;  // rows of the tiles that backward goes through
template <int D> constexpr int KEY_TILES = 128 / D;  // of 16 keys, per warp: dk and dv
constexpr int QUERY_TILES = 2;                       // of 16 queries, per warp: dq
constexpr int BACKWARD_THREADS = 128;

// p and ds from the scores s and dp, at places that a query sees; 0 elsewhere
static __device__ void weigh(float& s, float& dp, float scale, float lse, float delta,
                             bool seen) {
    float p = power_of_2(fmaf(s, scale, -lse));
    s = seen ? p : 0.0f;
    dp = seen ? p * (dp - delta) : 0.0f;
}

// dk, dv: (heads, S_kv, D), stats: see above. Four warps of 16 KEY_TILES keys. All is
// transposed, keys by queries: p and ds, which are then sums and left factors in turn,
// never leave registers. Two buffers take turns: at the one barrier of a tile it has
// come, and all warps have read the one before, which the next one overwrites.
template <typename T, int D>
__global__ void __launch_bounds__(BACKWARD_THREADS, 2)
flash_backward_keys_mma_kernel(T* dk, T* dv, const T* q, const T* k, const T* v,
                               const T* dout, const float2* stats, Call call) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) unsigned char tiles[];
    constexpr int MT = KEY_TILES<D>, ROWS = 64 * MT, N = BACKWARD_TILE;
    constexpr int BYTES = N * D * 2;  // of a tile of queries
    int blocks = (call.S_kv - 1) / ROWS + 1, lane = threadIdx.x % 32, S_q = call.S_q;
    int first_row = blockIdx.x % blocks * ROWS;
    int row = first_row + threadIdx.x / 32 * 16 * MT;
    int64_t head = blockIdx.x / blocks, at = head * call.S_kv;
    Sight sight(call, head);
    int begin = sight.first_query(first_row);
    int end = sight.end_query(min(first_row + ROWS, sight.length) - 1);
    int turns = first_row < sight.length ? tiles_of(end - begin, N) : 0;
    unsigned k_tile = __cvta_generic_to_shared(tiles), v_tile = k_tile + ROWS * D * 2;
    unsigned q_tile = v_tile + ROWS * D * 2, dout_tile = q_tile + 2 * BYTES;
    unsigned stats_tile = dout_tile + 2 * BYTES;
    const float2* stats_here =
        reinterpret_cast<const float2*>(tiles + (stats_tile - k_tile));
    auto load = [&](int turn) {  // a tile of one of the heads that share these keys
        int i = begin + turn % turns * N, buffer = turn % 2;
        int64_t from = (head * call.group + turn / turns) * S_q + i;
        copy_rows<N, D, BACKWARD_THREADS>(q_tile + buffer * BYTES, q + from * call.D,
                                          S_q - i, call.D);
        copy_rows<N, D, BACKWARD_THREADS>(dout_tile + buffer * BYTES,
                                          dout + from * call.D, S_q - i, call.D);
        if (threadIdx.x < N)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                         :: "r"(stats_tile + (buffer * N + threadIdx.x) * 8),
                            "l"(stats + from + threadIdx.x),
                            "r"(i + int(threadIdx.x) < S_q ? 8 : 0));
    };
    float dk_acc[MT][D / 8][4] = {}, dv_acc[MT][D / 8][4] = {};
    if (turns > 0) {
        int left = sight.length - first_row;
        copy_rows<ROWS, D, BACKWARD_THREADS>(k_tile, k + (at + first_row) * call.D,
                                             left, call.D);
        copy_rows<ROWS, D, BACKWARD_THREADS>(v_tile, v + (at + first_row) * call.D,
                                             left, call.D);
        load(0);
    }
    float scale = rsqrtf(call.D);
    for (int turn = 0; turn < turns * call.group; turn++) {
        wait_for_copies();
        __syncthreads();  // this tile has come; all are done with the one before
        if (turn + 1 < turns * call.group) load(turn + 1);
        int buffer = turn % 2, i = begin + turn % turns * N;
        unsigned q_now = q_tile + buffer * BYTES, dout_now = dout_tile + buffer * BYTES;
        float s[MT][N / 8][4], dp[MT][N / 8][4];
        multiply<T, D>(s, rows_at<D>(k_tile, row - first_row), columns_at<D>(q_now));
        multiply<T, D>(dp, rows_at<D>(v_tile, row - first_row),
                       columns_at<D>(dout_now));
        bool all_seen = row + 16 * MT <= sight.end(i) && i + N <= S_q &&
                        row >= sight.first(i + N - 1);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            for (int e = 0; e < 2; e++) {
                int query = n * 8 + lane % 4 * 2 + e;
                float2 stat = stats_here[buffer * N + query];
                for (int r = 0; r < 2 * MT; r++) {
                    int key = row + lane / 4 + r * 8, c = r % 2 * 2 + e;
                    bool seen = all_seen || sight.sees(i + query, key);
                    weigh(s[r / 2][n][c], dp[r / 2][n][c], scale * LOG2_E, stat.x,
                          stat.y, seen);
                }
            }
        unsigned p[MT][N / 16][4], ds[MT][N / 16][4];
        pack_all<T>(p, s);
        pack_all<T>(ds, dp);
        accumulate<T, D>(dv_acc, p, rows_at<D>(dout_now, 0));
        accumulate<T, D>(dk_acc, ds, rows_at<D>(q_now, 0));
    }
    float scales[2 * MT], ones[2 * MT];
    for (int r = 0; r < 2 * MT; r++) scales[r] = scale, ones[r] = 1.0f;
    at = (at + row) * call.D;
    store_sums<D, MT>(dk + at, dk_acc, scales, call.S_kv - row, call.D);
    store_sums<D, MT>(dv + at, dv_acc, ones, call.S_kv - row, call.D);
#else
    __trap();  // built without mma: the launcher takes the other kernel
#endif
}

// dq, q, dout: (heads of k, rows, D). Four warps of 16 QUERY_TILES rows; p and ds as
// sums and left factors, and the two buffers, as above.
template <typename T, int D>
__global__ void __launch_bounds__(BACKWARD_THREADS, 2)
flash_backward_queries_mma_kernel(T* dq, const T* q, const T* k, const T* v,
                                  const T* dout, const float2* stats, Call call) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) unsigned char tiles[];
    constexpr int MT = QUERY_TILES, ROWS = 64 * MT, N = BACKWARD_TILE;
    constexpr int BYTES = N * D * 2;  // of a tile of keys
    int rows = call.group * call.S_q, blocks = (rows - 1) / ROWS + 1;
    int block = blockIdx.x % blocks, lane = threadIdx.x % 32;
    if (call.causal) block = blocks - 1 - block;  // those with most keys first
    int first_row = block * ROWS, row = first_row + threadIdx.x / 32 * 16 * MT;
    int64_t head = blockIdx.x / blocks, at = head * rows;
    Sight sight(call, head);
    int2 keys = sight.keys_of(first_row, min(first_row + ROWS, rows) - 1);
    int2 of_all = sight.keys_of_all(row, row + 16 * MT - 1);
    k += head * call.S_kv * call.D;
    v += head * call.S_kv * call.D;
    unsigned q_tile = __cvta_generic_to_shared(tiles);
    unsigned dout_tile = q_tile + ROWS * D * 2, k_tile = dout_tile + ROWS * D * 2;
    unsigned v_tile = k_tile + 2 * BYTES;
    auto load = [&](int key, int buffer) {
        copy_rows<N, D, BACKWARD_THREADS>(k_tile + buffer * BYTES,
                                          k + int64_t(key) * call.D, keys.y - key,
                                          call.D);
        copy_rows<N, D, BACKWARD_THREADS>(v_tile + buffer * BYTES,
                                          v + int64_t(key) * call.D, keys.y - key,
                                          call.D);
    };
    if (keys.x < keys.y) {
        int64_t from = (at + first_row) * call.D;
        copy_rows<ROWS, D, BACKWARD_THREADS>(q_tile, q + from, rows - first_row,
                                             call.D);
        copy_rows<ROWS, D, BACKWARD_THREADS>(dout_tile, dout + from, rows - first_row,
                                             call.D);
        load(keys.x, 0);
    }
    float2 stat[2 * MT];
    for (int r = 0; r < 2 * MT; r++) {
        int i = row + lane / 4 + r * 8;
        stat[r] = i < rows ? stats[at + i] : make_float2(0.0f, 0.0f);
    }
    float acc[MT][D / 8][4] = {}, scale = rsqrtf(call.D);
    int buffer = 0;
    for (int key = keys.x; key < keys.y; key += N, buffer ^= 1) {
        wait_for_copies();
        __syncthreads();  // this tile has come; all are done with the one before
        if (key + N < keys.y) load(key + N, buffer ^ 1);
        unsigned k_now = k_tile + buffer * BYTES, v_now = v_tile + buffer * BYTES;
        float s[MT][N / 8][4], dp[MT][N / 8][4];
        multiply<T, D>(s, rows_at<D>(q_tile, row - first_row), columns_at<D>(k_now));
        multiply<T, D>(dp, rows_at<D>(dout_tile, row - first_row),
                       columns_at<D>(v_now));
        bool all_seen = key >= of_all.x && key + N <= of_all.y;
#pragma unroll
        for (int r = 0; r < 2 * MT; r++) {
            int first = 0, end = 0;  // of the keys that the row sees
            if (!all_seen) {
                int query = (row + lane / 4 + r * 8) % call.S_q;
                first = sight.first(query), end = sight.end(query);
            }
            for (int i = 0; i < N / 4; i++) {
                int n = i / 2, c = r % 2 * 2 + i % 2;
                int col = key + n * 8 + lane % 4 * 2 + i % 2;
                bool seen = all_seen || (col >= first && col < end);
                weigh(s[r / 2][n][c], dp[r / 2][n][c], scale * LOG2_E, stat[r].x,
                      stat[r].y, seen);
            }
        }
        unsigned ds[MT][N / 16][4];
        pack_all<T>(ds, dp);
        accumulate<T, D>(acc, ds, rows_at<D>(k_now, 0));
    }
    float scales[2 * MT];
    for (int r = 0; r < 2 * MT; r++) scales[r] = scale;
    store_sums<D, MT>(dq + (at + row) * call.D, acc, scales, rows - row, call.D);
#else
    __trap();  // built without mma: the launcher takes the other kernel
#endif
}

// ---- sm_90: wgmma and TMA, as in matmul_tensor_core.cu
#ifdef __CUDACC_VER_MAJOR__  // nvcc; other compilers do not know them
#include <cuda.h>

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int LINE = 128;       // bytes of a row of a box: 64 numbers of a half type

static __device__ unsigned shared_at(const void* p) {
    return __cvta_generic_to_shared(p);
}

// An mbarrier: a phase ends when all that were told of have arrived, threads and bytes.
// Who waits for phase ^ 1 at first passes.
struct FlashBarrier {
    uint64_t state;
    __device__ void init(int threads) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     :: "r"(shared_at(this)), "r"(threads));
    }
    __device__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                     :: "r"(shared_at(this)) : "memory");
    }
    __device__ void arrive_by_warp() {  // once, without a branch: it would part a block
        asm volatile("{ .reg .pred first;\n setp.eq.u32 first, %1, 0;\n"
                     "@first mbarrier.arrive.shared::cta.b64 _, [%0]; }"
                     :: "r"(shared_at(this)), "r"(threadIdx.x % 32) : "memory");
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

static __device__ void show_barriers() {  // to TMA, after init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Where the next stage of a ring is; phase: of its barriers.
struct FlashTurn {
    int stage = 0, phase = 0;
    __device__ void next(int stages) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

// the box at (column, row) of a head to shared memory, swizzled: zeros where it is not
// inside, behind the head's rows too
static __device__ void load_box(unsigned to, const CUtensorMap& map, FlashBarrier& full,
                                int column, int row, int head) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier"
                 "::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 :: "r"(to), "l"(&map), "r"(shared_at(&full)), "r"(column), "r"(row),
                 "r"(head) : "memory");
}

// multiples of 16 bytes
static __device__ void load_bytes(unsigned to, const void* from, FlashBarrier& full,
                                  int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :: "r"(to), "l"(from), "r"(bytes), "r"(shared_at(&full)) : "memory");
}

// to += four numbers, at once
static __device__ void add_four(float4* to, const float* x) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}

// What wgmma is told of an operand: where it begins, and that 8 rows of a box are 1,024
// bytes. ALONG: its rows run along k. Else they run across, 64 numbers a box, the next
// box ROWS rows away.
template <bool ALONG, int ROWS> __device__ uint64_t describe(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(ALONG ? 1 : ROWS * LINE >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Around products that are started: before the first of them and behind the last, then
// until all but COUNT groups of them are complete.
static __device__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int COUNT> __device__ void wait_for_all_but() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(COUNT) : "memory");
}

// the compiler must neither read nor write these registers elsewhere than it is told to
template <int COUNT> __device__ void hold(float (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(x[i]) :: "memory");
}
template <int COUNT> __device__ void hold(unsigned (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(x[i]) :: "memory");
}

// wgmma<T, ...>(d, a, b, add): d = add ? d + a b : a b, 16 of k. d: a warpgroup's 64
// rows and 2 COUNT columns; element 4 j + 2 h + e is row lane / 4 + 8 h of the warp's
// 16, column 8 j + lane % 4 * 2 + e. a: described, or four registers, as mma has them.
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, " \
    "%" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define WGMMA_TEXT(TYPE, COLS, REGISTERS, FACTORS, ADD, ACROSS) \
    "{ .reg .pred p;\n setp.ne.b32 p, %" #ADD ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" #COLS "k16.f32." TYPE " {" REGISTERS "}, " \
    FACTORS ", p, 1, 1, " ACROSS "; }"
#define WGMMA_BOTH(COLS, REGISTERS, FACTORS, ADD, ACROSS, ...) \
    if constexpr (std::is_same_v<T, at::Half>) \
        asm volatile(WGMMA_TEXT("f16.f16", COLS, REGISTERS, FACTORS, ADD, ACROSS) \
                     : __VA_ARGS__); \
    else \
        asm volatile(WGMMA_TEXT("bf16.bf16", COLS, REGISTERS, FACTORS, ADD, ACROSS) \
                     : __VA_ARGS__)
#define WGMMA(COLS, REGISTERS, SUMS, COUNT, R1, R2, R3, R4, R5, R6) \
    template <typename T, bool A_ALONG, bool B_ALONG> \
    __device__ void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b, bool add) { \
        WGMMA_BOTH(COLS, REGISTERS, "%" #COUNT ", %" #R1, R2, \
                   "%" #R3 ", %" #R4, SUMS : "l"(a), "l"(b), "r"(int(add)), \
                   "n"(!A_ALONG), "n"(!B_ALONG)); \
    } \
    template <typename T, bool B_ALONG> \
    __device__ void wgmma(float (&d)[COUNT], const unsigned* a, uint64_t b, \
                          bool add) { \
        WGMMA_BOTH(COLS, REGISTERS, \
                   "{%" #COUNT ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4, R5, \
                   "%" #R6, SUMS : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), \
                   "l"(b), "r"(int(add)), "n"(!B_ALONG)); \
    }
#define SUMS_40() SUMS_32(0), SUMS_8(32)
#define SUMS_128() SUMS_64(0), SUMS_64(64)
WGMMA(64, TEN() TEN(1) TEN(2) "%30, %31", SUMS_32(0), 32, 33, 34, 35, 36, 37, 38)
WGMMA(80, TEN() TEN(1) TEN(2) "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39",
      SUMS_40(), 40, 41, 42, 43, 44, 45, 46)
WGMMA(128, TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63", SUMS_64(0),
      64, 65, 66, 67, 68, 69, 70)
WGMMA(256, TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10)
      TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127", SUMS_128(), 128, 129,
      130, 131, 132, 133, 134)

// TMA's view of heads of rows of `columns` numbers, in boxes of `rows` rows
template <typename T>
static CUtensorMap map_of(const Tensor& x, int64_t heads, int64_t rows, int64_t columns,
                          int box_rows) {
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
                    "flash_attention: expected NVIDIA's driver for CUDA 12 or later, "
                    "got one without cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    CUtensorMap map;
    cuuint64_t pitch = columns * sizeof(T);
    cuuint64_t sizes[] = {cuuint64_t(columns), cuuint64_t(rows), cuuint64_t(heads)};
    cuuint64_t strides[] = {pitch, pitch * rows};
    cuuint32_t box[] = {LINE / sizeof(T), cuuint32_t(box_rows), 1}, steps[] = {1, 1, 1};
    auto result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, x.data_ptr(), sizes,
                         strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

// Whether the kernel, which has barriers in shared memory then, was built for sm_90a
template <typename Kernel> static bool has_wgmma(Kernel kernel, const Tensor& x) {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, kernel));
    if (built.sharedSizeBytes > 0) return true;
    if (attribute(cudaDevAttrComputeCapabilityMajor, x) == 9)
        TORCH_WARN_ONCE("flash_attention: built without sm_90a, so without wgmma; pass "
                        "nvcc -gencode=arch=compute_90a,code=sm_90a");
    return false;
}

// ---- sm_90: kernels

// How forward is cut: CONSUMERS warpgroups of 64 rows each; tiles of KEYS keys go round
// in a ring of SLOTS, of K and of V in turn. Registers are what setmaxnreg deals out.
template <int D, int CONSUMERS> struct ForwardCut {
    static constexpr int ROWS = 64 * CONSUMERS, THREADS = (CONSUMERS + 1) * WARPGROUP;
    static constexpr int KEYS = D == 256 ? 80 : 128;
    static constexpr int Q_BYTES = 64 * D * 2, SLOT = KEYS * D * 2;
    static constexpr int MOST = (225 * 1024 - CONSUMERS * Q_BYTES) / SLOT;
    static constexpr int SLOTS = MOST < 8 ? MOST : 8;
    static constexpr int SHARED = 1024 + CONSUMERS * Q_BYTES + SLOTS * SLOT;
    static constexpr int REGISTERS = CONSUMERS == 2 ? 232 : 160;
    static constexpr int OTHERS = CONSUMERS == 2 ? 40 : 32;  // of the producer
};

// What a block works at in one of its turns: rows of a head from first_row on, which
// see keys in `tiles` tiles from first_key on.
struct Work {
    int turn = 0, head, first_row, first_key, tiles;
};

// What the warps of a block tell each other by: the state of slots, and of what each of
// the consumers has of q.
template <typename C, int CONSUMERS> struct Shared {
    FlashBarrier full[C::SLOTS], empty[C::SLOTS];
    FlashBarrier q_full[CONSUMERS], q_empty[CONSUMERS];
};

// The next of a block's works; false: there is none. All are dealt out before, so that
// blocks that run at about a time read the same heads, and every block does as much: of
// causal heads rows that see many keys go together with rows that see few. Where works
// are few those with most keys come first, every second round backwards.
template <typename C>
__device__ bool find_work(Work& work, const Call& call, int heads) {
    int rows = call.group * call.S_q, blocks = (rows - 1) / C::ROWS + 1, block;
    int count = heads * blocks, grid = gridDim.x, place = blockIdx.x;
    if (call.causal && count >= 4 * grid) {
        int pairs = (blocks + 1) / 2, pair = place + work.turn / 2 * grid;
        if (work.turn % 2 && pair % pairs * 2 == blocks - 1)  // the middle one, alone
            pair += grid, work.turn++;
        if (pair >= heads * pairs) return false;
        work.head = pair / pairs;
        block = work.turn % 2 ? pair % pairs : blocks - 1 - pair % pairs;
    } else {
        if (work.turn % 2) place = grid - 1 - place;
        int i = place + work.turn * grid;
        if (i >= count) return false;
        work.head = call.causal ? i % heads : i / blocks;
        block = call.causal ? blocks - 1 - i / heads : i % blocks;
    }
    work.turn++;
    work.first_row = block * C::ROWS;
    int last_row = min(work.first_row + C::ROWS, rows) - 1;
    int2 keys = Sight(call, work.head).keys_of(work.first_row, last_row);
    work.first_key = keys.x;
    work.tiles = tiles_of(keys.y - keys.x, C::KEYS);
    return true;
}

// One thread of the block: brings tile after tile, as soon as a slot is empty. Blocks
// of a head go through its keys from the first on at about the same time: L2 has them.
template <int D, int CONSUMERS, typename Shared>
__device__ void bring(unsigned memory, Shared& shared, const CUtensorMap& q_map,
                      const CUtensorMap& k_map, const CUtensorMap& v_map,
                      const Call& call, int heads) {
    using C = ForwardCut<D, CONSUMERS>;
    FlashTurn turn;
    int q_phase = 0;
    auto load = [&](const CUtensorMap& map, int key, int head) {
        FlashBarrier& full = shared.full[turn.stage];
        shared.empty[turn.stage].wait(turn.phase ^ 1);
        full.arrive_and_expect(C::SLOT);
        unsigned to = memory + CONSUMERS * C::Q_BYTES + turn.stage * C::SLOT;
        for (int d = 0; d < D; d += 64, to += C::KEYS * LINE)
            load_box(to, map, full, d, key, head);
        turn.next(C::SLOTS);
    };
    for (Work work; find_work<C>(work, call, heads);) {
        if (work.tiles == 0) continue;
#pragma unroll 1  // registers are few here
        for (int tile = 0; tile <= work.tiles; tile++) {
            int key = work.first_key + tile * C::KEYS;
            if (tile < work.tiles) load(k_map, key, work.head);
            if (tile > 0) {
                load(v_map, key - C::KEYS, work.head);
                continue;
            }
#pragma unroll 1
            for (int c = 0; c < CONSUMERS; c++) {
                shared.q_empty[c].wait(q_phase ^ 1);
                shared.q_full[c].arrive_and_expect(C::Q_BYTES);
                for (int d = 0; d < D; d += 64)
                    load_box(memory + c * C::Q_BYTES + d * LINE, q_map,
                             shared.q_full[c], d, work.first_row + c * 64, work.head);
            }
            q_phase ^= 1;
        }
    }
}

// A warpgroup: 64 rows of each work. The products of the weights of some keys with V
// and those that give the scores of the next keys are started together; and of the
// consumers one after the other starts its products, so that the others' softmax goes
// on meanwhile.
template <int D, int CONSUMERS, typename T, typename Shared>
__device__ void consume(T* out, float* lse, unsigned memory, Shared& shared,
                        const Call& call, int heads) {
    using C = ForwardCut<D, CONSUMERS>;
    constexpr int KEYS = C::KEYS;
    int group = threadIdx.x / WARPGROUP, lane = threadIdx.x % 32;
    int rows = call.group * call.S_q;
    unsigned slots = memory + CONSUMERS * C::Q_BYTES;
    uint64_t q_at = describe<true, 64>(memory + group * C::Q_BYTES);
    uint64_t k_at = describe<true, KEYS>(slots), v_at = describe<false, KEYS>(slots);
    float scale = LOG2_E * rsqrtf(call.D);
    FlashTurn turn;
    int q_phase = 0;
    float o[D / 2], s[KEYS / 2], row_max[2] = {}, row_sum[2] = {};
    float shift[2], shrink[2];
    unsigned p[KEYS / 4];
    auto take = [&] {  // the next slot, as soon as it is full
        int slot = turn.stage;
        shared.full[slot].wait(turn.phase);
        turn.next(C::SLOTS);
        return slot;
    };
    auto multiply_keys = [&](int slot) {
        uint64_t at = k_at + slot * (C::SLOT / 16);
        begin_products();
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma<T, true, true>(s, q_at + (k / 4 * 64 * LINE + k % 4 * 32) / 16,
                                 at + (k / 4 * KEYS * LINE + k % 4 * 32) / 16, k > 0);
        end_products();
    };
    auto multiply_values = [&](int slot) {
        uint64_t at = v_at + slot * (C::SLOT / 16);
        begin_products();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            wgmma<T, false>(o, p + 4 * k, at + k * LINE, true);
        end_products();
    };
    // behind a length V may hold anything, which a weight of 0 does not make 0: all
    // consumers clear what is left of the next slot
    auto clear_behind = [&](int left) {
        if (left >= KEYS) return;
        shared.full[turn.stage].wait(turn.phase);
        unsigned to = slots + turn.stage * C::SLOT + left * LINE;
        int pieces = (KEYS - left) * (LINE / 16);
        for (int i = threadIdx.x; i < pieces * (D / 64); i += CONSUMERS * WARPGROUP)
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};"
                         :: "r"(to + i / pieces * KEYS * LINE + i % pieces * 16),
                            "r"(0) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, %1;"
                     :: "n"(1 + CONSUMERS), "n"(CONSUMERS * WARPGROUP) : "memory");
    };
    // Online softmax, as above. But row_max stays behind the largest score as long as
    // weights stay below 2^8: then o need not shrink, which it seldom has to.
    auto raise_max = [&](int r) {
        float high = row_max[r], other = s[2 * r + 1];  // two chains: they wait less
#pragma unroll
        for (int i = 0; i < KEYS / 4; i += 2) {
            high = fmaxf(high, s[2 * i + 2 * r]);
            other = fmaxf(other, s[2 * i + 2 * r + 1]);
        }
        high = fmaxf(high, other);
        high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, 1));
        high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, 2));
        bool grows = (high - row_max[r]) * scale > 8.0f;
        if (!grows) high = row_max[r];
        shift[r] = high == -INFINITY ? 0.0f : high * scale;  // not inf - inf
        shrink[r] = power_of_2(fmaf(row_max[r], scale, -shift[r]));
        row_max[r] = high;
        row_sum[r] *= shrink[r];
        return grows;
    };
    auto weigh_keys = [&](int r) {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float& x = s[i / 2 * 4 + 2 * r + i % 2];
            x = power_of_2(fmaf(x, scale, -shift[r]));
            row_sum[r] += x;
        }
    };
    auto pack_weights = [&] {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
    };
    for (Work work; find_work<C>(work, call, heads);) {
        Sight sight(call, work.head);
        int row = work.first_row + group * 64, key = work.first_key;
        int2 of_all = sight.keys_of_all(min(row, rows - 1), min(row + 63, rows - 1));
        row += threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;  // the thread's, and + 8
        auto mask_keys = [&] {  // takes out what the rows must not see
            if (key >= of_all.x && key + KEYS <= of_all.y) return;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int query = (row + 8 * r) % sight.S_q;
                int first = sight.first(query) - key - lane % 4 * 2;
                int end = sight.end(query) - key - lane % 4 * 2;
#pragma unroll
                for (int i = 0; i < KEYS / 4; i++) {
                    int col = i / 2 * 8 + i % 2;
                    if (col < first || col >= end)
                        s[i / 2 * 4 + 2 * r + i % 2] = -INFINITY;
                }
            }
        };
        for (int r = 0; r < 2; r++) row_max[r] = -INFINITY, row_sum[r] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
        if (work.tiles > 0) {
            int slot = take();
            shared.q_full[group].wait(q_phase);
            q_phase ^= 1;
            multiply_keys(slot);
            wait_for_all_but<0>();
            hold(s);
            shared.empty[slot].arrive_by_warp();
            mask_keys();
            for (int r = 0; r < 2; r++) raise_max(r), weigh_keys(r);
            pack_weights();
        }
        for (int tile = 1; tile < work.tiles; tile++) {
            int k_slot = take();
            key += KEYS;
            asm volatile("bar.sync %0, 256;" :: "r"(1 + group) : "memory");
            multiply_keys(k_slot);
            int v_slot = take();
            multiply_values(v_slot);
            asm volatile("bar.arrive %0, 256;"
                         :: "r"(1 + (group + 1) % CONSUMERS) : "memory");
            wait_for_all_but<1>();
            hold(s);
            shared.empty[k_slot].arrive_by_warp();
            mask_keys();
            bool shrinks = raise_max(0) | raise_max(1);
            wait_for_all_but<0>();
            hold(o);
            hold(s);
            shared.empty[v_slot].arrive_by_warp();
            weigh_keys(0), weigh_keys(1);
            pack_weights();
            if (__any_sync(ALL_LANES, shrinks)) {
#pragma unroll
                for (int i = 0; i < D / 2; i++) o[i] *= shrink[i / 2 % 2];
            }
        }
        if (work.tiles > 0) {
            shared.q_empty[group].arrive_by_warp();
            if (sight.length < call.S_kv) clear_behind(sight.length - key);
            int slot = take();
            multiply_values(slot);
            wait_for_all_but<0>();
            hold(o);
            shared.empty[slot].arrive_by_warp();
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = row_sum[r];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // 0: saw nothing
            if (row + 8 * r >= rows) continue;
            int64_t at = int64_t(work.head) * rows + row + 8 * r;
            if (lane % 4 == 0) lse[at] = row_max[r] * rsqrtf(call.D) + logf(sum);
            T* to = out + at * call.D + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                if (n * 8 < call.D)
                    *reinterpret_cast<unsigned*>(to + n * 8) = pack<T>(
                        o[4 * n + 2 * r] * inverse, o[4 * n + 2 * r + 1] * inverse);
        }
    }
}

// out, q: (heads of k, rows, D), k, v: (heads, S_kv, D), lse: (heads, rows). At most as
// many blocks as multiprocessors, of the consumers and, behind them, the producer.
template <typename T, int D, int CONSUMERS>
__global__ void __launch_bounds__(ForwardCut<D, CONSUMERS>::THREADS, 1)
flash_forward_wgmma_kernel(T* out, float* lse,
                           const __grid_constant__ CUtensorMap q_map,
                           const __grid_constant__ CUtensorMap k_map,
                           const __grid_constant__ CUtensorMap v_map, Call call,
                           int heads) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using C = ForwardCut<D, CONSUMERS>;
    __shared__ Shared<C, CONSUMERS> shared;
    extern __shared__ __align__(1024) unsigned char tiles[];
    unsigned memory = (shared_at(tiles) + 1023) / 1024 * 1024;
    if (threadIdx.x == 0) {
        for (int i = 0; i < C::SLOTS; i++) {
            shared.full[i].init(1);
            shared.empty[i].init(4 * CONSUMERS);
        }
        for (int i = 0; i < CONSUMERS; i++) {
            shared.q_full[i].init(1);
            shared.q_empty[i].init(4);
        }
        show_barriers();
    }
    __syncthreads();  // all barriers are there before one is used
    if (threadIdx.x / WARPGROUP == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(C::OTHERS));
        if (threadIdx.x % WARPGROUP == 0)
            bring<D, CONSUMERS>(memory, shared, q_map, k_map, v_map, call, heads);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(C::REGISTERS));
        if (threadIdx.x / WARPGROUP == CONSUMERS - 1)  // the first one's turn
            asm volatile("bar.arrive 1, 256;" ::: "memory");
        consume<D, CONSUMERS>(out, lse, memory, shared, call, heads);
    }
#else
    __trap();  // the launcher sees that it was not built
#endif
}

// backward, in one kernel

constexpr int WG_KEYS = 128;  // keys of a block: 64 of each consumer warpgroup

// How backward is cut for D. A stage holds a tile of q, one of dout, and their stats.
template <int D> struct BackwardCut {
    static constexpr int QUERIES = 8192 / D, STAGES = 2;  // queries: 64 or 128
    static constexpr int KEY_BOX = WG_KEYS * LINE, KEY_TILE = WG_KEYS * D * 2;
    static constexpr int BOX = QUERIES * LINE, TILE = QUERIES * D * 2;
    static constexpr int DS = WG_KEYS * QUERIES * 2, STATS = QUERIES * 8;
    static constexpr int SHARED =
        1024 + 2 * KEY_TILE + 2 * DS + STAGES * (2 * TILE + STATS);
};

// What a block does: tiles first_tile to first_tile + turns - 1 of queries, of each
// head that shares its keys.
struct KeysWork {
    int64_t head;
    int first_key, first_tile, turns;

    __device__ KeysWork(const Call& call, int queries) {
        int blocks = (call.S_kv - 1) / WG_KEYS + 1;
        head = blockIdx.x / blocks;
        first_key = blockIdx.x % blocks * WG_KEYS;
        Sight sight(call, head);
        int last = min(first_key + WG_KEYS, sight.length) - 1;
        first_tile = sight.first_query(first_key) / queries;
        turns = last < first_key
            ? 0 : max(0, tiles_of(sight.end_query(last), queries) - first_tile);
    }
};

// One thread: brings keys, and tile by tile of queries as soon as a stage is empty.
template <int D>
__device__ void bring_tiles(unsigned memory, FlashBarrier& keys, FlashBarrier* full,
                            FlashBarrier* empty, const CUtensorMap& q_map,
                            const CUtensorMap& k_map, const CUtensorMap& v_map,
                            const CUtensorMap& dout_map, const float2* stats,
                            const KeysWork& work, const Call& call, int tiles) {
    using C = BackwardCut<D>;
    keys.arrive_and_expect(2 * C::KEY_TILE);
    for (int i = 0; i < D / 64; i++) {
        load_box(memory + i * C::KEY_BOX, k_map, keys, i * 64, work.first_key,
                 work.head);
        load_box(memory + C::KEY_TILE + i * C::KEY_BOX, v_map, keys, i * 64,
                 work.first_key, work.head);
    }
    unsigned stages = memory + 2 * C::KEY_TILE + 2 * C::DS;
    unsigned all_stats = stages + C::STAGES * 2 * C::TILE;
    FlashTurn ring;
    for (int g = 0; g < call.group; g++)
#pragma unroll 1
        for (int t = 0; t < work.turns; t++, ring.next(C::STAGES)) {
            int head = work.head * call.group + g, tile = work.first_tile + t;
            FlashBarrier& ready = full[ring.stage];
            empty[ring.stage].wait(ring.phase ^ 1);
            ready.arrive_and_expect(2 * C::TILE + C::STATS);
            unsigned to = stages + ring.stage * 2 * C::TILE;
            for (int i = 0; i < D / 64; i++)
                load_box(to + i * C::BOX, q_map, ready, i * 64, tile * C::QUERIES,
                         head);
            load_bytes(all_stats + ring.stage * C::STATS,
                       stats + (int64_t(head) * tiles + tile) * C::QUERIES, ready,
                       C::STATS);
            for (int i = 0; i < D / 64; i++)
                load_box(to + C::TILE + i * C::BOX, dout_map, ready, i * 64,
                         tile * C::QUERIES, head);
        }
}

// 64 keys by 2 COUNT queries: element 4 j + 2 h + e of a lane is key lane / 4 + 8 h of
// the warp's 16, query 8 j + lane % 4 * 2 + e. Zeros where a query does not see a key;
// seen: the queries that see the lane's two keys, from x to y - 1.
template <int COUNT>
__device__ void clear_unseen(float (&x)[COUNT], const int2 (&seen)[2], int first) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int begin = seen[h].x - first - int(threadIdx.x % 4 * 2);
        int end = seen[h].y - first - int(threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            int query = i / 2 * 8 + i % 2;
            if (query < begin || query >= end) x[i / 2 * 4 + 2 * h + i % 2] = 0.0f;
        }
    }
}

// lse and delta of two queries, from shared memory
static __device__ float4 load_stats(unsigned at) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(at));
    return x;
}

// scores become p; stats: those of the lane's first query
template <int COUNT>
__device__ void weights(float (&s)[COUNT], unsigned stats, float scale) {
#pragma unroll
    for (int j = 0; j < COUNT / 4; j++) {
        float4 two = load_stats(stats + 64 * j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[4 * j + i] = power_of_2(fmaf(s[4 * j + i], scale,
                                           i % 2 ? -two.z : -two.x));
    }
}

// a number of a half type, the lower or upper half of a register
template <typename T> __device__ float unpack(unsigned both, int upper) {
    if constexpr (std::is_same_v<T, at::BFloat16>)
        return __uint_as_float(upper ? both & 0xffff0000 : both << 16);
    float x;
    asm("{ .reg .b16 low, high;\n mov.b32 {low, high}, %1;\n"
        "cvt.f32.f16 %0, low; }" : "=f"(x) : "r"(upper ? both >> 16 : both));
    return x;
}

// dp becomes ds
template <typename T, int COUNT>
__device__ void differences(float (&dp)[COUNT], const unsigned (&p)[COUNT / 2],
                            unsigned stats) {
#pragma unroll
    for (int j = 0; j < COUNT / 4; j++) {
        float4 two = load_stats(stats + 64 * j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[4 * j + i] = unpack<T>(p[2 * j + i / 2], i % 2) *
                            (dp[4 * j + i] - (i % 2 ? two.w : two.y));
    }
}

// sums as a left factor: four registers for each 16 columns
template <typename T, int COUNT>
__device__ void pack_sums(unsigned (&a)[COUNT / 2], const float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) a[i] = pack<T>(sums[2 * i], sums[2 * i + 1]);
}

// keys by queries, to rows of keys: boxes of 64 queries, swizzled
template <int COUNT>
__device__ void store_packed(unsigned to, const unsigned (&a)[COUNT]) {
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        int piece = 2 * i + threadIdx.x % 32 / 16;
        unsigned at = to + piece / 8 * (WG_KEYS * LINE) + row * LINE +
                      ((piece % 8) ^ row % 8) * 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :: "r"(at), "r"(a[4 * i]), "r"(a[4 * i + 1]), "r"(a[4 * i + 2]),
                        "r"(a[4 * i + 3]) : "memory");
    }
}

// where wgmma finds what is so many bytes further
static __device__ uint64_t moved(uint64_t described, int bytes) {
    return described + (bytes >> 4);
}

// d = 64 rows of a times rows of b, over D columns: tiles of A_ROWS and B_ROWS rows
template <typename T, int D, int A_ROWS, int B_ROWS, int COUNT>
__device__ void multiply_rows(float (&d)[COUNT], uint64_t a, uint64_t b) {
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        wgmma<T, true, true>(d, moved(a, k / 4 * A_ROWS * LINE + k % 4 * 32),
                             moved(b, k / 4 * B_ROWS * LINE + k % 4 * 32), k > 0);
}

// d += a, in registers, times ROWS rows of a tile
template <typename T, int ROWS, int COUNT>
__device__ void add_products(float (&d)[COUNT], const unsigned (&a)[ROWS / 4],
                             uint64_t b) {
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++)
        wgmma<T, false>(d, a + 4 * k, moved(b, k * 16 * LINE), true);
}

// 64 rows of sums to rows of `columns` numbers, of which `rows` are left
template <typename T, int COUNT>
__device__ void store_rows(T* out, const float (&sums)[COUNT], float factor, int rows,
                           int columns) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = warp * 16 + lane / 4 + h * 8;
        T* to = out + int64_t(row) * columns + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < COUNT / 4; j++)
            if (row < rows && j * 8 < columns)
                *reinterpret_cast<unsigned*>(to + j * 8) =
                    pack<T>(sums[4 * j + 2 * h] * factor,
                            sums[4 * j + 2 * h + 1] * factor);
    }
}

// what all consumers have written to shared memory, to wgmma
static __device__ void show_to_tensor_cores() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 256;" ::: "memory");
}

// Zeros in the tile of k behind the first `left` keys: what lies there may be anything,
// and 0 times that, in dq, need not be 0.
template <int D> __device__ void clear_keys(unsigned char* k_tile, int left) {
    if (left >= WG_KEYS) return;
    for (int i = threadIdx.x; i < BackwardCut<D>::KEY_TILE / 16; i += 2 * WARPGROUP)
        if (i * 16 / LINE % WG_KEYS >= left)
            reinterpret_cast<uint4*>(k_tile)[i] = make_uint4(0, 0, 0, 0);
    show_to_tensor_cores();
}

// A consumer warpgroup: 64 keys of the block. Each tile: s = k q^T, dp = v dout^T, both
// keys by queries, so that p and ds are left factors of dv and dk as they are. ds goes
// through shared memory, for dq = ds k, of which a warpgroup has 64 rows or 64 columns.
// While it computes, products that were started before go on: dp during p, dv during
// ds, dk while dq is added. Where registers allow, at D 128, the next tile's s goes on
// there too.
template <typename T, int D>
__device__ void go_through_tiles(T* dk, T* dv, float4* dq_sums, unsigned memory,
                                 unsigned char* k_memory, FlashBarrier& keys,
                                 FlashBarrier* full, FlashBarrier* empty,
                                 const KeysWork& work, const Call& call, int tiles) {
    using C = BackwardCut<D>;
    constexpr int COUNT = C::QUERIES / 2;
    int group = __shfl_sync(ALL_LANES, threadIdx.x / WARPGROUP, 0);  // one of the warp
    int lane = threadIdx.x % 32, key = work.first_key + group * 64;
    Sight sight(call, work.head);
    unsigned k_tile = memory, v_tile = k_tile + C::KEY_TILE;
    unsigned ds_tiles = v_tile + C::KEY_TILE, stages = ds_tiles + 2 * C::DS;
    unsigned all_stats = stages + C::STAGES * 2 * C::TILE + threadIdx.x % 4 * 16;
    auto k_rows = describe<true, WG_KEYS>(k_tile + group * 64 * LINE);
    auto v_rows = describe<true, WG_KEYS>(v_tile + group * 64 * LINE);
    float scale = rsqrtf(call.D);
    int2 seen[2];  // queries that see the lane's keys
    for (int h = 0; h < 2; h++) {
        int own = key + threadIdx.x / 32 % 4 * 16 + lane / 4 + h * 8;
        seen[h] = make_int2(sight.first_query(own),
                            own < sight.length ? sight.end_query(own) : 0);
    }
    float dk_sums[D / 2] = {}, dv_sums[D / 2] = {};
    int total = work.turns * call.group, tile = work.first_tile;
    int64_t row = work.head * call.group * tiles;  // of tiles, of the head of q
    if (total > 0) {
        keys.wait(0);
        clear_keys<D>(k_memory, sight.length - work.first_key);
    }
    constexpr bool EARLY = D == 128;  // s is there when its turn begins
    FlashTurn ring;
    float s[COUNT];
    auto multiply_scores = [&](FlashTurn at) {
        full[at.stage].wait(at.phase);
        begin_products();
        multiply_rows<T, D, WG_KEYS, C::QUERIES>(
            s, k_rows, describe<true, C::QUERIES>(stages + at.stage * 2 * C::TILE));
        end_products();
    };
    if (EARLY && total > 0) {
        multiply_scores(ring);
        wait_for_all_but<0>();
    }
#pragma unroll 1
    for (int i = 0; i < total; i++) {
        unsigned q_tile = stages + ring.stage * 2 * C::TILE;
        unsigned dout_tile = q_tile + C::TILE;
        unsigned stats = all_stats + ring.stage * C::STATS;
        int first = tile * C::QUERIES;
        bool all_seen = key + 64 <= sight.end(first) &&
                        key >= sight.first(first + C::QUERIES - 1);
        float dp[COUNT], dq[32];
        unsigned p[COUNT / 2], ds[COUNT / 2];
        if (!EARLY) multiply_scores(ring);
        begin_products();
        multiply_rows<T, D, WG_KEYS, C::QUERIES>(dp, v_rows,
                                                 describe<true, C::QUERIES>(dout_tile));
        end_products();
        if (!EARLY) wait_for_all_but<1>();
        hold(s);
        weights(s, stats, scale * LOG2_E);
        if (!all_seen) clear_unseen(s, seen, first);
        pack_sums<T>(p, s);
        begin_products();
        add_products<T, C::QUERIES>(dv_sums, p, describe<false, C::QUERIES>(dout_tile));
        end_products();
        wait_for_all_but<1>();
        hold(dp);
        differences<T>(dp, p, stats);
        if (!all_seen) clear_unseen(dp, seen, first);
        pack_sums<T>(ds, dp);
        unsigned ds_tile = ds_tiles + i % 2 * C::DS;
        store_packed(ds_tile, ds);
        wait_for_all_but<0>();
        hold(p);
        show_to_tensor_cores();  // ds of both warpgroups
        begin_products();
        auto left = describe<false, WG_KEYS>(ds_tile +
                                             (D == 64 ? group * WG_KEYS * LINE : 0));
        auto right = describe<false, WG_KEYS>(k_tile +
                                              (D == 64 ? 0 : group * C::KEY_BOX));
#pragma unroll
        for (int k = 0; k < WG_KEYS / 16; k++)
            wgmma<T, false, false>(dq, moved(left, k * 16 * LINE),
                                   moved(right, k * 16 * LINE), k > 0);
        end_products();
        FlashTurn next = ring;
        if (i + 1 < total) next.next(C::STAGES);  // else again, for nobody
        if (EARLY) multiply_scores(next);
        begin_products();
        add_products<T, C::QUERIES>(dk_sums, ds, describe<false, C::QUERIES>(q_tile));
        end_products();
        wait_for_all_but<EARLY ? 2 : 1>();
        hold(dq);
        float4* to = dq_sums + ((row + tile) * 2 + group) * 8 * WARPGROUP +
                     threadIdx.x % WARPGROUP;
#pragma unroll
        for (int j = 0; j < 8; j++) add_four(to + j * WARPGROUP, dq + 4 * j);
        wait_for_all_but<0>();
        hold(ds);
        if (EARLY) hold(s);
        if (threadIdx.x % WARPGROUP == 0) empty[ring.stage].arrive();
        ring = next;
        if (++tile == work.first_tile + work.turns)
            tile = work.first_tile, row += tiles;
    }
    hold(dk_sums);
    hold(dv_sums);
    int64_t at = (work.head * call.S_kv + key) * call.D;
    store_rows<T>(dk + at, dk_sums, scale, call.S_kv - key, call.D);
    store_rows<T>(dv + at, dv_sums, 1.0f, call.S_kv - key, call.D);
}

// dk, dv: (heads, S_kv, D), dq_sums: zeros, see flash_dq_kernel, stats: (heads of q,
// tiles, QUERIES). Two consumer warpgroups and a producer.
template <typename T, int D>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
flash_backward_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                            const __grid_constant__ CUtensorMap k_map,
                            const __grid_constant__ CUtensorMap v_map,
                            const __grid_constant__ CUtensorMap dout_map, T* dk, T* dv,
                            float4* dq_sums, const float2* stats, Call call,
                            int tiles) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using C = BackwardCut<D>;
    __shared__ FlashBarrier keys, full[C::STAGES], empty[C::STAGES];
    extern __shared__ __align__(1024) unsigned char tiles_memory[];
    unsigned begin = shared_at(tiles_memory), memory = (begin + 1023) / 1024 * 1024;
    if (threadIdx.x == 0) {
        keys.init(1);
        for (int s = 0; s < C::STAGES; s++) full[s].init(1), empty[s].init(2);
        show_barriers();
    }
    __syncthreads();  // all barriers are there before one is used
    KeysWork work(call, C::QUERIES);
    if (threadIdx.x >= 2 * WARPGROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 2 * WARPGROUP && work.turns > 0)
            bring_tiles<D>(memory, keys, full, empty, q_map, k_map, v_map, dout_map,
                           stats, work, call, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        go_through_tiles<T, D>(dk, dv, dq_sums, memory, tiles_memory + (memory - begin),
                               keys, full, empty, work, call, tiles);
    }
#else
    __trap();  // the launcher sees that it was not built
#endif
}

// dq: (heads of q, S_q, D) from its sums, (heads of q, tiles, 2, 8, WARPGROUP) fours:
// those of the threads of the two warpgroups, as wgmma left them, scaled on the way. A
// block takes a tile, through shared memory to write whole rows.
template <typename T, int D>
__global__ void __launch_bounds__(2 * WARPGROUP)
flash_dq_kernel(T* dq, const float4* sums, Call call, int tiles) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int QUERIES = BackwardCut<D>::QUERIES, PIECES = D / 8;  // of 16 bytes
    __shared__ __align__(16) T rows[QUERIES][D + 8];
    int group = threadIdx.x / WARPGROUP, lane = threadIdx.x % 32;
    int row = (D == 64 ? group * 64 : 0) + threadIdx.x / 32 % 4 * 16 + lane / 4;
    int column = (D == 64 ? 0 : group * 64) + lane % 4 * 2;
    sums += (int64_t(blockIdx.x) * 2 + group) * 8 * WARPGROUP +
            threadIdx.x % WARPGROUP;
    float scale = rsqrtf(call.D);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float4 four = sums[j * WARPGROUP];
        *reinterpret_cast<unsigned*>(&rows[row][column + j * 8]) =
            pack<T>(four.x * scale, four.y * scale);
        *reinterpret_cast<unsigned*>(&rows[row + 8][column + j * 8]) =
            pack<T>(four.z * scale, four.w * scale);
    }
    __syncthreads();  // the rows are complete
    int first = blockIdx.x % tiles * QUERIES;
    dq += (int64_t(blockIdx.x / tiles) * call.S_q + first) * call.D;
#pragma unroll
    for (int i = threadIdx.x; i < QUERIES * PIECES; i += 2 * WARPGROUP) {
        int r = i / PIECES, c = i % PIECES * 8;
        if (first + r < call.S_q && c < call.D)
            *reinterpret_cast<uint4*>(dq + r * call.D + c) =
                *reinterpret_cast<const uint4*>(&rows[r][c]);
    }
#else
    __trap();  // as above
#endif
}
#endif

// ------------------------------------------------------------------ launchers

constexpr int64_t LONGEST = 1 << 29;  // so that sums of three places are ints

// x has to be contiguous, of this type and shape (-1: any size), on the GPU of q
static void check_input(const char* name, Tensor x, torch::ScalarType type,
                        torch::IntArrayRef shape, Tensor q) {
    bool fits = x.dim() == int64_t(shape.size());
    for (int64_t i = 0; fits && i < x.dim(); i++)
        fits = shape[i] == -1 ? x.size(i) <= LONGEST : x.size(i) == shape[i];
    TORCH_CHECK(fits && x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                x.device() == q.device(), name, ": expected contiguous ", type, " on ",
                q.device(), ", a CUDA device, shape ", shape, " (-1: any up to 2^29), "
                "got ", x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

static Call checked_call(const char* function, Tensor q, Tensor k, Tensor v,
                         std::optional<Tensor> lengths, bool causal, bool lower_right,
                         int64_t window) {
    auto type = q.scalar_type();
    TORCH_CHECK(k.scalar_type() == type && v.scalar_type() == type, function,
                ": expected q, k and v of one type, got ", type, ", ", k.scalar_type(),
                ", ", v.scalar_type());
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && q.dim() == 4 && q.size(3) >= 1 && q.size(3) <= 256,
                "q: expected float32, float16 or bfloat16, shape (B, H, S_q, D), D "
                "from 1 to 256, got ", type, ", shape ", q.sizes());
    int64_t B = q.size(0), H = q.size(1), D = q.size(3);
    check_input("q", q, type, {B, H, -1, D}, q);
    check_input("k", k, type, {B, -1, -1, D}, q);
    int64_t H_kv = k.size(1), S_kv = k.size(2);
    TORCH_CHECK(H_kv ? H % H_kv == 0 : H == 0, "k: expected H_kv heads, of which the ",
                H, " heads of q are a multiple, got ", H_kv);
    check_input("v", v, type, {B, H_kv, S_kv, D}, q);
    if (lengths) check_input("lengths", *lengths, torch::kInt32, {B}, q);
    TORCH_CHECK(window >= 0, "window: expected a number of keys, 0 for none, got ",
                window);
    int64_t group = H_kv ? H / H_kv : 0;
    TORCH_CHECK(group * q.size(2) <= LONGEST, "q: expected up to 2^29 rows that share "
                "keys, got ", group, " heads of ", q.size(2));
    return {lengths ? lengths->data_ptr<int>() : nullptr, int(H_kv), int(group),
            int(q.size(2)), int(S_kv), int(D), int(std::min(window, LONGEST)),
            causal || window > 0, lower_right};
}

template <typename F> static void with_type(Tensor x, F f) {  // f(an element's zero)
    if (x.scalar_type() == torch::kFloat32) f(float());
    else if (x.scalar_type() == torch::kFloat16) f(at::Half());
    else f(at::BFloat16());
}

template <typename F> static void with_columns(int D, F f) {  // f(D_MAX)
    if (D <= 64) f(std::integral_constant<int, 64>());
    else if (D <= 128) f(std::integral_constant<int, 128>());
    else f(std::integral_constant<int, 256>());
}

// Whether rows can be copied by 16 bytes, which are 8 numbers of a half type.
static bool fit_pieces(const Call& call, std::initializer_list<Tensor> copied) {
    bool aligned = call.D % 8 == 0;
    for (const Tensor& x : copied)
        aligned = aligned && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
    return aligned;
}

// Whether what was built has mma, and rows can be copied by 16 bytes.
template <typename T>
static bool takes_mma(const Call& call, std::initializer_list<Tensor> copied) {
    if constexpr (sizeof(T) == 2) {
        cudaFuncAttributes built;  // what for, which may be less than what the GPU can
        C10_CUDA_CHECK(cudaFuncGetAttributes(
            &built, flash_backward_queries_mma_kernel<T, 64>));
        return built.ptxVersion >= 80 && call.D <= 128 && fit_pieces(call, copied);
    }
    return false;
}

static int grid_of(int64_t heads, int64_t rows, int per_block, int splits = 1) {
    int64_t grid = heads * ((rows - 1) / per_block + 1) * splits;
    TORCH_CHECK(grid <= INT_MAX, "q: expected up to 2^31 blocks of ", per_block,
                " rows, got ", grid);
    return grid;
}

template <typename Kernel> static void allow_bytes(Kernel kernel, int bytes) {
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// Into how many parts the keys are split. Of more than 16 queries a head: one. Else as
// many as give each multiprocessor `wanted` blocks, which then wait for memory at the
// same time, but of no less than two tiles of keys, so that what the parts write for
// combine is little beside the keys. No more than are filled by tiles of all keys.
static int splits_for(int64_t blocks, int wanted, const Call& call, int tile, int sms) {
    if (call.S_q > 16) return 1;
    int64_t most = std::max(1, call.S_kv / (2 * tile));
    int64_t splits =
        std::min(most, std::max(int64_t(1), int64_t(wanted) * sms / blocks));
    int64_t tiles = (call.S_kv - 1) / tile + 1, each = (tiles - 1) / splits + 1;
    return (tiles - 1) / each + 1;
}

// f(out, lse, parts, splits) launches; with several parts they are combined behind it
template <typename T, typename F>
static void split_and_combine(Tensor out, Tensor lse, int splits, F f) {
    if (splits == 1) return f(lse.data_ptr<float>(), nullptr);
    int64_t rows = lse.numel(), D = out.size(3);
    Tensor part_lse = torch::empty({splits, rows}, lse.options());
    Tensor parts = torch::empty({splits, rows, D}, lse.options());
    f(part_lse.data_ptr<float>(), parts.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    cudaLaunchAttribute early = {};  // begins early, and waits, where it knows how to
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, flash_combine_kernel<T>));
    cudaLaunchConfig_t config = {};
    config.gridDim = grid_of(1, rows, 1);
    config.blockDim = 32 * COMBINE_WARPS;
    config.stream = getCurrentCUDAStream();
    config.attrs = &early;
    config.numAttrs = built.ptxVersion >= 90;
    C10_CUDA_CHECK(cudaLaunchKernelEx(
        &config, flash_combine_kernel<T>, out.data_ptr<T>(), lse.data_ptr<float>(),
        static_cast<const float*>(parts.data_ptr<float>()),
        static_cast<const float*>(part_lse.data_ptr<float>()), rows, int(D), splits));
}

template <typename T, int D, int MT, int WARPS>
static void forward_mma(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Call call,
                        int sms) {
    constexpr int ROWS = 16 * MT * WARPS, BYTES = (ROWS + 2 * KEYS<D>) * D * 2;
    int64_t heads = k.size(0) * k.size(1), rows = call.group * call.S_q;
    int wanted = WARPS == 1 ? 4 : 2;
    int splits = splits_for(grid_of(heads, rows, ROWS), wanted, call, KEYS<D>, sms);
    auto kernel = flash_forward_mma_kernel<T, D, MT, WARPS>;
    allow_bytes(kernel, BYTES);
    split_and_combine<T>(out, lse, splits, [&](float* lse_to, float* parts) {
        kernel<<<grid_of(heads, rows, ROWS, splits), 32 * WARPS, BYTES,
                 getCurrentCUDAStream()>>>(
            out.data_ptr<T>(), lse_to, parts, q.data_ptr<T>(), k.data_ptr<T>(),
            v.data_ptr<T>(), call, splits);
    });
}

#ifdef __CUDACC_VER_MAJOR__
// Whether it did: in a build with wgmma. Three consumers are faster where all rows see
// as many keys; where they do not, the 64 of two leave less undone.
template <typename T, int D, int CONSUMERS>
static bool forward_wgmma(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                          Call call) {
    using C = ForwardCut<D, CONSUMERS>;
    auto kernel = flash_forward_wgmma_kernel<T, D, CONSUMERS>;
    if (!has_wgmma(kernel, q)) return false;
    int64_t heads = k.size(0) * k.size(1), rows = call.group * call.S_q;
    int blocks = std::min(grid_of(heads, rows, C::ROWS),
                          attribute(cudaDevAttrMultiProcessorCount, q));
    allow_bytes(kernel, C::SHARED);
    kernel<<<blocks, C::THREADS, C::SHARED, getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), lse.data_ptr<float>(),
        map_of<T>(q, heads, rows, call.D, 64),
        map_of<T>(k, heads, call.S_kv, call.D, C::KEYS),
        map_of<T>(v, heads, call.S_kv, call.D, C::KEYS), call, heads);
    return true;
}
#endif

template <typename T>
static void forward(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Call call) {
    int sms = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount,
                                          q.get_device()));
#ifdef __CUDACC_VER_MAJOR__
    if constexpr (sizeof(T) == 2)
        if (call.S_q > 16 && fit_pieces(call, {q, k, v})) {
            auto run = call.D > 128  ? forward_wgmma<T, 256, 2>
                     : call.D > 64   ? forward_wgmma<T, 128, 2>
                     : call.causal   ? forward_wgmma<T, 64, 2>
                                     : forward_wgmma<T, 64, 3>;
            if (run(out, lse, q, k, v, call)) return;
        }
#endif
    if constexpr (sizeof(T) == 2)
        if (takes_mma<T>(call, {q, k, v})) {
            bool few = call.S_q <= 16 && call.group * call.S_q <= 32;
            auto run = call.D <= 64 ? few ? forward_mma<T, 64, 1, 1>
                                          : forward_mma<T, 64, 2, 4>
                                    : few ? forward_mma<T, 128, 1, 1>
                                          : forward_mma<T, 128, 2, 4>;
            return run(out, lse, q, k, v, call, sms);
        }
    with_columns(call.D, [&](auto columns) {
        constexpr int D_MAX = columns;
        int64_t heads = k.size(0) * k.size(1), rows = call.group * call.S_q;
        int64_t blocks = grid_of(heads, rows, PLAIN_ROWS<D_MAX>);
        int splits = splits_for(blocks, 4, call, 4 * PLAIN_TILE, sms);
        split_and_combine<T>(out, lse, splits, [&](float* lse_to, float* parts) {
            flash_forward_plain_kernel<D_MAX, T>
                <<<grid_of(heads, rows, PLAIN_ROWS<D_MAX>, splits), PLAIN_THREADS, 0,
                   getCurrentCUDAStream()>>>(
                    out.data_ptr<T>(), lse_to, parts, q.data_ptr<T>(), k.data_ptr<T>(),
                    v.data_ptr<T>(), call, splits);
        });
    });
}

std::tuple<Tensor, Tensor> flash_attention_forward(
    Tensor q, Tensor k, Tensor v, std::optional<Tensor> lengths, bool causal,
    bool lower_right, int64_t window) {
    Call call = checked_call("flash_attention_forward", q, k, v, lengths, causal,
                             lower_right, window);
    c10::cuda::CUDAGuard guard(q.device());
    Tensor out = torch::empty_like(q);
    Tensor lse = torch::empty({q.size(0), q.size(1), q.size(2)},
                              q.options().dtype(torch::kFloat32));
    if (q.numel() == 0) return {out, lse};
    if (k.numel() == 0) return {out.zero_(), lse.fill_(-INFINITY)};
    with_type(q, [&](auto zero) {
        forward<decltype(zero)>(out, lse, q, k, v, call);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, lse};
}

// what backward needs of each query: (heads of q, pitch, 2), see flash_stats_kernel
template <typename T, int WIDTH>
static Tensor stats_of(Tensor dout, Tensor out, Tensor lse, int64_t pitch) {
    constexpr int PER_BLOCK = PLAIN_THREADS / (WIDTH == 1 ? 32 : 16);
    int64_t heads = lse.size(0) * lse.size(1), rows = heads * pitch;
    Tensor stats = torch::empty({heads, pitch, 2}, lse.options());
    flash_stats_kernel<T, WIDTH><<<grid_of(1, rows, PER_BLOCK), PLAIN_THREADS, 0,
                                   getCurrentCUDAStream()>>>(
        reinterpret_cast<float2*>(stats.data_ptr<float>()), dout.data_ptr<T>(),
        out.data_ptr<T>(), lse.data_ptr<float>(), rows, lse.size(2), pitch,
        out.size(3));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return stats;
}

template <typename T, int D>
static void backward_mma(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                         Tensor k, Tensor v, Tensor out, Tensor lse, Call call) {
    int64_t heads = k.size(0) * k.size(1), rows = call.group * call.S_q;
    constexpr int OF_KEYS = 64 * KEY_TILES<D>, OF_QUERIES = 64 * QUERY_TILES;
    constexpr int TILES = 4 * BACKWARD_TILE * D * 2;  // two buffers of two
    constexpr int KEY_BYTES = 2 * OF_KEYS * D * 2 + TILES + 2 * BACKWARD_TILE * 8;
    constexpr int QUERY_BYTES = 2 * OF_QUERIES * D * 2 + TILES;
    Tensor scratch = stats_of<T, 8>(dout, out, lse, call.S_q);
    auto stats = reinterpret_cast<const float2*>(scratch.data_ptr<float>());
    auto of_keys = flash_backward_keys_mma_kernel<T, D>;
    auto of_queries = flash_backward_queries_mma_kernel<T, D>;
    allow_bytes(of_keys, KEY_BYTES);
    allow_bytes(of_queries, QUERY_BYTES);
    of_keys<<<grid_of(heads, call.S_kv, OF_KEYS), BACKWARD_THREADS, KEY_BYTES,
              getCurrentCUDAStream()>>>(
        dk.data_ptr<T>(), dv.data_ptr<T>(), q.data_ptr<T>(), k.data_ptr<T>(),
        v.data_ptr<T>(), dout.data_ptr<T>(), stats, call);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    of_queries<<<grid_of(heads, rows, OF_QUERIES), BACKWARD_THREADS, QUERY_BYTES,
                 getCurrentCUDAStream()>>>(
        dq.data_ptr<T>(), q.data_ptr<T>(), k.data_ptr<T>(), v.data_ptr<T>(),
        dout.data_ptr<T>(), stats, call);
}

#ifdef __CUDACC_VER_MAJOR__
template <typename T, int D>
static void backward_wgmma(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                           Tensor k, Tensor v, Tensor out, Tensor lse, Call call) {
    using C = BackwardCut<D>;
    int64_t heads = k.size(0) * k.size(1), q_heads = q.size(0) * q.size(1);
    int tiles = (call.S_q - 1) / C::QUERIES + 1;
    Tensor stats = stats_of<T, 8>(dout, out, lse, int64_t(tiles) * C::QUERIES);
    Tensor dq_sums = torch::zeros({q_heads * tiles, C::QUERIES, D}, lse.options());
    float4* sums = reinterpret_cast<float4*>(dq_sums.data_ptr<float>());
    auto kernel = flash_backward_wgmma_kernel<T, D>;
    allow_bytes(kernel, C::SHARED);
    kernel<<<grid_of(heads, call.S_kv, WG_KEYS), 3 * WARPGROUP, C::SHARED,
             getCurrentCUDAStream()>>>(
        map_of<T>(q, q_heads, call.S_q, call.D, C::QUERIES),
        map_of<T>(k, heads, call.S_kv, call.D, WG_KEYS),
        map_of<T>(v, heads, call.S_kv, call.D, WG_KEYS),
        map_of<T>(dout, q_heads, call.S_q, call.D, C::QUERIES), dk.data_ptr<T>(),
        dv.data_ptr<T>(), sums,
        reinterpret_cast<const float2*>(stats.data_ptr<float>()), call, tiles);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    flash_dq_kernel<T, D><<<grid_of(q_heads, call.S_q, C::QUERIES), 2 * WARPGROUP, 0,
                            getCurrentCUDAStream()>>>(dq.data_ptr<T>(), sums, call,
                                                      tiles);
}
#endif

template <typename T>
static void backward(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k,
                     Tensor v, Tensor out, Tensor lse, Call call) {
    if constexpr (sizeof(T) == 2)
        if (takes_mma<T>(call, {q, k, v, dout, out})) {
            auto run = call.D <= 64 ? backward_mma<T, 64> : backward_mma<T, 128>;
#ifdef __CUDACC_VER_MAJOR__
            if (has_wgmma(flash_backward_wgmma_kernel<T, 64>, q))
                run = call.D <= 64 ? backward_wgmma<T, 64> : backward_wgmma<T, 128>;
#endif
            return run(dq, dk, dv, dout, q, k, v, out, lse, call);
        }
    Tensor scratch = stats_of<T, 1>(dout, out, lse, call.S_q);
    auto stats = reinterpret_cast<const float2*>(scratch.data_ptr<float>());
    with_columns(call.D, [&](auto columns) {
        constexpr int D_MAX = columns, ROWS = PLAIN_ROWS<D_MAX>;
        int64_t heads = k.size(0) * k.size(1), rows = call.group * call.S_q;
        flash_backward_plain_kernel<true, D_MAX, T>
            <<<grid_of(heads, call.S_kv, ROWS), PLAIN_THREADS, 0,
               getCurrentCUDAStream()>>>(
                dk.data_ptr<T>(), dv.data_ptr<T>(), k.data_ptr<T>(), v.data_ptr<T>(),
                q.data_ptr<T>(), dout.data_ptr<T>(), stats, call);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        flash_backward_plain_kernel<false, D_MAX, T>
            <<<grid_of(heads, rows, ROWS), PLAIN_THREADS, 0, getCurrentCUDAStream()>>>(
                dq.data_ptr<T>(), nullptr, q.data_ptr<T>(), dout.data_ptr<T>(),
                k.data_ptr<T>(), v.data_ptr<T>(), stats, call);
    });
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,
    std::optional<Tensor> lengths, bool causal, bool lower_right, int64_t window) {
    auto type = q.scalar_type();
    TORCH_CHECK(dout.scalar_type() == type && out.scalar_type() == type,
                "flash_attention_backward: expected dout, q and out of one type, got ",
                dout.scalar_type(), ", ", type, ", ", out.scalar_type());
    Call call = checked_call("flash_attention_backward", q, k, v, lengths, causal,
                             lower_right, window);
    check_input("dout", dout, type, q.sizes(), q);
    check_input("out", out, type, q.sizes(), q);
    check_input("lse", lse, torch::kFloat32, {q.size(0), q.size(1), q.size(2)}, q);
    c10::cuda::CUDAGuard guard(q.device());
    Tensor dq = torch::empty_like(q), dk = torch::empty_like(k);
    Tensor dv = torch::empty_like(v);
    if (q.numel() == 0 || k.numel() == 0) {
        dq.zero_(), dk.zero_(), dv.zero_();
        return {dq, dk, dv};
    }
    with_type(q, [&](auto zero) {
        backward<decltype(zero)>(dq, dk, dv, dout, q, k, v, out, lse, call);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dq, dk, dv};
}
