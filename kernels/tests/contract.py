"""What every kernel file promises of every host function, and how a test file describes one.

A test file has a table `CASES`, one Case for each host function; test_contract.py holds them to:
right against float64 at every size, empty ones included, on fresh numbers; inputs untouched but for
those it writes; the same result twice; no out-of-range access, race or unwritten output; and a
sentence that names the argument, what was expected and what came for another device, another
dtype, strides, and sizes that do not fit. ways.py has more of each: types, layouts, places in
memory, numbers of other kinds, sizes where loops turn twice.

Right is each element, within the case's tolerance, and each result as a whole: see `roundings`.
"""

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from helpers.checks import check_close, poisoned
from helpers.device import DEVICE

Arguments = dict[str, Any]  # by name, in the order of the function's parameters


def floats(*shape: int) -> torch.Tensor:
    """Return normal random float32 numbers."""
    return torch.randn(shape, device=DEVICE)


def complexes(*shape: int) -> torch.Tensor:
    """Return normal random complex64 numbers."""
    return torch.randn(shape, dtype=torch.complex64, device=DEVICE)


def untouched(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros on the CPU that take memory only where they are read or written."""
    size = torch.Size(shape).numel() * dtype.itemsize
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


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


def check_right(
    function: Callable,
    case: Case,
    size: tuple,
    arguments: Arguments,
    tolerance: dict | None = None,
    unit: float | None = None,
    slope: bool = True,
) -> dict[float, float]:
    """Call the function, compare its results and what it writes with the reference.

    tolerance: check_close's arguments in place of the case's; unit, slope: see `roundings`, where
    the arguments do not say it. Returns what `roundings` does.
    """
    exact, before = in_float64(arguments), {n: clone(value) for n, value in arguments.items()}
    with poisoned():
        result = as_tuple(function(*case.values(arguments)))
    expected = as_tuple(case.ref(*exact.values()))
    assert len(result) == len(expected)
    tolerance = case.tolerance(*size) if tolerance is None else tolerance
    first = next(iter(tensors(arguments).values()))
    for got, wanted in zip(result, expected, strict=True):
        assert got.device == first.device
        if is_float(got):
            check_close(got, wanted, **tolerance)
        else:
            check_close(got.long(), wanted)
    for name, value in tensors(arguments).items():
        if name in case.scratch:
            continue
        if name in case.writes:
            check_close(value, exact[name], **tolerance)
        else:
            assert equal_bits(value, before[name]), f"{name} was changed"
    got = [in_double(value) for value in result if is_float(value)]
    if not got and not case.writes:
        return {}  # integers, which are right
    unit = unit or unit_of(arguments)
    got += [in_double(arguments[n]) - in_double(before[n]) for n in written(case, before)]
    last = [value.dtype for value in result if is_float(value)]
    last += [before[n].dtype for n in written(case, before)]
    want = changes(case, before, exact, expected)
    # where halves decide which pixel is the largest, the gradients of some go elsewhere
    slope = slope and arguments.get("exact") is not False
    return roundings(case, before, got, last, want, unit, slope)


# ------------------------------------------------------------------ a result as a whole

STEEP = 1e-3  # that a result may be too large or too small by as a whole
FEW = 100  # numbers, which one random change of the inputs may by chance not move


def roundings(
    case: Case,
    before: Arguments,
    got: Sequence[torch.Tensor],
    last: Sequence[torch.dtype],
    want: Sequence[torch.Tensor],
    unit: float,
    slope: bool,
) -> dict[float, float]:
    """Return by how many roundings a result, or what was written, is off as a whole.

    The most among those of one type, by the unit of its last rounding: see `unit_of_type`.

    The error's norm, in units of the norm that one rounding has: of the result itself, to the type
    in `last`, whose smallest numbers stand as far apart as larger ones, and of all inputs at once,
    each by up to `unit` of its size, which is what a sum that cancels loses. Of an argument that is
    written in place the change is judged, by its last bit, too. So a result that is off everywhere
    by little, or at one place by much, shows where each element's tolerance has to be wide. With
    `slope`, raises AssertionError where a result is 1 + STEEP times too large or too small.
    """
    moves = [torch.zeros((), dtype=torch.float64)] * len(got)
    times = 8 if max(map(torch.numel, want)) < FEW else 1
    for i in range(times):
        inputs = {n: _moved(v, unit, i) for n, v in before.items()}
        if all(torch.equal(inputs[n], in_double(v)) for n, v in before.items() if is_float(v)):
            break
        exact = {n: clone(value) for n, value in inputs.items()}
        other = changes(case, inputs, exact, as_tuple(case.ref(*exact.values())))
        pairs = zip(moves, other, want, strict=True)
        moves = [m.to(a.device) + (a - b).abs().square().sum() / times for m, a, b in pairs]
    kept = [torch.zeros(())] * (len(got) - len(written(case, before)))
    kept += [in_double(before[name]) for name in written(case, before)]
    largest = max((in_double(v).norm() for v in before.values() if is_float(v)), default=0)
    most: dict[float, float] = {}
    for value, dtype, wanted, move, stays in zip(got, last, want, moves, kept, strict=True):
        error = (value - wanted).norm()
        if not error or wanted.norm() < 1e-14 * largest:  # float64's own errors: zero
            continue
        size, limits = unit_of_type(dtype), torch.finfo(dtype)
        smallest = limits.smallest_normal * limits.eps / 2 * value.numel() ** 0.5
        one = size * (wanted.norm() + stays.to(value.device).norm()) + smallest + move.sqrt()
        assert error.isfinite() and one.isfinite()
        most[size] = max(most.get(size, 0.0), (error / one).item())
        if slope:
            rounded = 2**-24 * largest  # what float32 may lose where large numbers cancel
            check_slope(value, wanted, 4 * ((one + rounded) / wanted.norm()).item())
    return most


def check_slope(got: torch.Tensor, want: torch.Tensor, noise: float) -> None:
    """Check that `got` is 1.000 times `want`, as far as errors of `noise` let one see it.

    Numbers with the same digits are rounded alike: their errors add up, those of others by chance.
    """
    got, want = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (got, want))
    squares = want.square()
    total = squares.sum()
    slope = ((got * want).sum() / total).item()
    if abs(slope - 1) <= STEEP:
        return
    digits, same = want.float().frexp().mantissa.abs().flatten().unique(return_inverse=True)
    squares_of = torch.zeros_like(digits, dtype=squares.dtype)
    squares_of.index_add_(0, same, squares.flatten())
    allowed = noise * (squares_of.norm() / total).item()
    assert abs(slope - 1) <= allowed, f"{slope:.6f} times too large, allowed {allowed:.2g}"


def changes(case: Case, before: Arguments, after: Arguments, result: tuple) -> list[torch.Tensor]:
    """Return the floats of a result in float64, and by how much the arguments were changed."""
    found = [in_double(value) for value in result if is_float(value)]
    return found + [in_double(after[n]) - in_double(before[n]) for n in written(case, before)]


def written(case: Case, arguments: Arguments) -> list[str]:
    return [n for n in case.writes if is_float(arguments.get(n)) and n not in case.scratch]


def _moved(value: Any, unit: float, turn: int) -> Any:
    """Return a float tensor in float64, each number off by up to `unit`; equal ones stay equal."""
    if not is_float(value):
        return clone(value)
    parts = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    parts = parts.double()
    parts = parts * (1 + unit * ((parts * (1e5 + turn)).sin() * 43758.5453).frac())
    return torch.view_as_complex(parts) if value.is_complex() else parts


def unit_of_type(dtype: torch.dtype) -> float:
    """Return the most that a rounding to the type changes a number by, as a part of it."""
    return torch.finfo(dtype).eps / 2 if dtype.itemsize < 4 else 2**-24


def unit_of(arguments: Arguments) -> float:
    """Return the largest part of a number that inputs are rounded by."""
    tf32 = arguments.get("tf32") or arguments.get("allow_tf32")
    return 2**-11 if tf32 or arguments.get("exact") is False else 2**-24


def in_float64(arguments: Arguments) -> Arguments:
    return {n: in_double(v) if is_float(v) else clone(v) for n, v in arguments.items()}


def is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def in_double(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def clone(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors are the same, NaN included."""
    a, b = (x.contiguous().view(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def kernels_of(profiled: torch.profiler.profile) -> str:
    """Return the names of the GPU's kernels in a profile, in a row.

    Where a sanitizer keeps the profiler away from the GPU there are none, and the test ends here.
    """
    names = [e.key for e in profiled.key_averages() if e.device_type == DeviceType.CUDA]
    if not names:
        pytest.skip("the profiler sees no kernel, as under compute-sanitizer: results alone tested")
    return " ".join(names)


def as_tuple(result: Any) -> tuple:
    if result is None:
        return ()
    return result if isinstance(result, tuple) else (result,)
