"""blur: what it promises (see contract.py), and how it rounds."""

import pytest
import torch
from torch.nn.functional import avg_pool2d

from helpers.checks import check_close
from helpers.device import DEVICE
from kernels.tests.contract import Case, pixels, wrong


def blur_ref(inp, radius):
    """Return the exact mean of each window, halves rounded up: sums of bytes fit into float64."""
    if not inp.numel():
        return inp.long()
    size = 2 * radius + 1
    mean = avg_pool2d(inp[None].double(), size, stride=1, padding=radius, count_include_pad=False)
    return (mean[0] + 0.5).long()


SHAPES = [(6, 8), (1, 1), (1, 40), (40, 1), (15, 17), (16, 16), (33, 95), (181, 78)]
CASES = [
    Case(
        "blur",
        lambda H, W, radius: {"inp": pixels(H, W), "radius": radius},
        blur_ref,
        [(*shape, radius) for shape in SHAPES for radius in (2, 0, 1, 7)]
        + [(0, 0, 3), (0, 5, 3), (3, 0, 3)],
        ragged=wrong("inp", pixels, (), (4,), (3, 4, 4)) + wrong("radius", int, -1, 1001),
    )
]


@pytest.fixture
def blur(kernel):
    return kernel("blur").blur


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
    inp = pixels(60, 41)
    mean = (inp.double().mean() + 0.5).to(torch.uint8)
    check_close(blur(inp, radius), mean.expand(60, 41))
