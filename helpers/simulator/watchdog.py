"""Stops a loop that never ends, at no cost to those that do."""

import signal
import threading
from contextlib import contextmanager

from helpers.simulator.current import fault, in_kernel
from helpers.simulator.errors import EndlessLoopError

seconds_per_block = 20  # of processor time; a block of the course's kernels takes under one


@contextmanager
def watchdog():
    """Yield a function to call at the start of each block: it winds up a timer.

    When a block runs longer than `seconds_per_block`, EndlessLoopError is raised at the line that
    is running. Timer signals exist in the main thread and on Unix; elsewhere nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield lambda: None
        return

    def out_of_time(_signal, frame):
        if not in_kernel(frame):  # between two threads: a moment later
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
            return
        raise fault(
            EndlessLoopError,
            f"the block has run for {seconds_per_block} s and is here; does this loop never end? "
            "If it ends, set helpers.simulator.watchdog.seconds_per_block",
        )

    before = signal.signal(signal.SIGVTALRM, out_of_time)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, seconds_per_block)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
