"""What is for the host where a string tells the device from it: #ifdef __CUDA_ARCH__.

nvcc reads a string once for each, here it is read once. So in a function of both

    #ifdef __CUDA_ARCH__            if (::cuda_on_cpu::is_on_device()) {
      return __sinf(x);      ▶        return __sinf(x);
    #else                           } else {
      return std::sin(x);             return std::sin(x);
    #endif                          }

and in a function of the host the other half is left out. Halves that are no whole statements, or
declare something, stay as they are: the device's counts.
"""

import re
from dataclasses import dataclass

from .scanner import Function, Source, blank
from .unsupported import evaluate

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[^\n]*", re.MULTILINE)


def choose_halves(src: str) -> str:
    """Return the source with as many lines."""
    if "__CUDA_ARCH__" not in src:
        return src
    source = Source(src)
    edits = []
    for function in source.functions:
        if function.body and function.is_for_host and "constexpr" not in function.words:
            for group in _groups(source.code, function):
                edits += _edits(source.code, group, function)
    for start, end, new in sorted(edits, reverse=True):
        src = src[:start] + new + src[end:]
    return src


@dataclass
class _Group:
    """An #if, its #else, if it has one, and its #endif."""

    directives: list[re.Match]
    on_device: bool | None  # whether the first half is
    on_host: bool | None


def _groups(code: str, function: Function) -> list[_Group]:
    open_groups, closed = [], []
    for found in _DIRECTIVE.finditer(code, *function.body):
        word = found[1]
        if word in ("if", "ifdef", "ifndef"):
            condition = found[0].split(word, 1)[1].replace("\\", " ")
            test = {"if": "{}", "ifdef": "defined({})", "ifndef": "!defined({})"}[word]
            test = test.format(condition)
            group = _Group([found], evaluate(test), evaluate(test, on_device=False))
            open_groups.append(group)
        elif open_groups:
            open_groups[-1].directives.append(found)
            if word == "endif":
                closed.append(open_groups.pop())
    return [group for group in closed if None not in (group.on_device, group.on_host)]


def _edits(code: str, group: _Group, function: Function) -> list[tuple[int, int, str]]:
    words = [found[1] for found in group.directives]
    if group.on_device == group.on_host or "elif" in words or words.count("else") > 1:
        return []
    places = [found.span() for found in group.directives]
    halves = [(a[1], b[0]) for a, b in zip(places, places[1:], strict=False)]
    if not function.is_for_device:
        left_out = halves[:1] if group.on_device else halves[1:]
        return [(*span, blank(code[slice(*span)])) for span in places + left_out]
    if not all(_is_whole(code[start:end]) for start, end in halves):
        return []
    no = "" if group.on_device else "!"
    new = [f"if ({no}::cuda_on_cpu::is_on_device()) {{", "} else {", "}"]
    new = new if len(places) == 3 else [new[0], new[2]]
    return [(*span, text) for span, text in zip(places, new, strict=True)]


def _is_whole(code: str) -> bool:
    """Whether the code is whole statements of which none declares anything for what follows."""
    code = re.sub(r"^[ \t]*#[^\n]*", "", code, flags=re.MULTILINE)
    while (inner := re.sub(r"\{[^{}]*\}", ";", code)) != code:
        code = inner
    is_balanced = not re.search(r"[{}]", code) and code.count("(") == code.count(")")
    return is_balanced and code.rstrip()[-1:] in (";", "") and not re.search(_DECLARES, code)


_DECLARES = (
    r"(?:^|;)\s*(?!(?:return|delete|throw|goto|else|case)\b)(?:(?:const|static|constexpr|auto|using"
    r"|typedef|extern|unsigned|struct|__shared__)\b"
    r"|[A-Za-z_][\w:]*(?:\s*<[^;()]*>)?(?:\s+|\s*[&*]+\s*)[A-Za-z_]\w*\s*(?:[=;,\[{(]))"
)
