"""What a kernel costs where there is no clock: ticks, counted by the CPU backend.

The model is that of notebook 09, with three limits. In a tick an SM has
    the door          through which passes a request to memory: up to 128 bytes of global memory
                      (four sectors; a GPU takes longer where they lie in several lines of 128
                      bytes, see 05), or one wavefront of shared memory. Loads and stores of
                      shared memory count as nvcc joins neighbours; an atomic counts once for each
                      lane that meets others at one address, and in global memory for each sector.
    four schedulers   each hands out one instruction of a warp: a request, or arithmetic (a
                      multiply-add of 32 lanes, or of the few that are active).
    128 lanes         for 256 FLOPs.
The largest of the three is what a launch takes; launches add up. All is shared out among four SMs:
a launch of fewer blocks leaves some of them idle.

It leaves out what it cannot see: caches (all is taken to be in L1) and registers (a thread's array
is taken to fit there), the time to launch, barriers and other waiting, special functions, integers,
tensor cores. The clock of a GPU sees it all.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from helpers.base.gpu import LINE_BYTES, PARTITIONS, SECTOR_BYTES, WARP_SIZE
from helpers.trace.from_cpu_backend import record
from helpers.trace.record import Access, Launch

SMS = 4
SECTORS = LINE_BYTES // SECTOR_BYTES  # that pass the door in a tick
FLOPS = 2 * WARP_SIZE * PARTITIONS  # of an SM in a tick


@dataclass(frozen=True)
class Ticks:
    """What the launches of one call take: by each limit, and by the larger one of each launch."""

    door: float
    schedulers: float
    lanes: float
    total: float
    launches: int


def count_ticks(function: Callable, *args) -> tuple[Any, Ticks]:
    """Call a function from compile_cuda on the CPU backend; return its result and its ticks."""
    result, launches = record(function, *args)
    return result, ticks_of(launches)


def ticks_of(launches: Iterable[Launch]) -> Ticks:
    """Return what launches take, one after the other."""
    limits = [_limits(launch) for launch in launches]
    door, schedulers, lanes = map(sum, zip(*limits, strict=True)) if limits else (0, 0, 0)
    return Ticks(door, schedulers, lanes, sum(map(max, limits)), len(limits))


def _limits(launch: Launch) -> tuple[float, float, float]:
    """Return the ticks of the door, the schedulers and the lanes."""
    door = sum(map(_passes, launch.accesses))
    requests = sum(access.requests for access in launch.accesses)
    flops = sum(line.flops for line in launch.lines)
    arithmetic = sum(
        line.flops / 2 * line.executions / line.lanes for line in launch.lines if line.lanes
    )
    sms = min(SMS, math.prod(launch.grid))
    limits = door, (requests + arithmetic) / PARTITIONS, flops / FLOPS
    return tuple(limit / sms for limit in limits)


def _passes(access: Access) -> float:
    """Return how often an access goes through the door."""
    if access.space == "global":
        each = 1 if access.operation == "atomic" else SECTORS
        return max(access.requests, access.sectors / each)
    if access.operation == "atomic":
        return max(access.wavefronts, access.same_address)
    return access.joined_wavefronts
