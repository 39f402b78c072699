// The runtime library in one translation unit: its headers are then read once, which builds it
// three times as fast, and barrier.cpp and warp.cpp can inline what multiprocessor.cpp defines.
#include "multiprocessor.cpp"

#include "async_copies.cpp"
#include "barrier.cpp"
#include "block_barrier.cpp"
#include "checker.cpp"
#include "checks.cpp"
#include "counter.cpp"
#include "device.cpp"
#include "faults.cpp"
#include "fiber.cpp"
#include "hooks.cpp"
#include "memory.cpp"
#include "order.cpp"
#include "request_cost.cpp"
#include "shadow.cpp"
#include "warp.cpp"
