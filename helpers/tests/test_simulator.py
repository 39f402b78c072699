"""Kernels written in Python give what CUDA would give, in the same order every time."""

import math
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

from helpers import simulator
from helpers.base.machine import ROOT
from helpers.simulator import (
    WARP_SIZE,
    activemask,
    all_sync,
    any_sync,
    atomicAdd,
    atomicAnd,
    atomicCAS,
    atomicExch,
    atomicMax,
    atomicMin,
    atomicOr,
    atomicSub,
    atomicXor,
    ballot_sync,
    blockDim,
    blockIdx,
    cdiv,
    dim3,
    gridDim,
    launch,
    local_array,
    match_any_sync,
    shared_array,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    syncthreads,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    syncwarp,
    threadIdx,
)

FULL = 0xFFFFFFFF


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


# ---- grids, blocks, threads


def add_kernel(out, a, b, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = a[i] + b[i]


@pytest.mark.parametrize("n", [1, 31, 256, 257, 1823])
@pytest.mark.parametrize("block", [1, 32, 100, 256])
def test_vector_add(n, block):
    a, b = randn(n), randn(n)
    out = torch.full((n + 3,), 7.0)
    launch(add_kernel, cdiv(n, block), block, out, a, b, n)
    assert torch.equal(out[:n], a + b)
    assert torch.equal(out[n:], torch.full((3,), 7.0))


@pytest.mark.parametrize(
    ("grid", "block"),
    [(3, 5), ((3, 2), (4, 3)), ((2, 3, 4), (3, 4, 2)), (dim3(2), dim3(1, 2, 3)), ([2, 2], (3,))],
)
@pytest.mark.parametrize("with_barrier", [False, True])
def test_every_thread_runs_once_and_in_order(grid, block, with_barrier):
    def note_plain(seen):
        place = (blockIdx.z, blockIdx.y, blockIdx.x, threadIdx.z, threadIdx.y, threadIdx.x)
        note(place, (tuple_of(gridDim), tuple_of(blockDim)))

    def note_between_barriers(seen):
        syncthreads()
        place = (blockIdx.z, blockIdx.y, blockIdx.x, threadIdx.z, threadIdx.y, threadIdx.x)
        note(place, (tuple_of(gridDim), tuple_of(blockDim)))
        syncthreads()

    def tuple_of(place):
        return place.x, place.y, place.z

    def note(place, shape):
        order.append(place)
        shapes.add(shape)

    order, shapes = [], set()
    launch(note_between_barriers if with_barrier else note_plain, grid, block, torch.zeros(1))
    grid3 = (tuple(grid) if not isinstance(grid, int) else (grid,)) + (1, 1)
    block3 = (tuple(block) if not isinstance(block, int) else (block,)) + (1, 1)
    assert shapes == {(grid3[:3], block3[:3])}
    assert len(order) == math.prod(grid3[:3]) * math.prod(block3[:3])
    assert order == sorted(order)  # z slowest, x fastest
    assert len(set(order)) == len(order)


def test_dim3_compares_and_prints():
    assert dim3(2, 3) == dim3(2, 3, 1) == (2, 3, 1)
    assert dim3(2) != dim3(3)
    assert repr(dim3(2, 3)) == "dim3(x=2, y=3, z=1)"
    assert dim3(4, 5, 6).y == 5


@pytest.mark.parametrize(("a", "b", "expected"), [(0, 4, 0), (1, 4, 1), (8, 4, 2), (9, 4, 3)])
def test_cdiv(a, b, expected):
    assert cdiv(a, b) == expected


def test_numbers_and_functions_are_passed_as_they_are():
    def apply_kernel(out, fn, scale, flag, count=3):
        out[threadIdx.x] = fn(scale) if flag else count

    out = torch.zeros(2)
    launch(apply_kernel, 1, 2, out, lambda x: 2 * x, np.float32(1.25), True)
    assert out.tolist() == [2.5, 2.5]
    launch(apply_kernel, 1, 2, out, math.sqrt, 4, False)
    assert out.tolist() == [3.0, 3.0]


# ---- arrays


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 1, 3, 2)])
@pytest.mark.parametrize("source", ["torch", "numpy"])
def test_arrays_of_any_dimension(shape, source):
    def double_kernel(out, inp):
        i = threadIdx.x
        index = []
        for size in reversed(inp.shape):
            index.insert(0, i % size)
            i //= size
        index = tuple(index) if len(index) > 1 else index[0]
        out[index] = 2 * inp[index]

    inp = randn(*shape)
    out = torch.zeros(shape)
    args = (out, inp) if source == "torch" else (out.numpy(), inp.numpy())
    launch(double_kernel, 1, inp.numel(), *args)
    assert torch.equal(out, 2 * inp)


def test_len_shape_size_and_name():
    def inspect_kernel(out, inp):
        out[0] = len(inp)
        out[1] = inp.shape[1]
        out[2] = inp.size
        out[3] = len(inp.name)
        assert repr(inp) == "inp: float32 array of shape (3, 5)"

    out = torch.zeros(4, dtype=torch.int32)
    launch(inspect_kernel, 1, 1, out, torch.zeros(3, 5))
    assert out.tolist() == [3, 5, 15, 3]


DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
]


def copy_kernel(out, inp):
    out[threadIdx.x] = inp[threadIdx.x]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_read_and_written_exactly(dtype):
    size = torch.empty((), dtype=dtype).element_size()
    high = 2 if dtype == torch.bool else 256
    inp = torch.randint(0, high, (500 * size,), dtype=torch.uint8).view(dtype)
    inp = inp[inp == inp]  # all but NaN
    out = torch.zeros_like(inp)
    launch(copy_kernel, 1, len(inp), out, inp)
    assert torch.equal(out, inp)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_floats_are_rounded_as_torch_rounds(dtype):
    inp = randn(300) * 10.0 ** torch.randint(-12, 12, (300,))
    inp = torch.cat([inp, torch.tensor([0.0, -0.0, math.inf, -math.inf, 65519.0, 65520.0, 1e39])])
    out = torch.zeros(len(inp), dtype=dtype)
    launch(copy_kernel, 1, len(inp), out, inp)
    assert torch.equal(out, inp.to(dtype))
    launch(copy_kernel, 1, 1, out, torch.tensor([math.nan]))
    assert out[0].isnan()


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (torch.int32, 2.9, 2),
        (torch.int32, -2.9, -2),
        (torch.int32, 2**31, -(2**31)),
        (torch.int32, 1e20, 2**31 - 1),  # floats are clamped, as a GPU does
        (torch.int32, math.nan, 0),
        (torch.int64, -math.inf, -(2**63)),
        (torch.int64, 1e30, 2**63 - 1),
        (torch.int64, 2**63, -(2**63)),
        (torch.uint8, 256 + 7, 7),
        (torch.uint8, -1, 255),
        (torch.uint8, 263.9, 7),
        (torch.uint8, -1.5, 0),
        (torch.int8, 200, -56),
        (torch.int16, -32769, 32767),
        (torch.uint32, -1, 2**32 - 1),
        (torch.uint64, -1, 2**64 - 1),
        (torch.bool, 0.5, True),
        (torch.bool, 0, False),
        (torch.float32, 3, 3.0),
        (torch.float32, True, 1.0),
        (torch.float32, 16777217, 16777216.0),
    ],
)
def test_stores_convert_as_in_c(dtype, value, expected):
    def store_kernel(out, value):
        out[0] = value

    out = torch.zeros(1, dtype=dtype)
    launch(store_kernel, 1, 1, out, value)
    assert out.item() == expected


def test_elements_are_python_numbers():
    def types_kernel(a, b, c):
        kinds.update({type(a[0]), type(b[0]), type(c[0])})

    kinds = set()
    launch(types_kernel, 1, 1, torch.zeros(1).half(), torch.zeros(1).int(), torch.zeros(1).bool())
    assert kinds == {float, int, bool}


def test_tensors_that_are_not_contiguous():
    base = randn(6, 8)
    before = base.clone()
    inp, out = base.t()[1:5], torch.zeros(6, 8)[:, ::2].t()

    def copy2d_kernel(out, inp):
        out[threadIdx.y, threadIdx.x] = inp[threadIdx.y, threadIdx.x]

    assert not inp.is_contiguous() and not out.is_contiguous()
    launch(copy2d_kernel, 1, (6, 4), out, inp)
    assert torch.equal(out, inp)
    assert torch.equal(base, before)


def test_one_tensor_under_two_names():
    def shift_kernel(out, inp):
        inp[threadIdx.x] = inp[threadIdx.x] + 1
        out[threadIdx.x] *= 10

    for tensor in (torch.zeros(4), torch.zeros(4, 2)[:, 0]):
        launch(shift_kernel, 1, 4, tensor, tensor)
        assert tensor.tolist() == [10.0] * 4


def test_expanded_inputs_and_parameters():
    inp = torch.tensor([1.5]).expand(4)
    out = torch.nn.Parameter(torch.zeros(4))
    launch(copy_kernel, 1, 4, out, inp)
    assert out.tolist() == [1.5] * 4


def test_read_only_numpy_arrays_can_be_read():
    inp = np.frombuffer(b"\x01\x02\x03", dtype=np.uint8)
    out = np.zeros(3, dtype=np.uint8)
    launch(copy_kernel, 1, 3, out, inp)
    assert out.tolist() == [1, 2, 3]


def test_empty_tensors_are_passed():
    def empty_kernel(out, inp):
        out[0] = len(inp) + inp.size

    out = torch.ones(1)
    launch(empty_kernel, 1, 1, out, torch.zeros(0, 3))
    assert out.item() == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_tensors_are_written_back():
    n = 100
    a, b, out = randn(n).cuda(), randn(n).cuda(), torch.zeros(n, device="cuda")
    launch(add_kernel, 1, 128, out, a, b, n)
    assert torch.equal(out, a + b)


# ---- shared and local memory


def reverse_kernel(out, inp, n):
    tile = shared_array(n)
    i = threadIdx.x
    tile[i] = inp[blockIdx.x * n + i]
    syncthreads()  # all of tile is written
    out[blockIdx.x * n + i] = tile[n - 1 - i]


@pytest.mark.parametrize("n", [1, 33, 1024])
def test_shared_memory_and_a_barrier(n):
    inp = randn(3, n)
    out = torch.zeros(3, n)
    launch(reverse_kernel, 3, n, out.view(-1), inp.view(-1), n)
    assert torch.equal(out, inp.flip(1))


def test_a_place_in_a_loop_is_one_shared_array():
    def loop_kernel(out):
        for round_ in range(3):
            slot = shared_array(1, torch.int32)
            if threadIdx.x == 0:
                slot[0] = (slot[0] if round_ else 0) + 1
            syncthreads()
        out[threadIdx.x] = slot[0]

    out = torch.zeros(2)
    launch(loop_kernel, 1, 2, out)
    assert out.tolist() == [3.0, 3.0]


def test_sizes_and_types_of_numpy_and_python():
    def sizes_kernel(out, n):
        tile = shared_array((np.int32(2), n), "int8")
        sums = local_array(np.int64(1), float)
        tile[threadIdx.x, 1] = 2 * threadIdx.x
        sums[0] = tile[threadIdx.x, 1] + 1e-9
        out[threadIdx.x] = sums[0]

    out = torch.zeros(2, dtype=torch.float64)
    launch(sizes_kernel, 1, 2, out, np.int64(3))
    assert out.tolist() == [1e-9, 2 + 1e-9]


def test_local_arrays_belong_to_one_thread():
    def local_kernel(out):
        mine = local_array((2, 2), torch.int64)
        for i in range(4):
            mine[i // 2, i % 2] = 10 * threadIdx.x + i
        syncthreads()
        out[threadIdx.x] = mine[1, 1]

    out = torch.zeros(3)
    launch(local_kernel, 1, 3, out)
    assert out.tolist() == [3.0, 13.0, 23.0]


def matmul_kernel(C, A, B, M, N, K, TILE):
    A_tile = shared_array((TILE, TILE))
    B_tile = shared_array((TILE, TILE))
    row = blockIdx.y * TILE + threadIdx.y
    col = blockIdx.x * TILE + threadIdx.x
    acc = 0.0
    for k in range(0, K, TILE):
        inside_a = row < M and k + threadIdx.x < K
        inside_b = k + threadIdx.y < K and col < N
        A_tile[threadIdx.y, threadIdx.x] = A[row, k + threadIdx.x] if inside_a else 0.0
        B_tile[threadIdx.y, threadIdx.x] = B[k + threadIdx.y, col] if inside_b else 0.0
        syncthreads()
        for i in range(TILE):
            acc += A_tile[threadIdx.y, i] * B_tile[i, threadIdx.x]
        syncthreads()
    if row < M and col < N:
        C[row, col] = acc


@pytest.mark.parametrize("shape", [(7, 5, 3), (18, 23, 29), (1, 1, 40)])
def test_tiled_matmul(shape):
    M, N, K = shape
    A, B, C = randn(M, K), randn(K, N), torch.zeros(M, N)
    launch(matmul_kernel, (cdiv(N, 8), cdiv(M, 8)), (8, 8), C, A, B, M, N, K, 8)
    torch.testing.assert_close(C.double(), A.double() @ B.double(), rtol=1e-5, atol=1e-5)


# ---- barriers


def test_barriers_that_count():
    def count_kernel(out, inp, n):
        p = threadIdx.x < n
        out[threadIdx.x, 0] = syncthreads_count(p)
        out[threadIdx.x, 1] = syncthreads_and(p)
        out[threadIdx.x, 2] = syncthreads_or(p)

    for n in (0, 3, 40):
        out = torch.zeros(40, 3).int()
        launch(count_kernel, 1, 40, out, out, n)
        assert out.unique(dim=0).tolist() == [[n, n == 40, n > 0]]


def test_barriers_in_every_kind_of_statement():
    def many_kernel(out, n):
        total = 0
        for i in range(n):
            if i % 2 == 0:
                syncthreads()
            else:
                total += syncthreads_count(threadIdx.x <= i) * 100
        while syncthreads_or(total < n):
            total += 1
        values = [syncthreads_count(True), -syncthreads_count(False)]
        try:
            with_default = {"n": syncthreads_count(threadIdx.x > 0)}
        finally:
            syncthreads()
        text = f"{syncthreads_count(1)}"
        out[threadIdx.x] = total + values[0] + values[1] + with_default["n"] + int(text)

    out = torch.zeros(4).int()
    launch(many_kernel, 1, 4, out, 4)
    assert out.tolist() == [200 + 400 + 4 + 0 + 3 + 4] * 4


def test_1024_threads_meet_at_many_barriers():
    def sum_kernel(out, inp):
        part = shared_array(1024)
        i = threadIdx.x
        part[i] = inp[i]
        stride = 512
        while stride > 0:
            syncthreads()
            if i < stride:
                part[i] += part[i + stride]
            stride //= 2
        if i == 0:
            out[0] = part[0]

    inp = torch.randint(-100, 100, (1024,)).float()
    out = torch.zeros(1)
    launch(sum_kernel, 1, 1024, out, inp)
    assert out.item() == inp.sum().item()


def test_threads_take_turns_in_order_between_barriers():
    def order_kernel(out):
        order.append(("before", threadIdx.x))
        syncthreads()
        order.append(("after", threadIdx.x))

    runs = []
    for _ in range(2):
        order = []
        launch(order_kernel, 1, 5, torch.zeros(1))
        runs.append(order)
    assert runs[0] == [(when, t) for when in ("before", "after") for t in range(5)]
    assert runs[0] == runs[1]


# ---- warps


def lanes(n=WARP_SIZE):
    return torch.zeros(n, dtype=torch.int64)


@pytest.mark.parametrize("width", [1, 2, 8, 32])
@pytest.mark.parametrize("amount", [0, 1, 3, 17, 31])
def test_shuffles(width, amount):
    def shuffle_kernel(down, up, xor, at, inp, amount, width):
        i = threadIdx.x
        down[i] = shfl_down_sync(FULL, inp[i], amount, width)
        up[i] = shfl_up_sync(FULL, inp[i], amount, width)
        xor[i] = shfl_xor_sync(FULL, inp[i], amount, width)
        at[i] = shfl_sync(FULL, inp[i], amount, width)

    inp = torch.randint(0, 1000, (64,))
    results = [lanes(64) for _ in range(4)]
    launch(shuffle_kernel, 1, 64, *results, inp, amount, width)
    for i in range(64):
        lane, warp = i % 32, i - i % 32
        first = lane // width * width
        last = first + width - 1
        sources = (
            lane + amount if lane + amount <= last else lane,
            lane - amount if lane - amount >= first else lane,
            lane ^ amount if lane ^ amount <= last else lane,
            first + amount % width,
        )
        assert [r[i] for r in results] == [inp[warp + s] for s in sources]


def warp_sum(value):
    for delta in (16, 8, 4, 2, 1):
        value += shfl_down_sync(FULL, value, delta)
    return value


def block_sum(value, partial):
    value = warp_sum(value)
    if threadIdx.x % WARP_SIZE == 0:
        partial[threadIdx.x // WARP_SIZE] = value
    syncthreads()
    value = partial[threadIdx.x] if threadIdx.x < blockDim.x // WARP_SIZE else 0.0
    return warp_sum(value) if threadIdx.x < WARP_SIZE else value


def sum_kernel(out, inp):
    total = block_sum(inp[blockIdx.x * blockDim.x + threadIdx.x], shared_array(32))
    if threadIdx.x == 0:
        out[blockIdx.x] = total


@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_block_sum_through_device_functions(threads):
    inp = torch.randint(-100, 100, (2 * threads,)).float()
    out = torch.zeros(2)
    launch(sum_kernel, 2, threads, out, inp)
    assert out.tolist() == inp.view(2, -1).sum(1).tolist()


def test_votes_and_match():
    def vote_kernel(out, inp):
        i = threadIdx.x
        out[i, 0] = ballot_sync(FULL, inp[i] > 2)
        out[i, 1] = all_sync(FULL, inp[i] >= 0)
        out[i, 2] = any_sync(FULL, inp[i] > 100)
        out[i, 3] = match_any_sync(FULL, inp[i])
        out[i, 4] = match_any_sync(FULL, 0.0 if i % 2 else -0.0)

    inp = torch.randint(0, 5, (32,))
    out = torch.zeros(32, 5).long()
    launch(vote_kernel, 1, 32, out, inp)
    for i in range(32):
        assert out[i].tolist() == [
            sum(1 << j for j in range(32) if inp[j] > 2),
            1,
            0,
            sum(1 << j for j in range(32) if inp[j] == inp[i]),
            0xAAAAAAAA if i % 2 else 0x55555555,
        ]


def test_masks_that_name_part_of_a_warp():
    def halves_kernel(out):
        lane = threadIdx.x
        if lane < 16:
            value = shfl_xor_sync(0x0000FFFF, lane, 15)
        else:
            value = shfl_xor_sync(-0x10000, 100 + lane, 15)  # -0x10000 is 0xFFFF0000 in C
        syncwarp()
        out[lane] = value

    out = lanes()
    launch(halves_kernel, 1, 32, out)
    assert out.tolist() == [i ^ 15 for i in range(16)] + [100 + (i ^ 15) for i in range(16, 32)]


def test_lanes_of_warps_follow_x_then_y_then_z():
    def lane_kernel(out):
        linear = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)
        out[linear] = shfl_sync(FULL, linear, 5)

    out = lanes(96)
    launch(lane_kernel, 1, (4, 6, 4), out)
    assert out.tolist() == [5] * 32 + [37] * 32 + [69] * 32


def test_lanes_that_do_not_exist_or_have_returned_are_excused():
    def early_kernel(out, n):
        if threadIdx.x >= n:
            return
        syncwarp()
        out[threadIdx.x] = ballot_sync(FULL, True)

    out = lanes(32)
    launch(early_kernel, 1, 20, out, 10)
    assert out.tolist() == [0x3FF] * 10 + [0] * 22


def test_activemask_names_the_lanes_at_the_same_line():
    def active_kernel(out):
        lane = threadIdx.x
        if lane % 4 == 1:
            out[lane] = activemask()
        else:
            out[lane] = activemask()

    out = lanes()
    launch(active_kernel, 1, 32, out)
    ones = sum(1 << i for i in range(1, 32, 4))
    assert out.tolist() == [ones if i % 4 == 1 else FULL - ones for i in range(32)]


def test_warps_meet_without_each_other():
    def one_warp_kernel(out):
        if threadIdx.x < 32:
            for _ in range(threadIdx.x // 32 + 3):
                out[threadIdx.x] = ballot_sync(FULL, threadIdx.x % 2)
        syncthreads()

    out = lanes(64)
    launch(one_warp_kernel, 1, 64, out)
    assert out.tolist() == [0xAAAAAAAA] * 32 + [0] * 32


# ---- atomics


def test_atomics_return_the_old_value():
    def atomics_kernel(old, new):
        old[0] = atomicAdd(new, 0, 5)
        old[1] = atomicSub(new, 1, 3)
        old[2] = atomicMin(new, 2, -4)
        old[3] = atomicMax(new, 3, 40)
        old[4] = atomicExch(new, 4, 9)
        old[5] = atomicCAS(new, 5, 10, 77)
        old[6] = atomicCAS(new, 6, 11, 77)
        old[7] = atomicAnd(new, 7, 6)
        old[8] = atomicOr(new, 8, 5)
        old[9] = atomicXor(new, 9, 3)

    old, new = torch.zeros(10).int(), torch.full((10,), 10, dtype=torch.int32)
    launch(atomics_kernel, 1, 1, old, new)
    assert old.tolist() == [10] * 10
    assert new.tolist() == [15, 7, -4, 40, 9, 77, 10, 10 & 6, 10 | 5, 10 ^ 3]


def test_atomics_convert_to_the_type_of_the_array():
    def convert_kernel(ints, floats, words):
        atomicAdd(ints, 0, 2.7)  # CUDA adds 2
        atomicAdd(ints, 1, 2**31 - 1)
        atomicAdd(floats, (0, 1), 0.1)
        atomicCAS(floats, (1, 1), 0.1, 5)
        atomicCAS(words, 0, 0xFFFFFFFF, 1)

    ints = torch.tensor([-5, 1]).int()
    floats = torch.tensor([[0.0, 1.0], [0.0, 0.1]])
    words = torch.tensor([-1]).int()
    launch(convert_kernel, 1, 1, ints, floats, words)
    assert ints.tolist() == [-3, -(2**31)]
    assert floats.tolist() == [[0.0, (torch.tensor(1.0) + 0.1).item()], [0.0, 5.0]]
    assert words.tolist() == [1]


# ---- kernels that pause are otherwise the same functions


def test_closures_stay_live():
    step = 1

    def closure_kernel(out):
        syncthreads()
        out[threadIdx.x] += step

    out = torch.zeros(2)
    launch(closure_kernel, 1, 2, out)
    step = 10
    launch(closure_kernel, 1, 2, out)
    assert out.tolist() == [11.0, 11.0]


def test_globals_stay_live(monkeypatch):
    def global_kernel(out):
        syncthreads()
        out[threadIdx.x] = FULL

    out = torch.zeros(2)
    monkeypatch.setattr(sys.modules[__name__], "FULL", 3)
    launch(global_kernel, 1, 2, out)
    assert out.tolist() == [3.0, 3.0]


def test_defaults_and_keyword_only_arguments_stay():
    def count(p, *, scale=100):
        return scale * syncthreads_count(p)

    def default_kernel(out, add=5):
        out[threadIdx.x] = count(True) + count(threadIdx.x, scale=1) + add

    out = torch.zeros(2)
    launch(default_kernel, 1, 2, out)
    assert out.tolist() == [206.0, 206.0]


def test_device_functions_defined_inside_a_kernel():
    def outer_kernel(out):
        def total(p):
            return count(p) + 1

        def count(p):
            return syncthreads_count(p)

        def plain(x):
            return 2 * x

        out[threadIdx.x] = plain(total(threadIdx.x < 3))

    out = torch.zeros(5)
    launch(outer_kernel, 1, 5, out)
    assert out.tolist() == [8.0] * 5


def test_a_device_function_that_calls_itself():
    def tree_sum(value, delta):
        if delta == 0:
            return value
        return tree_sum(value + shfl_xor_sync(FULL, value, delta), delta // 2)

    def tree_kernel(out):
        out[threadIdx.x] = tree_sum(threadIdx.x, 16)

    out = torch.zeros(32)
    launch(tree_kernel, 1, 32, out)
    assert out.tolist() == [496.0] * 32


def test_barriers_by_another_name():
    wait = syncthreads

    def alias_kernel(out):
        wait()
        simulator.syncthreads()
        out[threadIdx.x] = simulator.syncthreads_count(True)

    out = torch.zeros(3)
    launch(alias_kernel, 1, 3, out)
    assert out.tolist() == [3.0] * 3


def test_a_local_name_hides_a_barrier():
    def local_kernel(out, syncthreads_count):
        syncthreads()
        out[threadIdx.x] = syncthreads_count(7)

    out = torch.zeros(2)
    launch(local_kernel, 1, 2, out, lambda x: 2 * x)
    assert out.tolist() == [14.0, 14.0]


def test_decorators_and_text_over_several_lines():
    def keep(fn):
        return fn

    @keep
    def text_kernel(out):
        """Wait.

        (a line that begins left of the code)
        """
        syncthreads()
        text = """a
b"""
        out[threadIdx.x] = len(text)

    out = torch.zeros(2)
    launch(text_kernel, 1, 2, out)
    assert out.tolist() == [3.0, 3.0]


def test_kernels_in_notebook_cells(tmp_path):
    cells = textwrap.dedent(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        def run(cell):
            shell.run_cell(cell, store_history=True).raise_error()
        run("import torch\\nfrom helpers.simulator import *\\nout = torch.zeros(64)")
        run("def count(p):\\n    return syncthreads_count(p)")
        run("def kernel(out):\\n    out[threadIdx.x] = count(threadIdx.x > 3)")
        run("launch(kernel, 1, 64, out)\\nassert out.tolist() == [60.0] * 64")
        run("def count(p):\\n    return 2 * syncthreads_count(p)")
        run("launch(kernel, 1, 64, out)\\nassert out.tolist() == [120.0] * 64")
        result = shell.run_cell("launch(kernel, 1, 65, out)")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", cells],
        capture_output=True,
        text=True,
        cwd=ROOT,  # where `helpers` is
        env=os.environ | {"IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)},
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # The whole of what a learner sees: no traceback, the line of the cell.
    assert done.stdout.splitlines() == [
        "OutOfRangeError: kernel, line 2: out[64] is out of range, shape (64,) "
        "(block 0, thread 64)",
        "    out[threadIdx.x] = count(threadIdx.x > 3)",
    ]


# ---- speed: half of what the course promises, as test machines are noisy


def best_of(times, fn):
    best = math.inf
    for _ in range(times):
        start = time.perf_counter()
        fn()
        best = min(best, time.perf_counter() - start)
    return best


def test_speed_without_barriers():
    def rgb_to_gray_kernel(out, inp, H, W):
        col = blockIdx.x * blockDim.x + threadIdx.x
        row = blockIdx.y * blockDim.y + threadIdx.y
        if row < H and col < W:
            i = row * W + col
            out[i] = 0.2989 * inp[i] + 0.587 * inp[H * W + i] + 0.114 * inp[2 * H * W + i]

    H = W = 128
    inp, out = torch.rand(3, H, W), torch.zeros(H, W)
    args = (out.view(-1), inp.view(-1), H, W)
    time_s = best_of(3, lambda: launch(rgb_to_gray_kernel, (8, 8), (16, 16), *args))
    weights = torch.tensor([0.2989, 0.587, 0.114])[:, None, None]
    torch.testing.assert_close(out, (weights * inp).sum(0))
    assert 5 * H * W / time_s > 150_000  # thread-statements a second; measured: 1.9 million

    n = 20_000
    a, b, total = randn(n), randn(n), torch.zeros(n)
    time_s = best_of(3, lambda: launch(add_kernel, cdiv(n, 256), 256, total, a, b, n))
    assert 3 * n / time_s > 150_000


@pytest.mark.parametrize("TILE", [16, 32])
def test_speed_of_a_tiled_matmul(TILE):
    A, B, C = randn(32, 32), randn(32, 32), torch.zeros(32, 32)
    grid = (32 // TILE, 32 // TILE)
    args = (C, A, B, 32, 32, 32, TILE)
    time_s = best_of(3, lambda: launch(matmul_kernel, grid, (TILE, TILE), *args))
    torch.testing.assert_close(C, A @ B, rtol=1e-5, atol=1e-5)
    assert time_s < 1  # measured: 0.04 s


def test_arrays_declared_in_one_line_have_their_own_names():
    names = []

    def kernel():
        # fmt: off
        first = shared_array(4); second, third = shared_array(4), local_array(4)  # noqa: E702
        # fmt: on
        names.append([first.name, second.name, third.name])

    launch(kernel, 1, 1)
    assert names == [["first", "second", "third"]]
