"""A warp's load from a matrix, laid over memory: block shape and stride against sectors."""

from helpers.base.gpu import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from helpers.base.words import count
from helpers.play.thing import Control, Scene, Thing
from helpers.trace.colours import BLUE, ORANGE, PALE
from helpers.trace.model import ideal_sectors, sectors
from helpers.trace.squares import Drawing

SHAPES = [(32, 1), (16, 2), (8, 4), (4, 8), (2, 16), (1, 32)]
STRIDES = [1, 2, 4, 8, 16, 32]
STARTS = [0, 1, 4, 8]
SIZES = {"float, 4 bytes": 4, "uint8, 1 byte": 1}
COLUMNS = 2048  # of the matrix: whole lines, and room for each stride

LEFT, TOP, ROW, BYTE = 90, 52, 15, 6  # pixels; a line of the picture, and a byte in it
MOST_LINES = 16  # that are drawn
WIDTH, HEIGHT = 872, TOP + MOST_LINES * ROW + 30


def play_sectors() -> Thing:
    """Choose a block, a stride and a first column; see which sectors a warp's load touches."""
    controls = [
        Control("block", SHAPES, [f"{x} × {y}" for x, y in SHAPES], 2),
        Control("stride", STRIDES, [f"{stride}" for stride in STRIDES], slides=True),
        Control("first column", STARTS, [f"{start}" for start in STARTS], slides=True),
        Control("elements", list(SIZES.values()), list(SIZES)),
    ]
    return Thing("A load of one warp, laid over memory", controls, sectors_scene)


def offsets_of(shape: tuple[int, int], stride: int, start: int, size: int) -> list[int]:
    """Return the byte that each lane's element begins at.

    Thread (x, y) loads inp[y * COLUMNS + start + x * stride].
    """
    threads = [(lane % shape[0], lane // shape[0]) for lane in range(WARP_SIZE)]
    return [size * (y * COLUMNS + start + x * stride) for x, y in threads]


def sectors_scene(shape: tuple[int, int], stride: int, start: int, size: int) -> Scene:
    """Draw the lines of memory that the load touches, and say what it moves."""
    offsets = offsets_of(shape, stride, start, size)
    lines = sorted({offset // LINE_BYTES for offset in offsets})
    moved = {offset // SECTOR_BYTES for offset in offsets}  # aligned: none reaches into a second
    touched = sectors(offsets, size)
    used = len(set(offsets)) * size
    text = (
        f"{WARP_SIZE} lanes ask for {used} bytes. They touch {count(touched, 'sector')} in "
        f"{count(len(lines), 'line')}, {ideal_sectors(offsets, size)} would do; of the "
        f"{touched * SECTOR_BYTES:,} bytes that are moved "
        f"{100 * used / touched / SECTOR_BYTES:.3g}% are used."
    )
    memory = _memory(lines, moved)
    return Scene([memory, _lanes(lines, offsets, size)], [text])


def _memory(lines: list[int], moved: set[int]) -> Drawing:
    """Draw lines of four sectors, those that are moved in colour."""
    drawing = Drawing(WIDTH, HEIGHT)
    middle = LEFT + LINE_BYTES // 2 * BYTE
    load = f"thread (x, y) loads inp[y * {COLUMNS} + first column + x * stride]"
    drawing.text(middle, 18, load, 13)
    drawing.text(middle, 38, "a row is a line of 128 bytes: four sectors", 11)
    width = SECTOR_BYTES * BYTE
    for row, line in enumerate(lines[:MOST_LINES]):
        y = TOP + row * ROW
        drawing.text(LEFT // 2, y + ROW / 2, f"line {line:,}", 11)
        for part in range(LINE_BYTES // SECTOR_BYTES):
            is_moved = line * LINE_BYTES // SECTOR_BYTES + part in moved
            style = (PALE, ORANGE) if is_moved else ("white", "#777777")
            drawing.box(LEFT + part * width, y, width, ROW, *style)
    if len(lines) > MOST_LINES:
        more = f"and {len(lines) - MOST_LINES} more lines"
        drawing.text(middle, HEIGHT - 15, more, 11)
    return drawing


def _lanes(lines: list[int], offsets: list[int], size: int) -> Drawing:
    """Draw the elements that are asked for, with the lanes' numbers where there is room."""
    drawing = Drawing(WIDTH, HEIGHT)
    for lane, offset in enumerate(offsets):
        row = lines.index(offset // LINE_BYTES)
        if row < MOST_LINES:
            x, y = LEFT + offset % LINE_BYTES * BYTE, TOP + row * ROW
            drawing.box(x, y + 1, size * BYTE, ROW - 2, BLUE, "white")
            if size * BYTE >= 20:
                drawing.text(x + size * BYTE / 2, y + ROW / 2, f"{lane}", 11, "white")
    return drawing
