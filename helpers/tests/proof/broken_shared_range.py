"""Kernels with an index outside a shared array."""

import torch

from helpers.simulator import shared_array, syncthreads, threadIdx
from helpers.tests.proof.broken_kernel import OUT_OF_RANGE, Broken
from helpers.tests.proof.kernel import floats, unwritten


def halo_kernel(out, inp):
    s = shared_array(64 + 1)  # fix: s = shared_array(64 + 2)
    i = threadIdx.x
    s[i + 1] = inp[i]
    if i == 0:
        s[0] = 0.0
    if i == 63:
        s[i + 2] = 0.0  # fault
    syncthreads()  # the tile and both of its edges are there
    out[i] = s[i] + s[i + 1] + s[i + 2]


HALO = r"""
__global__ void halo_kernel(float* out, const float* inp) {
    __shared__ float s[64 + 1];  // fix: __shared__ float s[64 + 2];
    int i = threadIdx.x;
    s[i + 1] = inp[i];
    if (i == 0)
        s[0] = 0.0f;
    if (i == 63)
        s[i + 2] = 0.0f;  // fault
    __syncthreads();  // the tile and both of its edges are there
    out[i] = s[i] + s[i + 1] + s[i + 2];
}
"""


def shared_overrun_kernel(out, inp):
    s = shared_array(64)  # fix: s = shared_array(128)
    i = threadIdx.x
    s[i] = inp[i]
    s[64 + i] = -inp[i]  # fault
    syncthreads()  # both halves are there
    out[i] = s[i] * s[127 - i]


SHARED_OVERRUN = r"""
__global__ void shared_overrun_kernel(float* out, const float* inp) {
    __shared__ float s[64];  // fix: __shared__ float s[128];
    int i = threadIdx.x;
    s[i] = inp[i];
    s[64 + i] = -inp[i];  // fault
    __syncthreads();  // both halves are there
    out[i] = s[i] * s[127 - i];
}
"""


def beyond_its_row_kernel(out, inp):
    tile = shared_array((8, 8))
    x, y = threadIdx.x, threadIdx.y
    tile[y, x] = inp[y * 8 + x]
    syncthreads()  # the tile is complete
    right = tile[y, x + 1]  # fault; fix: right = tile[y, min(x + 1, 7)]
    out[y * 8 + x] = right - tile[y, x]


BEYOND_ITS_ROW = r"""
__global__ void beyond_its_row_kernel(float* out, const float* inp) {
    __shared__ float tile[8][8];
    int x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = inp[y * 8 + x];
    __syncthreads();  // the tile is complete
    float right = tile[y][x + 1];  // fault; fix: float right = tile[y][min(x + 1, 7)];
    out[y * 8 + x] = right - tile[y][x];
}
"""


def _tile(random):
    return unwritten(64), floats(random, 64)


def _neighbours(_out, inp):
    padded = torch.zeros(66)
    padded[1:65] = inp
    return padded[:-2] + inp + padded[2:]


def _right_differences(_out, inp):
    tile = inp.view(8, 8)
    differences = torch.zeros(8, 8)
    differences[:, :-1] = tile.diff(dim=1)
    return differences.view(-1)


KERNELS = [
    Broken(
        halo_kernel,
        HALO,
        1,
        64,
        _tile,
        _neighbours,
        kind=OUT_OF_RANGE,
        fault="room for one edge, not for two: the write lands in what the block keeps next to it",
        element="s[65]",
        threads=(63,),
    ),
    Broken(
        shared_overrun_kernel,
        SHARED_OVERRUN,
        1,
        64,
        _tile,
        lambda _out, inp: -inp * inp.flip(0),
        kind=OUT_OF_RANGE,
        fault="half of what is written lands in what the block keeps next to the array",
        element="s[64]",
        threads=(0,),
    ),
    Broken(
        beyond_its_row_kernel,
        BEYOND_ITS_ROW,
        1,
        (8, 8),
        _tile,
        _right_differences,
        kind=OUT_OF_RANGE,
        fault="the last column's right neighbour is silently the next row's first element",
        element="tile[0, 8]",
        threads=((7, 0),),
    ),
]
