"""Sums over a tree in shared memory, with a data race between their steps."""

import torch

from helpers.simulator import shared_array, syncthreads, syncwarp, threadIdx
from helpers.tests.proof.broken_kernel import RACE, UNWRITTEN, Broken
from helpers.tests.proof.kernel import integers, unwritten


def sum_kernel(out, inp):
    s = shared_array(128)
    i = threadIdx.x
    s[i] = inp[i]
    syncthreads()  # all are there
    stride = 64
    while stride > 0:
        if i < stride:
            s[i] += s[i + stride]  # fault
        # fix: syncthreads()
        stride //= 2
    if i == 0:
        out[0] = s[0]


SUM = r"""
__global__ void sum_kernel(int* out, const int* inp) {
    __shared__ int s[128];
    int i = threadIdx.x;
    s[i] = inp[i];
    __syncthreads();  // all are there
    for (int stride = 64; stride > 0; stride /= 2) {
        if (i < stride)
            s[i] += s[i + stride];  // fault
        // fix: __syncthreads();
    }
    if (i == 0)
        out[0] = s[0];
}
"""


def first_step_kernel(out, inp):
    s = shared_array(128)
    i = threadIdx.x
    s[i] = inp[i]
    # fix: syncthreads()
    stride = 1
    while stride < 128:
        if i % (2 * stride) == 0:
            s[i] += s[i + stride]  # fault
        syncthreads()  # the step is complete
        stride *= 2
    if i == 0:
        out[0] = s[0]


FIRST_STEP = r"""
__global__ void first_step_kernel(int* out, const int* inp) {
    __shared__ int s[128];
    int i = threadIdx.x;
    s[i] = inp[i];
    // fix: __syncthreads();
    for (int stride = 1; stride < 128; stride *= 2) {
        if (i % (2 * stride) == 0)
            s[i] += s[i + stride];  // fault
        __syncthreads();  // the step is complete
    }
    if (i == 0)
        out[0] = s[0];
}
"""


def warp_sum_kernel(out, inp):
    s = shared_array(32)
    lane = threadIdx.x
    s[lane] = inp[lane]
    syncwarp()  # all are there
    for delta in (16, 8, 4, 2, 1):
        if lane < delta:
            s[lane] += s[lane + delta]  # fault
        # fix: syncwarp()
    if lane == 0:
        out[0] = s[0]


WARP_SUM = r"""
__global__ void warp_sum_kernel(int* out, const int* inp) {
    __shared__ int s[32];
    int lane = threadIdx.x;
    s[lane] = inp[lane];
    __syncwarp();  // all are there
    for (int delta = 16; delta > 0; delta /= 2) {
        if (lane < delta)
            s[lane] += s[lane + delta];  // fault
        // fix: __syncwarp();
    }
    if (lane == 0)
        out[0] = s[0];
}
"""


def _integers(n):
    return lambda random: (unwritten(1, dtype=torch.int32), integers(random, 100, n))


def _sum(_out, inp):
    return inp.sum().int().view(1)


KERNELS = [
    Broken(
        sum_kernel,
        SUM,
        1,
        128,
        _integers(128),
        _sum,
        kind=RACE,
        fault="no barrier between the steps: a warp adds what another has yet to sum",
        element="s[1]",
        threads=(1, 0),
    ),
    Broken(
        first_step_kernel,
        FIRST_STEP,
        1,
        128,
        _integers(128),
        _sum,
        kind=RACE,
        fault="the first step comes before any barrier, and adds what may not be there yet",
        element="s[1]",
        threads=(0,),
        reported=UNWRITTEN,
    ),
    Broken(
        warp_sum_kernel,
        WARP_SUM,
        1,
        32,
        _integers(32),
        _sum,
        kind=RACE,
        fault="lanes of a warp no longer run in step, so each step needs its __syncwarp()",
        element="s[1]",
        threads=(1, 0),
    ),
]
