"""compile_cuda: right, cached, never stuck, and clear about what is wrong."""

import ast
import io
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from helpers import recorded
from helpers.base.called_kernels import called_kernels, versions
from helpers.base.machine import ROOT
from helpers.compiler import (
    CompileError,
    compile_cuda,
    device_code,
    main_loop,
    main_loop_code,
    ptx,
    resource_usage,
    sass,
    tools,
    torch_light,
)
from helpers.compiler import build as compiler
from helpers.compiler import errors as compile_errors
from helpers.compiler.flags import FLAGS, NVCC_DEFINES
from helpers.compiler.source import kernel_version
from helpers.cuda_on_cpu import Cache, CpuBackend
from helpers.cuda_on_cpu.cache import builder
from helpers.device import BACKEND, DEVICE
from helpers.tests.cuda_driver import need

needs_nvcc = pytest.mark.skipif(
    not any((home / "bin" / "nvcc").exists() for home in tools._cuda_homes()), reason="no nvcc"
)
on_cpu = pytest.mark.skipif(BACKEND == "cuda", reason="for the CPU backend")

SQUARE = r"""// kernels/square.cu
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void square_kernel(scalar_t* out, const scalar_t* inp, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = inp[i] * inp[i];
}

torch::Tensor square(torch::Tensor inp) {
  TORCH_CHECK(inp.is_contiguous(), "expected a contiguous inp");
  auto out = torch::empty_like(inp);
  int64_t n = inp.numel();
  if (n == 0) return out;
  AT_DISPATCH_FLOATING_TYPES(inp.scalar_type(), "square", [&] {
    square_kernel<<<(n + 255) / 256, 256>>>(out.data_ptr<scalar_t>(), inp.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""


def unique(source: str) -> str:
    """Return the string as one that nobody has compiled yet."""
    return f"{source}\n// {uuid.uuid4()}\n"


def python(code: str, wait: bool = True, **environment):
    """Run Python code from the repository in a new process."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if not wait:
        return process
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out


def compile_error(source: str, functions=None) -> str:
    with pytest.raises(CompileError) as caught:
        compile_cuda(source, functions)
    return str(caught.value)


# ------------------------------------------------------------------------------------ functions


@pytest.mark.parametrize("shape", [(0,), (1,), (255,), (1823, 7), (3, 5, 17)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_square(shape, dtype):
    x = torch.randn(shape, dtype=dtype, device=DEVICE)
    y = compile_cuda(SQUARE).square(x)
    assert y.shape == x.shape and y.dtype == dtype
    torch.testing.assert_close(y.double(), x.double() ** 2, rtol=1e-6, atol=0)


def test_a_file_and_its_name_in_messages(tmp_path):
    path = tmp_path / "square.cu"
    path.write_text(SQUARE)
    x = torch.randn(5, device=DEVICE)
    assert torch.equal(compile_cuda(path).square(x), x * x)
    path.write_text(SQUARE.replace("numel()", "numbers()"))
    assert re.match("line 13: .*no member", compile_error(path))


FUNCTIONS = r"""
static torch::Tensor hidden(torch::Tensor x) { return x; }
std::string hello_worl() { return "Hello World!"; }
// torch::Tensor commented(torch::Tensor x) { return x; }
const char* text = "torch::Tensor quoted(torch::Tensor x) { return x; }";
namespace inside { torch::Tensor in_namespace(torch::Tensor x) { return x; } }
template <class T> torch::Tensor any(torch::Tensor x) { return x; }
torch::Tensor first(torch::Tensor x) {
  auto lambda = [](torch::Tensor y) { return y; };
  return lambda(inside::in_namespace(any<int>(hidden(x))));
}
void
second(const torch::Tensor& x,  // a comment, with a comma
       int n = 3)
{
  char brace = '{';
}
torch::Tensor declared(torch::Tensor x);
void helper(torch::Tensor x, const char* name) {}
extern "C" void in_c(torch::Tensor x) {}
"""


def test_functions_are_found():
    mod = compile_cuda(FUNCTIONS)
    assert sorted(vars(mod)) == ["first", "in_c", "second"]
    assert repr(mod) == "<compiled: first, second, in_c>"
    with pytest.raises(AttributeError, match="no function frist was compiled; there is first, sec"):
        _ = mod.frist
    x = torch.randn(3, device=DEVICE)
    assert torch.equal(mod.first(x), x) and mod.second(x, 3) is None


def test_functions_are_chosen():
    assert compile_cuda(FUNCTIONS, ["hello_worl"]).hello_worl() == "Hello World!"
    said = compile_error(FUNCTIONS, ["hello_world"])
    assert said.startswith("no function hello_world in the string; found: hello_worl, first, ")
    said = compile_error(FUNCTIONS, ["hidden"])
    assert "no function hidden in the string (line 2: hidden is static, which hides it fro" in said
    assert "no host function in the string takes or returns" in compile_error("int f() {}")
    assert compile_error("../kernels/sum.cu").endswith("name; it is Path('../kernels/sum.cu')")
    twice = "void f(torch::Tensor x) {}\nvoid f(torch::Tensor x, int n) {}"
    assert compile_error(twice) == "line 2: f is there twice; rename one"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("static torch::Tensor f(torch::Tensor x) { return x; }", "f is static, which hides it"),
        ("inline void f(torch::Tensor x) {}", "f is inline, which hides it"),
        ("namespace a { namespace b {} void f(at::Tensor x) {} }", "f stands in namespace a, and"),
        ("namespace a {} namespace { void f(at::Tensor x) {} }", "f stands in namespace, and"),
        ('extern "C" { void f(torch::Tensor x) {} }', 'f stands in extern "C" { }, and Python'),
        ("template <class T> void f(torch::Tensor x) {}", "f is a template: let a function that"),
        ("struct S { static void f(torch::Tensor x) {} };", "f is a member of S, and Python"),
        ("struct S { void f(at::Tensor); }; void S::f(at::Tensor x) {}", "f is a member of S, and"),
        ("torch::Tensor f(torch::Tensor x);", "f is declared, but has no body"),
        ("auto f(torch::Tensor x) { return x; }", "f returns auto: write the type for Python"),
    ],
)
def test_why_a_function_is_out_of_pythons_reach(source, why):
    assert compile_error(f"\n{source}").startswith(f"line 2: {why}")
    if "auto" not in source:
        expected = f"no function f in the string (line 2: {why}"
        assert compile_error(f"\n{source}", ["f"]).startswith(expected)


def test_a_result_may_stand_behind_the_arguments():
    same, x = (
        compile_cuda("auto f(torch::Tensor x) -> torch::Tensor { return x; }").f,
        torch.ones(2),
    )
    assert torch.equal(same(x.to(DEVICE)).cpu(), x)


@pytest.mark.parametrize("coded", ["utf-8-sig", "latin-1"])
def test_files_of_windows_editors_and_bytes(coded, tmp_path):
    path = tmp_path / "größer ü.cu"
    text = SQUARE + f"// größer, {coded}\n"
    path.write_bytes(text.replace("\n", "\r\n").encode(coded))
    x = torch.randn(5, device=DEVICE)
    assert torch.equal(compile_cuda(path).square(x), x * x)
    assert torch.equal(compile_cuda(path.read_bytes()).square(x), x * x)
    assert torch.equal(compile_cuda("\ufeff" + text).square(x), x * x)
    assert compiler.source_of(compile_cuda(path).square) == (text, "größer ü.cu")


def test_what_is_no_code_is_told_by_its_type():
    with pytest.raises(TypeError, match="expected a CUDA string, or a file's Path, got int"):
        compile_cuda(3)


COPIED = r"""
#include <torch/extension.h>
torch::Tensor fill(torch::Tensor x, double value) { return x.clone().fill_(value); }
static void zero(torch::Tensor x) { x.zero_(); }
#define STRING(s) #s
#define BIND(function) \
  m.def(STRING(function), &function, STRING(function));
"""
BY_MACRO = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { BIND(fill) BIND(zero) }"
BY_NAME = """PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("fill", &fill, "what it does, "
        "and how (\\"CUDA\\")");  // a comment
  m.def("clear", zero);
}"""
BY_MORE = """PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("fill", &fill, py::arg("x"), py::arg("value") = 7);
  m.def("size", [](torch::Tensor x) { return x.numel(); });
}"""


@pytest.mark.parametrize(("module", "second"), [(BY_MACRO, "zero"), (BY_NAME, "clear")])
def test_the_light_headers_bind_what_an_extensions_module_does(module, second, monkeypatch):
    build = compiler._build

    def build_quickly(library, planned):
        assert not planned.is_module, "all of PyTorch's headers, which take a minute"
        return build(library, planned)

    monkeypatch.setattr(compiler, "_build", build_quickly)
    both = compile_cuda(unique(COPIED + module))
    x = torch.ones(3, device=DEVICE)
    assert vars(both).keys() == {"fill", second} and both.fill(x, 2).tolist() == [2, 2, 2]
    getattr(both, second)(x)
    assert x.tolist() == [0, 0, 0]
    assert vars(compile_cuda(COPIED + module, ["fill"])).keys() == {"fill"}
    said = compile_error(COPIED + module, ["fil"])
    assert said == f"line 8: no function fil in the PYBIND11_MODULE; found: fill, {second}"


def test_a_module_that_binds_more_needs_pytorchs_own_headers(monkeypatch):
    built = []

    def build(library, build):
        built.append(build)
        return SimpleNamespace()

    monkeypatch.setattr(compiler, "_load", lambda library, build: None)
    monkeypatch.setattr(compiler, "_build", build)
    compile_cuda(unique(COPIED + BY_MORE))
    assert [(b.is_module, b.has_own_module, b.names) for b in built] == [(True, True, [])]
    assert "PYBIND11_MODULE" in built[0].compiled


# ---------------------------------------------------------------------------------------- cache


def test_an_unchanged_string_is_loaded_once():
    assert compile_cuda(SQUARE) is compile_cuda(SQUARE)


def test_a_cell_can_be_changed_and_run_again():
    x = torch.randn(9, device=DEVICE)
    cube = SQUARE.replace("inp[i] * inp[i]", "inp[i] * inp[i] * inp[i]")
    first, second = compile_cuda(SQUARE), compile_cuda(cube)
    assert torch.equal(first.square(x), x * x)
    assert torch.equal(second.square(x), x * x * x)


def test_special_functions_are_there_for_strings_that_name_them():
    named = """
    #include <cmath>
    double host(torch::Tensor x) {
        return std::cyl_bessel_j(1, x.item<double>()) + std::beta(2.0, 3.0);
    }
    """
    x = torch.tensor(0.5, dtype=torch.float64)
    exact = torch.special.bessel_j1(x) + 1 / 12  # beta(a, b) = (a - 1)! (b - 1)! / (a + b - 1)!
    assert compile_cuda(named).host(x) == pytest.approx(exact.item())


NOTHING_WAS_BUILT = """
assert "torch.utils.cpp_extension" not in sys.modules  # not even the means to build
"""
WARM = f"""
import sys, time, torch
from helpers.compiler import compile_cuda
from helpers.tests.test_compiler import SQUARE
x = torch.ones(3, device="{BACKEND}")
start = time.perf_counter()
square = compile_cuda(SQUARE).square
print(time.perf_counter() - start)
assert torch.equal(square(x), x)
{NOTHING_WAS_BUILT}"""


def test_warm_in_a_new_process():
    compile_cuda(SQUARE)
    assert any(float(python(WARM)) < 0.1 for _ in range(2))  # once more if the first was held up


def test_whatever_changes_the_library_changes_its_name(monkeypatch):
    def name():
        functions, _ = compiler._choose(SQUARE, None)
        return compiler._plan(SQUARE, "cell", functions).library

    before = name()
    assert name() == before
    monkeypatch.setattr(compiler, "_headers", lambda: "other headers")
    assert name() != before
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__version__", "2.99")
    assert name() != before
    monkeypatch.undo()
    monkeypatch.setattr(tools, "identity", lambda: "another compiler")
    assert name() != before
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "_processor", lambda: "another processor")
    assert (name() != before) == (BACKEND == "cpu")


@pytest.mark.parametrize(
    ("chip", "arch"), [((7, 5), "75"), ((8, 0), "80"), ((9, 0), "90a"), ((10, 0), "100a")]
)
def test_only_chips_that_have_special_instructions_get_their_own_architecture(
    monkeypatch, chip, arch
):
    monkeypatch.setattr(device_code, "BACKEND", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: chip)
    assert device_code.gpu_arch("wgmma.mma_async") == arch
    assert device_code.gpu_arch("mma.sync") == arch.removesuffix("a")


def test_a_library_that_no_longer_loads_is_built_again():
    source = unique(SQUARE)
    functions, _ = compiler._choose(source, None)
    build = compiler._plan(source, "cell", functions)
    broken = tools.BUILDS.folder / build.library / "broken.so"
    broken.parent.mkdir()
    broken.write_bytes(b"not a library")
    x = torch.randn(5, device=DEVICE)
    assert torch.equal(compile_cuda(source).square(x), x * x)


def test_a_build_is_announced_once(capfd):
    source = unique(SQUARE)
    compile_cuda(source, announce="Building a square")
    assert re.fullmatch(r"Building a square … \d+ s\n", capfd.readouterr().err)
    compile_cuda(source, announce="Building a square")
    assert capfd.readouterr().err == ""


def test_strings_that_differ_in_what_is_for_nvcc_only_are_two_versions():
    first = unique(SQUARE + "#ifdef __CUDACC_VER_MAJOR__\n#define FOR_NVCC 1\n#endif\n")
    second = first.replace("FOR_NVCC 1", "FOR_NVCC 2")
    squares = [compile_cuda(source).square for source in (first, second)]
    assert squares[0].kernel_versions != squares[1].kernel_versions
    assert [compiler.source_of(square)[0] for square in squares] == [first, second]


COMPILE = """
import sys, torch
from helpers.compiler import compile_cuda
x = torch.ones(3, device="{backend}")
assert torch.equal(compile_cuda({source!r}).square(x), x)
"""


def test_a_killed_build_blocks_nothing():
    source = unique(SQUARE)
    code = COMPILE.format(backend=BACKEND, source=source)
    process = python(code, wait=False)
    pattern = f"{builder(process.pid)}.*/build.ninja"
    deadline = time.monotonic() + 60
    while not list(tools.BUILDS.folder.glob(pattern)):  # until the compiler is at work
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(tools.BUILDS.folder.glob(f"{builder(process.pid)}.*"))
    x = torch.randn(5, device=DEVICE)
    assert torch.equal(compile_cuda(source).square(x), x * x)
    deadline = time.monotonic() + 60
    while list(tools.BUILDS.folder.glob(f"{builder(process.pid)}.*")):
        assert time.monotonic() < deadline
        tools.BUILDS.remove_dead_builds()
        time.sleep(0.1)


def assert_short_traceback(error):
    """The lines before the message are at most six, none of them PyTorch's."""
    lines = "".join(traceback.format_exception(error)).split(str(error))[0].splitlines()
    assert len(lines) <= 7 and "/torch/" not in "".join(lines[:-1]), (
        lines
    )  # the last is the message's


def test_an_error_has_a_short_traceback():
    with pytest.raises(CompileError) as raised:
        compile_cuda(SQUARE.replace("blockDim", "blockDimm"))
    assert_short_traceback(raised.value)


def test_an_error_of_a_kernel_has_a_short_traceback():
    with pytest.raises(RuntimeError, match="expected a contiguous inp") as raised:
        compile_cuda(SQUARE).square(torch.ones(3, 2, device=DEVICE).t())
    assert_short_traceback(raised.value)


def test_an_index_with_a_comma_is_warned_of():
    source = SQUARE + "__global__ void k(float** a, int i) { a[i, 2] = a[f(i, 1)]; }\n"
    said = f"line {source.count(chr(10))}: a[i, 2] is a[2] in C++: write a[i][2], or compute one"
    with pytest.warns(UserWarning, match=re.escape(said)) as warned, pytest.raises(CompileError):
        compile_cuda(source)
    assert len(warned) == 1 and warned[0].filename == __file__


ENDLESS = """
__global__ void wait_kernel(volatile float* x) { while (x[1] == 0) {} }
__global__ void fill_kernel(float* x) { x[threadIdx.x] = 3; }
void wait(torch::Tensor x) { wait_kernel<<<4, 32>>>(x.data_ptr<float>()); }
void fill(torch::Tensor x) { fill_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""


@on_cpu
@pytest.mark.parametrize("check", [False, True])
def test_ctrl_c_ends_a_kernel_that_does_not(check):
    functions, x = compile_cuda(ENDLESS, check=check), torch.zeros(32)
    functions.fill(x)
    handler = signal.getsignal(signal.SIGINT)
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as raised:
        functions.wait(torch.zeros(32))
    said = "KeyboardInterrupt: stopped in wait_kernel"
    assert raised.value._render_traceback_() == [said]
    assert_short_traceback(raised.value)
    assert signal.getsignal(signal.SIGINT) is handler
    functions.fill(x.zero_())
    assert x.eq(3).all()


@on_cpu
def test_a_long_string_is_translated_once_for_each_way_and_each_translator(monkeypatch):
    source = f"{SQUARE}// {uuid.uuid4()} –\r" + "/" * compiler._LONG
    texts = [compiler._translate(source, check, False, False) for check in (False, True)]
    assert texts == [compiler.cuda_on_cpu.translate(source, check) for check in (False, True)]
    monkeypatch.setattr(compiler.cuda_on_cpu, "translate", lambda source, *how: "anew")
    assert texts == [compiler._translate(source, check, False, False) for check in (False, True)]
    monkeypatch.setattr(compiler, "_translator", lambda: "another translator")
    assert compiler._translate(source, False, False, False) == "anew"
    assert compiler._translate(SQUARE, False, False, False) == "anew"  # short: not kept


def test_an_interrupted_build_can_be_repeated(monkeypatch):
    from torch.utils import cpp_extension

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    source = unique(SQUARE)
    monkeypatch.setattr(cpp_extension, "_run_ninja_build", interrupt)
    with pytest.raises(KeyboardInterrupt) as raised:
        compile_cuda(source)
    said = "KeyboardInterrupt: the build of this string was stopped"
    assert raised.value._render_traceback_() == [said]
    assert_short_traceback(raised.value)
    assert not list(tools.BUILDS.folder.glob(f"{builder(os.getpid())}.*"))
    monkeypatch.undo()
    x = torch.randn(5, device=DEVICE)
    assert torch.equal(compile_cuda(source).square(x), x * x)
    python(COMPILE.format(backend=BACKEND, source=source) + NOTHING_WAS_BUILT)


def test_builds_of_other_machines_and_containers_are_left_alone(tmp_path):
    dead = 2**22 + 1  # more than any process's number
    begin, name = builder(dead), platform.node()
    space = begin.split(".")[-2]
    other_machine = begin.replace(name, f"{name}.local", 1)
    other_container = begin.replace(f".{space}.", f".{space}1.")
    for unfinished in (begin, other_machine, other_container):
        (tmp_path / f"{unfinished}.abc").mkdir()
    Cache(tmp_path).remove_dead_builds()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"{other_machine}.abc", f"{other_container}.abc"}


def test_two_processes_build_the_same_string():
    code = COMPILE.format(backend=BACKEND, source=unique(SQUARE))
    processes = [python(code, wait=False) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert not any(list(tools.BUILDS.folder.glob(f"{builder(p.pid)}.*")) for p in processes)


def test_one_place_calls_load_inline():
    places = []
    for path in (ROOT / "helpers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if "tests" not in path.parts else []:
            name = getattr(node, "func", None)
            if getattr(name, "id", getattr(name, "attr", None)) == "load_inline":
                places.append(path.name)
    assert places == ["build.py"]


# ---------------------------------------------------------------------------------------- errors

LAUNCH = "    square_kernel<<<(n + 255) / 256, 256>>>("


@on_cpu
def test_an_unknown_name():
    said = compile_error(SQUARE.replace("inp[i] * inp[i]", "inp[i] * imp[i]"))
    assert re.match("line 7: .*'imp'.*did you mean 'inp'", said)
    assert said.splitlines()[1:] == [
        "  7 |   if (i < n) out[i] = inp[i] * imp[i];",
        "    |                                ^",
    ]


@on_cpu
def test_a_rewritten_launch_is_shown_as_it_was_written():
    said = compile_error(SQUARE.replace(LAUNCH + "out.", LAUNCH + "outt."))
    line = SQUARE.splitlines()[15].replace("(out.", "(outt.")
    assert re.match("line 16: .*'outt'", said)
    assert said.splitlines()[1:3] == [f"  16 | {line}", f"     | {' ' * line.index('outt')}^"]


@on_cpu
def test_a_missing_semicolon_is_shown_where_it_is_missing():
    said = compile_error(SQUARE.replace("inp.numel();", "inp.numel()"))
    assert "\n  13 |   int64_t n = inp.numel()\n" in said  # g++ complains of line 14


@on_cpu
@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("< n) out", "< n out", 7),
        ("return out;\n}", "return out;\n", 10),  # the { that is never closed
        ("torch::Tensor square", "torch::Tenor square", 10),
    ],
)
def test_what_the_scanner_cannot_read_is_left_to_the_compiler(right, wrong, line):
    said = compile_error(SQUARE.replace(right, wrong))
    assert re.match(f"line {line}: ", said) and "no host function" not in said


def test_types_that_python_does_not_have():
    source = "void f(torch::Tensor x, float* p) {}\nvoid g(torch::Tensor x) {}"
    assert vars(compile_cuda(source)).keys() == {"g"}
    assert re.match("line 1: f has an argument or a result that", compile_error(source, ["f"]))
    only = source.split("\n")[0]
    assert re.match("line 1: f has an argument or a result that", compile_error(only))


@on_cpu
def test_a_header_that_is_not_there():
    said = compile_error("#include <cutlass.h>\n" + SQUARE)
    assert re.match("line 1: .*cutlass.h.*(No such|not found).*\n  1 . #include <cutlass.h>", said)


@on_cpu
def test_a_name_that_only_the_full_headers_have():
    said = compile_error("void f(torch::Tensor x) {\n  torch::stft(x, 3);\n}")
    assert re.match("line 2: .*'stft'.*'torch'", said)
    assert "Hint: if PyTorch has it, put #include <torch/extension.h>" in said


@on_cpu
def test_a_function_without_a_definition():
    declaration = "// helper\n__device__ float helper(float);\n"
    declared = SQUARE.replace("template <", declaration + "template <", 1)
    said = compile_error(declared.replace("inp[i] *", "helper(inp[i]) *"))
    assert said.startswith("line 5: helper(float) is declared but never defined\n  5 | __device__")


@on_cpu
def test_what_the_cpu_backend_cannot_do():
    said = compile_error(SQUARE.replace("out[i] =", "cute::print(n); out[i] ="))
    assert re.match(r"line 7: .*GPU.*\n  7 \|   if \(i < n\) cute::print", said)


def test_never_the_ninja_output_and_at_most_three_errors():
    wrong = "\n".join(f"  int a{i} = b{i};" for i in range(9))
    said = compile_error(f"void f(torch::Tensor x) {{\n{wrong}\n}}")
    assert len(re.findall(r"^line \d+:", said, re.MULTILINE)) == 3
    assert said.endswith("and 6 more, perhaps because of these")
    assert not re.search(r"ninja|FAILED|c\+\+ |main\.cpp|torch_light|\.cache", said)


def test_a_notebook_shows_no_traceback():
    with pytest.raises(CompileError) as caught:
        compile_cuda("void f(torch::Tensor x) { wrong; }")
    shown = "\n".join(caught.value._render_traceback_())
    assert shown == f"CompileError: {caught.value}"


BROKEN = """__global__ void k(float* a) { a[0] = undefined_thing; }
void f(torch::Tensor x) {
  x.foo();
  x.data_ptr<char**>();
}
"""


def explained(command: str, unit: Path, source: str = BROKEN) -> list[str]:
    command = [*command.split(), "-std=c++17", f"-I{torch_light.INCLUDE}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=unit.parent)
    assert done.returncode != 0
    error = compile_errors.explain(done.stdout + done.stderr, source, source, "cell")
    return str(error).splitlines()


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_every_host_compilers_words(compiler, tmp_path):
    compiler = need(compiler)
    unit = tmp_path / "unit.cpp"
    head = "#define __global__\n#include <torch_light/tensor.h>\n"
    unit.write_text(f'{head}#line 1 "cell"\n{BROKEN}')
    said = explained(f"{compiler} -fsyntax-only", unit)
    assert [line for line in said if line.endswith("| " + BROKEN.splitlines()[0])]
    undeclared, member, element = (line for line in said if line.startswith("line "))
    assert undeclared.startswith("line 1: ") and "undefined_thing" in undeclared
    assert member.startswith("line 3: ") and "'foo'" in member and "torch::Tensor" in member
    assert element.startswith("line 4: ") and "not a PyTorch element type" in element
    carets = [line.index("^") for line in said if line.endswith("^")]
    assert carets[:2] == [6 + BROKEN.index("undefined"), 6 + len("  x.")]


@on_cpu
def test_a_compiler_that_speaks_german(german, monkeypatch):
    real = tools.cpu_backend()
    tensor_object = compiler._tensor_object("cpu")  # built by the compiler that is here
    monkeypatch.setenv("CXX", german(real.compiler))
    monkeypatch.setattr(tools, "cpu_backend", lambda: real)
    monkeypatch.setattr(compiler, "_tensor_object", lambda backend: tensor_object)
    monkeypatch.setattr(compiler, "_precompiled", lambda source, arguments: [])
    monkeypatch.setattr(compiler, "_linked_by_name", lambda: [])
    with pytest.raises(CompileError, match=r"line 2: .*'foo'(.|\n)*\^"):
        compile_cuda(
            f"torch::Tensor f(torch::Tensor x) {{\n  x.foo(); return x;\n}}  // {uuid.uuid4()}"
        )
    assert os.environ["LANGUAGE"] == "de_DE:de"


@needs_nvcc
@on_cpu
def test_a_compiler_that_speaks_german_below_nvcc(german, monkeypatch):
    monkeypatch.setenv("CC", german(shutil.which("g++")))
    with pytest.raises(CompileError, match=r"line 1: nowhere.h: No such file"):
        ptx(f"#include <nowhere.h>\n__global__ void k() {{}}  // {uuid.uuid4()}")


@needs_nvcc
def test_nvccs_words():
    with pytest.raises(CompileError) as caught:
        ptx(BROKEN)
    said = str(caught.value).splitlines()
    assert said[0] == 'line 1: identifier "undefined_thing" is undefined'
    assert said[1:3] == ["  1 | " + BROKEN.splitlines()[0], "    | " + " " * 37 + "^"]
    assert said[3] == 'line 3: class "torch::Tensor" has no member "foo"'
    with pytest.raises(CompileError, match="^line 2: static assertion failed .*not a PyTorch elem"):
        ptx("void f(torch::Tensor x) {\n  x.data_ptr<char**>();\n}")


@needs_nvcc
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "__shared__ float s[100000]; s[threadIdx.x] = *a; __syncthreads(); *a = s[5];",
            "line 2: Entry function 'k(float*)' uses too much shared data "
            "(400000 bytes, 49152 max)",
        ),
        ("*a = helper(1);", "line 1: Unresolved extern function 'helper(float)'"),
        (
            'asm("bogus.f32 %0;" : "+f"(*a));',
            "line 2: Not a name of any known instruction: 'bogus'",
        ),
    ],
)
def test_the_assemblers_words(body, expected):
    source = f"__device__ float helper(float);\n__global__ void k(float* a) {{ {body} }}\n"
    with pytest.raises(CompileError) as caught:
        resource_usage(source)
    assert str(caught.value).splitlines()[0] == expected


# ----------------------------------------------------------------------------------- device code

TILE = r"""
__global__ void tile_kernel(float* out, const float* inp) {
  __shared__ float tile[32][32];
  tile[threadIdx.y][threadIdx.x] = inp[threadIdx.y * 32 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_registers_and_shared_memory(arch):
    used = resource_usage(TILE + SQUARE, arch)
    assert sorted(used) == ["square_kernel<double>", "square_kernel<float>", "tile_kernel"]
    tile = used["tile_kernel"]
    assert tile.shared_bytes == 32 * 32 * 4 and tile.spill_store_bytes == tile.spill_load_bytes == 0
    assert 4 <= tile.registers <= 64
    assert f"for {arch}, says ptxas" in repr(used) and "tile_kernel" in used._repr_html_()


@needs_nvcc
def test_spills_are_counted():
    source = r"""
__global__ void __launch_bounds__(1024) k(double* a) {
  double x[64];
  for (int i = 0; i < 64; ++i) x[i] = a[i];
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j) x[i] += x[j] * a[i + j];
  for (int i = 0; i < 64; ++i) a[i] = x[i];
}
"""
    used = resource_usage(source)["k"]
    assert used.registers <= 64
    assert used.spill_store_bytes + used.stack_bytes > 0


@needs_nvcc
def test_ptx():
    text = ptx(TILE, "sm_75")
    assert ".target sm_75" in text and ".entry _Z11tile_kernel" in text and "bar.sync" in text


@needs_nvcc
def test_nvcc_works_with_the_compiler_that_cc_names(tmp_path, monkeypatch):
    wrapper = tmp_path / "gcc"
    gcc = shutil.which("gcc")
    wrapper.write_text(f'#!/bin/sh\ntouch {tmp_path}/asked\nexec {gcc} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    assert ".target sm_75" in ptx(TILE, "sm_75")
    assert (tmp_path / "asked").exists()


@needs_nvcc
def test_sass():
    try:
        tools.cuobjdump()
    except tools.ToolMissing:
        pytest.skip("no cuobjdump")
    text = sass(TILE + SQUARE, "tile_kernel", "sm_90")
    assert text.startswith("tile_kernel\n  0000  ") and "BAR.SYNC" in text and "STS" in text
    assert "square_kernel" not in text
    both = sass(TILE + SQUARE, "square_kernel", "sm_90")
    assert both.count("square_kernel<") == 2
    with pytest.raises(KeyError, match="no kernel cube_kernel; there is "):
        sass(TILE, "cube_kernel", "sm_90")


def test_the_main_loop_is_the_innermost_that_has_most_fmas(monkeypatch):
    listing = """k_kernel
  0000  FFMA R1, R2, R3, R4
  0010  MOV R5, RZ
  0020  LDS.128 R4, [R6]
  0030  @!P0 FFMA R1, R2, R3, R1
  0040  @P1 BRA 0x30
  0050  @!PT LDS RZ, [RZ]
  0060  FFMA R1, R2, R3, R1
  0070  FFMA R2, R2, R3, R2
  0080  @P0 BRA 0x50
  0090  @UP0 BRA.U 0x20
  00a0  FFMA R1, R2, R3, R4
  00b0  BRA 0xb0"""
    asked = []
    monkeypatch.setattr(device_code, "sass", lambda *about: asked.append(about) or listing)
    loop = main_loop("src", "k_kernel", "sm_90", "01_loop")
    assert asked == [("src", "k_kernel", "sm_90", "01_loop", ())]
    assert loop == {"LDS": 2, "FFMA": 3, "BRA": 3}
    listing = listing.replace("FFMA R1, R2, R3, R1", "FADD R1, R2, R3")
    assert main_loop("src") == {"LDS": 1, "FADD": 1, "FFMA": 1, "BRA": 1}
    assert main_loop("src", by="LDS") == {"LDS": 2, "FADD": 2, "FFMA": 1, "BRA": 3}
    assert main_loop("src", by="HMMA") == {}
    assert main_loop_code("src", by="LDS")[0] == "LDS.128 R4, [R6]"
    listing = "k_kernel\n  0000  FFMA R1, R2, R3, R4\n  0010  BRA 0x10"
    assert main_loop("src") == {}


def test_without_nvcc_the_record_is_shown(monkeypatch, capsys, pretend_gpu, records):
    pretend_gpu()
    monkeypatch.setenv("RECORD", "1")
    monkeypatch.setattr(device_code, "_ptx", lambda src, arch, flags: "its ptx")
    monkeypatch.setattr(device_code, "_sass", lambda src, kernel, arch, flags: "its sass")
    used = {"tile_kernel": device_code.Resources(12, 4096, 0, 8, 8)}
    monkeypatch.setattr(device_code, "_resources", lambda src, arch, flags: used)
    assert ptx(TILE, key="01_ptx") == "its ptx"
    assert sass(TILE, "tile_kernel", key="01_sass") == "its sass"
    assert resource_usage(TILE, key="01_resources") == used
    assert capsys.readouterr().out == ""  # no need to say where that is from

    def missing(*_):
        raise tools.ToolMissing("There is no nvcc.", "install it")

    for name in ("_ptx", "_sass", "_resources"):
        monkeypatch.setattr(device_code, name, missing)
    monkeypatch.setattr(recorded, "BACKEND", "cpu")
    assert ptx(TILE, key="01_ptx") == "its ptx"
    said = capsys.readouterr().out
    assert said.startswith("There is no nvcc.\n") and "\nrecorded on Pretended GPU" in said
    assert sass(TILE, "tile_kernel", key="01_sass") == "its sass"
    assert "recorded on Pretended GPU" in capsys.readouterr().out
    again = resource_usage(TILE, key="01_resources")
    assert again == used and "says ptxas\nThere is no nvcc.\n" in repr(again)
    assert "recorded for an earlier version of tile_kernel on" in repr(
        resource_usage(TILE.replace("32", "16"), key="01_resources")
    )
    assert ptx(TILE, key="01_ptx", flags="--extended-lambda") == "its ptx"
    assert "recorded for an earlier version of this cell on" in capsys.readouterr().out
    assert ptx(TILE, key="01_other") == "" and resource_usage(TILE, key="01_other") == {}
    assert "Nothing is recorded" in capsys.readouterr().out
    with pytest.raises(tools.ToolMissing):
        ptx(TILE)


def test_calls_are_noted_under_the_functions_name_and_version():
    square = compile_cuda(SQUARE).square
    with called_kernels() as called:
        square(torch.ones(3, device=DEVICE))
    (kernel,) = called
    assert kernel.startswith("square ") and called == versions([square])
    assert kernel.split()[1] == kernel_version(SQUARE).split()[1]


def test_set_up_tells_of_builds_where_a_notebook_shows_no_error(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", None)  # without being a notebook
    monkeypatch.setattr(compiler, "prepare", lambda backend: print("Building", file=sys.stderr))
    compiler.set_up()
    said = capsys.readouterr()
    assert said.out.endswith("Building\n") and not said.err


def test_set_up_where_the_terminal_lacks_a_letter(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    monkeypatch.setattr(compiler, "prepare", lambda backend: print("Building …", file=sys.stderr))
    compiler.set_up()
    terminal.flush()
    assert terminal.buffer.getvalue().endswith(b"Building ?\n")


# ------------------------------------------------------------------------- PyTorch's own headers

PACKED = r"""
template <class T>
__global__ void twice_kernel(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x) {
    x[blockIdx.x][threadIdx.x] *= 2;
}
void twice(torch::Tensor x) {
    twice_kernel<float><<<x.size(0), x.size(1)>>>(
        x.packed_accessor32<float, 2, torch::RestrictPtrTraits>());
}
"""


EXTENSION = "#include <torch/extension.h>\nstd::map<int, int> of_the_standard_library;\n"


@pytest.mark.parametrize(
    "error, tried, said",
    [
        ("", ["light"], None),
        ("line 3: 'b' was not declared; did you mean 'at::b'?\n 3 | b", ["light"], "line 3: 'b'"),
        ("line 3: 'class torch::Tensor' has no member named 'b'", ["light", "full"], "of full"),
        ("line 3: 'sort' is not a member of 'std'", ["light", "full"], "of full"),
    ],
)
def test_light_headers_are_tried_first(monkeypatch, error, tried, said):
    """The errors shown are of the last attempt; the full headers only come where they may help."""
    attempts = []

    def get(plan):
        attempts.append("full" if plan.is_module else "light")
        if error:
            raise CompileError("of full" if plan.is_module else error)
        return compiler.CompiledFunctions({})

    monkeypatch.setattr(compiler, "_get", get)
    if said:
        with pytest.raises(CompileError, match=said):
            compile_cuda(EXTENSION + SQUARE + f"// {error}")
    else:
        compile_cuda(EXTENSION + SQUARE)
    assert attempts == tried


def test_a_string_with_pytorchs_header_builds_with_the_light_ones(monkeypatch):
    monkeypatch.setattr(compiler.torch_light, "may_lack", lambda error: False)
    x = torch.randn(5, device=DEVICE)
    assert torch.equal(compile_cuda(EXTENSION + SQUARE).square(x), x * x)


@on_cpu
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("more", ["", "static at::Half half;\n"])
def test_the_compiler_takes_the_precompiled_headers(monkeypatch, check, more):
    precompiled = compiler._precompiled
    monkeypatch.setattr(
        compiler, "_precompiled", lambda *of: [*precompiled(*of), "-Werror=invalid-pch"]
    )
    x = torch.randn(5)
    compiled = compile_cuda(f"{SQUARE}{more}// {uuid.uuid4()}", check=check)
    assert torch.equal(compiled.square(x), x * x)
    assert list(tools.BUILDS.folder.glob("preamble_*/preamble.h.gch"))


@pytest.fixture
def precompiled(monkeypatch):
    """Return a function that returns the precompiled headers of this test alone."""
    preamble, mine = compiler._cpu_preamble, f"// {uuid.uuid4()}\n"
    monkeypatch.setattr(compiler, "_cpu_preamble", lambda source: mine + preamble(source))

    def find():
        texts = tools.BUILDS.folder.glob("preamble_*/preamble.h")
        return [Path(f"{text}.gch") for text in texts if text.read_text().startswith(mine)]

    yield find
    for file in find():
        tools.BUILDS.remove(file.parent.name)


def build_another():
    x = torch.randn(5)
    assert torch.equal(compile_cuda(f"{SQUARE}// {uuid.uuid4()}").square(x), x * x)


@on_cpu
@pytest.mark.parametrize("left", [1000, 1_000_000])
def test_precompiled_headers_that_were_cut_short_are_made_anew(precompiled, left):
    build_another()
    (file,) = precompiled()
    size = file.stat().st_size
    os.truncate(file, left)
    build_another()
    build_another()
    (file,) = precompiled()
    assert file.stat().st_size > 0.9 * size


@on_cpu
def test_a_string_builds_without_precompiled_headers(monkeypatch, precompiled):
    """And what was made of them is not kept, so that they are tried again."""
    run = subprocess.run

    def fails(command, **options):
        return run(["false"] if "c++-header" in command else command, **options)

    monkeypatch.setattr(subprocess, "run", fails)
    build_another()
    assert precompiled() == []


def test_a_trace_under_clang_warns(monkeypatch):
    monkeypatch.setattr(compiler, "_compile", lambda *of, **more: None)
    monkeypatch.setattr(CpuBackend, "is_clang", True)
    with pytest.warns(UserWarning, match="^clang's code is counted"):
        compiler.compile_traced(SQUARE)


@on_cpu
def test_clang_builds_strings():
    environment = {**os.environ, "CXX": need("clang++")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    tests = "precompiled or test_square or special_functions or error_of_a_kernel"
    done = subprocess.run(
        [*command, "-k", tests], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@on_cpu
def test_what_needs_pytorchs_own_headers_gets_them(monkeypatch):
    """Slow, 20 s: packed accessors are not among the light headers."""
    quick = [*tools.cpu_backend().flags(), "-O0", "-g0"]
    monkeypatch.setattr(CpuBackend, "flags", lambda *of: quick)
    both = compile_cuda("#include <torch/extension.h>\n" + SQUARE + PACKED)
    square, x = both.square, torch.randn(7, 37)
    assert torch.equal(square(x), x * x)
    with pytest.raises(RuntimeError, match="expected a contiguous inp"):
        square(x.t())
    doubled = x.clone()
    both.twice(doubled)
    assert torch.equal(doubled, 2 * x)


@on_cpu
def test_some_libraries_of_nvidia_need_a_gpu():
    with pytest.raises(tools.ToolMissing, match="library nccl has no code for the CPU backend"):
        compile_cuda(SQUARE, libraries=("cublas", "nccl"))
    with pytest.raises(tools.ToolMissing, match="cutlass and cudnn_frontend have no code for"):
        compile_cuda(SQUARE, libraries=("cutlass", "cudnn_frontend"))
    square, x = compile_cuda(SQUARE, libraries=("cudnn", "cublas", "cub")).square, torch.randn(9)
    assert torch.equal(square(x), x * x)


def test_libraries_are_called_by_known_names():
    with pytest.raises(ValueError, match="expected libraries of cublas, .*, got 'cusparse'"):
        compile_cuda(SQUARE, libraries=("cusparse",))


HALVES = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void add(half* y, const half* x, half2* pairs) {
  int i = threadIdx.x;
  y[i] = y[i] + x[i] * half(0.5f);
  pairs[i] = pairs[i] * pairs[i];
}
__global__ void widen(float* y, const __nv_bfloat16* x) { y[threadIdx.x] = x[threadIdx.x]; }
void all(torch::Tensor y, torch::Tensor x, torch::Tensor wide, torch::Tensor b, torch::Tensor p) {
  add<<<1, 4>>>((half*)y.data_ptr(), (const half*)x.data_ptr(), (half2*)p.data_ptr());
  widen<<<1, 4>>>(wide.data_ptr<float>(), (const __nv_bfloat16*)b.data_ptr());
}
"""
HALF_FLAGS = FLAGS[:4]


def test_flags_give_half_its_operators_back():
    halves = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float16, device=DEVICE)
    pairs = torch.cat([halves, halves + 4])
    for check in (False, True):
        y, wide, p = halves.clone(), torch.zeros(4, device=DEVICE), pairs.clone()
        functions = compile_cuda(HALVES, flags=HALF_FLAGS, check=check)
        functions.all(y, halves, wide, halves.bfloat16(), p)
        assert torch.equal(y, halves * 1.5) and torch.equal(wide, halves.float())
        assert torch.equal(p, pairs * pairs)
    compiler.checked(compile_cuda(HALVES, flags=HALF_FLAGS).all)  # they are the twin's as well


@on_cpu
def test_what_pytorchs_flags_take_away_is_named_with_the_flag_that_gives_it_back():
    for flag, line in zip(HALF_FLAGS, (6, 6, 9, 7), strict=True):
        others = [other for other in HALF_FLAGS if other != flag]
        with pytest.raises(CompileError) as caught:
            compile_cuda(HALVES, flags=others)
        assert re.match(
            rf"line {line}: PyTorch tells nvcc to .*flags=\['{flag}'\]", str(caught.value)
        )


@pytest.mark.parametrize("tell", [compile_cuda, ptx, sass, resource_usage, main_loop])
def test_flags_are_known_ones(tell):
    with pytest.raises(ValueError, match="expected flags of .*, got '--use_fast_math'"):
        tell(HALVES, flags=[*HALF_FLAGS, "--use_fast_math"])


@needs_nvcc
def test_machine_code_is_made_with_the_flags_of_the_string():
    kernels = HALVES.split("void all")[0]
    with pytest.raises(CompileError, match="line 6"):
        ptx(kernels, "sm_80")
    assert re.search(r"\bfma\.rn\.f16\b|\bmul\.f16\b", ptx(kernels, "sm_80", flags=HALF_FLAGS))
    assert resource_usage(kernels, "sm_80", flags=HALF_FLAGS)["add"].registers > 0
    if shutil.which("cuobjdump"):
        assert re.search(r"\bH(FMA|MUL)2", sass(kernels, "add", "sm_80", flags=HALF_FLAGS))


def test_what_only_pytorchs_own_headers_have_brings_them(monkeypatch):
    asked = []
    monkeypatch.setattr(compiler, "_get", lambda build: asked.append(build) or SimpleNamespace())
    scalar = "double f(torch::Tensor x, at::Scalar s) { return s.toDouble(); }"
    for backend in ("cpu", "cuda"):
        monkeypatch.setattr(compiler, "BACKEND", backend)
        monkeypatch.setattr(compiler, "gpu_arch", lambda source: "90")
        monkeypatch.setattr(compiler.tools, "gpu", lambda: "a GPU, sm_90")
        compile_cuda(scalar)
        assert asked[-1].is_module and asked[-1].names == ["f"]
    expected = f'#include <torch/extension.h>\n#line 1 "cell"\n{scalar}\n'
    assert asked[-1].arguments["cuda_sources"] == expected


@on_cpu
def test_what_a_tensor_has_no_operator_for_comes_with_a_hint():
    said = compile_error("#include <iostream>\nvoid f(torch::Tensor x) { std::cout << x; }")
    assert said.startswith("line 2: ") and "Hint: if PyTorch has it, put #include <torch/" in said


def test_16_bit_types_come_with_pytorchs_headers():
    source = """
    inline __device__ float wide(half x) { return __half2float(x); }
    inline __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
    template <class T> __global__ void widen(float* y, const T* x) { y[threadIdx.x] = wide(x[0]); }
    void f(torch::Tensor y, torch::Tensor x, torch::Tensor b) {
      widen<<<1, 1>>>(y.data_ptr<float>(), (const half*)x.data_ptr());
      widen<<<1, 1>>>(y.data_ptr<float>() + 1, (const __nv_bfloat16*)b.data_ptr());
    }"""
    y, x = torch.zeros(2, device=DEVICE), torch.full((1,), 1.5, device=DEVICE)
    compile_cuda(source).f(y, x.half(), x.bfloat16())
    assert y.tolist() == [1.5, 1.5]
    for names, included in (("int half = n / 2; x[half] = 1;", False), ("half a = b;", True)):
        assert ("cuda_fp16.h" in torch_light.preamble(names)) == included


VOLATILE = r"""
struct Ring { volatile unsigned head; volatile Ring* next; volatile unsigned* at; };
__global__ void k(float* x) {
  __shared__ Ring r;
  r.head = 3, r.next = &r, r.at = &r.head;
  x[0] = r.next->head;
  x[1] = *r.at;
}
int64_t run(torch::Tensor x) {
  volatile int* flag = NULL;
  volatile int* none = 0;
  int value = 7;
  flag = &value;
  k<<<1, 1>>>(x.data_ptr<float>());
  return *flag;
}
"""


def test_volatile_structures_and_null():
    x = torch.zeros(2, device=DEVICE)
    assert compile_cuda(VOLATILE).run(x) == 7 and x.tolist() == [3, 3]


def test_nvcc_gets_the_flags(monkeypatch):
    asked = []
    monkeypatch.setattr(compiler, "BACKEND", "cuda")
    monkeypatch.setattr(compiler, "gpu_arch", lambda source: "90")
    monkeypatch.setattr(compiler.tools, "gpu", lambda: "a GPU, sm_90")
    monkeypatch.setattr(compiler, "_get", lambda build: asked.append(build) or SimpleNamespace())
    for source in (HALVES, "#include <torch/extension.h>\nPYBIND11_NAMESPACE" + HALVES):
        compile_cuda(source, flags=HALF_FLAGS[:1])
        assert asked[-1].arguments["extra_cuda_cflags"][-1] == HALF_FLAGS[0]


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not here")
def test_nvcc_needs_the_same_flags(tmp_path):
    path = tmp_path / "halves.cu"
    path.write_text(HALVES.split("void all")[0])
    command = ["nvcc", "-arch=sm_80", "-ptx", str(path), "-o", str(tmp_path / "out")]
    for flags in ([], *(HALF_FLAGS[:i] + HALF_FLAGS[i + 1 :] for i in range(4)), HALF_FLAGS):
        done = subprocess.run([*command, *NVCC_DEFINES, *flags], capture_output=True)
        assert (done.returncode == 0) == (flags == HALF_FLAGS)


@pytest.mark.parametrize(
    "there", ["", "include/nowhere.h", "include/nowhere.h lib/libnowhere.so.9"]
)
def test_a_library_is_found_in_a_wheel_or_named_with_its_package(there, tmp_path, monkeypatch):
    monkeypatch.setitem(tools.LIBRARIES, "nowhere", ("nowhere.h", "nvidia-nowhere-cu{}"))
    monkeypatch.setattr(tools, "_site_packages", lambda: {tmp_path})
    wheel = tmp_path / "nvidia" / "nowhere"
    for file in map(wheel.joinpath, there.split()):
        file.parent.mkdir(parents=True)
        file.touch()
    if "lib/" in there:
        assert tools.library("nowhere") == (wheel / "include", wheel / "lib/libnowhere.so.9")
        return
    missing = "There is no libnowhere.so" if there else "There is no nowhere.h, the header of"
    with pytest.raises(tools.ToolMissing, match=f"{missing}.*\n.*install nvidia-nowhere-cu13"):
        tools.library("nowhere")


def test_open_libraries_are_found_where_a_variable_says_or_in_their_wheels(tmp_path, monkeypatch):
    for name in ("CUTLASS_PATH", "CUDNN_FRONTEND_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tools, "_site_packages", lambda: {tmp_path / "site"})
    for name, package in (("cutlass", "nvidia-cutlass"), ("cudnn_frontend", "nvidia-cudnn-front")):
        with pytest.raises(tools.ToolMissing, match=f"the header of {name}.*\n.*install {package}"):
            tools.library(name)
    monkeypatch.setenv("CUTLASS_PATH", "/nowhere")
    with pytest.raises(tools.ToolMissing, match="in /nowhere, as CUTLASS_PATH says, nor elsewhere"):
        tools.library("cutlass")
    monkeypatch.delenv("CUTLASS_PATH")
    own, wheel = tmp_path / "own", tmp_path / "site" / "cutlass_library" / "source" / "include"
    for folder in (own / "include", wheel):
        (folder / "cutlass").mkdir(parents=True)
        (folder / "cutlass" / "cutlass.h").touch()
    assert tools.library("cutlass") == (wheel, None)
    for path in (own, own / "include"):
        monkeypatch.setenv("CUTLASS_PATH", str(path))
        assert tools.library("cutlass") == (own / "include", None)


def test_a_library_brings_what_it_calls(tmp_path, monkeypatch):
    asked = []

    def library(name):
        asked.append(name)
        return tmp_path, None if name == "cudnn_frontend" else tmp_path / f"lib{name}.so"

    monkeypatch.setattr(tools, "library", library)
    monkeypatch.setattr(compiler, "BACKEND", "cuda")
    arguments = compiler._linked(("cudnn", "cudnn_frontend"), check=False)
    assert asked == ["cudnn", "cudnn_frontend", "nvrtc"]
    assert arguments["extra_include_paths"] == [str(tmp_path)]
    files = [flag for flag in arguments["extra_ldflags"] if flag.endswith(".so")]
    assert files == [str(tmp_path / "libcudnn.so"), str(tmp_path / "libnvrtc.so")]


CALLS_ONLY = """#include <cublas_v2.h>
torch::Tensor same(torch::Tensor x) { return x; }  // no <<< here
"""


@pytest.mark.parametrize(
    ("more", "unit"),
    [
        ("", "cpp_sources"),
        ("__global__ void kernel() {}", "cuda_sources"),
        ("#define KERNEL __global__ void", "cuda_sources"),
        ("#include <cub/cub.cuh>", "cuda_sources"),
    ],
)
def test_a_string_that_only_calls_libraries_is_not_for_nvcc(more, unit, monkeypatch):
    asked = []
    linked = {"extra_include_paths": ["/there"], "extra_ldflags": ["/there/libcublas.so"]}
    monkeypatch.setattr(compiler, "BACKEND", "cuda")
    monkeypatch.setattr(compiler, "gpu_arch", lambda source: "90")
    monkeypatch.setattr(compiler.tools, "gpu", lambda: "a GPU, sm_90")
    monkeypatch.setattr(compiler, "_linked", lambda libraries, check: linked)
    monkeypatch.setattr(compiler, "_get", lambda build: asked.append(build) or SimpleNamespace())
    compile_cuda(CALLS_ONLY + more, libraries=("cublas",))
    arguments = asked[0].arguments
    assert "torch::Tensor same" in arguments[unit]
    assert arguments["extra_ldflags"] == linked["extra_ldflags"]
    if unit == "cpp_sources":  # the flags that g++ gets, and what tells it of CUDA
        assert arguments["with_cuda"] and "cuda_sources" not in arguments
        assert {"-std=c++17", "-DTORCH_LIGHT_CUDA"} <= set(arguments["extra_cflags"])


PRINTS = """#include <cublas_v2.h>
#include <sstream>
std::string printed(torch::Tensor x) {
    std::ostringstream out;
    out << x.numel() << ' ' << 0.5;
    return out.str();
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac has one standard library only")
def test_a_string_has_no_standard_library_of_its_own(monkeypatch):
    static = {"extra_ldflags": ["-static-libstdc++"]}  # as a compiler that knows no other
    monkeypatch.setattr(compiler, "_linked", lambda libraries, check: static)
    built = compile_cuda(f"{PRINTS}// {uuid.uuid4()}\n", check=True, libraries=("cublas",))
    assert built.printed(torch.ones(3)) == "3 0.5"
    loaded = re.findall(r"/.*/builds/cuda_.*\.so", Path("/proc/self/maps").read_text())
    newest = max(set(loaded), key=os.path.getmtime)
    needed = subprocess.run(["readelf", "-d", newest], capture_output=True, text=True).stdout
    assert "libstdc++.so" in needed
