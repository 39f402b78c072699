"""rgb_to_gray against exact whole numbers, at awkward sizes, and what it refuses."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def rgb_to_gray(kernel):
    return kernel("rgb_to_gray").rgb_to_gray


def random_image(*shape):
    return torch.randint(256, shape, dtype=torch.uint8, device=DEVICE)


def gray_ref(rgb):
    r, g, b = rgb.to(torch.int64)
    return ((299 * r + 587 * g + 114 * b + 500) // 1000).to(torch.uint8)


@pytest.mark.parametrize(
    "shape", [(3, 1, 1), (3, 1, 255), (3, 256, 1), (3, 1, 257), (3, 182, 781)], ids=str
)
def test_gray_is_exact(rgb_to_gray, shape):
    inp = random_image(*shape)
    before = inp.clone()
    check_close(rgb_to_gray(inp), gray_ref(inp))
    assert torch.equal(inp, before)


def test_gray_of_every_level_and_of_pure_colors(rgb_to_gray):
    level = torch.arange(256, dtype=torch.uint8, device=DEVICE)[None]
    assert torch.equal(rgb_to_gray(level.expand(3, 1, 256).contiguous()), level)
    pure = 255 * torch.eye(3, dtype=torch.uint8, device=DEVICE)[:, None]
    assert rgb_to_gray(pure).tolist() == [[76, 150, 29]]


@pytest.mark.parametrize("shape", [(3, 0, 0), (3, 0, 5), (3, 7, 0)], ids=str)
def test_gray_of_nothing_is_nothing(rgb_to_gray, shape):
    assert rgb_to_gray(random_image(*shape)).shape == shape[1:]


def test_gray_of_one_image_of_a_batch(rgb_to_gray):
    batch = random_image(4, 3, 9, 31)
    check_close(rgb_to_gray(batch[2]), gray_ref(batch[2]))


def test_gray_refuses_another_device(rgb_to_gray):
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        rgb_to_gray(torch.empty(3, 4, 4, dtype=torch.uint8, device="meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8, torch.bool], ids=str)
def test_gray_refuses_other_dtypes(rgb_to_gray, dtype):
    with pytest.raises(RuntimeError, match="inp: expected Byte, got"):
        rgb_to_gray(torch.ones(3, 4, 4, device=DEVICE).to(dtype))


@pytest.mark.parametrize(
    "shape", [(3,), (3, 4), (4, 4, 3), (1, 4, 4), (2, 3, 4, 4), (0, 4, 4)], ids=str
)
def test_gray_refuses_other_shapes(rgb_to_gray, shape):
    with pytest.raises(RuntimeError, match=r"inp: expected shape \(3, H, W\), got"):
        rgb_to_gray(random_image(*shape))


@pytest.mark.parametrize(
    "view", [lambda a: a.mT, lambda a: a[:, :, ::2], lambda a: a[:, 1:], lambda a: a[:, :, 1:]]
)
def test_gray_refuses_tensors_that_are_not_contiguous(rgb_to_gray, view):
    with pytest.raises(RuntimeError, match="inp: expected a contiguous tensor, got strides"):
        rgb_to_gray(view(random_image(3, 6, 8)))
