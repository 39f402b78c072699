"""philox: what it promises (see contract.py), published bits, sequences, cuRAND's and PyTorch's."""

import math

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace import trace
from kernels.tests.contract import Case, floats

MASK = 0xFFFFFFFF
SEED = -(2**40) - 7  # both words of the key, and a seed that is unsigned there


def words_ref(n, seed, offset, sequences):
    """Return n words as int64: element i is number i // sequences of sequence i % sequences."""
    i = torch.arange(n)
    number = i // sequences
    place = offset // 4 + number // 4
    x, y, z, w = place & MASK, place >> 32, i % sequences, torch.zeros_like(i)
    for r in range(10):
        keys = [
            (seed >> 32 * k & MASK) + r * step & MASK
            for k, step in enumerate((0x9E3779B9, 0xBB67AE85))
        ]
        a, b = 0xD2511F53 * x, 0xCD9E8D57 * z  # their low 64 bits
        x, y = (b >> 32 & MASK) ^ y ^ keys[0], b & MASK
        z, w = (a >> 32 & MASK) ^ w ^ keys[1], a & MASK
    return torch.stack((x, y, z, w))[number % 4, i]


def bits_ref(like, seed, offset, sequences):
    words = words_ref(like.numel(), seed, offset, sequences)
    return (words - (words >> 31 << 32)).view(like.shape).to(like.device)


def uniform_ref(like, seed, offset, sequences):
    words = words_ref(like.numel(), seed, offset, sequences)
    return ((words.double() + 0.5) / 2**32).view(like.shape).to(like.device)


def normal_ref(like, seed, offset, sequences):
    """Words come in pairs: those of numbers 2 k and 2 k + 1 of a sequence.

    The first, which makes the radius, is rounded to float32 as philox_uniform rounds it: near 1
    the last bit, 2^-24, is a large part of a small radius.
    """
    n, both = like.numel(), []
    for part in (0, 1):
        i = torch.arange(n)
        even = i - (i // sequences % 2 - part) * sequences  # where the pair's word stands
        words = words_ref(n + sequences, seed, offset, sequences)[even]
        both.append(words)
    near_one = ((both[0].float().double() + 0.5) / 2**32).float().double()
    radius, angle = (-2 * near_one.log()).sqrt(), 2 * math.pi * (both[1].double() + 0.5) / 2**32
    first = torch.arange(n) // sequences % 2 == 0
    return (radius * torch.where(first, angle.sin(), angle.cos())).view(like.shape).to(like.device)


def dropout_ref(inp, p, seed, offset):
    kept = uniform_ref(inp, seed, offset, 1).float() > torch.tensor(p, dtype=torch.float32)
    return inp * kept * (1 / (1 - p) if p < 1 else 0)


def like(dtype):
    def arguments(*size):
        *shape, offset, sequences = size
        tensor = torch.zeros(shape, dtype=dtype, device=DEVICE)
        return {"like": tensor, "seed": SEED, "offset": offset, "sequences": sequences}

    return arguments


def inputs(*size):
    *shape, p, offset = size
    return {"inp": floats(*shape), "p": p, "seed": SEED, "offset": offset}


SIZES = [(6, 7, 8, 1), (5, 3, 0, 4), (0, 1), (1, 0, 1), (3, 0, 1), (2, 5, 4, 3, 0, 7)]
SIZES += [(1023, 0, 1), (1024, 2**34, 1), (1025, 4, 1), (182, 781, 0, 1), (182, 781, 4, 1000)]
SIZES += [(5000, 0, 5000), (5000, 12, 2**31 - 1), (0, 4, 1), (3, 0, 0, 5)]
SIZES += [(8 * 65_536 + 5, 0, 2)]  # of a sequence more fours of numbers than a grid is high
RAGGED = [("offset", lambda of: 6), ("offset", lambda of: -4)]
RAGGED_LIKE = [*RAGGED, ("sequences", lambda of: 0), ("sequences", lambda of: 2**31)]
NORMAL_SIZES = [size for size in SIZES if size[-1] < 2**20]

CASES = [
    Case("philox_bits", like(torch.int32), bits_ref, SIZES, RAGGED_LIKE),
    Case("philox_uniform", like(torch.float32), uniform_ref, SIZES, RAGGED_LIKE),
    # the fast sine is off by 2^-21 or so, times a radius of up to 6.8
    Case(
        "philox_normal",
        like(torch.float32),
        normal_ref,
        NORMAL_SIZES,
        RAGGED_LIKE,
        tolerance=lambda *size: {"atol": 1e-5},
    ),
    Case(
        "philox_dropout",
        inputs,
        dropout_ref,
        [(6, 7, 0.25, 8), (5, 3, 0.5, 0), (1, 0.5, 0), (0, 0.5, 0), (182, 781, 0.1, 4)]
        + [(1023, 0.0, 0), (1025, 1.0, 0), (0, 3, 0.1, 0), (0.3, 0)],
        [*RAGGED, ("p", lambda of: -0.1), ("p", lambda of: 1.5), ("p", lambda of: math.nan)],
    ),
]


@pytest.fixture
def philox(kernel):
    return kernel("philox")


KNOWN = """
__global__ void known_kernel(int* out, uint64_t place, uint64_t sequence, uint64_t seed) {
    uint4 x = philox(place, sequence, Keys(seed));
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
}
Tensor known(Tensor like, int64_t place, int64_t sequence, int64_t seed) {
    Tensor out = torch::empty_like(like);
    known_kernel<<<1, 1, 0, getCurrentCUDAStream()>>>(out.data_ptr<int>(), place, sequence, seed);
    return out;
}
"""


@pytest.mark.parametrize(
    "place, sequence, seed, known",
    [  # kat_vectors of Random123: counter and key of zeros, of ones, of the digits of pi
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (-1, -1, -1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            0x85A308D3243F6A88 - 2**64,
            0x0370734413198A2E,
            0x299F31D0A4093822,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_published_words(place, sequence, seed, known):
    src = (ROOT / "kernels" / "philox.cu").read_text() + KNOWN
    like = torch.empty(4, dtype=torch.int32, device=DEVICE)
    words = compile_cuda(src, functions=["known"]).known(like, place, sequence, seed)
    assert " ".join(f"{word & MASK:08x}" for word in words.tolist()) == known


def test_uniform_numbers_are_rounded_once_and_never_zero(philox):
    tensor = torch.empty(100_003, device=DEVICE)
    words = words_ref(100_003, 3, 0, 1)
    rounded = ((words.double() + 0.5) / 2**32).float()  # exact in float64 before
    got = philox.philox_uniform(tensor, 3, 0, 1).cpu()
    assert (got - rounded).abs().max() <= 2**-24  # words are rounded to float32 first
    assert got.min() > 0
    assert got.max() <= 1
    assert torch.equal(got, words.float() * 2**-32 + 2**-33)


def test_moments(philox):
    tensor = torch.empty(1_000_000, device=DEVICE)
    uniform = philox.philox_uniform(tensor, 5, 0, 1).double()
    normal = philox.philox_normal(tensor, 5, 0, 1).double()
    for value, wanted, deviations in (
        (uniform.mean(), 0.5, 0.29),
        ((uniform**2).mean(), 1 / 3, 0.3),
        (normal.mean(), 0.0, 1.0),
        ((normal**2).mean(), 1.0, 1.5),
        ((normal**4).mean(), 3.0, 9.8),
    ):
        assert abs(value.item() - wanted) < 5 * deviations / 1000


def test_an_offset_goes_on_where_a_call_ended(philox):
    whole = philox.philox_normal(torch.empty(100, device=DEVICE), 1, 0, 1)
    rest = philox.philox_normal(torch.empty(60, device=DEVICE), 1, 40, 1)
    assert torch.equal(whole[40:], rest)


def test_sequences_are_those_of_one_sequence_each(philox):
    """Element i is of sequence i % 7: every 7th is of sequence 0, which a call with one has."""
    bits = torch.empty(700, dtype=torch.int32, device=DEVICE)
    got = philox.philox_bits(bits, 1, 4, 7).view(100, 7)
    assert torch.equal(got[:, 0], philox.philox_bits(bits[:100], 1, 4, 1))
    assert len(got.unique()) > 695


CURAND = """
#include <c10/cuda/CUDAStream.h>
#include <curand_kernel.h>
#include <torch/types.h>
__global__ void curand_kernel(int* bits, float* uniform, float* normal, int n, int sequences,
                              int64_t seed, int64_t offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= sequences) return;
    curandStatePhilox4_32_10_t a, b, c;
    curand_init(seed, i, offset, &a);
    b = a, c = a;
    while (i < n) {
        uint4 words = curand4(&a);
        float4 u = curand_uniform4(&b), z = curand_normal4(&c);
        int of_words[] = {int(words.x), int(words.y), int(words.z), int(words.w)};
        float of_u[] = {u.x, u.y, u.z, u.w}, of_z[] = {z.x, z.y, z.z, z.w};
        for (int k = 0; k < 4 && i < n; k++, i += sequences)
            bits[i] = of_words[k], uniform[i] = of_u[k], normal[i] = of_z[k];
    }
}
void curand(torch::Tensor bits, torch::Tensor uniform, torch::Tensor normal, int64_t sequences,
            int64_t seed, int64_t offset) {
    curand_kernel<<<(sequences + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
        bits.data_ptr<int>(), uniform.data_ptr<float>(), normal.data_ptr<float>(), bits.numel(),
        sequences, seed, offset);
}
"""


@pytest.mark.parametrize(
    "n, sequences, offset", [(1, 1, 0), (1003, 1, 4), (10_003, 7, 2**40), (3000, 1000, 8)]
)
def test_curand_to_the_bit(philox, n, sequences, offset):
    bits = torch.zeros(n, dtype=torch.int32, device=DEVICE)
    uniform, normal = torch.zeros(n, device=DEVICE), torch.zeros(n, device=DEVICE)
    compile_cuda(CURAND).curand(bits, uniform, normal, sequences, SEED, offset)
    place = SEED, offset, sequences
    assert torch.equal(philox.philox_bits(bits, *place), bits)
    assert torch.equal(philox.philox_uniform(uniform, *place), uniform)
    assert torch.equal(philox.philox_normal(normal, *place), normal)


@pytest.mark.skipif(BACKEND == "cpu", reason="PyTorch's generator on the CPU is another one")
@pytest.mark.parametrize("n", [1, 257, 100_003, 5_000_011])
def test_pytorchs_own_to_the_bit(philox, n):
    chip = torch.cuda.get_device_properties(0)
    blocks = chip.multi_processor_count * (chip.max_threads_per_multi_processor // 256)
    sequences = 256 * min(blocks, (n + 255) // 256)
    torch.cuda.manual_seed(9)
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    for name, ours in (("rand", philox.philox_uniform), ("randn", philox.philox_normal)) * 2:
        offset = generator.get_offset()
        theirs = getattr(torch, name)(n, device=DEVICE)
        got = ours(theirs, 9, offset, sequences)
        if name == "rand":
            got = torch.where(got == 1, 0, got)
        assert torch.equal(got, theirs)


def test_dropout_keeps_nan_as_pytorch_does(philox):
    inp = torch.full((64,), math.nan, device=DEVICE)
    assert philox.philox_dropout(inp, 0.5, 0, 0).isnan().all()


def test_dropout_is_its_own_gradient(philox):
    inp, dout = floats(2, 3, 1001).unbind(0)
    kept = philox.philox_dropout(torch.ones_like(inp), 0.3, 1, 0)
    check_close(philox.philox_dropout(inp.contiguous(), 0.3, 1, 0), inp.double() * kept)
    check_close(philox.philox_dropout(dout.contiguous(), 0.3, 1, 0), dout.double() * kept)


def test_16_bytes_are_stored_at_once(philox):
    report = trace(philox.philox_uniform, torch.zeros(4096, device=DEVICE), 1, 0, 1)
    assert {a.bytes for a in report.accesses if a.operation == "store" and a.lanes} == {16}
    report = trace(philox.philox_uniform, torch.zeros(4096, device=DEVICE), 1, 0, 512)
    assert all(a.sectors == a.ideal_sectors for a in report.accesses)
