// cuBLAS: the part that libraries/cublas.cpp has, over PyTorch's operators for the CPU. Matrices
// are stored column by column, as cuBLAS has them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuComplex.h"
#include "cuda_on_cpu/host_api.h"
#include "cuda_on_cpu/runtime.h"
#include "library_types.h"

// What others' headers ask for.
#define CUBLAS_V2_H_
#define CUBLAS_API_H_

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 1
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VERSION 130100

struct __half;
struct cublasContext;
typedef cublasContext* cublasHandle_t;

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16,
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_FULL };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
};
enum cublasComputeType_t {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};

CUDA_ON_CPU_API cublasStatus_t cublasCreate(cublasHandle_t*);
CUDA_ON_CPU_API cublasStatus_t cublasDestroy(cublasHandle_t);
CUDA_ON_CPU_API cublasStatus_t cublasGetVersion(cublasHandle_t, int*);
CUDA_ON_CPU_API cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
CUDA_ON_CPU_API cublasStatus_t cublasGetStream(cublasHandle_t, cudaStream_t*);
CUDA_ON_CPU_API cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t bytes);
CUDA_ON_CPU_API cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
CUDA_ON_CPU_API cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t*);
CUDA_ON_CPU_API cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t);
CUDA_ON_CPU_API cublasStatus_t cublasGetPointerMode(cublasHandle_t, cublasPointerMode_t*);
CUDA_ON_CPU_API const char* cublasGetStatusName(cublasStatus_t);
CUDA_ON_CPU_API const char* cublasGetStatusString(cublasStatus_t);

// Copies between host and device: of matrices, and of elements that are inc apart.
#define CUDA_ON_CPU_BLAS_COPY(NAME, KIND) \
    inline cublasStatus_t cublas##NAME##Matrix(int rows, int columns, int bytes, const void* A, \
                                               int lda, void* B, int ldb) { \
        if (rows < 0 || columns < 0 || bytes <= 0 || lda <= 0 || ldb <= 0) \
            return CUBLAS_STATUS_INVALID_VALUE; \
        std::size_t size = std::size_t(bytes); \
        cudaError_t error = cudaMemcpy2D(B, ldb * size, A, lda * size, rows * size, \
                                         std::size_t(columns), KIND); \
        return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR; \
    } \
    inline cublasStatus_t cublas##NAME##Vector(int n, int bytes, const void* x, int incx, void* y, \
                                               int incy) { \
        return cublas##NAME##Matrix(1, n, bytes, x, incx, y, incy); \
    }
CUDA_ON_CPU_BLAS_COPY(Set, cudaMemcpyHostToDevice)
CUDA_ON_CPU_BLAS_COPY(Get, cudaMemcpyDeviceToHost)
#undef CUDA_ON_CPU_BLAS_COPY

// Products, for H (half), S (float) and D (double).
#define CUDA_ON_CPU_BLAS(S, T) \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##gemm( \
        cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T* alpha, const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##gemmStridedBatched( \
        cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T* alpha, const T* A, int lda, long long strideA, const T* B, int ldb, \
        long long strideB, const T* beta, T* C, int ldc, long long strideC, int batch); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##gemmBatched( \
        cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T* alpha, const T* const A[], int lda, const T* const B[], int ldb, const T* beta, \
        T* const C[], int ldc, int batch);
CUDA_ON_CPU_BLAS(H, __half)
CUDA_ON_CPU_BLAS(S, float)
CUDA_ON_CPU_BLAS(D, double)
#undef CUDA_ON_CPU_BLAS

// For S and D.
#define CUDA_ON_CPU_BLAS(S, T) \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##geam( \
        cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
        const T* alpha, const T* A, int lda, const T* beta, const T* B, int ldb, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##dgmm(cublasHandle_t, cublasSideMode_t, int m, int n, \
                                                   const T* A, int lda, const T* x, int incx, \
                                                   T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##symm( \
        cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int m, int n, const T* alpha, \
        const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##syrk( \
        cublasHandle_t, cublasFillMode_t, cublasOperation_t, int n, int k, const T* alpha, \
        const T* A, int lda, const T* beta, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##syr2k( \
        cublasHandle_t, cublasFillMode_t, cublasOperation_t, int n, int k, const T* alpha, \
        const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##syrkx( \
        cublasHandle_t, cublasFillMode_t, cublasOperation_t, int n, int k, const T* alpha, \
        const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##trmm( \
        cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, \
        int m, int n, const T* alpha, const T* A, int lda, const T* B, int ldb, T* C, int ldc); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##trsm( \
        cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, \
        int m, int n, const T* alpha, const T* A, int lda, T* B, int ldb); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##trsmBatched( \
        cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, \
        int m, int n, const T* alpha, const T* const A[], int lda, T* const B[], int ldb, \
        int batch); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##symv( \
        cublasHandle_t, cublasFillMode_t, int n, const T* alpha, const T* A, int lda, const T* x, \
        int incx, const T* beta, T* y, int incy); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##syr(cublasHandle_t, cublasFillMode_t, int n, \
                                                  const T* alpha, const T* x, int incx, T* A, \
                                                  int lda); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##syr2(cublasHandle_t, cublasFillMode_t, int n, \
                                                   const T* alpha, const T* x, int incx, \
                                                   const T* y, int incy, T* A, int lda); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##trmv( \
        cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int n, const T* A, \
        int lda, T* x, int incx); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##trsv( \
        cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int n, const T* A, \
        int lda, T* x, int incx); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##gemv( \
        cublasHandle_t, cublasOperation_t, int m, int n, const T* alpha, const T* A, int lda, \
        const T* x, int incx, const T* beta, T* y, int incy); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##ger( \
        cublasHandle_t, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, \
        T* A, int lda); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##axpy(cublasHandle_t, int n, const T* alpha, \
                                                   const T* x, int incx, T* y, int incy); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##copy(cublasHandle_t, int n, const T* x, int incx, \
                                                   T* y, int incy); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##swap(cublasHandle_t, int n, T* x, int incx, T* y, \
                                                   int incy); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##rot(cublasHandle_t, int n, T* x, int incx, T* y, \
                                                  int incy, const T* c, const T* s); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##scal(cublasHandle_t, int n, const T* alpha, T* x, \
                                                   int incx); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##dot(cublasHandle_t, int n, const T* x, int incx, \
                                                  const T* y, int incy, T* result); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##nrm2(cublasHandle_t, int n, const T* x, int incx, \
                                                   T* result); \
    CUDA_ON_CPU_API cublasStatus_t cublas##S##asum(cublasHandle_t, int n, const T* x, int incx, \
                                                   T* result);
CUDA_ON_CPU_BLAS(S, float)
CUDA_ON_CPU_BLAS(D, double)
#undef CUDA_ON_CPU_BLAS

// The place of the largest, or smallest, absolute value, counted from 1.
#define CUDA_ON_CPU_BLAS_PLACE(NAME, T) \
    CUDA_ON_CPU_API cublasStatus_t cublas##NAME(cublasHandle_t, int n, const T* x, int incx, \
                                                int* result);
CUDA_ON_CPU_BLAS_PLACE(Isamax, float)
CUDA_ON_CPU_BLAS_PLACE(Isamin, float)
CUDA_ON_CPU_BLAS_PLACE(Idamax, double)
CUDA_ON_CPU_BLAS_PLACE(Idamin, double)
#undef CUDA_ON_CPU_BLAS_PLACE

// TF32, too, is computed in float32 here; half and bfloat16 are summed in float32.
CUDA_ON_CPU_API cublasStatus_t cublasGemmEx(
    cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* A, cudaDataType typeA, int lda, const void* B,
    cudaDataType typeB, int ldb, const void* beta, void* C, cudaDataType typeC, int ldc,
    cublasComputeType_t, cublasGemmAlgo_t);
CUDA_ON_CPU_API cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* A, cudaDataType typeA, int lda, long long strideA,
    const void* B, cudaDataType typeB, int ldb, long long strideB, const void* beta, void* C,
    cudaDataType typeC, int ldc, long long strideC, int batch, cublasComputeType_t,
    cublasGemmAlgo_t);
