"""Axes: marks, rectangles and texts, in the coordinates of the data."""

from html import escape

from helpers.base.palette import INK
from matplotlib.patches import painted


class Axes:
    def __init__(self):
        self.parts, self.xlim, self.ylim = [], (0, 1), (0, 1)
        self.xticks, self.yticks = [], []
        self.xlabel = self.ylabel = self.title = ""
        self.spines = Spines()
        self.monospace = False

    def set(self, **values):
        for name, value in values.items():
            setattr(self, name, value)

    def set_xlim(self, *limits):
        self.xlim = limits

    def get_xlim(self):
        return self.xlim

    def set_xlabel(self, text, **_):
        self.xlabel = text

    def set_ylabel(self, text, **_):
        self.ylabel = text

    def set_title(self, text, **_):
        self.title = text

    def set_xticks(self, places, labels=None, **_):
        self.xticks = list(zip(places, map(str, labels or places), strict=True))

    def set_yticks(self, places, labels=None, **_):
        self.yticks = list(zip(places, map(str, labels or places), strict=True))

    def get_yticklabels(self):
        return [_TickLabel(self)]

    def tick_params(self, **_):
        pass

    def grid(self, **_):
        pass

    def set_axisbelow(self, _):
        pass

    def set_axis_off(self):
        pass

    def add_patch(self, patch):
        self.parts.append(patch.svg)

    add_collection = add_patch

    def plot(self, xs, ys, mark, color, **_):
        points = list(zip(xs, ys, strict=True))
        self.parts.append(lambda x, y: "".join(_mark(mark, x(a), y(b), color) for a, b in points))

    def annotate(self, text, place, shift, **_):
        a, b = place
        self.parts.append(lambda x, y: _text(x(a) + shift[0], y(b) - shift[1], text))

    def text(self, a, b, text, ha="left", va="baseline", color=None, bbox=None, **_):
        self.parts.append(lambda x, y: _text(x(a), y(b), text, ha, va, color, bbox))

    def axhline(self, b, **_):
        self.parts.append(lambda x, y: _line(x(self.xlim[0]), y(b), x(self.xlim[1]), y(b)))

    def axvline(self, a, **_):
        self.parts.append(lambda x, y: _line(x(a), y(self.ylim[0]), x(a), y(self.ylim[1])))

    def svg(self, left, top, width, height):
        """Return its parts within a frame of pixels, with ticks and labels outside of it."""
        (x0, x1), (y0, y1) = self.xlim, self.ylim

        def x(value):
            return left + (value - x0) / (x1 - x0) * width

        def y(value):  # a first limit is at the bottom
            return top + height - (value - y0) / (y1 - y0) * height

        drawn = [part(x, y) for part in self.parts]
        for place, label in self.xticks:
            for i, line in enumerate(label.split("\n")):
                drawn.append(_text(x(place), top + height + 14 + 13 * i, line, "center"))
        family = ' font-family="monospace"' if self.monospace else ""
        for place, label in self.yticks:
            at = (0, y(place) + 4) if self.monospace else (left - 6, y(place) + 4)
            anchor = "start" if self.monospace else "end"
            drawn.append(
                f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}"{family} '
                f'xml:space="preserve">{escape(label)}</text>'
            )
        rows = 1 + max((label.count("\n") for _, label in self.xticks), default=0)
        drawn.append(_text(left + width / 2, top + height + 18 + 13 * rows, self.xlabel, "center"))
        if self.title:
            drawn.append(_text(left, top - 4, self.title))
        for i, line in enumerate(self.ylabel.split("\n") if self.ylabel else ()):
            drawn.append(
                f'<text transform="translate({4 + 13 * i},{top + height / 2:.1f}) rotate(-90)" '
                f'text-anchor="middle">{escape(line)}</text>'
            )
        return "".join(drawn)


class Spines:
    def __getitem__(self, _):
        return self

    def set_visible(self, _):
        pass


class _TickLabel:
    def __init__(self, axes):
        self._axes = axes

    def set(self, family=None, **_):
        self._axes.monospace = family == "monospace"


def _text(x, y, text, ha="left", va="baseline", color=None, bbox=None):
    anchor = {"left": "start", "center": "middle", "right": "end"}[ha]
    shift = {"center": 4, "bottom": 0, "baseline": 0}[va]
    colour = f' fill="{color}"' if color else ""
    halo = ' paint-order="stroke" stroke="white" stroke-width="4"' if bbox else ""
    return (
        f'<text x="{x:.1f}" y="{y + shift:.1f}" text-anchor="{anchor}"{colour}{halo}>'
        f"{escape(text)}</text>"
    )


def _line(x0, y0, x1, y1):
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
        f'stroke="{INK}" stroke-width="1.5"/>'
    )


def _mark(mark, x, y, color):
    paint = painted(color, "black", 0.5)
    if mark == "o":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {paint}/>'
    turned = f' transform="rotate(45 {x:.1f} {y:.1f})"' if mark == "D" else ""
    if mark == "^":
        return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z" {paint}/>'
    return f'<rect x="{x - 2.8:.1f}" y="{y - 2.8:.1f}" width="5.6" height="5.6" {paint}{turned}/>'
