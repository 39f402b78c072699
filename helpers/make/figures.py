"""Figures in prose that come from a record, tied to it: a test checks, `make results` fills in.

Behind a figure, in a comment that no page shows, stands what it is:

    1.57<!-- = times("01_square_float4", "4 bytes, 390,625 blocks", "16 bytes, 97,657 blocks") -->

and behind a claim in words what must hold for it to be true:

    half as long<!-- if 1.8 < times("07_sum", "torch.sum", "one pass") < 2.2 -->

What stands there is a Python expression over the records of `helpers/recorded`: `us`, `low_us` and
`high_us` (10 and 90 %), `gbps`, `tflops` and `speed` of a candidate in a comparison; `times`, by
how much its second candidate is faster than its first; `gpu_us` of a row of a profile; `ncu`, a
metric of Nsight Compute; and `value`, all that a record holds.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.base.machine import ROOT
from helpers.make.kernels import notebook_paths
from helpers.recorded import RECORDS

TIE = re.compile(r"<!--\s*(?P<kind>=|if)\s(?P<source>.*?)-->", re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Tie:
    """A figure (or, with figure None, a claim) in a text, and the expression that it is tied to."""

    figure: re.Match | None
    source: str
    value: Any

    @property
    def text(self) -> str:
        """The figure as it has to be written, with as many decimals as it has now."""
        before = self.figure[0]
        decimals = len(before.partition(".")[2])
        is_grouped = "," in before or len(before.partition(".")[0]) < 4
        return f"{self.value:{',' if is_grouped else ''}.{decimals}f}"

    @property
    def fault(self) -> str:
        """What is wrong with the sentence; empty if nothing is."""
        if self.figure is None:
            return "" if self.value else f"does not hold: {self.source}"
        if not isinstance(self.value, int | float) or not math.isfinite(self.value):
            return f"expected a number, got {self.value!r}: {self.source}"
        is_right = self.text == self.figure[0]
        return "" if is_right else f"says {self.figure[0]}, recorded is {self.text}: {self.source}"


def ties(text: str, records: Path = RECORDS) -> Iterator[Tie]:
    """Yield the ties of a text in their order.

    ValueError, with the expression: nothing stands in front of it that it could be, or it cannot
    be evaluated (no such record, no such candidate, no Python).
    """
    names, end = _names(records), 0
    for match in TIE.finditer(text):
        source = " ".join(match["source"].split())
        figure = None
        if match["kind"] == "=":
            *_, figure = [None, *NUMBER.finditer(text, end, match.start())]
            if figure is None:
                raise ValueError(f"expected a figure in front of <!-- = {source} -->")
        try:
            value = eval(source, names)  # of the repository, like its code
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}, in <!-- {source} -->") from error
        yield Tie(figure, source, value)
        end = match.end()


def faults(path: Path, records: Path = RECORDS) -> list[str]:
    """Return what a notebook's or a page's sentences say otherwise than the records do."""
    found = []
    for where, text in texts(path):
        with _told(path, where):
            found += [f"{path.name}, {where}: {t.fault}" for t in ties(text, records) if t.fault]
    return found


def filled(text: str, records: Path = RECORDS) -> str:
    """Return a text with all its tied figures as the records have them; claims stay as they are."""
    parts, end = [], 0
    for tie in ties(text, records):
        if tie.figure is not None:
            parts += [text[end : tie.figure.start()], tie.text]
            end = tie.figure.end()
    return "".join([*parts, text[end:]])


def fill(path: Path, records: Path = RECORDS) -> bool:
    """Write all tied figures of a notebook or a page as the records have them; say if any moved."""
    before = path.read_text()
    notebook = json.loads(before) if path.suffix == ".ipynb" else None
    for where, text in texts(path):
        with _told(path, where):
            after = filled(text, records)
        if notebook is not None:
            cell = notebook["cells"][int(where.removeprefix("cell "))]
            cell["source"] = after.splitlines(keepends=True)
    if notebook is not None:
        after = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if after != before:
        path.write_text(after)
    return after != before


def pages() -> list[Path]:
    """Return all whose sentences are tied: the notebooks and README."""
    return [*notebook_paths(), ROOT / "README.md"]


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a notebook's markdown cells, or of a page, each with its place."""
    if path.suffix != ".ipynb":
        yield "text", path.read_text()
        return
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "markdown":
            yield f"cell {number}", "".join(cell["source"])


@contextlib.contextmanager
def _told(path: Path, where: str) -> Iterator[None]:
    """Add to an error of `ties` where it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path.name}, {where}: {error}") from error


def _names(records: Path) -> dict[str, Any]:
    def value(key: str) -> Any:
        return json.loads((records / f"{key}.json").read_text())["value"]

    def row(key: str, name: str) -> dict:
        found = value(key)
        rows = found if isinstance(found, list) else found["rows"]
        named = {row["name"]: row for row in rows}
        if name not in named:
            raise KeyError(f"{key} has no row {name!r}; there is {', '.join(map(repr, named))}")
        return named[name]

    def times(key: str, slower: str, faster: str) -> float:
        return row(key, slower)["median_ms"] / row(key, faster)["median_ms"]

    def bench(op: str, work: str, name: str) -> float:
        """Return how many ms a work of a kernel file took by `make bench`."""
        [found] = [each for each in value(f"bench_{op}") if each["work"] == work]
        return {row["name"]: row["median_ms"] for row in found["rows"]}[name]

    def ncu(key: str, metric: str) -> float:
        found = {row["metric"]: row["value"] for row in reversed(value(key)["rows"])}
        if metric not in found:
            raise KeyError(f"{key} has no metric {metric!r}; there is {', '.join(found)}")
        return found[metric]

    def of(field: str, scale: float = 1) -> Callable[[str, str], float]:
        return lambda key, name: scale * row(key, name)[field]

    fields = {"us": ("median_ms", 1e3), "low_us": ("low_ms", 1e3), "high_us": ("high_ms", 1e3)}
    fields |= {"gbps": ("gbps",), "tflops": ("tflops",), "speed": ("ratio",)}
    fields |= {"gpu_us": ("gpu_us",)}
    names = {name: of(*field) for name, field in fields.items()}
    return names | {"times": times, "ncu": ncu, "bench": bench, "value": value, "math": math}
