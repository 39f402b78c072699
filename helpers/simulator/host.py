"""What a launch is given in place of pointers, in the same terms: NumPy arrays, PyTorch's tensors.

PyTorch is not imported here: where nobody has imported it, nobody has a tensor.
"""

import sys

import numpy as np

from helpers.simulator.elements import element_of


def host_array(value):
    """Return a NumPy array or a tensor as a HostArray; None if `value` is neither."""
    if isinstance(value, np.ndarray):
        return HostArray(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return HostTensor(value.detach())
    return None


class HostArray:
    """A NumPy array: its shape, the type of its elements (None: no kernel knows it), its bytes."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype, self.element = array.shape, array.dtype, element_of(array.dtype)

    @property
    def is_in_place(self):
        """Whether a kernel can work on its own memory: in one piece, in C's order."""
        return self._array.flags.c_contiguous

    @property
    def place(self):
        """What two arrays have in common that are the same elements in the same order."""
        array = self._array
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype

    @property
    def offset(self):
        """Of its first byte, in the memory that was made for it; 0 for a copy."""
        if not self.is_in_place:
            return 0
        owner = self._array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start, first = (a.__array_interface__["data"][0] for a in (self._array, owner))
        return start - first

    def memory(self):
        """Return its elements as an array of bytes: its own memory if it is in place, or a copy."""
        memory = np.ascontiguousarray(self._array).reshape(-1).view(np.uint8)
        memory.flags.writeable = self._array.flags.writeable
        return memory

    def store(self, memory):
        """Bring the bytes of a copy back."""
        self._array[...] = memory.view(self.dtype).reshape(self.shape)


class HostTensor:
    """A tensor of PyTorch on any device; see HostArray."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype
        self.element = element_of(tensor.dtype)

    @property
    def is_in_place(self):
        return self._tensor.device.type == "cpu" and self._tensor.is_contiguous()

    @property
    def place(self):
        return self._tensor.data_ptr(), self.shape, self._tensor.stride(), self.dtype

    @property
    def offset(self):
        if not self._tensor.is_contiguous():
            return 0
        return self._tensor.storage_offset() * self._tensor.element_size()

    def memory(self):
        torch = sys.modules["torch"]
        return self._tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()

    def store(self, memory):
        torch = sys.modules["torch"]
        copy = torch.from_numpy(memory).view(self.dtype).reshape(self.shape)
        self._tensor.copy_(copy)
