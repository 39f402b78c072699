"""The whole course as a site, from the notebooks as they are stored: nothing is run."""

import importlib.util
import shutil
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from html import escape
from pathlib import Path

import nbformat

from helpers.base.machine import CACHE, ROOT
from helpers.make.site import formulas, frame, links
from helpers.make.site.cells import notebook_html
from helpers.make.site.kernel import kernel_page, kernels_of
from helpers.make.site.plan import DOCUMENTS, Entry, Plan, kernel_entries, notebook_entries
from helpers.make.site.prose import Prose

SITE = CACHE / "site"
IN_THE_BROWSER = ("00_start_here", "02_grids_blocks_threads")


def whole(folder: Path) -> Plan:
    """Return the plan of the site of the whole course."""
    return Plan(folder, notebook_entries(), kernel_entries(), DOCUMENTS)


def build(plan: Plan) -> list[str]:
    """Write every page of a site; return its faults, one a line, as links.faults has them."""
    formulas.prepare()
    shutil.rmtree(plan.folder, ignore_errors=True)
    frame.write_assets(plan.folder)
    live = _live_page(plan.folder)
    found = []
    for path, address in plan.documents.items():
        found += _write_document(plan, Entry(address, _title(path), ROOT / path), live)
    pages = [*plan.notebooks, *plan.kernels]
    with ProcessPoolExecutor() as pool:
        for parts in pool.map(partial(_write, plan, live), pages):
            found += parts
    frame.write_search(plan.folder, found)
    return list(links.faults(plan.folder))


def _write(plan: Plan, live: str | None, entry: Entry) -> list[list[str]]:
    """Write the page of a notebook or a kernel file; return what is searched of it."""
    if entry in plan.kernels:
        body = kernel_page(plan, entry)
        frame.write_page(plan, entry, body)
    else:
        prose = Prose(plan, entry, "notebooks")
        body = notebook_html(nbformat.read(entry.source, as_version=4), prose)
        frame.write_page(plan, entry, body, prose.headings, notes=_notes(plan, entry, live))
    return frame.search_entries(entry, body)


def _write_document(plan: Plan, entry: Entry, live: str | None) -> list[list[str]]:
    """Write the page of a Markdown file of the repository."""
    prose = Prose(plan, entry, entry.source.parent.relative_to(ROOT).as_posix())
    text = entry.source.read_text(encoding="utf-8")
    body = f'<div class="prose">{prose.html(text)}</div>'
    notes = [_try_it(live)] if live and entry.address == "index.html" else []
    frame.write_page(plan, entry, body, prose.headings, notes=notes)
    return frame.search_entries(entry, body)


def _notes(plan: Plan, entry: Entry, live: str | None) -> list[str]:
    """Return what stands above a notebook, as HTML: its kernel files, and where to try it."""
    files = [
        f'<a href="{kernel.address}">{escape(kernel.title)}</a>'
        for kernel in kernels_of(plan, entry.source)
    ]
    notes = [f"Kernel files made here: {', '.join(files)}"] if files else []
    if live and entry.source.stem in IN_THE_BROWSER:
        notes.append(_try_it(live))
    return notes


def _live_page(folder: Path) -> str | None:
    """Write the page whose kernels run in the browser, where what makes it is to be had."""
    if importlib.util.find_spec("helpers.make.browser") is None:
        return None
    from helpers.make.browser import packages, write

    try:
        return write(folder).relative_to(folder).as_posix()
    except packages.PackageMissing as error:
        print(f"{error}\nThe page that runs kernels in the browser is left out.")
        return None


def _try_it(live: str) -> str:
    return f'<a href="{live}">Run its first kernels in the browser</a>, without installing anything'


def _title(path: str) -> str:
    """Return the first heading of a Markdown file."""
    first = (ROOT / path).read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("# ")
