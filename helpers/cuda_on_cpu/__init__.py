"""CUDA strings on a machine without a GPU: headers, a runtime and a translator for g++ and clang.

`compile_cuda` uses it like this: `translate` the string; compile it behind `#include
<cuda_runtime.h>` (and behind PyTorch's headers, if it wants those) with `flags()`; link it with
`runtime_library()`. A kernel's faults arrive as std::runtime_error.
"""

from .build import INCLUDE, compiler, flags, runtime_library
from .translate import TranslateError, translate

__all__ = ["INCLUDE", "TranslateError", "compiler", "flags", "runtime_library", "translate"]
