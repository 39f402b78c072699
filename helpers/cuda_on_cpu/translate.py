"""Turn CUDA C++ into C++: launches, shared memory and volatile, the only things that are not.

Everything else that CUDA adds to C++ (`__global__`, `threadIdx`, `__syncthreads`, ...) is a macro,
a variable or a function of the headers in `include/`. The text keeps its lines.
"""

import re
from functools import lru_cache

from . import checked
from .alignment import align_if_asked
from .error import TranslateError
from .halves import choose_halves
from .integers import as_ptx
from .launches import (
    join_brackets,
    rewrite_kernel_addresses,
    rewrite_launch_calls,
    rewrite_launches,
)
from .locals import mark_unset
from .ptx import rewrite_asm
from .refused import find_refused
from .scanner import Source, closing, line_of, mask
from .spaces import mark_spaces
from .unsupported import find_unsupported, leave_out_headers


@lru_cache(maxsize=64)  # a notebook's cells are run again and again
def translate(src: str, check: bool = False, trace: bool = False, lambdas: bool = False) -> str:
    """Return `src` as C++, line for line; raises TranslateError.

    With `check`, arrays tell the runtime about themselves; with `trace`, loops do so as well (see
    checked.py). `lambdas` may be for the device, as nvcc takes them with --extended-lambda.
    """
    src = choose_halves(join_brackets(src)).replace("__builtin_align__", "__align__")
    source = Source(src)
    if fault := find_unsupported(source) or find_refused(source, lambdas):
        raise TranslateError(*fault)
    src = leave_out_headers(src)
    src = rewrite_asm(src)
    src = as_ptx(src)
    src = _mark_empty_loops(src)
    src = _rewrite_noinline(src, check)
    src = _rewrite_words(src)
    src = _rewrite_clock(src)
    src = _rewrite_exits(src)
    src = _rewrite_volatile(src, check)
    src = _number_barriers(src)
    src = _limit_static_shared(src)
    src = _limit_constants(src)
    if check:
        src = _name_static_shared(src)
    if check or re.search(r"\b__is(?:Constant|Global)\b", src):  # that it asks where they lie
        src = _name_variables(src)
    if check and not trace:
        src = mark_unset(src)
    src = _rewrite_dynamic_shared(src, check)
    if trace:
        src = checked.mark_loops(src)
    if check:
        src = _rewrite_copies(src)
    src = rewrite_launch_calls(src)
    src = rewrite_kernel_addresses(src)
    src = rewrite_launches(src)
    return align_if_asked(mark_spaces(src))


# --- small rewrites -------------------------------------------------------------------------------


def _replace(src: str, pattern: str, replacement) -> str:
    """Replace what matches outside comments and strings; `replacement` gets match and own text."""
    parts, end = [], 0
    for found in re.finditer(pattern, mask(src)):
        parts += [src[end : found.start()], replacement(found, src[found.start() : found.end()])]
        end = found.end()
    return "".join(parts) + src[end:]


def _mark_empty_loops(src: str) -> str:
    """for (;;) {}: an instruction in it, which has a line that can be told."""
    source = Source(src)
    code, parts, end = source.code, [], 0
    for start, last in checked.device_bodies(source):
        for found in re.finditer(r"\b(?:for|while)\s*\(", code[start:last]):
            after = closing(code, start + found.end() - 1) + 1
            body = re.compile(r"\s*\{(?=\s*\})").match(code, after)
            if body and not source.in_macro(body.start()):
                parts += [src[end : body.end()], ' __asm__ volatile("nop");']
                end = body.end()
    return "".join(parts) + src[end:]


def _rewrite_noinline(src: str, check: bool) -> str:
    # A macro of this name would break GCC's own headers, which say __attribute__((__noinline__)).
    if "__noinline__" not in src:
        return src
    inlined = checked.with_structures(Source(src)) if check else []

    def rewrite(found, own):
        in_inlined = any(start <= found.start() < end for start, end in inlined)
        return "" if in_inlined else "__attribute__((noinline))"

    return _replace(src, r"\b(?<!\(\()__noinline__\b", rewrite)


def _rewrite_words(src: str) -> str:
    if "__shared__" not in src:
        return src
    # __shared__ becomes `static thread_local`: the word must not be said twice, and alignas, which
    # C++ wants at the very front of a declaration, not come after it.
    src = _replace(src, r"\bstatic(?=\s+(?:\w+\s+)*__shared__\b)", lambda found, own: "")
    src = _replace(
        src, r"\b__shared__\s+static\b", lambda found, own: "__shared__" + _newlines(own)
    )
    aligned = r"\b__shared__(\s+)(alignas\s*\((?:[^()]|\([^()]*\))*\))"
    return _replace(src, aligned, lambda found, own: f"{found[2]}{found[1]}__shared__")


def _rewrite_copies(src: str) -> str:
    """memcpy and its like: the compiler tells of no bytes that these move."""
    if not re.search("mem(?:cpy|move|set)", src):
        return src
    own = {function.name for function in Source(src).functions}
    names = "|".join({"memcpy", "memmove", "memset"} - own)
    called = rf"(?<![\w.>:])(?:(?:cuda *:: *)?std *:: *|:: *)?\b({names})(?=\s*\()"
    return _replace(src, called, lambda found, own: f"::cuda_on_cpu::{found[1]}") if names else src


def _rewrite_clock(src: str) -> str:
    """clock() in device code: cycles of clockRate, while the host's clock() counts otherwise."""
    call = r"(?<![\w.>:])clock\s*\(\s*\)"
    if not re.search(call, src):
        return src
    functions = [each for each in Source(src).functions if each.body and not each.is_for_host]

    def is_on_device(position):
        return any(each.body[0] < position < each.body[1] for each in functions)

    def rewritten(found, own):
        return "::clock64()" + _newlines(own) if is_on_device(found.start()) else own

    return _replace(src, call, rewritten)


def _rewrite_exits(src: str) -> str:
    """exit(), abort() and their like, which would end the notebook: see end_of_process.h."""
    names = {"exit", "_exit", "_Exit", "quick_exit", "abort"}
    if not any(name in src for name in names):
        return src
    names -= {function.name for function in Source(src).functions}
    called = rf"(?<![\w.>:])(?:std\s*::\s*|::\s*)?\b({'|'.join(sorted(names))})(?=\s*\()"

    def rewritten(found, own):
        before = re.search(r"(\w+)\s*$", found.string[: found.start()])
        if before and before[1] not in ("return", "else", "do"):
            return own  # a declaration
        name = "CUDA_ON_CPU_ABORT" if found[1] == "abort" else f"CUDA_ON_CPU_EXIT({found[1]})"
        return name + _newlines(own)

    return _replace(src, called, rewritten) if names else src


def _number_barriers(src: str) -> str:
    """Tell the barriers of one line apart: if (c) __syncthreads(); else __syncthreads();"""
    counted: dict[int, int] = {}  # line → its barriers so far

    def barrier(found, own):
        line = line_of(src, found.start())
        number = counted[line] = counted.get(line, -1) + 1
        place = f"__LINE__ + {number} * ::cuda_on_cpu::BARRIER_IN_LINE" if number else ""
        return own[:-1] + place + ")"

    return _replace(src, r"\b__syncthreads\s*\(\s*\)", barrier)


def _rewrite_volatile(src: str, check: bool) -> str:
    """volatile T*, volatile __shared__ T, volatile members: threads wait for each other by these.

    To the checks it is data where no condition of the string looks at volatile memory of its type.
    """
    if "volatile" not in src:
        return src
    source = Source(src)
    element = (
        r"(?P<type>(?:const\s+)?(?:(?:unsigned|signed|long|short)\b(?:\s+(?:long|int|char|short)\b)*"
        r"|(?!(?:const|unsigned|signed|long|short)\b)[\w:]+(?:<[^<>;{}]*>)?))"
    )
    qualified = rf"(?P<const>\bconst\s+)?\bvolatile\s+{element}\s*\*[ \t]*"

    def kind(found):
        is_data = check and not _is_looked_at(source, found["type"])
        return "::cuda_on_cpu::VolatileData" if is_data else "::cuda_on_cpu::Volatile"

    def pointer(found, own):
        const = "const " if found.groupdict().get("const") else ""
        return f"{kind(found)}Pointer<{const}{found['type']}> " + _newlines(own)

    # reinterpret_cast does not make objects, and that is what the pointer becomes.
    src = _replace(src, rf"\breinterpret_cast\s*<\s*{qualified}\s*>", pointer)
    src = _replace(src, qualified, pointer)
    src = _replace(src, rf"\b{element}\s+volatile\s*\*[ \t]*", pointer)

    def variable(found, own):
        words = " ".join(word for word in found["words"].split() if word != "volatile")
        return f"{words} {kind(found)}<{found['type']}>" + _newlines(own)

    word = r"(?:(?:extern|static|volatile|__shared__|__device__)\b\s*)"
    words = rf"\b(?P<words>(?={word}*volatile)(?={word}*__(?:shared|device)__){word}+)"
    src = _replace(src, rf"{words}{element}(?=\s+\w+\s*[\[;=,])", variable)

    def member(found, own):
        if found.start() not in own_members:
            return own
        return f"{kind(found)}<{found['type']}> {found['name']}" + _newlines(own)

    pattern = rf"\bvolatile\s+{element}\s+(?P<name>\w+)(?=\s*[\[;=,])"
    own_members = _members(mask(src), pattern)
    return _replace(src, pattern, member)


def _members(code: str, pattern: str) -> set[int]:
    """Return where members of structures match, but for those whose address is taken."""
    found = set()
    for structure in re.finditer(r"\b(?:struct|class)\b[^;{}()]*\{", code):
        end = closing(code, structure.end() - 1)
        for each in re.finditer(pattern, code[structure.end() : end]):
            inside = code[structure.end() : structure.end() + each.start()]
            is_own = inside.count("{") == inside.count("}")
            taken = rf"&\s*[\w\[\].()>*-]*(?:\.|->)\s*{each['name']}\b"
            if is_own and not re.search(taken, code):
                found.add(structure.end() + each.start())
    return found


def _is_looked_at(source: Source, kind: str) -> bool:
    """Whether a condition has a volatile variable of the type in it, or what was read from one."""
    kind = re.escape(re.sub(r"\bconst\s+", "", kind))
    own = rf"(?:\b{kind}\s+volatile|\bvolatile\b(?:\s|__\w+__)*\b{kind})\b"
    if re.search(rf"\*\s*\(?\s*(?:reinterpret_cast\s*<|\()\s*(?:const\s+)?{own}", source.code):
        return True  # *(volatile int*)p has no name
    functions = [(f.start, f.body[1]) for f in source.functions if f.body]
    names: dict[tuple[int, int], set[str]] = {}
    for found in re.finditer(rf"{own}[\s*]*(?:__\w+__\s*)*(\w+)", source.code):
        at = found.start()
        within = next((f for f in functions if f[0] <= at < f[1]), (0, len(source.code)))
        names.setdefault(within, set()).add(found[1])
    return any(_are_looked_at(own, source.code[slice(*where)]) for where, own in names.items())


def _are_looked_at(names: set[str], code: str) -> bool:
    word = rf"\b(?:{'|'.join(names)})\b"
    read = re.findall(rf"\b(\w+)\s*=(?!=)[^;=]*{word}", code)
    word = rf"\b(?:{'|'.join(names.union(read))})\b"
    compared = r"(?:[=!]=|<=|>=|<(?!<)|>(?!>)|&&|\|\||\?)"
    if re.search(rf"{word}(?:\[[^][]*\])?\s*{compared}|(?:{compared}|!)\s*[*(]*\s*{word}", code):
        return True
    conditions = (
        code[found.end() : closing(code, found.end() - 1)]
        for found in re.finditer(r"\b(?:if|while|for|switch)\s*\(", code)
    )
    return any(re.search(word, condition) for condition in conditions)


def _limit_static_shared(src: str) -> str:
    """Let the compiler count the bytes of the shared arrays that a function declares."""
    if "__shared__" not in src:
        return src
    source = Source(src)
    visible = [[]]  # for each open brace: the arrays declared behind it
    parts, end = [], 0
    for found in re.finditer(r"[{}]|\b__shared__\b[^;{}=]*;", source.code):
        if found[0] == "{":
            visible.append([])
        elif found[0] == "}":
            visible = visible[:-1] or [[]]
        elif len(visible) > 1 and not source.in_macro(found.start()):
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


def _limit_constants(src: str) -> str:
    """Let the compiler count the bytes of the __constant__ variables of a file."""
    if "__constant__" not in src:
        return src
    source = Source(src)
    names: list[str] = []

    def counted(found, own):
        at = found.start()
        is_variable = source.at_file_scope(at) and not re.search(r"\bextern\b", found[0])
        if not is_variable or source.in_macro(at) or _in_namespace(source, at):
            return own
        names.extend(checked.declared_variables(found[0]))
        sizes = " + ".join(f"sizeof({name})" for name in names)
        return own + _TOO_MUCH_CONSTANT.format(sizes) if names else own

    return _replace(src, r"(?:\bextern\s+)?\b__constant__\b[^;(]*;", counted)


def _in_namespace(source: Source, at: int) -> bool:
    return source.code.count("{", 0, at) != source.code.count("}", 0, at)


_TOO_MUCH_CONSTANT = (
    ' static_assert({} <= ::cuda_on_cpu::CONSTANT_BYTES, "a file has 64 KB of constant memory; '
    'give the kernel a pointer to the rest");'
)


def _name_static_shared(src: str) -> str:
    """Tell the runtime about each shared variable where it is declared, and if these are all."""
    if "__shared__" not in src:
        return src
    source = Source(src)
    members = r"\{(?:[^{}]|\{[^{}]*\})*\}"  # __shared__ union { ... } temp;
    pattern = rf"\b__shared__\b(?:[^;{{}}=]*\b(?:union|struct)\b[^;{{}}=]*{members})?[^;{{}}=]*;"

    def can_be_named(found):
        at = found.start()
        return not source.at_file_scope(at) and not source.in_macro(at)

    declared = [found for found in re.finditer(pattern, source.code) if not _has_no_size(found[0])]
    are_all = "true" if all(map(can_be_named, declared)) else "false"
    number = (
        rf"__shared__\s+(?:alignas\s*\([^()]*\)\s*)?(?:(?!half\b){checked.NUMBER}\s+)+\w+\s*[\[;,]"
    )
    are_numbers = "true" if all(re.match(number, found[0]) for found in declared) else "false"

    def naming(found, own):
        if not can_be_named(found) or _has_no_size(found[0]):
            return own
        names = checked.declared_variables(re.sub(members, " ", found[0]))
        about = f"{are_all}, {are_numbers}"
        calls = (f' ::cuda_on_cpu::name_shared("{name}", {name}, {about});' for name in names)
        return own + "".join(calls)

    return _replace(src, pattern, naming)


def _name_variables(src: str) -> str:
    """Tell the runtime about each variable of the device that has an address."""
    source = Source(src)

    def naming(found, own):
        at = found.start()
        head = re.split(r"[;{}]", source.code[:at])[-1] + found[0]
        no_variable = r"\b(extern|template|constexpr|operator)\b"
        is_variable = source.at_file_scope(at) and not re.search(no_variable, head)
        if not is_variable or source.in_macro(at):
            return own
        names = checked.declared_variables(found[0])
        constant = str("__constant__" in head).lower()
        return own + "".join(_NAMED_VARIABLE.format(name, constant) for name in names)

    alignment = r"(?:alignas|__align__|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)"
    declarators = rf"(?:{alignment}|\[[^\]]*\]|[^;{{}}()=\[])*"  # a function has ( )
    braces = r"\{(?:[^{};]|\{[^{};]*\})*\}"
    values = rf"(?:(?:=|(?=\{{))(?:[^;{{}}]|{braces})*)?"
    return _replace(src, rf"\b__(?:device|constant)__\b{declarators}{values};", naming)


_NAMED_VARIABLE = (
    ' static const ::cuda_on_cpu::NamedVariable cuda_on_cpu_named_{0}("{0}", {0}, {1});'
)


def _has_no_size(declaration: str) -> bool:
    return bool(re.search(r"\[\s*\]", declaration))  # it is extern


def _newlines(text: str) -> str:
    return "\n" * text.count("\n")


def _rewrite_dynamic_shared(src: str, check: bool) -> str:
    """extern __shared__ T name[]  ->  auto* name = dynamic_shared<T>()"""
    if "extern" not in src:
        return src
    source = Source(src)
    functions = [each for each in source.functions if each.body]
    templates = [each.body for each in functions if re.match(r"template\s*<", each.header)]

    def declaration(found, own):
        specifiers = re.sub(
            r"\b(extern|__shared__)\b|\b(__align__|alignas|__attribute__)\s*(\((?:[^()]|\([^()]*\))*\))",
            " ",
            found["specifiers"],
        )
        element = " ".join(specifiers.split()) + re.sub(r"\s+", "", found["extents"])
        name = found["name"]
        told = f'"{name}"' if check else ""
        if source.at_file_scope(found.start()):
            told = f"{{{told}}}" if check else ""
            new = f"static ::cuda_on_cpu::DynamicShared<{element}> {name}{told};"
        else:
            new = f"auto* {name} = ::cuda_on_cpu::dynamic_shared<{element}>({told});"
            if any(first < found.start() < last for first, last in templates):
                # An array of the whole file: the compiler sees if two instances differ in its type.
                declared = " ".join(specifiers.split())
                new = f"{{ extern {declared} {name}[]{found['extents']}; }} {new}"
        return new + _newlines(own)

    pattern = (
        r"(?P<specifiers>(?:\bextern\b[^;{}=]*?\b__shared__\b|\b__shared__\s+extern\b)[^;{}=]*?)"
        r"\b(?P<name>\w+)\s*(?:\[\s*\])(?P<extents>(?:\s*\[[^\]]*\])*)\s*;"
    )
    return _replace(src, pattern, declaration)
