"""conv2d_half and its gradients: what they promise (see contract.py), NaN, what is exact."""

import itertools

import pytest
import torch
from torch.nn.functional import conv2d as conv2d_ref
from torch.nn.grad import conv2d_input

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace.from_cpu_backend import record
from kernels.tests import test_conv2d
from kernels.tests.contract import Case, kernels_of, unit_of_type, untouched, wrong
from kernels.tests.contract import floats as float32
from kernels.tests.hopper_loops import with_loops

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
    (2, 3, 12, 9, 5, 3, 3, (1, 2), (1, 1), (3, 1), 1),  # runs of rows apart
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


# of which the tiles are large
LARGE = {
    "conv2d_half_forward": [(4, 8, 32, 32, C_out, 1, 1, *POINT) for C_out in (128, 64)],
    "conv2d_half_backward_input": [(4, C, 32, 32, 8, 1, 1, *POINT) for C in (128, 64)],
    "conv2d_half_backward_weight": [
        (1, 56, 4, 8, 256, 3, 3, *PLAIN),
        (1, 3, 4, 8, 1024, 3, 11, (1, 1), (1, 5), (1, 1), 1),
    ],
}
HOW = [*map(list, PLAIN[:3]), 1]


def nothing(like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(0)


def marked(C: int, dtype: torch.dtype) -> torch.Tensor:
    """Return images of positive numbers with a NaN and an infinity of each sign, far apart."""
    images = last(torch.rand(2, C, 9, 8, device=DEVICE) + 1, dtype)
    images[0, 0, 2, 3], images[1, C - 1, 5, 4] = torch.nan, torch.inf
    images[1, C - 1, 0, 0] = -torch.inf
    return images


def same_kinds(got: torch.Tensor, want: torch.Tensor) -> None:
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(kind(got), kind(want)) and kind(want).any()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("C", [1, 8, 24])
def test_nan_and_infinity_spread_as_far_as_the_filter(conv2d, dtype, C):
    images = marked(C, dtype)
    weight = last(torch.rand(8, C, 3, 3, device=DEVICE) + 1, dtype)
    for stride in ([1, 1], [2, 1]):
        how = stride, [1, 1], [1, 1], 1
        out = conv2d.conv2d_half_forward(images, weight, nothing(images), *how)
        same_kinds(out, conv2d_ref(images.double(), weight.double(), None, *how))
    back = last(weight.transpose(0, 1), dtype)
    dinp = conv2d.conv2d_half_backward_input(images, back, 9, 8, *HOW)
    same_kinds(dinp, conv2d_input((2, 8, 9, 8), back.double(), images.double(), padding=1))


@pytest.mark.parametrize("C", [3, 8])
def test_nan_and_infinity_reach_the_taps_that_meet_them(conv2d, C):
    """In the gradient of weight: without a border, whose zeros would meet them."""
    images = marked(C, torch.float16)
    dout = last(torch.rand(2, 8, 7, 7, device=DEVICE) + 1)
    how = [1, 1], [0, 0], [1, 1], 1
    got = conv2d.conv2d_half_backward_weight(dout, images, 3, 2, *how)
    want = test_conv2d.weight_ref(dout.double(), images.double(), 3, 2, *how, False)
    assert torch.equal(got.isnan(), want.isnan()) and want.isnan().any()
    assert torch.equal(got.isinf(), want.isinf()) and want.isinf().any()


@pytest.mark.parametrize("dtype", HALVES)
def test_is_exact_for_whole_numbers(conv2d, dtype):
    """Sums of hundreds of products up to 2^11, of which a result has 8 bits at least."""
    inp = last(torch.randint(-8, 9, (2, 40, 9, 8), device=DEVICE), dtype)
    weight = last(torch.randint(-1, 2, (16, 40, 3, 3), device=DEVICE), dtype)
    out = conv2d.conv2d_half_forward(inp, weight, nothing(inp), *HOW)
    want = conv2d_ref(inp.double(), weight.double(), padding=1)
    assert torch.equal(out, want.to(dtype))
    dout = last(torch.randint(-8, 9, want.shape, device=DEVICE), dtype)
    dinp = conv2d.conv2d_half_backward_input(dout, weight, 9, 8, *HOW)
    assert torch.equal(
        dinp, conv2d_input(inp.shape, weight.double(), dout.double(), 1, 1).to(dtype)
    )
    dweight = conv2d.conv2d_half_backward_weight(dout, inp, 3, 3, *HOW)
    want = test_conv2d.weight_ref(dout.double(), inp.double(), 3, 3, *HOW, False)
    assert torch.equal(dweight, want.to(dtype))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function)
def test_results_have_their_channels_last(conv2d, case):
    for size in (SIZES[0], SIZES[3]):
        out = getattr(conv2d, case.function)(*case.arguments(*size).values())
        assert out.is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function)
def test_refuses_channels_first(conv2d, case):
    made = case.arguments(*SIZES[3])
    for name in [name for name, value in made.items() if torch.is_tensor(value)][:2]:
        wrong = made | {name: made[name].contiguous()}
        with pytest.raises(RuntimeError, match=f"{name}: expected .*channels_last.* got"):
            getattr(conv2d, case.function)(*wrong.values())


def test_refuses_images_that_are_too_large(conv2d):
    inp = floats(2, 1, 1, 1)
    with pytest.raises(RuntimeError, match=r"inp: expected less than 2\^31 pixels"):
        how = [1, 1], [32767, 32767], [1, 1], 1
        conv2d.conv2d_half_forward(inp, floats(1, 1, 1, 1), nothing(inp), *how)


@pytest.mark.skipif(BACKEND == "cuda", reason="test_huge.py has what a GPU has memory for")
@pytest.mark.parametrize("C, W", [(64, 1025), (3, 21_900)])
def test_images_of_more_than_2_31_numbers(conv2d, C, W):
    """Of which a stride shows the corners."""
    inp = untouched(1, 32_769, W, C, dtype=torch.float16).permute(0, 3, 1, 2)
    corners, weight, stride = floats(1, C, 4, 4), floats(8, C, 2, 2), [32_767, W - 2]
    for y, x in itertools.product((0, 1), (0, 1)):
        of_inp = inp[:, :, y * stride[0] :, x * stride[1] :]
        of_inp[:, :, :2, :2] = corners[:, :, 2 * y :, 2 * x :][:, :, :2, :2]
    how = [0, 0], [1, 1], 1
    out = conv2d.conv2d_half_forward(inp, weight, nothing(inp), stride, *how)
    check_close(out, conv2d_ref(corners.double(), weight.double(), stride=2), **tolerance())
    got = conv2d.conv2d_half_backward_weight(out, inp, 2, 2, stride, *how)
    want = test_conv2d.weight_ref(out.double(), corners.double(), 2, 2, [2, 2], *how, False)
    check_close(got, want, **tolerance())


@pytest.mark.skipif(BACKEND == "cuda", reason="what is compiled for sm_75 runs there")
@pytest.mark.parametrize("dtype", HALVES)
def test_the_instructions_of_sm_75(dtype):
    source = (ROOT / "kernels" / "conv2d_half.cu").read_text()
    assert "__CUDA_ARCH__ >= 800" in source
    older = source.replace("__CUDA_ARCH__ >= 800", "__CUDA_ARCH__ >= 810")  # than the backend
    conv2d = compile_cuda(older)
    for case in CASES:
        for size in (SIZES[0], SIZES[2], SIZES[3]):
            made = case.arguments(*size)
            made = {n: last(v, dtype) if torch.is_tensor(v) else v for n, v in made.items()}
            out = getattr(conv2d, case.function)(*made.values())
            exact = [v.double() if torch.is_tensor(v) else v for v in made.values()]
            check_close(out, case.ref(*exact), rtol=1e-5 + 1.02 * unit_of_type(dtype))


@pytest.mark.skipif(BACKEND == "cuda", reason="counted by the CPU backend")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function)
def test_requests_for_shared_memory_have_no_conflict(conv2d, case):
    """Of full tiles: each way that has them, large and small tiles, in runs and in pieces."""
    for size in [(1, 64, 8, 8, 64, 3, 3, *PLAIN), *LARGE[case.function],
                 (1, 3, 16, 16, 64, 7, 7, (1, 1), (3, 3), (1, 1), 1)]:  # fmt: skip
        made = case.arguments(*size)
        _, launches = record(getattr(conv2d, case.function), *made.values())
        accesses = [a for launch in launches for a in launch.accesses if a.space == "shared"]
        assert accesses
        assert not [f"{a.line}: {a.text}" for a in accesses if a.bank_conflicts]


@pytest.mark.skipif(BACKEND == "cuda", reason="counted by the CPU backend")
@pytest.mark.parametrize("stride, k, padding, dilation", [(2, 3, 1, 1), (3, 3, 0, 1), (4, 4, 2, 2)])
def test_a_gradient_multiplies_no_zeros_between_pixels(conv2d, stride, k, padding, dilation):
    """Where each class fills its tile it loads as many fragments as forward does."""
    side = 8 * stride  # of inp: 8 x 8 pixels of out, and of each class
    pairs = [(n, n) for n in (stride, padding, dilation)]
    size = 1, 64, side, side, 64, k, k, *pairs, 1
    loads = []
    for case in CASES[:2]:
        made = case.arguments(*size)
        _, launches = record(getattr(conv2d, case.function), *made.values())
        accesses = [a for launch in launches for a in launch.accesses]
        loads.append(sum(a.requests for a in accesses if "ldmatrix.sync" in a.text))
    assert loads[0] == loads[1] > 0


# On a GPU that few tiles fill each function takes the way of sm_90a.
BY_WGMMA = [
    (3, 64, 8, 9, 72, 3, 3, *PLAIN),
    (3, 72, 7, 9, 136, 3, 2, (1, 1), (1, 1), (2, 1), 1),  # channels that fill no slab and no tile
    (4, 64, 15, 16, 32, 3, 3, (2, 2), (1, 1), (1, 1), 1),  # four images and four classes
    (2, 64, 11, 12, 40, 5, 4, (1, 2), (2, 1), (1, 1), 1),  # more taps than a block has
    (5, 200, 9, 9, 32, 1, 1, (2, 1), (0, 0), (1, 1), 1),  # one tap, rows that no tap reads
    (4, 128, 10, 10, 72, 1, 1, *POINT),  # forward by tiles twice as high
    (3, 64, 11, 9, 32, 3, 1, (3, 1), (0, 0), (1, 1), 1),  # two last rows that no tap reads
]
FEW = [
    (1, 3, 53, 52, 40, 7, 7, (2, 2), (3, 3), (1, 1), 1),
    (1, 8, 47, 45, 72, 5, 6, (4, 3), (2, 2), (1, 1), 1),
]
SMALL = (2, 64, 9, 9, 32, 2, 2, *PLAIN)


def by_loops() -> str:
    """Return the text of the way of sm_90a; a size that does not take it fails."""
    other = "static Cut find_cut(const Product& of, const Tensor& x) {"
    text = with_loops("conv2d_half")
    assert other in text
    return text.replace(other, f'{other} TORCH_CHECK(false, "another way");')


def by_few_stages() -> str:
    """Return it with rings that are filled again."""
    stages = "MOST_STAGES = 8"
    assert stages in by_loops()
    return by_loops().replace(stages, "MOST_STAGES = 3")


def check_size(conv2d, case: Case, size: tuple, dtype: torch.dtype) -> None:
    made = case.arguments(*size)
    made = {n: last(v, dtype) if torch.is_tensor(v) else v for n, v in made.items()}
    with poisoned():
        out = getattr(conv2d, case.function)(*made.values())
    exact = [v.double() if torch.is_tensor(v) else v for v in made.values()]
    check_close(out, case.ref(*exact), rtol=1e-5 + 1.02 * unit_of_type(dtype))


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU has wgmma itself")
@pytest.mark.parametrize("size", BY_WGMMA, ids=str)
def test_the_way_of_sm_90a_by_loops(size):
    for case in CASES:
        check_size(compile_cuda(by_loops()), case, size, HALVES[size[0] % 2])


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU has wgmma itself")
@pytest.mark.parametrize("size", FEW, ids=str)
def test_the_gradient_of_few_channels_by_loops(size):
    check_size(compile_cuda(by_loops()), CASES[1], size, torch.float16)


def takes_another_way(conv2d, case: Case, made: dict) -> bool:
    try:
        getattr(conv2d, case.function)(*made.values())
    except RuntimeError as error:
        assert "another way" in str(error)
        return True
    return False


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU has wgmma itself")
def test_another_way_where_tma_has_none():
    """From places between 16 bytes, and with 128 rows before an image or behind it."""
    conv2d = compile_cuda(by_loops())
    for case in CASES:
        made = case.arguments(*SMALL)
        assert not takes_another_way(conv2d, case, made)
        for name in {"inp", "weight", "dout"} & {*made}:
            x = made[name]
            away = x.new_zeros(x.numel() + 1)[1:].as_strided(x.shape, x.stride()).copy_(x)
            assert takes_another_way(conv2d, case, made | {name: away}), name
    before = (1, 64, 200, 4, 64, 2, 1, (1, 1), (128, 0), (128, 1), 1)
    behind = (1, 64, 260, 4, 64, 3, 1, (1, 1), (0, 0), (64, 1), 1)
    assert takes_another_way(conv2d, CASES[0], CASES[0].arguments(*before))
    assert takes_another_way(conv2d, CASES[2], CASES[2].arguments(*behind))


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU has wgmma itself")
def test_no_fault_is_found_by_loops():
    """With every access checked: no stage is filled before all of it has been read."""
    checked = compile_cuda(by_few_stages(), check=True)
    for case in CASES:
        check_size(checked, case, SMALL, torch.float16)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU has wgmma itself")
def test_a_stage_that_is_given_back_too_early_is_found():
    text, ready = by_few_stages(), "from.weight_full[weight.stage].wait(weight.phase);"
    late = "if (tells && read_weight >= 0) from.weight_empty[read_weight].arrive();"
    assert ready in text and late in text
    early = f"{ready} from.weight_empty[weight.stage].arrive();"
    checked = compile_cuda(text.replace(late, "").replace(ready, early), check=True)
    with pytest.raises(RuntimeError, match="with no barrier between"):
        check_size(checked, CASES[0], SMALL, torch.float16)


SM_90 = BACKEND == "cuda" and torch.cuda.get_device_capability() == (9, 0)
LARGE_BY_WGMMA = [  # tiles that fill a GPU, and places beyond them
    (70, 64, 31, 27, 72, 3, 3, *PLAIN),
    (40, 72, 33, 29, 264, 3, 2, (1, 1), (1, 1), (2, 1), 1),
    (50, 64, 57, 60, 136, 3, 3, (2, 2), (1, 1), (1, 1), 1),
    (40, 200, 40, 31, 64, 5, 5, (1, 2), (2, 2), (1, 1), 1),
    (50, 256, 21, 20, 128, 1, 1, *POINT),
    (64, 264, 41, 40, 264, 1, 1, (2, 2), (0, 0), (1, 1), 1),
]
LARGE_FEW = [
    (9, 3, 224, 220, 64, 7, 7, (2, 2), (3, 3), (1, 1), 1),
    (20, 5, 223, 224, 96, 11, 11, (4, 4), (2, 2), (1, 1), 1),
]


def took_wgmma(call) -> bool:
    with torch.profiler.profile() as profiled:
        call()
    return "wgmma_kernel" in kernels_of(profiled)


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", LARGE_BY_WGMMA, ids=str)
def test_wgmma_at_awkward_sizes(conv2d, size, dtype):
    for case in CASES:
        assert took_wgmma(lambda case=case: check_size(conv2d, case, size, dtype)), case.function


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", LARGE_FEW, ids=str)
def test_wgmma_of_few_channels(conv2d, size, dtype):
    assert took_wgmma(lambda: check_size(conv2d, CASES[1], size, dtype))


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
def test_wgmma_spreads_nan_and_infinity_as_far_as_the_filter(conv2d):
    images = last(torch.rand(40, 64, 56, 55, device=DEVICE) + 1)
    images[3, 5, 20, 0], images[7, 0, 55, 54], images[9, 63, 0, 30] = (
        torch.inf,
        torch.nan,
        -torch.inf,
    )
    weight = last(torch.rand(64, 64, 3, 3, device=DEVICE) + 1)
    out = conv2d.conv2d_half_forward(images, weight, nothing(images), *HOW)
    same_kinds(out, conv2d_ref(images.double(), weight.double(), padding=1))
    dinp = conv2d.conv2d_half_backward_input(images, weight, 56, 55, *HOW)
    want = conv2d_input((40, 64, 56, 55), weight.double(), images.double(), padding=1)
    same_kinds(dinp, want)
