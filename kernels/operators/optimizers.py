"""sgd."""

import torch
from torch import Tensor

from kernels.operators._register import built, contiguous, operator


def _run(param, grad, lr):
    built("sgd").sgd_step(param, contiguous(grad), lr)
    torch.autograd.graph.increment_version(param)


_sgd = operator("sgd(Tensor(a!) param, Tensor grad, float lr) -> ()", _run, lambda *args: None)


@torch.no_grad()
def sgd(param: Tensor, grad: Tensor, lr: float) -> None:
    """Subtract lr * grad from param, in place; one shape, float32, param contiguous."""
    _sgd(param, grad, lr)
