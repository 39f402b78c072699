"""matmul, linear and quantized_linear, differentiable any number of times.

Their gradients are products again. Weights of quantized_linear are constants.
"""

import math

import torch
from torch import Tensor

from kernels.operators._register import built, cast_inputs, gradient_of, operator


def _run_matmul(A, B):
    A, B = _in_lines(A), _in_lines(B)
    if _uses_tensor_cores(A):
        return built("matmul_tensor_core").matmul_tensor_core(A, B, False)
    return built("matmul").matmul(A, B)


def _run_linear(inp, weight, bias):
    if bias.dtype != inp.dtype or bias.shape != weight.shape[:1]:
        wanted, got = (inp.dtype, list(weight.shape[:1])), (bias.dtype, list(bias.shape))
        raise RuntimeError("bias: expected {}, shape {}, got {}, shape {}".format(*wanted, *got))
    if _uses_tensor_cores(inp):
        return _run_matmul(inp, weight.t()).add_(bias)
    out = bias.repeat(inp.shape[0], 1)
    built("matmul").matmul_into(out, _in_lines(inp), _in_lines(weight.t()), 1.0, 1.0)
    return out


def _in_lines(matrix):
    """Return a matrix as the kernel files take it: its rows or its columns without gaps."""
    if matrix.dim() == 2:
        (rows, cols), (row_stride, col_stride) = matrix.shape, matrix.stride()
        by_rows = col_stride == 1 and row_stride >= cols
        by_cols = row_stride == 1 and col_stride >= rows
        if by_rows or by_cols:
            return matrix
    return matrix.contiguous()


def _uses_tensor_cores(A):
    """Return whether the GPU's tensor cores take these numbers without loss."""
    if A.dtype == torch.bfloat16 and A.is_cuda:
        return torch.cuda.get_device_capability(A.device) >= (8, 0)
    return A.dtype in (torch.float16, torch.bfloat16)


_matmul = operator(
    "matmul(Tensor A, Tensor B) -> Tensor",
    _run_matmul,
    lambda A, B: A.new_empty(A.shape[0], B.shape[1]),
)
_linear = operator(
    "linear(Tensor inp, Tensor weight, Tensor bias) -> Tensor",
    _run_linear,
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
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = _matmul(rows, weight.t()) if bias is None else _linear(rows, weight, bias)
    return out.reshape(*x.shape[:-1], weight.shape[0])


def quantized_linear(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return x @ W.T for x: (..., K), float16 or bfloat16, and weights of 8 or 4 bits.

    W[n, k] = q[n, k] * scales[k // 128, n], or scales[0, n] where there is one a row; scales of x's
    type. weight is q as int8 (N, K), or two numbers a byte as uint8 (N, K / 2): q[n, 2 j] + 8 + 16
    * (q[n, 2 j + 1] + 8). K: a multiple of 32. The gradient of x is computed with W in x's type.
    """
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _quantized_linear(rows, weight, scales).reshape(*x.shape[:-1], weight.shape[0])
