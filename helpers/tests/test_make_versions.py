"""`make test-versions`: what is installed for a version, what runs, and what it counts."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.base.machine import ROOT
from helpers.base.oldest_torch import OLDEST_TORCH
from helpers.make import versions
from helpers.make.tests import Result


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Note what would be called; builds for the CPU cannot be reached."""
    calls = []

    def run(command, **options):
        words = list(map(str, command))
        calls.append(words[1:])
        (versions.FOLDER / "2.11.0").mkdir(exist_ok=True)
        return SimpleNamespace(returncode=int("cpu" in words[-1] + words[-2]))

    monkeypatch.setattr(versions, "FOLDER", tmp_path)
    monkeypatch.setattr(versions.subprocess, "run", run)
    return calls


def test_an_older_pytorch_comes_with_what_it_wants(pip, capsys):
    python = versions.environment("2.11.0")
    installed = pip[-1]
    assert {"torch==2.11.0", "triton==3.6.0", "numpy<2.4"} <= set(installed)
    for name in ("torch", "triton", "numpy", "ninja", "nbval", "numba", "numba-cuda"):
        found = [word for word in installed if word.replace("<", "=").split("=")[0] == name]
        assert len(found) == 1, name
    assert "the build for the CPU cannot be reached" in capsys.readouterr().out
    count = len(pip)
    assert versions.environment("2.11.0") == python and len(pip) == count


def test_what_runs_is_there():
    assert all((ROOT / part).exists() for part in versions.PARTS)
    assert set(versions.LEFT_OUT.values()) <= set(versions.PARTS)
    assert set(versions.LEFT_OUT) <= set(versions.VERSIONS)
    oldest = min(tuple(map(int, version.split(".")[:2])) for version in versions.VERSIONS)
    assert oldest == OLDEST_TORCH
    pins = (ROOT / "requirements.txt").read_text()
    assert f"torch=={list(versions.VERSIONS)[-1]}\n" in pins


def test_rows_and_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(versions, "environment", lambda version: ROOT)
    failed = "notebooks/13_triton.ipynb"

    def run_part(python, part):
        return Result(part, 5, int(part == failed), 1, 2.0, "why")

    monkeypatch.setattr(versions, "run_part", run_part)
    assert versions.main(["2.10.0", "2.13.0"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in said[-2:]] == [
        ["2.10.0", "25", "1", "5", "10"],
        ["2.13.0", "30", "1", "6", "12"],
    ]
    failed = ""
    assert versions.main(["2.13.0"]) == 0
    assert versions.main(["2.9.1"]) == 2
    assert "expected versions of 2.10.0" in capsys.readouterr().out


def test_a_part_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    (tmp_path / "test_two.py").write_text("def test_a(): pass\ndef test_b(): assert 0\n")

    result = versions.run_part(Path(sys.executable), "test_two.py")
    assert (result.passed, result.failed) == (1, 1) and "assert 0" in result.output
