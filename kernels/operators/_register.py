"""How a function of a kernel file becomes an operator of PyTorch, torch.ops.kernels.<name>.

    softmax(x) ─▶ torch.ops.kernels.softmax_forward ─┬─ autocast: converts the inputs
                                                     ├─ autograd: keeps what the gradient needs
                                                     ├─ fake: shapes alone, for torch.compile
                                                     └─ CPU, CUDA: softmax.cu, built when called

`operator` defines one, `gradient_by` or `gradient_of` and `cast_inputs` add to it. Each step but
`fake` is C++, of _register.cpp: a call enters Python for a gradient of `gradient_of` only. What
stands here until an operator is first called builds that C++, and puts it in its own place.
"""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from helpers.compiler import compile_cuda, compile_extension
from helpers.compiler.build import every_call_checked
from helpers.compiler.extension import operator_name

_FOLDER = Path(__file__).parents[1]  # of the kernel files
_LIBRARY = torch.library.Library("kernels", "DEF")
_DEVICES = ("CPU", "CUDA")  # without a GPU, kernels take CPU tensors
IN_CPP = "C++"  # for `operator` and `gradient_by`: a function of one of the headers beside this


@functools.cache
def built(file: str):
    """Return the functions of kernels/<file>.cu: built once on a machine, then from the cache."""
    with every_call_checked(False):  # an exercise checks what a learner writes, not these
        return compile_cuda(_FOLDER / f"{file}.cu", announce=f"Building kernels/{file}.cu")


def operator(
    schema: str, run: Callable | str, fake: Callable, channels_last: bool = False, halves: str = ""
) -> torch._ops.OpOverload:
    """Define an operator and return it.

    `schema`: PyTorch's, as in "relu_forward(Tensor inp) -> Tensor". `run` names what computes it: a
    kernel file with a function of the operator's name, or "file.function". It is called with the
    first of the operator's arguments, as many as it takes; tensors are contiguous, or with
    `channels_last` in that layout if they come so, but for those that the schema says are written.
    `halves` names likewise what half types have instead, with channels last always.
    In its place IN_CPP stands for C++ of ours, and a Python function for itself. `fake` returns
    tensors as `run` would, with nothing in them.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    for device in _DEVICES:
        if run is IN_CPP:
            _when_called(name, device, "run_in_cpp", device)
        elif isinstance(run, str):
            file, _, function = run.partition(".")
            how = file, function or name, channels_last, *halves.partition(".")[::2]
            _when_called(name, device, "run", device, *how)
        else:
            _LIBRARY.impl(name, run, device)
    op = getattr(torch.ops.kernels, name).default
    torch.library.register_fake(op, fake, lib=_LIBRARY)
    return op


def gradient_of(op: torch._ops.OpOverload, keeps: str = "", constants: str = ""):
    """Register the decorated function as the gradient of an operator.

    `keeps` names what it needs: tensors first, then numbers and shapes ("inp.shape"), each an
    argument of the schema or a result; a result without a name is `out`. `constants` names results
    through which no gradient flows. The function takes ctx, the gradient of each other result and
    what is kept; it returns a gradient, or None, for each argument, of which
    `ctx.needs_input_grad` says whether anybody asks for its gradient.
    """

    def register(gradient):
        _differentiate("differentiate", op, gradient, keeps, constants)
        return gradient

    return register


def gradient_by(
    op: torch._ops.OpOverload,
    by: torch._ops.OpOverload | str,
    keeps: str = "",
    constants: str = "",
) -> None:
    """Register an operator as the gradient of another one: no Python is entered then.

    `keeps` and `constants` as in `gradient_of`, but no shapes. `by` takes the gradient of each
    other result and what is kept; what it returns are the gradients of the first arguments. The
    others have none. In the place of `by` IN_CPP stands for C++ of ours.
    """
    if by is IN_CPP:
        _differentiate("differentiate_in_cpp", op, IN_CPP, keeps, constants)
    else:
        _differentiate("differentiate_by", op, by._schema.name, keeps, constants)


def _differentiate(how, op, gradient, keeps, constants):
    schema = op._schema
    names = [argument.name for argument in schema.arguments]
    names += [result.name or "out" for result in schema.returns]
    values = (*schema.arguments, *schema.returns)
    is_tensor = [str(value.type) in ("Tensor", "Optional[Tensor]") for value in values]
    flows = [result.name not in constants.split() for result in schema.returns]
    kept = [(names.index(word.split(".")[0]), word.endswith(".shape")) for word in keeps.split()]
    tensors = [place for place, shape in kept if is_tensor[place] and not shape]
    name, others = schema.name.partition("::")[2], kept[len(tensors) :]
    _when_called(name, "Autograd", how, gradient, tensors, others, flows)


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
        name = op._schema.name.partition("::")[2]
        _when_called(name, f"Autocast{device}", "cast", device, dtype)


_lock = threading.RLock()
_missing: dict[str, list[tuple]] = {}  # operator → what of _register.cpp it gets when first called


def _when_called(name, key, *how):
    """Let _register.cpp's function how[0] register the operator for a key of the dispatcher."""
    _LIBRARY.impl(name, functools.partial(_first_call, name), key)
    _missing.setdefault(name, []).append(how)


def _first_call(name, *args):
    with _lock:  # other threads wait here while the C++ is built
        cpp = _register()
        for how, *what in _missing.pop(name, ()):
            getattr(cpp, how)(name, *what)
    return getattr(torch.ops.kernels, name).default(*args)


@functools.cache
def _register() -> ModuleType:
    here = Path(__file__).parent
    parts = sorted(here.glob("_*.h"))
    module = compile_extension(here / "_register.cpp", *parts)
    module.find_functions_by(_find)
    return module


def _find(file: str, name: str, calls: Callable[[], int]) -> str:
    """Build a file, return the operator that a function of it is; `calls` counts its calls."""
    return operator_name(getattr(built(file), name), calls)
