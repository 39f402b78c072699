"""The command that builds programs as nvcc does: its options, its files, what it refuses."""

import subprocess

import pytest

from helpers.base.machine import CACHE
from helpers.cuda_on_cpu import command

KERNEL = r"""
#include "add.h"
__global__ void add_kernel(float* x, float y) { x[threadIdx.x] += y * TIMES; }
void add(float* x, float y) { add_kernel<<<1, 32>>>(x, y); }
"""
HOST = r"""
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <add.h>
int main() {
    float *x, sum;
    cudaMallocManaged(&x, 32 * sizeof(float));
    for (int i = 0; i < 32; i++) x[i] = i;
    add(x, 2);
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSasum(handle, 32, x, 1, &sum);
    printf("%g\n", sum);
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_ON_CPU_CACHE", str(CACHE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run() -> subprocess.CompletedProcess:
    return subprocess.run(["./a.out"], capture_output=True, text=True, timeout=60)


def test_files_are_compiled_and_linked(folder):
    (folder / "include").mkdir()
    (folder / "include/add.h").write_text("void add(float* x, float y);\n")
    (folder / "toolkit").mkdir()
    for name in ("cuda_runtime.h", "cuda_runtime_api.h"):
        (folder / "toolkit" / name).write_text("#error of a toolkit")
    (folder / "add.cu").write_text(KERNEL)
    (folder / "main.cpp").write_text(HOST)
    device = "-dc --gpu-architecture sm_80 -gencode=arch=compute_90,code=sm_90 -rdc=true -lineinfo"
    options = (
        "-Itoolkit -Iinclude -DTIMES=10 --std=c++17 -O2 -g -Xcompiler -Wall,-Wextra -Xptxas=-v -m64"
    )
    assert command.main([*device.split(), *options.split(), "add.cu"]) == 0
    assert command.main("add.o main.cpp -I include -lcudart -lcublas -lm".split()) == 0
    assert run().stdout == "1136\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "expected a .cu file, got none"),
        ("-ptx a.cu", "-ptx is no option that it knows"),
        ("--default-stream=per-thread a.cu", "--default-stream=per-thread is no option"),
        ("-cc a.cu", "-cc is no option"),
        ("a.cu -o", "-o wants a value, and nothing follows it"),
        ("b.cu", "there is no file b.cu"),
        ("a.txt", "expected files of .cu, .cpp, .cc, .cxx, .o, .a, .so, got a.txt"),
        ("a.cu -lnccl", "-lnccl: that library has no code for the CPU backend"),
        ("a.cu a.cu -c -o a.o", "with -c, -o names one file, and there are several"),
        ("a.cu -ccbin nowhere++", "there is no C++ compiler 'nowhere++'"),
    ],
)
def test_what_is_refused(folder, capsys, arguments, sentence):
    (folder / "a.cu").write_text("int main() {}")
    assert command.main(arguments.split()) == 1
    assert capsys.readouterr().err.startswith("cuda-on-cpu: " + sentence)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("int f(int i) { return nowhere; }", "a.cuh:2:23: error:"),
        ("__global__ void k() { cudaStreamCreate(0); }", "a.cuh:2: cudaStreamCreate is for"),
        ("float f(); __device__ float g() { return f(); } float f() { return 1; }",
         "error: f is a function of the host: a kernel can call it with __device__ before it\n"),
        ("void f() { cudaArrayGetPlane(0, 0, 0); }", "CUDA has 'cudaArrayGetPlane', the"),
    ],
)  # fmt: skip
def test_an_error_names_the_file(folder, capsys, code, sentence):
    (folder / "a.cu").write_text('#include "a.cuh"\nint main() {}')
    (folder / "a.cuh").write_text(f"#pragma once\n{code}")
    assert command.main(["a.cu"]) == 1
    assert sentence in capsys.readouterr().err


CHECKED = r"""// of an editor that writes a byte order mark, in Latin-1: ä
__global__ void k(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }
int main() {
    int *x, *y;
    cudaMalloc(&x, 32 * sizeof(int));
    k<<<1, 64>>>(x, N);
    cudaDeviceSynchronize();
    cudaFree(x);
}
"""


@pytest.mark.parametrize(("n", "status"), [(32, 0), (33, 1)])
def test_a_fault_makes_a_checked_program_fail(folder, n, status):
    (folder / "a.cu").write_bytes(b"\xef\xbb\xbf" + CHECKED.encode("latin-1"))
    assert command.main(["--check", f"-DN={n}", "a.cu"]) == 0
    done = run()
    assert done.returncode == status
    assert ("line 2: writes x[32], but x ends at x[31]" in done.stderr) == bool(status)


def test_help_names_the_options(capsys):
    assert command.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "--check program.cu" in said and "-gencode VALUE" in said
