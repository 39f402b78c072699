"""A figure as SVG: its title, its axes one below the other, its legend."""

from html import escape

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

    def subplots(self, rows=1, columns=1, squeeze=True, **_):
        self._axes = [Axes() for _ in range(rows)]
        return self._axes[0] if squeeze else _Column(self._axes)

    def suptitle(self, text, **_):
        self._title = text

    def legend(self, handles, **_):
        self._handles = handles

    def svg(self, alt, dpi):
        """Return the <svg>, `dpi` pixels for an inch; texts have the page's colour."""
        width, height = (round(dpi * inches) for inches in self._size)
        drawn, top = [], 0
        for i, line in enumerate(self._title.split("\n")):
            top += LINE
            weight = ' font-weight="bold"' if i == 0 else ""
            drawn.append(f'<text x="8" y="{top}"{weight}>{escape(line)}</text>')
        monospace = [ax for ax in self._axes if ax.monospace]
        longest = max((len(label) for ax in monospace for _, label in ax.yticks), default=0)
        left = 20 + LETTER * longest if longest else 100
        each = max((height - top - 60 - LINE * len(self._handles) / 3) / len(self._axes), 60)
        for n, ax in enumerate(self._axes):
            room = 26 if ax.title or ax.monospace else 12
            right = 8 if ax.monospace else 70
            drawn.append(ax.svg(left, top + room, width - left - right, each - room))
            top += each + (28 if n + 1 < len(self._axes) else 0)
        top += 52
        x = 8
        for handle in self._handles:
            length = 30 + 6.4 * len(handle.label)
            if x + length > width and x > 8:
                x, top = 8, top + LINE
            drawn.append(handle.box(x, top - 10, 18, 11))
            drawn.append(f'<text x="{x + 24}" y="{top}">{escape(handle.label)}</text>')
            x += length + 12
        return (
            f'<div class="picture"><svg role="img" aria-label="{escape(alt)}" width="{width}" '
            f'height="{top + 8:.0f}" viewBox="0 0 {width} {top + 8:.0f}" font-size="12" '
            f'fill="currentColor"><defs>{HATCHES}</defs>{"".join(drawn)}</svg></div>'
        )


class _Column:
    """Rows of axes of one column: axes[:, 0] lists them."""

    def __init__(self, axes):
        self._axes = axes

    def __getitem__(self, _):
        return self._axes
