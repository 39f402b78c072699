"""as_vector: two or four elements in one access, as CUDA's float4."""

import pytest
import torch

from helpers.simulator import (
    DtypeError,
    OutOfRangeError,
    RaceError,
    UninitializedError,
    as_vector,
    atomicAdd,
    blockDim,
    blockIdx,
    launch,
    local_array,
    shared_array,
    syncthreads,
    threadIdx,
)
from helpers.trace.from_simulator import record


def scale_kernel(out, inp, width):
    out_v, inp_v = as_vector(out, width), as_vector(inp, width)
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < len(inp_v):
        out_v[i] = [2 * value for value in inp_v[i]]


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16, torch.uint8], ids=str)
def test_vectors_of_a_row(width, dtype):
    inp = torch.randint(0, 100, (400,)).to(dtype)
    out = torch.zeros_like(inp)
    launch(scale_kernel, 4, 64, out, inp, width)
    assert torch.equal(out, 2 * inp)


def test_the_last_dimension_of_a_matrix():
    def rows_kernel(out, inp):
        inp4 = as_vector(inp, 4)
        assert inp4.shape == (3, 2) and inp4.size == 6 and len(inp4) == 3
        a, b, c, d = inp4[threadIdx.y, threadIdx.x]
        out[threadIdx.y, threadIdx.x] = a + 10 * b + 100 * c + 1000 * d

    inp, out = torch.randint(10, (3, 8)), torch.zeros(3, 2).long()
    launch(rows_kernel, 1, (2, 3), out, inp.int())
    assert torch.equal(out, (inp.view(3, 2, 4) * torch.tensor([1, 10, 100, 1000])).sum(-1))


def test_shared_and_local_arrays():
    def reverse_kernel(out, inp):
        s = shared_array(256)
        mine = local_array(4)
        s4, mine4, inp4, out4 = (as_vector(array, 4) for array in (s, mine, inp, out))
        mine4[0] = inp4[threadIdx.x]
        s4[threadIdx.x] = mine4[0]
        syncthreads()
        out4[threadIdx.x] = s4[63 - threadIdx.x]

    inp, out = torch.randn(256), torch.zeros(256)
    launched = record(reverse_kernel, 1, 64, out, inp)
    assert torch.equal(out.view(64, 4), inp.view(64, 4).flip(0))
    found = {(a.array, a.operation): a for a in launched.accesses}
    assert {a.bytes for a in found.values()} == {16}
    assert {a.requests for a in found.values()} == {2}
    assert found["inp", "load"].sectors == found["inp", "load"].ideal_sectors == 32
    assert found["s", "store"].wavefronts == found["s", "store"].ideal_wavefronts == 8
    assert found["inp", "load"].samples[1].offsets == tuple(range(512, 1024, 16))


@pytest.mark.parametrize(
    ("shape", "offset", "width", "complaint"),
    [
        ((6,), 0, 4, "inp has shape (6,), no multiple of 4 in a row"),
        ((4, 6), 0, 4, "inp has shape (4, 6), no multiple of 4 in a row"),
        ((8,), 1, 4, "inp begins 4 bytes into its storage: misaligned for vectors of 16 bytes"),
        ((6,), 0, 3, "3 elements of out are no vector: 2 or 4 elements, at most 16 bytes"),
    ],
)
def test_what_is_no_vector(shape, offset, width, complaint):
    inp = torch.zeros(100)[offset : offset + torch.Size(shape).numel()].view(shape)
    with pytest.raises(DtypeError) as caught:
        launch(scale_kernel, 1, 1, torch.zeros(8), inp, width)
    assert complaint in str(caught.value)


def test_four_doubles_are_too_large():
    with pytest.raises(DtypeError, match="4 elements of out are no vector"):
        launch(scale_kernel, 1, 1, torch.zeros(8).double(), torch.zeros(8), 4)


def test_faults_name_the_vector_or_the_element():
    def out_of_range_kernel(x):
        x4 = as_vector(x, 4)
        x4[threadIdx.x] = 1, 2, 3, 4

    def wrong_length_kernel(x):
        x4 = as_vector(x, 4)
        x4[threadIdx.x] = 1, 2, 3

    def atomic_kernel(x):
        x4 = as_vector(x, 4)
        atomicAdd(x4, threadIdx.x, 1)

    def racing_kernel(x):
        x4 = as_vector(x, 4)
        if threadIdx.x == 0:
            x[6] = 1
        else:
            x4[1] = 1, 2, 3, 4

    def undefined_kernel(x):
        s = shared_array(8)
        s4 = as_vector(s, 4)
        s[0] = s[1] = s[2] = 1
        x[0] = sum(s4[0])

    for kernel, error, complaint in (
        (out_of_range_kernel, OutOfRangeError, r"x4\[2\] is out of range, shape \(2,\)"),
        (wrong_length_kernel, DtypeError, r"x4 holds vectors of 4, it cannot store \(1, 2, 3\)"),
        (atomic_kernel, DtypeError, r"x4\[0\] is a vector; atomics take a number"),
        (racing_kernel, RaceError, r"x\[6\] is written by thread 1 and was written by thread 0"),
        (undefined_kernel, UninitializedError, r"s\[3\] is read before anybody has written it"),
    ):
        with pytest.raises(error, match=complaint):
            launch(kernel, 1, 3, torch.zeros(8))
