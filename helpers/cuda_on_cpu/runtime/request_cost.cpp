// What one request costs on the hardware: the rules of helpers/trace/model.py, measured on an H200.
#include <algorithm>

#include "counter.h"

namespace cuda_on_cpu {

// Sectors and, packed, as many as hold the different bytes asked for. `offsets` ascend.
static void count_sectors(const std::uint64_t* offsets, unsigned lanes, unsigned bytes,
                          RequestCost& cost) {
    std::uint64_t next_sector = 0, next_byte = 0, different_bytes = 0;
    cost.sectors = 0;
    for (unsigned i = 0; i < lanes; i++) {
        std::uint64_t end = offsets[i] + bytes, end_sector = (end - 1) / SECTOR_BYTES + 1;
        cost.sectors += std::uint16_t(end_sector - std::max(next_sector, offsets[i] / SECTOR_BYTES));
        different_bytes += end - std::max(next_byte, offsets[i]);
        next_sector = end_sector;
        next_byte = end;
    }
    cost.ideal_sectors = std::uint16_t((different_bytes + SECTOR_BYTES - 1) / SECTOR_BYTES);
}

// Atomics move a sector once for each of the lanes that meet at one address in it.
static unsigned atomic_sectors(const std::uint64_t* offsets, unsigned lanes) {
    unsigned sectors = 0, most = 0, same = 0;
    for (unsigned i = 0; i < lanes; i++) {
        same = i && offsets[i] == offsets[i - 1] ? same + 1 : 1;
        if (i && offsets[i] / SECTOR_BYTES != offsets[i - 1] / SECTOR_BYTES) sectors += most, most = 0;
        most = std::max(most, same);
    }
    return sectors + most;
}

static unsigned most_at_one_address(const std::uint64_t* offsets, unsigned lanes) {
    unsigned most = 0, same = 0;
    for (unsigned i = 0; i < lanes; i++) {
        same = i && offsets[i] == offsets[i - 1] ? same + 1 : 1;
        most = std::max(most, same);
    }
    return most;
}

// The wavefronts for some lanes that are served together: the most that one bank has to deliver,
// in different words; to atomics, one for each lane.
static unsigned most_in_one_bank(const MemoryRequest& request, std::uint32_t lanes) {
    std::vector<std::uint64_t> words;
    words.reserve(2 * WARP_SIZE);
    for (; lanes; lanes &= lanes - 1) {
        std::uint64_t offset = request.offset[__builtin_ctz(lanes)];
        for (std::uint64_t word = offset / WORD_BYTES;
             word <= (offset + request.bytes - 1) / WORD_BYTES; word++)
            words.push_back(word);
    }
    if (request.kind != AccessKind::atomic) {
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
    }
    unsigned in_bank[BANKS] = {}, most = 0;
    for (std::uint64_t word : words) most = std::max(most, ++in_bank[word % BANKS]);
    return most;
}

// Whether each active lane asks for what lane t ^ k asks for, if that is active.
static bool agree(const MemoryRequest& request, unsigned k) {
    for (std::uint32_t left = request.lanes; left; left &= left - 1) {
        unsigned lane = __builtin_ctz(left), other = lane ^ k;
        if (request.lanes >> other & 1 && request.offset[lane] != request.offset[other])
            return false;
    }
    return true;
}

// 128 bytes are served at a time, so of 8-byte accesses half a warp, of 16-byte ones a quarter.
// Two such parts of a load go together if all its lanes agree in pairs (helpers/trace/model.py).
static void count_wavefronts(const MemoryRequest& request, RequestCost& cost) {
    unsigned served = std::max(1u, WARP_SIZE * WORD_BYTES / std::max(WORD_BYTES, request.bytes));
    if (request.kind == AccessKind::load && served < WARP_SIZE &&
        (agree(request, 1) || agree(request, 2)))
        served *= 2;
    cost.wavefronts = cost.ideal_wavefronts = 0;
    for (unsigned first = 0; first < WARP_SIZE; first += served) {
        std::uint32_t part = request.lanes & ~lanes_below(first) & lanes_below(first + served);
        if (!part) continue;
        cost.wavefronts += std::uint16_t(most_in_one_bank(request, part));
        cost.ideal_wavefronts++;
    }
}

// That the lanes of a fetch read or write: one that several of them want counts once.
static unsigned different_texels(const MemoryRequest& request) {
    std::vector<std::uint64_t> texels;
    for (std::uint32_t left = request.lanes; left; left &= left - 1) {
        std::uint64_t offset = request.offset[__builtin_ctz(left)];
        if (offset != MemoryRequest::NOWHERE) texels.push_back(offset);
    }
    for (const LaneOffset& texel : request.more) texels.push_back(texel.offset);
    std::sort(texels.begin(), texels.end());
    return unsigned(std::unique(texels.begin(), texels.end()) - texels.begin());
}

RequestCost work_out(const MemoryRequest& request) {
    // What a GPU moves for a fetch is not known: where it puts an array's texels is its own affair.
    if (request.is_fetch()) return {0, 0, 0, 0, 0, std::uint16_t(different_texels(request))};
    std::uint64_t offsets[WARP_SIZE];
    unsigned lanes = 0;
    for (std::uint32_t left = request.lanes; left; left &= left - 1)
        offsets[lanes++] = request.offset[__builtin_ctz(left)];
    if (!std::is_sorted(offsets, offsets + lanes)) std::sort(offsets, offsets + lanes);

    RequestCost cost{};
    if (request.space == MemorySpace::shared)
        count_wavefronts(request, cost);
    else
        count_sectors(offsets, lanes, request.bytes, cost);
    if (request.kind == AccessKind::atomic) {
        cost.same_address = std::uint16_t(most_at_one_address(offsets, lanes));
        if (request.space == MemorySpace::global) cost.sectors = std::uint16_t(atomic_sectors(offsets, lanes));
    }
    return cost;
}

static bool lies_behind(const MemoryRequest& request, const MemoryRequest& first,
                        std::uint64_t bytes) {
    if (request.lanes != first.lanes) return false;
    for (std::uint32_t left = first.lanes; left; left &= left - 1) {
        unsigned lane = __builtin_ctz(left);
        if (request.offset[lane] != first.offset[lane] + bytes) return false;
    }
    return true;
}

static bool is_aligned(const MemoryRequest& request, unsigned bytes) {
    for (std::uint32_t left = request.lanes; left; left &= left - 1)
        if (request.offset[__builtin_ctz(left)] % bytes) return false;
    return true;
}

unsigned joined_bytes(const std::vector<MemoryRequest*>& requests, std::size_t first) {
    const MemoryRequest& request = *requests[first];
    unsigned run = request.bytes;  // bytes of a lane that lie in order
    for (std::size_t next = first + 1; next < requests.size() && run < WIDEST_ACCESS; next++) {
        if (!lies_behind(*requests[next], request, run)) break;
        run += request.bytes;
    }
    for (unsigned bytes = WIDEST_ACCESS; bytes > request.bytes; bytes /= 2)
        if (bytes <= run && is_aligned(request, bytes)) return bytes;
    return request.bytes;
}

}  // namespace cuda_on_cpu
