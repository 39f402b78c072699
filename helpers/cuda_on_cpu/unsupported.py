"""What exists on a GPU only: found before the compiler sees it, and said in one sentence."""

import re


def find_unsupported(src: str, code: str) -> tuple[int, str] | None:
    """Return (line, sentence) of the first thing that the CPU backend cannot do, or None.

    code: `src` without comments and strings.
    """
    found = [
        (match.start(), sentence)
        for pattern, sentence in _UNSUPPORTED
        if (match := re.search(pattern, code))
    ]
    if not found:
        return None
    position, sentence = min(found)
    return src.count("\n", 0, position) + 1, sentence


_UNSUPPORTED = [
    (r"\b(asm|__asm__|__asm)\b", "inline PTX (asm) runs on a GPU only."),
]
