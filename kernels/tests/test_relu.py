"""relu and its gradient: what they promise (see contract.py), and special values."""

import pytest
import torch

from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

SHAPES = [(6, 8), (), (1,), (31,), (257,), (3, 5, 7, 11), (1823, 781), (0,), (0, 3), (4, 0, 2)]


def exactly(*shape):
    return {"rtol": 0, "atol": 0}


CASES = [
    Case(
        "relu_forward",
        lambda *shape: {"inp": floats(*shape)},
        lambda inp: inp.relu(),
        SHAPES,
        tolerance=exactly,
    ),
    Case(
        "relu_backward",
        lambda *shape: {"dout": floats(*shape), "out": floats(*shape).relu()},
        lambda dout, out: dout * (out > 0),
        SHAPES,
        ragged=wrong("dout", floats, (8, 6), (6, 9), (48,), ()),
        tolerance=exactly,
    ),
]


@pytest.fixture
def relu(kernel):
    return kernel("relu")


def test_relu_has_no_slope_at_zero_and_keeps_nan(relu):
    inp = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf], device=DEVICE)
    out = relu.relu_forward(inp)
    torch.testing.assert_close(out, inp.relu(), rtol=0, atol=0, equal_nan=True)
    grad = relu.relu_backward(torch.ones(5, device=DEVICE), out)
    assert grad.tolist() == [0, 0, 1, 1, 0]
