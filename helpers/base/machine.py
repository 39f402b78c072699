"""Where things lie on this machine, and what its terminal can show.

The wheel of the CPU backend has another one: helpers/make/wheel/machine.py.
"""

import sys
from pathlib import Path

from helpers.base.system import wrong_folder

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"  # compiled kernels and downloads; `make clean` removes it
# Lines that mend what is missing.
INSTALL = f"cd {ROOT} && make install"
CLEAN = f"cd {ROOT} && make clean"


def misplaced(folder: Path, found: str) -> tuple:
    """Return what is wrong where the path of `ROOT`, the folder, has that, and the mend."""
    return wrong_folder(folder, found)


def let_print() -> None:
    """Let print show ? for what the terminal's character set lacks, where it would raise."""
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
