// Gradients of the convolutions. An operator and the two of its gradients are each linear in both of
// their tensors, so that the gradients of one are the other two.
#pragma once

#include "_products.h"

#include <initializer_list>

namespace kernels {

// A convolution's three operators. All take two tensors, two sizes or a bias between them and the
// rest, and how (stride, padding …): the same for all.
struct Convolution {
  const c10::OperatorHandle forward, backward_input, backward_weight;

  explicit Convolution(const std::string& name)
      : forward(find(("kernels::" + name + "_forward").c_str())),
        backward_input(find(("kernels::" + name + "_backward_input").c_str())),
        backward_weight(find(("kernels::" + name + "_backward_weight").c_str())) {}
};

inline const Convolution& conv2d() {
  static const Convolution operators("conv2d");
  return operators;
}

inline const Convolution& depthwise_conv2d() {
  static const Convolution operators("depthwise_conv2d");
  return operators;
}

// how: what is kept from that place on
inline Tensor convolve(const c10::OperatorHandle& op, const Tensor& a, const Tensor& b,
                       std::initializer_list<c10::IValue> between, const Stack& given, size_t how) {
  Stack stack{a, b};
  stack.insert(stack.end(), between);
  stack.insert(stack.end(), given.begin() + how, given.end());
  op.callBoxed(&stack);
  return std::move(stack[0]).toTensor();
}

// One of the last two sizes: H, W of an image, kH, kW of filters. A graph of torch.compile is for
// images of one size.
inline c10::IValue side(const Tensor& tensor, int64_t dim) {
  return tensor.sym_size(dim).guard_int(__FILE__, __LINE__);
}

template <const Convolution& (*OF)()>
variable_list convolution_gradients(const Needs& needs, const Stack& given) {
  const Tensor &dout = given[0].toTensor(), &inp = given[1].toTensor();
  const Tensor& weight = given[2].toTensor();
  variable_list gradients(3);
  if (needs[0])
    gradients[0] = convolve(OF().backward_input, dout, weight, {side(inp, -2), side(inp, -1)},
                            given, 3);
  if (needs[1])
    gradients[1] = convolve(OF().backward_weight, dout, inp, {side(weight, -2), side(weight, -1)},
                            given, 3);
  if (needs[2]) gradients[2] = at::sum(dout, {0, 2, 3});
  return gradients;
}

// given: the gradient of dinp, then dout and weight
template <const Convolution& (*OF)()>
variable_list convolution_input_gradients(const Needs& needs, const Stack& given) {
  const Tensor &grad = given[0].toTensor(), &dout = given[1].toTensor();
  const Tensor& weight = given[2].toTensor();
  variable_list gradients(2);
  if (needs[0]) gradients[0] = convolve(OF().forward, grad, weight, {c10::IValue()}, given, 3);
  if (needs[1])
    gradients[1] = convolve(OF().backward_weight, dout, grad, {side(weight, -2), side(weight, -1)},
                            given, 3);
  return gradients;
}

// given: the gradient of dweight, then dout and inp
template <const Convolution& (*OF)()>
variable_list convolution_weight_gradients(const Needs& needs, const Stack& given) {
  const Tensor &grad = given[0].toTensor(), &dout = given[1].toTensor();
  const Tensor& inp = given[2].toTensor();
  variable_list gradients(2);
  if (needs[0]) gradients[0] = convolve(OF().forward, inp, grad, {c10::IValue()}, given, 3);
  if (needs[1])
    gradients[1] = convolve(OF().backward_input, dout, grad, {side(inp, -2), side(inp, -1)}, given,
                            3);
  return gradients;
}

}  // namespace kernels
