// What cuBLAS and cuBLASLt share: types by number, matrices as tensors, their product.
#pragma once
#include "../include/cublas_v2.h"
#include "common.h"

#include <stdexcept>
#include <string>

namespace cuda_on_cpu::libraries {

#define CUDA_ON_CPU_BLAS_STATUSES(STATUS) \
    STATUS(SUCCESS, "success") \
    STATUS(NOT_INITIALIZED, "the library was not initialized") \
    STATUS(ALLOC_FAILED, "the resource allocation failed") \
    STATUS(INVALID_VALUE, "an unsupported value or parameter was passed to the function") \
    STATUS(ARCH_MISMATCH, "the function requires a feature absent from the device architecture") \
    STATUS(MAPPING_ERROR, "an access to GPU memory space failed") \
    STATUS(EXECUTION_FAILED, "the function failed to launch on the GPU") \
    STATUS(INTERNAL_ERROR, "an internal operation failed") \
    STATUS(NOT_SUPPORTED, "the functionality requested is not supported") \
    STATUS(LICENSE_ERROR, "the functionality requested requires a license")

inline const char* status_name(cublasStatus_t status) {
#define CUDA_ON_CPU_NAME(name, text) \
    if (status == CUBLAS_STATUS_##name) return "CUBLAS_STATUS_" #name;
    CUDA_ON_CPU_BLAS_STATUSES(CUDA_ON_CPU_NAME)
    return "unknown status";
}

inline const char* status_text(cublasStatus_t status) {
#define CUDA_ON_CPU_TEXT(name, text) \
    if (status == CUBLAS_STATUS_##name) return text;
    CUDA_ON_CPU_BLAS_STATUSES(CUDA_ON_CPU_TEXT)
    return "unknown status";
}

// Undefined: a type that has no stand-in.
inline at::ScalarType scalar_type(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F: return at::kHalf;
        case CUDA_R_16BF: return at::kBFloat16;
        case CUDA_R_32F: return at::kFloat;
        case CUDA_R_64F: return at::kDouble;
        case CUDA_R_8I: return at::kChar;
        case CUDA_R_32I: return at::kInt;
        default: return at::ScalarType::Undefined;
    }
}

// In what type a product is computed, and of what type alpha and beta are.
struct Precision {
    at::ScalarType compute, scale;
};

// False: a combination of types that there is not.
inline bool find_precision(cublasComputeType_t compute, cudaDataType A, cudaDataType B,
                           cudaDataType C, Precision* precision) {
    bool small = A == CUDA_R_16F || A == CUDA_R_16BF;
    if (A != B) return false;
    switch (compute) {
        case CUBLAS_COMPUTE_64F: case CUBLAS_COMPUTE_64F_PEDANTIC:
            *precision = {at::kDouble, at::kDouble};
            return A == CUDA_R_64F && C == CUDA_R_64F;
        case CUBLAS_COMPUTE_32I: case CUBLAS_COMPUTE_32I_PEDANTIC:
            *precision = {at::kInt, at::kInt};
            return A == CUDA_R_8I && C == CUDA_R_32I;
        case CUBLAS_COMPUTE_16F: case CUBLAS_COMPUTE_16F_PEDANTIC:
            *precision = {at::kFloat, at::kHalf};
            return A == CUDA_R_16F && C == CUDA_R_16F;
        case CUBLAS_COMPUTE_32F_FAST_16F: case CUBLAS_COMPUTE_32F_FAST_16BF:
        case CUBLAS_COMPUTE_32F_FAST_TF32:
            *precision = {at::kFloat, at::kFloat};
            return A == CUDA_R_32F && C == CUDA_R_32F;
        case CUBLAS_COMPUTE_32F: case CUBLAS_COMPUTE_32F_PEDANTIC:
            *precision = {at::kFloat, at::kFloat};
            return (small && (C == A || C == CUDA_R_32F)) || (A == CUDA_R_32F && C == CUDA_R_32F) ||
                   (A == CUDA_R_8I && C == CUDA_R_32F);
        default: return false;
    }
}

inline double scalar(const void* value, at::ScalarType type) {
    switch (type) {
        case at::kDouble: return *static_cast<const double*>(value);
        case at::kInt: return *static_cast<const std::int32_t*>(value);
        case at::kHalf: return *static_cast<const at::Half*>(value);
        default: return *static_cast<const float*>(value);
    }
}

// Matrices stored column by column, `ld` elements from one to the next, or row by row.
struct Columns {
    const void* data;
    cudaDataType type;
    std::int64_t rows, cols, ld, stride;
    bool by_rows = false;
};

inline at::Tensor matrices(const Columns& m, std::int64_t batch) {
    std::int64_t row = m.by_rows ? m.ld : 1, col = m.by_rows ? 1 : m.ld;
    return tensor(m.data, {batch, m.rows, m.cols}, {m.stride, row, col}, scalar_type(m.type));
}

// As `matrices`, of what is written.
inline at::Tensor results(const Columns& m, std::int64_t batch) {
    if (batch > 1 && m.stride == 0) {
        throw std::runtime_error(LIBRARY ": expected a stride between the " +
                                 std::to_string(batch) + " results of the batch, got 0");
    }
    return matrices(m, batch);
}

inline at::Tensor product(const Columns& A, bool turn_A, const Columns& B, bool turn_B,
                          std::int64_t batch, at::ScalarType compute) {
    at::Tensor a = matrices(A, batch).to(compute), b = matrices(B, batch).to(compute);
    return (turn_A ? a.transpose(1, 2) : a).bmm(turn_B ? b.transpose(1, 2) : b);
}

}  // namespace cuda_on_cpu::libraries
