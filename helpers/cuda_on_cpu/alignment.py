"""Strings that rely on where arrays begin: on a GPU at multiples of 256, tensors at 512.

Here arrays end at a page that faults, so an index off by one is stopped at once, and begin where
that leaves them: at multiples of 16, or of any power of two that their size is a multiple of. The
end is worth more, since nearly nothing asks for more than 16. What does, by its text, gets it from
then on: see align_arrays in runtime/memory.cpp.
"""

import re

from .scanner import mask

# The address as a number, and what is asked of it: % 128, & 127, & (128 - 1), & ~0x7f.
_INTEGER = r"(?:std::)?(?:size_t|u?int64_t|(?:unsigned\s+)?long(?:\s+long)?)"
_ADDRESS = rf"(?:\bu?intptr_t\b|\breinterpret_cast\s*<\s*{_INTEGER}\s*>)"
_CAST = re.compile(rf"\(\s*{_INTEGER}\s*\)\s*(\w+)\b(?!\s*[\[(.-])")
_POINTER = r"\b(?:void|char|int|unsigned|float|double|half|auto|T|\w+_t|\w+\d)\s*\*+\s*{}\b"
_ASKED = (
    r"(?:(?P<modulo>%)|(?<!&)&(?!&))[\s(~]*"
    r"\b(?P<by>0[xX][\da-fA-F]+|[1-9]\d*)[uUlL]*\b(?P<less>\s*-\s*1\b)?"
)
_NAMED = re.compile(rf"\b(\w+)\s*=\s*[^;=]*{_ADDRESS}")
_PROMISED = re.compile(
    r"\b(?:__builtin_(?:assume|is)_aligned|std::assume_aligned\s*<)[^;]*?(\d+)\W"
)
_ALWAYS = 16  # bytes

_ALIGN = "\n[[maybe_unused]] static const bool cuda_on_cpu_aligned = ::cuda_on_cpu::align_arrays();"


def align_if_asked(src: str) -> str:
    """Return the source, behind it a line that aligns arrays if the source looks at addresses."""
    if not re.search(r"[%&]|_aligned\b", src):
        return src
    code = mask(src)
    named = (rf"\b{found[1]}\b" for found in _NAMED.finditer(code))
    casts = (
        re.escape(found[0])
        for found in _CAST.finditer(code)
        if re.search(_POINTER.format(found[1]), code)
    )
    address = "|".join([_ADDRESS, *named, *casts])
    asked = [
        int(found["by"], 0) + (not found["modulo"] and not found["less"])
        for found in re.finditer(rf"(?:{address})(?:(?!&&|\|\|)[^;])*?{_ASKED}", code)
    ]
    asked += [int(found[1]) for found in _PROMISED.finditer(code)]
    return src + _ALIGN if any(each > _ALWAYS for each in asked) else src
