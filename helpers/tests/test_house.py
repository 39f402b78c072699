"""What the folders promise: who imports whom, and that importing changes nothing."""

import ast
import os
import subprocess
import sys

import pytest

from helpers.base.machine import ROOT

# package → what of helpers its modules may import
ALLOWED = {
    "helpers/cuda_on_cpu": set(),
    "helpers/base": {"base"},
    "helpers/simulator": {"simulator", "base"},
    "helpers/compiler": {"compiler", "cuda_on_cpu", "base", "device", "recorded"},
    "kernels/operators": {"compiler"},
    "kernels/take": {"base", "compiler", "make"},
}

HELPERS = (
    "checks code compiler doctor exercises mnist network play plots processes profiling recorded "
    "simulator streams timing trace"
)
MODULES = [*(f"helpers.{name}" for name in HELPERS.split()), "kernels"]

IMPORT = """
import importlib, os, signal, sys
import torch

def state():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGSEGV)]
    lines = open("/proc/self/status")
    caught = [line for line in lines if line[:6] in ("SigBlk", "SigIgn", "SigCgt")]
    return {{"environment": dict(os.environ), "files": sorted(os.listdir({root!r})),
             "handlers": handlers, "signals": caught}}

for module in {modules!r}:
    before = state()
    importlib.import_module(module)
    after = state()
    changed = [(what, before[what], after[what]) for what in after if after[what] != before[what]]
    assert not changed, (module, changed)
    assert "torch.utils.cpp_extension" not in sys.modules, module
"""


def imported(path, package="helpers"):
    """Return the names below a package that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            names = names[1:] if node.module == package else names[:1]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert getattr(node, "level", 0) <= 1, f"{path} imports from above its package"
            continue
        parts = [name.split(".") for name in names]
        found |= {".".join(name[1:2]) for name in parts if name[0] == package}
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_stands_below_them(package):
    for path in (ROOT / package).rglob("*.py"):
        assert imported(path) <= ALLOWED[package], path


def test_helpers_do_without_the_operators():
    """They stand above; helpers/ takes kernels/ for files, and only tests import from there."""
    for path in (ROOT / "helpers").rglob("*.py"):
        assert "tests" in path.parts or not imported(path, "kernels"), path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_importing_changes_nothing():
    code = IMPORT.format(modules=MODULES, root=str(ROOT))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""
