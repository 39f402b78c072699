"""Kernels that read shared memory which nobody has written."""

import torch

from helpers.simulator import atomicAdd, blockDim, blockIdx, shared_array, syncthreads, threadIdx
from helpers.tests.proof.broken_kernel import UNWRITTEN, Broken
from helpers.tests.proof.kernel import floats, integers, unwritten

N = 100  # one block of 64 threads, and 36 of the next


def one_edge_kernel(out, inp):
    s = shared_array(66)
    i = threadIdx.x
    s[i + 1] = inp[i]
    if i == 0:
        s[0] = inp[63]
    # fix: if i == 63: s[65] = inp[0]
    syncthreads()  # the ring is closed
    out[i] = s[i] + s[i + 2]  # fault


ONE_EDGE = r"""
__global__ void one_edge_kernel(float* out, const float* inp) {
    __shared__ float s[66];
    int i = threadIdx.x;
    s[i + 1] = inp[i];
    if (i == 0)
        s[0] = inp[63];
    // fix: if (i == 63) s[65] = inp[0];
    __syncthreads();  // the ring is closed
    out[i] = s[i] + s[i + 2];  // fault
}
"""


def part_of_tile_kernel(out, inp):
    tile = shared_array((8, 8))
    x, y = threadIdx.x, threadIdx.y  # 8 × 4 threads
    for row in range(y, 4, 4):  # fix: for row in range(y, 8, 4):
        tile[row, x] = inp[row * 8 + x]
    syncthreads()  # the tile is complete
    for row in range(y, 8, 4):
        out[row * 8 + x] = tile[x, row]  # fault


PART_OF_TILE = r"""
__global__ void part_of_tile_kernel(float* out, const float* inp) {
    __shared__ float tile[8][8];
    int x = threadIdx.x, y = threadIdx.y;  // 8 x 4 threads
    for (int row = y; row < 4; row += 4)  // fix: for (int row = y; row < 8; row += 4)
        tile[row][x] = inp[row * 8 + x];
    __syncthreads();  // the tile is complete
    for (int row = y; row < 8; row += 4)
        out[row * 8 + x] = tile[x][row];  // fault
}
"""


def not_zeroed_kernel(out, inp):
    total = shared_array(1, torch.int32)
    # fix: if threadIdx.x == 0: total[0] = 0
    syncthreads()  # the sum begins at zero
    total_before = atomicAdd(total, 0, inp[threadIdx.x])  # fault
    syncthreads()  # all have added
    if total_before == 0:
        out[0] = total[0]


NOT_ZEROED = r"""
__global__ void not_zeroed_kernel(int* out, const int* inp) {
    __shared__ int total;
    // fix: if (threadIdx.x == 0) total = 0;
    __syncthreads();  // the sum begins at zero
    int total_before = atomicAdd(&total, inp[threadIdx.x]);  // fault
    __syncthreads();  // all have added
    if (total_before == 0)
        out[0] = total;
}
"""


def tail_kernel(out, inp, n):
    s = shared_array(64, torch.int32)
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        s[threadIdx.x] = inp[i]
    # fix: if i >= n: s[threadIdx.x] = 0
    syncthreads()  # the tile is complete
    if threadIdx.x == 0:
        acc = 0
        for k in range(64):
            acc += s[k]  # fault
        out[blockIdx.x] = acc


TAIL = r"""
__global__ void tail_kernel(int* out, const int* inp, int n) {
    __shared__ int s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        s[threadIdx.x] = inp[i];
    // fix: if (i >= n) s[threadIdx.x] = 0;
    __syncthreads();  // the tile is complete
    if (threadIdx.x == 0) {
        int acc = 0;
        for (int k = 0; k < 64; k++)
            acc += s[k];  // fault
        out[blockIdx.x] = acc;
    }
}
"""


def _block_sums(_out, inp, n):
    return torch.stack([inp[:64].sum(), inp[64:n].sum()]).int()


def _tile(random):
    return unwritten(64), floats(random, 64)


KERNELS = [
    Broken(
        one_edge_kernel,
        ONE_EDGE,
        1,
        64,
        _tile,
        lambda _out, inp: inp.roll(1) + inp.roll(-1),
        kind=UNWRITTEN,
        fault="the tile's right edge is never filled: its value is what a block before left there",
        element="s[65]",
        threads=(63,),
    ),
    Broken(
        part_of_tile_kernel,
        PART_OF_TILE,
        1,
        (8, 4),
        _tile,
        lambda _out, inp: inp.view(8, 8).T.reshape(-1),
        kind=UNWRITTEN,
        fault="a block of 8 × 4 threads fills half of an 8 × 8 tile",
        element="tile[4, 0]",
        threads=((4, 0),),
    ),
    Broken(
        not_zeroed_kernel,
        NOT_ZEROED,
        1,
        64,
        lambda random: (unwritten(1, dtype=torch.int32), 1 + integers(random, 100, 64)),
        lambda _out, inp: inp.sum().int().view(1),
        kind=UNWRITTEN,
        fault="the sum begins at what was left in shared memory, not at zero",
        element="total",
        threads=(0,),
    ),
    Broken(
        tail_kernel,
        TAIL,
        2,
        64,
        lambda random: (unwritten(2, dtype=torch.int32), integers(random, 100, N), N),
        _block_sums,
        kind=UNWRITTEN,
        fault="the last block adds up elements that it did not load",
        element="s[36]",
        in_block=1,
        threads=(0,),
    ),
]
