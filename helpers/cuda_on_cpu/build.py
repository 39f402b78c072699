"""Build the runtime library: once for each compiler and content, into the cache."""

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

from helpers.base.machine import CACHE

HERE = Path(__file__).resolve().parent


def host_compiler():
    from helpers.compiler import tools

    return tools.host_compiler()


INCLUDE = HERE / "include"  # CUDA's headers
INCLUDE_TORCH = HERE / "include_torch"  # the few of PyTorch that are about CUDA
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


@lru_cache
def _is_clang(cxx: str) -> bool:
    said = subprocess.run([*shlex.split(cxx), "--version"], capture_output=True, text=True).stdout
    return "clang" in said.lower()


def flags(cxx: str | None = None, check: bool = False) -> list[str]:
    """Return what `cxx` (default: `host_compiler()`) must be told to compile translated CUDA.

    check: for code that tells the runtime about every access (runtime/hooks.cpp).
    """
    chosen = [
        f"-I{INCLUDE}",
        "-O1" if check else "-O2",
        # nvcc turns a * b + c into one instruction and knows no errno either.
        "-ffp-contract=fast",
        "-fno-math-errno",
        # A null pointer is an error to report, not a promise that the code is never reached,
        "-fno-delete-null-pointer-checks",
        # and a loop that never ends an error as well, not one to leave out.
        "-fno-finite-loops",
        # Line numbers for the errors of a kernel; no more, because debug information takes time.
        "-g1",
        # Kernels of two strings may have the same name: none may stand in for another.
        "-fvisibility=hidden",
    ]
    chosen.append("-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native")
    if sys.platform != "darwin":
        # A stack that overflows must touch the guard page below it, not jump over it.
        chosen.append("-fstack-clash-protection")
    is_clang = _is_clang(cxx or host_compiler())
    if not is_clang:
        chosen += ["-fno-gnu-unique", "-fno-semantic-interposition"]
    if check:
        # The sanitizers' calls alone: their runtimes come in where one links with these flags.
        chosen += ["-DCUDA_ON_CPU_CHECK", "-fsanitize=thread"]
        chosen += _CLANG_CHECKS if is_clang else _GCC_CHECKS
    return chosen


# Every access is told once, as a whole, and by its line.
_GCC_CHECKS = [
    "-fsanitize=bounds",
    "-fsanitize-coverage=trace-pc",
    "--param=tsan-distinguish-volatile=1",
    "-fno-tree-sra",  # or a float4 comes in four parts
    "-finline-small-functions",  # what is inlined has its caller's line
    "-fno-thread-jumps",  # or lanes that meet again after a branch do so in two copies of the code
]
_CLANG_CHECKS = ["-fsanitize=array-bounds", "-fsanitize-coverage=bb,no-prune,trace-pc"]
_CLANG_CHECKS += ["-fno-unroll-loops"]
_CLANG_CHECKS += ["-mllvm", "-tsan-distinguish-volatile=1"]
_CLANG_CHECKS += ["-mllvm", "-tsan-instrument-read-before-write=1"]


def runtime_library() -> Path:
    """Return the library that every translated string is linked with, building it if need be."""
    sources = [*HERE.glob("runtime/*"), *INCLUDE.glob("cuda_on_cpu/*.h")]
    linked = ["-ldl"] if sys.platform.startswith("linux") else []
    return _build("libcuda_on_cpu", HERE / "runtime" / "runtime.cpp", sources, linked=linked)


def install_allocator() -> None:
    """Guard the end of every CPU tensor made from now on: a kernel that overruns it is stopped.

    Without this a kernel that writes past a tensor spoils something else, as on a GPU.
    """
    library = ctypes.CDLL(str(_torch_allocator()))
    library.cuda_on_cpu_install_allocator()


def knows(address: int) -> bool:
    """Return whether the CPU backend knows where the array that begins at the address ends."""
    return _loaded_runtime().cuda_on_cpu_knows(ctypes.c_void_p(address))


@lru_cache
def _loaded_runtime():
    library = ctypes.CDLL(str(runtime_library()))
    library.cuda_on_cpu_knows.restype = ctypes.c_bool
    return library


def set_time_limit(seconds: float) -> None:
    """Stop a kernel when no thread of a block has come to an end for so long (default: 120 s)."""
    library = ctypes.CDLL(str(runtime_library()))
    library.cuda_on_cpu_set_time_limit(ctypes.c_double(seconds))


def _torch_allocator() -> Path:
    runtime = runtime_library()
    home = Path(torch.__file__).resolve().parent
    main = HERE / "runtime" / "torch_allocator.cpp"
    abi = int(torch.compiled_with_cxx11_abi())
    options = [f"-I{home / 'include'}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    linked = [str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    linked += [f"-L{home / 'lib'}", "-lc10", f"-Wl,-rpath,{home / 'lib'}"]
    return _build("libtorch_allocator", main, [main], options, linked, depends_on=torch.__version__)


def _build(
    name: str, main: Path, sources: list[Path], options=(), linked=(), depends_on: str = ""
) -> Path:
    """Compile `main` to a library in the cache, in a directory named after all it depends on."""
    command = [*shlex.split(host_compiler()), "-O2", "-g1", "-std=c++17", "-fPIC", "-shared"]
    command += ["-pthread", "-fvisibility=hidden", *options]
    key = hashlib.sha256(repr((command, linked, depends_on, platform.machine())).encode())
    for path in sorted(sources):
        key.update(path.read_bytes())
    target = CACHE / "cuda_on_cpu" / key.hexdigest()[:16] / (name + _SUFFIX)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        command = [*command, str(main), "-o", str(made), *linked]
        if sys.platform == "darwin":
            command.append(f"-Wl,-install_name,{target}")  # the path that users of it look up
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{target.name} of the CPU backend does not build:\n{done.stderr}")
        os.replace(made, target)  # whole or not at all, whoever else builds it at the same time
    return target
