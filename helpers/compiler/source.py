"""Read a CUDA string: mask what is not code, find the host functions Python can call."""

import keyword
import re
from dataclasses import dataclass

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


def host_functions(source: str) -> list[Function]:
    """Return the functions that the source defines at file scope for the host, in order."""
    whole = scanner.Source(source)
    found = [(f.start, f.name_at, whole, f) for f in whole.functions]
    for place, made in whole.made_by_macros():
        found += [(place, place, made, f) for f in made.functions]
    return [
        _host_function(function, part, whole.line_of(at))
        for _, at, part, function in sorted(found, key=lambda each: each[0])
        if _is_for_python(function)
    ]


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
    returns = " ".join(re.sub(r"\b(?:__host__|extern)\b", "", function.returns).split())
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
