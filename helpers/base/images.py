"""Pictures as HTML: JupyterLab takes an alt text from there alone.

They are transparent, with text and lines in a grey that is seen on white and on black, so that they
suit a light and a dark page.
"""

import re
from base64 import b64encode
from html import escape
from io import BytesIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from helpers.base.palette import INK

SHARP = 2  # dots drawn for one that is shown: what fine screens have
COLOURS = 256  # of a picture's palette: a third of the bytes, and no eye sees it
PHOTOGRAPH = 128  # rows from which an image within a figure has no flat colours to compress
QUALITY = 80  # of a photograph, up to 100
STYLE = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "patch.edgecolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}


def set_up_pictures() -> None:
    """In a notebook, let matplotlib's figures suit its theme and show themselves by figure_html."""
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
    shell.display_formatter.formatters["text/html"].for_type(Figure, figure_html)


def figure_html(figure: Figure) -> str:
    """Return the <img> of a figure, with its label as alt text or else what its axes say."""
    alt = figure.get_label() or "; ".join(filter(None, map(_described, figure.axes))) or "a drawing"
    return image_html(figure, alt, figure.dpi)


def image_html(figure: Figure, alt: str, dpi: float) -> str:
    """Return an <img> of the figure, whole, that is shown with so many dots an inch."""
    drawn = BytesIO()
    figure.savefig(
        drawn,
        dpi=SHARP * dpi,
        transparent=True,
        bbox_inches="tight",
        pil_kwargs={"compress_level": 0},  # what is shown is compressed below
    )
    image = Image.open(drawn)
    kind, data = _photograph(image) if _has_photograph(figure) else _png(image)
    source = f"data:image/{kind};base64,{b64encode(data).decode()}"
    size = f'width="{image.width // SHARP}" style="max-width:100%"'
    return f'<img alt="{escape(alt)}" {size} src="{source}">'


def _has_photograph(figure: Figure) -> bool:
    images = [image.get_array() for ax in figure.axes for image in ax.images]
    return any(len(image) >= PHOTOGRAPH for image in images)


def _photograph(image: Image.Image) -> tuple[str, bytes]:
    file = BytesIO()
    image.save(file, format="webp", quality=QUALITY, method=5)  # 6: a tenth of the speed, 2 % less
    return "webp", file.getvalue()


def _png(image: Image.Image) -> tuple[str, bytes]:
    """Return a PNG with a palette."""
    file = BytesIO()
    flat = image.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    flat.save(file, format="png", optimize=True)
    return "png", file.getvalue()


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
