"""Open exercises: a kernel that works, to be made to do the same with less, counted."""

import inspect
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from helpers.base.tables import Table
from helpers.checks import check_close, silent
from helpers.device import BACKEND
from helpers.exercises.card import Card
from helpers.exercises.gate import ExerciseError, check_solution, passes, show
from helpers.exercises.marks import add_mark, best, clock
from helpers.exercises.progress import update


@dataclass(frozen=True)
class Work:
    """What is to be done, and how what it takes is counted; the same on every machine.

    `cases(draw)` yields the arguments of calls, drawn anew each time; their last is what counts, so
    its sizes are to be always the same. `run(attempt, *arguments)` does them with an attempt and
    returns the result and the count; `ref(*arguments)` returns what is right. `given` is the
    attempt to improve on, `ours` what the course's solution takes. It counts as solved from
    `goal` on. What takes less than `least` leaves work undone. `atol` is check_close's.
    `timed(attempt)` returns a call without arguments whose time is shown, too, where there is a
    GPU.
    """

    unit: str  # what is counted: "sectors"
    cases: Callable[[random.Random], Iterator[tuple]]
    run: Callable
    ref: Callable
    given: object
    ours: int
    goal: int
    least: int = 1
    atol: float | None = None
    timed: Callable | None = None

    def count(self, attempt) -> int:
        """Return what an attempt takes; AssertionError where it is wrong, or takes too little."""
        with torch.random.fork_rng(devices=[]):  # the notebook's numbers stay what they are
            torch.manual_seed(seed := secrets.randbits(32))
            cases = list(self.cases(random.Random(seed)))
        for number, arguments in enumerate(cases, 1):
            count = self._count_one(attempt, arguments, f"test {number} of {len(cases)}")
        assert count >= self.least, (
            f"right numbers, with {count:,} {self.unit}: a kernel that does all of the work takes"
            f" {self.least:,} at least"
        )
        return count

    def _count_one(self, attempt, arguments: tuple, name: str) -> int:
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        result, count = self.run(attempt, *arguments)
        with silent():
            check_close(result, self.ref(*before), atol=self.atol, name=name)
        check_kept(arguments, before, name)
        return count

    def check_solution(self, solution) -> None:
        """Raise AssertionError unless it takes `ours` and reaches the goal; the given does not."""
        count, given = self.count(solution), self.count(self.given)
        assert count == self.ours <= self.goal < given, (
            f"expected ours to take {self.ours:,} {self.unit}, at most the goal, {self.goal:,}, and"
            f" the given more: ours takes {count:,}, the given {given:,}"
        )


def check_kept(arguments, before, name: str) -> None:
    """Raise AssertionError if a tensor among arguments is not what it was before; NaN may stay."""
    for place, (argument, was) in enumerate(zip(arguments, before, strict=True), 1):
        if isinstance(was, torch.Tensor):
            is_same = torch.equal(argument.nan_to_num(7.0), was.nan_to_num(7.0))
            assert is_same, f"{name}: argument {place} is written to"


def improve(name: str, attempt, work: Work, hint: str = "") -> None:
    """Check an attempt, count what it takes, and show it beside the given one and one's best.

    It is to do, and wrong, as for `exercise`. What is right counts as solved from `work.goal` on.
    All counts are kept (progress.py).

    Raises ExerciseError if the attempt is wrong.
    """
    counts: list[int] = []
    if not passes(name, attempt, lambda attempt: counts.append(work.count(attempt)), hint):
        frame = inspect.currentframe().f_back
        check_solution(name, work.check_solution, frame.f_globals | frame.f_locals)
        return
    tables = ()
    if BACKEND == "cuda" and work.timed:
        try:
            tables = (clock({"given": work.timed(work.given), "yours": work.timed(attempt)})[1],)
        except AssertionError as error:
            show(Card(name, "wrong", f"the tests pass, but {error}", hint=hint))
            raise ExerciseError(f"✗ {name}: not right yet") from None
    took = counts[-1]
    add_mark(name, took, work.ours, by=work.unit)
    is_solved = took <= work.goal
    if is_solved:
        update(name, solved=True)
    text = f"right, with {took:,} {work.unit}"
    text += "" if is_solved else f"; with {work.goal:,} or fewer it counts as solved"
    state, hint = ("right", "") if is_solved else ("right, but too many", hint)
    rows = [["given", work.count(work.given)], ["yours", took], ["ours", work.ours]]
    table = Table(["", work.unit], [[who, f"{count:,}"] for who, count in rows], "")
    tables = table, *tables, best(name, work.unit, work.unit)
    show(Card(name, state, text, hint=hint, tables=tables))
