// A checked launch, as all multiprocessors that work on it share it: which arrays there are and
// what they are called, and where in the kernel accesses stand.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../include/cuda_on_cpu/check.h"
#include "access.h"
#include "memory.h"
#include "order.h"
#include "shadow.h"
#include "stream_order.h"

namespace cuda_on_cpu {

struct KnownArray : KernelArray {
    std::unique_ptr<Shadow> shadow;
    bool only_read = false;  // by this kernel, so that no access to it can race

    explicit KnownArray(const KernelArray& array)
        : KernelArray(array), shadow(new Shadow(array.begin, array.bytes, array.element_bytes)) {}
    bool contains(std::uintptr_t address) const { return address - begin < bytes; }
};

struct Region {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    bool contains(std::uintptr_t address) const { return address - begin < bytes; }
};

KernelArray known_as(const DeclaredArray& array, bool shared);

// What is no error but worth a word: whoever called the launching function asks for it.
void remark(const std::string& sentence);

class Checks {
public:
    explicit Checks(const Launch& launch);

    const std::uint64_t number;  // of this launch, from 1
    Addresses addresses;

    // The tensor or __device__ variable that the address lies in; null if none is known, or if the
    // kernel has no pointer to it. bytes: of the access, and so of an element if no parameter
    // points to the array.
    KnownArray* find(std::uintptr_t address, unsigned bytes);
    void know(const KernelArray& array);  // as one that the kernel reaches
    bool is_of_no_interest(std::uintptr_t address, Region* region) const;

    // A number for the instruction before `code`, where the running thread is.
    unsigned site(const void* code);
    int line(unsigned site);
    static int line(const void* code);

    void forget(std::uintptr_t begin);  // an array that a kernel frees
    void forget_accesses();  // at a barrier of the grid

    // Whether nothing has been said yet about accesses of these two sites.
    bool remark_once(unsigned site, unsigned other);

    // The parameter that points to no memory which a kernel can reach, but just before the address.
    const Parameter* pointing_nowhere(std::uintptr_t address);
    // Whether a parameter says so of the array that the address lies in.
    const KnownArray* nearest_tensor(std::uintptr_t address);  // null if there is none

    // That the launch has ended, so that it may be asked which one wrote to an array.
    void note_end();
    bool keeps_reads() const { return keeps_reads_; }  // also of arrays that the kernel only reads
    std::vector<Touched> touched() const;              // by the launch

    // As the kernel's parameter that points into the array calls it; there may be several.
    KernelArray named(const KernelArray& array, std::uintptr_t address) const;

    // The parameter that is a texture or surface object; null if none is.
    const char* name_of(unsigned long long object) const;

    // "x[52]", or "x[52] (also y[52])" where two parameters are one pointer.
    std::string element_names(const KernelArray& array, std::uintptr_t address) const;

private:
    using Calls = std::vector<void*>;  // what they return to, the innermost first
    static Calls calls_to(const void* code);
    static int line(const Calls& calls);

    KnownArray* find_known(std::uintptr_t address);
    bool is_in_a_table(const MemoryFound& memory) const;

    const Launch& launch_;
    const bool keeps_reads_ = is_order_of_interest();
    bool parameters_tell_all_ = false;  // so what they or their tables do not reach, nobody does
    Region arguments_, module_;
    std::mutex mutex_;  // guards what follows
    std::deque<KnownArray> arrays_;
    std::size_t variables_ = 0;  // the first of the arrays, which are no tensors
    std::unordered_map<const void*, unsigned> site_numbers_;
    std::vector<Calls> sites_;
    std::set<std::pair<unsigned, unsigned>> remarked_;
};

bool is_constant(std::uintptr_t address);  // of a __constant__ variable whose module has named it

// "tile[3][5]"; an index may lie outside the array.
std::string element_text(const KernelArray& array, std::uintptr_t address);

// The memory of thread_local variables that the loaded library with this code has for the calling
// operating-system thread: its static __shared__ arrays.
Region thread_local_memory(const void* code);

// Whether all memory is known that a kernel may reach beside arrays.
#if defined(__linux__)
constexpr bool KNOWS_MODULES = true;
#else
constexpr bool KNOWS_MODULES = false;
#endif

}  // namespace cuda_on_cpu
