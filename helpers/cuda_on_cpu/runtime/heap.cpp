// new, delete, malloc and free of a translated string. It is linked so that its calls come here
// (--wrap, see build.py): in a kernel they are the device's heap, whose arrays end where they end.
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "checker.h"
#include "memory.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

static std::atomic<std::size_t> heap_arrays{0};

static void* allocate_in_kernel(std::size_t bytes) {
    heap_arrays++;
    return allocate(bytes ? bytes : 1, FROM_NEW);
}

// Whether that was memory of the device's heap.
static bool free_in_kernel(void* memory, const char* call, void* caller) {
    if (heap_arrays && release_from(FROM_NEW, memory)) {
        heap_arrays--;
        if (checker_here) checker_here->forget(std::uintptr_t(memory));
        return true;
    }
    Multiprocessor* here = Multiprocessor::running();
    if (!memory || !here) return !memory;
    bool again = was_freed(memory);
    here->fail_at(0, {static_cast<char*>(caller) - 1},
                  std::string(call) + (again ? " of memory that has been freed already."
                                             : " of memory that no kernel has allocated."));
}

void release_newer_of_kernels(std::size_t made) {
    if (heap_arrays) heap_arrays -= release_newer(FROM_NEW, made);
}

}  // namespace cuda_on_cpu

extern "C" {

CUDA_ON_CPU_API void* __wrap_malloc(std::size_t bytes) {
    bool in_kernel = cuda_on_cpu::Multiprocessor::running();
    return in_kernel ? cuda_on_cpu::allocate_in_kernel(bytes) : std::malloc(bytes);
}
CUDA_ON_CPU_API void* __wrap__Znwm(std::size_t bytes) {
    bool in_kernel = cuda_on_cpu::Multiprocessor::running();
    return in_kernel ? cuda_on_cpu::allocate_in_kernel(bytes) : ::operator new(bytes);
}
CUDA_ON_CPU_API void* __wrap__Znam(std::size_t bytes) { return __wrap__Znwm(bytes); }

CUDA_ON_CPU_API void __wrap_free(void* memory) {
    void* caller = __builtin_return_address(0);
    if (!cuda_on_cpu::free_in_kernel(memory, "free", caller)) std::free(memory);
}
CUDA_ON_CPU_API void __wrap__ZdlPv(void* memory) {
    void* caller = __builtin_return_address(0);
    if (!cuda_on_cpu::free_in_kernel(memory, "delete", caller)) ::operator delete(memory);
}
CUDA_ON_CPU_API void __wrap__ZdaPv(void* memory) {
    void* caller = __builtin_return_address(0);
    if (!cuda_on_cpu::free_in_kernel(memory, "delete[]", caller)) ::operator delete(memory);
}
CUDA_ON_CPU_API void __wrap__ZdlPvm(void* memory, std::size_t) {
    void* caller = __builtin_return_address(0);
    if (!cuda_on_cpu::free_in_kernel(memory, "delete", caller)) ::operator delete(memory);
}
CUDA_ON_CPU_API void __wrap__ZdaPvm(void* memory, std::size_t) {
    void* caller = __builtin_return_address(0);
    if (!cuda_on_cpu::free_in_kernel(memory, "delete[]", caller)) ::operator delete(memory);
}

}
