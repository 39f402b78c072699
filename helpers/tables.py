"""Small tables that read well as plain text, and as HTML in JupyterLab's light and dark themes."""

from collections.abc import Sequence
from html import escape


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return the rows under their header, aligned: the first column left, the others right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: list[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        padded[0] = row[0].ljust(widths[0])
        return "  ".join(padded).rstrip()

    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    lines = [line(cells[0]), rule, *(line(row) for row in cells[1:])]
    return "\n".join([*lines, caption] if caption else lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return the same table as HTML that takes its colours from the page around it."""

    def line(tag: str, row: Sequence[str]) -> str:
        cells = []
        for i, cell in enumerate(row):
            align = "left" if i == 0 else "right"
            style = f"text-align:{align};font-variant-numeric:tabular-nums"
            cells.append(f'<{tag} style="{style}">{escape(cell)}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{line('th', header)}</thead>"
    body = f"<tbody>{''.join(line('td', row) for row in rows)}</tbody>"
    note = "<br>".join(escape(part) for part in caption.split("\n"))
    small = f'<div style="font-size:85%;opacity:0.8;text-align:left">{note}</div>' if note else ""
    return f"<table>{head}{body}</table>{small}"
