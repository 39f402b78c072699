"""What the functions of fft.cu promise (see contract.py), and how exact they are."""

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from kernels.tests.contract import Case, complexes, floats, wrong

# every power of 2 that one pass takes; products of 2, 3, 5, 7; primes; rows of several blocks
ROWS = [(6, 8), (1,), (5, 1), (2,), (3, 4), (33, 16), (70, 32), (33, 64), (2, 17, 128), (17, 256)]
ROWS += [(9, 512), (5, 1024), (3, 2048), (2, 4096), (1, 8192), (2, 16384)]
ROWS += [(300, 3), (9, 5), (7, 7), (11, 12), (5, 45), (3, 7, 49), (40, 60), (3, 360), (2, 6000)]
ROWS += [(170, 30), (5, 66), (3, 1000), (2, 1155), (2, 2187), (2, 2401), (2, 3125), (1, 7200)]
ROWS += [(5, 11), (3, 97), (2, 143), (0, 5)]
LONG = [(2, 2**15), (1, 2**16), (1, 2**17), (1, 30_000), (2, 20_160), (1, 1_058_400), (2, 10_007)]
REAL = [(6, 8), (1,), (2,), (3, 3), (5, 4), (2, 3, 30), (5, 75), (9, 512), (2, 1823), (1, 32768)]
REAL += [(30, 1024), (15, 2048), (8, 4096), (4, 8192), (3, 1022)]  # the others of one kernel
IMAGES = [(2, 4, 6), (1, 1), (64, 5), (3, 128, 9), (256, 17), (512, 3), (1024, 10), (2048, 5)]
IMAGES += [(4096, 3), (7, 9), (100, 64), (2, 30, 45), (1029, 4), (2, 0, 3, 4)]
IMAGES += [(3, 12, 1100)]  # more tiles of columns than blocks


def empty_too(ref):
    """Return PyTorch's function, for empty tensors too, which it refuses on a CPU."""
    return lambda x: ref(x) if x.numel() else x


def rows(function, ref, sizes):
    ref = empty_too(ref)
    shapes = {"ragged": wrong("inp", complexes, (), (3, 0))}
    return Case(function, lambda *shape: {"inp": complexes(*shape)}, ref, sizes, **shapes)


def images(function, ref):
    ref = empty_too(ref)
    shapes = {"ragged": wrong("inp", complexes, (), (4,), (3, 0), (0, 3))}
    return Case(function, lambda *shape: {"inp": complexes(*shape)}, ref, IMAGES, **shapes)


CASES = [
    rows("fft_forward", torch.fft.fft, ROWS + LONG),
    rows("fft_inverse", torch.fft.ifft, ROWS + LONG[:3]),
    Case(
        "rfft",
        lambda *shape: {"inp": floats(*shape)},
        torch.fft.rfft,
        REAL,
        ragged=wrong("inp", floats, (), (3, 0)),
    ),
    Case(
        "irfft",
        lambda *shape: {"inp": complexes(*shape[:-1], shape[-1] // 2 + 1), "n": shape[-1]},
        torch.fft.irfft,
        REAL,
        ragged=wrong("inp", complexes, (), (6, 4), (6, 6), (3, 0)),
    ),
    images("fft2", torch.fft.fft2),
    images("ifft2", torch.fft.ifft2),
]


@pytest.fixture
def fft(kernel):
    return kernel("fft")


def error(got, exact):
    """Return the error relative to the whole, by squares, and NaN where there is one."""
    return ((got - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(
    "n", [64, 512, 1024, 4096, 8192, 16384, 2**16, 360, 3125, 6000, 20_160, 10_007]
)
def test_the_error_grows_no_faster_than_the_logarithm(fft, n):
    """A rounding a stage; PyTorch's is about 0.12 of a unit times the root of log2 n and more."""
    x = complexes(4, n)
    unit = torch.finfo(torch.float32).eps
    limit = (1.0 if n == 10_007 else 0.5) * unit * torch.tensor(n).log2().sqrt().item()
    exact = torch.fft.fft(x.to(torch.complex128))
    assert error(fft.fft_forward(x), exact) < limit
    assert error(fft.fft_inverse(fft.fft_forward(x)), x.to(torch.complex128)) < 2 * limit


@pytest.mark.parametrize("n", [8, 30, 128, 1000, 1024, 2**15, 11, 19])
def test_exact_where_a_number_stands_alone(fft, n):
    """The transform of one 1 at place j is a turning pointer; of a pointer, one n."""
    j = torch.arange(n, dtype=torch.float64, device=DEVICE)
    at = 3 % n
    one = torch.zeros(n, dtype=torch.complex64, device=DEVICE)
    one[at] = 1
    pointer = torch.polar(torch.ones_like(j), -2 * torch.pi * ((at * j) % n) / n)
    check_close(fft.fft_forward(one), pointer, rtol=0, atol=5e-7)
    check_close(fft.fft_inverse(pointer.to(torch.complex64)), one.to(torch.complex128), atol=5e-7)


def test_a_lazy_conjugate_is_one(fft):
    x = complexes(3, 64)
    assert x.conj().is_conj()
    check_close(fft.fft_forward(x.conj()), torch.fft.fft(x.conj().to(torch.complex128)))
    half = complexes(3, 9)
    check_close(fft.irfft(half.conj(), 16), torch.fft.irfft(half.conj().to(torch.complex128), 16))


def test_nan_stays_in_its_row(fft):
    for n in (8, 12, 17, 256, 1000, 4096, 16384):
        x = complexes(3, n)
        x[1, n // 3] = torch.nan
        nan = fft.fft_forward(x).isnan().all(1) | fft.fft_forward(x).isnan().any(1)
        assert nan.tolist() == [False, True, False]


def test_large_images(fft):
    """Of 4096 * 4096, which have a kernel of their own; without a GPU backwards alone, for time."""
    x = complexes(4096, 4096)
    exact = x.to(torch.complex128)
    assert error(fft.ifft2(x), torch.fft.ifft2(exact)) < 4e-7
    if BACKEND == "cuda":
        assert error(fft.fft2(x), torch.fft.fft2(exact)) < 4e-7


def check_both_ways(fft, x, limit=4e-7):
    """Judge forward and inverse transform by the error of the whole, a few units."""
    exact = x.to(torch.complex128)
    with poisoned():
        assert error(fft.fft_forward(x), torch.fft.fft(exact)) < limit
        assert error(fft.fft_inverse(x), torch.fft.ifft(exact)) < limit


# the last radix of the first pass, whose results are turned → a length that has it
TURNS = {2: 15_092, 3: 15_876, 4: 19_600, 5: 15_625, 6: 46_656, 7: 14_700, 8: 16_896, 9: 14_553}
TURNS |= {10: 14_850, 11: 14_641, 12: 20_736, 15: 50_625, 16: 67_584}


@pytest.mark.parametrize("n", TURNS.values(), ids=TURNS)
def test_turns_of_any_radix(fft, n):
    check_both_ways(fft, complexes(2, n))


# two passes of 1,024 values; three; and on a GPU the longest of each way
PASSES = [2**19, 2**21] if BACKEND == "cpu" else [2**19, 2**20, 2**21, 2**23, 2**27, 5 * 2**24]


@pytest.mark.parametrize("n", PASSES)
def test_long_rows_in_passes(fft, n):
    check_both_ways(fft, complexes(n), 6e-7)


def test_the_square_of_a_place_passes_32_bits(fft):
    """Of a prime length: Bluestein's chirps."""
    check_both_ways(fft, complexes(65_537), 1e-6)


MANY = 1 if BACKEND == "cpu" else 30  # the CPU backend has 8 SMs


@pytest.mark.parametrize("rows, n", [(400, 1000), (40_000, 6), (20, 16_384)])
def test_more_rows_than_blocks_take_at_once(fft, rows, n):
    """The next row is fetched while one is computed."""
    check_both_ways(fft, complexes(MANY * rows, n))


@pytest.mark.skipif(BACKEND == "cuda", reason="the sizes are for the CPU backend's 8 SMs")
@pytest.mark.parametrize("rows, n", [(1700, 60), (17, 16_384)])
def test_no_fault_is_found_where_a_block_has_many_rows(rows, n):
    """Every access checked, in the second turn and the third."""
    checked = compile_cuda(ROOT / "kernels" / "fft.cu", check=True)
    x = complexes(rows, n)
    assert error(checked.fft_forward(x), torch.fft.fft(x.to(torch.complex128))) < 4e-7


@pytest.fixture(scope="module")
def in_portions():
    """Return the file's functions, for which few values are held at once between passes."""
    text = (ROOT / "kernels" / "fft.cu").read_text()
    assert text.count("AT_ONCE = 1 << 24") == 1
    return compile_cuda(text.replace("AT_ONCE = 1 << 24", "AT_ONCE = 1 << 10"))


@pytest.mark.parametrize("rows, n", [(9, 97), (3, 1009), (4, 194)])
def test_portions_of_bluestein(in_portions, rows, n):
    """Four rows at a time and one in the end; one at a time, which is more than is held."""
    check_both_ways(in_portions, complexes(rows, n), 1e-6)


@pytest.mark.parametrize("rows, n", [(23, 200), (9, 194), (3, 4100)])
def test_portions_of_real_rows(in_portions, rows, n):
    x = floats(rows, n)
    spectra = torch.fft.rfft(x.double())
    with poisoned():
        assert error(in_portions.rfft(x), spectra) < 1e-6
        assert error(in_portions.irfft(spectra.to(torch.complex64), n), x.double()) < 1e-6
