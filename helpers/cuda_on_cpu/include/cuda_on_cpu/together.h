// Instructions that a whole warp carries out together, such as a product of matrices: each lane
// comes with what it brings, and the last one to come does the work of all.
#pragma once
#include "runtime.h"

namespace cuda_on_cpu {

// What a lane brings and takes away. An instruction adds its registers (Mma in tensor_core.h).
struct Together {
    void (*work)(Together* const* lanes);  // 32 of them
    const char* name;                      // of the instruction, for errors
};

inline void do_together(Together& mine, int line) {
    warp_operation(WarpOperation::together, 0xffffffff, reinterpret_cast<std::uint64_t>(&mine), 0,
                   line);
}

}  // namespace cuda_on_cpu
