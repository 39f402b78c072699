"""Arrays as a kernel sees them: element by element, every index checked, C's conversions."""

import linecache
import math
import operator
import re
from functools import cache

from helpers.base.gpu import MAX_SHARED_BYTES, STATIC_SHARED_BYTES
from helpers.simulator.current import calling_frame, current, fault
from helpers.simulator.elements import HalfWords, as_integer, element_of
from helpers.simulator.errors import (
    DtypeError,
    HostOnlyError,
    OutOfRangeError,
    SharedMemoryError,
)
from helpers.simulator.operators import NoNumber
from helpers.simulator.undefined import Undefined
from helpers.simulator.watch import LocalWatch, NoWatch, ObservedWatch, Watch


class Array(NoNumber):
    """An array inside a kernel: a[i, j] reads a Python number, a[i, j] = x stores as C would.

    Also: len(a), a.shape, a.size (elements), a.dtype (an Element), a.name. Every index is checked;
    a negative one is out of range, as in CUDA.
    """

    __slots__ = ("_data", "_name", "_quiet", "dtype", "offset", "shape", "size", "space", "watch")

    def __init__(self, name, memory, shape, dtype):
        """`memory`: bytes in C order; `name`: text, or where to look for it (see `name`)."""
        self._name, self.shape, self.dtype, self.size = name, shape, dtype, math.prod(shape)
        self.offset = 0  # of its first byte in the memory that was made for it
        view = memoryview(memory)
        self._data = view.cast("B").cast(dtype.code, shape) if self.size else memoryview(b"")
        if dtype.is_floating_point and dtype.code == "H":
            self._data = HalfWords(self._data, dtype)
        self.watch_with(NoWatch())

    def watch_with(self, watch, space=None):
        """Tell `watch` of every access, but for reads of the indices in its `quiet`.

        `space`: "global" or "shared" if an observer of the launch is to be told as well.
        """
        self.space = space
        if space and current.observer is not None:
            watch = ObservedWatch(self, watch, current.observer)
        self.watch, self._quiet = watch, watch.quiet

    # The quick way first: a memoryview checks the upper bound and the type of an index by
    # itself. What it does not take is looked at again, slowly, to say what is wrong.
    def __getitem__(self, index):
        try:
            if min(index) < 0:
                raise IndexError
            value = self._data[index]
        except (TypeError, IndexError, NotImplementedError):
            raise self._wrong_index(index) from None
        if index not in self._quiet:
            self.watch.read(index)
        return value

    def __setitem__(self, index, value):
        try:
            if min(index) < 0:
                raise IndexError
            self._data[index] = value
        except (TypeError, IndexError, ValueError, NotImplementedError):
            self.poke(index, value)
        self.watch.write(index, value)

    def change(self, index, new_value, reads=True, compares=False):
        """Replace an element by `new_value(element)` in one atomic step; return the old value.

        `reads`: the new value depends on the old one; `compares`: it is a compare-and-swap.
        """
        old = self.peek(index)
        self.poke(index, new_value(old))
        self.watch.atomic(index, reads, compares)
        return old

    def peek(self, index):
        """Read an element unwatched."""
        if (error := self._wrong_index(index)) is not None:
            raise error
        return self._data[index]

    def as_element(self, value):
        """Return `value`, which an atomic takes, as it would be read back from this array."""
        if isinstance(value, Undefined):
            raise value.refused(f"an atomic on {self.name} gets")
        one = _one_element(self.dtype)
        one[0] = value
        return one[0]

    def element_text(self, index):
        """Print one element: s[3]."""
        parts = index if isinstance(index, tuple) else (index,)
        return f"{self.name}[{', '.join(_index_text(part) for part in parts)}]"

    def number(self, index):
        """Number an element in C order, from 0."""
        if not isinstance(index, tuple) and len(self.shape) == 1:
            return index
        number = 0
        for part, size in zip(
            index if isinstance(index, tuple) else (index,), self.shape, strict=True
        ):
            number = number * size + part
        return number

    def index(self, number):
        """Return the index of the element with a number in C order."""
        index = []
        for size in reversed(self.shape):
            number, part = divmod(number, size)
            index.insert(0, part)
        return tuple(index)

    @property
    def name(self):
        if isinstance(self._name, str):
            return self._name
        code, offset = self._name  # made in the kernel: the name is in the source
        line, _, column, _ = list(code.co_positions())[offset // 2]
        before = linecache.getline(code.co_filename, line)[: column or 0]
        source = before[before.rfind(";") + 1 :]  # a = shared_array(…); b = shared_array(…)
        found = re.match(r"\s*(\w+(?:\s*,\s*\w+)*)\s*(?::[^=]+)?=", source)
        names = re.split(r"\s*,\s*", found[1]) if found else ["array"]
        number = _commas(source[found.end() :]) if len(names) > 1 else 0
        self._name = names[number] if number < len(names) else "array"
        return self._name

    def advice(self):
        indices = ", ".join("ijklmn"[: len(self.shape)])
        return (
            f"{self.name} is an array; a kernel works on its elements, as in {self.name}[{indices}]"
        )

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        return f"{self.name}: {self.dtype} array of shape {self.shape}"

    def __iter__(self):
        raise fault(HostOnlyError, f"a kernel cannot iterate over {self.name}; loop over indices")

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise fault(
            HostOnlyError,
            f"{self.name}.{attribute}: inside a kernel an array has elements, a shape and a size, "
            "but no methods",
        )

    def poke(self, index, value):
        """Convert as C does and store, unwatched; or say what is wrong with index or value."""
        if (error := self._wrong_index(index)) is not None:
            raise error
        if self._data.readonly:
            raise fault(HostOnlyError, f"{self.name} is read-only")
        if isinstance(value, Undefined):
            raise value.refused(f"{self.element_text(index)} gets")
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            if self.dtype.is_floating_point:
                self._data[index] = float(value)
            else:
                self._data[index] = as_integer(value, self.dtype)
        except (TypeError, ValueError):
            advice = f"; {value.advice()}" if isinstance(value, NoNumber) else ""
            if value is None:
                advice = "; is a return missing in the function that gives it?"
            raise fault(
                DtypeError,
                f"{self.name} holds {self.dtype}, "
                f"it cannot store {value!r} ({type(value).__name__}){advice}",
            ) from None

    def _wrong_index(self, index):
        """Return the error for an index, or None if nothing is wrong with it."""
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) == len(self.shape) > 1:  # nearly always all is well: that is quick to see
            for part, size in zip(parts, self.shape, strict=True):
                if type(part) is not int or not 0 <= part < size:
                    break
            else:
                return None
        access = self.element_text(index)
        if any(isinstance(part, slice) or part is ... or part is None for part in parts):
            return fault(HostOnlyError, f"{access}: a kernel takes one element at a time")
        if len(parts) != len(self.shape):
            need = "1 index" if len(self.shape) == 1 else f"{len(self.shape)} indices in one []"
            return fault(
                OutOfRangeError, f"{access}: shape {self.shape} needs {need}, got {len(parts)}"
            )
        for part in parts if len(parts) > 1 else (index,):
            try:
                operator.index(part)
            except TypeError:
                if isinstance(part, Undefined):
                    return part.refused(f"{access}: an index is")
                if isinstance(part, NoNumber):
                    return fault(OutOfRangeError, f"{access}: {part.advice()}")
                advice = "; // divides integers" if isinstance(part, float) else ""
                return fault(
                    OutOfRangeError,
                    f"{access}: an index is an integer, not a {type(part).__name__}{advice}",
                )
        if not all(0 <= part < size for part, size in zip(parts, self.shape, strict=True)):
            return fault(OutOfRangeError, f"{access} is out of range, shape {self.shape}")
        return None


class Array1D(Array):
    """An Array with one index, which is most of them, and quicker."""

    __slots__ = ()

    def __getitem__(self, index):
        try:
            if index < 0:
                raise IndexError
            value = self._data[index]
        except (TypeError, IndexError):
            raise self._wrong_index(index) from None
        if index not in self._quiet:
            self.watch.read(index)
        return value

    def __setitem__(self, index, value):
        try:
            if index < 0:
                raise IndexError
            self._data[index] = value
        except (TypeError, IndexError, ValueError):
            self.poke(index, value)
        self.watch.write(index, value)


def _index_text(part):
    if isinstance(part, slice):
        return ":".join("" if x is None else str(x) for x in (part.start, part.stop))
    if isinstance(part, NoNumber):
        return part.name
    return "..." if part is ... else str(part)


def _commas(text):
    """Count the commas that are not in brackets."""
    count = depth = 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        count += letter == "," and depth == 0
    return count


def make_array(name, memory, shape, dtype):
    """Return the Array over `memory`."""
    return (Array1D if len(shape) == 1 else Array)(name, memory, shape, dtype)


@cache
def _one_element(dtype):
    return make_array("value", bytearray(dtype.bytes), (1,), dtype)


def shared_array(shape, dtype="float32"):
    """Declare `__shared__` memory: every thread of the block gets the same array here.

    One array for each place in the code, also inside a loop, as in CUDA. An element must be
    written before it is read. A block can have 227 KB in all.
    """
    frame = kernel_frame("shared_array")
    place = (id(frame.f_code), frame.f_lasti)
    shape, dtype = _shape_and_dtype(shape, dtype)
    array = current.shared.get(place)
    if array is None:
        array = _undefined(frame, shape, dtype)
        total = sum(size_bytes(a) for a in current.shared.values()) + size_bytes(array)
        if total > MAX_SHARED_BYTES:
            raise fault(
                SharedMemoryError,
                f"{array.name} brings shared memory to {total} bytes a block; {MAX_SHARED_BYTES} "
                f"is the most (H100, H200), {STATIC_SHARED_BYTES} without asking for more",
            )
        array.watch_with(Watch(array.element_text, shared=True), "shared")
        current.shared[place] = array
    elif (array.shape, array.dtype) != (shape, dtype):
        raise fault(
            SharedMemoryError,
            f"{array.name} has shape {array.shape} for another thread of the block, {shape} here",
        )
    return array


def local_array(shape, dtype="float32"):
    """Declare an array that belongs to one thread (registers or local memory).

    An element must be written before it is read.
    """
    array = _undefined(kernel_frame("local_array"), *_shape_and_dtype(shape, dtype))
    array.watch_with(LocalWatch(array))
    return array


def kernel_frame(function):
    """Return the frame of the kernel that calls `function`, which works only there."""
    if current.kernel is None:
        raise HostOnlyError(f"{function}() works only inside a kernel")
    return calling_frame()


def _shape_and_dtype(shape, dtype):
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    try:
        shape = tuple(map(operator.index, given))
    except TypeError:
        shape = (0,)
    if min(shape, default=0) <= 0:
        raise fault(SharedMemoryError, f"an array's sizes are positive integers, not {given}")
    element = element_of(dtype)
    if element is None:
        advice = "; sizes go in one tuple: (4, 4)" if isinstance(dtype, int) else ""
        raise fault(DtypeError, f"an array cannot hold {dtype}{advice}")
    return shape, element


def _undefined(frame, shape, dtype):
    memory = bytearray(dtype.undefined * math.prod(shape))
    return make_array((frame.f_code, frame.f_lasti), memory, shape, dtype)


def element_bytes(array):
    """Return how many bytes one element has."""
    return array.dtype.bytes


def size_bytes(array):
    """Return how many bytes all elements have."""
    return array.size * element_bytes(array)
