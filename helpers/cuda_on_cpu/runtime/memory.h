// Memory that faults where an array ends. Reading or writing past the end of an array is the most
// common error of a kernel, and on a GPU it often goes unnoticed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

// Whose guard an address lies in: "byte 208 of a tensor of 200 bytes: 8 bytes past its end"; or "".
std::string describe_overrun(const void* address);

// Libraries such as MKL load whole vectors and use only what lies in the array. Lets what runs
// outside a kernel read the page that follows an array, until the next launch; false elsewhere.
bool let_read_past_the_end(const void* address);
void guard_ends_again();

// The array that the address lies in, or in whose guard or rest of a page (then not `inside`).
struct MemoryFound {
    std::uintptr_t begin;
    std::size_t bytes;
    bool inside;
};
bool find_memory(const void* address, MemoryFound* found);

}  // namespace cuda_on_cpu
