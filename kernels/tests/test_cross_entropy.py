"""cross_entropy and its gradient against PyTorch in float64, and what they refuse."""

import pytest
import torch
from torch.nn.functional import cross_entropy as cross_entropy_ref

from helpers.checks import check_close
from helpers.device import DEVICE


@pytest.fixture
def ce(kernel):
    return kernel("cross_entropy")


def random(N, C):
    """Return logits and labels for N rows of C classes."""
    return torch.randn(N, C, device=DEVICE), torch.randint(C, (N,), device=DEVICE)


@pytest.mark.parametrize("scale", [1, 30])
@pytest.mark.parametrize("size", [(1, 2), (16, 10), (257, 10), (1000, 3), (5, 1823)], ids=str)
def test_cross_entropy_and_gradient(ce, size, scale):
    logits, labels = random(*size)
    logits *= scale
    before = logits.clone(), labels.clone()
    exact = logits.double().requires_grad_()
    expected = cross_entropy_ref(exact, labels)
    dloss = torch.randn((), device=DEVICE)
    expected.backward(dloss.double())

    # where softmax is nearly 1, its logarithm and softmax - 1 have no more than its 24 bits
    check_close(ce.cross_entropy_forward(logits, labels), expected, atol=1e-6)
    check_close(ce.cross_entropy_backward(dloss, logits, labels), exact.grad, atol=1e-6)
    assert torch.equal(logits, before[0]) and torch.equal(labels, before[1])


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


def test_cross_entropy_refuses_another_device(ce):
    logits, labels = random(4, 3)
    with pytest.raises(RuntimeError, match="logits: expected a CUDA tensor, got meta"):
        ce.cross_entropy_forward(logits.to("meta"), labels)
    with pytest.raises(RuntimeError, match="labels: expected a CUDA tensor, got meta"):
        ce.cross_entropy_forward(logits, labels.to("meta"))
    with pytest.raises(RuntimeError, match="dloss: expected a CUDA tensor, got meta"):
        ce.cross_entropy_backward(logits.to("meta").sum(), logits, labels)


def test_cross_entropy_refuses_other_dtypes(ce):
    logits, labels = random(4, 3)
    with pytest.raises(RuntimeError, match="logits: expected Float, got Double"):
        ce.cross_entropy_forward(logits.double(), labels)
    with pytest.raises(RuntimeError, match="labels: expected Long, got Int"):
        ce.cross_entropy_forward(logits, labels.int())
    with pytest.raises(RuntimeError, match="dloss: expected Float, got Half"):
        ce.cross_entropy_backward(logits[0, 0].half(), logits, labels)


def test_cross_entropy_refuses_other_layouts(ce):
    logits, labels = random(6, 6)
    for bad in (logits[0], logits.T, logits[:, ::2], logits[None]):
        with pytest.raises(RuntimeError, match="logits: expected a contiguous tensor, dim 2, got"):
            ce.cross_entropy_forward(bad, labels)
        with pytest.raises(RuntimeError, match="logits: expected a contiguous tensor, dim 2, got"):
            ce.cross_entropy_backward(logits[0, 0], bad, labels)
    with pytest.raises(RuntimeError, match="labels: expected a contiguous tensor, dim 1, got"):
        ce.cross_entropy_forward(logits, labels[:, None])
    with pytest.raises(RuntimeError, match="dloss: expected a contiguous tensor, dim 0, got"):
        ce.cross_entropy_backward(logits[0], logits, labels)


def test_cross_entropy_refuses_sizes_that_do_not_fit(ce):
    logits, labels = random(6, 3)
    with pytest.raises(RuntimeError, match="labels: expected 6 on .*, got 5"):
        ce.cross_entropy_forward(logits, labels[:5])
    with pytest.raises(RuntimeError, match="logits: expected 1 to .* classes"):
        ce.cross_entropy_forward(logits[:, :0].contiguous(), labels)
