"""Pictures of the course, one function each; axes have units, colours suit every eye."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.timing import Comparison

# Okabe and Ito's palette: blue, orange, green, purple, sky, vermilion, yellow
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]
WIDTH = 8  # inches, the width of a notebook's output


def plot_grid(
    grid: int | Sequence[int], block: int | Sequence[int], shape: int | Sequence[int]
) -> Axes:
    """Show which thread of which block works on which element, for one index or for (row, col).

    `grid` and `block` are CUDA's (x, y); `shape` is the tensor's: (n,) or (rows, cols). The threads
    beyond the shape, which the guard `if (i < n)` keeps out, are hatched.
    """
    grid_x, grid_y = (*_tuple(grid), 1)[:2]
    block_x, block_y = (*_tuple(block), 1)[:2]
    shape = _tuple(shape)
    rows, cols = shape if len(shape) == 2 else (1, shape[0])
    width, height = grid_x * block_x, grid_y * block_y
    size = min(0.6, WIDTH / width)
    _, ax = plt.subplots(figsize=(WIDTH, size * height + 1.1), layout="constrained")
    small = size < 0.28  # too small for a text in each cell
    for y in range(height):
        for x in range(width):
            inside = y < rows and x < cols
            block_id = (y // block_y, x // block_x)
            color = COLORS[(block_id[0] * grid_x + block_id[1]) % len(COLORS)]
            face = color if inside else "none"
            hatch = None if inside else "////"
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=face, alpha=0.35, edgecolor="none"))
            ax.add_patch(Rectangle((x, y), 1, 1, fill=False, ec="0.6", lw=0.5, hatch=hatch))
            if not small:
                tx, ty = x % block_x, y % block_y
                label = f"{ty},{tx}" if len(shape) == 2 else f"{tx}"
                ax.text(x + 0.5, y + 0.5, label, ha="center", va="center", fontsize=8)
    for by in range(grid_y):
        for bx in range(grid_x):
            corner = (bx * block_x, by * block_y)
            ax.add_patch(Rectangle(corner, block_x, block_y, fill=False, edgecolor="0.1", lw=1.6))
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    if len(shape) == 2:
        ax.set(xlabel="col = blockIdx.x * blockDim.x + threadIdx.x", ylabel="row")
    else:
        ax.set(xlabel="i = blockIdx.x * blockDim.x + threadIdx.x", yticks=[])
    ax.set_title(f"{grid_x * grid_y} blocks of {block_x * block_y} threads, {rows * cols} elements")
    return ax


def plot_roofline(
    points: Mapping[str, tuple[float, float]], peak_gbps: float, peak_tflops: float, caption: str
) -> Axes:
    """Place kernels, {name: (FLOP a byte, TFLOP/s)}, under the roof of bandwidth and arithmetic."""
    ridge = 1e3 * peak_tflops / peak_gbps
    intensities = [x for x, _ in points.values()]
    low = min([*intensities, ridge]) / 4
    high = max([*intensities, ridge]) * 4
    x = np.geomspace(low, high, 200)
    _, ax = plt.subplots(figsize=(WIDTH, 4.5), layout="constrained")
    ax.loglog(x, np.minimum(peak_gbps * x / 1e3, peak_tflops), color="0.3", lw=2)
    for (name, point), color in zip(points.items(), _cycle(len(points)), strict=True):
        ax.plot(*point, "o", ms=9, color=color, label=name)
    ax.axvline(ridge, color="0.6", ls=":", lw=1)
    ax.set(xlabel="arithmetic intensity (FLOP / byte)", ylabel="speed (TFLOP/s)", title=caption)
    ax.legend(loc="lower right")
    ax.grid(True, which="major", alpha=0.3)
    return ax


def plot_timings(comparison: Comparison) -> Axes:
    """Draw a comparison as bars of the median time with the 10–90 % spread."""
    rows = comparison.rows
    _, ax = plt.subplots(figsize=(WIDTH, 0.45 * max(len(rows), 1) + 1.2), layout="constrained")
    if not rows:
        ax.set_axis_off()
        ax.text(0.5, 0.5, comparison.caption, ha="center", va="center", wrap=True)
        return ax
    median = np.array([row["median_ms"] for row in rows])
    low = median - [row["low_ms"] for row in rows]
    high = [row["high_ms"] for row in rows] - median
    scale, unit = (1e3, "µs") if median.max() < 1 else (1, "ms")
    y = np.arange(len(rows))
    ax.barh(y, scale * median, xerr=scale * np.array([low, high]), color=_cycle(len(rows)))
    ax.set_yticks(y, [row["name"] for row in rows])
    ax.invert_yaxis()
    ax.set(xlabel=f"time of one call ({unit})")
    ax.set_title(comparison.caption.split("\n")[0], fontsize=10)
    return ax


def plot_losses(curves: Mapping[str, Sequence[float]]) -> Axes:
    """Draw training curves, {name: loss of each step}."""
    _, ax = plt.subplots(figsize=(WIDTH, 3.5), layout="constrained")
    for (name, losses), color in zip(curves.items(), _cycle(len(curves)), strict=True):
        ax.plot([float(loss) for loss in losses], color=color, label=name, lw=1.5)
    ax.set(xlabel="step", ylabel="loss", yscale="log")
    ax.legend()
    ax.grid(True, alpha=0.3)
    return ax


def show_images(
    images: torch.Tensor, titles: Sequence[object] | None = None, columns: int = 8
) -> Figure:
    """Show images: N×H×W in gray or N×H×W×3 in colour, uint8 or floats from 0 to 1."""
    images = images.detach().cpu().numpy()
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    height, width = images.shape[1:3]
    side = WIDTH / columns
    fig_height = rows * (side * height / width + (0.3 if titles else 0))
    fig, axes = plt.subplots(
        rows, columns, figsize=(WIDTH, fig_height), squeeze=False, layout="constrained"
    )
    top = 255 if images.dtype == np.uint8 else 1
    for i, ax in enumerate(axes.flat):
        ax.set_axis_off()
        if i < len(images):
            ax.imshow(images[i], cmap="gray", vmin=0, vmax=top)
            if titles is not None:
                ax.set_title(str(titles[i]), fontsize=9)
    return fig


def plot_confusion(matrix: torch.Tensor) -> Axes:
    """Show a confusion matrix: matrix[label, prediction] counts the images."""
    counts = matrix.detach().cpu().numpy()
    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    _, ax = plt.subplots(figsize=(6, 5.4), layout="constrained")
    ax.imshow(wrong, cmap="Oranges")
    for (row, col), count in np.ndenumerate(counts):
        weight = "bold" if row == col else "normal"
        ax.text(col, row, f"{count}", ha="center", va="center", fontsize=9, weight=weight)
    ax.set_xticks(range(len(counts)))
    ax.set_yticks(range(len(counts)))
    ax.set(xlabel="prediction", ylabel="label")
    accuracy = counts.trace() / counts.sum()
    ax.set_title(f"{accuracy:.2%} of {counts.sum():,} right; colour: the mistakes")
    return ax


def _tuple(size: int | Sequence[int]) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


def _cycle(n: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(n)]
