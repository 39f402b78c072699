"""Every planted local variable without a value is found in a checked build, no right one is."""

import re
import warnings

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.tests.planted_locals import PLANTED, RIGHT, source


@pytest.fixture(scope="module")
def run():
    text, numbers = source()
    compiled = compile_cuda(text, check=True)

    def call(name):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled.run(torch.arange(64).float(), torch.zeros(64), numbers[name])

    call.lines = text.splitlines()
    return call


@pytest.mark.parametrize("name, variable", PLANTED)
def test_a_variable_without_a_value_is_found(run, name, variable):
    run(f"{name}_good")
    with pytest.raises(RuntimeError) as error:
        run(f"{name}_bad")
    said = str(error.value).splitlines()[0]
    found = re.search(r"thread \(\d+,0,0\), line (\d+): reads (.*), which has not been set", said)
    assert found and found[2] == variable, said
    assert "//" in run.lines[int(found[1]) - 1], said


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(run, name):
    run(f"{name}_right")
