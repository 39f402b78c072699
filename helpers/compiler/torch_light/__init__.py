"""The light torch::Tensor: C++ headers that cost 0.1 s to read where PyTorch's own cost 15.

`tensor.h` declares what wrappers use; `tensor.cpp` defines it over PyTorch's stable C interface
and is compiled once; `std.h` adds what is made of std::vector and the like, for strings that name
it; `binding.h` makes functions callable from Python; `cuda/` has light versions of the few CUDA
headers of PyTorch that kernels need, `light/` of <torch/types.h>, which files take torch::Tensor
from.
"""

import re
from pathlib import Path

from helpers.compiler.source import includes, mask

HERE = Path(__file__).resolve().parent
CUDA = HERE / "cuda"  # for nvcc; the CPU backend has its own of the same names
SOURCE = HERE / "tensor.cpp"
INCLUDE = HERE.parent  # for <torch_light/tensor.h>
LIGHT = HERE / "light"  # not for builds with PyTorch's own headers, which read their types.h
FOR_NVCC = (CUDA, LIGHT, INCLUDE)  # folders of headers


def text() -> str:
    """Return the text of all headers, for the hash of whatever is built with them."""
    return "".join(path.read_text() for path in sorted(HERE.rglob("*")) if path.suffix in _CPP)


def is_enough_for(source: str) -> bool:
    """Return whether every header of PyTorch that the string includes has a light version."""
    of_pytorch = ("torch/", "ATen/", "c10/", "pybind11/")
    wanted = [name for name in includes(source) if name.startswith(of_pytorch)]
    return all((CUDA / name).exists() or (LIGHT / name).exists() for name in wanted)


def lighten(source: str) -> str | None:
    """Return the string without PyTorch's own headers, for which the light ones may do as well.

    None if it is clear that they will not: pybind11 has no light version.
    """
    if re.search(r"\b(?:pybind11|py)\s*::|\bPYBIND11_|\bTORCH_LIBRARY|\bautograd\b", mask(source)):
        return None
    lines = source.split("\n")
    for i, line in enumerate(lines):
        if not is_enough_for(line):
            lines[i] = "#include <torch_light/standard.h>"
    return "\n".join(lines)


def may_lack(error: str) -> bool:
    """Return whether the first error of a build may come from what the light headers lack."""
    first = re.split(r"\nline |; did you mean", error)[0]
    names = r"\b(?:torch|at|c10|caffe2|std)\s*::|'(?:torch|at|c10|std)'|Tensor|Scalar|No such file"
    return bool(re.search(rf"{names}|\b(?:TORCH|AT|C10)_\w+", first))


def preamble(source: str) -> str:
    """Return what stands before a string that is compiled with the light headers."""
    std = ["torch_light/std.h"] if _NAMES_STD.search(source) else []
    tensor = "half.h" if re.search("Half|HALF|BFloat16", source) else "tensor.h"
    headers = [*std, f"torch_light/{tensor}", "torch_light/binding.h", "cuda_runtime.h"]
    return "".join(f"#include <{header}>\n" for header in headers)


_CPP = {".h", ".cpp"}
_NAMES_STD = re.compile(r"\bstd\b|[Oo]ptional|nullopt|\bdevice_of\b|\.(vec|str)\(")
