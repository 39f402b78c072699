"""Rewrite launches: kernel<<<grid, block, bytes, stream>>>(arguments), and cudaLaunchKernel."""

import re

from . import checked
from .error import TranslateError
from .scanner import (
    CLOSING,
    OPENING,
    Source,
    closing,
    closing_angle,
    mask,
    opening,
    skip_blanks,
    skip_blanks_back,
    split,
    word_start,
)


def rewrite_launches(src: str) -> str:
    """kernel<<<configuration>>>(arguments), inside out, from the last one to the first."""
    source = Source(src)
    code = source.code
    declaration = _declarations(source)
    types, bounds = _parameter_types(source), _bounds(source)
    device = [f.body for f in source.functions if f.body and f.is_for_device and not f.is_for_host]
    for start in reversed(find_launches(code)):
        line = source.line_of(start)
        name_start = kernel_start(code, start, line)
        close = _configuration_end(code, start, line)
        arguments = skip_blanks(code, close + 3)
        if code[arguments : arguments + 1] != "(":
            raise TranslateError(line, "a launch needs arguments: kernel<<<grid, block>>>(...).")
        end = closing(code, arguments)
        if end == len(code):
            raise TranslateError(line, "the '(' of this launch is never closed.")

        kernel = src[name_start:start]
        flat = " ".join(kernel.replace("\\\n", " ").split())
        configuration = src[start + 3 : close]
        is_macro = source.in_macro(start) or source.words(configuration) - set(
            re.findall(r"\w+", configuration)
        )
        if not configuration.strip() or (len(split(configuration)) == 1 and not is_macro):
            raise TranslateError(line, "a launch needs grid and block: kernel<<<grid, block>>>.")
        function = re.sub(r"<.*", "", flat).split("::")[-1].strip()
        given = _typed(src[arguments + 1 : end], types.get(function, []))
        on_device = any(first < start < last for first, last in device)
        # In a macro the line is the one that uses it.
        at = "__LINE__" if source.in_macro(start) else line
        new = (
            f"::cuda_on_cpu::configure{'<true>' if on_device else ''}"
            f"(CUDA_ON_CPU_TEXT({flat}), {at}, {configuration})"
            f"{declaration(flat)}{bounds.get(function, '')}"
            f"{_line_breaks(kernel)}{src[close + 3 : arguments]}"
            "([=](auto&... cuda_on_cpu_a) CUDA_ON_CPU_UNCHECKED "
            f"{{ {flat}(cuda_on_cpu_a...); }}"
            f"{', ' if given.strip() else ''}{given})"
        )
        src = src[:name_start] + new + src[end + 1 :]
        code = code[:name_start] + mask(new) + code[end + 1 :]
    return src


def join_brackets(src: str) -> str:
    """k << <g, b >> >(x), as formatters write it, becomes k <<<g, b >>>(x), letter by letter."""
    code = mask(src)
    for opened in re.finditer(r"(?<!<)<<(\s+)<(?!<)", code):
        closed = re.compile(r">(>?)(\s*)>(>?)(?=\s*\()").search(code, opened.end())
        if closed and len(closed[1] + closed[3]) == 1:
            src = src[: opened.start()] + opened[1] + "<<<" + src[opened.end() :]
            src = src[: closed.start()] + closed[2] + ">>>" + src[closed.end() :]
    return src


def _parameter_types(source: Source) -> dict[str, list[str]]:
    """Return the types of each kernel's parameters; "" where kernels of one name differ."""
    found: dict[str, list[str]] = {}
    for kernel in source.functions:
        if kernel.is_kernel:
            first, last = kernel.parameters
            own = [_type_of(parameter) for parameter in split(source.bare[first + 1 : last])]
            earlier = found.get(kernel.name, own)
            same = len(earlier) == len(own)
            pairs = zip(earlier, own, strict=True) if same else ()
            found[kernel.name] = [a if a == b else "" for a, b in pairs]
    return found


def _bounds(source: Source) -> dict[str, str]:
    """Return what a launch tells of each kernel's __launch_bounds__, where its number is plain.

    That is digits, or names that are macros or constants of the file; kernels of one name agree.
    """
    macros = {macro.name for macro in source.macros}
    constants = re.findall(
        r"^(?:static\s+)?(?:constexpr|const)\s+\w+\s+(\w+)\s*=", source.bare, re.M
    )
    found: dict[str, set[str]] = {}
    for kernel in source.functions:
        if kernel.is_kernel:
            said = re.search(r"__launch_bounds__\s*\(\s*([^,()]+)", kernel.header)
            names = set(re.findall(r"[A-Za-z_]\w*", said[1])) if said else set()
            is_plain = bool(said) and names <= {*macros, *constants}
            threads = f".bound({' '.join(said[1].split())})" if is_plain else ""
            found.setdefault(kernel.name, set()).add(threads)
    return {name: said.pop() for name, said in found.items() if len(said) == 1}


def _type_of(parameter: str) -> str:
    """Return what stands before a parameter's name: "float*" of const float* __restrict__ x = 0."""
    words = re.sub(
        r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__)\b", " ", parameter
    )
    words = re.sub(r"\[[^\]]*\]", "*", words.partition("=")[0]).strip()
    named = re.fullmatch(r"(.*[\s*&>])\w+(\s*\**)", words, re.DOTALL)
    return " ".join("".join(named.groups()).split()) if named else words


def _typed(given: str, types: list[str]) -> str:
    """Return a launch's arguments with the types that they get from the kernel's parameters alone.

    NULL and 0 for a pointer, { } for a structure: a template's argument has no such type.
    """
    given = re.sub(r"\bNULL\b", "nullptr", given)
    arguments = split(given)
    if len(arguments) != len(types):
        return given
    for i, (argument, kind) in enumerate(zip(arguments, types, strict=True)):
        text = argument.strip()
        if text == "0" and kind.endswith("*"):
            arguments[i] = argument.replace("0", "nullptr")
        elif text.startswith("{") and re.fullmatch(r"[\w:]+(?:<.*>)?", kind):
            arguments[i] = argument.replace("{", f"{kind}{{", 1)
    return ",".join(arguments)


def find_launches(code: str) -> list[int]:
    """Return where the <<< of each launch stands."""
    found = re.finditer(r"(?<!<)<<<(?!<)", code)
    return [
        each.start() for each in found if not re.search(r"\boperator\s*$", code[: each.start()])
    ]


_VOID_POINTER = r"(?:const\s+)?void\s*(?:const\s*)?\*\s*"
_CAST = rf"\(\s*{_VOID_POINTER}\)|\b(?:reinterpret|static)_cast\s*<\s*{_VOID_POINTER}>"


def rewrite_launch_calls(src: str) -> str:
    """cudaLaunchKernel((void*)k, ...)  ->  cudaLaunchKernel(named_kernel("k", k), ...)

    The cast would lose the types of the kernel's parameters.
    """
    source = Source(src)
    # The kernel comes second where a configuration comes first.
    called = r"\bcudaLaunch(?:Cooperative)?Kernel(?P<configured>ExC?)?\s*\("
    calls = [*re.finditer(called, source.code)]
    declaration = _declarations(source) if calls else None
    for call in reversed(calls):
        arguments = source.code[call.end() : closing(source.code, call.end() - 1)]
        parts = split(arguments)
        place = 1 if call["configured"] else 0
        if len(parts) <= 1:
            continue  # nothing follows the kernel: it is no launch
        start = call.end() + place * (len(parts[0]) + 1)
        kernel = parts[place]
        uncast = re.sub(rf"\s*(?:{_CAST})", lambda found: _line_breaks(found[0]), kernel, count=1)
        name = " ".join(uncast.split())
        while name.startswith("(") and name.endswith(")"):
            name = name[1:-1].strip()
        name = name.lstrip("& ")
        named = f"::cuda_on_cpu::named_kernel(CUDA_ON_CPU_TEXT({name}), {uncast})"
        src = src[:start] + named + declaration(name) + src[start + len(kernel) :]
    return src


def rewrite_kernel_addresses(src: str) -> str:
    """(void*)k  ->  (void*)kernel_address(named_kernel("k", k)): an address to launch."""
    source = Source(src)
    code = source.code
    if not re.search(_CAST, code):
        return src
    declaration = _declarations(source)
    kernels = "|".join({each.name for each in source.functions if each.is_kernel})
    if not kernels:
        return src
    cast = rf"(?:{_CAST})\s*\(?\s*(?P<kernel>&?\s*(?:\w+\s*::\s*)*\b(?:{kernels})\b)"
    for found in reversed([*re.finditer(cast, code)]):
        start, end = found.span("kernel")
        angle = skip_blanks(code, end)
        if code[angle : angle + 1] == "<":
            end = (closing_angle(code, angle) or end - 1) + 1
        kernel = src[start:end]
        name = " ".join(kernel.split()).lstrip("& ")
        named = f"::cuda_on_cpu::named_kernel(CUDA_ON_CPU_TEXT({name}), {kernel})"
        address = f"::cuda_on_cpu::kernel_address({named}{declaration(name)})"
        src = src[:start] + address + src[end:]
    return src


def _declarations(source: Source):
    """Return a function that gives what a launch of a kernel tells about its parameters."""
    parameters = checked.declared_parameters(source)

    def declaration(kernel: str) -> str:
        function = re.sub(r"<.*", "", kernel).split("::")[-1].strip()
        listed = ", ".join(parameters.get(function, []))
        return f".declare({{{listed}}})" if listed else ""

    return declaration


def _line_breaks(text: str) -> str:
    """The line breaks in `text`, each with the backslash that continues a macro, if it has one."""
    return "".join(re.findall(r"\\?\n", text))


def _configuration_end(code: str, start: int, line: int) -> int:
    """Return where the >>> of the <<< at `start` begins."""
    i = start + 3
    while i < len(code):
        if code[i] in CLOSING:
            i = closing(code, i)
        elif code[i] in OPENING or code[i] == ";":
            break
        elif code.startswith(">>>", i):
            while code.startswith(">>>", i + 1):  # <<<g, b, bytes<T>>>>: the last three close it
                i += 1
            return i
        i += 1
    raise TranslateError(line, "this <<< has no >>>.")


def kernel_start(code: str, end: int, line: int) -> int:
    """Return where the kernel that stands before <<< begins: k, a::k<T>, (*f), table[i], s.k …"""
    i = end
    while True:
        i = skip_blanks_back(code, i)
        if i and code[i - 1] == ">" and not code.startswith("->", i - 2):
            i = skip_blanks_back(code, _opening_angle(code, i - 1, line))
            i = _pasted_word_start(code, i)
        elif i and code[i - 1] in ")]":
            i = _opening(code, i - 1, line)
            before = skip_blanks_back(code, i)
            if before and (code[before - 1].isalnum() or code[before - 1] in "_>)]"):
                word = code[word_start(code, before) : before]
                if word not in ("return", "else", "do"):  # f(x)<<<>>>, table[i]<<<>>>
                    i = before
                    continue
        else:
            i = _pasted_word_start(code, i)
        before = skip_blanks_back(code, i)
        if code.startswith("::", before - 2):
            i = before - 2
            left = skip_blanks_back(code, i)
            if not (left and (code[left - 1].isalnum() or code[left - 1] in "_>")):
                break  # ::kernel
            if code[word_start(code, left) : left] in ("return", "else", "do"):
                break
        elif code.startswith("->", before - 2):
            i = before - 2
        elif before and code[before - 1] == "." and code[before - 2 : before] != "..":
            i = before - 1
        else:
            break
    if not code[i:end].strip():
        raise TranslateError(line, "no kernel's name stands before this <<<.")
    return i


def _pasted_word_start(code: str, i: int) -> int:
    """Return where the word before i begins, with what a macro pastes to it: name##_kernel."""
    i = word_start(code, i)
    while pasted := re.search(r"\w+\s*##\s*$", code[max(i - 200, 0) : i]):
        i -= len(pasted[0])
    return i


def _opening(code: str, close: int, line: int) -> int:
    opened = opening(code, close)
    if opened is None:
        raise TranslateError(line, f"the '{code[close]}' before this <<< was never opened.")
    return opened


def _opening_angle(code: str, close: int, line: int) -> int:
    """Return the < of template arguments; comparisons in them stand in parentheses, as C++ asks."""
    depth, i = 0, close
    while i >= 0:
        if code[i] == ">" and not code.startswith("->", i - 1):
            depth += 1
        elif code[i] == "<":
            depth -= 1
            if depth == 0:
                return i
        elif code[i] in OPENING:
            i = _opening(code, i, line)
        elif code[i] == ";":
            break
        i -= 1
    raise TranslateError(line, "the '>' before this <<< was never opened.")
