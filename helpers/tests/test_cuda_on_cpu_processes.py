"""Device memory that processes share on the CPU backend: the same bytes, errors as CUDA's."""

import subprocess
import sys

import pytest

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.device import BACKEND

pytestmark = [
    pytest.mark.skipif(BACKEND == "cuda", reason="it is the CPU backend that is tested"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files without a name"),
]

SRC = r"""
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>
#include <cstring>
#include <vector>

__global__ void write_kernel(int* to, int n, int value) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = value + i;
}
__global__ void wait_kernel(int* at, int value) {
    int now;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(at) : "memory");
    while (now != value);
}

int64_t make(torch::Tensor like, int64_t n) {
    int* memory;
    TORCH_CHECK(cudaMalloc(&memory, n * sizeof(int)) == cudaSuccess);
    return reinterpret_cast<int64_t>(memory);
}
// 8 numbers, or one: the error
std::vector<int64_t> share(torch::Tensor like, int64_t at) {
    cudaIpcMemHandle_t handle;
    cudaError_t error = cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(at));
    if (error != cudaSuccess) return {cudaGetLastError()};
    std::vector<int64_t> numbers(8);
    std::memcpy(numbers.data(), &handle, sizeof handle);
    return numbers;
}
// the address and 0, or 0 and the error
std::vector<int64_t> reach(torch::Tensor like, std::vector<int64_t> numbers, int64_t flags) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, numbers.data(), sizeof handle);
    void* memory = nullptr;
    cudaError_t error = cudaIpcOpenMemHandle(&memory, handle, unsigned(flags));
    if (error != cudaSuccess) cudaGetLastError();
    return {reinterpret_cast<int64_t>(memory), error};
}
int64_t leave(torch::Tensor like, int64_t at) {
    cudaError_t error = cudaIpcCloseMemHandle(reinterpret_cast<void*>(at));
    if (error != cudaSuccess) cudaGetLastError();
    return error;
}
int64_t release(torch::Tensor like, int64_t at) {
    cudaError_t error = cudaFree(reinterpret_cast<void*>(at));
    if (error != cudaSuccess) cudaGetLastError();
    return error;
}
void write(torch::Tensor like, int64_t at, int64_t n, int64_t value) {
    write_kernel<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<int*>(at), int(n), int(value));
}
void wait(torch::Tensor like, int64_t at, int64_t value) {
    wait_kernel<<<1, 1, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<int*>(at), int(value));
}
void read(torch::Tensor out, int64_t at) {
    cudaMemcpy(out.data_ptr<int>(), reinterpret_cast<int*>(at), out.numel() * sizeof(int),
               cudaMemcpyDeviceToHost);
}
"""

# The other process: opens what it is told, and does what the test says.
OTHER = """
import sys
import torch
from helpers.compiler import compile_cuda
from helpers.tests.test_cuda_on_cpu_processes import SRC

ipc, like = compile_cuda(SRC), torch.zeros(1)
numbers = [int(word) for word in sys.argv[1].split(",")]
at, error = ipc.reach(like, numbers, 1)
exec(sys.argv[2])
"""
N = 1000


@pytest.fixture(scope="module")
def ipc():
    return compile_cuda(SRC)


@pytest.fixture
def like():
    import torch

    return torch.zeros(1)


def ints(*shape):
    import torch

    return torch.zeros(shape, dtype=torch.int32)


def other(numbers, script):
    """Start another process that has the array at `at`."""
    command = [sys.executable, "-c", OTHER, ",".join(map(str, numbers)), script]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def said(process):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.split()


def test_two_processes_see_the_same_bytes_and_wait_for_each_other(ipc, like):
    at = ipc.make(like, N)
    ipc.write(like, at, N, 7)  # before it is shared: it stays
    numbers = ipc.share(like, at)
    assert len(numbers) == 8 and ipc.share(like, at) == numbers
    script = (
        "out = torch.zeros(1000, dtype=torch.int32); ipc.read(out, at)\n"
        "again = ipc.reach(like, numbers, 1)\n"  # opened already: the same address
        "print(error, out[999].item(), again == [at, 0])\n"
        "ipc.write(like, at, 1000, 500)\n"
        "print(ipc.release(like, at), ipc.leave(like, at), ipc.leave(like, at))\n"
        "print(ipc.leave(like, at))"
    )
    process = other(numbers, script)
    ipc.wait(like, at + 4 * (N - 1), 500 + N - 1)  # a kernel that waits for another process
    # cudaFree is not for what another process has made; closed as often as opened
    assert said(process) == ["0", "1006", "True", "1", "0", "0", "1"]
    out = ints(N)
    ipc.read(out, at)
    assert out.tolist() == list(range(500, 500 + N))
    assert ipc.release(like, at) == 0


def test_an_overrun_of_shared_memory_is_caught_there_too(ipc, like):
    at = ipc.make(like, N)
    process = other(ipc.share(like, at), "ipc.write(like, at, 1001, 0)")
    _, error = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "an array of another process of 4000 bytes" in error
    ipc.release(like, at)


def test_what_has_been_freed_cannot_be_opened(ipc, like):
    at = ipc.make(like, N)
    numbers = ipc.share(like, at)
    ipc.release(like, at)
    assert said(other(numbers, "print(at, error)")) == ["0", "205"]  # MapBufferObjectFailed
    again = ipc.make(like, N)  # pages that were shared are nobody else's now
    assert ipc.share(like, again) != numbers
    ipc.release(like, again)


def test_errors_are_those_of_cuda(ipc, like):
    at = ipc.make(like, N)
    numbers = ipc.share(like, at)
    assert ipc.reach(like, numbers, 1) == [0, 201]  # one's own: cudaErrorDeviceUninitialized
    assert ipc.reach(like, numbers, 0) == [0, 1]  # the flag is a must
    assert ipc.leave(like, at) == 1
    assert ipc.share(like, like.data_ptr()) == [1]  # a tensor, no array from cudaMalloc
    ipc.release(like, at)
