// Clocks, traps and triggers of a kernel.
#pragma once
#include <time.h>

#include "runtime.h"

inline long long clock64() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

[[noreturn]] inline void __trap(int line = __builtin_LINE()) { cuda_on_cpu::fail("__trap()", line); }
inline void __brkpt() {}
inline void __prof_trigger(int) {}

