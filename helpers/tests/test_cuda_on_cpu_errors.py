"""What a kernel does wrong on the CPU backend: an error that names the place, and no harm."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler.tools import cpu_backend
from helpers.tests.cuda_driver import Library, compile_string

SRC = r"""
#include <cassert>
#include <cooperative_groups.h>
__global__ void returns_early(float* x, int n) {
    __shared__ float s[64];
    if (threadIdx.x >= n) return;
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // line: early
    x[threadIdx.x] = s[n - 1 - threadIdx.x];
}
EXPORT early(const Arrays& a) { returns_early<<<dim3(1), 64>>>(a.at<float>(0), 50); }

__global__ void two_barriers(float* x) {
    if (threadIdx.x < 32) __syncthreads();  // line: first
    else __syncthreads();  // line: second
}
EXPORT two(const Arrays& a) { two_barriers<<<3, 64>>>(a.at<float>(0)); }

__global__ void two_in_a_line(float* x) {
    if (threadIdx.x < 32) __syncthreads(); else __syncthreads();  // line: both
}
EXPORT both(const Arrays& a) { two_in_a_line<<<1, 64>>>(a.at<float>(0)); }

__global__ void barrier_and_shuffle(float* x) {
    if (threadIdx.x < 16) __syncthreads();
    else x[threadIdx.x] = __shfl_down_sync(0xffffffff, 1.0f, 1);  // line: mixed
}
EXPORT mixed(const Arrays& a) { barrier_and_shuffle<<<1, 32>>>(a.at<float>(0)); }

__global__ void mask_without_self(float* x) { __syncwarp(0x0000ffff); }  // line: self
EXPORT self(const Arrays& a) { mask_without_self<<<1, 32>>>(a.at<float>(0)); }

__global__ void masks_differ(float* x) {
    if (threadIdx.x % 2) __ballot_sync(0xffffffff, 1);
    else __ballot_sync(0x7fffffff, 1);
}
EXPORT differ(const Arrays& a) { masks_differ<<<1, 32>>>(a.at<float>(0)); }

__global__ void reads_left_lane(float* x, int n) {
    if (threadIdx.x >= n) return;
    x[threadIdx.x] = __shfl_down_sync(0xffffffff, x[threadIdx.x], 16);  // line: left
}
EXPORT left(const Arrays& a) { reads_left_lane<<<1, 32>>>(a.at<float>(0), 20); }

__global__ void reads_unnamed_lane(float* x) {
    if (threadIdx.x < 16) x[threadIdx.x] = __shfl_down_sync(0x0000ffff, x[threadIdx.x], 8);
}
EXPORT unnamed(const Arrays& a) { reads_unnamed_lane<<<1, 32>>>(a.at<float>(0)); }

__global__ void some_blocks_skip() {
    if (blockIdx.x != 2) cooperative_groups::this_grid().sync();
}
EXPORT skip(const Arrays& a) {
    cudaLaunchCooperativeKernel((void*)some_blocks_skip, 4, 32, (void**)nullptr);
}

__global__ void does_nothing() {}
EXPORT launch(const Arrays& a) {
    int* c = a.at<int>(0);
    does_nothing<<<dim3(c[0], c[1], c[2]), dim3(c[3], c[4], c[5]), c[6]>>>();
}
__global__ void writes_all_shared(int* out, int n) {
    extern __shared__ int numbers[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) numbers[i] = i;
    __syncthreads();
    out[threadIdx.x] = numbers[n - 1 - threadIdx.x];
}
EXPORT large_shared(const Arrays& a) {
    int n = 15000;
    cudaFuncSetAttribute(writes_all_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 4 * n);
    writes_all_shared<<<1, 32, 4 * n>>>(a.at<int>(0), n);
}

__global__ void shares(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];  // line: shares
    __syncthreads();
    x[threadIdx.x] = s[0];
}
EXPORT little_shared(const Arrays& a) { shares<<<1, 64, 32 * sizeof(float)>>>(a.at<float>(0)); }

__device__ void store(float* x, int i) {
    x[i] = 1;  // line: store
}
__global__ void writes(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) store(x, i);
}
EXPORT write_past(const Arrays& a) { writes<<<4000, 32>>>(a.at<float>(0), *a.at<int>(1)); }
__global__ void reads(const float* x, float* out, int i) {
    out[0] = x[i];  // line: read
}
EXPORT read_at(const Arrays& a) { reads<<<1, 1>>>(a.at<float>(0), a.at<float>(2), *a.at<int>(1)); }
EXPORT read_null(const Arrays& a) { reads<<<1, 1>>>(nullptr, a.at<float>(0), 0); }
__global__ void adds(float* x, int i) {
    atomicAdd(&x[i], 1.0f);  // line: atomic
}
EXPORT add_at(const Arrays& a) { adds<<<1, 1>>>(a.at<float>(0), *a.at<int>(1)); }

__global__ void shifts(float4* x) {
    x[1] = *(float4*)((float*)x + 1);  // line: misaligned
}
EXPORT misaligned(const Arrays& a) { shifts<<<1, 1>>>(a.at<float4>(0)); }

__global__ void divides(int* x, int n) {
    x[threadIdx.x] = x[threadIdx.x] % n;  // line: modulo
}
EXPORT modulo(const Arrays& a) { divides<<<1, 8>>>(a.at<int>(0), 0); }

__device__ int deep(int n) {
    volatile int frame[100];
    frame[n % 100] = n;
    return n ? deep(n - 1) + frame[n % 100] : 0;
}
__global__ void recurses(int* x) { x[threadIdx.x] = deep(x[threadIdx.x]); __syncthreads(); }
EXPORT recurse(const Arrays& a) { recurses<<<1, 8>>>(a.at<int>(0)); }

__global__ void asserts(int* x) {
    assert(x[threadIdx.x] < 5);  // line: assertion
}
EXPORT assertion(const Arrays& a) { asserts<<<1, 8>>>(a.at<int>(0)); }
__global__ void traps(int* x) { if (x[threadIdx.x] > 5) __trap(); }  // line: trap
EXPORT trap(const Arrays& a) { traps<<<1, 8>>>(a.at<int>(0)); }

__global__ void spins(volatile int* flag) {
    while (*flag == 0) {}  // line: spin
}
EXPORT spin(const Arrays& a) { spins<<<4, 2>>>(a.at<int>(0)); }
__global__ void spins_blindly(int* flag) {
    while (*flag == 0) {}  // line: spin_blindly
}
__global__ void spins_for_ever(int* flag) {
    for (;;) {}  // line: spin_for_ever
}
EXPORT spin_for_ever(const Arrays& a) { spins_for_ever<<<4, 2>>>(a.at<int>(0)); }
EXPORT spin_blindly(const Arrays& a) { spins_blindly<<<4, 2>>>(a.at<int>(0)); }
__global__ void waits_for_all(int* arrived) {
    if (threadIdx.x > 0) return;
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) {}
}
EXPORT wait_for_all(const Arrays& a) { waits_for_all<<<9, 1024>>>(a.at<int>(0)); }
__global__ void spins_at_the_heap(volatile int* flag) {
    while (*flag == 0) free(malloc(64));  // line: spin_at_the_heap
}
EXPORT spin_at_the_heap(const Arrays& a) { spins_at_the_heap<<<4, 2>>>(a.at<int>(0)); }
__global__ void never_agrees(int* x) {
    while (!__syncthreads_or(x[0])) {}
}
EXPORT livelock(const Arrays& a) { never_agrees<<<2, 64>>>(a.at<int>(0)); }

__global__ void reverses(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];
}
EXPORT reverse(const Arrays& a) { reverses<<<1, 64>>>(a.at<float>(0)); }

__device__ void wait_for(int* flag);
__global__ void spins_elsewhere(int* flag) {
    wait_for(flag);  // line: spin_elsewhere
    *flag = 2;
}
EXPORT spin_elsewhere(const Arrays& a) { spins_elsewhere<<<4, 2>>>(a.at<int>(0)); }
#line 1 "/usr/include/machine_code_of_no_line.h"
__device__ __attribute__((noinline)) void wait_for(int* flag) { while (*flag == 0) {} }
"""


@pytest.fixture(scope="module", params=["g++", "clang++"])
def lib(request, tmp_path_factory):
    cpu_backend().install_allocator()
    return compile_string(SRC, tmp_path_factory.mktemp("cuda"), request.param)


@pytest.fixture(autouse=True)
def survives(lib):
    """After every error the next launch works."""
    yield
    x = np.arange(64, dtype=np.float32)
    lib.run("reverse", x)
    np.testing.assert_array_equal(x, np.arange(64)[::-1])


@pytest.fixture
def short_patience():
    cpu_backend().set_time_limit(0.3)
    yield
    cpu_backend().set_time_limit(30)


def line(mark: str) -> int:
    return next(i for i, text in enumerate(SRC.splitlines(), 1) if f"// line: {mark}" in text)


def error_of(lib, name, *arrays) -> str:
    with pytest.raises(RuntimeError) as raised:
        lib.run(name, *[a.numpy() if isinstance(a, torch.Tensor) else a for a in arrays])
    return str(raised.value)


def ints(*values):
    return np.array(values, np.int32)


X = np.zeros(64, np.float32)


# --- barriers and warps ---------------------------------------------------------------------------


def test_threads_that_have_left_count_as_arrived(lib):
    x = np.arange(64, dtype=np.float32)
    lib.run("early", x)
    assert x.tolist() == [*range(49, -1, -1), *range(50, 64)]


def test_two_different_barriers(lib):
    message = error_of(lib, "two", X)
    assert "two_barriers" in message and "thread (32,0,0)" in message
    assert f"line {line('first')}" in message and f"line {line('second')}" in message


def test_two_barriers_of_one_line(lib):
    message = error_of(lib, "both", X)
    assert f"thread (32,0,0) is at the one in line {line('both')}" in message
    assert f"32 others wait at another in line {line('both')}" in message


def test_a_barrier_and_a_shuffle_wait_for_each_other(lib):
    message = error_of(lib, "mixed", X)
    assert "16 threads (the first: (0,0,0)) wait at __syncthreads" in message
    assert f"16 threads (the first: (16,0,0)) wait at a shuffle in line {line('mixed')}" in message


def test_a_mask_without_the_own_lane(lib):
    message = error_of(lib, "self", X)
    assert "thread (16,0,0) calls __syncwarp" in message and f"line {line('self')}" in message
    assert "leaves out its own lane 16 (0x0000ffff)" in message


def test_masks_that_differ(lib):
    message = error_of(lib, "differ", X)
    assert "0xffffffff" in message and "0x7fffffff" in message


def test_a_shuffle_from_a_lane_that_has_left(lib):
    message = error_of(lib, "left", X)
    assert f"thread (4,0,0) reads lane 20 in the shuffle of line {line('left')}" in message


def test_a_shuffle_from_a_lane_that_the_mask_leaves_out_gives_nan(lib):
    x = np.arange(32, dtype=np.float32)
    lib.run("unnamed", x)
    np.testing.assert_array_equal(x, [*range(8, 16), *[np.nan] * 8, *range(16, 32)])


def test_a_grid_barrier_that_some_blocks_skip(lib):
    message = error_of(lib, "skip")
    assert "waits at grid.sync()" in message and "1 of 4 blocks have left the kernel" in message


# --- launches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grid, block, shared, sentence",
    [
        ((1, 1, 1), (32, 33, 1), 0, "a block of (32,33,1) is 1056 threads; it must be 1 to 1024"),
        ((1, 1, 1), (0, 1, 1), 0, "is 0 threads"),
        ((1, 1, 1), (1, 1, 65), 0, "(64 at most in z)"),
        ((0, 1, 1), (32, 1, 1), 0, "the grid (0,1,1) must have at least one block"),
        ((1, 65536, 1), (32, 1, 1), 0, "at most (2147483647,65535,65535)"),
        ((1, 1, 1), (32, 1, 1), 240_000, "240000 bytes of dynamic shared memory are too many"),
    ],
)
def test_a_bad_configuration(lib, grid, block, shared, sentence):
    message = error_of(lib, "launch", ints(*grid, *block, shared))
    assert message.startswith("does_nothing (launched at line ") and sentence in message


def test_much_shared_memory_has_to_be_asked_for(lib, tmp_path):
    asks = "import sys, numpy as np\nfrom helpers.tests.cuda_driver import Library\n"
    asks += "lib = Library(sys.argv[1])\nout = np.zeros(32, np.int32)\n"
    asks += "try: lib.run('launch', np.array([1, 1, 1, 32, 1, 1, 60000], np.int32))\n"
    asks += "except RuntimeError as error: print(error)\n"
    asks += "lib.run('large_shared', out); assert out[0] == 14999\n"
    asks += "lib.run('launch', np.array([1, 1, 1, 32, 1, 1, 60000], np.int32))\n"
    command = [sys.executable, "-c", asks, lib._library._name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "60000 bytes of dynamic shared memory need cudaFuncSetAttribute(" in done.stdout


def test_too_little_dynamic_shared_memory(lib):
    message = error_of(lib, "little_shared", X)
    place = f"block (0,0,0), thread (32,0,0), line {line('shares')}: "
    what = "writes byte 128 of dynamic shared memory of 128 bytes: the first byte past its end."
    assert place + what in message


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [52, 50, 1024, 100_000])
def test_a_write_past_the_end_of_a_tensor(lib, n):
    message = error_of(lib, "write_past", torch.zeros(n), ints(n + 300))
    past = -4 * n % 16  # the rest of the last 16 bytes is not guarded
    thread = (n + past // 4) % 32
    assert message == (
        f"writes (launched at line {line_of_launch('write_past')}), "
        f"block ({(n + past // 4) // 32},0,0), thread ({thread},0,0), line {line('store')}: "
        f"writes x[{n + past // 4}], byte {4 * n + past} of a tensor of {4 * n} bytes: "
        f"{f'{past} bytes' if past else 'the first byte'} past its end."
    )


@pytest.mark.parametrize("n", [1, 255, 1823])
def test_a_write_into_the_rest_of_the_last_16_bytes(lib, n):
    message = error_of(lib, "write_past", torch.zeros(n), ints(n + 1))
    assert message == (
        f"writes (launched at line {line_of_launch('write_past')}): a thread writes x[{n}], "
        f"byte {4 * n} of a tensor of {4 * n} bytes: the first byte past its end. "
        "check=True names the thread and the line."
    )
    lib.run("write_past", torch.zeros(n).numpy(), ints(n))


@pytest.mark.parametrize(
    "index, said", [(255, "byte 1020 of"), (-1, "4 bytes before the start of")]
)
def test_what_is_read_and_written_back_beside_an_array_is_found(lib, index, said):
    assert f"x[{index}], {said} a tensor" in error_of(lib, "add_at", torch.ones(255), ints(index))


def line_of_launch(name: str) -> int:
    return next(i for i, text in enumerate(SRC.splitlines(), 1) if f"EXPORT {name}(" in text)


def test_a_read_past_the_end_and_before_the_start(lib):
    x, out = torch.zeros(1024), torch.zeros(1)
    message = error_of(lib, "read_at", x, ints(1030), out)
    assert f"line {line('read')}: reads x[1030], byte 4120 of a tensor of 4096 bytes" in message
    message = error_of(lib, "read_at", x, ints(-3), out)
    assert "reads x[-3], 12 bytes before the start of a tensor of 4096 bytes" in message
    message = error_of(lib, "add_at", x, ints(1024))
    assert f"line {line('atomic')}: " in message and "the first byte past its end" in message
    three = torch.ones(3)
    for index in (-1, 3):  # the rest of a page does not fault: a NaN shows the error
        lib.run("read_at", three.numpy(), ints(index), out.numpy())
        assert out.isnan()
    message = error_of(lib, "read_null", out)
    assert "reads through a null pointer, or shared memory that the launch did not" in message


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors allow it")
def test_a_vector_that_is_not_aligned(lib):
    message = error_of(lib, "misaligned", torch.zeros(64))
    assert f"line {line('misaligned')}: accesses a misaligned address" in message


def test_a_library_that_was_renamed_since_it_was_loaded(lib):
    loaded = lib._library._name
    os.rename(loaded, loaded + ".renamed")
    try:
        assert f"line {line('atomic')}: " in error_of(lib, "add_at", torch.zeros(8), ints(8))
    finally:
        os.rename(loaded + ".renamed", loaded)


def test_tensors_work_as_before(lib):
    x = torch.arange(10.0)
    assert x.resize_(20).shape == (20,) and torch.empty(0).sum() == 0
    many = [torch.full((3,), float(i)) for i in range(20_000)]  # more than there are guards for
    assert sum(t[2].item() for t in many) == sum(range(20_000))
    del many
    big = torch.ones(20_000_000)
    assert big.sum() == 20_000_000 and (big @ big) > 0
    assert torch.from_numpy(np.ones(3)).clone().sum() == 3


# --- traps and loops ------------------------------------------------------------------------------


def test_modulo_by_zero(lib):
    message = error_of(lib, "modulo", ints(*range(8)))
    assert f"thread (0,0,0), line {line('modulo')}: integer division by zero" in message


def test_stack_overflow(lib):
    assert "stack overflow" in error_of(lib, "recurse", ints(*[100_000] * 8))
    x = ints(*[10] * 8)
    lib.run("recurse", x)
    assert (x == 55).all()


def test_a_failed_assertion(lib):
    message = error_of(lib, "assertion", ints(*range(8)))
    assert f"(5,0,0), line {line('assertion')}: assertion failed: x[threadIdx.x] < 5" in message


def test_trap(lib):
    message = error_of(lib, "trap", ints(*range(8)))
    assert f"thread (6,0,0), line {line('trap')}: __trap()" in message


@pytest.mark.parametrize("name", ["spin", "spin_blindly", "spin_elsewhere", "spin_for_ever"])
def test_a_loop_that_never_ends(lib, short_patience, name):
    message = error_of(lib, name, ints(0))
    assert re.match(r"spins\w* \(launched at line \d+\), block \(\d,0,0\), thread", message)
    assert f", line {line(name)}: no thread of" in message
    assert "for 0.3 s" in message


def test_a_lock_that_an_endless_loop_takes_is_given_back(lib, short_patience):
    for _ in range(3):  # the allocator's; a block that left with it would stop the next one
        message = error_of(lib, "spin_at_the_heap", ints(0))
        assert f", line {line('spin_at_the_heap')}: no thread of" in message


def test_barriers_that_go_on_for_ever(lib, short_patience):
    assert "no thread of the block has come to an end" in error_of(lib, "livelock", ints(0))


def test_an_interrupt_stops_a_kernel(lib):
    begun = time.monotonic()
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert error_of(lib, "spin", ints(0)) == "spins: interrupted."
    assert time.monotonic() - begun < 10
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fault_outside_of_kernels_still_ends_the_process(lib):
    crash = "import sys, ctypes, numpy as np\nfrom helpers.tests.cuda_driver import Library\n"
    crash += "lib = Library(sys.argv[1])\nlib.run('reverse', np.zeros(64, np.float32))\n"
    crash += "ctypes.string_at(0)"
    for options in ([], ["-X", "faulthandler"]):
        command = [sys.executable, *options, "-c", crash, lib._library._name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGSEGV
        assert ("Fatal Python error" in done.stderr) == bool(options)


def test_lines_are_found_in_a_folder_with_an_apostrophe(lib, tmp_path):
    folder = tmp_path / "o'brien; false"
    folder.mkdir()
    there = Library(shutil.copy(lib._library._name, folder))
    message = error_of(there, "read_at", torch.zeros(1024), ints(1030), torch.zeros(1))
    assert f"line {line('read')}: reads x[1030]" in message


LITTLE_MEMORY = """
import os, resource, sys
import numpy as np
from helpers.tests.cuda_driver import Library

for _ in range(4):  # and once here: each in a process of its own
    if pid := os.fork():
        status = os.waitpid(pid, 0)[1]
        assert status == 0, status
    else:
        break
library = Library(sys.argv[1], False)
out = np.zeros(8, np.int32)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 200 * 2**20  # a block's stacks are 260 MB of addresses
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    library.run("all", out)
except RuntimeError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
library.run("all", out)
print(out.tolist(), flush=True)
os._exit(0)  # PyTorch takes a second to leave
"""

ALL = r"""
#include <cooperative_groups.h>
__global__ void all_kernel(int* out) {
    cooperative_groups::this_grid().sync();
    out[blockIdx.x] = gridDim.x;
}
EXPORT all(const Arrays& a) {
    int* out = a.at<int>(0);
    void* arguments[] = {&out};
    cudaLaunchCooperativeKernel((void*)all_kernel, dim3(8), dim3(1), arguments, 0, 0);
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_too_little_memory_for_stacks_ends_the_launch_alone(tmp_path):
    compile_string(ALL, tmp_path)
    command = [sys.executable, "-c", LITTLE_MEMORY, str(tmp_path / "cell.so")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = ["all_kernel: no memory for its threads' stacks.", str([8] * 8)]
    # five: it was one launch in three that killed the process
    assert done.stdout.splitlines() == 5 * said


def test_blocks_that_are_too_many_to_wait_for_each_other(lib, short_patience):
    error = error_of(lib, "wait_for_all", ints(0))
    assert "no thread of the block has come to an end for 0.3 s" in error
    assert "A GPU does not run so many blocks at once, and in any order" in error
