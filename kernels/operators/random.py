"""dropout. The other functions of philox.cu make numbers of nothing: they have no gradient."""

import torch
from torch import Tensor

from kernels.operators._register import cast_inputs, gradient_by, operator


def _like_input(inp, *_):
    return inp.new_empty(inp.shape)


_dropout = operator(
    "philox_dropout(Tensor inp, float p, int seed, int offset) -> Tensor", "philox", _like_input
)
cast_inputs(_dropout, torch.float32)
gradient_by(_dropout, _dropout, keeps="p seed offset")


def dropout(x: Tensor, p: float, seed: int, offset: int = 0) -> Tensor:
    """Return x / (1 - p) where Philox's number of `seed` exceeds p, else 0; any shape, float32.

    The same seed and offset, a multiple of 4, drop the same elements: no mask is kept for backward.
    """
    return _dropout(x, p, seed, offset)
