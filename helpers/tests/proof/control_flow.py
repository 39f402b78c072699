"""Kernels whose lanes go different ways, and loads that nvcc moves."""

import torch

from helpers.simulator import blockDim, blockIdx, threadIdx
from helpers.tests.proof.kernel import Kernel, floats, unwritten

N = 4096
GRID, BLOCK = N // 256, 256


def even_odd_kernel(out, a, b, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i % 2 == 0:
        out[i] = a[i // 2]
    else:
        for k in range(3):
            out[k * n + i] = b[k * n + i]


EVEN_ODD = r"""
__global__ void even_odd_kernel(float* out, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 2 == 0)
        out[i] = a[i / 2];
    else
        for (int k = 0; k < 3; k++)
            out[k * n + i] = b[k * n + i];
}
"""


def even_odd_of(out, a, b, n):
    """Return what even_odd_kernel leaves in `out`."""
    result = out.clone()
    result[:n:2] = a
    result.view(3, n)[:, 1::2] = b.view(3, n)[:, 1::2]
    return result


def alternating_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    acc = 0.0
    for k in range(6):
        if (i + k) % 2 == 0:
            acc += inp[k * n + i]
    out[i] = acc


ALTERNATING = r"""
__global__ void alternating_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0.0f;
    for (int k = 0; k < 6; k++)
        if ((i + k) % 2 == 0)
            acc += inp[k * n + i];
    out[i] = acc;
}
"""


def alternating_of(_out, inp, n):
    """Return the sums of every second term."""
    i, k = torch.arange(n), torch.arange(6)[:, None]
    return torch.where((i + k) % 2 == 0, inp.view(6, n).double(), 0).sum(0).float()


def uneven_loop_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    acc = 0.0
    for k in range(i % 5):
        acc += inp[k * n + i]
    out[i] = acc


UNEVEN_LOOP = r"""
__global__ void uneven_loop_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0.0f;
    #pragma unroll 1
    for (int k = 0; k < i % 5; k++)
        acc += inp[k * n + i];
    out[i] = acc;
}
"""


def uneven_unrolled_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    acc = 0.0
    for k in range(i % 5):
        acc += inp[k * n + i]
    out[i] = acc


UNEVEN_UNROLLED = UNEVEN_LOOP.replace("_loop_", "_unrolled_").replace("    #pragma unroll 1\n", "")


def uneven_loop_of(_out, inp, n):
    """Return the sums of as many terms as each thread takes."""
    i, k = torch.arange(n), torch.arange(4)[:, None]
    return torch.where(k < i % 5, inp.view(4, n).double(), 0).sum(0).float()


def early_return_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i >= n:
        return
    out[i] = 2 * inp[i]


EARLY_RETURN = r"""
__global__ void early_return_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    out[i] = 2 * inp[i];
}
"""


def invariant_load_kernel(out, inp, scale, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    acc = 0.0
    for k in range(4):
        acc += inp[k * n + i] * scale[i]
    out[i] = acc


INVARIANT_LOAD = r"""
__global__ void invariant_load_kernel(float* out, const float* inp, const float* scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0.0f;
    for (int k = 0; k < 4; k++)
        acc += inp[k * n + i] * scale[i];
    out[i] = acc;
}
"""


KERNELS = [
    Kernel(
        even_odd_kernel,
        EVEN_ODD,
        GRID,
        BLOCK,
        lambda r: (torch.zeros(3 * N), floats(r, N // 2), floats(r, 3 * N), N),
        even_odd_of,
    ),
    Kernel(
        alternating_kernel,
        ALTERNATING,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 6 * N), N),
        alternating_of,
    ),
    Kernel(
        uneven_loop_kernel,
        UNEVEN_LOOP,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 4 * N), N),
        uneven_loop_of,
    ),
    Kernel(
        uneven_unrolled_kernel,
        UNEVEN_UNROLLED,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 4 * N), N),
        uneven_loop_of,
        note="nvcc takes 4 iterations at a time, then 2, then 1; lanes that go different ways "
        "through these do not load together, or load different k together",
    ),
    Kernel(
        early_return_kernel,
        EARLY_RETURN,
        5,
        192,  # the last block's warps: one whole, one of 21 lanes, four with none
        lambda r: (unwritten(821), floats(r, 821), 821),
        lambda out, inp, n: 2 * inp,
    ),
    Kernel(
        invariant_load_kernel,
        INVARIANT_LOAD,
        GRID,
        BLOCK,
        lambda r: (unwritten(N), floats(r, 4 * N), floats(r, N), N),
        lambda out, inp, scale, n: inp.view(4, n).double().sum(0).mul(scale).float(),
        note="scale[i] does not depend on k: nvcc loads it once, not in each of 4 iterations",
    ),
]
