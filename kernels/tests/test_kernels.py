"""Every kernel file alone: its head, and the `load_inline` call that stands there.

With a GPU the call runs as it is, in a process that sees an empty folder and torch. Without one,
`load_inline` is replaced by a stand-in that checks what the real one would stumble over and builds
the same source with the CPU backend.
"""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda, tools
from helpers.compiler.source import host_functions
from helpers.cuda_on_cpu import scanner
from helpers.device import BACKEND
from helpers.make.kernels import KERNELS, NOTEBOOKS, kernel_differences, kernel_sources
from kernels.tests import registers

FILES = registers.FILES
SOURCES = kernel_sources()
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
    assert not differences, f"see README, How a kernel file comes about:\n{differences}"


@every_kernel_file
def test_head(path):
    head = head_of(path)
    prose = " ".join(line.removeprefix("//").strip() for line in head[1 : head.index(CALL_BEGINS)])
    assert head[0] == f"// kernels/{path.name}"
    assert head[1] == "// SPDX-License-Identifier: MIT"
    notebook = re.search(r"Notebook: (\d\d[a-z]?_\w+)\.", prose)
    assert notebook, "the head names no notebook"
    assert SOURCES[path.stem].notebook == NOTEBOOKS / f"{notebook[1]}.ipynb"
    for what, said in {
        "a first sentence": r"^[A-Z0-9].+\.",
        "a dtype": r"float32|float16|bfloat16|u?int\d+|floating",
        "a layout": "contiguous|stride",
        "what it must move or compute": "bytes?|FLOPs?",
        "what it allocates beside its outputs": "scratch memory",
    }.items():
        assert re.search(said, prose, re.IGNORECASE), f"the head does not give {what}"


@every_kernel_file
def test_source_needs_nothing_of_this_repository(path):
    source = path.read_text()
    assert "helpers" not in source
    assert not re.search(r'# *include *"', source), "its headers are CUDA's and PyTorch's"
    assert "getCurrentCUDAStream()" in source, "kernels launch on PyTorch's current stream"
    assert "C10_CUDA_KERNEL_LAUNCH_CHECK()" in source
    assert max(map(len, source.splitlines())) <= 88


def test_nearly_half_of_all_lines_are_kernels():
    """A line of comment in front of a kernel belongs to it, blank ones to none."""
    kernels = total = 0
    for path in FILES:
        text = path.read_text()
        source, lines = scanner.Source(text), text.splitlines()
        full = {i for i, line in enumerate(lines) if line.strip() not in ("", "//")}
        of_kernels = set()
        for function in source.functions:
            if function.is_for_device:
                first = source.line_of(function.start) - 1
                while lines[first - 1].startswith("//"):
                    first -= 1
                of_kernels |= set(range(first, source.line_of(function.body[1])))
        kernels += len(of_kernels & full)
        total += len(full)
    print(f"{kernels} of {total} lines are kernels")
    assert kernels >= 0.45 * total


@every_kernel_file
@pytest.mark.skipif(BACKEND == "cuda", reason="the real load_inline runs instead")
def test_call_in_the_head_without_a_gpu(path, alone, monkeypatch):
    calls = []

    # what a head may use of it
    def load_inline(name, cpp_sources, cuda_sources, functions, extra_cuda_cflags=()):
        calls.append((name, cpp_sources, cuda_sources, functions))
        return calls

    with monkeypatch.context() as patch:
        patch.setattr(cpp_extension, "load_inline", load_inline)
        patch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
        names = {}
        exec(call_of(path), names)
    [(name, cpp_sources, cuda_sources, functions)] = calls
    assert name == path.stem and names[name] is calls
    assert cuda_sources == path.read_text()
    declared = {f.name: bare(f.declaration) for f in host_functions(as_definitions(cpp_sources))}
    defined = {f.name: bare(f.declaration) for f in host_functions(cuda_sources) if not f.hidden}
    assert declared == defined, "cpp_sources has to declare what the file defines"
    assert sorted(functions) == sorted(defined)
    module = compile_cuda(path, functions)
    assert all(callable(getattr(module, function)) for function in functions)


def as_definitions(declarations: str) -> str:
    return declarations.replace(");", ") {}")


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
    if "wgmma" in path.read_text() and torch.cuda.get_device_capability()[0] == 9:
        [library] = (alone / "builds").rglob(f"{path.stem}.so")
        command = [tools.cuobjdump(), "-sass", library]
        sass = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.search(r"\b[HIQ]GMMA\b", sass)


def test_example_in_the_readme(tmp_path, monkeypatch):
    """As it stands there on a GPU; without one, `load_inline` and the device are exchanged."""
    readme = (ROOT / "README.md").read_text()
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
    shutil.copy(KERNELS / "square.cu", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "builds"))
    if BACKEND == "cpu":
        built = compile_cuda(KERNELS / "square.cu")
        arguments = inspect.signature(cpp_extension.load_inline)

        def load_inline(*args, **kwargs):
            arguments.bind(*args, **kwargs)
            assert kwargs["cuda_sources"] == (KERNELS / "square.cu").read_text()
            return built

        monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
    exec(example.replace('device="cuda"', f'device="{BACKEND}"'), {})


needs_nvcc = pytest.mark.skipif(registers.nvcc_release() is None, reason="there is no nvcc")


@pytest.fixture(scope="module")
def usage(request):
    """Return what the kernels of each chosen file take on each chip, by the chip."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = sorted({call.params["path"] for call in calls if call and "arch" in call.params})
    return {arch: registers.usage_of(chosen, arch) for arch in registers.ARCHS}


@every_kernel_file
@pytest.mark.parametrize("arch", registers.ARCHS)
def test_nvcc_keeps_everything_in_registers(usage, path, arch):
    if path not in usage[arch]:
        pytest.skip("there is no nvcc, and no record of this version of the file")
    assert usage[arch][path], "the file has no kernel"
    spilled = {name for name, used in usage[arch][path].items() if used.spill_store_bytes}
    assert not spilled, f"registers of {spilled} are spilled to memory"


@every_kernel_file
def test_registers_are_recorded(path):
    rows = registers.recorded()
    versions = {rows.get((path.stem, arch), ("none",))[0] for arch in registers.ARCHS}
    assert versions == {registers.version_of(path)}, (
        "registers.csv is of an earlier version of the file: python -m kernels.tests.registers"
    )


@needs_nvcc
def test_nvcc_compiles_all_against_the_headers_of_pytorch():
    if registers.FULL_HEADERS.read_text().strip() != registers.version_with_full_headers():
        warnings = registers.warnings_with_full_headers()
        assert not warnings, "\n".join(warnings)
