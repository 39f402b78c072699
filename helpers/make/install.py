"""Make .venv and install what the course needs into it: `python3 helpers/make/install.py`.

Runs before anything is installed, with whatever Python 3 the machine has, so it and what it imports
of helpers/ use the standard library only, and no syntax that an older Python could not read up to
its message about that.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

if __name__ == "__main__":  # a script finds what lies beside it, not the course
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from helpers.base.machine import ROOT
from helpers.base.system import find_gpu, how_to_get, runs, unfit_for_a_path, wrong_folder

OLDEST, NEWEST = (3, 11), (3, 14)  # Python versions that every pinned package has wheels for
CUDA_MAJOR = 13  # of the torch build that a machine with a GPU gets
UV = "uv==0.13.8"
TOOLKIT = "cuda-toolkit[cccl,crt,cudart,nvcc,nvvm,sanitizer]==13.0.3"  # of torch's own CUDA

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"
LOCK = ROOT / ".cache" / "install.lock"
REQUIREMENTS = ROOT / "requirements.txt"
EXTENSION = Path(__file__).parent / "lab" / "labextension"  # of JupyterLab; lab/README.md

# What JupyterLab and the kernel read from .venv.
SETTINGS = {
    # JupyterLab asks nobody about news, nor the network about newer versions.
    "share/jupyter/lab/settings/overrides.json": """{
  "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}
}
""",
    # The kernel does not say its Python version: JupyterLab writes it into each notebook that it
    # opens, which is unsaved from then on. Nor does it warn of other users' eyes when it starts.
    "etc/ipython/ipython_kernel_config.py": """from ipykernel.ipkernel import IPythonKernel

IPythonKernel.language_info.pop("version", None)
get_config().IPKernelApp.log_level = "ERROR"
""",
}


class Problem(Exception):
    """What is wrong, and the line that mends it."""

    def __init__(self, sentence, mend):
        super().__init__(sentence + "\n    " + mend)


def main():
    use_a_newer_python()
    check_machine()
    check_venv()
    gpu = find_gpu()
    key = fingerprint(gpu)
    with only_one_at_a_time():
        if STAMP.exists() and STAMP.read_text() == key:
            return
        make_venv()
        install(gpu)
        compile_modules()
        write_settings()
        copy_extension()
        STAMP.write_text(key)
    print("Installed into .venv.")


def use_a_newer_python():
    """Start again with the newest suitable Python on PATH if this one is too old or too new."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            os.execv(found, [found, __file__])
    raise Problem(
        f"The course needs Python {short(OLDEST)} to {short(NEWEST)}; this is {version()}.",
        f"install one of them, then: make lab PYTHON=python{short(NEWEST)}",
    )


def check_machine():
    """Raise Problem for what must be there before anything can be installed."""
    if sys.platform == "win32":
        raise Problem("The course runs on Linux and macOS.", "wsl --install   # Linux in Windows")
    if sys.platform == "darwin" and platform.machine() != "arm64":
        raise Problem(
            "PyTorch no longer supports Macs with an Intel processor.",
            "use a Linux machine or a Mac with an Apple processor",
        )
    found = unfit_for_a_path(ROOT)
    if found:
        raise Problem(*wrong_folder(ROOT, found))
    compilers = [os.environ.get("CXX", "c++"), "c++", "g++", "clang++"]
    if not any(runs([compiler, "--version"]) for compiler in compilers):
        raise Problem(
            "There is no C++ compiler.",
            how_to_get("g++", fedora="gcc-c++", mac="xcode-select --install"),
        )
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        raise Problem(
            "Python's header files (Python.h) are missing; C++ extensions are built with them.",
            how_to_get(f"python{short()}-dev", fedora="python3-devel"),
        )


def check_venv():
    """Raise Problem if this Python makes no virtual environments."""
    try:
        import ensurepip  # noqa: F401  (Debian and Ubuntu leave it out)
        import venv  # noqa: F401
    except ImportError:
        raise Problem(
            "Python's venv module is missing.",
            how_to_get(f"python{short()}-venv", fedora="python3"),
        ) from None


def find_nvcc():
    """Return whether an nvcc of torch's CUDA version is installed outside .venv."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    for nvcc in (os.path.join(home, "bin", "nvcc"), shutil.which("nvcc")):
        if nvcc and os.path.exists(nvcc):
            found = re.search(r"release (\d+)\.", output([nvcc, "--version"]))
            return bool(found) and int(found.group(1)) == CUDA_MAJOR
    return False


def fingerprint(gpu):
    """Return a text that changes whenever .venv has to be brought up to date."""
    files = [REQUIREMENTS, Path(__file__), EXTENSION / "package.json"]
    sources = b"".join(file.read_bytes() for file in files)
    parts = [hashlib.sha256(sources).hexdigest(), version(), platform.machine(), f"gpu={gpu}"]
    return " ".join(parts) + "\n"


@contextlib.contextmanager
def only_one_at_a_time():
    """Hold a lock that the system takes back when this process ends, however it ends."""
    import fcntl  # not on Windows, which check_machine has ruled out

    LOCK.parent.mkdir(exist_ok=True)
    with open(str(LOCK), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another installation is running in this folder; waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_venv():
    """Make .venv, anew if it belongs to another Python or does not run."""
    asked = output([str(PYTHON), "-c", "import pip, platform; print(platform.python_version())"])
    if asked.strip() != version():
        print(f"Making a virtual environment in .venv (Python {version()}).", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)


def install(gpu):
    """Install torch in the build for this machine, nvcc where a GPU has none, and the rest."""
    pins = REQUIREMENTS.read_text().split()
    torch = next(pin for pin in pins if pin.startswith("torch=="))
    if gpu:
        # `===` asks for the version as it is spelled: a CPU build that is there does not count.
        say(f"PyTorch with CUDA {CUDA_MAJOR} (about 2.5 GB)")
        pip(torch.replace("==", "==="))
        if not find_nvcc():
            say("nvcc (about 300 MB)")
            pip(TOOLKIT)
            link_libraries()
    elif sys.platform == "darwin":
        say("PyTorch (about 100 MB)")
        pip(torch)
    else:
        install_torch_for_cpu(torch)
    say("JupyterLab and the rest of requirements.txt (about 350 MB)")
    # uv takes seconds where pip takes a minute; what pip's configuration names, pip alone finds
    if not (pip(UV, may_fail=True) and uv("-r", str(REQUIREMENTS))):
        pip("-r", str(REQUIREMENTS))


def install_torch_for_cpu(torch):
    """Install the build without CUDA: 200 MB instead of 2.5 GB."""
    say("PyTorch without CUDA (about 200 MB)")
    if pip(torch + "+cpu", may_fail=True):  # where pip's own configuration names a source of it
        return
    pip(UV)
    if uv("--torch-backend=cpu", torch):  # it knows where PyTorch keeps its builds
        return
    print("The build without CUDA cannot be reached.", flush=True)
    say(f"PyTorch with CUDA {CUDA_MAJOR} instead (about 2.5 GB)")
    pip(torch)


def compile_modules():
    """Compile what is installed to bytecode, on all cores: pip would do it on one."""
    folder = VENV / f"lib/python{short()}/site-packages"
    # -x: but for the packages' tests; -qq: nothing is said of templates that are no Python
    options = ["-qq", "-j", "0", "-x", "/tests/"]
    subprocess.run([str(PYTHON), "-m", "compileall", *options, str(folder)])


def link_libraries():
    """Give the toolkit from the wheels the two names that a linker looks for."""
    home = VENV / f"lib/python{short()}/site-packages/nvidia/cu{CUDA_MAJOR}"
    library = f"libcudart.so.{CUDA_MAJOR}"
    for link, target in ((home / "lib/libcudart.so", library), (home / "lib64", "lib")):
        if not link.is_symlink():
            link.symlink_to(target)


def write_settings():
    for path, text in SETTINGS.items():
        file = VENV / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def copy_extension():
    """Put the JupyterLab extension that colours CUDA into .venv, in place of an older one."""
    name = json.loads((EXTENSION / "package.json").read_text())["name"]
    there = VENV / "share/jupyter/labextensions" / name
    shutil.rmtree(str(there), ignore_errors=True)
    shutil.copytree(str(EXTENSION), str(there))


def pip(*arguments, may_fail=False):
    """Run pip in .venv and return whether it worked; stop with its message if it must not fail."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    command += arguments
    errors = subprocess.PIPE if may_fail else None
    done = subprocess.run(command, stderr=errors)
    if done.returncode and not may_fail:
        raise Problem(
            f"pip could not install {' '.join(arguments)}; its message stands above.",
            "once the cause is gone, call make again: what is installed already stays",
        )
    return done.returncode == 0


def uv(*arguments):
    """Run uv in .venv and return whether it worked."""
    command = [str(PYTHON), "-m", "uv", "pip", "install", "--python", str(PYTHON), *arguments]
    return subprocess.run(command).returncode == 0


def say(what):
    print(f"Installing {what}.", flush=True)


def version():
    return platform.python_version()


def short(version=sys.version_info):
    return f"{version[0]}.{version[1]}"


def output(command):
    """Return what a command prints, nothing if it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit("\nStopped. The next call goes on from here.")
