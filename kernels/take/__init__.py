"""`python -m kernels take`: kernel files, and what builds and tests them, for other projects.

What is written works alone, with PyTorch, ninja and nvcc. Beside each .cu file stands the C++ that
makes a Python module of it (`<name>_bind.cpp`); load.py, setup.py and test_kernels.py are those in
written/, the test cut down to what is there.
"""

import ast
import os
import re
import shutil
import tempfile
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path

from helpers.base.machine import ROOT
from kernels.take import catalogue
from kernels.take.catalogue import KernelFile, Refusal

WRITTEN = Path(__file__).with_name("written")

BINDING = """// {name}_bind.cpp: the functions of {name}.cu as a Python module.
// SPDX-License-Identifier: MIT
#include <torch/extension.h>

using torch::Tensor;

{declarations}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
{definitions}
}}
"""


def take(names: Sequence[str], folder: Path) -> str:
    """Write kernel files and what belongs to them into a folder; return what to say of it.

    Raises Refusal, and writes nothing, for an unknown name, for none, and where a file that is
    there differs from what it would become.
    """
    if not names:
        raise Refusal(f"say what to take, of {', '.join(catalogue.names())}")
    files = {name: catalogue.kernel_file(name) for name in names}
    there = {name for name in catalogue.names() if (folder / f"{name}.cu").exists()}
    texts = contents(files.values(), there | set(files))
    try:
        new = _new(folder, texts, test_of(there))
        _write(folder, new)
    except OSError as error:
        raise Refusal(f"cannot write into {folder}: {error.strerror or error}") from error
    said = f"{folder}: " + (", ".join(new) if new else "all is there already")
    lines = textwrap.wrap(said, catalogue.WIDTH, subsequent_indent="    ")
    lines.append(
        "Where there is a GPU, with PyTorch, ninja and nvcc: python test_kernels.py there;"
    )
    lines.append(f"in Python: from load import {next(iter(files))}")
    if "mnist_cnn" in files:
        lines.append(
            "mnist_cnn.py, which trains with mnist_cnn.cu, works in this repository alone."
        )
    return "\n".join(lines)


def contents(files: Collection[KernelFile], tested: Collection[str]) -> dict[str, str]:
    """Return the text of each file to be written, by its name."""
    texts = {}
    for file in files:
        texts[file.path.name] = file.path.read_text()
        texts[f"{file.path.stem}_bind.cpp"] = binding(file)
    texts |= {name: (WRITTEN / name).read_text() for name in ("load.py", "setup.py")}
    return texts | {
        "test_kernels.py": test_of(tested),
        "LICENSE": (ROOT / "LICENSE").read_text(),
    }


def binding(file: KernelFile) -> str:
    """Return the C++ that makes a Python module of a kernel file, arguments with their names."""
    declarations, definitions = [], []
    for function in file.functions:
        name, call, taken = function.name, function.declaration, function.schema
        call = re.sub(r"(\w|>) (\w+)(?=[,)])", r"\1~\2", call.replace("torch::Tensor", "Tensor"))
        declarations.append(_wrapped(f"{call};", 4))
        taken = taken.partition("(")[2].partition(") ->")[0]  # "Tensor inp, int n"
        given = [f'"{name}"', f"torch::wrap_pybind_function({name})"]
        given += [f'py::arg("{argument.split()[-1]}")' for argument in taken.split(", ")]
        definitions.append("    " + _wrapped(f"m.def({', '.join(given)});", 8))
    return BINDING.format(
        name=file.path.stem,
        declarations="\n".join(declarations),
        definitions="\n".join(definitions),
    )


def _wrapped(code: str, indent: int) -> str:
    """Return code in lines of up to 88 columns, with a space for each `~`, where none breaks."""
    lines = textwrap.wrap(code, 84, subsequent_indent=" " * indent, break_on_hyphens=False)
    return "\n".join(lines).replace("~", " ")


def test_of(names: Collection[str]) -> str:
    """Return test_kernels.py for these kernel files: their tests, and what those need."""
    source = (WRITTEN / "checks.py").read_text()
    parts = ast.parse(source).body
    needed = {f"test_{name}" for name in names}
    made = {part: _names_made(part) for part in parts}
    while True:
        kept = [part for part in parts if not made[part] or made[part] & needed]
        used = {node.id for part in kept for node in ast.walk(part) if isinstance(node, ast.Name)}
        if used <= needed:
            break
        needed |= used
    lines = source.splitlines()
    ends = [part.end_lineno for part in parts]
    text = ""
    for i, part in enumerate(parts):
        if part in kept:  # with the blank lines and comments in front of it, to the end of a line
            text += "\n".join(lines[ends[i - 1] if i else 0 : ends[i]]) + "\n"
    return text


def _names_made(part: ast.stmt) -> set[str]:
    """Return what a statement of the test defines; nothing for what every test has to have."""
    if isinstance(part, ast.FunctionDef):
        return {part.name}
    if isinstance(part, ast.Assign):
        return {name.id for target in part.targets for name in ast.walk(target)
                if isinstance(name, ast.Name)}  # fmt: skip
    if isinstance(part, ast.AugAssign):
        return {part.target.id}
    if isinstance(part, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in part.names}
    return set()


def _new(folder: Path, texts: dict[str, str], test_before: str) -> dict[str, str]:
    """Return those texts that the folder does not hold; Refusal if it holds others in their place.

    The test may be the one of what was taken before.
    """
    new = {}
    for name, text in texts.items():
        path = folder / name
        if not path.exists():
            new[name] = text
        elif path.read_bytes() == text.encode():
            continue
        elif name == "test_kernels.py" and path.read_bytes() == test_before.encode():
            new[name] = text
        else:
            raise Refusal(f"{path} is there and differs: nothing was written")
    return new


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write all files or none: first into a folder beside them, then each into its place."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    new = [folder / name for name in texts if not (folder / name).exists()]
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".take_", dir=folder))
    try:
        for name, text in texts.items():
            (beside / name).write_text(text)
        for name in texts:
            os.replace(beside / name, folder / name)
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        shutil.rmtree(beside)
        for path in made:
            path.rmdir()
        raise
    beside.rmdir()
