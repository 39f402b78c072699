"""The report on a traced call: a table for each kernel, the same figures for tests, and pictures.

Launches of the same kernel with the same grid, block and shared memory are summed and shown once.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from helpers.trace.occupancy import Occupancy, occupancy
from helpers.trace.record import Access, Launch, Line
from helpers.trace.table import bytes_moved, dim, excess, plain_text, title_and_table

if TYPE_CHECKING:
    from helpers.base.images import Picture

NOTHING_RAN = "no kernel was launched"
NOTHING_TO_DRAW = "nothing to draw: no line was counted, and no access to memory"
COUNTS = {
    "requests", "lanes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts",
    "same_address", "joined_requests", "joined_wavefronts", "texels", "executions", "flops",
}  # fmt: skip


class Trace:
    """What the kernels of one traced call did; shows itself as a table for each kernel.

    `launches` are the launches in their order, `result` is what the traced function returned (None
    for a Python kernel). `accesses`, `lines`, `bytes`, `flops` and `intensity` are about all of
    them; `report.kernel("name")` is the report on one kernel alone. `report["load", "A"]` is one
    access: any of its kernel, line, operation, space and array, enough to tell it apart.
    """

    def __init__(
        self,
        launches: Iterable[Launch],
        result: Any = None,
        registers: Callable[[str, str], int | None] | None = None,
    ):
        """`registers` asks nvcc for those of a kernel on an architecture; None: of Python's."""
        self.launches = list(launches)
        self.result = result
        self._registers = registers
        alike: dict[tuple, list[Launch]] = {}
        for launch in self.launches:
            key = (launch.kernel, launch.instance, launch.grid, launch.block, launch.shared_bytes)
            alike.setdefault(key, []).append(launch)
        self._groups = list(alike.values())
        self._sums = [_sum(group) for group in self._groups]

    # ---- the figures ----------------------------------------------------------------------------

    @property
    def accesses(self) -> list[Access]:
        """What each line did to each array, summed over launches that are alike."""
        return [access for launch in self._sums for access in launch.accesses]

    @property
    def lines(self) -> list[Line]:
        """How often each line ran, summed over launches that are alike."""
        return [line for launch in self._sums for line in launch.lines]

    @property
    def bytes(self) -> int:
        """Bytes of global memory that all sectors of all requests hold, read and written.

        What textures and surfaces move is not among them: where a GPU puts texels is open.
        """
        return bytes_moved(self.accesses)

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return sum(line.flops for line in self.lines)

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs for each byte moved; inf where no byte is."""
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def lanes(self) -> float:
        """Active lanes of the 32, the mean over all lines that warps ran; nan if none did."""
        executions = sum(line.executions for line in self.lines)
        return sum(line.lanes for line in self.lines) / executions if executions else math.nan

    def __getitem__(self, key: Any) -> Access:
        """Return the one access that `key` describes; KeyError lists those that there are."""
        found = self._matching(key)
        if len(found) != 1:
            raise KeyError(f"{len(found)} accesses are {key!r}; there is {self._accesses()}")
        return found[0][1]

    def kernel(self, which: str | int) -> "Trace":
        """Return the report on one kernel alone, by its name or its place in the report, from 0."""
        numbered = enumerate(self._groups)
        groups = [group for i, group in numbered if which in (i, group[0].kernel)]
        if not groups:
            raise KeyError(f"no kernel {which!r} ran; there is {self._kernels()}")
        return Trace([launch for group in groups for launch in group], self.result, self._registers)

    def occupancy(self, chip: str | None = None) -> Occupancy:
        """Return how much of a chip the kernel's blocks occupy; by default of the GPU here.

        Without a GPU, and on one that helpers/base/gpu.py does not know, it is the H200. For
        another chip, nvcc is asked for the registers that it gives a thread there; without it, and
        for a Python kernel, they are taken for no limit. Raises ValueError for an unknown chip, or
        if several kernels ran.
        """
        launch = self._only()
        threads, registers = math.prod(launch.block), launch.registers
        if self._registers is not None and (chip is not None or registers is None):
            arch = occupancy(chip, threads).chip.arch
            registers = self._registers(launch.instance or launch.kernel, arch)
        return occupancy(chip, threads, launch.shared_bytes, registers)

    # ---- the tables -----------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n\n".join(map(plain_text, self._one_each())) or NOTHING_RAN

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = map(title_and_table, self._one_each())
        parts = [f"<p>{escape(title)}</p>{table._repr_html_()}" for title, table in tables]
        return "".join(parts) or f"<p>{NOTHING_RAN}</p>"

    def _one_each(self) -> list["Trace"]:
        """Return a report for each table."""
        return [self.kernel(i) for i in range(len(self._sums))]

    # ---- the pictures ---------------------------------------------------------------------------

    def draw(self) -> "Overview":
        """Draw for each kernel the lanes that are active, and the access furthest from ideal.

        The pictures of one access below take what describes it, as `report[...]` does: its line or
        its array, say; of several, and by default of all, they show the one furthest from ideal.
        """
        launch_pictures, pictures = _modules_that_draw()
        drawn = []
        for launch in self._sums:
            if any(line.executions for line in launch.lines):  # not of a lambda
                drawn.append(launch_pictures.draw_lanes(launch))
            kept = [access for access in launch.accesses if pictures.can_draw(access)]
            if kept:
                worst = max(kept, key=excess)
                of_space = {"global": pictures.draw_lines, "shared": pictures.draw_banks}
                draw = of_space.get(worst.space, pictures.draw_addresses)
                drawn.append(draw(worst, launch.kernel))
        return Overview(drawn)

    def draw_addresses(self, which: Any = ()) -> "Picture":
        """Draw which addresses the lanes of the first requests ask for."""
        return self._draw("draw_addresses", ("global", "shared", "texture", "surface"), which)

    def draw_lines(self, which: Any = ()) -> "Picture":
        """Draw which sectors and lines of global memory a request moves."""
        return self._draw("draw_lines", ("global",), which)

    def draw_banks(self, which: Any = ()) -> "Picture":
        """Draw which lanes of a request wait for each other at the banks of shared memory."""
        return self._draw("draw_banks", ("shared",), which)

    def draw_lanes(self) -> "Picture":
        """Draw how many lanes each line of the only kernel keeps active."""
        launch_pictures, _ = _modules_that_draw()
        return launch_pictures.draw_lanes(self._only())

    def draw_timeline(self) -> "Picture":
        """Draw what the warps of the only kernel's first block ask for between its barriers."""
        launch_pictures, _ = _modules_that_draw()
        return launch_pictures.draw_timeline(self._only())

    def _draw(self, name: str, spaces: tuple[str, ...], which: Any) -> "Picture":
        """Draw the access furthest from ideal, of those in these spaces that `which` describes."""
        kinds = " or ".join(spaces)
        if not any(access.space in spaces for access in self.accesses):
            raise ValueError(f"nothing to draw: no access to {kinds} memory")
        found = [(k, access) for k, access in self._matching(which) if access.space in spaces]
        if not found:
            raise KeyError(f"no {kinds} access is {which!r}; there is {self._accesses()}")
        kernel, access = max(found, key=lambda pair: excess(pair[1]))
        _, pictures = _modules_that_draw()
        return getattr(pictures, name)(access, kernel)

    # ---------------------------------------------------------------------------------------------

    def _only(self) -> Launch:
        if len(self._sums) != 1:
            raise ValueError(
                f"{len(self._sums)} kernels or shapes of a launch: choose one with "
                f"report.kernel(0), report.kernel(1) …, of {self._kernels()}"
            )
        return self._sums[0]

    def _kernels(self) -> str:
        names = (f"{launch.kernel} on {_blocks(launch)}" for launch in self._sums)
        return ", ".join(names) or "none"

    def _accesses(self) -> str:
        names = (f"line {a.line}: {a.operation} {a.array} ({a.space})" for a in self.accesses)
        return "; ".join(names) or "none"

    def _matching(self, key: Any) -> list[tuple[str, Access]]:
        """Return the accesses that the parts of `key` describe, each with its kernel's name."""
        parts = key if isinstance(key, tuple) else (key,)
        every = [(launch.kernel, access) for launch in self._sums for access in launch.accesses]
        return [(k, a) for k, a in every if all(part in (k, *_names(a)) for part in parts)]


class Overview:
    """Pictures, one below the other, each an output of its own."""

    def __init__(self, pictures: list["Picture"]):
        self.pictures = pictures

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.pictures)) or NOTHING_TO_DRAW

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if not self.pictures:
            print(NOTHING_TO_DRAW)
        for picture in self.pictures:
            display(picture)


def _modules_that_draw() -> tuple:
    """Return launch_pictures and pictures: they need matplotlib, the tables do not."""
    from helpers.trace import launch_pictures, pictures

    return launch_pictures, pictures


def _sum(group: list[Launch]) -> Launch:
    """Return launches that are alike as one; samples, stages and busiest are the first one's."""
    accesses = _totals(access for launch in group for access in launch.accesses)
    lines = _totals(line for launch in group for line in launch.lines)
    return replace(group[0], accesses=accesses, lines=lines)


def _blocks(launch: Launch) -> str:
    return f"{dim(launch.grid)} block" + ("s" if math.prod(launch.grid) > 1 else "")


def _totals(records: Iterable) -> list:
    """Add up the counts of records that agree in all else, and order them by line."""
    totals: dict[tuple, Any] = {}
    for record in records:
        values = vars(record)
        what = tuple(v for name, v in values.items() if name not in (*COUNTS, "samples"))
        if what not in totals:
            totals[what] = replace(record)
            continue
        for name in COUNTS & values.keys():
            setattr(totals[what], name, getattr(totals[what], name) + values[name])
    return sorted(totals.values(), key=lambda total: total.line)


def _names(access: Access) -> tuple:
    return (access.line, access.operation, access.space, access.array)
