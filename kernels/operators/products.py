"""matmul, linear, what follows a linear layer in its kernel, and quantized_linear.

All are differentiable any number of times: their gradients are products and sums. Weights of
quantized_linear are constants.
"""

import math

import torch
from torch import Tensor

from kernels.operators._register import IN_CPP, cast_inputs, gradient_by, gradient_of, operator

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
gradient_by(_matmul, IN_CPP, keeps="A B")
gradient_by(_linear, IN_CPP, keeps="inp weight")

_linear_gelu = operator(
    "linear_gelu(Tensor inp, Tensor weight, Tensor bias, bool by_tanh) -> Tensor",
    IN_CPP,
    lambda inp, weight, bias, by_tanh: inp.new_empty(inp.shape[0], weight.shape[0]),
)
_linear_residual = operator(
    "linear_residual(Tensor inp, Tensor weight, Tensor bias, Tensor residual) -> Tensor",
    IN_CPP,
    lambda inp, weight, bias, residual: inp.new_empty(inp.shape[0], weight.shape[0]),
)
_linear_silu_gate = operator(
    "linear_silu_gate(Tensor inp, Tensor weight, Tensor bias) -> Tensor",
    IN_CPP,
    lambda inp, weight, bias: inp.new_empty(inp.shape[0], weight.shape[0] // 2),
)
cast_inputs(_linear_gelu)
cast_inputs(_linear_residual)
cast_inputs(_linear_silu_gate)
gradient_by(_linear_gelu, IN_CPP, keeps="inp weight bias by_tanh")
gradient_by(_linear_residual, IN_CPP, keeps="inp weight")
gradient_by(_linear_silu_gate, IN_CPP, keeps="inp weight bias")


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
    """Return x @ weight.T + bias for x: (..., K), weight: (N, K), bias: (N); types as in matmul.

    A half type is rounded once; with a bias and weights that are not contiguous twice: the product,
    and the sum with bias.
    """
    return _of_rows(_linear, x, weight, bias)


def linear_gelu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, approximate: str = "none"
) -> Tensor:
    """Return gelu(linear(x, weight, bias)); `approximate`: "none" or "tanh", as in PyTorch.

    Half types are rounded as in linear. The gradient computes the layer once more. ValueError for
    another `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate: expected "none" or "tanh", got {approximate!r}')
    return _of_rows(_linear_gelu, x, weight, bias, approximate == "tanh")


def linear_residual(
    x: Tensor, weight: Tensor, residual: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return linear(x, weight, bias) + residual; residual: (..., N). Rounded as linear."""
    residual = residual.reshape(math.prod(x.shape[:-1]), weight.shape[0])
    return _of_rows(_linear_residual, x, weight, bias, residual)


def linear_silu_gate(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return silu(gate) * up, (..., N); gate and up: the halves of linear(x, weight, bias).

    weight: (2 N, K), the rows of gate first; bias: (2 N). Half types are rounded as in linear. The
    gradient computes the layer once more.
    """
    return _of_rows(_linear_silu_gate, x, weight, bias)


def _of_rows(op, x, weight, bias, *more):
    """Call an operator that takes inp (rows, K) and bias (0) for none."""
    rows = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = op(rows, weight, rows.new_empty(0) if bias is None else bias, *more)
    return out if x.dim() == 2 else out.reshape(*x.shape[:-1], out.shape[-1])


def quantized_linear(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return x @ W.T for x: (..., K), float16 or bfloat16, and weights of 8 or 4 bits.

    W[n, k] = q[n, k] * scales[k // 128, n], or scales[0, n] where there is one a row; scales of x's
    type. weight is q as int8 (N, K), or two numbers a byte as uint8 (N, K / 2): q[n, 2 j] + 8 + 16
    * (q[n, 2 j + 1] + 8). K: a multiple of 32. The gradient of x is computed with W in x's type.
    """
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _quantized_linear(rows, weight, scales).reshape(*x.shape[:-1], weight.shape[0])
