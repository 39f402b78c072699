// The memory of what was accessed: for each element of an array the last write and two reads, by
// which a later access of another thread is found to race.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../include/cuda_on_cpu/limits.h"

namespace cuda_on_cpu {

// Zeros that take memory only where they are written.
void* map_zeros(std::size_t bytes);

// Who accessed an element, and when: 64 bits, so that several cores may keep marks of one element.
// A time is a number of the block's barriers and the thread's __syncwarps; it stops at LATEST.
struct Mark {
    std::uint64_t bits;

    static constexpr unsigned BLOCKS = 1u << 18, SITES = 1u << 12, LATEST = 0xffff;

    static std::uint64_t bits_of_block(std::uint64_t block) { return (block % BLOCKS) << 46; }
    static std::uint64_t bits_of_time(unsigned time) { return std::uint64_t{time} << 30; }
    static std::uint64_t bits_of_thread(unsigned thread) { return std::uint64_t{thread} << 20; }
    static Mark of_site(unsigned site) { return {std::uint64_t{site} << 7 | 1}; }
    Mark with_bytes(unsigned mask) const { return {bits | std::uint64_t{mask} << 2}; }
    Mark without_bytes() const { return {bits & ~std::uint64_t{0xf << 2}}; }
    Mark with_order(bool atomic, bool compares, bool of_block) const {
        return {bits | std::uint64_t{of_block} << 19 | std::uint64_t{compares} << 6 |
                std::uint64_t{atomic} << 1};
    }

    bool exists() const { return bits & 1; }
    bool atomic() const { return bits >> 1 & 1; }
    unsigned bytes() const { return bits >> 2 & 0xf; }  // of a cell of up to four, one bit each
    bool is_special() const { return bits >> 6 & 1; }
    bool compares() const { return is_special() && atomic(); }  // compare-and-swap
    // A write: of a copy that is under way. A read: of one that has ended.
    bool copies() const { return is_special() && !atomic(); }
    Mark as_copy() const { return {(bits | 1 << 6) & ~std::uint64_t{1 << 1}}; }
    unsigned site() const { return bits >> 7 & (SITES - 1); }
    bool of_block() const { return bits >> 19 & 1; }  // an atomic, which others of its block see as one step
    unsigned thread() const { return bits >> 20 & 1023; }
    unsigned time() const { return bits >> 30 & LATEST; }
    unsigned block() const { return unsigned(bits >> 46); }
    std::uint64_t when() const { return bits >> 30; }  // block and time
    std::uint64_t who_and_when() const { return bits >> 20 << 20; }
    bool same_block(Mark other) const { return block() == other.block(); }
    bool same_thread(Mark other) const {
        return same_block(other) && thread() == other.thread();
    }
    bool same_time_and_thread(Mark other) const { return (bits ^ other.bits) >> 20 == 0; }
    bool same_moment(Mark other) const {
        return same_time_and_thread(other) && exists() && atomic() == other.atomic();
    }
};

// What is remembered of an element of 1 or 2 bytes, or of 4 bytes of a larger one.
// Writes, reads and other reads lie apart: what is only written takes a third of the memory.
struct Cell {
    Mark* marks;
    std::size_t stride;
    Mark& write() const { return marks[0]; }
    Mark& read() const { return marks[stride]; }
    Mark& other_read() const { return marks[2 * stride]; }
};
struct Cells {
    Mark* marks;  // of the first
    std::size_t stride;
    Cell operator[](std::size_t i) const { return {marks + i, stride}; }
};

inline Mark load(const Mark& mark) { return {__atomic_load_n(&mark.bits, __ATOMIC_RELAXED)}; }
inline void store(Mark& mark, Mark value) {
    __atomic_store_n(&mark.bits, value.bits, __ATOMIC_RELAXED);
}

// The cells of one array. Pages that no access touches take no memory.
class Shadow {
public:
    Shadow(std::uintptr_t begin, std::size_t bytes, std::size_t element_bytes);
    ~Shadow();
    Shadow(const Shadow&) = delete;
    void forget();

    unsigned cell_bytes() const { return cell_bytes_; }  // that a cell stands for
    Cells cells() const { return {marks_, stride_}; }

private:
    unsigned cell_bytes_;
    std::size_t stride_, bytes_;  // of the marks
    Mark* marks_;
};

// Which accesses of a block are ordered before the running thread's, by barriers and __syncwarp.
class Clocks {
public:
    static constexpr unsigned LANES = WARP_SIZE, THREADS = MAX_THREADS;

    void begin_block(std::uint64_t block);
    void barrier() {
        begin_at(latest_ < Mark::LATEST ? latest_ + 1 : latest_);
    }
    void sync_lanes(unsigned warp, std::uint32_t lanes);
    void tick(unsigned thread);  // what the thread does from now on is later

    // What `other`, a lane of the thread's warp, has done before this time, the thread knows of.
    unsigned known(unsigned thread, unsigned other) const {
        return thread == other ? time(thread) : lanes_met_ ? known_[thread][other % LANES] : 0;
    }
    unsigned last_barrier() const { return begin_; }  // what has an earlier time is over
    unsigned time(unsigned thread) const {
        return time_[thread] > begin_ ? time_[thread] : begin_;
    }
    // Block, time and thread, as the marks have them.
    std::uint64_t now(unsigned thread) {
        if (thread != now_of_) {
            now_of_ = thread;
            now_ = block_bits_ | Mark::bits_of_time(time(thread)) | Mark::bits_of_thread(thread);
        }
        return now_;
    }
    // Whether it is of this block, before the last barrier.
    bool is_over(Mark mark) const { return mark.bits - block_bits_ < over_; }
    // Whether an access by `other`, at its time, comes before what `thread` of its block does now.
    bool ordered(unsigned other, unsigned when, unsigned thread) const {
        return when < begin_ || when == Mark::LATEST ||
               (lanes_met_ && other / LANES == thread / LANES &&
                when < known_[thread][other % LANES]);
    }

private:
    void begin_at(unsigned time) {
        begin_ = latest_ = time;
        over_ = Mark::bits_of_time(time);
        now_of_ = NOBODY;
    }
    static constexpr unsigned NOBODY = ~0u;
    std::uint64_t block_bits_ = 0, now_ = 0;
    std::uint64_t over_ = 0;             // begin_, as the marks have it
    unsigned now_of_ = NOBODY;           // the thread that now_ is of
    unsigned begin_ = 1, latest_ = 1;    // time of the last barrier; of anything since
    bool lanes_met_ = false;             // in this block
    bool ticked_ = false;                // likewise, so that some time_ is not 0
    std::uint16_t time_[THREADS] = {};
    std::uint16_t known_[THREADS][LANES] = {};  // what a thread's lanes did before this, it knows of
};

}  // namespace cuda_on_cpu
