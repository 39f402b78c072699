"""Pictures of data and measurements, one function each; axes have units, colours suit every eye."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, StrMethodFormatter

from helpers.base.images import PHOTOGRAPH
from helpers.base.palette import COLORS, INK
from helpers.base.words import count
from helpers.timing import Comparison

WIDTH = 8  # inches: as wide as the text of a notebook
LONGEST_ROW = 32  # threads side by side, before a one-dimensional grid is cut at its blocks
STYLES = ["-", "--", ":", "-."]  # curves that lie on each other stay visible
LABEL_HEIGHT = 12  # points from one label of a roofline to the next
LETTER = 6.5  # points: of such a label, at most


def plot_grid(
    grid: int | Sequence[int], block: int | Sequence[int], shape: int | Sequence[int]
) -> Axes:
    """Show which thread of which block has which element, for i or for (row, col).

    `grid` and `block` are CUDA's, (x, y) or a number; `shape` is the tensor's, (rows, cols) or a
    number. One colour a block, in a cell its threadIdx. Threads beyond the data, those that the
    guard `if (i < n)` keeps out, are hatched.
    """
    (grid_x, grid_y), (block_x, block_y) = _pair(grid), _pair(block)
    flat = isinstance(shape, int) or len(shape) == 1
    rows, cols = (1, _pair(shape)[0]) if flat else shape
    width, height = grid_x * block_x, grid_y * block_y
    by_block = flat and width > LONGEST_ROW  # a row of the picture for each block
    ax = _grid_axes(*((block_x, grid_x) if by_block else (width, height)))
    busy, colors, idle = [], [], []
    for col, row in itertools.product(range(width), range(height)):
        block_id, thread = (col // block_x, row // block_y), (col % block_x, row % block_y)
        place = (thread[0], block_id[0]) if by_block else (col, row)
        has_element = col < cols and row < rows
        (busy if has_element else idle).append(Rectangle(place, 1, 1))
        if has_element:
            colors.append(_pale(COLORS[(block_id[0] + grid_x * block_id[1]) % len(COLORS)]))
        _label_thread(ax, place, thread[:1] if flat else thread)
    lines = {"edgecolors": "0.7", "linewidths": 0.5}
    ax.add_collection(PatchCollection(busy, facecolors=colors, **lines))
    ax.add_collection(PatchCollection(idle, fc="none", ec="0.85", hatch="///", linewidths=0.5))
    for x in range(grid_x):
        for y in range(grid_y):
            corner = (0, x) if by_block else (x * block_x, y * block_y)
            ax.add_patch(Rectangle(corner, block_x, block_y, fill=False, ec=INK, lw=1.8))
    data = f"{cols:,} elements" if flat else f"{rows} × {cols} elements"
    legend = "in a cell: threadIdx.x" if flat else "in a cell: threadIdx.x,threadIdx.y"
    title = f"{grid_x * grid_y} blocks of {block_x * block_y} threads, {data}"
    ax.set_title(f"{title}\n{legend}" if ax.texts else title, fontsize=10)
    over = f", {count(len(idle), 'thread')} without an element" if idle else ""
    ax.figure.set_label(f"a grid of threads: {title}{over}; {block_x} × {block_y} threads a block")
    if by_block:
        ax.set(xlabel="threadIdx.x", ylabel="blockIdx.x")
    elif flat:
        ax.set(xlabel="i = blockIdx.x * blockDim.x + threadIdx.x", yticks=[])
    else:
        ax.set(xlabel="col = blockIdx.x * blockDim.x + threadIdx.x")
        ax.set(ylabel="row = blockIdx.y * blockDim.y + threadIdx.y")
    return ax


def plot_owners(
    owners: torch.Tensor, names: Sequence[str], owner: str = "thread", part: str = "element"
) -> Axes:
    """Show which thread has which element: owners[rule, i] is the number of element i's thread.

    One row a rule, with its name; the number in a cell, and its colour, are the thread's. `owner`
    and `part` are what they are called, where blocks own tiles, say.
    """
    if owners.dim() != 2 or not owners.numel() or len(owners) != len(names):
        raise ValueError(
            f"expected owners[rule, i] of at least one element, and a name for each rule; got a "
            f"tensor of shape {tuple(owners.shape)} and {count(len(names), 'name')}"
        )
    rules, elements = owners.shape
    ax = _grid_axes(elements, rules)
    for row, col in itertools.product(range(rules), range(elements)):
        thread = int(owners[row, col])
        color = _pale(COLORS[thread % len(COLORS)])
        ax.add_patch(Rectangle((col, row), 1, 1, fc=color, ec="0.7", lw=0.5))
        _label_thread(ax, (col, row), (thread,))
    ax.set_yticks(np.arange(rules) + 0.5, names)
    ax.set(xlabel=f"{part} i")
    ax.set_title(f"in a cell: the {owner} that has the {part}", fontsize=10)
    rows = [f"{name} {row.tolist()}" for name, row in zip(names, owners, strict=True)]
    ax.figure.set_label(f"which {owner} has which {part}: {', '.join(rows)}")
    return ax


def plot_roofline(
    points: Mapping[str, tuple[float, float]], peak_gbps: float, peak_tflops: float, caption: str
) -> Axes:
    """Place kernels, {name: (FLOP a byte, TFLOP/s)}, under the roof that the chip gives them."""
    ridge = 1e3 * peak_tflops / peak_gbps
    intensities = [ridge, *(intensity for intensity, _ in points.values())]
    left, right = min(intensities) / 5, max(intensities) * 12
    intensity = np.geomspace(left, right, 300)
    _, ax = plt.subplots(figsize=(WIDTH, 4.6), layout="constrained")
    ax.loglog(intensity, np.minimum(peak_gbps * intensity / 1e3, peak_tflops), color=INK, lw=2)
    ax.axvline(ridge, color=INK, ls=":", lw=1)
    above = {"textcoords": "offset points", "fontsize": 9}
    slope = (left * 1.3, 1.3e-3 * peak_gbps * left)
    ax.annotate(f"{peak_gbps:,.0f} GB/s", slope, xytext=(10, 0), va="center", **above)
    flat = (right / 1.2, peak_tflops)
    ax.annotate(f"{peak_tflops:.3g} TFLOP/s", flat, xytext=(0, 5), ha="right", **above)
    low = min([1e-3 * peak_gbps * left, *(speed for _, speed in points.values())]) / 2
    foot = (ridge, low)
    ax.annotate(f"{ridge:.1f} FLOP/byte", foot, xytext=(4, 5), **above)
    for point, color in zip(points.values(), _colors(len(points)), strict=True):
        ax.plot(*point, "o", ms=9, color=color, mec="black", mew=0.6)
    ax.set(xlim=(left, right), ylim=(low, peak_tflops * 2.5))
    _name_points(ax, points)
    ax.set_title(caption, wrap=True)
    ax.set(xlabel="arithmetic intensity (FLOP/byte)", ylabel="speed (TFLOP/s)")
    ax.grid(True, alpha=0.3)
    speeds = ", ".join(f"{name} {s:.3g} at {i:.3g} FLOP/byte" for name, (i, s) in points.items())
    ax.figure.set_label(
        f"roofline of {caption}: TFLOP/s of {speeds}; the roof is {peak_gbps:,.0f} "
        f"GB/s up to {ridge:.1f} FLOP/byte, then {peak_tflops:.3g} TFLOP/s"
    )
    return ax


def _name_points(ax: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write the points' names beside them, those that would lie on each other one above another."""
    size = 72 * ax.get_position().size * ax.figure.get_size_inches()
    limits = np.log10([ax.get_xlim(), ax.get_ylim()])
    scale = size / (limits[:, 1] - limits[:, 0])  # points a decade
    placed: list[tuple[float, float, float]] = []  # left, right, height of each label so far
    for name, point in sorted(points.items(), key=lambda item: item[1][1]):
        x, y = scale * np.log10(point)
        end = x + LETTER * len(name)
        below = (height for start, stop, height in placed if start < end and x < stop)
        height = max([y, *(other + LABEL_HEIGHT for other in below)])
        placed.append((x, end, height))
        at = {"xytext": (8, height - y - 4), "textcoords": "offset points"}
        ax.annotate(name, point, fontsize=10, **at)


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    xlabel: str,
    ylabel: str,
    caption: str,
    log: str = "",
    marks: Mapping[str, float] | None = None,
) -> Axes:
    """Draw measured curves, {name: [(x, y), …]}, a point for each measurement.

    `log` names the axes that are logarithmic, to base 2 along x: "x", "y", "xy"; the others begin
    at 0. `marks` are places along x with a name, dotted lines.
    """
    _, ax = plt.subplots(figsize=(WIDTH, 3.8), layout="constrained")
    styles = zip(itertools.cycle(STYLES), itertools.cycle("os^Dv"), strict=False)
    for (name, points), color in zip(curves.items(), _colors(len(curves)), strict=True):
        x, y = zip(*sorted(points), strict=True)
        line, marker = next(styles)
        ax.plot(x, y, line, marker=marker, ms=5, color=color, label=name)
    if "x" in log:
        ax.set_xscale("log", base=2)
    if "y" in log:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _tick(x, "x" in log)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _tick(y, False)))
    for name, place in (marks or {}).items():
        ax.axvline(place, color=INK, ls=":", lw=1)
        top = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate(name, (place, 1), xytext=(3, -11), fontsize=9, **top)
    if len(curves) > 1:
        ax.legend(frameon=False, fontsize=9)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_title(caption, fontsize=10, wrap=True)
    ax.grid(True, alpha=0.3)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{y:.3g} at {_said(x)}" for x, y in sorted(points))
        for name, points in curves.items()
    )
    marked = "".join(f"; {name} at {_said(place)}" for name, place in (marks or {}).items())
    ax.figure.set_label(f"{ylabel} over {xlabel}, {caption}: {said}{marked}")
    return ax


def plot_blocks(blocks: Sequence[tuple[int, float, float]], caption: str, sms: int = 6) -> Axes:
    """Draw which block ran when on the first few SMs: (SM, start, end) of each block in µs.

    A row is a place for a block on an SM; the number in a bar is blockIdx.x.
    """
    begin = min(start for _, start, _ in blocks)
    shown = sorted({sm for sm, _, _ in blocks})[:sms]
    spans = sorted((start, end, b) for b, (sm, start, end) in enumerate(blocks) if sm in shown)
    ends: dict[int, list[float]] = {sm: [] for sm in shown}  # of the last block in each place
    placed = []
    for start, end, b in spans:
        places = ends[blocks[b][0]]
        place = next((i for i, last in enumerate(places) if last <= start), len(places))
        places[place : place + 1] = [end]
        placed.append((blocks[b][0], place, start - begin, end - begin, b))
    offset = dict(
        zip(shown, itertools.accumulate([0, *(len(ends[sm]) for sm in shown)]), strict=False)
    )
    rows = sum(map(len, ends.values()))
    _, ax = plt.subplots(figsize=(WIDTH, 0.26 * rows + 0.9), layout="constrained")
    last = max(end for *_, end, _ in placed)
    for sm, place, start, end, b in placed:
        y = offset[sm] + place
        color = _pale(COLORS[shown.index(sm) % len(COLORS)])
        ax.add_patch(Rectangle((start, y + 0.08), end - start, 0.84, fc=color, ec="black", lw=0.6))
        if end - start > 0.012 * last * len(str(b)):
            middle = ((start + end) / 2, y + 0.5)
            ax.text(*middle, f"{b}", ha="center", va="center", fontsize=8, color="black")
    ax.set(xlim=(0, 1.02 * last), ylim=(rows, 0), xlabel="time since the first block began (µs)")
    ax.set_yticks([offset[sm] + len(ends[sm]) / 2 for sm in shown], [f"SM {sm}" for sm in shown])
    ax.tick_params(axis="y", length=0)
    ax.set_title(caption, fontsize=10, wrap=True)
    said = "; ".join(
        f"SM {sm}: "
        + ", ".join(
            f"block {b} from {start:.0f} to {end:.0f}" for s, _, start, end, b in placed if s == sm
        )
        for sm in shown
    )
    ax.figure.set_label(f"blocks over time in µs, {caption}: {said}")
    return ax


def plot_timings(comparison: Comparison) -> Axes:
    """Draw a comparison: median time of each candidate, the whisker from 10 to 90 %."""
    rows = comparison.rows
    _, ax = plt.subplots(figsize=(WIDTH, 0.42 * max(len(rows), 1) + 1), layout="constrained")
    if not rows:
        ax.set_axis_off()
        ax.text(0.5, 0.5, comparison.caption, ha="center", va="center", wrap=True)
        return ax
    unit, scale = ("µs", 1e3) if all(row["median_ms"] < 1 for row in rows) else ("ms", 1)
    low, median, high = (
        scale * np.array([row[f"{which}_ms"] for row in rows])
        for which in ("low", "median", "high")
    )
    y = np.arange(len(rows))
    colors = ["0.6", *[COLORS[0]] * (len(rows) - 1)]  # the first is what the others compare to
    ax.barh(y, median, xerr=[median - low, high - median], color=colors, ecolor=INK, capsize=3)
    for i, row in enumerate(rows):
        ax.annotate(
            f"{median[i]:.4g} {unit} · {row['ratio']:.2f}×",
            (high[i], i),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    ax.set_yticks(y, [row["name"] for row in rows])
    ax.set(xlim=(0, 1.25 * high.max()), xlabel=f"time of one call ({unit}), less is better")
    ax.invert_yaxis()
    ax.set_title(comparison.record.machine, fontsize=10)
    bars = ", ".join(f"{r['name']} {m:.4g} {unit}" for r, m in zip(rows, median, strict=True))
    ax.figure.set_label(f"median time of one call on {comparison.record.machine}: {bars}")
    return ax


def plot_bars(
    values: Mapping[str, float],
    xlabel: str,
    caption: str,
    at_most: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
) -> Axes:
    """Draw a bar for each value that is known, from the first downwards; NaN has none.

    `at_most` says how long some of the bars could be, by a model: a notch each. `limits` are lines
    across all of them, with their names.
    """
    at_most, limits = at_most or {}, limits or {}
    known = {name: value for name, value in values.items() if not math.isnan(value)}
    _, ax = plt.subplots(figsize=(WIDTH, 0.34 * len(known) + 1.2), layout="constrained")
    y = dict(zip(known, range(len(known)), strict=True))
    ax.barh(list(y.values()), list(known.values()), color=COLORS[0])
    notches = {name: limit for name, limit in at_most.items() if name in known}
    for name, limit in notches.items():
        ax.plot([limit, limit], [y[name] - 0.4, y[name] + 0.4], color=INK, lw=2)
    longest = max([*known.values(), *notches.values(), *limits.values()], default=1)
    beside = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    for name, value in known.items():
        is_inside = value > longest / 8
        end = value if is_inside else max(value, notches.get(name, 0))
        place = {"xytext": (-5, 0), "ha": "right", "color": "white"} if is_inside else {}
        text = _said(float(f"{value:.3g}"))
        ax.annotate(text, (end, y[name]), **({"xytext": (5, 0)} | place | beside))
    for name, limit in limits.items():
        ax.axvline(limit, color=INK, ls=":", lw=1)
        ax.annotate(name, (limit, -0.75), xytext=(-4, 0), ha="right", **beside)
    ax.set_yticks(list(y.values()), list(known))
    ax.set(xlabel=xlabel, ylim=(len(known) - 0.5, -1 if limits else -0.5))
    ax.set(xlim=(0, 1.1 * longest))
    ax.set_title(caption, fontsize=10, wrap=True)
    bars = ", ".join(
        f"{name} {value:.3g}" + (f" of {notches[name]:.3g}" if name in notches else "")
        for name, value in known.items()
    )
    lines = "".join(f"; {name} {limit:.3g}" for name, limit in limits.items())
    ax.figure.set_label(f"{xlabel}, {caption}: {bars}{lines}")
    return ax


def plot_timeline(events: Sequence[Mapping], caption: str) -> Axes:
    """Draw a chrome trace's operators, CUDA calls and kernels, each in its row, over the time.

    `events` have name, cat ("cpu_op", "cuda_runtime", "kernel"), ts and dur (µs). An operator that
    no other called gives its colour to what it launched; kernels come in the order of launches.
    """
    kinds = {"cpu_op": "PyTorch (host)", "cuda_runtime": "CUDA calls (host)", "kernel": "GPU"}
    events = sorted((e for e in events if e["cat"] in kinds), key=lambda e: e["ts"])
    begin = min((e["ts"] for e in events), default=0)
    rows = {cat: [e for e in events if e["cat"] == cat] for cat in kinds}
    ops = [op for op in rows["cpu_op"] if not any(_encloses(e, op) for e in rows["cpu_op"])]
    launches = [e for e in rows["cuda_runtime"] if "Launch" in e["name"]]
    launch_of = dict(zip(map(id, rows["kernel"]), launches, strict=False))
    colors = dict(zip(dict.fromkeys(op["name"] for op in ops), _colors(len(ops)), strict=False))
    _, ax = plt.subplots(figsize=(WIDTH, 2.6), layout="constrained")
    for y, cat in enumerate(reversed(kinds)):
        for e in rows[cat]:
            asked = launch_of.get(id(e), e)
            owner = next((op["name"] for op in ops if op is e or _encloses(op, asked)), None)
            bar = [(e["ts"] - begin, e["dur"])]
            ax.broken_barh(bar, (y - 0.4, 0.8), color=colors.get(owner, "0.75"), ec=INK, lw=0.5)
    for name, color in colors.items():
        ax.plot([], [], "s", color=color, label=name)
    ax.set_yticks(range(len(kinds)), reversed(kinds.values()))
    ax.set(ylim=(-0.6, 2.6), xlabel="time since the start (µs)")
    ax.set_title(caption, fontsize=10, wrap=True)
    if colors:
        ax.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    spans = (
        f"{e['name']} from {e['ts'] - begin:.0f} to {e['ts'] + e['dur'] - begin:.0f} µs"
        for e in [*ops, *rows["cuda_runtime"]]
    )
    kernels = (
        f"{e['ts'] - begin:.0f} to {e['ts'] + e['dur'] - begin:.0f} µs" for e in rows["kernel"]
    )
    words = "; ".join([*spans, f"kernels: {', '.join(kernels) or 'none'}"])
    ax.figure.set_label(f"timeline, {caption}: {words}")
    return ax


def plot_streams(events: Sequence[Mapping], caption: str) -> Axes:
    """Draw what ran in each stream over the time: copies to the device, kernels, copies back.

    `events` have stream, kind ("to device", "kernel", "to host"), ts and dur (µs); a bar's number
    counts the events of its kind.
    """
    kinds = {"to device": "copy to the device", "kernel": "kernel", "to host": "copy to the host"}
    colors = dict(zip(kinds, map(_pale, COLORS), strict=False))
    events = sorted(events, key=lambda e: e["ts"])
    begin = min((e["ts"] for e in events), default=0)
    last = max((e["ts"] + e["dur"] - begin for e in events), default=1)
    streams = list(dict.fromkeys(e["stream"] for e in events))
    counted = dict.fromkeys(kinds, 0)
    said: dict = {stream: [] for stream in streams}
    _, ax = plt.subplots(figsize=(WIDTH, 0.42 * len(streams) + 1.2), layout="constrained")
    for e in events:
        start, y, number = e["ts"] - begin, streams.index(e["stream"]), counted[e["kind"]]
        counted[e["kind"]] += 1
        bar = Rectangle((start, y + 0.1), e["dur"], 0.8, fc=colors[e["kind"]], ec="black", lw=0.6)
        ax.add_patch(bar)
        if e["dur"] > 0.012 * last * len(str(number)):
            middle = (start + e["dur"] / 2, y + 0.5)
            ax.text(*middle, f"{number}", ha="center", va="center", fontsize=8, color="black")
        said[e["stream"]].append(
            f"{kinds[e['kind']]} {number} from {start:.0f} to {start + e['dur']:.0f}"
        )
    for kind, name in kinds.items():
        ax.plot([], [], "s", color=colors[kind], mec="black", mew=0.6, label=name)
    ax.set_yticks([y + 0.5 for y in range(len(streams))], [f"stream {name}" for name in streams])
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 1.02 * last), ylim=(len(streams), 0), xlabel="time since the first began (µs)")
    ax.set_title(caption, fontsize=10, wrap=True)
    ax.figure.legend(fontsize=9, ncols=3, frameon=False, loc="outside lower center")
    words = "; ".join(f"stream {stream}: {', '.join(spans)}" for stream, spans in said.items())
    ax.figure.set_label(f"streams over time in µs, {caption}: {words}")
    return ax


def plot_lanes(events: Sequence[Mapping], caption: str, xlabel: str = "time (ms)") -> Axes:
    """Draw who did what when: a row for each lane, a colour for each kind.

    `events` have lane, kind, start, end and, if a bar is to carry a word, label. Lanes and kinds
    come in the order in which they first appear; the time begins with the first event.
    """
    begin = min((e["start"] for e in events), default=0)
    last = max((e["end"] - begin for e in events), default=1)
    lanes, kinds = (list(dict.fromkeys(e[name] for e in events)) for name in ("lane", "kind"))
    colors = dict(zip(kinds, map(_pale, itertools.cycle(COLORS)), strict=False))
    said: dict = {lane: [] for lane in lanes}
    _, ax = plt.subplots(figsize=(WIDTH, 0.42 * len(lanes) + 1.2), layout="constrained")
    for e in events:
        start, width = e["start"] - begin, e["end"] - e["start"]
        y, label = lanes.index(e["lane"]), str(e.get("label", ""))
        color = colors[e["kind"]]
        ax.add_patch(Rectangle((start, y + 0.1), width, 0.8, fc=color, ec="black", lw=0.6))
        if width > 0.012 * last * len(label):
            middle = (start + width / 2, y + 0.5)
            ax.text(*middle, label, ha="center", va="center", fontsize=8, color="black")
        name = " ".join(filter(None, (e["kind"], label)))
        said[e["lane"]].append(f"{name} from {start:.4g} to {start + width:.4g}")
    for kind in kinds:
        ax.plot([], [], "s", color=colors[kind], mec="black", mew=0.6, label=kind)
    ax.set_yticks([y + 0.5 for y in range(len(lanes))], lanes)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 1.02 * last), ylim=(len(lanes), 0), xlabel=xlabel)
    ax.set_title(caption, fontsize=10, wrap=True)
    ax.figure.legend(fontsize=9, ncols=5, frameon=False, loc="outside lower center")
    words = "; ".join(f"{lane}: {', '.join(spans)}" for lane, spans in said.items())
    ax.figure.set_label(f"{caption}, {xlabel}: {words}")
    return ax


def _encloses(outer: Mapping, inner: Mapping) -> bool:
    """Whether an event of a trace began before another one, or is longer, and had not ended."""
    is_earlier = (outer["ts"], -outer["dur"]) < (inner["ts"], -inner["dur"])
    return is_earlier and inner["ts"] < outer["ts"] + outer["dur"]


def plot_losses(curves: Mapping[str, Sequence[float] | torch.Tensor]) -> Axes:
    """Draw training curves, {name: loss of each step}, on a logarithmic axis."""
    lines = {name: torch.as_tensor(losses).detach() for name, losses in curves.items()}
    if not lines or any(line.dim() != 1 or not len(line) for line in lines.values()):
        got = ", ".join(f"{name} of shape {tuple(line.shape)}" for name, line in lines.items())
        raise ValueError(f"expected curves of at least one loss each, got {got or 'no curve'}")
    _, ax = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")
    ends = []
    for i, (name, losses) in enumerate(lines.items()):
        line = losses.cpu().float()
        ends.append(f"{name} from {line[0]:.3g} to {line[-1]:.3g}")
        ax.plot(line, STYLES[i % len(STYLES)], color=_colors(i + 1)[i], label=name, lw=1.6)
    ax.set(xlabel="step", ylabel="loss", yscale="log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False)
    ax.grid(True, alpha=0.3)
    ax.figure.set_label(f"loss of each step: {', '.join(ends)}")
    return ax


def show_images(
    images: torch.Tensor, titles: Sequence[object] | None = None, columns: int = 8
) -> Figure:
    """Show images side by side: N×H×W gray or N×H×W×3 colour, uint8 or floats from 0 to 1."""
    if images.dim() not in (3, 4) or not images.numel():
        raise ValueError(f"expected N×H×W or N×H×W×3 images, got shape {tuple(images.shape)}")
    pixels = images.detach().cpu().numpy()
    columns = min(columns, len(pixels))
    rows = math.ceil(len(pixels) / columns)
    height, width = pixels.shape[1:3]
    image_height = min(WIDTH / columns, 3) * height / width
    size = (WIDTH, rows * (image_height + (0.25 if titles else 0.05)))
    style = {"figsize": size, "squeeze": False, "layout": "constrained"}
    no_ticks = {"xticks": [], "yticks": []}  # unseen as well, they take half the time
    fig, axes = plt.subplots(rows, columns, subplot_kw=no_ticks, **style)
    for ax in axes.flat:
        ax.set_axis_off()
    for i, (ax, image) in enumerate(zip(axes.flat, pixels, strict=False)):
        top = 255 if pixels.dtype == np.uint8 else 1
        smooth = {} if height >= PHOTOGRAPH else {"interpolation": "nearest"}  # pixels to be seen
        ax.imshow(image, cmap="gray", vmin=0, vmax=top, **smooth)
        if titles:
            ax.set_title(str(titles[i]), fontsize=10, pad=2)
    named = f": {', '.join(map(str, titles))}" if titles else ""
    fig.set_label(f"{count(len(pixels), 'image')} of {height} by {width} pixels{named}")
    return fig


def plot_confusion(matrix: torch.Tensor) -> Axes:
    """Show a confusion matrix: matrix[label, prediction] counts images."""
    counts = matrix.detach().cpu().numpy()
    mistakes = counts - np.diag(counts.diagonal())
    _, ax = plt.subplots(figsize=(5.6, 5.4), layout="constrained")
    ax.imshow(mistakes, cmap="Oranges", vmin=0, vmax=max(2 * mistakes.max(), 1))
    for (row, col), number in np.ndenumerate(counts):
        if number:
            weight = "bold" if row == col else "normal"
            style = {"fontsize": 9, "weight": weight, "color": "black"}
            ax.text(col, row, f"{number}", ha="center", va="center", **style)
    ax.set(xticks=range(len(counts)), yticks=range(len(counts)), ylabel="label")
    ax.set(xlabel="prediction (coloured: mistakes)")
    right = counts.trace() / max(counts.sum(), 1)
    ax.set_title(f"{right:.2%} of {counts.sum():,} right", fontsize=11)
    label, guess = np.unravel_index(mistakes.argmax(), mistakes.shape)
    most = f"; the most frequent mistake is {guess} for {label}, {mistakes.max()} times"
    words = f"confusion matrix: {right:.2%} of {counts.sum():,} right"
    ax.figure.set_label(words + most * bool(mistakes.any()))
    return ax


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    """Return (x, y) of a size that may leave y out."""
    return (size, 1) if isinstance(size, int) else (*size, 1)[:2]


def _tick(number: float, is_power: bool) -> str:
    """Return the label of a tick: 2,048; a power of two that is long is written as one."""
    if is_power and number >= 2**20:
        return f"$2^{{{math.log2(number):.0f}}}$"
    return f"{number:,.10g}"


def _said(number: float) -> str:
    """Return the number for an alt text: 16,384 and 0.125."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _pale(color: str) -> tuple[float, ...]:
    """Return the colour lightened, so that black text is easy to read on it."""
    return tuple(0.4 * part + 0.6 for part in to_rgb(color))


def _colors(n: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(n)]


def _grid_axes(width: int, height: int) -> Axes:
    """Return axes with a unit square for each thread, numbered at the middle of the squares."""
    side = min(0.42, (WIDTH - 0.8) / width)  # inches
    size = (side * width + 0.8, side * height + 0.9)
    _, ax = plt.subplots(figsize=(max(size[0], 5), size[1]), layout="constrained")
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    for axis, threads in ((ax.xaxis, width), (ax.yaxis, height)):
        step = 2 ** math.ceil(math.log2(max(1, 0.3 / side)))
        axis.set_ticks(np.arange(0, threads, step) + 0.5, range(0, threads, step))
    ax.tick_params(length=0, labelsize=8)
    return ax


def _label_thread(ax: Axes, place: tuple[int, int], thread: tuple[int, ...]) -> None:
    """Write a thread's index into its square, if it fits."""
    text = ",".join(map(str, thread))
    square_points = 72 * ax.figure.get_size_inches()[0] / ax.get_xlim()[1]
    if square_points > 7 * len(text):
        middle = (place[0] + 0.5, place[1] + 0.5)
        ax.text(*middle, text, ha="center", va="center", fontsize=8, color="black")
