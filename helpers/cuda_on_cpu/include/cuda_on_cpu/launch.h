// kernel<<<grid, block, shared, stream>>>(arguments), which the translator turns into
//     ::cuda_on_cpu::configure("kernel", line, grid, block, shared, stream)(
//         [=](auto&... cuda_on_cpu_a) CUDA_ON_CPU_UNCHECKED { kernel(cuda_on_cpu_a...); }, arguments)
// The lambda stands for the kernel because a template's name alone is not an object to pass. A
// kernel that is a variable (a function pointer) is captured by value: a graph may keep the launch.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include "check.h"
#include "in_order.h"
#include "runtime.h"

namespace cuda_on_cpu {

#if defined(CUDA_ON_CPU_CHECK)
CUDA_ON_CPU_UNCHECKED inline void next_thread() { next_checked_thread(); }
// Not inlined into the loop over threads: there threadIdx changes, which a kernel sees as const.
#define CUDA_ON_CPU_ONE_THREAD __attribute__((noinline))
#else
inline void next_thread() {
    // The empty statement makes the compiler keep threadIdx in memory, where an error finds it.
    __asm__ volatile("" ::: "memory");
    if (position.thread + 1 < position.plain_end) {
        position.thread++;
        step(threadIdx);
    } else if (is_in_order(RETURNED)) {
        hand_over_for_good();
    } else {
        next_thread_slow();
    }
}
#define CUDA_ON_CPU_ONE_THREAD
#endif
// Of a kernel that clang inlines into a try, addr2line does not find the lines.
#if defined(__clang__)
#define CUDA_ON_CPU_NOT_IN_TRY __attribute__((noinline))
#else
#define CUDA_ON_CPU_NOT_IN_TRY
#endif

// A GPU starts all threads of a block together. Here they run one after the other, as calls that
// the compiler may inline into this loop; only a thread that has to wait costs a switch of stacks.
template <class Call>
CUDA_ON_CPU_UNCHECKED CUDA_ON_CPU_NOT_IN_TRY void run_in_turn() {
    for (;; next_thread()) (*static_cast<const Call*>(position.arguments))();
}

// The outermost function on its stack, which never returns.
template <class Call>
CUDA_ON_CPU_UNCHECKED void run_threads() {
    try {
        run_in_turn<Call>();
    } catch (...) {
        note_exception();
    }
    fail_by_exception();
}

// An argument is copied at the launch, but for an object of the host's, as which a kernel cannot have
// it: an array that converts to its pointer, say. That is left where it is.
template <class T, bool = std::is_trivially_copyable<T>::value>
struct Argument {
    T copy;
    Argument(const T& given) : copy(given) {}
    CUDA_ON_CPU_UNCHECKED const T& get() const { return copy; }
};
template <class T>
struct Argument<T, false> {
    T* original;
    Argument(const T& given) : original(const_cast<T*>(&given)) {}
    CUDA_ON_CPU_UNCHECKED T& get() const { return *original; }
};

// The arguments of a launch. (A std::tuple's functions would be checked like the kernel.)
template <class... Arguments>
struct Pack {
    template <class Kernel, class... Unpacked>
    CUDA_ON_CPU_UNCHECKED void pass_to(const Kernel& kernel, Unpacked&... unpacked) const {
        kernel(unpacked...);
    }
};
template <class First, class... Others>
struct Pack<First, Others...> {
    Argument<First> first;
    Pack<Others...> others;

    Pack(const First& first, const Others&... others) : first(first), others{others...} {}
    template <class Kernel, class... Unpacked>
    CUDA_ON_CPU_UNCHECKED void pass_to(const Kernel& kernel, Unpacked&... unpacked) const {
        others.pass_to(kernel, unpacked..., first.get());
    }
};

// A kernel with its arguments, as all threads of a launch call it.
template <class Kernel, class... Arguments>
struct Call {
    Kernel kernel;
    Pack<Arguments...> arguments;
    CUDA_ON_CPU_UNCHECKED CUDA_ON_CPU_ONE_THREAD void operator()() const {
        arguments.pass_to(kernel);
    }
};
template <class T>
void* copy_of(const void* original) {
    return new T(*static_cast<const T*>(original));
}
template <class T>
void destroy(void* copy) {
    delete static_cast<T*>(copy);
}

// Whether T is a lambda's type, or is made of one: the compiler's name of it says so.
template <class T>
constexpr bool is_lambda() {
    const char* name = __PRETTY_FUNCTION__;
    for (; std::is_class<T>::value && *name; name++) {
#if defined(__clang__)
        const char* word = "(lambda at ";
#else
        const char* word = "<lambda(";
#endif
        const char* letter = name;
        while (*word && *letter == *word) letter++, word++;
        if (!*word) return true;
    }
    return false;
}

// ON_DEVICE: the launch stands in code for the device, whose lambdas kernels may get.
template <bool ON_DEVICE = false>
class Configuration {
    Launch launch_;
    DeclaredList declared_;  // the kernel's parameters

public:
    explicit Configuration(const Launch& launch) : launch_(launch) {}

    Configuration& declare(DeclaredList parameters) {
        declared_ = parameters;
        return *this;
    }

    // What __launch_bounds__ says.
    Configuration& bound(unsigned threads) {
        launch_.most_threads = threads;
        return *this;
    }

    // Arguments are copied at the launch, as CUDA does; each thread gets its own copy of the copy.
    template <class Kernel, class... Arguments>
    cudaError_t operator()(Kernel kernel, const Arguments&... arguments) {
        static_assert((0 + ... + sizeof(std::decay_t<const Arguments&>)) <= ARGUMENT_BYTES,
                      "a launch has 32,764 bytes of arguments at most: give the kernel a pointer");
#if !defined(CUDA_ON_CPU_EXTENDED_LAMBDA)
        static_assert(ON_DEVICE || !(false || ... || is_lambda<std::decay_t<const Arguments&>>()),
                      "nvcc gives a kernel no lambda of the host: write a struct with operator(), or "
                      "[=] __device__ (...) { ... } and compile_cuda(src, "
                      "flags=['--extended-lambda'])");
#endif
        using ThisCall = Call<Kernel, std::decay_t<const Arguments&>...>;
        ThisCall call{kernel, {arguments...}};
        launch_.run_threads = &run_threads<ThisCall>;
        launch_.arguments = &call;
        launch_.argument_bytes = sizeof call;
        if (!std::is_trivially_copyable<ThisCall>::value) {
            launch_.copy_arguments = &copy_of<ThisCall>;
            launch_.destroy_arguments = &destroy<ThisCall>;
        }
        const Declared* parameter = declared_.first;
        const Declared* end = parameter + declared_.count;
        auto next = [&] { return parameter != end ? *parameter++ : Declared{"", false}; };
        const Parameter parameters[] = {
            describe_parameter<std::decay_t<const Arguments&>>(next(), arguments)..., {}};
        launch_.parameters = parameters;
        launch_.parameter_count = sizeof...(Arguments);
        launch_.checked = IS_CHECKED;
#if defined(__PIE__)  // the code of a program, not of a library
        launch_.in_program = true;
#endif
        return launch(launch_);
    }
};

template <bool ON_DEVICE = false>
Configuration<ON_DEVICE> configure(const char* kernel, int line, dim3 grid, dim3 block,
                                   std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
    return Configuration<ON_DEVICE>({kernel, line, grid, block, shared_bytes, false, stream});
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
