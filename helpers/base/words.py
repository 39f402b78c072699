"""Words and numbers as the report and its pictures write them."""

LONGEST_TEXT = 46  # characters of a source line in a picture or in HTML


def count(number: int, what: str) -> str:
    """Write how many there are: 1 block, 1,000 blocks."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def shorten(text: str, room: int) -> str:
    """Return the text without blanks around it, its end left out if it is longer than `room`."""
    text = text.strip()
    return text if len(text) <= room else text[: room - 1] + "…"
