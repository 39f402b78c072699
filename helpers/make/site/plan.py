"""Which pages a site has, and what a link in the repository becomes on it."""

import json
import posixpath
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.make.kernels import KERNELS, notebook_paths

ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
DOCUMENTS = {  # Markdown files of the repository that are pages
    "README.md": "index.html",
    "kernels/README.md": "kernels/index.html",
    "helpers/tests/proof/README.md": "proof.html",
}


@dataclass(frozen=True)
class Entry:
    """A page: its address below the site's folder, its title, and what it shows."""

    address: str  # kernels/softmax.html
    title: str
    source: Path

    @property
    def root(self) -> str:
        """The way from this page up to the site's folder."""
        return "../" * self.address.count("/")


@dataclass(frozen=True)
class Plan:
    """The pages of a site in `folder`; what they show lies in the repository."""

    folder: Path
    notebooks: list[Entry]
    kernels: list[Entry] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)  # DOCUMENTS, or some of them

    def address_of(self, path: str) -> str | None:
        """Return where a file of the repository stands on the site, None if it has no page.

        What is no page, but there, is copied: pictures, the licence.
        """
        if path in self.documents:
            return self.documents[path]
        for entry in (*self.notebooks, *self.kernels):
            if path == f"{entry.source.parent.name}/{entry.source.name}":
                return entry.address
        file = ROOT / path
        if not self.documents or not file.is_file() or file.suffix in (".md", ".ipynb"):
            return None
        address = f"files/{path}" + ("" if file.suffix else ".txt")
        (self.folder / address).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, self.folder / address)
        return address

    def link(self, href: str, source: str, root: str) -> str | None:
        """Return what a link in a file of the repository is on a page; None if it leads nowhere.

        `source` is the folder of that file, "notebooks"; `root` the way up from the page.
        """
        if ELSEWHERE.match(href) or href.startswith("#"):
            return href
        path, hash_sign, anchor = href.partition("#")
        address = self.address_of(posixpath.normpath(posixpath.join(source, path)))
        return None if address is None else f"{root}{address}{hash_sign}{anchor}"


def notebook_entries(paths: list[Path] | None = None) -> list[Entry]:
    """Return an entry for each notebook; the title is its first heading."""
    paths = notebook_paths() if paths is None else paths
    return [Entry(f"{path.stem}.html", _title(path), path) for path in paths]


def kernel_entries() -> list[Entry]:
    return [
        Entry(f"kernels/{path.stem}.html", path.name, path) for path in sorted(KERNELS.glob("*.cu"))
    ]


def _title(path: Path) -> str:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        heading = re.match(r"# (.*)", "".join(cell["source"]))
        if cell["cell_type"] == "markdown" and heading:
            return heading[1].strip()
    return path.stem
