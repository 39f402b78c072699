"""What `python -m kernels list` prints: from the files' first comments, and what was measured."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.compiler.source import Function, host_functions
from helpers.make import readme

FOLDER = Path(__file__).parents[1]  # of the kernel files
WIDTH = 100  # columns of a terminal
TYPE = r"\b(?:float(?:8_\w+|16|32|64)|bfloat16|complex64|u?int\d+)\b"
TYPES = re.compile(rf"{TYPE}(?:(?:, | or | and ){TYPE})*")
SHAPE = re.compile(r"\((?:\.\.\.|[A-Z]\w*), [^()=]*\)|\b[Aa]ny shape|[Cc]ontiguous")

LEGEND = """\
Each kernel file, its notebook and its functions; what it computes, what it takes, and how many
times as fast as PyTorch (or what is named) it is, at best and at worst, on which card.
All about one: python -m kernels list NAME. To take some along: python -m kernels take --help
"""


class Refusal(Exception):
    """What cannot be done, in a sentence for whoever asked."""


@dataclass(frozen=True)
class KernelFile:
    """A file in kernels/ and what its first comment says."""

    path: Path
    prose: tuple[str, ...]  # the lines from the name to the call, without the slashes
    notebook: str  # "07b_softmax"
    functions: tuple[Function, ...]  # that Python calls

    def parts(self, ends: str = r"\.") -> list[str]:
        """Return the prose sentence by sentence, or up to other ends, without notebook and call."""
        text = " ".join(self.prose).partition("Notebook:")[0].strip()
        return re.split(rf"(?<=[\w)\]])(?:{ends}) (?=\S)", text.removesuffix("."))


def names() -> list[str]:
    """Return the names of all kernel files."""
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


def kernel_file(name: str) -> KernelFile:
    """Read a kernel file; raises Refusal where there is none of the name."""
    if name not in names():
        raise Refusal(f"there is no kernel file {name!r}, but {', '.join(names())}")
    path = FOLDER / f"{name}.cu"
    source = path.read_text()
    head = source.split("\n//\n")[0].splitlines()[2:]  # behind the file's name and the licence's
    prose = tuple(line.removeprefix("//").strip() for line in head)
    functions = tuple(f for f in host_functions(source) if not f.hidden)
    notebook = re.search(r"Notebook: (\w+)\.", " ".join(prose))[1]
    return KernelFile(path, prose, notebook, functions)


def table() -> str:
    """Return four or five lines about each kernel file."""
    records = dict(readme.benches())
    return "\n".join([LEGEND, *(_entry(kernel_file(name), records.get(name)) for name in names())])


def whole(wanted: Sequence[str]) -> str:
    """Return all about some kernel files: their first comments, functions and measured works."""
    records = dict(readme.benches())
    files = [kernel_file(name) for name in wanted]
    return "\n".join(_whole(file, records.get(file.path.stem)) for file in files)


def _entry(file: KernelFile, record: dict | None) -> str:
    calls = ", ".join(function.name for function in file.functions)
    first = f"{file.path.name} ({file.notebook}): "
    lines = textwrap.wrap(first + calls, WIDTH, subsequent_indent="    ")
    lines += [f"    {_fit(text)}" for text in (file.parts()[0], f"takes {_takes(file)}")]
    indents = {"initial_indent": "    ", "subsequent_indent": "        "}
    lines += textwrap.wrap(_speed(record), WIDTH, **indents)
    return "\n".join([*lines, ""])


def _takes(file: KernelFile) -> str:
    """Return the parts of the prose that tell types and shapes, first those that begin with one."""
    first, *parts = file.parts(r"\.|;")
    parts = [first.rpartition(": ")[2], *parts] if TYPES.search(first) else parts
    told = [part for part in parts if SHAPE.search(part) or TYPES.search(part)]
    types: list[str] = []
    for part in [part for part in told if TYPES.match(part)]:
        told.remove(part)
        run = TYPES.match(part)[0]
        if not any(run in other for other in types):
            types.append(part if len(part) < 60 else run)
    return re.sub(r"(^|; )(Any|Each)\b", lambda match: match[0].lower(), "; ".join(types + told))


def _speed(record: dict | None) -> str:
    if record is None:
        return "not timed since it last changed"
    works = sorted(record["value"], key=lambda work: _against(work)[0])
    best, worst = works[-1], works[0]
    text = f"{_times(best)} ({best['work']})"
    if worst is not best:
        text += f", at worst {_times(worst)} ({worst['work']})"
    return f"{record['device']}: {text}"


def _against(work: dict) -> tuple[float, str]:
    """Return how many times as fast as PyTorch ours is; where it has none, as the best rival."""
    rivals = readme.rivals_of(work)
    name = "PyTorch" if "PyTorch" in rivals else min(rivals, key=rivals.get)
    return rivals[name], name


def _times(work: dict) -> str:
    ratio, rival = _against(work)
    return f"{ratio:.2f} × {rival}"


def _fit(text: str) -> str:
    return textwrap.shorten(text, WIDTH - 4, placeholder=" …")


def _whole(file: KernelFile, record: dict | None) -> str:
    lines = [f"kernels/{file.path.name}", "", *file.prose, ""]
    for function in file.functions:
        declaration = function.declaration.replace("torch::", "") + ";"
        lines += textwrap.wrap(declaration, WIDTH, subsequent_indent="    ")
    if record is None:
        return "\n".join([*lines, "", "It has not been timed since it last changed.", ""])
    rows = [readme.HEADER[1:], *(readme.row_of("", work)[1:] for work in record["value"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["", readme.machine_of(record)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, ""])
