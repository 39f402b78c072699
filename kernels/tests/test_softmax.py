"""softmax and its gradient: what they promise (see contract.py), types, views, special values."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats, wrong

HALF_TYPES = (torch.float16, torch.bfloat16)
# a part of a warp a row, a warp, a block, several turns; forward and backward differ there
SHAPES = [(6, 8), (1,), (3,), (5, 1), (33, 10), (17, 64), (9, 65), (5, 129), (4, 256), (3, 257)]
SHAPES += [(7, 512), (3, 513), (7, 1024), (2, 1025), (3, 1823)]
SHAPES += [(1, 16385), (1, 32768), (1, 32769), (2, 40001), (2, 3, 5, 7), ()]
SHAPES += [(0,), (0, 5), (3, 0, 2), (3, 0)]


def softmax_ref(inp):
    return inp.softmax(-1)


def backward_ref(dout, out):
    return out * (dout - (dout * out).sum(-1, keepdim=True) if out.dim() else 0 * out)


def probabilities(*shape):
    return (3 * floats(*shape)).softmax(-1)


CASES = [
    Case(
        "softmax_forward",
        lambda *shape: {"inp": 10 * floats(*shape)},
        softmax_ref,
        SHAPES,
        dtypes=HALF_TYPES,
    ),
    Case(
        "softmax_backward",
        lambda *shape: {"dout": floats(*shape), "out": probabilities(*shape)},
        backward_ref,
        SHAPES,
        tolerance=lambda *shape: {"atol": 1e-6},
        ragged=wrong("dout", floats, (6, 9), (8, 6), (48,), ()),
    ),
]


@pytest.fixture
def softmax(kernel):
    return kernel("softmax")


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("C", [1, 7, 8, 1000, 1823, 33_000])
def test_half_types_are_computed_in_float32(softmax, dtype, C):
    """Rounded once, at the end: what float64 gives, rounded, or its neighbour."""
    inp, dout = (3 * torch.randn(2, 3, C, device=DEVICE)).to(dtype)
    with poisoned():
        out = softmax.softmax_forward(inp)
        dinp = softmax.softmax_backward(dout, out)
    assert out.dtype == dinp.dtype == dtype
    unit = torch.finfo(dtype).eps
    smallest = torch.finfo(dtype).smallest_normal * unit  # the step of the smallest numbers
    check_close(out, softmax_ref(inp.double()), rtol=0.51 * unit, atol=smallest)
    expected = backward_ref(dout.double(), out.double())
    check_close(dinp, expected, rtol=0.51 * unit, atol=smallest + 1e-6 * expected.abs().max())


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_views_that_start_anywhere(softmax, dtype):
    """Each of the two tensors at an offset of its own within 16 bytes, rows of odd length."""
    rows = torch.randn(8 + 5 * 1029, device=DEVICE).to(dtype)
    gradients = torch.randn(8 + 5 * 1029, device=DEVICE).to(dtype)
    for start_out, start_dout in ((0, 1), (1, 0), (3, 3), (4, 2), (7, 8)):
        inp = rows[start_out:][: 5 * 1029].view(5, 1029)
        dout = gradients[start_dout:][: 5 * 1029].view(5, 1029)
        check_close(softmax.softmax_forward(inp), softmax_ref(inp.double()))
        out = inp.copy_(softmax_ref(inp))  # in its place
        expected = backward_ref(dout.double(), out.double())
        check_close(softmax.softmax_backward(dout, out), expected)


@pytest.mark.parametrize("C", [9, 300, 5000, 33_001])
def test_special_values(softmax, C):
    """As PyTorch: what is masked is 0; NaN, +infinity and nothing but -infinity spoil their row."""
    inp = torch.randn(6, C, device=DEVICE)
    inp[0, : C - 2] = -torch.inf  # most threads see nothing else
    inp[1] = -torch.inf
    inp[2, C // 2] = torch.nan
    inp[3, C // 3] = torch.inf
    inp[4, C - 1], inp[4, 0] = 3e38, -3e38
    out, expected = softmax.softmax_forward(inp), softmax_ref(inp.double())
    assert expected.isnan().all(1).tolist() == [False, True, True, True, False, False]
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-7, equal_nan=True)
    assert (out[0, : C - 2] == 0).all()
    if BACKEND == "cuda":
        torch.testing.assert_close(out, softmax_ref(inp), rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("C", [9, 5000, 20_001])
def test_nan_of_the_gradient_stays_in_its_row(softmax, C):
    dout, out = floats(3, C), probabilities(3, C)
    dout[1, C // 2] = torch.nan
    dinp = softmax.softmax_backward(dout, out)
    assert dinp.isnan().all(1).tolist() == [False, True, False]
    check_close(dinp[::2], backward_ref(dout[::2].double(), out[::2].double()), atol=1e-6)


@pytest.mark.parametrize("middle", [1e4, -1e4, -1000])
@pytest.mark.parametrize("C", [9, 300, 2000, 5000, 33_001])
def test_rows_far_from_0_neither_overflow_nor_vanish(softmax, C, middle):
    """A maximum begins with -infinity, not with 0, in every thread, warp and block."""
    inp = middle + 30 * torch.randn(4, C, device=DEVICE)
    inp[2] = middle  # ties
    check_close(softmax.softmax_forward(inp), softmax_ref(inp.double()))


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_each_element_moves_once_and_16_bytes_at_a_time(softmax, dtype):
    inp = torch.randn(3, 4096, device=DEVICE).to(dtype)
    out = softmax.softmax_forward(inp)
    for report in (
        trace(softmax.softmax_forward, inp),
        trace(softmax.softmax_backward, inp, out),
    ):
        accesses = [access for access in report.accesses if access.space == "global"]
        assert {access.bytes for access in accesses} == {16}
        arrays = {access.array for access in accesses}
        for array in arrays:
            lanes = sum(access.lanes for access in accesses if access.array == array)
            assert 16 * lanes == inp.nbytes


def test_no_fault_is_found_in_any_kernel():
    """On the CPU backend, with every access checked, at awkward lengths and offsets."""
    checked = compile_cuda(ROOT / "kernels" / "softmax.cu", check=True)
    for dtype, C in ((torch.float32, 2051), (torch.float16, 261), (torch.float32, 33_001)):
        inp, dout = torch.randn(2, 2 * C + 1, device=DEVICE).to(dtype)
        for x, g in ((inp[:-1], dout[:-1]), (inp[1:], dout[1:])):
            x, g = x.view(2, C), g.view(2, C)
            out = checked.softmax_forward(x)
            check_close(out, softmax_ref(x.double()))
            expected = backward_ref(g.double(), out.double())
            check_close(checked.softmax_backward(g, out), expected)
