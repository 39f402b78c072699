"""The shape of a launch, and where in it the running thread stands."""

import operator
from typing import NamedTuple

from helpers.base.gpu import MAX_BLOCK, MAX_GRID, MAX_THREADS
from helpers.simulator.current import current
from helpers.simulator.errors import HostOnlyError, LaunchError
from helpers.simulator.operators import NoNumber


class dim3(NamedTuple):
    """Three sizes, as for a grid or a block: dim3(16, 16) is 16 × 16 × 1."""

    x: int
    y: int = 1
    z: int = 1


class Place(NoNumber):
    """threadIdx, blockIdx, blockDim or gridDim: x, y and z as the running thread sees them."""

    __slots__ = ("name", "x", "y", "z")

    def __init__(self, name):
        self.name = name

    def set(self, xyz):
        self.x, self.y, self.z = xyz

    def clear(self):
        for axis in "xyz":
            if hasattr(self, axis):
                delattr(self, axis)

    def __getattr__(self, axis):  # Python comes here only while x, y and z are not set
        if axis in ("x", "y", "z"):
            raise HostOnlyError(f"{self.name}.{axis} has a value only inside a kernel")
        raise AttributeError(f"{self.name} has x, y and z, but no {axis}")

    def __getitem__(self, _):
        self._refuse()

    def __iter__(self):
        self._refuse()

    def advice(self):
        return f"{self.name} has three parts; take one, as in {self.name}.x"

    def __repr__(self):
        if not hasattr(self, "x"):
            return f"{self.name}: has values only inside a kernel"
        return f"({self.x}, {self.y}, {self.z})"


threadIdx = Place("threadIdx")
blockIdx = Place("blockIdx")
blockDim = Place("blockDim")
gridDim = Place("gridDim")


def cdiv(a, b):
    """Divide integers, rounding up: how many blocks of b cover a."""
    return -(-a // b)


def launch_shape(grid, block):
    """Return grid and block as dim3, or raise LaunchError."""
    grid = _sizes("grid", grid, MAX_GRID)
    block = _sizes("block", block, MAX_BLOCK)
    threads = block.x * block.y * block.z
    if threads > MAX_THREADS:
        raise LaunchError(
            f"block {tuple(block)} has {threads} threads, a block can have {MAX_THREADS}"
        )
    return grid, block


def _sizes(what, given, limits):
    values = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(values) <= 3:
        raise LaunchError(f"{what} has {len(values)} sizes, CUDA knows x, y and z")
    sizes = []
    for axis, value, limit in zip("xyz", values, limits, strict=False):
        try:
            size = operator.index(value)
        except TypeError:
            if isinstance(value, float):
                problem = f"{value}, not an integer; cdiv(n, block) rounds up"
            else:
                kind = type(value).__name__
                problem = f"a {kind}, not an integer; call launch(kernel, grid, block, *args)"
            raise LaunchError(f"{what}.{axis} is {problem}") from None
        if not 1 <= size <= limit:
            raise LaunchError(f"{what}.{axis} is {size}, it can be 1 to {limit}")
        sizes.append(size)
    return dim3(*sizes)


def thread_number():
    """Number the running thread within its block, x fastest: 32 in a row are a warp."""
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)


def thread_name():
    """Name the running thread: "block 0, thread 3"."""
    return f"{block_name()}, thread {place_text(threadIdx, blockDim)}"


current.thread_name = thread_name


def block_name():
    """Name the running block: "block 0"."""
    return f"block {place_text(blockIdx, gridDim)}"


def running_thread():
    """Return gridDim, blockDim, blockIdx, threadIdx as tuples; None where no thread runs."""
    places = gridDim, blockDim, blockIdx, threadIdx
    if not all(hasattr(place, axis) for place in places for axis in "xyz"):
        return None
    return tuple((place.x, place.y, place.z) for place in places)


def place_text(place, shape):
    """Print x, y, z with as many numbers as `shape` has dimensions."""
    if shape.z > 1:
        return f"({place.x}, {place.y}, {place.z})"
    return f"({place.x}, {place.y})" if shape.y > 1 else f"{place.x}"
