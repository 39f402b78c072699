// Batch normalisation while a network is trained: kernels/batch_norm2d.cu moves running statistics
// in place, the operator returns those of the batch.
#pragma once

#include "_register.h"

#include <tuple>

namespace kernels {

inline std::tuple<Tensor, Tensor, Tensor, Tensor> run_batch_norm2d_train(
    const Tensor& inp, const Tensor& weight, const Tensor& bias, double eps) {
  static auto& train = *new Function("batch_norm2d", "batch_norm2d_train");
  TORCH_CHECK(inp.dim() == 4, "inp: expected 4 dimensions, got ", inp.dim());
  // With a momentum of 1 the running statistics become those of the batch.
  Tensor scratch = inp.new_zeros({inp.size(1)}), unbiased_var = inp.new_zeros({inp.size(1)});
  Stack found = train(inp.contiguous(), scratch, unbiased_var, weight.contiguous(),
                      bias.contiguous(), 1.0, eps);
  return {found[0].toTensor(), found[1].toTensor(), found[2].toTensor(), unbiased_var};
}

}  // namespace kernels
