"""Stands in for pictures in the browser: a figure as SVG within the page."""


def image_html(figure, alt, dpi):
    """Return the <svg> of a figure of the stand-in for matplotlib."""
    return figure.svg(alt, dpi)
