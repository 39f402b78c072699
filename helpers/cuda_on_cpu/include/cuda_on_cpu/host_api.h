// The host's side of CUDA: device, memory, streams, events. "Device memory" is memory like any
// other, and every call has done its work when it returns.
#pragma once
#include <string.h>
#include <time.h>

#include "launch.h"

// ---------------------------------------------------------------- errors

// A faulty launch throws, so an error code only tells of a host call that was refused.
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
};
typedef cudaError_t cudaError;
namespace cuda_on_cpu {
inline cudaError_t& last_error() {
    static thread_local cudaError_t error = cudaSuccess;
    return error;
}
inline cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) last_error() = error;
    return error;
}
}  // namespace cuda_on_cpu
inline cudaError_t cudaPeekAtLastError() { return cuda_on_cpu::last_error(); }
inline cudaError_t cudaGetLastError() {
    cudaError_t error = cuda_on_cpu::last_error();
    cuda_on_cpu::last_error() = cudaSuccess;
    return error;
}
inline const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
        case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
        case cudaErrorNotReady: return "cudaErrorNotReady";
    }
    return "unrecognized error code";
}
inline const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorNotReady: return "device not ready";
    }
    return "unrecognized error code";
}

// ---------------------------------------------------------------- memory

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
constexpr int cudaCpuDeviceId = -1;

// Memory from here ends at a page that faults, so that an overrun is an error.
template <class T>
inline cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
    *pointer = static_cast<T*>(cuda_on_cpu::allocate(bytes, cuda_on_cpu::FROM_CUDA_MALLOC));
    return cuda_on_cpu::result(*pointer || !bytes ? cudaSuccess : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaFree(void* pointer) {
    using namespace cuda_on_cpu;
    if (!pointer || release_from(FROM_CUDA_MALLOC, pointer)) return cudaSuccess;
#if defined(CUDA_ON_CPU_CHECK)
    report_bad_free(pointer);
#endif
    return result(cudaErrorInvalidValue);
}
template <class T>
inline cudaError_t cudaMallocManaged(T** pointer, std::size_t bytes,
                                     unsigned = cudaMemAttachGlobal) {
    return cudaMalloc(pointer, bytes);
}
template <class T>
inline cudaError_t cudaMallocHost(T** pointer, std::size_t bytes, unsigned = 0) {
    return cudaMalloc(pointer, bytes);
}
template <class T>
inline cudaError_t cudaHostAlloc(T** pointer, std::size_t bytes, unsigned = 0) {
    return cudaMalloc(pointer, bytes);
}
inline cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
template <class T>
inline cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaStream_t) {
    return cudaMalloc(pointer, bytes);
}
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }

namespace cuda_on_cpu {
// A copy to or from memory of unknown size may end where the compiler knows that an array does.
CUDA_ON_CPU_INLINE bool may_access([[maybe_unused]] const HostAccess& access, const void* start,
                                   std::size_t bytes) {
    std::size_t host_bytes = __builtin_object_size(start, 0);
#if defined(CUDA_ON_CPU_CHECK)
    check_access(access, start, bytes, host_bytes);
#endif
    return stays_inside(start, bytes, host_bytes);
}
CUDA_ON_CPU_INLINE cudaError_t copy(const char* call, int line, void* to, std::size_t to_pitch,
                                    const void* from, std::size_t from_pitch, std::size_t width,
                                    std::size_t rows, cudaMemcpyKind kind) {
    if (!width || !rows) return cudaSuccess;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    if (!may_access({call, line, true, to_device}, to, (rows - 1) * to_pitch + width) ||
        !may_access({call, line, false, from_device}, from, (rows - 1) * from_pitch + width))
        return result(cudaErrorInvalidValue);
    for (std::size_t row = 0; row < rows; row++)
        memmove(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, width);
    return cudaSuccess;
}
}  // namespace cuda_on_cpu

CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                                          cudaMemcpyKind kind, int line = __builtin_LINE()) {
    return cuda_on_cpu::copy("cudaMemcpy", line, to, bytes, from, bytes, bytes, 1, kind);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                               cudaMemcpyKind kind, cudaStream_t = nullptr,
                                               int line = __builtin_LINE()) {
    return cuda_on_cpu::copy("cudaMemcpyAsync", line, to, bytes, from, bytes, bytes, 1, kind);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from,
                                            std::size_t from_pitch, std::size_t width,
                                            std::size_t rows, cudaMemcpyKind kind,
                                            int line = __builtin_LINE()) {
    return cuda_on_cpu::copy("cudaMemcpy2D", line, to, to_pitch, from, from_pitch, width, rows,
                             kind);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                                 std::size_t from_pitch, std::size_t width,
                                                 std::size_t rows, cudaMemcpyKind kind,
                                                 cudaStream_t = nullptr,
                                                 int line = __builtin_LINE()) {
    return cuda_on_cpu::copy("cudaMemcpy2DAsync", line, to, to_pitch, from, from_pitch, width, rows,
                             kind);
}
// Rows that begin at multiples of 512 bytes.
template <class T>
inline cudaError_t cudaMallocPitch(T** pointer, std::size_t* pitch, std::size_t width,
                                   std::size_t rows) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(pointer, *pitch * rows);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemset(void* pointer, int byte, std::size_t bytes,
                                          int line = __builtin_LINE()) {
    if (!cuda_on_cpu::may_access({"cudaMemset", line, true, true}, pointer, bytes))
        return cuda_on_cpu::result(cudaErrorInvalidValue);
    memset(pointer, byte, bytes);
    return cudaSuccess;
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemsetAsync(void* pointer, int byte, std::size_t bytes,
                                               cudaStream_t = nullptr,
                                               int line = __builtin_LINE()) {
    return cudaMemset(pointer, byte, bytes, line);
}
inline cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
template <class T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
    *device = static_cast<T*>(host);
    return cudaSuccess;
}
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t = nullptr) {
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *free = cuda_on_cpu::memory_bytes(true);
    *total = cuda_on_cpu::memory_bytes(false);
    return cudaSuccess;
}

// __constant__ and __device__ variables.
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes,
                                      std::size_t offset = 0,
                                      cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cuda_on_cpu::result(cudaErrorInvalidValue);
    memcpy((char*)&symbol + offset, from, bytes);
    if (!std::is_arithmetic<std::remove_all_extents_t<T>>::value)
        cuda_on_cpu::note_pointer_in_symbol();
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, std::size_t bytes,
                                           std::size_t offset, cudaMemcpyKind kind,
                                           cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes,
                                        std::size_t offset = 0,
                                        cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return cuda_on_cpu::result(cudaErrorInvalidValue);
    memcpy(to, (const char*)&symbol + offset, bytes);
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
    *address = (void*)&symbol;
    return cudaSuccess;
}

// ---------------------------------------------------------------- streams and events

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
struct CUevent_st {
    timespec recorded;
};
typedef CUevent_st* cudaEvent_t;
struct CUstream_st {};

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = new CUstream_st;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
// What the host is to do when the stream has come so far.
inline cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*function)(void*), void* data) {
    function(data);
    return cudaSuccess;
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new CUevent_st{};
    return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    return cudaEventCreate(event);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
    clock_gettime(CLOCK_MONOTONIC, &event->recorded);
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    *ms = float(double(end->recorded.tv_sec - start->recorded.tv_sec) * 1e3 +
                double(end->recorded.tv_nsec - start->recorded.tv_nsec) * 1e-6);
    return cudaSuccess;
}

// ---------------------------------------------------------------- the device and its limits

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrTotalConstantMemory = 9,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106,
};
struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem, sharedMemPerBlock, totalConstMem, sharedMemPerMultiprocessor,
        sharedMemPerBlockOptin;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], major, minor,
        multiProcessorCount, integrated, concurrentKernels, memoryBusWidth, l2CacheSize,
        maxThreadsPerMultiProcessor, regsPerMultiprocessor, managedMemory, cooperativeLaunch,
        maxBlocksPerMultiProcessor, unifiedAddressing, concurrentManagedAccess, clockRate,
        memoryClockRate;
};

// Figures that a CPU has no counterpart of are those of a small chip, or 0.
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* given, int device) {
    using namespace cuda_on_cpu;
    if (device != 0) return result(cudaErrorInvalidDevice);
    cudaDeviceProp p{};
    strcpy(p.name, "CPU backend");
    p.totalGlobalMem = memory_bytes(false);
    p.totalConstMem = CONSTANT_BYTES;
    p.sharedMemPerBlock = SHARED_WITHOUT_REQUEST;
    p.sharedMemPerBlockOptin = p.sharedMemPerMultiprocessor = MAX_SHARED_ON_REQUEST;
    p.regsPerBlock = p.regsPerMultiprocessor = REGISTERS_PER_MULTIPROCESSOR;
    p.warpSize = WARP_SIZE;
    p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = MAX_THREADS;
    p.maxThreadsDim[2] = MAX_BLOCK_Z;
    p.maxGridSize[0] = MAX_GRID_X;
    p.maxGridSize[1] = p.maxGridSize[2] = MAX_GRID_YZ;
    p.major = ARCHITECTURE / 100;
    p.minor = ARCHITECTURE / 10 % 10;
    p.multiProcessorCount = MULTIPROCESSORS;
    p.maxThreadsPerMultiProcessor = THREADS_PER_MULTIPROCESSOR;
    p.maxBlocksPerMultiProcessor = BLOCKS_PER_MULTIPROCESSOR;
    p.integrated = p.concurrentKernels = p.managedMemory = p.cooperativeLaunch = 1;
    p.unifiedAddressing = p.concurrentManagedAccess = 1;
    *given = p;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsPerBlock; break;
        case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
        case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[1]; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
        case cudaDevAttrTotalConstantMemory: *value = int(p.totalConstMem); break;
        case cudaDevAttrWarpSize: *value = p.warpSize; break;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerBlock; break;
        case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
        case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
        case cudaDevAttrIntegrated:
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrManagedMemory:
        case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrCooperativeLaunch: *value = 1; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    return cuda_on_cpu::result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
inline cudaError_t cudaDriverGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100 };
enum cudaFuncCache {
    cudaFuncCachePreferNone,
    cudaFuncCachePreferShared,
    cudaFuncCachePreferL1,
    cudaFuncCachePreferEqual,
};
template <class Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || std::size_t(value) > cuda_on_cpu::MAX_SHARED_ON_REQUEST)
            return cuda_on_cpu::result(cudaErrorInvalidValue);
        cuda_on_cpu::allow_dynamic_shared(std::size_t(value));
    }
    return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaFuncSetCacheConfig(Kernel*, cudaFuncCache) {
    return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int threads,
                                                                 std::size_t shared_bytes) {
    *blocks = cuda_on_cpu::blocks_per_multiprocessor(threads, shared_bytes);
    return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel* kernel,
                                                      std::size_t shared_bytes = 0,
                                                      int limit = 0) {
    *block = limit ? limit : cuda_on_cpu::THREADS_PER_MULTIPROCESSOR;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(grid, kernel, *block, shared_bytes);
    *grid *= cuda_on_cpu::MULTIPROCESSORS;
    return cudaSuccess;
}

// ---------------------------------------------------------------- launches without <<< >>>

namespace cuda_on_cpu {
// What the translator makes of the first argument.
template <class... Parameters>
struct NamedKernel {
    const char* name;
    void (*function)(Parameters...);
    std::initializer_list<Declared> declared;
    bool may_allocate;

    NamedKernel declare(std::initializer_list<Declared> parameters, bool allocates) const {
        return {name, function, parameters, allocates};
    }
};
template <class... Parameters>
NamedKernel<Parameters...> named_kernel(const char* name, void (*function)(Parameters...)) {
    return {name, function, {}, false};
}
// arguments[i] points to the i-th argument.
template <class... Parameters, std::size_t... I>
inline void launch_function(bool cooperative, int line, const NamedKernel<Parameters...>& kernel,
                            dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                            std::index_sequence<I...>) {
    Configuration({kernel.name, line, grid, block, shared_bytes, cooperative, nullptr, nullptr})
        .declare(kernel.declared, kernel.may_allocate)(
            kernel.function, *static_cast<std::decay_t<Parameters>*>(arguments[I])...);
}
}  // namespace cuda_on_cpu
template <class... Parameters>
inline cudaError_t cudaLaunchKernel(cuda_on_cpu::NamedKernel<Parameters...> kernel, dim3 grid,
                                    dim3 block, void** arguments, std::size_t shared_bytes = 0,
                                    cudaStream_t = nullptr, int line = __builtin_LINE()) {
    cuda_on_cpu::launch_function(false, line, kernel, grid, block, arguments, shared_bytes,
                                 std::index_sequence_for<Parameters...>());
    return cudaSuccess;
}
// All blocks are alive at once, so that they can wait for each other (grid.sync()).
template <class... Parameters>
inline cudaError_t cudaLaunchCooperativeKernel(cuda_on_cpu::NamedKernel<Parameters...> kernel,
                                               dim3 grid, dim3 block, void** arguments,
                                               std::size_t shared_bytes = 0,
                                               cudaStream_t = nullptr,
                                               int line = __builtin_LINE()) {
    cuda_on_cpu::launch_function(true, line, kernel, grid, block, arguments, shared_bytes,
                                 std::index_sequence_for<Parameters...>());
    return cudaSuccess;
}
