"""Strings of C, compiled as C: what the kernels are compared with."""

import ctypes
import shlex
import subprocess

from helpers.compiler import tools
from helpers.compiler.errors import CompileError, explain
from helpers.cuda_on_cpu import digest

FLAGS = ("-std=c11", "-O3", "-Wall", "-Werror=implicit-function-declaration", "-shared", "-fPIC")


def compile_c(src: str) -> ctypes.CDLL:
    """Compile a string of C and return its functions as attributes, for ctypes to call.

    What was built before comes from the cache. Raises CompileError if the string does not compile,
    ToolMissing if there is no C compiler.
    """
    command = [*shlex.split(tools.c_compiler()), *FLAGS, "cell.c", "-o", "cell.so", "-lm"]

    def make(directory):
        (directory / "cell.c").write_text(src)
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if done.returncode:
            raise explain(done.stderr, src, src, "cell.c")

    try:
        built = tools.BUILDS.get(f"c_{digest(*command, tools.identity(), src)}", make)
    except CompileError as error:
        raise error.with_traceback(None) from None
    return ctypes.CDLL(str(built / "cell.so"))
