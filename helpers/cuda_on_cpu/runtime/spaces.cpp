// Which memory an address is of. What is none of a block's or a thread's own is global, as in PTX.
#include "../include/cuda_on_cpu/shared_address.h"

#include "checks.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

static bool is_shared(std::uintptr_t address, const Launch& launch) {
    Region dynamic{std::uintptr_t(position.dynamic_shared), launch.shared_bytes};
    auto* code = reinterpret_cast<void*>(launch.run_threads);
    return dynamic.contains(address) || thread_local_memory(code).contains(address);
}

Space space_of(const void* pointer) {
    auto address = std::uintptr_t(pointer);
    if (is_constant(address)) return Space::constant;
    const Multiprocessor* here = Multiprocessor::running();
    if (!here) return Space::global;
    if (here->in_stacks(pointer)) return Space::local;
    return is_shared(address, here->launch()) ? Space::shared : Space::global;
}

}  // namespace cuda_on_cpu
