"""Records what a Python kernel does on the simulator, in the terms of `record`."""

import functools
import itertools
import linecache
from collections import Counter, defaultdict
from sys import _getframe

import numpy as np

from helpers.base.gpu import LINE_BYTES, WARP_SIZE
from helpers.simulator.arrays import element_bytes
from helpers.simulator.current import current
from helpers.simulator.geometry import blockIdx, launch_shape
from helpers.simulator.order import order
from helpers.simulator.running import observed_launch
from helpers.trace import model
from helpers.trace.marks import marked
from helpers.trace.record import SAMPLES, Access, Launch, Line, Request, Stage

_FLOATS = (float, np.floating)


def record(kernel, grid, block, *args):
    """Launch a Python kernel on the simulator, with all its checks, and return its Launch.

    `grid`, `block` and `args` as for helpers.simulator.launch; raises what that raises. Marks in
    the source of the kernel and its device functions tell loops apart, so lanes of a warp share a
    request only in the same iteration of each loop. Floating-point operations are those that the
    source writes on floats: + - * / **, min, max and functions of `math`, and one for each
    term of sum(terms), min(terms) or max(terms); not those on constants. A line's executions are
    those of the access, floating-point operation, barrier, shuffle or vote in it that most warps
    came to, as on the CPU backend; if it has none, those of its first statement.
    """
    recorder = _Recorder(kernel)
    observed_launch(recorder, kernel, grid, block, *args)
    grid, block = launch_shape(grid, block)
    return Launch(
        kernel=kernel.__name__,
        grid=tuple(grid),
        block=tuple(block),
        shared_bytes=recorder.shared_bytes,
        backend="simulator",
        accesses=list(recorder.accesses.values()),
        lines=recorder.lines(),
        stages=recorder.stages,
        busiest=recorder.busiest,
    )


class _Recorder:
    """Observes a launch: collects the requests of one block, then counts them."""

    def __init__(self, kernel):
        self._kernel = kernel
        self.marks = {
            "record_line": self._line,
            "record_loop": self._loop,
            "record_iteration": self._iteration,
            "record_loop_end": self._loop_end,
            "record_call": self._call,
            "record_return": self._return,
            "record_operation": self._operation,
        }
        self.accesses = {}
        self.stages = []
        self.busiest = Counter()
        self.shared_bytes = 0
        self._executions = defaultdict(lambda: [0, 0])  # (file, line, part of it) → by warps, lanes
        self._flops = defaultdict(int)  # (file, line) → operations
        self._sites = {}  # code, offset in it → file and position in the source
        self._begin_block()

    def _begin_block(self):
        self._places = defaultdict(list)  # thread → its open calls and loops, see _call
        self._requests = {}  # (warp, …, place) → requests made there, and how many by each lane
        self._marked = {}  # (warp, file, line, part, place) → bits of lanes, for each execution

    def edit(self, node, function):
        """Put marks into the source of a function."""
        return marked(node, function, is_kernel=function is self._kernel)

    # ---- what the marks call

    def _line(self, file, line, part=None):
        """The thread comes to a line's first statement, or to another part of the line."""
        thread = order.thread_number(order.stamp)
        warp, lane = divmod(thread, WARP_SIZE)
        key = warp, file, line, part, tuple(self._places[thread])
        bit = 1 << lane
        executions = self._marked.get(key)
        if executions is None:
            self._marked[key] = [bit]
            return
        for i, lanes in enumerate(executions):
            if not lanes & bit:
                executions[i] |= bit
                return
        executions.append(bit)

    def _place(self):
        return self._places[order.thread_number(order.stamp)]

    def _loop(self):
        self._place().append(0)

    def _iteration(self):
        self._place()[-1] += 1

    def _loop_end(self):
        self._place().pop()

    def _call(self):
        self._place().append(self._site(_getframe(2)))

    def _return(self):
        place = self._place()
        while place and isinstance(place.pop(), int):  # loops that the return left
            pass

    def _operation(self, value, file, line, number):
        if isinstance(value, _FLOATS):
            self._flops[file, line] += 1
            self._line(file, line, number)
        return value

    # ---- accesses

    def access(self, array, operation, index, frame, elements=1):
        """The running thread accesses an element of an array, or a vector of them."""
        thread = order.thread_number(order.stamp)
        warp, lane = divmod(thread, WARP_SIZE)
        size = element_bytes(array)
        what = operation, array.space, array.name, elements * size
        key = warp, self._site(frame), what, order.stage, tuple(self._places[thread])
        found = self._requests.get(key)  # to hash such a key takes longest
        if found is None:
            found = self._requests[key] = [], [0] * WARP_SIZE
        requests, came = found
        if came[lane] == len(requests):  # for the first time, or again in the same place
            requests.append([None] * WARP_SIZE)
        requests[came[lane]][lane] = array.offset + array.number(index) * size
        came[lane] += 1

    def _site(self, frame):
        """Return where in the source a frame is: file, line, columns."""
        key = id(frame.f_code), frame.f_lasti
        site = self._sites.get(key)
        if site is None:
            position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            # The code goes with it: as long as it lives no other has its id.
            site = self._sites[key] = (frame.f_code.co_filename, *position), frame.f_code
        return site[0]

    def end_block(self):
        block = (blockIdx.x, blockIdx.y, blockIdx.z)
        self.shared_bytes = max(
            self.shared_bytes, sum(a.size * element_bytes(a) for a in current.shared.values())
        )
        stages, of_warp = defaultdict(int), Counter()
        in_order = defaultdict(list)  # warp, …, stage → each request to shared memory, its Access
        for (warp, site, what, stage, _), (requests, came) in self._requests.items():
            file, line, *_ = site
            stages[stage, warp, line, *what[:2]] += len(requests)
            of_warp[warp, *what[:2]] += len(requests)
            self._execute(file, line, (site, what), len(requests), sum(came))
            access = self._access(file, line, *what)
            for offsets in requests:
                _count(access, tuple(offsets))
                if access.space == "shared" and access.operation != "atomic":
                    in_order[warp, what, stage].append((tuple(offsets), access))
                if block == (0, 0, 0) and len(access.samples) < SAMPLES:
                    access.samples.append(Request(block, warp, tuple(offsets)))
        for (_, *what), requests in of_warp.items():
            self.busiest |= Counter({tuple(what): requests})  # the larger one
        for made in in_order.values():
            _count_joined(made)
        for (_, file, line, part, _), executions in self._marked.items():
            lanes = sum(bits.bit_count() for bits in executions)
            self._execute(file, line, part, len(executions), lanes)
        if block == (0, 0, 0):
            self.stages = [
                Stage(*key, requests)
                for key, requests in sorted(stages.items(), key=lambda item: item[0][:3])
            ]
        self._begin_block()

    def _execute(self, file, line, part, executions, lanes):
        total = self._executions[file, line, part]
        total[0] += executions
        total[1] += lanes

    def _access(self, file, *key):
        if (file, *key) not in self.accesses:
            line, operation, space, array, size = key
            self.accesses[file, *key] = Access(
                line, _text(file, line), operation, space, array, size
            )
        return self.accesses[file, *key]

    def lines(self):
        most = {(file, line): () for file, line, part in self._executions if part is None}
        for (*where, part), total in self._executions.items():
            if (where := tuple(where)) in most:
                most[where] = max(most[where], (part is not None, *total))
        return [
            Line(line, _text(file, line), executions, lanes, self._flops[file, line])
            for (file, line), (_, executions, lanes) in sorted(most.items())
        ]


def _count(access, offsets):
    """Add one request to an Access."""
    least = min(offset for offset in offsets if offset is not None)
    least -= least % LINE_BYTES
    near = tuple(None if offset is None else offset - least for offset in offsets)
    access.requests += 1
    access.lanes += sum(offset is not None for offset in offsets)
    cost, ideal = _cost(near, access.bytes, access.operation, access.space)
    if access.space == "global":
        access.sectors += cost
        access.ideal_sectors += ideal
    else:
        access.wavefronts += cost
        access.ideal_wavefronts += ideal
    if access.operation == "atomic":
        access.same_address += model.lanes_at_one_address(offsets)


def _count_joined(made):
    """Count what nvcc may make of a warp's requests to one array: [(offsets, Access)]."""
    for first, width in model.joined([offsets for offsets, _ in made], made[0][1].bytes):
        offsets, access = made[first]
        access.joined_requests += 1
        access.joined_wavefronts += _cost(offsets, width, access.operation, "shared")[0]


@functools.lru_cache(10_000)
def _cost(offsets, size, operation, space):
    """Return the sectors or wavefronts of a request, and the ideal ones."""
    if space == "global":
        return model.sectors(offsets, size, operation), model.ideal_sectors(offsets, size)
    return (
        model.wavefronts(offsets, size, operation),
        model.ideal_wavefronts(offsets, size, operation),
    )


def _text(file, line):
    return linecache.getline(file, line).strip()
