"""fft, ifft, rfft, irfft, fft2, ifft2.

The transform is its own matrix's product: symmetric, and its inverse is its conjugate over n. So
the gradient of a transform is a transform the other way.
"""

import torch
from torch import Tensor

from kernels.operators._register import cast_inputs, gradient_of, operator


def _like(inp):
    return torch.empty_like(inp, memory_format=torch.contiguous_format)


def _rfft_like(inp):
    return inp.new_empty(*inp.shape[:-1], inp.shape[-1] // 2 + 1, dtype=torch.complex64)


def _irfft_like(inp, n):
    return inp.new_empty(*inp.shape[:-1], n, dtype=torch.float32)


_fft = operator("fft_forward(Tensor inp) -> Tensor", "fft", _like)
_ifft = operator("fft_inverse(Tensor inp) -> Tensor", "fft", _like)
_rfft = operator("rfft(Tensor inp) -> Tensor", "fft", _rfft_like)
_irfft = operator("irfft(Tensor inp, int n) -> Tensor", "fft", _irfft_like)
_fft2 = operator("fft2(Tensor inp) -> Tensor", "fft", _like)
_ifft2 = operator("ifft2(Tensor inp) -> Tensor", "fft", _like)
cast_inputs(_rfft, torch.float32)  # the others take complex numbers, which autocast leaves alone


@gradient_of(_fft)
def _(ctx, dout):
    return dout.shape[-1] * _ifft(dout)


@gradient_of(_ifft)
def _(ctx, dout):
    return _fft(dout) / dout.shape[-1]


@gradient_of(_fft2)
def _(ctx, dout):
    return dout.shape[-1] * dout.shape[-2] * _ifft2(dout)


@gradient_of(_ifft2)
def _(ctx, dout):
    return _fft2(dout) / (dout.shape[-1] * dout.shape[-2])


def _pairs(spectrum: Tensor, n: int, factor: float) -> Tensor:
    """Return the spectrum with what stands for two values of the full one, k and n - k, scaled."""
    factors = spectrum.new_full((n // 2 + 1,), factor, dtype=torch.float32)
    factors[:1].fill_(1)
    if n % 2 == 0:
        factors[-1:].fill_(1)
    return spectrum * factors


@gradient_of(_rfft, keeps="inp.shape")
def _(ctx, dout, shape):
    n = shape[-1]
    return n * _irfft(_pairs(dout, n, 0.5), n)


@gradient_of(_irfft, keeps="n")
def _(ctx, dout, n):
    return _pairs(_rfft(dout), n, 2.0) / n, None


def fft(x: Tensor) -> Tensor:
    """Return the discrete Fourier transform of the last dimension; (..., n), complex64."""
    return _fft(x)


def ifft(x: Tensor) -> Tensor:
    """Return the inverse transform of the last dimension, with its 1 / n; (..., n), complex64."""
    return _ifft(x)


def rfft(x: Tensor) -> Tensor:
    """Return the first n // 2 + 1 values of the transform of real rows; (..., n), float32."""
    return _rfft(x)


def irfft(x: Tensor, n: int) -> Tensor:
    """Return the n real numbers whose `rfft` is x; (..., n // 2 + 1), complex64."""
    return _irfft(x, n)


def fft2(x: Tensor) -> Tensor:
    """Return the transform of the last two dimensions; (..., H, W), complex64."""
    return _fft2(x)


def ifft2(x: Tensor) -> Tensor:
    """Return the inverse transform of the last two dimensions; (..., H, W), complex64."""
    return _ifft2(x)
