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


def main(directory: str, *command: str) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_caller, args=[directory], daemon=True).start()
    return abs(child.wait())


def _end_with_caller(directory: str) -> None:
    os.read(0, 1)
    shutil.rmtree(directory, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)  # this process's group: it is the leader of its own


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
