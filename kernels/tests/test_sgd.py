"""sgd: what it promises (see contract.py), and NaN."""

import pytest
import torch

from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong


def sgd_ref(param, grad, lr):
    exact = param.clone().requires_grad_()
    exact.grad = grad
    torch.optim.SGD([exact], lr=lr).step()
    param.copy_(exact.detach())


CASES = [
    Case(
        "sgd_step",
        lambda *shape: {"param": floats(*shape), "grad": floats(*shape), "lr": 0.37},
        sgd_ref,
        [(6, 8), (), (1,), (255,), (64, 32, 3, 3), (1823, 781), (0, 3)],
        ragged=wrong("grad", floats, (8, 6), (48,), (6, 9)),
        writes=("param",),
    )
]


@pytest.fixture
def sgd_step(kernel):
    return kernel("sgd").sgd_step


def test_sgd_hands_nan_on(sgd_step):
    param, grad = torch.ones(3, device=DEVICE), torch.tensor([1.0, torch.nan, 0.0], device=DEVICE)
    sgd_step(param, grad, 1.0)
    assert param.isnan().tolist() == [False, True, False] and param[0] == 0 and param[2] == 1
