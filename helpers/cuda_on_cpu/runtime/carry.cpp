// PTX's carry flag. Instructions that take it follow the one that left it, with no wait between: of
// a block's threads one needs it at a time.
#include "../include/cuda_on_cpu/runtime.h"

namespace cuda_on_cpu::ptx {

static CUDA_ON_CPU_THREAD_LOCAL bool flag = false;

CUDA_ON_CPU_API bool carry() { return flag; }
CUDA_ON_CPU_API void set_carry(bool carries) { flag = carries; }

}  // namespace cuda_on_cpu::ptx
