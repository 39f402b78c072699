// What runs blocks and threads, in one translation unit: its headers are then read once, and
// barrier.cpp and warp.cpp can inline what multiprocessor.cpp defines. checking.cpp, the rest, is
// compiled at the same time.
#include "multiprocessor.cpp"

#include "async_copies.cpp"
#include "barrier.cpp"
#include "block_barrier.cpp"
#include "carry.cpp"
#include "device.cpp"
#include "device_properties.cpp"
#include "errors.cpp"
#include "faults.cpp"
#include "fiber.cpp"
#include "graphs.cpp"
#include "host_calls.cpp"
#include "kernel_calls.cpp"
#include "order.cpp"
#include "streams.cpp"
#include "warp.cpp"
