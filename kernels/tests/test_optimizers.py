"""AdamW and SGD with momentum on lists: what they promise (see contract.py), lists, many steps."""

import pytest
import torch

from helpers.checks import check_close
from helpers.device import DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats, wrong

SHAPES = [(6, 8), (), (1,), (1023,), (1025,), (64, 32, 3, 3), (0, 3), (5, 1000)]
ADAMW = {"step": 3, "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1}
SGD = {"lr": 0.03, "momentum": 0.9, "weight_decay": 0.01}
OTHERS = [(8, 6), (48,), (6, 9)]


def adamw_ref(params, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps, weight_decay):
    """As torch.optim.AdamW, which may be asked for one step only with the state of the last."""
    exact = params.clone().requires_grad_()
    exact.grad = grads
    optimizer = torch.optim.AdamW(
        [exact], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay
    )
    optimizer.state[exact] = {
        "step": torch.tensor(float(step - 1)),
        "exp_avg": exp_avgs,
        "exp_avg_sq": exp_avg_sqs,
    }
    optimizer.step()
    params.copy_(exact.detach())


def sgd_ref(params, grads, momentum_buffers, lr, momentum, weight_decay):
    exact = params.clone().requires_grad_()
    exact.grad = grads
    optimizer = torch.optim.SGD([exact], lr=lr, momentum=momentum, weight_decay=weight_decay)
    optimizer.state[exact] = {"momentum_buffer": momentum_buffers}
    optimizer.step()
    params.copy_(exact.detach())


def adamw_arguments(*shape):
    three = {name: floats(*shape) for name in ("params", "grads", "exp_avgs")}
    return {**three, "exp_avg_sqs": floats(*shape).square(), **ADAMW}


def sgd_arguments(*shape):
    return {name: floats(*shape) for name in ("params", "grads", "momentum_buffers")} | SGD


CASES = [
    Case(
        "adamw_step",
        adamw_arguments,
        adamw_ref,
        SHAPES,
        tolerance=lambda *shape: {"atol": 1e-6},
        ragged=[
            *wrong("grads", floats, *OTHERS),
            *wrong("exp_avgs", floats, *OTHERS),
            *wrong("exp_avg_sqs", floats, *OTHERS),
            ("step", lambda arguments: 0),
        ],
        writes=("params", "exp_avgs", "exp_avg_sqs"),
        listed=("params", "grads", "exp_avgs", "exp_avg_sqs"),
    ),
    Case(
        "sgd_momentum_step",
        sgd_arguments,
        sgd_ref,
        SHAPES,
        tolerance=lambda *shape: {"atol": 1e-6},
        ragged=wrong("grads", floats, *OTHERS) + wrong("momentum_buffers", floats, *OTHERS),
        writes=("params", "momentum_buffers"),
        listed=("params", "grads", "momentum_buffers"),
    ),
]


@pytest.fixture
def optimizers(kernel):
    return kernel("optimizers")


def lists(shapes, count):
    return [[torch.randn(shape, device=DEVICE) for shape in shapes] for _ in range(count)]


@pytest.mark.parametrize("count", (0, 1, 7, 100, 101, 250))
def test_lists_of_any_length(optimizers, count):
    """100 tensors are a launch; five steps from zeros, each tensor of a size of its own."""
    shapes = [SHAPES[i % len(SHAPES)] if i % 3 else (i,) for i in range(count)]
    for name in ("AdamW", "SGD"):
        params, grads = lists(shapes, 2)
        first, second = [[torch.zeros_like(p) for p in params] for _ in range(2)]
        exact = [p.double().requires_grad_() for p in params]
        how = {"momentum": 0.9} if name == "SGD" else {"weight_decay": 0.1}
        reference = getattr(torch.optim, name)(exact, lr=0.01, **how) if count else None
        for step in range(1, 6):
            for p, g in zip(exact, grads, strict=True):
                p.grad = step * g.double()
            now = [step * g for g in grads]
            if name == "AdamW":
                optimizers.adamw_step(params, now, first, second, step, 0.01, 0.9, 0.999, 1e-8, 0.1)
            else:
                optimizers.sgd_momentum_step(params, now, first, 0.01, 0.9, 0.0)
            if count:
                reference.step()
        for got, wanted in zip(params, exact, strict=True):
            check_close(got, wanted.detach(), atol=1e-5)


def test_lists_have_to_be_as_long_as_each_other(optimizers):
    params, grads, first = lists([(3,), (4,)], 3)
    with pytest.raises(RuntimeError, match="grads: expected as many .* 2, got 1"):
        optimizers.sgd_momentum_step(params, grads[:1], first, 0.1, 0.9, 0.0)


def test_another_shape_is_named_with_its_place(optimizers):
    params, grads, first = lists([(3,), (4,)], 3)
    with pytest.raises(RuntimeError, match=r"grads: expected .*\[4\].*, in place 1"):
        optimizers.sgd_momentum_step(params, [grads[0]] * 2, first, 0.1, 0.9, 0.0)


def test_nan_is_handed_on_and_stays_where_it_is(optimizers):
    params, grads, first = lists([(3,), (2000,)], 3)
    grads[1][7] = torch.nan
    optimizers.sgd_momentum_step(params, grads, first, 0.1, 0.9, 0.0)
    assert params[1].isnan().nonzero().flatten().tolist() == [7]
    assert not params[0].isnan().any()


def test_one_launch_and_16_bytes_at_a_time(optimizers):
    params, grads, first, second = lists([(4096,)] * 100, 4)
    second = [s.square() for s in second]
    report = trace(
        optimizers.adamw_step, params, grads, first, second, 1, 0.01, 0.9, 0.999, 1e-8, 0.0
    )
    assert len(report.launches) == 1
    accesses = [access for access in report.accesses if access.space == "global"]
    assert {access.bytes for access in accesses} == {16}
    assert sum(16 * access.lanes for access in accesses) == 28 * 100 * 4096
