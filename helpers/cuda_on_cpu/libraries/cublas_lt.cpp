// cuBLASLt over PyTorch's operators.
#include "../include/cublasLt.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>

#include <cstring>

#define LIBRARY "cuBLASLt"
#include "blas.h"
#include "common.h"

using namespace cuda_on_cpu::libraries;

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cudaDataType scale;
    std::int32_t pointers = CUBLASLT_POINTER_MODE_HOST;
    std::int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
    std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;
    std::int64_t bias_stride = 0;
    std::int32_t bias_type = -1;  // the result's
    void* aux = nullptr;
    std::int64_t aux_ld = 0, aux_stride = 0;
};

struct cublasLtMatrixLayoutOpaque_t {
    std::uint32_t type;
    std::uint64_t rows, cols;
    std::int64_t ld;
    std::int32_t order = CUBLASLT_ORDER_COL, batch = 1;
    std::int64_t stride = 0;
};

struct cublasLtMatmulPreferenceOpaque_t {
    std::uint32_t search = 0;
    std::uint64_t workspace_bytes = 0;
};

#define REQUIRE(condition, status) \
    if (!(condition)) return CUBLAS_STATUS_##status

// ---------------------------------------------------------------- handle and descriptors

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) { return status_name(status); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return status_text(status); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    REQUIRE(handle, INVALID_VALUE);
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
static cublasStatus_t destroy(T* old) {
    delete old;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t old) { return destroy(old); }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t old) { return destroy(old); }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t old) { return destroy(old); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t old) {
    return destroy(old);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType scale) {
    REQUIRE(made, INVALID_VALUE);
    *made = new cublasLtMatmulDescOpaque_t{compute, scale};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
    REQUIRE(made, INVALID_VALUE);
    *made = new cublasLtMatrixLayoutOpaque_t{std::uint32_t(type), rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
    REQUIRE(made, INVALID_VALUE);
    *made = new cublasLtMatmulPreferenceOpaque_t;
    return CUBLAS_STATUS_SUCCESS;
}

// An attribute's value comes with its size, which must be the attribute's.
template <class T>
static cublasStatus_t set(T& member, const void* value, std::size_t bytes) {
    REQUIRE(value && bytes == sizeof(T), INVALID_VALUE);
    std::memcpy(&member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
    REQUIRE(desc, INVALID_VALUE);
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_POINTER_MODE: return set(desc->pointers, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSA: return set(desc->transa, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB: return set(desc->transb, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(desc->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(desc->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return set(desc->bias_stride, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(desc->bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(desc->aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(desc->aux_ld, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
            return set(desc->aux_stride, value, bytes);
        default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
    REQUIRE(layout, INVALID_VALUE);
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE: return set(layout->type, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ORDER: return set(layout->order, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ROWS: return set(layout->rows, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_COLS: return set(layout->cols, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_LD: return set(layout->ld, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(layout->batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(layout->stride, value, bytes);
        default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
    REQUIRE(preference, INVALID_VALUE);
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return set(preference->search, value, bytes);
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return set(preference->workspace_bytes, value, bytes);
        default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

// ---------------------------------------------------------------- product

static Columns columns(cublasLtMatrixLayout_t as, const void* data) {
    return {data, cudaDataType(as->type), std::int64_t(as->rows), std::int64_t(as->cols), as->ld,
            as->stride, as->order == CUBLASLT_ORDER_ROW};
}

static bool is_dense_enough(const Columns& m) { return m.ld >= (m.by_rows ? m.cols : m.rows); }

static cublasStatus_t check(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t A_as,
                            cublasLtMatrixLayout_t B_as, cublasLtMatrixLayout_t C_as,
                            cublasLtMatrixLayout_t D_as, Precision* precision) {
    REQUIRE(desc && A_as && B_as && C_as && D_as, INVALID_VALUE);
    Columns A = columns(A_as, nullptr), B = columns(B_as, nullptr);
    Columns C = columns(C_as, nullptr), D = columns(D_as, nullptr);
    for (const Columns& m : {A, B, C, D}) REQUIRE(is_dense_enough(m), INVALID_VALUE);
    REQUIRE(A_as->batch == D_as->batch && B_as->batch == D_as->batch, INVALID_VALUE);
    REQUIRE(C_as->batch == D_as->batch, INVALID_VALUE);
    std::int64_t m = desc->transa ? A.cols : A.rows, k = desc->transa ? A.rows : A.cols;
    std::int64_t n = desc->transb ? B.rows : B.cols;
    REQUIRE(k == (desc->transb ? B.cols : B.rows), INVALID_VALUE);
    REQUIRE(D.rows == m && D.cols == n && C.rows == m && C.cols == n, INVALID_VALUE);
    REQUIRE(find_precision(desc->compute, A.type, B.type, D.type, precision), NOT_SUPPORTED);
    REQUIRE(C.type == D.type && scalar_type(desc->scale) == precision->scale, NOT_SUPPORTED);
    bool has_bias = desc->epilogue & (CUBLASLT_EPILOGUE_BIAS | 16 | 256 | 512);
    REQUIRE(!(desc->epilogue & 128) || (desc->aux && desc->aux_ld >= m), INVALID_VALUE);
    REQUIRE(!has_bias || desc->bias, INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

// There is one way to do it, number 0, and it needs no workspace.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t A,
    cublasLtMatrixLayout_t B, cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
    cublasLtMatmulPreference_t preference, int requested, cublasLtMatmulHeuristicResult_t found[],
    int* returned) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(preference && requested > 0 && found && returned, INVALID_VALUE);
    *returned = 0;
    Precision precision;
    if (auto status = check(desc, A, B, C, D, &precision)) return status;
    *returned = 1;
    found[0] = {{}, 0, CUBLAS_STATUS_SUCCESS, 1, {}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
    std::uint32_t number = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1 : 0;
    REQUIRE(algorithm && value && bytes >= sizeof number, INVALID_VALUE);
    std::memcpy(value, &number, sizeof number);
    if (written) *written = sizeof number;
    return CUBLAS_STATUS_SUCCESS;
}

// What follows the product; GELU is the one with tanh. `sum`: (batch, m, n).
static at::Tensor follow(const cublasLtMatmulDescOpaque_t& desc, at::Tensor sum,
                         cudaDataType result_type) {
    auto type = desc.bias_type < 0 ? result_type : cudaDataType(desc.bias_type);
    std::int64_t batch = sum.size(0), m = sum.size(1), n = sum.size(2);
    auto of_rows = [&](std::int64_t rows) {
        return tensor(desc.bias, {batch, rows, 1}, {desc.bias_stride, 1, 1}, scalar_type(type));
    };
    auto aux = [&] { return matrices({desc.aux, result_type, m, n, desc.aux_ld, desc.aux_stride}, batch); };
    if (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) sum = sum + of_rows(m).to(sum.scalar_type());
    switch (desc.epilogue & ~std::uint32_t(CUBLASLT_EPILOGUE_BIAS)) {
        case CUBLASLT_EPILOGUE_RELU: return sum.relu();
        case CUBLASLT_EPILOGUE_GELU: return ops::gelu::call(sum, "tanh");
        case CUBLASLT_EPILOGUE_GELU_AUX: aux().copy_(sum); return ops::gelu::call(sum, "tanh");
        case CUBLASLT_EPILOGUE_DGELU: return ops::gelu_backward::call(sum, aux().to(sum.scalar_type()), "tanh");
        case CUBLASLT_EPILOGUE_DGELU_BGRAD:
            sum = ops::gelu_backward::call(sum, aux().to(sum.scalar_type()), "tanh");
            of_rows(m).copy_(sum.sum({2}, true));
            return sum;
        default: return sum;
    }
}

static bool is_known(std::uint32_t epilogue) {
    for (auto known : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS,
                       CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU,
                       CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
                       CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                       CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
                       CUBLASLT_EPILOGUE_BGRADB})
        if (epilogue == known) return true;
    return false;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t A_as, const void* B,
                              cublasLtMatrixLayout_t B_as, const void* beta, const void* C,
                              cublasLtMatrixLayout_t C_as, void* D, cublasLtMatrixLayout_t D_as,
                              const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t stream) {
    REQUIRE(handle, NOT_INITIALIZED);
    REQUIRE(alpha && beta && A && B && D, INVALID_VALUE);
    Precision precision;
    if (auto status = check(desc, A_as, B_as, C_as, D_as, &precision)) return status;
    REQUIRE(is_known(desc->epilogue), NOT_SUPPORTED);
    double a = scalar(alpha, precision.scale), b = scalar(beta, precision.scale);
    REQUIRE(b == 0 || C, INVALID_VALUE);
    auto work = [=, how = *desc, batch = D_as->batch, left = columns(A_as, A),
                 right = columns(B_as, B), old = columns(C_as, C), out = columns(D_as, D)] {
        at::Tensor sum = product(left, how.transa, right, how.transb, batch, precision.compute);
        if (a != 1) sum = sum * a;
        if (b != 0) sum = sum + matrices(old, batch).to(sum.scalar_type()) * b;
        results(out, batch).copy_(follow(how, sum, out.type));
        // Gradients of a bias: sums over k of the operand that was the layer's gradient.
        auto sums = [&](const Columns& operand, bool turned, std::int64_t over, std::int64_t count) {
            at::Tensor all = matrices(operand, batch).to(sum.scalar_type());
            at::Tensor result = (turned ? all.transpose(1, 2) : all).sum({over});
            auto type = how.bias_type < 0 ? out.type : cudaDataType(how.bias_type);
            tensor(how.bias, {batch, count}, {how.bias_stride, 1}, scalar_type(type)).copy_(result);
        };
        if (how.epilogue == CUBLASLT_EPILOGUE_BGRADA) sums(left, how.transa, 2, out.rows);
        if (how.epilogue == CUBLASLT_EPILOGUE_BGRADB) sums(right, how.transb, 1, out.cols);
    };
    return do_in_stream(stream, work) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
