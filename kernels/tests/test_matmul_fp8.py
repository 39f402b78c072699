"""matmul_fp8: what it promises (see contract.py), each pair of types, how exactly it adds up."""

import itertools

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import poisoned
from helpers.compiler import compile_cuda, device_code
from helpers.device import BACKEND, DEVICE
from helpers.trace.from_cpu_backend import record
from kernels.tests.contract import Case, equal_bits, kernels_of
from kernels.tests.test_kernels import needs_nvcc

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
PAIRS = list(itertools.product((E4M3, E5M2), repeat=2))
SOURCE = ROOT / "kernels" / "matmul_fp8.cu"
CAPABILITY = torch.cuda.get_device_capability() if BACKEND == "cuda" else (8, 0)
# M, K, N, fast_accum
SIZES = [(5, 48, 6, False), (17, 15, 33, True), (130, 78, 260, True), (1, 1, 1, False)]
SIZES += [(1, 300, 1, False), (50, 1, 40, True), (3, 2000, 2, False), (1, 7, 500, True)]
SIZES += [(0, 4, 4, True), (4, 4, 0, False), (0, 0, 0, False), (0, 3, 0, True), (5, 0, 18, False)]


def numbers(rows, cols, dtype=E4M3):
    return torch.randn(rows, cols, device=DEVICE).to(dtype)


def scale():
    return torch.rand((), device=DEVICE) + 0.5


def lost(K, fast):
    """Return how much of the sum of all terms' sizes may be lost before out is rounded.

    float32's last bit for each term, in any order. Tensor cores that add 8-bit floats cut 32
    products and the sum that they are added to off at 2^-13 of the largest; those sums are as long
    as 128 terms, or with `fast` as long as K. Of normal numbers an H200 loses up to 1.2 * 2^-13 of
    128 terms, less of more; fast ones lose 2.8 * 2^-13 of 1,024 and 4.2 * 2^-13 of 8,192.
    """
    of_float32 = (K + 8) * 2**-24
    if CAPABILITY < (8, 9):
        return of_float32
    return of_float32 + 2**-12 + (0.5 * (K / 32) ** 0.5 * 2**-13 if fast else 0)


def tolerance(M, K, N, fast):
    """Terms are 0.64 in the mean, scales below 1.5."""
    return {"rtol": 1.01 * 2**-8, "atol": 2 * K * lost(K, fast) + 1e-6}


CASES = [
    Case(
        "matmul_fp8",
        lambda M, K, N, fast: {
            "A": numbers(M, K),
            "B": numbers(N, K, E5M2),
            "scale_a": scale(),
            "scale_b": scale(),
            "fast_accum": fast,
        },
        lambda A, B, scale_a, scale_b, fast: A @ B.t() * scale_a * scale_b,
        SIZES,
        ragged=[
            ("A", lambda a: a["A"][0]),
            ("A", lambda a: a["A"][:, :32].contiguous()),
            ("B", lambda a: a["B"][None]),
            ("B", lambda a: torch.cat([a["B"], a["B"]], 1)),
            ("scale_a", lambda a: torch.ones(2, device=DEVICE)),
            ("scale_b", lambda a: torch.ones(0, device=DEVICE)),
        ],
        tolerance=tolerance,
    ),
]


@pytest.fixture
def matmul(kernel):
    return kernel("matmul_fp8").matmul_fp8


def check(matmul, A, B, fast=False):
    """Judge each sum by what its terms may lose, and out's rounding."""
    scale_a, scale_b = scale(), scale()
    with poisoned():
        out = matmul(A, B, scale_a, scale_b, fast)
    assert out.dtype == torch.bfloat16
    A, B = A.double(), B.double().t()
    factor = (scale_a * scale_b).double()
    expected, terms = A @ B * factor, A.abs() @ B.abs() * factor
    allowed = 1.01 * 2**-8 * expected.abs() + lost(A.size(1), fast) * terms + 1e-30
    error = (out.double() - expected).abs()
    assert (error <= allowed).all(), f"{(error / allowed).max():.2f} of what is allowed"


@pytest.mark.parametrize("fast", [False, True], ids=["", "fast"])
@pytest.mark.parametrize("a, b", PAIRS, ids=str)
@pytest.mark.parametrize("size", [(130, 40, 260), (36, 100, 301), (1, 700, 90)], ids=str)
def test_each_pair_of_types(matmul, a, b, size, fast):
    M, K, N = size
    check(matmul, numbers(M, K, a), numbers(N, K, b), fast)


SM_90 = CAPABILITY == (9, 0)


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("fast", [False, True], ids=["", "fast"])
@pytest.mark.parametrize("a, b", PAIRS, ids=str)
@pytest.mark.parametrize("size", [(2056, 144, 4104), (1032, 1008, 8200), (4096, 8190, 1000)])
def test_wgmma(matmul, a, b, size, fast):
    """Enough tiles to fill a GPU, with ends within boxes and within stages."""
    M, K, N = size
    A, B = numbers(M, K, a), numbers(N, K, b)
    with torch.profiler.profile() as profiled:
        check(matmul, A, B, fast)
    assert "matmul_fp8_wgmma_kernel" in kernels_of(profiled)


@pytest.mark.parametrize("a, b", PAIRS, ids=str)
def test_long_sums_do_not_drift(matmul, a, b):
    """Positive terms: what is cut off always has the same sign, on an H200 5 * 2^-13 of it."""
    M, K, N = (1024, 16384, 8192) if BACKEND == "cuda" else (128, 16384, 64)
    A, B = (torch.rand(rows, K, device=DEVICE).to(t) for rows, t in ((M, a), (N, b)))
    one = torch.ones((), device=DEVICE)
    expected = A.double() @ B.double().t()
    drift = (matmul(A, B, one, one, False).double() / expected).mean() - 1
    assert abs(drift) < 2**-10, drift


@pytest.mark.parametrize("dtype", (E4M3, E5M2), ids=str)
def test_every_number_comes_back(matmul, dtype):
    """All 256, subnormals, infinities and NaN, beside zeros, as A and as B."""
    every = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(dtype)[:, None]
    out_of = torch.ones(1, 1, device=DEVICE).to(dtype)
    one = torch.ones((), device=DEVICE)
    expected = every.to(torch.bfloat16)
    for out in (matmul(every, out_of, one, one, False), matmul(out_of, every, one, one, True).t()):
        assert torch.equal(out.isnan(), expected.isnan())
        assert torch.equal(out.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("a, b", PAIRS, ids=str)
def test_nan_and_infinity_stay_in_their_row(matmul, a, b):
    A, B, one = numbers(40, 200, a), numbers(50, 200, b), torch.ones((), device=DEVICE)
    clean = matmul(A, B, one, one, False)
    A[3, 199], B[7, 100] = torch.nan, torch.nan
    if a == E5M2:
        A[9, 0] = torch.inf
    expected = A.double() @ B.double().t()
    out = matmul(A, B, one, one, False)
    for what in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(what(out), what(expected)), what.__name__
    same = expected.isfinite()
    assert equal_bits(out[same], clean[same])


def test_scales_are_applied_in_float32(matmul):
    one = torch.ones(1, 1, device=DEVICE).to(E4M3)
    small, large = (torch.tensor(v, device=DEVICE) for v in (2.0**-100, 2.0**90))
    assert matmul(one, one, small, large, False).item() == 2.0**-10
    assert matmul(one, one, torch.tensor(torch.nan, device=DEVICE), large, False).isnan().all()


@pytest.mark.parametrize("a, b", PAIRS, ids=str)
def test_no_fault_is_found(a, b):
    """On the CPU backend, with every access checked, at ragged ends."""
    checked = compile_cuda(SOURCE, check=True).matmul_fp8
    for M, K, N in ((130, 170, 140), (3, 20, 5)):
        check(checked, numbers(M, K, a), numbers(N, K, b))


@pytest.mark.skipif(BACKEND == "cuda", reason="what is compiled for a chip runs there")
@pytest.mark.parametrize("since, until", [(800, 810), (890, 800)], ids=["sm_75", "sm_89"])
def test_the_instructions_of_other_chips(since, until):
    """The CPU backend, which stands for sm_80, told to take the ways of older or newer ones."""
    source = SOURCE.read_text()
    assert f"__CUDA_ARCH__ >= {since}" in source
    other = source.replace(f"__CUDA_ARCH__ >= {since}", f"__CUDA_ARCH__ >= {until}")
    matmul = compile_cuda(other).matmul_fp8
    for a, b in PAIRS:
        for M, K, N in ((130, 170, 140), (3, 20, 5)):
            check(matmul, numbers(M, K, a), numbers(N, K, b))


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
def test_the_instructions_are_there(arch):
    listing = device_code.ptx(SOURCE, arch)
    types = [f".f32.{a}.{b}" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    for kind in types:
        assert f"mma.sync.aligned.m16n8k32.row.col{kind}.f32" in listing
        for cols in (96, 256):
            name = f"wgmma.mma_async.sync.aligned.m64n{cols}k32{kind}"
            assert (name in listing) == (arch == "sm_90a"), name


@needs_nvcc
def test_the_chip_between_keeps_everything_in_registers():
    """sm_89: test_kernels.py looks at sm_75 and sm_90a."""
    usage = device_code.resource_usage(SOURCE, "sm_89")
    assert usage and not any(used.spill_store_bytes for used in usage.values())


@pytest.mark.skipif(BACKEND == "cuda", reason="counted by the CPU backend")
def test_requests_for_shared_memory_have_no_conflict(matmul):
    one = torch.ones((), device=DEVICE)
    _, [launch] = record(matmul, numbers(128, 256), numbers(128, 256), one, one, False)
    accesses = [a for a in launch.accesses if a.space == "shared"]
    assert accesses and all(a.bank_conflicts == 0 for a in accesses)
