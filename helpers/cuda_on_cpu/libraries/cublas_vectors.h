// cuBLAS's calls on vectors, and on a vector with a matrix that is neither symmetric nor triangular.
#pragma once
#include "cublas_handle.h"

namespace cuda_on_cpu::libraries {

template <class T>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T* alpha,
                    const T* A, int lda, const T* x, int incx, const T* beta, T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_known(trans) && fits(lda, m), INVALID_VALUE);
    REQUIRE(incx && incy && alpha && beta, INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha), b(handle, beta);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor left = matrix(A, m, n, lda);
        if (trans) left = left.t();
        int rows = trans ? n : m;
        double factor = b();
        at::Tensor sum = left.mv(vector(x, trans ? m : n, incx)) * a();
        if (factor != 0) sum = sum + vector(y, rows, incy) * factor;
        store(y, rows, incy, sum);
    }));
}

template <class T>
cublasStatus_t ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x, int incx,
                   const T* y, int incy, T* A, int lda) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && incx && incy && alpha && fits(lda, m), INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha);
    return done(do_in_stream(handle->stream, [=] {
        matrix(A, m, n, lda).add_(vector(x, m, incx).outer(vector(y, n, incy)), a());
    }));
}

template <class T>
cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx, T* y,
                    int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(alpha, INVALID_VALUE);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha);
    return done(do_in_stream(handle->stream, [=] {
        store(y, n, incy, vector(y, n, incy) + vector(x, n, incx) * a());
    }));
}

template <class T>
cublasStatus_t copy(cublasHandle_t handle, int n, const T* x, int incx, T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    return done(do_in_stream(handle->stream, [=] { store(y, n, incy, vector(x, n, incx)); }));
}

template <class T>
cublasStatus_t swap(cublasHandle_t handle, int n, T* x, int incx, T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor old = vector(x, n, incx).clone();
        store(x, n, incx, vector(y, n, incy));
        store(y, n, incy, old);
    }));
}

// x, y = c x + s y, c y - s x.
template <class T>
cublasStatus_t rot(cublasHandle_t handle, int n, T* x, int incx, T* y, int incy, const T* c,
                   const T* s) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(c && s, INVALID_VALUE);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    Factor cosine(handle, c), sine(handle, s);
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor a = vector(x, n, incx), b = vector(y, n, incy);
        at::Tensor turned = a * cosine() + b * sine(), other = b * cosine() - a * sine();
        store(x, n, incx, turned);
        store(y, n, incy, other);
    }));
}

template <class T>
cublasStatus_t scal(cublasHandle_t handle, int n, const T* alpha, T* x, int incx) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(alpha, INVALID_VALUE);
    if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha);
    return done(do_in_stream(handle->stream, [=] { vector(x, n, incx).mul_(a()); }));
}

// A number made of vectors; of none, 0.
template <class T, class Number>
cublasStatus_t reduce(cublasHandle_t handle, bool has_any, Number* result, T work) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(result, INVALID_VALUE);
    return done(do_in_stream(handle->stream, [=] { *result = has_any ? Number(work()) : Number(0); }));
}

template <class T>
cublasStatus_t dot(cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy,
                   T* result) {
    return reduce(handle, n > 0, result, [=] {
        return vector(x, n, incx).dot(vector(y, n, incy)).template item<T>();
    });
}

template <class T>
cublasStatus_t nrm2(cublasHandle_t handle, int n, const T* x, int incx, T* result) {
    return reduce(handle, n > 0 && incx > 0, result,
                  [=] { return vector(x, n, incx).norm().template item<T>(); });
}

template <class T>
cublasStatus_t asum(cublasHandle_t handle, int n, const T* x, int incx, T* result) {
    return reduce(handle, n > 0 && incx > 0, result,
                  [=] { return vector(x, n, incx).abs().sum().template item<T>(); });
}

template <class T>
cublasStatus_t amax(cublasHandle_t handle, int n, const T* x, int incx, int* result) {
    return reduce(handle, n > 0 && incx > 0, result, [=] {
        return vector(x, n, incx).abs().argmax().template item<std::int64_t>() + 1;
    });
}

template <class T>
cublasStatus_t amin(cublasHandle_t handle, int n, const T* x, int incx, int* result) {
    return reduce(handle, n > 0 && incx > 0, result, [=] {
        return vector(x, n, incx).abs().argmin().template item<std::int64_t>() + 1;
    });
}

}  // namespace cuda_on_cpu::libraries
