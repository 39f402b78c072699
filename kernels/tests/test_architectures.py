"""The kernel files as others build them: for one GPU, for several, for an older one than runs them.

A build for 7.5 and its PTX runs on an H100 too, one for 9.0 lacks what only 9.0a has. In each of
them a kernel that the host can launch has to work, or to stop the program; none may do nothing.
"""

import re
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from kernels.tests import architectures
from kernels.tests.architectures import EARLY, OF_90A, by_nvcc, kinds
from kernels.tests.registers import FILES
from kernels.tests.test_kernels import call_of, needs_nvcc

FOR_90A = [path for path in FILES if OF_90A in path.read_text()]
LAUNCHED_EARLY = re.compile(
    r"\blaunch\((?!false\b)\w+, (\w+_kernel)\b|cudaLaunchKernelEx\(\s*&config, (\w+_kernel)\b"
)


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


def found_in(path: Path, arch: str) -> architectures.Found:
    found = architectures.found_in(path, arch)
    if found is None:
        pytest.skip("there is no nvcc, and no record of this version of the file")
    return found


@named(FOR_90A)
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)], ids=lambda c: f"sm_{c[0]}{c[1]}")
def test_the_call_in_the_head_builds_all_that_the_gpu_has(path, capability, tmp_path, monkeypatch):
    """Over the light headers, which take a tenth of the time: the kernels are the same."""
    source, flags = flags_in_the_head(path, capability, tmp_path, monkeypatch)
    assert path.read_text() in source
    [arch] = built(flags)
    assert arch == ("sm_90a" if capability == (9, 0) else f"sm_{capability[0]}{capability[1]}")
    assert found_in(path, arch).wgmma == (capability == (9, 0))


@named(FOR_90A)
def test_a_build_for_many_gpus_has_all_of_90a(path, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5;8.0;9.0a+PTX")
    archs = built(cpp_extension._get_cuda_arch_flags([]))
    assert archs == ["sm_75", "sm_80", "sm_90a"]
    assert found_in(path, "sm_90a").wgmma


@named(FOR_90A)
def test_the_head_says_what_the_environment_has_to(path):
    head = path.read_text().split("\n#include")[0]
    assert '"9.0a"' in head and "TORCH_CUDA_ARCH_LIST" in head.replace("\n// ", " ")
    assert f'TORCH_WARN_ONCE("{path.stem}: built without sm_90a' in path.read_text()


@pytest.mark.parametrize(
    "path, arch",
    [(path, arch) for path in FILES for arch in kinds(path)],
    ids=lambda value: getattr(value, "stem", value),
)
def test_no_kernel_is_empty(path, arch):
    """Of the architectures that a file's own conditions do not tell apart, one.

    What CUDA's headers have for one and not for another is left out, and what a part of a kernel
    does: that is for the tests that run it.
    """
    assert not found_in(path, arch).empty


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
    assert by_nvcc(source, "sm_75").empty == {"empty_kernel"}
    assert not by_nvcc(source, "sm_80").empty


@named([path for path in FILES if EARLY in path.read_text()])
def test_what_may_begin_early_waits(path):
    """A kernel that begins before the last one has ended says where it needs what that wrote."""
    early = {first or second for first, second in LAUNCHED_EARLY.findall(path.read_text())}
    found = found_in(path, "sm_90")
    waiting, eager = (
        {name.partition("<")[0] for name in names} for names in (found.waiting, found.eager)
    )
    assert early and early <= waiting
    assert not early & eager


@needs_nvcc
def test_a_kernel_that_waits_is_found():
    source = f"""  // {EARLY}
    __global__ void waiting_kernel(float* out) {{
    #if __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.wait;" ::: "memory");
    #endif
        *out = 1;
    }}
    __global__ void eager_kernel(float* out) {{ *out = 1; }}
    """
    found = by_nvcc(source, "sm_90")
    assert (found.waiting, found.eager) == ({"waiting_kernel"}, {"eager_kernel"})
    assert by_nvcc(source, "sm_80").eager == {"waiting_kernel", "eager_kernel"}


def test_what_nvcc_makes_is_recorded():
    due = {
        (path.stem, arch, architectures.source_of(path)) for path in FILES for arch in kinds(path)
    }
    assert set(architectures.recorded()) == due, (
        "architectures.csv is of other versions of the files: python -m kernels.tests.architectures"
    )
