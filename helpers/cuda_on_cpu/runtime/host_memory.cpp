// Memory that a program asks for, and copies between arrays.
#include "host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "host_calls.h"
#include "memory.h"
#include "multiprocessor.h"
#include "stream_order.h"
#include "streams.h"
#include "textures.h"

struct CUmemPoolHandle_st {
    std::uint64_t release_threshold = 0, used = 0, most_used = 0;  // bytes
    int reuses[3] = {1, 1, 1};
};

namespace cuda_on_cpu {

struct HostAllocation {
    std::size_t bytes;
    cudaMemoryType type;
    unsigned flags;                 // of registered memory
    bool registered;                // the program's own memory
    cudaMemPool_t pool;
    unsigned opened = 0;            // times, of another process's memory
};

struct HostMemory {
    std::mutex mutex;
    std::unordered_map<const void*, HostAllocation> all;
};
static HostMemory& host_memory() {
    static auto* memory = new HostMemory;
    return *memory;
}
using MemoryLock = std::lock_guard<std::mutex>;

static CUmemPoolHandle_st default_pool;
static cudaMemPool_t current_pool = &default_pool;

static const char* owner(cudaMemoryType type) {
    switch (type) {
        case cudaMemoryTypeHost: return "an array from cudaMallocHost";
        case cudaMemoryTypeManaged: return "an array from cudaMallocManaged";
        default: return "an array from cudaMalloc";
    }
}

static cudaError_t allocate_now(void** pointer, std::size_t bytes, cudaMemoryType type,
                                cudaMemPool_t pool) {
    if (!pointer) return result(cudaErrorInvalidValue);
    *pointer = bytes <= memory_bytes(false) ? allocate(bytes, owner(type), alignment_of_arrays())
                                             : nullptr;
    if (!*pointer) return result(bytes ? cudaErrorMemoryAllocation : cudaSuccess);
    note_allocation(*pointer);
    MemoryLock lock(host_memory().mutex);
    host_memory().all[*pointer] = {bytes, type, 0, false, pool};
    if (pool) {
        pool->used += bytes;
        pool->most_used = std::max(pool->most_used, pool->used);
    }
    return cudaSuccess;
}

bool release_now(void* pointer) {
    {
        MemoryLock lock(host_memory().mutex);
        auto found = host_memory().all.find(pointer);
        if (found == host_memory().all.end() || found->second.registered || found->second.opened)
            return release_array(pointer);
        if (found->second.pool) found->second.pool->used -= found->second.bytes;
        host_memory().all.erase(found);
    }
    release(pointer);
    return true;
}

cudaError_t allocate_for_host(void** pointer, std::size_t bytes, cudaMemoryType type) {
    if (!Multiprocessor::running())
        if (cudaError_t error = refuse_during_capture()) return error;
    return allocate_now(pointer, bytes, type, nullptr);
}

// A graph's array is there from the capture on, until it is freed outside of the graph.
cudaError_t allocate_in_stream(void** pointer, std::size_t bytes, cudaMemPool_t pool,
                               cudaStream_t stream) {
    auto nothing = [] { return cudaSuccess; };
    if (cudaError_t error = do_in_stream(stream, cudaGraphNodeTypeMemAlloc, nothing)) return error;
    return allocate_now(pointer, bytes, cudaMemoryTypeDevice, pool ? pool : current_pool);
}

// The array that an address lies in, if the program asked for it here; else `bytes` is 0.
static HostAllocation allocation_of(const void* address) {
    MemoryFound found;
    if (!find_memory(address, &found) || !found.inside) found.begin = std::uintptr_t(address);
    MemoryLock lock(host_memory().mutex);
    auto known = host_memory().all.find(reinterpret_cast<const void*>(found.begin));
    return known == host_memory().all.end() ? HostAllocation{} : known->second;
}

static bool is_for_host(const HostAllocation& array) {
    return array.bytes && array.type != cudaMemoryTypeDevice;
}

bool has_host_arrays() {
    MemoryLock lock(host_memory().mutex);
    auto& all = host_memory().all;
    return std::any_of(all.begin(), all.end(), [](auto& array) { return is_for_host(array.second); });
}

bool is_host_array(const void* address) { return is_for_host(allocation_of(address)); }

// ---------------------------------------------------------------- copies

static bool is_device_memory(const void* address) {
    return allocation_of(address).type == cudaMemoryTypeDevice;
}

static bool is_host_memory(const void* address) {  // not even a tensor's
    MemoryFound found;
    return !find_memory(address, &found);
}

// Whether the copy goes the other way than its kind says.
static bool is_swapped(const void* to, const void* from, cudaMemcpyKind kind) {
    if (kind == cudaMemcpyHostToDevice) return is_device_memory(from) && is_host_memory(to);
    return kind == cudaMemcpyDeviceToHost && is_device_memory(to) && is_host_memory(from);
}

static bool may_access(const MemoryCall& call, bool writes, bool on_device, const void* start,
                       std::size_t bytes) {
    std::size_t host_bytes = writes ? call.to_bytes : call.from_bytes;
    if (call.checked)
        check_access({call.name, call.line, writes, on_device}, start, bytes, host_bytes);
    return start && stays_inside(start, bytes, host_bytes);
}

// Bytes from the first of the box to its last.
static std::size_t span(const cudaPitchedPtr& array, const cudaExtent& extent) {
    std::size_t rows = (extent.depth - 1) * array.ysize + extent.height - 1;
    return rows * array.pitch + extent.width;
}

static char* at(const cudaPitchedPtr& array, const cudaPos& first, std::size_t row,
                std::size_t plane) {
    return static_cast<char*>(array.ptr) + first.x +
           ((first.z + plane) * array.ysize + first.y + row) * array.pitch;
}

// Whether every row is shorter than the step to the next one, and every plane.
static bool fits(const cudaPitchedPtr& array, const cudaExtent& extent) {
    return (extent.width <= array.pitch || extent.height * extent.depth == 1) &&
           (extent.height <= array.ysize || extent.depth == 1);
}

// Whether the box lies in the rows and planes of the memory.
static bool holds(const cudaPitchedPtr& array, const cudaPos& first, const cudaExtent& extent) {
    bool has_rows = extent.height * extent.depth > 1, has_planes = extent.depth > 1;
    return !(has_rows && first.x + extent.width > array.pitch) &&
           !(has_planes && first.y + extent.height > array.ysize);
}

cudaError_t copy_now(const MemoryCall& call, const cudaMemcpy3DParms& p) {
    const cudaExtent& extent = p.extent;
    if (!extent.width || !extent.height || !extent.depth) return cudaSuccess;
    if (unsigned(p.kind) > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (!fits(p.dstPtr, extent) || !fits(p.srcPtr, extent)) return cudaErrorInvalidPitchValue;
    if (!holds(p.dstPtr, p.dstPos, extent) || !holds(p.srcPtr, p.srcPos, extent))
        return cudaErrorInvalidValue;
    char *to = at(p.dstPtr, p.dstPos, 0, 0), *from = at(p.srcPtr, p.srcPos, 0, 0);
    bool from_device = p.kind == cudaMemcpyDeviceToHost || p.kind == cudaMemcpyDeviceToDevice;
    bool to_device = p.kind == cudaMemcpyHostToDevice || p.kind == cudaMemcpyDeviceToDevice;
    if (!may_access(call, true, to_device, to, span(p.dstPtr, extent)) ||
        !may_access(call, false, from_device, from, span(p.srcPtr, extent)) ||
        is_swapped(to, from, p.kind))
        return cudaErrorInvalidValue;
    for (std::size_t plane = 0; plane < extent.depth; plane++)
        for (std::size_t row = 0; row < extent.height; row++)
            std::memmove(at(p.dstPtr, p.dstPos, row, plane), at(p.srcPtr, p.srcPos, row, plane),
                         extent.width);
    return cudaSuccess;
}

static cudaMemcpy3DParms row_of(void* to, const void* from, std::size_t bytes,
                                cudaMemcpyKind kind) {
    cudaMemcpy3DParms row{};
    row.dstPtr = {to, bytes, bytes, 1};
    row.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
    row.extent = {bytes, 1, 1};
    row.kind = kind;
    return row;
}

cudaError_t copy_now(const MemoryCall& call, void* to, const void* from, std::size_t bytes,
                     cudaMemcpyKind kind) {
    return copy_now(call, row_of(to, from, bytes, kind));
}

cudaError_t fill_now(const MemoryCall& call, const cudaPitchedPtr& array, const void* pattern,
                     std::size_t pattern_bytes, const cudaExtent& extent) {
    if (!extent.width || !extent.height || !extent.depth) return cudaSuccess;
    if (!fits(array, extent)) return cudaErrorInvalidPitchValue;
    if (!may_access(call, true, true, array.ptr, span(array, extent))) return cudaErrorInvalidValue;
    for (std::size_t plane = 0; plane < extent.depth; plane++)
        for (std::size_t row = 0; row < extent.height; row++) {
            char* begin = at(array, {}, row, plane);
            if (pattern_bytes == 1)
                std::memset(begin, *static_cast<const unsigned char*>(pattern), extent.width);
            else
                for (std::size_t i = 0; i < extent.width; i += pattern_bytes)
                    std::memcpy(begin + i, pattern, pattern_bytes);
        }
    return cudaSuccess;
}

// Of the box there, row by row.
static void add_rows(std::vector<Touched>& touched, const cudaPitchedPtr& array,
                     const cudaPos& first, const cudaExtent& extent, bool written) {
    for (std::size_t plane = 0; plane < extent.depth; plane++)
        for (std::size_t row = 0; row < extent.height; row++) {
            auto begin = std::uintptr_t(at(array, first, row, plane));
            touched.push_back({begin, begin + extent.width, written});
        }
}

static std::string text(const MemoryCall& call) {
    return std::string(call.name) + " in line " + std::to_string(call.line);
}

// To memory of the host's own it comes before the call returns, and from such memory it is taken by
// then. Only what is named Async does not wait for arrays of the host's from CUDA.
static void note_copy(const MemoryCall& call, const cudaMemcpy3DParms& how, cudaStream_t stream) {
    if (!call.checked || is_put_off(stream)) return;
    bool to_host = is_host_array(how.dstPtr.ptr), from_host = is_host_array(how.srcPtr.ptr);
    bool takes_own = how.kind == cudaMemcpyHostToDevice && !from_host;
    bool gives_own = how.kind == cudaMemcpyDeviceToHost && !to_host;
    std::vector<Touched> touched;
    if (!gives_own) add_rows(touched, how.dstPtr, how.dstPos, how.extent, true);
    if (!takes_own) add_rows(touched, how.srcPtr, how.srcPos, how.extent, false);
    note_work(stream, text(call), std::move(touched));
    if (gives_own || (!stream && !std::strstr(call.name, "Async"))) note_wait(stream);
}

cudaError_t copy(const MemoryCall& call, const cudaMemcpy3DParms* given, cudaStream_t stream) {
    cudaMemcpy3DParms how = *given;
    if (cudaError_t error = resolve_arrays(call, &how)) return result(error);
    cudaError_t error = do_in_stream(stream, cudaGraphNodeTypeMemcpy,
                                     [=] { return copy_now(call, how); });
    if (error == cudaSuccess) note_copy(call, how, stream);
    return error;
}

cudaError_t copy(const MemoryCall& call, void* to, const void* from, std::size_t bytes,
                 cudaMemcpyKind kind, cudaStream_t stream) {
    cudaMemcpy3DParms row = row_of(to, from, bytes, kind);
    return copy(call, &row, stream);
}

cudaError_t fill(const MemoryCall& call, cudaPitchedPtr array, int byte, cudaExtent extent,
                 cudaStream_t stream) {
    auto pattern = static_cast<unsigned char>(byte);
    cudaError_t error =
        do_in_stream(stream, cudaGraphNodeTypeMemset,
                     [=] { return fill_now(call, array, &pattern, 1, extent); });
    if (error != cudaSuccess || !call.checked || is_put_off(stream)) return error;
    std::vector<Touched> touched;
    add_rows(touched, array, {}, extent, true);
    note_work(stream, text(call), std::move(touched));
    return error;
}

cudaError_t fill(const MemoryCall& call, void* pointer, int byte, std::size_t bytes,
                 cudaStream_t stream) {
    return fill(call, {pointer, bytes, bytes, 1}, byte, {bytes, 1, 1}, stream);
}

// ---------------------------------------------------------------- allocations

static cudaError_t release_or_report(void* pointer, bool checked) {
    if (!pointer || release_now(pointer)) return cudaSuccess;
    if (checked) report_bad_free(pointer);
    return result(cudaErrorInvalidValue);
}

cudaError_t free_for_host(void* pointer, bool checked) {
    if (!Multiprocessor::running())
        if (cudaError_t error = refuse_during_capture()) return error;
    if (!Multiprocessor::running()) forget_work();  // it waits for the device
    return release_or_report(pointer, checked);
}

cudaError_t free_in_stream(const MemoryCall& call, void* pointer, cudaStream_t stream) {
    if (is_put_off(stream))  // in a graph it stays, for the next launch
        return do_in_stream(stream, cudaGraphNodeTypeMemFree, [] { return cudaSuccess; });
    MemoryFound array{};
    bool noted = call.checked && pointer && find_memory(pointer, &array) && array.inside;
    return do_in_stream(stream, cudaGraphNodeTypeMemFree, [=] {
        try {
            if (noted) note_free(stream, text(call), array.begin, array.begin + array.bytes);
        } catch (...) {
            release_now(pointer);
            throw;
        }
        return release_or_report(pointer, call.checked);
    });
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
    if (!pointer || !bytes) return result(cudaErrorInvalidValue);
    MemoryLock lock(host_memory().mutex);
    HostAllocation registered{bytes, cudaMemoryTypeHost, flags, true, nullptr};
    bool is_new = host_memory().all.emplace(pointer, registered).second;
    if (is_new) register_memory(pointer, bytes);
    return result(is_new ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* pointer) {
    MemoryLock lock(host_memory().mutex);
    auto found = host_memory().all.find(pointer);
    if (found == host_memory().all.end() || !found->second.registered)
        return result(cudaErrorHostMemoryNotRegistered);
    host_memory().all.erase(found);
    release(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
    HostAllocation known = allocation_of(pointer);
    if (known.type != cudaMemoryTypeHost) return result(cudaErrorInvalidValue);
    *flags = known.flags | cudaHostAllocMapped;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    if (!attributes) return result(cudaErrorInvalidValue);
    HostAllocation known = allocation_of(pointer);
    auto* address = const_cast<void*>(pointer);
    bool on_host = known.type == cudaMemoryTypeHost || known.type == cudaMemoryTypeManaged;
    *attributes = {known.type, known.bytes ? 0 : cudaInvalidDeviceId,
                   known.bytes ? address : nullptr, on_host ? address : nullptr};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    if (!free || !total) return result(cudaErrorInvalidValue);
    *free = memory_bytes(true);
    *total = memory_bytes(false);
    return cudaSuccess;
}

// ---------------------------------------------------------------- between processes

static SharedArray shared_array(const cudaIpcMemHandle_t& handle) {
    SharedArray shared;
    static_assert(sizeof shared <= sizeof handle);
    std::memcpy(&shared, &handle, sizeof shared);
    return shared;
}

// The arrays of other processes that are open here, by their files' numbers.
static std::unordered_map<std::uint64_t, void*>& opened_arrays() {
    static auto* opened = new std::unordered_map<std::uint64_t, void*>;
    return *opened;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
    HostAllocation known = allocation_of(pointer);
    if (!handle || known.type != cudaMemoryTypeDevice || known.pool || known.opened)
        return result(cudaErrorInvalidValue);
    MemoryFound found;
    find_memory(pointer, &found);
    SharedArray shared;
    if (!share(reinterpret_cast<void*>(found.begin), &shared)) return result(cudaErrorNotSupported);
    *handle = {};
    std::memcpy(handle, &shared, sizeof shared);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
    if (!pointer || flags != cudaIpcMemLazyEnablePeerAccess) return result(cudaErrorInvalidValue);
    SharedArray shared = shared_array(handle);
    if (shared.process == getpid()) return result(cudaErrorDeviceUninitialized);
    MemoryLock lock(host_memory().mutex);
    auto known = opened_arrays().find(shared.number);
    if (known == opened_arrays().end()) {
        void* mapped = map_shared(shared);
        if (!mapped) return result(cudaErrorMapBufferObjectFailed);
        known = opened_arrays().emplace(shared.number, mapped).first;
        host_memory().all[mapped] = {shared.bytes, cudaMemoryTypeDevice, 0, false, nullptr, 0};
    }
    *pointer = known->second;
    host_memory().all[*pointer].opened++;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
    MemoryLock lock(host_memory().mutex);
    auto found = host_memory().all.find(pointer);
    if (found == host_memory().all.end() || !found->second.opened)
        return result(cudaErrorInvalidValue);
    if (--found->second.opened) return cudaSuccess;
    host_memory().all.erase(found);
    auto& opened = opened_arrays();
    for (auto known = opened.begin(); known != opened.end(); ++known)
        if (known->second == pointer) {
            opened.erase(known);
            break;
        }
    release(pointer);
    return cudaSuccess;
}

// ---------------------------------------------------------------- pools

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    if (!pool || !properties) return result(cudaErrorInvalidValue);
    *pool = new CUmemPoolHandle_st;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    if (!pool || pool == &default_pool) return result(cudaErrorInvalidValue);
    if (current_pool == pool) current_pool = &default_pool;
    MemoryLock lock(host_memory().mutex);
    for (auto& allocation : host_memory().all)
        if (allocation.second.pool == pool) allocation.second.pool = nullptr;
    delete pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    if (device != 0) return result(cudaErrorInvalidDevice);
    *pool = &default_pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    if (device != 0) return result(cudaErrorInvalidDevice);
    *pool = current_pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    if (device != 0) return result(cudaErrorInvalidDevice);
    current_pool = pool ? pool : &default_pool;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    if (!pool || !value) return result(cudaErrorInvalidValue);
    switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
        case cudaMemPoolReuseAllowOpportunistic:
        case cudaMemPoolReuseAllowInternalDependencies:
            pool->reuses[attribute - 1] = *static_cast<int*>(value);
            return cudaSuccess;
        case cudaMemPoolAttrReleaseThreshold:
            pool->release_threshold = *static_cast<std::uint64_t*>(value);
            return cudaSuccess;
        case cudaMemPoolAttrReservedMemHigh:
        case cudaMemPoolAttrUsedMemHigh:  // may be reset only
            if (*static_cast<std::uint64_t*>(value)) break;
            pool->most_used = pool->used;
            return cudaSuccess;
        default: break;
    }
    return result(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    if (!pool || !value) return result(cudaErrorInvalidValue);
    auto& bytes = *static_cast<std::uint64_t*>(value);
    switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
        case cudaMemPoolReuseAllowOpportunistic:
        case cudaMemPoolReuseAllowInternalDependencies:
            *static_cast<int*>(value) = pool->reuses[attribute - 1];
            break;
        case cudaMemPoolAttrReleaseThreshold: bytes = pool->release_threshold; break;
        case cudaMemPoolAttrReservedMemCurrent:
        case cudaMemPoolAttrUsedMemCurrent: bytes = pool->used; break;
        case cudaMemPoolAttrReservedMemHigh:
        case cudaMemPoolAttrUsedMemHigh: bytes = pool->most_used; break;
    }
    return cudaSuccess;
}
