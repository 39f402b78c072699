"""scan: what it promises (see contract.py), sizes about tiles and waves, views, special values."""

import math

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats

SHAPES = [(6, 8), (1,), (3,), (127,), (128,), (129,), (4097,), (16_385,), (3, 5, 7, 11), ()]
SHAPES += [(0,), (0, 5), (3, 0, 2)]
TILE = 16_384  # elements of the largest tile, where a block may have 227 KB of shared memory


def scan_ref(inp):
    return inp.flatten().cumsum(0).view(inp.shape)


CASES = [
    Case(
        "scan",
        lambda *shape: {"inp": floats(*shape)},
        scan_ref,
        SHAPES,
        # 2.8e-7 of it in 950 draws: a sum that has gone far comes back to near zero as inexact
        tolerance=lambda *shape: {"atol": 1e-6 * math.prod(shape) ** 0.5},
    ),
]


@pytest.fixture
def scan(kernel):
    return kernel("scan").scan


def whole(n):
    """Return small whole numbers, whose sums float32 has exactly, in whatever order."""
    return torch.randint(-8, 9, (n,), device=DEVICE).float()


@pytest.mark.parametrize("packs", [1, 2, 3, 4])
def test_every_element_is_exact_where_tiles_are_as_small_as_one_wave_allows(scan, packs):
    """On the CPU backend, with its 8 blocks: a thread has so many packs of a tile."""
    wave = 8 * 4096 * packs
    for n in (wave - 8 * 4096 + 1, wave - 4096 * packs, wave - 1, wave):
        inp = whole(n)
        with poisoned():
            out = scan(inp)
        assert torch.equal(out.long(), inp.long().cumsum(0))


@pytest.mark.parametrize("tiles", [1, 2, 7, 8, 9, 16, 17, 25])
def test_every_element_is_exact_about_tiles_and_waves(scan, tiles):
    """The CPU backend has 8 blocks alive: a wave is 8 tiles."""
    for n in (tiles * TILE - 1, tiles * TILE, tiles * TILE + 3):
        inp = whole(n)
        with poisoned():
            out = scan(inp)
        assert torch.equal(out.long(), inp.long().cumsum(0))


def test_views_that_start_and_end_anywhere(scan):
    inp = whole(5000)
    for start in range(5):
        for n in (1, 2, 3, 4, 5, 127, 128, 1000, 4099):
            view = inp[start:][:n]
            assert torch.equal(scan(view).long(), view.long().cumsum(0)), (start, n)


def test_it_is_close_to_float64_on_random_numbers(scan):
    inp = torch.rand(500_001, device=DEVICE)
    check_close(scan(inp), inp.double().cumsum(0), rtol=2e-6, atol=1e-3)


def test_what_is_not_finite_spoils_what_follows_alone(scan):
    n = 3 * TILE
    for i in (0, 5, 1000, TILE - 1, TILE, 2 * TILE + 77, n - 1):
        for special in (torch.nan, torch.inf, -torch.inf):
            inp = whole(n)
            inp[i] = special
            out = scan(inp)
            assert torch.equal(out[:i].long(), inp[:i].long().cumsum(0))
            expected = torch.full_like(out[i:], special)
            torch.testing.assert_close(out[i:], expected, equal_nan=True)
    inp[3], inp[9] = torch.inf, -torch.inf
    out = scan(inp)
    assert (out[3:9] == torch.inf).all() and out[9:].isnan().all()


def test_the_same_bits_again(scan):
    """However the blocks finish, and however long they wait for each other."""
    inp = torch.randn(10 * TILE + 5, device=DEVICE)
    first = scan(inp)
    assert all(torch.equal(scan(inp), first) for _ in range(5))


def test_no_fault_is_found_where_blocks_wait():
    """On the CPU backend, with every access checked: a second wave, ends within 16 bytes, views."""
    checked = compile_cuda(ROOT / "kernels" / "scan.cu", check=True).scan
    for inp in (whole(9 * TILE + 2), whole(TILE - 1), whole(1000)[1:]):
        assert torch.equal(checked(inp).long(), inp.long().cumsum(0))
