"""NVIDIA's libraries from a string: here their stand-ins, on a machine with a GPU the libraries.

So what holds for one of them holds for the other.
"""

import pytest
import torch
from torch.nn import functional as F

from helpers.checks import check_close
from helpers.compiler import CompileError, compile_cuda
from helpers.cuda_on_cpu.stand_ins import included
from helpers.device import BACKEND, DEVICE

on_cpu = pytest.mark.skipif(BACKEND != "cpu", reason="of the stand-ins")


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, device=DEVICE, dtype=dtype)


BLAS = r"""
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;

static cublasHandle_t handle() {
    static cublasHandle_t made = [] {
        cublasHandle_t made;
        TORCH_CHECK(cublasCreate(&made) == CUBLAS_STATUS_SUCCESS);
        return made;
    }();
    cublasSetStream(made, c10::cuda::getCurrentCUDAStream());
    return made;
}
static float* ptr(const Tensor& x) { return x.data_ptr<float>(); }

// transa, transb, m, n, k, lda, ldb, ldc
int64_t gemm(Tensor A, Tensor B, Tensor C, std::vector<int64_t> s, double alpha, double beta) {
    float a = alpha, b = beta;
    return cublasSgemm(handle(), cublasOperation_t(s[0]), cublasOperation_t(s[1]), s[2], s[3], s[4],
                       &a, ptr(A), s[5], ptr(B), s[6], &b, ptr(C), s[7]);
}
int64_t gemm_of_halves(Tensor A, Tensor B, Tensor C, int64_t m, int64_t n, int64_t k) {
    half a = __float2half(1.5f), b = __float2half(-0.5f);
    auto of = [](const Tensor& x) { return reinterpret_cast<half*>(x.data_ptr<at::Half>()); };
    return cublasHgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &a, of(A), m, of(B), k, &b,
                       of(C), m);
}
int64_t gemm_of_doubles(Tensor A, Tensor B, Tensor C, int64_t m, int64_t n, int64_t k) {
    double a = 1.5, b = -0.5;
    return cublasDgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &a, A.data_ptr<double>(), m,
                       B.data_ptr<double>(), k, &b, C.data_ptr<double>(), m);
}
int64_t gemm_strided(Tensor A, Tensor B, Tensor C, int64_t m, int64_t n, int64_t k) {
    float a = 1, b = 0;
    return cublasSgemmStridedBatched(handle(), CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &a, ptr(A), m,
                                     A.stride(0), ptr(B), k, B.stride(0), &b, ptr(C), m,
                                     C.stride(0), A.size(0));
}
int64_t gemm_ex(Tensor A, Tensor B, Tensor C, std::vector<int64_t> types, int64_t compute) {
    float a = 1, b = 0;
    int m = A.size(1), n = B.size(0), k = A.size(0);
    return cublasGemmEx(handle(), CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &a, A.data_ptr(),
                        cudaDataType(types[0]), m, B.data_ptr(), cudaDataType(types[1]), k, &b,
                        C.data_ptr(), cudaDataType(types[2]), m, cublasComputeType_t(compute),
                        CUBLAS_GEMM_DEFAULT);
}
int64_t geam(Tensor A, Tensor B, Tensor C, double alpha, double beta) {
    float a = alpha, b = beta;  // C (m, n) by columns: A stands there transposed
    int m = C.size(1), n = C.size(0);
    return cublasSgeam(handle(), CUBLAS_OP_T, CUBLAS_OP_N, m, n, &a, ptr(A), n, &b, ptr(B), m,
                       ptr(C), m);
}
int64_t gemv(Tensor A, Tensor x, Tensor y, bool turn, int64_t incx, int64_t incy) {
    float a = 2, b = 3;
    int m = A.size(1), n = A.size(0);
    auto op = turn ? CUBLAS_OP_T : CUBLAS_OP_N;
    return cublasSgemv(handle(), op, m, n, &a, ptr(A), m, ptr(x), incx, &b, ptr(y), incy);
}
int64_t ger(Tensor A, Tensor x, Tensor y) {
    float a = 0.5;
    int m = A.size(1), n = A.size(0);
    return cublasSger(handle(), m, n, &a, ptr(x), 1, ptr(y), 1, ptr(A), m);
}
std::vector<double> vectors(Tensor x, Tensor y, int64_t n, int64_t incx) {
    float dot, norm, sum, a = -2;
    int largest;
    cublasSdot(handle(), n, ptr(x), incx, ptr(y), 1, &dot);
    cublasSnrm2(handle(), n, ptr(x), incx, &norm);
    cublasSasum(handle(), n, ptr(x), incx, &sum);
    cublasIsamax(handle(), n, ptr(x), incx, &largest);
    cublasSaxpy(handle(), n, &a, ptr(x), incx, ptr(y), 1);
    cublasSscal(handle(), n, &a, ptr(x), incx);
    return {dot, norm, sum, double(largest)};
}
std::vector<int64_t> refused(Tensor x) {
    float* p = ptr(x);
    float one = 1;
    auto N = CUBLAS_OP_N;
    auto h = handle();
    auto gemm = [&](int m, int lda, int ldb, int ldc) {
        return cublasSgemm(h, N, N, m, 2, 3, &one, p, lda, p, ldb, &one, p, ldc);
    };
    return {cublasSgemm(nullptr, N, N, 2, 2, 2, &one, p, 2, p, 2, &one, p, 2),
            gemm(-1, 2, 3, 2), gemm(0, 2, 3, 2),
            gemm(2, 1, 3, 2), gemm(2, 2, 2, 2), gemm(2, 2, 3, 1),
            cublasSgemm(h, cublasOperation_t(9), N, 2, 2, 2, &one, p, 2, p, 2, &one, p, 2),
            cublasSgemv(h, N, 4, 4, &one, p, 3, p, 1, &one, p, 1),
            cublasSgemv(h, N, 4, 4, &one, p, 4, p, 0, &one, p, 1),
            cublasSaxpy(h, -1, &one, p, 1, p, 1)};
}
std::string names(Tensor) {
    return std::string(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED)) + " " +
           cublasGetStatusString(CUBLAS_STATUS_SUCCESS);
}
"""


@pytest.fixture(scope="module")
def blas():
    return compile_cuda(BLAS, libraries=("cublas",))


def by_columns(matrices):
    """What a tensor (..., cols, rows) is to a library that stores by columns."""
    return matrices.double().transpose(-1, -2)


@pytest.mark.parametrize("transa, transb", [(0, 0), (0, 1), (1, 0), (2, 1)])
def test_products_of_matrices_with_room_between_columns(blas, transa, transb):
    m, n, k = torch.randint(1, 40, (3,)).tolist()
    rows_a, rows_b = (k if transa else m), (n if transb else k)
    A = randn(m if transa else k, rows_a + 3)  # its columns, with three more numbers each
    B, C = randn(k if transb else n, rows_b + 1), randn(n, m + 2)
    before = C.clone()
    sizes = [transa, transb, m, n, k, rows_a + 3, rows_b + 1, m + 2]
    assert blas.gemm(A, B, C, sizes, 1.5, -0.5) == 0
    a, b = by_columns(A[:, :rows_a]), by_columns(B[:, :rows_b])
    product = (a.T if transa else a) @ (b.T if transb else b)
    check_close(by_columns(C[:, :m]), 1.5 * product - 0.5 * by_columns(before[:, :m]), atol=1e-4)
    assert torch.equal(C[:, m:], before[:, m:])


def test_what_beta_0_leaves_out_may_be_anything(blas):
    A, B, C = randn(5, 7), randn(3, 5), torch.full((3, 7), float("nan"), device=DEVICE)
    assert blas.gemm(A, B, C, [0, 0, 7, 3, 5, 7, 5, 7], 1.0, 0.0) == 0
    check_close(by_columns(C), by_columns(A) @ by_columns(B), atol=1e-5)


def test_products_of_doubles_and_of_batches(blas):
    A, B, C = (randn(*s, dtype=torch.float64) for s in ((5, 7), (3, 5), (3, 7)))
    expected = 1.5 * by_columns(A) @ by_columns(B) - 0.5 * by_columns(C)
    assert blas.gemm_of_doubles(A, B, C, 7, 3, 5) == 0
    check_close(by_columns(C), expected, atol=1e-12)
    A, B, C = (x.half() for x in (A, B, C))
    expected = 1.5 * by_columns(A) @ by_columns(B) - 0.5 * by_columns(C)
    assert blas.gemm_of_halves(A, B, C, 7, 3, 5) == 0
    check_close(by_columns(C), expected, atol=0.05)
    A, B, C = randn(4, 5, 7), randn(4, 3, 5), randn(4, 3, 7)
    assert blas.gemm_strided(A, B, C, 7, 3, 5) == 0
    check_close(by_columns(C), by_columns(A) @ by_columns(B), atol=1e-5)


@on_cpu
def test_results_of_a_batch_have_places_of_their_own(blas):
    A, B, C = randn(4, 5, 7), randn(4, 3, 5), randn(1, 3, 7).expand(4, 3, 7)
    with pytest.raises(RuntimeError, match="cuBLAS: expected a stride between the 4 results"):
        blas.gemm_strided(A, B, C, 7, 3, 5)


F32, F16, BF16, COMPUTE_32F, TF32 = 0, 2, 14, 68, 77


@pytest.mark.parametrize(
    "types, compute, status",
    [
        ((F32, F32, F32), COMPUTE_32F, 0),
        ((F16, F16, F16), COMPUTE_32F, 0),
        ((F16, F16, F32), COMPUTE_32F, 0),
        ((BF16, BF16, BF16), COMPUTE_32F, 0),
        ((F32, F32, F32), TF32, 0),
        ((F16, BF16, F32), COMPUTE_32F, 15),
        ((F32, F32, F16), COMPUTE_32F, 15),
    ],
)
def test_products_of_other_types(blas, types, compute, status):
    dtypes = {F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16}
    a, b, c = (dtypes[t] for t in types)
    A, B, C = randn(16, 24).to(a), randn(8, 16).to(b), torch.zeros(8, 24, device=DEVICE, dtype=c)
    assert blas.gemm_ex(A, B, C, list(types), compute) == status
    if not status:
        exact = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[c]
        atol = 2e-2 if compute == TF32 else exact * 4
        check_close(by_columns(C), by_columns(A) @ by_columns(B), atol=atol)


def test_sums_of_matrices_and_products_with_vectors(blas):
    A, B, C = randn(6, 9), randn(9, 6), torch.full((9, 6), float("nan"), device=DEVICE)
    assert blas.geam(A, B, C, 2.0, -1.0) == 0
    check_close(C, 2 * A.T - B, atol=1e-6)
    assert blas.geam(A, B, C, 1.0, 0.0) == 0  # a transposition
    assert torch.equal(C, A.T)
    for turn in (False, True):
        matrix = by_columns(A)  # (9, 6)
        matrix = matrix.T if turn else matrix
        x, y = randn(2 * matrix.size(1)), randn(3 * matrix.size(0))
        expected = 2 * matrix @ x[::2].double() + 3 * y[::3].double().flip(0)
        assert blas.gemv(A, x, y, turn, 2, -3) == 0  # a negative step goes from the end
        check_close(y[::3].flip(0), expected, atol=1e-4)
    x, y, before = randn(9), randn(6), A.clone()
    assert blas.ger(A, x, y) == 0
    check_close(A, before + 0.5 * torch.outer(y, x), atol=1e-6)


def test_sums_over_vectors(blas):
    n = 1001
    x, y = randn(2 * n), randn(n)
    a, b = x[::2].clone().double(), y.clone().double()
    dot, norm, total, largest = blas.vectors(x, y, n, 2)
    check_close(torch.tensor([dot, norm, total]),
                torch.stack([a @ b, a.norm(), a.abs().sum()]).cpu(), atol=1e-3)  # fmt: skip
    assert largest == a.abs().argmax().item() + 1  # counted from 1
    check_close(y, b - 2 * a, atol=1e-5)
    check_close(x[::2], -2 * a, atol=1e-6)


def test_wrong_arguments_of_cublas_have_the_documented_status(blas):
    said, documented = blas.refused(randn(64)), [1, 7, 0, 7, 7, 7, 7, 7, 7, 0]
    if BACKEND == "cuda":
        said[8] = 7  # cuBLAS 13.0 itself lets a vector with steps of 0 pass
    assert said == documented
    assert blas.names(randn(1)).startswith("CUBLAS_STATUS_NOT_SUPPORTED ")


LT = r"""
#include <cublasLt.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;
static void* data(const Tensor& x) { return x.data_ptr(); }

// D = epilogue(op(A) op(B) + bias): row by row, so each matrix has the order of rows
std::vector<int64_t> matmul(Tensor A, Tensor B, Tensor D, Tensor bias, Tensor aux, int64_t epilogue,
                            bool by_rows, int64_t k) {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    std::vector<int64_t> said;
    said.push_back(cublasLtCreate(&handle));
    said.push_back(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    uint32_t what = epilogue;
    void *bias_at = data(bias), *aux_at = data(aux);
    int64_t ld = aux.stride(0);
    auto set = [&](cublasLtMatmulDescAttributes_t name, auto value) {
        said.push_back(cublasLtMatmulDescSetAttribute(op, name, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, what);
    if (what & (CUBLASLT_EPILOGUE_BIAS | 16)) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_at);
    if (what & 128) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_at);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    }
    auto layout = [&](cublasLtMatrixLayout_t* made, const Tensor& x) {
        int rows = x.size(by_rows ? 0 : 1), cols = x.size(by_rows ? 1 : 0);
        cublasLtOrder_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        cublasLtMatrixLayoutCreate(made, CUDA_R_32F, rows, cols, x.stride(0));
        said.push_back(cublasLtMatrixLayoutSetAttribute(*made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                                        sizeof order));
    };
    layout(&a, A), layout(&b, B), layout(&d, D);
    size_t bytes = 4 << 20;
    Tensor work = torch::empty({int64_t(bytes)}, A.options().dtype(torch::kByte));
    cublasLtMatmulPreferenceCreate(&preference);
    said.push_back(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    cublasLtMatmulHeuristicResult_t found[3];
    int count = 0;
    float one = 1, zero = 0;
    said.push_back(
        cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, d, d, preference, 3, found, &count));
    said.push_back(count < 1);
    if (count)
        said.push_back(cublasLtMatmul(handle, op, &one, data(A), a, data(B), b, &zero, data(D), d,
                                      data(D), d, &found[0].algo, data(work), bytes, nullptr));
    cublasLtMatmulPreferenceDestroy(preference);
    for (auto each : {a, b, d}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
    return said;
}
int64_t wrong_size(Tensor) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    int32_t none = 0;
    return cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none, sizeof none);
}
"""


@pytest.fixture(scope="module")
def lt():
    return compile_cuda(LT, libraries=("cublasLt",))


def gelu(x):
    return F.gelu(x, approximate="tanh")


@pytest.mark.parametrize(
    "epilogue, follow",
    [
        (1, lambda x, bias: x),
        (2, lambda x, bias: x.relu()),
        (4, lambda x, bias: x + bias),
        (2 | 4, lambda x, bias: (x + bias).relu()),
        (32, lambda x, bias: gelu(x)),
        (32 | 4, lambda x, bias: gelu(x + bias)),
        (32 | 4 | 128, lambda x, bias: gelu(x + bias)),
    ],
)
def test_what_follows_a_product(lt, epilogue, follow):
    A, B, D = randn(12, 16), randn(8, 12), randn(8, 16)  # by columns: 16 × 12, 12 × 8, 16 × 8
    bias, aux = randn(16), randn(8, 16)
    assert not any(lt.matmul(A, B, D, bias, aux, epilogue, False, 12))
    product = B.double() @ A.double()
    check_close(D, follow(product, bias.double()), atol=1e-4)
    if epilogue & 128:  # what the backward pass needs
        check_close(aux, product + bias.double(), atol=1e-4)


def test_gradient_of_gelu_and_of_the_bias_follow_a_product(lt):
    A, B, D = randn(12, 16), randn(8, 12), randn(8, 16)
    bias, aux = randn(16), randn(8, 16)
    assert not any(lt.matmul(A, B, D, bias, aux, 64 | 128 | 16, False, 12))
    x = aux.double().requires_grad_()
    gelu(x).backward(B.double() @ A.double())
    check_close(D, x.grad, atol=1e-4)
    check_close(bias, x.grad.sum(0), atol=1e-4)


def test_matrices_row_by_row(lt):
    A, B, D = randn(8, 12), randn(12, 16), randn(8, 16)
    assert not any(lt.matmul(A, B, D, randn(8), randn(8, 16), 1, True, 12))
    check_close(D, A.double() @ B.double(), atol=1e-4)


def test_wrong_arguments_of_cublaslt_have_the_documented_status(lt):
    A, B, D = randn(12, 16), randn(8, 13), randn(8, 16)  # 12 and 13 do not fit
    assert any(lt.matmul(A, B, D, randn(16), randn(8, 16), 1, False, 12))
    assert lt.wrong_size(A) == 7


DNN = r"""
#include <cudnn.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;
using Ints = std::vector<int64_t>;
static float* ptr(const Tensor& x) { return x.data_ptr<float>(); }
static cudnnHandle_t handle() {
    static cudnnHandle_t made = [] {
        cudnnHandle_t made;
        TORCH_CHECK(cudnnCreate(&made) == CUDNN_STATUS_SUCCESS);
        return made;
    }();
    return made;
}
static void ok(cudnnStatus_t s) { TORCH_CHECK(!s, cudnnGetErrorString(s)); }
static cudnnTensorDescriptor_t shape(Ints s, cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW) {
    cudnnTensorDescriptor_t made;
    ok(cudnnCreateTensorDescriptor(&made));
    ok(cudnnSetTensor4dDescriptor(made, format, CUDNN_DATA_FLOAT, s[0], s[1], s[2], s[3]));
    return made;
}
static Ints sizes(const Tensor& x) { return {x.size(0), x.size(1), x.size(2), x.size(3)}; }
static cudnnFilterDescriptor_t filter(Ints s, cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW) {
    cudnnFilterDescriptor_t made;
    ok(cudnnCreateFilterDescriptor(&made));
    ok(cudnnSetFilter4dDescriptor(made, CUDNN_DATA_FLOAT, format, s[0], s[1], s[2], s[3]));
    return made;
}
// pad, stride, dilation of each side, groups, mode
static cudnnConvolutionDescriptor_t convolution(Ints s) {
    cudnnConvolutionDescriptor_t made;
    ok(cudnnCreateConvolutionDescriptor(&made));
    ok(cudnnSetConvolution2dDescriptor(made, s[0], s[1], s[2], s[3], s[4], s[5],
                                       cudnnConvolutionMode_t(s[7]), CUDNN_DATA_FLOAT));
    ok(cudnnSetConvolutionGroupCount(made, s[6]));
    ok(cudnnSetConvolutionMathType(made, CUDNN_FMA_MATH));
    return made;
}
std::vector<int64_t> output_sizes(Tensor, std::vector<int64_t> x, std::vector<int64_t> w,
                                  std::vector<int64_t> how) {
    int n, c, h, width;
    ok(cudnnGetConvolution2dForwardOutputDim(convolution(how), shape(x), filter(w), &n, &c, &h,
                                             &width));
    return {n, c, h, width};
}
void convolve(Tensor x, Tensor w, Tensor y, std::vector<int64_t> how, double alpha, double beta) {
    auto X = shape(sizes(x)), Y = shape(sizes(y));
    auto W = filter(sizes(w));
    auto conv = convolution(how);
    cudnnConvolutionFwdAlgoPerf_t found;
    int count;
    ok(cudnnGetConvolutionForwardAlgorithm_v7(handle(), X, W, conv, Y, 1, &count, &found));
    size_t bytes;
    ok(cudnnGetConvolutionForwardWorkspaceSize(handle(), X, W, conv, Y, found.algo, &bytes));
    Tensor work = torch::empty({int64_t(bytes)}, x.options().dtype(torch::kByte));
    float a = alpha, b = beta;
    ok(cudnnConvolutionForward(handle(), &a, X, ptr(x), W, ptr(w), conv, found.algo,
                               work.data_ptr(), bytes, &b, Y, ptr(y)));
}
void gradients(Tensor x, Tensor w, Tensor dy, Tensor dx, Tensor dw, Tensor db,
               std::vector<int64_t> how) {
    auto X = shape(sizes(x)), Y = shape(sizes(dy)), B = shape({1, dy.size(1), 1, 1});
    auto W = filter(sizes(w));
    auto conv = convolution(how);
    auto data = CUDNN_CONVOLUTION_BWD_DATA_ALGO_0;
    auto weight = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0;
    size_t bytes, more;
    ok(cudnnGetConvolutionBackwardDataWorkspaceSize(handle(), W, Y, conv, X, data, &bytes));
    ok(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle(), X, Y, conv, W, weight, &more));
    bytes = bytes > more ? bytes : more;
    Tensor work = torch::empty({int64_t(bytes)}, x.options().dtype(torch::kByte));
    float a = 1, b = 0;
    ok(cudnnConvolutionBackwardData(handle(), &a, W, ptr(w), Y, ptr(dy), conv, data,
                                    work.data_ptr(), bytes, &b, X, ptr(dx)));
    ok(cudnnConvolutionBackwardFilter(handle(), &a, X, ptr(x), Y, ptr(dy), conv, weight,
                                      work.data_ptr(), bytes, &b, W, ptr(dw)));
    ok(cudnnConvolutionBackwardBias(handle(), &a, Y, ptr(dy), &b, B, ptr(db)));
}
void channels_last(Tensor x, Tensor w, Tensor y) {  // given as N × H × W × C
    auto size = [](const Tensor& t) { return Ints{t.size(0), t.size(3), t.size(1), t.size(2)}; };
    auto X = shape(size(x), CUDNN_TENSOR_NHWC), Y = shape(size(y), CUDNN_TENSOR_NHWC);
    auto W = filter(size(w), CUDNN_TENSOR_NHWC);
    auto algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    auto conv = convolution({1, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION});
    float a = 1, b = 0;
    size_t bytes;
    ok(cudnnGetConvolutionForwardWorkspaceSize(handle(), X, W, conv, Y, algo, &bytes));
    Tensor work = torch::empty({int64_t(bytes)}, x.options().dtype(torch::kByte));
    ok(cudnnConvolutionForward(handle(), &a, X, ptr(x), W, ptr(w), conv, algo, work.data_ptr(),
                               bytes, &b, Y, ptr(y)));
}
void activation(Tensor x, Tensor y, Tensor dy, Tensor dx, int64_t mode, double coef) {
    cudnnActivationDescriptor_t how;
    ok(cudnnCreateActivationDescriptor(&how));
    ok(cudnnSetActivationDescriptor(how, cudnnActivationMode_t(mode), CUDNN_PROPAGATE_NAN, coef));
    auto X = shape(sizes(x));
    float a = 1, b = 0;
    ok(cudnnActivationForward(handle(), how, &a, X, ptr(x), &b, X, ptr(y)));
    ok(cudnnActivationBackward(handle(), how, &a, X, ptr(y), X, ptr(dy), X, ptr(x), &b, X,
                               ptr(dx)));
}
void pooling(Tensor x, Tensor y, Tensor dy, Tensor dx, int64_t mode) {
    cudnnPoolingDescriptor_t how;
    ok(cudnnCreatePoolingDescriptor(&how));
    ok(cudnnSetPooling2dDescriptor(how, cudnnPoolingMode_t(mode), CUDNN_PROPAGATE_NAN, 3, 2, 1, 0,
                                   2, 2));
    auto X = shape(sizes(x)), Y = shape(sizes(y));
    int n, c, h, w;
    ok(cudnnGetPooling2dForwardOutputDim(how, X, &n, &c, &h, &w));
    TORCH_CHECK(h == y.size(2) && w == y.size(3));
    float a = 1, b = 0;
    ok(cudnnPoolingForward(handle(), how, &a, X, ptr(x), &b, Y, ptr(y)));
    ok(cudnnPoolingBackward(handle(), how, &a, Y, ptr(y), Y, ptr(dy), X, ptr(x), &b, X, ptr(dx)));
}
void softmax(Tensor x, Tensor y, Tensor dy, Tensor dx, int64_t algo, int64_t mode) {
    auto X = shape(sizes(x));
    float a = 1, b = 0;
    auto how = cudnnSoftmaxAlgorithm_t(algo);
    auto over = cudnnSoftmaxMode_t(mode);
    ok(cudnnSoftmaxForward(handle(), how, over, &a, X, ptr(x), &b, X, ptr(y)));
    ok(cudnnSoftmaxBackward(handle(), how, over, &a, X, ptr(y), X, ptr(dy), &b, X, ptr(dx)));
}
// channels: scale, bias, running mean, running variance, mean, 1 / deviation, dscale, dbias
void batch_norm(Tensor x, Tensor y, Tensor dy, Tensor dx, std::vector<Tensor> c) {
    auto X = shape(sizes(x)), C = shape({1, x.size(1), 1, 1});
    float a = 1, b = 0;
    ok(cudnnBatchNormalizationForwardTraining(
        handle(), CUDNN_BATCHNORM_SPATIAL, &a, &b, X, ptr(x), X, ptr(y), C, ptr(c[0]), ptr(c[1]),
        0.1, ptr(c[2]), ptr(c[3]), 1e-5, ptr(c[4]), ptr(c[5])));
    ok(cudnnBatchNormalizationBackward(handle(), CUDNN_BATCHNORM_SPATIAL, &a, &b, &a, &b, X, ptr(x),
                                       X, ptr(dy), X, ptr(dx), C, ptr(c[0]), ptr(c[6]), ptr(c[7]),
                                       1e-5, ptr(c[4]), ptr(c[5])));
}
void add_bias(Tensor x, Tensor bias) {
    float a = 2, b = 1;
    ok(cudnnAddTensor(handle(), &a, shape({1, x.size(1), 1, 1}), ptr(bias), &b, shape(sizes(x)),
                      ptr(x)));
}
std::vector<int64_t> refused(Tensor x) {
    cudnnTensorDescriptor_t empty;
    ok(cudnnCreateTensorDescriptor(&empty));
    auto X = shape({1, 2, 5, 5}), Y = shape({1, 3, 3, 3});
    auto W = filter({3, 2, 3, 3}), other = filter({3, 4, 3, 3});
    auto conv = convolution({0, 0, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION});
    auto gemm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
    float a = 1;
    float* p = ptr(x);
    auto run = [&](auto X, auto W, auto algo, auto Y, float* alpha) -> int64_t {
        return cudnnConvolutionForward(handle(), alpha, X, p, W, p, conv, algo, nullptr, 0, &a, Y,
                                       p);
    };
    return {cudnnSetTensor4dDescriptor(empty, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 5, -1),
            run(X, W, gemm, shape({1, 3, 5, 5}), &a), run(X, other, gemm, Y, &a),
            run(X, W, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, Y, &a), run(X, W, gemm, Y, nullptr),
            cudnnSetConvolution2dDescriptor(conv, 0, 0, 0, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_FLOAT)};
}
std::string status_name(Tensor) { return cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM); }
"""


@pytest.fixture(scope="module")
def dnn():
    return compile_cuda(DNN, libraries=("cudnn",))


@pytest.mark.parametrize(
    "padding, stride, dilation, groups",
    [((0, 0), (1, 1), (1, 1), 1), ((1, 2), (2, 1), (1, 2), 1), ((2, 1), (1, 2), (1, 1), 3)],
)
@pytest.mark.parametrize("is_true_convolution", [False, True])
def test_convolution_and_its_gradients(dnn, padding, stride, dilation, groups, is_true_convolution):
    x, w = randn(3, 6, 9, 11), randn(9, 6 // groups, 3, 2)
    how = [*padding, *stride, *dilation, groups, 0 if is_true_convolution else 1]
    x_exact, w_exact = x.double().requires_grad_(), w.double().requires_grad_()
    turned = w_exact.flip(2, 3) if is_true_convolution else w_exact
    expected = F.conv2d(x_exact, turned, None, stride, padding, dilation, groups)
    assert dnn.output_sizes(x, list(x.shape), list(w.shape), how) == list(expected.shape)
    y = randn(*expected.shape)
    blended = 2 * expected - 0.5 * y.double()
    dnn.convolve(x, w, y, how, 2.0, -0.5)
    check_close(y, blended, atol=1e-4)
    dy, dx, dw, db = randn(*y.shape), torch.empty_like(x), torch.empty_like(w), randn(9)
    dnn.gradients(x, w, dy, dx, dw, db, how)
    expected.backward(dy.double())
    check_close(dx, x_exact.grad, atol=1e-4)
    check_close(dw, w_exact.grad, atol=1e-3)
    check_close(db, dy.double().sum((0, 2, 3)), atol=1e-3)


def test_convolution_with_channels_last(dnn):
    x, w, y = randn(2, 7, 5, 4), randn(8, 3, 3, 4), randn(2, 7, 5, 8)
    dnn.channels_last(x, w, y)
    images, filters = (t.double().permute(0, 3, 1, 2) for t in (x, w))
    expected = F.conv2d(images, filters, padding=1).permute(0, 2, 3, 1)
    check_close(y, expected, atol=1e-4)


ACTIVATIONS = [
    (0, 0.0, torch.sigmoid),
    (1, 0.0, torch.relu),
    (2, 0.0, torch.tanh),
    (3, 0.7, lambda x: x.clamp(0, 0.7)),
    (4, 1.5, lambda x: F.elu(x, 1.5)),
    (6, 1.0, F.silu),
]


@pytest.mark.parametrize("mode, coef, reference", ACTIVATIONS)
def test_activations(dnn, mode, coef, reference):
    x, dy = randn(2, 3, 5, 7), randn(2, 3, 5, 7)
    y, dx = torch.empty_like(x), torch.empty_like(x)
    dnn.activation(x, y, dy, dx, mode, coef)
    exact = x.double().requires_grad_()
    reference(exact).backward(dy.double())
    check_close(y, reference(exact.detach()), atol=1e-5)
    check_close(dx, exact.grad, atol=1e-5)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_pooling(dnn, mode):
    def reference(x):
        if mode == 0:
            return F.max_pool2d(x, (3, 2), 2, (1, 0))
        return F.avg_pool2d(x, (3, 2), 2, (1, 0), count_include_pad=mode == 1)

    x = randn(2, 3, 9, 8)
    exact = x.double().requires_grad_()
    expected = reference(exact)
    y, dy, dx = randn(*expected.shape), randn(*expected.shape), torch.empty_like(x)
    dnn.pooling(x, y, dy, dx, mode)
    expected.backward(dy.double())
    check_close(y, expected.detach(), atol=1e-5)
    check_close(dx, exact.grad, atol=1e-5)


@pytest.mark.parametrize("algorithm", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1])
def test_softmax(dnn, algorithm, mode):
    def reference(x):
        rows = x.flatten(1) if mode == 0 else x
        out = rows.log_softmax(1) if algorithm == 2 else rows.softmax(1)
        return out.view_as(x)

    x, dy = randn(2, 3, 5, 7), randn(2, 3, 5, 7)
    y, dx = torch.empty_like(x), torch.empty_like(x)
    dnn.softmax(x, y, dy, dx, algorithm, mode)
    exact = x.double().requires_grad_()
    reference(exact).backward(dy.double())
    check_close(y, reference(exact.detach()), atol=1e-5)
    check_close(dx, exact.grad, atol=1e-4)


def test_batch_norm_and_sums_with_a_bias(dnn):
    x, dy, C = randn(4, 3, 5, 7), randn(4, 3, 5, 7), 3
    y, dx = torch.empty_like(x), torch.empty_like(x)
    scale, bias, mean, variance = randn(C), randn(C), randn(C), randn(C).abs()
    rest = [torch.empty(C, device=DEVICE) for _ in range(4)]
    exact = [t.double().requires_grad_() for t in (x, scale, bias)]
    running = [mean.double(), variance.double()]
    expected = F.batch_norm(exact[0], *running, *exact[1:], training=True)
    expected.backward(dy.double())
    dnn.batch_norm(x, y, dy, dx, [scale, bias, mean, variance, *rest])
    check_close(y, expected.detach(), atol=1e-4)
    check_close(mean, running[0], atol=1e-5)
    check_close(variance, running[1], atol=1e-5)
    for got, of in zip((dx, rest[2], rest[3]), exact, strict=True):
        check_close(got, of.grad, atol=1e-4)
    before = x.clone()
    dnn.add_bias(x, bias)
    check_close(x, before + 2 * bias.view(1, C, 1, 1), atol=1e-6)


def test_wrong_arguments_of_cudnn_have_the_documented_status(dnn):
    kinds = [status // 1000 for status in dnn.refused(randn(1000))]
    # CUDNN_STATUS_BAD_PARAM..., CUDNN_STATUS_NOT_SUPPORTED...; the latter is what cuDNN 9 itself
    # says of an output or a filter that does not fit
    sizes = 3 if BACKEND == "cuda" else 2
    assert kinds == [2, sizes, sizes, 3, 2, 2]
    assert dnn.status_name(randn(1)) == "CUDNN_STATUS_BAD_PARAM"


FFT = r"""
#include <cufft.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;

// layout: extents, step and distance of each side, or nothing
int64_t transform(Tensor in, Tensor out, std::vector<int64_t> n, std::vector<int64_t> in_layout,
                  std::vector<int64_t> out_layout, int64_t type, int64_t batch,
                  int64_t direction) {
    cufftHandle plan;
    std::vector<int> sizes(n.begin(), n.end()), a(in_layout.begin(), in_layout.end()),
        b(out_layout.begin(), out_layout.end());
    int rank = sizes.size(), status;
    if (a.empty())
        status = cufftPlanMany(&plan, rank, sizes.data(), nullptr, 1, 0, nullptr, 1, 0,
                               cufftType(type), batch);
    else
        status = cufftPlanMany(&plan, rank, sizes.data(), a.data(), a[rank], a[rank + 1], b.data(),
                               b[rank], b[rank + 1], cufftType(type), batch);
    if (status) return status;
    void *from = in.data_ptr(), *to = out.data_ptr();
    auto single = (cufftComplex*)from;
    auto pairs = (cufftDoubleComplex*)from;
    switch (type) {
        case CUFFT_C2C: status = cufftExecC2C(plan, single, (cufftComplex*)to, direction); break;
        case CUFFT_R2C: status = cufftExecR2C(plan, (float*)from, (cufftComplex*)to); break;
        case CUFFT_C2R: status = cufftExecC2R(plan, single, (float*)to); break;
        case CUFFT_Z2Z:
            status = cufftExecZ2Z(plan, pairs, (cufftDoubleComplex*)to, direction);
            break;
        case CUFFT_D2Z: status = cufftExecD2Z(plan, (double*)from, (cufftDoubleComplex*)to); break;
        default: status = cufftExecZ2D(plan, pairs, (double*)to);
    }
    cudaDeviceSynchronize();
    cufftDestroy(plan);
    return status;
}
std::vector<int64_t> refused(Tensor x) {
    cufftHandle plan;
    auto p = (cufftComplex*)x.data_ptr();
    return {cufftPlan1d(&plan, 0, CUFFT_C2C, 1), cufftPlan1d(&plan, 8, CUFFT_C2C, 1),
            cufftExecC2C(plan, p, p, 3), cufftDestroy(plan),
            cufftExecC2C(plan, p, p, CUFFT_FORWARD)};
}
"""
R2C, C2R, C2C, D2Z, Z2D, Z2Z, FORWARD, INVERSE = 0x2A, 0x2C, 0x29, 0x6A, 0x6C, 0x69, -1, 1


@pytest.fixture(scope="module")
def fft():
    return compile_cuda(FFT, libraries=("cufft",))


@pytest.mark.parametrize("n", [[7], [64], [5, 6], [3, 4, 5]])
@pytest.mark.parametrize("double", [False, True])
def test_transforms_there_and_back_without_division(fft, n, double):
    real, dims, half = (torch.float64 if double else torch.float32), [*range(1, len(n) + 1)], n[:]
    cpx, atol, count = real.to_complex(), (1e-11 if double else 1e-4), torch.tensor(n).prod().item()
    half[-1] = n[-1] // 2 + 1
    c2c, r2c, c2r = (Z2Z, D2Z, Z2D) if double else (C2C, R2C, C2R)
    x = randn(3, *n, dtype=cpx)
    out, back = torch.empty_like(x), torch.empty_like(x)
    assert fft.transform(x, out, n, [], [], c2c, 3, FORWARD) == 0
    check_close(torch.view_as_real(out), torch.view_as_real(torch.fft.fftn(x, dim=dims)), atol=atol)
    assert fft.transform(out, back, n, [], [], c2c, 3, INVERSE) == 0
    check_close(torch.view_as_real(back / count), torch.view_as_real(x), atol=atol)
    r, spectrum = randn(3, *n, dtype=real), torch.empty(3, *half, dtype=cpx, device=DEVICE)
    assert fft.transform(r, spectrum, n, [], [], r2c, 3, FORWARD) == 0
    expected = torch.view_as_real(torch.fft.rfftn(r, dim=dims))
    check_close(torch.view_as_real(spectrum), expected, atol=atol)
    back = torch.empty_like(r)
    assert fft.transform(spectrum, back, n, [], [], c2r, 3, INVERSE) == 0
    check_close(back / count, r, atol=atol)
    place = torch.zeros(3, *half, 2, dtype=real, device=DEVICE)  # rows with room for the spectrum
    place.view(3, *n[:-1], -1)[..., : n[-1]] = r
    assert fft.transform(place, place, n, [], [], r2c, 3, FORWARD) == 0
    check_close(place, expected, atol=atol)


def test_transforms_of_columns(fft):
    x = randn(16, 5, dtype=torch.complex64)
    out = torch.empty_like(x)
    layout = [16, 5, 1]  # extent, five elements from one to the next, one from column to column
    assert fft.transform(x, out, [16], layout, layout, C2C, 5, FORWARD) == 0
    expected = torch.fft.fft(x, dim=0)
    check_close(torch.view_as_real(out), torch.view_as_real(expected), atol=1e-4)


def test_wrong_arguments_of_cufft_have_the_documented_status(fft):
    invalid_size, invalid_plan = 8, 1
    said = fft.refused(randn(16))
    assert said[:2] + said[3:] == [invalid_size, 0, 0, invalid_plan] and said[2] != 0


RAND = r"""
#include <curand.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;

static curandGenerator_t made(int64_t type, int64_t seed) {
    curandGenerator_t g;
    TORCH_CHECK(!curandCreateGenerator(&g, curandRngType_t(type)));
    if (type < 200) TORCH_CHECK(!curandSetPseudoRandomGeneratorSeed(g, seed));
    return g;
}
// After `skipped` numbers of the same kind, and from `offset` on.
int64_t draw(Tensor out, int64_t type, int64_t kind, int64_t skipped, int64_t offset,
             int64_t dims) {
    curandGenerator_t g = made(type, 1234);
    if (dims) TORCH_CHECK(!curandSetQuasiRandomGeneratorDimensions(g, dims));
    if (offset) TORCH_CHECK(!curandSetGeneratorOffset(g, offset));
    Tensor first = torch::empty({skipped}, out.options());
    auto generate = [&](const Tensor& x) {
        void* p = x.data_ptr();
        size_t n = x.numel();
        return kind == 0   ? curandGenerate(g, (unsigned*)p, n)
               : kind == 1 ? curandGenerateUniform(g, (float*)p, n)
               : kind == 2 ? curandGenerateUniformDouble(g, (double*)p, n)
               : kind == 3 ? curandGenerateNormal(g, (float*)p, n, 1, 2)
                           : curandGenerateNormalDouble(g, (double*)p, n, 1, 2);
    };
    if (skipped) TORCH_CHECK(!generate(first));
    int64_t status = generate(out);
    cudaDeviceSynchronize();
    curandDestroyGenerator(g);
    return status;
}
std::vector<int64_t> refused(Tensor x) {
    curandGenerator_t xorwow = made(101, 1), sobol = made(201, 1);
    float* p = x.data_ptr<float>();
    curandSetQuasiRandomGeneratorDimensions(sobol, 3);
    return {curandCreateGenerator(&xorwow, curandRngType_t(7)),
            curandGenerateNormal(made(101, 1), p, 7, 0, 1), curandGenerateUniform(sobol, p, 8),
            curandSetPseudoRandomGeneratorSeed(sobol, 1),
            curandSetQuasiRandomGeneratorDimensions(made(161, 1), 2),
            curandGenerateLongLong(made(161, 1), (unsigned long long*)p, 2)};
}
"""
XORWOW, PHILOX, SOBOL, RAW, UNIFORM, UNIFORM_D, NORMAL, NORMAL_D = 101, 161, 201, 0, 1, 2, 3, 4
DTYPES = [torch.int32, torch.float32, torch.float64, torch.float32, torch.float64]


@pytest.fixture(scope="module")
def rand():
    return compile_cuda(RAND, libraries=("curand",))


def drawn(rand, count, *how):
    generator, kind, skipped, offset, dims = (*how, 0, 0, 0)[:5]
    out = torch.empty(count, dtype=DTYPES[kind], device=DEVICE)
    assert rand.draw(out, generator, kind, skipped, offset, dims) == 0
    return out


def hashed(numbers):
    """Return FNV-1a's hash of the numbers' bytes."""
    value = 1469598103934665603
    for byte in numbers.cpu().numpy().tobytes():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"


# Of cuRAND 10.4's own generators for the host, with the seed 1234.
FROM_CURAND = {
    (XORWOW, RAW, 1001): ("36b7e758dd2c91f7", 0x253D5E15),
    (PHILOX, RAW, 1001): ("230148bec135de9d", 0x2090B348),
    (SOBOL, RAW, 1001): ("a44ec830767d039b", 0),
}


@pytest.mark.parametrize("generator, kind, count", FROM_CURAND)
def test_random_words_are_those_of_curand(rand, generator, kind, count):
    words = drawn(rand, count, generator, kind)
    assert (hashed(words), words[0].item()) == FROM_CURAND[generator, kind, count]


# What follows 1001 words; words from the fifth on.
CONTINUED = {
    XORWOW: ("fdb5f1fa2024a65c", "a4c0df103145770d"),
    PHILOX: ("11ef4d370f92e846", "84ec505c5322017e"),
    SOBOL: ("04b9339a351e204f", "76eadde0ae624a8b"),
}


@pytest.mark.parametrize("generator", CONTINUED)
def test_random_words_go_on_and_begin_anywhere(rand, generator):
    after, from_fifth = CONTINUED[generator]
    assert hashed(drawn(rand, 1000, generator, RAW, 1001)) == after
    assert hashed(drawn(rand, 1000, generator, RAW, 0, 5)) == from_fifth


@pytest.mark.parametrize("generator", [XORWOW, PHILOX, SOBOL])
def test_uniform_numbers_are_made_of_the_words(rand, generator):
    words = drawn(rand, 20_000, generator, RAW).long() & 0xFFFFFFFF
    exact = (words.double() * 2**-32 + 2**-33).float()
    assert (drawn(rand, 20_000, generator, UNIFORM) - exact).abs().max() <= 2**-24
    numbers = drawn(rand, 20_000, generator, UNIFORM_D)
    assert 0 < numbers.min() and numbers.max() <= 1 and abs(numbers.mean() - 0.5) < 0.02


@pytest.mark.parametrize("generator", [XORWOW, PHILOX, SOBOL])
@pytest.mark.parametrize("kind", [NORMAL, NORMAL_D])
def test_normal_numbers_are_normal(rand, generator, kind):
    numbers = (drawn(rand, 20_000, generator, kind).double() - 1) / 2
    inside = [(numbers.abs() < bound).double().mean().item() for bound in (0.5, 1, 2)]
    assert inside == pytest.approx([0.3829, 0.6827, 0.9545], abs=0.012)
    pairs = numbers.view(2, -1) if generator == SOBOL else numbers.view(-1, 2).T
    assert generator == SOBOL or abs((pairs[0] * pairs[1]).mean()) < 0.04


def test_normal_numbers_of_xorwow_are_pairs_of_one_thread(rand):
    words = drawn(rand, 3 * 4096, XORWOW, RAW).long() & 0xFFFFFFFF
    first, second = (words[:4096].double() + 0.5) / 2**32, (words[4096:8192].double() + 0.5) / 2**32
    radius, angle = (-2 * first.log()).sqrt(), 2 * torch.pi * second
    pairs = torch.stack([radius * angle.sin(), radius * angle.cos()], 1).flatten()
    check_close(drawn(rand, 8192, XORWOW, NORMAL), 1 + 2 * pairs, atol=1e-4)


def test_sobol_points_are_pytorchs(rand):
    dims, count = 21, 500
    words = drawn(rand, dims * count, SOBOL, RAW, 0, 0, dims).long() & 0xFFFFFFFF
    words = words.view(dims, count)  # a dimension after the other
    points = torch.quasirandom.SobolEngine(dims).draw(count, dtype=torch.float64)
    check_close((words.double() / 2**32).T, points, atol=1e-9)


def test_wrong_arguments_of_curand_have_the_documented_status(rand):
    type_error, not_multiple = 103, 105
    said = rand.refused(randn(64))
    assert said == [type_error, not_multiple, not_multiple, *[type_error] * 3]


READY = r"""
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>
#include <vector>
using torch::Tensor;
struct Square { __host__ __device__ float operator()(float x) const { return x * x; } };
struct Positive { __host__ __device__ bool operator()(float x) const { return x > 0; } };
static float* ptr(const Tensor& x) { return x.data_ptr<float>(); }

// A call is made twice: for the size of its memory, and with it.
template <typename Call>
static void twice(const Tensor& like, Call call) {
    size_t bytes = 0;
    TORCH_CHECK(!call(nullptr, bytes));
    Tensor memory = torch::empty({int64_t(bytes)}, like.options().dtype(torch::kByte));
    TORCH_CHECK(!call(memory.data_ptr(), bytes));
}
void device_wide(Tensor x, std::vector<Tensor> out) {
    int n = x.numel();
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    auto part = [&](auto call) { twice(x, call); };
    part([&](void* m, size_t& b) {
        return cub::DeviceReduce::Sum(m, b, ptr(x), ptr(out[0]), n, stream);
    });
    part([&](void* m, size_t& b) {
        return cub::DeviceReduce::Max(m, b, ptr(x), ptr(out[0]) + 1, n, stream);
    });
    part([&](void* m, size_t& b) {
        return cub::DeviceScan::ExclusiveSum(m, b, ptr(x), ptr(out[1]), n, stream);
    });
    part([&](void* m, size_t& b) {
        return cub::DeviceRadixSort::SortKeysDescending(m, b, ptr(x), ptr(out[2]), n, 0, 32,
                                                         stream);
    });
    part([&](void* m, size_t& b) {
        return cub::DeviceSelect::If(m, b, ptr(x), ptr(out[3]), out[4].data_ptr<int>(), n,
                                     Positive(), stream);
    });
    part([&](void* m, size_t& b) {
        return cub::DeviceHistogram::HistogramEven(m, b, ptr(x), out[5].data_ptr<int>(), 9, -2.0f,
                                                   2.0f, n, stream);
    });
}
__global__ void block_sort_kernel(float* x, int* places) {
    using Sort = cub::BlockRadixSort<float, 64, 3, int>;
    __shared__ typename Sort::TempStorage storage;
    int first = (blockIdx.x * 64 + threadIdx.x) * 3;
    float keys[3];
    int values[3];
    for (int i = 0; i < 3; i++) keys[i] = x[first + i], values[i] = threadIdx.x * 3 + i;
    Sort(storage).Sort(keys, values);
    for (int i = 0; i < 3; i++) x[first + i] = keys[i], places[first + i] = values[i];
}
void block_sort(Tensor x, Tensor places) {
    block_sort_kernel<<<x.numel() / 192, 64>>>(ptr(x), places.data_ptr<int>());
}
std::vector<double> thrusts(Tensor x, Tensor scan) {
    int n = x.numel();
    auto policy = thrust::cuda::par.on(c10::cuda::getCurrentCUDAStream());
    thrust::device_ptr<float> p(ptr(x)), s(ptr(scan));
    std::vector<double> made;
    made.push_back(thrust::reduce(policy, p, p + n));
    made.push_back(thrust::reduce(policy, p, p + n, -1e30f, thrust::maximum<float>()));
    thrust::plus<float> plus;
    made.push_back(thrust::transform_reduce(policy, p, p + n, Square(), 0.0f, plus));
    thrust::counting_iterator<int> numbers(1);
    made.push_back(thrust::reduce(policy, numbers, numbers + 100));
    thrust::inclusive_scan(policy, p, p + n, s);
    thrust::device_vector<float> sorted(p, p + n);
    thrust::sort(policy, sorted.begin(), sorted.end(), thrust::greater<float>());
    made.push_back(sorted[0]);
    made.push_back(sorted[n - 1]);
    return made;
}
"""


@pytest.fixture(scope="module")
def ready():
    return compile_cuda(READY, libraries=("cub", "thrust"))


@pytest.mark.parametrize("n", [1, 33, 10_007])
def test_cub_for_the_device(ready, n):
    x, sums, scan, ordered = randn(n), randn(2), randn(n), randn(n)
    chosen, numbers = randn(n), torch.zeros(9, dtype=torch.int32, device=DEVICE)
    count, histogram = numbers[:1], numbers[1:]
    ready.device_wide(x, [sums, scan, ordered, chosen, count, histogram])
    exact = x.double()
    check_close(sums, torch.stack([exact.sum(), exact.max()]), atol=1e-3)
    check_close(scan, exact.cumsum(0) - exact, atol=1e-2)
    assert torch.equal(ordered, x.sort(descending=True)[0])
    assert torch.equal(chosen[: count.item()], x[x > 0])
    assert torch.equal(histogram.float(), torch.histc(x, 8, -2, 2))


def test_cub_sorts_a_block(ready):
    x, places = randn(5 * 192), torch.empty(5 * 192, dtype=torch.int32, device=DEVICE)
    expected = x.view(5, 192).sort(stable=True, dim=1)
    ready.block_sort(x, places)
    assert torch.equal(x.view(5, 192), expected[0])
    assert torch.equal(places.view(5, 192).long(), expected[1])


@pytest.mark.parametrize("n", [1, 1000])
def test_thrust(ready, n):
    x, scan = randn(n), randn(n)
    made = torch.tensor(ready.thrusts(x, scan), dtype=torch.float64)
    exact = x.double().cpu()
    sums = [exact.sum(), exact.max(), (exact**2).sum(), torch.tensor(5050.0)]
    check_close(made, torch.stack([*sums, exact.max(), exact.min()]).double(), atol=1e-3)
    check_close(scan, x.double().cumsum(0), atol=1e-3)


@on_cpu
@pytest.mark.parametrize(
    "header, call",
    [
        ("cublas_v2.h", "cublasSspmv(nullptr)"),
        ("cudnn.h", "cudnnRNNForward(nullptr)"),
        ("curand.h", "int(CURAND_RNG_PSEUDO_MT19937)"),
        ("thrust/sort.h", "thrust::merge(1)"),
    ],
)
def test_what_a_stand_in_lacks_is_said_with_the_line(header, call):
    src = f"#include <{header}>\nint f(torch::Tensor x) {{\n  return {call};\n}}\n"
    with pytest.raises(CompileError, match=r"line 3: (.|\n)*stand-ins for parts"):
        compile_cuda(src)


@on_cpu
def test_a_captured_stream_calls_the_library_at_every_launch():
    src = r"""
#include <cublas_v2.h>
int64_t launched(torch::Tensor x, torch::Tensor y, int64_t times) {
    cublasHandle_t handle;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    float one = 1;
    cublasCreate(&handle);
    cudaStreamCreate(&stream);
    cublasSetStream(handle, stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cublasSaxpy(handle, x.numel(), &one, x.data_ptr<float>(), 1, y.data_ptr<float>(), 1);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
    for (int i = 0; i < times; i++) cudaGraphLaunch(ready, stream);
    return cublasDestroy(handle);
}
"""
    x, y = torch.randn(5), torch.zeros(5)
    assert compile_cuda(src, libraries="cublas").launched(x, y, 3) == 0
    check_close(y, 3 * x, atol=1e-6)


@on_cpu
def test_stand_ins_under_check(blas):
    checked = compile_cuda(BLAS, check=True, libraries=("cublas",))
    A, B, C = randn(5, 7), randn(3, 5), randn(3, 7)
    assert checked.gemm(A, B, C, [0, 0, 7, 3, 5, 7, 5, 7], 1.0, 0.0) == 0
    check_close(by_columns(C), by_columns(A) @ by_columns(B), atol=1e-5)


def test_strings_are_linked_with_what_they_include():
    assert included('#include <cudnn.h>\n  #  include "cufft.h"\n') == ["cudnn", "cufft"]
    assert included("#include <cublasLt.h>\n") == ["cublas", "cublas_lt"]
    assert included("// nothing\n#include <curand_kernel.h>\n") == []


@on_cpu
def test_a_call_that_leaves_an_array_says_so_and_does_nothing(blas, rand):
    A, B, C = randn(10, 10), randn(10, 10), torch.zeros(9, 10)
    with pytest.raises(RuntimeError, match="cuBLAS uses 400 bytes of a tensor of 360 bytes: 40 b"):
        blas.gemm(A, B, C, [0, 0, 10, 10, 10, 10, 10, 10], 1.0, 0.0)
    assert not C.any()
    with pytest.raises(RuntimeError, match="cuRAND uses 16 bytes of a tensor of 8 bytes"):
        rand.draw(torch.zeros(2, dtype=torch.int32), PHILOX, NORMAL_D, 0, 0, 0)


COPIES = r"""
#include <cublas_v2.h>
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cufft.h>
#include <curand.h>
#include <curand_kernel.h>
#if !defined(CUBLAS_V2_H_) || !defined(CUBLAS_API_H_) || !defined(_CUFFT_H_) || !defined(CURAND_H_)
#error helper_cuda.h of the CUDA samples would not know these libraries
#endif
#if !defined(CURAND_KERNEL_H_) || !defined(__CUDA_FP16_H__) || !defined(__CUDA_BF16_H__)
#error nor these headers
#endif
std::vector<double> copied(torch::Tensor) {
  float h[6] = {1, 2, 3, 4, 5, 6}, back[4] = {}, *d;
  cudaMalloc(&d, 24);
  int failed = cublasSetVector(2, 4, h, 2, d, 1);             // 1 3
  failed |= cublasSetMatrix(2, 2, 4, h + 2, 2, d + 2, 2);     // 3 4 5 6
  failed |= cublasGetMatrix(1, 2, 4, d, 2, back, 1);          // 1 3
  failed |= cublasGetVector(2, 4, d + 3, 2, back + 2, 1);     // 4 6
  int refused = cublasSetVector(2, 4, h, 0, d, 1);
  cudaFree(d);
  return {back[0], back[1], back[2], back[3], double(failed), double(refused)};
}
"""


def test_cublas_copies_between_host_and_device_and_headers_have_nvidias_guards():
    copied = compile_cuda(COPIES, libraries=("cublas", "cufft", "curand")).copied
    assert copied(torch.zeros(1)) == [1, 3, 4, 6, 0, 7]  # CUBLAS_STATUS_INVALID_VALUE
