"""Colours for code: Python, and CUDA or C++ in its strings."""

import re
from collections.abc import Iterator

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import DelegatingLexer, Lexer
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import Other, String, _TokenType

QUOTES = ('"""', "'''")
OF_C = re.compile(r"[;{}][ \t]*(?://.*)?$|^[ \t]*#[ \t]*(?:include|define)\b|^// ", re.MULTILINE)
OF_PYTHON = re.compile(r"^(?:import \w|from \w+ import|[ \t]*(?:def|class) .*:$)", re.MULTILINE)

Token = tuple[int, _TokenType, str]


class CudaInPython(DelegatingLexer):
    """Lex Python, and what strings in three quotes hold as CUDA where it looks like it."""

    name = "Python with CUDA"

    def __init__(self, **options):
        super().__init__(CudaLexer, _PythonWithHoles, **options)


def coloured(code: str, lexer: type[Lexer] = CudaInPython) -> str:
    """Return code as HTML with pygments' classes."""
    return highlight(code, lexer(stripnl=False), HtmlFormatter())


class _PythonWithHoles(Lexer):
    """Python whose CUDA strings are `Other` between their quotes, for another lexer to fill."""

    def __init__(self, **options):
        super().__init__(**options)
        self.python = PythonLexer(**options)

    def get_tokens_unprocessed(self, text: str) -> Iterator[Token]:
        tokens = list(self.python.get_tokens_unprocessed(text))
        i = 0
        while i < len(tokens):
            start, kind, value = tokens[i]
            quote = value[:3] if kind in String and value.startswith(QUOTES) else None
            if quote and len(value) >= 6 and value.endswith(quote):  # whole: alone on its line
                yield from _whole(tokens[i])
                i += 1
                continue
            yield tokens[i]
            i += 1
            if quote:
                end = _closing(tokens, i, quote)
                inside = tokens[i:end]
                is_cuda = looks_like_cuda("".join(value for _, _, value in inside))
                yield from _holes(inside) if is_cuda else inside
                i = end


def looks_like_cuda(text: str) -> bool:
    """Tell whether a string holds CUDA, C++ or C, by how its lines end and begin."""
    return bool(OF_C.search(text)) and not OF_PYTHON.search(text)


def _whole(token: Token) -> Iterator[Token]:
    start, kind, value = token
    inside = value[3:-3]
    if not looks_like_cuda(inside):
        yield token
        return
    yield start, kind, value[:3]
    yield start + 3, Other, inside
    yield start + len(value) - 3, kind, value[-3:]


def _closing(tokens: list[Token], first: int, quote: str) -> int:
    """Return the place of the token that ends the string, behind the last one if none does."""
    for i in range(first, len(tokens)):
        if tokens[i][1] in String and tokens[i][2] == quote:
            return i
    return len(tokens)


def _holes(tokens: list[Token]) -> Iterator[Token]:
    """Yield a string's tokens as `Other`, but for what an f-string fills in."""
    is_filled_in = False
    for start, kind, value in tokens:
        brace = value if kind is String.Interpol else ""
        is_filled_in |= brace == "{"
        yield start, kind if is_filled_in else Other, value
        is_filled_in &= brace != "}"
