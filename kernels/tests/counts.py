"""What the kernel files ask of global memory, counted by Nsight Compute and by the CPU backend.

    python -m kernels.tests.counts          with a GPU and ncu: measures counts.csv
    python -m kernels.tests.counts fft scan    only these files' rows

Each row is one call of a host function, the first of its sizes in CASES or the largest that is
small, with all kernels of the file that the call launches. test_counts.py holds the CPU backend's
counts to these.
"""

import csv
import importlib
import math
import re
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from unittest import mock

import torch

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.profiling.nvidia_tools import profile
from helpers.profiling.tool_output import short_name
from helpers.trace.from_cpu_backend import record
from kernels.tests import contract

MEASURED = Path(__file__).with_name("counts.csv")
SMALL = 30_000  # elements: as many as a trace counts in a moment
SEED = 0

# operation → Nsight Compute's names; ld: asynchronous copies to shared memory as well
OPERATIONS = {"load": ("ld",), "store": ("st",), "atomic": ("atom", "red")}
WHATS = ("requests", "sectors")
METRICS = {
    f"{operation} {what}": [f"l1tex__t_{what}_pipe_lsu_mem_global_op_{s}.sum" for s in suffixes]
    for operation, suffixes in OPERATIONS.items()
    for what in WHATS
}
MARK = "mark_kernel"
MARK_SOURCE = """
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>
__global__ void mark_kernel() {}
torch::Tensor mark(torch::Tensor like) {
    mark_kernel<<<1, 1, 0, c10::cuda::getCurrentCUDAStream()>>>();
    return like;
}
"""


def calls(files: Collection[str] = ()):
    """Yield the file, the function, the size and the arguments of each call, the same anywhere.

    files: stems of kernel files, such as "fft"; none: all of them.
    """
    for path in _paths(files):
        tests = _tests(path)
        for case in tests.CASES:
            small = [s for s in case.sizes if 0 < _elements(s) <= SMALL]
            for size in dict.fromkeys([case.sizes[0], max(small, key=_elements)]):
                torch.manual_seed(SEED)
                with mock.patch.object(tests, "DEVICE", "cpu", create=True):
                    with mock.patch.object(contract, "DEVICE", "cpu"):
                        arguments = case.arguments(*size)
                placed = {name: _on_device(value) for name, value in arguments.items()}
                yield path, case.function, size, case.values(placed)


def _paths(files: Collection[str]) -> list[Path]:
    every = {path.stem: path for path in sorted((ROOT / "kernels").glob("*.cu"))}
    if unknown := set(files) - set(every):
        names = ", ".join(every)
        raise SystemExit(f"no kernel file {', '.join(sorted(unknown))}; there is {names}")
    return [path for stem, path in every.items() if stem in files or not files]


def _tests(path: Path) -> ModuleType:
    return importlib.import_module(f"kernels.tests.test_{path.stem}")


def _elements(size: tuple) -> int:
    return math.prod(value for value in size if isinstance(value, int))


def _on_device(argument):
    return argument.to(DEVICE) if isinstance(argument, torch.Tensor) else argument


def label(function: str, size: tuple) -> str:
    return f"{function} {'×'.join(map(str, size))}"


def by_cpu_backend() -> dict[str, dict[str, int]]:
    """Return the counts of each call that was measured, by its label."""
    counts = {}
    for path, function, size, arguments in calls():
        if on_gpu_only(function):
            continue
        _, launches = record(getattr(compile_cuda(path), function), *arguments)
        counts[label(function, size)] = {
            f"{operation} {what}": sum(
                getattr(access, what)
                for launch in launches
                for access in launch.accesses
                if (access.space, access.operation) == ("global", operation)
            )
            for operation in OPERATIONS
            for what in WHATS
        }
    return counts


def on_gpu_only(function: str) -> bool:
    """Return whether its arguments are the GPU's own, which the CPU backend cannot use."""
    own = {case.function for path in _paths(()) for case in _tests(path).CASES if case.machine}
    return BACKEND == "cuda" and function in own


def by_nsight_compute() -> dict[str, dict[str, int]]:
    """Return the counts of each call, by its label, as measured."""
    with MEASURED.open(newline="") as file:
        rows = {row.pop("call"): row for row in csv.DictReader(file)}
    return {call: {k: int(v) for k, v in row.items()} for call, row in rows.items()}


def launch_all(files: Collection[str] = ()) -> None:
    """Make each call of the files once on the GPU, each behind a mark."""
    mark = compile_cuda(MARK_SOURCE).mark
    for path, function, _, arguments in list(calls(files)):  # what makes arguments launches, too
        mark(torch.empty(1, device=DEVICE))
        getattr(compile_cuda(path), function)(*arguments)


def main(files: Collection[str] = ()) -> None:
    """Write counts.csv, or the rows of these files anew."""
    if BACKEND == "cpu":
        raise SystemExit("there is no GPU here")
    launch_all(files)  # everything is compiled before ncu looks
    sources = [MARK_SOURCE] + [path.read_text() for path in _paths(files)]
    names = {name for source in sources for name in re.findall(r"\b\w+_kernel\b", source)}
    metrics = ",".join(name for names in METRICS.values() for name in names)
    options = ["--kernel-name", f"regex:^({'|'.join(sorted(names))})$", "--metrics", metrics]
    script = f"from kernels.tests.counts import launch_all; launch_all({sorted(files)})"
    found, output = profile([sys.executable, "-c", script], options, "base")
    if found is None:
        raise RuntimeError(f"ncu measured nothing:\n{output}")
    measured: list[dict[str, float]] = []
    marked = False
    for row in found["rows"]:
        is_mark = short_name(row["kernel"]) == MARK
        if is_mark and not marked:
            measured.append({})
        elif not is_mark and measured:  # before the first mark arguments are made
            counts = measured[-1]
            counts[row["metric"]] = counts.get(row["metric"], 0) + row["value"]
        marked = is_mark
    rows = by_nsight_compute()
    for (_, function, size, _), counts in zip(calls(files), measured, strict=True):
        rows[label(function, size)] = {
            what: sum(int(counts[name]) for name in names) for what, names in METRICS.items()
        }
    with MEASURED.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["call", *METRICS])
        for _, function, size, _ in calls():
            if counts := rows.get(label(function, size)):
                writer.writerow([label(function, size), *counts.values()])


if __name__ == "__main__":
    main(sys.argv[1:])
