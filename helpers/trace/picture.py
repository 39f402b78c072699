"""What the pictures of a launch have in common."""

from matplotlib.figure import Figure
from matplotlib.patches import Patch

WIDTH = 9  # inches: as wide as the text of a notebook


def legend(figure: Figure, patches: list[Patch]) -> None:
    figure.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
