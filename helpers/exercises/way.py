"""The way through the course: sittings of the core, and side trips, with the minutes they take.

The notebooks say it themselves, in a line below a heading or at the head of a text:

    > **Sitting 12 of 30: banks.** 86 minutes, with [A gradient in tiles](#A-gradient-in-tiles).
    > **Sitting 12 goes on.**
    > **Side trip.** 11 minutes.

A sitting lasts until the next one begins, in the next notebook if need be. A side trip is the rest
of its section: it ends where a heading of the same or a higher level stands. Of exercises that have
a section of their own, those belong to a sitting that its line links to; the others are side trips.
A notebook without a sitting is a side trip as a whole.

Minutes come from what stands on the page: a minute for 120 words and for 5 lines of code that are
not folded, 6 for an exercise and 1 for a prediction; a capstone is not counted. Where a notebook
leads through a file, the lines that it shows of it count. The four numbers are round ones, fitted
to what expert readers said that 32 notebooks take, all exercises solved; in the mean a notebook is
20 % off.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.exercises.progress import TASKS, calls

NOTEBOOKS = ROOT / "notebooks"
WORDS_A_MINUTE, LINES_A_MINUTE = 120, 5
TASK_MINUTES = {"exercise": 6, "improve": 6, "predict": 1, "capstone": 0}  # open, the last of them

HEADING = re.compile(r"(#{1,3}) (.*)")
SITTING = re.compile(
    r"> \*\*Sitting (?P<number>\d+)(?: of \d+: (?P<title>.*?)(?:\.|(?<=\?))| goes on\.)\*\*"
)
SIDE_TRIP = re.compile(r"> \*\*Side trip\.\*\*")
FILE_READ = re.compile(r"^(\w+) = Path\(.*\)\.read_text\(\)", re.MULTILINE)
SHOWN = ("show_cuda", "show_twins")  # of helpers.code
LINK = re.compile(r"\]\(#([^)]*)\)")


@dataclass
class Part:
    """What lies between two headings, or marks, of a notebook: core if it has a sitting."""

    notebook: str  # its file's name without .ipynb
    heading: str
    level: int  # of the heading
    sitting: int | None
    minutes: float = 0.0
    cells: list[int] = field(default_factory=list)  # code cells, numbered from 0
    exercises: list[str] = field(default_factory=list)
    predictions: list[str] = field(default_factory=list)
    capstones: list[str] = field(default_factory=list)
    is_marked: bool = False  # a side trip begins here
    goes_on_aside: bool = False  # the side trip before goes on, below a heading of its own

    @property
    def tasks(self) -> list[str]:
        return [*self.exercises, *self.predictions, *self.capstones]


@dataclass
class Sitting:
    """What the core does at one time, by its number, which begins at 1."""

    number: int
    title: str
    parts: list[Part] = field(default_factory=list)

    @property
    def minutes(self) -> float:
        return sum(part.minutes for part in self.parts)

    @property
    def notebooks(self) -> list[str]:
        return list(dict.fromkeys(part.notebook for part in self.parts))

    @property
    def exercises(self) -> list[str]:
        return [name for part in self.parts for name in part.exercises]

    @property
    def predictions(self) -> list[str]:
        return [name for part in self.parts for name in part.predictions]


@dataclass
class Way:
    """All parts of all notebooks in their order, and the sittings of the core."""

    parts: list[Part]
    sittings: list[Sitting]

    def minutes(self, notebook: str, core: bool) -> float:
        """Return how long a notebook's core takes, or all the rest of it."""
        return sum(
            part.minutes
            for part in self.parts
            if part.notebook == notebook and (part.sitting is not None) == core
        )

    def sittings_in(self, notebook: str) -> list[Sitting]:
        return [sitting for sitting in self.sittings if notebook in sitting.notebooks]


def read_way(folder: Path = NOTEBOOKS) -> Way:
    """Read the way from the notebooks of a folder.

    Raises ValueError, with the place, where sittings are not numbered one after the other, or a
    sitting links to an exercise that its notebook does not have.
    """
    sittings: list[Sitting] = []
    parts: list[Part] = []
    for path in sorted(folder.glob("[0-9][0-9]*_*.ipynb")):
        parts += _parts(path, sittings)
    for part in parts:
        if part.sitting is not None:
            sittings[part.sitting - 1].parts.append(part)
    return Way(parts, sittings)


def _parts(path: Path, sittings: list[Sitting]) -> list[Part]:
    """Return the parts of a notebook; add the sittings that begin in it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    now, aside = None, 0  # the sitting, and the level of the heading that a side trip is below
    begins_here = False
    parts = [Part(path.stem, "", 1, None)]
    files: set[str] = set()  # the names of texts of files
    chosen: dict[str, int] = {}  # the exercises that sittings link to
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] != "markdown":
            _add_code(parts[-1], number, cell, source)
            files |= set(FILE_READ.findall(source))
            parts[-1].minutes += _shown_lines(cell, source, files) / LINES_A_MINUTE
            continue
        for line in _prose(source):
            if heading := HEADING.match(line):
                level = len(heading[1])
                aside = 0 if level <= aside else aside
                parts.append(Part(path.stem, heading[2], level, None if aside else now))
                parts[-1].goes_on_aside = bool(aside)
            elif mark := SITTING.match(line):
                now, aside, begins_here = int(mark["number"]), 0, True
                if mark["title"]:
                    sittings.append(Sitting(now, mark["title"]))
                if now != len(sittings):
                    raise ValueError(
                        f"{path.name}, cell {number}: expected sitting {len(sittings)}, got {now}"
                    )
                _here(parts).sitting = now
                chosen |= {_anchor(link): now for link in LINK.findall(line)}
            elif SIDE_TRIP.match(line):
                aside = parts[-1].level
                here = _here(parts)
                here.sitting, here.is_marked, here.goes_on_aside = None, True, False
            parts[-1].minutes += len(line.split()) / WORDS_A_MINUTE
    if begins_here:
        _begin(parts)
    _choose(parts, chosen, path)
    return parts


def _prose(source: str) -> Iterator[str]:
    """Yield the lines of a text without comments and without code."""
    text = re.sub(r"<!--.*?-->", "", source, flags=re.DOTALL)
    return iter(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n"))


def _here(parts: list[Part]) -> Part:
    """Return the part that a mark begins: the last one, if it has its heading alone so far."""
    last = parts[-1]
    if last.cells or last.minutes * WORDS_A_MINUTE > len(last.heading.split()) + 1.5:
        parts.append(Part(last.notebook, last.heading, last.level, last.sitting))
    return parts[-1]


def _begin(parts: list[Part]) -> None:
    """Let what stands before a notebook's first sitting belong to it."""
    first = next(part.sitting for part in parts if part.sitting is not None)
    for part in parts:
        if part.sitting is not None:
            return
        part.sitting = first


def _choose(parts: list[Part], chosen: dict[str, int], path: Path) -> None:
    """Give the exercises of a section of exercises to the sittings that link to them."""
    inside = False
    for part in parts:
        if part.level <= 2:
            inside = part.heading.endswith("xercises")
        elif inside:
            part.sitting = chosen.pop(_anchor(part.heading), None)
    if chosen:
        raise ValueError(f"{path.name}: expected exercises headed {', '.join(chosen)}, got none")


def _anchor(heading: str) -> str:
    """Return what a heading and a link to it have in common."""
    return heading.replace("-", " ")


def _add_code(part: Part, number: int, cell: dict, source: str) -> None:
    part.cells.append(number)
    named = [(call.func.id, call.args[0].value) for call in calls(source, TASKS)]
    part.exercises += [name for function, name in named if function in ("exercise", "improve")]
    part.predictions += [name for function, name in named if function == "predict"]
    part.capstones += [name for function, name in named if function == "capstone"]
    part.minutes += sum(TASK_MINUTES[function] for function, _ in named)
    if not cell.get("metadata", {}).get("jupyter", {}).get("source_hidden"):
        part.minutes += sum(bool(line.strip()) for line in source.split("\n")) / LINES_A_MINUTE


def _shown_lines(cell: dict, source: str, files: set[str]) -> int:
    """Return how many lines a cell shows of a file, which stand in no cell: in its output."""
    if not any(re.search(rf"^(?:{'|'.join(SHOWN)})\(.*\b{name}\b", source, re.M) for name in files):
        return 0
    texts = (output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ()))
    return sum(bool(line.strip()) for text in texts for line in "".join(text).split("\n"))
