"""conv2d and its gradients: what they promise (see contract.py), layouts, NaN, exactness."""

import pytest
import torch
from torch.nn.functional import conv2d as conv2d_ref
from torch.nn.grad import conv2d_input, conv2d_weight

from helpers.checks import check_close
from helpers.device import BACKEND, DEVICE
from kernels.tests.contract import Case, floats, kernels_of, wrong

LAST = torch.channels_last
PLAIN = (1, 1), (1, 1), (1, 1), 1  # stride, padding, dilation, groups
HOW = "stride", "padding", "dilation", "groups"

# N, C, H, W, C_out, kH, kW, then HOW, tf32
SIZES = [
    (2, 4, 5, 6, 6, 3, 2, (2, 1), (1, 2), (1, 2), 2, False),
    (1, 1, 1, 1, 1, 1, 1, (1, 1), (0, 0), (1, 1), 1, False),
    (2, 3, 7, 5, 4, 3, 3, *PLAIN, True),
    (2, 19, 9, 11, 37, 3, 3, *PLAIN, False),  # channels that fill no slab and no tile
    (3, 32, 14, 14, 66, 3, 3, *PLAIN, True),  # tiles across images, two tiles of channels
    (2, 136, 5, 9, 33, 1, 1, (1, 1), (0, 0), (1, 1), 1, False),
    (1, 8, 20, 21, 5, 5, 5, (2, 3), (2, 0), (1, 1), 1, False),
    (2, 12, 9, 13, 8, 2, 3, (1, 2), (3, 1), (2, 1), 4, True),  # a border beyond the filter
    (1, 2, 32, 33, 3, 7, 7, (1, 1), (9, 9), (5, 5), 1, False),  # a window for each tap
    (1, 3, 8, 8, 2, 7, 6, (1, 1), (3, 3), (1, 1), 1, False),  # 42 taps: groups of taps
    (5, 3, 2, 2, 4, 3, 3, *PLAIN, False),  # tiles across many images
    (1, 4, 9, 9, 4, 1, 1, (3, 3), (0, 0), (1, 1), 2, False),  # pixels that no tap reads
    (0, 3, 5, 5, 4, 3, 3, *PLAIN, False),
    (2, 0, 5, 5, 4, 3, 3, *PLAIN, False),
    (2, 3, 5, 5, 0, 3, 3, *PLAIN, False),
]


def out_size(N, C, H, W, C_out, kH, kW, stride, padding, dilation, *_):
    sides = zip((H, W), (kH, kW), stride, padding, dilation, strict=True)
    return N, C_out, *((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d in sides)


def arguments(*names):
    """Return the function that makes these arguments, by name, for a size."""

    def make(*size):
        N, C, H, W, C_out, kH, kW, stride, padding, dilation, groups, tf32 = size
        tensors = {
            "dout": lambda: floats(*out_size(*size)),
            "inp": lambda: floats(N, C, H, W),
            "weight": lambda: floats(C_out, C // groups, kH, kW),
            "bias": lambda: floats(C_out),
        }
        numbers = {"H": H, "W": W, "kH": kH, "kW": kW}
        made = {name: tensors[name]() if name in tensors else numbers[name] for name in names}
        pairs = {"stride": [*stride], "padding": [*padding], "dilation": [*dilation]}
        return made | pairs | {"groups": groups, "tf32": tf32}

    return make


def forward_ref(inp, weight, bias, *how):
    if not inp.shape[1] or not len(weight):  # PyTorch refuses, or gives as many as inp has
        return bias[:, None, None].expand(len(inp), -1, *inp.shape[2:])
    return conv2d_ref(inp, weight, bias, *how[:-1])


def input_ref(dout, weight, H, W, *how):
    shape = len(dout), weight.shape[1] * how[3], H, W
    if not dout.numel() or not weight.numel():
        return dout.new_zeros(shape)
    return conv2d_input(shape, weight, dout, *how[:-1])


def weight_ref(dout, inp, kH, kW, *how):
    shape = dout.shape[1], inp.shape[1] // how[3], kH, kW
    if not inp.numel() or not dout.numel():
        return dout.new_zeros(shape)
    return conv2d_weight(inp, shape, dout, *how[:-1])


def tolerance(*size):
    return {"rtol": 5e-3} if size[-1] else {}  # TF32 has 11 bits: 5e-4 a factor


WRONG = [
    entry
    for name, values in [
        ("stride", [[1], [0, 1], [1, 1, 1], [2**20, 1]]),
        ("padding", [[], [-1, 0]]),
        ("dilation", [[1, 0]]),
        ("groups", [0, 4, -2]),
    ]
    for entry in wrong(name, lambda *of: of[0], *[(value,) for value in values])
]
CASES = [
    Case(
        "conv2d_forward",
        arguments("inp", "weight", "bias"),
        forward_ref,
        SIZES,
        ragged=wrong("inp", floats, (4, 5, 6), (2, 4, 0, 6))
        + wrong("weight", floats, (6, 4, 3, 2), (6, 2, 3))
        + wrong("bias", floats, (5,), (6, 1))
        + WRONG,
        tolerance=tolerance,
    ),
    Case(
        "conv2d_backward_input",
        arguments("dout", "weight", "H", "W"),
        input_ref,
        SIZES,
        ragged=wrong("dout", floats, (2, 6, 3, 3), (6, 3, 8))
        + wrong("weight", floats, (5, 2, 3, 2), (6, 2, 3))
        + WRONG,
        tolerance=tolerance,
    ),
    Case(
        "conv2d_backward_weight",
        arguments("dout", "inp", "kH", "kW"),
        weight_ref,
        SIZES,
        ragged=wrong("dout", floats, (2, 6, 3, 3), (6, 3, 8))
        + wrong("inp", floats, (1, 4, 5, 6), (4, 5, 6))
        + WRONG,
        tolerance=tolerance,
    ),
]


@pytest.fixture
def conv2d(kernel):
    return kernel("conv2d")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function)
@pytest.mark.parametrize("size", [SIZES[0], SIZES[3], SIZES[4], SIZES[5]], ids=str)
def test_channels_last(conv2d, case, size):
    """The layout changes nothing: out has inp's, dinp dout's, and each number is the same."""
    made = case.arguments(*size)
    images = [name for name, value in made.items() if torch.is_tensor(value) and value.dim() == 4]
    function = getattr(conv2d, case.function)
    want = function(*made.values())
    for names in (images, images[:1], images[1:]):
        last = {name: made[name].contiguous(memory_format=LAST) for name in names}
        out = function(*(made | last).values())
        assert torch.equal(out, want)
        follows = images[0] in names and case.function != "conv2d_backward_weight"
        assert out.is_contiguous(memory_format=LAST if follows else torch.contiguous_format)


@pytest.mark.parametrize("tf32", [False, True])
def test_conv2d_spreads_a_nan_as_far_as_the_filter(conv2d, tf32):
    inp = torch.zeros(1, 1, 6, 6, device=DEVICE)
    inp[0, 0, 2, 3] = torch.nan
    weight, bias = torch.ones(1, 1, 3, 3, device=DEVICE), inp.new_empty(0)
    out = conv2d.conv2d_forward(inp, weight, bias, *map(list, PLAIN[:3]), 1, tf32)
    expected = torch.zeros(6, 6, dtype=torch.bool)
    expected[1:4, 2:5] = True
    assert torch.equal(out[0, 0].isnan().cpu(), expected)


def test_conv2d_without_a_bias(conv2d):
    inp, weight = floats(2, 3, 5, 6), floats(4, 3, 3, 3)
    out = conv2d.conv2d_forward(inp, weight, inp.new_empty(0), *map(list, PLAIN[:3]), 1, False)
    check_close(out, conv2d_ref(inp.double(), weight.double(), padding=1))


@pytest.mark.parametrize("tf32", [False, True])
def test_conv2d_is_exact_for_integers_of_11_bits(conv2d, tf32):
    inp = torch.randint(-2047, 2048, (2, 20, 9, 8), device=DEVICE).float()
    weight = torch.randint(-3, 4, (9, 20, 3, 3), device=DEVICE).float()
    how = *map(list, PLAIN[:3]), 1, tf32
    out = conv2d.conv2d_forward(inp, weight, inp.new_empty(0), *how)
    assert torch.equal(out.double(), conv2d_ref(inp.double(), weight.double(), padding=1))
    dinp = conv2d.conv2d_backward_input(out // 2**7, weight, 9, 8, *how)
    assert torch.equal(
        dinp.double(), conv2d_input(inp.shape, weight.double(), (out // 2**7).double(), padding=1)
    )


SM_90 = BACKEND == "cuda" and torch.cuda.get_device_capability() == (9, 0)
LARGE = [  # enough tiles for wgmma; as SIZES
    (40, 19, 61, 57, 70, 3, 3, *PLAIN),  # channels that fill no slab and no tile
    (300, 32, 14, 15, 65, 3, 3, *PLAIN),  # tiles across many images
    (200, 16, 29, 31, 300, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (30, 36, 61, 57, 130, 3, 2, (1, 1), (1, 2), (1, 2), 2),
    (16, 8, 130, 300, 7, 5, 5, (1, 1), (2, 2), (1, 1), 1),  # strips
    (60, 40, 33, 35, 1, 3, 3, (1, 1), (0, 4), (2, 3), 1),  # a border beyond the filter
    (20, 6, 64, 65, 12, 2, 4, (1, 1), (1, 1), (1, 1), 3),
    (64, 24, 40, 41, 32, 7, 7, (1, 1), (15, 15), (5, 5), 1),  # a window for each tap
]
STRIDED = [  # forward only
    (40, 36, 61, 57, 130, 3, 2, (2, 1), (1, 2), (1, 2), 2),
    (64, 64, 56, 56, 64, 2, 2, (2, 2), (0, 0), (1, 1), 1),
    (130, 20, 100, 101, 40, 3, 3, (3, 8), (1, 1), (2, 1), 1),
]


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST], ids=str)
@pytest.mark.parametrize("size", LARGE + STRIDED, ids=str)
def test_wgmma_at_awkward_sizes(conv2d, size, layout, tf32):
    for case in CASES[: 2 if size in LARGE else 1]:
        made = case.arguments(*size, tf32)
        image = next(iter(made))  # inp or dout
        made[image] = made[image].contiguous(memory_format=layout)
        function = getattr(conv2d, case.function)
        with torch.profiler.profile() as profiled:
            out = function(*made.values())
        ran = "conv2d_wgmma_kernel" in kernels_of(profiled)
        copied = layout != LAST or made[image].shape[1] // size[-1] % 4 > 0
        assert ran != (copied and size[5:7] == (1, 1))  # for one tap a copy costs too much
        kept = torch.contiguous_format if made[image].is_contiguous() else LAST
        assert out.is_contiguous(memory_format=kept)  # one channel is both
        exact = [x.double() if torch.is_tensor(x) else x for x in made.values()]
        check_close(out, case.ref(*exact), **tolerance(*size, tf32))


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("tf32", [False, True])
def test_wgmma_of_infinities_and_nan(conv2d, tf32):
    """They spread as far as the filter, an infinity as itself."""
    how = *map(list, PLAIN[:3]), 1, tf32
    inp, weight = torch.rand(40, 16, 56, 56, device=DEVICE), floats(8, 16, 3, 3).abs() + 1
    inp[3, 5, 20, 0], inp[7, 0, 55, 55], inp[9, 15, 0, 30] = torch.inf, torch.nan, -torch.inf
    out = conv2d.conv2d_forward(inp, weight, inp.new_empty(0), *how)
    want = conv2d_ref(inp.double(), weight.double(), padding=1)
    assert torch.equal(out.isnan(), want.isnan())
    assert torch.equal(out.isposinf(), want.isposinf())
    assert torch.equal(out.isneginf(), want.isneginf())


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("tf32", [False, True])
def test_wgmma_is_exact_for_integers_of_11_bits(conv2d, tf32):
    inp = torch.randint(-2047, 2048, (64, 20, 39, 38), device=DEVICE).float()
    weight = torch.randint(-3, 4, (9, 20, 3, 3), device=DEVICE).float()
    how = *map(list, PLAIN[:3]), 1, tf32
    out = conv2d.conv2d_forward(inp, weight, inp.new_empty(0), *how)
    assert torch.equal(out.double(), conv2d_ref(inp.double(), weight.double(), padding=1))


def test_conv2d_refuses_images_that_are_too_large(conv2d):
    inp = torch.zeros(1, device=DEVICE).expand(2, 1, 1, 1)
    with pytest.raises(RuntimeError, match=r"inp: expected less than 2\^31 pixels"):
        how = [1, 1], [32767, 32767], [1, 1], 1, False
        conv2d.conv2d_forward(inp.contiguous(), floats(1, 1, 1, 1), inp.new_empty(0), *how)
