"""The tables of the proof, as README.md beside this shows them."""

from pathlib import Path

from helpers.proof.agreement import (
    COUNTED_BY,
    Counts,
    cpu_backend,
    machine,
    nsight_compute,
    registers,
)
from helpers.proof.kernels import KERNELS

README = Path(__file__).with_name("README.md")

TEXT = """# The counts agree with Nsight Compute

Each kernel here is written twice, in Python and in CUDA, line by line the same. The simulator
counts what the Python kernel does, the CPU backend what the CUDA string does when g++ has compiled
it, and Nsight Compute (ncu) what the same string does on a GPU. `make proof` counts again on the
first two and writes this file; `python -m helpers.proof.measure` measures again, on a GPU.

Measured on {machine}.

## Global memory

Requests / 32-byte sectors; "=" is the simulator's. Kernels marked * are explained below the table.

{global_memory}

{notes}

## Atomic operations on global memory

Requests / 32-byte sectors.

{atomics}

## Shared memory

Wavefronts (passes over the banks) / bank conflicts (those among them that conflicts cause).

{shared_memory}

## Occupancy

Theoretical, from the block, its shared memory and the registers that nvcc gives a thread.

{occupancy}
"""


def readme() -> str:
    """Return README.md as it has to be now; runs every kernel on both backends."""
    gpu = machine()
    notes = [f"- {_short(name)}\\*: {k.note}" for name, k in KERNELS.items() if k.note]
    return TEXT.format(
        machine=f"{gpu['gpu']}, driver {gpu['driver']}, CUDA {gpu['cuda']}, ncu {gpu['ncu']}",
        global_memory=_counts_table("global", ("load", "store"), ("requests", "sectors")),
        notes="\n".join(notes),
        atomics=_counts_table("global", ("atomic",), ("requests", "sectors")),
        shared_memory=_counts_table(
            "shared", ("load", "store", "atomic"), ("wavefronts", "conflicts")
        ),
        occupancy=_occupancy_table(),
    )


def _counts_table(space: str, operations: tuple[str, ...], what: tuple[str, ...]) -> str:
    """Return a row for each kernel that does any of the operations."""
    header = [f"{operation}s: {by}" for operation in operations for by in COUNTED_BY]
    rows = [["kernel", *header]]
    for name, kernel in KERNELS.items():
        counted = [counts(name) for counts in COUNTED_BY.values()]
        cells = [
            cell
            for operation in operations
            for cell in _cells(counted, [f"{space} {operation} {w}" for w in what])
        ]
        if any(cells):
            rows.append([_short(name) + ("\\*" if kernel.note else ""), *cells])
    return _markdown(rows)


def _cells(counted: list[Counts], keys: list[str]) -> list[str]:
    """Return the numbers of all three, or "=" if they are the first's; nothing where all are 0."""
    if not any(counts.get(key) for counts in counted for key in keys):
        return [""] * len(counted)
    texts = [" / ".join(f"{counts[key]:,.0f}" for key in keys) for counts in counted]
    return [texts[0], *("=" if text == texts[0] else text for text in texts[1:])]


def _occupancy_table() -> str:
    rows = [["kernel", "threads", "registers", "shared bytes", "here", "ncu"]]
    for name, kernel in KERNELS.items():
        ours, measured = cpu_backend(name)["occupancy"], nsight_compute(name)["occupancy"]
        cells = [f"{ours:.1%}", "=" if f"{ours:.4f}" == f"{measured:.4f}" else f"{measured:.1%}"]
        shared_bytes = f"{cpu_backend(name)['shared bytes']:,}"
        row = [_short(name), f"{kernel.threads}", f"{registers(name)}", shared_bytes]
        rows.append([*row, *cells])
    return _markdown(rows)


def _short(name: str) -> str:
    return name.removesuffix("_kernel")


def _markdown(rows: list[list[str]]) -> str:
    header, *body = rows
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
