"""The types that elements of an array can have, and C's conversions to them."""

import math
import struct
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np


@dataclass(frozen=True, eq=False)
class Element:
    """A type of elements. Equal to whatever else names it: torch.int8, np.int8, "int8"."""

    name: str
    code: str  # how a memoryview reads one element
    bytes: int
    undefined: bytes  # what memory holds that nobody has written
    is_floating_point: bool = False
    is_signed: bool = True

    def __eq__(self, other):
        return element_of(other) is self

    __hash__ = object.__hash__

    def __str__(self):
        return self.name


_HALF_NAN = b"\xff\x7f"
ELEMENTS = {
    element.name: element
    for element in (
        Element("float32", "f", 4, struct.pack("f", math.nan), is_floating_point=True),
        Element("float64", "d", 8, struct.pack("d", math.nan), is_floating_point=True),
        # half types are read as 16-bit words
        Element("float16", "H", 2, _HALF_NAN, is_floating_point=True),
        Element("bfloat16", "H", 2, _HALF_NAN, is_floating_point=True),
        Element("bool", "?", 1, b"\x01", is_signed=False),
        *(
            Element(name, code, size, b"\xcd" * size, is_signed=not name.startswith("u"))
            for name, code, size in (
                ("int8", "b", 1),
                ("int16", "h", 2),
                ("int32", "i", 4),
                ("int64", "q", 8),
                ("uint8", "B", 1),
                ("uint16", "H", 2),
                ("uint32", "I", 4),
                ("uint64", "Q", 8),
            )
        ),
    )
}


def element_of(dtype):
    """Return the Element that PyTorch, NumPy or Python calls so: torch.int8, np.int8, int.

    None if there is none, or its bytes stand in another order than this machine's.
    """
    if isinstance(dtype, Element):
        return dtype
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return ELEMENTS.get(dtype_name(dtype))
    try:
        dtype = np.dtype(dtype) if dtype is not None else None  # which NumPy takes for float64
    except TypeError:
        return None
    return ELEMENTS.get(dtype.name) if dtype is not None and dtype.isnative else None


class HalfWords:
    """float16 or bfloat16 elements kept as 16-bit words."""

    def __init__(self, words, element):
        self._words, self._values = words, _half_values(element.name)
        self._pack = _float16_word if element.name == "float16" else _bfloat16_word
        self.readonly = words.readonly

    def __getitem__(self, index):
        return self._values[self._words[index]]

    def __setitem__(self, index, value):
        self._words[index] = self._pack(value)


@cache
def _half_values(name):
    """List the 65,536 values of a half type."""
    words = np.arange(65536, dtype=np.uint32)
    if name == "float16":
        return words.astype(np.uint16).view(np.float16).tolist()
    return (words << 16).view(np.float32).tolist()


def _float16_word(value):
    try:
        return int.from_bytes(struct.pack("<e", value), "little")
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00  # infinity
    except struct.error:
        raise TypeError from None


def _bfloat16_word(value):
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80
    except struct.error:
        raise TypeError from None
    if value != value:
        return 0x7FFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # the upper half, rounded to nearest even


def as_integer(value, element):
    """Convert to an integer type as a GPU does: cut off the fraction, clamp, keep the low bits.

    A NaN becomes 0, or of 64 bits the highest alone.
    """
    signed, bits = element.is_signed, 8 * element.bytes
    if not hasattr(value, "__index__"):
        value = float(value)
        wide = max(bits, 32)
        low, high = (-(1 << wide - 1), (1 << wide - 1) - 1) if signed else (0, (1 << wide) - 1)
        if math.isnan(value):
            value = 1 << 63 if wide == 64 else 0
        else:
            value = int(min(max(value, low), high))
            value = min(max(value, low), high)  # a float cannot hold 2**63 - 1
    value = int(value) & (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def dtype_name(dtype):
    """Print a dtype without "torch."."""
    return str(dtype).removeprefix("torch.")
