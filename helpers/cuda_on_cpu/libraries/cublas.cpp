// cuBLAS over PyTorch's operators. A matrix that is stored column by column is a tensor with
// strides (1, ld).
#include "../include/cublas_v2.h"

#define LIBRARY "cuBLAS"
#include "blas.h"
#include "common.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

using namespace cuda_on_cpu::libraries;

#define REQUIRE(condition, status) \
    if (!(condition)) return CUBLAS_STATUS_##status

// ---------------------------------------------------------------- handle

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    REQUIRE(handle, INVALID_VALUE);
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    REQUIRE(handle, NOT_INITIALIZED);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(version, INVALID_VALUE);
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

// Setters and getters of what a handle holds.
#define STATE(Type, Name, member) \
    cublasStatus_t cublasSet##Name(cublasHandle_t handle, Type value) { \
        REQUIRE(handle, NOT_INITIALIZED); \
        handle->member = value; \
        return CUBLAS_STATUS_SUCCESS; \
    } \
    cublasStatus_t cublasGet##Name(cublasHandle_t handle, Type* value) { \
        REQUIRE(handle, NOT_INITIALIZED); \
        REQUIRE(value, INVALID_VALUE); \
        *value = handle->member; \
        return CUBLAS_STATUS_SUCCESS; \
    }
STATE(cudaStream_t, Stream, stream)
STATE(cublasMath_t, MathMode, math)
STATE(cublasPointerMode_t, PointerMode, pointers)
#undef STATE

// Nothing here needs one, but its address must be a multiple of 256 as on a GPU.
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0, INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) { return status_name(status); }
const char* cublasGetStatusString(cublasStatus_t status) { return status_text(status); }

static cublasStatus_t done(bool worked) {
    return worked ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// ---------------------------------------------------------------- products of matrices

static bool is_operation(cublasOperation_t op) { return op >= CUBLAS_OP_N && op <= CUBLAS_OP_C; }

// What m rows need for a leading dimension.
static bool fits(int ld, int rows) { return ld >= std::max(rows, 1); }

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* A, cudaDataType typeA, int lda, long long strideA,
    const void* B, cudaDataType typeB, int ldb, long long strideB, const void* beta, void* C,
    cudaDataType typeC, int ldc, long long strideC, int batch, cublasComputeType_t compute,
    cublasGemmAlgo_t) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && k >= 0 && batch >= 0, INVALID_VALUE);
    REQUIRE(is_operation(transa) && is_operation(transb), INVALID_VALUE);
    REQUIRE(fits(lda, transa ? k : m) && fits(ldb, transb ? n : k) && fits(ldc, m), INVALID_VALUE);
    REQUIRE(alpha && beta, INVALID_VALUE);
    Precision precision;
    REQUIRE(find_precision(compute, typeA, typeB, typeC, &precision), NOT_SUPPORTED);
    if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
    double a = scalar(alpha, precision.scale), b = scalar(beta, precision.scale);
    Columns left{A, typeA, transa ? k : m, transa ? m : k, lda, strideA};
    Columns right{B, typeB, transb ? n : k, transb ? k : n, ldb, strideB};
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor out = results({C, typeC, m, n, ldc, strideC}, batch);
        blend(out, product(left, transa, right, transb, batch, precision.compute), a, b);
    }));
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* A, cudaDataType typeA, int lda, const void* B,
                            cudaDataType typeB, int ldb, const void* beta, void* C,
                            cudaDataType typeC, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, typeA, lda, 0, B,
                                      typeB, ldb, 0, beta, C, typeC, ldc, 0, 1, compute, algorithm);
}

template <class T>
static constexpr cudaDataType TYPE = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;
template <class T>
static constexpr cublasComputeType_t COMPUTE =
    sizeof(T) == 4 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F;

template <class T>
static cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const T* alpha,
                           const T* A, int lda, long long strideA, const T* B, int ldb,
                           long long strideB, const T* beta, T* C, int ldc, long long strideC,
                           int batch) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, TYPE<T>, lda,
                                      strideA, B, TYPE<T>, ldb, strideB, beta, C, TYPE<T>, ldc,
                                      strideC, batch, COMPUTE<T>, CUBLAS_GEMM_DEFAULT);
}

// C = alpha op(A) + beta op(B); where a factor is 0 its matrix is not read.
template <class T>
static cublasStatus_t geam(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, const T* alpha, const T* A,
                           int lda, const T* beta, const T* B, int ldb, T* C, int ldc) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_operation(transa) && is_operation(transb), INVALID_VALUE);
    REQUIRE(alpha && beta && fits(ldc, m), INVALID_VALUE);
    REQUIRE(fits(lda, transa ? n : m) && fits(ldb, transb ? n : m), INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    T a = *alpha, b = *beta;
    return done(do_in_stream(handle->stream, [=] {
        auto part = [=](T factor, const T* data, int ld, bool turned) {
            if (factor == 0) return at::Tensor();
            at::Tensor matrix = matrices({data, TYPE<T>, turned ? n : m, turned ? m : n, ld, 0}, 1);
            return (turned ? matrix.transpose(1, 2) : matrix) * double(factor);
        };
        at::Tensor left = part(a, A, lda, transa), right = part(b, B, ldb, transb);
        at::Tensor out = matrices({C, TYPE<T>, m, n, ldc, 0}, 1);
        if (!left.defined() && !right.defined()) out.zero_();
        else if (!right.defined()) out.copy_(left);
        else out.copy_(left.defined() ? left + right : right);
    }));
}

// ---------------------------------------------------------------- vectors

// n elements, inc apart; with a negative inc the last one comes first.
template <class T>
static at::Tensor vector(const T* x, int n, int inc) {
    at::Tensor ordered = tensor(x, {n}, {std::abs(inc)}, scalar_type(TYPE<T>));
    return inc < 0 ? ordered.flip(0) : ordered;
}

template <class T>
static void store(T* x, int n, int inc, const at::Tensor& result) {
    tensor(x, {n}, {std::abs(inc)}, scalar_type(TYPE<T>)).copy_(inc < 0 ? result.flip(0) : result);
}

template <class T>
static cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                           const T* alpha, const T* A, int lda, const T* x, int incx,
                           const T* beta, T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_operation(trans) && fits(lda, m), INVALID_VALUE);
    REQUIRE(incx && incy && alpha && beta, INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    T a = *alpha, b = *beta;
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor matrix = matrices({A, TYPE<T>, m, n, lda, 0}, 1)[0];
        if (trans) matrix = matrix.t();
        at::Tensor sum = matrix.mv(vector(x, trans ? m : n, incx)) * double(a);
        int rows = trans ? n : m;
        if (b != 0) sum = sum + vector(y, rows, incy) * double(b);
        store(y, rows, incy, sum);
    }));
}

template <class T>
static cublasStatus_t ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x,
                          int incx, const T* y, int incy, T* A, int lda) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && incx && incy && alpha && fits(lda, m), INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    T a = *alpha;
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor matrix = matrices({A, TYPE<T>, m, n, lda, 0}, 1)[0];
        matrix.add_(vector(x, m, incx).outer(vector(y, n, incy)), double(a));
    }));
}

template <class T>
static cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx,
                           T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(alpha, INVALID_VALUE);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    T a = *alpha;
    return done(do_in_stream(handle->stream, [=] {
        store(y, n, incy, vector(y, n, incy) + vector(x, n, incx) * double(a));
    }));
}

template <class T>
static cublasStatus_t copy(cublasHandle_t handle, int n, const T* x, int incx, T* y, int incy) {
    REQUIRE(handle, NOT_INITIALIZED);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    return done(do_in_stream(handle->stream, [=] { store(y, n, incy, vector(x, n, incx)); }));
}

template <class T>
static cublasStatus_t scal(cublasHandle_t handle, int n, const T* alpha, T* x, int incx) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(alpha, INVALID_VALUE);
    if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
    T a = *alpha;
    return done(do_in_stream(handle->stream, [=] { vector(x, n, incx).mul_(double(a)); }));
}

// A number made of vectors; of none, 0.
template <class T, class Number>
static cublasStatus_t reduce(cublasHandle_t handle, bool has_any, Number* result, T work) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(result, INVALID_VALUE);
    return done(do_in_stream(handle->stream, [=] { *result = has_any ? Number(work()) : Number(0); }));
}

template <class T>
static cublasStatus_t dot(cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy,
                          T* result) {
    return reduce(handle, n > 0, result, [=] {
        return vector(x, n, incx).dot(vector(y, n, incy)).template item<T>();
    });
}

template <class T>
static cublasStatus_t nrm2(cublasHandle_t handle, int n, const T* x, int incx, T* result) {
    return reduce(handle, n > 0 && incx > 0, result,
                  [=] { return vector(x, n, incx).norm().template item<T>(); });
}

template <class T>
static cublasStatus_t asum(cublasHandle_t handle, int n, const T* x, int incx, T* result) {
    return reduce(handle, n > 0 && incx > 0, result,
                  [=] { return vector(x, n, incx).abs().sum().template item<T>(); });
}

template <class T>
static cublasStatus_t amax(cublasHandle_t handle, int n, const T* x, int incx, int* result) {
    return reduce(handle, n > 0 && incx > 0, result,
                  [=] { return vector(x, n, incx).abs().argmax().template item<std::int64_t>() + 1; });
}

// ---------------------------------------------------------------- by their names

#define NAMED(S, T) \
    cublasStatus_t cublas##S##gemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, \
                                   int m, int n, int k, const T* alpha, const T* A, int lda, \
                                   const T* B, int ldb, const T* beta, T* C, int ldc) { \
        return gemm(h, ta, tb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1); \
    } \
    cublasStatus_t cublas##S##gemmStridedBatched( \
        cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, \
        const T* alpha, const T* A, int lda, long long sA, const T* B, int ldb, long long sB, \
        const T* beta, T* C, int ldc, long long sC, int batch) { \
        return gemm(h, ta, tb, m, n, k, alpha, A, lda, sA, B, ldb, sB, beta, C, ldc, sC, batch); \
    } \
    cublasStatus_t cublas##S##gemmBatched( \
        cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, \
        const T* alpha, const T* const A[], int lda, const T* const B[], int ldb, const T* beta, \
        T* const C[], int ldc, int batch) { \
        cublasStatus_t status = batch < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS; \
        for (int i = 0; i < batch && !status; i++) \
            status = gemm(h, ta, tb, m, n, k, alpha, A[i], lda, 0, B[i], ldb, 0, beta, C[i], ldc, 0, 1); \
        return status; \
    } \
    cublasStatus_t cublas##S##geam(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, \
                                   int m, int n, const T* alpha, const T* A, int lda, \
                                   const T* beta, const T* B, int ldb, T* C, int ldc) { \
        return geam(h, ta, tb, m, n, alpha, A, lda, beta, B, ldb, C, ldc); \
    } \
    cublasStatus_t cublas##S##gemv(cublasHandle_t h, cublasOperation_t trans, int m, int n, \
                                   const T* alpha, const T* A, int lda, const T* x, int incx, \
                                   const T* beta, T* y, int incy) { \
        return gemv(h, trans, m, n, alpha, A, lda, x, incx, beta, y, incy); \
    } \
    cublasStatus_t cublas##S##ger(cublasHandle_t h, int m, int n, const T* alpha, const T* x, \
                                  int incx, const T* y, int incy, T* A, int lda) { \
        return ger(h, m, n, alpha, x, incx, y, incy, A, lda); \
    } \
    cublasStatus_t cublas##S##axpy(cublasHandle_t h, int n, const T* alpha, const T* x, int incx, \
                                   T* y, int incy) { \
        return axpy(h, n, alpha, x, incx, y, incy); \
    } \
    cublasStatus_t cublas##S##copy(cublasHandle_t h, int n, const T* x, int incx, T* y, int incy) { \
        return copy(h, n, x, incx, y, incy); \
    } \
    cublasStatus_t cublas##S##scal(cublasHandle_t h, int n, const T* alpha, T* x, int incx) { \
        return scal(h, n, alpha, x, incx); \
    } \
    cublasStatus_t cublas##S##dot(cublasHandle_t h, int n, const T* x, int incx, const T* y, \
                                  int incy, T* result) { \
        return dot(h, n, x, incx, y, incy, result); \
    } \
    cublasStatus_t cublas##S##nrm2(cublasHandle_t h, int n, const T* x, int incx, T* result) { \
        return nrm2(h, n, x, incx, result); \
    } \
    cublasStatus_t cublas##S##asum(cublasHandle_t h, int n, const T* x, int incx, T* result) { \
        return asum(h, n, x, incx, result); \
    }
NAMED(S, float)
NAMED(D, double)

cublasStatus_t cublasIsamax(cublasHandle_t h, int n, const float* x, int incx, int* result) {
    return amax(h, n, x, incx, result);
}
cublasStatus_t cublasIdamax(cublasHandle_t h, int n, const double* x, int incx, int* result) {
    return amax(h, n, x, incx, result);
}
