// Asynchronous copies to shared memory: cp.async, __pipeline_memcpy_async, memcpy_async. A copy is
// there as late as CUDA allows: at the wait for it. Before that its target is all ones (a NaN), so
// that a kernel which does not wait computes nonsense here as well.
#pragma once
#include <cstring>

#include "runtime.h"

namespace cuda_on_cpu {

// from: where the value was read, or null
CUDA_ON_CPU_API void deliver_later(void* to, const void* from, const void* value,
                                   std::size_t bytes);
CUDA_ON_CPU_API void commit_copies();                   // those of this thread: a group
CUDA_ON_CPU_API void wait_for_copies(unsigned groups);  // all but the latest so many
CUDA_ON_CPU_API void wait_for_all_copies();             // also those in no group
// The copies that are in no group yet are there when this BlockBarrier opens.
CUDA_ON_CPU_API void bind_copies(const void* barrier);

// Chunk: what moves in one access. Without a read, zeros are copied.
template <class Chunk>
CUDA_ON_CPU_INLINE void copy_chunk(void* to, const void* from, bool reads = true) {
    Chunk value{};
    if (reads) value = *static_cast<const Chunk*>(from);
    Chunk ones;
    std::memset(&ones, 0xff, sizeof ones);
    *static_cast<Chunk*>(to) = ones;
    deliver_later(to, reads ? from : nullptr, &value, sizeof value);
}

// bytes: 4, 8 or 16; the bytes from `given` on become zeros.
CUDA_ON_CPU_INLINE void copy_async(void* to, const void* from, unsigned bytes, unsigned given) {
    if (given && given < bytes) {
        for (unsigned i = 0; i < bytes; i++)
            copy_chunk<char>(static_cast<char*>(to) + i, static_cast<const char*>(from) + i,
                             i < given);
    } else if (bytes == 16) {
        copy_chunk<uint4>(to, from, given);
    } else if (bytes == 8) {
        copy_chunk<uint2>(to, from, given);
    } else {
        copy_chunk<unsigned>(to, from, given);
    }
}

// Any number of bytes, in accesses as wide as the addresses allow.
CUDA_ON_CPU_INLINE void copy_all_async(void* to, const void* from, std::size_t bytes) {
    auto* target = static_cast<char*>(to);
    auto* source = static_cast<const char*>(from);
    auto addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
    std::size_t wide = ((addresses | bytes) & 15) == 0 ? 16
                       : ((addresses | bytes) & 7) == 0 ? 8
                       : ((addresses | bytes) & 3) == 0 ? 4
                                                        : 1;
    for (std::size_t i = 0; i < bytes; i += wide) {
        if (wide == 1)
            copy_chunk<char>(target + i, source + i);
        else
            copy_async(target + i, source + i, unsigned(wide), unsigned(wide));
    }
}

// The part of one thread of a group that copies together: every so many pieces of 16 bytes.
template <class Group>
CUDA_ON_CPU_INLINE void copy_share_async(const Group& group, void* to, const void* from,
                                         std::size_t bytes) {
    std::size_t step = 16 * std::size_t(group.size());
    for (std::size_t i = 16 * std::size_t(group.thread_rank()); i < bytes; i += step)
        copy_all_async(static_cast<char*>(to) + i, static_cast<const char*>(from) + i,
                       bytes - i < 16 ? bytes - i : 16);
}

}  // namespace cuda_on_cpu
