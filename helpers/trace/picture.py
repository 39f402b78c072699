"""What the pictures of a launch have in common, and a drawing of squares as a figure."""

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from helpers.base.palette import DPI
from helpers.trace.squares import Drawing

WIDTH = 9  # inches: as wide as the text of a notebook
POINTS = 72 / DPI  # of a pixel


def legend(figure: Figure, patches: list[Patch]) -> None:
    figure.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)


def figure_of(drawing: Drawing) -> Figure:
    """Return what `drawing.svg()` shows as a figure."""
    figure = Figure(figsize=(drawing.width / DPI, drawing.height / DPI))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    ax.set_axis_off()
    for x, y, w, h, fill, line, thick, dashed, side in drawing.boxes:
        dashes = (0, [float(part) / thick for part in dashed.split()]) if dashed else "-"
        style = {"fc": fill, "ec": line, "lw": thick * POINTS, "ls": dashes}
        ax.add_patch(Rectangle((x, y), w, h, **style))
        ax.hlines(range(y + side, y + h, side), x, x + w, color=line, lw=style["lw"])
        ax.vlines(range(x + side, x + w, side), y, y + h, color=line, lw=style["lw"])
    for x, y, text, size, color in drawing.texts:
        place = {"ha": "center", "va": "center", "fontsize": size * POINTS, "color": color}
        ax.text(x, y, text, **place)
    return figure
