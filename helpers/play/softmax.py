"""The online softmax, number by number: the largest so far, and the sum that goes with it."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from helpers.base.palette import ALARM
from helpers.play.thing import Control, Scene, Thing
from helpers.simulator import launch, threadIdx
from helpers.trace.colours import ORANGE, PALE, SKY, YELLOW
from helpers.trace.squares import Drawing

ROWS = {
    "1 3 2 5 4 5 0 2": (1, 3, 2, 5, 4, 5, 0, 2),
    "rising: 0 to 7": (0, 1, 2, 3, 4, 5, 6, 7),
    "falling: 7 to 0": (7, 6, 5, 4, 3, 2, 1, 0),
    "all the same: 4": (4, 4, 4, 4, 4, 4, 4, 4),
}
COLUMNS = 8
THREADS = [1, 2, 4]
LOWEST = -100.0  # stands for the lowest float: 2 to that power is next to nothing
COLOURS = [SKY, ORANGE, YELLOW, PALE]  # of threads

CELL, HIGH = 74, 150  # pixels: a column, and a term of 1
LEFT, TOP = 90, 60
WIDTH, HEIGHT = LEFT + COLUMNS * CELL + 20, TOP + HIGH + 150


@dataclass
class Run:
    """What a run of the kernel on the simulator wrote down, by thread."""

    row: tuple[int, ...]
    reads: list[list[tuple]] = field(default_factory=list)  # column, largest, sum, factor, term
    ends: list[tuple] = field(default_factory=list)  # the row's largest, a thread's rescaled sum

    @property
    def threads(self) -> int:
        return len(self.reads)

    @property
    def steps(self) -> int:
        return len(self.reads[0])


def online_kernel(row, pairs, watch):
    mine, total = LOWEST, 0.0
    for c in range(threadIdx.x, COLUMNS, len(pairs)):
        larger = max(mine, row[c])
        factor, term = 2.0 ** (mine - larger), 2.0 ** (row[c] - larger)
        total = total * factor + term
        mine = larger
        watch(threadIdx.x, c, mine, total, factor, term)
    pairs[threadIdx.x, 0] = mine
    pairs[threadIdx.x, 1] = total


@cache
def online_run(row: tuple[int, ...], threads: int) -> Run:
    """Run the first of the softmax's passes on a row, one block."""
    run = Run(row, [[] for _ in range(threads)])
    pairs = np.zeros((threads, 2), np.float32)

    def watch(thread, *values):
        run.reads[thread].append(values)

    launch(online_kernel, 1, threads, np.array(row, np.float32), pairs, watch)
    largest = max(pairs[:, 0])
    run.ends = [(largest, total * 2.0 ** (mine - largest)) for mine, total in pairs]
    return run


def play_online_softmax() -> Thing:
    """Choose a row and how many threads read it; go through it number by number."""
    steps = range(COLUMNS + 2)
    controls = [
        Control("row", list(ROWS.values()), list(ROWS)),
        Control("threads", THREADS, [f"{n}" for n in THREADS], slides=True),
        Control("step", steps, [f"{step}" for step in steps], 3, slides=True),
    ]
    return Thing("The largest so far, and the sum of powers of 2", controls, softmax_scene)


def softmax_scene(row: tuple[int, ...], threads: int, step: int) -> Scene:
    """Draw the terms of each thread's sum after so many steps; after the last, the row's."""
    run = online_run(row, threads)
    is_end = step > run.steps
    read = min(step, run.steps)
    pairs = [(reads[read - 1][1:3] if read else (None, 0.0)) for reads in run.reads]
    if is_end:
        pairs = [(largest, total) for largest, total in run.ends]
    return Scene([_row(row, threads), _terms(run, pairs, read), _pairs(pairs)], _words(run, step))


def _words(run: Run, step: int) -> list[str]:
    if step == 0:
        return ["Nothing is read yet: each thread has the lowest number there is, and a sum of 0."]
    if step > run.steps:
        total = sum(total for _, total in run.ends)
        grown = sum(read[3] < 1 and read[0] >= run.threads for reads in run.reads for read in reads)
        parts = " + ".join(f"{part:.6g}" for _, part in run.ends)
        once = "" if run.threads == 1 else f" (each thread's, rescaled once: {parts})"
        return [
            f"The row's largest is {run.ends[0][0]:g}, its sum {total:.6g}{once}. Of the "
            f"{COLUMNS - run.threads} reads that were no thread's first, {grown} made a maximum "
            "grow and a sum shrink."
        ]
    said = []
    for thread, reads in enumerate(run.reads):
        column, largest, total, factor, term = reads[step - 1]
        before = reads[step - 2][2] if step > 1 else 0.0
        times = f"{before:.6g} · {factor:.6g}" if step > 1 else "0"
        said.append(
            f"Thread {thread} reads {run.row[column]}: largest {largest:g}, sum {times} + "
            f"{term:.6g} = {total:.6g}."
        )
    return [" ".join(said)]


def _row(row: tuple[int, ...], threads: int) -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT)
    drawing.text(LEFT / 2, TOP - 30, "number", 12)
    drawing.text(LEFT / 2, TOP + HIGH / 2, "term", 12)
    for column, number in enumerate(row):
        x = LEFT + column * CELL
        drawing.box(x, TOP - 46, CELL, 32, "white", "#777777")
        drawing.text(x + CELL / 2, TOP - 30, f"{number}", 14)
    drawing.box(LEFT, TOP, COLUMNS * CELL, HIGH, "white", "#777777")
    return drawing


def _terms(run: Run, pairs: list[tuple], read: int) -> Drawing:
    """Draw what each number that was read is worth in the sum of its thread."""
    drawing = Drawing(WIDTH, HEIGHT)
    for thread in range(run.threads):
        largest = pairs[thread][0]
        for turn, (column, *_) in enumerate(run.reads[thread][:read]):
            term = 2.0 ** (run.row[column] - largest)
            x, height = LEFT + column * CELL + 8, max(round(term * HIGH), 1)
            drawing.box(x, TOP + HIGH - height, CELL - 16, height, COLOURS[thread], "#777777")
            color = ALARM if turn == read - 1 else "black"  # the one that is new
            drawing.text(x + CELL / 2 - 8, TOP + HIGH + 14, f"{term:.4g}", 12, color)
    return drawing


def _pairs(pairs: list[tuple]) -> Drawing:
    """Write below what each thread has."""
    drawing = Drawing(WIDTH, HEIGHT)
    width = COLUMNS * CELL // max(THREADS)
    for thread, (largest, total) in enumerate(pairs):
        x, y = LEFT + thread * width, TOP + HIGH + 40
        drawing.box(x, y, width - 10, 90, COLOURS[thread], "#777777")
        has = "lowest" if largest is None else f"{largest:g}"
        lines = f"thread {thread}", f"largest {has}", f"sum {total:.5g}"
        for line, words in enumerate(lines):
            drawing.text(x + width / 2 - 5, y + 20 + 25 * line, words, 13)
    return drawing
