// Thrust's vectors and pointers: of the device and of the host, which here share their memory.
#pragma once
#include <iterator>
#include <new>
#include <type_traits>
#include <vector>

#include "../../cuda_on_cpu/host_memory.h"

namespace thrust {

// A pointer that says that it points to the device.
template <class T>
class device_ptr {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = std::remove_cv_t<T>;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using reference = T&;

    device_ptr() = default;
    explicit device_ptr(T* raw) : raw_(raw) {}
    template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
    device_ptr(const device_ptr<U>& other) : raw_(other.get()) {}

    T* get() const { return raw_; }
    T& operator*() const { return *raw_; }
    T* operator->() const { return raw_; }
    T& operator[](std::ptrdiff_t i) const { return raw_[i]; }
    device_ptr& operator+=(std::ptrdiff_t n) { raw_ += n; return *this; }
    device_ptr& operator-=(std::ptrdiff_t n) { raw_ -= n; return *this; }
    device_ptr& operator++() { return *this += 1; }
    device_ptr& operator--() { return *this -= 1; }
    device_ptr operator++(int) { device_ptr old = *this; ++*this; return old; }
    device_ptr operator--(int) { device_ptr old = *this; --*this; return old; }
    friend device_ptr operator+(device_ptr p, std::ptrdiff_t n) { return p += n; }
    friend device_ptr operator+(std::ptrdiff_t n, device_ptr p) { return p += n; }
    friend device_ptr operator-(device_ptr p, std::ptrdiff_t n) { return p -= n; }
    friend std::ptrdiff_t operator-(device_ptr a, device_ptr b) { return a.raw_ - b.raw_; }
    friend bool operator==(device_ptr a, device_ptr b) { return a.raw_ == b.raw_; }
    friend bool operator!=(device_ptr a, device_ptr b) { return a.raw_ != b.raw_; }
    friend bool operator<(device_ptr a, device_ptr b) { return a.raw_ < b.raw_; }
    friend bool operator>(device_ptr a, device_ptr b) { return a.raw_ > b.raw_; }
    friend bool operator<=(device_ptr a, device_ptr b) { return a.raw_ <= b.raw_; }
    friend bool operator>=(device_ptr a, device_ptr b) { return a.raw_ >= b.raw_; }

private:
    T* raw_ = nullptr;
};

template <class T>
device_ptr<T> device_pointer_cast(T* raw) { return device_ptr<T>(raw); }
template <class T>
T* raw_pointer_cast(device_ptr<T> p) { return p.get(); }
template <class T>
T* raw_pointer_cast(T* p) { return p; }

// Memory of cudaMalloc: a kernel that overruns it is stopped.
template <class T>
struct device_allocator {
    using value_type = T;
    device_allocator() = default;
    template <class U>
    device_allocator(const device_allocator<U>&) {}
    T* allocate(std::size_t n) {
        void* made = nullptr;
        if (cudaMalloc(&made, n * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
        return static_cast<T*>(made);
    }
    void deallocate(T* old, std::size_t) { cudaFree(old); }
    friend bool operator==(device_allocator, device_allocator) { return true; }
    friend bool operator!=(device_allocator, device_allocator) { return false; }
};

template <class T>
using host_vector = std::vector<T>;

template <class T>
class device_vector {
    std::vector<T, device_allocator<T>> elements_;

public:
    using value_type = T;
    using iterator = device_ptr<T>;
    using const_iterator = device_ptr<const T>;

    device_vector() = default;
    explicit device_vector(std::size_t n, T value = T()) : elements_(n, value) {}
    device_vector(std::initializer_list<T> values) : elements_(values) {}
    device_vector(const std::vector<T>& other) : elements_(other.begin(), other.end()) {}
    template <class Iterator, class = typename std::iterator_traits<Iterator>::iterator_category>
    device_vector(Iterator first, Iterator last) : elements_(first, last) {}
    device_vector& operator=(const std::vector<T>& other) {
        elements_.assign(other.begin(), other.end());
        return *this;
    }
    operator std::vector<T>() const { return {elements_.begin(), elements_.end()}; }

    iterator begin() { return iterator(elements_.data()); }
    iterator end() { return begin() + size(); }
    const_iterator begin() const { return const_iterator(elements_.data()); }
    const_iterator end() const { return begin() + size(); }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    iterator data() { return begin(); }
    const_iterator data() const { return begin(); }
    std::size_t size() const { return elements_.size(); }
    bool empty() const { return elements_.empty(); }
    T& operator[](std::size_t i) { return elements_[i]; }
    const T& operator[](std::size_t i) const { return elements_[i]; }
    T& front() { return elements_.front(); }
    T& back() { return elements_.back(); }
    void resize(std::size_t n, T value = T()) { elements_.resize(n, value); }
    void clear() { elements_.clear(); }
    void push_back(const T& value) { elements_.push_back(value); }
};

}  // namespace thrust
