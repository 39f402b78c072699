"""linear: what it promises (see contract.py), each tile and epilogue, the plan, special values."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace.from_cpu_backend import record
from kernels.tests.contract import Case, equal_bits, floats, kernels_of
from kernels.tests.hopper_clusters import LINEAR, on_cpu, replaced, with_bodies

FILE = ROOT / "kernels" / "linear.cu"
HALF_TYPES = (torch.float16, torch.bfloat16)
# M, K, N, whether there is a bias, and for GELU whether it is by tanh
SIZES = [(5, 24, 6, True), (3, 7, 5, False), (17, 33, 9, True), (1, 300, 1, True)]
SIZES += [(8, 64, 32, True), (16, 40, 27, False), (9, 1, 3, True), (1, 2048, 2, False)]
SIZES += [(20, 72, 10, True)]
EMPTY = [(0, 4, 3, True), (4, 0, 3, True), (20, 0, 5, False), (2, 3, 0, True), (0, 0, 0, False)]


def arguments(M, K, N, biased, rows=1, dtype=torch.float16):
    """Return inp, weight and bias whose sums are of the size of 1; `rows`: of weights, per N."""
    return {
        "inp": floats(M, K).to(dtype),
        "weight": (floats(rows * N, K) / max(1, K) ** 0.5).to(dtype),
        "bias": floats(rows * N if biased else 0).to(dtype),
    }


def linear_ref(inp, weight, bias):
    return F.linear(inp, weight, bias if len(bias) else None)


def gelu_ref(inp, weight, bias, by_tanh):
    return F.gelu(linear_ref(inp, weight, bias), approximate="tanh" if by_tanh else "none")


def residual_ref(inp, weight, bias, residual):
    return linear_ref(inp, weight, bias) + residual


def silu_gate_ref(inp, weight, bias):
    gate, up = linear_ref(inp, weight, bias).chunk(2, -1)
    return F.silu(gate) * up


def tolerance(M, K, N, *flags):
    """Return what a sum in float32 may be off by, and the one rounding to float16."""
    return {"rtol": 2**-10, "atol": 2e-5 * (1 + K / 1000)}


RAGGED = [
    ("inp", lambda a: a["inp"][0]),
    ("weight", lambda a: a["weight"][:, :-1].contiguous()),
    ("weight", lambda a: a["weight"].flatten()),
    ("bias", lambda a: a["bias"][:-1].contiguous()),
    ("bias", lambda a: a["bias"][None]),
]
CASES = [
    Case("linear", arguments, linear_ref, SIZES + EMPTY, RAGGED, tolerance),
    Case(
        "linear_gelu",
        lambda M, K, N, biased, by_tanh: arguments(M, K, N, biased) | {"by_tanh": by_tanh},
        gelu_ref,
        [(*size, i % 2 == 1) for i, size in enumerate(SIZES + EMPTY)],
        RAGGED,
        tolerance,
    ),
    Case(
        "linear_residual",
        lambda *size: arguments(*size) | {"residual": floats(size[0], size[2]).half()},
        residual_ref,
        SIZES + EMPTY,
        [*RAGGED, ("residual", lambda a: a["residual"][:-1].contiguous())],
        tolerance,
    ),
    Case(
        "linear_silu_gate",
        lambda *size: arguments(*size, rows=2),
        silu_gate_ref,
        SIZES + EMPTY,
        [*RAGGED, ("weight", lambda a: a["weight"][:-1].contiguous())],
        tolerance,
    ),
]


@pytest.fixture
def linear(kernel):
    return kernel("linear")


# Of M, K and the columns of the product, with ends within a tile and within a slice of k, what
# the plan says for eight multiprocessors, the CPU backend's: rows and columns of a tile, parts of k
TILES = {
    (9, 104, 130): (0, 0, 1),
    (3, 4104, 71): (0, 0, 2),
    (18, 136, 70): (32, 64, 1),
    (18, 4104, 40): (32, 64, 8),
    (70, 200, 130): (64, 64, 1),
    (260, 72, 260): (64, 128, 1),
    (66, 2056, 71): (64, 128, 4),
    (130, 96, 260): (128, 128, 1),
}
PLAN = """
std::tuple<int64_t, int64_t, int64_t> plan_of(int64_t M, int64_t columns, int64_t K,
                                              int64_t sms) {
    auto [tile_m, tile_n, splits] = plan(M, columns, K, sms);
    return {tile_m, tile_n, splits};
}
std::tuple<int64_t, int64_t, int64_t> clusters_of(int64_t M, int64_t columns, int64_t K,
                                               int64_t sms) {
    auto [cols, splits, pair] = plan_wgmma(M, columns, K, sms);
    return {cols, splits, pair};
}
"""


@pytest.fixture(scope="module")
def older():
    """Return the file as built for sm_75, which the CPU backend is not, and what it plans.

    With its instructions and stages, and bfloat16 by linear_plain_kernel; the plan is the same.
    """
    source = "#include <tuple>\n" + FILE.read_text()
    begin = source.index("struct Clusters {")
    end = source.index("    return best;\n}\n", begin) + len("    return best;\n}\n")
    others = f"constexpr int TILE_W = 128;\n{source[begin:end]}"  # do not see it there
    source += f"#ifndef __CUDACC_VER_MAJOR__\n{others}#endif\n{PLAN}"
    for text, instead in {
        "__CUDA_ARCH__ >= 800": "__CUDA_ARCH__ >= 810",
        "__CUDA_ARCH__ < 800": "__CUDA_ARCH__ < 810",
        "return built.ptxVersion;": "return 75;",
    }.items():
        assert text in source
        source = source.replace(text, instead)
    functions = [case.function for case in CASES]
    return compile_cuda(source, [*functions, "plan_of", "clusters_of"])


@pytest.fixture
def plan(older):
    return older.plan_of


def test_the_plan_takes_each_kernel(plan):
    """So the sizes of TILES run each of them, where there are eight multiprocessors."""
    assert {size: plan(size[0], size[2], size[1], 8) for size in TILES} == TILES


SMS = (1, 8, 40, 108, 132)  # the last three: T4, A100, H100
SIDES = (1, 16, 17, 64, 100, 512, 1500, 4096, 11008)


def test_the_plan_fills_the_gpu_and_splits_only_then(plan):
    """K in parts: only where whole sums leave multiprocessors idle, or the last turn short."""
    for M, K, N, sms in itertools.product(SIDES, SIDES, SIDES, SMS):
        tile_m, tile_n, splits = plan(M, N, K, sms)
        assert (tile_m == 0) == (M <= 16)
        assert (tile_m, tile_n) in {(0, 0), (32, 64), (64, 64), (64, 128), (128, 128)}
        assert splits in (1, 2, 4, 8, 16, 32)
        blocks = -(-M // (tile_m or M)) * -(-N // (tile_n or 32))
        if splits > 1:
            assert blocks % sms and K >= splits * 3 * 64
        if tile_m == 0:
            assert splits == 1 or blocks * splits <= sms
            assert blocks * splits * 2 > sms or K < splits * 2 * 1024


def test_the_plan_for_the_layers_of_networks(plan):
    """On an H100: no part of the chip is left out where the weights alone take 10 us and more."""
    for (K, N), M in itertools.product(
        [(4096, 4096), (4096, 11008), (11008, 4096)], (1, 8, 16, 64, 128, 512)
    ):
        tile_m, tile_n, splits = plan(M, N, K, 132)
        blocks = -(-M // (tile_m or M)) * -(-N // (tile_n or 32)) * splits
        assert blocks >= 0.6 * 132


def test_the_plan_of_wgmma_fits_k_and_the_gpu(older):
    for M, K, N, sms in itertools.product(SIDES[2:], SIDES, SIDES, SMS):
        cols, splits, pair = older.clusters_of(M, N, K, sms)
        assert cols in (32, 64, 128, 176, 192, 256) and pair in (1, 2)
        assert 1 <= splits <= min(3, -(-K // 64)) and splits * pair <= 2 * sms


# M, K, N: of the tiles that were timed on an H100 the fastest, or one within 6 % of it
FASTEST = {
    (64, 4096, 4096): (64, 2, 2),
    (128, 4096, 11008): (128, 1, 2),
    (256, 4096, 4096): (256, 3, 2),
    (512, 4096, 4096): (128, 1, 2),
    (512, 4096, 11008): (176, 1, 2),
    (512, 11008, 4096): (128, 1, 2),
    (1024, 1024, 1024): (64, 1, 2),
    (1536, 1536, 1536): (176, 1, 2),
    (3072, 3072, 3072): (192, 1, 2),
    (4096, 4096, 4096): (256, 1, 2),
}


def test_the_plan_of_wgmma_takes_what_was_fastest(older):
    assert {(M, K, N): older.clusters_of(M, N, K, 132) for M, K, N in FASTEST} == FASTEST


def references(given, gate, exact):
    """Return what each epilogue makes of a layer; `gate`: the arguments with two rows an N."""
    inp, weight, bias = (exact(given[name]) for name in ("inp", "weight", "bias"))
    residual = exact(given["residual"])
    return {
        "linear": linear_ref(inp, weight, bias),
        "exact gelu": gelu_ref(inp, weight, bias, False),
        "gelu by tanh": gelu_ref(inp, weight, bias, True),
        "residual": residual_ref(inp, weight, bias, residual),
        "silu gate": silu_gate_ref(inp, exact(gate["weight"]), exact(gate["bias"])),
    }


def results(linear, given, gate):
    layer = [given[name] for name in ("inp", "weight", "bias")]
    with poisoned():
        return {
            "linear": linear.linear(*layer),
            "exact gelu": linear.linear_gelu(*layer, False),
            "gelu by tanh": linear.linear_gelu(*layer, True),
            "residual": linear.linear_residual(*layer, given["residual"]),
            "silu gate": linear.linear_silu_gate(given["inp"], gate["weight"], gate["bias"]),
        }


def layer(M, K, N, biased, dtype):
    """Return the arguments of all functions; those of linear_silu_gate: an inp, two rows an N."""
    given = arguments(M, K, N, biased, dtype=dtype)
    given["residual"] = floats(M, N).to(dtype)
    gate = arguments(M, K, N // 2, biased, rows=2, dtype=dtype)
    return given, gate


def check(linear, M, K, N, biased, dtype):
    given, gate = layer(M, K, N, biased, dtype)
    exact = references(given, gate, torch.Tensor.double)
    got = results(linear, given, gate)
    for name, out in got.items():
        assert out.dtype == dtype
        rtol, atol = 0.51 * torch.finfo(dtype).eps, 2e-5 * (1 + K / 1000)
        check_close(out, exact[name], rtol=rtol, atol=atol, name=name)
    return given, gate, got


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("size", TILES, ids=str)
def test_each_kernel_and_epilogue_is_rounded_once(linear, dtype, size):
    """With a bias, or in bfloat16 without; and the same again, bit for bit."""
    given, gate, got = check(linear, *size, dtype == torch.float16, dtype)
    again = results(linear, given, gate)
    assert all(equal_bits(again[name], out) for name, out in got.items())


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("M", [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33])
def test_any_number_of_rows(linear, dtype, M):
    for K, N in ((1, 2), (7, 34), (31, 64), (32, 62), (33, 66), (264, 96)):
        check(linear, M, K, N, True, dtype)


@pytest.mark.parametrize("size", [(5, 72, 34), (40, 72, 66)], ids=str)
@pytest.mark.parametrize("name", ["inp", "weight", "bias", "residual"])
@pytest.mark.parametrize("shift", [1, 4])
def test_memory_that_is_aligned_to_elements_only(linear, size, name, shift):
    """Each tensor alone, 2 or 8 bytes after a multiple of 16: the same bits as from there."""
    given, gate = layer(*size, True, torch.float16)
    want = results(linear, given, gate)
    for of in (given, gate):
        if name in of:
            value = of[name]
            of[name] = torch.cat([value.new_zeros(shift), value.flatten()])[shift:].view_as(value)
            assert of[name].data_ptr() % 16
    got = results(linear, given, gate)
    assert all(equal_bits(got[key], out) for key, out in want.items())


@pytest.mark.parametrize("size", [(5, 72, 34), (40, 72, 66), (3, 4104, 70), (40, 33, 18)], ids=str)
def test_nan_and_infinity_as_in_pytorch(linear, size):
    """In inp, the weights, the bias: where they belong, and in nobody else's row or column."""
    given, gate = layer(*size, True, torch.float16)
    for of in (given, gate):
        of["inp"][1, 5], of["inp"][2, -1] = torch.nan, torch.inf
        of["weight"][3, 0], of["weight"][4, -1], of["weight"][-1, 1] = torch.inf, -torch.inf, 0
        of["bias"][0], of["bias"][7], of["bias"][8] = torch.nan, torch.inf, -torch.inf
    given["residual"][0, 5], given["residual"][0, 7] = torch.nan, -torch.inf
    want = references(given, gate, torch.Tensor.double)
    for name, out in results(linear, given, gate).items():
        for what in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(what(out), what(want[name])), f"{name}: {what.__name__}"


def test_what_a_half_type_does_not_hold_becomes_infinity(linear):
    big = torch.full((2, 32), 300.0, dtype=torch.float16, device=DEVICE)
    bias = big.new_zeros(0)
    assert linear.linear(big, big, bias).isposinf().all()  # 32 * 90,000
    # only at the end: the residual brings it back
    assert (
        linear.linear_residual(
            big[:, :1].contiguous(),
            big[:, :1].contiguous(),
            bias,
            torch.full_like(big[:, :2], -60_000),
        )
        == 30_000
    ).all()


def test_silu_keeps_its_digits_where_it_is_small(linear):
    """Of gates down to -16, whose sigmoid is 1e-7."""
    gate = torch.linspace(-16, 16, 99, device=DEVICE).half()[:, None]
    weight, bias = gate.new_tensor([[1], [0]]), gate.new_tensor([0, 1000])  # up: 1000
    out = linear.linear_silu_gate(gate, weight, bias)
    check_close(out, 1000 * F.silu(gate.double()), rtol=0.51 * 2**-10, atol=0)


def test_types_are_not_mixed(linear):
    inp, weight = floats(3, 4).half(), floats(5, 4).bfloat16()
    with pytest.raises(RuntimeError, match="expected inp and weight of one type, got Half and BF"):
        linear.linear(inp, weight, inp.new_zeros(0))


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU shows such a fault now and then only")
@pytest.mark.parametrize("size", [*TILES, (5, 33, 18), (40, 33, 18)], ids=str)
def test_no_fault_is_found(size):
    """On the CPU backend, with every access checked: each kernel at its ends."""
    check(compile_cuda(FILE, check=True), *size, True, torch.float16)


@pytest.mark.skipif(BACKEND == "cuda", reason="what is compiled for sm_75 runs there")
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_as_built_for_sm_75(older, dtype):
    for size in [*TILES, (3, 7, 6)]:
        check(older, *size, True, dtype)


@pytest.mark.skipif(BACKEND == "cuda", reason="counted by the CPU backend")
@pytest.mark.parametrize("size", TILES, ids=str)
def test_requests_for_shared_memory_have_no_conflict(linear, size):
    given, gate = layer(*size, True, torch.float16)
    _, launches = record(linear.linear, *(given[name] for name in ("inp", "weight", "bias")))
    accesses = [a for launch in launches for a in launch.accesses if a.space == "shared"]
    assert accesses and all(a.bank_conflicts == 0 for a in accesses)


@pytest.mark.skipif(BACKEND == "cuda", reason="counted by the CPU backend")
@pytest.mark.parametrize("M", [1, 8, 16])
def test_few_rows_read_each_weight_once_and_16_bytes_at_a_time(linear, M):
    given = arguments(M, 512, 96, True)
    _, [launch] = record(linear.linear, *given.values())
    reads = [a for a in launch.accesses if a.array == "argument 4"]  # of the kernel: weight
    assert {(access.operation, access.bytes) for access in reads} == {("load", 16)}
    assert sum(16 * access.lanes for access in reads) == given["weight"].nbytes


# ------------------------------------------------------------------ wgmma and TMA, on sm_90

CHOOSE = """struct Clusters { int cols, splits, pair; };
static Clusters chosen;
void choose(int64_t cols, int64_t splits, int64_t pair, int64_t fault) {
    chosen = {int(cols), int(splits), int(pair)};
    int without = fault;
    C10_CUDA_CHECK(cudaMemcpyToSymbol(planted, &without, sizeof without));
}
"""
# What is left out, by choose(..., fault): what it stops is found then.
FAULTS = {
    "empty[turn.stage].wait(turn.phase ^ 1);": 1,
    "consumers_sync();  // both": 2,
    "warpgroup_sync();  // the boxes are complete": 3,
    "full[turn.stage].wait(turn.phase);": 4,
}


def on_stand_ins(check=False):
    """Return the file as on sm_90, in float16 alone, with a plan that the test chooses.

    Over stand-ins (see hopper.py); two or three stages, so that they come round.
    """
    planted = {text: f"if (planted != {i}) {text}" for text, i in FAULTS.items()}
    source = replaced(
        FILE.read_text(),
        planted
        | {
            "#include <cuda.h>": "static __device__ int planted;\n#include <cuda.h>",
            "STAGES = ROOM / STAGE < 12 ? ROOM / STAGE : 12;": "STAGES = COLS > 128 ? 3 : 2;",
            "struct Clusters { int cols, splits, pair; };": CHOOSE,
            "columns * K < 1 << 28": "columns * K < 1",
            # the last tile first: what is written behind the end of one before it stays
            "deal.find(i, row, col);": "deal.find(deal.count() - 1 - i, row, col);",
            "else f(out, at::BFloat16());": "",
        },
    )
    functions = [case.function for case in CASES]
    if check:  # one function and two kernels: it takes long
        source = source[: source.rindex("\nTensor linear_gelu(")]
        source = re.sub(r"auto way = cols == 32.*?;", KERNELS, source, flags=re.DOTALL)
        functions = ["linear"]
    source = on_cpu(with_bodies(source, {"plan_wgmma": "return chosen;"}), LINEAR)
    return compile_cuda(source, [*functions, "choose"], check=check)


KERNELS = "auto way = cols == 32 ? launch_wgmma<T, E, 32> : launch_wgmma<T, E, 64>;"
# Rows of inp per tile, parts of k, blocks that share inp: M, K and the columns of the product,
# with ends within a tile, and with more tiles than clusters at a time where K is whole
CLUSTERS = {
    (32, 1, 1): (150, 136, 528),
    (64, 1, 1): (290, 200, 272),
    (64, 2, 1): (70, 328, 208),
    (64, 1, 2): (70, 264, 272),
    (64, 3, 1): (70, 264, 144),
    (128, 2, 1): (130, 200, 144),
    (128, 1, 2): (20, 136, 528),
    (176, 1, 1): (180, 136, 144),
    (192, 1, 1): (200, 72, 144),
    (256, 1, 1): (260, 264, 144),
}


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU runs the instructions")
def test_wgmma_over_stand_ins():
    """Each kernel and epilogue, in clusters of up to three blocks; the same again, bit for bit."""
    linear = on_stand_ins()
    for clusters, size in CLUSTERS.items():
        linear.choose(*clusters, 0)
        given, gate, got = check(linear, *size, clusters[1] == 1, torch.float16)
        again = results(linear, given, gate)
        assert all(equal_bits(again[name], out) for name, out in got.items())
    check(linear, 20, 72, 140, True, torch.float16)  # rows of 280 bytes: by another kernel


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU runs the instructions")
def test_wgmma_waits_for_what_it_reads():
    """With every access checked: no fault in the file, one in it without each of its waits."""
    linear = on_stand_ins(check=True)
    given = arguments(20, 328, 144, True)
    exact = linear_ref(*(x.double() for x in given.values()))

    def check_with(*chosen):
        linear.choose(*chosen)
        check_close(linear.linear(*given.values()), exact, rtol=2**-10, atol=2.7e-5)

    for clusters in ((32, 1, 1), (64, 2, 1), (32, 1, 2)):
        check_with(*clusters, 0)
    for text, fault in FAULTS.items():
        # a stage that is filled too early may be read in order, with the wrong numbers
        with pytest.raises((RuntimeError, AssertionError), match="thread|out") as said:
            check_with(64, 2, 1, fault)
        assert fault == 1 or said.type is RuntimeError, text


SM_90 = BACKEND == "cuda" and torch.cuda.get_device_capability() == (9, 0)
# M, K, columns: each kernel of plan_wgmma, K in parts and not, pairs, ends within tiles
LARGE = [(17, 4104, 4112), (60, 4096, 4096), (64, 11008, 4096), (100, 4104, 11008)]
LARGE += [(250, 4096, 4112), (500, 4096, 11008), (500, 4104, 4096), (1032, 1032, 1040)]
LARGE += [(1528, 1536, 1552), (2056, 2040, 2048), (3064, 3072, 3080), (300, 4100, 4096)]


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("size", LARGE, ids=str)
def test_wgmma(linear, dtype, size):
    with torch.profiler.profile() as profiled:
        given, gate, got = check(linear, *size, True, dtype)
    assert "linear_wgmma_kernel" in kernels_of(profiled)
    again = results(linear, given, gate)
    assert all(equal_bits(again[name], out) for name, out in got.items())
