"""What the tests of the kernel files share."""

import functools

import pytest

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.tests.conftest import seed  # noqa: F401  (a fixture for every test)


@pytest.fixture(scope="session")
def kernel():
    """Return a function from an op's name to its compiled module: `kernel("square").square(x)`."""
    return functools.cache(lambda op: compile_cuda(ROOT / "kernels" / f"{op}.cu"))
