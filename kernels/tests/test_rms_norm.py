"""rms_norm and its gradients: see contract.py; types, lengths, special values."""

import pytest
import torch
from torch.nn.functional import rms_norm

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats, wrong

EPS = 0.3  # shows where it is forgotten or stands outside the root
HALF_TYPES = (torch.float16, torch.bfloat16)
SHAPES = [(6, 8), (3, 1000), (2, 3, 260), (40, 33), (7, 1), (1, 1), (129,), (300, 36)]
SHAPES += [(2, 8192), (3, 9000), (2, 16384), (1, 20_001)]
EMPTY = [(0, 8), (2, 0, 5)]
# the second row: whole rows for a warp, for some and for 16; then for more than have stages
HALF_SHAPES = [(5, 7), (3, 1000), (40, 256), (2, 10_000)]
HALF_SHAPES += [(3, 512), (3, 1536), (5, 4096), (2, 8192), (2, 16384)]


def inp_of(*shape):
    """Return rows with means and spreads of their own."""
    lead = (*shape[:-1], 1)
    return floats(*shape) * (0.5 + torch.rand(lead, device=DEVICE)) + floats(*lead)


def rstd_of(inp, eps):
    return (inp.square().mean(-1) + eps).rsqrt()


def forward_arguments(*shape):
    return {"inp": inp_of(*shape), "weight": floats(shape[-1]), "eps": EPS}


def forward_ref(inp, weight, eps):
    return rms_norm(inp, weight.shape, weight, eps), rstd_of(inp, eps)


def backward_arguments(*shape):
    inp = inp_of(*shape)
    rstd = rstd_of(inp.double(), EPS).float()
    return {"dout": floats(*shape), "inp": inp, "weight": floats(shape[-1]), "rstd": rstd}


def backward_ref(dout, inp, weight, rstd):
    """Return the gradients as autograd has them; rstd is that of inp."""
    inputs = [t.detach().requires_grad_() for t in (inp, weight)]
    return torch.autograd.grad(rms_norm(inputs[0], weight.shape, inputs[1], EPS), inputs, dout)


def of_terms(*shape):
    """One sum alone may end near 0: it is judged by the size of its terms added at random."""
    return {"atol": 1e-5 * max(1, *shape) ** 0.5}


VECTOR = [(9,), (8, 1), ()]
CASES = [
    Case(
        "rms_norm_forward",
        forward_arguments,
        forward_ref,
        SHAPES + EMPTY,
        ragged=wrong("inp", floats, ()) + wrong("weight", floats, *VECTOR),
        tolerance=of_terms,
        dtypes=HALF_TYPES,
    ),
    Case(
        "rms_norm_backward",
        backward_arguments,
        backward_ref,
        SHAPES + EMPTY,
        ragged=wrong("inp", floats, ())
        + wrong("dout", floats, (6, 9), (8, 6), (48,))
        + wrong("weight", floats, *VECTOR)
        + wrong("rstd", floats, (5,), (6, 1), ()),
        tolerance=of_terms,
        dtypes=HALF_TYPES,
    ),
]


@pytest.fixture
def norm(kernel):
    return kernel("rms_norm")


def check_against_float64(norm, dout, inp, weight, **tolerance):
    """Check the results and the gradients of one call of each function."""
    with poisoned():
        out, rstd = norm.rms_norm_forward(inp, weight, EPS)
        grads = norm.rms_norm_backward(dout, inp, weight, rstd)
    exact = [t.double() for t in (dout, inp, weight)]
    check_close(out, rms_norm(exact[1], weight.shape, exact[2], EPS), **tolerance)
    for got, want in zip(grads, backward_ref(*exact, None), strict=True):
        assert got.dtype == inp.dtype
        check_close(got, want, **tolerance)


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("shape", HALF_SHAPES, ids=str)
def test_half_types_are_computed_in_float32(norm, dtype, shape):
    """Rounded once, at the end: what float64 gives, rounded, or its neighbour."""
    dout, inp = floats(*shape).to(dtype), (inp_of(*shape) + 2).to(dtype)
    unit = torch.finfo(dtype).eps
    weight = floats(shape[-1]).to(dtype)
    check_against_float64(norm, dout, inp, weight, rtol=0.51 * unit, atol=1e-4)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_views_that_start_anywhere(norm, dtype):
    """Each tensor at offsets of its own within 16 bytes, rows of whole packs and of odd lengths."""
    for cols, starts in ((64, (1, 0, 0)), (64, (0, 2, 4)), (63, (0, 0, 3)), (64, (8, 4, 8))):
        dout, inp, weight = (
            floats(start + size).to(dtype)[start:]
            for start, size in zip(starts, (5 * cols, 5 * cols, cols), strict=True)
        )
        loose = {"atol": 1e-4} if dtype == torch.float32 else {}
        check_against_float64(norm, dout.view(5, cols), inp.view(5, cols), weight, **loose)


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("cols", [64, 63])
def test_a_special_value_stays_in_its_row(norm, special, cols):
    """NaN makes NaN of its row; beside infinity, which becomes NaN itself, all else is 0."""
    inp, weight = floats(3, cols), floats(cols)
    inp[1, 7] = special
    out, _ = norm.rms_norm_forward(inp, weight, EPS)
    # on the CPU: PyTorch's CUDA kernel makes NaN of a whole row of 63, but not of one of 64
    want = rms_norm(inp.cpu(), (cols,), weight.cpu(), EPS)
    torch.testing.assert_close(out.cpu(), want, equal_nan=True)
    assert out[1, 7].isnan() and not out[::2].isnan().any()


def test_rows_without_columns(norm):
    none = floats(0)
    out, rstd = norm.rms_norm_forward(floats(3, 0), none, EPS)
    assert out.shape == (3, 0) and rstd.isnan().all()
    dinp, dweight = norm.rms_norm_backward(out, out, none, rstd)
    assert dinp.shape == (3, 0) and dweight.shape == (0,)


def test_types_are_not_mixed(norm):
    with pytest.raises(RuntimeError, match="weight: expected .* as inp .* got Float"):
        norm.rms_norm_forward(floats(4, 8).half(), floats(8), EPS)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_each_number_is_read_once_and_16_bytes_at_a_time(norm, dtype):
    inp, dout = torch.randn(2, 8, 1024, device=DEVICE).to(dtype)
    weight = torch.randn(1024, device=DEVICE).to(dtype)
    _, rstd = norm.rms_norm_forward(inp, weight, EPS)
    report = trace(norm.rms_norm_forward, inp, weight, EPS)
    for name in ("inp", "out"):
        accesses = [a for a in report.accesses if a.array == name]
        assert {a.bytes for a in accesses} == {16}
        assert sum(16 * a.lanes for a in accesses) == inp.nbytes
    report = trace(norm.rms_norm_backward, dout, inp, weight, rstd)
    stores = [a for a in report.accesses if a.array == "dinp"]
    assert {a.bytes for a in stores} == {16}
    assert sum(16 * a.lanes for a in stores) == inp.nbytes


def test_no_fault_is_found_on_either_path():
    """On the CPU backend, with every access checked: rows of packs, odd rows, views."""
    checked = compile_cuda(ROOT / "kernels" / "rms_norm.cu", check=True)
    for dtype, cols in ((torch.float32, 68), (torch.float16, 72), (torch.bfloat16, 33)):
        inp, dout = torch.randn(2, 5, cols, device=DEVICE).to(dtype)
        weight = torch.randn(cols, device=DEVICE).to(dtype)
        loose = {"atol": 1e-4} if dtype == torch.float32 else {}
        check_against_float64(checked, dout, inp, weight, **loose)


# rows and columns: four turns for a block and more, so that every stage is filled again and again
MANY_ROWS = [(40, 8192), (130, 2048)] if BACKEND == "cpu" else [(5000, 8192), (20_000, 2048)]


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
@pytest.mark.parametrize("shape", MANY_ROWS, ids=str)
def test_many_rows_agree_with_float64(norm, dtype, shape):
    cols = shape[-1]
    dout, inp = torch.randn(2, *shape, device=DEVICE).to(dtype)
    weight = floats(cols).to(dtype)
    rounding = {} if dtype == torch.float32 else {"rtol": 0.51 * torch.finfo(dtype).eps}
    check_against_float64(norm, dout, inp, weight, atol=1e-3, **rounding)


@pytest.mark.skipif(BACKEND == "cuda", reason="the sizes are for the CPU backend's 8 SMs")
@pytest.mark.parametrize(
    "dtype, shape",
    [
        (torch.float32, (40, 8192)),  # a block an SM
        (torch.bfloat16, (600, 1024)),  # two warps
        (torch.float16, (600, 513)),  # no whole packs
    ],
    ids=str,
)
def test_no_fault_is_found_where_a_block_has_many_rows(dtype, shape):
    """Every access checked, of more rows than there are blocks: turns share memory."""
    checked = compile_cuda(ROOT / "kernels" / "rms_norm.cu", check=True)
    cols = shape[-1]
    dout, inp = torch.randn(2, *shape, device=DEVICE).to(dtype)
    weight = floats(cols).to(dtype)
    rounding = {} if dtype == torch.float32 else {"rtol": 0.51 * torch.finfo(dtype).eps}
    check_against_float64(checked, dout, inp, weight, atol=1e-3, **rounding)
