"""Matrices as squares with numbers in them, in SVG."""

from dataclasses import dataclass
from html import escape

from helpers.base.palette import INK
from helpers.trace.colours import VERMILION


@dataclass
class Squares:
    """A matrix of `shape` (rows, columns) in squares of `side` pixels, its corner at x, y.

    A part of it is given as top, left, bottom, right in rows and columns, the last two exclusive.
    """

    x: int
    y: int
    side: int
    shape: tuple[int, int]

    def fill(self, color: str, top: int, left: int, bottom: int, right: int) -> str:
        """Colour a part."""
        return f"<path fill='{color}' d='{self._around(top, left, bottom, right)}'/>"

    def frame(self, top: int, left: int, bottom: int, right: int) -> str:
        """Draw a thick frame around a part."""
        around = self._around(top, left, bottom, right)
        return f"<path fill='none' stroke='black' stroke-width='3' d='{around}'/>"

    def draw(self, title: str, numbers: dict, below: dict | None = None) -> str:
        """Draw squares, a title, by row and column the numbers, and below these small texts."""
        rows, cols = self.shape
        size = round(0.4 * self.side)
        lines = [f"M{self.x} {self.y + i * self.side}h{cols * self.side}" for i in range(rows + 1)]
        lines += [f"M{self.x + i * self.side} {self.y}v{rows * self.side}" for i in range(cols + 1)]
        parts = [
            f"<path stroke='#777' d='{''.join(lines)}'/>",
            _text(self.x + cols * self.side / 2, self.y - 9, title, 13, INK),
        ]
        for (row, col), number in numbers.items():
            x, y = self.x + (col + 0.5) * self.side, self.y + (row + 0.5) * self.side
            parts.append(_text(x, y + (0 if below else 0.36 * size), f"{number:g}", size))
            if below:
                parts.append(_text(x, y + 0.32 * self.side, below[row, col], 11))
        return "".join(parts)

    def _around(self, top: int, left: int, bottom: int, right: int) -> str:
        x, y = self.x + left * self.side, self.y + top * self.side
        across = (right - left) * self.side
        return f"M{x} {y}h{across}v{(bottom - top) * self.side}h{-across}z"


def barrier(left: int, top: int, right: int, bottom: int) -> str:
    """Draw a dashed frame that says barrier, with its corners there."""
    around = f"M{left} {top}H{right}V{bottom}H{left}z"
    style = f"fill='none' stroke='{VERMILION}' stroke-width='5' stroke-dasharray='14 7'"
    return f"<path {style} d='{around}'/>" + _text(left + 60, top + 44, "barrier", 18, VERMILION)


def svg(width: int, height: int, parts: list[str]) -> str:
    """Return a whole image, transparent."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' font-family='DejaVu Sans, Arial, sans-serif' text-anchor='middle'>"
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, size: int, color: str = "black") -> str:
    place = f"x='{x:g}' y='{y:g}' font-size='{size}' fill='{color}'"
    return f"<text {place}>{escape(text)}</text>"
