#include "../include/cuda_on_cpu/errors.h"

static thread_local cudaError_t last_error = cudaSuccess;

cudaError_t cuda_on_cpu::result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetLastError() {
    cudaError_t error = last_error;
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
