// cuBLASLt: products of matrices with what follows them (libraries/cublas_lt.cpp, over PyTorch's
// operators for the CPU).
#pragma once
#include "cublas_v2.h"

typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t* cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t* cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque_t* cublasLtMatmulPreference_t;

struct cublasLtMatmulAlgo_t {
    std::uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    std::size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
};

enum cublasLtPointerMode_t { CUBLASLT_POINTER_MODE_HOST, CUBLASLT_POINTER_MODE_DEVICE };
enum cublasLtOrder_t { CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW };
enum cublasLtMatmulDescAttributes_t {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
    CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE = 13,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
};
enum cublasLtMatrixLayoutAttribute_t {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
    CUBLASLT_MATRIX_LAYOUT_COLS = 3,
    CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};
enum cublasLtMatmulPreferenceAttributes_t {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
};
enum cublasLtMatmulAlgoConfigAttributes_t {
    CUBLASLT_ALGO_CONFIG_ID = 0,
    CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
    CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,
    CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
};
// Without the ones that leave a mask of ReLU's signs.
enum cublasLtEpilogue_t {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_RELU = 2,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 2 | 4,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 32 | 4,
    CUBLASLT_EPILOGUE_GELU_AUX = 32 | 128,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 32 | 128 | 4,
    CUBLASLT_EPILOGUE_DGELU = 64 | 128,
    CUBLASLT_EPILOGUE_DGELU_BGRAD = 64 | 128 | 16,
    CUBLASLT_EPILOGUE_BGRADA = 256,
    CUBLASLT_EPILOGUE_BGRADB = 512,
};

#define CUDA_ON_CPU_LT CUDA_ON_CPU_API cublasStatus_t
CUDA_ON_CPU_API std::size_t cublasLtGetVersion();
CUDA_ON_CPU_API const char* cublasLtGetStatusName(cublasStatus_t);
CUDA_ON_CPU_API const char* cublasLtGetStatusString(cublasStatus_t);
CUDA_ON_CPU_LT cublasLtCreate(cublasLtHandle_t*);
CUDA_ON_CPU_LT cublasLtDestroy(cublasLtHandle_t);
CUDA_ON_CPU_LT cublasLtMatmulDescCreate(cublasLtMatmulDesc_t*, cublasComputeType_t,
                                        cudaDataType scale);
CUDA_ON_CPU_LT cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
CUDA_ON_CPU_LT cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, std::size_t bytes);
CUDA_ON_CPU_LT cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t*, cudaDataType, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld);
CUDA_ON_CPU_LT cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
CUDA_ON_CPU_LT cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t,
                                                cublasLtMatrixLayoutAttribute_t, const void*,
                                                std::size_t bytes);
CUDA_ON_CPU_LT cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t*);
CUDA_ON_CPU_LT cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
CUDA_ON_CPU_LT cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t bytes);
CUDA_ON_CPU_LT cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
    cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D, cublasLtMatmulPreference_t, int requested,
    cublasLtMatmulHeuristicResult_t[], int* returned);
CUDA_ON_CPU_LT cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void*,
                                                    std::size_t bytes, std::size_t* written);
CUDA_ON_CPU_LT cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t, const void* B,
                              cublasLtMatrixLayout_t, const void* beta, const void* C,
                              cublasLtMatrixLayout_t, void* D, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t*, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t);
#undef CUDA_ON_CPU_LT
