"""A figure with the words that say the same, and what the pictures of a launch have in common."""

from base64 import b64encode
from html import escape
from io import BytesIO

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from helpers.base.palette import COLORS

BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = COLORS
PALE = "#FBE3B5"  # orange, on which black hatches and numbers are easy to see
WIDTH = 9  # inches: as wide as the text of a notebook
DPI = 144  # of the PNG, which is shown at 96: sharp on a fine screen
LONGEST_TEXT = 46  # characters of a source line in a picture or in HTML


class Picture:
    """A figure and its alt text; shows itself in a notebook, and as the text elsewhere.

    JupyterLab takes an alt text from HTML alone, not from the metadata of an image.
    """

    def __init__(self, figure: Figure, alt: str):
        self.figure = figure
        self.alt = alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        png = BytesIO()
        self.figure.savefig(png, format="png", dpi=DPI, facecolor="white")
        data = b64encode(png.getvalue()).decode()
        width = round(96 * self.figure.get_size_inches()[0])
        source = f"data:image/png;base64,{data}"
        return f'<img alt="{escape(self.alt)}" width="{width}" src="{source}">'


def legend(figure: Figure, patches: list[Patch]) -> None:
    figure.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
