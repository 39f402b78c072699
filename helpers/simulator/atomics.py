"""Atomic operations: read, change and write one element without another thread in between.

CUDA's atomicAdd(&out[i], x) is atomicAdd(out, i, x) here. All return the old value, and raise
DtypeError for what is no array, or no array of integers where bits are changed.
"""

from helpers.simulator.arrays import Array
from helpers.simulator.current import current, fault
from helpers.simulator.errors import DtypeError, HostOnlyError


def atomicAdd(array, index, value):
    """Add `value` to array[index]; return the old value."""
    return _numbers(array).change(index, lambda old: old + array.as_element(value))


def atomicSub(array, index, value):
    """Subtract `value` from array[index]; return the old value."""
    return _numbers(array).change(index, lambda old: old - array.as_element(value))


def atomicMin(array, index, value):
    """Store the smaller of array[index] and `value`; return the old value."""
    return _numbers(array).change(index, lambda old: min(old, array.as_element(value)))


def atomicMax(array, index, value):
    """Store the larger of array[index] and `value`; return the old value."""
    return _numbers(array).change(index, lambda old: max(old, array.as_element(value)))


def atomicExch(array, index, value):
    """Store `value`; return the old value."""
    return _numbers(array).change(index, lambda _: value, reads=False)


def atomicCAS(array, index, compare, value):
    """Compare and swap: store `value` if array[index] equals `compare`; return the old value."""
    return _numbers(array).change(
        index,
        lambda old: value if old == array.as_element(compare) else old,
        compares=True,
    )


def atomicAnd(array, index, value):
    """Keep the bits that `value` has too; return the old value."""
    return _integers(array).change(index, lambda old: old & array.as_element(value))


def atomicOr(array, index, value):
    """Set the bits that `value` has; return the old value."""
    return _integers(array).change(index, lambda old: old | array.as_element(value))


def atomicXor(array, index, value):
    """Flip the bits that `value` has; return the old value."""
    return _integers(array).change(index, lambda old: old ^ array.as_element(value))


def _numbers(array):
    """Return an array of which an atomic may change an element."""
    if not isinstance(array, Array):
        if current.kernel is None:
            raise HostOnlyError("atomics work only inside a kernel")
        raise fault(
            DtypeError,
            "an atomic takes an array, an index and a value, as in atomicAdd(out, i, x); "
            f"{array!r} is no array of the kernel",
        )
    return array


def _integers(array):
    if _numbers(array).dtype.is_floating_point:
        raise fault(
            DtypeError,
            f"{array.name} holds {array.dtype}, whose bits no atomic changes",
        )
    return array
