"""Training while it runs: one picture that renews itself."""

import math
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from io import BytesIO

import torch
from PIL import Image

from helpers.base.palette import COLORS, INK
from helpers.base.svg import svg_image

PAUSE_S = 1.0  # between two pictures
WIDTH, HEIGHT, LEFT, BELOW = 560, 150, 40, 20  # pixels: the curve, room for its numbers
DIGIT = 40  # pixels: an image is shown so wide
MEAN_OF = 20  # steps that make a point of the curve


class LiveTraining:
    """Shows the losses so far, images with what is read in them, and the seconds left.

    `read()` returns images (n, height, width), bytes, with their labels and what the network reads,
    two lists. A picture is drawn at most once a second, and seldom enough to take no more than a
    fiftieth of the time. In a notebook it stands in one place and renews itself; elsewhere lines
    are printed.
    """

    def __init__(self, name: str, steps: int, read: Callable[[], tuple]):
        self.name, self.steps, self.read = name, steps, read
        self.began = time.perf_counter()
        self.next = self.began + PAUSE_S
        self.show = _display()

    def update(self, losses: Sequence[torch.Tensor]) -> None:
        """Renew the picture if it is time to, or if these losses are those of all the steps."""
        begin = time.perf_counter()
        if begin < self.next and len(losses) < self.steps:
            return
        curve = torch.stack(list(losses)).detach().cpu()
        seconds = time.perf_counter() - self.began
        self.show(_Picture(self.name, self.steps, seconds, curve, *self.read()))
        end = time.perf_counter()
        self.next = end + max(PAUSE_S, 50 * (end - begin))


class _Picture:
    """One state of a training, as a line of text and as a picture."""

    def __init__(self, name, steps, seconds, losses, images, labels, guesses):
        self.steps = steps
        self.images, self.labels, self.guesses = images, labels, guesses
        done = len(losses)
        left = seconds * (steps - done) / done
        clock = f"{left:,.0f} s left" if done < steps else f"done in {seconds:,.1f} s"
        whole = losses[: done // MEAN_OF * MEAN_OF].view(-1, MEAN_OF)
        self.points = whole.mean(1)
        loss = losses[-MEAN_OF:].mean()
        self.words = f"{name}: step {done:,} of {steps:,}, loss {loss:.3g}, {clock}"

    def __repr__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        read = f"; {len(self.images)} images read as {' '.join(map(str, self.guesses))}"
        height = HEIGHT + BELOW + DIGIT + 45
        drawn = (
            f'<text x="{LEFT}" y="12">{escape(self.words)}</text>'
            f'<g transform="translate({LEFT},20)">{self._curve()}</g>'
            f'<g transform="translate({LEFT},{20 + HEIGHT + BELOW})">{self._digits()}</g>'
        )
        return svg_image(self.words + read, LEFT + WIDTH + 10, height, drawn, 12)

    def _curve(self) -> str:
        """Return the losses on a scale of powers of ten; those that are no numbers are left out."""
        logs = self.points.double().clamp(min=1e-6).log10().tolist()
        known = [(i, log) for i, log in enumerate(logs) if math.isfinite(log)]
        low = math.floor(min((log for _, log in known), default=0))
        high = max(math.ceil(max((log for _, log in known), default=0)), low + 1)

        def y(log: float) -> float:
            return HEIGHT * (high - log) / (high - low)

        lines = "".join(
            f'<line x2="{WIDTH}" y1="{y(power):.0f}" y2="{y(power):.0f}" stroke="{INK}" '
            f'opacity=".3"/><text x="-6" y="{y(power) + 4:.0f}" text-anchor="end">'
            f"{10.0**power:g}</text>"
            for power in range(low, high + 1)
        )
        width = WIDTH * MEAN_OF / self.steps  # of a point
        points = " ".join(f"{width * (i + 1):.1f},{y(log):.1f}" for i, log in known)
        return (
            f'{lines}<polyline points="{points}" fill="none" stroke="{COLORS[0]}" '
            f'stroke-width="2"/><text y="{HEIGHT + 14}">loss, mean of {MEAN_OF} steps</text>'
            f'<text x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">step {self.steps:,}</text>'
        )

    def _digits(self) -> str:
        """Return the images in a row, below each what is read, vermilion where that is wrong."""
        count, height, width = self.images.shape
        row = self.images.cpu().permute(1, 0, 2).reshape(height, count * width).numpy()
        file = BytesIO()
        Image.fromarray(row).save(file, format="png", optimize=True)
        data = b64encode(file.getvalue()).decode()
        texts = ""
        for i, (label, guess) in enumerate(zip(self.labels, self.guesses, strict=True)):
            wrong = f' fill="{COLORS[5]}" font-weight="bold"' if guess != label else ""
            x = DIGIT * i + DIGIT // 2
            texts += f'<text x="{x}" y="{DIGIT + 16}" text-anchor="middle"{wrong}>{guess}</text>'
        size = f'width="{DIGIT * count}" height="{DIGIT}"'
        return f'<image {size} href="data:image/png;base64,{data}"/>{texts}'


def _display() -> Callable[[_Picture], None]:
    """Return what shows a picture in the place of the one before, in a notebook; or prints it."""
    try:
        from IPython import get_ipython
    except ImportError:  # a script without IPython
        get_ipython = None
    if not (get_ipython and get_ipython()):
        return print
    from IPython.display import display

    handle = None

    def show(picture):
        nonlocal handle
        if handle is None:
            handle = display(picture, display_id=True)
        else:
            handle.update(picture)

    return show
