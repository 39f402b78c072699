"""Which lane of a warp holds what for `mma.sync`, and whose elements an element of C needs."""

from dataclasses import dataclass

from helpers.base.gpu import WARP_SIZE
from helpers.base.words import count
from helpers.play.thing import Control, Scene, Thing
from helpers.trace.colours import ORANGE, YELLOW
from helpers.trace.squares import Drawing, Squares

M, N = 16, 8
LEGEND = [
    "orange: the lane's own,",
    "by register;",
    "yellow: what is needed,",
    "by the lane that has it",
]
NEEDS = ["nothing", "c0", "c1", "c2", "c3"]

CELL, GAP = 18, 26  # pixels
LEFT, TOP, MOST_K = 18, 36, 16
C_X, C_Y = LEFT + MOST_K * CELL + GAP, TOP + MOST_K * CELL + GAP
WIDTH, HEIGHT = C_X + N * CELL + 18, C_Y + M * CELL + 14


@dataclass(frozen=True)
class Instruction:
    """An mma.sync of 16 × 8 × K whose registers hold `packed` factors of 32 / packed bits."""

    K: int
    packed: int

    def places(self, name: str, lane: int) -> list[tuple[int, int]]:
        """Return row and column of each element of A, B or C that a lane holds, in order.

        PTX ISA, "Matrix Fragments": of 8 rows each quad has one, lanes of a quad share its columns.
        """
        quad, number = divmod(lane, 4)
        if name == "C":
            return [(quad + i // 2 * 8, number * 2 + i % 2) for i in range(4)]
        along_k = [number * self.packed + i for i in range(self.packed)]
        steps = range(0, self.K, 4 * self.packed)
        if name == "B":
            return [(step + k, quad) for step in steps for k in along_k]
        return [(quad + half, step + k) for step in steps for half in (0, 8) for k in along_k]

    def registers(self, name: str) -> int:
        """Return in how many registers a lane holds its elements."""
        return len(self.places(name, 0)) // (1 if name == "C" else self.packed)


INSTRUCTIONS = {
    "m16n8k16, half": Instruction(16, 2),
    "m16n8k8, TF32": Instruction(8, 1),
}


def play_fragments() -> Thing:
    """Choose an instruction, a lane, and one of its sums; see what it holds and what that needs."""
    lanes = range(WARP_SIZE)
    controls = [
        Control("mma.sync", list(INSTRUCTIONS.values()), list(INSTRUCTIONS)),
        Control("lane", lanes, [f"{lane}" for lane in lanes], 5, slides=True),
        Control("needed for", range(-1, 4), NEEDS, 2),
    ]
    return Thing("A warp's registers for one product", controls, fragments_scene)


def fragments_scene(instruction: Instruction, lane: int, element: int) -> Scene:
    """Draw what a lane holds of A, B and C, and what its sum c0 to c3 needs, or -1: none."""
    quad = lane // 4
    held = [len(instruction.places(name, lane)) for name in "ABC"]
    registers = [count(instruction.registers(name), "register") for name in "ABC"]
    text = (
        f"Lane {lane} holds {held[0]} elements of A in {registers[0]}, {held[1]} of B in "
        f"{registers[1]}, {held[2]} of C in {registers[2]}."
    )
    row = col = None
    more = ""
    if element >= 0:
        row, col = instruction.places("C", lane)[element]
        more = (
            f" Its c{element} stands in row {row}, column {col}: that row of A is with lanes "
            f"{4 * quad} to {4 * quad + 3}, that column of B with lanes {4 * col} to {4 * col + 3}."
        )
    needed = {"A": (row, None), "B": (None, col), "C": (row, col)}
    cells = [_cells(instruction, name, lane, place) for name, place in needed.items()]
    return Scene([_matrices(instruction), *cells], [text, more])


def _squares(drawing: Drawing, K: int) -> dict[str, Squares]:
    return {
        "A": Squares(drawing, C_X - GAP - K * CELL, C_Y, CELL, (M, K)),
        "B": Squares(drawing, C_X, C_Y - GAP - K * CELL, CELL, (K, N)),
        "C": Squares(drawing, C_X, C_Y, CELL, (M, N)),
    }


def _matrices(instruction: Instruction) -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT)
    for name, squares in _squares(drawing, instruction.K).items():
        rows, cols = squares.shape
        squares.fill("white", 0, 0, rows, cols)
        squares.draw(f"{name}: {rows} × {cols}", {})
    for line, words in enumerate(LEGEND):
        drawing.text(LEFT + 100, TOP + 20 + 18 * line, words, 12)
    return drawing


def _cells(
    instruction: Instruction, name: str, lane: int, needed: tuple[int | None, int | None]
) -> Drawing:
    """Draw of a matrix the lane's cells with their registers, and a row or a column by lanes.

    What is needed is given as its row and its column, None where it is all of them.
    """
    drawing = Drawing(WIDTH, HEIGHT)
    squares = _squares(drawing, instruction.K)[name]
    row, col = needed
    shown = {}
    if needed != (None, None):
        for other in range(WARP_SIZE):
            for y, x in instruction.places(name, other):
                if row in (None, y) and col in (None, x):
                    shown[y, x] = YELLOW, f"{other}"
    packed = 1 if name == "C" else instruction.packed
    for i, place in enumerate(instruction.places(name, lane)):
        shown[place] = ORANGE, f"{name.lower()}{i // packed}"
    for (y, x), (colour, text) in sorted(shown.items()):
        left, top = squares.x + x * CELL, squares.y + y * CELL
        drawing.box(left, top, CELL, CELL, colour, "#777777")
        drawing.text(left + CELL / 2, top + CELL / 2, text, 11)
    if needed != (None, None):
        rows, cols = squares.shape
        top, bottom = (0, rows) if row is None else (row, row + 1)
        left, right = (0, cols) if col is None else (col, col + 1)
        squares.frame(top, left, bottom, right)
    return drawing
