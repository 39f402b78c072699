// matmul, linear and what follows a layer: which kernel file computes it, and how it takes the
// matrices.
#pragma once

#include "_register.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include <array>

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

}  // namespace kernels
