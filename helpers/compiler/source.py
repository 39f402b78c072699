"""Read a CUDA string: mask what is not code, find the host functions Python can call."""

import keyword
import re
from dataclasses import dataclass

# C++ type as a function spells it → type in an operator's schema, the way PyTorch names them.
SCHEMA_TYPES = {
    "Tensor": "Tensor",
    "bool": "bool",
    "float": "float",
    "double": "float",
    "string": "str",
    "ScalarType": "ScalarType",
    "Dtype": "ScalarType",
    **dict.fromkeys(
        "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t".split(), "int"
    ),
}
INTEGER_WORDS = {"int", "long", "short", "signed", "unsigned", "char"}
NOT_FOR_PYTHON = {"template", "static", "inline", "constexpr", "typedef", "using", "operator"}
NOT_HOST = {"__global__", "__device__"}

_NOT_CODE = re.compile(
    r"""//(?:\\\n|[^\n])*                                  # comment to the end of the line
      | /\*.*?(?:\*/|\Z)                                   # comment
      | (?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"   # raw string
      | (?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'                # character; 1'000 is a number
      | "(?:\\.|[^"\\\n])*"                                # string
    """,
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)


@dataclass(frozen=True)
class Function:
    """A host function of the string: what Python needs to know to call it."""

    name: str
    line: int
    declaration: str  # "torch::Tensor square(torch::Tensor inp)"
    pointer: str  # "torch::Tensor (*)(torch::Tensor)": tells it from functions of CUDA's like `exp`
    schema: str | None  # "square(Tensor inp) -> Tensor"; None: a type that operators do not take
    uses_tensors: bool
    hidden: bool  # a template, static or inline: C++ alone can call it


def mask(source: str) -> str:
    """Return the source with comments, strings and directives blanked, line by line the same."""
    without_comments = _NOT_CODE.sub(lambda found: _blank(found[0]), source)
    return _DIRECTIVE.sub(lambda found: _blank(found[0]), without_comments)


def includes(source: str) -> list[str]:
    """Return the headers the source includes: ["cuda_runtime.h", "torch/extension.h"]."""
    comments_out = _NOT_CODE.sub(
        lambda found: found[0] if found[0].startswith('"') else _blank(found[0]), source
    )
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', comments_out, re.MULTILINE)


def brackets_match(source: str) -> bool:
    """Return whether as many brackets are closed as opened."""
    code = mask(source)
    return all(code.count(opening) == code.count(closing) for opening, closing in ("()", "{}"))


def host_functions(source: str) -> list[Function]:
    """Return the functions that the source defines at file scope for the host, in order."""
    code = mask(source)
    found, start, i = [], 0, 0
    while i < len(code):
        if code[i] == "(":
            i = _closing(code, i)
        elif code[i] == ";":
            start = i + 1
        elif code[i] == "{":
            function = _parse_header(code[start:i], source, start)
            if function:
                found.append(function)
            i = _closing(code, i)
            start = i + 1
        i += 1
    return found


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def _closing(code, i):
    """Return the index of the bracket that closes the one at i, or the end."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    opening, closing, depth = code[i], pairs[code[i]], 0
    for j in range(i, len(code)):
        depth += (code[j] == opening) - (code[j] == closing)
        if depth == 0:
            return j
    return len(code)


def _parse_header(header, source, offset):
    """Read what stands before a `{` at file scope; None unless it is a host function."""
    words = set(re.findall(r"\w+", header))
    if words & NOT_HOST or words & {"namespace", "struct", "class", "union", "enum"}:
        return None
    clean = re.sub(r"\[\[.*?\]\]|\b(?:__host__|extern)\b", lambda word: _blank(word[0]), header)
    opening = _outside_angles(clean, "(")
    if opening is None or "=" in clean[:opening]:
        return None
    closing = _closing(clean, opening)
    name = re.search(r"(?<![:\w~])([A-Za-z_]\w*)\s*$", clean[:opening])
    if not name or not clean[: name.start()].strip():
        return None
    if clean[closing + 1 :].strip() not in ("", "noexcept"):
        return None
    returns = clean[: name.start()].strip()
    hidden = bool(words & NOT_FOR_PYTHON)
    listed = _split(clean[opening + 1 : closing])
    parameters = [_parameter(text, i) for i, text in enumerate(listed)]
    types = [returns] + [kind for kind, _ in parameters]
    listed = ", ".join(f"{kind} {name}" for kind, name in parameters)
    return Function(
        name=name[1],
        line=source.count("\n", 0, offset + name.start(1)) + 1,
        declaration=" ".join(f"{returns} {name[1]}({listed})".split()),
        pointer=" ".join(f"{returns} (*)({', '.join(kind for kind, _ in parameters)})".split()),
        schema=_schema(name[1], parameters, returns),
        uses_tensors=any(re.search(r"\bTensor\b", kind) for kind in types),
        hidden=hidden,
    )


def _outside_angles(text, character):
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "<") - (c == ">")
        if c == character and depth <= 0:
            return i
    return None


def _split(text):
    """Split at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "(<[{") - (c in ")>]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


def _parameter(text, position):
    """Return (type, name) of one parameter; a default value is not Python's to use."""
    text = text[:equals] if (equals := text.find("=")) >= 0 else text
    named = re.fullmatch(r"(?s)(.*[\s&*>])(\w+)\s*", text.rstrip())
    if named and named[2] not in SCHEMA_TYPES and named[2] not in INTEGER_WORDS:
        return named[1].strip(), named[2]
    return text.strip(), f"arg{position}"


def _schema(name, parameters, returns):
    taken = [_schema_type(kind) for kind, _ in parameters]
    given = _result_type(returns)
    if None in taken or given is None:
        return None
    names = [n + "_" if keyword.iskeyword(n) else n for _, n in parameters]
    listed = ", ".join(f"{kind} {n}" for kind, n in zip(taken, names, strict=True))
    return f"{name}({listed}) -> {given}"


def _result_type(kind):
    if kind == "void":
        return "()"
    if inner := re.fullmatch(r"std::tuple\s*<(.*)>", kind, re.DOTALL):
        parts = [_schema_type(part) for part in _split(inner[1])]
        return None if None in parts else f"({', '.join(parts)})"
    return _schema_type(kind)


def _schema_type(kind):
    """Return an operator's name for a C++ type: `const std::vector<int64_t>&` is `int[]`."""
    kind = re.sub(r"\bconst\b|&", " ", kind)
    kind = re.sub(r"\b(?:::)?(?:torch|at|c10|std)::", "", " ".join(kind.split()))
    if inner := re.fullmatch(r"(optional|vector) ?<(.*)>", kind):
        element = _schema_type(inner[2])
        if element is None or not element[-1].isalpha():
            return None  # a list of lists
        return element + {"optional": "?", "vector": "[]"}[inner[1]]
    if kind not in ("", "char") and set(kind.split()) <= INTEGER_WORDS:
        return "int"
    return SCHEMA_TYPES.get(kind)
