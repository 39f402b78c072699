"""What a checked build adds to the C++: where loops begin and go round, and what arrays are called.

    for (int k = 0; k < K; k++) sum += a[k];

becomes, on the same line,

    for (::cuda_on_cpu::Loop cuda_on_cpu_loop_0; cuda_on_cpu_loop_0.once();)
        for (int k = 0; k < K; k++) if (cuda_on_cpu_loop_0.iterate(); false) {} else sum += a[k];

so that a Loop lives as long as its loop runs, however that is left.
"""

import re

_ENTER = "for (::cuda_on_cpu::Loop {0}; {0}.once();) "
_ITERATE = " if ({0}.iterate(); false) {{}} else "


def mark_loops(src: str, code: str, defines: list[tuple[int, int]]) -> str:
    """Mark the loops of device code. code: `src` without comments; defines: where macros are."""
    insertions = []
    of_do = set()  # the `while` at the end of a do-loop is no loop of its own
    for start, end in _device_bodies(code, defines):
        for found in re.finditer(r"\b(?:for|while|do)\b", code[start:end]):
            position = start + found.start()
            if position in of_do or any(a < position < b for a, b in defines):
                continue
            if found[0] == "do":
                body = start + found.end()
                after = _skip(code, _statement_end(code, body))
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


def _device_bodies(code, defines):
    """Yield (start, end) of the bodies of functions and lambdas for the device, outermost only."""
    last = 0
    for found in re.finditer(r"\b__(?:global|device)__\b", code):
        if found.start() < last or any(a < found.start() < b for a, b in defines):
            continue
        opening = _body(code, found.end())
        if opening is None:
            continue
        header = re.split(r"[;{}]", code[: found.start()])[-1] + code[found.start() : opening]
        last = _closing(code, opening)
        if not re.search(r"\bconstexpr\b(?!\s*\()", header):
            yield opening, last


def _body(code, i):
    """Return where the { of a function's body is; None for a variable or a declaration."""
    called = False  # the parameters have been passed
    while i < len(code):
        if code[i] in "([":
            called |= code[i] == "("
            i = _closing(code, i)
        elif code[i] == "{":
            return i if called else None
        elif code[i] == ";" or (code[i] == "=" and not called):
            return None
        i += 1
    return None


def _statement_end(code, i):
    """Return the position behind the statement that begins at i."""
    i = _skip(code, i)
    word = re.match(r"\w*", code[i:])[0]
    if code[i : i + 1] == "{":
        return _closing(code, i) + 1
    if word in ("for", "while", "switch", "if"):
        opening = code.find("(", i)
        i = _statement_end(code, _closing(code, opening) + 1)
        otherwise = _skip(code, i)
        if word == "if" and re.match(r"else\b", code[otherwise:]):
            i = _statement_end(code, otherwise + len("else"))
        return i
    if word == "do":
        i = _statement_end(code, i + len("do"))
    while i < len(code) and code[i] != ";":
        i = _closing(code, i) + 1 if code[i] in "([{" else i + 1
    return i + 1


def _after_parentheses(code, i):
    i = _skip(code, i)
    return _closing(code, i) + 1 if code[i : i + 1] == "(" else None


def _skip(code, i):
    while i < len(code) and code[i].isspace():
        i += 1
    return i


def _closing(code, i):
    """Return where the bracket that opens at i closes, or the end."""
    depth = 0
    for j in range(i, len(code)):
        depth += (code[j] in "([{") - (code[j] in ")]}")
        if depth == 0:
            return j
    return len(code)


def declared_variables(declaration: str) -> list[str]:
    """Return the names in `__shared__ float a[2][3], b[N < 4 ? 1 : 2], c;`."""
    names = []
    for declarator in split_outside_brackets(declaration.rstrip(" ;")):
        before = re.split(r"[\[={]", declarator, maxsplit=1)[0]
        found = re.search(r"(\w+)\s*$", re.sub(r"\balignas\s*\([^)]*\)", "", before))
        names += [found[1]] if found else []
    return names


def split_outside_brackets(text: str) -> list[str]:
    """Split at the commas that stand in no bracket; < and > count as brackets outside [ ]."""
    parts, open_brackets = [""], []
    for c in text:
        if c in "([{" or (c == "<" and "[" not in open_brackets):
            open_brackets.append(c)
        elif c in ")]}" or (c == ">" and open_brackets[-1:] == ["<"]):
            del open_brackets[-1:]
        if c == "," and not open_brackets:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def declared_parameters(code: str) -> dict[str, list[str]]:
    """Return each kernel's parameters as the runtime's `Declared`: name, points to const.

    Of kernels with one name (a declaration, an overload, another namespace) the last one's names
    are told, and const only what is so in all.
    """
    found = {}
    for kernel in re.finditer(r"\b__global__\b", code):
        i, before = kernel.end(), ""
        while i < len(code) and code[i] not in "{;":
            if code[i] == "(":
                closing = _closing(code, i)
                name = re.search(r"(\w+)\s*$", before)
                if name and name[1] not in ("__launch_bounds__", "__attribute__"):
                    listed = split_outside_brackets(code[i + 1 : closing])
                    declared = [_declared(parameter) for parameter in listed]
                    found[name[1]] = _merged(found.get(name[1], declared), declared)
                    break
                i = closing
            else:
                before += code[i]
            i += 1
    return {
        name: [f'{{"{own}", {"true" if only_read else "false"}}}' for own, only_read in parameters]
        for name, parameters in found.items()
    }


def _merged(earlier, declared):
    if len(earlier) != len(declared):
        return [(name, False) for name, _ in declared]
    pairs = zip(declared, earlier, strict=True)
    return [(name, only_read and before) for (name, only_read), (_, before) in pairs]


def _declared(parameter):
    text = re.split(r"[=\[]", parameter)[0]
    name = re.search(r"(\w+)\s*$", text)
    only_read = re.search(r"\bconst\b[^*]*\*[^*]*$", text)  # not the pointer's own const
    return name[1] if name else "", bool(only_read)
