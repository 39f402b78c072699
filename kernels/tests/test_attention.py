"""attention: what it promises (see contract.py), all three types on both paths, special values."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

HALF_TYPES = (torch.float16, torch.bfloat16)


def attention_ref(q, k, v, causal):
    """Return attention in float64, as PyTorch has it."""
    q, k, v = q.double(), k.double(), v.double()
    return scaled_dot_product_attention(q, k, v, is_causal=causal)


def arguments(B, H, S_q, S_kv, D, causal):
    k, v = floats(B, H, S_kv, D), floats(B, H, S_kv, D)
    return {"q": floats(B, H, S_q, D), "k": k, "v": v, "causal": causal}


CASES = [
    Case(
        "attention_forward",
        arguments,
        attention_ref,
        [(2, 3, 33, 18, 5, True), (1, 2, 9, 70, 64, False), (1, 1, 1, 1, 1, True)]
        + [(2, 1, 100, 31, 128, causal) for causal in (False, True)]
        + [(0, 2, 3, 4, 8, False), (2, 2, 0, 4, 8, True), (2, 2, 3, 0, 8, True)],
        ragged=[
            *wrong("q", floats, (3, 33, 5), (2, 3, 33, 129), (2, 3, 33, 0)),
            *wrong("k", floats, (2, 3, 17, 5), (2, 2, 18, 5), (1, 3, 18, 5), (2, 3, 18, 4)),
            *wrong("v", floats, (2, 3, 19, 5), (2, 2, 18, 5), (2, 3, 18), (2, 3, 18, 6)),
        ],
    ),
]


@pytest.fixture
def attention(kernel):
    return kernel("attention").attention_forward


def half_inputs(dtype, B, H, S_q, S_kv, D):
    return (torch.randn(B, H, S, D, device=DEVICE).to(dtype) for S in (S_q, S_kv, S_kv))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize(
    "size",
    [(1, 2, 1, 1, 64), (2, 2, 257, 65, 64), (1, 1, 40, 200, 128), (1, 1, 300, 129, 128)]
    + [(1, 2, 33, 64, 80), (1, 1, 7, 17, 3)],
    ids=str,
)
def test_half_types(attention, dtype, causal, size):
    """Weights are rounded to the type before they are multiplied, and out is rounded once."""
    q, k, v = half_inputs(dtype, *size)
    with poisoned():
        out = attention(q, k, v, causal)
    assert out.dtype == dtype
    unit = torch.finfo(dtype).eps
    weighed = attention_ref(q, k, v.abs(), causal)
    error = (out.double() - attention_ref(q, k, v, causal)).abs()
    assert (error <= unit * weighed + 1e-6).all(), f"{(error / weighed).max() / unit:.2f} units"


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("which", range(3))
def test_views_that_start_anywhere_give_the_same(attention, dtype, D, which):
    """Where 16 bytes of q, k or v cannot be copied at once, the other kernel takes over."""
    given = [*half_inputs(dtype, 1, 2, 20, 30, D)]
    storage = torch.empty(given[which].numel() + 1, dtype=dtype, device=DEVICE)
    given[which] = storage[1:].view(given[which].shape).copy_(given[which])
    check_close(attention(*given, True), attention_ref(*given, True))


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
@pytest.mark.parametrize("D", [64, 128])
def test_large_scores_do_not_overflow(attention, dtype, D):
    """Scores of some 10^4, whose last bit in float32 is worth a thousandth of a weight."""
    q, k, v = half_inputs(dtype, 1, 1, 40, 90, D)
    q, k = 100 * q, 100 * k
    check_close(attention(q, k, v, True), attention_ref(q, k, v, True), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_nan_and_infinity_pass_as_in_pytorch(attention, dtype):
    nan, inf = torch.nan, torch.inf
    q, k, v = half_inputs(dtype, 1, 1, 100, 100, 64)
    q[0, 0, 3, 0] = nan  # its row
    k[0, 0, 80, 0] = nan  # all rows that see it
    out = attention(q, k, v, True)
    assert out[0, 0, 3].isnan().all() and out[0, 0, 80:].isnan().all()
    assert not out[0, 0, :3].isnan().any() and not out[0, 0, 4:80].isnan().any()
    q, k = torch.zeros_like(q), torch.zeros_like(k)
    q[..., 0] = 1
    k[0, 0, :70, 0] = -inf  # weight 0, also where all of a tile has it
    out = attention(q, k, v, False)
    check_close(out, v[:, :, 70:].double().mean(2, keepdim=True).expand(out.shape))
    k[0, 0, :, 0] = -inf  # nothing has any weight
    assert (attention(q, k, v, False) == 0).all()
    k[0, 0, 5, 0] = inf
    assert attention(q, k, v, False).isnan().all()


def test_types_are_not_mixed(attention):
    q, k, v = half_inputs(torch.float16, 1, 1, 4, 4, 64)
    with pytest.raises(RuntimeError, match="expected q, k and v of one type, got Half, Half, BF"):
        attention(q, k, v.bfloat16(), False)


def test_no_fault_is_found_on_tensor_cores():
    """On the CPU backend, with every access checked, at ragged ends."""
    checked = compile_cuda(ROOT / "kernels" / "attention.cu", check=True).attention_forward
    for dtype, D, S_q, S_kv in ((torch.float16, 64, 70, 150), (torch.bfloat16, 128, 3, 70)):
        q, k, v = half_inputs(dtype, 1, 1, S_q, S_kv, D)
        check_close(checked(q, k, v, True), attention_ref(q, k, v, True), atol=1e-2)
