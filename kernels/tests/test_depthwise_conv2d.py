"""depthwise_conv2d and its gradients: what they promise (see contract.py), NaN, refusals."""

import pytest
import torch
from torch.nn.functional import conv2d
from torch.nn.grad import conv2d_input, conv2d_weight

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from kernels.tests.contract import Case, check_right, floats, wrong

# N, C, H, W, kH, kW, stride, padding, dilation
SIZES = [
    (2, 3, 9, 12, 3, 3, 1, 1, 1),
    (1, 1, 1, 1, 1, 1, 1, 0, 1),
    (2, 3, 7, 7, 7, 7, 1, 3, 1),
    (2, 2, 70, 60, 7, 7, 1, 3, 1),  # rows of 16 bytes; walks above one another
    (3, 2, 21, 23, 7, 7, 1, 3, 1),
    (1, 2, 9, 530, 7, 7, 1, 0, 1),  # warps side by side
    (40, 3, 6, 5, 7, 7, 1, 3, 1),  # planes side by side in a warp
    (2, 3, 14, 12, 5, 5, 1, 2, 1),
    (2, 2, 5, 6, 3, 3, 1, 5, 1),  # padding beyond the filter: a border of bias in out
    (2, 3, 12, 16, 5, 5, 2, 2, 1),
    (2, 2, 33, 300, 7, 7, 2, 3, 1),
    (2, 3, 15, 17, 3, 3, 2, 1, 1),
    (70, 1, 4, 4, 7, 7, 2, 3, 1),  # as many planes as a warp has threads
    (2, 3, 15, 16, 3, 3, 2, 0, 1),  # a column and a row that no output saw
    (2, 3, 12, 16, 3, 3, 2, 1, 1),  # of each filter at stride 2: rows of 16 bytes in inp and out
    (2, 2, 13, 24, 7, 7, 2, 3, 1),
    (2, 3, 14, 11, 5, 5, 1, 2, 1),  # and rows of odd lengths
    (2, 3, 11, 13, 5, 5, 2, 2, 1),
    (1, 2, 9, 16, 5, 5, 1, 0, 1),  # rows of 16 bytes, but not where the filter's windows begin
    (1, 2, 9, 20, 5, 5, 1, 4, 1),
    (2, 2, 12, 16, 3, 3, 1, 5, 1),  # and where they do, by a padding that is 4 larger
    (2, 3, 13, 17, 3, 3, 1, 2, 2),
    (2, 3, 14, 11, 4, 2, 3, 2, 1),
    (2, 2, 9, 9, 9, 1, 1, 0, 1),
    (0, 3, 5, 5, 3, 3, 1, 1, 1),
    (2, 0, 5, 5, 3, 3, 1, 1, 1),
]


def out_size(n, k, stride, padding, dilation):
    return (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1


def dout_of(N, C, H, W, kH, kW, *how):
    return floats(N, C, out_size(H, kH, *how), out_size(W, kW, *how))


def options(C, stride, padding, dilation):
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": C}


def forward_ref(inp, weight, bias, *how):
    if not inp.numel():
        kH, kW = weight.shape[1:]
        H, W = out_size(inp.shape[2], kH, *how), out_size(inp.shape[3], kW, *how)
        return inp.new_zeros(*inp.shape[:2], H, W)
    return conv2d(inp, weight[:, None], bias, **options(inp.shape[1], *how))


def input_ref(dout, weight, H, W, *how):
    shape = *dout.shape[:2], H, W
    if not dout.numel():
        return dout.new_zeros(shape)
    return conv2d_input(shape, weight[:, None], dout, **options(dout.shape[1], *how))


def weight_ref(dout, inp, kH, kW, *how):
    C = inp.shape[1]
    if not inp.numel():
        return inp.new_zeros(C, kH, kW)
    return conv2d_weight(inp, (C, 1, kH, kW), dout, **options(C, *how))[:, 0]


def forward_arguments(N, C, H, W, kH, kW, *how):
    made = {"inp": floats(N, C, H, W), "weight": floats(C, kH, kW), "bias": floats(C)}
    return made | named(how)


def input_arguments(N, C, H, W, kH, kW, *how):
    made = {"dout": dout_of(N, C, H, W, kH, kW, *how), "weight": floats(C, kH, kW)}
    return made | {"H": H, "W": W} | named(how)


def weight_arguments(N, C, H, W, kH, kW, *how):
    made = {"dout": dout_of(N, C, H, W, kH, kW, *how), "inp": floats(N, C, H, W)}
    return made | {"kH": kH, "kW": kW} | named(how)


def named(how):
    return dict(zip(("stride", "padding", "dilation"), how, strict=True))


CASES = [
    Case(
        "depthwise_conv2d_forward",
        forward_arguments,
        forward_ref,
        SIZES,
        ragged=wrong("inp", floats, (3, 9, 12))
        + wrong("inp", floats, (2, 3, 0, 12), (2, 3, 9, 0))
        + wrong("weight", floats, (2, 3, 3), (3, 1, 3, 3))
        + wrong("bias", floats, (2,), (3, 1)),
    ),
    Case(
        "depthwise_conv2d_backward_input",
        input_arguments,
        input_ref,
        SIZES,
        ragged=wrong("weight", floats, (2, 3, 3), (3, 3))
        + wrong("dout", floats, (3, 9, 12), (2, 3, 8, 12), (2, 3, 9, 13)),
    ),
    Case(
        "depthwise_conv2d_backward_weight",
        weight_arguments,
        weight_ref,
        SIZES,
        ragged=wrong("inp", floats, (3, 9, 12))
        + wrong("dout", floats, (3, 9, 12), (2, 3, 8, 12), (2, 2, 9, 12)),
    ),
]


@pytest.fixture
def depthwise(kernel):
    return kernel("depthwise_conv2d")


@pytest.mark.parametrize("size", [(3, 1, 1, 1), (3, 1, 2, 2)])
def test_spreads_a_nan_as_far_as_the_filter(depthwise, size):
    k, stride, padding, dilation = size
    inp, weight = torch.zeros(1, 2, 9, 9, device=DEVICE), torch.ones(2, k, k, device=DEVICE)
    inp[0, 1, 4, 3] = torch.nan
    out = depthwise.depthwise_conv2d_forward(
        inp, weight, inp.new_empty(0), stride, padding, dilation
    )
    expected = torch.zeros(2, 9, 9, dtype=torch.bool)
    expected[1, 4 - dilation : 5 + dilation : dilation, 3 - dilation : 4 + dilation : dilation] = 1
    assert torch.equal(out[0].isnan().cpu(), expected)


@pytest.mark.skipif(BACKEND == "cuda", reason="the sizes are for the CPU backend's 8 SMs")
@pytest.mark.parametrize(
    "size",
    [
        (2560, 3, 2, 4, 3, 3, 1, 1, 1),
        (2560, 3, 3, 3, 5, 5, 1, 2, 1),
        (3840, 3, 2, 8, 7, 7, 2, 3, 1),
    ],
    ids=str,
)
def test_no_fault_is_found_where_a_block_has_many_walks(size):
    """Every access checked: a block's next share of a channel uses the memory of the last one."""
    checked = compile_cuda(ROOT / "kernels" / "depthwise_conv2d.cu", check=True)
    arguments = CASES[2].arguments(*size)
    check_right(checked.depthwise_conv2d_backward_weight, CASES[2], size, arguments)


def test_without_bias(depthwise):
    inp, weight = floats(2, 3, 8, 8), floats(3, 3, 3)
    for how in (1, 1, 1), (1, 1, 2):
        out = depthwise.depthwise_conv2d_forward(inp, weight, inp.new_empty(0), *how)
        zero = depthwise.depthwise_conv2d_forward(inp, weight, inp.new_zeros(3), *how)
        assert torch.equal(out, zero)


def test_refuses_numbers_that_do_not_fit(depthwise):
    inp, weight = floats(1, 1, 4, 9), floats(1, 7, 3)
    bias = inp.new_empty(0)
    with pytest.raises(RuntimeError, match="inp: expected at least 7 x 3 pixels"):
        depthwise.depthwise_conv2d_forward(inp, weight, bias, 1, 1, 1)
    for how in (0, 3, 1), (1, -1, 1), (1, 3, 0), (1, 1 << 20, 1):
        with pytest.raises(RuntimeError, match="inp: expected a filter, stride and dilation"):
            depthwise.depthwise_conv2d_forward(inp, weight, bias, *how)
    with pytest.raises(RuntimeError, match="dout: expected at least 7 x 3 pixels"):
        depthwise.depthwise_conv2d_backward_input(inp, weight, 4, 9, 1, 1, 1)
