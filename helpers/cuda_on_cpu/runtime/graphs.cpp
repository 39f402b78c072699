// Graphs: nodes with work and dependencies, and executables, which are their work in order.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "host_memory.h"
#include "kernel_calls.h"
#include "streams.h"
#include "textures.h"

struct CUgraphExec_st {
    struct Step {
        cudaGraphNode_t node;  // of the graph it was made from, which may be gone
        cudaGraphNodeType type;
        cuda_on_cpu::Work work;
        std::vector<std::size_t> dependencies;  // earlier steps
    };
    std::vector<Step> steps;
};

cudaGraphNode_t CUgraph_st::add(cudaGraphNodeType type, cuda_on_cpu::Work work,
                                std::vector<cudaGraphNode_t> dependencies) {
    nodes.emplace_back(new CUgraphNode_st{this, type, std::move(work), std::move(dependencies)});
    return nodes.back().get();
}

using namespace cuda_on_cpu;

// ---------------------------------------------------------------- a graph and its nodes

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
    if (!graph || flags) return result(cudaErrorInvalidValue);
    *graph = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
    if (!clone || !graph) return result(cudaErrorInvalidValue);
    auto* made = new CUgraph_st;
    std::unordered_map<cudaGraphNode_t, cudaGraphNode_t> copies;
    for (auto& node : graph->nodes) {
        cudaGraphNode_t copy = made->add(node->type, node->work, {});
        copy->original = node.get();
        copy->kernel = node->kernel;
        copy->arguments = node->arguments;
        copies[node.get()] = copy;
    }
    for (auto& node : graph->nodes)
        for (cudaGraphNode_t before : node->dependencies)
            copies[node.get()]->dependencies.push_back(copies[before]);
    *clone = made;
    return cudaSuccess;
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original,
                                     cudaGraph_t clone) {
    for (auto& candidate : clone->nodes)
        if (candidate->original == original) {
            *node = candidate.get();
            return cudaSuccess;
        }
    return result(cudaErrorInvalidValue);
}

static cudaError_t add_node(CUDA_ON_CPU_NEW_NODE, cudaGraphNodeType type, Work work) {
    if (!node || !graph || (dependency_count && !dependencies))
        return result(cudaErrorInvalidValue);
    std::vector<cudaGraphNode_t> before(dependencies, dependencies + dependency_count);
    for (cudaGraphNode_t earlier : before)
        if (!earlier || earlier->graph != graph) return result(cudaErrorInvalidValue);
    *node = graph->add(type, std::move(work), std::move(before));
    return cudaSuccess;
}

// ---------------------------------------------------------------- the work of a node, and of all

// The work in an order that the dependencies allow, the same every time. False: a cycle.
static bool put_in_order(cudaGraph_t graph, std::vector<CUgraphExec_st::Step>* steps) {
    std::unordered_map<cudaGraphNode_t, std::size_t> done;
    while (done.size() < graph->nodes.size()) {
        std::size_t before = done.size();
        for (auto& node : graph->nodes) {
            const auto& needed = node->dependencies;
            if (done.count(node.get()) ||
                !std::all_of(needed.begin(), needed.end(),
                             [&](cudaGraphNode_t earlier) { return done.count(earlier); }))
                continue;
            std::vector<std::size_t> earlier_steps;
            for (cudaGraphNode_t earlier : needed) earlier_steps.push_back(done[earlier]);
            std::sort(earlier_steps.begin(), earlier_steps.end());
            done[node.get()] = steps->size();
            steps->push_back({node.get(), node->type, node->work, earlier_steps});
        }
        if (done.size() == before) return false;
    }
    return true;
}

static cudaError_t run(const CUgraphExec_st& executable) {
    for (const auto& step : executable.steps)
        if (cudaError_t error = step.work()) return error;
    return cudaSuccess;
}

// Null where nothing can be made of the parameters.
static Work kernel_work(const cudaKernelNodeParams& given,
                        std::shared_ptr<KernelArguments>* kept = nullptr) {
    const ErasedKernel* kernel = find_kernel(given.func);
    if (!kernel || (kernel->count && !given.kernelParams)) return nullptr;
    auto arguments = std::make_shared<KernelArguments>();
    for (std::size_t i = 0; i < kernel->count; i++) {
        auto* argument = static_cast<const char*>(given.kernelParams[i]);
        arguments->copies.emplace_back(argument, argument + kernel->sizes[i]);
    }
    for (auto& copy : arguments->copies) arguments->pointers.push_back(copy.data());
    if (kept) *kept = arguments;
    Launch how{kernel->name, kernel->line, given.gridDim, given.blockDim, given.sharedMemBytes,
               false, nullptr};
    return [=] { return kernel->launch(*kernel, how, arguments->pointers.data()); };
}

// No line is known of a node's call, nor what the compiler sees of the host's arrays.
static MemoryCall node_call(const char* name) {
    return {name, 0, false, ~std::size_t{0}, ~std::size_t{0}};
}

static Work copy_work(const cudaMemcpy3DParms& given) {
    return [=] { return copy_now(node_call("a graph's copy"), given); };
}

static Work copy_work(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return [=] { return copy_now(node_call("a graph's copy"), to, from, bytes, kind); };
}

static Work set_work(const cudaMemsetParams& given) {
    if (given.elementSize != 1 && given.elementSize != 2 && given.elementSize != 4) return nullptr;
    std::size_t width = given.width * given.elementSize;
    cudaPitchedPtr array{given.dst, given.height > 1 ? given.pitch : width, width, given.height};
    return [=] {
        return fill_now(node_call("a graph's fill"), array, &given.value, given.elementSize,
                        {width, given.height, 1});
    };
}

static Work host_work(const cudaHostNodeParams& given) {
    if (!given.fn) return nullptr;
    return [=] {
        given.fn(given.userData);
        return cudaSuccess;
    };
}

// A node remembers the parameters it was given, with copies of the arguments.
static cudaError_t give(cudaGraphNode_t node, const cudaKernelNodeParams& given,
                        const std::shared_ptr<KernelArguments>& arguments) {
    node->kernel = given;
    node->kernel.kernelParams = arguments->pointers.data();
    node->arguments = arguments;
    return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(CUDA_ON_CPU_NEW_NODE, const cudaKernelNodeParams* given) {
    std::shared_ptr<KernelArguments> arguments;
    Work work = kernel_work(*given, &arguments);
    if (!work) return result(cudaErrorInvalidDeviceFunction);
    cudaError_t error = add_node(node, graph, dependencies, dependency_count,
                                 cudaGraphNodeTypeKernel, std::move(work));
    return error ? error : give(*node, *given, arguments);
}

cudaError_t cudaGraphAddMemcpyNode(CUDA_ON_CPU_NEW_NODE, const cudaMemcpy3DParms* given) {
    cudaMemcpy3DParms how = *given;
    if (cudaError_t error = resolve_arrays(node_call("a graph's copy"), &how)) return result(error);
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeMemcpy,
                    copy_work(how));
}

cudaError_t cudaGraphAddMemcpyNode1D(CUDA_ON_CPU_NEW_NODE, void* to, const void* from,
                                     std::size_t bytes, cudaMemcpyKind kind) {
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeMemcpy,
                    copy_work(to, from, bytes, kind));
}

cudaError_t cudaGraphAddMemsetNode(CUDA_ON_CPU_NEW_NODE, const cudaMemsetParams* given) {
    Work work = set_work(*given);
    if (!work) return result(cudaErrorInvalidValue);
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeMemset,
                    std::move(work));
}

cudaError_t cudaGraphAddHostNode(CUDA_ON_CPU_NEW_NODE, const cudaHostNodeParams* given) {
    Work work = host_work(*given);
    if (!work) return result(cudaErrorInvalidValue);
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeHost,
                    std::move(work));
}

cudaError_t cudaGraphAddChildGraphNode(CUDA_ON_CPU_NEW_NODE, cudaGraph_t child) {
    auto executable = std::make_shared<CUgraphExec_st>();
    if (!put_in_order(child, &executable->steps)) return result(cudaErrorInvalidValue);
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeGraph,
                    [=] { return run(*executable); });
}

cudaError_t cudaGraphAddEmptyNode(CUDA_ON_CPU_NEW_NODE) {
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeEmpty,
                    [] { return cudaSuccess; });
}

cudaError_t cudaGraphAddEventRecordNode(CUDA_ON_CPU_NEW_NODE, cudaEvent_t event) {
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeEventRecord,
                    [=] { return cudaEventRecord(event); });
}

cudaError_t cudaGraphAddEventWaitNode(CUDA_ON_CPU_NEW_NODE, cudaEvent_t) {
    return add_node(node, graph, dependencies, dependency_count, cudaGraphNodeTypeWaitEvent,
                    [] { return cudaSuccess; });
}

// ---------------------------------------------------------------- changes and questions

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, std::size_t count) {
    for (std::size_t i = 0; i < count; i++) {
        if (from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i])
            return result(cudaErrorInvalidValue);
        to[i]->dependencies.push_back(from[i]);
    }
    return cudaSuccess;
}

static void remove(std::vector<cudaGraphNode_t>& nodes, cudaGraphNode_t node) {
    nodes.erase(std::remove(nodes.begin(), nodes.end(), node), nodes.end());
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, std::size_t count) {
    for (std::size_t i = 0; i < count; i++) remove(to[i]->dependencies, from[i]);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    auto& nodes = node->graph->nodes;
    for (auto& other : nodes) remove(other->dependencies, node);
    nodes.erase(std::find_if(nodes.begin(), nodes.end(),
                             [&](const auto& other) { return other.get() == node; }));
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    *type = node->type;
    return cudaSuccess;
}

// Fills an array, at most *count long, and says how many there are.
static cudaError_t list(const std::vector<cudaGraphNode_t>& all, cudaGraphNode_t* array,
                        std::size_t* count) {
    if (!count) return result(cudaErrorInvalidValue);
    if (array) std::copy_n(all.begin(), std::min(*count, all.size()), array);
    if (!array || *count > all.size()) *count = all.size();
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* array, std::size_t* count) {
    std::vector<cudaGraphNode_t> all;
    for (auto& node : graph->nodes) all.push_back(node.get());
    return list(all, array, count);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* array, std::size_t* count) {
    std::vector<cudaGraphNode_t> roots;
    for (auto& node : graph->nodes)
        if (node->dependencies.empty()) roots.push_back(node.get());
    return list(roots, array, count);
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              std::size_t* count) {
    std::vector<cudaGraphNode_t> starts, ends;
    for (auto& node : graph->nodes)
        for (cudaGraphNode_t before : node->dependencies)
            starts.push_back(before), ends.push_back(node.get());
    std::size_t room = count ? *count : 0;
    if (cudaError_t error = list(starts, from, count)) return error;
    return list(ends, to, &room);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* array,
                                         std::size_t* count) {
    return list(node->dependencies, array, count);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
    if (node->type != cudaGraphNodeTypeKernel) return result(cudaErrorInvalidValue);
    if (!node->kernel.func) return result(cudaErrorNotSupported);
    *params = node->kernel;
    return cudaSuccess;
}

// ---------------------------------------------------------------- executables

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
    if (!executable || !graph) return result(cudaErrorInvalidValue);
    std::unique_ptr<CUgraphExec_st> made(new CUgraphExec_st);
    if (!put_in_order(graph, &made->steps)) return result(cudaErrorInvalidValue);
    *executable = made.release();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    if (!executable) return result(cudaErrorInvalidValue);
    if (!is_put_off(stream)) return result(run(*executable));
    auto kept = std::make_shared<CUgraphExec_st>(*executable);
    return do_in_stream(stream, cudaGraphNodeTypeGraph, [=] { return run(*kept); });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
    cudaGraphExecUpdateResultInfo unused;
    if (!info) info = &unused;
    *info = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
    auto refuse = [&](cudaGraphExecUpdateResult why, cudaGraphNode_t node) {
        *info = {why, node, nullptr};
        return result(cudaErrorGraphExecUpdateFailure);
    };
    std::vector<CUgraphExec_st::Step> steps;
    if (!put_in_order(graph, &steps) || steps.size() != executable->steps.size())
        return refuse(cudaGraphExecUpdateErrorTopologyChanged, nullptr);
    for (std::size_t i = 0; i < steps.size(); i++) {
        if (steps[i].type != executable->steps[i].type)
            return refuse(cudaGraphExecUpdateErrorNodeTypeChanged, steps[i].node);
        if (steps[i].dependencies != executable->steps[i].dependencies)
            return refuse(cudaGraphExecUpdateErrorTopologyChanged, steps[i].node);
    }
    for (std::size_t i = 0; i < steps.size(); i++)
        executable->steps[i].work = std::move(steps[i].work);
    return cudaSuccess;
}

static cudaError_t set_step(cudaGraphExec_t executable, cudaGraphNode_t node,
                            cudaGraphNodeType type, Work work) {
    for (auto& step : executable->steps)
        if (step.node == node && step.type == type && work) {
            step.work = std::move(work);
            return cudaSuccess;
        }
    return result(cudaErrorInvalidValue);
}

static cudaError_t set_node(cudaGraphNode_t node, cudaGraphNodeType type, Work work) {
    if (node->type != type || !work) return result(cudaErrorInvalidValue);
    node->work = std::move(work);
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* given) {
    std::shared_ptr<KernelArguments> arguments;
    cudaError_t error = set_node(node, cudaGraphNodeTypeKernel, kernel_work(*given, &arguments));
    return error ? error : give(node, *given, arguments);
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* given) {
    return set_node(node, cudaGraphNodeTypeHost, host_work(*given));
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* given) {
    return set_node(node, cudaGraphNodeTypeMemset, set_work(*given));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from,
                                           std::size_t bytes, cudaMemcpyKind kind) {
    return set_node(node, cudaGraphNodeTypeMemcpy, copy_work(to, from, bytes, kind));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* given) {
    return set_step(executable, node, cudaGraphNodeTypeKernel, kernel_work(*given));
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                           const cudaHostNodeParams* given) {
    return set_step(executable, node, cudaGraphNodeTypeHost, host_work(*given));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemsetParams* given) {
    return set_step(executable, node, cudaGraphNodeTypeMemset, set_work(*given));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               void* to, const void* from, std::size_t bytes,
                                               cudaMemcpyKind kind) {
    return set_step(executable, node, cudaGraphNodeTypeMemcpy, copy_work(to, from, bytes, kind));
}
