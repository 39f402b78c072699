"""Kernels that pass data through shared memory, with bank conflicts and without."""

import torch

from helpers.simulator import blockDim, blockIdx, shared_array, syncthreads, threadIdx
from helpers.tests.proof.kernel import Kernel, floats, integers, unwritten

SIDE = 128  # of the matrix that is transposed
GRID, BLOCK = (SIDE // 32, SIDE // 32), (32, 32)
N = 4096


def transpose_naive_kernel(out, inp, n):
    col = blockIdx.x * 32 + threadIdx.x
    row = blockIdx.y * 32 + threadIdx.y
    out[col * n + row] = inp[row * n + col]


TRANSPOSE_NAIVE = r"""
__global__ void transpose_naive_kernel(float* out, const float* inp, int n) {
    int col = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    out[col * n + row] = inp[row * n + col];
}
"""


def transpose_tile_kernel(out, inp, n):
    tile = shared_array((32, 32))
    col = blockIdx.x * 32 + threadIdx.x
    row = blockIdx.y * 32 + threadIdx.y
    tile[threadIdx.y, threadIdx.x] = inp[row * n + col]
    syncthreads()  # the tile is complete
    col = blockIdx.y * 32 + threadIdx.x
    row = blockIdx.x * 32 + threadIdx.y
    out[row * n + col] = tile[threadIdx.x, threadIdx.y]


TRANSPOSE_TILE = r"""
__global__ void transpose_tile_kernel(float* out, const float* inp, int n) {
    __shared__ float tile[32][32];
    int col = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = inp[row * n + col];
    __syncthreads();  // the tile is complete
    col = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    out[row * n + col] = tile[threadIdx.x][threadIdx.y];
}
"""


def transpose_padded_kernel(out, inp, n):
    tile = shared_array((32, 33))
    col = blockIdx.x * 32 + threadIdx.x
    row = blockIdx.y * 32 + threadIdx.y
    tile[threadIdx.y, threadIdx.x] = inp[row * n + col]
    syncthreads()  # the tile is complete
    col = blockIdx.y * 32 + threadIdx.x
    row = blockIdx.x * 32 + threadIdx.y
    out[row * n + col] = tile[threadIdx.x, threadIdx.y]


TRANSPOSE_PADDED = TRANSPOSE_TILE.replace("_tile_", "_padded_").replace("[32][32]", "[32][33]")


def transpose_swizzled_kernel(out, inp, n):
    tile = shared_array((32, 32))
    col = blockIdx.x * 32 + threadIdx.x
    row = blockIdx.y * 32 + threadIdx.y
    tile[threadIdx.y, threadIdx.x ^ threadIdx.y] = inp[row * n + col]
    syncthreads()  # the tile is complete
    col = blockIdx.y * 32 + threadIdx.x
    row = blockIdx.x * 32 + threadIdx.y
    out[row * n + col] = tile[threadIdx.x, threadIdx.y ^ threadIdx.x]


TRANSPOSE_SWIZZLED = r"""
__global__ void transpose_swizzled_kernel(float* out, const float* inp, int n) {
    __shared__ float tile[32][32];
    int col = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x ^ threadIdx.y] = inp[row * n + col];
    __syncthreads();  // the tile is complete
    col = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    out[row * n + col] = tile[threadIdx.x][threadIdx.y ^ threadIdx.x];
}
"""


def double_stride_1_kernel(out, inp):
    s = shared_array(256, torch.float64)
    i = blockIdx.x * blockDim.x + threadIdx.x
    s[threadIdx.x] = inp[i]
    syncthreads()  # s is complete
    out[i] = s[255 - threadIdx.x]


DOUBLE_STRIDE_1 = r"""
__global__ void double_stride_1_kernel(double* out, const double* inp) {
    __shared__ double s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = inp[i];
    __syncthreads();  // s is complete
    out[i] = s[255 - threadIdx.x];
}
"""


def double_stride_2_kernel(out, inp):
    s = shared_array(512, torch.float64)
    i = blockIdx.x * blockDim.x + threadIdx.x
    s[2 * threadIdx.x] = inp[i]
    syncthreads()  # every second element of s is there
    out[i] = s[2 * (255 - threadIdx.x)]


DOUBLE_STRIDE_2 = r"""
__global__ void double_stride_2_kernel(double* out, const double* inp) {
    __shared__ double s[512];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[2 * threadIdx.x] = inp[i];
    __syncthreads();  // every second element of s is there
    out[i] = s[2 * (255 - threadIdx.x)];
}
"""


def byte_stride_8_kernel(out, inp):
    s = shared_array(2048, torch.uint8)
    i = blockIdx.x * blockDim.x + threadIdx.x
    s[8 * threadIdx.x] = inp[i]
    syncthreads()  # every eighth byte of s is there
    out[i] = s[8 * (threadIdx.x ^ 1)]


BYTE_STRIDE_8 = r"""
__global__ void byte_stride_8_kernel(uint8_t* out, const uint8_t* inp) {
    __shared__ uint8_t s[2048];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[8 * threadIdx.x] = inp[i];
    __syncthreads();  // every eighth byte of s is there
    out[i] = s[8 * (threadIdx.x ^ 1)];
}
"""


def chunk_sums_kernel(out, inp):
    s = shared_array(8192)
    first = blockIdx.x * 8192
    for k in range(32):
        s[256 * k + threadIdx.x] = inp[first + 256 * k + threadIdx.x]
    syncthreads()  # s is complete
    acc = 0.0
    for k in range(32):
        acc += s[32 * threadIdx.x + k]
    out[blockIdx.x * 256 + threadIdx.x] = acc


CHUNK_SUMS = r"""
__global__ void chunk_sums_kernel(float* out, const float* inp) {
    __shared__ float s[8192];
    int first = blockIdx.x * 8192;
    for (int k = 0; k < 32; k++)
        s[256 * k + threadIdx.x] = inp[first + 256 * k + threadIdx.x];
    __syncthreads();  // s is complete
    float acc = 0.0f;
    #pragma unroll 1  // else nvcc loads four neighbours at once
    for (int k = 0; k < 32; k++)
        acc += s[32 * threadIdx.x + k];
    out[blockIdx.x * 256 + threadIdx.x] = acc;
}
"""


def _transposed(_out, inp, n):
    return inp.view(n, n).T.reshape(-1)


def _reversed_in_blocks(_out, inp):
    return inp.view(-1, 256).flip(1).reshape(-1)


def _matrix(random):
    return unwritten(SIDE * SIDE), floats(random, SIDE * SIDE), SIDE


def _doubles(random):
    return unwritten(N, dtype=torch.float64), floats(random, N).double()


def _bytes(random):
    return unwritten(N, dtype=torch.uint8), integers(random, 256, N).to(torch.uint8)


KERNELS = [
    Kernel(transpose_naive_kernel, TRANSPOSE_NAIVE, GRID, BLOCK, _matrix, _transposed),
    Kernel(transpose_tile_kernel, TRANSPOSE_TILE, GRID, BLOCK, _matrix, _transposed),
    Kernel(transpose_padded_kernel, TRANSPOSE_PADDED, GRID, BLOCK, _matrix, _transposed),
    Kernel(transpose_swizzled_kernel, TRANSPOSE_SWIZZLED, GRID, BLOCK, _matrix, _transposed),
    Kernel(double_stride_1_kernel, DOUBLE_STRIDE_1, 16, 256, _doubles, _reversed_in_blocks),
    Kernel(double_stride_2_kernel, DOUBLE_STRIDE_2, 16, 256, _doubles, _reversed_in_blocks),
    Kernel(
        byte_stride_8_kernel,
        BYTE_STRIDE_8,
        16,
        256,
        _bytes,
        lambda out, inp: inp.view(-1, 2).flip(1).reshape(-1),
    ),
    Kernel(
        chunk_sums_kernel,
        CHUNK_SUMS,
        2,
        256,
        lambda r: (unwritten(512), floats(r, 2 * 8192)),
        lambda out, inp: inp.view(512, 32).double().sum(1),
    ),
]
