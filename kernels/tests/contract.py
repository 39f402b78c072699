"""What every kernel file promises of every host function, and how a test file describes one.

A test file has a table `CASES`, one Case for each host function; test_contract.py holds them to:
right against float64 at every size, empty ones included, on fresh numbers; inputs untouched but for
those it writes; the same result twice; no out-of-range access, race or unwritten output; and a
sentence that names the argument, what was expected and what came for another device, another
dtype, strides, and sizes that do not fit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.checks import check_close, poisoned
from helpers.device import DEVICE

Arguments = dict[str, Any]  # by name, in the order of the function's parameters


def floats(*shape: int) -> torch.Tensor:
    """Return normal random float32 numbers."""
    return torch.randn(shape, device=DEVICE)


def complexes(*shape: int) -> torch.Tensor:
    """Return normal random complex64 numbers."""
    return torch.randn(shape, dtype=torch.complex64, device=DEVICE)


def pixels(*shape: int) -> torch.Tensor:
    """Return random bytes."""
    return torch.randint(256, shape, dtype=torch.uint8, device=DEVICE)


@dataclass(frozen=True)
class Case:
    """One host function: its arguments, what is right, and what it has to refuse."""

    function: str
    arguments: Callable[..., Arguments]  # a size → arguments by name
    ref: Callable[..., Any]  # the arguments in double precision → the result
    sizes: Sequence[tuple]  # the first: small, no dimension 1, so that every fault can be planted
    # name of an argument → what to put in its place, (arguments) → a wrong one
    ragged: Sequence[tuple[str, Callable[[Arguments], Any]]] = ()
    tolerance: Callable[..., dict] = lambda *size: {}  # a size → arguments of check_close
    writes: Sequence[str] = field(default=())  # arguments that it changes in place
    dtypes: Sequence[torch.dtype] = ()  # that it takes as well, if one argument alone has it
    transposed: Sequence[str] = ()  # matrices that it takes with contiguous columns, too
    listed: Sequence[str] = ()  # arguments that it takes in lists: called with lists of one
    scratch: Sequence[str] = ()  # arguments that it writes what it likes into
    vectors: bool = False  # it refuses memory that is aligned to elements only
    machine: bool = False  # its arguments hold addresses, or a workspace as the machine needs it

    def values(self, arguments: Arguments) -> list[Any]:
        """Return the arguments as the function takes them: `x[0]`, `x[1]` … as one list."""
        values: dict[str, Any] = {}
        for name, value in arguments.items():
            if name.endswith("]"):
                values.setdefault(name.partition("[")[0], []).append(value)
            else:
                values[name] = [value] if name in self.listed else value
        return list(values.values())


def wrong(name: str, make: Callable[..., Any], *sizes: Any) -> list[tuple[str, Callable]]:
    """Return entries of `ragged`: in the place of `name`, what `make` makes of each size."""
    sizes = [size if isinstance(size, tuple) else (size,) for size in sizes]
    return [(name, lambda of, size=size: make(*size)) for size in sizes]


def tensors(arguments: Arguments) -> Mapping[str, torch.Tensor]:
    return {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}


def check_right(function: Callable, case: Case, size: tuple, arguments: Arguments) -> None:
    """Call the function and compare its results and what it writes with the reference."""
    exact = {
        name: in_double(value) if is_float(value) else clone(value)
        for name, value in arguments.items()
    }
    before = {name: clone(value) for name, value in arguments.items()}
    with poisoned():
        result = as_tuple(function(*case.values(arguments)))
    expected = as_tuple(case.ref(*exact.values()))
    assert len(result) == len(expected)
    for name, value in tensors(arguments).items():
        if name in case.scratch:
            continue
        if name in case.writes:
            check_close(value, exact[name], **case.tolerance(*size))
        else:
            assert equal_bits(value, before[name]), f"{name} was changed"
    first = next(iter(tensors(arguments).values()))
    for got, wanted in zip(result, expected, strict=True):
        assert got.device == first.device
        check_close(got if is_float(got) else got.long(), wanted, **case.tolerance(*size))


def is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def in_double(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def clone(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors are the same, NaN included."""
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))


def as_tuple(result: Any) -> tuple:
    if result is None:
        return ()
    return result if isinstance(result, tuple) else (result,)
