"""matmul, linear and quantized_linear, differentiable any number of times.

Their gradients are products again. Weights of quantized_linear are constants.
"""

import math

import torch
from torch import Tensor

from kernels.operators._register import IN_CPP, cast_inputs, gradient_of, operator

_matmul = operator(
    "matmul(Tensor A, Tensor B) -> Tensor",
    IN_CPP,
    lambda A, B: A.new_empty(A.shape[0], B.shape[1]),
)
_linear = operator(
    "linear(Tensor inp, Tensor weight, Tensor bias) -> Tensor",
    IN_CPP,
    lambda inp, weight, bias: inp.new_empty(inp.shape[0], weight.shape[0]),
)
cast_inputs(_matmul)
cast_inputs(_linear)


@gradient_of(_matmul, keeps="A B")
def _(ctx, dout, A, B):
    dA = _matmul(dout, B.t()) if ctx.needs_input_grad[0] else None
    dB = _matmul(A.t(), dout) if ctx.needs_input_grad[1] else None
    return dA, dB


@gradient_of(_linear, keeps="inp weight")
def _(ctx, dout, inp, weight):
    dinp, dweight, dbias = ctx.needs_input_grad
    ones = dout.new_ones(1, dout.shape[0])
    return (
        _matmul(dout, weight) if dinp else None,
        _matmul(dout.t(), inp) if dweight else None,
        _matmul(ones, dout)[0] if dbias else None,
    )


_quantized_linear = operator(
    "quantized_linear(Tensor inp, Tensor weight, Tensor scales) -> Tensor",
    "quantized_linear",
    lambda inp, weight, scales: inp.new_empty(inp.shape[0], weight.shape[0]),
)


@gradient_of(_quantized_linear, keeps="weight scales")
def _(ctx, dout, weight, scales):
    return _matmul(dout, _dequantized(weight, scales)), None, None


def _dequantized(weight, scales):
    """Return W (N, K): the numbers that quantized_linear multiplies with, of scales' type."""
    if weight.dtype == torch.uint8:  # 4 bits each, 8 added
        weight = torch.stack([weight & 15, weight >> 4], -1).flatten(1).to(torch.int8) - 8
    if scales.shape[0] > 1:  # one for each 128 columns, the last for what is left
        scales = scales.repeat_interleave(128, 0)[: weight.shape[1]]
    return weight.to(scales.dtype) * scales.t()


def matmul(A: Tensor, B: Tensor) -> Tensor:
    """Return A @ B for A: (M, K), B: (K, N); float32, or a half type, which tensor cores multiply.

    float32 is multiplied in float32. Transposed views and parts of matrices need no copy.
    """
    return _matmul(A, B)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias for x: (..., K), weight: (M, K), bias: (M); types as in matmul.

    A half type is rounded twice: the product, and the sum with bias.
    """
    rows = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = _matmul(rows, weight.t()) if bias is None else _linear(rows, weight, bias)
    return out if x.dim() == 2 else out.reshape(*x.shape[:-1], weight.shape[0])


def quantized_linear(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return x @ W.T for x: (..., K), float16 or bfloat16, and weights of 8 or 4 bits.

    W[n, k] = q[n, k] * scales[k // 128, n], or scales[0, n] where there is one a row; scales of x's
    type. weight is q as int8 (N, K), or two numbers a byte as uint8 (N, K / 2): q[n, 2 j] + 8 + 16
    * (q[n, 2 j + 1] + 8). K: a multiple of 32. The gradient of x is computed with W in x's type.
    """
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _quantized_linear(rows, weight, scales).reshape(*x.shape[:-1], weight.shape[0])
