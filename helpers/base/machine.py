"""Where things lie on this machine, and the lines that mend what is missing.

The wheel of the CPU backend has another one: helpers/make/wheel/machine.py.
"""

from pathlib import Path

from helpers.base.system import wrong_folder

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"  # compiled kernels and downloads; `make clean` removes it
# Lines that mend what is missing.
INSTALL = f"cd {ROOT} && make install"
CLEAN = f"cd {ROOT} && make clean"


def misplaced(folder: Path, found: str) -> tuple:
    """Return what is wrong where the path of `ROOT` or `CACHE` has that, and the mend."""
    return wrong_folder(folder, found)
