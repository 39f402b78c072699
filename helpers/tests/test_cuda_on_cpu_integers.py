"""Where C++ says nothing and PTX does: shifts, conversions to integers, overflow, rounding."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.cuda_on_cpu import fit
from helpers.cuda_on_cpu.integers import as_ptx
from helpers.device import BACKEND, DEVICE
from helpers.simulator import launch, threadIdx
from helpers.simulator.elements import as_integer, element_of

CHECKS = [False, True] if BACKEND == "cpu" else [False]
with_check = pytest.mark.parametrize("check", CHECKS)

INTEGERS = {"int": "int32", "unsigned": "uint32", "long long": "int64", "unsigned char": "uint8"}
INTEGERS |= {"short": "int16", "uint16_t": "uint16", "signed char": "int8", "size_t": "uint64"}


def wrapped(value: int, dtype: str) -> int:
    """Return what an integer type keeps of a number."""
    return as_integer(value, element_of(dtype))


def ints(values, dtype="int64"):
    """Return a tensor of integers; uint64 as the int64 of the same bits."""
    return torch.from_numpy(np.array(values, dtype).view(dtype.replace("u", ""))).to(DEVICE)


def back(tensor, dtype):
    return [int(value) for value in tensor.cpu().numpy().view(dtype)]


# ---------------------------------------------------------------- shifts

SHIFTS = r"""
#define LEFT(x, n) ((x) << (n))
template <class T> __device__ T right_by(T x, int n) { return x >> n; }
template <class T> __global__ void shifts(const T* a, const int* n, T* out, int many) {
    const int i = threadIdx.x;
    const T x = a[i];
    T* o = out + i;
    o[0 * many] = x << n[i];
    o[1 * many] = x >> n[i];
    o[2 * many] = LEFT(x, n[i]);
    o[3 * many] = right_by(x, n[i]);
    T y = x;  y <<= n[i];      o[4 * many] = y;
    T z = x;  z >>= n[i] + 0;  o[5 * many] = z;
    o[6 * many] = 1 + x << n[i] << 1;          // ((1 + x) << n) << 1
    o[7 * many] = x << (n[i] < 3 ? n[i] : 2) & 15;
    o[8 * many] = n[i] > 2 && x >> n[i] > 0;
}
"""


def shift_function(number, c_type):
    return f"""
torch::Tensor shifts_{number}(torch::Tensor a, torch::Tensor n) {{
    auto out = torch::empty({{9, a.size(0)}}, a.options());
    shifts<<<1, (int)a.size(0)>>>(({c_type}*)a.data_ptr(), n.data_ptr<int>(),
                                  ({c_type}*)out.data_ptr(), (int)a.size(0));
    return out;
}}"""


@pytest.fixture(scope="module", params=CHECKS, ids=["plain", "checked"][: len(CHECKS)])
def shifting(request):
    functions = map(shift_function, itertools.count(), INTEGERS)
    return compile_cuda(SHIFTS + "".join(functions), check=request.param)


@pytest.mark.parametrize("number, dtype", list(enumerate(INTEGERS.values())))
def test_shifts_by_any_count(shifting, number, dtype):
    bits = 8 * np.dtype(dtype).itemsize
    promoted = dtype if bits >= 32 else "int32"
    width = max(bits, 32)
    values = [0, 1, wrapped(-1, dtype), wrapped(1 << bits - 1, dtype), wrapped(0x5A5A5A5A, dtype)]
    values += [wrapped(random.getrandbits(64), dtype) for _ in range(5)]
    counts = [0, 1, 7, 31, 32, 33, 63, 64, 65, 1000, -1, random.randrange(64)]
    pairs = [*itertools.product(values, counts)]

    def left(x, n):
        x = wrapped(x, promoted)
        return wrapped(x << n, promoted) if 0 <= n < width else 0

    def right(x, n):
        x = wrapped(x, promoted)
        return x >> (n if 0 <= n < width else width - 1) if x < 0 or 0 <= n < width else 0

    expected = [
        [left(x, n) for x, n in pairs],
        [right(x, n) for x, n in pairs],
        [left(x, n) for x, n in pairs],
        [right(x, n) for x, n in pairs],
        [left(x, n) for x, n in pairs],
        [right(x, n) for x, n in pairs],
        [left(left(x + 1, n), 1) for x, n in pairs],
        [left(x, n if n < 3 else 2) & 15 for x, n in pairs],
        [n > 2 and right(x, n) > 0 for x, n in pairs],
    ]
    a, n = ints([x for x, _ in pairs], dtype), ints([n for _, n in pairs], "int32")
    out = getattr(shifting, f"shifts_{number}")(a, n)
    for row, want in zip(out, expected, strict=True):
        assert back(row, dtype) == [wrapped(int(value), dtype) for value in want]


# ---------------------------------------------------------------- conversions

SPECIAL = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.0, 128.0, 255.5, 256.0, 300.0, -20.0, -129.0]
SPECIAL += [32768.0, 65536.0, 2147483520.0, 2147483648.0, 3e9, -2147483648.0, -3e9, 4294967296.0]
SPECIAL += [9.2e18, 9.3e18, -9.3e18, 1.8e19, 1.9e19, 3e38, -3e38, math.inf, -math.inf, math.nan]
SPECIAL += [1e-40, -1e-40]

CONVERSIONS = r"""
template <class T, class F> __device__ T by_template(F x) { return static_cast<T>(x); }
template <class T, class F> __device__ T given(T x) { return x; }
template <class T> struct Holder { T value; };
"""
FORMS = {  # of a float x, what becomes the integer T
    "c_style": "T y = (T)x;",
    "c_style twice": "T y = (T)(float)(T)x; y = (T)x;",
    "static_cast": "T y = static_cast<T>(x + 0);",
    "functional": "T y = T(x);",
    "template": "T y = by_template<T, F>(x);",
    "implicit": "T y = x;",
    "element": "T y = a[i];",
    "call": "T y = fmax(x, x);",
    "assigned": "T y; y = x * 1;",
    "argument": "T y = given<T, F>(x);",
    "member": "Holder<T> h{0}; h.value = x; T y = h.value;",
    "ternary": "T y = i >= 0 ? x : x + 1;",
}


def conversion_function(number, form, c_type, floating):
    body = FORMS[form].replace("T y", f"{c_type} y").replace("(T)", f"({c_type})")
    body = body.replace("= T(x)", f"= {c_type.split()[-1]}(x)")
    body = body.replace("<T", f"<{c_type}").replace(", F>", f", {floating}>")
    return f"""
__global__ void convert_{number}(const {floating}* a, {c_type}* out) {{
    const int i = threadIdx.x;
    const {floating} x = a[i];
    {body}
    out[i] = y;
}}
torch::Tensor conversion_{number}(torch::Tensor a, torch::Tensor out) {{
    convert_{number}<<<1, (int)a.size(0)>>>(({floating}*)a.data_ptr(), ({c_type}*)out.data_ptr());
    return out;
}}"""


def converted(x: float, dtype: str, floating: str) -> int:
    """Return what cvt.rzi makes of a number: see notes on NaN in PTX's cvt."""
    if math.isnan(x):
        bits = max(8 * np.dtype(dtype).itemsize, 32)
        return wrapped(1 << bits - 1 if bits == 64 or floating == "double" else 0, dtype)
    return as_integer(x, element_of(dtype))


@with_check
@pytest.mark.parametrize("floating", ["float", "double"])
def test_conversions_to_integers(check, floating):
    numbers = [*SPECIAL, *(random.uniform(-1, 1) * 2.0 ** random.randrange(70) for _ in range(30))]
    a = torch.tensor(numbers, dtype=torch.float32 if floating == "float" else torch.float64)
    todo = [(form, t) for form in FORMS for t in INTEGERS if form != "functional" or " " not in t]
    functions = [conversion_function(n, *what, floating) for n, what in enumerate(todo)]
    module = compile_cuda(CONVERSIONS + "".join(functions), check=check)
    for number, (form, c_type) in enumerate(todo):
        dtype = INTEGERS[c_type]
        out = ints(np.zeros(len(numbers)), dtype)
        got = back(getattr(module, f"conversion_{number}")(a.to(DEVICE), out), dtype)
        want = [converted(x, dtype, floating) for x in a.tolist()]
        assert got == want, (form, c_type, [*zip(a.tolist(), got, want, strict=True)])


def test_the_simulator_converts_as_the_backend_does():
    def keep(a, out):
        out[threadIdx.x] = a[threadIdx.x]

    a = torch.tensor(SPECIAL)
    for dtype in INTEGERS.values():
        out = torch.zeros(len(a), dtype=getattr(torch, dtype))
        launch(keep, 1, len(a), a, out)
        assert out.tolist() == [converted(x, dtype, "float") for x in a.tolist()], dtype


# ---------------------------------------------------------------- overflow

OVERFLOW = r"""
__global__ void overflows(const int* a, int* out) {
    int turns = 0;
    for (int s = a[0]; s < 2147483647 && turns < 5; s += 1000000000) turns++;
    out[0] = turns;
    out[1] = a[1] + a[1];
    out[2] = a[1] * a[1];
    out[3] = -a[2];
    out[4] = a[1] + 1 > a[1];  // nvcc takes it to be true: it may, and so may we
    out[5] = abs(a[2]);
}
torch::Tensor overflow(torch::Tensor a) {
    auto out = torch::zeros({6}, a.options());
    overflows<<<1, 1>>>(a.data_ptr<int>(), out.data_ptr<int>());
    return out;
}
"""


@with_check
def test_signed_overflow_wraps(check):
    a = ints([1500000000, 2147483647, -2147483648], "int32")
    out = compile_cuda(OVERFLOW, check=check).overflow(a).tolist()
    assert out[:4] == [5, -2, 1, -2147483648]
    assert out[5] == -2147483648


# ---------------------------------------------------------------- rounding

OPERATIONS = ["add", "sub", "mul", "div", "fma", "rcp", "sqrt"]
MODES = ["rn", "rz", "ru", "rd"]


def rounding_source(prefix, floating):
    lines = []
    for (number, name), (m, mode) in itertools.product(enumerate(OPERATIONS), enumerate(MODES)):
        fma = "__fmaf" if prefix == "f" else "__fma"
        function = f"{fma}_{mode}" if name == "fma" else f"__{prefix}{name}_{mode}"
        given = {"fma": "x, y, z", "rcp": "x", "sqrt": "x"}.get(name, "x, y")
        lines.append(f"o[{number * len(MODES) + m} * n] = {function}({given});")
    count = len(lines)
    return f"""
__global__ void rounds_{prefix}(const {floating}* a, {floating}* out, int n) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const {floating} x = a[i], y = a[n + i], z = a[2 * n + i];
    {floating}* o = out + i;
    {" ".join(lines)}
}}
torch::Tensor rounding_{prefix}(torch::Tensor a) {{
    const int n = a.size(1);
    auto out = torch::empty({{{count}, n}}, a.options());
    rounds_{prefix}<<<(n + 31) / 32, 32>>>(a.data_ptr<{floating}>(), out.data_ptr<{floating}>(), n);
    return out;
}}"""


def rounded(exact: Fraction, mode: str, dtype) -> float:
    """Round a number to a type, as `mode` says; no result is beyond the type's range."""
    digits = 24 if dtype == np.float32 else 53
    least = -149 if dtype == np.float32 else -1074
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = math.floor(math.log2(size)) if size > 2**-900 else -1075
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    units = exact / unit
    choose = {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}
    return float(choose[mode](units) * unit)


def root(x: Fraction, mode: str, dtype) -> float:
    """Return a square root, rounded: exact where it is, else from 200 more bits of it."""
    scale = 1 << 400
    whole = math.isqrt(x.numerator * scale * scale // x.denominator)
    is_exact = Fraction(whole, scale) ** 2 == x
    return rounded(Fraction(2 * whole + (not is_exact), 2 * scale), mode, dtype)


@with_check
@pytest.mark.parametrize("prefix, dtype", [("f", np.float32), ("d", np.float64)])
def test_directed_rounding(check, prefix, dtype):
    floating = "float" if prefix == "f" else "double"
    rng = np.random.default_rng(random.getrandbits(32))
    sizes = rng.integers(-40, 40, (3, 300))
    signed = rng.uniform(1, 2, sizes.shape) * rng.choice([-1, 1], sizes.shape)
    a = (signed * 2.0**sizes).astype(dtype)
    a[:, :6] = [[1, 1, -1, 3, 1, 4], [1e-30, -1e-30, 1e-30, 1e-38, 3, 9], [1, 1e-30, 0, 5, 7, 0]]
    a[0, 10:] = abs(a[0, 10:])  # roots
    module = compile_cuda(rounding_source(prefix, floating), check=check)
    out = getattr(module, f"rounding_{prefix}")(torch.from_numpy(a).to(DEVICE)).cpu().numpy()
    results = {
        "add": lambda x, y, z: x + y,
        "sub": lambda x, y, z: x - y,
        "mul": lambda x, y, z: x * y,
        "div": lambda x, y, z: x / y,
        "fma": lambda x, y, z: x * y + z,
        "rcp": lambda x, y, z: 1 / x,
    }
    rows = zip(itertools.product(OPERATIONS, MODES), out, strict=True)
    for (name, mode), row in rows:
        for i, (x, y, z) in enumerate(a.T):
            x, y, z = map(Fraction, map(float, (x, y, z)))
            if name == "sqrt" and x < 0:
                continue
            want = (
                root(x, mode, dtype)
                if name == "sqrt"
                else rounded(results[name](x, y, z), mode, dtype)
            )
            assert row[i] == dtype(want), (name, mode, a[:, i], row[i], want)


# ---------------------------------------------------------------- what is rewritten

UNCHANGED = [
    "__device__ void f(std::vector<std::vector<int>> x);",
    "__global__ void k(int* o) { o[0] = Pair<int, Pair<int, int>>{}; }",
    "__global__ void k(int* o) { o[0] = 1 << 4 | o[1] >> 31u; }",
    "void host(int n) { int x = 1 << n; std::cout << (int)3.5f; }",
    "__device__ bool operator<<(A a, B b) { return true; }",
    "__global__ void k(int* o) { o[0] = sizeof(int) * 2 + (int)threadIdx.x; }",
    "#define BITS(n) (1 << n)\n#if BITS(3) == 8\n#endif\n",
    "#define PRINT(x) std::cout << x\n",
    '__global__ void k(int n) { /* 1 << n */ printf("1 << n"); }',
]


@pytest.mark.parametrize("src", UNCHANGED)
def test_what_is_no_shift_and_no_conversion_stays(src):
    assert as_ptx(src) == src


def test_a_conversion_keeps_its_line():
    src = "int i = 2 *\n  x;\nreturn (f(x,\n y));\n"
    fitted = fit(src, [(2, 3), (3, 9)])
    assert [line.count("Fitted") for line in fitted.split("\n")] == [1, 0, 1, 0, 0]
    assert fitted.count("\n") == src.count("\n")
    assert fit("int i = x[0] ;", [(1, 12)]) == "int i =  ::cuda_on_cpu::Fitted{x[0] };"


def test_an_error_beside_a_conversion_is_told():
    src = "__global__ void k(int* o, float x) { o[0] = x; o[1] = nowhere; }\nint f() { return 1; }"
    with pytest.raises(Exception, match="nowhere"):
        compile_cuda(src, functions="f", check=True)
