"""From a CUDA string to Python functions: compile_cuda, and what the compiler made of it."""

import hashlib
import os
import shutil
from pathlib import Path

import torch

from helpers import toolchain
from helpers.cuda_source import Function, host_functions
from helpers.device import BACKEND, CACHE

HERE = Path(__file__).resolve().parent
TORCH_LIGHT = HERE / "torch_light"
BUILDS = CACHE / "compiled"


class CompileError(Exception):
    """The string does not compile: its line, a caret, and the compiler's sentence."""

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        return [f"CompileError: {self}"]


class CompiledFunctions:
    """The functions of one compiled string, as attributes."""

    def __init__(self, functions: dict):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        raise AttributeError(f"no function {name}; compiled were: {', '.join(vars(self))}")

    def __repr__(self):
        return f"<compiled: {', '.join(vars(self))}>"


_loaded = {}


def compile_cuda(src: str | Path, functions: list[str] | None = None) -> CompiledFunctions:
    """Compile a CUDA string, or a .cu file, and return its host functions as attributes.

    `functions` names the functions to bind; by default every host function at file scope that
    takes or returns a torch::Tensor. With a GPU the string goes through nvcc, for that GPU;
    without one through g++ and the CPU backend. What was built once is loaded from the cache.

    Raises CompileError if the string does not compile, ToolMissing if a compiler is not there.
    """
    if isinstance(src, Path):
        label, src = src.name, src.read_text()
    else:
        label = "cell"
    bound = _choose(host_functions(src), functions)
    build = _gpu_build(src, label, bound) if BACKEND == "cuda" else _cpu_build(src, label, bound)
    key = _digest(repr(build), torch.__version__, _header_text())
    if key not in _loaded:
        library = f"cuda_{key}"
        path = BUILDS / key / f"{library}.so"
        if path.exists():
            torch.ops.load_library(path)
        else:
            _build(library, build)
        operators = getattr(torch.ops, library)
        _loaded[key] = CompiledFunctions({f.name: getattr(operators, f.name) for f in bound})
    return _loaded[key]


def _choose(found: list[Function], names):
    callable_from_python = [f for f in found if not f.hidden]
    if names is None:
        chosen = [f for f in callable_from_python if f.uses_tensors]
        if not chosen:
            raise CompileError("no host function in the string takes or returns a torch::Tensor")
        return chosen
    names = [names] if isinstance(names, str) else names
    for name in names:
        if name not in [f.name for f in callable_from_python]:
            listed = ", ".join(f.name for f in callable_from_python) or "none"
            raise CompileError(f"no function {name} in the string; found: {listed}")
    return [f for f in callable_from_python if f.name in names]


def _cpu_build(src, label, bound):
    from helpers import cuda_on_cpu

    return {
        "cpp_sources": [_unit(cuda_on_cpu.translate(src), label, bound)],
        "extra_include_paths": [str(cuda_on_cpu.INCLUDE), str(HERE)],
        "extra_cflags": [*cuda_on_cpu.flags()],
        "extra_ldflags": [str(cuda_on_cpu.runtime_library())],
    }


def _gpu_build(src, label, bound):
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}"
    return {
        "cpp_sources": [""],
        "cuda_sources": [_unit(src, label, bound)],
        "extra_include_paths": [str(TORCH_LIGHT / "gpu"), str(HERE)],
        "extra_cuda_cflags": [
            "-O3", "-lineinfo", "-DTORCH_LIGHT_CUDA",
            f"-gencode=arch=compute_{arch},code=sm_{arch}",
        ],
        "extra_cflags": ["-DTORCH_LIGHT_CUDA"],
        "extra_ldflags": [],
    }


def _unit(src, label, bound):
    """Return the file that is compiled: our header, the string, its binding."""
    half = any(word in src for word in ("Half", "HALF", "BFloat16"))
    binding = "\n".join(f'TORCH_LIGHT_BIND(LIBRARY, {f.name}, "{f.schema}")' for f in bound)
    return "\n".join([
        f"#include <torch_light/{'half' if half else 'tensor'}.h>",
        "#include <torch_light/binding.h>",
        "#include <cuda_runtime.h>",
        f'#line 1 "{label}"',
        src,
        '#line 1 "binding"',
        binding,
        "",
    ])


def _build(library, build):
    from torch.utils.cpp_extension import load_inline

    toolchain.ninja()
    tensor_object = _tensor_object()
    private = BUILDS / f"building.{os.getpid()}.{library}"
    private.mkdir(parents=True)
    build["extra_ldflags"] = [str(tensor_object), *build["extra_ldflags"]]
    define = f'-DLIBRARY=\\"{library}\\"'
    build["extra_cflags"].append(define)
    if "extra_cuda_cflags" in build:
        build["extra_cuda_cflags"].append(define)
    try:
        load_inline(
            name=library, functions=None, is_python_module=False, no_implicit_headers=True,
            build_directory=str(private), **build,
        )
        try:
            private.rename(BUILDS / library.removeprefix("cuda_"))
        except OSError:  # another process has published the same
            pass
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _tensor_object():
    """Return tensor.cpp compiled, once for this PyTorch."""
    import subprocess

    from torch.utils.cpp_extension import include_paths

    compiler = toolchain.host_compiler()
    cuda = ["-DTORCH_LIGHT_CUDA", "-DUSE_CUDA"] if BACKEND == "cuda" else []
    flags = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{HERE}", *cuda]
    flags += [f"-isystem{path}" for path in include_paths()]
    key = _digest(_header_text(), str(compiler), repr(flags), torch.__version__)
    path = BUILDS / f"torch_light_{key}.o"
    if not path.exists():
        BUILDS.mkdir(parents=True, exist_ok=True)
        private = path.with_suffix(f".{os.getpid()}.o")
        subprocess.run(
            [compiler, *flags, "-c", TORCH_LIGHT / "tensor.cpp", "-o", private], check=True
        )
        private.replace(path)
    return path


def _header_text():
    return "".join(path.read_text() for path in sorted(TORCH_LIGHT.rglob("*.*")))


def _digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
