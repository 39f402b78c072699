"""Every host function of every kernel file keeps the contract of contract.py."""

import re
from collections import defaultdict

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.compiler.source import host_functions
from helpers.device import BACKEND
from kernels.tests.contract import Case, as_tuple, check_right, equal_bits, tensors
from kernels.tests.ways import FILES, TESTS, Way, allowed, limit_of, places, shifted

CASES = {op: tests.CASES for op, tests in TESTS.items()}
OTHER_DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.bool)

every_case = pytest.mark.parametrize(
    "op, case",
    [(op, case) for op, cases in CASES.items() for case in cases],
    ids=[case.function for cases in CASES.values() for case in cases],
)


@pytest.fixture
def function(kernel, op, case):
    return getattr(kernel(op), case.function)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_host_function_has_its_case(path):
    defined = [f.name for f in host_functions(path.read_text()) if not f.hidden]
    held = [case.function for case in CASES[path.stem]]
    # what takes or returns no tensors, but makes what the others need, has tests of its own
    assert sorted([*held, *getattr(TESTS[path.stem], "SET_UP", ())]) == sorted(defined)


@pytest.mark.parametrize(
    "op, case, size",
    [(op, case, size) for op, cases in CASES.items() for case in cases for size in case.sizes],
    ids=lambda value: getattr(value, "function", str(value)),
)
def test_right(function, op, case: Case, size):
    most = allowed(Way(op, case.function, size))
    arguments = case.arguments(*size)
    of_types = check_right(function, case, size, arguments, slope=most < torch.inf)
    off = max(of_types.values(), default=0.0)
    assert off <= most, f"off by {off:.3g} roundings, allowed {most:.3g}"
    MEASURED[op, case.function].append(off)


MEASURED: dict[tuple[str, str], list[float]] = defaultdict(list)


@every_case
@pytest.mark.skipif(BACKEND == "cuda", reason="limits are ten times what the CPU backend is off by")
def test_no_limit_is_ten_times_what_is_measured(op, case):
    """Of what was measured just now, at all sizes; two roundings are as good as none."""
    if len(MEASURED[op, case.function]) < len(case.sizes):
        pytest.skip("not all sizes were run")
    most, limit = max(MEASURED[op, case.function]), limit_of(op, case.function)
    assert limit <= 10 * max(2, most), f"off by {most:.2g} roundings at most, allowed {limit}"


@every_case
def test_right_where_the_memory_is_aligned_to_elements_only(function, case):
    """A view of the same layout that begins in the middle of a tensor: no vector loads from there.

    test_ways.py has more: one tensor alone, each type, and sizes with vector loads elsewhere.
    """
    arguments = case.arguments(*case.sizes[0])
    for name, value in tensors(arguments).items():
        arguments[name] = shifted(value, 1)
        assert arguments[name].stride() == value.stride()
        if case.vectors:
            refused(function, case, name, arguments)
            return
    check_right(function, case, case.sizes[0], arguments)


@pytest.mark.parametrize(
    "op, case",
    [(op, case) for op, cases in CASES.items() for case in cases if case.vectors],
    ids=lambda value: getattr(value, "function", str(value)),
)
def test_refuses_each_tensor_alone_where_it_needs_alignment(function, case):
    for name, value in tensors(case.arguments(*case.sizes[0])).items():
        for place in places(value):
            arguments = case.arguments(*case.sizes[0])
            refused(function, case, name, arguments | {name: shifted(value, place)})


@every_case
def test_the_same_twice(function, case):
    for size in case.sizes[:2]:
        arguments = case.arguments(*size)
        copies = {n: v.clone() if n in tensors(arguments) else v for n, v in arguments.items()}
        results = [as_tuple(function(*case.values(of))) for of in (arguments, copies)]
        assert all(map(equal_bits, *results))
        assert all(map(equal_bits, tensors(arguments).values(), tensors(copies).values()))


@every_case
def test_no_fault_is_found(op, case):
    """On the CPU backend, with every access checked."""
    if case.machine and BACKEND == "cuda":
        pytest.skip("its arguments are made for the GPU; without one, it is checked")
    checked = compile_cuda(ROOT / "kernels" / f"{op}.cu", check=True)
    small = min(case.sizes[:3], key=lambda size: sum(v for v in size if isinstance(v, int)))
    for size in {case.sizes[0], small}:
        check_right(getattr(checked, case.function), case, size, case.arguments(*size))


def refused(function, case, name, arguments):
    """The function raises, and its sentence names the argument."""
    said = re.compile(rf"\b({re.escape(name)}|{case.function}): expected .*got", re.DOTALL)
    with pytest.raises(RuntimeError, match=said):
        function(*case.values(arguments))


@every_case
def test_refuses_another_device(function, case):
    arguments = case.arguments(*case.sizes[0])
    for name, value in tensors(arguments).items():
        refused(function, case, name, arguments | {name: value.to("meta")})


@every_case
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_refuses_other_dtypes(function, case):
    arguments = case.arguments(*case.sizes[0])
    for name, value in tensors(arguments).items():
        for dtype in OTHER_DTYPES:
            if dtype not in (value.dtype, *case.dtypes):
                refused(function, case, name, arguments | {name: value.to(dtype)})


@every_case
def test_refuses_strides(function, case):
    arguments = case.arguments(*case.sizes[0])
    for name, value in tensors(arguments).items():
        if value.dim() == 0:
            continue
        every_second = torch.stack([value, value], -1)[..., 0]
        views = [every_second]
        if value.dim() > 1 and name not in case.transposed:
            views.append(value.mT.contiguous().mT)
        for view in views:
            assert equal_bits(view, value) and not view.is_contiguous()
            refused(function, case, name, arguments | {name: view})


@pytest.mark.parametrize(
    "op, case, name, wrong",
    [
        pytest.param(op, case, name, wrong, id=f"{case.function}-{name}-{i}")
        for op, cases in CASES.items()
        for case in cases
        for i, (name, wrong) in enumerate(case.ragged)
    ],
)
def test_refuses_what_does_not_fit(function, case, name, wrong):
    arguments = case.arguments(*case.sizes[0])
    refused(function, case, name, arguments | {name: wrong(arguments)})
