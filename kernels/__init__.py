"""The kernel files as operators of PyTorch: `from kernels import softmax`.

They are differentiable twice, and work under torch.compile and, after a first call, in CUDA graphs.
Under torch.autocast, products, conv2d and attention are computed in its type, gelu and transpose in
that which comes, all others in float32. Tensors are the GPU's; on a machine without a GPU they are
the CPU's. Importing builds nothing: the first call of an operator builds its kernel file, and the
first of all the C++ that calls it (operators/_register.cpp); both are in the cache from then on.

RuntimeError, in the words of the kernel file, for a tensor that it does not take;
NotImplementedError for derivatives in forward mode.
"""

from kernels.operators.activations import gelu, relu, softmax
from kernels.operators.attention import attention
from kernels.operators.collectives import all_reduce
from kernels.operators.convolution import conv2d, depthwise_conv2d, max_pool2d
from kernels.operators.fourier import fft, fft2, ifft, ifft2, irfft, rfft
from kernels.operators.losses import cross_entropy
from kernels.operators.norms import batch_norm2d, layer_norm, rms_norm
from kernels.operators.optimizers import adamw, sgd, sgd_momentum
from kernels.operators.products import (
    linear,
    linear_gelu,
    linear_residual,
    linear_silu_gate,
    matmul,
    quantized_linear,
)
from kernels.operators.random import dropout
from kernels.operators.tensors import square, sum, transpose, vector_add

__all__ = [
    "adamw",
    "all_reduce",
    "attention",
    "batch_norm2d",
    "conv2d",
    "cross_entropy",
    "depthwise_conv2d",
    "dropout",
    "fft",
    "fft2",
    "gelu",
    "ifft",
    "ifft2",
    "irfft",
    "layer_norm",
    "linear",
    "linear_gelu",
    "linear_residual",
    "linear_silu_gate",
    "matmul",
    "max_pool2d",
    "quantized_linear",
    "relu",
    "rfft",
    "rms_norm",
    "sgd",
    "sgd_momentum",
    "softmax",
    "square",
    "sum",
    "transpose",
    "vector_add",
]


def __getattr__(name):
    if name == "MnistCNN":  # imported late: `python -m kernels.mnist_cnn` imports this file first
        from kernels.mnist_cnn import MnistCNN

        return MnistCNN
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
