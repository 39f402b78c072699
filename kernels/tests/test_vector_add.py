"""vector_add against float64, at awkward sizes, on fresh numbers each run, and what it refuses."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def vector_add(kernel):
    return kernel("vector_add").vector_add


@pytest.mark.parametrize(
    "shape",
    [(), (1,), (255,), (256,), (257,), (100_003,), (1823, 781), (3, 5, 7, 11)],
    ids=str,
)
def test_vector_add_is_right_for_every_shape(vector_add, shape):
    a, b = torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE)
    before = a.clone(), b.clone()
    out = vector_add(a, b)
    check_close(out, a.double() + b.double())
    assert out.device == a.device
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])


def test_vector_add_rounds_as_torch_does(vector_add):
    a = torch.tensor([1.0, 1e8, torch.inf, -torch.inf, 3e38, -0.0], device=DEVICE)
    b = torch.tensor([1e-8, 1.0, 1.0, -1.0, 3e38, -0.0], device=DEVICE)
    assert torch.equal(vector_add(a, b), a + b)
    assert vector_add(a[2:3], -a[2:3]).isnan().all()  # inf - inf


def test_vector_add_of_a_tensor_and_itself(vector_add):
    a = torch.randn(300, device=DEVICE)
    assert torch.equal(vector_add(a, a), 2 * a)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)], ids=str)
def test_vector_add_of_nothing_is_nothing(vector_add, shape):
    empty = torch.empty(shape, device=DEVICE)
    assert vector_add(empty, empty).shape == shape


@pytest.mark.parametrize("place", [0, 1])
def test_vector_add_refuses_another_device(vector_add, place):
    inputs = [torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)]
    inputs[place] = torch.empty(4, device="meta")
    with pytest.raises(RuntimeError, match=f"{'ab'[place]}: expected a CUDA tensor, got meta"):
        vector_add(*inputs)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32], ids=str)
def test_vector_add_refuses_other_dtypes(vector_add, place, dtype):
    inputs = [torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)]
    inputs[place] = inputs[place].to(dtype)
    with pytest.raises(RuntimeError, match=f"{'ab'[place]}: expected Float, got"):
        vector_add(*inputs)


@pytest.mark.parametrize("shape", [(6,), (1, 5), (5, 1), ()], ids=str)
def test_vector_add_refuses_two_shapes(vector_add, shape):
    with pytest.raises(RuntimeError, match=r"b: expected \[5\] on"):
        vector_add(torch.ones(5, device=DEVICE), torch.ones(shape, device=DEVICE))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[:, 0]])
def test_vector_add_refuses_tensors_that_are_not_contiguous(vector_add, view):
    strided = view(torch.randn(6, 8, device=DEVICE))
    with pytest.raises(RuntimeError, match="a: expected a contiguous tensor, got strides"):
        vector_add(strided, strided.contiguous())
    with pytest.raises(RuntimeError, match="b: expected a contiguous tensor, got strides"):
        vector_add(strided.contiguous(), strided)
