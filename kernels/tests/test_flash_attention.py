"""flash_attention: what it promises (see contract.py), what is seen, special values, split keys."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace.from_cpu_backend import record
from kernels.tests.contract import Case, floats, kernels_of, untouched, wrong
from kernels.tests.hopper import for_cpu

SOURCE = ROOT / "kernels" / "flash_attention.cu"
HALVES = (torch.float16, torch.bfloat16)
TYPES = (torch.float32, *HALVES)
SM_90 = BACKEND == "cuda" and torch.cuda.get_device_capability() == (9, 0)
NO_GPU = pytest.mark.skipif(BACKEND == "cuda", reason="the CPU backend counts and checks")


# ------------------------------------------------------------------ the reference


def seen(S_q, S_kv, lengths, causal, lower_right, window):
    """Return which keys a query sees, (B or 1, 1, S_q, S_kv): the rules, written out."""
    lengths = torch.tensor([S_kv], device=DEVICE) if lengths is None else lengths.long()
    lengths = lengths.clamp(0, S_kv)[:, None, None, None]
    query, key = torch.arange(S_q, device=DEVICE)[:, None], torch.arange(S_kv, device=DEVICE)
    place = query + (lengths - S_q if lower_right else 0)
    allowed = (key < lengths).expand(-1, 1, S_q, S_kv)
    if causal or window:
        allowed = allowed & (key <= place)
    return allowed & (key > place - window) if window else allowed


def shared(x, q):
    """Return k or v with a head for each of q's."""
    return x.repeat_interleave(q.shape[1] // max(1, x.shape[1]), 1)


def forward_ref(q, k, v, *how):
    """Return out and lse in the inputs' precision."""
    k, v = shared(k, q), shared(v, q)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~seen(*scores.shape[2:], *how), -torch.inf)
    lse = scores.logsumexp(-1)
    saw = lse > -torch.inf
    return (scores - lse.where(saw, 0.0)[..., None]).exp() @ v, lse


def backward_ref(dout, q, k, v, out, lse, *how):
    """Return dq, dk, dv as they follow from all that is given, out and lse too."""
    group = max(1, q.shape[1] // max(1, k.shape[1]))
    k, v = shared(k, q), shared(v, q)
    scale = q.shape[-1] ** -0.5
    p = (q @ k.mT * scale - lse[..., None]).exp() * seen(q.shape[2], k.shape[2], *how)
    ds = p * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * scale
    dk, dv = (x.unflatten(1, (-1, group)).sum(2) for x in (ds.mT @ q, p.mT @ dout))
    return ds @ k, dk, dv


def by_autograd(dout, q, k, v, *how):
    """Return out, lse, dq, dk, dv in float64, the gradients by PyTorch."""
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out, lse = forward_ref(*leaves, *how)
    return out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, dout.double())


# ------------------------------------------------------------------ cases


def options(B, S_q, S_kv, how):
    """Return lengths, causal, lower_right and window of words: "causal lengths window 7".

    Every query sees some key: what sees none has tests of its own.
    """
    words = how.split()
    lengths = torch.randint(min(S_q, S_kv), S_kv + 1, (B,), dtype=torch.int32, device=DEVICE)
    return {
        "lengths": lengths if "lengths" in words else None,
        "causal": "causal" in words,
        "lower_right": "lower" in words,
        "window": int(words[-1]) if "window" in words else 0,
    }


def arguments(B, H, H_kv, S_q, S_kv, D, how):
    k, v = floats(B, H_kv, S_kv, D), floats(B, H_kv, S_kv, D)
    return {"q": floats(B, H, S_q, D), "k": k, "v": v, **options(B, S_q, S_kv, how)}


def backward_arguments(*size):
    given = arguments(*size)
    return refitted({"dout": torch.randn_like(given["q"]), **given})


def refitted(given):
    """Return backward's arguments with out and lse as forward returns them for the others."""
    how = [given[name] for name in ("lengths", "causal", "lower_right", "window")]
    dout, q, k, v = (given[name] for name in ("dout", "q", "k", "v"))
    out, lse = forward_ref(q.double(), k.double(), v.double(), *how)
    inputs = {"dout": dout, "q": q, "k": k, "v": v}
    rest = {name: given[name] for name in ("lengths", "causal", "lower_right", "window")}
    return {**inputs, "out": out.to(q.dtype), "lse": lse.float(), **rest}


SIZES = [
    (2, 4, 2, 9, 11, 5, "causal lower lengths window 6"),
    (1, 2, 1, 9, 70, 64, "lengths"),
    (2, 2, 1, 3, 4, 77, "causal"),
    (1, 2, 2, 20, 31, 128, ""),
    (1, 1, 1, 1, 1, 1, "causal"),
    (1, 3, 1, 4, 5, 200, "window 3"),
    (0, 2, 1, 3, 4, 8, ""),
    (2, 0, 0, 3, 4, 8, "lengths"),
    (2, 2, 2, 0, 4, 8, "causal"),
]
RAGGED = [
    *wrong("q", floats, (4, 9, 5), (2, 4, 9, 257), (2, 4, 9, 0)),
    *wrong("k", floats, (2, 3, 11, 5), (3, 2, 11, 5), (2, 2, 11, 4), (2, 2, 11)),
    *wrong("v", floats, (2, 2, 12, 5), (2, 4, 11, 5), (2, 2, 11), (2, 2, 11, 6)),
    *wrong("lengths", lambda n: torch.ones(n, dtype=torch.int32, device=DEVICE), 3, 1),
    ("window", lambda of: -1),
]
CASES = [
    Case("flash_attention_forward", arguments, forward_ref, SIZES, RAGGED),
    Case(
        "flash_attention_backward",
        backward_arguments,
        backward_ref,
        SIZES,
        [
            *RAGGED,
            *wrong("dout", floats, (2, 4, 9, 6), (2, 4, 10, 5), (4, 9, 5)),
            *wrong("out", floats, (2, 4, 9, 6), (2, 2, 9, 5), (2, 4, 9)),
            *wrong("lse", floats, (2, 4, 10), (2, 4), (2, 4, 9, 1)),
        ],
    ),
]


# ------------------------------------------------------------------ what cases do not show


@pytest.fixture
def module(kernel):
    return kernel("flash_attention")


def halves(dtype, B, H, H_kv, S_q, S_kv, D):
    shapes = ((B, H, S_q, D), (B, H_kv, S_kv, D), (B, H_kv, S_kv, D), (B, H, S_q, D))
    return [torch.randn(shape, device=DEVICE).to(dtype) for shape in shapes]


def in_order(given):
    """Return dout, q, k, v of what halves() gives."""
    q, k, v, dout = given
    return dout, q, k, v


def all_of(module, dout, q, k, v, *how):
    """Return out, lse, dq, dk, dv as the kernels have them."""
    with poisoned():
        out, lse = module.flash_attention_forward(q, k, v, *how)
        return out, lse, *module.flash_attention_backward(dout, q, k, v, out, lse, *how)


def check_all(module, dout, q, k, v, *how, roundings=4):
    """Check all against PyTorch's gradients; errors as wholes, in units of one rounding.

    That of a result to its type, with what the rounding of `out` makes of the gradients: they
    are differences of `dout @ v.mT` and `(dout * out).sum(-1)`, which cancel where keys are few.
    """
    unit = {torch.float32: 2**-22}.get(q.dtype, torch.finfo(q.dtype).eps)
    out, lse, *grads = by_autograd(dout, q, k, v, *how)
    given = [x.double() for x in (dout, q, k, v, out.to(q.dtype))]
    of_rounded = backward_ref(*given, lse.where(lse > -torch.inf, 0.0), *how)
    moves = [0.0, 0.0, *((a - b).norm() for a, b in zip(of_rounded, grads, strict=True))]
    names, gots = ("out", "lse", "dq", "dk", "dv"), all_of(module, dout, q, k, v, *how)
    for name, got, want, move in zip(names, gots, (out, lse, *grads), moves, strict=True):
        assert torch.equal(got == -torch.inf, want == -torch.inf)
        got, want = (x.double().where(x > -torch.inf, 0.0) for x in (got, want))
        error, one = (got - want).norm(), unit * want.norm() + move
        assert error <= roundings * one, f"{name}: {error / one:.2f} roundings"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "size, how",
    [
        ((1, 2, 2, 257, 65, 64), (True, False, 0)),
        ((1, 3, 1, 40, 200, 128), (True, True, 70)),
        ((1, 4, 2, 150, 140, 64), (True, False, 33)),  # blocks of rows of two heads
        ((1, 1, 1, 300, 129, 128), (False, True, 0)),
        ((2, 2, 1, 33, 90, 80), (True, False, 0)),  # padded to 128
        ((1, 2, 1, 7, 17, 3), (False, False, 5)),
        ((1, 2, 2, 20, 31, 256), (True, False, 0)),
        ((1, 2, 1, 20, 31, 12), (True, False, 0)),  # rows that begin at 8 bytes
        ((2, 8, 2, 2, 700, 64), (True, True, 0)),  # split keys
        ((1, 16, 1, 5, 300, 128), (True, True, 100)),  # split keys, 80 rows
    ],
    ids=str,
)
def test_all_is_that_of_pytorch(module, dtype, size, how):
    q, k, v, dout = halves(dtype, *size)
    check_all(module, dout, q, k, v, None, *how)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "S_q, lower_right, window", [(40, False, 9), (40, True, 0), (3, False, 0), (3, True, 9)]
)
def test_lengths_of_all_kinds(module, dtype, S_q, lower_right, window):
    """0, fewer than queries, the middle of a tile, all, more than there are, below zero."""
    q, k, v, dout = halves(dtype, 6, 2, 1, S_q, 150, 64)
    lengths = torch.tensor([0, 2, 77, 150, 1000, -5], dtype=torch.int32, device=DEVICE)
    how = (lengths, True, lower_right, window)
    check_all(module, dout, q, k, v, *how)
    out, lse, dq, dk, dv = all_of(module, dout, q, k, v, *how)
    saw = seen(S_q, 150, *how).any(-1).expand(-1, 2, -1)
    assert (lse[~saw] == -torch.inf).all() and lse[saw].isfinite().all()
    for x in (out, dq):
        assert (x[~saw] == 0).all()
    for x in (dk, dv):
        assert (x[1, :, 2:] == 0).all() and (x[[0, 5]] == 0).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("S_q", [40, 2])
@pytest.mark.parametrize("D", [64, 200])
def test_what_lies_behind_the_length_is_not_read(module, dtype, S_q, D):
    """The rest of a cache may hold anything."""
    q, k, v, dout = halves(dtype, 2, 2, 1, S_q, 300, D)
    lengths = torch.tensor([7, 131], dtype=torch.int32, device=DEVICE)
    want = all_of(module, dout, q, k, v, lengths, False, False, 0)
    for b, length in enumerate(lengths.tolist()):
        k[b, :, length:] = torch.nan
        v[b, :, length:] = torch.inf
    got = all_of(module, dout, q, k, v, lengths, False, False, 0)
    assert all(map(torch.equal, got, want))


@pytest.mark.parametrize("dtype", TYPES)
def test_no_keys_at_all(module, dtype):
    q, k, v, dout = halves(dtype, 2, 2, 1, 3, 0, 8)
    out, lse, *grads = all_of(module, dout, q, k, v, None, True, False, 0)
    assert (out == 0).all() and (lse == -torch.inf).all()
    assert [x.shape for x in grads] == [q.shape, k.shape, v.shape] and (grads[0] == 0).all()


@NO_GPU
@pytest.mark.parametrize("dtype", TYPES)
def test_caches_of_more_than_2_31_numbers(module, dtype):
    """Of which a window shows the last ones."""
    q, last, *_ = halves(dtype, 1, 2, 1, 3, 64, 64)
    cache = untouched(1, 1, 2**25 + 100, 64, dtype=dtype)
    cache[:, :, -64:] = last
    how = (None, True, True, 40)
    want = forward_ref(q.double(), last.double(), last.double(), *how)
    check_near(module.flash_attention_forward(q, cache, cache, *how), want, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("which", range(4))
def test_views_that_start_anywhere_give_the_same(module, dtype, D, which):
    """Where 16 bytes cannot be copied at once, the other kernel takes over."""
    given = halves(dtype, 1, 2, 1, 20, 30, D)
    storage = torch.empty(given[which].numel() + 1, dtype=dtype, device=DEVICE)
    given[which] = storage[1:].view(given[which].shape).copy_(given[which])
    q, k, v, dout = given
    check_all(module, dout, q, k, v, None, True, False, 0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("D", [64, 128])
def test_large_scores_do_not_overflow(module, dtype, D):
    """Scores of some 10^4, whose last bit in float32 is worth a thousandth of a weight."""
    q, k, v, dout = halves(dtype, 1, 1, 1, 40, 90, D)
    q, k = 100 * q, 100 * k
    how = (None, True, False, 0)
    got, want = all_of(module, dout, q, k, v, *how), by_autograd(dout, q, k, v, *how)
    for i in (0, 1, 4):
        check_close(got[i], want[i], rtol=2e-2, atol=2e-2)
    # where one weight is nearly 1, ds is what is left of dp - delta, and delta is as exact as out
    left = max(torch.finfo(dtype).eps, 2e-3) * (dout * got[0]).float().abs().sum(-1).max()
    for ours, theirs, factor in ((got[2], want[2], k), (got[3], want[3], q)):
        assert (ours - theirs).abs().max() <= 40 * left * factor.float().abs().max() * D**-0.5


def check_near(got, want, dtype):
    """Check out and lse as wholes, where their size is that of their largest numbers."""
    for x, exact in zip(got, want, strict=True):
        assert (x.double() - exact).norm() <= (torch.finfo(dtype).eps + 1e-5) * exact.norm()


def check_growing(module, dtype, S_q):
    """Check where scores rise by 17 in 128 keys: what was added up before shrinks, tile by tile."""
    q, k, v, _ = halves(dtype, 1, 2, 1, S_q, 400, 64)
    k[..., 0], q[..., 0] = torch.arange(400, device=DEVICE) / 16, 17
    how = (None, False, False, 0)
    want = forward_ref(q.double(), k.double(), v.double(), *how)
    check_near(module.flash_attention_forward(q, k, v, *how), want, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("S_q", [40, 3])
def test_scores_that_grow_along_the_keys(module, dtype, S_q):
    check_growing(module, dtype, S_q)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("S", [100, 12], ids=["many queries", "split keys"])
def test_nan_and_infinity_pass_as_in_pytorch(module, dtype, S):
    nan, inf = torch.nan, torch.inf
    how = (None, True, True, 0)
    q, k, v, dout = halves(dtype, 1, 1, 1, S, 300, 64)
    q[0, 0, 3, 0] = nan  # its row
    k[0, 0, 300 - S + 8, 0] = nan  # all rows that see it
    out, lse, dq, *_ = all_of(module, dout, q, k, v, *how)
    for x in (out, dq, lse[..., None]):
        assert x[0, 0, 3].isnan().all() and x[0, 0, 8:].isnan().all()
    for x in (out, lse[..., None]):
        assert not x[0, 0, :3].isnan().any() and not x[0, 0, 4:8].isnan().any()
    q, k = torch.zeros_like(q), torch.zeros_like(k)
    q[..., 0] = 1
    k[0, 0, :170, 0] = -inf  # weight 0, also where all of a tile, or of a part, has it
    how = (None, False, False, 0)
    out, lse = module.flash_attention_forward(q, k, v, *how)
    check_close(out, v[:, :, 170:].double().mean(2, keepdim=True).expand(out.shape))
    check_close(lse, torch.full_like(lse, 130).log())
    k[0, 0, :, 0] = -inf  # nothing has any weight
    out, lse = module.flash_attention_forward(q, k, v, *how)
    assert (out == 0).all() and (lse == -inf).all()
    k[0, 0, 5, 0] = inf
    assert module.flash_attention_forward(q, k, v, *how)[0].isnan().all()


def test_types_are_not_mixed(module):
    q, k, v, dout = halves(torch.float16, 1, 1, 1, 4, 4, 64)
    how = (None, False, False, 0)
    with pytest.raises(RuntimeError, match="expected q, k and v of one type, got Half, Half, BF"):
        module.flash_attention_forward(q, k, v.bfloat16(), *how)
    out, lse = module.flash_attention_forward(q, k, v, *how)
    with pytest.raises(RuntimeError, match="expected dout, q and out of one type, got Float, Half"):
        module.flash_attention_backward(dout.float(), q, k, v, out, lse, *how)


# size, how: ends within tiles and boxes, heads that share keys, tiles that no query sees
ON_SM_90 = [
    ((1, 2, 1, 200, 300, 64), (True, False, 0)),
    ((1, 2, 1, 130, 300, 128), (True, True, 128)),  # as many as a block has
    ((1, 4, 2, 70, 150, 128), (True, True, 40)),
    ((2, 2, 2, 150, 140, 64), (True, False, 33)),
    ((2, 2, 1, 33, 90, 80), (False, False, 0)),
    ((1, 1, 1, 300, 129, 8), (False, True, 0)),
    ((1, 2, 2, 100, 20, 128), (True, True, 0)),
    ((1, 1, 1, 12, 260, 64), (False, False, 5)),
]


@pytest.fixture(scope="module")
def hopper():
    """The file as sm_90a runs it, on the CPU backend: see hopper.py."""
    return compile_cuda(for_cpu(SOURCE.read_text()))


@NO_GPU
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size, how", ON_SM_90, ids=str)
def test_the_way_of_sm_90(hopper, dtype, size, how):
    check_all(hopper, *in_order(halves(dtype, *size)), None, *how)


# what forward alone has: D up to 256, many heads, whose blocks take works in pairs, windows
FORWARD_ON_SM_90 = [
    ((1, 12, 12, 300, 280, 64), (True, False, 0)),
    ((1, 11, 11, 260, 300, 64), (True, True, 100)),
    ((2, 4, 2, 200, 270, 40), (False, False, 0)),
    ((1, 2, 1, 70, 330, 256), (True, True, 0)),  # more tiles than slots
    ((1, 1, 1, 140, 90, 136), (False, False, 0)),
    ((1, 3, 1, 150, 500, 128), (True, True, 40)),
]


def check_forward(module, dtype, size, how, lengths=None):
    """Check out and lse against float64; what lies behind lengths is no number."""
    q, k, v, _ = halves(dtype, *size)
    out_want, lse_want = forward_ref(q.double(), k.double(), v.double(), lengths, *how)
    for b, length in enumerate([] if lengths is None else lengths.tolist()):
        k[b, :, max(0, length) :], v[b, :, max(0, length) :] = torch.nan, torch.inf
    with poisoned():
        out, lse = module.flash_attention_forward(q, k, v, lengths, *how)
    assert torch.equal(lse == -torch.inf, lse_want == -torch.inf)
    check_close(lse, lse_want, rtol=1e-5, atol=1e-5)
    off = (out.double() - out_want).norm() / torch.finfo(dtype).eps
    assert off <= 0.5 * out_want.norm(), f"{off / out_want.norm():.2f} roundings"


@NO_GPU
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size, how", FORWARD_ON_SM_90, ids=str)
def test_forward_of_sm_90(hopper, dtype, size, how):
    check_forward(hopper, dtype, size, how)


@NO_GPU
@pytest.mark.parametrize("D", [64, 128, 256])
def test_forward_of_sm_90_up_to_lengths(hopper, D):
    lengths = torch.tensor([0, 131, 128, 1000], dtype=torch.int32)
    for causal in (False, True):
        check_forward(hopper, torch.bfloat16, (4, 2, 1, 40, 200, D), (causal, True, 0), lengths)


# what forward waits for, or clears, and what it does without
WAITED_FOR = {
    "products with V": (
        "            wait_for_all_but<0>();\n            hold(o);\n            hold(s);\n",
        "            hold(o);\n            hold(s);\n",
    ),
    "rows of V": ("clear_behind(sight.length - key);", "{}"),
}


@NO_GPU
@pytest.mark.parametrize("what", WAITED_FOR)
def test_what_forward_of_sm_90_waits_for_is_missed(what):
    before, text = WAITED_FOR[what][0], SOURCE.read_text()
    assert text.count(before) == 1
    broken = compile_cuda(for_cpu(text.replace(*WAITED_FOR[what])))
    lengths = torch.tensor([150], dtype=torch.int32)
    with pytest.raises(AssertionError):
        check_forward(broken, torch.float16, (1, 1, 1, 20, 700, 64), (False, False, 0), lengths)


@NO_GPU
@pytest.mark.parametrize("dtype", HALVES)
def test_the_way_of_sm_90_keeps_promises(hopper, dtype):
    test_lengths_of_all_kinds(hopper, dtype, 40, True, 0)
    test_lengths_of_all_kinds(hopper, dtype, 40, False, 9)
    test_what_lies_behind_the_length_is_not_read(hopper, dtype, 40, 64)
    test_large_scores_do_not_overflow(hopper, dtype, 128)
    test_nan_and_infinity_pass_as_in_pytorch(hopper, dtype, 100)
    check_growing(hopper, dtype, 40)
    test_all_is_that_of_pytorch(hopper, dtype, (1, 2, 1, 20, 31, 12), (True, False, 0))
    for which in range(4):
        test_views_that_start_anywhere_give_the_same(hopper, dtype, 64, which)


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "size, how",
    [*ON_SM_90[:-1], *FORWARD_ON_SM_90]
    + [
        ((2, 16, 16, 2000, 3000, D), (causal, True, 0)) for D in (64, 128, 256) for causal in (0, 1)
    ],
    ids=str,
)
def test_forward_by_wgmma(module, dtype, size, how):
    how = (bool(how[0]), *how[1:])
    with torch.profiler.profile() as profiled:
        check_forward(module, dtype, size, how)
    assert "flash_forward_wgmma_kernel" in kernels_of(profiled)
    lengths = torch.tensor([131, size[4]][: size[0]], dtype=torch.int32, device=DEVICE)
    check_forward(module, dtype, size, how, lengths)


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "size, how", [*ON_SM_90, ((2, 8, 2, 2000, 3000, 128), (True, True, 700))], ids=str
)
def test_backward_by_wgmma(module, dtype, size, how):
    """Three times, as blocks come in another order each time; dk and dv are the same."""
    given = in_order(halves(dtype, *size))
    with torch.profiler.profile() as profiled:
        check_all(module, *given, None, *how)
    assert "flash_backward_wgmma_kernel" in kernels_of(profiled)
    first = all_of(module, *given, None, *how)
    for _ in range(2):
        check_all(module, *given, None, *how)
        assert all(map(torch.equal, first[3:], all_of(module, *given, None, *how)[3:]))


@pytest.fixture(scope="module")
def checked():
    return compile_cuda(SOURCE, check=True)


@NO_GPU
@pytest.mark.parametrize(
    "dtype, size, how",
    [
        (torch.float16, (1, 2, 1, 70, 150, 64), "causal lower lengths"),
        (torch.bfloat16, (1, 2, 1, 35, 70, 128), "window 20"),
        (torch.bfloat16, (2, 4, 1, 3, 600, 64), "causal lower lengths"),
        (torch.float16, (1, 12, 1, 3, 300, 80), ""),
        (torch.float32, (1, 2, 1, 3, 300, 130), "lengths"),
    ],
    ids=str,
)
def test_no_fault_is_found(checked, dtype, size, how):
    """With every access checked, at ragged ends and where keys are split."""
    q, k, v, dout = halves(dtype, *size)
    check_all(checked, dout, q, k, v, *options(size[0], *size[3:5], how).values())


@NO_GPU
@pytest.mark.parametrize(
    "dtype, D, S_q",
    [(torch.bfloat16, 64, 40), (torch.float16, 128, 40), (torch.bfloat16, 128, 2)]
    + [(torch.float32, D, 2) for D in (64, 128, 256)],
)
def test_no_banks_conflict(module, dtype, D, S_q):
    q, k, v, dout = halves(dtype, 1, 2, 1, S_q, 70, D)
    how = (None, True, True, 0)
    (out, lse), launches = record(module.flash_attention_forward, q, k, v, *how)
    _, more = record(module.flash_attention_backward, dout, q, k, v, out, lse, *how)
    accesses = [a for launch in launches + more for a in launch.accesses if a.space == "shared"]
    assert accesses and not [a for a in accesses if a.bank_conflicts]
