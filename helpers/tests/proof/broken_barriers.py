"""Kernels in which not all threads of a block reach a barrier."""

import torch

from helpers.simulator import blockDim, blockIdx, shared_array, syncthreads, threadIdx
from helpers.tests.proof.broken_kernel import BARRIER, Broken
from helpers.tests.proof.kernel import floats, unwritten

N = 100  # one block of 64 threads, and 36 of the next


def barrier_in_if_kernel(out, inp):
    s = shared_array(64)
    i = threadIdx.x
    if i < 40:  # fix: if True:
        s[i] = inp[i]
        syncthreads()  # fault
    if i < 40:
        out[i] = s[39 - i]


BARRIER_IN_IF = r"""
__global__ void barrier_in_if_kernel(float* out, const float* inp) {
    __shared__ float s[64];
    int i = threadIdx.x;
    if (i < 40) {  // fix: {
        s[i] = inp[i];
        __syncthreads();  // fault
    }
    if (i < 40)
        out[i] = s[39 - i];
}
"""


def early_return_kernel(out, inp, n):
    s = shared_array(64)
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i >= n:
        return  # fix: pass
    s[threadIdx.x] = inp[i] if i < n else 0.0
    syncthreads()  # fault
    if i < n:
        out[i] = s[min(threadIdx.x + 1, 63)]


EARLY_RETURN = r"""
__global__ void early_return_kernel(float* out, const float* inp, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;  // fix: {}
    s[threadIdx.x] = i < n ? inp[i] : 0.0f;
    __syncthreads();  // fault
    if (i < n)
        out[i] = s[min(threadIdx.x + 1, 63)];
}
"""


def trip_count_kernel(out, inp, n):
    s = shared_array(64)
    acc = 0.0
    start = threadIdx.x  # fix: start = 0
    while start < n:
        i = start // 64 * 64 + threadIdx.x
        s[threadIdx.x] = inp[i] if i < n else 0.0
        syncthreads()  # fault
        acc += s[63 - threadIdx.x]
        syncthreads()  # the tile is no longer needed
        start += 64
    out[threadIdx.x] = acc


TRIP_COUNT = r"""
__global__ void trip_count_kernel(float* out, const float* inp, int n) {
    __shared__ float s[64];
    float acc = 0.0f;
    int start = threadIdx.x;  // fix: int start = 0;
    while (start < n) {
        int i = start / 64 * 64 + threadIdx.x;
        s[threadIdx.x] = i < n ? inp[i] : 0.0f;
        __syncthreads();  // fault
        acc += s[63 - threadIdx.x];
        __syncthreads();  // the tile is no longer needed
        start += 64;
    }
    out[threadIdx.x] = acc;
}
"""


def two_branches_kernel(out, inp):
    s = shared_array(64)
    i = threadIdx.x
    if i % 2 == 0:  # fix: if blockIdx.x % 2 == 0:
        s[i] = inp[i]
        syncthreads()  # fault
    else:
        s[i] = -inp[i]
        syncthreads()  # other
    out[blockIdx.x * 64 + i] = s[63 - i]


TWO_BRANCHES = r"""
__global__ void two_branches_kernel(float* out, const float* inp) {
    __shared__ float s[64];
    int i = threadIdx.x;
    if (i % 2 == 0) {  // fix: if (blockIdx.x % 2 == 0) {
        s[i] = inp[i];
        __syncthreads();  // fault
    } else {
        s[i] = -inp[i];
        __syncthreads();  // other
    }
    out[blockIdx.x * 64 + i] = s[63 - i];
}
"""


def own_break_kernel(out, inp):
    s = shared_array(64)
    i = threadIdx.x
    s[i] = inp[i]
    for k in range(8):
        syncthreads()  # all values are there
        value = s[(i + 1) % 64]
        if k == i % 4 + 1:  # fix: if k == 4:
            break
        syncthreads()  # fault
        s[i] = value
    out[i] = s[i]


OWN_BREAK = r"""
__global__ void own_break_kernel(float* out, const float* inp) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = inp[i];
    for (int k = 0; k < 8; k++) {
        __syncthreads();  // all values are there
        float value = s[(i + 1) % 64];
        if (k == i % 4 + 1)  // fix: if (k == 4)
            break;
        __syncthreads();  // fault
        s[i] = value;
    }
    out[i] = s[i];
}
"""


def _next_in_block(_out, inp, n):
    padded = torch.zeros(128)
    padded[:n] = inp
    i = torch.arange(n)
    return padded[i // 64 * 64 + (i % 64 + 1).clamp(max=63)]


def _folded(_out, inp, n):
    padded = torch.zeros(128)
    padded[:n] = inp
    return padded.view(2, 64).sum(0).flip(0)


def _tile(random):
    return unwritten(64), floats(random, 64)


KERNELS = [
    Broken(
        barrier_in_if_kernel,
        BARRIER_IN_IF,
        1,
        64,
        lambda random: (unwritten(40), floats(random, 64)),
        lambda _out, inp: inp[:40].flip(0),
        kind=BARRIER,
        fault="a barrier that 24 threads skip: the others may wait for ever, or not at all",
        threads=(0, 40),
    ),
    Broken(
        early_return_kernel,
        EARLY_RETURN,
        2,
        64,
        lambda random: (unwritten(N), floats(random, N), N),
        _next_in_block,
        kind=BARRIER,
        fault="threads beyond the end return before the barrier; since Volta GPUs let it pass",
        in_block=1,
        threads=(0, 36),
    ),
    Broken(
        trip_count_kernel,
        TRIP_COUNT,
        1,
        64,
        lambda random: (unwritten(64), floats(random, N), N),
        _folded,
        kind=BARRIER,
        fault="some threads go round the loop once more than others, and its barrier with them",
        threads=(0, 36),
    ),
    Broken(
        two_branches_kernel,
        TWO_BRANCHES,
        2,
        64,
        lambda random: (unwritten(128), floats(random, 64)),
        lambda _out, inp: torch.cat([inp, -inp]).view(2, 64).flip(1).view(-1),
        kind=BARRIER,
        fault="even and odd threads wait at two barriers, for each other or for ever",
        in_block=None,
        threads=(1,),
    ),
    Broken(
        own_break_kernel,
        OWN_BREAK,
        1,
        64,
        _tile,
        lambda _out, inp: inp.roll(-4),
        kind=BARRIER,
        fault="each thread leaves the loop when it is done itself, and others wait for it",
        threads=(0, 1),
    ),
]
