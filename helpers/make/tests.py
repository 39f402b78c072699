"""Run every test file and every notebook, each in a process of its own: `make test`.

A test that crashes its process spoils only its own part. As many parts run at once as there are
cores, up to MOST_AT_ONCE, each on cores of its own: PyTorch and the CPU backend start a thread for
each core that they may use. What takes longest comes first: LONGEST, notebooks, then the largest
files.
A line for each part counts up: parts done of all, seconds since the start. The last line is the sum
of all parts.
"""

import os
import re
import signal
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pytest

from helpers.base.machine import ROOT
from helpers.compiler import set_up
from helpers.compiler.build import prepare
from helpers.make.kernels import notebook_paths
from helpers.make.worker import GRACE_S, Worker

MOST_AT_ONCE = 8  # a part takes up to 2 GB of memory
LONGEST = (  # more than half a minute each on 2 cores, where their files' sizes do not tell
    "kernels/tests/test_kernels.py",
    "notebooks/17_mnist_cnn.ipynb",
    "kernels/tests/test_contract.py",
    "kernels/tests/test_operators.py",  # builds what 17b needs too: not at the same time
    "helpers/tests/test_compiler.py",
    "kernels/tests/test_counts.py",
    "kernels/tests/test_ways.py",
    "notebooks/17b_faster_and_faster.ipynb",
    "notebooks/17c_training_step.ipynb",
    "kernels/tests/test_mnist_program.py",
    "helpers/tests/test_planted_locals.py",
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # nbval's, also where nobody looks at a terminal
ENVIRONMENT = {
    "RECORD": "check",  # a notebook whose record is stale fails
    # nbval takes two seconds to import, and only the notebooks' parts name it
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}
NBVAL = [
    *("-p", "nbval.plugin"),
    *("-p", "helpers.make.nbval_watch"),
    "--nbval-lax",
    "--nbval-current-env",
    "--nbval-cell-timeout=600",
]


@dataclass
class Result:
    """What became of one part."""

    part: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    output: str

    def __str__(self) -> str:
        counts = f"{self.passed} passed"
        counts += f", {self.failed} failed" if self.failed else ""
        counts += f", {self.skipped} skipped" if self.skipped else ""
        return f"{'FAILED' if self.failed else 'ok':6} {self.seconds:6.1f} s  {self.part}: {counts}"


def parts() -> list[list[str]]:
    """Return pytest's arguments for each part."""
    tests = sorted(ROOT.glob("*/tests/test_*.py"), key=lambda path: -path.stat().st_size)
    longest = [ROOT / name for name in LONGEST]
    paths = [*longest, *reversed(notebook_paths()), *tests]
    return [
        [*(NBVAL if path.suffix == ".ipynb" else []), str(path)] for path in dict.fromkeys(paths)
    ]


def shares() -> list[set[int]]:
    """Return the cores that each of the parts that run at once may use."""
    if not hasattr(os, "sched_getaffinity"):  # macOS: all share all
        return [set() for _ in range(min(MOST_AT_ONCE, os.cpu_count() or 1))]
    cores = sorted(os.sched_getaffinity(0))
    at_once = min(MOST_AT_ONCE, len(cores))
    return [set(cores[i::at_once]) for i in range(at_once)]


def run_part(arguments: list[str], worker: Worker) -> Result:
    """Let the worker run pytest on one part.

    A process that dies or takes too long counts as one failure.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report, printed = Path(folder, "report.xml"), Path(folder, "printed")
        options = ["-q", "--color=no", f"--junitxml={report}"]
        environment = ENVIRONMENT | solutions_of(arguments[-1])
        late = ""
        try:
            code = worker.run([*options, *arguments], environment, str(printed))
        except TimeoutError as error:
            code, late = pytest.ExitCode.INTERRUPTED, f"\nstopped: {error}\n"
        output = (printed.read_text(errors="replace") if printed.exists() else "") + late
        passed, failed, skipped = counts(report)
    left_out = code == pytest.ExitCode.NO_TESTS_COLLECTED and skipped
    if code and not failed and not left_out:
        failed = 1
        output += f"\npytest ended with code {int(code)}\n"
    part = os.path.relpath(arguments[-1], ROOT)
    output = COLOURS.sub("", output)
    return Result(part, passed, failed, skipped, time.perf_counter() - begin, output)


def solutions_of(path: str) -> dict[str, str]:
    """Return what lets a notebook's exercises check the solutions that it shows."""
    return {"SOLUTIONS_OF": path} if path.endswith(".ipynb") else {}


def counts(report: Path) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped, from pytest's report."""
    if not report.exists():
        return 0, 0, 0
    suite = ET.parse(report).getroot().find("testsuite")
    total, failures, errors, skipped = (
        int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


def main() -> int:
    for stopped_by in (signal.SIGTERM, signal.SIGINT):  # the parts too, also in the background
        signal.signal(stopped_by, signal.default_int_handler)
    set_up()  # before the parts, so that none of them waits for another's build,
    prepare("cpu")  # also of what checks need on a machine with a GPU
    begin = time.perf_counter()
    todo = parts()
    workers = [Worker(share) for share in shares()]
    free = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def run(part: list[str]) -> Result:
        worker = free.get()
        try:
            return run_part(part, worker)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(run, part) for part in todo]
        try:
            results = []
            for future in as_completed(futures):
                results.append(future.result())
                seconds = time.perf_counter() - begin
                print(f"{len(results):3}/{len(todo)} {seconds:5.0f} s  {results[-1]}", flush=True)
                if results[-1].failed:
                    print(results[-1].output, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.interrupt()
            wait([future for future in futures if future.running()], GRACE_S)
            print("stopped", flush=True)
            return 130
        finally:
            for worker in workers:
                worker.kill()
    failures = [result for result in results if result.failed]
    if failures:
        print("\nFailed, with their output above:")
        print(*failures, sep="\n")
    passed, failed, skipped = (
        sum(getattr(result, name) for result in results) for name in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
