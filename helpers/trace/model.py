"""What one request costs: the hardware's rules, for a reader.

A request is what one memory instruction of a warp asks for. `offsets` holds the byte offset of each
of the 32 lanes into the array, None where the lane is inactive; `size` is how many bytes one lane
moves. Global offsets count from the start of an allocation, which lies on a sector's boundary;
shared ones from the start of the block's shared memory.
"""

from collections import Counter

SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4  # what one bank delivers in one wavefront


def sectors(offsets, size):
    """Count the 32-byte sectors of global memory that the lanes touch."""
    return len(_pieces(_active(offsets), size, SECTOR_BYTES))


def ideal_sectors(offsets, size):
    """Count the sectors that would hold the different bytes asked for, packed."""
    bytes_asked = len(_pieces(_active(offsets), size, 1))
    return -(-bytes_asked // SECTOR_BYTES)


def wavefronts(offsets, size):
    """Count the passes over the banks of shared memory.

    In one pass a bank delivers one word, to as many lanes as want it. Lanes that want different
    words of one bank wait for each other: a bank conflict. Of 8-byte accesses half a warp goes at
    a time, of 16-byte ones a quarter.
    """
    return sum(_passes(part, size) for part in _parts(offsets, size))


def ideal_wavefronts(offsets, size):
    """Count the passes if no two lanes wanted different words of one bank."""
    return sum(1 for part in _parts(offsets, size) if part)


def lanes_at_one_address(offsets):
    """Count the lanes at the address that most lanes share: an atomic serves them one by one."""
    return max(Counter(_active(offsets)).values(), default=0)


def _active(offsets):
    return [offset for offset in offsets if offset is not None]


def _pieces(offsets, size, piece):
    """Return which pieces of `piece` bytes the accesses touch."""
    return {
        number
        for offset in set(offsets)
        for number in range(offset // piece, (offset + size - 1) // piece + 1)
    }


def _parts(offsets, size):
    """Split a warp into the lanes served together: all, halves of 16 or quarters of 8."""
    lanes = len(offsets) * WORD_BYTES // max(size, WORD_BYTES)
    return [_active(offsets[first : first + lanes]) for first in range(0, len(offsets), lanes)]


def _passes(offsets, size):
    banks = Counter(word % BANKS for word in _pieces(offsets, size, WORD_BYTES))
    return max(banks.values(), default=0)
