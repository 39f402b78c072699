"""A thing to play with: a few controls, a drawing, and a sentence of numbers below it.

Python works out the drawing and the sentence for every position of the controls. The script only
looks them up and draws. It makes the controls too, so that viewers that allow no scripts show
nothing dead: they have a picture, and the sentence, of where the controls begin.
"""

import itertools
import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from helpers.trace.squares import Drawing

PLAYER = Path(__file__).with_name("player.js")


@dataclass(frozen=True)
class Control:
    """A choice of values, as a menu, or as a slider where they are in an order."""

    label: str
    values: Sequence[Any]
    shown: Sequence[str]  # what the reader sees of each value
    start: int = 0  # where it stands at first
    slides: bool = False


@dataclass(frozen=True)
class Scene:
    """What is seen at one position of the controls.

    The drawings lie on each other. They and the pieces of the sentence are stored once, however
    many positions share them.
    """

    drawings: Sequence[Drawing]
    pieces: Sequence[str]

    @property
    def drawing(self) -> Drawing:
        """All drawings in one."""
        whole = Drawing(self.drawings[0].width, self.drawings[0].height)
        for drawing in self.drawings:
            whole.boxes += drawing.boxes
            whole.texts += drawing.texts
        return whole

    @property
    def sentence(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Thing:
    """Shows itself with its controls where scripts run, elsewhere as a picture with its words."""

    title: str
    controls: Sequence[Control]
    scene_at: Callable[..., Scene]  # takes a value of each control

    def __repr__(self) -> str:
        return f"{self.title}: {self.start.sentence}"

    def _ipython_display_(self) -> None:
        # Not before it shows itself: for the numbers NumPy is enough.
        from IPython.display import display

        from helpers.base.images import Picture
        from helpers.trace.picture import figure_of

        display(Picture(figure_of(self.start.drawing), f"{self.title}: {self.start.sentence}"))
        display({"text/html": self.html(), "text/plain": repr(self)}, raw=True)

    @cached_property
    def start(self) -> Scene:
        """What is seen at first."""
        return self.scene_at(*(control.values[control.start] for control in self.controls))

    @cached_property
    def scenes(self) -> list[Scene]:
        """What is seen at every position; the last control moves fastest."""
        every = itertools.product(*(control.values for control in self.controls))
        return [self.scene_at(*values) for values in every]

    def html(self) -> str:
        """Return the title, the sentence, and the script that makes the rest."""
        data = {
            "controls": [
                [control.label, list(control.shown), control.start, control.slides]
                for control in self.controls
            ],
            "frame": _frame(self.start.drawing),
            **_tables(self.scenes),
        }
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        packed = b64encode(zlib.compress(text.encode(), 9)).decode()
        script = PLAYER.read_text(encoding="utf-8").replace("PACKED", packed)
        return (
            f"<div><b>{escape(self.title)}</b><p>{escape(self.start.sentence)}</p>"
            f"<p><small>The controls are there where scripts run: in JupyterLab, and on the "
            f"course's site.</small></p><script>{script}</script></div>"
        )


def _frame(drawing: Drawing) -> list[str]:
    """Return what stands before and behind the boxes and texts of each drawing, as SVG."""
    empty = Drawing(drawing.width, drawing.height).svg()
    return [empty.removesuffix("</svg>"), "</svg>"]


def _tables(scenes: Sequence[Scene]) -> dict:
    """Return all scenes as tables of what they share.

    `boxes` and `texts` are all of a box or a text but its place and its words; `layers` the
    drawings: which boxes, their x, their y, the same of texts, and the words. Places are
    differences from the one before, which compress. A scene is which layers and which pieces.
    """
    boxes, texts, layers, pieces = _Table(), _Table(), _Table(), _Table()
    found = []
    for scene in scenes:
        numbers = []
        for drawing in scene.drawings:
            b = [(boxes.number(box[2:]), box[0], box[1]) for box in drawing.boxes]
            t = [(texts.number(text[3:]), text[0], text[1], text[2]) for text in drawing.texts]
            kinds, xs, ys = zip(*b, strict=True) if b else ((), (), ())
            text_kinds, text_xs, text_ys, words = zip(*t, strict=True) if t else ((), (), (), ())
            row = (kinds, _steps(xs), _steps(ys), text_kinds, _steps(text_xs), _steps(text_ys))
            numbers.append(layers.number((*row, words)))
        found.append([numbers, [pieces.number(piece) for piece in scene.pieces]])
    return {
        "boxes": boxes.rows,
        "texts": texts.rows,
        "layers": layers.rows,
        "pieces": pieces.rows,
        "scenes": found,
    }


class _Table:
    """Rows, each of them once."""

    def __init__(self):
        self._numbers: dict = {}

    def number(self, row) -> int:
        return self._numbers.setdefault(row, len(self._numbers))

    @property
    def rows(self) -> list:
        return list(self._numbers)


def _steps(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(b - a for a, b in itertools.pairwise((0, *values)))
