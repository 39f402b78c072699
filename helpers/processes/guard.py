"""Run a command and end it, with all that it has started, when the caller has gone.

The caller holds the other end of stdin: it closes however the caller ends. Run as a script, with
nothing imported that takes time: guard.py DIRECTORY COMMAND…; the directory goes, too.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time


def main(directory: str, *command: str) -> int:
    """Run the command in a process group of its own; return its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    ending = threading.Event()
    with_caller = threading.Thread(target=_end_with_caller, args=[child, ending], daemon=True)
    with_caller.start()
    code = child.wait()
    limit = time.monotonic() + 10
    while ending.is_set() and os.path.exists(directory) and time.monotonic() < limit:
        shutil.rmtree(directory, ignore_errors=True)  # one that is ending may still write there
        time.sleep(0.05)
    return abs(code)


def _end_with_caller(child: subprocess.Popen, ending: threading.Event) -> None:
    os.read(0, 1)
    ending.set()
    os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
