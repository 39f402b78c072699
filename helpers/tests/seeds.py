"""Fresh random numbers in every test, and a way to have the same again: SEED=123 pytest …"""

import os
import random

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed every generator, and print the seed, which pytest shows where a test fails."""
    chosen = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))
    print(f"SEED={chosen}")
    random.seed(chosen)
    np.random.seed(chosen)
    torch.manual_seed(chosen)
    return chosen
