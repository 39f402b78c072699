"""What a launch did, line by line: what is slow about it, and what would fit on a GPU.

How it works, in the order to read it:
    record                      what both ways of running a kernel write down
    model                       what one request costs: sectors, wavefronts
    from_simulator              records a Python kernel; marks is what it puts into its source
    from_cpu_backend            records a CUDA string, machine_code counts its FLOPs
    from_nvcc                   adds the registers, and what nvcc joins in shared memory
    occupancy                   how many blocks an SM holds
    report, table               what `trace` returns, and how it shows itself
    pictures, launch_pictures   of one access, of a launch; picture is what they share
    animation                   a tiled matrix multiplication, step by step; squares draws it

What is about Python kernels works on NumPy alone; the pictures need matplotlib, the CUDA strings
PyTorch.
"""

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

from helpers.trace import from_simulator
from helpers.trace.animation import animate_tiled_matmul
from helpers.trace.occupancy import chip_here, occupancy
from helpers.trace.report import Trace

__all__ = ["Trace", "animate_tiled_matmul", "occupancy", "trace"]


def trace(function: Callable, *args: Any, **kwargs: Any) -> Trace:
    """Run a kernel once and report, line by line, what its warps did.

    trace(kernel, grid, block, *args) runs a Python kernel on the simulator, as `launch` does;
    trace(compiled.function, *args) calls a function from compile_cuda on the CPU backend and
    reports on each kernel that it launches; its result is the report's `result`. Tensors may be on
    a GPU. The report shows itself as a table, report.draw() as pictures.

    Requests, sectors and conflicts are those that Nsight Compute counts on a GPU, unless nvcc makes
    other instructions there: it may drop accesses, makes a loop of an atomicAdd of floats in shared
    memory, and joins neighbouring loads of shared memory into wide ones. The report says where it
    does the last: where nvcc is, it compiles a string with shared memory as well. Of textures and
    surfaces it counts texels: how many sectors these take on a GPU is not documented.

    Raises what the launch raises: an index out of range, a race, a barrier that not all reach; and
    TypeError if `function` is neither of the two, or a kernel comes without grid and block. Warns
    of what is no error but worth a word, such as threads that write the same value.
    """
    if not callable(function):
        wanted = "a Python kernel or a function from compile_cuda (compiled.name)"
        raise TypeError(f"trace takes {wanted} first, not {function!r}")
    # what compile_cuda(…, check=True) returns is a Python function around a compiled one
    if isinstance(inspect.unwrap(function), types.FunctionType):
        if len(args) < 2 or kwargs:
            raise TypeError("call trace(kernel, grid, block, *args), with no argument by its name")
        return Trace([from_simulator.record(function, *args, **kwargs)])
    # Not before they are needed: for Python kernels NumPy is enough.
    from helpers.compiler import build as compiler
    from helpers.trace import from_cpu_backend, from_nvcc

    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        result, launches = from_cpu_backend.record(function, *args, **kwargs)
    for remark in remarks:  # of the checks: no error, but worth a word where trace was called
        warnings.warn(remark.message, remark.category, stacklevel=2)
    source, _ = compiler.source_of(function)
    flags = compiler.flags_of(function)
    from_nvcc.add_device_code(launches, source, chip_here().arch, flags)
    return Trace(launches, result, functools.partial(from_nvcc.registers, source, flags=flags))
