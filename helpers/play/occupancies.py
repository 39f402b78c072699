"""What fits on an SM: threads, registers and shared memory of a block against a chip's room."""

from helpers.base.gpu import KB
from helpers.base.palette import ALARM
from helpers.base.words import count
from helpers.play.thing import Control, Scene, Thing
from helpers.trace.colours import ORANGE, PALE, SKY
from helpers.trace.occupancy import Occupancy, occupancy
from helpers.trace.squares import Drawing

CHIPS = ["T4", "A100", "RTX 4090", "H200"]
THREADS = [32, 64, 128, 192, 256, 512, 1024]
REGISTERS = [16, 32, 40, 48, 64, 80, 96, 128, 255]
SHARED_KB = [0, 8, 16, 32, 48, 64, 96, 160, 227]
ROOM = {"blocks": "places for blocks", "warps": "places for warps"}

PLACE = 28  # pixels: the side of a warp's place
LEFT, TOP, PER_ROW = 18, 40, 8
BARS, BAR, UNIT = 400, 30, 9  # where the bars begin, their height, and a block's width in them
MOST_BLOCKS = 32  # of an SM, of all chips; longer bars are cut
WIDTH, HEIGHT = BARS + MOST_BLOCKS * UNIT + 64, TOP + 8 * PLACE + 18


def play_occupancy() -> Thing:
    """Choose a chip and what a block takes; see how many blocks an SM holds, and why no more."""
    controls = [
        Control("chip", CHIPS, CHIPS, CHIPS.index("H200")),
        Control("threads a block", THREADS, [f"{n:,}" for n in THREADS], 4, slides=True),
        Control("registers a thread", REGISTERS, [f"{n}" for n in REGISTERS], 4, slides=True),
        Control("shared memory a block", SHARED_KB, [f"{n} KB" for n in SHARED_KB], slides=True),
    ]
    return Thing("What one SM holds", controls, occupancy_scene)


def occupancy_scene(chip: str, threads: int, registers: int, shared_kb: int) -> Scene:
    """Draw an SM's places for warps, which of them are taken, and how far each resource goes."""
    found = occupancy(chip, threads, KB * shared_kb, registers)
    bars = [
        _bar(row, name, limit, name in found.limiters)
        for row, (name, limit) in enumerate(found.limits.items())
    ]
    return Scene([_places(found), *bars], [*_words(found)])


def _words(found: Occupancy) -> tuple[str, ...]:
    limiters = " and ".join(ROOM.get(name, name) for name in found.limiters)
    if not found.blocks:
        return f"Not one block fits an SM, limited by {limiters}: the launch fails.", ""
    warps = found.warps // found.blocks
    held = (
        f"{100 * found.fraction:.3g}% occupancy: {found.warps} of {found.chip.warps} warps, "
        f"{count(found.blocks, 'block')} of {count(warps, 'warp')}. "
    )
    limited = f"What is used up first: {limiters}. "
    free = f"With up to {found.free_registers} registers a thread the rest would be the limit."
    return held, limited, free


def _places(found: Occupancy) -> Drawing:
    """Draw a place for each warp, with the number of the block that has it."""
    drawing = Drawing(WIDTH, HEIGHT)
    middle = LEFT + PER_ROW * PLACE / 2
    drawing.text(middle, 20, f"{found.chip.warps} places for warps, by block", 12)
    rows = found.chip.warps // PER_ROW
    drawing.box(LEFT, TOP, PER_ROW * PLACE, rows * PLACE, "white")
    for warp in range(found.warps):
        block = warp * found.blocks // found.warps
        x, y = LEFT + warp % PER_ROW * PLACE, TOP + warp // PER_ROW * PLACE
        drawing.box(x, y, PLACE, PLACE, (SKY, PALE)[block % 2])
        drawing.text(x + PLACE / 2, y + PLACE / 2, f"{block}", 11)
    drawing.box(LEFT, TOP, PER_ROW * PLACE, rows * PLACE, "none", "#777777", side=PLACE)
    return drawing


def _bar(row: int, name: str, limit: int | None, is_least: bool) -> Drawing:
    """Draw for how many blocks a resource has room."""
    drawing = Drawing(WIDTH, HEIGHT)
    y = TOP + 12 + row * (BAR + 22)
    if row == 0:
        drawing.text(BARS + MOST_BLOCKS * UNIT / 2, 20, "blocks that an SM has room for", 12)
    drawing.text((LEFT + PER_ROW * PLACE + BARS) / 2, y + BAR / 2, f"by {name}", 12)
    if limit is None:
        drawing.text(BARS + 40, y + BAR / 2, "none is used", 12)
        return drawing
    length = UNIT * min(limit, MOST_BLOCKS)
    if length:
        style = (ORANGE, "black", 2) if is_least else ("white", "#777777")
        drawing.box(BARS, y, length, BAR, *style)
    drawing.text(BARS + length + 24, y + BAR / 2, f"{limit}", 13, ALARM if is_least else "black")
    return drawing
