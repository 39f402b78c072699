#include "checks.h"

#if defined(__linux__)
#include <link.h>
#endif

#include <algorithm>
#include <atomic>

#include "faults.h"
#include "memory.h"

namespace cuda_on_cpu {

#if defined(__linux__)
// Calls `see` with what the loader knows of the library that the code belongs to.
template <class See>
static void with_library_of(const void* code, See see) {
    struct Search {
        std::uintptr_t code;
        See& see;
    } search{std::uintptr_t(code), see};
    InLoader here;
    dl_iterate_phdr(
        [](dl_phdr_info* library, std::size_t, void* data) {
            auto& search = *static_cast<Search*>(data);
            for (int i = 0; i < library->dlpi_phnum; i++) {
                const auto& part = library->dlpi_phdr[i];
                if (part.p_type == PT_LOAD &&
                    search.code - (library->dlpi_addr + part.p_vaddr) < part.p_memsz) {
                    search.see(*library);
                    return 1;
                }
            }
            return 0;
        },
        &search);
}

static Region memory_of_library(const void* code) {
    std::uintptr_t begin = ~std::uintptr_t{0}, end = 0;
    with_library_of(code, [&](const dl_phdr_info& library) {
        for (int i = 0; i < library.dlpi_phnum; i++) {
            const auto& part = library.dlpi_phdr[i];
            if (part.p_type != PT_LOAD) continue;
            begin = std::min(begin, std::uintptr_t(library.dlpi_addr + part.p_vaddr));
            end = std::max(end, std::uintptr_t(library.dlpi_addr + part.p_vaddr + part.p_memsz));
        }
    });
    return begin < end ? Region{begin, end - begin} : Region{};
}

Region thread_local_memory(const void* code) {
    Region region;
    with_library_of(code, [&](const dl_phdr_info& library) {
        for (int i = 0; i < library.dlpi_phnum; i++)
            if (library.dlpi_phdr[i].p_type == PT_TLS && library.dlpi_tls_data)
                region = {std::uintptr_t(library.dlpi_tls_data), library.dlpi_phdr[i].p_memsz};
    });
    return region;
}
#else
static Region memory_of_library(const void*) { return {}; }
Region thread_local_memory(const void*) { return {}; }
#endif

KernelArray known_as(const DeclaredArray& array, bool shared) {
    auto begin = std::uintptr_t(array.begin);
    KernelArray known{begin, array.bytes, shared, array.name, begin, array.element_bytes,
                      std::min(array.rank, MAX_RANK), {}, array.of_numbers};
    std::copy_n(array.extents, known.rank, known.extents);
    return known;
}

// The __device__ variables of all modules, which name them while they are loaded.
struct Variables {
    std::mutex mutex;
    std::vector<KernelArray> all;
};

static Variables& variables() {
    static Variables variables;
    return variables;
}

void name_variable(const DeclaredArray& array, bool constant) {
    std::lock_guard<std::mutex> lock(variables().mutex);
    variables().all.push_back(known_as(array, false));
    variables().all.back().constant = constant;
}

bool is_constant(std::uintptr_t address) {
    std::lock_guard<std::mutex> lock(variables().mutex);
    const auto& all = variables().all;
    return std::any_of(all.begin(), all.end(), [=](const KernelArray& variable) {
        return variable.constant && address - variable.begin < variable.bytes;
    });
}

static std::atomic<bool> pointers_in_symbols{false};

void note_pointer_in_symbol() { pointers_in_symbols = true; }

static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

// Functions of class types copy themselves from the launching thread's copy of an argument. clang
// also tells of what our headers read on that thread's stack, near `arguments`.
static Region arguments_of(const Launch& launch) {
#if defined(__clang__)
    constexpr std::size_t AROUND = 16 * 1024;
    return {std::uintptr_t(launch.arguments) - AROUND, 2 * AROUND};
#else
    return {std::uintptr_t(launch.arguments), launch.argument_bytes};
#endif
}

Checks::Checks(const Launch& launch)
    : number(next_number()),
      launch_(launch),
      arguments_(arguments_of(launch)),
      module_(memory_of_library(reinterpret_cast<void*>(launch.run_threads))) {
    sites_.emplace_back();  // number 0: unknown
    {
        std::lock_guard<std::mutex> lock(variables().mutex);
        for (const KernelArray& variable : variables().all)
            if (module_.contains(variable.begin)) arrays_.emplace_back(variable);
    }
    variables_ = arrays_.size();
    bool tell_all = !pointers_in_symbols;
    for (unsigned i = 0; i < launch.parameter_count; i++) {
        const Parameter& parameter = launch.parameters[i];
        tell_all &= !parameter.may_hold_pointers;
        if (parameter.pointer) find(std::uintptr_t(parameter.pointer), 1);
    }
    parameters_tell_all_ = tell_all;
    for (std::size_t a = variables_; a < arrays_.size(); a++) {
        arrays_[a].only_read = tell_all;
        for (unsigned i = 0; i < launch.parameter_count; i++)
            if (arrays_[a].contains(std::uintptr_t(launch.parameters[i].pointer)))
                arrays_[a].only_read &= launch.parameters[i].only_read;
    }
}

void Checks::forget(std::uintptr_t begin) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (KnownArray& array : arrays_)
        if (array.begin == begin) array.bytes = 0;
}

KnownArray* Checks::find_known(std::uintptr_t address) {
    for (KnownArray& array : arrays_)
        if (array.contains(address)) return &array;
    return nullptr;
}

KnownArray* Checks::find(std::uintptr_t address, unsigned bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (KnownArray* known = find_known(address)) return known;
    MemoryFound found;
    if (!find_memory(reinterpret_cast<void*>(address), &found) || !found.inside) return nullptr;
    if (parameters_tell_all_ && found.owner != FROM_NEW && !is_in_a_table(found)) return nullptr;
    KernelArray array{found.begin, found.bytes, false, "", found.begin, bytes, 1, {}, false};
    arrays_.emplace_back(named(array, address));
    return &arrays_.back();
}

void Checks::know(const KernelArray& array) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (find_known(array.begin)) return;
    MemoryFound found;
    KernelArray whole = array;  // linear memory is a part of an array
    if (!*array.name && find_memory(reinterpret_cast<void*>(array.begin), &found))
        whole.begin = found.begin, whole.bytes = found.bytes;
    arrays_.emplace_back(named(whole, array.begin));
}

// Whether an array of 64-bit numbers, as tensors are that hold pointers, has one into this memory.
bool Checks::is_in_a_table(const MemoryFound& memory) const {
    for (const KnownArray& array : arrays_) {
        if (array.element_bytes != sizeof(void*) || array.begin % sizeof(void*)) continue;
        auto* begin = reinterpret_cast<const std::uintptr_t*>(array.begin);
        auto* end = begin + array.bytes / sizeof(void*);
        auto points_in = [&](std::uintptr_t p) { return p - memory.begin < memory.bytes; };
        if (std::any_of(begin, end, points_in)) return true;
    }
    return false;
}

const KnownArray* Checks::nearest_tensor(std::uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto distance = [&](const KnownArray& array) {
        return address < array.begin ? array.begin - address : address - array.begin;
    };
    auto nearest = std::min_element(
        arrays_.begin() + std::ptrdiff_t(variables_), arrays_.end(),
        [&](const KnownArray& a, const KnownArray& b) { return distance(a) < distance(b); });
    return nearest == arrays_.end() ? nullptr : &*nearest;
}

// Of a kernel that is launched through a pointer only the positions of its arguments are known.
static const char* argument_name(std::ptrdiff_t index) {
    static const auto* names = [] {
        auto* all = new std::vector<std::string>;
        for (unsigned i = 1; i <= 128; i++) all->push_back("argument " + std::to_string(i));
        return all;
    }();
    return std::size_t(index) < names->size() ? (*names)[std::size_t(index)].c_str() : "";
}

const Parameter* Checks::pointing_nowhere(std::uintptr_t address) {
    constexpr std::size_t FAR = std::size_t{1} << 32;
    const Parameter* nearest = nullptr;
    MemoryFound found;
    for (unsigned i = 0; i < launch_.parameter_count; i++) {
        const Parameter& p = launch_.parameters[i];
        if (!p.pointer || address - std::uintptr_t(p.pointer) >= FAR) continue;
        bool is_known = find_memory(p.pointer, &found) || module_.contains(std::uintptr_t(p.pointer));
        if (!is_known && (!nearest || p.pointer > nearest->pointer)) nearest = &p;
    }
    return nearest;
}

KernelArray Checks::named(const KernelArray& array, std::uintptr_t address) const {
    const Parameter* best = nullptr;
    auto before = [&](const Parameter& p) { return std::uintptr_t(p.pointer) <= address; };
    for (unsigned i = 0; i < launch_.parameter_count; i++) {
        const Parameter& p = launch_.parameters[i];
        if (std::uintptr_t(p.pointer) - array.begin >= array.bytes) continue;
        bool better = !best || (before(p) && (!before(*best) || p.pointer > best->pointer));
        if (better) best = &p;
    }
    KernelArray result = array;
    if (!best || array.shared) return result;
    result.name = *best->name ? best->name : argument_name(best - launch_.parameters);
    result.first = std::uintptr_t(best->pointer);
    result.element_bytes = best->element_bytes;
    result.rank = best->rank;
    std::copy_n(best->extents, best->rank > 1 ? best->rank : 0, result.extents);
    return result;
}

const char* Checks::name_of(unsigned long long object) const {
    for (unsigned i = 0; i < launch_.parameter_count; i++) {
        const Parameter& p = launch_.parameters[i];
        if (p.number == object) return *p.name ? p.name : argument_name(&p - launch_.parameters);
    }
    return nullptr;
}

std::string Checks::element_names(const KernelArray& array, std::uintptr_t address) const {
    KernelArray called = named(array, address);
    std::string names = element_text(called, address);
    for (unsigned i = 0; i < launch_.parameter_count && !array.shared; i++) {
        const Parameter& p = launch_.parameters[i];
        bool is_other = std::uintptr_t(p.pointer) == called.first && *p.name &&
                        std::strcmp(p.name, called.name);
        if (!is_other || p.element_bytes != called.element_bytes) continue;
        called.name = p.name;
        names += " (also " + element_text(called, address) + ")";
    }
    return names;
}

bool Checks::is_of_no_interest(std::uintptr_t address, Region* region) const {
    for (const Region& boring : {arguments_, module_})
        if (boring.contains(address)) {
            *region = boring;
            return true;
        }
    return false;
}

// The latest launch since remarks were taken that may have written to an array.
struct Writer {
    KernelArray array;
    std::string launch;
    std::uint64_t threads;
};

struct Remarks {
    std::mutex mutex;
    std::string all;  // one to a line
    std::vector<Writer> writers;
};

static Remarks& remarks() {
    static auto* remarks = new Remarks;  // a program asks for them at its very end
    return *remarks;
}

void remark(const std::string& sentence) {
    std::lock_guard<std::mutex> lock(remarks().mutex);
    remarks().all += sentence + "\n";
}

// Valid until the calling thread asks again.
extern "C" CUDA_ON_CPU_API const char* cuda_on_cpu_take_remarks() {
    static thread_local std::string taken;
    std::lock_guard<std::mutex> lock(remarks().mutex);
    taken = std::move(remarks().all);
    remarks().all.clear();
    remarks().writers.clear();
    return taken.c_str();
}

// A sentence on an element of a tensor that no kernel has written, the first of `unwritten`; "" if
// no checked kernel since the last remarks could write to the tensor. Valid like those.
extern "C" CUDA_ON_CPU_API const char* cuda_on_cpu_who_left(const void* element,
                                                            std::uint64_t unwritten,
                                                            std::uint64_t elements) {
    static thread_local std::string sentence;
    sentence.clear();
    std::lock_guard<std::mutex> lock(remarks().mutex);
    for (const Writer& writer : remarks().writers) {
        if (std::uintptr_t(element) - writer.array.begin >= writer.array.bytes) continue;
        sentence = writer.launch + ": " + std::to_string(writer.threads) +
                   (writer.threads == 1 ? " thread runs" : " threads run") + ", and nobody writes " +
                   element_text(writer.array, std::uintptr_t(element)) + ". " +
                   std::to_string(unwritten) + " of the tensor's " + std::to_string(elements) +
                   " elements were never written" +
                   (writer.threads < elements ? ": is the grid too small?" : ".");
    }
    return sentence.c_str();
}

std::vector<Touched> Checks::touched() const {
    std::vector<Touched> all;
    for (const KnownArray& array : arrays_) {
        const unsigned bytes = array.shadow->cell_bytes();
        const Cells cells = array.shadow->cells();
        for (std::size_t i = 0; i < array.bytes / bytes; i++) {
            bool written = cells[i].write().exists();
            if (!written && !cells[i].read().exists()) continue;
            std::uintptr_t begin = array.begin + i * bytes;
            bool goes_on = !all.empty() && all.back().end == begin && all.back().written == written;
            if (goes_on) all.back().end += bytes;
            else all.push_back({begin, begin + bytes, written});
        }
    }
    return all;
}

void Checks::note_end() {
    const dim3 grid = launch_.grid, block = launch_.block;
    std::uint64_t threads = std::uint64_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z;
    std::lock_guard<std::mutex> lock(remarks().mutex);
    auto& writers = remarks().writers;
    for (std::size_t a = variables_; a < arrays_.size(); a++) {
        const KnownArray& array = arrays_[a];
        if (array.only_read) continue;
        writers.erase(std::remove_if(writers.begin(), writers.end(),
                                     [&](const Writer& earlier) {
                                         return earlier.array.begin == array.begin;
                                     }),
                      writers.end());
        writers.push_back({named(array, array.first), text(launch_), threads});
    }
}

bool Checks::remark_once(unsigned site, unsigned other) {
    std::lock_guard<std::mutex> lock(mutex_);
    return remarked_.insert({site, other}).second;
}

void Checks::forget_accesses() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (KnownArray& array : arrays_) array.shadow->forget();
}

unsigned Checks::site(const void* code) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = site_numbers_.find(code);
    if (known != site_numbers_.end()) return known->second;
    if (sites_.size() == Mark::SITES) return 0;
    sites_.push_back(calls_to(code));
    return site_numbers_[code] = unsigned(sites_.size() - 1);
}

// A function of our headers that was not inlined has no line of the learner's: its caller has.
int Checks::line(const Calls& calls) {
    for (void* returns_to : calls)
        if (int line = source_line(static_cast<char*>(returns_to) - 1)) return line;
    return 0;
}

int Checks::line(const void* code) { return line(calls_to(code)); }

Checks::Calls Checks::calls_to(const void* code) {
    Calls calls = running_calls();
    calls.erase(calls.begin(), std::find(calls.begin(), calls.end(), code));
    if (calls.empty()) calls.push_back(const_cast<void*>(code));
    return calls;
}

int Checks::line(unsigned number) {
    Calls calls;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        calls = sites_[number];
    }
    return number ? line(calls) : 0;
}

std::string element_text(const KernelArray& array, std::uintptr_t address) {
    std::string text = *array.name ? array.name : "array";
    auto offset = std::intptr_t(address - array.first);
    if (array.rank == 0) return offset ? text + " + " + std::to_string(offset) + " bytes" : text;
    auto divide = [](std::intptr_t a, std::intptr_t b) {  // rounds down
        return a / b - (a % b < 0);
    };
    std::intptr_t index = divide(offset, std::intptr_t(array.element_bytes)), inner = 1;
    for (unsigned i = 1; i < array.rank; i++) inner *= std::intptr_t(array.extents[i]);
    for (unsigned i = 0; i < array.rank; i++) {
        text += "[" + std::to_string(divide(index, inner)) + "]";
        index -= divide(index, inner) * inner;
        if (i + 1 < array.rank) inner /= std::intptr_t(array.extents[i + 1]);
    }
    return text;
}

}  // namespace cuda_on_cpu
