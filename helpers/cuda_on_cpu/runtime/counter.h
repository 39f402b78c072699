// Counts what the accesses of a launch cost. Each multiprocessor has one, for the blocks it runs.
#pragma once
#include "../include/cuda_on_cpu/runtime.h"
#include "access.h"

namespace cuda_on_cpu {

class Counter {
public:
    // Whether the launch is to be counted; asked once a launch, and of each multiprocessor.
    bool begin_launch(const Launch&) { return false; }

    void begin_block(uint3) {}
    void access(const Access&) {}
    // A basic block of machine code begins, at `code`.
    void executed(const void*, std::uint64_t, unsigned) {}
    void barrier() {}  // of the block; it opens
    void end_block() {}

    void end_launch() {}
};

}  // namespace cuda_on_cpu
