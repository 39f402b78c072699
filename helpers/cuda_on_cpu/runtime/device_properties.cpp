// The device as the host sees it. What a CPU has no counterpart of is as in a small chip, or 0.
#include "../include/cuda_on_cpu/device_properties.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fiber.h"
#include "streams.h"
#include "textures.h"

using namespace cuda_on_cpu;

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* given, int device) {
    if (device != 0) return result(cudaErrorInvalidDevice);
    cudaDeviceProp p{};
    std::strcpy(p.name, "CPU backend");
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
    p.memPitch = 0x7fffffff;
    p.textureAlignment = p.surfaceAlignment = texture_limits::ALIGNMENT;
    p.texturePitchAlignment = texture_limits::PITCH_ALIGNMENT;
    p.maxTexture1D = texture_limits::ONE;
    std::copy_n(texture_limits::TWO, 2, p.maxTexture2D);
    std::copy_n(texture_limits::THREE, 3, p.maxTexture3D);
    p.maxTexture1DLayered[0] = p.maxTexture2DLayered[0] = texture_limits::LAYERED;
    p.maxTexture2DLayered[1] = texture_limits::LAYERED;
    p.maxTexture1DLayered[1] = p.maxTexture2DLayered[2] = texture_limits::LAYERS;
    p.clockRate = 1000000;  // kHz: clock64() counts nanoseconds
    p.memoryClockRate = 5001000;
    p.memoryBusWidth = 256;
    p.l2CacheSize = 4 << 20;
    p.asyncEngineCount = 3;
    p.singleToDoublePrecisionPerfRatio = 32;
    p.integrated = p.canMapHostMemory = p.concurrentKernels = p.deviceOverlap = 1;
    p.unifiedAddressing = p.managedMemory = p.concurrentManagedAccess = 1;
    p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
    p.pageableMemoryAccess = p.computePreemptionSupported = p.cooperativeLaunch = 1;
    p.canUseHostPointerForRegisteredMem = p.hostNativeAtomicSupported = 1;
    p.pageableMemoryAccessUsesHostPageTables = p.directManagedMemAccessFromHost = 1;
    p.hostRegisterSupported = p.memoryPoolsSupported = p.unifiedFunctionPointers = 1;
    *given = p;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
    auto is = [=](auto property) { *value = int(property); };
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: is(p.maxThreadsPerBlock); break;
        case cudaDevAttrMaxBlockDimX: is(p.maxThreadsDim[0]); break;
        case cudaDevAttrMaxBlockDimY: is(p.maxThreadsDim[1]); break;
        case cudaDevAttrMaxBlockDimZ: is(p.maxThreadsDim[2]); break;
        case cudaDevAttrMaxGridDimX: is(p.maxGridSize[0]); break;
        case cudaDevAttrMaxGridDimY: is(p.maxGridSize[1]); break;
        case cudaDevAttrMaxGridDimZ: is(p.maxGridSize[2]); break;
        case cudaDevAttrMaxSharedMemoryPerBlock: is(p.sharedMemPerBlock); break;
        case cudaDevAttrTotalConstantMemory: is(p.totalConstMem); break;
        case cudaDevAttrWarpSize: is(p.warpSize); break;
        case cudaDevAttrMaxPitch: is(p.memPitch); break;
        case cudaDevAttrMaxRegistersPerBlock: is(p.regsPerBlock); break;
        case cudaDevAttrClockRate: is(p.clockRate); break;
        case cudaDevAttrTextureAlignment: is(p.textureAlignment); break;
        case cudaDevAttrGpuOverlap: is(p.deviceOverlap); break;
        case cudaDevAttrMultiProcessorCount: is(p.multiProcessorCount); break;
        case cudaDevAttrIntegrated: is(p.integrated); break;
        case cudaDevAttrCanMapHostMemory: is(p.canMapHostMemory); break;
        case cudaDevAttrMaxTexture1DWidth: is(p.maxTexture1D); break;
        case cudaDevAttrMaxTexture2DWidth: is(p.maxTexture2D[0]); break;
        case cudaDevAttrMaxTexture2DHeight: is(p.maxTexture2D[1]); break;
        case cudaDevAttrMaxTexture3DWidth: is(p.maxTexture3D[0]); break;
        case cudaDevAttrMaxTexture3DHeight: is(p.maxTexture3D[1]); break;
        case cudaDevAttrMaxTexture3DDepth: is(p.maxTexture3D[2]); break;
        case cudaDevAttrSurfaceAlignment: is(p.surfaceAlignment); break;
        case cudaDevAttrConcurrentKernels: is(p.concurrentKernels); break;
        case cudaDevAttrMemoryClockRate: is(p.memoryClockRate); break;
        case cudaDevAttrGlobalMemoryBusWidth: is(p.memoryBusWidth); break;
        case cudaDevAttrL2CacheSize: is(p.l2CacheSize); break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: is(p.maxThreadsPerMultiProcessor); break;
        case cudaDevAttrAsyncEngineCount: is(p.asyncEngineCount); break;
        case cudaDevAttrUnifiedAddressing: is(p.unifiedAddressing); break;
        case cudaDevAttrTexturePitchAlignment: is(p.texturePitchAlignment); break;
        case cudaDevAttrComputeCapabilityMajor: is(p.major); break;
        case cudaDevAttrComputeCapabilityMinor: is(p.minor); break;
        case cudaDevAttrStreamPrioritiesSupported: is(p.streamPrioritiesSupported); break;
        case cudaDevAttrGlobalL1CacheSupported: is(p.globalL1CacheSupported); break;
        case cudaDevAttrLocalL1CacheSupported: is(p.localL1CacheSupported); break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: is(p.sharedMemPerMultiprocessor); break;
        case cudaDevAttrMaxRegistersPerMultiprocessor: is(p.regsPerMultiprocessor); break;
        case cudaDevAttrManagedMemory: is(p.managedMemory); break;
        case cudaDevAttrHostNativeAtomicSupported: is(p.hostNativeAtomicSupported); break;
        case cudaDevAttrSingleToDoublePrecisionPerfRatio:
            is(p.singleToDoublePrecisionPerfRatio);
            break;
        case cudaDevAttrPageableMemoryAccess: is(p.pageableMemoryAccess); break;
        case cudaDevAttrConcurrentManagedAccess: is(p.concurrentManagedAccess); break;
        case cudaDevAttrComputePreemptionSupported: is(p.computePreemptionSupported); break;
        case cudaDevAttrCanUseHostPointerForRegisteredMem:
            is(p.canUseHostPointerForRegisteredMem);
            break;
        case cudaDevAttrCooperativeLaunch: is(p.cooperativeLaunch); break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: is(p.sharedMemPerBlockOptin); break;
        case cudaDevAttrHostRegisterSupported: is(p.hostRegisterSupported); break;
        case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
            is(p.pageableMemoryAccessUsesHostPageTables);
            break;
        case cudaDevAttrDirectManagedMemAccessFromHost:
            is(p.directManagedMemAccessFromHost);
            break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: is(p.maxBlocksPerMultiProcessor); break;
        case cudaDevAttrMemoryPoolsSupported: is(p.memoryPoolsSupported); break;
        default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

static unsigned device_flags = cudaDeviceScheduleAuto;

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    device_flags = flags;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    *flags = device_flags | cudaDeviceMapHost;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    if (device != 0) return result(cudaErrorInvalidDevice);
    if (!text || length <= 0) return result(cudaErrorInvalidValue);
    std::snprintf(text, std::size_t(length), "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    if (device != 0 || peer != 0) return result(cudaErrorInvalidDevice);
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return result(cudaErrorInvalidDevice); }

cudaError_t cudaDeviceDisablePeerAccess(int) { return result(cudaErrorInvalidDevice); }

static std::size_t limits[] = {STACK_BYTES, 1 << 20, 8 << 20, 2, 2048, 64, 0};

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
    if (unsigned(limit) >= std::size(limits)) return result(cudaErrorUnsupportedLimit);
    limits[limit] = value;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
    if (!value) return result(cudaErrorInvalidValue);
    if (unsigned(limit) >= std::size(limits)) return result(cudaErrorUnsupportedLimit);
    *value = limits[limit];
    return cudaSuccess;
}
