"""launch: runs a kernel's threads, block after block, and lets them meet."""

import inspect
import types
from contextlib import contextmanager
from numbers import Number

import numpy as np
import torch

from helpers.simulator.arrays import Arguments
from helpers.simulator.current import current, fault_at
from helpers.simulator.errors import BarrierError, LaunchError, SimulatorError, WarpError
from helpers.simulator.geometry import (
    WARP_SIZE,
    block_name,
    blockDim,
    blockIdx,
    dim3,
    gridDim,
    launch_shape,
    place_text,
    thread_name,
    threadIdx,
)
from helpers.simulator.meeting import WHO_IS_HERE, WHOLE_BLOCK, ReadsReturnedLane
from helpers.simulator.rewrite import pausable
from helpers.simulator.watchdog import watchdog


def launch(kernel, grid, block, *args):
    """Run `kernel(*args)` in every thread, as `kernel<<<grid, block>>>(args)` does.

    `grid` (blocks) and `block` (threads): an int, a tuple of up to three, or a dim3. Tensors on
    any device and NumPy arrays reach the kernel as checked arrays, and what it writes is in them
    afterwards; numbers and functions reach it as they are. Raises a SimulatorError that names
    kernel, line, block and thread.
    """
    if current.kernel is not None:
        raise LaunchError(f"{current.kernel}: a kernel cannot launch another one here")
    if not isinstance(kernel, types.FunctionType):
        raise LaunchError(f"a kernel is a function, not a {type(kernel).__name__}")
    arguments = Arguments()
    try:
        grid, block = launch_shape(grid, block)
        values = _bind(kernel, args, arguments)
        generator = pausable(kernel)
    except SimulatorError as error:
        raise type(error)(f"{kernel.__name__}: {error}") from None
    try:
        with _running(kernel, grid, block), watchdog() as wind_up:
            for blockIdx.z in range(grid.z):
                for blockIdx.y in range(grid.y):
                    for blockIdx.x in range(grid.x):
                        wind_up()
                        current.shared = {}
                        if generator is None:
                            _run_threads(kernel, values, block)
                        else:
                            _Block(generator, values, block).run()
    finally:
        arguments.write_back()


def _bind(kernel, args, arguments):
    """Return what the kernel is called with: tensors as arrays that know their names."""
    signature = inspect.signature(kernel)
    try:
        signature.bind(*args)
    except TypeError as error:
        raise LaunchError(
            f"takes ({', '.join(signature.parameters)}), got {len(args)} arguments: {error}"
        ) from None
    names = list(signature.parameters)
    values = []
    for i, value in enumerate(args):
        name = names[min(i, len(names) - 1)]  # the last one may be *rest
        if isinstance(value, torch.Tensor | np.ndarray):
            value = arguments.array(name, value)
        elif isinstance(value, np.generic):
            value = value.item()
        elif not isinstance(value, Number | types.FunctionType | types.BuiltinFunctionType):
            raise LaunchError(
                f"argument {name} is a {type(value).__name__}; "
                "pass a tensor, a NumPy array, a number or a function"
            )
        values.append(value)
    return values


@contextmanager
def _running(kernel, grid, block):
    """Set what kernels and errors look at, and clear it afterwards."""
    current.kernel = kernel.__name__
    gridDim.set(grid)
    blockDim.set(block)
    try:
        yield
    except SimulatorError:
        raise
    except Exception as error:
        error.add_note(f"in kernel {kernel.__name__}, {thread_name()}")
        raise
    finally:
        current.kernel = current.shared = None
        for place in (threadIdx, blockIdx, blockDim, gridDim):
            place.clear()


def _run_threads(kernel, values, block):
    """Run the threads of a block in which nobody waits: one after the other."""
    for threadIdx.z in range(block.z):
        for threadIdx.y in range(block.y):
            for threadIdx.x in range(block.x):
                if (result := kernel(*values)) is not None:
                    raise _returned(result)


def _returned(result):
    return LaunchError(
        f"{current.kernel} returned {result!r}; a kernel returns nothing, it writes to its arrays"
    )


class _Block:
    """A block whose threads wait for each other. Each thread is a generator.

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
            for t in sorted(answers):
                threadIdx.x, threadIdx.y, threadIdx.z = self._places[t]
                try:
                    self._waits[t] = self._threads[t].send(answers[t])
                except StopIteration as end:
                    self._waits[t] = None
                    if end.value is not None:
                        raise _returned(end.value) from None
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
                key = meeting, who, first, _site(self._threads[t])
                if key not in groups:
                    groups[key] = _Group(meeting, who, first)
                groups[key].brought[t - first] = brought
        return list(groups.values())

    def _is_complete(self, group):
        """Whether everybody is here. A warp does not wait for lanes that have returned."""
        if group.who == WHOLE_BLOCK:
            return len(group.brought) == len(self._threads)
        if group.who == WHO_IS_HERE:
            return False
        alive = [t for t in self._named(group) if self._waits[t] is not None]
        return len(group.brought) == len(alive)

    def _settle(self, group):
        returned = [t - group.first for t in self._named(group) if self._waits[t] is None]
        try:
            answers = group.meeting.settle(group.brought, returned)
        except ReadsReturnedLane as error:
            lane, source = error.args
            raise self._fault(
                WarpError,
                group,
                f"in {group.meeting}() lane {lane} reads from lane {source}, which has returned "
                f"({block_name()})",
            ) from None
        return {group.first + lane: answer for lane, answer in answers.items()}

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
            f"{group} is reached by {came} of {block_name()} only; {self._whereabouts(missing)}",
        )

    def _fault(self, error_type, group, what):
        frame = _call_chain(self._threads[group.threads()[0]])[-1].gi_frame
        return fault_at(error_type, frame.f_code, frame.f_lineno, what)

    def _whereabouts(self, threads):
        """Say where threads are: returned, or waiting at which line."""
        places = {}
        for t in threads:
            if self._waits[t] is None:
                place = ""
            else:
                meeting, who, _ = self._waits[t]
                lines = [step.gi_frame.f_lineno for step in _call_chain(self._threads[t])]
                place = f"at {_Group(meeting, who, 0)} in line {lines.pop()}"
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
