"""Plugin for pytest: nbval notices at once when a notebook's kernel dies, not at its time limit.

And the kernel is the worker's spare one, if there is one. What is said while something is built
is left out: that depends on what the cache holds. On a GPU stderr is not compared: PyTorch says
there, once a process, what it has done about contexts and TF32.
"""

import re
import time
from queue import Empty

from jupyter_client.provisioning import local_provisioner
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbFile

from helpers.device import BACKEND
from helpers.make import spare_kernel

LOOK_EVERY_S = 2
BUILDING = re.compile(r"(Building [^\n]* …| \d+ s\n)+")  # as helpers/cuda_on_cpu/cache.py says it
_wait_for_message = RunningKernel.get_message


def _get_message(kernel, stream, timeout=None):
    """Wait as nbval does, in short steps between which the kernel is looked after."""
    end = time.monotonic() + (float("inf") if timeout is None else timeout)
    while True:
        left = end - time.monotonic()
        try:
            message = _wait_for_message(kernel, stream, max(0, min(LOOK_EVERY_S, left)))
            if not _is_of_a_build(message):
                return message
        except Empty:
            if not kernel.is_alive():
                raise RuntimeError("the kernel died in this cell") from None
            if left <= LOOK_EVERY_S:
                raise


def _is_of_a_build(message):
    content = message["content"]
    is_stderr = message["msg_type"] == "stream" and content["name"] == "stderr"
    return is_stderr and BUILDING.fullmatch(content["text"]) is not None


def pytest_configure():
    RunningKernel.get_message = _get_message
    if spare_kernel.is_there() and BACKEND == "cpu":
        local_provisioner.launch_kernel = spare_kernel.launch


def pytest_collectstart(collector):
    if isinstance(collector, IPyNbFile) and BACKEND == "cuda":
        collector.skip_compare += ("stderr",)
