"""batch_norm2d, statistics and gradients against PyTorch in float64, and what it refuses."""

import pytest
import torch
from torch.nn.functional import batch_norm

from helpers.checks import check_close
from helpers.device import DEVICE

EPS = 1e-5
SHAPES = [(2, 1, 1, 1), (16, 32, 28, 28), (3, 5, 7, 9), (40, 3, 1, 1), (1, 2, 17, 23)]
SHAPES += [(70, 2, 3, 5)]


@pytest.fixture
def bn(kernel):
    return kernel("batch_norm2d")


def random(*shape):
    return torch.randn(shape, device=DEVICE)


def random_input(*shape):
    """Return an input whose channels have means and spreads of their own."""
    C = shape[1]
    return random(*shape) * (0.5 + 2 * torch.rand(C, 1, 1, device=DEVICE)) + random(C, 1, 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_stats_and_running_stats(bn, shape):
    inp, running_mean, running_var = random_input(*shape), random(shape[1]), random(shape[1]).abs()
    exact = [t.double() for t in (inp, running_mean, running_var)]
    batch_norm(*exact, training=True, momentum=0.3)  # moves the running ones in place

    mean, var = bn.batch_norm2d_stats(inp, running_mean, running_var, 0.3)
    # one mean alone may end near 0: what is allowed belongs to terms of about 1
    check_close(mean, exact[0].mean((0, 2, 3)), atol=1e-5)
    check_close(var, exact[0].var((0, 2, 3), correction=0), atol=1e-5)
    check_close(running_mean, exact[1], atol=1e-5)
    check_close(running_var, exact[2], atol=1e-5)


def test_variance_beside_a_large_mean(bn):
    inp = random(8, 2, 10, 10) + 1000
    _, var = bn.batch_norm2d_stats(inp, random(2), random(2), 0.1)
    # the mean itself is rounded to 1000 * 2^-24: the difference of squares would lose 1e-1
    check_close(var, inp.double().var((0, 2, 3), correction=0), rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_training_and_gradients(bn, shape):
    C = shape[1]
    inputs = random_input(*shape), random(C), random(C)
    exact = [t.double().requires_grad_() for t in inputs]
    expected = batch_norm(exact[0], None, None, *exact[1:], training=True, eps=EPS)
    dout = random(*shape)
    dinp, dweight, dbias = torch.autograd.grad(expected, exact, dout.double())

    inp, weight, bias = inputs
    mean, var = bn.batch_norm2d_stats(inp, random(C), random(C), 0.1)
    check_close(bn.batch_norm2d_forward(inp, mean, var, weight, bias, EPS), expected)
    got = bn.batch_norm2d_backward(dout, inp, mean, var, weight, EPS)
    check_close(got[0], dinp, rtol=5e-5)  # a difference of terms that nearly cancel
    terms = inp[:, 0].numel()
    check_close(got[1], dweight, atol=1e-5 * terms**0.5)
    check_close(got[2], dbias, atol=1e-5 * terms**0.5)


def test_inference_uses_the_statistics_given(bn):
    inp, mean, weight, bias = random(3, 4, 5, 6), random(4), random(4), random(4)
    var = torch.rand(4, device=DEVICE) + 0.1
    exact = [t.double() for t in (inp, mean, var, weight, bias)]
    expected = batch_norm(*exact, training=False, eps=EPS)
    check_close(bn.batch_norm2d_forward(inp, mean, var, weight, bias, EPS), expected)


def test_a_nan_stays_in_its_channel(bn):
    inp = random(4, 3, 5, 5)
    inp[2, 1, 3, 3] = torch.nan
    mean, var = bn.batch_norm2d_stats(inp, random(3), random(3), 0.1)
    assert mean.isnan().tolist() == var.isnan().tolist() == [False, True, False]
    out = bn.batch_norm2d_forward(inp, mean, var, random(3), random(3), EPS)
    assert out.isnan().all((0, 2, 3)).tolist() == [False, True, False]
    assert not out[:, [0, 2]].isnan().any()


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4), (2, 0, 4, 4)], ids=str)
def test_batch_norm_of_nothing(bn, shape):
    inp, c = random(*shape), [random(shape[1]) for _ in range(4)]
    assert bn.batch_norm2d_forward(inp, *c, EPS).shape == shape
    dinp, dweight, dbias = bn.batch_norm2d_backward(inp, inp, *c[:3], EPS)
    assert dinp.shape == shape
    assert torch.equal(dweight, torch.zeros_like(c[0])) and torch.equal(dbias, dweight)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (1, 3, 1, 1)], ids=str)
def test_one_value_has_no_variance(bn, shape):
    with pytest.raises(RuntimeError, match="inp: expected at least 2 values a channel, got shape"):
        bn.batch_norm2d_stats(random(*shape), random(3), random(3), 0.1)


def calls(bn, inp, channel):
    """Return every function, to be called with one input and one tensor of channels."""
    return [
        lambda: bn.batch_norm2d_stats(inp, channel, channel.clone(), 0.1),
        lambda: bn.batch_norm2d_forward(inp, channel, channel, channel, channel, EPS),
        lambda: bn.batch_norm2d_backward(inp, inp, channel, channel, channel, EPS),
    ]


def refused(functions, message):
    for function in functions:
        with pytest.raises(RuntimeError, match=message):
            function()


def test_refuses_another_device(bn):
    good, meta = random(2, 3, 4, 4), torch.empty(2, 3, 4, 4, device="meta")
    refused(calls(bn, meta, random(3)), "inp: expected a CUDA tensor, .* got meta")
    refused(calls(bn, good, meta[0, :, 0, 0]), "mean: expected a CUDA tensor, .* got meta")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32], ids=str)
def test_refuses_other_dtypes(bn, dtype):
    inp, channel = random(2, 3, 4, 4), random(3)
    refused(calls(bn, inp.to(dtype), channel), "inp: expected contiguous float32, got")
    refused(calls(bn, inp, channel.to(dtype)), "mean: expected contiguous float32, got")


def test_refuses_other_layouts(bn):
    inp, channel = random(2, 3, 4, 4), random(3)
    refused(calls(bn, inp.mT, channel), "inp: expected contiguous float32, got Float, strides")
    refused(calls(bn, inp, random(6)[::2]), "mean: expected contiguous float32")
    refused(calls(bn, inp[0], channel), "inp: expected 4 dimensions, got shape")
    with pytest.raises(RuntimeError, match="dout: expected contiguous float32"):
        bn.batch_norm2d_backward(inp.mT, inp, channel, channel, channel, EPS)


def test_refuses_sizes_that_do_not_fit(bn):
    inp, channel = random(2, 3, 4, 4), random(3)
    refused(calls(bn, inp, random(4)), r"mean: expected shape \[3\], got \[4\]")
    refused(calls(bn, inp, random(3, 1)), r"mean: expected shape \[3\], got \[3, 1\]")
    with pytest.raises(RuntimeError, match=r"bias: expected shape \[3\], got \[2\]"):
        bn.batch_norm2d_forward(inp, channel, channel, channel, random(2), EPS)
    with pytest.raises(RuntimeError, match=r"dout: expected shape \[2, 3, 4, 4\], got"):
        bn.batch_norm2d_backward(random(2, 3, 4, 5), inp, channel, channel, channel, EPS)
