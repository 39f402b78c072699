"""Stand-ins for NVIDIA's libraries: which there are, and what they do not do.

A string that includes <cublas_v2.h>, <cublasLt.h>, <cudnn.h>, <cufft.h> or <curand.h> is linked
with libraries/NAME.cpp, thin calls of PyTorch's operators for the CPU behind the names that
include/NAME.h declares. CUB and Thrust are headers there as well (include/cub, include/thrust).

They compute what NVIDIA's documentation says, and answer a wrong argument with its status. But:

- There is one way to compute each thing. An algorithm, a math mode or a workspace is accepted, and
  changes nothing: TF32 is computed in float32; half and bfloat16 are summed in float32 and rounded
  once. Heuristics and searches name one algorithm, whose workspace is empty.
- Sums are made in another order than on a GPU, so their last bits differ. Random integers and
  uniform numbers are the same to the bit, normal ones to 1e-6: a GPU takes its fast sine.
- Pointers of the host and of the device are alike. Work is done when a call returns; in a captured
  stream, at every launch of the graph.
- A NaN is always propagated. Of equal maxima in a pooling window the first one gets the gradient.
- A call that leaves a tensor or an array of cudaMalloc raises an error with a sentence. CUB's and
  Thrust's calls for the whole device are loops of the host: one that leaves its array may end the
  process, as the host's own code does.
- Versions are those of the libraries that the stand-ins were written after.
"""

import re
from pathlib import Path

LIBRARIES = Path(__file__).resolve().parent / "libraries"
_OF_HEADER = {
    "cublas_v2.h": "cublas",
    "cublasLt.h": "cublas_lt",
    "cudnn.h": "cudnn",
    "cufft.h": "cufft",
    "curand.h": "curand",
}
OF_LIBRARY = {  # as the linker's -l names it
    "cublas": ["cublas"],
    "cublasLt": ["cublas_lt", "cublas"],
    "cudnn": ["cudnn"],
    "cufft": ["cufft"],
    "curand": ["curand"],
}
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"](\w+\.h)[>\"]", re.MULTILINE)


def included(source: str) -> list[str]:
    """Return the names of the stand-ins that a string includes the headers of."""
    headers = _INCLUDE.findall(source)
    if "cublasLt.h" in headers:  # it includes the other
        headers.append("cublas_v2.h")
    return [name for header, name in _OF_HEADER.items() if header in headers]
