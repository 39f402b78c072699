"""max_pool2d and its gradient: what they promise (see contract.py), equals and NaN."""

import pytest
import torch
from torch.nn.functional import max_pool2d as max_pool2d_ref

from helpers.checks import check_close
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

# N, C, H, W, size
SIZES = [(2, 3, 6, 9, 2), (1, 1, 1, 1, 1), (2, 32, 28, 28, 2), (3, 5, 7, 9, 2), (2, 3, 17, 23, 3)]
SIZES += [(1, 2, 6, 5, 5), (2, 1, 45, 37, 1), (4, 3, 2, 701, 2), (0, 3, 4, 4, 2), (2, 0, 5, 4, 2)]
SIZES += [(3, 2, 7, 8, 2), (2, 1, 4, 1000, 2), (1, 5, 37, 264, 2)]  # four windows a thread


def forward_ref(inp, size):
    """Return the maxima, and where in its plane each stands."""
    if not inp.numel():
        N, C, H, W = inp.shape
        none = inp.new_zeros(N, C, H // size, W // size)
        return none, none.long()
    return max_pool2d_ref(inp, size, return_indices=True)


def backward_arguments(N, C, H, W, size):
    out, index = forward_ref(floats(N, C, H, W), size)
    return {"dout": floats(*out.shape), "index": index.int(), "size": size, "H": H, "W": W}


def backward_ref(dout, index, size, H, W):
    dinp = dout.new_zeros(*dout.shape[:2], H * W)
    dinp.scatter_(2, index.long().flatten(2), dout.flatten(2))
    return dinp.view(*dout.shape[:2], H, W)


def exactly(*size):
    return {"rtol": 0, "atol": 0}


def index_of(*shape):
    return torch.zeros(shape, dtype=torch.int32, device=DEVICE)


CASES = [
    Case(
        "max_pool2d_forward",
        lambda N, C, H, W, size: {"inp": floats(N, C, H, W), "size": size},
        forward_ref,
        SIZES,
        ragged=wrong("inp", floats, (3, 6, 9), (6, 9), (1, 2, 3, 6, 9)) + wrong("size", int, 0, 7),
        tolerance=exactly,
    ),
    Case(
        "max_pool2d_backward",
        backward_arguments,
        backward_ref,
        SIZES,
        ragged=wrong("dout", floats, (3, 3, 4)) + wrong("index", index_of, (2, 3, 3, 3), (3, 3, 4)),
        tolerance=exactly,
    ),
]


@pytest.fixture
def pool(kernel):
    return kernel("max_pool2d")


def test_max_pool2d_takes_the_first_of_equals_and_any_nan(pool):
    inp = torch.zeros(1, 1, 4, 4, device=DEVICE)
    inp[0, 0, 1, 2] = torch.nan
    inp[0, 0, 0, 3] = torch.inf
    inp[0, 0, 2:, :2] = -torch.inf
    out, index = pool.max_pool2d_forward(inp, 2)
    expected, expected_index = max_pool2d_ref(inp, 2, return_indices=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    check_close(index.long(), expected_index)
    assert index.flatten().tolist() == [0, 6, 8, 10]


def test_max_pool2d_refuses_sizes_that_do_not_fit(pool):
    out = floats(1, 1, 2, 2)
    for size in (0, -2, 4):
        with pytest.raises(RuntimeError, match=f"size: expected 1 to 3, got {size}"):
            pool.max_pool2d_forward(floats(1, 1, 3, 5), size)
    with pytest.raises(RuntimeError, match=r"index: expected .* shape \[1, 1, 2, 2\], got"):
        pool.max_pool2d_backward(out, floats(1, 1, 2, 3).int(), 2, 4, 4)
    with pytest.raises(RuntimeError, match="dout: expected 6 / size x 4 / size pixels, got 2 x 2"):
        pool.max_pool2d_backward(out, out.int(), 2, 6, 4)


@pytest.mark.parametrize("shift", [1, 4])
def test_max_pool2d_of_a_view(pool, shift):
    inp = torch.randn(2 * 3 * 6 * 16 + shift, device=DEVICE)[shift:].view(2, 3, 6, 16)
    out, index = pool.max_pool2d_forward(inp, 2)
    expected, expected_index = max_pool2d_ref(inp, 2, return_indices=True)
    assert torch.equal(out, expected) and torch.equal(index.long(), expected_index)
    dout = torch.randn(out.numel() + shift, device=DEVICE)[shift:].view(out.shape)
    check_close(
        pool.max_pool2d_backward(dout, index, 2, 6, 16),
        backward_ref(dout.double(), index, 2, 6, 16),
    )


def test_max_pool2d_of_nan_and_equals_by_four_windows(pool):
    inp = torch.randint(3, (2, 3, 6, 16), device=DEVICE).float()
    inp[torch.rand(inp.shape, device=DEVICE) < 0.2] = torch.nan
    out, index = pool.max_pool2d_forward(inp, 2)
    expected, expected_index = max_pool2d_ref(inp, 2, return_indices=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(index.long(), expected_index)
