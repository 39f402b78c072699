"""gelu: what it promises (see contract.py), the half types, views, and special values."""

import pytest
import torch
from torch.nn.functional import gelu as gelu_ref

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats, wrong

SHAPES = [(6, 8), (1,), (3,), (511,), (512,), (513,), (1823, 781), (3, 5, 7, 11), ()]
SHAPES += [(0,), (0, 5), (3, 0, 2)]
HALF_TYPES = (torch.float16, torch.bfloat16)


def backward_ref(dout, inp):
    """Return the gradient of gelu in float64, as autograd has it."""
    inp = inp.detach().requires_grad_()
    return torch.autograd.grad(gelu_ref(inp), inp, dout)[0]


def tolerance(*shape):
    """Return what float32 allows: where x is very negative, 1 + erf loses its last digits."""
    return {"atol": 1e-6}


CASES = [
    Case(
        "gelu_forward",
        lambda *shape: {"inp": 3 * floats(*shape)},
        gelu_ref,
        SHAPES,
        tolerance=tolerance,
        dtypes=HALF_TYPES,
    ),
    Case(
        "gelu_backward",
        lambda *shape: {"dout": floats(*shape), "inp": 3 * floats(*shape)},
        backward_ref,
        SHAPES,
        tolerance=tolerance,
        ragged=wrong("dout", floats, (6, 9), (8, 6), (48,), ()),
    ),
]


@pytest.fixture
def gelu(kernel):
    return kernel("gelu")


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 1000, 1023, 1025, 100_003])
def test_half_types_are_computed_in_float32(gelu, dtype, n):
    """Rounded once, at the end: what float64 gives, rounded, or its neighbour."""
    inp, dout = (3 * torch.randn(n, device=DEVICE)).to(dtype), floats(n).to(dtype)
    with poisoned():
        out, dinp = gelu.gelu_forward(inp), gelu.gelu_backward(dout, inp)
    assert out.dtype == dinp.dtype == dtype
    unit = torch.finfo(dtype).eps
    for got, exact in (
        (out, gelu_ref(inp.double())),
        (dinp, backward_ref(dout.double(), inp.double())),
    ):
        check_close(got, exact, rtol=0.51 * unit, atol=1e-6)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_views_that_start_anywhere(gelu, dtype):
    """Each of the two tensors at each offset within 16 bytes, at an awkward length."""
    inp, dout = torch.randn(2, 1100, device=DEVICE).to(dtype)
    for start_inp, start_dout in ((0, 1), (1, 0), (3, 3), (4, 2), (7, 8)):
        x, g = inp[start_inp:][:1029], dout[start_dout:][:1029]
        check_close(gelu.gelu_forward(x), gelu_ref(x.double()))
        check_close(gelu.gelu_backward(g, x), backward_ref(g.double(), x.double()))


def test_special_values(gelu):
    """Those of PyTorch's kernels on a GPU: x times the probability, infinity times 0 is NaN."""
    nan, inf = torch.nan, torch.inf
    inp = torch.tensor([nan, -inf, inf, 0.0, -0.0, 1e30, -1e30, -20.0, 1e-30], device=DEVICE)
    expected = torch.tensor([nan, nan, inf, 0.0, -0.0, 1e30, -0.0, -0.0, 5e-31], device=DEVICE)
    slope = torch.tensor([nan, nan, nan, 0.5, 0.5, 1.0, 0.0, 0.0, 0.5], device=DEVICE)
    out, dinp = gelu.gelu_forward(inp), gelu.gelu_backward(torch.ones_like(inp), inp)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(dinp, slope, rtol=1e-6, atol=1e-30, equal_nan=True)
    assert torch.equal(out.signbit()[3:5], inp.signbit()[3:5])
    if BACKEND == "cuda":
        torch.testing.assert_close(out, gelu_ref(inp), rtol=1e-6, atol=0, equal_nan=True)


def test_nan_and_infinity_of_the_gradient_pass_through(gelu):
    dout = torch.tensor([torch.nan, torch.inf, -torch.inf], device=DEVICE)
    dinp = gelu.gelu_backward(dout, torch.ones(3, device=DEVICE))
    torch.testing.assert_close(dinp, dout, equal_nan=True)


def test_types_are_not_mixed(gelu):
    inp = torch.randn(8, device=DEVICE)
    with pytest.raises(RuntimeError, match="expected dout and inp of one type, got Half and Float"):
        gelu.gelu_backward(inp.half(), inp)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_16_bytes_move_at_once_where_they_can(gelu, dtype):
    aligned = torch.randn(2048, dtype=dtype, device=DEVICE)
    for report in (
        trace(gelu.gelu_forward, aligned),
        trace(gelu.gelu_backward, aligned.clone(), aligned),
    ):
        assert {access.bytes for access in report.accesses} == {16}


def test_no_fault_is_found_at_the_ends_of_views():
    """On the CPU backend, with every access checked, at sizes about a block's."""
    checked = compile_cuda(ROOT / "kernels" / "gelu.cu", check=True)
    for dtype, n in ((torch.float32, 517), (torch.float16, 1029), (torch.bfloat16, 5)):
        inp, dout = torch.randn(2, n, device=DEVICE).to(dtype)
        for x, g in ((inp, dout), (inp[1:], dout[1:])):
            check_close(checked.gelu_forward(x), gelu_ref(x.double()))
            check_close(checked.gelu_backward(g, x), backward_ref(g.double(), x.double()))
