// Functions of the host that Python has called, while they run: see call_host().
#pragma once
#include "faults.h"

namespace cuda_on_cpu {

// In handlers of signals. They leave the innermost function of the host that the calling thread is
// in, and return if it is in none.
void leave_host_call(const Death&, void* code_address);
// Where the function's own code stands, not another library's. False: there is nothing to leave.
bool leave_host_call_if_possible(void* code_address);

// What the call has from cudaMalloc and its like is freed if a kernel's fault ends it.
void note_allocation(void* array);
void note_failed_kernel();

}  // namespace cuda_on_cpu
