"""max_pool2d and its gradient against PyTorch, and what they refuse."""

import pytest
import torch
from torch.nn.functional import max_pool2d as max_pool2d_ref

from helpers.checks import check_close
from helpers.device import DEVICE

# N, C, H, W, size
SIZES = [(1, 1, 1, 1, 1), (2, 32, 28, 28, 2), (3, 5, 7, 9, 2), (2, 3, 17, 23, 3), (1, 2, 6, 5, 5)]
SIZES += [(2, 1, 45, 37, 1), (4, 3, 2, 701, 2)]


@pytest.fixture
def pool(kernel):
    return kernel("max_pool2d")


def random(*shape):
    return torch.randn(shape, device=DEVICE)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_max_pool2d_and_gradient(pool, size):
    *shape, window = size
    inp = random(*shape)
    before = inp.clone()
    exact = inp.double().requires_grad_()
    expected, expected_index = max_pool2d_ref(exact, window, return_indices=True)
    dout = random(*expected.shape)
    expected.backward(dout.double())

    out, index = pool.max_pool2d_forward(inp, window)
    check_close(out, expected, rtol=0, atol=0)
    check_close(index.long(), expected_index)
    dinp = pool.max_pool2d_backward(dout, index, window, *shape[2:])
    check_close(dinp, exact.grad, rtol=0, atol=0)
    assert index.dtype == torch.int32 and torch.equal(inp, before)


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


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 0, 5, 4)], ids=str)
def test_max_pool2d_of_nothing_is_nothing(pool, shape):
    out, index = pool.max_pool2d_forward(random(*shape), 2)
    assert out.shape == index.shape == (*shape[:2], 2, 2)
    assert pool.max_pool2d_backward(out, index, 2, *shape[2:]).shape == shape


def test_max_pool2d_refuses_another_device(pool):
    meta, index = torch.empty(1, 1, 2, 2, device="meta"), torch.zeros(1, 1, 2, 2).int()
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        pool.max_pool2d_forward(meta, 2)
    with pytest.raises(RuntimeError, match="dout: expected a CUDA tensor, got meta"):
        pool.max_pool2d_backward(meta, index, 2, 4, 4)
    with pytest.raises(RuntimeError, match="index: expected a CUDA tensor, got meta"):
        pool.max_pool2d_backward(random(1, 1, 2, 2), index.to("meta"), 2, 4, 4)


def test_max_pool2d_refuses_other_dtypes(pool):
    out = random(1, 1, 2, 2)
    with pytest.raises(RuntimeError, match="inp: expected Float, got Double"):
        pool.max_pool2d_forward(random(1, 1, 4, 4).double(), 2)
    with pytest.raises(RuntimeError, match="dout: expected Float, got Half"):
        pool.max_pool2d_backward(out.half(), out.int(), 2, 4, 4)
    with pytest.raises(RuntimeError, match="index: expected Int, got Long"):
        pool.max_pool2d_backward(out, out.long(), 2, 4, 4)


@pytest.mark.parametrize("view", [lambda a: a[0], lambda a: a.mT, lambda a: a[..., ::2]])
def test_max_pool2d_refuses_other_layouts(pool, view):
    bad, good = view(random(1, 2, 6, 6)), random(1, 2, 3, 3)
    with pytest.raises(RuntimeError, match="inp: expected 4 dimensions, contiguous, got shape"):
        pool.max_pool2d_forward(bad, 2)
    with pytest.raises(RuntimeError, match="dout: expected 4 dimensions, contiguous, got shape"):
        pool.max_pool2d_backward(bad, good.int(), 2, 6, 6)


def test_max_pool2d_refuses_sizes_that_do_not_fit(pool):
    out = random(1, 1, 2, 2)
    for size in (0, -2, 4):
        with pytest.raises(RuntimeError, match=f"size: expected 1 to 3, got {size}"):
            pool.max_pool2d_forward(random(1, 1, 3, 5), size)
    with pytest.raises(RuntimeError, match=r"index: expected shape \[1, 1, 2, 2\] on .*, got"):
        pool.max_pool2d_backward(out, random(1, 1, 2, 3).int(), 2, 4, 4)
    with pytest.raises(RuntimeError, match="dout: expected 6 / size x 4 / size pixels, got 2 x 2"):
        pool.max_pool2d_backward(out, out.int(), 2, 6, 4)
