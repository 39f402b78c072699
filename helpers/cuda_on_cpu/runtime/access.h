// One access of a kernel to memory, as the checks and the counter get to know it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

enum class AccessKind : unsigned char { load, store, atomic };

// What an access goes through. Linear memory of a texture is also global memory.
enum class MemorySpace : unsigned char { global, shared, texture, surface };

constexpr unsigned MAX_RANK = 4;

// An array that the kernel can reach: a tensor (or other memory from allocate()) or a __shared__ array.
struct KernelArray {
    std::uintptr_t begin;        // of the tensor's storage, which may be before the kernel's pointer
    std::size_t bytes;
    bool shared;
    const char* name;            // of the kernel's parameter, or of the shared array; "" if unknown
    std::uintptr_t first;        // the address of name[0]
    std::size_t element_bytes;
    unsigned rank;               // number of indices; a shared scalar has none
    std::size_t extents[MAX_RANK];
    bool of_numbers;             // no structure with padding lies in it, as far as it is known
    bool constant = false;       // __constant__: no kernel writes to it, and it has a cache of its own
};

struct Access {
    const void* code;          // return address of the hook: the instruction behind the access
    std::uint64_t place;       // hash of the call path and of each open loop's iteration: lanes with
                               // the same code and place belong to one request of their warp
    std::uintptr_t address;
    unsigned bytes;
    AccessKind kind;
    const KernelArray* array;  // alive until the launch has ended
    unsigned thread;           // in its block
    MemorySpace space;
    const char* name;          // of what is accessed: the array's, or that of a texture object
};

}  // namespace cuda_on_cpu
