"""Read a CUDA string: mask what is not code, find the host functions Python can call."""

import functools
import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from helpers.base.called_kernels import version
from helpers.cuda_on_cpu import scanner

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
    called: str  # its name in C++: a PYBIND11_MODULE may have given it another for Python


def read(src: str | bytes | Path) -> tuple[str, str]:
    """Return the text of a CUDA string or file, and its label in messages.

    An editor's byte order mark is left out. Bytes that are no UTF-8 are Latin-1, of whose comments
    nvcc thinks nothing either.
    """
    if isinstance(src, str):
        return src.removeprefix("\ufeff"), "cell"
    if not isinstance(src, bytes | Path):
        raise TypeError(f"expected a CUDA string, or a file's Path, got {type(src).__name__}")
    text, label = (src, "cell") if isinstance(src, bytes) else (src.read_bytes(), src.name)
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        decoded = text.decode("latin-1")
    return decoded.replace("\r\n", "\n"), label


def mask(source: str) -> str:
    """Return the source with comments, strings and directives blanked, line by line the same."""
    return scanner.Source(source).bare


def includes(source: str) -> list[str]:
    """Return the headers the source includes: ["cuda_runtime.h", "torch/extension.h"]."""
    code = scanner.mask_comments(source)
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', code, re.MULTILINE)


def brackets_match(source: str) -> bool:
    """Return whether as many brackets are closed as opened."""
    code = mask(source)
    return all(code.count(opening) == code.count(closing) for opening, closing in ("()", "{}"))


@functools.lru_cache(maxsize=64)  # what is built is asked for again and again
def host_functions(source: str) -> tuple[Function, ...]:
    """Return the functions that the source defines at file scope for the host, in order."""
    whole = scanner.Source(source)
    found = [(f.start, f.name_at, whole, f) for f in whole.functions]
    for place, made in whole.made_by_macros():
        found += [(place, place, made, f) for f in made.functions]
    return tuple(
        _host_function(function, part, whole.line_of(at))
        for _, at, part, function in sorted(found, key=lambda each: each[0])
        if _is_for_python(function)
    )


@functools.lru_cache(maxsize=64)
def out_of_reach(source: str) -> tuple[tuple[Function, str], ...]:
    """Return the functions of the host that C++ alone can call, each with the reason."""
    whole = scanner.Source(source)
    found = []
    for f in whole.functions:
        if not f.is_for_device and f.returns:
            if reason := _why_out_of_reach(f, whole):
                found.append((_host_function(f, whole, whole.line_of(f.name_at)), reason))
    return tuple(found)


def _why_out_of_reach(function, source):
    name = function.name
    if function.qualifier or function.owner:
        of = function.qualifier.rstrip(": ") or function.owner
        return f"{name} is a member of {of}, and Python finds functions at file scope only"
    if not function.at_file_scope:
        around = source.bare[: function.start]
        opened = [each for each in re.finditer(_SCOPES, around) if _is_open(around, each.end())]
        where = " ".join(opened[-1][0].rstrip(" {").split()).replace("extern", _EXTERN_C)
        return f"{name} stands in {where}, and Python finds functions at file scope only"
    if "template" in function.words:
        return f"{name} is a template: let a function that is none call it, with the types chosen"
    if words := sorted(function.words & NOT_FOR_PYTHON):
        return f"{name} is {words[0]}, which hides it from Python: leave that word out"
    if function.body is None and not any(f.body and f.name == name for f in source.functions):
        return f"{name} is declared, but has no body"
    return None


_EXTERN_C = 'extern "C" { }'
_SCOPES = r"(?:\bnamespace\b[\w:\s]*|\bextern\s*)\{"


def _is_open(code, position):
    """Whether the brace that ends at the position is still open at the end of the code."""
    return scanner.closing(code, position - 1) == len(code)


@dataclass(frozen=True)
class Module:
    """A PYBIND11_MODULE of the string's own: where it stands and what it gives to Python."""

    start: int
    end: int
    functions: dict[str, str] | None  # name → C++'s name; None: more than m.def("name", &function)

    def left_out(self, source: str) -> str:
        """Return the source with blanks in the place of the module."""
        blanks = scanner.blank(source[self.start : self.end])
        return source[: self.start] + blanks + source[self.end :]


@functools.lru_cache(maxsize=64)
def own_module(source: str) -> Module | None:
    """Return the PYBIND11_MODULE of a string that was an extension, if it has one."""
    whole = scanner.Source(source)
    head = re.search(r"\bPYBIND11_MODULE\s*\([^()]*\)\s*\{", whole.bare)
    if not head:
        return None
    end = scanner.closing(whole.bare, head.end() - 1)
    module = re.search(r",\s*(\w+)", head[0])
    body = scanner.mask_comments(source)[head.end() : end]
    for macro in whole.macros:  # of m.def, as some files have one
        if macro.parameters and re.search(rf"{module[1]}\s*\.\s*def\b", macro.body):
            call = rf"\b{macro.name}\s*\(([^()]*)\)\s*;?"
            body = re.sub(call, lambda found, macro=macro: _with_strings(macro, found[1]), body)
    functions = {}
    for statement in filter(str.strip, body.split(";")):
        named = re.fullmatch(_PLAIN_DEF.format(module[1]), statement)
        if not named:
            return Module(head.start(), end + 1, None)
        functions[named[1] or named[2]] = named[3]
    return Module(head.start(), end + 1, functions)


# m.def("name", &function, "about it"); a macro that makes strings may stand for the texts.
_PLAIN_DEF = (
    r'\s*{}\s*\.\s*def\s*\(\s*(?:"(\w+)"|\w+\(\s*(\w+)\s*\))\s*,\s*&?\s*(\w+)\s*'
    r'(?:,\s*(?:(?:"(?:\\.|[^"\\])*"\s*)+|\w+\(\s*\w+\s*\)))?\s*\)\s*'
)


def _with_strings(macro, given):
    """Return what a macro stands for; what it makes a string of is one."""
    body = re.sub(r"(?<!#)#\s*(\w+)", r'"\1"', macro.body.replace("\\\n", " "))
    for name, value in zip(macro.parameters, given.split(","), strict=False):
        body = re.sub(rf"\b{name}\b", value.strip(), body)
    return body.rstrip("; \n") + ";"


def for_nvcc(source: str) -> bool:
    """Return whether the string has code for the GPU, starts some, or includes some."""
    code = scanner.mask_comments(source)  # with directives: a macro may make a kernel
    inside = re.search(r"<<<|\b__(?:global|device|constant|shared|managed)__\b", code)
    of_gpu = ("cub/", "thrust/", "cuda/", "cutlass/", "cute/", "curand_kernel.h")
    return bool(inside) or any(name.startswith(of_gpu) for name in includes(source))


def kernel_version(source: str) -> str:
    """Return the version of a string's kernels, under the first one's name; comments make none."""
    names = [function.name for function in scanner.Source(source).functions if function.is_kernel]
    return version(names[0] if names else "cell", scanner.mask_comments(source))


def _is_for_python(function):
    is_plain = function.name.isidentifier() and not function.qualifier and function.returns
    here = function.body is not None and function.at_file_scope
    return here and is_plain and not function.is_for_device


def _host_function(function, source, line):
    first, last = function.parameters
    returns = re.sub(r"\b(?:__host__|extern|static|inline)\b", "", function.returns)
    returns = " ".join(returns.split())
    behind = source.bare[last + 1 : function.start + len(function.header)]
    if returns == "auto" and (trailing := re.fullmatch(r"\s*->\s*(.*?)\s*", behind, re.DOTALL)):
        returns = trailing[1]
    listed = [part.strip() for part in scanner.split(source.bare[first + 1 : last])]
    listed = [part for part in listed if part not in ("", "void")]
    parameters = [_parameter(text, i) for i, text in enumerate(listed)]
    types = [returns] + [kind for kind, _ in parameters]
    listed = ", ".join(f"{kind} {name}" for kind, name in parameters)
    return Function(
        name=function.name,
        line=line,
        declaration=" ".join(f"{returns} {function.name}({listed})".split()),
        pointer=" ".join(f"{returns} (*)({', '.join(kind for kind, _ in parameters)})".split()),
        schema=_schema(function.name, parameters, returns),
        uses_tensors=any(re.search(r"\bTensor\b", kind) for kind in types),
        hidden=bool(function.words & NOT_FOR_PYTHON),
        called=function.name,
    )


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
        parts = [_schema_type(part) for part in scanner.split(inner[1])]
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
