"""Barriers, shuffles and votes: the calls at which a thread waits for other threads.

Each is a `Meeting` in two halves. `arrive` runs in the thread that calls: it returns the mask of
lanes that must come and what the thread brings along. `settle` runs when all of them are there:
it takes what each brought and returns what each gets.
"""

import functools
import operator
import struct
from dataclasses import dataclass

from helpers.base.gpu import WARP_SIZE
from helpers.simulator.current import fault
from helpers.simulator.errors import SimulatorError, WarpError
from helpers.simulator.geometry import thread_number

FULL_MASK = 0xFFFFFFFF
WHOLE_BLOCK = "block"  # in place of a mask: every thread of the block must come
WHO_IS_HERE = "here"  # in place of a mask: the lanes of the warp that happen to come


@dataclass
class Absent:
    """In place of an answer: the lane that a shuffle reads from did not come."""

    lane: int


class Meeting:
    """A function that a kernel calls and that other threads have to call as well."""

    def __init__(self, arrive, settle):
        functools.update_wrapper(self, arrive)  # name, docstring and signature
        self._arrive, self.settle = arrive, settle
        self.whole_block = False

    def request(self, *args, **kwargs):
        """Return what a thread hands to the scheduler: this meeting, who must come, its part."""
        return self, *self._arrive(*args, **kwargs)

    def __call__(self, *_args, **_kwargs):
        raise SimulatorError(
            f"{self.__name__}() works only in a kernel run by launch(), called there by its name"
        )

    def __repr__(self):
        return self.__name__


def _meeting(settle):
    return lambda arrive: Meeting(arrive, settle)


def _meeting_of_block(decide):
    def make(arrive):
        meeting = Meeting(arrive, _same_for_all(decide))
        meeting.whole_block = True
        return meeting

    return make


def _same_for_all(decide):
    """Everybody gets decide(list of what the threads brought)."""

    def settle(brought):
        answer = decide(list(brought.values()))
        return dict.fromkeys(brought, answer)

    return settle


# ---- the whole block


@_meeting_of_block(lambda _: None)
def syncthreads():
    """Wait until all threads of the block are here; their writes to memory are visible then."""
    return WHOLE_BLOCK, None


@_meeting_of_block(sum)
def syncthreads_count(predicate):
    """Wait as syncthreads() does; return for how many threads `predicate` is true."""
    return WHOLE_BLOCK, bool(predicate)


@_meeting_of_block(all)
def syncthreads_and(predicate):
    """Wait as syncthreads() does; return whether `predicate` is true for all threads."""
    return WHOLE_BLOCK, bool(predicate)


@_meeting_of_block(any)
def syncthreads_or(predicate):
    """Wait as syncthreads() does; return whether `predicate` is true for any thread."""
    return WHOLE_BLOCK, bool(predicate)


# ---- lanes of a warp


def _integer(what, value):
    """Return an argument of a warp operation that has to be an integer."""
    try:
        return operator.index(value)
    except TypeError:
        advice = "; // divides integers" if isinstance(value, float) and what != "mask" else ""
        raise fault(WarpError, f"{what} is {value!r}, not an integer{advice}") from None


def _own_lane(mask):
    """Return the lane of the running thread, which has to be in its own mask."""
    lane = thread_number() % WARP_SIZE
    if not _integer("mask", mask) >> lane & 1:
        raise fault(
            WarpError, f"mask {mask & FULL_MASK:#010x} does not name the caller's own lane {lane}"
        )
    return lane


@_meeting(_same_for_all(lambda _: None))
def syncwarp(mask=FULL_MASK):
    """Wait until the lanes in `mask` are here; their writes to memory are visible then."""
    _own_lane(mask)
    return mask & FULL_MASK, None


@_meeting(_same_for_all(all))
def all_sync(mask, predicate):
    """Return whether `predicate` is true for all lanes in `mask`."""
    _own_lane(mask)
    return mask & FULL_MASK, bool(predicate)


@_meeting(_same_for_all(any))
def any_sync(mask, predicate):
    """Return whether `predicate` is true for any lane in `mask`."""
    _own_lane(mask)
    return mask & FULL_MASK, bool(predicate)


@_meeting(_same_for_all(sum))
def ballot_sync(mask, predicate):
    """Return an integer whose bit i is set if `predicate` is true for lane i."""
    return mask & FULL_MASK, bool(predicate) << _own_lane(mask)


@_meeting(_same_for_all(sum))
def activemask():
    """Return the mask of lanes that are at this line together with the caller."""
    return WHO_IS_HERE, 1 << _own_lane(FULL_MASK)


def _match(brought):
    bits = {
        lane: struct.pack("d", value) if isinstance(value, float) else value
        for lane, value in brought.items()
    }
    return {
        lane: sum(1 << other for other, theirs in bits.items() if theirs == own)
        for lane, own in bits.items()
    }


@_meeting(_match)
def match_any_sync(mask, value):
    """Return the mask of lanes that brought the same value, bit for bit."""
    _own_lane(mask)
    return mask & FULL_MASK, value


def _shuffle(brought):
    return {
        lane: brought[source][0] if source in brought else Absent(source)
        for lane, (_, source) in brought.items()
    }


def _segment(mask, width):
    """Return the caller's lane, and the first and last lane of its group of `width`."""
    lane = _own_lane(mask)
    if width not in (1, 2, 4, 8, 16, 32):
        raise fault(WarpError, f"width is {width}, it can be 1, 2, 4, 8, 16 or 32")
    first = lane & -width
    return lane, first, first + width - 1


@_meeting(_shuffle)
def shfl_sync(mask, value, source_lane, width=WARP_SIZE):
    """Return the `value` that lane `source_lane` brought (counted within each group of `width`)."""
    _, first, _ = _segment(mask, width)
    return mask & FULL_MASK, (value, first + _integer("source_lane", source_lane) % width)


@_meeting(_shuffle)
def shfl_up_sync(mask, value, delta, width=WARP_SIZE):
    """Return the `value` of the lane `delta` below; the lowest lanes keep their own."""
    lane, first, _ = _segment(mask, width)
    source = lane - _integer("delta", delta)
    return mask & FULL_MASK, (value, source if source >= first else lane)


@_meeting(_shuffle)
def shfl_down_sync(mask, value, delta, width=WARP_SIZE):
    """Return the `value` of the lane `delta` above; the highest lanes keep their own."""
    lane, _, last = _segment(mask, width)
    source = lane + _integer("delta", delta)
    return mask & FULL_MASK, (value, source if source <= last else lane)


@_meeting(_shuffle)
def shfl_xor_sync(mask, value, lane_mask, width=WARP_SIZE):
    """Return the `value` of the lane whose number differs in the bits of `lane_mask`."""
    lane, _, last = _segment(mask, width)
    source = lane ^ _integer("lane_mask", lane_mask)
    return mask & FULL_MASK, (value, source if source <= last else lane)
