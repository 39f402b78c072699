// kernels/quantized_linear.cu
// SPDX-License-Identifier: MIT
// Linear layer whose weights are stored in 8 or 4 bits: out = x @ W^T with W[n, k] =
// q[n, k] * scales[k / 128, n]. x: (B, K), out: (B, N), float16 or bfloat16, made for
// B up to 8 (more in turns of 8); scales: (K / 128 rounded up, N), or (1, N): one a row
// of W; of x's type. weight: int8 (N, K), q itself; or uint8 (N, K / 2), 4 bits each:
// byte j of a row is q[2 j] + 8, plus 16 times q[2 j + 1] + 8. All contiguous, K a
// multiple of 32, N and K up to 2^30. Weights are dequantised in registers, just before
// tensor cores multiply them (w8a16, w4a16); products are exact, added up in float32,
// rounded once. Reads the weights once per 8 rows of x; scratch memory for a copy of
// what does not start at a multiple of 16 bytes. sm_75: float16 only. NaN and infinity
// as in a product with W. Notebook: 15c_four_bits. Own code; 4 bits to floats by
// setting an exponent: Kim et al., "Who Says Elephants Can't Run" (2022).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// quantized_linear = load_inline("quantized_linear",
//     cuda_sources=Path("quantized_linear.cu").read_text(),
//     cpp_sources="torch::Tensor quantized_linear(torch::Tensor x, "
//         "torch::Tensor weight, torch::Tensor scales);",
//     functions=["quantized_linear"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <torch/types.h>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int COLS = 8;        // rows of x at a time: columns of an mma
constexpr int WARP_ROWS = 32;  // rows of the weights per warp: two mma's
constexpr int K_WARPS = 4;     // warps that share these rows, each a part of k
constexpr int LINE = 256;      // bytes of a row in a slice: 64 for each of these warps
constexpr int GROUP = 128;     // weights of a row with one scale
// The pipeline, slice by slice along k. In turn i a block
//   1. waits for slice i: all but the STAGES - 2 newest groups of copies have come;
//   2. passes a barrier: so have all threads' copies, and all have read slice i - 1;
//   3. begins to copy slice i + STAGES - 1 to the stage of slice i - 1;
//   4. unpacks and multiplies slice i, while STAGES - 1 slices are on their way.
// Scales are few and go to registers directly: in turn i those of slice i are used,
// those of i + 1 are there (soon), those of i + 2 are asked for (later), so that a load
// has two turns to come.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int STAGES = 2;  // slices in shared memory: all that sm_75 has room for
#else
constexpr int STAGES = 4;
#endif

static __host__ __device__ int cdiv(int64_t a, int64_t b) {
    return int((a + b - 1) / b);
}

// what depends on the bits of a weight, and on the rows of weights per block
template <int BITS, int ROWS> struct Shape {
    static constexpr int THREADS = ROWS / WARP_ROWS * K_WARPS * 32;
    static constexpr int LANE_K = 128 / BITS;         // weights in 16 bytes
    static constexpr int WARP_K = 4 * LANE_K;         // weights of a row, per warp
    static constexpr int SLICE_K = K_WARPS * WARP_K;  // weights of a row, per slice
    static constexpr int STAGE = ROWS * LINE + COLS * SLICE_K * 2;  // bytes
};

// the swizzled offset of a piece, a chunk of 16 bytes of a row: eight pieces that are
// written or read at once lie in different banks
static __device__ int place(int row, int piece, int row_bytes) {
    return row * row_bytes + (piece ^ piece / 8 % 2 ^ row % 2 * 7) * 16;
}

// 16 bytes from global to shared memory, asynchronously; zeros if they are not inside
static __device__ void copy_piece(char* to, const void* from, bool inside) {
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

static __device__ void wait_for_oldest_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
#endif
}

// float16 1024 or bfloat16 128, twice: their last bit counts 1
template <typename T>
constexpr unsigned MAGIC = std::is_same_v<T, at::Half> ? 0x64006400 : 0x43004300;

// a - b of two pairs of T
template <typename T> __device__ unsigned subtract(unsigned a, unsigned b) {
    constexpr bool HALF = std::is_same_v<T, at::Half>;
    using Pair = std::conditional_t<HALF, __half2, __nv_bfloat162>;
    Pair out = __hsub2(*reinterpret_cast<Pair*>(&a), *reinterpret_cast<Pair*>(&b));
    return *reinterpret_cast<unsigned*>(&out);
}

// x & mask | bits, for which nvcc takes two instructions
static __device__ unsigned set_bits(unsigned x, unsigned mask, unsigned bits) {
    asm("lop3.b32 %0, %0, %1, %2, 0xea;" : "+r"(x) : "r"(mask), "r"(bits));
    return x;
}

// four weights of 8 bits to pairs of T: (0, 2), (1, 3); bit 7 of each counts -128
template <typename T> __device__ void unpack(unsigned (&pairs)[2], unsigned word) {
    for (int i = 0; i < 2; i++)
        pairs[i] = subtract<T>(set_bits(word >> 8 * i, 0x007f007f, MAGIC<T>),
                               set_bits(word >> 8 * i, 0x00800080, MAGIC<T>));
}

// eight weights of 4 bits, plus 8, to pairs of T: (0, 4), (1, 5), (2, 6), (3, 7); of
// float16 every second one stays four bits further on, where it counts 1 behind the
// exponent of 64 (0x5400; 0x5480 is 64 + 8), which saves a shift
template <typename T> __device__ void unpack(unsigned (&pairs)[4], unsigned word) {
    for (int i = 0; i < 4; i++)
        if (std::is_same_v<T, at::Half> && i % 2)
            pairs[i] = subtract<T>(
                set_bits(word >> 4 * (i - 1), 0x00f000f0, 0x54005400), 0x54805480);
        else
            pairs[i] = subtract<T>(set_bits(word >> 4 * i, 0x000f000f, MAGIC<T>),
                                   MAGIC<T> + 0x00080008);
}

// as many neighbours along k of x, paired in the same way
template <int PAIRS> __device__ void pair_as_unpacked(unsigned* x) {
    unsigned first[PAIRS];
    for (int i = 0; i < PAIRS; i++) first[i] = x[i];
    for (int i = 0; i < PAIRS; i++)
        x[i] = __byte_perm(first[i / 2], first[(i + PAIRS) / 2],
                           i % 2 ? 0x7632 : 0x5410);
}

// 16 bytes of shared memory
static __device__ void load(unsigned* to, const char* from) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
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

// A slice to shared memory: LINE bytes of each of the block's rows of weights, which
// begin at `weight`, and the same k of x. What is outside becomes zeros.
template <typename T, int BITS, int ROWS>
__device__ void copy_slice(char* to, const char* weight, const T* x, int slice,
                           int rows_left, int B, int K) {
    using S = Shape<BITS, ROWS>;
    constexpr int PIECES = LINE / 16, X_PIECES = S::SLICE_K / 8;
    constexpr int STEP = S::THREADS / PIECES;  // rows at once: one swizzle for all
    int row_bytes = K / 8 * BITS, row = threadIdx.x / PIECES;
    int piece = threadIdx.x % PIECES, at = slice * LINE + piece * 16;
    const char* from = weight + int64_t(row) * row_bytes + at;
    int left = at < row_bytes ? rows_left - row : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP)
        copy_piece(to + place(row, piece, LINE) + i * LINE,
                   from + int64_t(i) * row_bytes, i < left);
#pragma unroll
    for (int first = 0; first < COLS * X_PIECES; first += S::THREADS) {
        unsigned i = first + threadIdx.x, col = i / X_PIECES, piece = i % X_PIECES;
        int k = (slice * X_PIECES + piece) * 8;
        if (col < COLS)
            copy_piece(to + ROWS * LINE + place(col, piece, X_PIECES * 16),
                       x + int64_t(col) * K + k, col < B && k < K);
    }
}

// The warp's part of a slice, 32 rows of weights times 8 rows of x: lane l has of rows
// l / 4, and 8, 16 and 24 below it, 16 bytes, and of row l / 4 of x what they multiply.
// Which weight is which k of an mma is free, if x agrees: so a lane reads its 16 bytes
// at once, unpacks them in the order that is cheapest, pairs x in the same order, and
// no weight moves from lane to lane. The scale of a group is applied to its sums.
// sums[m][e]: row l / 4 + 16 m + e / 2 * 8, column l % 4 * 2 + e % 2
template <typename T, int BITS, int ROWS>
__device__ void multiply(float (&sums)[2][4], const char* slice,
                         const float (&scale)[4]) {
    constexpr int PIECES = Shape<BITS, ROWS>::LANE_K / 8, PAIRS = 16 / BITS;
    int row = threadIdx.x % 32 / 4, warp_id = threadIdx.x / 32;
    int piece = warp_id % K_WARPS * 4 + threadIdx.x % 4;
    const char* x = slice + ROWS * LINE;
    alignas(16) unsigned a[4][4], b[PIECES * 4];
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        load(b + 4 * i, x + place(row, piece * PIECES + i, K_WARPS * 4 * PIECES * 16));
#pragma unroll
    for (int i = 0; i < 4; i++)
        load(a[i], slice + place(warp_id / K_WARPS * WARP_ROWS + i * 8 + row, piece,
                                 LINE));
    float part[2][4] = {};
#pragma unroll
    for (int word = 0; word < 4; word++) {
        unsigned* pair = b + word * PAIRS;
        pair_as_unpacked<PAIRS>(pair);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            unsigned upper[PAIRS], lower[PAIRS];
            unpack<T>(upper, a[2 * m][word]);
            unpack<T>(lower, a[2 * m + 1][word]);
            for (int i = 0; i < PAIRS; i += 2)
                mma<T>(part[m], upper[i], lower[i], upper[i + 1], lower[i + 1], pair[i],
                       pair[i + 1]);
        }
    }
    for (int i = 0; i < 8; i++) sums[i / 4][i % 4] += scale[i / 2] * part[i / 4][i % 4];
}

// out: (B, N), x: (B, K), weight: (N, K * BITS / 8) bytes, scales: (groups, N); a block
// makes ROWS columns of 8 rows of out
template <typename T, int BITS, int ROWS>
__global__ void __launch_bounds__(Shape<BITS, ROWS>::THREADS)
quantized_linear_kernel(T* out, const T* x, const char* weight, const T* scales, int B,
                        int N, int K, int groups) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    if (std::is_same_v<T, at::BFloat16>) return __trap();  // refused before
#endif
    using S = Shape<BITS, ROWS>;
    extern __shared__ __align__(128) char slices[];
    int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
    int row0 = blockIdx.x * ROWS, row = warp_id / K_WARPS * WARP_ROWS + lane_id / 4;
    x += int64_t(blockIdx.y) * COLS * K, out += int64_t(blockIdx.y) * COLS * N;
    weight += int64_t(row0) * (K / 8 * BITS), B -= blockIdx.y * COLS;
    int count = cdiv(K, S::SLICE_K), left = N - row0 - row;
    int k = warp_id % K_WARPS * S::WARP_K, step = groups > 1 ? S::SLICE_K / GROUP : 0;
    scales += row0 + row + (groups > 1 ? int64_t(k / GROUP) * N : 0);
    auto copy = [&](int slice) {  // to the stage that was multiplied longest ago
        if (slice < count)
            copy_slice<T, BITS, ROWS>(slices + slice % STAGES * S::STAGE, weight, x,
                                      slice, N - row0, B, K);
        end_group();
    };
    auto load_scales = [&](T (&scale)[4]) {  // of the lane's rows; each time a slice on
#pragma unroll
        for (int i = 0; i < 4; i++)
            scale[i] = i * 8 < left && k < K ? scales[i * 8] : T(0.0f);
        scales += int64_t(step) * N, k += S::SLICE_K;
    };
    float sums[2][4] = {};
    T soon[4], later[4];  // scales of the next two slices
    load_scales(soon), load_scales(later);
    for (int slice = 0; slice < STAGES - 1; slice++) copy(slice);
    for (int slice = 0; slice < count; slice++) {
        float scale[4];
        for (int i = 0; i < 4; i++) scale[i] = float(soon[i]), soon[i] = later[i];
        load_scales(later);
        wait_for_oldest_group();
        __syncthreads();  // the slice is complete; that before it was read by all
        copy(slice + STAGES - 1);
        multiply<T, BITS, ROWS>(sums, slices + slice % STAGES * S::STAGE, scale);
    }
    __syncthreads();  // the slices were read: room for sums, (K_WARPS, COLS, ROWS)
    float* parts = reinterpret_cast<float*>(slices);
    for (int i = 0; i < 8; i++) {
        int col = lane_id % 4 * 2 + i % 2;
        parts[(warp_id % K_WARPS * COLS + col) * ROWS + row + i / 2 * 8] =
            sums[i / 4][i % 4];
    }
    __syncthreads();  // the sums are complete
    for (int i = threadIdx.x; i < COLS * ROWS; i += S::THREADS) {
        int col = i / ROWS, n = row0 + i % ROWS;
        float total = 0.0f;
        for (int w = 0; w < K_WARPS; w++) total += parts[w * COLS * ROWS + i];
        if (col < B && n < N) out[int64_t(col) * N + n] = T(total);
    }
}

static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

// 75 if the kernels are built for sm_75, also where a later GPU runs them
static int built_for() {
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(
        &built, quantized_linear_kernel<at::Half, 8, WARP_ROWS>));
    return built.ptxVersion;
}

// x, or a copy of it, beginning at a multiple of 16 bytes
static Tensor aligned(Tensor x) {
    return reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 ? x.clone() : x;
}

template <typename T, int BITS, int ROWS>
static void launch(Tensor out, Tensor x, Tensor weight, Tensor scales) {
    using S = Shape<BITS, ROWS>;
    int B = x.size(0), K = x.size(1), N = out.size(1), groups = scales.size(0);
    int bytes = S::STAGE * (built_for() < 80 ? 2 : 4);  // as STAGES is there
    if constexpr (ROWS > WARP_ROWS) {  // fewer, if this leaves SMs idle or does not fit
        int sms = attribute(cudaDevAttrMultiProcessorCount, x);
        if (cdiv(N, ROWS) < sms * 3 / 4 ||
            bytes > attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, x))
            return launch<T, BITS, ROWS / 2>(out, x, weight, scales);
    }
    auto kernel = quantized_linear_kernel<T, BITS, ROWS>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<dim3(cdiv(N, ROWS), cdiv(B, COLS)), S::THREADS, bytes,
             getCurrentCUDAStream()>>>(
        out.data_ptr<T>(), x.data_ptr<T>(), static_cast<const char*>(weight.data_ptr()),
        scales.data_ptr<T>(), B, N, K, groups);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
static void launch(Tensor out, Tensor x, Tensor weight, Tensor scales) {
    if (weight.scalar_type() == torch::kInt8) launch<T, 8, 64>(out, x, weight, scales);
    else launch<T, 4, 64>(out, x, weight, scales);
}

static void check_input(const char* name, Tensor x, bool type_fits, const char* types,
                        int64_t rows, int64_t cols, Tensor like) {
    TORCH_CHECK(type_fits && x.dim() == 2 && x.size(0) == rows && x.size(1) == cols &&
                x.is_contiguous() && x.is_cuda() && x.device() == like.device(), name,
                ": expected contiguous ", types, " on x's CUDA device, shape [", rows,
                ", ", cols, "], got ", x.scalar_type(), " on ", x.device(), ", shape ",
                x.sizes(), ", strides ", x.strides());
}

Tensor quantized_linear(Tensor x, Tensor weight, Tensor scales) {
    auto type = x.scalar_type(), stored = weight.scalar_type();
    bool known = type == torch::kFloat16 || type == torch::kBFloat16;
    TORCH_CHECK(known && x.dim() == 2 && x.is_contiguous() && x.is_cuda() &&
                x.size(1) % 32 == 0 && x.size(1) <= 1 << 30 && x.size(0) <= 1 << 18,
                "x: expected contiguous float16 or bfloat16 on a CUDA device, shape "
                "(B, K), B up to 2^18, K a multiple of 32 up to 2^30, got ", type,
                " on ", x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
    TORCH_CHECK(scales.scalar_type() == type, "quantized_linear: expected x and scales "
                "of one type, got ", type, " and ", scales.scalar_type());
    TORCH_CHECK(weight.dim() == 2 && weight.size(0) <= 1 << 30, "weight: expected a "
                "matrix of up to 2^30 rows, got shape ", weight.sizes());
    int64_t B = x.size(0), K = x.size(1), N = weight.size(0);
    bool by_nibble = stored == torch::kUInt8;
    check_input("weight", weight, by_nibble || stored == torch::kInt8, "uint8 or int8",
                N, by_nibble ? K / 2 : K, x);
    bool by_row = scales.dim() == 2 && scales.size(0) == 1;
    check_input("scales", scales, true, "numbers", by_row ? 1 : cdiv(K, GROUP), N, x);
    c10::cuda::CUDAGuard guard(x.device());
    TORCH_CHECK(type == torch::kFloat16 || built_for() >= 80, "x: expected float16 in "
                "a build for GPUs before sm_80, got ", type);
    Tensor out = torch::empty({B, N}, x.options());
    if (out.numel() == 0) return out;
    x = aligned(x), weight = aligned(weight);
    if (type == torch::kFloat16) launch<at::Half>(out, x, weight, scales);
    else launch<at::BFloat16>(out, x, weight, scales);
    return out;
}
