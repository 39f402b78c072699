"""What the pictures of a launch have in common."""

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from helpers.base.palette import COLORS

BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = COLORS
PALE = "#FBE3B5"  # orange, on which black hatches and numbers are easy to see
WIDTH = 9  # inches: as wide as the text of a notebook
LONGEST_TEXT = 46  # characters of a source line in a picture or in HTML


def legend(figure: Figure, patches: list[Patch]) -> None:
    figure.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
