"""Pictures of the requests of one line: their addresses, sectors and cache lines, banks.

Each returns a `Picture`, which shows itself in a notebook together with the words that say the
same. No picture needs its colours: marks, hatches and numbers tell apart what they tell apart.
"""

import math
from collections import Counter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from helpers.base.gpu import BANKS, LINE_BYTES, SECTOR_BYTES, WARP_SIZE, WORD_BYTES
from helpers.base.images import Picture
from helpers.base.palette import INK
from helpers.base.words import LONGEST_TEXT, count, shorten
from helpers.trace.colours import BLUE, GREEN, ORANGE, PALE, PINK, SKY
from helpers.trace.model import ideal_sectors, parts, sectors
from helpers.trace.picture import WIDTH, legend
from helpers.trace.record import Access, Request

MARKS = [("o", BLUE), ("s", ORANGE), ("^", GREEN), ("D", PINK)]  # of each eight lanes
MOST_LINES = 8  # rows of cache lines in a picture


def draw_addresses(access: Access, kernel: str) -> Picture:
    """Draw which lane asks for which address: a row for each request that was kept.

    Requests that lie far apart each begin at their own first byte. A lane that mixes several texels
    has a mark for each. Raises ValueError if no request was kept.
    """
    requests = _samples(access)
    spans = [(min(a), max(a) + access.bytes) for a in map(_asked, requests)]
    widest = max(end - first for first, end in spans)
    together = (min(first for first, _ in spans), max(end for _, end in spans))
    is_shared = together[1] - together[0] <= 16 * max(widest, LINE_BYTES)
    figure = Figure(figsize=(WIDTH, 0.9 + 1.25 * len(requests)), layout="constrained")
    rows = figure.subplots(len(requests), 1, squeeze=False, sharex=is_shared)[:, 0]
    has_texels = access.space in ("texture", "surface")
    state = "with texels" if has_texels else "active"
    words = []
    for n, (ax, request, (first, end)) in enumerate(zip(rows, requests, spans, strict=True), 1):
        low, high = together if is_shared else (first, first + widest)
        _scatter_lanes(ax, request)
        _mark_bytes(ax, low, high)
        active = count(len(_lanes(request)), "lane")
        title = f"request {n}, {_place(request)}: {active} {state}"
        ax.set_title(title, fontsize=9, loc="left", pad=3)
        place = f"request {n}, {_place(request)}"
        words.append(f"{place}, {active} at bytes {first:,} to {end - 1:,}")
    order = ", row after row; a GPU may place texels otherwise" if has_texels else ""
    rows[-1].set_xlabel(f"byte offset into {access.array}{order}")
    shown = f"{len(requests)} of {count(access.requests, 'request')}"
    what = "which texels each lane wants" if has_texels else "where the access of each lane begins"
    _head(figure, access, kernel, f"{what}, in {shown}")
    return Picture(figure, f"{_sentence(access)}: {'; '.join(words)}.")


def draw_lines(access: Access, kernel: str) -> Picture:
    """Lay a request, of those kept the one that moves most, over 128-byte lines and their sectors.

    Raises ValueError if no request was kept.
    """
    request = max(_samples(access), key=lambda r: sectors(r.offsets, access.bytes))
    lanes_at = _lanes_at(request)
    asked = {byte for start in lanes_at for byte in range(start, start + access.bytes)}
    touched = {byte // SECTOR_BYTES for byte in asked}
    lines = sorted({byte // LINE_BYTES for byte in asked})
    shown = lines[:MOST_LINES]
    rest = len(lines) - len(shown)
    more = f" · not drawn: {count(rest, 'more line')}" if rest else ""
    figure = Figure(figsize=(WIDTH, 1.9 + 0.36 * len(shown)), layout="constrained")
    ax = figure.subplots()
    for y, line in enumerate(shown):
        for number in range(LINE_BYTES // SECTOR_BYTES):
            is_moved = line * LINE_BYTES // SECTOR_BYTES + number in touched
            _draw_sector(ax, number * SECTOR_BYTES, y, is_moved)
    for start, lanes in lanes_at.items():
        _draw_bytes(ax, start, access.bytes, lanes, shown)
    ax.set(
        xlim=(-0.5, LINE_BYTES + 0.5), ylim=(len(shown), -0.15), xlabel=f"byte of the line{more}"
    )
    ax.set_xticks(range(0, LINE_BYTES + 1, SECTOR_BYTES))
    ax.set_yticks([y + 0.4 for y in range(len(shown))], [f"{n * LINE_BYTES:,}" for n in shown])
    ax.set_ylabel(f"{LINE_BYTES}-byte line\nat byte of {access.array}")
    legend(
        figure,
        [
            Patch(fc=BLUE, ec="black", label="asked for; number: lane, ×: lanes at one place"),
            Patch(fc=PALE, ec=ORANGE, hatch="////", label="moved, not asked for"),
            Patch(fc="none", ec=INK, label="not moved"),
        ],
    )
    moved = sectors(request.offsets, access.bytes)
    ideal = ideal_sectors(request.offsets, access.bytes)
    used = f"{len(asked):,} of {SECTOR_BYTES * moved:,} bytes"
    summary = f"{_place(request)}: {count(moved, 'sector')} moved, {ideal} would do: {used} used"
    _head(figure, access, kernel, summary)
    lanes = count(len(_asked(request)), "lane")
    touch = "touches" if lanes == "1 lane" else "touch"
    alt = (
        f"{_sentence(access)}: {lanes} of warp {request.warp} {touch} "
        f"{count(moved, 'sector')} of 32 bytes in {count(len(lines), 'line')}, {ideal} would do; "
        f"{used} are used."
    )
    return Picture(figure, alt)


def draw_banks(access: Access, kernel: str) -> Picture:
    """Draw the queues before the banks of shared memory: which lane waits how many wavefronts.

    It is the request, of those kept, that takes most wavefronts. Raises ValueError if no request
    was kept.
    """
    request = max(_samples(access), key=lambda r: _height(_queues(access, r)))
    served = _queues(access, request)
    height = _height(served)
    figure = Figure(figsize=(WIDTH, 1.75 + 0.22 * max(height, 2)), layout="constrained")
    ax = figure.subplots()
    top = 0
    for name, queues in served:
        for bank, queue in queues.items():
            for place, lanes in enumerate(queue):
                _draw_turn(ax, bank, top + place, lanes, waits=place > 0)
        longest = max(map(len, queues.values()))
        if len(served) > 1:
            ax.text(BANKS + 0.3, top + longest / 2, name, va="center", fontsize=8)
            ax.axhline(top + longest, color=INK, lw=1.2)
        top += longest
    ax.set(xlim=(-0.2, BANKS + 0.2), ylim=(height + 0.1, -0.1))
    ax.set_xticks([bank + 0.5 for bank in range(BANKS)], range(BANKS), fontsize=8)
    ax.set_yticks([y + 0.5 for y in range(height)], range(1, height + 1), fontsize=8)
    ax.set(xlabel="bank of shared memory (4 bytes wide)", ylabel="wavefront")
    ax.tick_params(length=0)
    legend(
        figure,
        [
            Patch(
                fc=SKY, ec="black", label="first in its queue; number: lane, ×: lanes at one word"
            ),
            Patch(fc="white", ec=ORANGE, hatch="////", label="waits: a bank conflict"),
        ],
    )
    ideal = len(served)
    summary = f"{_place(request)}: {count(height, 'wavefront')}, {ideal} would do"
    _head(figure, access, kernel, summary)
    waiting = Counter()
    for _, queues in served:
        waiting.update({bank: len(queue) for bank, queue in queues.items()})
    bank, longest = waiting.most_common(1)[0]
    queue = f"the longest queue is {longest} at bank {bank}" if height > ideal else "none waits"
    alt = (
        f"{_sentence(access)}: warp {request.warp} takes {count(height, 'wavefront')}, {ideal} "
        f"would do; its lanes need {count(len(waiting), 'bank')} of {BANKS}, {queue}."
    )
    return Picture(figure, alt)


def _scatter_lanes(ax: Axes, request: Request) -> None:
    """Put a mark where each lane's access begins, the lanes from top to bottom."""
    active = _lanes(request)
    marked = [(n, request.offsets[n]) for n in active] + list(request.more)
    for first, (mark, color) in zip(range(0, WARP_SIZE, 8), MARKS, strict=True):
        these = [(n, place) for n, place in marked if n in range(first, first + 8)]
        lanes, places = [n for n, _ in these], [place for _, place in these]
        ax.plot(places, lanes, mark, color=color, ms=4.5, mec="black", mew=0.4)
    for lane, shift in {active[-1]: (7, -3), active[0]: (-2, 6)}.items():
        place = (request.offsets[lane], lane)
        ax.annotate(f"lane {lane}", place, shift, textcoords="offset points", fontsize=8)
    ax.set(ylim=(WARP_SIZE + 4, -11), ylabel="lane")
    ax.set_yticks([0, 8, 16, 24, 31])
    ax.tick_params(labelsize=8)


def _mark_bytes(ax: Axes, low: int, high: int) -> None:
    """Number the bytes from low to high at powers of two, and mark sectors or lines."""
    step = max(SECTOR_BYTES, 2 ** math.ceil(math.log2(max(high - low, 1) / 12)))
    first = low // step * step
    last = max(-(-high // step) * step, first + LINE_BYTES)
    ax.set_xticks(range(first, last + 1, step), [f"{n:,}" for n in range(first, last + 1, step)])
    margin = 0.06 * (last - first)
    ax.set_xlim(first - margin / 4, last + margin)
    ax.grid(axis="x", color=INK, lw=0.4)
    ax.set_axisbelow(True)


def _draw_sector(ax: Axes, x: int, y: int, is_moved: bool) -> None:
    style = {"fc": PALE, "ec": ORANGE, "hatch": "////"} if is_moved else {"fc": "none"}
    gid = "moved" if is_moved else "not moved"
    ax.add_patch(Rectangle((x, y), SECTOR_BYTES, 0.8, lw=0, gid=gid, **style))
    border = {"fill": False, "ec": INK, "lw": 1.6, "zorder": 3}  # above the bytes
    ax.add_patch(Rectangle((x, y), SECTOR_BYTES, 0.8, **border))


def _draw_bytes(ax: Axes, start: int, size: int, lanes: list[int], shown: list[int]) -> None:
    """Draw the bytes one or more lanes ask for, in each line that they lie in."""
    for line in range(start // LINE_BYTES, (start + size - 1) // LINE_BYTES + 1):
        if line not in shown:
            continue
        y = shown.index(line)
        x = max(start - line * LINE_BYTES, 0)
        end = min(start + size - line * LINE_BYTES, LINE_BYTES)
        box = Rectangle((x, y), end - x, 0.8, fc=BLUE, ec="white", lw=0.5, gid="asked")
        ax.add_patch(box)
        if end - x >= WORD_BYTES:
            _label(ax, (x + end) / 2, y + 0.42, lanes, color="white")


def _draw_turn(ax: Axes, bank: int, y: int, lanes: list[int], waits: bool) -> None:
    """Draw the lanes that a bank serves in one wavefront."""
    style = {"fc": "white", "ec": ORANGE, "hatch": "////"} if waits else {"fc": SKY}
    ax.add_patch(Rectangle((bank, y), 1, 1, lw=0, **style))
    ax.add_patch(Rectangle((bank, y), 1, 1, fill=False, ec="black", lw=0.5, gid="turn"))
    box = {"fc": "white", "ec": "none", "pad": 0.6} if waits else None
    _label(ax, bank + 0.5, y + 0.53, lanes, color="black", bbox=box)


def _label(ax: Axes, x: float, y: float, lanes: list[int], **style) -> None:
    text = f"{lanes[0]}" if len(lanes) == 1 else f"×{len(lanes)}"
    ax.text(x, y, text, ha="center", va="center", fontsize=8, **style)


def _head(figure: Figure, access: Access, kernel: str, summary: str) -> None:
    """Write what the picture is about: kernel, line, operation and array, and the line's text."""
    where = f"{kernel}, line {access.line}: {_what(access)}"
    text = shorten(access.text, LONGEST_TEXT)
    figure.suptitle(f"{where}\n{text}\n{summary}", fontsize=10, parse_math=False)


def _queues(access: Access, request: Request) -> list[tuple[str, dict[int, list[list[int]]]]]:
    """Return the parts of a warp that are served one after the other: name, queues by bank.

    A queue holds the lanes served in its first wavefront, in its second and so on. Lanes that want
    the same word are served together; of an atomic operation, one by one.
    """
    named = []
    for lanes in parts(request.offsets, access.bytes, access.operation):
        queues: dict[int, dict[tuple, list[int]]] = {}
        for lane in lanes:
            first = request.offsets[lane]
            for word in range(first // WORD_BYTES, (first + access.bytes - 1) // WORD_BYTES + 1):
                turn = (word, lane) if access.operation == "atomic" else (word,)
                queues.setdefault(word % BANKS, {}).setdefault(turn, []).append(lane)
        name = f"lanes {lanes[0]}–{lanes[-1]}" if len(lanes) > 1 else f"lane {lanes[0]}"
        named.append((name, {bank: list(queues[bank].values()) for bank in sorted(queues)}))
    return named


def _height(served: list[tuple[str, dict]]) -> int:
    return sum(max(map(len, queues.values())) for _, queues in served)


def can_draw(access: Access) -> bool:
    """Whether a request was kept that asks for something."""
    return any(map(_asked, access.samples))


def _samples(access: Access) -> list[Request]:
    samples = [request for request in access.samples if _asked(request)]
    if not samples:
        raise ValueError(f"line {access.line}: no request for {access.array} was kept")
    return samples


def _asked(request: Request) -> list[int]:
    own = [offset for offset in request.offsets if offset is not None]
    return own + [offset for _, offset in request.more]


def _lanes(request: Request) -> list[int]:
    return [lane for lane, offset in enumerate(request.offsets) if offset is not None]


def _lanes_at(request: Request) -> dict[int, list[int]]:
    """Return the lanes at each byte offset."""
    lanes_at: dict[int, list[int]] = {}
    for lane, offset in enumerate(request.offsets):
        if offset is not None:
            lanes_at.setdefault(offset, []).append(lane)
    return lanes_at


def _what(access: Access) -> str:
    size = count(access.bytes, "byte")
    return f"{access.space} {access.operation} of {access.array}, {size} a lane"


def _sentence(access: Access) -> str:
    return f"Line {access.line}, {_what(access)}"


def _place(request: Request) -> str:
    x, y, z = request.block
    return f"block ({x}, {y}, {z}), warp {request.warp}"
