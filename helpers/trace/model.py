"""What one request costs: the hardware's rules, for a reader.

A request is what one memory instruction of a warp asks for. `offsets` holds the byte offset of each
of the 32 lanes into the array, None where the lane is inactive; `size` is how many bytes one lane
moves. Global offsets count from the start of an allocation, which lies on a sector's boundary;
shared ones from the start of the block's shared memory.

The rules were measured: helpers/tests/proof/patterns.py made an H200 serve a thousand requests, and
these functions give Nsight Compute's count for each of them.
"""

from collections import Counter

from helpers.base.gpu import BANKS, SECTOR_BYTES, WIDEST_ACCESS, WORD_BYTES


def sectors(offsets, size, operation="load"):
    """Count the 32-byte sectors of global memory that the lanes touch.

    Of an atomic, a sector counts as often as lanes meet at one address in it.
    """
    if operation != "atomic":
        return len(_pieces(_active(offsets), size, SECTOR_BYTES))
    most = Counter()
    for offset, lanes in Counter(_active(offsets)).items():
        sector = offset // SECTOR_BYTES
        most[sector] = max(most[sector], lanes)
    return most.total()


def ideal_sectors(offsets, size):
    """Count the sectors that would hold the different bytes asked for, packed."""
    bytes_asked = len(_pieces(_active(offsets), size, 1))
    return -(-bytes_asked // SECTOR_BYTES)


def wavefronts(offsets, size, operation="load"):
    """Count the passes over the banks of shared memory.

    In one pass a bank delivers one word, to as many lanes as want it. Lanes that want different
    words of one bank wait for each other: a bank conflict. Atomics wait for each other also where
    they want the same word. An atomicAdd of floats is a loop on the GPU, of as many rounds as this
    counts wavefronts; Nsight Compute counts each round as a load and an atomic without a conflict.
    """
    if operation == "atomic":
        banks = Counter(offset // WORD_BYTES % BANKS for offset in _active(offsets))
        return max(banks.values(), default=0)
    served = parts(offsets, size, operation)
    return sum(_passes([offsets[lane] for lane in part], size) for part in served)


def ideal_wavefronts(offsets, size, operation="load"):
    """Count the passes if no two lanes wanted different words of one bank."""
    return len(parts(offsets, size, operation))


def parts(offsets, size, operation="load"):
    """Return the active lanes that are served together: of a warp all, halves or quarters.

    8-byte accesses go half a warp at a time, 16-byte ones a quarter. A load takes two such parts
    at once if all its lanes agree in pairs: each with the lane beside it (t ^ 1), or each with
    the lane beside that (t ^ 2). Parts without an active lane are left out.
    """
    width = len(offsets) * WORD_BYTES // max(size, WORD_BYTES)
    if operation == "load" and size > WORD_BYTES and any(_agree(offsets, k) for k in (1, 2)):
        width *= 2
    starts = range(0, len(offsets), width)
    lanes = ([n for n in range(i, i + width) if offsets[n] is not None] for i in starts)
    return [part for part in lanes if part]


def joined(requests, size):
    """Return what nvcc may make of the loads, or the stores, of one warp: [(first, bytes a lane)].

    `requests` are the offsets of each, in their order. Neighbours become one wide access where what
    each lane asks for lies in order, and aligned to the whole. `first` counts from 0.
    """
    result, first = [], 0
    while first < len(requests):
        run = size  # bytes of a lane that lie in order
        for request in requests[first + 1 : first + WIDEST_ACCESS // size]:
            if request != tuple(None if o is None else o + run for o in requests[first]):
                break
            run += size
        offsets, width = _active(requests[first]), WIDEST_ACCESS
        while width > size and (width > run or any(offset % width for offset in offsets)):
            width //= 2
        result.append((first, width))
        first += width // size
    return result


def lanes_at_one_address(offsets):
    """Count the lanes at the address that most lanes share: an atomic serves them one by one."""
    return max(Counter(_active(offsets)).values(), default=0)


def _agree(offsets, k):
    """Whether each active lane asks for what lane t ^ k asks for, if that is active."""
    return all(
        offset is None or offsets[t ^ k] in (None, offset) for t, offset in enumerate(offsets)
    )


def _active(offsets):
    return [offset for offset in offsets if offset is not None]


def _pieces(offsets, size, piece):
    """Return which pieces of `piece` bytes the accesses touch."""
    return {
        number
        for offset in set(offsets)
        for number in range(offset // piece, (offset + size - 1) // piece + 1)
    }


def _passes(offsets, size):
    banks = Counter(word % BANKS for word in _pieces(offsets, size, WORD_BYTES))
    return max(banks.values(), default=0)
