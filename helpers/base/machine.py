"""Where things lie on this machine."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"  # compiled kernels and downloads; `make clean` removes it
