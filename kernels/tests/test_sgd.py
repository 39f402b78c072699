"""sgd against PyTorch's optimizer, and what it refuses."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def sgd_step(kernel):
    return kernel("sgd").sgd_step


def random(*shape):
    return torch.randn(shape, device=DEVICE)


@pytest.mark.parametrize("shape", [(), (1,), (255,), (64, 32, 3, 3), (1823, 781)], ids=str)
def test_sgd_changes_param_in_place(sgd_step, shape):
    param, grad = random(*shape), random(*shape)
    exact = param.double().requires_grad_()
    exact.grad = grad.double()
    torch.optim.SGD([exact], lr=0.37).step()
    address, before = param.data_ptr(), grad.clone()
    assert sgd_step(param, grad, 0.37) is None
    check_close(param, exact)
    assert param.data_ptr() == address and torch.equal(grad, before)


def test_sgd_hands_nan_on(sgd_step):
    param, grad = torch.ones(3, device=DEVICE), torch.tensor([1.0, torch.nan, 0.0], device=DEVICE)
    sgd_step(param, grad, 1.0)
    assert param.isnan().tolist() == [False, True, False] and param[0] == 0 and param[2] == 1


def test_sgd_of_nothing(sgd_step):
    sgd_step(random(0, 3), random(0, 3), 0.1)


def test_sgd_refuses_what_it_cannot_do(sgd_step):
    meta = torch.empty(3, device="meta")
    with pytest.raises(RuntimeError, match="param: expected a CUDA tensor, got meta"):
        sgd_step(meta, random(3), 0.1)
    with pytest.raises(RuntimeError, match="grad: expected a CUDA tensor, got meta"):
        sgd_step(random(3), meta, 0.1)
    with pytest.raises(RuntimeError, match="grad: expected contiguous float32, got Double"):
        sgd_step(random(3), random(3).double(), 0.1)
    with pytest.raises(RuntimeError, match="param: expected contiguous float32, got .*strides"):
        sgd_step(random(3, 4).T, random(4, 3), 0.1)
    with pytest.raises(RuntimeError, match=r"grad: expected shape \[3, 2\] on .*, got \[3\]"):
        sgd_step(random(3, 2), random(3), 0.1)
