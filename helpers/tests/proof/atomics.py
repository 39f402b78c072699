"""Kernels in which threads add to the same elements."""

import torch

from helpers.simulator import (
    atomicAdd,
    atomicExch,
    blockDim,
    blockIdx,
    shared_array,
    syncthreads,
    threadIdx,
)
from helpers.tests.proof.kernel import Kernel, floats, integers, unwritten

N, BINS = 4096, 64
GRID, BLOCK = N // 256, 256


def histogram_global_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        atomicAdd(out, inp[i], 1)


HISTOGRAM_GLOBAL = r"""
__global__ void histogram_global_kernel(int* out, const int* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&out[inp[i]], 1);
}
"""


def histogram_shared_kernel(out, inp, n):
    bins = shared_array(64, torch.int32)
    if threadIdx.x < 64:
        bins[threadIdx.x] = 0
    syncthreads()  # all bins are zero
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        atomicAdd(bins, inp[i], 1)
    syncthreads()  # the block has counted
    if threadIdx.x < 64:
        atomicAdd(out, threadIdx.x, bins[threadIdx.x])


HISTOGRAM_SHARED = r"""
__global__ void histogram_shared_kernel(int* out, const int* inp, int n) {
    __shared__ int bins[64];
    if (threadIdx.x < 64)
        bins[threadIdx.x] = 0;
    __syncthreads();  // all bins are zero
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[inp[i]], 1);
    __syncthreads();  // the block has counted
    if (threadIdx.x < 64)
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
"""


def weights_shared_kernel(out, inp, weight, n):
    bins = shared_array(64, torch.int32)
    if threadIdx.x < 64:
        bins[threadIdx.x] = 0
    syncthreads()  # all bins are zero
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        atomicAdd(bins, inp[i], weight[i])
    syncthreads()  # the block has added its weights
    if threadIdx.x < 64:
        atomicAdd(out, threadIdx.x, bins[threadIdx.x])


WEIGHTS_SHARED = r"""
__global__ void weights_shared_kernel(int* out, const int* inp, const int* weight, int n) {
    __shared__ int bins[64];
    if (threadIdx.x < 64)
        bins[threadIdx.x] = 0;
    __syncthreads();  // all bins are zero
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[inp[i]], weight[i]);
    __syncthreads();  // the block has added its weights
    if (threadIdx.x < 64)
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
"""


def count_positive_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n and inp[i] > 0:
        atomicAdd(out, 0, 1)


COUNT_POSITIVE = r"""
__global__ void count_positive_kernel(int* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && inp[i] > 0)
        atomicAdd(&out[0], 1);
}
"""


def fetch_and_add_kernel(out, cells, index, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = atomicAdd(cells, index[i], i)


FETCH_AND_ADD = r"""
__global__ void fetch_and_add_kernel(int* out, int* cells, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = atomicAdd(&cells[index[i]], i);
}
"""


def exchange_kernel(out, cells, index, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = atomicExch(cells, index[i], i)


EXCHANGE = r"""
__global__ void exchange_kernel(int* out, int* cells, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = atomicExch(&cells[index[i]], i);
}
"""


def _values(random):
    return torch.zeros(BINS, dtype=torch.int32), integers(random, BINS, N), N


def _weighted_values(random):
    out, inp, n = _values(random)
    return out, inp, integers(random, 100, N), n


def _histogram(_out, inp, _n):
    return torch.bincount(inp, minlength=BINS).int()


def _permuted_cells(random):
    index = torch.from_numpy(random.permutation(N)).int()
    return unwritten(N, dtype=torch.int32), integers(random, N, N), index, N


def _cells_in_order(_out, cells, index, _n):
    return cells[index.long()]


SCATTERED = (
    "of atomics at scattered addresses the GPU now and then moves a sector twice, one in eight "
    "hundred here, by a rule that is not known"
)
KERNELS = [
    Kernel(histogram_global_kernel, HISTOGRAM_GLOBAL, GRID, BLOCK, _values, _histogram),
    Kernel(
        histogram_shared_kernel,
        HISTOGRAM_SHARED,
        GRID,
        BLOCK,
        _values,
        _histogram,
        note="to add 1, nvcc takes ATOMS.POPC.INC, which adds for all lanes at one address at once",
    ),
    Kernel(
        weights_shared_kernel,
        WEIGHTS_SHARED,
        GRID,
        BLOCK,
        _weighted_values,
        lambda out, inp, weight, n: torch.bincount(inp, weight, minlength=BINS).int(),
    ),
    Kernel(
        count_positive_kernel,
        COUNT_POSITIVE,
        GRID,
        BLOCK,
        lambda r: (torch.zeros(1, dtype=torch.int32), floats(r, N), N),
        lambda out, inp, n: (inp > 0).sum().int().view(1),
        note="all lanes add to one address: nvcc lets one of them add for the whole warp",
    ),
    Kernel(
        fetch_and_add_kernel,
        FETCH_AND_ADD,
        GRID,
        BLOCK,
        _permuted_cells,
        _cells_in_order,
        note=SCATTERED,
    ),
    Kernel(
        exchange_kernel,
        EXCHANGE,
        GRID,
        BLOCK,
        _permuted_cells,
        _cells_in_order,
        note=SCATTERED,
    ),
]
