#include "memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stream_order.h"

namespace cuda_on_cpu {

// An array lies at the end of its pages:  [guard][pages ... array][guard]
// so an overrun faults at once, but for the rest of the last 16 bytes (vector loads want arrays
// aligned to 16). What is left of the pages on both sides is filled with a word: a read shows as
// NaN, a write is found when the launch has ended. Guards are address space without memory, so they may be large: an index that is
// off by some rows is caught as well.
constexpr std::size_t GUARD = 256 * 1024;

// On a GPU arrays begin at multiples of 256, tensors at 512. Here the end comes first: a page is the
// least that faults, so what is aligned so would have up to 511 bytes behind it in which a read off
// by one goes unnoticed in a run without checks, and that read is what learners get wrong. An array
// whose size is a multiple of 256 has both. A string that asks whether an address is a multiple of
// more than 16 (alignment.py), as few do, gets its arrays aligned from then on, and those of all the
// process with them: then a write behind the end is found when the launch has ended, as it is for
// the last 15 bytes, a read gives NaN, and only check=True finds it at once.
constexpr std::size_t OF_A_GPU = 512;
static std::atomic<std::size_t> alignment{16};
std::size_t alignment_of_arrays() { return alignment; }
bool align_arrays() { return alignment = OF_A_GPU, true; }

// Pages that an array has left are kept for the next one of about their size: mapping new ones
// takes microseconds, and their first use much more.
constexpr std::size_t LARGEST_KEPT = 32 << 20, KEPT_AT_MOST = 256 << 20;

// Linux allows a process some 65,000 mappings; a guarded array takes two. Arrays beyond this
// number go without a guard; where they lie is known all the same.
constexpr std::size_t GUARDED_AT_MOST = 8 * 1024;

// From here on an array is worth the question whether the machine has so much.
constexpr std::size_t LARGE = 64 << 20;

static std::size_t system_page() {
    static const std::size_t page = std::size_t(sysconf(_SC_PAGESIZE));
    return page;
}

struct Array {
    char* begin;
    std::size_t bytes;
    char* pages;
    std::size_t page_bytes, guard;  // guard: bytes on either side of the pages, or 0
    const char* owner;
    std::uint64_t beside;  // fills what is left of the pages
    int file = -1;  // that the pages are, once other processes may map them
    std::size_t number = 0;  // of those made

    char* front() const { return begin - std::size_t(begin - pages) % system_page(); }
    char* end() const { return begin + bytes; }
    char* pages_end() const { return pages + page_bytes; }
    bool is_near(const char* at) const { return at >= pages - guard && at < pages_end() + guard; }
    std::string text() const {
        return std::string(owner) + " of " + std::to_string(bytes) + " bytes";
    }
};

// A NaN for float and the 16-bit types. To compute with it changes it, and so does to copy it from
// one array to another: what a kernel writes there shows, even if it has read there before.
static std::uint64_t word_beside(std::size_t number) {
    constexpr std::uint64_t NANS = 0x7f80'7f80'7f80'7f80, EVEN = 0x0000'0001'0000'0001;
    constexpr unsigned DIGITS = 62;  // 1 to 62 below the bit that makes a NaN quiet
    return NANS + EVEN * (1 + number % DIGITS) + (EVEN << 16) * (1 + number / DIGITS % DIGITS);
}

struct Memory {
    std::mutex mutex;
    std::map<const char*, Array> arrays;  // by where they begin
    std::unordered_map<std::size_t, std::vector<char*>> kept;  // by page_bytes
    std::size_t kept_bytes = 0, mapped = 0, made = 0;
    std::vector<char*> readable;  // pages of guards, see let_read_past_the_end
    bool freed_stays_unused = false;
    std::vector<Array> freed;  // that stay so

    // Whose pages or guards the address lies in; null if nobody's.
    const Array* find(const void* address) const {
        auto* at = static_cast<const char*>(address);
        auto after = arrays.upper_bound(at);
        if (after != arrays.begin() && std::prev(after)->second.is_near(at))
            return &std::prev(after)->second;
        return after != arrays.end() && after->second.is_near(at) ? &after->second : nullptr;
    }
};

static Memory& memory() {
    static Memory* memory = new Memory;  // never destroyed: arrays outlive main()
    // A child process must not inherit a lock that nobody is left to open.
    static const int once = pthread_atfork([] { cuda_on_cpu::memory().mutex.lock(); },
                                           [] { cuda_on_cpu::memory().mutex.unlock(); },
                                           [] { cuda_on_cpu::memory().mutex.unlock(); });
    (void)once;
    return *memory;
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

static void fill(std::uint64_t word, char* begin, char* end) {
    constexpr std::size_t IN_CACHE = 4096;
    std::uint64_t first = filled_from(std::uintptr_t(begin), word);
    std::size_t bytes = std::size_t(end - begin), done = std::min(bytes, sizeof first);
    std::memcpy(begin, &first, done);
    while (done < bytes) {
        std::size_t more = std::min({done, bytes - done, IN_CACHE});
        std::memcpy(begin + done, begin, more);
        done += more;
    }
}

void fill_unwritten(void* array, std::size_t bytes) {
    fill(UNWRITTEN, static_cast<char*>(array), static_cast<char*>(array) + bytes);
}

static void* allocate_unguarded(Memory& m, std::size_t bytes, const char* owner) {
    void* array = nullptr;
    if (posix_memalign(&array, OF_A_GPU, bytes)) return nullptr;
    auto* begin = static_cast<char*>(array);
    m.arrays[begin] = {begin, bytes, begin, bytes, 0, owner, 0, -1, m.made++};
    fill_unwritten(array, bytes);
    return array;
}

static std::size_t number_in(const char* file, const char* name) {
    std::ifstream text(file);
    std::string word;
    std::size_t number = 0;
    while (text >> word)
        if (word == name) return text >> number ? number : 0;
    return 0;
}

// What a control group of processes, as a container is one, may still take.
static std::size_t left_to_group() {
    std::size_t limit = 0, used = 0;
    std::ifstream("/sys/fs/cgroup/memory.max") >> limit;  // "max" where there is none
    std::ifstream("/sys/fs/cgroup/memory.current") >> used;
    std::size_t cached = number_in("/sys/fs/cgroup/memory.stat", "file");  // given back when asked
    used -= std::min(used, cached);
    return limit ? limit - std::min(limit, used) : std::size_t(-1);
}

std::size_t available_bytes() {
    std::size_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
    return std::min(kilobytes ? kilobytes * 1024 : memory_bytes(true), left_to_group());
}

void* allocate(std::size_t bytes, const char* owner, std::size_t alignment) {
    if (bytes == 0) return nullptr;
    // All of it is filled below: the system would give its pages, and then end the process.
    if (bytes >= LARGE && bytes > available_bytes()) return nullptr;
    std::size_t room = (bytes + alignment - 1) / alignment * alignment;
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
    char* begin = pages + page_bytes - room;
    std::size_t number = m.made++;
    std::uint64_t beside = word_beside(number);
    Array array = m.arrays[begin] = {begin,  bytes, pages, page_bytes, GUARD,
                                     owner, beside, -1,    number};
    lock.unlock();
    fill(beside, array.front(), begin);
    fill(UNWRITTEN, begin, begin + bytes);
    fill(beside, begin + bytes, begin + room);
    return begin;
}

static bool is_shared(const Array& array) { return array.file >= 0 || array.owner == OF_PROCESS; }

static void keep_or_unmap(Memory& m, const Array& was) {
    if (is_shared(was)) {  // its pages are a file's
        unmap_pages(m, was.pages, was.page_bytes);
        if (was.file >= 0) close(was.file);
    } else if (was.page_bytes <= LARGEST_KEPT && m.kept_bytes + was.page_bytes <= KEPT_AT_MOST) {
        m.kept[was.page_bytes].push_back(was.pages);
        m.kept_bytes += was.page_bytes;
    } else {
        unmap_pages(m, was.pages, was.page_bytes);
    }
}

void release(void* array) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.arrays.find(static_cast<char*>(array));
    if (found == m.arrays.end()) return;
    Array was = found->second;
    m.arrays.erase(found);
    if (was.owner == OF_HOST)
        return;
    else if (!was.guard)
        std::free(array);
    else if (m.freed_stays_unused && !is_shared(was))
        m.freed.push_back(was);
    else
        keep_or_unmap(m, was);
}

void register_memory(void* start, std::size_t bytes) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* begin = static_cast<char*>(start);
    m.arrays.try_emplace(begin, Array{begin, bytes, begin, bytes, 0, OF_HOST, 0});
}

// Its pages become those of a file without a name, which ends with the last process that has it.
bool share(void* start, SharedArray* shared) {
#if defined(__linux__)
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.arrays.find(static_cast<char*>(start));
    if (found == m.arrays.end() || !found->second.guard) return false;
    Array& array = found->second;
    if (array.file < 0) {
        int file = memfd_create("device memory", MFD_CLOEXEC);
        if (file < 0) return false;
        std::size_t done = 0;
        while (done < array.page_bytes) {
            ssize_t more = write(file, array.pages + done, array.page_bytes - done);
            if (more <= 0) break;
            done += std::size_t(more);
        }
        void* pages = MAP_FAILED;
        if (done == array.page_bytes)
            pages = mmap(array.pages, array.page_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED, file, 0);
        if (pages == MAP_FAILED) return close(file), false;
        array.file = file;
    }
    struct stat about;
    if (fstat(array.file, &about)) return false;
    *shared = {getpid(), array.file, std::uint64_t(about.st_ino), array.page_bytes, array.bytes,
               std::size_t(array.begin - array.pages), array.beside};
    return true;
#else
    (void)start, (void)shared;
    return false;
#endif
}

void* map_shared(const SharedArray& shared) {
    std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
    int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    struct stat about;
    bool same = !fstat(file, &about) && about.st_ino == shared.number &&
                std::size_t(about.st_size) == shared.page_bytes;
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    char* pages = same ? map_pages(shared.page_bytes) : nullptr;
    void* mapped = MAP_FAILED;
    if (pages)
        mapped = mmap(pages, shared.page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    close(file);
    if (pages && mapped == MAP_FAILED) unmap_pages(pages, shared.page_bytes);
    if (mapped == MAP_FAILED) return nullptr;
    m.mapped++;
    char* begin = pages + shared.offset;
    m.arrays[begin] = {begin, shared.bytes, pages, shared.page_bytes, GUARD, OF_PROCESS, shared.beside};
    return begin;
}

bool release_from(const char* owner, void* array) {
    Memory& m = memory();
    {
        std::lock_guard<std::mutex> lock(m.mutex);
        auto found = m.arrays.find(static_cast<char*>(array));
        if (found == m.arrays.end() || std::strcmp(found->second.owner, owner)) return false;
    }
    release(array);
    return true;
}

std::size_t arrays_made() {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().made;
}

std::size_t release_newer(const char* owner, std::size_t made) {
    std::vector<char*> newer;
    {
        std::lock_guard<std::mutex> lock(memory().mutex);
        for (const auto& [begin, array] : memory().arrays)
            if (array.number >= made && !std::strcmp(array.owner, owner))
                newer.push_back(array.begin);
    }
    for (char* begin : newer) release(begin);
    return newer.size();
}

extern "C" CUDA_ON_CPU_API void cuda_on_cpu_keep_freed(bool unused) {
    forget_work();
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    m.freed_stays_unused = unused;
    if (unused) return;
    for (const Array& was : m.freed) keep_or_unmap(m, was);
    m.freed.clear();
}

bool was_freed(const void* address) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* at = static_cast<const char*>(address);
    for (const Array& was : m.freed)
        if (at >= was.pages && at < was.pages_end()) return true;
    for (const auto& [page_bytes, all] : m.kept)
        for (const char* pages : all)
            if (at >= pages && at < pages + page_bytes) return true;
    return false;
}

extern "C" CUDA_ON_CPU_API bool cuda_on_cpu_knows(const void* array) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    return m.arrays.count(static_cast<const char*>(array)) != 0;
}

// "x[52], " or "x[52] (also y[52]), ": what the launch's parameters call the element; or "".
// at: becomes where it begins.
static std::string element_names(const Array& array, const char*& at, const Launch& launch) {
    std::string names;
    const void* named = nullptr;
    for (unsigned i = 0; i < launch.parameter_count; i++) {
        const Parameter& parameter = launch.parameters[i];
        auto* pointer = static_cast<const char*>(parameter.pointer);
        bool points_here = pointer >= array.begin && pointer < array.end();
        if (!points_here || !*parameter.name || (named && named != pointer)) continue;
        named = pointer;
        auto size = std::ptrdiff_t(parameter.element_bytes), offset = at - pointer;
        std::ptrdiff_t index = offset / size - (offset % size < 0);
        std::string name = std::string(parameter.name) + "[" + std::to_string(index) + "]";
        if (names.empty()) at = pointer + index * size;
        names += names.empty() ? name : " (also " + name + ")";
    }
    return names.empty() ? "" : names + ", ";
}

static std::string describe_overrun(const Array& array, const char* at, const Launch& launch) {
    const char* element = at;
    std::string names = element_names(array, element, launch);
    if (element >= array.end() || at < array.begin) at = element;  // it may stick out of the array
    if (at >= array.end()) {
        auto past = at - array.end();
        return names + "byte " + std::to_string(at - array.begin) + " of " + array.text() + ": " +
               (past ? std::to_string(past) + " bytes past" : "the first byte past") + " its end";
    }
    if (at < array.begin)
        return names + std::to_string(array.begin - at) + " bytes before the start of " +
               array.text();
    return "";
}

std::string describe_overrun(const void* address, const Launch& launch) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    const Array* array = m.find(address);
    return array ? describe_overrun(*array, static_cast<const char*>(address), launch) : "";
}

std::string describe_written_padding(const void* address, const Launch& launch) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    const Array* array = m.find(address);
    if (!array || !array->guard) return "";
    auto first_written = [&](char* begin, char* end) -> char* {
        if (is_filled(std::uintptr_t(begin), std::size_t(end - begin), array->beside))
            return nullptr;
        char* at = begin;
        while (is_filled(std::uintptr_t(at), 1, array->beside)) at++;
        fill(array->beside, begin, end);
        return at;
    };
    char* at = first_written(array->end(), array->pages_end());
    if (!at) at = first_written(array->front(), array->begin);
    if (!at) return "";
    return "a thread writes " + describe_overrun(*array, at, launch) +
           ". check=True names the thread and the line.";
}

bool let_read_past_the_end(const void* address) {
    Memory& m = memory();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto* at = static_cast<const char*>(address);
    const Array* array = m.find(at);
    if (!array || !array->guard) return false;
    char* guard = array->pages_end();
    if (at < guard || at >= guard + system_page()) return false;
    if (std::find(m.readable.begin(), m.readable.end(), guard) == m.readable.end())
        m.readable.push_back(guard);
    return mprotect(guard, system_page(), PROT_READ) == 0;
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
    const Array* array = m.find(at);
    if (!array) return false;
    *found = {std::uintptr_t(array->begin), array->bytes, array->owner,
              at >= array->begin && at < array->end()};
    return true;
}

bool stays_inside(const void* start, std::size_t bytes, std::size_t host_bytes) {
    MemoryFound found;
    if (!bytes) return true;
    if (!find_memory(start, &found)) return bytes <= host_bytes;
    return found.inside && bytes <= found.begin + found.bytes - std::uintptr_t(start);
}

void check_access(const HostAccess& access, const void* start, std::size_t bytes,
                  std::size_t host_bytes) {
    auto fail = [&](const std::string& what) {
        std::string line = access.line ? " in line " + std::to_string(access.line) : "";
        throw std::runtime_error(access.call + line + " " + what);
    };
    auto count = [](std::size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); };
    std::string does = !access.line ? "uses " : access.writes ? "writes " : "reads ";
    does += count(bytes);
    MemoryFound found;
    if (!bytes) return;
    if (find_memory(start, &found)) {
        if (stays_inside(start, bytes, 0)) return;
        std::size_t at = std::uintptr_t(start) - found.begin;
        std::lock_guard<std::mutex> lock(memory().mutex);
        std::string array = memory().find(start)->text();
        if (std::uintptr_t(start) < found.begin) fail(does + " before the start of " + array + ".");
        fail(does + (at ? " from byte " + std::to_string(at) : "") + " of " + array + ": " +
             count(at + bytes - found.bytes) + " past its end.");
    }
    if (was_freed(start)) fail(does + " of an array that has been freed.");
    Dl_info module;
    bool is_variable = dladdr(start, &module);
    if (access.on_device && !is_variable)
        fail(does + ", as its direction says, of the device, but that memory is the host's.");
    if (bytes > host_bytes)
        fail(does + " of an array of the host that ends after " + count(host_bytes) + ".");
}

void check_library_access(const char* library, const void* start, std::size_t bytes) {
    if (!start && bytes) throw std::runtime_error(std::string(library) + " was given a null pointer.");
    check_access({library, 0, false, false}, start, bytes, ~std::size_t{0});
}

// A destructor must not throw, and it is destructors that free.
static std::string late_fault;

void tell_later(const std::string& sentence) {
    if (late_fault.empty()) late_fault = sentence;
}

std::string describe_place(std::uintptr_t address) {
    MemoryFound found;
    if (!find_memory(reinterpret_cast<void*>(address), &found)) return "memory";
    return "byte " + std::to_string(address - found.begin) + " of " + found.owner + " of " +
           std::to_string(found.bytes) + " bytes";
}

void report_bad_free(const void* pointer) {
    if (!late_fault.empty()) return;
    MemoryFound found;
    late_fault = "cudaFree frees ";
    if (was_freed(pointer))
        late_fault += "an array that has been freed already.";
    else if (!find_memory(pointer, &found))
        late_fault += "memory that is not from cudaMalloc.";
    else if (found.begin == std::uintptr_t(pointer))
        late_fault += "a tensor, which frees its memory itself.";
    else
        late_fault += "a pointer into the middle of an array, not to its beginning.";
}

extern "C" CUDA_ON_CPU_API const char* cuda_on_cpu_late_fault() {
    static std::string fault;
    fault = std::exchange(late_fault, "");
    if (!fault.empty()) cudaGetLastError();  // it has been told, and is nobody else's
    return fault.c_str();
}

// Which elements of an array hold one of these words. Of floats each is looked at: no computation
// gives such a NaN but from such a NaN. An integer may have any value, so there eight bytes have to
// be as they were, or the last four.
struct Unwritten {
    std::size_t count, first, beside, first_beside;
};

template <class Word>
static void find_unwritten(const char* array, std::size_t count, Unwritten& found) {
    constexpr int DIGITS = 8 * sizeof(Word);
    constexpr std::uint64_t FILLED = ~std::uint64_t{0} >> (64 - DIGITS), SIGN = 1ull << (DIGITS - 1);
    // What lies beside an array, but for its digits and for what computing with it changes.
    constexpr std::uint64_t SHARED = 0xffc0'ffc0'ffc0'ffc0 & FILLED & ~SIGN,
                            QUIET = sizeof(Word) == 4 ? 0x0040'0000 : 0,
                            BESIDE = 0x7f80'7f80'7f80'7f80 & FILLED & ~SIGN;
    for (std::size_t i = 0; i < count; i++) {
        Word word;
        std::memcpy(&word, array + i * sizeof word, sizeof word);
        std::uint64_t bits = word & ~SIGN;
        bool unwritten = false;
        for (unsigned shift = 0; shift < 64; shift += DIGITS)
            unwritten |= bits == (UNWRITTEN >> shift & FILLED);
        if (unwritten && !found.count++) found.first = i;
        bool beside = sizeof word == 4 && (bits & SHARED & ~QUIET) == BESIDE && bits << 48;
        if (beside && !found.beside++) found.first_beside = i;
    }
}

extern "C" CUDA_ON_CPU_API void cuda_on_cpu_find_unwritten(const char* array, std::size_t count,
                                                           std::size_t element_bytes,
                                                           bool of_floats, Unwritten* found) {
    if (of_floats && element_bytes == 8) return find_unwritten<std::uint64_t>(array, count, *found);
    if (of_floats && element_bytes == 4) return find_unwritten<std::uint32_t>(array, count, *found);
    if (of_floats && element_bytes == 2) return find_unwritten<std::uint16_t>(array, count, *found);
    std::size_t bytes = count * element_bytes, last = ~std::size_t{0};
    for (std::size_t at = 0; at < bytes;) {
        auto address = std::uintptr_t(array + at);
        std::size_t span = std::min(8 - address % 8, bytes - at);
        if (span >= 4 && is_filled(address, span, UNWRITTEN))
            for (std::size_t i = at / element_bytes; i * element_bytes < at + span; i++) {
                if (i == last) continue;
                if (!found->count++) found->first = i;
                last = i;
            }
        at += span;
    }
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
