"""square against float64, at awkward sizes, on fresh numbers each run, and on inputs it refuses."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def square(kernel):
    return kernel("square").square


@pytest.mark.parametrize(
    "shape",
    [(1,), (255,), (256,), (257,), (1823, 781), (3, 5, 7, 11), (25, 40), ()],
    ids=str,
)
def test_square_is_right_for_every_shape(square, shape):
    inp = torch.randn(shape, device=DEVICE)
    before = inp.clone()
    out = square(inp)
    check_close(out, inp.double() ** 2)
    assert out.dtype == torch.float32
    assert out.device == inp.device
    assert torch.equal(inp, before)


def test_square_of_special_values(square):
    big = torch.finfo(torch.float32).max
    inp = torch.tensor([0.0, -0.0, -3.0, 1e-30, big, torch.inf, -torch.inf], device=DEVICE)
    assert torch.equal(square(inp), inp * inp)
    assert square(torch.tensor([torch.nan], device=DEVICE)).isnan().all()


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)], ids=str)
def test_square_of_nothing_is_nothing(square, shape):
    assert square(torch.empty(shape, device=DEVICE)).shape == shape


def test_square_works_on_a_slice_that_is_contiguous(square):
    inp = torch.randn(10, 33, device=DEVICE)
    check_close(square(inp[3:7]), inp[3:7].double() ** 2)


def test_square_refuses_another_device(square):
    with pytest.raises(RuntimeError, match="square: expected a CUDA tensor, got one on meta"):
        square(torch.empty(4, device="meta"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32], ids=str)
def test_square_refuses_other_dtypes(square, dtype):
    with pytest.raises(RuntimeError, match="square: expected float32, got"):
        square(torch.ones(4, dtype=dtype, device=DEVICE))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[:, 0]])
def test_square_refuses_tensors_that_are_not_contiguous(square, view):
    with pytest.raises(RuntimeError, match="square: expected a contiguous tensor, got strides"):
        square(view(torch.randn(6, 8, device=DEVICE)))
