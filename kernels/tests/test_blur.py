"""blur against an exact reference, borders included, and what it refuses."""

import pytest
import torch
from torch.nn.functional import avg_pool2d

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def blur(kernel):
    return kernel("blur").blur


def blur_ref(inp, radius):
    """Return the exact mean of each window, halves rounded up: sums of bytes fit into float64."""
    size = 2 * radius + 1
    mean = avg_pool2d(inp[None].double(), size, stride=1, padding=radius, count_include_pad=False)
    return (mean[0] + 0.5).to(torch.uint8)


def random_image(*shape):
    return torch.randint(256, shape, dtype=torch.uint8, device=DEVICE)


@pytest.mark.parametrize("radius", [0, 1, 2, 7])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 40), (40, 1), (15, 17), (16, 16), (33, 95), (181, 78)], ids=str
)
def test_blur_is_exact(blur, shape, radius):
    inp = random_image(*shape)
    before = inp.clone()
    check_close(blur(inp, radius), blur_ref(inp, radius))
    assert torch.equal(inp, before)


def test_blur_rounds_halves_up(blur):
    inp = torch.tensor([[0, 1], [1, 0]], dtype=torch.uint8, device=DEVICE)
    assert blur(inp, 1).tolist() == [[1, 1], [1, 1]]  # 2 / 4
    inp[0, 1] = 0
    assert blur(inp, 1).tolist() == [[0, 0], [0, 0]]  # 1 / 4


def test_blur_keeps_a_plain_image(blur):
    for value in (0, 255):
        inp = torch.full((50, 21), value, dtype=torch.uint8, device=DEVICE)
        assert torch.equal(blur(inp, 4), inp)


@pytest.mark.parametrize("radius", [60, 1000])
def test_blur_with_a_window_larger_than_the_image(blur, radius):
    inp = random_image(60, 41)
    mean = (inp.double().mean() + 0.5).to(torch.uint8)
    check_close(blur(inp, radius), mean.expand(60, 41))


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0)], ids=str)
def test_blur_of_nothing_is_nothing(blur, shape):
    assert blur(random_image(*shape), 3).shape == shape


def test_blur_works_on_rows_of_an_image(blur):
    inp = random_image(30, 33)[5:12]
    check_close(blur(inp, 2), blur_ref(inp, 2))


def test_blur_refuses_another_device(blur):
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        blur(torch.empty(4, 4, dtype=torch.uint8, device="meta"), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8, torch.bool], ids=str)
def test_blur_refuses_other_dtypes(blur, dtype):
    with pytest.raises(RuntimeError, match="inp: expected Byte, got"):
        blur(torch.ones(4, 4, device=DEVICE).to(dtype), 1)


@pytest.mark.parametrize("shape", [(), (4,), (3, 4, 4)], ids=str)
def test_blur_refuses_other_shapes(blur, shape):
    with pytest.raises(RuntimeError, match=r"inp: expected shape \(H, W\), got"):
        blur(random_image(*shape), 1)


@pytest.mark.parametrize("radius", [-1, 1001])
def test_blur_refuses_a_radius_out_of_range(blur, radius):
    with pytest.raises(RuntimeError, match=f"radius: expected 0 to 1000, got {radius}"):
        blur(random_image(4, 4), radius)


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[:, 1:]])
def test_blur_refuses_tensors_that_are_not_contiguous(blur, view):
    with pytest.raises(RuntimeError, match="inp: expected a contiguous tensor, got strides"):
        blur(view(random_image(6, 8)), 1)
