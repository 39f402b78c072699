// kernel<<<grid, block, shared, stream>>>(arguments), which the translator turns into
//     ::cuda_on_cpu::configure("kernel", line, grid, block, shared, stream)(
//         [&](const auto&... a) CUDA_ON_CPU_UNCHECKED { kernel(a...); }, arguments)
// The lambda stands for the kernel because a template's name alone is not an object to pass.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include "check.h"
#include "runtime.h"

struct CUstream_st;
typedef CUstream_st* cudaStream_t;

namespace cuda_on_cpu {

CUDA_ON_CPU_UNCHECKED inline bool next_thread() {
    // The empty statement makes the compiler keep threadIdx in memory, where an error finds it.
    __asm__ volatile("" ::: "memory");
    if (position.thread + 1 < position.plain_end) {
        position.thread++;
        step(threadIdx);
        return true;
    }
    return next_thread_slow();
}

// A GPU starts all threads of a block together. Here they run one after the other, as calls that
// the compiler may inline into this loop; only a thread that has to wait costs a switch of stacks.
template <class Call>
CUDA_ON_CPU_UNCHECKED void run_threads(void* call) {
    do {
        begin_thread();
        (*static_cast<const Call*>(call))();
    } while (next_thread());
}

// The arguments of a launch, copied. (A std::tuple's functions would be checked like the kernel.)
template <class... Arguments>
struct Pack {
    template <class Kernel, class... Unpacked>
    CUDA_ON_CPU_UNCHECKED void pass_to(const Kernel& kernel, const Unpacked&... unpacked) const {
        kernel(unpacked...);
    }
};
template <class First, class... Others>
struct Pack<First, Others...> {
    First first;
    Pack<Others...> others;

    Pack(const First& first, const Others&... others) : first(first), others{others...} {}
    template <class Kernel, class... Unpacked>
    CUDA_ON_CPU_UNCHECKED void pass_to(const Kernel& kernel, const Unpacked&... unpacked) const {
        others.pass_to(kernel, unpacked..., first);
    }
};

class Configuration {
    Launch launch_;
    std::initializer_list<Declared> declared_;  // the kernel's parameters

public:
    explicit Configuration(const Launch& launch) : launch_(launch) {}

    Configuration& declare(std::initializer_list<Declared> parameters, bool may_allocate) {
        declared_ = parameters;
        launch_.may_allocate = may_allocate;
        return *this;
    }

    // Arguments are copied at the launch, as CUDA does; each thread gets its own copy of the copy.
    template <class Kernel, class... Arguments>
    void operator()(Kernel kernel, const Arguments&... arguments) {
        Pack<std::decay_t<const Arguments&>...> copies{arguments...};
        auto call = [&]() CUDA_ON_CPU_UNCHECKED { copies.pass_to(kernel); };
        launch_.run_threads = &run_threads<decltype(call)>;
        launch_.arguments = &call;
        launch_.copies = &copies;
        launch_.copies_bytes = sizeof copies;
        auto parameter = declared_.begin();
        auto next = [&] { return parameter != declared_.end() ? *parameter++ : Declared{"", false}; };
        const Parameter parameters[] = {
            describe_parameter<std::decay_t<const Arguments&>>(next(), arguments)..., {}};
        launch_.parameters = parameters;
        launch_.parameter_count = sizeof...(Arguments);
#if defined(CUDA_ON_CPU_CHECK)
        launch_.checked = true;
#endif
        launch(launch_);
    }
};

// Every launch is finished when it returns, so streams have no work to order.
inline Configuration configure(const char* kernel, int line, dim3 grid, dim3 block,
                               std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
    return Configuration({kernel, line, grid, block, shared_bytes, false, nullptr, nullptr,
                          false, nullptr, 0});
}

// extern __shared__ T name[] inside a function: T* name = dynamic_shared<T>();
template <class T>
T* dynamic_shared(const char* name = nullptr) {
    name_dynamic_shared<T>(name);
    return static_cast<T*>(position.dynamic_shared);
}

// extern __shared__ T name[] at file scope: the pointer is looked up wherever the name is used.
template <class T>
struct DynamicShared {
    const char* name = nullptr;
    operator T*() const { return dynamic_shared<T>(name); }
};

}  // namespace cuda_on_cpu

// The kernel's name as it stands after macros are expanded.
#define CUDA_ON_CPU_TEXT(...) CUDA_ON_CPU_TEXT_(__VA_ARGS__)
#define CUDA_ON_CPU_TEXT_(...) #__VA_ARGS__
