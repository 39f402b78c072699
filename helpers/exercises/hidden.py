"""What a capstone's kernel is tested with, and marked on. Better read after the attempt.

Each Task draws its cases anew in every run: sizes of all kinds, also empty ones, places in memory,
types, and values that a kernel written for normal numbers gets wrong.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

Size = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """What it is in words, the arguments, and how far off a result may be (see check_close)."""

    what: str
    arguments: tuple
    rtol: float | None = None


@dataclass(frozen=True)
class Task:
    """A function of the course: what tests it, what it has to return, what marks it.

    `ref` gets the arguments and returns what is right. `marked` gets whether there is a GPU;
    without one its numbers are few, since they are counted.
    """

    file: str  # of kernels/, whose kernel is the one to beat; empty: a notebook's string is
    function: str
    cases: Callable[[random.Random], Iterator[Case]]
    ref: Callable
    marked: Callable[[bool], tuple]


# ---------------------------------------------------------------- histogram


def _bytes(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


def _histogram_cases(draw: random.Random) -> Iterator[Case]:
    yield Case("no byte", (_bytes(0),))
    yield Case("no byte, in two dimensions", (_bytes(0, draw.randint(2, 9)),))
    yield Case("one byte", (_bytes(1),))
    for most in (31, 300, 5000, 70_000):
        n = draw.randint(2, most)
        yield Case(f"{n:,} bytes", (_bytes(n),))
    value, n = draw.choice((0, 255, draw.randint(1, 254))), draw.randint(600_000, 700_000)
    yield Case(f"{n:,} times the byte {value}", (torch.full((n,), value, dtype=torch.uint8),))
    n, begin = draw.randint(100, 3000), draw.randint(1, 15)
    yield Case(f"{n:,} bytes, {begin} behind a multiple of 16", (_bytes(n + begin)[begin:],))
    shape = draw.randint(2, 5), draw.randint(2, 70), draw.randint(2, 70)
    yield Case(f"a tensor of {_times(shape)} bytes", (_bytes(*shape),))
    n = draw.randint(2000, 9000)
    dark = torch.where(torch.rand(n) < 0.97, 0, _bytes(n)).to(torch.uint8)
    yield Case(f"{n:,} bytes, nearly all of them 0", (dark,))


def _histogram_marked(is_gpu: bool) -> tuple:
    n = 2**28 if is_gpu else 2**18
    gray = (128 + 40 * torch.randn(n)).clamp(0, 255).to(torch.uint8)
    gray[: n // 8] = 255  # a sky that is burnt out
    return (gray,)


# ---------------------------------------------------------------- softmax


def _softmax_cases(draw: random.Random) -> Iterator[Case]:
    wide = draw.randint(1025, 5000)
    sizes: list[Size] = [(1, 1), (draw.randint(2, 300), 1), (draw.randint(2, 9), wide)]
    sizes += [(draw.randint(2, 70), draw.randint(2, 33)), (0, draw.randint(1, 40)), (3, 0)]
    sizes += [(draw.randint(2, 4), draw.randint(2, 6), draw.randint(34, 1024))]
    for size in sizes:
        yield Case(f"{_times(size)} numbers", (torch.randn(size),))
    rows, C = draw.randint(2, 9), draw.randint(2, 700)
    for dtype in (torch.bfloat16, torch.float16):
        what = f"{rows}×{C} numbers of {dtype}".replace("torch.", "")
        yield Case(what, ((3 * torch.randn(rows, C)).to(dtype),))
    begin = draw.randint(1, 3)
    behind = torch.randn(rows * C + begin)[begin:].view(rows, C)
    yield Case(f"{rows}×{C} numbers, {begin} behind a multiple of 16 bytes", (behind,))
    yield Case("numbers near 1e30", (1e30 * torch.randn(rows, C),))
    yield Case("numbers near -1000", (torch.randn(rows, C) - 1000,))
    yield Case("numbers that are all equal", (torch.full((rows, C), draw.uniform(-99, 99)),))
    for what, value in (("NaN", math.nan), ("+infinity", math.inf), ("-infinity", -math.inf)):
        x = torch.randn(rows, C)
        x[draw.randrange(rows), draw.randrange(C)] = value
        yield Case(f"one {what} in {rows}×{C} numbers", (x,))
    x = torch.randn(rows, C + 40)
    x[:, : draw.randint(33, C + 39)] = -math.inf
    yield Case("rows that begin with -infinity, as under a mask", (x,))
    x = torch.randn(rows, C)
    x[draw.randrange(rows)] = -math.inf
    yield Case("a row that is all -infinity", (x,))


def _softmax_marked(is_gpu: bool) -> tuple:
    return (torch.randn(16_384 if is_gpu else 64, 1000),)


# ---------------------------------------------------------------- matmul


def _matmul_cases(draw: random.Random) -> Iterator[Case]:
    def side(most):
        return draw.randint(2, most)

    sizes = [(1, 1, 1), (side(9), side(9), side(9)), (side(300), side(40), side(300))]
    sizes += [(1, side(700), side(40)), (side(200), side(90), 1), (129, 17, 65)]
    sizes += [(0, side(9), side(9)), (side(9), side(9), 0)]
    for M, K, N in sizes:
        yield Case(f"{M}×{K} times {K}×{N}", (torch.randn(M, K), torch.randn(K, N)))
    M, K, N = side(9), 0, side(9)
    yield Case(f"{M}×0 times 0×{N}, which is 0", (torch.randn(M, K), torch.randn(K, N)))
    M, K, N = side(150), side(70), side(150)
    A, B = torch.randn(M, K), torch.randn(K, N)
    yield Case(f"{M}×{K}, transposed, times {K}×{N}", (A.t().contiguous().t(), B))
    yield Case(f"{M}×{K} times {K}×{N}, transposed", (A, B.t().contiguous().t()))
    part = torch.randn(M, K + side(9))[:, -K:]
    yield Case(f"{M}×{K}, part of a wider matrix, times {K}×{N}", (part, B))
    yield Case("numbers near 1e18", (1e18 * A, 1e18 * B))
    for what, value in (("NaN", math.nan), ("infinity", math.inf)):
        odd = A.clone()
        odd[draw.randrange(M), draw.randrange(K)] = value
        yield Case(f"one {what} in A, {M}×{K} times {K}×{N}", (odd, B))
    odd = B.clone()
    odd[draw.randrange(K), draw.randrange(N)] = math.nan
    yield Case(f"one NaN in B, {M}×{K} times {K}×{N}", (A, odd))


def _matmul_marked(is_gpu: bool) -> tuple:
    M, K, N = (2048, 2048, 2048) if is_gpu else (256, 64, 256)
    return torch.randn(M, K), torch.randn(K, N)


# ---------------------------------------------------------------- attention


def _attention_cases(draw: random.Random) -> Iterator[Case]:
    def tensors(B, H, S_q, S_kv, D):
        return torch.randn(B, H, S_q, D), torch.randn(B, H, S_kv, D), torch.randn(B, H, S_kv, D)

    D = draw.choice((8, 16, 40, 64))
    sizes = [(1, 1, 1, 1, 1), (2, 3, draw.randint(2, 70), draw.randint(2, 70), D)]
    sizes += [(1, 2, draw.randint(2, 9), draw.randint(257, 600), draw.randint(1, 63))]
    sizes += [(1, 1, draw.randint(33, 150), draw.randint(2, 31), 128), (2, 1, 64, 64, 64)]
    sizes += [(0, 2, 3, 4, 8), (2, 2, 0, 4, 8)]
    for size in sizes:
        for causal in (False, True):
            B, H, S_q, S_kv, D = size
            what = f"{B}×{H} heads, {S_q} queries, {S_kv} keys, D = {D}" + ", causal" * causal
            yield Case(what, (*tensors(*size), causal))
    S = draw.randint(20, 90)
    q, k, v = tensors(1, 2, S, S, 32)
    yield Case(f"scores in the hundreds, {S} keys", (60 * q, k, v, False), rtol=1e-3)
    yield Case(f"scores far below 0, {S} keys", (-60 * k.abs(), k.abs(), v, True), rtol=1e-3)
    yield Case(f"{S} keys that are all equal", (q, k[:, :, :1].expand_as(k).clone(), v, False))
    yield Case(f"values near 1e30, {S} keys", (q, k, 1e30 * v, True))
    odd = q.clone()
    odd[0, 1, draw.randrange(S), draw.randrange(32)] = math.nan
    yield Case(f"one NaN in q, {S} keys", (odd, k, v, False))


def _attention_ref(q, k, v, causal):
    scores = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    if causal:
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(unseen, -math.inf)
    return scores.softmax(-1) @ v.double()


def _attention_marked(is_gpu: bool) -> tuple:
    B, H, S, D = (4, 16, 2048, 64) if is_gpu else (1, 2, 128, 64)
    return (*(torch.randn(B, H, S, D) for _ in range(3)), False)


# ---------------------------------------------------------------- depthwise convolution


def _depthwise_cases(draw: random.Random) -> Iterator[Case]:
    def case(N, C, H, W, kH, kW, *how, bias=True, change=None, what=""):
        inp, weight = torch.randn(N, C, H, W), torch.randn(C, kH, kW)
        if change is not None:
            inp[tuple(draw.randrange(size) for size in inp.shape)] = change
        what += f"{_times((N, C, H, W))} under {kH}×{kW}"
        what += "".join(f", {name} {n}" for name, n in zip(HOW, how, strict=True))
        return Case(what, (inp, weight, torch.randn(C if bias else 0), *how))

    def side(most):
        return draw.randint(2, most)

    yield case(1, 1, 1, 1, 1, 1, 1, 0, 1)
    for K in (3, 5, 7):
        for stride in (1, 2):
            yield case(2, 3, K + side(30), K + side(30), K, K, stride, K // 2, 1)
    yield case(1, 2, 8 + side(9), draw.randint(257, 530), 7, 7, 1, 3, 1)
    yield case(side(4), 2, 9, 16, 3, 3, 1, 0, 1, bias=False, what="no bias: ")
    yield case(2, 3, 14 + side(9), 11 + side(9), 4, 2, 3, 2, 1)
    yield case(1, 3, 13 + side(9), 13 + side(9), 3, 3, 1, 2, 2)
    yield case(2, 2, side(6), side(6), 3, 3, 1, 5, 1)
    yield case(0, 3, 5, 5, 3, 3, 1, 1, 1)
    yield case(1, 2, 9, 12, 3, 3, 1, 1, 1, change=math.nan, what="one NaN: ")
    yield case(1, 2, 9, 12, 5, 5, 1, 2, 1, change=math.inf, what="one infinity: ")


HOW = ("stride", "padding", "dilation")


def _depthwise_ref(inp, weight, bias, stride, padding, dilation):
    C = inp.shape[1]
    one = weight.double()[:, None]
    shift = bias.double() if bias.numel() else None
    return F.conv2d(inp.double(), one, shift, stride, padding, dilation, groups=C)


def _depthwise_marked(is_gpu: bool) -> tuple:
    N, C = (32, 256) if is_gpu else (2, 4)
    inp, weight, bias = torch.randn(N, C, 56, 56), torch.randn(C, 7, 7), torch.randn(C)
    return inp, weight, bias, 1, 3, 1


# ---------------------------------------------------------------- the network's first block


def _block_cases(draw: random.Random) -> Iterator[Case]:
    def case(what, N, M, H, W, change=None):
        images, weight = torch.randn(N + draw.randint(1, 5), H, W), torch.randn(M, 1, 3, 3)
        rows, stats = torch.randint(len(images), (N,)), torch.randn(4, M)
        if change:
            change(images, weight, stats)
        sizes = f"{N} of {len(images)} images of {H}×{W}, {M} channel{'s' * (M > 1)}"
        return Case(f"{what}{sizes}", (images, rows, weight, stats))

    def side(most):
        return draw.randint(1, most)

    def small(what, change):
        M, H, W = draw.randint(2, 9), 2 * side(8), 4 * side(4)
        return case(what, draw.randint(2, 4), M, H, W, change)

    for size in ((1, 1, 2, 4), (0, 3, 4, 4), (1, 1, 28, 28), (draw.randint(2, 4), 32, 28, 28)):
        yield case("", *size)
    yield case("", draw.randint(2, 3), draw.randint(33, 70), 2 * side(8), 4 * side(4))
    yield case("", 1, draw.randint(2, 4), 2 * draw.randint(18, 24), 28)  # many windows
    yield case("", 2, 2 * side(3) + 1, 2, 4 * draw.randint(8, 16))
    yield case("", 2, 2 * side(3) + 1, 2 * draw.randint(15, 32), 4)
    yield small("scales below 0: ", lambda images, weight, stats: stats[0].abs_().neg_())
    yield small("a scale of 0: ", lambda images, weight, stats: stats[0, :1].zero_())
    yield small("images that are all equal, so ties: ", lambda images, *_: images.fill_(2.0))
    yield small("images that are all 0: ", lambda images, *_: images.zero_())
    yield small("nothing above 0: ", lambda images, weight, stats: stats[1].fill_(-1e4))
    yield small("shifts far above 0: ", lambda images, weight, stats: stats[1].add_(100.0))
    yield small("images near 1e15: ", lambda images, *_: images.mul_(1e15))
    N, M, begin = draw.randint(2, 4), draw.randint(2, 9), draw.randint(1, 3)
    images = torch.randn(6 * 32 + begin)[begin:].view(6, 4, 8)
    what = f"{N} of 6 images of 4×8, {M} channels, {begin} behind a multiple of 16 bytes"
    yield Case(what, (images, torch.randperm(6)[:N], torch.randn(M, 1, 3, 3), torch.randn(4, M)))


def _block_ref(images, rows, weight, stats):
    y = F.conv2d(images[rows, None].double(), weight.double(), padding=1)
    scale, shift = stats[:2, :, None, None].double()
    return F.max_pool2d(F.relu(scale * y + shift), 2)


def _block_marked(is_gpu: bool) -> tuple:
    images = torch.randn(4096 if is_gpu else 4, 28, 28)
    rows = torch.randperm(len(images))[: 1024 if is_gpu else 2]
    return images, rows, torch.randn(32, 1, 3, 3), torch.randn(4, 32)


def _times(shape: Size) -> str:
    return "×".join(map(str, shape))


def _histogram_ref(inp):
    return torch.bincount(inp.reshape(-1), minlength=256)


TASKS = {
    "histogram": Task(
        "histogram", "histogram", _histogram_cases, _histogram_ref, _histogram_marked
    ),
    "softmax": Task(
        "softmax",
        "softmax_forward",
        _softmax_cases,
        lambda inp: inp.double().softmax(-1),
        _softmax_marked,
    ),
    "matmul": Task(
        "matmul", "matmul", _matmul_cases, lambda A, B: A.double() @ B.double(), _matmul_marked
    ),
    "attention": Task(
        "attention", "attention_forward", _attention_cases, _attention_ref, _attention_marked
    ),
    "depthwise_conv2d": Task(
        "depthwise_conv2d",
        "depthwise_conv2d_forward",
        _depthwise_cases,
        _depthwise_ref,
        _depthwise_marked,
    ),
    "first_block": Task("", "first_block", _block_cases, _block_ref, _block_marked),
}
