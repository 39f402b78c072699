"""The arrays of a launch, on their own memory or on copies; watched together if they overlap."""

import math

import numpy as np

from helpers.simulator.arrays import element_bytes, make_array, size_bytes
from helpers.simulator.current import current
from helpers.simulator.elements import ELEMENTS, dtype_name
from helpers.simulator.errors import DtypeError, LaunchError
from helpers.simulator.unwritten import find_unwritten
from helpers.simulator.watch import AliasWatch, Watch


class Arguments:
    """The arrays of one launch as Arrays; `write_back` brings copies back to where they lie."""

    def __init__(self):
        self._copies = {}
        self._arrays = []  # address, Array
        self._unwritten = {}  # Array → its elements that nobody had written, its memory

    def array(self, name, given):
        """Return an Array on a HostArray's or HostTensor's own memory, or on a copy of it."""
        if given.element is None:
            known = ", ".join(ELEMENTS)
            raise DtypeError(f"argument {name} is {dtype_name(given.dtype)}; arrays can be {known}")
        if not given.shape:
            raise LaunchError(f"argument {name} has no dimensions; pass a number: {name}.item()")
        memory = given.memory() if given.is_in_place else self._copy(given)
        array = make_array(name, memory, given.shape, given.element)
        array.offset = given.offset
        self._arrays.append((memory.ctypes.data, array))
        found = find_unwritten(memory, given.element)
        if found is not None:
            self._unwritten[array] = found, memory
        return array

    def watch(self):
        """Watch what the kernel does to all of them; those that share memory, together."""
        for group in _overlapping(self._arrays):
            if len(group) == 1:
                ((_, array),) = group
                unwritten = self._unwritten_of(array)
                array.watch_with(Watch(array.element_text, False, unwritten), "global")
                continue
            begin = group[0][0]
            sizes = [element_bytes(array) for _, array in group]
            unit = math.gcd(*sizes, *(start - begin for start, _ in group))
            memory, watches = Watch(None, shared=False), []
            for (start, array), size in zip(group, sizes, strict=True):
                first = (start - begin) // unit
                watches.append(AliasWatch(array, first, size // unit, memory, watches))
                array.watch_with(watches[-1], "global")

    def _unwritten_of(self, array):
        """Return a function that tells which elements nobody has written; None if all are."""
        elements, _ = self._unwritten.get(array, (None, None))
        return None if elements is None else lambda index: elements[array.number(index)]

    def remark_on_unwritten(self, code):
        """Say which elements the kernel with this code has left as nobody has written them."""
        for array, (_, memory) in self._unwritten.items():
            left = find_unwritten(memory, array.dtype)
            if left is not None:
                first = array.element_text(array.index(int(left.argmax())))
                current.remark(
                    code,
                    code.co_firstlineno,
                    f"{left.sum()} of {array.size} elements of {array.name} are unwritten still; "
                    f"the first is {first}",
                )

    def _copy(self, given):
        """Return a copy of the memory; the same one if an array is passed twice."""
        if given.place not in self._copies:
            copy = given.memory()
            self._copies[given.place] = given, copy, copy.copy()
        return self._copies[given.place][1]

    def write_back(self):
        """Bring what the kernel wrote into copies back to where they came from."""
        for given, copy, before in self._copies.values():
            if not np.array_equal(copy, before):
                given.store(copy)


def _overlapping(arrays):
    """Group (address, Array) pairs whose memory overlaps."""
    groups, end = [], 0
    for start, array in sorted(arrays, key=lambda pair: pair[0]):
        if not groups or start >= end:
            groups.append([])
        groups[-1].append((start, array))
        end = max(end, start + size_bytes(array))
    return groups
