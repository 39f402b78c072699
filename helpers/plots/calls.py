"""The map of a kernel file: which of its functions calls which, drawn from its source."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.cuda_on_cpu.scanner import Function, Source, closing, split
from helpers.plots.ideas import BLUE, GREEN, ORANGE, PINK, WIDEST, _canvas

EVERYWHERE = 6  # callers of a function that calls nothing: it is left out
LABELS = range(20, 9, -1)  # letters of a line in a box: as many as the picture has room for
LETTER, LINE = 0.0669, 0.165  # inches: 8 points of the monospaced font
LETTERS = int((WIDEST - 0.3) / LETTER)  # across the picture
ROLES = {"from Python": PINK, "host": BLUE, "kernel": ORANGE, "device": GREEN}
AGAIN = " …"  # behind the name of a function whose calls stand elsewhere
ASKED_ABOUT = re.compile(r"\bcudaFunc\w+\s*\([^;]*\Z")  # of what stands behind it
NAME = re.compile(  # and of which class
    r"(?<![\w.:>])(?:([A-Za-z_]\w*)(?:<[^<>;()]*>)?::(?:template\s+)?)?([A-Za-z_]\w*)"
)
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:(if)\w*|endif)\b([^\n]*)", re.MULTILINE)


@dataclass
class Node:
    """A function of the file and those that it calls, in the order of its text."""

    function: Function
    role: str
    nvcc_alone: bool
    calls: list["Node"] = field(default_factory=list)

    @property
    def name(self) -> str:
        owner = self.function.owner
        return f"{owner}::{self.function.name}" if owner else self.function.name


@dataclass
class Box:
    """A function in the picture, or some that call no others: a column, and rows from the top."""

    column: int
    top: int
    rows: int
    nodes: list[Node]
    lines: list[str]
    is_leaf: bool


def draw_calls(src: str, leave_out: Sequence[str] = ()) -> Axes:
    """Draw which functions of a CUDA string call which: callers on the left, called ones beside.

    Each function stands once with what it calls; where it is called again there is `name …`. Of
    methods those are drawn that are called by their class, `Tile::pad(i)`. `leave_out` is left
    out, and so is what many call and itself calls nothing.
    """
    nodes, left_out = _graph(Source(src), leave_out)
    if not nodes:
        raise ValueError("expected a CUDA string with functions, found none")
    called = {id(other) for node in nodes for other in node.calls}
    roots = [node for node in nodes if id(node) not in called] or nodes[:1]
    layouts = (_Layout(roots, label) for label in LABELS)
    layout = next((fit for fit in layouts if fit.letters() <= LETTERS), _Layout(roots, LABELS[-1]))
    height = layout.rows + 2.9 + len(left_out) // 8
    letters = max(LETTERS, layout.letters())
    ax = _canvas(WIDEST, LINE * height, (0, letters), (height, 0))
    ax.figure.set_figwidth(WIDEST * letters / LETTERS)
    for box in layout.boxes:
        _draw(ax, layout, box)
    _legend(ax, layout.rows + 0.7, nodes, left_out)
    words = [f"{n.name} calls {', '.join(each.name for each in n.calls)}" for n in nodes if n.calls]
    ax.figure.set_label("; ".join(words) or ", ".join(node.name for node in nodes))
    return ax


def _graph(source: Source, leave_out: Sequence[str]) -> tuple[list[Node], list[str]]:
    """Return the functions at file scope with their calls, and the names that are left out."""
    hidden = _nvcc_alone(source)
    nodes = [
        Node(f, _role(f), any(first < f.start < last for first, last in hidden))
        for f in source.functions
        if f.body and f.name.isidentifier() and f.name != f.owner
    ]
    for node in nodes:
        node.calls = list(_calls(source, node, nodes))
    reached: set[int] = set()
    for node in nodes:
        if not node.function.owner:
            _reach(node, reached)
    nodes = [node for node in nodes if id(node) in reached]
    callers = {id(node): sum(node in other.calls for other in nodes) for node in nodes}
    out = {
        id(node)
        for node in nodes
        if node.name in leave_out
        or (not node.calls and callers[id(node)] >= EVERYWHERE)
        or (not node.calls and not callers[id(node)] and node.role in ("host", "device"))
    }
    for node in nodes:
        node.calls = [other for other in node.calls if id(other) not in out]
        if node.role == "from Python" and callers[id(node)]:
            node.role = "host"
    return (
        [node for node in nodes if id(node) not in out],
        [node.name for node in nodes if id(node) in out],
    )


def _reach(node: Node, reached: set[int]) -> None:
    """Add a function and all that it leads to."""
    if id(node) not in reached:
        reached.add(id(node))
        for other in node.calls:
            _reach(other, reached)


def _role(function: Function) -> str:
    if function.is_kernel:
        return "kernel"
    if function.is_for_device:
        return "device"
    return "host" if function.words & {"static", "template", "inline"} else "from Python"


def _calls(source: Source, node: Node, nodes: list[Node]):
    """Yield the functions that one mentions, in the order in which it first does."""
    function = node.function
    text = source.bare[: function.body[1]]
    seen = {id(node)}
    for found in NAME.finditer(text, function.parameters[0]):
        owners = [found[1]] if found[1] else [function.owner, None]
        fitting = next(filter(None, (_named(nodes, owner, found[2]) for owner in owners)), None)
        is_asked_about = ASKED_ABOUT.search(text, function.body[0], found.start())
        if not fitting or is_asked_about or _is_local(text[function.start :], found[2]):
            continue
        given = _arguments(text, found.end())
        taken = [other for other in fitting if given == _parameters(source, other)] or fitting
        if id(taken[0]) not in seen:
            seen.add(id(taken[0]))
            yield taken[0]


def _named(nodes: list[Node], owner: str | None, name: str) -> list[Node]:
    return [node for node in nodes if (node.function.owner, node.function.name) == (owner, name)]


def _is_local(text: str, name: str) -> bool:
    """Whether a function has a variable of that name."""
    return bool(re.search(rf"\b[A-Za-z]\w*[&*]*\s+[&*]?{name}\s*[=;,)\[]", text))


def _arguments(text: str, i: int) -> int | None:
    """Return how many arguments a call behind the name at i has; None if it is no plain call."""
    if template := re.match(r"\s*<[^<>;()]*>", text[i:]):
        i += template.end()
    if not (opened := re.match(r"\s*\(", text[i:])):
        return None
    i += opened.end()
    return _counted(text[i : closing(text, i - 1)])


def _parameters(source: Source, node: Node) -> int:
    first, last = node.function.parameters
    return _counted(source.bare[first + 1 : last])


def _counted(text: str) -> int:
    return len([part for part in split(text) if part.strip()])


def _nvcc_alone(source: Source) -> list[tuple[int, int]]:
    """Return the places that stand behind `#ifdef __CUDACC_VER_MAJOR__`."""
    places, opened = [], []
    for found in CONDITION.finditer(source.code):
        if found[1]:
            opened.append(found.start() if "__CUDACC_VER_MAJOR__" in found[2] else None)
        elif opened and (begin := opened.pop()) is not None:
            places.append((begin, found.start()))
    return places


class _Layout:
    """Where each function stands: what it calls in the column on its right, in its rows."""

    def __init__(self, roots: list[Node], label: int):
        self.label = label
        self.boxes: list[Box] = []
        self.widths: list[int] = []  # of the columns, in letters
        self._drawn: set[int] = set()
        self._measure(roots, 0, set())
        self.rows = 0
        for root in roots:
            self.rows += self._place(root, 0, self.rows)

    def left(self, column: int) -> int:
        return sum(self.widths[:column])

    def width(self, box: Box) -> float:
        return max(map(len, box.lines)) + 1.6 if box.is_leaf else self.widths[box.column]

    def letters(self) -> float:
        return max(self.left(box.column) + self.width(box) for box in self.boxes)

    def _measure(self, nodes: list[Node], column: int, seen: set[int]) -> None:
        """Give each column the width of its longest line."""
        for node in nodes:
            if node.calls and id(node) not in seen:
                seen.add(id(node))
                self.widths += [0] * (column + 1 - len(self.widths))
                longest = max(map(len, _label(node.name, self.label))) + 2
                self.widths[column] = max(self.widths[column], longest)
                self._measure(node.calls, column + 1, seen)

    def _place(self, node: Node, column: int, top: int) -> int:
        """Place a function and what it calls; return how many rows that takes."""
        self._drawn.add(id(node))
        box = Box(column, top, 0, [node], _label(node.name, self.label), not node.calls)
        self.boxes.append(box)
        leaves = [n for n in node.calls if not n.calls or id(n) in self._drawn]
        for run in _runs(leaves):
            names = ", ".join(n.name + AGAIN * bool(n.calls) for n in run)
            room = max(LETTERS - self.left(column + 1) - 2, self.label)
            lines = textwrap.wrap(names.replace(AGAIN, "\0"), room, break_long_words=False)
            lines = [line.replace("\0", AGAIN) for line in lines]
            self.boxes.append(Box(column + 1, top + box.rows, len(lines), run, lines, True))
            box.rows += len(lines)
        for other in node.calls:
            if other.calls and id(other) not in self._drawn:
                box.rows += self._place(other, column + 1, top + box.rows)
        box.rows = max(box.rows, len(box.lines))
        return box.rows


def _runs(leaves: list[Node]) -> list[list[Node]]:
    """Put together what looks alike."""
    looks = dict.fromkeys((n.role, n.nvcc_alone) for n in leaves)
    return [[n for n in leaves if (n.role, n.nvcc_alone) == look] for look in looks]


def _label(name: str, letters: int) -> list[str]:
    """Break a name behind underscores into lines that fit into a box."""
    lines = [""]
    for part in re.findall(r"[^_:]*(?:_|::)|[^_:]+", name):
        if lines[-1] and len(lines[-1] + part) > letters:
            lines.append("")
        lines[-1] += part
    return lines


def _draw(ax: Axes, layout: _Layout, box: Box) -> None:
    x, node = layout.left(box.column), box.nodes[0]
    style = "--" if node.nvcc_alone else "-"
    place = ((x + 0.2, box.top + 0.08), layout.width(box) - 0.4, box.rows - 0.16)
    ax.add_patch(Rectangle(*place, fc=ROLES[node.role], ec="black", lw=0.7, ls=style))
    middle = box.top + (box.rows if box.is_leaf else min(box.rows, len(box.lines) + 0.2)) / 2
    ax.text(x + 0.8, middle, "\n".join(box.lines), **_TEXT, linespacing=1.1)


_TEXT = {"va": "center", "fontsize": 8, "family": "monospace", "color": "black"}


def _legend(ax: Axes, y: float, nodes: list[Node], left_out: list[str]) -> None:
    x = 0.0
    entries = [(role, ROLES[role], "-") for role in ROLES if any(n.role == role for n in nodes)]
    if any(node.nvcc_alone for node in nodes):
        entries.append(("nvcc alone compiles it", "white", "--"))
    for words, colour, style in entries:
        ax.add_patch(Rectangle((x + 0.2, y), 2.4, 0.84, fc=colour, ec="black", lw=0.7, ls=style))
        ax.text(x + 3.2, y + 0.42, words, va="center", fontsize=8)
        x += len(words) + 6
    absent = ", ".join([*left_out, "methods of objects"])
    remark = f"name{AGAIN}: what it calls stands above. Not drawn: {absent}"
    remark = textwrap.fill(remark, LETTERS, break_long_words=False)
    ax.text(0.2, y + 1.2, remark, va="top", fontsize=8)
