"""The sum of an array, block by block, with each of the classic faults and without."""

from helpers.simulator import (
    blockDim,
    blockIdx,
    shared_array,
    shfl_down_sync,
    syncthreads,
    threadIdx,
)
from helpers.tests.proof.kernel import Kernel, floats, unwritten

N, BLOCK = 4096, 256


def sum_divergent_kernel(out, inp):
    s = shared_array(256)
    tid = threadIdx.x
    s[tid] = inp[blockIdx.x * blockDim.x + tid]
    syncthreads()  # s is complete
    step = 1
    while step < blockDim.x:
        if tid % (2 * step) == 0:
            s[tid] += s[tid + step]
        syncthreads()  # all sums of this step are there
        step *= 2
    if tid == 0:
        out[blockIdx.x] = s[0]


SUM_DIVERGENT = r"""
__global__ void sum_divergent_kernel(float* out, const float* inp) {
    __shared__ float s[256];
    int tid = threadIdx.x;
    s[tid] = inp[blockIdx.x * blockDim.x + tid];
    __syncthreads();  // s is complete
    for (int step = 1; step < blockDim.x; step *= 2) {
        if (tid % (2 * step) == 0)
            s[tid] += s[tid + step];
        __syncthreads();  // all sums of this step are there
    }
    if (tid == 0)
        out[blockIdx.x] = s[0];
}
"""


def sum_conflicts_kernel(out, inp):
    s = shared_array(256)
    tid = threadIdx.x
    s[tid] = inp[blockIdx.x * blockDim.x + tid]
    syncthreads()  # s is complete
    step = 1
    while step < blockDim.x:
        i = 2 * step * tid
        if i < blockDim.x:
            s[i] += s[i + step]
        syncthreads()  # all sums of this step are there
        step *= 2
    if tid == 0:
        out[blockIdx.x] = s[0]


SUM_CONFLICTS = r"""
__global__ void sum_conflicts_kernel(float* out, const float* inp) {
    __shared__ float s[256];
    int tid = threadIdx.x;
    s[tid] = inp[blockIdx.x * blockDim.x + tid];
    __syncthreads();  // s is complete
    for (int step = 1; step < blockDim.x; step *= 2) {
        int i = 2 * step * tid;
        if (i < blockDim.x)
            s[i] += s[i + step];
        __syncthreads();  // all sums of this step are there
    }
    if (tid == 0)
        out[blockIdx.x] = s[0];
}
"""


def sum_sequential_kernel(out, inp):
    s = shared_array(256)
    tid = threadIdx.x
    s[tid] = inp[blockIdx.x * blockDim.x + tid]
    syncthreads()  # s is complete
    step = blockDim.x // 2
    while step > 0:
        if tid < step:
            s[tid] += s[tid + step]
        syncthreads()  # all sums of this step are there
        step //= 2
    if tid == 0:
        out[blockIdx.x] = s[0]


SUM_SEQUENTIAL = r"""
__global__ void sum_sequential_kernel(float* out, const float* inp) {
    __shared__ float s[256];
    int tid = threadIdx.x;
    s[tid] = inp[blockIdx.x * blockDim.x + tid];
    __syncthreads();  // s is complete
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (tid < step)
            s[tid] += s[tid + step];
        __syncthreads();  // all sums of this step are there
    }
    if (tid == 0)
        out[blockIdx.x] = s[0];
}
"""


def sum_add_first_kernel(out, inp):
    s = shared_array(256)
    tid = threadIdx.x
    i = blockIdx.x * 2 * blockDim.x + tid
    s[tid] = inp[i] + inp[i + blockDim.x]
    syncthreads()  # s is complete
    step = blockDim.x // 2
    while step > 0:
        if tid < step:
            s[tid] += s[tid + step]
        syncthreads()  # all sums of this step are there
        step //= 2
    if tid == 0:
        out[blockIdx.x] = s[0]


SUM_ADD_FIRST = r"""
__global__ void sum_add_first_kernel(float* out, const float* inp) {
    __shared__ float s[256];
    int tid = threadIdx.x;
    int i = blockIdx.x * 2 * blockDim.x + tid;
    s[tid] = inp[i] + inp[i + blockDim.x];
    __syncthreads();  // s is complete
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (tid < step)
            s[tid] += s[tid + step];
        __syncthreads();  // all sums of this step are there
    }
    if (tid == 0)
        out[blockIdx.x] = s[0];
}
"""


def warp_sum(acc):
    offset = 16
    while offset > 0:
        acc += shfl_down_sync(0xFFFFFFFF, acc, offset)
        offset //= 2
    return acc


def sum_shuffles_kernel(out, inp):
    s = shared_array(8)
    tid = threadIdx.x
    acc = warp_sum(inp[blockIdx.x * blockDim.x + tid])
    if tid % 32 == 0:
        s[tid // 32] = acc
    syncthreads()  # every warp's sum is there
    if tid < 32:
        acc = warp_sum(s[tid] if tid < 8 else 0.0)
        if tid == 0:
            out[blockIdx.x] = acc


SUM_SHUFFLES = r"""
__device__ float warp_sum(float acc) {
    for (int offset = 16; offset > 0; offset /= 2)
        acc += __shfl_down_sync(0xffffffff, acc, offset);
    return acc;
}

__global__ void sum_shuffles_kernel(float* out, const float* inp) {
    __shared__ float s[8];
    int tid = threadIdx.x;
    float acc = warp_sum(inp[blockIdx.x * blockDim.x + tid]);
    if (tid % 32 == 0)
        s[tid / 32] = acc;
    __syncthreads();  // every warp's sum is there
    if (tid < 32) {
        acc = warp_sum(tid < 8 ? s[tid] : 0.0f);
        if (tid == 0)
            out[blockIdx.x] = acc;
    }
}
"""


def _arguments(random):
    return unwritten(N // BLOCK), floats(random, N)


def _arguments_of_half_as_many_blocks(random):
    return unwritten(N // BLOCK // 2), floats(random, N)


def _sums(out, inp):
    return inp.view(len(out), -1).double().sum(1)


GRID = N // BLOCK
KERNELS = [
    Kernel(sum_divergent_kernel, SUM_DIVERGENT, GRID, BLOCK, _arguments, _sums),
    Kernel(sum_conflicts_kernel, SUM_CONFLICTS, GRID, BLOCK, _arguments, _sums),
    Kernel(sum_sequential_kernel, SUM_SEQUENTIAL, GRID, BLOCK, _arguments, _sums),
    Kernel(
        sum_add_first_kernel,
        SUM_ADD_FIRST,
        GRID // 2,
        BLOCK,
        _arguments_of_half_as_many_blocks,
        _sums,
    ),
    Kernel(
        sum_shuffles_kernel,
        SUM_SHUFFLES,
        GRID,
        BLOCK,
        _arguments,
        _sums,
        note="only lane 0 uses the last sum, so nvcc lets it alone add: 31 FLOPs a block fewer",
    ),
]
