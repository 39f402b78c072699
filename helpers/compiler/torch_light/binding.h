// How Python calls the functions of a string: each becomes an operator torch.ops.<library>.<name>.
//
// PyTorch hands an operator a stack of 64-bit values: a tensor's handle, an int64, a double, a
// pointer to a list. Convert<T> takes one such value as a T, or gives a T back as one. PyTorch
// knows only int64 and double, so an `int` or `float` argument is narrowed here, with a check.
#pragma once

#include "tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace torch_light {

using Value = uint64_t;
using Boxed = void (*)(Value* stack, uint64_t inputs, uint64_t outputs);

void register_operator(const char* library, const char* schema, const char* name, Boxed function);

Tensor take_tensor(Value value);
Value give_tensor(const Tensor& tensor);
ScalarType take_scalar_type(Value value);
Value give_scalar_type(ScalarType type);

template <class T>
T bits(Value value) { T t; std::memcpy(&t, &value, sizeof t); return t; }
template <class T>
Value bits_of(T t) { Value value = 0; std::memcpy(&value, &t, sizeof t); return value; }

template <class T>
struct Convert {  // bool, integers, float, double
  static_assert(std::is_arithmetic_v<T>);
  static T take(Value value) {
    if constexpr (std::is_same_v<T, bool>) return bits<bool>(value);
    else if constexpr (std::is_integral_v<T>) return narrow(bits<int64_t>(value));
    else return narrow(bits<double>(value));
  }
  static Value give(T t) {
    if constexpr (std::is_same_v<T, bool>) return bits_of(t);
    else if constexpr (std::is_integral_v<T>) return bits_of(static_cast<int64_t>(t));
    else return bits_of(static_cast<double>(t));
  }
  static T narrow(int64_t wide) {
    bool negative_for_unsigned = std::is_unsigned_v<T> && wide < 0;
    if (negative_for_unsigned || static_cast<int64_t>(static_cast<T>(wide)) != wide)
      raise_all("", wide, " does not fit into the argument's C++ type of ", 8 * sizeof(T), " bits");
    return static_cast<T>(wide);
  }
  static T narrow(double wide) {
    if (std::isfinite(wide) && std::abs(wide) > std::numeric_limits<T>::max())
      raise_all("", wide, " does not fit into a float");
    return static_cast<T>(wide);
  }
};
template <>
struct Convert<Tensor> {
  static Tensor take(Value value) { return take_tensor(value); }
  static Value give(const Tensor& t) { return give_tensor(t); }
};
template <>
struct Convert<ScalarType> {
  static ScalarType take(Value value) { return take_scalar_type(value); }
  static Value give(ScalarType type) { return give_scalar_type(type); }
};

#ifdef TORCH_LIGHT_STD
std::string take_string(Value value);
Value give_string(const std::string& s);
std::vector<Value> take_list(Value value);
Value give_list(const std::vector<Value>& items);
optional<Value> take_optional(Value value);
Value give_optional(optional<Value> value);

template <>
struct Convert<std::string> {
  static std::string take(Value value) { return take_string(value); }
  static Value give(const std::string& s) { return give_string(s); }
};
template <class T>
struct Convert<optional<T>> {
  static optional<T> take(Value value) {
    auto inner = take_optional(value);
    return inner ? optional<T>(Convert<T>::take(*inner)) : nullopt;
  }
  static Value give(const optional<T>& t) {
    return give_optional(t ? optional<Value>(Convert<T>::give(*t)) : nullopt);
  }
};
template <class T>
struct Convert<std::vector<T>> {
  static std::vector<T> take(Value value) {
    std::vector<T> items;
    for (Value item : take_list(value)) items.push_back(Convert<T>::take(item));
    return items;
  }
  static Value give(const std::vector<T>& items) {
    std::vector<Value> values;
    for (const auto& item : items) values.push_back(Convert<T>::give(item));
    return give_list(values);
  }
};
#endif  // TORCH_LIGHT_STD

// Box<Tensor (*)(Tensor), &square>::call is the function that PyTorch calls for `square`. The type
// stands there because CUDA has functions of such names as `exp` and `max`: it says which is meant.
template <class Pointer, Pointer function>
struct Box;
template <class Result, class... Args, Result (*function)(Args...)>
struct Box<Result (*)(Args...), function> {
  static void call(Value* stack, uint64_t, uint64_t) {
    call(stack, std::index_sequence_for<Args...>());
  }
  template <size_t... I>
  static void call([[maybe_unused]] Value* stack, std::index_sequence<I...>) {
    auto run = [](std::decay_t<Args>... args) -> Result { return function(args...); };
    if constexpr (std::is_void_v<Result>) run(Convert<std::decay_t<Args>>::take(stack[I])...);
    else give(stack, run(Convert<std::decay_t<Args>>::take(stack[I])...));
  }
  template <class T>
  static void give(Value* stack, const T& result) { stack[0] = Convert<T>::give(result); }
#ifdef TORCH_LIGHT_STD
  template <class... T>
  static void give(Value* stack, const std::tuple<T...>& results) {
    std::apply([&](const auto&... r) {
      size_t i = 0;
      ((stack[i++] = Convert<std::decay_t<decltype(r)>>::give(r)), ...);
    }, results);
  }
#endif
};

}  // namespace torch_light

#if defined(TORCH_LIGHT_CUDA)
#define TORCH_LIGHT_CALL(...) (&__VA_ARGS__)
#else  // what would end the process ends the call
#define TORCH_LIGHT_CALL(...) (&::cuda_on_cpu::HostCall<&__VA_ARGS__>::call)
#endif

// The pointer's type stands last because it may hold commas.
#define TORCH_LIGHT_BIND(LIBRARY, NAME, FUNCTION, SCHEMA, ...)                          \
  [[maybe_unused]] static const bool torch_light_bound_##NAME =                        \
      (::torch_light::register_operator(                                               \
           LIBRARY, SCHEMA, #NAME,                                                     \
           TORCH_LIGHT_CALL(::torch_light::Box<__VA_ARGS__, &FUNCTION>::call)),        \
       true);
