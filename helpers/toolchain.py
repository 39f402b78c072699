"""Find what building a CUDA string needs; what is missing comes with the line that mends it."""

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

TOOLKIT_PARTS = "cccl,crt,cudart,nvcc,nvvm"


class ToolMissing(RuntimeError):
    """A tool is missing or does not fit: one sentence, and the line that mends it."""

    def __init__(self, sentence: str, mend: str):
        super().__init__(f"{sentence}\n  To mend it: {mend}")
        self.sentence, self.mend = sentence, mend

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        return [f"ToolMissing: {self}"]


def ninja() -> Path:
    """Return ninja, which load_inline runs, and put its directory on PATH if it is not there."""
    if found := shutil.which("ninja"):
        return Path(found)
    for directory in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (directory / "ninja").exists():
            os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ.get('PATH', '')}"
            return directory / "ninja"
    raise ToolMissing("ninja, which runs the build, is not installed.", _pip("ninja"))


def host_compiler() -> Path:
    """Return the C++ compiler: $CXX, else the first of c++, g++, clang++ on PATH."""
    chosen = os.environ.get("CXX")
    if chosen:
        if found := shutil.which(chosen):
            return Path(found)
        raise ToolMissing(f"CXX names {chosen!r}, and there is no such compiler.", "unset CXX")
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            if name != "c++":  # load_inline looks for c++ alone
                os.environ["CXX"] = name
            return Path(found)
    raise ToolMissing("There is no C++ compiler on PATH.", _system_package("g++"))


def cuda_home() -> Path:
    """Return the CUDA toolkit that has nvcc; sets CUDA_HOME for PyTorch."""
    for home in _cuda_homes():
        if (home / "bin" / "nvcc").exists():
            os.environ["CUDA_HOME"] = str(home)
            return home
    raise ToolMissing("There is no nvcc, the compiler for CUDA.", _toolkit())


def cuobjdump() -> Path:
    """Return cuobjdump, which prints SASS: from PATH, the toolkit, or triton's wheel."""
    return cuda_tool("cuobjdump", "nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")


def cuda_tool(name: str, packages: str) -> Path:
    """Return a program that belongs to CUDA; `packages` are the wheels that have it."""
    places = [home / "bin" for home in _cuda_homes()]
    places += [directory / "triton/backends/nvidia/bin" for directory in _site_packages()]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])
    if found := shutil.which(name, path=path):
        return Path(found)
    raise ToolMissing(f"There is no {name}.", _pip(packages))


def use_cuda():
    """Make sure that nvcc is there, fits PyTorch and takes the C++ compiler; tell PyTorch of it."""
    home = cuda_home()
    cuda_fits_torch(home)
    compiler_fits_nvcc(home)
    from torch.utils import cpp_extension

    cpp_extension.CUDA_HOME = str(home)  # it may have been imported before CUDA_HOME was known


def cuda_fits_torch(home: Path) -> str:
    """Return nvcc's version, if it is of the CUDA version that PyTorch was built with."""
    version = nvcc_version(home)
    if torch.version.cuda and version.split(".")[0] != torch.version.cuda.split(".")[0]:
        raise ToolMissing(
            f"nvcc in {home} is of CUDA {version}, PyTorch of CUDA {torch.version.cuda}.",
            f"{_toolkit()} && unset CUDA_HOME",
        )
    return version


def compiler_fits_nvcc(home: Path) -> str:
    """Return the C++ compiler's version, if nvcc can work with it."""
    from torch.utils import cpp_extension

    compiler = host_compiler()
    said = _run_version(str(compiler), "--version")
    kind = "clang" if "clang" in said else "g++"
    version = int(re.search(r"(\d+)\.\d+", said)[1])
    known = "CUDA_CLANG_VERSIONS" if kind == "clang" else "CUDA_GCC_VERSIONS"
    bounds = getattr(cpp_extension, known).get(nvcc_version(home), (None, (1000,)))
    newest = bounds[1][0] - 1
    if version > newest:
        names = ("clang++", "clang") if kind == "clang" else ("g++", "gcc")
        raise ToolMissing(
            f"nvcc {nvcc_version(home)} works with {kind} up to {newest}; {compiler} is {version}.",
            f"{_system_package(f'{names[0]}-{newest}')} && "
            f"export CXX={names[0]}-{newest} CC={names[1]}-{newest}",
        )
    return f"{kind} {version}"


def identity() -> str:
    """Return what changes when a compiler is exchanged, without running it: for hashes."""
    tools = [shutil.which(os.environ.get("CXX", "c++"))]
    tools += [home / "bin" / "nvcc" for home in _cuda_homes()]
    there = [Path(tool) for tool in tools if tool and Path(tool).exists()]
    return repr([(str(tool), tool.stat().st_size, int(tool.stat().st_mtime)) for tool in there])


def raise_if_known(output: str):
    """Raise ToolMissing if a build's output says that a tool, not the string, is to blame."""
    if found := re.search(r"Unsupported gpu architecture '(\w+)'", output):
        raise ToolMissing(f"this nvcc is too old for the GPU ({found[1]}).", _toolkit())
    if "Python.h: No such file" in output:
        raise ToolMissing("Python's C headers are missing.", _system_package("python3-dev"))
    if "No space left on device" in output:
        raise ToolMissing("the disk is full.", "make clean")


def nvcc_version(home: Path) -> str:
    """Return the CUDA version of a toolkit's nvcc: "13.0"."""
    said = _run_version(str(home / "bin" / "nvcc"), "--version")
    return re.search(r"release (\d+\.\d+)", said)[1]


def _cuda_homes():
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    if found := shutil.which("nvcc"):
        yield Path(found).resolve().parent.parent
    yield Path("/usr/local/cuda")
    for directory in _site_packages():
        yield from sorted(directory.glob("nvidia/cu*"), reverse=True)


def _site_packages():
    return {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}


def _toolkit():
    version = torch.version.cuda or "13.0"
    return _pip(f'"cuda-toolkit[{TOOLKIT_PARTS}]=={version}.*"')


def _pip(package):
    return f"{sys.executable} -m pip install {package}"


def _system_package(name):
    if platform.system() == "Darwin":
        return "xcode-select --install"
    for manager, install in (("apt-get", "apt-get install"), ("dnf", "dnf install")):
        if shutil.which(manager):
            return f"sudo {install} {name}"
    return f"install {name} with your system's package manager"


@functools.cache
def _run_version(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
