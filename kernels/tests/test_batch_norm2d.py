"""batch_norm2d and its gradient: what they promise (see contract.py), NaN, large means."""

import pytest
import torch
from torch.nn.functional import batch_norm

from helpers.checks import check_close, poisoned
from helpers.device import BACKEND, DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats, wrong

EPS = 0.3  # shows where it is forgotten or stands outside the root
SHAPES = [(2, 3, 4, 5), (16, 32, 28, 28), (3, 5, 7, 9), (40, 3, 1, 1), (1, 2, 17, 23)]
SHAPES += [(70, 2, 3, 5)]
EMPTY = [(0, 3, 4, 4), (2, 3, 0, 4), (2, 0, 4, 4)]


def inp_of(N, C, H, W):
    """Return an input whose channels have means and spreads of their own."""
    spread = 0.5 + 2 * torch.rand(C, 1, 1, device=DEVICE)
    return floats(N, C, H, W) * spread + floats(C, 1, 1)


def statistics(inp):
    """Return mean and variance of each channel, of the batch where it has more than one value."""
    C, terms = inp.shape[1], inp[:, 0].numel() if inp.shape[1] else 0
    if terms < 2:
        return {"mean": floats(C), "var": floats(C).abs()}
    exact = inp.double()
    moments = exact.mean((0, 2, 3)), exact.var((0, 2, 3), correction=0)
    return dict(zip(("mean", "var"), (m.float() for m in moments), strict=True))


def stats_arguments(*shape):
    C = shape[1]
    running = {"running_mean": floats(C), "running_var": floats(C).abs()}
    return {"inp": inp_of(*shape)} | running | {"momentum": 0.3}


def stats_ref(inp, running_mean, running_var, momentum):
    batch_norm(inp, running_mean, running_var, training=True, momentum=momentum)  # moves them
    return inp.mean((0, 2, 3)), inp.var((0, 2, 3), correction=0)


def forward_arguments(*shape):
    """With statistics of another batch, as in inference."""
    C = shape[1]
    given = {"mean": floats(C), "var": torch.rand(C, device=DEVICE) + 0.1}
    return {"inp": inp_of(*shape)} | given | {"weight": floats(C), "bias": floats(C), "eps": EPS}


def forward_ref(inp, mean, var, weight, bias, eps):
    columns = (t[:, None, None] for t in (mean, var, weight, bias))
    mean, var, weight, bias = columns
    return (inp - mean) / (var + eps).sqrt() * weight + bias


def train_arguments(*shape):
    more = {"weight": floats(shape[1]), "bias": floats(shape[1])}
    stats = stats_arguments(*shape)
    momentum = stats.pop("momentum")
    return stats | more | {"momentum": momentum, "eps": EPS}


def train_ref(inp, running_mean, running_var, weight, bias, momentum, eps):
    mean, var = stats_ref(inp, running_mean, running_var, momentum)
    return forward_ref(inp, mean, var, weight, bias, eps), mean, var


def backward_arguments(*shape):
    inp = inp_of(*shape)
    return {"dout": floats(*shape), "inp": inp, **statistics(inp), "weight": floats(shape[1]),
            "eps": EPS}  # fmt: skip


def backward_ref(dout, inp, mean, var, weight, eps):
    if not inp.numel():
        return dout, torch.zeros_like(mean), torch.zeros_like(mean)
    inputs = [t.requires_grad_() for t in (inp, weight, torch.zeros_like(weight))]
    out = batch_norm(inputs[0], None, None, *inputs[1:], training=True, eps=eps)
    return torch.autograd.grad(out, inputs, dout)


def of_terms(N, C, H, W):
    """One sum alone may end near 0: it is judged by the size of its terms added at random."""
    return {"atol": 1e-5 * max(1, N * H * W) ** 0.5}


BAD_INP = wrong("inp", floats, (3, 4, 5), (1, 2, 3, 4, 5))
CHANNEL = [(4,), (3, 1), ()]
CASES = [
    Case(
        "batch_norm2d_stats",
        stats_arguments,
        stats_ref,
        SHAPES,
        ragged=BAD_INP
        + wrong("running_mean", floats, *CHANNEL)
        + wrong("running_var", floats, *CHANNEL),
        # one mean alone may end near 0: what is allowed belongs to terms of about 1
        tolerance=lambda *shape: {"atol": 1e-5},
        writes=("running_mean", "running_var"),
    ),
    Case(
        "batch_norm2d_forward",
        forward_arguments,
        forward_ref,
        SHAPES + EMPTY,
        ragged=BAD_INP
        + [w for name in ("mean", "var", "weight", "bias") for w in wrong(name, floats, *CHANNEL)],
    ),
    Case(
        "batch_norm2d_train",
        train_arguments,
        train_ref,
        SHAPES,
        ragged=BAD_INP
        + [
            w
            for name in ("running_mean", "running_var", "weight", "bias")
            for w in wrong(name, floats, *CHANNEL)
        ],
        tolerance=lambda *shape: {"atol": 2e-5},  # as for the statistics, times weight
        writes=("running_mean", "running_var"),
    ),
    Case(
        "batch_norm2d_backward",
        backward_arguments,
        backward_ref,
        SHAPES + EMPTY,
        ragged=BAD_INP
        + wrong("dout", floats, (2, 3, 4, 6), (3, 4, 5))
        + [w for name in ("mean", "var", "weight") for w in wrong(name, floats, *CHANNEL)],
        tolerance=of_terms,
    ),
]


@pytest.fixture
def bn(kernel):
    return kernel("batch_norm2d")


def test_variance_beside_a_large_mean(bn):
    inp = floats(8, 2, 10, 10) + 1000
    _, var = bn.batch_norm2d_stats(inp, floats(2), floats(2), 0.1)
    # the mean itself is rounded to 1000 * 2^-24: the difference of squares would lose 1e-1
    check_close(var, inp.double().var((0, 2, 3), correction=0), rtol=1e-4)


def test_a_plain_channel_has_no_more_than_its_bias(bn):
    """Its variance is 0: what is divided by is the root of eps, which is small as a rule."""
    inp, weight, bias = torch.full((3, 2, 5, 7), 4.5, device=DEVICE), floats(2), floats(2)
    mean, var = bn.batch_norm2d_stats(inp, floats(2), floats(2), 0.1)
    assert mean.tolist() == [4.5, 4.5] and var.tolist() == [0, 0]
    out = bn.batch_norm2d_forward(inp, mean, var, weight, bias, 1e-5)
    assert torch.equal(out, bias[:, None, None].expand_as(out))
    dout = floats(3, 2, 5, 7)
    dinp, dweight, _ = bn.batch_norm2d_backward(dout, inp, mean, var, weight, 1e-5)
    assert dweight.tolist() == [0, 0]
    expected = (dout.double() - dout.double().mean((0, 2, 3), keepdim=True)) * 1e5**0.5
    check_close(dinp, expected * weight.double()[:, None, None])


def test_a_nan_stays_in_its_channel(bn):
    inp = floats(4, 3, 5, 5)
    inp[2, 1, 3, 3] = torch.nan
    mean, var = bn.batch_norm2d_stats(inp, floats(3), floats(3), 0.1)
    assert mean.isnan().tolist() == var.isnan().tolist() == [False, True, False]
    out = bn.batch_norm2d_forward(inp, mean, var, floats(3), floats(3), EPS)
    assert out.isnan().all((0, 2, 3)).tolist() == [False, True, False]
    assert not out[:, [0, 2]].isnan().any()


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (1, 3, 1, 1)], ids=str)
def test_one_value_has_no_variance(bn, shape):
    with pytest.raises(RuntimeError, match="inp: expected at least 2 values a channel, got shape"):
        bn.batch_norm2d_stats(floats(*shape), floats(3), floats(3), 0.1)


SMS = torch.cuda.get_device_properties(0).multi_processor_count if BACKEND == "cuda" else 8
PLACES = SMS * 448 * 4  # numbers of a channel, of which each block has four a thread
HELD = [(1, 2, 1, PLACES), (3, 3, 4, PLACES // 4 + 4), (16, 5, 4, PLACES // 32 - 8)]


def is_held(bn, inp):
    """Return whether one kernel does it all: that which holds its input in shared memory."""
    vectors = [torch.ones(inp.shape[1], device=DEVICE) for _ in range(4)]
    return len(trace(bn.batch_norm2d_train, inp, *vectors, 0.1, EPS).launches) == 1


@pytest.mark.parametrize("shape", HELD, ids=str)
def test_channels_that_the_chip_holds(bn, shape):
    """Full and partial shares, an odd number of channels, a large mean, one number far off."""
    arguments = train_arguments(*shape)
    inp = arguments["inp"].add_(300)
    inp[0, :, 0, 0] = 0
    exact = [v.double() if isinstance(v, torch.Tensor) else v for v in arguments.values()]
    with poisoned():
        got = bn.batch_norm2d_train(*arguments.values())
    for a, b in zip(got, train_ref(*exact), strict=True):
        check_close(a, b, rtol=1e-4)
    check_close(arguments["running_mean"], exact[1])
    check_close(arguments["running_var"], exact[2], rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (3, 5, 7, 9), *HELD[:2]], ids=str)
def test_running_statistics_become_those_of_the_batch(bn, shape):
    """From 0 with a momentum of 1, so that nothing stands beside them: the unbiased variance."""
    inp, C = inp_of(*shape), shape[1]
    exact = inp.double()
    mean, var = exact.mean((0, 2, 3)), exact.var((0, 2, 3))  # of n - 1
    of_inp = {"atol": 1e-6}, {"rtol": 3e-6, "atol": 0}
    for function, more in ((bn.batch_norm2d_stats, ()), (bn.batch_norm2d_train, (EPS,))):
        running = [torch.zeros(C, device=DEVICE) for _ in range(2)]
        others = [floats(C), floats(C)] if more else []
        function(inp, *running, *others, 1.0, *more)
        for got, want, allowed in zip(running, (mean, var), of_inp, strict=True):
            check_close(got, want, **allowed)


@pytest.mark.skipif(BACKEND == "cuda", reason="it counts launches on the CPU backend")
def test_which_channels_are_held(bn):
    inp = floats(*HELD[0])
    view = floats(inp.numel() + 1)[1:].view(inp.shape)  # not aligned to 16 bytes
    small, odd = floats(1, 2, 1, PLACES - 4), floats(3, 2, 1, PLACES // 2 + 1)
    assert is_held(bn, inp)
    assert [is_held(bn, x) for x in (view, small, odd)] == [False] * 3


def test_a_nan_stays_in_its_channel_where_it_is_held(bn):
    inp = floats(2, 4, 4, PLACES // 8)
    inp[1, 2, 3, 3] = torch.nan
    out, mean, var = bn.batch_norm2d_train(inp, *floats(4, 4).abs(), 0.1, EPS)
    expected = [False, False, True, False]
    assert mean.isnan().tolist() == var.isnan().tolist() == expected
    assert (
        out.isnan().all((0, 2, 3)).tolist() == expected == out.isnan().any(3).any(2).any(0).tolist()
    )
