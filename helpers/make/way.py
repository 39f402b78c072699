"""The way through the course as pages show it: minutes in marks, hours in first cells, the map.

`make results` writes all of it from what `helpers/exercises/way.py` reads in the notebooks.
"""

import json
import re
import textwrap
from pathlib import Path

from helpers.exercises.way import SIDE_TRIP, SITTING, Way, read_way
from helpers.make.kernels import NOTEBOOKS, notebook_paths

MOST_MINUTES, MOST_SITTINGS = 90, 30  # of a sitting; of the core
ASIDE = " (side trip)"  # behind the title of a notebook that is one
PARTS = {  # of the course, and their notebooks
    "A first kernel": "00 00b 01",
    "Threads, pictures, products": "02 02b 03",
    "The chip, and memory that threads share": "04 04b 05 06 06b",
    "Sums, softmax, norms": "07 07b 07c",
    "Why is it slow?": "08 08b",
    "The product of matrices": "09 09b 10 10b",
    "Convolution": "11 11b 11c 11d",
    "Libraries, Triton, several GPUs": "12 12b 13 13b 16 16b 16c",
    "Gradients, and kernels that join": "14 14b 14c 15 15b 15c 15d",
    "The network": "17 17b 17c",
}
TIME = re.compile(r"\*\*Time:\*\*.*?(?P<needs>\s+(?=\*\*Needs)|(?=\n\n)|$)", re.DOTALL)
MINUTES = re.compile(r"\b\d+ minutes")
BEGIN, END = "<!-- begin way -->", "<!-- end way -->"  # of the map in a notebook
QUARTERS = ("", "¼", "½", "¾")


def in_hours(minutes: float) -> str:
    """Return minutes as hours, "2¾": to the nearest quarter, at least one; empty for none."""
    quarters = max(1, round(minutes / 15)) if minutes else 0
    return f"{quarters // 4 or ''}{QUARTERS[quarters % 4]}"


def hours(minutes: float) -> str:
    """Return minutes as "2¾ hours"."""
    return f"{in_hours(minutes)} hour" + ("s" if minutes > 67 else "")


def time_of(notebook: str, way: Way) -> str:
    """Return the words behind "Time:" in a notebook's first cell."""
    core, aside = way.minutes(notebook, core=True), way.minutes(notebook, core=False)
    if not core:
        return f"**Time:** a side trip of {hours(aside)}; nothing in the core needs it."
    numbers = [str(sitting.number) for sitting in way.sittings_in(notebook)]
    sittings = f"sitting{'s' if len(numbers) > 1 else ''} {_listed(numbers)} of the core"
    rest = f"; its side trips, {hours(aside)} more" if aside else ""
    return f"**Time:** {sittings}, {hours(core)}{rest}."


def filled(source: str, way: Way) -> str:
    """Return a text with its sittings' minutes and the course's map as they are."""
    lines = []
    for line in source.split("\n"):
        if mark := SITTING.match(line):
            sitting = way.sittings[int(mark["number"]) - 1]
            line = re.sub(r"of \d+(?=:)", f"of {len(way.sittings)}", line)
            line = MINUTES.sub(_minutes(sitting.minutes), line)
        lines.append(line)
    text = "\n".join(lines)
    if BEGIN in text:
        head, rest = text.split(BEGIN)
        text = f"{head}{BEGIN}\n{in_words(way)}\n\n{course_map(way)}{END}{rest.split(END)[1]}"
    return text


def fill(path: Path, way: Way) -> bool:
    """Write what a notebook says of the way as it is now; return whether anything moved."""
    before = path.read_text(encoding="utf-8")
    notebook = json.loads(before)
    asides = iter(_asides(path.stem, way))
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "markdown":
            continue
        source = filled("".join(cell["source"]), way)
        if number == 0:
            source = _with_time(source, _wrapped(time_of(path.stem, way)))
        lines = source.split("\n")
        for i, line in enumerate(lines):
            if SIDE_TRIP.match(line):
                lines[i] = MINUTES.sub(_minutes(next(asides)), line)
        cell["source"] = "\n".join(lines).splitlines(keepends=True)
    after = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    path.write_text(after, encoding="utf-8")
    return after != before


def _with_time(source: str, time: str) -> str:
    return TIME.sub(lambda match: time + ("\n" if match["needs"] else ""), source, count=1)


def fill_all(folder: Path = NOTEBOOKS) -> list[Path]:
    """Write it for all notebooks of a folder; return those in which anything moved.

    Once more where that has moved minutes: the map's own words are counted, too.
    """
    moved: list[Path] = []
    for _ in range(3):
        way = read_way(folder)
        now = [path for path in notebook_paths(folder) if fill(path, way)]
        if not now:
            break
        moved += [path for path in now if path not in moved]
    return moved


def course_map(way: Way, folder: Path = NOTEBOOKS, prefix: str = "") -> str:
    """Return the parts of the course as a Markdown table: sittings, notebooks, side trips.

    `prefix` leads from the page to the notebooks.
    """
    names = {path.stem.split("_")[0]: path.stem for path in notebook_paths(folder)}
    rows = ["| part | sittings | the core | side trips |", "|---|---|---|---|"]
    for title, numbers in PARTS.items():
        stems = [names[number] for number in numbers.split()]
        core = [stem for stem in stems if way.minutes(stem, core=True)]
        aside = [stem for stem in stems if stem not in core]
        sittings = [s.number for s in way.sittings if set(s.notebooks) & set(stems)]
        span = f"{sittings[0]} to {sittings[-1]}" if len(sittings) > 1 else _one(sittings)
        cells = [title, span, _links(core, way, True, prefix), _links(aside, way, False, prefix)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def in_words(way: Way) -> str:
    """Return how many sittings and hours the core has, and the rest."""
    core = sum(sitting.minutes for sitting in way.sittings) / 60
    rest = sum(part.minutes for part in way.parts if part.sitting is None) / 60
    return (
        f"**The core: {len(way.sittings)} sittings, {core:.0f} hours.** "
        f"**Side trips: {rest:.0f} hours**, as you like; nothing in the core needs one."
    )


def _links(stems: list[str], way: Way, core: bool, prefix: str) -> str:
    return ", ".join(
        f"[{stem.split('_')[0]}]({prefix}{stem}.ipynb) {in_hours(way.minutes(stem, core))} h"
        for stem in stems
    )


def _one(sittings: list[int]) -> str:
    return str(sittings[0]) if sittings else ""


def _asides(notebook: str, way: Way) -> list[float]:
    """Return the minutes of a notebook's marked side trips in their order."""
    found: list[float] = []
    for part in way.parts:
        if part.notebook == notebook and part.is_marked:
            found.append(part.minutes)
        elif part.notebook == notebook and part.goes_on_aside:
            found[-1] += part.minutes
    return found


def _minutes(minutes: float) -> str:
    return f"{max(5, 5 * round(minutes / 5))} minutes"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False)
