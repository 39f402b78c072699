"""Kernels that read and write global memory in good and bad patterns."""

import torch

from helpers.simulator import blockDim, blockIdx, local_array, threadIdx
from helpers.tests.proof.kernel import Kernel, floats, integers, unwritten

N = 4096
GRID, BLOCK = N // 256, 256


def copy_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[i]


COPY = r"""
__global__ void copy_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = inp[i];
}
"""


def misaligned_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[i]


MISALIGNED = COPY.replace("copy_kernel", "misaligned_kernel")


def stride_2_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[2 * i]


STRIDE_2 = r"""
__global__ void stride_2_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = inp[2 * i];
}
"""


def stride_32_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[32 * i] = inp[i]


STRIDE_32 = r"""
__global__ void stride_32_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[32 * i] = inp[i];
}
"""


def reverse_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[n - 1 - i]


REVERSE = r"""
__global__ void reverse_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = inp[n - 1 - i];
}
"""


def broadcast_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[blockIdx.x]


BROADCAST = r"""
__global__ void broadcast_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = inp[blockIdx.x];
}
"""


def gather_kernel(out, inp, index, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[index[i]]


GATHER = r"""
__global__ void gather_kernel(float* out, const float* inp, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = inp[index[i]];
}
"""


def gray_kernel(out, image, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        r, g, b = image[3 * i], image[3 * i + 1], image[3 * i + 2]
        out[i] = (299 * r + 587 * g + 114 * b + 500) // 1000


GRAY = r"""
__global__ void gray_kernel(uint8_t* out, const uint8_t* image, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int r = image[3 * i], g = image[3 * i + 1], b = image[3 * i + 2];
        out[i] = (299 * r + 587 * g + 114 * b + 500) / 1000;
    }
}
"""


def gray_of(_out, image, _n):
    """Return the gray image of (n, 3) bytes."""
    red, green, blue = image.view(-1, 3).int().unbind(1)
    return ((299 * red + 587 * green + 114 * blue + 500) // 1000).to(torch.uint8)


def array_of_structs_kernel(out, points, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = points[4 * i] + points[4 * i + 1] * points[4 * i + 2]


ARRAY_OF_STRUCTS = r"""
__global__ void array_of_structs_kernel(float* out, const float* points, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = points[4 * i] + points[4 * i + 1] * points[4 * i + 2];
}
"""


def struct_of_arrays_kernel(out, points, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = points[i] + points[n + i] * points[2 * n + i]


STRUCT_OF_ARRAYS = r"""
__global__ void struct_of_arrays_kernel(float* out, const float* points, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = points[i] + points[n + i] * points[2 * n + i];
}
"""


def flip_columns_kernel(out, inp, n):
    column = local_array(64)
    i = blockIdx.x * blockDim.x + threadIdx.x
    for k in range(64):
        column[k] = inp[k * n + i]
    for k in range(64):
        out[k * n + i] = column[63 - k]


FLIP_COLUMNS = r"""
__global__ void flip_columns_kernel(float* out, const float* inp, int n) {
    float column[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 64; k++)
        column[k] = inp[k * n + i];
    for (int k = 0; k < 64; k++)
        out[k * n + i] = column[63 - k];
}
"""


def _copied(_out, inp, n):
    return inp[:n].clone()


def _spread(out, inp, n):
    spread = out.clone()
    spread[: 32 * n : 32] = inp[:n]
    return spread


KERNELS = [
    Kernel(copy_kernel, COPY, GRID, BLOCK, lambda r: (unwritten(N), floats(r, N), N), _copied),
    Kernel(
        misaligned_kernel,
        MISALIGNED,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, N + 1)[1:], N),
        _copied,
    ),
    Kernel(
        stride_2_kernel,
        STRIDE_2,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 2 * N), N),
        lambda out, inp, n: inp[::2].clone(),
    ),
    Kernel(
        stride_32_kernel,
        STRIDE_32,
        GRID,
        BLOCK,
        lambda r: (torch.zeros(32 * N), floats(r, N), N),
        _spread,
    ),
    Kernel(
        reverse_kernel,
        REVERSE,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, N), N),
        lambda out, inp, n: inp.flip(0),
    ),
    Kernel(
        broadcast_kernel,
        BROADCAST,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, GRID), N),
        lambda out, inp, n: inp.repeat_interleave(BLOCK),
    ),
    Kernel(
        gather_kernel,
        GATHER,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, N), integers(r, N, N), N),
        lambda out, inp, index, n: inp[index.long()],
    ),
    Kernel(
        gray_kernel,
        GRAY,
        GRID,
        BLOCK,
        lambda r: (unwritten(N, dtype=torch.uint8), integers(r, 256, 3 * N).to(torch.uint8), N),
        gray_of,
    ),
    Kernel(
        array_of_structs_kernel,
        ARRAY_OF_STRUCTS,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 4 * N), N),
        lambda out, points, n: points[::4] + points[1::4] * points[2::4],
    ),
    Kernel(
        struct_of_arrays_kernel,
        STRUCT_OF_ARRAYS,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 3 * N), N),
        lambda out, points, n: points[:n] + points[n : 2 * n] * points[2 * n :],
    ),
    Kernel(
        flip_columns_kernel,
        FLIP_COLUMNS,
        4,
        64,
        lambda r: (unwritten(64 * 256), floats(r, 64 * 256), 256),
        lambda out, inp, n: inp.view(64, n).flip(0).reshape(-1),
    ),
]
