// What a translated CUDA string and the runtime library say to each other: the built-in variables,
// the record of a launch, and the runtime's entry points. Both sides include this file.
#pragma once
#include <cstddef>
#include <cstdint>

#include "errors.h"
#include "limits.h"
#include "vector_types.h"

struct CUstream_st;
typedef CUstream_st* cudaStream_t;

// One operating-system thread runs one block at a time, so what belongs to a block (or to the one
// of its threads that runs right now) is thread-local. initial-exec is the cheapest way to reach
// it: one load, no call. It is for a few dozen bytes only: the loader has little room for more.
#if defined(__linux__)
#define CUDA_ON_CPU_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) __thread
#else
#define CUDA_ON_CPU_THREAD_LOCAL __thread
#endif

// In a checked build (check.h).
// UNCHECKED: its accesses are the runtime's, not the learner's. (clang inlines such a function into
// one that is checked, or the other way round, so there it means nothing.)
// INLINE: an access is told with the line of its machine code; inlined, that is the learner's.
#if defined(CUDA_ON_CPU_CHECK) && !defined(__clang__)
#define CUDA_ON_CPU_UNCHECKED __attribute__((no_sanitize("thread"), no_sanitize_coverage))
#else
#define CUDA_ON_CPU_UNCHECKED
#endif
#if defined(CUDA_ON_CPU_CHECK)
#define CUDA_ON_CPU_INLINE inline __attribute__((always_inline))
#else
#define CUDA_ON_CPU_INLINE inline
#endif

// To a thread of a kernel they are const, and of reads of what is const a checked build does not tell.
#if defined(CUDA_ON_CPU_CHECK)
#define CUDA_ON_CPU_CONST const
#else
#define CUDA_ON_CPU_CONST
#endif
#define CUDA_ON_CPU_BUILT_IN CUDA_ON_CPU_API CUDA_ON_CPU_THREAD_LOCAL
extern CUDA_ON_CPU_BUILT_IN CUDA_ON_CPU_CONST uint3 threadIdx;
extern CUDA_ON_CPU_BUILT_IN CUDA_ON_CPU_CONST uint3 blockIdx;
extern CUDA_ON_CPU_BUILT_IN CUDA_ON_CPU_CONST uint3 blockDim;
extern CUDA_ON_CPU_BUILT_IN CUDA_ON_CPU_CONST uint3 gridDim;

namespace cuda_on_cpu {

// Where a thread goes on that has stopped. All other registers that it needs lie on its stack.
struct Stopped {
    void *stack_pointer, *frame_pointer, *code;
};

// Where the running block stands.
struct Position {
    unsigned thread;       // linear index of the running thread in its block
    unsigned plain_end;    // threads before this one may follow as plain calls; 0: ask the runtime
    unsigned patience;     // atomics left before the thread lets others run (it may be spinning)
    void* dynamic_shared;  // the block's extern __shared__ memory
    const void* arguments; // of the launch, for its run_threads
    int where;             // all threads before the running one wait at the __syncthreads() of this
                           // line, or have RETURNED; 0: ask the runtime
    unsigned order_end;    // threads before this one may do so as well (in_order.h)
    Stopped* stopped;      // by thread
};
constexpr int RETURNED = -1;
extern CUDA_ON_CPU_BUILT_IN Position position;

// Whether a kernel runs here, not code of the host. (See halves.py.)
CUDA_ON_CPU_UNCHECKED inline bool is_on_device() { return blockDim.x != 0; }

// A pointer that a kernel was given.
struct Parameter {
    const char* name;        // "" if unknown
    const void* pointer;     // null if the parameter is none
    std::size_t element_bytes;
    bool may_hold_pointers;  // it, or what it points to
    bool only_read;          // the kernel's own text does not write through it
    unsigned rank = 1;       // of indices that it is used with
    std::size_t extents[4] = {};  // if these are more than one
    unsigned long long number = 0;  // an unsigned one, which may be a texture or surface object
};

struct Launch {
    const char* kernel;  // as the launch spells it
    int line;            // of the launch, in the CUDA string
    uint3 grid, block;
    std::size_t shared_bytes;
    bool cooperative;  // all blocks are alive at once
    cudaStream_t stream;
    void (*run_threads)() = nullptr;       // runs the current thread and those after it, for ever
    void* arguments = nullptr;             // for run_threads
    std::size_t argument_bytes = 0;
    void* (*copy_arguments)(const void*) = nullptr;  // null: byte by byte
    void (*destroy_arguments)(void*) = nullptr;
    bool checked = false;  // its module tells about every access (check.h)
    const Parameter* parameters = nullptr;
    unsigned parameter_count = 0;
    bool in_program = false;  // with a main(), which expects error codes
    unsigned most_threads = 0;  // of a block, as __launch_bounds__ says; 0: any
};

// Runs a grid to its end, and all that it launches; or keeps it for later (streams.h). Throws
// std::runtime_error for a bad configuration or a fault in the kernel; in a program of its own, says
// so on stderr and returns an error code.
CUDA_ON_CPU_API cudaError_t launch(const Launch&);

// The running thread has returned: moves to the next one. Comes back only if that one begins here.
CUDA_ON_CPU_API void next_thread_slow();
CUDA_ON_CPU_API void next_checked_thread();  // likewise, where the caller sees threadIdx as const

CUDA_ON_CPU_API void allow_dynamic_shared(std::size_t bytes);  // above the usual limit
CUDA_ON_CPU_API std::size_t dynamic_shared_limit();
CUDA_ON_CPU_API int blocks_per_multiprocessor(std::uint64_t threads, std::size_t shared_bytes);

// From now on, a fault (or a stop by the watchdog) in a kernel ends the grid, not the process, and
// a library that loads a vector across the end of an array may do so.
CUDA_ON_CPU_API void catch_faults();

// Memory whose end lies against a page that faults (as far as the system has room for that).
// owner names it in the error: "a tensor". Returns null if there is no memory.
CUDA_ON_CPU_API void* allocate(std::size_t bytes, const char* owner, std::size_t alignment = 16);
// Where tensors and arrays from cudaMalloc begin: see memory.cpp.
CUDA_ON_CPU_API std::size_t alignment_of_arrays();
CUDA_ON_CPU_API bool align_arrays();  // as on a GPU, from now on; returns true
CUDA_ON_CPU_API void release(void*);
CUDA_ON_CPU_API std::size_t memory_bytes(bool free_only);  // of this machine
CUDA_ON_CPU_API std::size_t available_bytes();  // that this process may still take
// Throws std::runtime_error if a library's stand-in does not stay inside the array that it was given.
CUDA_ON_CPU_API void check_library_access(const char* library, const void* start, std::size_t bytes);

// A __device__ variable was given a pointer: a kernel may reach more than its parameters point to.
CUDA_ON_CPU_API void note_pointer_in_symbol();

CUDA_ON_CPU_API bool is_cooperative();  // the running launch

// The translator numbers the barriers of one line: this times 0, 1, 2 ... is added to the line.
constexpr int BARRIER_IN_LINE = 1 << 24;
enum class Barrier { block, count, all, any, grid };
CUDA_ON_CPU_API int wait_at_barrier(Barrier, int predicate, int line);

enum class WarpOperation {
    sync, shuffle, ballot, all, any, match_any, match_all,
    add, min_signed, max_signed, min_unsigned, max_unsigned, bit_and, bit_or, bit_xor,
    together,  // an instruction of the whole warp (together.h)
    converge,  // gathers whichever lanes of the warp come, without a mask
};
// Waits for the lanes of the mask; each lane then gets its own result. source: shuffles only.
CUDA_ON_CPU_API std::uint64_t warp_operation(WarpOperation, unsigned mask, std::uint64_t value,
                                             int source, int line);

// An exception leaves the kernel: in its handler, and behind that.
CUDA_ON_CPU_API void note_exception();
[[noreturn]] CUDA_ON_CPU_API void fail_by_exception();

// Lets other threads of the block run. A spin loop that never does would hold them up for ever.
CUDA_ON_CPU_API void yield();

// Ends the kernel with an error: "<kernel> ..., thread (x,y,z), line n: <sentence>".
[[noreturn]] CUDA_ON_CPU_API void fail(const char* sentence, int line);

// Threads are numbered with x running fastest.
CUDA_ON_CPU_UNCHECKED inline void step(uint3& index) {
    if (++index.x < blockDim.x) return;
    index.x = 0;
    if (++index.y < blockDim.y) return;
    index.y = 0;
    ++index.z;
}

}  // namespace cuda_on_cpu
