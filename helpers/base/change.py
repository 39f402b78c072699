"""What changed from one text of code to the next: lines by sign and colour, as text and HTML.

Spaces and where lines break do not count; lines that only moved are named as such. No colour of
text is our own: grounds and borders are faint enough for those of light themes and of dark ones.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape
from itertools import groupby

from helpers.base.palette import COLORS
from helpers.base.words import count

WORD = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')
LEAST_ALIKE = 0.5  # of a line that was changed and what became of it; 1: the same words
LEAST_MOVED = 20  # letters of lines that count as moved, not as removed and added
LEAST_FOLDED = 3  # lines: fewer take no more room than the line that stands for them
LEAST_BETWEEN = 3  # letters, blanks too: what fewer of them part is one mark
SAME, ADDED, REMOVED, MOVED = " ", "+", "−", "↕"
LEFT, FOLD = "↓", "…"  # what stands for lines that moved from here, and for lines as before
BLUE, _, _, _, _, VERMILION, _ = COLORS
HUE = {ADDED: BLUE, REMOVED: VERMILION, MOVED: "#767676"}
LINE, MARK = 0.15, 0.3  # how opaque the ground of a line is, and that of a word upon it
FONT = "font-family:var(--jp-code-font-family,monospace);font-size:90%;line-height:1.4;margin:0"


@dataclass
class Line:
    """A line and how it changed; `marks` are the places, first and behind last, of what did.

    `shift` is by how much further in it stands than before.
    """

    sign: str
    text: str
    marks: Sequence[tuple[int, int]] = ()
    shift: int = 0


class Change:
    """The lines of two texts; shows what changed, the rest folded but for some lines around it.

    In Python the indentation says what belongs to what, `by_indentation`: a line that stands
    further out, with nothing around it that explains it, has changed.
    """

    def __init__(self, before: str, after: str, context: int = 2, by_indentation: bool = False):
        self.lines = list(_lines(before.split("\n"), after.split("\n"), by_indentation))
        self.context = context

    @property
    def counts(self) -> str:
        """How many lines were added, removed and moved, in short."""
        signs = Counter(line.sign for line in self.lines)
        if signs.keys() <= {SAME}:
            return "nothing changed"
        moved = f", {signs[MOVED]} moved" if signs[MOVED] else ""
        return f"+{signs[ADDED]} −{signs[REMOVED]}{moved}"

    def __repr__(self) -> str:
        rows = [self.counts]
        for is_folded, lines in self.runs():
            if is_folded:
                rows.append(f"{FOLD} {_folded(lines)}")
            else:
                rows += [f"{line.sign} {line.text}".rstrip() for line in lines]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        parts = []
        for is_folded, lines in self.runs():
            if is_folded:
                parts.append(_block(FOLD, [Line(FOLD, _folded(lines))]))
            else:
                blocks = groupby(lines, key=lambda line: line.sign)
                parts += [_block(sign, list(block)) for sign, block in blocks]
        side = f"<b>{self.counts}</b>"  # at the right, or above where there is no room
        code = f'<pre style="{FONT};min-width:max-content">{"".join(parts)}</pre>'
        code = f'<div style="flex:1 1 30em;max-width:100%;overflow-x:auto">{code}</div>'
        return f'<div style="display:flex;flex-flow:row-reverse wrap;gap:0 1em">{side}{code}</div>'

    def runs(self) -> list[tuple[bool, list[Line]]]:
        """Return the lines in runs, each with whether it is to be folded."""
        n = len(self.lines)
        changed = [i for i, line in enumerate(self.lines) if line.sign != SAME]
        near = {j for i in changed for j in range(i - self.context, i + self.context + 1)}
        is_folded = [i not in near for i in range(n)]
        start = 0
        for folded, run in groupby(list(is_folded)):
            end = start + len(list(run))
            if folded and end - start < LEAST_FOLDED:
                is_folded[start:end] = [False] * (end - start)
            start = end
        both = groupby(zip(is_folded, self.lines, strict=True), key=lambda pair: pair[0])
        return [(folded, [line for _, line in run]) for folded, run in both]


def _folded(lines: list[Line]) -> str:
    """Return what stands for lines that did not change."""
    shifts = {(line.shift > 0) - (line.shift < 0) for line in lines if line.text.strip()}
    where = {(1,): ", further in", (-1,): ", further out"}.get(tuple(shifts), "")
    return f"{count(len(lines), 'line')} as before{where}"


def _block(sign: str, lines: list[Line]) -> str:
    """Return lines of one sign; the sign is no part of what one copies."""
    hue = HUE.get(sign)
    style = f"display:block;border-left:3px solid {hue or 'transparent'};padding-left:4px"
    if sign in (ADDED, REMOVED):
        style += f";background:{_faint(hue, LINE)}"
    elif sign in (LEFT, FOLD):
        style += ";font-style:italic"
    mark = f'<span style="user-select:none">{sign} </span>' if hue else f"{sign} "
    code = "".join(f"{mark}{_html(line)}\n" for line in lines)
    return f'<span style="{style}">{code}</span>'


def _html(line: Line) -> str:
    """Return the text of a line, what changed in it marked."""
    place, parts = 0, []
    for first, end in line.marks:
        ground = f"background:{_faint(HUE[line.sign], MARK)}"
        marked = f'<b style="{ground}">{escape(line.text[first:end], quote=False)}</b>'
        parts += [escape(line.text[place:first], quote=False), marked]
        place = end
    return "".join(parts) + escape(line.text[place:], quote=False)


def _faint(hue: str, opacity: float) -> str:
    return f"{hue}{round(255 * opacity):02x}"


def _lines(before: list[str], after: list[str], by_indentation: bool) -> Iterator[Line]:
    """Yield the lines of both texts, what was removed before what was added in its place."""
    old, new = _words(before), _words(after)
    same = _kept(_common(old, new), before, after, by_indentation)
    moved = _moved(old, new, same)
    left = {run[0][0]: run for run in moved}
    went = {i for run in moved for i, _ in run}
    came = {j for run in moved for _, j in run}
    i = j = 0
    for next_i, next_j in [*same, (len(before), len(after))]:
        gone = [k for k in range(i, next_i) if old[k] and k not in went]
        come = [k for k in range(j, next_j) if k not in came]
        texts = [before[k] for k in gone], [after[k] for k in come]
        removed, added = _changed(*texts, by_indentation)
        removed, added = dict(zip(gone, removed, strict=True)), dict(zip(come, added, strict=True))
        for k in range(i, next_i):
            if k in left:
                yield Line(LEFT, f"{count(len(left[k]), 'line')} moved {_way(left[k], same)}")
            elif removed.get(k):
                yield removed[k]
        for k in range(j, next_j):
            yield added.get(k) or Line(MOVED, after[k])
        if next_i < len(before):
            shift = _indent(after[next_j]) - _indent(before[next_i])
            yield Line(SAME, after[next_j], shift=shift)
        i, j = next_i + 1, next_j + 1


def _words(lines: list[str]) -> list[list[str]]:
    return [WORD.findall(line) for line in lines]


def _common(a: list[list[str]], b: list[list[str]]) -> list[tuple[int, int]]:
    """Return the pairs of lines that say the same, in order: as many letters as can be."""
    return _heaviest([[(x == y) * (0.1 + len("".join(x))) for y in b] for x in a])


def _heaviest(weights: list[list[float]]) -> list[tuple[int, int]]:
    """Return the pairs of a row and a column, both in order, of the largest sum of weights."""
    n_rows, n_columns = len(weights), len(weights[0]) if weights else 0
    best = [[0.0] * (n_columns + 1) for _ in range(n_rows + 1)]  # of what follows i and j
    for i in reversed(range(n_rows)):
        for j in reversed(range(n_columns)):
            pair = weights[i][j] and weights[i][j] + best[i + 1][j + 1]
            best[i][j] = max(best[i + 1][j], best[i][j + 1], pair)
    pairs, i, j = [], 0, 0
    while i < n_rows and j < n_columns:
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs.append((i, j))
            i, j = i + 1, j + 1
    return pairs


def _kept(
    same: list[tuple[int, int]], before: list[str], after: list[str], by_indentation: bool
) -> list[tuple[int, int]]:
    """Return the pairs that did not change: of those that shift alone, with nothing near, none."""
    if not by_indentation:
        return same
    kept, shifts, last = [], set(), (-1, -1)
    for i, j in same:
        shift = _indent(after[j]) - _indent(before[i])
        follows = (i, j) == (last[0] + 1, last[1] + 1)
        if not before[i].strip() or shift in shifts or not (follows and shifts):
            kept.append((i, j))
            shifts |= {shift} if before[i].strip() else set()
        last = i, j
    return kept


def _moved(
    old: list[list[str]], new: list[list[str]], same: list[tuple[int, int]]
) -> list[list[tuple[int, int]]]:
    """Return runs of lines that stand elsewhere, longest first, each line with where it went."""
    gone = sorted(set(range(len(old))) - {i for i, _ in same})
    come = sorted(set(range(len(new))) - {j for _, j in same})
    runs = []
    while True:
        found = []
        for i in gone:
            for j in come:
                run = []
                while i in gone and j in come and old[i] == new[j]:
                    run.append((i, j))
                    i, j = i + 1, j + 1
                found.append(run)
        longest = max(found, key=lambda run: _letters(old, run), default=[])
        if _letters(old, longest) < LEAST_MOVED:
            return runs
        runs.append(longest)
        gone = [i for i in gone if i not in {i for i, _ in longest}]
        come = [j for j in come if j not in {j for _, j in longest}]


def _letters(lines: list[list[str]], run: list[tuple[int, int]]) -> int:
    return sum(len(word) for i, _ in run for word in lines[i] if re.match(r"\w", word))


def _way(run: list[tuple[int, int]], same: list[tuple[int, int]]) -> str:
    """Return where the lines went, as seen from those that stand where they stood."""
    (i, j), *_ = run
    is_down = sum(k < i for k, _ in same) < sum(k < j for _, k in same)
    return "down" if is_down else "up"


def _changed(
    gone: list[str], come: list[str], by_indentation: bool
) -> tuple[list[Line | None], list[Line]]:
    """Return what was removed and added in one place, its words compared.

    Nothing changed if the words are the same and only break into lines elsewhere: None is what
    was removed then.
    """
    old, new = _words(gone), _words(come)
    shifts = by_indentation and gone and come and _indent(gone[0]) != _indent(come[0])
    if sum(old, []) == sum(new, []) and not shifts:
        return [None] * len(gone), [Line(SAME, line) for line in come]
    removed = [Line(REMOVED, line) for line in gone]
    added = [Line(ADDED if line.strip() else SAME, line) for line in come]
    for i, j in _heaviest([[_share(a, b) for b in new] for a in old]):
        removed[i].marks, added[j].marks = _marks(gone[i], come[j])
    return removed, added


def _share(a: list[str], b: list[str]) -> float:
    """Return the share of words that two lines have in common, 0 if it is small."""
    a, b = ([word for word in line if re.match(r'[\w"]', word)] for line in (a, b))
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if not (a and b) or matcher.quick_ratio() < LEAST_ALIKE:  # an upper bound, soon computed
        return 0.0
    share = matcher.ratio()
    return share if share >= LEAST_ALIKE else 0.0


def _marks(before: str, after: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the places of the words that changed, in each of two lines."""
    old, new = (list(WORD.finditer(line)) for line in (before, after))
    words = ([word[0] for word in line] for line in (old, new))
    marks = [], []
    for kind, *places in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for line, (first, end), found in zip(
            (old, new), (places[:2], places[2:]), marks, strict=True
        ):
            if kind != "equal" and first < end:
                place = line[first].start()
                if found and place - found[-1][1] <= LEAST_BETWEEN:
                    place = found.pop()[0]
                found.append((place, line[end - 1].end()))
    return marks


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
