"""How long calls take on the GPU, measured so that the numbers can be believed.

CUDA events stand around every single call. Before each, a buffer larger than the L2 cache is read,
so that no call finds its inputs left there by the one before. (Read, not written: a call would pay
2 to 4 µs for writing changed lines back.) The reading keeps the GPU busy for about 0.3 ms, in
which Python launches the call: what is measured is the GPU's time alone. Where launching takes the
CPU longer, the buffer is read more often; from 1 ms on, as for a training step, the GPU is let
run idle first, and the time is what a stopwatch shows: launching and work, from an idle GPU to the
last kernel's end. One such candidate is enough to time all of its comparison that way; the caption
says so.

Candidates take turns in a rotating order, so that a moving clock meets all of them alike.

The floor: on an H200 two events with nothing between them are 1.3 µs apart, with an empty kernel
2.8 µs. What takes 4 µs by this clock may well have worked for one.
"""

import contextlib
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from helpers.base.called_kernels import called_kernels, noting_versions
from helpers.base.tables import Table
from helpers.checks import check_close
from helpers.device import BACKEND, DEVICE
from helpers.recorded import Record, measured_or_stored

SAMPLES = 100
BUDGET_S = 1.5  # a candidate, all its samples together
WARM_UP_S = 0.2
FLUSH_READS = 5  # of the buffer before each call: 0.3 ms on an H200
HIDDEN_MS = 0.2  # launching that the flush surely hides
MOST_HIDDEN_MS = 1.0  # launching that is hidden by reading more often
SHORT_MS = 0.05  # below this a sample is the mean of several calls: CUDA promises ticks of 0.5 µs
CALLS_PER_SHORT_SAMPLE = 10

Candidate = Callable[[], Any]
# takes a candidate and a number of calls; returns the mean time of one call in milliseconds
Clock = Callable[[Candidate, int], float]


@dataclass(frozen=True)
class Timing:
    """The time of one call: median, 10th and 90th percentile; NaN where nothing is recorded."""

    median_ms: float
    low_ms: float
    high_ms: float
    caption: str

    def __str__(self) -> str:
        if math.isnan(self.median_ms):
            return self.caption
        unit, scale = ("µs", 1e3) if self.median_ms < 1 else ("ms", 1)
        places = _decimals([scale * self.median_ms])
        median, low, high = (
            f"{scale * time:,.{places}f}" for time in (self.median_ms, self.low_ms, self.high_ms)
        )
        return f"{median} {unit} (10–90 %: {low}–{high}), {self.caption}"

    __repr__ = __str__


class Comparison(Table):
    """A table of candidates: `rows` (one dict a candidate), `self_ratio`, `caption`, `record`.

    A row holds name, median_ms, low_ms, high_ms, gbps and tflops (None where the bytes or FLOPs
    were not given) and ratio, the speed relative to the first candidate. `rows` is empty where
    there is neither a GPU nor a record.
    """

    def __init__(self, record: Record):
        self.record = record
        value = record.value or {"rows": [], "self_ratio": math.nan}
        self.self_ratio: float = value["self_ratio"]
        self.rows: list[dict] = value["rows"]
        notes = [] if record.brief else [record.caption]
        if self.rows:
            notes.append(f"{value['method']}; the first against itself: {self.self_ratio:.3f}×")
        header, lines = _header_and_lines(self.rows)
        super().__init__([record.device or "", *header], lines, "\n".join(notes))

    def time_us(self, name: str) -> float:
        """Return a candidate's median in µs, NaN where nothing is recorded; KeyError: no such."""
        if not self.rows:
            return math.nan
        times = {row["name"]: 1e3 * row["median_ms"] for row in self.rows}
        if name not in times:
            raise KeyError(f"no candidate {name!r}; there is {', '.join(map(repr, times))}")
        return times[name]


def time_cuda(fn: Candidate, key: str) -> Timing:
    """Time one function on the GPU; without one, call it once and return the recorded time."""

    def measure() -> dict:
        (times,), method = _time([fn])
        median, low, high = _summary(times)
        return {"median_ms": median, "low_ms": low, "high_ms": high, "method": method}

    with called_kernels() as kernels:
        fn()
    record = measured_or_stored(key, measure, None, kernels)
    if record.value is None:
        return Timing(math.nan, math.nan, math.nan, record.caption)
    value = dict(record.value)
    return Timing(caption=f"{record.caption}\n{value.pop('method')}", **value)


def capture(fn: Callable[[], Any]) -> Callable[[], None]:
    """Capture a call of `fn` as a CUDA graph, after three to warm up; return what replays it.

    Without a GPU there are no graphs, and `fn` itself is returned. RuntimeError, of PyTorch, for
    what a graph cannot hold: a wait for the GPU, memory that is allocated outside PyTorch. And for
    a graph that holds nothing, because all is launched in other streams than the current one.
    """
    if BACKEND == "cpu":
        return fn
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is allocated or compiled once, is now
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The CUDA Graph is empty")
        try:
            with called_kernels() as kernels, torch.cuda.graph(graph):
                fn()
        except UserWarning as warning:
            if "Graph is empty" not in str(warning):  # of fn, where warnings are errors
                raise
            raise RuntimeError(
                "the graph is empty: expected launches in at::cuda::getCurrentCUDAStream(), but "
                "fn launches in other streams (<<<grid, block>>> is the default one), if at all"
            ) from None

    def replay():
        graph.replay()

    replay.captured = fn  # the graph reads and writes memory that `fn` holds
    return noting_versions(replay, kernels)


def compare(
    candidates: dict[str, Candidate],
    key: str,
    bytes: int | None = None,
    flops: int | None = None,
    check: bool = True,
) -> Comparison:
    """Time the candidates against each other on the GPU; without one, show what was recorded.

    `bytes` and `flops` are what one call must move and compute. With `check`, every candidate's
    result (a tensor, a number, a tuple of them) is compared with the first one's before and after
    timing, on every machine; AssertionError names the candidate that differs. Use check=False
    for candidates that change their inputs. ValueError if there is nothing to compare.
    """
    functions = _by_name(candidates)
    with called_kernels() as kernels:
        first = _first_result(functions, check)
    return Comparison(
        measured_or_stored(
            key, lambda: _measure(functions, first, bytes, flops), list(functions), kernels
        )
    )


def measure_speeds(
    candidates: dict[str, Candidate],
    bytes: int | None = None,
    flops: int | None = None,
    check: bool = True,
) -> dict:
    """Time the candidates as `compare` does, on a GPU; return what a Comparison is made of."""
    functions = _by_name(candidates)
    return _measure(functions, _first_result(functions, check), bytes, flops)


def _by_name(candidates: dict[str, Candidate]) -> dict[str, Candidate]:
    if not candidates:
        raise ValueError("expected at least one candidate, got none")
    return {str(name): partial(_call, name, fn) for name, fn in candidates.items()}


def _first_result(functions: dict[str, Candidate], check: bool) -> Any:
    """Call all once; return the first one's result for comparisons, None if there are to be none.

    AssertionError: another one's differs.
    """
    (first_name, first_function), *others = functions.items()
    first = snapshot(first_function())
    if check and first is None:
        raise ValueError(
            f"{first_name!r} returns nothing that could be checked: let every candidate return "
            "its result, or say check=False"
        )
    for name, fn in others:
        result = fn()
        if check:
            _must_agree(result, first, f"{name!r} disagrees with {first_name!r}", first_function)
    return first if check else None


def _measure(
    functions: dict[str, Candidate], first: Any, bytes: int | None, flops: int | None
) -> dict:
    """Time the functions, compare their results with the first one's before, if there is one."""
    first_name, *_ = names = list(functions)
    samples, method = _time([*functions.values(), functions[first_name]])
    if first is not None:
        for name, fn in functions.items():
            complaint = f"after timing, {name!r} disagrees with {first_name!r} before"
            _must_agree(fn(), first, complaint, functions[first_name])
    return evaluate(names, samples, bytes, flops) | {"method": method}


def _call(name: str, fn: Candidate) -> Any:
    try:
        return fn()
    except Exception as error:
        error.add_note(f"in candidate {name!r}")
        raise


def evaluate(
    names: Sequence[str], samples: list[list[float]], bytes: int | None, flops: int | None
) -> dict:
    """Turn samples in milliseconds into rows; the last list is the first candidate once more."""
    medians = [_summary(times)[0] for times in samples]
    rows = []
    for name, times in zip(names, samples[:-1], strict=True):
        median, low, high = _summary(times)
        row = {"name": name, "median_ms": median, "low_ms": low, "high_ms": high}
        row["gbps"] = None if bytes is None else bytes / median / 1e6
        row["tflops"] = None if flops is None else flops / median / 1e9
        row["ratio"] = medians[0] / median
        rows.append(row)
    self_ratio = medians[0] / medians[-1]
    return {
        "rows": rows,
        "self_ratio": self_ratio,
        "bytes": bytes,
        "flops": flops,
    }


def _time(functions: list[Candidate]) -> tuple[list[list[float]], str]:
    """Return each function's samples in milliseconds, and how they were taken."""
    launch_ms = max(map(_launch_ms, functions))
    from_idle = launch_ms > MOST_HIDDEN_MS
    reads = FLUSH_READS if from_idle else math.ceil(FLUSH_READS * max(1, launch_ms / HIDDEN_MS))
    clock = cuda_clock(reads, torch.cuda.synchronize if from_idle else None)
    samples = _sample(functions, clock)
    method = f"median of {len(samples[0])} samples, L2 flushed before each call"
    return samples, method + (", launching included" if from_idle else "")


def _launch_ms(fn: Candidate) -> float:
    """Return how long a call holds up the CPU; the GPU may go on after that."""
    times = []
    while len(times) < 3 or (len(times) < 10 and min(times) > MOST_HIDDEN_MS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        fn()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def _sample(functions: list[Candidate], clock: Clock) -> list[list[float]]:
    """Return samples in milliseconds for each function, taken in turns, the order rotating."""
    calls = []
    seconds_a_round = 0.0
    for fn in functions:
        spent_ms, runs = 0.0, 0
        while runs < 3 or (spent_ms < 1e3 * WARM_UP_S and runs < 50):
            estimate_ms = clock(fn, 1)
            spent_ms += estimate_ms
            runs += 1
        calls.append(CALLS_PER_SHORT_SAMPLE if estimate_ms < SHORT_MS else 1)
        seconds_a_round += 1e-3 * estimate_ms * calls[-1]
    budget_s = BUDGET_S * len(functions)
    rounds = max(5, min(SAMPLES, int(budget_s / seconds_a_round)))
    samples: list[list[float]] = [[] for _ in functions]
    for start in range(rounds):
        for step in range(len(functions)):
            i = (start + step) % len(functions)
            samples[i].append(clock(functions[i], calls[i]))
    return samples


def cuda_clock(reads: int = FLUSH_READS, meet: Callable[[], Any] | None = None) -> Clock:
    """Return the clock that times calls with CUDA events on PyTorch's current stream.

    `reads`: how often the flush reads its buffer; the GPU is still at it when the call is launched,
    which hides the launching. `meet` is called in between: torch.cuda.synchronize has the GPU idle.
    """
    l2_bytes = torch.cuda.get_device_properties().L2_cache_size
    buffer = torch.ones(max(4 * l2_bytes, 2**26) // 4, device=DEVICE)  # float32
    total = torch.empty((), device=DEVICE)

    def clock(fn: Candidate, calls: int) -> float:
        events = []
        for _ in range(calls):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(reads):
                torch.sum(buffer, 0, out=total)
            if meet is not None:
                meet()
            start.record()
            fn()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        return sum(start.elapsed_time(end) for start, end in events) / calls

    return clock


def _header_and_lines(rows: list[dict]) -> tuple[list[str], list[list[str]]]:
    """Write rows as cells, all times in one unit, no column that would be empty.

    The header leaves out the first column, of the candidates' names.
    """
    unit, scale = ("µs", 1e3) if all(row["median_ms"] < 1 for row in rows) else ("ms", 1)
    gbps, tflops = (any(row[name] is not None for row in rows) for name in ("gbps", "tflops"))
    header = [f"median {unit}", "10 %", "90 %"]
    header += ["GB/s"] * gbps + ["TFLOP/s"] * tflops + ["speed"]
    decimals = _decimals([scale * row["median_ms"] for row in rows])
    tflops_decimals = _decimals([row["tflops"] for row in rows]) if tflops else 0
    lines = []
    for row in rows:
        times = [scale * row[f"{which}_ms"] for which in ("median", "low", "high")]
        line = [row["name"], *(f"{time:,.{decimals}f}" for time in times)]
        line += [f"{row['gbps']:,.0f}"] if gbps else []
        line += [f"{row['tflops']:,.{tflops_decimals}f}"] if tflops else []
        ratio = row["ratio"]
        lines.append([*line, f"{ratio:.2f}×" if ratio >= 0.1 else f"{ratio:.2g}×"])
    return header, lines


def _summary(times: list[float]) -> tuple[float, float, float]:
    """Return median, 10th and 90th percentile."""
    deciles = statistics.quantiles(times, n=10, method="inclusive")
    return statistics.median(times), deciles[0], deciles[-1]


def _decimals(numbers: Sequence[float]) -> int:
    """Return how many decimals, three at most, give the smallest number four digits."""
    smallest = min(numbers, default=0)
    digits = math.floor(math.log10(smallest)) + 1 if smallest > 0 else 1
    return min(max(4 - digits, 0), 3)


def snapshot(result: Any) -> Any:
    """Copy the tensors of a result, so that later calls cannot change them."""
    if isinstance(result, torch.Tensor):
        return result.detach().clone()
    if isinstance(result, np.ndarray):
        return torch.from_numpy(result.copy())
    if isinstance(result, tuple | list):
        return tuple(snapshot(part) for part in result)
    return result


def _must_agree(result: Any, expected: Any, complaint: str, first: Candidate) -> None:
    """Raise AssertionError unless the result is what the first candidate returned at first."""
    try:
        assert_same(result, expected, "result")
    except AssertionError as error:
        hint = ""
        if not _is_like(first(), expected):
            hint = (
                "\nThe first one gives another result each time: candidates that change their "
                "inputs or draw random numbers need check=False."
            )
        raise AssertionError(f"{complaint}: {error}{hint}") from None


def _is_like(result: Any, expected: Any) -> bool:
    """Return whether two results of one candidate are the same, NaN included."""
    if isinstance(expected, tuple):
        return all(map(_is_like, result, expected))
    if isinstance(expected, torch.Tensor):
        pair = [tensor.to(torch.complex128) for tensor in (snapshot(result), expected)]
        is_near = partial(torch.allclose, rtol=1e-3, atol=1e-3, equal_nan=True)
        return pair[0].shape == pair[1].shape and is_near(*pair)
    return result == expected


def assert_same(result: Any, expected: Any, name: str) -> None:
    """Raise AssertionError unless a candidate's result agrees with the first candidate's."""
    if expected is None:
        assert result is None, f"{name}: expected None, got {type(result).__name__}"
    elif isinstance(expected, tuple):
        count = len(result) if isinstance(result, tuple | list) else "no tuple"
        assert count == len(expected), f"{name}: expected {len(expected)} results, got {count}"
        for i, (part, expected_part) in enumerate(zip(result, expected, strict=True)):
            assert_same(part, expected_part, f"{name} {i}")
    elif not isinstance(expected, torch.Tensor | int | float | complex):
        kinds = "a tensor, a number, None or a tuple of them"
        raise TypeError(f"{name}: expected {kinds} to check, got {type(expected).__name__}")
    else:
        with contextlib.redirect_stdout(None):  # the table is what the reader should see
            check_close(result, expected, name=name)
