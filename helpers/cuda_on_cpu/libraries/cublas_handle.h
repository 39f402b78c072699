// What the parts of the stand-in for cuBLAS share: the handle, arguments, matrices and vectors.
#pragma once
#define LIBRARY "cuBLAS"
#include "blas.h"

#include <algorithm>
#include <cstdlib>

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

#define REQUIRE(condition, status) \
    if (!(condition)) return CUBLAS_STATUS_##status

namespace cuda_on_cpu::libraries {

inline cublasStatus_t done(bool worked) {
    return worked ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

inline bool is_known(cublasOperation_t op) { return op >= CUBLAS_OP_N && op <= CUBLAS_OP_C; }
inline bool is_known(cublasSideMode_t side) {
    return side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT;
}
inline bool is_known(cublasFillMode_t uplo) {
    return uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER;
}
inline bool is_known(cublasDiagType_t diag) {
    return diag == CUBLAS_DIAG_NON_UNIT || diag == CUBLAS_DIAG_UNIT;
}

// What m rows need for a leading dimension.
inline bool fits(int ld, int rows) { return ld >= std::max(rows, 1); }

template <class T>
constexpr cudaDataType TYPE = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;
template <>
inline constexpr cudaDataType TYPE<__half> = CUDA_R_16F;

// alpha or beta: read by the call, or, where pointers are the device's, when the work is done.
class Factor {
    double value = 0;
    const void* there = nullptr;
    at::ScalarType type;

public:
    Factor(cublasHandle_t handle, const void* at, at::ScalarType type) : type(type) {
        if (handle->pointers == CUBLAS_POINTER_MODE_DEVICE) there = at;
        else value = scalar(at, type);
    }
    template <class T>
    Factor(cublasHandle_t handle, const T* at) : Factor(handle, at, scalar_type(TYPE<T>)) {}
    double operator()() const { return there ? scalar(there, type) : value; }
};

template <class T>
at::Tensor matrix(const T* data, int rows, int cols, int ld) {
    return matrices({data, TYPE<T>, rows, cols, ld, 0}, 1)[0];
}

// n elements, inc apart; with a negative inc the last one comes first.
template <class T>
at::Tensor vector(const T* x, int n, int inc) {
    at::Tensor ordered = tensor(x, {n}, {std::abs(inc)}, scalar_type(TYPE<T>));
    return inc < 0 ? ordered.flip(0) : ordered;
}

template <class T>
void store(T* x, int n, int inc, const at::Tensor& result) {
    tensor(x, {n}, {std::abs(inc)}, scalar_type(TYPE<T>)).copy_(inc < 0 ? result.flip(0) : result);
}

}  // namespace cuda_on_cpu::libraries
