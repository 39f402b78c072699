"""sgd, sgd_momentum, adamw: steps of optimizers, in place and without gradients of their own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.operators._register import operator

_sgd = operator(
    "sgd(Tensor(a!) param, Tensor grad, float lr) -> ()", "sgd.sgd_step", lambda *args: None
)
_sgd_momentum = operator(
    "sgd_momentum(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, float lr,"
    " float momentum, float weight_decay) -> ()",
    "optimizers.sgd_momentum_step",
    lambda *args: None,
)
_adamw = operator(
    "adamw(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs,"
    " int step, float lr, float beta1, float beta2, float eps, float weight_decay) -> ()",
    "optimizers.adamw_step",
    lambda *args: None,
)


@torch.no_grad()
def sgd(param: Tensor, grad: Tensor, lr: float) -> None:
    """Subtract lr * grad from param, in place; one shape, float32, param contiguous."""
    _sgd(param, grad, lr)


@torch.no_grad()
def sgd_momentum(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffers: Sequence[Tensor],
    lr: float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
) -> None:
    """Do a step of torch.optim.SGD for a list of parameters, in place and in one launch.

    All float32, lists of one length; params and momentum_buffers, zeros at first, contiguous.
    """
    _sgd_momentum(params, grads, momentum_buffers, lr, momentum, weight_decay)


@torch.no_grad()
def adamw(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """Do step number `step`, from 1 on, of torch.optim.AdamW for a list of parameters, in place.

    All float32, lists of one length; params, exp_avgs and exp_avg_sqs, zeros at first, contiguous.
    """
    _adamw(params, grads, exp_avgs, exp_avg_sqs, step, lr, *betas, eps, weight_decay)
