"""What new memory holds on the CPU backend, and results that were not written."""

import math
import re
import warnings

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.compiler.tools import cpu_backend
from helpers.device import BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "cpu", reason="a GPU's memory is not filled")

SRC = r"""
template <class T> __global__ void fill_kernel(T* out, int first, int end) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= first && i < end) out[i] = T(i);
}
torch::Tensor fill(torch::Tensor like, int first, int end) {
    auto out = torch::empty_like(like);
    AT_DISPATCH_ALL_TYPES_AND2(torch::kHalf, torch::kBFloat16, out.scalar_type(), "fill", [&] {
        fill_kernel<<<end / 64 + 1, 64>>>(out.data_ptr<scalar_t>(), first, end);
    });
    return out;
}
std::tuple<torch::Tensor, torch::Tensor> fill_given(torch::Tensor out) {
    return {out, torch::zeros_like(out)};
}
__global__ void sum_kernel(const float* x, float* out, int first, int last) {
    float sum = 0;
    for (int i = first; i <= last; i++) sum += x[i];
    out[0] = sum;
}
torch::Tensor sum(torch::Tensor x, int first, int last) {
    auto out = torch::empty({1}, x.options());
    sum_kernel<<<1, 1>>>(x.data_ptr<float>(), out.data_ptr<float>(), first, last);
    return out;
}
__global__ void add_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += x[i];
}
torch::Tensor add(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    add_kernel<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""


@pytest.fixture(scope="module")
def cu():
    return compile_cuda(SRC)


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.half, torch.bfloat16])
def test_new_memory_is_nan(cu, dtype):
    assert torch.empty(100, dtype=dtype).isnan().all()


@pytest.mark.parametrize(
    "dtype", [torch.float, torch.double, torch.half, torch.bfloat16, torch.long]
)
def test_elements_that_were_not_written_are_reported(cu, dtype):
    for size, first, end in (1, 0, 0), (255, 0, 254), (255, 1, 255), (1823, 0, 1820):
        missing = size - (end - first)
        where = 0 if first else end
        said = f"of which {missing} of {size} elements were never written; the first is .{where}.."
        with pytest.warns(RuntimeWarning, match=f"^fill returns a tensor {said}$"):
            cu.fill(torch.zeros(size, dtype=dtype), first, end)
    with pytest.warns(RuntimeWarning, match=r"6 of 30 .* the first is \[2, 4\]"):
        cu.fill(torch.zeros(3, 10, dtype=dtype), 0, 24)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_small_integers_are_reported_where_eight_bytes_are_missing(cu, dtype):
    with pytest.warns(RuntimeWarning, match="16 of 256 .* the first is .240."):
        cu.fill(torch.zeros(256, dtype=dtype), 0, 240)


def test_accumulating_into_empty_is_reported(cu):
    with pytest.warns(RuntimeWarning, match="255 of 255 elements were never written"):
        cu.add(torch.ones(255))


def test_what_is_written_or_was_given_is_not_reported(cu):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (torch.float, torch.half, torch.uint8, torch.long):
            for size in (1, 7, 255, 1823):
                cu.fill(torch.zeros(size, dtype=dtype), 0, size)
        cu.fill_given(torch.empty(100))
        nan = torch.full((100,), torch.nan)
        assert cu.sum(nan, 0, 99).isnan()


@pytest.mark.parametrize("first, last", [(0, 255), (0, 1), (0, 1823), (-1, 254)])
def test_a_sum_of_what_lies_beside_an_array_is_an_error(cu, first, last):
    x = torch.ones(last - first)
    with pytest.raises(RuntimeError, match=r"^sum returns a tensor whose element \[0\] was comp"):
        cu.sum(x, first, last)


def test_a_tensor_larger_than_the_machine_is_refused():
    """As PyTorch does it: asked for its pages one by one, the system would end the process."""
    cpu_backend().install_allocator()
    with pytest.raises(RuntimeError, match=r"a tensor of 17592186044416 bytes, and \d+ are free"):
        torch.empty(1 << 44, dtype=torch.uint8)
    assert torch.empty(1000).shape == (1000,)


GRIDS = """
__global__ void double_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
__global__ void rows_kernel(const float* x, float* out, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) out[row * cols + col] = x[row * cols + col];
}
__global__ void fours_kernel(const float* x, float* out, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int k = 0; k < 4 && i + k < n; k++) out[i + k] = x[i + k];
}
torch::Tensor twice(torch::Tensor x, int64_t blocks) {
    auto out = torch::empty_like(x);
    double_kernel<<<blocks, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
void twice_into(torch::Tensor x, torch::Tensor out, int64_t blocks) {
    double_kernel<<<blocks, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
}
void twice_in_parts(torch::Tensor x, torch::Tensor out, int64_t parts) {
    for (int k = 0; k < parts; k++)
        double_kernel<<<1, 64>>>(x.data_ptr<float>() + 64 * k, out.data_ptr<float>() + 64 * k, 64);
}
torch::Tensor rows(torch::Tensor x, int64_t across, int64_t down) {
    auto out = torch::empty_like(x);
    rows_kernel<<<dim3(across, down), dim3(16, 8)>>>(x.data_ptr<float>(), out.data_ptr<float>(),
                                                   x.size(0), x.size(1));
    return out;
}
torch::Tensor fours(torch::Tensor x, int64_t blocks) {
    auto out = torch::empty_like(x);
    fours_kernel<<<blocks, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
# What a grid is given, and what a grid that is too small leaves: the first element, and how many.
TOO_SMALL = {
    "whole_blocks_only": ("twice", (1000,), (16,), (15,), "out[960]", 40, 960),
    "one_block": ("twice", (1000,), (16,), (1,), "out[64]", 936, 64),
    "one_element": ("twice", (65,), (2,), (1,), "out[64]", 1, 64),
    "into_what_was_given": ("twice_into", (1000,), (16,), (15,), "out[960]", 40, 960),
    "one_part_too_few": ("twice_in_parts", (320,), (5,), (4,), "out[64]", 64, 64),
    "last_columns": ("rows", (20, 40), (3, 3), (2, 3), "out[32]", 160, 768),
    "last_rows": ("rows", (20, 40), (3, 3), (3, 2), "out[640]", 160, 768),
    "rows_for_columns": ("rows", (8, 64), (4, 1), (1, 4), "out[16]", 384, 512),
    "four_elements_each": ("fours", (1000,), (8,), (7,), "out[896]", 104, 224),
}


@pytest.fixture(scope="module")
def grids():
    return compile_cuda(GRIDS, check=True)


@pytest.mark.parametrize("name", TOO_SMALL)
def test_what_a_grid_is_too_small_to_write_is_told_with_its_threads(grids, name):
    function, shape, enough, too_few, element, left, threads = TOO_SMALL[name]
    x = torch.arange(math.prod(shape)).float().reshape(shape)
    given = [torch.empty(shape)] if function in ("twice_into", "twice_in_parts") else []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(grids, function)(x, *given, *enough)
    given = [torch.empty(shape) for _ in given]
    said = rf"^\w+_kernel \(launched at line \d+\): {threads} threads run, and nobody writes "
    said += re.escape(f"{element}. {left} of the tensor's {x.numel()} elements were never written")
    with pytest.warns(RuntimeWarning, match=said) as warned:
        getattr(grids, function)(x, *given, *too_few)
    assert len(warned) == 1
    assert ("is the grid too small?" in str(warned[0].message)) == (threads < x.numel())
