"""Kernels with a data race in shared memory."""

import torch

from helpers.simulator import blockIdx, shared_array, syncthreads, threadIdx
from helpers.tests.proof.broken_kernel import RACE, UNWRITTEN, Broken
from helpers.tests.proof.kernel import floats, unwritten

SIDE = 8  # of the matrices and tiles
STEPS = 4  # tiles that go through the double buffer


def shift_kernel(out, inp):
    s = shared_array(64)
    i = threadIdx.x
    s[i] = inp[i]  # other
    # fix: syncthreads()
    out[i] = s[max(i - 1, 0)]  # fault


SHIFT = r"""
__global__ void shift_kernel(float* out, const float* inp) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = inp[i];  // other
    // fix: __syncthreads();
    out[i] = s[max(i - 1, 0)];  // fault
}
"""


def reverse_kernel(out, inp):
    s = shared_array(64)
    i = threadIdx.x
    s[i] = inp[i]
    # fix: syncthreads()
    out[i] = s[63 - i]  # fault


REVERSE = r"""
__global__ void reverse_kernel(float* out, const float* inp) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = inp[i];
    // fix: __syncthreads();
    out[i] = s[63 - i];  // fault
}
"""


def matmul_tile_kernel(C, A, B, n):
    A_tile = shared_array((4, 4))
    B_tile = shared_array((4, 4))
    x, y = threadIdx.x, threadIdx.y
    row, col = blockIdx.y * 4 + y, blockIdx.x * 4 + x
    acc = 0.0
    for k in range(0, n, 4):
        A_tile[y, x] = A[row * n + k + x]  # fault
        B_tile[y, x] = B[(k + y) * n + col]
        syncthreads()  # the tiles are complete
        for j in range(4):
            acc += A_tile[y, j] * B_tile[j, x]  # other
        # fix: syncthreads()
    C[row * n + col] = acc


MATMUL_TILE = r"""
__global__ void matmul_tile_kernel(float* C, const float* A, const float* B, int n) {
    __shared__ float A_tile[4][4];
    __shared__ float B_tile[4][4];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 4 + y, col = blockIdx.x * 4 + x;
    float acc = 0.0f;
    for (int k = 0; k < n; k += 4) {
        A_tile[y][x] = A[row * n + k + x];  // fault
        B_tile[y][x] = B[(k + y) * n + col];
        __syncthreads();  // the tiles are complete
        for (int j = 0; j < 4; j++)
            acc += A_tile[y][j] * B_tile[j][x];  // other
        // fix: __syncthreads();
    }
    C[row * n + col] = acc;
}
"""


def neighbour_kernel(out, inp):
    s = shared_array(64)
    i = threadIdx.x
    s[i] = inp[i]
    syncthreads()  # all are there
    value = s[(i + 1) % 64]  # other
    # fix: syncthreads()
    s[i] = value  # fault
    out[i] = s[i]


NEIGHBOUR = r"""
__global__ void neighbour_kernel(float* out, const float* inp) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = inp[i];
    __syncthreads();  // all are there
    float value = s[(i + 1) % 64];  // other
    // fix: __syncthreads();
    s[i] = value;  // fault
    out[i] = s[i];
}
"""


def double_buffer_kernel(out, inp, steps):
    tile = shared_array((2, 64))
    i = threadIdx.x
    acc = 0.0
    tile[0, i] = inp[i]
    syncthreads()  # the first tile is complete
    for k in range(steps):
        if k + 1 < steps:
            tile[(k + 1) % 2, i] = inp[(k + 1) * 64 + i]  # other
        acc += tile[k % 2, 63 - i]  # fault
        if k % 2 == 0:  # fix: if True:
            syncthreads()  # the next tile is complete, this one no longer needed
    out[i] = acc


DOUBLE_BUFFER = r"""
__global__ void double_buffer_kernel(float* out, const float* inp, int steps) {
    __shared__ float tile[2][64];
    int i = threadIdx.x;
    float acc = 0.0f;
    tile[0][i] = inp[i];
    __syncthreads();  // the first tile is complete
    for (int k = 0; k < steps; k++) {
        if (k + 1 < steps)
            tile[(k + 1) % 2][i] = inp[(k + 1) * 64 + i];  // other
        acc += tile[k % 2][63 - i];  // fault
        if (k % 2 == 0)  // fix: if (true)
            __syncthreads();  // the next tile is complete, this one no longer needed
    }
    out[i] = acc;
}
"""


def _tile(random):
    return unwritten(64), floats(random, 64)


def _matrices(random):
    return unwritten(SIDE * SIDE), floats(random, SIDE**2), floats(random, SIDE**2), SIDE


def _tiles(random):
    return unwritten(64), floats(random, STEPS * 64), STEPS


KERNELS = [
    Broken(
        shift_kernel,
        SHIFT,
        1,
        64,
        _tile,
        lambda _out, inp: inp[(torch.arange(64) - 1).clamp(0)],
        kind=RACE,
        fault="no barrier after the load: a thread may read before its neighbour has written",
        element="s[0]",
        threads=(1, 0),
    ),
    Broken(
        reverse_kernel,
        REVERSE,
        1,
        64,
        _tile,
        lambda _out, inp: inp.flip(0),
        kind=RACE,
        fault="no barrier after the load: the first warp reads what the second has yet to write",
        element="s[63]",
        threads=(0,),
        reported=UNWRITTEN,
    ),
    Broken(
        matmul_tile_kernel,
        MATMUL_TILE,
        (2, 2),
        (4, 4),
        _matrices,
        lambda _C, A, B, n: (A.view(n, n) @ B.view(n, n)).view(-1),
        kind=RACE,
        fault="no barrier before the next tiles: a fast thread overwrites what others still read",
        element="A_tile[0, 0]",
        in_block=None,
        threads=((1, 0), (0, 0)),
    ),
    Broken(
        neighbour_kernel,
        NEIGHBOUR,
        1,
        64,
        _tile,
        lambda _out, inp: inp.roll(-1),
        kind=RACE,
        fault="no barrier between reading and writing: some read what has already been replaced",
        element="s[1]",
        threads=(1, 0),
    ),
    Broken(
        double_buffer_kernel,
        DOUBLE_BUFFER,
        1,
        64,
        _tiles,
        lambda _out, inp, steps: inp.view(steps, 64).sum(0).flip(0),
        kind=RACE,
        fault="one barrier in two iterations: a tile is overwritten while others read it",
        element="tile[0, 32]",
        threads=(32, 31),
    ),
]
