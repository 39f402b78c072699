"""The kernel files as others build them: for one GPU, for several, for an older one than runs them.

A build for 7.5 and its PTX runs on an H100 too, one for 9.0 lacks what only 9.0a has. In each of
them a kernel that the host can launch has to work, or to stop the program; none may do nothing.
"""

import functools
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from helpers.compiler import device_code, tools
from helpers.compiler.device_code import kernel_name
from kernels.tests.registers import FILES, as_one_unit
from kernels.tests.test_kernels import call_of, needs_nvcc

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
OF_90A = "__CUDA_ARCH_FEAT_SM90_ALL"
FOR_90A = [path for path in FILES if OF_90A in path.read_text()]
FOR_SOME = [path for path in FILES if "__CUDA_ARCH" in path.read_text()]
EARLY = "cudaLaunchAttributeProgrammaticStreamSerialization"
LAUNCHED_EARLY = re.compile(
    r"\blaunch\((?!false\b)\w+, (\w+_kernel)\b|cudaLaunchKernelEx\(\s*&config, (\w+_kernel)\b"
)
UNROLL = re.compile(r"#pragma unroll\b.*")
WGMMA = re.compile(r"\b[HIQ]GMMA\b")  # of floats, of integers, of 8-bit floats


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def flags_in_the_head(path: Path, capability: tuple[int, int], folder: Path, monkeypatch):
    """Run the call in the head as on a GPU of this capability; return (source, flags) for nvcc."""
    (folder / path.name).write_text(path.read_text())
    given = {}

    def build(name, sources, extra_cflags, extra_cuda_cflags, *rest, **more):
        given[name] = Path(sources[-1]).read_text(), extra_cuda_cflags

    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        patch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        patch.setattr(cpp_extension, "_jit_compile", build)
        exec(call_of(path), {})
    source, flags = given[path.stem]
    return source, cpp_extension._get_cuda_arch_flags(flags) + flags


def built(flags: list[str]) -> list[str]:
    """Return the machine code, "sm_90a", that flags ask nvcc for, from PTX of the same version."""
    codes = []
    for flag in flags:
        virtual, real = re.fullmatch(r"-gencode=arch=compute_(\w+),code=(\w+)", flag).groups()
        assert real in (f"sm_{virtual}", f"compute_{virtual}")
        codes += [real] if real.startswith("sm_") else []
    return codes


def ptx_of(source: str, arch: str) -> Path:
    """Compile with each loop as it stands: half the time, and what has no effect is left out."""
    return device_code.compiled(UNROLL.sub("#pragma unroll 1", source), arch, "-ptx")


@functools.cache
def has_wgmma(path: Path) -> bool:
    """Let ptxas go on from the PTX that other tests read: half the time of a build from the start.

    Less optimized: the instructions for tensor cores are the same.
    """
    ptx = ptx_of(path.read_text(), "sm_90a")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "code.cubin")
        command = [tools.cuda_home() / "bin" / "ptxas", "-arch=sm_90a", "-O1", "-o", cubin, ptx]
        subprocess.run(command, check=True, capture_output=True)
        return bool(WGMMA.search(device_code._printed(str(tools.cuobjdump()), "-sass", str(cubin))))


@needs_nvcc
@named(FOR_90A)
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)], ids=lambda c: f"sm_{c[0]}{c[1]}")
def test_the_call_in_the_head_builds_all_that_the_gpu_has(path, capability, tmp_path, monkeypatch):
    """Over the light headers, which take a tenth of the time: the kernels are the same."""
    source, flags = flags_in_the_head(path, capability, tmp_path, monkeypatch)
    assert path.read_text() in source
    [arch] = built(flags)
    assert arch == ("sm_90a" if capability == (9, 0) else f"sm_{capability[0]}{capability[1]}")
    if capability == (9, 0):
        assert has_wgmma(path)
    else:
        ptx_of(path.read_text(), arch)


@needs_nvcc
@named(FOR_90A)
def test_a_build_for_many_gpus_has_all_of_90a(path, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5;8.0;9.0a+PTX")
    archs = built(cpp_extension._get_cuda_arch_flags([]))
    assert archs == ["sm_75", "sm_80", "sm_90a"]
    assert has_wgmma(path)


@named(FOR_90A)
def test_the_head_says_what_the_environment_has_to(path):
    head = path.read_text().split("\n#include")[0]
    assert '"9.0a"' in head and "TORCH_CUDA_ARCH_LIST" in head.replace("\n// ", " ")
    assert f'TORCH_WARN_ONCE("{path.stem}: built without sm_90a' in path.read_text()


def distinct(path: Path) -> list[str]:
    """Return the first of ARCHS of each kind that the file's conditions tell apart."""
    text, kinds = path.read_text(), {}
    known = re.compile(rf"defined\(__CUDA_ARCH__\)|__CUDA_ARCH__ (?:<|>=) (\d+)|{OF_90A}")
    assert "__CUDA_ARCH" not in known.sub("", text), "a condition of a kind not known here"
    bounds = [int(bound) for bound in known.findall(text) if bound]
    for arch in ARCHS:
        number = int(re.search(r"\d+", arch)[0]) * 10
        kind = (*(number >= bound for bound in bounds), OF_90A in text and arch == "sm_90a")
        kinds.setdefault(kind, arch)
    return list(kinds.values())


def bodies(ptx: Path) -> dict[str, str]:
    """Return the instructions of each kernel."""
    text = re.sub(r"//.*", "", ptx.read_text())
    found = re.findall(r"^(?:\.visible |\.weak )?\.entry (\w+)\(.*?^\{(.*?)^\}", text, re.M | re.S)
    assert len(found) == text.count(".entry ") > 0
    return dict(found)


def empty(ptx: Path) -> set[str]:
    """Return the kernels that do nothing: no instruction but the last one."""
    instruction = re.compile(r"^\s*(?:@!?%\w+ )?([a-z][\w.]*).*;", re.MULTILINE)
    return {
        kernel_name(name)
        for name, body in bodies(ptx).items()
        if set(instruction.findall(body)) <= {"ret", "exit"}
    }


@needs_nvcc
@pytest.mark.parametrize(
    "path, arch",
    [(path, arch) for path in FOR_SOME for arch in distinct(path)],
    ids=lambda value: getattr(value, "stem", value),
)
def test_no_kernel_is_empty(path, arch):
    """Of the ARCHS that a file's own conditions do not tell apart, one: the others read the same.

    What CUDA's headers have for one and not for another is left out, and what a part of a kernel
    does: that is for the tests that run it.
    """
    assert not empty(ptx_of(path.read_text(), arch))


@needs_nvcc
def test_no_kernel_is_empty_in_files_that_ask_for_no_architecture():
    unit = as_one_unit([path for path in FILES if path not in FOR_SOME])
    assert not empty(ptx_of(unit, ARCHS[0]))


@needs_nvcc
def test_an_empty_kernel_is_found():
    source = """
    __global__ void full_kernel(float* out) { *out = 1; }
    __global__ void empty_kernel(float* out) {
    #if __CUDA_ARCH__ >= 800
        *out = 1;
    #endif
    }
    """
    assert empty(ptx_of(source, "sm_75")) == {"empty_kernel"}
    assert not empty(ptx_of(source, "sm_80"))


@needs_nvcc
@named([path for path in FILES if EARLY in path.read_text()])
def test_what_may_begin_early_waits(path):
    """A kernel that begins before the last one has ended says where it needs what that wrote."""
    early = {first or second for first, second in LAUNCHED_EARLY.findall(path.read_text())}
    kernels = bodies(ptx_of(path.read_text(), "sm_90"))
    found = {kernel_name(name): body for name, body in kernels.items()}
    early_ones = {name for name in found if name.partition("<")[0] in early}
    assert {name.partition("<")[0] for name in early_ones} == early != set()
    assert not [name for name in early_ones if "griddepcontrol.wait" not in found[name]]
