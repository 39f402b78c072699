"""Checks that raise: they name the first element that is wrong, what was expected, what came."""

import inspect
import math
import warnings
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch

from helpers.base.gpu import WARP_SIZE

# Relative tolerances: room for some roundings (float32: 170, the half types: 4), which is what
# sums of thousands of terms need. The coarser of two dtypes counts.
_RTOL = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}

LOOSE = 0.05  # of a typical element: a result scaled by 1.05 would pass

_CHUNK = 2**22  # elements compared at a time: float64 copies of 1e8 would fill small GPUs

_is_silent = ContextVar("_is_silent", default=False)


def check_close(actual, expected, rtol=None, atol=None, name=None):
    """Raise AssertionError unless `actual` equals `expected` up to rounding.

    Both may be tensors on any device, NumPy arrays, numbers or lists of numbers. An element
    passes if |actual - expected| <= atol + rtol * |expected|. Without tolerances, integers and
    bools must be equal; for floats rtol comes from the coarser dtype (float64 1e-10, float32
    1e-5, float16 2e-3, bfloat16 1.6e-2; Python's numbers count as float32), and atol is rtol
    times the root mean square of `expected`: a long sum that happens to end near zero still has
    the rounding errors of its terms, and the other sums show how large those are. Where there
    are no others, give atol: 1e-5 times the root of the number of terms, if those are about 1.
    NaN never passes.

    Shapes must be equal; dtypes too, up to the precision of floats, so a float32 result may be
    checked against a float64 reference. Prints one line when everything is right: what was allowed
    (`|x|` is an element of `expected`), and where errors of 5 % and more would pass, that.
    """
    name = name or "out"
    is_usual = atol is None
    rtol, atol = _compare(actual, expected, rtol, atol, name)
    got, _ = _as_tensor(actual)
    what = "×".join(map(str, got.shape)) + f" {_dtype_name(got)}, all" if got.dim() else "a number,"
    allowed = _allowed(rtol, 0 if is_usual else atol) + _looseness(expected, rtol, atol)
    _say(f"{name}: {what} {allowed}")


def check_grad(fn, ref, *inputs, rtol=None, atol=None):
    """Check the results and all gradients of `fn` against those of `ref`.

    `fn` runs in float32 and `ref` in float64, on copies of `inputs`; floating-point tensors get
    gradients, everything else (labels, sizes) is passed as it is. Both get the same random
    upstream gradients, stored by columns: a backward needs its `.contiguous()`. What `fn` allocates
    holds NaN (`poisoned`). Tolerances as in `check_close`. Raises AssertionError; prints one line.
    """
    names = _parameter_names(ref, fn, count=len(inputs))
    with poisoned():
        inputs32, outs32 = _run(fn, inputs, torch.float32)
    inputs64, outs64 = _run(ref, inputs, torch.float64)
    assert len(outs32) == len(outs64), f"expected {len(outs64)} results, got {len(outs32)}"
    for i, (got, want) in enumerate(zip(outs32, outs64, strict=True)):
        _compare(got, want, rtol, atol, f"out {i}" if len(outs64) > 1 else "out")

    generator = torch.Generator().manual_seed(0)
    upstream = [_by_columns(out.shape, generator) for out in outs64]
    grads64 = _gradients(outs64, inputs64, upstream, "the reference")
    with poisoned():
        grads32 = _gradients(outs32, inputs32, upstream, "the function under test")
    for i in sorted(grads32 | grads64):
        assert i in grads32, f"d{names[i]}: no gradient came, the reference has one"
        want = grads64[i] if i in grads64 else torch.zeros_like(grads32[i])
        _compare(grads32[i], want, rtol, atol, f"d{names[i]}")
    of = ", ".join(names[i] for i in sorted(grads64))
    _say(f"out and the gradients of {of}: float32 agrees with float64")


def check_spread(report, elements, operation="store", shared_loads=None):
    """Raise AssertionError unless threads share the work, as far as their requests show it.

    `report` is what `trace` returned, of four warps or more that together store `elements`
    elements, hundreds, in global memory, each up to three times; with `operation` "load" they load
    them from there, for kernels that store little. Refuses one thread, warp or block that does
    the work of many, threads that all do all of it, and no launch at all. Shared memory may be
    shared out unevenly, so it has a limit of its own if one is given: the most requests to load
    from it that a warp may make, one after the other.
    """
    assert report.launches, "right numbers; but no kernel was launched"
    done = {"store": "stored", "load": "loaded"}[operation]
    totals = [_totals(launch, operation) for launch in report.launches]
    lanes, requests, warps = map(sum, zip(*totals, strict=True))
    assert lanes <= 3 * elements, (
        f"right numbers; but each is {done} {lanes // elements:,} times: threads do the work of all"
    )
    # a warp's threads may store in a few branches, one after the other; or have blocks of their own
    assert requests <= max(warps, elements // 8), (
        f"right numbers; but one thread does the work of many: {lanes / requests:.3g} of a warp's "
        f"{WARP_SIZE} threads take part in a {operation}, on average"
    )
    for launch, (_, requests, warps) in zip(report.launches, totals, strict=True):
        busiest = launch.busiest[operation, "global"]
        even = max(1, requests / warps, elements / WARP_SIZE / warps)  # wide loads are fewer
        assert busiest <= 2 or busiest < 2 * even, (
            f"right numbers; but one warp does the work of many: it makes {busiest:,} of "
            f"{requests:,} requests to {operation} in {launch.kernel}, for {warps:,} warps to share"
        )
        slowest = launch.busiest["load", "shared"]
        assert shared_loads is None or slowest <= shared_loads, (
            f"right numbers; but in {launch.kernel} a warp loads {slowest:,} times from shared "
            f"memory, one after the other; {shared_loads:,} times would do"
        )


def _totals(launch, operation):
    """Return a launch's lanes and requests in global memory, and its warps."""
    found = [a for a in launch.accesses if (a.operation, a.space) == (operation, "global")]
    warps = math.prod(launch.grid) * math.ceil(math.prod(launch.block) / WARP_SIZE)
    return sum(a.lanes for a in found), sum(a.requests for a in found), warps


@contextmanager
def poisoned():
    """Within the block, new tensors hold NaN, of integers the largest: what stays unwritten shows.

    That goes for `torch.empty`, in Python and in C++, on every device.
    """
    before = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deterministic")  # operations that cannot be so
        # not use_deterministic_algorithms, which spends seconds on importing torch's compiler
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)


@contextmanager
def silent():
    """Within the block, checks that pass print no line."""
    passed = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(passed)


def _say(line):
    if not _is_silent.get():
        print(line)


@contextmanager
def expect_error(error_type):
    """Run a block that must raise `error_type`; print the first line of the error's message."""
    try:
        yield
    except error_type as error:
        lines = str(error).strip().splitlines() or [""]
        print(f"{type(error).__name__}: {lines[0]}")
    else:
        kinds = error_type if isinstance(error_type, tuple) else (error_type,)
        names = " or ".join(kind.__name__ for kind in kinds)
        raise AssertionError(f"expected {names}, but nothing was raised")


def _compare(actual, expected, rtol, atol, name):
    """Raise AssertionError at the first difference; return the tolerances."""
    got, got_has_dtype = _as_tensor(actual)
    want, want_has_dtype = _as_tensor(expected)
    if got.shape != want.shape:
        raise AssertionError(f"{name}: expected shape {_shape(want)}, got {_shape(got)}")
    if got_has_dtype and want_has_dtype and _kind(got) != _kind(want):
        raise AssertionError(f"{name}: expected {_dtype_name(want)}, got {_dtype_name(got)}")
    want = want.to(got.device)
    if rtol is None:
        dtypes = [t.dtype for t, known in ((got, got_has_dtype), (want, want_has_dtype)) if known]
        if not dtypes and (got.is_floating_point() or want.is_floating_point()):
            dtypes = [torch.float32]
        rtol = max((_RTOL.get(dtype, 0) for dtype in dtypes), default=0)
    if atol is None:
        atol = rtol * _root_mean_square(want)
    pairs = zip(_chunks(got), _chunks(want), strict=True)
    wrong = torch.cat([_is_wrong(g, w, rtol, atol) for g, w in pairs])
    if wrong.any():
        raise AssertionError(_difference(got, want, wrong, rtol, atol, name))
    return rtol, atol


def _allowed(rtol, atol):
    """Say which errors pass; without an atol, rtol goes for an element or the root mean square."""
    if not rtol and not atol:
        return "equal"
    parts = [f"{rtol:g} · |x|" if atol else f"{rtol:g}"] * bool(rtol) + [f"{atol:g}"] * bool(atol)
    return "within " + " + ".join(parts)


def _looseness(expected, rtol, atol):
    """Say how large an error of a typical element passes, if it is large; else nothing."""
    size = _root_mean_square(_as_tensor(expected)[0])
    if not 0 < size < math.inf or rtol + atol / size < LOOSE:
        return ""
    return f" (loose: {100 * (rtol + atol / size):.0f} % of a typical one)"


def _chunks(tensor):
    return tensor.flatten().split(_CHUNK)


def _is_wrong(got, want, rtol, atol):
    """Return for each element whether it differs by more than is allowed."""
    if not rtol and not atol:
        return got.to(_exact(got)) != want.to(_exact(want))
    wide = torch.complex128 if got.is_complex() else torch.float64
    got64, want64 = got.to(wide), want.to(wide)
    allowed = atol + rtol * _finite_size(want)
    # NaN is not <= anything; equal infinities pass by the first half.
    return ~((got64 == want64) | ((got64 - want64).abs() <= allowed))


def _difference(got, want, wrong, rtol, atol, name):
    """Describe the first wrong element."""
    first = int(wrong.to(torch.uint8).argmax())
    where = tuple(int(i) for i in np.unravel_index(first, got.shape)) if got.dim() else ()
    index = f"[{', '.join(map(str, where))}]" if where else ""
    expected, came = _texts(want[where].item(), got[where].item())
    details = _dtype_name(got)
    if rtol or atol:
        details += f", allowed {(atol + rtol * _finite_size(want[where])).item():.3g}"
    if got.dim():
        details += f"; {int(wrong.sum())} of {got.numel()} elements differ"
    return f"{name}{index}: expected {expected}, got {came} ({details})"


def _as_tensor(value):
    """Return a tensor, and whether its dtype says something (a Python number's does not)."""
    if isinstance(value, torch.Tensor):
        return value.detach(), True
    if isinstance(value, np.ndarray | np.generic):
        return torch.from_numpy(np.array(value)), True
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "biufc":
        missing = "; is a return missing?" if value is None else ""
        raise AssertionError(f"expected a tensor, an array or numbers, got {value!r}{missing}")
    return torch.from_numpy(numbers), False


def _kind(tensor):
    """Return what has to be equal of two dtypes: for floats and complex numbers not the size."""
    if tensor.is_floating_point():
        return "float"
    return "complex" if tensor.is_complex() else tensor.dtype


def _exact(tensor):
    """Return the dtype in which to compare for equality: unsigned types cannot be compared."""
    return tensor.dtype if tensor.is_floating_point() or tensor.is_complex() else torch.int64


def _finite_size(tensor):
    """Return the absolute values in float64, with 0 for NaN and infinity."""
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    return wide.abs().nan_to_num(nan=0.0, posinf=0.0)


def _root_mean_square(tensor):
    squares = sum(_finite_size(chunk).square().sum() for chunk in _chunks(tensor))
    return (squares / max(tensor.numel(), 1)).sqrt().item()


def _dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor):
    return f"({', '.join(map(str, tensor.shape))})"


def _texts(expected, came):
    """Print two numbers, with more than seven digits where it takes more to see a difference."""
    if not (isinstance(expected, float) and isinstance(came, float)):
        return str(expected), str(came)
    for digits in range(7, 18):
        texts = f"{expected:.{digits}g}", f"{came:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _run(fn, inputs, dtype):
    """Call `fn` on copies of `inputs` in `dtype`; return the copies and a tuple of results."""
    copies = [
        x.detach().to(dtype, copy=True).requires_grad_() if _is_differentiable(x) else x
        for x in inputs
    ]
    outs = fn(*copies)
    return copies, (outs,) if isinstance(outs, torch.Tensor) else tuple(outs)


def _is_differentiable(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _by_columns(shape, generator):
    """Return random numbers with the strides in the other order, as autograd may hand them on."""
    numbers = torch.randn(tuple(shape)[::-1], generator=generator, device="cpu")
    return numbers.permute(tuple(reversed(range(len(shape)))))


def _gradients(outs, inputs, upstream, who):
    """Return the gradients that exist: number of the input → gradient."""
    pairs = [(out, up.to(out)) for out, up in zip(outs, upstream, strict=True) if out.requires_grad]
    assert pairs, f"{who} returns nothing that has a gradient; is its backward missing?"
    numbers = [i for i, x in enumerate(inputs) if _is_differentiable(x)]
    grads = torch.autograd.grad(
        [out for out, _ in pairs],
        [inputs[i] for i in numbers],
        [up for _, up in pairs],
        allow_unused=True,
    )
    return {i: grad for i, grad in zip(numbers, grads, strict=True) if grad is not None}


def _parameter_names(*functions, count):
    """Return the parameter names of the first function that has a name for each argument."""
    for fn in functions:
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # built-in functions have no signature
            continue
        if len(parameters) >= count and all(p.kind != p.VAR_POSITIONAL for p in parameters):
            return [p.name for p in parameters[:count]]
    return [f"input{i}" for i in range(count)]
