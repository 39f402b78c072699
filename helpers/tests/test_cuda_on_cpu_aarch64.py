"""Programs for aarch64 under qemu: fibres, guards and faults, with pages of 4, 16 and 64 KB.

qemu runs one instruction set on another: it shows neither an ARM processor's weaker order of memory
nor its speed, and tells a handler of faults not whether it was a read.
"""

import re
import subprocess

import numpy as np
import pytest

from helpers.base.machine import CACHE
from helpers.cuda_on_cpu import command
from helpers.tests.cuda_driver import need

PROGRAM = r"""
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" void cuda_on_cpu_set_time_limit(double seconds);

__global__ void saxpy_kernel(float* y, const float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
template <int N> __global__ void sum_kernel(float* out, const float* x, int n) {
    __shared__ float tile[N];
    extern __shared__ float sums[];
    int t = threadIdx.x, i = blockIdx.x * N + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int s = N / 2; s >= 32; s /= 2) {
        if (t < s) tile[t] += tile[t + s];
        __syncthreads();
    }
    float v = tile[t % 32];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (t % 32 == 0) sums[t / 32] = v;
    __syncthreads();
    if (t == 0) atomicAdd(out, (sums[0] + sums[N / 32 - 1]) / 2);
}
__global__ void warp_kernel(int* out) {
    int v = threadIdx.x;
    for (int s = 16; s; s /= 2) v += __shfl_xor_sync(~0u, v, s);
    out[threadIdx.x] = v + 1000 * __popc(__ballot_sync(~0u, threadIdx.x % 3 == 0));
}
__global__ void atomics_kernel(int* x, unsigned long long* wide, double* d) {
    atomicAdd(&x[0], 1);
    atomicMax(&x[1], threadIdx.x);
    atomicMin(&x[2], -(int)threadIdx.x);
    atomicXor(&x[3], 1 << threadIdx.x % 31);
    atomicAdd(wide, 1ull << 33);
    atomicAdd(d, 0.5);
    int old = atomicAdd(&x[4], 0), seen;
    do {
        seen = old;
        old = atomicCAS(&x[4], seen, seen + 2);
    } while (old != seen);
}
__global__ void grid_kernel(int* counts) {
    atomicAdd(&counts[0], 1);
    cooperative_groups::this_grid().sync();
    if (counts[0] == gridDim.x * blockDim.x) atomicAdd(&counts[1], 1);
}
__device__ unsigned arrived;
__device__ volatile unsigned go;
__global__ void own_barrier_kernel(int* x) {
    if (threadIdx.x == 0) {
        x[blockIdx.x] = blockIdx.x + 1;
        __threadfence();
        bool is_last = atomicAdd(&arrived, 1) == gridDim.x - 1;
        __threadfence();
        if (is_last) go = 1;
        while (!go) __nanosleep(100);
        __threadfence();
        int sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += ((volatile int*)x)[b];
        x[gridDim.x + blockIdx.x] = sum;
    }
    __syncthreads();
}
__global__ void halves_kernel(const float* x, unsigned short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half a(x[3 * i]), b(x[3 * i + 1]), c(x[3 * i + 2]);
    __half h[] = {__hadd(a, b), __hmul(a, b), __hdiv(a, b), __hfma(a, b, c)};
    __nv_bfloat16 d(x[3 * i]), e(x[3 * i + 1]), f(x[3 * i + 2]);
    __nv_bfloat16 g[] = {__hadd(d, e), __hmul(d, e), __hdiv(d, e), __hfma(d, e, f)};
    for (int k = 0; k < 4; k++) {
        out[8 * i + k] = __half_as_ushort(h[k]);
        out[8 * i + 4 + k] = __bfloat16_as_ushort(g[k]);
    }
}
__global__ void past_kernel(float* x, int n) { x[n] = 1; }
__global__ void null_kernel(int* x) { *x = 1; }
__global__ void trap_kernel(int* x) {
    x[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 3) __trap();
}
__global__ void divides_kernel(int* x) { x[0] = 7 / x[1]; }
__global__ void misaligned_kernel(char* x) { atomicAdd((int*)(x + 1), 1); }
__global__ void jumps_kernel(int* x, void (*function)(int*)) { function(x); }
__device__ __noinline__ int deep(int n) {  // each call takes less than aarch64's code probes
    volatile char frame[40000];
    frame[n % 100] = n;
    return n ? deep(n - 1) + frame[n % 100] : 0;
}
__global__ void deep_kernel(int* x, int n) { *x = deep(n); }
__global__ void race_kernel(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    x[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void endless_kernel(volatile int* x) { while (!*x) {} }

template <class T> T* make(int n) {
    T* p;
    cudaMallocManaged(&p, n * sizeof(T));
    memset(p, 0, n * sizeof(T));
    return p;
}
void run(int n) {
    float *x = make<float>(3 * n), *y = make<float>(n), *sum = make<float>(1);
    if (fread(x, sizeof *x, 3 * n, stdin) != 3 * n) return;
    for (int i = 0; i < n; i++) y[i] = i % 5;
    saxpy_kernel<<<(n + 255) / 256, 256>>>(y, x, 2, n);
    sum_kernel<256><<<(n + 255) / 256, 256, 8 * sizeof(float)>>>(sum, y, n);
    int *lanes = make<int>(64), *counted = make<int>(5), *counts = make<int>(2);
    warp_kernel<<<1, 64>>>(lanes);
    auto* wide = make<unsigned long long>(1);
    double* d = make<double>(1);
    atomics_kernel<<<3, 100>>>(counted, wide, d);
    void* arguments[] = {&counts};
    cudaLaunchCooperativeKernel((void*)grid_kernel, 5, 40, arguments);
    int* b = make<int>(16);
    own_barrier_kernel<<<8, 32>>>(b);
    int* right = make<int>(3);  // as the faults below, but right
    right[2] = 2;
    deep_kernel<<<1, 1>>>(right, 4);
    divides_kernel<<<1, 1>>>(right + 1);
    auto* halves = make<unsigned short>(8 * n);
    halves_kernel<<<(n + 63) / 64, 64>>>(x, halves, n);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    printf("%.9g\n", *sum);
    printf("%d %d %d %d %d %d %d %llu %g\n", lanes[0], lanes[63], counted[0], counted[1],
           counted[2], counted[3], counted[4], *wide >> 33, *d);
    printf("%d %d %d %d %d %d\n", counts[0], counts[1], b[8], b[15], right[0], right[1]);
    for (int i = 0; i < 8 * n; i++) printf("%d ", halves[i]);
}
void reset() {  // a fault leaves nothing that runs
    cudaDeviceSynchronize();
    cudaDeviceReset();
}
int main(int argc, char** argv) {
    if (argc == 2) return run(atoi(argv[1])), 0;
    cuda_on_cpu_set_time_limit(0.3);
    past_kernel<<<1, 1>>>(make<float>(100), 1 << 16);
    reset();
    null_kernel<<<1, 1>>>((int*)8);
    reset();
    trap_kernel<<<1, 32>>>(make<int>(32));
    reset();
    misaligned_kernel<<<1, 1>>>((char*)make<int>(2));
    reset();
    jumps_kernel<<<1, 1>>>(make<int>(1), (void (*)(int*))0x1230);
    reset();
    deep_kernel<<<1, 1>>>(make<int>(1), 1000);
    reset();
    endless_kernel<<<1, 1>>>(make<int>(1));
    reset();
    divides_kernel<<<1, 1>>>(make<int>(2));
    reset();
    race_kernel<<<1, 64>>>(make<float>(64));
}
"""
FAULTS = {  # of a plain build; a checked one has some in its own words
    "past_kernel": r"line {line}: \w+ x\[65536\], byte 262144 of an array",
    "null_kernel": r"line {line}: \w+ through a null pointer",
    "trap_kernel": r"thread \(3,0,0\), line \d+: __trap\(\)",
    "misaligned_kernel": r"accesses a misaligned address",
    "jumps_kernel": r"line {line}: calls a function address 0x1230, where there is no memory",
    "deep_kernel": r"line \d+: stack overflow: a thread has 256 KB",
    "endless_kernel": r"line {line}: no thread of the block has come to an end for 0.3 s",
}
CHECKED = FAULTS | {
    "past_kernel": r"line {line}: writes x\[65536\], but x ends at x\[99\]",
    "divides_kernel": r"line {line}: integer division by zero",
    "race_kernel": r"line \d+: reads s\[63\] before any thread of the block has written it",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return the command that runs the program, by whether its build is checked."""
    compiler, qemu = need("aarch64-linux-gnu-g++"), need("qemu-aarch64")
    folder = tmp_path_factory.mktemp("aarch64")
    (folder / "program.cu").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_ON_CPU_CACHE", str(CACHE))
        for check in (False, True):
            asked = [*["--check"] * check, "-ccbin", compiler, str(folder / "program.cu")]
            assert command.main([*asked, "-o", str(folder / f"program{check:d}")]) == 0
    root = subprocess.run([compiler, "-print-sysroot"], capture_output=True, text=True).stdout
    root = root.strip().removesuffix("/") or "/usr/aarch64-linux-gnu"
    return {check: [qemu, "-L", root, str(folder / f"program{check:d}")] for check in (False, True)}


def run(program: list[str], *arguments: str, page_kb: int = 4, given: bytes = b""):
    asked = [program[0], "-p", str(page_kb * 1024), *program[1:], *arguments]
    return subprocess.run(asked, input=given, capture_output=True, timeout=120)


def rounded(x: np.ndarray, digits: int) -> np.ndarray:
    """Return float64 rounded to so many digits of the mantissa, ties to even."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)


def results(x: np.ndarray, digits: int) -> np.ndarray:
    """Return a + b, a * b, a / b and a * b + c, each rounded once: (n, 4)."""
    a, b, c = rounded(x, digits).T
    return np.stack([rounded(y, digits) for y in (a + b, a * b, a / b, a * b + c)], 1)


@pytest.mark.parametrize(("check", "page_kb"), [(False, 4), (True, 16), (False, 64)])
def test_programs_for_aarch64(programs, check, page_kb):
    n = 523
    x = np.random.uniform(0.1, 50, (n, 3)).astype(np.float32)
    done = run(programs[check], str(n), page_kb=page_kb, given=x.tobytes())
    assert (done.returncode, done.stderr) == (0, b"")
    said, total, counted, barriers, halves = done.stdout.decode().splitlines()
    assert said == "no error"
    expected = 2 * x.ravel()[:n].astype(np.float64).sum() + (np.arange(n) % 5).sum()
    np.testing.assert_allclose(float(total), expected, rtol=1e-5)
    bits = np.bitwise_xor.reduce([1 << t % 31 for t in range(100)] * 3)
    assert counted == f"11496 12520 300 99 -99 {bits} 600 300 150"
    assert barriers == "200 200 36 36 10 3"
    halves = np.array(halves.split(), np.uint16).reshape(n, 8)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(halves[:, :4].copy().view(np.float16), results(wide, 11))
    brain = (halves[:, 4:].astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(brain, results(wide, 8))


@pytest.mark.parametrize(("check", "page_kb"), [(False, 64), (True, 4)])
def test_faults_on_aarch64(programs, check, page_kb):
    done = run(programs[check], page_kb=page_kb)
    assert done.returncode == check
    said = {line.split(" ")[0]: line for line in done.stderr.decode().splitlines()}
    expected = CHECKED if check else FAULTS
    assert said.keys() == expected.keys()
    for kernel, sentence in expected.items():
        begin = PROGRAM.index(f"__global__ void {kernel}(")
        line = PROGRAM.count("\n", 0, begin) + 1
        assert re.search(sentence.replace("{line}", str(line)), said[kernel]), said[kernel]
