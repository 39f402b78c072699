"""A figure with the words that say the same, and what the pictures of a launch have in common."""

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from helpers.base.images import image_html

WIDTH = 9  # inches: as wide as the text of a notebook
DPI = 96  # dots an inch as a browser shows them


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
        return image_html(self.figure, self.alt, DPI)


def legend(figure: Figure, patches: list[Patch]) -> None:
    figure.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
