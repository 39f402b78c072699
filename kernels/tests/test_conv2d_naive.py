"""conv2d_naive and its gradients: what they promise (see contract.py), NaN, and large planes."""

import pytest
import torch
from torch.nn.functional import conv2d as conv2d_ref
from torch.nn.grad import conv2d_input, conv2d_weight

from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

# N, C, H, W, C_out, kH, kW, padding
SIZES = [
    (2, 3, 5, 6, 4, 3, 2, 1),
    (1, 1, 1, 1, 1, 1, 1, 0),
    (2, 1, 28, 28, 32, 3, 3, 1),
    (3, 32, 14, 14, 64, 3, 3, 1),
    (2, 3, 7, 5, 4, 3, 3, 0),
    (5, 2, 17, 23, 3, 1, 4, 2),
    (1, 3, 37, 41, 2, 5, 3, 4),  # padding beyond the filter: a border of zeros in out
    (2, 2, 9, 11, 3, 7, 6, 3),  # 42 taps, more than a block has warps
    (2, 3, 5, 6, 4, 5, 6, 0),  # out is one pixel
    (3, 2, 3, 300, 2, 3, 3, 1),  # more pixels than a block has threads
    (0, 3, 5, 5, 4, 3, 3, 1),
    (2, 0, 5, 5, 4, 3, 3, 1),
]


def dout_of(N, C, H, W, C_out, kH, kW, padding):
    return floats(N, C_out, H + 2 * padding - kH + 1, W + 2 * padding - kW + 1)


def forward_ref(inp, weight, padding):
    if not inp.shape[1]:  # PyTorch gives as many channels as inp has
        return torch.stack([inp.sum(1)] * weight.shape[0], 1)
    return conv2d_ref(inp, weight, padding=padding)


def input_ref(dout, weight, padding):
    (N, _, H, W), (_, C, kH, kW) = dout.shape, weight.shape
    shape = N, C, H - 2 * padding + kH - 1, W - 2 * padding + kW - 1
    return (
        conv2d_input(shape, weight, dout, padding=padding)
        if dout.numel()
        else dout.new_zeros(shape)
    )


def weight_ref(dout, inp, padding):
    (_, M, H, W), C = dout.shape, inp.shape[1]
    shape = M, C, inp.shape[2] + 2 * padding - H + 1, inp.shape[3] + 2 * padding - W + 1
    if not inp.numel():
        return dout.new_zeros(shape)
    return conv2d_weight(inp, shape, dout, padding=padding)


def arguments(*names):
    """Return the function that makes these arguments, by name, for a size."""

    def make(*size):
        N, C, H, W, C_out, kH, kW, padding = size
        made = {
            "dout": lambda: dout_of(*size),
            "inp": lambda: floats(N, C, H, W),
            "weight": lambda: floats(C_out, C, kH, kW),
        }
        return {name: made[name]() for name in names} | {"padding": padding}

    return make


CASES = [
    Case(
        "conv2d_forward",
        arguments("inp", "weight"),
        forward_ref,
        SIZES,
        ragged=wrong("inp", floats, (3, 5, 6), (1, 2, 3, 5, 6), (2, 3, 0, 6))
        + wrong("weight", floats, (4, 2, 3, 2), (4, 3, 3)),
    ),
    Case(
        "conv2d_backward_input",
        arguments("dout", "weight"),
        input_ref,
        SIZES,
        ragged=wrong("weight", floats, (3, 3, 3, 2), (4, 3, 3)) + wrong("dout", floats, (4, 5, 7)),
    ),
    Case(
        "conv2d_backward_weight",
        arguments("dout", "inp"),
        weight_ref,
        SIZES,
        ragged=wrong("inp", floats, (3, 3, 5, 6), (3, 5, 6))
        + wrong("dout", floats, (4, 5, 7), (2, 4, 9, 6)),
    ),
]


@pytest.fixture
def conv2d(kernel):
    return kernel("conv2d_naive")


def test_conv2d_spreads_a_nan_as_far_as_the_filter(conv2d):
    inp = torch.zeros(1, 1, 6, 6, device=DEVICE)
    inp[0, 0, 2, 3] = torch.nan
    out = conv2d.conv2d_forward(inp, torch.ones(1, 1, 3, 3, device=DEVICE), 1)
    expected = torch.zeros(6, 6, dtype=torch.bool)
    expected[1:4, 2:5] = True
    assert torch.equal(out[0, 0].isnan().cpu(), expected)


def test_conv2d_refuses_planes_that_are_too_large(conv2d):
    with pytest.raises(RuntimeError, match=r"conv2d: expected at most 65535 \* 256 pixels a plane"):
        # a plane of less than 2^24 pixels, which takes 65,536 blocks all the same
        inp = torch.zeros(1, 1, 1, 65535 * 256 + 1, device=DEVICE)
        conv2d.conv2d_forward(inp, floats(1, 1, 1, 1), 0)


def test_conv2d_refuses_paddings_that_do_not_fit(conv2d):
    with pytest.raises(RuntimeError, match="inp: expected at least 7 x 3 pixels"):
        conv2d.conv2d_forward(floats(1, 1, 4, 9), floats(1, 1, 7, 3), 1)
    with pytest.raises(RuntimeError, match="padding -1"):
        conv2d.conv2d_forward(floats(1, 1, 9, 9), floats(1, 1, 3, 3), -1)
    with pytest.raises(RuntimeError, match="dout: expected at least 3 x 3 pixels, got 2 x 5"):
        conv2d.conv2d_backward_input(floats(1, 1, 2, 5), floats(1, 1, 2, 2), 2)
