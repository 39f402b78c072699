"""Every planted fault of memory is found in a checked build, its twin passes."""

import re
import warnings

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.tests.planted_memory import FAULTS, source


@pytest.fixture(scope="module")
def planted():
    text, lines = source()
    return compile_cuda(text, check=True), lines


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_its_twin_passes(planted, fault):
    compiled, lines = planted
    bad, good = (getattr(compiled, f"{fault.name}_{kind}") for kind in ("bad", "good"))
    for n in fault.sizes:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            good(torch.arange(n).float())
        with pytest.raises(RuntimeError) as error:
            bad(torch.arange(n).float())
        expected = fault.where + ".*(" + fault.said + ")"
        expected = expected.replace("{n}", str(n)).replace(
            "{line}", str(lines[f"{fault.name}_bad"])
        )
        said = str(error.value).splitlines()[0]
        assert re.search(expected, said), f"n = {n}: {said}"
