"""What a checked build adds for local variables: which of them have no value yet.

    float sum, acc[2][3];

becomes, on the same line,

    float sum, acc[2][3]; ::cuda_on_cpu::unset("sum", sum); ::cuda_on_cpu::unset("acc", acc);

which fills them with what nobody computes. As their addresses have been given away, the compiler
tells of every access to them from then on, and the runtime stops who reads what is still filled
(runtime/locals.h). What the code does with them need not be understood for that.

But it is no fault to hand on what has no value, as long as nobody uses it:

    cur = next;                                  copy("cur", cur, next);
    v = __shfl_sync(ALL, v, 0);                  v = __shfl_sync(ALL, give(v), 0), receive("v", v);
    sum += __shfl_sync(ALL, v, 0);               sum += received(__shfl_sync(ALL, give(v), 0));
    BlockScan(temp).InclusiveSum(items, items);  BlockScan(temp).InclusiveSum(as_set(items), ...);
"""

import re
from dataclasses import dataclass

from .checked import device_bodies
from .scanner import Source, closing, closing_angle, skip_blanks, skip_blanks_back, split

_OURS = "::cuda_on_cpu::"


def mark_unset(src: str) -> str:
    """Tell the runtime about the variables of device code that are declared without a value."""
    source = Source(src)
    code = source.bare
    functions = {function.name for function in source.functions}
    edits = []  # begin, end, what stands there instead
    for body in device_bodies(source):
        statements = [*_statements(code, *body)]
        declared = {each: _declared(code[each.begin : each.end]) for each in statements}
        numbers = {v.name for found in declared.values() for v in found if not v.is_pointer}
        unset = []  # name, begin and end of where it is known
        for statement, found in declared.items():
            end = closing(code, statement.blocks[-1])
            for variable in found:
                if variable.has_value or _is_set_first(code, variable, statement, end, statements):
                    continue
                edits.append((statement.end + 1, statement.end + 1, _call("unset", variable.name)))
                unset.append((variable.name, statement.end + 1, end))
        edits += _copies(code, statements, unset, numbers)
        edits += _handed_on(code, statements, unset, functions)
    parts, last = [], 0
    for begin, end, new in sorted(dict.fromkeys(edits), key=lambda edit: edit[:2]):
        parts += [src[last:begin], new]
        last = end
    return "".join(parts) + src[last:]


def _call(function, variable):
    return f' {_OURS}{function}("{variable}", {variable});'


@dataclass(frozen=True)
class _Statement:
    """A statement that ends in a semicolon; all positions are of the code."""

    begin: int
    end: int  # where its ; stands
    blocks: tuple[int, ...]  # where each { around it stands, the outermost first


def _statements(code, start, end):
    """Yield the simple statements of a body in braces, those of lambdas in it included."""
    opened = [("{", start, start + 1)]  # what is open: kind, place, begin of the statement around
    begin = start + 1
    for found in re.compile(r"[()\[\]{};]").finditer(code, begin, end):
        i = found.start()
        if found[0] == ";":
            if opened[-1][0] == "{":
                yield _Statement(begin, i, tuple(at for kind, at, _ in opened if kind == "{"))
            if opened[-1][0] in ("{", "members"):
                begin = i + 1
        elif found[0] in "([":
            opened.append((found[0], i, begin))
        elif found[0] == "{":
            opened.append((_kind_of_braces(code, begin, i), i, begin))
            begin = i + 1
        else:
            closed, _, before = opened.pop()
            begin = i + 1 if closed == "{" and opened[-1][0] == "{" else before


def _kind_of_braces(code, begin, i):
    """Return whether a { begins a block ("{"), the "members" of a class or a "value"."""
    header = code[begin:i].rstrip()
    if re.match(r"\s*(?:typedef\s+)?(?:struct|class|union|enum)\b[^()=]*$", header):
        return "members"
    is_block = (
        not header
        or header[-1] in ");:"
        or re.search(
            r"(?:\b(?:else|do|try|mutable|noexcept|const)|\)[^;{}()]*->[^;{}()]*)$", header
        )
        or re.search(r"(?:^|[^\w\s\])>])\s*\[[^\[\]]*\]$", header)  # a lambda without parameters
    )
    return "{" if is_block else "value"


@dataclass(frozen=True)
class _Variable:
    name: str
    extents: tuple[str, ...]
    has_value: bool
    is_pointer: bool


_ATTRIBUTE = re.compile(r"\s*(?:\[\[|(?:alignas|__align__|__attribute__)\s*(?=\())")
_LABEL = re.compile(r"\s*(?:case\b(?:[^:?]|::)*|default\s*|\w+\s*):(?!:)")
_NO_VARIABLE = frozenset(
    "return goto break continue throw delete new else do if for while switch case default using "
    "typedef template friend namespace operator asm static extern constexpr thread_local auto enum "
    "__shared__ __constant__ __device__ __managed__".split()
)
_NO_TYPE = {"const", "volatile", "typename", "struct", "class", "union", "register"}


def _declared(text):
    """Return the variables that a statement declares."""
    while found := _LABEL.match(text):
        text = text[found.end() :]
    while found := _ATTRIBUTE.match(text):
        text = text[closing(text, found.end() - (found[0][-1] == "[") * 2) + 1 :]
    first, *others = split(text)
    declared = [_variable(first, True)]
    if declared[0] is None:
        return []
    return [each for each in declared + [_variable(other, False) for other in others] if each]


def _variable(text, with_type):
    """Read a declarator, the first one with its type; None if it is something else."""
    words, i = [], skip_blanks(text, 0)
    while i < len(text):
        if word := _WORD.match(text, i):
            if not words or not text[:i].rstrip().endswith("::"):
                words.append(word[0])
            i = word.end()
        elif text.startswith("::", i):
            i += 2
        elif text[i] == "*" and (words or not with_type):
            i += 1
        elif text[i] == "<" and words and (end := closing_angle(text, i)):
            i = end + 1
        else:
            break
        i = skip_blanks(text, i)
    name = re.search(r"(?<![\w:])[A-Za-z_]\w*\s*$", text[:i])
    words = [word for word in words if word not in _NO_TYPE]
    if not name or _NO_VARIABLE & set(words) or (len(words) > 1) != with_type:
        return None
    extents = []
    while text.startswith("[", i):
        end = closing(text, i)
        extents.append(text[i + 1 : end])
        i = skip_blanks(text, end + 1)
    if i < len(text) and text[i] not in "={(":
        return None
    return _Variable(name[0].rstrip(), tuple(extents), i < len(text), "*" in text[: name.start()])


_WORD = re.compile(r"[A-Za-z_]\w*")


# --- what is surely set, so that its accesses need not be told ------------------------------------

_LOOP = re.compile(
    r"for\s*\(\s*(?:\w+\s+)+(\w+)\s*=\s*0\s*;\s*\1\s*<([^;]+);"
    r"\s*(?:\+\+\s*\1|\1\s*\+\+|\1\s*\+=\s*1)\s*\)\s*"
)


_JUMPED_TO = r"\b(?:case|default|goto)\b"


def _is_set_first(code, variable, declaration, end, statements):
    """Whether the first thing done is to set it: x = ...; for (int i = 0; i < N; i++) x[i] = ...;

    All that follows has to be in the same block.
    """
    mention = re.compile(rf"(?<![\w.])(?<!->){variable.name}\b")
    named = [found.start() for found in mention.finditer(code, declaration.end, end)]
    if not named:
        return True
    setting = next((each for each in statements if each.begin <= named[0] < each.end), None)
    if not setting or (len(named) > 1 and named[1] < setting.end):
        return False
    around = _loops_around(code, named[0], setting, len(variable.extents), declaration.end)
    if not around:
        return False
    loops, begin, block = around
    return (
        [loop[2].split() for loop in loops] == [extent.split() for extent in variable.extents]
        and _is_element_set(code[named[0] + len(variable.name) : end], loops)
        and _holds_all(code, block, begin, named[-1])
    )


def _loops_around(code, named, statement, count, start):
    """Return `count` loops around a mention, where the first begins, and in which block.

    None if they are not there, or if something else may come before the mention.
    """
    begin, blocks = skip_blanks(code, statement.begin), [*statement.blocks]
    loops, at = [], begin
    while loop := _LOOP.match(code, at):
        loops.append(loop)
        at = loop.end()
    if at != named:
        return None
    while len(loops) < count:  # those whose bodies are in braces
        block = blocks.pop()
        loop = next((each for each in _LOOP.finditer(code, start) if each.end() == block), None)
        if not loop or re.search(r"\b(?:break|continue)\b", code[block : closing(code, block)]):
            return None
        loops.insert(0, loop)
        begin = loop.start()
    return loops, begin, blocks[-1]


def _is_element_set(after, loops):
    """Whether [i][j] = stands behind the name, for the variables of the loops."""
    indices = "".join(rf"\s*\[\s*{loop[1]}\s*\]" for loop in loops)
    return bool(re.match(indices + r"\s*=(?!=)", after))


def _holds_all(code, block, begin, last):
    """Whether the statement that begins there surely runs, and the last mention is in the block."""
    end = closing(code, block)
    is_statement = code[skip_blanks_back(code, begin) - 1] in ";{}"
    return is_statement and last < end and not re.search(_JUMPED_TO, code[block:end])


# --- what is handed on ----------------------------------------------------------------------------

_ELEMENT = r"[A-Za-z_]\w*(?:\s*\[[\w\s+*/%-]*\])*"
_COPY = re.compile(
    rf"(?:^|\)|\belse\b)\s*(?P<to>{_ELEMENT})\s*(?P<equals>=)\s*(?P<from>{_ELEMENT})\s*$"
)
_SHUFFLE = re.compile(r"(?:\b__shfl\w*_sync|(?P<object>\b\w+\s*\.)\s*shfl\w*)\s*\(")
_MEMBER = re.compile(r"(?:\.|->)\s*(?P<name>\w+)\s*(?:<[^<>;(){}]*>\s*)?\(")


def _root(element):
    return re.match(r"\s*(\w*)", element)[1]


def _is_unset(name, position, unset):
    return any(name == each and begin <= position < end for each, begin, end in unset)


def _copies(code, statements, unset, numbers):
    for statement in statements:
        found = _COPY.search(code[statement.begin : statement.end])
        if not found or "++" in found[0] or "--" in found[0] or _root(found["to"]) not in numbers:
            continue
        if _is_unset(_root(found["from"]), statement.begin, unset):
            to = statement.begin + found.start("to")
            equals = statement.begin + found.start("equals")
            name = "{to}, a copy of {from}".format_map(found.groupdict())
            yield to, to, f'{_OURS}copy("{name}", '
            yield equals, equals + 1, ","
            yield statement.end, statement.end, ")"


def _handed_on(code, statements, unset, functions):
    """Yield the edits for the arguments of shuffles and of other classes' functions."""
    begin, end = statements[0].begin if statements else 0, statements[-1].end if statements else 0
    for call in _SHUFFLE.finditer(code, begin, end):
        arguments = _arguments(code, call.end() - 1)
        for first, last in arguments[0:1] if call["object"] else arguments[1:2]:
            argument = re.fullmatch(rf"\s*({_ELEMENT})\s*", code[first:last])
            if argument and _is_unset(_root(argument[1]), first, unset):
                yield from _wrapped("give", first, last)
                yield from _received(code, statements, unset, call)
    for call in _MEMBER.finditer(code, begin, end):
        if call["name"] not in functions and not call["name"].startswith("shfl"):
            for first, last in _arguments(code, call.end() - 1):
                if _is_unset(code[first:last].strip(), first, unset):
                    yield from _wrapped("as_set", first, last)


def _received(code, statements, unset, call):
    """Yield the edits for what a shuffle returns; a variable that takes it is in `unset` then."""
    begin, end = call.start(), closing(code, call.end() - 1) + 1
    around = max((s for s in statements if s.begin <= begin < s.end), key=lambda s: s.begin)
    before = code[around.begin : begin]
    is_last = not code[end : around.end].strip()
    if is_last and (found := re.search(r"(?:^|\)|\belse\b)\s*(\w+)\s*=\s*$", before)):
        yield around.end, around.end, f', {_OURS}receive("{found[1]} of another lane", {found[1]})'
    elif is_last and (found := re.match(r"\s*(?:[\w:]+\s+)+(\w+)\s*=\s*$", before)):
        name = f"{found[1]} of another lane"
        yield around.end + 1, around.end + 1, f' {_OURS}receive("{name}", {found[1]});'
        unset.append((found[1], around.end + 1, closing(code, around.blocks[-1])))
    else:
        yield from _wrapped("received", begin, end)


def _arguments(code, opened):
    """Return where each argument of a call begins and ends."""
    places, begin = [], opened + 1
    for part in split(code[begin : closing(code, opened)]):
        places.append((begin, begin + len(part)))
        begin += len(part) + 1
    return places


def _wrapped(function, begin, end):
    return [(begin, begin, f"{_OURS}{function}("), (end, end, ")")]
