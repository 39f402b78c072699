// __pipeline_memcpy_async and what waits for it: asynchronous copies to shared memory.
#pragma once
#include "cuda_on_cpu/async_copy.h"
#include "cuda_runtime.h"

CUDA_ON_CPU_INLINE void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes,
                                                std::size_t zeros = 0) {
    cuda_on_cpu::copy_async(to, from, unsigned(bytes), unsigned(bytes - zeros));
}
inline void __pipeline_commit() { cuda_on_cpu::commit_copies(); }
// Until all groups but the latest `prior` are there.
inline void __pipeline_wait_prior(std::size_t prior) { cuda_on_cpu::wait_for_copies(unsigned(prior)); }
