"""A figure as SVG on a plate: its title, its axes one below the other, its legend.

Axes that are given their place have no title and no ticks.
"""

from html import escape

from helpers.base.palette import CORNER, DPI, INK, MARGIN, PLATE
from matplotlib.axes import Axes

HATCHES = (
    '<pattern id="hatch-slash" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0V5" stroke="#B06F00"/></pattern>'
    '<pattern id="hatch-backslash" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(-45)"><path d="M0 0V5" stroke="black"/></pattern>'
    '<pattern id="hatch-dots" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<circle cx="2" cy="2" r="0.8"/></pattern>'
    '<pattern id="hatch-cross" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<path d="M0 0L5 5M5 0L0 5" stroke="black" stroke-width="0.7"/></pattern>'
)
LINE = 17  # pixels, of a line of text
LETTER = 7.3  # pixels, of a monospaced letter of 12


class Figure:
    def __init__(self, figsize, **_):
        self._size, self._axes, self._title, self._handles = figsize, [], "", []
        self._placed = []  # axes: left, bottom, width, height as parts of the figure

    def get_figwidth(self):
        return self._size[0]

    def add_axes(self, place):
        self._placed.append((Axes(), place))
        return self._placed[-1][0]

    def subplots(self, rows=1, columns=1, squeeze=True, **_):
        self._axes = [Axes() for _ in range(rows)]
        return self._axes[0] if squeeze else _Column(self._axes)

    def suptitle(self, text, **_):
        self._title = text

    def legend(self, handles, **_):
        self._handles = handles

    def svg(self, alt):
        """Return the <svg>, in the pixels of a page."""
        width, height = (round(DPI * inches) for inches in self._size)
        drawn = [
            ax.svg(x * width, (1 - y - h) * height, w * width, h * height)
            for ax, (x, y, w, h) in self._placed
        ]
        if self._axes:
            parts, height = self._column(width, height)
            drawn += parts
        edge = round(DPI * MARGIN)
        whole = f'width="{width + 2 * edge}" height="{height + 2 * edge}"'
        box = f"{-edge} {-edge} {width + 2 * edge} {height + 2 * edge}"
        return (
            f'<svg role="img" aria-label="{escape(alt)}" {whole} viewBox="{box}" font-size="12" '
            f'fill="{INK}"><defs>{HATCHES}</defs>'
            f'<rect x="{-edge}" y="{-edge}" {whole} rx="{CORNER}" fill="{PLATE}"/>'
            f"{''.join(drawn)}</svg>"
        )

    def _column(self, width, height):
        """Return the parts of title, axes and legend, and the height that they take."""
        drawn, top = [], 0
        for i, line in enumerate(self._title.split("\n")):
            top += LINE
            weight = ' font-weight="bold"' if i == 0 else ""
            drawn.append(f'<text x="0" y="{top}"{weight}>{escape(line)}</text>')
        monospace = [ax for ax in self._axes if ax.monospace]
        longest = max((len(label) for ax in monospace for _, label in ax.yticks), default=0)
        left = 12 + LETTER * longest if longest else 92
        each = max((height - top - 60 - LINE * len(self._handles) / 3) / len(self._axes), 60)
        for n, ax in enumerate(self._axes):
            room = 26 if ax.title or ax.monospace else 12
            right = 0 if ax.monospace else 62
            drawn.append(ax.svg(left, top + room, width - left - right, each - room))
            top += each + (28 if n + 1 < len(self._axes) else 0)
        top += 52
        x = 0
        for handle in self._handles:
            length = 30 + 6.4 * len(handle.label)
            if x and x + length > width:
                x, top = 0, top + LINE
            drawn.append(handle.box(x, top - 10, 18, 11))
            drawn.append(f'<text x="{x + 24}" y="{top}">{escape(handle.label)}</text>')
            x += length + 12
        return drawn, round(top)


class _Column:
    """Rows of axes of one column: axes[:, 0] lists them."""

    def __init__(self, axes):
        self._axes = axes

    def __getitem__(self, _):
        return self._axes
