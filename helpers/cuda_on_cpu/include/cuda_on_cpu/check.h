// What a checked build (-DCUDA_ON_CPU_CHECK) tells the runtime beside its accesses, of which the
// compiler tells by itself (runtime/hooks.cpp): loops, names, atomics, fences. In any other build
// all this is nothing.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "runtime.h"

namespace cuda_on_cpu {

#if defined(CUDA_ON_CPU_CHECK)
constexpr bool IS_CHECKED = true;
#else
constexpr bool IS_CHECKED = false;
#endif

// A loop of the kernel while it runs (see translate's mark_loops). Threads of a warp that come to
// an access in the same iteration come there together.
class Loop {
public:
    CUDA_ON_CPU_API Loop();
    CUDA_ON_CPU_API ~Loop();
    Loop(const Loop&) = delete;
    CUDA_ON_CPU_API bool once();
    CUDA_ON_CPU_API void iterate();

private:
    std::uint64_t outside_, inside_;  // places
    std::uint64_t iterations_ = 0;
    bool begun_ = false;
};

// A __shared__ or __device__ array: its name, elements and extents. A null pointer means dynamic
// shared memory.
struct DeclaredArray {
    const char* name;
    const void* begin;
    std::size_t bytes, element_bytes;
    unsigned rank;
    const std::size_t* extents;
    bool of_numbers;         // no structure with padding can lie in it
    bool others_have_names;  // so that static shared memory without a name belongs to no array
    bool others_are_numbers = false;  // so that there are no bytes that tell what is constructed
};
CUDA_ON_CPU_API void name_array(const DeclaredArray&);  // a shared one, by a thread of its block
CUDA_ON_CPU_API void name_variable(const DeclaredArray&, bool constant);
// A local variable without a value is filled with this: no bool, a NaN of half, -1.7e38 as a float.
constexpr unsigned char UNSET = 0xfe;
// One that has no value yet; number_bytes: of the numbers that it consists of, 0 for a structure,
// 1 for what is one as a whole only.
CUDA_ON_CPU_API void declare_local(const DeclaredArray&, std::size_t number_bytes);
CUDA_ON_CPU_API bool is_unset(const volatile void* variable, std::size_t bytes);
CUDA_ON_CPU_API void set_local(const volatile void* variable, std::size_t bytes);
CUDA_ON_CPU_API void report_received();  // by a shuffle
// An exchange needs no earlier value, and a plain read may precede a compare-and-swap.
enum class AtomicKind : unsigned char { update, exchange, compare_and_swap };
enum class Scope { block, device };
CUDA_ON_CPU_API void record_atomic(const void* address, std::size_t bytes, AtomicKind, Scope);
CUDA_ON_CPU_API void record_acquire();  // after an atomic or a volatile read
CUDA_ON_CPU_API void record_acquired();  // and after that: later reads are no older
CUDA_ON_CPU_API void record_fence(Scope);

// float[2][3] has elements of float and the extents 2, 3.
template <class T, class = std::make_index_sequence<std::rank<T>::value>>
struct Extents;
template <class T, std::size_t... Index>
struct Extents<T, std::index_sequence<Index...>> {
    static constexpr std::size_t all[] = {std::extent<T, Index>::value..., 0};
};
template <class T>
CUDA_ON_CPU_UNCHECKED DeclaredArray describe_array(const char* name, const volatile void* begin,
                                                   std::size_t bytes, bool others_have_names) {
    return {name, const_cast<const void*>(begin), bytes, sizeof(std::remove_all_extents_t<T>),
            std::rank<T>::value, Extents<T>::all,
            begin && std::is_arithmetic_v<std::remove_all_extents_t<T>>, others_have_names};
}
template <class T>
CUDA_ON_CPU_UNCHECKED void name_shared(const char* name, T& variable, bool others_have_names,
                                       bool others_are_numbers) {
    DeclaredArray array = describe_array<T>(name, &variable, sizeof(T), others_have_names);
    array.others_are_numbers = others_are_numbers;
    name_array(array);
}
template <class T>
CUDA_ON_CPU_UNCHECKED void name_dynamic_shared([[maybe_unused]] const char* name) {
#if defined(CUDA_ON_CPU_CHECK)
    name_array(describe_array<T[1]>(name, nullptr, 0, true));
#endif
}

template <class T, class = void>
constexpr std::size_t NUMBER_BYTES = std::is_arithmetic_v<T> || sizeof(T) == 2 ? sizeof(T)
                                     : std::is_class_v<T> || std::is_union_v<T>   ? 0
                                                                                  : 1;
template <class T>  // a vector of CUDA's: it is aligned to its size, and has no padding
constexpr std::size_t NUMBER_BYTES<T, std::void_t<decltype(T::x)>> =
    alignof(T) == sizeof(T) || alignof(T) == 16 ? sizeof(T::x) : 0;

// Stands behind a local variable that is declared without a value (locals.py).
template <class T>
CUDA_ON_CPU_UNCHECKED void unset(const char* name, T& variable) {
    using Element = std::remove_all_extents_t<T>;
    if constexpr (std::is_trivially_default_constructible_v<Element>)
        declare_local(describe_array<T>(name, &variable, sizeof(T), false), NUMBER_BYTES<Element>);
}

// To hand a value on is no use of it: a copy of a variable without a value has none either.
template <class To, class From>
CUDA_ON_CPU_INLINE void copy(const char* name, To& to, const From& from) {
    if (is_unset(&from, sizeof from)) unset(name, to);
    else to = from;
}
template <class T>
CUDA_ON_CPU_INLINE T& as_set(T& variable) {
    set_local(&variable, sizeof variable);
    return variable;
}

// Between the lanes of a shuffle goes what such a variable is filled with.
template <class T>
CUDA_ON_CPU_INLINE T filled() {
    T value;
    __builtin_memset(static_cast<void*>(&value), UNSET, sizeof value);
    return value;
}
template <class T>
CUDA_ON_CPU_INLINE bool is_filled(T value) {
    constexpr std::size_t NOT_BY_CHANCE = 4;  // bytes
    T other = filled<T>();
    return sizeof(T) >= NOT_BY_CHANCE && !__builtin_memcmp(&value, &other, sizeof(T));
}
template <class T>
CUDA_ON_CPU_INLINE T give(const T& variable) {
    return is_unset(&variable, sizeof variable) ? filled<T>() : variable;
}
template <class T>
CUDA_ON_CPU_INLINE void receive(const char* name, T& variable) {
    if (is_filled(variable)) unset(name, variable);
}
template <class T>
CUDA_ON_CPU_INLINE T received(T value) {
    if (is_filled(value)) report_received();
    return value;
}

// Stands behind a variable of the device and tells of it when the module is loaded.
struct NamedVariable {
    template <class T>
    NamedVariable(const char* name, T& variable, bool constant) {
        name_variable(describe_array<T>(name, &variable, sizeof(T), false), constant);
    }
};

CUDA_ON_CPU_INLINE void note_atomic([[maybe_unused]] const void* address,
                                    [[maybe_unused]] std::size_t bytes,
                                    [[maybe_unused]] AtomicKind kind,
                                    [[maybe_unused]] Scope scope) {
#if defined(CUDA_ON_CPU_CHECK)
    record_atomic(address, bytes, kind, scope);
#endif
}

CUDA_ON_CPU_INLINE void note_acquire() {
#if defined(CUDA_ON_CPU_CHECK)
    record_acquire();
#endif
}

CUDA_ON_CPU_INLINE void note_acquired() {
#if defined(CUDA_ON_CPU_CHECK)
    record_acquired();
#endif
}

inline void note_fence([[maybe_unused]] Scope scope) {
#if defined(CUDA_ON_CPU_CHECK)
    record_fence(scope);
#endif
}

#if defined(CUDA_ON_CPU_CHECK)
extern "C" {
CUDA_ON_CPU_API void* __tsan_memcpy(void* to, const void* from, std::size_t bytes);
CUDA_ON_CPU_API void* __tsan_memmove(void* to, const void* from, std::size_t bytes);
CUDA_ON_CPU_API void* __tsan_memset(void* to, int value, std::size_t bytes);
}
// What stands for the functions of these names in a checked string. A number's bytes are left to
// the compiler, which makes a load and a store of them.
constexpr bool is_number(std::size_t bytes) {
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}
CUDA_ON_CPU_INLINE void* memcpy(void* to, const void* from, std::size_t bytes) {
    if (__builtin_constant_p(bytes) && is_number(bytes)) return __builtin_memcpy(to, from, bytes);
    return __tsan_memcpy(to, from, bytes);
}
CUDA_ON_CPU_INLINE void* memmove(void* to, const void* from, std::size_t bytes) {
    if (__builtin_constant_p(bytes) && is_number(bytes)) return __builtin_memmove(to, from, bytes);
    return __tsan_memmove(to, from, bytes);
}
CUDA_ON_CPU_INLINE void* memset(void* to, int value, std::size_t bytes) {
    return __tsan_memset(to, value, bytes);
}
#endif

// A parameter in the kernel's own list.
struct Declared {
    const char* name;
    bool only_read;  // nobody writes through it
};
struct DeclaredList {
    const Declared* first = nullptr;
    std::size_t count = 0;
    DeclaredList() = default;
    DeclaredList(std::initializer_list<Declared> all) {  // which live as long as the call they are in
        first = all.begin();
        count = all.size();
    }
};
// Of PyTorch's PackedTensorAccessor, whose template's parameters these are: its number of indices.
template <class T>
constexpr std::size_t ACCESSOR_RANK = 0;
template <template <class, class, class, std::size_t, template <class> class, class> class Accessor,
          class Item, class Check, class T, std::size_t Rank, template <class> class Traits,
          class Index>
constexpr std::size_t ACCESSOR_RANK<Accessor<Item, Check, T, Rank, Traits, Index>> = Rank;

// With its sizes, if the tensor has no gaps.
template <class T>
Parameter describe_accessor(const char* name, const T& tensor) {
    constexpr std::size_t RANK = ACCESSOR_RANK<T>;
    Parameter parameter{name, tensor.data(), sizeof *tensor.data(), false, false};
    bool is_dense = RANK <= std::extent_v<decltype(parameter.extents)>;
    std::size_t step = 1;
    for (std::size_t i = RANK; i-- && is_dense;) {
        parameter.extents[i] = std::size_t(tensor.size(int(i)));
        is_dense = std::size_t(tensor.stride(int(i))) == step;
        step *= parameter.extents[i];
    }
    if (is_dense) parameter.rank = unsigned(RANK);
    return parameter;
}

template <class T>
Parameter describe_parameter(Declared declared, const T& argument) {
    if constexpr (ACCESSOR_RANK<T> != 0) {
        return describe_accessor(declared.name, argument);
    } else if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
        using Element = std::conditional_t<std::is_void_v<std::remove_pointer_t<T>>, char,
                                           std::remove_pointer_t<T>>;
        return {declared.name, argument, sizeof(Element), !std::is_arithmetic_v<Element>,
                declared.only_read};
    } else {
        Parameter parameter{declared.name, nullptr, 0,
                            !std::is_arithmetic_v<T> && !std::is_enum_v<T>, false};
        if constexpr (std::is_same_v<T, unsigned long long>) parameter.number = argument;
        return parameter;
    }
}

}  // namespace cuda_on_cpu

#if defined(CUDA_ON_CPU_CHECK) && defined(__clang__) && __clang_major__ < 16
// To copy a float4 or clear an array clang calls __tsan_memcpy and its like from version 16 on, and
// before that memcpy: the string's own. By tail calls, so that the line is the caller's.
namespace cuda_on_cpu {
#define CUDA_ON_CPU_OWN                                                                            \
    __attribute__((used, visibility("hidden"), disable_sanitizer_instrumentation)) inline void*
CUDA_ON_CPU_OWN own_memcpy(void*, const void*, std::size_t) asm("memcpy");
CUDA_ON_CPU_OWN own_memmove(void*, const void*, std::size_t) asm("memmove");
CUDA_ON_CPU_OWN own_memset(void*, int, std::size_t) asm("memset");
CUDA_ON_CPU_OWN own_memcpy(void* to, const void* from, std::size_t bytes) {
    [[clang::musttail]] return __tsan_memcpy(to, from, bytes);
}
CUDA_ON_CPU_OWN own_memmove(void* to, const void* from, std::size_t bytes) {
    [[clang::musttail]] return __tsan_memmove(to, from, bytes);
}
CUDA_ON_CPU_OWN own_memset(void* to, int value, std::size_t bytes) {
    [[clang::musttail]] return __tsan_memset(to, value, bytes);
}
#undef CUDA_ON_CPU_OWN
}  // namespace cuda_on_cpu
#endif
