// kernels/mnist_cnn.cu
// SPDX-License-Identifier: MIT
// The network of notebook 17: a training step (batch, forward, backward, update), and
// predictions. images: (M, 28, 28) float32, labels: (M,) int64, index: (N,) int64, rows
// of both (a row that is not there counts as NaN); all contiguous, aligned to 16 bytes.
// parameters: 14, as in Net; conv2 (out, tap, in), fc1 (window, out, channel). Weights
// and gradients (times 256) have to stay below 255 in size: they are multiplied as
// parts of float16, `exact` as three products, else one. Results repeat to the bit.
// Convolutions are matrix products on tensor cores that gather their operand from
// images in shared memory (implicit GEMM); sums over the batch are cut among blocks
// (split-K), each of which leaves its part to a later kernel. From sm_90 on each of a
// step's seven kernels begins while the one before it ends (programmatic dependent
// launch).
// 25.0 MFLOP an image. The workspace is the scratch memory: 0.2 MB an image, 6 MB more.
// Shared memory: from 64 KB a block on (sm_75), exact products from 99 KB on (sm_80).
// Notebook: 17c_training_step.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// mnist_cnn = load_inline("mnist_cnn", cuda_sources=Path("mnist_cnn.cu").read_text(),
//     cpp_sources="""using torch::Tensor;
//         Tensor mnist_cnn_prepare(std::vector<Tensor> parameters, int64_t count,
//             bool exact);
//         Tensor mnist_cnn_step(std::vector<Tensor> parameters, Tensor workspace,
//             Tensor images, Tensor labels, Tensor index, double lr, bool exact);
//         Tensor mnist_cnn_predict(std::vector<Tensor> parameters, Tensor workspace,
//             Tensor images, bool exact);""",
//     functions=["mnist_cnn_prepare", "mnist_cnn_step", "mnist_cnn_predict"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda_fp16.h>
#include <torch/types.h>
#include <algorithm>
#include <string>
#include <vector>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int C1 = 32, C2 = 64, HIDDEN = 128, CLASSES = 10;  // channels, features
constexpr int SIDE = 28, PIXELS1 = SIDE * SIDE, SIDE2 = 14, PIXELS2 = SIDE2 * SIDE2;
constexpr int WINDOWS = 49;                    // of the second pool
constexpr int TAPS = 9, K2 = TAPS * C1;        // of the second convolution
constexpr int64_t FC1 = WINDOWS * HIDDEN * C2;  // weights
constexpr int MOMENTS = 9 + 45 + 2;  // of the 3 × 3 patches of the images; 2 unused
constexpr float EPS = 1e-5f, MOMENTUM = 0.1f;
constexpr float W_SCALE = 256, G_SCALE = 256;  // of weights and gradients as halves

struct Net {  // parameters; conv2: (out, tap, in), fc1: (window, out, channel)
    float *conv1, *gamma1, *beta1, *mean1, *var1;
    float *conv2, *gamma2, *beta2, *mean2, *var2;
    float *fc1, *bias1, *fc2, *bias2;
};

struct Batch {
    const float* images;
    const int64_t *labels, *index;  // index: null for rows 0, 1 …
    int64_t rows;  // of images and labels; others count as NaN
    int count;
};

// sm_75 has 64 KB of shared memory for a block: code that needs more is left out there
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool SMALL = true;
#else
constexpr bool SMALL = false;
#endif

template <typename T, int COUNT>
struct alignas(COUNT * sizeof(T) > 16 ? 16 : COUNT * sizeof(T)) Pack {
    T at[COUNT];
};

static __host__ __device__ int cdiv(int a, int b) { return (a + b - 1) / b; }

// What a step keeps in memory. PRODUCTS: of halves, for each product: 1 or 3. Each
// array belongs to one kernel, which writes it, and to kernels behind it, which read
// it:
//   array            written by         read by
//   conv2            update, prepare    conv_forward, conv_backward
//   fc1              update, prepare    fc1_forward, fc1_backward
//   part_moments     moments            conv_forward
//   moments, bn1     conv_forward       update
//   part_stats       conv_forward       fc1_forward
//   bn2              fc1_forward        fc1_backward, conv_backward
//   part_back        fc1_backward       conv_backward
//   bn2_back         conv_backward      update
//   part_head        head               update
//   part_fc1         fc1_backward       update
//   part_conv1, 2    conv_backward      update
//   a1, codes, z2    conv_forward       conv_backward
//   ext              conv_forward       fc1_forward, fc1_backward, conv_backward
//   hidden           fc1_forward        head, logits
//   dh               head               fc1_backward
//   dy               fc1_backward       conv_backward
template <int PRODUCTS> struct Work {
    static constexpr int PARTS = PRODUCTS == 3 ? 2 : 1;  // of a number: high and low
    using Stored = std::conditional_t<PRODUCTS == 3, float, at::Half>;
    half *conv2, *fc1;  // parts of the weights, times W_SCALE
    double* moments;    // sums
    float *bn1, *bn2;   // (4, channels): scale, shift, mean, 1 / deviation
    float* bn2_back;    // (2, C2): sums of dy and of dy · zhat
    float *part_moments, *part_stats, *part_back;       // sums of each block
    float *part_head, *part_fc1, *part_conv2, *part_conv1;
    half* a1;           // (N, PARTS, PIXELS2, C1): after the first pool
    uint8_t* codes;     // (N, PIXELS2, C1): which pixel was the maximum, 4: none is > 0
    Stored *z2, *ext;   // (N, WINDOWS, C2, 4), extremes of the four (N, WINDOWS, C2)
    float* hidden;      // (slices, N, HIDDEN): sums over a slice of fc1's inputs
    half* dh;           // (N, PARTS, HIDDEN): gradient there, times G_SCALE
    Stored* dy;         // (N, WINDOWS, C2): gradient of batch norm's output, G_SCALE
    float* loss;        // mean
    int moment_blocks, forward_blocks, slices, fc1_parts, conv_blocks, head_blocks;
};

// x = high + low, to 22 bits
static __device__ void split(float x, half& high, half& low) {
    high = __float2half(x);
    low = __float2half(x - __half2float(high));
}

static __device__ unsigned address(const void* shared) {
    return unsigned(__cvta_generic_to_shared(shared));
}

// Fragments: how the lanes of a warp hold c: 16 × 8 += a: 16 × 16 times b: 16 × 8, two
// halves a register. With g = lane / 4 and t = lane % 4 * 2 a lane has
//   c[0], c[1]: row g, columns t and t + 1    c[2], c[3]: the same of row g + 8
//   a[0]: row g, k = t and t + 1    a[1]: row g + 8    a[2], a[3]: those at k + 8
//   b0: column g, k = t and t + 1   b1: those at k + 8
// ldmatrix fills four registers so: lane 8 i + j brings the address of row j of matrix
// i, 8 × 8 halves, and register i then holds elements t and t + 1 of row g of matrix i.
// For a the lanes bring rows lane % 16, from k = lane / 16 * 8 on; for b, as two
// fragments of 8 columns, columns lane % 8 + lane / 16 * 8, from k = lane / 8 % 2 * 8
// on. ldmatrix_t is for operands whose rows run across k: it transposes each matrix.
static __device__ void ldmatrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

static __device__ void ldmatrix_t(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

static __device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                           unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
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

// c += a b, by one product or by three; of b's fragment registers i and i + 1. Three:
// (high + low) (high + low) but for low times low, at most 2^-22 of the whole; the
// small ones first.
template <int PARTS>
__device__ void multiply(float (&c)[4], const unsigned (&a)[PARTS][4],
                         const unsigned (&b)[PARTS][4], int i) {
    if constexpr (PARTS == 2) {
        mma(c, a[1], b[0][i], b[0][i + 1]);
        mma(c, a[0], b[1][i], b[1][i + 1]);
    }
    mma(c, a[0], b[0][i], b[0][i + 1]);
}

// 16 bytes to shared memory, on their way while the thread goes on
static __device__ void copy_async(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    unsigned at = address(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from));
#else
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

static __device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Programmatic dependent launch, from sm_90 on: a kernel begins when each block of the
// one before it has called this function or ended. Here the first line waits until that
// kernel has ended and all it wrote is visible, the second one lets the next kernel
// begin. So as long as kernel e has not called it, e - 1 may be at work, but has called
// it; so e - 2 has ended, and all before it. The rule:
//   1. Before the call a kernel may read what e - 2 and earlier ones wrote, nothing of
//      e - 1, and may write only what e - 1 does not touch.
//   2. After the call it may do everything.
//   3. Every kernel that is launched so makes the call, in one block at least. (If none
//      did, e would begin while e - 2 is at work, and rule 1 would be wrong.)
// What they read before the call:
//   moments        nothing
//   conv_forward   conv2's parts, of the last step's update; the caller's index
//   fc1_forward    fc1's parts, of the same
//   head, logits   fc2 and both biases, of the same; index and labels
//   fc1_backward   fc1's parts; ext, of conv_forward; bn2, of fc1_forward
//   conv_backward  conv2's parts; a1 and codes, of conv_forward; index, images
//   update         part_fc1, of fc1_backward; and it writes fc1 and its parts
// prepare, which does not come here, is launched the usual way.
static __device__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Partial sums: each block of a kernel wrote a row of `from`, and every block of the
// next one adds up all rows for itself: no atomics, whose order changes from run to
// run, no kernel in between, and the same total to the bit in every block.
// total[i] = sum over b < count of from[b][i], always in the same order, for i < WIDTH;
// by GROUPS · WIDTH / 4 threads; total has room for (GROUPS + 1) WIDTH numbers
template <int WIDTH, int GROUPS>
__device__ void add_up(double* total, const float* from, int count) {
    constexpr int COLS = WIDTH / 4, DEPTH = 8;
    double* scratch = total + WIDTH;
    int group = threadIdx.x / COLS, col = threadIdx.x % COLS * 4;
    double sums[4] = {};
    for (int b = group; group < GROUPS && b < count; b += DEPTH * GROUPS) {
        float4 v[DEPTH];  // all on their way before the first is used
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            v[j] = b + j * GROUPS >= count
                       ? make_float4(0, 0, 0, 0)
                       : __ldcg(reinterpret_cast<const float4*>(
                             from + int64_t(b + j * GROUPS) * WIDTH + col));
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            sums[0] += v[j].x, sums[1] += v[j].y, sums[2] += v[j].z, sums[3] += v[j].w;
    }
    if (group < GROUPS)
        for (int e = 0; e < 4; e++) scratch[group * WIDTH + col + e] = sums[e];
    __syncthreads();  // all groups' sums are there
    for (int i = threadIdx.x; i < WIDTH; i += blockDim.x) {
        double sum = 0;
        for (int g = 0; g < GROUPS; g++) sum += scratch[g * WIDTH + i];
        total[i] = sum;
    }
    __syncthreads();  // totals are there
}

// A channel's statistics to bn, (4, channels): scale, shift, mean, 1 / deviation. One
// block keeps them for later kernels (else null), and moves the running ones.
static __device__ void normalise(float* bn, float* kept, int channels, int c,
                                 double mean, double var, double n, float gamma,
                                 float beta, float* running_mean, float* running_var) {
    float invstd = float(1 / sqrt(var + EPS)), shift = beta - mean * gamma * invstd;
    float row[4] = {gamma * invstd, shift, float(mean), invstd};
    for (int i = 0; i < 4; i++) bn[i * channels + c] = row[i];
    if (!kept) return;
    for (int i = 0; i < 4; i++) kept[i * channels + c] = row[i];
    running_mean[c] += MOMENTUM * (float(mean) - running_mean[c]);
    running_var[c] += MOMENTUM * (float(var * n / (n - 1)) - running_var[c]);
}

// Four pixels of an image for each of 196 threads; and to shared memory, where a frame
// of zeros is around them.
static __device__ float4 fetch_image(const Batch& batch, int n) {
    if (threadIdx.x >= PIXELS1 / 4 || n >= batch.count) return make_float4(0, 0, 0, 0);
    int64_t row = batch.index ? batch.index[n] : n;
    if (row < 0 || row >= batch.rows) return make_float4(NAN, NAN, NAN, NAN);
    return reinterpret_cast<const float4*>(batch.images + row * PIXELS1)[threadIdx.x];
}

// to the L2 cache, in lines of 128 bytes
static __device__ void prefetch_image(const Batch& batch, int n) {
    if (threadIdx.x > PIXELS1 / 32 || n >= batch.count) return;
    int64_t row = batch.index ? batch.index[n] : n;
    if (row < 0 || row >= batch.rows) return;
    const float* line = batch.images + row * PIXELS1 + threadIdx.x * 32;
    asm volatile("prefetch.global.L2 [%0];" :: "l"(line));
}

template <int PITCH> __device__ void store_image(float* image, float4 v) {
    if (threadIdx.x >= PIXELS1 / 4) return;
    float* to = image + (threadIdx.x / 7 + 1) * PITCH + threadIdx.x % 7 * 4 + 1;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// batch norm 1 of channel c, from the moments of the images: w · mean of p, wᵀ M w
static __device__ void first_statistics(Net net, float* bn, float* kept,
                                        const double* total, int c, int count) {
    double n = double(count) * PIXELS1, mean = 0, square = 0, w[9];
    for (int i = 0; i < 9; i++) w[i] = net.conv1[c * 9 + i];
#pragma unroll
    for (int i = 0, k = 9; i < 9; i++) {
        double row = 0;
        for (int j = i; j < 9; j++, k++) row += (i == j ? 1 : 2) * w[j] * total[k];
        mean += w[i] * total[i];
        square += w[i] * row;
    }
    mean /= n;
    normalise(bn, kept, C1, c, mean, square / n - mean * mean, n, net.gamma1[c],
              net.beta1[c], net.mean1, net.var1);
}

constexpr int MOMENT_THREADS = 224;  // 7 strips of 4 rows, 28 columns: 196 at work

// Lanes share the adding up (a reduce-scatter by halves): of 64 numbers each of two
// lanes 16 apart keeps 32 and hands the other's 32 over, of these two lanes 8 apart
// keep 16 each, and so on: 62 shuffles, where adding up each number in all lanes takes
// 5 · 64. At the end a lane has the warp's sums of two: 2 lane and 2 lane + 1.
template <int D> __device__ void share_sums(float (&sums)[64]) {
    bool upper = threadIdx.x & D;
#pragma unroll
    for (int k = 0; k < 2 * D; k++) {
        float mine = upper ? sums[k + 2 * D] : sums[k];
        float other = upper ? sums[k] : sums[k + 2 * D];
        sums[k] = mine + __shfl_xor_sync(0xffffffff, other, D);
    }
    if constexpr (D > 1) share_sums<D / 2>(sums);
}

template <int PRODUCTS>
__global__ void __launch_bounds__(MOMENT_THREADS)
moments_kernel(Work<PRODUCTS> work, Batch batch) {
    __shared__ float image[30 * 30], warps[7][64];
    int tid = threadIdx.x;
    for (int i = tid; i < 30 * 30; i += MOMENT_THREADS) image[i] = 0;
    float sums[64] = {};  // 54 of them in use
    int x = tid % 28, y = tid / 28 * 4;
    wait_for_last();  // for the batch: somebody may just have written it
    float4 pixels = fetch_image(batch, blockIdx.x);
    for (int n = blockIdx.x; n < batch.count; n += gridDim.x) {
        __syncthreads();  // the last image has been read
        store_image<30>(image, pixels);
        pixels = fetch_image(batch, n + gridDim.x);
        __syncthreads();  // the image is there
        if (y >= SIDE) continue;
        float p[6][3];
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 3; j++) p[i][j] = image[(y + i) * 30 + x + j];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int k = 9;
#pragma unroll
            for (int i = 0; i < 9; i++) {
                sums[i] += p[r + i / 3][i % 3];
#pragma unroll
                for (int j = i; j < 9; j++)
                    sums[k++] += p[r + i / 3][i % 3] * p[r + j / 3][j % 3];
            }
        }
    }
    share_sums<16>(sums);
    for (int k = 0; k < 2; k++) warps[tid / 32][tid % 32 * 2 + k] = sums[k];
    __syncthreads();  // all warps' sums are there
    if (tid < MOMENTS) {
        float s = 0;
        for (int w = 0; w < 7; w++) s += warps[w][tid];
        work.part_moments[blockIdx.x * MOMENTS + tid] = s;
    }
}

constexpr int FORWARD_WARPS = 7;  // along an image's windows
// halves, a row of some taps' weights in shared memory: no bank conflicts
template <int COUNT> constexpr int TAPS_PITCH = COUNT * C1 + 8;
constexpr int W2_PITCH = TAPS_PITCH<TAPS>;
// pixels of a1 that a block needs, with a frame: 16 rows of 16, or 10 for half an image
template <int SPLIT> constexpr int FORWARD_PIXELS = SPLIT == 1 ? 256 : 160;

// where 8 channels of a pixel begin, in halves; neighbours lie in different banks
static __device__ int place1(int pixel, int octet) {
    return pixel * C1 + (octet ^ (pixel >> 1 & 3)) * 8;
}

// the weights of COUNT taps from `tap` on
template <int PARTS, int THREADS, int COUNT>
__device__ void load_weights(half* to, const half* from, int tap) {
    constexpr int ROW = COUNT * C1 / 8;  // 16 bytes each
#pragma unroll (COUNT == TAPS ? 4 : 1)  // registers are scarce where taps come by turns
    for (int i = threadIdx.x; i < PARTS * C2 * ROW; i += THREADS)
        copy_async(to + i / ROW * TAPS_PITCH<COUNT> + i % ROW * 8,
                   from + i / ROW * K2 + tap * C1 + i % ROW * 8);
}

// w1: conv1's weights times the scale of batch norm 1, and behind them its shift: that
// of the batch, by all blocks' sums, or the running one; scratch: room for 17 MOMENTS
// numbers and, as floats, 4 C1
template <bool TRAIN, int PRODUCTS>
__device__ void first_norm(Net net, const Work<PRODUCTS>& work, float* w1,
                           double* scratch, int count) {
    int tid = threadIdx.x;
    float* bn = reinterpret_cast<float*>(scratch + 17 * MOMENTS);
    if constexpr (TRAIN) {
        add_up<MOMENTS, 16>(scratch, work.part_moments, work.moment_blocks);
        bool first = blockIdx.x == 0;  // keeps them for the kernels to come
        if (first && tid < MOMENTS) work.moments[tid] = scratch[tid];
        if (tid < C1)
            first_statistics(net, bn, first ? work.bn1 : nullptr, scratch, tid, count);
    } else if (tid < C1) {
        normalise(bn, nullptr, C1, tid, net.mean1[tid], net.var1[tid], 1,
                  net.gamma1[tid], net.beta1[tid], nullptr, nullptr);
    }
    __syncthreads();  // batch norm is there
    for (int i = tid; i < 9 * C1; i += blockDim.x) w1[i] = net.conv1[i] * bn[i / 9];
    if (tid < C1) w1[9 * C1 + tid] = bn[C1 + tid];
    __syncthreads();  // scratch has been read
}

// 7 pixels of a row of a1: conv1 (w1: as of first_norm), batch norm, pool, ReLU;
// a lane has a channel. a1: PARTS planes, from the row above top_row on; own: to store
template <int PRODUCTS, int PLANE>
__device__ void conv1_piece(half* a1, const float* image, const float* w1,
                            const Work<PRODUCTS>& work, int n, int piece, int top_row,
                            bool own) {
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    int lane = threadIdx.x % 32, py = piece / 2, first = piece % 2 * 7;
    const float* top = image + 2 * py * 30;
    float w[9], shift = w1[9 * C1 + lane];
    for (int k = 0; k < 9; k++) w[k] = w1[lane * 9 + k];
    float p[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        p[i][2] = top[i * 30 + 2 * first], p[i][3] = top[i * 30 + 2 * first + 1];
#pragma unroll
    for (int px = first; px < first + 7; px++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 v = *reinterpret_cast<const float2*>(top + i * 30 + 2 * px + 2);
            p[i][0] = p[i][2], p[i][1] = p[i][3], p[i][2] = v.x, p[i][3] = v.y;
        }
        float best = -INFINITY;
        int code = 0;
#pragma unroll
        for (int s = 0; s < 4; s++) {
            float y = shift;
#pragma unroll
            for (int k = 0; k < 9; k++) y += w[k] * p[s / 2 + k / 3][s % 2 + k % 3];
            if (!(y <= best)) best = y, code = s;
        }
        if (best <= 0) best = 0, code = 4;
        half parts[2];
        split(best, parts[0], parts[1]);
        int64_t pos = py * SIDE2 + px;
        for (int i = 0; i < PARTS; i++) {
            int pixel = (py - top_row + 1) * 16 + px + 1;
            a1[i * PLANE + place1(pixel, lane / 8) + lane % 8] = parts[i];
            if (own)
                work.a1[((int64_t(n) * PARTS + i) * PIXELS2 + pos) * C1 + lane] =
                    parts[i];
        }
        if (own) work.codes[(int64_t(n) * PIXELS2 + pos) * C1 + lane] = code;
    }
}

// acc: TILES · 4 windows by COLS · 8 channels of conv2; a1: as in conv1_piece. The 16
// rows of a fragment are four windows of the pool, row r the pixel (r / 8, r % 2) of
// window r % 8 / 2. A lane has rows g and g + 8: the upper and the lower pixel of a
// window, and the lane 4 beside it has the other two (see store_windows).
template <int PARTS, int PLANE, int TILES, int COLS>
__device__ void conv2_tiles(float (&acc)[TILES][COLS][4], const half* a1,
                            const half* weights, int tile, int top_row) {
    int lane = threadIdx.x % 32, pixel[TILES];
    for (int t = 0; t < TILES; t++) {
        int window = min((tile + t) * 4 + lane % 8 / 2, WINDOWS - 1);
        pixel[t] = (window / 7 * 2 + lane / 8 % 2 - top_row) * 16 + window % 7 * 2 +
                   lane % 2;
    }
    unsigned b_at = address(weights + (lane % 8 + lane / 16 * 8) * W2_PITCH +
                            lane / 8 % 2 * 8);
#pragma unroll 1
    for (int tap = 0; tap < TAPS; tap++) {
        float part[TILES][COLS][4] = {};  // begun anew: long sums in a tensor core lose
#pragma unroll
        for (int kk = 0; kk < 2; kk++) {
            unsigned a[TILES][PARTS][4];
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                int moved = pixel[t] + tap / 3 * 16 + tap % 3;
                unsigned a_at = address(a1 + place1(moved, lane / 16)) ^ kk * 32;
                for (int i = 0; i < PARTS; i++) ldmatrix(a[t][i], a_at + i * PLANE * 2);
            }
#pragma unroll
            for (int q = 0; q < COLS / 2; q++) {
                unsigned b[PARTS][4];
                for (int i = 0; i < PARTS; i++)
                    ldmatrix(b[i], b_at + ((i * C2 + q * 16) * W2_PITCH + tap * C1 +
                                           kk * 16) * 2);
#pragma unroll
                for (int t = 0; t < TILES; t++)
                    for (int j = q * 2; j < q * 2 + 2; j++)
                        multiply<PARTS>(PARTS == 2 ? part[t][j] : acc[t][j], a[t], b,
                                        j % 2 * 2);
            }
        }
        if (PARTS == 2)
            for (int i = 0; i < TILES * COLS * 4; i++)
                acc[i / 4 / COLS][i / 4 % COLS][i % 4] +=
                    part[i / 4 / COLS][i / 4 % COLS][i % 4];
    }
}

// The tile's windows to memory (if backward needs them), with their extremes, and on to
// the statistics.
// Two lanes 4 apart, one with an even g, one with an odd, have a window's four pixels:
//               of channel t   of t + 1
//   even lane   c[0], c[2]     c[1], c[3]   the left pixel above, the one below
//   odd lane    c[0], c[2]     c[1], c[3]   the right pixel above, the one below
// They swap first, the even lane's c[1] and c[3] for the odd one's c[0] and c[2]: the
// even one then has all four pixels of channel t, the odd one those of t + 1.
template <int PRODUCTS, bool TRAIN, int COLS>
__device__ void store_windows(const Work<PRODUCTS>& work, const float* gamma2,
                              float (&acc)[COLS][4], float (&sums)[COLS],
                              float (&squares)[COLS], int n, int tile, int c0) {
    using Stored = typename Work<PRODUCTS>::Stored;
    int lane = threadIdx.x % 32, window = tile * 4 + lane / 8, odd = lane / 4 % 2;
#pragma unroll
    for (int i = 0; i < COLS; i++) {
        float(&c)[4] = acc[i];
        float upper = __shfl_xor_sync(0xffffffff, odd ? c[0] : c[1], 4);
        float lower = __shfl_xor_sync(0xffffffff, odd ? c[2] : c[3], 4);
        float v[4] = {odd ? upper : c[0], odd ? c[1] : upper,
                      odd ? lower : c[2], odd ? c[3] : lower};
        if (window >= WINDOWS) continue;
        int channel = c0 + i * 8 + lane % 4 * 2 + odd;
        Pack<Stored, 4> four;
        float most = -INFINITY, least = INFINITY;
        for (int s = 0; s < 4; s++) {
            four.at[s] = Stored(v[s] / W_SCALE);
            v[s] = float(four.at[s]);  // as backward will see it
            sums[i] += v[s], squares[i] += v[s] * v[s];
            most = fmaxf(most, v[s]), least = fminf(least, v[s]);
        }
        int64_t at = (int64_t(n) * WINDOWS + window) * C2 + channel;
        if (TRAIN) reinterpret_cast<Pack<Stored, 4>*>(work.z2)[at] = four;
        work.ext[at] = Stored(gamma2[channel] >= 0 ? most : least);
    }
}

constexpr int FC_THREADS = 256;  // of the kernels of the first linear layer

// each thread's sums to the block's: of z and of its square
template <int COLS>
__device__ void store_statistics(float* part_stats, const float (&sums)[COLS],
                                 const float (&squares)[COLS], float* scratch) {
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    int row = warp % FORWARD_WARPS, c0 = warp / FORWARD_WARPS * COLS * 8;
#pragma unroll
    for (int i = 0; i < COLS; i++) {
        float s = sums[i], q = squares[i];
        for (int d = 8; d < 32; d *= 2) {
            s += __shfl_xor_sync(0xffffffff, s, d);
            q += __shfl_xor_sync(0xffffffff, q, d);
        }
        int channel = c0 + i * 8 + lane % 4 * 2 + lane / 4 % 2;
        if (lane < 8) {
            scratch[row * 2 * C2 + channel] = s;
            scratch[row * 2 * C2 + C2 + channel] = q;
        }
    }
    __syncthreads();  // all warps' sums are there
    if (tid < 2 * C2) {
        float s = 0;
        for (int w = 0; w < FORWARD_WARPS; w++) s += scratch[w * 2 * C2 + tid];
        part_stats[blockIdx.x * 2 * C2 + tid] = s;
    }
}

// batch norm 2 from all blocks' sums, or running ones; total: room for 18 C2 numbers
template <bool TRAIN, int PRODUCTS>
__device__ void second_norm(Net net, const Work<PRODUCTS>& work, float* bn, float* kept,
                            double* total, int count) {
    int c = threadIdx.x;
    double n = double(count) * PIXELS2, mean = 0, var = 0;
    if constexpr (TRAIN) {
        add_up<2 * C2, 8>(total, work.part_stats, work.forward_blocks);
        if (c < C2) mean = total[c] / n, var = total[C2 + c] / n - mean * mean;
    } else if (c < C2) {
        mean = net.mean2[c], var = net.var2[c];
    }
    if (c < C2)
        normalise(bn, TRAIN ? kept : nullptr, C2, c, mean, var, n, net.gamma2[c],
                  net.beta2[c], net.mean2, net.var2);
    __syncthreads();  // batch norm is there
}

template <int PARTS, int SPLIT> constexpr int FORWARD_BYTES =
    PARTS * (C2 * W2_PITCH + FORWARD_PIXELS<SPLIT> * C1) * 2 + 30 * 30 * 4;

// SPLIT: blocks for an image, 1 or 2; of two, a warp has half of the channels. TRAIN:
// by the batch's statistics, and what backward needs is kept
template <int PRODUCTS, int SPLIT, bool TRAIN>
__global__ void __launch_bounds__(FORWARD_WARPS * 32 * SPLIT, SPLIT == 2 ? 1 : 2)
conv_forward_kernel(Net net, Work<PRODUCTS> work, Batch batch) {
    if constexpr (SMALL && (PRODUCTS == 3 || SPLIT == 1)) return __trap();
    constexpr int PARTS = Work<PRODUCTS>::PARTS, WARPS = FORWARD_WARPS * SPLIT;
    constexpr int THREADS = WARPS * 32, COLS = 8 / SPLIT, OWN = 2 / SPLIT;
    constexpr int TILES = PRODUCTS == 3 ? 1 : OWN;  // of a warp, at once
    constexpr int PLANE = FORWARD_PIXELS<SPLIT> * C1;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ float w1[10 * C1];  // conv1's, times batch norm's scale; its shift
    half* weights = reinterpret_cast<half*>(shared);
    half* a1 = weights + PARTS * C2 * W2_PITCH;
    float* image = reinterpret_cast<float*>(a1 + PARTS * PLANE);
    int tid = threadIdx.x, warp = tid / 32, task = blockIdx.x;
    int c0 = warp / FORWARD_WARPS * COLS * 8, side = task % SPLIT, top_row = side * 8;
    load_weights<PARTS, THREADS, TAPS>(weights, work.conv2, 0);
    for (int i = tid; i < 30 * 30; i += THREADS) image[i] = 0;
    float sums[COLS] = {}, squares[COLS] = {};
    prefetch_image(batch, task / SPLIT);
    wait_for_last();
    first_norm<TRAIN>(net, work, w1, reinterpret_cast<double*>(a1), batch.count);
    for (int i = tid; i < PARTS * PLANE / 8; i += THREADS)
        reinterpret_cast<uint4*>(a1)[i] = make_uint4(0, 0, 0, 0);
    for (; task < batch.count * SPLIT; task += gridDim.x) {
        __syncthreads();  // the last image has been read, the frame is 0
        store_image<30>(image, fetch_image(batch, task / SPLIT));
        prefetch_image(batch, (task + gridDim.x) / SPLIT);
        __syncthreads();  // the image is there
        // the upper half needs rows 0 to 8 of a1, the lower one 7 to 13
        int begin = side * 14, end = SPLIT == 1 || side ? 28 : 18;
        for (int piece = begin + warp; piece < end; piece += WARPS) {
            bool own = SPLIT == 1 || (piece < 16) == (side == 0);
            conv1_piece<PRODUCTS, PLANE>(a1, image, w1, work, task / SPLIT,
                                         piece, top_row, TRAIN && own);
        }
        wait_for_copies();
        __syncthreads();  // a1 and the weights are there
        for (int own = 0; own < OWN; own += TILES) {
            int tile = side * 7 + warp % FORWARD_WARPS * OWN + own;
            float acc[TILES][COLS][4] = {};
            conv2_tiles<PARTS, PLANE>(acc, a1, weights + c0 * W2_PITCH, tile, top_row);
#pragma unroll
            for (int t = 0; t < TILES; t++)
                store_windows<PRODUCTS, TRAIN>(work, net.gamma2, acc[t], sums, squares,
                                               task / SPLIT, tile + t, c0);
        }
    }
    if constexpr (!TRAIN) return;
    __syncthreads();  // a1 has been read
    store_statistics(work.part_stats, sums, squares, reinterpret_cast<float*>(a1));
}

constexpr int FC_ROWS = 64;
constexpr int A2_PITCH = C2 + 8, DH_PITCH = HIDDEN + 8;  // halves

// relu(scale · extreme + shift), one window of 64 images, in parts
template <int PRODUCTS>
__device__ void load_a2(half* a2, const Work<PRODUCTS>& work, const float* bn,
                        int window, int first, int count) {
    constexpr int TURNS = FC_ROWS * C2 / 4 / FC_THREADS, STEP = FC_THREADS / (C2 / 4);
    using Four = Pack<typename Work<PRODUCTS>::Stored, 4>;
    int row = threadIdx.x / (C2 / 4), col = threadIdx.x % (C2 / 4) * 4;
    auto scale = *reinterpret_cast<const Pack<float, 4>*>(bn + col);
    auto shift = *reinterpret_cast<const Pack<float, 4>*>(bn + C2 + col);
    Four v[TURNS] = {};
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int n = first + row + t * STEP;
        if (n < count)
            v[t] = *reinterpret_cast<const Four*>(
                work.ext + (int64_t(n) * WINDOWS + window) * C2 + col);
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        Pack<half, 4> parts[2];
        for (int j = 0; j < 4; j++) {
            float y = scale.at[j] * float(v[t].at[j]) + shift.at[j];
            bool zero = y < 0 || first + row + t * STEP >= count;  // NaN stays NaN
            split(zero ? 0 : y, parts[0].at[j], parts[1].at[j]);
        }
        for (int p = 0; p < Work<PRODUCTS>::PARTS; p++)
            *reinterpret_cast<Pack<half, 4>*>(
                a2 + (p * FC_ROWS + row + t * STEP) * A2_PITCH + col) = parts[p];
    }
}

// 128 × 64 weights of one window
template <int PARTS>
__device__ void load_fc1(half* to, const half* fc1, int window) {
    for (int i = threadIdx.x; i < PARTS * HIDDEN * C2 / 8; i += FC_THREADS) {
        int row = i / (C2 / 8), col = i % (C2 / 8) * 8, part = row / HIDDEN;
        copy_async(to + row * A2_PITCH + col,
                   fc1 + part * FC1 + (int64_t(window) * HIDDEN + row % HIDDEN) * C2 +
                       col);
    }
}

template <int PARTS> constexpr int FC1_BYTES =
    PARTS * (FC_ROWS + HIDDEN) * A2_PITCH * 2;

// block (64 images, slice of the windows)
template <int PRODUCTS, bool TRAIN>
__global__ void __launch_bounds__(FC_THREADS)
fc1_forward_kernel(Net net, Work<PRODUCTS> work, Batch batch) {
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ float bn2[4 * C2];
    half* a2 = reinterpret_cast<half*>(shared);
    half* weights = a2 + PARTS * FC_ROWS * A2_PITCH;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * FC_ROWS;
    int row0 = warp / 4 * 32, col0 = warp % 4 * 32, slice = blockIdx.y;
    int begin = slice * WINDOWS / gridDim.y, end = (slice + 1) * WINDOWS / gridDim.y;
    float acc[2][4][4] = {};
    load_fc1<PARTS>(weights, work.fc1, begin);
    wait_for_last();
    bool kept = blockIdx.x + blockIdx.y == 0;
    second_norm<TRAIN>(net, work, bn2, kept ? work.bn2 : nullptr,
                       reinterpret_cast<double*>(a2), batch.count);
    for (int window = begin; window < end; window++) {
        __syncthreads();  // the last window's tiles have been read
        load_a2<PRODUCTS>(a2, work, bn2, window, first, batch.count);
        if (window > begin) load_fc1<PARTS>(weights, work.fc1, window);
        wait_for_copies();
        __syncthreads();  // tiles are there
        float part[2][4][4] = {};
#pragma unroll
        for (int k = 0; k < C2; k += 16) {
            unsigned a[2][PARTS][4], b[2][PARTS][4];
            for (int i = 0; i < PARTS; i++)
                for (int t = 0; t < 2; t++) {
                    int row = i * FC_ROWS + row0 + t * 16 + lane % 16;
                    int col = i * HIDDEN + col0 + t * 16 + lane % 8 + lane / 16 * 8;
                    ldmatrix(a[t][i],
                             address(a2 + row * A2_PITCH + k + lane / 16 * 8));
                    ldmatrix(b[t][i],
                             address(weights + col * A2_PITCH + k + lane / 8 % 2 * 8));
                }
            for (int t = 0; t < 2; t++)
                for (int j = 0; j < 4; j++)
                    multiply<PARTS>(part[t][j], a[t], b[j / 2], j % 2 * 2);
        }
        for (int i = 0; i < 32; i++)
            acc[i / 16][i / 4 % 4][i % 4] += part[i / 16][i / 4 % 4][i % 4];
    }
    for (int i = 0; i < 16; i++) {  // pairs of columns
        int t = i / 8, j = i / 2 % 4, h = i % 2, col = col0 + j * 8 + lane % 4 * 2;
        int n = first + row0 + t * 16 + h * 8 + lane / 4;
        if (n < batch.count)
            *reinterpret_cast<float2*>(
                work.hidden + (int64_t(slice) * batch.count + n) * HIDDEN + col) = {
                acc[t][j][h * 2] / W_SCALE, acc[t][j][h * 2 + 1] / W_SCALE};
    }
}

constexpr int HEAD = CLASSES * HIDDEN + CLASSES + HIDDEN + 1;  // and the loss

struct HeadSums {  // of a lane
    float fc2[CLASSES][4] = {}, bias1[4] = {}, bias2 = 0, loss = 0;
};

// h: four of an image's 128 features; becomes their gradient; z: logits;
// the loss is NaN for a label that is no class
static __device__ void cross_entropy(float (&h)[4], float (&z)[CLASSES],
                                     const float (&w)[CLASSES][4], int64_t label,
                                     HeadSums& sums) {
    int lane = threadIdx.x % 32;
    float most = -INFINITY, total = 0, own = NAN, dh[4] = {};
#pragma unroll
    for (int c = 0; c < CLASSES; c++) most = fmaxf(most, z[c]);
#pragma unroll
    for (int c = 0; c < CLASSES; c++) {
        if (c == label) own = z[c];
        z[c] = expf(z[c] - most);
        total += z[c];
    }
    sums.loss += logf(total) + most - own;
#pragma unroll
    for (int c = 0; c < CLASSES; c++) {
        float dz = z[c] / total - (c == label ? 1.0f : 0.0f);
        if (lane == c) sums.bias2 += dz;
        for (int i = 0; i < 4; i++) dh[i] += dz * w[c][i], sums.fc2[c][i] += dz * h[i];
    }
    for (int i = 0; i < 4; i++) {
        h[i] = h[i] > 0 ? dh[i] : 0;
        sums.bias1[i] += h[i];
    }
}

constexpr int HEAD_THREADS = 128;  // a warp has an image, a lane four of its features

struct Head {
    float fc2[CLASSES][4], bias1[4], bias2;
};

static __device__ Head load_head(Net net) {
    int lane = threadIdx.x % 32;
    Head head;
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < 4; i++)
            head.fc2[c][i] = net.fc2[c * HIDDEN + lane * 4 + i];
    for (int i = 0; i < 4; i++) head.bias1[i] = net.bias1[lane * 4 + i];
    head.bias2 = net.bias2[min(lane, CLASSES - 1)];
    return head;
}

// h: the image's features; z: its logits, in every lane; hidden: its first slice
static __device__ void logits_of(float (&h)[4], float (&z)[CLASSES], const Head& head,
                                 const float* hidden, int slices, int64_t pitch) {
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) h[i] = head.bias1[i];
#pragma unroll 25
    for (int s = 0; s < slices; s++) {
        float4 v = reinterpret_cast<const float4*>(hidden + s * pitch)[lane];
        h[0] += v.x, h[1] += v.y, h[2] += v.z, h[3] += v.w;
    }
    for (int i = 0; i < 4; i++) h[i] = h[i] < 0 ? 0 : h[i];
#pragma unroll
    for (int c = 0; c < CLASSES; c++) {
        z[c] = 0;
        for (int i = 0; i < 4; i++) z[c] += h[i] * head.fc2[c][i];
        for (int d = 16; d > 0; d /= 2) z[c] += __shfl_xor_sync(0xffffffff, z[c], d);
        z[c] += __shfl_sync(0xffffffff, head.bias2, c);
    }
}

// inference ends here; logits: (N, CLASSES)
template <int PRODUCTS>
__global__ void __launch_bounds__(HEAD_THREADS)
logits_kernel(Net net, Work<PRODUCTS> work, float* logits, int count) {
    int lane = threadIdx.x % 32, step = gridDim.x * (HEAD_THREADS / 32);
    Head head = load_head(net);
    wait_for_last();
    int n = blockIdx.x * (HEAD_THREADS / 32) + threadIdx.x / 32;
    for (; n < count; n += step) {
        float h[4], z[CLASSES];
        logits_of(h, z, head, work.hidden + int64_t(n) * HIDDEN, work.slices,
                  int64_t(count) * HIDDEN);
#pragma unroll
        for (int c = 0; c < CLASSES; c++)
            if (lane == c) logits[int64_t(n) * CLASSES + c] = z[c];
    }
}

// one warp after the other, so that the sum is always the same
static __device__ void add_head(float* total, const HeadSums& sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < HEAD; i += HEAD_THREADS) total[i] = 0;
    for (int turn = 0; turn < HEAD_THREADS / 32; turn++) {
        __syncthreads();  // the warp before is done
        if (warp != turn) continue;
#pragma unroll
        for (int c = 0; c < CLASSES; c++)
            for (int i = 0; i < 4; i++)
                total[c * HIDDEN + lane * 4 + i] += sums.fc2[c][i];
        if (lane < CLASSES) total[CLASSES * HIDDEN + lane] += sums.bias2;
        for (int i = 0; i < 4; i++)
            total[CLASSES * HIDDEN + CLASSES + lane * 4 + i] += sums.bias1[i];
        if (lane == 0) total[HEAD - 1] += sums.loss;
    }
    __syncthreads();  // the last warp is done
}

template <int PRODUCTS>
__global__ void __launch_bounds__(HEAD_THREADS)
head_kernel(Net net, Work<PRODUCTS> work, Batch batch) {
    __shared__ float total[HEAD];
    int lane = threadIdx.x % 32, step = gridDim.x * (HEAD_THREADS / 32);
    Head head = load_head(net);
    HeadSums sums;
    auto label_of = [&](int n) -> int64_t {
        int64_t row = n < batch.count ? batch.index[n] : -1;
        return row < 0 || row >= batch.rows ? -1 : batch.labels[row];
    };
    int n = blockIdx.x * (HEAD_THREADS / 32) + threadIdx.x / 32;
    int64_t label = label_of(n);
    wait_for_last();
    for (; n < batch.count; n += step) {
        float h[4], z[CLASSES];
        logits_of(h, z, head, work.hidden + int64_t(n) * HIDDEN, work.slices,
                  int64_t(batch.count) * HIDDEN);
        cross_entropy(h, z, head.fc2, label, sums);
        Pack<half, 4> parts[2];
        for (int i = 0; i < 4; i++)
            split(h[i] * G_SCALE, parts[0].at[i], parts[1].at[i]);
        for (int p = 0; p < Work<PRODUCTS>::PARTS; p++)
            reinterpret_cast<Pack<half, 4>*>(
                work.dh + (int64_t(n) * Work<PRODUCTS>::PARTS + p) * HIDDEN)[lane] =
                parts[p];
        label = label_of(n + step);
    }
    add_head(total, sums);
    for (int i = threadIdx.x; i < HEAD; i += HEAD_THREADS)
        work.part_head[blockIdx.x * HEAD + i] = total[i];
}

// 64 rows of gradients of fc1's output, in parts; zeros where the batch ends
template <int PARTS>
__device__ void load_dh(half* dh, const half* from, int first, int count) {
    for (int i = threadIdx.x; i < PARTS * FC_ROWS * HIDDEN / 8; i += FC_THREADS) {
        int row = i / (PARTS * HIDDEN / 8), rest = i % (PARTS * HIDDEN / 8) * 8;
        half* to = dh + (rest / HIDDEN * FC_ROWS + row) * DH_PITCH + rest % HIDDEN;
        if (first + row < count)
            copy_async(to, from + int64_t(first + row) * PARTS * HIDDEN + rest);
        else
            *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
    }
}

// da: 16 images by 32 channels of the gradient of fc1's input = dh · weights
template <int PARTS>
__device__ void multiply_da2(float (&da)[4][4], const half* dh, const half* weights,
                             int row0, int col0) {
    int lane = threadIdx.x % 32;
#pragma unroll 2
    for (int k = 0; k < HIDDEN; k += 16) {
        unsigned a[PARTS][4], b[2][PARTS][4];
        for (int i = 0; i < PARTS; i++) {
            int row = i * FC_ROWS + row0 + lane % 16;
            ldmatrix(a[i], address(dh + row * DH_PITCH + k + lane / 16 * 8));
            for (int t = 0; t < 2; t++)
                ldmatrix_t(b[t][i],
                           address(weights + (i * HIDDEN + k + lane % 16) * A2_PITCH +
                                   col0 + t * 16 + lane / 16 * 8));
        }
        for (int j = 0; j < 4; j++) multiply<PARTS>(da[j], a, b[j / 2], j % 2 * 2);
    }
}

// dw: 32 features by 32 channels of the weights' gradient += dhᵀ · a2
template <int PARTS>
__device__ void multiply_dw1(float (&dw)[2][4][4], const half* dh, const half* a2,
                             int row0, int col0) {
    int lane = threadIdx.x % 32;
    float part[2][4][4] = {};
#pragma unroll
    for (int k = 0; k < FC_ROWS; k += 16) {
        unsigned a[2][PARTS][4], b[2][PARTS][4];
        for (int i = 0; i < PARTS; i++)
            for (int t = 0; t < 2; t++) {
                int n = i * FC_ROWS + k, row = n + lane % 8 + lane / 16 * 8;
                ldmatrix_t(a[t][i], address(dh + row * DH_PITCH + row0 + t * 16 +
                                            lane / 8 % 2 * 8));
                ldmatrix_t(b[t][i], address(a2 + (n + lane % 16) * A2_PITCH + col0 +
                                            t * 16 + lane / 16 * 8));
            }
        for (int t = 0; t < 2; t++)
            for (int j = 0; j < 4; j++)
                multiply<PARTS>(part[t][j], a[t], b[j / 2], j % 2 * 2);
    }
    for (int i = 0; i < 32; i++)
        dw[i / 16][i / 4 % 4][i % 4] += part[i / 16][i / 4 % 4][i % 4];
}

struct DySums {  // of a thread's 8 channels: dy, and dy times (z - mean)
    float of_dy[4][2] = {}, of_product[4][2] = {};
};

// da, back through ReLU, to memory and on to the sums of batch norm 2
template <int PRODUCTS>
__device__ void store_dy(const Work<PRODUCTS>& work, const float (&da)[4][4],
                         DySums& sums, int window, int row0, int col0, int count) {
    using Stored = typename Work<PRODUCTS>::Stored;
    int lane = threadIdx.x % 32;
    for (int j = 0; j < 4; j++)
        for (int h = 0; h < 2; h++) {
            int n = row0 + h * 8 + lane / 4, col = col0 + j * 8 + lane % 4 * 2;
            if (n >= count) continue;
            int64_t at = (int64_t(n) * WINDOWS + window) * C2 + col;
            auto x = *reinterpret_cast<const Pack<Stored, 2>*>(work.ext + at);
            Pack<Stored, 2> dy;
            for (int e = 0; e < 2; e++) {
                float z = float(x.at[e]), scale = work.bn2[col + e];
                bool live = scale * z + work.bn2[C2 + col + e] > 0;
                dy.at[e] = Stored(live ? da[j][h * 2 + e] / W_SCALE : 0);
                float d = float(dy.at[e]);  // times G_SCALE
                sums.of_dy[j][e] += d;
                sums.of_product[j][e] += d * (z - work.bn2[2 * C2 + col + e]);
            }
            *reinterpret_cast<Pack<Stored, 2>*>(work.dy + at) = dy;
        }
}

// each thread's sums to the block's
template <int PRODUCTS>
__device__ void store_dy_sums(const Work<PRODUCTS>& work, const DySums& sums,
                              float* scratch, int m0, int col0) {
    int tid = threadIdx.x, lane = tid % 32, block = blockIdx.y * WINDOWS + blockIdx.x;
    for (int j = 0; j < 4; j++)
        for (int e = 0; e < 2; e++) {
            float s = sums.of_dy[j][e], p = sums.of_product[j][e];
            for (int d = 4; d < 32; d *= 2) {
                s += __shfl_xor_sync(0xffffffff, s, d);
                p += __shfl_xor_sync(0xffffffff, p, d);
            }
            int col = m0 * 2 * C2 + col0 + j * 8 + lane * 2 + e;
            if (lane < 4) scratch[col] = s, scratch[C2 + col] = p;
        }
    __syncthreads();  // all warps' sums are there
    if (tid < 2 * C2) {
        float s = 0;
        for (int w = 0; w < 4; w++) s += scratch[w * 2 * C2 + tid];
        work.part_back[block * 2 * C2 + tid] = s / G_SCALE;
    }
}

// dz = scale (dy - mean of dy - zhat · mean of dy zhat), as factors of dy, 1 and z
static __device__ void back_factors(float* back, const float* bn2, const double* total,
                                    int c, int count) {
    double n = double(count) * PIXELS2, invstd = bn2[3 * C2 + c], scale = bn2[c];
    double dbeta = total[c], dgamma = total[C2 + c] * invstd;
    double of_z = -scale * invstd * dgamma / n;
    back[c] = float(scale);
    back[C2 + c] = float(-scale * dbeta / n - of_z * bn2[2 * C2 + c]);
    back[2 * C2 + c] = float(of_z);
    back[3 * C2 + c] = float(dbeta);
    back[4 * C2 + c] = float(dgamma);
}

template <int PARTS> constexpr int FC1_BACK_BYTES =
    PARTS * ((HIDDEN + FC_ROWS) * A2_PITCH + FC_ROWS * DH_PITCH) * 2;

// block (window, share of the batch)
template <int PRODUCTS>
__global__ void __launch_bounds__(FC_THREADS, SMALL ? 1 : 2)
fc1_backward_kernel(Work<PRODUCTS> work, Batch batch) {
    if constexpr (SMALL && PRODUCTS == 3) return __trap();
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    extern __shared__ __align__(128) unsigned char shared[];
    half* weights = reinterpret_cast<half*>(shared);
    half* a2 = weights + PARTS * HIDDEN * A2_PITCH;
    half* dh = a2 + PARTS * FC_ROWS * A2_PITCH;
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, window = blockIdx.x;
    int m0 = warp / 2, col0 = warp % 2 * 32;
    load_fc1<PARTS>(weights, work.fc1, window);
    float dw[2][4][4] = {};
    DySums sums;
    for (int first = blockIdx.y * FC_ROWS; first < batch.count;
         first += gridDim.y * FC_ROWS) {
        __syncthreads();  // the last tiles have been read
        load_a2<PRODUCTS>(a2, work, work.bn2, window, first, batch.count);
        if (first == int(blockIdx.y) * FC_ROWS) wait_for_last();  // for dh, in turn 1
        load_dh<PARTS>(dh, work.dh, first, batch.count);
        wait_for_copies();
        __syncthreads();  // tiles are there
        float da[4][4] = {};
        multiply_da2<PARTS>(da, dh, weights, m0 * 16, col0);
        store_dy<PRODUCTS>(work, da, sums, window, first + m0 * 16, col0, batch.count);
        multiply_dw1<PARTS>(dw, dh, a2, m0 * 32, col0);
    }
    float* out = work.part_fc1 + (int64_t(blockIdx.y) * WINDOWS + window) * HIDDEN * C2;
    for (int i = 0; i < 16; i++) {  // pairs of columns
        int t = i / 8, j = i / 2 % 4, h = i % 2, col = col0 + j * 8 + lane % 4 * 2;
        int row = m0 * 32 + t * 16 + h * 8 + lane / 4;
        *reinterpret_cast<float2*>(out + row * C2 + col) = {
            dw[t][j][h * 2] / G_SCALE, dw[t][j][h * 2 + 1] / G_SCALE};
    }
    __syncthreads();  // dh has been read
    store_dy_sums<PRODUCTS>(work, sums, reinterpret_cast<float*>(dh), m0, col0);
}

constexpr int BACK_THREADS = 512, BACK_WARPS = BACK_THREADS / 32;
// pixels of dz and a1 that a block needs, with a frame: 16 rows, 9 for half an image,
// and 8 pixels more
template <int SPLIT> constexpr int BACK_PIXELS = SPLIT == 1 ? 264 : 152;
constexpr int IMAGE_PITCH = 36;   // floats: four rows of four in different banks

static __device__ int place2(int pixel, int octet) {
    return pixel * C2 + (octet ^ (pixel & 7)) * 8;
}

struct Factors {  // of dy, 1 and z, for two channels
    float of_dy[2], of_one[2], of_z[2];
};

// dz of one window, two channels: dy goes to where the extreme was, the first of equal
// ones. dz: PARTS planes, from the row above y0 on
template <int PARTS, int SPLIT, typename Stored>
__device__ void store_dz(half* dz, const Pack<Pack<Stored, 4>, 2>& z,
                         const Pack<Stored, 2>& dy, const Pack<Stored, 2>& extreme,
                         const Factors& f, int window, int y0) {
    int c2 = threadIdx.x % 32 * 2;
    int top = (window / 7 * 2 - y0 + 1) * 16 + window % 7 * 2 + 1;
    bool found[2] = {};
#pragma unroll
    for (int s = 0; s < 4; s++) {
        half high[2], low[2];
        for (int e = 0; e < 2; e++) {
            float v = float(z.at[e].at[s]), d = f.of_one[e] + f.of_z[e] * v;
            if (!found[e] && v == float(extreme.at[e])) {
                d += f.of_dy[e] * float(dy.at[e]);
                found[e] = true;
            }
            split(d, high[e], low[e]);
        }
        half* to = dz + place2(top + s / 2 * 16 + s % 2, c2 / 8) + c2 % 8;
        *reinterpret_cast<half2*>(to) = __halves2half2(high[0], high[1]);
        if (PARTS == 2)
            *reinterpret_cast<half2*>(to + BACK_PIXELS<SPLIT> * C2) =
                __halves2half2(low[0], low[1]);
    }
}

// dz of `count` windows from `first` on, of image n; a warp has a window
template <int PRODUCTS, int SPLIT>
__device__ void load_dz(half* dz, const Work<PRODUCTS>& work, const float* back, int n,
                        int first, int count, int y0) {
    using Stored = typename Work<PRODUCTS>::Stored;
    constexpr int DEPTH = 2;  // windows of a warp on their way
    int warp = threadIdx.x / 32, c2 = threadIdx.x % 32 * 2;
    Factors f;
    for (int e = 0; e < 2; e++) {  // dz is to be times G_SCALE, as dy is
        f.of_dy[e] = back[c2 + e];
        f.of_one[e] = back[C2 + c2 + e] * G_SCALE;
        f.of_z[e] = back[2 * C2 + c2 + e] * G_SCALE;
    }
    for (int turn = warp; turn < count; turn += DEPTH * BACK_WARPS) {
        Pack<Pack<Stored, 4>, 2> z[DEPTH];
        Pack<Stored, 2> dy[DEPTH], extreme[DEPTH];
#pragma unroll
        for (int t = 0; t < DEPTH; t++) {
            int window = first + min(turn + t * BACK_WARPS, count - 1);
            int64_t at = (int64_t(n) * WINDOWS + window) * C2 + c2;
            z[t] = *reinterpret_cast<const Pack<Pack<Stored, 4>, 2>*>(work.z2 + at * 4);
            dy[t] = *reinterpret_cast<const Pack<Stored, 2>*>(work.dy + at);
            extreme[t] = *reinterpret_cast<const Pack<Stored, 2>*>(work.ext + at);
        }
#pragma unroll
        for (int t = 0; t < DEPTH; t++)
            if (turn + t * BACK_WARPS < count)
                store_dz<Work<PRODUCTS>::PARTS, SPLIT, Stored>(
                    dz, z[t], dy[t], extreme[t], f, first + turn + t * BACK_WARPS, y0);
    }
}

// `rows` rows of a1 from `begin` on, to planes from the row above y0 on
template <int PARTS, int SPLIT>
__device__ void load_a1(half* a1, const half* from, int begin, int rows, int y0) {
    constexpr int ROW = SIDE2 * C1 / 8;  // 16 bytes each
#pragma unroll (SPLIT == 1 ? 4 : 1)  // registers are scarce
    for (int i = threadIdx.x; i < PARTS * rows * ROW; i += BACK_THREADS) {
        int part = i / (rows * ROW), y = begin + i / ROW % rows, rest = i % ROW;
        int pixel = (y - y0 + 1) * 16 + rest / (C1 / 8) + 1;
        copy_async(a1 + part * BACK_PIXELS<SPLIT> * C1 + place1(pixel, rest % (C1 / 8)),
                   from + ((part * SIDE2 + y) * ROW + rest) * 8);
    }
}

// dw: 16 channels out by 9 taps of 8 channels in += dzᵀ · a1, over `rows` rows
template <int PARTS, int SPLIT>
__device__ void multiply_dw2(float (&dw)[TAPS][4], const half* dz, const half* a1,
                             int rows) {
    constexpr int PLANE1 = BACK_PIXELS<SPLIT> * C1, PLANE2 = BACK_PIXELS<SPLIT> * C2;
    // Addresses, in bytes, for the first row: rows are 16 pixels apart, and the swizzle
    // repeats every 8, so that the others are y rows further on. A read of four
    // matrices brings the high and low parts of a tap (three addresses, of taps 0 to 2:
    // the others' are a row or two below), or else two taps (five pairs, the last one
    // half used)
    constexpr int READS = PARTS == 2 ? 3 : 5, ROW1 = 16 * C1 * 2, ROW2 = 16 * C2 * 2;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned b_at[READS], a_at = address(dz + place2(17 + lane % 8 + lane / 16 * 8,
                                                     warp % 4 * 2 + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < READS; i++) {
        int tap = PARTS == 2 ? i : min(i * 2 + lane / 16, TAPS - 1);
        int pixel = tap / 3 * 16 + tap % 3 + lane % 16;
        b_at[i] = address(a1 + place1(pixel, warp / 4) +
                          (PARTS == 2 ? lane / 16 * PLANE1 : 0));
    }
    float part[TAPS][4] = {};
#pragma unroll 1
    for (int y = 0; y < rows; y++) {  // 16 pixels of a row, the last two 0
        unsigned a[PARTS][4];
        for (int p = 0; p < PARTS; p++)
            ldmatrix_t(a[p], a_at + y * ROW2 + p * PLANE2 * 2);
#pragma unroll
        for (int tap = 0; tap < TAPS; tap += 3 - PARTS) {
            unsigned r[4], b[PARTS][4];
            if constexpr (PARTS == 2) {
                ldmatrix_t(r, b_at[tap % 3] + (y + tap / 3) * ROW1);
                for (int i = 0; i < 2; i++) b[i][0] = r[i * 2], b[i][1] = r[i * 2 + 1];
                multiply<PARTS>(part[tap], a, b, 0);
            } else {
                ldmatrix_t(r, b_at[tap / 2] + y * ROW1);
                mma(dw[tap], a[0], r[0], r[1]);
                if (tap + 1 < TAPS) mma(dw[tap + 1], a[0], r[2], r[3]);
            }
        }
    }
    if (PARTS == 2)
        for (int i = 0; i < TAPS * 4; i++) dw[i / 4][i % 4] += part[i / 4][i % 4];
}

// acc += the transposed convolution over COUNT taps from `first` on: a row of pixels by
// COLS · 16 channels; row: of the plane
template <int PARTS, int SPLIT, int COUNT, int COLS>
__device__ void multiply_da1(float (&acc)[2 * COLS][4], const half* dz,
                             const half* weights, int row, int first) {
    constexpr int PLANE2 = BACK_PIXELS<SPLIT> * C2;
    int lane = threadIdx.x % 32;
    unsigned b_at = address(weights + lane % 16 * TAPS_PITCH<COUNT> + lane / 16 * 8);
#pragma unroll 1
    for (int tap = first; tap < first + COUNT; tap++, b_at += C1 * 2) {
        float sum[2 * COLS][4] = {};
        int pixel = (row - tap / 3 + 2) * 16 + lane % 16 - tap % 3 + 2;
        unsigned a_at = address(dz + place2(pixel, lane / 16));
#pragma unroll
        for (int k = 0; k < C2 / 16; k++) {
            unsigned a[PARTS][4], b[COLS][PARTS][4];
            for (int p = 0; p < PARTS; p++) {
                ldmatrix(a[p], (a_at ^ k * 32) + p * PLANE2 * 2);  // two octets on
                for (int t = 0; t < COLS; t++)
                    ldmatrix_t(b[t][p], b_at + ((p * C2 + k * 16) * TAPS_PITCH<COUNT> +
                                                t * 16) * 2);
            }
            for (int j = 0; j < 2 * COLS; j++)
                multiply<PARTS>(PARTS == 2 ? sum[j] : acc[j], a, b[j / 2], j % 2 * 2);
        }
        if (PARTS == 2)
            for (int j = 0; j < 8 * COLS; j++) acc[j / 4][j % 4] += sum[j / 4][j % 4];
    }
}

template <int COLS>
__device__ void store_da1(float* da1, const float (&acc)[2 * COLS][4], int row,
                          int c0) {
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 4 * COLS; i++) {
        int j = i / 2, h = i % 2, x = lane / 4 + h * 8;
        if (x < SIDE2)
            *reinterpret_cast<float2*>(da1 + (row * SIDE2 + x) * C1 + c0 + j * 8 +
                                       lane % 4 * 2) = {acc[j][h * 2] / W_SCALE,
                                                        acc[j][h * 2 + 1] / W_SCALE};
    }
}

constexpr int CONV1_SUMS = 12;  // a channel: Σ dy · patch, Σ dy, and two unused

// a lane, a channel: da1 goes to where the maximum was, times the patch around it
static __device__ void conv1_sums(float (&sums)[10], const float* da1,
                                  const float* image, const uint8_t* codes, int count) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 4
    for (int pos = warp; pos < count; pos += BACK_WARPS) {
        float dy = da1[pos * C1 + lane];
        int code = codes[pos * C1 + lane];
        if (code == 4) dy = 0, code = 0;
        const float* top = image + (pos / SIDE2 * 2 + code / 2) * IMAGE_PITCH +
                           pos % SIDE2 * 2 + code % 2;
#pragma unroll
        for (int k = 0; k < 9; k++) sums[k] += dy * top[k / 3 * IMAGE_PITCH + k % 3];
        sums[9] += dy;
    }
}

// all warps' sums to the block's, four channels of all blocks together
static __device__ void store_conv1_sums(float* part_conv1, const float (&sums)[10],
                                        float* scratch) {
    constexpr int COUNT = CONV1_SUMS * C1;
    for (int k = 0; k < CONV1_SUMS; k++)
        scratch[threadIdx.x * CONV1_SUMS + k] = k < 10 ? sums[k < 10 ? k : 0] : 0;
    __syncthreads();  // all warps' sums are there
    for (int i = threadIdx.x; i < COUNT; i += BACK_THREADS) {
        float sum = 0;
        for (int w = 0; w < BACK_WARPS; w++) sum += scratch[w * COUNT + i];
        int group = i / (4 * CONV1_SUMS), rest = i % (4 * CONV1_SUMS);
        part_conv1[(group * gridDim.x + blockIdx.x) * 4 * CONV1_SUMS + rest] =
            sum / G_SCALE;
    }
}

static __device__ void store_dw2(float* out, const float (&dw)[TAPS][4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tap = 0; tap < TAPS; tap++)
        for (int h = 0; h < 2; h++) {
            int row = warp % 4 * 16 + lane / 4 + h * 8;
            int col = tap * C1 + warp / 4 * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(out + row * K2 + col) = {
                dw[tap][h * 2] / G_SCALE, dw[tap][h * 2 + 1] / G_SCALE};
        }
}

// What a block has in shared memory: an image or, if SPLIT is 2, always the same half
// of one, and the weights of COUNT taps at a time
template <int PARTS, int SPLIT, int COUNT> struct Tile {
    static constexpr int ROWS = SIDE2 / SPLIT, OWN = ROWS * SIDE2 * C1;
    static constexpr int PLANE1 = BACK_PIXELS<SPLIT> * C1;
    static constexpr int PLANE2 = BACK_PIXELS<SPLIT> * C2;
    static constexpr int BYTES =
        PARTS * (PLANE1 + PLANE2 + C2 * TAPS_PITCH<COUNT>) * 2 +
        (OWN + 30 * IMAGE_PITCH + 5 * C2) * 4 + OWN;
    half *dz, *a1, *weights;
    float *da1, *image, *back;  // da1: times G_SCALE; back: (5, C2)
    uint8_t* codes;             // of its own rows

    __device__ explicit Tile(unsigned char* shared) {
        dz = reinterpret_cast<half*>(shared);
        a1 = dz + PARTS * PLANE2;
        weights = a1 + PARTS * PLANE1;
        da1 = reinterpret_cast<float*>(weights + PARTS * C2 * TAPS_PITCH<COUNT>);
        image = da1 + OWN;
        back = image + 30 * IMAGE_PITCH;
        codes = reinterpret_cast<uint8_t*>(back + 5 * C2);
        for (int i = threadIdx.x; i < PARTS * (PLANE1 + PLANE2) / 8; i += BACK_THREADS)
            reinterpret_cast<uint4*>(dz)[i] = make_uint4(0, 0, 0, 0);
        for (int i = threadIdx.x; i < 30 * IMAGE_PITCH; i += BACK_THREADS) image[i] = 0;
        __syncthreads();  // the frames are 0
    }

    // a1 of image n, with a row more than its own if there is one, codes and pixels
    template <int PRODUCTS>
    __device__ void load(const Work<PRODUCTS>& work, const Batch& batch, int64_t n,
                         int side) {
        load_a1<PARTS, SPLIT>(a1, work.a1 + n * PARTS * PIXELS2 * C1, side * (ROWS - 1),
                              SPLIT == 1 ? SIDE2 : ROWS + 1, side * ROWS);
        const uint8_t* from = work.codes + n * PIXELS2 * C1 + side * OWN;
        for (int i = threadIdx.x * 16; i < OWN; i += BACK_THREADS * 16)
            copy_async(codes + i, from + i);
        store_image<IMAGE_PITCH>(image, fetch_image(batch, n));
    }
};

// all blocks' sums to the factors of dz, in `back`; total: room for 18 C2 numbers
template <int PRODUCTS>
__device__ void make_factors(const Work<PRODUCTS>& work, float* back, double* total,
                             int count) {
    int tid = threadIdx.x;
    add_up<2 * C2, 8>(total, work.part_back, WINDOWS * work.fc1_parts);
    if (tid < C2) back_factors(back, work.bn2, total, tid, count);
    __syncthreads();  // factors are there
    if (blockIdx.x == 0 && tid < 2 * C2) work.bn2_back[tid] = back[3 * C2 + tid];
}

// SPLIT: blocks for an image, 1 or 2; COUNT: taps whose weights are there at a time
template <int PRODUCTS, int SPLIT, int COUNT>
__global__ void __launch_bounds__(BACK_THREADS)
conv_backward_kernel(Work<PRODUCTS> work, Batch batch) {
    if constexpr (SMALL && (PRODUCTS == 3 || COUNT == TAPS)) return __trap();
    constexpr int PARTS = Work<PRODUCTS>::PARTS, COLS = 2 / SPLIT;
    constexpr int ROWS = SIDE2 / SPLIT;
    extern __shared__ __align__(128) unsigned char shared[];
    int warp = threadIdx.x / 32, task = blockIdx.x, side = task % SPLIT;
    Tile<PARTS, SPLIT, COUNT> tile(shared);
    if (COUNT == TAPS)
        load_weights<PARTS, BACK_THREADS, TAPS>(tile.weights, work.conv2, 0);
    tile.load(work, batch, task / SPLIT, side);
    wait_for_last();
    make_factors(work, tile.back, reinterpret_cast<double*>(tile.da1), batch.count);
    float dw[TAPS][4] = {}, sums[10] = {};
    for (; task < batch.count * SPLIT; task += gridDim.x) {
        int n = task / SPLIT, row = warp % ROWS, c0 = warp / ROWS * 16;
        if (task != int(blockIdx.x)) {
            __syncthreads();  // the last image has been read
            tile.load(work, batch, n, side);
        }
        load_dz<PRODUCTS, SPLIT>(tile.dz, work, tile.back, n, side * 21,
                                 SPLIT == 1 ? WINDOWS : 28, side * ROWS);
        wait_for_copies();
        __syncthreads();  // dz, a1, the image and the weights are there
        multiply_dw2<PARTS, SPLIT>(dw, tile.dz, tile.a1, ROWS);
        float acc[2 * COLS][4] = {};
#pragma unroll 1
        for (int tap = 0; tap < TAPS; tap += COUNT) {
            if (COUNT < TAPS) {
                load_weights<PARTS, BACK_THREADS, COUNT>(tile.weights, work.conv2, tap);
                wait_for_copies();
                __syncthreads();  // these weights are there
            }
            if (warp < SIDE2)
                multiply_da1<PARTS, SPLIT, COUNT, COLS>(acc, tile.dz, tile.weights + c0,
                                                        row, tap);
            if (COUNT < TAPS) __syncthreads();  // they have been read
        }
        if (warp < SIDE2) store_da1<COLS>(tile.da1, acc, row, c0);
        __syncthreads();  // da1 is there
        conv1_sums(sums, tile.da1, tile.image + side * 14 * IMAGE_PITCH, tile.codes,
                   ROWS * SIDE2);
    }
    store_dw2(work.part_conv2 + int64_t(blockIdx.x) * C2 * K2, dw);
    __syncthreads();  // shared memory has been read
    store_conv1_sums(work.part_conv1, sums, reinterpret_cast<float*>(shared));
}

// conv1 and its batch norm, channel c: sums over dy and the moments give the gradient.
// The mean and dy · zhat enter by Σ patch and Σ (z - mean) patch: moments, both
template <int PRODUCTS>
__device__ void update_first(Net net, const Work<PRODUCTS>& work, const double* sums,
                             int c, int count, float rate) {
    double n = double(count) * PIXELS1, mean = work.bn1[2 * C1 + c];
    double invstd = work.bn1[3 * C1 + c], scale = work.bn1[c];
    double dbeta = sums[9], dgamma = -mean * dbeta, w[9], of_z[9];
#pragma unroll
    for (int i = 0; i < 9; i++) {
        w[i] = net.conv1[c * 9 + i];
        dgamma += w[i] * sums[i];
        of_z[i] = -mean * work.moments[i];
    }
    dgamma *= invstd;
    int k = 9;
#pragma unroll
    for (int i = 0; i < 9; i++)
#pragma unroll
        for (int j = i; j < 9; j++, k++) {
            double moment = work.moments[k];
            of_z[i] += w[j] * moment;
            if (i != j) of_z[j] += w[i] * moment;
        }
#pragma unroll
    for (int i = 0; i < 9; i++) {
        double gradient = scale * (sums[i] - dbeta / n * work.moments[i] -
                                   dgamma / n * invstd * of_z[i]);
        net.conv1[c * 9 + i] = float(w[i] - rate * gradient);
    }
    net.gamma1[c] -= float(rate * dgamma);
    net.beta1[c] -= float(rate * dbeta);
}

// four weights, in parts, times W_SCALE
template <int PARTS>
__device__ void store_parts(half* to, int64_t plane, int64_t i, float4 w) {
    float v[4] = {w.x, w.y, w.z, w.w};
    Pack<half, 4> parts[2];
    for (int j = 0; j < 4; j++) split(v[j] * W_SCALE, parts[0].at[j], parts[1].at[j]);
    for (int p = 0; p < PARTS; p++)
        *reinterpret_cast<Pack<half, 4>*>(to + p * plane + i) = parts[p];
}

constexpr int UPDATE_THREADS = 256, FC1_BLOCKS = FC1 / 4 / UPDATE_THREADS;
constexpr int CONV2_BLOCKS = C2 * K2 / 32, HEAD_BLOCKS = (HEAD + 31) / 32;

// four weights of fc1: add up the blocks' gradients, step, split
template <int PRODUCTS>
__device__ void update_fc1(Net net, const Work<PRODUCTS>& work, int64_t i, float rate) {
    float4 g = make_float4(0, 0, 0, 0);
    for (int p = 0; p < work.fc1_parts; p++) {
        float4 v = *reinterpret_cast<const float4*>(work.part_fc1 + p * FC1 + i);
        g.x += v.x, g.y += v.y, g.z += v.z, g.w += v.w;
    }
    float4 w = *reinterpret_cast<float4*>(net.fc1 + i);
    w.x -= rate * g.x, w.y -= rate * g.y, w.z -= rate * g.z, w.w -= rate * g.w;
    *reinterpret_cast<float4*>(net.fc1 + i) = w;
    store_parts<Work<PRODUCTS>::PARTS>(work.fc1, FC1, i, w);
}

// sum over partial results: 32 numbers a block, 8 threads each
static __device__ float sum_parts(const float* from, int i, int total, int parts) {
    __shared__ float slices[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0;
    if (i < total)
#pragma unroll 16
        for (int p = warp; p < parts; p += 8) sum += from[int64_t(p) * total + i];
    slices[warp][lane] = sum;
    __syncthreads();  // all slices are there
    sum = 0;
    for (int w = 0; w < 8; w++) sum += slices[w][lane];
    return sum;
}

template <int PRODUCTS>
__global__ void __launch_bounds__(UPDATE_THREADS)
update_kernel(Net net, Work<PRODUCTS> work, int count, float lr) {
    int tid = threadIdx.x, lane = tid % 32, block = blockIdx.x;
    float rate = lr / count;
    if (block < FC1_BLOCKS)  // conv_backward, which may still run, knows none of these
        return update_fc1<PRODUCTS>(net, work,
                                    (int64_t(block) * UPDATE_THREADS + tid) * 4, rate);
    wait_for_last();
    block -= FC1_BLOCKS;
    if (block < CONV2_BLOCKS) {
        int i = block * 32 + lane;
        float g = sum_parts(work.part_conv2, i, C2 * K2, work.conv_blocks);
        if (tid >= 32) return;
        float w = net.conv2[i] - rate * g;
        net.conv2[i] = w;
        half parts[2];
        split(w * W_SCALE, parts[0], parts[1]);
        for (int p = 0; p < Work<PRODUCTS>::PARTS; p++)
            work.conv2[p * C2 * K2 + i] = parts[p];
        return;
    }
    block -= CONV2_BLOCKS;
    if (block < HEAD_BLOCKS) {
        int i = block * 32 + lane;
        float g = sum_parts(work.part_head, i, HEAD, work.head_blocks);
        if (tid >= 32 || i >= HEAD) return;
        if (i < CLASSES * HIDDEN) net.fc2[i] -= rate * g;
        else if ((i -= CLASSES * HIDDEN) < CLASSES) net.bias2[i] -= rate * g;
        else if ((i -= CLASSES) < HIDDEN) net.bias1[i] -= rate * g;
        else *work.loss = g / count;
        return;
    }
    block -= HEAD_BLOCKS;
    if (block < C1 / 4) {  // four channels of conv1
        constexpr int WIDTH = 4 * CONV1_SUMS;
        __shared__ double total[17 * WIDTH];
        const float* parts = work.part_conv1 + block * work.conv_blocks * WIDTH;
        add_up<WIDTH, 16>(total, parts, work.conv_blocks);
        if (tid < 4)
            update_first<PRODUCTS>(net, work, total + tid * CONV1_SUMS, block * 4 + tid,
                                   count, rate);
    } else if (tid < C2) {
        net.gamma2[tid] -= rate * work.bn2_back[C2 + tid];
        net.beta2[tid] -= rate * work.bn2_back[tid];
    }
}

// the parts of the weights, before the first step
template <int PRODUCTS> __global__ void prepare_kernel(Net net, Work<PRODUCTS> work) {
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    auto four = [&](const float* w) { return *reinterpret_cast<const float4*>(w + i); };
    if (i < FC1) store_parts<PARTS>(work.fc1, FC1, i, four(net.fc1));
    if (i < C2 * K2) store_parts<PARTS>(work.conv2, C2 * K2, i, four(net.conv2));
}

static int64_t multiprocessors() {
    int device = 0, count = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    auto asked = cudaDevAttrMultiProcessorCount;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, asked, device));
    return count;
}

// the most that a block can have, also in a build for sm_75 that a later GPU runs
static int shared_memory() {
    int device = 0, bytes = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    auto asked = cudaDevAttrMaxSharedMemoryPerBlockOptin;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, asked, device));
    cudaFuncAttributes built;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&built, prepare_kernel<1>));
    if (built.ptxVersion < 80) bytes = std::min(bytes, 64 * 1024);  // see SMALL
    return bytes;
}

// blocks for an image: two where there are SMs for them, or no memory for a whole one
template <int PARTS> static int split_of(int64_t n, int64_t sms) {
    return n < sms || Tile<PARTS, 1, TAPS>::BYTES > shared_memory() ? 2 : 1;
}

// Give every array of a step for n images its place from `base` on; return the bytes.
template <int PRODUCTS>
static int64_t carve(Work<PRODUCTS>& work, char* base, int64_t n) {
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    int64_t used = 0, sms = multiprocessors(), tiles = cdiv(int(n), FC_ROWS);
    int split = split_of<PARTS>(n, sms);
    auto take = [&](auto*& pointer, int64_t count) {
        using Pointer = std::remove_reference_t<decltype(pointer)>;
        pointer = reinterpret_cast<Pointer>(base + used);
        used += (count * int64_t(sizeof(*pointer)) + 255) / 256 * 256;
    };
    work.moment_blocks = int(std::min(n, 2 * sms));
    work.forward_blocks = int(std::min(n * split, 2 * sms));
    work.slices = int(std::clamp<int64_t>(2 * sms / tiles, 1, 25));
    work.fc1_parts = int(std::clamp<int64_t>(2 * sms / WINDOWS, 1, tiles));
    work.conv_blocks = int(std::min(n * split, sms / split * split));
    work.head_blocks = int(std::min<int64_t>(cdiv(int(n), HEAD_THREADS / 32), sms));
    take(work.conv2, PARTS * C2 * K2), take(work.fc1, PARTS * FC1);
    take(work.moments, MOMENTS), take(work.bn1, 4 * C1), take(work.bn2, 4 * C2);
    take(work.bn2_back, 2 * C2);
    take(work.part_moments, work.moment_blocks * MOMENTS);
    take(work.part_stats, work.forward_blocks * 2 * C2);
    take(work.part_back, int64_t(WINDOWS) * work.fc1_parts * 2 * C2);
    take(work.part_head, int64_t(work.head_blocks) * HEAD);
    take(work.part_fc1, work.fc1_parts * FC1);
    take(work.part_conv2, int64_t(work.conv_blocks) * C2 * K2);
    take(work.part_conv1, int64_t(work.conv_blocks) * CONV1_SUMS * C1);
    take(work.a1, n * PARTS * PIXELS2 * C1), take(work.codes, n * PIXELS2 * C1);
    take(work.z2, n * WINDOWS * C2 * 4), take(work.ext, n * WINDOWS * C2);
    take(work.hidden, n * work.slices * HIDDEN), take(work.dh, n * PARTS * HIDDEN);
    take(work.dy, n * WINDOWS * C2);
    return used;
}

// early: it may begin while the one before it ends, and so has to call wait_for_last
template <typename Kernel, typename... Arguments>
static void launch(bool early, Kernel kernel, dim3 grid, int threads, int bytes,
                   Arguments... arguments) {
    cudaFuncAttributes compiled;
    C10_CUDA_CHECK(cudaFuncGetAttributes(&compiled, kernel));
    int needed = bytes + int(compiled.sharedSizeBytes), most = shared_memory();
    TORCH_CHECK(needed <= most, "mnist_cnn needs ", needed, " bytes of shared memory "
                "for a block, this GPU has ", most);
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.stream = getCurrentCUDAStream();
    config.attrs = &attribute;
    config.numAttrs = early && compiled.ptxVersion >= 90;  // for sm_90 or later
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int PRODUCTS, int SPLIT, bool TRAIN>
static void forward(Net net, Work<PRODUCTS> work, Batch batch) {
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    // it reads weights before wait_for_last; without TRAIN the kernel before it, of
    // another call, may have written them
    launch(TRAIN, conv_forward_kernel<PRODUCTS, SPLIT, TRAIN>, work.forward_blocks,
           FORWARD_WARPS * 32 * SPLIT, FORWARD_BYTES<PARTS, SPLIT>, net, work, batch);
    launch(true, fc1_forward_kernel<PRODUCTS, TRAIN>,
           dim3(cdiv(batch.count, FC_ROWS), work.slices), FC_THREADS, FC1_BYTES<PARTS>,
           net, work, batch);
}

template <int PRODUCTS, int SPLIT>
static void step(Net net, Work<PRODUCTS> work, Batch batch, float lr) {
    constexpr int PARTS = Work<PRODUCTS>::PARTS;
    int n = batch.count;
    launch(true, moments_kernel<PRODUCTS>, work.moment_blocks, MOMENT_THREADS, 0, work,
           batch);
    forward<PRODUCTS, SPLIT, true>(net, work, batch);
    launch(true, head_kernel<PRODUCTS>, work.head_blocks, HEAD_THREADS, 0, net, work,
           batch);
    launch(true, fc1_backward_kernel<PRODUCTS>, dim3(WINDOWS, work.fc1_parts),
           FC_THREADS, FC1_BACK_BYTES<PARTS>, work, batch);
    constexpr int FEW = PARTS == 2 ? 1 : 3;  // taps at a time, where memory is short
    if (SPLIT == 1 || Tile<PARTS, SPLIT, TAPS>::BYTES <= shared_memory())
        launch(true, conv_backward_kernel<PRODUCTS, SPLIT, TAPS>, work.conv_blocks,
               BACK_THREADS, Tile<PARTS, SPLIT, TAPS>::BYTES, work, batch);
    else
        launch(true, conv_backward_kernel<PRODUCTS, 2, FEW>, work.conv_blocks,
               BACK_THREADS, Tile<PARTS, 2, FEW>::BYTES, work, batch);
    int blocks = FC1_BLOCKS + CONV2_BLOCKS + HEAD_BLOCKS + C1 / 4 + 1;
    launch(true, update_kernel<PRODUCTS>, blocks, UPDATE_THREADS, 0, net, work, n, lr);
}

static void check(const std::string& name, const Tensor& x, torch::ScalarType type,
                  const Tensor& like) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == type && x.is_contiguous() &&
                x.device() == like.device() &&
                reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0, name,
                ": expected contiguous ", type == torch::kFloat32 ? "float32" :
                type == torch::kInt64 ? "int64" : "uint8", " on the parameters' CUDA "
                "device, aligned to 16 bytes, got ", x.scalar_type(), " on ",
                x.device(), ", strides ", x.strides(), ", at ", x.data_ptr());
}

static Net net_of(const std::vector<Tensor>& parameters) {
    const int64_t sizes[] = {C1 * 9, C1, C1, C1, C1, C2 * K2, C2, C2, C2, C2,
                             FC1, HIDDEN, CLASSES * HIDDEN, CLASSES};
    TORCH_CHECK(parameters.size() == 14, "parameters: expected 14, got ",
                parameters.size());
    float* at[14];
    for (int i = 0; i < 14; i++) {
        const Tensor& p = parameters[i];
        std::string name = "parameters[" + std::to_string(i) + "]";
        check(name, p, torch::kFloat32, parameters[0]);
        TORCH_CHECK(p.numel() == sizes[i], name, ": expected ", sizes[i],
                    " numbers, got ", p.numel());
        at[i] = p.data_ptr<float>();
    }
    return {at[0], at[1], at[2], at[3], at[4], at[5], at[6],
            at[7], at[8], at[9], at[10], at[11], at[12], at[13]};
}

template <int PRODUCTS>
static Tensor prepare(Net net, const Tensor& like, int64_t count) {
    Work<PRODUCTS> work;
    int64_t bytes = carve(work, nullptr, count);
    Tensor workspace = torch::zeros({bytes}, like.options().dtype(torch::kUInt8));
    carve(work, static_cast<char*>(workspace.data_ptr()), count);
    launch(false, prepare_kernel<PRODUCTS>, cdiv(FC1 / 4, 256), 256, 0, net, work);
    return workspace;
}

// memory for steps of `count` images, and the weights in it as they are now
Tensor mnist_cnn_prepare(std::vector<Tensor> parameters, int64_t count, bool exact) {
    TORCH_CHECK(count > 0 && count < 1 << 20, "count: expected 1 to 2^20 - 1, got ",
                count);
    Net net = net_of(parameters);
    c10::cuda::CUDAGuard guard(parameters[0].device());
    return exact ? prepare<3>(net, parameters[0], count)
                 : prepare<1>(net, parameters[0], count);
}

template <int PRODUCTS> static Work<PRODUCTS> work_in(Tensor workspace, int64_t count) {
    Work<PRODUCTS> work;
    int64_t bytes = carve(work, static_cast<char*>(workspace.data_ptr()), count);
    TORCH_CHECK(workspace.numel() == bytes, "workspace: expected ", bytes,
                " bytes for ", count, " images, got ", workspace.numel());
    return work;
}

template <int PRODUCTS>
static Tensor step(Net net, Tensor workspace, Batch batch, float lr) {
    Work<PRODUCTS> work = work_in<PRODUCTS>(workspace, batch.count);
    Tensor loss = torch::empty({1}, workspace.options().dtype(torch::kFloat32));
    work.loss = loss.data_ptr<float>();
    if (split_of<Work<PRODUCTS>::PARTS>(batch.count, multiprocessors()) == 2)
        step<PRODUCTS, 2>(net, work, batch, lr);
    else
        step<PRODUCTS, 1>(net, work, batch, lr);
    return loss;
}

// one step on the rows `index` of images and labels: the loss, (1,); exact: as exact as
// float32
Tensor mnist_cnn_step(std::vector<Tensor> parameters, Tensor workspace, Tensor images,
                      Tensor labels, Tensor index, double lr, bool exact) {
    Net net = net_of(parameters);
    check("workspace", workspace, torch::kUInt8, parameters[0]);
    check("images", images, torch::kFloat32, parameters[0]);
    check("labels", labels, torch::kInt64, parameters[0]);
    check("index", index, torch::kInt64, parameters[0]);
    TORCH_CHECK(images.numel() == labels.numel() * PIXELS1,
                "images: expected 28 × 28 for each of ", labels.numel(),
                " labels, got ", images.numel(), " numbers");
    c10::cuda::CUDAGuard guard(images.device());
    Batch batch{images.data_ptr<float>(), labels.data_ptr<int64_t>(),
                index.data_ptr<int64_t>(), labels.numel(), int(index.numel())};
    return exact ? step<3>(net, workspace, batch, float(lr))
                 : step<1>(net, workspace, batch, float(lr));
}

template <int PRODUCTS>
static Tensor predict(Net net, Tensor workspace, Batch batch) {
    Work<PRODUCTS> work = work_in<PRODUCTS>(workspace, batch.count);
    Tensor logits = torch::empty({batch.count, CLASSES},
                                 workspace.options().dtype(torch::kFloat32));
    float* out = logits.data_ptr<float>();
    if (split_of<Work<PRODUCTS>::PARTS>(batch.count, multiprocessors()) == 2)
        forward<PRODUCTS, 2, false>(net, work, batch);
    else
        forward<PRODUCTS, 1, false>(net, work, batch);
    launch(true, logits_kernel<PRODUCTS>, work.head_blocks, HEAD_THREADS, 0, net, work,
           out, batch.count);
    return logits;
}

// logits, (N, 10), of images, (N, 28, 28), by the running statistics, as in eval mode;
// workspace: for N images, prepared since the parameters were last changed
Tensor mnist_cnn_predict(std::vector<Tensor> parameters, Tensor workspace,
                         Tensor images, bool exact) {
    Net net = net_of(parameters);
    check("workspace", workspace, torch::kUInt8, parameters[0]);
    check("images", images, torch::kFloat32, parameters[0]);
    TORCH_CHECK(images.numel() > 0 && images.numel() % PIXELS1 == 0, "images: expected "
                "28 × 28 numbers for each, got ", images.numel(), " numbers");
    c10::cuda::CUDAGuard guard(images.device());
    int64_t count = images.numel() / PIXELS1;
    Batch batch{images.data_ptr<float>(), nullptr, nullptr, count, int(count)};
    return exact ? predict<3>(net, workspace, batch)
                 : predict<1>(net, workspace, batch);
}
