"""The map of the course: which of its exercises and predictions are solved, and what comes next."""

from helpers.base.tables import Table
from helpers.base.terminal import let_print
from helpers.exercises import progress
from helpers.exercises.way import Part, Way, read_way


def show_progress() -> Table:
    """Return the map: of each notebook what is solved in the core and in side trips, what is next.

    A circle is an exercise or a prediction, full where it is solved.
    """
    let_print()  # it has ● and ○
    facts = progress.known()
    solved = {name for name, fact in facts.items() if fact.get("solved")}
    way = read_way(progress.NOTEBOOKS)
    lines = []
    for notebook in dict.fromkeys(part.notebook for part in way.parts):
        parts = [part for part in way.parts if part.notebook == notebook]
        numbers = sorted({part.sitting for part in parts if part.sitting is not None})
        core = _tasks(part for part in parts if part.sitting is not None)
        aside = _tasks(part for part in parts if part.sitting is None)
        sittings = ", ".join(map(str, numbers))
        lines.append([notebook, sittings, _circles(core, solved), _circles(aside, solved)])
    caption = _next(way, solved)
    at_once = sum(fact.get("solved", False) and fact.get("tries") == 1 for fact in facts.values())
    if at_once:
        caption += f" Exercises solved at the first attempt: {at_once}."
    return Table(["notebook", "sittings", "core", "side trips"], lines, caption)


def _tasks(parts) -> list[str]:
    """Return the exercises and predictions of parts, each once."""
    return list(dict.fromkeys(name for part in parts for name in part.tasks))


def _circles(tasks: list[str], solved: set[str]) -> str:
    return "".join("●" if name in solved else "○" for name in tasks)


def _next(way: Way, solved: set[str]) -> str:
    """Return the first task of the core that is to do, or of a side trip; and how far one is."""
    core = [part for part in way.parts if part.sitting is not None]
    open_parts = [part for part in way.parts if set(part.tasks) - solved]
    if not open_parts:
        return "Everything is solved."
    part: Part = next((part for part in core if set(part.tasks) - solved), open_parts[0])
    task = next(name for name in part.tasks if name not in solved)
    if part.sitting is None:
        return f"Next: {task!r} in {part.notebook}."
    done = [s for s in way.sittings if set(_tasks(s.parts)) <= solved]
    left = sum(s.minutes for s in way.sittings if s not in done) / 60
    sitting = way.sittings[part.sitting - 1]
    return (
        f"Next: {task!r} in {part.notebook}, sitting {sitting.number}: {sitting.title}. "
        f"{len(done)} of {len(way.sittings)} sittings are done, {left:.0f} hours are left."
    )
