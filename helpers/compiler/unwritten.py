"""Report what a compiled function returns without having written it."""

import functools
import warnings

import torch

from helpers.cuda_on_cpu import CpuBackend


def reported(function, backend: CpuBackend):
    """Return `function` of the `backend` with a look at the tensors that it made and returns.

    RuntimeWarning: elements that still hold what new memory is filled with. RuntimeError: elements
    that were computed from what lies beside an array.
    """

    @functools.wraps(function, assigned=["__name__", "__doc__"])
    def call(*args, **kwargs):
        result = function(*args, **kwargs)
        for tensor in _tensors(result):
            found = backend.find_unwritten(tensor)
            if (found.beside or found.unwritten) and not _is_given(tensor, (args, kwargs)):
                _report(tensor, found, function.__name__)
        return result

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


def _report(tensor, found, name):
    if found.beside:
        raise RuntimeError(
            f"{name} returns a tensor whose element {_index(tensor, found.first_beside)} was "
            "computed from what lies past the end of an array, or before its start; "
            "check=True names the thread and the line."
        )
    if found.unwritten:
        warnings.warn(
            f"{name} returns a tensor of which {found.unwritten} of {tensor.numel()} elements were "
            f"never written; the first is {_index(tensor, found.first_unwritten)}.",
            RuntimeWarning,
            stacklevel=3,  # where the function is called
        )


def _index(tensor, i):
    index = []
    for size in reversed(tensor.shape):
        i, k = divmod(i, size)
        index.insert(0, k)
    return index
