"""Every host function on another GPU, in another stream, in a graph, from two threads at once.

What is looked for: a kernel that is launched on the wrong device or stream, memory or attributes
asked for on the wrong one, and anything that one call leaves lying about for another.
"""

import threading

import pytest
import torch

from helpers.device import BACKEND, DEVICE
from helpers.timing import capture
from kernels.tests.contract import as_tuple, check_right, equal_bits, tensors
from kernels.tests.test_contract import CASES

SLEEP = 40_000_000  # clocks, some 20 ms: what does not wait for its stream is long done by then
CALLS = 20 if BACKEND == "cuda" else 2  # of each thread
OPENED = ("all_reduce", "all_reduce_", "all_reduce_here")  # their links are of GPUs, and shared

PARAMETERS = [
    pytest.param(op, case, id=case.function)
    for op, cases in CASES.items()
    for case in cases
    if case.function not in OPENED  # which test_all_reduce.py has in graphs and in processes
]
every_case = pytest.mark.parametrize("op, case", PARAMETERS)
on_a_gpu = pytest.mark.skipif(
    BACKEND == "cpu", reason="without a GPU there is one stream, which waits for every launch"
)
on_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="takes two GPUs")


@pytest.fixture
def function(kernel, op, case):
    return getattr(kernel(op), case.function)


def sizes_of(case):
    """Return all sizes; without a GPU, where time is short, the first and the largest but few."""
    if BACKEND == "cuda":
        return case.sizes
    numbers = [sum(v.numel() for v in tensors(case.arguments(*s)).values()) for s in case.sizes]
    few = [(n, i) for i, n in enumerate(numbers) if n < 2**18] or [(0, 0)]
    return [case.sizes[i] for i in {0, max(few)[1]}]


def copies(arguments, made=torch.clone):
    """Return the arguments with other tensors: what `made` makes of each."""
    new = tensors(arguments)
    return {name: made(v) if name in new else v for name, v in arguments.items()}


def called(function, case, arguments):
    """Return the results of a call, then the tensors among its arguments as they are then."""
    results = as_tuple(function(*case.values(arguments)))
    kept = [v for name, v in tensors(arguments).items() if name not in case.scratch]
    return [v.clone() for v in (*results, *kept)]


def same(got, want):
    assert len(got) == len(want)
    assert all(map(equal_bits, got, want))


# ------------------------------------------------------------------------------------ two GPUs


@on_two
@every_case
def test_on_a_gpu_that_is_not_the_current_one(function, case):
    """Results lie there, and are right; the current GPU stays the current one."""
    assert torch.cuda.current_device() == 0
    for size in sizes_of(case):
        arguments = copies(case.arguments(*size), lambda v: v.to("cuda:1"))
        check_right(function, case, size, arguments)
        assert torch.cuda.current_device() == 0


@on_two
@every_case
def test_on_both_gpus_by_turns(function, case):
    """What is asked for once, such as more shared memory, is asked for on each GPU."""
    for size in sizes_of(case):
        arguments = case.arguments(*size)
        for gpu in ("cuda:1", "cuda:0", "cuda:1"):
            with torch.cuda.device(gpu):
                given = copies(arguments, lambda v, gpu=gpu: v.to(gpu, copy=True))
                check_right(function, case, size, given)


@on_two
@every_case
def test_the_other_gpus_stream_is_its_own(function, case):
    """While the current GPU sleeps, the other one works: nothing of it waits for the first."""
    arguments = copies(case.arguments(*case.sizes[0]), lambda v: v.to("cuda:1"))
    want = called(function, case, copies(arguments))
    torch.cuda.synchronize("cuda:1")
    torch.cuda._sleep(10 * SLEEP)
    asleep = torch.cuda.Event()
    asleep.record()
    got = called(function, case, copies(arguments))
    torch.cuda.synchronize("cuda:1")
    assert not asleep.query(), "the call waited for the GPU that is not its own"
    same(got, want)


# ------------------------------------------------------------------------------------- one GPU


@on_a_gpu
@every_case
def test_in_a_stream_of_its_own(function, case):
    """Its arguments come late in that stream: a launch in another one finds zeros in them."""
    for size in sizes_of(case):
        arguments = case.arguments(*size)
        want = called(function, case, copies(arguments))
        late = copies(arguments, torch.zeros_like)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()  # which does not wait for the default one, nor that for it
        with torch.cuda.stream(side):
            torch.cuda._sleep(SLEEP)
            for name, value in tensors(late).items():
                value.copy_(arguments[name])
            got = called(function, case, late)
        side.synchronize()
        same(got, want)


@on_a_gpu
@every_case
def test_in_a_graph(function, case):
    """A replay is a call with what is in the same memory by then."""
    for size in sizes_of(case):
        held, results = case.arguments(*size), []

        def call(held=held, results=results):
            results[:] = as_tuple(function(*case.values(held)))
            torch.zeros(1, device=DEVICE)  # a launch also where the call has nothing to do

        replay = capture(call)
        for _ in range(2):
            fresh = case.arguments(*size)
            numbers = {n: v for n, v in held.items() if n not in tensors(held)}
            want = called(function, case, copies(fresh | numbers))
            for name, value in tensors(held).items():
                value.copy_(fresh[name])
            replay()
            kept = [v for name, v in tensors(held).items() if name not in case.scratch]
            same([*results, *kept], want)


@every_case
def test_two_threads_at_once(function, case):
    """Each with numbers of its own, on a GPU in a stream of its own: as if it were alone."""
    for size in sizes_of(case):
        arguments = [case.arguments(*size) for _ in range(2)]
        wanted = [called(function, case, copies(given)) for given in arguments]
        for got, want in zip(of_two_threads(function, case, arguments), wanted, strict=True):
            for results in got:
                same(results, want)


def of_two_threads(function, case, arguments):
    """Return what each of two threads got from its calls."""
    got, start = {}, threading.Barrier(2, timeout=60)

    def call(i):
        stream = torch.cuda.Stream() if BACKEND == "cuda" else None
        with torch.cuda.stream(stream):  # None: no stream
            mine = [copies(arguments[i]) for _ in range(CALLS)]
            start.wait()
            got[i] = [called(function, case, given) for given in mine]
            if stream:
                stream.synchronize()

    if BACKEND == "cuda":
        torch.cuda.synchronize()
    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return [got[i] for i in range(2)]  # KeyError: a thread raised, or did not end


def test_cases_that_are_left_out_are_there():
    assert {case.function for case in CASES["all_reduce"]} == set(OPENED)
