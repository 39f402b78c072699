"""The wheel of the CPU backend, in an environment of its own: the command and pytest's fixture."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from helpers.base.machine import CACHE
from helpers.make import wheel

PIP_AND_SETUPTOOLS = all(map(importlib.util.find_spec, ("pip", "setuptools")))
pytestmark = pytest.mark.skipif(
    not PIP_AND_SETUPTOOLS, reason="pip and setuptools build a wheel, and are not installed"
)
EXAMPLE = wheel.HERE / "example"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return the Python of a new environment: the wheel is its own, the rest is this one's."""
    folder = tmp_path_factory.mktemp("wheel")
    built = wheel.build(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--no-index", built], check=True)
    (packages,) = (folder / "venv").glob("lib/*/site-packages")
    packages.joinpath("others.pth").write_text(sysconfig.get_path("purelib"))
    return python


def run(command, folder: Path, cache: Path = CACHE) -> subprocess.CompletedProcess:
    """Run a command of the environment; the runtime is taken from the cache of this one."""
    environment = os.environ | {"CUDA_ON_CPU_CACHE": str(cache)}
    for name in ("PYTHONPATH", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        environment.pop(name, None)
    return subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_example(python):
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--tb=short", EXAMPLE]
    done = run(command, python.parent)
    said = done.stdout + done.stderr
    assert "1 passed" in said and "2 failed" in said, said
    assert "PASSED" in said and "test_row_sums[right]" in said
    assert "racy_kernel" in said and "with no barrier between" in said, said
    assert "long_kernel" in said and "reads inp[600]" in said, said


def test_a_path_that_compilers_do_not_take(python, tmp_path):
    program = "from cuda_on_cpu.compiler import compile_cuda; compile_cuda('')"
    done = run([python, "-c", program], tmp_path, tmp_path / "a b")
    assert "The cache's folder has a space in its path" in done.stderr
    assert "To mend it: export CUDA_ON_CPU_CACHE=" in done.stderr


PROGRAM = r"""
#include "kernel.cuh"
int main() {
    float *x, first = 3e10f;
    cudaMalloc(&x, 32 * sizeof(float));
    cudaMemcpy(x, &first, sizeof(float), cudaMemcpyHostToDevice);
    step<32><<<1, 32>>>(x);
    cudaMemcpy(&first, x, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", first);
}
"""
KERNEL = r"""
#pragma once
#include <cstdio>
template <int N> __global__ void step(float* x) {
    __shared__ int all[N];
    int first = x[0];  // as PTX has it: the largest int
    all[threadIdx.x] = first;
#ifndef RACY
    __syncthreads();
#endif
    if (threadIdx.x == 0) x[0] = all[N - 1];
}
"""


def test_the_command(python, tmp_path):
    (tmp_path / "program.cu").write_text(PROGRAM)
    (tmp_path / "kernel.cuh").write_text(KERNEL)
    command = [python.parent / "cuda-on-cpu", "program.cu", "-o", "program"]
    done = run([*command, "-O3", "-arch=sm_90"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(["./program"], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.14748e+09\n", "")
    assert run([*command, "--check", "-DRACY"], tmp_path).returncode == 0
    done = run(["./program"], tmp_path)
    assert done.returncode == 1
    assert "step<32> (launched at line 7), block (0,0,0)" in done.stderr
    assert "line 11: reads all[31] before any thread" in done.stderr


def test_the_modules_name_nothing_of_the_course(tmp_path):
    wheel.stage(tmp_path)
    for path in tmp_path.rglob("*.py"):
        assert "helpers." not in path.read_text(), path
