"""Pictures of a launch: the lanes that each line keeps active, the stages between barriers."""

from collections import Counter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from helpers.base.gpu import WARP_SIZE
from helpers.base.images import Picture
from helpers.base.palette import INK
from helpers.base.words import LONGEST_TEXT, count, shorten
from helpers.trace.colours import BLUE, GREEN, ORANGE, PALE, PINK, SKY, VERMILION, YELLOW
from helpers.trace.picture import WIDTH, legend
from helpers.trace.record import Launch, Line, Stage

MOST_STAGES = 6
MOST_WARPS = 8
KINDS = {  # of requests: colour, hatch
    "global load": (BLUE, ""),
    "global store": (VERMILION, "////"),
    "shared load": (SKY, "...."),
    "shared store": (ORANGE, "\\\\\\\\"),
    "texture load": (GREEN, "oo"),
    "surface load": (YELLOW, "++"),
    "surface store": (PALE, "--"),
    "atomic": (PINK, "xxxx"),
}


def draw_lanes(launch: Launch) -> Picture:
    """Draw how many of the 32 lanes were active in each line, the mean over its executions.

    Raises ValueError if no line ran.
    """
    ran = [line for line in launch.lines if line.executions]
    if not ran:
        raise ValueError(f"{launch.kernel}: no line ran")
    figure = Figure(figsize=(WIDTH, 1.0 + 0.25 * len(ran)), layout="constrained")
    ax = figure.subplots()
    for y, line in enumerate(ran):
        lanes = line.lanes / line.executions
        style = (
            {"fc": BLUE} if lanes == WARP_SIZE else {"fc": PALE, "ec": "#B06F00", "hatch": "////"}
        )
        ax.add_patch(Rectangle((0, y + 0.1), lanes, 0.8, lw=0, **style))
        for lane in range(WARP_SIZE):
            ax.add_patch(Rectangle((lane, y + 0.1), 1, 0.8, fill=False, ec="0.6", lw=0.5))
        ax.text(WARP_SIZE + 0.4, y + 0.5, f"{lanes:.4g}", va="center", fontsize=9, weight="bold")
        ax.text(WARP_SIZE + 9, y + 0.5, f"{line.executions:,}", va="center", ha="right", fontsize=9)
    ax.text(WARP_SIZE + 0.4, -0.15, "lanes", fontsize=8, va="bottom")
    ax.text(WARP_SIZE + 9, -0.15, "executions", fontsize=8, ha="right", va="bottom")
    ax.set(xlim=(0, WARP_SIZE + 9), ylim=(len(ran), 0))
    ax.set_yticks([y + 0.5 for y in range(len(ran))], list(map(_source, ran)))
    for label in ax.get_yticklabels():
        label.set(family="monospace", fontsize=8, ha="left", parse_math=False)
    ax.set_xticks(range(0, WARP_SIZE + 1, 8))
    ax.set_xlabel("lanes active of the 32 of a warp, mean over the executions by warps", x=0.4)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    longest = max(len(_source(line)) for line in ran)
    ax.tick_params(axis="y", pad=4.9 * longest + 12)  # points: monospace letters of 8 points
    figure.suptitle(f"{launch.kernel}: lanes active in each line", fontsize=10)
    means = {line.line: line.lanes / line.executions for line in ran}
    partly = [f"line {line}: {mean:.4g}" for line, mean in means.items() if mean < WARP_SIZE]
    rest = f"not all 32 are in {', '.join(partly)}" if partly else "all 32 lanes are active"
    return Picture(figure, f"{launch.kernel}: lanes active in {count(len(ran), 'line')}; {rest}.")


def draw_timeline(launch: Launch) -> Picture:
    """Draw what the warps of the first block asked of memory between its barriers.

    Raises ValueError if the block asked for nothing.
    """
    if not launch.stages:
        raise ValueError(f"{launch.kernel}: its first block did not ask for memory")
    cells: dict[tuple[int, int], Counter] = {}
    for stage in launch.stages:
        cell = cells.setdefault((stage.number, stage.warp), Counter())
        cell[_kind(stage)] += stage.requests
    numbers = range(1 + max(number for number, _ in cells))
    warps = range(1 + max(warp for _, warp in cells))
    stages_shown, warps_shown = numbers[:MOST_STAGES], warps[:MOST_WARPS]
    shown = [cell for (n, warp), cell in cells.items() if n in stages_shown and warp in warps_shown]
    kinds = [kind for kind in KINDS if any(kind in cell for cell in shown)]
    most = max((max(cell.values()) for cell in shown), default=0)
    row = 0.15 * len(kinds) + 0.15
    figure = Figure(figsize=(WIDTH, 1.7 + row * len(warps_shown)), layout="constrained")
    ax = figure.subplots()
    for number in stages_shown:
        for warp in warps_shown:
            _draw_cell(ax, number, warp, cells.get((number, warp), Counter()), kinds, most)
        if number:
            ax.axvline(number, color=INK, lw=2.5)
    for warp in warps_shown[1:]:
        ax.axhline(warp, color=INK, lw=0.4)
    ax.set(xlim=(0, len(stages_shown)), ylim=(len(warps_shown), 0))
    names = [_stage_name(launch, number) for number in stages_shown]
    ax.set_xticks([number + 0.5 for number in stages_shown], names, fontsize=8)
    ax.set_yticks([warp + 0.5 for warp in warps_shown], [f"warp {w}" for w in warps_shown])
    ax.tick_params(length=0)
    left_out = {"stage": len(numbers[MOST_STAGES:]), "warp": len(warps[MOST_WARPS:])}
    more = [count(number, f"more {what}") for what, number in left_out.items() if number]
    note = f" · not shown: {', '.join(more)}" if more else ""
    ax.set_xlabel(f"stages of the first block, a thick line is a barrier{note}")
    patches = [Patch(fc=KINDS[k][0], hatch=KINDS[k][1], ec="black", lw=0.5, label=k) for k in kinds]
    legend(figure, patches)
    figure.suptitle(f"{launch.kernel}: requests between barriers", fontsize=10)
    totals = {n: sum((c for (s, _), c in cells.items() if s == n), Counter()) for n in stages_shown}
    words = [f"stage {n}: {_requests(totals[n])}" for n in stages_shown]
    alt = (
        f"{launch.kernel}, first block, {count(len(warps), 'warp')} in "
        f"{count(len(numbers), 'stage')} between barriers. {'; '.join(words)}{note}."
    )
    return Picture(figure, alt)


def _draw_cell(ax: Axes, stage: int, warp: int, cell: Counter, kinds: list[str], most: int) -> None:
    """Draw the requests of one warp in one stage: a bar for each kind, with its number."""
    for i, kind in enumerate(kinds):
        if cell[kind]:
            height = 0.8 / len(kinds)
            color, hatch = KINDS[kind]
            length = 0.72 * cell[kind] / most
            y = warp + 0.1 + i * height
            style = {"fc": color, "hatch": hatch, "ec": "black", "lw": 0.5, "gid": kind}
            ax.add_patch(Rectangle((stage + 0.06, y), length, 0.9 * height, **style))
            end = stage + 0.08 + length
            ax.text(end, y + height / 2, f"{cell[kind]:,}", va="center", fontsize=8)


def _source(line: Line) -> str:
    return f"{line.line:>3}  {shorten(line.text, LONGEST_TEXT)}"


def _kind(stage: Stage) -> str:
    return "atomic" if stage.operation == "atomic" else f"{stage.space} {stage.operation}"


def _requests(counts: Counter) -> str:
    parts = [f"{count(counts[kind], f'{kind} request')}" for kind in KINDS if counts[kind]]
    return ", ".join(parts) or "no request"


def _stage_name(launch: Launch, number: int) -> str:
    lines = sorted({stage.line for stage in launch.stages if stage.number == number})
    if not lines:
        return f"stage {number}"
    if len(lines) == 1:
        return f"stage {number}\nline {lines[0]}"
    return f"stage {number}\nlines {lines[0]}–{lines[-1]}"
