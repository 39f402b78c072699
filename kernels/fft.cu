// kernels/fft.cu
// SPDX-License-Identifier: MIT
// Discrete Fourier transforms, X[k] = sum over j of x[j] exp(-2 pi i j k / n), of any
// length: of rows (..., n) and images (..., H, W), complex64, contiguous; the inverse
// ones divide by n. Of real rows, float32, the n / 2 + 1 first values; irfft is given
// those and n. Sizes below 2^31. Powers of 2 are fastest. Other products of 2, 3, 5, 7
// and 11 (mixed radix) take one pass if shared memory holds a row twice, and else two
// or three (Bailey's four-step: columns, twiddle factors, rows, written transposed);
// any other length is computed by three transforms of a longer one (Bluestein's chirp).
// Moves 16 bytes a complex value up to n = 8192, and at 16384 where a block may have
// 210 KB of shared memory; 32 up to 2^20 and for images, else 48. rfft: half of that
// for powers of 2 from 512 to 8192.
// Scratch memory: as much as the result, where there is more than one pass. Other real
// rows take 128 MB or a row, Bluestein one more of its longer rows, and as much again
// where the transforms in there take more than one pass; real rows of odd length are
// computed as complex ones.
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
#include <cmath>
#include <utility>
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

// exp(-2 pi i j / R), computed by the compiler
template <int R> struct Circle {
    float x[R] = {}, y[R] = {};
    __host__ __device__ constexpr Circle() {
        for (int j = 0; j < R; j++) {
            double angle = 6.283185307179586 * (2 * j > R ? j - R : j) / R;
            double term = 1, even = 0, odd = 0;  // Taylor's series
            for (int d = 1; d < 40; term *= angle / d, d++)
                (d % 2 ? even : odd) += (d - 1) % 4 < 2 ? term : -term;
            x[j] = float(even), y[j] = float(-odd);
        }
    }
};

template <int R> static __device__ const Circle<R> CIRCLE;

// a exp(-2 pi i j / R); a constant j costs nothing to look up
template <int R> static __device__ float2 turned(float2 a, int j) {
    if (4 * j % R == 0) {
        if (8 * j / R & 4) a = {-a.x, -a.y};
        return 8 * j / R & 2 ? float2{a.y, -a.x} : a;
    }
    return a * float2{CIRCLE<R>.x[j], CIRCLE<R>.y[j]};
}

// The transform of R values S apart, R = 3, 5, 7, 11, 13
template <int R, int S>
static __device__ void odd_butterfly(float2* v) {
    float2 out[R] = {v[0]};
#pragma unroll
    for (int j = 1; j <= R / 2; j++) {
        float2 a = v[j * S], b = v[(R - j) * S];
        v[j * S] = a + b, v[(R - j) * S] = a - b;
        out[0] = out[0] + v[j * S];
    }
#pragma unroll
    for (int k = 1; k <= R / 2; k++) {  // k and R - k: the same cosines, opposite sines
        float2 even = v[0], odd = {0, 0};
#pragma unroll
        for (int j = 1; j <= R / 2; j++) {
            even = even + CIRCLE<R>.x[j * k % R] * v[j * S];
            odd = odd + -CIRCLE<R>.y[j * k % R] * v[(R - j) * S];
        }
        out[k] = {even.x + odd.y, even.y - odd.x};
        out[R - k] = {even.x - odd.y, even.y + odd.x};
    }
#pragma unroll
    for (int k = 0; k < R; k++) v[k * S] = out[k];
}

static __host__ __device__ constexpr int last_factor(int R) {
    return R % 4 == 0 ? 4 : R % 2 == 0 ? 2 : R % 3 == 0 ? 3 : R % 5 == 0 ? 5 : R;
}

// The transform of v[0], v[S], ... v[(R - 1) S], in their place. R = R1 * R2: columns
// of R1 values, turns (twiddle factors), rows of R2. What comes out transposed, result
// k + R1 j at place R2 k + j, is renamed, which costs nothing in registers.
template <int R, int S> static __device__ void butterfly(float2* v) {
    constexpr int R2 = last_factor(R), R1 = R / R2;
    if constexpr (R == 2) {
        float2 a = v[0];
        v[0] = a + v[S], v[S] = a - v[S];
    } else if constexpr (R == 4) {
        float2 a = v[0] + v[2 * S], b = v[0] - v[2 * S];
        float2 c = v[S] + v[3 * S], d = v[S] - v[3 * S];
        v[0] = a + c, v[2 * S] = a - c;
        v[S] = {b.x + d.y, b.y - d.x}, v[3 * S] = {b.x - d.y, b.y + d.x};
    } else if constexpr (R1 == 1) {
        if constexpr (R > 1) odd_butterfly<R, S>(v);
    } else {
        float2 out[R];
#pragma unroll
        for (int j = 0; j < R2; j++) {
            butterfly<R1, R2 * S>(v + j * S);
#pragma unroll
            for (int k = 1; k < R1; k++)
                v[(j + R2 * k) * S] = turned<R>(v[(j + R2 * k) * S], j * k);
        }
#pragma unroll
        for (int k = 0; k < R1; k++) {
            butterfly<R2, S>(v + R2 * k * S);
#pragma unroll
            for (int j = 0; j < R2; j++) out[k + R1 * j] = v[(R2 * k + j) * S];
        }
#pragma unroll
        for (int k = 0; k < R; k++) v[k * S] = out[k];
    }
}

// v[s] times w^s, where w[0], w[1], w[2] are w, w^4, w^16. By the digits of s to the
// base 4: w^s is the product of a power that `low` has and one that `high` has, so that
// each comes from three sines and cosines by a few products, whose errors stay few.
template <int R>
static __device__ void times_powers(float2* v, const float2* w) {
    float2 low[4], high[8];  // of s % 4, of s / 4
    low[1] = w[0], low[2] = low[1] * low[1], low[3] = low[2] * low[1];
    if constexpr (R > 4) high[1] = w[1];
    if constexpr (R > 8) high[2] = high[1] * high[1], high[3] = high[2] * high[1];
    if constexpr (R > 16) high[4] = w[2];
#pragma unroll
    for (int a = 5; a < cdiv(R, 4); a++) high[a] = high[4] * high[a - 4];
#pragma unroll
    for (int s = 1; s < R; s++) {
        float2 root = s < 4 ? low[s] : high[s / 4];
        v[s] = v[s] * (s < 4 || s % 4 == 0 ? root : root * low[s % 4]);
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
// each. A thread holds V of them, LANES apart: v[r] is value t + r LANES. The first
// stage does the radix that is left over, FIRST, the others V.
// Stockham's order. What holds between stages: if M is the product of the radices so
// far, place p M + k has value k of the transform of x[p], x[p + N / M], x[p + 2 N / M]
// ... A stage of radix R makes one of R of these, with i = p M + k below N / R:
//   1. it takes places i + s N / R, s = 0 ... R - 1: value k of each of the R;
//   2. it turns value s by s k / (M R) (the twiddle factors) and does a butterfly;
//   3. it leaves result s at place p M R + k + s M: the same, for M R instead of M.
// The digits of an index thus are reversed one by one, by where values are written, and
// results end in order; there is no pass for it. N = 8, R = 2:
//   reads, each stage   0 4, 1 5, 2 6, 3 7
//   writes              0 1, 2 3, 4 5, 6 7 then 0 2, 1 3, 4 6, 5 7 then 0 4, 1 5 ...
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
    // KEPT: behind the values stand the stages' roots, all of them if they are few, and
    // else three a thread
    static __host__ __device__ constexpr bool all_kept(int M) { return M * V <= 4096; }
    static __host__ __device__ constexpr int roots_kept(int M) {  // by stages before M
        if (M <= FIRST) return 0;
        int last = all_kept(M / V) ? M / V * (V - 1) : 3 * THREADS;
        return roots_kept(M / V) + last;
    }
    static constexpr int BYTES = 4 * FLOATS + (KEPT ? 8 * roots_kept(N) : 0);

    static __device__ void sync() {  // of the threads of a transform
        if constexpr (LANES <= 32 && T == 1 && !TURNED) __syncwarp();
        else __syncthreads();
    }

    // v[r] goes to `write + place(r)`; what comes are t, t + LANES ... of lane `to`
    template <typename Place> static __device__ void exchange_by(
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

    // After a stage of radix R, with M the product of those before it: step 3 above.
    // The thread's V / R butterflies are i = t + q LANES, of which k = i % M is the
    // same for all, as M divides LANES. Writes go to p M R + k + s M with p M = i - k,
    // so that they are R (t - k) + k, the thread's own part, plus R q LANES + s M, the
    // same for all. Reads are of step 1 of the next stage, t + r LANES. Pads keep both
    // off one bank.
    template <int R, int M> static __device__ void exchange(
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
    template <int M> static __device__ void roots(float2* w, int k) {
#pragma unroll
        for (int i = 0, s = 1; s < V && i < 3; i++, s *= 4)  // the quotient is exact
            sincospif(float(s * k) * (-2.0f / (M * V)), &w[i].y, &w[i].x);
    }

    // Where the kept roots of a stage are; a thread's own are THREADS apart
    template <int M> static __device__ float2* kept(float* buffer) {
        float2* place = reinterpret_cast<float2*>(buffer + FLOATS) + roots_kept(M);
        return all_kept(M) ? place : place + threadIdx.x;
    }
    template <int M> static __device__ void keep_roots(float* buffer, int t) {
        float2* place = kept<M>(buffer);
        if constexpr (all_kept(M)) {  // w^(s k) at (s - 1) M + k
            for (int i = threadIdx.x; i < M * (V - 1); i += THREADS)
                sincospif(float((i / M + 1) * (i % M)) * (-2.0f / (M * V)), &place[i].y,
                          &place[i].x);
        } else {
            float2 w[3];
            roots<M>(w, t % M);
            for (int i = 0; i < 3; i++) place[i * THREADS] = w[i];
        }
        if constexpr (M < LANES) keep_roots<M * V>(buffer, t);
    }

    // v[s] times w^(s k). Sine and cosine cost as much as six products: `roots` has
    // those of s = 1, 4, 16, and the others are products.
    template <int M> static __device__ void twiddle(float2* v, float* buffer, int k) {
        if constexpr (KEPT && all_kept(M)) {
            const float2* all = kept<M>(buffer) + k;
#pragma unroll
            for (int s = 1; s < V; s++) v[s] = v[s] * all[(s - 1) * M];
        } else {
            float2 w[3];
            if constexpr (KEPT)
                for (int i = 0; i < 3; i++) w[i] = kept<M>(buffer)[i * THREADS];
            else roots<M>(w, k);
            times_powers<V>(v, w);
        }
    }

    // The stages after those of product M; the last one's results are for lane `to`
    template <int M> static __device__ void stages(
        float2* v, float* buffer, Lane from, Lane to) {
        Lane next = M == LANES ? to : from;
        exchange<(M == FIRST ? M : V), (M == FIRST ? 1 : M / V)>(v, buffer, from, next);
        after_exchange<M>(v, buffer, next, to);
    }

    template <int M> static __device__ void after_exchange(
        float2* v, float* buffer, Lane me, Lane to) {
        twiddle<M>(v, buffer, me.t % M);
        butterfly<V, 1>(v);
        if constexpr (M < LANES) stages<M * V>(v, buffer, me, to);
    }

    static __device__ void transform(
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

// Of the transform Z of N values, even places + i odd places of a real row of 2 N, the
// places k and N - k make up X[k]: the even places' transform is E[k] = (Z[k] +
// conj(Z[N - k])) / 2, the odd places' O[k] = (Z[k] - conj(Z[N - k])) / 2 i, and X[k] =
// E[k] + exp(-pi i k / N) O[k]. row: (N + 1); w = exp(-pi i t / N)
template <typename Tile>
static __device__ void store_real(float2* row, const float2* v, float* buffer,
                                  Lane me, bool inside) {
    constexpr int N = Tile::N, V = Tile::V;
    static_assert(!Tile::HALVES && 16 % V == 0);
    float2* Z = reinterpret_cast<float2*>(buffer) + me.row * Tile::PITCH;
    Tile::sync();  // what the buffer held has been read
#pragma unroll
    for (int r = 0; r < V; r++) Z[Tile::pad(me.t + r * Tile::LANES)] = v[r];
    Tile::sync();  // Z is written
    if (!inside) return;
    float2 w;
    sincospif(float(me.t) * (-1.0f / N), &w.y, &w.x);
#pragma unroll
    for (int r = 0; r < V; r++) {
        int k = me.t + r * Tile::LANES;
        float2 mirrored = conj(Z[Tile::pad((N - k) % N)]);
        float2 even = 0.5f * (v[r] + mirrored), odd = 0.5f * (v[r] - mirrored);
        odd = turned<32>(w, r * 16 / V) * float2{odd.y, -odd.x};
        row[k] = even + odd;
        if (k == 0) row[N] = even - odd;
    }
}

// out, inp: (rows, N); a block takes Tile::ROWS of them. If `real`, rows of inp are 2 N
// real numbers, and those of out N + 1 values.
template <typename Tile, int BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
fft_rows_kernel(float2* out, const float2* inp, int64_t rows, bool real, bool inverse,
                float scale) {
    extern __shared__ __align__(16) float fft_shared[];
    int t = threadIdx.x % Tile::LANES, row_in_block = threadIdx.x / Tile::LANES;
    int64_t row = int64_t(blockIdx.x) * Tile::ROWS + row_in_block;
    bool inside = row < rows;  // the others go along, for the barriers
    constexpr bool MAY_BE_REAL = Tile::N >= 256 && !Tile::HALVES;
    out += row * (Tile::N + (MAY_BE_REAL && real)), inp += row * Tile::N;

    Order<Tile, int> order(t, 1, inverse);
    float2 v[Tile::V];
#pragma unroll
    for (int r = 0; r < Tile::V; r++) v[r] = inside ? inp[order[r]] : float2{};
    Lane lane{t, 0, row_in_block};
    Tile::transform(v, fft_shared, lane, lane);
    if constexpr (MAY_BE_REAL)
        if (real) return store_real<Tile>(out, v, fft_shared, lane, inside);
    if (!inside) return;
#pragma unroll
    for (int r = 0; r < Tile::V; r++)
        out[t + r * Tile::LANES] = inverse ? scale * v[r] : v[r];
}

// A block that stays fetches its next values into shared memory while it computes. Each
// warp fetches those of its own threads, 32 neighbours for a v[r], and so waits for
// nobody else: __syncwarp is enough. Copies are of 16 bytes, two values; so one
// instruction of a warp brings v[r] and v[r + 1]:
//   next of the warp   | v[r] of lanes 0 to 31   | v[r + 1] of lanes 0 to 31  |
//   copied by lane       0, 1 ... 15: two each     16, 17 ... 31: two each
// A lane's are values `pair` and pair + 1 of those that are v[r + odd].
struct Fetcher {
    int pair = int(threadIdx.x) / 32 * 32 + int(threadIdx.x) % 16 * 2;
    int odd = int(threadIdx.x) % 32 / 16;
};

// Begins to copy the warp's values to `next`, if they exist; from(r): where the lane's
// pair comes from
template <int V, typename From>
static __device__ void fetch(float2* next, bool exists, From from) {
    float2* own = next + threadIdx.x / 32 * 32 * V + threadIdx.x % 32 * 2;
    if (exists)
#pragma unroll
        for (int r = 0; r < V; r += 2)
            __pipeline_memcpy_async(own + 32 * r, from(r), 16);
    __pipeline_commit();
}

// Waits for what was fetched. The inverse transform of v is the conjugate of conj(v)'s.
template <int V>
static __device__ void take(float2* v, const float2* next, bool inverse) {
    const float2* own = next + threadIdx.x / 32 * 32 * V + threadIdx.x % 32;
    __pipeline_wait_prior(0);
    __syncwarp();  // what all lanes have fetched is there
#pragma unroll
    for (int r = 0; r < V; r++) v[r] = own[32 * r];
    __syncwarp();  // all has been read, and may be overwritten
    if (inverse)
#pragma unroll
        for (int r = 0; r < V; r++) v[r] = conj(v[r]);
}

// Rows so long that a multiprocessor holds one at a time: its block goes through many
template <typename Tile>
__global__ void __launch_bounds__(Tile::THREADS)
fft_long_rows_kernel(float2* out, const float2* inp, int rows, bool inverse,
                     float scale) {
    constexpr int N = Tile::N, V = Tile::V, LANES = Tile::LANES;
    extern __shared__ __align__(16) float fft_shared[];
    float2* next = reinterpret_cast<float2*>(fft_shared);  // (N)
    float* buffer = fft_shared + 2 * N;
    Lane lane{int(threadIdx.x), 0, 0};
    Fetcher fetcher;
    Tile::template keep_roots<Tile::FIRST>(buffer, lane.t);
    auto fetch_row = [&](int row) {
        const float2* from = inp + int64_t(row) * N + fetcher.pair;
        fetch<V>(next, row < rows,
                 [&](int r) { return from + (r + fetcher.odd) * LANES; });
    };
    fetch_row(blockIdx.x);
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float2 v[V];
        take<V>(v, next, inverse);
        fetch_row(row + gridDim.x);
        Tile::transform(v, buffer, lane, lane);
        if (inverse)
#pragma unroll
            for (int r = 0; r < V; r++) v[r] = scale * conj(v[r]);
        float2* to = out + int64_t(row) * N + lane.t;
#pragma unroll
        for (int r = 0; r < V; r++) to[r * LANES] = v[r];
    }
}

// Large images, of Q M rows of W values, in two kernels. Row Q n + q is taken for
// columns q W to q W + W - 1 of row n, of M:
//   1. the columns' kernel transforms along n, which is all but the last radix, Q, of
//      the image's columns, and turns result k of row q by q k / (Q M);
//   2. the rows' kernel takes group k, rows q = 0 ... Q - 1 of it, does radix Q across
//      them, which makes them rows k + M g of out, g = 0 ... Q - 1, and transforms
//      them.
// In between, chunks of columns lie together, so that neither kernel has to reach far:
// (images, Q W / CHUNK, M, CHUNK), column q W + w for row q of group k of M.
constexpr int CHUNK = 512;

// Columns of inp (images, N, inner = Q W) to such chunks, T at a time. Result k of row
// q is then turned by q k / (Q N), as the last radix asks for.
template <typename Tile, int Q, int W>
__global__ void __launch_bounds__(Tile::THREADS)
fft_long_columns_kernel(float2* out, const float2* inp, int tiles, bool inverse) {
    constexpr int N = Tile::N, T = Tile::T, V = Tile::V, PER_IMAGE = Q * W / T;
    extern __shared__ __align__(16) float fft_shared[];
    float2* next = reinterpret_cast<float2*>(fft_shared);  // (N, T)
    float* buffer = fft_shared + 2 * N * T;
    Lane lane{int(threadIdx.x) / T, int(threadIdx.x) % T, 0};
    Fetcher fetcher;
    Tile::template keep_roots<Tile::FIRST>(buffer, lane.t);
    float2* turns = reinterpret_cast<float2*>(buffer + Tile::BYTES / 4);
    for (int i = threadIdx.x; i < (Q - 1) * N; i += Tile::THREADS)
        sincospif(float(i) * (-2.0f / (Q * N)), &turns[i].y, &turns[i].x);
    auto fetch_tile = [&](int tile) {
        const float2* from = inp + int64_t(tile / PER_IMAGE) * N * Q * W;
        from += tile % PER_IMAGE * T + fetcher.pair % T;
        from += (fetcher.pair / T + fetcher.odd * Tile::LANES) * (Q * W);
        fetch<V>(next, tile < tiles,
                 [&](int r) { return from + r * (Tile::LANES * Q * W); });
    };
    fetch_tile(blockIdx.x);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float2 v[V];
        take<V>(v, next, inverse);
        fetch_tile(tile + gridDim.x);
        Tile::transform(v, buffer, lane, lane);
        int column = tile % PER_IMAGE * T + lane.column;
        if (int q = column / W)
#pragma unroll
            for (int r = 0; r < V; r++)
                v[r] = v[r] * turns[q * (lane.t + r * Tile::LANES)];
        float2* to = out + int64_t(tile / PER_IMAGE) * N * Q * W;
        to += column / CHUNK * CHUNK * N + lane.t * CHUNK + column % CHUNK;
#pragma unroll
        for (int r = 0; r < V; r++) to[r * Tile::LANES * CHUNK] = v[r];
    }
}

// The columns' values k of group g are out's rows g + M k. A thread first holds values
// of all Q rows, then Tile::V of one.
template <typename Tile, int M>
__global__ void __launch_bounds__(Tile::THREADS)
fft_last_rows_kernel(float2* out, const float2* inp, int groups, bool inverse) {
    constexpr int Q = Tile::ROWS, W = Tile::N, V = Tile::V, R = Tile::FIRST;
    constexpr int C = V / Q, STEP = Tile::THREADS;  // a thread's values of a row
    static_assert(STEP == CHUNK);
    extern __shared__ __align__(16) float fft_shared[];
    float2* next = reinterpret_cast<float2*>(fft_shared);  // (Q, W)
    float* buffer = fft_shared + 2 * Q * W;
    int u = threadIdx.x;
    Lane lane{u % Tile::LANES, 0, u / Tile::LANES};
    Fetcher fetcher;
    Tile::template keep_roots<R>(buffer, lane.t);
    auto fetch_group = [&](int group) {
        const float2* from = inp + int64_t(group / M) * M * Q * W + group % M * CHUNK;
        from += fetcher.pair + fetcher.odd * (M * CHUNK);
        fetch<V>(next, group < groups, [&](int r) { return from + r * (M * CHUNK); });
    };
    fetch_group(blockIdx.x);
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        float2 v[V];
        take<V>(v, next, false);  // the columns' kernel has conjugated them
        fetch_group(group + gridDim.x);
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
        if (inverse)
#pragma unroll
            for (int r = 0; r < V; r++) v[r] = (1.0f / (Q * M * W)) * conj(v[r]);
        float2* row = out + (int64_t(group / M) * M * Q + group % M) * W;
        row += int64_t(lane.row) * M * W + lane.t;
#pragma unroll
        for (int r = 0; r < V; r++) row[r * Tile::LANES] = v[r];
    }
}

// out, inp: (outer, N, inner), transformed along N. If `period` is not 0, result k of
// column c is then turned by k c / period.
template <typename Tile, int BLOCKS>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
fft_columns_kernel(float2* out, const float2* inp, int64_t inner, int period,
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
    int turns = period ? int(column) : 0;
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

// exp(-2 pi i x / period), exact to 1e-7 for any period, 0 <= x < period: of a turn's
// quarters one that is near, and sine and cosine of what is left, a whole number. It is
// small: that the terms of its difference overflow an unsigned Int does no harm.
template <typename Int> static __device__ float2 root_of_one(Int x, Int period) {
    float inverse = 1.0f / float(period);
    Int quarters = Int(4.0f * float(x) * inverse + 0.5f);
    float rest = float(std::make_signed_t<Int>(4 * x - quarters * period));
    float2 w;
    sincospif(-0.5f * inverse * rest, &w.y, &w.x);
    if (quarters & 1) w = {w.y, -w.x};
    return quarters & 2 ? float2{-w.x, -w.y} : w;
}

// How many roots times_powers needs
static __host__ __device__ constexpr int roots_of(int R) {
    return R > 16 ? 3 : R > 4 ? 2 : 1;
}

// Results i, i + step, ... of column c turned by k c / period
template <int R> static __device__ void turn_results(
    float2* v, int i, int step, int c, int period, bool inverse) {
    auto root = [&](int k) {
        float2 w = root_of_one<unsigned>(k * c, period);
        return inverse ? conj(w) : w;
    };
    float2 w[3], first = root(i);
#pragma unroll
    for (int a = 0; a < roots_of(R); a++) w[a] = root(step << 2 * a);
    times_powers<R>(v, w);
#pragma unroll
    for (int s = 0; s < R; s++) v[s] = first * v[s];
}

// The radices of lengths that are no powers of 2
using Radices = std::integer_sequence<int, 25, 16, 15, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3,
                                      2, 1>;
constexpr int MAX_RADIX = 25, TURN_RADIX = 16, MAX_STAGES = 6;
constexpr int TILE_VALUES = 2048, MIXED_THREADS = 768;

// A stage of radix R. Those before it, of product m, have left blocks of m values that
// are `pitch` apart; it makes blocks of m R values, `to_pitch` apart.
struct Stage {
    int radix, m, pitch, to_pitch;
    int rest;   // n / (m R)
    int roots;  // where its roots begin
    float inverse_m, inverse_lanes;
};

// Where value i of column c of a tile lies: at i * step + c * column, behind `tile` for
// each tile of its row of tiles before it, `row` for each such row, and `outer`
struct Side {
    int64_t tile, row, outer;
    int step, column;
};

// Tiles of `width` columns of n values. They may be rows of memory, or columns, or rows
// that are to be written as columns.
struct Mixed {
    int n, width;
    int64_t columns;
    int tiles, rows = 1, outer = 1;  // tiles of a row of tiles, rows ...
    Side from, to;
    bool inverse, contiguous = false;  // contiguous: tile behind tile
    float scale, inverse_width;
    int period = 0;  // or else result k of column c is turned by k c / period
    int pitch = 1;   // from a column to the next in shared memory
    int roots = 0, stages = 0;
    Stage stage[MAX_STAGES];
    __host__ __device__ int values() const { return pitch * width; }  // of a buffer
    int bytes() const { return 8 * (2 * values() + roots); }
};

// A block's tile: where it begins in memory, its first column, how many columns it has
struct Corner {
    const float2* inp;
    float2* out;
    int column, columns;
};

// x / d, exact for x below 2^20, from about 1 / d
static __device__ int quotient(int x, float inverse) {
    return int((float(x) + 0.5f) * inverse);
}

// Tells the L2 cache to fetch `values` values from `from` on, soon to be read
static __device__ void prefetch(const float2* from, int64_t values) {
#if defined(__CUDA_ARCH__)
    for (int64_t i = 16 * threadIdx.x; i < values; i += 16 * blockDim.x)  // 128 bytes
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
#endif
}

// Stage p, from `src` to `dst` in shared memory; but the first one reads memory, and
// the last one writes it. Stockham's steps, as in Tile, with blocks of m values for M
// and p: i = block m + k, values `rest` blocks apart, results m apart in a block R
// times as long. `across`: neighbours in memory are of neighbouring columns, and so are
// threads
template <int R> static __device__ void mixed_stage(
    const Mixed& x, int p, const Corner& tile, float2* dst, const float2* src,
    const float2* roots) {
    Stage at = x.stage[p];
    bool first = p == 0, last = p == x.stages - 1;
    bool columns = x.from.column == 1;  // side by side, in shared memory as well
    int i_step = columns ? x.width : 1, c_step = columns ? 1 : x.pitch;
    bool across = (first ? x.from : x.to).column == 1;  // in memory
    int m = at.m, lanes = x.n / R, line = across ? x.width : lanes;
    float inverse_line = across ? x.inverse_width : at.inverse_lanes;
    for (int g = threadIdx.x; g < lanes * x.width; g += blockDim.x) {
        int q = quotient(g, inverse_line), rest = g - q * line;
        int i = across ? q : rest, c = across ? rest : q;
        if (c >= tile.columns) continue;
        int block = first ? i : last ? 0 : quotient(i, at.inverse_m), k = i - block * m;
        int to = last ? i * x.to.step + c * x.to.column
                      : (block * at.to_pitch + k) * i_step + c * c_step;
        int to_step = m * (last ? x.to.step : i_step);
        float2 v[R];
        if (first) {  // backwards for the inverse transform
            const float2* from = tile.inp + c * x.from.column;
            int start = x.inverse ? x.n - i : i, step = x.inverse ? -lanes : lanes;
            v[0] = from[i == 0 ? 0 : start * x.from.step];
#pragma unroll
            for (int s = 1; s < R; s++) v[s] = from[(start + s * step) * x.from.step];
        } else {
            const float2* from = src + (block * at.pitch + k) * i_step + c * c_step;
            int step = at.rest * at.pitch * i_step;
#pragma unroll
            for (int s = 0; s < R; s++) v[s] = from[s * step];
            float2 w[3];
#pragma unroll
            for (int a = 0; a < roots_of(R); a++) w[a] = roots[at.roots + a * m + k];
            times_powers<R>(v, w);
        }
        butterfly<R, 1>(v);
        if (last) {
            if (R <= TURN_RADIX && x.period)
                turn_results<R>(v, i, m, tile.column + c, x.period, x.inverse);
            if (x.inverse)
#pragma unroll
                for (int s = 0; s < R; s++) v[s] = x.scale * v[s];
#pragma unroll
            for (int s = 0; s < R; s++) tile.out[to + s * to_step] = v[s];
        } else {
#pragma unroll
            for (int s = 0; s < R; s++) dst[to + s * to_step] = v[s];
        }
    }
}

// The same for a radix that is known at run time
template <int... R, typename... Args>
static __device__ void stage_of(std::integer_sequence<int, R...>, const Mixed& x, int p,
                                Args... args) {
    int radix = x.stage[p].radix;
    ((radix == R && (mixed_stage<R>(x, p, args...), true)) || ...);
}

// roots[a m + k] = exp(-2 pi i k 4^a / (m R)); what the angle's rounding leaves out is
// made good
static __device__ void stage_roots(float2* roots, const Stage& at) {
    float angle = -2.0f / (at.m * at.radix);
    float left = fmaf(-angle, float(at.m * at.radix), -2.0f) / (at.m * at.radix);
    for (int i = threadIdx.x; i < at.m * roots_of(at.radix); i += blockDim.x) {
        float k = float(i % at.m << 2 * (i / at.m)), turns = k * angle;
        float rest = 3.14159265f * (fmaf(k, angle, -turns) + k * left);
        float2 w;
        sincospif(turns, &w.y, &w.x);
        roots[i] = w + rest * float2{-w.y, w.x};
    }
}

// A block goes through many tiles: their roots are the same
__global__ void __launch_bounds__(MIXED_THREADS)
fft_mixed_kernel(float2* out, const float2* inp, const __grid_constant__ Mixed x) {
    extern __shared__ __align__(16) float fft_shared[];
    float2* dst = reinterpret_cast<float2*>(fft_shared);
    float2 *src = dst + x.values(), *roots = src + x.values();
    for (int p = 1; p < x.stages; p++)
        stage_roots(roots + x.stage[p].roots, x.stage[p]);
    int a_row = x.tiles * x.rows, all = a_row * x.outer;
    bool one_row = all == x.tiles;
    for (int b = blockIdx.x; b < all; b += gridDim.x) {
        int row = one_row ? 0 : b / x.tiles, outer = one_row ? 0 : b / a_row;
        int tile = b - row * x.tiles;
        int64_t column = int64_t(tile) * x.width;
        row -= outer * x.rows;
        Corner corner = {
            inp + tile * x.from.tile + row * x.from.row + outer * x.from.outer,
            out + tile * x.to.tile + row * x.to.row + outer * x.to.outer, int(column),
            int(min(int64_t(x.width), x.columns - column))};
        for (int p = 0; p < x.stages; p++) {
            stage_of(Radices(), x, p, corner, dst, src, roots);
            if (p == 0 && x.contiguous && b + int(gridDim.x) < all) {
                int64_t ahead = gridDim.x * x.from.tile;
                int64_t left = (x.columns - column) * x.n;
                prefetch(corner.inp + ahead, min(x.from.tile, left - ahead));
            }
            if (p == x.stages - 1) break;
            __syncthreads();  // stage p has written, and p - 1 read
            float2* free = src;
            src = dst, dst = free;
        }
    }
}

// Rows that need an intermediate result are taken in portions, so that it has at most
// so many values, 128 MB (but a row at least): the same memory for each in turn.
constexpr int64_t AT_ONCE = 1 << 24;

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

// The first `rows` of spectra (rows + 1, m) times the last one, in their place. That
// reads the same from both ends, but for errors of rounding: the mean has less of them.
__global__ void fft_filter_kernel(float2* spectra, int64_t rows, int64_t m) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, k = i % m;
    if (i >= rows * m) return;
    const float2* filter = spectra + rows * m;
    spectra[i] = spectra[i] * (0.5f * (filter[k] + filter[k > 0 ? m - k : 0]));
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
    bool real = false;  // inp: real rows of 2 n, of which out has (rows, n + 1)
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
           x.out, x.inp, x.rows, x.real, x.inverse, x.scale());
}

// The kernel for rows of n, a power of 2 up to 8192, or null
static auto short_rows_of(int64_t n) {
    return n == 2      ? short_rows<2, 2, 256, 4>
           : n == 4    ? short_rows<4, 4, 256, 4>
           : n == 8    ? short_rows<8, 8, 128, 4>
           : n == 16   ? short_rows<16, 4, 64, 4>
           : n == 32   ? short_rows<32, 8, 64, 4>
           : n == 64   ? short_rows<64, 8, 16, 8>
           : n == 128  ? short_rows<128, 16, 32, 4>
           : n == 256  ? short_rows<256, 16, 16, 4>
           : n == 512  ? short_rows<512, 16, 8, 4>
           : n == 1024 ? short_rows<1024, 16, 4, 4>
           : n == 2048 ? short_rows<2048, 16, 2, 4>
           : n == 4096 ? short_rows<4096, 16, 1, 4>
           : n == 8192 ? short_rows<8192, 32, 1, 3>
                       : nullptr;
}

using LongTile = Tile<16384, 32, 1, 1, false, true>;
constexpr int LONG_BYTES = 8 * LongTile::N + LongTile::BYTES;

static void long_rows(const Rows& x) {
    int64_t blocks = attribute(cudaDevAttrMultiProcessorCount);
    launch(fft_long_rows_kernel<LongTile>, std::min(blocks, x.rows), LongTile::THREADS,
           LONG_BYTES, x.out, x.inp, int(x.rows), x.inverse, x.scale());
}

template <int N, int V, int T_, int BLOCKS>
static void columns(float2* out, const float2* inp, int64_t outer, int64_t inner,
                    int period, bool inverse) {
    using T = Tile<N, V, T_, 1>;
    launch(fft_columns_kernel<T, BLOCKS>, outer * cdiv(inner, T_), T::THREADS, T::BYTES,
           out, inp, inner, period, inverse);
}

// The transform of columns (outer, N, inner) for N = 64 to 4096, a power of 2
static void columns_of(int64_t N, float2* out, const float2* inp, int64_t outer,
                       int64_t inner, int period, bool inverse) {
    auto run = N == 64     ? columns<64, 16, 64, 4>
               : N == 128  ? columns<128, 16, 32, 4>
               : N == 256  ? columns<256, 16, 16, 4>
               : N == 512  ? columns<512, 32, 16, 3>
               : N == 1024 ? columns<1024, 32, 8, 3>
               : N == 2048 ? columns<2048, 32, 4, 2>
                           : columns<4096, 16, 4, 1>;
    run(out, inp, outer, inner, period, inverse);
}

template <int N, int V, int ROWS, int BLOCKS>
static void turned_rows(float2* out, const float2* inp, int64_t outer, int M, int P,
                        bool inverse) {
    using T = Tile<N, V, 1, ROWS, true>;
    launch(fft_turned_rows_kernel<T, BLOCKS>, outer * M * P / ROWS, T::THREADS,
           T::BYTES, out, inp, M, P, inverse);
}

// The four-step algorithm, for n = N1 * N2 = 2^14 to 2^20, in two passes. With j = N2
// j1 + j2, k = k1 + N1 k2 and W(n) = exp(-2 pi i / n), X[k] is
//   sum over j2 of W(N2)^(j2 k2) W(n)^(j2 k1) sum over j1 of W(N1)^(j1 k1) x[j]
//   1. columns: x is N1 rows of N2; transforms along j1, result k1 of column j2 turned
//      by j2 k1 / n;
//   2. turned rows: transforms along j2; result k2 of row k1 goes to k1 + N1 k2, so
//      that the N1 rows of N2 are written as N2 rows of N1.
static void two_passes(const Rows& x) {
    int64_t N2 = x.n <= 1 << 18 ? 256 : 1024, N1 = x.n / N2;
    auto second = N2 == 256 ? turned_rows<256, 16, 16, 4> : turned_rows<1024, 32, 8, 3>;
    Tensor between = torch::empty({x.rows, x.n}, x.options);
    columns_of(N1, values(between), x.inp, x.rows, N2, x.n, x.inverse);
    second(x.out, values(between), x.rows, N1, 1, x.inverse);
}

// n = N1 * N2 * N3 = 2^21 to 2^27: the same with the second step's transforms, of N2 *
// N3 values, made of two more; k = k1 + N1 (k2 + N2 k3), so that the last pass writes
// (N1, N2, N3) as (N3, N2, N1)
static void three_passes(const Rows& x) {
    int64_t N3 = 256, N2 = x.n < 1 << 23 ? 128 : 256, N1 = x.n / N2 / N3;
    Tensor between = torch::empty({x.rows, x.n}, x.options);
    float2* half = values(between);
    columns_of(N1, half, x.inp, x.rows, N2 * N3, x.n, x.inverse);
    columns_of(N2, half, half, x.rows * N1, N3, N2 * N3, x.inverse);
    turned_rows<256, 16, 16, 4>(x.out, half, x.rows, N1, N2, x.inverse);
}

using LastTile = Tile<4096, 32, 1, 4, false, true>;
using LongColumns = Tile<1024, 32, 16, 1, false, true>;
constexpr int LAST_BYTES = 8 * 16384 + LastTile::BYTES;
constexpr int LARGE_BYTES = 8 * 16384 + LongColumns::BYTES + 8 * 3 * LongColumns::N;
static_assert(std::max({LONG_BYTES, LAST_BYTES, LARGE_BYTES}) <= 227 * 1024);

// Images of 4096 * 4096. Tiles of whole columns would be four wide; these, of all but
// the last radix, are sixteen wide, and the rows' tiles do that radix as well.
static void large_images(float2* out, const float2* inp, int64_t images, bool inverse,
                         const torch::TensorOptions& options) {
    constexpr int Q = LastTile::ROWS, W = LastTile::N, M = LongColumns::N;
    Tensor between = torch::empty({images, Q * M, W}, options);
    int tiles = images * Q * W / LongColumns::T, groups = images * M;
    int64_t blocks = attribute(cudaDevAttrMultiProcessorCount);
    launch(fft_long_columns_kernel<LongColumns, Q, W>, std::min<int64_t>(blocks, tiles),
           LongColumns::THREADS, LARGE_BYTES, values(between), inp, tiles, inverse);
    launch(fft_last_rows_kernel<LastTile, M>, std::min<int64_t>(blocks, groups),
           LastTile::THREADS, LAST_BYTES, out, values(between), groups, inverse);
}

static bool smooth(int64_t n) {  // a product of 2, 3, 5, 7 and 11
    for (int prime : {2, 3, 5, 7, 11})
        while (n % prime == 0) n /= prime;
    return n == 1;
}

template <int... R> static std::vector<int> list(std::integer_sequence<int, R...>) {
    return {R...};
}

static const std::vector<int> RADICES = list(Radices());  // the largest first

// Puts n down as `count` radices of at most `limit`, or says that this cannot be
static bool split(int64_t n, int count, int limit, int* radices) {
    if (count == 0) return n == 1;
    for (int R : RADICES) {
        *radices = R;
        if (R <= limit && n % R == 0 && split(n / R, count - 1, R, radices + 1))
            return true;
    }
    return false;
}

// As few radices as possible, two at least, and none larger than it has to be; 0 if
// there would be too many
static int radices_of(int64_t n, int largest, int* radices) {
    for (int count = 2; count <= MAX_STAGES; count++)
        for (int limit = 2; limit <= largest; limit++)
            if (std::pow(limit, count) >= n && split(n, count, limit, radices))
                return count;
    return 0;
}

// Plans the stages, and tiles as wide as shared memory allows, up to `width`; false if
// it holds none
static bool plan(Mixed& x, int64_t width) {
    int radices[MAX_STAGES], m = 1, pitch = 1;
    x.stages = radices_of(x.n, x.period ? TURN_RADIX : MAX_RADIX, radices);
    for (int p = 0; p < x.stages; p++) {
        int R = radices[p];
        // blocks are so far apart that writing them meets no bank twice: to_pitch is m
        // modulo 16 (or odd, if m is 1), so that thread i = block m + k writes to i
        // modulo 16
        int to_pitch = m * R + (m == 1 ? 1 - R % 2 : 15 & (m - m * R));
        x.stage[p] = {R, m, pitch, to_pitch, x.n / R / m, x.roots, 1.0f / m,
                      float(R) / x.n};
        if (p > 0) x.roots += m * roots_of(R);
        m *= R, pitch = to_pitch;
        if (p < x.stages - 1) x.pitch = std::max(x.pitch, x.n / m * pitch);
    }
    x.pitch |= 1;  // columns then meet different banks
    int most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    for (x.width = width; x.width > 1 && x.bytes() > most;) x.width /= 2;
    x.tiles = cdiv(x.columns, x.width), x.inverse_width = 1.0f / x.width;
    return x.stages > 0 && x.bytes() <= most;
}

// Chooses a block's threads. A round of butterflies waits about as long as a thousand
// threads compute, and that is shared by the blocks that a multiprocessor holds.
static void launch_mixed(float2* out, const float2* inp, const Mixed& x) {
    int room = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    int most = std::max(1, room / (x.bytes() + 1024));
    int64_t threads = 0, blocks = 0, least = INT64_MAX;
    for (int t = 128; t <= MIXED_THREADS; t += 32) {
        int64_t rounds = 0, held = std::min(MIXED_THREADS / t, most);
        for (int p = 0; p < x.stages; p++)
            rounds += cdiv(int64_t(x.n / x.stage[p].radix) * x.width, t);
        int64_t cost = rounds * (1000 / held + t);
        if (cost < least) least = cost, threads = t, blocks = held;
    }
    blocks *= attribute(cudaDevAttrMultiProcessorCount);
    int64_t tiles = int64_t(x.tiles) * x.rows * x.outer;
    launch(fft_mixed_kernel, std::min(blocks, tiles), threads, x.bytes(), out, inp, x);
}

// Rows, if shared memory holds them
static bool mixed_rows(const Rows& x) {
    if (x.n > 1 << 14) return false;
    Mixed tiles{int(x.n)};
    tiles.columns = x.rows, tiles.inverse = x.inverse, tiles.scale = x.scale();
    if (!plan(tiles, std::max<int64_t>(1, TILE_VALUES / x.n))) return false;
    tiles.from = tiles.to = {tiles.width * x.n, 0, 0, 1, tiles.n};
    tiles.contiguous = true;
    launch_mixed(x.out, x.inp, tiles);
    return true;
}

// As `columns` and `turned_rows`, for any smooth N
static void mixed_columns(int N, float2* out, const float2* inp, int64_t outer,
                          int inner, int period, bool inverse) {
    Mixed tiles{N};
    tiles.columns = inner, tiles.rows = outer, tiles.period = period;
    tiles.inverse = inverse, tiles.scale = inverse ? 1.0f / N : 1.0f;
    TORCH_CHECK(plan(tiles, 16), "fft: no shared memory for columns of ", N);
    tiles.from = tiles.to = {tiles.width, int64_t(N) * inner, 0, inner, 1};
    launch_mixed(out, inp, tiles);
}

static void mixed_turned_rows(int N, float2* out, const float2* inp, int64_t outer,
                              int M, int P, bool inverse) {
    Mixed tiles{N};
    tiles.columns = M, tiles.rows = P, tiles.outer = outer;
    tiles.inverse = inverse, tiles.scale = inverse ? 1.0f / N : 1.0f;
    TORCH_CHECK(plan(tiles, 16), "fft: no shared memory for rows of ", N);
    int64_t all = int64_t(N) * M * P, width = tiles.width;
    tiles.from = {width * P * N, N, all, 1, P * N};
    tiles.to = {width, M, all, P * M, 1};
    launch_mixed(out, inp, tiles);
}

// The largest divisor of n that is not above `most`
static int64_t divisor(int64_t n, double most) {
    int64_t d = most;
    while (n % d) d--;
    return d;
}

// Other products of small primes, in two passes or three
static void mixed_passes(const Rows& x) {
    Tensor between = torch::empty({x.rows, x.n}, x.options);
    float2* half = values(between);
    double parts = x.n <= 1 << 20 ? 2 : 3;
    int64_t N1 = divisor(x.n, std::pow(x.n, 1 / parts)), P = 1, N3 = x.n / N1;
    mixed_columns(N1, half, x.inp, x.rows, N3, x.n, x.inverse);
    if (parts == 3) {
        P = divisor(N3, std::sqrt(N3)), N3 /= P;
        mixed_columns(P, half, half, x.rows * N1, N3, P * N3, x.inverse);
    }
    mixed_turned_rows(N3, x.out, half, x.rows, N1, P, x.inverse);
}

static void transform(const Rows& x);

// A length of at least n: the next power of 2, or a product that saves a third of it
static int64_t padded_length(int64_t n) {
    int64_t power = 1, m = cdiv(n, 16) * 16;
    while (power < n) power *= 2;
    while (m < power && !smooth(m)) m += 16;
    return 3 * m <= 2 * power ? m : power;
}

static void bluestein(const Rows& x) {
    int64_t m = padded_length(2 * x.n - 1);
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

// Also in its place
static void transform(const Rows& x) {
    auto short_kernel = short_rows_of(x.n);
    bool power_of_2 = (x.n & (x.n - 1)) == 0;
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
    } else if (!smooth(x.n)) {
        bluestein(x);
    } else if (!mixed_rows(x)) {
        mixed_passes(x);
    }
}

static void check_input(const char* name, const Tensor& x, torch::ScalarType type,
                        int64_t dims) {
    TORCH_CHECK(x.scalar_type() == type && x.is_contiguous() && x.is_cuda() &&
                    x.dim() >= dims && x.size(-1) > 0 && x.size(-dims) > 0 &&
                    x.size(-1) <= INT_MAX && x.size(-dims) <= INT_MAX,
                name, ": expected contiguous ",
                type == torch::kFloat32 ? "float32" : "complex64",
                " on a CUDA device, ", dims, " dimensions or more, the last ", dims,
                " from 1 to 2^31 - 1, got ",
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
    if (auto kernel = h >= 256 && h <= 4096 ? short_rows_of(h) : nullptr) {
        kernel({values(out), inp_pairs, rows, h, false, options, true});
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
    if (N > 0 && H == 4096 && W == LastTile::N && shared_bytes >= LARGE_BYTES &&
        reinterpret_cast<uintptr_t>(inp.data_ptr()) % 16 == 0) {
        inp = inp.resolve_conj();
        Tensor out = torch::empty_like(inp);
        large_images(values(out), values(inp), N, inverse, inp.options());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return out;
    }
    Tensor out = complex_rows(inp, inverse);
    int64_t tallest = shared_bytes < 70 * 1024 ? 2048 : 4096;
    if (N > 0 && H >= 64 && H <= tallest && (H & (H - 1)) == 0) {
        columns_of(H, values(out), values(out), N, W, 0, inverse);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    } else if (N > 0 && H > 1 && H <= 1024 && smooth(H)) {
        mixed_columns(H, values(out), values(out), N, W, 0, inverse);
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
