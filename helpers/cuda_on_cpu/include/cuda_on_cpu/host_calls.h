// How Python calls the functions of a string: what would end the process ends the call.
#pragma once
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "runtime.h"

namespace cuda_on_cpu {

// Runs work(argument). Where it would end the process (a null pointer, a recursion without an end,
// abort()), or where Ctrl-C has to end it, it is left as it stands, by std::runtime_error.
CUDA_ON_CPU_API void call_host(void (*work)(void*), void* argument);

template <class Work>
void call_host(Work work) {
    call_host([](void* given) { (*static_cast<Work*>(given))(); }, &work);
}

// A function as PyTorch calls an operator.
template <void (*function)(std::uint64_t*, std::uint64_t, std::uint64_t)>
struct HostCall {
    static void call(std::uint64_t* stack, std::uint64_t inputs, std::uint64_t outputs) {
        call_host([=] { function(stack, inputs, outputs); });
    }
};

// A function as pybind11 calls it.
template <class Result, class... Arguments>
auto called_by_host(Result (*function)(Arguments...)) {
    return [function](Arguments... arguments) -> Result {
        auto run = [&]() -> Result { return function(std::forward<Arguments>(arguments)...); };
        if constexpr (std::is_void_v<Result>) {
            call_host(run);
        } else if constexpr (std::is_reference_v<Result>) {
            std::remove_reference_t<Result>* result = nullptr;
            call_host([&] { result = &run(); });
            return static_cast<Result>(*result);
        } else {
            std::optional<Result> result;
            call_host([&] { result.emplace(run()); });
            return std::move(*result);
        }
    };
}

}  // namespace cuda_on_cpu
