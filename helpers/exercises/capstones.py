"""Capstones: a kernel of one's own, tested with what nobody shows, marked against the course's."""

import random
import secrets
from functools import cache

import torch

from helpers.base.machine import ROOT
from helpers.base.tables import Table
from helpers.checks import check_close, silent
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.exercises.card import Card
from helpers.exercises.gate import ExerciseError, passes, show
from helpers.exercises.hidden import TASKS, Case, Task
from helpers.exercises.improvements import check_kept
from helpers.exercises.marks import add_mark, best, clock
from helpers.exercises.progress import update
from helpers.exercises.ticks import Ticks, count_ticks

PASSED = 0.5  # of the speed of the course's own kernel
BY_COUNT = "ticks, counted"  # where there is no GPU, in place of its name


def capstone(name: str, source: str, op: str, hint: str = "", ours: str = "") -> None:
    """Test a CUDA string, mark it against the course's own, and show one's best attempts.

    The course's own is kernels/<TASKS[op].file>.cu or, where the task has no file, `ours`, a CUDA
    string. `source` has the kernel and the same host function (`TASKS[op].function`). It is to do,
    and wrong, as for `exercise`; the tests, hidden.py, are drawn anew in each run. What is right is
    marked by its speed on the same inputs, ours = 1: on a GPU by the clock, in turn; without one by
    the ticks that ticks.py counts. Solved is what reaches PASSED, or is right where nothing can be
    counted (binutils are missing). All marks are kept (progress.py).

    Raises ExerciseError if the attempt is wrong, KeyError for an unknown op.
    """
    task = TASKS[op]
    if not passes(name, source, lambda attempt: run_hidden_tests(task, attempt), hint):
        return
    try:
        ours = ours or (ROOT / "kernels" / f"{task.file}.cu").read_text()
        measure = _clock if BACKEND == "cuda" else _count
        took, of_ours, by, table = measure(task, source, ours)
    except AssertionError as error:
        show(Card(name, "wrong", f"the hidden tests pass, but {error}", hint=hint))
        raise ExerciseError(f"✗ {name}: not right yet") from None
    except RuntimeError as error:
        if hasattr(error, "stopped_at"):  # of the kernel
            raise
        show(Card(name, "right", f"all hidden tests pass; without a mark, for {error}"))
        update(name, solved=True)
        return
    mark = add_mark(name, took, of_ours, by)
    is_fast = mark["speed"] >= PASSED
    if is_fast:
        update(name, solved=True)
    whose = f"kernels/{task.file}.cu" if task.file else "the course's own"
    text = f"all hidden tests pass, at {mark['speed']:.2f} of the speed of {whose}"
    text += "" if is_fast else f"; from {PASSED:g} on it counts as solved"
    state, hint = ("right", "") if is_fast else ("right, but slow", hint)
    tables = table, best(name, by, "ticks" if by == BY_COUNT else "µs")
    show(Card(name, state, text, hint=hint, tables=tables))


def run_hidden_tests(task: Task, source: str) -> None:
    """Compile a string and run all cases of a task; AssertionError names the first that fails."""
    function = _function(source, task)
    with torch.random.fork_rng(devices=[]):  # the notebook's numbers stay what they are
        torch.manual_seed(seed := secrets.randbits(32))
        cases = list(task.cases(random.Random(seed)))
    for number, case in enumerate(cases, 1):
        name = f"hidden test {number} of {len(cases)}, {case.what}"
        try:
            _run(task, function, case, name)
        except Exception as error:
            if not isinstance(error, AssertionError):
                error.add_note(f"in {name}")
            raise


def _function(source: str, task: Task):
    compiled = compile_cuda(source)
    where = f", as kernels/{task.file}.cu has it" if task.file else ""
    assert hasattr(compiled, task.function), f"expected a host function {task.function}{where}"
    return getattr(compiled, task.function)


def _run(task: Task, function, case: Case, name: str) -> None:
    arguments = [_there(argument) for argument in case.arguments]
    before = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    got = function(*arguments)
    want = task.ref(*before)
    check_kept(arguments, before, name)
    _check(got, want, before[0].dtype, case.rtol, name)


def _there(argument):
    """Return an argument on the device here; a tensor keeps its strides and its place in memory."""
    if not isinstance(argument, torch.Tensor):
        return argument
    whole = torch.empty(0, dtype=argument.dtype).set_(argument.untyped_storage()).to(DEVICE)
    return whole.as_strided(argument.shape, argument.stride(), argument.storage_offset())


def _check(got, want, dtype, rtol, name: str) -> None:
    """Raise AssertionError unless `got` is right: NaN where it has to be, and nowhere else."""
    with silent():
        if not (isinstance(got, torch.Tensor) and got.shape == want.shape):
            check_close(got, want, name=name)
        if want.is_floating_point():
            assert got.dtype == dtype, f"{name}: expected {dtype}, got {got.dtype}"
            off = got.isnan() != want.isnan()
            if off.any():
                place = tuple(off.nonzero()[0].tolist())
                was = f"expected {want[place].item():g}, got {got[place].item():g}"
                raise AssertionError(f"{name}, out{list(place)}: {was}")
            got, want = (x.masked_fill(x.isnan(), 0) for x in (got, want))
        check_close(got, want, rtol=rtol, name=name)


@cache
def _marked(task: Task, is_gpu: bool) -> tuple:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        arguments = task.marked(is_gpu)
    return tuple(_there(argument) for argument in arguments)


@cache
def _ticks(task: Task, ours: str) -> Ticks:
    return count_ticks(_function(ours, task), *_marked(task, False))[1]


def _count(task: Task, source: str, ours: str) -> tuple[float, float, str, Table]:
    """Return the ticks of a string, and ours, BY_COUNT, and a table of what they are made of."""
    arguments = _marked(task, False)
    result, yours = count_ticks(_function(source, task), *arguments)
    _check(result, task.ref(*arguments), arguments[0].dtype, None, "on the inputs of the mark")
    assert yours.launches, "on the inputs of the mark no kernel is launched"
    ticks = {"yours": yours, "ours": _ticks(task, ours)}
    lines = [
        [whose, *(f"{n:,.0f}" for n in (t.door, t.schedulers, t.lanes, t.total)), f"{t.launches}"]
        for whose, t in ticks.items()
    ]
    header = ["", "door", "schedulers", "lanes", "ticks", "launches"]
    caption = "ticks of each limit, and of the largest one in each launch: see notebook 09"
    return yours.total, ticks["ours"].total, BY_COUNT, Table(header, lines, caption)


def _clock(task: Task, source: str, ours: str) -> tuple[float, float, str, Table]:
    """Return the µs of a string, and ours, the GPU whose clock it was, and a table of times."""
    arguments = _marked(task, True)
    functions = {"ours": _function(ours, task), "yours": _function(source, task)}
    times, table = clock({who: lambda f=f: f(*arguments) for who, f in functions.items()})
    return times["yours"], times["ours"], torch.cuda.get_device_name(), table
