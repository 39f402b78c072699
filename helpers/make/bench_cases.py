"""What `make bench` times: large works for each file in kernels/, each with its rivals.

A work's first candidate is ours. The last one is its floor: a copy of as many bytes as the work
must move, or cuBLAS's product of as many FLOPs. Functions that need a GPU run when a work is asked
for, not before.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.grad import conv2d_input, conv2d_weight

from helpers.base.machine import ROOT
from helpers.checks import check_close
from helpers.compiler import compile_cuda
from helpers.make.readme import FLOORS
from helpers.processes import Team
from helpers.processes.clock import clock_in_turns
from helpers.timing import capture, evaluate

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
TYPES = {"float32": torch.float32, **HALVES}
COPY, PRODUCT = FLOORS
SECONDS = 1.5  # that processes time a candidate


@dataclass(frozen=True)
class Work:
    """A large call of one kernel: `bytes` it must move or `flops` it must do, the floor's measure.

    `candidates` by name, "ours" first; none where the work measures itself. `agree`, of another's
    result and ours, raises AssertionError where they differ; None: they must be what `compare`
    takes for the same.
    """

    name: str
    candidates: dict[str, Callable[[], Any]]
    bytes: int | None = None
    flops: int | None = None
    agree: Callable[[Any, Any], None] | None = None
    measure: Callable[[], dict] | None = None  # instead of measure_speeds, by several processes


class Lacking(Exception):
    """What a machine would need for a work: a sentence."""


CASES: dict[str, Callable[[], Iterator[Work]]] = {}  # by the kernel file's name


def _case(function):
    CASES[function.__name__.removeprefix("_")] = function
    return function


def kernel(op: str) -> Any:
    """Return the functions of kernels/<op>.cu, compiled."""
    return compile_cuda(ROOT / "kernels" / f"{op}.cu")


@functools.cache
def cub() -> Any:
    """Return the functions of bench_cub.cu, compiled."""
    return compile_cuda(Path(__file__).with_name("bench_cub.cu"))


@functools.cache
def curand() -> Any:
    """Return the functions of bench_curand.cu, compiled."""
    src = Path(__file__).with_name("bench_curand.cu")
    return compile_cuda(src, libraries=("curand",))


def _equal(got: Any, ours: Any) -> None:
    """Integers, of whatever type: `compare` wants one type."""
    assert torch.equal(got.long(), ours.long()), "the results differ"


def _rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def _moving(name: str, bytes: int, eager: Callable, ours: Callable, **rivals: Callable) -> Work:
    """Return a work that memory bounds; torch.compile gets `eager`."""
    torch.compiler.reset()  # or after eight works it gives up compiling
    result = ours()
    source = torch.ones(bytes // 8, device="cuda")  # float32, read and written
    target = torch.empty_like(source)

    def copy():
        target.copy_(source)
        return result  # so that it passes the comparison of results

    candidates = {"ours": ours, "PyTorch": eager, "torch.compile": torch.compile(eager)}
    return Work(name, candidates | rivals | {COPY: copy}, bytes=bytes)


def _computing(name: str, flops: int, dtype: torch.dtype, candidates: dict, **more) -> Work:
    """Return a work that arithmetic bounds."""
    result = next(iter(candidates.values()))()
    side = 8192 if flops > 2 * 8192**3 / 4 else 2048
    depth = max(round(flops / (2 * side * side) / 64) * 64, 64)
    A, B = _rand(side, depth, dtype=dtype), _rand(depth, side, dtype=dtype)

    def product():
        A @ B
        return result

    return Work(name, candidates | {PRODUCT: product}, flops=flops, **more)


@_case
def _square():
    square, x = kernel("square").square, _rand(2**28)
    yield _moving("float32, 2²⁸", 8 * 2**28, lambda: x * x, lambda: square(x))


@_case
def _vector_add():
    add = kernel("vector_add").vector_add
    for name, dtype in TYPES.items():
        a, b = _rand(2**28, dtype=dtype), _rand(2**28, dtype=dtype)
        bytes = 3 * a.itemsize * 2**28
        yield _moving(f"{name}, 2²⁸", bytes, lambda a=a, b=b: a + b, lambda a=a, b=b: add(a, b))


@_case
def _rgb_to_gray():
    gray = kernel("rgb_to_gray").rgb_to_gray
    image = torch.randint(256, (3, 8192, 8192), dtype=torch.uint8, device="cuda")
    weights = torch.tensor([299, 587, 114], device="cuda", dtype=torch.int32)[:, None, None]

    def eager():
        return ((image * weights).sum(0, dtype=torch.int32).add_(500) // 1000).byte()

    yield _moving("8192 × 8192 bytes", 4 * 8192**2, eager, lambda: gray(image))


@_case
def _gelu():
    gelu = kernel("gelu")
    for name, dtype in TYPES.items():
        x, dout = _rand(2**28, dtype=dtype), _rand(2**28, dtype=dtype)
        bytes = 2 * x.itemsize * 2**28
        ours = functools.partial(gelu.gelu_forward, x)
        yield _moving(f"{name}, 2²⁸", bytes, lambda x=x: F.gelu(x), ours)
        ours = functools.partial(gelu.gelu_backward, dout, x)
        eager = functools.partial(torch.ops.aten.gelu_backward, dout, x)
        yield _moving(f"backward, {name}, 2²⁸", bytes * 3 // 2, eager, ours)


@_case
def _relu():
    relu, x = kernel("relu"), _rand(2**28)
    out = x.relu()
    yield _moving("float32, 2²⁸", 8 * 2**28, lambda: x.relu(), lambda: relu.relu_forward(x))
    yield _moving(
        "backward, float32, 2²⁸",
        12 * 2**28,
        lambda: torch.ops.aten.threshold_backward(x, out, 0),
        lambda: relu.relu_backward(x, out),
    )


@_case
def _transpose():
    transpose = kernel("transpose").transpose
    for M, N, dtype in ((16384, 32768, torch.float32), (16384, 32768, torch.bfloat16)):
        x = _rand(M, N, dtype=dtype)
        name = f"{str(dtype).removeprefix('torch.')}, {M} × {N}"
        bytes = 2 * x.itemsize * M * N
        ours = functools.partial(transpose, x)
        yield _moving(name, bytes, lambda x=x: x.t().contiguous(), ours)


@_case
def _sum():
    total = kernel("sum").sum
    for name, dtype in TYPES.items():
        x = _rand(2**28, dtype=dtype)
        rival = {"CUB": functools.partial(cub().cub_sum, x)} if dtype == torch.float32 else {}
        ours, eager = functools.partial(total, x), functools.partial(torch.sum, x)
        yield _moving(f"{name}, 2²⁸", x.itemsize * 2**28, eager, ours, **rival)
    few = _rand(1023)
    eager, ours = functools.partial(torch.sum, few), functools.partial(total, few)
    yield _moving("float32, 1023", 4 * 1023, eager, ours)


def _transforming(name: str, bytes: int, eager: Callable, ours: Callable) -> Work:
    """Return a Fourier transform; PyTorch's is cuFFT, compiled or not."""
    work = _moving(name, bytes, eager, ours)
    del work.candidates["torch.compile"]
    return work


@_case
def _fft():
    fft = kernel("fft")
    values = torch.randn(2**26, dtype=torch.complex64, device="cuda")
    for n, of in (
        (64, "64"),
        (1024, "1024"),
        (4096, "4096"),
        (8192, "8192"),
        (2**14, "16384"),
        (2**16, "2¹⁶"),
        (2**20, "2²⁰"),
        (6000, "6000"),
        (10007, "10007"),
    ):
        x = values[: len(values) // n * n].view(-1, n)
        yield _transforming(
            f"{len(x):,} rows of {of}".replace(",", " "),
            16 * x.numel(),
            functools.partial(torch.fft.fft, x),
            functools.partial(fft.fft_forward, x),
        )
    images = values.view(4, 4096, 4096)
    yield _transforming(
        "4 images of 4096 × 4096",
        16 * images.numel(),
        functools.partial(torch.fft.fft2, images),
        functools.partial(fft.fft2, images),
    )
    real = _rand(8192, 8192)
    half = torch.fft.rfft(real)
    bytes = 4 * real.numel() + 8 * half.numel()
    yield _transforming(
        "real, 8192 rows of 8192",
        bytes,
        functools.partial(torch.fft.rfft, real),
        functools.partial(fft.rfft, real),
    )
    yield _transforming(
        "back to real, 8192 rows of 8192",
        bytes,
        functools.partial(torch.fft.irfft, half, 8192),
        functools.partial(fft.irfft, half, 8192),
    )


@_case
def _argmax():
    argmax, x = kernel("argmax").argmax, _rand(2**28)
    yield _moving("float32, 2²⁸", 4 * 2**28, lambda: x.argmax(), lambda: argmax(x))


@_case
def _scan():
    scan = kernel("scan").scan

    for n, of in ((2**28, "2²⁸"), (1023, "1023"), (2**16, "65536"), (2**18, "262144")):
        x = _rand(n)

        def agree(got, ours, n=n):  # random numbers add up to some √n, in another order
            check_close(got, ours, rtol=1e-3, atol=1e-4 * n**0.5)

        work = _moving(
            f"float32, {of}",
            8 * n,
            functools.partial(torch.cumsum, x, 0),
            functools.partial(scan, x),
            CUB=functools.partial(cub().cub_scan, x),
        )
        yield replace(work, agree=agree)


@_case
def _histogram():
    histogram = kernel("histogram").histogram
    uniform = torch.randint(256, (2**28,), dtype=torch.uint8, device="cuda")
    for name, x in (("uniform", uniform), ("one value", torch.full_like(uniform, 7))):
        work = _moving(
            f"{name}, 2²⁸ bytes",
            2**28,
            lambda x=x: torch.bincount(x, minlength=256),
            functools.partial(histogram, x),
            CUB=functools.partial(cub().cub_histogram, x),
        )
        # CUB counts in 32 bits: converting them for `compare` would be timed as well
        yield replace(work, agree=_equal)


@_case
def _softmax():
    softmax = kernel("softmax")
    for name, dtype in TYPES.items():
        x = _rand(16384, 32768, dtype=dtype)
        bytes = 2 * x.itemsize * x.numel()
        eager = functools.partial(torch.softmax, x, -1)
        yield _moving(
            f"{name}, 16384 × 32768", bytes, eager, functools.partial(softmax.softmax_forward, x)
        )
    for name, dtype in TYPES.items():
        x, dout = (_rand(16384, 32768, dtype=dtype) for _ in range(2))
        out = x.softmax(-1)
        yield _moving(
            f"backward, {name}, 16384 × 32768",
            3 * x.itemsize * x.numel(),
            functools.partial(torch.ops.aten._softmax_backward_data, dout, out, -1, dtype),
            functools.partial(softmax.softmax_backward, dout, out),
        )


@_case
def _layer_norm():
    norm = kernel("layer_norm")
    M, N = 16384, 8192
    for name, dtype in TYPES.items():
        x, dout = _rand(M, N, dtype=dtype), _rand(M, N, dtype=dtype)
        weight, bias = _rand(N, dtype=dtype), _rand(N, dtype=dtype)
        out, mean, rstd = norm.layer_norm_forward(x, weight, bias, 1e-5)
        yield _moving(
            f"{name}, {M} × {N}",
            2 * x.itemsize * M * N,
            functools.partial(F.layer_norm, x, (N,), weight, bias),
            lambda a=(x, weight, bias): norm.layer_norm_forward(*a, 1e-5)[0],
        )
        _, mean32, rstd32 = torch.ops.aten.native_layer_norm(x, (N,), weight, bias, 1e-5)
        aten = (dout, x, (N,), mean32, rstd32, weight, bias, (True, True, True))
        yield _moving(
            f"backward, {name}, {M} × {N}",
            3 * x.itemsize * M * N,
            # all three gradients, or torch.compile leaves out what nobody asks for
            lambda a=aten: torch.ops.aten.native_layer_norm_backward(*a),
            lambda a=(dout, x, weight, mean, rstd): norm.layer_norm_backward(*a),
        )


@_case
def _rms_norm():
    norm = kernel("rms_norm")
    M, N = 16384, 8192
    for name, dtype in TYPES.items():
        x, dout, weight = _rand(M, N, dtype=dtype), _rand(M, N, dtype=dtype), _rand(N, dtype=dtype)
        yield _moving(
            f"{name}, {M} × {N}",
            2 * x.itemsize * M * N,
            functools.partial(F.rms_norm, x, (N,), weight, 1e-5),
            lambda a=(x, weight): norm.rms_norm_forward(*a, 1e-5)[0],
        )
    for name, dtype in TYPES.items():
        x, dout, weight = _rand(M, N, dtype=dtype), _rand(M, N, dtype=dtype), _rand(N, dtype=dtype)
        x.requires_grad_(), weight.requires_grad_()
        out = F.rms_norm(x, (N,), weight, 1e-5)
        given = dout, x.detach(), weight.detach()
        _, rstd = norm.rms_norm_forward(*given[1:], 1e-5)
        work = _moving(
            f"backward, {name}, {M} × {N}",
            3 * x.itemsize * M * N,
            lambda a=(out, (x, weight), dout): torch.autograd.grad(*a, retain_graph=True)[0],
            lambda a=(*given, rstd): norm.rms_norm_backward(*a)[0],
        )
        formula = torch.compile(_rms_norm_gradients)
        work.candidates["torch.compile"] = lambda f=formula, a=(*given, rstd): f(*a)[0]
        yield work


def _rms_norm_gradients(dout, x, weight, rstd):
    normed, scaled = x.float() * rstd[:, None], dout.float() * weight.float()
    dinp = rstd[:, None] * (scaled - normed * (scaled * normed).mean(1, keepdim=True))
    return dinp.to(x.dtype), (dout.float() * normed).sum(0).to(weight.dtype)


@_case
def _batch_norm2d():
    norm = kernel("batch_norm2d")
    x = _rand(64, 64, 224, 224)
    weight, bias = _rand(64), _rand(64)
    running = torch.zeros(64, device="cuda"), torch.ones(64, device="cuda")
    spare = [tensor.clone() for tensor in running]
    yield _moving(
        "training, 64 × 64 × 224 × 224",
        8 * x.numel(),
        lambda: F.batch_norm(x, *spare, weight, bias, True),
        lambda: norm.batch_norm2d_train(x, *running, weight, bias, 0.1, 1e-5)[0],
    )


@_case
def _max_pool2d():
    pool, x = kernel("max_pool2d"), _rand(64, 64, 224, 224)

    def ours():
        return pool.max_pool2d_forward(x, 2)

    def eager():
        return F.max_pool2d(x, 2, return_indices=True)

    def agree(got, ours):
        assert torch.equal(got[0], ours[0]), "the maxima differ"
        _equal(got[1], ours[1])

    name = "2 × 2 of 64 × 64 × 224 × 224, with indices"
    yield replace(_moving(name, 6 * x.numel(), eager, ours), agree=agree)
    (out, index), (_, index64) = ours(), eager()
    aten = torch.ops.aten.max_pool2d_with_indices_backward
    yield _moving(
        "backward, 2 × 2 of 64 × 64 × 224 × 224",
        6 * x.numel(),
        lambda: aten(out, x, [2, 2], [2, 2], [0, 0], [1, 1], False, index64),
        lambda: pool.max_pool2d_backward(out, index, 2, 224, 224),
    )


@_case
def _philox():
    philox, like, n = kernel("philox"), torch.empty(2**28, device="cuda"), 2**28

    def agree(got, ours):  # other numbers, of the same distribution
        for moment in (torch.mean, torch.std):
            check_close(moment(got), moment(ours), atol=1e-3)

    for name, eager in (("uniform", torch.rand), ("normal", torch.randn)):
        work = _moving(
            f"{name}, 2²⁸",
            4 * n,
            lambda eager=eager: eager(n, device="cuda"),
            functools.partial(getattr(philox, f"philox_{name}"), like, 1, 0, 1),
            cuRAND=lambda name=name: getattr(curand(), f"curand_{name}")(like),
        )
        yield replace(work, agree=agree)
    x = _rand(n)
    work = _moving(
        "dropout, 2²⁸",
        8 * n,
        lambda: F.dropout(x, 0.1),
        lambda: philox.philox_dropout(x, 0.1, 1, 0),
    )
    yield replace(work, agree=agree)


@_case
def _cross_entropy():
    loss = kernel("cross_entropy")
    M, N = 8192, 50257
    labels = torch.randint(N, (M,), device="cuda")
    scale = torch.full((), float(M), device="cuda")  # as a gradient's is, for float16 to hold it

    def mean(logits):
        return F.cross_entropy(logits.float(), labels)

    def scaled(logits):
        return scale * mean(logits)

    for name, dtype in TYPES.items():
        logits = _rand(M, N, dtype=dtype)
        bytes = logits.nbytes
        yield _moving(
            f"{name}, {M} × {N}",
            bytes,
            lambda logits=logits: mean(logits),
            lambda logits=logits: loss.cross_entropy_forward(logits, labels),
        )
        yield _moving(
            f"backward, {name}, {M} × {N}",
            2 * bytes,
            lambda logits=logits: torch.func.grad(scaled)(logits),  # with the forward, as ours
            lambda logits=logits: loss.cross_entropy_backward(scale, logits, labels),
        )


@_case
def _attention():
    attention = kernel("attention").attention_forward
    for D in (128, 64):
        for causal in (False, True):
            heads = 2048 // D
            q, k, v = (_rand(8, heads, 4096, D, dtype=torch.bfloat16) for _ in range(3))
            flops = 4 * 8 * heads * 4096**2 * D // (2 if causal else 1)
            free = functools.partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)
            candidates = {"ours": functools.partial(attention, q, k, v, causal), "PyTorch": free}
            for name, backend in _sdpa_backends().items():
                candidates[name] = functools.partial(_sdpa, backend, q, k, v, causal)
            # bfloat16, rounded in another order: too far apart for `compare`
            agree = functools.partial(check_close, rtol=1 / 64, atol=4e-3)
            word = "causal, " if causal else ""
            name = f"{word}bfloat16, 8 × {heads} heads × 4096 × {D}"
            yield _computing(name, flops, torch.bfloat16, candidates, agree=agree)


def _sdpa_backends():
    """What PyTorch chooses from, each by force."""
    from torch.nn.attention import SDPBackend

    return {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def _sdpa(backend, q, k, v, causal):
    """Return PyTorch's attention; backend None: as PyTorch chooses."""
    from torch.nn.attention import sdpa_kernel

    forced = contextlib.nullcontext() if backend is None else sdpa_kernel(backend)
    shares = q.shape[1] != k.shape[1]
    with forced:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shares)


@_case
def _flash_attention():
    """Training, shared heads, a window, and one query over a long cache; all bfloat16."""
    flash, plain = kernel("flash_attention"), (None, True, False, 0)
    # rounded in another order: too far apart for `compare`
    agree = functools.partial(_agree_in_norm, most=2e-2)
    for D in (128, 64):
        for causal in (False, True):
            heads = 2048 // D
            q, k, v, dout = (_rand(8, heads, 4096, D, dtype=torch.bfloat16) for _ in range(4))
            how = (None, causal, False, 0)
            out, lse = flash.flash_attention_forward(q, k, v, *how)
            given = (dout, q, k, v, out, lse, *how)
            candidates = {"ours": functools.partial(flash.flash_attention_backward, *given)}
            for name, backend in {"PyTorch": None, **_sdpa_backends()}.items():
                candidates[name] = _sdpa_gradients(backend, dout, q, k, v, causal)
            word = "causal, " if causal else ""
            name = f"backward, {word}8 × {heads} heads × 4096 × {D}"
            # of the five products that it takes; without wgmma ours does seven
            flops = 10 * 8 * heads * 4096**2 * D // (2 if causal else 1)
            yield _computing(name, flops, torch.bfloat16, candidates, agree=agree)

    for D in (256, 128, 64):
        heads = 2048 // D
        q, k, v = (_rand(8, heads, 4096, D, dtype=torch.bfloat16) for _ in range(3))
        candidates = {
            "ours": lambda q=q, k=k, v=v: flash.flash_attention_forward(
                q, k, v, None, False, False, 0
            )[0]
        }
        for name, backend in {"PyTorch": None, **_sdpa_backends()}.items():
            candidates[name] = functools.partial(_sdpa, backend, q, k, v, False)
        name, flops = f"8 × {heads} heads × 4096 × {D}", 4 * 8 * heads * 4096**2 * D
        yield _computing(name, flops, torch.bfloat16, candidates, agree=agree)

    B, H, H_kv, S, D = 8, 16, 4, 4096, 128
    q, k, v = (_rand(B, heads, S, D, dtype=torch.bfloat16) for heads in (H, H_kv, H_kv))
    candidates = {
        "ours": lambda: flash.flash_attention_forward(q, k, v, *plain)[0],
        "PyTorch": lambda: _sdpa(None, q, k, v, True),
    }
    for name, backend in _sdpa_backends().items():
        candidates[name] = functools.partial(_sdpa, backend, q, k, v, True)
    name = f"causal, {B} × {H} heads on {H_kv} × {S} × {D}"
    yield _computing(name, 2 * B * H * S**2 * D, torch.bfloat16, candidates, agree=agree)

    window, S = 1024, 8192
    q, k, v = (_rand(2, H, S, D, dtype=torch.bfloat16) for _ in range(3))
    place = torch.arange(S, device="cuda")
    seen = (place <= place[:, None]) & (place > place[:, None] - window)
    candidates = {
        "ours": lambda: flash.flash_attention_forward(q, k, v, None, True, False, window)[0],
        "PyTorch": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=seen),
    }
    name, flops = f"window {window}, 2 × {H} heads × {S} × {D}", 4 * 2 * H * int(seen.sum()) * D
    yield _computing(name, flops, torch.bfloat16, candidates, agree=agree)

    for B, S in ((1, 65536), (16, 8192)):
        q = _rand(B, 32, 1, D, dtype=torch.bfloat16)
        k, v = (_rand(B, 8, S, D, dtype=torch.bfloat16) for _ in range(2))
        work = _moving(
            f"one query, {B} × 32 heads on 8 × {S} keys × {D}",
            4 * k.numel(),
            functools.partial(_sdpa, None, q, k, v, False),
            lambda q=q, k=k, v=v: flash.flash_attention_forward(q, k, v, None, False, False, 0)[0],
        )
        yield replace(work, agree=agree)


def _agree_in_norm(got: Any, ours: Any, most: float) -> None:
    """Raise AssertionError where tensors, or those of tuples, are further apart than `most`."""
    pairs = zip(got, ours, strict=True) if isinstance(got, tuple) else [(got, ours)]
    for theirs, own in pairs:
        off = ((theirs.float() - own.float()).norm() / theirs.float().norm()).item()
        assert off <= most, f"the results differ by {off:.2g} of their norm"


def _sdpa_gradients(backend, dout, q, k, v, causal):
    """Return what computes PyTorch's gradients, of a forward that has run."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = _sdpa(backend, *leaves, causal)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


@_case
def _matmul_naive():
    matmul = kernel("matmul_naive").matmul_naive
    A, B = _rand(4096, 4096), _rand(4096, 4096)
    candidates = {"ours": lambda: matmul(A, B), "PyTorch": lambda: A @ B}
    yield _computing("float32, 4096³", 2 * 4096**3, torch.float32, candidates)


# M, K, N: those that a tile does not divide, or that have less than a tile on one side
AWKWARD = [(1, 4096, 4096), (16, 4096, 4096), (33, 2003, 1009), (4096, 4096, 10), (8192, 8192, 64)]
AWKWARD += [(100, 100_000, 100), (257, 257, 257), (4096, 1, 4096), (3136, 4096, 128)]
AWKWARD += [(128, 4096, 3136), (1000, 1000, 1), (2048, 64, 2048), (65536, 32, 32), (512, 512, 512)]
AWKWARD += [(7919, 103, 101), (64, 65536, 64), (1, 1_000_000, 1), (12345, 129, 37)]
AWKWARD += [(1000, 1000, 1000), (127, 511, 4097)]


@_case
def _matmul():
    matmul = kernel("matmul").matmul
    for M, K, N in [(side,) * 3 for side in (4096, 2048, 1024)] + AWKWARD:
        yield _product("float32", matmul, _rand(M, K), _rand(K, N))


@_case
def _matmul_tensor_core():
    def exact(A, B):
        return matmul(A, B, False)

    side = 8192
    path = ROOT / "kernels" / "matmul_tensor_core.cu"
    for way, src in ("", path.read_text()), ("mma.sync, ", portable(path.read_text())):
        matmul = compile_cuda(src).matmul_tensor_core
        for name, dtype in HALVES.items():
            A, B = _rand(side, side, dtype=dtype), _rand(side, side, dtype=dtype)
            yield _product(way + name, exact, A, B, rtol=1 / 64, atol=1e-2)
            yield _product(f"{way}{name}, B by columns", exact, A, B.t(), rtol=1 / 64, atol=1e-2)
        A, B = torch.randint(-128, 128, (2, side, side), dtype=torch.int8, device="cuda")
        yield _product(f"{way}int8, B by rows", exact, A, B)
        yield _product(f"{way}int8, B by columns", exact, A, B.t())
        A, B = _rand(4096, 4096), _rand(4096, 4096)
        yield _product(f"{way}float32 by three products", exact, A, B)


@_case
def _matmul_fp8():
    matmul = kernel("matmul_fp8").matmul_fp8
    side, one = 8192, torch.ones((), device="cuda")
    A, B = (_rand(side, side).to(torch.float8_e4m3fn) for _ in range(2))
    dout = _rand(side, side).to(torch.float8_e5m2)
    for name, first in (("e4m3", A), ("e5m2 times e4m3", dout)):
        for way, fast in (("", False), (", fast sums", True)):
            yield Work(
                f"{name}{way}, {side}³",
                {
                    "ours": lambda first=first, fast=fast: matmul(first, B, one, one, fast),
                    "PyTorch": lambda first=first, fast=fast: torch._scaled_mm(
                        first, B.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast
                    ),
                },
                flops=2 * side**3,
                agree=functools.partial(check_close, rtol=1 / 64, atol=4 if fast else 1),
            )


def portable(src: str) -> str:
    """Return the source of matmul_tensor_core without its way for sm_90."""
    return src.replace("__CUDACC_VER_MAJOR__", "WITH_WGMMA")


def _product(name: str, ours: Callable, A: torch.Tensor, B: torch.Tensor, **allowed) -> Work:
    """Return a product of matrices, its rival PyTorch's; `allowed`: differences of the results."""
    (M, K), N = A.shape, B.size(1)
    is_int = A.dtype == torch.int8
    size = f"{M}³" if M == K == N else f"({M}, {K}) × ({K}, {N})"
    agree = functools.partial(check_close, **(allowed or {"rtol": 1e-4, "atol": 1e-5 * K**0.5}))
    candidates = {
        "ours": lambda: ours(A, B),
        "PyTorch": lambda: torch._int_mm(A, B) if is_int else A @ B,
    }
    if is_int and B.is_contiguous():  # cuBLAS is many times as fast by columns
        candidates["B copied by columns"] = lambda: torch._int_mm(A, B.t().contiguous().t())
    return Work(
        f"{name}, {size}",
        candidates,
        flops=2 * M * N * K,
        agree=_equal if is_int else agree,
    )


LAYERS = (4096, 4096), (4096, 11008), (11008, 4096)  # in, out: of language models
SQUARES = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)


@_case
def _linear():
    """Few rows: the weights' bytes; more, and squares: FLOPs; each beside cuBLAS."""
    file = kernel("linear")
    agree = functools.partial(check_close, rtol=1 / 64, atol=2e-2)

    def layer(M, K, N, dtype):
        weight, bias = _rand(N, K, dtype=dtype) / K**0.5, _rand(N, dtype=dtype)
        return _rand(M, K, dtype=dtype), weight, bias

    for name, dtype in HALVES.items():
        for (K, N), M in itertools.product(LAYERS, (1, 8, 16, 64, 128, 512)):
            x, weight, bias = layer(M, K, N, dtype)
            title = f"{name}, {M} × {K} → {N}"

            def ours(x=x, weight=weight, bias=bias):
                return file.linear(x, weight, bias)

            def theirs(x=x, weight=weight, bias=bias):
                return F.linear(x, weight, bias)

            if M <= 16:
                work = _moving(title, weight.nbytes + x.nbytes, theirs, ours)
            else:
                candidates = {"ours": ours, "PyTorch": theirs}
                work = _computing(title, 2 * M * N * K, dtype, candidates)
            yield replace(work, agree=agree)
        for side in SQUARES:
            x, weight, bias = layer(side, side, side, dtype)
            candidates = {
                "ours": lambda x=x, weight=weight: file.linear(x, weight, x.new_empty(0)),
                "PyTorch": lambda x=x, weight=weight: F.linear(x, weight),
            }
            yield Work(f"{name}, {side}³", candidates, flops=2 * side**3, agree=agree)
    for M in (1, 16, 128, 512):
        torch.compiler.reset()
        for title, ours, theirs in _epilogues(file, *layer(M, 4096, 11008, torch.bfloat16)):
            work = _computing(
                f"bfloat16, {title}, {M} × 4096 → 11008",
                2 * M * 4096 * 11008,
                torch.bfloat16,
                {"ours": ours, "PyTorch": theirs, "torch.compile": torch.compile(theirs)},
            )
            yield replace(work, agree=agree)


def _epilogues(file, x, weight, bias):
    """Yield a name, ours and PyTorch's for each of linear's epilogues."""
    residual = _rand(len(x), len(weight), dtype=x.dtype)
    yield (
        "GELU",
        lambda: file.linear_gelu(x, weight, bias, False),
        lambda: F.gelu(F.linear(x, weight, bias)),
    )
    yield (
        "residual",
        lambda: file.linear_residual(x, weight, bias, residual),
        lambda: F.linear(x, weight, bias) + residual,
    )

    def silu_gate():
        gate, up = F.linear(x, weight, bias).chunk(2, -1)
        return F.silu(gate) * up

    yield "SiLU · gate of 2 halves", lambda: file.linear_silu_gate(x, weight, bias), silu_gate


@_case
def _linear_naive():
    linear, x = kernel("linear_naive"), _rand(4096, 3136)
    weight, bias = _rand(128, 3136) / 56, _rand(128)
    candidates = {
        "ours": lambda: linear.linear_forward(x, weight, bias),
        "PyTorch": lambda: F.linear(x, weight, bias),
    }
    yield _computing("4096 × 3136 → 128", 2 * 4096 * 3136 * 128, torch.float32, candidates)


@_case
def _conv2d_naive():
    conv, x, weight = kernel("conv2d_naive"), _rand(1024, 32, 14, 14), _rand(64, 32, 3, 3) / 17
    candidates = {
        "ours": lambda: conv.conv2d_forward(x, weight, 1),
        "PyTorch": lambda: F.conv2d(x, weight, padding=1),
    }
    flops = 2 * 1024 * 64 * 32 * 9 * 14 * 14
    yield _computing("32 → 64, 3 × 3, 1024 × 14 × 14", flops, torch.float32, candidates)


def _conv2d_works(N, C, C_out, side, k, tf32):
    """The convolution and its gradients; with TF32, of tensors with the channels last.

    cuDNN gets the other layout as well.
    """
    conv, layouts = kernel("conv2d"), [torch.contiguous_format, torch.channels_last]
    layout, other = reversed(layouts) if tf32 else layouts
    x, weight, dout = (
        _rand(*shape).contiguous(memory_format=layout)
        for shape in [(N, C, side, side), (C_out, C, k, k), (N, C_out, side, side)]
    )
    weight, dout = weight / (C * k * k) ** 0.5, dout / (N * side * side) ** 0.5
    turned = [tensor.contiguous(memory_format=other) for tensor in (x, weight, dout)]
    how = [1, 1], [k // 2] * 2, [1, 1], 1, tf32

    def forward(x, weight, _):
        return F.conv2d(x, weight, padding=k // 2)

    def gradient(x, weight, dout, which):
        rest = None, [1, 1], [k // 2] * 2, [1, 1], False, [0, 0], 1
        mask = [which == 0, which == 1, False]
        return torch.ops.aten.convolution_backward(dout, x, weight, *rest, mask)[which]

    directions = {
        "forward": (lambda: conv.conv2d_forward(x, weight, x.new_empty(0), *how), forward),
        "gradient of inp": (
            lambda: conv.conv2d_backward_input(dout, weight, side, side, *how),
            functools.partial(gradient, which=0),
        ),
        "gradient of weight": (
            lambda: conv.conv2d_backward_weight(dout, x, k, k, *how),
            functools.partial(gradient, which=1),
        ),
    }

    def switched(function):  # cuDNN's switch and cuBLAS's
        def call():
            product, matmul = torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.matmul
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=tf32):
                matmul.allow_tf32 = tf32
                try:
                    return function()
                finally:
                    matmul.allow_tf32 = product

        return call

    name = f"{C} → {C_out}, {k} × {k}, {N} × {side} × {side}"
    flops = 2 * N * C_out * C * k * k * side * side
    # cuDNN's sums over all pixels are off by 2e-4, and its TF32 is cut off, not rounded
    agree = functools.partial(check_close, rtol=1e-2 if tf32 else 1e-3)

    def agree_roughly(theirs, ours):
        """What cuDNN's search picks is off by up to 0.07 where numbers are about 1; ours is not."""
        with torch.backends.cudnn.flags(enabled=True, benchmark=False):
            exact = gradient(*(tensor.double() for tensor in (x, weight, dout)), which=1)
        check_close(ours, exact, rtol=1e-2 if tf32 else 1e-5, atol=0.05 if tf32 else 1e-4)
        check_close(theirs, exact, rtol=1e-2, atol=0.2)

    for direction, (ours, pytorch) in directions.items():
        candidates = {
            "ours": ours,
            "PyTorch": switched(functools.partial(pytorch, x, weight, dout)),
            "NCHW" if tf32 else "NHWC": switched(functools.partial(pytorch, *turned)),
        }
        what = f"{'TF32' if tf32 else 'float32'}, {direction}, {name}"
        is_rough = k == 5 and direction == "gradient of weight"
        check = agree_roughly if is_rough else agree
        work = _computing(what, flops, torch.float32, candidates, agree=check)
        work.candidates[PRODUCT] = switched(work.candidates[PRODUCT])
        yield work


@_case
def _conv2d():
    for tf32 in (False, True):
        yield from _conv2d_works(64, 64, 64, 56, 3, tf32)
        yield from _conv2d_works(1024, 32, 64, 14, 3, tf32)
        yield from _conv2d_works(64, 256, 256, 14, 3, tf32)
        yield from _conv2d_works(16, 64, 64, 224, 3, tf32)
        yield from _conv2d_works(64, 32, 32, 64, 5, tf32)
        yield from _conv2d_works(64, 256, 64, 56, 1, tf32)


def _conv2d_half_works(N, C, C_out, side, k, stride, padding):
    """The convolution and its gradients in bfloat16, channels last, which is cuDNN's own layout."""
    conv, dtype, last = kernel("conv2d_half"), torch.bfloat16, torch.channels_last
    out_side = (side + 2 * padding - k) // stride + 1
    x, weight, dout = (
        _rand(*shape, dtype=dtype).contiguous(memory_format=last)
        for shape in [(N, C, side, side), (C_out, C, k, k), (N, C_out, out_side, out_side)]
    )
    weight, dout = weight / (C * k * k) ** 0.5, dout / (N * out_side**2) ** 0.5
    how = [stride] * 2, [padding] * 2, [1, 1], 1

    def gradient(which):
        rest = None, *how[:3], False, [0, 0], 1
        mask = [which == 0, which == 1, False]
        return torch.ops.aten.convolution_backward(dout, x, weight, *rest, mask)[which]

    def searched(function, *args):  # cuDNN tries its algorithms out
        def call():
            with torch.backends.cudnn.flags(enabled=True, benchmark=True):
                return function(*args)

        return call

    name = f"{C} → {C_out}, {k} × {k}{f' / {stride}' * (stride > 1)}, {N} × {side} × {side}"
    flops = 2 * N * C_out * C * k * k * out_side**2
    directions = {
        "forward": (
            lambda: conv.conv2d_half_forward(x, weight, x.new_empty(0), *how),
            searched(F.conv2d, x, weight, None, stride, padding),
        ),
        "gradient of inp": (
            lambda: conv.conv2d_half_backward_input(dout, weight, side, side, *how),
            searched(gradient, 0),
        ),
        "gradient of weight": (
            lambda: conv.conv2d_half_backward_weight(dout, x, k, k, *how),
            searched(gradient, 1),
        ),
    }
    for direction, (ours, pytorch) in directions.items():
        what, candidates = f"bfloat16, {direction}, {name}", {"ours": ours, "PyTorch": pytorch}
        agree = functools.partial(check_close, rtol=2e-2)  # two roundings to 8 bits
        yield _computing(what, flops, dtype, candidates, agree=agree)


@_case
def _conv2d_half():
    yield from _conv2d_half_works(64, 64, 64, 56, 3, 1, 1)
    yield from _conv2d_half_works(64, 128, 128, 28, 3, 1, 1)
    yield from _conv2d_half_works(64, 256, 256, 14, 3, 1, 1)
    yield from _conv2d_half_works(64, 512, 512, 7, 3, 1, 1)
    yield from _conv2d_half_works(64, 128, 256, 56, 3, 2, 1)
    yield from _conv2d_half_works(64, 256, 1024, 14, 1, 1, 0)
    yield from _conv2d_half_works(64, 256, 64, 56, 1, 1, 0)
    yield from _conv2d_half_works(64, 3, 64, 224, 7, 2, 3)
    yield from _conv2d_half_works(64, 3, 96, 224, 11, 4, 2)


@_case
def _depthwise_conv2d():
    depthwise, x, dout = (
        kernel("depthwise_conv2d"),
        _rand(64, 64, 224, 224),
        _rand(64, 64, 224, 224),
    )
    weight, bias = _rand(64, 7, 7) / 7, _rand(64)
    how = {"padding": 3, "groups": 64}
    name, bytes = "7 × 7, 64 × 64 × 224 × 224", 8 * x.numel()
    yield _moving(
        name,
        bytes,
        lambda: F.conv2d(x, weight[:, None], bias, **how),
        lambda: depthwise.depthwise_conv2d_forward(x, weight, bias, 1, 3, 1),
    )
    yield _moving(
        f"backward of input, {name}",
        bytes,
        lambda: conv2d_input(x.shape, weight[:, None], dout, **how),
        lambda: depthwise.depthwise_conv2d_backward_input(dout, weight, 224, 224, 1, 3, 1),
    )
    work = _moving(
        f"backward of weight, {name}",
        bytes,
        lambda: conv2d_weight(x, (64, 1, 7, 7), dout, **how)[:, 0],
        lambda: depthwise.depthwise_conv2d_backward_weight(dout, x, 7, 7, 1, 3, 1),
    )
    # sums of 3,211,264 products, which cancel down to some thousands
    yield replace(work, agree=functools.partial(check_close, rtol=1e-3, atol=0.5))


@_case
def _blur():
    blur = kernel("blur").blur
    image = torch.randint(256, (8192, 8192), dtype=torch.uint8, device="cuda")
    work = _moving(
        "radius 3, 8192 × 8192 bytes",
        2 * 8192**2,
        lambda: F.avg_pool2d(image[None].half(), 7, 1, 3, count_include_pad=False)[0].byte(),
        lambda: blur(image, 3),
    )

    def agree(got, ours):  # PyTorch's mean is rounded to float16 before it is cut
        assert (got.int() - ours.int()).abs().max() <= 1, "the blurs differ"

    yield replace(work, agree=agree)


@_case
def _sgd():
    step, param, grad, lr = kernel("sgd").sgd_step, _rand(2**28), _rand(2**28), 1e-3

    def agree(got, ours):  # they change the parameters, and so has each to begin at the same
        ours, wanted = param.clone(), param.clone()
        step(ours, grad, lr)
        check_close(ours, wanted.add_(grad, alpha=-lr))

    work = _moving(
        "float32, 2²⁸",
        12 * 2**28,
        lambda: param.add_(grad, alpha=-lr),
        lambda: step(param, grad, lr),
    )
    rivals = {name: fn for name, fn in work.candidates.items() if name != "torch.compile"}
    yield replace(work, candidates=rivals, agree=agree)


@_case
def _quantized_linear():
    linear, side, group = kernel("quantized_linear").quantized_linear, 16384, 128
    dtype = torch.bfloat16
    for bits in (8, 4):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
        q = torch.randint(low, high, (side, side), device="cuda", dtype=torch.int8)
        weight = q if bits == 8 else (q[:, ::2] + 8 + 16 * (q[:, 1::2] + 8)).view(torch.uint8)
        for way, groups in (("row", 1), ("group", side // group)):
            scales = torch.rand(groups, side, device="cuda", dtype=dtype) / high
            W = q.to(dtype) * scales.repeat_interleave(side // groups, 0).t()
            for B in (1, 8):
                x = _rand(B, side, dtype=dtype)
                work = _moving(
                    f"int{bits}, a scale a {way}, {B} × {side}²",
                    weight.nbytes + scales.nbytes,
                    lambda x=x, W=W: F.linear(x, W),
                    lambda x=x, w=weight, s=scales: linear(x, w, s),
                )
                # PyTorch's weights are rounded to bfloat16
                yield replace(work, agree=functools.partial(check_close, rtol=1 / 64, atol=2))


@_case
def _optimizers():
    optimizers = kernel("optimizers")
    params = [_rand(1_000_000) for _ in range(100)]
    first, second = [[torch.zeros_like(p) for p in params] for _ in range(2)]
    theirs = [p.clone().requires_grad_() for p in params]
    for p in theirs:
        p.grad = torch.randn_like(p)
    grads = [p.grad for p in theirs]

    def adamw(params, grads, first, second):
        optimizers.adamw_step(params, grads, first, second, 1, 1e-3, 0.9, 0.999, 1e-8, 0.01)

    def sgd(params, grads, first, second):
        optimizers.sgd_momentum_step(params, grads, first, 1e-3, 0.9, 0.0)

    def agree(got, ours, step, rule):  # they change the parameters: on others, from the start
        params = [_rand(1000 + i) for i in range(3)]
        exact = [p.clone().requires_grad_() for p in params]
        for p in exact:
            p.grad = torch.randn_like(p)
        memory = [[torch.zeros_like(p) for p in params] for _ in range(2)]
        step(params, [p.grad for p in exact], *memory)
        rule(exact).step()
        for p, wanted in zip(params, exact, strict=True):
            check_close(p, wanted.detach(), atol=1e-6)

    rules = {
        "AdamW": (adamw, functools.partial(torch.optim.AdamW, fused=True), 28),
        "SGD with momentum": (
            sgd,
            functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.9, fused=True),
            20,
        ),
    }
    for name, (step, rule, bytes) in rules.items():
        ours = functools.partial(step, params, grads, first, second)
        what = f"{name}, 100 tensors of 1,000,000"
        work = _moving(what, bytes * 10**8, rule(theirs).step, ours)
        rivals = {name: fn for name, fn in work.candidates.items() if name != "torch.compile"}
        yield replace(work, candidates=rivals, agree=functools.partial(agree, step=step, rule=rule))


@_case
def _all_reduce():
    """Two GPUs; the floor is a copy to the other GPU, which copies to this one meanwhile."""
    file, source = kernel("all_reduce"), (ROOT / "kernels" / "all_reduce.cu").read_text()
    if torch.cuda.device_count() < 2:
        there = torch.cuda.device_count()
        raise Lacking(f"an all-reduce is timed on two GPUs, and there is {there}")
    for n in (1000, 2_000_000):  # both kernels, so that the record names them
        x = _rand(2, n)
        cards = [number for _ in range(2) for number in file.all_reduce_open(x, 2)]
        links = file.all_reduce_connect(x, cards, -1, 10.0)
        assert torch.equal(file.all_reduce_here(x, links)[0], x[0] + x[1])
        file.all_reduce_close(x, links)
    with Team(2, timeout_s=120) as team:
        for name, bytes, dtype in (
            ("float32, 2 KB", 2**11, torch.float32),
            ("float32, 256 KB", 2**18, torch.float32),
            ("float32, 1 MB", 2**20, torch.float32),
            ("float32, 4 MB", 2**22, torch.float32),
            ("float32, 16 MB", 2**24, torch.float32),
            ("bfloat16, 16 MB", 2**24, torch.bfloat16),
            ("float32, 256 MB", 2**28, torch.float32),
            ("float32, 1 GB", 2**30, torch.float32),
        ):
            measure = functools.partial(_race_between_gpus, team, source, bytes, dtype)
            yield Work(f"2 GPUs, {name}", {}, bytes, measure=measure)


CALLS_IN_A_ROW = 10  # captured as one graph: no process waits for the other to begin


def _race_between_gpus(team: Team, source: str, bytes: int, dtype: torch.dtype) -> dict:
    candidates = {
        "ours": _reduce_ours,
        "PyTorch": _reduce_in_symmetric_memory,
        "NCCL": _reduce_nccl,
        COPY: _copy_to_the_other,
    }
    samples = team(_samples, list(candidates.values()), source, bytes, dtype)[0]
    samples = [[ms / CALLS_IN_A_ROW for ms in times] for times in samples]
    method = f"median of {len(samples[0])} samples of {CALLS_IN_A_ROW} calls on 2 GPUs"
    return evaluate(list(candidates), samples, bytes, None) | {"method": method}


def _samples(rank: int, ranks: int, candidates: list[Callable], *about: Any) -> list[list[float]]:
    """Return those of each candidate, and of the first once more."""
    functions = [_in_a_row(prepare(rank, ranks, *about)) for prepare in candidates]
    return clock_in_turns([*functions, functions[0]], SECONDS / 3)


def _in_a_row(call: Callable) -> Callable:
    def calls():
        for _ in range(CALLS_IN_A_ROW):
            call()

    return capture(calls)


def _reduce_ours(rank: int, ranks: int, source: str, bytes: int, dtype: torch.dtype) -> Callable:
    file, x = compile_cuda(source), _rand(bytes // dtype.itemsize, dtype=dtype)
    cards: list = [None] * ranks
    dist.all_gather_object(cards, file.all_reduce_open(x, ranks))
    numbers = [number for card in cards for number in card]
    links, want = file.all_reduce_connect(x, numbers, rank, 30.0), x.clone()
    dist.all_reduce(want)
    assert torch.equal(file.all_reduce(x, links), want), "not what NCCL returns"
    return lambda: file.all_reduce(x, links)


def _reduce_nccl(rank: int, ranks: int, source: str, bytes: int, dtype: torch.dtype) -> Callable:
    """In place; the mean, for sums would grow call by call."""
    x = _rand(bytes // dtype.itemsize, dtype=dtype)
    return lambda: dist.all_reduce(x, dist.ReduceOp.AVG)


def _reduce_in_symmetric_memory(
    rank: int, ranks: int, source: str, bytes: int, dtype: torch.dtype
) -> Callable:
    """PyTorch's kernel over peer memory, in place: of its two the faster one, at every size."""
    x, _ = _peer_memory(bytes // dtype.itemsize, dtype)
    name = dist.group.WORLD.group_name
    return lambda: torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", name)


def _copy_to_the_other(
    rank: int, ranks: int, source: str, bytes: int, dtype: torch.dtype
) -> Callable:
    """By a kernel that writes into the other's memory: a graph cannot hold such a memcpy."""
    x, memory = _peer_memory(bytes // dtype.itemsize, dtype)
    there = memory.get_buffer(1 - rank, x.shape, dtype)
    return lambda: torch.add(x, 0.0, out=there)


def _peer_memory(count: int, dtype: torch.dtype) -> tuple[torch.Tensor, Any]:
    import torch.distributed._symmetric_memory as symm

    x = symm.empty(count, device="cuda", dtype=dtype).normal_()
    return x, symm.rendezvous(x, dist.group.WORLD)


@_case
def _mnist_cnn():
    for count in (64, 4096):
        for exact in (True, False):
            yield _training_step(count, exact)


def _training_step(count: int, exact: bool) -> Work:
    """Steps in CUDA graphs: exact against PyTorch in float32, halves against its bfloat16."""
    network, lr, rows = kernel("mnist_cnn"), 0.05, torch.arange(count, device="cuda")
    images, labels = _rand(count, 28, 28), torch.randint(10, (count,), device="cuda")
    net, plain = _digits_net(), _digits_net().to(memory_format=torch.contiguous_format)
    start = {k: v.clone() for k, v in net.state_dict().items()}
    ours = _in_our_order(start)
    workspace = network.mnist_cnn_prepare(ours, count, exact)

    def our_step():
        network.mnist_cnn_step(ours, workspace, images, labels, rows, lr, exact)

    def stepping(net, compiled=True):
        weights = list(net.parameters())

        def loss_of(x, y):
            with torch.autocast("cuda", torch.bfloat16, enabled=not exact):
                return F.cross_entropy(net(x), y)

        loss_of = torch.compile(loss_of, dynamic=False) if compiled else loss_of

        def step():
            grads = torch.autograd.grad(loss_of(images[rows, None], labels[rows]), weights)
            with torch.no_grad():
                torch._foreach_add_(weights, grads, alpha=-lr)

        return step

    def agree(*_):  # the steps change the weights: both from the same
        before = _in_our_order(start)
        net.load_state_dict(start)
        for mine, value in zip(ours, before, strict=True):
            mine.copy_(value)
        workspace.copy_(network.mnist_cnn_prepare(ours, count, exact))
        eager()
        our_step()
        after = _in_our_order(net.state_dict())
        for i, (old, got, want) in enumerate(zip(before, ours, after, strict=True)):
            error = ((got - want).norm() / (want - old).norm()).item()
            assert error < (0.05 if exact else 0.5), f"parameter {i}: off by {error:.1e}"

    torch.compiler.reset()
    eager = stepping(net, compiled=False)
    candidates = {
        "ours": capture(our_step),
        "PyTorch": capture(eager),
        "torch.compile": capture(stepping(net)),
        "compiled, NCHW": capture(stepping(plain)),
    }
    products = 2 * 784 * 288 + 3 * (196 * 64 * 288 + 3136 * 128 + 1280)  # an image's
    name = f"a step of {count:,} images, {'exact' if exact else 'halves'}"
    dtype = torch.float32 if exact else torch.bfloat16
    return _computing(name, 2 * products * count, dtype, candidates, agree=agree)


def _digits_net() -> nn.Sequential:
    """Return the network of notebook 17, channels last."""

    def block(c_in, c_out):
        conv = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(c_out), nn.ReLU(), nn.MaxPool2d(2)]

    linears = nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10)
    net = nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), *linears)
    return net.cuda().to(memory_format=torch.channels_last)


def _in_our_order(state: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return its weights as kernels/mnist_cnn.cu keeps them."""
    values = {key: v for key, v in state.items() if "tracked" not in key}
    values["4.weight"] = values["4.weight"].permute(0, 2, 3, 1)
    values["9.weight"] = values["9.weight"].view(128, 64, 49).permute(2, 0, 1)
    return [value.detach().contiguous().clone() for value in values.values()]
