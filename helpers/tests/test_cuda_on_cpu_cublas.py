"""cuBLAS's symmetric and triangular matrices and its vectors: here the stand-in, else the library.

A matrix by columns is a tensor (columns, ld) here; what lies below its rows, and in the triangle
that is not named, is NaN before a call and has to be the same NaN after it.
"""

from itertools import product

import pytest
import torch

from helpers.checks import check_close
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE

on_cpu = pytest.mark.skipif(BACKEND != "cpu", reason="of the stand-in")
NAN = float("nan")

SRC = r"""
#include <cublas_v2.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;

static cublasHandle_t handle() {
    static cublasHandle_t made = nullptr;
    if (!made) cublasCreate(&made);
    return made;
}
int64_t set_pointer_mode(Tensor mode) {
    return cublasSetPointerMode(handle(), cublasPointerMode_t(mode.item<int64_t>()));
}
#define SIDE(i) cublasSideMode_t(f[i])
#define UPLO(i) cublasFillMode_t(f[i])
#define OP(i) cublasOperation_t(f[i])
#define DIAG(i) cublasDiagType_t(f[i])
#define FACTOR(i) (scalars.data_ptr<T>() + i)
#define P(x) (x.defined() ? x.data_ptr<T>() : nullptr)
// Calls cublasS or cublasD by the type of the factors.
#define EITHER(name, ...) \
    if (scalars.scalar_type() == torch::kFloat) { \
        using T = float; \
        return cublasS##name(handle(), __VA_ARGS__); \
    } \
    using T = double; \
    return cublasD##name(handle(), __VA_ARGS__)

int64_t symm(Tensor A, Tensor B, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(symm, SIDE(0), UPLO(1), f[2], f[3], FACTOR(0), P(A), f[4], P(B), f[5], FACTOR(1), P(C),
           f[6]);
}
int64_t syrk(Tensor A, Tensor B, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(syrk, UPLO(0), OP(1), f[2], f[3], FACTOR(0), P(A), f[4], FACTOR(1), P(C), f[6]);
}
int64_t syrkx(Tensor A, Tensor B, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(syrkx, UPLO(0), OP(1), f[2], f[3], FACTOR(0), P(A), f[4], P(B), f[5], FACTOR(1), P(C),
           f[6]);
}
int64_t syr2k(Tensor A, Tensor B, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(syr2k, UPLO(0), OP(1), f[2], f[3], FACTOR(0), P(A), f[4], P(B), f[5], FACTOR(1), P(C),
           f[6]);
}
int64_t trmm(Tensor A, Tensor B, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(trmm, SIDE(0), UPLO(1), OP(2), DIAG(3), f[4], f[5], FACTOR(0), P(A), f[6], P(B), f[7],
           P(C), f[8]);
}
int64_t trsm(Tensor A, Tensor B, Tensor scalars, std::vector<int64_t> f) {
    EITHER(trsm, SIDE(0), UPLO(1), OP(2), DIAG(3), f[4], f[5], FACTOR(0), P(A), f[6], P(B), f[7]);
}
int64_t trsm_batched(Tensor A, Tensor B, Tensor places, Tensor scalars, std::vector<int64_t> f) {
    int64_t batch = A.size(0);  // places: where the matrices begin, those of A and then those of B
    Tensor host = torch::empty({2 * batch}, torch::kLong);
    for (int64_t i = 0; i < batch; i++) {
        host.data_ptr<int64_t>()[i] = int64_t(A.data_ptr<float>() + i * A.stride(0));
        host.data_ptr<int64_t>()[batch + i] = int64_t(B.data_ptr<float>() + i * B.stride(0));
    }
    places.copy_(host);
    auto all = (float**)places.data_ptr<int64_t>();
    return cublasStrsmBatched(handle(), SIDE(0), UPLO(1), OP(2), DIAG(3), f[4], f[5],
                              scalars.data_ptr<float>(), all, f[6], all + batch, f[7], batch);
}
int64_t geam(Tensor A, Tensor B, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(geam, OP(0), OP(1), f[2], f[3], FACTOR(0), P(A), f[4], FACTOR(1), P(B), f[5], P(C),
           f[6]);
}
int64_t dgmm(Tensor A, Tensor x, Tensor C, Tensor scalars, std::vector<int64_t> f) {
    EITHER(dgmm, SIDE(0), f[1], f[2], P(A), f[3], P(x), f[4], P(C), f[5]);
}
int64_t symv(Tensor A, Tensor x, Tensor y, Tensor scalars, std::vector<int64_t> f) {
    EITHER(symv, UPLO(0), f[1], FACTOR(0), P(A), f[2], P(x), f[3], FACTOR(1), P(y), f[4]);
}
int64_t syr(Tensor A, Tensor x, Tensor y, Tensor scalars, std::vector<int64_t> f) {
    EITHER(syr, UPLO(0), f[1], FACTOR(0), P(x), f[3], P(A), f[2]);
}
int64_t syr2(Tensor A, Tensor x, Tensor y, Tensor scalars, std::vector<int64_t> f) {
    EITHER(syr2, UPLO(0), f[1], FACTOR(0), P(x), f[3], P(y), f[4], P(A), f[2]);
}
int64_t trmv(Tensor A, Tensor x, Tensor scalars, std::vector<int64_t> f) {
    EITHER(trmv, UPLO(0), OP(1), DIAG(2), f[3], P(A), f[4], P(x), f[5]);
}
int64_t trsv(Tensor A, Tensor x, Tensor scalars, std::vector<int64_t> f) {
    EITHER(trsv, UPLO(0), OP(1), DIAG(2), f[3], P(A), f[4], P(x), f[5]);
}
int64_t swap(Tensor x, Tensor y, Tensor scalars, std::vector<int64_t> f) {
    EITHER(swap, f[0], P(x), f[1], P(y), f[2]);
}
int64_t rot(Tensor x, Tensor y, Tensor scalars, std::vector<int64_t> f) {
    EITHER(rot, f[0], P(x), f[1], P(y), f[2], FACTOR(0), FACTOR(1));
}
std::vector<int64_t> places(Tensor x, int64_t n, int64_t inc) {
    int largest = -1, smallest = -1;
    Tensor scalars = torch::empty({1}, torch::kFloat);
    auto h = handle();
    cublasSetPointerMode(h, CUBLAS_POINTER_MODE_HOST);
    int64_t status = cublasIsamax(h, n, x.data_ptr<float>(), inc, &largest);
    status |= cublasIsamin(h, n, x.data_ptr<float>(), inc, &smallest);
    return {status, largest, smallest};
}
int64_t without_a_handle(Tensor x) {
    float one = 1, *p = x.data_ptr<float>();
    auto L = CUBLAS_SIDE_LEFT;
    auto U = CUBLAS_FILL_MODE_UPPER;
    auto N = CUBLAS_OP_N;
    auto D = CUBLAS_DIAG_UNIT;
    return cublasSsymm(nullptr, L, U, 1, 1, &one, p, 1, p, 1, &one, p, 1) == 1 &&
           cublasStrmm(nullptr, L, U, N, D, 1, 1, &one, p, 1, p, 1, p, 1) == 1 &&
           cublasStrsv(nullptr, U, N, D, 1, p, 1, p, 1) == 1 &&
           cublasSswap(nullptr, 1, p, 1, p, 1) == 1;
}
"""
LEFT, RIGHT = 0, 1
LOWER, UPPER = 0, 1
FLOAT, DOUBLE = torch.float32, torch.float64


@pytest.fixture(scope="module")
def calls():
    return compile_cuda(SRC, libraries=("cublas",))


@pytest.fixture(params=["host", "device"])
def blas(calls, request):
    """Return the calls with alpha and beta on the host, and with alpha and beta on the device."""
    assert calls.set_pointer_mode(torch.tensor(request.param == "device").long()) == 0
    return calls


@pytest.fixture
def factors(request):
    """Return a function that puts alpha and beta where the calls look for them."""
    where = DEVICE if request.node.callspec.params["blas"] == "device" else "cpu"
    return lambda *values, dtype=FLOAT: torch.tensor(values, dtype=dtype, device=where)


def stored(values, room=3):
    """Return a matrix by columns, with room for so many more rows, which hold NaN."""
    rows, cols = values.shape
    full = torch.full((cols, rows + room), NAN, dtype=values.dtype, device=DEVICE)
    full[:, :rows] = values.T
    return full


def values(matrix, rows):
    return matrix[:, :rows].T.double()


def randn(*sizes, dtype=FLOAT):
    return torch.randn(*sizes, dtype=dtype, device=DEVICE)


def triangle(square, uplo, unit=False):
    """Return the named triangle as cuBLAS reads it, and the matrix with NaN where it does not."""
    part = torch.tril if uplo == LOWER else torch.triu
    named = part(torch.ones_like(square), (-1 if uplo == LOWER else 1) * unit).bool()
    read = torch.where(named, square, 0)
    if unit:
        read = read + torch.eye(len(square), dtype=square.dtype, device=DEVICE)
    return read.double(), torch.where(named, square, NAN)


def symmetric(square, uplo):
    read, given = triangle(square, uplo)
    return read + read.T - torch.diag(read.diagonal()), given


def atol(dtype, steps=1):
    return steps * (2e-4 if dtype == FLOAT else 1e-11)


def unchanged(after, before):
    return torch.equal(after.nan_to_num(nan=12345.0), before.nan_to_num(nan=12345.0))


def sizes(count):
    return torch.randint(1, 40, (count,)).tolist()


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("side, uplo", [*product((LEFT, RIGHT), (LOWER, UPPER))])
def test_symmetric_times_matrix(blas, factors, dtype, side, uplo):
    m, n = sizes(2)
    order = m if side == LEFT else n
    full, given = symmetric(randn(order, order, dtype=dtype), uplo)
    b, c = randn(m, n, dtype=dtype), randn(m, n, dtype=dtype)
    A, B = stored(given), stored(b, 1)
    exact = full @ b.double() if side == LEFT else b.double() @ full
    for alpha, beta in (1.5, -0.5), (1.0, 0.0):
        C = stored(c if beta else torch.full_like(c, NAN), 2)
        before = C.clone()
        scalars = factors(alpha, beta, dtype=dtype)
        assert blas.symm(A, B, C, scalars, [side, uplo, m, n, order + 3, m + 1, m + 2]) == 0
        wanted = alpha * exact + (beta * c.double() if beta else 0)
        check_close(values(C, m), wanted, atol=atol(dtype))
        assert unchanged(C[:, m:], before[:, m:])


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("name", ["syrk", "syrkx", "syr2k"])
@pytest.mark.parametrize("uplo, op", [*product((LOWER, UPPER), (0, 1, 2))])
def test_products_that_are_symmetric(blas, factors, dtype, name, uplo, op):
    n, k = sizes(2)
    rows, cols = (k, n) if op else (n, k)
    a, b = randn(rows, cols, dtype=dtype), randn(rows, cols, dtype=dtype)
    c = randn(n, n, dtype=dtype)
    left, right = ((x.T if op else x).double() for x in (a, a if name == "syrk" else b))
    exact = left @ right.T + (right @ left.T if name == "syr2k" else 0)
    A, B = stored(a), stored(b, 1)
    for alpha, beta in (-1.5, 0.5), (1.0, 0.0):
        old, given = triangle(c, uplo)
        C = stored(given if beta else torch.full_like(c, NAN), 2)
        before = C.clone()
        scalars = factors(alpha, beta, dtype=dtype)
        status = getattr(blas, name)(A, B, C, scalars, [uplo, op, n, k, rows + 3, rows + 1, n + 2])
        assert status == 0
        named, _ = triangle(torch.ones(n, n, device=DEVICE), uplo)
        wanted = alpha * exact + (beta * old if beta else 0)
        made = values(C, n)
        check_close(made[named.bool()], wanted[named.bool()], atol=atol(dtype))
        others = ~named.bool()
        assert unchanged(made[others], values(before, n)[others])
        assert unchanged(C[:, n:], before[:, n:])


TRIANGULAR = list(product((LEFT, RIGHT), (LOWER, UPPER), (0, 1, 2), (False, True)))


def well_conditioned(order, dtype):
    return randn(order, order, dtype=dtype) / order + 2 * torch.eye(order, device=DEVICE)


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("name", ["trmm", "trmm_in_place", "trsm"])
def test_triangular_matrices(blas, factors, dtype, name):
    for side, uplo, op, unit in TRIANGULAR:
        m, n = sizes(2)
        order = m if side == LEFT else n
        read, given = triangle(well_conditioned(order, dtype).to(dtype), uplo, unit)
        left = read.T if op else read
        b = randn(m, n, dtype=dtype)
        A, B, C = stored(given), stored(b, 1), stored(torch.full((m, n), NAN, dtype=dtype), 2)
        alpha = -1.5
        scalars = factors(alpha, dtype=dtype)
        flags, inner = [side, uplo, op, unit, m, n], B[:, m:].clone()
        if name == "trsm":
            assert blas.trsm(A, B, scalars, [*flags, order + 3, m + 1]) == 0
            made = values(B, m)
            product_with = left @ made if side == LEFT else made @ left
            check_close(product_with, alpha * b.double(), atol=atol(dtype))
        else:
            C, room = (B, 1) if name == "trmm_in_place" else (C, 2)
            assert blas.trmm(A, B, C, scalars, [*flags, order + 3, m + 1, m + room]) == 0
            exact = left @ b.double() if side == LEFT else b.double() @ left
            check_close(values(C, m), alpha * exact, atol=atol(dtype))
            assert C[:, m:].isnan().all()
        assert unchanged(B[:, m:], inner)


def test_with_an_alpha_of_0_a_triangular_matrix_is_not_read(blas, factors):
    A, B = torch.full((2, 5, 5), NAN, device=DEVICE)
    scalars = factors(0.0)
    assert blas.trsm(A, B, scalars, [LEFT, LOWER, 0, 0, 5, 5, 5, 5]) == 0
    assert not B.any()
    C = torch.full((5, 5), NAN, device=DEVICE)
    assert blas.trmm(A, A, C, scalars, [LEFT, LOWER, 0, 0, 5, 5, 5, 5, 5]) == 0
    assert not C.any()


def test_a_batch_of_triangular_matrices(blas, factors):
    parts = [triangle(well_conditioned(7, FLOAT), UPPER) for _ in range(3)]
    b = randn(3, 7, 4)
    A = torch.stack([stored(given) for _, given in parts])
    B = torch.stack([stored(each) for each in b])
    places = torch.zeros(6, dtype=torch.long, device=DEVICE)
    flags = [LEFT, UPPER, 1, 0, 7, 4, 10, 10]
    assert blas.trsm_batched(A, B, places, factors(2.0), flags) == 0
    for (read, _), made, each in zip(parts, B, b, strict=True):
        check_close(read.T @ values(made, 7), 2 * each.double(), atol=2e-4)


def test_a_sum_of_matrices_may_take_the_place_of_one(blas, factors):
    a, b = randn(5, 7), randn(5, 7)
    scalars = factors(2.0, -1.0)
    A, B = stored(a), stored(b.T.contiguous())
    assert blas.geam(A, B, A, scalars, [0, 1, 5, 7, 8, 10, 8]) == 0
    check_close(values(A, 5), 2 * a.double() - b.double(), atol=1e-5)
    assert A[:, 5:].isnan().all()
    square = randn(5, 5)
    refused = [[1, 0, 5, 5, 5, 5, 5], [0, 0, 5, 5, 5, 5, 6]]
    for flags in refused:  # turned; with another distance between columns
        A = torch.cat([square, randn(2, 5)])
        assert blas.geam(A, randn(5, 5), A, scalars, flags) == 7
    assert blas.geam(randn(5, 5), square, square, scalars, [0, 1, 5, 5, 5, 5, 5]) == 7


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("side, inc", [*product((LEFT, RIGHT), (1, 3))])
def test_diagonal_times_matrix(blas, factors, dtype, side, inc):
    m, n = sizes(2)
    a = randn(m, n, dtype=dtype)
    count = m if side == LEFT else n
    x = randn(inc * count, dtype=dtype)
    diagonal = torch.diag(x[::inc].double())
    A, C = stored(a), stored(torch.full_like(a, NAN), 2)
    exact = diagonal @ a.double() if side == LEFT else a.double() @ diagonal
    scalars = factors(1.0, dtype=dtype)
    assert blas.dgmm(A, x, C, scalars, [side, m, n, m + 3, inc, m + 2]) == 0
    check_close(values(C, m), exact, atol=atol(dtype))
    assert blas.dgmm(A, x, A, scalars, [side, m, n, m + 3, inc, m + 3]) == 0  # in place
    check_close(values(A, m), exact, atol=atol(dtype))
    assert A[:, m:].isnan().all() and C[:, m:].isnan().all()


def apart(vector, inc):
    """Return a vector whose elements lie inc apart, and a function that reads one so."""
    step = abs(inc)
    full = torch.full(((len(vector) - 1) * step + 1,), NAN, dtype=vector.dtype, device=DEVICE)
    full[::step] = vector.flip(0) if inc < 0 else vector
    return full, lambda x: (x[::step].flip(0) if inc < 0 else x[::step]).double()


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("uplo", [LOWER, UPPER])
@pytest.mark.parametrize("incx, incy", [(1, 1), (2, -3)])
def test_symmetric_matrices_and_vectors(blas, factors, dtype, uplo, incx, incy):
    (n,) = sizes(1)
    square, v, w = randn(n, n, dtype=dtype), randn(n, dtype=dtype), randn(n, dtype=dtype)
    full, given = symmetric(square, uplo)
    x, _ = apart(v, incx)
    for alpha, beta in (1.5, -0.5), (1.0, 0.0):
        y, read = apart(w if beta else torch.full_like(w, NAN), incy)
        scalars = factors(alpha, beta, dtype=dtype)
        assert blas.symv(stored(given), x, y, scalars, [uplo, n, n + 3, incx, incy]) == 0
        wanted = alpha * full @ v.double() + (beta * w.double() if beta else 0)
        check_close(read(y), wanted, atol=atol(dtype))
    y, _ = apart(w, incy)
    old, given = triangle(square, uplo)
    v, w = v.double(), w.double()
    exact = {"syr": torch.outer(v, v), "syr2": torch.outer(v, w) + torch.outer(w, v)}
    for name in exact:
        A = stored(given)
        assert getattr(blas, name)(A, x, y, scalars * 2, [uplo, n, n + 3, incx, incy]) == 0
        wanted, _ = triangle(old + 2 * exact[name], uplo)
        check_close(values(A, n).nan_to_num(), wanted, atol=atol(dtype))
        assert torch.equal(A.isnan(), stored(given).isnan())


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("inc", [1, -2])
def test_triangular_matrices_and_vectors(blas, factors, dtype, inc):
    scalars = factors(1.0, dtype=dtype)
    for uplo, op, unit in product((LOWER, UPPER), (0, 1, 2), (False, True)):
        (n,) = sizes(1)
        read, given = triangle(well_conditioned(n, dtype).to(dtype), uplo, unit)
        left, v = read.T if op else read, randn(n, dtype=dtype)
        x, of = apart(v, inc)
        flags = [uplo, op, unit, n, n + 3, inc]
        assert blas.trmv(stored(given), x, scalars, flags) == 0
        check_close(of(x), left @ v.double(), atol=atol(dtype))
        assert blas.trsv(stored(given), x, scalars, flags) == 0
        check_close(of(x), v.double(), atol=atol(dtype))


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("incx, incy", [(1, 1), (-2, 3)])
def test_vectors_swapped_and_turned(blas, factors, dtype, incx, incy):
    v, w = randn(37, dtype=dtype), randn(37, dtype=dtype)
    (x, of_x), (y, of_y) = apart(v, incx), apart(w, incy)
    c, s = 0.6, -0.8
    scalars = factors(c, s, dtype=dtype)
    assert blas.swap(x, y, scalars, [37, incx, incy]) == 0
    assert torch.equal(of_x(x), w.double()) and torch.equal(of_y(y), v.double())
    assert blas.rot(x, y, scalars, [37, incx, incy]) == 0
    check_close(of_x(x), c * w.double() + s * v.double(), atol=atol(dtype))
    check_close(of_y(y), c * v.double() - s * w.double(), atol=atol(dtype))


def test_places_of_the_largest_and_the_smallest(calls):
    x = randn(1001)
    x[500], x[600] = -7.0, 0.0
    assert calls.places(x, 1001, 1) == [0, 501, 601]
    assert calls.places(x, 501, 2) == [0, 251, 301]
    assert calls.places(x, 0, 1) == [0, 0, 0]


def test_sizes_of_0_change_nothing(blas, factors):
    X = torch.full((4, 4), NAN, device=DEVICE)
    one = factors(1.0, 0.0)
    assert blas.symm(X, X, X, one, [LEFT, LOWER, 0, 4, 1, 1, 1]) == 0
    assert blas.syrk(X, X, X, one, [LOWER, 0, 0, 4, 1, 1, 1]) == 0
    assert blas.trmm(X, X, X, one, [LEFT, LOWER, 0, 0, 4, 0, 4, 4, 4]) == 0
    assert blas.trsm(X, X, one, [RIGHT, LOWER, 0, 0, 0, 4, 4, 1]) == 0
    assert blas.dgmm(X, X, X, one, [LEFT, 0, 4, 1, 1, 1]) == 0
    assert blas.symv(X, X, X, one, [LOWER, 0, 1, 1, 1]) == 0
    assert blas.trsv(X, X, one, [LOWER, 0, 0, 0, 1, 1]) == 0
    assert blas.swap(X, X, one, [0, 1, 1]) == 0
    assert X.isnan().all()
    assert blas.syrk(X, X, X, one, [LOWER, 0, 4, 0, 4, 4, 4]) == 0  # a sum of nothing
    assert torch.equal(X.isnan(), torch.ones(4, 4).tril(-1).bool().to(DEVICE))


# Each call that is right, and which of its numbers makes it wrong: a place, and what stands there.
WRONG = {
    "symm": (3, [LEFT, LOWER, 4, 4, 4, 4, 4],
             [(0, 2), (1, 9), (2, -1), (3, -1), (4, 3), (5, 3), (6, 3)]),
    "syrk": (3, [LOWER, 0, 4, 4, 4, 4, 4], [(0, 9), (1, 9), (2, -1), (3, -1), (4, 3), (6, 3)]),
    "syrkx": (3, [LOWER, 0, 4, 4, 4, 4, 4], [(0, 9), (1, 9), (4, 3), (5, 3), (6, 3)]),
    "syr2k": (3, [LOWER, 0, 4, 4, 4, 4, 4], [(0, 9), (1, 9), (4, 3), (5, 3), (6, 3)]),
    "trmm": (3, [LEFT, LOWER, 0, 0, 4, 4, 4, 4, 4],
             [(0, 9), (1, 9), (2, 9), (3, 9), (4, -1), (5, -1), (6, 3), (7, 3), (8, 3)]),
    "trsm": (2, [LEFT, LOWER, 0, 0, 4, 4, 4, 4],
             [(0, 9), (1, 9), (2, 9), (3, 9), (4, -1), (5, -1), (6, 3), (7, 3)]),
    "dgmm": (3, [LEFT, 4, 4, 4, 1, 4], [(0, 9), (1, -1), (2, -1), (3, 3), (5, 3)]),
    "geam": (3, [0, 0, 4, 4, 4, 4, 4], [(0, 9), (1, 9), (2, -1), (3, -1), (4, 3), (5, 3), (6, 3)]),
    "symv": (3, [LOWER, 4, 4, 1, 1], [(0, 9), (1, -1), (2, 3), (3, 0), (4, 0)]),
    "syr": (3, [LOWER, 4, 4, 1, 1], [(0, 9), (1, -1), (2, 3), (3, 0)]),
    "syr2": (3, [LOWER, 4, 4, 1, 1], [(0, 9), (1, -1), (2, 3), (3, 0), (4, 0)]),
    "trmv": (2, [LOWER, 0, 0, 4, 4, 1], [(0, 9), (1, 9), (2, 9), (3, -1), (4, 3), (5, 0)]),
    "trsv": (2, [LOWER, 0, 0, 4, 4, 1], [(0, 9), (1, 9), (2, 9), (3, -1), (4, 3), (5, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_have_the_documented_status(blas, factors, name):
    tensors, right, wrongs = WRONG[name]
    given = [torch.zeros(5, 8, device=DEVICE) for _ in range(tensors)]
    call, scalars = getattr(blas, name), factors(1.0, 1.0)
    assert call(*given, scalars, right) == 0
    for place, value in wrongs:
        wrong = [*right]
        wrong[place] = value
        before = [x.clone() for x in given]
        assert call(*given, scalars, wrong) == 7, (place, value)
        assert all(unchanged(x, old) for x, old in zip(given, before, strict=True))


def test_without_a_handle_nothing_is_done(calls):
    assert calls.without_a_handle(torch.zeros(4, device=DEVICE))


@on_cpu
def test_a_triangle_that_leaves_its_array_is_said(calls):
    scalars = torch.ones(2)
    with pytest.raises(RuntimeError, match="cuBLAS uses 400 bytes of a tensor of 360 bytes"):
        calls.syrk(randn(10, 10), randn(1), torch.zeros(9, 10), scalars, [0, 0, 10, 10, 10, 1, 10])
