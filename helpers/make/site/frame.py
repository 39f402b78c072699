"""What stands around each page: contents, search, previous and next, light and dark."""

import json
import re
import shutil
from collections.abc import Sequence
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from helpers.make.site import formulas
from helpers.make.site.plan import Entry, Plan
from helpers.make.site.prose import Heading

TEMPLATES = Path(__file__).with_name("templates")
ASSETS = ("style.css", "site.js")
COURSE = "From PyTorch to CUDA kernels"
WORD = re.compile(r"\w\w+")


def write_page(
    plan: Plan,
    entry: Entry,
    body: str,
    headings: Sequence[Heading] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write a page: its body with the course's frame around it, notes in HTML above it."""
    page = _environment().get_template("page.html.j2")
    pages = plan.notebooks
    place = pages.index(entry) if entry in pages else None
    text = page.render(
        plan=plan,
        entry=entry,
        root=entry.root,
        body=body,
        course=COURSE,
        sections=[heading for heading in headings if heading.level == 2],
        before=pages[place - 1] if place else None,
        after=pages[place + 1] if place is not None and place + 1 < len(pages) else None,
        notes=notes,
    )
    path = plan.folder / entry.address
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_assets(folder: Path, with_font: bool = True) -> None:
    """Write what all pages share: style, script, and the font of formulas."""
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    for name in ASSETS:
        shutil.copyfile(TEMPLATES / name, folder / "assets" / name)
    font = folder / "assets" / "math.woff"
    if with_font and not font.exists():
        formulas.write_font(font)


def search_entries(entry: Entry, body: str) -> list[list[str]]:
    """Return [address, title, heading, text] for each part of a page, from heading to heading."""
    reader = _Reader()
    reader.feed(body)
    reader.close()
    return [
        [entry.address + (f"#{anchor}" if anchor else ""), entry.title, heading, text]
        for anchor, heading, text in reader.parts()
    ]


def write_search(folder: Path, entries: Sequence[list[str]]) -> None:
    """Write the index as a script, since a page that was opened as a file may not fetch."""
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    (folder / "assets" / "search.js").write_text(f"searchIndex({text});\n", encoding="utf-8")


class _Reader(HTMLParser):
    """The words of a page from one heading to the next; of code and outputs each word once."""

    def __init__(self):
        super().__init__()
        self.found: list[list] = []  # anchor, heading, prose, words of code
        self.open: list[str] = []
        self._begin("")

    def handle_starttag(self, tag: str, attributes: list) -> None:
        if tag in ("h1", "h2", "h3"):
            self._begin(dict(attributes).get("id", ""))
        if tag in ("h1", "h2", "h3", "pre", "table", "script", "style", "math"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            del self.open[self.open.index(tag) :]

    def handle_data(self, data: str) -> None:
        _, heading, prose, words = self.found[-1]
        if {"script", "style", "math"} & set(self.open):
            return
        if self.open and self.open[0].startswith("h"):
            self.found[-1][1] = heading + data
        elif self.open:
            words.update(dict.fromkeys(WORD.findall(data)))
        else:
            prose.append(data)

    def parts(self):
        for anchor, heading, prose, words in self.found:
            text = " ".join(" ".join(prose).split())
            kept = [word for word in words if not word[0].isdigit() and len(word) < 40]
            if text or kept:
                title = unescape(heading).strip().removesuffix("#").strip()
                yield anchor, title, f"{text}\n{' '.join(kept)}"

    def _begin(self, anchor: str) -> None:
        self.found.append([anchor, "", [], {}])


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
