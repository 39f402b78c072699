"""conv2d_half and its gradients: what they promise (see contract.py), NaN, what is exact."""

import pytest
import torch
from torch.nn.functional import conv2d as conv2d_ref
from torch.nn.grad import conv2d_input

from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from kernels.tests import test_conv2d
from kernels.tests.contract import Case, wrong
from kernels.tests.contract import floats as float32

LAST = torch.channels_last
HALVES = [torch.float16, torch.bfloat16]
PLAIN = (1, 1), (1, 1), (1, 1), 1  # stride, padding, dilation, groups
POINT = (1, 1), (0, 0), (1, 1), 1

# N, C, H, W, C_out, kH, kW, then stride, padding, dilation, groups
SIZES = [
    (2, 4, 5, 6, 6, 3, 2, (2, 1), (1, 2), (1, 2), 2),  # channels that are filled up
    (1, 1, 1, 1, 1, 1, 1, *POINT),
    (2, 3, 7, 5, 10, 3, 3, *PLAIN),  # runs
    (2, 24, 9, 11, 40, 3, 3, *PLAIN),  # taps that begin inside a step
    (3, 16, 14, 14, 66, 3, 3, *PLAIN),  # tiles across images, two tiles of channels
    (2, 136, 5, 9, 33, 1, 1, *POINT),
    (1, 8, 20, 21, 8, 5, 5, (2, 3), (2, 0), (1, 1), 1),  # six stride classes
    (1, 3, 23, 22, 8, 7, 7, (2, 2), (3, 3), (1, 1), 1),
    (1, 3, 30, 31, 8, 11, 11, (4, 4), (2, 2), (1, 1), 1),
    (2, 16, 9, 13, 32, 2, 3, (1, 2), (3, 1), (2, 1), 2),  # a border beyond the filter
    (1, 8, 13, 17, 8, 3, 3, (6, 4), (2, 2), (4, 2), 1),  # common divisors: classes without taps
    (1, 3, 16, 33, 3, 7, 7, (1, 1), (9, 9), (2, 5), 1),  # dilated: filled up
    (5, 8, 2, 2, 8, 3, 3, *PLAIN),  # tiles across many images
    (1, 4, 9, 9, 4, 1, 1, (3, 3), (0, 0), (1, 1), 2),  # pixels that no tap reads
    (1, 8, 3, 4, 8, 3, 3, (7, 9), (2, 1), (1, 1), 1),  # a stride beyond the image
    (0, 8, 5, 5, 8, 3, 3, *PLAIN),
    (2, 0, 5, 5, 8, 3, 3, *PLAIN),
    (2, 8, 5, 5, 0, 3, 3, *PLAIN),
]


def last(x: torch.Tensor, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return x.to(dtype).contiguous(memory_format=LAST) if x.dim() == 4 else x.to(dtype)


def floats(*shape: int) -> torch.Tensor:
    """Return normal random float16 numbers, of images and filters with channels last."""
    return last(float32(*shape))


def arguments(*names):
    """Return the function that makes these arguments, by name, for a size: as for conv2d.cu."""
    make = test_conv2d.arguments(*names)

    def make_halves(*size):
        made = make(*size, False)
        del made["tf32"]
        return {n: last(v) if torch.is_tensor(v) else v for n, v in made.items()}

    return make_halves


def without_tf32(ref):
    return lambda *args: ref(*args, False)


def tolerance(*size):
    return {"rtol": 1e-5 + 1.02 * 2**-11}  # a sum, rounded once


WRONG = test_conv2d.WRONG
CASES = [
    Case(
        "conv2d_half_forward",
        arguments("inp", "weight", "bias"),
        without_tf32(test_conv2d.forward_ref),
        SIZES,
        ragged=wrong("inp", floats, (4, 5, 6), (2, 4, 0, 6))
        + wrong("weight", floats, (6, 4, 3, 2), (6, 2, 3))
        + wrong("bias", floats, (5,), (6, 1))
        + WRONG,
        tolerance=tolerance,
    ),
    Case(
        "conv2d_half_backward_input",
        arguments("dout", "weight", "H", "W"),
        without_tf32(test_conv2d.input_ref),
        SIZES,
        ragged=wrong("dout", floats, (2, 6, 3, 3), (6, 3, 8))
        + wrong("weight", floats, (5, 2, 3, 2), (6, 2, 3))
        + WRONG,
        tolerance=tolerance,
    ),
    Case(
        "conv2d_half_backward_weight",
        arguments("dout", "inp", "kH", "kW"),
        without_tf32(test_conv2d.weight_ref),
        SIZES,
        ragged=wrong("dout", floats, (2, 6, 3, 3), (6, 3, 8))
        + wrong("inp", floats, (1, 4, 5, 6), (4, 5, 6))
        + WRONG,
        tolerance=tolerance,
    ),
]


@pytest.fixture
def conv2d(kernel):
    return kernel("conv2d_half")
