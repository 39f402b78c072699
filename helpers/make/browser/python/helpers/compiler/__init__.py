"""Stands in for the compiler in the browser, where there is none."""


class CompileError(RuntimeError):
    """A CUDA string that does not compile: here none does."""


def compile_cuda(*_, **__):
    raise CompileError(
        "a CUDA string needs a C++ compiler, and a browser has none: this page runs kernels in "
        "Python. The notebook runs both"
    )
