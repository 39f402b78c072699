"""Every instance of every kernel is run by a call that is judged: instances.csv says which."""

import re

import pytest

from helpers.base.machine import ROOT
from helpers.device import BACKEND
from kernels.tests import instances
from kernels.tests.instances import ELSEWHERE, FILES

every_kernel_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every_kernel_file
def test_a_call_runs_each_kernel(path):
    """As recorded, or where the file or its calls have changed since, as they run now."""
    version, by = instances.recorded().get(path.stem, ("", {}))
    if version != instances.version_of(path):
        if BACKEND == "cuda":
            pytest.skip("the CPU backend tells which run: python -m kernels.tests.instances")
        by = instances.found_for(path)
    kernels = set(instances.kernels_of(path))
    assert kernels <= {*by}, f"nothing is said of {kernels - {*by}}"
    assert {*by} <= kernels, f"registers.csv does not have { ({*by} - kernels) }"
    assert all(by.values()), f"no call runs {[name for name, call in by.items() if not call]}"


def test_the_tests_that_run_the_rest_are_there():
    for test in ELSEWHERE.values():
        file, name = test.split(": ")
        assert re.search(rf"^def {name}\(", (ROOT / "kernels" / "tests" / file).read_text(), re.M)


def test_names_are_those_of_nvcc():
    """As nvcc spells it, whatever g++ adds."""
    assert instances.instance("void a_kernel(float*)") == "a_kernel"
    printed = "void k(T*, int64_t) [with T = c10::Half; int N = 4; int64_t = long int]"
    assert instances.instance(printed) == "k<c10::Half, 4>"
