"""Build a program of .cu files that runs without a GPU, with nvcc's everyday options.

    python -m helpers.cuda_on_cpu.command program.cu -o program
    python -m helpers.cuda_on_cpu.command --check program.cu -o program

With --check every access of the kernels is checked: what is wrong is said on stderr, the call that
waits for the kernel returns an error, and the program ends with status 1 whatever it makes of that.
It is for compiling and for linking. -use_fast_math, -O and a GPU's architecture change nothing.

A .cu file is translated together with the headers of its own that it includes (beside it, or in a
folder of -I). Other files go to the C++ compiler as they are: $CXX, -ccbin, or the first on PATH.
"""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from .build import ENGLISH, INCLUDE, RUNTIME, CpuBackend
from .cache import Cache, user_folder
from .error import TranslateError
from .integers import ANY_CONVERSION, find_conversions, fit
from .names import is_of_cuda
from .options import CUDA, Asked, Refused, options, read, sources
from .remarks import find_remarks
from .stand_ins import OF_LIBRARY
from .translate import translate

_NOTHING_TO_LINK = {"cuda", "cudart", "cudart_static", "cudadevrt", "nvToolsExt"}
_INCLUDE = re.compile(r"^([ \t]*#[ \t]*include[ \t]*)(?:\"([^\"\n]+)\"|<([^>\n]+)>)", re.MULTILINE)
_IN_CUDA = re.compile(
    r"__(?:global|device|host|shared|constant|managed)__|<<<|\basm\b|\bvolatile\b"
)
_BYTES = "surrogateescape"  # what is no UTF-8 stays as it is
_RESERVED = re.compile(r"_|NDEBUG\b")
_UNKNOWN = re.compile(
    r"[‘'](\w+)[’'] (?:was not declared|has not been declared|does not name a type)"
    r"|(?:undeclared identifier|unknown type name) '(\w+)'"
)


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return 0, or 1 after a sentence on stderr."""
    try:
        asked = read(sys.argv[1:] if arguments is None else arguments)
        if asked.has("help"):
            print(f"{__doc__}\nOptions: {options()}.")
            return 0
        _build(asked)
        return 0
    except (Refused, OSError) as problem:  # a folder in which it may not write, say
        print(f"cuda-on-cpu: {problem}", file=sys.stderr)
        return 1


def _build(asked: Asked) -> None:
    with suppress(OSError):  # the one that PyTorch loads: one runtime then serves both
        ctypes.CDLL("libstdc++.so.6")
    backend = CpuBackend(_compiler(asked), Cache(user_folder() / "builds"))
    with tempfile.TemporaryDirectory(prefix="cuda_on_cpu_") as made:
        objects, linked = [], []
        for number, file in enumerate(asked.files):
            if file not in sources(asked):
                linked.append(str(file))
                continue
            to = Path(made, f"{number}.o")
            if asked.has("c"):
                to = Path(asked.last("o", f"{file.stem}.o"))
            if asked.has("x") or file.suffix in CUDA:
                _Unit(backend, asked, file, Path(made, str(number))).compile(to)
            else:
                flags = [*backend.flags(), *_flags(asked), *_defined(asked, Path(made))]
                _run([*_words(backend), *flags, "-c", str(file), "-o", str(to)])
            objects.append(str(to))
        if not asked.has("c"):
            _link(backend, asked, [*objects, *linked])


def _compiler(asked: Asked) -> str:
    chosen = asked.last("ccbin", os.environ.get("CXX", ""))
    if chosen and shutil.which(shlex.split(chosen)[0]):
        return chosen
    if chosen:
        raise Refused(f"there is no C++ compiler {chosen!r}, which -ccbin or CXX names.")
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return shlex.quote(found)
    raise Refused("there is no C++ compiler on PATH: none of c++, g++, clang++.")


def _words(backend: CpuBackend) -> list[str]:
    return shlex.split(backend.compiler)


def _flags(asked: Asked) -> list[str]:
    """Return what the command line tells the compiler; a program's code is -fPIE, see launch.h."""
    flags = [f"-std={asked.last('std', 'c++17')}", "-fPIE"]
    flags += [f"-I{folder}" for folder in asked.folders] + asked.passed("U", "-U")
    flags += [f"-D{macro}" for macro in asked.values.get("D", []) if _RESERVED.match(macro)]
    flags += asked.passed("isystem", "-isystem")
    flags += ["-g"] * asked.has("g") + ["-w"] * asked.has("w")
    flags += ["-ffp-contract=off"] * (asked.last("fmad", "true") == "false")
    flags += ["-DCUDA_ON_CPU_EXTENDED_LAMBDA"] * asked.has("extended-lambda")
    return flags + asked.listed("Xcompiler")


def _own_macros(asked: Asked) -> list[str]:
    """Return the macros of -D that CUDA's headers must not see: they have an N of their own."""
    return [macro for macro in asked.values.get("D", []) if not _RESERVED.match(macro)]


def _defined(asked: Asked, folder: Path) -> list[str]:
    """Return the flags to define what -D defines, behind the headers that come first."""
    macros = [macro.partition("=") for macro in _own_macros(asked)]
    if not macros:
        return []
    header = folder / "defined.h"
    lines = [f"#define {name} {value if equals else 1}" for name, equals, value in macros]
    header.write_text("\n".join(["#include <cuda_runtime.h>", *lines, ""]))
    return ["-include", str(header)]


def _link(backend: CpuBackend, asked: Asked, objects: list[str]) -> None:
    libraries = [name for name in asked.values.get("l", []) if name not in _NOTHING_TO_LINK]
    stand_ins = [each for name in libraries for each in OF_LIBRARY.get(name, [])]
    others = [f"-l{name}" for name in libraries if name not in OF_LIBRARY]
    if asked.has("check"):
        objects = [str(RUNTIME[0].parent / "checked_program.cpp"), *objects]
    try:
        ours = backend.linked(dict.fromkeys(stand_ins))
    except ModuleNotFoundError:
        named = " ".join(f"-l{name}" for name in libraries if name in OF_LIBRARY)
        raise Refused(
            f"{named}: its calls are PyTorch's operators here: pip install torch."
        ) from None
    except RuntimeError as problem:  # a part of the backend does not build
        raise Refused(str(problem)) from None
    more = [*asked.passed("L", "-L"), *others, *asked.listed("Xcompiler")]
    more += [f"-Wl,{flag}" for flag in asked.listed("Xlinker")]
    command = [*_words(backend), "-pie", "-pthread", *objects, *ours, *more]
    _run([*command, "-o", asked.last("o", "a.out")])


def _run(command: list[str]) -> None:
    """Run the C++ compiler, and let its warnings be seen; Refused with its errors."""
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ENGLISH)
    if done.returncode:
        raise Refused(_explained(done.stderr))
    sys.stderr.write(done.stderr)


def _explained(output: str) -> str:
    """Return a compiler's errors, with a word on what is CUDA's and not here."""
    # a sentence of ours comes as a deprecation: see spaces.py
    output = re.sub(r"error: .*? is deprecated: (.*?)(?: \[-W[^\]\n]*\])?$", r"error: \1", output,
                    flags=re.MULTILINE)  # fmt: skip
    names = dict.fromkeys(one or other for one, other in _UNKNOWN.findall(output))
    lacks = "CUDA has '{}', the CPU backend does not yet: it runs on a GPU only.\n"
    lacking = "".join(lacks.format(name) for name in names if is_of_cuda(name))
    return f"it does not compile.\n{output}{lacking}".rstrip()


class _Unit:
    """A .cu file and the headers of its own: translated copies, whose lines are the files'."""

    def __init__(self, backend: CpuBackend, asked: Asked, file: Path, folder: Path):
        self._backend, self._asked, self._file, self._folder = backend, asked, file, folder
        self._check = asked.has("check")
        self._copies: dict[Path, Path] = {}  # of each file
        self._texts: dict[str, str] = {}  # translated, by the file's name in the compiler's errors
        folder.mkdir()

    def compile(self, made: Path) -> None:
        main = self._copy(self._file)
        flags = [*self._backend.flags(self._check), *_flags(self._asked)]
        flags += [*_defined(self._asked, self._folder), f"-iquote{self._file.parent}"]
        command = [*_words(self._backend), *flags, "-x", "c++", "-c", str(main), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ENGLISH)
        if done.returncode and self._fit(done.stderr):
            _run(command)
        elif done.returncode:
            raise Refused(_explained(done.stderr))
        else:
            sys.stderr.write(done.stderr)

    def _copy(self, file: Path) -> Path:
        """Write the translated copy of a file, once, and of the headers of its own."""
        key = file.resolve()
        if key in self._copies:
            return self._copies[key]
        copy = self._copies[key] = self._folder / f"{len(self._copies)}_{file.name}"
        text = own = file.read_text("utf-8-sig", _BYTES)
        if file == self._file or _IN_CUDA.search(text):
            try:
                text = translate(text, self._check, lambdas=self._asked.has("extended-lambda"))
            except TranslateError as error:
                raise Refused(f"{file}:{error.line}: {error.message}") from None
            for line, sentence in find_remarks(own):
                print(f"{file}:{line}: {sentence}", file=sys.stderr)
        text = _INCLUDE.sub(lambda found: self._included(found, file), text)
        self._texts[str(file)] = text
        self._write(file)
        return copy

    def _included(self, found: re.Match, file: Path) -> str:
        """Return an #include of the copy, if it is of a header of the program's own."""
        quoted, name = found[2], found[2] or found[3]
        folders = [*([file.parent] if quoted else []), *self._asked.folders]
        header = next((path for folder in folders if (path := folder / name).is_file()), None)
        if header:
            return f'{found[1]}"{self._copy(header)}"'
        if _own_macros(self._asked) and (INCLUDE / name).is_file():
            return f'{found[1]}"{self._shielded(name)}"'
        return found[0]

    def _shielded(self, name: str) -> Path:
        """Write a header that includes one of CUDA's and hides the macros of -D from it."""
        macros = [re.match(r"\w*", macro)[0] for macro in _own_macros(self._asked)]
        lines = [f'#pragma push_macro("{macro}")\n#undef {macro}' for macro in macros]
        lines += [f"#include <{name}>", *(f'#pragma pop_macro("{macro}")' for macro in macros), ""]
        header = self._folder / f"shielded_{name.replace('/', '_')}"
        header.write_text("\n".join(lines))
        return header

    def _write(self, file: Path, first: str = "") -> None:
        if file == self._file:
            first = f"#include <cuda_runtime.h>\n{first}"
        text = self._texts[str(file)]
        self._copies[file.resolve()].write_text(
            f'{first}#line 1 "{file}"\n{text}\n', "utf-8", _BYTES
        )

    def _fit(self, errors: str) -> bool:
        """Write again, as PTX has them, conversions to integers that the compiler names; if any."""
        found = False
        for name in self._texts:
            own = "\n".join(line for line in errors.splitlines() if line.startswith(f"{name}:"))
            if places := find_conversions(own):
                found = True
                self._texts[name] = fit(self._texts[name], places)
                self._write(Path(name))
        if found:
            self._write(self._file, ANY_CONVERSION)
        return found


if __name__ == "__main__":
    sys.exit(main())
