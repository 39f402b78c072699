"""What the machine code of a compiled CUDA string says: the line of each instruction, and FLOPs.

The compiler's own work is counted, as Nsight Compute counts nvcc's: constants are folded, and what
does not change in a loop is worked out before it. Instructions count one operation for each element
that they add, subtract, multiply, divide, compare for a minimum or maximum, or take the root of;
fused multiply-adds count two. So do calls of the mathematical library: one each, fma two. Those of
__half and __nv_bfloat16 count by what their conversions to float leave: one each.
"""

import os
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from helpers.cuda_on_cpu import ENGLISH

HOOK = "__sanitizer_cov_trace_pc"  # called where a basic block begins
UNIT = "main.cpp"  # load_inline's file; binutils gives clang's lines in the string this name
CALLS = ("call", "callq", "bl")
WINDOW = 1 << 16  # bytes behind the last block that surely hold its end

_X86_ONE = re.compile(r"v?(?:add|sub|mul|div|sqrt|min|max)[ps][sdh]$")
_X86_TWO = re.compile(r"vfn?m(?:add|sub|addsub|subadd)\d*[ps][sdh]$")
_ARM_ONE = re.compile(r"f(?:add|sub|mul|nmul|div|sqrt|min|max|minnm|maxnm)$")
_ARM_TWO = re.compile(r"f(?:madd|msub|nmadd|nmsub|mla|mls)$")
_LIBRARY = re.compile(
    r"(?:__)?(?:a?(?:sin|cos|tan)h?|sincos|atan2|exp(?:2|10|m1)?|log(?:2|10|1p)?|pow|cbrt|hypot|"
    r"erfc?|[tl]gamma|sqrt|f(?:min|max|mod|dim)|remainder)f?(?:_finite)?$"
)
_BRANCH = re.compile(r"j\w+$|b(?:\.\w+)?$|cbn?z$|tbn?z$|loop\w*$")
_ENDS = re.compile(r"(?:jmpq?|retq?|ud2|hlt|b|br|brk|udf)$")


@dataclass(frozen=True)
class Place:
    """A line of the CUDA string, in one of the copies that the compiler made of its function."""

    line: int
    copy: tuple

    @property
    def functions(self) -> list[str]:
        """The symbols of the function that the line is in, and of those it is inlined into."""
        innermost, *outer = self.copy
        return [innermost, *(symbol for symbol, _ in outer)]


@dataclass
class Part:
    """What a basic block has of a line."""

    flops: int = 0
    works: bool = False  # it computes, calls or accesses memory: an address is not all it has


@dataclass(frozen=True)
class Instruction:
    """One instruction: its mnemonic and its operands."""

    mnemonic: str
    operands: str

    def is_call_of_string(self) -> bool:
        """Whether it is a call, but for those added at a function's begin and end and at loops."""
        added = r"__tsan_func|__stack_chk|cuda_on_cpu4Loop"
        return self.mnemonic in CALLS and not re.search(added, self.operands)


@dataclass
class MachineCode:
    """A library from compile_cuda; `starts` are where its basic blocks begin, from the counter.

    label: the CUDA string's name in the compiler's messages. Raises RuntimeError without binutils.
    """

    library: Path
    label: str
    starts: list[int]
    accesses: list[int] = field(default_factory=list)

    def __post_init__(self):
        self._lines, self._next = (
            _disassemble(self.library, self.starts) if self.starts else ({}, {})
        )
        self._reached = {start: self._reach(start) for start in self.starts}
        addresses = {address for reached in self._reached.values() for address in reached}
        addresses |= {code - 1 for code in self.accesses}
        self._places = _places(self.library, self.label, sorted(addresses))

    def place(self, code: int) -> Place | None:
        """Return the place of the call that returns to `code`; None outside the CUDA string."""
        return self._places.get(code - 1)

    def block(self, start: int) -> dict[Place, Part]:
        """Return the places that a basic block has instructions of."""
        parts = defaultdict(Part)
        for address in self._reached[start]:
            if place := self._places.get(address):
                instruction = _instruction(self._lines[address])
                flops = flops_of(instruction.mnemonic, instruction.operands)
                parts[place].flops += flops
                parts[place].works |= flops > 0 or instruction.is_call_of_string()
        return parts

    def _reach(self, start: int) -> set[int]:
        """Return the instructions from `start` to where the next basic blocks begin."""
        reached, ahead = set(), [start]
        while ahead:
            address = ahead.pop()
            line = self._lines.get(address)
            if address in reached or line is None or HOOK in line:
                continue
            instruction = _instruction(line)
            reached.add(address)
            if _BRANCH.match(instruction.mnemonic):
                target = re.search(r"(?:^|[\s,])(?:0x)?([0-9a-f]+) <", instruction.operands)
                ahead += [int(target[1], 16)] if target else []
            if address in self._next and not _ENDS.match(instruction.mnemonic):
                ahead.append(self._next[address])
        return reached


def flops_of(mnemonic: str, operands: str) -> int:
    """Return the floating-point operations of one x86-64 or AArch64 instruction."""
    if mnemonic in CALLS:
        name = re.search(r"<(\w+)", operands)
        if not name:
            return 0
        return 2 if name[1] in ("fma", "fmaf") else bool(_LIBRARY.match(name[1]))
    if _X86_ONE.match(mnemonic) or _X86_TWO.match(mnemonic):
        each = 2 if _X86_TWO.match(mnemonic) else 1
        return each if mnemonic[-2] == "s" else each * _packed(mnemonic, operands)
    if _ARM_ONE.match(mnemonic) or _ARM_TWO.match(mnemonic):
        elements = re.match(r"v\d+\.(\d+)[hsd]", operands)
        return (2 if _ARM_TWO.match(mnemonic) else 1) * (int(elements[1]) if elements else 1)
    return 0


def _packed(mnemonic, operands):
    """Return the number of elements in the widest register of an x86-64 instruction."""
    register = max(re.findall(r"%([xyz])mm", operands), default="x")
    return {"x": 16, "y": 32, "z": 64}[register] // {"h": 2, "s": 4, "d": 8}[mnemonic[-1]]


def _disassemble(library: Path, starts: list[int]) -> tuple[dict[int, str], dict[int, int]]:
    """Return each instruction as it is printed, and what follows it in its function, by address."""
    if not starts:
        return {}, {}
    window = [f"--start-address={min(starts)}", f"--stop-address={max(starts) + WINDOW}"]
    output = _run(["objdump", "-d", "--no-show-raw-insn", *window, str(library)])
    lines: dict[int, str] = {}
    following: dict[int, int] = {}
    before = None
    for line in output.splitlines():
        place, is_instruction, text = line.partition(":\t")
        if not is_instruction:
            before = None  # the header of a function
            continue
        address = int(place, 16)
        lines[address] = text
        if before is not None:
            following[before] = address
        before = address
    return lines, following


@lru_cache(maxsize=1 << 16)  # most of a library's lines are never asked for, and many are alike
def _instruction(line: str) -> Instruction:
    mnemonic, operands = re.match(r"(?:(?:bnd|notrack|rep|lock) )?(\S+)\s*(.*)", line).groups()
    return Instruction(mnemonic, operands)


def _places(library: Path, label: str, addresses: list[int]) -> dict[int, Place]:
    """Return the place of each address: of the frames inlined there, the innermost of ours."""
    asked = "".join(f"0x{address:x}\n" for address in addresses)
    output = _run(["addr2line", "-a", "-f", "-i", "-e", str(library)], asked)
    places = {}
    for answer in re.split(r"^(?=0x)", output, flags=re.MULTILINE)[1:]:
        address, *rest = answer.splitlines()
        frames = list(zip(rest[::2], rest[1::2], strict=True))
        for i, (function, position) in enumerate(frames):
            found = re.match(r"(?:.*/)?([^/]*):(\d+)", position)
            if found and found[1] in (label, UNIT) and int(found[2]):
                places[int(address, 16)] = Place(int(found[2]), (function, *frames[i + 1 :]))
                break
    return places


def _run(command: list[str], asked: str = "") -> str:
    try:
        environment = os.environ | ENGLISH
        done = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment)
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not installed (apt install binutils)") from None
    if done.returncode:
        raise RuntimeError(f"{command[0]} fails: {done.stderr.strip()}")
    return done.stdout
