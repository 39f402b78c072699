"""attention."""

import torch
from torch import Tensor

from kernels.operators._register import (
    cast_inputs,
    gradient_by,
    gradient_of,
    operator,
    second_derivative,
)

# float32 without a gradient, and with nothing that attention.cu does not know
_plain = operator(
    "attention_forward(Tensor q, Tensor k, Tensor v, bool causal) -> Tensor",
    "attention",
    lambda q, k, v, causal: q.new_empty(q.shape),
)
_forward = operator(
    "flash_attention_forward(Tensor q, Tensor k, Tensor v, Tensor? lengths, bool causal,"
    " bool lower_right, int window) -> (Tensor out, Tensor lse)",
    "flash_attention",
    lambda q, *rest: (
        q.new_empty(q.shape),
        q.new_empty(q.shape[:-1], dtype=torch.float32),
    ),
)
_backward = operator(
    "flash_attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,"
    " Tensor? lengths, bool causal, bool lower_right, int window)"
    " -> (Tensor dq, Tensor dk, Tensor dv)",
    "flash_attention",
    lambda dout, q, k, v, *rest: tuple(x.new_empty(x.shape) for x in (q, k, v)),
)
cast_inputs(_plain)
cast_inputs(_forward)
gradient_by(
    _forward,
    _backward,
    keeps="q k v out lse lengths causal lower_right window",
    constants="lse",
)


@gradient_of(_backward, keeps="dout q k v lengths causal lower_right window")
def _(ctx, *grads_and_kept):
    *grads, dout, q, k, v, lengths, causal, lower_right, window = grads_and_kept
    mask = _seen(q, k, lengths, causal, lower_right, window)

    def forward(q, k, v):
        return _composed(q, k, v, mask)

    gradients = second_derivative(forward, tuple(grads), dout, q, k, v)
    return *gradients, None, None, None, None, None, None


def _seen(q, k, lengths, causal, lower_right, window):
    """Return which keys each query sees, (1 or B, 1, S_q, S_kv)."""
    S_q, S_kv = q.shape[2], k.shape[2]
    query, key = torch.arange(S_q, device=q.device)[:, None], torch.arange(S_kv, device=q.device)
    ends = torch.full((1,), S_kv, device=q.device) if lengths is None else lengths.clamp(0, S_kv)
    ends = ends[:, None, None, None]
    place = query + (ends - S_q if lower_right else 0)
    seen = (key < ends).expand(-1, 1, S_q, S_kv)
    if causal or window:
        seen = seen & (key <= place)
    return seen & (key > place - window) if window else seen


def _composed(q, k, v, seen):
    """Return attention by PyTorch's operations, in float32: all S_q × S_kv weights are held."""
    dtype, group = q.dtype, q.shape[1] // max(1, k.shape[1])
    q, k, v = q.float(), k.float(), v.float()
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
    blind = ~seen.any(-1, keepdim=True)  # of no key the softmax is NaN
    return (scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0) @ v).to(dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    *,
    window: int | None = None,
    lengths: Tensor | None = None,
    lower_right: bool = False,
) -> Tensor:
    """Return softmax(q k^T / sqrt(D)) v for each batch entry and head.

    q: (B, H, S_q, D), k and v: (B, H_kv, S_kv, D), H a multiple of H_kv: the heads of a group share
    one of k and v. D up to 256; float32 or a half type. lengths: (B) int32, the keys of each batch
    entry; None: S_kv. Query i stands at key i, with lower_right at key i + length - S_q, the last
    query at the last key. causal: it sees no key behind its place. window: it sees that many keys,
    which end at its place. A query that sees no key gives 0.

    Gradients take memory linear in S_q and S_kv; those of second order compute the weights by
    PyTorch's operations and hold all S_q × S_kv of them. On sm_90 q's gradient in half types is
    added up by atomics: its last bits may differ each time. ValueError for a window below 1.
    """
    if window is not None and window < 1:
        raise ValueError(f"window: expected at least one key, got {window}")
    inputs = (q, k, v)
    differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    extended = window is not None or lengths is not None or lower_right
    grouped = q.dim() == k.dim() == 4 and q.shape[1] != k.shape[1]
    more = differentiable or extended or grouped or q.shape[-1] > 128
    if more or q.dtype != torch.float32 or torch.is_autocast_enabled(q.device.type):
        return _forward(*inputs, lengths, causal, lower_right, window or 0)[0]
    return _plain(*inputs, causal)
