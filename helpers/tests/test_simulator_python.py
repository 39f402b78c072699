"""What Python can do and CUDA cannot, or does otherwise, is refused or remarked on in a kernel."""

import inspect
import math
import random
import re
import warnings

import numpy as np
import pytest
import torch

from helpers.simulator import (
    HostOnlyError,
    LaunchError,
    SimulatorWarning,
    as_vector,
    blockDim,
    blockIdx,
    launch,
    local_array,
    syncthreads,
    threadIdx,
)
from helpers.simulator.source import Source


def remarks(kernel, *args, block=1):
    """Launch, and return what it warns of, with lines counted from the kernel's `def`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        launch(kernel, 1, block, *args)
    assert {warning.category for warning in caught} <= {SimulatorWarning}
    assert {warning.filename for warning in caught} <= {__file__}
    first = inspect.getsourcelines(kernel)[1]
    texts = [str(warning.message) for warning in caught]
    return [re.sub(r"\bline (\d+)", lambda n: f"line +{int(n[1]) - first}", t) for t in texts]


# ---- division


def test_divisions_of_negative_numbers():
    def dividing_kernel(out):
        i = threadIdx.x - 3
        out[threadIdx.x, 0] = i // 2
        syncthreads()
        out[threadIdx.x, 1] = i % 2
        out[threadIdx.x, 2] = -7.5 % 2

    out = torch.zeros(5, 3)
    assert remarks(dividing_kernel, out, block=5) == [
        "dividing_kernel, line +2: -3 // 2 is -2 in Python, which rounds down, but -1 in CUDA "
        "(block 0, thread 0)",
        "dividing_kernel, line +4: -3 % 2 is 1 in Python, but -1 in CUDA, where a remainder has "
        "the sign of the dividend (block 0, thread 0)",
        "dividing_kernel, line +5: -7.5 % 2 is 0.5 in Python, but -1.5 in CUDA, where a remainder "
        "has the sign of the dividend (block 0, thread 0)",
    ]
    assert out.tolist() == [[i // 2, i % 2, 0.5] for i in range(-3, 2)]


def test_a_remainder_that_is_no_number_is_none_in_both_languages():
    def dividing_kernel(out, values, number):
        i = threadIdx.x
        out[i, 0] = values[i] % 1.0
        out[i, 1] = number % 1.0

    values = torch.tensor([math.nan, -math.inf, math.inf])
    for number in values.tolist():
        out = torch.zeros(3, 2)
        assert remarks(dividing_kernel, out, values, number, block=3) == []
        assert out.isnan().all()


def halved(x):
    x //= 2
    return x


def test_divisions_in_all_kinds_of_places():
    def kernel(seen, n):
        m = n - 9
        m %= 4
        seen.__setitem__(0, halved(-3))
        seen[1] = sum((i - 2) // 2 for i in range(3) if (i - 1) % 2 == 0)
        fold = lambda i: (i - n) // 4  # noqa: E731
        seen[2] = fold(1)
        seen[3] = ((0 - n) // 2 - 1) // 2 + int(f"{n - 9 - 1 // 1 % 5}") % 3
        seen[4] = len("%d of %d" % (0 - n, n))  # noqa: UP031

    seen = torch.zeros(5).long()
    lines = [int(re.search(r"line \+(-?\d+)", remark)[1]) for remark in remarks(kernel, seen, 8)]
    in_halved = inspect.getsourcelines(halved)[1] + 1 - inspect.getsourcelines(kernel)[1]
    assert lines == [2, in_halved, 4, 5, 7]
    assert seen.tolist() == [-2, -1, -2, -2, 7]


def test_random_divisions_are_remarked_on_where_c_differs():
    def kernel(out, a, b):
        out[0] = a // b
        out[1] = a % b

    out = torch.zeros(2).long()
    for _ in range(100):
        a, b = random.randint(-9, 9), random.choice([1, 2, 3, 5, 1.5])
        in_c = int(a / b)
        said = [remark[:16] for remark in remarks(kernel, out, a, b)]
        expected = ["kernel, line +1:"] if isinstance(b, int) and a // b != in_c else []
        expected += ["kernel, line +2:"] if a % b != a - in_c * b else []
        assert said == expected, (a, b)
        assert out.tolist() == [int(a // b), int(a % b)], (a, b)


WIDTH = 4


def test_indices_that_cannot_be_negative_are_left_alone():
    def natural_kernel(out, n):
        i = blockIdx.x * blockDim.x + threadIdx.x
        row, column = i // WIDTH, i % n
        stride = blockDim.x // 2
        while stride > 0:
            stride //= 2
        for k in range(i, n, stride + 1):
            out[(k + 1) % n] = row * column + k // 2

    def other_kernel(out, n):
        n -= 1
        for k in range(n, -1, -1):
            out[k % 2] = 1

    out = torch.zeros(8)
    assert not Source(natural_kernel, {"out": out, "n": 8}).may_be_negative
    assert Source(other_kernel, {"out": out, "n": 8}).may_be_negative
    assert Source(halved).may_be_negative  # who knows what it is called with


# ---- the host's variables and functions


total = 0
table = [0, 0]


def test_a_kernel_writes_only_to_its_arrays():
    def global_kernel(out):
        global total
        total += out[0]

    def nonlocal_kernel(out):
        nonlocal count
        count += 1

    def device_function(i):
        global total
        total = i

    def calling_kernel(out):
        device_function(3)

    def list_kernel(out):
        table[threadIdx.x] += 1

    def inner_kernel(out):
        found = 0

        def find(i):
            nonlocal found
            found += i

        find(2)
        out[0] = found + table[0]

    count, out = 0, torch.zeros(1)
    for kernel, what in (
        (global_kernel, "global total in line +1"),
        (nonlocal_kernel, "nonlocal count in line +1"),
        (calling_kernel, "global total in line -3"),
    ):
        with pytest.raises(HostOnlyError) as caught:
            launch(kernel, 1, 1, out)
        first = inspect.getsourcelines(kernel)[1]
        text = re.sub(r"\bline (\d+)", lambda n: f"line {int(n[1]) - first:+}", str(caught.value))  # noqa: B023
        assert text == (
            f"{kernel.__name__}: {what}: a kernel cannot write to variables of the host, only to "
            "its arrays"
        )
    with pytest.raises(HostOnlyError, match="table in line .* is a list of the host"):
        launch(list_kernel, 1, 1, out)
    launch(inner_kernel, 1, 1, out)
    assert (out.item(), total, count, table) == (2, 0, 0, [0, 0])


def test_functions_of_the_host():
    def torch_kernel(out):
        out[0] = torch.exp(out[0])

    def zeros_kernel(out):
        mine = np.zeros(4)
        out[0] = mine[-1]

    def relu_kernel(out):
        out[0] = torch.nn.functional.relu(out[0])

    def numbers_kernel(out):
        mine = local_array(1, torch.float64)
        mine[0] = np.float32(0.1) + np.sqrt(min(out[0], torch.finfo(torch.float32).max))
        out[0] = mine[0]

    out = torch.ones(1)
    for kernel, name in (
        (torch_kernel, "torch.exp"),
        (zeros_kernel, "np.zeros"),
        (relu_kernel, "torch.nn.functional.relu"),
    ):
        with pytest.raises(HostOnlyError, match=f"{name} in line .* is host code; a kernel has"):
            launch(kernel, 1, 1, out)
    launch(numbers_kernel, 1, 1, out)
    assert out.item() == torch.tensor(1.1).item()


# ---- what does nothing


def test_a_comparison_in_place_of_a_store():
    def comparing_kernel(out):
        out[threadIdx.x] == 1  # noqa: B015

    with pytest.raises(LaunchError) as caught:
        launch(comparing_kernel, 1, 1, torch.zeros(1))
    line = inspect.getsourcelines(comparing_kernel)[1] + 1
    assert str(caught.value) == (
        f"comparing_kernel: out[threadIdx.x] == 1 in line {line} compares and does nothing; "
        "= stores"
    )


def test_an_array_without_its_index_is_assigned_to():
    def sum_kernel(out, inp):
        out = inp[threadIdx.x] + 1  # noqa: F841

    def copy_kernel(out, inp):
        out = inp[threadIdx.x]  # noqa: F841

    def other_names_kernel(out, inp):
        out = as_vector(out, 2)
        inp, out = out, inp
        inp[threadIdx.x] = 1.0, 2.0

        def device(out):
            out = 3
            return out

        out[0] = device(out)

    out, inp = torch.zeros(2, 4)
    for kernel in (sum_kernel, copy_kernel):
        with pytest.raises(LaunchError, match=r"stores nothing: out is an array; out\[i\] = … sto"):
            launch(kernel, 1, 1, out, inp)
    launch(other_names_kernel, 1, 1, out, inp)
    assert (out.tolist(), inp.tolist()) == ([1, 2, 0, 0], [3, 0, 0, 0])
