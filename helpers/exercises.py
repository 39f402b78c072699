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
    or a tuple of these. It is still to do while it is None or `...`, while it contains the word
    TODO or a gap `...`, and while a function's body is empty: then "to do" and the hint are
    printed. Otherwise `check(attempt)` decides: it raises AssertionError or returns False if the
    attempt is wrong.

    Raises ExerciseError with the check's message and the hint. Any other error of the attempt
    (a compile error, an index out of range) passes through, with the hint as a note.
    """
    if _is_to_do(attempt):
        print(f"○ {name}: to do" + (f"\n  Hint: {hint}" if hint else ""))
        return
    try:
        verdict = check(attempt)
        assert verdict is None or verdict, _describe_wrong(attempt)
    except AssertionError as error:
        message = str(error) or f"this does not hold: {_failed_line(error)}"
        note = f"\n  Hint: {hint}" if hint else ""
        raise ExerciseError(f"✗ {name}: {message}{note}") from None
    except Exception as error:
        if hint:
            error.add_note(f"Hint: {hint}")
        raise
    print(f"● {name}: passed")


def _is_to_do(attempt):
    if attempt is None or attempt is ...:
        return True
    if isinstance(attempt, str):
        return "TODO" in attempt
    if isinstance(attempt, tuple | list):
        return any(_is_to_do(part) for part in attempt)
    if inspect.isfunction(attempt) or inspect.isclass(attempt):
        return _has_gap(attempt)
    return False


def _has_gap(definition):
    """Whether a function or class has TODO, an empty body, or a `...` outside an index."""
    try:
        source = textwrap.dedent(inspect.getsource(definition))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # no source, or a lambda inside a longer line
        return False
    node = tree.body[0]
    methods = [n for n in getattr(node, "body", ()) if isinstance(n, ast.FunctionDef)]
    functions = methods if isinstance(node, ast.ClassDef) else [node]
    if "TODO" in source or any(_is_empty(f) for f in functions if isinstance(f, ast.FunctionDef)):
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


def _failed_line(error):
    return traceback.extract_tb(error.__traceback__)[-1].line
