"""histogram: what it promises (see contract.py), one value, views, and a step of 16 bytes."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, pixels

BLOCK_BYTES = 1024 * 3 * 16  # that one turn of a block reads


def histogram_ref(inp):
    return torch.bincount(inp.reshape(-1), minlength=256)


CASES = [
    Case(
        "histogram",
        lambda *shape: {"inp": pixels(*shape)},
        histogram_ref,
        [(6, 8), (), (1,), (15,), (16,), (17,), (260,), (1000,), (182, 781), (3, 5, 7, 11)]
        + [(BLOCK_BYTES - 1,), (BLOCK_BYTES,), (3 * BLOCK_BYTES + 5,), (0,), (0, 5), (3, 0, 2)],
    )
]


@pytest.fixture
def histogram(kernel):
    return kernel("histogram").histogram


@pytest.mark.parametrize("value", [0, 1, 127, 255])
@pytest.mark.parametrize("n", [1, 1000, 100_003])
def test_one_value(histogram, value, n):
    counts = histogram(torch.full((n,), value, dtype=torch.uint8, device=DEVICE))
    assert counts.dtype == torch.int64
    assert counts[value] == n == counts.sum()


def test_views_that_start_and_end_anywhere(histogram):
    inp = pixels(2 * BLOCK_BYTES)
    for start in range(17):
        for n in (0, 1, 14, 15, 16, 31, 33, BLOCK_BYTES + start):
            view = inp[start:][:n]
            assert torch.equal(histogram(view), histogram_ref(view)), f"from {start}, {n} bytes"


def test_skewed_bytes(histogram):
    a, b = pixels(2, 300_000).int()
    inp = (a * b // 256).to(torch.uint8)
    assert torch.equal(histogram(inp), histogram_ref(inp))


def test_16_bytes_are_loaded_at_once_and_no_two_lanes_meet(histogram):
    report = trace(histogram, pixels(BLOCK_BYTES))
    loads = [a for a in report.accesses if (a.array, a.operation) == ("inp", "load") and a.lanes]
    assert {access.bytes for access in loads} == {16}
    atomics = [a for a in report.accesses if (a.space, a.operation) == ("shared", "atomic")]
    assert sum(a.requests for a in atomics) == BLOCK_BYTES // 32
    assert all(a.wavefronts == a.requests for a in atomics)


def test_no_fault_is_found_where_a_view_begins_and_ends():
    """On the CPU backend, with every access checked."""
    checked = compile_cuda(ROOT / "kernels" / "histogram.cu", check=True).histogram
    for start, n in ((0, 40), (1, 40), (15, 16), (7, 3), (3, 5000)):
        view = pixels(8192)[start:][:n]
        assert torch.equal(checked(view), histogram_ref(view))
