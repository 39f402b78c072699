"""Matrices as squares with numbers in them, as SVG."""

from dataclasses import dataclass, field
from html import escape

from helpers.base.palette import ALARM, CORNER, INK, PLATE


@dataclass
class Drawing:
    """Boxes and texts in pixels, y from the top, in the order in which they lie on each other."""

    width: int
    height: int
    boxes: list[tuple] = field(default_factory=list)
    texts: list[tuple] = field(default_factory=list)  # above all boxes

    def box(
        self, x: int, y: int, w: int, h: int, fill="none", line="none", thick=1, dashed="", side=0
    ) -> None:
        """Add a box; `dashed` is the lengths of its dashes and gaps, "14 7".

        With a `side` it is divided into squares.
        """
        self.boxes.append((x, y, w, h, fill, line, thick, dashed, side or max(w, h)))

    def text(self, x: float, y: float, text: str, size: int, color: str = "black") -> None:
        """Add a text `size` pixels high, its middle there."""
        self.texts.append((x, y, text, size, color))

    def svg(self) -> str:
        """Return the whole as SVG on a plate."""
        parts = [f"<rect width='100%' height='100%' rx='{CORNER}' fill='{PLATE}'/>"]
        for x, y, w, h, fill, line, thick, dashed, side in self.boxes:
            style = f"fill='{fill}' stroke='{line}' stroke-width='{thick}'"
            dashes = f" stroke-dasharray='{dashed}'" if dashed else ""
            inner = [f"M{x} {y + at}h{w}" for at in range(side, h, side)]
            inner += [f"M{x + at} {y}v{h}" for at in range(side, w, side)]
            parts.append(f"<path {style}{dashes} d='M{x} {y}h{w}v{h}h{-w}z{''.join(inner)}'/>")
        for x, y, text, size, color in self.texts:
            place = f"x='{x:g}' y='{y + 0.36 * size:g}' font-size='{size}' fill='{color}'"
            parts.append(f"<text {place}>{escape(text)}</text>")
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{self.width}' height='{self.height}' "
            f"viewBox='0 0 {self.width} {self.height}' text-anchor='middle' "
            f"font-family='DejaVu Sans, Arial, sans-serif'>{''.join(parts)}</svg>"
        )


@dataclass
class Squares:
    """A matrix of `shape` (rows, columns) in squares of `side` pixels, its corner at x, y.

    A part of it is given as top, left, bottom, right in rows and columns, the last two exclusive.
    """

    drawing: Drawing
    x: int
    y: int
    side: int
    shape: tuple[int, int]

    def fill(self, color: str, top: int, left: int, bottom: int, right: int) -> None:
        """Colour a part."""
        self.drawing.box(*self._around(top, left, bottom, right), fill=color)

    def frame(self, top: int, left: int, bottom: int, right: int) -> None:
        """Draw a thick frame around a part."""
        self.drawing.box(*self._around(top, left, bottom, right), line="black", thick=3)

    def draw(self, title: str, numbers: dict, below: dict | None = None) -> None:
        """Draw squares, a title, by row and column the numbers, and below these small texts."""
        rows, cols = self.shape
        self.drawing.box(*self._around(0, 0, rows, cols), line="#777777", side=self.side)
        self.drawing.text(self.x + cols * self.side / 2, self.y - 13, title, 14, INK)
        size = max(round(0.4 * self.side), 13)
        for (row, col), number in numbers.items():
            x, y = self.x + (col + 0.5) * self.side, self.y + (row + 0.5) * self.side
            self.drawing.text(x, y - (0.14 * self.side if below else 0), f"{number:g}", size)
            if below:
                self.drawing.text(x, y + 0.26 * self.side, below[row, col], 13)

    def _around(self, top: int, left: int, bottom: int, right: int) -> tuple[int, int, int, int]:
        x, y = self.x + left * self.side, self.y + top * self.side
        return x, y, (right - left) * self.side, (bottom - top) * self.side


def barrier(drawing: Drawing, left: int, top: int, right: int, bottom: int) -> None:
    """Draw a dashed frame that says barrier, with its corners there."""
    frame = {"line": ALARM, "thick": 5, "dashed": "14 7"}
    drawing.box(left, top, right - left, bottom - top, **frame)
    drawing.text(left + 60, top + 38, "barrier", 18, ALARM)
