"""All kernels with a planted fault, and their CUDA strings compiled."""

from functools import cache

from helpers.compiler import compile_cuda
from helpers.compiler.build import CompiledFunctions
from helpers.tests.proof import (
    broken_barriers,
    broken_global,
    broken_races,
    broken_range,
    broken_shared_range,
    broken_sums,
    broken_unwritten,
    broken_warps,
)
from helpers.tests.proof.broken_kernel import Broken
from helpers.tests.proof.kernel import HEADER

THEMES = (
    broken_range,
    broken_shared_range,
    broken_races,
    broken_sums,
    broken_global,
    broken_barriers,
    broken_unwritten,
    broken_warps,
)
BROKEN: dict[str, Broken] = {kernel.name: kernel for theme in THEMES for kernel in theme.KERNELS}
SOURCE = HEADER + "".join(kernel.source for kernel in BROKEN.values())


@cache
def checked() -> CompiledFunctions:
    """Return the broken kernels for the CPU backend, which checks them."""
    return compile_cuda(SOURCE, check=True)


@cache
def checked_mended() -> CompiledFunctions:
    """Return the mended twins for the CPU backend, which checks them."""
    return compile_cuda(
        HEADER + "".join(kernel.mended.source for kernel in BROKEN.values()), check=True
    )
