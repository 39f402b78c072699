"""Whole arrays, and blockIdx without its .x: a kernel neither calculates nor compares with them."""

import operator

import numpy as np
import pytest
import torch

from helpers.simulator import (
    DtypeError,
    HostOnlyError,
    LaunchError,
    OutOfRangeError,
    blockDim,
    blockIdx,
    dim3,
    gridDim,
    launch,
    shared_array,
    syncthreads,
    threadIdx,
)

OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    *(operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor),
    *(operator.matmul, operator.iadd, min, max, range),
]


@pytest.mark.parametrize("operate", OPERATORS)
@pytest.mark.parametrize("number", [3, np.float32(2), np.int64(5)], ids=lambda n: type(n).__name__)
def test_arithmetic_without_the_x(operate, number):
    def left_kernel(out):
        syncthreads()
        if threadIdx.x == 1:
            out[0] = operate(blockDim, number)

    def right_kernel(out):
        if threadIdx.x == 1:
            out[0] = operate(number, blockDim)

    def both_kernel(out):
        if threadIdx.x == 1:
            out[0] = operate(blockDim, blockDim)

    for kernel in (left_kernel, right_kernel, both_kernel):
        if kernel is right_kernel and operate is range and number == 2:
            continue  # Python complains about the float
        with pytest.raises(DtypeError) as caught:
            launch(kernel, 1, 2, torch.zeros(1))
        line = kernel.__code__.co_firstlineno + (3 if kernel is left_kernel else 2)
        assert str(caught.value).startswith(
            f"{kernel.__name__}, line {line}: blockDim has three parts; take one, as in "
            "blockDim.x (block 0, thread 1)\n    out[0] = operate("
        )


@pytest.mark.parametrize("operate", OPERATORS)
def test_arithmetic_on_whole_arrays(operate):
    def left_kernel(out, image):
        out[0] = operate(image, 3)

    def right_kernel(out, image):
        out[0] = operate(np.float32(3), image) if operate is not range else range(3, image)

    def both_kernel(out, image):
        out[0] = operate(image, image)

    def shared_kernel(out, tile):
        tile = shared_array((2, 2))
        out[0] = operate(tile, tile)

    args = torch.zeros(1), torch.ones(2, 3)
    for kernel in (left_kernel, right_kernel, both_kernel, shared_kernel):
        name = kernel.__code__.co_varnames[1]
        with pytest.raises(DtypeError) as caught:
            launch(kernel, 1, 2, *args)
        assert f": {name} is an array; a kernel works on its elements, as in {name}[i, j] (" in (
            str(caught.value)
        )
        assert str(caught.value).startswith(f"{kernel.__name__}, line ")


def test_signs_and_uses_as_a_number():
    def minus_kernel(out, inp):
        out[0] = -inp

    def storing_kernel(out, inp):
        out[0] = threadIdx

    def list_kernel(out, inp):
        out[0] = [1, 2][threadIdx]

    def index_kernel(out, inp):
        out[inp] = 1

    def unpacking_kernel(out, inp):
        x, y, z = threadIdx

    def subscript_kernel(out, inp):
        out[threadIdx[0]] = 1

    def calling_kernel(out, inp):
        out[0] = inp(0)

    def truth_kernel(out, inp):
        out[0] = 1 if inp else 0

    def numpy_kernel(out, inp):
        out[0] = np.sum(inp)

    for kernel, error, what in (
        (minus_kernel, DtypeError, "inp is an array; "),
        (storing_kernel, DtypeError, "(Place); threadIdx has three parts; "),
        (list_kernel, DtypeError, "threadIdx has three parts; "),
        (index_kernel, OutOfRangeError, "out[inp]: inp is an array; "),
        (unpacking_kernel, DtypeError, "threadIdx has three parts; "),
        (subscript_kernel, DtypeError, "threadIdx has three parts; "),
        (calling_kernel, DtypeError, "inp is an array; "),
        (truth_kernel, DtypeError, "inp is an array; "),
        (numpy_kernel, DtypeError, "inp is an array; "),
    ):
        with pytest.raises(error) as caught:
            launch(kernel, 1, 1, torch.zeros(1), torch.zeros(1))
        assert what in str(caught.value)
        assert str(caught.value).startswith(f"{kernel.__name__}, line ")


def test_on_the_host():
    assert threadIdx == threadIdx and threadIdx != blockIdx and threadIdx != (0, 0, 0)
    assert len({threadIdx, blockIdx, threadIdx}) == 2
    with pytest.raises(HostOnlyError, match="^blockIdx: has values only inside a kernel"):
        blockIdx * 2


def test_the_simulator_still_takes_places_and_arrays():
    def asking_kernel(out, inp):
        places = [threadIdx, blockIdx, blockDim, gridDim]
        if inp is not out and out is not None and len(places) == 4 and inp.shape == (3,):
            out[threadIdx.x] = inp[threadIdx.x]

    inp, out = torch.randn(3), torch.zeros(3)
    launch(asking_kernel, dim3(1), 3, out, inp)
    assert out.tolist() == inp.tolist()


# ---- threadIdx and its like are read


def assigning_kernel(out):
    threadIdx.x = 3


def adding_kernel(out):
    blockIdx.y += 1


def looping_kernel(out):
    for gridDim.z in range(3):
        out[0] = 1


def unpacking_kernel(out):
    out[0], blockDim.x = 1, 2


def device_function(i):
    threadIdx.x = i


def calling_kernel(out):
    device_function(3)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (assigning_kernel, "threadIdx.x"),
        (adding_kernel, "blockIdx.y"),
        (looping_kernel, "gridDim.z"),
        (unpacking_kernel, "blockDim.x"),
        (calling_kernel, "threadIdx.x"),
    ],
)
def test_no_kernel_assigns_its_index(kernel, name):
    line = (device_function if kernel is calling_kernel else kernel).__code__.co_firstlineno + 1
    with pytest.raises(LaunchError) as caught:
        launch(kernel, 1, 4, torch.zeros(4))
    assert str(caught.value) == (
        f"{kernel.__name__}: {name} in line {line} is assigned to; a kernel only reads it"
    )


def test_a_variable_of_the_same_name_is_the_kernels_own():
    class Box:
        x = 0

    def shadowing_kernel(out):
        i = threadIdx.x
        blockIdx = Box()
        blockIdx.x = 5
        out[i] = blockIdx.x

    out = torch.zeros(4)
    launch(shadowing_kernel, 1, 4, out)
    assert out.tolist() == [5, 5, 5, 5]
