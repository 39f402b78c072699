"""A notebook's kernel that has PyTorch and matplotlib from the worker, as a part of tests has.

A kernel takes four seconds to import them, in all notebooks two minutes. Where there is a GPU each
starts as a process of its own, as JupyterLab starts it.
"""

import contextlib
import json
import os
import signal
import sys
import time

_spare: tuple[int, int] | None = None  # its process, and the pipe that tells it to begin


class Kernel:
    """What jupyter_client asks of a kernel's process: a part of what subprocess.Popen can do."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        return self._wait(0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, options):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def prepare() -> None:
    """Fork a kernel that waits until it is launched, or ends with this process."""
    global _spare
    begin, told = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begin)
        _spare = pid, told
        while os.getpgid(pid) != pid:
            time.sleep(0.001)
        return
    os.setsid()  # a group of its own, which is interrupted as a whole
    os.close(told)
    with open(begin) as pipe:
        message = pipe.read()
    code = 1
    with contextlib.suppress(BaseException):
        code = _be_a_kernel(**json.loads(message)) if message else 0
    os._exit(code)


def is_there() -> bool:
    return _spare is not None


def launch(command: list[str], env: dict[str, str], cwd: str, **_) -> Kernel:
    """Take the place of jupyter_client.launcher.launch_kernel, once."""
    global _spare
    pid, told = _spare
    _spare = None
    env = env | {"JPY_PARENT_PID": str(os.getpid())}
    with open(told, "w") as pipe:
        json.dump({"arguments": command, "env": env, "cwd": cwd}, pipe)
    return Kernel(pid)


def _be_a_kernel(arguments: list[str], env: dict[str, str], cwd: str) -> int:
    """Do what `python -m ipykernel_launcher -f FILE` does in that folder."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = arguments[arguments.index("ipykernel_launcher") :]
    del sys.path[0]  # the folder that the worker was started in
    for name in [name for name in sys.modules if name.split(".")[0] == "helpers"]:
        del sys.modules[name]  # the notebook imports its own
    from ipykernel import kernelapp

    if matplotlib := sys.modules.get("matplotlib"):  # which would read it when it is imported
        inline = "module://matplotlib_inline.backend_inline"
        matplotlib.rcParams["backend"] = env.get("MPLBACKEND") or inline
    kernelapp.launch_new_instance()
    return 0
