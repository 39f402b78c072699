"""What nvcc makes of a kernel: PTX, SASS, registers. Needs nvcc or a record, but no GPU."""

import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import torch

from helpers.base.gpu import COURSE_CHIP
from helpers.base.tables import Table
from helpers.compiler import tools, torch_light
from helpers.compiler.errors import demangle, explain
from helpers.compiler.flags import known
from helpers.compiler.source import kernel_version, read
from helpers.compiler.tools import ToolMissing
from helpers.cuda_on_cpu import ENGLISH, digest
from helpers.device import BACKEND
from helpers.recorded import recorded, stored

DEFAULT_ARCH = COURSE_CHIP.arch.removeprefix("sm_")  # without a GPU
# for nvcc, whatever it makes
OPTIONS = ("-O3", "-Xptxas=-v", "--expt-relaxed-constexpr", "-DTORCH_LIGHT_CUDA")


def ptx(
    src: str | Path,
    arch: str | None = None,
    key: str | None = None,
    flags: tuple[str, ...] = (),
) -> str:
    """Return the PTX of a string's kernels: NVIDIA's assembly for a GPU that does not exist.

    `arch` is an architecture such as "sm_75"; by default that of the GPU here, else sm_90. Where
    nvcc is missing, what was recorded under `key` ("02_add_ptx", say) is returned (if nothing was,
    an empty text), and a line printed that says so. `flags` are those of compile_cuda. Raises
    CompileError, or without a key ToolMissing; ValueError for a flag that is not known.
    """
    about = {"arch": arch} | _with(flags)
    text, note = _made_or_recorded(lambda: _ptx(src, arch, flags), key, src, about)
    print(note, end="")
    return text or ""


def sass(
    src: str | Path,
    kernel: str | None = None,
    arch: str | None = None,
    key: str | None = None,
    flags: tuple[str, ...] = (),
) -> str:
    """Return the SASS of a string's kernels, or of one: the instructions that the GPU executes.

    Without nvcc or cuobjdump as `ptx`; `flags` as there. Raises KeyError for an unknown kernel.
    """
    about = {"arch": arch, "kernel": kernel} | _with(flags)
    text, note = _made_or_recorded(lambda: _sass(src, kernel, arch, flags), key, src, about)
    print(note, end="")
    return text or ""


def main_loop(
    src: str | Path,
    kernel: str | None = None,
    arch: str | None = None,
    key: str | None = None,
    by: str = "FFMA",
    flags: tuple[str, ...] = (),
) -> Counter[str]:
    """Count the instructions, by their names, of the loop in which a kernel does most FMAs.

    `by` names another instruction to tell it by, "HMMA" say where tensor cores multiply. Of loops
    in each other it is the innermost; empty if no loop has such an instruction. All that stands in
    the loop counts, also what a jump inside it leaves out in this turn or that; "BRA" says how
    many jumps there are, the one back to its head among them. `kernel` is needed only for a string
    of several kernels; the rest is as for `sass`.
    """
    return Counter(map(_name, main_loop_code(src, kernel, arch, key, by, flags)))


def main_loop_code(
    src: str | Path,
    kernel: str | None = None,
    arch: str | None = None,
    key: str | None = None,
    by: str = "FFMA",
    flags: tuple[str, ...] = (),
) -> list[str]:
    """Return the instructions that `main_loop` counts, in their order, with their operands."""
    listing = sass(src, kernel, arch, key, flags)
    instruction_of_line = r"^  ([0-9a-f]+)  (?:@!?U?P[T\d]+ )?(.*)$"
    code = [
        (int(address, 16), instruction)
        for address, instruction in re.findall(instruction_of_line, listing, re.MULTILINE)
    ]
    most, most_often = [], 0
    for end, instruction in code:
        jump = re.match(r"BRA.* 0x([0-9a-f]+)", instruction)
        start = int(jump[1], 16) if jump else end
        if start < end:
            body = [text for address, text in code if start <= address <= end]
            often = sum(_name(text) == by for text in body)
            if often > most_often:
                most, most_often = body, often
    return most


def _name(instruction: str) -> str:
    return re.match(r"\w+", instruction)[0]


def sass_lines(
    src: str | Path, arch: str | None = None, flags: tuple[str, ...] = ()
) -> dict[str, list[tuple[int, str]]]:
    """Return each kernel's SASS as (line of the string, instruction); line 0: of no line.

    Raises CompileError, or ToolMissing without nvcc or nvdisasm.
    """
    cubin = compiled(src, arch, "-cubin", flags=flags)
    label = src.name if isinstance(src, Path) else "cell"
    # -ndf: no analysis of the branch stack, a third of the time, which changes no line here
    printed = _printed(str(tools.nvdisasm()), "-c", "-gi", "-ndf", str(cubin))
    kernels: dict[str, list[tuple[int, str]]] = {}
    instructions, line, is_first = [], 0, True
    for text in printed.splitlines():
        if found := re.match(r"\.text\.(\S+):$", text):
            instructions = kernels.setdefault(kernel_name(found[1]), [])
            line, is_first = 0, True
        # of functions inlined into each other the innermost comes first; it may be of a header
        elif found := re.match(r'\s*//## File "(?:.*/)?([^"/]*)", line (\d+)', text):
            line = 0 if is_first else line
            line, is_first = line or (int(found[2]) if found[1] == label else 0), False
        elif found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(\S.*?) *;", text):
            instructions.append((line, found[1]))
            is_first = True
    return kernels


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, from the compiler: registers a thread, bytes of static shared memory
    a block, bytes a thread of stack and of spills (registers that went to memory)."""

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


class ResourceUsage(dict):
    """Resources by kernel name; shows itself as a table."""

    def __init__(self, resources: dict[str, Resources], caption: str):
        super().__init__(resources)
        header = ["kernel", "registers", "shared bytes", "stack", "spill stores", "spill loads"]
        lines = [[name, *map(str, astuple(r))] for name, r in resources.items()]
        self._table = Table(header, lines, caption)

    def __repr__(self):
        return str(self._table)

    def _repr_html_(self):
        return self._table._repr_html_()


def resource_usage(
    src: str | Path,
    arch: str | None = None,
    key: str | None = None,
    flags: tuple[str, ...] = (),
) -> ResourceUsage:
    """Return the registers, shared memory and spills of each kernel in a string.

    Without nvcc as `ptx`; `flags` as there.
    """

    def make() -> dict:
        used = {name: asdict(each) for name, each in _resources(src, arch, flags).items()}
        return {"arch": _arch_number(arch, ""), "kernels": used}

    value, note = _made_or_recorded(make, key, src, {"arch": arch} | _with(flags))
    if value is None:
        return ResourceUsage({}, note.rstrip())
    resources = {name: Resources(**fields) for name, fields in value["kernels"].items()}
    return ResourceUsage(resources, f"for sm_{value['arch']}, says ptxas\n{note}".rstrip())


def _with(flags) -> dict:
    """Return what a record says of flags: of none nothing, as those do that were made before."""
    return {"flags": [*known(flags)]} if flags else {}


def _made_or_recorded(
    make: Callable[[], Any], key: str | None, src: str | Path, about: dict
) -> tuple[Any, str]:
    """Return what `make` returns; where a tool is missing, what is recorded (None: nothing).

    With it comes a note in whole lines: empty, or what is missing and where the record is from.
    """
    if key is None:
        return make(), ""
    kernels = [kernel_version(read(src)[0])]
    try:
        value = make()
    except ToolMissing as missing:
        record = stored(key, about, kernels)
        return record.value, f"{missing}\n{record.caption}\n"
    recorded(key, lambda: value, about, kernels)
    return value, ""


def _ptx(src, arch, flags) -> str:
    return compiled(src, arch, "-ptx", flags=flags).read_text()


def _sass(src, kernel, arch, flags) -> str:
    cubin = compiled(src, arch, "-cubin", flags=flags)
    printed = _printed(str(tools.cuobjdump()), "-sass", str(cubin))
    parts = re.split(r"^\s*Function : ", printed, flags=re.MULTILINE)[1:]
    listings = {kernel_name(part.split("\n")[0].strip()): part for part in parts}
    wanted = listings if kernel is None else _matching(listings, kernel)
    return "\n".join(f"{name}\n{_instructions(part)}" for name, part in wanted.items())


@functools.lru_cache(maxsize=64)  # half a second each, and a cubin never changes
def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _resources(src, arch, flags) -> dict[str, Resources]:
    said = compiled(src, arch, "-cubin", flags=flags).with_suffix(".log")
    return resources_in(said.read_text())


def resources_in(said: str) -> dict[str, Resources]:
    """Return what ptxas said of each kernel."""
    resources = {}
    for part in said.split("Compiling entry function '")[1:]:
        mangled = part.split("'")[0]
        shared = re.search(r"(\d+) bytes smem", part)
        frame = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        resources[kernel_name(mangled)] = Resources(
            int(re.search(r"Used (\d+) registers", part)[1]),
            int(shared[1]) if shared else 0,
            *map(int, re.search(frame, part).groups()),
        )
    return resources


def gpu_arch(source: str) -> str:
    """Return the GPU's architecture, "90", or "90a" if the string uses what only that chip has.

    Chips before sm_90 have nothing of the kind: there the assembler refuses the instruction.
    """
    major, minor = torch.cuda.get_device_capability() if BACKEND == "cuda" else DEFAULT_ARCH
    special = int(major) >= 9 and re.search("wgmma|setmaxnreg|tcgen05", source)
    return f"{major}{minor}" + ("a" if special else "")


def _arch_number(arch, source):
    return arch.removeprefix("sm_") if arch else gpu_arch(source)


def compiled(
    src: str | Path, arch: str | None, kind: str, *options: str, flags: tuple[str, ...] = ()
) -> Path:
    """Return the file of a kind ("-ptx", "-cubin") that nvcc makes of a string, or has made.

    For "compute_75" and the like that has PTX alone; else what ptxas says of registers lies beside
    it, in a .log. `flags` take back what PyTorch's tell nvcc, `options` come before these. Raises
    CompileError and ToolMissing; ValueError for a flag that is not known.
    """
    flags = known(flags)
    home = tools.cuda_home()
    source, label = read(src)
    is_virtual = arch is not None and arch.startswith("compute_")
    target = arch if is_virtual else f"sm_{_arch_number(arch, source)}"
    is_light = torch_light.is_enough_for(source)
    unit = f'#line 1 "{label}"\n{source}\n'
    unit = (torch_light.preamble(source) if is_light else "#include <torch/types.h>\n") + unit
    arguments = [
        kind,
        f"-arch={target}",
        "-std=c++17" if is_light else "-std=c++20",  # as compile_cuda does
        *(["-lineinfo"] if kind == "-cubin" else []),  # PTX is for people to read
        *OPTIONS,
        *options,
    ]
    if is_light:
        arguments += [f"-I{folder}" for folder in torch_light.FOR_NVCC]
    compiler = os.environ.get("CC", "")
    if shutil.which(compiler):  # PyTorch lets nvcc work with it as well
        arguments += ["-ccbin", compiler]
    key = digest(unit, repr(arguments), repr(flags), torch_light.text(), tools.identity())

    def make(private: Path):
        from torch.utils.cpp_extension import COMMON_NVCC_FLAGS, include_paths

        unit_path = private / "unit.cu"
        unit_path.write_text(unit)
        # PyTorch's CPU build lacks one generated header; this says that nothing needs it
        more = [*COMMON_NVCC_FLAGS, *flags, "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE"]
        more += [f"-isystem={directory}" for directory in include_paths()]
        made = ["-o", str(private / f"code.{kind[1:]}")]
        command = [str(home / "bin" / "nvcc"), *arguments, *more, str(unit_path), *made]
        environment = os.environ | ENGLISH
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            output = done.stdout + done.stderr
            tools.raise_if_known(output)
            raise explain(output, source, source, label)
        (private / "code.log").write_text(done.stderr)

    return tools.BUILDS.get(f"device_code_{key}", make) / f"code.{kind[1:]}"


@functools.lru_cache(maxsize=1024)
def kernel_name(mangled: str) -> str:
    """Return a kernel's name without its parameters: scale_kernel<float>."""
    name = demangle(mangled).removeprefix("void ").replace("(anonymous namespace)::", "")
    end, depth = len(name), name.endswith(")")
    while depth:  # a template's arguments may have brackets as well: pool_kernel<(Mode)1>(float*)
        end = name.rindex("(", 0, end)
        depth = name.count(")", end) - name.count("(", end)
    return name[:end]


def _matching(listings, kernel):
    found = {n: part for n, part in listings.items() if n == kernel or n.startswith(f"{kernel}<")}
    if not found:
        raise KeyError(f"no kernel {kernel}; there is {', '.join(listings)}")
    return found


def _instructions(listing: str) -> str:
    """Return the listing without the hexadecimal encoding of each instruction."""
    found = re.findall(r"/\*([0-9a-f]{4,})\*/ +(\S.*?) *;", listing)
    return "\n".join(f"  {address}  {instruction}" for address, instruction in found)
