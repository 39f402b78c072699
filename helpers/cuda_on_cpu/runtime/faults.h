// What a kernel does wrong that only the hardware notices, and kernels that never end.
#pragma once
#include <dlfcn.h>
#include <signal.h>

#include <string>
#include <vector>

#include "multiprocessor.h"

namespace cuda_on_cpu {

constexpr int STOP_SIGNAL = SIGXCPU;  // "CPU time limit exceeded": sent by the watchdog

// Gives the calling operating-system thread a stack of its own for the handler of its faults.
void prepare_fault_stack();

// Watches the grid for as long as it lives: a block in which no thread returns for too long, or
// an interrupt from the keyboard, ends the grid.
class Watched {
public:
    explicit Watched(Grid& grid);
    ~Watched();
};

// A child process has no watchdog thread; the next launch starts one.
void forget_watchdog();

// What the calls return to that the calling thread is in, the innermost first; none if unknown.
Calls running_calls();

// The file that the code at this address was loaded from; `module` is what dladdr says about it.
std::string file_of(void* code_address, const Dl_info& module);

// "line 12" of the CUDA string for an address in its machine code; 0 where it cannot be told.
int source_line(void* code_address);

}  // namespace cuda_on_cpu
