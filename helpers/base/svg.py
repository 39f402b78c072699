"""Drawings as HTML that suit a light and a dark page."""

from base64 import b64encode
from html import escape

from helpers.base.palette import INK


def svg_image(words: str, width: int, height: int, drawn: str, font_size: int) -> str:
    """Return an SVG as <img> with an alt text: JupyterLab shows that in any notebook.

    It shows inline SVG only in one that it trusts.
    """
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-size="{font_size}" font-family="sans-serif" fill="{INK}">{drawn}</svg>'
    )
    data = b64encode(svg.encode()).decode()
    return f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'
