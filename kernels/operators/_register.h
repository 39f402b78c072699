// A function of a kernel file, for the C++ of the operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <optional>
#include <string>

namespace kernels {

namespace py = pybind11;
using at::Tensor;
using torch::autograd::variable_list;
using torch::jit::Stack;

// kernels/<file>.cu is built when its function is first called. Lives as long as the process.
class Function {
 public:
  Function(std::string file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  const c10::OperatorHandle& handle();
  void call(Stack* stack);  // arguments in, results out

  template <class... Args>
  Stack operator()(Args&&... args) {
    Stack stack{std::forward<Args>(args)...};
    call(&stack);
    return stack;
  }

 private:
  const std::string file_, name_;
  std::optional<c10::OperatorHandle> handle_;
  std::atomic<bool> is_found_ = false;
  std::atomic<int64_t> calls_ = 0;
};

}  // namespace kernels
