"""matmul_tensor_core: what it promises (see contract.py), each type's error, every layout."""

import itertools
import re

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import check_close, poisoned
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.trace.from_cpu_backend import record
from kernels.tests.contract import Case, equal_bits, floats, kernels_of, wrong
from kernels.tests.hopper_clusters import StandIns, on_cpu, replaced, with_bodies

HALF_TYPES = (torch.float16, torch.bfloat16)
FLOAT_TYPES = [(torch.float32, False), (torch.float32, True)] + [(t, False) for t in HALF_TYPES]
TYPES = [*FLOAT_TYPES, (torch.int8, False)]  # and allow_tf32
# M, K, N, allow_tf32
SIZES = [(5, 4, 6, False), (17, 15, 33, True), (130, 78, 260, True), (1, 1, 1, False)]
SIZES += [(1, 300, 1, False), (50, 1, 40, True), (3, 2000, 2, False), (1, 7, 500, True)]
SIZES += [(0, 4, 4, True), (4, 4, 0, False), (0, 0, 0, False), (0, 3, 0, True), (5, 0, 18, False)]


def tolerance(M, K, N, allow_tf32):
    """A sum of K terms of about 1, each with the error of its factors, at random.

    One term alone is off by its own size: each factor of TF32 by 2^-11 of it.
    """
    atol, rtol = (5e-3, 2.01 * 2**-11) if allow_tf32 else (1e-5, 1e-5)
    return {"atol": atol * max(1, K) ** 0.5, "rtol": rtol}


CASES = [
    Case(
        "matmul_tensor_core",
        lambda M, K, N, tf32: {"A": floats(M, K), "B": floats(K, N), "allow_tf32": tf32},
        lambda A, B, allow_tf32: A @ B,
        SIZES,
        ragged=wrong("A", floats, (), (4,), (1, 5, 4)) + wrong("B", floats, (5, 6), (), (4,)),
        tolerance=tolerance,
        transposed=["A", "B"],
    ),
]


@pytest.fixture
def matmul(kernel):
    return kernel("matmul_tensor_core").matmul_tensor_core


def numbers(rows, cols, dtype):
    if dtype == torch.int8:
        return torch.randint(-128, 128, (rows, cols), dtype=dtype, device=DEVICE)
    return floats(rows, cols).to(dtype)


LAYOUTS = ("rows", "columns", "parts of rows", "parts of columns", "aligned parts of rows")


def matrix(rows, cols, layout, dtype):
    """Return random numbers as whole rows or columns, or as a part of larger ones."""
    if layout in ("columns", "parts of columns"):
        return matrix(cols, rows, layout.replace("columns", "rows"), dtype).t()
    if layout == "rows":
        return numbers(rows, cols, dtype)
    first = 16 if layout == "aligned parts of rows" else 1
    return numbers(rows, (cols + 31) // 16 * 16 + first, dtype)[:, first : first + cols]


def check(matmul, A, B, allow_tf32):
    """Judge each sum by what its terms may lose, and out's rounding.

    A number of TF32 is off by 2^-11 of the float32 it stands for; of three products, what is
    left out and the roundings of the low parts are 3 * 2^-22 of a term. Each instruction, of 8
    products or more, may cut off a few last bits of float32.
    """
    with poisoned():
        out = matmul(A, B, allow_tf32)
    if A.dtype == torch.int8:
        expected = (A.cpu().long() @ B.cpu().long()).to(torch.int32)  # wraps around
        assert torch.equal(out.cpu(), expected)
        return
    assert out.dtype == A.dtype
    expected, terms = A.double() @ B.double(), A.double().abs() @ B.double().abs()
    of_terms = (A.size(1) / 8 + 2) * 2**-22
    if A.dtype == torch.float32:
        of_terms += 2.01 * 2**-11 if allow_tf32 else 3 * 2**-22
    allowed = torch.finfo(A.dtype).eps * expected.abs() + of_terms * terms
    error = (out.double() - expected).abs()
    assert (error <= allowed).all(), f"{(error / allowed).max():.2f} of what is allowed"


@pytest.mark.parametrize("dtype, allow_tf32", TYPES, ids=str)
@pytest.mark.parametrize("size", [(130, 40, 260), (36, 100, 300), (1, 700, 90)], ids=str)
def test_each_type_in_any_layout(matmul, dtype, allow_tf32, size):
    M, K, N = size
    for a, b in itertools.product(LAYOUTS, repeat=2):
        check(matmul, matrix(M, K, a, dtype), matrix(K, N, b, dtype), allow_tf32)


@pytest.mark.parametrize("dtype, allow_tf32", TYPES, ids=str)
def test_rows_and_columns_that_are_the_same_memory(matmul, dtype, allow_tf32):
    row, column = numbers(1, 33, dtype), numbers(20, 1, dtype)
    check(matmul, row.expand(20, 33), column.expand(20, 33).t(), allow_tf32)


# ------------------------------------------------------------------ wgmma and TMA, on sm_90

_OF_PRODUCTS = r"""
struct View {  // TMA's, of a matrix with contiguous rows
    char* data;
    int64_t rows, width, pitch;  // the last two in bytes
    int size;                    // bytes of an element
    // the piece of 16 bytes, or what is inside of it, at a row and byte
    __device__ char* find(int64_t row, int64_t at, int64_t& inside) const {
        inside = row < rows ? min(width - at, int64_t(16)) : 0;
        return data + row * pitch + at;
    }
};
// byte `at` of shared memory, of boxes with rows of 128 bytes, swizzled
static __device__ char* swizzled(unsigned at) {
    return static_cast<char*>(__cvta_shared_to_generic(at ^ (at >> 7 & 7) << 4));
}
// row or column i of an operand as wgmma is told of it, 32 bytes along k
template <typename T> struct Line {
    static constexpr int DEPTH = 32 / sizeof(T);
    T at[DEPTH];
    __device__ Line(uint64_t told, bool along, int i) {
        unsigned first = (told & 0x3fff) << 4, box = (told >> 16 & 0x3fff) << 4;
        unsigned eight = (told >> 32 & 0x3fff) << 4;
        first += along ? i / 8 * eight + i % 8 * 128 : i / 64 * box + i % 64 * sizeof(T);
        for (int p = 0; along && p < 2; p++)
            reinterpret_cast<uint4*>(at)[p] =
                *reinterpret_cast<const uint4*>(swizzled(first + p * 16));
        for (int k = 0; !along && k < DEPTH; k++)
            at[k] = *reinterpret_cast<const T*>(swizzled(first + k / 8 * eight + k % 8 * 128));
    }
};
"""
_BODIES = {
    "load_box": """
        for (int block = 0; block < CLUSTER; block++) {
            if (!TO_ALL && block != RANK) continue;
            for (int i = 0; i < BOX; i += 16) {
                int64_t inside;
                const char* from = map.find(y + i / LINE, int64_t(x) * map.size + i % LINE, inside);
                uint4 piece = {};
                if (inside >= 16) piece = *reinterpret_cast<const uint4*>(from);
                else
                    for (int b = 0; b < inside; b++) reinterpret_cast<char*>(&piece)[b] = from[b];
                char* there = swizzled(shared_at(to) + i) + (block - RANK) * APART;
                *reinterpret_cast<uint4*>(there) = piece;
            }
            full.arrive_in(block);
        }""",
    "store_box": """
        for (int i = 0; i < BOX; i += 16) {
            int64_t inside;
            char* there = map.find(y + i / LINE, int64_t(x) * map.size + i % LINE, inside);
            if (inside >= 16)
                *reinterpret_cast<uint4*>(there) =
                    *reinterpret_cast<const uint4*>(swizzled(shared_at(from) + i));
        }""",
    "wait_for_stores": "",
    "wgmma": """
        int row = threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
        Line<T> upper(a, A_ALONG, row), lower(a, A_ALONG, row + 8);
        for (int i = 0; i < SIZE; i += i % 4 ? 3 : 1) {  // 0, 1, 4, 5 ...: and two behind
            Line<T> column(b, B_ALONG, i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2);
            for (int h = 0; h < 2; h++) {
                Sum<T> sum = add ? d[i + 2 * h] : Sum<T>(0);
                for (int k = 0; k < 32 / sizeof(T); k++)
                    sum += Sum<T>((h ? lower : upper).at[k]) * Sum<T>(column.at[k]);
                d[i + 2 * h] = sum;
            }
        }""",
    "map_of": """
        int size = x.element_size();
        TORCH_CHECK(reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0 &&
                    x.stride(0) * size % 16 == 0 && cols <= x.stride(0), "not for TMA");
        return View{static_cast<char*>(x.data_ptr()), x.size(0), cols * size, x.stride(0) * size,
                    size};""",
}
# Where a box is stored at once it is free again: of 256 columns, for which there is no room else,
# or of 128, so that the barrier that keeps it is missed
_ELSEWHERE = {
    "full[s].init(1);": "full[s].init(C::STAGE / BOX);",
    "if (block < CLUSTER)": "for (int block = 0; block < CLUSTER; block++)",
    "int block = threadIdx.x % WARPGROUP;": "",
    "char* stages = memory +": "char* stages = memory + RANK * APART +",
    "STAGES = (225 * 1024 -": "STAGES = (112 * 1024 -",
    "? 2 * BOX : 0;": "? (COLS % 128 ? 2 : 1) * BOX : 0;",
    "c % 2 * BOX": "c % (COUNT % 64 ? 2 : 1) * BOX",
    "int sms = attribute(cudaDevAttrMultiProcessorCount, A);": "int sms = 2 * CLUSTER;",
    "K == 0 || !fills": "K == 0",
    "out = torch::empty({PARTS * rows": """out;
    int no_cluster = 1;
    C10_CUDA_CHECK(cudaMemcpyToSymbol(cluster_blocks, &no_cluster, sizeof no_cluster));
    out = torch::empty({PARTS * rows""",
}
# What is left out, by choose(..., fault): what it stops is found then.
FAULTS = {
    "empty[turn.stage].wait(turn.phase ^ 1);": 1,
    "warpgroup_sync();  // the box is complete": 2,
    "warpgroup_sync();  // the box has gone": 3,
    "full[turn.stage].wait(turn.phase);": 4,
}
CHOOSE = """
static int chosen;
void choose(int64_t cols, int64_t fault) {
    chosen = cols;
    int without = fault;
    C10_CUDA_CHECK(cudaMemcpyToSymbol(planted, &without, sizeof without));
}

// The clocks that products"""


WIDTHS = (64, 128, 192, 256)


def on_stand_ins(types, check=False):
    """Return the file as on sm_90, for some types, with a width of tiles that the test chooses.

    Over stand-ins (see hopper_clusters.py); two or three stages, so that they come round, and two
    clusters, which have several tiles. With every access checked only one kernel: it takes long.
    """
    planted = {text: f"if (planted != {i}) {text}" for text, i in FAULTS.items()}
    source = (ROOT / "kernels" / "matmul_tensor_core.cu").read_text()
    begin = source.index("    if (type == torch::kFloat16) launch")
    end = source.rindex("    C10_CUDA")
    source = source[:begin] + "".join(f"    {t}(out, A, B);\n" for t in types) + source[end:]
    source = replaced(
        with_bodies(source, {"clocks_of": "return C::COLS != chosen;"}),
        planted
        | {
            "#include <cuda.h>": "static __device__ int planted;\n#include <cuda.h>",
            "\n// The clocks that products": CHOOSE,
            # no kernel for every chip: it would be compiled as well
            "(out, A, B)) return;\n#endif": "(out, A, B)) return;\n#else",
            " A.stride(0), B.stride(0));": " A.stride(0), B.stride(0));\n#endif",
        },
    )
    if check:
        others = [f"weigh(Cut<T, false, {width}>());" for width in WIDTHS if width != 128]
        others += ["if (has_rows(A) && has_rows(B)) launch<T, EXACT, true, false>(out, A, B);"]
        others += ["else if (has_rows(B)) launch<T, EXACT, false, false>(out, A, B);"]
        others += ["launch<T, EXACT, EXACT, true>(out, EXACT ? A.contiguous() : A, B)"]
        source = source.replace("    else if (has_rows(A)) launch", "    if (has_rows(A)) launch")
        source = replaced(source, dict.fromkeys(others, ""))
    stand_ins = StandIns(_OF_PRODUCTS, _BODIES, _ELSEWHERE, "CLUSTER")
    return compile_cuda(on_cpu(source, stand_ins), ["matmul_tensor_core", "choose"], check=check)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU runs the instructions")
def test_wgmma_over_stand_ins():
    """Each width of tiles in all layouts: ends within boxes and stages, two tiles of a cluster."""
    loaded = on_stand_ins(["launch<at::Half>"])
    for width, a, b in itertools.product(WIDTHS, LAYOUTS[:2], LAYOUTS[:2]):
        loaded.choose(width, 0)
        A, B = matrix(264, 136, a, torch.float16), matrix(136, 456, b, torch.float16)
        check(loaded.matmul_tensor_core, A, B, False)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU runs the instructions")
def test_wgmma_of_other_types_over_stand_ins():
    """Rows that suit TMA, and those that are copied before."""
    loaded = on_stand_ins(
        ["if (type == torch::kInt8) launch<int8_t>", "else if (allow_tf32) launch<float>",
         "else if (type == torch::kFloat32) launch<float, true>"]
    )  # fmt: skip
    for dtype, tf32 in (*FLOAT_TYPES[:2], (torch.int8, False)):
        for K, a, b in ((96, "rows", "columns"), (71, "columns", "rows")):
            A, B = matrix(264, K, a, dtype), matrix(K, 264, b, dtype)
            check(loaded.matmul_tensor_core, A, B, tf32)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU runs the instructions")
def test_wgmma_waits_for_what_it_reads():
    """With every access checked: no fault in the file, one in it without each of its waits."""
    loaded = on_stand_ins(["launch<at::Half>"], check=True)

    def check_with(fault, K):
        loaded.choose(128, fault)
        A, B = matrix(130, K, "rows", torch.float16), matrix(K, 72, "columns", torch.float16)
        check(loaded.matmul_tensor_core, A, B, False)

    check_with(0, 200)
    for text, fault in FAULTS.items():
        # a stage that is filled too early may be read in order, with the wrong numbers
        with pytest.raises((RuntimeError, AssertionError), match="thread|allowed") as said:
            check_with(fault, 200 if fault == 1 else 8)
        assert fault == 1 or said.type is RuntimeError, text


SM_90 = BACKEND == "cuda" and torch.cuda.get_device_capability() == (9, 0)


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype, allow_tf32", TYPES, ids=str)
@pytest.mark.parametrize("size", [(2056, 144, 4104), (1032, 1008, 8200)], ids=str)
def test_wgmma_in_any_layout(matmul, dtype, allow_tf32, size):
    """Enough tiles to fill a GPU, with ends within boxes and within stages."""
    M, K, N = size
    for a, b in itertools.product(("rows", "columns"), repeat=2):
        A, B = matrix(M, K, a, dtype), matrix(K, N, b, dtype)
        with torch.profiler.profile() as profiled:
            check(matmul, A, B, allow_tf32)
        assert "matmul_wgmma_kernel" in kernels_of(profiled)


# M, K, N: the widths of tiles that are fastest for them, from narrow to wide
FILLING = [(1016, 1000, 1024), (1272, 1280, 1272), (1528, 1544, 1528), (2040, 2056, 2040)]


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_wgmma_of_each_width(matmul, dtype):
    for a, b in itertools.product(("rows", "columns"), repeat=2):
        found = set()
        for M, K, N in FILLING:
            A, B = matrix(M, K, a, dtype), matrix(K, N, b, dtype)
            with torch.profiler.profile() as profiled:
                check(matmul, A, B, False)
            names = kernels_of(profiled)
            found |= set(map(int, re.findall(r"matmul_wgmma_kernel<Cut<.*?(\d+)>", names)))
            assert equal_bits(matmul(A, B, False), matmul(A, B, False))
        assert found == set(WIDTHS)


@pytest.mark.skipif(not SM_90, reason="what this tests is sm_90's")
@pytest.mark.parametrize("dtype, allow_tf32", [TYPES[0], TYPES[1], TYPES[-1]], ids=str)
def test_wgmma_of_copies(matmul, dtype, allow_tf32):
    """Rows that do not suit TMA, of types that are copied to new ones before."""
    A, B = matrix(1032, 1007, "columns", dtype), matrix(1007, 8200, "rows", dtype)
    with torch.profiler.profile() as profiled:
        check(matmul, A, B, allow_tf32)
    assert "matmul_wgmma_kernel" in kernels_of(profiled)


def test_integers_wrap_around(matmul):
    A = torch.full((1, 140_000), -128, dtype=torch.int8, device=DEVICE)
    check(matmul, A, A.t(), False)  # 2^31 and more


def test_three_products_are_as_exact_as_float32(matmul):
    """The error of all, against that of float32's own product: cuBLAS's, or term by term."""
    M = 4096 if BACKEND == "cuda" else 64
    A, B = floats(M, 4096), floats(4096, M)
    expected = A.double() @ B.double()
    plain = A @ B
    if BACKEND == "cpu":
        plain = torch.zeros(M, M)
        for k in range(4096):
            plain += torch.outer(A[:, k], B[k])
    error, of_plain = ((x.double() - expected).norm() for x in (matmul(A, B, False), plain))
    assert error <= 2 * of_plain, f"{error / of_plain:.2f} times the error of float32"


@pytest.mark.parametrize("dtype, allow_tf32", TYPES, ids=str)
def test_by_one_is_exact_and_the_same_again(matmul, dtype, allow_tf32):
    A, one = numbers(137, 137, dtype), torch.eye(137, device=DEVICE).to(dtype)
    A = (A * 1024).round() / 1024 if allow_tf32 else A  # TF32 has these, below 2
    A = A.clamp(-1, 1) if allow_tf32 else A
    for out in (matmul(A, one, allow_tf32), matmul(one, A, allow_tf32)):
        if dtype == torch.float32 and not allow_tf32:
            check_close(out, A.double(), rtol=2**-22, atol=0.0)  # 22 of 24 bits
        else:
            assert torch.equal(out, A.to(out.dtype))
    B = numbers(137, 50, dtype)
    assert equal_bits(matmul(A, B, allow_tf32), matmul(A, B, allow_tf32))


@pytest.mark.parametrize("dtype, allow_tf32", FLOAT_TYPES, ids=str)
def test_nan_and_infinity_as_in_mathematics(matmul, dtype, allow_tf32):
    A, B = numbers(40, 20, dtype), numbers(20, 50, dtype)
    B[:, 7] = 1  # has no low part
    B[:, 8] = 0
    A[3, 0], A[4, 5], A[5, 6], A[5, 7] = torch.inf, -torch.inf, torch.inf, -torch.inf
    A[6, 0] = torch.nan
    B[3, 9], B[0, 10], B[19, 11] = torch.inf, -torch.inf, torch.nan
    if dtype == torch.float32:  # each bit of it set: what GPUs compute as NaN
        A[7, 3] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(dtype)
    out, expected = matmul(A, B, allow_tf32), A.double() @ B.double()
    for what in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(what(out), what(expected)), what.__name__


def test_what_is_large_or_small_stays_so(matmul):
    """Three products of numbers near the ends of float32's range."""
    x = torch.tensor([[3.4e38, 3.402e38, 1e-30, 3.40282e38]], device=DEVICE)
    out = matmul(x.t().contiguous(), torch.full((1, 1), 0.5, device=DEVICE), False)
    check_close(out, x.t().double() / 2, rtol=1e-3)
    assert matmul(10 * floats(1, 8).abs() + 1e38, torch.ones(8, 1, device=DEVICE), False).isinf()


def test_half_types_overflow_to_infinity(matmul):
    big = torch.full((1, 2), 60_000.0, dtype=torch.float16, device=DEVICE)
    assert matmul(big, big.t(), False).isinf().all()


def test_types_are_not_mixed(matmul):
    with pytest.raises(RuntimeError, match="expected A and B of one type, got Half and Float"):
        matmul(floats(3, 4).half(), floats(4, 5), False)


SMALL = [(130, 70, 140), (3, 20, 5)]


@pytest.mark.parametrize("dtype, allow_tf32", TYPES, ids=str)
def test_no_fault_is_found(dtype, allow_tf32):
    """On the CPU backend, with every access checked: each type and layout, at ragged ends."""
    path = ROOT / "kernels" / "matmul_tensor_core.cu"
    checked = compile_cuda(path, check=True).matmul_tensor_core
    for (M, K, N), a, b in itertools.product(SMALL, ("rows", "columns"), ("rows", "columns")):
        check(checked, matrix(M, K, a, dtype), matrix(K, N, b, dtype), allow_tf32)


@pytest.mark.skipif(BACKEND == "cuda", reason="what is compiled for sm_75 runs there")
@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_the_instructions_of_sm_75(dtype):
    source = (ROOT / "kernels" / "matmul_tensor_core.cu").read_text()
    assert "__CUDA_ARCH__ >= 800" in source
    older = source.replace("__CUDA_ARCH__ >= 800", "__CUDA_ARCH__ >= 810")  # than the backend
    matmul = compile_cuda(older).matmul_tensor_core
    for (M, K, N), a, b in itertools.product(SMALL, ("rows", "columns"), ("rows", "columns")):
        check(matmul, matrix(M, K, a, dtype), matrix(K, N, b, dtype), False)


@pytest.mark.skipif(BACKEND == "cuda", reason="counted by the CPU backend")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_requests_for_shared_memory_have_no_conflict(matmul, dtype):
    for a, b in itertools.product(("rows", "columns"), repeat=2):
        A, B = matrix(128, 128, a, dtype), matrix(128, 128, b, dtype)
        _, [launch] = record(matmul, A, B, True)  # trace would ask nvcc, too, for half a minute
        accesses = [a for a in launch.accesses if a.space == "shared"]
        assert accesses and all(a.bank_conflicts == 0 for a in accesses)
