"""Stops a loop that never ends, at no cost to those that do."""

import signal
import threading
from contextlib import contextmanager

from helpers.simulator.current import fault
from helpers.simulator.errors import EndlessLoopError

SECONDS_PER_BLOCK = 20  # of processor time; a block of the course's kernels takes under one


@contextmanager
def watchdog():
    """Yield a function to call at the start of each block: it winds up a timer.

    When a block runs longer than SECONDS_PER_BLOCK, EndlessLoopError is raised at the line that
    is running. Timer signals exist in the main thread and on Unix; elsewhere nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield lambda: None
        return

    def out_of_time(_signal, _frame):
        raise fault(
            EndlessLoopError,
            f"the block has run for {SECONDS_PER_BLOCK} s; does this loop never end?",
        )

    before = signal.signal(signal.SIGVTALRM, out_of_time)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_PER_BLOCK)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
