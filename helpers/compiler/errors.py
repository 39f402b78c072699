"""Turn what a compiler printed into what a learner needs: their line, a caret, one sentence."""

import re
import shutil
import subprocess
from dataclasses import dataclass

from helpers.compiler.source import mask
from helpers.cuda_on_cpu import is_of_cuda

SHOWN = 3  # errors; later ones are mostly consequences of the first

GNU = re.compile(
    r"(?P<file>[^:\s][^:]*):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<what>.*)"
)
NVCC = re.compile(
    r"(?P<file>[^()]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<what>.*)"
)
END = re.compile(r"At end of source: error(?: #\S+)?: (?P<what>.*)")
ASSEMBLER = re.compile(r"(?:ptxas|nvlink)(?: .*?;)? *(?:error|fatal) *: (?P<what>.*)")
LINKER = re.compile(r"undefined (?:symbol: |reference to [`'])(?P<symbol>[^'\s]+)")
MANGLED = re.compile(r"_Z\w+")
UNKNOWN = re.compile(
    r"'(\w+)' (?:was not declared in this scope|does not name a type|has not been declared)"
    r"|use of undeclared identifier '(\w+)'|unknown type name '(\w+)'"
)
OLD = re.compile(r"__shfl(?:_up|_down|_xor)?|__any|__all|__ballot|cudaThread(?:Synchronize|Exit)")

# What a sentence does not say, although it helps to know it.
HINTS = {
    r"no member .*Tensor|Tensor.* has no member|is not a member of .(torch|at|c10)"
    r"|namespace .(torch|at|c10)|(no match for .operator|invalid operands to).*Tensor": "if "
    "PyTorch has it, put #include <torch/extension.h> on top of the string: all of PyTorch's C++ "
    "names, but a slower build",
    r"too much shared data": "a block has 48 KiB of static shared memory; more must be dynamic "
    "(extern __shared__) and asked for with cudaFuncSetAttribute",
    r"conflicting declaration '.*\[\]'|redeclaration of '.*\[\]'": "an extern __shared__ array is "
    "one for the whole file: declare it as char[] and cast, or give it a name for each type",
    r"returning non-void|end of non-void": "a function with a result returns it on every path",
    r"Not a name of any known instruction": "the fault is in the text of an asm statement",
    r"^'__(shfl(_up|_down|_xor)?|any|all|ballot)' is not": "since CUDA 9 one names the lanes that "
    "take part: __shfl_down_sync(mask, value, by), __any_sync(mask, is_so)",
    r"^'cudaThread(Synchronize|Exit)' is not": "since CUDA 4 it is cudaDeviceSynchronize and "
    "cudaDeviceReset",
    r"'(cublas|cudnn|cufft|curand)\w+'( was not declared|$)|(member of|namespace) '(cub|thrust)'"
    r"|'CU(BLAS|DNN|FFT|RAND)\w+'( was not declared|$)": "the CPU backend has stand-ins for parts "
    "of NVIDIA's libraries (helpers/cuda_on_cpu/stand_ins.py); the rest runs on a GPU only",
}


class CompileError(Exception):
    """A CUDA string does not compile; says so with its line, a caret and one sentence."""

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        return [f"CompileError: {self}", *getattr(self, "__notes__", [])]


class Stopped(KeyboardInterrupt):
    """Ctrl-C while a string was being built, or while one of its kernels ran on the CPU."""

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        return [f"KeyboardInterrupt: {self}"]


@dataclass
class Diagnostic:
    """One error: what the compiler says, and where in the string (line 0: nowhere)."""

    what: str
    line: int = 0
    column: int = 0
    text: str | None = None  # the line in which the column counts, where the compiler printed it


def explain(output: str, source: str, compiled: str, label: str) -> CompileError:
    """Return the error for a failed build.

    `output` is what the tools printed, `source` the learner's string, `compiled` the string that
    was compiled, with the same lines, and `label` its name in the compiler's messages.
    """
    found = diagnostics(output, source, label)
    if not found:
        printed = output.splitlines()
        telling = [line for line in printed if re.search("error|fatal|cannot", line)] or printed
        found = [Diagnostic("the build failed: " + "\n".join(telling[-3:]))]
    shown = [show(d, source, compiled.splitlines()) for d in found[:SHOWN]]
    if len(found) > SHOWN:
        shown.append(f"and {len(found) - SHOWN} more, perhaps because of these")
    return CompileError("\n".join(shown))


def diagnostics(output: str, source: str, label: str) -> list[Diagnostic]:
    """Return the errors of a build as they were printed, the first of each line."""
    lines = output.splitlines()
    found = {}
    for i, line in enumerate(lines):
        if match := END.match(line) or GNU.match(line) or NVCC.match(line):
            where = "}" in match["what"] and _opening(lines, i, label)
            where = where or _place(match, lines, i, label)
        elif match := ASSEMBLER.match(line):
            if match["what"].endswith("aborted due to errors"):
                continue
            where = _named(match["what"], source)
        elif match := LINKER.search(line):
            name = demangle(match["symbol"])
            what = f"{name} is declared but never defined"
            found.setdefault(what, Diagnostic(what, *_first_use(name, mask(source))))
            continue
        else:
            continue
        what = _plain(match["what"])
        found.setdefault(where[0] or what, Diagnostic(what, *where))
    return list(found.values())


def show(diagnostic: Diagnostic, source: str, compiled: list[str] | None = None) -> str:
    """Return one error as text: sentence, the learner's line, a caret."""
    hints = [hint for pattern, hint in HINTS.items() if re.search(pattern, diagnostic.what)]
    notes = "".join(f"\n  Hint: {hint}" for hint in hints)
    lines = source.splitlines()
    if not 1 <= diagnostic.line <= len(lines):
        return diagnostic.what + notes
    line = lines[diagnostic.line - 1].expandtabs()
    rows = [(str(diagnostic.line), line)]
    seen = diagnostic.text or (compiled or lines)[diagnostic.line - 1].expandtabs()
    caret = _caret(diagnostic.column - 1, seen, line)
    if caret is not None:
        rows.append(("", " " * caret + "^"))
        starts_line = not line[:caret].strip()
        if starts_line and diagnostic.what.startswith("expected") and diagnostic.line > 1:
            # what is missing is missing at the end of the line before
            rows.insert(0, (str(diagnostic.line - 1), lines[diagnostic.line - 2].expandtabs()))
    width = max(len(number) for number, _ in rows)
    listing = "".join(f"\n  {number:>{width}} | {text}" for number, text in rows)
    return f"line {diagnostic.line}: {diagnostic.what}{listing}{notes}"


def demangle(symbol: str) -> str:
    """Return a C++ symbol as people write it: _Z6helperi is helper(int)."""
    if tool := shutil.which("c++filt"):
        return subprocess.run([tool, symbol], capture_output=True, text=True).stdout.strip()
    if named := re.match(r"_Z(\d+)", symbol):
        return symbol[named.end() : named.end() + int(named[1])]
    return symbol


def _opening(lines, i, label):
    """Return where the bracket stands that is never closed, if the error is of that kind."""
    note = rf"{re.escape(label)}[:(](\d+)(?:\)|:(\d+)): note.*: to match this"
    for j in range(i + 1, min(i + 5, len(lines))):  # clang prints a line and a caret between
        if found := re.match(note, lines[j]):
            column = (int(found[2]), None) if found[2] else _nvcc_caret(lines, j)
            return int(found[1]), *column
    return None


def _place(match, lines, i, label):
    """Return line, column, text of an error in the string, even if it was noticed in a header."""
    if match.re is END:
        return 0, 0
    if match["file"] == label:
        if match.re is NVCC:
            return int(match["line"]), *_nvcc_caret(lines, i)
        return int(match["line"]), int(match["column"]), None
    name = re.escape(label)
    before = rf"(?:In file included| +) from {name}:(\d+)()|{name}:(\d+):(\d+): +required from"
    after = rf'{name}:(\d+):(\d+): note: in instantiation|.* at line (\d+) of "?{name}"?()'
    following = range(i + 1, len(lines))
    end = next((j for j in following if GNU.match(lines[j]) or NVCC.match(lines[j])), len(lines))
    searches = [(before, reversed(lines[max(i - 12, 0) : i])), (after, lines[i + 1 : end])]
    for pattern, near in searches:  # g++ and #include name the cause before, clang and nvcc after
        for line in near:
            if found := re.match(pattern, line):
                numbers = [int(number) for number in found.groups() if number]
                return *(numbers + [0])[:2], None
    return 0, 0, None


def _nvcc_caret(lines, i):
    """Return (column, text): nvcc prints the line, with macros expanded, and a caret below it."""
    if i + 2 < len(lines) and lines[i + 2].strip() == "^":
        return lines[i + 2].index("^") - 1, lines[i + 1][2:]  # both are indented by two
    return 0, None


def _caret(at, seen, line):
    """Return where under the learner's line the caret goes, or None.

    The compiler counted in the line that it saw; where that differs from the learner's (a rewritten
    launch, an expanded macro), look for the word that stands there.
    """
    if at < 0:
        return None
    if line == seen:
        return min(at, len(line))
    word = re.match(r"\w+|\S", seen[at:])
    if not word:
        return None
    places = [m.start() for m in re.finditer(rf"(?<!\w){re.escape(word[0])}(?!\w)", line)]
    return min(places, key=lambda place: abs(place - at), default=None)


def _named(what, source):
    """Return where the kernel, function or instruction stands that the assembler names."""
    if symbol := MANGLED.search(what):
        return _first_use(demangle(symbol[0]), mask(source))
    if quoted := re.search(r"'(\w+)", what):
        return _first_use(quoted[1], source)
    return 0, 0


def _first_use(name, source):
    """Return line and column of the first place that names a function: `scale<float>(int)`."""
    bare = re.match(r"(?:void )?([\w:~]+)", name)
    word = bare[1].split("::")[-1] if bare else name
    if found := re.search(rf"\b{re.escape(word)}\b", source):
        line_start = source.rfind("\n", 0, found.start()) + 1
        return source.count("\n", 0, found.start()) + 1, found.start() - line_start + 1
    return 0, 0


def _plain(what):
    """Return the sentence in PyTorch's names, plain quotes and decimal numbers."""
    what = what.translate(str.maketrans("‘’", "''")).replace("torch_light::", "torch::")
    what = MANGLED.sub(lambda symbol: demangle(symbol[0]), what)
    what = re.sub(r" \[-W[^\]]*\]$", "", what)  # the option that makes it an error
    what = re.sub(r"^call to '\w+' declared with .*?error'?(?: attribute)?: ", "", what)
    what = re.sub(r"^static assertion failed: ", "", what)
    what = re.sub(r"^.* is deprecated: ", "", what)  # a sentence of ours: see cuda_on_cpu/spaces.py
    if found := UNKNOWN.match(what):
        name = found[1] or found[2] or found[3]
        if is_of_cuda(name):
            return f"CUDA has '{name}', the CPU backend does not yet: it runs on a GPU only"
        if OLD.fullmatch(name):
            return f"'{name}' is not in CUDA any more"
    return re.sub(r"\b0x[0-9a-f]+\b", lambda number: str(int(number[0], 16)), what).strip()
