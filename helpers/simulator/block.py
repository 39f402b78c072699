"""The threads of a block that wait for each other, each a generator, and how they meet."""

from helpers.base.gpu import WARP_SIZE
from helpers.simulator.current import current, fault_at, returned_error
from helpers.simulator.errors import BarrierError, WarpError
from helpers.simulator.geometry import block_name, dim3, place_text, threadIdx
from helpers.simulator.meeting import WHO_IS_HERE, WHOLE_BLOCK, Absent, syncwarp
from helpers.simulator.order import order
from helpers.simulator.undefined import Undefined


class Block:
    """A block whose threads wait for each other.

    A round: every thread that can go on runs, in order, until it waits or returns. Then those
    that wait for each other and are complete meet, and go on in the next round.
    """

    def __init__(self, generator, values, block):
        self._places = [
            dim3(x, y, z) for z in range(block.z) for y in range(block.y) for x in range(block.x)
        ]
        self._shape = block
        self._threads = [generator(*values) for _ in self._places]
        self._waits = [None] * len(self._places)  # the request of each thread; None: returned

    def run(self):
        answers = dict.fromkeys(range(len(self._threads)))
        while answers:
            order.begin_turn()
            for t in sorted(answers):
                order.begin_thread(t)
                threadIdx.x, threadIdx.y, threadIdx.z = self._places[t]
                try:
                    self._waits[t] = self._threads[t].send(answers[t])
                except StopIteration as end:
                    self._waits[t] = None
                    if end.value is not None:
                        raise returned_error(end.value) from None
            answers = self._meet()

    def _meet(self):
        """Return the answers for all threads that can go on."""
        groups = self._groups()
        answers = {}
        for group in groups:
            if self._is_complete(group):
                answers.update(self._settle(group))
        if not answers:
            for group in groups:
                if group.who == WHO_IS_HERE:
                    answers.update(self._settle(group))
        if groups and not answers:
            raise self._stuck(groups)
        return answers

    def _groups(self):
        """Return the threads that wait for each other, lowest thread first."""
        groups = {}
        for t, wait in enumerate(self._waits):
            if wait is not None:
                meeting, who, brought = wait
                first = 0 if who == WHOLE_BLOCK else t // WARP_SIZE * WARP_SIZE
                # Lanes that a mask names also meet from different places in the code.
                site = None if isinstance(who, int) else _site(self._threads[t])
                key = meeting, who, first, site
                if key not in groups:
                    groups[key] = _Group(meeting, who, first)
                groups[key].brought[t - first] = brought
        return list(groups.values())

    def _is_complete(self, group):
        """Whether everybody is here. Nobody waits for threads that have returned."""
        if group.who == WHO_IS_HERE:
            return False
        alive = [t for t in self._named(group) if self._waits[t] is not None]
        return len(group.brought) == len(alive)

    def _settle(self, group):
        answers = group.meeting.settle(group.brought)
        threads = group.threads()
        if group.who == WHOLE_BLOCK:
            if len(threads) < len(self._threads):
                self._remark_on_returned(group)
            order.pass_barrier()
        elif group.meeting is syncwarp:
            order.meet_lanes(threads)
        else:
            order.tell_lanes(threads)
        for lane, answer in answers.items():
            if type(answer) is Absent:
                answers[lane] = self._undefined(group, lane, answer.lane)
        return {group.first + lane: answer for lane, answer in answers.items()}

    def _undefined(self, group, lane, source):
        """Return what a lane gets that reads from one that is not there."""
        thread = group.first + source
        frame = self._frame(group.first + lane)
        reads = f"lane {lane} reads from lane {source}, which"
        if not group.who >> source & 1:
            why = "the mask does not name"
        elif thread >= len(self._threads):
            why = "the block does not have"
        else:
            what = f"in {group.meeting}() {reads} has returned ({block_name()})"
            raise fault_at(WarpError, frame.f_code, frame.f_lineno, what)
        return Undefined(f"{reads} {why}, with {group.meeting}() in line {frame.f_lineno}")

    def _remark_on_returned(self, group):
        frame = self._frame(group.threads()[0])
        missing = [t for t in self._named(group) if self._waits[t] is None]
        current.remark(
            frame.f_code,
            frame.f_lineno,
            f"{group} is reached by {self._names(group.threads())} of {block_name()} only; "
            f"{self._whereabouts(missing)}. Today's GPUs go on without them, CUDA does not "
            "promise it: let such threads skip the work, not the barrier",
        )

    def _named(self, group):
        """Return the threads that a group's mask names, or all of the block."""
        if group.who == WHOLE_BLOCK:
            return range(len(self._threads))
        if group.who == WHO_IS_HERE:
            return group.threads()
        warp = range(group.first, min(group.first + WARP_SIZE, len(self._threads)))
        return [t for t in warp if group.who >> t - group.first & 1]

    def _stuck(self, groups):
        """Return the error for threads that wait for somebody who does not come."""
        warps = [group for group in groups if group.who != WHOLE_BLOCK]
        group = (warps or groups)[0]
        came = self._names(group.threads())
        missing = [t for t in self._named(group) if t - group.first not in group.brought]
        if warps:
            return self._fault(
                WarpError,
                group,
                f"{came} of {block_name()} at {group}: lanes named in the mask do not come; "
                f"{self._whereabouts(missing)}",
            )
        return self._fault(
            BarrierError,
            group,
            f"{group} is reached by {came} of {block_name()} only; "
            + self._whereabouts(missing, self._frame(group.threads()[0]).f_lineno),
        )

    def _fault(self, error_type, group, what):
        frame = self._frame(group.threads()[0])
        return fault_at(error_type, frame.f_code, frame.f_lineno, what)

    def _frame(self, thread):
        """Return the frame in which a thread waits."""
        return _call_chain(self._threads[thread])[-1].gi_frame

    def _whereabouts(self, threads, line=None):
        """Say where threads are: returned, or waiting at which line; others wait in `line`."""
        places = {}
        for t in threads:
            if self._waits[t] is None:
                place = ""
            else:
                meeting, who, _ = self._waits[t]
                lines = [step.gi_frame.f_lineno for step in _call_chain(self._threads[t])]
                another = "another " if lines == [line] else ""
                place = f"at {another}{_Group(meeting, who, 0)} in line {lines.pop()}"
                place += "".join(f", called in line {line}" for line in reversed(lines))
            places.setdefault(place, []).append(t)
        texts = []
        for place, found in places.items():
            one = len(found) == 1
            does = ("waits " if one else "wait ") + place
            texts.append(self._names(found) + " " + (does if place else "returned"))
        return "; ".join(texts)

    def _names(self, threads):
        """Print thread numbers as ranges; in two and three dimensions the first and how many."""
        if self._shape.y * self._shape.z > 1:
            first = place_text(self._places[threads[0]], self._shape)
            if len(threads) == 1:
                return f"thread {first}"
            last = place_text(self._places[threads[-1]], self._shape)
            return f"{len(threads)} threads from {first} to {last}"
        if len(threads) == 1:
            return f"thread {threads[0]}"
        ranges = []
        for t in threads:
            if ranges and ranges[-1][1] == t - 1:
                ranges[-1][1] = t
            else:
                ranges.append([t, t])
        texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:5]]
        return f"threads {', '.join(texts)}" + (" …" if len(ranges) > 5 else "")


class _Group:
    """Threads of a block or lanes of a warp that wait at the same call."""

    def __init__(self, meeting, who, first):
        self.meeting, self.who = meeting, who
        self.first = first  # thread number of lane 0; 0 for a whole block
        self.brought = {}  # lane (or thread) → what it brought

    def __str__(self):
        """Print the call that its members wait at."""
        mask = f" with mask {self.who:#010x}" if isinstance(self.who, int) else ""
        return f"{self.meeting}(){mask}"

    def threads(self):
        return [self.first + lane for lane in self.brought]


def _call_chain(thread):
    """Return the generators a paused thread is in: the kernel's, then its device functions'."""
    chain = [thread]
    while chain[-1].gi_yieldfrom is not None:
        chain.append(chain[-1].gi_yieldfrom)
    return chain


def _site(thread):
    """Return where in the code a thread waits, with the calls that led there."""
    return tuple((id(step.gi_code), step.gi_frame.f_lasti) for step in _call_chain(thread))
