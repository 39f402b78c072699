"""rgb_to_gray: what it promises (see contract.py), and pure colours."""

import pytest
import torch

from helpers.device import DEVICE
from kernels.tests.contract import Case, pixels, wrong


def gray_ref(rgb):
    r, g, b = rgb.long()
    return (299 * r + 587 * g + 114 * b + 500) // 1000


CASES = [
    Case(
        "rgb_to_gray",
        lambda H, W: {"inp": pixels(3, H, W)},
        gray_ref,
        [(6, 8), (1, 1), (1, 255), (256, 1), (1, 257), (182, 781), (0, 0), (0, 5), (7, 0)],
        ragged=wrong("inp", pixels, (3,), (3, 4), (4, 4, 3), (1, 4, 4), (2, 3, 4, 4), (0, 4, 4)),
    )
]


@pytest.fixture
def rgb_to_gray(kernel):
    return kernel("rgb_to_gray").rgb_to_gray


def test_gray_of_every_level_and_of_pure_colors(rgb_to_gray):
    level = torch.arange(256, dtype=torch.uint8, device=DEVICE)[None]
    assert torch.equal(rgb_to_gray(level.expand(3, 1, 256).contiguous()), level)
    pure = 255 * torch.eye(3, dtype=torch.uint8, device=DEVICE)[:, None]
    assert rgb_to_gray(pure).tolist() == [[76, 150, 29]]
