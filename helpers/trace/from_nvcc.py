"""What nvcc makes of the kernels of a CUDA string: registers, wide accesses to shared memory."""

import re
from collections.abc import Callable
from functools import lru_cache

from helpers.compiler.device_code import gpu_arch, resource_usage, sass_lines
from helpers.compiler.errors import CompileError
from helpers.compiler.tools import ToolMissing
from helpers.trace.record import Launch

WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}  # LDS.128: 16 bytes
# instructions that load from, store to shared memory: also through pointers to any memory, matrices
# at a time, copies from global memory
ANY = {
    "load": r"\b(?:LDS|LDSM|LD|ATOMS|ATOM)\b",
    "store": r"\b(?:STS|STSM|ST|LDGSTS|UBLKCP|UTMALDG)\b",
}


def add_device_code(
    launches: list[Launch], source: str, arch: str, flags: tuple[str, ...] = ()
) -> None:
    """Write into launches what nvcc makes of them for a chip; nothing where it cannot tell.

    Nor where no access is of shared memory: Trace asks for the registers when they are wanted.
    """
    for launch in launches:
        of_shared = [access for access in launch.accesses if access.space == "shared"]
        if of_shared:
            kernel = launch.instance or launch.kernel
            launch.registers = registers(source, kernel, arch, flags)
            widest = _widest(source, kernel, arch, flags)
            for access in of_shared:
                unknown = widest.get((None, access.operation))
                access.widest = widest.get((access.line, access.operation), unknown)


@lru_cache(maxsize=256)
def registers(source: str, kernel: str, arch: str, flags: tuple[str, ...] = ()) -> int | None:
    """Return a thread's registers; None if nvcc cannot tell, or of which of several templates."""
    found = _of_kernel(_ask(resource_usage, source, arch, flags), kernel)
    return found.registers if found else None


@lru_cache(maxsize=256)
def _widest(
    source: str, kernel: str, arch: str, flags: tuple[str, ...]
) -> dict[tuple[int | None, str], int]:
    """Return the bytes of the widest load and store of shared memory in each line.

    (None, "load") is there, as 0, if no instruction of the kernel can load from shared memory.
    """
    code = _of_kernel(_ask(sass_lines, source, arch, flags), kernel)
    if code is None:
        return {}
    everything = "\n".join(instruction for _, instruction in code)
    widest = {(None, how): 0 for how, one in ANY.items() if not re.search(one, everything)}
    for line, instruction in code:
        if found := re.search(r"\b(LDS|STS)\b(\S*)", instruction):
            key = line, "load" if found[1] == "LDS" else "store"
            widths = (WIDTHS.get(part) for part in found[2].split("."))
            width = next(filter(None, widths), 4)
            widest[key] = max(width, widest.get(key, 0))
    return widest


@lru_cache(maxsize=256)
def _ask(question: Callable, source: str, arch: str, flags: tuple[str, ...]) -> dict:
    """Ask nvcc about the kernels of a string; {} where it is missing or refuses the string."""
    is_here = arch == f"sm_{gpu_arch('')}"  # then the string may need its special instructions
    try:
        return question(source, None if is_here else arch, flags=flags)
    except (ToolMissing, CompileError):
        return {}


def _of_kernel(answers: dict, kernel: str):
    """Return the answer about one kernel; None if there is none, or which of several is open."""
    for plain in (_without_namespace, plain_name):
        found = [answers[name] for name in answers if plain(name) == plain(kernel)]
        if len(found) == 1:
            return found[0]
    return None


def plain_name(kernel: str) -> str:
    """Return a kernel's name without namespaces and template arguments."""
    return _without_namespace(kernel).partition("<")[0]


def _without_namespace(kernel: str) -> str:
    name, bracket, arguments = kernel.replace(" ", "").partition("<")
    return name.split("::")[-1] + bracket + arguments
