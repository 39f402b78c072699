"""Marks: what one's attempts at a capstone or an open exercise took, and the best of them."""

import datetime

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
