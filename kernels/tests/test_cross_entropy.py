"""cross_entropy and its gradient: what they promise (see contract.py), and extreme logits."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong

HALF_TYPES = (torch.float16, torch.bfloat16)


def labels_of(N, C):
    """Return labels, of which from the third on every fourth is to be ignored."""
    labels = torch.randint(C, (N,), device=DEVICE)
    labels[2::4] = -100
    return labels


def gradient_ref(dloss, logits, labels):
    logits.requires_grad_()
    cross_entropy(logits, labels).backward(dloss)
    return logits.grad


# rows, classes, size of the logits
SIZES = [(6, 3, 1), (1, 2, 1), (16, 10, 1), (257, 10, 30), (1000, 3, 1), (5, 1823, 30), (7, 1, 1)]
SIZES += [(9, 1024, 1), (3, 1025, 30), (2, 50257, 10)]
# where softmax is nearly 1, its logarithm and softmax - 1 have no more than its 24 bits
TOLERANCE = {"tolerance": lambda N, C, scale: {"atol": 1e-6}}
WRONG = wrong("logits", floats, (6,), (1, 6, 3), (6, 0)) + wrong("labels", labels_of, (5, 3))
CASES = [
    Case(
        "cross_entropy_forward",
        lambda N, C, scale: {"logits": scale * floats(N, C), "labels": labels_of(N, C)},
        cross_entropy,
        SIZES,
        ragged=WRONG,
        dtypes=HALF_TYPES,
        **TOLERANCE,
    ),
    Case(
        "cross_entropy_backward",
        lambda N, C, scale: {
            "dloss": floats(),
            "logits": scale * floats(N, C),
            "labels": labels_of(N, C),
        },
        gradient_ref,
        SIZES,
        ragged=WRONG + wrong("dloss", floats, (1,), (6,)),
        dtypes=HALF_TYPES,
        **TOLERANCE,
    ),
]


@pytest.fixture
def ce(kernel):
    return kernel("cross_entropy")


def random(N, C):
    """Return logits and labels for N rows of C classes."""
    return torch.randn(N, C, device=DEVICE), torch.randint(C, (N,), device=DEVICE)


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("C", [1, 7, 8, 700, 1823, 33_000])
def test_half_types_are_computed_in_float32(ce, dtype, C):
    """The loss is of float32, the gradient rounded once, at the end."""
    logits, labels, one = (9 * floats(7, C)).to(dtype), labels_of(7, C), 50 * floats().abs()
    with poisoned():
        loss = ce.cross_entropy_forward(logits, labels)
        grad = ce.cross_entropy_backward(one, logits, labels)
    assert loss.dtype == torch.float32 and grad.dtype == dtype
    check_close(loss, cross_entropy(logits.double(), labels), atol=1e-6)
    unit = torch.finfo(dtype).eps
    smallest = torch.finfo(dtype).smallest_normal * unit  # the step of the smallest numbers
    expected = gradient_ref(one.double(), logits.double(), labels)
    check_close(grad, expected, rtol=0.51 * unit, atol=smallest + 1e-6 * expected.abs().max())


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_half_types_have_a_gradient_of_the_loss_in_float32(ce, dtype):
    logits, labels = floats(6, 9).to(dtype), labels_of(6, 9)
    with pytest.raises(RuntimeError, match="dloss: expected contiguous float32 on one CUDA device"):
        ce.cross_entropy_backward(floats().to(dtype), logits, labels)


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_half_types_that_start_anywhere(ce, dtype):
    """Logits at any offset within 16 bytes, rows of odd length."""
    numbers, labels, one = floats(8 + 5 * 1029).to(dtype), labels_of(5, 1029), floats()
    for start in range(8):
        logits = numbers[start:][: 5 * 1029].view(5, 1029)
        check_close(ce.cross_entropy_forward(logits, labels),
                    cross_entropy(logits.double(), labels), atol=1e-6)  # fmt: skip
        aligned = ce.cross_entropy_backward(one, logits.clone(), labels)
        assert torch.equal(ce.cross_entropy_backward(one, logits, labels), aligned)


def test_cross_entropy_of_one_class_is_zero(ce):
    logits, labels = random(7, 1)
    assert ce.cross_entropy_forward(logits, labels).item() == 0
    assert ce.cross_entropy_backward(logits[0, 0], logits, labels).abs().max() == 0


def test_cross_entropy_of_huge_logits_does_not_overflow(ce):
    logits = torch.tensor([[3e38, 0.0], [-3e38, 0.0], [1e4, 1e4]], device=DEVICE)
    labels = torch.tensor([0, 1, 1], device=DEVICE)
    check_close(ce.cross_entropy_forward(logits, labels).item(), torch.tensor(2.0).log().item() / 3)
    grad = ce.cross_entropy_backward(torch.ones((), device=DEVICE), logits, labels)
    check_close(grad, torch.tensor([[0, 0], [0, 0], [0.5 / 3, -0.5 / 3]]))


@pytest.mark.parametrize("middle", [1e4, -1e4, -1000])
@pytest.mark.parametrize("C", [3, 10, 700, 1024, 5003])
def test_rows_far_from_0_neither_overflow_nor_vanish(ce, C, middle):
    """A maximum begins with -infinity, not with 0, in every thread, warp and block."""
    logits = middle + 3 * floats(6, C)
    logits[2] = middle  # ties
    labels, one = labels_of(6, C), torch.ones((), device=DEVICE)
    exact = logits.double()
    want = gradient_ref(one.double(), exact, labels)
    # logits of 10^4 are whole thousandths, which the difference of two has exactly
    check_close(ce.cross_entropy_forward(logits, labels), cross_entropy(exact, labels), atol=1e-6)
    check_close(ce.cross_entropy_backward(one, logits, labels), want, atol=1e-7)


def test_cross_entropy_turns_a_wrong_label_and_no_rows_into_nan(ce):
    one = torch.ones((), device=DEVICE)
    for label in (-1, 10, 2**40):
        logits, labels = random(4, 10)
        labels[2] = label
        assert ce.cross_entropy_forward(logits, labels).isnan()
        grad = ce.cross_entropy_backward(one, logits, labels)
        assert grad.isnan().all(1).tolist() == [False, False, True, False]
    logits, labels = random(0, 10)
    assert ce.cross_entropy_forward(logits, labels).isnan()
    assert ce.cross_entropy_backward(one, logits, labels).shape == (0, 10)


def test_cross_entropy_does_not_count_rows_to_be_ignored(ce):
    """As PyTorch: as if they were not there, their gradient is 0; without others NaN."""
    logits, labels = random(2000, 10)
    one, counts = torch.ones((), device=DEVICE), torch.rand(2000, device=DEVICE) < 0.3
    labels[~counts] = -100
    loss = ce.cross_entropy_forward(logits, labels)
    check_close(loss, ce.cross_entropy_forward(logits[counts], labels[counts]))
    grad = ce.cross_entropy_backward(one, logits, labels)
    assert grad[~counts].abs().max() == 0
    check_close(grad[counts], ce.cross_entropy_backward(one, logits[counts], labels[counts]))
    logits[~counts] = torch.tensor([torch.nan, torch.inf, -torch.inf, *[0.0] * 7], device=DEVICE)
    assert torch.equal(ce.cross_entropy_forward(logits, labels), loss)
    assert torch.equal(ce.cross_entropy_backward(one, logits, labels), grad)
    labels[:] = -100
    assert ce.cross_entropy_forward(logits, labels).isnan()
    assert ce.cross_entropy_backward(one, logits, labels).abs().max() == 0


def test_cross_entropy_hands_nan_on(ce):
    logits, labels = random(300, 10)
    logits[299, 4] = torch.nan
    assert ce.cross_entropy_forward(logits, labels).isnan()
    grad = ce.cross_entropy_backward(torch.ones((), device=DEVICE), logits, labels)
    assert grad[299].isnan().all() and not grad[:299].isnan().any()


@pytest.mark.parametrize("C", [10, 1001, 5003])
def test_masked_logits_and_infinity(ce, C):
    """As PyTorch: a masked class costs nothing unless it is the label; +infinity makes NaN."""
    logits, labels = random(5, C)
    logits[0, : C - 1] = -torch.inf  # most threads see nothing else
    labels[0] = C - 1
    logits[1, 3], labels[1] = -torch.inf, 3
    logits[2], logits[3, 0] = -torch.inf, torch.inf
    expected = cross_entropy(logits.double(), labels, reduction="none")
    assert expected.isnan().tolist() == [False, False, True, True, False]
    for n in range(5):
        got = ce.cross_entropy_forward(logits[n : n + 1], labels[n : n + 1])
        torch.testing.assert_close(got.double(), expected[n], rtol=1e-5, atol=1e-6, equal_nan=True)
    exact = logits[:1].double().requires_grad_()
    cross_entropy(exact, labels[:1]).backward()
    one = torch.ones((), device=DEVICE)
    check_close(ce.cross_entropy_backward(one, logits[:1], labels[:1]), exact.grad, atol=1e-6)


@pytest.mark.parametrize("C", [7, 1031])
def test_views_that_start_anywhere(ce, C):
    """Rows start at every offset within 16 bytes."""
    numbers, labels = torch.randn(9 * C + 3, device=DEVICE), torch.randint(C, (9,), device=DEVICE)
    one = torch.ones((), device=DEVICE)
    for start in range(4):
        logits = numbers[start:][: 9 * C].view(9, C)
        exact = logits.double().requires_grad_()
        loss = cross_entropy(exact, labels)
        loss.backward()
        check_close(ce.cross_entropy_forward(logits, labels), loss, atol=1e-6)
        check_close(ce.cross_entropy_backward(one, logits, labels), exact.grad, atol=1e-6)


def test_no_fault_is_found_in_long_rows():
    """On the CPU backend, with every access checked, a block a row."""
    checked = compile_cuda(ROOT / "kernels" / "cross_entropy.cu", check=True)
    logits, labels = random(3, 2051)
    exact = logits.double().requires_grad_()
    loss = cross_entropy(exact, labels)
    loss.backward()
    check_close(checked.cross_entropy_forward(logits, labels), loss, atol=1e-6)
    one = torch.ones((), device=DEVICE)
    check_close(checked.cross_entropy_backward(one, logits, labels), exact.grad, atol=1e-6)
