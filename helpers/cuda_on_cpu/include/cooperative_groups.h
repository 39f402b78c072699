// Cooperative groups: a block, a grid, or a part of a warp as an object to synchronise.
#pragma once
#define _COOPERATIVE_GROUPS_H_  // others' headers ask for it
#include "cuda_on_cpu/aligned_size.h"
#include "cuda_on_cpu/async_copy.h"
#include "cuda_on_cpu/block_barrier.h"
#include "cuda_runtime.h"

namespace cooperative_groups {

// A grid. sync() needs a launch by cudaLaunchCooperativeKernel, which keeps all blocks alive.
class grid_group {
public:
    void sync(int line = __builtin_LINE()) const {
        cuda_on_cpu::wait_at_barrier(cuda_on_cpu::Barrier::grid, 0, line);
    }
    bool is_valid() const { return cuda_on_cpu::is_cooperative(); }
    unsigned long long num_threads() const { return num_blocks() * threads_of_block(); }
    unsigned long long size() const { return num_threads(); }
    unsigned long long num_blocks() const {
        return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
    }
    unsigned long long block_rank() const {
        return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    unsigned long long thread_rank() const {
        return block_rank() * threads_of_block() + cuda_on_cpu::position.thread;
    }
    dim3 group_dim() const { return gridDim; }
    dim3 dim_blocks() const { return gridDim; }
    dim3 block_index() const { return blockIdx; }

private:
    static unsigned long long threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
};
inline grid_group this_grid() { return {}; }

class thread_block {
public:
    static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
    static unsigned thread_rank() { return cuda_on_cpu::position.thread; }
    static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

// What tiles of more than a warp need in shared memory on a GPU; here the runtime has it.
template <unsigned MaxThreads>
struct block_tile_memory {};
template <unsigned MaxThreads>
inline thread_block this_thread_block(block_tile_memory<MaxThreads>&) { return {}; }

// Some lanes of a warp. The operations are those of a warp, under the group's mask.
class lanes_group {
public:
    void sync(int line = __builtin_LINE()) const { __syncwarp(mask_, line); }
    unsigned num_threads() const { return unsigned(__popc(mask_)); }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const {
        return unsigned(__popc(mask_ & ((1u << cuda_on_cpu::lane()) - 1)));
    }
    int any(int predicate, int line = __builtin_LINE()) const {
        return __any_sync(mask_, predicate, line);
    }
    int all(int predicate, int line = __builtin_LINE()) const {
        return __all_sync(mask_, predicate, line);
    }
    // Bit i of the results is the group's thread i.
    unsigned ballot(int predicate, int line = __builtin_LINE()) const {
        return to_ranks(__ballot_sync(mask_, predicate, line));
    }
    template <class T>
    unsigned match_any(T value, int line = __builtin_LINE()) const {
        return to_ranks(__match_any_sync(mask_, value, line));
    }
    template <class T>
    unsigned match_all(T value, int& predicate, int line = __builtin_LINE()) const {
        return to_ranks(__match_all_sync(mask_, value, &predicate, line));
    }
    template <class T>
    T shfl(T value, int rank, int line = __builtin_LINE()) const {
        return exchange(value, lane_of(unsigned(rank) % num_threads()), line);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, int line = __builtin_LINE()) const {
        unsigned rank = thread_rank();
        return exchange(value, lane_of(rank < delta ? rank : rank - delta), line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, int line = __builtin_LINE()) const {
        unsigned rank = thread_rank();
        return exchange(value, lane_of(rank + delta >= num_threads() ? rank : rank + delta), line);
    }
    unsigned mask() const { return mask_; }

protected:
    explicit lanes_group(unsigned mask) : mask_(mask) {}

    template <class T>
    T exchange(const T& value, unsigned lane, int line) const {
        return cuda_on_cpu::shuffle_any(mask_, value, int(lane), line);
    }
    unsigned lane_of(unsigned rank) const {
        unsigned rest = mask_;
        while (rank--) rest &= rest - 1;
        return unsigned(__ffs(int(rest)) - 1);
    }
    unsigned to_ranks(unsigned lanes) const {
        unsigned ranks = 0, rank = 0;
        for (unsigned rest = mask_; rest; rest &= rest - 1, rank++)
            if (lanes & rest & -rest) ranks |= 1u << rank;
        return ranks;
    }

    unsigned mask_;
};

namespace detail {
// The lanes of the warp's part, `size` lanes wide, that the running thread belongs to.
inline unsigned part_mask(unsigned size) {
    unsigned lanes = size >= 32 ? 0xffffffff : (1u << size) - 1;
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned in_warp = threads - (cuda_on_cpu::position.thread & ~31u);
    unsigned exist = in_warp >= 32 ? 0xffffffff : (1u << in_warp) - 1;
    return lanes << (cuda_on_cpu::lane() & ~(size - 1)) & exist;
}
}  // namespace detail

// Parent: what was divided; void where that does not matter.
template <unsigned Size, class Parent = void>
class thread_block_tile : public lanes_group {
    static_assert(Size && !(Size & (Size - 1)) && Size <= 512, "a tile has 1, 2, 4 ... 512 threads");

public:
    thread_block_tile() : lanes_group(detail::part_mask(Size)) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<Size, Other>& other) : lanes_group(other) {}
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    unsigned thread_rank() const { return cuda_on_cpu::lane() % Size; }
    // Which tile of its parent this one is, and of how many.
    unsigned meta_group_rank() const {
        return cuda_on_cpu::position.thread % threads_of_parent() / Size;
    }
    unsigned meta_group_size() const { return (threads_of_parent() + Size - 1) / Size; }
    template <class T>
    T shfl_xor(T value, unsigned rank_mask, int line = __builtin_LINE()) const {
        unsigned rank = thread_rank(), other = rank ^ rank_mask;
        return this->exchange(value, this->lane_of(other < Size ? other : rank), line);
    }

private:
    static unsigned threads_of_parent() {
        if constexpr (std::is_void<Parent>::value)
            return thread_block::num_threads();
        else
            return Parent::num_threads();
    }
};

// A tile of several warps. Its threads exchange values through memory.
template <unsigned Size>
class large_tile {
    static_assert(!(Size & (Size - 1)) && Size <= 512, "a tile has 1, 2, 4 ... 512 threads");

public:
    void sync(int line = __builtin_LINE()) const {
        cuda_on_cpu::meet_with_tile(first_thread() / 64, Size, line);
    }
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    unsigned thread_rank() const { return cuda_on_cpu::position.thread % Size; }
    unsigned meta_group_rank() const { return cuda_on_cpu::position.thread / Size; }
    unsigned meta_group_size() const { return thread_block::num_threads() / Size; }
    template <class T>
    CUDA_ON_CPU_UNCHECKED T shfl(T value, int rank, int line = __builtin_LINE()) const {
        T result = exchanged(value, line)[unsigned(rank) % Size];
        sync(line);
        return result;
    }
    int any(int predicate, int line = __builtin_LINE()) const {
        return reduce_all(predicate != 0, [](int a, int b) { return a | b; }, line);
    }
    int all(int predicate, int line = __builtin_LINE()) const {
        return reduce_all(predicate != 0, [](int a, int b) { return a & b; }, line);
    }
    // The combination of the values of the threads `first` to `last`.
    template <class T, class Combine>
    CUDA_ON_CPU_UNCHECKED T combine(T value, unsigned first, unsigned last, Combine combine,
                                    int line) const {
        const T* values = exchanged(value, line);
        T total = values[first];
        for (unsigned i = first + 1; i <= last; i++) total = combine(total, values[i]);
        sync(line);
        return total;
    }
    template <class T, class Combine>
    T reduce_all(T value, Combine by, int line) const { return combine(value, 0, Size - 1, by, line); }

private:
    unsigned first_thread() const { return cuda_on_cpu::position.thread / Size * Size; }
    template <class T>
    CUDA_ON_CPU_UNCHECKED const T* exchanged(T value, int line) const {
        static thread_local T values[cuda_on_cpu::MAX_THREADS];
        values[cuda_on_cpu::position.thread] = value;
        sync(line);
        return values + first_thread();
    }
};

namespace detail {
template <unsigned Size, class Parent>
using Tile = std::conditional_t<(Size > 32), large_tile<Size>, thread_block_tile<Size, Parent>>;
}
template <unsigned Size, class Parent>
detail::Tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

// The lanes that run together at this point.
class coalesced_group : public lanes_group {
public:
    explicit coalesced_group(unsigned mask) : lanes_group(mask) {}
    unsigned meta_group_rank() const { return 0; }
    unsigned meta_group_size() const { return 1; }
};
inline coalesced_group coalesced_threads(int line = __builtin_LINE()) {
    return coalesced_group(__activemask(line));
}
// The group's threads for which the predicate, or the label, is the same.
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, int line = __builtin_LINE()) {
    return coalesced_group(__match_any_sync(group.mask(), int(predicate), line));
}
template <class Label, class Group>
coalesced_group labeled_partition(const Group& group, Label label, int line = __builtin_LINE()) {
    return coalesced_group(__match_any_sync(group.mask(), label, line));
}

// A group whose size is known at run time only.
class thread_group : public lanes_group {
public:
    thread_group(const thread_block&) : lanes_group(0), whole_block_(true) {}
    thread_group(const lanes_group& lanes) : lanes_group(lanes), whole_block_(false) {}
    void sync(int line = __builtin_LINE()) const {
        whole_block_ ? thread_block::sync(line) : lanes_group::sync(line);
    }
    unsigned num_threads() const {
        return whole_block_ ? thread_block::num_threads() : lanes_group::num_threads();
    }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const {
        return whole_block_ ? thread_block::thread_rank() : lanes_group::thread_rank();
    }

private:
    bool whole_block_;
};
template <class Parent>
thread_group tiled_partition(const Parent&, unsigned size) {
    return thread_group(coalesced_group(detail::part_mask(size)));
}

template <class Group>
inline void sync(const Group& group, int line = __builtin_LINE()) {
    group.sync(line);
}

// Copies with all threads of the group; wait() tells when all copies are there.
template <class Group, class Size>
CUDA_ON_CPU_INLINE void memcpy_async(const Group& group, void* to, const void* from, Size bytes) {
    cuda_on_cpu::copy_share_async(group, to, from, std::size_t(bytes));
    cuda_on_cpu::commit_copies();
}
// Sizes in elements: what the target has room for, what the source has; the rest becomes zeros.
template <class Group, class T>
CUDA_ON_CPU_INLINE void memcpy_async(const Group& group, T* to, std::size_t room, const T* from,
                                     std::size_t elements) {
    std::size_t copied = elements < room ? elements : room;
    for (std::size_t i = copied + group.thread_rank(); i < room; i += group.size()) to[i] = T{};
    memcpy_async(group, to, from, copied * sizeof(T));
}
template <class Group>
inline void wait(const Group& group, int line = __builtin_LINE()) {
    cuda_on_cpu::wait_for_copies(0);
    group.sync(line);
}
template <unsigned Prior, class Group>
inline void wait_prior(const Group& group, int line = __builtin_LINE()) {
    cuda_on_cpu::wait_for_copies(Prior);
    group.sync(line);
}

// What reductions and scans combine with.
template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

// Thread i gets the combination of the values of the threads 0 to i ...
template <class Group, class T, class Combine = plus<T>>
T inclusive_scan(const Group& group, T value, Combine combine = {}, int line = __builtin_LINE()) {
    for (int delta = 1; delta < __popc(group.mask()); delta *= 2) {
        T before = group.shfl_up(value, unsigned(delta), line);
        if (int(group.thread_rank()) >= delta) value = combine(before, value);
    }
    return value;
}
// ... or, here, of the threads before it.
template <class Group, class T, class Combine = plus<T>>
T exclusive_scan(const Group& group, T value, Combine combine = {}, int line = __builtin_LINE()) {
    T before = group.shfl_up(inclusive_scan(group, value, combine, line), 1, line);
    return group.thread_rank() ? before : T{};
}

// A tile of several warps.
template <unsigned Size, class T, class Combine = plus<T>>
T inclusive_scan(const large_tile<Size>& tile, T value, Combine combine = {},
                 int line = __builtin_LINE()) {
    return tile.combine(value, 0, tile.thread_rank(), combine, line);
}
template <unsigned Size, class T, class Combine = plus<T>>
T exclusive_scan(const large_tile<Size>& tile, T value, Combine combine = {},
                 int line = __builtin_LINE()) {
    unsigned rank = tile.thread_rank();
    T before = tile.combine(value, 0, rank ? rank - 1 : 0, combine, line);
    return rank ? before : T{};
}
template <unsigned Size, class T, class Combine>
T reduce(const large_tile<Size>& tile, T value, Combine combine, int line = __builtin_LINE()) {
    return tile.reduce_all(value, combine, line);
}

// Every thread gets the combination of all values.
template <class Group, class T, class Combine>
T reduce(const Group& group, T value, Combine combine, int line = __builtin_LINE()) {
    T total = inclusive_scan(group, value, combine, line);
    return group.shfl(total, __popc(group.mask()) - 1, line);
}

}  // namespace cooperative_groups
