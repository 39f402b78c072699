"""The record of a Python kernel against counts by hand and against a model that sees everything."""

import math
import random
import time
from collections import defaultdict

import numpy as np
import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.simulator import (
    EndlessLoopError,
    OutOfRangeError,
    RaceError,
    SimulatorError,
    WarpError,
    blockDim,
    blockIdx,
    cdiv,
    launch,
    local_array,
    shared_array,
    shfl_down_sync,
    shfl_sync,
    syncthreads,
    syncwarp,
    threadIdx,
    watchdog,
)
from helpers.trace import from_simulator, model, trace
from helpers.trace.from_simulator import record

FULL = 0xFFFFFFFF


def line_of(launch, text):
    """Return the Line whose source begins with `text`."""
    (line,) = [line for line in launch.lines if line.text.startswith(text)]
    return line


def access_to(launch, array, operation="load"):
    (access,) = [a for a in launch.accesses if (a.array, a.operation) == (array, operation)]
    return access


def saxpy_kernel(y, x, a, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        y[i] = a * x[i] + y[i]


def test_saxpy():
    x, y = torch.randn(100), torch.randn(100)
    expected = 2.5 * x + y
    launched = record(saxpy_kernel, 2, 64, y, x, 2.5, 100)
    torch.testing.assert_close(y, expected)
    assert (launched.kernel, launched.grid, launched.block) == (
        "saxpy_kernel",
        (2, 1, 1),
        (64, 1, 1),
    )
    assert (launched.backend, launched.shared_bytes) == ("simulator", 0)
    assert [(a.operation, a.array) for a in launched.accesses] == [
        ("load", "x"),
        ("load", "y"),
        ("store", "y"),
    ]
    for access in launched.accesses:
        assert (access.space, access.bytes, access.text) == (
            "global",
            4,
            "y[i] = a * x[i] + y[i]",
        )
        assert (access.requests, access.lanes) == (4, 100)
        assert access.sectors == access.ideal_sectors == 13  # 12.5
        assert [r.warp for r in access.samples] == [0, 1]
        assert access.samples[1].offsets == tuple(range(128, 256, 4))
    line = launched.accesses[0].line
    assert line_of(launched, "y[i] =").line == line
    assert [(x.executions, x.lanes, x.flops) for x in launched.lines] == [
        (4, 128, 0),
        (4, 128, 0),
        (4, 100, 200),
    ]


def test_what_counts_as_a_floating_point_operation():
    def operations_kernel(out, n):
        x = 1.5 + threadIdx.x
        y = -x * x - x / 3  # 3
        i = n * 3 - -n + n // 2 % 5
        y += math.sqrt(x) + math.exp(y) ** 2  # 5
        y -= math.floor(y)  # 1
        out[threadIdx.x] = y if i < 1000 else 0
        out[threadIdx.x] += 1  # 1
        out[threadIdx.x] *= max(y, 2.0)  # 2
        lists = [[], [1]]
        lists[0] += [2]
        for values in lists:
            values += [i]
        assert lists == [[2, i], [1, i]]

    counts = (1, 3, 0, 5, 1, 0, 1, 2, 0, 0, 0, 0, 0)
    launched = record(operations_kernel, 1, 40, torch.zeros(40), 7)
    assert [line.flops for line in launched.lines] == [40 * n for n in counts]


def test_operations_on_each_term_of_a_sum():
    def sums_kernel(out, a, n):
        out[0] = sum(a[k] * a[k] for k in range(n))  # 2n
        out[1] = max([a[k] for k in range(n)])  # n
        out[2] = sum(k for k in range(n)) + sum(1 for k in range(n))
        out[3] = math.fsum(2 * a[k] for k in range(n))  # n + 1
        x = np.float32(3)
        x += a[0] * x  # 2
        out[4] = -x

    launched = record(sums_kernel, 1, 1, torch.zeros(5), torch.ones(7), 7)
    assert [line.flops for line in launched.lines] == [14, 7, 0, 8, 0, 2, 0]


def test_operations_on_each_term_of_a_list():
    def list_kernel(out, a, n):
        values = [a[k] for k in range(n)]
        out[0] = sum(values)  # n
        out[1] = max(values) - min(tuple(values))  # 2n + 1
        out[2] = sum(sum(row) for row in [values, values])  # 2n + 2
        out[3] = sum([1, 2, 3]) + max([n, 2]) + min(range(n))
        out[4] = max(*values[:2])  # 1

    a, out = torch.randn(7), torch.zeros(5)
    launched = record(list_kernel, 1, 1, out, a, 7)
    expected = [a.sum(), a.max() - a.min(), 2 * a.sum(), 6 + 7 + 0, a[:2].max()]
    torch.testing.assert_close(out, torch.tensor(expected))
    assert [line.flops for line in launched.lines] == [0, 7, 15, 16, 0, 1]


def test_operations_belong_to_the_line_where_their_statement_begins():
    def sum_kernel(out, inp):
        i = threadIdx.x
        if (
            inp[i] * 2.0
            + inp[i] > -math.inf
        ):  # fmt: skip
            out[i] = max(
                inp[i] - 1.0,
                2.0 * math.pi / 3,  # a constant
            )

    launched = record(sum_kernel, 1, 32, torch.zeros(32), torch.ones(32))
    assert [line.flops for line in launched.lines] == [0, 2 * 32, 2 * 32]


def tiled_kernel(C, A, B, N, TILE):
    A_tile = shared_array((TILE, TILE))
    B_tile = shared_array((TILE, TILE))
    x, y = threadIdx.x, threadIdx.y
    row, col = blockIdx.y * TILE + y, blockIdx.x * TILE + x
    acc = 0.0
    for k in range(0, N, TILE):
        A_tile[y, x] = A[row, k + x]
        B_tile[y, x] = B[k + y, col]
        syncthreads()
        for i in range(TILE):
            acc += A_tile[y, i] * B_tile[i, x]
        syncthreads()
    C[row, col] = acc


def test_tiled_matmul():
    N, TILE = 32, 8
    A, B, C = torch.randn(N, N), torch.randn(N, N), torch.zeros(N, N)
    launched = record(tiled_kernel, (N // TILE, N // TILE), (TILE, TILE), C, A, B, N, TILE)
    torch.testing.assert_close(C, A @ B, rtol=1e-5, atol=1e-5)
    warps = N * N // 32
    tiles = N // TILE
    assert sum(line.flops for line in launched.lines) == 2 * N**3
    assert launched.shared_bytes == 2 * 4 * TILE * TILE
    for name in "AB":
        load = access_to(launched, name)
        assert (load.requests, load.sectors) == (warps * tiles, warps * tiles * 4)
        store = access_to(launched, f"{name}_tile", "store")
        assert (store.requests, store.wavefronts) == (warps * tiles, warps * tiles)
        load = access_to(launched, f"{name}_tile")
        assert (load.requests, load.lanes) == (warps * N, warps * 32 * N)
        assert load.bank_conflicts == 0
    loop = line_of(launched, "for i in")
    assert loop.executions == warps * tiles * (TILE + 1)  # the last check ends the loop
    # Stages of the first block: load a tile, then compute with it, and so on.
    stages = {(s.number, s.operation, s.space) for s in launched.stages}
    assert stages == {
        *((2 * t, "load", "global") for t in range(tiles)),
        *((2 * t, "store", "shared") for t in range(tiles)),
        *((2 * t + 1, "load", "shared") for t in range(tiles)),
        (2 * tiles, "store", "global"),
    }
    assert {s.warp for s in launched.stages} == set(range(cdiv(TILE * TILE, 32)))
    compute = [s for s in launched.stages if s.number == 1]
    assert {s.requests for s in compute} == {2 * TILE}


def test_one_request_for_each_iteration():
    def alternating_kernel(out, inp):
        for i in range(6):
            if (threadIdx.x + i) % 2:
                out[i, threadIdx.x] = inp[i, threadIdx.x]

    launched = record(alternating_kernel, 1, 32, torch.zeros(6, 32), torch.zeros(6, 32))
    for access in launched.accesses:
        assert (access.requests, access.lanes, access.sectors) == (6, 96, 24)
        assert access.ideal_sectors == 12
        assert len(access.samples) == 4
    assert line_of(launched, "out[i").executions == 6
    assert line_of(launched, "out[i").lanes == 96


def test_loops_of_different_lengths():
    def ragged_kernel(out, inp):
        i = total = 0
        while inp[i] < threadIdx.x % 4:
            i += 1
            for j in range(threadIdx.x % 3):
                if j == 1:
                    break
                total += inp[j]
        out[threadIdx.x] = total + inp[i]

    launched = record(ragged_kernel, 1, 32, torch.zeros(32), torch.arange(5))
    requests = {a.text: (a.requests, a.lanes) for a in launched.accesses if a.array == "inp"}
    in_loop = sum(lane % 4 for lane in range(32) if lane % 3)
    assert requests == {
        "while inp[i] < threadIdx.x % 4:": (4, sum(lane % 4 + 1 for lane in range(32))),
        "total += inp[j]": (3, in_loop),
        "out[threadIdx.x] = total + inp[i]": (1, 32),
    }


def first_of(array, i):
    for j in range(i, len(array)):
        if array[j]:
            return j
    return -1


def test_loops_left_by_a_break_and_their_else():
    def search_kernel(out, inp):
        t = threadIdx.x
        for i in range(8):
            for j in range(2):
                if (t + j) % 8 == i:
                    break
                out[t] = inp[t]
            else:
                continue
            out[t] = 1.0

    launched = record(search_kernel, 1, 32, torch.zeros(32), torch.ones(32))
    load, store, last = sorted(launched.accesses, key=lambda access: access.line)
    assert (load.requests, load.lanes) == (store.requests, store.lanes) == (16, 8 * (28 + 24))
    assert (last.requests, last.lanes) == (8, 8 * 8)


def test_device_functions_are_told_apart_by_their_call():
    def calling_kernel(out, inp):
        a = first_of(inp, 0)
        if threadIdx.x % 2:
            b = first_of(inp, threadIdx.x % 3)
        else:
            b = first_of(inp, 1)
        out[threadIdx.x] = a + b

    inp = torch.tensor([0, 0, 0, 1])
    launched = record(calling_kernel, 1, 32, torch.zeros(32), inp)
    load = access_to(launched, "inp")
    assert load.text == "if array[j]:"
    odd = [4 - lane % 3 for lane in range(1, 32, 2)]
    assert load.requests == 4 + max(odd) + 3
    assert load.lanes == 32 * 4 + sum(odd) + 16 * 3
    assert line_of(launched, "return j").lanes == 64


def test_functions_defined_inside_and_pausing_ones():
    def warp_sum(value):
        for delta in (16, 8, 4, 2, 1):
            value += shfl_down_sync(FULL, value, delta)
        return value

    def inside_kernel(out, inp):
        def square(x):
            return x * x

        total = warp_sum(square(inp[threadIdx.x]))
        if threadIdx.x % 32 == 0:
            out[threadIdx.x // 32] = total

    inp, out = torch.arange(64.0), torch.zeros(2)
    launched = record(inside_kernel, 1, 64, out, inp)
    assert out.tolist() == (inp**2).view(2, 32).sum(1).tolist()
    assert sum(line.flops for line in launched.lines) == 64 * 6
    assert line_of(launched, "value += ").executions == 10
    assert access_to(launched, "out", "store").requests == 2


def test_an_early_return():
    def early_kernel(out, n):
        for i in range(3):
            if threadIdx.x >= n:
                return
            out[i, threadIdx.x] = 1

    launched = record(early_kernel, 1, 64, torch.zeros(3, 40), 40)
    store = access_to(launched, "out", "store")
    assert (store.requests, store.lanes) == (6, 120)
    assert line_of(launched, "return").lanes == 24


def test_warps_of_a_block_with_two_dimensions():
    def transpose_kernel(out, inp):
        out[threadIdx.x, threadIdx.y] = inp[threadIdx.y, threadIdx.x]

    launched = record(transpose_kernel, 1, (8, 12), torch.zeros(8, 12), torch.zeros(12, 8))
    load, store = access_to(launched, "inp"), access_to(launched, "out", "store")
    assert (load.requests, load.sectors) == (3, 12)
    offsets = [[4 * (12 * (t % 8) + t // 8) for t in range(w, w + 32)] for w in (0, 32, 64)]
    assert store.sectors == sum(model.sectors(o, 4) for o in offsets)
    assert [list(sample.offsets) for sample in store.samples] == offsets


def test_offsets_count_from_the_start_of_the_storage():
    def copy_kernel(out, inp):
        out[threadIdx.x] = inp[threadIdx.x]

    base = torch.zeros(100)
    launched = record(copy_kernel, 1, 32, torch.zeros(32), base[3:35])
    assert access_to(launched, "inp").sectors == 5
    assert access_to(launched, "inp").samples[0].offsets[0] == 12
    launched = record(copy_kernel, 1, 32, torch.zeros(32), base.view(50, 2)[3:35, 1])
    assert access_to(launched, "inp").sectors == 4  # a copy


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64], ids=str)
def test_sizes_of_elements(dtype):
    def copy_kernel(out, inp):
        out[threadIdx.x] = inp[threadIdx.x]

    out = torch.zeros(32, dtype=dtype)
    launched = record(copy_kernel, 1, 32, out, out.clone())
    assert [a.bytes for a in launched.accesses] == [dtype.itemsize] * 2
    assert launched.accesses[0].sectors == dtype.itemsize


def test_local_arrays_are_not_memory():
    def local_kernel(out):
        mine = local_array(4)
        for i in range(4):
            mine[i] = i
        out[threadIdx.x] = mine[threadIdx.x % 4]

    launched = record(local_kernel, 1, 32, torch.zeros(32))
    assert [a.array for a in launched.accesses] == ["out"]


# ---- lines of which some lanes do only a part

PARTS_CUDA = r"""
#include <cuda_runtime.h>

__global__ void parts(float* out, const float* inp, int n) {
    int i = threadIdx.x;
    float v = 0.0f;
    if (i < n) out[i] = inp[i];
    if (i < n && inp[i] > -100.0f) out[i + 64] = 1.0f;
    if (inp[i] > 100.0f) out[i] = 2.0f;
    if (i < 32) i = __shfl_sync(0xffffffff, i, i);
    if (i % 32 < 16) __syncwarp(0xffff);
    v = i < n ? inp[i + 64] : 0.0f;
    out[i + 128] = i < n ? inp[i] : v;
    for (int k = 0; k < n; k++)
        if (k < i) out[i + 192] += inp[k];
    if (i >= 48) return;
    out[i + 256] = v;
}

void run(torch::Tensor out, torch::Tensor inp, int64_t n) {
    parts<<<1, 64>>>(out.data_ptr<float>(), inp.data_ptr<float>(), n);
}
"""


# fmt: off
def parts_kernel(out, inp, n):
    i = threadIdx.x
    if i < n: out[i] = inp[i]  # noqa: E701
    if i < n and inp[i] > -100.0: out[i + 64] = 1.0  # noqa: E701
    if inp[i] > 100.0: out[i] = 2.0  # noqa: E701
    if i < 32: i = shfl_sync(FULL, i, i)  # noqa: E701
    if i % 32 < 16: syncwarp(0xFFFF)  # noqa: E701
    v = inp[i + 64] if i < n else 0.0
    out[i + 128] = inp[i] if i < n else v
    for k in range(n):
        if k < i: out[i + 192] += inp[k]  # noqa: E701
    if i >= 48: return  # noqa: E701
    out[i + 256] = v
# fmt: on


@pytest.mark.parametrize("n", [4, 33, 64])
def test_parts_of_a_line_count_as_on_the_cpu_backend(n):
    inp, out, on_cpu = torch.randn(128), torch.zeros(320), torch.zeros(320)
    (counted,) = trace(compile_cuda(PARTS_CUDA, functions=["run"]).run, on_cpu, inp, n).launches
    launched = record(parts_kernel, 1, 64, out, inp, n)
    torch.testing.assert_close(out, on_cpu)
    pairs = {
        "if i < n: out": "if (i < n) out",
        "if i < n and": "if (i < n &&",
        "if inp[i]": "if (inp[i]",
        "if i < 32": "if (i < 32)",
        "if i % 32": "if (i % 32",
        "v = inp": "v = i < n",
        "out[i + 128]": "out[i + 128]",
        "if k < i": "if (k < i)",
        "if i >= 48": "if (i >= 48)",
        "out[i + 256]": "out[i + 256]",
    }
    for python, cuda in pairs.items():
        mine, other = line_of(launched, python), line_of(counted, cuda)
        assert (mine.executions, mine.lanes) == (other.executions, other.lanes), python
    few = line_of(launched, "if i < n: out")
    assert (few.executions, few.lanes) == (-(-n // 32), n)
    assert line_of(launched, "if i % 32").lanes == 32
    assert line_of(launched, "if i >= 48").lanes == 64


# ---- random programs against a model


def random_kernel(out, inp, shared_size, rounds, lengths, where, skip):
    s = shared_array(shared_size)
    i = threadIdx.x
    while i < shared_size:
        s[i] = 0.0
        i += blockDim.x
    syncthreads()
    t = threadIdx.x
    total = 0.0
    for j in range(lengths(t)):
        if skip(t, j):
            continue
        for k in range(rounds):
            total += inp[where(t, j, k)]
            total += s[where(t, j, k) % shared_size]
        if total > 1e9:
            break
    out[blockIdx.x * blockDim.x + t] = total


@pytest.mark.parametrize("threads", [20, 64, 100])
def test_random_patterns_against_a_model(threads):
    for _ in range(3):
        n, shared_size, rounds = 500, random.choice([7, 64, 100]), random.choice([1, 3])
        lengths = [random.randrange(5) for _ in range(threads)]
        skips = {(t, j): random.random() < 0.3 for t in range(threads) for j in range(5)}
        places = defaultdict(lambda n=n: random.randrange(n))
        inp = torch.randn(n)
        launched = record(
            random_kernel,
            2,
            threads,
            torch.zeros(2 * threads),
            inp,
            shared_size,
            rounds,
            lambda t, lengths=lengths: lengths[t],
            lambda *key, places=places: places[key],
            lambda *key, skips=skips: skips[key],
        )
        requests = defaultdict(lambda: [None] * 32)
        for (t, j, k), index in places.items():
            assert j < lengths[t] and not skips[t, j]
            requests[t // 32, j, k][t % 32] = index
        load = access_to(launched, "inp")
        offsets = [[None if i is None else 4 * i for i in r] for r in requests.values()]
        assert load.requests == 2 * len(offsets)
        assert load.lanes == 2 * len(places)
        assert load.sectors == 2 * sum(model.sectors(o, 4) for o in offsets)
        assert load.ideal_sectors == 2 * sum(model.ideal_sectors(o, 4) for o in offsets)
        load = access_to(launched, "s")
        offsets = [
            [None if i is None else 4 * (i % shared_size) for i in r] for r in requests.values()
        ]
        assert load.wavefronts == 2 * sum(model.wavefronts(o, 4) for o in offsets)
        assert load.requests == load.ideal_wavefronts == 2 * len(offsets)
        assert sum(line.flops for line in launched.lines) == 2 * 2 * len(places)
        lines = [line for line in launched.lines if line.text.startswith("total += inp")]
        assert [(x.executions, x.lanes) for x in lines] == [(2 * len(offsets), 2 * len(places))]


# ---- a recorded launch is a launch


def racing_kernel(x):
    x[threadIdx.x] = x[(threadIdx.x + 1) % 32]


def skipping_kernel(x):
    if threadIdx.x < 3:
        syncwarp()
    syncthreads()
    x[threadIdx.x] = 2


@pytest.mark.parametrize(
    ("kernel", "error", "args"),
    [
        (racing_kernel, RaceError, [torch.zeros(32)]),
        (saxpy_kernel, OutOfRangeError, [torch.zeros(8), torch.zeros(9), 2, 9]),
        (skipping_kernel, WarpError, [torch.zeros(32)]),
    ],
)
def test_errors_are_those_of_a_launch(kernel, error, args):
    with pytest.raises(SimulatorError) as recorded:
        record(kernel, 1, 32, *args)
    with pytest.raises(error) as launched:
        launch(kernel, 1, 32, *args)
    assert type(recorded.value) is error
    assert str(recorded.value) == str(launched.value)
    record(saxpy_kernel, 1, 32, torch.zeros(32), torch.zeros(32), 2.0, 32)


def test_kernels_without_source():
    launched = record(lambda out: out.__setitem__(threadIdx.x, 1), 1, 32, torch.zeros(32))
    assert [a.requests for a in launched.accesses] == [1]


@pytest.mark.parametrize(
    ("grid", "block", "args"),
    [(1, 2048, (torch.zeros(8),) * 2), (0.5, 32, (torch.zeros(8),) * 2), (1, 32, (7,))],
)
def test_a_launch_that_is_refused_names_the_kernel(grid, block, args):
    with pytest.raises(SimulatorError, match="^saxpy_kernel: ") as recorded:
        record(saxpy_kernel, grid, block, *args, 2.0, 8)
    with pytest.raises(SimulatorError) as launched:
        launch(saxpy_kernel, grid, block, *args, 2.0, 8)
    assert str(recorded.value) == str(launched.value)


def endless_kernel(flag):
    while flag[0] == 0:
        pass


def test_an_endless_loop_is_the_kernels(monkeypatch):
    monkeypatch.setattr(watchdog, "seconds_per_block", 0.05)
    line = endless_kernel.__code__.co_firstlineno + 1
    for _ in range(20):  # wherever the timer finds it
        with pytest.raises(EndlessLoopError, match=rf"^endless_kernel, line {line}: "):
            record(endless_kernel, 1, 1, torch.zeros(1))


def test_counting_takes_no_time_of_the_block(monkeypatch):
    def short_kernel(out):
        out[threadIdx.x] = 1

    def slow_count(*_):
        start = time.process_time()
        while time.process_time() - start < 0.3:
            pass

    monkeypatch.setattr(watchdog, "seconds_per_block", 0.1)
    monkeypatch.setattr(from_simulator, "_count", slow_count)
    record(short_kernel, 1, 32, torch.zeros(32))


@pytest.mark.parametrize("array", [torch.zeros(32), torch.zeros(4, 32)])
@pytest.mark.parametrize("operation", ["load", "store"])
def test_an_error_of_the_recorder_is_not_taken_for_the_kernels(operation, array, monkeypatch):
    """Not even an IndexError, as a wrong index raises it."""
    calls = []

    def broken_access(recorder, array, told, *_):
        calls.append(told)
        if told == operation:
            raise IndexError("the recorder is broken")

    monkeypatch.setattr(from_simulator._Recorder, "access", broken_access)
    with pytest.raises(IndexError, match="the recorder is broken"):
        record(add_one_kernel, 1, 32, array)
    assert calls == (["load"] if operation == "load" else ["load", "store"])


def add_one_kernel(a):
    at = threadIdx.x if len(a.shape) == 1 else (1, threadIdx.x)
    a[at] = a[at] + 1
