// Counts what a GPU would do for a kernel's accesses: the requests of its warps, the sectors of
// global memory that they move and the wavefronts over the banks of shared memory; and how often
// each basic block of machine code runs. Each multiprocessor has a Counter for the blocks it runs.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../include/cuda_on_cpu/runtime.h"
#include "access.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

constexpr std::size_t LONGEST_LOG = 1 << 18;  // entries: 80 MB
constexpr std::size_t LONGEST_OF_FETCHES = LONGEST_LOG / 16;  // with 8 texels a lane: 60 MB
constexpr unsigned SAMPLES = 4;               // requests of an access that the pictures show

// The lanes of a warp that came to one instruction at one place. Lanes run one after the other and
// mostly do the same, so each visit remembers which one a lane made after it.
struct Visit {
    static constexpr std::uint32_t NONE = ~0u;
    const void* code;
    std::uint64_t place;
    std::uint32_t lanes = 0;     // bit i is lane i
    std::uint32_t next = NONE;   // the visit that the last lane which was here made after it
    std::uint32_t again = NONE;  // another one with this code and place: a lane came twice

    Visit(const void* code, std::uint64_t place) : code(code), place(place) {}
};

struct LaneOffset {
    unsigned lane;
    std::uint64_t offset;
};

struct MemoryRequest : Visit {
    static constexpr std::uint64_t NOWHERE = ~0ull;  // a fetch that reads no texel: a border's
    using Visit::Visit;
    const KernelArray* array;  // of its first lane
    unsigned bytes;            // that one lane moves
    AccessKind kind;
    MemorySpace space;
    const char* name;
    std::uint64_t offset[WARP_SIZE];  // from the array's start
    std::vector<LaneOffset> more;     // texels, of lanes that read several

    bool is_fetch() const { return space >= MemorySpace::texture; }
};

// What the lanes of one warp have done since it was last counted, in the order of the first lane.
template <class Entry>
class WarpLog {
public:
    // The entry for this code and place, with this lane added, if the lane does what the last one
    // here did; else null.
    Entry* follow(const void* code, std::uint64_t place, unsigned lane) {
        std::uint32_t at = *successor(lane), bit = 1u << lane;
        if (at == Visit::NONE) return nullptr;
        Entry& entry = entries_[at];
        if (entry.code != code || entry.place != place || entry.lanes & bit) return nullptr;
        last_[lane] = at;
        seen_ |= bit;
        entry.lanes |= bit;
        return &entry;
    }

    // Likewise in any case; the entry's only lane if it is new.
    [[gnu::noinline]] Entry& look_up(const void* code, std::uint64_t place, unsigned lane,
                                     std::vector<std::vector<Entry>>& pool);

    std::vector<Entry>& entries() { return entries_; }
    void clear(std::vector<std::vector<Entry>>& pool);

private:
    std::uint32_t* successor(unsigned lane) {
        return seen_ >> lane & 1 ? &entries_[last_[lane]].next : &first_;
    }
    std::uint32_t& slot(const void* code, std::uint64_t place);
    void index_new_entries();

    std::vector<Entry> entries_;
    std::uint32_t seen_ = 0;  // lanes that have made a visit
    std::uint32_t first_ = Visit::NONE, last_[WARP_SIZE];
    std::vector<std::uint32_t> slots_;  // hash table over code and place
    std::size_t indexed_ = 0;           // entries in it: none as long as one lane is alone
};

struct RequestCost {
    std::uint16_t sectors, ideal_sectors, wavefronts, ideal_wavefronts, same_address, texels;
};
RequestCost work_out(const MemoryRequest& request);  // by the rules in request_cost.cpp

// The bytes that one lane moves if nvcc joins requests[first] with those after it: neighbours that
// lie in order, aligned to the whole; just the request's own if there is nothing to join.
unsigned joined_bytes(const std::vector<MemoryRequest*>& requests, std::size_t first);

// The cost depends on the offsets relative to the first one and on where that lies in its sector.
// Most requests of an instruction repeat the pattern of the one before, so its costs are kept.
class RecentCosts {
public:
    RequestCost of(MemoryRequest& request);

private:
    std::uint32_t pattern_lanes_ = 0, known_ = 0;  // bit i of known_: costs_[i]
    unsigned pattern_bytes_ = 0;
    std::uint64_t pattern_[WARP_SIZE];
    RequestCost costs_[SECTOR_BYTES];  // by the byte in its sector that the first lane's access begins at
};

// All requests that one instruction made to one array.
struct AccessSite {
    const void* code;
    const KernelArray* array;
    unsigned bytes;
    AccessKind kind;
    MemorySpace space;
    const char* name;
    std::uint64_t requests, lanes, sectors, ideal_sectors, wavefronts, ideal_wavefronts,
        same_address, joined_requests, joined_wavefronts, texels;
    unsigned samples;
    RecentCosts costs, joined_costs;
};

class Counter {
public:
    Counter();
    ~Counter();

    // Whether launches are to be counted; what follows is then called.
    static bool is_on();

    void begin_block(uint3 block);
    void access(const Access& access) {
        MemoryRequest& request = request_of(access, LONGEST_LOG);
        request.offset[access.thread % WARP_SIZE] = offset_in(*request.array, access);
    }
    // Of a texture or surface, where a lane may read several texels, or none.
    void fetch(Access access, const std::uintptr_t* texels, unsigned count);
    // A basic block of machine code begins, at `code`.
    void executed(const void* code, std::uint64_t place, unsigned thread) {
        visit(visits_, visit_pool_, code, place, thread);
    }
    void barrier();  // of the block; it opens
    void end_block();

    std::string take();  // what it counted since the last time, as JSON; "" if nothing

private:
    struct Sample {
        unsigned site, warp;
        std::uint32_t lanes;
        std::uint64_t offset[WARP_SIZE];
        std::vector<LaneOffset> more;
    };
    struct Executions {
        std::uint64_t warps, lanes;
    };

    template <class Entry>
    Entry& visit(WarpLog<Entry>* logs, std::vector<std::vector<Entry>>& pool, const void* code,
                 std::uint64_t place, unsigned thread, std::size_t longest = LONGEST_LOG) {
        if (thread / WARP_SIZE != warp_) go_to_warp(thread / WARP_SIZE);
        WarpLog<Entry>& log = logs[warp_];
        if (Entry* entry = log.follow(code, place, thread % WARP_SIZE)) return *entry;
        if (log.entries().size() >= longest) let_other_lanes_catch_up();
        return log.look_up(code, place, thread % WARP_SIZE, pool);
    }
    MemoryRequest& request_of(const Access& access, std::size_t longest) {
        // One instruction may load and then store.
        std::uint64_t place = access.place ^ std::uint64_t(access.kind) << 62;
        MemoryRequest& request =
            visit(requests_, request_pool_, access.code, place, access.thread, longest);
        if (request.lanes == 1u << access.thread % WARP_SIZE) {
            request.array = access.array;
            request.bytes = access.bytes;
            request.kind = access.kind;
            request.space = access.space;
            request.name = access.name;
        }
        return request;
    }
    std::uint64_t offset_in(const KernelArray& array, const Access& access) {
        return &array == access.array ? access.address - array.begin
                                      : offset_in_other_array(access);
    }
    [[gnu::noinline]] void go_to_warp(unsigned warp);
    [[gnu::noinline]] void let_other_lanes_catch_up();
    void count_warp(unsigned warp);
    void count_block();
    void count(MemoryRequest& request, unsigned warp);
    void count_joined(std::vector<MemoryRequest>& requests);
    unsigned site_of(const MemoryRequest& request);
    std::uint64_t offset_in_other_array(const Access& access);

    WarpLog<MemoryRequest> requests_[MAX_WARPS];
    WarpLog<Visit> visits_[MAX_WARPS];
    // The memory of logs that are counted, the last one on top: the next warp finds it in the cache.
    std::vector<std::vector<MemoryRequest>> request_pool_;
    std::vector<std::vector<Visit>> visit_pool_;
    unsigned times_counted_[MAX_WARPS] = {};
    unsigned warp_ = 0;         // the one that runs
    std::uint64_t of_warp_[MAX_WARPS][4][3] = {};  // of the block, by space, kind: its requests
    std::uint64_t busiest_[4][3] = {};             // of the warp that made most, of all blocks
    bool first_block_ = false;  // block (0,0,0), which the samples and stages are of
    unsigned stage_ = 0;        // barriers that the block has passed
    std::uintptr_t dynamic_shared_ = 0;

    std::vector<std::unique_ptr<AccessSite>> sites_;
    std::unordered_map<const void*, std::vector<unsigned>> sites_of_code_;
    std::unordered_map<const void*, Executions> executions_;
    std::vector<Sample> samples_;
    std::map<std::array<unsigned, 3>, std::uint64_t> stages_;  // stage, warp, site: its requests
    std::vector<const KernelArray*> other_arrays_;
};

// At the end of a launch that was counted: keeps what all Counters have, and clears them.
void end_counted_launch(const Launch& launch);

}  // namespace cuda_on_cpu
