// cuBLAS over PyTorch's operators. A matrix that is stored column by column is a tensor with
// strides (1, ld).
#include "../include/cublas_v2.h"

#include "cublas_triangles.h"
#include "cublas_vectors.h"

using namespace cuda_on_cpu::libraries;

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

// ---------------------------------------------------------------- products of matrices

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* A, cudaDataType typeA, int lda, long long strideA,
    const void* B, cudaDataType typeB, int ldb, long long strideB, const void* beta, void* C,
    cudaDataType typeC, int ldc, long long strideC, int batch, cublasComputeType_t compute,
    cublasGemmAlgo_t) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && k >= 0 && batch >= 0, INVALID_VALUE);
    REQUIRE(is_known(transa) && is_known(transb), INVALID_VALUE);
    REQUIRE(fits(lda, transa ? k : m) && fits(ldb, transb ? n : k) && fits(ldc, m), INVALID_VALUE);
    REQUIRE(alpha && beta, INVALID_VALUE);
    Precision precision;
    REQUIRE(find_precision(compute, typeA, typeB, typeC, &precision), NOT_SUPPORTED);
    if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha, precision.scale), b(handle, beta, precision.scale);
    Columns left{A, typeA, transa ? k : m, transa ? m : k, lda, strideA};
    Columns right{B, typeB, transb ? n : k, transb ? k : n, ldb, strideB};
    return done(do_in_stream(handle->stream, [=] {
        at::Tensor out = results({C, typeC, m, n, ldc, strideC}, batch);
        blend(out, product(left, transa, right, transb, batch, precision.compute), a(), b());
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
static constexpr cublasComputeType_t COMPUTE = TYPE<T> == CUDA_R_16F ? CUBLAS_COMPUTE_16F
                                             : TYPE<T> == CUDA_R_32F ? CUBLAS_COMPUTE_32F
                                                                     : CUBLAS_COMPUTE_64F;

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

// C = alpha op(A) + beta op(B); where a factor is 0 its matrix is not read. C may be A or B, where
// that is not turned.
template <class T>
static cublasStatus_t geam(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, const T* alpha, const T* A,
                           int lda, const T* beta, const T* B, int ldb, T* C, int ldc) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_known(transa) && is_known(transb), INVALID_VALUE);
    REQUIRE(alpha && beta && fits(ldc, m), INVALID_VALUE);
    REQUIRE(fits(lda, transa ? n : m) && fits(ldb, transb ? n : m), INVALID_VALUE);
    REQUIRE(C != A || (!transa && lda == ldc), INVALID_VALUE);
    REQUIRE(C != B || (!transb && ldb == ldc), INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    Factor a(handle, alpha), b(handle, beta);
    return done(do_in_stream(handle->stream, [=] {
        auto part = [=](double factor, const T* data, int ld, bool turned) {
            if (factor == 0) return at::Tensor();
            at::Tensor stored = matrix(data, turned ? n : m, turned ? m : n, ld);
            return (turned ? stored.t() : stored) * factor;
        };
        at::Tensor left = part(a(), A, lda, transa), right = part(b(), B, ldb, transb);
        at::Tensor out = matrix(C, m, n, ldc);
        if (!left.defined() && !right.defined()) out.zero_();
        else if (!right.defined()) out.copy_(left);
        else out.copy_(left.defined() ? left + right : right);
    }));
}

// C = diag(x) A or A diag(x); C may be A.
template <class T>
static cublasStatus_t dgmm(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T* A,
                           int lda, const T* x, int incx, T* C, int ldc) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(m >= 0 && n >= 0 && is_known(side), INVALID_VALUE);
    REQUIRE(fits(lda, m) && fits(ldc, m), INVALID_VALUE);
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    return done(do_in_stream(handle->stream, [=] {
        bool from_left = side == CUBLAS_SIDE_LEFT;
        at::Tensor factors = vector(x, from_left ? m : n, incx).unsqueeze(from_left ? 1 : 0);
        matrix(C, m, n, ldc).copy_(matrix(A, m, n, lda) * factors);
    }));
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
    }
NAMED(H, __half)
NAMED(S, float)
NAMED(D, double)
#undef NAMED

#define NAMED(S, T) \
    cublasStatus_t cublas##S##geam(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, \
                                   int m, int n, const T* alpha, const T* A, int lda, \
                                   const T* beta, const T* B, int ldb, T* C, int ldc) { \
        return geam(h, ta, tb, m, n, alpha, A, lda, beta, B, ldb, C, ldc); \
    } \
    cublasStatus_t cublas##S##dgmm(cublasHandle_t h, cublasSideMode_t side, int m, int n, \
                                   const T* A, int lda, const T* x, int incx, T* C, int ldc) { \
        return dgmm(h, side, m, n, A, lda, x, incx, C, ldc); \
    } \
    cublasStatus_t cublas##S##symm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, \
                                   int m, int n, const T* alpha, const T* A, int lda, const T* B, \
                                   int ldb, const T* beta, T* C, int ldc) { \
        return symm(h, side, uplo, m, n, alpha, A, lda, B, ldb, beta, C, ldc); \
    } \
    cublasStatus_t cublas##S##syrk(cublasHandle_t h, cublasFillMode_t uplo, \
                                   cublasOperation_t trans, int n, int k, const T* alpha, \
                                   const T* A, int lda, const T* beta, T* C, int ldc) { \
        return syrkx(h, uplo, trans, n, k, alpha, A, lda, A, lda, beta, C, ldc); \
    } \
    cublasStatus_t cublas##S##syrkx(cublasHandle_t h, cublasFillMode_t uplo, \
                                    cublasOperation_t trans, int n, int k, const T* alpha, \
                                    const T* A, int lda, const T* B, int ldb, const T* beta, \
                                    T* C, int ldc) { \
        return syrkx(h, uplo, trans, n, k, alpha, A, lda, B, ldb, beta, C, ldc); \
    } \
    cublasStatus_t cublas##S##syr2k(cublasHandle_t h, cublasFillMode_t uplo, \
                                    cublasOperation_t trans, int n, int k, const T* alpha, \
                                    const T* A, int lda, const T* B, int ldb, const T* beta, \
                                    T* C, int ldc) { \
        return syrkx(h, uplo, trans, n, k, alpha, A, lda, B, ldb, beta, C, ldc, true); \
    } \
    cublasStatus_t cublas##S##trmm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, \
                                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n, \
                                   const T* alpha, const T* A, int lda, const T* B, int ldb, \
                                   T* C, int ldc) { \
        return trmm(h, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, C, ldc); \
    } \
    cublasStatus_t cublas##S##trsm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, \
                                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n, \
                                   const T* alpha, const T* A, int lda, T* B, int ldb) { \
        return trsm(h, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb); \
    } \
    cublasStatus_t cublas##S##trsmBatched( \
        cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans, \
        cublasDiagType_t diag, int m, int n, const T* alpha, const T* const A[], int lda, \
        T* const B[], int ldb, int batch) { \
        return trsm_batched(h, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, batch); \
    } \
    cublasStatus_t cublas##S##symv(cublasHandle_t h, cublasFillMode_t uplo, int n, \
                                   const T* alpha, const T* A, int lda, const T* x, int incx, \
                                   const T* beta, T* y, int incy) { \
        return symv(h, uplo, n, alpha, A, lda, x, incx, beta, y, incy); \
    } \
    cublasStatus_t cublas##S##syr(cublasHandle_t h, cublasFillMode_t uplo, int n, const T* alpha, \
                                  const T* x, int incx, T* A, int lda) { \
        return syr(h, uplo, n, alpha, x, incx, x, incx, A, lda, false); \
    } \
    cublasStatus_t cublas##S##syr2(cublasHandle_t h, cublasFillMode_t uplo, int n, const T* alpha, \
                                   const T* x, int incx, const T* y, int incy, T* A, int lda) { \
        return syr(h, uplo, n, alpha, x, incx, y, incy, A, lda, true); \
    } \
    cublasStatus_t cublas##S##trmv(cublasHandle_t h, cublasFillMode_t uplo, \
                                   cublasOperation_t trans, cublasDiagType_t diag, int n, \
                                   const T* A, int lda, T* x, int incx) { \
        return trmv(h, uplo, trans, diag, n, A, lda, x, incx, false); \
    } \
    cublasStatus_t cublas##S##trsv(cublasHandle_t h, cublasFillMode_t uplo, \
                                   cublasOperation_t trans, cublasDiagType_t diag, int n, \
                                   const T* A, int lda, T* x, int incx) { \
        return trmv(h, uplo, trans, diag, n, A, lda, x, incx, true); \
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
    cublasStatus_t cublas##S##swap(cublasHandle_t h, int n, T* x, int incx, T* y, int incy) { \
        return swap(h, n, x, incx, y, incy); \
    } \
    cublasStatus_t cublas##S##rot(cublasHandle_t h, int n, T* x, int incx, T* y, int incy, \
                                  const T* c, const T* s) { \
        return rot(h, n, x, incx, y, incy, c, s); \
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

#define PLACE(NAME, name, T) \
    cublasStatus_t cublas##NAME(cublasHandle_t h, int n, const T* x, int incx, int* result) { \
        return name(h, n, x, incx, result); \
    }
PLACE(Isamax, amax, float)
PLACE(Isamin, amin, float)
PLACE(Idamax, amax, double)
PLACE(Idamin, amin, double)
