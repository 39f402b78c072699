"""The headers beside the CUDA runtime: wmma, libcu++'s barriers, pipelines and atomics, large tiles
of cooperative groups, fp8. The same text has to go through nvcc."""

import shutil
import subprocess

import numpy as np
import pytest

from helpers.tests.cuda_driver import compile_string

CUDA = r"""
#include <cstdint>
#include <mma.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/annotated_ptr>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/cmath>
#include <cuda/pipeline>
#include <cuda/std/array>
#include <cuda/std/limits>
#include <cub/cub.cuh>
namespace cg = cooperative_groups;
using namespace nvcuda;
#pragma nv_diag_suppress static_var_with_dynamic_init

template <int M, int N, int K, class T, class Stored, class Sum, class LayoutA, class LayoutB>
__global__ void wmma_kernel(const Stored* a, const Stored* b, const Sum* c, Sum* d) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, LayoutA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, LayoutB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> fc, fd;
    wmma::load_matrix_sync(fa, a, std::is_same<LayoutA, wmma::row_major>::value ? K : M);
    wmma::load_matrix_sync(fb, b, std::is_same<LayoutB, wmma::row_major>::value ? N : K);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    for (int i = 0; i < fa.num_elements; i++) fa.x[i] = fa.x[i];
    wmma::fill_fragment(fd, Sum(0));
    wmma::mma_sync(fd, fa, fb, fd);
    for (int i = 0; i < fd.num_elements; i++) fd.x[i] = fd.x[i] + fc.x[i];
    wmma::store_matrix_sync(d, fd, N, wmma::mem_row_major);
}
template __global__ void wmma_kernel<16, 16, 16, half, half, float, wmma::row_major,
                                     wmma::col_major>(const half*, const half*, const float*,
                                                      float*);
template __global__ void wmma_kernel<32, 8, 16, half, half, half, wmma::col_major, wmma::row_major>(
    const half*, const half*, const half*, half*);
template __global__ void wmma_kernel<8, 32, 16, half, half, float, wmma::row_major,
                                     wmma::row_major>(const half*, const half*, const float*,
                                                      float*);
template __global__ void wmma_kernel<16, 16, 16, __nv_bfloat16, __nv_bfloat16, float,
                                     wmma::row_major, wmma::row_major>(
    const __nv_bfloat16*, const __nv_bfloat16*, const float*, float*);
template __global__ void wmma_kernel<16, 16, 8, wmma::precision::tf32, float, float,
                                     wmma::row_major, wmma::col_major>(
    const float*, const float*, const float*, float*);
template __global__ void wmma_kernel<16, 16, 16, signed char, signed char, int, wmma::row_major,
                                     wmma::col_major>(const signed char*, const signed char*,
                                                      const int*, int*);
template __global__ void wmma_kernel<8, 8, 4, double, double, double, wmma::row_major,
                                     wmma::col_major>(const double*, const double*, const double*,
                                                      double*);

// One warp fills two stages in turn, three warps read them; barriers pass them to and fro.
__global__ void handover(const float* in, float* out, int n) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ barrier full[2], empty[2];
    __shared__ float stage[2][96];
    if (threadIdx.x < 2) {
        init(&full[threadIdx.x], 128);
        init(&empty[threadIdx.x], 128);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int i = 0; i < n; i++) {
            empty[i % 2].arrive_and_wait();
            for (int j = threadIdx.x; j < 96; j += 32) stage[i % 2][j] = in[i * 96 + j];
            barrier::arrival_token token = full[i % 2].arrive();
            (void)token;
        }
    } else {
        float sum = 0;
        for (int i = 0; i < 2 && i < n; i++) (void)empty[i].arrive();
        for (int i = 0; i < n; i++) {
            full[i % 2].arrive_and_wait();
            sum += stage[i % 2][threadIdx.x - 32];
            if (i + 2 < n) (void)empty[i % 2].arrive();
        }
        out[threadIdx.x - 32] = sum;
    }
}
__global__ void barrier_copies(const float* in, float* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) float tile[256];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, in, cuda::aligned_size_t<16>(sizeof(tile)), bar);
    bar.wait(bar.arrive());
    out[block.thread_rank()] = tile[255 - block.thread_rank()];
}
// Sums tiles while the next ones are on their way: with a pipeline of each thread, of the block,
// with the primitives, and with cooperative groups.
__global__ void thread_pipeline(const float* in, float* out, int tiles) {
    __shared__ float stage[2][64];
    auto pipe = cuda::make_pipeline();
    float sum = 0;
    auto fetch = [&](int t) {
        pipe.producer_acquire();
        if (t < tiles)
            cuda::memcpy_async(&stage[t % 2][threadIdx.x], in + t * 64 + threadIdx.x, sizeof(float),
                               pipe);
        pipe.producer_commit();
    };
    fetch(0);
    for (int t = 0; t < tiles; t++) {
        fetch(t + 1);
        pipe.consumer_wait();
        __syncthreads();
        sum += stage[t % 2][63 - threadIdx.x];
        __syncthreads();
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}
template <bool DIVIDED>
__global__ void block_pipeline(const float* in, float* out, int tiles) {
    constexpr int STAGES = 3;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    __shared__ alignas(16) float stage[STAGES][64];
    auto block = cg::this_thread_block();
    const unsigned rank = block.thread_rank();
    float sum = 0;
    if (DIVIDED) {  // the first 32 threads copy, the others add
        auto role = rank < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
        auto pipe = cuda::make_pipeline(block, &state, role);
        if (rank < 32) {
            for (int t = 0; t < tiles; t++) {
                pipe.producer_acquire();
                for (int i = rank; i < 64; i += 32)
                    cuda::memcpy_async(&stage[t % STAGES][i], in + t * 64 + i, sizeof(float), pipe);
                pipe.producer_commit();
            }
        } else {
            for (int t = 0; t < tiles; t++) {
                pipe.consumer_wait();
                sum += stage[t % STAGES][63 - (rank - 32)];
                pipe.consumer_release();
            }
            out[rank - 32] = sum;
        }
    } else {
        auto pipe = cuda::make_pipeline(block, &state);
        for (int t = 0, next = 0; t < tiles; t++) {
            for (; next < tiles && next < t + STAGES; next++) {
                pipe.producer_acquire();
                cuda::memcpy_async(block, stage[next % STAGES], in + next * 64, sizeof(float) * 64,
                                   pipe);
                pipe.producer_commit();
            }
            pipe.consumer_wait();
            if (rank < 64) sum += stage[t % STAGES][63 - rank];
            pipe.consumer_release();
        }
        if (rank < 64) out[rank] = sum;
    }
}
template __global__ void block_pipeline<true>(const float*, float*, int);
template __global__ void block_pipeline<false>(const float*, float*, int);
template <bool WAIT>
__global__ void primitives(const float* in, float* out, int tiles) {
    __shared__ float2 stage[2][32];
    float sum = 0;
    for (int t = 0; t < tiles + 1; t++) {
        if (t < tiles)
            __pipeline_memcpy_async(&stage[t % 2][threadIdx.x], in + t * 64 + threadIdx.x * 2, 8);
        __pipeline_commit();
        if (t == 0) continue;
        if (WAIT) __pipeline_wait_prior(1);
        __syncwarp();
        sum += stage[(t - 1) % 2][31 - threadIdx.x].x;
        __syncwarp();
    }
    out[threadIdx.x] = sum;
}
template __global__ void primitives<true>(const float*, float*, int);
template __global__ void primitives<false>(const float*, float*, int);
__global__ void groups(const float* in, int* out) {
    __shared__ cg::block_tile_memory<256> memory;
    extern __shared__ float tile[];
    auto block = cg::this_thread_block(memory);
    cg::memcpy_async(block, tile, in, sizeof(float) * 256);
    cg::wait(block);
    auto large = cg::tiled_partition<128>(block);
    auto warp = cg::tiled_partition<32>(block);
    int rank = large.thread_rank(), value = int(tile[block.thread_rank()]);
    int total = cg::reduce(large, value, cg::plus<int>());
    int first = large.shfl(value, 0);
    large.sync();
    auto same = cg::labeled_partition(warp, value % 3);
    auto odd = cg::binary_partition(warp, value % 2 == 1);
    int* mine = out + block.thread_rank() * 8;
    mine[0] = total;
    mine[1] = first;
    mine[2] = large.meta_group_rank() * 1000 + rank;
    mine[3] = cg::reduce(same, value, cg::plus<int>());
    mine[4] = cg::inclusive_scan(odd, value);
    mine[5] = large.any(value == 7) * 10 + large.all(value >= 0);
    if (value % 4 == 0) {
        auto active = cg::coalesced_threads();
        mine[6] = active.size();
        mine[7] = cg::exclusive_scan(active, 1);
    }
}
__global__ void atomics(int* counter, int* flag, int* data, int* out) {
    cuda::atomic_ref<int, cuda::thread_scope_device> count(*counter), ready(*flag);
    __shared__ cuda::atomic<int, cuda::thread_scope_block> largest;
    if (threadIdx.x == 0) largest = -1;
    __syncthreads();
    largest.fetch_max(int(threadIdx.x * 3));
    count.fetch_add(2, cuda::memory_order_relaxed);
    count++;
    int seen = count.load();
    while (!count.compare_exchange_weak(seen, seen + 1)) {}
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *data = 42;
        ready.store(1, cuda::std::memory_order_release);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (ready.load(cuda::std::memory_order_acquire) == 0) {}
        out[0] = *data;
    }
    __syncthreads();
    if (threadIdx.x == 0) out[1 + blockIdx.x] = largest.load() + cuda::ceil_div(7, 2);
    cuda::std::array<int, 2> two = {1, cuda::std::numeric_limits<int>::max()};
    if (threadIdx.x == 0) out[3] = two[1];
}
__global__ void float8(const float* x, __nv_fp8_storage_t* e4m3, __nv_fp8_storage_t* e5m2,
                       float* back, __nv_fp8x4_e4m3* fours) {
    int i = threadIdx.x;
    const float* kept =
        cuda::associate_access_property(x + i, cuda::access_property::persisting());
    __nv_fp8_e4m3 a(*kept);
    e4m3[i] = a.__x;
    e5m2[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
    back[i] = float(a);
    if (i < 64) fours[i] = __nv_fp8x4_e4m3(reinterpret_cast<const float4*>(x)[i]);
}
struct Larger {
    __device__ int operator()(int a, int b) const { return a < b ? b : a; }
};
// A tile of 96 * 4 values a block, the last one short.
__global__ void cub_kernel(const int* in, int* scanned, int* results, int n) {
    using Load = cub::BlockLoad<int, 96, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Store = cub::BlockStore<int, 96, 4>;
    using Scan = cub::BlockScan<int, 96>;
    using Reduce = cub::BlockReduce<int, 96>;
    using WarpSum = cub::WarpReduce<int>;
    using WarpScan = cub::WarpScan<int, 16>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } temp;
    __shared__ WarpSum::TempStorage sums[3];
    __shared__ WarpScan::TempStorage scans[6];
    __shared__ Store::TempStorage store;
    int first = blockIdx.x * 96 * 4, valid = n - first < 96 * 4 ? n - first : 96 * 4;
    int items[4], prefix[4], total;
    Load(temp.load).Load(in + first, items, valid, 0);
    __syncthreads();
    Scan(temp.scan).ExclusiveSum(items, prefix, total);
    __syncthreads();
    Store(store).Store(scanned + first, prefix, valid);
    int sum = Reduce(temp.reduce).Sum(items);
    __syncthreads();
    int largest = Reduce(temp.reduce).Reduce(items[0], Larger(), 50);
    int of_warp = WarpSum(sums[threadIdx.x / 32]).Sum(items[1]), in_part, part;
    WarpScan(scans[threadIdx.x / 16]).InclusiveScan(items[2], in_part, Larger(), part);
    int* mine = results + (blockIdx.x * 96 + threadIdx.x) * 3;
    mine[0] = threadIdx.x == 0 ? sum - total : threadIdx.x % 32 == 0 ? of_warp : 0;
    mine[1] = threadIdx.x == 0 ? largest : 0;
    mine[2] = in_part * 1000 + part;
}
"""

CURAND = r"""
#include <curand_kernel.h>  // not of the toolkit, so apart from what nvcc is shown
template <class State>
__global__ void random_kernel(unsigned* words, float* uniform, float* normal, int n) {
    State state;
    curand_init(1234, 5, 7, &state);
    if (threadIdx.x == 0)
        for (int i = 0; i < 4; i++) words[i] = curand(&state);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(99, i, 0, &state);
    for (int j = 0; j < n; j++) uniform[i * n + j] = curand_uniform(&state);
    for (int j = 0; j < n; j++) normal[i * n + j] = curand_normal(&state);
}
__global__ void philox_kernel(uint4* out) {
    curandStatePhilox4_32_10_t state;
    curand_init(0, 0, 0, &state);
    out[0] = curand4(&state);
    curand_init(9, 3, 2, &state);
    out[1] = curand4(&state);
}
"""

_WMMA = {  # template arguments: dtype of A and B, of the sums, shape, whether A and B lie in rows
    "16, 16, 16, half, half, float, wmma::row_major, wmma::col_major":
        ("f2", "f4", (16, 16, 16), True, False),
    "32, 8, 16, half, half, half, wmma::col_major, wmma::row_major":
        ("f2", "f2", (32, 8, 16), False, True),
    "8, 32, 16, half, half, float, wmma::row_major, wmma::row_major":
        ("f2", "f4", (8, 32, 16), True, True),
    "16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, wmma::row_major, wmma::row_major":
        ("bf16", "f4", (16, 16, 16), True, True),
    "16, 16, 8, wmma::precision::tf32, float, float, wmma::row_major, wmma::col_major":
        ("f4", "f4", (16, 16, 8), True, False),
    "16, 16, 16, signed char, signed char, int, wmma::row_major, wmma::col_major":
        ("i1", "i4", (16, 16, 16), True, False),
    "8, 8, 4, double, double, double, wmma::row_major, wmma::col_major":
        ("f8", "f8", (8, 8, 4), True, False),
}  # fmt: skip


def _launch(name, kernel, configuration, *arguments):
    launch = f"{kernel}<<<{configuration}>>>({', '.join(arguments)});"
    return f"EXPORT {name}(const Arrays& a) {{ {launch} }}\n"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "check"])
def lib(request, tmp_path_factory):
    def at(i, cpp="float"):
        return f"a.at<{cpp}>({i})"

    launches = []
    for i, arguments in enumerate(_WMMA):
        _, _, _, _, stored, total, _, _ = (part.strip() for part in arguments.split(","))
        given = [at(0, stored), at(1, stored), at(2, total), at(3, total)]
        launches.append(_launch(f"wmma_{i}", f"wmma_kernel<{arguments}>", "1, 32", *given))
    tiles = "int(a.size[0] / 64)"
    launches += [
        _launch("handover_run", "handover", "3, 128", at(0), at(1), "int(a.size[0] / 96)"),
        _launch("barrier_copies_run", "barrier_copies", "2, 256", at(0), at(1)),
        _launch("thread_pipeline_run", "thread_pipeline", "2, 64", at(0), at(1), tiles),
        _launch("divided_pipeline_run", "block_pipeline<true>", "2, 96", at(0), at(1), tiles),
        _launch("shared_pipeline_run", "block_pipeline<false>", "2, 64", at(0), at(1), tiles),
        _launch("primitives_run", "primitives<true>", "2, 32", at(0), at(1), tiles),
        _launch("primitives_without_wait", "primitives<false>", "2, 32", at(0), at(1), tiles),
        _launch("groups_run", "groups", "1, 256, 1024", at(0), at(1, "int")),
        _launch("atomics_run", "atomics", "2, 64", *(at(i, "int") for i in range(4))),
        _launch("float8_run", "float8", "1, 256", at(0), at(1, "__nv_fp8_storage_t"),
                at(2, "__nv_fp8_storage_t"), at(3), at(4, "__nv_fp8x4_e4m3")),
        _launch("cub_run", "cub_kernel", "3, 96", at(0, "int"), at(1, "int"), at(2, "int"), "950"),
        _launch("xorwow_run", "random_kernel<curandState>", "4, 64",
                at(0, "unsigned"), at(1), at(2), "100"),
        _launch("philox_run", "random_kernel<curandStatePhilox4_32_10_t>", "4, 64",
                at(0, "unsigned"), at(1), at(2), "100"),
        _launch("philox_words", "philox_kernel", "1, 1", at(0, "uint4")),
    ]  # fmt: skip
    return compile_string(
        CUDA + CURAND + "".join(launches), tmp_path_factory.mktemp("headers"), check=request.param
    )


def test_nvcc_takes_the_same_text(tmp_path):
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    (tmp_path / "headers.cu").write_text(CUDA)
    command = ["nvcc", "-std=c++17", "-arch=sm_80", "-cubin", "-o", "/dev/null", "headers.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("i", range(len(_WMMA)))
def test_wmma(lib, i):
    kind, sums, (M, N, K), a_in_rows, b_in_rows = [*_WMMA.values()][i]
    rng = np.random.default_rng(i)
    a, b, c = (rng.integers(-8, 9, size) for size in ((M, K), (K, N), (M, N)))

    def stored(matrix, in_rows):
        matrix = matrix if in_rows else matrix.T
        if kind == "bf16":
            return np.ascontiguousarray(matrix.astype("f4").view("u4") >> 16).astype("u2")
        return np.ascontiguousarray(matrix.astype(kind))

    d = np.zeros((M, N), sums)
    lib.run(f"wmma_{i}", stored(a, a_in_rows), stored(b, b_in_rows), c.astype(sums), d)
    np.testing.assert_array_equal(d, a @ b + c)


def test_barriers_hand_tiles_over(lib):
    tiles = np.arange(7 * 96, dtype=np.float32).reshape(7, 96)
    out = np.zeros(96, np.float32)
    lib.run("handover_run", tiles, out)
    np.testing.assert_array_equal(out, tiles.sum(0))


def test_a_barrier_stands_for_copies(lib):
    tile, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    lib.run("barrier_copies_run", tile, out)
    np.testing.assert_array_equal(out, tile[::-1])


@pytest.mark.parametrize("kind", ["thread", "divided", "shared"])
def test_pipelines(lib, kind):
    tiles = np.arange(5 * 64, dtype=np.float32).reshape(5, 64)
    out = np.zeros(64, np.float32)
    lib.run(f"{kind}_pipeline_run", tiles, out)
    np.testing.assert_array_equal(out, tiles.sum(0)[::-1])


def test_copies_without_a_wait_are_not_there(lib):
    tiles = np.arange(5 * 64, dtype=np.float32).reshape(5, 64)
    out = np.zeros(32, np.float32)
    lib.run("primitives_run", tiles, out)
    np.testing.assert_array_equal(out, tiles[:, 62::-2].sum(0))
    if lib.check:
        with pytest.raises(RuntimeError, match="to which an asynchronous copy of thread"):
            lib.run("primitives_without_wait", tiles, out)
        return
    lib.run("primitives_without_wait", tiles, out)
    assert np.isnan(out).all()


def test_groups(lib):
    value = np.random.default_rng(0).integers(0, 50, 256)
    out = np.full((256, 8), -1, np.int32)
    lib.run("groups_run", value.astype(np.float32), out)
    for t in range(256):
        tile = value[t // 128 * 128 :][:128]
        warp, lane = value[t // 32 * 32 :][:32], t % 32
        expected = [tile.sum(), tile[0], t // 128 * 1000 + t % 128]
        expected += [warp[warp % 3 == value[t] % 3].sum()]
        expected += [warp[: lane + 1][warp[: lane + 1] % 2 == value[t] % 2].sum()]
        expected += [10 * (7 in tile) + 1]
        fours = warp % 4 == 0
        expected += [fours.sum(), fours[:lane].sum()] if fours[lane] else [-1, -1]
        np.testing.assert_array_equal(out[t], expected)


def test_atomics(lib):
    counter, flag, data, out = (np.zeros(n, np.int32) for n in (1, 1, 1, 4))
    lib.run("atomics_run", counter, flag, data, out)
    assert counter[0] == 4 * 128 and flag[0] == 1
    np.testing.assert_array_equal(out, [42, 63 * 3 + 4, 63 * 3 + 4, 2**31 - 1])


def test_float8(lib):
    """The tables of both formats, and what lies between two of their numbers."""

    def value(bits, mantissa, bias):
        exponent, fraction = bits >> mantissa & (1 << 7 - mantissa) - 1, bits & (1 << mantissa) - 1
        scale = 2.0 ** (max(exponent, 1) - bias - mantissa)
        return (fraction + (exponent > 0) * (1 << mantissa)) * scale

    e4m3 = np.array([value(bits, 3, 7) for bits in range(127)])
    e5m2 = np.array([value(bits, 2, 15) for bits in range(124)])
    rng = np.random.default_rng(1)
    x = np.concatenate([e4m3, rng.uniform(-500, 500, 100), [np.nan, 1e9, -1e9, 464, 480, 0.0019]])
    x = np.resize(x, 256).astype(np.float32)

    def nearest(numbers, x):
        gap = abs(numbers - abs(float(x)))
        return min(np.flatnonzero(gap == gap.min()), key=lambda bits: bits & 1)  # ties to even

    first, second, back = (
        np.zeros(256, np.uint8),
        np.zeros(256, np.uint8),
        np.zeros(256, np.float32),
    )
    fours = np.zeros((64, 4), np.uint8)
    lib.run("float8_run", x, first, second, back, fours)
    np.testing.assert_array_equal(fours.ravel(), first)
    for i in range(256):
        if np.isnan(x[i]):
            assert first[i] & 0x7F == 0x7F and np.isnan(back[i]) and second[i] & 0x7F > 0x7C
            continue
        sign = 0x80 if np.signbit(x[i]) else 0
        assert first[i] == sign | nearest(e4m3, x[i]), x[i]
        assert back[i] == np.copysign(e4m3[first[i] & 0x7F], x[i])
        infinite = abs(x[i]) > 61440
        assert second[i] == sign | (0x7C if infinite else nearest(e5m2, x[i])), x[i]


def test_cub(lib):
    rng = np.random.default_rng(5)
    values = np.zeros(3 * 384, np.int32)
    values[:950] = rng.integers(0, 100, 950)
    scanned, results = np.full(950, -1, np.int32), np.zeros((3, 96, 3), np.int32)
    lib.run("cub_run", values[:950].copy(), scanned, results)
    tiles = values.reshape(3, 96, 4)
    flat = tiles.reshape(3, 384)
    np.testing.assert_array_equal(scanned, (flat.cumsum(1) - flat).ravel()[:950])
    np.testing.assert_array_equal(
        results[:, [32, 64], 0], tiles[:, 32:, 1].reshape(3, 2, 32).sum(2)
    )
    np.testing.assert_array_equal(results[:, 0, 0], 0)
    np.testing.assert_array_equal(results[:, 0, 1], tiles[:, :50, 0].max(1))
    parts = tiles[:, :, 2].reshape(3, 6, 16)
    expected = np.maximum.accumulate(parts, 2) * 1000 + parts.max(2, keepdims=True)
    np.testing.assert_array_equal(results[:, :, 2], expected.reshape(3, 96))


@pytest.mark.parametrize("generator, words", [
    ("xorwow_run", [3351265907, 3629609298, 415430802, 1173093345]),
    ("philox_run", None),
])  # fmt: skip
def test_random_numbers(lib, generator, words):
    """The words are what NVIDIA's own header gives on a CPU."""
    out = np.zeros(4, np.uint32)
    uniform, normal = np.zeros((256, 100), np.float32), np.zeros((256, 100), np.float32)
    lib.run(generator, out, uniform, normal)
    if words:
        np.testing.assert_array_equal(out, words)
    assert uniform.min() > 0 and uniform.max() <= 1 and len(np.unique(uniform)) > 25_000
    assert abs(uniform.mean() - 0.5) < 0.01 and abs(uniform.var() - 1 / 12) < 0.003
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.02


def test_philox_to_the_bit(lib):
    """The first block is a test vector of Random123, the second what NVIDIA's own header gives."""
    out = np.zeros((2, 4), np.uint32)
    lib.run("philox_words", out)
    expected = "6627e8d5 e169c58d bc57ac4c 9b00dbd8 f5bfa8b3 893eebe2 19f0b875 e4e5ad98"
    np.testing.assert_array_equal(out.ravel(), [int(word, 16) for word in expected.split()])


_WRONG = {  # a kernel's body, what is said of it
    "__shared__ B b; b.arrive_and_wait();":
        "line 6: a barrier is used that no thread has initialised",
    "__shared__ B b; if (threadIdx.x == 0) init(&b, 64); __syncthreads(); b.arrive_and_wait();":
        "the block is stuck: 32 threads (the first: (0,0,0)) wait at cuda::barrier in line 10",
    "__shared__ float s[32]; __shared__ B b; if (threadIdx.x == 0) init(&b, 32); __syncthreads();"
    "s[threadIdx.x] = 1; (void)b.arrive(); x[threadIdx.x] = s[31 - threadIdx.x];":
        "line 14: reads s[31] before any thread of the block has written it",
    'if (threadIdx.x < 16) asm volatile("bar.sync 3, 64;"); x[threadIdx.x] = 1;':
        "16 threads (the first: (0,0,0)) wait at bar.sync in line 18, 16 threads",
    'unsigned d[2] = {}; if (threadIdx.x < 16) asm volatile("mma.sync.aligned.m16n8k8.row.col.f16'
    '.f16.f16.f16 {%0, %1}, {%0, %1}, {%0}, {%0, %1};" : "+r"(d[0]), "+r"(d[1])); x[0] = d[0];':
        "mma.sync in line 22 needs all 32 lanes of the warp; here 16 are in the kernel",
}  # fmt: skip


def test_what_is_wrong_is_said(tmp_path):
    parts = [
        f"__global__ void k{i}(float* x) {{\n{body}\n}}\n"
        + _launch(f"go{i}", f"k{i}", "1, 32", "a.at<float>(0)")
        for i, body in enumerate(_WRONG)
    ]
    head = "\n#include <cuda/barrier>\n#include <cstdint>\n"
    head += "using B = cuda::barrier<cuda::thread_scope_block>;\n"
    lib = compile_string(head + "".join(parts), tmp_path, check=True)
    for i, sentence in enumerate(_WRONG.values()):
        with pytest.raises(RuntimeError) as error:
            lib.run(f"go{i}", np.zeros(32, np.float32))
        assert sentence in str(error.value)
