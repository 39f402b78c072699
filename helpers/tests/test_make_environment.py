"""An environment of one's own: what it lacks is named in one line, and nothing is replaced."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from types import SimpleNamespace

import pytest

from helpers.base.machine import ROOT
from helpers.make import environment, install


@pytest.fixture
def there(monkeypatch):
    """An environment whose packages are a dict of versions that the test may change."""
    packages = {
        "torch": "2.11.0+cu128", "ninja": "1.13", "jupyterlab": "4.2.1", "matplotlib": "3.10.0",
        "numpy": "2.0.2", "nbval": "0.11.0", "triton": "3.6.0", "numba": "0.60.0",
        "cloudpickle": "3.1.1",
    }  # fmt: skip

    def version(name):
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    found = lambda name: name.replace("_", "-") in packages or None  # noqa: E731
    monkeypatch.setattr(environment, "find_spec", found)
    monkeypatch.setattr(environment.metadata, "version", version)
    monkeypatch.setattr(environment, "find_gpu", lambda: False)
    monkeypatch.setattr(environment, "check_machine", lambda: None)
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "platform", "linux")
    return packages


@pytest.fixture
def pip(monkeypatch):
    """Note how pip is called and with which constraints; it returns `pip.code`."""
    noted = SimpleNamespace(calls=[], held=[], code=0)

    def run(command, **_):
        noted.calls.append(command)
        noted.held.append(open(command[command.index("-c") + 1]).read().split())
        return SimpleNamespace(returncode=noted.code, stderr="WARNING: x\nERROR: no network\n")

    monkeypatch.setattr(environment.subprocess, "run", run)
    return noted


def test_an_environment_that_has_all(there):
    assert environment.missing() == []
    environment.check()


def test_what_is_missing_stands_in_one_line(there):
    del there["ninja"], there["nbval"]
    there["jupyterlab"] = "3.6.8"
    with pytest.raises(install.Problem) as caught:
        environment.check()
    sentence, mend = str(caught.value).split("\n    ")
    assert sentence.endswith("lacks ninja, jupyterlab>=4, nbval.") and sys.prefix in sentence
    assert mend == f'{sys.executable} -m pip install ninja "jupyterlab>=4" nbval'


def test_what_the_system_or_no_gpu_makes_needless(there, monkeypatch):
    del there["ninja"]
    monkeypatch.setattr(environment.shutil, "which", lambda name: "/usr/bin/" + name)
    assert environment.missing() == []
    monkeypatch.setattr(environment, "find_gpu", lambda: True)
    assert environment.missing() == ["numba-cuda"]
    monkeypatch.setattr(sys, "platform", "darwin")
    del there["triton"]  # not for macOS, nor is numba-cuda
    assert environment.missing() == []


@pytest.mark.parametrize("use", [environment.check, environment.complete])
def test_a_pytorch_that_is_too_old(there, pip, use):
    there["torch"] = "2.9.1+cu128"
    with pytest.raises(install.Problem) as caught:
        use()
    sentence, mend = str(caught.value).split("\n    ")
    assert sentence == "PyTorch 2.9.1 is too old for CUDA strings, which need 2.10 or newer."
    assert mend == f'{sys.executable} -m pip install "torch>=2.10"'
    assert not pip.calls


def test_a_python_that_is_too_old(there, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    with pytest.raises(install.Problem, match=r"needs Python 3\.11 to .*\n.*VENV=current PYTHON="):
        environment.check()


def test_complete_installs_what_is_missing_and_holds_the_rest(there, pip, capsys):
    for name in ("ninja", "jupyterlab", "nbval"):  # the last two: a front end runs already
        del there[name]
    environment.complete()
    [command], [held] = pip.calls, pip.held
    assert command[:4] == [sys.executable, "-m", "pip", "install"] and command[-1] == "ninja"
    assert "torch==2.11.0+cu128" in held and "numpy==2.0.2" in held and "triton==3.6.0" in held
    assert not [line for line in held if line.startswith("ninja")]
    assert capsys.readouterr().out == f"The course is in {ROOT}; installed ninja.\n"

    there["ninja"] = "1.13"
    environment.complete()
    assert len(pip.calls) == 1
    assert capsys.readouterr().out.endswith("; nothing had to be installed.\n")


def test_pip_that_fails(there, pip):
    del there["ninja"]
    pip.code = 1
    with pytest.raises(
        install.Problem, match="(?s)could not install ninja: .*no network\n .*ninja$"
    ):
        environment.complete()


def make(*arguments, **variables):
    command = ["make", "--no-print-directory", "-n", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_every_target_takes_the_environment_at_hand():
    for target in ("lab", "test", "run", "progress", "kernels", "results", "bench", "doctor"):
        said = make(target, "VENV=current", "PYTHON=mypython")
        assert said.startswith("mypython -m helpers.make.environment\nmypython -m "), said
        assert ".venv" not in said
        assert ".venv/bin/python -m " in make(target, VENV="elsewhere")  # not the shell's
    assert "VENV may be current" in make("lab", "VENV=mine")


def test_it_needs_nothing_but_python(tmp_path):
    """So that an environment that lacks all can be told so."""
    command = [sys.executable, "-S", "-m", "helpers.make.environment"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"):
        pytest.skip("Python.h is missing")
    assert done.returncode == 1 and "pip install torch" in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 2
