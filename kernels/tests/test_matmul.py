"""matmul: what it promises (see contract.py), every layout, type, cut and special value."""

import itertools
import re

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from helpers.trace.from_cpu_backend import record
from kernels.tests.contract import Case, equal_bits, floats, wrong

HALF_TYPES = (torch.float16, torch.bfloat16)
TYPES = (torch.float32, *HALF_TYPES)
# M, K, N
SIZES = [(5, 4, 6), (16, 16, 17), (1, 1, 1), (17, 15, 33), (1, 300, 1), (50, 1, 40), (1, 7, 500)]
SIZES += [(130, 78, 260), (300, 40, 9), (64, 2000, 70), (3, 5000, 2), (1, 3000, 70), (70, 999, 1)]
SIZES += [(0, 4, 4), (4, 4, 0), (0, 0, 0), (0, 3, 0), (5, 0, 18), (7, 0, 1)]


def of_terms(M, K, N):
    """One sum alone may end near 0: it is judged by the size of K terms added at random."""
    return {"atol": 1e-5 * max(1, K) ** 0.5}


def into_arguments(M, K, N):
    return {"out": floats(M, N), "A": floats(M, K), "B": floats(K, N), "alpha": 0.5, "beta": -2.0}


def into_ref(out, A, B, alpha, beta):
    out.copy_(alpha * (A @ B) + beta * out)


WRONG = [
    *wrong("A", floats, (), (4,), (1, 5, 4)),
    *wrong("B", floats, (5, 6), (), (4,), (1, 4, 6)),
    ("A", lambda of: of["A"][:, :1].expand(5, 4)),  # its rows are no longer apart
]
CASES = [
    Case(
        "matmul",
        lambda M, K, N: {"A": floats(M, K), "B": floats(K, N)},
        lambda A, B: A @ B,
        SIZES,
        ragged=WRONG,
        tolerance=of_terms,
        dtypes=HALF_TYPES,
        transposed=["A", "B"],
    ),
    Case(
        "matmul_into",
        into_arguments,
        into_ref,
        SIZES,
        ragged=WRONG
        + wrong("out", floats, (5, 5), (6, 5), (30,), (1, 5, 6))
        + [("out", lambda of: of["out"][:1].expand(5, 6))],
        tolerance=of_terms,
        writes=["out"],
        dtypes=HALF_TYPES,
        transposed=["out", "A", "B"],
    ),
]


@pytest.fixture
def module(kernel):
    return kernel("matmul")


@pytest.fixture
def matmul(module):
    return module.matmul


def matrix(rows, cols, layout, dtype=torch.float32):
    """Return random numbers as whole rows or columns, or as a part of larger ones."""
    if layout in ("columns", "parts of columns"):
        return matrix(cols, rows, layout.replace("columns", "rows"), dtype).t()
    if layout == "rows":
        return floats(rows, cols).to(dtype)
    aligned = layout == "aligned parts of rows"
    wide = floats(rows, (cols + 11) // 4 * 4 + (0 if aligned else 1)).to(dtype)
    return wide[:, 4 : cols + 4] if aligned else wide[:, 1 : cols + 1]


LAYOUTS = ("rows", "columns", "parts of rows", "parts of columns", "aligned parts of rows")


def check_into(module, A, B, out, alpha=1.0, beta=0.0):
    """Judge out by the type's rounding of each result, and float32's of each of its terms."""
    terms = A.double().abs() @ B.double().abs() * abs(alpha)
    expected = A.double() @ B.double() * alpha
    if beta:
        expected = expected + beta * out.double()
        terms = terms + abs(beta) * out.double().abs()
    module.matmul_into(out, A, B, alpha, beta)
    allowed = torch.finfo(out.dtype).eps * expected.abs() + 2e-6 * terms + 1e-30
    error = (out.double() - expected).abs()
    assert (error <= allowed).all(), f"{(error / allowed).max():.2f} of what is allowed"


@pytest.mark.parametrize("layouts", [*itertools.product(LAYOUTS, repeat=2)], ids=str)
@pytest.mark.parametrize("size", [(130, 260, 40), (36, 20, 300), (1, 90, 700)], ids=str)
def test_any_layout(module, layouts, size):
    M, N, K = size
    A, B = matrix(M, K, layouts[0]), matrix(K, N, layouts[1])
    for layout in LAYOUTS:
        out = matrix(M, N, layout)
        out.fill_(torch.nan)
        check_into(module, A, B, out)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [(65, 33, 70), (200, 12, 999), (1, 40, 2000), (3, 1, 600)])
def test_types_round_once(module, dtype, size):
    M, N, K = size
    for a, b in itertools.product(("rows", "columns", "parts of rows"), repeat=2):
        A, B = matrix(M, K, a, dtype), matrix(K, N, b, dtype)
        for alpha, beta in ((1.0, 0.0), (-0.5, 0.0), (2.0, 1.0), (0.0, 3.0)):
            check_into(module, A, B, matrix(M, N, "rows", dtype), alpha, beta)


CONSIDERED = re.compile(r"consider<(\w+)>\(p, way, ")  # what choosing among tiles consists of
TILES = [*dict.fromkeys(CONSIDERED.findall((ROOT / "kernels" / "matmul.cu").read_text()))]
ONLY = """
static int64_t only = 0;
void consider_only(int64_t tiles) { only = tiles; }
"""


@pytest.fixture(scope="module")
def by_tiles():
    """Return the file's functions, and one that says which tiles alone they may take."""
    text = CONSIDERED.sub(
        lambda found: f"if (only == {TILES.index(found[1])}) {found[0]}",
        (ROOT / "kernels" / "matmul.cu").read_text(),
    )
    at = text.index("template <typename T> static void run(")
    names = ["matmul_into", "consider_only"]
    return compile_cuda(text[:at] + ONLY + text[at:], functions=names)


def test_there_are_tiles_of_five_shapes():
    assert len(TILES) == 5


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("tiles", range(5))
@pytest.mark.parametrize("size", [(131, 133, 7), (131, 69, 37), (264, 196, 60)], ids=str)
def test_all_tiles_and_types(by_tiles, tiles, dtype, size):
    """Which tiles are chosen hangs on the size and on the chip: here each is, for all types.

    Their ends are ragged or not; K is one slice, cut into shares, or some slices of one block.
    """
    if dtype in HALF_TYPES and TILES[tiles] == "Square":
        pytest.skip("halves lack the registers")
    by_tiles.consider_only(tiles)
    M, N, K = size
    for a, b, layout, alpha, beta in (
        ("rows", "columns", "rows", 1.0, 0.0),
        ("columns", "parts of rows", "parts of columns", -0.5, 2.0),
        ("aligned parts of rows", "rows", "columns", 2.0, 0.0),
    ):
        A, B, out = matrix(M, K, a, dtype), matrix(K, N, b, dtype), matrix(M, N, layout, dtype)
        with poisoned():
            check_into(by_tiles, A, B, out, alpha, beta)


def test_only_out_is_written(module):
    around = torch.full((40, 50), 7.0, device=DEVICE)
    out = around[3:36, 5:42]
    check_into(module, floats(33, 90), floats(90, 37), out)
    out.fill_(7.0)
    assert (around == 7.0).all()


def test_types_are_not_mixed(matmul):
    A, B = floats(3, 4), floats(4, 5)
    with pytest.raises(RuntimeError, match="B: expected .* as A, which has Half .* got Float"):
        matmul(A.half(), B)


def test_sums_are_long_and_repeat_to_the_bit(matmul):
    """Where few tiles leave the GPU idle, K is split, and the parts are added in one order."""
    for M, K, N in ((3, 20_000, 5), (1, 100_001, 1), (100, 30_000, 60), (1, 5000, 300)):
        A, B = floats(M, K), floats(K, N)
        out = matmul(A, B)
        check_close(out, A.double() @ B.double(), **of_terms(M, K, N))
        for _ in range(3):
            assert equal_bits(matmul(A, B), out)


def test_by_one_is_exact(matmul):
    A, one = floats(137, 137), torch.eye(137, device=DEVICE)
    assert torch.equal(matmul(A, one), A)
    assert torch.equal(matmul(one, A), A)


def test_infinity_and_nan_as_in_mathematics(module):
    A = torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0], [1.0, 1.0]], device=DEVICE)
    out = module.matmul(A, torch.ones(2, 2, device=DEVICE))
    assert torch.equal(out[0], A[0, :1].expand(2))
    assert out[1].isnan().all()
    assert torch.equal(out[2], torch.full((2,), 2.0, device=DEVICE))
    module.matmul_into(out, A, torch.ones(2, 2, device=DEVICE), 0.0, 1.0)
    assert out[:2].isnan().all() and (out[2] == 2.0).all()  # 0 times infinity is not 0
    big = torch.full((1, 2), 60_000.0, dtype=torch.float16, device=DEVICE)
    assert module.matmul(big, big.t()).isinf().all()  # beyond float16


def test_out_is_not_read_if_beta_is_0(module):
    A, B = floats(9, 300), floats(300, 20)
    for M, N in ((9, 20), (9, 1)):
        out = torch.full((M, N), torch.nan, device=DEVICE)
        module.matmul_into(out, A[:M], B[:, :N].contiguous(), 1.0, 0.0)
        assert not out.isnan().any()


def test_nothing_to_add_up_gives_beta_out(module):
    out = floats(7, 9)
    expected = -2.0 * out
    module.matmul_into(out, floats(7, 0), floats(0, 9), 3.0, -2.0)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_fault_is_found_in_any_cut(dtype):
    """On the CPU backend, with every access checked: all tiles, both ways to split K."""
    checked = compile_cuda(ROOT / "kernels" / "matmul.cu", check=True)
    for M, N, K in ((130, 140, 20), (9, 70, 130), (36, 20, 64), (1, 40, 2100), (2, 1, 2100)):
        for layouts in (("rows", "parts of rows"), ("columns", "rows"), ("parts of columns",) * 2):
            A, B = (matrix(*size, layout, dtype) for size, layout in zip(
                ((M, K), (K, N)), layouts, strict=True))  # fmt: skip
            with poisoned():
                check_into(checked, A, B, matrix(M, N, layouts[1], dtype), 2.0, -1.0)


@pytest.mark.parametrize("b", ["rows", "columns"])
@pytest.mark.parametrize("a", ["rows", "columns"])
def test_hardly_a_bank_is_asked_twice(matmul, a, b):
    """Only where 16 columns of B are stored, two packs in 32 meet."""
    _, launches = record(matmul, matrix(128, 32, a), matrix(32, 128, b))  # trace would ask nvcc
    accesses = [access for launch in launches for access in launch.accesses]
    in_shared = [access for access in accesses if access.space == "shared"]
    conflicts = sum(access.bank_conflicts for access in in_shared)
    assert conflicts < 0.05 * sum(access.wavefronts for access in in_shared)
