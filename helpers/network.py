"""A model of several GPUs that send to each other: what goes over each link, and how long it takes.

`simulate(worker, inputs)` calls worker(net, inp) once for each rank, all of them at the same time
as they see it. `net` has rank, ranks, send, recv and swap. A message of n bytes takes latency +
n / bandwidth; a rank sends one message at a time and receives one at a time, both at once. A send
ends when the other side has received: no rank has a letter box, so what would depend on one on
real machines deadlocks here, always.
"""

import linecache
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from helpers.base.tables import Table

LATENCY_US = 10.0  # of a message, about that of one between two GPUs of a machine
GBPS = 100.0  # bytes in a nanosecond; 100 make a megabyte take 10 µs


class DeadlockError(RuntimeError):
    """All ranks wait, and none for what another one is about to do."""


@dataclass(frozen=True)
class Message:
    """A transfer: who sends to whom, bytes, the step it belongs to (from 1), and when it runs."""

    source: int
    to: int
    bytes: int
    step: int
    start_us: float
    end_us: float


@dataclass
class Run:
    """What a worker did on the model: each rank's result, and every message."""

    ranks: int
    outs: list[Any]
    messages: list[Message] = field(default_factory=list)

    @property
    def time_us(self) -> float:
        """When the last message has arrived."""
        return max((message.end_us for message in self.messages), default=0.0)

    @property
    def steps(self) -> int:
        """Messages that have to wait for each other, one after the other, at the longest."""
        return max((message.step for message in self.messages), default=0)

    def bytes(self, source: int, to: int) -> int:
        """Return the bytes that went over one link."""
        return sum(m.bytes for m in self.messages if (m.source, m.to) == (source, to))

    def sent(self) -> list[int]:
        """Return the bytes that each rank sent."""
        ranks = range(self.ranks)
        return [sum(self.bytes(source, to) for to in ranks) for source in ranks]

    @property
    def links(self) -> Table:
        """The bytes over each link, as a table."""
        return link_table(
            [[self.bytes(i, j) for j in range(self.ranks)] for i in range(self.ranks)]
        )


def link_table(sent: Sequence[Sequence[int]]) -> Table:
    """Return a table of the bytes that rank i sent to rank j, with each rank's sums."""
    ranks = range(len(sent))
    lines = [
        [
            f"from {i}",
            *(f"{sent[i][j]:,}" if sent[i][j] else "" for j in ranks),
            f"{sum(sent[i]):,}",
        ]
        for i in ranks
    ]
    received = [sum(row[j] for row in sent) for j in ranks]
    lines.append(["in all", *(f"{count:,}" for count in received), f"{sum(received):,}"])
    return Table(["bytes", *(f"to {j}" for j in ranks), "in all"], lines, "")


def simulate(
    worker: Callable,
    inputs: Sequence[Any],
    *args: Any,
    latency_us: float = LATENCY_US,
    gbps: float = GBPS,
) -> Run:
    """Call worker(net, input, *args) for each rank, on copies of the inputs; return the Run.

    Raises DeadlockError, with each rank's line, where all wait for ever; ValueError for a message
    of another size or type than is expected; and what a worker raises.
    """
    return _Model(len(inputs), latency_us, gbps).run(worker, inputs, args)


@dataclass
class _Wish:
    """What a rank waits for: to send a tensor to another rank, or to receive into one from it."""

    tensor: torch.Tensor
    to: int | None = None
    source: int | None = None
    is_done: bool = False

    def __str__(self) -> str:
        what = f"send to rank {self.to}" if self.source is None else f"receive from {self.source}"
        return what


class Net:
    """One rank's view of the others. Tensors are contiguous."""

    def __init__(self, model: "_Model", rank: int, ranks: int):
        self.rank, self.ranks = rank, ranks
        self._model = model

    def send(self, x: torch.Tensor, to: int) -> None:
        """Send a tensor; return when it has been received."""
        self._model.ask(self.rank, [_Wish(x, to=self._other(to))])

    def recv(self, out: torch.Tensor, source: int) -> None:
        """Receive into `out`."""
        self._model.ask(self.rank, [_Wish(out, source=self._other(source))])

    def swap(self, x: torch.Tensor, to: int, out: torch.Tensor, source: int) -> None:
        """Send one tensor and receive another at the same time; return when both are through."""
        wishes = [_Wish(x, to=self._other(to)), _Wish(out, source=self._other(source))]
        self._model.ask(self.rank, wishes)

    def _other(self, rank: int) -> int:
        if not isinstance(rank, int) or not 0 <= rank < self.ranks or rank == self.rank:
            raise ValueError(f"rank {self.rank} of {self.ranks} has no link to rank {rank}")
        return rank


class _Stop(BaseException):
    """Ends a rank whose run is over."""


class _Model:
    """Lets one rank run at a time, until it has to wait; then matches what they wait for."""

    def __init__(self, ranks: int, latency_us: float, gbps: float):
        self.ranks, self.latency_us, self.gbps = ranks, latency_us, gbps
        self.wishes: list[list[_Wish]] = [[] for _ in range(ranks)]
        self.places = [""] * ranks
        self.clock_us, self.steps = [0.0] * ranks, [0] * ranks
        self.go = [threading.Semaphore(0) for _ in range(ranks)]
        self.back = threading.Semaphore(0)
        self.errors: list[BaseException | None] = [None] * ranks
        self.is_over = False

    def run(self, worker: Callable, inputs: Sequence[Any], args: tuple) -> Run:
        run = Run(self.ranks, [None] * self.ranks)

        def live(rank: int) -> None:
            self.go[rank].acquire()
            try:
                if not self.is_over:
                    net = Net(self, rank, self.ranks)
                    run.outs[rank] = worker(net, _copy(inputs[rank]), *args)
            except BaseException as error:
                self.errors[rank] = error
            finally:
                self.back.release()

        threads = [threading.Thread(target=live, args=[i], daemon=True) for i in range(self.ranks)]
        for thread in threads:
            thread.start()
        try:
            self._let_run(run, threads, list(range(self.ranks)))
        finally:
            self.is_over = True
            for rank, thread in enumerate(threads):
                while thread.is_alive():
                    self.go[rank].release()
                    thread.join(0.01)
        return run

    def _let_run(self, run: Run, threads: list, ready: list[int]) -> None:
        alive = set(ready)
        while alive:
            for rank in ready:
                self.go[rank].release()
                self.back.acquire()  # it waits, or is done
                if self.errors[rank] is not None:
                    raise self.errors[rank]
                if not self.wishes[rank]:
                    alive.discard(rank)
            ready = self._match(run)
            if alive and not ready:
                raise DeadlockError(self._report(alive))

    def ask(self, rank: int, wishes: list[_Wish]) -> None:
        """Called in a rank's thread: wait until all wishes are fulfilled."""
        self.wishes[rank], self.places[rank] = wishes, _place()
        self.back.release()
        self.go[rank].acquire()
        if self.is_over:
            raise _Stop

    def _match(self, run: Run) -> list[int]:
        """Transfer what one sends and another one receives; return whom nothing holds up."""
        ends = list(self.clock_us)
        steps = list(self.steps)
        for source in range(self.ranks):
            for sending in self.wishes[source]:
                if sending.source is not None or sending.is_done:
                    continue
                receiving = next(
                    (w for w in self.wishes[sending.to] if w.source == source and not w.is_done),
                    None,
                )
                if receiving is not None:
                    message = self._transfer(source, sending, receiving)
                    run.messages.append(message)
                    for rank in (source, sending.to):
                        ends[rank] = max(ends[rank], message.end_us)
                        steps[rank] = max(steps[rank], message.step)
        ready = []
        for rank, wishes in enumerate(self.wishes):
            if wishes and all(wish.is_done for wish in wishes):
                self.wishes[rank] = []
                ready.append(rank)
        self.clock_us, self.steps = ends, steps
        return ready

    def _transfer(self, source: int, sending: _Wish, receiving: _Wish) -> Message:
        x, out, to = sending.tensor, receiving.tensor, sending.to
        if (x.numel(), x.dtype) != (out.numel(), out.dtype):
            raise ValueError(
                f"rank {to} expects {out.numel()} × {_type(out)} from rank {source}, "
                f"which sends {x.numel()} × {_type(x)}"
            )
        out.view(-1).copy_(x.reshape(-1))
        sending.is_done = receiving.is_done = True
        start = max(self.clock_us[source], self.clock_us[to])
        bytes = x.numel() * x.element_size()
        end = start + self.latency_us + bytes / self.gbps / 1e3
        step = max(self.steps[source], self.steps[to]) + 1
        return Message(source, to, bytes, step, start, end)

    def _report(self, alive: set[int]) -> str:
        waiting = []
        for rank in sorted(alive):
            wishes = " and to ".join(str(wish) for wish in self.wishes[rank] if not wish.is_done)
            waiting.append(f"rank {rank} waits to {wishes}{self.places[rank]}")
        done = [str(rank) for rank in range(self.ranks) if rank not in alive]
        if done:
            waiting.append(f"rank{'s' * (len(done) > 1)} {', '.join(done)} finished")
        return "deadlock: " + "; ".join(waiting)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _type(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _place() -> str:
    """Say at which line of whose code this is."""
    frame = sys._getframe()
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    name, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(name, line).strip()
    where = f" of {Path(name).name}" if os.path.exists(name) else ""
    return f" (line {line}{where}: {source})"
