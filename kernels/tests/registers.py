"""What nvcc makes of the kernel files on two chips: registers and spills, in registers.csv.

    python -m kernels.tests.registers    with nvcc: compiles what has changed, some minutes for all

A row is one kernel of one file. It holds for the file's text, the light headers and nvcc's release
that it was compiled with: test_kernels.py compiles anew where one of them is another.

full_headers.txt names the version of all files that nvcc last compiled, without a warning, against
PyTorch's own headers; it holds for what a row holds for, and for PyTorch's version.
"""

import csv
import re
import subprocess
from collections.abc import Collection
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import torch

from helpers.base.machine import ROOT
from helpers.compiler import CompileError, device_code, tools, torch_light
from helpers.compiler.device_code import Resources
from helpers.compiler.source import includes
from helpers.cuda_on_cpu import digest
from helpers.tests.test_torch_light import EVERYTHING

RECORD = Path(__file__).with_name("registers.csv")
FULL_HEADERS = RECORD.with_name("full_headers.txt")
FILES = sorted((ROOT / "kernels").glob("*.cu"))
ARCHS = ("sm_75", "sm_90a")
KEY = ("file", "source", "nvcc", "arch", "kernel")
NUMBERS = tuple(field.name for field in fields(Resources))

Usage = dict[str, Resources]  # by the kernel's name


def as_one_unit(paths: Collection[Path], *more: str) -> str:
    """Return the files, and more CUDA, as one string, each in a namespace of its own.

    To read CUDA's headers takes nvcc as long as a file takes it.
    """
    sources = {path.stem: path.read_text() for path in paths}
    sources |= {f"more_{i}": text for i, text in enumerate(more)}
    headers = {name for text in sources.values() for name in includes(text)}
    unit = [f"#include <{name}>" for name in sorted(headers)]
    for op, text in sources.items():
        body = re.sub(r"^# *include.*$", "", text, flags=re.MULTILINE)
        macros = re.findall(r"^# *define +(\w+)", body, re.MULTILINE)
        unit += [f'namespace {op}_file {{\n#line 1 "{op}.cu"\n{body}}}']
        unit += [f"#undef {macro}" for macro in macros]
    return "\n".join(unit)


def by_nvcc(paths: Collection[Path], arch: str) -> dict[Path, Usage]:
    """Return what ptxas says of each file's kernels; raises CompileError."""
    try:
        made = device_code.compiled(as_one_unit(paths), arch, "-cubin")
    except CompileError:
        for path in paths:  # one alone is told about by its lines
            device_code.compiled(path, arch, "-cubin")
        raise
    found = device_code.resources_in(made.with_suffix(".log").read_text())
    usage: dict[Path, Usage] = {path: {} for path in paths}
    by_namespace = {f"{path.stem}_file": path for path in paths}
    for name, used in found.items():
        namespace = re.search(r"\b(\w+_file)::", name)[1]
        usage[by_namespace[namespace]][name.replace(f"{namespace}::", "")] = used
    return usage


def version_of(path: Path) -> str:
    """Return a hash of what a row holds for, but for nvcc."""
    return digest(path.read_text(), torch_light.text(), *device_code.OPTIONS)[:12]


@cache
def nvcc_release() -> str | None:
    """Return the release of the nvcc that is here: "13.0.88"; None: there is none."""
    try:
        nvcc = tools.cuda_home() / "bin" / "nvcc"
    except tools.ToolMissing:
        return None
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\bV(\d[\d.]*)", said)[1]


def recorded() -> dict[tuple[str, str], tuple[str, str, Usage]]:
    """Return each file's version, nvcc's release and the usage, by the file's stem and the arch."""
    found: dict[tuple[str, str], tuple[str, str, Usage]] = {}
    if RECORD.exists():
        with RECORD.open(newline="") as file:
            for row in csv.DictReader(file):
                new = (row["source"], row["nvcc"], {})
                usage = found.setdefault((row["file"], row["arch"]), new)[2]
                usage[row["kernel"]] = Resources(*(int(row[name]) for name in NUMBERS))
    return found


def usage_of(paths: Collection[Path], arch: str) -> dict[Path, Usage]:
    """Return what the kernels of the files take: as recorded, or compiled where that is stale.

    Without nvcc stale files are left out.
    """
    release, rows = nvcc_release(), recorded()
    usage = {}
    for path in paths:
        version, made_by, used = rows.get((path.stem, arch), ("", "", {}))
        if version == version_of(path) and release in (None, made_by):
            usage[path] = used
    stale = [path for path in paths if path not in usage]
    return usage | by_nvcc(stale, arch) if stale and release else usage


def _with_full_headers() -> str:
    """Return the files, and what uses all that the light headers offer, over PyTorch's headers."""
    return f"#include <ATen/ATen.h>\n{as_one_unit(FILES, EVERYTHING)}"


def version_with_full_headers() -> str:
    """Return what full_headers.txt says if it is not stale."""
    made_of = _with_full_headers(), torch_light.text(), *device_code.OPTIONS
    return f"{digest(*made_of)} nvcc {nvcc_release()} torch {torch.__version__.split('+')[0]}"


def warnings_with_full_headers() -> list[str]:
    """Compile over PyTorch's headers and return nvcc's warnings; raises CompileError.

    -G: nothing is optimized, which takes half the time and nobody looks at.
    """
    source = _with_full_headers()
    assert not torch_light.is_enough_for(source)
    log = device_code.compiled(source, "sm_75", "-ptx", "-G").with_suffix(".log")
    return [line for line in log.read_text().splitlines() if re.match(r"\w+\.cu\(", line)]


def main() -> None:
    release = nvcc_release()
    if release is None:
        raise SystemExit("there is no nvcc here")
    if warnings := warnings_with_full_headers():
        raise SystemExit("\n".join(warnings))
    FULL_HEADERS.write_text(version_with_full_headers() + "\n")
    usage = {arch: usage_of(FILES, arch) for arch in ARCHS}
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*KEY, *NUMBERS], lineterminator="\n")
        writer.writeheader()
        for path in FILES:
            made_of = {"file": path.stem, "source": version_of(path), "nvcc": release}
            for arch in ARCHS:
                for name, used in usage[arch][path].items():
                    writer.writerow(made_of | {"arch": arch, "kernel": name} | asdict(used))


if __name__ == "__main__":
    main()
