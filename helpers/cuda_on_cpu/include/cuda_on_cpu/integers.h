// What C++ leaves open and PTX does not: shifts by the width and more, conversions to integers of
// what does not fit. integers.py writes them so into code for the device:
//     a << n              a << SHIFT << n
//     a <<= n             a <<= ShiftCount{} = n
//     (int)x              (int)(Converted<int>)x
//     int i = x;          int i = Fitted{x};
// Without branches where it matters, since a trace follows them.
#pragma once
#include <limits>
#include <type_traits>

namespace cuda_on_cpu {

// ---------------------------------------------------------------- shifts

template <class T>
constexpr bool shifts = std::is_integral_v<T> || std::is_enum_v<T>;
template <class T>
using Promoted = decltype(+std::declval<T>());

// A count is taken as 32 bits without a sign, and to the width of what is shifted at most.
template <class T, class N>
constexpr T shift_left(T value, N count) {
    constexpr unsigned WIDTH = sizeof(T) * 8;
    using Bits = std::make_unsigned_t<T>;
    const auto n = static_cast<unsigned>(count);
    return T((Bits(value) << (n & (WIDTH - 1))) & (Bits(0) - Bits(n < WIDTH)));
}
template <class T, class N>
constexpr T shift_right(T value, N count) {
    constexpr unsigned WIDTH = sizeof(T) * 8;
    const auto n = static_cast<unsigned>(count);
    if constexpr (std::is_signed_v<T>) return T(value >> ((n | (0u - (n >= WIDTH))) & (WIDTH - 1)));
    else return T((value >> (n & (WIDTH - 1))) & (T(0) - T(n < WIDTH)));
}

inline constexpr struct Shift {} SHIFT;
template <class T>
struct ShiftedLeft { T value; };
template <class T>
struct ShiftedRight { T value; };

template <class T, std::enable_if_t<shifts<T>, int> = 0>
constexpr ShiftedLeft<Promoted<T>> operator<<(T value, Shift) { return {value}; }
template <class T, std::enable_if_t<shifts<T>, int> = 0>
constexpr ShiftedRight<Promoted<T>> operator>>(T value, Shift) { return {value}; }
// What has operators of its own: a stream, a proxy.
template <class T, std::enable_if_t<!shifts<std::decay_t<T>>, int> = 0>
constexpr ShiftedLeft<T&&> operator<<(T&& value, Shift) { return {static_cast<T&&>(value)}; }
template <class T, std::enable_if_t<!shifts<std::decay_t<T>>, int> = 0>
constexpr ShiftedRight<T&&> operator>>(T&& value, Shift) { return {static_cast<T&&>(value)}; }

template <class T, class N>
constexpr decltype(auto) operator<<(ShiftedLeft<T> left, N&& count) {
    if constexpr (std::is_integral_v<T>) return shift_left(left.value, count);
    else return static_cast<T>(left.value) << static_cast<N&&>(count);
}
template <class T, class N>
constexpr decltype(auto) operator>>(ShiftedRight<T> left, N&& count) {
    if constexpr (std::is_integral_v<T>) return shift_right(left.value, count);
    else return static_cast<T>(left.value) >> static_cast<N&&>(count);
}

template <class N>
struct CountOf { const N& count; };
struct ShiftCount {
    template <class N>
    constexpr CountOf<N> operator=(const N& count) && { return {count}; }
};
template <class T, class N>
constexpr decltype(auto) operator<<=(T&& value, CountOf<N> by) {
    if constexpr (std::is_integral_v<std::decay_t<T>>)
        return value = std::decay_t<T>(shift_left(Promoted<std::decay_t<T>>(value), by.count));
    else return static_cast<T&&>(value) <<= by.count;
}
template <class T, class N>
constexpr decltype(auto) operator>>=(T&& value, CountOf<N> by) {
    if constexpr (std::is_integral_v<std::decay_t<T>>)
        return value = std::decay_t<T>(shift_right(Promoted<std::decay_t<T>>(value), by.count));
    else return static_cast<T&&>(value) >>= by.count;
}

// ---------------------------------------------------------------- from a float to an integer

// cvt.rzi: the nearest integer that fits. To less than 32 bits nvcc converts to 32 first and keeps
// the low ones. A NaN becomes 0, or where 64 bits are on either side, the highest bit alone.
template <class T, class F>
constexpr T to_integer(F x) {
    if constexpr (std::is_same_v<T, bool>) return x != 0;
    else if constexpr (sizeof(T) < 4) {
        return T(to_integer<std::conditional_t<std::is_signed_v<T>, int, unsigned>>(x));
    } else {
        using Limits = std::numeric_limits<T>;
        constexpr F LOW = F(Limits::min()), END = 2 * F(Limits::max() / 2 + 1);
        constexpr T NAN_IS = sizeof(T) == 8 || sizeof(F) == 8 ? T(T(1) << (sizeof(T) * 8 - 1)) : T(0);
        if (x > LOW - 1 && x < END) return T(x);
        return x >= END ? Limits::max() : x < END ? Limits::min() : NAN_IS;
    }
}

template <class T, class From>
constexpr T convert(const From& x) {
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<T>) return to_integer<T>(x);
    else return (T)x;
}

// (T)x, by way of this.
template <class T>
struct Converted {
    T value;
    template <class From>
    constexpr Converted(const From& x) : value(convert<T>(x)) {}
    constexpr operator T() const { return value; }
};

// static_cast<T>(x) of a T that may be an integer, or not: what is given to it.
template <class T, class From>
constexpr decltype(auto) fitted(From&& x) {
    using F = std::decay_t<From>;
    if constexpr (std::is_floating_point_v<F> && std::is_integral_v<T>) return to_integer<T>(x);
    else return static_cast<From&&>(x);
}

// A number that becomes what it is assigned to.
template <class F>
struct Fitted {
    F x;
    template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
    constexpr operator T() const { return convert<T>(x); }
};
template <class F>
Fitted(F) -> Fitted<F>;

}  // namespace cuda_on_cpu
