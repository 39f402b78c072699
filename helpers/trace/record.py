"""What one launch did, warp by warp: the simulator and the CPU backend both write this record.

The terms are those of Nsight Compute. A *request* is one memory instruction of one warp; it moves
32-byte *sectors* of global memory, or takes *wavefronts* (passes) over the banks of shared memory.
Of a texture or surface it reads or writes *texels*.
"""

from collections import Counter
from dataclasses import dataclass, field

Dim = tuple[int, int, int]
SAMPLES = 4  # requests that an Access keeps, of the first block


@dataclass
class Request:
    """One request of a warp, kept as a sample for the pictures."""

    block: Dim
    warp: int
    # 32: byte offset into the array by lane; None: it is inactive, or reads no texel
    offsets: tuple[int | None, ...]
    more: tuple[tuple[int, int], ...] = ()  # lane, offset: further texels of lanes that mix several


@dataclass
class Access:
    """All requests that one line made to one array by one kind of operation."""

    line: int
    text: str  # that line of the source
    operation: str  # "load", "store" or "atomic"
    space: str  # "global", "shared", "texture" or "surface"
    array: str  # its name; of a texture or surface the object's, where it is a parameter
    bytes: int  # that one lane moves at a time: 1, 2, 4, 8 or 16
    requests: int = 0
    lanes: int = 0  # active, summed over the requests
    sectors: int = 0  # global memory only
    ideal_sectors: int = 0  # as many as hold the different bytes asked for, packed
    wavefronts: int = 0  # shared memory only
    ideal_wavefronts: int = 0  # without a bank conflict
    same_address: int = 0  # atomics: most lanes that meet at one address, summed over the requests
    joined_requests: int = 0  # shared memory, loads and stores: of a compiler that joins neighbours
    joined_wavefronts: int = 0
    texels: int = 0  # textures and surfaces only: different ones, summed over the requests
    widest: int | None = None  # bytes a lane of nvcc's widest; 0: it has none; None: not known
    samples: list[Request] = field(default_factory=list)  # the first few, in the order they came

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond those that an access without a conflict takes."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass
class Line:
    """How often a line ran."""

    line: int
    text: str
    executions: int  # by warps
    lanes: int  # active, summed over the executions
    flops: int  # floating-point operations of all lanes; a * b + c is two


@dataclass
class Stage:
    """What one warp of the first block did with one line between two barriers of the block."""

    number: int  # 0 before the first barrier
    warp: int
    line: int
    operation: str
    space: str
    requests: int


@dataclass
class Launch:
    """One launch of a kernel."""

    kernel: str
    grid: Dim
    block: Dim
    shared_bytes: int  # of a block, static and dynamic
    backend: str  # "simulator" or "CPU backend"
    accesses: list[Access]
    lines: list[Line]
    stages: list[Stage]
    # (operation, space) → requests of the warp that made most, of all blocks
    busiest: Counter[tuple[str, str]] = field(default_factory=Counter)
    instance: str | None = None  # of a template that ran, "scale_kernel<float>"; None: not known
    registers: int | None = None  # of a thread, by nvcc for the chip here; None: not known
