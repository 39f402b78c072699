"""sum: what it promises (see contract.py), half types, views, special values, the same bits."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats

SHAPES = [(6, 8), (1,), (3,), (2047,), (8192,), (8193,), (1823, 781), (3, 5, 7, 11), ()]
SHAPES += [(0,), (0, 5), (3, 0, 2)]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def tolerance(*shape):
    """Return what float32 allows for the sum of normal numbers, which may happen to be near 0."""
    return {"atol": 1e-6 * max(1, torch.Size(shape).numel() ** 0.5)}


CASES = [
    Case(
        "sum",
        lambda *shape: {"inp": floats(*shape)},
        torch.sum,
        SHAPES,
        tolerance=tolerance,
        dtypes=DTYPES[1:],
    ),
]


@pytest.fixture
def sum_of(kernel):
    return kernel("sum").sum


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000, 16_383, 16_385, 300_007])
def test_half_types_are_added_up_in_float32(sum_of, dtype, n):
    """Rounded once, at the end: what float64 gives, rounded, or its neighbour."""
    inp = (torch.rand(n, device=DEVICE) / 8).to(dtype)
    with poisoned():
        out = sum_of(inp)
    assert out.dtype == dtype and out.shape == ()
    check_close(out, inp.double().sum(), rtol=max(0.51 * torch.finfo(dtype).eps, 1e-6), atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_that_start_and_end_anywhere(sum_of, dtype):
    """Each element counts once: the sum of powers of two, and every bit of it, is known."""
    inp = torch.randint(-8, 9, (5000,), device=DEVICE).to(dtype)
    for start in range(9):
        for n in (0, 1, 2, 5, 15, 16, 17, 1000, 4099):
            view = inp[start:][:n]
            assert sum_of(view) == view.long().sum().to(dtype), (start, n)


def test_every_element_counts_once(sum_of):
    """A one among zeros, at each place in turn: at both ends, and at the seams of blocks."""
    inp = torch.zeros(20_003, device=DEVICE)[1:]
    for i in (*range(20), *range(8180, 8200), *range(16_370, 16_400), *range(19_990, 20_002)):
        inp[i] = 1
        assert sum_of(inp) == 1, i
        inp[i] = 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(sum_of, dtype):
    nan, inf = torch.nan, torch.inf
    for special, expected in (((nan,), nan), ((inf,), inf), ((-inf,), -inf), ((inf, -inf), nan)):
        inp = torch.ones(10_000, device=DEVICE).to(dtype)
        for k, value in enumerate(special):
            inp[9000 * k + 5] = value
        torch.testing.assert_close(sum_of(inp).item(), expected, equal_nan=True)
    assert sum_of(torch.full((8,), 60_000.0, device=DEVICE).half()) == inf


def test_the_same_bits_again(sum_of):
    """However the blocks finish: they are many, and come in another order each time."""
    inp = torch.randn(1_000_003, device=DEVICE)
    assert len({sum_of(inp).item() for _ in range(10)}) == 1


def test_large_sums_lose_little(sum_of):
    """Where a loop in float32 stands still at 2^24, the tree goes on."""
    assert sum_of(torch.ones(2**25, device=DEVICE)) == 2**25


@pytest.mark.parametrize("dtype", DTYPES)
def test_16_bytes_move_at_once(sum_of, dtype):
    report = trace(sum_of, torch.randn(40_000, device=DEVICE).to(dtype)[1:])
    loads = [a for a in report.accesses if a.array == "inp"]
    wide = sum(a.lanes * a.bytes for a in loads if a.bytes == 16)
    assert wide >= 0.99 * sum(a.lanes * a.bytes for a in loads)


def test_no_fault_is_found_at_the_ends_of_views():
    """On the CPU backend, with every access checked, at sizes about a block's."""
    checked = compile_cuda(ROOT / "kernels" / "sum.cu", check=True).sum
    for dtype, n in ((torch.float32, 8195), (torch.float16, 16_393), (torch.bfloat16, 5)):
        inp = torch.ones(n, device=DEVICE).to(dtype)
        for view in (inp, inp[1:], inp[:-1]):
            check_close(checked(view), view.double().sum(), rtol=1e-2)
