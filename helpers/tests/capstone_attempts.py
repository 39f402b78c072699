"""Attempts at the capstones for test_capstones.py: of each op a naive kernel and a good one."""

HEAD = """
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>
using torch::Tensor;
static auto stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
"""

HISTOGRAM_LAUNCH = """
Tensor histogram(Tensor inp) {
    auto out = torch::zeros({256}, inp.options().dtype(torch::kLong));
    int64_t n = inp.numel();
    if (n) histogram_kernel<<<BLOCKS, 256, 0, stream()>>>(
        reinterpret_cast<unsigned long long*>(out.data_ptr<int64_t>()),
        inp.data_ptr<uint8_t>(), n);
    return out;
}
"""
HISTOGRAM_NAIVE = """
#define BLOCKS (n + 255) / 256
__global__ void histogram_kernel(unsigned long long* out, const uint8_t* inp, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out + inp[i], 1);
}
"""
HISTOGRAM_GOOD = """
#define BLOCKS 8
__global__ void histogram_kernel(unsigned long long* out, const uint8_t* inp, int64_t n) {
    __shared__ unsigned counts[256 * 32];
    int t = threadIdx.x, lane = t % 32;
    for (int i = t; i < 256 * 32; i += 256) counts[i] = 0;
    __syncthreads();  // all counters are zero
    int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + t; i < n; i += step)
        atomicAdd(counts + 32 * inp[i] + lane, 1);
    __syncthreads();  // all bytes are counted
    unsigned sum = 0;
    for (int j = 0; j < 32; j++) sum += counts[32 * t + (j + t) % 32];
    if (sum) atomicAdd(out + t, sum);
}
"""

SOFTMAX_LAUNCH = """
template <typename T> void start(Tensor out, Tensor inp) {
    int64_t C = inp.size(-1), rows = inp.numel() / C;
    softmax_kernel<<<(32 * WARPS(rows) + 127) / 128, 128, 0, stream()>>>(
        static_cast<T*>(out.data_ptr()), static_cast<const T*>(inp.data_ptr()), rows, C);
}
Tensor softmax_forward(Tensor inp) {
    auto out = torch::empty_like(inp);
    if (!inp.numel()) return out;
    if (inp.scalar_type() == torch::kFloat) start<float>(out, inp);
    else if (inp.scalar_type() == torch::kHalf) start<c10::Half>(out, inp);
    else start<c10::BFloat16>(out, inp);
    return out;
}
"""
SOFTMAX_NAIVE = """
#define WARPS(rows) ((rows + 31) / 32)
template <typename T>
__global__ void softmax_kernel(T* out, const T* inp, int64_t rows, int64_t C) {
    int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < C; c++) {
        float x = inp[row * C + c];
        largest = x > largest || isnan(x) ? x : largest;
    }
    for (int64_t c = 0; c < C; c++) sum += expf(float(inp[row * C + c]) - largest);
    for (int64_t c = 0; c < C; c++)
        out[row * C + c] = T(expf(float(inp[row * C + c]) - largest) / sum);
}
"""
SOFTMAX_GOOD = """
#define WARPS(rows) (rows)
template <typename T>
__global__ void softmax_kernel(T* out, const T* inp, int64_t rows, int64_t C) {
    int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // the whole warp
    float largest = -INFINITY, sum = 0;
    for (int64_t c = lane; c < C; c += 32) {
        float x = inp[row * C + c], top = fmaxf(largest, x);
        if (top > -INFINITY || isnan(x)) sum = sum * expf(largest - top) + expf(x - top);
        largest = top;
    }
    float top = largest;
    for (int k = 16; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, k));
    sum *= largest > -INFINITY || isnan(sum) ? expf(largest - top) : 0;
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(0xffffffff, sum, k);
    for (int64_t c = lane; c < C; c += 32)
        out[row * C + c] = T(expf(float(inp[row * C + c]) - top) / sum);
}
"""

MATMUL_LAUNCH = """
Tensor matmul(Tensor A, Tensor B) {
    int M = A.size(0), K = A.size(1), N = B.size(1);
    auto out = torch::empty({M, N}, A.options());
    if (out.numel()) product_kernel<<<dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE),
                                      dim3(16, 16), 0, stream()>>>(
        out.data_ptr<float>(), A.data_ptr<float>(), B.data_ptr<float>(), M, N, K, A.stride(0),
        A.stride(1), B.stride(0), B.stride(1));
    return out;
}
"""
MATMUL_NAIVE = """
constexpr int TILE = 16;
__global__ void product_kernel(float* out, const float* A, const float* B, int M, int N, int K,
                               int a_row, int a_col, int b_row, int b_col) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float acc = 0;
    for (int k = 0; k < K; k++) acc += A[row * a_row + k * a_col] * B[k * b_row + col * b_col];
    out[row * N + col] = acc;
}
"""
MATMUL_GOOD = """
constexpr int TILE = 64;
__global__ void product_kernel(float* out, const float* A, const float* B, int M, int N, int K,
                               int a_row, int a_col, int b_row, int b_col) {
    __shared__ float a[16][TILE + 4], b[16][TILE];
    int x = threadIdx.x, y = threadIdx.y, t = 16 * y + x;
    int row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    float acc[4][4] = {};
    for (int first = 0; first < K; first += 16) {
        for (int i = t; i < 16 * TILE; i += 256) {
            int k = i % 16, m = i / 16, l = i / TILE, n = i % TILE;
            bool in_a = row + m < M && first + k < K, in_b = first + l < K && col + n < N;
            a[k][m] = in_a ? A[(row + m) * a_row + (first + k) * a_col] : 0;
            b[l][n] = in_b ? B[(first + l) * b_row + (col + n) * b_col] : 0;
        }
        __syncthreads();  // the tiles are complete
        for (int k = 0; k < min(16, K - first); k++) {
            float4 p = *reinterpret_cast<float4*>(&a[k][4 * y]);
            float4 q = *reinterpret_cast<float4*>(&b[k][4 * x]);
            float left[] = {p.x, p.y, p.z, p.w}, right[] = {q.x, q.y, q.z, q.w};
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) acc[i][j] += left[i] * right[j];
        }
        __syncthreads();  // they are read
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (row + 4 * y + i < M && col + 4 * x + j < N)
                out[(row + 4 * y + i) * N + col + 4 * x + j] = acc[i][j];
}
"""

ATTENTION_NAIVE = """
// scores, out: a thread a number
__global__ void scores_kernel(float* scores, const float* q, const float* k, int S_q, int S_kv,
                              int D, int64_t n, bool causal) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t head = i / S_kv / S_q, row = i / S_kv % S_q, key = i % S_kv;
    float sum = 0;
    for (int d = 0; d < D; d++)
        sum += q[(head * S_q + row) * D + d] * k[(head * S_kv + key) * D + d];
    scores[i] = causal && key > row ? -INFINITY : sum / sqrtf(D);
}
__global__ void rows_kernel(float* out, const float* scores, const float* v, int S_q, int S_kv,
                            int D, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t head = i / D / S_q, d = i % D;
    const float* row = scores + i / D * S_kv;
    float top = -INFINITY, sum = 0, acc = 0;
    for (int j = 0; j < S_kv; j++) top = fmaxf(top, row[j]);
    for (int j = 0; j < S_kv; j++) {
        float p = expf(row[j] - top);
        sum += p;
        acc += p * v[(head * S_kv + j) * D + d];
    }
    out[i] = acc / sum;
}
Tensor attention_forward(Tensor q, Tensor k, Tensor v, bool causal) {
    auto out = torch::empty_like(q);
    int64_t B = q.size(0), H = q.size(1), S_q = q.size(2), S_kv = k.size(2), D = q.size(3);
    auto scores = torch::empty({B, H, S_q, S_kv}, q.options());
    int64_t n = scores.numel(), m = out.numel();
    if (!m) return out;
    scores_kernel<<<(n + 127) / 128, 128, 0, stream()>>>(scores.data_ptr<float>(),
        q.data_ptr<float>(), k.data_ptr<float>(), S_q, S_kv, D, n, causal);
    rows_kernel<<<(m + 127) / 128, 128, 0, stream()>>>(out.data_ptr<float>(),
        scores.data_ptr<float>(), v.data_ptr<float>(), S_q, S_kv, D, m);
    return out;
}
"""
ATTENTION_GOOD = """
// a query a thread; a warp reads the same key at a time
__global__ void attention_kernel(float* out, const float* q, const float* k, const float* v,
                                 int S_q, int S_kv, int D, bool causal) {
    int row = blockIdx.x * 64 + threadIdx.x;
    if (row >= S_q) return;
    int64_t head = blockIdx.y, query = (head * S_q + row) * D;
    float mine[128], acc[128] = {}, top = -INFINITY, sum = 0;
    for (int d = 0; d < D; d++) mine[d] = q[query + d] / sqrtf(D);
    for (int j = 0; j < (causal ? min(S_kv, row + 1) : S_kv); j++) {
        int64_t key = (head * S_kv + j) * D;
        float score = 0;
        for (int d = 0; d < D; d++) score += mine[d] * k[key + d];
        float larger = fmaxf(top, score), old = expf(top - larger), p = expf(score - larger);
        sum = sum * old + p;
        for (int d = 0; d < D; d++) acc[d] = acc[d] * old + p * v[key + d];
        top = larger;
    }
    for (int d = 0; d < D; d++) out[query + d] = acc[d] / sum;
}
Tensor attention_forward(Tensor q, Tensor k, Tensor v, bool causal) {
    auto out = torch::empty_like(q);
    if (!q.numel()) return out;
    attention_kernel<<<dim3((q.size(2) + 63) / 64, q.size(0) * q.size(1)), 64, 0, stream()>>>(
        out.data_ptr<float>(), q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
        q.size(2), k.size(2), q.size(3), causal);
    return out;
}
"""

DEPTHWISE_LAUNCH = """
static int size_of(int n, int k, int stride, int padding, int dilation) {
    return (n + 2 * padding - dilation * (k - 1) - 1) / stride + 1;
}
Tensor depthwise_conv2d_forward(Tensor inp, Tensor weight, Tensor bias, int64_t stride,
                                int64_t padding, int64_t dilation) {
    int N = inp.size(0), C = inp.size(1), H = inp.size(2), W = inp.size(3);
    int kH = weight.size(1), kW = weight.size(2);
    int H_out = size_of(H, kH, stride, padding, dilation);
    int W_out = size_of(W, kW, stride, padding, dilation);
    auto out = torch::empty({N, C, H_out, W_out}, inp.options());
    const float* shift = bias.numel() ? bias.data_ptr<float>() : nullptr;
    LAUNCH
    return out;
}
"""
DEPTHWISE_NAIVE = """
#define LAUNCH if (out.numel())                                                        \\
    conv_kernel<<<(out.numel() + 127) / 128, 128, 0, stream()>>>(out.data_ptr<float>(), \\
        inp.data_ptr<float>(), weight.data_ptr<float>(), shift, C, H, W, H_out, W_out,  \\
        kH, kW, stride, padding, dilation, out.numel());
__global__ void conv_kernel(float* out, const float* inp, const float* weight,
                            const float* shift, int C, int H, int W, int H_out, int W_out,
                            int kH, int kW, int stride, int padding, int dilation, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t plane = i / W_out / H_out, c = plane % C;
    int row = i / W_out % H_out, col = i % W_out;
    float acc = shift ? shift[c] : 0;
    for (int a = 0; a < kH; a++)
        for (int b = 0; b < kW; b++) {
            int h = row * stride - padding + a * dilation;
            int w = col * stride - padding + b * dilation;
            if (0 <= h && h < H && 0 <= w && w < W)
                acc += inp[(plane * H + h) * W + w] * weight[(c * kH + a) * kW + b];
        }
    out[i] = acc;
}
"""
# four outputs a thread, side by side, where the filter is 7 wide and nothing is skipped
DEPTHWISE_GOOD = (
    DEPTHWISE_NAIVE.replace("#define LAUNCH if", "#define NAIVE if")
    + """
#define LAUNCH                                                                          \\
    if (kW == 7 && stride == 1 && dilation == 1 && out.numel()) {                       \\
        int strips = (W_out + 3) / 4;                                                   \\
        int rows = (H_out + 7) / 8;                                                     \\
        int64_t n = int64_t(N) * C * rows * strips;                                     \\
        seven_kernel<<<(n + 127) / 128, 128, 0, stream()>>>(out.data_ptr<float>(),      \\
            inp.data_ptr<float>(), weight.data_ptr<float>(), shift, C, H, W, H_out,     \\
            W_out, kH, padding, strips, rows, n);                                       \\
    } else NAIVE
__global__ void seven_kernel(float* out, const float* inp, const float* weight,
                             const float* shift, int C, int H, int W, int H_out, int W_out,
                             int kH, int padding, int strips, int rows, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t plane = i / strips / rows, c = plane % C;
    int first = i / strips % rows * 8, col = i % strips * 4;
    float acc[8][4];
    for (int r = 0; r < 8; r++)
        for (int j = 0; j < 4; j++) acc[r][j] = shift ? shift[c] : 0;
    for (int h = first - padding; h < first + 7 + kH - padding; h++) {
        if (h < 0 || h >= H) continue;
        float x[10];
        for (int b = 0; b < 10; b++) {
            int w = col - padding + b;
            x[b] = 0 <= w && w < W ? inp[(plane * H + h) * W + w] : 0;
        }
        for (int r = 0; r < 8; r++) {
            int a = h + padding - first - r;
            if (a < 0 || a >= kH) continue;
            for (int b = 0; b < 7; b++) {
                float f = weight[(c * kH + a) * 7 + b];
                for (int j = 0; j < 4; j++) acc[r][j] += f * x[j + b];
            }
        }
    }
    for (int r = 0; r < 8; r++)
        for (int j = 0; j < 4; j++)
            if (first + r < H_out && col + j < W_out)
                out[(plane * H_out + first + r) * W_out + col + j] = acc[r][j];
}
"""
)

BLOCK_LAUNCH = """
Tensor first_block(Tensor images, Tensor rows, Tensor weight, Tensor stats) {
    int N = rows.size(0), M = weight.size(0), H = images.size(1), W = images.size(2);
    auto out = torch::empty({N, M, H / 2, W / 2}, images.options());
    int n = out.numel(), bytes = ((H + 2) * (W + 2) + M * 9) * sizeof(float);
    if (n) block_kernel<<<BLOCKS, 224, bytes, stream()>>>(out.data_ptr<float>(),
        images.data_ptr<float>(), rows.data_ptr<int64_t>(), weight.data_ptr<float>(),
        stats.data_ptr<float>(), M, H, W, n);
    return out;
}
"""
BLOCK_NAIVE = """
#define BLOCKS (n + 223) / 224
__global__ void block_kernel(float* out, const float* images, const int64_t* rows,
                             const float* weight, const float* stats, int M, int H, int W, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int at = i % (H * W / 4), m = i / (H * W / 4) % M;
    const float* image = images + rows[i / (H * W / 4) / M] * H * W;
    float largest = 0;
    for (int j = 0; j < 4; j++) {
        int row = at / (W / 2) * 2 + j / 2, col = at % (W / 2) * 2 + j % 2;
        float y = 0;
        for (int k = 0; k < 9; k++) {
            int h = row + k / 3 - 1, w = col + k % 3 - 1;
            if (0 <= h && h < H && 0 <= w && w < W) y += image[h * W + w] * weight[m * 9 + k];
        }
        largest = fmaxf(largest, stats[m] * y + stats[M + m]);
    }
    out[i] = largest;
}
"""
# a thread a window: what it sees in registers, and all channels from it
BLOCK_BODY = """
    extern __shared__ float image[];
    float* filters = image + (H + 2) * (W + 2);
    const float* from = images + rows[blockIdx.x] * H * W;
    for (int i = threadIdx.x; i < (H + 2) * (W + 2); i += blockDim.x) {
        int y = i / (W + 2) - 1, x = i % (W + 2) - 1;
        image[i] = y >= 0 && y < H && x >= 0 && x < W ? from[y * W + x] : 0.0f;
    }
    for (int i = threadIdx.x; i < M * 9; i += blockDim.x) filters[i] = weight[i];
    __syncthreads();  // image and filters are there
    for (int i = threadIdx.x; i < H * W / 4; i += blockDim.x) {
        float patch[16];
        const float* corner = image + i / (W / 2) * 2 * (W + 2) + i % (W / 2) * 2;
        for (int k = 0; k < 16; k++) patch[k] = corner[k / 4 * (W + 2) + k % 4];
        for (int m = 0; m < M; m++) {
            float y[4] = {}, largest = 0.0f, scale = stats[m], shift = stats[M + m];
            for (int k = 0; k < 9; k++) {
                float f = filters[m * 9 + k];
                for (int j = 0; j < 4; j++)
                    y[j] += f * patch[(j / 2 + k / 3) * 4 + j % 2 + k % 3];
            }
            for (int j = 0; j < 4; j++) largest = fmaxf(largest, scale * y[j] + shift);
            out[(int64_t(blockIdx.x) * M + m) * (H * W / 4) + i] = largest;
        }
    }
"""
BLOCK_GOOD = (
    """
#define BLOCKS N
__global__ void block_kernel(float* out, const float* images, const int64_t* rows,
                             const float* weight, const float* stats, int M, int H, int W, int n) {
"""
    + BLOCK_BODY
    + "}\n"
)

NAIVE = {
    "histogram": HEAD + HISTOGRAM_NAIVE + HISTOGRAM_LAUNCH,
    "softmax": HEAD + SOFTMAX_NAIVE + SOFTMAX_LAUNCH,
    "matmul": HEAD + MATMUL_NAIVE + MATMUL_LAUNCH,
    "attention": HEAD + ATTENTION_NAIVE,
    "depthwise_conv2d": HEAD + DEPTHWISE_NAIVE + DEPTHWISE_LAUNCH,
    "first_block": HEAD + BLOCK_NAIVE + BLOCK_LAUNCH,
}
GOOD = {
    "histogram": HEAD + HISTOGRAM_GOOD + HISTOGRAM_LAUNCH,
    "softmax": HEAD + SOFTMAX_GOOD + SOFTMAX_LAUNCH,
    "matmul": HEAD + MATMUL_GOOD + MATMUL_LAUNCH,
    "attention": HEAD + ATTENTION_GOOD,
    "depthwise_conv2d": HEAD + DEPTHWISE_GOOD + DEPTHWISE_LAUNCH,
    "first_block": HEAD + BLOCK_GOOD + BLOCK_LAUNCH,
}

# what stands in the braces of each notebook's start: right, with the launcher as it is
BODIES = {
    "06_synchronization": """
    int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        atomicAdd(out + inp[i], 1);
""",
    "07b_softmax": """
    const T* row = inp + blockIdx.x * C;
    float top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < C; c++) top = fmaxf(top, row[c]);
    for (int64_t c = 0; c < C; c++) sum += expf(float(row[c]) - top);
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
        out[blockIdx.x * C + c] = T(expf(float(row[c]) - top) / sum);
""",
    "08b_flash_attention": ATTENTION_GOOD[
        ATTENTION_GOOD.index("    int row") : ATTENTION_GOOD.index("}\nTensor")
    ],
    "09_matmul": """
    for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
        int row = blockIdx.y * 64 + i / 64, col = blockIdx.x * 64 + i % 64;
        if (row >= M || col >= N) continue;
        float acc = 0;
        for (int k = 0; k < K; k++) acc += A[row * a_row + k * a_col] * B[k * b_row + col * b_col];
        out[int64_t(row) * N + col] = acc;
    }
""",
    "11b_fast_convolution": """
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t plane = i / s.W_out / s.H_out, c = plane % s.C;
    int row = i / s.W_out % s.H_out, col = i % s.W_out;
    float acc = bias ? bias[c] : 0;
    for (int a = 0; a < s.kH; a++)
        for (int b = 0; b < s.kW; b++) {
            int h = row * s.stride - s.padding + a * s.dilation;
            int w = col * s.stride - s.padding + b * s.dilation;
            if (0 <= h && h < s.H && 0 <= w && w < s.W)
                acc += inp[(plane * s.H + h) * s.W + w] * weight[(c * s.kH + a) * s.kW + b];
        }
    out[i] = acc;
""",
    "17b_faster_and_faster": BLOCK_BODY,
}
