"""launch: checks what it is given and runs the blocks, one after the other."""

import inspect
import types
from itertools import count
from numbers import Number

import numpy as np

from helpers.simulator.arguments import Arguments
from helpers.simulator.block import Block
from helpers.simulator.current import current, returned_error
from helpers.simulator.errors import LaunchError, SimulatorError
from helpers.simulator.explain import cut_to_kernel, exit_error, explain
from helpers.simulator.geometry import (
    blockDim,
    blockIdx,
    gridDim,
    launch_shape,
    running_thread,
    threadIdx,
)
from helpers.simulator.host import host_array
from helpers.simulator.order import order
from helpers.simulator.rewrite import prepare
from helpers.simulator.watchdog import watchdog


def launch(kernel, grid, block, *args):
    """Run `kernel(*args)` in every thread, as `kernel<<<grid, block>>>(args)` does.

    `grid` (blocks) and `block` (threads): an int, a tuple of up to three, or a dim3. Tensors on
    any device and NumPy arrays reach the kernel as checked arrays, and what it writes is in them
    afterwards; numbers and functions reach it as they are. Raises a SimulatorError that names
    kernel, line, block and thread; any error of the kernel has `stopped_at`: gridDim, blockDim,
    blockIdx and threadIdx, each a tuple of three, or None.
    """
    try:
        observed_launch(None, kernel, grid, block, *args)
    except (Exception, KeyboardInterrupt) as error:
        cut_to_kernel(error)
        raise


def observed_launch(observer, kernel, grid, block, *args):
    """Launch, and let an observer (or None) look on.

    It has: edit(node, function), which puts calls into the source of a function, and marks, the
    functions those calls name; access(array, operation, index, frame, elements), told of every
    "load", "store" and "atomic" in global and shared memory; end_block().
    """
    if current.kernel is not None:
        raise LaunchError(f"{current.kernel}: a kernel cannot launch another one here")
    if not isinstance(kernel, types.FunctionType):
        raise LaunchError(f"a kernel is a function, not a {type(kernel).__name__}")
    arguments = Arguments()
    try:
        grid, block = launch_shape(grid, block)
        order.begin_launch()
        current.remarks = set()
        current.observe(observer)
        values = _bind(kernel, args, arguments)
        arguments.watch()
        prepared = prepare(
            kernel, dict(zip(kernel.__code__.co_varnames, values, strict=False)), observer
        )
        order.remember_readers(prepared.meetings)
        current.returns = prepared.returns
    except SimulatorError as error:
        raise type(error)(f"{kernel.__name__}: {error}") from None
    current.kernel = kernel.__name__
    gridDim.set(grid)
    blockDim.set(block)
    try:
        with watchdog() as wind_up:
            for blockIdx.z in range(grid.z):
                for blockIdx.y in range(grid.y):
                    for blockIdx.x in range(grid.x):
                        wind_up()
                        order.begin_block()
                        current.shared = {}
                        if prepared.pauses:
                            Block(prepared.function, values, block).run()
                        else:
                            _run_threads(prepared.function, values, block)
                        order.end_block()
                        if observer is not None:
                            observer.end_block()
        arguments.remark_on_unwritten(kernel.__code__)
    except (Exception, KeyboardInterrupt) as error:
        explain(error)
        error.stopped_at = running_thread()
        raise
    except SystemExit as error:
        raise exit_error(error) from None
    finally:
        current.kernel = current.shared = None
        current.observe(None)
        for place in (threadIdx, blockIdx, blockDim, gridDim):
            place.clear()
        arguments.write_back()


def _bind(kernel, args, arguments):
    """Return what the kernel is called with: tensors as arrays that know their names."""
    signature = inspect.signature(kernel)
    try:
        signature.bind(*args)
    except TypeError as error:
        raise LaunchError(
            f"takes ({', '.join(signature.parameters)}), got {len(args)} arguments: {error}"
        ) from None
    names = list(signature.parameters)
    values = []
    for i, value in enumerate(args):
        name = names[min(i, len(names) - 1)]  # the last one may be *rest
        if (given := host_array(value)) is not None:
            value = arguments.array(name, given)
        elif isinstance(value, np.generic):
            value = value.item()
        elif not isinstance(value, Number | types.FunctionType | types.BuiltinFunctionType):
            raise LaunchError(
                f"argument {name} is a {type(value).__name__}; "
                "pass a tensor, a NumPy array, a number or a function"
            )
        values.append(value)
    return values


def _run_threads(kernel, values, block):
    """Run the threads of a block in which nobody waits: one after the other."""
    thread = count()
    for threadIdx.z in range(block.z):
        for threadIdx.y in range(block.y):
            for threadIdx.x in range(block.x):
                order.begin_thread(next(thread))
                if (result := kernel(*values)) is not None:
                    raise returned_error(result)
