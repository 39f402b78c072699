"""Warps of one scheduler, tick by tick: when each issues, waits, or has to let another go first."""

from dataclasses import dataclass
from functools import cache

from helpers.base.words import count
from helpers.play.thing import Control, Scene, Thing
from helpers.trace.colours import BLUE, YELLOW
from helpers.trace.squares import Drawing

WARPS = [1, 2, 3, 4, 6, 8, 12, 16]
LATENCIES = [4, 8, 16, 32]  # ticks from an instruction until its result may be used
CHAINS = [1, 2, 4, 8]  # instructions of a warp that do not depend on each other
SHOWN = 64  # ticks that are drawn
LONG_RUN = 1024

TICK, ROW = 12, 17  # pixels
LEFT, TOP = 80, 36
BOTTOM = TOP + max(WARPS) * ROW + 10
WIDTH, HEIGHT = LEFT + SHOWN * TICK + 18, BOTTOM + ROW + 32


@dataclass(frozen=True)
class Schedule:
    """What a scheduler did, tick by tick."""

    issued: list[int | None]  # the warp, or None: no warp was ready
    ready: list[list[int]]  # warps that could have issued as well

    @property
    def share(self) -> float:
        """The share of ticks in which an instruction was issued."""
        return sum(warp is not None for warp in self.issued) / len(self.issued)


@cache
def schedule(warps: int, latency: int, chains: int, ticks: int = LONG_RUN) -> Schedule:
    """Return what a scheduler issues: one instruction a tick, of the warp that waited longest.

    A warp has so many chains of instructions, which it takes in turns. In a chain each instruction
    needs the result of the one before, `latency` ticks after that was issued.
    """
    free = [[0] * chains for _ in range(warps)]  # by warp and chain: when the next may be issued
    turns, last = [0] * warps, [-1] * warps
    issued: list[int | None] = []
    ready = []
    for tick in range(ticks):
        able = [warp for warp in range(warps) if free[warp][turns[warp] % chains] <= tick]
        chosen = min(able, key=lambda warp: (last[warp], warp), default=None)
        issued.append(chosen)
        ready.append([warp for warp in able if warp != chosen])
        if chosen is not None:
            free[chosen][turns[chosen] % chains] = tick + latency
            turns[chosen] += 1
            last[chosen] = tick
    return Schedule(issued, ready)


def play_stalls() -> Thing:
    """Choose how many warps a scheduler has, and how long their instructions take."""
    controls = [
        Control("warps", WARPS, [f"{n}" for n in WARPS], 1, slides=True),
        Control("latency", LATENCIES, [f"{n} ticks" for n in LATENCIES], 1, slides=True),
        Control("independent instructions", CHAINS, [f"{n}" for n in CHAINS], slides=True),
    ]
    return Thing("One scheduler of an SM, and its warps", controls, stalls_scene)


def stalls_scene(warps: int, latency: int, chains: int) -> Scene:
    """Draw who issues when, and say how much of the time the scheduler has something to do."""
    ran = schedule(warps, latency, chains)
    text = (
        f"The scheduler issues in {ran.share:.0%} of the ticks. {count(warps, 'warp')} with "
        f"{count(chains, 'instruction')} on the way each are {warps * chains}; Little's law asks "
        f"for {latency}, one for each tick of the latency."
    )
    return Scene([_axis(), _warps(ran, warps)], [text])


def _axis() -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT)
    words = "blue: issues; white: waits for a result; yellow: ready, but it is another's turn"
    drawing.text(LEFT + SHOWN * TICK / 2, 17, words, 12)
    drawing.text(LEFT / 2, BOTTOM + ROW / 2, "scheduler", 12)
    for tick in range(0, SHOWN + 1, 16):
        drawing.text(LEFT + tick * TICK, BOTTOM + ROW + 15, f"{tick}", 11)
    drawing.text(LEFT + 8 * TICK, BOTTOM + ROW + 15, "ticks", 11)
    return drawing


def _warps(ran: Schedule, warps: int) -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT)
    for warp in range(warps):
        y = TOP + warp * ROW
        drawing.text(LEFT / 2, y + ROW / 2, f"warp {warp}", 11)
        drawing.box(LEFT, y, SHOWN * TICK, ROW, "white", "#777777")
        _runs(drawing, y, [warp in able for able in ran.ready[:SHOWN]], YELLOW)
        _runs(drawing, y, [who == warp for who in ran.issued[:SHOWN]], BLUE)
    drawing.box(LEFT, BOTTOM, SHOWN * TICK, ROW, "white", "#777777")
    _runs(drawing, BOTTOM, [who is not None for who in ran.issued[:SHOWN]], BLUE)
    return drawing


def _runs(drawing: Drawing, y: int, marks: list[bool], colour: str) -> None:
    """Draw a box for each run of ticks that are marked."""
    tick = 0
    while tick < len(marks):
        end = tick + 1
        while end < len(marks) and marks[end] == marks[tick]:
            end += 1
        if marks[tick]:
            drawing.box(LEFT + tick * TICK, y + 2, (end - tick) * TICK, ROW - 4, colour)
        tick = end
