"""#ifdef __CUDA_ARCH__: the host takes its own half of what is for both, as under nvcc."""

import shutil
import subprocess

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.cuda_on_cpu.halves import choose_halves
from helpers.device import DEVICE

HALVES = r"""
__host__ __device__ int where() {
#ifdef __CUDA_ARCH__
  return 1;
#else
  return 2;
#endif
}
#define BOTH __host__ __device__
BOTH int counted(int x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  if (x) {
    int more = 3;
    x += more;
  }
  x *= 10;
#endif
#ifndef __CUDA_ARCH__
  x += 5;
#endif
  return x;
}
int of_the_host() {
#if __CUDA_ARCH__ >= 700
  int x = 8;
#else
  int x = 7;
#endif
  return x;
}
__global__ void k(int* o) { o[0] = where(); o[1] = counted(1); }
"""
RUN = """
std::vector<int64_t> run(torch::Tensor o) {
  int before = where();
  k<<<1, 1>>>(o.data_ptr<int>());
  return {before, where(), counted(1), of_the_host()};
}
"""


@pytest.mark.parametrize("check", [False, True])
def test_host_and_device_take_their_halves(check):
    o = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    assert compile_cuda(HALVES + RUN, check=check).run(o) == [2, 2, 6, 7]
    assert o.tolist() == [1, 40]


def test_nvcc_takes_the_same_text(tmp_path):
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    (tmp_path / "halves.cu").write_text(HALVES)
    command = ["nvcc", "-arch=sm_80", "-cubin", "-o", "/dev/null", "halves.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    "src",
    [
        "__device__ int f() {\n#ifdef __CUDA_ARCH__\nreturn 1;\n#else\nreturn 2;\n#endif\n}",
        "#ifdef __CUDA_ARCH__\nint f() { return 1; }\n#endif",
        "BOTH int f() {\n#ifdef __CUDA_ARCH__\nint a = 1;\n#else\nint a = 2;\n#endif\n}",
        "BOTH int f() {\n#ifdef __CUDA_ARCH__\nif (g()) {\n#endif\nh();\n}",
        "BOTH int f() {\n#if __CUDA_ARCH__ >= 700 || MINE\nreturn 1;\n#endif\n}",
        "BOTH void f() {\n#ifdef __CUDACC__\ng();\n#endif\n}",
    ],
)
def test_what_is_no_statement_of_both_stays(src):
    src = src.replace("BOTH", "__host__ __device__")
    assert choose_halves(src) == src


def test_lines_stay():
    assert choose_halves(HALVES).count("\n") == HALVES.count("\n")
