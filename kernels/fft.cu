// kernels/fft.cu
// SPDX-License-Identifier: MIT
// Discrete Fourier transforms, X[k] = sum over j of x[j] exp(-2 pi i j k / n), of any
// length: of rows (..., n) and images (..., H, W), complex64, contiguous; the inverse
// ones divide by n. Of real rows, float32, the n / 2 + 1 first values; irfft is given
// those and n. Sizes below 2^31. Powers of 2 are fast; other products of 2, 3, 5 and 7
// take one pass if a row fits into shared memory twice, and else one a factor; any
// other length is computed by three transforms of a power of 2 (Bluestein).
// Moves 16 bytes a complex value up to n = 8192, and at 16384 where a block may have
// 218 KB of shared memory; 32 up to 2^20 and for images, 48 up to 2^27. rfft: half of
// that up to n = 8192.
// Scratch memory: as much as the result, where there is more than one pass; with
// Bluestein, and for real rows that take more than one, 128 MB or two rows.
// Notebook: 11c_fast_fft. Own code; Stockham's order as in Govindaraju et al.,
// "High performance discrete Fourier transforms on graphics processors" (2008).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// fft = load_inline("fft", cuda_sources=Path("fft.cu").read_text(),
//     cpp_sources="torch::Tensor fft_forward(torch::Tensor inp);"
//         "torch::Tensor fft_inverse(torch::Tensor inp);"
//         "torch::Tensor rfft(torch::Tensor inp);"
//         "torch::Tensor irfft(torch::Tensor inp, int64_t n);"
//         "torch::Tensor fft2(torch::Tensor inp);"
//         "torch::Tensor ifft2(torch::Tensor inp);",
//     functions=["fft_forward", "fft_inverse", "rfft", "irfft", "fft2", "ifft2"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <cuda_pipeline_primitives.h>
#include <torch/types.h>
#include <algorithm>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

static __host__ __device__ constexpr int64_t cdiv(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// complex numbers
static __device__ float2 operator+(float2 a, float2 b) {
    return {a.x + b.x, a.y + b.y};
}
static __device__ float2 operator-(float2 a, float2 b) {
    return {a.x - b.x, a.y - b.y};
}
static __device__ float2 operator*(float s, float2 a) { return {s * a.x, s * a.y}; }
static __device__ float2 operator*(float2 a, float2 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
static __device__ float2 conj(float2 a) { return {a.x, -a.y}; }

// a exp(-2 pi i x / 32); a constant x costs nothing to look up
static __device__ __forceinline__ float2 turned(float2 a, int x) {
    const float COS[] = {1.0f, 0.980785280f, 0.923879533f, 0.831469612f, 0.707106781f,
                         0.555570233f, 0.382683432f, 0.195090322f, 0.0f};
    if (x & 16) a = {-a.x, -a.y}, x -= 16;
    if (x & 8) a = {a.y, -a.x}, x -= 8;
    return x == 0 ? a : a * float2{COS[x], -COS[8 - x]};
}

// The transform of R = 3, 5, 7 values
template <int R> static __device__ __forceinline__ void odd_butterfly(float2* v) {
    const float COS[][4] = {{1, -0.5f},
                            {1, 0.309016994f, -0.809016994f},
                            {1, 0.623489802f, -0.222520934f, -0.900968868f}};
    const float SIN[][4] = {{0, 0.866025404f},
                            {0, 0.951056516f, 0.587785252f},
                            {0, 0.781831482f, 0.974927912f, 0.433883739f}};
    float2 out[R] = {v[0]};
#pragma unroll
    for (int j = 1; j <= R / 2; j++) out[0] = out[0] + v[j] + v[R - j];
#pragma unroll
    for (int k = 1; k <= R / 2; k++) {  // k and R - k: the same cosines, opposite sines
        float2 even = v[0], odd = {0, 0};
#pragma unroll
        for (int j = 1; j <= R / 2; j++) {
            int x = j * k % R, way = x <= R / 2 ? x : R - x;
            float sine = x <= R / 2 ? SIN[R / 2 - 1][way] : -SIN[R / 2 - 1][way];
            even = even + COS[R / 2 - 1][way] * (v[j] + v[R - j]);
            odd = odd + sine * (v[j] - v[R - j]);
        }
        out[k] = {even.x + odd.y, even.y - odd.x};
        out[R - k] = {even.x - odd.y, even.y + odd.x};
    }
#pragma unroll
    for (int k = 0; k < R; k++) v[k] = out[k];
}

// The transform of v[0], v[S], ... v[(R - 1) S], in their place. From 8 on: R = R1 * 4,
// columns of R1 values, turns, rows of 4; what comes out transposed is renamed.
template <int R, int S> static __device__ __forceinline__ void butterfly(float2* v) {
    if constexpr (R % 2 == 1) {
        static_assert(S == 1);
        if constexpr (R > 1) odd_butterfly<R>(v);
    } else if constexpr (R == 2) {
        float2 a = v[0];
        v[0] = a + v[S], v[S] = a - v[S];
    } else if constexpr (R == 4) {
        float2 a = v[0] + v[2 * S], b = v[0] - v[2 * S];
        float2 c = v[S] + v[3 * S], d = v[S] - v[3 * S];
        v[0] = a + c, v[2 * S] = a - c;
        v[S] = {b.x + d.y, b.y - d.x}, v[3 * S] = {b.x - d.y, b.y + d.x};
    } else {
        constexpr int R1 = R / 4;
        float2 out[R];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            butterfly<R1, 4 * S>(v + j * S);
#pragma unroll
            for (int k = 1; k < R1; k++)
                v[(j + 4 * k) * S] = turned(v[(j + 4 * k) * S], j * k * 32 / R);
        }
#pragma unroll
        for (int k = 0; k < R1; k++) {
            butterfly<4, S>(v + 4 * k * S);
#pragma unroll
            for (int j = 0; j < 4; j++) out[k + R1 * j] = v[(4 * k + j) * S];
        }
#pragma unroll
        for (int k = 0; k < R; k++) v[k * S] = out[k];
    }
}

// Which of a block's transforms a thread works on, and as which of its threads
struct Lane {
    int t, column, row;
};

static constexpr int first_radix(int N, int V) {
    while (N > V) N /= V;
    return N;
}

// The transforms of a block: of T neighbouring columns, or of ROWS rows, of N values
// each. A thread holds V of them, LANES apart: t, t + LANES, ... Stockham's order: a
// stage of radix R takes values N / R apart and leaves them where the next stage finds
// its own N / R apart; the first stage does the radix that is left over, the others V.
template <int N_, int V_, int T_, int ROWS_, bool TURNED = false, bool KEPT = false>
struct Tile {
    static constexpr int N = N_, V = V_, T = T_, ROWS = ROWS_;
    static constexpr int LANES = N / V, FIRST = first_radix(N, V);
    static constexpr int THREADS = LANES * T * ROWS;
    // Above 4096 values real parts are exchanged first, then imaginary ones: half the
    // memory. A bank serves 4 bytes a lane, or 8 of half a warp at a time.
    static constexpr bool HALVES = N * T * ROWS > 4096;
    static constexpr int BANKS = HALVES ? 32 : 16;
    static constexpr int GAP = V * T > BANKS ? V * T : BANKS;  // values between pads
    static __host__ __device__ constexpr int pad(int i) { return i + i / GAP * T; }
    // values of a row; TURNED: lanes of neighbouring rows then read different banks
    static constexpr int SHIFT = ROWS < BANKS ? BANKS / ROWS : 1;
    static constexpr int PITCH = TURNED ? cdiv(pad(N), 32) * 32 + SHIFT : pad(N * T);
    static constexpr int FLOATS = N == V ? 0 : PITCH * ROWS * (HALVES ? 1 : 2);
    // KEPT: behind the values stand the roots of both stages, three a thread
    static constexpr int BYTES = 4 * FLOATS + (KEPT ? 2 * 3 * 8 * THREADS : 0);

    static __device__ void sync() {  // of the threads of a transform
        if constexpr (LANES <= 32 && T == 1 && !TURNED) __syncwarp();
        else __syncthreads();
    }

    // v[r] goes to `write + place(r)`; what comes are t, t + LANES ... of lane `to`
    template <typename Place> static __device__ __forceinline__ void exchange_by(
        float2* v, float* buffer, int write, Place place, Lane to) {
        int read = pad(to.t * T + to.column) + to.row * PITCH;
        auto exchange_part = [&](auto* buffer, auto part) {
            sync();  // what the buffer held has been read
#pragma unroll
            for (int r = 0; r < V; r++) buffer[write + place(r)] = part(v[r]);
            sync();  // what the buffer will hold is written
#pragma unroll
            for (int r = 0; r < V; r++) part(v[r]) = buffer[read + pad(r * LANES * T)];
        };
        if constexpr (HALVES) {
            exchange_part(buffer, [](float2& a) -> float& { return a.x; });
            exchange_part(buffer, [](float2& a) -> float& { return a.y; });
        } else {
            auto* pairs = reinterpret_cast<float2*>(buffer);
            exchange_part(pairs, [](float2& a) -> float2& { return a; });
        }
    }

    // After a stage of radix R, with M the product of those before it
    template <int R, int M> static __device__ __forceinline__ void exchange(
        float2* v, float* buffer, Lane from, Lane to) {
        int k = from.t % M;
        int write = pad(((from.t - k) * R + k) * T + from.column) + from.row * PITCH;
        auto place = [](int r) {
            int q = r % (V / R), s = r / (V / R);  // v[r] is value s of butterfly q
            return pad((q * LANES * R + s * M) * T);
        };
        exchange_by(v, buffer, write, place, to);
    }

    // w[i] = w^(s k) for s = 1, 4, 16, w = exp(-2 pi i / (M V))
    template <int M> static __device__ __forceinline__ void roots(float2* w, int k) {
#pragma unroll
        for (int i = 0, s = 1; s < V && i < 3; i++, s *= 4)  // the quotient is exact
            sincospif(float(s * k) * (-2.0f / (M * V)), &w[i].y, &w[i].x);
    }

    // The place of this thread's kept roots; i from 0 to 2
    template <int M> static __device__ float2& kept(float* buffer, int i) {
        static_assert(M == FIRST || M == FIRST * V);
        int place = (3 * (M > FIRST) + i) * THREADS + threadIdx.x;
        return reinterpret_cast<float2*>(buffer + FLOATS)[place];
    }
    template <int M> static __device__ void keep_roots(float* buffer, int t) {
        float2 w[3];
        roots<M>(w, t % M);
        for (int i = 0; i < 3; i++) kept<M>(buffer, i) = w[i];
        if constexpr (M < LANES) keep_roots<M * V>(buffer, t);
    }

    // v[s] times w^(s k). Sine and cosine cost as much as six products: `roots` has
    // those of s = 1, 4, 16, and the others are products.
    template <int M>
    static __device__ __forceinline__ void twiddle(float2* v, float* buffer, int k) {
        float2 w[3], low[4], high[8];  // of s % 4, of s / 4
        if constexpr (KEPT)
            for (int i = 0; i < 3; i++) w[i] = kept<M>(buffer, i);
        else roots<M>(w, k);
        low[1] = w[0], low[2] = low[1] * low[1], low[3] = low[2] * low[1];
        if constexpr (V > 4) high[1] = w[1];
        if constexpr (V > 8) high[2] = high[1] * high[1], high[3] = high[2] * high[1];
        if constexpr (V > 16) high[4] = w[2];
#pragma unroll
        for (int a = 5; a < V / 4; a++) high[a] = high[4] * high[a - 4];
#pragma unroll
        for (int s = 1; s < V; s++) {
            float2 root = s < 4 ? low[s] : high[s / 4];
            v[s] = v[s] * (s < 4 || s % 4 == 0 ? root : root * low[s % 4]);
        }
    }

    // The stages after those of product M; the last one's results are for lane `to`
    template <int M> static __device__ __forceinline__ void stages(
        float2* v, float* buffer, Lane from, Lane to) {
        Lane next = M == LANES ? to : from;
        exchange<(M == FIRST ? M : V), (M == FIRST ? 1 : M / V)>(v, buffer, from, next);
        after_exchange<M>(v, buffer, next, to);
    }

    template <int M> static __device__ __forceinline__ void after_exchange(
        float2* v, float* buffer, Lane me, Lane to) {
        twiddle<M>(v, buffer, me.t % M);
        butterfly<V, 1>(v);
        if constexpr (M < LANES) stages<M * V>(v, buffer, me, to);
    }

    static __device__ __forceinline__ void transform(
        float2* v, float* buffer, Lane from, Lane to) {
#pragma unroll
        for (int q = 0; q < V / FIRST; q++) butterfly<FIRST, V / FIRST>(v + q);
        if constexpr (N > V) stages<FIRST>(v, buffer, from, to);
    }
};

// Where a thread's values lie: t, t + LANES ... times the stride. The inverse transform
// is the forward one of the values read backwards: place (N - j) mod N for place j.
template <typename Tile, typename Int> struct Order {
    Int first, start, step;
    __device__ Order(int t, Int stride, bool inverse) {
        start = (inverse ? Tile::N - t : t) * stride;
        first = t == 0 ? 0 : start;
        step = (inverse ? -Tile::LANES : Tile::LANES) * stride;
    }
    __device__ Int operator[](int r) const { return r == 0 ? first : start + r * step; }
};

// out, inp: (rows, N); a block takes Tile::ROWS of them
template <typename Tile, int BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
fft_rows_kernel(float2* out, const float2* inp, int64_t rows, bool inverse,
                float scale) {
    extern __shared__ __align__(16) float fft_shared[];
    int t = threadIdx.x % Tile::LANES, row_in_block = threadIdx.x / Tile::LANES;
    int64_t row = int64_t(blockIdx.x) * Tile::ROWS + row_in_block;
    bool inside = row < rows;  // the others go along, for the barriers
    out += row * Tile::N, inp += row * Tile::N;

    Order<Tile, int> order(t, 1, inverse);
    float2 v[Tile::V];
#pragma unroll
    for (int r = 0; r < Tile::V; r++) v[r] = inside ? inp[order[r]] : float2{};
    Lane lane{t, 0, row_in_block};
    Tile::transform(v, fft_shared, lane, lane);
    if (!inside) return;
#pragma unroll
    for (int r = 0; r < Tile::V; r++)
        out[t + r * Tile::LANES] = inverse ? scale * v[r] : v[r];
}

// Rows of 2 N real numbers, taken for N complex ones, even places + i odd places; out:
// (rows, N + 1). Of the transform Z, the places k and N - k make up X[k].
template <typename Tile, int BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
fft_real_rows_kernel(float2* out, const float2* inp, int64_t rows) {
    constexpr int N = Tile::N, V = Tile::V;
    extern __shared__ __align__(16) float fft_shared[];
    int t = threadIdx.x % Tile::LANES, row_in_block = threadIdx.x / Tile::LANES;
    int64_t row = int64_t(blockIdx.x) * Tile::ROWS + row_in_block;
    bool inside = row < rows;
    out += row * (N + 1), inp += row * N;

    float2 v[V], w;
#pragma unroll
    for (int r = 0; r < V; r++) v[r] = inside ? inp[t + r * Tile::LANES] : float2{};
    Lane lane{t, 0, row_in_block};
    Tile::transform(v, fft_shared, lane, lane);

    static_assert(!Tile::HALVES && 16 % V == 0);
    float2* Z = reinterpret_cast<float2*>(fft_shared) + row_in_block * Tile::PITCH;
    Tile::sync();  // what the buffer held has been read
#pragma unroll
    for (int r = 0; r < V; r++) Z[Tile::pad(t + r * Tile::LANES)] = v[r];
    Tile::sync();  // Z is written
    if (!inside) return;
    sincospif(float(t) * (-1.0f / N), &w.y, &w.x);
#pragma unroll
    for (int r = 0; r < V; r++) {
        int k = t + r * Tile::LANES;
        float2 mirrored = conj(Z[Tile::pad((N - k) % N)]);
        float2 even = 0.5f * (v[r] + mirrored), odd = 0.5f * (v[r] - mirrored);
        odd = turned(w, r * 16 / V) * float2{odd.y, -odd.x};
        out[k] = even + odd;
        if (k == 0) out[N] = even - odd;
    }
}

// Begins to copy VALUES values to shared memory, 16 bytes at a time, if they exist
template <int VALUES, int THREADS>
static __device__ __forceinline__ void fetch(float2* next, const float2* from,
                                             bool exists) {
#pragma unroll
    for (int i = 2 * threadIdx.x; i < VALUES; i += 2 * THREADS)
        if (exists) __pipeline_memcpy_async(next + i, from + i, 16);
    __pipeline_commit();
}

// The same for rows so long that a multiprocessor holds one at a time. Its block goes
// through many rows, and fetches the next one into shared memory while it computes.
template <typename Tile>
__global__ void __launch_bounds__(Tile::THREADS)
fft_long_rows_kernel(float2* out, const float2* inp, int64_t rows, bool inverse,
                     float scale) {
    extern __shared__ __align__(16) float fft_shared[];
    float2* next = reinterpret_cast<float2*>(fft_shared);  // (N)
    float* buffer = fft_shared + 2 * Tile::N;
    Lane lane{int(threadIdx.x), 0, 0};
    Order<Tile, int> order(lane.t, 1, inverse);
    Tile::template keep_roots<Tile::FIRST>(buffer, lane.t);
    inp += blockIdx.x * int64_t(Tile::N);
    fetch<Tile::N, Tile::THREADS>(next, inp, true);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        __pipeline_wait_prior(0);
        __syncthreads();  // what all threads have fetched is there
        float2 v[Tile::V];
#pragma unroll
        for (int r = 0; r < Tile::V; r++) v[r] = next[order[r]];
        __syncthreads();  // all has been read, and may be overwritten
        inp += gridDim.x * int64_t(Tile::N);
        fetch<Tile::N, Tile::THREADS>(next, inp, row + gridDim.x < rows);
        Tile::transform(v, buffer, lane, lane);
#pragma unroll
        for (int r = 0; r < Tile::V; r++)
            out[row * Tile::N + lane.t + r * Tile::LANES] =
                inverse ? scale * v[r] : v[r];
    }
}

// The end of images (N, H, W) whose columns are transformed but for their last radix Q:
// inp (groups, Q, W) are Q values of W columns each, M = H / Q groups an image; the
// columns' values k of group g are out's rows g + M k. Fetched ahead as above; a thread
// first holds values of all Q rows, then Tile::V of one.
template <typename Tile>
__global__ void __launch_bounds__(Tile::THREADS)
fft_last_rows_kernel(float2* out, const float2* inp, int64_t groups, int M,
                     bool inverse) {
    constexpr int Q = Tile::ROWS, W = Tile::N, V = Tile::V, R = Tile::FIRST;
    constexpr int C = V / Q, STEP = Tile::THREADS;  // a thread's values of a row
    extern __shared__ __align__(16) float fft_shared[];
    float2* next = reinterpret_cast<float2*>(fft_shared);  // (Q, W)
    float* buffer = fft_shared + 2 * Q * W;
    int u = threadIdx.x;
    Lane lane{u % Tile::LANES, 0, u / Tile::LANES};
    int way = inverse ? -1 : 1;  // backwards along both dimensions, as in Order
    int start = inverse ? W - u : u, first = u == 0 ? 0 : start;
    Tile::template keep_roots<R>(buffer, lane.t);
    inp += blockIdx.x * int64_t(Q * W);
    fetch<Q * W, STEP>(next, inp, true);
    for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
        __pipeline_wait_prior(0);
        __syncthreads();  // what all threads have fetched is there
        float2 v[V];
#pragma unroll
        for (int r = 0; r < V; r++) {
            int q = way * (r / C) & (Q - 1), c = r % C;
            v[r] = next[q * W + (c == 0 ? first : start + way * STEP * c)];
        }
        __syncthreads();  // all has been read, and may be overwritten
        inp += gridDim.x * int64_t(Q * W);
        fetch<Q * W, STEP>(next, inp, group + gridDim.x < groups);
#pragma unroll
        for (int c = 0; c < C; c++) butterfly<Q, C>(v + c);
#pragma unroll
        for (int r = 0; r < V; r++)
            if (r % C < C / R) butterfly<R, C / R>(v + r);
        auto place = [](int r) {  // of row r / C: value s of butterfly u + p STEP
            int p = r % (C / R), s = r % C / (C / R);
            return r / C * Tile::PITCH + Tile::pad(p * STEP * R + s);
        };
        Tile::exchange_by(v, buffer, Tile::pad(u * R), place, lane);
        Tile::template after_exchange<R>(v, buffer, lane, lane);
        float2* row = out + (group / M * M * Q + group % M + int64_t(lane.row) * M) * W;
#pragma unroll
        for (int r = 0; r < V; r++)
            row[lane.t + r * Tile::LANES] = inverse ? (1.0f / (Q * W)) * v[r] : v[r];
    }
}

// out, inp: (outer, N, inner), transformed along N. If `period` is not 0, result k of
// column c is then turned by k (c / width) / period.
template <typename Tile, int BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
fft_columns_kernel(float2* out, const float2* inp, int64_t inner, int width, int period,
                   bool inverse) {
    extern __shared__ __align__(16) float fft_shared[];
    int64_t tiles = cdiv(inner, Tile::T), outer = blockIdx.x / tiles;
    Lane lane{int(threadIdx.x) / Tile::T, int(threadIdx.x) % Tile::T, 0};
    int64_t column = blockIdx.x % tiles * Tile::T + lane.column;
    bool inside = column < inner;  // the others go along, for the barriers
    out += outer * Tile::N * inner + column, inp += outer * Tile::N * inner + column;

    Order<Tile, int64_t> order(lane.t, inner, inverse);
    float2 v[Tile::V];
#pragma unroll
    for (int r = 0; r < Tile::V; r++) v[r] = inside ? inp[order[r]] : float2{};
    Tile::transform(v, fft_shared, lane, lane);
    if (!inside) return;
    int turns = period ? int(column) / width : 0;
    float angle = period ? (inverse ? 2.0f : -2.0f) / period : 0.0f;
#pragma unroll
    for (int r = 0; r < Tile::V; r++) {
        int k = lane.t + r * Tile::LANES;
        if (period) {
            float2 w;
            sincospif(float(k * turns) * angle, &w.y, &w.x);
            v[r] = v[r] * w;
        }
        out[k * inner] = inverse ? (1.0f / Tile::N) * v[r] : v[r];
    }
}

// inp: (outer, M, P, N), transformed along N and written as (outer, N, P, M); a tile is
// ROWS neighbours along M, and the last exchange gives them to neighbouring threads
template <typename Tile, int BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
fft_turned_rows_kernel(float2* out, const float2* inp, int M, int P, bool inverse) {
    extern __shared__ __align__(16) float fft_shared[];
    Lane from{int(threadIdx.x) % Tile::LANES, 0, int(threadIdx.x) / Tile::LANES};
    Lane to{int(threadIdx.x) / Tile::ROWS, 0, int(threadIdx.x) % Tile::ROWS};
    int64_t tiles = M / Tile::ROWS, m = blockIdx.x % tiles * Tile::ROWS;
    int64_t p = blockIdx.x / tiles % P, outer = blockIdx.x / tiles / P;
    inp += ((outer * M + m + from.row) * P + p) * Tile::N;
    out += (outer * Tile::N * P + p) * M + m + to.row;

    Order<Tile, int> order(from.t, 1, inverse);
    float2 v[Tile::V];
#pragma unroll
    for (int r = 0; r < Tile::V; r++) v[r] = inp[order[r]];
    Tile::transform(v, fft_shared, from, to);
#pragma unroll
    for (int r = 0; r < Tile::V; r++) {
        float2* place = out + (to.t + r * Tile::LANES) * (int64_t(P) * M);
        *place = inverse ? (1.0f / Tile::N) * v[r] : v[r];
    }
}

// exp(-2 pi i x / period), exact to 1e-7 for any period: of a turn's quarters the
// nearest, and sine and cosine of what is left, an eighth of a turn at most
template <typename Int> static __device__ float2 root_of_one(Int x, Int period) {
    int quarters = int((8 * x / period + 1) / 2);  // x below the period, it below 2^60
    float2 w;
    sincospif(-0.5f * (float(4 * x - quarters * period) / float(period)), &w.y, &w.x);
    if (quarters & 1) w = {w.y, -w.x};
    return quarters & 2 ? float2{-w.x, -w.y} : w;
}

// Butterfly i of a stage of radix R, m the product of the radices before it; reads
// backwards for the inverse transform
template <int R, typename Int>
static __device__ __forceinline__ void stage(
    float2* dst, const float2* src, Int i, Int n, Int m, bool backwards, float scale) {
    Int k = i % m;
    float2 v[R];
#pragma unroll
    for (int s = 0; s < R; s++) {
        Int j = i + s * (n / R);
        v[s] = src[backwards && j > 0 ? n - j : j];
        if (m > 1 && s > 0) v[s] = v[s] * root_of_one<Int>(k * s, m * R);
    }
    butterfly<R, 1>(v);
#pragma unroll
    for (int s = 0; s < R; s++) dst[(i - k) * R + k + s * m] = scale * v[s];
}

// A stage of a row in shared memory
template <int R>
static __device__ void row_stage(float2* dst, const float2* src, int n, int m) {
    for (int i = threadIdx.x; i < n / R; i += blockDim.x)
        stage<R, int>(dst, src, i, n, m, false, 1.0f);
}

constexpr int64_t AT_ONCE = 1 << 24;  // values, 128 MB, of an intermediate result
constexpr int MAX_STAGES = 32;

struct Radices {
    int count = 0, at[MAX_STAGES];
};

// out, inp: (rows, n), n a product of the radices; blockDim.y rows a block, each in two
// buffers of shared memory, from one to the other at every stage
__global__ void fft_mixed_kernel(float2* out, const float2* inp, int64_t rows, int n,
                                 Radices radices, bool inverse, float scale) {
    extern __shared__ __align__(16) float fft_shared[];
    float2* src = reinterpret_cast<float2*>(fft_shared) + threadIdx.y * 2 * n;
    float2* dst = src + n;
    int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    bool inside = row < rows;
    out += row * n, inp += row * n;

    for (int i = threadIdx.x; i < n; i += blockDim.x)
        src[i] = inside ? inp[inverse && i > 0 ? n - i : i] : float2{};
    int m = 1;
    for (int p = 0; p < radices.count; p++) {
        __syncthreads();  // the values of the stage before are written
        switch (radices.at[p]) {
            case 2: row_stage<2>(dst, src, n, m); break;
            case 3: row_stage<3>(dst, src, n, m); break;
            case 4: row_stage<4>(dst, src, n, m); break;
            case 5: row_stage<5>(dst, src, n, m); break;
            case 7: row_stage<7>(dst, src, n, m); break;
            default: row_stage<8>(dst, src, n, m);
        }
        m *= radices.at[p];
        float2* free = src;
        src = dst, dst = free;
    }
    __syncthreads();  // the last values are written
    for (int i = threadIdx.x; i < n && inside; i += blockDim.x)
        out[i] = inverse ? scale * src[i] : src[i];
}

// One stage of longer rows, from memory to memory: (rows, n), a thread a butterfly
template <int R>
__global__ void fft_stage_kernel(float2* out, const float2* inp, int64_t rows,
                                 int64_t n, int64_t m, bool backwards, float scale) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / (n / R);
    if (row >= rows) return;
    stage<R>(out + row * n, inp + row * n, i % (n / R), n, m, backwards, scale);
}

// Bluestein: as j k = (j^2 + k^2 - (k - j)^2) / 2, with c[j] = exp(-pi i j^2 / n)
// X[k] = c[k] sum over j of (x[j] c[j]) conj(c[k - j]): a convolution, so a product of
// transforms, of any length m >= 2 n - 1.
static __device__ float2 chirp(int64_t j, int64_t n) {
    return root_of_one<int64_t>(j * j % (2 * n), 2 * n);
}

// out: (rows + 1, m), the rows of inp (rows, n) times c, then conj(c) both ways from 0;
// zeros between
__global__ void fft_chirp_kernel(float2* out, const float2* inp, int64_t rows,
                                 int64_t n, int64_t m, bool inverse) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / m, j = i % m;
    if (row > rows) return;
    float2 value = {0, 0};
    if (row == rows) {
        j = min(j, m - j);
        if (j < n) value = conj(chirp(j, n));
    } else if (j < n) {
        value = inp[row * n + (inverse && j > 0 ? n - j : j)] * chirp(j, n);
    }
    out[i] = value;
}

// The first `rows` of spectra (rows + 1, m) times the last one, in their place
__global__ void fft_filter_kernel(float2* spectra, int64_t rows, int64_t m) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < rows * m) spectra[i] = spectra[i] * spectra[rows * m + i % m];
}

// out: (rows, n), the front of the rows of inp (rows, m) times c
__global__ void fft_unchirp_kernel(float2* out, const float2* inp, int64_t rows,
                                   int64_t n, int64_t m, float scale) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / n, k = i % n;
    if (row < rows) out[i] = scale * (inp[row * m + k] * chirp(k, n));
}

// out: (rows, h + 1), the transforms of real rows of n = 2 h numbers, from Z (rows, h),
// those of the rows taken for h complex numbers: even places + i odd places
__global__ void fft_real_kernel(float2* out, const float2* Z, int64_t rows, int64_t h) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t row = i / (h + 1), k = i % (h + 1);
    if (row >= rows) return;
    float2 a = Z[row * h + (k < h ? k : 0)], b = conj(Z[row * h + (k > 0 ? h - k : 0)]);
    float2 even = 0.5f * (a + b), odd = 0.5f * (a - b);  // the latter times i
    out[i] = even + root_of_one<int64_t>(k, 2 * h) * float2{odd.y, -odd.x};
}

// The way back: Z (rows, h) from inp (rows, h + 1)
__global__ void fft_to_real_kernel(float2* Z, const float2* inp, int64_t rows,
                                   int64_t h) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / h, k = i % h;
    if (row >= rows) return;
    float2 a = inp[row * (h + 1) + k], b = conj(inp[row * (h + 1) + h - k]);
    if (k == 0) a.y = b.y = 0.0f;  // a real row has none there
    float2 even = 0.5f * (a + b), odd = 0.5f * (a - b);
    odd = odd * conj(root_of_one<int64_t>(k, 2 * h));
    Z[i] = even + float2{-odd.y, odd.x};
}

// Odd n. out: (rows, h), the front of rows (rows, n); or the real parts of all
__global__ void fft_crop_kernel(float2* out, const float2* inp, int64_t rows, int64_t n,
                                int64_t h) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < rows * h) out[i] = inp[i / h * n + i % h];
}
__global__ void fft_real_parts_kernel(float* out, const float2* inp, int64_t numel) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < numel) out[i] = inp[i].x;
}

// out: (rows, n) from its front, inp (rows, h), mirrored: X[n - k] = conj(X[k])
__global__ void fft_mirror_kernel(float2* out, const float2* inp, int64_t rows,
                                  int64_t n, int64_t h) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / n, k = i % n;
    if (row >= rows) return;
    float2 value = k < h ? inp[row * h + k] : conj(inp[row * h + n - k]);
    out[i] = k == 0 ? float2{value.x, 0.0f} : value;
}

// Rows to transform: out, inp: (rows, n)
struct Rows {
    float2* out;
    const float2* inp;
    int64_t rows, n;
    bool inverse;
    torch::TensorOptions options;  // complex64 on their GPU, for scratch memory
    float scale() const { return inverse ? 1.0f / n : 1.0f; }
};

static float2* values(const Tensor& x) { return static_cast<float2*>(x.data_ptr()); }

static int attribute(cudaDeviceAttr which) {  // of the current device
    int value = 0, device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

// A kernel that gives a thread to each of `threads` values
template <typename... Params, typename... Args>
static void for_each(int64_t threads, void (*kernel)(Params...), Args... args) {
    kernel<<<cdiv(threads, 256), 256, 0, getCurrentCUDAStream()>>>(args...);
}

template <typename... Params, typename... Args>
static void launch(void (*kernel)(Params...), int64_t blocks, dim3 block, int bytes,
                   Args... args) {
    if (bytes > 48 * 1024)  // has to be asked for
        C10_CUDA_CHECK(cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<blocks, block, bytes, getCurrentCUDAStream()>>>(args...);
}

template <int N, int V, int ROWS, int BLOCKS> static void short_rows(const Rows& x) {
    using T = Tile<N, V, 1, ROWS>;
    launch(fft_rows_kernel<T, BLOCKS>, cdiv(x.rows, ROWS), T::THREADS, T::BYTES,
           x.out, x.inp, x.rows, x.inverse, x.scale());
}

template <int N, int ROWS>
static void real_rows(float2* out, const float2* inp, int64_t rows) {
    using T = Tile<N, 16, 1, ROWS>;
    launch(fft_real_rows_kernel<T, 4>, cdiv(rows, ROWS), T::THREADS, T::BYTES, out, inp,
           rows);
}

using LongTile = Tile<16384, 32, 1, 1, false, true>;
constexpr int LONG_BYTES = 8 * LongTile::N + LongTile::BYTES;

static void long_rows(const Rows& x) {
    int64_t blocks = attribute(cudaDevAttrMultiProcessorCount);
    launch(fft_long_rows_kernel<LongTile>, std::min(blocks, x.rows), LongTile::THREADS,
           LONG_BYTES, x.out, x.inp, x.rows, x.inverse, x.scale());
}

template <int N, int V, int T_, int BLOCKS>
static void columns(float2* out, const float2* inp, int64_t outer, int64_t inner,
                    int width, int period, bool inverse) {
    using T = Tile<N, V, T_, 1>;
    launch(fft_columns_kernel<T, BLOCKS>, outer * cdiv(inner, T_), T::THREADS, T::BYTES,
           out, inp, inner, width, period, inverse);
}

// The transform of columns (outer, N, inner) for N = 64 to 4096, a power of 2
static void columns_of(int64_t N, float2* out, const float2* inp, int64_t outer,
                       int64_t inner, int width, int period, bool inverse) {
    auto run = N == 64     ? columns<64, 16, 64, 4>
               : N == 128  ? columns<128, 16, 32, 4>
               : N == 256  ? columns<256, 16, 16, 4>
               : N == 512  ? columns<512, 32, 16, 3>
               : N == 1024 ? columns<1024, 32, 8, 3>
               : N == 2048 ? columns<2048, 32, 4, 2>
                           : columns<4096, 16, 4, 1>;
    run(out, inp, outer, inner, width, period, inverse);
}

template <int N, int V, int ROWS, int BLOCKS>
static void turned_rows(float2* out, const float2* inp, int64_t outer, int M, int P,
                        bool inverse) {
    using T = Tile<N, V, 1, ROWS, true>;
    launch(fft_turned_rows_kernel<T, BLOCKS>, outer * M * P / ROWS, T::THREADS,
           T::BYTES, out, inp, M, P, inverse);
}

// n = N1 * N2 = 2^14 to 2^20, j = N2 j1 + j2 and k = k1 + N1 k2: transforms along j1,
// turns, transforms along j2
static void two_passes(const Rows& x) {
    int64_t N2 = x.n <= 1 << 18 ? 256 : 1024, N1 = x.n / N2;
    auto second = N2 == 256 ? turned_rows<256, 16, 16, 4> : turned_rows<1024, 32, 8, 3>;
    Tensor between = torch::empty({x.rows, x.n}, x.options);
    columns_of(N1, values(between), x.inp, x.rows, N2, 1, x.n, x.inverse);
    second(x.out, values(between), x.rows, N1, 1, x.inverse);
}

// n = N1 * N2 * N3 = 2^21 to 2^27: N1 before the rest as in two passes, then N2, N3
static void three_passes(const Rows& x) {
    int64_t N3 = 256, N2 = x.n < 1 << 23 ? 128 : 256, N1 = x.n / N2 / N3;
    Tensor between = torch::empty({x.rows, x.n}, x.options);
    float2* half = values(between);
    columns_of(N1, half, x.inp, x.rows, N2 * N3, 1, x.n, x.inverse);
    columns_of(N2, half, half, x.rows * N1, N3, 1, N2 * N3, x.inverse);
    turned_rows<256, 16, 16, 4>(x.out, half, x.rows, N1, N2, x.inverse);
}

using LastTile = Tile<4096, 32, 1, 4, false, true>;
constexpr int LAST_BYTES = 8 * 16384 + LastTile::BYTES;

// Images of 4096 * 4096. Tiles of whole columns would be four wide; these, of all but
// the last radix, are eight wide, and the rows' tiles do that radix as well.
static void large_images(float2* out, const float2* inp, int64_t images, bool inverse,
                         const torch::TensorOptions& options) {
    constexpr int Q = LastTile::ROWS, W = LastTile::N, M = 4096 / Q;
    Tensor between = torch::empty({images, 4096, W}, options);
    columns_of(M, values(between), inp, images, Q * W, W, 4096, inverse);
    int64_t blocks = attribute(cudaDevAttrMultiProcessorCount);
    launch(fft_last_rows_kernel<LastTile>, std::min(blocks, M * images),
           LastTile::THREADS, LAST_BYTES, out, values(between), M * images, M, inverse);
}

// The factors 3, 5, 7, 8, 4, 2 of n; none if it has others
static Radices radices_of(int64_t n) {
    Radices radices;
    for (int radix : {3, 5, 7, 8, 4, 2})
        for (; n % radix == 0; n /= radix) radices.at[radices.count++] = radix;
    if (n > 1) radices.count = 0;
    return radices;
}

// A factor a pass, back and forth between `out` and scratch memory
static void many_passes(const Rows& x, const Radices& radices) {
    Tensor scratch = torch::empty({x.rows, x.n}, x.options);
    const float2* src = x.inp;
    int64_t m = 1;
    for (int p = 0; p < radices.count; p++) {
        bool last = p == radices.count - 1;
        float2* dst = (radices.count - p) % 2 == 1 ? x.out : values(scratch);
        int radix = radices.at[p];
        auto kernel = radix == 2 ? fft_stage_kernel<2>
                      : radix == 3 ? fft_stage_kernel<3>
                      : radix == 4 ? fft_stage_kernel<4>
                      : radix == 5 ? fft_stage_kernel<5>
                      : radix == 7 ? fft_stage_kernel<7>
                                   : fft_stage_kernel<8>;
        for_each(x.rows * (x.n / radix), kernel, dst, src, x.rows, x.n, m,
                 x.inverse && p == 0, last ? x.scale() : 1.0f);
        src = dst, m *= radices.at[p];
    }
}

static void mixed(const Rows& x, const Radices& radices) {
    int64_t row_bytes = 16 * x.n;
    if (row_bytes > attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))
        return many_passes(x, radices);
    int lanes = 1;
    while (lanes < 256 && lanes * 8 < x.n) lanes *= 2;
    int rows = std::max<int64_t>(1, std::min<int64_t>(256 / lanes, 49152 / row_bytes));
    launch(fft_mixed_kernel, cdiv(x.rows, rows), dim3(lanes, rows), rows * row_bytes,
           x.out, x.inp, x.rows, int(x.n), radices, x.inverse, x.scale());
}

static void transform(const Rows& x);

static void bluestein(const Rows& x) {
    int64_t m = 1;
    while (m < 2 * x.n - 1) m *= 2;
    int64_t at_once = std::min(x.rows, std::max<int64_t>(1, AT_ONCE / m));
    Tensor scratch = torch::empty({at_once + 1, m}, x.options);
    float2* spectra = values(scratch);
    for (int64_t row = 0; row < x.rows; row += at_once) {
        int64_t rows = std::min(at_once, x.rows - row);
        for_each((rows + 1) * m, fft_chirp_kernel, spectra, x.inp + row * x.n, rows,
                 x.n, m, x.inverse);
        transform({spectra, spectra, rows + 1, m, false, x.options});
        for_each(rows * m, fft_filter_kernel, spectra, rows, m);
        transform({spectra, spectra, rows, m, true, x.options});
        for_each(rows * x.n, fft_unchirp_kernel, x.out + row * x.n, spectra, rows, x.n,
                 m, x.scale());
    }
}

// Powers of 2 also in their place
static void transform(const Rows& x) {
    auto short_kernel = x.n == 2 ? short_rows<2, 2, 256, 4>
                        : x.n == 4 ? short_rows<4, 4, 256, 4>
                        : x.n == 8 ? short_rows<8, 8, 128, 4>
                        : x.n == 16 ? short_rows<16, 4, 64, 4>
                        : x.n == 32 ? short_rows<32, 8, 64, 4>
                        : x.n == 64 ? short_rows<64, 8, 16, 8>
                        : x.n == 128 ? short_rows<128, 16, 32, 4>
                        : x.n == 256 ? short_rows<256, 16, 16, 4>
                        : x.n == 512 ? short_rows<512, 16, 8, 4>
                        : x.n == 1024 ? short_rows<1024, 16, 4, 4>
                        : x.n == 2048 ? short_rows<2048, 16, 2, 4>
                        : x.n == 4096 ? short_rows<4096, 16, 1, 4>
                        : x.n == 8192 ? short_rows<8192, 32, 1, 3>
                                      : nullptr;
    bool power_of_2 = (x.n & (x.n - 1)) == 0;
    Radices radices = radices_of(x.n);
    if (x.n == 1) {
        C10_CUDA_CHECK(cudaMemcpyAsync(x.out, x.inp, 8 * x.rows,
                                       cudaMemcpyDeviceToDevice,
                                       getCurrentCUDAStream()));
    } else if (short_kernel) {
        short_kernel(x);
    } else if (x.n == LongTile::N &&
               attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= LONG_BYTES &&
               reinterpret_cast<uintptr_t>(x.inp) % 16 == 0) {
        long_rows(x);
    } else if (power_of_2 && x.n <= 1 << 20) {
        two_passes(x);
    } else if (power_of_2 && x.n <= 1 << 27) {
        three_passes(x);
    } else if (radices.count > 0) {
        mixed(x, radices);
    } else {
        bluestein(x);
    }
}

static void check_input(const char* name, const Tensor& x, torch::ScalarType type,
                        int64_t dims) {
    TORCH_CHECK(x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                    x.dim() >= dims && x.size(-1) > 0 && x.size(-dims) > 0 &&
                    x.size(-1) <= INT_MAX && x.size(-dims) <= INT_MAX,
                name, ": expected contiguous ", type, " on a CUDA device, ", dims,
                " dimensions or more, the last ", dims, " from 1 to 2^31 - 1, got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
}

static std::vector<int64_t> with_last(const Tensor& x, int64_t size) {
    std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
    sizes.back() = size;
    return sizes;
}

static Tensor complex_rows(Tensor inp, bool inverse) {
    check_input("inp", inp, torch::kComplexFloat, 1);
    CUDAGuard guard(inp.device());
    inp = inp.resolve_conj();  // x.conj() is a mark that the memory knows nothing of
    Tensor out = torch::empty_like(inp);
    int64_t n = inp.size(-1);
    if (inp.numel() == 0) return out;
    transform({values(out), values(inp), inp.numel() / n, n, inverse, inp.options()});
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// (..., n) complex64 -> the same
Tensor fft_forward(Tensor inp) { return complex_rows(inp, false); }
Tensor fft_inverse(Tensor inp) { return complex_rows(inp, true); }

// (..., n) float32 -> (..., n / 2 + 1) complex64
Tensor rfft(Tensor inp) {
    check_input("inp", inp, torch::kFloat32, 1);
    CUDAGuard guard(inp.device());
    if (reinterpret_cast<uintptr_t>(inp.data_ptr()) % 8) inp = inp.clone();
    int64_t n = inp.size(-1), h = n / 2, rows = inp.numel() / n;
    auto options = inp.options().dtype(torch::kComplexFloat);
    Tensor out = torch::empty(with_last(inp, h + 1), options);
    if (rows == 0) return out;
    if (n % 2 == 1) {
        Tensor full = complex_rows(inp.to(torch::kComplexFloat), false);
        for_each(rows * (h + 1), fft_crop_kernel, values(out), values(full), rows, n,
                 h + 1);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return out;
    }
    auto* inp_pairs = static_cast<const float2*>(inp.data_ptr());
    auto in_one_pass = n == 512    ? real_rows<256, 16>
                       : n == 1024 ? real_rows<512, 8>
                       : n == 2048 ? real_rows<1024, 4>
                       : n == 4096 ? real_rows<2048, 2>
                       : n == 8192 ? real_rows<4096, 1>
                                   : nullptr;
    if (in_one_pass) {
        in_one_pass(values(out), inp_pairs, rows);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return out;
    }
    int64_t at_once = std::min(rows, std::max<int64_t>(1, AT_ONCE / h));
    Tensor Z = torch::empty({at_once, h}, options);
    for (int64_t row = 0; row < rows; row += at_once) {
        int64_t now = std::min(at_once, rows - row);
        transform({values(Z), inp_pairs + row * h, now, h, false, options});
        for_each(now * (h + 1), fft_real_kernel, values(out) + row * (h + 1), values(Z),
                 now, h);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// (..., n / 2 + 1) complex64 -> (..., n) float32
Tensor irfft(Tensor inp, int64_t n) {
    check_input("inp", inp, torch::kComplexFloat, 1);
    int64_t h = n / 2, rows = inp.numel() / inp.size(-1);
    TORCH_CHECK(n >= 1 && n <= INT_MAX && inp.size(-1) == h + 1, "irfft: expected n "
                "from 1 to 2^31 - 1 and inp of n / 2 + 1 columns, got n = ", n,
                ", inp of shape ", inp.sizes());
    CUDAGuard guard(inp.device());
    inp = inp.resolve_conj();
    auto options = inp.options();
    Tensor out = torch::empty(with_last(inp, n), options.dtype(torch::kFloat32));
    if (rows == 0) return out;
    if (n % 2 == 1) {
        Tensor full = torch::empty({rows, n}, options);
        for_each(rows * n, fft_mirror_kernel, values(full), values(inp), rows, n,
                 h + 1);
        full = complex_rows(full, true);
        for_each(rows * n, fft_real_parts_kernel, out.data_ptr<float>(), values(full),
                 rows * n);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return out;
    }
    int64_t at_once = std::min(rows, std::max<int64_t>(1, AT_ONCE / h));
    Tensor Z = torch::empty({at_once, h}, options);
    for (int64_t row = 0; row < rows; row += at_once) {
        int64_t now = std::min(at_once, rows - row);
        for_each(now * h, fft_to_real_kernel, values(Z), values(inp) + row * (h + 1),
                 now, h);
        transform({values(out) + row * h, values(Z), now, h, true, options});
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static Tensor images(Tensor inp, bool inverse) {
    check_input("inp", inp, torch::kComplexFloat, 2);
    CUDAGuard guard(inp.device());
    int64_t H = inp.size(-2), W = inp.size(-1), N = inp.numel() / (H * W);
    int shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    if (N > 0 && H == 4096 && W == LastTile::N && shared_bytes >= LAST_BYTES) {
        inp = inp.resolve_conj();
        Tensor out = torch::empty_like(inp);
        large_images(values(out), values(inp), N, inverse, inp.options());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return out;
    }
    Tensor out = complex_rows(inp, inverse);
    int64_t tallest = shared_bytes < 70 * 1024 ? 2048 : 4096;
    if (N > 0 && H >= 64 && H <= tallest && (H & (H - 1)) == 0) {
        columns_of(H, values(out), values(out), N, W, 1, 0, inverse);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    } else if (N > 0) {
        Tensor turned = complex_rows(out.transpose(-2, -1).contiguous(), inverse);
        out.copy_(turned.transpose(-2, -1));
    }
    return out;
}

// (..., H, W) complex64 -> the same
Tensor fft2(Tensor inp) { return images(inp, false); }
Tensor ifft2(Tensor inp) { return images(inp, true); }
