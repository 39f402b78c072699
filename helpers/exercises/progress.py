"""What is solved, kept in .cache/progress.json.

The file holds what the learner did: for each exercise by its name how often it was tried and
whether it is solved, for each prediction the guess and what was measured, for each capstone and
open exercise the marks of all attempts that were right. `make clean` keeps it.
"""

import ast
import contextlib
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from helpers.base.machine import CACHE, ROOT
from helpers.compiler.tools import writing

FILE = CACHE / "progress.json"
NOTEBOOKS = ROOT / "notebooks"
# functions whose first argument is a task's name
TASKS = ("exercise", "improve", "predict", "capstone")


@dataclass(frozen=True)
class Chapter:
    """One notebook: its file's name without .ipynb, and its tasks."""

    notebook: str
    tasks: list[str]


def entry(name: str) -> dict:
    """Return what is known of an exercise or a prediction; an empty dict before the first try."""
    return known().get(name, {})


def update(name: str, **facts) -> None:
    """Add facts to what is known of an exercise or a prediction."""
    _change(name, lambda before: before | facts)


def append(name: str, key: str, item) -> None:
    """Add an item to the list that is known of a task under this key."""
    _change(name, lambda before: before | {key: [*before.get(key, []), item]})


def _change(name, function):
    """Let a function change what is known of a task, alone: what others write stays."""
    with writing(FILE.parent), _alone():
        facts = known()
        facts[name] = function(facts.get(name, {}))
        part = FILE.with_suffix(f".{os.getpid()}.part")
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        part.write_text(text, encoding="utf-8")
        os.replace(part, FILE)  # whole or not at all


def chapters() -> list[Chapter]:
    """Return the notebooks in their order, with the tasks that their cells name."""
    paths = sorted(NOTEBOOKS.glob("[0-9][0-9]*_*.ipynb"))
    return [Chapter(path.stem, tasks_of(path)) for path in paths]


def tasks_of(notebook: Path) -> list[str]:
    """Return the names of a notebook's exercises and predictions, in their order."""
    names: list[str] = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        for call in calls("".join(cell["source"]), TASKS):
            name = ast.literal_eval(call.args[0])
            if name not in names:
                names.append(name)
    return names


def calls(source: str, functions: tuple[str, ...]) -> list[ast.Call]:
    """Return the calls of functions whose first argument is a literal string, in their order."""
    if not any(name in source for name in functions):  # as in most cells
        return []
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with a magic, or one the learner has not finished
        return []
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in functions
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


@contextlib.contextmanager
def _alone():
    """Keep other kernels from writing meanwhile, where the file system has locks."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with open(FILE.with_suffix(".lock"), "w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the process, too
        yield


def known() -> dict:
    """Return what is known of every exercise and prediction, by its name."""
    try:
        facts = json.loads(FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{FILE}: expected the JSON that exercises write ({error})") from None
    if not isinstance(facts, dict):
        raise ValueError(f"{FILE}: expected the JSON that exercises write, not {facts!r}")
    return facts
