"""Matrix products and row sums."""

from helpers.simulator import (
    blockDim,
    blockIdx,
    shared_array,
    shfl_down_sync,
    syncthreads,
    threadIdx,
)
from helpers.tests.proof.kernel import Kernel, floats, unwritten

SIDE = 32  # of the matrices that are multiplied
TILE = 16
ROWS, COLS = 128, 64  # of the matrix whose rows are summed


def matmul_naive_kernel(out, A, B, n):
    col = blockIdx.x * TILE + threadIdx.x
    row = blockIdx.y * TILE + threadIdx.y
    acc = 0.0
    for k in range(n):
        acc += A[row * n + k] * B[k * n + col]
    out[row * n + col] = acc


MATMUL_NAIVE = r"""
constexpr int TILE = 16;

__global__ void matmul_naive_kernel(float* out, const float* A, const float* B, int n) {
    int col = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    float acc = 0.0f;
    for (int k = 0; k < n; k++)
        acc += A[row * n + k] * B[k * n + col];
    out[row * n + col] = acc;
}
"""


def matmul_tiled_kernel(out, A, B, n):
    A_tile = shared_array((TILE, TILE))
    B_tile = shared_array((TILE, TILE))
    col = blockIdx.x * TILE + threadIdx.x
    row = blockIdx.y * TILE + threadIdx.y
    acc = 0.0
    for first in range(0, n, TILE):
        A_tile[threadIdx.y, threadIdx.x] = A[row * n + first + threadIdx.x]
        B_tile[threadIdx.y, threadIdx.x] = B[(first + threadIdx.y) * n + col]
        syncthreads()  # both tiles are complete
        for k in range(TILE):
            acc += A_tile[threadIdx.y, k] * B_tile[k, threadIdx.x]
        syncthreads()  # nobody reads the tiles any more
    out[row * n + col] = acc


MATMUL_TILED = r"""
__global__ void matmul_tiled_kernel(float* out, const float* A, const float* B, int n) {
    __shared__ float A_tile[TILE][TILE];
    __shared__ float B_tile[TILE][TILE];
    int col = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    float acc = 0.0f;
    for (int first = 0; first < n; first += TILE) {
        A_tile[threadIdx.y][threadIdx.x] = A[row * n + first + threadIdx.x];
        B_tile[threadIdx.y][threadIdx.x] = B[(first + threadIdx.y) * n + col];
        __syncthreads();  // both tiles are complete
        for (int k = 0; k < TILE; k++)
            acc += A_tile[threadIdx.y][k] * B_tile[k][threadIdx.x];
        __syncthreads();  // nobody reads the tiles any more
    }
    out[row * n + col] = acc;
}
"""


def row_sum_thread_kernel(out, inp, rows, cols):
    row = blockIdx.x * blockDim.x + threadIdx.x
    if row < rows:
        acc = 0.0
        for col in range(cols):
            acc += inp[row * cols + col]
        out[row] = acc


ROW_SUM_THREAD = r"""
__global__ void row_sum_thread_kernel(float* out, const float* inp, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float acc = 0.0f;
        for (int col = 0; col < cols; col++)
            acc += inp[row * cols + col];
        out[row] = acc;
    }
}
"""


def row_sum_warp_kernel(out, inp, rows, cols):
    lane = threadIdx.x % 32
    row = blockIdx.x * (blockDim.x // 32) + threadIdx.x // 32
    if row < rows:
        acc = 0.0
        for col in range(lane, cols, 32):
            acc += inp[row * cols + col]
        offset = 16
        while offset > 0:
            acc += shfl_down_sync(0xFFFFFFFF, acc, offset)
            offset //= 2
        if lane == 0:
            out[row] = acc


ROW_SUM_WARP = r"""
__global__ void row_sum_warp_kernel(float* out, const float* inp, int rows, int cols) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row < rows) {
        float acc = 0.0f;
        for (int col = lane; col < cols; col += 32)
            acc += inp[row * cols + col];
        for (int offset = 16; offset > 0; offset /= 2)
            acc += __shfl_down_sync(0xffffffff, acc, offset);
        if (lane == 0)
            out[row] = acc;
    }
}
"""


def _matrices(random):
    A, B = floats(random, SIDE * SIDE), floats(random, SIDE * SIDE)
    return unwritten(SIDE * SIDE), A, B, SIDE


def _product(_out, A, B, n):
    return (A.view(n, n).double() @ B.view(n, n).double()).view(-1)


def _rows(random):
    return unwritten(ROWS), floats(random, ROWS * COLS), ROWS, COLS


def _row_sums(_out, inp, rows, cols):
    return inp.view(rows, cols).double().sum(1)


GRID = (SIDE // TILE, SIDE // TILE)
KERNELS = [
    Kernel(matmul_naive_kernel, MATMUL_NAIVE, GRID, (TILE, TILE), _matrices, _product),
    Kernel(
        matmul_tiled_kernel,
        MATMUL_TILED,
        GRID,
        (TILE, TILE),
        _matrices,
        _product,
        note="nvcc loads 4 neighbours of A_tile with one LDS.128, which takes 2 wavefronts, not 4",
    ),
    Kernel(row_sum_thread_kernel, ROW_SUM_THREAD, ROWS // 32, 32, _rows, _row_sums),
    Kernel(
        row_sum_warp_kernel,
        ROW_SUM_WARP,
        ROWS // 8,
        256,
        _rows,
        _row_sums,
        note="only lane 0 uses the last sum, so nvcc lets it alone add: 31 FLOPs a warp fewer",
    ),
]
