// What a host asks about a kernel, and launches without <<< >>>.
#pragma once
#include "device_properties.h"
#include "launch.h"
#include "streams.h"

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100,
};
struct cudaFuncAttributes {
    std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA,
        maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
namespace cuda_on_cpu {
CUDA_ON_CPU_API cudaError_t set_attribute(cudaFuncAttribute, int value);
CUDA_ON_CPU_API cudaError_t get_attributes(cudaFuncAttributes*);
CUDA_ON_CPU_API cudaError_t count_active_blocks(int* blocks, int threads, std::size_t shared_bytes);
// The largest block of those that keep the most threads alive. shared_bytes(threads, data): what a
// block of so many asks for
CUDA_ON_CPU_API cudaError_t suggest_block(int* grid, int* block,
                                          std::size_t (*shared_bytes)(int threads, const void* data),
                                          const void* data, int limit);
template <class SharedBytes>
cudaError_t suggest_block(int* grid, int* block, const SharedBytes& shared_bytes, int limit) {
    auto call = [](int threads, const void* data) {
        return std::size_t((*static_cast<const SharedBytes*>(data))(threads));
    };
    return suggest_block(grid, block, call, &shared_bytes, limit);
}
}  // namespace cuda_on_cpu

template <class Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute attribute, int value) {
    return cuda_on_cpu::set_attribute(attribute, value);
}
// A compiler for CPUs knows nothing of a GPU's registers: 32 a thread, and no shared memory but
// what a launch asks for.
template <class Kernel>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel*) {
    return cuda_on_cpu::get_attributes(attributes);
}
template <class Kernel>
inline cudaError_t cudaFuncSetCacheConfig(Kernel*, cudaFuncCache) {
    return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaFuncSetSharedMemConfig(Kernel*, cudaSharedMemConfig) {
    return cudaSuccess;
}

#define cudaOccupancyDefault 0
#define cudaOccupancyDisableCachingOverride 1
template <class Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int threads,
                                                                 std::size_t shared_bytes) {
    return cuda_on_cpu::count_active_blocks(blocks, threads, shared_bytes);
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, Kernel*, int threads, std::size_t shared_bytes, unsigned) {
    return cuda_on_cpu::count_active_blocks(blocks, threads, shared_bytes);
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel*,
                                                      std::size_t shared_bytes = 0,
                                                      int limit = 0) {
    return cuda_on_cpu::suggest_block(grid, block, [=](int) { return shared_bytes; }, limit);
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block,
                                                               Kernel* kernel,
                                                               std::size_t shared_bytes = 0,
                                                               int limit = 0, unsigned = 0) {
    return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, shared_bytes, limit);
}
// shared_bytes_of(threads): the dynamic shared memory of a block of so many
template <class Kernel, class SharedBytes>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel*,
                                                                  SharedBytes shared_bytes_of,
                                                                  int limit = 0) {
    return cuda_on_cpu::suggest_block(grid, block, shared_bytes_of, limit);
}
template <class Kernel>
inline cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, Kernel*,
                                                             int blocks, int) {
    if (blocks <= 0) return cuda_on_cpu::result(cudaErrorInvalidValue);
    *bytes = cuda_on_cpu::MAX_SHARED_ON_REQUEST / std::size_t(blocks);
    return cudaSuccess;
}

// ---------------------------------------------------------------- launches without <<< >>>

namespace cuda_on_cpu {
// What the translator makes of a kernel's name in a call.
template <class... Parameters>
struct NamedKernel {
    const char* name;
    void (*function)(Parameters...);
    int line;
    DeclaredList declared;

    NamedKernel declare(DeclaredList parameters) const {
        return {name, function, line, parameters};
    }
};
template <class... Parameters>
NamedKernel<Parameters...> named_kernel(const char* name, void (*function)(Parameters...),
                                        int line = __builtin_LINE()) {
    return {name, function, line, {}};
}

// A kernel behind a void*: (void*)kernel becomes kernel_address(named_kernel("kernel", kernel)).
struct ErasedKernel {
    const char* name;
    void (*function)();
    int line;
    DeclaredList declared;
    const std::size_t* sizes;  // of the arguments
    std::size_t count;
    cudaError_t (*launch)(const ErasedKernel&, Launch how, void** arguments);
};
CUDA_ON_CPU_API void* remember_kernel(const ErasedKernel&);
CUDA_ON_CPU_API cudaError_t launch_erased(const void* kernel, const Launch& how, void** arguments);
// A kernel that was a void* before: its name and its parameters are those that it had then.
struct KernelAddress {
    const void* address;
    int line;
    KernelAddress declare(DeclaredList) const { return *this; }
};
inline KernelAddress named_kernel(const char*, const void* address, int line = __builtin_LINE()) {
    return {address, line};
}

// arguments[i] points to the i-th argument.
template <class... Parameters, std::size_t... I>
cudaError_t launch_function(const NamedKernel<Parameters...>& kernel, Launch how, void** arguments,
                            std::index_sequence<I...>) {
    how.kernel = kernel.name;
    return Configuration<>(how).declare(kernel.declared)(
        kernel.function, *static_cast<std::decay_t<Parameters>*>(arguments[I])...);
}
template <class... Parameters>
cudaError_t launch_kernel(const NamedKernel<Parameters...>& kernel, const Launch& how,
                          void** arguments) {
    return launch_function(kernel, how, arguments, std::index_sequence_for<Parameters...>());
}
inline cudaError_t launch_kernel(KernelAddress kernel, const Launch& how, void** arguments) {
    return launch_erased(kernel.address, how, arguments);
}
template <class... Parameters>
struct Erased {
    static constexpr std::size_t SIZES[] = {sizeof(std::decay_t<Parameters>)..., 0};
    static cudaError_t launch(const ErasedKernel& kernel, Launch how, void** arguments) {
        auto function = reinterpret_cast<void (*)(Parameters...)>(kernel.function);
        return launch_kernel(NamedKernel<Parameters...>{kernel.name, function, kernel.line,
                                                        kernel.declared},
                             how, arguments);
    }
};
template <class... Parameters>
void* kernel_address(const NamedKernel<Parameters...>& kernel) {
    using Of = Erased<Parameters...>;
    return remember_kernel({kernel.name, reinterpret_cast<void (*)()>(kernel.function), kernel.line,
                            kernel.declared, Of::SIZES, sizeof...(Parameters), &Of::launch});
}
}  // namespace cuda_on_cpu

template <class Kernel>
inline cudaError_t cudaLaunchKernel(const Kernel& kernel, dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
    return cuda_on_cpu::launch_kernel(
        kernel, {"", kernel.line, grid, block, shared_bytes, false, stream}, arguments);
}
// All blocks are alive at once, so that they can wait for each other (grid.sync()).
template <class Kernel>
inline cudaError_t cudaLaunchCooperativeKernel(const Kernel& kernel, dim3 grid, dim3 block,
                                               void** arguments, std::size_t shared_bytes = 0,
                                               cudaStream_t stream = nullptr) {
    return cuda_on_cpu::launch_kernel(
        kernel, {"", kernel.line, grid, block, shared_bytes, true, stream}, arguments);
}

enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeAccessPolicyWindow = 1,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeSynchronizationPolicy = 3,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8,
};
union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative, programmaticStreamSerializationAllowed, priority;
    struct {
        unsigned x, y, z;
    } clusterDim;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
namespace cuda_on_cpu {
CUDA_ON_CPU_API Launch described_by(const cudaLaunchConfig_t&, int line);
}
template <class Kernel>
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const Kernel& kernel,
                                       void** arguments) {
    return cuda_on_cpu::launch_kernel(kernel, cuda_on_cpu::described_by(*config, kernel.line),
                                      arguments);
}
template <class... Parameters, class... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                                      const cuda_on_cpu::NamedKernel<Parameters...>& kernel,
                                      const Arguments&... arguments) {
    cuda_on_cpu::Launch how = cuda_on_cpu::described_by(*config, kernel.line);
    how.kernel = kernel.name;
    return cuda_on_cpu::Configuration<>(how).declare(kernel.declared)(
        kernel.function, static_cast<std::decay_t<Parameters>>(arguments)...);
}
// Of programmatic dependent launches: the grid before has ended.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
