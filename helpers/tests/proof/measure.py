"""Measure every kernel of the proof with Nsight Compute: `python -m helpers.tests.proof.measure`.

Needs a GPU whose counters ncu may read. Writes ncu.csv, a line for each kernel and a column for
each metric (empty: this GPU does not have it), and ncu.json, which says where that was.
"""

import csv
import json
import re
import sys
from pathlib import Path

import torch
from numpy.random import RandomState

from helpers.checks import check_close
from helpers.compiler.tools import ncu
from helpers.device import BACKEND
from helpers.profiling.nvidia_tools import profile, run
from helpers.profiling.tool_output import short_name
from helpers.tests.proof.kernels import KERNELS, compiled

SEED = 0  # of the data that is counted: a gather and a histogram depend on it
MEASURED = Path(__file__).with_name("ncu.csv")
MACHINE = MEASURED.with_suffix(".json")

METRICS = (
    *(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st", "atom", "red")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st", "atom", "red")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")),
    "sm__maximum_warps_per_active_cycle_pct",
    *(f"launch__occupancy_limit_{of}" for of in ("blocks", "registers", "shared_mem", "warps")),
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__waves_per_multiprocessor",
    *(
        f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"
        for op in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma")
    ),
)


def main() -> None:
    """Write ncu.csv and ncu.json."""
    if BACKEND == "cpu":
        raise SystemExit("there is no GPU here")
    launch_all()  # everything is compiled, and right, before ncu looks
    measured = measure(METRICS)
    with MEASURED.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kernel", *METRICS])
        for kernel in KERNELS:
            writer.writerow([kernel, *(measured[kernel].get(name, "") for name in METRICS)])
    MACHINE.write_text(json.dumps(_machine(), indent=1) + "\n")
    print(f"wrote {MEASURED.name} and {MACHINE.name} on {_machine()}")


def launch_all() -> None:
    """Launch each kernel once on the GPU, on the data that is counted, and check its result."""
    functions = {name: compiled(name) for name in KERNELS}
    for name, kernel in KERNELS.items():
        arguments = kernel.arguments(RandomState(SEED))
        expected = kernel.expected(*arguments)
        arguments = [_on_gpu(argument) for argument in arguments]
        functions[name](*arguments)
        check_close(arguments[0], expected, name=name)


def measure(metrics: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return the metrics that the GPU has, by kernel. RuntimeError if ncu does not measure all."""
    options = ["--kernel-name", f"regex:{'|'.join(KERNELS)}", "--metrics", ",".join(metrics)]
    script = "from helpers.tests.proof.measure import launch_all; launch_all()"
    found, output = profile([sys.executable, "-c", script], options, "base")
    unknown = [name for name in metrics if _is_complained_about(name, output)]
    if found is None and unknown:
        print("not on this GPU:", *unknown)
        return measure(tuple(name for name in metrics if name not in unknown))
    if found is None:
        raise RuntimeError(f"ncu measured nothing:\n{output}")
    measured: dict[str, dict[str, float]] = {name: {} for name in KERNELS}
    for row in found["rows"]:
        kernel = short_name(row["kernel"])
        if kernel in measured and not isinstance(row["value"], str):  # a text: "n/a"
            measured[kernel][row["metric"]] = row["value"]
    if missing := [name for name, values in measured.items() if not values]:
        raise RuntimeError(f"ncu did not measure {', '.join(missing)}:\n{output}")
    return measured


def _is_complained_about(metric: str, output: str) -> bool:
    """Whether ncu says that the metric does not exist; it then measures none at all."""
    name = re.escape(metric.split(".")[0])
    return bool(re.search(rf"^==(?:ERROR|WARNING)==.*\b{name}\b", output, re.MULTILINE))


def _on_gpu(argument):
    """Return the argument on the GPU; a view keeps its place in its storage, and so alignment."""
    if not isinstance(argument, torch.Tensor):
        return argument
    offset = argument.storage_offset()
    whole = torch.empty(offset + argument.numel(), dtype=argument.dtype, device="cuda")
    return whole[offset:].copy_(argument)


def _machine() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": run(query).output.split("\n")[0].strip(),
        "cuda": torch.version.cuda,
        "ncu": re.search(r"Version (\S+)", run([str(ncu()), "--version"]).output)[1],
    }


if __name__ == "__main__":
    main()
