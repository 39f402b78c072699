"""Exercises with a gate: to do, right, or a card that says what is not right yet."""

import ast
import inspect
import re
import textwrap
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

from helpers.base.called_kernels import called_kernels
from helpers.base.terminal import let_print
from helpers.checks import poisoned, silent
from helpers.compiler import CompileError
from helpers.compiler.build import every_call_checked
from helpers.cuda_on_cpu.scanner import mask_comments
from helpers.device import BACKEND
from helpers.exercises.card import Card
from helpers.exercises.pictures import thread_picture
from helpers.exercises.progress import entry, update
from helpers.exercises.solutions import solution_of_notebook
from helpers.simulator.errors import SimulatorError

# an empty body; not the braces of a variable, nor behind what a constructor sets: : x(0) {}
EMPTY_KERNEL = re.compile(r"__(?:global|device)__(?:[^{};:]|::)*\)\s*\{\s*\}")


class ExerciseError(AssertionError):
    """An attempt that its check refused. Shows itself in a notebook without a traceback."""

    def _render_traceback_(self):  # what IPython prints below the card, which says the rest
        return ["Stopped here: the cells below run once this one is right."]


def exercise(name: str, attempt, check: Callable, hint: str = "") -> None:
    """Show whether an exercise is still to do, right, or wrong, and why.

    `attempt` is what the learner wrote: a function or class, a CUDA string, a number or letter, or
    a tuple of these. It is to do while it is None or `...`, while a gap `...` or a TODO that is no
    comment stands in it, and while a function, or a kernel in a string, is empty. Otherwise
    `check(attempt)` decides: it raises AssertionError or returns False if the attempt is wrong. New
    tensors hold NaN meanwhile (whole numbers: the largest).

    A CUDA string runs with check=True, and where there is a GPU then once more on it: an index out
    of range or a race is found, with its thread, before it can do harm. The hint shows from the
    first wrong attempt on. Progress is kept (progress.py).

    Raises ExerciseError if the attempt is wrong. An error in Python code that is neither a check's
    nor a kernel's passes through, with its traceback, below the card.
    """
    if passes(name, attempt, check, hint):
        update(name, solved=True)
        show(Card(name, "right"))
    else:
        frame = inspect.currentframe().f_back
        check_solution(name, check, frame.f_globals | frame.f_locals)


def passes(name: str, attempt, check: Callable, hint: str) -> bool:
    """Return whether an attempt is right; show a card if it is to do, or wrong, which also raises.

    It is all that `exercise` says but for what is right: that shows nothing, and is not kept.
    """
    if _is_to_do(attempt):
        show(Card(name, "to do"))
        return False
    update(name, tries=entry(name).get("tries", 0) + 1)
    try:
        with called_kernels() as called:
            _try(check, attempt)
    except Exception as error:
        if not _speaks_for_itself(error):
            show(Card(name, "wrong", f"{type(error).__name__}: {_message(error)}", hint=hint))
            raise
        text, stopped_at = _message(error), getattr(error, "stopped_at", None)
        ran = _holds_kernel(attempt) and called
        if ran and isinstance(error, AssertionError) and not stopped_at:
            text += "\nEvery access was in order."
        picture = thread_picture(*stopped_at) if stopped_at else ""
        show(Card(name, "wrong", text, picture, hint))
        raise ExerciseError(f"✗ {name}: not right yet") from None
    return True


def check_solution(name: str, check: Callable, names: dict) -> None:
    """Check the solution that a notebook of these names shows, under SOLUTIONS_OF."""
    solution = solution_of_notebook(name, names)
    if solution is not None:
        with redirect_stdout(StringIO()):  # the learner sees an exercise that is to do
            _try(check, solution)


def _try(check, attempt):
    with poisoned(), silent():
        if _holds_kernel(attempt):
            with every_call_checked(), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # remarks on what is no error
                _run(check, attempt)
            if BACKEND == "cpu":
                return
        _run(check, attempt)


def _run(check, attempt):
    verdict = check(attempt)
    assert verdict is None or verdict, _describe_wrong(attempt)


def _holds_kernel(attempt) -> bool:
    if isinstance(attempt, tuple | list):
        return any(map(_holds_kernel, attempt))
    return isinstance(attempt, str) and "__global__" in attempt


def _speaks_for_itself(error) -> bool:
    """Whether an error's message says all: a check's, the compiler's, a kernel's or launcher's."""
    known = AssertionError, CompileError, SimulatorError
    return isinstance(error, known) or hasattr(error, "stopped_at")


def _message(error) -> str:
    message = str(error) or f"this does not hold: {_failed_line(error)}"
    return "\n".join([message, *getattr(error, "__notes__", [])])


def _failed_line(error):
    return traceback.extract_tb(error.__traceback__)[-1].line


def show(card: Card) -> None:
    """Show a card in a notebook, print it elsewhere."""
    try:
        from IPython import get_ipython
    except ImportError:  # a script without IPython
        get_ipython = None
    if get_ipython and get_ipython():
        from IPython.display import display

        display(card)
    else:
        let_print()
        print(card)


def _is_to_do(attempt):
    if attempt is None or attempt is ...:
        return True
    if isinstance(attempt, str):
        code = mask_comments(attempt)
        return bool(re.search(r"\bTODO\b", code) or EMPTY_KERNEL.search(code))
    if isinstance(attempt, tuple | list):
        return any(_is_to_do(part) for part in attempt)
    if inspect.isfunction(attempt) or inspect.isclass(attempt):
        return _has_gap(attempt)
    return False


def _has_gap(definition):
    """Whether a function or class has an empty body, or a `...` outside an index."""
    try:
        source = textwrap.dedent(inspect.getsource(definition))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # no source, or a lambda inside a longer line
        return False
    node = tree.body[0]
    methods = [n for n in getattr(node, "body", ()) if isinstance(n, ast.FunctionDef)]
    functions = methods if isinstance(node, ast.ClassDef) else [node]
    if any(_is_empty(f) for f in functions if isinstance(f, ast.FunctionDef)):
        return True
    in_index = {
        part
        for index in ast.walk(tree)
        if isinstance(index, ast.Subscript)
        for part in ast.walk(index.slice)
    }
    return any(
        isinstance(part, ast.Constant) and part.value is ... and part not in in_index
        for part in ast.walk(tree)
    )


def _is_empty(function):
    """Whether a function's body is nothing but `pass` and a docstring."""
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in function.body
    )


def _describe_wrong(attempt):
    is_short = isinstance(attempt, int | float | complex | tuple | str) and len(repr(attempt)) < 40
    return f"{attempt!r} is not right yet" if is_short else "not right yet"
