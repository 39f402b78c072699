"""Atomic operations: read, change and write one element without another thread in between.

CUDA's atomicAdd(&out[i], x) is atomicAdd(out, i, x) here. All return the old value.
"""


def atomicAdd(array, index, value):
    """Add `value` to array[index]; return the old value."""
    return array.change(index, lambda old: old + array.as_element(value))


def atomicSub(array, index, value):
    """Subtract `value` from array[index]; return the old value."""
    return array.change(index, lambda old: old - array.as_element(value))


def atomicMin(array, index, value):
    """Store the smaller of array[index] and `value`; return the old value."""
    return array.change(index, lambda old: min(old, array.as_element(value)))


def atomicMax(array, index, value):
    """Store the larger of array[index] and `value`; return the old value."""
    return array.change(index, lambda old: max(old, array.as_element(value)))


def atomicExch(array, index, value):
    """Store `value`; return the old value."""
    return array.change(index, lambda _: value, reads=False)


def atomicCAS(array, index, compare, value):
    """Compare and swap: store `value` if array[index] equals `compare`; return the old value."""
    return array.change(index, lambda old: value if old == array.as_element(compare) else old)


def atomicAnd(array, index, value):
    """Keep the bits that `value` has too; return the old value."""
    return array.change(index, lambda old: old & array.as_element(value))


def atomicOr(array, index, value):
    """Set the bits that `value` has; return the old value."""
    return array.change(index, lambda old: old | array.as_element(value))


def atomicXor(array, index, value):
    """Flip the bits that `value` has; return the old value."""
    return array.change(index, lambda old: old ^ array.as_element(value))
