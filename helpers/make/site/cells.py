"""A notebook as HTML: its cells with what they showed, by nbconvert and the template in `cells`."""

from nbconvert import TemplateExporter
from nbformat import NotebookNode
from traitlets import Unicode

from helpers.make.site.colours import coloured
from helpers.make.site.frame import TEMPLATES
from helpers.make.site.prose import Prose


class _Exporter(TemplateExporter):
    """nbconvert with the course's template, colours and Markdown."""

    file_extension = ".html"
    template_name = Unicode("cells")
    extra_template_basedirs = [str(TEMPLATES)]


def notebook_html(notebook: NotebookNode, prose: Prose) -> str:
    """Return the cells of a notebook as HTML, without a page around them."""
    filters = {
        "filter_data_type": _best_type,
        "markdown2html": prose.html,
        "highlight_code": coloured,
        "first_line": _first_line,
        "picture_text": _picture_text,
    }
    return _Exporter(filters=filters).from_notebook_node(notebook)[0]


def _best_type(data: dict) -> list[str]:
    """Return the type, of those that an output has, which is shown: pictures before text."""
    order = ("text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain")
    return [kind for kind in order if kind in data][:1]


def _first_line(code: str) -> str:
    """Return the line that stands for a folded cell, as in JupyterLab."""
    return code.strip().split("\n", 1)[0]


def _picture_text(output: NotebookNode, kind: str) -> str:
    """Return the alt text of a picture: what its metadata say, or the output as plain text."""
    about = output.get("metadata", {}).get(kind, {})
    return about.get("alt") or "".join(output["data"].get("text/plain", "a picture"))
