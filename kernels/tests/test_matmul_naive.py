"""matmul_naive: what it promises (see contract.py), long sums and special values."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

# M, K, N
SIZES = [(5, 4, 6), (1, 1, 1), (16, 16, 16), (17, 15, 33), (1, 300, 1), (50, 1, 40), (1, 7, 500)]
SIZES += [(182, 78, 45), (0, 4, 4), (4, 4, 0), (0, 0, 0), (0, 3, 0), (5, 0, 18)]
CASES = [
    Case(
        "matmul_naive",
        lambda M, K, N: {"A": floats(M, K), "B": floats(K, N)},
        lambda A, B: A @ B,
        SIZES,
        ragged=wrong("B", floats, (5, 6), (), (4,), (1, 4, 6))
        + wrong("A", floats, (), (4,), (1, 5, 4)),
        # one sum alone may end near 0: it is judged by the size of K terms added at random
        tolerance=lambda M, K, N: {"atol": 1e-5 * K**0.5},
    )
]


@pytest.fixture
def matmul_naive(kernel):
    return kernel("matmul_naive").matmul_naive


def random_pair(M, K, N):
    return torch.randn(M, K, device=DEVICE), torch.randn(K, N, device=DEVICE)


def test_matmul_naive_adds_long_sums(matmul_naive):
    A, B = random_pair(3, 20_000, 5)
    check_close(matmul_naive(A, B), A.double() @ B.double(), rtol=1e-4)


def test_matmul_naive_by_one_is_exact(matmul_naive):
    A = torch.randn(37, 37, device=DEVICE)
    one = torch.eye(37, device=DEVICE)
    assert torch.equal(matmul_naive(A, one), A)
    assert torch.equal(matmul_naive(one, A), A)


def test_matmul_naive_keeps_infinity_and_nan(matmul_naive):
    A = torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0], [1.0, 1.0]], device=DEVICE)
    out = matmul_naive(A, torch.ones(2, 2, device=DEVICE))
    assert torch.equal(out[0], A[0, :1].expand(2))
    assert out[1].isnan().all()
    assert torch.equal(out[2], torch.full((2,), 2.0, device=DEVICE))
