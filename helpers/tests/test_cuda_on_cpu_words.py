"""Several numbers in a word, and other functions of CUDA's: against Python, plain and checked."""

import math
import random

import numpy as np
import pytest
import torch

from helpers.compiler import CompileError, compile_cuda
from helpers.cuda_on_cpu import is_of_cuda
from helpers.device import BACKEND, DEVICE

CHECKS = [False, True] if BACKEND == "cpu" else [False]


def lanes(word: int, bits: int, signed: bool) -> list[int]:
    values = [word >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [v - (1 << bits) if signed and v >> bits - 1 else v for v in values]


def word(values: list[int], bits: int) -> int:
    return sum((int(v) & (1 << bits) - 1) << bits * i for i, v in enumerate(values))


def clamped(value: int, bits: int, signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


OF_ONE = {  # name: signed, result of a lane
    "abs": (True, lambda x, bits: abs(x)),
    "absss": (True, lambda x, bits: clamped(abs(x), bits, True)),
    "neg": (True, lambda x, bits: -x),
    "negss": (True, lambda x, bits: clamped(-x, bits, True)),
}
OF_TWO = {
    "add": (False, lambda x, y, bits: x + y),
    "addss": (True, lambda x, y, bits: clamped(x + y, bits, True)),
    "addus": (False, lambda x, y, bits: clamped(x + y, bits, False)),
    "sub": (False, lambda x, y, bits: x - y),
    "subss": (True, lambda x, y, bits: clamped(x - y, bits, True)),
    "subus": (False, lambda x, y, bits: clamped(x - y, bits, False)),
    "avgs": (True, lambda x, y, bits: (x + y + (x + y >= 0)) >> 1),
    "avgu": (False, lambda x, y, bits: (x + y + 1) >> 1),
    "haddu": (False, lambda x, y, bits: (x + y) >> 1),
    "absdiffs": (True, lambda x, y, bits: abs(x - y)),
    "absdiffu": (False, lambda x, y, bits: abs(x - y)),
    "maxs": (True, lambda x, y, bits: max(x, y)),
    "maxu": (False, lambda x, y, bits: max(x, y)),
    "mins": (True, lambda x, y, bits: min(x, y)),
    "minu": (False, lambda x, y, bits: min(x, y)),
    "cmpeq": (False, lambda x, y, bits: -(x == y)),
    "cmpgts": (True, lambda x, y, bits: -(x > y)),
    "cmpleu": (False, lambda x, y, bits: -(x <= y)),
    "setne": (False, lambda x, y, bits: x != y),
    "setlts": (True, lambda x, y, bits: x < y),
    "setgeu": (False, lambda x, y, bits: x >= y),
}
SUMS = {"sads": True, "sadu": False}
OF_THREE = {  # name: bits of a lane, signed, result
    "iaddmax_s32": (32, True, lambda x, y, z: max(wrapped(x + y, 32), z)),
    "iaddmin_s16x2": (16, True, lambda x, y, z: min(wrapped(x + y, 16), z)),
    "iaddmax_s16x2_relu": (16, True, lambda x, y, z: max(wrapped(x + y, 16), z, 0)),
    "imax3_u16x2": (16, False, lambda x, y, z: max(x, y, z)),
    "imin3_s32_relu": (32, True, lambda x, y, z: max(min(x, y, z), 0)),
    "imax3_u32": (32, False, lambda x, y, z: max(x, y, z)),
}


def wrapped(value: int, bits: int) -> int:
    return lanes(value & (1 << bits) - 1, bits, True)[0]


def expected(a: int, b: int, c: int) -> list[int]:
    found = []
    for bits in (16, 8):
        for signed, result in OF_ONE.values():
            found.append(word([result(x, bits) for x in lanes(a, bits, signed)], bits))
        for signed, result in OF_TWO.values():
            pairs = zip(lanes(a, bits, signed), lanes(b, bits, signed), strict=True)
            found.append(word([result(x, y, bits) for x, y in pairs], bits))
        for signed in SUMS.values():
            pairs = zip(lanes(a, bits, signed), lanes(b, bits, signed), strict=True)
            found.append(sum(abs(x - y) for x, y in pairs))
    for bits, signed, result in OF_THREE.values():
        triples = zip(*(lanes(w, bits, signed) for w in (a, b, c)), strict=True)
        found.append(word([result(*triple) for triple in triples], bits))
    return found


def source() -> str:
    calls = []
    for lane in "24":
        calls += [f"__v{name}{lane}(a)" for name in OF_ONE]
        calls += [f"__v{name}{lane}(a, b)" for name in [*OF_TWO, *SUMS]]
    calls += [f"__v{name}(a, b, c)" for name in OF_THREE]
    stores = "\n".join(f"o[{i} * n] = {call};" for i, call in enumerate(calls))
    return f"""
__global__ void words(const unsigned* x, unsigned* out, int n) {{
    const int i = threadIdx.x;
    const unsigned a = x[i], b = x[n + i], c = x[2 * n + i];
    unsigned* o = out + i;
    {stores}
}}
torch::Tensor run(torch::Tensor x) {{
    const int n = x.size(1);
    auto out = torch::empty({{{len(calls)}, n}}, x.options());
    words<<<1, n>>>((unsigned*)x.data_ptr<int>(), (unsigned*)out.data_ptr<int>(), n);
    return out;
}}"""


@pytest.mark.parametrize("check", CHECKS)
def test_words(check):
    edges = [0, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x80008000, 0x7FFF7FFF, 0x80000000, 0x01FF017F]
    x = [
        [random.choice(edges) for _ in range(40)] + random.choices(range(2**32), k=40)
        for _ in "abc"
    ]
    given = torch.from_numpy(np.array(x, np.uint32).view(np.int32)).to(DEVICE)
    out = compile_cuda(source(), check=check).run(given).cpu().numpy().view(np.uint32)
    for i, abc in enumerate(zip(*x, strict=True)):
        assert out[:, i].tolist() == expected(*abc), [f"{w:x}" for w in abc]


FUNCTIONS = r"""
__global__ void values(const double* x, double* out, int n) {
    const int i = threadIdx.x;
    const double a = x[i], three[] = {a, 2, 3};
    const float few[] = {float(a), 2.f, 3.f};
    out[0 * n + i] = erfcinv(a);
    out[1 * n + i] = normcdfinv(a);
    out[2 * n + i] = cyl_bessel_i0(a);
    out[3 * n + i] = cyl_bessel_i1(a);
    out[4 * n + i] = norm(3, three);
    out[5 * n + i] = rnormf(3, few);
    out[6 * n + i] = __dp2a_lo(0x7fff8000, 0x01ff7f80, -5) + llmax(-3ll, 2ll);
}
torch::Tensor run(torch::Tensor x) {
    const int n = x.size(0);
    auto out = torch::empty({7, n}, x.options());
    values<<<1, n>>>(x.data_ptr<double>(), out.data_ptr<double>(), n);
    return out;
}"""


@pytest.mark.parametrize("check", CHECKS)
def test_functions(check):
    x = torch.tensor([1e-300, 1e-12, 1e-3, 0.02, 0.1, 0.5, 0.7, 0.999], dtype=torch.float64)
    out = compile_cuda(FUNCTIONS, check=check).run(x.to(DEVICE)).cpu()
    close = {"rtol": 1e-9, "atol": 1e-300}
    torch.testing.assert_close(torch.special.erfc(out[0]), x, **close)
    torch.testing.assert_close(torch.special.erfc(-out[1] / 2**0.5) / 2, x, **close)
    torch.testing.assert_close(out[2], torch.special.i0(x), **close)
    torch.testing.assert_close(out[3], torch.special.i1(x), **close)
    lengths = (x * x + 13).sqrt()
    torch.testing.assert_close(out[4], lengths, **close)
    torch.testing.assert_close(out[5], 1 / lengths, rtol=1e-6, atol=0)
    assert (out[6] == -32768 * -128 + 32767 * 127 - 5 + 2).all()
    assert not out.isnan().any() and math.isfinite(out.sum())


@pytest.mark.skipif(BACKEND == "cuda", reason="the CPU backend's sentences")
@pytest.mark.parametrize(
    "line, sentence",
    [
        ("o[0] = __isGridConstant(o);", "CUDA has '__isGridConstant', the CPU backend does not"),
        ("o[0] = __shfl_down(o[0], 1);", r"(?s)__shfl_down' is not in CUDA any more.*_sync\(mask"),
        ("o[0] = __vadd5(1, 2);", "'__vadd5' was not declared"),
    ],
)
def test_what_is_missing_is_told_from_what_is_misspelt(line, sentence):
    src = f"__global__ void k(float* o) {{\n{line} }}\nint f() {{ return 1; }}"
    with pytest.raises(CompileError, match=sentence):
        compile_cuda(src, functions="f")


def test_the_list_has_names_of_kernels_and_of_the_host():
    assert all(
        map(is_of_cuda, ["__isShared", "cudaMallocArray", "cuTensorMapEncodeTiled", "erfcinv"])
    )
    assert not any(map(is_of_cuda, ["cudaMaloc", "cudaThreadSynchronize", "int", "x", "__shfl"]))


SPACES = r"""
__device__ float in_global[4];
__constant__ float in_constant[4] = {1, 2, 3, 4};
struct Kept { int x[4]; };
__device__ int bits(const void* p) {
    return __isGlobal(p) | __isShared(p) << 1 | __isLocal(p) << 2 | __isConstant(p) << 3;
}
__global__ void spaces_kernel(int* out, Kept kept, unsigned* words) {
    __shared__ float in_shared[4];
    extern __shared__ float dynamic[];
    int in_local[4] = {0, 1, 2, 3}, i = threadIdx.x;
    in_shared[i & 3] = i;
    __syncthreads();
    const void* all[] = {out,        in_global, in_shared, in_shared + 3, dynamic, dynamic + 15,
                         in_local + 2, &i,      in_constant, in_constant + 3, out + 1, words};
    for (int k = 0; k < 12; k++) out[12 * i + k] = bits(all[k]);
    __prof_trigger(0);
    if (i == 0) words[0] = __nv_bswap32(words[0]), words[1] = __nv_bswap16(words[1]);
}
torch::Tensor spaces(torch::Tensor words, int64_t threads) {
    auto out = torch::empty({threads, 12}, words.options());
    auto* given = (unsigned*)words.data_ptr<int>();
    spaces_kernel<<<1, threads, 64>>>(out.data_ptr<int>(), Kept{}, given);
    return out;
}
"""


@pytest.mark.parametrize("check", CHECKS)
def test_the_memory_that_an_address_is_of(check):
    words = torch.tensor([0x01020304, 0x0102], dtype=torch.int32, device=DEVICE)
    out = compile_cuda(SPACES, check=check).spaces(words, 4).cpu()
    expected = torch.tensor([1, 1, 2, 2, 2, 2, 4, 4, 8, 8, 1, 1])
    known = (expected != 8) | (BACKEND == "cpu")  # of constants PTX's documentation is silent
    assert (out == expected)[:, known].all(), out
    assert words.tolist() == [0x04030201, 0x0201]
