"""From a CUDA string to Python functions: compile_cuda.

    string ──GPU──▶ nvcc, for the chip that is here ──┐
       └──no GPU──▶ translate ▶ g++ ▶ CPU backend ────┴─▶ .cache/builds/cuda_<hash> ▶ Python
          or check=True

The hash covers everything that goes into the build, so a library is never stale and is built once.
"""

import functools
import importlib.util
import inspect
import os
import platform
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from helpers import cuda_on_cpu
from helpers.base.called_kernels import noting
from helpers.base.terminal import let_print
from helpers.compiler import tools, torch_light
from helpers.compiler.checked_call import checked_call
from helpers.compiler.device_code import gpu_arch
from helpers.compiler.errors import CompileError, Diagnostic, Stopped, explain, show
from helpers.compiler.flags import allow_lambdas, defines, known
from helpers.compiler.source import (
    Function,
    Module,
    brackets_match,
    for_nvcc,
    host_functions,
    out_of_reach,
    own_module,
    read,
)
from helpers.compiler.tools import ToolMissing
from helpers.compiler.unwritten import reported
from helpers.cuda_on_cpu.scanner import mask_comments
from helpers.device import BACKEND, describe_device

_CPU_INCLUDE = (cuda_on_cpu.INCLUDE, cuda_on_cpu.INCLUDE_TORCH, torch_light.INCLUDE)

# With PyTorch's full headers, "CUDA" means the CPU backend's device as it does with the light ones.
# They have the traits for packed accessors under nvcc only.
CUDA_MEANS_CPU = """#define is_cuda is_cpu
#define kCUDA kCPU
namespace at {
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
inline void same_cpu(CheckedFrom, const TensorArg&, const TensorArg&) {}
inline void all_same_cpu(CheckedFrom, ArrayRef<TensorArg>) {}
}
#define checkSameGPU same_cpu
#define checkAllSameGPU all_same_cpu"""


# nvcc's own standard; PyTorch's full headers may ask for a newer one. C++20 has a std::lerp, too.
STANDARD = "-std=c++17"


class CompiledFunctions:
    """The functions of one compiled string, as attributes."""

    def __init__(self, functions: dict):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        raise AttributeError(f"no function {name} was compiled; there is {', '.join(vars(self))}")

    def __repr__(self):
        return f"<compiled: {', '.join(vars(self))}>"


@dataclass
class Build:
    """What load_inline is asked for, and what is needed to explain its errors."""

    source: str  # the learner's string
    compiled: str  # the same lines as the compiler sees them
    label: str  # the string's name in the compiler's messages
    names: list[str]  # functions for Python
    is_module: bool  # a pybind11 module with the full headers, else operators with the light ones
    has_own_module: bool  # the string's PYBIND11_MODULE binds what it likes
    backend: str  # "cuda" or "cpu"
    check: bool  # for the CPU backend: tell about every access
    trace: bool  # and about every loop and branch
    flags: tuple[str, ...]  # of FLAGS
    arguments: dict  # for load_inline
    announce: str = ""  # said on stderr while it is built

    @property
    def library(self) -> str:
        parts = [repr(self.arguments), repr(self.names), torch.__version__, sys.version]
        parts += [_processor()] if self.backend == "cpu" else []
        return "cuda_" + cuda_on_cpu.digest(*parts, _headers(), tools.identity())


def set_up() -> None:
    """Say which machine this is, and build what every string needs: half a minute, once.

    In a notebook, matplotlib's pictures have alt texts and suit its theme from then on.

    Without a GPU the memory of CPU tensors is guarded from then on: a kernel that runs over the end
    of one is stopped. compile_cuda does the same when it first builds for the CPU, which leaves
    tensors made before that unguarded.
    """
    let_print()
    print(describe_device())
    if "ipykernel" in sys.modules:
        from helpers.base.images import set_up_pictures

        set_up_pictures()
    try:
        with redirect_stderr(sys.stdout):  # notebooks show what goes to stderr as an error
            prepare(BACKEND)
    except ToolMissing as problem:  # Python kernels run all the same
        print(problem)


def prepare(backend: str) -> None:
    """Build what every string needs on "cuda" or "cpu", once for this machine."""
    tools.folder()
    tools.torch_version()
    if backend == "cuda":
        tools.gpu()
    _tensor_object(backend)
    if backend == "cpu":
        _guard_tensors()


_loaded: dict[tuple[str, str], CompiledFunctions] = {}  # by library and the learner's string
_origins: dict[object, "_Origin"] = {}  # of each function that compile_cuda returned


def compile_cuda(
    src: str | bytes | Path,
    functions: list[str] | None = None,
    check: bool = False,
    announce: str = "",
    libraries: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> CompiledFunctions:
    """Compile a CUDA string, or a .cu file, and return its host functions as attributes.

    `functions` names the functions to bind; by default every host function at file scope that
    takes or returns a torch::Tensor, and otherwise what Python can give: numbers, bool,
    std::string, torch::ScalarType, and std::optional, std::vector, std::tuple of these. A string
    that has a PYBIND11_MODULE, as extensions do, says by that what is bound, under which name.

    With a GPU the string goes through nvcc, for that GPU, or if it only calls `libraries` through
    g++; without one through g++ and the CPU backend. What was built before comes from the cache. A
    string that includes PyTorch's headers itself is built with light ones if they have all that it
    needs, else with all of PyTorch's and pybind11, which takes ten times as long.

    With `check` the kernels run on the CPU backend on every machine (CUDA tensors are copied there
    and back), some ten times slower, and every access is checked: an index out of range, a data
    race, shared memory read before it was written raise RuntimeError with the kernel, the line, the
    block, the thread and the element. That goes for tensors, shared arrays and __device__
    variables, not for __constant__ ones; pointers that a tensor holds must be of CPU tensors.

    `announce` is said on stderr if the string has to be built, and how long that took.

    `libraries` of NVIDIA are found and linked: "cublas", "cublasLt", "cudnn", "cufft", "curand",
    "nccl", "nvrtc"; or their headers are: "cub", "thrust", "cutlass", "cudnn_frontend". On the CPU
    backend stand-ins over PyTorch's operators take the place of the first five and of parts of CUB
    and Thrust (helpers/cuda_on_cpu/stand_ins.py says which calls); the others run on a GPU only.

    `flags` are for nvcc, as load_inline takes them in extra_cuda_cflags; the CPU backend takes what
    they allow as well. Those of flags.py are known: PyTorch lets nvcc refuse the operators and
    conversions of __half and __nv_bfloat16 unless a string's own flags undo that
    ("-U__CUDA_NO_HALF_OPERATORS__"), and lambdas for kernels need "--extended-lambda".

    Raises CompileError if the string does not compile, ToolMissing if a tool is not there.
    """
    flags = known(flags)
    try:
        check = check or _every_call_checked
        linked = _linked(libraries, check) if libraries else {}
        return _compile(src, functions, check, flags, announce=announce, linked=linked)
    except (CompileError, ToolMissing) as error:  # the frames from here on tell a user nothing
        raise error.with_traceback(None) from None
    except KeyboardInterrupt:
        raise Stopped("the build of this string was stopped") from None


_every_call_checked = False


@contextmanager
def every_call_checked(on: bool = True):
    """Let every compile_cuda meanwhile build with check=True; or not, within such a block."""
    global _every_call_checked
    before, _every_call_checked = _every_call_checked, on
    try:
        yield
    finally:
        _every_call_checked = before


def compile_traced(
    src: str | Path, functions: list[str] | None = None, flags: tuple[str, ...] = ()
) -> CompiledFunctions:
    """Compile as `compile_cuda(..., check=True)` does, for `trace` to count as well.

    Warns under clang, whose code has other branches: lanes that a GPU keeps together come apart.
    """
    if tools.cpu_backend().is_clang:
        sentence = (
            "clang's code is counted, which may make more requests than a GPU's: export CXX=g++"
        )
        warnings.warn(sentence, stacklevel=3)
    return _compile(src, functions, True, flags, trace=True)


def _linked(libraries, check):
    """Return load_inline's arguments for libraries of NVIDIA; the CPU backend knows its own."""
    libraries = [libraries] if isinstance(libraries, str) else libraries
    known = [*tools.LIBRARIES, *tools.HEADERS_ONLY]
    if unknown := [name for name in libraries if name not in known]:
        raise ValueError(f"expected libraries of {', '.join(known)}, got {unknown[0]!r}")
    if check or BACKEND == "cpu":
        if gpu_only := [name for name in libraries if name not in tools.ON_CPU]:
            libraries_have = "libraries {} have" if len(gpu_only) > 1 else "library {} has"
            raise ToolMissing(
                f"The {libraries_have.format(' and '.join(gpu_only))} no code for the CPU backend.",
                "run this on a machine with an NVIDIA GPU, without check=True",
            )
        return {}
    needed = [more for name in libraries for more in (name, *tools.NEEDS.get(name, ()))]
    found = [tools.library(name) for name in dict.fromkeys(needed)]
    files = [file for _, file in found if file]
    return {
        "extra_include_paths": list(dict.fromkeys(str(folder) for folder, _ in found)),
        "extra_ldflags": [*map(str, files), *(f"-Wl,-rpath,{file.parent}" for file in files)],
    }


def _compile(src, functions, check, flags, trace=False, announce="", linked=None):
    tools.folder()
    tools.torch_version()
    if BACKEND == "cuda" and not check:
        tools.gpu()
    source, label = read(src)
    if re.fullmatch(r"\S+\.cu", source):
        raise CompileError(f"expected CUDA code, got a file's name; it is Path({src!r})")
    module = own_module(source)
    if module:
        chosen, problem = _choose_bound(module, source, functions)
    else:
        chosen, problem = _choose(source, functions)
    if problem and brackets_match(source):
        raise CompileError(problem)
    for line, sentence in cuda_on_cpu.find_remarks(source):
        warnings.warn(f"line {line}: {sentence}", stacklevel=3)
    by_host = bool(linked) and not for_nvcc(source)
    build = _plan(source, label, chosen, check, trace, flags, by_host, module)
    build = replace(build, announce=announce)
    for name, more in (linked or {}).items():
        build.arguments[name] = [*build.arguments.get(name, []), *more]
    may_do_without = build.is_module and not linked
    compiled = _light_instead(build, chosen, module) if may_do_without else None
    compiled = compiled or _get(build)
    for name, function in vars(compiled).items():
        _origins[function] = _Origin(src, functions, name, check, trace, flags)
    if problem:  # not even the compiler minds the brackets
        raise CompileError(problem)
    left_out = [f for f in chosen if f.name not in build.names]
    if left_out and (functions or not build.names):
        raise CompileError(_why_left_out(left_out[0]))
    return compiled


def _get(build: Build) -> CompiledFunctions:
    """Return what is loaded, is in the cache or has to be built."""
    library = build.library
    key = library, build.source  # strings that differ only in what is for nvcc share a library
    if key not in _loaded:
        _loaded[key] = _load(library, build) or _build(library, build)
    return _loaded[key]


def _light_instead(
    build: Build, chosen: list[Function], module: Module | None
) -> CompiledFunctions | None:
    """Try the light headers for a string that includes PyTorch's own; None if those are needed."""
    without = module.left_out(build.source) if module and chosen else build.source
    source = torch_light.lighten(without)
    has_full = (tools.BUILDS.folder / build.library).exists()
    if has_full or source is None or not all(f.schema for f in chosen):
        return None
    light = _plan(source, build.label, chosen, build.check, build.trace, build.flags)
    try:
        return _get(replace(light, source=build.source, announce=build.announce))
    except CompileError as error:
        if not torch_light.may_lack(str(error)):
            raise
        return None


@dataclass
class _Origin:
    """What a function was compiled from, and how."""

    src: str | Path
    functions: list[str] | None  # that were asked for
    name: str
    check: bool
    trace: bool
    flags: tuple[str, ...]


def checked(function):
    """Return the checked twin of a function that compile_cuda returned (see there).

    Raises TypeError for any other function.
    """
    origin = _origin(function)
    if origin.check:
        return function
    twins = compile_cuda(origin.src, origin.functions, check=True, flags=origin.flags)
    return getattr(twins, origin.name)


def traced(function):
    """Return the twin that `trace` can count, as `checked` does."""
    origin = _origin(function)
    if origin.trace:
        return function
    return getattr(compile_traced(origin.src, origin.functions, origin.flags), origin.name)


def source_of(function) -> tuple[str, str]:
    """Return the string of a function from compile_cuda, and its name in the machine code."""
    return read(_origin(function).src)


def flags_of(function) -> tuple[str, ...]:
    """Return the flags that a function from compile_cuda was compiled with."""
    return _origin(function).flags


def _origin(function) -> _Origin:
    try:
        return _origins[function]
    except (KeyError, TypeError):  # not hashable
        raise TypeError(f"{function!r} is no function that compile_cuda returned") from None


# ------------------------------------------------------------------------------- what to build


def _choose(source: str, names) -> tuple[list[Function], str | None]:
    """Return the functions to bind, all of them or the ones named, and what is wrong with that."""
    found, apart = host_functions(source), out_of_reach(source)
    for_python = [f for f in found if not f.hidden]
    problem = None
    if names is None:
        chosen = [f for f in for_python if f.uses_tensors]
        if not chosen:
            problem = "no host function in the string takes or returns a torch::Tensor"
            hidden = [(f.line, why) for f, why in apart if f.uses_tensors]
            problem = show(Diagnostic(hidden[0][1], hidden[0][0]), source) if hidden else problem
    else:
        names = [names] if isinstance(names, str) else names
        chosen = [f for f in for_python if f.name in names]
        listed = ", ".join(f.name for f in for_python) or "none"
        for name in set(names) - {f.name for f in chosen}:
            hidden = [f" (line {f.line}: {why})" for f, why in apart if f.name == name]
            why = hidden[0] if hidden else ""
            problem = f"no function {name} in the string{why}; found: {listed}"
    for i, function in enumerate(chosen):
        if function.name in [f.name for f in chosen[:i]]:
            problem = f"line {function.line}: {function.name} is there twice; rename one"
    return chosen, problem


def _choose_bound(module: Module, source, names) -> tuple[list[Function], str | None]:
    """Return the functions that a PYBIND11_MODULE binds, those named of them, and what is wrong.

    Where it does more than bind functions, PyTorch's own headers tell what it binds.
    """
    line = source.count("\n", 0, module.start) + 1
    found = {f.name: f for f in host_functions(source)}
    functions = module.functions
    if functions is None or not set(functions.values()) <= found.keys():
        return [], None
    asked = [names] if isinstance(names, str) else names or list(functions)
    if unknown := [name for name in asked if name not in functions]:
        listed = ", ".join(functions)
        return [], f"line {line}: no function {unknown[0]} in the PYBIND11_MODULE; found: {listed}"
    chosen = []
    for name in asked:
        function = found[functions[name]]
        schema = function.schema and name + function.schema[len(function.name) :]
        chosen.append(replace(function, name=name, schema=schema))
    return chosen, None


def _why_left_out(function: Function) -> str:
    if function.pointer.startswith("auto "):
        return f"line {function.line}: {function.name} returns auto: write the type for Python"
    return (
        f"line {function.line}: {function.name} has an argument or a result that Python has no "
        "equal of; if pybind11 knows it, put #include <torch/extension.h> on top of the string"
    )


def _plan(
    source: str,
    label: str,
    chosen: list[Function],
    check: bool = False,
    trace: bool = False,
    flags: tuple[str, ...] = (),
    by_host: bool = False,
    module: Module | None = None,
) -> Build:
    is_module = not torch_light.is_enough_for(source) or (module is not None and not chosen)
    has_own_module = is_module and module is not None
    if module and not has_own_module:
        source = module.left_out(source)
    bound = [f for f in chosen if is_module or f.schema]
    backend = "cpu" if check else BACKEND
    if backend == "cuda":
        compiled = source
        operators = _host_operators if by_host else _gpu_operators
        arguments = functools.partial(_gpu_module if is_module else operators, flags)
    else:
        try:
            compiled = _translate(source, check, trace, allow_lambdas(flags))
        except cuda_on_cpu.TranslateError as error:
            raise CompileError(show(Diagnostic(error.message, error.line), source)) from None
        given = _cpu_flags(compiled, check, trace, flags)
        arguments = functools.partial(_cpu_module if is_module else _cpu_operators, given)
    # `#line` gives the string its own line numbers
    numbered = f'#line 1 "{label}"\n{compiled}\n'
    if backend == "cuda" and is_module and torch_light.has_headers_of(source):
        numbered = f"#include <torch/extension.h>\n{numbered}"  # for names that only it has
    names = [f.name for f in bound]
    arguments = arguments(numbered, label, bound)
    about = source, compiled, label, names, is_module, has_own_module, backend
    about = *about, check, trace, flags
    return Build(*about, arguments)


_LONG = 10_000  # shorter strings are translated in less time than a folder takes


def _translate(source: str, *how: bool) -> str:
    """Return what cuda_on_cpu.translate does; of a long string it is kept for other processes."""
    if len(source) < _LONG:
        return cuda_on_cpu.translate(source, *how)

    def make(folder: Path) -> None:
        (folder / "code.cpp").write_bytes(cuda_on_cpu.translate(source, *how).encode())

    key = cuda_on_cpu.digest(source, repr(how), _translator())
    return (tools.BUILDS.get(f"translated_{key}", make) / "code.cpp").read_bytes().decode()


@functools.cache
def _translator() -> str:
    """Return the text of all that translates: what it made is of this version."""
    return "".join(path.read_text() for path in sorted(cuda_on_cpu.INCLUDE.parent.glob("*.py")))


def _bindings(label, bound):
    # an error in a binding is an error of the function's arguments, so it gets the function's line
    return "".join(
        f'#line {f.line} "{label}"\n'
        f'TORCH_LIGHT_BIND(TORCH_LIGHT_LIBRARY, {f.name}, {f.called}, "{f.schema}", {f.pointer})\n'
        for f in bound
    )


_NAMES_SPECIAL_FUNCTIONS = re.compile(
    r"\b(assoc_la|assoc_le|comp_ellint|cyl_bessel|cyl_neumann|ellint|expint|hermite|laguerre|legendre"
    r"|riemann_zeta|sph_)|\bstd\s*::\s*beta"
)


def _cpu_preamble(source):
    has_all = _NAMES_SPECIAL_FUNCTIONS.search(source)
    cmath = "" if has_all else "#include <cuda_on_cpu/cheap_cmath.h>\n"
    return cmath + torch_light.preamble(source)


def _cpu_operators(flags, numbered, label, bound):
    unit = f"{_cpu_preamble(numbered)}{numbered}{_bindings(label, bound)}"
    more = {
        "extra_cflags": [*flags["extra_cflags"], STANDARD],
        "extra_include_paths": [*flags["extra_include_paths"], str(torch_light.LIGHT)],
    }
    return {"cpp_sources": unit, "no_implicit_headers": True, **flags, **more}


def _cpu_module(flags, numbered, label, bound):
    unit = f"{CUDA_MEANS_CPU}\n#include <cuda_runtime.h>\n{cuda_on_cpu.ANY_CONVERSION}{numbered}"
    return {"cpp_sources": f"{unit}{_CALLED_BY_HOST}", **flags}


# For the bindings that load_inline puts behind the string: what would end Python ends the call.
_CALLED_BY_HOST = """
#define wrap_pybind_function(function) \\
    wrap_pybind_function(::cuda_on_cpu::called_by_host(&function))
"""


def _with_fitted(build: Build, places: list[tuple[int, int]]) -> Build:
    """Return the build with conversions to integers as PTX has them, where the compiler saw one.

    With all of PyTorch's headers it is not asked: that would take a second minute.
    """
    numbered = build.arguments["cpp_sources"]
    compiled = cuda_on_cpu.fit(build.compiled, places)
    first = f'#line 1 "{build.label}"\n'
    unit = numbered.replace(
        f"{first}{build.compiled}", f"{cuda_on_cpu.ANY_CONVERSION}{first}{compiled}"
    )
    return replace(build, compiled=compiled, arguments=build.arguments | {"cpp_sources": unit})


def _cpu_flags(source, check, trace, flags):
    lambdas = ["-DCUDA_ON_CPU_EXTENDED_LAMBDA"] if allow_lambdas(flags) else []
    return {
        "extra_include_paths": [str(path) for path in _CPU_INCLUDE],
        "extra_cflags": [*tools.cpu_backend().flags(check, trace), *defines(flags), *lambdas],
        "extra_ldflags": tools.cpu_backend().linked(cuda_on_cpu.included(source)),
    }


def _gpu_operators(flags, numbered, label, bound):
    unit = f"{torch_light.preamble(numbered)}{numbered}{_bindings(label, bound)}"
    return {
        "cpp_sources": "",
        "cuda_sources": unit,
        "no_implicit_headers": True,
        "extra_include_paths": [*map(str, torch_light.FOR_NVCC)],
        **_gpu_flags(numbered, "-DTORCH_LIGHT_CUDA", STANDARD, *flags),
    }


def _host_operators(flags, numbered, label, bound):
    """For a string that calls libraries and has no kernel: g++ is done long before nvcc."""
    arguments = _gpu_operators(flags, numbered, label, bound)
    unit = {"cpp_sources": arguments.pop("cuda_sources"), "with_cuda": True}
    more = ["-O1", "-fvisibility=hidden", "-DTORCH_LIGHT_CUDA", STANDARD, *defines(flags)]
    return {**arguments, **unit, "extra_cflags": more}


def _gpu_module(flags, numbered, label, bound):
    declarations = "\n".join(f"{f.declaration};" for f in bound if f.called == f.name)
    return {"cpp_sources": declarations, "cuda_sources": numbered, **_gpu_flags(numbered, *flags)}


def _gpu_flags(source, *more):
    arch = gpu_arch(source)
    chip = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    # two strings may name their kernels alike: hidden, none can stand in for another
    hidden = "-Xcompiler=-fvisibility=hidden"
    return {"extra_cuda_cflags": ["-O3", "-lineinfo", hidden, chip, *more]}


@functools.cache
def _headers() -> str:
    """Return the text of all headers that we add, because libraries depend on it."""
    ours = (cuda_on_cpu.INCLUDE, cuda_on_cpu.INCLUDE_TORCH)
    backend = sorted(path for folder in ours for path in folder.rglob("*") if path.is_file())
    return torch_light.text() + "".join(path.read_text() for path in backend)


@functools.cache
def _processor() -> str:
    """Return what the processor can do: -march=native builds for that, and a cache may move."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.machine()
    with info.open() as lines:
        return next((s for s in lines if s.startswith(("flags", "Features"))), platform.machine())


# ------------------------------------------------------------------------------ build and load


def _load(library: str, build: Build) -> CompiledFunctions | None:
    """Load a library from the cache; None if it is not there, or not loadable any more."""
    for path in tools.BUILDS.folder.glob(f"{library}/*.so"):
        try:
            return _open(path, library, build)
        except (OSError, ImportError):  # it was built against a library that has gone
            tools.BUILDS.remove(library)
    return None


def _open(path: Path, library: str, build: Build) -> CompiledFunctions:
    if build.is_module:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        functions = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(functions)
    else:
        torch.ops.load_library(path)
        functions = getattr(torch.ops, library)
    return _compiled(functions, build)


_SLOW = (
    "Building with all of PyTorch's headers, which takes a minute or more; a string that does "
    "without <torch/extension.h> takes seconds"
)


def _build(library: str, build: Build) -> CompiledFunctions:
    loaded = []

    def make(directory: Path):
        loaded.append(_call_load_inline(library, build, directory))
        for path in directory.iterdir():
            if path.suffix != ".so":  # sources and objects, of use to nobody any more
                path.unlink()

    tools.BUILDS.get(library, make, build.announce or (_SLOW if build.is_module else ""))
    return _compiled(loaded[0], build) if loaded else _load(library, build)


def _compiled(functions, build: Build) -> CompiledFunctions:
    code = mask_comments(build.source)
    names = build.names
    if build.has_own_module:
        names = [name for name, value in vars(functions).items() if inspect.isbuiltin(value)]
    found = {name: noting(getattr(functions, name), name, code) for name in names}
    if build.backend == "cpu":
        _guard_tensors()
        backend = tools.cpu_backend()
        found = {name: reported(function, backend, build.check) for name, function in found.items()}
    if build.check:
        found = {name: checked_call(function) for name, function in found.items()}
    return CompiledFunctions({name: _briefly(function) for name, function in found.items()})


def _briefly(function):
    """Return the function with errors that show the caller's line, but not what lies below it."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if kernel := re.fullmatch(r"(.*): interrupted\.", str(error)):  # by Ctrl-C
                raise Stopped(f"stopped in {kernel[1]}") from None
            raise error.with_traceback(None) from error.__cause__

    return call


def _call_load_inline(library: str, build: Build, directory: Path, precompiled: bool = True):
    """Build and load: return what holds the functions. The one place that calls load_inline."""
    from torch.utils.cpp_extension import load_inline  # half a second, so only if there is work

    arguments, first = dict(build.arguments), []
    with tools.found_by_load_inline(cuda=build.backend == "cuda"):
        if not build.is_module:
            define = f'-DTORCH_LIGHT_LIBRARY=\\"{library}\\"'
            if build.backend == "cpu":
                first = _precompiled(build.compiled, arguments) if precompiled else []
                arguments["extra_cflags"] = [*first, *arguments["extra_cflags"]]
                arguments["extra_ldflags"] = [*arguments["extra_ldflags"], *_linked_by_name()]
            for flags in {"extra_cflags", "extra_cuda_cflags"} & arguments.keys():
                arguments[flags] = [*arguments[flags], define]
            linked = arguments.get("extra_ldflags", [])
            arguments["extra_ldflags"] = [str(_tensor_object(build.backend)), *linked]
        linked = arguments.get("extra_ldflags", [])
        arguments["extra_ldflags"] = [*linked, *cuda_on_cpu.standard_library()]
        try:
            module = load_inline(
                library,
                functions=build.names if build.is_module and not build.has_own_module else None,
                is_python_module=build.is_module,
                build_directory=str(directory),
                **arguments,
            )
        except (RuntimeError, OSError, ImportError) as error:
            output = f"{error}\n{error.__cause__}"  # PyTorch hides the loader's words in the cause
            if not re.search("Error building extension|undefined symbol", output):
                raise
            if first and _NAMES_PRECOMPILED.search(output):  # cut short, or of headers that changed
                tools.BUILDS.remove(Path(first[-1]).parent.name)
                return _call_load_inline(library, build, directory, precompiled=False)
            if places := cuda_on_cpu.find_conversions(output):
                fitted = _with_fitted(build, places)
                return _call_load_inline(library, fitted, directory, precompiled)
            tools.raise_if_known(output)
            raise explain(output, build.source, build.compiled, build.label) from None
    return module if build.is_module else getattr(torch.ops, library)


def _tensor_object(backend: str) -> Path:
    """Return tensor.cpp compiled: once for this PyTorch and compiler, linked into every library."""
    from torch.utils.cpp_extension import include_paths

    flags = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{torch_light.INCLUDE}"]
    flags += ["-DTORCH_LIGHT_CUDA", "-DUSE_CUDA"] if backend == "cuda" else []
    flags += [f"-isystem{path}" for path in include_paths()]
    command = [*shlex.split(tools.host_compiler()), *flags, "-c", str(torch_light.SOURCE)]
    key = cuda_on_cpu.digest(torch_light.text(), tools.identity(), repr(command), torch.__version__)

    def make(directory: Path):
        made = ["-o", str(directory / "tensor.o")]
        environment = os.environ | cuda_on_cpu.ENGLISH
        done = subprocess.run([*command, *made], capture_output=True, text=True, env=environment)
        tools.raise_if_known(done.stderr)
        if done.returncode:
            raise RuntimeError(f"the light torch::Tensor does not compile:\n{done.stderr}")

    announce = "Building the light torch::Tensor, once on this machine"
    return tools.BUILDS.get(f"torch_light_{key}", make, announce) / "tensor.o"


# In what g++ and clang say where they cannot use a precompiled header.
_NAMES_PRECOMPILED = re.compile(r"\.gch\b|\b(?:PCH|AST|precompiled) (?:file|header)")


def _precompiled(source: str, arguments: dict) -> list[str]:
    """Return the flags to read a preamble precompiled: a third of a small build's time, or half.

    One of two: the smallest, or for what needs more the largest, unless that has another <cmath>.
    No flags where it cannot be made; where it does not fit, g++ reads its text.
    """
    from torch.utils.cpp_extension import include_paths

    needed, smallest, largest = map(_cpu_preamble, (source, "", "std Half"))
    if _NAMES_SPECIAL_FUNCTIONS.search(source):
        return []
    preamble = smallest if needed == smallest else largest
    folders = [*arguments["extra_include_paths"], *include_paths()]
    options = [*arguments["extra_cflags"], "-fPIC", *(f"-I{folder}" for folder in folders)]
    command = [*shlex.split(tools.host_compiler()), *options, "-x", "c++-header"]
    is_clang = tools.cpu_backend().is_clang
    if is_clang:  # or it refuses headers that were only written again
        command += ["-Xclang", "-fno-pch-timestamp"]
    depends = torch.__version__, tools.identity(), _processor(), _headers()
    key = cuda_on_cpu.digest(preamble, repr(command), *depends)

    def make(directory: Path):
        header = directory / "preamble.h"
        header.write_text(preamble)
        # clang wants a header to stay where it was read, and this folder gets another name
        read = "-" if is_clang else str(header)
        made = [*command, read, "-o", f"{header}.gch"]
        subprocess.run(made, input=preamble, capture_output=True, text=True, check=True)

    try:
        return ["-include", str(tools.BUILDS.get(f"preamble_{key}", make) / "preamble.h")]
    except subprocess.CalledProcessError:  # the build that reads the text says why, if it fails too
        return []


def _linked_by_name() -> list[str]:
    """Return the flags to link empty libraries of the names that PyTorch's have.

    The linker would read the whole symbol table of each, half a second for every string, and needs
    nothing of it: whoever loads the string's library has loaded PyTorch's before.
    """
    if not sys.platform.startswith("linux"):
        return []
    names = ("c10", "torch_cpu", "torch", "torch_python")
    command = [*shlex.split(tools.host_compiler()), "-shared", "-nostdlib", "-x", "c++", os.devnull]

    def make(directory: Path):
        for name in names:
            file = f"lib{name}.so"
            made = [f"-Wl,-soname,{file}", "-o", str(directory / file)]
            subprocess.run([*command, *made], capture_output=True)

    folder = tools.BUILDS.get(f"names_{cuda_on_cpu.digest(repr(command), tools.identity())}", make)
    needed = ["-Wl,--no-as-needed", "-lc10", "-ltorch_cpu", "-Wl,--as-needed"]
    return [f"-L{folder}", *needed]


@functools.cache  # once is enough
def _guard_tensors():
    """Let the CPU backend notice kernels that run over the end of a tensor made from now on."""
    tools.cpu_backend().install_allocator()
