"""Build the runtime library: once for each compiler and content, into the cache."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from ..device import CACHE

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"


@lru_cache
def compiler() -> str:
    """Return the C++ compiler: $CXX, or the first of g++, clang++ and c++ that is installed."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name.split()[0]):
            return name
    raise FileNotFoundError(
        "no C++ compiler: install one (apt install g++, or xcode-select --install)"
    )


@lru_cache
def is_clang(name: str) -> bool:
    said = subprocess.run([*name.split(), "--version"], capture_output=True, text=True).stdout
    return "clang" in said.lower()


def flags(cxx: str | None = None) -> list[str]:
    """Return what `cxx` (default: `compiler()`) needs to be told to compile translated CUDA."""
    chosen = [
        f"-I{INCLUDE}",
        "-O2",
        # nvcc turns a * b + c into one instruction and knows no errno either.
        "-ffp-contract=fast",
        "-fno-math-errno",
        # Line numbers for the errors of a kernel; no more, because debug information takes time.
        "-g1",
        # A stack that overflows must touch the guard page below it, not jump over it.
        "-fstack-clash-protection",
        # Kernels of two strings may have the same name: none may stand in for another.
        "-fvisibility=hidden",
    ]
    if sys.platform == "darwin":
        chosen.remove("-fstack-clash-protection")
    chosen.append("-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native")
    if not is_clang(cxx or compiler()):
        chosen += ["-fno-gnu-unique", "-fno-semantic-interposition"]
    return chosen


def runtime_library() -> Path:
    """Return the library that every translated string is linked with, building it if need be."""
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    command = [*compiler().split(), "-O2", "-std=c++17", "-fPIC", "-shared", "-pthread"]
    command += ["-fvisibility=hidden", "-g1"]
    sources = sorted(HERE.glob("runtime/*")) + sorted(INCLUDE.glob("cuda_on_cpu/*.h"))
    return build(command, HERE / "runtime" / "runtime.cpp", sources, f"libcuda_on_cpu{suffix}")


def build(command: list[str], main: Path, depends_on: list[Path], name: str) -> Path:
    """Compile `main` into the cache, under a directory named after all that it depends on."""
    key = hashlib.sha256(repr((command, platform.machine())).encode())
    for path in depends_on:
        key.update(path.read_bytes())
    target = CACHE / "cuda_on_cpu" / key.hexdigest()[:16] / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / name
        done = subprocess.run(
            [*command, str(main), "-o", str(made)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"the CPU backend's {name} does not build:\n{done.stderr}")
        os.replace(made, target)  # whole or not at all, whoever else builds it at the same time
    return target
