"""Ways through the kernel files that a case's sizes alone do not take, and how exact each is.

A Way is a size, and what is changed of the arguments that the case makes for it: their type, their
layout, where in memory they begin, which numbers they hold. test_ways.py takes each; instances.py
finds out which instances of the kernels it runs.
"""

import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from helpers.base.machine import ROOT
from kernels.tests.contract import FEW, Arguments, Case, is_float, tensors, unit_of_type

FILES = sorted((ROOT / "kernels").glob("*.cu"))
TESTS = {path.stem: importlib.import_module(f"kernels.tests.test_{path.stem}") for path in FILES}
CASES = {(op, case.function): case for op, tests in TESTS.items() for case in tests.CASES}

F16, BF16 = torch.float16, torch.bfloat16
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
Change = Callable[[Arguments], Arguments]


@dataclass(frozen=True)
class Way:
    """One call of a host function."""

    op: str
    function: str
    size: tuple
    name: str = ""  # of the change
    change: Change = staticmethod(lambda arguments: arguments)
    dtype: torch.dtype | None = None  # of the floats, where the case's own are of another

    @property
    def case(self) -> Case:
        case = CASES[self.op, self.function]
        return replace(case, ref=long_product) if self.dtype == torch.int8 else case

    def arguments(self) -> Arguments:
        return fitted(self.op, self.function, self.change(self.case.arguments(*self.size)))

    def __str__(self) -> str:
        size = "×".join(map(str, self.size))
        return " ".join(part for part in (self.op, self.function, self.name, size) if part)

    def tolerance(self) -> dict:
        """Return the case's tolerance, and of a result in a half type its last rounding."""
        given = self.case.tolerance(*self.size)
        if self.dtype not in (F16, BF16):
            return given
        roundings = ROUNDED_BEFORE.get(self.function, 1.02)
        return given | {"rtol": given.get("rtol", 0) + roundings * unit_of_type(self.dtype)}

    def unit(self) -> float | None:
        """Return what inputs are rounded by where the type says it, not the arguments."""
        rounded = self.dtype in (F16, BF16) and self.function in ROUNDED_BEFORE
        return unit_of_type(self.dtype) if rounded else None


def long_product(A: torch.Tensor, B: torch.Tensor, allow_tf32: bool) -> torch.Tensor:
    """Return the product of bytes, whose sums stay below 2^31 here: exact in float64."""
    return (A.double() @ B.double()).long()  # on a GPU PyTorch has no product of int64


# Weights are rounded to the type before they are multiplied: by how many roundings of a typical
# element one may then be off. Where few keys are seen, terms are larger than the typical result,
# and may cancel. Backward rounds ds as well, whose sums cancel.
ROUNDED_BEFORE = {
    "attention_forward": 4.02,
    "flash_attention_forward": 4.02,
    "flash_attention_backward": 8.02,
}


def fitted(op: str, function: str, arguments: Arguments) -> Arguments:
    """Return arguments whose statistics are those of inp."""
    inp, eps = arguments.get("inp"), TESTS[op].EPS if hasattr(TESTS[op], "EPS") else None
    if function == "layer_norm_backward":
        mean, rstd = inp.double().mean(-1).float(), TESTS[op].rstd_of(inp.double(), eps).float()
        return arguments | {"mean": mean, "rstd": rstd}
    if function == "rms_norm_backward":
        return arguments | {"rstd": TESTS[op].rstd_of(inp.double(), eps).float()}
    if function == "batch_norm2d_backward":
        return arguments | TESTS[op].statistics(inp)
    if function == "flash_attention_backward":
        return TESTS[op].refitted(arguments)
    return arguments


# ------------------------------------------------------------------ changes of arguments


def changed(change: Callable[[torch.Tensor], torch.Tensor], names, arguments: Arguments):
    return {n: change(v) if n in names else v for n, v in arguments.items()}


def cast(dtype: torch.dtype, *names: str) -> Change:
    return partial(changed, lambda x: x.to(dtype), names)


def in_bytes(*names: str) -> Change:
    return partial(changed, lambda x: (40 * x).clamp(-128, 127).to(torch.int8), names)


def channels_last(*names: str) -> Change:
    return partial(changed, lambda x: x.contiguous(memory_format=torch.channels_last), names)


def by_columns(*names: str) -> Change:
    return partial(changed, lambda x: x.mT.contiguous().mT, names)


def in_wider_rows(more: int, *names: str) -> Change:
    """Return matrices whose rows lie further apart than they are long, from an aligned place."""

    def part(x):
        return x.new_zeros(len(x), x.size(1) + more)[:, : x.size(1)].copy_(x)

    return partial(changed, part, names)


def then(*changes: Change) -> Change:
    def all_of(arguments):
        for change in changes:
            arguments = change(arguments)
        return arguments

    return all_of


def shifted(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """Return the same numbers in the same layout, so many elements after an aligned place."""
    span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    storage = tensor.new_zeros(span + elements + 1)
    return storage.as_strided(tensor.shape, tensor.stride(), elements).copy_(tensor)


def places(tensor: torch.Tensor) -> list[int]:
    """Return by how many elements to shift: one, and as many as 8 bytes have, aligned half-way."""
    return sorted({1, max(1, 8 // tensor.element_size())})


# ------------------------------------------------------------------ numbers of other kinds


# Each takes a tensor, and how many of the arguments that are changed come before it.


def far_below(x: torch.Tensor, place: int) -> torch.Tensor:
    return x - 1000


def opposed(x: torch.Tensor, place: int) -> torch.Tensor:
    """Return rows that begin with 40, and those of all tensors but the first one with -40."""
    x = x.clone()
    if x.dim():
        x[..., :1] = -40 if place else 40
    return x


def some_far_below(x: torch.Tensor, place: int) -> torch.Tensor:
    """Return every second row far below zero, and of the other rows all but the end."""
    x = x.clone()
    if x.dim() > 1:
        x[::2] -= 1000
    if x.dim():
        x[..., : x.shape[-1] // 2] -= 1000
    return x


def ties(x: torch.Tensor, place: int) -> torch.Tensor:
    return x.real.round().clamp(-1, 1).to(x.dtype)


def blank(x: torch.Tensor, place: int) -> torch.Tensor:
    return torch.full_like(x, -0.4242)


def ramp(x: torch.Tensor, place: int) -> torch.Tensor:
    """Return numbers that grow along every row: each maximum comes after all the others."""
    return torch.linspace(-1, 2, max(1, x.numel()), device=x.device).view(x.shape).to(x.dtype)


def ramp_down(x: torch.Tensor, place: int) -> torch.Tensor:
    return -ramp(x, place)


def zeros(x: torch.Tensor, place: int) -> torch.Tensor:
    return torch.zeros_like(x)


KINDS = {
    kind.__name__: kind
    for kind in (far_below, some_far_below, opposed, ties, blank, ramp, ramp_down, zeros)
}


# Arguments that have to be what they are: variances, probabilities, weights of a trained network.
KEPT = {"var", "running_var", "rstd", "mean", "exp_avg_sqs", "scales", "scale_a", "scale_b"}
KEPT_BY = {("softmax_backward", kind): {"out"} for kind in KINDS} | {
    # gradients that are all the same add up to 0, where rounding errors alone are left
    (name, "blank"): {"out", "dout"}
    for name in ("softmax_backward", "layer_norm_backward", "rms_norm_backward")
}
KEPT_BY["flash_attention_backward", "blank"] = {"dout", "k", "v"}
FAR = {"far_below", "some_far_below"}
# What a kind says nothing about: float16 and float8 overflow there, of scores of 10^6 the last bit
# decides; and the mean that a gradient is given is rounded by more than its neighbours differ.
LEFT_OUT = {
    **dict.fromkeys(["quantized_linear", "matmul_fp8", "attention_forward"], FAR),
    **{f"conv2d_half_{name}": FAR for name in ("forward", "backward_input", "backward_weight")},
    **dict.fromkeys(["linear", "linear_gelu", "linear_residual", "linear_silu_gate"], FAR),
    **dict.fromkeys(["flash_attention_forward", "flash_attention_backward"], FAR),
    **{f"{norm}_backward": FAR for norm in ("layer_norm", "rms_norm", "batch_norm2d")},
    "mnist_cnn_step": {*KINDS} - {"ties", "blank"},
    **dict.fromkeys(["mnist_cnn_prepare", "mnist_cnn_predict"], KINDS),
}
# Functions that compare or scale what they read: every path of theirs gets numbers of each kind.
CHOOSING = {"softmax", "cross_entropy", "argmax", "attention", "max_pool2d", "layer_norm"}
CHOOSING |= {"rms_norm", "batch_norm2d", "flash_attention"}
OF_SUMS = ("far_below", "opposed", "blank")  # kinds for the other functions


# The most roundings that a result as a whole may be off by: below ten times what is measured, which
# test_contract.py sees to. It is exact, or rounded once, or a sum: how long, and in what order?
OFF: dict[str, float] = {
    **dict.fromkeys(["all_reduce", "all_reduce_", "max_pool2d_forward", "max_pool2d_backward"], 0),
    **dict.fromkeys(["relu_forward", "relu_backward", "transpose"], 0),
    **dict.fromkeys(["square", "vector_add", "sgd_step", "philox_dropout"], 1.5),
    **dict.fromkeys(["adamw_step", "sgd_momentum_step", "quantized_linear", "matmul_fp8"], 2),
    **dict.fromkeys(["all_reduce_here", "batch_norm2d_forward", "philox_uniform"], 2),
    **dict.fromkeys(["gelu_forward", "gelu_backward"], 3),
    "cross_entropy_backward": 5,
    # single sums, of which some are near 0
    **dict.fromkeys(["sum", "linear_backward_weight"], 20),
    "mnist_cnn_predict": 2,
    "linear_forward": 30,  # one sum of 3,136 terms
    ("conv2d_naive", "conv2d_backward_weight"): 20,
    # bytes, whole numbers, places: all right or all wrong
    **dict.fromkeys(["argmax", "blur", "histogram", "mnist_cnn_prepare", "philox_bits"], 0),
    "rgb_to_gray": 0,
}
USUAL = 8.0
OFF_IN_HALVES = 2.0  # rounded once
OFF_BY_KIND = 100.0  # rounding errors of the same sign add up; what is wrong is off by thousands
# Of opposed rows all scores are -715 and all errors of their exponents alike: 116 at most were seen
# of 480 calls; PyTorch's float32 was off by 0.4 to 1 times ours in one that was looked at.
OFF_BY_KINDS = {("flash_attention_backward", "opposed"): 200.0}
# What is exact to an absolute error: a few numbers may all be small.
ABSOLUTE = {"gelu", "cross_entropy"}
# Gradients that a row of one column has none of: differences are left.
OF_ROWS = {"layer_norm_backward", "rms_norm_backward"}


def limit_of(op: str, function: str) -> float:
    return OFF.get((op, function), OFF.get(function, USUAL))


def allowed(way: Way, unit: float = 2**-24) -> float:
    """Return how many roundings a result of the way may be off by, the last one being of `unit`.

    What a function of halves returns in float32, as a norm's mean, is a sum as any other.
    """
    most = limit_of(way.op, way.function)
    if way.function == "mnist_cnn_step" and not way.size[-1]:
        return OFF_BY_KIND  # a maximum may fall on another pixel: 20 were seen
    one_column = way.function in OF_ROWS and way.size[-1] == 1
    if one_column or (way.op in ABSOLUTE and elements(way.size) < FEW):
        return float("inf")
    return min(most, OFF_IN_HALVES) if unit in map(unit_of_type, (F16, BF16)) else most


def of_kind(kind: str, way: Way) -> Arguments:
    """Return the way's arguments with other numbers."""
    kept = KEPT | KEPT_BY.get((way.function, kind), set())
    arguments = way.arguments()
    names = [n for n, v in tensors(arguments).items() if is_float(v) and not n.endswith("]")]

    for place, name in enumerate(name for name in names if name not in kept):
        x = arguments[name]
        wide = x.float() if x.dtype.itemsize == 1 else x
        arguments[name] = KINDS[kind](wide, place).to(x.dtype)
    return fitted(way.op, way.function, arguments)


def ways_of_kinds() -> list[tuple[Way, str]]:
    """Return which ways get numbers of which kinds."""
    found = []
    for (op, function), case in CASES.items():
        if not any(map(is_float, case.arguments(*case.sizes[0]).values())):
            continue
        sizes = [*case.sizes, *more_of(op, function)] if op in CHOOSING else case.sizes[:1]
        sizes = [size for size in sizes if 0 < elements(size) <= SMALL]
        if function.startswith(("layer_norm_b", "rms_norm_b")):
            sizes = [size for size in sizes if size[-1] > 1]  # of one column, dinp is 0
        kinds = KINDS if op in CHOOSING else OF_SUMS
        kinds = [kind for kind in kinds if kind not in LEFT_OUT.get(function, ())]
        found += [(Way(op, function, size), kind) for size in sizes for kind in kinds]
        if op in CHOOSING and op in HALVES:
            cast_to = {dtype: cast(dtype, *HALVES[op]) for dtype in (F16, BF16)}
            halves = [Way(op, function, size, str(dtype), change, dtype)
                      for size in BEGIN[function] for dtype, change in cast_to.items()]  # fmt: skip
            kinds = [kind for kind in kinds if kind not in FAR]  # where neighbours are alike
            found += [(way, kind) for way in halves for kind in kinds]
    return found


# ------------------------------------------------------------------ which there are

# Arguments that a file takes in half types, all at once.
HALVES = {
    "all_reduce": ["inp"],
    "argmax": ["inp"],
    "attention": ["q", "k", "v"],
    "cross_entropy": ["logits"],
    "flash_attention": ["dout", "q", "k", "v", "out"],
    "gelu": ["inp", "dout"],
    "layer_norm": ["inp", "dout", "weight", "bias"],
    "matmul": ["A", "B", "out"],
    "matmul_tensor_core": ["A", "B"],
    "rms_norm": ["inp", "dout", "weight"],
    "softmax": ["inp", "dout", "out"],
    "sum": ["inp"],
    "transpose": ["inp"],
    "vector_add": ["a", "b"],
}
TYPES = {"float16": F16, "bfloat16": BF16}
# Arguments that a case has in float16: in bfloat16 as well.
IN_FLOAT16 = {
    "conv2d_half": ["inp", "weight", "bias", "dout"],
    "linear": ["inp", "weight", "bias", "residual"],
    "quantized_linear": ["x", "scales"],
}
PLAIN = (1, 1), (1, 1), (1, 1), 1  # of conv2d: stride, padding, dilation, groups

# Sizes that a case does not have, for each function. BEGIN: where loads of 16 bytes come, on each
# path that has them; run with every access checked, with each tensor anywhere in memory.
BEGIN: dict[str, list[tuple]] = {
    "all_reduce": [(1024,)],
    "all_reduce_": [(1024,)],
    "all_reduce_here": [(2, 1024)],
    "argmax": [(8192,)],
    "attention_forward": [(1, 2, 20, 30, 64, True), (1, 1, 20, 30, 128, False)],
    "batch_norm2d_stats": [(3, 5, 8, 8)],
    "batch_norm2d_forward": [(3, 5, 8, 8)],
    "batch_norm2d_train": [(3, 5, 8, 8), (1, 2, 1, 8 * 448 * 4)],
    "batch_norm2d_backward": [(3, 5, 8, 8)],
    "cross_entropy_forward": [(30, 12, 3), (2, 2052, 3)],
    "cross_entropy_backward": [(30, 12, 3), (2, 2052, 3)],
    "fft_forward": [(10, 64), (3, 60), (1, 16384)],
    "fft_inverse": [(10, 64), (1, 16384)],
    "rfft": [(10, 64), (3, 1024)],
    "irfft": [(10, 64), (3, 1024)],
    "fft2": [(2, 16, 32)],
    "ifft2": [(2, 16, 32)],
    "flash_attention_forward": [
        (1, 2, 1, 17, 20, 64, "causal lengths"),
        (1, 1, 1, 17, 20, 128, ""),
        (1, 2, 1, 3, 30, 64, "window 9"),
    ],
    "flash_attention_backward": [
        (1, 2, 1, 17, 20, 64, "causal lengths"),
        (1, 1, 1, 17, 20, 128, ""),
    ],
    "gelu_forward": [(1024,)],
    "gelu_backward": [(1024,)],
    "histogram": [(4096,)],
    "layer_norm_forward": [(9, 64), (3, 1032)],
    "layer_norm_backward": [(9, 64), (3, 1032)],
    "linear": [(5, 256, 40, True), (20, 72, 40, True)],
    "linear_gelu": [(5, 256, 40, True, False), (20, 72, 40, True, True)],
    "linear_residual": [(5, 256, 40, True), (20, 72, 40, True)],
    "linear_silu_gate": [(5, 256, 20, True), (20, 72, 20, True)],
    "matmul": [(36, 64, 40), (1, 256, 72)],
    "matmul_into": [(36, 64, 40), (1, 256, 72)],
    "matmul_fp8": [(36, 64, 48, False)],
    "matmul_tensor_core": [(36, 64, 40, False)],
    "max_pool2d_forward": [(2, 3, 8, 16, 2)],
    "max_pool2d_backward": [(2, 3, 8, 16, 2)],
    "adamw_step": [(1024,)],
    "sgd_momentum_step": [(1024,)],
    "philox_dropout": [(1024, 0.3, 4)],
    "quantized_linear": [(3, 40, 256, bits, True) for bits in (8, 4)],
    "relu_forward": [(1024,)],
    "relu_backward": [(1024,)],
    "rms_norm_forward": [(9, 64), (3, 1032)],
    "rms_norm_backward": [(9, 64), (3, 1032)],
    "scan": [(4100,)],
    "softmax_forward": [(9, 64), (3, 1040)],
    "softmax_backward": [(9, 64), (3, 1040)],
    "sgd_step": [(1024,)],
    "square": [(1024,)],
    "sum": [(8192,)],
    "transpose": [(64, 72)],
    "vector_add": [(1024,)],
}
# MORE: where blocks take several rows or tiles, on the eight multiprocessors of the CPU backend, or
# of which several add up one result; run with every access checked, and again and again.
MORE: dict[str, list[tuple]] = {
    "all_reduce": [(20_000,)],
    "all_reduce_here": [(4, 512)],
    "argmax": [(300_000,)],
    "attention_forward": [(1, 2, 70, 150, 64, True), (1, 1, 35, 160, 128, False)]
    + [(1, 1, 35, 80, 80, True)],
    "batch_norm2d_stats": [(40, 2, 12, 12)],
    "batch_norm2d_train": [(2, 3, 4, 2000)],
    "batch_norm2d_backward": [(40, 2, 12, 12)],
    "cross_entropy_forward": [(300, 12, 3), (20, 4100, 3)],
    "cross_entropy_backward": [(300, 12, 3), (20, 4100, 3)],
    "fft_forward": [(200, 60)],
    "flash_attention_forward": [
        (1, 2, 1, 70, 150, 64, "causal lower window 40"),
        (1, 1, 1, 35, 160, 128, "lengths"),
        (1, 2, 1, 35, 80, 80, "causal"),
        (1, 2, 1, 3, 520, 64, "causal lower lengths"),
        (1, 2, 1, 3, 260, 128, ""),
        (1, 1, 1, 3, 260, 200, ""),
    ],
    "flash_attention_backward": [
        (1, 2, 1, 70, 150, 64, "causal lower window 40"),
        (1, 1, 1, 70, 80, 128, "lengths"),
        (1, 2, 1, 35, 40, 80, "causal"),
    ],
    "histogram": [(100_000,)],
    "layer_norm_forward": [(200, 1032), (300, 64), (2, 8192)],
    "layer_norm_backward": [(200, 1032), (300, 64), (200, 1033)],
    "matmul": [(132, 72, 260), (1, 301, 33)],
    "matmul_into": [(132, 72, 260), (1, 301, 33)],
    "matmul_fp8": [(132, 160, 136, True)],
    "matmul_tensor_core": [(132, 160, 136, True)],
    "quantized_linear": [(9, 400, 1024, bits, True) for bits in (8, 4)],
    "rms_norm_forward": [(200, 1032), (300, 64), (2, 8192)],
    "rms_norm_backward": [(200, 1032), (300, 64), (200, 1033)],
    "scan": [(150_004,)],
    "softmax_forward": [(40, 1040), (9, 9000)],
    "softmax_backward": [(40, 1040), (9, 9000)],
    "sum": [(300_000,)],
    "transpose": [(136, 264)],
}
# LARGE: what no small size takes.
LARGE: dict[str, list[tuple]] = {
    "all_reduce_here": [(2, 330_001), (4, 240_001), (8, 90_001)],
    "fft_forward": [(1, 2**19)],
    "matmul": [(600, 64, 600), (256, 64, 768), (300, 64, 16)],
    "mnist_cnn_predict": [(9, True), (9, False)],
    "mnist_cnn_step": [(8, True), (8, False)],
}
_LAYERS = (9, 2056, 70), (18, 4104, 40), (70, 200, 130), (260, 72, 260), (130, 96, 260)
for _name in ("linear", "linear_residual"):  # each of its kernels, with K in parts and without
    MORE[_name] = [(*size, True) for size in _LAYERS]
MORE["linear_gelu"] = [(*size, True, True) for size in _LAYERS]
MORE["linear_silu_gate"] = [(M, K, columns // 2, True) for M, K, columns in _LAYERS]
for _name in ("forward", "backward_input", "backward_weight"):
    BEGIN[f"depthwise_conv2d_{_name}"] = [
        (2, 2, 10, 16, 3, 3, 1, 1, 1),
        (2, 2, 10, 16, 7, 7, 2, 3, 1),
        (1, 2, 9, 16, 5, 5, 1, 0, 1),  # both widths whole packs, the borders not
    ]
    MORE[f"depthwise_conv2d_{_name}"] = [
        *((2, 2, 10, W, k, k, stride, k // 2, 1) for k in (3, 5, 7) for stride in (1, 2)
          for W in (16, 17)),
        (2, 2, 12, 20, 3, 3, 1, 0, 1),
        (9, 3, 40, 36, 7, 7, 1, 3, 1),
    ]  # fmt: skip
    # four channels are 16 bytes, where they come last
    BEGIN[f"conv2d_{_name}"] = [
        (2, 8, 9, 12, 8, 3, 3, *PLAIN, False),
        (1, 16, 8, 8, 16, 1, 1, (1, 1), (0, 0), (1, 1), 2, True),
    ]
    MORE[f"conv2d_{_name}"] = [(2, 40, 9, 12, 72, 3, 3, *PLAIN, True)]
for _name, _large in TESTS["conv2d_half"].LARGE.items():
    BEGIN[_name] = [
        (2, 8, 9, 12, 8, 3, 3, *PLAIN),
        (1, 16, 8, 8, 16, 1, 1, (1, 1), (0, 0), (1, 1), 2),
        (1, 3, 9, 12, 8, 3, 3, *PLAIN),
    ]
    # the last one: parts of its sums are added up
    MORE[_name] = [*_large, (1, 104, 4, 4, 16, 3, 3, *PLAIN)]
IMAGES = {  # that conv2d takes in channels last
    "conv2d_forward": ["inp", "weight"],
    "conv2d_backward_input": ["dout", "weight"],
    "conv2d_backward_weight": ["dout", "inp"],
}
SMALL = 20_000  # elements: sizes of a case that are run in every type


def more_of(op: str, function: str) -> list[tuple]:
    found = dict.fromkeys([*BEGIN.get(function, []), *MORE.get(function, [])])
    return [] if op == "conv2d_naive" else [*found]


def elements(size: tuple) -> int:
    product = 1
    for value in size:
        product *= value if isinstance(value, int) else 1
    return product


def ways() -> Iterator[Way]:
    """Yield all ways that are no case's size alone."""
    for (op, function), case in CASES.items():
        more = more_of(op, function)
        large = LARGE.get(function, [])
        way = partial(Way, op, function)
        yield from map(way, more + large)
        small = [size for size in case.sizes if 0 < elements(size) <= SMALL]
        if op in HALVES:
            for (name, dtype), size in itertools.product(TYPES.items(), small + more + large):
                yield way(size, name, cast(dtype, *HALVES[op]), dtype)
        if op in IN_FLOAT16:
            change = cast(BF16, *IN_FLOAT16[op])
            for size in small + more:
                yield way(size, "bfloat16", change, BF16)
        if op == "matmul_fp8":
            for a, b in ((E4M3, E4M3), (E5M2, E4M3), (E5M2, E5M2)):
                change = then(cast(a, "A"), cast(b, "B"))
                for size in case.sizes[:2] + more:
                    yield way(size, f"{a} {b}".replace("torch.float8_", ""), change)
        yield from _layouts(op, function, way, more)


def _layouts(op: str, function: str, way: Callable[..., Way], more: list[tuple]) -> Iterator[Way]:
    """Yield ways with matrices by columns, with rows further apart, with channels last."""
    if op == "conv2d":
        names = IMAGES[function]
        for some, size in itertools.product((names, names[:1], names[1:]), more):
            yield way(size, f"{' '.join(some)} last", channels_last(*some))
    if op not in ("matmul", "matmul_tensor_core"):
        return
    types: dict[str, Any] = {"": None, **TYPES}
    if op == "matmul_tensor_core":
        types["int8"] = torch.int8
    matrices = ["A", "B"] + ["out"] * (function == "matmul_into")
    for name, dtype in types.items():
        given = in_bytes(*matrices) if dtype == torch.int8 else cast(dtype, *matrices)
        given = given if dtype else lambda arguments: arguments
        if dtype == torch.int8:
            for size in more:
                yield way(size, "int8", given, dtype)
        for names in (["A"], ["B"], matrices):
            for size in more:
                label = f"{name} {' '.join(names)}".strip()
                yield way(size, f"{label} by columns", then(given, by_columns(*names)), dtype)
        for wider in (16, 3):
            change = then(given, in_wider_rows(wider, *matrices))
            yield way(more[0], f"{name} rows {wider} wider".strip(), change, dtype)


WAYS = list(ways())
