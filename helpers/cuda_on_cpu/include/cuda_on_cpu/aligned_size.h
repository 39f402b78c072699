// A number of bytes that is a multiple of an alignment which both ends of a copy have.
#pragma once
#include <cstddef>

namespace cuda {
template <std::size_t Alignment>
struct aligned_size_t {
    static constexpr std::size_t align = Alignment;
    std::size_t value;
    constexpr explicit aligned_size_t(std::size_t bytes) : value(bytes) {}
    constexpr operator std::size_t() const { return value; }
};
enum class async_contract_fulfillment { none, async };
}  // namespace cuda
