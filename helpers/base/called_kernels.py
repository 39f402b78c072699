"""Which kernels a piece of Python calls, and in which version: a measurement is of these.

A version is a text such as "vector_add 3f0c2a9b61d4": a name and a digest of the source.
"""

import functools
import hashlib
import inspect
import io
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

_collected: list[dict[int, object]] = []  # kernels by id, for each `with` block that is open
_counted: list[tuple[Callable[[], int], object]] = []  # kernels that C++ calls, and how often


@contextmanager
def called_kernels() -> Iterator[set[str]]:
    """Give a set that holds, after the `with` block, the versions of the kernels called in it.

    These are functions of compile_cuda, by way of `noting` or `noting_calls`, and Triton's kernels,
    in any thread. What a CUDA graph replays is called when it is captured; `timing.capture` notes
    replays too.
    """
    called: set[str] = set()
    _collected.append({})
    before = [calls() for calls, _ in _counted]
    try:
        with _noting_triton():
            yield called
    finally:
        called |= versions(_collected.pop().values())
        before += [0] * (len(_counted) - len(before))  # first called in the block
        for (calls, kernel), count in zip(_counted, before, strict=True):
            if calls() > count:
                called |= versions([kernel])


def noting(function, name: str, code: str):
    """Return `function`, whose calls are noted as calls of a kernel; `code` has no comments."""
    return noting_versions(function, {version(name, code)})


def noting_versions(function, kernel_versions: set[str]):
    """Return `function`, whose calls are noted as calls of kernels of these versions."""

    @functools.wraps(function, assigned=["__name__", "__doc__"])
    def call(*args, **kwargs):
        _note(call)
        return function(*args, **kwargs)

    call.kernel_versions = kernel_versions
    return call


def noting_calls(calls: Callable[[], int], kernel) -> None:
    """Note calls of a function of compile_cuda that C++ makes: `calls` says how many there were."""
    _counted.append((calls, kernel))


def versions(kernels: Iterable) -> set[str]:
    """Return the versions of functions of compile_cuda and kernels of Triton; versions stay.

    Raises TypeError for anything else.
    """
    found = set()
    for kernel in kernels:
        if isinstance(kernel, str):
            found.add(kernel)
        elif hasattr(kernel, "kernel_versions"):
            found |= kernel.kernel_versions
        elif hasattr(kernel, "fn"):
            found |= _triton_versions(kernel)
        else:
            raise TypeError(f"expected a function of compile_cuda, got {kernel!r}")
    return found


def version(name: str, code: str) -> str:
    """Return the version of a kernel; blanks, of whatever kind and number, make none."""
    return f"{name} {hashlib.sha256(' '.join(code.split()).encode()).hexdigest()[:12]}"


def _note(kernel) -> None:
    for kernels in _collected:
        kernels[id(kernel)] = kernel


@contextmanager
def _noting_triton() -> Iterator[None]:
    """Note kernels of Triton, compiled or interpreted: `kernel[grid]` is how both are called."""
    jit = sys.modules.get("triton.runtime.jit")
    if jit is None:  # then there are none
        yield
        return
    subscript = jit.KernelInterface.__getitem__

    def noting_subscript(kernel, grid):
        _note(kernel)
        return subscript(kernel, grid)

    jit.KernelInterface.__getitem__ = noting_subscript
    try:
        yield
    finally:
        jit.KernelInterface.__getitem__ = subscript


def _triton_versions(kernel) -> set[str]:
    """Return the versions of a Triton kernel's Python function and of those that it calls."""
    found, todo = {}, [kernel]
    while todo:
        function = todo.pop()
        while hasattr(function, "fn"):  # @triton.jit, @triton.autotune, one around the other
            function = function.fn
        if inspect.isfunction(function) and function not in found:
            found[function] = version(function.__name__, _python_code(function))
            names = [function.__globals__.get(name) for name in function.__code__.co_names]
            todo += [value for value in names if hasattr(value, "fn")]
    return set(found.values())


def _python_code(function) -> str:
    """Return a function's source without comments, the same from every version of Python."""
    source = textwrap.dedent(inspect.getsource(function))
    words = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            words.append(tokenize.tok_name[token.type])
        elif token.type not in (tokenize.COMMENT, tokenize.NL):
            words.append(token.string)
    return " ".join(words)
