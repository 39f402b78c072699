#include "streams.h"

#include <stdexcept>
#include <string>

static thread_local cudaError_t last_error = cudaSuccess;

// After a fault no call succeeds, until the device is reset.
std::atomic<cudaError_t> cuda_on_cpu::fault{cudaSuccess};

cudaError_t cuda_on_cpu::result(cudaError_t error) {
    if (fault != cudaSuccess) error = fault;
    if (error != cudaSuccess) last_error = error;
    return error;
}

void cuda_on_cpu::check(cudaError_t error) {
    if (error == cudaSuccess) return;
    cudaGetLastError();
    throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(error));
}

cudaError_t cudaPeekAtLastError() { return cuda_on_cpu::result(last_error); }

cudaError_t cudaGetLastError() {
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define CASE(name, number, text) case name: return #name;
        CUDA_ON_CPU_ERRORS(CASE)
#undef CASE
    }
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define CASE(name, number, text) case name: return text;
        CUDA_ON_CPU_ERRORS(CASE)
#undef CASE
    }
    return "unrecognized error code";
}
