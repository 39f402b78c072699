"""Every planted local variable without a value is found in a checked build, no right one is."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.compiler.tools import cpu_backend
from helpers.tests.cuda_driver import need
from helpers.tests.planted_locals import PLANTED, RIGHT, source

# clang copies structures member by member, so that no member counts, and moves a read elsewhere.
SILENT_UNDER_CLANG = {"member", "method", "padding"}
WITHOUT_LINE_UNDER_CLANG = {"loop_bound"}


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
    if cpu_backend().is_clang and name in SILENT_UNDER_CLANG:
        run(f"{name}_bad")
        return
    with pytest.raises(RuntimeError) as error:
        run(f"{name}_bad")
    said = str(error.value).splitlines()[0]
    found = re.search(r"thread \(\d+,0,0\), line (\d+): reads (.*), which has not been set", said)
    assert found and found[2] == variable, said
    has_line = not (cpu_backend().is_clang and name in WITHOUT_LINE_UNDER_CLANG)
    assert ("//" in run.lines[int(found[1]) - 1]) == has_line, said


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(run, name):
    run(f"{name}_right")


def test_clang_finds_the_same():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    command += ["-k", "not clang"]
    done = subprocess.run(
        command,
        env={**os.environ, "CXX": need("clang++")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
