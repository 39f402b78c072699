"""Streams on a model of a GPU: when each call runs, and which calls nothing orders.

A function that calls cudaMemcpyAsync, launch_async, cudaEventRecord … (CUDA's names, Python's
arrays) is run by `model_gpu`. The model has an engine for copies to the device, one for copies to
the host, and one for kernels, a kernel at a time. A call starts when the host has asked for it,
what it has to come after is done, and its engine is free; it takes its inputs when it starts and
writes when it ends. So what a missing wait spoils is spoiled here, on every machine.

A compiled string tells what it calls if it is compiled behind RECORDER; `from_log` reads that.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch

from helpers.base.tables import Table

cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost = "to device", "to host"
cudaStreamNonBlocking = True
KERNEL, RECORD, WAIT, SYNC = "kernel", "record", "wait", "synchronize"
LOGGED = (cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, KERNEL, RECORD, WAIT)

# In front of a string: its calls are noted, for `from_log(take_log(), ...)`. What launches a kernel
# says so itself: note_call(2, line, stream, array, array, bytes), and may write both arrays.
RECORDER = r"""
#include <cuda_runtime.h>
#include <torch/types.h>
static std::vector<int64_t> stream_log;
static void note_call(int64_t kind, int64_t line, const void* stream, const void* object,
                      const void* source, size_t bytes) {
    stream_log.insert(stream_log.end(), {kind, line, int64_t(stream), int64_t(object),
                                         int64_t(source), int64_t(bytes)});
}
static cudaError_t noted_copy(int line, void* to, const void* from, size_t bytes,
                              cudaMemcpyKind kind, cudaStream_t stream = 0) {
    note_call(kind != cudaMemcpyHostToDevice, line, stream, to, from, bytes);
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
static cudaError_t noted_record(int line, cudaEvent_t event, cudaStream_t stream = 0) {
    note_call(3, line, stream, event, nullptr, 0);
    return cudaEventRecord(event, stream);
}
static cudaError_t noted_wait(int line, cudaStream_t stream, cudaEvent_t event,
                              unsigned flags = 0) {
    note_call(4, line, stream, event, nullptr, 0);
    return cudaStreamWaitEvent(stream, event, flags);
}
std::vector<int64_t> take_log() {
    std::vector<int64_t> log;
    log.swap(stream_log);
    return log;
}
#define cudaMemcpyAsync(...) noted_copy(__LINE__, __VA_ARGS__)
#define cudaEventRecord(...) noted_record(__LINE__, __VA_ARGS__)
#define cudaStreamWaitEvent(...) noted_wait(__LINE__, __VA_ARGS__)
"""


@dataclass(frozen=True, eq=False)
class Stream:
    """A queue; a blocking one (cudaStreamCreate's) waits for the default stream, and it for it."""

    name: str
    is_blocking: bool = True


DEFAULT_STREAM = Stream("default")


@dataclass(eq=False)
class Event:
    """A marker: the number of the call that recorded it last, or None."""

    call: int | None = None


@dataclass
class Call:
    """One call of the host: what it is, where it stands, what it touches, what it comes after."""

    kind: str
    stream: Stream | None
    line: int
    us: float = 0.0
    spans: list[tuple[int, int, bool]] = field(default_factory=list)  # start, end, is it written
    do: Callable[[], Callable[[], None]] | None = None  # takes the inputs, returns what writes
    after: set[int] = field(default_factory=set)
    start: float = 0.0
    end: float = 0.0


class Schedule(Table):
    """What a model GPU did: `events` to draw, `total_us`, how often the host waits, `hazards`.

    A hazard is a sentence on a pair of calls in two streams that touch the same memory, one of them
    writing, and that nothing puts in order.
    """

    def __init__(self, calls: Sequence[Call], names: Mapping[str, torch.Tensor]):
        self.events = [
            {"stream": c.stream.name, "kind": c.kind, "ts": c.start, "dur": c.us, "line": c.line}
            for c in calls
            if c.us
        ]
        self.total_us = max((call.end for call in calls), default=0.0)
        self.host_waits = sum(call.kind == SYNC for call in calls)
        self.hazards = _hazards(calls, names)
        shown = [
            [
                f"{e['line']}",
                e["kind"],
                e["stream"],
                f"{e['ts']:,.0f}",
                f"{e['ts'] + e['dur']:,.0f}",
            ]
            for e in self.events
        ]
        found = "\n".join(self.hazards) or "Whatever touches the same memory is ordered."
        super().__init__(["line", "what", "stream", "from µs", "to µs"], shown, found)


class _Recording:
    def __init__(self, pcie_gbps: float):
        self.pcie_gbps = pcie_gbps
        self.calls: list[Call] = []
        self.last: dict[Stream, int] = {}  # call in each stream
        self.synchronized: int | None = None  # the host's last wait

    def add(self, call: Call, after: Sequence[int | None] = ()) -> int:
        number = len(self.calls)
        call.after = {n for n in (*after, self.synchronized) if n is not None}
        if call.stream is not None:
            call.after |= {n for s, n in self.last.items() if _orders(s, call.stream)}
            self.last[call.stream] = number
        self.calls.append(call)
        return number


_recording: _Recording | None = None


def model_gpu(fn: Callable, *args, pcie_gbps: float = 12.5, host_us: float = 3.0) -> Schedule:
    """Run `fn(*args)`, whose calls go to streams of a model GPU, and return when each of them ran.

    A copy moves `pcie_gbps` bytes per ns, a call costs the host `host_us`. Tensors that are
    arguments are changed as the GPU would, at the times of the schedule.
    """
    global _recording
    _recording = _Recording(pcie_gbps)
    try:
        fn(*args)
        calls = _recording.calls
    finally:
        _recording = None
    _run(calls, host_us)
    given = zip(inspect.signature(fn).parameters, args, strict=False)
    return Schedule(calls, {name: a for name, a in given if isinstance(a, torch.Tensor)})


def from_log(
    log: Sequence[int],
    names: Mapping[str, torch.Tensor],
    kernel_us: float,
    pcie_gbps: float = 12.5,
    host_us: float = 3.0,
    first_line: int = 1,
) -> Schedule:
    """Return when a model GPU would do what a string behind RECORDER called, by its take_log().

    `names` are the arrays' names; every kernel takes `kernel_us`; line 1 is `first_line`.
    """
    recording = _Recording(pcie_gbps)
    streams: dict[int, Stream] = {}
    events: dict[int, int] = {}  # address → number of its last record
    for at in range(0, len(log), 6):
        kind, line, stream, object_, source, size = log[at : at + 6]
        letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[len(streams) % 26]
        given = streams.setdefault(stream, Stream(letter, is_blocking=False))
        call = Call(LOGGED[kind], given, line - first_line + 1)
        if size:
            is_kernel = call.kind == KERNEL
            call.us = kernel_us if is_kernel else size / pcie_gbps / 1e3
            call.spans = [(object_, object_ + size, True), (source, source + size, is_kernel)]
        number = recording.add(call, [events.get(object_)] if call.kind == WAIT else [])
        if call.kind == RECORD:
            events[object_] = number
    _run(recording.calls, host_us)
    return Schedule(recording.calls, names)


def cudaStreamCreate(name: str) -> Stream:
    """Return a new stream, which the default stream waits for."""
    return Stream(name)


def cudaStreamCreateWithFlags(name: str, flags: bool) -> Stream:
    """Return a new stream; with cudaStreamNonBlocking the default stream does not concern it."""
    return Stream(name, is_blocking=not flags)


def cudaEventCreate() -> Event:
    """Return a new event, which marks nothing yet."""
    return Event()


def cudaMemcpyAsync(
    to: torch.Tensor, source: torch.Tensor, kind: str, stream: Stream = DEFAULT_STREAM
) -> None:
    """Put a copy into a stream; `kind` is cudaMemcpyHostToDevice or cudaMemcpyDeviceToHost."""
    us = source.nbytes / _now().pcie_gbps / 1e3

    def take() -> Callable[[], None]:
        taken = source.clone()
        return lambda: to.copy_(taken)

    spans = [_span(to, True), _span(source, False)]
    _now().add(Call(kind, stream, _line(), us, spans, take))


def launch_async(kernel: Callable, us: float, stream: Stream, *arrays: torch.Tensor) -> None:
    """Put a kernel of `us` into a stream; kernel(*arrays) changes the first array, reads all."""

    def take() -> Callable[[], None]:
        taken = [array.clone() for array in arrays]

        def write() -> None:
            kernel(*taken)
            arrays[0].copy_(taken[0])

        return write

    spans = [_span(array, i == 0) for i, array in enumerate(arrays)]
    _now().add(Call(KERNEL, stream, _line(), us, spans, take))


def cudaEventRecord(event: Event, stream: Stream = DEFAULT_STREAM) -> None:
    """Mark this place in the stream."""
    event.call = _now().add(Call(RECORD, stream, _line()))


def cudaStreamWaitEvent(stream: Stream, event: Event) -> None:
    """Let the stream wait for the event's last mark; without one it waits for nothing."""
    _now().add(Call(WAIT, stream, _line()), [event.call])


def cudaStreamSynchronize(stream: Stream) -> None:
    """Let the host wait for a stream."""
    _now().synchronized = _now().add(Call(SYNC, None, _line()), [_now().last.get(stream)])


def cudaEventSynchronize(event: Event) -> None:
    """Let the host wait for an event's last mark."""
    _now().synchronized = _now().add(Call(SYNC, None, _line()), [event.call])


def cudaDeviceSynchronize() -> None:
    """Let the host wait for all streams."""
    _now().synchronized = _now().add(Call(SYNC, None, _line()), list(_now().last.values()))


def _now() -> _Recording:
    if _recording is None:
        raise RuntimeError("streams are modelled inside model_gpu(fn, ...) only")
    return _recording


def _orders(earlier: Stream, later: Stream) -> bool:
    """Whether the place of two calls in these streams orders them."""
    default = DEFAULT_STREAM in (earlier, later) and earlier.is_blocking and later.is_blocking
    return earlier is later or default


def _line() -> int:
    """Return the line of the call, counted from 1 at the `def` of the function it stands in."""
    frame = inspect.currentframe().f_back.f_back
    return frame.f_lineno - frame.f_code.co_firstlineno + 1


def _span(array: torch.Tensor, is_written: bool) -> tuple[int, int, bool]:
    if not array.is_contiguous():
        raise ValueError("expected contiguous arrays: a copy moves a stretch of memory")
    return array.data_ptr(), array.data_ptr() + array.nbytes, is_written


def _run(calls: Sequence[Call], host_us: float) -> None:
    """Give every call its time, and let it do what it does then."""
    free: dict[str, float] = {}  # when each engine is
    waiting = list(range(len(calls)))
    base = _bases(calls)

    def earliest(number: int) -> float:
        call, since = calls[number], base[number]
        asked = (
            host_us * (number - since)
            if since < 0
            else (calls[since].end + host_us * (number - since))
        )
        ends = [calls[n].end for n in call.after]
        return max([asked, *ends, free.get(call.kind, 0.0) if call.us else 0.0])

    while waiting:
        done = set(range(len(calls))) - set(waiting)
        ready = [n for n in waiting if calls[n].after <= done]
        start, number = min((earliest(n), n) for n in ready)
        call = calls[number]
        call.start, call.end = start, start + call.us
        free[call.kind] = call.end
        waiting.remove(number)
    moves = [(n, call) for n, call in enumerate(calls) if call.do and call.us]
    moments = [(c.end, 0, n) for n, c in moves] + [(c.start, 1, n) for n, c in moves]
    write: dict[int, Callable[[], None]] = {}
    for _, is_start, number in sorted(moments):
        if is_start:
            write[number] = calls[number].do()
        else:
            write.pop(number)()


def _bases(calls: Sequence[Call]) -> list[int]:
    """Return for each call the host's last wait before it, -1 for none: it is asked for later."""
    bases, last = [], -1
    for number, call in enumerate(calls):
        bases.append(last)
        if call.kind == SYNC:
            last = number
    return bases


def _hazards(calls: Sequence[Call], names: Mapping[str, torch.Tensor]) -> list[str]:
    before: list[int] = []  # of each call, a bit for every call that it comes after
    for call in calls:
        bits = 0
        for number in call.after:
            bits |= before[number] | 1 << number
        before.append(bits)
    found: dict[tuple, str] = {}  # of each pair of lines, the first
    for (i, a), (j, b) in combinations(enumerate(calls), 2):
        if before[j] >> i & 1:
            continue
        for start, end, written in a.spans:
            for other_start, other_end, other_written in b.spans:
                low = max(start, other_start)
                if low < min(end, other_end) and (written or other_written):
                    first = f"{_says(a, written)} {_name(low, names)}"
                    sentence = f"{first}, {_says(b, other_written)} it: nothing orders them"
                    found.setdefault((a.line, b.line), sentence)
    return list(found.values())


def _says(call: Call, written: bool) -> str:
    what = "kernel" if call.kind == KERNEL else f"copy {call.kind}"
    does = "writes" if written else "reads"
    return f"line {call.line} ({what}, stream {call.stream.name}) {does}"


def _name(address: int, names: Mapping[str, torch.Tensor]) -> str:
    for name, array in names.items():
        offset = address - array.data_ptr()
        if 0 <= offset < array.nbytes:
            row = f"[{offset // (array.stride(0) * array.element_size())}]"
            return name + (row if array.dim() > 1 else "")
    return "the same memory"
