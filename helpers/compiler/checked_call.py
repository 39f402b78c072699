"""Call a function of a checked build with tensors from anywhere."""

import functools
import warnings

import torch

from helpers.compiler import tools
from helpers.device import DEVICE


def checked_call(function):
    """Return `function`, which takes CPU tensors, for tensors of any device.

    A tensor elsewhere, or in memory whose end the CPU backend does not know (torch.from_numpy), is
    copied with the whole storage that it is a view of; tensors that share one still do. After the
    call the storages are copied back. Results are on the device of the first tensor argument. What
    a kernel does that is no error but worth a word becomes a warning. An error has `stopped_at`,
    the thread where it was found as CpuBackend.stopped_at tells it.
    """

    @functools.wraps(function, assigned=["__name__", "__doc__"])
    def call(*args, **kwargs):
        copies = _Copies()
        args, kwargs = copies.bring(args), copies.bring(kwargs)
        try:
            with tools.cpu_backend().freed_memory_unused():
                result = function(*args, **kwargs)
        except RuntimeError as error:
            error.stopped_at = tools.cpu_backend().stopped_at(str(error))
            raise
        finally:
            for remark in tools.cpu_backend().take_remarks():
                warnings.warn(remark, stacklevel=2)
        copies.write_back()
        return copies.give(result)

    return call


class _Copies:
    def __init__(self):
        self.storages = {}  # address → (storage, its copy)
        self.device = None

    def bring(self, value):
        """Return the argument with its tensors copied, where they have to be."""
        if isinstance(value, torch.Tensor):
            self.device = self.device or value.device
            return self._bring_tensor(value)
        return _for_each(self.bring, value)

    def write_back(self):
        for original, copy in self.storages.values():
            original.copy_(copy)

    def give(self, value):
        """Return the result with its tensors on the caller's device."""
        if not isinstance(value, torch.Tensor):
            return _for_each(self.give, value)
        for original, copy in self.storages.values():
            if value.untyped_storage().data_ptr() == copy.data_ptr():
                return _view(value, original)  # of an argument
        return value.to(self.device or DEVICE)

    def _bring_tensor(self, tensor):
        if tensor.device.type not in ("cpu", "cuda"):
            return tensor  # for the function to refuse
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if tensor.device.type == "cpu" and (not address or tools.cpu_backend().knows(address)):
            return tensor
        if address not in self.storages:
            # UntypedStorage's own ways to copy do not ask for guarded memory
            copy = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")
            self.storages[address] = storage, copy.untyped_storage().copy_(storage)
        return _view(tensor, self.storages[address][1])


def _for_each(function, value):
    if isinstance(value, dict):
        return {name: function(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(function(item) for item in value)
    return value


def _view(tensor, storage):
    """Return a tensor like `tensor`, of another storage."""
    empty = torch.empty(0, dtype=tensor.dtype, device=storage.device)
    return empty.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
