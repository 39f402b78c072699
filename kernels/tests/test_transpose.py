"""transpose: what it promises (see contract.py), the half types, both paths, and exact bits."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats, wrong

HALF_TYPES = (torch.float16, torch.bfloat16)
TYPES = (torch.float32, *HALF_TYPES)
SHAPES = [(6, 9), (8, 4), (1, 1), (1, 1000), (1000, 1), (260, 1000), (1823, 781), (64, 64)]
SHAPES += [(0, 0), (0, 5), (5, 0)]

CASES = [
    Case(
        "transpose",
        lambda *shape: {"inp": floats(*shape)},
        lambda inp: inp.t(),
        SHAPES,
        ragged=wrong("inp", floats, (6,), (2, 3, 4), ()),
        dtypes=HALF_TYPES,
    ),
]


@pytest.fixture
def transpose(kernel):
    return kernel("transpose").transpose


def kernels_of(report):
    return {launch.kernel.split("<")[0] for launch in report.launches}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape", [(1, 7), (33, 31), (4, 8), (8, 136), (132, 128), (128, 260), (257, 130), (0, 3)]
)
def test_every_type_at_sizes_about_a_tile(transpose, dtype, shape):
    inp = torch.randn(shape, device=DEVICE).to(dtype)
    with poisoned():
        out = transpose(inp)
    assert out.dtype == dtype and out.is_contiguous() and torch.equal(out, inp.t())


@pytest.mark.parametrize("dtype, columns", [(torch.float32, 2**15), (torch.bfloat16, 2**16)])
def test_every_tile_has_its_turn_where_the_order_is_another(transpose, dtype, columns):
    """Rows of a multiple of 128 KB: tiles are taken 64 columns of tiles apart."""
    inp = torch.randn(72, columns, device=DEVICE).to(dtype)
    with poisoned():
        assert torch.equal(transpose(inp), inp.t())


@pytest.mark.parametrize("dtype", TYPES)
def test_views_that_start_anywhere(transpose, dtype):
    memory = torch.randn(40 * 72 + 8, device=DEVICE).to(dtype)
    for start in range(9):
        inp = memory[start:][: 40 * 72].view(40, 72)
        assert torch.equal(transpose(inp), inp.t())


@pytest.mark.filterwarnings("ignore:.*never written")  # some patterns are what torch.empty holds
def test_every_bit_pattern_comes_through(transpose):
    """NaN with its payload, infinities, both zeros, subnormals: nothing is computed."""
    bits = torch.arange(-(2**15), 2**15, device=DEVICE).short()
    for dtype in HALF_TYPES:
        out = transpose(bits.view(dtype).view(128, 512))
        assert torch.equal(out.view(torch.int16), bits.view(128, 512).t())
    wide = torch.randint(-(2**31), 2**31, (96, 60), device=DEVICE).int()
    wide[0, :4] = torch.tensor([0x7F800001, -0x400000, 1, -(2**31)])  # two NaNs, tiny, -0.0
    assert torch.equal(transpose(wide.view(torch.float32)).view(torch.int32), wide.t())


@pytest.mark.parametrize("dtype", TYPES)
def test_16_bytes_move_at_once_where_they_can(transpose, dtype):
    report = trace(transpose, torch.randn(144, 272, device=DEVICE).to(dtype))
    assert kernels_of(report) == {"transpose_packs_kernel"}
    for access in report.accesses:
        assert access.bytes == 16 and access.bank_conflicts == 0
        assert access.sectors == access.ideal_sectors


@pytest.mark.parametrize("dtype", TYPES)
def test_elsewhere_neighbours_go_together_and_no_bank_is_asked_twice(transpose, dtype):
    """256 columns are whole lines, but 33 rows are no whole packs."""
    report = trace(transpose, torch.randn(33, 256, device=DEVICE).to(dtype))
    assert kernels_of(report) == {"transpose_kernel"}
    assert all(access.bank_conflicts == 0 for access in report.accesses)
    load = report["load", "global"]
    assert load.sectors == load.ideal_sectors


def test_no_fault_is_found_at_the_edges_of_tiles():
    """On the CPU backend, with every access checked."""
    checked = compile_cuda(ROOT / "kernels" / "transpose.cu", check=True).transpose
    for shape in ((68, 36), (35, 33)):
        for dtype in (torch.float32, torch.float16):
            inp = torch.randn(shape, device=DEVICE).to(dtype)
            assert torch.equal(checked(inp), inp.t())
