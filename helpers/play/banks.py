"""A warp's load from a tile in shared memory: padding and swizzling against banks."""

from collections import Counter

from helpers.base.gpu import BANKS, WARP_SIZE, WORD_BYTES
from helpers.base.palette import ALARM
from helpers.base.words import count
from helpers.play.thing import Control, Scene, Thing
from helpers.trace.colours import BLUE, VERMILION
from helpers.trace.model import ideal_wavefronts, wavefronts
from helpers.trace.squares import Drawing

TILE = 32
PLACES = {  # where an element of the tile is stored: its word
    "plain": lambda row, col: 32 * row + col,
    "a pitch of 33": lambda row, col: 33 * row + col,
    "a pitch of 36": lambda row, col: 36 * row + col,
    "a pitch of 40": lambda row, col: 40 * row + col,
    "swizzled": lambda row, col: 32 * row + (col ^ row),
}
READS = {  # the element that a lane reads
    "a row": lambda lane, k: (k, lane),
    "a column": lambda lane, k: (lane, k),
    "a diagonal": lambda lane, k: (lane, (lane + k) % TILE),
    "four rows of 8": lambda lane, k: (k + lane // 8, lane % 8),
    "eight rows of 4": lambda lane, k: (k + lane // 4, lane % 4),
}
BEGINS = [0, 1, 2, 4, 8, 16]  # k

CELL, ROW = 22, 13  # pixels
LEFT, TOP = 74, 34
ROWS = 40  # of 32 words, that the widest pitch needs
WIDTH, HEIGHT = LEFT + BANKS * CELL + 14, TOP + ROWS * ROW + 34
EMPTY = "#CFCFCC"


def play_banks() -> Thing:
    """Choose how a tile is stored and what a warp reads of it; see which banks have to answer."""
    controls = [
        Control("stored", list(PLACES.values()), list(PLACES)),
        Control("a warp reads", list(READS.values()), list(READS), 1),
        Control("from", BEGINS, [f"{k}" for k in BEGINS], slides=True),
    ]
    title = "A tile of 32 × 32 floats in shared memory, 32 words a row, and a load of one warp"
    return Thing(title, controls, banks_scene)


def banks_scene(place, read, k: int) -> Scene:
    """Draw the words of shared memory, a column for each bank, and what the lanes want."""
    words = [place(*read(lane, k)) for lane in range(WARP_SIZE)]
    offsets = [WORD_BYTES * word for word in words]
    asked = Counter(word % BANKS for word in set(words))
    bank, most = max(asked.items(), key=lambda item: item[1])
    turns = wavefronts(offsets, WORD_BYTES)
    text = (
        f"{count(turns, 'wavefront')}, {ideal_wavefronts(offsets, WORD_BYTES)} would do: the 32 "
        f"words lie in {count(len(asked), 'bank')} of {BANKS}, and "
        + (f"bank {bank} has to give {most} of them." if most > 1 else "each gives one.")
    )
    stored = {place(row, col) for row in range(TILE) for col in range(TILE)}
    return Scene([_memory(stored), _lanes(words), _counts(asked)], [text])


def _memory(stored: set[int]) -> Drawing:
    """Draw the banks side by side, and in grey the words that padding leaves empty."""
    drawing = Drawing(WIDTH, HEIGHT)
    height = -(-(max(stored) + 1) // BANKS) * ROW
    drawing.box(LEFT, TOP, BANKS * CELL, height, "white")
    for word in range(max(stored)):
        if word not in stored:
            x, y = LEFT + word % BANKS * CELL, TOP + word // BANKS * ROW
            drawing.box(x, y, CELL, ROW, EMPTY)
    for bank in range(BANKS):
        drawing.box(LEFT + bank * CELL, TOP, CELL, height, "none", "#777777")
        if bank % 8 == 0 or bank == BANKS - 1:
            drawing.text(LEFT + (bank + 0.5) * CELL, TOP - 12, f"{bank}", 11)
    drawing.text(LEFT / 2, TOP - 12, "bank", 11)
    for row in range(0, ROWS, 16):
        if row * ROW < height:
            drawing.text(LEFT / 2, TOP + (row + 0.5) * ROW, f"word {BANKS * row:,}", 11)
    return drawing


def _lanes(words: list[int]) -> Drawing:
    """Draw the words that are asked for, each with its lane's number."""
    drawing = Drawing(WIDTH, HEIGHT)
    for lane, word in enumerate(words):
        x, y = LEFT + word % BANKS * CELL, TOP + word // BANKS * ROW
        drawing.box(x, y, CELL, ROW, BLUE, "white")
        drawing.text(x + CELL / 2, y + ROW / 2, f"{lane}", 11, "white")
    return drawing


def _counts(asked: Counter) -> Drawing:
    """Write below the banks how many words each has to give."""
    drawing = Drawing(WIDTH, HEIGHT)
    y = TOP + ROWS * ROW + 17
    drawing.text(LEFT / 2, y, "to give", 11)
    for bank, number in sorted(asked.items()):
        x = LEFT + (bank + 0.5) * CELL
        drawing.text(x, y, f"{number}", 11, ALARM if number > 1 else "black")
        if number > 1:
            drawing.box(LEFT + bank * CELL + 2, y - 9, CELL - 4, 18, "none", VERMILION)
    return drawing
