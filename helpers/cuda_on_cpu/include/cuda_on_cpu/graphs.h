// CUDA graphs: work that is described once, by the capture of a stream or node by node, and done
// at every launch, one node after the other in an order that their dependencies allow.
#pragma once
#include "host_memory.h"
#include "streams.h"

struct CUgraphExec_st;
typedef CUgraphExec_st* cudaGraphExec_t;

enum cudaGraphNodeType {
    cudaGraphNodeTypeKernel,
    cudaGraphNodeTypeMemcpy,
    cudaGraphNodeTypeMemset,
    cudaGraphNodeTypeHost,
    cudaGraphNodeTypeGraph,
    cudaGraphNodeTypeEmpty,
    cudaGraphNodeTypeWaitEvent,
    cudaGraphNodeTypeEventRecord,
    cudaGraphNodeTypeMemAlloc = 10,
    cudaGraphNodeTypeMemFree = 11,
};
struct cudaKernelNodeParams {
    void* func;  // (void*)kernel
    dim3 gridDim, blockDim;
    unsigned sharedMemBytes;
    void** kernelParams;  // kernelParams[i] points to the i-th argument, which is copied
    void** extra;
};
struct cudaMemsetParams {
    void* dst;
    std::size_t pitch;         // bytes
    unsigned value, elementSize;  // elementSize: 1, 2 or 4 bytes
    std::size_t width, height;  // elements, rows
};
struct cudaHostNodeParams {
    cudaHostFn_t fn;
    void* userData;
};
enum cudaGraphExecUpdateResult {
    cudaGraphExecUpdateSuccess,
    cudaGraphExecUpdateError,
    cudaGraphExecUpdateErrorTopologyChanged,
    cudaGraphExecUpdateErrorNodeTypeChanged,
    cudaGraphExecUpdateErrorFunctionChanged,
    cudaGraphExecUpdateErrorParametersChanged,
    cudaGraphExecUpdateErrorNotSupported,
    cudaGraphExecUpdateErrorUnsupportedFunctionChange,
    cudaGraphExecUpdateErrorAttributesChanged,
};
struct cudaGraphExecUpdateResultInfo {
    cudaGraphExecUpdateResult result;
    cudaGraphNode_t errorNode, errorFromNode;
};
enum cudaGraphInstantiateFlags {
    cudaGraphInstantiateFlagAutoFreeOnLaunch = 1,
    cudaGraphInstantiateFlagUpload = 2,
    cudaGraphInstantiateFlagDeviceLaunch = 4,
    cudaGraphInstantiateFlagUseNodePriority = 8,
};

// ---------------------------------------------------------------- a graph and its nodes

CUDA_ON_CPU_API cudaError_t cudaGraphCreate(cudaGraph_t*, unsigned flags);
CUDA_ON_CPU_API cudaError_t cudaGraphDestroy(cudaGraph_t);
CUDA_ON_CPU_API cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t);
CUDA_ON_CPU_API cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t*, cudaGraphNode_t original,
                                                     cudaGraph_t clone);

#define CUDA_ON_CPU_NEW_NODE \
    cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, \
        std::size_t dependency_count
CUDA_ON_CPU_API cudaError_t cudaGraphAddKernelNode(CUDA_ON_CPU_NEW_NODE,
                                                   const cudaKernelNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphAddMemcpyNode(CUDA_ON_CPU_NEW_NODE, const cudaMemcpy3DParms*);
CUDA_ON_CPU_API cudaError_t cudaGraphAddMemcpyNode1D(CUDA_ON_CPU_NEW_NODE, void* to,
                                                     const void* from, std::size_t bytes,
                                                     cudaMemcpyKind);
CUDA_ON_CPU_API cudaError_t cudaGraphAddMemsetNode(CUDA_ON_CPU_NEW_NODE, const cudaMemsetParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphAddHostNode(CUDA_ON_CPU_NEW_NODE, const cudaHostNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphAddChildGraphNode(CUDA_ON_CPU_NEW_NODE, cudaGraph_t child);
CUDA_ON_CPU_API cudaError_t cudaGraphAddEmptyNode(CUDA_ON_CPU_NEW_NODE);
CUDA_ON_CPU_API cudaError_t cudaGraphAddEventRecordNode(CUDA_ON_CPU_NEW_NODE, cudaEvent_t);
CUDA_ON_CPU_API cudaError_t cudaGraphAddEventWaitNode(CUDA_ON_CPU_NEW_NODE, cudaEvent_t);
template <class T>
inline cudaError_t cudaGraphAddMemcpyNodeToSymbol(CUDA_ON_CPU_NEW_NODE, T& symbol,
                                                  const void* from, std::size_t bytes,
                                                  std::size_t offset, cudaMemcpyKind kind) {
    return cudaGraphAddMemcpyNode1D(node, graph, dependencies, dependency_count,
                                    (char*)&symbol + offset, from, bytes, kind);
}
template <class T>
inline cudaError_t cudaGraphAddMemcpyNodeFromSymbol(CUDA_ON_CPU_NEW_NODE, void* to,
                                                    const T& symbol, std::size_t bytes,
                                                    std::size_t offset, cudaMemcpyKind kind) {
    return cudaGraphAddMemcpyNode1D(node, graph, dependencies, dependency_count, to,
                                    (const char*)&symbol + offset, bytes, kind);
}

CUDA_ON_CPU_API cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from,
                                                     const cudaGraphNode_t* to,
                                                     std::size_t count);
CUDA_ON_CPU_API cudaError_t cudaGraphRemoveDependencies(cudaGraph_t, const cudaGraphNode_t* from,
                                                        const cudaGraphNode_t* to,
                                                        std::size_t count);
CUDA_ON_CPU_API cudaError_t cudaGraphDestroyNode(cudaGraphNode_t);
CUDA_ON_CPU_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*);
// These fill an array, or count if it is null.
CUDA_ON_CPU_API cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count);
CUDA_ON_CPU_API cudaError_t cudaGraphGetRootNodes(cudaGraph_t, cudaGraphNode_t*,
                                                  std::size_t* count);
CUDA_ON_CPU_API cudaError_t cudaGraphGetEdges(cudaGraph_t, cudaGraphNode_t* from,
                                              cudaGraphNode_t* to, std::size_t* count);
CUDA_ON_CPU_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*,
                                                         std::size_t* count);
// CUDA 13's forms, with what an edge carries: nothing here.
struct cudaGraphEdgeData {
    unsigned char from_port, to_port, type, reserved[5];
};
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                            const cudaGraphNode_t* to, const cudaGraphEdgeData*,
                                            std::size_t count) {
    return cudaGraphAddDependencies(graph, from, to, count);
}
inline cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                     cudaGraphEdgeData*, std::size_t* count) {
    return cudaGraphGetEdges(graph, from, to, count);
}
inline cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* before,
                                                cudaGraphEdgeData*, std::size_t* count) {
    return cudaGraphNodeGetDependencies(node, before, count);
}

// Of a node that was added with its parameters; a captured launch or copy has none to give.
CUDA_ON_CPU_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t, cudaKernelNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t,
                                                         const cudaKernelNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t, const cudaHostNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t, const cudaMemsetParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t, void* to,
                                                           const void* from, std::size_t bytes,
                                                           cudaMemcpyKind);

// ---------------------------------------------------------------- launches

CUDA_ON_CPU_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t,
                                                 unsigned long long flags = 0);
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                 unsigned long long flags = 0) {
    return cudaGraphInstantiate(executable, graph, flags);
}
// CUDA 11's form. The log stays empty.
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                        cudaGraphNode_t* error_node, char* log,
                                        std::size_t log_bytes) {
    if (error_node) *error_node = nullptr;
    if (log && log_bytes) *log = 0;
    return cudaGraphInstantiate(executable, graph);
}
CUDA_ON_CPU_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
CUDA_ON_CPU_API cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

// The work of another graph of the same shape.
CUDA_ON_CPU_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t,
                                                cudaGraphExecUpdateResultInfo*);
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                       cudaGraphNode_t* error_node,
                                       cudaGraphExecUpdateResult* result) {
    cudaGraphExecUpdateResultInfo info{};
    cudaError_t error = cudaGraphExecUpdate(executable, graph, &info);
    if (error_node) *error_node = info.errorNode;
    if (result) *result = info.result;
    return error;
}
CUDA_ON_CPU_API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t, cudaGraphNode_t,
                                                             const cudaKernelNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t, cudaGraphNode_t,
                                                           const cudaHostNodeParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t, cudaGraphNode_t,
                                                             const cudaMemsetParams*);
CUDA_ON_CPU_API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t, cudaGraphNode_t,
                                                               void* to, const void* from,
                                                               std::size_t bytes, cudaMemcpyKind);
