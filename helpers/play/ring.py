"""A ring of stages: tiles that are asked for ahead, and products that wait for them, or do not."""

from dataclasses import dataclass
from functools import cache

from helpers.base.words import count
from helpers.play.thing import Control, Scene, Thing
from helpers.trace.colours import BLUE, PALE
from helpers.trace.squares import Drawing

STAGES = range(1, 9)
LATENCIES = [100, 300, 600, 900, 1200]  # ticks from asking for a tile until it is there
WORKS = [128, 256, 300, 512]  # ticks of products with one tile
SHOWN = 4000  # ticks that are drawn
LONG_RUN = 1000  # steps

TICKS = 5  # a pixel
LEFT, TOP, ROW = 76, 34, 26
BOTTOM = TOP + len(STAGES) * ROW + 12
WIDTH, HEIGHT = LEFT + SHOWN // TICKS + 20, BOTTOM + ROW + 34


@dataclass(frozen=True)
class Step:
    """When a tile is asked for and there, and when products with it begin and end, in ticks."""

    asked: int
    here: int
    begin: int
    end: int


def ring_steps(stages: int, latency: int, work: int, steps: int) -> list[Step]:
    """Return the steps of the model: a tile is asked for as soon as its stage is empty.

    Products run one step after the other.
    """
    done: list[Step] = []
    for step in range(steps):
        asked = done[step - stages].end if step >= stages else 0
        begin = max(asked + latency, done[-1].end if done else 0)
        done.append(Step(asked, asked + latency, begin, begin + work))
    return done


@cache
def busy_share(stages: int, latency: int, work: int) -> float:
    """Return the share of time in which products run, in the long run."""
    return LONG_RUN * work / ring_steps(stages, latency, work, LONG_RUN)[-1].end


def play_ring() -> Thing:
    """Choose how many stages a ring has and how long loads and products take."""
    controls = [
        Control("stages", STAGES, [f"{n}" for n in STAGES], 1, slides=True),
        Control("ticks to load", LATENCIES, [f"{n:,}" for n in LATENCIES], 3, slides=True),
        Control("ticks to multiply", WORKS, [f"{n}" for n in WORKS], 1, slides=True),
    ]
    return Thing("A ring of stages", controls, ring_scene)


def ring_scene(stages: int, latency: int, work: int) -> Scene:
    """Draw what each stage waits for, and below when products run."""
    share = busy_share(stages, latency, work)
    needed = next(n for n in range(1, 100) if busy_share(n, latency, work) > 0.98)
    text = (
        f"In the long run products run {share:.0%} of the time. A stage is away for "
        f"{latency + work:,} ticks, in which {(latency + work) / work:.1f} steps could pass: "
        f"{count(needed, 'stage')} would keep the products going."
    )
    steps = ring_steps(stages, latency, work, SHOWN // work + 2)
    return Scene([_axis(), _stages(steps, stages)], [text])


def _axis() -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT)
    drawing.box(LEFT, BOTTOM, SHOWN // TICKS, ROW, "white", "#777777")
    drawing.text(LEFT / 2, BOTTOM + ROW / 2, "products", 12)
    for ticks in range(0, SHOWN + 1, 1000):
        drawing.text(LEFT + ticks // TICKS, BOTTOM + ROW + 16, f"{ticks:,}", 11)
    drawing.text(LEFT + 500 // TICKS, BOTTOM + ROW + 16, "ticks", 11)
    words = "pale: the tile is on its way; white: it is there, and waits; blue: products with it"
    drawing.text(LEFT + SHOWN // TICKS / 2, 17, words, 12)
    return drawing


def _stages(steps: list[Step], stages: int) -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT)
    for stage in range(stages):
        y = TOP + stage * ROW
        drawing.text(LEFT / 2, y + ROW / 2, f"stage {stage}", 12)
        drawing.box(LEFT, y, SHOWN // TICKS, ROW, "white", "#777777")
    for number, step in enumerate(steps):
        y = TOP + number % stages * ROW
        _bar(drawing, y, step.asked, step.here, PALE, "")
        _bar(drawing, y, step.begin, step.end, BLUE, f"{number}")
        _bar(drawing, BOTTOM, step.begin, step.end, BLUE, f"{number}")
    return drawing


def _bar(drawing: Drawing, y: int, begin: int, end: int, colour: str, words: str) -> None:
    left, right = (min(ticks, SHOWN) // TICKS for ticks in (begin, end))
    if right > left:
        drawing.box(LEFT + left, y + 3, right - left, ROW - 6, colour, "#777777")
    if words and right - left >= 16:
        drawing.text(LEFT + (left + right) / 2, y + ROW / 2, words, 11, "white")
