"""What the folders promise: who imports whom, and that importing changes nothing."""

import ast
import os
import subprocess
import sys

import pytest

from helpers.base.machine import ROOT

# package → what of helpers its modules may import
ALLOWED = {
    "cuda_on_cpu": set(),
    "base": {"base"},
    "simulator": {"simulator", "base"},
    "compiler": {"compiler", "cuda_on_cpu", "base", "device", "make", "recorded"},
}

MODULES = (
    "checks code compiler doctor exercises mnist plots profiling recorded simulator streams timing "
    "trace"
)

IMPORT = """
import importlib, os, signal, sys
import torch

def state():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGSEGV)]
    lines = open("/proc/self/status")
    caught = [line for line in lines if line[:6] in ("SigBlk", "SigIgn", "SigCgt")]
    return {{"environment": dict(os.environ), "files": sorted(os.listdir({root!r})),
             "handlers": handlers, "signals": caught}}

for module in {modules!r}.split():
    before = state()
    importlib.import_module("helpers." + module)
    changed = [what for what, was in before.items() if state()[what] != was]
    assert not changed, (module, changed)
    assert "torch.utils.cpp_extension" not in sys.modules, module
"""


def imported(path):
    """Return the names below `helpers` that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            names = names[1:] if node.module == "helpers" else names[:1]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert getattr(node, "level", 0) <= 1, f"{path} imports from above its package"
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("helpers.")}
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_stands_below_them(package):
    for path in (ROOT / "helpers" / package).rglob("*.py"):
        assert imported(path) <= ALLOWED[package], path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_importing_changes_nothing():
    code = IMPORT.format(modules=MODULES, root=str(ROOT))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""
