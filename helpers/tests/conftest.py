"""What several test modules need."""

import os
import random

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
