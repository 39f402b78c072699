"""All kernels with a planted fault, and the table of who finds it: the simulator, the CPU backend
and compute-sanitizer."""

from helpers.proof import (
    broken_barriers,
    broken_global,
    broken_races,
    broken_range,
    broken_unwritten,
    broken_warps,
)
from helpers.proof.broken_kernel import Broken

THEMES = (
    broken_range,
    broken_races,
    broken_global,
    broken_barriers,
    broken_unwritten,
    broken_warps,
)
BROKEN: dict[str, Broken] = {kernel.name: kernel for theme in THEMES for kernel in theme.KERNELS}
