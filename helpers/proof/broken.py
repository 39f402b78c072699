"""Who finds the planted faults: the simulator, the CPU backend, NVIDIA's compute-sanitizer."""

import json
import re

from numpy.random import RandomState

from helpers.proof.broken_kernel import Broken
from helpers.proof.broken_kernels import BROKEN, SOURCE, checked
from helpers.proof.sanitizer import VERDICTS
from helpers.simulator import SimulatorError, launch

TEXT = """## Planted faults, and who finds them

Each kernel in `broken_*.py` has one fault, in Python and in CUDA. "Found" is an error that names
the faulty line (of a race: both lines), the block and the threads; a twin that differs in that one
thing passes and is right. Where a race makes a thread read shared memory that nobody has written
yet, the error may say that instead. Under compute-sanitizer each CUDA kernel ran with each of its
four tools, on {machine}; the table names those that reported an error. Of these, racecheck looks at
shared memory alone and initcheck at global memory alone.

The simulator finds {simulator} of {all}, the CPU backend {cpu_backend}, compute-sanitizer {tools}.

{table}
"""


def table() -> str:
    """Return the part of README.md about faults; runs every kernel on both backends."""
    stored = json.loads(VERDICTS.read_text())
    rows = []
    for name, kernel in BROKEN.items():
        found = [
            _found(simulator_says(kernel), kernel.python_lines),
            _found(cpu_backend_says(kernel), kernel.cuda_lines(SOURCE)),
            _sanitizer_found(kernel, stored["verdicts"][name]["broken"]),
        ]
        rows.append([name.removesuffix("_kernel"), kernel.kind, kernel.fault, *found])
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
    """Return the simulator's error about the Python kernel; "" if it finds none."""
    arguments = kernel.arguments(RandomState())
    try:
        launch(kernel.python, kernel.grid, kernel.block, *arguments)
    except SimulatorError as error:
        return str(error).splitlines()[0]
    return ""


def cpu_backend_says(kernel: Broken) -> str:
    """Return the CPU backend's error about the CUDA kernel; "" if it finds none."""
    arguments = kernel.arguments(RandomState())
    try:
        getattr(checked(), kernel.function)(*arguments)
    except RuntimeError as error:
        return re.sub(r" \(launched at line \d+\)", "", str(error))
    return ""


def names_the_lines(message: str, lines: tuple[int, int]) -> bool:
    """Whether a message is about one of two lines, and names the other as well."""
    named = [int(line) for line in re.findall(r"\bline (\d+)", message)]
    return named[:1] in ([lines[0]], [lines[1]]) and set(lines) <= set(named)


def _found(message: str, lines: tuple[int, int]) -> str:
    if not message:
        return "missed"
    return "found" if names_the_lines(message, lines) else "another line"


def _sanitizer_found(kernel: Broken, said: dict[str, dict]) -> str:
    """Name the tools that report an error, or say that there is none."""
    lines = kernel.cuda_lines(kernel.cuda)
    tools = [
        tool if set(lines) & set(found["lines"]) else f"{tool} (another line)"
        for tool, found in said.items()
        if found["error"]
    ]
    if any(found["hangs"] for found in said.values()):
        tools.append("hangs")
    return ", ".join(tools) or "missed"
