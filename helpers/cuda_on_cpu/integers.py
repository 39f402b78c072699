"""Write shifts and conversions to integers so that they do what PTX says where C++ says nothing.

    a << n                  a << SHIFT << n
    a <<= n                 a <<= ShiftCount{} = n
    (int)x                  (int)(Converted<int>)x
    int(x)                  int(fitted<int>(x))
    static_cast<T>(x)       static_cast<T>(fitted<T>(x))
    int i = 2 * x;          int i = Fitted{2 * x};

All in namespace ::cuda_on_cpu: see include/cuda_on_cpu/integers.h. Precedence and order stay what
they were. Only in code for the device, and in what macros stand for; what cannot be read for sure
stays as it is.
"""

import re
from collections.abc import Iterator

from .scanner import CLOSING, Source, closing, opening, skip_blanks, skip_blanks_back, word_start

_HOME = "::cuda_on_cpu::"
_SHIFT = re.compile(r"(?<![<>])(<<|>>)(=?)(?![<>=])")
_SMALL = re.compile(r"\s*(?:[12]?\d|3[01])[uUlL]*(?![\w.])")  # below any width
_INTEGER = (
    r"(?:(?:un)?signed(?:\s+(?:long\s+long|long|short|char))?(?:\s+int)?"
    r"|long\s+long(?:\s+int)?|long(?:\s+int)?|short(?:\s+int)?|int|char"
    r"|(?:std::)?u?int(?:8|16|32|64)_t|(?:std::)?size_t|uchar|ushort|uint|ulong)"
)
_CAST = re.compile(rf"\(\s*(?:const\s+)?({_INTEGER})\s*\)(?=\s*[\w(~!&*+.:-])")
_CALLED = re.compile(rf"(?<![\w.:<])({_INTEGER})\s*\((?=\s*[^\s)*&])")
_KNOWN = re.compile(r"\s*(?:(?:thread|block)Idx\b|(?:block|grid)Dim\b|\d\w*\s*[;,)])")
_TYPE_IN_PARENTHESES = re.compile(rf"\(\s*(?:{_INTEGER}|float|double|bool)\s*\)$")
_BEFORE_VALUES = {"return", "case", "else", "and", "or", "not", "do", "co_yield"}
# Before translated code that the compiler is not to ask about conversions any more.
ANY_CONVERSION = "#undef CUDA_ON_CPU_CONVERSIONS\n#define CUDA_ON_CPU_CONVERSIONS\n"
_CONVERSION = re.compile(r":(\d+):(\d+): error: .*\[-Werror[=,]-?W?float-conversion\b")


def as_ptx(src: str) -> str:
    """Return the source with shifts and explicit conversions to integers as PTX has them."""
    if "<<" not in src and ">>" not in src and not re.search(_INTEGER, src):
        return src
    source = Source(src)
    regions = [*_regions(source)]
    insertions = [
        insertion
        for start, end in regions
        for insertion in (*_shifts(source.code, start, end), *_conversions(source, start, end))
    ]
    return _inserted(src, insertions)


def _regions(source: Source) -> Iterator[tuple[int, int]]:
    """Yield where code for the device stands: bodies of functions, and of macros used in code."""
    for function in source.functions:
        if function.body and function.is_for_device:
            yield function.body
    asked = " ".join(re.findall(r"^[ \t]*#[ \t]*(?:el)?if\b.*", source.code, re.MULTILINE))
    for macro in source.macros:
        is_asked = re.search(rf"\b{macro.name}\b", asked)
        if not is_asked and not re.search(r"\b(?:std|cout|cerr)\b", macro.body):
            yield macro.end - len(macro.body), macro.end


def _inserted(src: str, insertions: list[tuple[int, str]]) -> str:
    parts, end = [], 0
    for at, text in sorted(insertions, key=lambda insertion: insertion[0]):
        parts += [src[end:at], text]
        end = at
    return "".join([*parts, src[end:]])


def _shifts(code: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    for found in _SHIFT.finditer(code, start, end):
        before = skip_blanks_back(code, found.start())
        if code[word_start(code, before) : before] == "operator" or _in_directive(code, before):
            continue
        if _SMALL.match(code, found.end()):
            continue
        if found[2]:
            yield found.end(), f" {_HOME}ShiftCount{{}} ="
        elif found[1] == "<<" or not _may_close_angles(code, found.start()):
            yield found.end(), f" {_HOME}SHIFT {found[1]}"


def _in_directive(code: str, at: int) -> bool:
    line = code[code.rfind("\n", 0, at) + 1 : at].lstrip()
    return line.startswith("#") and not re.match(r"#\s*define\b", line)


def _may_close_angles(code: str, at: int) -> bool:
    """Whether two < stand open before the >> at this place: of templates, or comparisons."""
    angles = 0
    while at > 0:
        at -= 1
        if code[at] in ")]":
            at = opening(code, at) or 0
        elif code[at] in ";{}([":
            break
        elif code[at] == "<" and "<" not in (code[at - 1], code[at + 1]):
            angles += 1
    return angles >= 2


def _conversions(source: Source, start: int, end: int) -> Iterator[tuple[int, str]]:
    code = source.code
    for found in _CAST.finditer(code, start, end):
        if _may_be_a_value(code, found.start()) and not _KNOWN.match(code, found.end()):
            yield found.end(), f"({_HOME}Converted<{found[1]}>)"
    parameters = re.findall(r"\b(?:typename|class)\s+(\w+)", code)
    types = "|".join([_INTEGER, *sorted(set(parameters))])
    named = re.compile(rf"\bstatic_cast\s*<\s*({types})\s*>\s*\(")
    for pattern in (named, _CALLED):
        for found in pattern.finditer(code, start, end):
            if pattern is _CALLED and not _may_be_a_value(code, found.start()):
                continue
            last = closing(code, found.end() - 1)
            if last < end and not _KNOWN.match(code, found.end()):
                yield found.end(), f"{_HOME}fitted<{found[1]}>("
                yield last, ")"


def _may_be_a_value(code: str, at: int) -> bool:
    """Whether an expression may begin here, and no list of parameters and no declaration."""
    before = skip_blanks_back(code, at)
    last = code[before - 1 : before]
    if last == ")":
        first = opening(code, before - 1)
        return first is not None and bool(_TYPE_IN_PARENTHESES.match(code[first:before]))
    if last.isalnum() or last == "_":
        return code[word_start(code, before) : before] in _BEFORE_VALUES
    return last != "]"


# --- conversions that nobody wrote ----------------------------------------------------------------


def find_conversions(output: str) -> list[tuple[int, int]]:
    """Return line and column, from 1, of each conversion to an integer that a compiler names."""
    return [(int(line), int(column)) for line, column in _CONVERSION.findall(output)]


def fit(src: str, places: list[tuple[int, int]]) -> str:
    """Return translated code in which what is converted at these places is `Fitted`."""
    code = Source(src).code
    lines = [0, *(found.end() for found in re.finditer("\n", code))]
    ranges = {_whole(code, lines[line - 1] + column - 1) for line, column in places}
    insertions = []
    for start, end in sorted(filter(None, ranges)):
        insertions += [(start, f" {_HOME}Fitted{{"), (end, "}")]
    return _inserted(src, insertions)


def _whole(code: str, at: int) -> tuple[int, int] | None:
    """Return where the value that is assigned, given or returned at a place begins and ends."""
    end = at + (code[at] in ")]}")  # a[i] is named by its end
    start = end
    while end < len(code) and code[end] not in ",;)]}":
        end = closing(code, end) + 1 if code[end] in CLOSING else end + 1
    while start > 0:
        c = code[start - 1]
        if c in ")]}":
            start = opening(code, start - 1) or 0
            continue
        if c in ",;({[" or (c == "=" and code[start - 2] not in "=!<>+-*/%&|^"):
            break
        if re.search(r"\breturn$", code[:start]):
            break
        start -= 1
    start = skip_blanks(code, start)
    return (start, end) if start < end else None
