"""Exercises with a gate: to do, passed, or one sentence about what is not right yet."""

import ast
import inspect
import textwrap
import traceback
from collections.abc import Callable


class ExerciseError(AssertionError):
    """An attempt that its check refused. Shows itself in a notebook without a traceback."""

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        return str(self).splitlines()


def exercise(name: str, attempt, check: Callable, hint: str = ""):
    """Say whether an exercise is still to do, passed, or not right yet.

    `attempt` is what the learner wrote: a function or class, a CUDA string, a number or letter,
    or a tuple of these. It counts as untouched while it is None or `...`, while a string holds
    the word TODO, and while a function's body is empty or has a gap `...` left: then "to do" and
    the hint are printed. Otherwise `check(attempt)` decides: it raises AssertionError or returns
    False if the attempt is wrong.

    Raises ExerciseError with the check's message and the hint. Any other error of the attempt
    (a compile error, an index out of range) passes through with the hint as a note.
    """
    if _untouched(attempt):
        print(f"○ {name}: to do" + (f"\n  Hint: {hint}" if hint else ""))
        return
    note = f"\nHint: {hint}" if hint else ""
    try:
        verdict = check(attempt)
    except AssertionError as error:
        message = str(error) or f"this does not hold: {_failed_line(error)}"
        raise ExerciseError(f"✗ {name}: {message}{note}") from None
    except Exception as error:
        if hint:
            error.add_note(f"Hint: {hint}")
        raise
    if verdict is not None and not verdict:
        given = (
            ""
            if callable(attempt) or isinstance(attempt, str) and "\n" in attempt
            else (f"{attempt!r} is ")
        )
        raise ExerciseError(f"✗ {name}: {given}not right yet{note}")
    print(f"● {name}: passed")


def _untouched(attempt):
    if attempt is None or attempt is ...:
        return True
    if isinstance(attempt, str):
        return "TODO" in attempt
    if isinstance(attempt, tuple | list):
        return any(_untouched(part) for part in attempt)
    if inspect.isfunction(attempt) or inspect.isclass(attempt):
        return _has_gap(attempt)
    return False


def _has_gap(definition):
    """Whether a function or class still has an empty body or a `...` outside an index."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(definition)))
    except (OSError, TypeError, SyntaxError):  # no source, or a lambda inside a longer line
        return False
    in_index = {
        id(node)
        for index in ast.walk(tree)
        if isinstance(index, ast.Subscript)
        for node in ast.walk(index.slice)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value is ... and id(node) not in in_index:
            return True
        if isinstance(node, ast.FunctionDef) and all(_does_nothing(s) for s in node.body):
            return True
    return False


def _does_nothing(statement):
    """Whether a statement is `pass` or a docstring."""
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _failed_line(error):
    return traceback.extract_tb(error.__traceback__)[-1].line
