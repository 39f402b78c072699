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

// What ends a process, as a signal tells it.
struct Death {
    int number;            // of the signal
    const void* address;   // that was accessed
    const char* access;    // "reads ", "writes "; "accesses " where the hardware does not tell
    bool has_address = true;
    bool near_stack = false;  // of the stack's end
};
std::string describe(const Death&, const Launch&);

// Watches the grid for as long as it lives: a block in which no thread returns for too long, or
// an interrupt from the keyboard, ends the grid.
class Watched {
public:
    explicit Watched(Grid& grid);
    ~Watched();
};

// Watches the calling thread, if it is the process' first, in a function of the host: there an
// interrupt from the keyboard sends STOP_SIGNAL.
class WatchedHost {
public:
    explicit WatchedHost(bool is_outermost);
    ~WatchedHost() { end(false); }
    void end(bool was_interrupted);

private:
    const pthread_t thread_;
    bool is_watched_;
};
bool is_interrupted();
// For a watched thread that has spoiled its memory: another one may still have some.
void let_watchdog_do(void (*errand)(), double seconds);

// What the calls return to that the calling thread is in, the innermost first; none if unknown.
Calls running_calls();
constexpr int MOST_CALLS = 64;
int running_calls(void* (&frames)[MOST_CALLS]);  // likewise, without memory of the C library's

// A thread that asks the loader holds its lock meanwhile, so that the watchdog's signal must not
// leave a block there: nobody would ever get the lock again.
class InLoader {
public:
    InLoader() { depth() = depth() + 1; }
    ~InLoader() { depth() = depth() - 1; }
    static bool is_here() { return depth(); }

private:
    static volatile int& depth();  // of the calling thread
};
bool find_module(const void* address, Dl_info* module);  // dladdr, in the loader

// Those of them in the library that a function is of. innermost: where the thread stands itself.
Calls calls_in_library_of(const void* function, const Calls& calls, const void* innermost);

// The file that the code at this address was loaded from; `module` is what dladdr says about it.
std::string file_of(void* code_address, const Dl_info& module);

// "twice" and line 12 of the CUDA string for an address in its machine code; "" and 0 where they
// cannot be told.
struct SourcePlace {
    std::string function;
    int line = 0;
};
SourcePlace source_place(void* code_address);
int source_line(void* code_address);

}  // namespace cuda_on_cpu
