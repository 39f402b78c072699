"""layer_norm, rms_norm, batch_norm2d: computed in float32, their second derivatives by PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.operators._register import (
    IN_CPP,
    cast_inputs,
    gradient_by,
    gradient_of,
    operator,
    second_derivative,
)


def _like(*tensors):
    return tuple(tensor.new_empty(tensor.shape) for tensor in tensors)


def _of_rows(inp):
    return inp.new_empty(inp.shape[:-1], dtype=torch.float32)


# eps is for the second derivative; the kernel has rstd.
_layer_norm_forward = operator(
    "layer_norm_forward(Tensor inp, Tensor weight, Tensor bias, float eps)"
    " -> (Tensor out, Tensor mean, Tensor rstd)",
    "layer_norm",
    lambda inp, weight, bias, eps: (*_like(inp), _of_rows(inp), _of_rows(inp)),
)
_layer_norm_backward = operator(
    "layer_norm_backward(Tensor dout, Tensor inp, Tensor weight, Tensor mean, Tensor rstd,"
    " float eps) -> (Tensor dinp, Tensor dweight, Tensor dbias)",
    "layer_norm",
    lambda dout, inp, weight, mean, rstd, eps: _like(inp, weight, weight),
)
cast_inputs(_layer_norm_forward, torch.float32)
gradient_by(
    _layer_norm_forward,
    _layer_norm_backward,
    keeps="inp weight mean rstd eps",
    constants="mean rstd",
)


@gradient_of(_layer_norm_backward, keeps="dout inp weight eps")
def _(ctx, *grads_and_kept):
    *grads, dout, inp, weight, eps = grads_and_kept

    def forward(inp, weight, bias):
        return F.layer_norm(inp, weight.shape, weight, bias, eps)

    bias = torch.zeros_like(weight)
    ddout, dinp, dweight, _ = second_derivative(forward, tuple(grads), dout, inp, weight, bias)
    return ddout, dinp, dweight, None, None, None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) * weight + bias over the last dimension.

    x: (..., C); weight, bias: (C); float32 or a half type, one for all.
    """
    return _layer_norm_forward(x, weight, bias, eps)[0]


_rms_norm_forward = operator(
    "rms_norm_forward(Tensor inp, Tensor weight, float eps) -> (Tensor out, Tensor rstd)",
    "rms_norm",
    lambda inp, weight, eps: (*_like(inp), _of_rows(inp)),
)
_rms_norm_backward = operator(
    "rms_norm_backward(Tensor dout, Tensor inp, Tensor weight, Tensor rstd, float eps)"
    " -> (Tensor dinp, Tensor dweight)",
    "rms_norm",
    lambda dout, inp, weight, rstd, eps: _like(inp, weight),
)
cast_inputs(_rms_norm_forward, torch.float32)
gradient_by(_rms_norm_forward, _rms_norm_backward, keeps="inp weight rstd eps", constants="rstd")


@gradient_of(_rms_norm_backward, keeps="dout inp weight eps")
def _(ctx, *grads_and_kept):
    *grads, dout, inp, weight, eps = grads_and_kept

    def forward(inp, weight):
        # F.rms_norm's own second derivative on a GPU cannot be traced by torch.compile
        return inp * (inp.square().mean(-1, keepdim=True) + eps).rsqrt() * weight

    return *second_derivative(forward, tuple(grads), dout, inp, weight), None, None


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Return x / sqrt(mean of x^2 + eps) * weight over the last dimension.

    x: (..., C); weight: (C); float32 or a half type, one for both.
    """
    return _rms_norm_forward(x, weight, eps)[0]


_batch_norm2d_train = operator(
    "batch_norm2d_train(Tensor inp, Tensor(a!) running_mean, Tensor(b!) running_var, Tensor weight,"
    " Tensor bias, float momentum, float eps) -> (Tensor out, Tensor mean, Tensor var)",
    "batch_norm2d",
    lambda inp, running_mean, running_var, weight, *rest: _like(inp, weight, weight),
)
_batch_norm2d_backward = operator(
    "batch_norm2d_backward(Tensor dout, Tensor inp, Tensor mean, Tensor var, Tensor weight,"
    " float eps) -> (Tensor dinp, Tensor dweight, Tensor dbias)",
    "batch_norm2d",
    lambda dout, inp, mean, var, weight, eps: _like(inp, weight, weight),
)
_batch_norm2d_forward = operator(
    "batch_norm2d_forward(Tensor inp, Tensor mean, Tensor var, Tensor weight, Tensor bias,"
    " float eps) -> Tensor",
    "batch_norm2d",
    lambda inp, mean, var, weight, bias, eps: inp.new_empty(inp.shape),
)
cast_inputs(_batch_norm2d_train, torch.float32)
cast_inputs(_batch_norm2d_forward, torch.float32)
gradient_by(_batch_norm2d_train, IN_CPP, keeps="inp mean var weight eps", constants="mean var")


@gradient_of(_batch_norm2d_backward, keeps="dout inp weight eps")
def _(ctx, *grads_and_kept):
    *grads, dout, inp, weight, eps = grads_and_kept

    def forward(inp, weight, bias):  # as F.batch_norm in training, in parts: see rms_norm
        mean = inp.mean((0, 2, 3), keepdim=True)
        var = inp.var((0, 2, 3), correction=0, keepdim=True)
        normed = (inp - mean) * (var + eps).rsqrt()
        return normed * weight[:, None, None] + bias[:, None, None]

    bias = torch.zeros_like(weight)
    ddout, dinp, dweight, _ = second_derivative(forward, tuple(grads), dout, inp, weight, bias)
    return ddout, dinp, None, None, dweight, None


@gradient_of(_batch_norm2d_forward, keeps="inp mean var weight eps")
def _(ctx, dout, inp, mean, var, weight, eps):
    rstd = (var + eps).rsqrt()[:, None, None]
    normed = (inp - mean[:, None, None]) * rstd
    dweight, dbias = (dout * normed).sum((0, 2, 3)), dout.sum((0, 2, 3))
    return dout * rstd * weight[:, None, None], None, None, dweight, dbias, None


def batch_norm2d(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) * weight + bias, channel by channel.

    x: (N, C, H, W), all others (C); float32. `training` takes the statistics of the batch and moves
    the running ones towards them, in place; else the running ones are taken, and the gradients come
    from PyTorch's operations.
    """
    if not training:
        return _batch_norm2d_forward(x, running_mean, running_var, weight, bias, eps)
    running = running_mean, running_var
    return _batch_norm2d_train(x, *running, weight, bias, momentum, eps)[0]
