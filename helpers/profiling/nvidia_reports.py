"""What NVIDIA's tools find in a Python script: ncu's metrics and advice, the sanitizer's errors."""

import ast
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from helpers.base.tables import Table
from helpers.compiler.source import kernel_version
from helpers.compiler.tools import ToolMissing
from helpers.device import BACKEND
from helpers.profiling import nvidia_tools
from helpers.profiling.tool_output import parse_sanitizer
from helpers.recorded import Record, recorded, stored

NCU_SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "LaunchStats", "Occupancy")


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
        notes = [note, "" if record.brief else record.caption]
        header = [record.device or "", "metric", "value", "unit"]
        super().__init__(header, lines, "\n".join(filter(None, notes)))

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
    about = {"kernel": kernel, "sections": list(sections)}
    options = [option for section in sections for option in ("--section", section)]

    def measure() -> dict:
        return _ncu(script, kernel, options, "auto")

    record, note = _run_or_recall(key, script, about, measure)
    return NcuReport(record, note, show)


def ncu_counters(
    script: str, metrics: Sequence[str], key: str, kernel: str | None = None
) -> NcuReport:
    """Count hardware events, such as "dram__bytes_read.sum", of one launch in a Python script.

    Values are in base units (bytes, nanoseconds, counts); else as ncu_report.
    """
    about = {"kernel": kernel, "metrics": list(metrics)}
    options = ["--metrics", ",".join(metrics)]

    def measure() -> dict:
        return _ncu(script, kernel, options, "base")

    record, note = _run_or_recall(key, script, about, measure)
    return NcuReport(record, note)


def sanitize(script: str, tool: str = "memcheck", key: str | None = None) -> SanitizerReport:
    """Run a Python script under compute-sanitizer: memcheck, racecheck, initcheck or synccheck.

    key=None records nothing. RuntimeError if the script fails for a reason of its own.
    """
    if tool not in ("memcheck", "racecheck", "initcheck", "synccheck"):
        raise ValueError(f"expected memcheck, racecheck, initcheck or synccheck, got {tool!r}")

    def measure() -> dict:
        return _compute_sanitizer(script, tool)

    record, note = _run_or_recall(key, script, {"tool": tool}, measure)
    return SanitizerReport(record, tool, note)


def _run_or_recall(
    key: str | None, script: str, about: dict, measure: Callable[[], dict]
) -> tuple[Record, str]:
    """Return the record of `measure`, and a sentence if the tool could not run."""
    short, kernels = _without_kernels(script)
    about = {"script": short} | about
    try:
        if key is not None:
            return recorded(key, measure, about, kernels), ""
        if BACKEND == "cpu":
            return Record(None), ""
        name = torch.cuda.get_device_name()
        return Record(measure(), name, torch.__version__, torch.version.cuda, live=True), ""
    except ToolMissing as error:
        return stored(key, about, kernels) if key else Record(None), str(error)


def _without_kernels(script: str) -> tuple[str, set[str]]:
    """Return a script with its CUDA strings cut out, and their versions and those of .cu files."""
    kernels = set()
    texts = [
        node
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for text in texts:
        if "__global__" in text.value:
            kernels.add(kernel_version(text.value))
            script = script.replace(ast.get_source_segment(script, text), "the string")
        elif text.value.endswith((".cu", ".cuh")) and Path(text.value).exists():
            kernels.add(kernel_version(Path(text.value).read_text()))
    return script, kernels


def _ncu(script: str, kernel: str | None, options: list[str], units: str) -> dict:
    options = ["--target-processes", "application-only", "--launch-count", "1", *options]
    options += ["--kernel-name", f"regex:{kernel}"] if kernel else []
    with _program(script) as program:
        found, output = nvidia_tools.profile(program, options, units)
    if found is None:
        raise RuntimeError(f"ncu measured no launch of {kernel or 'a kernel'}:\n{_end(output)}")
    return found


def _compute_sanitizer(script: str, tool: str) -> dict:
    with _program(script) as program:
        done = nvidia_tools.sanitize(program, tool)
    if done.stopped:
        raise RuntimeError(f"compute-sanitizer ran past {nvidia_tools.TIME_LIMIT_S} s")
    found = parse_sanitizer(done.output)
    has_failed = "Traceback (most recent call last)" in done.output
    if found is None or (found["count"] == 0 and has_failed):
        raise RuntimeError(f"the script failed under compute-sanitizer:\n{_end(done.output)}")
    return found


@contextmanager
def _program(script: str) -> Iterator[list[str]]:
    """Give the command that runs a script, which is a file: its tracebacks show their lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script)
        yield [sys.executable, str(path)]


def _end(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


def _digits(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _count(errors: int, shown: int) -> str:
    text = f"{errors or 'no'} error{'' if errors == 1 else 's'}"
    return text if errors <= shown else f"{text}, the first {shown} of them above"
