"""attention."""

import torch
from torch import Tensor

from kernels.operators._register import cast_inputs, gradient_of, operator

_forward = operator(
    "attention_forward(Tensor q, Tensor k, Tensor v, bool causal) -> Tensor",
    "attention",
    lambda q, k, v, causal: q.new_empty(q.shape),
)
cast_inputs(_forward)


@gradient_of(_forward, keeps="q k v causal")
def _(ctx, dout, q, k, v, causal):
    dtype, scale = q.dtype, q.shape[-1] ** -0.5
    q, k, v, dout = q.float(), k.float(), v.float(), dout.float()
    scores = q @ k.mT * scale  # (B, H, S_q, S_kv)
    if causal:
        seen = torch.ones_like(scores, dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    weights, dweights = scores.softmax(-1), dout @ v.mT
    dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True)) * scale
    gradients = dscores @ k, dscores.mT @ q, weights.mT @ dout
    return *(gradient.to(dtype) for gradient in gradients), None


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Return softmax(q k^T / sqrt(D)) v for each batch entry and head.

    q: (B, H, S_q, D), k and v: (B, H, S_kv, D); D up to 128; float32 or a half type. causal: query
    i sees keys 0 to i. The kernel file has no backward: PyTorch's operations compute the weights
    again, in float32, and hold all S_q × S_kv of them.
    """
    return _forward(q, k, v, causal)
