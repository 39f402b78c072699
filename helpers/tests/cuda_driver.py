"""Compile CUDA strings for the CPU and call them on numpy arrays, without PyTorch in between."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from helpers.compiler.tools import BUILDS, cpu_backend
from helpers.cuda_on_cpu import INCLUDE_TORCH, RUNTIME, CpuBackend, translate

PRELUDE = r"""
#include <cuda_runtime.h>
#include <exception>
#include <string>
struct Arrays {  // what a test passes: pointers and numbers of elements
    void* data[12];
    long size[12];
    template <class T> T* at(int i) const { return static_cast<T*>(data[i]); }
};
#define EXPORT extern "C" __attribute__((visibility("default"))) void
extern "C" __attribute__((visibility("default")))
const char* call(void (*function)(const Arrays&), const Arrays& arrays) {
    static std::string error;
    try { function(arrays); return nullptr; }
    catch (const std::exception& e) { error = e.what(); return error.c_str(); }
}
// A checked kernel may reach memory of the device only: copies there and back.
extern "C" __attribute__((visibility("default")))
const char* call_on_copies(void (*function)(const Arrays&), const Arrays& arrays,
                           const long* bytes) {
    Arrays copies = arrays;
    for (int i = 0; i < 12 && bytes[i]; i++) {
        cudaMalloc(&copies.data[i], bytes[i]);
        cudaMemcpy(copies.data[i], arrays.data[i], bytes[i], cudaMemcpyHostToDevice);
    }
    const char* error = call(function, copies);
    for (int i = 0; i < 12 && bytes[i]; i++) {
        cudaMemcpy(arrays.data[i], copies.data[i], bytes[i], cudaMemcpyDeviceToHost);
        cudaFree(copies.data[i]);
    }
    return error;
}
#line 1 "cell"
"""


class _Arrays(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p * 12), ("size", ctypes.c_long * 12)]


class Library:
    """A compiled CUDA string: `run(name, arrays...)` calls `EXPORT name(const Arrays& a)`."""

    def __init__(self, path: Path, check: bool = False):
        self._library = ctypes.CDLL(str(path))
        self._library.call.restype = self._library.call_on_copies.restype = ctypes.c_char_p
        self.check = check

    def run(self, name: str, *arrays: np.ndarray) -> None:
        """Raise RuntimeError with the message of the C++ exception, if there is one."""
        passed = _Arrays()
        for i, array in enumerate(arrays):
            assert array.flags.c_contiguous
            passed.data[i] = array.ctypes.data
            passed.size[i] = array.size
        function = ctypes.cast(getattr(self._library, name), ctypes.c_void_p)
        if self.check:
            sizes = (ctypes.c_long * 12)(*(array.nbytes for array in arrays))
            error = self._library.call_on_copies(function, ctypes.byref(passed), sizes)
        else:
            error = self._library.call(function, ctypes.byref(passed))
        if error:
            raise RuntimeError(error.decode())


def need(tool: str) -> str:
    """Return the tool's name, for clang++ that of any that is here; skip the test without one."""
    others = [f"clang++-{version}" for version in range(14, 24)] if tool == "clang++" else []
    if found := next(filter(shutil.which, [tool, *others]), None):
        return found
    pytest.skip(f"{tool} is not installed" + (", nor is clang++-14 to -23" if others else ""))


def compile_string(
    src: str,
    folder: Path,
    cxx: str = "g++",
    runtime: Path | None = None,
    std: str = "c++17",
    check: bool = False,
    lambdas: bool = False,
) -> Library:
    runtime = runtime or cpu_backend().runtime_library()
    source, library = folder / "cell.cpp", folder / "cell.so"
    source.write_text(PRELUDE + translate(src, check, check, lambdas))
    cxx = need(cxx)
    flags = CpuBackend(cxx, BUILDS).flags(check, check)
    flags += ["-DCUDA_ON_CPU_EXTENDED_LAMBDA"] if lambdas else []
    compiled = folder / "cell.o"
    command = [cxx, f"-std={std}", "-fPIC", *flags, f"-I{INCLUDE_TORCH}"]
    _run([*command, "-c", str(source), "-o", str(compiled)])
    # Without the flags, or the linker would bring the sanitizer's runtime.
    link = [cxx, "-shared", str(compiled), str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    _run([*link, "-o", str(library)])
    return Library(library, check)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run_program(src: str, folder: Path, check: bool = False) -> subprocess.CompletedProcess:
    """Compile a whole program, with main(), and run it."""
    source, program = folder / "program.cpp", folder / "program"
    source.write_text('#include <cuda_runtime.h>\n#line 1 "program"\n' + translate(src, check))
    flags = CpuBackend(need("g++"), BUILDS).flags(check)
    runtime = cpu_backend().runtime_library()
    commands = [["g++", "-std=c++17", *flags, "-c", str(source), "-o", f"{program}.o"]]
    commands += [["g++", f"{program}.o", str(runtime), f"-Wl,-rpath,{runtime.parent}"]]
    commands[-1] += ["-pthread", "-o", str(program)]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, timeout=60)


def build_portable_runtime(folder: Path) -> Path:
    """Build the runtime with ucontext, as for a processor that it has no assembly for.

    -O1 compiles in three quarters of the time, and nobody waits for what it runs.
    """
    library = folder / "libcuda_on_cpu_portable.so"
    command = [need("g++"), "-O1", "-std=c++17", "-fPIC", "-shared", "-pthread", *map(str, RUNTIME)]
    command += ["-fvisibility=hidden", "-DCUDA_ON_CPU_UCONTEXT", "-ldl", "-o", str(library)]
    subprocess.run(command, check=True)
    return library
