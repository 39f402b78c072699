// Batch normalisation while a network is trained: its gradients, by the operator of the backward.
#pragma once

#include "_products.h"

namespace kernels {

// given: the gradient of out, then inp, mean, var, weight, eps, as batch_norm2d_backward takes them
inline variable_list batch_norm2d_train_gradients(const Needs&, const Stack& given) {
  static const auto backward = find("kernels::batch_norm2d_backward");
  Stack stack = given;
  backward.callBoxed(&stack);  // the running statistics, behind inp, have none
  return {stack[0].toTensor(), Tensor(), Tensor(), stack[1].toTensor(), stack[2].toTensor()};
}

}  // namespace kernels
