"""vector_add: what it promises (see contract.py), and special values."""

import pytest
import torch

from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

HALF_TYPES = [torch.float16, torch.bfloat16]
SHAPES = [(6, 8), (), (1,), (255,), (256,), (257,), (100_003,), (1823, 781), (3, 5, 7, 11)]
SHAPES += [(0,), (0, 5), (3, 0, 2)]
CASES = [
    Case(
        "vector_add",
        lambda *shape: {"a": floats(*shape), "b": floats(*shape)},
        lambda a, b: a + b,
        SHAPES,
        dtypes=HALF_TYPES,
        ragged=wrong("b", floats, (6, 9), (8, 6), (48,), ()),
    )
]


@pytest.fixture
def vector_add(kernel):
    return kernel("vector_add").vector_add


def test_vector_add_rounds_as_torch_does(vector_add):
    a = torch.tensor([1.0, 1e8, torch.inf, -torch.inf, 3e38, -0.0], device=DEVICE)
    b = torch.tensor([1e-8, 1.0, 1.0, -1.0, 3e38, -0.0], device=DEVICE)
    assert torch.equal(vector_add(a, b), a + b)
    assert vector_add(a[2:3], -a[2:3]).isnan().all()  # inf - inf


def test_vector_add_of_a_tensor_and_itself(vector_add):
    a = torch.randn(300, device=DEVICE)
    assert torch.equal(vector_add(a, a), 2 * a)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF_TYPES])
@pytest.mark.parametrize("n", [1, 3, 4, 8, 260, 1000, 1823])
@pytest.mark.parametrize("shifted", [(0, 0), (1, 0), (0, 1), (1, 1), (4, 8)])
def test_vector_add_of_types_and_views(vector_add, dtype, n, shifted):
    a, b = (torch.randn(n + shift, device=DEVICE).to(dtype)[shift:] for shift in shifted)
    assert torch.equal(vector_add(a, b), a + b)


def test_vector_add_refuses_two_types(vector_add):
    a = torch.randn(10, device=DEVICE)
    with pytest.raises(RuntimeError, match="b: expected contiguous float32, float16 or bfloat16"):
        vector_add(a, a.half())
