"""relu, gelu, softmax."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.operators._register import (
    cast_inputs,
    gradient_by,
    gradient_of,
    operator,
    second_derivative,
)


def _like_last(*tensors):
    return tensors[-1].new_empty(tensors[-1].shape)


_relu_forward = operator("relu_forward(Tensor inp) -> Tensor", "relu", _like_last)
_relu_backward = operator("relu_backward(Tensor dout, Tensor out) -> Tensor", "relu", _like_last)
cast_inputs(_relu_forward, torch.float32)
gradient_by(_relu_forward, _relu_backward, keeps="out")
gradient_by(_relu_backward, _relu_backward, keeps="out")


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0) for each element, NaN for NaN; any shape, float32."""
    return _relu_forward(x)


_gelu_forward = operator("gelu_forward(Tensor inp) -> Tensor", "gelu", _like_last)
_gelu_backward = operator("gelu_backward(Tensor dout, Tensor inp) -> Tensor", "gelu", _like_last)
gradient_by(_gelu_forward, _gelu_backward, keeps="inp")


@gradient_of(_gelu_backward, keeps="dout inp")
def _(ctx, grad, dout, inp):
    return second_derivative(F.gelu, (grad,), dout, inp)


def gelu(x: Tensor) -> Tensor:
    """Return x / 2 (1 + erf(x / sqrt 2)) for each element; any shape, float32 or a half type."""
    return _gelu_forward(x)


_softmax_forward = operator("softmax_forward(Tensor inp) -> Tensor", "softmax", _like_last)
_softmax_backward = operator(
    "softmax_backward(Tensor dout, Tensor out) -> Tensor", "softmax", _like_last
)
cast_inputs(_softmax_forward, torch.float32)
gradient_by(_softmax_forward, _softmax_backward, keeps="out")


@gradient_of(_softmax_backward, keeps="dout out")
def _(ctx, grad, dout, out):
    weighted = [(each * out).sum(-1, keepdim=True) for each in (dout, grad)]
    return _softmax_backward(grad, out), grad * (dout - weighted[0]) - dout * weighted[1]


def softmax(x: Tensor) -> Tensor:
    """Return the softmax over the last dimension; (..., C), float32 or a half type."""
    return _softmax_forward(x)
