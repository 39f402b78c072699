"""conv2d, depthwise_conv2d and max_pool2d."""

import torch
from torch import Tensor

from kernels.operators._register import IN_CPP, cast_inputs, gradient_by, gradient_of, operator

_LAST = torch.channels_last
_HALVES = torch.float16, torch.bfloat16
_HOW = "int[2] stride, int[2] padding, int[2] dilation, int groups, bool tf32"


def _is_last(x):
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=_LAST)


def _conv2d(schema, fake):
    name = schema.partition("(")[0]
    halves = "conv2d_half." + name.replace("conv2d", "conv2d_half")
    schema = f"{schema}, {_HOW}) -> Tensor"  # half types have no tf32
    return operator(schema, "conv2d", fake, channels_last=True, halves=halves)


def _images(like, *shape):
    if like.dtype in _HALVES:
        return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=_LAST)
    out = like.new_empty(shape)
    return out.contiguous(memory_format=_LAST) if _is_last(like) else out


def _filters(like, *shape):  # of float32 they are contiguous
    return _images(like, *shape) if like.dtype in _HALVES else like.new_empty(shape)


def _conv2d_shape(inp, weight, bias, stride, padding, dilation, *_):
    sides = (inp.shape[2:], weight.shape[2:], stride, padding, dilation)
    H, W = ((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d in zip(*sides, strict=True))
    return _images(inp, len(inp), len(weight), H, W)


_forward = _conv2d("conv2d_forward(Tensor inp, Tensor weight, Tensor? bias", _conv2d_shape)
_backward_input = _conv2d(
    "conv2d_backward_input(Tensor dout, Tensor weight, int H, int W",
    lambda dout, weight, H, W, stride, padding, dilation, groups, tf32: _images(
        dout, len(dout), weight.shape[1] * groups, H, W
    ),
)
_backward_weight = _conv2d(
    "conv2d_backward_weight(Tensor dout, Tensor inp, int kH, int kW",
    lambda dout, inp, kH, kW, stride, padding, dilation, groups, tf32: _filters(
        dout, dout.shape[1], inp.shape[1] // groups, kH, kW
    ),
)
cast_inputs(_forward)


# Each of the three is linear in both tensors, so that their gradients are one another.
_KEPT = "stride padding dilation groups tf32"
gradient_by(_forward, IN_CPP, keeps=f"inp weight {_KEPT}")
gradient_by(_backward_input, IN_CPP, keeps=f"dout weight {_KEPT}")
gradient_by(_backward_weight, IN_CPP, keeps=f"dout inp {_KEPT}")


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    tf32: bool = False,
) -> Tensor:
    """Return what torch.nn.functional.conv2d does, for float32, float16 or bfloat16.

    x: (N, C, H, W), weight: (C_out, C / groups, kH, kW), bias: (C_out). Of float32 contiguous or
    channels last; `tf32`: with 11 bits of each factor, here and in the gradients; else about as
    exact as float32, whatever PyTorch's switch for cuDNN says. Half types, and all under autocast,
    have sums in float32 and their channels last, results and gradients too: x and weight in another
    layout are copied into it, once for the call and its gradients.
    """
    in_halves = x.dtype in _HALVES or torch.is_autocast_enabled(x.device.type)
    if in_halves and x.dim() == weight.dim() == 4:
        x, weight = (tensor.contiguous(memory_format=_LAST) for tensor in (x, weight))
    return _forward(x, weight, bias, stride, padding, dilation, groups, tf32)


_max_pool2d_forward = operator(
    "max_pool2d_forward(Tensor inp, int size) -> (Tensor out, Tensor index)",
    "max_pool2d",
    lambda inp, size: tuple(
        inp.new_empty(*inp.shape[:2], inp.shape[2] // size, inp.shape[3] // size, dtype=dtype)
        for dtype in (inp.dtype, torch.int32)
    ),
)
_max_pool2d_backward = operator(
    "max_pool2d_backward(Tensor dout, Tensor index, int size, int H, int W) -> Tensor",
    "max_pool2d",
    lambda dout, index, size, H, W: dout.new_empty(*dout.shape[:2], H, W),
)
cast_inputs(_max_pool2d_forward, torch.float32)


@gradient_of(_max_pool2d_forward, keeps="index size inp.shape", constants="index")
def _(ctx, dout, index, size, shape):
    return _max_pool2d_backward(dout, index, size, *shape[2:]), None


@gradient_of(_max_pool2d_backward, keeps="index")
def _(ctx, grad, index):
    chosen = grad.flatten(2).gather(2, index.flatten(2).long())
    return chosen.view(index.shape), None, None, None, None


def max_pool2d(x: Tensor, kernel_size: int) -> Tensor:
    """Return the largest number of each window, side by side; x: (N, C, H, W), float32.

    Rows and columns that fill no window are left out.
    """
    return _max_pool2d_forward(x, kernel_size)[0]


def _depthwise_size(n, k, stride, padding, dilation):
    return (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1


def _depthwise_shape(inp, weight, bias, *how):
    sizes = [_depthwise_size(inp.shape[d], weight.shape[d - 1], *how) for d in (2, 3)]
    return inp.new_empty(*inp.shape[:2], *sizes)


_depthwise_forward = operator(
    "depthwise_conv2d_forward(Tensor inp, Tensor weight, Tensor? bias, int stride, int padding, "
    "int dilation) -> Tensor",
    "depthwise_conv2d",
    _depthwise_shape,
)
_depthwise_backward_input = operator(
    "depthwise_conv2d_backward_input(Tensor dout, Tensor weight, int H, int W, int stride, "
    "int padding, int dilation) -> Tensor",
    "depthwise_conv2d",
    lambda dout, weight, H, W, *how: dout.new_empty(*dout.shape[:2], H, W),
)
_depthwise_backward_weight = operator(
    "depthwise_conv2d_backward_weight(Tensor dout, Tensor inp, int kH, int kW, int stride, "
    "int padding, int dilation) -> Tensor",
    "depthwise_conv2d",
    lambda dout, inp, kH, kW, *how: dout.new_empty(dout.shape[1], kH, kW),
)
cast_inputs(_depthwise_forward, torch.float32)


gradient_by(_depthwise_forward, IN_CPP, keeps="inp weight stride padding dilation")
gradient_by(_depthwise_backward_input, IN_CPP, keeps="dout weight stride padding dilation")
gradient_by(_depthwise_backward_weight, IN_CPP, keeps="dout inp stride padding dilation")


def depthwise_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Tensor:
    """Return the cross-correlation of each channel of x with a filter of its own, plus bias.

    x: (N, C, H, W), weight: (C, kH, kW), bias: (C); float32.
    """
    return _depthwise_forward(x, weight, bias, stride, padding, dilation)
