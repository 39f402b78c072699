"""Draw README's picture: what a kernel that transposes asks of memory, traced in the simulator."""

from pathlib import Path

import matplotlib
import torch

from helpers.base.images import STYLE, Picture
from helpers.base.palette import PLATE
from helpers.simulator import blockDim, blockIdx, threadIdx
from helpers.trace import trace

FILE = Path(__file__).with_suffix(".svg")


def transpose_kernel(out, inp, n):
    col = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    out[col * n + row] = inp[row * n + col]


def draw() -> Picture:
    """Return the picture of the stores: neighbours in a warp write far apart."""
    with matplotlib.rc_context(STYLE):
        inp = torch.rand(64 * 64)
        report = trace(transpose_kernel, (2, 8), (32, 8), torch.empty_like(inp), inp, 64)
        return report.draw_lines("out")


def write(file: Path = FILE) -> None:
    """Write the picture as SVG, the same each time."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": "readme"}):
        draw().figure.savefig(file, facecolor=PLATE, metadata={"Date": None, "Creator": None})
