"""Checks pass what is right up to rounding, refuse everything else, and say where and what."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers import checks
from helpers.checks import check_close, check_grad, check_spread, expect_error, poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from helpers.simulator import blockDim, blockIdx, gridDim, shared_array, syncthreads, threadIdx
from helpers.trace import Trace, trace


def refusal(*args, **kwargs):
    with pytest.raises(AssertionError) as caught:
        check_close(*args, **kwargs)
    return str(caught.value)


# ---- what passes


def test_one_line_says_what_was_compared(capsys):
    x = torch.randn(3, 5)
    check_close(x, x.double())
    check_close(x.half(), x, name="halves")
    check_close(torch.arange(4), torch.arange(4))
    check_close(torch.arange(4), torch.arange(1, 5), atol=1)
    ones = torch.ones(1000)
    check_close(ones, ones + 1e-4, atol=1e-3, name="scale")
    check_close(ones, ones + 0.05, rtol=0, atol=0.1, name="scale")
    check_close(2.0, 2, name="two")
    check_close(np.zeros((0, 2)), np.zeros((0, 2)))
    assert capsys.readouterr().out.splitlines() == [
        "out: 3×5 float32, all within 1e-05",
        "halves: 3×5 float16, all within 0.002",
        "out: 4 int64, all equal",
        "out: 4 int64, all within 1 (loose: 37 % of a typical one)",
        "scale: 1000 float32, all within 1e-05 · |x| + 0.001",
        "scale: 1000 float32, all within 0.1 (loose: 10 % of a typical one)",
        "two: a number, within 1e-05",
        "out: 0×2 float64, all within 1e-10",
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("K", [1, 57, 4099])
def test_rounding_of_long_sums_passes(dtype, K):
    a, b = torch.randn(33, K).to(dtype), torch.randn(K, 29).to(dtype)
    check_close(a @ b, a.double() @ b.double())


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 0.1), (torch.float64, 1e-8)],
)
def test_errors_beyond_rounding_do_not_pass(dtype, factor):
    x = torch.randn(781, dtype=torch.float64)
    wrong = x.clone()
    wrong[500] += factor * 2
    assert refusal(wrong.to(dtype), x).startswith("out[500]: expected ")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.tensor([1.0, 2.0]), np.array([1.0, 2.0])),
        (np.float32(0.1), 0.1),
        (0.1 + 0.2, 0.3),
        ([1, 2, 3], torch.tensor([1, 2, 3], dtype=torch.int32)),
        (torch.tensor(True), True),
        (torch.tensor([math.inf, -math.inf, 0]), torch.tensor([math.inf, -math.inf, 0])),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 2j], dtype=torch.complex128)),
        (torch.nn.Parameter(torch.ones(2)), [1.0, 1.0]),
        (torch.tensor([3], dtype=torch.uint16), np.array([3], dtype=np.uint16)),
        (torch.ones(4, 3).t(), torch.ones(1, 4).expand(3, 4)),
        (np.arange(6)[::-2], [5, 3, 1]),
    ],
)
def test_everything_that_holds_numbers_is_taken(actual, expected, capsys):
    check_close(actual, expected)
    check_close(expected, actual)
    assert len(capsys.readouterr().out.splitlines()) == 2


# ---- what does not


def test_the_first_difference_is_named():
    expected = torch.full((64, 64), 0.1234567)
    actual = expected.clone()
    actual[3, 17] = math.nan
    actual[5, 0] = 1
    assert refusal(actual, expected) == (
        "out[3, 17]: expected 0.1234567, got nan "
        "(float32, allowed 2.47e-06; 2 of 4096 elements differ)"
    )
    assert refusal(actual, expected, rtol=0, atol=0.5, name="gray") == (
        "gray[3, 17]: expected 0.1234567, got nan (float32, allowed 0.5; 2 of 4096 elements differ)"
    )


def test_as_many_digits_as_show_the_difference():
    text = refusal(torch.tensor(1 + 1e-9, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    assert text == "out: expected 1, got 1.000000001 (float64, allowed 2e-10)"


def test_nan_and_infinity():
    nan, inf, one = torch.tensor([math.nan]), torch.tensor([math.inf]), torch.ones(1)
    for actual, expected in [(nan, one), (one, nan), (nan, nan), (inf, one), (one, inf)]:
        for tolerances in ({}, {"rtol": 0, "atol": 0}, {"rtol": 1.0, "atol": 1e9}):
            refusal(actual, expected, **tolerances)
    refusal(inf, -inf)
    # An infinity elsewhere does not widen what is allowed.
    refusal(torch.tensor([math.inf, 1.001]), torch.tensor([math.inf, 1.0]))


def test_integers_and_bools_are_exact():
    big = 2**62
    assert refusal(torch.tensor([big, big + 1]), torch.tensor([big, big])) == (
        f"out[1]: expected {big}, got {big + 1} (int64; 1 of 2 elements differ)"
    )
    assert refusal(torch.tensor([True]), torch.tensor([False])) == (
        "out[0]: expected False, got True (bool; 1 of 1 elements differ)"
    )
    assert refusal(torch.tensor(3), 3.5) == "out: expected 3.5, got 3 (int64)"


@pytest.mark.parametrize(
    ("actual", "expected", "complaint"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), "out: expected shape (3, 2), got (2, 3)"),
        (torch.ones(1), torch.tensor(1.0), "out: expected shape (), got (1)"),
        (torch.ones(0, 3), torch.ones(3, 0), "out: expected shape (3, 0), got (0, 3)"),
        (torch.ones(2).int(), torch.ones(2), "out: expected float32, got int32"),
        (torch.ones(2), torch.ones(2).bool(), "out: expected bool, got float32"),
        (torch.ones(2).int(), torch.ones(2).long(), "out: expected int64, got int32"),
        (torch.ones(2), torch.ones(2) + 0j, "out: expected complex64, got float32"),
    ],
)
def test_shapes_and_dtypes_must_match(actual, expected, complaint):
    assert refusal(actual, expected) == complaint


@pytest.mark.parametrize(
    ("actual", "said"),
    [(None, "got None; is a return missing"), ("1.0", "got '1.0'"), (..., "got")],
)
def test_what_holds_no_numbers_is_refused(actual, said):
    with pytest.raises(AssertionError, match=f"expected a tensor, an array or numbers, {said}"):
        check_close(actual, torch.ones(2))


def test_a_wrong_number():
    assert refusal(0.37, 0.25, name="occupancy").startswith("occupancy: expected 0.25, got 0.37 (")


def test_a_sum_near_zero_is_judged_by_the_size_of_the_others():
    expected = torch.tensor([1000.0, 1e-9])
    check_close(torch.tensor([1000.0, 1e-4]), expected)
    refusal(torch.tensor([1000.0, 1e-1]), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_two_devices():
    x = torch.randn(100)
    check_close(x.cuda(), x)
    check_close(x, x.cuda())


# ---- gradients


class Scale(torch.autograd.Function):
    """x * w with a backward that can be spoilt."""

    spoil = None

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dout):
        x, w = ctx.saved_tensors
        dx, dw = dout * w, (dout * x).sum(0)
        if Scale.spoil == "dw":
            dw = dw * 1.01
        return (None if Scale.spoil == "dx" else dx), dw


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (None, None),
        (
            "dw",
            r"dweight\[0\]: expected .*, got .* \(float32, allowed .*; 7 of 7 elements differ\)",
        ),
        ("dx", r"dinp: no gradient came, the reference has one"),
    ],
)
def test_gradients_are_compared_one_by_one(spoil, complaint, monkeypatch, capsys):
    def ref(inp, weight):
        return inp * weight

    monkeypatch.setattr(Scale, "spoil", spoil)
    inputs = torch.randn(50, 7), torch.rand(7) + 1
    if complaint is None:
        check_grad(Scale.apply, ref, *inputs)
        assert capsys.readouterr().out == (
            "out and the gradients of inp, weight: float32 agrees with float64\n"
        )
    else:
        with pytest.raises(AssertionError, match=f"^{complaint}$"):
            check_grad(Scale.apply, ref, *inputs)
    assert not inputs[0].requires_grad


def test_functions_run_in_their_own_precision():
    seen = []

    def fn(x, labels, weight):
        seen.append((x.dtype, labels.dtype, weight))
        return F.cross_entropy(x * weight, labels)

    check_grad(fn, fn, torch.randn(9, 4), torch.randint(0, 4, (9,)), 0.5)
    assert seen == [(torch.float32, torch.int64, 0.5), (torch.float64, torch.int64, 0.5)]


def test_several_results():
    def both(x):
        return x.sin(), x.cos()

    x = torch.randn(20)
    check_grad(both, both, x)
    with pytest.raises(AssertionError, match=r"^out 1\[\d+\]: expected"):
        check_grad(lambda x: (x.sin(), x.cos() + 1e-3), both, x)
    with pytest.raises(AssertionError, match="^expected 2 results, got 1$"):
        check_grad(lambda x: x.sin(), both, x)


def test_a_wrong_sign_in_half_of_the_gradient_is_not_cancelled():
    class Flip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dout):
            return dout.sort().values  # the same sum, in another order

    with pytest.raises(AssertionError, match=r"dx\[\d+\]"):
        check_grad(Flip.apply, lambda x: x * 1, torch.randn(30))


def test_a_missing_backward():
    with pytest.raises(AssertionError, match="the function under test returns nothing that has a"):
        check_grad(lambda x: x.detach() * 2, lambda x: x * 2, torch.randn(3))


def test_a_gradient_that_should_not_be():
    with pytest.raises(AssertionError, match=r"^db\[0\]: expected 0, got "):
        check_grad(lambda a, b: a + b - b.detach(), lambda a, b: a * 1, *torch.randn(2, 3))


def test_large_tensors_are_compared_in_chunks(monkeypatch):
    monkeypatch.setattr(checks, "_CHUNK", 7)
    expected = torch.arange(1.0, 61.0).reshape(6, 10).t()
    actual = expected.clone()
    check_close(actual, expected)
    actual[3, 4], actual[9, 5] = math.nan, 0
    rms = math.sqrt(sum(i * i for i in range(1, 61)) / 60)
    message = rf"out\[3, 4\]: expected 44, got nan .*allowed {1e-5 * (44 + rms):.3g}; 2 of 60"
    with pytest.raises(AssertionError, match=message):
        check_close(actual, expected)


# ---- expected errors


def test_expect_error_prints_the_first_line(capsys):
    with expect_error(ValueError):
        raise ValueError("\nfirst line\nsecond line")
    with expect_error((KeyError, RuntimeError)):
        raise RuntimeError
    assert capsys.readouterr().out == "ValueError: first line\nRuntimeError: \n"


def test_expect_error_insists():
    with pytest.raises(AssertionError, match="^expected IndexError, but nothing was raised$"):
        with expect_error(IndexError):
            pass
    both = re.escape("expected IndexError or KeyError, but nothing was raised")
    with pytest.raises(AssertionError, match=both), expect_error((IndexError, KeyError)):
        pass
    with pytest.raises(ZeroDivisionError), expect_error(IndexError):
        1 / 0  # noqa: B018


def test_new_memory_is_poisoned_within_the_block_only():
    with poisoned():
        assert torch.empty(5).isnan().all()
        assert (torch.empty(5, dtype=torch.int32) == 2**31 - 1).all()
    assert not torch.are_deterministic_algorithms_enabled()
    torch.set_deterministic_debug_mode("warn")
    with poisoned():
        pass
    try:
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_deterministic_debug_mode("default")


def test_poisoned_memory_hides_no_other_warning():
    with pytest.warns(UserWarning) as seen, poisoned():
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))  # of which PyTorch warns
        warnings.warn("what a kernel did", stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["what a kernel did"]


def test_check_grad_finds_what_is_left_unwritten():
    def half(inp):
        out = torch.empty_like(inp)
        out[:3] = 2 * inp.detach()[:3]
        return out

    with pytest.raises(AssertionError, match=r"out\[3\]: expected 2, got nan"):
        check_grad(half, lambda inp: 2 * inp, torch.ones(6))

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inp):
            return 2 * inp

        @staticmethod
        def backward(ctx, dout):
            dinp = torch.empty_like(dout)
            dinp[:3] = 2 * dout[:3]
            return dinp

    with pytest.raises(AssertionError, match=r"dinp\[3\]: expected .*, got nan"):
        check_grad(lambda inp: Half.apply(inp), lambda inp: 2 * inp, torch.ones(6))


def test_check_grad_hands_on_gradients_stored_by_columns():
    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inp):
            return inp.clone()

        @staticmethod
        def backward(ctx, dout):
            assert dout.is_contiguous(), f"strides {dout.stride()}"
            return dout

    with pytest.raises(AssertionError, match=r"strides \(1, 2\)"):
        check_grad(lambda inp: Careless.apply(inp), lambda inp: inp.clone(), torch.ones(2, 3))


# ---- who does the work


def one_each(out, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = i


def strided(out, n):
    for i in range(blockIdx.x * blockDim.x + threadIdx.x, n, gridDim.x * blockDim.x):
        out[i] = 0
        out[i] += i


def in_branches(out, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i % 3 == 0:
        out[i] = 3
    elif i % 3 == 1:
        out[i] = 1
    else:
        out[i] = 2


def last_thread(out, n):
    if blockIdx.x == gridDim.x - 1 and threadIdx.x == blockDim.x - 1:
        for i in range(n):
            out[i] = i


def every_block(out, n):
    for i in range(threadIdx.x, n, blockDim.x):
        out[i] = i


def pairs(out, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n // 2:
        out[i] = out[n - 1 - i] = 0


def first_warps(out, n):
    if threadIdx.x < 32:
        for i in range(threadIdx.x, blockDim.x, 32):
            out[blockIdx.x * blockDim.x + i] = i


def first_threads(out, n):
    if threadIdx.x == 0:
        for i in range(blockDim.x):
            out[blockIdx.x * blockDim.x + i] = i


def first_block(out, n):
    if blockIdx.x == 0:
        for i in range(threadIdx.x, n, blockDim.x):
            out[i] = i


def last_block(out, n):
    if blockIdx.x == gridDim.x - 1:
        for i in range(threadIdx.x, n, blockDim.x):
            out[i] = i


def cells(out, n):
    i = (blockIdx.y * blockDim.y + threadIdx.y) * 32 + blockIdx.x * blockDim.x + threadIdx.x
    out[i] = i


@pytest.mark.filterwarnings("ignore:.*Both write the same value")
@pytest.mark.parametrize(
    "kernel, grid, block, complaint",
    [
        (one_each, 4, 64, None),
        (one_each, 256, 1, None),
        (one_each, 3, 100, None),
        (strided, 1, 64, None),
        (in_branches, 4, 64, None),
        (strided, 2, 64, None),
        (pairs, 2, 128, None),
        (cells, (2, 1), (16, 8), None),
        (cells, (4, 8), (8, 1), None),
        (
            last_thread,
            4,
            64,
            "one thread does the work of many: 1 of a warp's 32 threads take part in a store",
        ),
        (strided, 1, 1, "one thread does the work of many"),
        (first_threads, 2, 128, "one thread does the work of many"),
        (first_warps, 2, 128, "makes 4 of 8 requests to store in first_warps, for 8 warps to"),
        (first_block, 4, 64, "makes 4 of 8 requests to store in first_block, for 8 warps to"),
        (last_block, 4, 64, "makes 4 of 8 requests to store in last_block"),
        (every_block, 4, 64, "each is stored 4 times: threads do the work of all"),
    ],
)
def test_one_thread_cannot_stand_in_for_many(kernel, grid, block, complaint):
    report = trace(kernel, grid, block, torch.empty(256), 256)
    if complaint is None:
        check_spread(report, 256)
    else:
        with pytest.raises(AssertionError, match=complaint):
            check_spread(report, 256)


def tree(out, inp, n):
    block_sums = shared_array(128)
    t = threadIdx.x
    block_sums[t] = inp[blockIdx.x * blockDim.x + t]
    half = 64
    while half > 0:
        syncthreads()
        if t < half:
            block_sums[t] += block_sums[t + half]
        half //= 2
    if t == 0:
        out[blockIdx.x] = block_sums[0]


def one_adds(out, inp, n):
    block_sums = shared_array(128)
    block_sums[threadIdx.x] = inp[blockIdx.x * blockDim.x + threadIdx.x]
    syncthreads()
    if threadIdx.x == 0:
        out[blockIdx.x] = sum(block_sums[i] for i in range(128))


def warp_loads(out, inp, n):
    block_sums = shared_array(128)
    if threadIdx.x < 32:
        for i in range(threadIdx.x, 128, 32):
            block_sums[i] = inp[blockIdx.x * blockDim.x + i]
    syncthreads()
    if threadIdx.x == 0:
        out[blockIdx.x] = block_sums[0]


def all_load(out, inp, n):
    total = 0.0
    for i in range(n):
        total += inp[i]
    if threadIdx.x == 0:
        out[blockIdx.x] = total


@pytest.mark.parametrize(
    "kernel, complaint",
    [
        (tree, None),
        (one_adds, "in one_adds a warp loads 128 times from shared .*; 20 times would do"),
        (warp_loads, "makes 4 of 8 requests to load in warp_loads, for 8 warps to share"),
        (all_load, "each is loaded 256 times"),
    ],
)
def test_loads_are_shared_out(kernel, complaint):
    report = trace(kernel, 2, 128, torch.empty(2), torch.ones(256), 256)
    if complaint is None:
        check_spread(report, 256, "load", shared_loads=20)
    else:
        with pytest.raises(AssertionError, match=complaint):
            check_spread(report, 256, "load", shared_loads=20)


def test_wide_loads_need_fewer_warps():
    wide = compile_cuda(
        """
        __global__ void wide_kernel(float4* out, const float4* inp, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) out[i] = inp[i];
        }
        torch::Tensor wide(torch::Tensor inp) {
            auto out = torch::empty_like(inp);
            wide_kernel<<<8, 128>>>(reinterpret_cast<float4*>(out.data_ptr<float>()),
                                    reinterpret_cast<float4*>(inp.data_ptr<float>()), 256);
            return out;
        }
        """
    ).wide
    report = trace(wide, torch.ones(1024, device=DEVICE))
    check_spread(report, 1024)
    check_spread(report, 1024, "load")


def test_numbers_without_a_kernel_are_refused():
    with pytest.raises(AssertionError, match="no kernel was launched"):
        check_spread(Trace([]), 256)
