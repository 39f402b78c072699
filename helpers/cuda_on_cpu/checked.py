"""What a checked build adds to the C++: where loops begin and go round, and what arrays are called.

    for (int k = 0; k < K; k++) sum += a[k];

becomes, on the same line,

    for (::cuda_on_cpu::Loop cuda_on_cpu_loop_0; cuda_on_cpu_loop_0.once();)
        for (int k = 0; k < K; k++) if (cuda_on_cpu_loop_0.iterate(); false) {} else sum += a[k];

so that a Loop lives as long as its loop runs, however that is left.
"""

import re

from .scanner import Source, closing, skip_blanks, split

_ENTER = "for (::cuda_on_cpu::Loop {0}; {0}.once();) "
_ITERATE = " if ({0}.iterate(); false) {{}} else "


def mark_loops(src: str) -> str:
    """Mark the loops of device code."""
    source = Source(src)
    code = source.code
    insertions = []
    of_do = set()  # the `while` at the end of a do-loop is no loop of its own
    for start, end in device_bodies(source):
        for found in re.finditer(r"\b(?:for|while|do)\b", code[start:end]):
            position = start + found.start()
            if position in of_do or source.in_macro(position):
                continue
            if found[0] == "do":
                body = start + found.end()
                after = skip_blanks(code, _statement_end(code, body))
                if not re.match(r"while\b", code[after:]):
                    continue  # something hidden in a macro
                of_do.add(after)
            else:
                body = _after_parentheses(code, start + found.end())
            if body is None:
                continue
            name = f"cuda_on_cpu_loop_{len(insertions) // 2}"
            insertions += [(position, _ENTER.format(name)), (body, _ITERATE.format(name))]
    parts, end = [], 0
    # sorted() keeps the order of equal positions: a body that is a loop iterates first
    for position, text in sorted(insertions, key=lambda pair: pair[0]):
        parts += [src[end:position], text]
        end = position
    return "".join(parts) + src[end:]


def device_bodies(source):
    """Yield (start, end) of the bodies of functions and lambdas for the device, outermost only."""
    last = 0
    for found in re.finditer(r"\b__(?:global|device)__\b", source.code):
        if found.start() < last or source.in_macro(found.start()):
            continue
        opened = _body(source.code, found.end())
        if opened is None:
            continue
        before = re.split(r"[;{}]", source.code[: found.start()])[-1]
        last = closing(source.code, opened)
        if not re.search(r"\bconstexpr\b(?!\s*\()", before + source.code[found.start() : opened]):
            yield opened, last


def _body(code, i):
    """Return where the { of a function's body is; None for a variable or a declaration."""
    called = False  # the parameters have been passed
    while i < len(code):
        if code[i] in "([":
            called |= code[i] == "("
            i = closing(code, i)
        elif code[i] == "{":
            return i if called else None
        elif code[i] == ";" or (code[i] == "=" and not called):
            return None
        i += 1
    return None


def _statement_end(code, i):
    """Return the position behind the statement that begins at i."""
    i = skip_blanks(code, i)
    word = re.match(r"\w*", code[i:])[0]
    if code[i : i + 1] == "{":
        return closing(code, i) + 1
    if word in ("for", "while", "switch", "if"):
        opening = code.find("(", i)
        i = _statement_end(code, closing(code, opening) + 1)
        otherwise = skip_blanks(code, i)
        if word == "if" and re.match(r"else\b", code[otherwise:]):
            i = _statement_end(code, otherwise + len("else"))
        return i
    if word == "do":
        i = _statement_end(code, i + len("do"))
    while i < len(code) and code[i] != ";":
        i = closing(code, i) + 1 if code[i] in "([{" else i + 1
    return i + 1


def _after_parentheses(code, i):
    i = skip_blanks(code, i)
    return closing(code, i) + 1 if code[i : i + 1] == "(" else None


def declared_variables(declaration: str) -> list[str]:
    """Return the names in `__shared__ float a[2][3], b[N < 4 ? 1 : 2], c;`."""
    names = []
    for declarator in split(declaration.rstrip(" ;")):
        before = re.split(r"[\[={]", declarator, maxsplit=1)[0]
        found = re.search(r"(\w+)\s*$", re.sub(r"\balignas\s*\([^)]*\)", "", before))
        names += [found[1]] if found else []
    return names


def declared_parameters(source: Source) -> dict[str, list[str]]:
    """Return each kernel's parameters as the runtime's `Declared`."""
    return {
        name: [f'{{"{own}", {"true" if only_read else "false"}}}' for own, only_read in parameters]
        for name, parameters in kernel_parameters(source).items()
    }


def kernel_parameters(source: Source) -> dict[str, list[tuple[str, bool]]]:
    """Return the parameters of each kernel: name, whether it is a pointer that is only read from.

    That is one to const, or one with which the kernel plainly does nothing else. Of kernels with
    one name (a declaration, an overload, another namespace) the last one's names are told, and
    only read is what is so in all.
    """
    found = {}
    for kernel in source.functions:
        if kernel.is_kernel:
            first, last = kernel.parameters
            parameters = split(source.bare[first + 1 : last])
            declared = [_declared(source, kernel, parameter) for parameter in parameters]
            found[kernel.name] = _merged(found.get(kernel.name, declared), declared)
    return found


def _merged(earlier, declared):
    if len(earlier) != len(declared):
        return [(name, False) for name, _ in declared]
    pairs = zip(declared, earlier, strict=True)
    return [(name, only_read and before) for (name, only_read), (_, before) in pairs]


def _declared(source, kernel, parameter):
    text = re.split(r"[=\[]", parameter)[0]
    name = re.search(r"(\w+)\s*$", text)
    to_const = re.search(r"\bconst\b[^*]*\*[^*]*$", text)  # not the pointer's own const
    return name[1] if name else "", bool(to_const) or _only_reads(source, kernel, text)


def with_structures(source: Source) -> list[tuple[int, int]]:
    """Return where the headers stand of functions that seem to take or return a structure.

    Calls of these are inlined: see __global__ in cuda_runtime.h.
    """
    found = []
    for function in source.functions:
        first, last = function.parameters
        passed = [function.returns, *split(source.bare[first + 1 : last])]
        if not all(re.search(_NO_STRUCTURE, part) for part in passed if part.strip()):
            found.append((function.start, function.start + len(function.header)))
    return found


NUMBER = r"(?:unsigned|signed|long|short|int|char|float|double|half|bool|size_t|u?int\d+_t)"
_NO_STRUCTURE = rf"[*&]|^[\w\s]*\b(?:void|{NUMBER})\b"
_OPERATOR = r"(?:[-+*/%<>]|==|!=)"
_ELSE_NUMBER = r":\s*-?\.?\d"  # i < n ? a[i] : 0.0f
_CHANGE = r"(?:<<|>>|[-+*/%&|^])?=(?!=)|\+\+|--"


def _only_reads(source, kernel, parameter):
    """Whether it is a pointer to numbers that the kernel only reads, as in sum += a[i] * b[j].

    False where that is not plain to see.
    """
    pointer = re.fullmatch(rf"\s*(?:{NUMBER}\s+)*{NUMBER}\s*\*[\s\w]*?\b(\w+)\s*", parameter)
    if not pointer or not kernel.body:
        return False
    word = rf"(?<!\.)(?<!->)\b{pointer[1]}\b"  # not threadIdx.x
    if any(re.search(word, macro.body) for macro in source.macros):
        return False
    uses = re.compile(word).finditer(source.bare, *kernel.body)
    return all(_is_read(source.bare, use.start(), use.end()) for use in uses)


def _is_read(code, start, end):
    """Whether the pointer that stands there is moved on, a += 8, or an element's value is taken."""
    statement = code[max(code.rfind(mark, 0, start) for mark in ";{}") + 1 : start].rstrip()
    at = skip_blanks(code, end)
    if code[at] != "[":
        return not statement and code.startswith("+=", at)
    after = skip_blanks(code, closing(code, at) + 1)
    after = code[after : code.find(";", after) + 1]
    if re.match(_CHANGE, after) or re.search(r"(?:&|\+\+|--)$", statement):
        return False
    if re.match(rf"{_OPERATOR}|{_ELSE_NUMBER}", after) or re.search(rf"{_OPERATOR}$", statement):
        return True
    # x = a[i]; but a reference would be to the element
    set_to = re.search(r"([^=!<>]*[^=!<>])=$", statement)
    if not set_to or not re.match("[;,]", after) or re.search("&|decltype", set_to[1]):
        return False
    declared = re.search(r"(\w+)\s+\w+\s*$", set_to[1])
    return not declared or bool(re.fullmatch(rf"{NUMBER}|auto|const", declared[1]))
