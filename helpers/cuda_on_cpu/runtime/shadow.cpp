#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace cuda_on_cpu {

void* map_zeros(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    constexpr std::size_t LARGE = 4 << 20;
    if (bytes >= LARGE) madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults
#endif
    return memory;
}

// An array that begins anywhere has cells of one byte: other cells begin where numbers do.
static unsigned bytes_of_cell(std::uintptr_t begin, std::size_t element_bytes) {
    unsigned bytes = element_bytes == 1 ? 1 : element_bytes == 2 ? 2 : 4;
    return begin % bytes ? 1 : bytes;
}

Shadow::Shadow(std::uintptr_t begin, std::size_t bytes, std::size_t element_bytes)
    : cell_bytes_(bytes_of_cell(begin, element_bytes)) {
    // The marks of a cell do not share a set of the cache.
    constexpr std::size_t PAGE = 4096 / sizeof(Mark), APART = 192 / sizeof(Mark);
    stride_ = (bytes / cell_bytes_ / PAGE + 1) * PAGE + APART;
    bytes_ = 3 * stride_ * sizeof(Mark);
    marks_ = static_cast<Mark*>(map_zeros(bytes_));
}

Shadow::~Shadow() { munmap(marks_, bytes_); }

void Shadow::forget() {
    void* afresh = mmap(marks_, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (afresh == MAP_FAILED) throw std::bad_alloc();
}

void Clocks::begin_block(std::uint64_t block) {
    block_bits_ = Mark::bits_of_block(block);
    begin_at(1);
    if (ticked_) std::memset(time_, 0, sizeof time_);
    if (lanes_met_) std::memset(known_, 0, sizeof known_);
    ticked_ = lanes_met_ = false;
}

void Clocks::tick(unsigned thread) {
    ticked_ = true;
    now_of_ = NOBODY;
    unsigned now = std::min(time(thread) + 1, Mark::LATEST);
    time_[thread] = std::uint16_t(now);
    latest_ = std::max(latest_, now);
}

void Clocks::sync_lanes(unsigned warp, std::uint32_t lanes) {
    lanes_met_ = true;
    unsigned first = warp * LANES;
    std::uint16_t joined[LANES] = {};
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1) {
        unsigned lane = unsigned(__builtin_ctz(rest));
        std::uint16_t* known = known_[first + lane];
        for (unsigned i = 0; i < LANES; i++) joined[i] = std::max(joined[i], known[i]);
        tick(first + lane);
    }
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1) {
        unsigned lane = unsigned(__builtin_ctz(rest));
        joined[lane] = std::max(joined[lane], time_[first + lane]);
    }
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1)
        std::memcpy(known_[first + unsigned(__builtin_ctz(rest))], joined, sizeof joined);
}

}  // namespace cuda_on_cpu
