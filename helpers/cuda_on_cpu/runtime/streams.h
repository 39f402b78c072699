// What the host's calls do with their work: at once, at every launch of a graph, or when the grid
// that calls has ended.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "../include/cuda_on_cpu/graphs.h"
#include "../include/cuda_on_cpu/streams.h"

namespace cuda_on_cpu {

extern std::atomic<cudaError_t> fault;  // that ended a kernel of a program

using Work = std::function<cudaError_t()>;

// True unless the work of a call in this stream is done at once.
bool is_put_off(cudaStream_t);

// Does the work, or puts it off. The node that a captured stream's graph gets for it: `made`.
cudaError_t do_in_stream(cudaStream_t, cudaGraphNodeType, Work, cudaGraphNode_t* made = nullptr);

// For calls that concern no stream and that a capture forbids, as it would not record them.
cudaError_t refuse_during_capture();

// The arguments of a kernel that a graph's node was added for.
struct KernelArguments {
    std::vector<std::vector<char>> copies;
    std::vector<void*> pointers;
};

struct Capture;

}  // namespace cuda_on_cpu

struct CUgraphNode_st {
    cudaGraph_t graph;
    cudaGraphNodeType type;
    cuda_on_cpu::Work work;
    std::vector<cudaGraphNode_t> dependencies;
    cudaGraphNode_t original = nullptr;  // in a clone

    // Of a kernel that was added with its parameters.
    cudaKernelNodeParams kernel{};
    std::shared_ptr<cuda_on_cpu::KernelArguments> arguments{};
};

struct CUgraph_st {
    std::vector<std::unique_ptr<CUgraphNode_st>> nodes;

    cudaGraphNode_t add(cudaGraphNodeType, cuda_on_cpu::Work,
                        std::vector<cudaGraphNode_t> dependencies);
};
