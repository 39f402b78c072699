"""How a function of a kernel file becomes an operator of PyTorch, torch.ops.kernels.<name>.

    softmax(x) ─▶ torch.ops.kernels.softmax_forward ─┬─ autocast: converts the inputs
                                                     ├─ autograd: keeps what the gradient needs
                                                     ├─ fake: shapes alone, for torch.compile
                                                     └─ CPU, CUDA: softmax.cu, built when called

`operator` defines one, `gradient_of` and `cast_inputs` add to it. They use torch.library below its
decorator `custom_op`, whose autocast knows one type only; a call without a gradient also takes a
tenth less than with the decorator, one with a gradient as long.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from helpers.compiler import compile_cuda

_FOLDER = Path(__file__).parents[1]  # of the kernel files
_LIBRARY = torch.library.Library("kernels", "DEF")
_DEVICES = ("CPU", "CUDA")  # without a GPU, kernels take CPU tensors


@functools.cache
def built(file: str):
    """Return the functions of kernels/<file>.cu: built once on a machine, then from the cache."""
    return compile_cuda(_FOLDER / f"{file}.cu", announce=f"Building kernels/{file}.cu")


def contiguous(value):
    """Return a tensor whose elements lie in order; anything else as it is."""
    return value.contiguous() if isinstance(value, Tensor) else value


def operator(schema: str, run: Callable | str, fake: Callable) -> torch._ops.OpOverload:
    """Define an operator and return it.

    `schema`: PyTorch's, as in "relu_forward(Tensor inp) -> Tensor". `run` computes it; the name of
    a kernel file stands for its function of the operator's name, called with contiguous tensors.
    `fake` returns tensors as `run` would, with nothing in them.
    """
    name = schema.partition("(")[0]
    if isinstance(run, str):
        run = functools.partial(_call, run, name)
    _LIBRARY.define(schema)
    for device in _DEVICES:
        _LIBRARY.impl(name, functools.partial(_run, name, run), device)
    op = getattr(torch.ops.kernels, name).default
    torch.library.register_fake(op, fake, lib=_LIBRARY)
    return op


def _run(name, run, *args):
    if forward_ad._current_level >= 0:  # PyTorch would take the derivative for 0, silently
        raise NotImplementedError(f"{name} has no forward-mode derivative, only a backward")
    return run(*args)


def _call(file, name, *args):
    return getattr(built(file), name)(*map(contiguous, args))


def gradient_of(op: torch._ops.OpOverload, keeps: str = "", constants: str = ""):
    """Register the decorated function as the gradient of an operator.

    `keeps` names what it needs: tensors first, then numbers and shapes ("inp.shape"), each an
    argument of the schema or a result; a result without a name is `out`. `constants` names results
    through which no gradient flows. The function takes ctx, the gradient of each other result and
    what is kept; it returns a gradient, or None, for each argument.
    """
    schema = op._schema
    names = [argument.name for argument in schema.arguments]
    names += [result.name or "out" for result in schema.returns]
    values = (*schema.arguments, *schema.returns)
    is_tensor = [str(value.type) in ("Tensor", "Optional[Tensor]") for value in values]
    flows = [result.name not in constants.split() for result in schema.returns]
    kept = [(names.index(word.split(".")[0]), word.endswith(".shape")) for word in keeps.split()]
    tensors = [place for place, shape in kept if is_tensor[place] and not shape]
    others = kept[len(tensors) :]

    def setup_context(ctx, inputs, output):
        values = (*inputs, output) if len(flows) == 1 else (*inputs, *output)
        ctx.save_for_backward(*[values[place] for place in tensors])
        ctx.others = [values[i].shape if shape else values[i] for i, shape in others]
        if not all(flows):
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*[values[names.index(n)] for n in constants.split()])

    def register(gradient):
        def backward(ctx, *grads):
            grads = [grad for grad, flowing in zip(grads, flows, strict=True) if flowing]
            if len(grads) == 1 and grads[0] is None:  # nothing flows back
                return (None,) * len(schema.arguments)
            return gradient(ctx, *grads, *ctx.saved_tensors, *ctx.others)

        torch.library.register_autograd(op, backward, setup_context=setup_context, lib=_LIBRARY)
        return gradient

    return register


def second_derivative(forward: Callable, grads: tuple, dout: Tensor, *inputs: Tensor) -> tuple:
    """Return the gradients of `dout` and `inputs` by PyTorch's operations.

    `forward(*inputs)` computes in PyTorch what the kernel does; `grads` are those of the gradients
    that its backward returns for `inputs`.
    """

    def backward(dout, *inputs):
        return torch.func.vjp(forward, *inputs)[1](dout)

    return torch.func.vjp(backward, dout, *inputs)[1](grads)


def cast_inputs(op: torch._ops.OpOverload, dtype: torch.dtype | None = None) -> None:
    """Under torch.autocast, convert float tensors for `op`: to the region's type, or `dtype`."""
    for device in _DEVICES:
        cast = functools.partial(_cast, op, dtype, device.lower())
        _LIBRARY.impl(op, cast, f"Autocast{device}")


def _cast(op, dtype, device, *args):
    dtype = dtype or torch.get_autocast_dtype(device)
    args = [value.to(dtype) if _is_cast(value) else value for value in args]
    with torch.autocast(device, enabled=False):
        return op(*args)


def _is_cast(value):  # float64 stays, as with PyTorch's own operators
    is_float = isinstance(value, Tensor) and value.is_floating_point()
    return is_float and value.dtype != torch.float64
