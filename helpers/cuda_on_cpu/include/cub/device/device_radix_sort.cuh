// cub::DeviceRadixSort: stable sorts of keys, and of values by their keys. All bits count.
#pragma once
#include <algorithm>
#include <vector>

#include "call.h"

namespace cub {

struct DeviceRadixSort {
    template <class Key>
    static cudaError_t SortKeys(void* temporary, std::size_t& bytes, const Key* in, Key* out,
                                std::size_t n, int = 0, int = sizeof(Key) * 8,
                                cudaStream_t stream = 0) {
        return keys(temporary, bytes, in, out, n, std::less<Key>(), stream);
    }
    template <class Key>
    static cudaError_t SortKeysDescending(void* temporary, std::size_t& bytes, const Key* in,
                                          Key* out, std::size_t n, int = 0,
                                          int = sizeof(Key) * 8, cudaStream_t stream = 0) {
        return keys(temporary, bytes, in, out, n, std::greater<Key>(), stream);
    }
    template <class Key, class Value>
    static cudaError_t SortPairs(void* temporary, std::size_t& bytes, const Key* keys_in,
                                 Key* keys_out, const Value* values_in, Value* values_out,
                                 std::size_t n, int = 0, int = sizeof(Key) * 8,
                                 cudaStream_t stream = 0) {
        return pairs(temporary, bytes, keys_in, keys_out, values_in, values_out, n,
                     std::less<Key>(), stream);
    }
    template <class Key, class Value>
    static cudaError_t SortPairsDescending(void* temporary, std::size_t& bytes, const Key* keys_in,
                                           Key* keys_out, const Value* values_in,
                                           Value* values_out, std::size_t n, int = 0,
                                           int = sizeof(Key) * 8, cudaStream_t stream = 0) {
        return pairs(temporary, bytes, keys_in, keys_out, values_in, values_out, n,
                     std::greater<Key>(), stream);
    }

private:
    template <class Key, class Before>
    static cudaError_t keys(void* temporary, std::size_t& bytes, const Key* in, Key* out,
                            std::size_t n, Before before, cudaStream_t stream) {
        return detail::call(temporary, bytes, stream, [=] {
            std::copy(in, in + n, out);
            std::stable_sort(out, out + n, before);
        });
    }
    template <class Key, class Value, class Before>
    static cudaError_t pairs(void* temporary, std::size_t& bytes, const Key* keys_in,
                             Key* keys_out, const Value* values_in, Value* values_out,
                             std::size_t n, Before before, cudaStream_t stream) {
        return detail::call(temporary, bytes, stream, [=] {
            std::vector<std::pair<Key, Value>> all(n);
            for (std::size_t i = 0; i < n; i++) all[i] = {keys_in[i], values_in[i]};
            std::stable_sort(all.begin(), all.end(), [=](const auto& a, const auto& b) {
                return before(a.first, b.first);
            });
            for (std::size_t i = 0; i < n; i++) {
                keys_out[i] = all[i].first;
                values_out[i] = all[i].second;
            }
        });
    }
};

}  // namespace cub
