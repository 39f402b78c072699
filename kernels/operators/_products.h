// matmul, linear and what follows a layer: which kernel file computes it, how it takes the matrices,
// and the gradients, which are products again, and sums.
#pragma once

#include "_register.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>

#include <array>
#include <vector>

namespace kernels {

// A matrix as the files take it: its rows or its columns without gaps.
inline Tensor in_lines(const Tensor& matrix) {
  if (matrix.dim() == 2) {
    const auto rows = matrix.size(0), cols = matrix.size(1);
    const auto row_stride = matrix.stride(0), col_stride = matrix.stride(1);
    const bool by_rows = col_stride == 1 && row_stride >= cols;
    const bool by_cols = row_stride == 1 && col_stride >= rows;
    if (by_rows || by_cols) return matrix;
  }
  return matrix.contiguous();
}

// Whether tensor cores multiply bfloat16: from sm_80 on. PyTorch's C++ tells it with CUDA's headers
// alone, so Python is asked, once for each GPU.
inline bool knows_bfloat16(c10::Device device) {
  static std::array<std::atomic<int>, 128> capabilities{};  // by index
  auto& capability = capabilities.at(device.index());
  if (capability == 0) {
    py::gil_scoped_acquire python;
    auto found = py::module_::import("torch.cuda").attr("get_device_capability")(device.index());
    capability = found.cast<std::pair<int, int>>().first;
  }
  return capability >= 8;
}

// Whether the tensor cores take these numbers without loss.
inline bool uses_tensor_cores(const Tensor& A) {
  if (A.scalar_type() == c10::kBFloat16 && A.is_cuda()) return knows_bfloat16(A.device());
  return A.scalar_type() == c10::kHalf || A.scalar_type() == c10::kBFloat16;
}

inline Tensor run_matmul(const Tensor& A, const Tensor& B) {
  static auto& halves = *new Function("matmul_tensor_core", "matmul_tensor_core");
  static auto& floats = *new Function("matmul", "matmul");
  return uses_tensor_cores(A) ? halves(in_lines(A), in_lines(B), false)[0].toTensor()
                              : floats(in_lines(A), in_lines(B))[0].toTensor();
}

// Whether the layer is one for linear.cu, which takes rows of weights in order.
inline bool is_layer(const Tensor& inp, const Tensor& weight) {
  return uses_tensor_cores(inp) && inp.dim() == 2 && weight.is_contiguous();
}

constexpr int64_t MOST_ROWS = 512;  // with more, and no bias, a layer is a product of matrices

inline Tensor run_linear(const Tensor& inp, const Tensor& weight, const Tensor& bias) {
  static auto& layer = *new Function("linear", "linear");
  static auto& add_product = *new Function("matmul", "matmul_into");
  const bool has_bias = bias.numel() || bias.dim() != 1;
  TORCH_CHECK(bias.scalar_type() == inp.scalar_type() &&
                  (!has_bias || bias.sizes() == weight.sizes().slice(0, 1)),
              "bias: expected ", inp.scalar_type(), ", shape ", weight.sizes().slice(0, 1),
              ", got ", bias.scalar_type(), ", shape ", bias.sizes());
  if (is_layer(inp, weight) && (has_bias || inp.size(0) <= MOST_ROWS))
    return layer(inp.contiguous(), weight, bias.contiguous())[0].toTensor();
  if (!has_bias) return run_matmul(inp, weight.t());
  if (uses_tensor_cores(inp)) return run_matmul(inp, weight.t()).add_(bias);
  Tensor out = inp.new_empty({inp.size(0), bias.size(0)}).copy_(bias);  // in each row
  add_product(out, in_lines(inp), in_lines(weight.t()), 1.0, 1.0);
  return out;
}

inline Tensor run_linear_gelu(const Tensor& inp, const Tensor& weight, const Tensor& bias,
                              bool by_tanh) {
  static auto& layer = *new Function("linear", "linear_gelu");
  static auto& gelu = *new Function("gelu", "gelu_forward");
  if (is_layer(inp, weight))
    return layer(inp.contiguous(), weight, bias.contiguous(), by_tanh)[0].toTensor();
  Tensor y = run_linear(inp, weight, bias);
  return by_tanh ? at::gelu(y, "tanh") : gelu(y)[0].toTensor();
}

inline Tensor run_linear_residual(const Tensor& inp, const Tensor& weight, const Tensor& bias,
                                  const Tensor& residual) {
  static auto& layer = *new Function("linear", "linear_residual");
  if (is_layer(inp, weight))
    return layer(inp.contiguous(), weight, bias.contiguous(), residual.contiguous())[0].toTensor();
  return run_linear(inp, weight, bias).add_(residual);
}

inline Tensor run_linear_silu_gate(const Tensor& inp, const Tensor& weight, const Tensor& bias) {
  static auto& layer = *new Function("linear", "linear_silu_gate");
  if (is_layer(inp, weight))
    return layer(inp.contiguous(), weight, bias.contiguous())[0].toTensor();
  auto halves = run_linear(inp, weight, bias).chunk(2, -1);
  return at::silu(halves[0]).mul_(halves[1]);
}

// ----------------------------------------------------------------------------------- gradients

// They call operators, not files, so that autograd and torch.compile see what there is to
// differentiate again. needs: whether anybody asks for the gradient of an argument; given: the
// result's gradient, and what _register.py was told to keep.
using Needs = std::vector<bool>;

// An operator of ours that takes as many tensors as are given here, and returns one.
template <class... Tensors>
Tensor call(const c10::OperatorHandle& op, const Tensors&... tensors) {
  return op.typed<Tensor(const Tensors&...)>().call(tensors...);
}

inline c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

inline Tensor product(const Tensor& A, const Tensor& B) {
  static const auto matmul = find("kernels::matmul");
  return call(matmul, A, B);
}

inline variable_list matmul_gradients(const Needs& needs, const Stack& given) {
  const Tensor &dout = given[0].toTensor(), &A = given[1].toTensor(), &B = given[2].toTensor();
  return {needs[0] ? product(dout, B.t()) : Tensor(), needs[1] ? product(A.t(), dout) : Tensor()};
}

// of inp, weight and bias, from that of y = inp @ weight.T + bias
inline variable_list layer_gradients(const Needs& needs, const Tensor& dy, const Tensor& inp,
                                     const Tensor& weight) {
  return {needs[0] ? product(dy, weight) : Tensor(),
          needs[1] ? product(dy.t(), inp) : Tensor(),
          needs[2] ? at::sum(dy, at::OptionalIntArrayRef(0)) : Tensor()};
}

inline variable_list linear_gradients(const Needs& needs, const Stack& given) {
  return layer_gradients(needs, given[0].toTensor(), given[1].toTensor(), given[2].toTensor());
}

inline variable_list linear_residual_gradients(const Needs& needs, const Stack& given) {
  variable_list gradients = linear_gradients(needs, given);
  gradients.push_back(given[0].toTensor());
  return gradients;
}

// What follows a layer in its kernel never lies in memory before it: where its gradient needs y,
// the layer's own result, the layer is computed once more.
inline Tensor layer_again(const Tensor& inp, const Tensor& weight, const Tensor& bias) {
  static const auto linear = find("kernels::linear");
  return call(linear, inp, weight, bias);
}

inline variable_list linear_gelu_gradients(const Needs& needs, const Stack& given) {
  static const auto gelu_backward = find("kernels::gelu_backward");
  const Tensor &dout = given[0].toTensor(), &inp = given[1].toTensor();
  const Tensor &weight = given[2].toTensor(), &bias = given[3].toTensor();
  const Tensor y = layer_again(inp, weight, bias);
  const bool by_tanh = given[4].toBool();
  const Tensor dy = by_tanh ? at::gelu_backward(dout, y, "tanh") : call(gelu_backward, dout, y);
  return layer_gradients(needs, dy, inp, weight);
}

inline variable_list linear_silu_gate_gradients(const Needs& needs, const Stack& given) {
  const Tensor &dout = given[0].toTensor(), &inp = given[1].toTensor();
  const Tensor &weight = given[2].toTensor(), &bias = given[3].toTensor();
  const auto halves = layer_again(inp, weight, bias).to(c10::kFloat).chunk(2, -1);
  const Tensor &gate = halves[0], &up = halves[1];
  const Tensor share = gate.sigmoid();
  const Tensor dgate = dout * up * share * (1 + gate * (1 - share));
  const Tensor dup = dout * gate * share;
  return layer_gradients(needs, at::cat({dgate, dup}, -1).to(inp.scalar_type()), inp, weight);
}

}  // namespace kernels
