"""The card of an exercise or a prediction: as text, and as HTML for light and dark themes."""

import math
from dataclasses import dataclass
from html import escape

from helpers.base.gpu import WARP_SIZE
from helpers.base.palette import COLORS, INK
from helpers.base.svg import svg_image

MARKS = {"to do": "○", "wrong": "✗", "right": "●", "guessed": "●", "revealed": "●"}
_, _, RIGHT, _, CALM, WRONG, _ = COLORS
FONT_SIZE = 11
CELL = 8  # pixels, of a thread or block in a picture
MOST_ROWS = 32


@dataclass(frozen=True)
class Card:
    """A task's name, its state (a key of MARKS) and what there is to say about it.

    `picture` is an <img>; `hint` stands below it.
    """

    name: str
    state: str
    text: str = ""
    picture: str = ""
    hint: str = ""

    def __repr__(self) -> str:
        lines = [f"{MARKS[self.state]} {self.name}: {self.text or self.state}"]
        if self.hint:
            lines.append(f"  Hint: {self.hint}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colour = {"to do": INK, "wrong": WRONG}.get(self.state, RIGHT)
        style = f"border-left:4px solid {colour};padding:2px 0 2px 10px"
        head = f"<b>{MARKS[self.state]} {escape(self.name)}</b>: {self.state}"
        body = ""
        if self.text:
            body = f'<div style="white-space:pre-wrap">{escape(self.text)}</div>'
        hint = f"<div><i>Hint:</i> {escape(self.hint)}</div>" if self.hint else ""
        return f'<div style="{style}">{head}{body}{self.picture}{hint}</div>'


def thread_picture(grid, block, block_index, thread) -> str:
    """Return a picture of a launch, its block and the block's threads, with one of each marked.

    The arguments are tuples of three: gridDim, blockDim, blockIdx, threadIdx. Threads stand in rows
    of blockDim.x, or of a warp where the block has one row.
    """
    number = thread[0] + block[0] * (thread[1] + block[1] * thread[2])
    words = (
        f"block {_index(block_index, grid)} of {_times(grid)}, thread {_index(thread, block)} of "
        f"{_times(block)}: warp {number // WARP_SIZE}, lane {number % WARP_SIZE}"
    )
    blocks, width = _cells(grid, block_index, 0)
    threads, right = _cells(block, thread, width + 2 * CELL)
    height = 18 + max(_rows(grid), _rows(block)) * CELL
    drawn = f'<text x="0" y="11">{words}</text><g transform="translate(0,18)">{blocks}{threads}</g>'
    return svg_image(words, max(right, 420), height, drawn, FONT_SIZE)


def log_scale(guess: float, measured: float, unit: str) -> str:
    """Return a picture of two values on a scale of powers of ten."""
    low = math.floor(math.log10(min(guess, measured)))
    high = max(math.ceil(math.log10(max(guess, measured))), low + 1)
    step = 420 / (high - low)

    def mark(value: float, colour: str, name: str, y: int) -> str:
        x = 20 + step * (math.log10(value) - low)
        return (
            f'<circle cx="{x:.1f}" cy="30" r="5" fill="{colour}"/>'
            f'<text x="{x:.1f}" y="{y}" text-anchor="middle" fill="{colour}">{name}</text>'
        )

    ticks = "".join(
        f'<line x1="{20 + step * i:.1f}" x2="{20 + step * i:.1f}" y1="26" y2="34" '
        f'stroke="{INK}"/><text x="{20 + step * i:.1f}" y="62" text-anchor="middle">'
        f"{10.0 ** (low + i):,g} {escape(unit)}</text>"
        for i in range(high - low + 1)
    )
    line = f'<line x1="20" x2="440" y1="30" y2="30" stroke="{INK}"/>'
    marks = mark(guess, WRONG, "guess", 18) + mark(measured, RIGHT, "measured", 48)
    words = f"guess {guess:,.4g} {unit}, measured {measured:,.4g} {unit}"
    return svg_image(words, 500, 68, line + ticks + marks, FONT_SIZE)


def _layout(shape) -> tuple[int, int]:
    """Return how many cells of a grid or block stand in a row, and in how many rows."""
    cells = shape[0] * shape[1] * shape[2]
    columns = shape[0] if shape[1] * shape[2] > 1 else WARP_SIZE
    columns = min(columns, cells, 2 * WARP_SIZE)
    return columns, -(-cells // columns)


def _rows(shape) -> int:
    return min(_layout(shape)[1], MOST_ROWS)


def _cells(shape, marked, left: int) -> tuple[str, int]:
    """Return the cells of a grid or block, the marked one's rows in view, and their right edge."""
    columns, rows = _layout(shape)
    at = marked[0] + shape[0] * (marked[1] + shape[1] * marked[2])
    first = max(0, min(at // columns - MOST_ROWS // 2, rows - MOST_ROWS))
    parts = []
    cells = shape[0] * shape[1] * shape[2]
    for cell in range(first * columns, min(cells, (first + MOST_ROWS) * columns)):
        x, y = left + cell % columns * CELL, (cell // columns - first) * CELL
        paint = f'fill="{WRONG}"' if cell == at else f'fill="{CALM}" fill-opacity="0.35"'
        parts.append(f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" {paint}/>')
    return "".join(parts), left + columns * CELL


def _index(index, shape) -> str:
    dimensions = max(i for i in range(3) if i == 0 or shape[i] > 1) + 1
    return str(index[0]) if dimensions == 1 else str(tuple(index[:dimensions]))


def _times(shape) -> str:
    return " × ".join(str(size) for i, size in enumerate(shape) if i == 0 or size > 1)
