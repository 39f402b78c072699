"""Turn CUDA C++ into C++: launches, shared memory and volatile, the only things that are not.

Everything else that CUDA adds to C++ (`__global__`, `threadIdx`, `__syncthreads`, ...) is a macro,
a variable or a function of the headers in `include/`. The text keeps its lines.
"""

import re

from . import checked
from .unsupported import find_unsupported


class TranslateError(Exception):
    """What a CUDA string asks for that cannot be done on a CPU: `line` (from 1) and `message`."""

    def __init__(self, line: int, message: str):
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


def translate(src: str, check: bool = False, trace: bool = False) -> str:
    """Return `src` as C++ with as many lines; raises TranslateError.

    With `check`, arrays tell the runtime about themselves; with `trace`, loops do so as well (see
    checked.py).
    """
    unsupported = find_unsupported(src, blank(src))
    if unsupported:
        raise TranslateError(*unsupported)
    src = _rewrite_words(src)
    src = _rewrite_volatile(src)
    src = _limit_static_shared(src)
    src = _rewrite_launch_calls(src)
    if check:
        src = _name_static_shared(src)
        src = _name_variables(src)
    src = _rewrite_dynamic_shared(src, check)
    if trace:
        code = blank(src)
        src = checked.mark_loops(src, code, _defines(code))
    src = _name_called_kernels(src, check)
    return _rewrite_launches(src, check)


# A comment, a raw string, a string, a character. The look-behind spares digit separators: 1'000.
_NOT_CODE = re.compile(
    r"""//(?:\\\n|[^\n])* | /\*.*?\*/ | R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"
      | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+' """,
    re.DOTALL | re.VERBOSE,
)


def blank(src: str) -> str:
    """Return `src` with comments, strings and characters overwritten by blanks, lines kept."""
    return _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), src)


def line_of(src: str, position: int) -> int:
    return src.count("\n", 0, position) + 1


# --- small rewrites -------------------------------------------------------------------------------


def _replace(src: str, pattern: str, replacement) -> str:
    """Replace what matches outside comments and strings; `replacement` gets match and own text."""
    parts, end = [], 0
    for found in re.finditer(pattern, blank(src)):
        parts += [src[end : found.start()], replacement(found, src[found.start() : found.end()])]
        end = found.end()
    return "".join(parts) + src[end:]


def _rewrite_words(src: str) -> str:
    # A macro of this name would break GCC's own headers, which say __attribute__((__noinline__)).
    src = _replace(
        src, r"\b(?<!\(\()__noinline__\b", lambda found, own: "__attribute__((noinline))"
    )
    # __shared__ becomes `static thread_local`: the word must not be said twice, and alignas, which
    # C++ wants at the very front of a declaration, not come after it.
    src = _replace(src, r"\bstatic(?=\s+(?:\w+\s+)*__shared__\b)", lambda found, own: "")
    src = _replace(
        src, r"\b__shared__\s+static\b", lambda found, own: "__shared__" + _newlines(own)
    )
    aligned = r"\b__shared__(\s+)(alignas\s*\((?:[^()]|\([^()]*\))*\))"
    return _replace(src, aligned, lambda found, own: f"{found[2]}{found[1]}__shared__")


def _rewrite_volatile(src: str) -> str:
    """volatile T* and volatile __shared__ T: memory through which threads wait for each other."""
    element = (
        r"(?P<type>(?:const\s+)?(?:(?:unsigned|signed|long|short)\b(?:\s+(?:long|int|char|short)\b)*"
        r"|(?!(?:const|unsigned|signed|long|short)\b)[\w:]+(?:<[^<>;{}]*>)?))"
    )
    qualified = rf"(?P<const>\bconst\s+)?\bvolatile\s+{element}\s*\*[ \t]*"

    def pointer(found, own):
        const = "const " if found.groupdict().get("const") else ""
        return f"::cuda_on_cpu::VolatilePointer<{const}{found['type']}> " + _newlines(own)

    # reinterpret_cast does not make objects, and that is what the pointer becomes.
    src = _replace(src, rf"\breinterpret_cast\s*<\s*{qualified}\s*>", pointer)
    src = _replace(src, qualified, pointer)
    src = _replace(src, rf"\b{element}\s+volatile\s*\*[ \t]*", pointer)

    def variable(found, own):
        words = " ".join(word for word in found["words"].split() if word != "volatile")
        return f"{words} ::cuda_on_cpu::Volatile<{found['type']}>" + _newlines(own)

    word = r"(?:(?:extern|static|volatile|__shared__|__device__)\b\s*)"
    words = rf"\b(?P<words>(?={word}*volatile)(?={word}*__(?:shared|device)__){word}+)"
    return _replace(src, rf"{words}{element}(?=\s+\w+\s*[\[;=,])", variable)


def _limit_static_shared(src: str) -> str:
    """Let the compiler count the bytes of the shared arrays that a function declares."""
    code = blank(src)
    defines = _defines(code)
    visible = [[]]  # for each open brace: the arrays declared behind it
    parts, end = [], 0
    for found in re.finditer(r"[{}]|\b__shared__\b[^;{}=]*;", code):
        if found[0] == "{":
            visible.append([])
        elif found[0] == "}":
            visible = visible[:-1] or [[]]
        elif len(visible) > 1 and not any(a < found.start() < b for a, b in defines):
            names = re.findall(r"(\w+)\s*\[[^,;]*(?=[,;])", found[0])
            if names and not _has_no_size(found[0]):
                visible[-1] += names
                sizes = " + ".join(f"sizeof({name})" for scope in visible for name in scope)
                parts += [src[end : found.end()], _TOO_MUCH_SHARED.format(sizes)]
                end = found.end()
    return "".join(parts) + src[end:]


_TOO_MUCH_SHARED = (
    ' static_assert({} <= ::cuda_on_cpu::SHARED_WITHOUT_REQUEST, "a block has 48 KB of shared '
    'memory; for more, use extern __shared__ and cudaFuncSetAttribute");'
)


def _name_static_shared(src: str) -> str:
    """Tell the runtime about each shared variable where it is declared, and if these are all."""
    code = blank(src)
    defines = _defines(code)
    scopes = _file_scope(code)
    pattern = r"\b__shared__\b[^;{}=]*;"

    def can_be_named(found):
        at = found.start()
        return not scopes(at) and not any(a < at < b for a, b in defines)

    declared = [found for found in re.finditer(pattern, code) if not _has_no_size(found[0])]
    are_all = "true" if all(map(can_be_named, declared)) else "false"

    def naming(found, own):
        if not can_be_named(found) or _has_no_size(found[0]):
            return own
        names = checked.declared_variables(found[0])
        calls = (f' ::cuda_on_cpu::name_shared("{name}", {name}, {are_all});' for name in names)
        return own + "".join(calls)

    return _replace(src, pattern, naming)


def _name_variables(src: str) -> str:
    """Tell the runtime about each __device__ variable that has an address."""
    code = blank(src)
    defines = _defines(code)
    scopes = _file_scope(code)

    def naming(found, own):
        at = found.start()
        head = re.split(r"[;{}]", code[:at])[-1] + found[0]
        no_variable = r"\b(extern|template|constexpr|operator|__constant__)\b"
        in_macro = any(a < at < b for a, b in defines)
        if not scopes(at) or in_macro or re.search(no_variable, head):
            return own
        names = checked.declared_variables(found[0])
        return own + "".join(_NAMED_VARIABLE.format(name) for name in names)

    alignment = r"(?:alignas|__align__|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)"
    declarators = rf"(?:{alignment}|\[[^\]]*\]|[^;{{}}()=\[])*"  # a function has ( )
    braces = r"\{(?:[^{};]|\{[^{};]*\})*\}"
    values = rf"(?:(?:=|(?=\{{))(?:[^;{{}}]|{braces})*)?"
    return _replace(src, rf"\b__device__\b{declarators}{values};", naming)


_NAMED_VARIABLE = ' static const ::cuda_on_cpu::NamedVariable cuda_on_cpu_named_{0}("{0}", {0});'


def _has_no_size(declaration: str) -> bool:
    return bool(re.search(r"\[\s*\]", declaration))  # it is extern


def _rewrite_launch_calls(src: str) -> str:
    """cudaLaunchKernel((void*)kernel, ...): the cast would lose the kernel's parameter types."""
    casts = r"\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)"
    pattern = rf"\b(cudaLaunch(?:Cooperative)?Kernel\s*\()(\s*){casts}"
    src = _replace(src, pattern, lambda found, own: found[1] + _newlines(own))
    casts = r"(?:reinterpret_cast|static_cast)\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>"
    pattern = rf"\b(cudaLaunch(?:Cooperative)?Kernel\s*\()\s*{casts}"
    return _replace(src, pattern, lambda found, own: found[1] + _newlines(own))


def _name_called_kernels(src: str, check: bool) -> str:
    """cudaLaunchKernel(kernel, ...)  ->  cudaLaunchKernel(named_kernel("kernel", kernel), ...)"""
    code = blank(src)
    declaration = _declarations(code) if check else lambda kernel: ""
    for call in reversed([*re.finditer(r"\bcudaLaunch(?:Cooperative)?Kernel\s*\(", code)]):
        start = call.end()
        kernel = checked.split_outside_brackets(code[start:])[0]
        if kernel.count(")") > kernel.count("("):
            continue  # no arguments follow: it is no launch
        name = " ".join(kernel.split())
        while name.startswith("(") and name.endswith(")"):
            name = name[1:-1].strip()
        name = name.lstrip("& ")
        named = f"::cuda_on_cpu::named_kernel(CUDA_ON_CPU_TEXT({name}), {kernel})"
        src = src[:start] + named + declaration(name) + src[start + len(kernel) :]
    return src


def _declarations(code: str):
    """Return a function that gives what a launch of a kernel tells about its parameters."""
    parameters = checked.declared_parameters(code)
    may_allocate = "true" if re.search(r"\b(?:new|malloc)\b", code) else "false"

    def declaration(kernel: str) -> str:
        function = re.sub(r"<.*", "", kernel).split("::")[-1].strip()
        return f".declare({{{', '.join(parameters.get(function, []))}}}, {may_allocate})"

    return declaration


def _newlines(text: str) -> str:
    return "\n" * text.count("\n")


def _rewrite_dynamic_shared(src: str, check: bool) -> str:
    """extern __shared__ T name[]  ->  auto* name = dynamic_shared<T>()"""
    scopes = _file_scope(blank(src))

    def declaration(found, own):
        specifiers = re.sub(
            r"\b(extern|__shared__)\b|\b(__align__|alignas|__attribute__)\s*(\((?:[^()]|\([^()]*\))*\))",
            " ",
            found["specifiers"],
        )
        element = " ".join(specifiers.split()) + re.sub(r"\s+", "", found["extents"])
        name = found["name"]
        told = f'"{name}"' if check else ""
        if scopes(found.start()):
            told = f"{{{told}}}" if check else ""
            new = f"static ::cuda_on_cpu::DynamicShared<{element}> {name}{told};"
        else:
            new = f"auto* {name} = ::cuda_on_cpu::dynamic_shared<{element}>({told});"
        return new + _newlines(own)

    pattern = (
        r"(?P<specifiers>(?:\bextern\b[^;{}=]*?\b__shared__\b|\b__shared__\s+extern\b)[^;{}=]*?)"
        r"\b(?P<name>\w+)\s*(?:\[\s*\])(?P<extents>(?:\s*\[[^\]]*\])*)\s*;"
    )
    return _replace(src, pattern, declaration)


def _file_scope(code: str):
    """Return a function that tells whether a position is outside all functions and classes."""
    inside = []  # (start, end) of outermost braces that are not a namespace's
    depth = start = 0
    for found in re.finditer(r"[{}]", code):
        if found[0] == "{":
            if depth == 0:
                before = re.split(r"[;{}]", code[: found.start()])[-1]
                if re.search(r"\b(namespace|extern)\b", before):
                    continue  # its closing brace is met at depth 0
                start = found.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                inside.append((start, found.start()))
    return lambda position: not any(first < position < last for first, last in inside)


def _defines(code: str) -> list[tuple[int, int]]:
    """Return where macros are defined: the start and end of each."""
    found = re.finditer(r"^[ \t]*#[ \t]*define\b(?:\\\n|[^\n])*", code, re.MULTILINE)
    return [(macro.start(), macro.end()) for macro in found]


# --- launches -------------------------------------------------------------------------------------


def _rewrite_launches(src: str, check: bool) -> str:
    """kernel<<<configuration>>>(arguments), inside out, from the last one to the first."""
    code = blank(src)
    defines = _defines(code)
    declaration = _declarations(code) if check else lambda kernel: ""
    starts = [
        found.start()
        for found in re.finditer(r"<<<", code)
        if not re.search(r"\boperator\s*$", code[: found.start()])
    ]
    for start in reversed(starts):
        line = line_of(code, start)
        name_start = _kernel_start(code, start, line)
        close = _configuration_end(code, start, line)
        arguments = _skip_blanks(code, close + 3)
        if code[arguments : arguments + 1] != "(":
            raise TranslateError(line, "a launch needs arguments: kernel<<<grid, block>>>(...).")
        end = _closing(code, arguments, line)

        kernel = src[name_start:start]
        flat = " ".join(kernel.replace("\\\n", " ").split())
        configuration = src[start + 3 : close]
        if not configuration.strip():
            raise TranslateError(line, "a launch needs grid and block: kernel<<<grid, block>>>.")
        given = re.sub(r"\bNULL\b", "nullptr", src[arguments + 1 : end])
        # In a macro the line is the one that uses it.
        at = "__LINE__" if any(a < start < b for a, b in defines) else line
        new = (
            f"::cuda_on_cpu::configure(CUDA_ON_CPU_TEXT({flat}), {at}, {configuration})"
            f"{declaration(flat)}"
            f"{_line_breaks(kernel)}{src[close + 3 : arguments]}"
            f"([&](const auto&... a) CUDA_ON_CPU_UNCHECKED {{ {flat}(a...); }}"
            f"{', ' if given.strip() else ''}{given})"
        )
        src = src[:name_start] + new + src[end + 1 :]
        code = code[:name_start] + blank(new) + code[end + 1 :]
        defines = [(a, b + len(new)) if a < start < b else (a, b) for a, b in defines]
    return src


def _line_breaks(text: str) -> str:
    """The line breaks in `text`, each with the backslash that continues a macro, if it has one."""
    return "".join(re.findall(r"\\?\n", text))


def _skip_blanks(code: str, i: int) -> int:
    while i < len(code) and (code[i].isspace() or code.startswith("\\\n", i)):
        i += 1
    return i


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPENING = {close: opening for opening, close in _CLOSING.items()}


def _closing(code: str, start: int, line: int) -> int:
    """Return where the bracket that opens at `start` closes."""
    depth = 0
    for i in range(start, len(code)):
        if code[i] in _CLOSING:
            depth += 1
        elif code[i] in _OPENING:
            depth -= 1
            if depth == 0:
                return i
    raise TranslateError(line, f"the '{code[start]}' of this launch is never closed.")


def _configuration_end(code: str, start: int, line: int) -> int:
    """Return where the >>> of the <<< at `start` begins."""
    i = start + 3
    while i < len(code):
        if code[i] in _CLOSING:
            i = _closing(code, i, line)
        elif code[i] in _OPENING or code[i] == ";":
            break
        elif code.startswith(">>>", i):
            while code.startswith(">>>", i + 1):  # <<<g, b, bytes<T>>>>: the last three close it
                i += 1
            return i
        i += 1
    raise TranslateError(line, "this <<< has no >>>.")


def _kernel_start(code: str, end: int, line: int) -> int:
    """Return where the kernel that stands before <<< begins: k, a::k<T>, (*f), table[i], s.k …"""
    i = end
    while True:
        i = _skip_blanks_back(code, i)
        if i and code[i - 1] == ">" and not code.startswith("->", i - 2):
            i = _skip_blanks_back(code, _opening_angle(code, i - 1, line))
            i = _word_start(code, i)
        elif i and code[i - 1] in ")]":
            i = _opening(code, i - 1, line)
            before = _skip_blanks_back(code, i)
            if before and (code[before - 1].isalnum() or code[before - 1] in "_>)]"):
                word = code[_word_start(code, before) : before]
                if word not in ("return", "else", "do"):  # f(x)<<<>>>, table[i]<<<>>>
                    i = before
                    continue
        else:
            i = _word_start(code, i)
        before = _skip_blanks_back(code, i)
        if code.startswith("::", before - 2):
            i = before - 2
            left = _skip_blanks_back(code, i)
            if not (left and (code[left - 1].isalnum() or code[left - 1] in "_>")):
                break  # ::kernel
            if code[_word_start(code, left) : left] in ("return", "else", "do"):
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


def _skip_blanks_back(code: str, i: int) -> int:
    while i and (code[i - 1].isspace() or code.startswith("\\\n", i - 1)):
        i -= 1
    return i


def _word_start(code: str, i: int) -> int:
    while i and (code[i - 1].isalnum() or code[i - 1] == "_"):
        i -= 1
    return i


def _opening(code: str, close: int, line: int) -> int:
    depth = 0
    for i in range(close, -1, -1):
        if code[i] in _OPENING:
            depth += 1
        elif code[i] in _CLOSING:
            depth -= 1
            if depth == 0:
                return i
    raise TranslateError(line, f"the '{code[close]}' before this <<< was never opened.")


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
        elif code[i] in _OPENING:
            i = _opening(code, i, line)
        elif code[i] == ";":
            break
        i -= 1
    raise TranslateError(line, "the '>' before this <<< was never opened.")
