"""Record what the kernels of a CUDA string do on the CPU backend."""

import ctypes
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from helpers.compiler import build as compiler
from helpers.compiler import tools
from helpers.compiler.device_code import kernel_name
from helpers.cuda_on_cpu.checked import kernel_parameters
from helpers.cuda_on_cpu.scanner import Source
from helpers.trace.from_nvcc import plain_name
from helpers.trace.machine_code import MachineCode, Place
from helpers.trace.record import SAMPLES, Access, Launch, Line, Request, Stage

SUMS = [
    "requests", "lanes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts",
    "same_address", "joined_requests", "joined_wavefronts", "texels",
]  # fmt: skip
OPERATIONS = ["load", "store", "atomic"]  # by AccessKind
SPACES = ["global", "shared", "texture", "surface"]  # by MemorySpace
ARRAY_BITS = 44  # of an offset; above them stands which array it is, if a request reaches several


def record(function: Callable, *args: Any, **kwargs: Any) -> tuple[Any, list[Launch]]:
    """Call a function from compile_cuda; return its result and a record of each launch it made.

    Requests, lanes, sectors and wavefronts are those of the CUDA string's accesses, one by one: a
    GPU's compiler may merge neighbouring ones. A line's executions are those of the part of it
    that most warps came to, of its parts that compute or access memory. FLOPs are read from the
    machine code (see machine_code.py).

    Raises what the function raises, errors of the checked kernel included; RuntimeError if
    binutils (objdump, addr2line) are missing.
    """
    traced = compiler.traced(function)
    library = ctypes.CDLL(str(tools.cpu_backend().runtime_library()))
    library.cuda_on_cpu_take_counts.restype = ctypes.c_char_p
    library.cuda_on_cpu_begin_counting()
    try:
        result = traced(*args, **kwargs)
    finally:
        text = library.cuda_on_cpu_take_counts()
    launches = json.loads(text)
    return result, _launches(launches, *compiler.source_of(function))


def _launches(counted: list[dict], source: str, label: str) -> list[Launch]:
    codes = {}  # of each library; one call may launch from several
    for launch in counted:
        code = codes.setdefault((launch["library"], launch["base"]), (set(), set()))
        for part in launch["counters"]:
            code[0].update(start - launch["base"] for start, _, _ in part["blocks"])
            code[1].update(access["code"] - launch["base"] for access in part["accesses"])
    machine_codes = {
        (library, base): _machine_code(library, label, frozenset(starts), frozenset(accesses))
        for (library, base), (starts, accesses) in codes.items()
    }
    text = dict(enumerate((line.strip() for line in source.splitlines()), start=1))
    kernels = {
        name: [parameter for parameter, _ in parameters]
        for name, parameters in kernel_parameters(Source(source)).items()
    }
    return [
        _Reader(launch, machine_codes[launch["library"], launch["base"]], text, kernels).launch()
        for launch in counted
    ]


@lru_cache(maxsize=64)  # a library never changes: its name is a hash of what is in it
def _machine_code(library: str, label: str, starts: frozenset, accesses: frozenset) -> MachineCode:
    return MachineCode(Path(library), label, sorted(starts), sorted(accesses))


class _Reader:
    """Makes a Launch of what all multiprocessors counted of it."""

    def __init__(
        self, counted: dict, code: MachineCode, text: dict[int, str], kernels: dict[str, list[str]]
    ):
        """`text` are the string's lines, `kernels` the names of each kernel's parameters."""
        self.counted, self.code, self.text, self.kernels = counted, code, text, kernels
        self.base = counted["base"]
        self.kernel = counted["kernel"]
        self.instance = self._kernel_that_ran() or self.kernel
        if plain_name(self.kernel) not in kernels:  # it was launched through a pointer
            self.kernel = self.instance
        self.accesses: dict[tuple, Access] = {}
        self.stages: dict[tuple, int] = defaultdict(int)

    def launch(self) -> Launch:
        for part in self.counted["counters"]:
            self._add_accesses(part)
        static = {
            access["array"]: access["array_bytes"]
            for part in self.counted["counters"]
            for access in part["accesses"]
            if SPACES[access["space"]] == "shared"
        }
        return Launch(
            self.kernel,
            tuple(self.counted["grid"]),
            tuple(self.counted["block"]),
            self.counted["dynamic_shared_bytes"] + sum(static.values()),
            "CPU backend",
            [access for _, access in sorted(self.accesses.items())],
            self._lines(),
            [Stage(*stage, requests) for stage, requests in sorted(self.stages.items())],
            self._busiest(),
            self.instance,
        )

    def _add_accesses(self, part: dict) -> None:
        merged = [self._access(counted) for counted in part["accesses"]]
        for access, counted in zip(merged, part["accesses"], strict=True):
            for name, value in zip(SUMS, counted["sums"], strict=True):
                setattr(access, name, getattr(access, name) + value)
        for number, warp, offsets, more in part["samples"]:
            access = merged[number]
            if len(access.samples) < SAMPLES:
                own = (None if o is None else o % (1 << ARRAY_BITS) for o in offsets)
                others = ((lane, offset % (1 << ARRAY_BITS)) for lane, offset in more)
                access.samples.append(Request((0, 0, 0), warp, tuple(own), tuple(others)))
        for stage, warp, number, requests in part["stages"]:
            access = merged[number]
            self.stages[stage, warp, access.line, access.operation, access.space] += requests

    def _busiest(self) -> Counter[tuple[str, str]]:
        most = Counter()
        for part in self.counted["counters"]:
            for space, kinds in zip(SPACES, part["busiest"], strict=True):
                for operation, requests in zip(OPERATIONS, kinds, strict=True):
                    most |= Counter({(operation, space): requests})  # the larger one
        return most

    def _access(self, counted: dict) -> Access:
        place = self.code.place(counted["code"] - self.base)
        line = place.line if place else 0
        operation = OPERATIONS[counted["kind"]]
        space = SPACES[counted["space"]]
        key = (line, operation, space, self._name(counted["array"]), counted["bytes"])
        text = self.text.get(line, "")
        return self.accesses.setdefault(key, Access(line, text, *key[1:]))

    def _name(self, array: str) -> str:
        """Return an array's name; the runtime has only a number for those of unknown kernels."""
        names = self.kernels.get(plain_name(self.kernel), [])
        number = re.fullmatch(r"argument (\d+)", array)
        return names[int(number[1]) - 1] if number and int(number[1]) <= len(names) else array

    def _kernel_that_ran(self) -> str | None:
        """Return the kernel of the string that has the basic blocks which ran."""
        starts = {start for part in self.counted["counters"] for start, _, _ in part["blocks"]}
        places = {place for start in starts for place in self.code.block(start - self.base)}
        symbols = {symbol for place in places for symbol in place.functions}
        kernels = {name for name in map(kernel_name, symbols) if plain_name(name) in self.kernels}
        return kernels.pop() if len(kernels) == 1 else None

    def _lines(self) -> list[Line]:
        executions: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # by basic block
        for part in self.counted["counters"]:
            for start, warps, lanes in part["blocks"]:
                total = executions[start - self.base]
                total[0] += warps
                total[1] += lanes
        most: dict[Place, tuple[bool, int, int]] = defaultdict(lambda: (False, 0, 0))
        flops: dict[int, int] = defaultdict(int)
        for start, (warps, lanes) in executions.items():
            for place, part in self.code.block(start).items():
                most[place] = max(most[place], (part.works, warps, lanes))
                flops[place.line] += part.flops * lanes
        lines = {}
        for place, (_, warps, lanes) in most.items():  # the copies of a line add up
            line = lines.setdefault(
                place.line,
                Line(place.line, self.text.get(place.line, ""), 0, 0, flops[place.line]),
            )
            line.executions += warps
            line.lanes += lanes
        lines.pop(self.counted["line"], None)  # the launch hands each thread its arguments
        return [line for _, line in sorted(lines.items()) if any(c.isalnum() for c in line.text)]
