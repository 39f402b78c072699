// volatile: memory that other threads change while this one looks at it. The translator turns
//     volatile float* p           into  VolatilePointer<float> p
//     volatile __shared__ int s   into  __shared__ Volatile<int> s
//
// After every access the other threads have their turn. So a thread may spin until another one
// sets a flag, and the lanes of a warp that all do the same run in step, which reductions from
// before 2017 rely on. (Since Volta, GPUs do not promise that: __syncwarp() says it outright.)
//
// In a checked build VolatileData is as any other memory: it races, unless __syncwarp(), a barrier
// or fences order its accesses. Volatile does not. It is what threads look at, as at a flag: memory
// of a type that some condition of the string looks at through volatile (see translate).
#pragma once
#include <cstdint>
#include <type_traits>

#include "check.h"
#include "runtime.h"

namespace cuda_on_cpu {

template <class T, bool IsData = false>
struct Volatile {
    using Value = std::remove_const_t<T>;
    T memory;

    Volatile() = default;
    Volatile(Value value) : memory(value) {}
    Volatile(const Volatile&) = default;
    CUDA_ON_CPU_INLINE operator Value() const {
        Value value = read();
        yield();
        return value;
    }
    CUDA_ON_CPU_INLINE Value operator=(Value value) {
        write(value);
        yield();
        return value;
    }
    CUDA_ON_CPU_INLINE Value operator=(const Volatile& other) { return *this = Value(other); }
    CUDA_ON_CPU_INLINE Value operator++() { return *this = Value(read() + 1); }
    CUDA_ON_CPU_INLINE Value operator--() { return *this = Value(read() - 1); }
    CUDA_ON_CPU_INLINE Value operator++(int) { return ++*this - 1; }
    CUDA_ON_CPU_INLINE Value operator--(int) { return --*this + 1; }
    // The right side is worked out, and its accesses done, before the left side is read.
    CUDA_ON_CPU_INLINE Value operator+=(Value value) { return *this = Value(read() + value); }
    CUDA_ON_CPU_INLINE Value operator-=(Value value) { return *this = Value(read() - value); }
    CUDA_ON_CPU_INLINE Value operator*=(Value value) { return *this = Value(read() * value); }
    CUDA_ON_CPU_INLINE Value operator/=(Value value) { return *this = Value(read() / value); }
    CUDA_ON_CPU_INLINE Value operator&=(Value value) { return *this = Value(read() & value); }
    CUDA_ON_CPU_INLINE Value operator|=(Value value) { return *this = Value(read() | value); }
    CUDA_ON_CPU_INLINE Value operator^=(Value value) { return *this = Value(read() ^ value); }

private:
#if defined(CUDA_ON_CPU_CHECK)
    CUDA_ON_CPU_INLINE Value read() const {
        if constexpr (IsData) return memory;
        Value value = *const_cast<const volatile Value*>(&memory);
        note_acquire();
        return value;
    }
    CUDA_ON_CPU_INLINE void write(Value value) {
        if constexpr (IsData) memory = value;
        else *const_cast<volatile Value*>(&memory) = value;
    }
#else
    Value read() const { return memory; }
    void write(Value value) { memory = value; }
#endif
};

template <class T>
using VolatileData = Volatile<T, true>;

template <class T, bool IsData = false>
class VolatilePointer {
    using Element = Volatile<T, IsData>;
    Element* pointer_ = nullptr;

public:
    VolatilePointer() = default;
    VolatilePointer(std::nullptr_t) {}
    VolatilePointer(T* pointer) : pointer_(reinterpret_cast<Element*>(pointer)) {}
    VolatilePointer(volatile T* pointer) : pointer_((Element*)pointer) {}
    // 0 and NULL, and numbers that are cast.
    template <class I, std::enable_if_t<std::is_integral<I>::value, int> = 0>
    VolatilePointer(I address) : pointer_((Element*)(std::uintptr_t)address) {}
    VolatilePointer(Element* pointer) : pointer_(pointer) {}
    template <class U>
    explicit VolatilePointer(U* pointer) : pointer_((Element*)pointer) {}
    template <class U>
    explicit operator U*() const { return (U*)pointer_; }
    CUDA_ON_CPU_INLINE Element& operator*() const { return *pointer_; }
    // A member of a structure: the others have their turn before it is looked at.
    CUDA_ON_CPU_INLINE volatile T* operator->() const {
        yield();
        return (volatile T*)pointer_;
    }
    CUDA_ON_CPU_INLINE Element& operator[](std::ptrdiff_t i) const { return pointer_[i]; }
    VolatilePointer operator+(std::ptrdiff_t i) const { return pointer_ + i; }
    VolatilePointer operator-(std::ptrdiff_t i) const { return pointer_ - i; }
    VolatilePointer& operator+=(std::ptrdiff_t i) { return *this = *this + i; }
    VolatilePointer& operator-=(std::ptrdiff_t i) { return *this = *this - i; }
};
template <class T>
using VolatileDataPointer = VolatilePointer<T, true>;

}  // namespace cuda_on_cpu
