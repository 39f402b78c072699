"""Kernels in which a warp operation's mask does not name the lanes that come."""

import torch

from helpers.simulator import (
    ballot_sync,
    shfl_down_sync,
    shfl_xor_sync,
    syncthreads,
    syncwarp,
    threadIdx,
)
from helpers.tests.proof.broken_kernel import WARP, Broken
from helpers.tests.proof.kernel import floats, integers, unwritten


def shuffle_in_branch_kernel(out, inp):
    i = threadIdx.x
    value = inp[i]
    if i < 16:
        mask = 0xFFFFFFFF  # fix: mask = 0x0000FFFF
        value += shfl_xor_sync(mask, value, 8)  # fault
    syncthreads()
    out[i] = value


SHUFFLE_IN_BRANCH = r"""
__global__ void shuffle_in_branch_kernel(float* out, const float* inp) {
    int i = threadIdx.x;
    float value = inp[i];
    if (i < 16) {
        unsigned mask = 0xFFFFFFFF;  // fix: unsigned mask = 0x0000FFFF;
        value += __shfl_xor_sync(mask, value, 8);  // fault
    }
    __syncthreads();
    out[i] = value;
}
"""


def shuffle_from_left_kernel(out, inp, n):
    i = threadIdx.x
    if i >= n:
        return  # fix: pass
    value = inp[i] if i < n else 0.0
    right = shfl_down_sync(0xFFFFFFFF, value, 1)  # fault
    if i < n:
        out[i] = right - value


SHUFFLE_FROM_LEFT = r"""
__global__ void shuffle_from_left_kernel(float* out, const float* inp, int n) {
    int i = threadIdx.x;
    if (i >= n)
        return;  // fix: {}
    float value = i < n ? inp[i] : 0.0f;
    float right = __shfl_down_sync(0xFFFFFFFF, value, 1);  // fault
    if (i < n)
        out[i] = right - value;
}
"""


def mask_without_self_kernel(out, inp):
    i = threadIdx.x
    mask = 0x0000FFFF  # fix: mask = 0xFFFFFFFF
    votes = ballot_sync(mask, inp[i] > 50)  # fault
    out[i] = votes >> i & 1


MASK_WITHOUT_SELF = r"""
__global__ void mask_without_self_kernel(int* out, const int* inp) {
    int i = threadIdx.x;
    unsigned mask = 0x0000FFFF;  // fix: unsigned mask = 0xFFFFFFFF;
    unsigned votes = __ballot_sync(mask, inp[i] > 50);  // fault
    out[i] = votes >> i & 1;
}
"""


def syncwarp_in_branch_kernel(out, inp):
    i = threadIdx.x
    value = inp[i]
    if i % 2 == 0:
        value *= 2
        syncwarp(0xFFFFFFFF)  # fault; fix: syncwarp(0x55555555)
    syncthreads()
    out[i] = value


SYNCWARP_IN_BRANCH = r"""
__global__ void syncwarp_in_branch_kernel(float* out, const float* inp) {
    int i = threadIdx.x;
    float value = inp[i];
    if (i % 2 == 0) {
        value *= 2;
        __syncwarp(0xFFFFFFFF);  // fault; fix: __syncwarp(0x55555555);
    }
    __syncthreads();
    out[i] = value;
}
"""


def _pairs_of_16(_out, inp):
    out = inp.clone()
    out[:16] += inp[:16].view(2, 8).flip(0).view(-1)
    return out


def _tile(random):
    return unwritten(32), floats(random, 32)


KERNELS = [
    Broken(
        shuffle_in_branch_kernel,
        SHUFFLE_IN_BRANCH,
        1,
        32,
        _tile,
        _pairs_of_16,
        kind=WARP,
        fault="the mask names all lanes, half of them are not in the branch: undefined, or a hang",
        threads=(0, 16),
    ),
    Broken(
        shuffle_from_left_kernel,
        SHUFFLE_FROM_LEFT,
        1,
        32,
        lambda random: (unwritten(20), floats(random, 20), 20),
        lambda _out, inp, _n: torch.cat([inp[1:], inp.new_zeros(1)]) - inp,
        kind=WARP,
        fault="the last lane shuffles with one that has returned, and gets anything",
        threads=(19, 20),
    ),
    Broken(
        mask_without_self_kernel,
        MASK_WITHOUT_SELF,
        1,
        32,
        lambda random: (unwritten(32, dtype=torch.int32), integers(random, 100, 32)),
        lambda _out, inp: (inp > 50).int(),
        kind=WARP,
        fault="all lanes vote, the mask names half of them: what they get is undefined",
        threads=(16,),
    ),
    Broken(
        syncwarp_in_branch_kernel,
        SYNCWARP_IN_BRANCH,
        1,
        32,
        _tile,
        lambda _out, inp: inp * (2 - torch.arange(32) % 2),
        kind=WARP,
        fault="half of the lanes wait for the other half, which does not come here",
        threads=(0, 1),
    ),
]
