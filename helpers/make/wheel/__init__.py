"""The CPU backend as a wheel of its own, for other projects' tests: `make wheel`.

The package `cuda_on_cpu` is helpers/cuda_on_cpu, with `compiler`, `base`, `device` and `recorded`
inside, so that `compile_cuda` is there as well. They are copied, and their imports renamed; what
belongs to the wheel alone stands here: machine.py, pytest_plugin.py, pyproject.toml.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.base.machine import ROOT

HERE = Path(__file__).resolve().parent
DIST = ROOT / "dist"
NAME = "cuda_on_cpu"
RENAMED = (
    (re.compile(rf"\bfrom helpers import {NAME}\b"), f"import {NAME}"),
    (re.compile(rf"\bhelpers([./]){NAME}\b"), NAME),
    (re.compile(r"\bhelpers([./])(?=[a-z])"), rf"{NAME}\1"),
)


def build(to: Path = DIST) -> Path:
    """Build the wheel into a folder and return its file; RuntimeError with what pip says."""
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        made = Path(folder, "made")
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"]
        if importlib.util.find_spec("setuptools"):  # else pip fetches it
            command.append("--no-build-isolation")
        command += ["--wheel-dir", str(made), folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"pip builds no wheel:\n{done.stdout}{done.stderr}")
        (wheel,) = made.glob("*.whl")
        to.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, to))


def stage(folder: Path) -> None:
    """Write what the wheel is built from into a folder."""
    package = folder / NAME
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "helpers" / NAME, package, ignore=leave_out)
    for part in ("compiler", "base"):
        shutil.copytree(ROOT / "helpers" / part, package / part, ignore=leave_out)
    for module in ("device.py", "recorded.py"):
        shutil.copy(ROOT / "helpers" / module, package)
    shutil.copy(HERE / "machine.py", package / "base")
    shutil.copy(HERE / "pytest_plugin.py", package)
    for path in package.rglob("*.py"):
        path.write_text(renamed(path.read_text()))
    shutil.copytree(HERE / "example", package / "example", ignore=leave_out)
    readme = package / "README.md"
    readme.write_text(readme.read_text().replace("../make/wheel/example/", "example/"))
    shutil.copy(readme, folder)
    shutil.copy(ROOT / "LICENSE", folder)
    shutil.copy(HERE / "pyproject.toml", folder)


def renamed(text: str) -> str:
    """Return a module's text with the imports of the wheel."""
    for found, name in RENAMED:
        text = found.sub(name, text)
    return text
