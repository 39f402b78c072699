"""Where the time goes, by PyTorch's own profilers: a table of operators and kernels, a timeline."""

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from helpers.base.called_kernels import called_kernels
from helpers.base.tables import Table
from helpers.device import BACKEND
from helpers.profiling.tool_output import short_name
from helpers.recorded import Record, measured_or_stored

OURS = re.compile(r"^cuda_[0-9a-f]{20}::")  # compile_cuda's name for a compiled string
# rows that come from profiling, not from what is profiled
PROFILERS_OWN = {
    "Activity Buffer Request",
    "Buffer Flush",
    "Command Buffer Full",
    "Instrumentation",
    "Lazy Function Loading",
    "Resource",
    "cudaDeviceSynchronize",
    "cudaEventRecord",
}


class ProfileTable(Table):
    """Operators and kernels by the time they take; `rows` holds a dict for each.

    A row has name, on ("CPU": an operator, "GPU": a kernel), calls, cpu_us and gpu_us (without what
    it calls; an operator's gpu_us is that of the kernels it launched) and share: of all GPU time,
    or of all CPU time where there is no GPU. Rows below half a percent of both are left out.
    """

    def __init__(self, record: Record, count: int):
        self.rows: list[dict] = (record.value or [])[:count]
        columns = {"cpu_us": "CPU µs", "gpu_us": "GPU µs"}
        columns = {us: title for us, title in columns.items() if any(r[us] for r in self.rows)}
        lines = []
        for row in self.rows:
            times = ["" if row[us] is None else f"{row[us]:,.1f}" for us in columns]
            lines.append([row["name"], row["on"], f"{row['calls']}", *times, f"{row['share']:.0%}"])
        header = [record.device or "", "on", "calls", *columns.values(), "share"]
        super().__init__(header, lines, "" if record.brief and lines else record.caption)


def profile_table(fn: Callable[[], Any], key: str | None = None, rows: int = 10) -> ProfileTable:
    """Profile one call with torch.profiler; without a GPU, call `fn` and show the recorded table.

    key=None records nothing and profiles on the machine that is there.
    """
    return _profile(fn, key, rows, lambda: _torch_profiler(fn).key_averages())


def autograd_profile(fn: Callable[[], Any], key: str | None = None, rows: int = 10) -> ProfileTable:
    """Do the same as profile_table with the older torch.autograd.profiler.

    It sees operators only; their GPU µs pass between two CUDA events around each, which counts the
    time in which the GPU waits for the launch.
    """

    def events() -> Sequence:
        device = "cuda" if BACKEND == "cuda" else None
        with _silence(), torch.autograd.profiler.profile(use_device=device) as profiler:
            fn()
            _synchronize()
        return profiler.key_averages()

    return _profile(fn, key, rows, events)


@dataclass(frozen=True)
class Trace:
    """A chrome trace in a file: how many events of each kind it holds, and the time it spans."""

    path: Path
    events: dict[str, int]
    span_ms: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.events.items())
        return f"{kinds} events over {self.span_ms:.2f} ms"

    __repr__ = __str__


def chrome_trace(fn: Callable[[], Any], path: str | Path) -> Trace:
    """Write the timeline of one call, on the GPU or the CPU that is there, and say where it is.

    The file is a chrome trace; `path` ends in .json or .json.gz.
    """
    path = Path(path)
    for _ in range(2):
        profiler = _torch_profiler(fn)
    profiler.export_chrome_trace(str(path))
    print(f"{path}: open it at https://ui.perfetto.dev, or in Chrome at chrome://tracing")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    kinds = Counter(e["cat"] for e in events if e["cat"] not in ("Trace", "overhead"))
    shown = [e for e in events if e["cat"] in kinds]
    start = min((e["ts"] for e in shown), default=0)
    end = max((e["ts"] + e["dur"] for e in shown), default=0)
    return Trace(path, dict(kinds.most_common()), (end - start) / 1e3)


def _profile(
    fn: Callable[[], Any], key: str | None, rows: int, events: Callable[[], Sequence]
) -> ProfileTable:
    def measure() -> list[dict]:
        events()  # the first time, the profiler itself and fn warm up
        return _profile_rows(events())

    if key is None:
        on = torch.cuda.get_device_name() if BACKEND == "cuda" else "the CPU of this machine"
        record = Record(measure(), on, torch.__version__, torch.version.cuda, live=True)
        return ProfileTable(record, rows)
    with called_kernels() as kernels:
        fn()
    return ProfileTable(measured_or_stored(key, measure, None, kernels), rows)


def _torch_profiler(fn: Callable[[], Any]) -> torch.profiler.profile:
    activities = [ProfilerActivity.CPU]
    if BACKEND == "cuda":
        activities.append(ProfilerActivity.CUDA)
    # acc_events: torch 2.11 warns without it
    with _silence(), torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        fn()
        _synchronize()
    return profiler


@contextmanager
def _silence() -> Iterator[None]:
    """Keep torch 2.13's profiler from talking to stderr: the first profile reads the variable."""
    before = os.environ.get("KINETO_LOG_LEVEL")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        yield
    finally:
        if before is None:
            del os.environ["KINETO_LOG_LEVEL"]


def _synchronize() -> None:
    if BACKEND == "cuda":
        torch.cuda.synchronize()


def _profile_rows(events: Sequence) -> list[dict]:
    """Turn key_averages() into rows, the largest share first."""
    rows = []
    for event in events:
        kernel = event.device_type != DeviceType.CPU
        if event.key in PROFILERS_OWN or (kernel and event.is_user_annotation):
            continue  # a record_function block: its kernels have rows of their own
        rows.append(
            {
                "name": short_name(event.key) if kernel else OURS.sub("", event.key),
                "on": "GPU" if kernel else "CPU",
                "calls": event.count,
                "cpu_us": None if kernel else event.self_cpu_time_total,
                "gpu_us": event.self_device_time_total if BACKEND == "cuda" else None,
            }
        )
    # kernels have all of the GPU's time; operators show a part of the same time once more
    kernels = [row for row in rows if row["on"] == "GPU"]
    totals = {
        "gpu_us": sum(row["gpu_us"] or 0 for row in kernels or rows),
        "cpu_us": sum(row["cpu_us"] or 0 for row in rows),
    }

    def share(row: dict, us: str) -> float:
        return (row[us] or 0) / totals[us] if totals[us] else 0.0

    rows = [row for row in rows if max(share(row, us) for us in totals) >= 0.005]
    for row in rows:
        row["share"] = share(row, "gpu_us" if BACKEND == "cuda" else "cpu_us")
    return sorted(rows, key=lambda row: (row["share"], row["cpu_us"] or 0), reverse=True)
