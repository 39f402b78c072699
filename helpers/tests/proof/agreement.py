"""What the simulator, the CPU backend and Nsight Compute count of a kernel, in the same terms."""

import csv
import json
from functools import cache
from math import prod

from numpy.random import RandomState

from helpers.tests.proof.kernels import KERNELS, compiled
from helpers.tests.proof.measure import MACHINE, MEASURED, SEED
from helpers.trace import Trace, occupancy, trace
from helpers.trace.record import Access

# operation → its suffixes in Nsight Compute's metrics, in global and in shared memory
GLOBAL = {"load": ("ld",), "store": ("st",), "atomic": ("atom", "red")}
SHARED = {"load": ("ld",), "store": ("st",), "atomic": ("atom",)}
FLOPS = {"add": 1, "mul": 1, "fma": 2}  # of one instruction of a thread
LIMITS = ("blocks", "registers", "shared_mem", "warps")  # Nsight Compute's, of blocks on an SM

Counts = dict[str, float]


@cache
def trace_on_simulator(name: str) -> Trace:
    """Trace a Python kernel on the data that is counted."""
    kernel = KERNELS[name]
    return trace(kernel.python, kernel.grid, kernel.block, *kernel.arguments(RandomState(SEED)))


@cache
def trace_on_cpu_backend(name: str) -> Trace:
    """Trace a CUDA kernel on the data that is counted."""
    return trace(compiled(name), *KERNELS[name].arguments(RandomState(SEED)))


def simulator(name: str) -> Counts:
    """Return what the simulator counts of a kernel."""
    return _counts(name, trace_on_simulator(name))


def cpu_backend(name: str) -> Counts:
    """Return what the CPU backend counts of a kernel."""
    return _counts(name, trace_on_cpu_backend(name))


def nsight_compute(name: str) -> Counts:
    """Return what ncu counted of a kernel on a GPU."""
    measured = _measured()[name]

    def total(metric: str, suffixes: tuple[str, ...]) -> float:
        return sum(measured[f"l1tex__{metric}_op_{suffix}.sum"] for suffix in suffixes)

    counts: Counts = {}
    for operation, suffixes in GLOBAL.items():
        for what in ("requests", "sectors"):
            metric = f"t_{what}_pipe_lsu_mem_global"
            counts[f"global {operation} {what}"] = total(metric, suffixes)
    for operation, suffixes in SHARED.items():
        for what, metric in (
            ("wavefronts", "data_pipe_lsu_wavefronts"),
            ("conflicts", "data_bank_conflicts_pipe_lsu"),
        ):
            counts[f"shared {operation} {what}"] = total(f"{metric}_mem_shared", suffixes)
    metric = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    counts["FLOPs"] = sum(
        measured[metric.format(kind + operation)] * each
        for operation, each in FLOPS.items()
        for kind in "fd"
    )
    kinds = ("static", "dynamic")
    counts["shared bytes"] = sum(measured[f"launch__shared_mem_per_block_{k}"] for k in kinds)
    counts["blocks"] = min(measured[f"launch__occupancy_limit_{limit}"] for limit in LIMITS)
    counts["occupancy"] = measured["sm__maximum_warps_per_active_cycle_pct"] / 100
    counts["waves"] = measured["launch__waves_per_multiprocessor"]
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


def _counts(name: str, report: Trace) -> Counts:
    counts: Counts = {}
    for operation in GLOBAL:
        found = _accesses(report, "global", operation)
        counts[f"global {operation} requests"] = sum(access.requests for access in found)
        counts[f"global {operation} sectors"] = sum(access.sectors for access in found)
    for operation in SHARED:
        found = _accesses(report, "shared", operation)
        counts[f"shared {operation} wavefronts"] = sum(access.wavefronts for access in found)
        counts[f"shared {operation} conflicts"] = sum(access.bank_conflicts for access in found)
    counts["FLOPs"] = report.flops
    [launch] = report.launches
    chip = machine()["gpu"].removeprefix("NVIDIA ")
    fit = occupancy(chip, prod(launch.block), launch.shared_bytes, registers(name))
    counts["shared bytes"] = launch.shared_bytes
    counts["blocks"] = fit.blocks
    counts["occupancy"] = fit.fraction
    counts["waves"] = round(fit.waves(prod(launch.grid)), 2)  # as Nsight Compute shows it
    return counts


def _accesses(report: Trace, space: str, operation: str) -> list[Access]:
    return [a for a in report.accesses if (a.space, a.operation) == (space, operation)]


COUNTED_BY = {"simulator": simulator, "CPU backend": cpu_backend, "ncu": nsight_compute}
