// CUDA's error codes. A fault in a kernel throws, but in a program with a main(), so a code only tells
// of a host call that was refused; the others are there because programs name them.
#pragma once

// name, number, what cudaGetErrorString says
#define CUDA_ON_CPU_ERRORS(ERROR) \
    ERROR(cudaSuccess, 0, "no error") \
    ERROR(cudaErrorInvalidValue, 1, "invalid argument") \
    ERROR(cudaErrorMemoryAllocation, 2, "out of memory") \
    ERROR(cudaErrorInitializationError, 3, "initialization error") \
    ERROR(cudaErrorCudartUnloading, 4, "driver shutting down") \
    ERROR(cudaErrorProfilerDisabled, 5, "profiler disabled") \
    ERROR(cudaErrorProfilerNotInitialized, 6, "profiler not initialized") \
    ERROR(cudaErrorProfilerAlreadyStarted, 7, "profiler already started") \
    ERROR(cudaErrorProfilerAlreadyStopped, 8, "profiler already stopped") \
    ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
    ERROR(cudaErrorInvalidPitchValue, 12, "invalid pitch argument") \
    ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol") \
    ERROR(cudaErrorInvalidHostPointer, 16, "invalid host pointer") \
    ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer") \
    ERROR(cudaErrorInvalidTexture, 18, "invalid texture reference") \
    ERROR(cudaErrorInvalidTextureBinding, 19, "texture is not bound") \
    ERROR(cudaErrorInvalidChannelDescriptor, 20, "invalid channel descriptor") \
    ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
    ERROR(cudaErrorInvalidFilterSetting, 26, \
          "linear filtering not supported for non-float type") \
    ERROR(cudaErrorInvalidNormSetting, 27, \
          "read as normalized float not supported for data type") \
    ERROR(cudaErrorNotYetImplemented, 31, "feature not yet implemented") \
    ERROR(cudaErrorStubLibrary, 34, "CUDA driver is a stub library") \
    ERROR(cudaErrorInsufficientDriver, 35, "CUDA driver is too old for the CUDA runtime") \
    ERROR(cudaErrorCallRequiresNewerDriver, 36, "API call needs a newer CUDA driver") \
    ERROR(cudaErrorInvalidSurface, 37, "invalid surface reference") \
    ERROR(cudaErrorDevicesUnavailable, 46, "all CUDA devices are busy or unavailable") \
    ERROR(cudaErrorIncompatibleDriverContext, 49, "incompatible driver context") \
    ERROR(cudaErrorMissingConfiguration, 52, "missing launch configuration") \
    ERROR(cudaErrorLaunchMaxDepthExceeded, 65, "launch exceeds the depth of nested launches") \
    ERROR(cudaErrorSyncDepthExceeded, 68, "synchronization exceeds the sync depth limit") \
    ERROR(cudaErrorLaunchPendingCountExceeded, 69, "too many launches are pending") \
    ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function") \
    ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected") \
    ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
    ERROR(cudaErrorStartupFailure, 127, "startup failure in cuda runtime") \
    ERROR(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid") \
    ERROR(cudaErrorDeviceUninitialized, 201, "invalid device context") \
    ERROR(cudaErrorMapBufferObjectFailed, 205, "mapping of buffer object failed") \
    ERROR(cudaErrorUnmapBufferObjectFailed, 206, "unmapping of buffer object failed") \
    ERROR(cudaErrorArrayIsMapped, 207, "array is mapped") \
    ERROR(cudaErrorAlreadyMapped, 208, "resource already mapped") \
    ERROR(cudaErrorNoKernelImageForDevice, 209, "no kernel image for this device") \
    ERROR(cudaErrorAlreadyAcquired, 210, "resource already acquired") \
    ERROR(cudaErrorNotMapped, 211, "resource not mapped") \
    ERROR(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered") \
    ERROR(cudaErrorUnsupportedLimit, 215, "limit is not supported") \
    ERROR(cudaErrorDeviceAlreadyInUse, 216, "device is used by another thread") \
    ERROR(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported") \
    ERROR(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed") \
    ERROR(cudaErrorInvalidGraphicsContext, 219, "invalid graphics context") \
    ERROR(cudaErrorNvlinkUncorrectable, 220, "uncorrectable NVLink error") \
    ERROR(cudaErrorJitCompilerNotFound, 221, "PTX JIT compiler library not found") \
    ERROR(cudaErrorUnsupportedPtxVersion, 222, "unsupported PTX version") \
    ERROR(cudaErrorUnsupportedDevSideSync, 225, "unsupported sync in device code") \
    ERROR(cudaErrorInvalidSource, 300, "device kernel image is invalid") \
    ERROR(cudaErrorFileNotFound, 301, "file not found") \
    ERROR(cudaErrorSharedObjectSymbolNotFound, 302, "shared object symbol not found") \
    ERROR(cudaErrorSharedObjectInitFailed, 303, "shared object initialization failed") \
    ERROR(cudaErrorOperatingSystem, 304, "OS call failed") \
    ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
    ERROR(cudaErrorIllegalState, 401, "not permitted in the current state") \
    ERROR(cudaErrorSymbolNotFound, 500, "named symbol not found") \
    ERROR(cudaErrorNotReady, 600, "device not ready") \
    ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated") \
    ERROR(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
    ERROR(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled") \
    ERROR(cudaErrorSetOnActiveProcess, 708, "cannot set while device is active") \
    ERROR(cudaErrorContextIsDestroyed, 709, "context is destroyed") \
    ERROR(cudaErrorAssert, 710, "device-side assert triggered") \
    ERROR(cudaErrorTooManyPeers, 711, "peer mapping resources exhausted") \
    ERROR(cudaErrorHostMemoryAlreadyRegistered, 712, "memory is already registered") \
    ERROR(cudaErrorHostMemoryNotRegistered, 713, "memory has not been registered") \
    ERROR(cudaErrorHardwareStackError, 714, "hardware stack error") \
    ERROR(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered") \
    ERROR(cudaErrorMisalignedAddress, 716, "misaligned address") \
    ERROR(cudaErrorInvalidAddressSpace, 717, "not supported on this address space") \
    ERROR(cudaErrorInvalidPc, 718, "invalid program counter") \
    ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
    ERROR(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch") \
    ERROR(cudaErrorNotPermitted, 800, "operation not permitted") \
    ERROR(cudaErrorNotSupported, 801, "operation not supported") \
    ERROR(cudaErrorSystemNotReady, 802, "system not yet initialized") \
    ERROR(cudaErrorSystemDriverMismatch, 803, "driver and library versions differ") \
    ERROR(cudaErrorCompatNotSupportedOnDevice, 804, "compatibility mode is not supported") \
    ERROR(cudaErrorStreamCaptureUnsupported, 900, \
          "operation not permitted when stream is capturing") \
    ERROR(cudaErrorStreamCaptureInvalidated, 901, \
          "operation failed due to a previous error during capture") \
    ERROR(cudaErrorStreamCaptureMerge, 902, "operation would merge separate captures") \
    ERROR(cudaErrorStreamCaptureUnmatched, 903, "capture was not begun in this stream") \
    ERROR(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work") \
    ERROR(cudaErrorStreamCaptureIsolation, 905, "dependency on uncaptured work") \
    ERROR(cudaErrorStreamCaptureImplicit, 906, \
          "operation would make the legacy stream depend on a capturing blocking stream") \
    ERROR(cudaErrorCapturedEvent, 907, \
          "operation not permitted on an event last recorded in a capturing stream") \
    ERROR(cudaErrorStreamCaptureWrongThread, 908, "capture was begun in another thread") \
    ERROR(cudaErrorTimeout, 909, "wait operation timed out") \
    ERROR(cudaErrorGraphExecUpdateFailure, 910, "the graph update was not performed") \
    ERROR(cudaErrorExternalDevice, 911, "error of an external device") \
    ERROR(cudaErrorInvalidClusterSize, 912, "invalid cluster size") \
    ERROR(cudaErrorUnknown, 999, "unknown error") \
    ERROR(cudaErrorApiFailureBase, 10000, "api failure base")

enum cudaError {
#define CUDA_ON_CPU_ENUMERATOR(name, number, text) name = number,
    CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_ENUMERATOR)
#undef CUDA_ON_CPU_ENUMERATOR
};
typedef cudaError cudaError_t;

#define CUDA_ON_CPU_API __attribute__((visibility("default")))

CUDA_ON_CPU_API cudaError_t cudaPeekAtLastError();
CUDA_ON_CPU_API cudaError_t cudaGetLastError();
CUDA_ON_CPU_API const char* cudaGetErrorName(cudaError_t);
CUDA_ON_CPU_API const char* cudaGetErrorString(cudaError_t);

namespace cuda_on_cpu {
// What a call returns: the fault that ended a kernel, if one did, or else what is given. An error is
// remembered.
CUDA_ON_CPU_API cudaError_t result(cudaError_t);
// Throws std::runtime_error for an error, which is forgotten then. Not inline: every string would read
// <stdexcept>, which takes longer than most kernels.
CUDA_ON_CPU_API void check(cudaError_t);
}
