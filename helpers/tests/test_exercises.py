"""An exercise is to do, passed, or refused with one sentence; never passed by accident."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close
from helpers.compiler.errors import CompileError
from helpers.exercises import ExerciseError, exercise
from helpers.simulator import OutOfRangeError, launch, threadIdx


def never(_attempt):
    raise AssertionError("the check of an untouched exercise ran")


def only_pass(x):
    pass


def only_dots(x):
    """What it should do."""
    ...


def only_docstring(x):
    """What it should do."""


def with_a_gap(out, n):
    i = ...
    if i < n:
        out[i] = 1


def with_a_word(out, n):
    i = threadIdx.x
    # TODO: guard and store
    return i


class Gap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dout):
        pass


@pytest.mark.parametrize(
    "attempt",
    [
        None,
        ...,
        only_pass,
        only_dots,
        only_docstring,
        with_a_gap,
        with_a_word,
        Gap,
        "__global__ void k() {\n  // TODO\n}",
        (3, None),
        [with_a_gap, 3],
    ],
    ids=str,
)
def test_untouched_exercises_are_to_do(attempt, capsys):
    exercise("first", attempt, never, hint="begin with i")
    exercise("second", attempt, never)
    assert capsys.readouterr().out == ("○ first: to do\n  Hint: begin with i\n○ second: to do\n")


def finished(x):
    """Index with dots."""
    for _ in range(3):
        pass
    return x[..., 0]


def with_an_empty_function_inside(x):
    def nothing():
        pass

    nothing()
    return x


class Finished:
    """A docstring."""

    size = 3


@pytest.mark.parametrize(
    "attempt",
    [
        finished,
        with_an_empty_function_inside,
        Finished,
        lambda x: x,
        "code",
        0,
        False,
        "",
        (1, "B"),
        2.5,
    ],
)
def test_attempts_are_checked(attempt, capsys):
    seen = []
    exercise("it", attempt, seen.append)
    assert seen == [attempt]
    assert capsys.readouterr().out == "● it: passed\n"


def test_a_function_without_source_is_an_attempt():
    namespace = {}
    exec("def made_up(x): pass", namespace)
    with pytest.raises(ExerciseError):
        exercise("it", namespace["made_up"], never)


def test_a_refused_attempt_says_why():
    def check(fn):
        check_close(fn(torch.ones(2)), torch.zeros(2), name="column")

    with pytest.raises(ExerciseError) as caught:
        exercise("columns", lambda x: x + 1, check, hint="look at the first one")
    assert str(caught.value) == (
        "✗ columns: column[0]: expected 0, got 2 (float32, allowed 0; 2 of 2 elements differ)\n"
        "  Hint: look at the first one"
    )
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        ("B", "✗ 2.1: 'B' is not right yet"),
        (3, "✗ 2.1: 3 is not right yet"),
        ((1, 2), "✗ 2.1: (1, 2) is not right yet"),
        (finished, "✗ 2.1: not right yet"),
        ("__global__ void kernel(float* out) { out[0] = 1; }", "✗ 2.1: not right yet"),
    ],
)
def test_a_check_may_answer_yes_or_no(attempt, complaint, capsys):
    with pytest.raises(ExerciseError) as caught:
        exercise("2.1", attempt, lambda given: given == "C")
    assert str(caught.value) == complaint
    exercise("2.1", "C", lambda given: given == "C")
    assert capsys.readouterr().out == "● 2.1: passed\n"


def test_other_errors_pass_through_with_the_hint():
    def kernel(out):
        out[threadIdx.x + 1] = 1

    def check(kernel):
        launch(kernel, 1, 2, torch.zeros(2))

    with pytest.raises(OutOfRangeError) as caught:
        exercise("guard", kernel, check, hint="compare with n")
    assert caught.value.__notes__ == ["Hint: compare with n"]
    assert caught.value._render_traceback_()[-1] == "Hint: compare with n"

    def refuse(source):
        raise CompileError("line 1: no")

    with pytest.raises(CompileError) as caught:
        exercise("guard", "a", refuse, hint="count again")
    assert caught.value._render_traceback_() == ["CompileError: line 1: no", "Hint: count again"]
    with pytest.raises(ZeroDivisionError):
        exercise("guard", kernel, lambda _: 1 / 0)


def test_a_notebook_shows_no_traceback(tmp_path):
    cells = textwrap.dedent(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("from helpers.exercises import exercise", store_history=True)
        shell.run_cell("def twice(x):\\n    ...", store_history=True)
        check = "exercise('twice', twice, lambda f: f(4) == 8, hint='add')"
        shell.run_cell(check, store_history=True).raise_error()
        shell.run_cell("def twice(x):\\n    return 3 * x", store_history=True)
        shell.run_cell(check, store_history=True)
        shell.run_cell("def check(f):\\n    assert f(4) == 8", store_history=True)
        shell.run_cell("exercise('twice', twice, check)", store_history=True)
        shell.run_cell("def twice(x):\\n    return 2 * x", store_history=True)
        shell.run_cell(check, store_history=True).raise_error()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", cells],
        capture_output=True,
        text=True,
        cwd=ROOT,  # where `helpers` is
        env=os.environ | {"IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "○ twice: to do",
        "  Hint: add",
        "✗ twice: not right yet",
        "  Hint: add",
        "✗ twice: this does not hold: assert f(4) == 8",
        "● twice: passed",
    ]
