"""square: what it promises (see contract.py), and special values."""

import pytest
import torch

from helpers.device import DEVICE
from kernels.tests.contract import Case, floats

SHAPES = [(6, 8), (1,), (255,), (256,), (257,), (1823, 781), (3, 5, 7, 11), (25, 40), ()]
SHAPES += [(0,), (0, 5), (3, 0, 2)]
CASES = [Case("square", lambda *shape: {"inp": floats(*shape)}, lambda inp: inp**2, SHAPES)]


@pytest.fixture
def square(kernel):
    return kernel("square").square


def test_square_of_special_values(square):
    big = torch.finfo(torch.float32).max
    inp = torch.tensor([0.0, -0.0, -3.0, 1e-30, big, torch.inf, -torch.inf], device=DEVICE)
    assert torch.equal(square(inp), inp * inp)
    assert square(torch.tensor([torch.nan], device=DEVICE)).isnan().all()
