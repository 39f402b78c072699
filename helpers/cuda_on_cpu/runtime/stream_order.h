// Which work in streams comes after which, and what of it touches the same memory in no order: of
// checked strings, and of what is done at once. (The work of a graph is not looked at.)
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "../include/cuda_on_cpu/streams.h"

namespace cuda_on_cpu {

// Of some streams, by their ids, how much of their work is done.
using Times = std::unordered_map<unsigned long long, unsigned long long>;

struct Touched {
    std::uintptr_t begin, end;
    bool written;
    bool freed = false;  // then written as well
};

// Work that has just been done in a stream. call: "cudaMemcpyAsync in line 3". Throws
// std::runtime_error if nothing puts it in order with other work that touches the same memory.
void note_work(cudaStream_t, const std::string& call, std::vector<Touched> touched);
// An array is about to be freed in a stream. What else touched it is then forgotten, for its memory
// may be another array's next.
void note_free(cudaStream_t, const std::string& call, std::uintptr_t begin, std::uintptr_t end);
void note_wait(cudaStream_t);  // the host has waited for a stream
void forget_work();            // for all, or a new function begins

// Whether it may matter which elements a kernel touches.
bool is_order_of_interest();

// Accesses of the host: what it must not do is told when the function ends.
extern bool host_must_wait;  // some work that it has not waited for touches the host's memory
void note_host_access(const void* address, std::size_t bytes, bool writes, const void* code);

}  // namespace cuda_on_cpu
