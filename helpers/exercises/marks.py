"""Marks: what one's attempts at a capstone or an open exercise took, and the best of them."""

import datetime
from collections.abc import Callable, Mapping

import torch

from helpers.base.tables import Table
from helpers.exercises.progress import append, entry

SHOWN = 5  # attempts in the table, the best first


def add_mark(name: str, took: float, ours: float, by: str) -> dict:
    """Keep what an attempt took beside what the course's own takes; `by` says how it was found."""
    date = datetime.datetime.now().isoformat(" ", "seconds")
    mark = {"date": date, "took": took, "ours": ours, "speed": ours / took, "by": by}
    append(name, "marks", mark)
    return mark


def best(name: str, by: str, unit: str) -> Table:
    """Return the best attempts at a task, of those whose marks were found by this."""
    marks = [mark for mark in entry(name).get("marks", []) if mark["by"] == by]
    order = sorted(range(len(marks)), key=lambda i: -marks[i]["speed"])
    lines = [
        [
            f"{place}",
            f"{marks[i]['date']}" + " ←" * (i == len(marks) - 1),
            f"{marks[i]['took']:,.0f}",
            f"{marks[i]['ours']:,.0f}",
            f"{marks[i]['speed']:.2f}",
        ]
        for place, i in enumerate(order[:SHOWN], 1)
    ]
    header = ["", "your best", unit, f"ours, {unit}", "ours / yours"]
    return Table(header, lines, f"{len(marks)} right so far ({by}); ← is the latest")


def clock(calls: Mapping[str, Callable]) -> tuple[dict[str, float], Table]:
    """Return the median µs of calls by the clock of the GPU, in turn, and a table of the times.

    Raises AssertionError if they do not return the same.
    """
    from helpers.timing import measure_speeds

    value = measure_speeds(calls)
    lines = [
        [row["name"], *(f"{1e3 * row[f'{which}_ms']:,.1f}" for which in ("median", "low", "high"))]
        for row in value["rows"]
    ]
    times = {row["name"]: 1e3 * row["median_ms"] for row in value["rows"]}
    header = [torch.cuda.get_device_name(), "median µs", "10 %", "90 %"]
    return times, Table(header, lines, value["method"])
