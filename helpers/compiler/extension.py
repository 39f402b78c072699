"""C++ for the host against PyTorch's own headers, and how it calls functions of compile_cuda."""

import functools
import importlib.util
import inspect
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from helpers.base.called_kernels import noting_calls
from helpers.compiler import tools
from helpers.cuda_on_cpu import ENGLISH, digest, standard_library

_LIBRARIES = Path(torch.__file__).parent / "lib"
_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-shared"]
_LINKED = ["-lc10", "-ltorch_cpu", "-ltorch_python"]
if sys.platform == "darwin":
    _LINKED += ["-undefined", "dynamic_lookup"]


@functools.cache
def compile_extension(source: Path, *parts: Path) -> ModuleType:
    """Compile a C++ file with a PYBIND11_MODULE(TORCH_EXTENSION_NAME, …); return the module.

    `parts`: the files of its own that it includes. The host's compiler reads PyTorch's full
    headers, some ten seconds; what was built before comes from the cache. Raises ToolMissing if a
    tool is not there, RuntimeError with the compiler's words if the file does not compile.
    """
    from torch.utils.cpp_extension import include_paths  # half a second

    name = source.stem.strip("_")
    tools.folder()
    tools.torch_version()
    headers = [*include_paths(), tools.python_headers().parent]
    command = [*shlex.split(tools.host_compiler()), *_FLAGS, f"-DTORCH_EXTENSION_NAME={name}"]
    command += [*(f"-isystem{path}" for path in headers), str(source)]
    linked = [f"-L{_LIBRARIES}", *_LINKED, *standard_library()]
    text = [path.read_text() for path in (source, *parts)]
    key = digest(*text, *command, *linked, tools.identity(), torch.__version__)

    def make(directory: Path):
        made = [*command, "-o", str(directory / f"{name}.so"), *linked]
        environment = os.environ | ENGLISH
        done = subprocess.run(made, capture_output=True, text=True, env=environment)
        if done.returncode:
            tools.raise_if_known(done.stderr)
            raise RuntimeError(f"{source.name} does not compile:\n{done.stderr}")

    announce = f"Building {source.name}, once on this machine"
    built = tools.BUILDS.get(f"extension_{key}", make, announce)
    spec = importlib.util.spec_from_file_location(name, built / f"{name}.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operator_name(function: Callable, calls: Callable[[], int]) -> str:
    """Return the operator that a function of compile_cuda is: "cuda_<hash>::square".

    `calls` says how often C++ has called it: a measurement notes that as it notes Python's calls.
    Raises TypeError for a function of a string that needs PyTorch's full headers: it is none.
    """
    packet = inspect.unwrap(function)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise TypeError(f"expected a function built with the light headers, got {function!r}")
    noting_calls(calls, function)
    return packet._qualified_op_name
