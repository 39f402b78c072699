"""Read C++ as far as it goes without a compiler: what is code, what belongs together, what is
a function and for which processor.

Everything works on positions in `code`, which is what `mask` makes of a source: comments, strings
and characters are blanks in it, so that every other letter stands where it stood.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

# A number whose digits ' separates, a comment, a raw string, a string, a character. A comment or
# a raw string that never ends goes on to the end of the source, as it does for a compiler. The set
# of first letters stands in front: re passes over all others at once.
_TOKEN = re.compile(
    r"""[.\d/uULR"'](?:
        (?P<number>(?<![\w.].)(?:(?<=\d)|(?<=\.)\d)
            (?:[eEpP][+-]|[\w.])*'[\w.](?:[eEpP][+-]|'?[\w.])*)
      | (?<=/)/(?:\\\n|[^\n])* | (?<=/)\*.*?(?:\*/|\Z)
      | (?<!\w[uULR])(?:(?<=u)8R|(?<=[uUL])R|(?<=R))"(?P<tag>[^()\\\s]{0,16})\(
            .*?(?:\)(?P=tag)"|\Z)
      | (?<=")(?:\\.|[^"\\\n])*" | (?<=')(?:\\.|[^'\\\n])+' )""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<parameters>\([^()]*\))?(?P<body>(?:\\\n|[^\n])*)",
    re.MULTILINE,
)


@lru_cache(maxsize=64)  # the steps of a translation leave most texts as they are
def mask(source: str) -> str:
    """Return the source with comments, strings and characters overwritten by blanks."""
    return _TOKEN.sub(lambda found: found[0] if found["number"] else blank(found[0]), source)


@lru_cache(maxsize=64)
def mask_comments(source: str) -> str:
    """Return the source with comments and raw strings overwritten by blanks."""
    return _TOKEN.sub(
        lambda found: found[0] if found["number"] or found[0][0] in "\"'" else blank(found[0]),
        source,
    )


@lru_cache(maxsize=64)
def mask_directives(code: str) -> str:
    """Return the code with #include, #define, #if ... overwritten by blanks."""
    return _DIRECTIVE.sub(lambda found: blank(found[0]), code)


def blank(text: str) -> str:
    return "\n".join([" " * len(line) for line in text.split("\n")])


def line_of(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1


# --- brackets and commas --------------------------------------------------------------------------

CLOSING = {"(": ")", "[": "]", "{": "}"}
OPENING = {close: opening for opening, close in CLOSING.items()}
_ANY_BRACKET = re.compile(r"[()\[\]{}]")
_BLANKS = re.compile(r"\s*(?:\\\n\s*)*")


def closing(code: str, i: int) -> int:
    """Return where the bracket that opens at i closes, or the end of the code."""
    depth = 0
    for found in _ANY_BRACKET.finditer(code, i):
        depth += 1 if found[0] in CLOSING else -1
        if depth == 0:
            return found.start()
    return len(code)


def opening(code: str, i: int) -> int | None:
    """Return where the bracket that closes at i was opened; None if it was not."""
    depth = 0
    for j in range(i, -1, -1):
        if code[j] in OPENING:
            depth += 1
        elif code[j] in CLOSING:
            depth -= 1
            if depth == 0:
                return j
    return None


def closing_angle(code: str, i: int) -> int | None:
    """Return where the template arguments that begin with the < at i end; None if it compares."""
    depth = 0
    while i < len(code):
        if code[i] in CLOSING:
            i = closing(code, i)
        elif code[i] == "<":
            depth += 1
        elif code[i] == ">" and code[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i
        elif code[i] in ";)]}":
            return None
        i += 1
    return None


def split(text: str) -> list[str]:
    """Split at the commas that stand in no bracket and in no template's arguments."""
    parts, start, i = [], 0, 0
    while i < len(text):
        if text[i] in CLOSING:
            i = closing(text, i)
        elif text[i] == "<":
            i = closing_angle(text, i) or i
        elif text[i] == ",":
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return [*parts, text[start:]]


def skip_blanks(code: str, i: int) -> int:
    return _BLANKS.match(code, i).end()


def skip_blanks_back(code: str, i: int) -> int:
    while i and (code[i - 1].isspace() or code.startswith("\\\n", i - 1)):
        i -= 1
    return i


def word_start(code: str, i: int) -> int:
    """Return where the word that ends before i begins; i if there is none."""
    while i and (code[i - 1].isalnum() or code[i - 1] == "_"):
        i -= 1
    return i


# --- macros ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Macro:
    """A #define: `parameters` is None where it takes no arguments."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    start: int
    end: int

    def expand(self, arguments: list[str]) -> str:
        """Return the body with the arguments in it, on one line."""
        given = dict(zip(self.parameters or (), arguments, strict=False))
        rest = arguments[len(self.parameters or ()) - 1 :]
        if self.parameters and self.parameters[-1] == "...":
            given["__VA_ARGS__"] = ",".join(rest)
        text = self.body.replace("\\\n", " ")
        text = re.sub(r"(?<!#)#\s*(?=[A-Za-z_])\w+", '""', text)  # a string of an argument
        text = re.sub(r"\b[A-Za-z_]\w*", lambda word: given.get(word[0], word[0]), text)
        return re.sub(r"\s*##\s*", "", text)


def macros(source: str) -> list[Macro]:
    """Return the macros that the source defines, in order."""
    return [*_macros(source)]


@lru_cache(maxsize=64)
def _macros(source: str) -> list[Macro]:
    if "#" not in source:
        return []
    found = []
    for macro in _DEFINE.finditer(mask_comments(source)):
        listed = macro["parameters"]
        parameters = listed and tuple(name.strip() for name in listed[1:-1].split(",") if name)
        found.append(Macro(macro["name"], parameters, macro["body"], macro.start(), macro.end()))
    return found


# --- functions ------------------------------------------------------------------------------------

# What PyTorch's headers call CUDA's words.
_KNOWN_MACROS = {
    "C10_HOST_DEVICE": {"__host__", "__device__"},
    "C10_DEVICE": {"__device__"},
    "C10_HOST": {"__host__"},
    "GPU_LAMBDA": {"__host__", "__device__"},
}
_WITH_PARENTHESES = (  # words before a ( that opens no parameters
    "__launch_bounds__|__attribute__|__align__|__cluster_dims__|__maxnreg__|__block_size__|alignas"
    "|noexcept|decltype|requires|throw|explicit|sizeof|typeof|__declspec"
)
_TYPES = {"void", "bool", "char", "short", "int", "long", "unsigned", "float", "double", "auto"}
_AFTER_PARAMETERS = {"const", "volatile", "override", "final", "try", "mutable"}
_OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(\[]+|[\w:<>*&\s]+?)\s*(?=\()")


@dataclass(frozen=True)
class Function:
    """A function that a source declares or defines; all positions are of its code."""

    name: str  # "scale", "operator()", "~Table"
    qualifier: str  # "Table<T>::" of Table<T>::scale
    name_at: int
    start: int  # of the declaration, templates and attributes included
    header: str  # up to the body or the ;
    parameters: tuple[int, int]  # where ( and ) stand
    body: tuple[int, int] | None  # where { and } stand
    owner: str | None  # the class around it
    at_file_scope: bool  # in no class and no namespace
    words: frozenset[str]  # of the header before the parameters, macros looked into

    @property
    def is_kernel(self) -> bool:
        return "__global__" in self.words

    @property
    def is_for_device(self) -> bool:
        return bool(self.words & {"__global__", "__device__"})

    @property
    def is_for_host(self) -> bool:
        return "__host__" in self.words or not self.is_for_device

    @property
    def returns(self) -> str:
        """What stands before the name, without templates and attributes: "static float*"."""
        before = self.header[: self.name_at - self.start - len(self.qualifier)]
        before = before[declaration_start(before) :]
        before = _without_attributes(before)
        return " ".join(re.sub(r"\[\[.*?\]\]", "", before).split())


_TEMPLATE = re.compile(r"template\s*(?=<)")
_EXTERN = re.compile(r"extern\b\s*")
_TELLING = re.compile(r"[(\[;}:{]")
_WORD = re.compile(r"\w+")


class Source:
    """A source and what it consists of; every part is looked for once, when it is asked for."""

    def __init__(self, text: str, macros_before: list[Macro] = ()):
        self.text = text
        self.code = mask(text)
        self._macros_before = macros_before

    @cached_property
    def bare(self) -> str:
        """The code without directives."""
        return mask_directives(self.code)

    @cached_property
    def macros(self) -> list[Macro]:
        return [*self._macros_before, *macros(self.text)]

    def in_macro(self, position: int) -> bool:
        """Whether the position is in a #define."""
        own = self.macros[len(self._macros_before) :]
        return any(macro.start < position < macro.end for macro in own)

    def line_of(self, position: int) -> int:
        return line_of(self.text, position)

    @cached_property
    def functions(self) -> list[Function]:
        """The functions declared or defined outside other functions, methods included."""
        return [*_parts(self.text, tuple(self._macros_before))[0]]

    @cached_property
    def _words_of_macros(self) -> dict[str, list[str]]:
        """The words that each macro without braces stands for."""
        return {m.name: _WORD.findall(m.body) for m in self.macros if "{" not in m.body}

    @cached_property
    def _whole_macros(self) -> set[str]:
        """The macros with arguments that stand for whole declarations."""
        with_arguments = (m for m in self.macros if m.parameters is not None)
        return {m.name for m in with_arguments if m.body.rstrip()[-1:] in (";", "}")}

    @cached_property
    def _inside(self) -> list[tuple[int, int]]:
        """The braces of functions, classes and values."""
        return _parts(self.text, tuple(self._macros_before))[1]

    def at_file_scope(self, position: int) -> bool:
        """Whether the position is outside all functions, classes and values in braces."""
        return not any(first < position < last for first, last in self._inside)

    def made_by_macros(self) -> list[tuple[int, "Source"]]:
        """Return what macros at file scope define: where each is called, and what it becomes."""
        made = []
        defining = {m.name: m for m in self.macros if m.parameters is not None and "{" in m.body}
        for call in re.finditer(r"\b([A-Za-z_]\w*)\s*\(", self.bare):
            macro = defining.get(call[1])
            if macro and self.at_file_scope(call.start()):
                end = closing(self.bare, call.end() - 1)
                arguments = [part.strip() for part in split(self.text[call.end() : end])]
                made.append((call.start(), Source(macro.expand(arguments), self.macros)))
        return made

    def _functions(self, inside):
        code = self.bare
        owners = []  # of the braces that are open: the class's name, "" for a namespace
        start = i = 0
        while found := _TELLING.search(code, i):
            i, c = found.start(), found[0]
            if c in "([":
                is_whole = c == "(" and code[start:i].strip() in self._whole_macros
                i = closing(code, i)
                if is_whole:  # MAKE(float): no part of what follows
                    start = i + 1
            elif c == ";":
                if function := self._read(start, i, None, owners):
                    yield function
                start = i + 1
            elif c == "}":
                del owners[-1:]
                start = i + 1
            elif c == ":" and re.search(r"\b(?:public|private|protected)\s*$", code[start:i]):
                start = i + 1
            elif c == "{":
                header = code[start:i]
                scope = _scope(header)
                end = closing(code, i)
                if scope != "" and not any(owners):
                    inside.append((i, end))
                if scope is not None:
                    owners.append(scope)
                    start = i + 1
                elif _is_member_value(header) or _is_value(header):
                    i = end
                else:
                    if function := self._read(start, i, (i, end), owners):
                        yield function
                    i = end
                    start = i + 1
            i += 1

    def _read(self, start, end, body, owners):
        start = skip_blanks(self.bare, start)
        header = self.bare[start:end]
        if (place := _parameters(header)) is None:
            return None
        name, at, opened, qualifier = place
        closed = closing(header, opened)
        before = header[:at]
        words = self.words(before)
        if re.search(r"\b(?:using|typedef|return|static_assert)\b", before) or name in _TYPES:
            return None
        outside = re.sub(r"<.*>", "", _without_attributes(before), flags=re.DOTALL)
        if body is None and "=" in outside:
            return None  # a value
        return Function(
            name=name,
            qualifier=qualifier,
            name_at=start + at,
            start=start,
            header=header,
            parameters=(start + opened, start + closed),
            body=body,
            owner=owners[-1] or None if owners else None,
            at_file_scope=not owners,
            words=words,
        )

    def words(self, header: str) -> frozenset[str]:
        """Return the words of the header, with those that macros stand for."""
        words, found = set(), _WORD.findall(header)
        while found:
            word = found.pop()
            if word not in words:
                words.add(word)
                found += _KNOWN_MACROS.get(word, ())
                found += self._words_of_macros.get(word, ())
        return frozenset(words)


@lru_cache(maxsize=64)
def _parts(text: str, macros_before: tuple[Macro, ...]):
    """Return the functions of a source, and where the braces of `_inside` stand."""
    inside = []
    return [*Source(text, macros_before)._functions(inside)], inside


def declaration_start(header: str) -> int:
    """Return where a declaration begins behind template<...>, extern "C" and [[attributes]]."""
    i = skip_blanks(header, 0)
    while True:
        if found := _TEMPLATE.match(header, i):
            end = closing_angle(header, found.end())
            if end is None:
                return i
            i = skip_blanks(header, end + 1)
        elif header.startswith("[[", i):
            i = skip_blanks(header, closing(header, i) + 1)
        elif found := _EXTERN.match(header, i):
            i = found.end()
        else:
            return i


def _scope(header: str) -> str | None:
    """Return the class that a { after this header opens, "" for a namespace, None for neither."""
    rest = header[declaration_start(header) :]
    if not rest.strip() and re.search(r"\bextern\b", header):
        return ""  # extern "C"
    if re.match(r"(?:inline\s+)?namespace\b", rest):
        return ""
    kind = re.match(r"(?:(?:typedef|static|const)\s+)*(?:struct|class|union)\b", rest)
    if not kind:
        return None
    rest = _without_attributes(rest[kind.end() :])
    name = re.search(r"(\w+)\s*(?:<.*>\s*)?(?:final\s*)?$", rest.split(":")[0], re.DOTALL)
    if _outside_angles(rest.split(":")[0], "(") is not None or "=" in rest.split(":")[0]:
        return None
    return name[1] if name else "(unnamed)"


def _is_member_value(header: str) -> bool:
    """Whether a { after this header gives a member its value: P() : x{1}, y{2} {}."""
    place = _parameters(header)
    if place is None or not re.search(r"[\w>]\s*$", header):
        return False
    after = header[closing(header, place[2]) + 1 :]
    return bool(re.search(r"(?<!:):(?!:)", after))


def _is_value(header: str) -> bool:
    """Whether a { after this header begins no body: int a[] = {1}; P p{2}; enum E {A, B};"""
    place = _parameters(header)
    if place is None:
        return True
    before = header[: place[1]]
    before = before[declaration_start(before) :]
    return "=" in _without_attributes(before) or bool(re.match(r"enum\b", before))


def _without_attributes(header: str) -> str:
    """Return the header without __launch_bounds__(...) and its like, which may compare with ==."""
    return re.sub(rf"\b(?:{_WITH_PARENTHESES})\s*\((?:[^()]|\([^()]*\))*\)", "", header)


def _parameters(header: str) -> tuple[str, int, int, str] | None:
    """Return name, its place, the place of the ( and the qualifier of what a header declares."""
    begin = declaration_start(header)
    if "operator" in header and (found := _OPERATOR.search(header, begin)):
        name = " ".join(found[0].split())
        return re.sub(r"(?<=operator) (?=\W)", "", name), found.start(), found.end(), ""
    i = begin
    while (opened := _outside_angles(header, "(", i)) is not None:
        end = closing(header, opened)
        named = re.search(r"(~?\b[A-Za-z_]\w*)\s*(<.*>)?\s*$", header[begin:opened], re.DOTALL)
        i = end + 1
        if not named:
            return None  # (*pointer)(...), or nothing before the parentheses
        if re.fullmatch(_WITH_PARENTHESES, named[1]):
            continue
        following = re.match(r"[\w\s*&:<>,]*?(\w+)\s*\(", header[i:])
        is_macro = following and ":" not in following[0].replace("::", "")
        if is_macro and not _AFTER_PARAMETERS & set(re.findall(r"\w+", following[0])):
            if not re.fullmatch(_WITH_PARENTHESES, following[1]):
                continue  # DEFINED_ABOVE(x) void k(
        at = begin + named.start(1)
        qualifier = re.search(r"(?:\b\w+\s*(?:<[^<>]*>)?\s*::\s*)+$", header[begin:at])
        return named[1], at, opened, qualifier[0] if qualifier else ""
    return None


def _outside_angles(text: str, character: str, start: int = 0) -> int | None:
    """Return where the character stands first in no bracket and no template's arguments."""
    i = start
    while i < len(text):
        if text[i] == character:
            return i
        if text[i] in CLOSING:
            i = closing(text, i)
        elif text[i] == "<":
            i = closing_angle(text, i) or i
        i += 1
    return None
