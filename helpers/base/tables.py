"""Small tables that show themselves: as plain text, and as HTML in JupyterLab, light or dark."""

import re
from collections.abc import Sequence
from html import escape

NUMBER = re.compile(r"([-+]?[\d.]\S*|nan)?")  # a cell of a column of numbers: no words


class Table:
    """Rows of text under a header, with a caption of lines, if any; no rows: the caption alone.

    Columns of numbers are aligned to the right, the others to the left. `notes` are a remark for
    each row, which stands below it, or "".
    """

    def __init__(
        self,
        header: Sequence[str],
        lines: Sequence[Sequence[str]],
        caption: str,
        notes: Sequence[str] = (),
    ):
        self.header = list(header)
        self.lines = [list(line) for line in lines]
        self.caption = caption
        self.notes = list(notes) or [""] * len(self.lines)
        columns = zip(*self.lines, strict=True)
        self._is_right = [all(NUMBER.fullmatch(cell) for cell in column) for column in columns]

    def __str__(self) -> str:
        return "\n".join([*self.text_lines(), *filter(None, [self.caption])])

    def text_lines(self) -> list[str]:
        """Return the header, a rule and the rows as text; nothing if there are no rows."""
        if not self.lines:
            return []
        columns = list(zip(self.header, *self.lines, strict=True))
        widths = [max(map(len, column)) for column in columns]

        def text(cells: list[str]) -> str:
            places = zip(cells, widths, self._is_right, strict=True)
            return "  ".join(
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in places
            ).rstrip()

        rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
        rows = zip(map(text, self.lines), self.notes, strict=True)
        return [text(self.header), rule, *filter(None, (part for row in rows for part in row))]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # no colours of our own: those of JupyterLab's theme hold
        caption = "<br>".join(escape(part) for part in self.caption.split("\n"))
        if not self.lines:
            return f"<p>{caption}</p>"
        head = self._html_row("th", self.header)
        rows = zip(self.lines, self.notes, strict=True)
        body = "".join(self._html_row("td", line) + self._html_note(note) for line, note in rows)
        note = f'<p style="font-size:85%;opacity:0.8">{caption}</p>' if caption else ""
        return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{note}"

    def _html_row(self, tag: str, cells: list[str]) -> str:
        parts = []
        for cell, right in zip(cells, self._is_right, strict=True):
            align = "right" if right else "left"
            parts.append(f'<{tag} style="text-align:{align}">{escape(cell)}</{tag}>')
        return f"<tr>{''.join(parts)}</tr>"

    def _html_note(self, note: str) -> str:
        if not note:
            return ""
        across = f'colspan="{len(self.header) - 1}" style="text-align:left"'
        return f"<tr><td></td><td {across}>{escape(note)}</td></tr>"
