"""Facts of NVIDIA's GPUs: the sizes that CUDA names, the limits of a launch, the known chips.

The sizes and limits are those of every GPU that CUDA 13 supports, the figures of a compute
capability those of the CUDA C++ Programming Guide ("Technical Specifications per Compute
Capability"); how many SMs a chip has is what deviceQuery prints on it. The CPU backend, which
imports nothing of helpers, has its copy in cuda_on_cpu/include/cuda_on_cpu/limits.h.
"""

from dataclasses import dataclass

KB = 1024

WARP_SIZE = 32
SECTOR_BYTES = 32  # of global memory, moved at a time
LINE_BYTES = 128  # of a cache line
BANKS = 32  # of shared memory
WORD_BYTES = 4  # what one bank delivers in one wavefront
WIDEST_ACCESS = 16  # bytes that one lane moves

MAX_THREADS = 1024  # of a block
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED_BYTES = 48 * KB  # of a block, at most, unless it asks for more at the launch

REGISTERS = 65536  # of an SM, and as many may go to one block
REGISTERS_PER_THREAD = 255  # at most
REGISTER_UNIT = 256  # registers are handed to a warp in portions of this many
PARTITIONS = 4  # of an SM, each with a quarter of its registers and warps


@dataclass(frozen=True)
class Chip:
    """What one chip has room for; blocks, warps and shared memory are those of one SM."""

    name: str
    arch: str  # "sm_90"
    sms: int
    blocks: int
    warps: int
    shared_bytes: int
    shared_bytes_per_block: int  # at most, of which more than 48 KB only if asked for
    reserved_bytes: int  # of shared memory, which the system takes for each block
    shared_unit: int  # bytes: shared memory is handed out in portions of this size


def _chips() -> dict[str, Chip]:
    """Return the known chips by name."""
    # arch: blocks, warps, shared memory of an SM, of a block at most, reserved a block, portion
    figures = {
        "sm_75": (16, 32, 64 * KB, 64 * KB, 0, 256),
        "sm_80": (32, 64, 164 * KB, 163 * KB, KB, 128),
        "sm_86": (16, 48, 100 * KB, 99 * KB, KB, 128),
        "sm_89": (24, 48, 100 * KB, 99 * KB, KB, 128),
        "sm_90": (32, 64, 228 * KB, 227 * KB, KB, 128),
        "sm_100": (32, 64, 228 * KB, 227 * KB, KB, 128),
        "sm_120": (24, 48, 100 * KB, 99 * KB, KB, 128),
    }
    chips = {  # and their SMs
        "T4": ("sm_75", 40),
        "RTX 2080": ("sm_75", 46),
        "A100": ("sm_80", 108),
        "RTX 3090": ("sm_86", 82),
        "A10": ("sm_86", 72),
        "L4": ("sm_89", 58),
        "RTX 4090": ("sm_89", 128),
        "H100 SXM": ("sm_90", 132),
        "H200": ("sm_90", 132),
        "B200": ("sm_100", 148),
        "RTX 5090": ("sm_120", 170),
    }
    return {name: Chip(name, arch, sms, *figures[arch]) for name, (arch, sms) in chips.items()}


CHIPS = _chips()
COURSE_CHIP = CHIPS["H200"]  # whose timings the course records
MAX_SHARED_BYTES = max(chip.shared_bytes_per_block for chip in CHIPS.values())  # if asked for
