"""What a kernel can do on the CPU backend: every feature against numpy, under g++ and clang."""

import subprocess
import sys
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
        return compile_string("".join(_STRINGS), folder, cxx)
    runtime = build_portable_runtime(folder)
    return compile_string("".join(_STRINGS), folder, cxx, runtime, std="c++20")


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
__global__ void hello_kernel() { printf("hello from thread %d\n", threadIdx.x); }
EXPORT hello(const Arrays&) { hello_kernel<<<1, 2>>>(); }
""")


def test_what_a_kernel_prints_is_there_when_the_launch_returns(lib, capfd):
    lib.run("hello")
    assert capfd.readouterr().out == "hello from thread 0\nhello from thread 1\n"


def test_a_child_process_can_launch_after_a_fork(lib):
    script = """
import os, sys, ctypes
import numpy as np
from helpers.tests.cuda_driver import Library
lib = Library(sys.argv[1])
n = 4_000_000
def check():
    a, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    lib.run("add", a, a, out)
    assert (out == 2).all()
check()
child = os.fork()
check()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    path = lib._library._name
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=60)


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
