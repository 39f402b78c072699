"""Write kernels/*.cu from the notebooks, where their source stands: `make kernels`.

A raw string in a code cell whose first line is `// kernels/<op>.cu` is the source of that file; a
string whose first line is `// kernels/<op>.cu (continued)` goes on with it. The cells are read, not
run.

A file too long to be a lesson is its own source. Its notebook, which its head names ("Notebook:
11d_general_convolution."), leads through it by a guided tour: it reads the file by the path
"../kernels/<op>.cu" and shows parts of it with `show_cuda` and `show_twins`. So no line stands
twice, and a part that the file no longer has stops the notebook.
"""

import ast
import difflib
import json
import re
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from helpers.base.machine import ROOT

NOTEBOOKS = ROOT / "notebooks"
KERNELS = ROOT / "kernels"
FIRST_LINE = re.compile(r"// kernels/(?P<op>[a-z0-9_]+)\.cu(?P<continued> \(continued\))?")
OWNER = re.compile(r"\bNotebook: (\d\d[a-z]?_\w+)\.")  # in the head of a file


@dataclass(frozen=True)
class KernelSource:
    """The text of kernels/<op>.cu and its notebook, which writes it or leads through it."""

    op: str
    text: str
    notebook: Path
    is_toured: bool = False  # the file is its own source


def notebook_paths(folder: Path = NOTEBOOKS) -> list[Path]:
    """Return the notebooks in the order of their numbers."""
    return sorted(folder.glob("[0-9][0-9]*_*.ipynb"))


def kernel_sources(folder: Path = NOTEBOOKS, kernels: Path = KERNELS) -> dict[str, KernelSource]:
    """Return the source of every kernel file by its op, in the order of the notebooks.

    Raises ValueError if two strings claim to be the same file, or one continues a file that its
    notebook has not begun, or has nothing below its first line. A file that is in no notebook's
    strings and has no tour is left out.
    """
    sources: dict[str, KernelSource] = {}
    for notebook in notebook_paths(folder):
        for number, op, continued, text in _kernel_strings(notebook):
            where = f"{notebook.name}, cell {number}"
            before = sources.get(op)
            if continued and (before is None or before.notebook != notebook):
                raise ValueError(f"{where}: continues kernels/{op}.cu, which no cell before begins")
            if not continued and before is not None:
                raise ValueError(
                    f"{where}: kernels/{op}.cu stands in {before.notebook.name} already; "
                    "a variant of it takes another first line"
                )
            text = f"{before.text}\n{text}" if continued else text
            sources[op] = KernelSource(op, text, notebook)
    for path in sorted(kernels.glob("*.cu")):
        notebook = None if path.stem in sources else _toured_in(path, folder)
        if notebook:
            sources[path.stem] = KernelSource(path.stem, path.read_text(), notebook, True)
    return dict(sorted(sources.items(), key=lambda item: item[1].notebook.name))


def kernel_differences(folder: Path = NOTEBOOKS, kernels: Path = KERNELS) -> str:
    """Return how kernels/*.cu differ from the notebooks as a unified diff; empty if they do not."""
    sources = kernel_sources(folder, kernels)
    names = sorted({path.stem for path in kernels.glob("*.cu")} | set(sources))
    lines: list[str] = []
    for op in names:
        path = kernels / f"{op}.cu"
        file = path.read_text().splitlines(keepends=True) if path.exists() else []
        source = sources[op].text.splitlines(keepends=True) if op in sources else []
        of = sources[op].notebook.name if op in sources else "no notebook"
        lines += difflib.unified_diff(file, source, f"kernels/{op}.cu", of)
    return "".join(lines)


def export(folder: Path = NOTEBOOKS, kernels: Path = KERNELS) -> None:
    """Write every kernel file that differs from its notebook; say which."""
    sources = kernel_sources(folder, kernels)
    for op, source in sorted(sources.items()):
        path = kernels / f"{op}.cu"
        if not path.exists() or path.read_text() != source.text:
            path.write_text(source.text)
            print(f"kernels/{op}.cu: written from {source.notebook.name}")
    for path in sorted(kernels.glob("*.cu")):
        if path.stem not in sources:
            print(f"kernels/{path.name}: stands in no notebook; {_what_is_missing(path)}")
    toured = sum(source.is_toured for source in sources.values())
    print(f"{len(sources) - toured} kernel files are as in their notebooks, {toured} have a tour")


def _what_is_missing(path: Path) -> str:
    named = OWNER.search(_head_of(path))
    reads = f"let {named[1]} read it ({_path_in_cells(path)})" if named else "name one in its head"
    return f"remove it, write it there, or {reads}"


def _toured_in(path: Path, folder: Path) -> Path | None:
    """Return the notebook that a file's head names, if code of it reads the file."""
    named = OWNER.search(_head_of(path))
    notebook = folder / f"{named[1]}.ipynb" if named else None
    if notebook is None or not notebook.exists():
        return None
    cells = json.loads(notebook.read_text())["cells"]
    code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return notebook if any(_path_in_cells(path) in source for source in code) else None


def _path_in_cells(path: Path) -> str:
    return f'"../kernels/{path.name}"'


def _head_of(path: Path) -> str:
    """Return the first comment of a file in one line."""
    lines = takewhile(lambda line: line.startswith("//"), path.read_text().splitlines())
    return " ".join(line.removeprefix("//").strip() for line in lines)


def _kernel_strings(notebook: Path):
    """Yield (cell number, op, continued, text) for each kernel string of a notebook, in order."""
    cells = json.loads(notebook.read_text())["cells"]  # nbformat takes three seconds to import
    for number, cell in enumerate(cells, 1):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "// kernels/" not in source:
            continue
        strings = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for node in sorted(strings, key=lambda node: (node.lineno, node.col_offset)):
            first, _, rest = node.value.partition("\n")
            match = FIRST_LINE.fullmatch(first)
            if match and not rest.strip():  # a word of some call: no file is lost to it
                raise ValueError(
                    f"{notebook.name}, cell {number}: expected code below {first!r}, got none"
                )
            if match and match["continued"]:
                yield number, match["op"], True, rest.strip("\n") + "\n"
            elif match:
                yield number, match["op"], False, node.value.strip("\n") + "\n"


if __name__ == "__main__":
    try:
        export()
    except ValueError as error:
        sys.exit(str(error))
