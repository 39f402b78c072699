"""Find what building a CUDA string needs; what is missing comes with the line that mends it.

Looking changes nothing. load_inline finds its tools by the process's environment alone: it gets
one that `found_by_load_inline` restores afterwards.
"""

import contextlib
import errno
import functools
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

from helpers.base.machine import CACHE, CLEAN, INSTALL, ROOT, misplaced
from helpers.base.oldest_torch import OLDEST_TORCH, is_too_old, torch_too_old
from helpers.base.system import how_to_get, unfit_for_a_path
from helpers.cuda_on_cpu import ENGLISH, Cache, CpuBackend, digest

TOOLKIT_PARTS = "cccl,crt,cudart,nvcc,nvvm"
FIRST_CUDA_IN_PACKAGES = 13  # those of CUDA 12 are named nvcc and lack nvcc itself
OLDEST_GPU = (7, 5)  # the first that CUDA 13 compiles for
LIBRARIES = {  # of NVIDIA: header, package
    "cublas": ("cublas_v2.h", '"cuda-toolkit[cublas]=={}.*"'),
    "cublasLt": ("cublasLt.h", '"cuda-toolkit[cublas]=={}.*"'),
    "cudnn": ("cudnn.h", "nvidia-cudnn-cu{}"),
    "cufft": ("cufft.h", '"cuda-toolkit[cufft]=={}.*"'),
    "curand": ("curand.h", '"cuda-toolkit[curand]=={}.*"'),
    "nccl": ("nccl.h", "nvidia-nccl-cu{}"),
    "nvrtc": ("nvrtc.h", '"cuda-toolkit[nvrtc]=={}.*"'),
}
HEADERS_ONLY = {  # open source: nothing to link
    "cub": ("cub/cub.cuh", '"cuda-toolkit[cccl]=={}.*"'),
    "thrust": ("thrust/version.h", '"cuda-toolkit[cccl]=={}.*"'),
    "cutlass": ("cutlass/cutlass.h", "nvidia-cutlass"),
    "cudnn_frontend": ("cudnn_frontend.h", "nvidia-cudnn-frontend"),
}
NEEDS = {"cudnn_frontend": ("cudnn", "nvrtc")}  # what its code calls
# What the CPU backend has stand-ins for; the others' code runs on a GPU only.
ON_CPU = ("cublas", "cublasLt", "cudnn", "cufft", "curand", "cub", "thrust")
SYSTEM_CUDA = Path("/usr/local/cuda")
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")

# Of a toolkit without a GPU PyTorch's builds for CUDA complain on stderr; set_up says which it is.
logging.getLogger("torch.utils.cpp_extension").addFilter(
    lambda record: not str(record.msg).startswith("No CUDA runtime is found")
)


class ToolMissing(RuntimeError):
    """A tool is missing or does not fit: one sentence, and the line that mends it."""

    def __init__(self, sentence: str, mend: str):
        super().__init__(f"{sentence}\n  To mend it: {mend}")
        self.sentence, self.mend = sentence, mend

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        return [f"ToolMissing: {self}"]


class Builds(Cache):
    """A cache in which what the disk refuses is ToolMissing, to Python or to a compiler."""

    def get(self, name, make, announce=""):
        with writing(self.folder):
            try:
                return super().get(name, make, announce)
            except RuntimeError as error:  # a part of the CPU backend does not build
                raise_if_known(str(error))
                raise
            except UnicodeEncodeError as error:  # PyTorch writes files as the user's locale has it
                letter = ascii(error.object[error.start])
                raise ToolMissing(
                    f"Files are written in {error.encoding} here, which has no {letter}.",
                    "export PYTHONUTF8=1   # and start Python again",
                ) from None


@contextlib.contextmanager
def writing(folder: Path):
    """Let what a disk refuses meanwhile be ToolMissing: it is full, or the folder not writable."""
    try:
        yield
    except OSError as error:
        place = Path(error.filename) if isinstance(error.filename, str) else folder
        is_here = place.is_relative_to(folder) or folder.is_relative_to(place)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(folder if is_here else place.parent) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and is_here:
            raise _not_writable(folder) from None
        raise


def _full(folder: Path) -> ToolMissing:
    """Return what is wrong where a folder's disk has no room."""
    sentence = f"The disk of {folder} is full."
    if folder.is_relative_to(CACHE):
        return ToolMissing(sentence, f"{CLEAN}   # or make room on that disk")
    return ToolMissing(sentence, "export TMPDIR=/var/tmp   # or another folder with room")


def _not_writable(folder: Path) -> ToolMissing:
    """Return what is wrong where nothing can be written in a folder."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    sentence = f"Nothing can be written in {there}"
    with contextlib.suppress(OSError):
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            sentence += ", which is on a read-only disk"
        elif there.stat().st_uid != os.geteuid():
            sentence += ", which is somebody else's"
        elif there.is_relative_to(ROOT):
            return ToolMissing(sentence + ".", f"chmod -R u+w {ROOT}")
    if there.is_relative_to(ROOT):
        return ToolMissing(sentence + ".", f"cp -r {ROOT} ~/   # and start it from there")
    return ToolMissing(sentence + ".", f"a folder of yours in the place of {there}")


BUILDS = Builds(CACHE / "builds")  # everything that a compiler made here


def folder() -> Path:
    """Return the folder of all this, if compilers take its path, the cache's and PyTorch's."""
    for place in (ROOT, CACHE):
        if found := unfit_for_a_path(place):
            raise ToolMissing(*misplaced(place, found))
    torchs = Path(torch.__file__).parent
    if found := unfit_for_a_path(torchs):
        raise ToolMissing(
            f"PyTorch's folder has {found} in its path, which compilers do not take: {torchs}",
            f"{INSTALL}   # into .venv there",
        )
    return ROOT


def torch_version() -> str:
    """Return PyTorch's version, if CUDA strings compile with it."""
    version = torch.__version__.split("+")[0]
    if is_too_old(version):
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ToolMissing(torch_too_old(version), _pip(f'"torch>={oldest}"'))
    return version


def gpu() -> str:
    """Return the GPU's name, if the course's kernels are for one as new."""
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    if capability >= OLDEST_GPU:
        return f"{name}, sm_{capability[0]}{capability[1]}"
    raise ToolMissing(
        f"The {name} is older than the course's kernels (sm_75 and up).",
        "export CUDA_VISIBLE_DEVICES=   # use the CPU backend",
    )


def ninja() -> Path:
    """Return ninja, which load_inline runs, from PATH or from beside Python."""
    if found := shutil.which("ninja"):
        return Path(found)
    for directory in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (directory / "ninja").exists():
            return directory / "ninja"
    raise ToolMissing("ninja, which runs the build, is not installed.", _pip("ninja"))


def host_compiler() -> str:
    """Return the command of the C++ compiler: $CXX, else the first of c++, g++, clang++ on PATH."""
    return _chosen("CXX", ("c++", "g++", "clang++"), "C++")


def c_compiler() -> str:
    """Return the command of the C compiler: $CC, else the first of cc, gcc, clang on PATH."""
    return _chosen("CC", ("cc", "gcc", "clang"), "C")


def _chosen(variable, names, language) -> str:
    if chosen := os.environ.get(variable):
        if shutil.which(shlex.split(chosen)[0]):  # it may be "ccache g++"
            return chosen
        raise ToolMissing(
            f"{variable} names {chosen!r}, and there is no such compiler.", f"unset {variable}"
        )
    for name in names:
        if found := shutil.which(name):
            return shlex.quote(found)
    mend = how_to_get("g++", "gcc-c++", "xcode-select --install")
    raise ToolMissing(f"There is no {language} compiler on PATH.", mend)


def python_headers() -> Path:
    """Return Python.h, which strings with PyTorch's full headers need."""
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if header.exists():
        return header
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise ToolMissing(
        "Python's header files (Python.h) are missing.",
        how_to_get(f"python{version}-dev", "python3-devel"),
    )


def cuda_home() -> Path:
    """Return a CUDA toolkit that has nvcc, if possible of PyTorch's CUDA."""
    homes = [
        home
        for home in _cuda_homes()
        if (home / "bin" / "nvcc").exists()
        and (home / "include" / "cuda_runtime.h").exists()  # /usr/local/bin may have a mere link
    ]
    if not homes:
        raise ToolMissing("There is no nvcc, the compiler for CUDA.", _toolkit())
    return next(filter(_is_of_torchs_cuda, homes), homes[0])


def cuobjdump() -> Path:
    """Return cuobjdump, which prints SASS."""
    return _cuda_tool("cuobjdump", _pip("nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"))


def nvdisasm() -> Path:
    """Return nvdisasm, which prints SASS with the lines that it comes from."""
    return _cuda_tool("nvdisasm", _pip("nvidia-cuda-nvdisasm"))


def compute_sanitizer() -> Path:
    """Return compute-sanitizer, which finds races and overruns on the GPU."""
    return _cuda_tool("compute-sanitizer", _pip('"cuda-toolkit[sanitizer]"'))


def ncu() -> Path:
    """Return ncu, the profiler of kernels, if it may read the GPU's counters."""
    found = _cuda_tool("ncu", how_to_get("nsight-compute", "nsight-compute"))
    driver = DRIVER_PARAMETERS
    only_root = driver.exists() and "RmProfilingAdminOnly: 1" in driver.read_text()
    if only_root and os.geteuid() != 0:
        raise counters_forbidden()
    return found


def counters_forbidden() -> ToolMissing:
    """Return what is wrong where ncu says ERR_NVGPUCTRPERM."""
    option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    return ToolMissing(
        "ncu may not read the GPU's counters: the driver keeps them for root.",
        f"echo {option} | sudo tee /etc/modprobe.d/ncu.conf && sudo reboot",
    )


def _cuda_tool(name, mend) -> Path:
    """Return a program of CUDA's from PATH, a toolkit, Nsight Compute, or triton's wheel."""
    places = [home / "bin" for home in _cuda_homes()]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)
    places += [directory / "triton/backends/nvidia/bin" for directory in _site_packages()]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])
    if found := shutil.which(name, path=path):
        return Path(found)
    raise ToolMissing(f"There is no {name}.", mend)


def library(name: str) -> tuple[Path, Path | None]:
    """Return the folder of a library's header, and the library, if it is not all header.

    They come with a CUDA toolkit, with PyTorch's wheels, or are the system's. CUTLASS and the front
    end of cuDNN come with wheels of their own, or lie where CUTLASS_PATH or CUDNN_FRONTEND_PATH
    says.
    """
    header, _ = (LIBRARIES | HEADERS_ONLY)[name]
    homes = [*_homes_of(name)]
    inside = ("", "include", "include/cccl", "cutlass_library/source/include", "include/*-linux*")
    places = (path for home in homes for pattern in inside for path in _glob(home, pattern))
    folder = next((path for path in places if (path / header).exists()), None)
    if name in HEADERS_ONLY:
        file = None
    else:
        libraries = ("lib64", "lib", "lib/*-linux*")
        places = (path for home in homes for inner in libraries for path in home.glob(inner))
        file = next((file for path in places for file in path.glob(f"lib{name}.so*")), None)
    if folder and (name in HEADERS_ONLY or file):
        return folder, file
    raise _no_library(name, f"lib{name}.so" if folder else f"{header}, the header of {name},")


def _homes_of(name: str) -> Iterator[Path]:
    """Yield where a library may lie, what is asked for before what happens to be there."""
    if name in ("cub", "thrust"):  # nvcc reads its own
        yield cuda_home()
        return
    if path := os.environ.get(_variable_of(name)):
        yield Path(path)
    yield from _cuda_homes()
    for packages in _site_packages():
        yield from sorted(packages.glob("nvidia/*"))
    yield from (Path("/usr"), Path("/usr/local"), *_site_packages())


def _variable_of(library: str) -> str:
    return f"{library.upper()}_PATH"


def _no_library(name: str, missing: str) -> ToolMissing:
    """Return what is wrong where a library, or its header, is not found."""
    variable = _variable_of(name)
    path = os.environ.get(variable)
    where = f"in {path}, as {variable} says, nor elsewhere" if path else ""
    sentence = " ".join(f"There is no {missing} {where} on this machine.".split())
    _, package = (LIBRARIES | HEADERS_ONLY)[name]
    major = (torch.version.cuda or "13").split(".")[0]
    return ToolMissing(sentence, _pip(package.format(major)))


def _glob(home: Path, pattern: str):
    return home.glob(pattern) if pattern else [home]


def cpu_backend() -> CpuBackend:
    """Return the CPU backend for the C++ compiler that is here."""
    return CpuBackend(host_compiler(), BUILDS)


@contextlib.contextmanager
def found_by_load_inline(cuda: bool):
    """Let load_inline find the tools, nvcc too if `cuda`, for the duration of a `with` block.

    Raises ToolMissing, before the block, if one is not there or does not fit the others.
    """
    from torch.utils import cpp_extension

    environment = {"PATH": _path_with(ninja()), "CXX": host_compiler(), **ENGLISH}
    home = cpp_extension.CUDA_HOME
    if cuda:
        home = cuda_home()
        cuda_fits_torch(home)
        compiler_fits_nvcc(home)
        environment["CUDA_HOME"] = str(home)
        if directory := _linkable(home):
            environment["LIBRARY_PATH"] = _with(directory, "LIBRARY_PATH")
    before = {name: os.environ.get(name) for name in environment}, cpp_extension.CUDA_HOME
    os.environ.update(environment)
    cpp_extension.CUDA_HOME = home and str(home)  # read from the environment at import only
    try:
        yield
    finally:
        variables, cpp_extension.CUDA_HOME = before
        for name, value in variables.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _path_with(program: Path) -> str:
    """Return PATH, with the program's directory in front if the program is not found without."""
    is_found = shutil.which(program.name)
    return os.environ.get("PATH", "") if is_found else _with(program.parent, "PATH")


def _with(directory: Path, variable: str) -> str:
    return os.pathsep.join(filter(None, [str(directory), os.environ.get(variable)]))


def _linkable(home: Path) -> Path | None:
    """Return a directory with libcudart.so: the wheels have it under its versioned name only."""
    libraries = [path for name in ("lib64", "lib") for path in (home / name).glob("libcudart.so*")]
    if not libraries or any(path.name == "libcudart.so" for path in libraries):
        return None

    def link(directory: Path):
        (directory / "libcudart.so").symlink_to(libraries[0])

    return BUILDS.get(f"libcudart_{digest(str(libraries[0]))}", link)


def cuda_fits_torch(home: Path) -> str:
    """Return nvcc's version, if it is of the CUDA version that PyTorch was built with."""
    version = nvcc_version(home)
    if not _is_of_torchs_cuda(home):
        raise ToolMissing(
            f"nvcc in {home} is of CUDA {version}, PyTorch of CUDA {torch.version.cuda}.",
            _toolkit(),
        )
    return version


def _is_of_torchs_cuda(home: Path) -> bool:
    """Return whether nvcc there can build for PyTorch: the versions share their first number."""
    wanted = torch.version.cuda
    return wanted is None or nvcc_version(home).split(".")[0] == wanted.split(".")[0]


def compiler_fits_nvcc(home: Path) -> str:
    """Return the C++ compiler's version, if nvcc can work with it."""
    from torch.utils import cpp_extension

    compiler = host_compiler()
    said = _run_version(*shlex.split(compiler), "--version")
    kind = "clang" if "clang" in said else "g++"
    version = int(re.search(r"(\d+)\.\d+", said)[1])
    known = "CUDA_CLANG_VERSIONS" if kind == "clang" else "CUDA_GCC_VERSIONS"
    bounds = getattr(cpp_extension, known).get(nvcc_version(home), (None, (1000,)))
    newest = bounds[1][0] - 1
    if version > newest:
        names = ("clang++", "clang") if kind == "clang" else ("g++", "gcc")
        raise ToolMissing(
            f"nvcc {nvcc_version(home)} works with {kind} up to {newest}; {compiler} is {version}.",
            f"{how_to_get(f'{names[0]}-{newest}', f'gcc{newest}-c++')} && "
            f"export CXX={names[0]}-{newest} CC={names[1]}-{newest}",
        )
    return f"{kind} {version}"


def identity() -> str:
    """Return what changes when a compiler is exchanged, without running it: for hashes."""
    tools = [shutil.which(word) for word in shlex.split(os.environ.get("CXX", "c++"))]
    tools += [home / "bin" / "nvcc" for home in _cuda_homes()]
    there = [Path(tool) for tool in tools if tool and Path(tool).exists()]
    return repr([(str(tool), tool.stat().st_size, int(tool.stat().st_mtime)) for tool in there])


def raise_if_known(output: str):
    """Raise ToolMissing if a build's output says that a tool, not the string, is to blame."""
    if found := re.search(r"Unsupported gpu architecture '(\w+)'", output):
        raise ToolMissing(f"This nvcc is too old for the GPU ({found[1]}).", _toolkit())
    if re.search(r"Python\.h: No such file|'Python\.h' file not found", output):
        python_headers()
    if "No space left on device" in output or "Disk quota exceeded" in output:
        # what does not fit is removed again, so the disk that is full has some room by now
        raise _full(min(_temporary(), BUILDS.folder, key=_free_bytes))


def _temporary() -> Path:
    """Return the folder in which compilers keep what they need for a moment."""
    places = (Path(os.environ.get(name, "")) for name in ("TMPDIR", "TMP", "TEMP"))
    return next((path for path in places if path.is_absolute() and path.is_dir()), Path("/tmp"))


def _free_bytes(folder: Path) -> int:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free


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
    yield SYSTEM_CUDA
    for directory in _site_packages():
        yield from sorted(directory.glob("nvidia/cu*"), reverse=True)


def _site_packages():
    return {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}


def _toolkit():
    version = torch.version.cuda or "13.0"
    if int(version.split(".")[0]) < FIRST_CUDA_IN_PACKAGES:
        return f"{INSTALL}   # PyTorch of CUDA 13 and its nvcc, into .venv"
    return _pip(f'"cuda-toolkit[{TOOLKIT_PARTS}]=={version}.*"')


def _pip(package):
    return f"{sys.executable} -m pip install {package}"


@functools.cache
def _run_version(*command):
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | ENGLISH
    )
    return done.stdout
