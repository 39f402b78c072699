"""Kernels in which threads add to the same elements."""

import torch

from helpers.proof.kernel import Kernel, floats, integers, unwritten
from helpers.simulator import (
    atomicAdd,
    atomicExch,
    blockDim,
    blockIdx,
    shared_array,
    syncthreads,
    threadIdx,
)

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


def _cells(random):
    index = torch.from_numpy(random.permutation(N)).int()
    return unwritten(N, dtype=torch.int32), integers(random, N, N), index, N


def _histogram(_out, inp, _n):
    return torch.bincount(inp, minlength=BINS).int()


KERNELS = [
    Kernel(histogram_global_kernel, HISTOGRAM_GLOBAL, GRID, BLOCK, _values, _histogram),
    Kernel(histogram_shared_kernel, HISTOGRAM_SHARED, GRID, BLOCK, _values, _histogram),
    Kernel(
        count_positive_kernel,
        COUNT_POSITIVE,
        GRID,
        BLOCK,
        lambda r: (torch.zeros(1, dtype=torch.int32), floats(r, N), N),
        lambda out, inp, n: (inp > 0).sum().int().view(1),
    ),
    Kernel(
        exchange_kernel,
        EXCHANGE,
        GRID,
        BLOCK,
        _cells,
        lambda out, cells, index, n: cells[index.long()],
    ),
]
