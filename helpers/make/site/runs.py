"""The pages of `make run`: what notebooks showed on this machine, and an index of them.

They are the site's pages, without those of the kernel files. A notebook that has not run has a page
that says so: no link leads nowhere.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from html import escape
from pathlib import Path

from nbformat import NotebookNode

from helpers.base.machine import CACHE
from helpers.make.kernels import notebook_paths
from helpers.make.site import formulas, frame
from helpers.make.site.cells import notebook_html
from helpers.make.site.plan import Entry, Plan, notebook_entries
from helpers.make.site.prose import Prose

RUNS = CACHE / "html"


@dataclass
class Run:
    """How a notebook ran: `stopped` is the number of the cell that failed, if one did."""

    name: str
    seconds: float
    stopped: int | None
    ended: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))


def write_run(folder: Path, path: Path, notebook: NotebookNode, run: Run) -> Path:
    """Write the page of a notebook that has run, and the index; return where the page lies."""
    plan = Plan(folder, notebook_entries(notebook_paths(path.parent)))
    entry = next(entry for entry in plan.notebooks if entry.source == path)
    prose = Prose(plan, entry, path.parent.name, _formula())
    body = notebook_html(notebook, prose)
    state = f"It ran in {run.seconds:.1f} s, on {run.ended}"
    if run.stopped:
        state = f"It stopped in cell {run.stopped}, on {run.ended}"
    frame.write_page(plan, entry, body, prose.headings, notes=[state])
    kept = asdict(run) | {"search": frame.search_entries(entry, body)}
    (folder / "runs").mkdir(exist_ok=True)
    (folder / "runs" / f"{run.name}.json").write_text(json.dumps(kept), encoding="utf-8")
    write_index(folder, path.parent)
    return folder / entry.address


def write_index(folder: Path, notebooks: Path) -> None:
    """Write the index of all that ran, the search, and pages for what has not run."""
    plan = Plan(folder, notebook_entries(notebook_paths(notebooks)))
    found, rows = [], []
    for entry in plan.notebooks:
        file = folder / "runs" / f"{entry.source.stem}.json"
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        if kept:
            found += kept.pop("search")
        else:
            number = entry.source.stem.split("_")[0]
            told = f"<p>It has not run yet: <code>make run NB={number}</code></p>"
            frame.write_page(plan, entry, f"<h1>{escape(entry.title)}</h1>{told}")
        rows.append(_row(entry, kept and Run(**kept)))
    frame.write_assets(folder, with_font=_formula() is formulas.to_mathml)
    frame.write_search(folder, found)
    head = "<tr><th>notebook</th><th>state</th><th>time</th><th>on</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    body = f'<h1>What ran on this machine</h1><div class="wide">{table}</div>'
    index = Entry("index.html", "What ran on this machine", notebooks)
    frame.write_page(plan, index, body)


def _row(entry: Entry, run: Run | None) -> str:
    name = f'<td><a href="{entry.address}">{escape(entry.title)}</a></td>'
    if run is None:
        return f"<tr>{name}<td>not run</td><td></td><td></td></tr>"
    kind, state = ("failed", f"failed in cell {run.stopped}") if run.stopped else ("ran", "ran")
    cells = f'<td class="{kind}">{state}</td><td>{run.seconds:.1f} s</td><td>{run.ended}</td>'
    return f"<tr>{name}{cells}</tr>"


@cache
def _formula() -> Callable:
    """Return what writes formulas: as MathML, or as TeX where that cannot be installed."""
    try:
        formulas.prepare()
    except formulas.FormulasMissing as error:
        print(f"{error}\nFormulas stand on the pages as TeX.")
        return formulas.as_written
    return formulas.to_mathml
