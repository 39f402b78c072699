"""A kernel with one planted fault, in Python and in CUDA, that carries its own mend.

    if i <= n:  # fix: if i < n:
        out[i] = inp[i]  # fault

`fault` marks the line that an error names. The text behind `fix:` is what its line should be; a
line that has nothing before the mark is one that the kernel forgets. A race has two lines: `other`
marks the second, unless it is the same. In CUDA the marks are the same after //.
"""

import dataclasses
import inspect
import linecache
import re
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType

from helpers import simulator
from helpers.tests.proof.kernel import Kernel

OUT_OF_RANGE = "index out of range"
RACE = "data race"
BARRIER = "diverged barrier"
UNWRITTEN = "uninitialised shared memory"
WARP = "warp operation"


@dataclass(frozen=True, kw_only=True)
class Broken(Kernel):
    """A kernel with one fault, and what has to be said about it; `mended` is its twin without."""

    kind: str  # one of the five above
    fault: str  # what is wrong, and what a GPU makes of it
    element: str = ""  # how a message names it, as Python writes it: "tile[0, 16]"
    threads: tuple[int | tuple, ...] = ()  # that a message names
    in_block: int | tuple | None = 0  # that a message names; None: one of several
    reported: str = ""  # as which kind the fault shows, if not as its own

    @cached_property
    def mended(self) -> Kernel:
        """The same kernel without the fault."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(Kernel)}
        return Kernel(**fields | {"python": _mended(self.python), "cuda": mend(self.cuda)})

    @property
    def python_lines(self) -> tuple[int, int]:
        """The lines of the fault and of the access that it conflicts with, in the Python file."""
        lines, first = inspect.getsourcelines(self.python)
        return _marked("".join(lines), first)

    def cuda_lines(self, source: str) -> tuple[int, int]:
        """The same two lines in a string that contains this kernel's source."""
        return _marked(self.cuda, source[: source.index(self.cuda)].count("\n") + 1)


def mend(source: str) -> str:
    """Return a source with the text after each `fix:` in place of the line that carries it."""
    return re.sub(r"^( *).*(?:#|//) (?:\w+; )?fix: (.*)$", r"\1\2", source, flags=re.MULTILINE)


def fault_lines(source: str, body: str) -> list[int]:
    """Return the numbers of the lines marked `fault` in a body, where the source has it."""
    first = source[: source.index(body)].count("\n") + 1
    marked = re.compile(r"(?:#|//) fault\b")
    return [line for line, text in enumerate(body.splitlines(), first) if marked.search(text)]


def _mended(kernel: FunctionType) -> FunctionType:
    """Return the mended twin of a Python kernel; tracebacks show its own lines."""
    lines, _ = inspect.getsourcelines(kernel)
    source = mend("".join(lines))
    file = f"<mended {kernel.__name__}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    scope = vars(simulator) | kernel.__globals__  # a mend may need what the kernel does not
    exec(compile(source, file, "exec"), scope)
    return scope[kernel.__name__]


def _marked(source: str, first: int) -> tuple[int, int]:
    """Return the numbers of the lines marked `fault` and `other`; `first`: of the first line."""
    lines = {
        found[1]: number
        for number, line in enumerate(source.splitlines(), first)
        if (found := re.search(r"(?:#|//) (fault|other)\b", line))
    }
    return lines["fault"], lines.get("other", lines["fault"])
