"""Show a CUDA string in colour, beside its twin in Python, or what changed since another one.

The colours are the theme's: JupyterLab and HTML pages made by nbconvert know the class names.
"""

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import groupby, zip_longest

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer, PythonLexer

from helpers.base.change import Change
from helpers.base.words import count
from helpers.cuda_on_cpu.scanner import Function, Source, closing

HEADER = "header"
FONT = "font-family:var(--jp-code-font-family,monospace);word-break:normal"
TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d*)?|[-+*/%<>=!&|^~]+")
# what the two languages spell differently, and what one of them alone says
ALIKE = {"and": "&&", "or": "||", "not": "!", "//": "/", "elif": "if"}
TYPES = "auto bool char const constexpr double float int long restrict signed static unsigned void"
ALIKE |= dict.fromkeys(f"{TYPES} def device global in pass range shared".split(), "")
LEAST_ALIKE = 0.35  # of two lines that say the same; 1: the same words
HANGING = 4  # letters by which the rest of a line that wraps is indented


class Listing:
    """A CUDA string that shows itself highlighted, its header and launchers folded or all open."""

    def __init__(self, src: str, folds: bool = True):
        self.src = src
        self.folds = folds

    def __repr__(self) -> str:
        return self.src

    def _repr_html_(self) -> str:
        text = self.src.strip("\n")
        coloured = _coloured(text, CudaLexer)
        roles = _roles(text) if self.folds else [""] * len(coloured)
        parts = zip(roles, coloured, strict=True)
        blocks = []
        for role, group in groupby(parts, key=lambda part: part[0]):
            code = "\n".join(line for _, line in group).strip("\n")
            lines = count(code.count("\n") + 1, "line")
            code = f'<pre style="{FONT}">{code}</pre>'
            if role:
                summary = f"<summary>{escape(role)}, {lines}</summary>"
                code = f"<details>{summary}{code}</details>"
            blocks.append(code)
        return f'<div class="highlight">{"".join(blocks)}</div>'


@dataclass
class Twins:
    """Pairs of lines, of a Python kernel and of its twin in CUDA; None where one has no such line.

    They show themselves side by side; lines without a twin fill up the rows between pairs.
    """

    python: list[str]
    cuda: list[str]
    pairs: list[tuple[int | None, int | None]]  # line numbers, from 0

    def __repr__(self) -> str:
        width = max(map(len, self.python))
        rows = ((_at(self.python, i), _at(self.cuda, j)) for i, j in self.rows())
        rows = [("Python".ljust(width), "CUDA"), ("─" * width, "─" * 4), *rows]
        return "\n".join(f"{left:{width}} │ {right}".rstrip() for left, right in rows)

    def _repr_html_(self) -> str:
        python = _coloured("\n".join(self.python), PythonLexer)
        cuda = _coloured("\n".join(self.cuda), CudaLexer)
        rows = "".join(
            f"<tr>{_cell(self.python, python, i)}{_cell(self.cuda, cuda, j)}</tr>"
            for i, j in self.rows()
        )
        head = "".join(f'<th style="text-align:left">{name}</th>' for name in ("Python", "CUDA"))
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f'<div class="highlight">{table}</div>'

    def rows(self) -> list[tuple[int | None, int | None]]:
        """Return what stands side by side: pairs, and between them lines that have no twin."""
        rows = []
        for is_pair, run in groupby(self.pairs, key=lambda pair: None not in pair):
            run = list(run)
            if not is_pair:
                left, right = (
                    [k for k in side if k is not None] for side in zip(*run, strict=True)
                )
                run = zip_longest(left, right)
            rows.extend(run)
        return rows


def show_cuda(src: str, *parts: str) -> Listing:
    """Show a CUDA string highlighted, as it stands when this is called, or parts of it.

    Kernels, functions and constants for the device are open; the header (comment, includes,
    macros) and the launchers, the functions for the host, are folded. A part is a function or a
    struct by its name (`step`, or `Tile::step` of a class), or a statement by the beginning of its
    first line (`auto copy =`), each with the comment above it. Raises ValueError for a part that
    is not there, or not once.
    """
    src = _checked(src)
    if not parts:
        return Listing(src)
    source = Source(src)
    return Listing("\n\n".join(_part(source, name) for name in parts), folds=False)


def show_twins(python_kernel: Callable, cuda_src: str) -> Twins:
    """Show a Python function beside the one of the same name in a CUDA string, line by line.

    A kernel that is the only one of its string may have another name. Raises ValueError if there
    is none to compare with.
    """
    cuda_src = _checked(cuda_src)
    python = _source(python_kernel).split("\n")
    name, cuda = _kernel(cuda_src, python_kernel.__name__)
    words = [_words(line, python_kernel.__name__, "#") for line in python]
    return Twins(python, cuda, _aligned(words, [_words(line, name, "//") for line in cuda]))


def show_change(
    before: str | Callable, after: str | Callable, kernels: tuple[str, str] | None = None
) -> Change:
    """Show what changed from one CUDA string to the next, or from one Python function to the next.

    Lines are added (+), removed (−) or moved (↕), the words that changed in a line are marked;
    what is as before is folded. Spaces, and where a line breaks, do not count. `kernels` names
    one kernel of each string, if only those are to be compared.
    """
    read = _source if callable(before) and callable(after) else _checked
    if callable(before) != callable(after):
        raise TypeError("expected two CUDA strings or two Python functions, got one of each")
    texts = [read(code).strip("\n") for code in (before, after)]
    if kernels:
        texts = ["\n".join(_kernel(*pair)[1]) for pair in zip(texts, kernels, strict=True)]
    return Change(*texts, by_indentation=read is _source)


def _source(function: Callable) -> str:
    """Return a Python function as it is written, from the left edge."""
    function = getattr(function, "fn", function)  # Triton's, and its interpreter's
    if not inspect.isfunction(function):
        raise TypeError(f"expected a Python function, got {type(function).__name__}")
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except OSError:
        raise ValueError(f"the source of {function.__name__} is not to be found") from None


def _checked(src: str) -> str:
    """Return the string with every end of a line as a line feed, as compilers take them."""
    if not isinstance(src, str):
        raise TypeError(f"expected a string with CUDA code, got {type(src).__name__}")
    if not src.strip():
        raise ValueError("expected a string with CUDA code, got an empty one")
    return re.sub(r"\r\n?", "\n", src)


def _roles(text: str) -> list[str]:
    """Return of each line whether it is of the header or of a launcher; "" if it is to be seen.

    A comment and a blank line go with what follows them, the comment at the top with the header.
    """
    source = Source(text)
    roles: list[str | None] = []
    texts = (text.split("\n"), source.code.split("\n"), source.bare.split("\n"))
    for written, code, bare in zip(*texts, strict=True):
        is_directive = code.strip() and not bare.strip()
        is_on_top = written.strip() and not code.strip() and set(roles) <= {HEADER}
        roles.append(HEADER if is_directive or is_on_top else "" if bare.strip() else None)
    has_kernel = False
    for function in source.functions:
        has_kernel |= function.is_kernel
        if function.body:
            first, last = _lines_of(source, function)
            folded = f"launcher of {function.name}" if has_kernel else HEADER
            is_seen = function.is_for_device or function.owner
            roles[first : last + 1] = ["" if is_seen else folded] * (last + 1 - first)
    following = ""
    for i in reversed(range(len(roles))):
        following = roles[i] = following if roles[i] is None else roles[i]
    return roles


def _lines_of(source: Source, function: Function) -> tuple[int, int]:
    """Return the numbers, from 0, of a function's first and last line."""
    return source.line_of(function.start) - 1, source.line_of(function.body[1]) - 1


def _part(source: Source, name: str) -> str:
    """Return the lines of what a name stands for, and the comment above them."""
    named = [f for f in source.functions if f.body and name in (f.name, f"{f.owner}::{f.name}")]
    outside = [f for f in named if not f.owner]
    places = [(f.start, f.body[1]) for f in outside or named]
    code = source.bare
    if name.isidentifier():
        for found in re.finditer(rf"\b(?:struct|class)\s+{name}\b[^;{{]*(?={{)", code):
            places.append((found.start(), closing(code, found.end())))
    places = places or [
        (found.start(1), _end_of_statement(code, found.start(1)))
        for found in re.finditer(rf"^[ \t]*({re.escape(name)})", code, re.MULTILINE)
    ]
    if len(places) != 1:
        raise ValueError(f"expected one function, struct or line {name!r}, found {len(places)}")
    lines = source.text.split("\n")
    first, last = (source.line_of(position) - 1 for position in places[0])
    above = first
    while above > 0 and lines[above - 1].lstrip().startswith("//"):
        above -= 1
    indent = " " * (len(lines[first]) - len(lines[first].lstrip()))
    first = above or first  # a comment at the top is the file's
    return "\n".join(line.removeprefix(indent) for line in lines[first : last + 1])


def _end_of_statement(code: str, i: int) -> int:
    """Return where a statement ends: with the first block behind it, or with a semicolon."""
    while i < len(code) - 1 and code[i] not in ";{":
        i = closing(code, i) + 1 if code[i] in "([" else i + 1
    return closing(code, i) if code[i] == "{" else i


def _kernel(src: str, name: str) -> tuple[str, list[str]]:
    """Return name and lines of the function of that name, or of the only kernel there is."""
    source = Source(src)
    functions = [f for f in source.functions if f.body]
    kernels = [f for f in functions if f.is_kernel]
    fitting = [f for f in kernels if f.name == name] or [f for f in functions if f.name == name]
    fitting = fitting or kernels
    if len(fitting) != 1:
        found = ", ".join(kernel.name for kernel in kernels) or "none"
        raise ValueError(f"expected one function {name} in the CUDA string, kernels: {found}")
    first, last = _lines_of(source, fitting[0])
    lines = textwrap.dedent("\n".join(src.split("\n")[first : last + 1])).split("\n")
    return fitting[0].name, lines


def _words(line: str, kernel: str, comment: str) -> Counter:
    """Return names, numbers and operators of a line of Python or CUDA, spelled alike.

    A comment, which begins with `comment`, counts only where it stands alone. The line that names
    the kernel begins it, whatever its parameters are.
    """
    code = line.split(comment)[0]
    found = TOKEN.findall(code if code.strip() else line)
    if kernel in found and code.strip():
        return Counter(["kernel"])
    return Counter(filter(None, (ALIKE.get(word.strip("_"), word.strip("_")) for word in found)))


def _aligned(a: list[Counter], b: list[Counter]) -> list[tuple[int | None, int | None]]:
    """Pair the lines that say the same, in order, so that they are as alike as can be in all."""
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]  # of what follows i and j
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            pair = _alike(a[i], b[j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], pair and pair + best[i + 1][j + 1])
    pairs, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if best[i][j] == best[i + 1][j]:
            pairs.append((i, None))
            i += 1
        elif best[i][j] == best[i][j + 1]:
            pairs.append((None, j))
            j += 1
        else:
            pairs.append((i, j))
            i, j = i + 1, j + 1
    return pairs + [(k, None) for k in range(i, len(a))] + [(None, k) for k in range(j, len(b))]


def _alike(a: Counter, b: Counter) -> float:
    """Return the share of the words that two lines have in common, 0 if it is small."""
    share = 2 * (a & b).total() / max((a + b).total(), 1)
    return share if share >= LEAST_ALIKE else 0.0


def _coloured(text: str, lexer: type) -> list[str]:
    """Return the lines of the text as HTML with pygments' classes."""
    html = highlight(text, lexer(stripnl=False), HtmlFormatter(nowrap=True))
    return html.split("\n")[: text.count("\n") + 1]


def _at(lines: list[str], i: int | None) -> str:
    return "" if i is None else lines[i]


def _cell(lines: list[str], coloured: list[str], i: int | None) -> str:
    """Return a line as a cell; what of it wraps is indented further than its beginning."""
    cell = "text-align:left;vertical-align:top;padding:0 8px"
    code = f"{FONT};font-size:85%;margin:0;background:transparent;white-space:pre-wrap"
    line = _at(lines, i)
    indent = len(line) - len(line.lstrip()) + HANGING
    hanging = f"padding-left:{indent}ch;text-indent:-{indent}ch"
    return f'<td style="{cell}"><pre style="{code};{hanging}">{_at(coloured, i)}</pre></td>'
