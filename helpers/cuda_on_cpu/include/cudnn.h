// cuDNN's legacy calls: the part that libraries/cudnn.cpp has, over PyTorch's operators for the CPU.
#pragma once
#include <cstddef>

#include "cuda_on_cpu/runtime.h"
#include "library_types.h"

#define CUDNN_MAJOR 9
#define CUDNN_MINOR 19
#define CUDNN_PATCHLEVEL 0
#define CUDNN_VERSION 91900

typedef struct cudnnContext* cudnnHandle_t;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct* cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct* cudnnConvolutionDescriptor_t;
typedef struct cudnnActivationStruct* cudnnActivationDescriptor_t;
typedef struct cudnnPoolingStruct* cudnnPoolingDescriptor_t;

enum cudnnStatus_t {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_BAD_PARAM_NULL_POINTER = 2002,
    CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH = 2008,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_INTERNAL_ERROR = 4000,
    CUDNN_STATUS_EXECUTION_FAILED = 5000,
};
enum cudnnDataType_t {
    CUDNN_DATA_FLOAT = 0,
    CUDNN_DATA_DOUBLE = 1,
    CUDNN_DATA_HALF = 2,
    CUDNN_DATA_BFLOAT16 = 9,
};
enum cudnnTensorFormat_t { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC };
enum cudnnMathType_t {
    CUDNN_DEFAULT_MATH,
    CUDNN_TENSOR_OP_MATH,
    CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
    CUDNN_FMA_MATH,
};
enum cudnnDeterminism_t { CUDNN_NON_DETERMINISTIC, CUDNN_DETERMINISTIC };
enum cudnnNanPropagation_t { CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN };
enum cudnnConvolutionMode_t { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION };
enum cudnnConvolutionFwdAlgo_t {
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
    CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
    CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
    CUDNN_CONVOLUTION_FWD_ALGO_FFT,
    CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
};
enum cudnnConvolutionBwdDataAlgo_t {
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
};
enum cudnnConvolutionBwdFilterAlgo_t {
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
};
enum cudnnActivationMode_t {
    CUDNN_ACTIVATION_SIGMOID,
    CUDNN_ACTIVATION_RELU,
    CUDNN_ACTIVATION_TANH,
    CUDNN_ACTIVATION_CLIPPED_RELU,
    CUDNN_ACTIVATION_ELU,
    CUDNN_ACTIVATION_IDENTITY,
    CUDNN_ACTIVATION_SWISH,
};
enum cudnnPoolingMode_t {
    CUDNN_POOLING_MAX,
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
    CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
    CUDNN_POOLING_MAX_DETERMINISTIC,
};
enum cudnnSoftmaxAlgorithm_t { CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG };
enum cudnnSoftmaxMode_t { CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL };
enum cudnnBatchNormMode_t {
    CUDNN_BATCHNORM_PER_ACTIVATION,
    CUDNN_BATCHNORM_SPATIAL,
    CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
};

#define CUDA_ON_CPU_DNN CUDA_ON_CPU_API cudnnStatus_t

// ---------------------------------------------------------------- library and handle

CUDA_ON_CPU_API std::size_t cudnnGetVersion();
CUDA_ON_CPU_API std::size_t cudnnGetCudartVersion();
CUDA_ON_CPU_API const char* cudnnGetErrorString(cudnnStatus_t);
CUDA_ON_CPU_API void cudnnGetLastErrorString(char* message, std::size_t max_size);
CUDA_ON_CPU_DNN cudnnCreate(cudnnHandle_t*);
CUDA_ON_CPU_DNN cudnnDestroy(cudnnHandle_t);
CUDA_ON_CPU_DNN cudnnSetStream(cudnnHandle_t, cudaStream_t);
CUDA_ON_CPU_DNN cudnnGetStream(cudnnHandle_t, cudaStream_t*);

// ---------------------------------------------------------------- descriptors

#define CUDA_ON_CPU_DESCRIPTOR(Name) \
    CUDA_ON_CPU_DNN cudnnCreate##Name##Descriptor(cudnn##Name##Descriptor_t*); \
    CUDA_ON_CPU_DNN cudnnDestroy##Name##Descriptor(cudnn##Name##Descriptor_t);
CUDA_ON_CPU_DESCRIPTOR(Tensor)
CUDA_ON_CPU_DESCRIPTOR(Filter)
CUDA_ON_CPU_DESCRIPTOR(Convolution)
CUDA_ON_CPU_DESCRIPTOR(Activation)
CUDA_ON_CPU_DESCRIPTOR(Pooling)
#undef CUDA_ON_CPU_DESCRIPTOR

CUDA_ON_CPU_DNN cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t, cudnnTensorFormat_t,
                                           cudnnDataType_t, int n, int c, int h, int w);
CUDA_ON_CPU_DNN cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t, cudnnDataType_t, int n,
                                             int c, int h, int w, int nStride, int cStride,
                                             int hStride, int wStride);
CUDA_ON_CPU_DNN cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t, cudnnDataType_t, int dims,
                                           const int sizes[], const int strides[]);
CUDA_ON_CPU_DNN cudnnGetTensor4dDescriptor(cudnnTensorDescriptor_t, cudnnDataType_t*, int* n,
                                           int* c, int* h, int* w, int* nStride, int* cStride,
                                           int* hStride, int* wStride);
CUDA_ON_CPU_DNN cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t, cudnnDataType_t,
                                           cudnnTensorFormat_t, int k, int c, int h, int w);
CUDA_ON_CPU_DNN cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t, int pad_h, int pad_w,
                                                int stride_h, int stride_w, int dilation_h,
                                                int dilation_w, cudnnConvolutionMode_t,
                                                cudnnDataType_t compute);
CUDA_ON_CPU_DNN cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t, int groups);
CUDA_ON_CPU_DNN cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t);
CUDA_ON_CPU_DNN cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t,
                                                      cudnnTensorDescriptor_t,
                                                      cudnnFilterDescriptor_t, int* n, int* c,
                                                      int* h, int* w);
CUDA_ON_CPU_DNN cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t,
                                             cudnnNanPropagation_t, double coef);
CUDA_ON_CPU_DNN cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t,
                                            cudnnNanPropagation_t, int window_h, int window_w,
                                            int pad_h, int pad_w, int stride_h, int stride_w);
CUDA_ON_CPU_DNN cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t,
                                                  cudnnTensorDescriptor_t, int* n, int* c, int* h,
                                                  int* w);

// ---------------------------------------------------------------- convolution

// What each algorithm was found to take. Here there is one way, and no workspace.
#define CUDA_ON_CPU_PERF(Kind) \
    struct cudnnConvolution##Kind##AlgoPerf_t { \
        cudnnConvolution##Kind##Algo_t algo; \
        cudnnStatus_t status; \
        float time; \
        std::size_t memory; \
        cudnnDeterminism_t determinism; \
        cudnnMathType_t mathType; \
        int reserved[3]; \
    };
CUDA_ON_CPU_PERF(Fwd)
CUDA_ON_CPU_PERF(BwdData)
CUDA_ON_CPU_PERF(BwdFilter)
#undef CUDA_ON_CPU_PERF

// Each with its descriptors in the order of its call.
#define CUDA_ON_CPU_ALGORITHMS(Name, Kind, A, B, C) \
    CUDA_ON_CPU_DNN cudnnGetConvolution##Name##Algorithm_v7( \
        cudnnHandle_t, A, B, cudnnConvolutionDescriptor_t, C, int requested, int* returned, \
        cudnnConvolution##Kind##AlgoPerf_t*); \
    CUDA_ON_CPU_DNN cudnnFindConvolution##Name##Algorithm( \
        cudnnHandle_t, A, B, cudnnConvolutionDescriptor_t, C, int requested, int* returned, \
        cudnnConvolution##Kind##AlgoPerf_t*); \
    CUDA_ON_CPU_DNN cudnnGetConvolution##Name##WorkspaceSize( \
        cudnnHandle_t, A, B, cudnnConvolutionDescriptor_t, C, cudnnConvolution##Kind##Algo_t, \
        std::size_t*);
CUDA_ON_CPU_ALGORITHMS(Forward, Fwd, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                       cudnnTensorDescriptor_t)
CUDA_ON_CPU_ALGORITHMS(BackwardData, BwdData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
                       cudnnTensorDescriptor_t)
CUDA_ON_CPU_ALGORITHMS(BackwardFilter, BwdFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
                       cudnnFilterDescriptor_t)
#undef CUDA_ON_CPU_ALGORITHMS

CUDA_ON_CPU_DNN cudnnConvolutionForward(
    cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t, const void* x,
    cudnnFilterDescriptor_t, const void* w, cudnnConvolutionDescriptor_t,
    cudnnConvolutionFwdAlgo_t, void* workspace, std::size_t workspace_bytes, const void* beta,
    cudnnTensorDescriptor_t, void* y);
CUDA_ON_CPU_DNN cudnnConvolutionBiasActivationForward(
    cudnnHandle_t, const void* alpha1, cudnnTensorDescriptor_t, const void* x,
    cudnnFilterDescriptor_t, const void* w, cudnnConvolutionDescriptor_t,
    cudnnConvolutionFwdAlgo_t, void* workspace, std::size_t workspace_bytes, const void* alpha2,
    cudnnTensorDescriptor_t, const void* z, cudnnTensorDescriptor_t, const void* bias,
    cudnnActivationDescriptor_t, cudnnTensorDescriptor_t, void* y);
CUDA_ON_CPU_DNN cudnnConvolutionBackwardData(
    cudnnHandle_t, const void* alpha, cudnnFilterDescriptor_t, const void* w,
    cudnnTensorDescriptor_t, const void* dy, cudnnConvolutionDescriptor_t,
    cudnnConvolutionBwdDataAlgo_t, void* workspace, std::size_t workspace_bytes, const void* beta,
    cudnnTensorDescriptor_t, void* dx);
CUDA_ON_CPU_DNN cudnnConvolutionBackwardFilter(
    cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t, const void* x,
    cudnnTensorDescriptor_t, const void* dy, cudnnConvolutionDescriptor_t,
    cudnnConvolutionBwdFilterAlgo_t, void* workspace, std::size_t workspace_bytes,
    const void* beta, cudnnFilterDescriptor_t, void* dw);
CUDA_ON_CPU_DNN cudnnConvolutionBackwardBias(cudnnHandle_t, const void* alpha,
                                             cudnnTensorDescriptor_t, const void* dy,
                                             const void* beta, cudnnTensorDescriptor_t, void* db);

// ---------------------------------------------------------------- element by element, windows, rows

CUDA_ON_CPU_DNN cudnnAddTensor(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t,
                               const void* A, const void* beta, cudnnTensorDescriptor_t, void* C);
CUDA_ON_CPU_DNN cudnnActivationForward(cudnnHandle_t, cudnnActivationDescriptor_t,
                                       const void* alpha, cudnnTensorDescriptor_t, const void* x,
                                       const void* beta, cudnnTensorDescriptor_t, void* y);
CUDA_ON_CPU_DNN cudnnActivationBackward(
    cudnnHandle_t, cudnnActivationDescriptor_t, const void* alpha, cudnnTensorDescriptor_t,
    const void* y, cudnnTensorDescriptor_t, const void* dy, cudnnTensorDescriptor_t, const void* x,
    const void* beta, cudnnTensorDescriptor_t, void* dx);
CUDA_ON_CPU_DNN cudnnPoolingForward(cudnnHandle_t, cudnnPoolingDescriptor_t, const void* alpha,
                                    cudnnTensorDescriptor_t, const void* x, const void* beta,
                                    cudnnTensorDescriptor_t, void* y);
CUDA_ON_CPU_DNN cudnnPoolingBackward(
    cudnnHandle_t, cudnnPoolingDescriptor_t, const void* alpha, cudnnTensorDescriptor_t,
    const void* y, cudnnTensorDescriptor_t, const void* dy, cudnnTensorDescriptor_t, const void* x,
    const void* beta, cudnnTensorDescriptor_t, void* dx);
CUDA_ON_CPU_DNN cudnnSoftmaxForward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t,
                                    const void* alpha, cudnnTensorDescriptor_t, const void* x,
                                    const void* beta, cudnnTensorDescriptor_t, void* y);
CUDA_ON_CPU_DNN cudnnSoftmaxBackward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t,
                                     const void* alpha, cudnnTensorDescriptor_t, const void* y,
                                     cudnnTensorDescriptor_t, const void* dy, const void* beta,
                                     cudnnTensorDescriptor_t, void* dx);

// ---------------------------------------------------------------- batch norm, of channels only

CUDA_ON_CPU_DNN cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t, cudnnBatchNormMode_t, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t, const void* x, cudnnTensorDescriptor_t, void* y,
    cudnnTensorDescriptor_t, const void* scale, const void* bias, double factor,
    void* running_mean, void* running_variance, double epsilon, void* save_mean,
    void* save_inv_variance);
CUDA_ON_CPU_DNN cudnnBatchNormalizationForwardInference(
    cudnnHandle_t, cudnnBatchNormMode_t, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t, const void* x, cudnnTensorDescriptor_t, void* y,
    cudnnTensorDescriptor_t, const void* scale, const void* bias, const void* mean,
    const void* variance, double epsilon);
CUDA_ON_CPU_DNN cudnnBatchNormalizationBackward(
    cudnnHandle_t, cudnnBatchNormMode_t, const void* alpha_data, const void* beta_data,
    const void* alpha_param, const void* beta_param, cudnnTensorDescriptor_t, const void* x,
    cudnnTensorDescriptor_t, const void* dy, cudnnTensorDescriptor_t, void* dx,
    cudnnTensorDescriptor_t, const void* scale, void* dscale, void* dbias, double epsilon,
    const void* saved_mean, const void* saved_inv_variance);
#undef CUDA_ON_CPU_DNN
