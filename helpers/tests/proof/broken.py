"""Who finds the planted faults: the simulator, the CPU backend, NVIDIA's compute-sanitizer."""

import json
import re
import warnings

from numpy.random import RandomState

from helpers.simulator import SimulatorError, SimulatorWarning, launch
from helpers.tests.proof.broken_kernel import Broken
from helpers.tests.proof.broken_kernels import BROKEN, SOURCE, checked
from helpers.tests.proof.sanitizer import VERDICTS

TEXT = """## Planted faults, and who finds them

Each kernel in `broken_*.py` has one fault, in Python and in CUDA. "Found" is an error (of threads
that leave before a barrier, which newer GPUs forgive, a warning on the CPU backend) that names
the faulty line (of a race: both lines), a block and its threads: those of the fault, where these
are the same in every run. A twin that differs in the fault alone passes and is right. Where a race
makes a thread read shared memory that nobody has written yet, the error may say that instead. Under
compute-sanitizer each CUDA kernel ran with each of its four tools, on {machine}; the table names
those that reported an error. Of these, racecheck looks at shared memory alone and initcheck at
global memory alone.

The simulator finds {simulator} of {all}, the CPU backend {cpu_backend}, compute-sanitizer {tools}.

{table}
"""


def table() -> str:
    """Return the part of README.md about faults; runs every kernel on both backends."""
    stored = json.loads(VERDICTS.read_text())
    rows = []
    for name, kernel in BROKEN.items():
        by = [
            found(simulator_says(kernel), kernel.python_lines, python_place(kernel)),
            found(cpu_backend_says(kernel), kernel.cuda_lines(SOURCE), cuda_place(kernel)),
            _sanitizer_found(kernel, stored["verdicts"][name]["broken"]),
        ]
        rows.append([name.removesuffix("_kernel"), kernel.kind, kernel.fault, *by])
    header = ["kernel", "kind", "fault", "simulator", "CPU backend", "compute-sanitizer"]
    lines = [header, ["---"] * len(header), *rows]
    gpu = stored["machine"]
    return TEXT.format(
        machine=f"{gpu['gpu']}, driver {gpu['driver']}, version {gpu['compute-sanitizer']}",
        all=len(rows),
        simulator=sum(row[3] == "found" for row in rows),
        cpu_backend=sum(row[4] == "found" for row in rows),
        tools=sum("check" in row[5] for row in rows),
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
    )


def simulator_says(kernel: Broken) -> str:
    """Return the simulator's first remark or error about the Python kernel; "" if it finds none."""
    arguments = kernel.arguments(RandomState())
    with warnings.catch_warnings(record=True, category=SimulatorWarning) as remarks:
        try:
            launch(kernel.python, kernel.grid, kernel.block, *arguments)
        except SimulatorError as error:
            remarks.append(warnings.WarningMessage(error, None, "", 0))
    return str(remarks[0].message).splitlines()[0] if remarks else ""


def cpu_backend_says(kernel: Broken) -> str:
    """Return the CPU backend's first remark or error about the CUDA kernel; "" if there is none."""
    arguments = kernel.arguments(RandomState())
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        try:
            getattr(checked(), kernel.function)(*arguments)
            said = ""
        except RuntimeError as error:
            said = str(error)
    first = str(remarks[0].message) if remarks else said
    return re.sub(r" \(launched at line \d+\)", "", first)


def python_place(kernel: Broken) -> list[str]:
    """Return patterns of the block and the threads that the simulator has to name."""
    threads = [rf"\b(threads?|lane) {re.escape(str(t))}(?!\d)" for t in kernel.threads]
    block = r"[\d(]" if kernel.in_block is None else rf"{re.escape(str(kernel.in_block))}(?!\d)"
    return [*(threads or [r"\bthread [\d(]"]), rf"\bblock {block}"]


def cuda_place(kernel: Broken) -> list[str]:
    """Return patterns of the block and the threads that the CPU backend has to name."""
    threads = [rf"(thread|the first:) {_index(t)}|\blane {t}(?!\d)" for t in kernel.threads]
    block = r"\(" if kernel.in_block is None else _index(kernel.in_block)
    return [*(threads or [r"\bthread \("]), rf"\bblock {block}"]


def found(message: str, lines: tuple[int, int], place: list[str]) -> str:
    """Say whether a message is about one of two lines, and names the other and the place as well.

    `place` are patterns of the block and the threads.
    """
    if not message:
        return "missed"
    named = [int(line) for line in re.findall(r"\bline (\d+)", message)]
    if named[:1] not in ([lines[0]], [lines[1]]) or not set(lines) <= set(named):
        return "another line"
    is_there = all(re.search(pattern, message) for pattern in place)
    return "found" if is_there else "another block or thread"


def _index(index: int | tuple[int, int]) -> str:
    """Return a pattern of an index as the CPU backend writes it: (3,0,0)."""
    x, y = index if isinstance(index, tuple) else (index, 0)
    return rf"\({x},{y},0\)"


def _sanitizer_found(kernel: Broken, said: dict[str, dict]) -> str:
    """Name the tools that report an error, or say that there is none."""
    lines = kernel.cuda_lines(kernel.cuda)
    tools = [
        tool if set(lines) & set(verdict["lines"]) else f"{tool} (another line)"
        for tool, verdict in said.items()
        if verdict["error"]
    ]
    if any(verdict["hangs"] for verdict in said.values()):
        tools.append("hangs")
    return ", ".join(tools) or "missed"
