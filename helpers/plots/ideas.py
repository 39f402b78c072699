"""Drawings of ideas: where things stand and how they hang together. Measurements are in plots."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from helpers.base.palette import INK
from helpers.base.words import count
from helpers.network import Run

# Okabe and Ito's colours, told apart by everybody; text on them is black
BLUE, ORANGE, GREEN = "#56B4E9", "#E69F00", "#5DBB9B"
YELLOW, PINK, GREY = "#F0E442", "#D9A0C0", "#D0D0D0"
WIDEST = 9.4  # inches: what is wider is shrunk beside JupyterLab's file browser, with its text


def draw_route(steps: Sequence[tuple[str, str]]) -> Axes:
    """Draw (name, remark) steps as a row of boxes, an arrow from each to the next."""
    ax = _canvas(10, 1.6, (0, len(steps)), (0, 1))
    for i, (name, remark) in enumerate(steps):
        colour = (BLUE, GREEN, YELLOW, ORANGE, PINK)[i * 5 // len(steps)]
        _box(ax, i + 0.06, 0.4, 0.78, 0.55, name, colour, size=9)
        ax.text(i + 0.45, 0.3, remark, ha="center", va="top", fontsize=8)
        if i:
            arrow = {"arrowstyle": "->", "color": INK}
            ax.annotate("", (i + 0.05, 0.67), (i - 0.15, 0.67), arrowprops=arrow)
    ax.figure.set_label(" → ".join(f"{name} ({remark})" for name, remark in steps))
    return ax


def draw_layers(layers: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> Axes:
    """Draw a stack of (label, boxes, relatives), top layer first; relatives stand apart, in grey.

    A name that is empty leaves its place free.
    """
    ax = _canvas(11, 0.72 * len(layers) + 0.3, (-1.9, 13.2), (-0.1, len(layers) + 0.25))
    colours = (BLUE, GREEN, YELLOW, ORANGE, PINK)
    for depth, (label, boxes, relatives) in enumerate(layers):
        y = len(layers) - 1 - depth
        ax.text(-0.15, y + 0.4, label, ha="right", va="center", fontsize=9)
        _row(ax, boxes, 0, 9, y, colours[depth % len(colours)])
        _row(ax, relatives, 9.4, 3.8, y, GREY)
    ax.text(4.5, len(layers) + 0.02, "on NVIDIA's chips", ha="center", fontsize=10)
    ax.text(11.3, len(layers) + 0.02, "relatives elsewhere", ha="center", fontsize=10)
    words = (
        f"{label}: {_listed(boxes)}, elsewhere {_listed(others)}" for label, boxes, others in layers
    )
    ax.figure.set_label(f"layers from the top: {'; '.join(words)}")
    return ax


def draw_memory(a: torch.Tensor) -> Axes:
    """Draw a small matrix as rows and columns, and below as its elements lie in memory."""
    rows, cols = a.shape
    cells = a.untyped_storage().nbytes() // a.element_size()
    memory = torch.as_strided(a, (cells,), (1,), 0)
    ax = _canvas(max(7, 0.62 * cells), 0.5 * rows + 1.4, (-2.6, cells + 0.1), (-1.9, rows + 0.2))
    colours = (BLUE, ORANGE, GREEN, PINK, YELLOW)
    place = {}
    for row in range(rows):
        for col in range(cols):
            offset = a.storage_offset() + row * a.stride(0) + col * a.stride(1)
            place[offset] = colours[row % len(colours)]
            _cell(ax, col, rows - 1 - row, f"{a[row, col].item():g}", place[offset])
    ax.text(-0.2, rows / 2, f"{rows} rows,\n{cols} columns", ha="right", va="center", fontsize=9)
    stride = f"strides ({a.stride(0)}, {a.stride(1)})"
    ax.text(cols + 0.4, rows / 2, stride, va="center", fontsize=10, family="monospace")
    for offset in range(cells):
        _cell(ax, offset, -1.3, f"{memory[offset].item():g}", place.get(offset, "white"))
        ax.text(offset + 0.5, -1.55, f"{offset}", ha="center", va="center", fontsize=8)
    ax.text(-0.2, -0.8, "in memory", ha="right", va="center", fontsize=9)
    ax.text(-0.2, -1.55, "p + …", ha="right", va="center", fontsize=8)
    order = ", ".join(f"{memory[offset].item():g}" for offset in range(cells))
    ax.figure.set_label(f"a matrix of {rows} rows and {cols} columns, {stride}; in memory: {order}")
    return ax


def draw_launch(blocks: int, threads: int, elements: int | None = None) -> Axes:
    """Draw a small launch: the grid, its blocks, their threads, and below each thread its number.

    Threads whose number is not below `elements` have nothing to do and stand in grey.
    """
    width = blocks * (threads + 0.6) + 0.6
    ax = _canvas(max(6, 0.62 * width + 1.6), 2.7, (-2.6, width + 0.1), (-1.2, 3.4))
    ax.add_patch(Rectangle((0, 0), width, 3.3, fc="none", ec=INK, lw=1))
    sizes = f"the grid: gridDim.x = {blocks} blocks of blockDim.x = {threads} threads"
    ax.text(width / 2, 2.95, sizes, ha="center", va="center", fontsize=10)
    for row, label in ((1.85, "blockIdx.x"), (0.75, "threadIdx.x"), (-0.45, "number i")):
        ax.text(-0.2, row, label, ha="right", va="center", fontsize=10, family="monospace")
    colours = (BLUE, ORANGE, GREEN, PINK, YELLOW)
    for block in range(blocks):
        x, colour = 0.6 + block * (threads + 0.6), colours[block % len(colours)]
        _box(ax, x - 0.2, 0.15, threads + 0.4, 2.2, "", colour)
        ax.text(x + threads / 2, 1.85, f"{block}", ha="center", va="center", color="black")
        for thread in range(threads):
            i = block * threads + thread
            works = elements is None or i < elements
            _cell(ax, x + thread, 0.3, f"{thread}", "white" if works else GREY)
            number = f"{i}" if works else f"({i})"
            ax.text(x + thread + 0.5, -0.45, number, ha="center", va="center", fontsize=10)
    rule = "i = blockIdx.x * blockDim.x + threadIdx.x"
    ax.text(width / 2, -1.0, rule, ha="center", va="center", fontsize=9, family="monospace")
    words = f"{sizes}; {rule}, from 0 to {blocks * threads - 1}"
    if elements is not None:
        words += f"; threads from number {elements} on have nothing to do"
    ax.figure.set_label(words)
    return ax


def draw_stream(launch_us: float, kernel_us: float, calls: int = 3) -> Axes:
    """Draw a host that launches equal kernels, the GPU that runs them, and where clocks are read.

    The host needs `launch_us` for a launch, the GPU `kernel_us` for a kernel; after the launches
    the host waits. Two events enclose the kernels.
    """
    starts = []
    for call in range(calls):
        launched = (call + 1) * launch_us
        starts.append(max(launched, starts[-1] + kernel_us) if starts else launched)
    asked, end = calls * launch_us, starts[-1] + kernel_us
    ax = _canvas(9, 2.6, (-0.08 * end, 1.12 * end), (-1.1, 3.3))
    _label(ax, -0.01 * end, 1.95, "host")
    _label(ax, -0.01 * end, 0.65, "GPU")
    for call, start in enumerate(starts):
        colour = (BLUE, ORANGE, GREEN)[call % 3]
        _span(ax, call * launch_us, launch_us, 1.6, "launch", colour, end)
        _span(ax, start, kernel_us, 0.3, f"kernel {call}", colour, end)
    _span(ax, asked, end - asked, 1.6, "waits: synchronize", "white", end)
    clocks = ((asked, "clock read here: too early", "right"), (end, "here: right", "left"))
    for time, words, side in clocks:
        ax.plot([time, time], [1.45, 2.6], color=INK, lw=1)
        ax.text(time, 2.7, words, ha=side, fontsize=9)
    for time in (0, end):
        ax.plot([time, time], [0.05, 1.25], ":", color=INK, lw=2)
    launches, kernels = ("launch", "kernel") if calls == 1 else ("launches", "kernels")
    sizes = f"{calls} {launches} of {launch_us:g} µs, {calls} {kernels} of {kernel_us:g} µs"
    between = f"between the events {end:g} µs, the {kernels} alone {calls * kernel_us:g} µs"
    ax.text(end / 2, -0.5, f"{sizes}; {between}", ha="center", va="center", fontsize=9)
    early = f"without waiting the clock says {asked:g} µs, with waiting {end:g} µs"
    ax.figure.set_label(f"host and GPU in time: {sizes}; {early}; {between}")
    return ax


def draw_loads(threads: int, width: int) -> Axes:
    """Draw what a few threads ask for at once: an element each, and `width` neighbours each."""
    elements = threads * width
    ax = _canvas(max(7, 0.3 * elements), 2.9, (-0.16 * elements, elements + 0.1), (-0.5, 4.6))
    colours = (BLUE, ORANGE, GREEN, PINK, YELLOW)
    for y, each in ((2.4, 1), (0, width)):
        for i in range(elements):
            thread = i // each
            _cell(ax, i, y, "", colours[thread % 5] if thread < threads else "white")
        for thread in range(threads):
            middle = (thread + 0.5) * each
            ax.text(middle, y + 1.2, f"{thread}", ha="center", va="center", fontsize=9)
            ax.plot([thread * each + 0.15, (thread + 1) * each - 0.15], [y + 1, y + 1], color=INK)
        _label(ax, -0.3, y + 0.45, f"{each} a thread")
        _label(ax, -0.3, y + 1.2, "thread")
    once, wide = 4 * threads, 4 * elements
    words = f"{threads} threads ask for {once} bytes, or for {wide}, at 4 bytes an element"
    ax.text(elements / 2, 4.2, words, ha="center", va="center", fontsize=10)
    ax.figure.set_label(f"{words}: one element each, or {width} neighbours each")
    return ax


def draw_race(steps: Sequence[str], value: int) -> Axes:
    """Draw two threads that add 1 to one place, in the order of `steps`, and what it holds.

    A step is "0 load" (thread 0 reads the place), "1 add" (thread 1 adds 1 to what it has read) or
    "0 store". `value` is what the place holds at first.
    """
    ax = _canvas(9, 2.2, (-1.3, len(steps) + 0.1), (-0.1, 3.1))
    for y, name in ((2.4, "thread 0"), (1.4, "thread 1"), (0.4, "memory")):
        _label(ax, -0.1, y, name)
    held, said = [0, 0], []
    for time, step in enumerate(steps):
        thread, action = int(step[0]), step[2:]
        if action == "load":
            held[thread] = value
        elif action == "add":
            held[thread] += 1
        else:
            value = held[thread]
        text = f"{action}: {held[thread]}"
        _cell(ax, time, 2 - thread, text, (BLUE, ORANGE)[thread])
        _cell(ax, time, 0, str(value), YELLOW if action == "store" else GREY)
        said.append(f"thread {thread} {text}, memory {value}")
    ax.figure.set_label(f"two threads add 1 to one place, step by step: {'; '.join(said)}")
    return ax


def draw_online_softmax(values: Sequence[float]) -> Axes:
    """Draw a row as bars, the largest number so far as a line, and below how the sum goes on.

    Powers of 2 stand in the place of e: the sum is that of 2 ** (value - largest so far).
    """
    top = max(values)
    ax = _canvas(max(6, 1.25 * len(values) + 1.5), 4.2, (-1.35, len(values)), (-3.1, top + 0.6))
    largest, total, words = -math.inf, 0.0, []
    for i, value in enumerate(values):
        larger = max(largest, value)
        factor, term = 2.0 ** (largest - larger), 2.0 ** (value - larger)
        ax.add_patch(Rectangle((i + 0.2, 0), 0.6, value, fc=BLUE, ec="black", lw=0.6))
        ax.text(i + 0.5, value / 2, f"{value:g}", ha="center", va="center", color="black")
        ax.plot([i, i + 1], [larger, larger], color=ORANGE, lw=2.5)
        if larger > largest > -math.inf:
            ax.plot([i, i], [largest, larger], color=ORANGE, lw=2.5)
        change = f"· {factor:g} + {term:g}" if i else ""
        ax.text(i + 0.5, -0.75, change, ha="center", va="center", fontsize=9)
        largest, total = larger, total * factor + term
        _box(ax, i + 0.08, -2.1, 0.84, 0.9, f"{total:g}", YELLOW if factor < 1 and i else "white")
        words.append(f"{value:g}: largest {largest:g}, sum {total:g}")
    ax.text(0, values[0] + 0.12, "largest so far", ha="left", va="bottom", fontsize=9)
    _label(ax, -0.1, -0.75, "factor, term")
    _label(ax, -0.1, -1.65, "sum so far")
    rule = "sum · 2^(old largest − new) + 2^(number − new largest)"
    ax.text(len(values) / 2, -2.75, rule, ha="center", va="center", fontsize=9)
    ax.figure.set_label(f"a row, number by number, by the rule {rule}: {'; '.join(words)}")
    return ax


def draw_rounds(numbers: Sequence[float], rounds: Sequence[Sequence[tuple[int, int]]]) -> Axes:
    """Draw numbers as a row, and below it what each round of additions makes of them.

    A round is a list of pairs (from, to), added all at once; places that it changes are coloured.
    """
    rows = [list(numbers)]
    for pairs in rounds:
        rows.append(list(rows[-1]))
        for start, end in pairs:
            rows[-1][end] += rows[-2][start]
    n = len(numbers)
    low = -1.6 * len(rounds) - 0.1
    ax = _canvas(max(6, 0.8 * n), 0.6 * (1.1 - low), (-2.4, n + 0.1), (low, 1))
    colours = (BLUE, ORANGE, GREEN, PINK, YELLOW)
    said = [" ".join(f"{v:g}" for v in numbers)]
    for i, value in enumerate(numbers):
        _cell(ax, i, 0, f"{value:g}", "white")
    _label(ax, -0.2, 0.45, "at first")
    for step, (pairs, row) in enumerate(zip(rounds, rows[1:], strict=True), 1):
        y, changed = -1.6 * step, {end for _, end in pairs}
        for i, value in enumerate(row):
            colour = colours[(step - 1) % len(colours)] if i in changed else "white"
            _cell(ax, i, y, f"{value:g}", colour)
        for start, end in pairs:
            arrow = {"arrowstyle": "->", "color": INK, "lw": 0.8}
            ax.annotate("", (end + 0.5, y + 0.9), (start + 0.5, y + 1.6), arrowprops=arrow)
        _label(ax, -0.2, y + 0.45, f"round {step}: {len(pairs)} addition{'s' * (len(pairs) > 1)}")
        links = ", ".join(f"{start} to {end}" for start, end in pairs)
        said.append(f"round {step}: {links}, then " + " ".join(f"{v:g}" for v in row))
    ax.figure.set_label(f"additions in rounds: {'; '.join(said)}")
    return ax


def draw_messages(run: Run, caption: str) -> Axes:
    """Draw the messages of a simulated network: a row a rank, a column a step, an arrow each."""
    sizes = sorted({message.bytes for message in run.messages})
    ax = _canvas(
        max(5, 1.5 * run.steps + 1.5), 0.5 * run.ranks + 0.9, (-0.7, run.steps), (-0.6, run.ranks)
    )
    for rank in range(run.ranks):
        y = run.ranks - 1 - rank
        ax.plot([0, run.steps], [y, y], color=GREY, lw=1, zorder=0)
        ax.text(-0.08, y, f"rank {rank}", ha="right", va="center", fontsize=9)
    colours = (BLUE, ORANGE, GREEN, PINK)
    for message in run.messages:
        ends = [
            (message.step - share, run.ranks - 1 - rank)
            for share, rank in ((0.85, message.source), (0.15, message.to))
        ]
        colour = colours[sizes.index(message.bytes) % len(colours)]
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", ends[1], ends[0], arrowprops=arrow)
    for step in range(run.steps):
        ax.text(step + 0.5, -0.5, f"step {step + 1}", ha="center", va="center", fontsize=9)
    for i, size in enumerate(sizes):
        place = {"xycoords": "axes fraction", "ha": "right", "fontsize": 8, "color": "black"}
        box = {"fc": colours[i % 4], "ec": "none", "pad": 2}
        ax.annotate(f"{size:,} bytes", (1 - 0.2 * i, 1), bbox=box, **place)
    ax.set_title(caption, fontsize=10, loc="left")
    told = "; ".join(
        f"step {step}: "
        + ", ".join(f"{m.source} to {m.to}" for m in run.messages if m.step == step)
        for step in range(1, run.steps + 1)
    )
    ax.figure.set_label(f"{caption}, messages between {run.ranks} ranks: {told}")
    return ax


def draw_butterflies(
    passes: Sequence[Sequence[tuple[int, int, int, int, int]]], inputs: Sequence[int]
) -> Axes:
    """Draw the passes of an FFT of radix 2: places as dots, a column before and after each pass.

    A butterfly (a, b, c, d, k) reads a and b, turns b by k steps of the circle and writes the sum
    to c, the difference to d. `inputs` says which number of the input stands at which place.
    """
    n, said = len(inputs), []
    ax = _canvas(9, 0.42 * n + 0.5, (-0.45, len(passes) + 0.45), (-n + 0.4, 1.1))
    colours = (BLUE, ORANGE, GREEN, PINK)
    for i, number in enumerate(inputs):
        ax.text(-0.06, -i, f"x[{number}]", ha="right", va="center", fontsize=9)
        ax.text(len(passes) + 0.06, -i, f"X[{i}]", ha="left", va="center", fontsize=9)
    for x, butterflies in enumerate(passes):
        ax.text(x + 0.5, 0.75, f"pass {x + 1}", ha="center", fontsize=9)
        for number, (a, b, c, d, k) in enumerate(butterflies):
            colour = colours[number % len(colours)]
            for start, end in ((a, c), (b, c), (a, d), (b, d)):
                ax.plot([x, x + 1], [-start, -end], color=colour, lw=1.6, zorder=1)
            if k:
                ax.text(x + 0.05, -b + 0.12, f"w{_raised(k)}", ha="left", va="bottom", fontsize=8)
        links = (f"{a} and {b} to {c} and {d}, w{k}" for a, b, c, d, k in butterflies)
        said.append(f"pass {x + 1}: {'; '.join(links)}")
    places = [(x, -i) for x in range(len(passes) + 1) for i in range(n)]
    ax.scatter(*zip(*places, strict=True), s=16, color=INK, zorder=2)
    ax.figure.set_label(f"butterflies of {n} numbers, {'; '.join(said)}")
    return ax


def draw_graph(nodes: Sequence[str], links: Sequence[tuple[int, int, str]]) -> Axes:
    """Draw how values hang together: a box for each node, inputs first, and labelled links.

    A link (from, to, label) goes from an earlier node to a later one, from left to right; where two
    nodes have several, they share a line. ValueError for a link that goes back.
    """
    labels: dict[tuple[int, int], list[str]] = {}
    for start, end, label in links:
        if not 0 <= start < end < len(nodes):
            raise ValueError(f"expected links to later nodes, got {start} to {end}")
        labels.setdefault((start, end), []).append(label)
    depth = [0] * len(nodes)
    for start, end in sorted(labels, key=lambda link: link[1]):
        depth[end] = max(depth[end], depth[start] + 1)
    inner = {end for _, end in labels}
    for i in range(len(nodes)):  # an input stands just before what it goes into
        if i not in inner:
            depth[i] = min((depth[end] for start, end in labels if start == i), default=1) - 1
    columns = [[i for i, d in enumerate(depth) if d == column] for column in range(max(depth) + 1)]
    tallest = max(map(len, columns))
    place = {
        i: (1.75 * x, (tallest - len(column)) / 2 + len(column) - 1 - y)
        for x, column in enumerate(columns)
        for y, i in enumerate(column)
    }
    width = 1.75 * len(columns)
    ax = _canvas(1.05 * width, 0.95 * tallest, (-0.05, width - 0.7), (-0.1, tallest))
    for (start, end), names in labels.items():
        (x0, y0), (x1, y1) = place[start], place[end]
        x0 += 1
        arrow = {"arrowstyle": "->", "color": INK, "lw": 0.8}
        ax.annotate("", (x1, y1 + 0.35), (x0, y0 + 0.35), arrowprops=arrow)
        middle = (x0 + x1) / 2, (y0 + y1) / 2 + 0.4
        ax.text(*middle, " + ".join(names), ha="center", va="bottom", fontsize=8)
    for i, text in enumerate(nodes):
        colour = BLUE if i not in inner else ORANGE if i == len(nodes) - 1 else GREEN
        _box(ax, *place[i], 1, 0.7, text, colour, size=8)
    said = "; ".join(
        f"{' '.join(nodes[start].split())} to {' '.join(nodes[end].split())}: {' + '.join(names)}"
        for (start, end), names in labels.items()
    )
    ax.figure.set_label(f"a graph of {len(nodes)} values: {said}")
    return ax


def draw_waves(blocks: int, waves: int) -> Axes:
    """Draw what happens to each tile of a scan in waves, a row for each wave, a colour a block.

    Tile t belongs to block t % blocks and to wave t // blocks, in which its sum is published. It is
    loaded in the wave before, and scanned in the one after.
    """
    tiles, colours = blocks * waves, (BLUE, ORANGE, GREEN, PINK, YELLOW)
    ax = _canvas(max(7, 0.75 * tiles), 0.62 * waves + 1.5, (-1.6, tiles + 0.1), (-waves - 1.3, 1.9))
    _label(ax, -0.1, 1.45, "tile")
    for tile in range(tiles):
        _cell(ax, tile, 1, str(tile), colours[tile % blocks % 5])
    said = []
    for wave in range(waves + 1):
        _label(ax, -0.1, 0.45 - wave, f"wave {wave}")
        for name, of in (("scan", wave - 1), ("sum", wave), ("load", wave + 1)):
            shown = range(of * blocks, (of + 1) * blocks) if 0 <= of < waves else ()
            for tile in shown:
                _cell(
                    ax, tile, -wave, name, "white" if name == "load" else colours[tile % blocks % 5]
                )
            if shown:
                said.append(f"wave {wave}: {name} of tiles {shown[0]} to {shown[-1]}")
    words = f"{blocks} blocks, a colour each; sums published in a wave are used in the next"
    ax.text(tiles / 2, -waves - 0.8, words, ha="center", va="center", fontsize=9)
    ax.figure.set_label(f"{words}; {'; '.join(said)}")
    return ax


def draw_host_and_device() -> Axes:
    """Draw a CPU beside a GPU, each with its memory, and the links between them and other GPUs."""
    ax = _canvas(11, 4.4, (0, 22), (-0.3, 8.6))
    ax.text(4, 8.2, "host: a few cores, each quick", ha="center", fontsize=11)
    ax.text(15, 8.2, "device: thousands of lanes, each slow", ha="center", fontsize=11)
    _box(ax, 0.5, 5.5, 7, 2.2, "", "white")
    for i in range(4):
        x = 0.75 + 1.7 * i
        _box(ax, x, 6.3, 1.4, 1.2, "control,\nguessing", GREY, size=8)
        _box(ax, x, 5.65, 1.4, 0.5, "arithmetic", ORANGE, size=8)
    _box(ax, 0.5, 3.6, 7, 1.7, "large caches", YELLOW)
    _box(ax, 11, 3.6, 8, 4.1, "", "white")
    for row in range(6):
        y = 7.1 - 0.52 * row
        ax.add_patch(Rectangle((11.2, y), 0.5, 0.4, fc=GREY, ec="black", lw=0.4))
        for lane in range(20):
            corner = (11.85 + 0.35 * lane, y)
            ax.add_patch(Rectangle(corner, 0.28, 0.4, fc=ORANGE, ec="black", lw=0.3))
    _box(ax, 11.2, 3.75, 7.6, 0.55, "small caches", YELLOW)
    _box(ax, 0.5, 0.4, 7, 1.6, "host memory", PINK)
    _box(ax, 11, 0.4, 8, 1.6, "device memory (VRAM)", PINK)
    _box(ax, 20.2, 4.6, 1.6, 2.1, "another\nGPU", "white", size=8)
    _link(ax, (4, 3.6), (4, 2.0), 3, "")
    _link(ax, (15, 3.6), (15, 2.0), 12, "wide")
    _link(ax, (7.5, 4.4), (11, 4.4), 2, "PCIe")
    _link(ax, (19, 5.6), (20.2, 5.6), 5, "NVLink")
    ax.figure.set_label(
        "host: a CPU of a few large cores and large caches, with its memory; device: a GPU of many "
        "small lanes and small caches, with its own memory by a wide link; PCIe joins the two, "
        "NVLink joins GPUs"
    )
    return ax


def draw_shares(norms: Mapping[str, Sequence[Sequence[int]]]) -> Axes:
    """Draw tables of images (rows) and channels side by side: {norm: number of each plane's mean}.

    Planes with the same number, of which the norm takes one mean together, have one colour.
    """
    rows, cols = len(next(iter(norms.values()))), len(next(iter(norms.values()))[0])
    wide = cols + 1.5
    ax = _canvas(11, 0.5 * rows + 1.3, (-0.6, wide * len(norms) - 1), (-1, rows + 0.7))
    colours, said = (BLUE, ORANGE, GREEN, PINK, YELLOW), []
    for place, (norm, means) in enumerate(norms.items()):
        ax.text(wide * place + cols / 2, rows + 0.35, norm, ha="center", fontsize=11)
        ax.text(wide * place + cols / 2, -0.6, "channels", ha="center", fontsize=9)
        middle = (wide * place - 0.3, rows / 2)
        ax.text(*middle, "images", ha="center", va="center", rotation=90, fontsize=9)
        for row in range(rows):
            for col in range(cols):
                mean = int(means[row][col])
                _cell(ax, wide * place + col, rows - 1 - row, f"{mean}", colours[mean % 5])
        said.append(f"{norm}: " + "; ".join(", ".join(f"{int(m)}" for m in row) for row in means))
    ax.figure.set_label(
        "the mean that each plane takes part in, image by image. " + ". ".join(said)
    )
    return ax


def draw_gpu(name: str, sms: int, lanes: int, memory_gb: float, l2_mb: float) -> Axes:
    """Draw a GPU's multiprocessors (SMs), what one holds (`lanes` FP32 units), and their memory."""
    ax = _canvas(11, 4.6, (0, 22), (-0.2, 9))
    across = math.ceil(math.sqrt(1.6 * sms))
    side = min(10.4 / across, 5.6 / math.ceil(sms / across))
    for i in range(sms):
        x, y = (i % across) * side, 8.2 - (i // across + 1) * side
        ax.add_patch(Rectangle((x, y), 0.85 * side, 0.85 * side, color=ORANGE if i else BLUE))
    ax.text(0, 8.5, f"{name}: {sms} SMs", fontsize=11)
    _box(ax, 0, 1.4, 10.4, 0.8, f"L2 cache, {l2_mb:.0f} MB, for all SMs", YELLOW)
    _box(ax, 0, 0.2, 10.4, 0.8, f"global memory, {memory_gb:.0f} GB, beside the chip", PINK)
    ax.plot([0.85 * side, 12], [8.2, 8.2], ":", color="grey", lw=1)
    ax.plot([0.85 * side, 12], [8.2 - side, 0.2], ":", color="grey", lw=1)
    ax.add_patch(Rectangle((12, 0.2), 9.8, 8, fc="none", ec=BLUE, lw=2))
    ax.text(12, 8.5, "one SM: four parts that share one memory", fontsize=11)
    for part in range(4):
        _draw_sm_part(ax, 12.2 + 2.4 * part, lanes // 4)
    _box(ax, 12.2, 0.5, 9.3, 1.1, "shared memory and L1 cache: for the block's threads", YELLOW)
    ax.figure.set_label(
        f"{name}: {sms} SMs, each of four parts with a scheduler, registers, {lanes // 4} FP32 "
        f"lanes and a tensor core, that share one memory and L1 cache; all SMs share "
        f"{l2_mb:.0f} MB of L2 cache and {memory_gb:.0f} GB of global memory"
    )
    return ax


def draw_gather(shape: tuple[int, int], tile: Mapping[str, Sequence[int]]) -> Axes:
    """Draw an image, a number in each pixel, and beside it a tile that is gathered from it.

    `shape`: (H, W) of the image; `tile`: {name: a row}, for each element the pixel that it is read
    from, or -1 for a zero from outside. A colour for each row of the image, grey for zeros.
    """
    H, W = shape
    rows, cols = len(tile), max(map(len, tile.values()))
    colours, left = (BLUE, ORANGE, GREEN, PINK, YELLOW), W + 2.5
    high, wide = max(H, rows), left + cols
    ax = _canvas(0.45 * wide, 0.42 * high + 0.5, (-0.1, wide + 0.1), (-0.1, high + 1))
    for pixel in range(H * W):
        _cell(ax, pixel % W, high - 1 - pixel // W, f"{pixel}", colours[pixel // W % 5])
    for y, (name, row) in enumerate(tile.items()):
        _label(ax, left - 0.2, high - 0.55 - y, name)
        for x, pixel in enumerate(row):
            colour = colours[pixel // W % 5] if pixel >= 0 else GREY
            _cell(ax, left + x, high - 1 - y, f"{pixel}" if pixel >= 0 else "", colour)
    for x, words in ((W / 2, "the image"), (left + cols / 2, "the tile")):
        ax.text(x, high + 0.5, words, ha="center", va="center", fontsize=10)
    found = (
        f"{name}: {', '.join('zero' if pixel < 0 else str(pixel) for pixel in row)}"
        for name, row in tile.items()
    )
    ax.figure.set_label(f"pixels of a {H} × {W} image in a tile; {'; '.join(found)}")
    return ax


def draw_bank_tiles(tiles: Mapping[str, Sequence[Sequence[int]]]) -> Axes:
    """Draw tiles side by side, in each element's cell its bank of shared memory.

    `tiles`: {name: rows of words}, the place in shared memory of each element; there are as many
    banks as columns. A colour a bank; the first column is framed: whether its elements can come at
    once is what the picture shows.
    """
    (rows, banks), *_ = ((len(words), len(words[0])) for words in tiles.values())
    step = banks + 1.5
    ax = _canvas(8, 0.24 * rows + 0.4, (-0.1, len(tiles) * step - 1.4), (-0.2, rows + 1.1))
    found = []
    for i, (name, words) in enumerate(tiles.items()):
        x = i * step
        for row, col in itertools.product(range(rows), range(banks)):
            bank = words[row][col] % banks
            _cell(ax, x + col, rows - 1 - row, f"{bank}", colormaps["Set3"](bank % 12))
        ax.add_patch(Rectangle((x, -0.05), 1, rows, fc="none", ec=INK, lw=2.5))
        meeting = max(Counter(line[0] % banks for line in words).values())
        found.append(f"{name}: {count(meeting, 'wavefront')} for a column")
        ax.text(x + banks / 2, rows + 0.5, found[-1], ha="center", va="center", fontsize=10)
    columns = (
        f"{name}, banks of the first column {', '.join(str(line[0] % banks) for line in words)}"
        for name, words in tiles.items()
    )
    ax.figure.set_label(f"tiles in {banks} banks; {'; '.join(found)}; {'; '.join(columns)}")
    return ax


def draw_packs(width: int = 4, packs: int = 8, y: int = 2) -> Axes:
    """Draw how a thread turns packs around in registers, and where lanes of one `y` store theirs.

    `packs`: of a row of the tile, and as many banks of 16 bytes; a lane's pack goes to x ^ y.
    """
    colours = (BLUE, ORANGE, GREEN, PINK, YELLOW)
    side = 2 * width + 2.5
    ax = _canvas(9, 3.6, (-0.2, side + packs + 0.8), (-1.4, packs + 1.2))
    low = (packs - width) / 2
    for left, title in ((0, "read: rows of inp"), (width + 1, "turned: rows of out")):
        ax.text(left + width / 2, low + width + 0.3, title, ha="center", fontsize=10)
        for pack, k in itertools.product(range(width), repeat=2):
            row, col = (pack, k) if left == 0 else (k, pack)
            _cell(ax, left + k, low + width - 1 - pack, f"{row}{col}", colours[row % 5])
        for pack in range(width):
            corner = (left, low + pack)
            ax.add_patch(Rectangle(corner, width, 0.9, fc="none", ec=INK, lw=2))
    ax.annotate("", (width + 0.9, packs / 2), (width + 0.1, packs / 2), arrowprops={"color": INK})
    ax.text(side + packs / 2, packs + 0.6, "tile: packs, x ^ y", ha="center", fontsize=10)
    for x, place in itertools.product(range(packs), repeat=2):
        is_taken = place == x ^ y
        text = f"x {x}" if is_taken else ""
        _cell(ax, side + place, packs - 1 - x, text, BLUE if is_taken else GREY)
    banks = ", ".join(str(x ^ y) for x in range(packs))
    ax.text(side + packs / 2, -0.8, f"{packs} lanes with y = {y}: {packs} banks", ha="center")
    ax.figure.set_label(
        f"a thread reads {width} packs of {width} neighbours, 01 right of 00, and turns them round "
        f"in registers: then 10 is right of 00; lanes x = 0 to {packs - 1} of y = {y} store "
        f"a pack each in row x of the tile, at the places {banks}: all different"
    )
    return ax


def _draw_sm_part(ax: Axes, x: float, lanes: int) -> None:
    """Draw a quarter of an SM: a scheduler, registers, FP32 lanes, a tensor core."""
    _box(ax, x, 7.2, 2.1, 0.7, "scheduler", GREY, size=8)
    _box(ax, x, 6.2, 2.1, 0.8, "registers", GREEN, size=8)
    for lane in range(lanes):
        column, row = lane % 4, lane // 4
        corner = (x + 0.06 + 0.5 * column, 5.7 - 0.34 * row)
        ax.add_patch(Rectangle(corner, 0.42, 0.26, color=ORANGE))
    ax.text(x + 1.05, 2.95, f"{lanes} FP32 lanes", ha="center", fontsize=8)
    _box(ax, x, 1.9, 2.1, 0.8, "tensor core", BLUE, size=8)


def draw_attention_tiles(S_q: int, S_kv: int, rows: int, keys: int, causal: bool) -> Axes:
    """Draw which tiles of an attention's scores, rows × keys each, a kernel computes.

    Causal: query i sees keys 0 to i. Tiles that nobody may see are skipped, those that the
    diagonal crosses are masked.
    """
    down, across = -(-S_q // rows), -(-S_kv // keys)
    side = min(0.42, 6 / across)  # inches, of a tile
    step = 0.42 / side  # tiles that text and legend are laid out by
    xlim, ylim = (-1.4 * step, across + 3.4 * step), (-0.2 * step, down + 0.7 * step)
    ax = _canvas(side * (xlim[1] - xlim[0]), side * (ylim[1] - ylim[0]), xlim, ylim)
    counts = {"computed": 0, "computed, masked": 0, "skipped": 0}
    colours = dict(zip(counts, (GREEN, YELLOW, GREY), strict=True))
    for row, col in itertools.product(range(down), range(across)):
        last_query = min((row + 1) * rows, S_q) - 1
        last_key = min((col + 1) * keys, S_kv) - 1
        kind = "computed"
        if causal and col * keys > last_query:
            kind = "skipped"
        elif causal and last_key > row * rows:
            kind = "computed, masked"
        counts[kind] += 1
        corner = (col, down - 1 - row)
        ax.add_patch(Rectangle(corner, 1, 1, fc=colours[kind], ec="black", lw=0.6))
    above = {"ha": "center", "fontsize": 9}
    ax.text(across / 2, down + 0.15 * step, f"{S_kv:,} keys, {keys} a tile", **above)
    upright = {"ha": "right", "va": "center", "rotation": 90, "fontsize": 9}
    ax.text(-0.15 * step, down / 2, f"{S_q:,} queries, {rows} a tile", **upright)
    for i, (kind, number) in enumerate(counts.items()):
        if number:
            x, y = across + 0.4 * step, down - (0.8 + 0.9 * i) * step
            swatch = {"fc": colours[kind], "ec": "black", "lw": 0.6}
            ax.add_patch(Rectangle((x, y), 0.5 * step, 0.5 * step, **swatch))
            ax.text(x + 0.7 * step, y + 0.25 * step, f"{number} {kind}", va="center", fontsize=9)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    name = "causal attention" if causal else "attention"
    ax.figure.set_label(
        f"{name}, {S_q:,} queries by {S_kv:,} keys in tiles of {rows} by {keys}: {said}"
    )
    return ax


def draw_mma(owners: Mapping[str, torch.Tensor], lane: int) -> Axes:
    """Draw who holds what in a product of matrices by a warp: A left, B above, C where they meet.

    owners[name][row, col] is the lane that holds the element; those of `lane` stand out.
    """
    a, b, c = (owners[name] for name in "ABC")
    (M, K), N = a.shape, b.shape[1]
    gap = 1.5
    across, up = K + N + gap, M + K + gap
    ax = _canvas(0.2 * across, 0.2 * up, (-0.8, across + 0.1), (-0.2, up + 0.8))
    corners = {"A": (0, 0), "B": (K + gap, M + gap), "C": (K + gap, 0)}
    held = []
    for name, matrix in (("A", a), ("B", b), ("C", c)):
        x, y = corners[name]
        rows, cols = matrix.shape
        for row, col in itertools.product(range(rows), range(cols)):
            owner = int(matrix[row, col])
            colour = ORANGE if owner == lane else YELLOW if owner // 4 == lane // 4 else "white"
            place = (x + col, y + rows - 1 - row)
            ax.add_patch(Rectangle(place, 1, 1, fc=colour, ec="black", lw=0.4))
            middle = {"ha": "center", "va": "center", "fontsize": 8, "color": "black"}
            ax.text(place[0] + 0.5, place[1] + 0.5, f"{owner}", **middle)
        ax.text(x + cols / 2, y + rows + 0.2, f"{name}: {rows} × {cols}", ha="center", fontsize=9)
        places = [f"({r}, {c})" for r, c in (matrix == lane).nonzero().tolist()]
        held.append(f"of {name} {' '.join(places)}")
    words = f"in a cell: the lane that\nholds the element;\norange: lane {lane},\n"
    words += f"yellow: lanes {lane // 4 * 4} to {lane // 4 * 4 + 3}"
    ax.text(0, M + K + gap, words, va="top", fontsize=9)
    ax.figure.set_label(f"lane {lane} of a warp holds {'; '.join(held)}")
    return ax


def draw_product(
    owners: torch.Tensor, who: int, cell: tuple[int, int], name: str = "thread"
) -> Axes:
    """Draw who makes which elements of a product, and which rows of A and columns of B one needs.

    owners[row, col] is the number of the thread that makes a cell's elements, `cell` of them down
    and across, or -1. The cells of `who` stand out, and for one k what it needs of A, at the left,
    and of B, above.
    """
    rows, cols = owners.shape
    step = min(max(0.34, 2 / rows), 6 / cols)  # inches, of a cell
    middle, words = 2 + cols / 2, 2.8 / step  # half the line of text below
    xlim = (min(-1 / step, middle - words), max(2.1 + cols, middle + words))
    ylim = (-0.3 / step, rows + 2.1)
    ax = _canvas(step * (xlim[1] - xlim[0]), step * (ylim[1] - ylim[0]), xlim, ylim)
    mine = owners == who
    for row, col in itertools.product(range(rows), range(cols)):
        owner = int(owners[row, col])
        colour = ORANGE if owner == who else "white"
        place = (2 + col, rows - 1 - row)
        ax.add_patch(Rectangle(place, 1, 1, fc=colour, ec="black", lw=0.4))
        centred = {"ha": "center", "va": "center", "fontsize": 8, "color": "black"}
        ax.text(place[0] + 0.5, place[1] + 0.5, f"{owner}" if owner >= 0 else "", **centred)
    needed = {"A": mine.any(1), "B": mine.any(0)}
    for at, is_needed in enumerate(needed["A"].tolist()):
        colour = BLUE if is_needed else "white"
        ax.add_patch(Rectangle((0, rows - 1 - at), 1, 1, fc=colour, ec="black", lw=0.4))
    for at, is_needed in enumerate(needed["B"].tolist()):
        colour = GREEN if is_needed else "white"
        ax.add_patch(Rectangle((2 + at, rows + 1), 1, 1, fc=colour, ec="black", lw=0.4))
    down, right = cell
    ax.text(-0.1 / step, rows / 2, "a column\nof A", ha="right", va="center", fontsize=9)
    ax.text(1.7, rows + 1.5, "a row of B", ha="right", va="center", fontsize=9)
    size = f"{rows * down} × {cols * right} elements of out, a cell is {down} × {right}"
    legend = f"{size}; in a cell: the {name} that makes it"
    ax.text(middle, -0.08 / step, legend, ha="center", va="top", fontsize=9)
    places = {
        x: " ".join(map(str, is_needed.nonzero().flatten().tolist()))
        for x, is_needed in needed.items()
    }
    ax.figure.set_label(
        f"{size}; {name} {who} makes rows of cells {places['A']} in columns of cells "
        f"{places['B']}: {int(mine.sum()) * down * right} elements, from "
        f"{int(needed['A'].sum()) * down} numbers of A and {int(needed['B'].sum()) * right} of B"
    )
    return ax


def _raised(number: int) -> str:
    """Return a number as an exponent."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(filter(None, names)) or "nothing"


def _link(ax: Axes, start: tuple, end: tuple, width: float, name: str) -> None:
    """Draw a link between two places, as thick as it is fast, with its name beside the middle."""
    ax.plot([start[0], end[0]], [start[1], end[1]], color=BLUE, lw=width, solid_capstyle="butt")
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    upright = start[0] == end[0]
    place = {"ha": "left", "va": "center"} if upright else {"ha": "center", "va": "bottom"}
    ax.text(x + 0.4 * upright, y + 0.25 * (not upright), name, fontsize=9, **place)


def _label(ax: Axes, x: float, y: float, text: str) -> None:
    ax.text(x, y, text, ha="right", va="center", fontsize=9)


def _span(
    ax: Axes, start: float, length: float, y: float, text: str, colour: str, whole: float
) -> None:
    """Draw a stretch of time, of a picture of `whole`; its text only where there is room."""
    ax.add_patch(Rectangle((start, y), length, 0.7, fc=colour, ec="black", lw=0.6))
    if length > 0.012 * whole * len(text):
        place = (start + length / 2, y + 0.35)
        ax.text(*place, text, ha="center", va="center", fontsize=8, color="black")


def _canvas(width: float, height: float, xlim: tuple, ylim: tuple) -> Axes:
    _, ax = plt.subplots(figsize=(min(width, WIDEST), height), layout="constrained")
    ax.set(xlim=xlim, ylim=ylim)
    ax.set_axis_off()
    return ax


def _row(ax: Axes, names: Sequence[str], x: float, width: float, y: float, colour: str) -> None:
    step = width / len(names)
    for i, name in enumerate(names):
        if name:
            _box(ax, x + i * step, y, step - 0.12, 0.8, name, colour)


def _box(
    ax: Axes, x: float, y: float, w: float, h: float, text: str, colour: str, size: float = 9
) -> None:
    style = "round,pad=0,rounding_size=0.05"
    ax.add_patch(FancyBboxPatch((x, y), w, h, boxstyle=style, fc=colour, ec="black", lw=0.6))
    ax.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=size, color="black")


def _cell(ax: Axes, x: float, y: float, text: str, colour: str) -> None:
    ax.add_patch(Rectangle((x, y), 1, 0.9, fc=colour, ec="black", lw=0.6))
    ax.text(x + 0.5, y + 0.45, text, ha="center", va="center", fontsize=9, color="black")
