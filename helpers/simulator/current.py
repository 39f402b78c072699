"""The launch and the block that run now, and errors that say where in them something happened."""

import inspect
import linecache
import os
import sys
import warnings
from pathlib import Path

from helpers.simulator.errors import LaunchError, SimulatorWarning

_HERE = str(Path(__file__).parent) + os.sep
_SCHEDULER = (_HERE + "running.py", _HERE + "block.py")


class Current:
    """What runs now. `kernel` is its name, or None on the host."""

    kernel = None
    observer = None  # of the launch, or None
    own = (_HERE,)  # where files begin whose frames are not the kernel's, see observe
    shared = None  # shared arrays of the running block, by the place in the code that made them
    returns = ()  # the lines in which the kernel returns something
    remarks = set()  # the lines about which something has been said
    thread_name = None  # names the running thread; set by geometry, which knows

    def observe(self, observer):
        """Let an observer, or None, look on; its frames are not the kernel's either."""
        self.observer = observer
        self.own = (_HERE,) if observer is None else (_HERE, inspect.getfile(type(observer)))

    def remark(self, code, line, what):
        """Warn of something at a line, once in a launch."""
        if (code.co_filename, line) not in self.remarks:
            self.remarks.add((code.co_filename, line))
            message = SimulatorWarning(f"{place_of(code, line)}: {what}")
            warnings.warn_explicit(message, None, code.co_filename, line)


current = Current()


def calling_frame():
    """Return the innermost frame that is not the simulator's or observer's: the kernel's line."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(current.own):
        frame = frame.f_back
    return frame


def in_kernel(frame):
    """Whether a frame belongs to a running kernel, or to what the kernel has called."""
    called = None  # what the scheduler has called
    while frame and frame.f_code.co_filename not in _SCHEDULER:
        called, frame = frame, frame.f_back
    return called is not None and not called.f_code.co_filename.startswith(current.own)


def fault(error_type, what):
    """Return an error about the line that the running thread executes."""
    frame = calling_frame()
    return fault_at(error_type, frame.f_code, frame.f_lineno, f"{what} ({current.thread_name()})")


def fault_at(error_type, code, line, what):
    """Return an error about one line of a kernel or device function."""
    source = linecache.getline(code.co_filename, line).strip()
    return error_type(f"{place_of(code, line)}: {what}" + (f"\n    {source}" if source else ""))


def place_of(code, line):
    """Print where a line is: "add_kernel, line 3"."""
    if code.co_name != current.kernel and not code.co_name.startswith("<"):  # <listcomp>
        return f"{current.kernel}, in {code.co_name}, line {line}"
    return f"{current.kernel}, line {line}"


def returned_error(result):
    """Return the error for a thread that returned something."""
    lines = " or ".join(str(line) for line in current.returns)
    where = f"{current.kernel}, line {lines}" if lines else current.kernel
    return LaunchError(
        f"{where}: a kernel returns nothing, it writes to its arrays; this returned {result!r} "
        f"({current.thread_name()})"
    )
