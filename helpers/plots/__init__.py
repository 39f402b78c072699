"""Pictures, one function each: of measurements and data (plot_, show_) and of ideas (draw_)."""

from helpers.base.palette import COLORS
from helpers.plots.ideas import (
    draw_bank_tiles,
    draw_gpu,
    draw_host_and_device,
    draw_launch,
    draw_layers,
    draw_loads,
    draw_memory,
    draw_online_softmax,
    draw_race,
    draw_route,
    draw_shares,
    draw_stream,
)
from helpers.plots.live import LiveTraining
from helpers.plots.measurements import (
    plot_blocks,
    plot_confusion,
    plot_curves,
    plot_grid,
    plot_losses,
    plot_owners,
    plot_roofline,
    plot_streams,
    plot_timeline,
    plot_timings,
    show_images,
)

__all__ = [
    "COLORS",
    "LiveTraining",
    "draw_bank_tiles",
    "draw_gpu",
    "draw_host_and_device",
    "draw_launch",
    "draw_layers",
    "draw_loads",
    "draw_memory",
    "draw_online_softmax",
    "draw_race",
    "draw_route",
    "draw_shares",
    "draw_stream",
    "plot_blocks",
    "plot_confusion",
    "plot_curves",
    "plot_grid",
    "plot_losses",
    "plot_owners",
    "plot_roofline",
    "plot_streams",
    "plot_timeline",
    "plot_timings",
    "show_images",
]
