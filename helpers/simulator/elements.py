"""The types that elements of an array can have, and C's conversions to them."""

import math
import struct
from functools import cache
from typing import NamedTuple

import torch


class _Element(NamedTuple):
    code: str  # how a memoryview reads one element
    bytes: int
    undefined: bytes  # what memory holds that nobody has written


ELEMENTS = {
    torch.float32: _Element("f", 4, struct.pack("f", math.nan)),
    torch.float64: _Element("d", 8, struct.pack("d", math.nan)),
    torch.float16: _Element("H", 2, b"\xff\x7f"),  # NaN; half types are read as 16-bit words
    torch.bfloat16: _Element("H", 2, b"\xff\x7f"),
    torch.bool: _Element("?", 1, b"\x01"),
    **{
        dtype: _Element(code, size, b"\xcd" * size)
        for dtype, code, size in (
            (torch.int8, "b", 1),
            (torch.int16, "h", 2),
            (torch.int32, "i", 4),
            (torch.int64, "q", 8),
            (torch.uint8, "B", 1),
            (torch.uint16, "H", 2),
            (torch.uint32, "I", 4),
            (torch.uint64, "Q", 8),
        )
    },
}


class HalfWords:
    """float16 or bfloat16 elements kept as 16-bit words."""

    def __init__(self, words, dtype):
        self._words, self._values = words, _half_values(dtype)
        self._pack = _float16_word if dtype == torch.float16 else _bfloat16_word
        self.readonly = words.readonly

    def __getitem__(self, index):
        return self._values[self._words[index]]

    def __setitem__(self, index, value):
        self._words[index] = self._pack(value)


@cache
def _half_values(dtype):
    """List the 65,536 values of a half type."""
    return torch.arange(65536, device="cpu").to(torch.int16).view(dtype).tolist()


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


def as_integer(value, dtype):
    """Convert to an integer type as a GPU does: cut off the fraction, clamp, keep the low bits."""
    signed, bits = dtype.is_signed, 8 * ELEMENTS[dtype].bytes
    if not hasattr(value, "__index__"):
        value = float(value)
        wide = max(bits, 32)
        low, high = (-(1 << wide - 1), (1 << wide - 1) - 1) if signed else (0, (1 << wide) - 1)
        value = 0 if math.isnan(value) else int(min(max(value, low), high))
        value = min(max(value, low), high)  # a float cannot hold 2**63 - 1
    value = int(value) & (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def dtype_name(dtype):
    """Print a dtype without "torch."."""
    return str(dtype).removeprefix("torch.")
