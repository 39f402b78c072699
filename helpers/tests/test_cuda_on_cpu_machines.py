"""The CPU backend's build and its speed; for aarch64 see test_cuda_on_cpu_aarch64.py."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from helpers.cuda_on_cpu import Cache, CpuBackend
from helpers.cuda_on_cpu.build import _gold
from helpers.tests.cuda_driver import compile_string, need

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
