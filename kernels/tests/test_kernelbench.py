"""Others' problems: each is right in small, and what is timed is told."""

import os
from dataclasses import replace

import pytest
import torch

from helpers import recorded
from helpers.checks import check_close
from kernels.tests import kernelbench
from kernels.tests.kernelbench import PROBLEMS


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.number} {p.name}")
@torch.no_grad()
def test_each_problem_is_solved(problem):
    theirs, ours = problem.make(*problem.small)
    for _ in range(2):  # also with statistics that the first call has moved
        check_close(ours(), theirs(), rtol=problem.rtol)


def test_a_problem_is_timed_or_said_to_be_wrong(monkeypatch, capsys):
    """In small, with a clock that does not run; what is stored has a name that records take."""
    small = [replace(problem, sizes=problem.small) for problem in PROBLEMS[:2]]
    small.append(replace(small[0], make=lambda *sizes: (lambda: torch.ones(2), torch.zeros(2).abs)))
    monkeypatch.setattr(kernelbench, "PROBLEMS", small)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    timed = {"rows": [{"name": name, "median_ms": 2.0} for name in ("ours", "PyTorch")]}
    monkeypatch.setattr(kernelbench, "measure_speeds", lambda candidates, check: timed)
    monkeypatch.setattr(os, "environ", {**os.environ})
    stored = {}
    monkeypatch.setattr(kernelbench, "recorded", lambda key, found: stored.update({key: found()}))
    kernelbench.time_all()
    (key, found), said = *stored.items(), capsys.readouterr().out.splitlines()
    assert recorded.KEY.fullmatch(key)
    assert [work.get("rows") for work in found] == [timed["rows"], timed["rows"], None]
    assert "expected 1, got 0" in found[2]["wrong"] and found[2]["wrong"] in said[-1]
    assert "kernelbench 1 square product: {'ours': 2.0, 'PyTorch': 2.0}" in said


def test_sizes_are_of_the_same_kind_and_numbers_differ():
    assert len({problem.number for problem in PROBLEMS}) == len(PROBLEMS) == 32
    assert all(len(problem.sizes) == len(problem.small) for problem in PROBLEMS)
