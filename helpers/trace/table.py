"""The text of a report: a kernel's table, and what is said below it."""

import math
import re
import textwrap
from collections.abc import Iterable

from helpers.base.gpu import SECTOR_BYTES, WARP_SIZE, WIDEST_ACCESS
from helpers.base.tables import Table
from helpers.base.words import LONGEST_TEXT, count, shorten
from helpers.trace.occupancy import Occupancy
from helpers.trace.record import Access

HEADER = ["line", "source", "access", "array", "requests", "each", "ideal", "lanes"]
SOURCE, ARRAY = HEADER.index("source"), HEADER.index("array")
# what a request takes of each kind of memory
UNITS = {
    "global": "32-byte sectors",
    "shared": "wavefronts (shared memory)",
    "texture": "different texels",
    "surface": "different texels",
}
TEXELS = [space for space, unit in UNITS.items() if unit == "different texels"]
WIDTH = 100  # characters that plain text takes at most
LONGEST_ARRAY = 20  # characters of an array's name in plain text
BELOW = {"initial_indent": 6 * " ", "subsequent_indent": 8 * " ", "break_on_hyphens": False}
TENSOR_CORES = re.compile(r"\bw?mma(?:_sync|::|\.)|matrix_sync|ldmatrix")
# from here on the table says that something is wrong
MANY_SECTORS = 1.2  # times the ideal
MANY_CONFLICTS = 0.1  # a request
MANY_IDLE_LANES = 8


def title_and_table(report) -> tuple[str, Table]:
    """Return what a report on one kernel shows."""
    rows = [_cells(access) for access in report.accesses]
    for row in rows:
        row[SOURCE] = shorten(row[SOURCE], LONGEST_TEXT)
    notes = map(_complaints, report.accesses)
    return _title(report), Table(HEADER, rows, "\n".join(_caption(report)), list(notes))


def plain_text(report) -> str:
    """Return the same in lines of at most WIDTH characters; what is wrong stands below its row."""
    lines = [*textwrap.wrap(_title(report), WIDTH), *_plain_rows(report.accesses)]
    for line in _caption(report):
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def _plain_rows(accesses: list[Access]) -> list[str]:
    if not accesses:
        return []
    rows = [_cells(access) for access in accesses]
    for row in rows:
        row[ARRAY] = shorten(row[ARRAY], LONGEST_ARRAY)
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    room = WIDTH - sum(widths) + widths[SOURCE] - 2 * (len(HEADER) - 1)
    for row in rows:
        row[SOURCE] = shorten(row[SOURCE], room)
    notes = [textwrap.fill(_complaints(access), WIDTH, **BELOW) for access in accesses]
    return Table(HEADER, rows, "", notes).text_lines()


def _title(report) -> str:
    launch = report.launches[0]
    title = f"{launch.kernel}: grid {dim(launch.grid)}, block {dim(launch.block)}"
    title += f", on the {launch.backend}"
    return title + (f", × {len(report.launches)} launches" if len(report.launches) > 1 else "")


def _caption(report) -> list[str]:
    """Return the lines below the table."""
    fit = _fit(report.occupancy(), math.prod(report.launches[0].grid))
    return [*_legend(report.accesses), _work(report), *_not_counted(report), *fit.splitlines()]


def _legend(accesses: list[Access]) -> list[str]:
    """Return a line that explains the columns of numbers; none if there are none."""
    there = {access.space for access in accesses}
    units = dict.fromkeys(unit for space, unit in UNITS.items() if space in there)
    if not units:
        return []
    return [f"each: {' or '.join(units)} a request · ideal: the fewest · lanes: active"]


def _not_counted(report) -> list[str]:
    """Say what of the kernel the counts are not about."""
    said = []
    if any(TENSOR_CORES.search(line.text) for line in report.lines):
        said += ["not counted: FLOPs of tensor cores; a GPU may load and store fragments otherwise"]
    if any(access.space in TEXELS for access in report.accesses):
        said += ["not counted: bytes that textures move; where a GPU puts texels is not documented"]
    return said


def bytes_moved(accesses: Iterable[Access]) -> int:
    """Return the bytes of global memory that all sectors of all requests hold."""
    return SECTOR_BYTES * sum(access.sectors for access in accesses)


def excess(access: Access) -> float:
    """Return how many times the ideal sectors or wavefronts the requests take; of texels 0."""
    took, ideal = _needs(access)
    return took / ideal if ideal else 0


def dim(size: tuple[int, int, int]) -> str:
    """Write the size of a grid or block: 16 × 8."""
    x, y, z = size
    return f"{x} × {y} × {z}" if z > 1 else f"{x} × {y}" if y > 1 else f"{x}"


def _work(report) -> str:
    loaded, stored = (
        bytes_moved(a for a in report.accesses if a.operation == operation)
        for operation in ("load", "store")
    )
    atomic = report.bytes - loaded - stored
    moved = f"{loaded:,} bytes loaded, {stored:,} stored"
    moved += f", {atomic:,} by atomics" if atomic else ""
    parts = [moved, count(report.flops, "FLOP")]
    each = report.intensity
    all_counted = not any(access.space in TEXELS for access in report.accesses)
    parts += [f"{_short(each)} FLOP{_plural(each)} a byte"] if report.bytes and all_counted else []
    parts += [f"{report.lanes:.3g} of 32 lanes active"] if report.lines else []
    return " · ".join(parts)


def _needs(access: Access) -> tuple[int, int | None]:
    """Return what the requests took and would take ideally: sectors, wavefronts, or texels."""
    if access.space in TEXELS:
        return access.texels, None
    if access.space == "global":
        return access.sectors, access.ideal_sectors
    return access.wavefronts, access.ideal_wavefronts


def _cells(access: Access) -> list[str]:
    """Return the access as cells below HEADER."""
    took, ideal = _needs(access)
    cells = [str(access.line), access.text.strip(), f"{access.space} {access.operation}"]
    cells += [access.array, f"{access.requests:,}"]
    numbers = (took, ideal, access.lanes)
    return cells + ["–" if n is None else f"{n / access.requests:.3g}" for n in numbers]


def _complaints(access: Access) -> str:
    """Say in words what is wrong, if anything is."""
    complaints = []
    meeting = access.same_address / access.requests  # 0 but for atomics
    if access.space == "global" and meeting < 2 and excess(access) >= MANY_SECTORS:
        complaints.append(f"{excess(access):.3g} times the sectors it needs")
    conflicts = access.bank_conflicts / access.requests
    if access.space == "shared" and conflicts >= MANY_CONFLICTS:
        complaints.append(f"{_short(conflicts)} conflict{_plural(conflicts)} a request")
    if meeting >= 2:
        complaints.append(f"{meeting:.3g} lanes at one address")
    idle = WARP_SIZE - access.lanes / access.requests
    if idle >= MANY_IDLE_LANES:
        complaints.append(f"{idle:.3g} of 32 lanes idle")
    complaints += _joins(access)
    return f"← {', '.join(complaints)}" if complaints else ""


def _joins(access: Access) -> list[str]:
    """Say whether the GPU takes fewer wavefronts, because nvcc makes one access of several.

    How many it joins depends on the iterations of loops that it unrolls.
    """
    if access.widest == 0:
        return ["not on the GPU: nvcc keeps this in registers"]
    is_wide = access.widest is None or access.widest > access.bytes
    if not (0 < access.joined_requests < access.requests and is_wide):
        return []
    joins = "may join" if access.widest is None else "joins"
    about = f", then about {access.joined_wavefronts / access.requests:.3g}"
    if access.widest not in (None, WIDEST_ACCESS):  # it joins fewer than it could
        about = ""
    return [f"at most: nvcc {joins} neighbouring {access.operation}s{about}"]


def _fit(fit: Occupancy, blocks: int) -> str:
    """Say how a grid of so many blocks fits the chip: occupancy, waves and tail."""
    if not fit.blocks:
        return fit.summary
    wave = fit.chip.sms * fit.blocks
    if blocks <= wave:
        return f"{fit.summary}\n{blocks:,} of the {wave:,} blocks of one wave"
    waves, last = fit.waves(blocks), fit.last_wave(blocks)
    full = max(last, 0.01)  # one block of many: not 0%
    return f"{fit.summary}\n{waves:,.2f} waves of {wave:,} blocks, the last one {full:.0%} full"


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"  # never 1e+03


def _plural(number: float) -> str:
    return "" if _short(number) == "1" else "s"
