"""Stands in for PyTorch in the browser: the few functions that the page's kernels and checks use.

A tensor is a NumPy array with a tensor's methods; float32 where PyTorch has it, on the CPU. What is
not here says so.
"""

import math
from types import SimpleNamespace

import numpy as np

dtype = np.dtype
float16, float32, float64 = map(np.dtype, ("f2", "f4", "f8"))
complex64, complex128 = map(np.dtype, ("c8", "c16"))
int8, int16, int32, int64 = map(np.dtype, ("i1", "i2", "i4", "i8"))
uint8, uint16, uint32, uint64, bool = map(np.dtype, ("u1", "u2", "u4", "u8", "?"))
bfloat16 = None  # NumPy has none
inf, nan, pi = math.inf, math.nan, math.pi
__version__ = "on NumPy, in a browser"
cuda = SimpleNamespace(is_available=lambda: False)


def __getattr__(name):
    raise AttributeError(f"torch.{name} is not on this page, whose torch is small; NumPy is here")


class Tensor(np.ndarray):
    """A NumPy array with the methods of a tensor."""

    is_cuda = False
    device = "cpu"

    def __getattr__(self, name):
        raise AttributeError(f"a tensor's {name} is not on this page, whose torch is small")

    def __repr__(self):
        text = np.array2string(np.asarray(self), separator=", ", prefix="tensor(")
        return f"tensor({text})"

    __str__ = __repr__

    def __format__(self, spec):
        return format(self.item(), spec) if self.size == 1 and spec else str(self)

    def __array_finalize__(self, of):
        pass

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array.view(Tensor)

    def __getitem__(self, index):
        return tensor_of(super().__getitem__(index))

    def to(self, to, copy=False):
        return self.astype(to, copy=copy) if isinstance(to, np.dtype) else self

    def double(self):
        return self.astype(float64)

    def float(self):
        return self.astype(float32)

    def long(self):
        return self.astype(int64)

    def int(self):
        return self.astype(int32)

    def view(self, *shape):
        if shape and isinstance(shape[0], type | np.dtype):
            return super().view(*shape)
        return self.reshape(*shape)

    def sort(self, dim=-1):
        order = np.argsort(np.asarray(self), axis=dim, kind="stable")
        values = np.take_along_axis(np.asarray(self), order, dim)
        return SimpleNamespace(values=values.view(Tensor), indices=order.view(Tensor))

    def flip(self, *dims):
        return np.flip(self, dims)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def split(self, size):
        return [self[i : i + size] for i in range(0, len(self), size)] or [self]

    def nan_to_num(self, nan, posinf, neginf=0.0):
        return np.nan_to_num(self, nan=nan, posinf=posinf, neginf=neginf)

    def numel(self):
        return np.asarray(self).size

    def is_floating_point(self):
        return self.dtype.kind == "f"

    def is_complex(self):
        return self.dtype.kind == "c"

    def dim(self):
        return self.ndim

    def detach(self):
        return self

    def cpu(self):
        return self

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def clone(self):
        return self.copy()

    def numpy(self):
        return np.asarray(self)

    def element_size(self):
        return self.itemsize

    def unique(self):
        return np.unique(self)

    def abs(self):
        return np.abs(self)

    def sqrt(self):
        return np.sqrt(self)

    def square(self):
        return np.square(self)

    def isnan(self):
        return np.isnan(self)

    def fill_(self, value):
        self[...] = value
        return self

    def copy_(self, values):
        self[...] = values
        return self

    def zero_(self):
        return self.fill_(0)


def tensor_of(array, dtype=None):
    """Return an array or a number as a tensor."""
    return np.asarray(array, dtype).view(Tensor)


def from_numpy(array):
    return array.view(Tensor)


def tensor(values, dtype=None, device=None):
    array = np.array(values, dtype)
    is_wide = dtype is None and array.dtype == float64 and not isinstance(values, np.ndarray)
    return tensor_of(array, float32 if is_wide else None)


def _sizes(sizes):
    return tuple(sizes[0]) if sizes and isinstance(sizes[0], tuple | list) else sizes


def zeros(*sizes, dtype=float32, device=None):
    return np.zeros(_sizes(sizes), dtype).view(Tensor)


def ones(*sizes, dtype=float32, device=None):
    return np.ones(_sizes(sizes), dtype).view(Tensor)


def full(sizes, value, dtype=None, device=None):
    return np.full(sizes, value, dtype or (float32 if isinstance(value, float) else None)).view(
        Tensor
    )


def empty(*sizes, dtype=float32, device=None):
    """New memory, all NaN (whole numbers: the largest), so that what is not written shows."""
    kind = np.dtype(dtype)
    value = math.nan if kind.kind == "f" else True if kind.kind == "b" else np.iinfo(kind).max
    return np.full(_sizes(sizes), value, kind).view(Tensor)


def zeros_like(like):
    return zeros(like.shape, dtype=like.dtype)


def empty_like(like):
    return empty(like.shape, dtype=like.dtype)


def arange(*range, dtype=None, device=None):
    is_whole = all(hasattr(number, "__index__") for number in range)
    return np.arange(*range, dtype=dtype or (int64 if is_whole else float32)).view(Tensor)


class Generator:
    """A generator of random numbers, NumPy's: others than PyTorch's."""

    def __init__(self, device=None):
        self.numbers = np.random.default_rng(0)

    def manual_seed(self, seed):
        self.numbers = np.random.default_rng(seed)
        return self


default_generator = Generator()


def manual_seed(seed):
    return default_generator.manual_seed(seed)


def randn(*sizes, generator=default_generator, dtype=float32, device=None):
    return tensor_of(generator.numbers.standard_normal(_sizes(sizes)), dtype)


def rand(*sizes, generator=default_generator, dtype=float32, device=None):
    return tensor_of(generator.numbers.random(_sizes(sizes)), dtype)


def randint(*bounds_and_sizes, generator=default_generator, dtype=int64, device=None):
    *bounds, sizes = bounds_and_sizes
    return tensor_of(generator.numbers.integers(*bounds, size=sizes), dtype)


def randperm(n, generator=default_generator, device=None):
    return tensor_of(generator.numbers.permutation(n))


def cat(tensors, dim=0):
    return np.concatenate(tensors, axis=dim).view(Tensor)


def stack(tensors, dim=0):
    return np.stack(tensors, axis=dim).view(Tensor)


def cartesian_prod(*tensors):
    return np.stack(np.meshgrid(*tensors, indexing="ij"), -1).reshape(-1, len(tensors)).view(Tensor)


def equal(a, b):
    return np.array_equal(a, b)


# ---- what helpers.checks sets for `poisoned`: `empty` is so always


def get_deterministic_debug_mode():
    return 0


def set_deterministic_debug_mode(mode):
    pass
