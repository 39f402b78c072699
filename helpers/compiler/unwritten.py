"""Report what a compiled function returns without having written it."""

import functools
import warnings

import torch

from helpers.cuda_on_cpu import CpuBackend


def reported(function, backend: CpuBackend, check: bool):
    """Return `function` of the `backend` with a look at the tensors that it made and returns.

    RuntimeWarning: elements that still hold what new memory is filled with. RuntimeError: elements
    that were computed from what lies beside an array. With `check` also at the tensors that it was
    given and has written to in part; the warning then says with how many threads.
    """

    @functools.wraps(function, assigned=["__name__", "__doc__"])
    def call(*args, **kwargs):
        result = function(*args, **kwargs)
        for tensor in _tensors(result):
            found = backend.find_unwritten(tensor)
            if (found.beside or found.unwritten) and not _is_given(tensor, (args, kwargs)):
                _report(tensor, found, function.__name__, check and _who_left(tensor, found))
        for tensor in _tensors([*args, kwargs]) if check else ():
            found = backend.find_unwritten(tensor)
            if 0 < found.unwritten < tensor.numel() and (said := _who_left(tensor, found)):
                _report(tensor, found, function.__name__, said)
        return result

    def _who_left(tensor, found):
        return backend.who_left(tensor, found) if tensor.is_contiguous() else ""

    return call


def _tensors(value):
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.layout == torch.strided:
            yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _is_given(tensor, arguments):
    storages = [given.untyped_storage().data_ptr() for given in _tensors(arguments)]
    return tensor.untyped_storage().data_ptr() in storages


def _report(tensor, found, name, who_left):
    if found.beside and not who_left:
        raise RuntimeError(
            f"{name} returns a tensor whose element {_index(tensor, found.first_beside)} was "
            "computed from what lies past the end of an array, or before its start; "
            "check=True names the thread and the line."
        )
    if found.unwritten:
        said = (
            f"{name} returns a tensor of which {found.unwritten} of {tensor.numel()} elements were "
            f"never written; the first is {_index(tensor, found.first_unwritten)}."
        )
        warnings.warn(
            who_left or said,
            RuntimeWarning,
            stacklevel=3,  # where the function is called
        )


def _index(tensor, i):
    index = []
    for size in reversed(tensor.shape):
        i, k = divmod(i, size)
        index.insert(0, k)
    return index
