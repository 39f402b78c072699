"""Where things lie on this machine, and what its terminal can show."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"  # compiled kernels and downloads; `make clean` removes it


def let_print() -> None:
    """Let print show ? for what the terminal's character set lacks, where it would raise."""
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
