"""matmul against float64, at awkward sizes, on fresh numbers each run, and what it refuses."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def matmul(kernel):
    return kernel("matmul").matmul


def random_pair(M, K, N):
    return torch.randn(M, K, device=DEVICE), torch.randn(K, N, device=DEVICE)


@pytest.mark.parametrize(
    "M, K, N",
    [(1, 1, 1), (16, 16, 16), (17, 15, 33), (1, 300, 1), (50, 1, 40), (1, 7, 500), (182, 78, 45)],
)
def test_matmul_is_right(matmul, M, K, N):
    A, B = random_pair(M, K, N)
    before = A.clone(), B.clone()
    # one sum alone may end near 0: its rounding is judged by the size of K terms added at random
    check_close(matmul(A, B), A.double() @ B.double(), atol=1e-5 * K**0.5)
    assert torch.equal(A, before[0]) and torch.equal(B, before[1])


def test_matmul_adds_long_sums(matmul):
    A, B = random_pair(3, 20_000, 5)
    check_close(matmul(A, B), A.double() @ B.double(), rtol=1e-4)


def test_matmul_by_one_is_exact(matmul):
    A = torch.randn(37, 37, device=DEVICE)
    one = torch.eye(37, device=DEVICE)
    assert torch.equal(matmul(A, one), A)
    assert torch.equal(matmul(one, A), A)


def test_matmul_keeps_infinity_and_nan(matmul):
    A = torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0], [1.0, 1.0]], device=DEVICE)
    out = matmul(A, torch.ones(2, 2, device=DEVICE))
    assert torch.equal(out[0], A[0, :1].expand(2))
    assert out[1].isnan().all()
    assert torch.equal(out[2], torch.full((2,), 2.0, device=DEVICE))


@pytest.mark.parametrize("M, K, N", [(0, 4, 4), (4, 4, 0), (0, 0, 0), (0, 3, 0)])
def test_matmul_to_nothing(matmul, M, K, N):
    assert matmul(*random_pair(M, K, N)).shape == (M, N)


def test_matmul_of_nothing_to_add_is_zero(matmul):
    assert torch.equal(matmul(*random_pair(5, 0, 18)), torch.zeros(5, 18, device=DEVICE))


@pytest.mark.parametrize("place", [0, 1])
def test_matmul_refuses_another_device(matmul, place):
    inputs = list(random_pair(4, 4, 4))
    inputs[place] = torch.empty(4, 4, device="meta")
    with pytest.raises(RuntimeError, match=f"{'AB'[place]}: expected a CUDA tensor, got meta"):
        matmul(*inputs)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_matmul_refuses_other_dtypes(matmul, place, dtype):
    inputs = list(random_pair(4, 4, 4))
    inputs[place] = inputs[place].to(dtype)
    with pytest.raises(RuntimeError, match=f"{'AB'[place]}: expected Float, got"):
        matmul(*inputs)


def test_matmul_refuses_shapes_that_do_not_fit(matmul):
    A, B = random_pair(4, 5, 6)
    with pytest.raises(RuntimeError, match="B: expected 6 rows on .*, got 4 on"):
        matmul(B, A)


@pytest.mark.parametrize("shape", [(), (5,), (1, 4, 5)], ids=str)
def test_matmul_refuses_what_is_no_matrix(matmul, shape):
    A, B = random_pair(4, 5, 4)
    with pytest.raises(RuntimeError, match="A: expected a contiguous matrix"):
        matmul(torch.ones(shape, device=DEVICE), B)
    with pytest.raises(RuntimeError, match="B: expected a contiguous matrix"):
        matmul(A, torch.ones(shape, device=DEVICE))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, 1:]])
def test_matmul_refuses_matrices_that_are_not_contiguous(matmul, view):
    strided = view(torch.randn(6, 6, device=DEVICE))
    fits = torch.randn(6, 6, device=DEVICE)
    with pytest.raises(RuntimeError, match="A: expected a contiguous matrix"):
        matmul(strided, fits)
    with pytest.raises(RuntimeError, match="B: expected a contiguous matrix"):
        matmul(fits, strided)
