"""Where things lie where the CPU backend is installed as a wheel: see base/machine.py."""

import sys
from pathlib import Path

from helpers.cuda_on_cpu.cache import user_folder

ROOT = Path(__file__).resolve().parents[1]  # the package
CACHE = user_folder()  # what was compiled
INSTALL = "python3 -m venv .venv && .venv/bin/pip install torch ninja unofficial_cuda_on_cpu-*.whl"
CLEAN = f"rm -r {CACHE}"


def misplaced(folder: Path, found: str) -> tuple:
    """Return what is wrong where the path of `ROOT`, the folder, has that, and the mend."""
    return (
        f"The package's folder has {found} in its path, which compilers do not take: {folder}",
        f"{INSTALL}   # in a folder of letters and digits",
    )


def let_print() -> None:
    """Let print show ? for what the terminal's character set lacks, where it would raise."""
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
