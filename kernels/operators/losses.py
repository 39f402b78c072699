"""cross_entropy."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.operators._register import gradient_by, gradient_of, operator, second_derivative

_forward = operator(
    "cross_entropy_forward(Tensor logits, Tensor labels) -> Tensor",
    "cross_entropy",
    lambda logits, labels: logits.new_empty((), dtype=torch.float32),
)
_backward = operator(
    "cross_entropy_backward(Tensor dloss, Tensor logits, Tensor labels) -> Tensor",
    "cross_entropy",
    lambda dloss, logits, labels: logits.new_empty(logits.shape),
)
gradient_by(_forward, _backward, keeps="logits labels")


@gradient_of(_backward, keeps="dloss logits labels")
def _(ctx, grad, dloss, logits, labels):
    def forward(logits):
        return F.cross_entropy(logits.float(), labels)

    return *second_derivative(forward, (grad,), dloss, logits), None


def cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return the mean of -log softmax(logits[n])[target[n]], float32; logits: (N, C).

    logits: float32, float16 or bfloat16, computed with in float32: autocast has nothing to convert.
    target: (N), int64; as in PyTorch rows with -100 do not count (all of them: NaN). Any other
    class outside 0 to C - 1 makes the loss NaN. NotImplementedError: label_smoothing other than 0.
    """
    if label_smoothing != 0:
        raise NotImplementedError(
            f"cross_entropy: expected label_smoothing 0, got {label_smoothing}: the kernel knows "
            "hard labels only, torch.nn.functional.cross_entropy knows smooth ones"
        )
    return _forward(logits, target)
