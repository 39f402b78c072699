// Streams, events and the capture of a stream. A call has done its work when it returns, so streams
// have nothing to order: but in a captured stream, where a graph remembers the work (graphs.h),
// and in a kernel, whose launches and copies are done when its grid has ended.
#pragma once
#include "errors.h"
#include "runtime.h"

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
// In kernels: after all else that the grid has launched, and in no order.
#define cudaStreamTailLaunch ((cudaStream_t)0x3)
#define cudaStreamFireAndForget ((cudaStream_t)0x4)
#define CUDART_CB

#define cudaStreamDefault 0
#define cudaStreamNonBlocking 1
#define cudaEventDefault 0
#define cudaEventBlockingSync 1
#define cudaEventDisableTiming 2
#define cudaEventInterprocess 4
#define cudaEventRecordDefault 0
#define cudaEventRecordExternal 1
#define cudaEventWaitDefault 0
#define cudaEventWaitExternal 1

struct CUevent_st;
typedef CUevent_st* cudaEvent_t;

CUDA_ON_CPU_API cudaError_t cudaStreamCreate(cudaStream_t*);
CUDA_ON_CPU_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
CUDA_ON_CPU_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned flags,
                                                         int priority);
CUDA_ON_CPU_API cudaError_t cudaStreamDestroy(cudaStream_t);
CUDA_ON_CPU_API cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority);
CUDA_ON_CPU_API cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags);
CUDA_ON_CPU_API cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long* id);
CUDA_ON_CPU_API cudaError_t cudaStreamSynchronize(cudaStream_t);
CUDA_ON_CPU_API cudaError_t cudaStreamQuery(cudaStream_t);
CUDA_ON_CPU_API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
CUDA_ON_CPU_API cudaError_t cudaDeviceSynchronize();
CUDA_ON_CPU_API cudaError_t cudaDeviceReset();
// Lower numbers go first. All streams are alike here, but remember what they were given.
CUDA_ON_CPU_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);

// What the host is to do when the stream has come so far.
typedef void(CUDART_CB* cudaHostFn_t)(void* data);
typedef void(CUDART_CB* cudaStreamCallback_t)(cudaStream_t, cudaError_t status, void* data);
CUDA_ON_CPU_API cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void* data);
CUDA_ON_CPU_API cudaError_t cudaStreamAddCallback(cudaStream_t, cudaStreamCallback_t, void* data,
                                                  unsigned flags);

CUDA_ON_CPU_API cudaError_t cudaEventCreate(cudaEvent_t*);
CUDA_ON_CPU_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
    return cudaEventCreateWithFlags(event, flags);
}
CUDA_ON_CPU_API cudaError_t cudaEventDestroy(cudaEvent_t);
CUDA_ON_CPU_API cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
CUDA_ON_CPU_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t = nullptr,
                                                     unsigned flags = 0);
CUDA_ON_CPU_API cudaError_t cudaEventSynchronize(cudaEvent_t);
CUDA_ON_CPU_API cudaError_t cudaEventQuery(cudaEvent_t);
CUDA_ON_CPU_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);

// ---------------------------------------------------------------- capture

struct CUgraph_st;
typedef CUgraph_st* cudaGraph_t;
struct CUgraphNode_st;
typedef CUgraphNode_st* cudaGraphNode_t;

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed,
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated,
};
CUDA_ON_CPU_API cudaError_t cudaStreamBeginCapture(
    cudaStream_t, cudaStreamCaptureMode = cudaStreamCaptureModeGlobal);
CUDA_ON_CPU_API cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
CUDA_ON_CPU_API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
CUDA_ON_CPU_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus*,
                                                     unsigned long long* id = nullptr,
                                                     cudaGraph_t* graph = nullptr);
CUDA_ON_CPU_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*);
