"""Several processes from a notebook: torchrun underneath, and functions sent to its processes.

    team = Team(4)
    team(worker, inp)  # worker(rank, ranks, inp) in all four; [result of rank 0, rank 1, …]

The processes stay and wait for the next function, so PyTorch is imported once.
"""

import atexit
import contextlib
import linecache
import math
import os
import pickle
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from helpers.base.machine import ROOT
from helpers.processes.clock import BUDGET_S, clock, clock_in_turns
from helpers.processes.travel import files_of, pack
from helpers.recorded import Record, measured_or_stored, stored
from helpers.timing import Comparison, assert_same, evaluate, snapshot

__all__ = ["ProcessError", "Team", "clock"]

START_S = 120  # a slow machine imports PyTorch in 20 s
STACK_S = 2  # for a process to write down at which line it is; milliseconds, as a rule
# after one has said this: how long the others may take to say something worse
GRACE_S = {"result": math.inf, "lost": 2, "raised": 0.1, "died": 0.02}
LOG_S = 20  # torchrun looks at its processes ten times a second, ends the others, then writes
CLOSE_S = 5
# A fork has PyTorch already. But torchrun looks for GPUs before it forks, and no fork may use one
# after that; and macOS's own libraries must not be in use before a fork.
START_METHOD = {"gloo": "spawn" if sys.platform == "darwin" else "fork", "nccl": "spawn"}
GUARD, PROCESS = (Path(__file__).with_name(name) for name in ("guard.py", "process.py"))
LOGGED = re.compile(r"[EIW]\d{4} ")
NOISE = re.compile(r"\[Gloo\] Rank \d+ is connected to ")


class ProcessError(RuntimeError):
    """A process of a team raised, ended or hung: one sentence with its rank and its line."""


class Team:
    """`ranks` processes, started by `torchrun --standalone` when the first function is called.

    Each has a GPU of its own and NCCL where there are as many GPUs, or else all have CPU tensors
    and gloo (`backend`). `team(worker, *args)` calls worker(rank, ranks, *args) in each and returns
    a list of what they return; what they print follows in order of rank. The function travels, and
    with it what it uses: values that pickle can hold, functions and classes of the notebook, and
    modules by name; TypeError for anything else. Tensors travel by way of the CPU: arguments and
    results are CPU tensors. torch.device("cuda") becomes "cpu" in a team without GPUs.

    A process that raises, ends or takes longer than `timeout_s` ends the others: ProcessError. The
    next call starts new processes. All end with this process, however that ends.
    """

    def __init__(self, ranks: int, timeout_s: float = 60, backend: str | None = None):
        if not isinstance(ranks, int) or ranks < 1:
            raise ValueError(f"expected a number of processes, 1 or more, got {ranks!r}")
        enough = torch.cuda.device_count() >= ranks
        if backend not in (None, "gloo", "nccl"):
            raise ValueError(f"expected backend 'gloo' or 'nccl', got {backend!r}")
        if backend == "nccl" and not enough:
            there = torch.cuda.device_count()
            raise ValueError(f"NCCL needs a GPU a process: {ranks} processes, {there} GPUs")
        self.ranks = ranks
        self.timeout_s = timeout_s
        self.backend = backend or ("nccl" if enough else "gloo")
        self._processes: _Processes | None = None

    def __call__(self, worker: Callable, *args: Any) -> list:
        """Call worker(rank, ranks, *args) in each process; return the results in order of rank."""
        message = pack(worker, args)  # what cannot travel says so before anything starts
        self.start()
        try:
            return self._processes.run(message, self.timeout_s)
        except BaseException:  # Ctrl-C, too
            self.close(at_once=True)
            raise

    def start(self) -> None:
        """Start the processes, unless they are there."""
        if self._processes is not None and self._processes.is_alive():
            return
        self.close(at_once=True)
        self._processes = _Processes(self.ranks, self.backend)

    def close(self, at_once: bool = False) -> None:
        """End the processes, if there are any."""
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.close(at_once)

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The processes' numbers for the operating system; [] before the first call."""
        return [] if self._processes is None else list(self._processes.pids)

    @property
    def command(self) -> str:
        """What a shell would be given to start such processes with a script."""
        return f"torchrun --standalone --nproc-per-node={self.ranks} script.py"

    def __repr__(self) -> str:
        where = "a GPU each, NCCL" if self.backend == "nccl" else "CPU tensors, gloo"
        return f"{self.ranks} process{'es' * (self.ranks > 1)}: {where}"

    def time_ms(
        self, candidates: dict[str, Callable], *args: Any, seconds: float = BUDGET_S
    ) -> dict[str, float]:
        """Time candidates here and now; return the median milliseconds of each by name.

        A candidate is a function that prepares: candidate(rank, ranks, *args) returns the function
        without arguments that is timed (`clock`), for so many seconds.
        """
        samples = self(_time_all, dict(candidates), args, False, seconds)[0]
        return {name: statistics.median(samples[name]) for name in candidates}

    def compare(
        self,
        candidates: dict[str, Callable],
        key: str,
        args: tuple = (),
        bytes: int | None = None,
        check: bool = True,
        calls: int = 1,
    ) -> Comparison:
        """Time candidates on as many GPUs as processes; elsewhere show what was recorded.

        Candidates prepare, as those of `time_ms` do. They run once on every machine: with `check`
        all results are compared with the first one's. A row's time is that of the slowest rank.
        `bytes`: what one call moves, for GB/s. `calls`: as often a candidate does its work when it
        is called (a graph of ten, say); a row's time is that of one.
        """
        names = list(candidates)
        if not names:
            raise ValueError("expected at least one candidate, got none")

        def measure() -> dict:
            taken = self(_time_all, dict(candidates), args, check, BUDGET_S)[0]
            samples = [[ms / calls for ms in times] for times in taken.values()]
            method = (
                f"median of {len(samples[0])} samples on {self.ranks} GPUs, the slowest rank's, "
                f"L2 flushed before each {'call' if calls == 1 else f'{calls} calls in a row'}"
            )
            return evaluate(names, samples, bytes, None) | {"method": method}

        return Comparison(
            self.recorded(key, measure, names, lambda: self._once(candidates, args, check))
        )

    def recorded(
        self,
        key: str,
        measure: Callable[[], Any],
        about: Any = None,
        otherwise: Callable[[], Any] | None = None,
    ) -> Record:
        """Do as helpers.recorded does, but measure only where each process has a GPU.

        `otherwise` is called on other machines, before the record is shown.
        """
        about = {"ranks": self.ranks, "about": about}
        if self.backend == "nccl":
            record = measured_or_stored(key, measure, about, ())
        else:
            if otherwise is not None:
                otherwise()
            record = stored(key, about)
        return replace(record, gpus=self.ranks)

    def _once(self, candidates: dict[str, Callable], args: tuple, check: bool) -> None:
        self(_call_all, dict(candidates), args, check)


class _Processes:
    """torchrun, its processes, and a connection to each; ended as one group."""

    def __init__(self, ranks: int, backend: str):
        self.ranks = ranks
        self.owner = os.getpid()
        self.directory = Path(tempfile.mkdtemp(prefix="team-", dir=_place_for_sockets()))
        self.connections: list[Connection] = []
        self.pids: list[int] = []
        self.printed = [0] * ranks  # bytes of each process's output that were shown
        self.torchrun = self._spawn(backend)
        atexit.register(self.close)
        try:
            self._connect()
        except BaseException:
            self.close(at_once=True)
            raise

    def _spawn(self, backend: str) -> subprocess.Popen:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.directory / "socket"))
        self.listener.listen(self.ranks)
        self.listener.settimeout(0.1)
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        torchrun += [f"--nproc-per-node={self.ranks}", f"--log-dir={self.directory}"]
        torchrun += ["--run-path", f"--start-method={START_METHOD[backend]}"]
        files = os.environ.get("TMPDIR", "")
        command = [sys.executable, *torchrun, str(PROCESS), str(self.directory), backend, files]
        with open(self.directory / "torchrun", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-S", str(GUARD), str(self.directory), *command],
                env=_environment(self.ranks, backend) | {"TMPDIR": str(self.directory)},
                stdin=subprocess.PIPE,  # closed when this process ends: the guard's sign
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for this process
            )

    def _connect(self) -> None:
        """Wait for all processes, and until they have joined each other."""
        by_rank: dict[int, tuple[Connection, int]] = {}
        limit = time.monotonic() + START_S
        while len(by_rank) < self.ranks:
            if self.torchrun.poll() is not None or time.monotonic() > limit:
                for rank, (connection, _) in by_rank.items():
                    if connection.poll():
                        self._must_be_ready(rank, connection, limit)
                raise ProcessError(self._no_start())
            with contextlib.suppress(TimeoutError):
                connected, _ = self.listener.accept()
                connected.setblocking(True)
                connection = Connection(connected.detach())
                rank, pid = pickle.loads(connection.recv_bytes())
                by_rank[rank] = connection, pid
        for rank in range(self.ranks):
            connection, pid = by_rank[rank]
            self.connections.append(connection)
            self.pids.append(pid)
        for rank, connection in enumerate(self.connections):
            self._must_be_ready(rank, connection, limit)
        for rank in range(self.ranks):
            self._output(rank)  # what it said while it started

    def _must_be_ready(self, rank: int, connection: Connection, limit: float) -> None:
        """Wait until a process has joined the others: it sends "", or why it could not."""
        why = f"it had not joined the others after {START_S} s"
        try:
            if connection.poll(max(0, limit - time.monotonic())):
                why = connection.recv_bytes().decode()
        except (EOFError, OSError):
            why = f"it {self._death(rank)}" if self.pids else "it ended"
        if why:
            said = "\n".join([why, *self._output(rank).splitlines()])
            raise ProcessError(f"rank {rank} of {self.ranks} did not start: {said}")

    def _no_start(self) -> str:
        """Say that not all processes came, and what torchrun said last."""
        why = f"took {START_S} s" if self.torchrun.poll() is None else "ended"
        said = (self.directory / "torchrun").read_text(errors="replace").splitlines()
        said = [line for line in said if not LOGGED.match(line)]
        return "\n".join([f"torchrun {why}, and its processes were not there yet", *said[-20:]])

    def is_alive(self) -> bool:
        """Whether all processes wait for a function."""
        is_mine = self.owner == os.getpid()  # and not a parent's, of which this is a fork
        return is_mine and self.torchrun.poll() is None and not wait(self.connections, 0)

    def run(self, message: bytes, timeout_s: float) -> list:
        self.files = files_of(message)
        reports = self._reports(message, timeout_s)
        for rank in range(self.ranks):
            self._show(rank)
        failed = {rank: report for rank, report in reports.items() if report[0] != "result"}
        if failed or len(reports) < self.ranks:
            raise ProcessError(self._sentence(reports, timeout_s))
        return [pickle.loads(reports[rank][1]) for rank in range(self.ranks)]

    def _reports(self, message: bytes, timeout_s: float) -> dict[int, tuple]:
        """Return what each process reports: until all have, one has failed or the time is up."""
        waiting = dict(zip(self.connections, range(self.ranks), strict=True))
        reports: dict[int, tuple] = {}
        for connection, rank in waiting.items():
            try:
                connection.send_bytes(message)
            except OSError:
                reports[rank] = ("died",)
        limit = time.monotonic() + timeout_s
        while waiting:
            there = wait(list(waiting), max(0, limit - time.monotonic()))
            if not there:
                break
            for connection in there:
                rank = waiting.pop(connection)
                try:
                    reports[rank] = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    reports[rank] = ("died",)
                limit = min(limit, time.monotonic() + GRACE_S[reports[rank][0]])
        return reports

    def _sentence(self, reports: dict[int, tuple], timeout_s: float) -> str:
        """Say what happened first, and where the others stood."""
        stands = self._stands(reports)
        stood = [f"rank {rank} stood {place}" for rank, place in sorted(stands.items())]
        kinds = [report[0] for report in reports.values()]  # in the order in which they came
        if not set(kinds) - {"result"}:
            done = [rank for rank in range(self.ranks) if rank in reports]
            mute = [rank for rank in range(self.ranks) if rank not in {*done, *stands}]
            stood += [f"{_ranks(mute)} could not say where"] if mute else []
            stood += [f"{_ranks(done)} had finished"] if done else []
            return f"after {timeout_s:g} s {'; '.join(stood)}"
        kind = min(set(kinds), key=("died", "raised", "lost", "result").index)
        first = list(reports)[kinds.index(kind)]
        stood = [words for words in stood if not words.startswith(f"rank {first} ")]
        what = self._death(first) if kind == "died" else reports[first][1]
        if kind != "died" and reports[first][2]:
            what += f", {_place(*reports[first][2])}"
        return "; ".join([f"rank {first} of {self.ranks} {what}", *stood])

    def _stands(self, reports: dict[int, tuple]) -> dict[int, str]:
        """Say at which line those are that report nothing, or that they have lost another."""
        lost = {rank: report[2] for rank, report in reports.items() if report[0] == "lost"}
        stands = {rank: _place(*where) for rank, where in lost.items() if where}
        waiting = [rank for rank in range(self.ranks) if rank not in reports]
        for rank in waiting:
            with contextlib.suppress(OSError):  # its faulthandler writes down where it is
                os.kill(self.pids[rank], signal.SIGUSR1)
        limit = time.monotonic() + STACK_S
        while waiting and time.monotonic() < limit:
            time.sleep(0.01)
            for rank in list(waiting):
                stack = (self.directory / f"stack{rank}").read_text()
                if stack.endswith("\n"):
                    waiting.remove(rank)
                    stands[rank] = self._line(stack)
        return stands

    def _line(self, stack: str) -> str:
        """Return the learner's line of a stack that faulthandler wrote, the newest call first."""
        for filename, line, function in re.findall(r'File "(.*)", line (\d+) in (.*)', stack):
            if filename in self.files:
                return _place(filename, int(line), function)
        return "outside its function"

    def _death(self, rank: int) -> str:
        """Say how a process died: torchrun, its parent, writes that down."""
        limit = time.monotonic() + LOG_S
        while time.monotonic() < limit:
            log = (self.directory / "torchrun").read_text(errors="replace")
            for code, pid in re.findall(r"exitcode: (-?\d+)\).*?\(pid: (\d+)\)", log):
                if int(pid) == self.pids[rank]:
                    if int(code) < 0:
                        return f"was killed by {signal.Signals(-int(code)).name}"
                    return f"left with exit code {code}"
            time.sleep(0.05)
        return "ended"

    def _output(self, rank: int) -> str:
        """Return what a process has printed since this was last asked."""
        path = self.directory / f"output{rank}"
        if not path.exists():
            return ""
        with open(path, "rb") as file:
            file.seek(self.printed[rank])
            text = file.read()
        self.printed[rank] += len(text)
        return text.decode(errors="replace")

    def _show(self, rank: int) -> None:
        lines = self._output(rank).splitlines()
        for line in lines:
            if not NOISE.match(line):
                print(f"rank {rank}: {line}")

    def close(self, at_once: bool = False) -> None:
        """End all: by an empty message, or at once, and in any case."""
        atexit.unregister(self.close)
        if self.owner != os.getpid():
            return
        self.listener.close()
        if not at_once:
            with contextlib.suppress(OSError):
                for connection in self.connections:
                    connection.send_bytes(b"")
            shutil.rmtree(self.directory, ignore_errors=True)  # if this process ends meanwhile
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.torchrun.wait(CLOSE_S)
        self.torchrun.stdin.close()  # the guard then ends all that is left
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.torchrun.wait(CLOSE_S)
        if self.torchrun.poll() is None or self.torchrun.returncode < 0:  # it has been killed
            self.torchrun.kill()
            self.torchrun.wait()
            for pid in self.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for connection in self.connections:
            connection.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _place_for_sockets() -> str:
    """Return the folder for temporary files, or /tmp if a socket's path would be too long there."""
    usual = tempfile.gettempdir()
    longest = 103 - len("/team-12345678/socket")
    return usual if len(os.fsencode(usual)) <= longest else "/tmp"


def _environment(ranks: int, backend: str) -> dict[str, str]:
    """Return the processes' environment: threads shared out, no GPU where there are too few."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(path or os.getcwd() for path in sys.path)]),
        "PYTHONSAFEPATH": "1",  # no file beside a notebook stands for one of PyTorch's
        "OMP_NUM_THREADS": str(max(1, _cores() // ranks)),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    # all are on this machine, whose name a laptop without network cannot look up
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        environment.setdefault(name, "lo0" if sys.platform == "darwin" else "lo")
    if backend == "gloo":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _place(filename: str, line: int, function: str) -> str:
    """Say where a line stands, and the line itself."""
    source = linecache.getline(filename, line).strip()
    where = f"of {Path(filename).name}" if Path(filename).exists() else "of the cell"
    return f"in {function}, line {line} {where}: {source}"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _prepared(rank: int, ranks: int, candidates: dict[str, Callable], args: tuple) -> dict:
    return {name: prepare(rank, ranks, *args) for name, prepare in candidates.items()}


def _call_all(rank: int, ranks: int, candidates: dict, args: tuple, check: bool) -> None:
    """Call each candidate once; AssertionError if one's result is not the first one's."""
    functions = _prepared(rank, ranks, candidates, args)
    _agree(functions, check)


def _time_all(
    rank: int, ranks: int, candidates: dict, args: tuple, check: bool, seconds: float
) -> dict:
    """Return the samples of each candidate, and of the first once more."""
    functions = _prepared(rank, ranks, candidates, args)
    _agree(functions, check)
    names = list(functions)
    taken = clock_in_turns([*functions.values(), functions[names[0]]], seconds)
    _agree(functions, check)
    return dict(zip([*names, "the first again"], taken, strict=True))


def _agree(functions: dict[str, Callable], check: bool) -> None:
    results = {name: snapshot(fn()) for name, fn in functions.items()}
    first = next(iter(results))
    for name, result in results.items() if check else ():
        assert_same(result, results[first], f"{name!r} against {first!r}: result")
