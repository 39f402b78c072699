"""Rectangles, and the entries of a legend."""

HATCHES = {"/": "slash", "\\": "backslash", ".": "dots", "x": "cross"}


def painted(fc, ec, lw):
    """Return the attributes of a shape's colours."""
    fill = "none" if fc in (None, "none") else fc
    stroke = "none" if not lw or ec in (None, "none") else ec
    return f'fill="{fill}" stroke="{stroke}" stroke-width="{lw}"'


class Patch:
    def __init__(self, fc=None, ec=None, hatch="", label="", lw=1.0, fill=True, **_):
        self.fc = fc if fill else None
        self.ec, self.lw, self.label = _grey(ec), lw, label
        self.hatch = HATCHES.get(hatch[:1], "")

    def box(self, x, y, width, height):
        """Return a rectangle of pixels, and its hatches over it."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        hatches = f'<rect {place} fill="url(#hatch-{self.hatch})"/>' if self.hatch else ""
        return f"<rect {place} {painted(self.fc, self.ec, self.lw)}/>{hatches}"


class Rectangle(Patch):
    def __init__(self, corner, width, height, **style):
        super().__init__(**style)
        self.corner, self.width, self.height = corner, width, height

    def svg(self, x, y):
        a, b = self.corner
        left, right = sorted((x(a), x(a + self.width)))
        top, bottom = sorted((y(b), y(b + self.height)))
        return self.box(left, top, right - left, bottom - top)


def _grey(colour):
    """matplotlib writes a grey as "0.6"."""
    try:
        level = round(255 * float(colour))
    except (TypeError, ValueError):
        return colour
    return f"rgb({level},{level},{level})"
