"""`python -m kernels`: the list, and kernel files taken along, as they work where they land.

Without a GPU the written test runs all the same: PyTorch's `load` is replaced by a stand-in that
builds the taken .cu files with the CPU backend.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import setuptools
import torch
from torch.utils import cpp_extension

from helpers.base.machine import ROOT
from helpers.compiler import tools, torch_light
from helpers.compiler.source import host_functions
from helpers.device import BACKEND
from helpers.recorded import RECORDS
from kernels.__main__ import main
from kernels.take import WRITTEN, catalogue, take
from kernels.take import test_of as written_test
from kernels.tests.registers import FILES
from kernels.tests.test_kernels import needs_nvcc

NAMES = [path.stem for path in FILES]
SMALL = "square", "softmax", "matmul_fp8"
ALWAYS = {"load.py", "setup.py", "test_kernels.py", "LICENSE"}

# what the written test finds in the place of a GPU
STAND_IN = """
import sys
from pathlib import Path
import torch
from torch.utils import cpp_extension
from helpers.compiler import compile_cuda

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda.get_device_capability = lambda device=0: (9, 0) if device else (8, 0)

def load(name, sources, extra_cuda_cflags):
    file, binding = map(Path, sources)
    assert binding.name == f"{file.stem}_bind.cpp" and binding.exists()
    of_chips = [flag.partition("=arch=")[2] for flag in extra_cuda_cflags]
    assert of_chips == ["compute_80,code=sm_80", "compute_90a,code=sm_90a"]
    assert file.stem not in built, "it is built once"
    built.add(file.stem)
    return compile_cuda(file)

built = set()
cpp_extension.load = load
sys.path.insert(0, ".")
import test_kernels
test_kernels.DEVICE = "cpu"
tests = {name: value for name, value in vars(test_kernels).items() if name.startswith("test_")}
for name, value in vars(test_kernels).items():
    if name.startswith("LARGE"):
        value.clear()  # for a GPU
assert not built, "importing builds nothing"
for name, test in tests.items():
    test()
    print(name, "passed", flush=True)
"""


def asked(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code of `python -m kernels ...`, and what it wrote."""
    monkeypatch.setattr(sys, "argv", ["kernels", *arguments])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


@pytest.fixture
def kernels(capsys, monkeypatch):
    return lambda *arguments: asked(capsys, monkeypatch, *map(str, arguments))


def one_sentence(said: tuple[int, str, str]) -> str:
    code, out, err = said
    assert code == 2 and not out and err.count("\n") == 1 and err[0] != " "
    return err


def all_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_alone(folder: Path, *command: str) -> subprocess.CompletedProcess:
    """Run Python in a folder that the written files have to do with."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT) if "-c" in command else "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCH_EXTENSIONS_DIR": str(folder / "builds"),
    }
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_list_names_every_file(kernels):
    code, out, err = kernels("list")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    entries = dict(re.findall(r"^(\w+)\.cu (.*\n(?: .*\n)*)", out, re.MULTILINE))
    assert list(entries) == NAMES
    for path in FILES:
        entry = " ".join(entries[path.stem].split())
        for function in host_functions(path.read_text()):
            assert function.hidden or re.search(rf"\b{function.name}\b", entry)
        file = catalogue.kernel_file(path.stem)
        assert entry.startswith(f"({file.notebook}): ")
        assert re.search(r"takes .*(float|int|complex)\d+", entry), "the list names no type"
        record = RECORDS / f"bench_{path.stem}.json"
        if record.exists():
            record = json.loads(record.read_text())
            assert f"{record['device']}: " in entry
            assert entry.count(" × ") >= 1 + (len(record["value"]) > 1)
        else:
            assert "not timed" in entry


def test_best_and_worst_are_those_against_pytorch():
    def work(name, ours, **rivals):
        rows = [{"name": name, "median_ms": ms} for name, ms in {"ours": ours, **rivals}.items()]
        return {"work": name, "rows": rows}

    works = [work("b", 2, PyTorch=3, CUB=1), work("a", 1, PyTorch=4), work("c", 4, PyTorch=3)]
    line = catalogue._speed({"device": "a card", "value": works})
    assert line == "a card: 4.00 × PyTorch (a), at worst 0.75 × PyTorch (c)"
    line = catalogue._speed({"device": "a card", "value": [work("a", 2, flash=4, cuDNN=1)]})
    assert line == "a card: 0.50 × cuDNN (a)"


def test_all_about_one(kernels):
    code, out, _ = kernels("list", "softmax", "square")
    assert code == 0
    head = (ROOT / "kernels" / "softmax.cu").read_text().split("\n//\n")[0].splitlines()[2:]
    assert "\n".join(line.removeprefix("// ") for line in head) in out
    assert "\nTensor softmax_backward(Tensor dout, Tensor out);\n" in out
    assert "\nTensor square(Tensor inp);\n" in out
    record = RECORDS / "bench_softmax.json"
    for work in json.loads(record.read_text())["value"] if record.exists() else []:
        assert f"\n{work['work']} " in out


def test_what_cannot_be_done_is_said_in_a_sentence(kernels, tmp_path):
    for command in (["list", "sofmax"], ["take", "square", "sofmax", "--into", tmp_path / "new"]):
        said = one_sentence(kernels(*command))
        assert "'sofmax'" in said and ", ".join(NAMES) in said
    assert ", ".join(NAMES) in one_sentence(kernels("take", "--into", tmp_path / "new"))
    (tmp_path / "file").write_text("mine")
    assert "file" in one_sentence(kernels("take", "square", "--into", tmp_path / "file"))
    assert all_of(tmp_path) == {"file": b"mine"}
    for command in ([], ["take", "square"]):
        assert kernels(*command)[0] == 2  # argparse's own words


def test_what_is_taken(kernels, tmp_path):
    folder = tmp_path / "a" / "b"
    code, out, err = kernels("take", "softmax", "attention", "--into", folder)
    assert (code, err) == (0, "")
    taken = all_of(folder)
    mine = {f"{name}{end}" for name in ("softmax", "attention") for end in (".cu", "_bind.cpp")}
    assert set(taken) == mine | ALWAYS
    assert all(name in out for name in taken)
    for name in ("softmax.cu", "attention.cu"):
        assert taken[name] == (ROOT / "kernels" / name).read_bytes()
    assert taken["LICENSE"] == (ROOT / "LICENSE").read_bytes()
    for name, text in taken.items():
        assert not re.search(rb"^ *(import|from) (helpers|kernels)\b", text, re.MULTILINE), name
    tests = re.findall(r"^def (test_\w+)", taken["test_kernels.py"].decode(), re.MULTILINE)
    assert tests == ["test_attention", "test_softmax"]

    code, out, _ = kernels("take", "softmax", "--into", folder)
    assert code == 0 and "all is there already" in out and all_of(folder) == taken
    assert kernels("take", "sum", "--into", folder)[0] == 0  # one more, with its test
    more = all_of(folder)
    assert set(more) == set(taken) | {"sum.cu", "sum_bind.cpp"}
    assert {name for name in taken if taken[name] != more[name]} == {"test_kernels.py"}
    assert b"def test_sum" in more["test_kernels.py"]
    assert b"def test_softmax" in more["test_kernels.py"]


@pytest.mark.parametrize("name", ["square.cu", "square_bind.cpp", "test_kernels.py", "LICENSE"])
def test_nothing_of_yours_is_overwritten(kernels, tmp_path, name):
    (tmp_path / name).write_text("mine")
    assert str(tmp_path / name) in one_sentence(kernels("take", "square", "--into", tmp_path))
    assert all_of(tmp_path) == {name: b"mine"}
    take(["softmax"], tmp_path / "more")
    changed = tmp_path / "more" / ("softmax.cu" if name == "square.cu" else name)
    changed.write_text("// mine\n")
    before = all_of(tmp_path / "more")
    taken = ["take", "square", "softmax", "--into", tmp_path / "more"]
    assert str(changed) in one_sentence(kernels(*taken)) or name == "square_bind.cpp"
    assert name == "square_bind.cpp" or all_of(tmp_path / "more") == before


def test_nothing_is_left_where_writing_fails(kernels, tmp_path, monkeypatch):
    write_text = Path.write_text

    def full(path, text, *more):
        if path.name == "setup.py":
            raise OSError(28, "No space left on device")
        return write_text(path, text, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        said = one_sentence(kernels("take", "square", "--into", tmp_path / "a" / "b"))
    assert "No space left" in said and not list(tmp_path.iterdir())


def test_every_function_is_tested():
    parts = ast.parse((WRITTEN / "checks.py").read_text()).body
    tests = {part.name: part for part in parts if getattr(part, "name", "").startswith("test_")}
    assert set(tests) == {f"test_{name}" for name in NAMES}
    for path in FILES:
        named = {
            n.attr for n in ast.walk(tests[f"test_{path.stem}"]) if isinstance(n, ast.Attribute)
        }
        defined = {f.name for f in host_functions(path.read_text()) if not f.hidden}
        assert defined <= named, f"test_{path.stem} does not call {defined - named}"


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU needs no stand-in")
def test_what_is_taken_passes_its_test_without_a_gpu(tmp_path):
    take(NAMES, tmp_path)
    done = run_alone(tmp_path, "-c", STAND_IN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[::2] == [f"test_{name}" for name in NAMES]


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU needs no stand-in")
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("= inp[j] * inp[j]", "= inp[j] * inp[j] * 1.0001f"),
        ("= inp[j] * inp[j]", "= j == 5 ? NAN : inp[j] * inp[j]"),
        ("= inp[j] * inp[j]", "= inp[j] * inp[j]; if (j == 256) out[j] = 0"),
        ("out[j] = ", "if (j + 1 < n) out[j] = "),  # the last is never written
    ],
)
def test_what_is_wrong_does_not_pass(tmp_path, right, wrong):
    take(["square"], tmp_path)
    source = (tmp_path / "square.cu").read_text()
    assert source.count(right) == 1
    (tmp_path / "square.cu").write_text(source.replace(right, wrong))
    done = run_alone(tmp_path, "-c", STAND_IN)
    assert done.returncode == 1 and "AssertionError" in done.stderr, done.stdout + done.stderr


def test_each_test_is_cut_to_what_it_needs():
    """Alone, a test has all names that it uses, and none that it does not."""
    for name in NAMES:
        tree = ast.parse(written_test({name}))
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        for part in tree.body:
            if isinstance(part, ast.Import | ast.ImportFrom):
                bound = {alias.asname or alias.name.split(".")[0] for alias in part.names}
                assert bound & used, f"test of {name}: {ast.unparse(part)}"
        made = {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}
        unused = made - used - {f"test_{name}"}
        assert not unused, f"test of {name} has {unused}, which it does not use"


def test_comparing_lets_neither_nan_nor_another_shape_pass():
    spec = importlib.util.spec_from_file_location("checks", WRITTEN / "checks.py")
    checks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checks)
    right = torch.randn(50, dtype=torch.float64)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        checks.close(right.to(dtype), right)
        for wrong in (torch.nan, torch.inf, right[7] * 1.01 + 0.1):
            got = right.to(dtype)
            got[7] = wrong
            with pytest.raises(AssertionError, match="1 of 50"):
                checks.close(got, right)
    with pytest.raises(AssertionError, match="shape"):
        checks.close(right.float()[None], right)
    with pytest.raises(AssertionError, match="of 50"):
        want = right.clone()
        want[3] = torch.nan
        checks.close(want.float(), want)
    assert checks.run(torch.empty, 100).isnan().all()


def test_without_a_gpu_one_is_asked_for(tmp_path):
    take(["square"], tmp_path)
    hidden = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; from load import square"
    done = run_alone(tmp_path, "-c", hidden)
    assert "square.cu is built for the GPU that is here; PyTorch finds none" in done.stderr
    done = run_alone(tmp_path, "-c", "import load; load.circle")
    assert (
        "AttributeError: circle.cu is not among the kernels beside load.py: square" in done.stderr
    )


@pytest.mark.skipif(BACKEND == "cpu", reason="builds for a GPU, and runs there")
def test_what_is_taken_passes_its_test_on_a_gpu(tmp_path):
    take(SMALL, tmp_path)
    done = run_alone(tmp_path, "test_kernels.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == len(SMALL)


@pytest.mark.skipif(BACKEND == "cpu", reason="builds for GPUs, and runs there")
def test_what_setup_builds_passes_its_test_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    take(["square"], tmp_path)
    done = run_alone(tmp_path, "setup.py", "build", "--build-lib", ".")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_alone(tmp_path, "test_kernels.py", "taken_kernels")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "builds").exists(), "load.py built it"


@needs_nvcc
@pytest.mark.parametrize("name, tensor_cores", [("square", None), ("matmul_fp8", r"\bQGMMA\b")])
def test_a_build_for_many_gpus(tmp_path, monkeypatch, name, tensor_cores):
    """nvcc with the flags that setup.py and PyTorch hand it; the light headers, less optimized."""
    take([name], tmp_path)
    given = {}
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("TORCH_CUDA_ARCH_LIST", "")  # as if it were not set
        patch.setattr(setuptools, "setup", lambda **arguments: given.update(arguments))
        patch.setattr(cpp_extension, "CUDA_HOME", str(tools.cuda_home()))
        exec((tmp_path / "setup.py").read_text(), {"__file__": str(tmp_path / "setup.py")})
        [extension] = given["ext_modules"]
        arch_flags = cpp_extension._get_cuda_arch_flags(extension.extra_compile_args)
    assert extension.name == f"taken_kernels.{name}"
    assert extension.sources == [f"{name}.cu", f"{name}_bind.cpp"]
    assert len({Path(source).stem for source in extension.sources}) == 2  # objects of their own
    made = tmp_path / "made.fatbin"
    command = [tools.cuda_home() / "bin" / "nvcc", "-fatbin", *arch_flags]
    command += ["-Xcicc=-O1", "-Xptxas=-O1"]
    command += [*cpp_extension.COMMON_NVCC_FLAGS, "-std=c++17", "-DTORCH_LIGHT_CUDA"]
    command += [f"-I{folder}" for folder in torch_light.FOR_NVCC]
    command += [f"-isystem={folder}" for folder in cpp_extension.include_paths()]
    (tmp_path / "unit.cu").write_text(
        torch_light.preamble((tmp_path / f"{name}.cu").read_text()) + f'#include "{name}.cu"\n'
    )
    subprocess.run([*command, tmp_path / "unit.cu", "-o", made], check=True)

    def show(option):
        return subprocess.run(
            [tools.cuobjdump(), option, made], capture_output=True, text=True, check=True
        ).stdout

    assert re.findall(r"\.(sm_\w+)\.cubin", show("-lelf")) == ["sm_75", "sm_80", "sm_90a"]
    assert re.findall(r"\.(sm_\w+)\.ptx", show("-lptx")) == ["sm_80"], "for later GPUs"
    assert tensor_cores is None or re.search(tensor_cores, show("-sass"))


LIKE_PYTORCH = """#pragma once
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>
namespace torch {
struct Tensor {};
template <typename R, typename... A> int wrap_pybind_function(R (*)(A...)) {
    return sizeof...(A);
}
}
namespace py { struct arg { arg(const char*); }; }
struct module_ {
    template <typename... A> void def(const char*, int arguments, A... names);
};
#define PYBIND11_MODULE(name, m) void name(module_ m)
"""


def test_the_bindings_are_cpp(tmp_path):
    """By the C++ compiler, over what they use of PyTorch's headers, all in one."""
    take(NAMES, tmp_path)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "extension.h").write_text(LIKE_PYTORCH)
    unit = "#include <torch/extension.h>\n"
    for name in NAMES:
        unit += f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {name}_module\n"
        unit += f'namespace in_{name} {{\n#include "{name}_bind.cpp"\n}}\n'
    (tmp_path / "unit.cpp").write_text(unit)
    command = [tools.host_compiler(), "-std=c++17", "-fsyntax-only", "-I.", "unit.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        binding = (tmp_path / f"{name}_bind.cpp").read_text()
        for function in host_functions((tmp_path / f"{name}.cu").read_text()):
            if not function.hidden:
                named = re.search(rf'"{function.name}",.*?\);', binding, re.DOTALL)[0]
                count = len(function.schema.partition(" -> ")[0].split(","))
                assert named.count("py::arg(") == count
