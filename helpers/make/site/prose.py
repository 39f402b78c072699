"""Markdown as HTML, as JupyterLab shows it: nbconvert's, with formulas, links and anchors."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape, unescape

from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments.lexers import CudaLexer

from helpers.make.site import formulas
from helpers.make.site.colours import CudaInPython, coloured
from helpers.make.site.plan import Entry, Plan

HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)  # where the figures in the prose come from
TAG = re.compile(r"<[^>]+>")
LEXERS = {"python": CudaInPython, "cuda": CudaLexer, "cpp": CudaLexer, "c++": CudaLexer}
KERNEL_FILE = re.compile(r"kernels/(\w+)\.cu")


@dataclass(frozen=True)
class Heading:
    """A heading of a page: 1 is the page's own."""

    level: int
    anchor: str
    text: str


class Prose:
    """The Markdown of one page; `headings` grows as it is rendered."""

    def __init__(
        self, plan: Plan, entry: Entry, folder: str, formula: Callable = formulas.to_mathml
    ):
        self.plan, self.entry, self.folder, self.formula = plan, entry, folder, formula
        self.headings: list[Heading] = []

    def html(self, markdown: str) -> str:
        """Return Markdown as HTML; `folder` is what its links start from."""
        renderer = _Renderer(self)
        text = MarkdownWithMath(renderer=renderer).render(HIDDEN.sub("", markdown))
        return re.sub(r"(<table.*?</table>)", r'<div class="wide">\1</div>', text, flags=re.DOTALL)

    def link(self, href: str) -> str | None:
        return self.plan.link(href, self.folder, self.entry.root)

    def anchor(self, text: str) -> str:
        """Return a heading's anchor, numbered where one has it already.

        A notebook's is JupyterLab's, "2.-Then"; a Markdown file's is GitHub's, "2-then".
        """
        if self.entry.source.suffix == ".md":
            text = re.sub(r"[^\w\s-]", "", text.lower())
        anchor = taken = re.sub(r"\s+", "-", text.strip())
        anchors = {heading.anchor for heading in self.headings}
        number = 2
        while taken in anchors:
            taken, number = f"{anchor}-{number}", number + 1
        return taken


class _Renderer(IPythonRenderer):
    def __init__(self, prose: Prose):
        super().__init__(escape=False, exclude_anchor_links=True)
        self.prose = prose

    def heading(self, text: str, level: int, **attributes) -> str:
        words = unescape(TAG.sub("", text)).strip()
        anchor = self.prose.anchor(words)
        self.prose.headings.append(Heading(level, anchor, words))
        name = escape(anchor)
        sign = f'<a class="anchor" href="#{name}" aria-label="link to: {escape(words)}">#</a>'
        return f'<h{level} id="{name}">{text} {sign}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        href = self.prose.link(url)
        return text if href is None else super().link(text, href, title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return super().image(text, self.prose.link(url) or url, title)

    def block_html(self, html: str) -> str:
        return super().block_html(self._with_sources(html))

    def inline_html(self, html: str) -> str:
        return super().inline_html(self._with_sources(html))

    def codespan(self, text: str) -> str:
        code = super().codespan(text)
        file = KERNEL_FILE.fullmatch(unescape(text))
        href = file and self.prose.plan.kernels and self.prose.plan.address_of(text)
        return f'<a href="{self.prose.entry.root}{href}">{code}</a>' if href else code

    def block_code(self, code: str, info: str | None = None) -> str:
        lexer = LEXERS.get((info or "").strip())
        return coloured(code, lexer) if lexer else super().block_code(code, info)

    def block_math(self, body: str) -> str:
        return f'<div class="wide formula">{self.prose.formula(body, True)}</div>'

    def inline_math(self, body: str) -> str:
        return self.prose.formula(body, False)

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    def _with_sources(self, html: str) -> str:
        def on_the_site(match: re.Match) -> str:
            return match[1] + (self.prose.link(match[2]) or match[2]) + '"'

        return re.sub(r'((?:src|href)=")([^"]+)"', on_the_site, html)
