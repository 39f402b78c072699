"""linear and its gradients against PyTorch in float64, and what they refuse."""

import pytest
import torch
from torch.nn.functional import linear as linear_ref

from helpers.checks import check_close
from helpers.device import DEVICE

# rows N, inputs K, outputs M
SIZES = [(1, 1, 1), (16, 3136, 128), (7, 128, 10), (33, 5, 129), (3, 781, 257), (130, 2, 1)]


@pytest.fixture
def linear(kernel):
    return kernel("linear")


def random(*shape):
    return torch.randn(shape, device=DEVICE)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_linear_and_gradients(linear, size):
    N, K, M = size
    inputs = random(N, K), random(M, K), random(M)
    exact = [t.double().requires_grad_() for t in inputs]
    expected = linear_ref(*exact)
    dout = random(N, M)
    before = [t.clone() for t in (*inputs, dout)]
    dinp, dweight, dbias = torch.autograd.grad(expected, exact, dout.double())

    # one sum alone may end near 0: its rounding is judged by the size of its terms added at random
    check_close(linear.linear_forward(*inputs), expected, atol=1e-5 * (K + 1) ** 0.5)
    check_close(linear.linear_backward_input(dout, inputs[1]), dinp, atol=1e-5 * M**0.5)
    got_weight, got_bias = linear.linear_backward_weight(dout, inputs[0])
    check_close(got_weight, dweight, atol=1e-5 * N**0.5)
    check_close(got_bias, dbias, atol=1e-5 * N**0.5)
    assert all(map(torch.equal, before, (*inputs, dout)))


def test_linear_keeps_nan_in_its_row(linear):
    inp = random(5, 9)
    inp[3, 4] = torch.nan
    out = linear.linear_forward(inp, random(6, 9), random(6))
    assert out.isnan().all(1).tolist() == [False, False, False, True, False]
    assert out.isnan().sum() == 6


def test_linear_of_nothing(linear):
    bias = random(4)
    assert linear.linear_forward(random(0, 3), random(4, 3), bias).shape == (0, 4)
    assert linear.linear_forward(random(2, 3), random(0, 3), random(0)).shape == (2, 0)
    assert torch.equal(linear.linear_forward(random(2, 0), random(4, 0), bias), bias.expand(2, 4))
    assert linear.linear_backward_input(random(0, 4), random(4, 3)).shape == (0, 3)
    assert linear.linear_backward_input(random(2, 0), random(0, 3)).abs().sum() == 0
    for N, K, M in [(0, 3, 4), (2, 0, 4), (2, 3, 0)]:
        dout = random(N, M)
        dweight, dbias = linear.linear_backward_weight(dout, random(N, K))
        assert dweight.shape == (M, K) and dweight.abs().sum() == 0
        check_close(dbias, dout.double().sum(0), atol=1e-5)


def test_linear_refuses_another_device(linear):
    good, meta = random(3, 3), torch.empty(3, 3, device="meta")
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        linear.linear_forward(meta, good, random(3))
    with pytest.raises(RuntimeError, match="bias: expected a CUDA tensor, got meta"):
        linear.linear_forward(good, good, meta[0])
    with pytest.raises(RuntimeError, match="weight: expected a CUDA tensor, got meta"):
        linear.linear_backward_input(good, meta)
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        linear.linear_backward_weight(good, meta)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32], ids=str)
def test_linear_refuses_other_dtypes(linear, dtype):
    good, bad = random(3, 3), random(3, 3).to(dtype)
    with pytest.raises(RuntimeError, match="weight: expected float32, got"):
        linear.linear_forward(good, bad, random(3))
    with pytest.raises(RuntimeError, match="dout: expected float32, got"):
        linear.linear_backward_input(bad, good)
    with pytest.raises(RuntimeError, match="inp: expected float32, got"):
        linear.linear_backward_weight(good, bad)


@pytest.mark.parametrize("layout", ["1-D", "3-D", "transposed", "strided"])
def test_linear_refuses_other_layouts(linear, layout):
    good = random(6, 6)
    bad = {"1-D": good[0], "3-D": good[None], "transposed": good.T, "strided": good[:, ::2]}[layout]
    with pytest.raises(RuntimeError, match="inp: expected a contiguous tensor, dim 2, got shape"):
        linear.linear_forward(bad, good, random(6))
    with pytest.raises(RuntimeError, match="weight: expected a contiguous tensor, dim 2, got"):
        linear.linear_backward_input(good, bad)
    with pytest.raises(RuntimeError, match="dout: expected a contiguous tensor, dim 2, got"):
        linear.linear_backward_weight(bad, good)
    with pytest.raises(RuntimeError, match="bias: expected a contiguous tensor, dim 1, got"):
        linear.linear_forward(good, good, random(12)[None, ::2])


def test_linear_refuses_sizes_that_do_not_fit(linear):
    with pytest.raises(RuntimeError, match="weight: expected 3 columns on .*, got 4"):
        linear.linear_forward(random(2, 3), random(5, 4), random(5))
    with pytest.raises(RuntimeError, match="bias: expected 5 elements on .*, got 3"):
        linear.linear_forward(random(2, 3), random(5, 3), random(3))
    with pytest.raises(RuntimeError, match="weight: expected 3 rows on .*, got 5"):
        linear.linear_backward_input(random(2, 3), random(5, 3))
    with pytest.raises(RuntimeError, match="inp: expected 2 rows on .*, got 5"):
        linear.linear_backward_weight(random(2, 3), random(5, 3))
