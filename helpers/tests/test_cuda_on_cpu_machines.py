"""The CPU backend on other machines (aarch64 under qemu), its build, and its speed."""

import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from helpers.cuda_on_cpu import INCLUDE, RUNTIME, Cache, CpuBackend, translate
from helpers.cuda_on_cpu.build import _gold
from helpers.tests.cuda_driver import PRELUDE, compile_string, need

PROGRAM = r"""
#include <cuda_fp16.h>
#include <cooperative_groups.h>
template <int N> __global__ void reverse_sums(const float* x, float* out) {
    __shared__ float s[N];
    extern __shared__ float sums[];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * N + t];
    __syncthreads();
    float v = s[N - 1 - t];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (t % 32 == 0) sums[t / 32] = v;
    __syncthreads();
    if (t == 0) for (int w = 0; w < N / 32; w++) atomicAdd(out, sums[w]);
}
__global__ void halves(__half* x) {
    x[threadIdx.x] = x[threadIdx.x] * __float2half(0.5f) + __half(1);
}
__global__ void grid_sync(int* counts) {
    atomicAdd(&counts[0], 1);
    cooperative_groups::this_grid().sync();
    if (counts[0] == gridDim.x * blockDim.x) atomicAdd(&counts[1], 1);
}
__global__ void early(int n) { if (threadIdx.x < n) __syncthreads(); }
__global__ void past_the_end(float* x) { x[1 << 14] = 1; }
__device__ int deep(int n) {
    volatile int frame[100];
    frame[n % 100] = n;
    return n ? deep(n - 1) + frame[n % 100] : 0;
}
__global__ void recurses(int* x) { *x = deep(*x); }

template <class F> void expect_error(F run, const char* part) {
    try { run(); printf("no error\n"); }
    catch (const std::exception& e) {
        if (!strstr(e.what(), part)) printf("%s\n", e.what());
    }
}
int main() {
    constexpr int BLOCKS = 50, N = 256;
    float *x, *out, expected = 0;
    cudaMalloc(&x, BLOCKS * N * sizeof(float)), cudaMalloc(&out, sizeof(float));
    for (int i = 0; i < BLOCKS * N; i++) expected += x[i] = i % 7;
    *out = 0;
    reverse_sums<N><<<BLOCKS, N, N / 32 * sizeof(float)>>>(x, out);
    if (*out != expected) printf("sum %g, expected %g\n", *out, expected);
    __half* h;
    cudaMalloc(&h, 64);
    for (int i = 0; i < 32; i++) h[i] = __half(i);
    halves<<<1, 32>>>(h);
    for (int i = 0; i < 32; i++)
        if (float(h[i]) != i * 0.5f + 1) printf("half %d: %g\n", i, float(h[i]));
    int counts[2] = {0, 0}, *pointer = counts;
    void* arguments[] = {&pointer};
    cudaLaunchCooperativeKernel((void*)grid_sync, 5, 40, arguments);
    if (counts[1] != 200) printf("grid barrier: %d\n", counts[1]);
    expect_error([&] { early<<<1, 64>>>(50); }, "50 threads (the first: (0,0,0)) wait at");
    expect_error([&] { past_the_end<<<1, 1>>>(x); }, "bytes past its end");
    expect_error([&] { int n = 100000; recurses<<<1, 1>>>(&n); }, "stack overflow");
    printf("done\n");
}
"""


def test_aarch64(tmp_path):
    cxx, qemu = need("aarch64-linux-gnu-g++"), need("qemu-aarch64")
    source, program = tmp_path / "cell.cpp", tmp_path / "program"
    source.write_text(PRELUDE + translate(PROGRAM))
    command = [cxx, "-std=c++17", "-O2", "-static", "-pthread", "-fstack-clash-protection", "-w"]
    command += [f"-I{INCLUDE}", str(source), *map(str, RUNTIME), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([qemu, str(program)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


SAME_NAMES = r"""
template <class T> __global__ void fill_kernel(T* out) {
    __shared__ T s[SIZE];
    for (int i = threadIdx.x; i < SIZE; i += blockDim.x) s[i] = i;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < SIZE; i++) sum += s[i];
    out[threadIdx.x] = sum;
}
EXPORT fill(const Arrays& a) { fill_kernel<<<1, 32>>>(a.at<double>(0)); }
"""


def test_two_strings_with_the_same_names_do_not_mix(tmp_path):
    out = np.zeros(32)
    for size in (10, 4000, 100):
        folder = tmp_path / str(size)
        folder.mkdir()
        compile_string(f"#define SIZE {size}\n{SAME_NAMES}", folder).run("fill", out)
        assert (out == size * (size - 1) / 2).all()


def test_two_builds_of_the_same_at_once(tmp_path, capfd):
    cache, both_build = Cache(tmp_path), threading.Barrier(2)

    def make(directory):
        (directory / "library").write_text("built")
        both_build.wait()

    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda _: cache.get("it", make, "Building it"), range(2))
    assert first == second and [path.name for path in first.iterdir()] == ["library"]
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert capfd.readouterr().err.count("Building it …") == 2
    assert cache.get("it", pytest.fail) == first  # nothing is made twice


SPEED = r"""
__global__ void empty_kernel(int* out) { if (threadIdx.x == 5000) out[0] = 1; }
EXPORT empty(const Arrays& a) { empty_kernel<<<40000, 256>>>(a.at<int>(0)); }
__global__ void barriers_kernel(int* out) {
    for (int i = 0; i < 100; i++) __syncthreads();
    if (threadIdx.x == 5000) out[0] = 1;
}
EXPORT barriers(const Arrays& a) { barriers_kernel<<<160, 256>>>(a.at<int>(0)); }
"""


# A quiet machine manages three to ten times as much; this finds what makes it slow altogether.
@pytest.mark.parametrize(
    "name, steps, at_least", [("empty", 40000, 60e6), ("barriers", 16000, 60e6)]
)
def test_speed(tmp_path, name, steps, at_least):
    library = compile_string(SPEED, tmp_path)
    seconds = []
    for _ in range(4):
        begun = time.process_time()
        library.run(name, np.zeros(1, np.int32))
        seconds.append(time.process_time() - begun)
    assert steps * 256 / min(seconds) > at_least


@pytest.mark.skipif(not shutil.which("ld.gold"), reason="needs gold")
def test_a_gold_that_does_not_link_is_left_alone(tmp_path):
    compiler, cache = need("g++"), Cache(tmp_path / "builds")
    assert _gold(CpuBackend(compiler, cache)) == ["-fuse-ld=gold"]
    broken = tmp_path / "ld.gold"  # -B: the compiler looks there first
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert _gold(CpuBackend(f"{compiler} -B{tmp_path}/", cache)) == []
