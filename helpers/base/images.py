"""Pictures as outputs of a type of their own, PNG or JPEG, that every viewer of notebooks shows.

Each has a light plate behind it, so that it is read alike on a light page and on a dark one. Its
alt text stands in the output's metadata, and as plain text for viewers without images.
"""

import re
from base64 import b64encode
from html import escape
from io import BytesIO

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from helpers.base.palette import CORNER, DPI, INK, MARGIN, PLATE

SHARP = 2  # dots drawn for one that is shown: what fine screens have
ALPHA = [0, 64, 128, 192]  # of the pixels on the edge of a corner
COLOURS = 40  # of a picture's palette: a fifth of the bytes, and no eye sees it
GREYS = 16  # as many where there are images: they hardly compress
PHOTOGRAPH = 128  # rows from which an image within a figure has no flat colours to compress
QUALITY = 50  # of a photograph, up to 100
STYLE = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "patch.edgecolor": INK,
    "figure.facecolor": PLATE,
    "legend.frameon": False,
}


class Picture:
    """A figure and its alt text; shows itself in a notebook, and as the text elsewhere."""

    def __init__(self, figure: Figure, alt: str):
        self.figure = figure
        self.alt = alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        return picture_bundle(self.figure, self.alt)


def set_up_pictures() -> None:
    """In a notebook, let matplotlib's figures have a plate and show themselves as pictures do."""
    from IPython import get_ipython
    from matplotlib import pyplot
    from matplotlib_inline.config import InlineBackend

    shell = get_ipython()
    if shell is None:  # nbval imports ipykernel, too
        return
    matplotlib.rcParams.update(STYLE)
    pyplot.switch_backend(matplotlib.get_backend())  # else the first figure does, with its hook,
    pyplot.uninstall_repl_displayhook()  # which draws each figure once more, for nobody
    InlineBackend.instance(parent=shell).figure_formats = set()
    shell.display_formatter.mimebundle_formatter.for_type(Figure, figure_bundle)


def figure_bundle(figure: Figure) -> tuple[dict, dict]:
    """Return a figure as `picture_bundle`, its label as alt text or else what its axes say."""
    alt = figure.get_label() or "; ".join(filter(None, map(_described, figure.axes))) or "a drawing"
    return picture_bundle(figure, alt)


def picture_bundle(figure: Figure, alt: str) -> tuple[dict, dict]:
    """Return the data and the metadata of an output that shows the figure, whole, on its plate."""
    kind, data, size = _encoded(figure)
    about = dict(zip(("width", "height"), size, strict=True)) | {"alt": alt}
    return {kind: b64encode(data).decode(), "text/plain": alt}, {kind: about}


def picture_html(figure: Figure, alt: str) -> str:
    """Return an <img> of the figure, for a picture that is part of a card in HTML."""
    kind, data, (width, _) = _encoded(figure)
    source = f"data:{kind};base64,{b64encode(data).decode()}"
    return f'<img alt="{escape(alt)}" width="{width}" style="max-width:100%" src="{source}">'


def _encoded(figure: Figure) -> tuple[str, bytes, tuple[int, int]]:
    """Return the type, the bytes and the size on the page, in pixels, of the figure's image."""
    drawn = BytesIO()
    figure.savefig(
        drawn,
        dpi=SHARP * DPI,
        facecolor=PLATE,
        bbox_inches="tight",
        pad_inches=MARGIN,
        pil_kwargs={"compress_level": 0},  # what is shown is compressed below
    )
    image = Image.open(drawn)
    rows = max((len(part.get_array()) for ax in figure.axes for part in ax.images), default=0)
    if rows >= PHOTOGRAPH:
        kind, data = _photograph(image)
    else:
        image = image.convert("RGB")
        kind, data = _png(image.quantize(GREYS).convert("RGB") if rows else image)
    return kind, data, (image.width // SHARP, image.height // SHARP)


def _photograph(image: Image.Image) -> tuple[str, bytes]:
    file = BytesIO()
    image.convert("RGB").save(file, format="jpeg", quality=QUALITY, optimize=True)
    return "image/jpeg", file.getvalue()


def _png(image: Image.Image) -> tuple[str, bytes]:
    """Return a PNG with a palette, transparent beyond the round corners of the plate.

    The palette begins with the most frequent colours as they are: those of surfaces and lines.
    """
    found = sorted(image.getcolors(image.width * image.height), reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, color in found[:COLOURS] for part in color])
    flat = image.quantize(palette=palette, dither=Image.Dither.NONE)
    shape = Image.new("L", image.size)
    box = (0, 0, image.width - 1, image.height - 1)
    ImageDraw.Draw(shape).rounded_rectangle(box, radius=SHARP * CORNER, fill=255)
    index, opaque = np.array(flat), np.array(shape)
    palette = flat.getpalette()[: 3 * COLOURS]
    is_corner = opaque < 255
    index[is_corner] = len(palette) // 3 + opaque[is_corner] // (256 // len(ALPHA))
    whole = Image.fromarray(index, mode="P")
    whole.putpalette(palette + [round(255 * part) for part in to_rgb(PLATE)] * len(ALPHA))
    file = BytesIO()
    alpha = bytes([255] * (len(palette) // 3) + ALPHA)
    whole.save(file, format="png", optimize=True, transparency=alpha)
    return "image/png", file.getvalue()


def _described(ax: Axes) -> str:
    """Return what an axes shows in words: title, axes, the names of its lines, its texts."""
    x, y = ax.get_xlabel(), ax.get_ylabel()
    over = f"{y} over {x}" if x and y else y or x
    legend = ax.get_legend()
    names = [text.get_text() for text in legend.get_texts()] if legend else []
    if not y:
        ticks = [text.get_text() for text in ax.get_yticklabels()]
        names += [name for name in ticks if re.search("[A-Za-z]", name)]
    texts = [] if over else [text.get_text() for text in ax.texts][:40]
    parts = [ax.get_title(), over, ", ".join(names), " ".join(texts)]
    return ": ".join(" ".join(part.split()) for part in parts if part.strip())
