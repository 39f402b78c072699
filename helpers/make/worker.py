"""A process that runs pytest for one part after another, each in a fork of its own.

PyTorch, matplotlib and pytest take two seconds to import, and nearly every part imports them: a
worker does it once. From there on a part's memory, environment, output and end are its own.

pytest-xdist's workers run one part after another in one process, so that what a part leaves behind
reaches the next. Six test files and three notebooks took 64 core-seconds with them, 55 with these:
three seconds a notebook, a minute of the whole suite on 2 cores.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Set

from helpers.base.machine import ROOT
from helpers.make import spare_kernel

LIMIT_S = 1200  # notebook 17, the longest, takes 5 minutes on a core with nothing else to do
GRACE_S = 10
IMPORTED = (
    # not torch.utils.cpp_extension: its import asks for a GPU, and no fork may use one after that
    *("matplotlib.pyplot", "pytest", "setuptools", "torch"),
    # nbval's, but for ipykernel: where that is imported, helpers take themselves for in a notebook
    *("coverage", "jupyter_client", "nbformat"),
)


class Worker:
    """A worker on these cores, or on all if none are named; it begins with its first part.

    `imported` is what each part then has already.
    """

    def __init__(self, cores: Set[int], imported: tuple[str, ...] = IMPORTED):
        self.cores = cores
        # macOS's own libraries must not be in use before a fork
        self.imported = () if sys.platform == "darwin" else imported
        self.process: subprocess.Popen | None = None

    def run(self, arguments: list[str], environment: dict[str, str], output: str) -> int:
        """Run pytest and return its exit code; TimeoutError if it took longer than LIMIT_S.

        What it prints goes to the file `output`. Variables that are set already stay as they are.
        """
        if self.process is None or self.process.poll() is not None:
            self.process = self._start()
        message = json.dumps([arguments, environment, output])
        self.process.stdin.write(f"{message}\n".encode())
        code = self._line(LIMIT_S)
        if code is None:
            self.interrupt()
            self._line(GRACE_S)
        if not code:  # the part hangs, or the worker has died without it
            self.kill()
        if code is None:
            raise TimeoutError(f"it took longer than {LIMIT_S} s")
        return int(code or self.process.returncode)

    def interrupt(self) -> None:
        """Interrupt the part that runs: pytest ends a notebook's kernel then."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End the worker and all that it has started."""
        self._signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def _start(self) -> subprocess.Popen:
        cores = ",".join(map(str, self.cores))
        # what one part has compiled of helpers/ need not be compiled by all
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
        return subprocess.Popen(
            [sys.executable, "-m", "helpers.make.worker", cores, *self.imported],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select sees only what nobody has read yet
            start_new_session=True,  # a group of its own, so that it can be stopped as a whole
        )

    def _line(self, timeout_s: float) -> bytes | None:
        """Return the worker's next line, None if it does not come in time, b"" if it has died."""
        there, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        return self.process.stdout.readline() if there else None

    def _signal(self, number: int) -> None:
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


def main(cores: str, *imported: str) -> int:
    """Be a worker: run a part for each line of stdin and print its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))  # PyTorch counts them at its import
    sys.modules["rfc3987_syntax"] = None  # nbformat's schemas take two seconds for it and need none
    for name in imported:
        importlib.import_module(name)
    gc.freeze()  # parts need not look for garbage in what was imported
    for line in sys.stdin:
        part = os.fork()
        if part == 0:
            _end(_run_pytest, *json.loads(line))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the part
        _, status = os.waitpid(part, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


def _end(run, *arguments) -> None:
    """End this process with the code that `run` returns.

    It does not take apart what the worker has imported: a quarter of a second for each part.
    """
    code = 1
    try:
        code = int(run(*arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_pytest(arguments: list[str], environment: dict[str, str], output: str) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed = os.open(output, os.O_WRONLY | os.O_CREAT)
    for stream, file in enumerate((nothing, printed, printed)):
        os.dup2(file, stream)
    os.close(nothing)
    os.close(printed)
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    if "torch" in sys.modules and "helpers.make.nbval_watch" in arguments:
        spare_kernel.prepare()
    import pytest

    return pytest.main(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
