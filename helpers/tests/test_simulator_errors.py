"""What CUDA refuses or leaves undefined is an error here: kernel, line, block, thread, array."""

import inspect
import math
import os
import re
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest
import torch

from helpers.simulator import (
    BarrierError,
    DtypeError,
    EndlessLoopError,
    HostOnlyError,
    LaunchError,
    OutOfRangeError,
    SharedMemoryError,
    SimulatorError,
    SimulatorWarning,
    UninitializedError,
    WarpError,
    atomicAdd,
    atomicXor,
    ballot_sync,
    blockDim,
    blockIdx,
    dim3,
    gridDim,
    launch,
    local_array,
    shared_array,
    shfl_down_sync,
    shfl_sync,
    shfl_xor_sync,
    syncthreads,
    syncthreads_count,
    syncwarp,
    threadfence,
    threadIdx,
    watchdog,
)

FULL = 0xFFFFFFFF
weights = torch.ones(3)  # a tensor of the host


def message(error_type, kernel, grid, block, *args):
    """Launch, and return the error's message with lines counted from the kernel's `def`."""
    with pytest.raises(error_type) as caught:
        launch(kernel, grid, block, *args)
    assert isinstance(caught.value, SimulatorError)
    first = inspect.getsourcelines(kernel)[1]
    text = str(caught.value)
    return re.sub(r"\bline (\d+)", lambda found: f"line +{int(found[1]) - first}", text)


# ---- indices


@pytest.mark.parametrize("with_barrier", [False, True])
@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        (4, "inp[4] is out of range, shape (4,)"),
        (-1, "inp[-1] is out of range, shape (4,)"),
        (2.0, "inp[2.0]: an index is an integer, not a float; // divides integers"),
        ("a", "inp[a]: an index is an integer, not a str"),
        ((1, 2), "inp[1, 2]: shape (4,) needs 1 index, got 2"),
        ((1,), "inp[1]: an index is an integer, not a tuple"),
        (threadIdx, "inp[threadIdx]: threadIdx has three parts; take one, as in threadIdx.x"),
    ],
)
def test_wrong_index_of_a_vector(index, complaint, with_barrier):
    def reading_kernel(out, inp):
        if blockIdx.x == 1 and threadIdx.x == 2:
            out[0] = inp[indices[0]]

    def reading_after_a_barrier_kernel(out, inp):
        syncthreads()
        if blockIdx.x == 1 and threadIdx.x == 2:
            out[0] = inp[indices[0]]

    indices = [index]
    kernel = reading_after_a_barrier_kernel if with_barrier else reading_kernel
    assert message(OutOfRangeError, kernel, 2, 3, torch.zeros(9), torch.zeros(4)) == (
        f"{kernel.__name__}, line +{3 if with_barrier else 2}: {complaint} (block 1, thread 2)\n"
        "    out[0] = inp[indices[0]]"
    )


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ((3, 0), "out[3, 0] is out of range, shape (3, 4)"),
        ((2, -1), "out[2, -1] is out of range, shape (3, 4)"),
        (5, "out[5]: shape (3, 4) needs 2 indices in one [], got 1"),
        ((0, 1, 2), "out[0, 1, 2]: shape (3, 4) needs 2 indices in one [], got 3"),
        ((0, 1.5), "out[0, 1.5]: an index is an integer, not a float; // divides integers"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bfloat16])
def test_wrong_index_of_a_matrix(index, complaint, dtype):
    def writing_kernel(out):
        if threadIdx.y == 1:
            out[indices[0]] = 1

    indices = [index]
    out = torch.zeros(3, 4, dtype=dtype)
    assert message(OutOfRangeError, writing_kernel, (1, 2), (1, 2), out) == (
        f"writing_kernel, line +2: {complaint} (block (0, 0), thread (0, 1))\n"
        "    out[indices[0]] = 1"
    )
    assert not out.any()


def test_reading_an_empty_array():
    def empty_kernel(out):
        out[0] += 1

    assert "out[0] is out of range, shape (0,)" in message(
        OutOfRangeError, empty_kernel, 1, 1, torch.zeros(0)
    )


def test_index_errors_are_index_errors():
    def wrong_kernel(out):
        atomicAdd(out, threadIdx.x, 1)

    with pytest.raises(IndexError, match=r"out\[3\] is out of range"):
        launch(wrong_kernel, 1, 4, torch.zeros(3))


def test_shared_and_local_arrays_know_their_names():
    def shared_kernel(out):
        A_tile = shared_array((2, 2))
        A_tile[0, threadIdx.x] = 1

    def local_kernel(out):
        sums: object = local_array(3)
        sums[threadIdx.z] = 0

    out = torch.zeros(1)
    assert "A_tile[0, 2] is out of range, shape (2, 2)" in message(
        OutOfRangeError, shared_kernel, 1, 4, out
    )
    assert message(OutOfRangeError, local_kernel, (1, 1, 2), (1, 1, 5), out) == (
        "local_kernel, line +2: sums[3] is out of range, shape (3,) "
        "(block (0, 0, 0), thread (0, 0, 3))\n    sums[threadIdx.z] = 0"
    )


def test_what_lies_before_a_list_is_not_its_end():
    def list_kernel(out):
        sums = [0.0]
        out[0] = sums[-1]

    assert message(OutOfRangeError, list_kernel, 1, 1, torch.zeros(1)).startswith(
        "list_kernel, line +2: sums[-1] is out of range, length 1; C++ has no negative index"
    )


def test_a_fault_in_a_comprehension_is_the_kernels():
    def listing_kernel(out):
        out[0] = sum([out[i] for i in range(3)])

    assert message(OutOfRangeError, listing_kernel, 1, 1, torch.zeros(2)).startswith(
        "listing_kernel, line +1: out[2] is out of range"
    )


def device_function(array):
    array[7] = 1


def test_a_fault_in_a_device_function_names_both():
    def calling_kernel(out):
        device_function(out)

    line = inspect.getsourcelines(device_function)[1] + 1
    with pytest.raises(OutOfRangeError) as caught:
        launch(calling_kernel, 1, 1, torch.zeros(2))
    assert str(caught.value) == (
        f"calling_kernel, in device_function, line {line}: out[7] is out of range, shape (2,) "
        "(block 0, thread 0)\n    array[7] = 1"
    )


def test_writes_before_an_error_are_in_the_tensors():
    def partly_kernel(out):
        out[2 * threadIdx.x] = 1

    for out in (torch.zeros(3), torch.zeros(3, 2)[:, 0]):
        with pytest.raises(OutOfRangeError):
            launch(partly_kernel, 1, 4, out)
        assert out.tolist() == [1.0, 0.0, 1.0]


# ---- what arrays in a kernel cannot do


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (lambda a: a[1:3], "a[1:3]: a kernel takes one element at a time"),
        (lambda a: a[:], "a[:]: a kernel takes one element at a time"),
        (lambda a: a[...], "a[...]: a kernel takes one element at a time"),
        (lambda a: list(a), "a kernel cannot iterate over a; loop over indices"),
        (lambda a: a.sum(), "a.sum: inside a kernel an array has elements, a shape and a size"),
    ],
)
def test_host_code_on_arrays(use, complaint):
    def using_kernel(a):
        use(a)

    assert complaint in message(HostOnlyError, using_kernel, 1, 1, torch.zeros(4))


def test_storing_what_is_not_a_number():
    def storing_kernel(out, ints):
        if blockIdx.x == 0:
            out[0] = out
        ints[0] = 1j

    out, ints = torch.zeros(1), torch.zeros(1).int()
    assert "out holds float32, it cannot store out: float32 array of shape (1,) (Array1D)" in (
        message(DtypeError, storing_kernel, 1, 1, out, ints)
    )


@pytest.mark.parametrize("first", [3.0, [1, 2], None])
def test_an_atomic_on_what_is_no_array(first):
    def number_kernel(out):
        atomicAdd(firsts[0], 0, 1)

    firsts = [first]
    assert message(DtypeError, number_kernel, 1, 2, torch.zeros(1)) == (
        "number_kernel, line +1: an atomic takes an array, an index and a value, as in "
        f"atomicAdd(out, i, x); {first} is no array of the kernel (block 0, thread 0)\n"
        "    atomicAdd(firsts[0], 0, 1)"
    )


def test_an_atomic_on_the_bits_of_a_float():
    def bits_kernel(out):
        atomicXor(out, 0, 1)

    assert "out holds float32, whose bits no atomic changes" in message(
        DtypeError, bits_kernel, 1, 1, torch.zeros(1)
    )


def test_storing_what_a_function_forgot_to_return():
    def halved(x):
        x / 2  # noqa: B018

    def forgetting_kernel(out, inp):
        out[threadIdx.x] = halved(inp[threadIdx.x])

    assert message(DtypeError, forgetting_kernel, 1, 2, *torch.zeros(2, 2)) == (
        "forgetting_kernel, line +1: out holds float32, it cannot store None (NoneType); is a "
        "return missing in the function that gives it? (block 0, thread 0)\n"
        "    out[threadIdx.x] = halved(inp[threadIdx.x])"
    )


def test_storing_a_complex_number():
    def storing_kernel(ints):
        ints[0] = 1j

    assert "ints holds int32, it cannot store 1j (complex)" in message(
        DtypeError, storing_kernel, 1, 1, torch.zeros(1).int()
    )


def test_writing_to_a_read_only_array():
    def writing_kernel(inp):
        inp[0] = 1

    inp = np.frombuffer(b"abcd", dtype=np.uint8)
    for given in (inp, inp[::2]):
        assert "inp is read-only" in message(HostOnlyError, writing_kernel, 1, 1, given)
    assert inp.tobytes() == b"abcd"


# ---- barriers


GO_ON = (
    ". Today's GPUs go on without them, CUDA does not promise it: let such threads skip the work, "
    "not the barrier"
)


def remarks(kernel, grid, block, *args):
    """Launch, and return what it warns of, with lines counted from the kernel's `def`."""
    with pytest.warns(SimulatorWarning) as caught:
        launch(kernel, grid, block, *args)
    assert {warning.filename for warning in caught} == {__file__}
    first = inspect.getsourcelines(kernel)[1]
    texts = [str(warning.message) for warning in caught]
    return [re.sub(r"\bline (\d+)", lambda n: f"line +{int(n[1]) - first}", t) for t in texts]


def test_a_barrier_that_some_threads_skip():
    def skipping_kernel(out, n):
        if threadIdx.x < n:
            syncthreads()
        out[blockIdx.x, threadIdx.x] = 1

    assert remarks(skipping_kernel, 3, 64, torch.zeros(3, 64), 40) == [
        "skipping_kernel, line +2: syncthreads() is reached by threads 0-39 of block 0 only; "
        f"threads 40-63 returned{GO_ON}"
    ]


def test_a_barrier_after_an_early_return():
    def returning_kernel(out, n):
        i = blockIdx.x * blockDim.x + threadIdx.x
        if i >= n:
            return
        count = syncthreads_count(i >= 0)
        out[i] = count

    out = torch.zeros(10)
    assert remarks(returning_kernel, 3, 4, out, 10) == [
        "returning_kernel, line +4: syncthreads_count() is reached by threads 0-1 of block 2 "
        f"only; threads 2-3 returned{GO_ON}"
    ]
    assert out.tolist() == [4.0] * 8 + [2.0] * 2


def test_two_barriers_in_two_branches():
    def branching_kernel(out):
        if (threadIdx.x + threadIdx.y) % 2 == 0:
            syncthreads()
        else:
            out[threadIdx.y, threadIdx.x] = 1
            syncthreads()
        syncthreads()

    assert message(BarrierError, branching_kernel, 1, (3, 2), torch.zeros(2, 3)) == (
        "branching_kernel, line +2: syncthreads() is reached by 3 threads from (0, 0) to "
        "(1, 1) of block 0 only; 3 threads from (1, 0) to (2, 1) wait at syncthreads() in line +5\n"
        "    syncthreads()"
    )


def wait_once():
    syncthreads()


def test_one_device_function_called_in_two_branches():
    def calling_kernel(out):
        if threadIdx.x in (1, 4, 5):
            wait_once()
        else:
            wait_once()

    line = inspect.getsourcelines(wait_once)[1] + 1
    first = inspect.getsourcelines(calling_kernel)[1]
    with pytest.raises(BarrierError) as caught:
        launch(calling_kernel, 1, 6, torch.zeros(1))
    assert str(caught.value) == (
        f"calling_kernel, in wait_once, line {line}: syncthreads() is reached by "
        f"threads 0, 2-3 of block 0 only; threads 1, 4-5 wait at syncthreads() in line {line}, "
        f"called in line {first + 2}\n    syncthreads()"
    )


def test_two_barriers_in_one_line():
    def choosing_kernel(out):
        syncthreads() if threadIdx.x < 2 else syncthreads()

    assert message(BarrierError, choosing_kernel, 1, 4, torch.zeros(1)).startswith(
        "choosing_kernel, line +1: syncthreads() is reached by threads 0-1 of block 0 only; "
        "threads 2-3 wait at another syncthreads() in line +1\n"
    )


# ---- warps


def test_lanes_that_do_not_come():
    def half_kernel(out):
        if threadIdx.x % 32 < 16:
            out[0] = shfl_down_sync(FULL, 1, 1)
        syncthreads()

    assert message(WarpError, half_kernel, 1, 64, torch.zeros(1)) == (
        "half_kernel, line +2: threads 0-15 of block 0 at shfl_down_sync() with mask "
        "0xffffffff: lanes named in the mask do not come; threads 16-31 wait at "
        "syncthreads() in line +3\n"
        "    out[0] = shfl_down_sync(FULL, 1, 1)"
    )


def test_lanes_with_different_masks():
    def masks_kernel(out):
        syncwarp(0xFF if threadIdx.x < 4 else 0xFC)

    assert message(WarpError, masks_kernel, 1, 8, torch.zeros(1)) == (
        "masks_kernel, line +1: threads 0-3 of block 0 at syncwarp() with mask 0x000000ff: "
        "lanes named in the mask do not come; threads 4-7 wait at syncwarp() with mask "
        "0x000000fc in line +1\n    syncwarp(0xFF if threadIdx.x < 4 else 0xFC)"
    )


def test_a_mask_without_the_caller():
    def outside_kernel(out):
        ballot_sync(0x0F, True)

    assert message(WarpError, outside_kernel, 1, 32, torch.zeros(1)) == (
        "outside_kernel, line +1: mask 0x0000000f does not name the caller's own lane 4 "
        "(block 0, thread 4)\n    ballot_sync(0x0F, True)"
    )


def test_reading_from_a_lane_that_has_returned():
    def absent_kernel(out, n):
        if threadIdx.x >= n:
            return
        out[threadIdx.x] = shfl_down_sync(FULL, 1.0, 16)

    assert message(WarpError, absent_kernel, 1, 32, torch.zeros(32), 20) == (
        "absent_kernel, line +3: in shfl_down_sync() lane 4 reads from lane 20, which has returned "
        "(block 0)\n    out[threadIdx.x] = shfl_down_sync(FULL, 1.0, 16)"
    )


@pytest.mark.parametrize("value", [1, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_a_value_of_a_lane_that_does_not_come(value, dtype):
    def outside_kernel(out, value):
        if threadIdx.x < 8:
            got = shfl_down_sync(0xFF, value, 4)
            got = max(value, abs(got) * 2 + math.sqrt(value))
            out[threadIdx.x] = got

    def beyond_kernel(out, value):
        got = shfl_xor_sync(FULL, value, 16) ^ 1 if type(value) is int else None
        got = got if type(value) is int else shfl_xor_sync(FULL, value, 16) + 1
        if threadIdx.x == 5:
            atomicAdd(out, 0, got)

    out = torch.zeros(8, dtype=dtype)
    assert message(UninitializedError, outside_kernel, 1, 32, out, value).startswith(
        "outside_kernel, line +4: out[4] gets an undefined value: lane 4 reads from lane 8, which "
        "the mask does not name, with shfl_down_sync() in line +2 (block 0, thread 4)\n"
    )
    line = 1 if type(value) is int else 2
    assert message(UninitializedError, beyond_kernel, 1, 20, out, value).startswith(
        "beyond_kernel, line +4: an atomic on out gets an undefined value: lane 5 reads from lane "
        f"21, which the block does not have, with shfl_xor_sync() in line +{line} (block 0, thre"
    )


def test_an_undefined_index():
    def index_kernel(out):
        out[shfl_down_sync(FULL, threadIdx.x, 1)] = 1

    assert (
        "line +1: out[undefined]: an index is an undefined value: lane 19 reads from lane 20"
        in (message(UninitializedError, index_kernel, 1, 20, torch.zeros(32)))
    )


def test_undefined_values_that_nobody_takes():
    def half_warps_kernel(out, inp):
        lane = threadIdx.x % 16
        value, largest = inp[threadIdx.x], inp[threadIdx.x]
        for delta in (8, 4, 2, 1):
            value += shfl_down_sync(0xFFFF << threadIdx.x - lane, value, delta)
            largest = max(largest, shfl_down_sync(0xFFFF << threadIdx.x - lane, largest, delta))
        if lane == 0:
            out[threadIdx.x // 16, 0] = value
            out[threadIdx.x // 16, 1] = largest

    for inp in (torch.randint(100, (32,)), torch.randint(100, (32,)).double()):
        out = torch.zeros(2, 2, dtype=inp.dtype)
        launch(half_warps_kernel, 1, 32, out, inp)
        halves = inp.view(2, 16)
        assert torch.equal(out, torch.stack([halves.sum(1), halves.max(1).values], 1)), inp


def test_a_wrong_width():
    def width_kernel(out):
        shfl_sync(FULL, 1, 0, 12)

    assert "width is 12, it can be 1, 2, 4, 8, 16 or 32" in message(
        WarpError, width_kernel, 1, 32, torch.zeros(1)
    )


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ((1.5, 16, 32), "mask is 1.5, not an integer ("),
        ((FULL, 1.5, 0.5), "delta is 0.5, not an integer; // divides integers ("),
        ((FULL, 1.5, 16 / 2), "delta is 8.0, not an integer; // divides integers ("),
        ((FULL, 1.5, None), "delta is None, not an integer ("),
    ],
)
def test_a_shuffle_of_what_is_no_integer(call, complaint):
    def shuffle_kernel(out):
        shfl_down_sync(*calls[0])

    calls = [call]
    text = message(WarpError, shuffle_kernel, 1, 32, torch.zeros(1))
    assert f"shuffle_kernel, line +1: {complaint}block 0, thread 0)" in text


def test_a_warp_operation_without_an_argument():
    def missing_kernel(out):
        shfl_sync(FULL, 1)

    with pytest.raises(TypeError, match=r"shfl_sync\(\) missing 1 .* 'source_lane'") as caught:
        launch(missing_kernel, 1, 32, torch.zeros(1))
    assert notes(caught) == [
        "in missing_kernel, line +1 (block 0, thread 0)\n    shfl_sync(FULL, 1)"
    ]


# ---- shared memory


def test_too_much_shared_memory():
    def large_kernel(out, n):
        first = shared_array(1000, torch.float64)
        second = shared_array((n, n))
        first[0] = second[0, 0]

    assert (
        "second brings shared memory to 270144 bytes a block; 232448 is the most (H100, H200), "
        "49152 without asking for more"
    ) in message(SharedMemoryError, large_kernel, 1, 2, torch.zeros(1), 256)


def test_threads_that_disagree_about_a_shape():
    def disagreeing_kernel(out):
        tile = shared_array(threadIdx.x + 1)
        tile[0] = 1

    assert "tile has shape (1,) for another thread of the block, (2,) here" in message(
        SharedMemoryError, disagreeing_kernel, 1, 2, torch.zeros(1)
    )


def test_shared_arrays_of_a_comprehension():
    def tiles_kernel(out):
        tiles = [shared_array((4, 4)) for _ in range(2)]
        tiles[0][0, 0] = 1

    assert message(LaunchError, tiles_kernel, 1, 1, torch.zeros(1)) == (
        "tiles_kernel: shared_array((4, 4)) in line +1 stands in a comprehension, where it is "
        "the same array each time; write it once for each array"
    )


@pytest.mark.parametrize("shape", [0, -3, 2.5, (4, 0), (), np.int64(-1), "4", None])
def test_a_shared_array_of_impossible_size(shape):
    def size_kernel(out):
        shared_array(shape)

    assert "an array's sizes are positive integers" in message(
        SharedMemoryError, size_kernel, 1, 1, torch.zeros(1)
    )


@pytest.mark.parametrize(
    ("dtype", "complaint"),
    [
        (torch.complex64, "torch.complex64 (block"),
        ("real", "real (block"),
        (None, "None (block"),
        (4, "4; sizes go in one tuple: (4, 4) (block"),
        ([], "[] (block"),
    ],
)
def test_a_shared_array_of_impossible_dtype(dtype, complaint):
    def dtype_kernel(out):
        shared_array(4, dtypes[0])

    dtypes = [dtype]
    assert f"an array cannot hold {complaint}" in message(
        DtypeError, dtype_kernel, 1, 1, torch.zeros(1)
    )


# ---- launches


NOT_AN_INTEGER = "not an integer; call launch(kernel, grid, block, *args)"


def fill_kernel(out, value):
    out[threadIdx.x] = value


@pytest.mark.parametrize(
    ("grid", "block", "complaint"),
    [
        (1, 1025, "block.x is 1025, it can be 1 to 1024"),
        (1, (32, 33), "block (32, 33, 1) has 1056 threads, a block can have 1024"),
        (1, (1, 1, 65), "block.z is 65, it can be 1 to 64"),
        (1, 0, "block.x is 0, it can be 1 to 1024"),
        (-2, 1, "grid.x is -2, it can be 1 to 2147483647"),
        ((1, 65536), 1, "grid.y is 65536, it can be 1 to 65535"),
        ((1, 1, 65536), 1, "grid.z is 65536, it can be 1 to 65535"),
        (dim3(2**31), 1, "grid.x is 2147483648, it can be 1 to 2147483647"),
        (2.5, 1, "grid.x is 2.5, not an integer; cdiv(n, block) rounds up"),
        (1, "32", f"block.x is a str, {NOT_AN_INTEGER}"),
        (torch.ones(9), 1, f"grid.x is a Tensor, {NOT_AN_INTEGER}"),
        ((1, 2, 3, 4), 1, "grid has 4 sizes, CUDA knows x, y and z"),
        ((), 1, "grid has 0 sizes, CUDA knows x, y and z"),
    ],
)
def test_bad_launch_configurations(grid, block, complaint):
    out = torch.zeros(1)
    assert message(LaunchError, fill_kernel, grid, block, out, 1) == f"fill_kernel: {complaint}"
    assert out.item() == 0


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ((), "takes (out, value), got 0 arguments: missing a required argument: 'out'"),
        ((1, 2, 3), "takes (out, value), got 3 arguments: too many positional arguments"),
        (
            ([1.0], 2),
            "argument out is a list; pass a tensor, a NumPy array, a number or a function",
        ),
        ((1, "text"), "argument value is a str; pass a tensor, a NumPy array, a number or a"),
        ((torch.tensor(1.0), 2), "argument out has no dimensions; pass a number: out.item()"),
    ],
)
def test_bad_arguments(args, complaint):
    assert message(LaunchError, fill_kernel, 1, 1, *args).startswith(f"fill_kernel: {complaint}")


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (torch.zeros(2, dtype=torch.complex64), "complex64"),
        (torch.zeros(2).to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (np.array(["a"]), "<U1"),
        (np.array([None]), "object"),
    ],
)
def test_unsupported_dtypes(array, name):
    assert message(DtypeError, fill_kernel, 1, 1, array, 1).startswith(
        f"fill_kernel: argument out is {name}; arrays "
    )


def test_a_kernel_is_a_function():
    with pytest.raises(LaunchError, match="a kernel is a function, not a int"):
        launch(3, 1, 1)


@pytest.mark.parametrize("with_barrier", [False, True])
def test_a_kernel_returns_nothing(with_barrier):
    def returning_kernel(out):
        return threadIdx.x

    def pausing_kernel(out):
        syncthreads()
        return threadIdx.x

    kernel = pausing_kernel if with_barrier else returning_kernel
    line = 2 if with_barrier else 1
    assert message(LaunchError, kernel, 1, 1, torch.zeros(1)) == (
        f"{kernel.__name__}, line +{line}: a kernel returns nothing, it writes to its arrays; "
        "this returned 0 (block 0, thread 0)"
    )


def test_a_kernel_in_a_kernel():
    def launching_kernel(out):
        launch(fill_kernel, 1, 1, out, 1)

    assert "launching_kernel: a kernel cannot launch another one here" in message(
        LaunchError, launching_kernel, 1, 1, torch.zeros(1)
    )


def test_a_kernel_that_yields():
    def yielding_kernel(out):
        syncthreads()
        yield 3

    assert "yielding_kernel has a yield in line +2; a kernel cannot" in message(
        LaunchError, yielding_kernel, 1, 1, torch.zeros(1)
    )


# ---- where a thread cannot wait


def test_a_barrier_in_a_comprehension():
    def comprehension_kernel(out):
        counts = [syncthreads_count(i < 3) for i in range(4)]
        out[0] = counts[0]

    assert message(LaunchError, comprehension_kernel, 1, 1, torch.zeros(1)) == (
        "comprehension_kernel: syncthreads_count(i < 3) in line +1 stands in a comprehension, "
        "where a thread cannot wait; use a for loop or a def"
    )


def test_a_barrier_in_a_lambda_of_the_kernel():
    def lambda_kernel(out):
        wait = lambda: wait_once()  # noqa: E731
        wait()

    assert "wait_once() in line +1 stands in a lambda, where a thread cannot wait" in message(
        LaunchError, lambda_kernel, 1, 1, torch.zeros(1)
    )


def test_a_lambda_with_a_barrier():
    wait = lambda: syncthreads()  # noqa: E731

    def calling_kernel(out):
        wait()

    assert "stands in a lambda, where a thread cannot wait; use a def" in message(
        LaunchError, calling_kernel, 1, 1, torch.zeros(1)
    )
    assert "stands in a lambda, where a thread cannot wait; use a def" in message(
        LaunchError, wait, 1, 1
    )


def test_a_barrier_without_parentheses():
    def barrier_kernel(out):
        syncthreads  # noqa: B018

    def fence_kernel(out):
        threadfence  # noqa: B018

    for kernel, name in ((barrier_kernel, "syncthreads"), (fence_kernel, "threadfence")):
        assert f"{name} in line +1 does nothing without its ()" in message(
            LaunchError, kernel, 1, 1, torch.zeros(1)
        )


def test_a_barrier_under_a_name_that_only_a_run_can_tell():
    def hidden_kernel(out):
        waits = {"wait": syncthreads}
        waits["wait"]()

    with pytest.raises(SimulatorError, match=r"syncthreads\(\) works only in a kernel run by"):
        launch(hidden_kernel, 1, 1, torch.zeros(1))


def test_a_kernel_without_source():
    namespace = dict(syncthreads=syncthreads, threadIdx=threadIdx)
    exec("def made_up(out):\n    syncthreads()\n\ndef plain(out):\n    out[0] = 5", namespace)
    with pytest.raises(LaunchError, match=r"made_up calls syncthreads\(\), for which its source"):
        launch(namespace["made_up"], 1, 1, torch.zeros(1))
    out = torch.zeros(1)
    launch(namespace["plain"], 1, 1, out)
    assert out.item() == 5


# ---- host and device


@pytest.mark.parametrize("place", [threadIdx, blockIdx, blockDim, gridDim])
def test_places_exist_only_in_a_kernel(place):
    name = place.name
    launch(fill_kernel, 1, 1, torch.zeros(1), 1)
    with pytest.raises(HostOnlyError, match=f"{name}.x has a value only inside a kernel"):
        place.x  # noqa: B018
    assert repr(place) == f"{name}: has values only inside a kernel"
    with pytest.raises(AttributeError, match=f"{name} has x, y and z, but no w"):
        place.w  # noqa: B018


def test_kernel_functions_exist_only_in_a_kernel():
    with pytest.raises(HostOnlyError, match=r"shared_array\(\) works only inside a kernel"):
        shared_array(3)
    with pytest.raises(HostOnlyError, match=r"local_array\(\) works only inside a kernel"):
        local_array(3)
    with pytest.raises(HostOnlyError, match=r"threadfence\(\) works only inside a kernel"):
        threadfence()
    with pytest.raises(HostOnlyError, match="atomics work only inside a kernel"):
        atomicAdd(torch.zeros(1), 0, 1)
    with pytest.raises(SimulatorError, match=r"syncthreads\(\) works only in a kernel run by"):
        syncthreads()


def test_a_kernel_that_reads_a_tensor_of_the_host():
    def global_kernel(out):
        out[0] = weights[0]

    closed_over = np.ones(2)

    def device(i):
        return closed_over[i]

    def closure_kernel(out):
        out[0] = device(0)

    def own_names_kernel(out):
        weights = 3
        out[0] = weights + sum(closed_over for closed_over in range(3))

    out = torch.zeros(1)
    assert message(HostOnlyError, global_kernel, 1, 1, out) == (
        "global_kernel: weights in line +1 is a tensor of the host; a kernel gets it as an argument"
    )
    assert "closed_over in line" in message(HostOnlyError, closure_kernel, 1, 1, out)
    launch(own_names_kernel, 1, 1, out)
    assert out.item() == 6


def test_what_would_end_the_notebook():
    def calling_kernel(out):
        os._exit(1)

    def aborting_kernel(out):
        os.abort()

    def leaving_kernel(out):
        if out[0] == 0:
            exit(2)

    def raising_kernel(out):
        raise SystemExit(3)

    def ending(i):
        sys.exit(i)

    def device_kernel(out):
        ending(4)

    out = torch.zeros(1)
    for kernel, call in (
        (calling_kernel, "os._exit(1) in line +1"),
        (aborting_kernel, "os.abort() in line +1"),
        (leaving_kernel, "exit(2) in line +2"),
        (device_kernel, "sys.exit(i) in line"),
    ):
        said = message(HostOnlyError, kernel, 1, 1, out)
        assert call in said and said.endswith("ends Python; a thread ends with return")
    assert message(HostOnlyError, raising_kernel, 1, 2, out).startswith(
        "raising_kernel, line +1: SystemExit ends Python; a thread ends with return "
        "(block 0, thread 0)"
    )

    def exit(number):
        return number

    def own_kernel(out):
        out[0] = exit(5)

    launch(own_kernel, 1, 1, out)  # a function of that name
    assert out.item() == 5


def test_recursion_without_an_end():
    def deeper(n):
        return deeper(n + 1)

    def deep_kernel(out):
        out[0] = deeper(0)

    with pytest.raises(RecursionError) as caught:
        launch(deep_kernel, 1, 1, torch.zeros(1))
    assert "in deep_kernel, in deeper, line" in caught.value.__notes__[0]


# ---- errors of Python's own


def notes(caught):
    """Return an error's notes with lines counted from the kernel's `def`."""
    kernel = caught.traceback[-1].frame.code
    return [
        re.sub(r"\bline (\d+)", lambda n: f"line +{int(n[1]) - kernel.firstlineno - 1}", note)
        for note in caught.value.__notes__
    ]


def test_python_errors_keep_their_line_and_name_the_thread():
    def dividing_kernel(out):
        syncthreads()
        out[threadIdx.x] = 1 / (2 - threadIdx.x)

    with pytest.raises(ZeroDivisionError) as caught:
        launch(dividing_kernel, 1, 4, torch.zeros(4))
    source = "out[threadIdx.x] = 1 / (2 - threadIdx.x)"
    note = f"in dividing_kernel, line +2 (block 0, thread 2)\n    {source}"
    assert notes(caught) == [note]
    assert [str(step.path) for step in caught.traceback] == [__file__, __file__]
    assert str(caught.traceback[-1].statement).strip() == source
    shown = caught.value._render_traceback_()  # all that there is in a notebook
    assert shown[0] == "ZeroDivisionError: division by zero"
    assert shown[2] == f"    {source}" and len(shown) == 3


GOES_ON = "CUDA's floats would go on with inf or nan here, Python's do not"


@pytest.mark.parametrize(
    ("compute", "advice"),
    [
        (lambda x: 1.0 / (x - x), GOES_ON),
        (lambda x: math.exp(1000 * x), GOES_ON),
        (lambda x: math.log(x - x), GOES_ON),
        (lambda x: (1e300 * x) ** 2, GOES_ON),
        (lambda x: x + print(end=""), "is a return missing in a function?"),
        (lambda x: range(x / 2), "// divides integers"),
        (lambda x: x[0], "are the arguments of the launch in the kernel's order?"),
    ],
)
def test_advice_on_python_errors(compute, advice):
    def computing_kernel(out, compute):
        out[0] = compute(out[0])

    with pytest.raises((ArithmeticError, ValueError, TypeError)) as caught:
        launch(computing_kernel, 1, 1, torch.ones(1), compute)
    assert "in computing_kernel, line" in caught.value.__notes__[0]
    assert caught.value.__notes__[1:] == [advice]


def test_a_traceback_is_short():
    def overrunning_kernel(out):
        out[9] = 1

    with pytest.raises(OutOfRangeError) as caught:
        launch(overrunning_kernel, 1, 1, torch.zeros(1))
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert lines[-2].startswith("helpers.simulator.errors.OutOfRangeError: overrunning_kernel, li")
    assert len(lines) <= 6, lines


# ---- never a hang


@pytest.mark.parametrize("kind", ["spin", "barriers", "plain"])
def test_endless_loops_end(kind, monkeypatch):
    def spin_kernel(flag):
        if threadIdx.x == 1:
            while flag[0] == 0:
                pass
        syncthreads()

    def barriers_kernel(flag):
        stride = 16
        while stride > 0:
            syncthreads()  # and nobody halves stride

    def plain_kernel(flag):
        while True:
            flag[0] += 1

    kernel = {"spin": spin_kernel, "barriers": barriers_kernel, "plain": plain_kernel}[kind]
    monkeypatch.setattr(watchdog, "seconds_per_block", 0.2)
    start = time.process_time()
    text = message(EndlessLoopError, kernel, 2, 2, torch.zeros(1))
    assert time.process_time() - start < 2
    assert re.match(
        rf"{kind}_kernel, line \+\d: the block has run for 0.2 s and is here; "
        r"does this loop never end\? If it ends, set helpers.simulator.watchdog.seconds_per_block "
        r"\(block 0, thread [01]\)\n    \w",
        text,
    )
    launch(fill_kernel, 1, 2, torch.zeros(2), 1)  # and the next launch is as usual


def test_the_time_is_counted_for_each_block(monkeypatch):
    def slow_kernel(out):
        for _ in range(1000):
            out[blockIdx.x, threadIdx.x] += 1

    monkeypatch.setattr(watchdog, "seconds_per_block", 0.15)
    start = time.process_time()
    while time.process_time() - start < 0.4:
        launch(slow_kernel, 20, 5, torch.zeros(20, 5))


def test_launches_outside_the_main_thread():
    out = torch.zeros(2)
    thread = threading.Thread(target=launch, args=(fill_kernel, 1, 2, out, 5))
    thread.start()
    thread.join()
    assert out.tolist() == [5.0, 5.0]


def test_ctrl_c_ends_a_launch():
    def endless_kernel(out):
        while True:
            out[0] += 1

    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        launch(endless_kernel, 1, 1, torch.zeros(1))
    line = inspect.getsourcelines(endless_kernel)[1] + 2
    assert caught.value._render_traceback_() in (  # all that there is in a notebook
        [f"KeyboardInterrupt: stopped in endless_kernel, line {n} (block 0, thread 0)"]
        for n in (line - 1, line)
    )
    launch(fill_kernel, 1, 1, torch.zeros(1), 1)  # and the next launch is as usual
