"""The page of a kernel file: what it says of itself, how to call it, its figures, its source."""

import json
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from pygments.lexers import CppLexer, CudaLexer, PythonLexer

from helpers.compiler.source import host_functions
from helpers.make.kernels import kernel_sources
from helpers.make.readme import HEADER, RECORDS, machine_of, row_of
from helpers.make.site.colours import coloured
from helpers.make.site.plan import Entry, Plan


@dataclass(frozen=True)
class Head:
    """The first comment of a kernel file: what it is, and the call that compiles it."""

    prose: str
    call: str  # Python


def head_of(source: str) -> Head:
    """Read the first comment, whose parts a bare `//` sets apart; ValueError where it has none."""
    lines = source.splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    comment = [line.removeprefix("//").removeprefix(" ") for line in lines[:end]]
    if "" not in comment:
        raise ValueError(f"{lines[0]}: the first comment has no call behind a bare //")
    middle = comment.index("")
    return Head(" ".join(comment[2:middle]), "\n".join(comment[middle + 1 :]))


def kernel_page(plan: Plan, entry: Entry) -> str:
    """Return the page of a kernel file, without its frame."""
    source = entry.source.read_text(encoding="utf-8")
    op, head = entry.source.stem, head_of(source)
    told = escape(head.prose.partition("Notebook:")[0].strip())
    thanks = head.prose.partition("Notebook:")[2].partition(". ")[2].strip()
    functions = [function for function in host_functions(source) if not function.hidden]
    calls = "\n".join(f"{f.declaration.replace('torch::', '')};" for f in functions)
    return f"""<div class="prose">
<h1>{escape(entry.title)}</h1>
<p>{told}</p>
<p>{_notebooks(plan, entry)}</p>
{f"<p>{escape(thanks)}</p>" if thanks else ""}
<h2 id="call">How to call it</h2>
<p>The file and this call do, in a folder of your own, with PyTorch and nothing else:</p>
{coloured(head.call, PythonLexer)}
<p>Its functions:</p>
{coloured(calls, CppLexer)}
<h2 id="figures">Figures</h2>
{_figures(op)}
<h2 id="source">Source</h2>
</div>
<div class="source">{coloured(source, CudaLexer)}</div>"""


def notebooks_with(plan: Plan, op: str) -> tuple[Entry, list[Entry]]:
    """Return the notebook of a kernel file, and the others that speak of it."""
    maker = _sources()[op].notebook
    made_in = next(entry for entry in plan.notebooks if entry.source == maker)
    others = [
        entry
        for entry in plan.notebooks
        if entry != made_in and re.search(rf"\b{op}\.cu\b", _cells_of(entry.source))
    ]
    return made_in, others


def kernels_of(plan: Plan, notebook: Path) -> list[Entry]:
    """Return the kernel files that a notebook makes or leads through."""
    return [entry for entry in plan.kernels if _sources()[entry.source.stem].notebook == notebook]


_sources = cache(kernel_sources)


@cache
def _cells_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def _notebooks(plan: Plan, entry: Entry) -> str:
    def link(notebook: Entry) -> str:
        return f'<a href="{entry.root}{notebook.address}">{escape(notebook.title)}</a>'

    made_in, others = notebooks_with(plan, entry.source.stem)
    is_toured = _sources()[entry.source.stem].is_toured
    told = "A guided tour through it is in" if is_toured else "It is written and explained in"
    also = f" Also in {', '.join(map(link, others))}." if others else ""
    return f"{told} {link(made_in)}.{also}"


def _figures(op: str) -> str:
    """Return what `make bench` measured of the file as a table."""
    record = RECORDS / f"bench_{op}.json"
    if not record.exists():
        return "<p>It has not been timed since it last changed.</p>"
    measured = json.loads(record.read_text())
    rows = [row_of(op, work)[1:] for work in measured["value"]]
    head = "".join(f"<th>{name}</th>" for name in HEADER[1:])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"""<p>{escape(machine_of(measured))}. The last columns say how many times as fast it is
as its rivals; the floor is a copy of as many bytes, or cuBLAS's product of as many FLOPs.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"""
