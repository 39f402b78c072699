"""Kernels with a data race in global memory."""

import torch

from helpers.simulator import atomicAdd, blockDim, blockIdx, gridDim, threadfence, threadIdx
from helpers.tests.proof.broken_kernel import RACE, Broken
from helpers.tests.proof.kernel import floats, integers, unwritten

N = 256


def counter_kernel(count, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n and inp[i] < 50:
        count[0] += 1  # fault; fix: atomicAdd(count, 0, 1)


COUNTER = r"""
__global__ void counter_kernel(int* count, const int* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && inp[i] < 50)
        count[0] += 1;  // fault; fix: atomicAdd(count, 1);
}
"""


def histogram_kernel(hist, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        hist[inp[i]] += 1  # fault; fix: atomicAdd(hist, inp[i], 1)


HISTOGRAM = r"""
__global__ void histogram_kernel(int* hist, const int* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        hist[inp[i]] += 1;  // fault; fix: atomicAdd(&hist[inp[i]], 1);
}
"""


def in_place_kernel(out, x, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if 0 < i < n:
        mean = (x[i - 1] + x[i]) / 2  # other
        x[i] = mean  # fault; fix: out[i] = mean


IN_PLACE = r"""
__global__ void in_place_kernel(float* out, float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (0 < i && i < n) {
        float mean = (x[i - 1] + x[i]) / 2;  // other
        x[i] = mean;  // fault; fix: out[i] = mean;
    }
}
"""


def halo_of_blocks_kernel(out, x):
    i = blockIdx.x  # one thread a block, so that no two of one block race
    left = x[max(i - 1, 0)]  # fault
    x[i] = left  # other; fix: out[i] = left


HALO_OF_BLOCKS = r"""
__global__ void halo_of_blocks_kernel(float* out, float* x) {
    int i = blockIdx.x;  // one thread a block, so that no two of one block race
    float left = x[max(i - 1, 0)];  // fault
    x[i] = left;  // other; fix: out[i] = left;
}
"""


def overlapping_blocks_kernel(out, inp):
    i = blockIdx.x * 32 + threadIdx.x  # fix: i = blockIdx.x * blockDim.x + threadIdx.x
    out[i] = 2 * inp[i]  # fault


OVERLAPPING_BLOCKS = r"""
__global__ void overlapping_blocks_kernel(float* out, const float* inp) {
    int i = blockIdx.x * 32 + threadIdx.x;  // fix: int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2 * inp[i];  // fault
}
"""


def zeroed_kernel(total, inp):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i == 0:
        total[0] = 0  # other; fix: pass
    atomicAdd(total, 0, inp[i])  # fault


ZEROED = r"""
__global__ void zeroed_kernel(int* total, const int* inp) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0)
        total[0] = 0;  // other; fix: {}
    atomicAdd(total, inp[i]);  // fault
}
"""


def last_block_kernel(total, partial, ticket, inp, n):
    acc = 0  # of this block, which has one thread
    for i in range(blockIdx.x, n, gridDim.x):
        acc += inp[i]
    partial[blockIdx.x] = acc  # other
    # fix: threadfence()
    if atomicAdd(ticket, 0, 1) == gridDim.x - 1:
        threadfence()  # the partial sums are read after the ticket
        acc = 0
        for block in range(gridDim.x):
            acc += partial[block]  # fault
        total[0] = acc


LAST_BLOCK = r"""
__global__ void last_block_kernel(int* total, int* partial, int* ticket, const int* inp, int n) {
    int acc = 0;  // of this block, which has one thread
    for (int i = blockIdx.x; i < n; i += gridDim.x)
        acc += inp[i];
    partial[blockIdx.x] = acc;  // other
    // fix: __threadfence();
    if (atomicAdd(ticket, 1) == gridDim.x - 1) {
        __threadfence();  // the partial sums are read after the ticket
        acc = 0;
        for (int block = 0; block < gridDim.x; block++)
            acc += partial[block];  // fault
        total[0] = acc;
    }
}
"""


def _zeros(n):
    return torch.zeros(n, dtype=torch.int32)


def _means(_out, x, _n):
    means = torch.zeros(N)
    means[1:] = (x[:-1] + x[1:]) / 2
    return means


KERNELS = [
    Broken(
        counter_kernel,
        COUNTER,
        2,
        128,
        lambda random: (_zeros(1), integers(random, 100, N), N),
        lambda _count, inp, _n: (inp < 50).sum().int().view(1),
        kind=RACE,
        fault="threads add to one counter without an atomic: of a warp's additions one counts",
        element="count[0]",
        in_block=None,
    ),
    Broken(
        histogram_kernel,
        HISTOGRAM,
        4,
        64,
        lambda random: (_zeros(10), integers(random, 10, N), N),
        lambda _hist, inp, _n: torch.bincount(inp, minlength=10).int(),
        kind=RACE,
        fault="threads that count in one bin overwrite each other's count",
        element="hist[",
        in_block=None,
    ),
    Broken(
        in_place_kernel,
        IN_PLACE,
        4,
        64,
        lambda random: (torch.zeros(N), floats(random, N), N),
        _means,
        kind=RACE,
        fault="a stencil in place: a thread may read its neighbour's new value",
        element="x[",
        in_block=None,
    ),
    Broken(
        halo_of_blocks_kernel,
        HALO_OF_BLOCKS,
        8,
        1,
        lambda random: (unwritten(8), floats(random, 8)),
        lambda _out, x: x[(torch.arange(8) - 1).clamp(0)],
        kind=RACE,
        fault="each block reads the last element of the one before, which that one writes",
        element="x[",
        in_block=None,
    ),
    Broken(
        overlapping_blocks_kernel,
        OVERLAPPING_BLOCKS,
        4,
        64,
        lambda random: (unwritten(N), floats(random, N)),
        lambda _out, inp: 2 * inp,
        kind=RACE,
        fault="blocks of 64 threads start 32 apart: two write each element, the end is left out",
        element="out[",
        in_block=None,
    ),
    Broken(
        zeroed_kernel,
        ZEROED,
        2,
        128,
        lambda random: (_zeros(1), integers(random, 100, N)),
        lambda _total, inp: inp.sum().int().view(1),
        kind=RACE,
        fault="one thread sets the sum to zero, perhaps after others have added to it",
        element="total[0]",
        in_block=None,
    ),
    Broken(
        last_block_kernel,
        LAST_BLOCK,
        8,
        1,
        lambda random: (_zeros(1), _zeros(8), _zeros(1), integers(random, 100, N), N),
        lambda _total, _partial, _ticket, inp, _n: inp.sum().int().view(1),
        kind=RACE,
        fault="no fence: the last block may see the ticket before another block's partial sum",
        element="partial[",
        in_block=None,
    ),
]
