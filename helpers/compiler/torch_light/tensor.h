// The part of torch::Tensor that the host functions around kernels use.
//
// PyTorch's own header takes g++ 15 s to read; this one takes 0.1 s, because it only declares
// (with std.h 0.3 s).
// tensor.cpp defines everything over PyTorch's stable C interface; it is compiled once per machine
// and linked into every kernel library. Names, meanings and error texts are PyTorch's, so a string
// written against this header also builds with the full one.
#pragma once

// What strings take for granted, because PyTorch's headers bring it; C's are cheap.
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <initializer_list>
#include <type_traits>
#include <utility>

namespace torch_light {

#ifdef TORCH_LIGHT_STD  // see std.h
using std::nullopt;
using std::optional;
#endif

// ------------------------------------------------------------------------------- element types

// The numbers are PyTorch's own; tensor.cpp checks them.
enum class ScalarType : int8_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7,
  ComplexFloat = 9, ComplexDouble = 10, Bool = 11, BFloat16 = 15,
  Float8_e5m2 = 23, Float8_e4m3fn = 24, UInt16 = 27, UInt32 = 28, UInt64 = 29,
};
using Dtype = ScalarType;

constexpr auto kByte = ScalarType::Byte, kUInt8 = kByte;
constexpr auto kChar = ScalarType::Char, kInt8 = kChar;
constexpr auto kShort = ScalarType::Short, kInt16 = kShort;
constexpr auto kInt = ScalarType::Int, kInt32 = kInt;
constexpr auto kLong = ScalarType::Long, kInt64 = kLong;
constexpr auto kHalf = ScalarType::Half, kFloat16 = kHalf;
constexpr auto kFloat = ScalarType::Float, kFloat32 = kFloat;
constexpr auto kDouble = ScalarType::Double, kFloat64 = kDouble;
constexpr auto kComplexFloat = ScalarType::ComplexFloat;
constexpr auto kComplexDouble = ScalarType::ComplexDouble;
constexpr auto kBool = ScalarType::Bool;
constexpr auto kBFloat16 = ScalarType::BFloat16;
constexpr auto kFloat8_e5m2 = ScalarType::Float8_e5m2;
constexpr auto kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;
constexpr auto kUInt16 = ScalarType::UInt16, kUInt32 = ScalarType::UInt32;
constexpr auto kUInt64 = ScalarType::UInt64;

// What x.dtype() returns: equal to a ScalarType, but prints as the C++ type ("float").
struct TypeMeta {
  ScalarType type;
  operator ScalarType() const { return type; }
  size_t itemsize() const;
};
inline bool operator==(TypeMeta a, TypeMeta b) { return a.type == b.type; }
inline bool operator==(TypeMeta a, ScalarType b) { return a.type == b; }
inline bool operator==(ScalarType a, TypeMeta b) { return a == b.type; }
inline bool operator!=(TypeMeta a, TypeMeta b) { return a.type != b.type; }
inline bool operator!=(TypeMeta a, ScalarType b) { return a.type != b; }
inline bool operator!=(ScalarType a, TypeMeta b) { return a != b.type; }

size_t elementSize(ScalarType type);
const char* toString(ScalarType type);

// C++ type → ScalarType, and back for the dispatch macros. half.h adds c10::Half and c10::BFloat16.
template <class T>
struct ElementType {
  static_assert(sizeof(T) == 0,
                "not a PyTorch element type; for __half and __nv_bfloat16 write "
                "reinterpret_cast<__half*>(x.data_ptr<at::Half>())");
  static constexpr ScalarType value{};  // so that this is the only error
};
template <ScalarType>
struct CppType;
#define TORCH_LIGHT_ELEMENT(T, NAME)                                                       \
  template <>                                                                              \
  struct ElementType<T> { static constexpr ScalarType value = ScalarType::NAME; };         \
  template <>                                                                              \
  struct CppType<ScalarType::NAME> { using type = T; };
TORCH_LIGHT_ELEMENT(uint8_t, Byte)
TORCH_LIGHT_ELEMENT(int8_t, Char)
TORCH_LIGHT_ELEMENT(int16_t, Short)
TORCH_LIGHT_ELEMENT(int32_t, Int)
TORCH_LIGHT_ELEMENT(int64_t, Long)
TORCH_LIGHT_ELEMENT(float, Float)
TORCH_LIGHT_ELEMENT(double, Double)
TORCH_LIGHT_ELEMENT(bool, Bool)
TORCH_LIGHT_ELEMENT(uint16_t, UInt16)
TORCH_LIGHT_ELEMENT(uint32_t, UInt32)
TORCH_LIGHT_ELEMENT(uint64_t, UInt64)

// ------------------------------------------------------------------------------------- devices

// Without a GPU, "CUDA" means the device of the CPU backend, so that one string fits both.
enum class DeviceType : int8_t {
  CPU = 0,
#ifdef TORCH_LIGHT_CUDA
  CUDA = 1,
#else
  CUDA = CPU,
#endif
  Meta = 14,
};
constexpr auto kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const char* text);  // "cuda", "cuda:1", "cpu"
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
#ifdef TORCH_LIGHT_STD
  Device(const std::string& text) : Device(text.c_str()) {}
  std::string str() const;
#endif
  bool operator==(const Device& o) const { return type_ == o.type_ && index_ == o.index_; }
  bool operator!=(const Device& o) const { return !(*this == o); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

// ------------------------------------------------------------------------------ sizes, options

// A view of int64 numbers that something else owns: sizes, strides.
class IntArrayRef {
 public:
  IntArrayRef() = default;
  IntArrayRef(const int64_t* data, size_t size) : data_(data), size_(size) {}
  IntArrayRef(const std::initializer_list<int64_t>& list)
      : data_(first(list)), size_(list.size()) {}
  IntArrayRef(const int64_t& one) : data_(&one), size_(1) {}
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return data_; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  const int64_t& operator[](size_t i) const { return data_[i]; }
  const int64_t& front() const { return data_[0]; }
  const int64_t& back() const { return data_[size_ - 1]; }
#ifdef TORCH_LIGHT_STD
  IntArrayRef(const std::vector<int64_t>& v) : data_(v.data()), size_(v.size()) {}
  std::vector<int64_t> vec() const { return {begin(), end()}; }
#endif
  bool equals(IntArrayRef o) const {
    if (size_ != o.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (data_[i] != o.data_[i]) return false;
    return true;
  }

 private:
  static const int64_t* first(const std::initializer_list<int64_t>& list) { return list.begin(); }
  const int64_t* data_ = nullptr;
  size_t size_ = 0;
};
inline bool operator==(IntArrayRef a, IntArrayRef b) { return a.equals(b); }
inline bool operator!=(IntArrayRef a, IntArrayRef b) { return !a.equals(b); }

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : has_dtype_(true), dtype_(type) {}
  TensorOptions(TypeMeta meta) : TensorOptions(meta.type) {}
  TensorOptions(Device device) : has_device_(true), device_(device) {}
  TensorOptions(DeviceType type) : TensorOptions(Device(type)) {}
  TensorOptions dtype(ScalarType type) const {
    auto o = *this;
    o.has_dtype_ = true;
    o.dtype_ = type;
    return o;
  }
  TensorOptions device(Device device) const {
    auto o = *this;
    o.has_device_ = true;
    o.device_ = device;
    return o;
  }
  TensorOptions device(DeviceType type, DeviceIndex index) const {
    return device(Device(type, index));
  }
  TensorOptions strided() const {
    auto o = *this;
    o.has_layout_ = true;
    return o;
  }
  bool has_dtype() const { return has_dtype_; }
  bool has_device() const { return has_device_; }
  bool has_layout() const { return has_layout_; }
  ScalarType scalar_type() const { return dtype_; }
  TypeMeta dtype() const { return {dtype_}; }
  Device device() const { return device_; }

 private:
  bool has_dtype_ = false, has_device_ = false, has_layout_ = false;
  ScalarType dtype_ = kFloat;
  Device device_ = kCPU;
};
inline TensorOptions dtype(ScalarType type) { return type; }
inline TensorOptions device(Device device) { return device; }
inline TensorOptions device(DeviceType type, DeviceIndex index) { return Device(type, index); }

// -------------------------------------------------------------------------------------- errors

// TORCH_CHECK(condition, "expected ", 2, " dimensions, got ", x.dim()): a RuntimeError in Python.
class Message {
 public:
  Message();
  ~Message();
  Message& operator<<(const char* s);
  Message& operator<<(char c);
  Message& operator<<(bool b);
  Message& operator<<(double x);
  Message& operator<<(long long i);
  Message& operator<<(unsigned long long i);
  Message& operator<<(ScalarType type);  // Float
  Message& operator<<(TypeMeta meta);    // float
  Message& operator<<(DeviceType type);
  Message& operator<<(const Device& device);  // cuda:0
  Message& operator<<(IntArrayRef sizes);     // [2, 3]
  Message& operator<<(const TensorOptions& options);  // TensorOptions(dtype=float, ...
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Message& operator<<(T i) {
    if constexpr (std::is_signed_v<T>) return *this << static_cast<long long>(i);
    else return *this << static_cast<unsigned long long>(i);
  }
#ifdef TORCH_LIGHT_STD
  Message& operator<<(const std::string& s) { return *this << s.c_str(); }
  Message& operator<<(const std::vector<int64_t>& v) { return *this << IntArrayRef(v); }
#endif
  [[noreturn]] void raise() const;
  void warn(const char* function, const char* file, unsigned line) const;
  const char* c_str() const;

 private:
  void* text_;  // a std::string, which needs no header here
};

#ifdef TORCH_LIGHT_STD
// std::cout << x.sizes()
template <class T>
constexpr bool is_printed =
    std::is_same_v<T, ScalarType> || std::is_same_v<T, TypeMeta> || std::is_same_v<T, DeviceType> ||
    std::is_same_v<T, Device> || std::is_same_v<T, IntArrayRef> || std::is_same_v<T, TensorOptions>;
template <class Traits, class T, std::enable_if_t<is_printed<T>, int> = 0>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const T& x) {
  Message message;
  message << x;
  return out << message.c_str();
}
#endif

template <class... Args>
[[noreturn]] void raise_all(const char* condition, const Args&... args) {
  Message message;
  if constexpr (sizeof...(Args) == 0)
    message << "Expected " << condition << " to be true, but got false.";
  else
    (message << ... << args);
  message.raise();
}
#define TORCH_CHECK(condition, ...) \
  do { if (!(condition)) ::torch_light::raise_all(#condition, ##__VA_ARGS__); } while (0)
#define TORCH_INTERNAL_ASSERT TORCH_CHECK

// TORCH_WARN_ONCE("expected ", 2): a line of PyTorch's on stderr, the first time only.
template <class... Args>
bool warn_all(const char* function, const char* file, unsigned line, const Args&... args) {
  Message message;
  (message << ... << args);
  message.warn(function, file, line);
  return true;
}
#define TORCH_WARN_ONCE(...)                                                                 \
  do {                                                                                       \
    [[maybe_unused]] static const bool warned =                                              \
        ::torch_light::warn_all(__func__, __FILE__, __LINE__, __VA_ARGS__);                  \
  } while (0)

// -------------------------------------------------------------------------------------- Tensor

class Tensor {
 public:
  Tensor() = default;  // undefined
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(const Tensor& other) { return *this = Tensor(other); }
  Tensor& operator=(Tensor&& other) noexcept { std::swap(handle_, other.handle_); return *this; }
  ~Tensor();
  bool defined() const { return handle_ != nullptr; }

  int64_t dim() const;
  int64_t ndimension() const { return dim(); }
  int64_t numel() const;
  int64_t size(int64_t d) const;
  int64_t stride(int64_t d) const;
  IntArrayRef sizes() const;
  IntArrayRef strides() const;
  int64_t storage_offset() const;
  bool is_contiguous() const;
  ScalarType scalar_type() const;
  TypeMeta dtype() const { return {scalar_type()}; }
  bool is_floating_point() const;
  size_t element_size() const { return elementSize(scalar_type()); }
  size_t itemsize() const { return element_size(); }
  size_t nbytes() const { return numel() * element_size(); }
  Device device() const;
  int64_t get_device() const;
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  TensorOptions options() const { return TensorOptions(device()).dtype(scalar_type()).strided(); }

  void* data_ptr() const;
  const void* const_data_ptr() const { return data_ptr(); }
  void* mutable_data_ptr() const { return data_ptr(); }
  template <class T>
  T* data_ptr() const {
    return static_cast<T*>(typed_data(ElementType<std::remove_const_t<T>>::value));
  }
  template <class T>
  const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  T item() const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(item_integer());
    else return static_cast<T>(item_double());
  }

  Tensor contiguous() const;
  Tensor clone() const;
  Tensor resolve_conj() const;  // what x.conj() merely marks, done
  Tensor view(IntArrayRef sizes) const;
  Tensor reshape(IntArrayRef sizes) const;
  Tensor flatten() const { return reshape({-1}); }
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const { return dim() < 2 ? *this : transpose(0, 1); }
  Tensor to(const TensorOptions& options) const;
  Tensor to(ScalarType type) const { return to(TensorOptions(type)); }
  Tensor to(Device device) const { return to(TensorOptions(device)); }
  Tensor to(DeviceType type) const { return to(TensorOptions(type)); }
  const Tensor& zero_() const;
  const Tensor& fill_(double value) const;
  const Tensor& copy_(const Tensor& from) const;

  // The handle of PyTorch's C interface, for tensor.cpp alone.
  struct Handle;
  static Tensor adopt(Handle* handle) { Tensor t; t.handle_ = handle; return t; }
  Handle* handle() const { return handle_; }

 private:
  void* typed_data(ScalarType expected) const;
  int64_t item_integer() const;
  double item_double() const;
  Handle* handle_ = nullptr;
};

Tensor empty(IntArrayRef sizes, const TensorOptions& options = {});
Tensor zeros(IntArrayRef sizes, const TensorOptions& options = {});
Tensor ones(IntArrayRef sizes, const TensorOptions& options = {});
Tensor full(IntArrayRef sizes, double value, const TensorOptions& options = {});
Tensor empty_like(const Tensor& like, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& like, const TensorOptions& options = {});
Tensor ones_like(const Tensor& like, const TensorOptions& options = {});
Tensor full_like(const Tensor& like, double value, const TensorOptions& options = {});

#ifdef TORCH_LIGHT_STD
inline optional<Device> device_of(const Tensor& t) {
  return t.defined() ? optional<Device>(t.device()) : nullopt;
}
#endif

// The cudaStream_t that PyTorch works on now; device -1 is the current device.
void* current_cuda_stream(int device);

}  // namespace torch_light

// PyTorch has these names in all three namespaces; so do strings.
namespace c10 { using namespace torch_light; }
namespace at { using namespace torch_light; }
namespace torch { using namespace torch_light; }

// ------------------------------------------------------------------------------ dispatch macros

#define AT_DISPATCH_CASE(TYPE, ...)                                     \
  case TYPE: {                                                          \
    using scalar_t [[maybe_unused]] = ::torch_light::CppType<TYPE>::type; \
    return __VA_ARGS__();                                               \
  }
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                    \
  [&] {                                                                                        \
    const ::torch_light::ScalarType dispatch_type = TYPE;                                      \
    switch (dispatch_type) {                                                                   \
      __VA_ARGS__                                                                              \
      default:                                                                                 \
        ::torch_light::raise_all("", '"', NAME, "\" not implemented for '", dispatch_type, "'"); \
    }                                                                                          \
  }()

#define TORCH_LIGHT_FLOATING(...)                          \
  AT_DISPATCH_CASE(::torch_light::kDouble, __VA_ARGS__)    \
  AT_DISPATCH_CASE(::torch_light::kFloat, __VA_ARGS__)
#define TORCH_LIGHT_INTEGRAL(...)                          \
  AT_DISPATCH_CASE(::torch_light::kByte, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::torch_light::kChar, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::torch_light::kInt, __VA_ARGS__)       \
  AT_DISPATCH_CASE(::torch_light::kLong, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::torch_light::kShort, __VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(T1, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(T1, T2, TYPE, NAME, ...)                        \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_FLOATING(__VA_ARGS__)                      \
                     AT_DISPATCH_CASE(T1, __VA_ARGS__) AT_DISPATCH_CASE(T2, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(::torch_light::kHalf, TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_FLOATING(__VA_ARGS__) TORCH_LIGHT_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(T1, TYPE, NAME, ...)                                        \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_FLOATING(__VA_ARGS__)                            \
                     TORCH_LIGHT_INTEGRAL(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(T1, T2, TYPE, NAME, ...)                                   \
  AT_DISPATCH_SWITCH(TYPE, NAME, TORCH_LIGHT_FLOATING(__VA_ARGS__)                            \
                     TORCH_LIGHT_INTEGRAL(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__)      \
                     AT_DISPATCH_CASE(T2, __VA_ARGS__))
