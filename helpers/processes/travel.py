"""Functions and values on their way from a notebook to other processes, and results back.

pickle sends a function by name, which another process cannot look up in a notebook. Here those of
a notebook, a script or a test travel whole: their code, and of their globals what they use.
"""

import builtins
import dataclasses
import dis
import importlib
import io
import linecache
import marshal
import pickle
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from helpers.base.machine import ROOT

# of a class's __dict__, what the new class gets by itself
OWN = {"__dict__", "__weakref__", "__doc__", "_backward_cls"}


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
    _namespaces.clear()
    return pickle.loads(content)


def files_of(message: bytes) -> set[str]:
    """Return the names of the files that a packed function comes from."""
    return set(pickle.loads(message)[0])


def _complaint(worker: Callable, args: tuple, error: Exception) -> str:
    """Say which argument, or which variable that a function uses, cannot travel, and why."""
    used = {f"its argument {i}": value for i, value in enumerate(args)}
    if isinstance(worker, types.FunctionType):
        cells = zip(worker.__code__.co_freevars, worker.__closure__ or (), strict=True)
        used |= {name: _content(cell) for name, cell in cells}
        here = worker.__globals__
        used |= {name: here[name] for name in _global_names(worker.__code__) if name in here}
    for name, value in used.items():
        try:
            _Pickler(io.BytesIO()).dump(value)
        except Exception as why:
            return f"{_name(worker)} uses {name}, which cannot travel to another process: {why}"
    return f"{_name(worker)} cannot travel to another process: {error}"


class _Pickler(pickle.Pickler):
    """Pickles what pickle cannot: a notebook's functions and classes, cells, modules."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=5)
        self.files: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType) and self._is_learners(value):
            return self._function(value)
        if isinstance(value, type) and self._is_learners(value):
            return self._class(value)
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, types.CellType):
            return _make_cell, (), _content(value), None, None, _fill_cell
        if isinstance(value, types.MappingProxyType):
            return _read_only, (dict(value),)
        if isinstance(value, staticmethod | classmethod):
            return type(value), (value.__func__,)
        if isinstance(value, property):
            return property, (value.fget, value.fset, value.fdel, value.__doc__)
        if isinstance(value, torch.Tensor) and _has_to_be_copied(value):
            return _as_it_is, (_cpu_copy(value),)
        if isinstance(value, torch.device) and value.type == "cuda":
            return _device, (value.index,)
        if type(value) is type(dataclasses._FIELD):  # told apart by identity
            return getattr, (dataclasses, value.name)
        return NotImplemented

    def _is_learners(self, value: Callable) -> bool:
        """Whether a function or class is a notebook's, script's or test's, not an installed one."""
        module = sys.modules.get(value.__module__ or "")
        file = getattr(module, "__file__", None)
        if module is None or value.__module__ == "__main__":
            return value.__module__ != "builtins"
        return file is not None and not _is_installed(Path(file))

    def _function(self, function: types.FunctionType) -> tuple:
        code = function.__code__
        self.files.add(code.co_filename)
        used = function.__globals__
        state = {
            "globals": {name: used[name] for name in _global_names(code) if name in used},
            "defaults": function.__defaults__,
            "keyword_defaults": function.__kwdefaults__,
            "attributes": function.__dict__,
            "qualname": function.__qualname__,
        }
        namespace = (id(used), function.__module__)
        args = (marshal.dumps(code), namespace, function.__name__, function.__closure__)
        return _make_function, args, state, None, None, _fill_function

    def _class(self, cls: type) -> tuple:
        state = {name: value for name, value in cls.__dict__.items() if name not in OWN}
        for slot in state.get("__slots__", ()):
            state.pop(slot, None)
        slots = {"__slots__": state.pop("__slots__")} if "__slots__" in state else {}
        args = (type(cls), cls.__name__, cls.__bases__, slots)
        return _make_class, args, state, None, None, _fill_class


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


def _is_installed(file: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(file.parts):
        return True
    file = file.resolve()  # a notebook finds helpers/ by way of notebooks/..
    if file.is_relative_to(Path(sysconfig.get_path("stdlib")).resolve()):
        return True
    ours = any(file.is_relative_to(ROOT / folder) for folder in ("helpers", "kernels"))
    return ours and "tests" not in file.parts


def _content(cell: types.CellType) -> tuple:
    """Return a cell's value in a tuple; () if it has none yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _global_names(code: types.CodeType) -> set[str]:
    """Return the globals that code uses, and the functions and classes defined in it."""
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "DELETE_GLOBAL")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _name(worker: Callable) -> str:
    return getattr(worker, "__name__", repr(worker))


# What follows runs where things arrive.

_namespaces: dict[tuple, dict] = {}  # globals of this call's functions; shared as they were


def _make_function(
    code: bytes, namespace: tuple, name: str, closure: tuple | None
) -> types.FunctionType:
    shared = _namespaces.setdefault(namespace, {"__name__": namespace[1], "__builtins__": builtins})
    return types.FunctionType(marshal.loads(code), shared, name, None, closure)


def _fill_function(function: types.FunctionType, state: dict) -> None:
    function.__globals__.update(state["globals"])
    function.__defaults__ = state["defaults"]
    function.__kwdefaults__ = state["keyword_defaults"]
    function.__dict__.update(state["attributes"])
    function.__qualname__ = state["qualname"]


def _make_class(meta: type, name: str, bases: tuple, slots: dict) -> type:
    return types.new_class(name, bases, {"metaclass": meta}, lambda body: body.update(slots))


def _fill_class(cls: type, state: dict) -> None:
    for name, value in state.items():
        setattr(cls, name, value)


def _make_cell() -> types.CellType:
    return types.CellType()


def _fill_cell(cell: types.CellType, content: tuple) -> None:
    if content:
        cell.cell_contents = content[0]


def _device(index: int | None) -> torch.device:
    """Return a GPU where this process has one, or else the CPU."""
    return torch.device("cuda", index) if torch.cuda.is_available() else torch.device("cpu")


def _read_only(items: dict) -> types.MappingProxyType:
    return types.MappingProxyType(items)


def _as_it_is(value: Any) -> Any:
    return value
