"""What several test modules need."""

import os
import random
import shlex

import numpy as np
import pytest
import torch

from helpers import recorded


@pytest.fixture(autouse=True)
def seed():
    """Seed whatever draws numbers: anew for each test, and as SEED says to repeat one.

    Pytest shows what is printed here with a test that fails.
    """
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
    print(f"to repeat this test: SEED={seed}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return seed


@pytest.fixture
def german(monkeypatch, tmp_path):
    """Return a function that makes a compiler say "Fehler" as one with translations does.

    That is: where the user's language is German and nobody asks for another.
    """
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de_DE:de")

    def translated(compiler):
        path, said = tmp_path / "german", shlex.quote(str(tmp_path / "said"))
        path.write_text(f"""#!/bin/sh
language="${{LANGUAGE:-${{LC_ALL:-${{LC_MESSAGES:-$LANG}}}}}}"
case "$language" in C|C.*|POSIX) exec {compiler} "$@";; esac
{compiler} "$@" 2> {said}; rc=$?
sed -e "s/error:/Fehler:/" {said} >&2
exit $rc
""")
        path.chmod(0o755)
        return str(path)

    return translated


@pytest.fixture
def records(monkeypatch, tmp_path):
    """Keep records in an empty folder; return it."""
    monkeypatch.setattr(recorded, "RECORDS", tmp_path / "recorded")
    monkeypatch.setattr(recorded, "_tellers", {})
    monkeypatch.delenv("RECORD", raising=False)
    return recorded.RECORDS


@pytest.fixture
def pretend_gpu(monkeypatch, records):
    """Return a function that makes modules take this machine for one with a GPU."""

    def pretend(*modules):
        for module in (recorded, *modules):
            monkeypatch.setattr(module, "BACKEND", "cuda")
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Pretended GPU")
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(recorded, "_driver_version", lambda: "580.0")

    return pretend
