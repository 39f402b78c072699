"""Remembers who read and wrote each element of an array, and finds data races.

A race: two threads touch one element, at least one of them writes, they are not both atomic, and
nothing that `order` knows of comes between. To read a value and then to compare and swap it is
right: if it has changed, that fails. To read it once more after that is a race again.
"""

from sys import _getframe

from helpers.simulator.current import calling_frame, current, fault, fault_at
from helpers.simulator.errors import RaceError, UninitializedError
from helpers.simulator.geometry import block_name, blockDim, dim3, gridDim, place_text
from helpers.simulator.order import order

_READ, _WRITTEN, _ATOMIC = "read", "written", "changed by an atomic"


class _Watch:
    """What an array tells of each access that the running thread makes."""

    __slots__ = ()

    def read_all(self, indices, frame):
        """The elements of a vector, in one access."""
        for index in indices:
            if index not in self.quiet:
                self.read(index, frame)

    def write_all(self, indices, values, frame):
        for index, value in zip(indices, values, strict=True):
            self.write(index, value, frame)


class Watch(_Watch):
    """The accesses to one array, by index. An access is (stamp, code, offset in the code, value).

    Threads run in order, so of those that read between two barriers it is enough to keep the
    first: a later writer races with it, or is that thread itself and comes before all others.
    Where warps meet as well, threads take several turns, and the first two are needed; where
    syncwarp() orders some of them, all.
    """

    __slots__ = ("_atomics", "_other_reads", "_is_unwritten", "_reads", "_swapped", "_writes")
    __slots__ += ("_late_reads", "_swap_before", "_shared", "_swaps", "element_text", "quiet")

    def __init__(self, element_text, shared, is_unwritten=None):
        """`is_unwritten`: tells of an index of global memory whether it is undefined at first."""
        self.quiet = set()  # indices that any thread may read, with nothing more to remember
        self.element_text = element_text  # a function: index → "s[3]"
        self._shared = shared
        self._is_unwritten = (lambda _: True) if shared else is_unwritten
        self._reads, self._writes, self._atomics = {}, {}, {}
        self._other_reads = {}  # by blocks before this one
        self._swapped = set()  # indices whose last atomic was a compare-and-swap
        self._swaps = {}  # (index, thread) → the stamp of its last compare-and-swap
        self._swap_before = {}  # index → the last atomic that is not of the thread of the very last
        self._late_reads = {}  # index → {thread: plain read after its compare-and-swap}
        order.empty_at_barriers(self.quiet, shared)

    def read(self, index, frame=None):
        """The running thread has read an element; `frame`: where, two calls up if not given."""
        last = self._writes.get(index) if self._writes else None
        if last is None:
            if self._is_unwritten is not None:
                self._refuse_unwritten(index)
        elif last[0] == order.stamp:
            return
        elif not order.block <= last[0] < order.barrier:
            self._compare(index, _READ, last, _WRITTEN)
        frame = frame or _getframe(2)
        access = order.stamp, frame.f_code, frame.f_lasti, None
        if self._atomics:
            if index in self._swapped:
                self._read_swapped(index, access)
            else:
                self._compare(index, _READ, self._atomics.get(index), _ATOMIC)
        before = self._reads.get(index)
        if order.readers == 1:
            if before is None or before[0] < order.barrier:
                if before is not None and before[0] < order.block:
                    self._other_reads[index] = before
                self._reads[index] = access
            self.quiet.add(index)
            return
        if before is not None and (one := next(iter(before.values())))[0] < order.barrier:
            if one[0] < order.block:
                self._other_reads[index] = one
            before = None
        if before is None:
            self._reads[index] = before = {}
        before[order.thread_number(order.stamp)] = access
        if len(before) == order.readers:
            self.quiet.add(index)

    def write(self, index, value, frame=None):
        """The running thread has written a value to an element."""
        frame = frame or _getframe(2)
        access = order.stamp, frame.f_code, frame.f_lasti, value
        last = self._writes.get(index)
        if last is not None:
            if last[0] == order.stamp:
                self._writes[index] = access
                return
            if not order.block <= last[0] < order.barrier:
                self._compare_writes(index, last, access)
        if self._atomics:
            self._compare(index, _WRITTEN, self._atomics.get(index), _ATOMIC)
        if self._reads:
            self._compare_with_readers(index, _WRITTEN)
            self.quiet.discard(index)
        self._writes[index] = access

    def atomic(self, index, reads, compares):
        """The running thread has performed an atomic; `reads`, `compares`: see Array.change."""
        order.pass_atomic((self, index))
        last = self._writes.get(index)
        if last is None and self._is_unwritten is not None and reads:
            self._refuse_unwritten(index)
        self._compare(index, _ATOMIC, last, _WRITTEN)
        if compares:
            self._swap(index)
        else:
            self._swapped.discard(index)
            self._compare_with_readers(index, _ATOMIC)
        self.quiet.discard(index)
        frame = calling_frame()
        self._atomics[index] = order.stamp, frame.f_code, frame.f_lasti, None

    def _swap(self, index):
        """The running thread compares and swaps: that makes good its plain reads before."""
        thread = order.thread_number(order.stamp)
        order.too_late.pop((self, index, thread), None)
        late = self._late_reads.get(index)
        if late:
            late.pop(thread, None)
            for reader in late.values():
                self._compare(index, _ATOMIC, reader, _READ)
        before = self._atomics.get(index)
        if before is not None and order.thread_number(before[0]) != thread:
            self._swap_before[index] = before
        self._swapped.add(index)
        self._swaps[index, thread] = order.stamp

    def _read_swapped(self, index, access):
        """A plain read races with compare-and-swaps of others if it comes after the thread's own.

        Unless the thread compares and swaps once more: only when it stops, this is known.
        """
        thread = order.thread_number(order.stamp)
        if self._swaps.get((index, thread), -1) < order.barrier:
            return
        self._late_reads.setdefault(index, {})[thread] = access
        other = self._atomics[index]
        if order.thread_number(other[0]) == thread:
            other = self._swap_before.get(index)
        if other is not None and not order.is_before(other[0]):
            error = _race(self.element_text(index), _READ, other, _ATOMIC)
            order.too_late.setdefault((self, index, thread), error)

    def _compare_with_readers(self, index, does):
        readers = self._reads.pop(index, None)
        if readers is None:
            return
        for reader in (readers,) if order.readers == 1 else readers.values():
            self._compare(index, does, reader, _READ)
        if self._other_reads:
            self._compare(index, does, self._other_reads.pop(index, None), _READ)

    def _compare_writes(self, index, last, access):
        """To write what is there already does no harm; lanes of one instruction may do it."""
        if last[3] != access[3]:
            self._compare(index, _WRITTEN, last, _WRITTEN)
        elif not order.is_before(last[0]) and not (
            last[1:3] == access[1:3] and order.is_same_warp(last[0])
        ):
            _, code, offset, _ = access
            what = _race_text(self.element_text(index), _WRITTEN, last, _WRITTEN)
            what += ". Both write the same value, so it does no harm"
            current.remark(code, line_of(code, offset), what)

    def _compare(self, index, does, other, did):
        """Raise RaceError unless another access is ordered before what the thread does now."""
        if other is None or other[0] == order.stamp or order.is_before(other[0]):
            return
        raise _race(self.element_text(index), does, other, did)

    def _refuse_unwritten(self, index):
        if index in self._atomics or not self._is_unwritten(index):
            return
        what = f"{self.element_text(index)} is read before anybody has written it"
        stamp, code, offset, _ = next(reversed(self._writes.values()), (-1, None, 0, None))
        if stamp >= order.barrier:
            what += f"; is a barrier missing after the writes in line {line_of(code, offset)}?"
        elif not self._shared:
            what += "; torch.empty leaves in a tensor what was there, torch.zeros sets it to 0"
        raise fault(UninitializedError, what)


class AliasWatch(_Watch):
    """For an argument whose memory other arguments see as well: a Watch of bytes or of words."""

    quiet = frozenset()

    def __init__(self, array, first, step, memory, others):
        """Element i, in C order, is the `step` units from first + i * step on of `memory`.

        `others` are the watches of the other arguments.
        """
        self.array = array
        self._first, self._step, self._memory, self._others = first, step, memory, others

    def read(self, index, frame=None):
        self._tell(self._memory.read, index, frame or _getframe(2))

    def write(self, index, value, frame=None):
        self._tell(self._memory.write, index, (self, value), frame or _getframe(2))

    def atomic(self, index, reads, compares):
        self._tell(self._memory.atomic, index, reads, compares)

    def _tell(self, what, index, *arguments):
        self._memory.element_text = lambda unit: self._text(index, unit)
        first = self._first + self.array.number(index) * self._step
        for unit in range(first, first + self._step):
            what(unit, *arguments)

    def _text(self, index, unit):
        same = [other.element_at(unit) for other in self._others if other is not self]
        same = " and ".join(text for text in same if text)
        return self.array.element_text(index) + (f", which is {same} as well," if same else "")

    def element_at(self, unit):
        """Print the element that a unit of the memory belongs to; "" if there is none."""
        number = (unit - self._first) // self._step
        if not 0 <= number < self.array.size:
            return ""
        return self.array.element_text(self.array.index(number))


class ObservedWatch:
    """Tells an observer of every access to an array, then the array's own watch."""

    quiet = frozenset()

    def __init__(self, array, watch, observer):
        self._array, self._watch, self._observer = array, watch, observer

    def read(self, index, frame=None):
        frame = frame or _getframe(2)
        self._observer.access(self._array, "load", index, frame)
        if index not in self._watch.quiet:
            self._watch.read(index, frame)

    def write(self, index, value, frame=None):
        frame = frame or _getframe(2)
        self._observer.access(self._array, "store", index, frame)
        self._watch.write(index, value, frame)

    def atomic(self, index, reads, compares):
        self._observer.access(self._array, "atomic", index, calling_frame())
        self._watch.atomic(index, reads, compares)

    def read_all(self, indices, frame):
        self._observer.access(self._array, "load", indices[0], frame, len(indices))
        self._watch.read_all(indices, frame)

    def write_all(self, indices, values, frame):
        self._observer.access(self._array, "store", indices[0], frame, len(indices))
        self._watch.write_all(indices, values, frame)


class LocalWatch(_Watch):
    """Remembers which elements of a thread's own array were written."""

    def __init__(self, array):
        self._array, self.quiet = array, set()

    def read(self, index, frame=None):
        raise fault(
            UninitializedError,
            f"{self._array.element_text(index)} is read before it is written",
        )

    def write(self, index, value, frame=None):
        self.quiet.add(index)


class NoWatch(_Watch):
    """For an array that is no kernel's."""

    quiet = frozenset()

    def read(self, index, frame=None):
        pass

    def write(self, index, value, frame=None):
        pass


def _race(element, does, other, did):
    what = _race_text(element, does, other, did)
    if does == did == _WRITTEN:
        what += "; often a guard is missing"
    elif did == _WRITTEN:
        what += order.missing_fence(other[0])
    frame = calling_frame()
    return fault_at(RaceError, frame.f_code, frame.f_lineno, what)


def _race_text(element, does, other, did):
    stamp, code, offset, _ = other
    now = _thread_text(order.stamp)
    then = _thread_text(stamp)
    where = f"in line {line_of(code, offset)}"
    if code.co_name != current.kernel and not code.co_name.startswith("<"):
        where += f" of {code.co_name}"
    if stamp >= order.block:
        why = f"with no barrier between ({block_name()})"
    else:
        now, then = f"{now} of {block_name()}", f"{then} of {_block_text(stamp)}"
        why = "and blocks of a launch are not ordered"
    return f"{element} is {does} by {now} and was {did} by {then} {where}, {why}"


def _thread_text(stamp):
    return f"thread {place_text(_place(order.thread_number(stamp), blockDim), blockDim)}"


def _block_text(stamp):
    return f"block {place_text(_place(order.block_number(stamp), gridDim), gridDim)}"


def _place(number, shape):
    return dim3(number % shape.x, number // shape.x % shape.y, number // (shape.x * shape.y))


def line_of(code, offset):
    """Return the line of an offset in a function's code."""
    for start, stop, line in code.co_lines():
        if start <= offset < stop:
            return line
    return code.co_firstlineno
