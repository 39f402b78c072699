"""Where arrays begin on the CPU backend: as on a GPU for strings that ask."""

import subprocess
import sys

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler.tools import cpu_backend
from helpers.cuda_on_cpu.alignment import align_if_asked
from helpers.device import BACKEND

pytestmark = pytest.mark.skipif(BACKEND == "cuda", reason="of the CPU backend")

ASK = [
    "bool f(float* p) { return reinterpret_cast<uintptr_t>(p) % 128 == 0; }",
    "assert(((uintptr_t)p & 127) == 0);",
    "auto at = reinterpret_cast<std::uintptr_t>(p); if (at & (64 - 1)) slow();",
    "void* q = (void*)(uintptr_t(p) & ~0x7f);",
    "float* q = (float*)__builtin_assume_aligned(p, 32);",
    "float* p; cudaMalloc(&p, 64); bool fits = ((size_t)p) % 256 == 0;",
    "if (reinterpret_cast<size_t>(p) & 63) slow();",
]
ASK_FOR_LITTLE = [
    "bool f(float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }",
    "bool f(float* p, int n) { return uintptr_t(p) % sizeof(float4) == 0 && n % 128 == 0; }",
    "auto at = uintptr_t(p) | uintptr_t(q); bool fits = (at & 0xF) == 0; int rest = n & 127;",
    "int i = 2 * k; size_t rest = (size_t)i % 128; float* x = p + (size_t)n % 256;",
    "// uintptr_t(p) % 128\nfloat* q = (float*)__builtin_assume_aligned(p, 16);",
]


@pytest.mark.parametrize("text", ASK)
def test_a_string_that_asks_for_more_than_16_bytes_gets_them(text):
    assert align_if_asked(text).startswith(f"{text}\n")


@pytest.mark.parametrize("text", ASK_FOR_LITTLE)
def test_of_others_arrays_end_where_they_end(text):
    assert align_if_asked(text) == text


@pytest.mark.parametrize("size", [32, 64, 128, 256, 4096])
def test_an_array_is_aligned_to_what_its_size_is_a_multiple_of(size):
    cpu_backend().install_allocator()
    for count in (1, 3, 7, 129):
        assert torch.empty(count * size, dtype=torch.uint8).data_ptr() % min(size, 256) == 0


# In a process of its own: what is made afterwards begins at multiples of 512 in all of it.
PROGRAM = r'''
import torch
from helpers.compiler import compile_cuda
read = compile_cuda("""
__global__ void read_kernel(const float* x, float* out, int i) { out[0] = x[i]; }
torch::Tensor read(torch::Tensor x, int64_t i) {
    auto out = torch::empty({1}, x.options());
    read_kernel<<<1, 1>>>(x.data_ptr<float>(), out.data_ptr<float>(), i);
    return out;
}""").read
def fault(call, *args):
    try: call(*args)
    except RuntimeError as error: print(str(error).splitlines()[0])
    else: print("nothing")
before = torch.ones(1000)
assert before.data_ptr() % 256
fault(read, before, 1000)
asks = compile_cuda("""
#include <cassert>
__global__ void write_kernel(float* x, int i) {
    assert(reinterpret_cast<uintptr_t>(x) % 128 == 0);
    x[i] = 1;
}
int64_t write(torch::Tensor x, int64_t bytes, int64_t i) {
    char* p;
    cudaMalloc(&p, bytes);
    int64_t rest = (int64_t)p % 256;
    write_kernel<<<1, 1>>>((float*)p, 0);
    write_kernel<<<1, 1>>>(x.data_ptr<float>(), i);
    cudaFree(p);
    return rest;
}""")
x = torch.ones(1000)
assert x.data_ptr() % 512 == 0 and torch.empty(3).data_ptr() % 512 == 0
assert [asks.write(x, bytes, 999) for bytes in (4, 20, 1000, 5000)] == [0] * 4
fault(asks.write, x, 4, 1000)
fault(asks.write, x, 4, 1024)
fault(read, x, 1000)
'''
SAID = [
    "read_kernel (launched at line 5), block (0,0,0), thread (0,0,0), line 2: reads x[1000], byte "
    "4000 of a tensor of 4000 bytes: the first byte past its end.",
    "write_kernel (launched at line 12): a thread writes x[1000], byte 4000 of a tensor of 4000 "
    "bytes: the first byte past its end. check=True names the thread and the line.",
    "write_kernel (launched at line 12), block (0,0,0), thread (0,0,0), line 5: writes x[1024], "
    "byte 4096 of a tensor of 4000 bytes: 96 bytes past its end.",
    "read returns a tensor whose element [0] was computed from what lies past the end of an array",
]


def test_arrays_are_aligned_from_then_on_and_what_is_written_behind_them_is_found():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(SAID)
    for line, expected in zip(said, SAID, strict=True):
        assert line.startswith(expected)
