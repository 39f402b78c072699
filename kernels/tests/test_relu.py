"""relu and its gradient against PyTorch, and what they refuse."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def relu(kernel):
    return kernel("relu")


def random(*shape):
    return torch.randn(shape, device=DEVICE)


@pytest.mark.parametrize("shape", [(), (1,), (31,), (257,), (3, 5, 7, 11), (1823, 781)], ids=str)
def test_relu_and_gradient(relu, shape):
    inp, dout = random(*shape), random(*shape)
    before = inp.clone()
    exact = inp.double().requires_grad_()
    expected = exact.relu()
    expected.backward(dout.double())

    out = relu.relu_forward(inp)
    check_close(out, expected, rtol=0, atol=0)
    check_close(relu.relu_backward(dout, out), exact.grad, rtol=0, atol=0)
    assert torch.equal(inp, before)


def test_relu_has_no_slope_at_zero_and_keeps_nan(relu):
    inp = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf], device=DEVICE)
    out = relu.relu_forward(inp)
    torch.testing.assert_close(out, inp.relu(), rtol=0, atol=0, equal_nan=True)
    grad = relu.relu_backward(torch.ones(5, device=DEVICE), out)
    assert grad.tolist() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0, 2)], ids=str)
def test_relu_of_nothing_is_nothing(relu, shape):
    assert relu.relu_forward(random(*shape)).shape == shape
    assert relu.relu_backward(random(*shape), random(*shape)).shape == shape


def test_relu_refuses_another_device(relu):
    meta = torch.empty(3, device="meta")
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        relu.relu_forward(meta)
    with pytest.raises(RuntimeError, match="out: expected a CUDA tensor, got meta"):
        relu.relu_backward(random(3), meta)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_relu_refuses_other_dtypes(relu, dtype):
    with pytest.raises(RuntimeError, match="inp: expected contiguous float32, got"):
        relu.relu_forward(torch.ones(3, dtype=dtype, device=DEVICE))
    with pytest.raises(RuntimeError, match="dout: expected contiguous float32, got"):
        relu.relu_backward(torch.ones(3, dtype=dtype, device=DEVICE), random(3))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[:, 1:]])
def test_relu_refuses_tensors_that_are_not_contiguous(relu, view):
    with pytest.raises(RuntimeError, match="inp: expected contiguous float32, got .*strides"):
        relu.relu_forward(view(random(6, 8)))
    with pytest.raises(RuntimeError, match="out: expected contiguous float32, got .*strides"):
        relu.relu_backward(random(6, 8), view(random(6, 8)))


def test_relu_refuses_shapes_that_differ(relu):
    with pytest.raises(RuntimeError, match=r"dout: expected shape \[2, 3\] on .*, got \[3, 2\]"):
        relu.relu_backward(random(3, 2), random(2, 3))
