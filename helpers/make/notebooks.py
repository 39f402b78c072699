"""Run notebooks without a browser and write what they show as pages: `make run`, `make run NB=03`.

The notebooks themselves stay as they are.
"""

import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from helpers.base.machine import ROOT
from helpers.make.kernels import notebook_paths
from helpers.make.site.runs import RUNS, Run, write_run

CELL_LIMIT_S = 1200
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run_notebook(path: Path, folder: Path = RUNS) -> bool:
    """Run one notebook with a line for each cell; return whether every cell ran."""
    notebook = nbformat.read(path, as_version=4)
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    started: dict[int, float] = {}

    def on_start(cell, cell_index):
        started[cell_index] = time.perf_counter()

    def on_done(cell, cell_index, execute_reply):
        seconds = time.perf_counter() - started[cell_index]
        place = f"{code.index(cell_index) + 1:3}/{len(code)}"
        print(f"  {place} {seconds:6.1f} s  {_title(cell)}", flush=True)

    client = NotebookClient(
        notebook,
        timeout=CELL_LIMIT_S,
        kernel_name="python3",
        coalesce_streams=True,  # "Building … 4 s" comes in two parts
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_start=on_start,
        on_cell_executed=on_done,
    )
    print(path.name, flush=True)
    begin = time.perf_counter()
    failure = None
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        failure = error
    seconds = time.perf_counter() - begin

    last = max(started, default=0) + 1
    run = Run(path.stem, seconds, last if failure else None)
    page = write_run(folder, path, notebook, run)
    if failure is None:
        print(f"  ran in {seconds:.1f} s: {_short(page)}", flush=True)
    else:
        print(ANSI.sub("", str(failure)).rstrip())
        print(f"  stopped after {seconds:.1f} s in cell {last}: {_short(page)}", flush=True)
    return failure is None


def choose(words: list[str], paths: list[Path]) -> list[Path]:
    """Return the notebooks whose names begin with one of the words (3 is 03); all for no words.

    A number stands for the one notebook that has it, if there is one: 7 is 07, not 07b.
    Raises ValueError naming the notebooks there are if a word fits none.
    """
    chosen = []
    for word in words:
        number = re.fullmatch("([0-9]+)([a-z]*)", word)
        begin = number[1].zfill(2) + number[2] if number else word
        found = [path for path in paths if path.name.startswith(begin + "_")]
        found = found or [path for path in paths if path.name.startswith(begin)]
        if not found:
            raise ValueError(f"No notebook begins with {begin}; there are:\n" + _names(paths))
        chosen += found
    return chosen or paths


def _title(cell) -> str:
    """Return the first line of a cell that is not blank, cut to fit beside the time."""
    line = next((line for line in cell.source.splitlines() if line.strip()), "(empty)")
    return line if len(line) <= 70 else line[:69] + "…"


def _names(paths: list[Path]) -> str:
    return "\n".join(f"  {path.stem}" for path in paths)


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def main(words: list[str]) -> int:
    try:
        chosen = choose(words, notebook_paths())
    except ValueError as error:
        print(error)
        return 2
    failed = [path for path in chosen if not run_notebook(path)]
    print(f"All that ran: {_short(RUNS / 'index.html')}")
    if failed:
        print("These stopped with an error:\n" + _names(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
