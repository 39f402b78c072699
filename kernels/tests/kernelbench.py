"""Problems that others have set: KernelBench's of level 1 that the course's operators cover.

    python -m kernels.tests.kernelbench    times them on a GPU, for a section of kernels/README.md

A. Ouyang, S. Guo and others, github.com/ScalingIntelligence/KernelBench (MIT), in the sizes of
version 0.1: forward passes, of float32 unless they say otherwise, random numbers from 0 to 1 and
layers as PyTorch initialises them. PyTorch's settings are its own: TF32 for cuDNN and not for
products, algorithms without a search.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import kernels
from helpers.checks import check_close
from helpers.compiler import set_up
from helpers.device import BACKEND, DEVICE
from helpers.make import readme
from helpers.recorded import recorded
from helpers.timing import measure_speeds

KEY = "kernelbench"
Calls = tuple[Callable[[], Tensor], Callable[[], Tensor]]  # PyTorch's and ours


@dataclass(frozen=True)
class Problem:
    """One of the problems: its number there, what it is, its sizes, and small ones for tests."""

    number: int
    name: str
    make: Callable[..., Calls]  # of sizes
    sizes: tuple
    small: tuple
    rtol: float = 1e-3  # cuDNN's TF32 is cut off, not rounded


def _uniform(*shape: int, **more: Any) -> Tensor:
    return torch.rand(shape, device=DEVICE, **more)


def _product(M: int, K: int, N: int, a: str = "", b: str = "") -> Calls:
    A = _uniform(K, M).t() if a else _uniform(M, K)
    B = _uniform(N, K).t() if b else _uniform(K, N)
    return lambda: A @ B, lambda: kernels.matmul(A, B)


def _symmetric(N: int) -> Calls:
    A, B = ((X + X.t()) / 2 for X in (_uniform(N, N), _uniform(N, N)))
    return lambda: A @ B, lambda: kernels.matmul(A, B)


def _rows(*sizes: int) -> Calls:
    *batch, K, N = sizes
    A, B = _uniform(*batch, K), _uniform(K, N)
    return lambda: A @ B, lambda: kernels.matmul(A.flatten(0, -2), B).view(*batch, N)


def _pointwise(theirs: Callable, ours: Callable, *shape: int) -> Calls:
    x = _uniform(*shape)
    return lambda: theirs(x), lambda: ours(x)


def _batch_norm(N: int, C: int, H: int, W: int) -> Calls:
    x, norm = _uniform(N, C, H, W), nn.BatchNorm2d(C, device=DEVICE)
    ours = [norm.running_mean.clone(), norm.running_var.clone(), norm.weight, norm.bias]
    return lambda: norm(x), lambda: kernels.batch_norm2d(x, *ours, training=True)


def _layer_norm(N: int, *shape: int) -> Calls:
    x, norm = _uniform(N, *shape), nn.LayerNorm(shape, device=DEVICE)

    def ours() -> Tensor:
        rows = kernels.layer_norm(x.flatten(1), norm.weight.flatten(), norm.bias.flatten())
        return rows.view_as(x)

    return lambda: norm(x), ours


def _cross_entropy(N: int, C: int) -> Calls:
    logits, target = _uniform(N, C), torch.randint(C, (N,), device=DEVICE)
    return lambda: F.cross_entropy(logits, target), lambda: kernels.cross_entropy(logits, target)


def _attention(*shape: int) -> Calls:
    q, k, v = (_uniform(*shape, dtype=torch.float16) for _ in range(3))
    theirs = partial(F.scaled_dot_product_attention, q, k, v)
    return theirs, lambda: kernels.attention(q, k, v)


def _conv2d(N: int, C: int, H: int, W: int, C_out: int, size: Any, **how: Any) -> Calls:
    bias = how.pop("bias", False)
    x, layer = _uniform(N, C, H, W), nn.Conv2d(C, C_out, size, bias=bias, device=DEVICE, **how)
    ours = partial(kernels.conv2d, x, layer.weight, layer.bias, tf32=True, **how)
    return lambda: layer(x), ours


def _depthwise(N: int, C: int, H: int, W: int, size: Any, then: int = 0, **how: Any) -> Calls:
    x = _uniform(N, C, H, W)
    layer = nn.Conv2d(C, C, size, groups=C, bias=False, device=DEVICE, **how)
    ours = partial(kernels.depthwise_conv2d, x, layer.weight[:, 0], **how)
    if not then:
        return lambda: layer(x), ours
    pointwise = nn.Conv2d(C, then, 1, bias=False, device=DEVICE)
    both = lambda: kernels.conv2d(ours(), pointwise.weight, tf32=True)  # noqa: E731
    return lambda: pointwise(layer(x)), both


TALL = (4096, 393216)
TF32 = 1e-2
PROBLEMS = [
    Problem(1, "square product", _product, (4096, 4096, 4096), (17, 17, 17)),
    Problem(2, "product", _product, (2048, 8192, 4096), (9, 33, 17)),
    Problem(4, "matrix times column", _product, (2048, 1048576, 1), (9, 1030, 1)),
    Problem(6, "product with large K", _product, (256, 524288, 256), (3, 2051, 5)),
    Problem(7, "product with small K", _product, (32768, 64, 32768), (70, 4, 66)),
    Problem(8, "product, odd sizes", _product, (8205, 2949, 5921), (13, 29, 21)),
    Problem(9, "tall times wide", _product, (32768, 32, 32768), (70, 3, 66)),
    Problem(10, "3D times matrix", _rows, (16, 1024, 2048, 768), (2, 3, 9, 5)),
    Problem(11, "4D times matrix", _rows, (8, 256, 512, 256, 768), (2, 3, 2, 9, 5)),
    Problem(13, "symmetric matrices", _symmetric, (4096,), (19,)),
    Problem(16, "product, A transposed", _product, (2048, 8192, 4096, "t"), (9, 33, 17, "t")),
    Problem(17, "product, B transposed", _product, (2048, 8192, 4096, "", "t"), (9, 3, 7, "", "t")),
    Problem(18, "product, both", _product, (2048, 8192, 4096, "t", "t"), (9, 33, 17, "t", "t")),
    Problem(19, "ReLU", partial(_pointwise, torch.relu, kernels.relu), TALL, (3, 50)),
    Problem(23, "softmax", partial(_pointwise, partial(F.softmax, dim=1), kernels.softmax), TALL,
            (3, 50)),
    Problem(26, "GELU", partial(_pointwise, F.gelu, kernels.gelu), TALL, (3, 50)),
    Problem(33, "batch norm, training", _batch_norm, (64, 64, 512, 512), (2, 3, 5, 4)),
    Problem(40, "layer norm", _layer_norm, (16, 64, 256, 256), (3, 4, 5, 6)),
    Problem(50, "11 × 11 / 4, 3 → 96", partial(_conv2d, bias=True, stride=4, padding=2),
            (256, 3, 224, 224, 96, 11), (2, 3, 20, 19, 8, 11), TF32),
    Problem(55, "3 × 3, 64 → 128", _conv2d, (8, 64, 512, 1024, 128, 3), (2, 4, 7, 9, 8, 3), TF32),
    Problem(56, "5 × 7, 64 → 128", _conv2d, (8, 64, 512, 256, 128, (5, 7)),
            (2, 4, 9, 9, 8, (5, 7)), TF32),
    Problem(62, "5 × 9, 32 → 64", _conv2d, (8, 32, 512, 512, 64, (5, 9)),
            (2, 4, 9, 11, 8, (5, 9)), TF32),
    Problem(63, "3 × 3, 16 → 128", _conv2d, (16, 16, 1024, 1024, 128, 3), (2, 3, 7, 9, 8, 3), TF32),
    Problem(80, "5 × 9, dilated", partial(_conv2d, padding=(2, 4), dilation=(2, 3)),
            (8, 32, 512, 512, 64, (5, 9)), (2, 4, 14, 26, 8, (5, 9)), TF32),
    Problem(82, "depthwise 3 × 3", _depthwise, (16, 64, 512, 512, 3), (2, 3, 7, 9, 3), TF32),
    Problem(83, "depthwise 3 × 1", _depthwise, (64, 8, 512, 512, (3, 1)), (2, 3, 7, 9, (3, 1)),
            TF32),
    Problem(84, "depthwise 3 × 3, wide", _depthwise, (64, 128, 256, 512, 3), (2, 4, 5, 11, 3),
            TF32),
    Problem(85, "depthwise 3 × 7", _depthwise, (32, 128, 128, 256, (3, 7)), (2, 3, 7, 9, (3, 7)),
            TF32),
    Problem(86, "depthwise, then 1 × 1", partial(_depthwise, padding=1),
            (16, 64, 512, 512, 3, 128), (2, 3, 7, 9, 3, 8), TF32),
    Problem(87, "1 × 1, 64 → 128", _conv2d, (16, 64, 1024, 1024, 128, 1), (2, 4, 7, 9, 8, 1), TF32),
    Problem(95, "cross-entropy", _cross_entropy, (32768, 4096), (5, 40)),
    Problem(97, "attention, float16, D 1,024", _attention, (32, 32, 512, 1024), (1, 2, 5, 64),
            TF32),
]  # fmt: skip


def timed(problem: Problem) -> dict:
    """Compare, then time ours, PyTorch and torch.compile; or say what is wrong with ours."""
    torch.compiler.reset()
    torch.cuda.empty_cache()  # of the problem before
    theirs, ours = problem.make(*problem.sizes)
    about = {"number": problem.number, "work": problem.name}
    try:
        check_close(ours(), theirs(), rtol=problem.rtol)
    except (AssertionError, RuntimeError) as error:
        return about | {"wrong": str(error).splitlines()[0]}
    candidates = {"ours": ours, "PyTorch": theirs, "torch.compile": torch.compile(theirs)}
    return about | measure_speeds(candidates, check=False)


@torch.no_grad()
def time_all() -> None:
    """Time all problems and store them under KEY."""
    found = []
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=True):
        for problem in PROBLEMS:
            work = timed(problem)
            ms = {row["name"]: row["median_ms"] for row in work.get("rows", [])}
            print(f"{KEY} {problem.number} {problem.name}: {work.get('wrong', ms)}", flush=True)
            found.append(work)
    os.environ["RECORD"] = "1"
    recorded(KEY, lambda: found)


if __name__ == "__main__":
    if BACKEND != "cuda":
        sys.exit("an NVIDIA GPU is needed: kernels/README.md has what was measured on one")
    set_up()
    time_all()
    readme.write()
