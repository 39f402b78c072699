"""Stands in for pictures in the browser: a figure of the stand-in for matplotlib, as SVG."""


class Picture:
    """A figure and its alt text; shows itself on the page."""

    def __init__(self, figure, alt):
        self.figure, self.alt = figure, alt

    def __repr__(self):
        return self.alt

    def _repr_html_(self):
        return picture_html(self.figure, self.alt)


def picture_html(figure, alt):
    """Return the <svg> of a figure, in a part of the page that scrolls."""
    return f'<div class="picture">{figure.svg(alt)}</div>'
