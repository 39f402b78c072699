"""The solutions that notebooks show, checked: under SOLUTIONS_OF, which `make test` sets.

A solution stands in a Markdown cell behind its exercise, folded:

    <details><summary>Solution</summary>

    ```cpp
    __global__ void …
    ```
    </details>

A block of `cpp` is the attempt itself, a CUDA string. Blocks of `python` are run beside the
notebook's names, and then hold what the exercise is called with. SOLUTIONS_OF is its path.
"""

import ast
import json
import linecache
import os
import re
from pathlib import Path

from helpers.exercises.progress import TASKS, calls

DETAILS = re.compile(r"<details>\s*<summary>\s*Solution.*?</summary>(.*?)</details>", re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def solution_of_notebook(name: str, names: dict):
    """Return the solution of an exercise if SOLUTIONS_OF names a notebook, else None.

    `names` are the notebook's. AssertionError: the notebook shows no solution.
    """
    notebook = os.environ.get("SOLUTIONS_OF")
    return solution_of(Path(notebook), name, names) if notebook else None


def solution_of(notebook: Path, name: str, names: dict):
    """Return the attempt that a notebook shows as solution of the exercise of this name."""
    call, language, code = folded_solution(notebook, name)
    if language == "cpp":
        return code
    names = dict(names)
    file = f"<solution of {name}>"  # where the simulator finds a kernel's source
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    exec(compile(code, file, "exec"), names)
    return eval(compile(ast.Expression(call.args[1]), file, "eval"), names)


def folded_solution(notebook: Path, name: str) -> tuple[ast.Call, str, str]:
    """Return the call of an exercise, and its solution's language and code."""
    cells = json.loads(notebook.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    call, number = _call_of(name, cells, sources, notebook)
    blocks = BLOCK.findall(_folded_after(number, cells, sources))
    assert blocks, (
        f"{notebook}: expected a Markdown cell with <details><summary>Solution and a block of code "
        f"behind the exercise {name!r}"
    )
    languages = {language for language, _ in blocks}
    assert languages in ({"cpp"}, {"python"}), f"{name!r}: expected cpp or python, got {languages}"
    return call, languages.pop(), "\n".join(block for _, block in blocks)


def _call_of(name, cells, sources, notebook):
    for i, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            for call in calls(sources[i], ("exercise", "improve")):
                if call.args[0].value == name:
                    return call, i
    raise AssertionError(f"{notebook}: no cell asks for {name!r}")


def _folded_after(number, cells, sources) -> str:
    """Return what the first folded solution behind a cell holds, before the next exercise."""
    for cell, source in zip(cells[number + 1 :], sources[number + 1 :], strict=True):
        if cell["cell_type"] == "code" and calls(source, TASKS):
            break
        if cell["cell_type"] == "markdown" and (folded := DETAILS.search(source)):
            return folded[1]
    return ""
