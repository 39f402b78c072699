"""CUDA strings on a machine without a GPU: headers, a runtime and a translator for g++ and clang.

`compile_cuda` uses it like this: `translate` the string; compile it behind `#include
<cuda_runtime.h>` (and behind PyTorch's headers, if it wants those) with `CpuBackend.flags`; link it
with `CpuBackend.runtime_library`. A kernel's faults arrive as std::runtime_error.
`CpuBackend.install_allocator` makes faults of reads and writes past the end of a tensor.

To see how a kernel runs, read include/cuda_on_cpu/launch.h (what <<<...>>> becomes), then in
runtime/: multiprocessor.cpp (a block and its threads), barrier.cpp, warp.cpp, fiber.cpp (how a
thread waits), device.cpp (a grid and the cores), memory.cpp and faults.cpp (what goes wrong).

What of the host's code would end Python ends the call: include/cuda_on_cpu/host_calls.h,
runtime/host_calls.cpp.

Inline PTX becomes calls of include/cuda_on_cpu/ptx/ (ptx.py has the table of instructions). What a
whole warp does at once, such as a product of matrices, is together.h and tensor_core.h; barriers of
some threads are runtime/block_barrier.cpp, asynchronous copies runtime/async_copies.cpp.

command.py builds whole programs of .cu files, as nvcc would.

Calls of NVIDIA's libraries go to libraries/, thin calls of PyTorch's operators: stand_ins.py.

A checked build (`check=True` in `translate` and `flags`) tells the runtime about every access:
checked.py and include/cuda_on_cpu/check.h are what it adds, runtime/hooks.cpp is what it calls,
checker.cpp and shadow.h find out what is wrong, counter.cpp what a GPU would do for the accesses;
stream_order.h is about work in streams that nothing orders, and the host that does not wait.
"""

from .build import ENGLISH, INCLUDE, INCLUDE_TORCH, RUNTIME, CpuBackend, standard_library
from .cache import Cache, digest
from .error import TranslateError
from .integers import ANY_CONVERSION, find_conversions, fit
from .names import is_of_cuda
from .remarks import find_remarks
from .stand_ins import included
from .translate import translate

__all__ = [
    "ANY_CONVERSION",
    "ENGLISH",
    "INCLUDE",
    "INCLUDE_TORCH",
    "RUNTIME",
    "Cache",
    "CpuBackend",
    "TranslateError",
    "find_conversions",
    "fit",
    "digest",
    "find_remarks",
    "included",
    "is_of_cuda",
    "standard_library",
    "translate",
]
