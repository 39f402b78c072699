"""Where things lie where the CPU backend is installed as a wheel: see base/machine.py."""

from pathlib import Path

from helpers.cuda_on_cpu.cache import user_folder

ROOT = Path(__file__).resolve().parents[1]  # the package
CACHE = user_folder()  # what was compiled
INSTALL = "python3 -m venv .venv && .venv/bin/pip install torch ninja unofficial_cuda_on_cpu-*.whl"
CLEAN = f"rm -r {CACHE}"


def misplaced(folder: Path, found: str) -> tuple:
    """Return what is wrong where the path of `ROOT` or `CACHE` has that, and the mend."""
    name, mend = "package", f"{INSTALL}   # in a folder of letters and digits"
    if folder == CACHE:
        name, mend = "cache", "export CUDA_ON_CPU_CACHE=$HOME/cuda-on-cpu   # or another place"
    return (
        f"The {name}'s folder has {found} in its path, which compilers do not take: {folder}",
        mend,
    )
