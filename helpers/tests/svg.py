"""What stands in a picture that helpers.base.svg made."""

from base64 import b64decode
from xml.etree import ElementTree


def read_svg(img: str) -> tuple[str, ElementTree.Element]:
    """Return the alt text of an <img> and its SVG, whose tags have no namespace then."""
    image = ElementTree.fromstring(img.removesuffix(">") + "/>")
    svg = b64decode(image.get("src").partition(",")[2]).decode()
    plain = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "")
    return image.get("alt"), ElementTree.fromstring(plain)
