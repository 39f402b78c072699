"""Links that lead nowhere, in the pages of a site as they lie on the disk."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page links to or loads, and its anchors."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets: list[str] = []
        self.anchors: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.anchors.append(value)


def faults(folder: Path) -> Iterator[str]:
    """Yield a line for each link without a target, each anchor that stands twice in a page, and
    each thing that a page would load from elsewhere."""
    pages = {path: _Page(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        for anchor in sorted({a for a in page.anchors if page.anchors.count(a) > 1}):
            yield f"{name}: the anchor {anchor} stands there twice"
        for target in dict.fromkeys(page.targets):
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            there = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not there.is_file():
                yield f"{name}: no file for {target}"
            elif url.fragment and there in pages:
                if unquote(url.fragment) not in pages[there].anchors:
                    yield f"{name}: no anchor for {target}"
