// Memory as the host sees it. "Device memory" is memory like any other, and ends at a page that
// faults, so that an overrun is an error. Copies are in a stream's order (streams.h).
#pragma once
#include <cstddef>
#include <type_traits>

#include "check.h"
#include "errors.h"
#include "runtime.h"

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
#define cudaMemAttachGlobal 1
#define cudaMemAttachHost 2
#define cudaMemAttachSingle 4
#define cudaHostAllocDefault 0
#define cudaHostAllocPortable 1
#define cudaHostAllocMapped 2
#define cudaHostAllocWriteCombined 4
#define cudaHostRegisterDefault 0
#define cudaHostRegisterPortable 1
#define cudaHostRegisterMapped 2
#define cudaHostRegisterIoMemory 4
#define cudaHostRegisterReadOnly 8
#define cudaCpuDeviceId (-1)
#define cudaInvalidDeviceId (-2)

enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged,
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
CUDA_ON_CPU_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);

// ---------------------------------------------------------------- allocation

namespace cuda_on_cpu {
CUDA_ON_CPU_API cudaError_t allocate_for_host(void** pointer, std::size_t bytes, cudaMemoryType);
CUDA_ON_CPU_API cudaError_t free_for_host(void* pointer, bool checked);
// CUDA's own templates take a T** as well as a void**.
template <class T>
cudaError_t allocate_for_host(T** pointer, std::size_t bytes, cudaMemoryType type) {
    void* allocated = nullptr;
    cudaError_t error = allocate_for_host(&allocated, bytes, type);
    if (error == cudaSuccess) *pointer = static_cast<T*>(allocated);
    return error;
}
}  // namespace cuda_on_cpu

template <class T>
inline cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
    return cuda_on_cpu::allocate_for_host(pointer, bytes, cudaMemoryTypeDevice);
}
template <class T>
inline cudaError_t cudaMallocManaged(T** pointer, std::size_t bytes,
                                     unsigned = cudaMemAttachGlobal) {
    return cuda_on_cpu::allocate_for_host(pointer, bytes, cudaMemoryTypeManaged);
}
template <class T>
inline cudaError_t cudaMallocHost(T** pointer, std::size_t bytes, unsigned = 0) {
    return cuda_on_cpu::allocate_for_host(pointer, bytes, cudaMemoryTypeHost);
}
template <class T>
inline cudaError_t cudaHostAlloc(T** pointer, std::size_t bytes, unsigned = 0) {
    return cudaMallocHost(pointer, bytes);
}
inline cudaError_t cudaFree(void* pointer) {
    return cuda_on_cpu::free_for_host(pointer, cuda_on_cpu::IS_CHECKED);
}
inline cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }

CUDA_ON_CPU_API cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags);
CUDA_ON_CPU_API cudaError_t cudaHostUnregister(void* pointer);
template <class T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
    *device = static_cast<T*>(host);
    return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer);
CUDA_ON_CPU_API cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

// ---------------------------------------------------------------- between processes

// The pages of an array from cudaMalloc become those of a file in memory, and a handle says which:
// the same bytes in every process, on Linux.
#define CUDA_IPC_HANDLE_SIZE 64
#define cudaIpcMemLazyEnablePeerAccess 1
struct cudaIpcMemHandle_t {
    char reserved[CUDA_IPC_HANDLE_SIZE];
};
CUDA_ON_CPU_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void* pointer);
CUDA_ON_CPU_API cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t, unsigned flags);
CUDA_ON_CPU_API cudaError_t cudaIpcCloseMemHandle(void* pointer);

// ---------------------------------------------------------------- copies

// Rows that begin `pitch` bytes after each other; planes of `ysize` rows.
struct cudaPitchedPtr {
    void* ptr;
    std::size_t pitch, xsize, ysize;
};
struct cudaExtent {
    std::size_t width, height, depth;  // bytes, or elements of an array; rows; planes
};
struct cudaPos {
    std::size_t x, y, z;
};
inline cudaPitchedPtr make_cudaPitchedPtr(void* ptr, std::size_t pitch, std::size_t xsize,
                                          std::size_t ysize) {
    return {ptr, pitch, xsize, ysize};
}
inline cudaExtent make_cudaExtent(std::size_t width, std::size_t height, std::size_t depth) {
    return {width, height, depth};
}
inline cudaPos make_cudaPos(std::size_t x, std::size_t y, std::size_t z) { return {x, y, z}; }
struct cudaArray;  // see arrays.h
typedef cudaArray* cudaArray_t;
typedef const cudaArray* cudaArray_const_t;
struct cudaMemcpy3DParms {
    cudaArray_t srcArray;  // or srcPtr
    cudaPos srcPos;
    cudaPitchedPtr srcPtr;
    cudaArray_t dstArray;
    cudaPos dstPos;
    cudaPitchedPtr dstPtr;
    cudaExtent extent;
    cudaMemcpyKind kind;
};

namespace cuda_on_cpu {
// A call that copies or fills. to_bytes, from_bytes: what the compiler sees of the host's arrays
// from these pointers on, or the largest number.
struct MemoryCall {
    const char* name;
    int line;
    bool checked;  // what is wrong throws; else it is an error code
    std::size_t to_bytes, from_bytes;
};
CUDA_ON_CPU_INLINE MemoryCall memory_call(const char* name, int line, const void* to,
                                          const void* from) {
    return {name, line, IS_CHECKED, __builtin_object_size(to, 0), __builtin_object_size(from, 0)};
}
CUDA_ON_CPU_API cudaError_t copy(const MemoryCall&, void* to, const void* from, std::size_t bytes,
                                 cudaMemcpyKind, cudaStream_t);
CUDA_ON_CPU_API cudaError_t copy(const MemoryCall&, const cudaMemcpy3DParms*, cudaStream_t);
CUDA_ON_CPU_API cudaError_t fill(const MemoryCall&, void* pointer, int byte, std::size_t bytes,
                                 cudaStream_t);
CUDA_ON_CPU_API cudaError_t fill(const MemoryCall&, cudaPitchedPtr, int byte, cudaExtent,
                                 cudaStream_t);
CUDA_ON_CPU_API cudaError_t free_in_stream(const MemoryCall&, void* pointer, cudaStream_t);
}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_AT int line = __builtin_LINE()
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                                          cudaMemcpyKind kind, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy(memory_call("cudaMemcpy", line, to, from), to, from, bytes, kind, nullptr);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                               cudaMemcpyKind kind, cudaStream_t stream = nullptr,
                                               CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy(memory_call("cudaMemcpyAsync", line, to, from), to, from, bytes, kind, stream);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemset(void* pointer, int byte, std::size_t bytes,
                                          CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return fill(memory_call("cudaMemset", line, pointer, nullptr), pointer, byte, bytes, nullptr);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemsetAsync(void* pointer, int byte, std::size_t bytes,
                                               cudaStream_t stream = nullptr, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return fill(memory_call("cudaMemsetAsync", line, pointer, nullptr), pointer, byte, bytes,
                stream);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int,
                                              std::size_t bytes, CUDA_ON_CPU_AT) {
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice, line);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int,
                                                   std::size_t bytes, cudaStream_t stream = nullptr,
                                                   CUDA_ON_CPU_AT) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream, line);
}

CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                                 std::size_t from_pitch, std::size_t width,
                                                 std::size_t rows, cudaMemcpyKind kind,
                                                 cudaStream_t stream = nullptr, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    cudaMemcpy3DParms how{};
    how.dstPtr = {to, to_pitch, width, rows};
    how.srcPtr = {const_cast<void*>(from), from_pitch, width, rows};
    how.extent = {width, rows, 1};
    how.kind = kind;
    return copy(memory_call("cudaMemcpy2D", line, to, from), &how, stream);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from,
                                            std::size_t from_pitch, std::size_t width,
                                            std::size_t rows, cudaMemcpyKind kind,
                                            CUDA_ON_CPU_AT) {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, kind, nullptr, line);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemset2DAsync(void* pointer, std::size_t pitch, int byte,
                                                 std::size_t width, std::size_t rows,
                                                 cudaStream_t stream = nullptr, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return fill(memory_call("cudaMemset2D", line, pointer, nullptr), {pointer, pitch, width, rows},
                byte, {width, rows, 1}, stream);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemset2D(void* pointer, std::size_t pitch, int byte,
                                            std::size_t width, std::size_t rows, CUDA_ON_CPU_AT) {
    return cudaMemset2DAsync(pointer, pitch, byte, width, rows, nullptr, line);
}
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* how, cudaStream_t stream = nullptr,
                                     CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy(memory_call("cudaMemcpy3D", line, how->dstPtr.ptr, how->srcPtr.ptr), how, stream);
}
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* how, CUDA_ON_CPU_AT) {
    return cudaMemcpy3DAsync(how, nullptr, line);
}
inline cudaError_t cudaMemset3DAsync(cudaPitchedPtr array, int byte, cudaExtent extent,
                                     cudaStream_t stream = nullptr, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return fill(memory_call("cudaMemset3D", line, array.ptr, nullptr), array, byte, extent, stream);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr array, int byte, cudaExtent extent,
                                CUDA_ON_CPU_AT) {
    return cudaMemset3DAsync(array, byte, extent, nullptr, line);
}

template <class T>
inline cudaError_t cudaMallocPitch(T** pointer, std::size_t* pitch, std::size_t width,
                                   std::size_t rows) {
    *pitch = (width + 511) / 512 * 512;  // bytes
    return cudaMalloc(pointer, *pitch * rows);
}
inline cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width,
                           extent.height * extent.depth);
}

// ---------------------------------------------------------------- __constant__, __device__

template <class T>
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from,
                                                       std::size_t bytes, std::size_t offset = 0,
                                                       cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                                       cudaStream_t stream = nullptr,
                                                       CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    if (offset > sizeof(T) || bytes > sizeof(T) - offset) return result(cudaErrorInvalidValue);
    if (!std::is_arithmetic<std::remove_all_extents_t<T>>::value) note_pointer_in_symbol();
    char* to = (char*)&symbol + offset;
    return copy(memory_call("cudaMemcpyToSymbol", line, to, from), to, from, bytes, kind, stream);
}
template <class T>
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes,
                                                  std::size_t offset = 0,
                                                  cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                                  CUDA_ON_CPU_AT) {
    return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr, line);
}
template <class T>
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyFromSymbolAsync(
    void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t stream = nullptr, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    if (offset > sizeof(T) || bytes > sizeof(T) - offset) return result(cudaErrorInvalidValue);
    const char* from = (const char*)&symbol + offset;
    return copy(memory_call("cudaMemcpyFromSymbol", line, to, from), to, from, bytes, kind, stream);
}
template <class T>
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes,
                                                    std::size_t offset = 0,
                                                    cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                                    CUDA_ON_CPU_AT) {
    return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr, line);
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
    *address = (void*)&symbol;
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T&) {
    *bytes = sizeof(T);
    return cudaSuccess;
}

// ---------------------------------------------------------------- unified memory

enum cudaMemoryAdvise {
    cudaMemAdviseSetReadMostly = 1,
    cudaMemAdviseUnsetReadMostly,
    cudaMemAdviseSetPreferredLocation,
    cudaMemAdviseUnsetPreferredLocation,
    cudaMemAdviseSetAccessedBy,
    cudaMemAdviseUnsetAccessedBy,
};
enum cudaMemLocationType {
    cudaMemLocationTypeInvalid = 0,
    cudaMemLocationTypeDevice = 1,
    cudaMemLocationTypeHost = 2,
};
struct cudaMemLocation {
    cudaMemLocationType type;
    int id;
};
// Host and device share their memory: where it lies is nothing to decide. A location is a device's
// number in CUDA 12 and a cudaMemLocation in CUDA 13.
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t = nullptr) {
    return cudaSuccess;
}
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned,
                                        cudaStream_t = nullptr) {
    return cudaSuccess;
}
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) {
    return cudaSuccess;
}
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation) {
    return cudaSuccess;
}
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, std::size_t = 0,
                                            unsigned = cudaMemAttachSingle) {
    return cudaSuccess;
}

// ---------------------------------------------------------------- pools

struct CUmemPoolHandle_st;
typedef CUmemPoolHandle_st* cudaMemPool_t;
namespace cuda_on_cpu {
CUDA_ON_CPU_API cudaError_t allocate_in_stream(void** pointer, std::size_t bytes, cudaMemPool_t,
                                               cudaStream_t);
}
enum cudaMemPoolAttr {
    cudaMemPoolReuseFollowEventDependencies = 1,
    cudaMemPoolReuseAllowOpportunistic,
    cudaMemPoolReuseAllowInternalDependencies,
    cudaMemPoolAttrReleaseThreshold,
    cudaMemPoolAttrReservedMemCurrent,
    cudaMemPoolAttrReservedMemHigh,
    cudaMemPoolAttrUsedMemCurrent,
    cudaMemPoolAttrUsedMemHigh,
};
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid = 0, cudaMemAllocationTypePinned = 1 };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone = 0 };
enum cudaMemAccessFlags {
    cudaMemAccessFlagsProtNone = 0,
    cudaMemAccessFlagsProtRead = 1,
    cudaMemAccessFlagsProtReadWrite = 3,
};
struct cudaMemAccessDesc {
    cudaMemLocation location;
    cudaMemAccessFlags flags;
};
struct cudaMemPoolProps {
    cudaMemAllocationType allocType;
    cudaMemAllocationHandleType handleTypes;
    cudaMemLocation location;
    void* win32SecurityAttributes;
    std::size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};
CUDA_ON_CPU_API cudaError_t cudaMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*);
CUDA_ON_CPU_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t);
CUDA_ON_CPU_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int device);
CUDA_ON_CPU_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t*, int device);
CUDA_ON_CPU_API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t);
CUDA_ON_CPU_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value);
CUDA_ON_CPU_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value);
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
    return cudaSuccess;
}
CUDA_ON_CPU_INLINE cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return free_in_stream(memory_call("cudaFreeAsync", line, pointer, nullptr), pointer, stream);
}
template <class T>
inline cudaError_t cudaMallocFromPoolAsync(T** pointer, std::size_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream) {
    void* allocated = nullptr;
    cudaError_t error = cuda_on_cpu::allocate_in_stream(&allocated, bytes, pool, stream);
    if (error == cudaSuccess) *pointer = static_cast<T*>(allocated);
    return error;
}
template <class T>
inline cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaStream_t stream) {
    return cudaMallocFromPoolAsync(pointer, bytes, nullptr, stream);
}
template <class T>
inline cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaMemPool_t pool,
                                   cudaStream_t stream) {
    return cudaMallocFromPoolAsync(pointer, bytes, pool, stream);
}
