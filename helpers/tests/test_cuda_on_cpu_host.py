"""The host's side of CUDA on the CPU backend: memory, streams, graphs, launches of all kinds."""

import re

import pytest

from helpers.compiler.tools import cuda_home
from helpers.cuda_on_cpu import INCLUDE
from helpers.tests.cuda_driver import compile_string, run_program

# Each EXPORT function is a test of its own; EXPECT names the line of the string that does not hold.
SRC = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvtx3.hpp>
#include <cooperative_groups.h>
#include <ctime>
#include <stdexcept>
#include <vector>
static void expect(bool holds, const char* what, int line) {
    if (!holds) throw std::runtime_error("line " + std::to_string(line) + ": " + what);
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define OK(call) EXPECT((call) == cudaSuccess)
#define FAILS(call, error) EXPECT((call) == error), EXPECT(cudaGetLastError() == error)

__global__ void add_kernel(int* x, int value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += value;
}
static int first(const int* device) {
    int value;
    OK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}
struct Ints {  // n zeros in device memory
    int* data;
    explicit Ints(int n = 1) {
        OK(cudaMalloc(&data, n * sizeof(int)));
        OK(cudaMemset(data, 0, n * sizeof(int)));
    }
    ~Ints() { cudaFree(data); }
    operator int*() { return data; }  // what a kernel gets for it
    int operator*() const { return first(data); }
    Ints(const Ints&) = delete;
};

// ---- memory
EXPORT memory_calls(const Arrays&) {
    int *device, *managed, *pinned, host[16] = {}, *null = nullptr;
    OK(cudaMalloc(&device, sizeof host));
    OK(cudaMallocManaged((void**)&managed, 64));
    OK(cudaHostAlloc((void**)&pinned, 64, cudaHostAllocMapped));
    for (int i = 0; i < 16; i++) pinned[i] = i;
    FAILS(cudaMemcpy(device, pinned, 65, cudaMemcpyDefault), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(device + 8, pinned, 33, cudaMemcpyDefault), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(null, pinned, 4, cudaMemcpyDefault), cudaErrorInvalidValue);
    OK(cudaMemcpy(null, pinned, 0, cudaMemcpyDefault));
    FAILS(cudaMemcpy(host, device, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(device, host, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(device, host, 4, cudaMemcpyKind(7)), cudaErrorInvalidMemcpyDirection);
    FAILS(cudaMemset(device, 0, 65), cudaErrorInvalidValue);
    FAILS(cudaFree(device + 1), cudaErrorInvalidValue);
    FAILS(cudaFree(host), cudaErrorInvalidValue);
    FAILS(cudaMalloc(&null, std::size_t(1) << 60), cudaErrorMemoryAllocation);
    EXPECT(!null);
    OK(cudaMemPrefetchAsync(managed, 64, 0, 0));
    OK(cudaMemPrefetchAsync(managed, 64, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, 0));
    OK(cudaMemAdvise(managed, 64, cudaMemAdviseSetReadMostly, 0));
    cudaPointerAttributes about;
    OK(cudaPointerGetAttributes(&about, device + 3));
    EXPECT(about.type == cudaMemoryTypeDevice && about.devicePointer == device + 3);
    OK(cudaPointerGetAttributes(&about, host));
    EXPECT(about.type == cudaMemoryTypeUnregistered);
    int* mapped;
    OK(cudaHostRegister(host, sizeof host, cudaHostRegisterMapped));
    FAILS(cudaHostRegister(host, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer((void**)&mapped, host, 0));
    add_kernel<<<1, 32>>>(mapped, 5, 16);
    EXPECT(host[15] == 5);
    OK(cudaHostUnregister(host));
    FAILS(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
    OK(cudaFree(device)), OK(cudaFree(managed)), OK(cudaFreeHost(pinned)), OK(cudaFree(nullptr));
    FAILS(cudaFree(device), cudaErrorInvalidValue);
}
EXPORT rows_and_planes(const Arrays&) {
    int box[3][4][5], back[3][4][5] = {}, n = 0;
    for (auto& plane : box) for (auto& row : plane) for (int& x : row) x = n++;
    cudaExtent extent = make_cudaExtent(5 * sizeof(int), 4, 3);
    cudaPitchedPtr device;
    OK(cudaMalloc3D(&device, extent));
    EXPECT(device.pitch >= 20 && device.pitch % 256 == 0);
    cudaMemcpy3DParms copy = {0};
    copy.srcArray = copy.dstArray = nullptr;
    copy.srcPtr = make_cudaPitchedPtr(box, 20, 5, 4);
    copy.dstPtr = device, copy.extent = extent, copy.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&copy));
    copy.srcPtr = device, copy.srcPos = make_cudaPos(4, 1, 1);
    copy.dstPtr = make_cudaPitchedPtr(back, 20, 5, 4), copy.dstPos = make_cudaPos(0, 0, 0);
    copy.extent = make_cudaExtent(8, 2, 2), copy.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&copy));
    EXPECT(back[1][1][1] == box[2][2][2] && back[0][0][0] == box[1][1][1] && !back[0][0][2]);
    OK(cudaMemset3D(device, 0xff, make_cudaExtent(20, 4, 1)));
    OK(cudaMemcpy2D(back, 20, device.ptr, device.pitch, 20, 5, cudaMemcpyDeviceToHost));
    EXPECT(back[0][3][4] == -1 && back[1][0][0] == box[1][0][0]);
    FAILS(cudaMemcpy2D(back, 8, device.ptr, device.pitch, 20, 4, cudaMemcpyDeviceToHost),
          cudaErrorInvalidPitchValue);
    FAILS(cudaMemset2D(device.ptr, device.pitch, 0, 20, 100), cudaErrorInvalidValue);
    OK(cudaFree(device.ptr));
}
__constant__ float table[4];
__device__ int counter = 3;
__device__ int* where;
__managed__ int shared_with_host = 1;
__global__ void symbols_kernel(float* out) {
    if (threadIdx.x < 4) out[threadIdx.x] = table[threadIdx.x] * counter;
    if (threadIdx.x == 0) *where = 7, shared_with_host++;
}
EXPORT symbols(const Arrays&) {
    float values[4] = {1, 2, 3, 4}, out[4];
    int three, *address;
    std::size_t bytes;
    Ints x;
    float* device;
    OK(cudaMalloc(&device, sizeof out));
    OK(cudaMemcpyToSymbol(table, values, sizeof values));
    OK(cudaMemcpyToSymbolAsync(table, values, 8, 8, cudaMemcpyHostToDevice));
    OK(cudaMemcpyToSymbol(where, &x.data, sizeof x.data));
    FAILS(cudaMemcpyToSymbol(table, values, 8, 12), cudaErrorInvalidValue);
    symbols_kernel<<<1, 32>>>(device);
    OK(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    EXPECT(out[1] == 6 && out[3] == 6 && *x == 7 && shared_with_host == 2);
    OK(cudaMemcpyFromSymbol(&three, counter, sizeof three));
    OK(cudaGetSymbolAddress((void**)&address, counter)), OK(cudaGetSymbolSize(&bytes, table));
    EXPECT(three == 3 && *address == 3 && bytes == 16);
    cudaFree(device);
}
EXPORT pools(const Arrays&) {
    cudaMemPool_t pool, own;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    std::uint64_t bytes = 1 << 20;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0)), OK(cudaMemPoolCreate(&own, &properties));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
    int *a, *b;
    OK(cudaMallocAsync(&a, 400, 0)), OK(cudaMallocFromPoolAsync((void**)&b, 100, own, 0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes));
    EXPECT(bytes == 400);
    OK(cudaFreeAsync(a, 0)), OK(cudaFreeAsync(b, 0)), OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes));
    EXPECT(bytes == 0);
    FAILS(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
    OK(cudaMemPoolDestroy(own));
}

// ---- the device
EXPORT device(const Arrays&) {
    cudaDeviceProp p;
    int value, peer;
    std::size_t bytes;
    OK(cudaGetDeviceProperties(&p, 0));
    EXPECT(p.canMapHostMemory && p.streamPrioritiesSupported && p.memoryPoolsSupported);
    EXPECT(p.warpSize == 32 && p.major == 8);
    EXPECT(at::cuda::getCurrentDeviceProperties()->maxThreadsPerBlock == 1024);
    FAILS(cudaSetDevice(3), cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaSuccess);
    c10::cuda::CUDAGuard guard(0);
    at::cuda::OptionalCUDAGuard optional_guard;
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrCanMapHostMemory, 0));
    EXPECT(value == 1);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, 0));
    EXPECT(value == cudaComputeModeDefault);
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 24));
    OK(cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize));
    EXPECT(bytes == 1 << 24);
    FAILS(cudaDeviceSetLimit(cudaLimit(99), 1), cudaErrorUnsupportedLimit);
    OK(cudaSetDeviceFlags(cudaDeviceBlockingSync));
    OK(cudaDeviceCanAccessPeer(&peer, 0, 0));
    EXPECT(peer == 0);
    FAILS(cudaDeviceEnablePeerAccess(1, 0), cudaErrorInvalidDevice);
    OK(cudaProfilerStart()), OK(cudaProfilerStop());
    EXPECT(nvtxRangePush("outer") == 0 && nvtxRangePushA("inner") == 1);
    EXPECT(nvtxRangePop() == 1 && nvtxRangePop() == 0 && nvtxRangePop() < 0);
    NVTX3_FUNC_RANGE();
    nvtx3::scoped_range range{"part", nvtx3::rgb{1, 2, 3}};
    EXPECT(CUDART_VERSION >= 12000);
    EXPECT(std::string(cudaGetErrorName(cudaErrorAssert)) == "cudaErrorAssert");
#if !defined(__DRIVER_TYPES_H__) || !defined(__CUDA_RUNTIME_H__)
#error "helper headers ask for these"
#endif
}
__global__ void clock_kernel(long long* ticks) {
    clock_t start = clock();
    long long long_start = clock64();
    while (clock() - start < 200000) {}
    ticks[0] = clock64() - long_start;
}
EXPORT clocks(const Arrays&) {
    int rate;  // kHz
    long long *ticks;
    OK(cudaMallocManaged(&ticks, sizeof *ticks));
    OK(cudaDeviceGetAttribute(&rate, cudaDevAttrClockRate, 0));
    std::clock_t before = clock();  // the host's counts otherwise
    clock_kernel<<<1, 1>>>(ticks);
    EXPECT(*ticks >= 200000 - 1000 && *ticks < 1000 * 1000 * 1000);
    EXPECT(clock() - before < CLOCKS_PER_SEC && rate == 1000 * 1000);
    cudaFree(ticks);
}
__global__ void shared_kernel(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x], x[threadIdx.x] = s[threadIdx.x];
}
EXPORT occupancy(const Arrays&) {
    int blocks, grid, block;
    auto active = [&](int threads, std::size_t bytes) {
        OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared_kernel, threads, bytes));
        return blocks;
    };
    EXPECT(active(1024, 0) == 1 && active(1025, 0) == 0 && active(32, 0) == 16);
    EXPECT(active(256, 0) == 4 && active(33, 0) == 16);
    FAILS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared_kernel, 0, 0),
          cudaErrorInvalidValue);
    EXPECT(active(128, 228 * 1024) == 0);
    auto dynamic = cudaFuncAttributeMaxDynamicSharedMemorySize;
    OK(cudaFuncSetAttribute(shared_kernel, dynamic, 100 * 1024));
    EXPECT(active(128, 100 * 1024) == 2);
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, (void*)shared_kernel, 0, 300));
    EXPECT(block <= 300 && block % 32 == 0 && grid == 8 * (1024 / block));
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, shared_kernel));
    EXPECT(block == 1024 && grid == 8);
    auto bytes = [](int threads) { return std::size_t(threads) * 400; };
    OK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, shared_kernel, bytes));
    EXPECT(block > 0 && bytes(block) <= 100 * 1024);
    cudaFuncAttributes about;
    OK(cudaFuncGetAttributes(&about, shared_kernel));
    EXPECT(about.maxThreadsPerBlock == 1024 && about.maxDynamicSharedSizeBytes >= 100 * 1024);
    FAILS(cudaFuncSetAttribute(shared_kernel, dynamic, 1 << 20), cudaErrorInvalidValue);
}

// ---- streams and events
static void CUDART_CB note(void* data) { ++*(int*)data; }
static void CUDART_CB note_status(cudaStream_t, cudaError_t status, void* data) {
    *(int*)data += status == cudaSuccess ? 10 : 1000;
}
EXPORT streams(const Arrays&) {
    cudaStream_t stream, urgent;
    int least, greatest, priority, calls = 0;
    OK(cudaStreamCreate(&stream)), OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    OK(cudaStreamGetPriority(urgent, &priority));
    EXPECT(priority == greatest && greatest < least);
    OK(cudaLaunchHostFunc(stream, note, &calls));
    OK(cudaStreamAddCallback(stream, note_status, &calls, 0));
    EXPECT(calls == 11 && cudaStreamQuery(stream) == cudaSuccess);
    cudaEvent_t start, stop, untimed;
    float ms = -1;
    OK(cudaEventCreate(&start)), OK(cudaEventCreate(&stop, cudaEventBlockingSync));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    OK(cudaEventRecord(start, stream));
    FAILS(cudaEventElapsedTime(&ms, start, stop), cudaErrorInvalidResourceHandle);
    OK(cudaStreamWaitEvent(urgent, start, 0)), OK(cudaEventRecord(stop, urgent));
    OK(cudaEventElapsedTime(&ms, start, stop)), OK(cudaEventRecord(untimed));
    EXPECT(ms >= 0 && cudaEventQuery(stop) == cudaSuccess);
    FAILS(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
    Ints x;
    add_kernel<<<1, 1, 0, cudaStreamPerThread>>>(x, 1, 1);
    add_kernel<<<1, 1, 0, cudaStreamLegacy>>>(x, 2, 1);
    OK(cudaStreamDestroy(stream));
    add_kernel<<<1, 1, 0, stream>>>(x, 4, 1);  // it does not exist any more
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle && *x == 3);
    FAILS(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    auto pooled = c10::cuda::getStreamFromPool();
    EXPECT(torch::cuda::getCurrentCUDAStream() == at::cuda::getDefaultCUDAStream());
    {
        c10::cuda::CUDAStreamGuard guard(pooled);
        EXPECT(at::cuda::getCurrentCUDAStream() == pooled);
    }
    EXPECT(c10::cuda::getCurrentCUDAStream() != pooled);
}

// ---- launches without <<< >>>
template <class T, int N>
__global__ void scale_kernel(T* x, T by) { x[threadIdx.x] = x[threadIdx.x] * by + N; }
__global__ void sync_kernel(int* x) {
    if (threadIdx.x == 0) atomicAdd(x, 1);
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0 && *x == int(gridDim.x)) atomicAdd(x + 1, 1);
}
EXPORT launch_calls(const Arrays&) {
    Ints x(2);
    int value = 5, n = 1, *pointer = x;
    void* arguments[] = {&pointer, &value, &n};
    OK(cudaLaunchKernel((const void*)add_kernel, 1, 32, arguments));
    const void* erased = (const void*)&add_kernel;
    OK(cudaLaunchKernel(erased, dim3(1), dim3(32), arguments, 0, cudaStreamPerThread));
    auto function = &add_kernel;
    OK(cudaLaunchKernel(function, 1, 32, arguments, 0, 0));
    void* templated = reinterpret_cast<void*>(&scale_kernel<int, 2>);
    OK(cudaLaunchKernel(templated, 1, 1, arguments));
    EXPECT(*x == 15 * 5 + 2);
    FAILS(cudaLaunchKernel((void*)&value, 1, 1, arguments), cudaErrorInvalidDeviceFunction);
    cudaLaunchConfig_t config = {};
    config.gridDim = 1, config.blockDim = 1, config.stream = cudaStreamPerThread;
    OK(cudaLaunchKernelEx(&config, add_kernel, x.data, 1, 1));
    OK(cudaLaunchKernelEx(&config, scale_kernel<int, 0>, x.data, short(1)));
    OK(cudaLaunchKernelExC(&config, (void*)add_kernel, arguments));
    EXPECT(*x == 77 + 6);
    OK(cudaMemset(x, 0, 8));
    cudaLaunchAttribute cooperative;
    cooperative.id = cudaLaunchAttributeCooperative, cooperative.val.cooperative = 1;
    config.gridDim = 4, config.blockDim = 32, config.attrs = &cooperative, config.numAttrs = 1;
    OK(cudaLaunchKernelEx(&config, sync_kernel, x.data));
    EXPECT(first(x + 1) == 4);
    void (*table[])(int*, int, int) = {add_kernel, add_kernel};
    table[1]<<<1, 1>>>(x + 1, 4, 1);
    EXPECT(first(x + 1) == 8);
}

// ---- launches by kernels
__device__ int log_length, log_entries[64];
__device__ void log_entry(int entry) { log_entries[atomicAdd(&log_length, 1)] = entry; }
__global__ void child_kernel(int entry, const int* parents) {
    if (threadIdx.x == 0) log_entry(entry + 100 * parents[0] * parents[1]);
}
__global__ void parent_kernel(int* x, int depth) {
    if (threadIdx.x == 0) {
        child_kernel<<<1, 32, 0, cudaStreamTailLaunch>>>(50 + blockIdx.x, x);
        child_kernel<<<1, 32>>>(blockIdx.x, x);
        x[blockIdx.x] = 1;  // children see what their parent writes after the launch
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (depth) parent_kernel<<<1, 32, 0, stream>>>(x, depth - 1);
        cudaMemsetAsync(x + 2, 1, 4, stream);
        cudaStreamDestroy(stream);
    }
    if (threadIdx.x == 0) log_entry(-1);
}
__global__ void endless_kernel(int n) { if (threadIdx.x == 0) endless_kernel<<<1, 32>>>(n + 1); }
EXPORT launches_by_kernels(const Arrays&) {
    Ints x(3);
    parent_kernel<<<2, 1>>>(x, 0);
    int entries[64], length, expected[] = {-1, -1, 100, 101, 150, 151};
    OK(cudaMemcpyFromSymbol(&length, log_length, 4));
    OK(cudaMemcpyFromSymbol(entries, log_entries, sizeof entries));
    EXPECT(length == 6);
    for (int i = 0; i < 6; i++) EXPECT(entries[i] == expected[i]);
    EXPECT(first(x + 2) == 0x01010101);
    parent_kernel<<<2, 1>>>(x, 2);
    OK(cudaMemcpyFromSymbol(&length, log_length, 4));
    EXPECT(length == 6 + 2 * 3 * 3);
}
__global__ void passes_kernel(int which) {
    int local[2] = {};
    __shared__ int tile[2];
    extern __shared__ int dynamic[];
    if (threadIdx.x == 0)
        child_kernel<<<1, 1>>>(0, which == 0 ? local : which == 1 ? tile : dynamic);
}
EXPORT passes_local(const Arrays&) { passes_kernel<<<1, 32, 64>>>(0); }
EXPORT passes_shared(const Arrays&) { passes_kernel<<<1, 32, 64>>>(1); }
EXPORT passes_dynamic(const Arrays&) { passes_kernel<<<1, 32, 64>>>(2); }
EXPORT refused_call(const Arrays&) { C10_CUDA_CHECK(cudaSetDevice(3)); }
EXPORT endless_launches(const Arrays&) { endless_kernel<<<1, 1>>>(0); }

// ---- graphs
EXPORT captured_graphs(const Arrays&) {
    Ints x(2);
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    OK(cudaStreamCreate(&stream)), OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&fork)), OK(cudaEventCreate(&join));
    int calls = 0, out = 0, value = 3;
    std::vector<float> large(100, 1);
    auto captured = [&](int by) {
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        void (*kernel)(int*, int, int) = add_kernel;  // gone at the replay
        kernel<<<1, 1, 0, stream>>>(x, by, 1);
        OK(cudaEventRecord(fork, stream)), OK(cudaStreamWaitEvent(other, fork));
        OK(cudaMemsetAsync(x + 1, 0, 4, other));
        add_kernel<<<1, 1, 0, other>>>(x + 1, by, 1);
        OK(cudaEventRecord(join, other)), OK(cudaStreamWaitEvent(stream, join));
        OK(cudaMemcpyAsync(&out, x, 4, cudaMemcpyDeviceToHost, stream));
        OK(cudaLaunchHostFunc(stream, note, &calls));
        cudaStreamCaptureStatus status;
        OK(cudaStreamIsCapturing(other, &status));
        EXPECT(status == cudaStreamCaptureStatusActive);
        OK(cudaStreamEndCapture(stream, &graph));
    };
    captured(value);
    value = 1000;  // arguments are copied
    std::size_t nodes = 0, edges = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &nodes)), OK(cudaGraphGetEdges(graph, 0, 0, &edges));
    EXPECT(nodes == 5 && edges == 5 && calls == 0 && out == 0);
    OK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0)), OK(cudaGraphDestroy(graph));
    OK(cudaGraphUpload(executable, stream));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(executable, stream));
    EXPECT(out == 9 && calls == 3 && first(x + 1) == 3);
    captured(10);
    cudaGraphExecUpdateResultInfo info;
    OK(cudaGraphExecUpdate(executable, graph, &info)), OK(cudaGraphDestroy(graph));
    OK(cudaGraphLaunch(executable, 0));
    EXPECT(out == 19 && first(x + 1) == 10);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaGraphLaunch(executable, stream));  // a graph in a graph
    OK(cudaStreamEndCapture(stream, &graph));
    FAILS(cudaGraphExecUpdate(executable, graph, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged && out == 19);
    OK(cudaGraphExecDestroy(executable)), OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphLaunch(executable, other));
    EXPECT(out == 29);
    OK(cudaGraphExecDestroy(executable)), OK(cudaGraphDestroy(graph));
}
EXPORT allocation_that_is_captured(const Arrays&) {
    Ints out;
    int* own;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&own, sizeof(int), stream));
    OK(cudaMemsetAsync(own, 0, sizeof(int), stream));
    add_kernel<<<1, 1, 0, stream>>>(own, 5, 1);
    OK(cudaMemcpyAsync(out, own, sizeof(int), cudaMemcpyDeviceToDevice, stream));
    OK(cudaFreeAsync(own, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    cudaGraphNode_t nodes[5];
    std::size_t count = 5;
    cudaGraphNodeType first, last;
    OK(cudaGraphGetNodes(graph, nodes, &count));
    OK(cudaGraphNodeGetType(nodes[0], &first));
    OK(cudaGraphNodeGetType(nodes[4], &last));
    EXPECT(count == 5 && first == cudaGraphNodeTypeMemAlloc && last == cudaGraphNodeTypeMemFree);
    OK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) {
        OK(cudaMemset(out, 0, sizeof(int)));
        OK(cudaGraphLaunch(executable, stream));
        OK(cudaStreamSynchronize(stream));
        EXPECT(*out == 5);
    }
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(own));  // until then a graph's array stays; on a GPU it is the graph's
}
EXPORT errors_of_captures(const Arrays&) {
    Ints x;
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaGraph_t graph;
    void* p;
    OK(cudaStreamCreate(&stream)), OK(cudaStreamCreate(&other)), OK(cudaEventCreate(&event));
    FAILS(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal),
          cudaErrorStreamCaptureUnsupported);
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
#define SPOILED_BY(call, error) \
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)); \
    FAILS(call, error); \
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated); \
    EXPECT(graph == nullptr)
    SPOILED_BY(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    SPOILED_BY(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    SPOILED_BY(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
    SPOILED_BY(cudaMemcpy(x, &p, 4, cudaMemcpyHostToDevice), cudaErrorStreamCaptureImplicit);
    SPOILED_BY((add_kernel<<<1, 1>>>(x, 1, 1), cudaPeekAtLastError()),
               cudaErrorStreamCaptureImplicit);
    SPOILED_BY((cudaEventRecord(event, stream), cudaEventSynchronize(event)),
               cudaErrorCapturedEvent);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&p, 4)), OK(cudaFree(p));  // allowed when relaxed
    OK(cudaEventRecord(event, stream)), OK(cudaStreamWaitEvent(other, event));
    add_kernel<<<1, 1, 0, other>>>(x, 1, 1);
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    add_kernel<<<1, 1, 0, other>>>(x, 1, 1);  // captures no more
    EXPECT(*x == 1);
}
EXPORT graphs_by_hand(const Arrays&) {
    Ints x(4);
    int out[4], calls = 0, by = 2, n = 4, *pointer = x;
    cudaGraph_t graph, child, clone;
    cudaGraphExec_t executable, of_clone;
    cudaGraphNode_t set, add, copy, host, nested, inner;
    OK(cudaGraphCreate(&graph, 0)), OK(cudaGraphCreate(&child, 0));
    void* arguments[] = {&pointer, &by, &n};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void*)add_kernel, kernel.gridDim = 1, kernel.blockDim = 32;
    kernel.kernelParams = arguments;
    cudaMemsetParams ones = {};
    ones.dst = x, ones.value = 7, ones.elementSize = 4;
    ones.width = 2, ones.height = 2, ones.pitch = 8;
    cudaHostNodeParams call = {note, &calls};
    OK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, out, x, 16, cudaMemcpyDeviceToHost));
    OK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &ones));
    OK(cudaGraphAddKernelNode(&add, graph, &set, 1, &kernel));
    OK(cudaGraphAddDependencies(graph, &add, &copy, 1));  // the copy was added first
    OK(cudaGraphAddHostNode(&inner, child, nullptr, 0, &call));
    OK(cudaGraphAddChildGraphNode(&nested, graph, &copy, 1, child)), OK(cudaGraphDestroy(child));
    OK(cudaGraphAddEmptyNode(&host, graph, &nested, 1));
    by = 100;
    OK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    OK(cudaGraphClone(&clone, graph)), OK(cudaGraphInstantiateWithFlags(&of_clone, clone, 0));
    OK(cudaGraphLaunch(executable, 0));
    EXPECT(out[0] == 9 && out[3] == 9 && calls == 1);
    OK(cudaGraphKernelNodeGetParams(add, &kernel));
    EXPECT(kernel.func == (void*)add_kernel && *(int*)kernel.kernelParams[1] == 2);
    kernel.kernelParams = arguments;
    OK(cudaGraphExecKernelNodeSetParams(executable, add, &kernel));
    OK(cudaGraphLaunch(executable, 0));
    EXPECT(out[3] == 107);
    OK(cudaGraphLaunch(of_clone, 0));
    EXPECT(out[3] == 9 && calls == 3);
    FAILS(cudaGraphExecHostNodeSetParams(executable, add, &call), cudaErrorInvalidValue);
    kernel.func = nullptr;
    FAILS(cudaGraphAddKernelNode(&add, graph, nullptr, 0, &kernel), cudaErrorInvalidDeviceFunction);
    OK(cudaGraphAddDependencies(graph, &copy, &set, 1));
    FAILS(cudaGraphInstantiate(&executable, graph, 0), cudaErrorInvalidValue);  // a cycle
    OK(cudaGraphDestroyNode(copy));
    cudaGraphNodeType type;
    OK(cudaGraphNodeGetType(set, &type));
    std::size_t roots = 0;
    OK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    EXPECT(type == cudaGraphNodeTypeMemset && roots == 2);
}
"""
TESTS = re.findall(r"^EXPORT (\w+)\(", SRC, re.MULTILINE)
FAIL = {
    "refused_call": "CUDA error: invalid device ordinal",
    "endless_launches": "kernels that launch kernels are nested more than 24 deep",
    "passes_local": r"thread \(0,0,0\), line \d+: passes local memory to child_kernel",
    "passes_shared": "passes shared memory to child_kernel",
    "passes_dynamic": "passes shared memory to child_kernel",
}


@pytest.fixture(scope="module", params=["g++", "clang++"])
def lib(request, tmp_path_factory):
    return compile_string(SRC, tmp_path_factory.mktemp("host"), request.param)


@pytest.mark.parametrize("name", [name for name in TESTS if name not in FAIL])
def test_host_calls(lib, name):
    lib.run(name)


@pytest.mark.parametrize("name", FAIL)
def test_errors_are_thrown(lib, name):
    with pytest.raises(RuntimeError, match=FAIL[name]):
        lib.run(name)


# A checked program: what is right passes, and a fault is found where it is launched in other ways.
CHECKED = r"""
#include <assert.h>
__global__ void copy_kernel(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = x[i];
}
__global__ void parent_kernel(const int* x, int* out, int n) {
    if (threadIdx.x == 0) copy_kernel<<<1, 64>>>(x, out, n);
}
__global__ void assert_kernel(int n) { assert(threadIdx.x < n); }
void report() {
    cudaError_t error = cudaDeviceSynchronize();
    puts(cudaGetErrorName(error));
    if (error != cudaGetLastError() || error != cudaGetLastError()) puts("it does not stay");
    cudaDeviceReset();
}
int main() {
    int *x, *out, n = 60;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaMalloc(&x, 61 * 4), cudaMallocAsync(&out, 61 * 4, 0), cudaMemset(x, 0, 61 * 4);
    cudaStreamCreate(&stream);
    for (int i = 0; i < 2; i++, n = 61) {
        void* arguments[] = {&x, &out, &n};
        const void* kernel = (const void*)copy_kernel;
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
        copy_kernel<<<1, 64, 0, stream>>>(x, out, n);
        cudaStreamEndCapture(stream, &graph);
        cudaGraphInstantiate(&executable, graph, 0);
        parent_kernel<<<1, 32>>>(x, out, n), report();
        cudaLaunchKernel(kernel, 1, 64, arguments), report();
        cudaGraphLaunch(executable, stream), report();
    }
    assert_kernel<<<1, 64>>>(60), report();
    assert_kernel<<<1, 2048>>>(60), puts(cudaGetErrorName(cudaGetLastError())), report();
}
"""


def test_a_checked_program(tmp_path):
    done = run_program(CHECKED, tmp_path, check=True)
    errors = ["cudaSuccess"] * 3 + ["cudaErrorLaunchFailure"] * 3 + ["cudaErrorAssert"]
    errors += ["cudaErrorInvalidConfiguration", "cudaSuccess"]
    assert (done.returncode, done.stdout.splitlines()) == (0, errors)
    *overruns, failed, refused = done.stderr.splitlines()
    launches = ["if (threadIdx.x == 0) copy_", "cudaLaunchKernel(", "0, stream>>>"]
    for message, launch in zip(overruns, launches, strict=True):
        line = CHECKED[: CHECKED.index(launch)].count("\n") + 1
        assert message.startswith(f"copy_kernel (launched at line {line})"), message
        assert "thread (61,0,0), line 5: reads x[61]" in message, message
    assert "thread (60,0,0), line 10: assertion failed: threadIdx.x < n" in failed
    assert "a block of (2048,1,1) is 2048 threads" in refused


def test_numbers_are_those_of_cuda():
    try:
        theirs = (cuda_home() / "include" / "driver_types.h").read_text()
    except (RuntimeError, FileNotFoundError):
        pytest.skip("CUDA's headers are not installed")
    number = re.compile(r"\b(cuda\w+)\s*(?:=|,)\s*(0[xX][0-9a-fA-F]+|-?\d+)\b")
    theirs = dict(number.findall(theirs))
    checked = 0
    for header in INCLUDE.glob("cuda_on_cpu/*.h"):
        for name, value in number.findall(header.read_text()):
            if name in theirs:
                checked += 1
                assert int(theirs[name], 0) == int(value, 0), name
    assert checked > 150
