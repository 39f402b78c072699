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
    scale = q.shape[-1] ** -0.5
    scores = (q @ k.mT).float() * scale  # (B, H, S_q, S_kv)
    if causal:
        seen = torch.ones_like(scores, dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = scores.softmax(-1)
    dweights = (dout @ v.mT).float()
    dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True)) * scale
    dscores, weights = dscores.to(q.dtype), weights.to(q.dtype)
    return dscores @ k, dscores.mT @ q, weights.mT @ dout, None


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Return softmax(q k^T / sqrt(D)) v for each batch entry and head.

    q: (B, H, S_q, D), k and v: (B, H, S_kv, D); D up to 128; float32 or a half type. causal: query
    i sees keys 0 to i. The kernel file has no backward: PyTorch's operations compute the weights
    again, and hold all S_q × S_kv of them.
    """
    return _forward(q, k, v, causal)
