"""Every way through the kernel files is right: types, layouts, places, numbers, second turns."""

from collections.abc import Callable

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.device import BACKEND
from kernels.tests.contract import Arguments, as_tuple, check_right, equal_bits, tensors
from kernels.tests.ways import (
    BEGIN,
    CASES,
    MORE,
    OFF_BY_KIND,
    OFF_BY_KINDS,
    ROOT,
    WAYS,
    Way,
    allowed,
    of_kind,
    places,
    shifted,
    ways_of_kinds,
)

every_function = pytest.mark.parametrize("op, function", CASES, ids=lambda name: name)
PLAIN_WAYS = [way for way in WAYS if not way.name and way.function in MORE]
ANY = {"rtol": 0.0, "atol": torch.inf}  # what is no NaN: the result as a whole is judged


def check_way(function: Callable, way: Way, arguments: Arguments) -> dict[float, float]:
    """Return how many roundings results are off by as a whole, if each element is right."""
    how = {"tolerance": way.tolerance(), "unit": way.unit(), "slope": allowed(way) < torch.inf}
    return check_right(function, way.case, way.size, arguments, **how)


def exactly_enough(way: Way, off_of: dict[float, float]) -> None:
    for unit, off in off_of.items():
        print(f"off by {off:.2f} roundings of {unit:.2g}")
        most = allowed(way, unit)
        assert off <= most, f"{way}: off by {off:.3g} roundings of {unit:.2g}, allowed {most:.3g}"


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_each_way_is_right(kernel, way):
    function = getattr(kernel(way.op), way.function)
    given = way.arguments()
    exactly_enough(way, check_way(function, way, given))


@every_function
def test_numbers_of_other_kinds(kernel, op, function):
    """Far below zero, equal, growing, none but zeros: at each size of what compares and scales."""
    for way, kind in ways_of_kinds():
        if (way.op, way.function) == (op, function):
            given = of_kind(kind, way)
            call = getattr(kernel(op), function)
            off_of = check_right(call, way.case, way.size, given, ANY, way.unit(), slope=False)
            off = max(off_of.values(), default=0.0)
            most = OFF_BY_KINDS.get((function, kind), OFF_BY_KIND)
            assert off <= most, f"{way}, {kind}: off by {off:.3g} roundings"


def checked_where_it_can_be(op: str, function: str):
    """Return the function with every access checked; on a GPU itself: it tells of addresses, too.

    There what check=True runs are copies, which begin at places of their own.
    """
    path = ROOT / "kernels" / f"{op}.cu"
    return getattr(compile_cuda(path, check=BACKEND == "cpu"), function)


@every_function
def test_what_looks_at_addresses_is_tested_at_each_of_them(op, function):
    """A file that asks where a tensor begins has another path for each answer."""
    case = CASES[op, function]
    looks = "uintptr_t" in (ROOT / "kernels" / f"{op}.cu").read_text()
    read = {*tensors(case.arguments(*case.sizes[0]))} - {"like"}  # of which only the shape counts
    if looks and read and not case.vectors:
        assert function in BEGIN, f"ways.py: BEGIN has no size for {function}"


@pytest.mark.parametrize("way", [w for w in WAYS if w.size in BEGIN.get(w.function, [])], ids=str)
def test_each_tensor_may_begin_anywhere(way):
    """One alone, an element or 8 bytes after a multiple of 16 bytes, and all of them."""
    function = checked_where_it_can_be(way.op, way.function)
    given = way.arguments()
    moved = {name: places(value) for name, value in tensors(given).items() if value.numel()}
    for names in [*([name] for name in moved), [*moved]]:
        for place in range(max(len(moved[name]) for name in names)):
            given = way.arguments()
            for name in names:
                given[name] = shifted(given[name], moved[name][min(place, len(moved[name]) - 1)])
            exactly_enough(way, check_way(function, way, given))


@pytest.mark.parametrize("way", [w for w in PLAIN_WAYS if w.size in MORE[w.function]], ids=str)
@pytest.mark.skipif(BACKEND == "cuda", reason="the CPU backend's blocks are few: its loops turn")
def test_no_fault_is_found_in_second_turns(way):
    """With every access checked, where blocks take several rows or tiles, and loops turn twice."""
    function = checked_where_it_can_be(way.op, way.function)
    exactly_enough(way, check_way(function, way, way.arguments()))


@pytest.mark.parametrize("way", PLAIN_WAYS, ids=str)
def test_the_same_again_where_several_blocks_add_up(kernel, way):
    """However blocks and threads come: each time in another order."""
    function = getattr(kernel(way.op), way.function)
    arguments = way.arguments()
    first = None
    for _ in range(3):
        given = {n: v.clone() if n in tensors(arguments) else v for n, v in arguments.items()}
        result = [*as_tuple(function(*way.case.values(given))), *tensors(given).values()]
        first = first or result
        assert all(map(equal_bits, first, result))
