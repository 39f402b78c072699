"""The light torch::Tensor against PyTorch: same values, same words, same strings."""

import re
import subprocess

import pytest
import torch

from helpers.compiler import CompileError, compile_cuda, torch_light
from helpers.compiler.source import host_functions
from helpers.device import BACKEND, DEVICE

# One string that uses everything, so that it is compiled once. It must build with PyTorch's own
# headers too: kernels/tests/test_kernels.py sees to that.
EVERYTHING = r"""
#include <cuda_fp16.h>
#include <c10/cuda/CUDAException.h>

std::vector<int64_t> shape(torch::Tensor x) {
  return {x.dim(), x.numel(), x.size(0), x.size(-1), x.stride(0), x.sizes()[1], x.strides()[1],
          x.storage_offset(), x.get_device() > 0, int64_t(x.element_size()), int64_t(x.nbytes()),
          x.is_contiguous(), x.contiguous().is_contiguous(), x.is_floating_point(), x.defined(),
          torch::Tensor().defined(), x.is_cuda(), x.device().is_cuda()};
}

std::string describe(torch::Tensor x, bool fails) {
  TORCH_CHECK(!fails, x.sizes(), " ", x.scalar_type(), " ", x.dtype(), " ", x.dim(), " ", 1.5f,
              " ", 2.0 / 3.0, " ", 'c', " ", std::string("s"), " ", true, " ", size_t(7), " ",
              torch::kHalf);
  return "fine";
}

std::string printed(torch::Tensor x) {
  std::ostringstream out;
  out << x.sizes() << ' ' << x.dtype() << ' ' << x.scalar_type() << ' ' << torch::kCPU << ' '
      << x.options() << ' ' << torch::TensorOptions();
  return out.str();
}

int64_t standard_library(torch::Tensor x) {
  std::array<int64_t, 2> sizes{x.size(0), x.size(1)};
  std::map<std::string, int64_t> named{{"rows", sizes[0]}};
  std::sort(sizes.begin(), sizes.end());
  if (!device_of(x).has_value()) throw std::invalid_argument("of no device");
  return 100 * named["rows"] + sizes[1];
}

void warn(int64_t times) {
  for (int64_t i = 0; i < times; i++) TORCH_WARN_ONCE("warned ", i, " of ", times);
}

std::tuple<torch::Tensor, torch::Tensor> move(const torch::Tensor& x, at::Tensor& out) {
  out.zero_();
  out.fill_(3);
  auto moved = x.t().contiguous().view({x.size(1) * x.size(0)}).reshape({x.size(1), -1});
  return {moved.clone().to(torch::kFloat64), out.transpose(0, 1).flatten()};
}

std::vector<torch::Tensor> make(torch::Tensor x, int64_t rows, int columns) {
  auto options = torch::TensorOptions().dtype(torch::kInt32).device(x.device());
  auto wide = torch::empty({rows, columns}, torch::dtype(torch::kInt64).device(x.device()));
  return {torch::zeros({rows, columns}, options),
          torch::ones({columns}, x.options()),
          torch::full({2, 2}, 2.5, x.options()),
          torch::empty_like(x).copy_(x),
          torch::zeros_like(x),
          torch::ones_like(x, x.options().dtype(torch::kBool)),
          torch::full_like(x, 7),
          wide.fill_(9),
          torch::empty(x.sizes(), torch::kFloat16).fill_(0.5).to(x.device())};
}

double items(torch::Tensor f, torch::Tensor i, torch::Tensor b) {
  return f.item<float>() + f.item<double>() + i.item<int64_t>() + i.item<int>() + b.item<bool>();
}

std::string options(c10::optional<torch::Tensor> t, std::optional<int64_t> n, std::string word,
                    std::vector<double> numbers, bool flag, torch::ScalarType type) {
  return (t.has_value() ? "tensor " : "none ") + std::to_string(n.value_or(-1)) + " " + word + " " +
         std::to_string(numbers.size()) + (flag ? " true " : " false ") +
         (type == torch::kFloat16 ? "half" : "other");
}

float narrow(unsigned char small, short s, unsigned int u, float f) { return small + s + u + f; }

torch::Tensor view_as(torch::Tensor x, std::vector<int64_t> shape) { return x.view(shape); }
int64_t size_of(torch::Tensor x, int64_t d) { return x.size(d); }
torch::Tensor same(torch::Tensor x) { return x; }
void nothing(torch::Tensor x) {}
std::optional<torch::Tensor> maybe(torch::Tensor x, bool give) {
  return give ? std::optional<torch::Tensor>(x) : std::nullopt;
}

template <typename scalar_t>
__global__ void scale_kernel(scalar_t* out, const scalar_t* inp, float factor, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = static_cast<scalar_t>(static_cast<float>(inp[i]) * factor);
}

torch::Tensor scale(torch::Tensor inp, double factor) {
  TORCH_CHECK(inp.is_cuda(), "expected a CUDA tensor, got ", inp.device());
  auto out = torch::empty_like(inp);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::ScalarType::Half, at::ScalarType::BFloat16, inp.scalar_type(), "scale", [&] {
        scale_kernel<scalar_t><<<(inp.numel() + 127) / 128, 128>>>(
            out.mutable_data_ptr<scalar_t>(), inp.const_data_ptr<scalar_t>(), float(factor),
            inp.numel());
      });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

torch::Tensor resolved(torch::Tensor inp) {
  TORCH_CHECK(inp.scalar_type() == torch::kComplexFloat, "expected ", torch::kComplexFloat,
              ", got ", inp.scalar_type());
  return inp.resolve_conj();
}

torch::Tensor wrong_type(torch::Tensor inp) {
  inp.data_ptr<float>();
  return inp;
}
"""

ATOMICS = r"""
#include <ATen/cuda/Atomic.cuh>
template <class T> __global__ void count_kernel(T* x) {
  gpuAtomicAdd(x, T(1));
  gpuAtomicAddNoReturn(x + 1, T(2));
}
void count(torch::Tensor x) {
  AT_DISPATCH_FLOATING_TYPES_AND2(torch::kInt, torch::kLong, x.scalar_type(), "count", [&] {
    count_kernel<<<2, 32>>>(x.data_ptr<scalar_t>());
  });
}
void count_16_bits(torch::Tensor x, torch::Tensor y) {
  count_kernel<<<2, 32>>>(x.data_ptr<at::Half>());
  count_kernel<<<2, 32>>>(y.data_ptr<at::BFloat16>());
}
"""


def test_pytorchs_names_for_atomics():
    functions = compile_cuda(ATOMICS)
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        x = torch.zeros(2, dtype=dtype, device=DEVICE)
        functions.count(x)
        assert x.tolist() == [64, 128]
    x, y = (torch.zeros(2, dtype=t, device=DEVICE) for t in (torch.float16, torch.bfloat16))
    functions.count_16_bits(x, y)
    assert x.tolist() == y.tolist() == [64, 128]


ALL = [function.name for function in host_functions(EVERYTHING) if not function.hidden]


@pytest.fixture(scope="module")
def mod():
    return compile_cuda(EVERYTHING, ALL)


def message(function, *args) -> str:
    with pytest.raises(RuntimeError) as caught:
        function(*args)
    return str(caught.value).split("\n")[0]


def randn(*shape, **options):
    return torch.randn(*shape, device=DEVICE, **options)


def test_a_lazy_conjugate_is_resolved(mod):
    """What the memory holds then is the conjugate."""
    x = randn(3, 4, dtype=torch.complex64)
    got = mod.resolved(x.conj())
    assert not got.is_conj()
    assert torch.equal(torch.view_as_real(got)[..., 1], -x.imag)
    assert torch.equal(torch.view_as_real(mod.resolved(x)), torch.view_as_real(x))
    assert message(mod.resolved, x.to(torch.complex128)) == (
        "expected ComplexFloat, got ComplexDouble"
    )


def test_a_warning_comes_once(mod, capfd):
    mod.warn(3)
    mod.warn(2)
    said = capfd.readouterr().err
    assert said.count("warned") == 1 and "warned 0 of 3" in said


def test_shape_and_strides(mod):
    x = randn(7, 5, dtype=torch.float64)[1:, ::2]
    assert mod.shape(x) == [2, 18, 6, 3, 5, 3, 2, 5, 0, 8, 144, 0, 1, 1, 1, 0, 1, 1]
    assert not x.is_contiguous()


def test_a_tensor_that_is_not_on_the_device(mod):
    elsewhere = torch.empty(3, 4, device="meta")
    assert mod.shape(elsewhere)[-2:] == [0, 0]
    assert message(mod.scale, elsewhere, 2.0) == "expected a CUDA tensor, got meta"


def test_check_prints_as_torch_does(mod):
    x = torch.zeros(2, 3, dtype=torch.int32, device=DEVICE)
    assert mod.describe(x, False) == "fine"
    rest = "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))"
    own = f"TensorOptions(dtype=int, device={x.device}, layout=Strided, {rest}"
    plain = "TensorOptions(dtype=float (default), device=cpu (default), layout=Strided (default)"
    assert mod.printed(x) == f"[2, 3] int Int cpu {own} {plain}, {rest}"
    assert mod.standard_library(x.t()) == 303
    assert message(mod.describe, x, True) == "[2, 3] Int int 2 1.5 0.666667 c s 1 7 Half"


def test_views_and_copies(mod):
    x, out = randn(3, 5), randn(4, 2)
    moved, flat = mod.move(x, out)
    assert moved.dtype == torch.float64 and torch.equal(moved, x.t().double())
    assert torch.equal(out, torch.full_like(out, 3))
    assert torch.equal(flat, out.t().flatten())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_new_tensors(mod, dtype):
    x = randn(3, 5).to(dtype)
    made = mod.make(x, 2, 3)
    expected = [
        torch.zeros(2, 3, dtype=torch.int32),
        torch.ones(3, dtype=dtype),
        torch.full((2, 2), 2.5, dtype=dtype),
        x,
        torch.zeros_like(x),
        torch.ones_like(x, dtype=torch.bool),
        torch.full_like(x, 7),
        torch.full((2, 3), 9),
        torch.full((3, 5), 0.5, dtype=torch.float16),
    ]
    for actual, wanted in zip(made, expected, strict=True):
        assert actual.device.type == BACKEND
        assert actual.dtype == wanted.dtype and torch.equal(actual, wanted.to(DEVICE))


def test_like_keeps_channels_last(mod):
    x = randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert mod.make(x, 1, 1)[4].stride() == x.stride()


def test_items(mod):
    number = torch.tensor([1.25], device=DEVICE)
    big = torch.tensor(2**31, device=DEVICE)
    assert mod.items(number, torch.tensor(7, device=DEVICE), number > 0) == 1.25 * 2 + 14 + 1
    assert "3 elements cannot be converted to Scalar" in message(mod.items, randn(3), big, big)


def test_every_kind_of_argument(mod):
    x = randn(2)
    said = mod.options(x, 4, "naïve", [1.0, 2.0], True, torch.float16)
    assert said == "tensor 4 naïve 2 true half"
    assert mod.options(None, None, "", [], False, torch.float32) == "none -1  0 false other"
    assert mod.maybe(x, False) is None and torch.equal(mod.maybe(x, True), x)
    assert mod.nothing(x) is None
    assert mod.same(x).data_ptr() == x.data_ptr()
    assert mod.same(x[:0]).shape == (0,)


def test_numbers_that_do_not_fit(mod):
    assert mod.narrow(255, -(2**15), 2**32 - 1, 0.5) == float(torch.tensor(2.0**32 - 2**15 + 254))
    for bad in [(256, 0, 0, 0.0), (-1, 0, 0, 0.0), (0, 2**15, 0, 0.0), (0, 0, -1, 0.0)]:
        wrong = next(n for n in bad if n)
        said = message(mod.narrow, *bad)
        assert re.fullmatch(rf"{wrong} does not fit into the argument's C\+\+ type .*", said)
    assert message(mod.narrow, 0, 0, 0, 1e39) == "1e+39 does not fit into a float"
    assert mod.narrow(0, 0, 0, float("inf")) == float("inf")


def test_wrong_arguments_get_torchs_words(mod):
    expected = "Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'"
    assert expected in message(mod.same, 3)
    assert "missing value for argument" in message(mod.same)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 127, 129])
def test_dispatch(mod, dtype, n):
    x = randn(n).to(dtype)
    expected = (x.double() * 1.5).to(dtype)
    torch.testing.assert_close(mod.scale(x, 1.5), expected, rtol=1e-6, atol=0)


def test_dispatch_and_data_ptr_refuse_as_torch_does(mod):
    x = torch.zeros(3, dtype=torch.int32, device=DEVICE)
    assert message(mod.scale, x, 2.0) == "\"scale\" not implemented for 'Int'"
    assert message(mod.wrong_type, x) == "expected scalar type Float but found Int"


def test_bad_shapes_get_torchs_words(mod):
    x = randn(2, 3)
    assert message(mod.view_as, x, [4, 2]) == message(x.view, 4, 2)
    assert message(mod.view_as, x, [-1, 4]) == message(x.view, -1, 4)
    assert message(mod.size_of, x, 2) == str(pytest.raises(IndexError, x.size, 2).value)
    assert mod.size_of(x, -2) == 2


def test_autograd_does_not_look_inside(mod):
    weight = randn(3).requires_grad_()
    assert not mod.scale(weight, 2.0).requires_grad  # as with load_inline
    assert mod.same(weight).requires_grad


def test_element_types_are_checked_when_compiling():
    source = "void f(torch::Tensor x) {\n  x.data_ptr<unsigned long long>();\n}"
    with pytest.raises(CompileError, match="line 2: .*not a PyTorch"):
        compile_cuda(source)


def test_which_strings_the_light_headers_are_enough_for():
    assert torch_light.is_enough_for('#include <c10/cuda/CUDAGuard.h>\n#include "mine.h"')
    assert torch_light.is_enough_for("#include <torch/types.h>")
    assert torch_light.is_enough_for("// #include <torch/extension.h>")
    assert not torch_light.is_enough_for("  #  include <torch/extension.h>")
    assert not torch_light.is_enough_for("#include <ATen/native/Resize.h>")
    assert torch_light.is_enough_for("// at::Scalar\nvoid f(torch::ScalarType t, Scalar s) {}")
    for more in (
        "void f(at::Scalar s) {}",
        "py::object f();",
        "TORCH_LIBRARY(a, m) {}",
        "x.packed_accessor32<float, 2>();",
        "c10::GenericPackedTensorAccessor<T, 2> a;",
    ):
        assert not torch_light.is_enough_for(more)


def test_which_strings_are_tried_with_the_light_headers():
    lightened = torch_light.lighten('#include <torch/extension.h>\n#include "a.h"\nint x;\n')
    assert lightened == '#include <torch_light/standard.h>\n#include "a.h"\nint x;\n'
    assert torch_light.lighten("#include <torch/extension.h>\nPYBIND11_MODULE(a, m) {}") is None
    assert torch_light.lighten("#include <torch/extension.h>\nvoid f(at::Scalar x) {}") is None
    assert torch_light.lighten("#include <torch/extension.h>\nvoid f(py::list x) {}") is None


def test_the_headers_compile_without_a_warning(tmp_path):
    unit = tmp_path / "unit.cpp"
    unit.write_text("#include <torch_light/binding.h>\n")
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    done = subprocess.run(
        [*command, f"-I{torch_light.INCLUDE}", unit], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_function_may_be_called_like_one_of_cuda():
    maths = compile_cuda(r"""
__global__ void exp_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = expf(inp[i]);
}
torch::Tensor exp(const torch::Tensor& inp) {
    auto out = torch::empty_like(inp);
    int n = inp.numel();
    exp_kernel<<<(n + 255) / 256, 256>>>(out.data_ptr<float>(), inp.data_ptr<float>(), n);
    return out;
}
std::tuple<torch::Tensor, double> max(torch::Tensor inp, std::optional<double> all) {
    return {exp(inp), all.value_or(1.0)};
}
""")
    x = torch.randn(1823, device=DEVICE)
    out, one = maths.max(x, None)
    assert torch.allclose(maths.exp(x), x.exp()) and torch.equal(out, maths.exp(x)) and one == 1


@pytest.mark.parametrize(
    "code, names",
    [
        ("std::vector<int64_t> v;", True),
        ("using namespace std;", True),
        ("at::OptionalCUDAGuard guard(device_of(x));", True),
        ("c10::optional<double> scale = c10::nullopt;", True),
        ("auto sizes = x.sizes().vec();", True),
        ("auto name = x.device().str();", True),
        ('TORCH_CHECK(x.dim() == 2, "expected 2, got ", x.sizes()); // a standard', False),
        ('c10::cuda::CUDAGuard guard(x.device()); x.to(torch::Device("cpu"));', False),
    ],
)
def test_the_standard_library_is_read_only_for_strings_that_name_it(code, names):
    assert ("torch_light/std.h" in torch_light.preamble(code)) == names


def test_what_strings_take_for_granted_is_there():
    host = compile_cuda(
        """
    __global__ void k(float* x) { x[0] = fmaxf(fabsf(x[0]), FLT_MIN) + INT_MAX; assert(x[0] > 0); }
    int host(torch::Tensor x) {
      char text[32];
      snprintf(text, sizeof text, "%d", 12);
      uint32_t big = UINT32_MAX;
      memset(text + 2, 0, 1);
      if (isnan(sqrt(2.0)) || time(nullptr) == 0 || big < 1) printf("never");
      k<<<1, 1>>>(x.data_ptr<float>());
      return atoi(text) + abs(-3) + (int)strlen(text);
    }
    """
    ).host
    assert host(torch.ones(1, device=DEVICE)) == 12 + 3 + 2
