// Skipping ahead in Marsaglia's XORWOW generator.
#pragma once
#include "runtime.h"

namespace cuda_on_cpu {
// Goes `steps` steps on with the five words that are shifted, or so many times 2^67 steps.
CUDA_ON_CPU_API void skip_xorwow(std::uint32_t* words, std::uint64_t steps, bool times_2_67);
}  // namespace cuda_on_cpu
