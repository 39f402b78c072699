"""Every kernel file alone: its head, and the `load_inline` call that stands there.

With a GPU the call runs as it is, in a process that sees an empty folder and torch. Without one,
`load_inline` is replaced by a stand-in that checks what the real one would stumble over and builds
the same source with the CPU backend.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from helpers.compiler import compile_cuda
from helpers.cuda_source import host_functions
from helpers.device import BACKEND
from helpers.export_kernels import KERNELS, NOTEBOOKS, kernel_differences

FILES = sorted(KERNELS.glob("*.cu"))
CALL_BEGINS = "// from pathlib import Path"
every_kernel_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def head_of(path: Path) -> list[str]:
    """Return the comment that a kernel file begins with, line by line."""
    lines = path.read_text().splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))]


def call_of(path: Path) -> str:
    """Return the Python code in the head of a kernel file."""
    head = head_of(path)
    assert CALL_BEGINS in head, f"{path.name}: no line `{CALL_BEGINS}` in its first comment"
    code = [line.removeprefix("//").removeprefix(" ") for line in head[head.index(CALL_BEGINS) :]]
    return "\n".join(code) + "\n"


@pytest.fixture
def alone(path, tmp_path, monkeypatch):
    """Enter an empty folder that holds a copy of the kernel file."""
    shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_kernel_files():
    assert FILES


def test_kernel_files_are_as_in_the_notebooks():
    differences = kernel_differences()
    assert not differences, f"write them from the notebooks with `make kernels`:\n{differences}"


@every_kernel_file
def test_head(path):
    head = head_of(path)
    prose = " ".join(line.removeprefix("//").strip() for line in head[1 : head.index(CALL_BEGINS)])
    assert head[0] == f"// kernels/{path.name}"
    notebook = re.search(r"Notebook: (\d\d_\w+)\.", prose)
    assert notebook, "the head names no notebook"
    assert (NOTEBOOKS / f"{notebook[1]}.ipynb").exists()
    for what, said in {
        "the first sentence": r"^[A-Z][^.]+(\.[^.]+)*\.",
        "a dtype": r"float32|float16|bfloat16|u?int\d+|floating",
        "a layout": "contiguous|stride",
        "what it must move or compute": "bytes?|FLOPs?",
    }.items():
        assert re.search(said, prose, re.IGNORECASE), f"the head does not give {what}"


@every_kernel_file
def test_source_needs_nothing_of_this_repository(path):
    source = path.read_text()
    includes = re.findall(r"^\s*#\s*include\s*(.*)$", source, re.MULTILINE)
    assert all(name.startswith("<") for name in includes), includes
    assert "helpers" not in source
    assert "getCurrentCUDAStream()" in source, "kernels launch on PyTorch's current stream"
    assert "C10_CUDA_KERNEL_LAUNCH_CHECK()" in source
    assert max(map(len, source.splitlines())) <= 88


@every_kernel_file
@pytest.mark.skipif(BACKEND == "cuda", reason="the real load_inline runs instead")
def test_call_in_the_head_without_a_gpu(path, alone, monkeypatch):
    calls = []

    def load_inline(name, cpp_sources, cuda_sources, functions):  # what a head may use of it
        calls.append((name, cpp_sources, cuda_sources, functions))
        return calls

    with monkeypatch.context() as patch:
        patch.setattr(cpp_extension, "load_inline", load_inline)
        names = {}
        exec(call_of(path), names)
    [(name, cpp_sources, cuda_sources, functions)] = calls
    assert name == path.stem and names[name] is calls
    assert cuda_sources == path.read_text()
    declared = {f.name: bare(f.declaration) for f in host_functions(as_definitions(cpp_sources))}
    defined = {f.name: bare(f.declaration) for f in host_functions(cuda_sources) if not f.hidden}
    assert declared == defined, "cpp_sources has to declare what the file defines"
    assert sorted(functions) == sorted(defined)
    module = compile_cuda(cuda_sources, functions)
    assert all(callable(getattr(module, function)) for function in functions)


def as_definitions(declarations: str) -> str:
    return declarations.replace(";", " {}")


def bare(declaration: str) -> str:
    """Return a declaration without the namespace, which a using-declaration may have made short."""
    return declaration.replace("torch::", "")


@every_kernel_file
@pytest.mark.skipif(BACKEND == "cpu", reason="PyTorch's load_inline builds CUDA on a GPU machine")
def test_call_in_the_head_on_a_gpu(path, alone):
    code = call_of(path)
    [call] = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load_inline"
    ]
    functions = next(ast.literal_eval(k.value) for k in call.keywords if k.arg == "functions")
    code += f"assert all(callable(getattr({path.stem}, f)) for f in {functions})\n"
    environment = os.environ | {"TORCH_EXTENSIONS_DIR": str(alone / "builds")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
