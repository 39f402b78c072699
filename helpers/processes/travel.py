"""Functions and values on their way from a notebook to other processes, and results back.

pickle sends a function by name, which another process cannot look up in a notebook; cloudpickle
sends it whole: its code, and of its globals what it uses. Modules, and what they define, go by
name. Here it learns what PyTorch's tensors and this course's messages need besides.
"""

import dis
import functools
import importlib
import io
import linecache
import marshal
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import torch

_sent = weakref.WeakSet()  # classes of this process


class PackError(TypeError):
    """Something cannot travel; the sentence says what."""


def pack(worker: Callable, args: tuple) -> bytes:
    """Return a function and its arguments as bytes; PackError says what cannot travel."""
    if not callable(worker):
        raise PackError(f"expected a function, got {worker!r}")
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump((worker, args))
    except Exception as error:
        raise PackError(_complaint(worker, args, error)) from None
    _sent.update(pickler.classes)
    sources = {name: linecache.getlines(name) for name in sorted(pickler.files)}
    return pickle.dumps((sources, file.getvalue()))


def pack_result(result: Any) -> bytes:
    """Return a result as bytes, its tensors by way of the CPU."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(result)
    except Exception as error:
        raise PackError(f"returned what cannot travel: {error}") from None
    return file.getvalue()


def unpack(message: bytes, files: set[str]) -> tuple[Callable, tuple]:
    """Return a function and its arguments; `files` gets the names of the files they come from."""
    sources, content = pickle.loads(message)
    files.update(sources)
    for name, lines in sources.items():  # for tracebacks and inspect.getsource
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return pickle.loads(content)


def files_of(message: bytes) -> set[str]:
    """Return the names of the files that a packed function comes from."""
    return set(pickle.loads(message)[0])


def _complaint(worker: Callable, args: tuple, error: Exception) -> str:
    """Say which argument, or which variable that a function uses, cannot travel, and why."""
    used = {f"its argument {i}": value for i, value in enumerate(args)}
    if isinstance(worker, types.FunctionType):
        code, here = worker.__code__, worker.__globals__
        used |= zip(code.co_freevars, worker.__closure__ or (), strict=True)
        used |= {name: here[name] for name in _global_names(code) if name in here}
    name = getattr(worker, "__name__", repr(worker))
    for variable, value in used.items():
        try:
            _Pickler(io.BytesIO()).dump(value)
        except Exception as why:
            return f"{name} uses {variable}, which cannot travel to another process: {why}"
    return f"{name} cannot travel to another process: {error}"


def _global_names(code: types.CodeType) -> set[str]:
    """Return the globals that code uses, and the functions defined in it."""
    steps = dis.get_instructions(code)
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    return names.union(*map(_global_names, inner))


class _Pickler(cloudpickle.Pickler):
    """Pickles code with its place, tensors by way of the CPU, no files, classes once."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.files: set[str] = set()  # from which code comes
        self.classes: list[type] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.CodeType):  # cloudpickle forgets its file
            self.files.add(value.co_filename)
            return marshal.loads, (marshal.dumps(value),)
        if isinstance(value, types.ModuleType):  # cloudpickle knows none of PyTorch's own kinds
            return importlib.import_module, (value.__name__,)
        if isinstance(value, torch.Tensor) and _has_to_be_copied(value):
            return _cpu_copy(value).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if isinstance(value, torch.device) and value.type == "cuda":
            return _device, (value.index,)
        if isinstance(value, io.IOBase):  # cloudpickle sends what is in it
            raise TypeError(f"cannot pickle {type(value).__name__!r} object")
        reduced = super().reducer_override(value)
        if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            self.classes.append(value)
            *reduced, fill = reduced
            return *reduced, functools.partial(_fill_class, fill)
        return reduced


def _has_to_be_copied(tensor: torch.Tensor) -> bool:
    if tensor.device.type == "cuda":
        return True
    is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()


def _cpu_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's own elements on the CPU."""
    copy = tensor.detach().cpu()
    if copy.untyped_storage().nbytes() > copy.numel() * copy.element_size():
        copy = copy.clone()  # a view of something larger, which stays
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copy, tensor.requires_grad)
    return copy.requires_grad_(tensor.requires_grad)


# What follows runs where things arrive.


def _fill_class(fill: Callable, cls: type, state: Any) -> None:
    """Fill a class with its methods, unless it has come home: it stays as the notebook has it."""
    if cls not in _sent:
        fill(cls, state)


def _device(index: int | None) -> torch.device:
    """Return a GPU where this process has one, or else the CPU."""
    return torch.device("cuda", index) if torch.cuda.is_available() else torch.device("cpu")
