"""The CPU backend as one C++ compiler builds it: flags, the runtime library, guarded tensors."""

import ctypes
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .cache import Cache, digest
from .stand_ins import LIBRARIES

if TYPE_CHECKING:  # PyTorch takes seconds to import, and programs without it need none
    import torch

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"  # CUDA's headers
RUNTIME = [HERE / "runtime" / name for name in ("running.cpp", "checking.cpp")]
INCLUDE_TORCH = HERE / "include_torch"  # the few of PyTorch that are about CUDA
# For the environment of a tool whose words are read: they are English. LANGUAGE goes before LC_ALL.
ENGLISH = {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


class Unwritten(ctypes.Structure):
    """How many elements of a tensor were not written; how many hold what lies beside an array."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("unwritten", "first_unwritten", "beside", "first_beside")
    ]


@dataclass(frozen=True)
class CpuBackend:
    """The CPU backend for one C++ compiler (a command, such as "ccache g++"), built into `cache`.

    RuntimeError if something of it does not build.
    """

    compiler: str
    cache: Cache

    @property
    def is_clang(self) -> bool:
        """Whether the compiler is clang, which has flags of its own."""
        return "clang" in _version(self.compiler).lower()

    @property
    def is_cross(self) -> bool:
        """Whether the compiler builds for another kind of processor than this one."""
        target = _target(self.compiler)
        return bool(target) and target != _FAMILIES.get(platform.machine(), platform.machine())

    def flags(self, check: bool = False, trace: bool = False) -> list[str]:
        """Return what the compiler must be told to compile translated CUDA.

        check: for code that tells the runtime about every access (runtime/hooks.cpp); trace:
        about every basic block as well.
        """
        chosen = [
            f"-I{INCLUDE}",
            "-O1" if check else "-O2",
            # nvcc turns a * b + c into one instruction and knows no errno either.
            "-ffp-contract=fast",
            "-fno-math-errno",
            # Integers wrap around.
            "-fwrapv",
            # A null pointer is an error to report, not a promise that the code is never reached,
            "-fno-delete-null-pointer-checks",
            # and a loop that never ends an error as well, not one to leave out.
            "-fno-finite-loops",
            # nvcc lets a float4 be stored into an array of half.
            "-fno-strict-aliasing",
            # Line numbers for the errors of a kernel; no more, because that takes time.
            "-g1",
            # nvcc knows no arrays of a size that is known at run time; and a function that does not
            # return what it says goes anywhere.
            "-Werror=vla",
            "-Werror=return-type",
            # Deprecation is how the host's functions are told from the device's: see spaces.py.
            "-Wno-deprecated-declarations",
            # Kernels of two strings may have the same name: none may stand in for another.
            "-fvisibility=hidden",
        ]
        if not self.is_cross:
            is_arm = platform.machine() in ("arm64", "aarch64")
            chosen.append("-mcpu=native" if is_arm else "-march=native")
        if sys.platform != "darwin":
            # A stack that overflows must touch the guard page below it, not jump over it.
            chosen.append("-fstack-clash-protection")
        if not self.is_clang:
            chosen += ["-fno-gnu-unique", "-fno-semantic-interposition"]
        if check:
            # The sanitizers' calls alone: their runtimes come in where one links with these flags.
            chosen += ["-DCUDA_ON_CPU_CHECK", "-fsanitize=thread"]
            chosen += _CLANG_CHECKS if self.is_clang else _GCC_CHECKS
            if _target(self.compiler) == "aarch64":  # whose division by zero is 0, without a trap
                chosen.append("-fsanitize=integer-divide-by-zero")
            if not trace:
                chosen.append("-fsanitize=alignment")  # a fifth of the time: not for counts too
                chosen += _CLANG_UNTRACED if self.is_clang else _GCC_UNTRACED
        if trace:
            chosen += _CLANG_TRACE if self.is_clang else _GCC_TRACE
            # Marked, a loop without an end looks as if it had one; the build before this one knew.
            chosen.append("-Wno-error=return-type")
        return chosen

    def linked(self, stand_ins: Iterable[str] = ()) -> list[str]:
        """Return what the linker must be told to make a library, or a program, of translated CUDA.

        stand_ins: the names of those that take the place of NVIDIA's libraries (stand_ins.py).
        """
        runtime = [*map(str, map(self._stand_in, stand_ins)), str(self.runtime_library())]
        if not sys.platform.startswith("linux"):
            return runtime
        heap = ("malloc", "free", "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm")
        to_heap = [f"-Wl,--wrap={name}" for name in heap]  # see runtime/heap.cpp
        exported = f"-Wl,--version-script={HERE / 'runtime' / 'hidden.map'}"
        return [*runtime, *to_heap, *_gold(self), exported]

    def runtime_library(self) -> Path:
        """Return the library that every translated string is linked with."""
        return _runtime_library(self)

    def install_allocator(self) -> None:
        """Guard the end of every CPU tensor made from now on: a kernel that overruns it is stopped.

        Without this a kernel that writes past a tensor spoils something else, as on a GPU.
        """
        _load(self._torch_allocator()).cuda_on_cpu_install_allocator()

    def knows(self, address: int) -> bool:
        """Return whether the backend knows where the array that begins at the address ends."""
        return _load(self.runtime_library()).cuda_on_cpu_knows(ctypes.c_void_p(address))

    def find_unwritten(self, tensor: "torch.Tensor") -> Unwritten:
        """Look for elements of a CPU tensor that hold what new memory holds, or lies beside it."""
        dense = tensor if tensor.is_contiguous() else tensor.contiguous()
        found = Unwritten()
        _load(self.runtime_library()).cuda_on_cpu_find_unwritten(
            dense.data_ptr(), dense.numel(), dense.element_size(), dense.is_floating_point(), found
        )
        return found

    @contextmanager
    def freed_memory_unused(self):
        """Leave memory that is freed unused meanwhile, so that checks find accesses to it.

        RuntimeError: memory was freed that must not be.
        """
        runtime = _load(self.runtime_library())
        runtime.cuda_on_cpu_keep_freed(True)
        try:
            yield
            if fault := runtime.cuda_on_cpu_late_fault():
                raise RuntimeError(fault.decode())
        finally:
            runtime.cuda_on_cpu_keep_freed(False)

    def take_remarks(self) -> list[str]:
        """Return what checked kernels have done, since the last call, that is worth a word."""
        take = _load(self.runtime_library()).cuda_on_cpu_take_remarks
        take.restype = ctypes.c_char_p
        return take().decode(errors="replace").splitlines()

    def who_left(self, tensor: "torch.Tensor", found: Unwritten) -> str:
        """Return a sentence on what checked kernels left of a tensor, and with how many threads.

        "" if no kernel since the last `take_remarks` could write to it.
        """
        element = tensor.data_ptr() + found.first_unwritten * tensor.element_size()
        who = _load(self.runtime_library()).cuda_on_cpu_who_left
        who.restype = ctypes.c_char_p
        who.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
        return who(element, found.unwritten, tensor.numel()).decode(errors="replace")

    def stopped_at(self, error: str) -> tuple | None:
        """Return the thread that the last launch was stopped at, if the error tells of that one.

        That is: gridDim, blockDim, blockIdx, threadIdx, each a tuple of three.
        """
        numbers = (ctypes.c_uint * 12)()
        if not _load(self.runtime_library()).cuda_on_cpu_stopped_at(numbers):
            return None
        places = tuple(tuple(numbers[i : i + 3]) for i in range(0, 12, 3))
        block, thread = (",".join(map(str, place)) for place in places[2:])
        return places if f"block ({block}), thread ({thread})" in error else None

    def set_time_limit(self, seconds: float) -> None:
        """Stop a kernel when no thread of a block has ended for so long, of processor time.

        Threads that pass barriers have four times as long.
        """
        _load(self.runtime_library()).cuda_on_cpu_set_time_limit(ctypes.c_double(seconds))

    def _torch_allocator(self) -> Path:
        main = HERE / "runtime" / "torch_allocator.cpp"
        return self._over_torch("libtorch_allocator", main, [main])

    def _stand_in(self, library: str) -> Path:
        """Return what takes the place of a library of NVIDIA."""
        headers = [*INCLUDE.glob("cu*.h"), *INCLUDE.glob("cuda_on_cpu/*.h")]
        sources = [*headers, *LIBRARIES.glob("*.h"), LIBRARIES / f"{library}.cpp"]
        return self._over_torch(f"lib{library}_on_cpu", sources[-1], sources)

    def _over_torch(self, name: str, main: Path, sources: list[Path]) -> Path:
        """Build a library that needs PyTorch's headers."""
        import torch

        runtime = self.runtime_library()
        home = Path(torch.__file__).resolve().parent
        abi = int(torch.compiled_with_cxx11_abi())
        options = [f"-I{home / 'include'}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
        options += ["-DAT_PER_OPERATOR_HEADERS", "-Wno-deprecated-declarations"]
        linked = [str(runtime), f"-Wl,-rpath,{runtime.parent}"]
        linked += [f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}"]
        return self.build(name, [main], sources, options, linked, torch.__version__)

    def build(
        self, name: str, mains: list[Path], sources: list[Path], options=(), linked=(), version=""
    ) -> Path:
        """Compile `mains` to a library, once for their content, the compiler and the options."""
        command = [*shlex.split(self.compiler), "-O2", "-g1", "-std=c++17", "-fPIC"]
        command += ["-pthread", "-fvisibility=hidden", *options]
        linked = [*linked, *([] if self.is_cross else standard_library())]
        content = [path.read_text() for path in sorted(sources)]
        key = digest(repr((command, linked, version, platform.machine())), *content)
        directory, file = f"{name}_{key}", name + _SUFFIX

        def make(private: Path) -> None:
            objects = [str(private / f"{main.stem}.o") for main in mains]
            compiles = [
                [*command, "-c", str(main), "-o", made]
                for main, made in zip(mains, objects, strict=True)
            ]
            link = [*command, "-shared", *objects, "-o", str(private / file), *linked]
            if sys.platform == "darwin":  # the path that users of it look up
                link.append(f"-Wl,-install_name,{self.cache.folder / directory / file}")
            with ThreadPoolExecutor() as pool:
                done = [*pool.map(_run, compiles)]
            errors = "".join(done) or _run(link)
            if errors:
                raise RuntimeError(f"{file} of the CPU backend does not build:\n{errors}")
            for made in objects:
                os.remove(made)

        announce = f"Building {file} of the CPU backend, once on this machine"
        return self.cache.get(directory, make, announce) / file


def standard_library() -> list[str]:
    """Return the libstdc++ that this process has loaded, for the linker; none on a Mac.

    Some compilers have a static one only. A process with two of them dies where a string prints a
    number, since each counts the parts of a locale for itself.
    """
    maps = Path("/proc/self/maps")
    loaded = re.findall(r"/.*libstdc\+\+\.so.*", maps.read_text()) if maps.exists() else []
    return loaded[:1]


# Every access is told once, as a whole, and by its line.
_GCC_CHECKS = [
    "-fsanitize=bounds",
    "--param=tsan-distinguish-volatile=1",
    "-fno-tree-sra",  # or a float4 comes in four parts
    "-finline-small-functions",  # what is inlined has its caller's line
    "-Wno-tsan",  # its runtime would not see fences; ours is told of them
]
_GCC_UNTRACED = [
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-plt",  # a tenth faster: every access is a call
    "-fno-tree-loop-im",  # or a variable is read before a loop that may not use it
    # Short loops are unrolled: then constant indices of local arrays need no check.
    "-fpeel-loops",
    "--param=max-completely-peeled-insns=400",
    "-fno-aggressive-loop-optimizations",  # or a loop is taken to end where its arrays do
]
_GCC_TRACE = [
    "-fsanitize-coverage=trace-pc",
    "-fno-thread-jumps",  # or lanes that meet again after a branch do so in two copies of the code
]
_CLANG_CHECKS = ["-fsanitize=array-bounds"]
_CLANG_CHECKS += ["-mllvm", "-tsan-distinguish-volatile=1"]
_CLANG_CHECKS += ["-mllvm", "-tsan-instrument-read-before-write=1"]
# Equal accesses of two lines stay two, each with its own.
_CLANG_CHECKS += ["-mllvm", "-enable-tail-merge=false", "-mllvm", "-sink-common-insts=false"]
_CLANG_UNTRACED = ["-mllvm", "-tsan-instrument-func-entry-exit=0", "-fno-optimize-sibling-calls"]
# Or a variable is read before a loop that may not use it, or in a branch that has no line.
_CLANG_UNTRACED += ["-mllvm", "-disable-licm-promotion", "-mllvm", "-enable-load-pre=false"]
# clang 14 tells of an element of a local array only where something else is given its address too:
# what tells of coverage is.
_CLANG_UNTRACED += ["-fsanitize-coverage=func,trace-loads,trace-stores"]
_CLANG_TRACE = ["-fsanitize-coverage=bb,no-prune,trace-pc,trace-loads,trace-stores"]
_CLANG_TRACE += ["-fno-unroll-loops"]


# What compilers and Python call a kind of processor: one name.
_FAMILIES = {"arm64": "aarch64", "amd64": "x86_64", "AMD64": "x86_64"}


@lru_cache
def _target(compiler: str) -> str:
    """Return what kind of processor the compiler builds for: "aarch64"; "" if it does not say."""
    command = [*shlex.split(compiler), "-dumpmachine"]
    done = subprocess.run(command, capture_output=True, text=True)
    machine = done.stdout.partition("-")[0].strip()
    return _FAMILIES.get(machine, machine)


@lru_cache
def _version(compiler: str) -> str:
    command = [*shlex.split(compiler), "--version"]
    return subprocess.run(command, capture_output=True, text=True).stdout


@lru_cache
def _gold(backend: CpuBackend) -> list[str]:
    """Return the flag to link with gold, which takes a third of the usual linker's time.

    None where it is not installed or links nothing with this compiler: that is tried once.
    """
    if not (gold := shutil.which("ld.gold")):
        return []
    flag, made = "-fuse-ld=gold", "empty.so"
    command = [*shlex.split(backend.compiler), flag, "-shared", "-x", "c++", os.devnull]

    def make(private: Path) -> None:
        subprocess.run([*command, "-o", str(private / made)], capture_output=True)

    tried = f"gold_{digest(gold, repr(command), _version(backend.compiler))}"
    return [flag] if (backend.cache.get(tried, make) / made).exists() else []


@lru_cache
def _runtime_library(backend: CpuBackend) -> Path:
    sources = [*HERE.glob("runtime/*"), *INCLUDE.glob("cuda_on_cpu/*.h")]
    linked = []
    if sys.platform.startswith("linux"):
        # Its std::string is its own, not a checked string's, which would tell of each access.
        linked = ["-ldl", "-Wl,-Bsymbolic-functions"]
    return backend.build("libcuda_on_cpu", RUNTIME, sources, linked=linked)


def _run(command: list[str]) -> str:
    """Run a compiler; return what it complains about, if it fails."""
    environment = os.environ | ENGLISH
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return (done.stderr or f"{command[0]} fails") if done.returncode else ""


@lru_cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    if hasattr(library, "cuda_on_cpu_knows"):
        library.cuda_on_cpu_knows.restype = ctypes.c_bool
        library.cuda_on_cpu_stopped_at.restype = ctypes.c_bool
        library.cuda_on_cpu_late_fault.restype = ctypes.c_char_p
        size, found = ctypes.c_size_t, ctypes.POINTER(Unwritten)
        arguments = [ctypes.c_void_p, size, size, ctypes.c_bool, found]
        library.cuda_on_cpu_find_unwritten.argtypes = arguments
    return library
