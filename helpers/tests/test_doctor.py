"""Every tool that may be missing: one sentence, and the line that mends it."""

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils import cpp_extension

from helpers import doctor
from helpers.base.machine import ROOT
from helpers.compiler import build as compiler
from helpers.compiler import device_code, tools
from helpers.compiler.tools import ToolMissing
from helpers.cuda_on_cpu import Cache
from helpers.make import install

REAL_COMPILER = tools.host_compiler()


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without tools: an empty directory that is all of PATH, and no CUDA anywhere."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for variable in ("CXX", "CC", "CUDA_HOME", "CUDA_PATH", "LIBRARY_PATH"):
        monkeypatch.setenv(variable, "")  # so that what a test sets is taken back
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PATH", str(bin_directory))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python"))
    monkeypatch.setattr(tools, "SYSTEM_CUDA", tmp_path / "no_cuda")
    monkeypatch.setattr(tools, "_site_packages", lambda: {tmp_path / "site"})
    monkeypatch.setattr(tools.sysconfig, "get_path", lambda name: str(tmp_path / name))
    return bin_directory


def program(path: Path, says: str = "") -> Path:
    """Make a program that prints a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def toolkit(home: Path, version: str = "13.0") -> Path:
    """Make a CUDA toolkit with an nvcc that knows its version."""
    program(home / "bin" / "nvcc", f"Cuda compilation tools, release {version}, V{version}.88")
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime.h").touch()
    return home


def problem(function, *args, **options) -> ToolMissing:
    with pytest.raises(ToolMissing) as caught:
        function(*args, **options)
    assert str(caught.value) == f"{caught.value.sentence}\n  To mend it: {caught.value.mend}"
    assert "\n" not in caught.value.sentence + caught.value.mend
    return caught.value


# ---------------------------------------------------------------------------------------- ninja


def test_load_inline_finds_the_ninja_beside_the_interpreter(bare):
    ninja = program(Path(sys.executable).parent / "ninja")
    program(bare / "c++")
    assert tools.ninja() == ninja and not shutil.which("ninja")
    with tools.found_by_load_inline(cuda=False):
        assert shutil.which("ninja") == str(ninja)
    assert not shutil.which("ninja") and os.environ["PATH"] == str(bare)


def test_no_ninja(bare):
    error = problem(tools.ninja)
    assert error.sentence == "ninja, which runs the build, is not installed."
    assert error.mend == f"{sys.executable} -m pip install ninja"


# --------------------------------------------------------------------------------- C++ compiler


def test_a_path_that_compilers_do_not_take(monkeypatch, tmp_path, capsys):
    for module in (tools, install):
        monkeypatch.setattr(module, "ROOT", tmp_path / "course (1)")
    error = problem(tools.folder)
    assert error.sentence.startswith("The course's folder has a space in its path")
    assert error.mend.startswith(f"mv '{tmp_path}/course (1)' ~/course_1_ ")
    monkeypatch.setattr(compiler, "_tensor_object", lambda backend: pytest.fail("too late"))
    compiler.set_up()
    assert error.sentence in capsys.readouterr().out
    source = doctor.SQUARE + f"// {uuid.uuid4()}"
    assert problem(compiler.compile_cuda, source).sentence == error.sentence
    monkeypatch.setattr(doctor, "CHECKS", [row for row in doctor.CHECKS if row[0] == "folder"])
    assert doctor.main() == 1 and "MISSING" in capsys.readouterr().out


def test_a_path_of_pytorch_that_compilers_do_not_take(monkeypatch):
    monkeypatch.setattr(torch, "__file__", "/home/o'brien/torch/__init__.py")
    error = problem(tools.folder)
    assert error.sentence.startswith("PyTorch's folder has the character '")
    assert error.mend.startswith(f"cd {ROOT} && make install")


def test_a_compiler_of_another_name(bare):
    found = program(bare / "clang++")
    program(bare / "ninja")
    assert tools.host_compiler() == str(found) and "CXX" not in os.environ
    with tools.found_by_load_inline(cuda=False):
        assert os.environ["CXX"] == str(found)  # or load_inline would look for c++
    assert "CXX" not in os.environ


def test_no_compiler(bare):
    error = problem(tools.host_compiler)
    assert error.sentence == "There is no C++ compiler on PATH."
    assert "g++" in error.mend or "xcode-select" in error.mend


def test_a_compiler_that_is_not_there(bare, monkeypatch):
    program(bare / "c++")
    monkeypatch.setenv("CXX", "g++-99")
    error = problem(tools.host_compiler)
    assert error.sentence == "CXX names 'g++-99', and there is no such compiler."
    assert error.mend == "unset CXX"


def test_a_compiler_behind_ccache(bare, monkeypatch, tmp_path):
    program(bare / "ccache", "g++ (Debian 12.2.0-14) 12.2.0")
    monkeypatch.setenv("CXX", "ccache g++")
    assert tools.host_compiler() == "ccache g++"
    assert tools.compiler_fits_nvcc(toolkit(tmp_path / "cuda")) == "g++ 12"


def test_no_python_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(tools.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert "Python.h" in problem(tools.python_headers).sentence
    for said in ("Python.h: No such file or directory", "'Python.h' file not found"):
        error = problem(tools.raise_if_known, f"fatal error: {said}")
        assert "Python.h" in error.sentence


# ----------------------------------------------------------------------------------------- CUDA


def test_no_nvcc(bare, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    error = problem(tools.cuda_home)
    assert error.sentence == "There is no nvcc, the compiler for CUDA."
    assert error.mend.endswith('-m pip install "cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.*"')


def test_cuda_home_is_found_where_it_is_not_set(bare, monkeypatch, tmp_path):
    wheels = toolkit(tmp_path / "site" / "nvidia" / "cu13")
    assert tools.cuda_home() == wheels
    assert "CUDA_HOME" not in os.environ
    on_path = toolkit(tmp_path / "cuda")
    (bare / "nvcc").symlink_to(on_path / "bin" / "nvcc")
    assert tools.cuda_home() == on_path
    set_by_hand = toolkit(tmp_path / "mine")
    monkeypatch.setenv("CUDA_HOME", str(set_by_hand))
    assert tools.cuda_home() == set_by_hand


def test_a_cuda_home_without_nvcc_does_not_hide_another(bare, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "gone"))
    there = toolkit(tmp_path / "site" / "nvidia" / "cu13")
    assert tools.cuda_home() == there


def test_cuda_versions_that_differ(bare, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    old = toolkit(tmp_path / "old", "12.4")
    error = problem(tools.cuda_fits_torch, old)
    assert error.sentence == f"nvcc in {old} is of CUDA 12.4, PyTorch of CUDA 13.0."
    assert error.mend.endswith('nvvm]==13.0.*"')
    newer = toolkit(tmp_path / "site" / "nvidia" / "cu13", "13.2")
    assert tools.cuda_fits_torch(newer) == "13.2"  # another minor version is no problem
    monkeypatch.setenv("CUDA_HOME", str(old))
    assert tools.cuda_home() == newer  # the one that fits comes first


@pytest.mark.parametrize("nvcc", ["12.6", "12.8", "12.9"])
@pytest.mark.parametrize("torchs", ["12.6", "12.8"])
def test_cuda_12_with_the_matching_pytorch(bare, monkeypatch, tmp_path, nvcc, torchs):
    """As on Colab, where nothing is to be replaced."""
    monkeypatch.setattr(torch.version, "cuda", torchs)
    monkeypatch.setattr(tools, "SYSTEM_CUDA", toolkit(tmp_path / "cuda", nvcc))
    assert doctor.cuda_match() == f"nvcc {nvcc}, PyTorch {torchs}"


def test_no_packages_have_the_nvcc_of_cuda_12(bare, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert problem(tools.cuda_home).mend.startswith(f"cd {ROOT} && make install ")


@pytest.mark.parametrize("chip", [(7, 5), (8, 9), (9, 0)], ids=str)
def test_a_build_is_machine_code_for_the_chip_that_is_here(monkeypatch, chip):
    """A driver may be older than nvcc and not take its PTX, so there is none."""
    monkeypatch.setattr(device_code, "BACKEND", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: chip)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    number = f"{chip[0]}{chip[1]}"
    for make in (compiler._gpu_operators, compiler._gpu_module):
        flags = make([], doctor.SQUARE, "cell", [])["extra_cuda_cflags"]
        asked = [flag for flag in flags if "arch" in flag]
        assert asked == [f"-gencode=arch=compute_{number},code=sm_{number}"]
        assert cpp_extension._get_cuda_arch_flags(flags) == []  # so PyTorch adds none


def test_what_set_up_has_said_pytorch_does_not_repeat():
    logger = logging.getLogger("torch.utils.cpp_extension")
    said = []
    for message in ("No CUDA runtime is found, using CUDA_HOME='%s'", "another"):
        record = logger.makeRecord(logger.name, logging.WARNING, "", 0, message, ("/",), None)
        said += [message] if logger.filter(record) else []
    assert said == ["another"]


@pytest.mark.parametrize(
    ("name", "says", "expected"),
    [
        ("g++", "c++ (Debian 99.1.0-3) 99.1.0", "works with g++ up to 15;"),
        ("clang", "Debian clang version 99.0.6", "works with clang up to 20;"),
    ],
)
def test_a_compiler_that_is_too_new_for_nvcc(bare, tmp_path, name, says, expected):
    program(bare / "c++", says)
    error = problem(tools.compiler_fits_nvcc, toolkit(tmp_path / "cuda"))
    assert expected in error.sentence and error.sentence.endswith("is 99.")
    assert f"export CXX={'g++' if name == 'g++' else 'clang++'}-" in error.mend


def test_a_compiler_that_fits_nvcc(bare, tmp_path):
    program(bare / "c++", "c++ (Debian 12.2.0-14) 12.2.0")
    assert tools.compiler_fits_nvcc(toolkit(tmp_path / "cuda")) == "g++ 12"


def test_libcudart_under_its_versioned_name_can_be_linked(bare, monkeypatch, tmp_path):
    monkeypatch.setattr(tools, "BUILDS", Cache(tmp_path / "cache"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    program(bare / "ninja")
    program(bare / "c++", "c++ (Debian 12.2.0-14) 12.2.0")
    home = toolkit(tmp_path / "site" / "nvidia" / "cu13")
    (home / "lib").mkdir()
    (home / "lib" / "libcudart.so.13").write_text("cudart")
    for _ in range(2):
        with tools.found_by_load_inline(cuda=True):
            directory = os.environ["LIBRARY_PATH"]
            assert Path(directory, "libcudart.so").read_text() == "cudart"
            assert os.environ["CUDA_HOME"] == cpp_extension.CUDA_HOME == str(home)
    assert "LIBRARY_PATH" not in os.environ and "CUDA_HOME" not in os.environ


def test_an_nvcc_that_is_too_old_for_the_gpu():
    said = "nvcc fatal   : Unsupported gpu architecture 'compute_120'"
    error = problem(tools.raise_if_known, said)
    assert error.sentence == "This nvcc is too old for the GPU (compute_120)."


def test_a_full_disk(monkeypatch, tmp_path):
    free = {str(tmp_path): 1000, str(tools.CACHE / "builds"): 2000}
    monkeypatch.setattr(tools, "_free_bytes", lambda folder: free[str(folder)])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = "cc703IgJ.s: No space left on device"
    error = problem(tools.raise_if_known, said)
    assert error.sentence == f"The disk of {tmp_path} is full."
    assert error.mend.startswith("export TMPDIR=")
    free[str(tmp_path)] = 3000
    error = problem(tools.raise_if_known, "ld: write error: No space left on device")
    assert error.sentence == f"The disk of {tools.BUILDS.folder} is full."
    assert error.mend.startswith(f"cd {ROOT} && make clean ")


def refusing(number: int, filename: str | None = None):
    """Return what a build does that the disk refuses something."""

    def make(*_):
        raise OSError(number, os.strerror(number), filename)

    return make


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """An empty cache in a copy of the course."""
    monkeypatch.setattr(tools, "ROOT", tmp_path)
    monkeypatch.setattr(tools, "CACHE", tmp_path / ".cache")
    return tools.Builds(tmp_path / ".cache" / "builds")


def test_a_disk_that_is_full_for_python(builds, tmp_path):
    error = problem(builds.get, "x", refusing(errno.ENOSPC))
    assert error.sentence == f"The disk of {builds.folder} is full."
    elsewhere = tmp_path / "elsewhere" / "unit.cu"
    error = problem(builds.get, "x", refusing(errno.ENOSPC, str(elsewhere)))
    assert error.sentence == f"The disk of {elsewhere.parent} is full."
    with pytest.raises(FileNotFoundError):
        builds.get("x", refusing(errno.ENOENT))
    with pytest.raises(PermissionError):  # of a compiler that cannot be run
        builds.get("x", refusing(errno.EACCES, "/usr/bin/c++"))


def test_a_disk_that_is_full_for_the_cpu_backend(builds):
    def make(directory):
        raise RuntimeError("libcuda_on_cpu.so does not build:\nas: No space left on device")

    assert problem(builds.get, "x", make).sentence.endswith(" is full.")


def test_a_locale_whose_files_lack_a_letter(builds):
    error = problem(builds.get, "x", lambda directory: "→".encode("latin-1"))
    assert error.sentence == r"Files are written in latin-1 here, which has no '\u2192'."
    assert error.mend.startswith("export PYTHONUTF8=1 ")


def test_a_folder_that_is_not_writable(builds, tmp_path, monkeypatch):
    error = problem(builds.get, "x", refusing(errno.EACCES, str(tmp_path / ".cache")))
    assert error.sentence == f"Nothing can be written in {builds.folder}."
    assert error.mend == f"chmod -R u+w {tmp_path}"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    error = problem(builds.get, "x", refusing(errno.EACCES))
    assert error.sentence == f"Nothing can be written in {builds.folder}, which is somebody else's."
    assert error.mend.startswith(f"cp -r {tmp_path} ~/ ")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    error = problem(builds.get, "x", refusing(errno.EROFS))
    assert "read-only disk" in error.sentence and error.mend.startswith("cp -r ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_compile_cuda_where_the_disk_refuses(number, builds, monkeypatch):
    backend = tools.cpu_backend()  # its runtime is built elsewhere already
    monkeypatch.setattr(tools, "cpu_backend", lambda: backend)
    monkeypatch.setattr(tools, "BUILDS", builds)
    monkeypatch.setattr(compiler, "_call_load_inline", refusing(number))
    problem(compiler.compile_cuda, doctor.SQUARE + f"// {uuid.uuid4()}")


def test_the_doctor_where_nothing_can_be_written(builds, monkeypatch):
    monkeypatch.setattr(doctor, "CACHE", tools.CACHE)
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", lambda dir: refusing(errno.EACCES)())
    assert problem(doctor.disk).sentence.startswith("Nothing can be written in ")


def test_ncu_without_permission(bare, monkeypatch, tmp_path):
    program(bare / "ncu")
    parameters = tmp_path / "params"
    monkeypatch.setattr(tools, "DRIVER_PARAMETERS", parameters)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert tools.ncu() == bare / "ncu"
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    error = problem(tools.ncu)
    assert "may not read the GPU's counters" in error.sentence
    assert "NVreg_RestrictProfilingToAdminUsers=0" in error.mend
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert tools.ncu() == bare / "ncu"


def test_a_tool_in_tritons_wheel(bare, tmp_path):
    assert "There is no cuobjdump." in problem(tools.cuobjdump).sentence
    there = program(tmp_path / "site/triton/backends/nvidia/bin/cuobjdump")
    assert tools.cuobjdump() == there


# ------------------------------------------------------------------------- compile_cuda says them


def compile_something():
    compiler.compile_cuda(f"torch::Tensor f(torch::Tensor x) {{ return x; }}  // {uuid.uuid4()}")


def test_compile_cuda_without_a_compiler(bare):
    program(bare / "ninja")  # which is looked for first
    error = problem(compile_something)
    assert error.sentence == "There is no C++ compiler on PATH."
    assert error._render_traceback_() == [f"ToolMissing: {error}"]  # in a notebook, no more


def test_compile_cuda_without_ninja(bare, monkeypatch):
    monkeypatch.setenv("CXX", REAL_COMPILER)
    assert "ninja" in problem(compile_something).sentence


def test_compile_cuda_without_nvcc(bare, monkeypatch):
    monkeypatch.setenv("CXX", REAL_COMPILER)
    program(bare / "ninja")
    monkeypatch.setattr(compiler, "BACKEND", "cuda")
    monkeypatch.setattr(tools, "gpu", lambda: "one that is new enough")
    monkeypatch.setattr(compiler, "gpu_arch", lambda source: "90")
    assert "There is no nvcc" in problem(compile_something).sentence


def test_compile_cuda_with_another_cuda(bare, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", REAL_COMPILER)
    program(bare / "ninja")
    toolkit(tmp_path / "no_cuda", "12.4")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(compiler, "BACKEND", "cuda")
    monkeypatch.setattr(tools, "gpu", lambda: "one that is new enough")
    monkeypatch.setattr(compiler, "gpu_arch", lambda source: "90")
    assert "is of CUDA 12.4, PyTorch of CUDA 13.0." in problem(compile_something).sentence


# --------------------------------------------------------------------------------------- doctor


def test_the_report():
    done = subprocess.run(
        [sys.executable, "-m", "helpers.doctor"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, blank, last = done.stdout.splitlines()
    names = [name for name, _, _ in doctor.CHECKS]
    assert [name for name in names if any(name in row for row in rows)] == names
    assert f"PyTorch           {torch.__version__.split('+')[0]}" in done.stdout
    assert "a kernel ran on the" in rows[-1] and blank == ""
    assert last.startswith("The notebooks run")


def missing():
    raise ToolMissing("There is no hammer.", "buy hammer")


@pytest.mark.parametrize(
    ("need", "code", "row", "last"),
    [
        (doctor.ALWAYS, 1, "  MISSING  hammer            There is no hammer.", "do not run yet"),
        (doctor.FOR_SOME, 0, "  missing  hammer            There is no hammer.", "need: hammer."),
        (doctor.ON_A_GPU, 0, "  -        hammer            There is no hammer. It is of", "run."),
    ],
)
def test_what_is_missing_decides_the_exit_code(monkeypatch, capsys, need, code, row, last):
    monkeypatch.setattr(doctor, "CHECKS", [("hammer", missing, need), ("nail", lambda: "1", need)])
    assert doctor.main() == code
    printed = capsys.readouterr().out
    assert row in printed and "  ok       nail              1" in printed
    assert ("buy hammer" in printed) == (need != doctor.ON_A_GPU)
    assert last in printed.splitlines()[-1]


def test_the_first_notebook_prints_what_was_found(monkeypatch, capsys):
    cells = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (cell,) = (source for source in sources if "import examine" in source)
    found = {"GPU": "none, so", "ninja": "/a/b"}
    checks = [(name, lambda name=name: found[name], doctor.ALWAYS) for name in found]
    monkeypatch.setattr(doctor, "CHECKS", checks)
    exec(cell, {})
    gpu, ninja = capsys.readouterr().out.splitlines()
    assert gpu.split() == ["ok", "GPU", "none,", "so"] and ninja.split() == ["ok", "ninja"]


def test_the_wrong_build_of_pytorch(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(doctor, "find_gpu", lambda: True)
    error = problem(doctor.pytorch)
    assert "build for the CPU, but this machine has an NVIDIA GPU" in error.sentence
    assert f"torch==={torch.__version__.split('+')[0]}" in error.mend
    monkeypatch.setattr(doctor, "find_gpu", lambda: False)
    assert doctor.pytorch().endswith("built for the CPU")


def test_a_pytorch_that_is_too_old(monkeypatch, capsys, tmp_path):
    source = doctor.SQUARE + f"// {uuid.uuid4()}"
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    monkeypatch.setattr(tools, "BUILDS", Cache(tmp_path))
    error = problem(doctor.pytorch)
    assert "PyTorch 2.9.1 is too old" in error.sentence and "2.10 or newer" in error.sentence
    assert error.mend == f'{sys.executable} -m pip install "torch>=2.10"'
    for check in (False, True):
        assert problem(compiler.compile_cuda, source, check=check).sentence == error.sentence
    compiler.set_up()
    said = capsys.readouterr().out
    assert str(error) in said and said.count("\n") == 3
    rows = [row for row in doctor.CHECKS if row[0] in ("PyTorch", "backend")]
    monkeypatch.setattr(doctor, "CHECKS", rows)
    assert doctor.main() == 1
    assert capsys.readouterr().out.count(error.sentence) == 2
    assert not list(tmp_path.iterdir())
    for version in ("2.10.0", "2.10.0a0+git1", "2.13.0+cpu", "3.0.0"):
        monkeypatch.setattr(torch, "__version__", version)
        assert tools.torch_version() == version.split("+")[0]


def test_a_driver_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(doctor, "BACKEND", "cpu")
    monkeypatch.setattr(doctor, "find_gpu", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(doctor, "_why_no_cuda", lambda: "The NVIDIA driver is too old")
    error = problem(doctor.gpu)
    expected = "PyTorch for CUDA 13.0 does not reach the GPU: The NVIDIA driver is too old"
    assert error.sentence == expected


def test_a_gpu_that_is_too_old(monkeypatch):
    monkeypatch.setattr(doctor, "BACKEND", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla P100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 0))
    error = problem(doctor.gpu)
    assert "Tesla P100 is older than" in error.sentence
    monkeypatch.setattr(compiler, "BACKEND", "cuda")
    source = doctor.SQUARE + f"// {uuid.uuid4()}"
    assert problem(compiler.compile_cuda, source).sentence == error.sentence
    assert problem(compiler.prepare, "cuda").sentence == error.sentence


def test_no_room(monkeypatch):
    monkeypatch.setattr(doctor, "DISK_GB", 1e9)
    assert problem(doctor.disk).mend == "make clean"


def test_a_backend_that_does_not_build(monkeypatch):
    monkeypatch.setattr(doctor, "compile_cuda", lambda source: missing())
    error = problem(doctor.backend)
    assert error.sentence == "A kernel cannot be compiled: There is no hammer."
    assert error.mend == "buy hammer"


@pytest.mark.parametrize("kind", [doctor.CompileError, RuntimeError])
def test_a_backend_that_is_broken(monkeypatch, kind):
    def fail(source):
        raise kind("the compiler gave up\nand much more")

    monkeypatch.setattr(doctor, "compile_cuda", fail)
    assert problem(doctor.backend).sentence == "A kernel does not run: the compiler gave up"
