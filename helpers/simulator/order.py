"""Which accesses to memory come before which: the thread's own order, barriers, fences.

Every access carries a stamp: the turn in which it was made, and the thread. Turns are numbered
through the launch, and a thread that runs is not interrupted within one. What is ordered:
    the accesses of one thread
    in one block, all before a barrier and all after it
    the lanes that met at a syncwarp(), before and after it
    what a thread knew at its threadfence(), and what a thread does that has then read a later
    atomic of that thread and passed a threadfence() or met others; a threadfence_block() does it
    for threads of one block
Shuffles and votes order nothing, and neither does the order in which blocks run.
"""

from bisect import bisect

from helpers.base.gpu import MAX_THREADS, WARP_SIZE
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
        self._last_atomics = {}  # (first stamp of a block, thread) → the stamp of its last atomic
        self.too_late = {}  # (watch, index, thread) → the error unless it swaps there once more
        self.for_grid = _Fences()

    def remember_readers(self, meetings):
        """Decide how many readers of an element matter, from the meetings in the kernel."""
        if syncwarp in meetings:
            self.readers = MAX_THREADS
        elif not all(meeting.whole_block for meeting in meetings):
            self.readers = 2

    def begin_block(self):
        self._shared_quiet = []
        self._met = {}  # thread → {lane of its warp: the last stamp that came before a syncwarp}
        self._known, self._known_by_all = {}, {}  # what others did before the thread
        self.for_block = _Fences()
        self.for_grid.begin_block()
        self.pass_barrier()
        self.block, self.stage = self.barrier, 0
        self._block_starts.append(self.block)

    def begin_turn(self):
        self.turn += 1

    def begin_thread(self, thread):
        self.stamp = self.turn << 10 | thread

    def end_block(self):
        """All threads have come to their end, or to a barrier: none swaps any more."""
        for error in self.too_late.values():
            raise error

    def empty_at_barriers(self, quiet, shared):
        (self._shared_quiet if shared else self._global_quiet).append(quiet)

    # ---- what orders

    def pass_barrier(self):
        """All threads of the block have met."""
        self.end_block()
        self.turn += 1
        self.stage += 1
        self.barrier = self.turn << 10
        for quiet in (*self._global_quiet, *self._shared_quiet):
            quiet.clear()
        self._met.clear()
        heard = [scope.pass_barrier() for scope in (self.for_block, self.for_grid)]
        self._known_by_all = _merge(self._known_by_all, *self._known.values(), *heard)
        self._known.clear()

    def meet_lanes(self, threads):
        """Some lanes of a warp have met at a syncwarp()."""
        until_now = dict.fromkeys(threads, self.turn << 10 | _THREAD)
        _share(self._met, threads, until_now)
        heard = [scope.meet_lanes(threads) for scope in (self.for_block, self.for_grid)]
        if self._known or any(heard):
            _share(self._known, threads, *heard)

    def tell_lanes(self, threads):
        """Some lanes of a warp have told each other values: also what atomics told them."""
        for told in (self._known, self.for_block.heard, self.for_grid.heard):
            if told:
                _share(told, threads)

    def fence(self, scopes):
        """The running thread passes a fence."""
        thread = self.stamp & _THREAD
        own = {(self.block, None): self.barrier - 1}
        own |= {(self.block, lane): last for lane, last in self._met.get(thread, {}).items()}
        own[self.block, thread] = self.stamp
        known = self._known.get(thread, {})
        self._known[thread] = _merge(known, *(s.heard.pop(thread, {}) for s in scopes))
        for scope in scopes:
            scope.fenced[thread] = _merge(self._known_by_all, self._known[thread], own)
        self.turn += 1
        self.stamp = self.turn << 10 | thread

    def pass_atomic(self, location):
        """The running thread performs an atomic: it learns what others released, and releases."""
        thread = self.stamp & _THREAD
        self._last_atomics[self.block, thread] = self.stamp
        self.for_block.pass_atomic(thread, location)
        self.for_grid.pass_atomic(thread, location)

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

    def is_same_warp(self, stamp):
        """Whether `stamp` is from the running thread's warp, and this from the running block."""
        lanes = stamp & _THREAD, self.stamp & _THREAD
        return stamp >= self.block and lanes[0] // WARP_SIZE == lanes[1] // WARP_SIZE

    def missing_fence(self, stamp):
        """Say which fence would order a write at `stamp` before the running thread; or ""."""
        start, thread = self._block_starts[self.block_number(stamp)], stamp & _THREAD
        own = self.stamp & _THREAD
        for scope in (self.for_block, self.for_grid):
            heard = scope.heard.get(own, {})
            if stamp <= max(heard.get((start, None), -1), heard.get((start, thread), -1)):
                return "; threadfence() is missing after the atomic that tells of the write"
        tells = any(
            stamp <= last and block == start and (block != self.block or writer == thread)
            for (block, writer), last in self._last_atomics.items()
        )
        if tells and (self.block, own) in self._last_atomics or start != self.block and tells:
            return "; threadfence() is missing between the write and the atomic that tells of it"
        return ""

    def block_number(self, stamp):
        """Return the block that a stamp is from, in the order in which blocks run."""
        return bisect(self._block_starts, stamp) - 1

    def thread_number(self, stamp):
        return stamp & _THREAD


class _Fences:
    """What fences of one scope have passed on, in a block or in the grid."""

    def __init__(self):
        self._released = {}  # location → what an atomic there tells those who come later
        self.begin_block()

    def begin_block(self):
        self.fenced, self._fenced_by_all = {}, {}  # thread → what its next atomic releases
        self.heard = {}  # thread → what atomics told it; known once it passes a fence

    def pass_atomic(self, thread, location):
        if not (self._released or self.fenced or self._fenced_by_all):
            return
        released = self._released.get(location, {})
        if released:
            self.heard[thread] = _merge(self.heard.get(thread, {}), released)
        own = _merge(self._fenced_by_all, self.fenced.get(thread, {}))
        if own:
            self._released[location] = _merge(released, own)

    def pass_barrier(self):
        """Return what all threads of the block know now."""
        self._fenced_by_all = _merge(self._fenced_by_all, *self.fenced.values())
        heard = _merge(*self.heard.values())
        self.fenced.clear()
        self.heard.clear()
        return heard

    def meet_lanes(self, threads):
        """Return what these threads know now."""
        if self.fenced:
            _share(self.fenced, threads)
        return _merge(*(self.heard.pop(t) for t in threads if t in self.heard))


def _share(knowledge, threads, *more):
    """Let each of the threads know what one of them knows."""
    merged = _merge(*(knowledge.get(t, {}) for t in threads), *more)
    knowledge.update(dict.fromkeys(threads, merged))


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
    with an atomic after the fence, and have passed a threadfence() of their own or a barrier.
    """
    _inside_a_kernel("threadfence")
    order.fence((order.for_block, order.for_grid))


def threadfence_block():
    """Do what threadfence() does, for the threads of this block only."""
    _inside_a_kernel("threadfence_block")
    order.fence((order.for_block,))


def _inside_a_kernel(function):
    if current.kernel is None:
        raise HostOnlyError(f"{function}() works only inside a kernel")
