"""Which names are CUDA's, so that one which is missing here is not taken for a slip of the pen."""

from functools import cache
from pathlib import Path


def is_of_cuda(name: str) -> bool:
    """Return whether CUDA has a function or a type of this name, in kernels or on the host."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    """Read the list: what the headers of CUDA 13.0's runtime, driver and device code declare."""
    return frozenset(Path(__file__).with_name("cuda_names.txt").read_text().split())
