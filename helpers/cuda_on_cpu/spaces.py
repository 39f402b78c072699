"""Let the compiler find where code for the device uses what is of the host alone.

Functions and variables of the host are marked as deprecated, with a sentence, and only in code for
the device that is an error:

    CUDA_ON_CPU_NOT_FOR_DEVICE("...") float twice(float x) { return 2 * x; }
    __global__ void k(float* a) {
        CUDA_ON_CPU_DEVICE_BEGIN a[0] = twice(a[0]); CUDA_ON_CPU_DEVICE_END
    }

So overloads, templates, methods and operators are told apart as the compiler does it.
"""

import re

from .scanner import Function, Source, declaration_start

_VARIABLE = re.compile(
    r"\s*(?:(?:static|inline|unsigned|signed|long|short)\s+)*[A-Za-z_][\w:]*(?:\s*<[^;{}()=]*>)?"
    r"(?:\s+|\s*\*\s*)(?:(?:int|long|char|short)\s+)*(?P<name>[A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$"
)
_NO_VARIABLE = (
    r"\b(?:constexpr|extern|using|typedef|template|struct|class|enum|union|namespace|return|friend"
    r"|static_assert|operator|asm|__device__|__constant__|__managed__|__shared__|thread_local|goto)\b"
)


def mark_spaces(src: str) -> str:
    """Mark what is of the host, and where code for the device begins and ends."""
    source = Source(src)
    insertions = []
    for function in source.functions:
        if _is_of_the_host(function, source):
            at = function.start + declaration_start(function.header)
            insertions.append((at, f'CUDA_ON_CPU_NOT_FOR_DEVICE("{_sentence(function)}") '))
        if function.body and function.is_for_device and not function.is_for_host:
            first, last = function.body
            insertions.append((first + 1, " CUDA_ON_CPU_DEVICE_BEGIN "))
            insertions.append((last, " CUDA_ON_CPU_DEVICE_END "))
    for at, name in _host_variables(source):
        sentence = f"{name} is a variable of the host: pass it to the kernel as an argument"
        insertions.append((at, f'CUDA_ON_CPU_NOT_FOR_DEVICE("{sentence}, or make it constexpr") '))
    for at, text in sorted(insertions, reverse=True):
        src = src[:at] + text + src[at:]
    return src


def _is_of_the_host(function: Function, source: Source) -> bool:
    other = {"constexpr", "consteval", "friend", "__device__", "__global__"}
    if function.words & other or function.name.startswith("~") or function.qualifier:
        return False
    if function.returns.startswith("template"):
        return False  # template void run<float>(float*);
    if function.body is None:
        after = source.bare[function.parameters[1] + 1 : function.start + len(function.header)]
        if "=" in after or not _is_defined(function, source):
            return False  # = default, or a variable: dim3 block(16, 16);
    elif not function.returns and function.name != function.owner:
        return "operator" in function.name  # what a macro makes
    return not _is_for_device_elsewhere(function, source)


def _is_defined(function, source):
    return any(f.body and f.name == function.name for f in source.functions)


def _is_for_device_elsewhere(function, source):
    """Whether a declaration of the same function says that it is for the device."""
    parameters = _types(function, source)
    return any(
        f.is_for_device and f.name == function.name and f.owner == function.owner
        and _types(f, source) == parameters
        for f in source.functions
    )  # fmt: skip


def _types(function, source):
    first, last = function.parameters
    return "".join(source.bare[first:last].split())


def _sentence(function: Function) -> str:
    name = (
        f"the constructor of {function.name}" if function.name == function.owner else function.name
    )
    return f"{name} is a function of the host: a kernel can call it with __device__ before it"


def _host_variables(source: Source):
    """Yield place and name of variables at file scope that only the host has."""
    start = 0
    for found in re.finditer(r"[;{}]", source.bare):
        statement, begin = source.bare[start : found.start()], start
        start = found.end()
        if found[0] == "}" or not source.at_file_scope(begin) or source.in_macro(begin):
            continue
        before, value, _ = statement.partition("=")
        if (found[0] == "{" and not value) or re.search(_NO_VARIABLE, statement):
            continue
        is_array = "[" in before
        if (re.search(r"\bconst\b", before) and not is_array) or "(" in before:
            continue
        declared = _VARIABLE.match(re.sub(r"\bconst\b", "     ", before))
        if declared:
            yield begin + len(statement) - len(statement.lstrip()), declared["name"]
