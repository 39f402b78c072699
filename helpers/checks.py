"""Checks that raise: they name the first element that is wrong, what was expected, what came."""

import inspect
from contextlib import contextmanager

import numpy as np
import torch

# Relative tolerance by the coarser of the two dtypes: some tens of roundings (float32: 170,
# float16: 4, bfloat16: 4), enough for sums of thousands of terms that float32 adds up.
_RTOL = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


def check_close(actual, expected, rtol=None, atol=None, name=None):
    """Raise AssertionError unless `actual` equals `expected` up to rounding.

    Tensors on any device, NumPy arrays, lists and plain numbers. An element passes when
    |actual - expected| <= atol + rtol * |expected|. Without tolerances, integers and bools must
    be equal; for floats rtol comes from the coarser dtype of the two (float64 1e-10, float32
    1e-5, float16 2e-3, bfloat16 1.6e-2) and atol is rtol times the root mean square of
    `expected`: a long sum that happens to end near zero still has the rounding errors of its
    terms, and the other sums show how large those are. NaN never passes.

    Shapes must match, dtypes as well up to the precision of floats (a float32 result may be
    checked against a float64 reference). Prints one line when everything is right.
    """
    name = name or "out"
    got, want, rtol = _compare(actual, expected, rtol, atol, name)
    size = "×".join(map(str, got.shape)) or "one number,"
    within = f"all within {rtol:g}" if rtol else "all equal" if not atol else f"all within {atol:g}"
    print(f"{name}: {size} {_dtype_name(got)}, {within}")


def check_grad(fn, ref, *inputs, rtol=None, atol=None):
    """Check the results and all gradients of `fn` against those of `ref`.

    `fn` runs in float32 and `ref` in float64, on copies of `inputs`; floating-point tensors get
    gradients, everything else (labels, sizes) passes as it is. Both are given the same random
    upstream gradients. Raises AssertionError as `check_close` does; prints one line.
    """
    names = _parameter_names(ref, fn, count=len(inputs))
    low, low_outs = _run(fn, inputs, torch.float32)
    high, high_outs = _run(ref, inputs, torch.float64)
    assert len(low_outs) == len(high_outs), (
        f"expected {len(high_outs)} results, got {len(low_outs)}"
    )
    for i, (got, want) in enumerate(zip(low_outs, high_outs, strict=True)):
        _compare(got, want, rtol, atol, "out" if len(low_outs) == 1 else f"out {i}")

    generator = torch.Generator().manual_seed(0)
    upstream = [torch.randn(out.shape, generator=generator) for out in high_outs]
    low_grads = _gradients(low_outs, low, upstream, "the function under test")
    high_grads = _gradients(high_outs, high, upstream, "the reference")
    checked = []
    for name, got, want in zip(names, low_grads, high_grads, strict=True):
        if got is None and want is None:
            continue
        assert got is not None or not want.any(), f"{name} gets no gradient, the reference has one"
        if got is not None:
            _compare(got, torch.zeros_like(got) if want is None else want, rtol, atol, f"d{name}")
        checked.append(name)
    print(f"result and gradients of {', '.join(checked)} agree (float32 against float64)")


@contextmanager
def expect_error(error_type):
    """Run a block that must raise `error_type`; print the first line of the error's message."""
    try:
        yield
    except error_type as error:
        lines = str(error).strip().splitlines()
        print(f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": "))
    else:
        kinds = error_type if isinstance(error_type, tuple) else (error_type,)
        names = " or ".join(kind.__name__ for kind in kinds)
        raise AssertionError(f"expected {names}, but nothing was raised")


def _compare(actual, expected, rtol, atol, name):
    """Raise AssertionError at the first difference; return both tensors and the rtol used."""
    got, want = _as_tensor(actual), _as_tensor(expected)
    if got.shape != want.shape:
        raise AssertionError(f"{name}: expected shape {_shape(want)}, got {_shape(got)}")
    plain = not all(isinstance(value, torch.Tensor | np.ndarray) for value in (actual, expected))
    inexact = got.is_floating_point() or got.is_complex()
    if got.dtype != want.dtype and not plain and not _same_kind(got, want):
        raise AssertionError(f"{name}: expected {_dtype_name(want)}, got {_dtype_name(got)}")
    if rtol is None:
        rtol = _default_rtol(got, want)
    want = want.to(got.device)
    if got.numel() == 0:
        return got, want, rtol

    if not inexact and not want.is_floating_point() and not rtol and not atol:
        a, b = got.to(torch.int64), want.to(torch.int64)
        wrong, allowed = a != b, None
    else:
        wide = torch.complex128 if got.is_complex() or want.is_complex() else torch.float64
        a, b = got.detach().to(wide), want.detach().to(wide)
        size = b.abs()
        finite = size.isfinite()
        size = torch.where(finite, size, 0.0)
        if atol is None:
            atol = rtol * (size.square().sum() / finite.sum().clamp(min=1)).sqrt().item()
        allowed = atol + rtol * size
        # `<=` is false for NaN; equal infinities pass by the first half.
        wrong = ~((a == b) | ((a - b).abs() <= allowed))
    count = int(wrong.sum())
    if count:
        flat = int(wrong.flatten().to(torch.uint8).argmax())
        where = np.unravel_index(flat, got.shape) if got.dim() else ()
        index = f"[{', '.join(str(int(i)) for i in where)}]" if where else ""
        wanted, came = _digits(want[where].item(), got[where].item())
        limit = "" if allowed is None else f", allowed {allowed[where].item():.3g}"
        of = f"; {count:,} of {got.numel():,} elements differ" if got.numel() > 1 else ""
        raise AssertionError(
            f"{name}{index}: expected {wanted}, got {came} ({_dtype_name(got)}{limit}{of})"
        )
    return got, want, rtol


def _as_tensor(value):
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, float | complex):  # Python's own precision
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value) if value.ndim else value.copy()
    return torch.as_tensor(value)


def _same_kind(a, b):
    return (a.is_floating_point() and b.is_floating_point()) or (a.is_complex() and b.is_complex())


def _default_rtol(got, want):
    return max(_RTOL.get(got.dtype, 0), _RTOL.get(want.dtype, 0))


def _dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor):
    return f"({', '.join(map(str, tensor.shape))})"


def _digits(a, b):
    """Print two numbers with as few digits as show that they differ, seven at least."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return str(a), str(b)
    for digits in range(7, 18):
        texts = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _run(fn, inputs, dtype):
    """Call `fn` on copies of `inputs` in `dtype`; return the copies and a tuple of results."""
    copies = [
        x.detach().to(dtype, copy=True).requires_grad_()
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
        for x in inputs
    ]
    outs = fn(*copies)
    return copies, (outs,) if isinstance(outs, torch.Tensor) else tuple(outs)


def _gradients(outs, inputs, upstream, who):
    """Return one gradient (or None) for each input."""
    with_grad = [(o, u) for o, u in zip(outs, upstream, strict=True) if o.requires_grad]
    assert with_grad, f"{who} returns nothing that has a gradient: is its backward missing?"
    leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    grads = iter(
        torch.autograd.grad(
            [o for o, _ in with_grad],
            leaves,
            [u.to(o) for o, u in with_grad],
            allow_unused=True,
        )
    )
    return [
        next(grads) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in inputs
    ]


def _parameter_names(*functions, count):
    """Return the names of the first function whose signature takes `count` arguments."""
    for fn in functions:
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # built-in functions have no signature
            continue
        if all(p.kind != p.VAR_POSITIONAL for p in parameters) and len(parameters) >= count:
            return [p.name for p in parameters[:count]]
    return [f"_input_{i}" for i in range(count)]
