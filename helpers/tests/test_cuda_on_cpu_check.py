"""compile_cuda(src, check=True): each kind of fault with its line and names, and no false alarm."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler import checked, compile_cuda
from helpers.compiler.build import compile_traced
from helpers.device import DEVICE
from helpers.tests.cuda_driver import compile_string, need

SRC = r"""
#include <cooperative_groups.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

// --- out of range

__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];  // line: add
}
void add(torch::Tensor a, torch::Tensor b, torch::Tensor out, int n) {
    add_kernel<<<(n + 63) / 64, 64>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                      out.data_ptr<float>(), n);
}
__global__ void bytes_kernel(uint8_t* x, long at) { x[at] = 1; }  // line: byte
void bytes(torch::Tensor x, int64_t at) { bytes_kernel<<<1, 1>>>(x.data_ptr<uint8_t>(), at); }
__global__ void vector_kernel(float4* x, int at) {
    x[at] = make_float4(1, 2, 3, 4);  // line: vector
}
void vector(torch::Tensor x, int at) {
    vector_kernel<<<1, 1>>>(reinterpret_cast<float4*>(x.data_ptr<float>()), at);
}
__global__ void far_kernel(float* x, long step) { x[threadIdx.x * step] = 1; }  // line: far
void far(torch::Tensor x, int64_t step) { far_kernel<<<1, 2>>>(x.data_ptr<float>(), step); }
__global__ void static_kernel(float* x, int past) {
    __shared__ float tile[4][8];
    tile[threadIdx.y][threadIdx.x] = 1;
    __syncthreads();
    float* flat = &tile[0][0];
    x[threadIdx.x + 8 * threadIdx.y] = flat[past];  // line: flat
}
void static_(torch::Tensor x, int past) {
    static_kernel<<<1, dim3(8, 4)>>>(x.data_ptr<float>(), past);
}
__global__ void fixed_kernel(float* x, int row) {
    __shared__ float tile[4][8];
    tile[row][threadIdx.x] = 1;  // line: fixed
    x[threadIdx.x] = tile[row][threadIdx.x];
}
void fixed(torch::Tensor x, int row) { fixed_kernel<<<1, 8>>>(x.data_ptr<float>(), row); }
__global__ void dynamic_kernel(float* x, int past) {
    extern __shared__ float cache[];
    cache[threadIdx.x + past] = x[threadIdx.x];  // line: dynamic
}
void dynamic(torch::Tensor x, int past) {
    dynamic_kernel<<<1, 50, 50 * sizeof(float)>>>(x.data_ptr<float>(), past);
}

__global__ void table_kernel(const int64_t* table, int i, int at) {
    reinterpret_cast<float*>(table[i])[at] = 1;  // line: table
}
void table(torch::Tensor table, int i, int at) {
    table_kernel<<<1, 1>>>(table.data_ptr<int64_t>(), i, at);
}

// --- races

__global__ void readers_kernel(float* x, int writer) {
    if (blockIdx.x == writer) x[0] = 1;
    else x[1 + blockIdx.x] = x[0];
}
void readers(torch::Tensor x, int writer) { readers_kernel<<<6, 1>>>(x.data_ptr<float>(), writer); }
__global__ void later_block_kernel(float* out, int last) {
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x / 32];
    if (blockIdx.x == last && threadIdx.x == 40) s[0] = 1;  // line: later_block
}
void later_block(torch::Tensor out, int last) {
    later_block_kernel<<<8, 64>>>(out.data_ptr<float>(), last);
}
__device__ float left_of(const float* values, int i) {
    return i ? values[i - 1] : 0;  // line: left
}
__global__ void race_kernel(float* x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // line: fill
    x[t] = left_of(s, t);
}
LAUNCH(race_kernel, 1, 64)
__global__ void mended_kernel(float* x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    x[t] = left_of(s, t);
}
LAUNCH(mended_kernel, 1, 64)
__global__ void exchange_kernel(float* x) {
    __shared__ int lock;
    if (threadIdx.x == 0) atomicExch(&lock, 7);
    __syncthreads();
    x[threadIdx.x] = atomicAdd(&lock, 1);
}
LAUNCH(exchange_kernel, 1, 64)
__global__ void mirror_kernel(float* x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // line: mirrored
    x[t] = s[63 - t];  // line: mirror
}
LAUNCH(mirror_kernel, 1, 64)
__global__ void scan_kernel(float* x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        float sum = s[t] + (t >= d ? s[t - d] : 0);  // line: scan_read
        s[t] = sum;  // line: scan_write
        __syncthreads();
    }
    x[t] = s[t];
}
LAUNCH(scan_kernel, 1, 64)
__global__ void blocks_kernel(float* x) { x[0] = blockIdx.x; }  // line: blocks
LAUNCH(blocks_kernel, 2, 1)
struct Best { double value; int at; };
struct alignas(16) Tagged { float2 pair; int tag; };
__global__ void padded_kernel(float* x) {
    __shared__ Best best[64];
    __shared__ Tagged tagged[64];
    extern __shared__ char raw[];
    auto* more = reinterpret_cast<Best*>(raw);
    int t = 63 - threadIdx.x;
    best[threadIdx.x].value = best[threadIdx.x].at = threadIdx.x;
    tagged[threadIdx.x] = {make_float2(threadIdx.x, 1), (int)threadIdx.x};
    more[threadIdx.x].value = more[threadIdx.x].at = threadIdx.x;
    __syncthreads();
    Best mine = best[t], other = more[t];
    Tagged third = tagged[t];
    x[t] = mine.value + other.at + third.tag;
}
LAUNCH(padded_kernel, 1, 64, 64 * sizeof(Best))
__global__ void partly_kernel(float* x) {
    __shared__ __align__(16) float s[256];
    for (int i = 0; i < 3; i++) s[4 * threadIdx.x + i] = 1;
    float4 four = reinterpret_cast<float4*>(s)[threadIdx.x];  // line: partly
    x[threadIdx.x] = four.w;
}
LAUNCH(partly_kernel, 1, 64)
template <class T, int N>
__global__ void template_kernel(T* x) {
    __shared__ T pair[N];
    pair[threadIdx.x / 2] = x[threadIdx.x];  // line: template
    __syncthreads();
    x[threadIdx.x] = pair[threadIdx.x / 2];
}
void template_run(torch::Tensor x) { template_kernel<float, 16><<<1, 32>>>(x.data_ptr<float>()); }
__global__ void increments_kernel(int* count) { count[0] += 1; }  // line: increments
void increments(torch::Tensor count) { increments_kernel<<<1, 64>>>(count.data_ptr<int>()); }
__global__ void atomics_kernel(int* count) { atomicAdd(&count[0], 1); }
void atomics(torch::Tensor count) { atomics_kernel<<<4, 64>>>(count.data_ptr<int>()); }
__global__ void mixed_kernel(int* count) {
    atomicAdd(&count[0], 1);  // line: mixed_atomic
    if (threadIdx.x == 5) count[0] = 0;  // line: mixed_write
}
void mixed(torch::Tensor count) { mixed_kernel<<<1, 64>>>(count.data_ptr<int>()); }
__global__ void neighbours_kernel(uint8_t* x) { x[threadIdx.x] = x[threadIdx.x] + 1; }
void neighbours(torch::Tensor x) { neighbours_kernel<<<1, 64>>>(x.data_ptr<uint8_t>()); }
__global__ void carved_kernel(float* x) {
    extern __shared__ float floats[];  // nvcc wants one type for each name
    auto* bytes = reinterpret_cast<unsigned char*>(floats);
    bytes[threadIdx.x] = 3;
    __syncthreads();
    x[threadIdx.x] = bytes[blockDim.x - 1 - threadIdx.x];
}
LAUNCH(carved_kernel, 1, 64, 64)
__global__ void halves_kernel(__half* x) {
    __shared__ __half s[64];
    s[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = __float2half(__half2float(s[threadIdx.x ^ 1]));  // line: halves
}
void halves(torch::Tensor x) {
    halves_kernel<<<1, 64>>>(reinterpret_cast<__half*>(x.data_ptr<at::Half>()));
}
__global__ void byte_kernel(float* x) {
    __shared__ int s[1];
    auto* bytes = reinterpret_cast<unsigned char*>(s);
    if (threadIdx.x == 0) bytes[0] = 1, bytes[1] = 2;  // line: set_bytes
    x[threadIdx.x] = bytes[1];  // line: one_byte
}
LAUNCH(byte_kernel, 1, 64)

// --- warps

__global__ void lanes_kernel(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
    __syncwarp();
    s[threadIdx.x ^ 3] = 0;
}
LAUNCH(lanes_kernel, 1, 64)
__global__ void half_warps_kernel(float* x) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    auto half = cg::tiled_partition<16>(cg::this_thread_block());
    half.sync();
    x[threadIdx.x] = s[threadIdx.x % 16];  // line: half_warps
}
LAUNCH(half_warps_kernel, 1, 32)
__global__ void other_warp_kernel(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    x[threadIdx.x] = s[threadIdx.x ^ 32];  // line: other_warp
}
LAUNCH(other_warp_kernel, 1, 64)
__global__ void shuffles_kernel(float* x) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    __shfl_xor_sync(0xffffffff, 1, 1);
    x[threadIdx.x] = s[threadIdx.x ^ 1];  // line: shuffles
}
LAUNCH(shuffles_kernel, 1, 32)

// --- shared memory that nobody has written

__global__ void unwritten_kernel(float* x) {
    __shared__ float tile[3][33];
    if (threadIdx.x != 7) tile[2][threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = tile[2][threadIdx.x];  // line: unwritten
}
LAUNCH(unwritten_kernel, 1, 32)
__global__ void histogram_kernel(float* x) {
    __shared__ int bins[8];
    atomicAdd(&bins[threadIdx.x % 8], 1);  // line: bins
}
LAUNCH(histogram_kernel, 1, 32)
__global__ void second_block_kernel(float* x) {
    __shared__ float s;
    if (blockIdx.x == 0) s = 1;
    x[blockIdx.x] = s;  // line: second_block
}
LAUNCH(second_block_kernel, 64, 1)

__device__ int tickets;
__global__ void tickets_kernel(int* out, bool atomic) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (atomic) out[i] = atomicAdd(&tickets, 1);
    else out[i] = tickets++;  // line: tickets
}
void take_tickets(torch::Tensor out, bool atomic) {
    tickets_kernel<<<2, 8>>>(out.data_ptr<int>(), atomic);
}
namespace { __device__ float rows[2][64] = {}; }
__global__ void rows_kernel(float* x) {
    rows[1][threadIdx.x] = x[threadIdx.x];  // line: rows_write
    x[threadIdx.x] = rows[1][63 - threadIdx.x];  // line: rows
}
LAUNCH(rows_kernel, 1, 64)
__global__ void lookup_kernel(float* x) { x[threadIdx.x] = rows[0][threadIdx.x % 4]; }
LAUNCH(lookup_kernel, 1, 64)

// --- fences, locks, flags

__device__ unsigned blocks_done;
__device__ bool is_last_block() {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    return last;
}
__global__ void sum_kernel(float* out, float* partial, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = 0;
        for (int k = 0; k < blockDim.x && i + k < n; k++) partial[blockIdx.x] += x[i + k];
    }
    if (is_last_block() && threadIdx.x == 0) {
        out[0] = 0;
        for (int b = 0; b < gridDim.x; b++) out[0] += partial[b];
    }
}
void sum(torch::Tensor out, torch::Tensor partial, torch::Tensor x) {
    sum_kernel<<<partial.numel(), 64>>>(out.data_ptr<float>(), partial.data_ptr<float>(),
                                        x.data_ptr<float>(), x.numel());
}
__global__ void unfenced_kernel(float* x) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        x[blockIdx.x] = 1;  // line: unfenced_write
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) x[threadIdx.x] = x[threadIdx.x] + 1;  // line: unfenced
}
LAUNCH(unfenced_kernel, 4, 4)
__global__ void lock_kernel(int* lock, int* count) {
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *count += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
void locked(torch::Tensor lock, torch::Tensor count) {
    lock_kernel<<<3, 40>>>(lock.data_ptr<int>(), count.data_ptr<int>());
}
__global__ void flag_kernel(volatile int* flag, float* x) {
    if (threadIdx.x == 0) {
        x[0] = 5;
        __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {}
        __threadfence();
        x[1] = x[0] + 1;
    }
}
void flags(torch::Tensor flag, torch::Tensor x) {
    flag_kernel<<<1, 2>>>(flag.data_ptr<int>(), x.data_ptr<float>());
}
__global__ void contend_kernel(int* lock, int* count, int rounds) {
    for (int i = 0; i < rounds; i++) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *count = *count + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
void contend(torch::Tensor lock, torch::Tensor count, int rounds) {
    contend_kernel<<<16, 1>>>(lock.data_ptr<int>(), count.data_ptr<int>(), rounds);
}
// Block b waits for block b - 1, which releases twice.
__global__ void chain_kernel(int* state, float* x, float* out) {
    int b = blockIdx.x;
    x[b] = b;
    __threadfence();
    atomicExch(&state[b], 1);
    if (b) {
        while (atomicAdd(&state[b - 1], 0) != 2) {}
        __threadfence();
        out[b] = x[b - 1];
    }
    __threadfence();
    atomicExch(&state[b], 2);
    atomicAdd(&state[b], 0);
}
void chain(torch::Tensor state, torch::Tensor x, torch::Tensor out) {
    chain_kernel<<<x.numel(), 1>>>(state.data_ptr<int>(), x.data_ptr<float>(),
                                   out.data_ptr<float>());
}
__global__ void producer_kernel(float* x) {  // one warp writes, the other reads
    __shared__ float s[32];
    __shared__ int flag;
    int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        s[lane] = lane;
        __syncwarp();
        if (lane == 0) {
            __threadfence_block();
            atomicExch(&flag, 1);
        }
    } else {
        if (lane == 0) while (atomicAdd(&flag, 0) == 0) {}
        __syncwarp();
        x[lane] = s[31 - lane];
    }
}
LAUNCH(producer_kernel, 1, 64)
__global__ void grid_kernel(float* x, int past) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    x[i] = i;
    cg::this_grid().sync();
    float other = x[n - 1 - i + past];  // line: grid
    cg::this_grid().sync();
    x[i] = other;
}
void grid(torch::Tensor x, int past) {
    float* data = x.data_ptr<float>();
    void* arguments[] = {&data, &past};
    cudaLaunchCooperativeKernel((void*)grid_kernel, dim3(3), dim3(32), arguments);
}

__global__ void maximum_kernel(float* x) {
    auto* bits = reinterpret_cast<unsigned*>(x);
    unsigned old = *bits, seen;
    do {
        seen = old;
        if (__uint_as_float(seen) >= threadIdx.x) break;
        old = atomicCAS(bits, seen, __float_as_uint(threadIdx.x));
    } while (old != seen);
}
LAUNCH(maximum_kernel, 3, 64)
"""

# LAUNCH(race_kernel, 1, 64) is the host function for kernels that take one array of floats
SRC = re.sub(
    r"^LAUNCH\((\w+), (.*)\)$",
    r"void \1_run(torch::Tensor x) { \1<<<\2>>>(x.data_ptr<float>()); }",
    SRC,
    flags=re.MULTILINE,
)


def line_of(name: str) -> int:
    [line] = [i for i, text in enumerate(SRC.split("\n"), 1) if text.endswith(f"// line: {name}")]
    return line


@pytest.fixture(scope="module")
def cu():
    return compile_cuda(SRC, check=True)


def fails(function, *args) -> str:
    with pytest.raises(RuntimeError) as error:
        function(*args)
    return str(error.value).splitlines()[0]


def test_an_index_past_the_end(cu):
    a, b, out = torch.rand(3, 100)
    cu.add(a.clone(), b.clone(), out.clone(), 100)
    message = fails(cu.add, a.clone(), b.clone(), torch.zeros(99), 100)
    assert f"block (1,0,0), thread (35,0,0), line {line_of('add')}: " in message
    assert message.endswith("writes out[99], but out ends at out[98].")
    message = fails(cu.add, a.clone(), torch.rand(90), torch.zeros(100), 100)
    assert "thread (26,0,0)" in message and message.endswith("reads b[90], but b ends at b[89].")


def test_an_index_before_the_start(cu):
    x = torch.rand(10)
    out = torch.zeros(5)
    message = fails(cu.add, x, x, out.as_strided((5,), (1,)), 6)
    assert message.endswith("writes out[5], but out ends at out[4].")
    message = fails(cu.bytes, torch.zeros(200, dtype=torch.uint8), -1)
    assert f"line {line_of('byte')}: writes x[-1], but x begins at x[0]." in message


def test_an_index_into_another_tensor(cu):
    x, others = torch.zeros(200, dtype=torch.uint8), [torch.zeros(200) for _ in range(20)]
    for other in others:
        inside = other.data_ptr() - x.data_ptr()
        for at in (inside, inside + other.nbytes):
            edge = "begins at x[0]" if at < 0 else "ends at x[199]"
            assert fails(cu.bytes, x, at).endswith(f"writes x[{at}], but x {edge}.")


def test_the_very_end_of_a_small_tensor(cu):
    x = torch.zeros(200, dtype=torch.uint8)
    cu.bytes(x, 199)
    assert x[199] == 1
    assert fails(cu.bytes, x, 200).endswith("writes x[200], but x ends at x[199].")


@pytest.mark.parametrize("alive", [True, False])
def test_among_more_tensors_than_there_are_guards_for(cu, alive):
    many = [torch.zeros(3) for _ in range(10_000)]
    if not alive:
        del many
    count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(70_001)
    assert "reads count[0], written by thread" in fails(cu.increments, count)
    a, b = torch.rand(2, 70_002)
    message = fails(cu.add, a, b, out, 70_002)
    assert message.endswith("writes out[70001], but out ends at out[70000].")


def test_a_view_ends_with_its_storage(cu):
    storage = torch.zeros(100, dtype=torch.uint8)
    cu.bytes(storage[20:30], 79)
    cu.bytes(storage[20:30], -20)
    assert storage[99] == 1 and storage[0] == 1
    assert fails(cu.bytes, storage[20:], 80).endswith("writes x[80], but x ends at x[79].")
    assert fails(cu.bytes, storage[20:], -21).endswith("writes x[-21], but x begins at x[-20].")


def test_memory_of_numpy_is_checked_on_a_copy(cu):
    x = np.zeros(200, np.uint8)
    cu.bytes(torch.from_numpy(x)[10:], 5)
    assert x[15] == 1 and x.sum() == 1
    assert fails(cu.bytes, torch.from_numpy(x), 200).endswith(
        "writes x[200], but x ends at x[199]."
    )


def test_copies_are_on_the_cpu_whatever_the_default_device(cu):
    x = torch.from_numpy(np.zeros(200, np.uint8))
    with torch.device("meta"):
        cu.bytes(x, 5)
    assert x[5] == 1


@pytest.mark.parametrize("step", [10**5, -(10**6), 2**33])
def test_an_index_far_away(cu, step):
    message = fails(cu.far, torch.zeros(10), step)
    assert f"line {line_of('far')}: writes x[{step}], but x " in message


def test_a_vector_that_sticks_out(cu):
    x = torch.zeros(10)
    cu.vector(x, 1)
    assert x.tolist() == [0, 0, 0, 0, 1, 2, 3, 4, 0, 0]
    message = fails(cu.vector, x, 2)
    assert f"line {line_of('vector')}: writes x[2]" in message
    assert message.endswith("but only the first 8 of its 16 bytes lie in x.")
    assert fails(cu.vector, x, 3).endswith("writes x[3], but x ends at x[2].")


@pytest.mark.parametrize("past", [32, 33, 40, -1])
def test_a_pointer_that_leaves_a_static_shared_array(cu, past):
    x = torch.zeros(32)
    cu.static_(x, 31)
    message = fails(cu.static_, x, past)
    edge = "begins at tile[0][0]" if past < 0 else "ends at tile[3][7]"
    row, column = divmod(past, 8)
    assert f"line {line_of('flat')}: reads tile[{row}][{column}], but tile {edge}." in message


def test_an_index_of_a_fixed_size(cu):
    x = torch.zeros(8)
    cu.fixed(x, 3)
    message = fails(cu.fixed, x, 4)
    assert f"thread (0,0,0), line {line_of('fixed')}: " in message
    assert message.endswith("index 4 is outside tile, whose type is float [4][8].")


def test_dynamic_shared_memory_ends_where_the_launch_says(cu):
    x = torch.zeros(64)
    cu.dynamic(x, 0)
    message = fails(cu.dynamic, x, 1)
    assert f"thread (49,0,0), line {line_of('dynamic')}: " in message
    assert message.endswith("writes cache[50], but cache ends at cache[49].")


def test_a_tensor_that_holds_pointers(cu):
    arrays, another = (torch.zeros(10), torch.zeros(20)), torch.zeros(10)
    table = torch.tensor([array.data_ptr() for array in arrays])
    cu.table(table, 0, 9)
    cu.table(table, 1, 3)
    assert arrays[0].nonzero().item() == 9 and arrays[1].nonzero().item() == 3
    said = f"line {line_of('table')}: writes "
    message = fails(cu.table, table, 1, 20)
    assert message.endswith(f"{said}array[20], but array ends at array[19].")
    apart = (another.data_ptr() - arrays[1].data_ptr()) // 4
    assert said in fails(cu.table, table, 1, apart)
    assert another.count_nonzero() == 0


RACES = [
    ("race_kernel_run", "left", "reads s[0], written by thread (0,0,0) in line {fill}"),
    ("scan_kernel_run", "scan_read", "reads s[0], written by thread (0,0,0) in line {scan_write}"),
    ("blocks_kernel_run", "blocks", "of block (0,0,0) in line {blocks}; nothing orders the blocks"),
    ("template_run", "template", "writes pair[0], written by thread (0,0,0) in line {template}"),
    ("halves", "halves", "reads s[1]"),
    ("byte_kernel_run", "one_byte", "reads s[0], written by thread (0,0,0) in line {set_bytes}"),
    ("half_warps_kernel_run", "half_warps", "reads s[0], written by thread (0,0,0)"),
    ("other_warp_kernel_run", "other_warp", "reads s["),
    ("shuffles_kernel_run", "shuffles", "reads s[1], written by thread (1,0,0)"),
    ("unwritten_kernel_run", "unwritten", "reads tile[2][7] before any thread of the block"),
    ("histogram_kernel_run", "bins", "reads bins[0] before any thread"),
    (
        "mirror_kernel_run",
        "mirror",
        "written it; is a barrier missing after the writes in line {mirrored}?",
    ),
    ("second_block_kernel_run", "second_block", "reads s before any thread of the block"),
    ("unfenced_kernel_run", "unfenced", "written by thread (0,0,0) of block"),
    ("rows_kernel_run", "rows_write", "writes rows[1][32], read by thread (31,0,0) in line {rows}"),
]


@pytest.mark.parametrize(("name", "line", "said"), RACES)
def test_a_race_names_both_sides(cu, name, line, said):
    x = torch.arange(64, dtype=torch.half if name == "halves" else torch.float)
    message = fails(getattr(cu, name), x)
    assert f", line {line_of(line)}: " in message
    said = re.sub(r"\{(\w+)\}", lambda found: str(line_of(found[1])), said)
    assert said in message


def test_many_blocks_read_what_one_of_them_writes(cu):
    cu.readers(torch.ones(7), -1)
    for writer in (0, 1, 5):
        assert "x[0], " in fails(cu.readers, torch.ones(7), writer)


def test_a_read_in_shared_memory_is_known_in_every_block(cu):
    cu.later_block(torch.zeros(8 * 64), -1)
    for block in (0, 5, 7):
        said = fails(cu.later_block, torch.zeros(8 * 64), block)
        assert f"block ({block},0,0), thread (40,0,0), line {line_of('later_block')}" in said
        assert "s[0], read by thread" in said


def test_counting_without_and_with_atomics(cu):
    count = torch.zeros(1, dtype=torch.int32)
    message = fails(cu.increments, count)
    assert f"thread (1,0,0), line {line_of('increments')}: reads count[0], written" in message
    message = fails(cu.mixed, count)
    said = "atomically changes count[0], written by thread (5,0,0) in line"
    assert f"line {line_of('mixed_atomic')}: {said} {line_of('mixed_write')}" in message
    count.zero_()
    cu.atomics(count)
    assert count.item() == 256


@pytest.mark.parametrize("name", ["mended", "lanes", "carved", "maximum"])
def test_a_mended_kernel_passes(cu, name):
    getattr(cu, f"{name}_kernel_run")(torch.rand(64))


def test_padding_need_not_be_written(cu):
    x = torch.rand(64)
    cu.padded_kernel_run(x)
    assert x.tolist() == [3 * i for i in range(64)]
    message = fails(cu.partly_kernel_run, torch.rand(64))
    # clang loads no more of the float4 than is used
    assert re.search(rf"line {line_of('partly')}: reads s\[[03]\] before any thread", message)


def test_neighbouring_bytes_do_not_race(cu):
    x = torch.arange(64, dtype=torch.uint8)
    cu.neighbours(x)
    assert torch.equal(x, torch.arange(1, 65, dtype=torch.uint8))


def test_kernels_of_one_name_differ_in_what_they_write():
    two = compile_cuda(
        """
namespace one { __global__ void shift(float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];
    x[(threadIdx.x + 1) % 64] = 0;
} }
namespace two { __global__ void shift(const float* x, float* y) { y[0] = x[0]; } }
void run(torch::Tensor x, torch::Tensor y) {
    one::shift<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
""",
        check=True,
    )
    assert "line 3: reads x[1], written by thread (0,0,0) in line 4" in fails(
        two.run, torch.zeros(64), torch.zeros(64)
    )


def test_memory_that_a_kernel_allocates_is_its_own():
    allocating = compile_cuda(
        """
__device__ __noinline__ void put(float* p, float value) { *p = value; }
__global__ void own_kernel(float* x) {
    __shared__ float s[32];
    float* own = new float[4];
    put(x + threadIdx.x, 1);
    put(own, 2);
    put(s + threadIdx.x, 3);
    x[threadIdx.x] += own[0] + s[threadIdx.x];
    delete[] own;
}
void run(torch::Tensor x) { own_kernel<<<1, 32>>>(x.data_ptr<float>()); }
""",
        check=True,
    )
    x = torch.zeros(32)
    allocating.run(x)
    assert torch.equal(x, torch.full((32,), 6.0))


def test_structures_and_bytes_that_move_as_a_whole():
    moving = compile_cuda(
        """
#include <cstring>
__device__ __noinline__ float total(float4 v) { return v.x + v.y + v.z + v.w; }
__device__ __noinline__ float4 four(float x) { return make_float4(x, x, x, x); }
__global__ void pass_kernel(float* out, const float4* x) {
    out[threadIdx.x] = total(x[threadIdx.x]);
}
__global__ void return_kernel(float4* out, const float* x) {
    out[threadIdx.x] = four(x[threadIdx.x]);
}
__global__ void copy_kernel(float* out, const float* x, int bytes) {
    float mine[5] = {x[threadIdx.x], 1, 2, 3, 4};
    memcpy(out + 4 * threadIdx.x, mine, bytes);
}
void take(torch::Tensor out, torch::Tensor x) {
    pass_kernel<<<1, 32>>>(out.data_ptr<float>(), (const float4*)x.data_ptr<float>());
}
void give(torch::Tensor out, torch::Tensor x) {
    return_kernel<<<1, 32>>>((float4*)out.data_ptr<float>(), x.data_ptr<float>());
}
void copy(torch::Tensor out, torch::Tensor x, int bytes) {
    copy_kernel<<<1, 32>>>(out.data_ptr<float>(), x.data_ptr<float>(), bytes);
}
""",
        check=True,
    )
    x, y = torch.rand(128), torch.zeros(128)
    moving.take(y, x)
    assert torch.allclose(y[:32], x.view(32, 4).sum(1))
    moving.give(y, x)
    moving.copy(y, x, 16)
    for args, message in (
        ((moving.take, y, x[:124].clone()), "line 6: reads x[31], but x ends at x[30]"),
        ((moving.give, y[:124].clone(), x), "line 9: writes out[31], but out ends at out[30]"),
        ((moving.copy, y, x, 20), "line 13: writes out[4], written by thread (0,0,0) in line 13"),
        ((moving.copy, y[:124].clone(), x, 16), "line 13: writes out[124]"),
    ):
        assert message in fails(*args)


def test_what_fences_and_atomics_order_does_not_race(cu):
    x = torch.rand(1000)
    out = torch.zeros(1)
    cu.sum(out, torch.empty(16), x)
    assert torch.allclose(out, x.sum())
    lock, count = torch.zeros(2, 1, dtype=torch.int32).clone()
    cu.locked(lock, count)
    assert count.item() == 120
    result = torch.zeros(2)
    cu.flags(torch.zeros(1, dtype=torch.int32), result)
    assert result.tolist() == [5, 6]
    numbers = torch.zeros(32)
    cu.producer_kernel_run(numbers)
    assert torch.equal(numbers, torch.arange(31, -1, -1.0))


def test_device_variables(cu):
    out = torch.zeros(16, dtype=torch.int32)
    cu.take_tickets(out, True)
    assert torch.equal(out.sort().values, out.min() + torch.arange(16, dtype=torch.int32))
    # which of the two blocks reads, and which writes, is up to the machine's cores
    race = rf"line {line_of('tickets')}: (reads tickets, written|writes tickets, read) by thread "
    assert re.search(race, fails(cu.take_tickets, out, False))
    x = torch.ones(64)
    cu.lookup_kernel_run(x)
    assert x.count_nonzero() == 0


def test_an_exchange_needs_no_earlier_value(cu):
    x = torch.zeros(64)
    cu.exchange_kernel_run(x)
    assert torch.equal(x.sort().values, torch.arange(7.0, 71.0))


def test_blocks_that_contend_for_a_lock_do_not_race(cu):
    lock, count = torch.zeros(2, 1, dtype=torch.int32).clone()
    cu.contend(lock, count, 2000)
    assert count.item() == 16 * 2000


def test_a_block_may_release_again(cu):
    for _ in range(20):
        x, out = torch.zeros(2, 200)
        cu.chain(torch.zeros(200, dtype=torch.int32), x, out)
        assert torch.equal(out, (torch.arange(200.0) - 1).clamp(min=0))


def test_a_barrier_of_the_grid_orders_its_blocks(cu):
    x = torch.zeros(96)
    cu.grid(x, 0)
    assert torch.equal(x, torch.arange(95, -1, -1, dtype=torch.float))


def test_a_kernel_launched_by_a_call_has_its_names(cu):
    message = fails(cu.grid, torch.zeros(96), 1)
    assert message.startswith("grid_kernel (launched at line ")
    assert message.endswith(f"line {line_of('grid')}: reads x[96], but x ends at x[95].")


LOOPS = r"""
__device__ int steps(int n) {
    int count = 0;
    for (int i = 0; i < n; i++)
        if (i % 2) count++;
        else
            for (;;) if (++count % 5 == 0) break;
    #pragma unroll
    for (int k : {1, 2, 3}) count += k;
    do count--; while (count > 40);
    while (int left = count % 7) { if (left == 3) return count; count += 1; continue; }
    return -count;
}
__global__ void steps_kernel(int* out) { out[threadIdx.x] = steps(threadIdx.x); }
void steps_of(torch::Tensor out) { steps_kernel<<<1, 64>>>(out.data_ptr<int>()); }
"""


def test_marked_loops_do_the_same():
    """Loops of all kinds, left in all ways, count the same."""
    out = torch.zeros(64, dtype=torch.int32)
    expected = out.to(DEVICE, copy=True)
    compile_cuda(LOOPS).steps_of(expected)
    compile_traced(LOOPS).steps_of(out)
    assert torch.equal(out, expected.cpu())


def test_clang_finds_the_same():
    clang = need("clang++")
    tests = "index or pointer or race or fences or loops or vectors_and or padding"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", tests]
    environment = {**os.environ, "CXX": clang}
    files = [__file__, str(Path(__file__).with_name("test_cuda_on_cpu_order.py"))]
    done = subprocess.run(
        [*command, *files], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


PAST_THE_END = """
import torch
from helpers.compiler import compile_cuda
cu = compile_cuda('''
__global__ void k(float* x, int at) { x[at] += 1; }
void run(torch::Tensor x, int at) { k<<<1, 1>>>(x.data_ptr<float>(), at); }
float host(torch::Tensor x) { return *(volatile float*)(x.data_ptr<float>() + x.numel()); }''')
x = torch.zeros(64)
for _ in range(2):
    cu.host(x)  # as a library does that loads whole vectors
    try:
        cu.run(x, 64)
    except RuntimeError as error:
        print(error)
for size in range(70, 90):
    dense = torch.rand(size, size) * (torch.rand(size, size) < 0.3)
    torch.testing.assert_close(dense.to_sparse_csr() @ torch.ones(size), dense.sum(1))
"""


def test_a_library_may_read_past_the_end_and_a_kernel_may_not():
    command = [sys.executable, "-W", "ignore", "-c", PAST_THE_END]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if DEVICE.type == "cpu":
        said = "byte 256 of a tensor of 256 bytes: the first byte past its end"
        assert done.stdout.count(said) == 2


def test_checked_finds_the_twin():
    plain = compile_cuda(SRC)
    x = torch.zeros(64, device=DEVICE)
    plain.race_kernel_run(x)
    assert "with no barrier between" in fails(checked(plain.race_kernel_run), x)
    twin = checked(plain.race_kernel_run)
    assert checked(twin) is twin
    for other in (print, 3, []):
        with pytest.raises(TypeError, match="compile_cuda"):
            checked(other)


ACCESSOR = """
template <class T> struct Pointer { typedef T* type; };
template <class Item, class Check, class T, std::size_t N, template <class> class Traits, class I>
struct Packed {  // as PyTorch's GenericPackedTensorAccessor
    T* at;
    I sizes[N], strides[N];
    T* data() const { return at; }
    I size(int i) const { return sizes[i]; }
    I stride(int i) const { return strides[i]; }
    __device__ T* operator[](I i) const { return at + i * strides[0]; }
};
using Rows = Packed<float*, void, float, 2, Pointer, int>;
__global__ void rows_kernel(Rows out, int row, int col) { out[row][col] = 1; }
EXPORT dense(const Arrays& a) { rows_kernel<<<1, 1>>>(Rows{a.at<float>(0), {3, 5}, {5, 1}}, 3, 2); }
EXPORT right(const Arrays& a) { rows_kernel<<<1, 1>>>(Rows{a.at<float>(0), {3, 5}, {5, 1}}, 2, 4); }
EXPORT gaps(const Arrays& a) { rows_kernel<<<1, 1>>>(Rows{a.at<float>(0), {2, 5}, {8, 1}}, 2, 0); }
"""


def test_an_accessor_is_named_with_its_indices(tmp_path):
    lib = compile_string(ACCESSOR, tmp_path, check=True)
    x = np.zeros(15, np.float32)
    lib.run("right", x)
    assert x[14] == 1
    with pytest.raises(RuntimeError, match=r"writes out\[3\]\[2\], but out ends at out\[2\]\[4\]"):
        lib.run("dense", x)
    with pytest.raises(RuntimeError, match=r"writes out\[16\], but out ends at out\[14\]"):
        lib.run("gaps", x)
