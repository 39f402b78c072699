"""An open exercise refuses wrong kernels and idle ones, and is solved by a better one alone."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.exercises import ExerciseError, Work, improve, improvements, progress
from helpers.simulator import blockDim, blockIdx, threadIdx
from helpers.trace import trace

COLUMNS = 5  # in each row; a row's sum is what is asked for


@pytest.fixture(autouse=True)
def fresh_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FILE", tmp_path / "cache" / "progress.json")


def given_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = 0.0
        for c in range(5):
            out[i] = out[i] + inp[i * 5 + c]


def better_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        total = 0.0
        for c in range(5):
            total = total + inp[i * 5 + c]
        out[i] = total


def wrong_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[i * 5]


def idle_kernel(out, inp, n):
    """It works on all sizes but the one that is counted."""
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n and n != 64:
        total = 0.0
        for c in range(5):
            total = total + inp[i * 5 + c]
        out[i] = total


def spoiling_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        for c in range(1, 5):
            inp[i * 5] = inp[i * 5] + inp[i * 5 + c]
        out[i] = inp[i * 5]


def gap_kernel(out, inp, n): ...


def cases(draw):
    for n in (draw.randint(1, 40), 64):
        yield (torch.randn(n, COLUMNS),)


def run(kernel, inp):
    out = torch.full((len(inp),), math.nan)
    report = trace(kernel, 2, 32, out, inp.view(-1), len(inp))
    return out, sum(access.requests for access in report.accesses)


def row_sums(inp):
    return inp.double().sum(1)


WORK = Work("requests", cases, run, row_sums, given=given_kernel, ours=12, goal=15, least=12)


def test_the_given_kernel_is_right_but_not_solved(capsys):
    improve("it", given_kernel, WORK, hint="keep the sum")
    said = capsys.readouterr().out
    assert said.startswith("◐ it: right, with 32 requests; with 15 or fewer it counts as solved")
    assert "Hint: keep the sum" in said and "solved" not in progress.entry("it")


def test_a_better_kernel_is_solved_and_the_best_stand_first(capsys):
    improve("it", given_kernel, WORK)
    improve("it", better_kernel, WORK, hint="keep the sum")
    said = capsys.readouterr().out.split("● it: ")[1]
    assert said.startswith("right, with 12 requests\n") and "Hint" not in said
    assert progress.entry("it")["solved"]
    assert [mark["took"] for mark in progress.entry("it")["marks"]] == [32, 12]
    assert "2 right so far (requests)" in said and said.index("1.00") < said.index("0.38")


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        (wrong_kernel, "test 1 of 2"),
        (idle_kernel, "test 2 of 2"),
        (spoiling_kernel, "argument 1 is written to"),
    ],
)
def test_wrong_and_idle_kernels_are_refused(kernel, complaint, capsys):
    with pytest.raises(ExerciseError):
        improve("it", kernel, WORK, hint="look again")
    said = capsys.readouterr().out
    assert said.startswith("✗ it: ") and complaint in said and "Hint: look again" in said
    assert "marks" not in progress.entry("it") and "solved" not in progress.entry("it")


def test_right_numbers_that_no_kernel_made_are_refused(capsys):
    elsewhere = Work("requests", cases, lambda kernel, inp: (row_sums(inp), 0), row_sums,
                     given=given_kernel, ours=12, goal=15, least=12)  # fmt: skip
    with pytest.raises(ExerciseError):
        improve("it", better_kernel, elsewhere)
    said = capsys.readouterr().out
    assert "with 0 requests: a kernel that does all of the work takes 12 at least" in said


def test_inputs_may_hold_nan(capsys):
    def holes(draw):
        inp = torch.randn(64, COLUMNS)
        inp[:, 1:] = math.nan
        yield (inp,)

    def first_of_rows(kernel, inp):
        out, count = run(kernel, inp)
        return inp[:, 0].clone(), count

    work = Work("requests", holes, first_of_rows, lambda inp: inp[:, 0], given_kernel, 12, 15)
    improve("it", better_kernel, work)
    assert "● it: right" in capsys.readouterr().out


TIMED = replace(WORK, timed=lambda kernel: lambda: kernel.__name__)


def row(name, us):
    return {"name": name, "median_ms": us / 1e3, "low_ms": us / 1e3, "high_ms": us / 1e3}


def test_a_gpu_shows_times_and_still_counts(monkeypatch, capsys):
    def measure(calls):
        assert [call() for call in calls.values()] == ["given_kernel", "better_kernel"]
        return {"rows": [row("given", 90.0), row("yours", 60.0)], "method": "median of 5"}

    monkeypatch.setattr("helpers.timing.measure_speeds", measure)
    monkeypatch.setattr(improvements, "BACKEND", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    improve("it", better_kernel, TIMED)
    said = capsys.readouterr().out
    assert said.startswith("● it: right, with 12 requests") and "some GPU" in said
    assert "90.0" in said and [m["by"] for m in progress.entry("it")["marks"]] == ["requests"]


def test_what_differs_at_full_size_is_wrong(monkeypatch, capsys):
    def measure(calls):
        raise AssertionError("'yours' disagrees with 'given': out[5]")

    monkeypatch.setattr("helpers.timing.measure_speeds", measure)
    monkeypatch.setattr(improvements, "BACKEND", "cuda")
    with pytest.raises(ExerciseError):
        improve("it", better_kernel, TIMED)
    assert "the tests pass, but 'yours' disagrees" in capsys.readouterr().out
    assert "marks" not in progress.entry("it")


def test_a_gap_is_to_do(capsys):
    improve("it", gap_kernel, WORK)
    assert capsys.readouterr().out == "○ it: to do\n"
    assert progress.entry("it") == {}


def test_the_inputs_are_drawn_anew_and_the_notebooks_numbers_stay(capsys):
    seen = []

    def watched(kernel, inp):
        seen.append(inp.clone())
        return run(kernel, inp)

    work = Work("requests", cases, watched, row_sums, given_kernel, ours=12, goal=15)
    torch.manual_seed(5)
    want = torch.randn(3)
    torch.manual_seed(5)
    improve("it", better_kernel, work)
    assert torch.equal(torch.randn(3), want)
    assert len({inp[0, 0].item() for inp in seen}) == len(seen) == 4


@pytest.mark.parametrize(
    ("ours", "goal", "right"), [(12, 15, True), (11, 15, False), (12, 32, False)]
)
def test_the_solution_of_a_notebook_is_counted(ours, goal, right, tmp_path, monkeypatch):
    """It takes what the notebook says, reaches the goal, and the given kernel does not."""
    solution = "```python\nattempt = better_kernel\n```\n"
    solution = f"<details><summary>Solution</summary>\n\n{solution}</details>"
    cells = [
        {"cell_type": "code", "source": ["improve('it', attempt, work)"]},
        {"cell_type": "markdown", "source": [solution]},
    ]
    (tmp_path / "00_some.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setenv("SOLUTIONS_OF", str(tmp_path / "00_some.ipynb"))
    work = Work("requests", cases, run, row_sums, given_kernel, ours, goal)
    if right:
        improve("it", None, work)
        return
    with pytest.raises(AssertionError, match="expected ours to take"):
        improve("it", None, work)


def test_helpers_exercises_alone_do_not_import_it():
    """The page in the browser has no PyTorch to draw inputs with."""
    module = "helpers.exercises.improvements"
    code = f"import sys, helpers.exercises; assert {module!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
