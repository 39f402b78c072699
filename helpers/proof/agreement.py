"""What the simulator, the CPU backend and Nsight Compute count of a kernel, under the same names."""

import csv
import json
from collections.abc import Callable
from functools import cache

from numpy.random import RandomState

from helpers.proof.kernels import KERNELS, compiled
from helpers.proof.measure import MACHINE, MEASURED, SEED
from helpers.trace import occupancy, trace
from helpers.trace.record import Access, Launch

# operation → its suffixes in Nsight Compute's metrics, in global and in shared memory
GLOBAL = {"load": ("ld",), "store": ("st",), "atomic": ("atom", "red")}
SHARED = {"load": ("ld",), "store": ("st",), "atomic": ("atom",)}

Counts = dict[str, float]


@cache
def simulator(name: str) -> Counts:
    """Count a kernel on the simulator."""
    kernel = KERNELS[name]
    report = trace(kernel.python, kernel.grid, kernel.block, *kernel.arguments(RandomState(SEED)))
    return _counts(name, report.launches[0])


@cache
def cpu_backend(name: str) -> Counts:
    """Count a kernel on the CPU backend."""
    report = trace(compiled(name), *KERNELS[name].arguments(RandomState(SEED)))
    return _counts(name, report.launches[0])


@cache
def nsight_compute(name: str) -> Counts:
    """Return what was measured on a GPU."""
    measured = _measured()[name]
    counts: Counts = {}
    for operation, suffixes in GLOBAL.items():
        for what in ("requests", "sectors"):
            metrics = [f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for op in suffixes]
            counts[f"{operation} {what}"] = sum(measured[metric] for metric in metrics)
    for operation, suffixes in SHARED.items():
        metrics = [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in suffixes]
        counts[f"{operation} conflicts"] = sum(measured[metric] for metric in metrics)
    kinds = ("static", "dynamic")
    shared_bytes = [measured[f"launch__shared_mem_per_block_{kind}"] for kind in kinds]
    counts["shared bytes"] = sum(shared_bytes)
    counts["occupancy"] = measured["sm__maximum_warps_per_active_cycle_pct"] / 100
    return counts


@cache
def machine() -> dict[str, str]:
    """Return the GPU that was measured on, its driver, and the versions of CUDA and ncu."""
    return json.loads(MACHINE.read_text())


def registers(name: str) -> int:
    """Return the registers of a thread of the CUDA kernel, as measured."""
    return int(_measured()[name]["launch__registers_per_thread"])


@cache
def _measured() -> dict[str, dict[str, float]]:
    with MEASURED.open(newline="") as file:
        rows = {row.pop("kernel"): row for row in csv.DictReader(file)}
    return {
        kernel: {metric: float(value) for metric, value in row.items() if value}
        for kernel, row in rows.items()
    }


def _counts(name: str, launch: Launch) -> Counts:
    def total(space: str, operation: str, of: Callable[[Access], int]) -> int:
        kinds = (space, operation)
        return sum(of(a) for a in launch.accesses if (a.space, a.operation) == kinds)

    counts: Counts = {}
    for operation in GLOBAL:
        counts[f"{operation} requests"] = total("global", operation, lambda a: a.requests)
        counts[f"{operation} sectors"] = total("global", operation, lambda a: a.sectors)
    for operation in SHARED:
        counts[f"{operation} conflicts"] = total("shared", operation, lambda a: a.bank_conflicts)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    chip = machine()["gpu"].removeprefix("NVIDIA ")
    fit = occupancy(chip, threads, launch.shared_bytes, registers(name))
    counts["shared bytes"] = launch.shared_bytes
    counts["occupancy"] = fit.fraction
    return counts
