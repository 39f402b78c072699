"""layer_norm and its gradients: see contract.py; types, lengths, special values."""

import pytest
import torch
from torch.nn.functional import layer_norm

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


def forward_arguments(*shape):
    return {"inp": inp_of(*shape), "weight": floats(shape[-1]), "bias": floats(shape[-1]),
            "eps": EPS}  # fmt: skip


def rstd_of(inp, eps):
    distances = inp - inp.mean(-1, keepdim=True)
    return (distances.square().mean(-1) + eps).rsqrt()


def forward_ref(inp, weight, bias, eps):
    return layer_norm(inp, weight.shape, weight, bias, eps), inp.mean(-1), rstd_of(inp, eps)


def backward_arguments(*shape):
    inp = inp_of(*shape)
    mean, rstd = inp.double().mean(-1).float(), rstd_of(inp.double(), EPS).float()
    return {"dout": floats(*shape), "inp": inp, "weight": floats(shape[-1]), "mean": mean,
            "rstd": rstd}  # fmt: skip


def backward_ref(dout, inp, weight, mean, rstd, eps=EPS):
    """Return the gradients as autograd has them; mean and rstd are those of inp."""
    inputs = [t.detach().requires_grad_() for t in (inp, weight, torch.zeros_like(weight))]
    out = layer_norm(inputs[0], weight.shape, *inputs[1:], eps)
    return torch.autograd.grad(out, inputs, dout)


def of_terms(*shape):
    """One sum alone may end near 0: it is judged by the size of its terms added at random."""
    return {"atol": 1e-5 * max(1, *shape) ** 0.5}


VECTOR = [(9,), (8, 1), ()]
CASES = [
    Case(
        "layer_norm_forward",
        forward_arguments,
        forward_ref,
        SHAPES + EMPTY,
        ragged=wrong("inp", floats, ())
        + [w for name in ("weight", "bias") for w in wrong(name, floats, *VECTOR)],
        tolerance=of_terms,
        dtypes=HALF_TYPES,
    ),
    Case(
        "layer_norm_backward",
        backward_arguments,
        backward_ref,
        SHAPES + EMPTY,
        ragged=wrong("inp", floats, ())
        + wrong("dout", floats, (6, 9), (8, 6), (48,))
        + wrong("weight", floats, *VECTOR)
        + [w for name in ("mean", "rstd") for w in wrong(name, floats, (5,), (6, 1), ())],
        tolerance=of_terms,
        dtypes=HALF_TYPES,
    ),
]


@pytest.fixture
def norm(kernel):
    return kernel("layer_norm")


def check_against_float64(norm, dout, inp, weight, bias, **tolerance):
    """Check the results and the gradients of one call of each function."""
    with poisoned():
        out, mean, rstd = norm.layer_norm_forward(inp, weight, bias, EPS)
        grads = norm.layer_norm_backward(dout, inp, weight, mean, rstd)
    exact = [t.double() for t in (dout, inp, weight, bias)]
    check_close(out, layer_norm(exact[1], weight.shape, exact[2], exact[3], EPS), **tolerance)
    for got, want in zip(grads, backward_ref(*exact[:3], None, None), strict=True):
        assert got.dtype == inp.dtype
        check_close(got, want, **tolerance)


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("shape", HALF_SHAPES, ids=str)
def test_half_types_are_computed_in_float32(norm, dtype, shape):
    """Rounded once, at the end: what float64 gives, rounded, or its neighbour."""
    dout, inp = floats(*shape).to(dtype), (inp_of(*shape) + 2).to(dtype)
    weight, bias = floats(2, shape[-1]).to(dtype)
    unit = torch.finfo(dtype).eps
    check_against_float64(norm, dout, inp, weight, bias, rtol=0.51 * unit, atol=1e-4)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_views_that_start_anywhere(norm, dtype):
    """Each tensor at offsets of its own within 16 bytes, rows of whole packs and of odd lengths."""
    for cols, starts in (
        (64, (1, 0, 0, 0)),
        (64, (0, 2, 4, 1)),
        (63, (0, 0, 0, 3)),
        (64, (8, 4, 8, 8)),
    ):
        dout, inp, weight, bias = (
            floats(start + size).to(dtype)[start:]
            for start, size in zip(starts, (5 * cols, 5 * cols, cols, cols), strict=True)
        )
        dout, inp = dout.view(5, cols), inp.view(5, cols)
        loose = {"atol": 1e-4} if dtype == torch.float32 else {}
        check_against_float64(norm, dout, inp, weight, bias, **loose)


def test_variance_beside_a_large_mean(norm):
    inp, ones = floats(6, 500) + 1000, torch.ones(500, device=DEVICE)
    _, _, rstd = norm.layer_norm_forward(inp, ones, ones, 0.0)
    # the mean itself is rounded to 1000 * 2^-24: the difference of squares would lose 1e-1
    check_close(rstd, inp.double().var(-1, correction=0).rsqrt(), rtol=1e-4)


@pytest.mark.parametrize("cols", [64, 63])
def test_equal_numbers_leave_the_bias(norm, cols):
    inp, weight, bias = torch.full((3, cols), 4.5, device=DEVICE), floats(cols), floats(cols)
    out, mean, rstd = norm.layer_norm_forward(inp, weight, bias, 1e-5)
    assert torch.equal(out, bias.expand_as(out)) and mean.tolist() == [4.5] * 3
    check_close(rstd, torch.full((3,), 1e-5).rsqrt())


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("cols", [64, 63])
def test_a_special_value_stays_in_its_row(norm, special, cols):
    inp, weight, bias = floats(3, cols), floats(cols), floats(cols)
    inp[1, 7] = special
    out, _, rstd = norm.layer_norm_forward(inp, weight, bias, EPS)
    assert out.isnan().all(1).tolist() == [False, True, False] == rstd.isnan().tolist()
    assert not out[::2].isnan().any()
    torch.testing.assert_close(out, layer_norm(inp, (cols,), weight, bias, EPS), equal_nan=True)


def test_rows_without_columns_have_no_mean(norm):
    none = floats(0)
    out, mean, rstd = norm.layer_norm_forward(floats(3, 0), none, none, EPS)
    assert out.shape == (3, 0) and mean.isnan().all() and rstd.isnan().all()
    dinp, dweight, dbias = norm.layer_norm_backward(out, out, none, mean, rstd)
    assert dinp.shape == (3, 0) and dweight.shape == dbias.shape == (0,)


def test_types_are_not_mixed(norm):
    inp, weight = floats(4, 8).half(), floats(8)
    with pytest.raises(RuntimeError, match="weight: expected .* as inp .* got Float"):
        norm.layer_norm_forward(inp, weight, weight, EPS)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_each_number_is_read_once_and_16_bytes_at_a_time(norm, dtype):
    inp, dout = torch.randn(2, 8, 1024, device=DEVICE).to(dtype)
    vectors = torch.randn(2, 1024, device=DEVICE).to(dtype)
    _, mean, rstd = norm.layer_norm_forward(inp, *vectors, EPS)
    report = trace(norm.layer_norm_forward, inp, *vectors, EPS)
    for name in ("inp", "out"):
        accesses = [a for a in report.accesses if a.array == name]
        assert {a.bytes for a in accesses} == {16}
        assert sum(16 * a.lanes for a in accesses) == inp.nbytes
    report = trace(norm.layer_norm_backward, dout, inp, vectors[0], mean, rstd)
    stores = [a for a in report.accesses if a.array == "dinp"]
    assert {a.bytes for a in stores} == {16}
    assert sum(16 * a.lanes for a in stores) == inp.nbytes


def test_no_fault_is_found_on_either_path():
    """On the CPU backend, with every access checked: rows of packs, odd rows, views."""
    checked = compile_cuda(ROOT / "kernels" / "layer_norm.cu", check=True)
    for dtype, cols in ((torch.float32, 68), (torch.float16, 72), (torch.bfloat16, 33)):
        inp, dout = torch.randn(2, 5, cols, device=DEVICE).to(dtype)
        weight, bias = torch.randn(2, cols, device=DEVICE).to(dtype)
        loose = {"atol": 1e-4} if dtype == torch.float32 else {}
        check_against_float64(checked, dout, inp, weight, bias, **loose)


# rows and columns: four turns for a block and more, so that every stage is filled again and again
MANY_ROWS = [(40, 8192), (130, 2048)] if BACKEND == "cpu" else [(5000, 8192), (20_000, 2048)]


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
@pytest.mark.parametrize("shape", MANY_ROWS, ids=str)
def test_many_rows_agree_with_float64(norm, dtype, shape):
    cols = shape[-1]
    dout, inp = torch.randn(2, *shape, device=DEVICE).to(dtype)
    weight, bias = floats(2, cols).to(dtype)
    rounding = {} if dtype == torch.float32 else {"rtol": 0.51 * torch.finfo(dtype).eps}
    check_against_float64(norm, dout, inp, weight, bias, atol=1e-3, **rounding)


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
    checked = compile_cuda(ROOT / "kernels" / "layer_norm.cu", check=True)
    cols = shape[-1]
    dout, inp = torch.randn(2, *shape, device=DEVICE).to(dtype)
    weight, bias = floats(2, cols).to(dtype)
    rounding = {} if dtype == torch.float32 else {"rtol": 0.51 * torch.finfo(dtype).eps}
    check_against_float64(checked, dout, inp, weight, bias, atol=1e-3, **rounding)
