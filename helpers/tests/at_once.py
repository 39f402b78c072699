"""Two processes that do the same at the same time, for tests of what they share."""

import subprocess
import sys

from helpers.base.machine import ROOT


def run_two(script: str, file) -> None:
    """Run a script in two processes, as "one" and as "other", that begin together.

    It gets the file and its name as arguments, prints "ready", and waits for a line of input.
    """
    command = [sys.executable, "-c", script, str(file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    kernels = [subprocess.Popen([*command, name], **pipes) for name in ("one", "other")]
    assert [kernel.stdout.readline() for kernel in kernels] == ["ready\n", "ready\n"]
    for kernel in kernels:
        kernel.stdin.write("go\n")
        kernel.stdin.flush()
    for kernel in kernels:
        kernel.communicate()
