"""Where the time goes: PyTorch's profilers here, NVIDIA's tools on a script in its own process."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from helpers.base.machine import ROOT
from helpers.base.tables import Table
from helpers.device import BACKEND
from helpers.profiling.tool_output import parse_ncu, parse_sanitizer, short_name
from helpers.recorded import Record, recorded, stored

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch 2.13's profiler talks to stderr

TIME_LIMIT_S = 300  # for a script under ncu or compute-sanitizer
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
NCU_SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "LaunchStats", "Occupancy")

# ---- PyTorch's own profilers -------------------------------------------------------------------


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
        header = ["name", "on", "calls", *columns.values(), "share"]
        super().__init__(header, lines, record.caption)


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
        with torch.autograd.profiler.profile(use_device=device) as profiler:
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
        return (
            f"{self.path}: {kinds} events over {self.span_ms:.2f} ms\n"
            "open it at https://ui.perfetto.dev, or in Chrome at chrome://tracing"
        )

    __repr__ = __str__


def chrome_trace(fn: Callable[[], Any], path: str | Path) -> Trace:
    """Write the timeline of one call, on the GPU or the CPU that is there, as a chrome trace.

    `path` ends in .json or .json.gz.
    """
    path = Path(path)
    for _ in range(2):
        profiler = _torch_profiler(fn)
    profiler.export_chrome_trace(str(path))
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
    if BACKEND == "cpu":
        fn()
    return ProfileTable(recorded(key, measure), rows)


def _torch_profiler(fn: Callable[[], Any]) -> torch.profiler.profile:
    activities = [ProfilerActivity.CPU]
    if BACKEND == "cuda":
        activities.append(ProfilerActivity.CUDA)
    # acc_events: torch 2.11 warns without it
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        fn()
        _synchronize()
    return profiler


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


# ---- NVIDIA's tools, each on a script in a process of its own -----------------------------------


class NcuReport(Table):
    """What ncu found: `rows` (kernel, section, metric, unit, value) and `hints` (its advice).

    A hint is a dict with kernel, section, rule, kind ("OPT": something to gain, "WRN", "INF"), text
    and speedup (percent, ncu's estimate, or None). `report.value("Duration")` gives one metric.
    """

    def __init__(self, record: Record, note: str = "", show: Sequence[str] | None = None):
        found = record.value or {"rows": [], "hints": []}
        self.rows: list[dict] = found["rows"]
        self.hints: list[dict] = found["hints"]
        shown = [row for row in self.rows if show is None or row["metric"] in show]
        lines = [[r["section"], r["metric"], _digits(r["value"]), r["unit"]] for r in shown]
        caption = "\n".join([*([note] if note else []), record.caption])
        super().__init__(["section", "metric", "value", "unit"], lines, caption)

    def value(self, metric: str) -> float | str:
        """Return the value of the first row with that metric; KeyError names those there are."""
        for row in self.rows:
            if row["metric"] == metric:
                return row["value"]
        raise KeyError(f"{metric!r} is not among {sorted({row['metric'] for row in self.rows})}")


class SanitizerReport(Table):
    """What compute-sanitizer found: `count` errors (None if it could not run), grouped in `rows`.

    A row has error, kernel, line (of the source, None without line information), thread and block
    of the first occurrence ("" for a race, which is between many), and times.
    """

    def __init__(self, record: Record, tool: str, note: str = ""):
        found = record.value or {"rows": [], "count": None, "shown": 0}
        self.rows: list[dict] = found["rows"]
        self.count: int | None = found["count"]
        columns = [name for name in ("thread", "block") if any(row[name] for row in self.rows)]
        lines = []
        for row in self.rows:
            place = row["kernel"] + (f", line {row['line']}" if row["line"] else "")
            cells = [row[name] for name in columns]
            lines.append([row["error"], place, *cells, f"{row['times']:,}"])
        errors = [] if self.count is None else [f"{tool}: {_count(self.count, found['shown'])}"]
        caption = "\n".join([*errors, *([note] if note else []), record.caption])
        super().__init__(["error", "in", *columns, "times"], lines, caption)


class _Unavailable(RuntimeError):
    """The tool is missing or not allowed to run; the message says what mends it."""


def ncu_report(
    script: str,
    key: str,
    kernel: str | None = None,
    sections: Sequence[str] = NCU_SECTIONS,
    show: Sequence[str] | None = None,
) -> NcuReport:
    """Run a Python script under ncu and report on one launch, with ncu's hints.

    `kernel` is a regular expression; the first launch that matches is measured (None: the first of
    all). `show` names the metrics to show (None: all). Without a GPU, or where ncu may not run, the
    recorded report is shown. RuntimeError if the script fails or launches no such kernel.
    """
    about = {"script": script, "kernel": kernel, "sections": list(sections)}
    options = [option for section in sections for option in ("--section", section)]
    record, note = _run_or_recall(key, about, lambda: _ncu(script, kernel, options, "auto"))
    return NcuReport(record, note, show)


def ncu_counters(
    script: str, metrics: Sequence[str], key: str, kernel: str | None = None
) -> NcuReport:
    """Count hardware events, such as "dram__bytes_read.sum", of one launch in a Python script.

    Values are in base units (bytes, nanoseconds, counts); else as ncu_report.
    """
    about = {"script": script, "kernel": kernel, "metrics": list(metrics)}
    options = ["--metrics", ",".join(metrics)]
    record, note = _run_or_recall(key, about, lambda: _ncu(script, kernel, options, "base"))
    return NcuReport(record, note)


def sanitize(script: str, tool: str = "memcheck", key: str | None = None) -> SanitizerReport:
    """Run a Python script under compute-sanitizer: memcheck, racecheck, initcheck or synccheck.

    key=None records nothing. RuntimeError if the script fails for a reason of its own.
    """
    if tool not in ("memcheck", "racecheck", "initcheck", "synccheck"):
        raise ValueError(f"expected memcheck, racecheck, initcheck or synccheck, got {tool!r}")
    about = {"script": script, "tool": tool}
    record, note = _run_or_recall(key, about, lambda: _compute_sanitizer(script, tool))
    return SanitizerReport(record, tool, note)


def _run_or_recall(key: str | None, about: dict, measure: Callable[[], dict]) -> tuple[Record, str]:
    """Return the record of `measure`, and a sentence if the tool could not run."""
    try:
        if key is not None:
            return recorded(key, measure, about), ""
        if BACKEND == "cpu":
            return Record(None), ""
        name = torch.cuda.get_device_name()
        return Record(measure(), name, torch.__version__, torch.version.cuda, live=True), ""
    except _Unavailable as error:
        return stored(key, about) if key else Record(None), str(error)


def _ncu(script: str, kernel: str | None, options: list[str], units: str) -> dict:
    ncu = _tool("ncu", "Nsight Compute: `sudo apt-get install nsight-compute`, or the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.ncu-rep")
        command = [ncu, "--clock-control", "none", "--target-processes", "application-only"]
        command += ["--launch-count", "1", *options, "--export", str(report)]
        command += ["--kernel-name", f"regex:{kernel}"] if kernel else []
        output = _run([*command, *_python(script, folder)])
        if "ERR_NVGPUCTRPERM" in output:
            raise _Unavailable(
                "ncu may not read the GPU's counters. Allow it, then reboot: `echo options nvidia "
                "NVreg_RestrictProfilingToAdminUsers=0 | sudo tee /etc/modprobe.d/ncu.conf`"
            )
        if not report.exists():
            raise RuntimeError(f"ncu measured no launch of {kernel or 'a kernel'}:\n{_end(output)}")
        pages = ["--csv", "--page", "details", "--print-units", units]
        return parse_ncu(_run([ncu, "--import", str(report), *pages]))


def _compute_sanitizer(script: str, tool: str) -> dict:
    sanitizer = _tool("compute-sanitizer", "the CUDA toolkit: `sudo apt-get install cuda-toolkit`")
    with tempfile.TemporaryDirectory() as folder:
        command = [sanitizer, "--tool", tool, "--show-backtrace", "no"]
        # CUDA 13's start-up asks the driver for functions that old ones lack: no error of ours
        command += ["--report-api-errors", "no"] if tool == "memcheck" else []
        output = _run([*command, *_python(script, folder)])
    found = parse_sanitizer(output)
    if found is None or (found["count"] == 0 and "Traceback (most recent call last)" in output):
        raise RuntimeError(f"the script failed under compute-sanitizer:\n{_end(output)}")
    return found


def _python(script: str, folder: str) -> list[str]:
    path = Path(folder, "script.py")
    path.write_text(script)
    return [sys.executable, str(path)]


def _tool(name: str, source: str) -> str:
    """Return the path of one of NVIDIA's tools; _Unavailable names where it comes from."""
    cuda = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda"]
    folders = os.pathsep.join([os.environ.get("PATH", ""), *(f"{root}/bin" for root in cuda)])
    path = shutil.which(name, path=folders)
    if path is None:
        raise _Unavailable(f"{name} is not on this machine. It comes with {source}.")
    return path


def _run(command: list[str]) -> str:
    """Run a command, its script finding `helpers`; return its stdout and stderr together."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",  # else torch's pool hides overruns of a tensor
        "LC_ALL": "C.UTF-8",  # decimal points
    }
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(command, **both, text=True, env=env, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{Path(command[0]).name} ran past {TIME_LIMIT_S} s") from None
    return done.stdout


def _end(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


def _digits(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _count(errors: int, shown: int) -> str:
    text = f"{errors or 'no'} error{'' if errors == 1 else 's'}"
    return text if errors <= shown else f"{text}, the first {shown} of them above"
