// In a kernel, a failed assertion ends the kernel, not the process. No include guard: NDEBUG may
// change from one inclusion to the next.
#include_next <assert.h>  // for __assert_fail, which PyTorch's headers call

#include "cuda_on_cpu/runtime.h"
#undef assert
#if defined(NDEBUG)
#define assert(condition) ((void)0)
#else
#define assert(condition) \
    ((condition) ? (void)0 : cuda_on_cpu::fail("assertion failed: " #condition, __LINE__))
#endif
