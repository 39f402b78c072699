"""The light torch::Tensor: C++ headers that cost 0.1 s to read where PyTorch's own cost 15.

`tensor.h` declares what wrappers use; `tensor.cpp` defines it over PyTorch's stable C interface
and is compiled once; `std.h` adds what is made of std::vector and the like, for strings that name
it; `binding.h` makes functions callable from Python; `cuda/` has light versions of the few CUDA
headers of PyTorch that kernels need, `light/` of <torch/types.h>, which files take torch::Tensor
from.
"""

import functools
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


@functools.lru_cache(maxsize=64)
def is_enough_for(source: str) -> bool:
    """Return whether the light headers have what the string includes, and all that it names."""
    return has_headers_of(source) and not _MORE.search(mask(source))


# What PyTorch's own headers have, and the light ones have nothing like.
_MORE = re.compile(
    r"\b(?:torch|at|c10)\s*::\s*(?:Scalar|TensorArg|TensorList|Generator|Layout|NoGradGuard|nn|autograd"
    r"|indexing|parallel_for|\w*PackedTensorAccessor\w*|TensorAccessor|checkAll\w+|checkSame\w+)\b"
    r"|\b(?:packed_accessor(?:32|64)?|accessor)\s*<|\bTORCH_LIBRARY\w*|\b(?:pybind11|py)\s*::"
)


def has_headers_of(source: str) -> bool:
    """Return whether every header of PyTorch that the string includes has a light version."""
    of_pytorch = ("torch/", "ATen/", "c10/", "pybind11/")
    wanted = [name for name in includes(source) if name.startswith(of_pytorch)]
    return all((CUDA / name).exists() or (LIGHT / name).exists() for name in wanted)


def lighten(source: str) -> str | None:
    """Return the string without PyTorch's own headers, for which the light ones may do as well.

    None if it is clear that they will not.
    """
    if _MORE.search(mask(source)) or "PYBIND11_" in mask(source):
        return None
    lines = source.split("\n")
    for i, line in enumerate(lines):
        if not has_headers_of(line):
            lines[i] = "#include <torch_light/standard.h>"
    return "\n".join(lines)


def may_lack(error: str) -> bool:
    """Return whether the first error of a build may come from what the light headers lack."""
    first = re.split(r"\nline |; did you mean", error)[0]
    names = r"\b(?:torch|at|c10|caffe2|std)\s*::|'(?:torch|at|c10|std)'|Tensor|Scalar|No such file"
    return bool(re.search(rf"{names}|\b(?:TORCH|AT|C10)_\w+", first))


@functools.lru_cache(maxsize=64)
def preamble(source: str) -> str:
    """Return what stands before a string that is compiled with the light headers."""
    std = ["torch_light/std.h"] if _NAMES_STD.search(source) else []
    named = set(_OF_STD.findall(source))
    std += [header for header, names in _STD_HEADERS.items() if named & {header, *names.split()}]
    tensor = "half.h" if re.search(r"Half|HALF|BFloat16|Atomic\.cuh", source) else "tensor.h"
    headers = [*std, f"torch_light/{tensor}", "torch_light/binding.h", "cuda_runtime.h"]
    headers += [header for header, names in _16_BITS.items() if re.search(names, source)]
    return "".join(f"#include <{header}>\n" for header in headers)


_CPP = {".h", ".cuh", ".cpp"}
_OF_STD = re.compile(r"\bstd\s*::\s*(\w+)")
# What PyTorch's headers bring of the standard library, so that strings name it without an #include.
_STD_HEADERS = {
    "algorithm": "sort stable_sort fill fill_n copy copy_n all_of any_of none_of find find_if "
    "count reverse transform max_element min_element lower_bound upper_bound clamp",
    "array": "",
    "chrono": "",
    "deque": "",
    "functional": "function",
    "iostream": "cout cerr endl",
    "list": "",
    "map": "",
    "memory": "unique_ptr shared_ptr make_unique make_shared",
    "mutex": "lock_guard",
    "numeric": "accumulate iota",
    "set": "",
    "sstream": "ostringstream stringstream istringstream",
    "stdexcept": "runtime_error invalid_argument logic_error out_of_range",
    "unordered_map": "",
    "unordered_set": "",
}
# As types: CUDA's headers of both come with PyTorch's own.
_16_BITS = {
    "cuda_fp16.h": r"\b__half2?\b|\(\s*(?:const\s+)?half2?\s*\*"
    r"|(?<![\w.])half2?\s*(?:const\s*)?[&*]?\s*(?:__restrict__\s*)?\w+\s*[,)=;\[]",
    "cuda_bf16.h": r"\b(?:__)?nv_bfloat162?\b",
}
_NAMES_STD = re.compile(r"\bstd\b|[Oo]ptional|nullopt|\bdevice_of\b|\.(vec|str)\(")
