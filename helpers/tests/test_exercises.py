"""An exercise is to do, right, or wrong with a card that says why; never right by accident."""

import errno
import inspect
import json
import math
import os
import re
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from matplotlib.colors import to_rgba

from helpers.base.machine import ROOT
from helpers.base.palette import ALARM
from helpers.checks import check_close
from helpers.compiler import ToolMissing, build, compile_cuda
from helpers.device import DEVICE
from helpers.exercises import (
    ExerciseError,
    exercise,
    gate,
    predict,
    progress,
    reveal,
    show_predictions,
    show_progress,
)
from helpers.exercises.card import Card
from helpers.exercises.pictures import draw_scale, draw_thread, log_scale, thread_picture
from helpers.exercises.solutions import solution_of
from helpers.simulator import blockDim, blockIdx, launch, threadIdx
from helpers.tests.at_once import run_two
from helpers.tests.legible import illegible


@pytest.fixture(autouse=True)
def fresh_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FILE", tmp_path / "cache" / "progress.json")
    monkeypatch.delenv("SOLUTIONS_OF", raising=False)


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
        Gap,
        "__global__ void k(float* out, int n) {\n  // TODO: all of it\n}",
        "__global__ void k() { int i = threadIdx.x;\n  TODO\n}",
        "__device__ float twice(float x) {}\n__global__ void k() { twice(1); }",
        (3, None),
        [with_a_gap, 3],
    ],
    ids=str,
)
def test_untouched_exercises_are_to_do_without_a_hint(attempt, capsys):
    exercise("first", attempt, never, hint="begin with i")
    assert capsys.readouterr().out == "○ first: to do\n"
    assert progress.entry("first") == {}


def finished(x):
    """Index with dots."""
    for _ in range(3):
        pass
    return x[..., 0]  # TODO: a name


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
        "__device__ int f() { return 1; }  // TODO",
        "__device__ int a{}; struct S { int s; __device__ S() : s(0) {} };",
        0,
        False,
        "",
        (1, "B"),
        2.5,
    ],
    ids=str,
)
def test_attempts_are_checked(attempt, capsys):
    seen = []
    exercise("it", attempt, seen.append)
    assert seen == [attempt]
    assert capsys.readouterr().out == "● it: right\n"
    assert progress.entry("it") == {"tries": 1, "solved": True}


def test_a_function_without_source_is_an_attempt():
    namespace = {}
    exec("def made_up(x): pass", namespace)
    with pytest.raises(ExerciseError):
        exercise("it", namespace["made_up"], never)


def test_a_wrong_attempt_says_why_and_hints(capsys):
    def check(fn):
        check_close(fn(torch.ones(2)), torch.zeros(2), name="column")

    with pytest.raises(ExerciseError, match="✗ columns: not right yet") as caught:
        exercise("columns", lambda x: x + 1, check, hint="look at the first one")
    assert capsys.readouterr().out == (
        "✗ columns: column[0]: expected 0, got 2 (float32, allowed 0; 2 of 2 elements differ)\n"
        "  Hint: look at the first one\n"
    )
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert progress.entry("columns") == {"tries": 1}
    exercise("columns", lambda x: x - 1, check)
    assert progress.entry("columns") == {"tries": 2, "solved": True}


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        ("B", "✗ 2.1: 'B' is not right yet"),
        (3, "✗ 2.1: 3 is not right yet"),
        ((1, 2), "✗ 2.1: (1, 2) is not right yet"),
        (finished, "✗ 2.1: not right yet"),
    ],
    ids=str,
)
def test_a_check_may_answer_yes_or_no(attempt, complaint, capsys):
    with pytest.raises(ExerciseError):
        exercise("2.1", attempt, lambda given: given == "C")
    assert capsys.readouterr().out == complaint + "\n"
    exercise("2.1", "C", lambda given: given == "C")
    assert capsys.readouterr().out == "● 2.1: right\n"


def test_what_a_python_kernel_did_wrong_is_on_the_card(capsys, monkeypatch):
    cards = []

    def kernel(out):
        out[blockIdx.x * blockDim.x + threadIdx.x] = 1

    def check(kernel):
        launch(kernel, 2, 4, torch.zeros(7))

    with pytest.raises(ExerciseError):
        exercise("guard", kernel, check, hint="compare with n")
    text = capsys.readouterr().out
    assert "out[7] is out of range, shape (7,) (block 1, thread 3)" in text
    assert text.endswith("  Hint: compare with n\n")
    monkeypatch.setattr(gate, "show", cards.append)
    with pytest.raises(ExerciseError):
        exercise("guard", kernel, check)
    words = "block 1 of 2, thread 3 of 4: warp 0, lane 3"
    assert f'<img alt="{words}" ' in cards[0]._repr_html_()


def test_errors_of_python_pass_through_below_a_card(capsys):
    with pytest.raises(ZeroDivisionError):
        exercise("guard", finished, lambda _: 1 / 0, hint="count again")
    shown = "✗ guard: ZeroDivisionError: division by zero\n  Hint: count again\n"
    assert capsys.readouterr().out == shown


FILL = r"""
__global__ void fill_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    GUARD out[i] = VALUE;
}
torch::Tensor fill(int64_t n) {
    auto out = torch::empty({n}, torch::TensorOptions().device(DEVICE));
    fill_kernel<<<(n + 255) / 256, 256>>>(out.data_ptr<float>(), n);
    return out;
}
""".replace("DEVICE", "torch::kCUDA")


def filled(guard, value):
    return FILL.replace("GUARD", guard).replace("VALUE", value)


def check_fill(src):
    check_close(compile_cuda(src).fill(1000), torch.full((1000,), 3.0, device=DEVICE))


def test_a_wrong_kernel_is_run_with_checks_and_its_thread_shown(capsys):
    for guard, value, found in (
        ("", "3", r"fill_kernel.*block \(3,0,0\), thread \(232,0,0\), line 4: writes out\[1000\]"),
        ("if (i < n)", "4", r"expected 3, got 4[\s\S]*Every access was in order\."),
        ("if (i + 1 < n)", "3", r"\[999\].*nan"),
        ("if (i < m)", "3", r"line 4: .*\bm\b"),
    ):
        with pytest.raises(ExerciseError):
            exercise("fill", filled(guard, value), check_fill)
        assert re.search(found, capsys.readouterr().out), found
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of all that write the same, no word
        exercise("fill", filled("out[0] = 3; if (i < n)", "3"), check_fill)
    assert not build._every_call_checked
    with pytest.raises(RuntimeError) as caught:
        compile_cuda(filled("", "3"), check=True).fill(1000)
    assert caught.value.stopped_at == ((4, 1, 1), (256, 1, 1), (3, 0, 0), (232, 0, 0))
    with pytest.raises(RuntimeError) as caught:  # before any launch
        compile_cuda(filled("", "3"), check=True).fill(-1)
    assert caught.value.stopped_at is None


def test_accesses_are_in_order_only_of_a_kernel_that_ran(capsys):
    def check(_):
        raise AssertionError("without a 4")

    with pytest.raises(ExerciseError):
        exercise("fill", filled("if (i < n)", "4"), check)
    assert capsys.readouterr().out == "✗ fill: without a 4\n"


def test_new_memory_is_not_what_was_expected_by_chance():
    def check(_):
        a, b = torch.empty(100), torch.empty(100, dtype=torch.int32)
        assert a.isnan().all() and (b == torch.iinfo(torch.int32).max).all()

    exercise("memory", 1, check)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_right_answer_prints_its_card_alone(capsys):
    def check(attempt):
        check_close(torch.full((3,), float(attempt)), torch.ones(3))
        print("what the learner prints")

    exercise("quiet", 1, check)
    assert capsys.readouterr().out == "what the learner prints\n● quiet: right\n"
    check_close(torch.ones(1), torch.ones(1))
    assert capsys.readouterr().out, "behind the exercise checks speak again"


def test_a_notebook_says_once_that_an_answer_is_wrong():
    with pytest.raises(ExerciseError) as caught:
        exercise("once", 2, lambda attempt: attempt == 1)
    (line,) = caught.value._render_traceback_()
    assert line.startswith("Stopped here") and "once" not in line.replace("once this", "")


# ---------------------------------------------------------------- pictures


def cells_of(figure):
    """Return how many cells each table of a picture has, and column, row of the marked ones."""
    (ax,) = figure.axes
    counts, marked = [], []
    for part in ax.collections:
        boxes = [path.get_extents() for path in part.get_paths()]
        colours = part.get_facecolor()
        counts.append(len(boxes))
        marked += [
            (round(box.x0 - boxes[0].x0), round(box.y0))
            for box, colour in zip(boxes, colours, strict=True)
            if tuple(colour) == to_rgba(ALARM)
        ]
    return counts, marked


def test_the_picture_marks_the_block_and_the_thread():
    figure, words = draw_thread((4, 1, 1), (256, 1, 1), (3, 0, 0), (232, 0, 0))
    assert words == "block 3 of 4, thread 232 of 256: warp 7, lane 8"
    assert figure.axes[0].texts[0].get_text() == words and not illegible(figure)
    assert cells_of(figure) == ([4, 256], [(3, 0), (8, 7)])
    html = thread_picture((4, 1, 1), (256, 1, 1), (3, 0, 0), (232, 0, 0))
    assert html.startswith(f'<img alt="{words}" ')


def test_the_picture_of_a_large_grid_shows_the_rows_around_the_block():
    figure, words = draw_thread((100000, 3, 1), (16, 16, 1), (70000, 2, 0), (5, 9, 0))
    assert "block (70000, 2) of 100000 × 3" in words
    assert "thread (5, 9) of 16 × 16: warp 4, lane 21" in words
    counts, marked = cells_of(figure)
    assert len(marked) == 2 and sum(counts) <= 32 * 64 + 256


def test_the_scale_holds_guess_and_measured_value():
    for guess, measured in (1, 1), (3, 4000), (0.02, 0.5), (99, 100), (1e6, 1e-3):
        figure, words = draw_scale(guess, measured, "µs")
        (ax,) = figure.axes
        places = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
        low, high = ax.get_xlim()
        assert all(low <= x <= high for x in places)
        assert places == pytest.approx([math.log10(guess), math.log10(measured)])
        assert not illegible(figure)
    assert words == "guess 1e+06 µs, measured 0.001 µs"
    assert log_scale(1, 2, '<"&').startswith('<img alt="guess 1 &lt;&quot;&amp;, measured 2 ')


def test_what_a_card_says_is_text():
    html = Card("<a", "wrong", "x < y & z", hint="<b>")._repr_html_()
    assert all(text in html for text in ("&lt;a", "x &lt; y &amp; z", "&lt;b&gt;"))


# ---------------------------------------------------------------- predictions and progress


def test_a_prediction_is_kept_and_the_first_guess_counts():
    assert repr(predict("time", ..., "µs")) == "○ time: a guess of yours (µs), before you go on"
    assert "guess first" in repr(shown := reveal("time", 20.0, "µs")) and "20" not in repr(shown)
    predict("time", 50, "µs")
    predict("time", 40, "µs")
    card = reveal("time", 20.0, "µs")
    assert "your guess 40 µs, measured 20 µs: 2 times too much" in repr(card)
    assert 'alt="guess 40 µs, measured 20 µs"' in card._repr_html_()
    assert "the guess that counts was 40 µs" in repr(predict("time", 20, "µs"))
    assert "2 times too much" in repr(reveal("time", 20.0, "µs"))


def test_predictions_are_compared(tmp_path, monkeypatch):
    guesses = {"a": 8, "b": 0.5, "c": 3, "d": 1.2, "e": 1}
    write_notebook(tmp_path / "00_a.ipynb", *(f"predict('{name}', ..., 's')" for name in guesses))
    monkeypatch.setattr(progress, "NOTEBOOKS", tmp_path)
    said = []
    for name, guess in guesses.items():
        predict(name, guess, "s")
        said.append(repr(reveal(name, 1.0, "s")).split(": ")[-1])
    assert said[:2] == ["8 times too much", "2 times too little"]
    assert said[2:] == ["3 times too much", "within a quarter", "exactly right"]
    table = show_predictions()
    assert [line[-1] for line in table.lines] == ["★★★", "★", "★★", "·", "·"]
    told = "off by a factor of 4.00 in the first half of your guesses, 1.53 since"
    assert table.caption == told


def test_predictions_refuse_what_is_no_guess():
    for wrong in 0, -1, math.nan, math.inf, "40", True:
        with pytest.raises(ValueError, match="expected a positive number of µs, got"):
            predict("time", wrong, "µs")
    predict("time", 1, "ms")
    with pytest.raises(ValueError, match="made in ms, measured in µs"):
        reveal("time", 1.0, "µs")
    for wrong in 0.0, -1, math.inf:
        with pytest.raises(ValueError, match=f"expected a positive number of ms, measured {wrong}"):
            reveal("time", wrong, "ms")
    assert "measured" not in progress.entry("time")
    assert "nothing is recorded" in repr(reveal("time", math.nan, "ms"))


def write_notebook(path, *cells):
    kinds = [("markdown" if cell.startswith("<") else "code", cell) for cell in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": k, "source": [s]} for k, s in kinds]}))


def test_the_map_counts_what_is_solved(tmp_path, monkeypatch):
    begin = "<!-- -->\n## 1. One\n\n> **Sitting 1 of 1: ones.** 0 minutes."
    aside = "<!-- -->\n## 2. Two\n\n> **Side trip.** 0 minutes."
    tasks = "exercise('one', x, f)", "predict('two', ..., 'µs')"
    write_notebook(tmp_path / "00_a.ipynb", begin, *tasks, aside, "exercise('four', x, f)")
    write_notebook(tmp_path / "00b_c.ipynb", "%magic", "x = 1", "print(exercise)")
    write_notebook(tmp_path / "01_b.ipynb", "for i in 1, 2:\n    exercise('three', x, f)")
    monkeypatch.setattr(progress, "NOTEBOOKS", tmp_path)
    assert show_progress().lines[0] == ["00_a", "1", "○○", "○"]
    assert "Next: 'one' in 00_a, sitting 1: ones. 0 of 1 sittings are done" in str(show_progress())
    exercise("one", 1, lambda x: x == 1)
    predict("two", 8, "µs")
    reveal("two", 2.0, "µs")
    table = show_progress()
    assert [line[2:] for line in table.lines] == [["●●", "○"], ["", ""], ["", "○"]]
    assert "Next: 'four' in 00_a." in str(table)
    assert show_predictions().lines == [["00", "two", "8 µs", "2 µs", "4.00", "★★"]]
    assert "solved at the first attempt: 1." in str(table)
    exercise("four", 1, lambda x: x == 1)
    with pytest.raises(ExerciseError):
        exercise("three", 2, lambda x: x == 1)
    exercise("three", 1, lambda x: x == 1)
    assert "Everything is solved. Exercises solved at the first attempt: 2." in str(show_progress())


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_progress_file_is_named(text):
    progress.FILE.parent.mkdir()
    progress.FILE.write_text(text)
    with pytest.raises(ValueError, match="progress.json: expected the JSON"):
        progress.entry("x")


UPDATE = """
import sys
from pathlib import Path
from helpers.exercises import progress

progress.FILE = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(100):
    progress.update(f"{sys.argv[2]} {i}", solved=True)
"""


def test_two_kernels_at_once_lose_nothing():
    run_two(UPDATE, progress.FILE)
    assert len(json.loads(progress.FILE.read_text())) == 200


def test_a_file_system_without_locks(monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(progress.fcntl, "flock", refuse)
    progress.update("x", solved=True)
    assert progress.entry("x") == {"solved": True}


def test_a_folder_that_is_not_writable(monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", str(progress.FILE))

    monkeypatch.setattr(progress.os, "replace", refuse)
    with pytest.raises(ToolMissing, match="Nothing can be written in .*cache"):
        exercise("x", 1, lambda x: x == 1)


TERMINAL = """
import sys
from pathlib import Path
from helpers.exercises import exercise, progress, show_progress

progress.FILE = Path(sys.argv[1])
exercise("\\u25cb x", 1, lambda x: x == 1)
print(show_progress())
"""


def test_a_terminal_without_circles():
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # files, too, are ASCII
    environment = os.environ | plain | {"PYTHONIOENCODING": "latin-1:strict"}
    command = [sys.executable, "-c", TERMINAL, str(progress.FILE)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"? ? x: right" in done.stdout and b"0 of " in done.stdout
    assert progress.entry("○ x") == {"tries": 1, "solved": True}


# ---------------------------------------------------------------- solutions


FOLDED = "<details><summary>Solution</summary>\n\n{}\n\n</details>"


def test_solutions_are_found_and_checked(tmp_path, monkeypatch, capsys):
    path = tmp_path / "00_a.ipynb"
    write_notebook(
        path,
        "exercise('kernel', src, f)",
        FOLDED.format("So:\n\n```cpp\n__global__ void k() { f(); }\n```\nand why."),
        "exercise('both', (twice(k), letter), f)",
        FOLDED.format("```python\ndef twice(x): return 2 * x\n```\n```python\nletter = 'B'\n```"),
        "exercise('none', src, f)",
        "exercise('last', src, f)",
        FOLDED.format("```python\nsrc = 'wrong'\n```"),
    )
    assert solution_of(path, "kernel", {}) == "__global__ void k() { f(); }\n"
    assert solution_of(path, "both", {"k": 4}) == (8, "B")
    with pytest.raises(AssertionError, match="expected a Markdown cell"):
        solution_of(path, "none", {})
    with pytest.raises(AssertionError, match="no cell asks"):
        solution_of(path, "other", {})

    monkeypatch.setenv("SOLUTIONS_OF", str(path))
    exercise("last", None, lambda src: src == "wrong")
    with pytest.raises(AssertionError, match="'wrong' is not right yet"):
        exercise("last", None, lambda src: print("checked") or src == "right")
    assert "checked" not in capsys.readouterr().out, "the learner sees what is to do"
    assert progress.entry("last") == {}


def test_a_solution_can_be_a_python_kernel(tmp_path):
    path = tmp_path / "00_a.ipynb"
    kernel = "def ones(out):\n    out[threadIdx.x] = 1"
    write_notebook(path, "exercise('ones', ones, f)", FOLDED.format(f"```python\n{kernel}\n```"))
    out = torch.zeros(4)
    solution = solution_of(path, "ones", {"threadIdx": threadIdx})
    assert inspect.getsource(solution).strip() == kernel
    launch(solution, 1, 4, out)
    check_close(out, torch.ones(4))


# ---------------------------------------------------------------- in a notebook


def test_a_notebook_shows_cards_and_no_traceback(tmp_path):
    cells = textwrap.dedent(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("from helpers.exercises import exercise, progress", store_history=True)
        shell.run_cell("import pathlib; progress.FILE = pathlib.Path('FILE')")
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
    ).replace("FILE'", f"{tmp_path}/progress.json'")
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
        "✗ twice: not right yet",
        "  Hint: add",
        "Stopped here: the cells below run once this one is right.",
        "✗ twice: this does not hold: assert f(4) == 8",
        "Stopped here: the cells below run once this one is right.",
        "● twice: right",
    ]
