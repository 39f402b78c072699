#include "counter.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "faults.h"

namespace cuda_on_cpu {

// ---------------------------------------------------------------- what the lanes of a warp do

template <class Entry>
void WarpLog<Entry>::clear(std::vector<std::vector<Entry>>& pool) {
    if (entries_.capacity()) pool.push_back(std::move(entries_));
    entries_.clear();
    seen_ = 0;
    first_ = Visit::NONE;
    if (indexed_) std::fill(slots_.begin(), slots_.end(), Visit::NONE);
    indexed_ = 0;
}

template <class Entry>
Entry& WarpLog<Entry>::look_up(const void* code, std::uint64_t place, unsigned lane,
                                std::vector<std::vector<Entry>>& pool) {
    std::uint32_t bit = 1u << lane, at = Visit::NONE;
    if (seen_ & ~bit) {
        index_new_entries();
        at = slot(code, place);
        while (at != Visit::NONE && entries_[at].lanes & bit) at = entries_[at].again;
    }
    if (at == Visit::NONE) {
        if (entries_.empty() && !pool.empty()) {
            entries_ = std::move(pool.back());
            entries_.clear();
            pool.pop_back();
        }
        at = std::uint32_t(entries_.size());
        entries_.emplace_back(code, place);
    }
    *successor(lane) = at;
    last_[lane] = at;
    seen_ |= bit;
    entries_[at].lanes |= bit;
    return entries_[at];
}

template <class Entry>
void WarpLog<Entry>::index_new_entries() {
    if (slots_.size() < 2 * (entries_.size() + 1)) {
        slots_.assign(std::max<std::size_t>(1024, 4 * slots_.size()), Visit::NONE);
        while (slots_.size() < 2 * (entries_.size() + 1))
            slots_.resize(2 * slots_.size(), Visit::NONE);
        indexed_ = 0;
    }
    for (; indexed_ < entries_.size(); indexed_++) {
        std::uint32_t* end = &slot(entries_[indexed_].code, entries_[indexed_].place);
        while (*end != Visit::NONE && *end != indexed_) end = &entries_[*end].again;
        *end = std::uint32_t(indexed_);
    }
}

// Where the first entry with this code and place stands in the hash table, or would stand.
template <class Entry>
std::uint32_t& WarpLog<Entry>::slot(const void* code, std::uint64_t place) {
    std::uint64_t hash = (place ^ reinterpret_cast<std::uintptr_t>(code)) * 0x9e3779b97f4a7c15u;
    std::size_t mask = slots_.size() - 1, i = hash >> 32 & mask;
    while (slots_[i] != Visit::NONE &&
           (entries_[slots_[i]].code != code || entries_[slots_[i]].place != place))
        i = (i + 1) & mask;
    return slots_[i];
}

// ---------------------------------------------------------------- what its requests cost

RequestCost RecentCosts::of(MemoryRequest& request) {
    if (request.is_fetch()) return work_out(request);
    std::uint64_t base = request.offset[__builtin_ctz(request.lanes)], different = 0;
    for (std::uint32_t idle = ~request.lanes; idle; idle &= idle - 1)
        request.offset[__builtin_ctz(idle)] = base;
    for (unsigned i = 0; i < WARP_SIZE; i++) different |= (request.offset[i] - base) ^ pattern_[i];
    if (different || pattern_lanes_ != request.lanes || pattern_bytes_ != request.bytes) {
        pattern_lanes_ = request.lanes;
        pattern_bytes_ = request.bytes;
        known_ = 0;
        for (unsigned i = 0; i < WARP_SIZE; i++) pattern_[i] = request.offset[i] - base;
    }
    unsigned phase = unsigned(base % SECTOR_BYTES);
    if (!(known_ >> phase & 1)) {
        costs_[phase] = work_out(request);
        known_ |= 1u << phase;
    }
    return costs_[phase];
}

// ---------------------------------------------------------------- a block

void Counter::begin_block(uint3 block) {
    for (auto& log : requests_) log.clear(request_pool_);  // of a block that was abandoned
    for (auto& log : visits_) log.clear(visit_pool_);
    first_block_ = block.x == 0 && block.y == 0 && block.z == 0;
    std::memset(of_warp_, 0, sizeof of_warp_);
    warp_ = stage_ = 0;
    dynamic_shared_ = reinterpret_cast<std::uintptr_t>(position.dynamic_shared);
}

void Counter::barrier() {
    count_block();
    stage_++;
}

void Counter::end_block() { count_block(); }

// Lanes of one request may reach different arrays, which share neither a sector nor a word.
std::uint64_t Counter::offset_in_other_array(const Access& access) {
    auto known = std::find(other_arrays_.begin(), other_arrays_.end(), access.array);
    std::uint64_t number = std::uint64_t(known - other_arrays_.begin()) + 1;
    if (known == other_arrays_.end()) other_arrays_.push_back(access.array);
    return (number << 44) + (access.address - access.array->begin);
}

void Counter::fetch(Access access, const std::uintptr_t* texels, unsigned count) {
    unsigned lane = access.thread % WARP_SIZE;
    MemoryRequest& request = request_of(access, LONGEST_OF_FETCHES);
    request.offset[lane] = MemoryRequest::NOWHERE;
    for (unsigned i = 0; i < count; i++) {
        access.address = texels[i];
        std::uint64_t offset = offset_in(*request.array, access);
        if (i) request.more.push_back({lane, offset});
        else request.offset[lane] = offset;
    }
}

// A warp is counted as soon as it is through, to keep the logs small. One that only waits for a
// thread of another warp is not.
void Counter::go_to_warp(unsigned warp) {
    if (Multiprocessor::running()->is_through(warp_)) count_warp(warp_);
    warp_ = warp;
}

// A loop without a barrier may be long: the first lane stops where the log is full. When it goes
// on, the others of its warp are through or have stopped as well, for what they do next is not in
// the log. Lanes that diverge stop at other requests, and some of these then count as two.
void Counter::let_other_lanes_catch_up() {
    unsigned warp = warp_, counted = times_counted_[warp];
    Multiprocessor::running()->yield();
    if (warp != warp_) go_to_warp(warp);
    if (times_counted_[warp] == counted) count_warp(warp);
}

void Counter::count_block() {
    for (unsigned warp = 0; warp < MAX_WARPS; warp++) count_warp(warp);
}

void Counter::count_warp(unsigned warp) {
    for (MemoryRequest& request : requests_[warp].entries()) count(request, warp);
    count_joined(requests_[warp].entries());
    for (const Visit& visit : visits_[warp].entries()) {
        Executions& executions = executions_[visit.code];
        executions.warps++;
        executions.lanes += unsigned(__builtin_popcount(visit.lanes));
    }
    requests_[warp].clear(request_pool_);
    visits_[warp].clear(visit_pool_);
    times_counted_[warp]++;
}

void Counter::count(MemoryRequest& request, unsigned warp) {
    unsigned number = site_of(request);
    AccessSite& site = *sites_[number];
    unsigned space = unsigned(site.space), kind = unsigned(site.kind);
    std::uint64_t& busiest = busiest_[space][kind];
    busiest = std::max(busiest, ++of_warp_[warp][space][kind]);
    if (first_block_) {
        stages_[{stage_, warp, number}]++;
        if (site.samples++ < SAMPLES) {
            Sample& sample =
                samples_.emplace_back(Sample{number, warp, request.lanes, {}, request.more});
            std::copy(request.offset, request.offset + WARP_SIZE, sample.offset);
        }
    }
    RequestCost cost = site.costs.of(request);
    site.requests++;
    site.lanes += unsigned(__builtin_popcount(request.lanes));
    site.sectors += cost.sectors;
    site.ideal_sectors += cost.ideal_sectors;
    site.wavefronts += cost.wavefronts;
    site.ideal_wavefronts += cost.ideal_wavefronts;
    site.same_address += cost.same_address;
    site.texels += cost.texels;
}

// What nvcc may make of the requests to shared memory that a warp made in this order.
void Counter::count_joined(std::vector<MemoryRequest>& requests) {
    std::map<std::tuple<const KernelArray*, AccessKind, unsigned>, std::vector<MemoryRequest*>> alike;
    for (MemoryRequest& request : requests)
        if (request.space == MemorySpace::shared && request.kind != AccessKind::atomic)
            alike[{request.array, request.kind, request.bytes}].push_back(&request);
    for (const auto& [what, in_order] : alike) {
        for (std::size_t first = 0; first < in_order.size();) {
            MemoryRequest joined = *in_order[first];
            AccessSite& site = *sites_[site_of(joined)];
            joined.bytes = joined_bytes(in_order, first);
            site.joined_requests++;
            site.joined_wavefronts += site.joined_costs.of(joined).wavefronts;
            first += joined.bytes / site.bytes;
        }
    }
}

unsigned Counter::site_of(const MemoryRequest& request) {
    std::vector<unsigned>& of_code = sites_of_code_[request.code];
    for (unsigned number : of_code)
        if (sites_[number]->array == request.array && sites_[number]->kind == request.kind)
            return number;
    of_code.push_back(unsigned(sites_.size()));
    auto site = std::make_unique<AccessSite>();  // all zeros
    site->code = request.code;
    site->array = request.array;
    site->bytes = request.bytes;
    site->kind = request.kind;
    site->space = request.space;
    site->name = request.name;
    sites_.push_back(std::move(site));
    return of_code.back();
}

// ---------------------------------------------------------------- a launch, as JSON

static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

static std::string number(std::uint64_t value) { return std::to_string(value); }
static std::string number(const void* code) { return number(std::uint64_t(code)); }

// "[item, item]" of what write(item) returns for each.
template <class Items, class Write>
static std::string list(const Items& items, Write write) {
    std::string out = "[";
    for (const auto& item : items) {
        if (out.size() > 1) out += ",";
        out += write(item);
    }
    return out + "]";
}

static std::string list(std::initializer_list<std::uint64_t> numbers) {
    return list(numbers, [](std::uint64_t value) { return number(value); });
}

std::string Counter::take() {
    if (executions_.empty() && sites_.empty()) return "";
    std::string text = "{\"accesses\":" + list(sites_, [&](const auto& site) {
        bool dynamic = site->array->begin == dynamic_shared_;
        return "{\"code\":" + number(site->code) + ",\"array\":" + quoted(site->name) +
               ",\"array_bytes\":" + number(dynamic ? 0 : site->array->bytes) +
               ",\"space\":" + number(std::uint64_t(site->space)) +
               ",\"kind\":" + number(std::uint64_t(site->kind)) +
               ",\"bytes\":" + number(site->bytes) + ",\"sums\":" +
               list({site->requests, site->lanes, site->sectors, site->ideal_sectors,
                     site->wavefronts, site->ideal_wavefronts, site->same_address,
                     site->joined_requests, site->joined_wavefronts, site->texels}) + "}";
    });
    text += ",\"samples\":" + list(samples_, [](const Sample& sample) {
        std::string offsets;
        for (unsigned lane = 0; lane < WARP_SIZE; lane++) {
            bool is_there = sample.lanes >> lane & 1 && sample.offset[lane] != MemoryRequest::NOWHERE;
            offsets += (lane ? "," : "") + (is_there ? number(sample.offset[lane]) : "null");
        }
        return "[" + number(sample.site) + "," + number(sample.warp) + ",[" + offsets + "]," +
               list(sample.more, [](const LaneOffset& texel) {
                   return list({texel.lane, texel.offset});
               }) + "]";
    });
    text += ",\"blocks\":" + list(executions_, [](const auto& entry) {
        return "[" + number(entry.first) + "," + number(entry.second.warps) + "," +
               number(entry.second.lanes) + "]";
    });
    text += ",\"stages\":" + list(stages_, [](const auto& entry) {
        const auto& [stage, warp, site] = entry.first;
        return list({stage, warp, site, entry.second});
    });
    text += ",\"busiest\":" + list(busiest_, [](const auto& kinds) {
        return list(kinds, [](std::uint64_t requests) { return number(requests); });
    });
    sites_.clear();
    sites_of_code_.clear();
    executions_.clear();
    samples_.clear();
    stages_.clear();
    std::memset(busiest_, 0, sizeof busiest_);
    other_arrays_.clear();
    return text + "}";
}

// ---------------------------------------------------------------- a launch, and a trace of many

struct Counts {
    std::mutex mutex;
    std::vector<Counter*> counters;
    std::string launches;  // JSON, one after the other with commas between
};

static std::atomic<bool> counting{false};

static Counts& counts() {
    static auto* counts = new Counts;  // never destroyed: multiprocessors outlive main()
    return *counts;
}

bool Counter::is_on() { return counting; }

Counter::Counter() {
    std::lock_guard<std::mutex> lock(counts().mutex);
    counts().counters.push_back(this);
}

Counter::~Counter() {
    std::lock_guard<std::mutex> lock(counts().mutex);
    auto& all = counts().counters;
    all.erase(std::find(all.begin(), all.end(), this));
}

void end_counted_launch(const Launch& launch) {
    std::lock_guard<std::mutex> lock(counts().mutex);
    auto* code = reinterpret_cast<void*>(launch.run_threads);  // in the kernel's library
    Dl_info library{};
    dladdr(code, &library);
    auto dimensions = [](uint3 d) { return list({d.x, d.y, d.z}); };
    std::string parts;
    for (Counter* counter : counts().counters) {
        std::string part = counter->take();
        if (!part.empty()) parts += (parts.empty() ? "" : ",") + part;
    }
    std::string& launches = counts().launches;
    launches += (launches.empty() ? "" : ",") + std::string("{\"kernel\":") +
                quoted(launch.kernel) + ",\"line\":" + number(std::uint64_t(launch.line)) +
                ",\"grid\":" + dimensions(launch.grid) + ",\"block\":" + dimensions(launch.block) +
                ",\"dynamic_shared_bytes\":" + number(launch.shared_bytes) +
                ",\"library\":" + quoted(file_of(code, library)) +
                ",\"base\":" + number(library.dli_fbase) + ",\"counters\":[" + parts + "]}";
}

extern "C" {

CUDA_ON_CPU_API void cuda_on_cpu_begin_counting() {
    counts().launches.clear();
    counting = true;
}

// The launches since, as a JSON list: valid until the next call.
CUDA_ON_CPU_API const char* cuda_on_cpu_take_counts() {
    static std::string text;
    counting = false;
    text = "[" + counts().launches + "]";
    return text.c_str();
}

}

}  // namespace cuda_on_cpu
