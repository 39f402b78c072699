"""Whether the texts of a figure can be read: how large they are, and how they contrast."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from helpers.base.palette import DPI, MARGIN, PLATE

PAGE = 973  # pixels that JupyterLab leaves a picture in a window of 1,440, with its file browser
LEAST_PIXELS = 11
LEAST_CONTRAST = 4.5
MOST_COVERED = 0.2  # of a text's ground may be lines, hatches and neighbours


def contrast(a, b):
    """Return the contrast of colours, as WCAG 2 defines it; arrays of them hold RGB last."""
    bright, dark = (
        np.maximum(_luminance(a), _luminance(b)),
        np.minimum(_luminance(a), _luminance(b)),
    )
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color):
    parts = np.asarray(color, dtype=float)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def illegible(figure: Figure) -> list[str]:
    """Return a sentence for each text that is too small on a page or too like its ground."""
    drawn, ground = _without_glyphs(figure)
    tight = figure.get_tightbbox(figure.canvas.get_renderer())
    shown = min(1.0, PAGE / (DPI * (tight.width + 2 * MARGIN)))
    found = []
    for text, box in drawn:
        words = text.get_text()
        pixels = shown * DPI * text.get_fontsize() / 72
        if pixels < LEAST_PIXELS:
            found.append(f"{words!r} is {pixels:.1f} pixels high")
        height = len(ground)
        y0, y1 = int(height - box.y1), int(np.ceil(height - box.y0))
        behind = ground[max(y0, 0) : y1, max(int(box.x0), 0) : int(np.ceil(box.x1))]
        if behind.size:
            contrasts = contrast(to_rgb(text.get_color()), behind / 255)
            seen = np.quantile(contrasts, MOST_COVERED)
            if seen < LEAST_CONTRAST:
                found.append(f"{words!r} has a contrast of {seen:.1f}")
    return found


def _without_glyphs(figure: Figure) -> tuple[list, np.ndarray]:
    """Return the texts that are drawn, with their places, and the pixels of all else."""
    canvas = FigureCanvasAgg(figure)
    figure.set(facecolor=PLATE, dpi=DPI)
    drawn, draw = [], Text.draw

    def note(text, renderer):
        if text.get_visible() and text.get_text().strip():
            color = text.get_color()
            drawn.append((text, text.get_window_extent(renderer)))
            text.set_color("none")
            draw(text, renderer)
            text.set_color(color)
        else:
            draw(text, renderer)

    Text.draw = note
    try:
        canvas.draw()
    finally:
        Text.draw = draw
    return drawn, np.asarray(canvas.buffer_rgba())[..., :3]
