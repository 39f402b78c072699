"""The rules of sectors and banks, on patterns whose cost is known and on random ones."""

import random

import pytest

from helpers.trace.model import (
    ideal_sectors,
    ideal_wavefronts,
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


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_random_requests_against_counting_by_hand(size):
    for _ in range(200):
        reach = random.choice([2, 8, 32, 1000])
        offsets = [size * random.randrange(reach) if random.random() < 0.8 else None for _ in LANES]
        touched = [set(range(o, o + size)) for o in offsets if o is not None]
        everything = set().union(*touched)
        assert sectors(offsets, size) == len({byte // 32 for byte in everything})
        assert ideal_sectors(offsets, size) == (len(everything) + 31) // 32

        per_part = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
        pairs, fours = (
            zip(offsets[::2], offsets[1::2], strict=True),
            zip(offsets[0::4], offsets[1::4], offsets[2::4], offsets[3::4], strict=True),
        )
        beside = all(None in pair or pair[0] == pair[1] for pair in pairs)
        next_but_one = all(
            (None in (a, c) or a == c) and (None in (b, d) or b == d) for a, b, c, d in fours
        )
        if size > 4 and (beside or next_but_one):  # two parts of a load at once
            per_part *= 2
        passes = ideal = 0
        for first in range(0, 32, per_part):
            words = {
                (o + byte) // 4
                for o in offsets[first : first + per_part]
                if o is not None
                for byte in range(size)
            }
            passes += max([len([w for w in words if w % 32 == bank]) for bank in range(32)])
            ideal += bool(words)
        assert wavefronts(offsets, size) == passes
        assert ideal_wavefronts(offsets, size) == ideal
