"""The card of an exercise or a prediction: as text, and as HTML for light and dark themes."""

from dataclasses import dataclass
from html import escape

from helpers.base.palette import COLORS
from helpers.base.tables import Table

MARKS = {
    "to do": "○",
    "wrong": "✗",
    "right": "●",
    "right, but slow": "◐",
    "right, but too many": "◐",
    "guessed": "●",
    "revealed": "●",
}
_, _, RIGHT, _, _, WRONG, _ = COLORS


@dataclass(frozen=True)
class Card:
    """A task's name, its state (a key of MARKS) and what there is to say about it.

    `picture` is HTML; tables stand below it, and below them the `hint`.
    """

    name: str
    state: str
    text: str = ""
    picture: str = ""
    hint: str = ""
    tables: tuple[Table, ...] = ()

    def __repr__(self) -> str:
        lines = [f"{MARKS[self.state]} {self.name}: {self.text or self.state}"]
        for table in self.tables:
            lines += ["", *str(table).splitlines()]
        if self.hint:
            lines.append(f"  Hint: {self.hint}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colour = {"to do": "#767676", "wrong": WRONG}.get(self.state, RIGHT)
        style = f"border-left:4px solid {colour};padding:2px 0 2px 10px"
        head = f"<b>{MARKS[self.state]} {escape(self.name)}</b>: {self.state}"
        body = ""
        if self.text:
            body = f'<div style="white-space:pre-wrap">{escape(self.text)}</div>'
        picture = self.picture and f'<div style="margin:6px 0">{self.picture}</div>'
        tables = "".join(table._repr_html_() for table in self.tables)
        hint = f"<div><i>Hint:</i> {escape(self.hint)}</div>" if self.hint else ""
        return f'<div style="{style}">{head}{body}{picture}{tables}{hint}</div>'
