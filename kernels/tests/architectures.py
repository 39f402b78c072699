"""What nvcc makes of the kernel files for each kind of GPU they tell apart, in architectures.csv.

    python -m kernels.tests.architectures    with nvcc: compiles what has changed, a minute or two

A row is a file on one architecture: the kernels that do nothing; in files that launch some early,
those that wait for what came before them and those that do not; for sm_90a, whether the machine
code has wgmma. It holds for the file's text, the
light headers, nvcc's release, and for this module, which reads the code: what is not recorded for
all of them is compiled anew.
"""

import csv
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from helpers.compiler import device_code, tools
from helpers.compiler.device_code import kernel_name
from helpers.cuda_on_cpu import digest
from kernels.tests.registers import FILES, nvcc_release, version_of

RECORD = Path(__file__).with_name("architectures.csv")
KEY = ("file", "source", "nvcc", "arch")
NAMES = ("empty", "waiting", "eager")
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
OF_90A = "__CUDA_ARCH_FEAT_SM90_ALL"
EARLY = "cudaLaunchAttributeProgrammaticStreamSerialization"
WAIT = "griddepcontrol.wait"
UNROLL = re.compile(r"#pragma unroll\b.*")
WGMMA = re.compile(r"\b[HIQ]GMMA\b")  # of floats, of integers, of 8-bit floats


@dataclass(frozen=True)
class Found:
    """What the code for one architecture has; names of kernels with their template arguments."""

    empty: frozenset[str]  # kernels without an instruction but the last one
    waiting: frozenset[str]  # kernels with griddepcontrol.wait, where any may be launched early
    eager: frozenset[str]  # and those without
    wgmma: bool = False


def found_in(path: Path, arch: str) -> Found | None:
    """Return what is recorded for the file as it stands, or what nvcc makes of it.

    None: neither is there. Raises CompileError.
    """
    release = nvcc_release()
    made_by, found = recorded().get((path.stem, arch, source_of(path)), ("", None))
    if found and release in (None, made_by):
        return found
    return by_nvcc(path.read_text(), arch) if release else None


def by_nvcc(source: str, arch: str) -> Found:
    """Return what nvcc makes of CUDA source for an architecture; raises CompileError."""
    ptx = _ptx(source, arch)
    bodies = _bodies(ptx.read_text())
    instruction = re.compile(r"^\s*(?:@!?%\w+ )?([a-z][\w.]*).*;", re.MULTILINE)
    empty = {name for name, body in bodies if set(instruction.findall(body)) <= {"ret", "exit"}}
    early = bodies if EARLY in source else []
    waiting = {name for name, body in early if WAIT in body}
    eager = {name for name, body in early if WAIT not in body}
    wgmma = arch == "sm_90a" and OF_90A in source and _has_wgmma(ptx)
    return Found(frozenset(empty), frozenset(waiting), frozenset(eager), wgmma)


def _ptx(source: str, arch: str) -> Path:
    """Compile with each loop as it stands: half the time, and what has no effect is left out."""
    return device_code.compiled(UNROLL.sub("#pragma unroll 1", source), arch, "-ptx")


def _bodies(ptx: str) -> list[tuple[str, str]]:
    """Return each kernel's name and instructions."""
    text = re.sub(r"//.*", "", ptx)
    found = re.findall(r"^(?:\.visible |\.weak )?\.entry (\w+)\(.*?^\{(.*?)^\}", text, re.M | re.S)
    assert len(found) == text.count(".entry ") > 0
    return [(kernel_name(name), body) for name, body in found]


def _has_wgmma(ptx: Path) -> bool:
    """Let ptxas go on from PTX, less optimized: the instructions for tensor cores are the same."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "code.cubin")
        command = [tools.cuda_home() / "bin" / "ptxas", "-arch=sm_90a", "-O1", "-o", cubin, ptx]
        subprocess.run(command, check=True, capture_output=True)
        return bool(WGMMA.search(device_code._printed(str(tools.cuobjdump()), "-sass", str(cubin))))


def kinds(path: Path) -> list[str]:
    """Return the first of ARCHS of each kind that the file's conditions tell apart.

    And those that other tests ask for: sm_90 where a launch may begin early, and the chips for
    which the call in the head builds where sm_90a has a path of its own.
    """
    text, first = path.read_text(), {}
    known = re.compile(rf"defined\(__CUDA_ARCH__\)|__CUDA_ARCH__ (?:<|>=) (\d+)|{OF_90A}")
    assert "__CUDA_ARCH" not in known.sub("", text), "a condition of a kind not known here"
    bounds = [int(bound) for bound in known.findall(text) if bound]
    for arch in ARCHS:
        number = int(re.search(r"\d+", arch)[0]) * 10
        kind = (*(number >= bound for bound in bounds), OF_90A in text and arch == "sm_90a")
        first.setdefault(kind, arch)
    asked = {"sm_90"} if EARLY in text else set()
    asked |= {"sm_75", "sm_80", "sm_90a"} if OF_90A in text else set()
    return [arch for arch in ARCHS if arch in {*first.values(), *asked}]


def source_of(path: Path) -> str:
    """Return a hash of what a row holds for, but for nvcc."""
    return digest(version_of(path), Path(__file__).read_text())[:12]


@cache
def recorded() -> dict[tuple[str, str, str], tuple[str, Found]]:
    """Return nvcc's release and what it made, by the file's stem, the arch and `source_of`."""
    if not RECORD.exists():
        return {}
    with RECORD.open(newline="") as file:
        return {
            (row["file"], row["arch"], row["source"]): (row["nvcc"], _read(row))
            for row in csv.DictReader(file)
        }


def _read(row: dict[str, str]) -> Found:
    names = (frozenset(filter(None, row[of].split("; "))) for of in NAMES)
    return Found(*names, wgmma=row["wgmma"] == "yes")


def _row(work: tuple[Path, str]) -> dict[str, str]:
    path, arch = work
    found = found_in(path, arch)
    key = dict(zip(KEY, (path.stem, source_of(path), nvcc_release(), arch), strict=True))
    names = {of: "; ".join(sorted(getattr(found, of))) for of in NAMES}
    return {**key, **names, "wgmma": "yes" if found.wgmma else ""}


def main() -> None:
    if nvcc_release() is None:
        raise SystemExit("there is no nvcc here")
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(_row, [(path, arch) for path in FILES for arch in kinds(path)]))
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*KEY, *NAMES, "wgmma"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
