"""Strings of C, compiled as C: what the kernels are compared with."""

import ctypes
import os
import shlex
import subprocess
import sys

from helpers.compiler import tools
from helpers.compiler.errors import CompileError, explain
from helpers.cuda_on_cpu import ENGLISH, digest
from helpers.cuda_on_cpu.scanner import Source

FLAGS = ["-std=c11", "-O3", "-Wall", "-Werror=implicit-function-declaration", "-shared", "-fPIC"]
if sys.platform.startswith("linux"):
    FLAGS.append("-Wl,-Bsymbolic")  # a function named as one of the C library's is the string's own


class CLibrary(ctypes.CDLL):
    """A compiled string of C: its functions are attributes."""

    def __init__(self, path: str, src: str):
        super().__init__(path)
        self._source = src

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise AttributeError(_why_missing(name, self._source)) from None


def compile_c(src: str) -> CLibrary:
    """Compile a string of C and return its functions as attributes, for ctypes to call.

    A static function is none of them: only its own string can call it. What was built before comes
    from the cache. Raises CompileError if the string does not compile, ToolMissing if there is no C
    compiler.
    """
    command = [*shlex.split(tools.c_compiler()), *FLAGS, "cell.c", "-o", "cell.so", "-lm"]

    environment = os.environ | ENGLISH

    def make(directory):
        (directory / "cell.c").write_text(src)
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, env=environment
        )
        if done.returncode:
            tools.raise_if_known(done.stderr)
            raise explain(done.stderr, src, src, "cell.c")

    try:
        built = tools.BUILDS.get(f"c_{digest(*command, tools.identity(), src)}", make)
    except CompileError as error:
        raise error.with_traceback(None) from None
    return CLibrary(str(built / "cell.so"), src)


def _why_missing(name: str, src: str) -> str:
    functions = {each.name: each for each in Source(src).functions if each.body}
    if name in functions and "static" in functions[name].words:
        return f"{name} is static: only its own string can call it. Leave the word static out."
    callable_ones = [own for own, each in functions.items() if "static" not in each.words]
    return f"no function {name} was compiled; there is {', '.join(callable_ones) or 'none'}"
