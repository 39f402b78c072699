"""conv2d and its gradients against PyTorch in float64, and what it refuses."""

import pytest
import torch
from torch.nn.functional import conv2d as conv2d_ref

from helpers.checks import check_close
from helpers.device import DEVICE

# N, C, H, W, C_out, kH, kW, padding
SIZES = [
    (1, 1, 1, 1, 1, 1, 1, 0),
    (2, 1, 28, 28, 32, 3, 3, 1),
    (3, 32, 14, 14, 64, 3, 3, 1),
    (2, 3, 7, 5, 4, 3, 3, 0),
    (5, 2, 17, 23, 3, 1, 4, 2),
    (1, 3, 37, 41, 2, 5, 3, 4),  # padding beyond the filter: a border of zeros in out
    (2, 2, 9, 11, 3, 7, 6, 3),  # 42 taps, more than a block has warps
    (2, 3, 5, 6, 4, 5, 6, 0),  # out is one pixel
    (3, 2, 3, 300, 2, 3, 3, 1),  # more pixels than a block has threads
]


@pytest.fixture
def conv2d(kernel):
    return kernel("conv2d")


def random(*shape):
    return torch.randn(shape, device=DEVICE)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_conv2d_and_gradients(conv2d, size):
    N, C, H, W, C_out, kH, kW, padding = size
    inp, weight = random(N, C, H, W), random(C_out, C, kH, kW)
    exact = [t.double().requires_grad_() for t in (inp, weight)]
    expected = conv2d_ref(*exact, padding=padding)
    dout = random(*expected.shape)
    dinp, dweight = torch.autograd.grad(expected, exact, dout.double())

    check_close(conv2d.conv2d_forward(inp, weight, padding), expected)
    check_close(conv2d.conv2d_backward_input(dout, weight, padding), dinp)
    check_close(conv2d.conv2d_backward_weight(dout, inp, padding), dweight)


def test_conv2d_leaves_its_inputs_alone(conv2d):
    inp, weight, dout = random(2, 3, 6, 6), random(4, 3, 3, 3), random(2, 4, 6, 6)
    before = [t.clone() for t in (inp, weight, dout)]
    conv2d.conv2d_forward(inp, weight, 1)
    conv2d.conv2d_backward_input(dout, weight, 1)
    conv2d.conv2d_backward_weight(dout, inp, 1)
    assert all(map(torch.equal, before, (inp, weight, dout)))


def test_conv2d_is_the_same_every_time(conv2d):
    inp, dout = random(3, 2, 9, 9), random(3, 4, 9, 9)
    first = conv2d.conv2d_backward_weight(dout, inp, 1)
    assert torch.equal(first, conv2d.conv2d_backward_weight(dout, inp, 1))


def test_conv2d_spreads_a_nan_as_far_as_the_filter(conv2d):
    inp = torch.zeros(1, 1, 6, 6, device=DEVICE)
    inp[0, 0, 2, 3] = torch.nan
    out = conv2d.conv2d_forward(inp, torch.ones(1, 1, 3, 3, device=DEVICE), 1)
    expected = torch.zeros(6, 6, dtype=torch.bool)
    expected[1:4, 2:5] = True
    assert torch.equal(out[0, 0].isnan().cpu(), expected)


def test_conv2d_of_nothing(conv2d):
    weight = random(4, 3, 3, 3)
    assert conv2d.conv2d_forward(random(0, 3, 5, 5), weight, 1).shape == (0, 4, 5, 5)
    assert conv2d.conv2d_backward_input(random(0, 4, 5, 5), weight, 1).shape == (0, 3, 5, 5)
    dweight = conv2d.conv2d_backward_weight(random(0, 4, 5, 5), random(0, 3, 5, 5), 1)
    assert torch.equal(dweight, torch.zeros_like(weight))
    no_channels = conv2d.conv2d_forward(random(2, 0, 5, 5), random(4, 0, 3, 3), 1)
    assert torch.equal(no_channels, torch.zeros(2, 4, 5, 5, device=DEVICE))


def test_conv2d_refuses_another_device(conv2d):
    good, meta = random(2, 3, 5, 5), torch.empty(2, 3, 5, 5, device="meta")
    with pytest.raises(RuntimeError, match="inp: expected a CUDA tensor, got meta"):
        conv2d.conv2d_forward(meta, good, 1)
    with pytest.raises(RuntimeError, match="weight: expected a CUDA tensor, got meta"):
        conv2d.conv2d_backward_input(good, meta, 1)
    with pytest.raises(RuntimeError, match="dout: expected a CUDA tensor, got meta"):
        conv2d.conv2d_backward_weight(meta, good, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32], ids=str)
def test_conv2d_refuses_other_dtypes(conv2d, dtype):
    good, bad = random(2, 2, 5, 5), random(2, 2, 5, 5).to(dtype)
    for function in (conv2d.conv2d_forward, conv2d.conv2d_backward_input):
        with pytest.raises(RuntimeError, match="weight: expected float32, got"):
            function(good, bad, 1)
    with pytest.raises(RuntimeError, match="dout: expected float32, got"):
        conv2d.conv2d_backward_weight(bad, good, 1)


@pytest.mark.parametrize(
    "bad",
    [random(2, 5, 5), random(1, 2, 2, 5, 5), random(2, 2, 5, 10)[..., ::2],
     random(2, 2, 5, 5).transpose(2, 3)],
    ids=["3-D", "5-D", "strided", "transposed"],
)  # fmt: skip
def test_conv2d_refuses_other_layouts(conv2d, bad):
    good = random(2, 2, 5, 5)
    with pytest.raises(RuntimeError, match="inp: expected 4 dimensions, contiguous, got shape"):
        conv2d.conv2d_forward(bad, good, 1)
    with pytest.raises(RuntimeError, match="dout: expected 4 dimensions, contiguous, got shape"):
        conv2d.conv2d_backward_input(bad, good, 1)
    with pytest.raises(RuntimeError, match="inp: expected 4 dimensions, contiguous, got shape"):
        conv2d.conv2d_backward_weight(good, bad, 1)


def test_conv2d_refuses_sizes_that_do_not_fit(conv2d):
    with pytest.raises(RuntimeError, match="weight: expected 3 input channels on .*, got 2"):
        conv2d.conv2d_forward(random(1, 3, 5, 5), random(4, 2, 3, 3), 1)
    with pytest.raises(RuntimeError, match="weight: expected 3 output channels on .*, got 4"):
        conv2d.conv2d_backward_input(random(1, 3, 5, 5), random(4, 3, 3, 3), 1)
    with pytest.raises(RuntimeError, match="inp: expected 2 images on .*, got 3"):
        conv2d.conv2d_backward_weight(random(2, 4, 5, 5), random(3, 1, 5, 5), 1)
    with pytest.raises(RuntimeError, match="inp: expected at least 7 x 3 pixels"):
        conv2d.conv2d_forward(random(1, 1, 4, 9), random(1, 1, 7, 3), 1)
    with pytest.raises(RuntimeError, match="padding -1"):
        conv2d.conv2d_forward(random(1, 1, 9, 9), random(1, 1, 3, 3), -1)
    with pytest.raises(RuntimeError, match="dout: expected at least 3 x 3 pixels, got 2 x 5"):
        conv2d.conv2d_backward_input(random(1, 1, 2, 5), random(1, 1, 2, 2), 2)
    with pytest.raises(RuntimeError, match="dout: expected at most 5 x 5 pixels, got 9 x 5"):
        conv2d.conv2d_backward_weight(random(1, 1, 9, 5), random(1, 1, 5, 5), 0)


def test_conv2d_refuses_planes_that_are_too_large(conv2d):
    with pytest.raises(RuntimeError, match=r"inp: expected less than 2\^24 pixels in a plane"):
        conv2d.conv2d_forward(torch.zeros(1, 1, 4096, 4096, device=DEVICE), random(1, 1, 3, 3), 1)
