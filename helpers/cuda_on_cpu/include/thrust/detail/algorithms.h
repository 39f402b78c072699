// Thrust's algorithms, as loops of the host. Each may be told first where to run.
#pragma once
#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../../cuda_on_cpu/ranges.h"

namespace thrust {

// ---------------------------------------------------------------- where to run

namespace detail {
struct Policy {
    cudaStream_t stream = nullptr;
};
template <class P>
using If = std::enable_if_t<std::is_base_of_v<Policy, std::decay_t<P>>>;
template <class P>
using IfNot = std::enable_if_t<!std::is_base_of_v<Policy, std::decay_t<P>>>;
struct Parallel : Policy {
    Policy on(cudaStream_t stream) const { return {stream}; }
};
}  // namespace detail

inline constexpr detail::Policy host{}, device{}, seq{};
namespace cuda {
inline constexpr detail::Parallel par{}, par_nosync{};
}

// ---------------------------------------------------------------- what to combine with

template <class T = void> using plus = std::plus<T>;
template <class T = void> using minus = std::minus<T>;
template <class T = void> using multiplies = std::multiplies<T>;
template <class T = void> using divides = std::divides<T>;
template <class T = void> using modulus = std::modulus<T>;
template <class T = void> using negate = std::negate<T>;
template <class T = void> using less = std::less<T>;
template <class T = void> using less_equal = std::less_equal<T>;
template <class T = void> using greater = std::greater<T>;
template <class T = void> using greater_equal = std::greater_equal<T>;
template <class T = void> using equal_to = std::equal_to<T>;
template <class T = void> using not_equal_to = std::not_equal_to<T>;
template <class T = void> using logical_and = std::logical_and<T>;
template <class T = void> using logical_or = std::logical_or<T>;
template <class T>
struct maximum {
    T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <class T>
struct minimum {
    T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class T>
struct square {
    T operator()(const T& x) const { return x * x; }
};
template <class T>
struct identity {
    const T& operator()(const T& x) const { return x; }
};

using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::tie;
using std::tuple;

// ---------------------------------------------------------------- iterators without memory

// Element i is made of i.
template <class T, class Make>
class made_iterator {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;

    explicit made_iterator(Make make, std::ptrdiff_t at = 0) : make_(make), at_(at) {}
    T operator*() const { return make_(at_); }
    T operator[](std::ptrdiff_t i) const { return make_(at_ + i); }
    made_iterator& operator+=(std::ptrdiff_t n) { at_ += n; return *this; }
    made_iterator& operator-=(std::ptrdiff_t n) { at_ -= n; return *this; }
    made_iterator& operator++() { return *this += 1; }
    made_iterator& operator--() { return *this -= 1; }
    made_iterator operator++(int) { made_iterator old = *this; ++*this; return old; }
    made_iterator operator--(int) { made_iterator old = *this; --*this; return old; }
    friend made_iterator operator+(made_iterator i, std::ptrdiff_t n) { return i += n; }
    friend made_iterator operator-(made_iterator i, std::ptrdiff_t n) { return i -= n; }
    friend std::ptrdiff_t operator-(const made_iterator& a, const made_iterator& b) {
        return a.at_ - b.at_;
    }
    friend bool operator==(const made_iterator& a, const made_iterator& b) { return a.at_ == b.at_; }
    friend bool operator!=(const made_iterator& a, const made_iterator& b) { return a.at_ != b.at_; }
    friend bool operator<(const made_iterator& a, const made_iterator& b) { return a.at_ < b.at_; }

private:
    Make make_;
    std::ptrdiff_t at_;
};

namespace detail {
template <class T>
struct Count {
    T first;
    Count(T first = T()) : first(first) {}
    T operator()(std::ptrdiff_t i) const { return T(first + i); }
};
template <class T>
struct Same {
    T value;
    Same(T value) : value(value) {}
    T operator()(std::ptrdiff_t) const { return value; }
};
template <class Function, class Iterator>
struct Transformed {
    Function function;
    Iterator from;
    auto operator()(std::ptrdiff_t i) const { return function(from[i]); }
};
}  // namespace detail

template <class T>
using counting_iterator = made_iterator<T, detail::Count<T>>;
template <class T>
using constant_iterator = made_iterator<T, detail::Same<T>>;
template <class T>
auto make_counting_iterator(T first) { return counting_iterator<T>(first); }
template <class T>
auto make_constant_iterator(T value) { return constant_iterator<T>(value); }
template <class Iterator, class Function>
auto make_transform_iterator(Iterator from, Function function) {
    using Make = detail::Transformed<Function, Iterator>;
    using T = std::decay_t<decltype(function(*from))>;
    return made_iterator<T, Make>(Make{function, from});
}

// ---------------------------------------------------------------- without a result, but in a stream

namespace detail {
template <class Work>
void run(const Policy& policy, Work work) { cuda_on_cpu::in_stream(policy.stream, work); }
}  // namespace detail

// With a policy in front, and without.
#define CUDA_ON_CPU_THRUST(name) \
    template <class First, class... Rest, class = detail::IfNot<First>> \
    auto name(First first, Rest... rest) { return name(device, first, rest...); }

template <class P, class From, class T, class = detail::If<P>>
void fill(const P& policy, From first, From last, T value) {
    detail::run(policy, [=] { std::fill(first, last, value); });
}
CUDA_ON_CPU_THRUST(fill)

template <class P, class From, class T = cuda_on_cpu::Value<From>, class = detail::If<P>>
void sequence(const P& policy, From first, From last, T start = 0, T step = 1) {
    detail::run(policy, [=] {
        From to = first;
        for (T i = 0; to != last; ++to, i = i + 1) *to = start + i * step;
    });
}
CUDA_ON_CPU_THRUST(sequence)

template <class P, class From, class Function, class = detail::If<P>>
From for_each(const P& policy, From first, From last, Function function) {
    detail::run(policy, [=] { std::for_each(first, last, function); });
    return last;
}
CUDA_ON_CPU_THRUST(for_each)

template <class P, class From, class Less = std::less<>, class = detail::If<P>>
void sort(const P& policy, From first, From last, Less less = {}) {
    detail::run(policy, [=] { std::stable_sort(first, last, less); });
}
CUDA_ON_CPU_THRUST(sort)

template <class P, class From, class Less = std::less<>, class = detail::If<P>>
void stable_sort(const P& policy, From first, From last, Less less = {}) {
    sort(policy, first, last, less);
}
CUDA_ON_CPU_THRUST(stable_sort)

template <class P, class Keys, class Values, class Less = std::less<>, class = detail::If<P>>
void sort_by_key(const P& policy, Keys first, Keys last, Values values, Less less = {}) {
    detail::run(policy, [=] {
        std::vector<std::pair<cuda_on_cpu::Value<Keys>, cuda_on_cpu::Value<Values>>> all;
        for (std::ptrdiff_t i = 0; i < last - first; i++) all.emplace_back(first[i], values[i]);
        auto before = [=](const auto& a, const auto& b) { return less(a.first, b.first); };
        std::stable_sort(all.begin(), all.end(), before);
        for (std::size_t i = 0; i < all.size(); i++)
            first[i] = all[i].first, values[i] = all[i].second;
    });
}
CUDA_ON_CPU_THRUST(sort_by_key)

// ---------------------------------------------------------------- one array to another

template <class P, class From, class To, class = detail::If<P>>
To copy(const P& policy, From first, From last, To to) {
    detail::run(policy, [=] { std::copy(first, last, to); });
    return to + (last - first);
}
CUDA_ON_CPU_THRUST(copy)

template <class P, class From, class To, class Function, class = detail::If<P>>
To transform(const P& policy, From first, From last, To to, Function function) {
    detail::run(policy, [=] { std::transform(first, last, to, function); });
    return to + (last - first);
}
template <class P, class From, class Other, class To, class Function, class = detail::If<P>>
To transform(const P& policy, From first, From last, Other other, To to, Function function) {
    detail::run(policy, [=] { std::transform(first, last, other, to, function); });
    return to + (last - first);
}
CUDA_ON_CPU_THRUST(transform)

template <class P, class From, class To, class Combine = std::plus<>, class = detail::If<P>>
To inclusive_scan(const P& policy, From first, From last, To to, Combine combine = {}) {
    using T = cuda_on_cpu::Value<From>;
    detail::run(policy, [=] { cuda_on_cpu::inclusive_scan<T>(first, last - first, to, combine); });
    return to + (last - first);
}
CUDA_ON_CPU_THRUST(inclusive_scan)

template <class P, class From, class To, class T = cuda_on_cpu::Value<From>,
          class Combine = std::plus<>, class = detail::If<P>>
To exclusive_scan(const P& policy, From first, From last, To to, T initial = T(),
                  Combine combine = {}) {
    detail::run(policy, [=] {
        cuda_on_cpu::exclusive_scan<T>(first, last - first, to, initial, combine);
    });
    return to + (last - first);
}
CUDA_ON_CPU_THRUST(exclusive_scan)

template <class P, class Map, class From, class To, class = detail::If<P>>
To gather(const P& policy, Map first, Map last, From from, To to) {
    detail::run(policy, [=] {
        for (std::ptrdiff_t i = 0; i < last - first; i++) to[i] = from[first[i]];
    });
    return to + (last - first);
}
CUDA_ON_CPU_THRUST(gather)

// ---------------------------------------------------------------- with a result: done at once

template <class P, class From, class T = cuda_on_cpu::Value<From>, class Combine = std::plus<>,
          class = detail::If<P>>
T reduce(const P&, From first, From last, T initial = T(), Combine combine = {}) {
    return cuda_on_cpu::combine<T>(first, last - first, initial, combine);
}
CUDA_ON_CPU_THRUST(reduce)

template <class P, class From, class Function, class T, class Combine, class = detail::If<P>>
T transform_reduce(const P& policy, From first, From last, Function function, T initial,
                   Combine combine) {
    auto made = make_transform_iterator(first, function);
    return thrust::reduce(policy, made, made + (last - first), initial, combine);
}
CUDA_ON_CPU_THRUST(transform_reduce)

template <class P, class From, class Other, class T, class = detail::If<P>>
T inner_product(const P& policy, From first, From last, Other other, T initial) {
    auto product = [=](std::ptrdiff_t i) { return T(first[i] * other[i]); };
    auto made = make_transform_iterator(make_counting_iterator(std::ptrdiff_t(0)), product);
    return thrust::reduce(policy, made, made + (last - first), initial, std::plus<T>());
}
CUDA_ON_CPU_THRUST(inner_product)

template <class P, class From, class T, class = detail::If<P>>
std::ptrdiff_t count(const P&, From first, From last, T value) {
    return std::count(first, last, value);
}
CUDA_ON_CPU_THRUST(count)

template <class P, class From, class Choose, class = detail::If<P>>
std::ptrdiff_t count_if(const P&, From first, From last, Choose choose) {
    return std::count_if(first, last, choose);
}
CUDA_ON_CPU_THRUST(count_if)

template <class P, class From, class To, class Choose, class = detail::If<P>>
To copy_if(const P&, From first, From last, To to, Choose choose) {
    return std::copy_if(first, last, to, choose);
}
CUDA_ON_CPU_THRUST(copy_if)

template <class P, class From, class = detail::If<P>>
From unique(const P&, From first, From last) {
    return std::unique(first, last);
}
CUDA_ON_CPU_THRUST(unique)

// The sum of each run of equal keys.
template <class P, class Keys, class Values, class KeysTo, class ValuesTo, class = detail::If<P>>
std::pair<KeysTo, ValuesTo> reduce_by_key(const P&, Keys first, Keys last, Values values,
                                          KeysTo keys_to, ValuesTo values_to) {
    std::ptrdiff_t n = last - first, runs = 0;
    for (std::ptrdiff_t i = 0; i < n; runs++) {
        keys_to[runs] = first[i];
        cuda_on_cpu::Value<Values> sum = values[i];
        std::ptrdiff_t begin = i;
        for (i++; i < n && first[i] == first[begin]; i++) sum = sum + values[i];
        values_to[runs] = sum;
    }
    return {keys_to + runs, values_to + runs};
}
CUDA_ON_CPU_THRUST(reduce_by_key)

// Of equal ones the first.
template <class P, class From, class Less = std::less<>, class = detail::If<P>>
From max_element(const P&, From first, From last, Less less = {}) {
    return std::max_element(first, last, less);
}
CUDA_ON_CPU_THRUST(max_element)

template <class P, class From, class Less = std::less<>, class = detail::If<P>>
From min_element(const P&, From first, From last, Less less = {}) {
    return std::min_element(first, last, less);
}
CUDA_ON_CPU_THRUST(min_element)
#undef CUDA_ON_CPU_THRUST

}  // namespace thrust
