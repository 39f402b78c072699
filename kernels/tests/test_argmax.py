"""argmax: what it promises (see contract.py), ties, NaN, infinities, half types, views."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats

SHAPES = [(6, 8), (1,), (3,), (2047,), (8192,), (8193,), (823, 781), (3, 5, 7, 11), ()]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

CASES = [
    Case(
        "argmax",
        lambda *shape: {"inp": floats(*shape)},
        torch.argmax,
        SHAPES,
        ragged=[("inp", lambda arguments: floats(0)), ("inp", lambda arguments: floats(3, 0))],
        dtypes=DTYPES[1:],
    ),
]


@pytest.fixture
def argmax(kernel):
    return kernel("argmax").argmax


def same_as_torch(argmax, inp, *about):
    """Compare with PyTorch on the CPU, which takes the first of equal elements, and of NaNs."""
    out = argmax(inp)
    assert out.dtype == torch.int64 and out.shape == ()
    assert out.item() == inp.cpu().argmax().item(), about


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_equal_ones_the_first(argmax, dtype):
    for values in (1, 2, 5, 100):
        for n in (1, 2, 9, 1000, 16_385, 100_003):
            inp = torch.randint(values, (n,), device=DEVICE).to(dtype)
            same_as_torch(argmax, inp, values, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_that_start_and_end_anywhere(argmax, dtype):
    inp = torch.randint(50, (5000,), device=DEVICE).to(dtype)
    for start in range(9):
        for n in (1, 2, 5, 15, 16, 17, 1000, 4099):
            same_as_torch(argmax, inp[start:][:n], start, n)


def test_the_largest_at_every_kind_of_place(argmax):
    inp = torch.rand(20_003, device=DEVICE)[1:]
    for i in (*range(20), *range(8180, 8200), *range(16_370, 16_400), *range(19_990, 20_002)):
        before, inp[i] = inp[i].item(), 2
        assert argmax(inp).item() == i
        inp[i] = before


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_above_all_and_the_first_of_them(argmax, dtype):
    inp = torch.randn(20_000, device=DEVICE).to(dtype)
    inp[7] = torch.inf
    for i in (19_999, 12_345, 8192, 5, 0):
        inp[i] = torch.nan
        assert argmax(inp).item() == i
        assert argmax(inp[:9000]).item() == (i if i < 9000 else 7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities(argmax, dtype):
    for n in (1, 3, 8, 9, 20_000):
        low = torch.full((n,), -torch.inf, device=DEVICE).to(dtype)
        same_as_torch(argmax, low, n)
        low[-1] = torch.finfo(dtype).min
        same_as_torch(argmax, low, n)
        same_as_torch(argmax, -low, n)


def test_zeros_of_both_signs_are_equal(argmax):
    assert argmax(torch.tensor([-0.0, 0.0], device=DEVICE)).item() == 0
    assert argmax(torch.tensor([-1.0, 0.0, -0.0], device=DEVICE)).item() == 1


def test_no_fault_is_found_at_the_ends_of_views():
    """On the CPU backend, with every access checked, at sizes about a block's."""
    checked = compile_cuda(ROOT / "kernels" / "argmax.cu", check=True).argmax
    for dtype, n in ((torch.float32, 8195), (torch.float16, 16_393), (torch.bfloat16, 5)):
        inp = torch.randn(n, device=DEVICE).to(dtype)
        for view in (inp, inp[1:], inp[:-1]):
            same_as_torch(checked, view, dtype, n)
