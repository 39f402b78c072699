#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../include/cuda_on_cpu/runtime.h"

namespace cuda_on_cpu {

// An array lies at the end of its pages:  [guard][pages ... array][guard]
// so an overrun faults at once, but for the rest of the last 16 bytes (vector loads want arrays
// aligned to 16). Guards are address space without memory, so they may be large: an index that is
// off by some rows is caught as well.
constexpr std::size_t GUARD = 256 * 1024, ALIGNMENT = 16;

// What is left of the array's first and last page does not fault. A kernel that reads there gets
// bytes which are a NaN in every floating type; zeros would make many a wrong kernel look right.
constexpr int NOT_A_NUMBER = 0xff;
constexpr std::size_t PAGE = 4096;  // or more, on some systems

// Pages that an array has left are kept for the next one of about their size: mapping new ones
// takes microseconds, and their first use much more.
constexpr std::size_t LARGEST_KEPT = 32 << 20, KEPT_AT_MOST = 256 << 20;

// Linux allows a process some 65,000 mappings; a guarded array takes two. Arrays beyond this
// number go without a guard; where they lie is known all the same.
constexpr std::size_t GUARDED_AT_MOST = 8 * 1024;

struct Array {
    char* pages;
    std::size_t page_bytes, bytes, guard;  // guard: bytes on either side of the pages, or 0
    const char* owner;

    char* end() const { return pages + page_bytes; }
    bool is_near(const char* at) const { return at >= pages - guard && at < end() + guard; }
};

struct Memory {
    std::mutex mutex;
    std::unordered_map<void*, Array> arrays;
    std::unordered_map<std::size_t, std::vector<char*>> kept;  // by page_bytes
    std::size_t kept_bytes = 0, mapped = 0;
    std::vector<char*> readable;  // pages of guards, see let_read_past_the_end
};

static Memory& memory() {
    static Memory* memory = [] {
        auto* made = new Memory;  // never destroyed: arrays outlive main()
        made->arrays.reserve(1024);
        return made;
    }();
    // A child process must not inherit a lock that nobody is left to open.
    static const int once = pthread_atfork([] { cuda_on_cpu::memory().mutex.lock(); },
                                           [] { cuda_on_cpu::memory().mutex.unlock(); },
                                           [] { cuda_on_cpu::memory().mutex.unlock(); });
    (void)once;
    return *memory;
}

static std::size_t system_page() {
    static const std::size_t page = std::size_t(sysconf(_SC_PAGESIZE));
    return page;
}

// Whole pages, with at most a quarter to spare, so that few sizes serve all.
static std::size_t round_to_size_class(std::size_t bytes) {
    std::size_t step = system_page();
    while (bytes > 8 * step) step *= 2;
    return (bytes + step - 1) / step * step;
}

static char* map_pages(std::size_t bytes) {
    void* all = mmap(nullptr, bytes + 2 * GUARD, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    char* pages = static_cast<char*>(all) + GUARD;
    if (mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0) return pages;
    munmap(all, bytes + 2 * GUARD);
    return nullptr;
}

static void unmap_pages(char* pages, std::size_t bytes) {
    munmap(pages - GUARD, bytes + 2 * GUARD);
}

static void unmap_pages(Memory& m, char* pages, std::size_t bytes) {
    m.mapped--;
    m.readable.erase(std::remove(m.readable.begin(), m.readable.end(), pages + bytes),
                     m.readable.end());
    unmap_pages(pages, bytes);
}

// Makes room for one mapping, of whatever size.
static void unmap_one_kept(Memory& m) {
    for (auto& [page_bytes, pages] : m.kept) {
        if (pages.empty()) continue;
        unmap_pages(m, pages.back(), page_bytes);
        pages.pop_back();
        m.kept_bytes -= page_bytes;
        return;
    }
}

static void* allocate_unguarded(Memory& m, std::size_t bytes, const char* owner) {
    void* array = nullptr;
    if (posix_memalign(&array, 64, bytes)) return nullptr;
    m.arrays[array] = {static_cast<char*>(array), bytes, bytes, 0, owner};
    return array;
}

void* allocate(std::size_t bytes, const char* owner) {
    if (bytes == 0) return nullptr;
    std::size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    std::size_t page_bytes = round_to_size_class(room);
    Memory& m = memory();
    std::unique_lock<std::mutex> lock(m.mutex);
    char* pages = nullptr;
    auto same_size = m.kept.find(page_bytes);
    if (same_size != m.kept.end() && !same_size->second.empty()) {
        pages = same_size->second.back();
        same_size->second.pop_back();
        m.kept_bytes -= page_bytes;
    } else {
        if (m.mapped == GUARDED_AT_MOST) unmap_one_kept(m);
        if (m.mapped < GUARDED_AT_MOST) pages = map_pages(page_bytes);
        if (pages) m.mapped++;
    }
    if (!pages) return allocate_unguarded(m, bytes, owner);
    char* array = pages + page_bytes - room;
    m.arrays[array] = {pages, page_bytes, bytes, GUARD, owner};
    lock.unlock();
    std::size_t in_front = std::size_t(array - pages) % PAGE;
    std::memset(array - in_front, NOT_A_NUMBER, in_front);
    std::memset(array + bytes, NOT_A_NUMBER, room - bytes);
    return array;
}

void release(void* array) {
    if (!array) return;
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.arrays.find(array);
    if (found == m.arrays.end()) return;
    Array was = found->second;
    m.arrays.erase(found);
    if (!was.guard) {
        std::free(array);
    } else if (was.page_bytes <= LARGEST_KEPT && m.kept_bytes + was.page_bytes <= KEPT_AT_MOST) {
        m.kept[was.page_bytes].push_back(was.pages);
        m.kept_bytes += was.page_bytes;
    } else {
        unmap_pages(m, was.pages, was.page_bytes);
    }
}

bool fits(const void* array, std::size_t bytes) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.arrays.find(const_cast<void*>(array));
    return found == m.arrays.end() || bytes <= found->second.bytes;
}

extern "C" CUDA_ON_CPU_API bool cuda_on_cpu_knows(const void* array) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    return m.arrays.count(const_cast<void*>(array)) != 0;
}

std::string describe_overrun(const void* address) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* at = static_cast<const char*>(address);
    for (const auto& entry : m.arrays) {
        auto* start = static_cast<const char*>(entry.first);
        const Array& array = entry.second;
        const char* end = start + array.bytes;
        std::string whose = std::string(array.owner) + " of " + std::to_string(array.bytes) + " bytes";
        if (at >= end && array.is_near(at))
            return "byte " + std::to_string(at - start) + " of " + whose + ": " +
                   std::to_string(at - end) + " bytes past its end";
        if (at < start && array.is_near(at))
            return std::to_string(start - at) + " bytes before the start of " + whose;
    }
    return "";
}

bool let_read_past_the_end(const void* address) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* at = static_cast<const char*>(address);
    for (const auto& entry : m.arrays) {
        char* guard = entry.second.end();
        if (!entry.second.guard || at < guard || at >= guard + system_page()) continue;
        if (std::find(m.readable.begin(), m.readable.end(), guard) == m.readable.end())
            m.readable.push_back(guard);
        return mprotect(guard, system_page(), PROT_READ) == 0;
    }
    return false;
}

void guard_ends_again() {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    for (char* guard : m.readable) mprotect(guard, system_page(), PROT_NONE);
    m.readable.clear();
}

bool find_memory(const void* address, MemoryFound* found) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* at = static_cast<const char*>(address);
    for (const auto& entry : m.arrays) {
        auto* start = static_cast<const char*>(entry.first);
        const Array& array = entry.second;
        if (!array.is_near(at)) continue;
        *found = {std::uintptr_t(start), array.bytes, at >= start && at < start + array.bytes};
        return true;
    }
    return false;
}

bool stays_inside(const void* start, std::size_t bytes) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* at = static_cast<const char*>(start);
    for (const auto& entry : m.arrays) {
        auto* array = static_cast<const char*>(entry.first);
        const char* end = array + entry.second.bytes;
        if (array <= at && at < end) return bytes <= std::size_t(end - at);
    }
    return true;
}

std::size_t memory_bytes(bool free_only) {
#if defined(_SC_AVPHYS_PAGES)
    long pages = sysconf(free_only ? _SC_AVPHYS_PAGES : _SC_PHYS_PAGES);
#else
    (void)free_only;
    long pages = sysconf(_SC_PHYS_PAGES);
#endif
    return std::size_t(pages) * std::size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace cuda_on_cpu
