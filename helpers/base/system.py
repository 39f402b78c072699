"""What the system has or lacks, and the line that mends it.

`make install` uses this before anything is installed: the standard library only, and no syntax
that an older Python could not read.
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

# What a compiler's command line or ninja's file takes for something else in a path; PyTorch writes
# both and quotes nothing.
UNFIT_FOR_A_PATH = re.compile(r"[\s'\"`()\[\]<>|&;$*?\\:,]")


def unfit_for_a_path(folder):
    """Return what in a folder's path no CUDA string compiles with, in words; None if it is fit."""
    found = UNFIT_FOR_A_PATH.search(str(folder))
    return found and ("a space" if found.group().isspace() else "the character " + found.group())


def wrong_folder(course, found):
    """Return what is wrong where the path of the course's folder has that, and the mend."""
    name = re.sub("[^0-9A-Za-z_.-]+", "_", course.name)
    return (
        f"The course's folder has {found} in its path, which compilers do not take: {course}",
        f"mv {shlex.quote(str(course))} ~/{name}   # or any path of letters and digits",
    )


def how_to_get(debian, fedora, mac=""):
    """Return the line that installs a system package; on a Mac, if none is named, Python's own."""
    if sys.platform == "darwin":
        return mac or "brew install python@{}.{}".format(*sys.version_info)
    if shutil.which("dnf"):
        return "sudo dnf install " + fedora
    return "sudo apt install " + debian


def find_gpu():
    """Return whether the machine has an NVIDIA GPU with its driver, or COURSE_GPU says so."""
    if os.environ.get("COURSE_GPU") or glob.glob("/proc/driver/nvidia/gpus/*"):
        return True
    # In Windows' Linux subsystem there is no such folder, and nvidia-smi may not be on PATH.
    return any(runs([smi, "-L"]) for smi in ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"))


def runs(command):
    """Return whether a command exists and succeeds."""
    try:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(command, timeout=60, **quiet).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
