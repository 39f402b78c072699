"""Kernels that move 16 bytes at a time."""

from helpers.simulator import as_vector, blockDim, blockIdx, shared_array, syncthreads, threadIdx
from helpers.tests.proof.kernel import Kernel, floats, unwritten

N = 4096
GRID, BLOCK = N // 4 // 128, 128


def copy_float4_kernel(out, inp):
    i = blockIdx.x * blockDim.x + threadIdx.x
    as_vector(out, 4)[i] = as_vector(inp, 4)[i]


COPY_FLOAT4 = r"""
__global__ void copy_float4_kernel(float* out, const float* inp) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(inp)[i];
}
"""


def reverse_float4_kernel(out, inp):
    s = as_vector(shared_array(512), 4)
    i = blockIdx.x * blockDim.x + threadIdx.x
    s[threadIdx.x] = as_vector(inp, 4)[i]
    syncthreads()  # s is complete
    as_vector(out, 4)[i] = s[127 - threadIdx.x]


REVERSE_FLOAT4 = r"""
__global__ void reverse_float4_kernel(float* out, const float* inp) {
    __shared__ float4 s[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = reinterpret_cast<const float4*>(inp)[i];
    __syncthreads();  // s is complete
    reinterpret_cast<float4*>(out)[i] = s[127 - threadIdx.x];
}
"""


def float4_stride_2_kernel(out, inp):
    s = as_vector(shared_array(1024), 4)
    i = blockIdx.x * blockDim.x + threadIdx.x
    s[2 * threadIdx.x] = as_vector(inp, 4)[i]
    syncthreads()  # every second element of s is there
    as_vector(out, 4)[i] = s[2 * (127 - threadIdx.x)]


FLOAT4_STRIDE_2 = r"""
__global__ void float4_stride_2_kernel(float* out, const float* inp) {
    __shared__ float4 s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[2 * threadIdx.x] = reinterpret_cast<const float4*>(inp)[i];
    __syncthreads();  // every second element of s is there
    reinterpret_cast<float4*>(out)[i] = s[2 * (127 - threadIdx.x)];
}
"""


def _arguments(random):
    return unwritten(N), floats(random, N)


def _reversed(_out, inp):
    return inp.view(-1, BLOCK, 4).flip(1).reshape(-1)


KERNELS = [
    Kernel(copy_float4_kernel, COPY_FLOAT4, GRID, BLOCK, _arguments, lambda out, inp: inp.clone()),
    Kernel(reverse_float4_kernel, REVERSE_FLOAT4, GRID, BLOCK, _arguments, _reversed),
    Kernel(float4_stride_2_kernel, FLOAT4_STRIDE_2, GRID, BLOCK, _arguments, _reversed),
]
