"""The operators of kernels/: gradients of first and second order, torch.compile, autocast, views.

One row an operator; each test runs over all rows. The gradient checks are themselves tried on
gradients that are wrong by three percent, or that cannot be differentiated again.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import kernels
from helpers.base.called_kernels import called_kernels
from helpers.base.machine import ROOT
from helpers.checks import check_close, check_grad
from helpers.compiler import tools
from helpers.device import DEVICE
from helpers.timing import capture
from kernels.operators import _register
from kernels.tests import contract
from kernels.tests.contract import floats
from kernels.tests.test_flash_attention import forward_ref as attention_ref

HALF = torch.bfloat16  # what autocast is asked for
# A step this long keeps the rounding of float32 below 1e-4 of a slope of about 1.
EPS = 0.1  # of norms: large enough to be noticed
NUMERIC = {"eps": 1e-2, "atol": 3e-3, "rtol": 3e-3}
pytestmark = pytest.mark.filterwarnings("ignore:Input #. requires gradient and is not a double")


@dataclass(frozen=True)
class Row:
    """An operator: the function, its equal in PyTorch, arguments for both."""

    function: Callable
    ref: Callable
    arguments: Callable[..., tuple]  # a size → arguments
    size: tuple  # small: the gradients of all numbers are computed one by one
    more: tuple[tuple, ...]  # other sizes: ragged ones, and empty ones where there is a gradient
    autocast: torch.dtype | None = torch.float32  # what it computes in; None: as it comes
    halves: bool = False  # takes half types


def row(function, ref, arguments, size, *more, **others):
    made = Row(function, ref, arguments, size, more, **others)
    return pytest.param(made, id=function.__name__)


def one(*shape):
    return (floats(*shape),)


def apart(*shape):
    """Return a tensor of numbers of which no two are nearer than 0.1, and none nearer 0 than 0.05.

    So no step of a numeric gradient crosses a kink.
    """
    n = torch.Size(shape).numel()
    numbers = torch.randperm(n, device=DEVICE) - n // 2 + 0.5
    return ((numbers / 10).view(shape),)


def channels(N, C, H, W):
    return floats(N, C, H, W), floats(C), floats(C)


def running(weight):
    """Return running statistics; they stay float32 where all else is of a half type."""
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    place = torch.arange(len(weight), device=weight.device, dtype=dtype)
    return place / 3, 1 + place / 2


def layer_norm(x, weight, bias):
    return kernels.layer_norm(x, weight, bias, EPS)


def rms_norm(x, weight):
    return kernels.rms_norm(x, weight, EPS)


def batch_norm2d_training(x, weight, bias):
    return kernels.batch_norm2d(x, *running(weight), weight, bias, training=True, eps=EPS)


def batch_norm2d(x, weight, bias):
    return kernels.batch_norm2d(x, *running(weight), weight, bias, eps=EPS)


def max_pool2d(x):
    return kernels.max_pool2d(x, 2)


def images_and_taps(N, C, H, W, C_out, groups, *how):
    return floats(N, C, H, W), floats(C_out, C // groups, 3, 2), floats(C_out), *how, groups


def images_and_filters(N, C, H, W, k, stride, padding, dilation):
    images = floats(N, C, H, W), floats(C, k, k), floats(C)
    return *images, stride, padding, dilation


def layer(*shape):
    """Return x, weight and bias whose sums are of the size of 1, where GELU bends."""
    return floats(*shape), floats(5, shape[-1]) / shape[-1] ** 0.5, floats(5)


def linear_gelu_by_tanh(x, weight, bias):
    return kernels.linear_gelu(x, weight, bias, "tanh")


def silu_gate(x, weight, bias):
    gate, up = F.linear(x, weight, bias).chunk(2, -1)
    return F.silu(gate) * up


def dropped(x, p, seed, offset):
    kept = kernels.dropout(torch.ones_like(x, dtype=torch.float32), p, seed, offset) > 0
    return x * kept / (1 - p)


def queries(B, H, S_q, S_kv, D, causal):
    return floats(B, H, S_q, D), floats(B, H, S_kv, D), floats(B, H, S_kv, D), causal


def cached(B, H, H_kv, S_q, S_kv, D):
    lengths = torch.randint(S_kv + 1, (B,), dtype=torch.int32, device=DEVICE)
    lengths[0] = S_kv  # where one key is seen, q and k have no gradient
    return floats(B, H, S_q, D), floats(B, H_kv, S_kv, D), floats(B, H_kv, S_kv, D), lengths


def cached_attention(q, k, v, lengths):
    return kernels.attention(q, k, v, True, window=5, lengths=lengths, lower_right=True)


def of_parts(function):
    """Return the function of a complex tensor as one of its parts, two real tensors."""

    def with_parts(real, imag, *others):
        out = function(torch.complex(real, imag), *others)
        return torch.view_as_real(out) if out.is_complex() else out

    with_parts.__name__ = function.__name__
    return with_parts


def rfft(function):
    return lambda x: torch.view_as_real(function(x))


def two(*shape):
    return floats(*shape), floats(*shape)


def half_spectra(*shape):
    return *two(*shape[:-1], shape[-1] // 2 + 1), shape[-1]


ROWS = [
    row(kernels.relu, torch.relu, apart, (3, 4), (), (0,), (5, 260)),
    row(kernels.gelu, F.gelu, one, (3, 4), (), (0, 3), (7, 130), autocast=None, halves=True),
    row(kernels.softmax, lambda x: x.softmax(-1), one, (3, 4), (2, 3, 300), (0, 2), halves=True),
    row(
        layer_norm,
        lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
        lambda *shape: (floats(*shape), floats(shape[-1]), floats(shape[-1])),
        *[(3, 4), (2, 5, 130), (0, 3)],
        halves=True,
    ),
    row(
        rms_norm,
        lambda x, weight: F.rms_norm(x, weight.shape, weight, EPS),
        lambda *shape: (floats(*shape), floats(shape[-1])),
        *[(3, 4), (2, 5, 130), (0, 3)],
        halves=True,
    ),
    row(
        batch_norm2d_training,
        lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True, eps=EPS),
        channels,
        *[(3, 2, 2, 2), (5, 3, 7, 9)],
    ),
    row(
        batch_norm2d,
        lambda x, weight, bias: F.batch_norm(x, *running(weight), weight, bias, eps=EPS),
        channels,
        *[(2, 2, 2, 2), (5, 3, 7, 9), (0, 3, 2, 2)],
    ),
    row(max_pool2d, lambda x: F.max_pool2d(x, 2), apart, (1, 2, 5, 4), (3, 2, 8, 9), (0, 2, 4, 4)),
    row(
        kernels.conv2d,
        F.conv2d,
        images_and_taps,
        (1, 2, 3, 3, 2, 1, 1, 1, 1),
        (2, 2, 4, 3, 3, 1, 1, 1, 1),
        (3, 6, 13, 9, 4, 2, (2, 1), (0, 3), (1, 2)),
        (0, 2, 4, 3, 3, 1, 1, 2, 1),
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.depthwise_conv2d,
        lambda x, weight, bias, stride, padding, dilation: F.conv2d(
            x, weight[:, None], bias, stride, padding, dilation, groups=len(weight)
        ),
        images_and_filters,
        *[
            (1, 2, 3, 4, 3, 1, 1, 1),
            (2, 3, 8, 6, 3, 1, 1, 1),
            (3, 2, 9, 11, 5, 2, 2, 1),
            (2, 2, 7, 9, 3, 1, 0, 2),
        ],
    ),
    row(
        kernels.matmul,
        torch.matmul,
        lambda M, K, N: (floats(M, K), floats(K, N)),
        *[(3, 4, 2), (17, 33, 130), (4, 0, 3), (0, 3, 2)],
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.linear,
        F.linear,
        lambda *shape: (floats(*shape), floats(5, shape[-1]), floats(5)),
        *[(3, 4), (4,), (2, 7, 33), (0, 3)],
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.linear_gelu,
        lambda x, weight, bias: F.gelu(F.linear(x, weight, bias)),
        layer,
        *[(3, 4), (4,), (2, 7, 33), (0, 3)],
        autocast=HALF,
        halves=True,
    ),
    row(
        linear_gelu_by_tanh,
        lambda x, weight, bias: F.gelu(F.linear(x, weight, bias), approximate="tanh"),
        layer,
        *[(3, 4), (2, 7, 33)],
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.linear_residual,
        lambda x, weight, residual, bias: F.linear(x, weight, bias) + residual,
        lambda *shape: (*layer(*shape)[:2], floats(*shape[:-1], 5), floats(5)),
        *[(3, 4), (4,), (2, 7, 33), (0, 3)],
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.linear_silu_gate,
        silu_gate,
        lambda *shape: (floats(*shape), floats(6, shape[-1]) / shape[-1] ** 0.5, floats(6)),
        *[(3, 4), (4,), (2, 7, 33), (0, 3)],
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.attention,
        lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        queries,
        *[
            (1, 2, 2, 3, 2, True),
            (2, 1, 40, 33, 18, True),
            (1, 2, 33, 70, 64, False),
            (2, 2, 3, 0, 8, True),
        ],
        autocast=HALF,
        halves=True,
    ),
    row(
        cached_attention,
        lambda *given: attention_ref(*given, True, True, 5)[0],
        cached,
        *[(2, 2, 1, 2, 3, 2), (2, 4, 2, 40, 33, 150), (1, 6, 2, 3, 70, 64)],
        autocast=HALF,
        halves=True,
    ),
    row(
        kernels.cross_entropy,
        F.cross_entropy,
        lambda N, C: (floats(N, C), torch.randint(C, (N,), device=DEVICE)),
        (3, 4),
        (33, 700),
    ),
    row(
        kernels.vector_add,
        torch.add,
        lambda *s: (floats(*s), floats(*s)),
        (3, 4),
        (0,),
        (5, 77),
        halves=True,
    ),
    row(kernels.square, torch.square, one, (3, 4), (), (0,), (5, 260)),
    row(kernels.sum, torch.sum, one, (3, 4), (), (0,), (5, 260), halves=True),
    *[
        row(of_parts(ours), of_parts(ref), two, *sizes, autocast=None)
        for ours, ref, sizes in (
            (kernels.fft, torch.fft.fft, [(2, 3), (4,), (2, 5, 36), (3, 11)]),
            (kernels.ifft, torch.fft.ifft, [(2, 3), (4,), (2, 5, 36), (3, 11)]),
            (kernels.fft2, torch.fft.fft2, [(2, 3), (2, 64, 6), (5, 11)]),
            (kernels.ifft2, torch.fft.ifft2, [(2, 3), (2, 64, 6), (5, 11)]),
        )
    ],
    row(rfft(kernels.rfft), rfft(torch.fft.rfft), one, (2, 4), (5,), (2, 3, 36)),
    row(
        of_parts(kernels.irfft),
        of_parts(torch.fft.irfft),
        half_spectra,
        *[(2, 4), (5,), (2, 3, 36)],
        autocast=None,
    ),
    row(
        kernels.dropout,
        dropped,
        lambda *shape: (floats(*shape), 0.25, 5, 8),
        *[(3, 4), (), (0,), (5, 261)],
    ),
    row(kernels.transpose, torch.t, one, (3, 4), (0, 2), (33, 70), autocast=None, halves=True),
]
every_row = pytest.mark.parametrize("of", ROWS)


def leaves(arguments):
    """Return the arguments with gradients asked for of all floating-point tensors."""
    return tuple(
        value.detach().clone().requires_grad_() if is_float(value) else value for value in arguments
    )


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def equal_bits(a, b):
    return contract.equal_bits(a, b.contiguous())  # the gradient of a sum is one number for all


def results_and_gradients(function, arguments):
    """Return the result and the gradients of the sum of its squares."""
    arguments = leaves(arguments)
    out = function(*arguments)
    wanted = [value for value in arguments if is_float(value)]
    return out.detach(), *grad(out.square().sum(), wanted)


# ------------------------------------------------------------------------------------- gradients


@every_row
def test_results_and_gradients_are_those_of_pytorch_in_float64(of):
    for size in (of.size, *of.more):
        check_grad(of.function, of.ref, *of.arguments(*size))


@every_row
def test_arguments_stay_as_they_are(of):
    for size in (of.size, *of.more):
        arguments = of.arguments(*size)
        before = leaves(arguments)
        of.function(*arguments)
        for value, was in zip(arguments, before, strict=True):
            assert torch.equal(value, was) if is_float(value) else value is was


@pytest.mark.parametrize("of", [of for of in ROWS if of.values[0].halves])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(of, dtype):
    """Results and gradients are computed in float32 and rounded once, but for TWICE."""
    eps, name = torch.finfo(dtype).eps, of.function.__name__
    for size in (of.size, *of.more):
        rounded = [v.to(dtype) if is_float(v) else v for v in of.arguments(*size)]
        exact = [v.double() if is_float(v) else v for v in rounded]
        dout = floats(*of.ref(*exact).shape).to(dtype)
        got = result_and_gradients_of(of.function, rounded, dout)
        want = result_and_gradients_of(of.ref, exact, dout.double())
        for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
            assert ours.dtype == dtype
            typical = theirs.square().mean().sqrt().item() if theirs.numel() else 0
            if "attention" in name and 0 < i and theirs.numel() < contract.FEW:
                typical = max(typical, 1)  # a few may all be small: what is left of dp - delta
            steps = max(1e-4, eps * TWICE.get((name, i), 0))
            smallest = torch.finfo(dtype).smallest_normal * eps
            check_close(ours, theirs, rtol=0.51 * eps, atol=steps * typical + smallest)


# what is rounded on the way, too: steps of a typical element by which it may then be off
TWICE = {
    ("softmax", 1): 8,  # out, for its gradient
    # the layer, computed once more, and its gradient
    **{
        (name, i): 4
        for name in ("linear_gelu", "linear_gelu_by_tanh", "linear_silu_gate")
        for i in (1, 2, 3)
    },
    # the weights, on tensor cores; in the gradients ds, and out, for delta
    **{(name, i): 16 if i else 4 for name in ("attention", "cached_attention") for i in range(4)},
}


def result_and_gradients_of(function, arguments, dout):
    arguments = leaves(arguments)
    out = function(*arguments)
    return out.detach(), *grad(out, [value for value in arguments if is_float(value)], dout)


@every_row
def test_gradients_are_those_of_small_steps(of):
    arguments = leaves(of.arguments(*of.size))
    assert gradcheck(of.function, arguments, **NUMERIC)
    assert gradgradcheck(of.function, arguments, **NUMERIC)


class TooSteep(torch.autograd.Function):
    """The identity, with a gradient that is wrong by three percent."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dout):
        return 1.03 * dout


class OnceOnly(TooSteep):
    """The identity, with a gradient that says it is a constant."""

    @staticmethod
    def backward(ctx, dout):
        return dout.detach()


@every_row
def test_the_checks_find_wrong_gradients(of):
    arguments = of.arguments(*of.size)
    with pytest.raises(AssertionError):
        check_grad(lambda *args: TooSteep.apply(of.function(*args)), of.ref, *arguments)
    arguments = leaves(arguments)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(lambda *args: TooSteep.apply(of.function(*args)), arguments, **NUMERIC)

    def once(*args):
        return OnceOnly.apply(of.function(*args))

    assert gradcheck(once, arguments, **NUMERIC)
    with pytest.raises(RuntimeError, match="Jacobian mismatch|gradient for function expected"):
        gradgradcheck(once, arguments, **NUMERIC)


# ----------------------------------------------------------------------------- PyTorch's machinery


class Recording(TorchDispatchMode):
    """Notes the operators of kernels/ that are called, with their arguments."""

    def __init__(self):
        super().__init__()
        self.called = {}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "kernels":
            self.called[op] = args
        return op(*args, **(kwargs or {}))


def called_operators(of):
    """Return the operators of forward, backward and second backward, with arguments."""
    arguments = leaves(of.arguments(*of.size))
    inputs = [value for value in arguments if is_float(value)]
    with Recording() as recording:
        out = of.function(*arguments)
        dout = torch.ones_like(out, requires_grad=True)
        first = grad(out, inputs, dout, create_graph=True)
        torch.stack([each.square().sum() for each in first]).sum().backward()
    return recording.called


@every_row
def test_opcheck(of):
    for op, args in called_operators(of).items():
        torch.library.opcheck(op, leaves(args))


def test_the_rows_call_every_operator():
    called = {op.name() for of in ROWS for op in called_operators(of.values[0])}
    defined = {name for name in torch._C._dispatch_get_all_op_names() if name[:9] == "kernels::"}
    # have tests of their own
    others = {"sgd", "sgd_momentum", "adamw", "quantized_linear", "all_reduce", "attention_forward"}
    assert called == defined - {f"kernels::{name}" for name in others}


@every_row
def test_compiles_without_a_graph_break(of):
    torch.compiler.reset()
    arguments = of.arguments(*of.size)

    def function(*args):
        return 2 * of.function(*args) + 1

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    expected = results_and_gradients(function, arguments)
    for got, want in zip(results_and_gradients(compiled, arguments), expected, strict=True):
        assert equal_bits(got, want)


@every_row
def test_runs_in_a_cuda_graph(of):
    arguments = leaves(of.arguments(*of.size))
    inputs = [value for value in arguments if is_float(value)]
    results = []

    def step():
        out = of.function(*arguments)
        results[:] = out, *grad(out, inputs, torch.ones_like(out))

    replay = capture(step)
    others = of.arguments(*of.size)
    with torch.no_grad():
        for value, other in zip(arguments, others, strict=True):
            if isinstance(value, torch.Tensor):
                value.copy_(other)
    replay()
    got = [each.detach().clone() for each in results]
    step()
    assert all(map(equal_bits, got, [each.detach() for each in results]))


@every_row
def test_autocast(of):
    """Inputs come in the other type; gradients go back in that of the inputs."""
    if of.autocast is None:
        pytest.skip("computes in the type that comes")
    comes = HALF if of.autocast == torch.float32 else torch.float32
    rounded = [v.to(HALF) if is_float(v) else v for v in of.arguments(*of.size)]
    arguments = leaves(v.to(comes) if is_float(v) else v for v in rounded)
    with torch.autocast(DEVICE.type, dtype=HALF):
        out = of.function(*arguments)
    assert out.dtype == of.autocast
    check_close(out, of.ref(*[v.double() if is_float(v) else v for v in rounded]))
    out.sum().backward()
    assert all(value.grad.dtype == comes for value in arguments if is_float(value))


@every_row
def test_views(of):
    """Every second element, columns in place of rows, and one element for all."""
    arguments = of.arguments(*of.size)
    for view in (
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
        lambda x: x[:1].expand(x.shape),
    ):
        views = [view(v) if isinstance(v, torch.Tensor) else v for v in arguments]
        in_order = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in views]
        out, expected = of.function(*views), of.function(*in_order)
        assert out.is_contiguous() and equal_bits(out, expected)


# --------------------------------------------------------------- no Python on the way to a kernel


def frames(call):
    """Return the names of the Python functions that are entered during a call."""
    found = []
    sys.setprofile(lambda frame, event, _: event == "call" and found.append(frame.f_code.co_name))
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@every_row
def test_no_python_between_dispatcher_and_kernel(of):
    """But __call__ of the operator itself, with and without a gradient."""
    for op, args in called_operators(of).items():
        for arguments in ([v.detach() if is_float(v) else v for v in args], leaves(args)):
            op(*arguments)  # which builds what is missing
            entered = frames(lambda op=op, arguments=arguments: op(*arguments))
            assert entered == ["<lambda>", "__call__"]


in_this_thread = pytest.mark.skipif(
    DEVICE.type == "cuda", reason="a GPU's gradients are computed in a thread that no profiler sees"
)


@in_this_thread
def test_a_gradient_enters_python_once():
    """For the function that _register.gradient_of decorates, and what that calls."""
    x = floats(2, 3, 4, 4).requires_grad_()
    kernels.max_pool2d(x, 2).sum().backward()
    out = kernels.max_pool2d(x, 2)
    ones = torch.ones_like(out)
    entered = frames(lambda: out.backward(ones))
    assert [name for name in entered if name == "_"] == ["_"]
    assert entered[entered.index("_") :] == ["_", "__call__"]


@in_this_thread
@pytest.mark.parametrize(
    "name",
    ["relu", "softmax", "rms_norm", "attention", "cross_entropy", "linear", "conv2d"]
    + ["depthwise_conv2d", "batch_norm2d_training"],
)
def test_a_gradient_by_operators_or_cpp_enters_no_python(name):
    of = next(row.values[0] for row in ROWS if row.id == name)
    arguments = leaves(of.arguments(*of.size))
    of.function(*arguments).sum().backward()
    out = of.function(*arguments)
    ones = torch.ones_like(out)
    entered = frames(lambda: out.backward(ones))
    assert "backward" in entered and not {"_", "__call__"} & set(entered)


def test_autocast_enters_no_python():
    x = floats(3, 4).to(HALF)
    op = torch.ops.kernels.softmax_forward.default
    with torch.autocast(DEVICE.type, dtype=HALF):
        op(x)
        assert frames(lambda: op(x)) == ["<lambda>", "__call__"]


def test_calls_through_operators_are_noted():
    """A measurement is of the kernels that are called in it, seen by Python or not."""
    x = floats(3)
    kernels.square(x)
    with called_kernels() as none:
        kernels.relu(x)
    with called_kernels() as called:
        kernels.square(x)
    assert {name.split()[0] for name in none} == {"relu_forward"}
    assert {name.split()[0] for name in called} == {"square"}


TRANSFORMS = {
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).square().sum())(x),
    "jacrev": lambda f, x: torch.func.jacrev(torch.func.jacrev(f))(x),
    "vmap": lambda f, x: torch.func.vmap(f)(x),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(lambda x: f(x).square().sum()))(x),
}


@pytest.mark.parametrize("how", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap calls row by row
def test_transforms_of_functions(how):
    x = floats(3, 4)
    got = TRANSFORMS[how](kernels.softmax, x)
    check_close(got, TRANSFORMS[how](lambda x: x.softmax(-1), x.double()))


def test_compiled_autograd():
    x = floats(2, 4, 6, 6)

    def gradient(function, x):
        x = x.clone().requires_grad_()
        function(x).square().sum().backward()
        return x.grad

    torch.compiler.reset()
    for ours, ref in (
        (kernels.gelu, F.gelu),
        (lambda x: kernels.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2)),
        (  # with numbers and bools to keep
            lambda x: kernels.layer_norm(x, x[0, 0, 0], x[0, 0, 1], EPS),
            lambda x: F.layer_norm(x, x.shape[-1:], x[0, 0, 0], x[0, 0, 1], EPS),
        ),
        (
            lambda x: kernels.attention(x, x, x, causal=True),
            lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        ),
        (
            lambda x: x * kernels.dropout(x, 0.5, 3),
            lambda x: x * kernels.dropout(x.float(), 0.5, 3),
        ),
    ):
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            got = gradient(ours, x)
        check_close(got, gradient(ref, x.double()))


THREADS = """
import threading, torch, kernels
from helpers.device import DEVICE
x, weight = torch.randn(5, 8, device=DEVICE), torch.ones(8, device=DEVICE)
found = []
def run():
    inp = x.clone().requires_grad_()
    kernels.rms_norm(inp, weight).square().sum().backward()
    found.append(inp.grad)
threads = [threading.Thread(target=run) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 8 and all(torch.equal(each, found[0]) for each in found)
"""


def test_a_build_that_fails_is_said_at_every_call(monkeypatch):
    def fail():
        raise RuntimeError("_register.cpp does not compile")

    monkeypatch.setattr(_register, "_register", fail)
    monkeypatch.setitem(_register._missing, "square", [("run", "CPU", "square", "square", False)])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="does not compile"):
            _register._first_call("square", floats(3))


def test_threads_may_come_first_at_once():
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------- single operators


def test_the_files_refuse_what_is_wrong():
    for function in (kernels.softmax, torch.compile(kernels.softmax, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="inp: expected contiguous float32.* got Double"):
            function(floats(3, 4).double())
    with pytest.raises(RuntimeError, match=r"B: expected .*got Float.* shape \[3, 2\]"):
        kernels.matmul(floats(3, 4), floats(3, 2))
    with pytest.raises(RuntimeError, match=r"bias: expected .*shape \[5\], got .*shape \[1\]"):
        kernels.linear(floats(3, 4), floats(5, 4), floats(1))
    with pytest.raises(RuntimeError, match="bias: expected BFloat16, .*got Float"):
        kernels.linear(floats(3, 4).to(HALF), floats(5, 4).to(HALF), floats(5))
    with pytest.raises(RuntimeError, match="param: expected contiguous"):
        kernels.sgd(floats(3, 4).t(), floats(4, 3), 0.1)


def test_attention_takes_the_file_that_is_made_for_the_call():
    q, k, v = floats(1, 4, 5, 64), floats(1, 4, 5, 64), floats(1, 4, 5, 64)
    few, wide = (floats(1, 2, 5, 64),) * 2, floats(1, 4, 5, 200)
    lengths = torch.tensor([3], dtype=torch.int32, device=DEVICE)
    with Recording() as recording:
        for causal in (False, True):
            check_close(
                kernels.attention(q, k, v, causal), attention_ref(q, k, v, None, causal, 0, 0)[0]
            )
        with torch.no_grad():
            kernels.attention(q.requires_grad_(), k, v)
    assert [op.name() for op in recording.called] == ["kernels::attention_forward"]
    for args, more, how in (
        ((q, k, v), {}, (None, False, False, 0)),  # with a gradient
        ((q.detach(), *few), {}, (None, False, False, 0)),
        ((wide, wide, wide), {"causal": True}, (None, True, False, 0)),
        ((q.detach(), k, v), {"window": 2}, (None, False, False, 2)),
        ((q.detach(), k, v), {"lengths": lengths}, (lengths, False, False, 0)),
        (
            (q[:, :, :3].detach(), k, v),
            {"causal": True, "lower_right": True},
            (None, True, True, 0),
        ),
    ):
        with Recording() as recording:
            out = kernels.attention(*args, **more)
        assert [op.name() for op in recording.called] == ["kernels::flash_attention_forward"]
        check_close(out, attention_ref(*args, *how)[0])
    with pytest.raises(ValueError, match="window: expected at least one key, got 0"):
        kernels.attention(q, k, v, window=0)
    with pytest.raises(RuntimeError, match="k: expected H_kv heads, of which the 4 heads"):
        kernels.attention(q, floats(1, 3, 5, 64), floats(1, 3, 5, 64))


def test_attention_s_gradient_takes_memory_linear_in_its_lengths():
    """No operator returns more than a gradient has; a kernel has 8 bytes a query besides."""
    S, D = 512, 8
    q, k, v = (floats(1, 1, S, D).requires_grad_() for _ in "qkv")
    out = kernels.attention(q, k, v)

    class Sizes(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            made = op(*args, **(kwargs or {}))
            for x in made if isinstance(made, tuple) else (made,):
                if isinstance(x, torch.Tensor):
                    self.largest = max(self.largest, x.numel())
            return made

    with Sizes() as sizes:
        grad(out, (q, k, v), torch.ones_like(out))
    assert 0 < sizes.largest <= S * D


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_half_types(dtype):
    A, B, bias = floats(33, 70).to(dtype), floats(70, 20).to(dtype), floats(20).to(dtype)
    check_close(kernels.matmul(A, B), A.double() @ B.double())
    exact = A.double() @ B.double()
    for weight in (B.t(), B.t().contiguous()):  # columns and rows: other files
        check_close(kernels.linear(A, weight, bias), exact + bias.double())
        check_close(kernels.linear(A, weight), exact)


ONCE = {"rtol": 0.51 * 2**-7, "atol": 1e-4}  # rounded to bfloat16


@pytest.mark.parametrize("rows", [512, 513])
def test_layers_of_half_types_are_rounded_once(rows):
    """With a bias, or with what follows a layer, linear.cu makes them, whatever their rows."""
    x, weight, bias = (value.to(torch.bfloat16) for value in layer(rows, 24))
    weight, bias = torch.cat([weight, weight.flip(0)]), torch.cat([bias, bias.flip(0)])
    y, residual = F.linear(*(v.double() for v in (x, weight, bias))), floats(rows, 10)
    residual = residual.to(torch.bfloat16)
    by_tanh, gate, up = F.gelu(y, approximate="tanh"), *y.chunk(2, -1)
    check_close(kernels.linear(x, weight, bias), y, **ONCE)
    check_close(kernels.linear_gelu(x, weight, bias), F.gelu(y), **ONCE)
    check_close(kernels.linear_gelu(x, weight, bias, "tanh"), by_tanh, **ONCE)
    check_close(kernels.linear_residual(x, weight, residual, bias), y + residual, **ONCE)
    check_close(kernels.linear_silu_gate(x, weight, bias), F.silu(gate) * up, **ONCE)


def test_linear_gelu_knows_two_formulas():
    with pytest.raises(ValueError, match='approximate: expected "none" or "tanh", got \'sigmoid\''):
        kernels.linear_gelu(*layer(3, 4), "sigmoid")


def test_gradients_that_nobody_asks_for_are_not_computed():
    x, weight = floats(2, 3, 5, 5), floats(4, 3, 3, 3).requires_grad_()
    with Recording() as recording:
        kernels.conv2d(x, weight).sum().backward()
    called = {op.name().removeprefix("kernels::") for op in recording.called}
    assert called == {"conv2d_forward", "conv2d_backward_weight"}


def test_autocast_in_a_compiled_function():
    x, weight = floats(3, 4), floats(5, 4)
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(x):
        with torch.autocast(DEVICE.type, dtype=HALF):
            return kernels.linear(x, weight), kernels.softmax(x.to(HALF))

    out, weights = function(x)
    assert out.dtype == HALF and weights.dtype == torch.float32
    check_close(out, x.to(HALF).double() @ weight.to(HALF).double().t())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # inside torch.func.jvp
def test_forward_mode_is_refused():
    """PyTorch would return a derivative of 0."""
    with pytest.raises(NotImplementedError, match="softmax_forward has no forward-mode deriv"):
        torch.func.jvp(kernels.softmax, one(3), one(3))


def test_cross_entropy_knows_no_smooth_labels():
    logits, labels = floats(3, 4), torch.tensor([0, 3, 1], device=DEVICE)
    with pytest.raises(NotImplementedError, match="expected label_smoothing 0, got 0.1"):
        kernels.cross_entropy(logits, labels, label_smoothing=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cross_entropy_takes_half_types_as_they_are(dtype):
    logits, labels = floats(33, 70).to(dtype).requires_grad_(), torch.arange(33, device=DEVICE)
    with torch.autocast(DEVICE.type, dtype=dtype):
        loss = kernels.cross_entropy(logits, labels)
    exact = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(exact, labels)
    assert loss.dtype == torch.float32
    check_close(loss, expected, rtol=1e-6)
    (grad,), (want,) = (torch.autograd.grad(x, y) for x, y in ((loss, logits), (expected, exact)))
    assert grad.dtype == dtype
    check_close(grad, want, rtol=torch.finfo(dtype).eps, atol=1e-7)


def test_batch_norm_moves_the_running_statistics():
    x, weight, bias = channels(5, 3, 7, 9)
    ours, theirs = running(weight), running(weight)
    kernels.batch_norm2d(x, *ours, weight, bias, training=True, momentum=0.3)
    F.batch_norm(x, *theirs, weight, bias, training=True, momentum=0.3)
    for got, want in zip(ours, theirs, strict=True):
        check_close(got, want)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_batch_norm_under_autocast_moves_the_running_statistics_themselves(compiled):
    """And no copy of them; those that it could not move are refused."""
    x, weight, bias = floats(3, 2, 5, 4).to(HALF), floats(2), floats(2)
    ours, theirs = running(weight), running(weight)

    def norm(x, mean, var):
        return kernels.batch_norm2d(x, mean, var, weight, bias, training=True)

    torch.compiler.reset()
    with torch.autocast(DEVICE.type, dtype=HALF):
        (torch.compile(norm) if compiled else norm)(x, *ours)
        with pytest.raises(RuntimeError, match="running_mean: expected .* float32"):
            norm(x, ours[0].to(HALF), ours[1])
    F.batch_norm(x.float(), *theirs, weight, bias, training=True)
    for got, want in zip(ours, theirs, strict=True):
        check_close(got, want)


def test_sgd():
    param, gradient = floats(3, 4).requires_grad_(), floats(4, 3).t()
    start, version = param.detach().clone(), param._version
    kernels.sgd(param, gradient, 0.1)
    check_close(param.detach(), start - 0.1 * gradient)
    assert param._version == version + 1
    torch.library.opcheck(torch.ops.kernels.sgd.default, (param.detach(), gradient, 0.1))


@pytest.mark.parametrize("name", ["sgd_momentum", "adamw"])
def test_optimizers_of_lists(name):
    params = [floats(5, 7).requires_grad_(), floats(33), floats(3, 1).squeeze(1)]
    exact = [p.detach().double().requires_grad_() for p in params]
    memory = [[torch.zeros_like(p) for p in params] for _ in range(2)]
    if name == "adamw":
        rule = torch.optim.AdamW(exact, lr=0.01)
    else:
        rule = torch.optim.SGD(exact, lr=0.01, momentum=0.9, weight_decay=0.1)
    for step in (1, 2, 3):
        grads = [floats(7, 5).t(), floats(33), floats(3)]
        for p, gradient in zip(exact, grads, strict=True):
            p.grad = gradient.double()
        rule.step()
        if name == "adamw":
            kernels.adamw(params, grads, *memory, step, lr=0.01)
            args = (params, grads, *memory, 4, 0.01, 0.9, 0.999, 1e-8, 0.01)
        else:
            kernels.sgd_momentum(params, grads, memory[0], 0.01, weight_decay=0.1)
            args = (params, grads, memory[0], 0.01, 0.9, 0.1)
    for got, want in zip(params, exact, strict=True):
        check_close(got.detach(), want.detach())
    changed = [*params, *memory[0], *(memory[1] if name == "adamw" else [])]
    assert all(tensor._version == 3 for tensor in changed)
    assert all(gradient._version == 0 for gradient in grads)
    constants = [[v.detach() for v in a] if isinstance(a, list) else a for a in args]
    torch.library.opcheck(getattr(torch.ops.kernels, name).default, tuple(constants))


def quantized(bits, groups, K, N, dtype):
    """Return weight and scales as quantized_linear takes them, and W in float64."""
    q = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (N, K), device=DEVICE)
    count = -(-K // 128) if groups else 1
    scales = (torch.rand(count, N, device=DEVICE) + 0.5).to(dtype) / 2**bits
    W = q.double() * scales.double().repeat_interleave(128 if groups else K, 0)[:K].t()
    if bits == 8:
        return q.to(torch.int8), scales, W
    return (q[:, ::2] + 8 + 16 * (q[:, 1::2] + 8)).to(torch.uint8), scales, W


def test_conv2d_keeps_the_layout_and_knows_tf32():
    x, weight = floats(2, 3, 5, 6).contiguous(memory_format=torch.channels_last), floats(4, 3, 3, 3)
    x.requires_grad_()
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    out = kernels.conv2d(x, weight, padding=1, tf32=True)
    check_close(out, exact, rtol=5e-3)
    out.sum().backward()
    for tensor in (out, x.grad):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
    torch.library.opcheck(
        torch.ops.kernels.conv2d_forward.default,
        (x, weight, x.new_empty(0), [1, 1], [1, 1], [1, 1], 1, False),
    )
    every_second = torch.stack([x.detach(), x.detach()], -1)[..., 0]
    check_close(kernels.conv2d(every_second, weight, padding=1), exact)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_conv2d_of_halves_has_its_channels_last(dtype):
    """From tensors in another layout, too, which autograd keeps as they were copied."""
    x, weight = floats(2, 16, 5, 6).to(dtype), floats(8, 8, 3, 3).to(dtype)
    how = [2, 1], [1, 1], [1, 1], 2
    exact = F.conv2d(x.double(), weight.double(), None, *how)
    x.requires_grad_(), weight.requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda nothing: None):
        kernels.conv2d(x, weight, None, *how)
    assert len(kept) >= 2
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in kept if t.dim() == 4)
    out = kernels.conv2d(x, weight, None, *how)
    check_close(out, exact)
    dinp, dweight = grad(out, (x, weight), torch.ones_like(out).contiguous())
    for tensor in (out, dinp, dweight):
        assert tensor.dtype == dtype
        assert tensor.is_contiguous(memory_format=torch.channels_last)
    last = [t.detach().contiguous(memory_format=torch.channels_last) for t in (x, weight, out)]
    for op, args in (
        (torch.ops.kernels.conv2d_forward, (last[0], last[1], x.detach().new_empty(0))),
        (torch.ops.kernels.conv2d_backward_input, (last[2], last[1], 5, 6)),
        (torch.ops.kernels.conv2d_backward_weight, (last[2], last[0], 3, 3)),
    ):
        torch.library.opcheck(op.default, (*args, *how, False))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("groups", [False, True])
def test_quantized_linear(bits, groups):
    dtype = torch.float16
    weight, scales, W = quantized(bits, groups, 160, 33, dtype)
    x = floats(2, 3, 160).to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    out, want = kernels.quantized_linear(x, weight, scales), exact @ W.t()
    dout = floats(2, 3, 33).to(dtype)
    out.backward(dout)
    want.backward(dout.double())
    check_close(out.detach(), want.detach(), rtol=2e-3, atol=2e-3)
    check_close(x.grad, exact.grad, rtol=2e-3, atol=1e-2)
    op = torch.ops.kernels.quantized_linear.default
    torch.library.opcheck(op, (x.detach()[0].clone().requires_grad_(), weight, scales))
    torch.compiler.reset()
    compiled = torch.compile(kernels.quantized_linear, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, weight, scales), out)


def test_a_compiled_step_trains_as_an_eager_one():
    """Forward, backward and update of a network of these operators, in one graph."""
    images, labels = floats(6, 2, 8, 8), torch.randint(4, (6,), device=DEVICE)
    shapes = (3, 2, 3, 3), (3,), (3,), (4, 48), (4,)
    start = [floats(*shape) / 4 for shape in shapes]

    def step(params, mean, var):
        kernel, scale, shift, weight, bias = params
        out = kernels.conv2d(images, kernel, padding=1)
        out = kernels.batch_norm2d(out, mean, var, scale, shift, training=True)
        out = kernels.max_pool2d(kernels.relu(out), 2)
        return kernels.cross_entropy(kernels.linear(out.flatten(1), weight, bias), labels)

    def train(step):
        params, (mean, var) = leaves(start), running(start[1])
        losses = []
        for _ in range(3):
            losses.append(step(params, mean, var))
            for param, gradient in zip(params, grad(losses[-1], params), strict=True):
                kernels.sgd(param, gradient, 0.1)
        return [*losses, *params, mean, var]

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for got, want in zip(train(compiled), train(step), strict=True):
        check_close(got.detach(), want.detach())


LAZY = """
import sys
from pathlib import Path
from helpers.compiler import tools
from kernels import square
cache = type(tools.BUILDS)(Path(sys.argv[1]))
tools.BUILDS = cache
import torch
from helpers.device import DEVICE
for line in "imported", "called", "called again":
    print(line, len(list(cache.folder.glob("cuda_*"))))
    square(torch.ones(3, device=DEVICE))
"""


def test_a_file_is_built_when_it_is_first_called(tmp_path):
    """In a cache that has what every string needs, and no kernels."""
    kernels.square(floats(3))  # which builds what every string needs
    for path in tools.BUILDS.folder.iterdir():
        if not path.name.startswith(("cuda_", "building")):
            (tmp_path / path.name).symlink_to(path)
    said = []
    for _ in range(2):
        command = [sys.executable, "-c", LAZY, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said.append((done.stdout.splitlines(), done.stderr))
    assert said[0][0] == ["imported 0", "called 1", "called again 1"]
    assert len(re.findall(r"^Building kernels/square\.cu … \d+ s$", said[0][1], re.MULTILINE)) == 1
    assert said[1][1] == ""


def test_example_in_the_readme():
    section = (ROOT / "README.md").read_text().split("## Use the kernels as operators")[1]
    section = section.split("\n## ")[0]
    assert all(re.search(rf"\b{name}\b", section) for name in kernels.__all__)
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    begin, end = example.split("loss.backward()")
    names = {}
    exec(begin.replace('device="cuda"', f'device="{DEVICE}"'), names)
    first, second = [weight.detach().double() for weight in names["weights"]]
    first.requires_grad_()
    loss = F.cross_entropy(
        F.linear(F.linear(names["x"].double(), first).relu(), second), names["target"]
    )
    exec("loss.backward()" + end, names)
    check_close(names["loss"].detach(), loss.detach())
    check_close(names["weights"][0].detach(), (first - 0.1 * grad(loss, first)[0]).detach())
