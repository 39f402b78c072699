"""The kernel files side by side, as a project has them: linked together, by setup.py, by load().

Without a GPU they are compiled by nvcc with the light headers, which is enough to find a name that
two of them define.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from helpers.base.machine import ROOT
from helpers.compiler import device_code
from helpers.compiler.source import host_functions
from helpers.device import BACKEND
from kernels.tests.registers import FILES, as_one_unit
from kernels.tests.test_kernels import needs_nvcc

on_gpu = pytest.mark.skipif(BACKEND == "cpu", reason="PyTorch builds CUDA on a GPU machine only")

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

sources = ["binding.cpp", {sources}]
setup(
    name="course_kernels",
    ext_modules=[CUDAExtension("course_kernels", sources)],
    cmdclass={{"build_ext": BuildExtension}},
)
"""
LOAD = """
from torch.utils.cpp_extension import load

vector_add = load("vector_add", ["binding.cpp", "vector_add.cu"], build_directory=".").vector_add
"""
USE = """
import torch
{get}
a, b = torch.randn(2, 1000, device="cuda")
assert torch.equal(vector_add(a, b), a + b)
"""


def binding(paths: list[Path]) -> str:
    """Return the C++ that makes the host functions of these files a Python module."""
    functions = [f for path in paths for f in host_functions(path.read_text()) if not f.hidden]
    lines = ["#include <torch/extension.h>", "using torch::Tensor;"]
    lines += [f"{function.declaration};" for function in functions]
    lines += ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for function in functions:  # two files may have one of the same name, as overloads
        pointer = f"static_cast<{function.pointer}>(&{function.name})"
        lines.append(f'    m.def("{function.name}", {pointer});')
    return "\n".join([*lines, "}\n"])


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that copies kernel files and their binding into an empty folder."""
    monkeypatch.chdir(tmp_path)

    def make(paths):
        for path in paths:
            shutil.copy(path, tmp_path)
        (tmp_path / "binding.cpp").write_text(binding(paths))
        return tmp_path

    return make


def run(*arguments: str) -> None:
    """Run Python in the current folder."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_nvcc
def test_no_two_files_define_the_same_name():
    """T, D, B, R: code or data that another object's of the same name would collide with."""
    unit = as_one_unit(FILES)
    quick = ("-O0", "-fdevice-syntax-only")  # nobody looks at more than the names for the host
    made = device_code.compiled(unit, "compute_75", "-c", *quick)
    command = ["nm", "--demangle", "--defined-only", str(made)]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^\w+ [TDBR] (\w+_file::.*)$", symbols, re.MULTILINE)
    files = {re.match(r"\w+(?=_file::)", name)[0] for name in names}
    assert files == {path.stem for path in FILES}
    count = Counter(re.sub(r"\b\w+_file::", "", name) for name in names)
    assert not [name for name, times in count.items() if times > 1]


@on_gpu
def test_setup_py_builds_all_files_as_one_extension(project):
    folder = project(FILES)
    sources = ", ".join(f'"{path.name}"' for path in FILES)
    (folder / "setup.py").write_text(SETUP.format(sources=sources))
    run("setup.py", "build_ext", "--inplace")
    run("-c", USE.format(get="from course_kernels import vector_add"))


@on_gpu
def test_load_builds_a_file(project):
    project([ROOT / "kernels" / "vector_add.cu"])
    run("-c", USE.format(get=LOAD))
