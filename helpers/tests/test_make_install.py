"""`make install`: what each machine gets, what is said if something is missing, a second call."""

import ast
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import helpers
from helpers import base
from helpers.base import machine, system
from helpers.make import install

BEFORE_ANYTHING = (install, helpers, base, machine, system)  # the script, and what it imports


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that writes a shell script into the only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)  # it may name a compiler that is not on PATH

    def write(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


REST = ["-r", str(install.REQUIREMENTS)]
BY_UV = [[install.UV], ["uv", *REST]]


@pytest.fixture
def calls(monkeypatch):
    """Replace pip and uv by a list of what they were asked to install."""
    calls = []

    def pip(*arguments, may_fail=False):
        calls.append(list(arguments))
        return True

    def uv(*arguments):
        calls.append(["uv", *arguments])
        return True

    monkeypatch.setattr(install, "pip", pip)
    monkeypatch.setattr(install, "uv", uv)
    return calls


@pytest.mark.parametrize("module", BEFORE_ANYTHING, ids=lambda module: module.__name__)
def test_an_old_python_can_read_the_script(module):
    ast.parse(Path(module.__file__).read_text(), feature_version=(3, 6))


def test_the_script_finds_the_course_from_any_folder_and_needs_no_package(tmp_path):
    code = f"import runpy; runpy.run_path({install.__file__!r}, run_name='__main__')"
    code = f"import sys; sys.platform = 'win32'; {code}"
    isolated = [sys.executable, "-S", "-I", "-c", code]
    done = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.startswith("The course runs on Linux and macOS."), done.stderr


def test_an_unsuitable_python_hands_over_to_a_suitable_one(program, monkeypatch):
    found = program("python3.12", "true")
    program("python3.9", "true")
    monkeypatch.setattr(sys, "version_info", (3, 9, 6))
    started = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append((path, arguments)))
    with pytest.raises(install.Problem):  # execv does not come back in earnest
        install.use_a_newer_python()
    assert started == [(str(found), [str(found), install.__file__])]


@pytest.mark.parametrize("there", [(3, 9, 6), (3, 15, 0)])
def test_no_suitable_python(program, monkeypatch, there):
    monkeypatch.setattr(sys, "version_info", there)
    with pytest.raises(install.Problem, match=r"needs Python 3.11 to 3.14.*\n.*PYTHON=python3"):
        install.use_a_newer_python()


@pytest.mark.parametrize(
    "name, says", [("my course", "a space"), ("course(1)", "the character ("), ("it's", "'")]
)
def test_a_path_that_compilers_do_not_take(monkeypatch, tmp_path, name, says):
    root = tmp_path / "jürgen" / name
    monkeypatch.setattr(install, "ROOT", root)
    monkeypatch.setattr(install, "runs", lambda command: pytest.fail("too late"))
    with pytest.raises(install.Problem) as caught:
        install.check_machine()
    sentence, mend = str(caught.value).split("\n    ")
    assert says in sentence and str(root) in sentence
    words = shlex.split(mend, comments=True)
    assert words[:2] == ["mv", str(root)] and not install.unfit_for_a_path(words[2])
    assert install.unfit_for_a_path(tmp_path / "jürgen" / "c++_1.0~#") is None


def test_no_compiler(program, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(install.Problem, match=r"no C\+\+ compiler.*\n +sudo apt install g\+\+"):
        install.check_machine()
    program("dnf", "true")
    with pytest.raises(install.Problem, match=r"no C\+\+ compiler.*\n +sudo dnf install gcc-c\+\+"):
        install.check_machine()


def test_no_venv_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)  # what Debian's Python without it says
    with pytest.raises(install.Problem, match=r"venv module is missing.\n.*python3\.\d+-venv"):
        install.check_venv()


def test_no_python_headers(program, monkeypatch, tmp_path):
    program("c++", "true")
    monkeypatch.setattr(install.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(install.Problem, match=r"Python\.h.*\n.*python3\.\d+-dev"):
        install.check_machine()


def test_an_intel_mac(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")
    with pytest.raises(install.Problem, match="Intel"):
        install.check_machine()


@pytest.mark.parametrize("release, suits", [("12.4", False), ("13.0", True), ("13.2", True)])
def test_an_nvcc_of_another_cuda_version_does_not_count(program, monkeypatch, release, suits):
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    assert not install.find_nvcc()
    program("nvcc", f"echo 'Cuda compilation tools, release {release}, V{release}.88'")
    assert install.find_nvcc() == suits


def test_a_gpu_is_there_when_nvidia_smi_says_so(program, monkeypatch):
    monkeypatch.setattr(system.glob, "glob", lambda pattern: [])
    assert not install.find_gpu()
    smi = program("nvidia-smi", "echo 'couldn’t communicate with the NVIDIA driver'; exit 9")
    assert not install.find_gpu()
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA T4'\n")
    assert install.find_gpu()


def test_with_a_gpu_and_nvcc(calls, monkeypatch):
    monkeypatch.setattr(install, "find_nvcc", lambda: True)
    install.install(gpu=True)
    assert calls == [["torch===2.13.0"], *BY_UV]


def test_with_a_gpu_and_no_nvcc(calls, monkeypatch, tmp_path):
    monkeypatch.setattr(install, "find_nvcc", lambda: False)
    monkeypatch.setattr(install, "VENV", tmp_path)
    home = tmp_path / f"lib/python{install.short()}/site-packages/nvidia/cu13"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "libcudart.so.13").write_text("")
    for _ in range(2):  # a second installation finds the links there
        install.install(gpu=True)
    assert calls == 2 * [["torch===2.13.0"], [install.TOOLKIT], *BY_UV]
    assert (home / "lib64" / "libcudart.so").exists()


def test_without_a_gpu(calls, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    install.install(gpu=False)
    assert calls == [["torch==2.13.0+cpu"], *BY_UV]


@pytest.mark.parametrize("broken", ["pip finds no uv", "uv finds no package"])
def test_pip_installs_what_uv_cannot(calls, monkeypatch, broken):
    monkeypatch.setattr(sys, "platform", "linux")
    pip, uv = install.pip, install.uv
    has_uv = broken == "uv finds no package"
    monkeypatch.setattr(
        install, "pip", lambda *args, **options: pip(*args) and (args != (install.UV,) or has_uv)
    )
    monkeypatch.setattr(install, "uv", lambda *args: uv(*args) and False)
    install.install(gpu=False)
    assert calls == [["torch==2.13.0+cpu"], *(BY_UV if has_uv else BY_UV[:1]), REST]


@pytest.mark.parametrize("uv_fails, then", [(0, []), (2, [["torch==2.13.0"]])])
def test_without_a_gpu_where_pip_knows_no_source_of_the_cpu_build(
    calls, monkeypatch, uv_fails, then
):
    """uv is asked next, and the large build is taken only if uv cannot reach the small one."""
    monkeypatch.setattr(sys, "platform", "linux")
    pip, uv = install.pip, install.uv
    monkeypatch.setattr(
        install, "pip", lambda *args, **options: pip(*args) and "+cpu" not in args[0]
    )
    monkeypatch.setattr(install, "uv", lambda *args: uv(*args) and not uv_fails)
    install.install(gpu=False)
    asked = [["torch==2.13.0+cpu"], [install.UV], ["uv", "--torch-backend=cpu", "torch==2.13.0"]]
    rest = [*BY_UV, REST] if uv_fails else BY_UV
    assert calls == [*asked, *then, *rest]


def test_what_uv_is_told(monkeypatch):
    monkeypatch.setattr(install, "PYTHON", Path("/there/python"))
    told = []

    def run(command):
        told.append(command)
        return subprocess.CompletedProcess(command, len(told) - 1)

    monkeypatch.setattr(install.subprocess, "run", run)
    assert install.uv("a") and not install.uv("b")
    here = ["/there/python", "-m", "uv", "pip", "install", "--python", "/there/python"]
    assert told == [[*here, "a"], [*here, "b"]]


def test_requirements_are_exact():
    for line in install.REQUIREMENTS.read_text().splitlines():
        assert line.startswith("#") or "==" in line.split(";")[0], line


def wheel(folder, name, version):
    """Write a package of one empty module."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        file.writestr(f"{info}/RECORD", "")
        file.writestr(f"{name}.py", "")


@pytest.mark.skipif(install.find_gpu(), reason="the packages here stand for those without CUDA")
def test_from_nothing_then_again_then_changed(tmp_path, monkeypatch):
    """The whole script in a folder of its own, with packages made here and no network."""
    for module in BEFORE_ANYTHING:
        copy = tmp_path / Path(module.__file__).relative_to(machine.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module.__file__, copy)
    script = tmp_path / "helpers" / "make" / "install.py"
    extension = install.EXTENSION.relative_to(machine.ROOT)
    shutil.copytree(install.EXTENSION, tmp_path / extension)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("torch==2.13.0\n")
    wheel(tmp_path, "torch", "2.13.0+cpu")
    wheel(tmp_path, "ninja", "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    # Two at once: one installs, the other waits and finds it done.
    both = [
        subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = sorted((process.communicate()[0] for process in both), key=len)
    assert [process.returncode for process in both] == [0, 0]
    assert "Another installation is running" in outputs[0] and "Installing" not in outputs[0]
    assert "Making a virtual environment" in outputs[1]
    assert installed(tmp_path) == ["torch==2.13.0+cpu"]
    for path, text in install.SETTINGS.items():
        assert (tmp_path / ".venv" / path).read_text() == text

    begin = time.perf_counter()
    again = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert again.stdout == "" and time.perf_counter() - begin < 3

    requirements.write_text("torch==2.13.0\nninja==1.0\n")
    changed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "Making" not in changed.stdout
    assert installed(tmp_path) == ["ninja==1.0", "torch==2.13.0+cpu"]
    compiled = (tmp_path / ".venv/lib").glob("python*/site-packages/__pycache__/*.pyc")
    assert {path.name.split(".")[0] for path in compiled} >= {"ninja", "torch"}

    requirements.write_text("torch==2.13.0\nninja==2.0\n")
    failed = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert failed.returncode == 1
    assert "pip could not install" in failed.stderr and "Traceback" not in failed.stderr


def installed(folder):
    pip = [folder / ".venv" / "bin" / "python", "-m", "pip", "list", "--format=freeze"]
    listed = subprocess.run(pip, capture_output=True, text=True, check=True).stdout.split()
    return [package for package in listed if not package.startswith(("pip==", "setuptools=="))]


def test_the_kernel_says_no_version_and_starts_quietly(tmp_path):
    """JupyterLab writes what the kernel says of itself into a notebook, which is unsaved then."""
    (tmp_path / "profile_default").mkdir()
    config = install.SETTINGS["etc/ipython/ipython_kernel_config.py"]
    (tmp_path / "profile_default" / "ipython_kernel_config.py").write_text(config)
    code = (
        "from jupyter_client.manager import start_new_kernel\n"
        "manager, client = start_new_kernel()\n"
        "client.kernel_info()\n"
        "print(client.get_shell_msg(timeout=60)['content']['language_info'])\n"
        "manager.shutdown_kernel(now=True)"
    )
    environment = os.environ | {"IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    said = ast.literal_eval(done.stdout)
    assert said["name"] == "python" and "version" not in said
    assert done.stderr == ""


def test_jupyterlab_asks_for_no_news():
    text = install.SETTINGS["share/jupyter/lab/settings/overrides.json"]
    ((plugin, chosen),) = json.loads(text).items()
    extension, _, name = plugin.partition(":")
    schema = Path(sys.prefix, "share/jupyter/lab/schemas", extension, f"{name}.json")
    if not schema.exists():
        pytest.skip("JupyterLab is not installed in this environment")
    known = json.loads(schema.read_text())["properties"]
    assert {"const": chosen["fetchNews"], "title": "Never"} in known["fetchNews"]["oneOf"]
    assert known["checkForUpdates"]["type"] == "boolean" and chosen["checkForUpdates"] is False


def test_a_killed_installation_leaves_no_lock(tmp_path):
    code = (
        "import pathlib, time\n"
        "from helpers.make import install\n"
        f"install.LOCK = pathlib.Path({str(tmp_path / 'lock')!r})\n"
        "with install.only_one_at_a_time():\n"
        "    print('held', flush=True)\n"
        "    time.sleep({})\n"
    )
    first = [sys.executable, "-c", code.format(60)]
    holder = subprocess.Popen(first, cwd=install.ROOT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    second = [sys.executable, "-c", code.format(0)]
    done = subprocess.run(second, cwd=install.ROOT, capture_output=True, text=True, timeout=30)
    assert done.stdout == "held\n"
