"""Write README's picture and its tables, of notebooks and recorded timings: `make results`."""

import json
import re
from html import escape
from pathlib import Path

import nbformat

from helpers.make import readme_picture
from helpers.make.install import ROOT
from helpers.make.kernels import NOTEBOOKS, kernel_sources, notebook_paths
from helpers.recorded import RECORDS

README = ROOT / "README.md"


def with_tables(readme: str, notebooks: Path = NOTEBOOKS, records: Path = RECORDS) -> str:
    """Return README's text with the picture and the tables as they have to be now.

    Each stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
    """
    parts = {"picture": picture(), "notebooks": notebook_table(notebooks)}
    parts["results"] = results_table(records)
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        head, rest = readme.split(begin)
        readme = head + begin + part + end + rest.split(end)[1]
    return readme


def picture() -> str:
    """Return the <img> of README's picture, its alt text as the picture says it now."""
    source = readme_picture.FILE.relative_to(ROOT)
    return f'<img alt="{escape(readme_picture.draw().alt)}" width="720" src="{source}">\n'


def notebook_table(folder: Path = NOTEBOOKS) -> str:
    """Return a row for each notebook: its title, what its reader will do, the kernels it makes."""
    kernels: dict[Path, list[str]] = {}
    for op, source in kernel_sources(folder).items():
        kernels.setdefault(source.notebook, []).append(op)
    rows = [["notebook", "you will", "kernels it makes"]]
    for path in notebook_paths(folder):
        title, goals = _title_and_goals(nbformat.read(path, as_version=4).cells[0].source)
        made = ", ".join(f"[{op}](kernels/{op}.cu)" for op in kernels.get(path, []))
        rows.append([f"[{title}](notebooks/{path.name})", goals, made])
    return _table(rows)


def results_table(folder: Path = RECORDS) -> str:
    """Return a row for each recorded comparison, under the machine that it was measured on."""
    machines: dict[str, list[list[str]]] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        value = record["value"]
        if isinstance(value, dict) and "self_ratio" in value:
            machine = f"{record['device']} · CUDA {record['cuda']} · torch {record['torch']}"
            number, _, name = path.stem.partition("_")
            row = [number, name.replace("_", " "), _candidates(value["rows"])]
            machines.setdefault(machine, []).append(row)
    header = ["notebook", "what", "median time of a call, speed relative to the first"]
    parts = [f"{machine}\n\n{_table([header, *rows])}" for machine, rows in machines.items()]
    return "\n".join(parts) or "Nothing is recorded yet.\n"


def _title_and_goals(cell: str) -> tuple[str, str]:
    """Return the heading of a notebook's first cell and its "you will" list as one text."""
    title = cell.split("\n", 1)[0].removeprefix("# ")
    goals = re.search(r"[Yy]ou will\W*\n+((?:- .*\n(?:  .*\n)*)+)", cell + "\n")
    if goals is None:
        raise ValueError(f"{title}: the first cell has no list after 'You will'")
    text = " ".join(line.removeprefix("- ").strip() for line in goals[1].splitlines())
    return title, text.rstrip(".")


def _candidates(rows: list[dict]) -> str:
    """Return the candidates of a comparison with their times, a line each."""
    lines = [f"{row['name']}: {_time(row['median_ms'])}, {_ratio(row['ratio'])}" for row in rows]
    lines[0] = lines[0].rpartition(",")[0]
    return "<br>".join(lines)


def _time(ms: float) -> str:
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1000:.3g} µs"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio >= 0.1 else f"{ratio:.1g}×"


def _table(rows: list[list[str]]) -> str:
    """Return the rows as a Markdown table, the first of them its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    text = with_tables(README.read_text())
    print("README.md: " + ("current" if text == README.read_text() else "written"))
    readme_picture.write()
    README.write_text(text)
