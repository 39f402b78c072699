"""How long calls take on the GPU, measured so that the numbers can be believed.

CUDA events around every single call; before each, a write larger than the L2 cache, so that no
call finds its inputs left there by the one before. That write also keeps the GPU busy while Python
launches the call: what is measured is the GPU's time, as long as launching takes less than about
0.1 ms. Candidates take turns in a rotating order, so that a moving clock meets all of them alike.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers.device import BACKEND
from helpers.recorded import Record, recorded
from helpers.tables import html_table, text_table

SAMPLES = 100
BUDGET_S = 1.5  # a candidate, all its samples together
WARM_UP_S = 0.2
SHORT_MS = 0.05  # below this, a sample is the mean of several calls: events tick in 0.5 µs
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
        times = _times([self.median_ms, self.low_ms, self.high_ms])
        return f"{times[0]} (10–90 %: {times[1]} to {times[2]})\n{self.caption}"

    __repr__ = __str__


class Comparison:
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
        self.caption = record.caption
        if self.rows:
            self.caption += (
                f"\nmedian of {value['samples']} samples, L2 flushed before each call; "
                f"the first against itself: {self.self_ratio:.3f}×"
            )

    def _table(self) -> tuple[list[str], list[list[str]]]:
        header = ["", "median", "10–90 %"]
        show = {key: any(row[key] is not None for row in self.rows) for key in ("gbps", "tflops")}
        header += ["GB/s"] * show["gbps"] + ["TFLOP/s"] * show["tflops"] + ["speed"]
        lines = []
        for row in self.rows:
            median, low, high = _times([row["median_ms"], row["low_ms"], row["high_ms"]])
            low = low.split()[0]
            line = [row["name"], median, f"{low}–{high}"]
            line += [f"{row['gbps']:,.0f}"] * show["gbps"]
            line += [f"{row['tflops']:,.2f}"] * show["tflops"]
            lines.append([*line, f"{row['ratio']:.2f}×"])
        return header, lines

    def __str__(self) -> str:
        return text_table(*self._table(), self.caption) if self.rows else self.caption

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self._table(), self.caption) if self.rows else f"<p>{self.caption}</p>"


def time_cuda(fn: Candidate, key: str) -> Timing:
    """Time one function on the GPU; without one, call it once and return the recorded time."""

    def measure() -> dict:
        median, low, high = _summary(_sample([fn], _cuda_clock())[0])
        return {"median_ms": median, "low_ms": low, "high_ms": high}

    if BACKEND == "cpu":
        fn()
    record = recorded(key, measure)
    nothing = {"median_ms": math.nan, "low_ms": math.nan, "high_ms": math.nan}
    return Timing(**(record.value or nothing), caption=record.caption)


def compare(
    candidates: dict[str, Candidate],
    key: str,
    bytes: int | None = None,
    flops: int | None = None,
    check: bool = True,
) -> Comparison:
    """Time the candidates against each other on the GPU; without one, show what was recorded.

    `bytes` and `flops` are what one call must move and compute. With `check`, every candidate's
    result (a tensor, a tuple of them, None) is compared with the first one's before and after
    timing, on every machine; AssertionError names the candidate that differs. Use check=False
    for candidates that change their inputs.
    """
    functions = list(candidates.values())
    first_result = _snapshot(functions[0]())
    _verify(candidates, first_result, check, skip_first=True)

    def measure() -> dict:
        samples = _sample([*functions, functions[0]], _cuda_clock())
        _verify(candidates, first_result, check)
        return _evaluate(list(candidates), samples, bytes, flops)

    return Comparison(recorded(key, measure, about=list(candidates)))


def _evaluate(
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
        "samples": len(samples[0]),
        "bytes": bytes,
        "flops": flops,
    }


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


def _cuda_clock() -> Clock:
    """Return the clock that times calls with CUDA events on PyTorch's current stream."""
    l2_bytes = torch.cuda.get_device_properties().L2_cache_size
    flush = torch.empty(max(4 * l2_bytes, 2**26), dtype=torch.uint8, device="cuda")

    def clock(fn: Candidate, calls: int) -> float:
        events = []
        for _ in range(calls):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            start.record()
            fn()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        return sum(start.elapsed_time(end) for start, end in events) / calls

    return clock


def _summary(times: list[float]) -> tuple[float, float, float]:
    """Return median, 10th and 90th percentile."""
    deciles = statistics.quantiles(times, n=10, method="inclusive")
    return statistics.median(times), deciles[0], deciles[-1]


def _times(times_ms: list[float]) -> list[str]:
    """Write times with four digits in the unit, µs or ms, that suits the first of them."""
    in_us = times_ms[0] < 1
    scaled = [1e3 * t if in_us else t for t in times_ms]
    digits = max(0, 3 - int(math.floor(math.log10(scaled[0]))))
    return [f"{t:,.{min(digits, 3)}f} {'µs' if in_us else 'ms'}" for t in scaled]


def _snapshot(result: Any) -> Any:
    """Copy the tensors of a result, so that later calls cannot change them."""
    if isinstance(result, torch.Tensor):
        return result.detach().clone()
    if isinstance(result, (tuple, list)):
        return tuple(_snapshot(part) for part in result)
    return result


def _verify(
    candidates: dict[str, Candidate], expected: Any, check: bool, skip_first: bool = False
) -> None:
    """Call every candidate once and compare its result with the first one's."""
    first = next(iter(candidates))
    for name, fn in candidates.items():
        if skip_first and name == first:
            continue
        result = fn()
        if not check:
            continue
        if name == first:
            hint = f"{name!r} after timing against itself before (does it change its inputs?)"
        else:
            hint = f"{name!r} against {first!r}"
        _assert_same(result, expected, hint)


def _assert_same(result: Any, expected: Any, what: str) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(result, torch.Tensor), f"{what}: expected a tensor, got {type(result)}"
        inexact = expected.numel() > 0 and expected.is_floating_point()
        scale = expected.abs().max().item() if inexact else 0
        torch.testing.assert_close(
            result.detach(), expected, rtol=1e-3, atol=1e-4 * scale, msg=lambda m: f"{what}: {m}"
        )
    elif isinstance(expected, tuple):
        assert isinstance(result, (tuple, list)) and len(result) == len(expected), (
            f"{what}: expected {len(expected)} results, got {result!r}"
        )
        for i, (got, want) in enumerate(zip(result, expected, strict=True)):
            _assert_same(got, want, f"{what}, result {i}")
    else:
        assert result == expected, f"{what}: expected {expected!r}, got {result!r}"
