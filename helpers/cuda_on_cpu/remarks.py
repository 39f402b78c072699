"""What nvcc takes, but in a sense that nobody means: most of it Python copied letter by letter."""

import re
from collections.abc import Iterator
from functools import lru_cache

from .scanner import Source, blank, closing, skip_blanks, split
from .unsupported import without_other_architectures

_VALUE = r"[A-Za-z_\d][\w.]*(?:\[[^\[\];]*\]|\([^();]*\))?"
_CHAINED = re.compile(
    rf"(?<![\w.<>\])])(?P<a>-?{_VALUE})\s*(?P<first><=?|>=?)\s*(?P<b>{_VALUE})\s*"
    rf"(?P<second><=?|>=?)\s*(?P<c>-?{_VALUE})(?!\s*[<>:(\w])"
)
_ASSIGNED = re.compile(rf"\b(?:if|while)\s*\(\s*({_VALUE})\s*=(?!=)\s*([^();=]+)\)")
_BITS_FIRST = re.compile(
    rf"({_VALUE})\s*(?<!&)([&|^])(?![&|=])\s*({_VALUE})\s*([=!]=)\s*({_VALUE})"
)
_HEAD = re.compile(r"\b(if|for|while)\s*(?=\()")
_NEVER_BELOW = re.compile(
    r"\b((?:threadIdx|blockIdx|blockDim|gridDim)\s*\.\s*[xyz]\s*-\s*[\w.]+)\s*"
    r"(<(?!=)|>=)\s*0(?![\w.])"
)
_COMPARED = re.compile(rf"(?<=[;{{}})])\s*(?<!\w)({_VALUE})\s*==\s*([^=;(){{}}]+);")
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*(\w+)\s*\)")
_BEFORE_LAMBDAS = {"return", "auto", "case", "else", "do", "delete", "operator"}


@lru_cache(maxsize=64)  # as translate: a cell is run again and again, checked, traced
def find_remarks(src: str) -> tuple[tuple[int, str], ...]:
    """Return (line, sentence) of what nvcc takes, but not in the sense it was probably meant."""
    source = Source(src)
    code = without_other_architectures(source.bare)
    finders = (_indices, _chains, _assignments, _bits, _empty_bodies, _unsigned, _comparisons)
    found = [remark for find in finders for remark in find(code)]
    found += _sizes(source, code)
    return tuple((source.line_of(at), sentence) for at, sentence in sorted(set(found)))


def _indices(code: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r"(?<![\w.])(\w+)\s*\[(?!\[)", code):
        inside = code[found.end() : closing(code, found.end() - 1)]
        indices = [part.strip() for part in split(inside)]
        name = found[1]
        if len(indices) > 1 and all(indices) and name not in _BEFORE_LAMBDAS:
            yield (
                found.start(),
                f"{name}[{', '.join(indices)}] is {name}[{indices[-1]}] in C++: write "
                f"{name}{''.join(f'[{index}]' for index in indices)}, or compute one index.",
            )


def _chains(code: str) -> Iterator[tuple[int, str]]:
    for found in _CHAINED.finditer(code):
        rest = re.split(r"&&|\|\||[;{}?)]", code[found.end() :], maxsplit=1)[0]
        is_template = found["first"] == found["second"] == "<" and ">" in rest  # A<B<C*>>
        if found["first"][0] == found["second"][0] and not is_template:
            a, first, b, second, c = found.groups()
            yield (
                found.start(),
                f"{a} {first} {b} {second} {c} compares ({a} {first} {b}), which is 0 or 1, with "
                f"{c} in C++: write {a} {first} {b} && {b} {second} {c}.",
            )


def _assignments(code: str) -> Iterator[tuple[int, str]]:
    for found in _ASSIGNED.finditer(code):
        to, value = found[1], found[2].strip()
        yield (
            found.start(),
            f"{to} = {value} assigns here, and compares nothing: write {to} == {value}.",
        )


def _bits(code: str) -> Iterator[tuple[int, str]]:
    for found in _BITS_FIRST.finditer(code):
        a, bits, b, compared, c = found.groups()
        yield (
            found.start(),
            f"{a} {bits} {b} {compared} {c} is {a} {bits} ({b} {compared} {c}) in C++: write "
            f"({a} {bits} {b}) {compared} {c}.",
        )


def _empty_bodies(code: str) -> Iterator[tuple[int, str]]:
    for found in _HEAD.finditer(code):
        end = skip_blanks(code, closing(code, found.end()) + 1)
        is_empty = code[end : end + 1] == ";"
        follows = code[skip_blanks(code, end + 1) :][:1] if is_empty else ""
        before = code[: found.start()].rstrip()
        is_end_of_do = found[1] == "while" and before.endswith("}")
        if is_empty and (found[1] == "if" or (follows == "{" and not is_end_of_do)):
            yield (
                end,
                f"the ; after {found[1]} (...) is its whole body: leave it out, or what follows "
                "runs once, whatever the condition.",
            )


def _unsigned(code: str) -> Iterator[tuple[int, str]]:
    for found in _NEVER_BELOW.finditer(code):
        difference, compared = " ".join(found[1].split()), found[2]
        always = "never" if compared == "<" else "always"
        yield (
            found.start(),
            f"{difference} {compared} 0 is {always} so: CUDA's indices are unsigned, and below 0 "
            f"come 4294967295, 4294967294 ...: compare before you subtract, or write int(...).",
        )


def _comparisons(code: str) -> Iterator[tuple[int, str]]:
    for head in re.finditer(r"\bfor\s*(?=\()", code):
        end = closing(code, head.end())
        code = code[: head.end() + 1] + blank(code[head.end() + 1 : end]) + code[end:]
    for found in _COMPARED.finditer(code):
        to, value = found[1], found[2].strip()
        yield (
            found.start(1),
            f"{to} == {value}; compares, and nobody looks at the result: write {to} = {value};",
        )


def _sizes(source: Source, code: str) -> Iterator[tuple[int, str]]:
    for function in source.functions:
        if not (function.body and function.is_for_device):
            continue
        first, last = function.parameters
        pointers = {
            found[1]
            for parameter in split(code[first + 1 : last])
            if (found := re.search(r"\*[^*]*?(\w+)\s*$", parameter.partition("=")[0]))
        }
        for found in _SIZEOF.finditer(code, *function.body):
            if found[1] in pointers:
                yield (
                    found.start(),
                    f"sizeof({found[1]}) is the size of the pointer, 8 bytes: how many elements "
                    "there are is for the host to pass.",
                )
