"""A tiled matrix multiplication step by step, from a run of its kernel on the simulator.

It shows itself as a picture, the first frame, and below it the steps in words. Where scripts run,
one puts a player with all frames into the picture's place; it brings its buttons along, so that
viewers that allow no scripts show nothing dead. JupyterLab runs scripts in notebooks it trusts.
"""

import json
from dataclasses import dataclass, field
from html import escape

import numpy as np

from helpers.simulator import blockIdx, cdiv, launch, shared_array, syncthreads, threadIdx
from helpers.trace.colours import ORANGE, PALE, SKY
from helpers.trace.squares import Drawing, Squares, barrier

LARGEST = 8  # rows and columns of a matrix, and
LARGEST_TILE = 4  # of a tile: what a page has room for
CELL, TILE_CELL = 30, 46  # sides of the squares in pixels
GAP = 26  # between matrices
PALE_BLUE, PALE_GREEN = "#D3EAF8", "#CDEBE1"  # a frame says the same
SCRIPT = """
(() => {
  const frames = FRAMES;
  const root = document.currentScript.parentElement;
  // the picture that stands for it where no script runs: JupyterLab's, or the site's
  const still = root.closest(".jp-OutputArea")?.querySelector(".jp-RenderedImage")
    ?? root.closest(".outputs")?.querySelector(".wide > img");
  const player = document.createElement("div");
  const controls = player.appendChild(document.createElement("p"));
  const image = player.appendChild(document.createElement("img"));
  const words = player.appendChild(document.createElement("p"));
  image.style.maxWidth = "100%";
  words.setAttribute("aria-live", "polite");
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "play"; };
  const button = (name, press) => {
    const made = controls.appendChild(document.createElement("button"));
    made.textContent = name;
    made.style.marginRight = "6px";
    made.onclick = press;
    return made;
  };
  button("back", () => { stop(); show(+slider.value - 1); });
  button("next", () => { stop(); show(+slider.value + 1); });
  const play = button("play", () => {
    if (timer) return stop();
    if (slider.value == frames.length - 1) show(0);
    play.textContent = "pause";
    timer = setInterval(() => show(+slider.value + 1), 1500);
  });
  const slider = controls.appendChild(document.createElement("input"));
  Object.assign(slider, {type: "range", min: 0, max: frames.length - 1, value: 0});
  slider.setAttribute("aria-label", "step");
  slider.setAttribute("data-lm-suppress-shortcuts", "true");  // else JupyterLab takes the arrows
  slider.oninput = () => { stop(); show(+slider.value); };
  const show = (i) => {
    slider.value = i;
    const [svg, text] = frames[slider.value];
    image.src = "data:image/svg+xml," + encodeURIComponent(svg);
    image.alt = text;
    words.textContent = `${+slider.value + 1} of ${frames.length}: ${text}`;
    if (slider.value == frames.length - 1) stop();
  };
  const list = root.querySelector("details");
  list.open = false;
  addEventListener("beforeprint", () => { list.open = true; });
  if (still) (still.closest(".jp-OutputArea-child") ?? still).style.display = "none";
  show(0);
  root.querySelector("b").after(player);
})();
"""


@dataclass
class Animation:
    """Frames to step through in a notebook; elsewhere the steps in words."""

    title: str
    frames: list[tuple[Drawing, str]]  # and in words what it shows

    def __repr__(self) -> str:
        steps = (f"{i}. {text}" for i, (_, text) in enumerate(self.frames, 1))
        return "\n".join([self.title, *steps])

    def _ipython_display_(self) -> None:
        # Not before it shows itself: for the steps NumPy is enough.
        from IPython.display import display

        from helpers.base.images import Picture
        from helpers.trace.picture import figure_of

        drawing, text = self.frames[0]
        display(Picture(figure_of(drawing), text))
        display({"text/html": self.html(), "text/plain": repr(self)}, raw=True)

    def html(self) -> str:
        """Return the steps in words, and the script that makes the player."""
        steps = "".join(f"<li>{escape(text)}</li>" for _, text in self.frames)
        frames = json.dumps([(drawing.svg(), text) for drawing, text in self.frames])
        script = SCRIPT.replace("FRAMES", frames.replace("</", "<\\/"))
        return (
            f"<div><b>{escape(self.title)}</b>"
            f"<details open='open'><summary>The steps in words</summary><ol>{steps}</ol></details>"
            f"<script>{script}</script></div>"
        )


def animate_tiled_matmul(M: int = 4, N: int = 4, K: int = 4, TILE: int = 2) -> Animation:
    """Show how one block computes its part of C = A @ B, with A: M × K, B: K × N, C: M × N.

    Blocks have TILE × TILE threads. The numbers are those of a real run of the kernel on the
    simulator. Raises ValueError if a page has no room: M, N and K are 1 to 8, TILE 2 to 4;
    TypeError if they are no integers.
    """
    if not all(isinstance(size, int) for size in (M, N, K, TILE)):
        raise TypeError(f"M, N, K and TILE are integers, not {M!r}, {N!r}, {K!r} and {TILE!r}")
    if not all(1 <= size <= LARGEST for size in (M, N, K)) or not 2 <= TILE <= LARGEST_TILE:
        raise ValueError(
            f"M, N and K are 1 to {LARGEST}, TILE 2 to {LARGEST_TILE}, not {M}, {N}, {K} and {TILE}"
        )
    digits = np.random.default_rng(0)
    A = digits.integers(1, 6, (M, K)).astype(np.float32)
    B = digits.integers(1, 6, (K, N)).astype(np.float32)
    C = np.zeros((M, N), np.float32)
    grid = (cdiv(N, TILE), cdiv(M, TILE))
    block = (grid[0] // 2, grid[1] // 2)  # the one that is shown: x, y
    seen: dict[tuple, dict[tuple, tuple]] = {}

    def watch(step, *values):
        if (blockIdx.x, blockIdx.y) == block:
            seen.setdefault(step, {})[threadIdx.y, threadIdx.x] = values

    launch(tiled_matmul_kernel, grid, (TILE, TILE), C, A, B, M, N, K, TILE, watch)
    scene = _Scene(A, B, C, TILE, block)
    frames = [scene.start()]
    for step, values in seen.items():
        frames.append(scene.advance(step, values))
    return Animation(f"C = A @ B in tiles of {TILE} × {TILE}", frames)


def tiled_matmul_kernel(C, A, B, M, N, K, TILE, watch):
    # A: M × K, B: K × N, C: M × N
    A_tile = shared_array((TILE, TILE))
    B_tile = shared_array((TILE, TILE))
    y, x = threadIdx.y, threadIdx.x
    row, col = blockIdx.y * TILE + y, blockIdx.x * TILE + x
    acc = 0.0
    for first in range(0, K, TILE):
        A_tile[y, x] = A[row, first + x] if row < M and first + x < K else 0.0
        B_tile[y, x] = B[first + y, col] if first + y < K and col < N else 0.0
        watch(("load", first), A_tile[y, x], B_tile[y, x])
        syncthreads()  # both tiles are complete
        watch(("written", first))
        for k in range(TILE):
            acc += A_tile[y, k] * B_tile[k, x]
            watch(("multiply", first, k), acc, A_tile[y, k], B_tile[k, x])
        syncthreads()  # no thread needs these tiles any more
        watch(("read", first))
    if row < M and col < N:
        C[row, col] = acc
        watch(("store",), acc)


@dataclass
class _Scene:
    """What the drawing shows after a step."""

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray  # the result, drawn once it is stored
    TILE: int
    block: tuple[int, int]
    acc: dict = field(default_factory=dict)  # by thread: y, x
    products: dict = field(default_factory=dict)  # what this step adds to acc, as text
    A_tile: dict = field(default_factory=dict)
    B_tile: dict = field(default_factory=dict)
    first: int | None = None  # k at which the tile begins
    k: int | None = None  # the column of A_tile and row of B_tile that are multiplied
    at_barrier: bool = False
    is_stored: bool = False

    def __post_init__(self):
        self.acc = {(y, x): 0.0 for y in range(self.TILE) for x in range(self.TILE)}

    def start(self) -> tuple[Drawing, str]:
        """Draw what is there before the first step."""
        x, y = self.block
        one_each = "one for each element of its part of C"
        if self._reaches_beyond_C():
            one_each += ", and some beyond its edge"
        threads = self.TILE * self.TILE
        return self.draw(
            f"Block ({x}, {y}) has {threads} threads, {one_each}. Its accumulators start at 0."
        )

    def advance(self, step: tuple, values: dict) -> tuple[Drawing, str]:
        """Take over what the threads did in a step, and draw it."""
        name = step[0]
        self.products, self.k, self.at_barrier = {}, None, name in ("written", "read")
        text = getattr(self, f"_{name}")(values, *step[1:])
        return self.draw(text)

    def _load(self, values: dict, first: int) -> str:
        self.first = first
        self.A_tile = {thread: a for thread, (a, _) in values.items()}
        self.B_tile = {thread: b for thread, (_, b) in values.items()}
        number, tiles = first // self.TILE + 1, cdiv(self.A.shape[1], self.TILE)
        beyond = "; beyond the matrix's edge it writes 0" if self._is_ragged() else ""
        return (
            f"Tile {number} of {tiles}: each thread copies one element of A and one of B to shared "
            f"memory{beyond}."
        )

    def _written(self, values: dict, first: int) -> str:
        return "Barrier: no thread reads the tiles before every thread has written its elements."

    def _multiply(self, values: dict, first: int, k: int) -> str:
        self.k = k
        self.acc = {thread: acc for thread, (acc, _, _) in values.items()}
        self.products = {thread: f"+{a:g}×{b:g}" for thread, (_, a, b) in values.items()}
        acc, a, b = values[0, 0]
        return (
            f"k = {k}: thread (x, y) adds A_tile[y][{k}] × B_tile[{k}][x] to its acc; "
            f"thread (0, 0): {acc - a * b:g} + {a:g} × {b:g} = {acc:g}."
        )

    def _read(self, values: dict, first: int) -> str:
        return "Barrier: no thread overwrites the tiles while another one still reads them."

    def _store(self, values: dict) -> str:
        self.is_stored = True
        self.first, self.A_tile, self.B_tile = None, {}, {}
        K = self.A.shape[1]
        rows = len({y for y, _ in values})
        cols = len({x for _, x in values})
        tiled = (rows + cols) * K
        who = "Each thread whose element lies in C" if self._reaches_beyond_C() else "Each thread"
        return (
            f"{who} stores its acc in C. The block loaded {tiled} elements of A and "
            f"B; without tiles it would load {2 * K * len(values)}."
        )

    def _reaches_beyond_C(self) -> bool:
        ends = [(start + 1) * self.TILE for start in self.block]
        return any(end > size for end, size in zip(ends, reversed(self.C.shape), strict=True))

    def _is_ragged(self) -> bool:
        """Tell whether the tiles reach beyond A or B."""
        ends = [(start + 1) * self.TILE for start in (*self.block, self.first // self.TILE)]
        sizes = (self.B.shape[1], *self.A.shape)
        return any(end > size for end, size in zip(ends, sizes, strict=True))

    def draw(self, text: str) -> tuple[Drawing, str]:
        """Return the scene with the text that goes with it."""
        (M, K), N, T = self.A.shape, self.B.shape[1], self.TILE
        left, top = self.block[0] * T, self.block[1] * T  # the block's part of C
        right, bottom = min(left + T, N), min(top + T, M)
        C = {
            (row, col): self.C[row, col] for row in range(top, bottom) for col in range(left, right)
        }
        x, y = 34 + K * CELL + GAP, 44 + K * CELL + GAP  # where C is drawn
        tiles_x = x + N * CELL + 70
        acc_x, acc_y = tiles_x + T * TILE_CELL + GAP, 44 + T * TILE_CELL + GAP
        height = max(y + M * CELL, acc_y + T * TILE_CELL) + 30
        drawing = Drawing(acc_x + T * TILE_CELL + 30, height)
        a = Squares(drawing, 34, y, CELL, (M, K))
        b = Squares(drawing, x, 44, CELL, (K, N))
        c = Squares(drawing, x, y, CELL, (M, N))
        for matrix in (a, b, c):
            matrix.fill("white", 0, 0, *matrix.shape)
        a.fill(PALE_BLUE, top, 0, bottom, K)
        b.fill(PALE, 0, left, K, right)
        c.fill(PALE_GREEN, top, left, bottom, right)
        a.draw(f"A: {M} × {K}", _numbers(self.A))
        b.draw(f"B: {K} × {N}", _numbers(self.B))
        c.draw(f"C: {M} × {N}", C if self.is_stored else {})
        c.frame(top, left, bottom, right)
        self._tile(Squares(drawing, tiles_x, acc_y, TILE_CELL, (T, T)), "A_tile", self.A_tile)
        self._tile(Squares(drawing, acc_x, 44, TILE_CELL, (T, T)), "B_tile", self.B_tile)
        self._tile(Squares(drawing, acc_x, acc_y, TILE_CELL, (T, T)), "acc", self.acc)
        if self.first is not None:
            end = min(self.first + T, K)
            a.frame(top, self.first, bottom, end)
            b.frame(self.first, left, end, right)
        if self.at_barrier:
            barrier(drawing, tiles_x - 14, 14, acc_x + T * TILE_CELL + 14, height - 14)
        return drawing, text

    def _tile(self, squares: Squares, name: str, values: dict) -> None:
        """Draw a tile, or the accumulators, and what of it is multiplied."""
        T, k = self.TILE, self.k
        colors = {
            "A_tile": (PALE_BLUE, SKY),
            "B_tile": (PALE, ORANGE),
            "acc": (PALE_GREEN, ""),
        }
        pale, strong = colors[name]
        squares.fill(pale if values else "white", 0, 0, T, T)
        if name == "acc":
            squares.draw("acc", values, self.products)
            return
        used = () if k is None else (0, k, T, k + 1) if name == "A_tile" else (k, 0, k + 1, T)
        if used:
            squares.fill(strong, *used)
        squares.draw(f"{name}, shared", values)
        if used:
            squares.frame(*used)


def _numbers(matrix: np.ndarray) -> dict[tuple[int, int], float]:
    rows, cols = matrix.shape
    return {(row, col): matrix[row, col] for row in range(rows) for col in range(cols)}
