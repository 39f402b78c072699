// The runtime library in one translation unit: its headers are then read once, which builds it
// three times as fast and lets the compiler inline across the parts.
#include "barrier.cpp"
#include "device.cpp"
#include "faults.cpp"
#include "fiber.cpp"
#include "memory.cpp"
#include "multiprocessor.cpp"
#include "warp.cpp"
