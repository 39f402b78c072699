"""The tables of the proof, as README.md beside this shows them."""

from pathlib import Path

from helpers.tests.proof.agreement import (
    COUNTED_BY,
    Counts,
    cpu_backend,
    machine,
    nsight_compute,
    registers,
)
from helpers.tests.proof.kernels import KERNELS

README = Path(__file__).with_name("README.md")

COUNTS = """# The counts agree with Nsight Compute

Each kernel here is written twice, in Python and in CUDA, line by line the same. The simulator
counts what the Python kernel does, the CPU backend what the CUDA string does when g++ has compiled
it, and Nsight Compute (ncu) what the same string does on a GPU. `make proof` counts again on the
first two and writes this file; `python -m helpers.tests.proof.measure` measures again, on a GPU.

Measured on {machine}. "=" means: the same as the simulator.

In kernels marked * ncu counts something else. In all but the last two the reason is nvcc, which
makes other instructions than the source shows:

{notes}

Where nvcc joins neighbouring loads or stores of shared memory, a report of `trace` says so, from
the instructions that nvcc makes. With what it joins, the wavefronts are ncu's for every kernel
here: a test beside this holds them to it.

What no kernel here does: add floats to shared memory with atomicAdd. The GPU has no instruction for
that, and loops. ncu counts each round as a load and an atomic without a conflict, where the
simulator and the CPU backend count one atomic, and the rounds as its wavefronts.

What is not compared: active lanes. ncu gives their mean over all instructions of a kernel, where
the simulator and the CPU backend count them by lines of the source.

## Global memory

Requests / 32-byte sectors.

{global_memory}

## Atomic operations on global memory

Requests / 32-byte sectors.

{atomics}

## Shared memory

Wavefronts (passes over the banks) / bank conflicts (those among them that conflicts cause).

{shared_memory}

## Floating-point operations

Additions, multiplications, and fused multiply-adds, which count two. What no kernel here does: a
division, root, minimum, maximum or function such as `expf` counts one on the simulator and the CPU
backend, where ncu counts the additions and multiplications that nvcc makes of it.

{flops}

## Occupancy

From the block, its shared memory and the registers that nvcc gives a thread: how many blocks an SM
of the GPU holds at a time, the theoretical occupancy, and the waves that the grid takes.

{occupancy}
"""


def counts() -> str:
    """Return what README.md says about the counts; runs every kernel on both backends."""
    gpu = machine()
    moved, passes = ["requests", "sectors"], ["wavefronts", "conflicts"]
    notes = [f"- {_short(name)}: {k.note}." for name, k in KERNELS.items() if k.note]
    return COUNTS.format(
        machine=f"{gpu['gpu']}, driver {gpu['driver']}, CUDA {gpu['cuda']}, ncu {gpu['ncu']}",
        notes="\n".join(notes),
        global_memory=_table(_columns("global", ["load", "store"], moved)),
        atomics=_table(_columns("global", ["atomic"], moved)),
        shared_memory=_table(_columns("shared", ["load", "store", "atomic"], passes)),
        flops=_table({"": ["FLOPs"]}),
        occupancy=_occupancy_table(),
    )


def _table(columns: dict[str, list[str]]) -> str:
    """Return a row for each kernel of which something is counted; a column shows some counts."""
    rows = [["kernel", *(title + by for title in columns for by in COUNTED_BY)]]
    for name, kernel in KERNELS.items():
        counted = [count(name) for count in COUNTED_BY.values()]
        cells = [cell for keys in columns.values() for cell in _cells(counted, keys)]
        if any(cells):
            rows.append([_short(name) + ("\\*" if kernel.note else ""), *cells])
    return _markdown(rows)


def _columns(space: str, operations: list[str], what: list[str]) -> dict[str, list[str]]:
    """Return columns for operations on a memory space, under "loads: " and the like."""
    return {f"{o}s: ": [f"{space} {o} {counted}" for counted in what] for o in operations}


def _cells(counted: list[Counts], keys: list[str]) -> list[str]:
    """Return the numbers of all three, or "=" if they are the first's; nothing where all are 0."""
    if not any(counts.get(key) for counts in counted for key in keys):
        return [""] * len(counted)
    texts = [" / ".join(f"{counts[key]:,.0f}" for key in keys) for counts in counted]
    return [texts[0], *("=" if text == texts[0] else text for text in texts[1:])]


def _occupancy_table() -> str:
    """Return what fits on an SM: worked out from the launch on the CPU backend, and by ncu."""
    rows = [["kernel", "threads", "registers", "shared bytes", "blocks, occupancy, waves", "ncu"]]
    for name, kernel in KERNELS.items():
        ours, measured = cpu_backend(name), nsight_compute(name)
        texts = [
            f"{fit['blocks']:.0f}, {fit['occupancy']:.1%}, {fit['waves']:.2f}"
            for fit in (ours, measured)
        ]
        launch = [f"{kernel.threads}", f"{registers(name)}", f"{ours['shared bytes']:,}"]
        rows.append([_short(name), *launch, texts[0], "=" if texts[0] == texts[1] else texts[1]])
    return _markdown(rows)


def _short(name: str) -> str:
    return name.removesuffix("_kernel")


def _markdown(rows: list[list[str]]) -> str:
    header, *body = rows
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
