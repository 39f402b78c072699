// cuBLAS's symmetric and triangular matrices. Of one that is read only the named triangle counts,
// and of one that is written only that changes: the other may hold anything, NaN too.
#pragma once
#include "cublas_handle.h"

#include <ATen/ops/linalg_solve_triangular_ops.h>

namespace cuda_on_cpu::libraries {

// The named triangle of a square matrix, from its offset-th diagonal outward; 0 elsewhere.
inline at::Tensor triangle(const at::Tensor& square, cublasFillMode_t uplo, int offset = 0) {
    return uplo == CUBLAS_FILL_MODE_LOWER ? square.tril(-offset) : square.triu(offset);
}

inline at::Tensor symmetric(const at::Tensor& square, cublasFillMode_t uplo) {
    return triangle(square, uplo) + triangle(square, uplo, 1).t();
}

// A triangular matrix, turned or not, with ones on its diagonal where they are implied.
struct Triangular {
    at::Tensor values;
    bool is_upper;

    Triangular(const at::Tensor& square, cublasFillMode_t uplo, bool turned, bool has_ones) {
        values = triangle(square, uplo, has_ones);
        if (has_ones) values.diagonal().fill_(1);
        if (turned) values = values.t();
        is_upper = (uplo == CUBLAS_FILL_MODE_UPPER) != turned;
    }
    at::Tensor times(const at::Tensor& B, bool from_left) const {
        return from_left ? values.matmul(B) : B.matmul(values);
    }
    at::Tensor solve(const at::Tensor& B, bool from_left) const {
        return ops::linalg_solve_triangular::call(values, B, is_upper, from_left, false);
    }
};

// C = alpha * result + beta * C in the named triangle.
inline void blend_triangle(at::Tensor C, cublasFillMode_t uplo, const at::Tensor& result,
                           double alpha, double beta) {
    at::Tensor sum = result * alpha;
    if (beta != 0) sum = sum + C * beta;
    at::Tensor named = triangle(zeros(C.sizes(), at::kBool).logical_not(), uplo);
    C.copy_(sum.where(named, C));
}

// C = alpha A B + beta C or alpha B A + beta C, where A is symmetric.
template <class T>
cublasStatus_t symm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m,
                    int n, const T* alpha, const T* A, int lda, const T* B, int ldb, const T* beta,
                    T* C, int ldc) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_known(side) && is_known(uplo), INVALID_VALUE);
    bool from_left = side == CUBLAS_SIDE_LEFT;
    int order = from_left ? m : n;
    REQUIRE(fits(lda, order) && fits(ldb, m) && fits(ldc, m), INVALID_VALUE);
    REQUIRE(alpha && beta, INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha), b(handle, beta);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor left = symmetric(matrix(A, order, order, lda), uplo), right = matrix(B, m, n, ldb);
        if (!from_left) std::swap(left, right);
        blend(matrix(C, m, n, ldc), left.matmul(right), a(), b());
    }));
}

// The named triangle of C = alpha op(A) op(B)^T + beta C, or, `twice`, of that and its transpose.
template <class T>
cublasStatus_t syrkx(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, int n,
                     int k, const T* alpha, const T* A, int lda, const T* B, int ldb,
                     const T* beta, T* C, int ldc, bool twice = false) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(n >= 0 && k >= 0 && is_known(uplo) && is_known(trans), INVALID_VALUE);
    int rows = trans ? k : n, cols = trans ? n : k;
    REQUIRE(fits(lda, rows) && fits(ldb, rows) && fits(ldc, n), INVALID_VALUE);
    REQUIRE(alpha && beta, INVALID_VALUE);
    if (!n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha), b(handle, beta);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor left = matrix(A, rows, cols, lda), right = matrix(B, rows, cols, ldb);
        at::Tensor product = trans ? left.t().matmul(right) : left.matmul(right.t());
        if (twice) product = product + product.t();
        blend_triangle(matrix(C, n, n, ldc), uplo, product, a(), b());
    }));
}

template <class T>
cublasStatus_t check_triangular(cublasHandle_t handle, cublasSideMode_t side,
                                cublasFillMode_t uplo, cublasOperation_t trans,
                                cublasDiagType_t diag, int m, int n, const T* alpha, int lda,
                                int ldb) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_known(side) && is_known(uplo), INVALID_VALUE);
    REQUIRE(is_known(trans) && is_known(diag) && alpha, INVALID_VALUE);
    REQUIRE(fits(lda, side == CUBLAS_SIDE_LEFT ? m : n) && fits(ldb, m), INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

// C = alpha op(A) B or alpha B op(A), where A is triangular; C may be B. With an alpha of 0
// neither A nor B is read.
template <class T>
cublasStatus_t trmm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                    cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T* alpha,
                    const T* A, int lda, const T* B, int ldb, T* C, int ldc) {
    auto status = check_triangular(handle, side, uplo, trans, diag, m, n, alpha, lda, ldb);
    if (status) return status;
    REQUIRE(fits(ldc, m), INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    bool from_left = side == CUBLAS_SIDE_LEFT;
    int order = from_left ? m : n;
    Factor a(handle, alpha);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor out = matrix(C, m, n, ldc);
        double factor = a();
        if (factor == 0) return void(out.zero_());
        Triangular left(matrix(A, order, order, lda), uplo, trans, diag);
        out.copy_(left.times(matrix(B, m, n, ldb), from_left) * factor);
    }));
}

// B = X, where op(A) X = alpha B or X op(A) = alpha B. With an alpha of 0, A is not read.
template <class T>
cublasStatus_t trsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                    cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T* alpha,
                    const T* A, int lda, T* B, int ldb) {
    auto status = check_triangular(handle, side, uplo, trans, diag, m, n, alpha, lda, ldb);
    if (status || !m || !n) return status;
    bool from_left = side == CUBLAS_SIDE_LEFT;
    int order = from_left ? m : n;
    Factor a(handle, alpha);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor out = matrix(B, m, n, ldb);
        double factor = a();
        if (factor == 0) return void(out.zero_());
        Triangular left(matrix(A, order, order, lda), uplo, trans, diag);
        out.copy_(left.solve(out * factor, from_left));
    }));
}

template <class T>
cublasStatus_t trsm_batched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                            cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                            const T* alpha, const T* const A[], int lda, T* const B[], int ldb,
                            int batch) {
    auto status = check_triangular(handle, side, uplo, trans, diag, m, n, alpha, lda, ldb);
    REQUIRE(status || batch >= 0, INVALID_VALUE);
    for (int i = 0; i < batch && !status; i++)
        status = trsm(handle, side, uplo, trans, diag, m, n, alpha, A[i], lda, B[i], ldb);
    return status;
}

// y = alpha A x + beta y, where A is symmetric.
template <class T>
cublasStatus_t symv(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha,
                    const T* A, int lda, const T* x, int incx, const T* beta, T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(n >= 0 && is_known(uplo) && fits(lda, n), INVALID_VALUE);
    REQUIRE(incx && incy && alpha && beta, INVALID_VALUE);
    if (!n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha), b(handle, beta);
    return done(do_in_stream(handle->stream, [=] {
        double factor = b();
        at::Tensor sum = symmetric(matrix(A, n, n, lda), uplo).mv(vector(x, n, incx)) * a();
        if (factor != 0) sum = sum + vector(y, n, incy) * factor;
        store(y, n, incy, sum);
    }));
}

// The named triangle of A = alpha x y^T + A, or, where y is not x, of alpha (x y^T + y x^T) + A.
template <class T>
cublasStatus_t syr(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha, const T* x,
                   int incx, const T* y, int incy, T* A, int lda, bool twice) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(n >= 0 && is_known(uplo) && fits(lda, n), INVALID_VALUE);
    REQUIRE(incx && incy && alpha, INVALID_VALUE);
    if (!n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor product = vector(x, n, incx).outer(vector(y, n, incy));
        if (twice) product = product + product.t();
        blend_triangle(matrix(A, n, n, lda), uplo, product, a(), 1);
    }));
}

// x = op(A) x, or, `solves`, the x for which op(A) x is the old one; A is triangular.
template <class T>
cublasStatus_t trmv(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,
                    cublasDiagType_t diag, int n, const T* A, int lda, T* x, int incx,
                    bool solves) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(n >= 0 && is_known(uplo) && is_known(trans) && is_known(diag), INVALID_VALUE);
    REQUIRE(fits(lda, n) && incx, INVALID_VALUE);
    if (!n) return CUBLAS_STATUS_SUCCESS;
    return done(do_in_stream(handle->stream, [=] {
        Triangular left(matrix(A, n, n, lda), uplo, trans, diag);
        at::Tensor column = vector(x, n, incx).unsqueeze(1);
        at::Tensor result = solves ? left.solve(column, true) : left.times(column, true);
        store(x, n, incx, result.squeeze(1));
    }));
}

}  // namespace cuda_on_cpu::libraries
