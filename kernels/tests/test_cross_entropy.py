"""cross_entropy and its gradient: what they promise (see contract.py), and extreme logits."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from helpers.checks import check_close
from helpers.device import DEVICE
from kernels.tests.contract import Case, floats, wrong


def labels_of(N, C):
    return torch.randint(C, (N,), device=DEVICE)


def gradient_ref(dloss, logits, labels):
    logits.requires_grad_()
    cross_entropy(logits, labels).backward(dloss)
    return logits.grad


# rows, classes, size of the logits
SIZES = [(6, 3, 1), (1, 2, 1), (16, 10, 1), (257, 10, 30), (1000, 3, 1), (5, 1823, 30), (7, 1, 1)]
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
        **TOLERANCE,
    ),
]


@pytest.fixture
def ce(kernel):
    return kernel("cross_entropy")


def random(N, C):
    """Return logits and labels for N rows of C classes."""
    return torch.randn(N, C, device=DEVICE), torch.randint(C, (N,), device=DEVICE)


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


def test_cross_entropy_hands_nan_on(ce):
    logits, labels = random(300, 10)
    logits[299, 4] = torch.nan
    assert ce.cross_entropy_forward(logits, labels).isnan()
    grad = ce.cross_entropy_backward(torch.ones((), device=DEVICE), logits, labels)
    assert grad[299].isnan().all() and not grad[:299].isnan().any()
