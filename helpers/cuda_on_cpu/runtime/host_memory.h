// Copies as they are made, whatever the stream.
#pragma once
#include "../include/cuda_on_cpu/host_memory.h"

namespace cuda_on_cpu {

bool release_now(void* array);  // false if no array of the program's begins there

cudaError_t copy_now(const MemoryCall&, void* to, const void* from, std::size_t bytes,
                     cudaMemcpyKind);
cudaError_t copy_now(const MemoryCall&, const cudaMemcpy3DParms&);
bool has_host_arrays();  // pinned or managed ones
bool is_host_array(const void* address);
cudaError_t fill_now(const MemoryCall&, const cudaPitchedPtr&, const void* pattern,
                     std::size_t pattern_bytes, const cudaExtent&);

}  // namespace cuda_on_cpu
