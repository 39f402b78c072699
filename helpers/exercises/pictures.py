"""The pictures on cards: the thread that a run stopped at, a guess beside what was measured."""

import math

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.base.gpu import WARP_SIZE
from helpers.base.images import picture_html
from helpers.base.palette import ALARM, COLORS, DPI, INK

CALM = "#BFDDF0"
CELL = 8  # pixels, of a thread or block in a picture
MOST_ROWS = 32


def thread_picture(grid, block, block_index, thread) -> str:
    """Return a picture of a launch, its block and the block's threads, with one of each marked.

    The arguments are tuples of three: gridDim, blockDim, blockIdx, threadIdx. Threads stand in rows
    of blockDim.x, or of a warp where the block has one row.
    """
    return picture_html(*draw_thread(grid, block, block_index, thread))


def draw_thread(grid, block, block_index, thread) -> tuple[Figure, str]:
    """Return the figure of `thread_picture`, and what it shows in words."""
    number = thread[0] + block[0] * (thread[1] + block[1] * thread[2])
    words = (
        f"block {_index(block_index, grid)} of {_times(grid)}, thread {_index(thread, block)} of "
        f"{_times(block)}: warp {number // WARP_SIZE}, lane {number % WARP_SIZE}"
    )
    width = _layout(grid)[0] + 2 + _layout(block)[0]
    height = max(_rows(grid), _rows(block))
    figure = Figure(figsize=(max(width * CELL, 430) / DPI, (height * CELL + 22) / DPI))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, figure.get_figwidth() * DPI / CELL), ylim=(height, -22 / CELL))
    ax.set_axis_off()
    ax.text(0, -1, words, fontsize=9, va="bottom")
    _draw_cells(ax, grid, block_index, 0)
    _draw_cells(ax, block, thread, _layout(grid)[0] + 2)
    return figure, words


def log_scale(guess: float, measured: float, unit: str) -> str:
    """Return a picture of two values on a scale of powers of ten."""
    return picture_html(*draw_scale(guess, measured, unit))


def draw_scale(guess: float, measured: float, unit: str) -> tuple[Figure, str]:
    """Return the figure of `log_scale`, and what it shows in words."""
    low = math.floor(math.log10(min(guess, measured)))
    high = max(math.ceil(math.log10(max(guess, measured))), low + 1)
    figure = Figure(figsize=(5, 0.75))
    ax = figure.add_axes((0.05, 0, 0.9, 1))
    ax.set(xlim=(low, high), ylim=(-1.5, 1))
    ax.set_axis_off()
    ax.plot([low, high], [0, 0], color=INK, lw=1)
    for power in range(low, high + 1):
        ax.plot([power, power], [-0.15, 0.15], color=INK, lw=1)
    for power in range(low, high + 1, -((low - high) // 6)):  # as many as there is room for
        name = f"{10.0**power:,.15g} {unit}"
        ax.text(power, -1.1, name, ha="center", va="center", fontsize=9, parse_math=False)
    marks = (("guess", guess, ALARM, 0.6), ("measured", measured, COLORS[0], -0.55))
    for name, value, colour, y in marks:
        x = math.log10(value)
        ax.plot(x, 0, "o", color=colour, ms=8, clip_on=False)
        ax.text(x, y, name, ha="center", va="center", fontsize=9, color=colour)
    return figure, f"guess {guess:,.4g} {unit}, measured {measured:,.4g} {unit}"


def _layout(shape) -> tuple[int, int]:
    """Return how many cells of a grid or block stand in a row, and in how many rows."""
    cells = shape[0] * shape[1] * shape[2]
    columns = shape[0] if shape[1] * shape[2] > 1 else WARP_SIZE
    columns = min(columns, cells, 2 * WARP_SIZE)
    return columns, -(-cells // columns)


def _rows(shape) -> int:
    return min(_layout(shape)[1], MOST_ROWS)


def _draw_cells(ax: Axes, shape, marked, left: int) -> None:
    """Draw the cells of a grid or block, the marked one's rows in view."""
    columns, _ = _layout(shape)
    at = marked[0] + shape[0] * (marked[1] + shape[1] * marked[2])
    first = max(0, min(at // columns - MOST_ROWS // 2, _layout(shape)[1] - MOST_ROWS))
    cells = shape[0] * shape[1] * shape[2]
    shown = range(first * columns, min(cells, (first + MOST_ROWS) * columns))
    boxes = [Rectangle((left + i % columns, i // columns - first), 0.88, 0.88) for i in shown]
    colours = [ALARM if i == at else CALM for i in shown]
    ax.add_collection(PatchCollection(boxes, facecolors=colours, linewidths=0))


def _index(index, shape) -> str:
    dimensions = max(i for i in range(3) if i == 0 or shape[i] > 1) + 1
    return str(index[0]) if dimensions == 1 else str(tuple(index[:dimensions]))


def _times(shape) -> str:
    return " × ".join(str(size) for i, size in enumerate(shape) if i == 0 or size > 1)
