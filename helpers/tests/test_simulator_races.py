"""Races and undefined reads are errors that name both lines; their mended twins pass."""

import inspect
import itertools
import math
import random
import re
import warnings

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda
from helpers.simulator import (
    OutOfRangeError,
    RaceError,
    SimulatorError,
    SimulatorWarning,
    UninitializedError,
    as_vector,
    atomicAdd,
    atomicCAS,
    atomicExch,
    blockDim,
    blockIdx,
    gridDim,
    launch,
    local_array,
    shared_array,
    shfl_down_sync,
    shfl_sync,
    syncthreads,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
)
from helpers.simulator.unwritten import FILL

FULL = 0xFFFFFFFF


def message(error_type, kernel, grid, block, *args):
    """Launch, and return the error's first line with lines counted from the kernel's `def`."""
    with pytest.raises(SimulatorError) as caught:
        launch(kernel, grid, block, *args)
    assert type(caught.value) is error_type
    first = inspect.getsourcelines(kernel)[1]
    text = str(caught.value).splitlines()[0]
    return re.sub(r"\bline (\d+)", lambda found: f"line +{int(found[1]) - first}", text)


def remarks(kernel, grid, block, *args):
    """Launch, and return what it warns of, with lines counted in the same way."""
    with pytest.warns(SimulatorWarning) as caught:
        launch(kernel, grid, block, *args)
    first = inspect.getsourcelines(kernel)[1]
    texts = [str(warning.message) for warning in caught]
    return [re.sub(r"\bline (\d+)", lambda n: f"line +{int(n[1]) - first}", t) for t in texts]


# ---- shared memory


def test_arrays_made_in_one_line_have_their_own_names():
    def kernel(out, i, j):
        s, tile = shared_array(4, torch.int32), as_vector(shared_array((2, 4)), 2)
        s[i] = 1.0
        out[0] = s[0] + tile[0, j][0]

    out = torch.zeros(1)
    assert "kernel, line +2: s[4] is out of" in message(OutOfRangeError, kernel, 1, 1, out, 4, 0)
    assert "kernel, line +3: tile[0, 2] is read" in message(
        UninitializedError, kernel, 1, 1, out, 0, 1
    )


def test_a_missing_barrier_after_the_load():
    def reverse_kernel(out, inp, barrier):
        s = shared_array(64)
        s[threadIdx.x] = inp[threadIdx.x]
        if barrier:
            syncthreads()
        out[threadIdx.x] = s[63 - threadIdx.x]

    inp, out = torch.randn(64), torch.zeros(64)
    launch(reverse_kernel, 1, 64, out, inp, True)
    assert torch.equal(out, inp.flip(0))
    assert message(UninitializedError, reverse_kernel, 1, 64, out, inp, False) == (
        "reverse_kernel, line +5: s[63] is read before anybody has written it; is a barrier "
        "missing after the writes in line +2? (block 0, thread 0)"
    )


@pytest.mark.parametrize("kind", ["syncwarp", "half", "shuffle", "none"])
def test_a_reduction_within_each_warp(kind):
    def warp_sum_kernel(out, inp):
        s = shared_array(64)
        lane, i = threadIdx.x % 32, threadIdx.x
        s[i] = inp[i]
        syncthreads()
        for delta in (16, 8, 4, 2, 1):
            value = s[i + delta] if lane < delta else 0.0
            if kind == "syncwarp":
                syncwarp()
            elif kind == "half":
                syncwarp(0xFFFF << 16 * (lane // 16))
            elif kind == "shuffle":  # orders nothing
                shfl_down_sync(FULL, value, 1)
            s[i] += value
            if kind == "syncwarp":
                syncwarp()
        if lane == 0:
            out[i // 32] = s[i]

    inp, out = torch.randint(9, (64,)).float(), torch.zeros(2)
    if kind == "syncwarp":
        launch(warp_sum_kernel, 1, 64, out, inp)
        assert torch.equal(out, inp.view(2, 32).sum(1))
        return
    writer = 1 if kind == "none" else 8
    assert message(RaceError, warp_sum_kernel, 1, 64, out, inp) == (
        f"warp_sum_kernel, line +13: s[{writer}] is written by thread {writer} and was read by "
        "thread 0 in line +6, with no barrier between (block 0)"
    )


def test_a_warp_does_not_wait_for_another():
    def two_warps_kernel(out):
        s = shared_array(64)
        s[threadIdx.x] = 1
        syncwarp()
        out[threadIdx.x] = s[threadIdx.x ^ 32]

    assert message(RaceError, two_warps_kernel, 1, 64, torch.zeros(64)).startswith(
        "two_warps_kernel, line +4: s[32] is read by thread 0 and was written by thread 32 in "
    )


def test_one_reader_of_many_is_in_another_warp():
    def max_kernel(x, n):
        largest = x[0]
        syncwarp()
        if threadIdx.x == 0:
            x[0] = largest + n

    launch(max_kernel, 1, 32, torch.zeros(1), 1)
    assert message(RaceError, max_kernel, 1, 33, torch.zeros(1), 1) == (
        "max_kernel, line +4: x[0] is written by thread 0 and was read by thread 32 in line +1, "
        "with no barrier between (block 0)"
    )


# ---- global memory


def test_two_writers_of_the_same_value():
    def flag_kernel(flag):
        flag[0] = 1

    def differing_kernel(flag):
        flag[0] = threadIdx.x

    def own_lines_kernel(flag):
        if threadIdx.x == 0:
            flag[0] = 1
        else:
            flag[0] = 1

    launch(flag_kernel, 1, 32, torch.zeros(1))  # lanes of one instruction
    said = "flag_kernel, line +1: flag[0] is written by thread {} and was written by thread {} in "
    said += "line +1, {}. Both write the same value, so it does no harm"
    for grid, block, details in (
        (1, 34, (32, 31, "with no barrier between (block 0)")),
        (
            2,
            1,
            ("0 of block 1", "0 of block 0", "and blocks of a launch are not ordered"),
        ),
    ):
        assert remarks(flag_kernel, grid, block, torch.zeros(1)) == [said.format(*details)]
    assert len(remarks(own_lines_kernel, 1, 3, torch.zeros(1))) == 1
    assert message(RaceError, differing_kernel, 1, 2, torch.zeros(1)) == (
        "differing_kernel, line +1: flag[0] is written by thread 1 and was written by thread 0 in "
        "line +1, with no barrier between (block 0); often a guard is missing"
    )


def test_blocks_that_write_one_element():
    def count_kernel(out):
        if threadIdx.x == 0:
            out[0, 1] += 1

    assert message(RaceError, count_kernel, (2, 2), 2, torch.zeros(1, 2)) == (
        "count_kernel, line +2: out[0, 1] is read by thread 0 of block (1, 0) and was written by "
        "thread 0 of block (0, 0) in line +2, and blocks of a launch are not ordered"
    )


def test_a_neighbour_that_every_block_reads_before_one_writes():
    def kernel(x):
        first = x[0]
        syncthreads()
        if blockIdx.x == 2 and threadIdx.x == 0:
            x[0] = first

    assert message(RaceError, kernel, 3, 4, torch.zeros(4)).startswith(
        "kernel, line +4: x[0] is written by thread 0 of block 2 and was read by thread 0 of block"
    )


def test_an_atomic_and_a_plain_access():
    def mixed_kernel(out, hist):
        if threadIdx.x < 3:
            atomicAdd(hist, 0, 1)
        else:
            out[0] = hist[0]

    def reading_first_kernel(out, hist):
        out[threadIdx.x] = hist[0]
        atomicAdd(hist, 0, 1)

    assert message(RaceError, mixed_kernel, 1, 4, torch.zeros(4), torch.zeros(1)) == (
        "mixed_kernel, line +4: hist[0] is read by thread 3 and was changed by an atomic by thread "
        "2 in line +2, with no barrier between (block 0)"
    )
    assert "hist[0] is read by thread 1 and was changed by an atomic by thread 0" in message(
        RaceError, reading_first_kernel, 1, 4, torch.zeros(4), torch.zeros(1)
    )


def guide_kernel(total, inp):
    i = blockIdx.x * blockDim.x + threadIdx.x
    old = total[0]  # plain, as in the CUDA programming guide
    while True:
        assumed = old
        old = atomicCAS(total, 0, assumed, assumed + inp[i])
        if old == assumed:
            break


@pytest.mark.parametrize("grid", [1, 3])
def test_a_compare_and_swap_after_a_plain_read(grid):
    inp, total = torch.randint(9, (64 * grid,)), torch.zeros(1, dtype=torch.int64)
    launch(guide_kernel, grid, 64, total, inp)
    assert total.item() == inp.sum().item()

    def then_adding_kernel(x):
        if x[0] == 0:
            atomicCAS(x, 0, 0, 1)
        if threadIdx.x == 2:
            atomicAdd(x, 0, 1)

    assert "by thread 2 and was read by thread 0 in line +1" in message(
        RaceError, then_adding_kernel, 1, 4, torch.zeros(1)
    )


PAIRS_CUDA = r"""
#include <cuda_runtime.h>

__device__ void access(int* x, int kind) {
    if (kind == 0) { volatile int seen = *x; (void)seen; }
    if (kind == 1) *x = 7 + threadIdx.x;
    if (kind == 2) atomicAdd(x, 1);
    if (kind == 3) atomicCAS(x, 0, 1);
}

__global__ void pair(int* x, int first, int second) {
    if (threadIdx.x == 0 && blockIdx.x == 0) access(x, first);
    if (threadIdx.x == 1 && blockIdx.x == gridDim.x - 1) access(x, second);
}

void run(torch::Tensor x, int64_t blocks, int64_t first, int64_t second) {
    pair<<<blocks, 2>>>(x.data_ptr<int>(), first, second);
}
"""
KINDS = [
    lambda x: x[0],
    lambda x: x.__setitem__(0, 7 + threadIdx.x),
    lambda x: atomicAdd(x, 0, 1),
    lambda x: atomicCAS(x, 0, 0, 1),
]


def pair_kernel(x, first, second):
    if threadIdx.x == 0 and blockIdx.x == 0:
        first(x)
    if threadIdx.x == 1 and blockIdx.x == gridDim.x - 1:
        second(x)


@pytest.mark.parametrize("blocks", [1, 2])
def test_pairs_of_accesses_as_on_the_cpu_backend(blocks):
    run = compile_cuda(PAIRS_CUDA, functions=["run"], check=True).run
    for first, second in itertools.product(range(4), repeat=2):
        one = torch.zeros(1, dtype=torch.int32)
        raised = []
        for start in (
            lambda: launch(pair_kernel, blocks, 2, one, KINDS[first], KINDS[second]),  # noqa: B023
            lambda: run(one.zero_(), blocks, first, second),  # noqa: B023
        ):
            try:
                start()
                raised.append(False)
            except (RaceError, RuntimeError) as error:
                assert "x[0]" in str(error)
                raised.append(True)
        race = {first, second} not in ({0}, {2}, {3}, {2, 3}, {0, 3})
        assert raised == [race, race], (first, second)


def neighbour(array, i):
    return array[i - 1]


def test_the_line_of_a_device_function():
    def calling_kernel(x):
        left = neighbour(x, threadIdx.x + 1)
        x[threadIdx.x + 1] = left
        x[0] = 1

    line = inspect.getsourcelines(neighbour)[1] + 1
    with pytest.raises(RaceError) as caught:
        launch(calling_kernel, 1, 4, torch.zeros(9))
    assert f"calling_kernel, in neighbour, line {line}: x[1] is read by thread 1" in str(
        caught.value
    )


# ---- one memory under two names


def test_arguments_that_share_memory():
    def shift_kernel(out, inp):
        out[threadIdx.x] = inp[threadIdx.x + 1]

    x = torch.arange(9.0)
    assert message(RaceError, shift_kernel, 1, 8, x, x) == (
        "shift_kernel, line +1: out[1], which is inp[1] as well, is written by thread 1 and was "
        "read by thread 0 in line +1, with no barrier between (block 0)"
    )
    assert "out[1], which is inp[1] as well" in message(RaceError, shift_kernel, 1, 8, x[1:], x[1:])
    launch(shift_kernel, 1, 8, x[:8], x.clone())
    launch(shift_kernel, 1, 7, x[1:], x)  # each thread its own element


def test_disjoint_bytes_of_one_memory():
    def bytes_kernel(small, large):
        if threadIdx.x == 0:
            large[0] = 1
        else:
            small[threadIdx.x + wrong] = 1

    memory = torch.zeros(12, dtype=torch.uint8)
    wrong = 3
    launch(bytes_kernel, 1, 8, memory, memory.view(torch.int32))
    wrong = 2
    assert "small[3], which is large[0] as well, is written by thread 1" in message(
        RaceError, bytes_kernel, 1, 8, memory, memory.view(torch.int32)
    )


# ---- fences and atomics between blocks


@pytest.mark.parametrize("fence", [True, False])
@pytest.mark.parametrize("writers", ["one", "all"])
def test_the_last_block_sums_up(fence, writers):
    def last_block_kernel(out, partial, count, inp):
        is_last = shared_array(1, torch.bool)
        i = threadIdx.x
        if writers == "all" or i == 0:
            partial[blockIdx.x, i] = inp[blockIdx.x, i]
            if fence:
                threadfence()
        if writers == "all":
            syncthreads()
        if i == 0:
            is_last[0] = atomicAdd(count, 0, 1) == gridDim.x - 1
        syncthreads()
        if is_last[0]:
            total = 0.0
            for block in range(gridDim.x):
                total += partial[block, i] if writers == "all" or i == 0 else 0.0
            out[i] = total
            if i == 0:
                count[0] = 0

    inp, out = torch.randint(9, (5, 8)).float(), torch.zeros(8)
    count = torch.zeros(1).int()
    args = (out, torch.zeros(5, 8), count, inp)
    if fence:
        for _ in range(2):
            launch(last_block_kernel, 5, 8, *args)
            assert count.item() == 0
            n = 8 if writers == "all" else 1
            assert out.tolist() == inp.sum(0)[:n].tolist() + [0] * (8 - n)
    else:
        assert (
            "partial[0, 0] is read by thread 0 of block 4 and was written by thread 0 of block 0"
        ) in message(RaceError, last_block_kernel, 5, 8, *args)


@pytest.mark.parametrize("meets", [True, False])
@pytest.mark.parametrize("fences", ["one", "all"])
def test_a_warp_stands_in_for_the_last_block(fences, meets):
    def last_warp_kernel(out, partial, count, inp):
        ticket = shared_array(1, torch.int32)
        i = threadIdx.x
        partial[blockIdx.x, i] = inp[blockIdx.x, i]
        if fences == "all":
            threadfence()
        if meets:
            syncwarp()
        if i == 0:
            if fences == "one":
                threadfence()
            ticket[0] = atomicAdd(count, 0, 1)
        syncwarp()
        if ticket[0] == gridDim.x - 1:
            total = 0.0
            for block in range(gridDim.x):
                total += partial[block, i]
            out[i] = total

    inp, out = torch.randint(9, (5, 32)).float(), torch.zeros(32)
    args = (out, torch.zeros(5, 32), torch.zeros(1).int(), inp)
    if meets:
        launch(last_warp_kernel, 5, 32, *args)
        assert torch.equal(out, inp.sum(0))
    else:
        assert (
            "partial[0, 1] is read by thread 1 of block 4 and was written by thread 1 of block 0"
        ) in message(RaceError, last_warp_kernel, 5, 32, *args)


@pytest.mark.parametrize("grid", [1, 5])
@pytest.mark.parametrize("acquires", [threadfence, threadfence_block, None])
@pytest.mark.parametrize("releases", [threadfence, threadfence_block, None])
def test_a_lock(releases, acquires, grid):
    def lock_kernel(total, lock):
        while atomicCAS(lock, 0, 0, 1) != 0:
            pass
        if acquires is not None:
            acquires()
        total[0] += 1
        if releases is not None:
            releases()
        atomicExch(lock, 0, 0)

    total, lock = torch.zeros(1), torch.zeros(1).int()
    fences = {releases, acquires}
    if None not in fences and (grid == 1 or fences == {threadfence}):
        launch(lock_kernel, grid, 3 if grid == 1 else 1, total, lock)
        assert total.item() == (3 if grid == 1 else 5)
        return
    text = message(RaceError, lock_kernel, grid, 3 if grid == 1 else 1, total, lock)
    assert "line +5: total[0] is read by thread" in text and "in line +5" in text
    released = releases is threadfence or grid == 1 and releases is threadfence_block
    if released:
        assert text.endswith("; threadfence() is missing after the atomic that tells of the write")
    else:
        assert text.endswith(
            "; threadfence() is missing between the write and the atomic that tells of it"
        )


@pytest.mark.parametrize("who", ["the lane with the ticket", "nobody", "all"])
def test_lanes_that_a_shuffle_tells_of_the_ticket(who):
    def last_warp_kernel(out, partial, count):
        lane = threadIdx.x
        partial[blockIdx.x, lane] = lane
        threadfence()
        syncwarp()
        ticket = atomicAdd(count, 0, 1) if lane == 0 else 0
        ticket = shfl_sync(FULL, ticket, 0)
        if ticket == gridDim.x - 1:
            if who == "all" or who != "nobody" and lane == 0:
                threadfence()
            for block in range(gridDim.x):
                out[lane] += partial[block, 31 - lane]

    args = torch.zeros(32), torch.zeros(3, 32), torch.zeros(1).int()
    if who == "all":
        launch(last_warp_kernel, 3, 32, *args)
        assert args[0].tolist() == [3 * (31 - lane) for lane in range(32)]
    else:
        text = message(RaceError, last_warp_kernel, 3, 32, *args)
        lane = 0 if who == "nobody" else 1
        assert f"is read by thread {lane} of block 2 and was written by thread {31 - lane}" in text
        assert text.endswith("; threadfence() is missing after the atomic that tells of the write")


def test_what_is_written_after_the_fence_is_not_covered():
    def late_kernel(out, data, flag):
        if blockIdx.x == 0:
            threadfence()
            data[0] = 1
            atomicExch(flag, 0, 1)
        elif atomicAdd(flag, 0, 0) == 1:
            out[0] = data[0]

    text = message(
        RaceError, late_kernel, 2, 1, torch.zeros(1), torch.zeros(1), torch.zeros(1).int()
    )
    assert "data[0] is read by thread 0 of block 1" in text
    assert text.endswith("is missing between the write and the atomic that tells of it")


def test_a_fence_of_another_thread():
    def other_kernel(out, data, flag):
        if threadIdx.x == 0:
            data[blockIdx.x] = 1
        else:
            threadfence()
        syncthreads()
        if threadIdx.x == 1 and atomicAdd(flag, 0, 1) == 1:
            threadfence()
            out[0] = data[0] + data[1]

    assert "data[0] is read by thread 1 of block 1 and was written by thread 0 of block 0" in (
        message(RaceError, other_kernel, 2, 2, *torch.zeros(2, 2), torch.zeros(1).int())
    )


def test_a_plain_read_after_a_compare_and_swap_loop():
    def total_kernel(out, total, inp, again):
        i = threadIdx.x
        while True:
            old = total[0]  # right: if it has changed, the next line fails
            if atomicCAS(total, 0, old, old + inp[i]) == old:
                break
        if again == i:
            out[0] = total[0]

    def largest_kernel(largest, inp):
        old = largest[0]  # at most as large as it is by now
        while old < inp[threadIdx.x]:
            assumed = old
            old = atomicCAS(largest, 0, assumed, inp[threadIdx.x])
            if old == assumed:
                break

    inp = torch.randint(1, 9, (64,))
    for again, first, other in ((0, 4, 1), (5, 4, 6), (63, 7, 62)):
        args = torch.zeros(1), torch.zeros(1).long(), inp, again
        text = message(RaceError, total_kernel, 1, 64, *args)
        assert f"total_kernel, line +{first}: total[0] is" in text
        assert f"in line +{11 - first}, with no barrier between" in text
        assert f"by thread {again} " in text and f"by thread {other} " in text
    total, largest = torch.zeros(1).long(), torch.zeros(1).long()
    launch(total_kernel, 1, 64, torch.zeros(1), total, inp, 64)
    launch(largest_kernel, 1, 64, largest, inp)
    assert (total.item(), largest.item()) == (inp.sum(), inp.max()), inp


# ---- undefined memory


def test_shared_memory_of_the_block_before():
    def leftover_kernel(out):
        s = shared_array((2, 2))
        if blockIdx.x == 0:
            s[1, threadIdx.x] = 1
        out[blockIdx.x, threadIdx.x] = s[1, threadIdx.x]

    assert message(UninitializedError, leftover_kernel, 2, 2, torch.zeros(2, 2)) == (
        "leftover_kernel, line +4: s[1, 0] is read before anybody has written it "
        "(block 1, thread 0)"
    )


def test_an_atomic_on_undefined_memory():
    def histogram_kernel(out):
        s = shared_array(4, torch.int32)
        atomicAdd(s, threadIdx.x, 1)

    def exchange_kernel(out):
        s = shared_array(4, torch.int32)
        atomicExch(s, threadIdx.x, 1)
        out[threadIdx.x] = s[threadIdx.x]

    out = torch.zeros(4)
    assert "line +2: s[0] is read before anybody" in message(
        UninitializedError, histogram_kernel, 1, 4, out
    )
    launch(exchange_kernel, 1, 4, out)
    assert out.tolist() == [1.0] * 4


def test_a_local_array():
    def local_kernel(out, n):
        mine = local_array((2, 2))
        for i in range(n):
            mine[i // 2, i % 2] = i
        out[threadIdx.x] = mine[1, 1]

    out = torch.zeros(2)
    launch(local_kernel, 1, 2, out, 4)
    assert out.tolist() == [3.0, 3.0]
    assert message(UninitializedError, local_kernel, 1, 2, out, 3) == (
        "local_kernel, line +4: mine[1, 1] is read before it is written (block 0, thread 0)"
    )


def new_memory(*shape, dtype=torch.float32):
    """Return a tensor as torch.empty gives it where the CPU backend guards memory."""
    bytes_ = math.prod(shape) * dtype.itemsize
    words = torch.full((bytes_ // 8 + 1,), FILL)
    return words.view(torch.uint8)[:bytes_].view(dtype).view(shape)


def test_new_memory_is_filled_as_on_the_cpu_backend():
    header = (ROOT / "helpers/cuda_on_cpu/runtime/memory.h").read_text()
    (word,) = re.findall(r"UNWRITTEN = (0x[0-9a-f']+);", header)
    assert int(word.replace("'", ""), 16) == FILL


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16]
    + [torch.uint8, torch.bool],
)
def test_reading_what_torch_empty_left(dtype):
    def adding_kernel(out):
        out[threadIdx.x] += 1

    def counting_kernel(out):
        atomicAdd(out, threadIdx.x, 1)

    for kernel in (adding_kernel, counting_kernel):
        assert message(UninitializedError, kernel, 1, 8, new_memory(8, dtype=dtype)) == (
            f"{kernel.__name__}, line +1: out[0] is read before anybody has written it; "
            "torch.empty leaves in a tensor what was there, torch.zeros sets it to 0 "
            "(block 0, thread 0)"
        )
    launch(adding_kernel, 1, 8, torch.zeros(8, dtype=dtype))
    half = new_memory(16, dtype=dtype)
    half[:8] = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        launch(adding_kernel, 1, 8, half)
    texts = [str(warning.message).split(": ")[1] for warning in caught]
    assert texts == ["8 of 16 elements of out are unwritten still; the first is out[8]"]


def test_unwritten_elements_of_more_dimensions():
    def kernel(out):
        out[threadIdx.y, threadIdx.x] = out[1, threadIdx.x] if threadIdx.y == 1 else 1

    for out in (new_memory(2, 3), new_memory(2, 6)[:, ::2]):
        assert "line +1: out[1, 0] is read before" in message(
            UninitializedError, kernel, 1, (3, 2), out
        )


# ---- random accesses against every pair of them


def interpreter_kernel(x, phases, program, meet):
    """Each thread runs its own list of accesses in each phase; between phases, some meet."""
    for phase in range(phases):
        run(x, program(phase))
        if meet(phase) == "block":
            syncthreads()
        elif meet(phase) == "warp":
            syncwarp()


def shuffling_interpreter_kernel(x, phases, program, meet):
    """The same with shuffles, which order nothing."""
    for phase in range(phases):
        run(x, program(phase))
        if meet(phase) == "block":
            syncthreads()
        else:
            shfl_down_sync(FULL, phase, 1)


def block_interpreter_kernel(x, phases, program, meet):
    """The same where warps never meet."""
    for phase in range(phases):
        run(x, program(phase))
        syncthreads()


def run(x, accesses):
    for kind, i in accesses:
        if kind == "read":
            x[i]  # noqa: B018
        else:
            x[i] = 100 * blockIdx.x + threadIdx.x


def races(accesses, meet):
    for n, (block, thread, phase, kind, i) in enumerate(accesses):
        for block2, thread2, phase2, kind2, i2 in accesses[:n]:
            if i != i2 or kind == kind2 == "read" or (block, thread) == (block2, thread2):
                continue
            between = meet[min(phase, phase2) : max(phase, phase2)]
            ordered = "block" in between or thread // 32 == thread2 // 32 and "warp" in between
            if block != block2 or not ordered:
                return True
    return False


@pytest.mark.parametrize(
    ("kernel", "kinds"),
    [
        (interpreter_kernel, ["block", "warp", "nobody"]),
        (shuffling_interpreter_kernel, ["block", "shuffle"]),
        (block_interpreter_kernel, ["block"]),
    ],
)
@pytest.mark.parametrize("blocks", [1, 2])
def test_random_accesses(kernel, kinds, blocks):
    found = {True: 0, False: 0}
    for _ in range(150):
        meet = random.choices(kinds, k=random.choice([1, 2, 4]))
        threads = random.sample(range(64), 3) if random.random() < 0.5 else [0, 1, 2]
        script = [
            (random.randrange(blocks), random.choice(threads), phase, kind, random.randrange(6))
            for phase in range(len(meet))
            for kind in random.choices(["read", "read", "write"], k=random.choice([1, 2, 4]))
        ]

        def barrier(phase, meet=meet):
            return meet[phase]

        def program(phase, script=script):
            here = (blockIdx.x, threadIdx.x, phase)
            return [access[3:] for access in script if access[:3] == here]

        expected = races(script, meet)
        try:
            launch(kernel, blocks, 64, torch.zeros(6), len(meet), program, barrier)
            raced = False
        except RaceError:
            raced = True
        assert raced == expected, (script, meet)
        found[expected] += 1
    assert min(found.values()) > 10
