"""Training while it runs: one picture that renews itself."""

import math
import time
from collections.abc import Callable, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from helpers.base.images import Picture
from helpers.base.palette import ALARM, COLORS

PAUSE_S = 1.0  # between two pictures
WIDTH = 7  # inches
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
        self.show(_picture(self.name, self.steps, seconds, curve, *self.read()))
        end = time.perf_counter()
        self.next = end + max(PAUSE_S, 50 * (end - begin))


def _picture(name, steps, seconds, losses, images, labels, guesses) -> Picture:
    """Draw one state of a training: the losses so far, images, below each what is read in it."""
    done = len(losses)
    left = seconds * (steps - done) / done
    clock = f"{left:,.0f} s left" if done < steps else f"done in {seconds:,.1f} s"
    loss = losses[-MEAN_OF:].mean()
    words = f"{name}: step {done:,} of {steps:,}, loss {loss:.3g}, {clock}"
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    top, below = figure.subplots(2, 1, height_ratios=(5, 2))
    top.set_title(words, fontsize=10, loc="left")
    _draw_curve(top, losses, steps)
    _draw_digits(below, images, labels, guesses)
    read = f"; {len(images)} images read as {' '.join(map(str, guesses))}"
    return Picture(figure, words + read)


def _draw_curve(ax: Axes, losses: torch.Tensor, steps: int) -> None:
    """Draw means of the losses on a logarithmic axis; those that are no numbers are left out."""
    whole = losses[: len(losses) // MEAN_OF * MEAN_OF].view(-1, MEAN_OF)
    means = whole.double().mean(1).clamp(min=1e-6).tolist()
    known = [(MEAN_OF * i, mean) for i, mean in enumerate(means, 1) if math.isfinite(mean)]
    ax.plot(*zip(*known, strict=True) if known else ((), ()), color=COLORS[0], lw=1.6)
    logs = [math.log10(mean) for _, mean in known]
    low = math.floor(min(logs, default=0))
    high = max(math.ceil(max(logs, default=0)), low + 1)
    ax.set(xlim=(0, steps), yscale="log", ylim=(10.0**low, 10.0**high))
    ax.set(xlabel="step", ylabel=f"loss, mean of {MEAN_OF} steps")
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(True, alpha=0.3)
    ax.tick_params(labelsize=9)
    ax.yaxis.label.set_size(9)


def _draw_digits(ax: Axes, images: torch.Tensor, labels: Sequence, guesses: Sequence) -> None:
    """Draw the images in a row, below each what is read, in another colour where that is wrong."""
    count, height, width = images.shape
    row = images.cpu().permute(1, 0, 2).reshape(height, count * width)
    ax.imshow(row, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    ax.set_axis_off()
    for i, (label, guess) in enumerate(zip(labels, guesses, strict=True)):
        wrong = {"color": ALARM, "weight": "bold"} if guess != label else {}
        place = (width * (i + 0.5), 1.15 * height)
        ax.text(*place, str(guess), ha="center", va="top", fontsize=9, **wrong)


def _display() -> Callable[[Picture], None]:
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
