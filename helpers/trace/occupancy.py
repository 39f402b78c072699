"""How many blocks of a kernel one SM holds at a time, and what keeps it from holding more.

The rules are those of the cuda_occupancy.h of CUDA 13, the chips those of helpers/base/gpu.py. The
result is Nsight Compute's "Theoretical Occupancy".
"""

import math
import sys
from dataclasses import dataclass
from numbers import Integral

from helpers.base.gpu import (
    CHIPS,
    COURSE_CHIP,
    MAX_THREADS,
    PARTITIONS,
    REGISTER_UNIT,
    REGISTERS,
    REGISTERS_PER_THREAD,
    WARP_SIZE,
    Chip,
)
from helpers.base.words import count


@dataclass(frozen=True)
class Occupancy:
    """How many blocks one SM of a chip holds at a time.

    `limits` says how many blocks each resource has room for: blocks, warps, registers, shared
    memory. None stands for a resource that the kernel does not use, and for registers also if it is
    not known how many a thread has.
    """

    chip: Chip
    threads: int  # of a block
    registers: int | None  # of a thread
    limits: dict[str, int | None]

    @property
    def blocks(self) -> int:
        """Blocks of an SM; 0: not even one fits, and a launch fails."""
        return min(limit for limit in self.limits.values() if limit is not None)

    @property
    def warps(self) -> int:
        """Warps of an SM."""
        return self.blocks * _warps(self.threads)

    @property
    def fraction(self) -> float:
        """Occupancy: the SM's warps as a share of those it has room for, 0 to 1."""
        return self.warps / self.chip.warps

    @property
    def limiters(self) -> list[str]:
        """Which resources have no room for one more block."""
        return [name for name, limit in self.limits.items() if limit == self.blocks]

    @property
    def free_registers(self) -> int:
        """Registers that a thread may have before they allow fewer blocks than the rest does."""
        others = [limit for name, limit in self.limits.items() if name != "registers"]
        blocks = min(limit for limit in others if limit is not None)
        counts = range(REGISTERS_PER_THREAD, 0, -1)
        return next((n for n in counts if _register_limit(self.threads, n) >= blocks), 0)

    @property
    def summary(self) -> str:
        """The occupancy in words, what limits it, and the registers."""
        limiters = " and ".join(self.limiters)
        if not self.blocks:
            return f"{self.chip.name}: not one block fits an SM, limited by {limiters}"
        size = f"{count(self.blocks, 'block')} of {count(_warps(self.threads), 'warp')}"
        text = f"{self.chip.name}: {100 * self.fraction:.3g}% occupancy, {size} an SM"
        text += "" if self.fraction == 1 else f", limited by {limiters}"
        if self.registers is not None:
            return f"{text}; {count(self.registers, 'register')} a thread"
        free = self.free_registers
        return f"{text}\nregisters are not known; up to {free} a thread would allow this"

    def __str__(self) -> str:
        known = ((name, limit) for name, limit in self.limits.items() if limit is not None)
        limits = ", ".join(f"{limit} by {name}" for name, limit in known)
        return f"{self.summary}\nblocks that an SM has room for: {limits}"

    __repr__ = __str__

    def waves(self, blocks: int) -> float:
        """Return in how many waves a grid of so many blocks runs; inf if no block fits.

        A wave is all blocks that the chip holds at a time.
        """
        return blocks / (self.chip.sms * self.blocks) if self.blocks else math.inf

    def last_wave(self, blocks: int) -> float:
        """Return how full the last wave of the grid is, above 0 to 1; nan if no block fits."""
        wave = self.chip.sms * self.blocks
        return (blocks % wave or wave) / wave if wave else math.nan


def occupancy(
    chip: str | None, threads: int, shared_bytes: int = 0, registers: int | None = None
) -> Occupancy:
    """Return the theoretical occupancy of blocks of `threads` threads.

    `shared_bytes` is a block's shared memory, static and dynamic, `registers` a thread's registers;
    None: not known, and taken for no limit. `chip` is a name such as "H200" or "T4", None stands
    for the GPU here, and for the H200 where there is none or it is not known. Raises ValueError for
    another name, which lists the known ones, and for figures that no kernel has; TypeError for
    figures that are no integers.
    """
    if chip is None:
        chip = chip_here().name
    if chip not in CHIPS:
        raise ValueError(f"chip {chip!r} is not known; known are {', '.join(CHIPS)}")
    figures = {"threads": threads, "shared_bytes": shared_bytes, "registers": registers}
    for name, value in figures.items():
        if not isinstance(value, Integral) and (name, value) != ("registers", None):
            raise TypeError(f"{name} is {value!r}, not an integer")
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"a block has 1 to {MAX_THREADS} threads, not {threads}")
    if shared_bytes < 0:
        raise ValueError(f"shared memory of {count(shared_bytes, 'byte')}")
    if registers is not None and not 1 <= registers <= REGISTERS_PER_THREAD:
        raise ValueError(f"a thread has 1 to {REGISTERS_PER_THREAD} registers, not {registers}")
    on = CHIPS[chip]
    limits = {
        "blocks": on.blocks,
        "warps": on.warps // _warps(threads),
        "registers": _register_limit(threads, registers) if registers else None,
        "shared memory": _shared_limit(on, shared_bytes) if shared_bytes else None,
    }
    return Occupancy(on, threads, registers, limits)


def chip_here() -> Chip:
    """Return this machine's GPU if it is a known one, else the H200.

    PyTorch finds GPUs; where nobody has imported it, none is used.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties()
        for name, chip in CHIPS.items():
            # the number of SMs as well: an RTX 2080 Ti is no RTX 2080, an H100 PCIe no H100 SXM
            if name.removesuffix(" SXM") in gpu.name and chip.sms == gpu.multi_processor_count:
                return chip
    return COURSE_CHIP


def _warps(threads: int) -> int:
    return math.ceil(threads / WARP_SIZE)


def _register_limit(threads: int, registers: int) -> int:
    """Return for how many blocks an SM has registers."""
    warps = _warps(threads)
    per_warp = _round_up(registers * WARP_SIZE, REGISTER_UNIT)
    if per_warp * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // per_warp * PARTITIONS // warps


def _shared_limit(chip: Chip, shared_bytes: int) -> int:
    """Return for how many blocks an SM has shared memory."""
    if shared_bytes > chip.shared_bytes_per_block:
        return 0
    return chip.shared_bytes // _round_up(shared_bytes + chip.reserved_bytes, chip.shared_unit)


def _round_up(number: int, unit: int) -> int:
    return math.ceil(number / unit) * unit
