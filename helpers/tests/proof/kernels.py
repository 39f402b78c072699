"""All kernels of the proof, and their CUDA strings compiled, a theme at a time."""

from collections.abc import Callable
from functools import cache

from helpers.compiler import compile_cuda
from helpers.tests.proof import (
    atomics,
    control_flow,
    global_memory,
    reductions,
    shared_memory,
    sums,
    vectors,
)
from helpers.tests.proof.kernel import HEADER, Kernel

THEMES = (global_memory, control_flow, shared_memory, vectors, sums, reductions, atomics)
KERNELS: dict[str, Kernel] = {kernel.name: kernel for theme in THEMES for kernel in theme.KERNELS}


def source_of(theme) -> str:
    """Return the CUDA string of a theme: its kernels and the functions that launch them."""
    return HEADER + "".join(kernel.source for kernel in theme.KERNELS)


@cache
def compiled(name: str) -> Callable:
    """Return the function that launches the CUDA kernel of that name."""
    theme = next(theme for theme in THEMES if KERNELS[name] in theme.KERNELS)
    return getattr(compile_cuda(source_of(theme)), KERNELS[name].function)
