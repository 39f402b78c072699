// Memory that faults where an array ends. Reading or writing past the end of an array is the most
// common error of a kernel, and on a GPU it often goes unnoticed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../include/cuda_on_cpu/runtime.h"

namespace cuda_on_cpu {

// What an array holds until something is written to it: a NaN in every floating type, with digits
// that no computation gives. Zeros would make many a wrong kernel look right.
constexpr std::uint64_t UNWRITTEN = 0x7ffa'7fe6'7fed'7fda;

// The eight bytes from the address on, where the word fills all memory.
inline std::uint64_t filled_from(std::uintptr_t address, std::uint64_t word) {
    unsigned bits = address % 8 * 8;
    return word >> bits | word << (-bits & 63);
}
inline bool is_filled(std::uintptr_t address, std::size_t bytes, std::uint64_t word) {
    std::uint64_t there = filled_from(address, word);
    auto* at = reinterpret_cast<const char*>(address);
    for (; bytes >= sizeof there; bytes -= sizeof there, at += sizeof there)
        if (std::memcmp(at, &there, sizeof there)) return false;
    return std::memcmp(at, &there, bytes) == 0;
}
void fill_unwritten(void* array, std::size_t bytes);

// Whose guard an address lies in: "x[52], byte 208 of a tensor of 200 bytes: 8 bytes past its end";
// or "". x is what the launch's parameter is called.
std::string describe_overrun(const void* address, const Launch& launch);

// What a launch wrote to the bytes beside the array at this address that do not fault: a sentence,
// or "". They are then as they were.
std::string describe_written_padding(const void* address, const Launch& launch);

// Libraries such as MKL load whole vectors and use only what lies in the array. Lets what runs
// outside a kernel read the page that follows an array, until the next launch; false elsewhere.
bool let_read_past_the_end(const void* address);
void guard_ends_again();

// The array that the address lies in, or in whose guard or rest of a page (then not `inside`).
struct MemoryFound {
    std::uintptr_t begin;
    std::size_t bytes;
    const char* owner;
    bool inside;
};
bool find_memory(const void* address, MemoryFound* found);

constexpr char FROM_NEW[] = "an array that a kernel allocated";
constexpr char OF_PROCESS[] = "an array of another process";
constexpr char OF_HOST[] = "registered memory of the host";
bool release_from(const char* owner, void* array);  // false if no array of the owner begins there
std::size_t arrays_made();  // so far
// Those of the owner that are newer than when so many had been made; returns their number.
std::size_t release_newer(const char* owner, std::size_t made);
void release_newer_of_kernels(std::size_t made);  // likewise, what kernels allocated
void register_memory(void* start, std::size_t bytes);  // of the program, until release()

// An array as another process finds it: a file of one that runs. false, null: that is not possible.
struct SharedArray {
    int process, file;
    std::uint64_t number;  // of the file, lest it is another one by now
    std::size_t page_bytes, bytes, offset;  // offset: of the array in its pages
    std::uint64_t beside;
};
bool share(void* array, SharedArray*);
void* map_shared(const SharedArray&);  // until release()

// What a call of the host is about to do to memory.
struct HostAccess {
    const char* call;  // "cudaMemcpy"
    int line;  // 0: unknown, and whether it reads or writes
    bool writes, on_device;
};
// Whether `bytes` from `start` on stay inside the array that `start` lies in, as far as it is
// known. host_bytes: that an array of the host has from there on, or the largest number.
bool stays_inside(const void* start, std::size_t bytes, std::size_t host_bytes);
// Throws std::runtime_error, if a call does not stay inside or takes the host's memory for the
// device's.
void check_access(const HostAccess&, const void* start, std::size_t bytes, std::size_t host_bytes);
void report_bad_free(const void*);  // when the function of the host has returned
void tell_later(const std::string& sentence);  // likewise
std::string describe_place(std::uintptr_t address);  // "byte 8 of an array from cudaMalloc ..."
bool was_freed(const void* address);  // and has not been used again

}  // namespace cuda_on_cpu
