#include "kernel_calls.h"

#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "multiprocessor.h"

namespace cuda_on_cpu {

struct RememberedKernel : ErasedKernel {
    std::vector<Declared> parameters;
};

struct Kernels {
    std::mutex mutex;
    std::unordered_map<const void*, RememberedKernel> all;
};
static Kernels& kernels() {
    static auto* kernels = new Kernels;
    return *kernels;
}

void* remember_kernel(const ErasedKernel& kernel) {
    void* address = reinterpret_cast<void*>(kernel.function);
    std::lock_guard<std::mutex> lock(kernels().mutex);
    RememberedKernel& kept = kernels().all[address];
    static_cast<ErasedKernel&>(kept) = kernel;
    const DeclaredList& declared = kernel.declared;
    kept.parameters.assign(declared.first, declared.first + declared.count);
    kept.declared.first = kept.parameters.data();
    return address;
}

const ErasedKernel* find_kernel(const void* address) {
    std::lock_guard<std::mutex> lock(kernels().mutex);
    auto found = kernels().all.find(address);
    return found == kernels().all.end() ? nullptr : &found->second;
}

cudaError_t launch_erased(const void* address, const Launch& how, void** arguments) {
    const ErasedKernel* kernel = find_kernel(address);
    return kernel ? kernel->launch(*kernel, how, arguments)
                  : result(cudaErrorInvalidDeviceFunction);
}

Launch described_by(const cudaLaunchConfig_t& config, int line) {
    Launch how{"", line, config.gridDim, config.blockDim, config.dynamicSmemBytes, false,
               config.stream};
    for (unsigned i = 0; i < config.numAttrs; i++) {
        const cudaLaunchAttribute& attribute = config.attrs[i];
        if (attribute.id == cudaLaunchAttributeCooperative)
            how.cooperative = attribute.val.cooperative;
        auto cluster = attribute.val.clusterDim;
        if (attribute.id == cudaLaunchAttributeClusterDimension &&
            cluster.x * cluster.y * cluster.z > 1)
            throw std::runtime_error("the launch at line " + std::to_string(line) +
                                     " asks for thread block clusters, which exist on a GPU only.");
    }
    return how;
}

// ---------------------------------------------------------------- attributes and occupancy

cudaError_t set_attribute(cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || std::size_t(value) > MAX_SHARED_ON_REQUEST)
        return result(cudaErrorInvalidValue);
    allow_dynamic_shared(std::size_t(value));
    return cudaSuccess;
}

cudaError_t get_attributes(cudaFuncAttributes* attributes) {
    *attributes = {};
    attributes->maxThreadsPerBlock = int(MAX_THREADS);
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = ARCHITECTURE / 10;
    attributes->maxDynamicSharedSizeBytes = int(dynamic_shared_limit());
    attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
}

cudaError_t count_active_blocks(int* blocks, int threads, std::size_t shared_bytes) {
    if (!blocks || threads <= 0) return result(cudaErrorInvalidValue);
    bool fits = threads <= int(MAX_THREADS) && shared_bytes <= dynamic_shared_limit();
    *blocks = fits ? blocks_per_multiprocessor(std::uint64_t(threads), shared_bytes) : 0;
    return cudaSuccess;
}

cudaError_t suggest_block(int* grid, int* block,
                          std::size_t (*shared_bytes)(int threads, const void* data),
                          const void* data, int limit) {
    constexpr int WARP = int(WARP_SIZE), LARGEST = int(MAX_THREADS);
    if (!grid || !block) return result(cudaErrorInvalidValue);
    if (limit <= 0 || limit > LARGEST) limit = LARGEST;
    *grid = *block = 0;
    int most = 0;  // threads alive on a multiprocessor
    for (int threads = limit; threads > 0; threads = (threads - 1) / WARP * WARP) {
        int blocks;
        if (cudaError_t error = count_active_blocks(&blocks, threads, shared_bytes(threads, data)))
            return error;
        if (blocks * threads <= most) continue;
        most = blocks * threads;
        *block = threads;
        *grid = blocks * MULTIPROCESSORS;
    }
    return cudaSuccess;
}

}  // namespace cuda_on_cpu
