"""What a kernel can do on the CPU backend: every feature against numpy, under g++ and clang."""

import os
import platform
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from helpers.tests.cuda_driver import build_portable_runtime, compile_string, need

_STRINGS = []


def cuda(src: str) -> None:
    """Add to the one string that all tests of this module share: it is compiled once."""
    _STRINGS.append(src)


VARIANTS = ["g++", "clang++", "g++ -std=c++20, portable switch"]


@pytest.fixture(scope="module", params=VARIANTS)
def lib(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    cxx = request.param.split()[0]
    if "portable" not in request.param:
        return compile_string("".join(_STRINGS), folder, cxx, lambdas=True)
    runtime = build_portable_runtime(folder)
    source = "".join(_STRINGS)
    return compile_string(source, folder, cxx, runtime, std="c++20", lambdas=True)


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def ints(*values):
    return np.array(values, np.int32)


# --- grids, blocks, barriers, shared memory -------------------------------------------------------

cuda(r"""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
EXPORT add(const Arrays& a) {
    int n = a.size[0];
    add_kernel<<<(n + 255) / 256, 256>>>(a.at<float>(0), a.at<float>(1), a.at<float>(2), n);
}
""")


@pytest.mark.parametrize("n", [1, 255, 257, 100_003])
def test_vector_add(lib, n):
    a, b, out = floats(n), floats(n), zeros(n)
    lib.run("add", a, b, out)
    np.testing.assert_array_equal(out, a + b)


cuda(r"""
__global__ void index_kernel(int* out) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int threads = blockDim.x * blockDim.y * blockDim.z;
    atomicAdd(&out[block * threads + thread], 1 + block * 1000 + thread);
}
EXPORT index_3d(const Arrays& a) { index_kernel<<<dim3(3, 2, 4), dim3(5, 3, 2)>>>(a.at<int>(0)); }
""")


def test_grids_and_blocks_of_three_dimensions(lib):
    out = zeros(24, 30, dtype=np.int32)
    lib.run("index_3d", out)
    np.testing.assert_array_equal(out, 1 + 1000 * np.arange(24)[:, None] + np.arange(30))


cuda(r"""
template <int TILE>
__global__ void matmul_tiled_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float A_tile[TILE][TILE], B_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0;
    for (int k = 0; k < K; k += TILE) {
        int x = threadIdx.x, y = threadIdx.y;
        A_tile[y][x] = row < M && k + x < K ? A[row * K + k + x] : 0;
        B_tile[y][x] = k + y < K && col < N ? B[(k + y) * N + col] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) acc += A_tile[y][i] * B_tile[i][x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
__global__ void matmul_dynamic_kernel(const float* A, const float* B, float* C,
                                      int M, int N, int K) {
    extern __shared__ __align__(16) float tiles[];
    const int tile = blockDim.x;
    float *A_tile = tiles, *B_tile = tiles + tile * tile;
    int row = blockIdx.y * tile + threadIdx.y, col = blockIdx.x * tile + threadIdx.x;
    float acc = 0;
    for (int k = 0; k < K; k += tile) {
        int x = threadIdx.x, y = threadIdx.y;
        A_tile[y * tile + x] = row < M && k + x < K ? A[row * K + k + x] : 0;
        B_tile[y * tile + x] = k + y < K && col < N ? B[(k + y) * N + col] : 0;
        __syncthreads();
        for (int i = 0; i < tile; i++) acc += A_tile[y * tile + i] * B_tile[i * tile + x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
EXPORT matmul(const Arrays& a) {
    int M = a.at<int>(3)[0], N = a.at<int>(3)[1], K = a.at<int>(3)[2], kind = a.at<int>(3)[3];
    float *A = a.at<float>(0), *B = a.at<float>(1), *C = a.at<float>(2);
    cudaStream_t stream = 0;
    int tile = kind == 32 ? 32 : 16;
    dim3 grid((N + tile - 1) / tile, (M + tile - 1) / tile), block(tile, tile);
    if (kind == 32) matmul_tiled_kernel<32><<<grid, block, 0, stream>>>(A, B, C, M, N, K);
    else if (kind == 16)
        matmul_tiled_kernel<16><<<grid, block>>>(A, B, C, M, N, K);
    else
        matmul_dynamic_kernel<<<grid, block, 2 * tile * tile * sizeof(float), stream>>>(
            A, B, C, M, N, K);
}
""")


@pytest.mark.parametrize("kind", [32, 16, 0], ids=["static 32", "static 16", "dynamic"])
def test_tiled_matmul(lib, kind):
    M, N, K = 37, 50, 61
    A, B, C = floats(M, K), floats(K, N), zeros(M, N)
    lib.run("matmul", A, B, C, ints(M, N, K, kind))
    np.testing.assert_allclose(C, A @ B, rtol=1e-4, atol=1e-4)


cuda(r"""
__global__ void barrier_votes_kernel(int* out) {
    int t = threadIdx.x;
    int count = __syncthreads_count(t % 3 == 0);
    int all = __syncthreads_and(t < 100), none = __syncthreads_and(t < 99);
    int any = __syncthreads_or(t == 50), nobody = __syncthreads_or(t == 100);
    out[t] = count * 10000 + all * 1000 + none * 100 + any * 10 + nobody;
}
EXPORT barrier_votes(const Arrays& a) { barrier_votes_kernel<<<1, 100>>>(a.at<int>(0)); }
""")


def test_barriers_that_vote(lib):
    out = zeros(100, dtype=np.int32)
    lib.run("barrier_votes", out)
    assert (out == 34 * 10000 + 1000 + 10).all()


cuda(r"""
extern __shared__ int at_file_scope[];
__global__ void file_scope_kernel(int* out) {
    at_file_scope[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int* pointer = at_file_scope + 1;
    out[threadIdx.x] = threadIdx.x + 1 < blockDim.x ? pointer[threadIdx.x] : at_file_scope[0];
}
EXPORT file_scope(const Arrays& a) { file_scope_kernel<<<1, 64, 256>>>(a.at<int>(0)); }
""")


def test_dynamic_shared_memory_at_file_scope(lib):
    out = zeros(64, dtype=np.int32)
    lib.run("file_scope", out)
    np.testing.assert_array_equal(out, np.roll(np.arange(64), -1))


cuda(r"""
__device__ int block_max(int value) {
    static __shared__ int best;
    __shared__ alignas(16) int seen[4];
    __shared__ static volatile int turn;
    if (threadIdx.x == 0) best = seen[1] = turn = 0;
    __syncthreads();
    atomicMax(&best, value);
    __syncthreads();
    return best + seen[1] + turn;
}
__global__ void block_max_kernel(const int* in, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = block_max(in[i]);
}
EXPORT block_maxima(const Arrays& a) { block_max_kernel<<<50, 64>>>(a.at<int>(0), a.at<int>(1)); }
""")


def test_shared_memory_belongs_to_a_block(lib):
    values = np.random.default_rng(4).integers(0, 9999, (50, 64)).astype(np.int32)
    out = zeros(50, 64, dtype=np.int32)
    lib.run("block_maxima", values, out)
    np.testing.assert_array_equal(out, np.repeat(values.max(1)[:, None], 64, axis=1))


cuda(r"""
__global__ void order_kernel(int* order, int* next) {
    int t = threadIdx.x;
    order[atomicAdd(next, 1)] = t;
    __syncthreads();
    order[atomicAdd(next, 1)] = t;
    __syncwarp();
    order[atomicAdd(next, 1)] = t;
}
EXPORT order(const Arrays& a) { order_kernel<<<1, 96>>>(a.at<int>(0), a.at<int>(1)); }
""")


def test_threads_run_in_the_same_order_every_time(lib):
    first, second = zeros(288, dtype=np.int32), zeros(288, dtype=np.int32)
    lib.run("order", first, ints(0))
    lib.run("order", second, ints(0))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[:96], np.arange(96))
    np.testing.assert_array_equal(np.sort(first[96:]), np.repeat(np.arange(96), 2))


cuda(r"""
__global__ void hand_over_kernel(int* out, int with_warps) {
    int t = threadIdx.x, n = blockDim.x;
    for (int i = 0; i < 4; i++) {
        if (i == with_warps) __syncwarp();
        __syncthreads();
        // The code that a thread went on at: the runtime's, where the first one went on, or not.
        auto* stopped = cuda_on_cpu::position.stopped;
        out[i * n + t] = stopped && stopped[t].code != stopped[0].code;
    }
}
EXPORT hand_over(const Arrays& a) { hand_over_kernel<<<1, a.size[0] / 4>>>(a.at<int>(0), 1); }
""")


@pytest.mark.parametrize("threads", [1, 2, 33, 256])
def test_threads_that_come_in_order_hand_over_in_the_kernel(lib, request, threads):
    out = np.full((4, threads), -1, np.int32)
    lib.run("hand_over", out)
    expected = np.zeros_like(out)
    if platform.machine() == "x86_64" and "portable" not in request.node.name:
        expected[[0, 2, 3], 1:-1] = 1  # at 1 the threads come warp by warp
    np.testing.assert_array_equal(out, expected)


cuda(r"""
// Each block leaves the order of its threads elsewhere, and some never.
__global__ void orders_kernel(double* out) {
    __shared__ double s[1024];
    int t = threadIdx.x, n = blockDim.x, way = blockIdx.x % 6;
    double mine = blockIdx.x + 1;  // it lives through all barriers
    for (int i = 0; i < 4; i++) {
        s[t] = mine;
        if (i == 1 && way == 1) __syncwarp();
        if (i == 2 && way == 2 && t % 3 == 1) s[t] += 0 * __activemask();
        if (i == 3 && way == 3) __syncthreads_count(t % 2);
        __syncthreads();
        mine += s[(t + 1) % n] * 0.5 + t;
        __syncthreads();
        if (i == 2 && way == 4 && t == n / 2) break;  // one thread leaves early,
        if (i == 3 && way == 5 && t % 2) break;       // or every second one, and the others wait
    }
    if (way == 5 && t % 2 == 0) __syncthreads();
    out[blockIdx.x * n + t] = mine;
}
EXPORT orders(const Arrays& a) {
    orders_kernel<<<12, a.size[0] / 12>>>(a.at<double>(0));
}
""")


@pytest.mark.parametrize("threads", [1, 31, 32, 100, 1024])
def test_a_block_may_leave_its_order_and_find_it_again(lib, threads):
    out = zeros(12, threads, dtype=np.float64)
    lib.run("orders", out)
    t = np.arange(threads)
    for block in range(12):
        s = mine = np.full(threads, block + 1.0)
        for i in range(4):
            stays = t != threads // 2 if block % 6 == 4 and i == 3 else t >= 0
            s = np.where(stays, mine, s)
            mine = np.where(stays, mine + np.roll(s, -1) * 0.5 + t, mine)
        np.testing.assert_array_equal(out[block], mine)


# --- warps ----------------------------------------------------------------------------------------

cuda(r"""
__global__ void shuffles_kernel(const int* in, int* out) {
    int t = threadIdx.x, v = in[t], n = blockDim.x;
    out[t] = __shfl_sync(0xffffffff, v, 5);
    out[n + t] = __shfl_up_sync(0xffffffff, v, 3);
    out[2 * n + t] = __shfl_down_sync(0xffffffff, v, 4, 16);
    out[3 * n + t] = __shfl_xor_sync(0xffffffff, v, 1);
    out[4 * n + t] = __shfl_sync(0xffffffff, v, 9, 8);
    double wide = __shfl_down_sync(0xffffffff, v * 0.5, 1);
    out[5 * n + t] = int(2 * wide);
}
EXPORT shuffles(const Arrays& a) { shuffles_kernel<<<1, 64>>>(a.at<int>(0), a.at<int>(1)); }
""")


def test_shuffles(lib):
    v = np.random.default_rng(1).integers(0, 1000, 64).astype(np.int32)
    out = zeros(6, 64, dtype=np.int32)
    lib.run("shuffles", v, out)
    w, lane = v.reshape(2, 32), np.arange(32)
    expected = [
        np.repeat(w[:, 5:6], 32, axis=1),
        w[:, np.where(lane < 3, lane, lane - 3)],
        w[:, np.where(lane % 16 + 4 < 16, lane + 4, lane)],
        w[:, lane ^ 1],
        w[:, lane // 8 * 8 + 1],
        w[:, np.minimum(lane + 1, 31)],
    ]
    np.testing.assert_array_equal(out, np.array(expected).reshape(6, 64))


cuda(r"""
__global__ void votes_kernel(const int* in, unsigned* out) {
    int t = threadIdx.x, v = in[t];
    unsigned n = blockDim.x, all_equal, full = 0xffffffff;
    int same;
    out[t] = __ballot_sync(full, v > 3);
    out[n + t] = __all_sync(full, v >= 0) * 2 + __any_sync(full, v > 6);
    out[2 * n + t] = __match_any_sync(full, v);
    all_equal = __match_all_sync(full, v / 8, &same);
    out[3 * n + t] = same ? all_equal : 7;
    out[4 * n + t] = __match_all_sync(full, v, &same) + same;
    out[5 * n + t] = __reduce_add_sync(full, unsigned(v)) + __reduce_max_sync(full, v - 100);
    unsigned u = v;
    out[6 * n + t] = __reduce_min_sync(full, u) + __reduce_or_sync(full, 1u << u) +
                     __reduce_and_sync(full, u | 16) + __reduce_xor_sync(full, u);
}
EXPORT votes(const Arrays& a) { votes_kernel<<<1, 32>>>(a.at<int>(0), a.at<unsigned>(1)); }
""")


def test_votes_matches_and_reductions(lib):
    v = np.random.default_rng(2).integers(0, 7, 32).astype(np.int32)
    out = zeros(7, 32, dtype=np.uint32)
    lib.run("votes", v, out)

    def mask(lanes):
        return sum(1 << int(i) for i in np.flatnonzero(lanes))

    assert (out[0] == mask(v > 3)).all()
    assert (out[1] == 2).all()
    assert list(out[2]) == [mask(v == x) for x in v]
    assert (out[3] == 0xFFFFFFFF).all()
    assert (out[4] == 0).all()
    assert (out[5] == np.uint32((v.sum() + v.max() - 100) % 2**32)).all()
    bits = np.bitwise_or.reduce(1 << v) + np.bitwise_and.reduce(v | 16) + np.bitwise_xor.reduce(v)
    assert (out[6] == v.min() + bits).all()


cuda(r"""
__global__ void half_warps_kernel(int* out) {
    int t = threadIdx.x, v = t;
    if (t < 16) {
        for (int d = 8; d > 0; d /= 2) v += __shfl_down_sync(0x0000ffff, v, d);
    } else {
        for (int d = 1; d < 16; d *= 2) v = max(v, __shfl_xor_sync(0xffff0000, v, d));
        __syncwarp(0xffff0000);
    }
    out[t] = v;
}
EXPORT half_warps(const Arrays& a) { half_warps_kernel<<<1, 32>>>(a.at<int>(0)); }
__global__ void activemask_kernel(unsigned* out) {
    int t = threadIdx.x;
    if (t % 2) out[t] = __activemask();
    else if (t % 4) out[t] = __activemask();
    else out[t] = 0;
}
EXPORT activemask(const Arrays& a) { activemask_kernel<<<2, 48>>>(a.at<unsigned>(0)); }
__global__ void left_lanes_kernel(int* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    out[i] = __popc(__ballot_sync(0xffffffff, true)) + __any_sync(0xffffffff, i == n - 1);
    __syncwarp();
}
EXPORT left_lanes(const Arrays& a) { left_lanes_kernel<<<1, 64>>>(a.at<int>(0), 40); }
""")


def test_parts_of_a_warp_go_their_own_way(lib):
    out = zeros(32, dtype=np.int32)
    lib.run("half_warps", out)
    assert out[0] == sum(range(16)) and (out[16:] == 31).all()


def test_activemask_names_the_lanes_of_a_branch(lib):
    out = zeros(48, dtype=np.uint32)
    lib.run("activemask", out)
    short = {1: 0xAAAA, 2: 0x4444}
    full = {1: 0xAAAAAAAA, 2: 0x44444444}
    for t in range(48):
        masks = full if t < 32 else short
        assert out[t] == (masks[1] if t % 2 else masks[2] if t % 4 else 0), t


def test_lanes_that_have_returned_are_not_waited_for(lib):
    out = zeros(64, dtype=np.int32)
    lib.run("left_lanes", out)
    assert (out[:32] == 32).all() and (out[32:40] == 9).all() and (out[40:] == 0).all()


# --- atomics --------------------------------------------------------------------------------------

cuda(r"""
#include <c10/cuda/CUDAException.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Totals {
    int i, least, most, bits_and, bits_or, bits_xor, sub, inc, dec;
    unsigned u;
    unsigned long long ull;
    long long lowest;
    double d;
    float f;
    float2 f2;
    float4 f4;
    __half h;
    __half2 h2;
    __nv_bfloat16 b;
    __nv_bfloat162 b2;
    unsigned short cas16;
};
__global__ void atomics_kernel(Totals* t, int* swapped) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&t->i, 1), atomicAdd(&t->u, 2u), atomicAdd(&t->ull, 3ull), atomicAdd(&t->d, 0.5);
    atomicAdd(&t->f, 1), atomicAdd_block(&t->f2, make_float2(1, 2));
    atomicAdd(&t->f4, make_float4(1, 2, 3, 4));
    if (i < 100) atomicAdd(&t->h, __float2half(1.0f)), atomicAdd(&t->b, __float2bfloat16(1.0f));
    if (i < 100) atomicAdd(&t->h2, __floats2half2_rn(1, 2));
    if (i < 100) atomicAdd(&t->b2, __floats2bfloat162_rn(1, 2));
    atomicMin(&t->least, -i), atomicMax(&t->most, i), atomicMin(&t->lowest, -5000000000ll - i);
    atomicAnd(&t->bits_and, ~(1 << i % 30)), atomicOr(&t->bits_or, 1 << i % 30);
    atomicXor(&t->bits_xor, i), atomicSub(&t->sub, 2);
    atomicInc((unsigned*)&t->inc, 6), atomicDec((unsigned*)&t->dec, 6);
    swapped[i] = atomicExch_system(&swapped[i], 9);
    unsigned short seen = t->cas16, old = seen;
    do old = seen, seen = atomicCAS(&t->cas16, old, (unsigned short)(old + 1));
    while (seen != old);
}
EXPORT atomics(const Arrays& a) {
    Totals* t;
    C10_CUDA_CHECK(cudaMallocManaged(&t, sizeof(Totals)));
    C10_CUDA_CHECK(cudaMemset(t, 0, sizeof(Totals)));
    t->bits_and = -1;
    atomics_kernel<<<10, 100>>>(t, a.at<int>(0));
    double* out = a.at<double>(1);
    double all[] = {double(t->i), double(t->u), double(t->ull), t->d, t->f, t->f2.x, t->f2.y,
        t->f4.x, t->f4.w, float(t->h), float(t->h2.y), float(t->b), float(t->b2.y),
        double(t->least), double(t->most), double(t->lowest), double(t->bits_and),
        double(t->bits_or), double(t->bits_xor), double(t->sub), double(t->inc),
        double(t->dec), double(t->cas16)};
    for (double x : all) *out++ = x;
    cudaFree(t);
}
""")


def test_atomics(lib):
    swapped, out = np.full(1000, 4, np.int32), zeros(23, dtype=np.float64)
    lib.run("atomics", swapped, out)
    xor = np.bitwise_xor.reduce(np.arange(1000))
    expected = [1000, 2000, 3000, 500, 1000, 1000, 2000, 1000, 4000, 100, 200, 100, 200, -999, 999]
    expected += [-5000000999, -(2**30), 2**30 - 1, xor, -2000, 1000 % 7, -1000 % 7, 1000]
    np.testing.assert_array_equal(out, expected)
    assert (swapped == 4).all()


cuda(r"""
// Each thread waits for its turn, and the last one is the first.
__global__ void turns_kernel(int* turn, int* order) {
    int t = threadIdx.x;
    while (atomicAdd(turn, 0) != t) {}
    order[blockDim.x - 1 - t] = t;
    __threadfence();
    atomicSub(turn, 1);
}
EXPORT turns(const Arrays& a) { turns_kernel<<<1, 8>>>(a.at<int>(0), a.at<int>(1)); }
""")


def test_a_thread_may_spin_until_another_has_run(lib):
    order = zeros(8, dtype=np.int32)
    lib.run("turns", ints(7), order)
    np.testing.assert_array_equal(order, np.arange(7, -1, -1))


cuda(r"""
__device__ void last_steps(volatile float* s, int i) {
    s[i] += s[i + 32];
    s[i] += s[i + 16];
    s[i] += s[i + 8];
    s[i] += s[i + 4];
    s[i] += s[i + 2];
    s[i] += s[i + 1];
}
__global__ void warp_in_step_kernel(const float* x, float* out) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 64) s[threadIdx.x] += s[threadIdx.x + 64];
    __syncthreads();
    if (threadIdx.x < 32) last_steps(s, threadIdx.x);
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
__global__ void turns_kernel(int* out) {
    volatile __shared__ int turn;
    if (threadIdx.x == 0) turn = 0;
    __syncthreads();
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        while (turn != 3 - warp) {}
        out[warp] = turn++;
    }
}
struct Turns { volatile int now; int of[4]; };
__global__ void turns_of_blocks_kernel(Turns* turns) {
    while (turns->now != 3 - blockIdx.x) {}  // as many blocks as a GPU has room for
    turns->of[blockIdx.x] = turns->now;
    __threadfence();
    turns->now += 1;
}
EXPORT of_blocks(const Arrays& a) {
    turns_of_blocks_kernel<<<4, 1>>>(reinterpret_cast<Turns*>(a.at<int>(0)));
}
EXPORT in_step(const Arrays& a) {
    warp_in_step_kernel<<<5, 128, 128 * sizeof(float)>>>(a.at<float>(0), a.at<float>(1));
    turns_kernel<<<1, 128>>>(a.at<int>(2));
}
""")


def test_volatile_memory_lets_the_other_threads_run(lib):
    x, sums, turns = np.arange(640, dtype=np.float32), zeros(5), zeros(4, dtype=np.int32)
    lib.run("in_step", x, sums, turns)
    np.testing.assert_array_equal(sums, x.reshape(5, 128).sum(1))
    np.testing.assert_array_equal(turns, [3, 2, 1, 0])


def test_a_volatile_member_lets_the_other_blocks_run(lib):
    turns = zeros(5, dtype=np.int32)
    lib.run("of_blocks", turns)
    np.testing.assert_array_equal(turns, [4, 3, 2, 1, 0])


# --- the language ---------------------------------------------------------------------------------

cuda(r"""
__constant__ float weights[4];
__device__ int calls = 0;
__device__ __forceinline__ float scale(float x) { return x * 2; }
__device__ __noinline__ float shift(float x) { return x + 1; }
template <typename F> __global__ void __launch_bounds__(256) map_kernel(float* x, int n, F f) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        x[i] = f(x[i]);
}
struct Square {
    float offset;
    __host__ __device__ float operator()(float x) const { return x * x + offset; }
};
namespace deep { namespace deeper {
template <class T, int N> __global__ void fill_kernel(T* x, T value) {
    if (threadIdx.x < N) x[threadIdx.x] = value;
    if (threadIdx.x == 0) atomicAdd(&calls, 1);
}
}}  // namespace
__global__ void weigh_kernel(float* x) { x[threadIdx.x] *= weights[threadIdx.x % 4]; }
struct Launcher {
    void (*kernel)(float*);
    void operator()(float* x, int n) const { kernel<<<1, n>>>(x); }
};
#define LAUNCH(kernel, n, ...)            \
    do {                                  \
        kernel<<<((n) + 31) / 32, 32>>>(  \
            __VA_ARGS__);                 \
    } while (0)
template <int STEPS> void launch_many(float* x, int n) {
    for (int i = 0; i < STEPS; i++)
        map_kernel<<<2, 64>>>(x, n, [=] __device__(float v) { return scale(v); });
}
EXPORT language(const Arrays& a) {
    float* x = a.at<float>(0);
    int n = a.size[0];
    map_kernel<<<1, 32>>>(x, n, Square{1.5f});                       // x² + 1.5
    launch_many<2>(x, n);                                           // · 4
    auto kernel = map_kernel<float (*)(float)>;
    LAUNCH(kernel, n, x, n, shift);                                  // + 1
    LAUNCH(map_kernel, n, x, n, [] __device__ (float v) { return v > 1 << 4 ? v - 1 : v; });
    float host[4] = {1, 10, 100, 1000};
    cudaMemcpyToSymbol(weights, host, sizeof host);
    Launcher{weigh_kernel}(x, n);
    if (n > 1000) weigh_kernel<<<1, 1>>>(x);
    else deep::deeper::fill_kernel<float, (4 > 2) ? 3 : 1><<<{1}, {32, 1}>>>(x, 7);
    int before = -1;
    cudaMemcpyFromSymbol(&before, calls, sizeof(int));
    a.at<int>(1)[0] = before;
}
""")


def test_templates_lambdas_functors_macros_and_symbols(lib):
    x = np.arange(40, dtype=np.float32)
    calls = ints(0)
    expected = (x * x + 1.5) * 4 + 1
    expected = np.where(expected > 16, expected - 1, expected) * 10.0 ** (np.arange(40) % 4)
    expected[:3] = 7
    lib.run("language", x, calls)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    assert calls[0] >= 1


cuda(r"""
__global__ void vectors_kernel(const float4* in, float4* out, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 v = in[i];
        uchar4 c = make_uchar4(1, 2, 3, 255);
        double2 d = make_double2(v.y, 0.5);
        out[i] = make_float4(v.x + c.w, float(d.x * d.y), __ldg(&in[i].z), v.w);
    }
}
EXPORT vectors(const Arrays& a) {
    static_assert(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(uchar4) == 4, "");
    static_assert(sizeof(longlong4) == 32 && alignof(short2) == 4 && alignof(double4) == 16, "");
    dim3 block = 64;
    vectors_kernel<<<1, block>>>(a.at<float4>(0), a.at<float4>(1), a.size[0] / 4);
}
""")


def test_vector_types(lib):
    x, out = floats(16, 4), zeros(16, 4)
    lib.run("vectors", x, out)
    np.testing.assert_allclose(out, np.c_[x[:, 0] + 255, x[:, 1] / 2, x[:, 2], x[:, 3]], rtol=1e-6)


cuda(r"""
EXPORT math(const Arrays& a) {
    double* out = a.at<double>(0);
    auto put = [&](double x) { *out++ = x; };
    put(rsqrtf(4.0f)), put(rsqrt(16.0)), put(__expf(1.0f)), put(__fdividef(1.0f, 4.0f));
    put(__saturatef(1.5f)), put(__saturatef(-1.0f)), put(__saturatef(NAN));
    put(__fmaf_rn(2, 3, 4)), put(min(3, 5u)), put(max(2.5f, 2.0f)), put(min(1.0, 2.0f));
    put(max(-1ll, 0ll)), put(fmaxf(NAN, 2.0f));
    put(__popc(0xff00)), put(__popcll(1ull << 40)), put(__clz(1)), put(__clz(0)), put(__clzll(1));
    put(__ffs(8)), put(__ffs(0)), put(__brev(1)), put(__byte_perm(0x33221100, 0x77665544, 0x7531));
    put(__funnelshift_l(0x80000000, 1, 1)), put(__funnelshift_r(0, 1, 4));
    put(__umulhi(1u << 31, 6)), put(__mulhi(-1, 5)), put(__mul24(1000, 1000));
    put(__dp4a(0x01020304, 0x01010101, 5));
    put(__float2int_rn(2.5f)), put(__float2int_rz(-2.7f)), put(__float2int_ru(2.1f));
    put(__float2int_rd(-2.1f)), put(__float2int_rn(1e20f)), put(__float2uint_rz(-3.0f));
    put(__double2int_rn(-3.5)), put(__float_as_int(1.0f)), put(__int_as_float(0x40000000));
    put(__longlong_as_double(0x4000000000000000)), put(__fadd_rz(1, 1e-10f));
    put(__fadd_ru(1, 1e-10f) > 1);
    put(sinpif(0.25f)), put(cospi(1.0)), put(exp10f(2)), put(normcdff(0)), put(erfinvf(0.5f));
    put(norm3df(2, 3, 6)), put(rhypotf(3, 4)), put(__hadd(7, 10)), put(rcbrtf(8));
    float sine, cosine;
    __sincosf(0.5f, &sine, &cosine);
    put(sine), put(cosine), put(__powf(2, 10)), put(__log2f(8)), put(warpSize);
}
""")


def test_device_math(lib):
    out = zeros(55, dtype=np.float64)
    lib.run("math", out)
    expected = [0.5, 0.25, np.e, 0.25, 1, 0, 0, 10, 3, 2.5, 1, 0, 2]
    expected += [8, 1, 31, 32, 63, 4, 0, 2**31, 0x77553311, 3, 2**28, 3, -1, 10**6, 15]
    expected += [2, -2, 3, -3, 2**31 - 1, 0, -4, 0x3F800000, 2, 2, 1, 1]
    expected += [np.sqrt(0.5), -1, 100, 0.5, 0.47693628, 7, 0.2, 8, 0.5]
    expected += [np.sin(0.5), np.cos(0.5), 1024, 3, 32]
    np.testing.assert_allclose(out[: len(expected)], expected, rtol=1e-6)
    assert (out[len(expected) :] == 0).all()


# --- 16-bit floating point ------------------------------------------------------------------------

cuda(r"""
template <class H>
__global__ void from_float_kernel(const float* in, unsigned short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { H h(in[i]); memcpy(&out[i], &h, 2); }
}
EXPORT to_half(const Arrays& a) {
    int n = a.size[0], blocks = (n + 255) / 256;
    from_float_kernel<__half><<<blocks, 256>>>(a.at<float>(0), a.at<unsigned short>(1), n);
}
EXPORT to_bfloat16(const Arrays& a) {
    int n = a.size[0], blocks = (n + 255) / 256;
    from_float_kernel<nv_bfloat16><<<blocks, 256>>>(a.at<float>(0), a.at<unsigned short>(1), n);
}
__global__ void to_float_kernel(float* halves, float* bfloats) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    halves[i] = __half2float(__ushort_as_half(i));
    bfloats[i] = __bfloat162float(__ushort_as_bfloat16(i));
}
EXPORT to_float(const Arrays& a) { to_float_kernel<<<256, 256>>>(a.at<float>(0), a.at<float>(1)); }
__global__ void half_arithmetic_kernel(const __half* x, const __half* y, __half* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = x[i] + y[i];
    out[n + i] = __hmul(x[i], y[i]);
    out[2 * n + i] = x[i] / y[i];
    out[3 * n + i] = __hfma(x[i], y[i], x[i]);
    half2 pair = __hfma2(__halves2half2(x[i], y[i]), __float2half2_rn(2.0f), __half2half2(y[i]));
    out[4 * n + i] = __low2half(pair);
    out[5 * n + i] = __high2half(pair);
    out[6 * n + i] = hexp(__hmin(x[i], y[i]));
    out[7 * n + i] = x[i] < y[i] ? -x[i] : __half(0);
    if (i < 992) out[8 * n + i] = __shfl_xor_sync(0xffffffff, x[i], 1);
}
EXPORT half_arithmetic(const Arrays& a) {
    int n = a.size[0];
    half_arithmetic_kernel<<<(n + 31) / 32, 32>>>(a.at<half>(0), a.at<half>(1), a.at<half>(2), n);
}
""")


def test_conversions_to_half_agree_with_numpy(lib):
    every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = every[~np.isnan(every)]
    finite = np.sort(every[np.isfinite(every)])
    halfway = (finite[:-1].astype(np.float64) + finite[1:]) / 2
    x = np.r_[every, halfway, np.nextafter(halfway.astype(np.float32), np.inf), 1e6, -1e6, 1e-9]
    x = x.astype(np.float32)
    out = zeros(x.size, dtype=np.uint16)
    lib.run("to_half", x, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out.view(np.float16), x.astype(np.float16))


def test_conversions_to_bfloat16_agree_with_torch(lib):
    import torch

    x = floats(10_000) * np.float32(10.0) ** np.random.default_rng(3).integers(-30, 30, 10_000)
    x = np.r_[x, np.inf, -np.inf, np.nan, 3.4e38, 0.0].astype(np.float32)
    out = zeros(x.size, dtype=np.uint16)
    lib.run("to_bfloat16", x, out)
    expected = torch.from_numpy(x).bfloat16().float().numpy()
    np.testing.assert_array_equal((out.astype(np.uint32) << 16).view(np.float32), expected)


def test_conversions_to_float(lib):
    halves, bfloats = zeros(65536), zeros(65536)
    lib.run("to_float", halves, bfloats)
    bits = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(halves, bits.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(bfloats, (bits.astype(np.uint32) << 16).view(np.float32))


def test_half_arithmetic(lib):
    x, y = floats(1000).astype(np.float16), floats(1000)[::-1].astype(np.float16)
    out = zeros(9, 1000, dtype=np.float16)
    lib.run("half_arithmetic", x, y, out)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    fused = (wide_x * wide_y + wide_x).astype(np.float16)
    low, high = (wide_x * 2 + wide_y).astype(np.float16), (wide_y * 3).astype(np.float16)
    expected = [x + y, x * y, x / y, fused, low, high]
    expected += [np.exp(np.minimum(wide_x, wide_y)).astype(np.float16), np.where(x < y, -x, 0)]
    np.testing.assert_array_equal(out[:8], np.array(expected, np.float16))
    np.testing.assert_array_equal(out[8, :992], x[:992].reshape(-1, 2)[:, ::-1].ravel())


# --- cooperative groups ---------------------------------------------------------------------------

cuda(r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__device__ int sum_of(cg::thread_group group, int* scratch, int value) {
    for (int stride = group.size() / 2; stride > 0; stride /= 2) {
        scratch[group.thread_rank()] = value;
        group.sync();
        if (group.thread_rank() < stride) value += scratch[group.thread_rank() + stride];
        group.sync();
    }
    return value;
}
__global__ void groups_kernel(int* out) {
    __shared__ int scratch[128];
    cg::thread_block block = cg::this_thread_block();
    int t = block.thread_rank(), n = block.size();
    int total = sum_of(block, scratch, t);
    if (t == 0) out[0] = total;
    auto tile = cg::tiled_partition<8>(block);
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    out[n + t] = cg::reduce(tile, t, cg::plus<int>());
    out[2 * n + t] = tile.shfl_down(t, 3) + 1000 * tile.meta_group_rank();
    out[3 * n + t] = warp.any(t == 37) + 2 * tile.all(t < 64) + 4 * __popc(tile.ballot(t % 2));
    out[4 * n + t] = cg::inclusive_scan(warp, 1, cg::plus<int>());
    float4 wide = tile.shfl(make_float4(t, 1, 2, 3), 7);
    out[5 * n + t] = int(wide.x + wide.w);
    if (t % 3 == 0) {
        auto some = cg::coalesced_threads();
        out[6 * n + t] = some.thread_rank() * 100 + some.num_threads();
    }
    auto quarter = cg::tiled_partition<4>(tile);
    out[7 * n + t] = quarter.meta_group_rank() * 10 + quarter.meta_group_size();
}
EXPORT groups(const Arrays& a) { groups_kernel<<<1, 128>>>(a.at<int>(0)); }
""")


def test_blocks_and_tiles(lib):
    out = zeros(8, 128, dtype=np.int32)
    lib.run("groups", out)
    t = np.arange(128)
    assert out[0, 0] == t.sum()
    np.testing.assert_array_equal(out[1], t.reshape(16, 8).sum(1).repeat(8))
    np.testing.assert_array_equal(out[2], np.where(t % 8 < 5, t + 3, t) + 1000 * (t // 8))
    np.testing.assert_array_equal(out[3], (t // 32 == 1) + 2 * (t < 64) + 16)
    np.testing.assert_array_equal(out[4], t % 32 + 1)
    np.testing.assert_array_equal(out[5], t // 8 * 8 + 7 + 3)
    for warp in range(4):
        lanes = [i for i in range(32 * warp, 32 * warp + 32) if i % 3 == 0]
        assert [out[6, i] for i in lanes] == [r * 100 + len(lanes) for r in range(len(lanes))]
    np.testing.assert_array_equal(out[7], t % 8 // 4 * 10 + 2)


cuda(r"""
__global__ void grid_sync_kernel(const float* x, float* partial, float* out, int n) {
    cg::grid_group grid = cg::this_grid();
    __shared__ float sums[64];
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = 0;
        for (float s : sums) partial[blockIdx.x] += s;
    }
    grid.sync();
    float total = 0;
    for (int b = 0; b < gridDim.x; b++) total += partial[b];
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) out[i] = x[i] / total;
}
EXPORT grid_sync(const Arrays& a) {
    const float* x = a.at<float>(0);
    float *partial = a.at<float>(1), *out = a.at<float>(2);
    int n = a.size[0], per_sm = 0, sms = 0;
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, grid_sync_kernel, 64, 0);
    void* arguments[] = {&x, &partial, &out, &n};
    int blocks = sms * per_sm < 20 ? sms * per_sm : 20;
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel((void*)grid_sync_kernel, blocks, 64, arguments));
}
EXPORT too_many_blocks(const Arrays& a) {
    const float* x = nullptr;
    float *partial = nullptr, *out = nullptr;
    int n = 0;
    void* arguments[] = {&x, &partial, &out, &n};
    cudaLaunchCooperativeKernel((void*)grid_sync_kernel, 10000, 64, arguments);
}
EXPORT plain_grid_sync(const Arrays& a) {
    grid_sync_kernel<<<2, 64>>>(a.at<float>(0), a.at<float>(1), a.at<float>(2), a.size[0]);
}
""")


def test_a_grid_waits_for_all_its_blocks(lib):
    x = np.abs(floats(5000)) + 1
    out = zeros(5000)
    for _ in range(3):
        lib.run("grid_sync", x, zeros(200), out)
        np.testing.assert_allclose(out, x / x.sum(), rtol=1e-5)


def test_a_grid_barrier_needs_a_cooperative_launch(lib):
    with pytest.raises(RuntimeError, match=r"needs all its blocks alive at once; at most 128"):
        lib.run("too_many_blocks")
    with pytest.raises(RuntimeError, match=r"grid.sync\(\) needs a launch by cudaLaunchCoop"):
        lib.run("plain_grid_sync", floats(10), zeros(2), zeros(10))


cuda(r"""
// A barrier made by hand, and a prefix sum that looks back: each block waits for the one before it.
__global__ void by_hand_kernel(int* arrived, int* out) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x) {}
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = *arrived;
}
__global__ void look_back_kernel(volatile int* sums) {
    int previous = gridDim.x - 1 - blockIdx.x;  // the last block is the first of the chain
    while (previous > 0 && sums[previous - 1] == 0) {}
    sums[previous] = previous ? sums[previous - 1] + 1 : 1;
}
EXPORT by_hand(const Arrays& a) {
    by_hand_kernel<<<a.size[1], 64>>>(a.at<int>(0), a.at<int>(1));
}
EXPORT look_back(const Arrays& a) { look_back_kernel<<<a.size[0], 1>>>(a.at<int>(0)); }
""")


@pytest.mark.parametrize("blocks", [2, 40])
def test_blocks_that_fit_on_the_gpu_may_wait_for_each_other(lib, blocks):
    out = zeros(blocks, dtype=np.int32)
    lib.run("by_hand", zeros(1, dtype=np.int32), out)
    assert (out == blocks).all()
    sums = zeros(blocks, dtype=np.int32)
    lib.run("look_back", sums)
    np.testing.assert_array_equal(sums, np.arange(blocks) + 1)


# --- the host -------------------------------------------------------------------------------------

cuda(r"""
__global__ void hello_kernel() { printf("hello from thread %d\n", threadIdx.x); }
EXPORT hello(const Arrays&) { hello_kernel<<<1, 2>>>(); }
""")


def test_what_a_kernel_prints_is_there_when_the_launch_returns(lib, capfd):
    lib.run("hello")
    assert capfd.readouterr().out == "hello from thread 0\nhello from thread 1\n"


def test_a_child_process_can_launch_after_a_fork(lib):
    def launches():
        n = 4_000_000
        a, out = np.ones(n, np.float32), zeros(n)
        lib.run("add", a, a, out)
        return (out == 2).all()

    assert launches()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # ends a launch that hangs
        try:
            os._exit(0 if launches() else 1)
        finally:
            os._exit(2)
    assert launches()
    assert os.waitpid(child, 0)[1] == 0


def test_several_threads_may_launch_at_once(lib):
    def add(n):
        a, out = floats(n), zeros(n)
        for _ in range(20):
            lib.run("add", a, a, out)
        return (out == a + a).all()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(add, [10, 100_000, 3000, 50_000]))


def test_needed_tools_are_named():
    with pytest.raises(pytest.skip.Exception, match="no-such-compiler is not installed"):
        need("no-such-compiler")
