"""Several elements at a time: what CUDA does with float4 and its like."""

from sys import _getframe

from helpers.simulator.arrays import Array, element_bytes, kernel_frame
from helpers.simulator.current import fault
from helpers.simulator.errors import DtypeError


def as_vector(array, width):
    """See a kernel's array as vectors of `width` (2 or 4) elements of its last dimension.

        x4 = as_vector(x, 4)       // float4 *x4 = reinterpret_cast<float4 *>(x);
        a, b, c, d = x4[i]         // float4 v = x4[i];
        x4[i] = a, b, c, d         // x4[i] = make_float4(a, b, c, d);

    Each is one access, of at most 16 bytes, and lies at a multiple of its size. Raises DtypeError
    if the vectors are larger than that, do not fill the last dimension or are not aligned.
    """
    frame = kernel_frame("as_vector")
    if not isinstance(array, Array) or isinstance(array, Vectors):
        raise fault(DtypeError, f"as_vector takes an array of numbers, not {array!r}")
    size = width * element_bytes(array)
    if width not in (2, 4) or size > 16:
        raise fault(
            DtypeError,
            f"{width} elements of {array.name} are no vector: 2 or 4 elements, at most 16 bytes",
        )
    if array.shape[-1] % width:
        raise fault(
            DtypeError, f"{array.name} has shape {array.shape}, no multiple of {width} in a row"
        )
    if array.offset % size:
        raise fault(
            DtypeError,
            f"{array.name} begins {array.offset} bytes into its storage: misaligned for vectors of "
            f"{size} bytes",
        )
    return Vectors((frame.f_code, frame.f_lasti), array, width)


class Vectors(Array):
    """An Array whose elements are tuples."""

    __slots__ = ("_array", "_width")

    def __init__(self, name, array, width):
        self._name, self._array, self._width = name, array, width
        self.shape = (*array.shape[:-1], array.shape[-1] // width)
        self.dtype, self.size = array.dtype, array.size // width

    def __getitem__(self, index):
        elements = self._elements(index)
        self._array.watch.read_all(elements, _getframe(1))
        return tuple(self._array.peek(element) for element in elements)

    def __setitem__(self, index, values):
        elements = self._elements(index)
        if not isinstance(values, tuple | list) or len(values) != self._width:
            raise fault(
                DtypeError, f"{self.name} holds vectors of {self._width}, it cannot store {values}"
            )
        for element, value in zip(elements, values, strict=True):
            self._array.poke(element, value)
        self._array.watch.write_all(elements, values, _getframe(1))

    def change(self, index, new_value, reads=True, compares=False):
        raise fault(DtypeError, f"{self.element_text(index)} is a vector; atomics take a number")

    def _elements(self, index):
        """Return the indices of a vector's elements in the array."""
        if (error := self._wrong_index(index)) is not None:
            raise error
        *rows, last = index if isinstance(index, tuple) else (index,)
        numbers = range(last * self._width, (last + 1) * self._width)
        return [(*rows, number) if rows else number for number in numbers]
