"""What an environment other than .venv lacks for the course, and the line that installs it.

    python3 -m helpers.make.environment    `make lab VENV=current`: looks, and changes nothing

On Colab and the like a notebook's first cell calls `complete`, which installs what is missing.
Nothing that is there is replaced by either. Uses the standard library only.
"""

import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.base.oldest_torch import OLDEST_TORCH, is_too_old, torch_too_old
from helpers.base.system import find_gpu
from helpers.make.install import (
    NEWEST,
    OLDEST,
    REQUIREMENTS,
    Problem,
    check_machine,
    short,
    version,
)

OLDEST_PACKAGES = {"torch": OLDEST_TORCH, "jupyterlab": (4,)}
FRONT_END = ("jupyterlab", "nbval")  # to open and to test notebooks
FOR_GPU = ("numba-cuda",)  # without a GPU numba's own simulator serves


def missing(front_end: bool = True) -> list[str]:
    """Return what pip has to install, each "name" or, if it is too old, "name>=version"."""
    found = []
    for name in _required():
        left_out = not front_end and name in FRONT_END or name in FOR_GPU and not find_gpu()
        if left_out or name == "ninja" and shutil.which(name):  # the system's serves as well
            continue
        oldest = OLDEST_PACKAGES.get(name)
        if find_spec(name.replace("-", "_")) is None:
            found.append(name)
        elif oldest and _numbers(_version(name)) < oldest:
            found.append(f"{name}>={'.'.join(map(str, oldest))}")
    return found


def pip_line(packages: list[str]) -> str:
    """Return the line that installs packages into this environment."""
    quoted = (f'"{package}"' if ">" in package else package for package in packages)
    return " ".join([sys.executable, "-m pip install", *quoted])


def check() -> None:
    """Raise Problem, with the line that mends it, if this environment does not run the course."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise Problem(
            f"The course needs Python {short(OLDEST)} to {short(NEWEST)}; this is {version()}.",
            f"make lab VENV=current PYTHON=python{short(NEWEST)}",
        )
    check_machine()
    _refuse_old_torch()
    if packages := missing():
        names = ", ".join(packages)
        raise Problem(f"This environment ({sys.prefix}) lacks {names}.", pip_line(packages))


def complete() -> None:
    """Install what notebooks lack here, leaving all that is there; say what was done.

    For a machine whose front end runs already. Raises Problem if PyTorch is too old or pip fails.
    """
    _refuse_old_torch()
    packages = missing(front_end=False)
    if packages:
        _install_beside_the_rest(packages)
    done = f"installed {', '.join(packages)}" if packages else "nothing had to be installed"
    print(f"The course is in {ROOT}; {done}.")


def _install_beside_the_rest(packages: list[str]) -> None:
    """Let pip install packages, and hold the versions of what else the course uses."""
    held = "".join(f"{name}=={_version(name)}\n" for name in _required() if _version(name))
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "held.txt")
        constraints.write_text(held)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "-c", str(constraints)]
        command += packages
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise Problem(f"pip could not install {', '.join(packages)}: {said}", pip_line(packages))
    importlib.invalidate_caches()


def _refuse_old_torch() -> None:
    torch = _version("torch")
    if torch and is_too_old(torch):
        raise Problem(torch_too_old(torch), pip_line(missing(front_end=False)))


def _required() -> list[str]:
    """Return the names in requirements.txt that are for this system."""
    lines = REQUIREMENTS.read_text().splitlines()
    rows = (re.fullmatch(r'([\w-]+)==\S+(?: ; sys_platform == "(\w+)")?', line) for line in lines)
    return [row[1] for row in rows if row and row[2] in (None, sys.platform)]


def _version(name: str) -> str:
    """Return the version of what is installed; "" if it is not, or does not say."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def main() -> None:
    try:
        check()
    except Problem as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
