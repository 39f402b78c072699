// NVTX for C++: ranges that end with their scope.
#pragma once
#include <string>

#include "nvToolsExt.h"

#define NVTX3_CPP_VERSION_MAJOR 1

namespace nvtx3 {
inline namespace v1 {

struct rgb {
    uint8_t red, green, blue;
};
struct argb {
    uint8_t alpha, red, green, blue;
};
struct color {
    uint32_t value = 0;
    color() = default;
    explicit color(uint32_t value) : value(value) {}
    color(rgb) {}
    color(argb) {}
};
struct message {
    message() = default;
    message(const char*) {}
    message(const std::string&) {}
};
struct category {
    uint32_t id;
};
struct payload {
    template <class T>
    explicit payload(T) {}
};
struct event_attributes {
    template <class... Parts>
    event_attributes(const Parts&...) {}
};
struct domain {
    struct global {};
};

template <class Domain = domain::global>
struct scoped_range_in {
    template <class... Parts>
    explicit scoped_range_in(const Parts&...) {
        nvtxRangePush("");
    }
    ~scoped_range_in() { nvtxRangePop(); }
    scoped_range_in(const scoped_range_in&) = delete;
};
using scoped_range = scoped_range_in<>;
using thread_range = scoped_range;  // its name in older versions

template <class Domain = domain::global>
struct unique_range_in {
    template <class... Parts>
    explicit unique_range_in(const Parts&...) {}
    ~unique_range_in() {}
};
using unique_range = unique_range_in<>;

struct range_handle {
    nvtxRangeId_t id;
};
template <class... Parts>
range_handle start_range(const Parts&...) {
    return {1};
}
inline void end_range(range_handle) {}
template <class... Parts>
void mark(const Parts&...) {}

}  // namespace v1
}  // namespace nvtx3

#define NVTX3_FUNC_RANGE() ::nvtx3::scoped_range cuda_on_cpu_function_range{__func__}
#define NVTX3_FUNC_RANGE_IN(D) ::nvtx3::scoped_range_in<D> cuda_on_cpu_function_range{__func__}
