// cuDNN's legacy calls over PyTorch's operators.
#include "../include/cudnn.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>

#include <chrono>
#include <cstring>
#include <vector>

#define LIBRARY "cuDNN"
#include "common.h"

using namespace cuda_on_cpu::libraries;
using at::Tensor;
using Sizes = std::vector<std::int64_t>;

struct cudnnContext {
    cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
    at::ScalarType type = at::ScalarType::Undefined;
    Sizes sizes, strides;
};
struct cudnnFilterStruct : cudnnTensorStruct {};
struct cudnnConvolutionStruct {
    Sizes padding, stride, dilation;
    cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
    std::int64_t groups = 1;
};
struct cudnnActivationStruct {
    cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
    double coef = 0;
};
struct cudnnPoolingStruct {
    cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
    Sizes window, padding, stride;
};

// ---------------------------------------------------------------- statuses

static thread_local const char* last_error = "";

#define REQUIRE(condition, status) \
    if (!(condition)) return last_error = "expected " #condition, CUDNN_STATUS_##status

const char* cudnnGetErrorString(cudnnStatus_t status) {
#define NAME(name) \
    if (status == CUDNN_STATUS_##name) return "CUDNN_STATUS_" #name;
    NAME(SUCCESS)
    NAME(NOT_INITIALIZED)
    NAME(BAD_PARAM)
    NAME(BAD_PARAM_NULL_POINTER)
    NAME(BAD_PARAM_SHAPE_MISMATCH)
    NAME(NOT_SUPPORTED)
    NAME(INTERNAL_ERROR)
    NAME(EXECUTION_FAILED)
#undef NAME
    return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char* message, std::size_t max_size) {
    if (!message || !max_size) return;
    std::strncpy(message, last_error, max_size - 1);
    message[max_size - 1] = 0;
}

static cudnnStatus_t run(cudnnHandle_t handle, std::function<void()> work) {
    return do_in_stream(handle->stream, std::move(work)) ? CUDNN_STATUS_SUCCESS
                                                         : CUDNN_STATUS_EXECUTION_FAILED;
}

// ---------------------------------------------------------------- library and handle

std::size_t cudnnGetVersion() { return CUDNN_VERSION; }
std::size_t cudnnGetCudartVersion() { return 13000; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    REQUIRE(handle, BAD_PARAM);
    *handle = new cudnnContext;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    REQUIRE(handle, BAD_PARAM);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
    REQUIRE(handle && stream, BAD_PARAM);
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

// ---------------------------------------------------------------- descriptors

#define DESCRIPTOR(Name) \
    cudnnStatus_t cudnnCreate##Name##Descriptor(cudnn##Name##Descriptor_t* made) { \
        REQUIRE(made, BAD_PARAM); \
        *made = new cudnn##Name##Struct; \
        return CUDNN_STATUS_SUCCESS; \
    } \
    cudnnStatus_t cudnnDestroy##Name##Descriptor(cudnn##Name##Descriptor_t old) { \
        delete old; \
        return CUDNN_STATUS_SUCCESS; \
    }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(Pooling)
#undef DESCRIPTOR

// Undefined: a type that has no stand-in.
static at::ScalarType scalar_type(cudnnDataType_t type) {
    switch (type) {
        case CUDNN_DATA_FLOAT: return at::kFloat;
        case CUDNN_DATA_DOUBLE: return at::kDouble;
        case CUDNN_DATA_HALF: return at::kHalf;
        case CUDNN_DATA_BFLOAT16: return at::kBFloat16;
        default: return at::ScalarType::Undefined;
    }
}

static cudnnStatus_t describe(cudnnTensorStruct* made, cudnnDataType_t type, Sizes sizes,
                              Sizes strides) {
    REQUIRE(made, BAD_PARAM);
    REQUIRE(std::min_element(sizes.begin(), sizes.end())[0] > 0, BAD_PARAM);
    REQUIRE(scalar_type(type) != at::ScalarType::Undefined, NOT_SUPPORTED);
    made->type = scalar_type(type);
    made->sizes = std::move(sizes);
    made->strides = std::move(strides);
    return CUDNN_STATUS_SUCCESS;
}

static Sizes dense(cudnnTensorFormat_t format, std::int64_t c, std::int64_t h, std::int64_t w) {
    return format == CUDNN_TENSOR_NHWC ? Sizes{h * w * c, 1, w * c, c} : Sizes{c * h * w, h * w, w, 1};
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t made, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    return describe(made, type, {n, c, h, w}, dense(format, c, h, w));
}
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t made, cudnnDataType_t type,
                                           int n, int c, int h, int w, int nStride, int cStride,
                                           int hStride, int wStride) {
    return describe(made, type, {n, c, h, w}, {nStride, cStride, hStride, wStride});
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t made, cudnnDataType_t type,
                                         int dims, const int sizes[], const int strides[]) {
    REQUIRE(dims >= 1 && dims <= 8 && sizes && strides, BAD_PARAM);
    return describe(made, type, Sizes(sizes, sizes + dims), Sizes(strides, strides + dims));
}
cudnnStatus_t cudnnGetTensor4dDescriptor(cudnnTensorDescriptor_t known, cudnnDataType_t* type,
                                         int* n, int* c, int* h, int* w, int* nStride,
                                         int* cStride, int* hStride, int* wStride) {
    REQUIRE(known && known->sizes.size() == 4, BAD_PARAM);
    *type = known->type == at::kFloat    ? CUDNN_DATA_FLOAT
            : known->type == at::kDouble ? CUDNN_DATA_DOUBLE
            : known->type == at::kHalf   ? CUDNN_DATA_HALF
                                         : CUDNN_DATA_BFLOAT16;
    int* sizes[] = {n, c, h, w};
    int* strides[] = {nStride, cStride, hStride, wStride};
    for (int d = 0; d < 4; d++) *sizes[d] = known->sizes[d], *strides[d] = known->strides[d];
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t made, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    return describe(made, type, {k, c, h, w}, dense(format, c, h, w));
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t made, int pad_h,
                                              int pad_w, int stride_h, int stride_w,
                                              int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t) {
    REQUIRE(made, BAD_PARAM);
    REQUIRE(pad_h >= 0 && pad_w >= 0, BAD_PARAM);
    REQUIRE(stride_h > 0 && stride_w > 0 && dilation_h > 0 && dilation_w > 0, BAD_PARAM);
    made->padding = {pad_h, pad_w};
    made->stride = {stride_h, stride_w};
    made->dilation = {dilation_h, dilation_w};
    made->mode = mode;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t made, int groups) {
    REQUIRE(made && groups > 0, BAD_PARAM);
    made->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t made, cudnnMathType_t math) {
    REQUIRE(made, BAD_PARAM);
    made->math = math;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t made,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t,
                                           double coef) {
    REQUIRE(made, BAD_PARAM);
    *made = {mode, coef};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t made, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t, int window_h, int window_w,
                                          int pad_h, int pad_w, int stride_h, int stride_w) {
    REQUIRE(made && window_h > 0 && window_w > 0 && stride_h > 0 && stride_w > 0, BAD_PARAM);
    *made = {mode, {window_h, window_w}, {pad_h, pad_w}, {stride_h, stride_w}};
    return CUDNN_STATUS_SUCCESS;
}

static Tensor known(const cudnnTensorStruct* as, const void* data) {
    return tensor(data, as->sizes, as->strides, as->type);
}

// In the type to compute in: float, or double.
static Tensor read(const cudnnTensorStruct* as, const void* data) {
    return known(as, data).to(as->type == at::kDouble ? at::kDouble : at::kFloat);
}

// alpha and beta are double beside tensors of double, and float beside all others.
static double scalar(const cudnnTensorStruct* beside, const void* value) {
    return beside->type == at::kDouble ? *static_cast<const double*>(value)
                                       : *static_cast<const float*>(value);
}

static bool are_set(std::initializer_list<const cudnnTensorStruct*> all) {
    for (auto* one : all)
        if (!one || one->sizes.empty()) return false;
    return true;
}

// ---------------------------------------------------------------- convolution

// Empty: the filter does not fit the image.
static Sizes output_sizes(const cudnnConvolutionStruct& conv, const Sizes& x, const Sizes& w) {
    if (x.size() != 4 || w.size() != 4 || x[1] != w[1] * conv.groups || w[0] % conv.groups) return {};
    Sizes out{x[0], w[0]};
    for (int d = 0; d < 2; d++) {
        std::int64_t room = x[2 + d] + 2 * conv.padding[d] - conv.dilation[d] * (w[2 + d] - 1) - 1;
        if (room < 0) return {};
        out.push_back(room / conv.stride[d] + 1);
    }
    return out;
}

static cudnnStatus_t check(cudnnHandle_t handle, cudnnConvolutionDescriptor_t conv,
                           const cudnnTensorStruct* x, const cudnnTensorStruct* w,
                           const cudnnTensorStruct* y) {
    REQUIRE(handle && conv && conv->stride.size() == 2, BAD_PARAM);
    REQUIRE(are_set({x, w, y}) && x->type == w->type && x->type == y->type, BAD_PARAM);
    Sizes output = output_sizes(*conv, x->sizes, w->sizes);
    REQUIRE(!output.empty() && y->sizes == output, BAD_PARAM);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t conv,
                                                    cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int* n, int* c,
                                                    int* h, int* width) {
    REQUIRE(conv && conv->stride.size() == 2 && are_set({x, w}), BAD_PARAM);
    Sizes output = output_sizes(*conv, x->sizes, w->sizes);
    REQUIRE(!output.empty(), BAD_PARAM);
    *n = output[0], *c = output[1], *h = output[2], *width = output[3];
    return CUDNN_STATUS_SUCCESS;
}

// A true convolution turns the filter around; networks' "convolution" is a cross-correlation.
static Tensor turned(const Tensor& filter, const cudnnConvolutionStruct& conv) {
    return conv.mode == CUDNN_CONVOLUTION ? filter.flip({2, 3}) : filter;
}

static Tensor forward(const cudnnConvolutionStruct& conv, const Tensor& x, const Tensor& w) {
    return ops::convolution::call(x, turned(w, conv), {}, symbolic(conv.stride),
                                  symbolic(conv.padding), symbolic(conv.dilation), false,
                                  symbolic({0, 0}), conv.groups);
}

// Of x, or of the filter; the other one is needed, this one's sizes only.
static Tensor backward(const cudnnConvolutionStruct& conv, const Tensor& dy, const Tensor& x,
                       const Tensor& w, bool of_x) {
    auto [dx, dw, db] = ops::convolution_backward::call(
        dy, x, turned(w, conv), {}, symbolic(conv.stride), symbolic(conv.padding),
        symbolic(conv.dilation), false, symbolic({0, 0}), conv.groups, {of_x, !of_x, false});
    return of_x ? dx : turned(dw, conv);
}

static Tensor sized(const cudnnTensorStruct* as) {
    return zeros(as->sizes, as->type == at::kDouble ? at::kDouble : at::kFloat);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x_as, const void* x,
                                      cudnnFilterDescriptor_t w_as, const void* w,
                                      cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algo, void*, std::size_t,
                                      const void* beta, cudnnTensorDescriptor_t y_as, void* y) {
    if (auto status = check(handle, conv, x_as, w_as, y_as)) return status;
    REQUIRE(alpha && beta && x && w && y, BAD_PARAM);
    REQUIRE(algo >= 0 && algo < CUDNN_CONVOLUTION_FWD_ALGO_COUNT, BAD_PARAM);
    REQUIRE(algo != CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, NOT_SUPPORTED);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, how = *conv, x_as = *x_as, w_as = *w_as, y_as = *y_as] {
        blend(known(&y_as, y), forward(how, read(&x_as, x), read(&w_as, w)), a, b);
    });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w_as, const void* w,
                                           cudnnTensorDescriptor_t dy_as, const void* dy,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void*, std::size_t,
                                           const void* beta, cudnnTensorDescriptor_t dx_as,
                                           void* dx) {
    if (auto status = check(handle, conv, dx_as, w_as, dy_as)) return status;
    REQUIRE(alpha && beta && w && dy && dx, BAD_PARAM);
    REQUIRE(algo >= 0 && algo < CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, BAD_PARAM);
    double a = scalar(dx_as, alpha), b = scalar(dx_as, beta);
    return run(handle, [=, how = *conv, dx_as = *dx_as, w_as = *w_as, dy_as = *dy_as] {
        Tensor gradient = backward(how, read(&dy_as, dy), sized(&dx_as), read(&w_as, w), true);
        blend(known(&dx_as, dx), gradient, a, b);
    });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x_as, const void* x,
                                             cudnnTensorDescriptor_t dy_as, const void* dy,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void*,
                                             std::size_t, const void* beta,
                                             cudnnFilterDescriptor_t dw_as, void* dw) {
    if (auto status = check(handle, conv, x_as, dw_as, dy_as)) return status;
    REQUIRE(alpha && beta && x && dy && dw, BAD_PARAM);
    REQUIRE(algo >= 0 && algo < CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, how = *conv, x_as = *x_as, dw_as = *dw_as, dy_as = *dy_as] {
        Tensor gradient = backward(how, read(&dy_as, dy), read(&x_as, x), sized(&dw_as), false);
        blend(known(&dw_as, dw), gradient, a, b);
    });
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                           cudnnTensorDescriptor_t dy_as, const void* dy,
                                           const void* beta, cudnnTensorDescriptor_t db_as,
                                           void* db) {
    REQUIRE(handle && alpha && beta && dy && db && are_set({dy_as, db_as}), BAD_PARAM);
    Sizes one(dy_as->sizes.size(), 1);
    one[1] = dy_as->sizes[1];
    REQUIRE(db_as->sizes == one, BAD_PARAM);
    double a = scalar(dy_as, alpha), b = scalar(dy_as, beta);
    return run(handle, [=, dy_as = *dy_as, db_as = *db_as] {
        blend(known(&db_as, db), read(&dy_as, dy).sum_to_size(db_as.sizes), a, b);
    });
}

// ---------------------------------------------------------------- algorithms: one way, no workspace

static float milliseconds(const std::function<void()>& work) {
    auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
}

template <class Perf, class Algo>
static cudnnStatus_t tell(cudnnHandle_t handle, cudnnConvolutionDescriptor_t conv,
                          const cudnnTensorStruct* x, const cudnnTensorStruct* w,
                          const cudnnTensorStruct* y, int requested, int* returned, Perf* found,
                          Algo algo, std::function<void()> timed) {
    if (auto status = check(handle, conv, x, w, y)) return status;
    REQUIRE(requested > 0 && returned && found, BAD_PARAM);
    float time = timed ? milliseconds(timed) : -1;
    *returned = 1;
    *found = {algo, CUDNN_STATUS_SUCCESS, time, 0, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH, {}};
    return CUDNN_STATUS_SUCCESS;
}

template <class Algo>
static cudnnStatus_t no_workspace(cudnnHandle_t handle, cudnnConvolutionDescriptor_t conv,
                                  const cudnnTensorStruct* x, const cudnnTensorStruct* w,
                                  const cudnnTensorStruct* y, Algo algo, int count, int missing,
                                  std::size_t* bytes) {
    if (auto status = check(handle, conv, x, w, y)) return status;
    REQUIRE(bytes && algo >= 0 && algo < count, BAD_PARAM);
    REQUIRE(algo != missing, NOT_SUPPORTED);
    *bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}

// The order of descriptors: (first, second, third) here, x, w and y by their names.
#define ALGORITHMS(Name, Kind, A, B, C, first, second, third, CHOSEN, KIND, missing, timed) \
    cudnnStatus_t cudnnGetConvolution##Name##Algorithm_v7( \
        cudnnHandle_t handle, A first, B second, cudnnConvolutionDescriptor_t conv, C third, \
        int requested, int* returned, cudnnConvolution##Kind##AlgoPerf_t* found) { \
        return tell(handle, conv, x, w, y, requested, returned, found, CHOSEN, nullptr); \
    } \
    cudnnStatus_t cudnnFindConvolution##Name##Algorithm( \
        cudnnHandle_t handle, A first, B second, cudnnConvolutionDescriptor_t conv, C third, \
        int requested, int* returned, cudnnConvolution##Kind##AlgoPerf_t* found) { \
        return tell(handle, conv, x, w, y, requested, returned, found, CHOSEN, [=] { timed; }); \
    } \
    cudnnStatus_t cudnnGetConvolution##Name##WorkspaceSize( \
        cudnnHandle_t handle, A first, B second, cudnnConvolutionDescriptor_t conv, C third, \
        cudnnConvolution##Kind##Algo_t algo, std::size_t* bytes) { \
        return no_workspace(handle, conv, x, w, y, algo, CUDNN_CONVOLUTION_##KIND##_ALGO_COUNT, \
                            missing, bytes); \
    }
ALGORITHMS(Forward, Fwd, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
           x, w, y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, FWD,
           CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, forward(*conv, sized(x), sized(w)))
ALGORITHMS(BackwardData, BwdData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
           cudnnTensorDescriptor_t, w, y, x, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, BWD_DATA, -1,
           backward(*conv, sized(y), sized(x), sized(w), true))
ALGORITHMS(BackwardFilter, BwdFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
           cudnnFilterDescriptor_t, x, y, w, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, BWD_FILTER,
           CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
           backward(*conv, sized(y), sized(x), sized(w), false))

// ---------------------------------------------------------------- element by element

static Tensor activate(const cudnnActivationStruct& how, const Tensor& x) {
    switch (how.mode) {
        case CUDNN_ACTIVATION_SIGMOID: return x.sigmoid();
        case CUDNN_ACTIVATION_RELU: return x.relu();
        case CUDNN_ACTIVATION_TANH: return x.tanh();
        case CUDNN_ACTIVATION_CLIPPED_RELU: return x.clamp(0, how.coef);
        case CUDNN_ACTIVATION_ELU: return ops::elu::call(x, how.coef, 1, 1);
        case CUDNN_ACTIVATION_SWISH: return x * x.sigmoid();
        default: return x;
    }
}

static Tensor slope(const cudnnActivationStruct& how, const Tensor& x, const Tensor& y) {
    switch (how.mode) {
        case CUDNN_ACTIVATION_SIGMOID: return y * (1 - y);
        case CUDNN_ACTIVATION_RELU: return x.gt(0);
        case CUDNN_ACTIVATION_TANH: return 1 - y * y;
        case CUDNN_ACTIVATION_CLIPPED_RELU: return x.gt(0).logical_and(x.lt(how.coef));
        case CUDNN_ACTIVATION_ELU: return (y + how.coef).where(x.le(0), x * 0 + 1);
        case CUDNN_ACTIVATION_SWISH: return x.sigmoid() * (1 + x * (1 - x.sigmoid()));
        default: return x * 0 + 1;
    }
}

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t how,
                                     const void* alpha, cudnnTensorDescriptor_t x_as, const void* x,
                                     const void* beta, cudnnTensorDescriptor_t y_as, void* y) {
    REQUIRE(handle && how && alpha && beta && x && y && are_set({x_as, y_as}), BAD_PARAM);
    REQUIRE(x_as->sizes == y_as->sizes, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, how = *how, x_as = *x_as, y_as = *y_as] {
        blend(known(&y_as, y), activate(how, read(&x_as, x)), a, b);
    });
}

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t how,
                                      const void* alpha, cudnnTensorDescriptor_t y_as,
                                      const void* y, cudnnTensorDescriptor_t dy_as, const void* dy,
                                      cudnnTensorDescriptor_t x_as, const void* x,
                                      const void* beta, cudnnTensorDescriptor_t dx_as, void* dx) {
    REQUIRE(handle && how && alpha && beta && x && y && dy && dx, BAD_PARAM);
    REQUIRE(are_set({x_as, y_as, dy_as, dx_as}), BAD_PARAM);
    REQUIRE(x_as->sizes == y_as->sizes && x_as->sizes == dy_as->sizes, BAD_PARAM);
    REQUIRE(x_as->sizes == dx_as->sizes, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, how = *how, x_as = *x_as, y_as = *y_as, dy_as = *dy_as, dx_as = *dx_as] {
        Tensor by = slope(how, read(&x_as, x), read(&y_as, y));
        blend(known(&dx_as, dx), read(&dy_as, dy) * by, a, b);
    });
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t A_as,
                             const void* A, const void* beta, cudnnTensorDescriptor_t C_as,
                             void* C) {
    REQUIRE(handle && alpha && beta && A && C && are_set({A_as, C_as}), BAD_PARAM);
    REQUIRE(A_as->sizes.size() == C_as->sizes.size(), BAD_PARAM);
    for (std::size_t d = 0; d < A_as->sizes.size(); d++)
        REQUIRE(A_as->sizes[d] == C_as->sizes[d] || A_as->sizes[d] == 1, BAD_PARAM);
    double a = scalar(C_as, alpha), b = scalar(C_as, beta);
    return run(handle, [=, A_as = *A_as, C_as = *C_as] {
        blend(known(&C_as, C), read(&A_as, A).expand(C_as.sizes), a, b);
    });
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, cudnnTensorDescriptor_t x_as, const void* x,
    cudnnFilterDescriptor_t w_as, const void* w, cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algo, void*, std::size_t, const void* alpha2,
    cudnnTensorDescriptor_t z_as, const void* z, cudnnTensorDescriptor_t bias_as, const void* bias,
    cudnnActivationDescriptor_t how, cudnnTensorDescriptor_t y_as, void* y) {
    if (auto status = check(handle, conv, x_as, w_as, y_as)) return status;
    REQUIRE(alpha1 && alpha2 && x && w && bias && y && how, BAD_PARAM);
    REQUIRE(are_set({z_as, bias_as}) && z_as->sizes == y_as->sizes, BAD_PARAM);
    REQUIRE((bias_as->sizes == Sizes{1, y_as->sizes[1], 1, 1}), BAD_PARAM);
    bool fits = how->mode == CUDNN_ACTIVATION_RELU || how->mode == CUDNN_ACTIVATION_IDENTITY;
    REQUIRE(fits && algo != CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, NOT_SUPPORTED);
    double a = scalar(x_as, alpha1), b = scalar(x_as, alpha2);
    return run(handle, [=, how = *how, conv = *conv, x_as = *x_as, w_as = *w_as, y_as = *y_as,
                        z_as = *z_as, bias_as = *bias_as] {
        Tensor sum = forward(conv, read(&x_as, x), read(&w_as, w)) * a + read(&bias_as, bias);
        if (b != 0) sum = sum + read(&z_as, z) * b;
        known(&y_as, y).copy_(activate(how, sum));
    });
}

// ---------------------------------------------------------------- pooling

static Sizes pooled_sizes(const cudnnPoolingStruct& pool, const Sizes& x) {
    Sizes out{x[0], x[1]};
    for (int d = 0; d < 2; d++)
        out.push_back((x[2 + d] + 2 * pool.padding[d] - pool.window[d]) / pool.stride[d] + 1);
    return out;
}

static bool is_max(const cudnnPoolingStruct& pool) {
    return pool.mode == CUDNN_POOLING_MAX || pool.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

static bool counts_padding(const cudnnPoolingStruct& pool) {
    return pool.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING;
}

cudnnStatus_t cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t pool,
                                                cudnnTensorDescriptor_t x, int* n, int* c, int* h,
                                                int* w) {
    REQUIRE(pool && !pool->window.empty() && are_set({x}) && x->sizes.size() == 4, BAD_PARAM);
    Sizes out = pooled_sizes(*pool, x->sizes);
    *n = out[0], *c = out[1], *h = out[2], *w = out[3];
    return CUDNN_STATUS_SUCCESS;
}

// The largest of each window, and where they are.
static std::tuple<Tensor, Tensor> largest(const Tensor& x, const cudnnPoolingStruct& pool) {
    return ops::max_pool2d_with_indices::call(x, pool.window, pool.stride, pool.padding, {1, 1}, false);
}

static Tensor means(const Tensor& x, const cudnnPoolingStruct& pool) {
    return ops::avg_pool2d::call(x, pool.window, pool.stride, pool.padding, false,
                                 counts_padding(pool), {});
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pool,
                                  const void* alpha, cudnnTensorDescriptor_t x_as, const void* x,
                                  const void* beta, cudnnTensorDescriptor_t y_as, void* y) {
    REQUIRE(handle && pool && !pool->window.empty() && alpha && beta && x && y, BAD_PARAM);
    REQUIRE(are_set({x_as, y_as}) && x_as->sizes.size() == 4, BAD_PARAM);
    REQUIRE(y_as->sizes == pooled_sizes(*pool, x_as->sizes), BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, pool = *pool, x_as = *x_as, y_as = *y_as] {
        Tensor values = read(&x_as, x);
        Tensor out = is_max(pool) ? std::get<0>(largest(values, pool)) : means(values, pool);
        blend(known(&y_as, y), out, a, b);
    });
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pool,
                                   const void* alpha, cudnnTensorDescriptor_t y_as, const void* y,
                                   cudnnTensorDescriptor_t dy_as, const void* dy,
                                   cudnnTensorDescriptor_t x_as, const void* x, const void* beta,
                                   cudnnTensorDescriptor_t dx_as, void* dx) {
    REQUIRE(handle && pool && !pool->window.empty() && alpha && beta, BAD_PARAM);
    REQUIRE(x && y && dy && dx && are_set({x_as, y_as, dy_as, dx_as}), BAD_PARAM);
    REQUIRE(x_as->sizes.size() == 4 && x_as->sizes == dx_as->sizes, BAD_PARAM);
    Sizes out = pooled_sizes(*pool, x_as->sizes);
    REQUIRE(y_as->sizes == out && dy_as->sizes == out, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, pool = *pool, x_as = *x_as, dy_as = *dy_as, dx_as = *dx_as] {
        Tensor values = read(&x_as, x), above = read(&dy_as, dy), gradient;
        if (is_max(pool)) {
            Tensor places = std::get<1>(largest(values, pool));
            gradient = ops::max_pool2d_with_indices_backward::call(
                above, values, pool.window, pool.stride, pool.padding, {1, 1}, false, places);
        } else {
            gradient = ops::avg_pool2d_backward::call(above, values, pool.window, pool.stride,
                                                      pool.padding, false, counts_padding(pool), {});
        }
        blend(known(&dx_as, dx), gradient, a, b);
    });
}

// ---------------------------------------------------------------- softmax

// (images, what the sum runs over, places)
static Tensor in_rows(const Tensor& x, cudnnSoftmaxMode_t mode) {
    return mode == CUDNN_SOFTMAX_MODE_INSTANCE ? x.reshape({x.size(0), -1, 1})
                                               : x.reshape({x.size(0), x.size(1), -1});
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  cudnnTensorDescriptor_t x_as, const void* x, const void* beta,
                                  cudnnTensorDescriptor_t y_as, void* y) {
    REQUIRE(handle && alpha && beta && x && y && are_set({x_as, y_as}), BAD_PARAM);
    REQUIRE(x_as->sizes == y_as->sizes && x_as->sizes.size() > 1, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, x_as = *x_as, y_as = *y_as] {
        Tensor rows = in_rows(read(&x_as, x), mode).log_softmax(1);
        if (algo != CUDNN_SOFTMAX_LOG) rows = rows.exp();
        blend(known(&y_as, y), rows.reshape(y_as.sizes), a, b);
    });
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                   cudnnSoftmaxMode_t mode, const void* alpha,
                                   cudnnTensorDescriptor_t y_as, const void* y,
                                   cudnnTensorDescriptor_t dy_as, const void* dy, const void* beta,
                                   cudnnTensorDescriptor_t dx_as, void* dx) {
    REQUIRE(handle && alpha && beta && y && dy && dx, BAD_PARAM);
    REQUIRE(are_set({y_as, dy_as, dx_as}) && y_as->sizes.size() > 1, BAD_PARAM);
    REQUIRE(y_as->sizes == dy_as->sizes && y_as->sizes == dx_as->sizes, BAD_PARAM);
    double a = scalar(y_as, alpha), b = scalar(y_as, beta);
    return run(handle, [=, y_as = *y_as, dy_as = *dy_as, dx_as = *dx_as] {
        Tensor out = in_rows(read(&y_as, y), mode), above = in_rows(read(&dy_as, dy), mode);
        Tensor gradient = algo == CUDNN_SOFTMAX_LOG ? above - out.exp() * above.sum({1}, true)
                                                    : out * (above - (above * out).sum({1}, true));
        blend(known(&dx_as, dx), gradient.reshape(dx_as.sizes), a, b);
    });
}

// ---------------------------------------------------------------- batch norm

// One number for each channel; undefined where there is no array for them.
static Tensor of_channels(const cudnnTensorStruct& as, const void* data) {
    return data ? tensor(data, {as.sizes[1]}, {1}, as.type) : Tensor();
}

static cudnnStatus_t check_norm(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
                                const cudnnTensorStruct* x, const cudnnTensorStruct* y,
                                const cudnnTensorStruct* channels) {
    REQUIRE(handle && are_set({x, y, channels}) && x->sizes == y->sizes, BAD_PARAM);
    REQUIRE(mode != CUDNN_BATCHNORM_PER_ACTIVATION, NOT_SUPPORTED);
    Sizes one(x->sizes.size(), 1);
    one[1] = x->sizes[1];
    REQUIRE(channels->sizes == one, BAD_PARAM);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t x_as, const void* x, cudnnTensorDescriptor_t y_as, void* y,
    cudnnTensorDescriptor_t as, const void* scale, const void* bias, double factor,
    void* running_mean, void* running_variance, double epsilon, void* save_mean,
    void* save_inv_variance) {
    if (auto status = check_norm(handle, mode, x_as, y_as, as)) return status;
    REQUIRE(alpha && beta && x && y && scale && bias, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, x_as = *x_as, y_as = *y_as, as = *as] {
        auto [out, mean, inverse] = ops::native_batch_norm::call(
            read(&x_as, x), of_channels(as, scale), of_channels(as, bias),
            of_channels(as, running_mean), of_channels(as, running_variance), true, factor, epsilon);
        blend(known(&y_as, y), out, a, b);
        if (save_mean) of_channels(as, save_mean).copy_(mean);
        if (save_inv_variance) of_channels(as, save_inv_variance).copy_(inverse);
    });
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t x_as, const void* x, cudnnTensorDescriptor_t y_as, void* y,
    cudnnTensorDescriptor_t as, const void* scale, const void* bias, const void* mean,
    const void* variance, double epsilon) {
    if (auto status = check_norm(handle, mode, x_as, y_as, as)) return status;
    REQUIRE(alpha && beta && x && y && scale && bias && mean && variance, BAD_PARAM);
    double a = scalar(x_as, alpha), b = scalar(x_as, beta);
    return run(handle, [=, x_as = *x_as, y_as = *y_as, as = *as] {
        Tensor out = std::get<0>(ops::native_batch_norm::call(
            read(&x_as, x), of_channels(as, scale), of_channels(as, bias), of_channels(as, mean),
            of_channels(as, variance), false, 0, epsilon));
        blend(known(&y_as, y), out, a, b);
    });
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha_data, const void* beta_data,
    const void* alpha_param, const void* beta_param, cudnnTensorDescriptor_t x_as, const void* x,
    cudnnTensorDescriptor_t dy_as, const void* dy, cudnnTensorDescriptor_t dx_as, void* dx,
    cudnnTensorDescriptor_t as, const void* scale, void* dscale, void* dbias, double epsilon,
    const void* saved_mean, const void* saved_inv_variance) {
    if (auto status = check_norm(handle, mode, x_as, dy_as, as)) return status;
    REQUIRE(are_set({dx_as}) && x_as->sizes == dx_as->sizes, BAD_PARAM);
    REQUIRE(alpha_data && beta_data && alpha_param && beta_param, BAD_PARAM);
    REQUIRE(x && dy && dx && scale && dscale && dbias, BAD_PARAM);
    REQUIRE(!saved_mean == !saved_inv_variance, BAD_PARAM);
    double a = scalar(x_as, alpha_data), b = scalar(x_as, beta_data);
    double a_param = scalar(x_as, alpha_param), b_param = scalar(x_as, beta_param);
    return run(handle, [=, x_as = *x_as, dy_as = *dy_as, dx_as = *dx_as, as = *as] {
        Tensor values = read(&x_as, x), gamma = of_channels(as, scale);
        Tensor mean = of_channels(as, saved_mean), inverse = of_channels(as, saved_inv_variance);
        if (!saved_mean)
            std::tie(std::ignore, mean, inverse) =
                ops::native_batch_norm::call(values, gamma, {}, {}, {}, true, 0, epsilon);
        auto [gradient, dgamma, dbeta] = ops::native_batch_norm_backward::call(
            read(&dy_as, dy), values, gamma, {}, {}, mean, inverse, true, epsilon, {true, true, true});
        blend(known(&dx_as, dx), gradient, a, b);
        blend(of_channels(as, dscale), dgamma, a_param, b_param);
        blend(of_channels(as, dbias), dbeta, a_param, b_param);
    });
}
