// What sums, maxima and minima combine with, and the line of a call.
#pragma once

namespace cub {
struct Line {  // a type of its own, for a number might be an argument
    int number;
    explicit Line(int number) : number(number) {}
};
}  // namespace cub

namespace cub::detail {
struct Plus {
    template <class T>
    T operator()(const T& a, const T& b) const { return a + b; }
};
struct Larger {
    template <class T>
    T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
struct Smaller {
    template <class T>
    T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
}  // namespace cub::detail
