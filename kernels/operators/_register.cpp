// The way of an operator's call, from PyTorch's dispatcher to the function of a kernel file and
// back through autograd, in C++: Python is entered where a file has to be built, and for a gradient
// that is written in it. One boxed kernel stands for each step; _register.py says which operator has
// which.
#include "_register.h"

#include "_convolution.h"
#include "_norms.h"
#include "_products.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <type_traits>
#include <variant>

namespace at::autocast {
TORCH_API ScalarType get_autocast_dtype(DeviceType);  // its header reads all others
}

namespace kernels {

using c10::DispatchKeySet;
using c10::IValue;

// ------------------------------------------------------------------------ functions of the files

static PyObject* find_function;  // Python: a file and a function → the operator that it became

const c10::OperatorHandle& Function::handle() {
  if (!is_found_.load(std::memory_order_acquire)) {
    py::gil_scoped_acquire python;
    auto found = py::handle(find_function)(file_, name_, py::cpp_function([this] {
      return calls_.load();
    })).cast<std::string>();
    if (!handle_)  // while the file was built another thread may have come here
      handle_ = c10::Dispatcher::singleton().findSchemaOrThrow(found.c_str(), "");
    is_found_.store(true, std::memory_order_release);
  }
  return *handle_;
}

void Function::call(Stack* stack) {
  const auto& function = handle();
  calls_.fetch_add(1, std::memory_order_relaxed);
  try {
    function.callBoxed(stack);
  } catch (const std::exception& error) {  // Ctrl-C while a kernel ran on the CPU backend
    if (!std::string_view(error.what()).ends_with(": interrupted.")) throw;
    py::gil_scoped_acquire python;
    PyErr_SetString(PyExc_KeyboardInterrupt, error.what());
    throw python_error();
  }
}

// --------------------------------------------------------------------------------- CPU and CUDA

static bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

// A function of a file, with its tensors laid out as it takes them. Of the operator's arguments it
// has the first ones; others are there for the gradient, or the other function, alone.
struct Run final : c10::OperatorKernel {
  Function function;
  const bool takes_channels_last;
  std::optional<Function> of_halves;  // where half types have one; it wants channels last

  Run(std::string file, std::string name, bool takes_channels_last, std::string halves_file,
      std::string halves_name)
      : function(std::move(file), std::move(name)), takes_channels_last(takes_channels_last) {
    if (!halves_file.empty()) of_halves.emplace(std::move(halves_file), std::move(halves_name));
  }

  Tensor laid_out(const Tensor& tensor, bool halves) const {
    constexpr auto LAST = c10::MemoryFormat::ChannelsLast;
    if (tensor.dim() == 4 && halves) return tensor.contiguous(LAST);
    bool fits = takes_channels_last && tensor.dim() == 4 && tensor.is_contiguous(LAST);
    return fits ? tensor : tensor.contiguous();
  }

  static bool is_optional(Function& function, size_t i) {
    const auto& arguments = function.handle().schema().arguments();
    return i >= arguments.size() || arguments[i].type()->kind() == c10::TypeKind::OptionalType;
  }

  void operator()(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const size_t first = stack->size() - arguments.size();
    const auto type = (*stack)[first].isTensor() ? (*stack)[first].toTensor().scalar_type()
                                                 : c10::ScalarType::Undefined;
    const bool halves = of_halves && c10::isReducedFloatingType(type);
    Function& called = halves ? *of_halves : function;
    std::vector<Tensor> written;
    for (size_t i = 0; i < arguments.size(); ++i) {
      IValue& value = (*stack)[first + i];
      if (is_written(arguments[i])) {  // and so no copy will do
        if (value.isTensor()) written.push_back(value.toTensor());
        else for (const Tensor& tensor : value.toTensorVector()) written.push_back(tensor);
      } else if (value.isNone()) {  // no bias, for instance: for a file that is an empty tensor
        if (!is_optional(called, i)) value = (*stack)[first].toTensor().new_empty({0});
      } else if (value.isTensor()) {
        if (halves || !value.toTensor().is_contiguous()) value = laid_out(value.toTensor(), halves);
      } else if (value.isTensorList()) {
        auto tensors = value.toTensorVector();
        for (Tensor& tensor : tensors) tensor = laid_out(tensor, halves);
        value = std::move(tensors);
      }
    }
    stack->resize(first + called.handle().schema().arguments().size());
    called.call(stack);
    // autograd complains where a backward needs what was there before
    for (const Tensor& tensor : written)
      if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
};

// ------------------------------------------------------------------------------------- autocast

// Float tensors converted to one type: the region's, or `dtype`. float64 stays, as with PyTorch's.
struct Cast final : c10::OperatorKernel {
  const c10::DeviceType device;
  const c10::DispatchKey key;
  const std::optional<c10::ScalarType> dtype;

  Cast(c10::DeviceType device, c10::DispatchKey key, std::optional<c10::ScalarType> dtype)
      : device(device), key(key), dtype(dtype) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard below(key);
    const auto type = dtype ? *dtype : at::autocast::get_autocast_dtype(device);
    for (size_t i = op.schema().arguments().size(); i > 0; --i) {
      IValue& value = (*stack)[stack->size() - i];
      const auto& argument = op.schema().arguments()[op.schema().arguments().size() - i];
      if (!value.isTensor() || is_written(argument)) continue;
      if (!value.toTensor().is_floating_point()) continue;
      if (value.toTensor().scalar_type() != c10::kDouble) value = value.toTensor().to(type);
    }
    op.callBoxed(stack);
  }
};

// ------------------------------------------------------------------------------------- autograd

using torch::autograd::Edge, torch::autograd::Node, torch::autograd::SavedVariable;
using NodePointer = decltype(Edge::function);  // a std::shared_ptr before PyTorch 2.13
using Shape = std::vector<c10::SymInt>;

struct Backward;
using Places = std::vector<size_t>;
using Others = std::vector<std::pair<size_t, bool>>;  // places; true: of the shape alone
using Flows = std::vector<bool>;                      // a result each: whether gradients go through

// What the gradient of an operator needs: places count its arguments, then its results.
struct Gradient {
  std::string name;
  // a node, gradients of its results and the tensors that it keeps → one for each argument
  std::function<variable_list(const Backward&, Stack)> function;
  Places tensors;
  Others others;
  Flows flows;
};

struct Backward final : Node {
  const Gradient& gradient;
  const size_t arguments;  // of the operator: as many edges
  std::vector<SavedVariable> saved;
  std::vector<std::variant<IValue, Shape>> others;

  Backward(const Gradient& gradient, size_t arguments)
      : gradient(gradient), arguments(arguments) {}

  std::string name() const override { return gradient.name + "_backward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& variable : saved) variable.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(arguments);
    if (grads.size() == 1 && !grads[0].defined()) return results;  // nothing flows back
    Stack given;
    for (size_t i = 0; i < grads.size(); ++i)
      given.emplace_back(grads[i].defined() ? grads[i] : input_metadata(i).zeros_like());
    for (const SavedVariable& variable : saved) {
      Tensor tensor = variable.unpack(getptr());
      given.push_back(tensor.defined() ? IValue(std::move(tensor)) : IValue());
    }
    return gradient.function(*this, std::move(given));
  }

  std::vector<bool> needs() const {  // of each argument: whether anybody asks for its gradient
    std::vector<bool> asked(arguments);
    for (size_t i = 0; i < arguments; ++i) asked[i] = task_should_compute_output(i);
    return asked;
  }

  // A result holds this node: what is saved of it does not, or neither would ever be freed.
  bool is_own_result(size_t place) const {
    return place >= arguments && gradient.flows[place - arguments];
  }

  // How torch.compile traces backward: what a graph depends on, and `apply` with its stand-ins.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    for (size_t i = 0; i < saved.size(); ++i)
      args.collect(saved[i], is_own_result(gradient.tensors[i]));
    for (const auto& kept : others)
      std::visit([&args](const auto& value) { args.collect(value); }, kept);
  }

  variable_list apply_with_saved(const variable_list& inputs,
                                 torch::dynamo::autograd::SwapSavedVariables& swap) override {
    swap.before(saved);
    for (auto& kept : others) std::visit([&swap](auto& value) { swap.before(value); }, kept);
    variable_list results = apply(variable_list(inputs));
    swap.after(saved);
    for (auto& kept : others) std::visit([&swap](auto& value) { swap.after(value); }, kept);
    return results;
  }
};

// ------------------------------------------------------------------------ gradients: who has them

struct Context {  // `ctx` for Python
  py::tuple needs_input_grad;
};

static py::object to_python(const IValue& value) {
  if (value.isNone()) return py::none();
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isBool()) return py::cast(value.toBool());
  if (value.isInt()) return py::cast(value.toInt());
  if (value.isDouble()) return py::cast(value.toDouble());
  if (value.isSymInt()) return py::cast(value.toSymInt());  // while torch.compile traces
  if (value.isSymFloat()) return py::cast(value.toSymFloat());
  if (value.isString()) return py::cast(value.toStringRef());
  TORCH_CHECK_TYPE(value.isList(), "a gradient keeps tensors, numbers, strings, lists of them and "
                   "shapes, got ", value.tagKind());
  py::list items;
  for (const IValue& item : value.toListRef()) items.append(to_python(item));
  return items;
}

static py::object to_python(const Shape& shape) {
  py::tuple sizes(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) sizes[i] = py::cast(shape[i]);
  return py::module_::import("torch").attr("Size")(sizes);
}

// A Python function of `ctx`, the gradients and all that is kept.
static variable_list call_python(PyObject* function, const Backward& node, Stack given) {
  py::gil_scoped_acquire python;
  py::tuple arguments(1 + given.size() + node.others.size());
  size_t place = 0;
  arguments[place++] = py::cast(Context{py::tuple(py::cast(node.needs()))});
  for (const IValue& value : given) arguments[place++] = to_python(value);
  for (const auto& kept : node.others)
    arguments[place++] = std::visit([](const auto& value) { return to_python(value); }, kept);
  auto returned = py::reinterpret_steal<py::object>(PyObject_CallObject(function, arguments.ptr()));
  if (!returned) throw python_error();
  py::tuple found = py::isinstance<py::tuple>(returned) ? py::tuple(returned)
                                                        : py::make_tuple(returned);
  TORCH_CHECK(found.size() == node.arguments, node.name(), ": expected ", node.arguments,
              " gradients, one for each argument, got ", found.size());
  variable_list results(node.arguments);
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].is_none()) results[i] = found[i].cast<Tensor>();
  return results;
}

// An operator of the gradients and all that is kept; arguments behind its results have no gradient.
static variable_list call_operator(const c10::OperatorHandle& op, const Backward& node,
                                   Stack given) {
  for (const auto& kept : node.others) given.push_back(std::get<IValue>(kept));
  op.callBoxed(&given);
  variable_list results(node.arguments);
  for (size_t i = 0; i < given.size(); ++i) results[i] = std::move(given[i]).toTensor();
  return results;
}

// C++ of a header beside this, of the gradients and all that is kept.
static variable_list call_cpp(decltype(&matmul_gradients) function, const Backward& node,
                              Stack given) {
  for (const auto& kept : node.others) given.push_back(std::get<IValue>(kept));
  variable_list results = function(node.needs(), given);
  results.resize(node.arguments);
  return results;
}

// ---------------------------------------------------------------------- autograd: the forward

template <class Pointer, class... Args>
static Pointer make_node(Args&&... args) {
  if constexpr (std::is_constructible_v<Pointer, std::shared_ptr<Node>>) {
    auto* node = new Backward(std::forward<Args>(args)...);
    return Pointer(node, [](auto* made) { deleteNode(made); });
  } else {
    return c10::make_intrusive<Backward>(std::forward<Args>(args)...);
  }
}

struct Differentiable final : c10::OperatorKernel {
  const Gradient gradient;

  explicit Differentiable(Gradient gradient) : gradient(std::move(gradient)) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const size_t inputs = op.schema().arguments().size();
    bool is_needed = false;
    for (const IValue& value : torch::jit::last(*stack, inputs)) {
      if (!value.isTensor()) continue;
      const Tensor& tensor = value.toTensor();
      TORCH_CHECK_NOT_IMPLEMENTED(  // PyTorch would take the derivative for 0, silently
          !torch::autograd::isFwGradDefined(tensor), gradient.name,
          " has no forward-mode derivative, only a backward");
      is_needed |= tensor.requires_grad();
    }
    if (is_needed && c10::GradMode::is_enabled()) run_and_note(op, keys, stack);
    else run(op, keys, stack);
  }

  static void run(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    at::AutoDispatchBelowAutograd below;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

  void run_and_note(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) const {
    const size_t inputs = op.schema().arguments().size(), outputs = op.schema().returns().size();
    NodePointer node = make_node<NodePointer>(gradient, inputs);
    for (const IValue& value : torch::jit::last(*stack, inputs)) {
      bool has_edge = value.isTensor() && value.toTensor().defined();
      node->add_next_edge(has_edge ? torch::autograd::impl::gradient_edge(value.toTensor())
                                   : Edge());
    }
    std::vector<IValue> values(stack->end() - inputs, stack->end());
    run(op, keys, stack);
    size_t i = 0;
    for (const IValue& value : torch::jit::last(*stack, outputs)) {
      values.push_back(value);
      if (gradient.flows[i++]) torch::autograd::set_history(value.toTensor(), node);
    }
    auto& made = static_cast<Backward&>(*node);
    for (size_t place : gradient.tensors)
      made.saved.emplace_back(values[place].isNone() ? Tensor() : values[place].toTensor(),
                              made.is_own_result(place));
    for (auto [place, of_shape] : gradient.others)
      if (of_shape) made.others.emplace_back(values[place].toTensor().sym_sizes().vec());
      else made.others.emplace_back(values[place]);
  }
};

// --------------------------------------------------------------------------------- registration

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// In the place of what Python registered for the first call, which PyTorch would warn of.
static void add(const std::string& op, const std::string& key, torch::CppFunction function) {
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto* library = new torch::Library(  // lives as long as the process
      torch::Library::IMPL, "kernels", c10::parseDispatchKey(key), __FILE__, __LINE__);
  library->impl(op.c_str(), std::move(function));
}

template <class Kernel>
static void add(const std::string& op, const std::string& key, std::unique_ptr<Kernel> kernel) {
  add(op, key, torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
}

static void differentiate(const std::string& op, decltype(Gradient::function) function,
                          Places tensors, Others others, Flows flows) {
  Gradient gradient{op, std::move(function), std::move(tensors), std::move(others),
                    std::move(flows)};
  add(op, "Autograd", std::make_unique<Differentiable>(std::move(gradient)));
}

// The operators of the headers beside this: what computes one, and its gradients.
struct InCpp {
  std::function<torch::CppFunction()> run;
  decltype(&matmul_gradients) gradients;
};

static const InCpp& in_cpp(const std::string& op) {
  static const std::map<std::string, InCpp> all{
      {"batch_norm2d_train", {nullptr, &batch_norm2d_train_gradients}},
      {"conv2d_forward", {nullptr, &convolution_gradients<conv2d>}},
      {"conv2d_backward_input", {nullptr, &convolution_input_gradients<conv2d>}},
      {"conv2d_backward_weight", {nullptr, &convolution_weight_gradients<conv2d>}},
      {"depthwise_conv2d_forward", {nullptr, &convolution_gradients<depthwise_conv2d>}},
      {"depthwise_conv2d_backward_input",
       {nullptr, &convolution_input_gradients<depthwise_conv2d>}},
      {"depthwise_conv2d_backward_weight",
       {nullptr, &convolution_weight_gradients<depthwise_conv2d>}},
      {"matmul", {[] { return torch::CppFunction(&run_matmul); }, &matmul_gradients}},
      {"linear", {[] { return torch::CppFunction(&run_linear); }, &linear_gradients}},
      {"linear_gelu", {[] { return torch::CppFunction(&run_linear_gelu); },
                       &linear_gelu_gradients}},
      {"linear_residual", {[] { return torch::CppFunction(&run_linear_residual); },
                           &linear_residual_gradients}},
      {"linear_silu_gate", {[] { return torch::CppFunction(&run_linear_silu_gate); },
                            &linear_silu_gate_gradients}},
  };
  const auto found = all.find(op);
  TORCH_CHECK(found != all.end(), "expected an operator that has C++ of its own, got ", op);
  return found->second;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Context>(m, "Context")
      .def_readonly("needs_input_grad", &Context::needs_input_grad);
  m.def("find_functions_by", [](py::function find) { find_function = find.release().ptr(); });
  m.def("run", [](const std::string& op, const std::string& key, std::string file,
                  std::string function, bool takes_channels_last, std::string halves_file,
                  std::string halves_function) {
    add(op, key, std::make_unique<Run>(std::move(file), std::move(function), takes_channels_last,
                                       std::move(halves_file), std::move(halves_function)));
  });
  m.def("run_in_cpp", [](const std::string& op, const std::string& key) {
    add(op, key, in_cpp(op).run());
  });
  m.def("cast", [](const std::string& op, const std::string& device,
                   std::optional<c10::ScalarType> dtype) {
    auto type = device == "CPU" ? c10::kCPU : c10::kCUDA;
    const auto key = "Autocast" + device;
    add(op, key, std::make_unique<Cast>(type, c10::parseDispatchKey(key), dtype));
  });
  m.def("differentiate", [](const std::string& op, py::function function, Places tensors,
                            Others others, Flows flows) {
    differentiate(op, std::bind_front(call_python, function.release().ptr()), std::move(tensors),
                  std::move(others), std::move(flows));
  });
  m.def("differentiate_by", [](const std::string& op, const std::string& by, Places tensors,
                               Others others, Flows flows) {
    auto found = c10::Dispatcher::singleton().findSchemaOrThrow(by.c_str(), "");
    differentiate(op, std::bind_front(call_operator, found), std::move(tensors),
                  std::move(others), std::move(flows));
  });
  m.def("differentiate_in_cpp", [](const std::string& op, const std::string&, Places tensors,
                                   Others others, Flows flows) {
    differentiate(op, std::bind_front(call_cpp, in_cpp(op).gradients), std::move(tensors),
                  std::move(others), std::move(flows));
  });
}

}  // namespace kernels
