// What tensor.h and binding.h declare, over the stable C interface of PyTorch 2.10 and later.
#include "std.h"

#include "binding.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace torch_light {

namespace stable = torch::stable;
using stable::detail::from;
using FullType = torch::headeronly::ScalarType;

static_assert(int(ScalarType::Float) == int(FullType::Float));
static_assert(int(ScalarType::Half) == int(FullType::Half));
static_assert(int(ScalarType::ComplexDouble) == int(FullType::ComplexDouble));
static_assert(int(ScalarType::Bool) == int(FullType::Bool));
static_assert(int(ScalarType::BFloat16) == int(FullType::BFloat16));
static_assert(int(ScalarType::Float8_e4m3fn) == int(FullType::Float8_e4m3fn));
static_assert(int(ScalarType::UInt64) == int(FullType::UInt64));

// ----------------------------------------------------------------------------- between the types

// Every call of the C interface says by its result whether it failed.
static void must(AOTITorchError error, [[maybe_unused]] const char* what) {
  if (error == TORCH_SUCCESS) return;
#ifdef TORCH_VERSION_2_13_0
  raise_all("", torch_exception_get_what_without_backtrace());
#else
  raise_all("", "PyTorch refused ", what);
#endif
}
#define MUST(call) must(call, #call)

static AtenTensorHandle raw(const Tensor& t) {
  TORCH_CHECK(t.defined(), "the tensor is undefined");
  return reinterpret_cast<AtenTensorHandle>(t.handle());
}
static Tensor adopt(AtenTensorHandle handle) {
  return Tensor::adopt(reinterpret_cast<Tensor::Handle*>(handle));
}
static stable::Tensor to_stable(const Tensor& t) {
  AtenTensorHandle handle;
  MUST(aoti_torch_new_tensor_handle(raw(t), &handle));
  return stable::Tensor(handle);
}
static Tensor from_stable(const stable::Tensor& t) {
  AtenTensorHandle handle;
  MUST(aoti_torch_new_tensor_handle(t.get(), &handle));
  return adopt(handle);
}
static optional<FullType> dtype_of(const TensorOptions& options) {
  if (!options.has_dtype()) return nullopt;
  return static_cast<FullType>(options.scalar_type());
}
static optional<stable::Device> device_of(const TensorOptions& options) {
  if (!options.has_device()) return nullopt;
  auto type = static_cast<torch::headeronly::DeviceType>(options.device().type());
  return stable::Device(type, options.device().index());
}
static torch::headeronly::IntHeaderOnlyArrayRef to_stable(IntArrayRef sizes) {
  return {sizes.data(), sizes.size()};
}

// --------------------------------------------------------------------------------- element types

const char* toString(ScalarType type) {
  return torch::headeronly::toString(static_cast<FullType>(type));
}

size_t elementSize(ScalarType type) {
  switch (type) {
    case kByte: case kChar: case kBool: case kFloat8_e5m2: case kFloat8_e4m3fn: return 1;
    case kShort: case kHalf: case kBFloat16: case kUInt16: return 2;
    case kInt: case kFloat: case kUInt32: return 4;
    case kLong: case kDouble: case kUInt64: case kComplexFloat: return 8;
    case kComplexDouble: return 16;
  }
  raise_all("", "element size of ", type, " is not known");
}

size_t TypeMeta::itemsize() const { return elementSize(type); }

// ------------------------------------------------------------------------------- errors and text

static std::string text(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", x);
  return digits;
}
static std::string text(TypeMeta meta) {
  switch (meta.type) {
    case kByte: return "unsigned char";
    case kChar: return "signed char";
    case kShort: return "short int";
    case kInt: return "int";
    case kLong: return "long int";
    case kFloat: return "float";
    case kDouble: return "double";
    case kBool: return "bool";
    default: return std::string("c10::") + toString(meta.type);
  }
}
static std::string text(DeviceType type) {
  return type == DeviceType::CPU ? "cpu" : type == DeviceType::Meta ? "meta" : "cuda";
}
static std::string text(IntArrayRef sizes) {
  std::string s = "[";
  for (int64_t size : sizes) s += (s.size() > 1 ? ", " : "") + std::to_string(size);
  return s + "]";
}

static std::string& text_of(void* text) { return *static_cast<std::string*>(text); }

Message::Message() : text_(new std::string) {}
Message::~Message() { delete &text_of(text_); }
void Message::raise() const { throw std::runtime_error(text_of(text_)); }
void Message::warn(const char* function, const char* file, unsigned line) const {
  aoti_torch_warn(function, file, line, text_of(text_).c_str());
}

Message& Message::operator<<(const char* s) { text_of(text_) += s; return *this; }
Message& Message::operator<<(char c) { text_of(text_) += c; return *this; }
Message& Message::operator<<(bool b) { return *this << (b ? '1' : '0'); }
Message& Message::operator<<(double x) { return *this << text(x); }
Message& Message::operator<<(long long i) { return *this << std::to_string(i); }
Message& Message::operator<<(unsigned long long i) { return *this << std::to_string(i); }
Message& Message::operator<<(ScalarType type) { return *this << toString(type); }
Message& Message::operator<<(TypeMeta meta) { return *this << text(meta); }
Message& Message::operator<<(DeviceType type) { return *this << text(type); }
Message& Message::operator<<(const Device& device) { return *this << device.str(); }
Message& Message::operator<<(IntArrayRef sizes) { return *this << text(sizes); }
Message& Message::operator<<(const TensorOptions& o) {
  auto given = [](bool is_given) { return is_given ? "" : " (default)"; };
  *this << "TensorOptions(dtype=" << o.dtype() << given(o.has_dtype()) << ", device=" << o.device()
        << given(o.has_device()) << ", layout=Strided" << given(o.has_layout());
  return *this << ", requires_grad=false (default), pinned_memory=false (default), "
                  "memory_format=(nullopt))";
}
const char* Message::c_str() const { return text_of(text_).c_str(); }

// --------------------------------------------------------------------------------------- devices

std::string Device::str() const {
  return text(type_) + (has_index() ? ":" + std::to_string(index_) : "");
}

Device::Device(const char* text) : type_(kCPU), index_(-1) {
  std::string name = text;
  auto colon = name.find(':');
  auto kind = name.substr(0, colon);
  TORCH_CHECK(kind == "cuda" || kind == "cpu", "expected \"cuda\" or \"cpu\", got \"", name, '"');
  type_ = kind == "cuda" ? kCUDA : kCPU;
  if (colon != std::string::npos) index_ = std::atoi(name.c_str() + colon + 1);
}

void* current_cuda_stream([[maybe_unused]] int device) {
#ifdef TORCH_LIGHT_CUDA
  if (device < 0) MUST(aoti_torch_get_current_device_index(&device));
  void* stream = nullptr;
  MUST(aoti_torch_get_current_cuda_stream(device, &stream));
  return stream;
#else
  return nullptr;  // the CPU backend's one stream
#endif
}

// ---------------------------------------------------------------------------------------- Tensor

Tensor::Tensor(const Tensor& other) {
  if (!other.defined()) return;
  AtenTensorHandle copy;
  MUST(aoti_torch_new_tensor_handle(raw(other), &copy));
  handle_ = reinterpret_cast<Handle*>(copy);
}

Tensor::~Tensor() {
  if (handle_) aoti_torch_delete_tensor_object(reinterpret_cast<AtenTensorHandle>(handle_));
}

int64_t Tensor::dim() const {
  int64_t n;
  MUST(aoti_torch_get_dim(raw(*this), &n));
  return n;
}
int64_t Tensor::numel() const {
  int64_t n;
  MUST(aoti_torch_get_numel(raw(*this), &n));
  return n;
}
IntArrayRef Tensor::sizes() const {
  int64_t* data;
  MUST(aoti_torch_get_sizes(raw(*this), &data));
  return {data, static_cast<size_t>(dim())};
}
IntArrayRef Tensor::strides() const {
  int64_t* data;
  MUST(aoti_torch_get_strides(raw(*this), &data));
  return {data, static_cast<size_t>(dim())};
}

static int64_t wrap(int64_t d, int64_t dims) {
  TORCH_CHECK(-dims <= d && d < dims, "Dimension out of range (expected to be in range of [", -dims,
              ", ", dims - 1, "], but got ", d, ")");
  return d < 0 ? d + dims : d;
}
int64_t Tensor::size(int64_t d) const { return sizes()[wrap(d, dim())]; }
int64_t Tensor::stride(int64_t d) const { return strides()[wrap(d, dim())]; }

int64_t Tensor::storage_offset() const {
  int64_t offset;
  MUST(aoti_torch_get_storage_offset(raw(*this), &offset));
  return offset;
}
bool Tensor::is_contiguous() const {
  bool yes;
  MUST(aoti_torch_is_contiguous(raw(*this), &yes));
  return yes;
}
ScalarType Tensor::scalar_type() const {
  int32_t type;
  MUST(aoti_torch_get_dtype(raw(*this), &type));
  return static_cast<ScalarType>(type);
}
bool Tensor::is_floating_point() const {
  switch (scalar_type()) {
    case kHalf: case kBFloat16: case kFloat: case kDouble: case kFloat8_e5m2: case kFloat8_e4m3fn:
      return true;
    default: return false;
  }
}
Device Tensor::device() const {
  int32_t type, index;
  MUST(aoti_torch_get_device_type(raw(*this), &type));
  MUST(aoti_torch_get_device_index(raw(*this), &index));
  return Device(static_cast<DeviceType>(type), static_cast<DeviceIndex>(index));
}
int64_t Tensor::get_device() const {
  auto index = device().index();
  return is_cuda() && index < 0 ? 0 : index;  // the CPU backend has one device, number 0
}

void* Tensor::data_ptr() const {
  void* data;
  MUST(aoti_torch_get_data_ptr(raw(*this), &data));
  return data;
}
void* Tensor::typed_data(ScalarType expected) const {
  TORCH_CHECK(scalar_type() == expected, "expected scalar type ", expected, " but found ",
              scalar_type());
  return data_ptr();
}

double Tensor::item_double() const {
  TORCH_CHECK(numel() == 1, "a Tensor with ", numel(), " elements cannot be converted to Scalar");
  double value;
  auto one = to(TensorOptions(kDouble));
  MUST(aoti_torch_item_float64(raw(one), &value));
  return value;
}
int64_t Tensor::item_integer() const {
  if (is_floating_point()) return static_cast<int64_t>(item_double());
  TORCH_CHECK(numel() == 1, "a Tensor with ", numel(), " elements cannot be converted to Scalar");
  int64_t value;
  auto one = to(TensorOptions(kLong));
  MUST(aoti_torch_item_int64(raw(one), &value));
  return value;
}

Tensor Tensor::contiguous() const { return from_stable(stable::contiguous(to_stable(*this))); }
Tensor Tensor::clone() const { return from_stable(stable::clone(to_stable(*this))); }
Tensor Tensor::resolve_conj() const {
  StableIValue value = from(to_stable(*this));
  MUST(torch_call_dispatcher("aten::resolve_conj", "", &value, TORCH_ABI_VERSION));
  return take_tensor(value);
}
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  return from_stable(stable::transpose(to_stable(*this), wrap(dim0, dim()), wrap(dim1, dim())));
}

static void check_shape(const Tensor& t, IntArrayRef sizes) {
  int64_t known = 1, unknown = 0;
  for (int64_t size : sizes) size == -1 ? ++unknown : known *= size;
  bool fits = unknown == 0 ? known == t.numel()
                           : unknown == 1 && known > 0 && t.numel() % known == 0;
  TORCH_CHECK(fits, "shape '", sizes, "' is invalid for input of size ", t.numel());
}
Tensor Tensor::view(IntArrayRef sizes) const {
  check_shape(*this, sizes);
  return from_stable(stable::view(to_stable(*this), to_stable(sizes)));
}
Tensor Tensor::reshape(IntArrayRef sizes) const {
  check_shape(*this, sizes);
  return from_stable(stable::reshape(to_stable(*this), to_stable(sizes)));
}
Tensor Tensor::to(const TensorOptions& options) const {
  return from_stable(stable::to(to_stable(*this), dtype_of(options), nullopt,
                          device_of(options)));
}

const Tensor& Tensor::zero_() const {
  auto self = to_stable(*this);
  stable::zero_(self);
  return *this;
}
const Tensor& Tensor::fill_(double value) const {
  stable::fill_(to_stable(*this), value);
  return *this;
}
const Tensor& Tensor::copy_(const Tensor& other) const {
  auto self = to_stable(*this);
  stable::copy_(self, to_stable(other));
  return *this;
}

Tensor empty(IntArrayRef sizes, const TensorOptions& options) {
  for (int64_t size : sizes)
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  return from_stable(stable::empty(to_stable(sizes), dtype_of(options), nullopt,
                             device_of(options)));
}
Tensor zeros(IntArrayRef sizes, const TensorOptions& options) {
  return empty(sizes, options).zero_();
}
Tensor ones(IntArrayRef sizes, const TensorOptions& options) {
  return empty(sizes, options).fill_(1);
}
Tensor full(IntArrayRef sizes, double value, const TensorOptions& options) {
  return empty(sizes, options).fill_(value);
}
// Strides are kept, as in PyTorch: a channels-last tensor begets a channels-last one.
Tensor empty_like(const Tensor& like, const TensorOptions& options) {
  std::array<StableIValue, 6> stack{from(to_stable(like)), from(dtype_of(options)),
                                    from(std::nullopt), from(device_of(options)),
                                    from(std::nullopt), from(std::nullopt)};
  MUST(torch_call_dispatcher("aten::empty_like", "", stack.data(), TORCH_ABI_VERSION));
  return take_tensor(stack[0]);
}
Tensor zeros_like(const Tensor& like, const TensorOptions& options) {
  return empty_like(like, options).zero_();
}
Tensor ones_like(const Tensor& like, const TensorOptions& options) {
  return empty_like(like, options).fill_(1);
}
Tensor full_like(const Tensor& like, double value, const TensorOptions& options) {
  return empty_like(like, options).fill_(value);
}

// --------------------------------------------------------------------------------------- binding

void register_operator(const char* library, const char* schema, const char* name, Boxed function) {
  using stable::detail::StableLibrary;
  // These live as long as the process, like the library that registers itself.
  auto* def = new StableLibrary(StableLibrary::Kind::FRAGMENT, library, nullptr, name, 0);
  def->def(schema);
  // The function runs as it is for every kind of tensor, and autograd does not look inside.
  auto* impl = new StableLibrary(StableLibrary::Kind::IMPL, library, "CompositeImplicitAutograd",
                                 name, 0);
  impl->impl(name, function);
}

static_assert(std::is_same_v<Value, StableIValue>);

Tensor take_tensor(Value value) {
  auto tensor = adopt(bits<AtenTensorHandle>(value));
  bool defined;
  MUST(aoti_torch_is_defined(raw(tensor), &defined));
  return defined ? std::move(tensor) : Tensor();
}
Value give_tensor(const Tensor& tensor) {
  AtenTensorHandle handle;
  if (tensor.defined()) MUST(aoti_torch_new_tensor_handle(raw(tensor), &handle));
  else MUST(aoti_torch_new_uninitialized_tensor(&handle));
  return bits_of(handle);
}
std::string take_string(Value value) { return stable::detail::to<std::string>(value); }
Value give_string(const std::string& s) { return from(s); }

std::vector<Value> take_list(Value value) {
  auto list = bits<StableListHandle>(value);
  size_t size;
  MUST(torch_list_size(list, &size));
  std::vector<Value> items(size);
  for (size_t i = 0; i < size; ++i) MUST(torch_list_get_item(list, i, &items[i]));
  MUST(torch_delete_list(list));
  return items;
}
Value give_list(const std::vector<Value>& items) {
  StableListHandle list;
  MUST(torch_new_list_reserve_size(items.size(), &list));
  for (Value item : items) MUST(torch_list_push_back(list, item));
  return bits_of(list);
}
optional<Value> take_optional(Value value) {
  auto* inner = bits<Value*>(value);
  if (!inner) return nullopt;
  Value found = *inner;
  delete inner;
  return found;
}
Value give_optional(optional<Value> value) {
  return bits_of(value ? new Value(*value) : nullptr);
}
ScalarType take_scalar_type(Value value) { return static_cast<ScalarType>(bits<int32_t>(value)); }
Value give_scalar_type(ScalarType type) { return bits_of(static_cast<int32_t>(type)); }

}  // namespace torch_light
