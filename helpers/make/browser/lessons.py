"""The Python kernels and exercises of a notebook, each a lesson that runs by itself.

A lesson is a cell that launches a Python kernel, or an exercise. Before it run the cells that
define the names it uses: kernels and what stands beside them go to the editor with it, functions
that a check needs and cells that are folded run unseen. What needs a name that a page has not
(a compiler, a plot, the data set) is no lesson.
"""

import ast
import builtins
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from nbconvert.filters import markdown2html

from helpers.exercises.solutions import DETAILS

NAMES = {  # of notebooks' first cells: what is there in the browser, see python/run.py
    "RaceError", "SimulatorError", "blockDim", "blockIdx", "cdiv", "check_close", "exercise",
    "expect_error", "gridDim", "launch", "random", "threadIdx", "torch", "trace",
}  # fmt: skip
BUILTINS = set(dir(builtins))
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass
class Cell:
    """A code cell: the names that it defines and those that it takes from elsewhere."""

    number: int
    source: str
    hidden: bool
    tree: ast.Module
    defines: set = field(default_factory=set)
    uses: set = field(default_factory=set)


def of(notebook: Path) -> list[dict]:
    """Return the lessons of a notebook, in its order."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    code = [c for i, cell in enumerate(cells) if (c := _code(i, cell, sources[i])) is not None]
    defined_by, found = {}, []
    for cell in code:
        needed = _needed(cell, defined_by)
        for name in cell.defines:
            defined_by[name] = cell
        if needed is None or not (exercise := _call(cell, "exercise")) and not _launches(cell):
            continue
        found.append(_lesson(notebook, cells, sources, cell, needed, exercise))
    return found


def _code(number, cell, source):
    """Return a code cell, or None if it is something else or no plain Python."""
    if cell["cell_type"] != "code":
        return None
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    hidden = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
    found = Cell(number, source, hidden, tree)
    found.uses = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    found.uses -= _defined(tree.body, inside=True) | BUILTINS
    found.defines = _defined(tree.body, inside=False)
    return found


def _defined(statements, inside):
    """Return the names that statements define; with those `inside` functions, and parameters."""
    names = set()
    for statement in statements:
        is_definition = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        if is_definition:
            names.add(statement.name)
        if is_definition and not inside:
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg) and inside:
                names.add(node.arg)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return names


def _needed(cell, defined_by):
    """Return the cells that must run before one, in their order; None if a page cannot run it."""
    found, todo = {}, [cell]
    while todo:
        one = todo.pop()
        for name in one.uses - NAMES:
            if name not in defined_by:
                return None
            before = defined_by[name]
            if before.number not in found:
                if any(isinstance(n, ast.Import | ast.ImportFrom) for n in before.tree.body):
                    if not _is_standard(before.tree):
                        return None
                found[before.number] = before
                todo.append(before)
    return [found[number] for number in sorted(found)]


def _is_standard(tree):
    """Whether a cell imports from Python's own library alone."""
    for node in tree.body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] not in sys.stdlib_module_names for name in names):
            return False
    return True


def _call(cell, function):
    """Return the call of a function that is a statement of the cell, or None."""
    for node in cell.tree.body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == function:
            return call
    return None


def _launches(cell):
    """Whether a cell launches a kernel, not only in a function."""
    outside = [n for n in cell.tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return any(
        isinstance(node, ast.Call) and getattr(node.func, "id", "") == "launch"
        for statement in outside
        for node in ast.walk(statement)
    )


def _lesson(notebook, cells, sources, cell, needed, exercise):
    is_kernel = [_is_kernel(c) and not c.hidden for c in needed]
    unseen = [c for c, seen in zip(needed, is_kernel, strict=True) if exercise or not seen]
    seen = [c for c, seen in zip(needed, is_kernel, strict=True) if not exercise and seen]
    first = min([cell.number, *(c.number for c in seen)])
    if exercise:
        title, text = exercise.args[0].value, _text_before(cells, sources, cell.number)
    else:
        kernels = [n.name for c in (*seen, cell) for n in c.tree.body if _is_kernel_node(n)]
        title, text = ", ".join(kernels), _text_before(cells, sources, first)
    hidden = "\n\n".join(c.source for c in unseen)
    return {
        "id": f"{notebook.stem}-{cell.number}",
        "notebook": notebook.stem,
        "title": title,
        "exercise": bool(exercise),
        "text": markdown2html(COMMENT.sub("", text)),
        "setup": hidden,
        "code": "\n\n\n".join(c.source for c in (*seen, cell)) + "\n",
        "solution": _solution(cells, sources, cell.number) if exercise else "",
    }


def _is_kernel_node(node):
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return isinstance(node, ast.FunctionDef) and bool(names & {"threadIdx", "blockIdx"})


def _is_kernel(cell):
    return any(map(_is_kernel_node, cell.tree.body))


def _text_before(cells, sources, number):
    """Return the Markdown before a cell, down to the code before that; folded parts left out."""
    parts = []
    for i in range(number - 1, -1, -1):
        hidden = cells[i]["metadata"].get("jupyter", {}).get("source_hidden", False)
        if cells[i]["cell_type"] == "code":
            if hidden and not parts:
                continue
            break
        text = re.sub(r"<details>.*?</details>", "", sources[i], flags=re.DOTALL).strip()
        if text:
            parts.insert(0, text)
    return "\n\n".join(parts)


def _solution(cells, sources, number):
    """Return the solution below an exercise as HTML."""
    for i in range(number + 1, len(cells)):
        if cells[i]["cell_type"] == "code":
            break
        if folded := DETAILS.search(sources[i]):
            return markdown2html(folded[1])
    return ""
