"""Inline PTX: an asm statement becomes calls of the functions in include/cuda_on_cpu/ptx/.

    asm("mad.lo.u32 %0, %1, 5, %2;" : "=r"(d) : "r"(a), "r"(b));

becomes, on the same lines and with names of its own, a statement expression:

    B32 ptx_0 = 0, ptx_1 = get<B32>(a), ptx_2 = get<B32>(b);
    set(ptx_0, add(mul_lo(as<uint32_t>(ptx_1), uint32_t(5)), as<uint32_t>(ptx_2)));
    put(d, ptx_0);

The tables below say which instructions there are.
"""

import re

from .error import TranslateError
from .scanner import CLOSING, Source, closing, declaration_start, mask
from .unsupported import is_surely_compiled, without_other_architectures

_SIGNED = {"s8": "std::int8_t", "s16": "std::int16_t", "s32": "std::int32_t", "s64": "std::int64_t"}
_UNSIGNED = {f"{kind}{bits}": f"std::uint{bits}_t" for kind in "ub" for bits in (8, 16, 32, 64)}
_FLOATS = {"f16": "Half", "bf16": "Bfloat", "f32": "float", "f64": "double"}
_PAIRS = {"f16x2": "Pair<Half>", "bf16x2": "Pair<Bfloat>"}
_TYPES = {**_SIGNED, **_UNSIGNED, **_FLOATS, **_PAIRS}
_BYTES = {name: 4 if "x2" in name else int(re.search(r"\d+", name)[0]) // 8 for name in _TYPES}

_REGISTERS = {"h": "B16", "r": "B32", "l": "B64", "f": "B32", "d": "B64", "n": "B64", "i": "B64"}
_FLOAT_OPERANDS = {"f": "float", "d": "double"}

# Values of one lane: the first operand becomes what the expression says of the others. {a}, {b},
# {c} are those as the type {T} of the instruction's end, {A}, {B}, {C} as their registers' bits.
# What is .approx is exact. .ftz and .sat of float arithmetic are `result`'s: see _FLOAT_RESULTS.
_VALUES = [
    (r"(add|sub)(?:\.rn)?(?:\.ftz)?(?:\.sat)?\.{F}", "{1}<{T}>({a}, {b})"),
    (r"mul(?:\.rn)?(?:\.ftz)?(?:\.sat)?\.{F}", "mul_lo<{T}>({a}, {b})"),
    (r"(add|sub|mul|div)\.(rz|rm|rp)(?:\.ftz)?(?:\.sat)?\.(?P<T>f32|f64)",
     "{1}_rounded<{T}>({2}, {a}, {b})"),
    (r"(add|sub)\.{I}", "{1}<{T}>({a}, {b})"),
    (r"(add|sub)\.sat\.s32", "{1}_saturated({a:int}, {b:int})"),
    # .cc leaves a carry, addc, subc and madc take it.
    (r"(add|sub)\.cc\.{I}", "{1}_carried<{T}, false, true>({a}, {b})"),
    (r"(add|sub)c\.{I}", "{1}_carried<{T}, true, false>({a}, {b})"),
    (r"(add|sub)c\.cc\.{I}", "{1}_carried<{T}, true, true>({a}, {b})"),
    (r"mad\.(lo|hi)\.cc\.{I}",
     "add_carried<{T}, false, true>(mul_{1}<{T}>({a}, {b}), {c})"),
    (r"madc\.(lo|hi)\.{I}", "add_carried<{T}, true, false>(mul_{1}<{T}>({a}, {b}), {c})"),
    (r"madc\.(lo|hi)\.cc\.{I}",
     "add_carried<{T}, true, true>(mul_{1}<{T}>({a}, {b}), {c})"),
    (r"mul\.(lo|hi|wide)\.{T}", "mul_{1}<{T}>({a}, {b})"),
    (r"mul24\.lo\.{T}", "mul_lo<{T}>({a} << 8 >> 8, {b} << 8 >> 8)"),
    (r"mad\.(lo|hi)\.{T}", "add<{T}>(mul_{1}<{T}>({a}, {b}), {c})"),
    (r"mad\.wide\.{T}", "mad_wide<{T}>({a}, {b}, {C})"),
    (r"(?:fma|mad)\.rn(?:\.ftz)?(?:\.sat)?\.{F}", "fma({a}, {b}, {c})"),
    (r"(?:fma|mad)\.(rz|rm|rp)(?:\.ftz)?(?:\.sat)?\.(?P<T>f32|f64)",
     "fma_rounded<{T}>({1}, {a}, {b}, {c})"),
    (r"div(?:\.(?:full|approx|rn))?(?:\.ftz)?\.{T}", "div<{T}>({a}, {b})"),
    (r"rem\.{T}", "rem<{T}>({a}, {b})"),
    (r"(min|max)(?:\.ftz)?\.NaN\.{F}", "{1}_or_nan<{T}>({a}, {b})"),
    (r"(min|max|abs|neg)(?:\.ftz)?\.{T}", "{1}<{T}>({operands})"),
    (r"sad\.{T}", "sad<{T}>({a}, {b}, {c})"),
    (r"ex2\.approx(?:\.ftz)?\.{F}", "ex2({a})"),
    (r"lg2\.approx(?:\.ftz)?\.f32", "lg2({a:float})"),
    (r"(sin|cos)\.approx(?:\.ftz)?\.f32", "{1}({a:float})"),
    (r"tanh\.approx\.{F}", "tanh({a})"),
    (r"(rcp|sqrt|rsqrt)(?:\.approx|\.rn)(?:\.ftz)?\.(?P<T>f32|f64)", "{1}<{T}>({a})"),
    (r"(rcp|sqrt)\.(rz|rm|rp)(?:\.ftz)?\.(?P<T>f32|f64)", "{1}_rounded<{T}>({2}, {a})"),
    (r"and\.{I}", "{T}({a} & {b})"),
    (r"or\.{I}", "{T}({a} | {b})"),
    (r"xor\.{I}", "{T}({a} ^ {b})"),
    (r"not\.{I}", "{T}(~{a})"),
    (r"and\.pred", "{A} && {B}"),
    (r"or\.pred", "{A} || {B}"),
    (r"xor\.pred", "{A} != {B}"),
    (r"not\.pred", "!{A}"),
    (r"(shl|shr)\.{I}", "{1}<{T}>({a}, B32({B}))"),
    (r"shf\.(l|r)\.(wrap|clamp)\.b32", "shf_{1}(B32({A}), B32({B}), B32({C}), {clamp})"),
    (r"prmt\.b32", "__byte_perm(B32({A}), B32({B}), B32({C}))"),
    (r"lop3\.b32", "lop3(B32({A}), B32({B}), B32({C}), B32({D}))"),
    (r"bfe\.{I}", "bfe<{T}>({a}, B32({B}), B32({C}))"),
    (r"bfi\.{I}", "bfi<{T}>({a}, {b}, B32({C}), B32({D}))"),
    (r"bfind\.{I}", "bfind<{T}>({a})"),
    (r"popc\.b32", "B32(__popc({A}))"),
    (r"popc\.b64", "B32(__popcll({A}))"),
    (r"(clz|brev)\.{I}", "{1}<{T}>({a})"),
    (r"dp4a\.u32\.u32", "__dp4a({A}, {B}, {C})"),
    (r"dp4a\.s32\.s32", "__dp4a(int({A}), int({B}), int({C}))"),
    (r"selp\.{T}", "bool({C}) ? {a} : {b}"),
    (r"setp\.(\w+)(?:\.ftz)?\.{T}", "compare_{1}<{T}>({a}, {b})"),
    (r"set\.(\w+)\.u32\.{T}", "compare_{1}<{T}>({a}, {b}) ? ~B32(0) : B32(0)"),
    (r"createpolicy\.fractional\.[\w:.]*\.b64", "B64(0)"),  # a cache does nothing here
    (r"mov\.pred", "{A}"),
    (r"mov\.{T}", "{a}"),
    # Of the type behind: the operand; of the type before: the result.
    (r"cvt(?:\.(?:rn|ftz))*\.{To}\.{T}", "convert<{To}>({a})"),
    (r"cvt\.(rni|rzi|rmi|rpi)(?:\.ftz)?\.{To}\.{T}", "convert<{To}>({T}({1}(double({a}))))"),
    (r"cvt\.(rni|rzi|rmi|rpi)(?:\.ftz)?\.sat\.{To}\.{T}",
     "convert_saturated<{To}>({T}({1}(double({a}))))"),
    (r"cvt(?:\.rn)?(?:\.ftz)?\.sat\.{To}\.{T}", "convert_saturated<{To}>({a})"),
    (r"cvt\.(rz|rm|rp)(?:\.ftz)?\.(?P<To>f32|f64)\.{T}", "convert_rounded<{To}>({1}, {a})"),
    (r"cvt\.rz\.(?P<To>f16|bf16)\.{T}", "towards_zero<{To}>(double({a}))"),
    (r"cvt\.rna\.tf32\.f32", "tf32({a:float})"),
    (r"cvt\.rn\.f16x2\.f32", "pair<Half>({a:float}, {b:float})"),
    (r"cvt\.rn\.bf16x2\.f32", "pair<Bfloat>({a:float}, {b:float})"),
    (r"cvt\.rn\.satfinite\.(e4m3|e5m2)x2\.f32",
     "float8_pair<Float8::{1}>({a:float}, {b:float})"),
    (r"cvt\.rn\.f16x2\.(e4m3|e5m2)x2", "from_float8_pair<Float8::{1}>(B16({A}))"),
    (r"cvta\.to\.shared\.u(?:32|64)", "to_shared(generic({A}))"),
    (r"cvta\.shared\.u(?:32|64)", "B64(shared({A}))"),
    (r"cvta(?:\.to)?\.(?:global|const|local|param)\.u64", "{A}"),
    (r"activemask\.b32", "__activemask(__LINE__)"),
    (r"vote\.sync\.ballot\.b32", "__ballot_sync(B32({B}), {A}, __LINE__)"),
    (r"vote\.sync\.(all|any)\.pred", "__{1}_sync(B32({B}), {A}, __LINE__) != 0"),
    (r"match\.any\.sync\.{I}", "__match_any_sync(B32({B}), {a}, __LINE__)"),
    (r"redux\.sync\.(add|min|max|and|or|xor)\.{I}",
     "__reduce_{1}_sync(B32({B}), {redux}, __LINE__)"),
]  # fmt: skip

# What gives a NaN has one NaN: but of double, whose own goes on.
_FLOAT_RESULTS = {
    "add",
    "sub",
    "mul",
    "fma",
    "mad",
    "div",
    "min",
    "max",
    "ex2",
    "lg2",
    "sin",
    "cos",
}
_FLOAT_RESULTS |= {"tanh", "rcp", "sqrt", "rsqrt", "cvt"}

# Instructions without a result.
_ACTIONS = [
    (r"(?:bar|barrier)(?:\.cta)?(?:\.sync)(?:\.aligned)?", "bar_sync({operands}, __LINE__)"),
    (r"(?:bar|barrier)(?:\.cta)?(?:\.arrive)(?:\.aligned)?", "bar_arrive({operands}, __LINE__)"),
    (r"bar\.warp\.sync", "__syncwarp(B32({A}), __LINE__)"),
    (r"(?:membar|fence\.(?:acq_rel|sc))\.cta", "__threadfence_block()"),
    (r"membar\.(?:gl|sys)|fence\.(?:acq_rel|sc)\.(?:gpu|sys|cluster)", "__threadfence()"),
    (r"fence\.(?:proxy|mbarrier_init)[\w.:]*", ""),
    (r"cp\.async\.commit_group", "commit_copies()"),
    (r"cp\.async\.wait_group", "wait_for_copies(B32({A}))"),
    (r"cp\.async\.wait_all", "wait_for_all_copies()"),
    (r"cp\.async\.mbarrier\.arrive(?:\.shared(?:::cta)?)?\.b64", "mbarrier_bind_copies({at})"),
    (r"cp\.async\.mbarrier\.arrive\.noinc(?:\.shared(?:::cta)?)?\.b64",
     "mbarrier_arrive_with_copies({at}, __LINE__)"),
    (r"(?:prefetch|prefetchu|discard|applypriority)[\w.:]*", ""),
    (r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32", ""),
    (r"griddepcontrol\.(?:wait|launch_dependents)", ""),
    (r"nanosleep\.u32", "__nanosleep({A})"),
    (r"trap", "__trap(__LINE__)"),
    (r"brkpt", ""),
    (r"mbarrier\.init(?:\.shared(?:::cta)?)?\.b64", "mbarrier_init({at}, {B})"),
    (r"mbarrier\.inval(?:\.shared(?:::cta)?)?\.b64", ""),
]  # fmt: skip

_SPECIAL = {
    "laneid": "B32(lane())",
    "warpid": "B32(position.thread / 32)",
    "nwarpid": "warps()",
    "smid": "multiprocessor()",
    "nsmid": "B32(MULTIPROCESSORS)",
    "clock": "B32(clock())",
    "clock_hi": "B32(clock() >> 32)",
    "clock64": "clock()",
    "globaltimer": "clock()",
    "globaltimer_lo": "B32(clock())",
    "lanemask_eq": "(1u << lane())",
    "lanemask_lt": "lanes_below()",
    "lanemask_le": "(lanes_below() << 1 | 1)",
    "lanemask_gt": "~(lanes_below() << 1 | 1)",
    "lanemask_ge": "~lanes_below()",
}
for _name, _variable in (("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"),
                         ("nctaid", "gridDim")):  # fmt: skip
    _SPECIAL |= {f"{_name}.{axis}": f"B32({_variable}.{axis})" for axis in "xyz"}

_ELEMENTS = {
    "f16": "F16", "bf16": "BF16", "tf32": "TF32", "f32": "F32", "f64": "F64", "s32": "S32",
    "s8": "S8", "u8": "U8", "s4": "S4", "u4": "U4", "e4m3": "E4M3", "e5m2": "E5M2",
}  # fmt: skip


def _unknown(opcode):
    return PtxError(f"inline PTX '{opcode}' runs on a GPU only; the CPU backend does not know it.")


def rewrite_asm(src: str) -> str:
    """asm volatile("..." : outputs : inputs)  ->  calls of what the instructions do."""
    source = Source(src)
    code = without_other_architectures(source.code)
    edits, left_to_compiler = [], False
    for found in re.finditer(_ASM, code):
        at, end = found.start(), closing(code, found.end() - 1)
        try:
            new = _translate(src[found.end() : end])
        except PtxError as error:
            if is_surely_compiled(code, at) and _is_in_kernel(source, at):
                raise TranslateError(source.line_of(at), str(error)) from None
            sentence = str(error).replace("\\", "/").replace('"', "'")
            new = _REFUSED.format(sentence, f"ptx_refused_{len(edits)}")
            left_to_compiler = True
        line_breaks = "".join(re.findall(r"\\?\n", src[at:end]))
        edits.append((at, end + 1, new + line_breaks))
    if left_to_compiler:
        edits += ((at, at, "inline ") for at in _emitted_by_host_compilers(source))
    for start, end, new in sorted(edits, reverse=True):
        src = src[:start] + new + src[end:]
    return src


def _is_in_kernel(source, position):
    """Whether the position is in a kernel that is no template: nvcc always makes code of it."""
    return not source.in_macro(position) and any(
        f.is_kernel and "template" not in f.words and f.body and f.body[0] < position < f.body[1]
        for f in source.functions
    )


def _emitted_by_host_compilers(source):
    """Yield where functions of the device begin that nvcc makes code of only if they are called."""
    for f in source.functions:
        is_plain = not f.words & _NOT_EMITTED and not f.owner and not f.qualifier
        if f.body and f.is_for_device and not f.is_kernel and is_plain:
            yield f.start + declaration_start(f.header)


_NOT_EMITTED = {"template", "static", "inline", "__inline__", "__forceinline__", "constexpr"}


_ASM = r"\b(?:asm|__asm__|__asm)\b\s*(?:\b(?:volatile|__volatile__)\b\s*)?\("


# Where a macro, a template or a function that nobody uses may leave it out, the compiler knows.
_REFUSED = '__extension__ ({{ [[gnu::error("{0}")]] void {1}(); {1}(); }})'


class PtxError(Exception):
    """Why an asm statement cannot be run here, in a sentence."""


def _translate(text):
    """Return C++ for what stands in an asm statement's parentheses."""
    parts = _split(text, ":")
    template = _literals(parts[0])
    if not template.strip():
        return "((void)0)"
    outputs, inputs = (
        [_operand(operand) for operand in _split(part, ",") if operand.strip()]
        for part in (parts[1:3] + ["", ""])[:2]
    )
    return _Statement(template, outputs, inputs).code()


def _split(text, separator):
    """Split at separators that stand in no bracket and no string."""
    code = mask(text)
    parts, start, i = [], 0, 0
    while i < len(code):
        if code[i] in CLOSING:
            i = closing(code, i)
        elif code[i] == separator:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return [*parts, text[start:]]


def _literals(text):
    """Join the string literals of an asm statement's text."""
    code = re.sub(r"\\\n|/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    found = re.findall(r'R"\((.*?)\)"|"((?:\\.|[^"\\])*)"', code, flags=re.DOTALL)
    rest = re.sub(r'R"\(.*?\)"|"(?:\\.|[^"\\])*"', "", code, flags=re.DOTALL).strip()
    if rest:
        raise PtxError(f"the text of this asm is not all in quotes ({rest}); write it out.")
    escapes = {"n": "\n", "t": "\t", "\n": ""}
    return "".join(
        raw or re.sub(r"\\(.)", lambda e: escapes.get(e[1], e[1]), cooked, flags=re.DOTALL)
        for raw, cooked in found
    )


def _operand(text):
    """Return (name, constraint, expression) of `[name] "=r"(x)`."""
    text = text.replace("\\\n", " ").strip()
    found = re.fullmatch(r'(?:\[(\w+)\]\s*)?"([=+&]*)([a-zA-Z]+)"\s*\((.*)\)', text, re.DOTALL)
    if not found or found[3] not in _REGISTERS:
        raise PtxError(f"this operand of asm is none that the CPU backend knows: {text}.")
    return found[1], found[2], found[3], " ".join(found[4].split())


class _Statement:
    def __init__(self, template, outputs, inputs):
        self.operands = outputs + inputs
        self.outputs = len(outputs)
        self.names = {name: i for i, (name, *_) in enumerate(self.operands) if name}
        self.template = re.sub(r"/\*.*?\*/|//[^\n]*", " ", template, flags=re.DOTALL)
        self.floats = {f"ptx_{i}" for i, o in enumerate(self.operands) if o[2] in _FLOAT_OPERANDS}
        self.labels = []

    def code(self):
        before, after = [], []
        for i, (_, mode, constraint, expression) in enumerate(self.operands):
            register = _REGISTERS[constraint]
            number = _FLOAT_OPERANDS.get(constraint)
            given = f"{number}({expression})" if number and i >= self.outputs else expression
            is_read = i >= self.outputs or "+" in mode
            value = f"{_SPACE}get<{_SPACE}{register}>({given})" if is_read else "0"
            before.append(f"{_SPACE}{register} ptx_{i} = {value};")
            if i < self.outputs:
                after.append(f"{_SPACE}put({expression}, ptx_{i});")
        body = _qualified("".join(self.statement(words) for words in self.statements()))
        labels = "".join(f"__label__ ptx_{label}; " for label in self.labels)
        return f"__extension__ ({{ {labels}{' '.join([*before, body, *after])} }})"

    def statements(self):
        text = self.template
        i = 0
        while i < len(text):
            label = re.compile(r"\s*([\w$%]+)\s*:(?!:)").match(text, i)
            if text[i].isspace() or text[i] == ";":
                i += 1
            elif text[i] in "{}":
                yield text[i]
                i += 1
            elif label:
                yield label[0]
                i = label.end()
            else:
                end = text.find(";", i)
                end = len(text) if end < 0 else end
                yield " ".join(text[i:end].split())
                i = end + 1

    def statement(self, words):
        if words in "{}":
            return words + " "
        if words.endswith(":"):
            label = re.sub(r"\W", "_", words.rstrip(": "))
            self.labels.append(label)
            return f"ptx_{label}: ; "
        if words.startswith(".reg"):
            return self.declaration(words)
        found = re.fullmatch(r"(?:@(!?)\s*([\w$%]+)\s+)?(\S+)\s*(.*)", words, re.DOTALL)
        negated, predicate, opcode, rest = found.groups()
        operands = [o.strip() for o in _split(rest, ",") if o.strip()]
        code = self.instruction(opcode, operands)
        if predicate:
            code = f"if ({'!' if negated else ''}bool({self.register(predicate)})) {{ {code} }}"
        return code + " "

    def declaration(self, words):
        found = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", words, re.DOTALL)
        kind = found[1] if found else ""
        if kind not in _TYPES and kind != "pred":
            raise PtxError(f"inline PTX '{words}' runs on a GPU only.")
        register = "bool" if kind == "pred" else f"B{_BYTES[kind] * 8}"
        names = []
        for name in found[2].split(","):
            many = re.fullmatch(r"\s*([\w$%]+)<(\d+)>\s*", name)
            names += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name.strip()]
        return f"{register} " + ", ".join(f"{self.register(name)}{{}}" for name in names) + "; "

    # --- operands

    def register(self, text):
        """Return the C++ of a register or constant, as bits."""
        found = re.fullmatch(r"%(\d+)|%\[(\w+)\]", text)
        if found:
            number = int(found[1]) if found[1] else self.names.get(found[2], -1)
            if not 0 <= number < len(self.operands):
                raise PtxError(f"this asm has no operand {text}.")
            return f"ptx_{number}"
        special = re.fullmatch(r"%{1,2}([a-z_]\w*(?:\.[xyz])?)", text)
        if special and special[1] in _SPECIAL:
            return _SPECIAL[special[1]]
        if text.startswith("%%") and re.search(r"\d", text) is None:
            raise PtxError(f"inline PTX '{text.lstrip('%')}' is a register of a GPU only.")
        number = re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", text)
        if number:
            return f"B64({text.rstrip('U')}ll)" if text[0] == "-" else f"B64({text.rstrip('U')}ull)"
        number = re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text)
        if number:
            return f"B32(0x{number[2]}u)" if number[1] in "fF" else f"B64(0x{number[2]}ull)"
        if re.fullmatch(r"[\w$%]+", text):
            return "ptx_" + re.sub(r"\W", "_", text)
        raise PtxError(f"this operand of inline PTX is none that the CPU backend knows: {text}.")

    def typed(self, text, kind):
        """Return the C++ of an operand as an instruction's type."""
        if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
            return f"{kind}({text})"
        if re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+", text):
            return f"{kind}({self.register(text)})"
        return f"as<{kind}>({self.register(text)})"

    def address(self, text, space):
        found = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", text)
        if not found:
            raise PtxError(f"inline PTX: {text} is no address that the CPU backend knows.")
        base = self.register(found[1])
        base = f"{base} + {found[2]}" if found[2] else base
        return f"{'shared' if space == 'shared' else 'generic'}({base})"

    def registers(self, text):
        """Return the C++ of `{a, b}` or `a`, one string each."""
        return [self.register(part.strip()) for part in text.strip().strip("{}").split(",")]

    # --- instructions

    def instruction(self, opcode, operands):
        if "L2::cache_hint" in opcode and operands:
            operands = operands[:-1]  # the policy, which changes nothing here
        for pattern, method in _METHODS:
            if re.match(pattern + r"(?![a-z\d])", opcode):
                return method(self, opcode, operands)
        for pattern, expression in _ACTIONS:
            if re.fullmatch(pattern, opcode):
                return self.filled(expression, opcode, {}, [""] + operands) + ";"
        for pattern, types in _compiled_values():
            found = pattern.fullmatch(opcode)
            if found and operands:
                kinds = {name: _TYPES[value] for name, value in found.groupdict().items()}
                numbered = {str(i): value for i, value in enumerate(found.groups(), 1)}
                value = self.filled(types, opcode, {**numbered, **kinds}, operands)
                name, *modifiers = opcode.split(".")
                if name in _FLOAT_RESULTS:
                    how = ("true" if word in modifiers else "false" for word in ("ftz", "sat"))
                    value = f"result<{', '.join(how)}>({value})"
                return self.assigned(operands[0], value)
        raise _unknown(opcode)

    def filled(self, expression, opcode, words, operands):
        kind = words.get("T", "B32")
        pred = opcode.endswith(".pred")

        def fill(found):
            name, given = found[1], found[2]
            if name in words:
                return words[name]
            if name == "operands":
                values = operands[1:]
                if not values:
                    raise PtxError(f"inline PTX '{opcode}' lacks an operand.")
                typed = (self.typed(value, kind) for value in values)
                return ", ".join(f"flushed({v})" if ".ftz" in opcode else v for v in typed)
            if name == "clamp":
                return "true" if "clamp" in opcode else "false"
            number = {"at": 0, "redux": 0}.get(name, "abcd".find(name.lower())) + 1
            if number >= len(operands):
                raise PtxError(f"inline PTX '{opcode}' lacks an operand.")
            if name == "at":
                return self.address(operands[number], "shared" if "shared" in opcode else "")
            if name == "redux":
                own = "int" if opcode.endswith("s32") else "unsigned"
                return f"{own}({self.register(operands[number])})"
            operand = operands[number]
            if operand.startswith("{"):  # a vector as one register
                return f"pack({', '.join(self.registers(operand))})"
            if name.islower():
                value = self.typed(operand, given or kind)
                return f"flushed({value})" if ".ftz" in opcode else value
            if operand.startswith("!"):
                return f"!{self.register(operand[1:].strip())}"
            value = self.register(operand)
            return f"bool({value})" if pred else value

        return re.sub(r"\{(\w+)(?::(\w+))?\}", fill, expression)

    def assigned(self, destination, value):
        if destination.startswith("{"):
            return f"unpack({value}, {', '.join(self.registers(destination))});"
        if destination == "_":
            return f"{value};"
        first, _, second = destination.partition("|")
        if second:  # p|q of setp: q is the opposite
            first, second = self.register(first), self.register(second)
            return f"{first} = {value}; {second} = !{first};"
        return f"set({self.register(first)}, {value});"

    def load(self, opcode, operands):
        kind, space, is_volatile = _memory(opcode)
        to = self.registers(operands[0])
        source = self.address(operands[1], space)
        acquire = " ::cuda_on_cpu::acquired();" if ".acquire" in opcode else ""
        return f"load{is_volatile}<{_TYPES[kind]}>({', '.join([source, *to])});{acquire}"

    def store(self, opcode, operands):
        kind, space, is_volatile = _memory(opcode)
        release = "__threadfence(); " if ".release" in opcode else ""
        values = self.registers(operands[1])
        target = self.address(operands[0], space)
        return f"{release}store{is_volatile}<{_TYPES[kind]}>({', '.join([target, *values])});"

    def atomic(self, opcode, operands):
        words = opcode.split(".")
        kind, space, _ = _memory(opcode)
        operation = next((w for w in words if w in _ATOMICS), None)
        if not operation:
            raise _unknown(opcode)
        destination, *operands = operands if words[0] == "atom" else ["_", *operands]
        values = [self.typed(value, _TYPES[kind]) for value in operands[1:]]
        arguments = ", ".join([self.address(operands[0], space), *values])
        call = f"atom_{operation}({arguments})"
        before = "__threadfence(); " if re.search(r"\.(release|acq_rel)\b", opcode) else ""
        after = " __threadfence();" if re.search(r"\.(acquire|acq_rel)\b", opcode) else ""
        return before + self.assigned(destination, call) + after

    def async_copy(self, opcode, operands):
        if not re.fullmatch(r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\w+)*", opcode):
            raise _unknown(opcode)
        to, source = self.address(operands[0], "shared"), self.address(operands[1], "global")
        sizes = [f"B64({self.register(size)})" for size in operands[2:4]]
        return f"cp_async({', '.join([to, source, sizes[0], sizes[-1]])});"

    def shuffle(self, opcode, operands):
        mode = opcode.split(".")[2]
        destination, _, predicate = operands[0].partition("|")
        values = [f"B32({self.register(operand)})" for operand in operands[1:5]]
        inside = f" {self.register(predicate)} = inside;" if predicate else ""
        call = f"shfl(Shuffle::{mode}, {', '.join(values)}, inside, __LINE__)"
        return f"{{ bool inside = true; {self.assigned(destination, call)}{inside} }}"

    def matrices(self, opcode, operands):
        words = r"(?:\.(?:m8n8|x[124]|trans|shared(?:::cta)?))+"  # people write them in any order
        pattern = rf"(ldmatrix|stmatrix)\.sync\.aligned({words})\.b16"
        found = re.fullmatch(pattern, opcode)
        words = found[2].split(".") if found else []
        count = [int(word[1:]) for word in words if word in ("x1", "x2", "x4")]
        if len(count) != 1:
            raise _unknown(opcode)
        rows, held = operands if found[1] == "stmatrix" else reversed(operands)
        address = self.address(rows, "shared")
        transposed = "true" if "trans" in words else "false"
        registers = self.registers(held)
        if len(registers) != count[0]:
            raise PtxError(f"inline PTX '{opcode}' needs {count[0]} registers.")
        return f"{found[1]}<{transposed}>({', '.join(['__LINE__', address, *registers])});"

    def multiply(self, opcode, operands):
        kinds = r"\.(\w+)\.(\w+)\.(\w+)\.(\w+)"
        shape = r"m(\d+)n(\d+)k(\d+)"
        found = re.fullmatch(
            rf"mma\.sync\.aligned\.{shape}\.row\.col(?:\.kind::f8f6f4)?{kinds}", opcode
        )
        known = found and all(kind in _ELEMENTS for kind in found.groups()[3:])
        if not known or opcode.startswith("mma.sync.aligned.m8n8k4.row.col.f16"):
            raise _unknown(opcode)
        D, A, B, C = (_ELEMENTS[kind] for kind in found.groups()[3:])
        shape = ", ".join(found.groups()[:3])
        d, a, b, c = (self.registers(operand) for operand in operands)
        given = (f"Registers({', '.join(registers)})" for registers in (a, b, c))
        arguments = ", ".join(["__LINE__", *given, *d])
        return f"mma_sync<{shape}, {A}, {B}, {C}, {D}>({arguments});"

    def mbarrier(self, opcode, operands):
        space = "shared" if ".shared" in opcode else ""
        if (
            re.match(r"mbarrier\.arrive(?!\.expect_tx)[\w.:]*\.b64$", opcode)
            and "noComplete" not in opcode
        ):
            state, place, *count = operands
            given = self.register(count[0]) if count else "1"
            call = f"mbarrier_arrive({self.address(place, space)}, {given}, __LINE__)"
            return self.assigned(state, call)
        found = re.match(r"mbarrier\.(?:test|try)_wait(\.parity)?[\w.:]*\.b64$", opcode)
        if not found:
            raise _unknown(opcode)
        done, place, state = operands[:3]
        function = "mbarrier_test_wait_parity" if found[1] else "mbarrier_test_wait"
        return self.assigned(
            done, f"{function}({self.address(place, space)}, {self.register(state)})"
        )

    def branch(self, opcode, operands):
        return "goto ptx_" + re.sub(r"\W", "_", operands[0]) + ";"

    def elect(self, opcode, operands):
        lane, _, predicate = operands[0].partition("|")
        mask = f"B32({self.register(operands[1])})"
        first = f"B32(__ffs({mask}) - 1)"
        code = f"__syncwarp({mask}, __LINE__); {self.register(predicate)} = lane() == {first};"
        return code if lane == "_" else f"{code} {self.register(lane)} = {first};"


_ATOMICS = ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")
_METHODS = [
    (r"ld", _Statement.load),
    (r"ldu", _Statement.load),
    (r"st", _Statement.store),
    (r"atom|red", _Statement.atomic),
    (r"cp\.async\.c[ag]", _Statement.async_copy),
    (r"shfl\.sync", _Statement.shuffle),
    (r"(?:ld|st)matrix", _Statement.matrices),
    (r"mma\.sync", _Statement.multiply),
    (r"mbarrier\.(?:arrive|test_wait|try_wait)", _Statement.mbarrier),
    (r"bra", _Statement.branch),
    (r"elect\.sync", _Statement.elect),
]

# What a load, store or atomic may say beside its type: none of it changes what is read or written.
_MEMORY_WORDS = re.compile(
    r"ld|ldu|st|atom|red|weak|relaxed|acquire|release|acq_rel|volatile|cta|gpu|sys|cluster"
    r"|global|shared|shared::cta|const|local|param|nc|c[agsvb]|lu|w[bt]|L[12]::\w+|v[248]|noftz|add"
    r"|min|max|and|or|xor|inc|dec|exch|cas"
)


def _memory(opcode):
    """Return the type, the space and "_volatile" for an access that others may look at."""
    *words, kind = opcode.split(".")
    if kind not in _TYPES or not all(_MEMORY_WORDS.fullmatch(word) for word in words):
        raise _unknown(opcode)
    space = "shared" if any(word.startswith("shared") for word in words) else ""
    ordered = {"volatile", "relaxed", "acquire", "release"} & set(words)
    return kind, space, "_volatile" if ordered else ""


_VALUE_PATTERNS = []


def _compiled_values():
    if not _VALUE_PATTERNS:
        groups = {
            "{T}": f"(?P<T>{'|'.join(_TYPES)})",
            "{F}": f"(?P<T>{'|'.join([*_FLOATS, *_PAIRS])})",
            "{I}": f"(?P<T>{'|'.join([*_SIGNED, *_UNSIGNED])})",
            "{To}": f"(?P<To>{'|'.join([*_SIGNED, *_UNSIGNED, *_FLOATS])})",
        }
        for pattern, expression in _VALUES:
            for short, group in groups.items():
                pattern = pattern.replace(short, group)
            _VALUE_PATTERNS.append((re.compile(pattern), expression))
    return _VALUE_PATTERNS


_SPACE = "::cuda_on_cpu::ptx::"
_WORDS = "std|if|goto|bool|int|unsigned|float|double|true|false|inside"
_NOT_OURS = rf"(?:__|ptx_|(?:{_WORDS})\b|\w+(?:Idx|Dim)\b)"


def _qualified(body):
    """Put the namespace before each name that stands alone, lest it means one of the string's."""
    return re.sub(rf"(?<![\w:.])(?!{_NOT_OURS})[A-Za-z_]\w*", lambda name: _SPACE + name[0], body)
