"""The rules of sectors and banks, on patterns whose cost is known."""

import pytest

from helpers.trace.model import (
    ideal_sectors,
    ideal_wavefronts,
    joined,
    lanes_at_one_address,
    sectors,
    wavefronts,
)

LANES = range(32)


def strided(step, start=0):
    return tuple(start + step * lane for lane in LANES)


@pytest.mark.parametrize(
    ("offsets", "size", "expected", "ideal"),
    [
        (strided(4), 4, 4, 4),
        (strided(4, start=4), 4, 5, 4),  # one element off
        (strided(8), 4, 8, 4),
        (strided(128), 4, 32, 4),
        (strided(0), 4, 1, 1),
        (strided(1), 1, 1, 1),
        (strided(2), 2, 2, 2),
        (strided(8), 8, 8, 8),
        (strided(16), 16, 16, 16),
        (strided(-4, start=1000 * 4 - 4), 4, 4, 4),  # backwards
        ((None,) * 31 + (28,), 4, 1, 1),
        ((28,) + (None,) * 31, 16, 2, 1),  # across a boundary
        ((None,) * 32, 4, 0, 0),
    ],
)
def test_sectors(offsets, size, expected, ideal):
    assert sectors(offsets, size) == expected
    assert ideal_sectors(offsets, size) == ideal


@pytest.mark.parametrize(
    ("offsets", "size", "expected", "ideal"),
    [
        (strided(4), 4, 1, 1),
        (strided(8), 4, 2, 1),
        (strided(16), 4, 4, 1),
        (strided(128), 4, 32, 1),  # a column of a 32 × 32 tile
        (strided(132), 4, 1, 1),  # of a 32 × 33 tile
        (strided(12), 4, 1, 1),  # an odd number of words apart
        (strided(0), 4, 1, 1),  # a broadcast
        (strided(1), 1, 1, 1),
        (strided(2), 2, 1, 1),
        (strided(64), 2, 16, 1),
        (strided(8), 8, 2, 2),
        (strided(16), 8, 4, 2),
        (strided(16), 16, 4, 4),
        (strided(32), 16, 8, 4),
        ((0,) * 8 + (None,) * 24, 16, 1, 1),  # three quarters have nothing to do
        ((None,) * 32, 8, 0, 0),
    ],
)
def test_wavefronts(offsets, size, expected, ideal):
    assert wavefronts(offsets, size) == expected
    assert ideal_wavefronts(offsets, size) == ideal


def test_lanes_at_one_address():
    assert lanes_at_one_address(strided(0)) == 32
    assert lanes_at_one_address(strided(4)) == 1
    assert lanes_at_one_address((4, None, 8, 4) + (None,) * 28) == 2
    assert lanes_at_one_address((None,) * 32) == 0


@pytest.mark.parametrize(
    ("firsts", "size", "expected"),  # where lane 0 of each request asks
    [
        ([0, 4, 8, 12], 4, [(0, 16)]),
        ([0, 4, 8, 12, 16, 20, 24], 4, [(0, 16), (4, 8), (6, 4)]),
        ([4, 8, 12, 16], 4, [(0, 4), (1, 8), (3, 4)]),  # aligned from the second on
        ([8, 12, 16, 20], 4, [(0, 8), (2, 8)]),
        ([0, 128, 256, 384], 4, [(0, 4), (1, 4), (2, 4), (3, 4)]),  # down a column
        ([12, 8, 4, 0], 4, [(0, 4), (1, 4), (2, 4), (3, 4)]),  # backwards
        ([0, 8], 8, [(0, 16)]),
        (list(range(17)), 1, [(0, 16), (16, 1)]),
        ([0, 16], 16, [(0, 16), (1, 16)]),
        ([], 4, []),
    ],
)
def test_what_nvcc_joins(firsts, size, expected):
    assert joined([strided(512, first) for first in firsts], size) == expected


def test_only_accesses_that_lie_in_order_for_every_lane_are_joined():
    one, next_one = strided(16), strided(16, 4)
    assert joined([one, next_one], 4) == [(0, 8)]
    assert joined([one, (*next_one[:31], None)], 4) == [(0, 4), (1, 4)]  # a lane less
    assert joined([one, (*next_one[:31], 0)], 4) == [(0, 4), (1, 4)]
    assert joined([strided(4), strided(4, 4)], 4) == [(0, 4), (1, 4)]  # of odd lanes not aligned
    assert joined([one[:8] + (None,) * 24, next_one[:8] + (None,) * 24], 4) == [(0, 8)]
