"""Which accesses to memory come before which: the thread's own order, barriers, fences.

Every access carries a stamp: the turn in which it was made, and the thread. Turns are numbered
through the launch, and a thread that runs is not interrupted within one. What is ordered:
    the accesses of one thread
    in one block, all before a barrier and all after it
    the lanes that met at a syncwarp(), before and after it
    what a thread knew at its threadfence(), and whoever then reads a later atomic of that thread
Shuffles and votes order nothing, and neither does the order in which blocks run.
"""

from bisect import bisect

from helpers.base.gpu import MAX_THREADS
from helpers.simulator.current import current
from helpers.simulator.errors import HostOnlyError
from helpers.simulator.meeting import syncwarp

_THREAD = MAX_THREADS - 1  # the bits of a stamp that hold the thread


class Order:
    """The state of the launch that runs. All stamps are in ascending order."""

    stamp = 0  # of the thread that runs now
    turn = 0
    block = 0  # the first stamp of the running block
    barrier = 0  # the first stamp after its last barrier
    stage = 0  # how many barriers it has passed
    readers = 1  # of an element between two barriers, that have to be remembered; see Watch

    def begin_launch(self):
        self.turn, self.readers = 0, 1
        self._block_starts = []
        self._global_quiet = []  # sets to empty at each barrier, see Watch
        self._released = {}  # location → what an atomic there tells those who come later

    def remember_readers(self, meetings):
        """Decide how many readers of an element matter, from the meetings in the kernel."""
        if syncwarp in meetings:
            self.readers = MAX_THREADS
        elif not all(meeting.whole_block for meeting in meetings):
            self.readers = 2

    def begin_block(self):
        self._shared_quiet = []
        self._met = {}  # thread → {lane of its warp: the last stamp that came before a syncwarp}
        self._known, self._known_by_all = {}, {}
        self._fenced, self._fenced_by_all = {}, {}
        self.pass_barrier()
        self.block, self.stage = self.barrier, 0
        self._block_starts.append(self.block)

    def begin_turn(self):
        self.turn += 1

    def begin_thread(self, thread):
        self.stamp = self.turn << 10 | thread

    def empty_at_barriers(self, quiet, shared):
        (self._shared_quiet if shared else self._global_quiet).append(quiet)

    # ---- what orders

    def pass_barrier(self):
        """All threads of the block have met."""
        self.turn += 1
        self.stage += 1
        self.barrier = self.turn << 10
        for quiet in (*self._global_quiet, *self._shared_quiet):
            quiet.clear()
        self._met.clear()
        self._known_by_all = _merge(self._known_by_all, *self._known.values())
        self._fenced_by_all = _merge(self._fenced_by_all, *self._fenced.values())
        self._known.clear()
        self._fenced.clear()

    def meet_lanes(self, threads):
        """Some lanes of a warp have met."""
        until_now = dict.fromkeys(threads, self.turn << 10 | _THREAD)
        self._share(self._met, threads, until_now)
        for knowledge in (self._known, self._fenced):
            if knowledge:
                self._share(knowledge, threads)

    @staticmethod
    def _share(knowledge, threads, *more):
        """Let each of the threads know what one of them knows."""
        merged = _merge(*(knowledge.get(t, {}) for t in threads), *more)
        knowledge.update(dict.fromkeys(threads, merged))

    def fence(self):
        """The running thread passes a threadfence()."""
        thread = self.stamp & _THREAD
        own = {(self.block, None): self.barrier - 1}
        own |= {(self.block, lane): last for lane, last in self._met.get(thread, {}).items()}
        own[self.block, thread] = self.stamp
        self._fenced[thread] = _merge(self._known_by_all, self._known.get(thread, {}), own)
        self.turn += 1
        self.stamp = self.turn << 10 | thread

    def pass_atomic(self, location):
        """The running thread performs an atomic: it learns what others released, and releases."""
        if not (self._released or self._fenced or self._fenced_by_all):
            return
        thread = self.stamp & _THREAD
        released = self._released.get(location, {})
        if released:
            self._known[thread] = _merge(self._known.get(thread, {}), released)
        own = _merge(self._fenced_by_all, self._fenced.get(thread, {}))
        if own:
            self._released[location] = _merge(released, own)

    # ---- what is ordered

    def is_before(self, stamp):
        """Whether what was done at `stamp` is ordered before the running thread."""
        thread, own = stamp & _THREAD, self.stamp & _THREAD
        if stamp >= self.block and (
            thread == own or stamp < self.barrier or stamp <= self._met.get(own, {}).get(thread, -1)
        ):
            return True
        start = self._block_starts[self.block_number(stamp)]
        return any(
            stamp <= max(known.get((start, None), -1), known.get((start, thread), -1))
            for known in (self._known_by_all, self._known.get(own, {}))
        )

    def block_number(self, stamp):
        """Return the block that a stamp is from, in the order in which blocks run."""
        return bisect(self._block_starts, stamp) - 1

    def thread_number(self, stamp):
        return stamp & _THREAD


def _merge(*known):
    """Merge dictionaries of last stamps, the later one winning."""
    merged = {}
    for one in known:
        for who, stamp in one.items():
            merged[who] = max(stamp, merged.get(who, -1))
    return merged


order = Order()


def threadfence():
    """Make this thread's accesses so far come before what it does next, for the whole grid.

    Other threads may rely on it once they have read, with an atomic, what this thread changed
    with an atomic after the fence.
    """
    if current.kernel is None:
        raise HostOnlyError("threadfence() works only inside a kernel")
    order.fence()
